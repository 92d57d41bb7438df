"""Describe one batch, or one sequence with its text and source, as plain values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from seqpack_cli.batching.buckets import find_bucket_key
from seqpack_cli.batching.layout_rules import LAYOUTS
from seqpack_cli.errors import OptionError
from seqpack_cli.files.url import Place
from seqpack_cli.reporting.batch_places import find_place
from seqpack_cli.reporting.opened import Opened, describe_origin, find_store
from seqpack_cli.reporting.row_targets import count_row_targets, judge_pieces
from seqpack_cli.reporting.row_values import join_pieces, read_row_values, read_sequence_values
from seqpack_cli.reporting.texts import decode_rows, open_texts, split_row
from seqpack_cli.shards.layouts import Batch
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.shards.split_manifest import SplitSet
from seqpack_cli.tokens.columns.made_columns import TARGETS

MAX_SPLIT_IDS = 4096  # decoded to find the text of each token


@dataclass(frozen=True)
class _Row:
    """A sequence in a batch of shards, or a piece of one."""

    start: int  # of the piece, in tokens of the sequence
    place: dict[str, Any]  # shard, batch, and where in it
    ids: np.ndarray
    columns: dict[str, Any]


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

    Args:
        max_text_ids: decode only so many ids of each sequence; decoding may be slow.

    Raises:
        OptionError: this is a token store, or there is no such batch.
    """
    opened = check_batch(opened, index)
    batch, rules = opened[index], LAYOUTS[opened.layout]
    number, inside = opened.find(index)
    entries = _describe_entries(batch, opened, max_text_ids)
    counted = {"num_rows": len(batch.lengths), "num_filler_rows": batch.num_filler_rows}
    if rules.shares_rows:
        counted = {"num_sequences": len(batch.lengths)}
    return {
        "batch": index,
        "layout": opened.layout,
        "shard": opened.manifest["shards"][number]["name"],
        "batch_in_shard": inside,
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
    visit, and `split` is the one of all splits that has it.

    Args:
        max_text_ids: decode only so many of its ids; decoding may be slow.

    Raises:
        OptionError: there is no such sequence.
    """
    if isinstance(opened, SplitSet):
        name, shards = _find_split(opened, index)
        found = describe_sequence(shards, index, max_text_ids=max_text_ids)
        return {"sequence": index, "split": name, **found}
    if isinstance(opened, ShardSet):
        place, ids, columns = _find_in_shards(opened, index)
    else:
        if index >= len(opened):
            raise OptionError(
                f"--sequence {index}: {opened.path} has sequences 0 to {len(opened) - 1}"
            )
        place, ids, columns = {}, opened[index], read_sequence_values(opened, index)
    decode = open_texts(opened)
    pieces = split_row(decode, ids[:MAX_SPLIT_IDS][:max_text_ids])
    tokens: list[dict[str, Any]] = [
        {"text": None if decode is None else each.text, "ids": list(each.ids)} for each in pieces
    ]
    if TARGETS in columns:
        for token, judged in zip(tokens, judge_pieces(pieces, columns[TARGETS]), strict=True):
            token["targets"] = judged
    return {
        "sequence": index,
        **place,
        "length": len(ids),
        **count_row_targets(columns),
        "origin": describe_origin(find_store(opened), index),
        "columns": columns,
        "ids": ids.tolist(),
        "text": decode_rows(decode, [ids[:max_text_ids]])[0],
        "tokens": tokens,
    }


def _describe_shape(batch: Batch, shards: ShardSet) -> dict[str, Any]:
    """Return the fields of this layout, with the row length or the bucket if there is one."""
    shape, rules = batch.describe_shape(), LAYOUTS[shards.layout]
    if rules.shares_rows:
        max_tokens = shards.manifest["options"]["max_tokens"]
        return {"max_tokens": max_tokens, **shape, "shape": [*batch.shape]}
    keys = shards.manifest["bucket_keys"]
    if keys is None or rules.fills_rectangle:  # the width is the key
        return shape
    return {**shape, "bucket_key": find_bucket_key(keys, int(batch.lengths[0]))}


def _find_split(splits: SplitSet, index: int) -> tuple[str, ShardSet]:
    """Return the split that has a sequence."""
    for name, shards in splits.splits.items():
        if next(_iter_rows(shards, index), None) is not None:
            return name, shards
    raise _missing_error(splits.path, index, shards)


def _find_in_shards(
    shards: ShardSet, index: int
) -> tuple[dict[str, Any], np.ndarray, dict[str, Any]]:
    """Return where a sequence is in the shards, its ids and columns, joined if it was split."""
    rows = list(_iter_rows(shards, index))
    if not rows:
        raise _missing_error(shards.path, index, shards)
    visits = [row.place for row in rows if not row.start]
    of_start: dict[int, _Row] = {}
    for row in rows:
        of_start.setdefault(row.start, row)
    # Visits may be cut at different tokens, so each piece follows from the end of the one before.
    pieces, end = list[_Row](), 0
    while end in of_start:
        pieces.append(of_start[end])
        end += len(pieces[-1].ids)
    if not pieces:
        raise _missing_error(shards.path, index, shards)
    place = {**pieces[0].place, "num_pieces": len(pieces), "visits": visits}
    ids = np.concatenate([piece.ids for piece in pieces])
    return place, ids, join_pieces([piece.columns for piece in pieces])


def _iter_rows(shards: ShardSet, index: int) -> Iterator[_Row]:
    """Yield a sequence, or pieces of it, in the order of the batches."""
    if index < 0:  # as of filler rows
        return
    rules = LAYOUTS[shards.layout]
    for number in range(shards.num_shards):
        shard = shards.open_shard(number)
        starts = shard.arrays.piece_starts
        checked: dict[int, Batch] = {}  # the batch of the previous row
        for position in np.flatnonzero(shard.tensors["original_indices"] == index).tolist():
            inside, row = shard.arrays.find_batch(position)
            batch = int(shards.batch_offsets[number]) + inside
            if inside not in checked:
                checked = {inside: shard[inside]}
            place = {"shard": shard.path.name, "batch": batch}
            place |= find_place(checked[inside], rules, row)
            values = read_row_values(checked[inside], shards.columns, row)
            yield _Row(int(starts[position]), place, checked[inside].row(row), values)


def _missing_error(path: Place, index: int, shards: ShardSet) -> OptionError:
    """Return the error about a sequence that shards do not have."""
    num_sequences = shards.num_store_sequences
    if index >= num_sequences:
        return OptionError(f"--sequence {index}: {path} has sequences 0 to {num_sequences - 1}")
    return OptionError(
        f"--sequence {index}: not in {path}",
        hint="it may have been dropped: seqpack inspect shows how many and why",
    )
