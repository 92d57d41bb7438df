"""Describe one batch, or one sequence with its text and source, as plain values."""

from __future__ import annotations

from typing import Any

import numpy as np

from seqpack_cli.batching.options import LAYOUTS
from seqpack_cli.batching.plan import find_buckets
from seqpack_cli.errors import OptionError
from seqpack_cli.reporting.batch_places import find_place
from seqpack_cli.reporting.found_rows import find_in_shards, find_split
from seqpack_cli.reporting.opened import Opened, describe_origin, find_store
from seqpack_cli.reporting.row_targets import count_row_targets, judge_pieces
from seqpack_cli.reporting.row_values import read_row_values, read_sequence_values
from seqpack_cli.reporting.texts import decode_rows, open_texts, split_row
from seqpack_cli.shards.layouts import Batch
from seqpack_cli.shards.pairs import find_partner, match_rows
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.shards.split_set import SplitSet
from seqpack_cli.tokens.columns import TARGETS
from seqpack_cli.tokens.decode import Decoder

MAX_SPLIT_IDS = 4096  # decoded to find the text of each token


def check_batch(opened: Opened, index: int) -> ShardSet:
    """Return `opened` if it is shards with such a batch, else raise OptionError."""
    if not isinstance(opened, ShardSet):
        raise OptionError(
            f"{opened.path}: a token store has no batches", hint="pass a folder of shards"
        )
    if index >= len(opened):
        raise OptionError(f"--batch {index}: {opened.path} has batches 0 to {len(opened) - 1}")
    return opened


def describe_batch(
    opened: Opened, index: int, *, max_text_ids: int | None = None
) -> dict[str, Any]:
    """Return one batch of shards with all its rows; without a tokenizer their `text` is None.

    Where several sequences share a row, `sequences` lists them and their places instead of `rows`.
    Of pairs, `decoder` has the same of the other side; rows of the same document name each other.

    Args:
        max_text_ids: decode only so many ids of each sequence; decoding may be slow.

    Raises:
        OptionError: this is a token store, or there is no such batch.
    """
    shards = check_batch(opened, index)
    number, inside = shards.find(index)
    found = {
        "batch": index,
        "layout": shards.layout,
        "shard": shards.manifest["shards"][number]["name"],
        "batch_in_shard": inside,
        **_describe_side(shards, index, max_text_ids),
    }
    if shards.decoder is None:
        return found
    decoder = _describe_side(shards.decoder, index, max_text_ids)
    for row, other in enumerate(match_rows(shards, index)):
        found["rows"][row]["decoder_row"] = other
        decoder["rows"][other]["encoder_row"] = row
    return {**found, **_find_pair_key(shards, index), "decoder": decoder}


def _describe_side(opened: ShardSet, index: int, max_text_ids: int | None) -> dict[str, Any]:
    """Return the numbers of a batch and its rows, or the sequences that share its rows."""
    batch, rules = opened[index], LAYOUTS[opened.layout]
    entries = _describe_entries(batch, opened, max_text_ids)
    counted = {"num_rows": len(batch.lengths), "num_filler_rows": batch.num_filler_rows}
    if rules.shares_rows:
        counted = {"num_sequences": len(batch.lengths)}
    return {
        **counted,
        "num_tokens": int(batch.lengths.sum()),
        "num_padding_cells": batch.count_padding(),
        "longest": int(batch.lengths.max()),
        **_describe_shape(batch, opened),
        "sequences" if rules.shares_rows else "rows": entries,
    }


def _describe_entries(
    batch: Batch, shards: ShardSet, max_text_ids: int | None
) -> list[dict[str, Any]]:
    """Return the rows of a batch, without filler rows, or the sequences that share its rows."""
    whole, rules = batch.without_filler(), LAYOUTS[shards.layout]
    rows = whole.rows()
    texts = decode_rows(open_texts(shards), [ids[:max_text_ids] for ids in rows])
    assert whole.original_indices is not None  # noqa: S101 - shards always have them
    described = []
    for row, (original, ids, text) in enumerate(
        zip(whole.original_indices, rows, texts, strict=True)
    ):
        columns = read_row_values(whole, shards.columns, row)
        described.append(
            {
                **(find_place(whole, rules, row) if rules.shares_rows else {}),
                "original_index": int(original),
                "length": len(ids),
                **count_row_targets(columns),
                "columns": columns,
                "ids": ids.tolist(),
                "text": text,
            }
        )
    if whole.piece_starts is not None:
        for entry, start in zip(described, whole.piece_starts.tolist(), strict=True):
            entry["piece_start"] = start
    return described


def describe_sequence(
    opened: Opened | SplitSet, index: int, *, max_text_ids: int | None = None
) -> dict[str, Any]:
    """Return one sequence by its index in the token store, from the store, shards or all splits.

    `tokens` has the text and ids of its first tokens, and whether all, some or none of these are
    targets. Without a tokenizer every `text` is None. Of shards, `visits` lists its place, or that
    of its first piece, for each time that it was packed, `num_pieces` counts the pieces of one
    visit, and `split` is the one of all splits that has it. Of pairs, `index` counts the encoder's
    sequences, and `decoder` has the same of the decoder's sequence.

    Args:
        max_text_ids: decode only so many of its ids; decoding may be slow.

    Raises:
        OptionError: there is no such sequence.
    """
    if isinstance(opened, SplitSet):
        name, shards = find_split(opened, index)
        of_split = describe_sequence(shards, index, max_text_ids=max_text_ids)
        return {"sequence": index, "split": name, **of_split}
    if isinstance(opened, ShardSet):
        place, ids, columns = find_in_shards(opened, index)
    else:
        if index >= len(opened):
            raise OptionError(
                f"--sequence {index}: {opened.path} has sequences 0 to {len(opened) - 1}"
            )
        place, ids, columns = {}, opened[index], read_sequence_values(opened, index)
    decode = open_texts(opened)
    found: dict[str, Any] = {
        "sequence": index,
        **place,
        "length": len(ids),
        **count_row_targets(columns),
        "origin": describe_origin(find_store(opened), index),
        "columns": columns,
        "ids": ids.tolist(),
        "text": decode_rows(decode, [ids[:max_text_ids]])[0],
        "tokens": _describe_tokens(decode, ids[:MAX_SPLIT_IDS][:max_text_ids], columns),
    }
    if isinstance(opened, ShardSet) and opened.decoder is not None:
        other = find_partner(opened, place["batch"], place["row"])
        found["decoder"] = describe_sequence(opened.decoder, other, max_text_ids=max_text_ids)
    return found


def _describe_tokens(
    decode: Decoder | None, ids: np.ndarray, columns: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return the first tokens of a sequence, each with its text, ids and maybe `targets`."""
    pieces = split_row(decode, ids)
    tokens: list[dict[str, Any]] = [
        {"text": None if decode is None else each.text, "ids": list(each.ids)} for each in pieces
    ]
    if TARGETS in columns:
        for token, judged in zip(tokens, judge_pieces(pieces, columns[TARGETS]), strict=True):
            token["targets"] = judged
    return tokens


def _describe_shape(batch: Batch, shards: ShardSet) -> dict[str, Any]:
    """Return the fields of this layout, with the row length or the bucket if there is one."""
    shape, rules = batch.describe_shape(), LAYOUTS[shards.layout]
    if rules.shares_rows:
        max_tokens = shards.manifest["options"]["max_tokens"]
        return {"max_tokens": max_tokens, **shape, "shape": [*batch.shape]}
    keys = shards.manifest["bucket_keys"]
    if keys is None or rules.fills_rectangle or shards.side is not None:  # the width is the key
        return shape
    return {**shape, "bucket_key": keys[int(find_buckets(keys, batch.lengths[:1])[0])]}


def _find_pair_key(shards: ShardSet, index: int) -> dict[str, Any]:
    """Return the bucket key of a batch of pairs, the lengths of both sides, if it has one."""
    keys = shards.manifest["bucket_keys"]
    if keys is None:
        return {}
    # The key that holds the longest rows of both sides holds every pair of the batch.
    longest = [side[index].lengths.max(keepdims=True) for side in shards.sides]
    return {"bucket_key": keys[int(find_buckets(keys, *longest)[0])]}
