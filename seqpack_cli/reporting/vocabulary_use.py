"""How a token store or shards use the vocabulary, as plain values.

How often tokens occur and which never do, unknown tokens with the text around them, and special
tokens: those that occur as ids, and those that are spelled out in the text. Without a tokenizer,
ids are counted, and none has a spelling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from seqpack_cli.errors import OptionError
from seqpack_cli.files.manifest import has_tokenizer
from seqpack_cli.reporting.id_counts import Example, IdCounts, count_ids
from seqpack_cli.reporting.opened import AnyOpened, describe_origin, find_store, show_path
from seqpack_cli.reporting.spelled_counts import describe_spelled
from seqpack_cli.reporting.texts import decode_rows
from seqpack_cli.runs.workers import Progress
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.tokens.decode import open_decoder, spell_ids
from seqpack_cli.tokens.store import TokenStore
from seqpack_cli.tokens.tokenizer import ROLES, describe_vocabulary, list_ids, list_special_tokens

MAX_NEVER_USED = 5  # examples of each kind
MAX_FREQUENT = 10
MAX_IDS = 1 << 24  # counted without a tokenizer: each takes some 32 bytes


def describe_vocabulary_use(opened: AnyOpened, progress: Progress | None = None) -> dict[str, Any]:
    """Count all ids and describe them; about 300 M ids/s, in constant memory.

    Of pairs, `decoder` has the same of the decoder's side.

    Args:
        progress: is told of ids and padding cells.

    Raises:
        FolderError: an id is larger than `max_id`, or a file is damaged.
        OptionError: without a tokenizer, the vocabulary is too large.
    """
    progress = progress or Progress()
    if not isinstance(opened, ShardSet):
        return {**_name(opened), **_describe_side(opened, progress)}
    found, *others = (_describe_side(side, progress) for side in opened.sides)
    return {**_name(opened), **found, **({"decoder": others[0]} if others else {})}


def _name(opened: AnyOpened) -> dict[str, Any]:
    named = {"kind": "vocabulary", "path": show_path(opened)}
    if isinstance(opened, ShardSet) and opened.side is not None and opened.decoder is None:
        named["side"] = opened.side
    return named


def _describe_side(opened: AnyOpened, progress: Progress) -> dict[str, Any]:
    manifest = opened.manifest
    tokenizer_json = opened.read_tokenizer_json() if has_tokenizer(manifest) else None
    store = find_store(opened)
    stores = () if store is None else store.folders
    has_text = any(each.manifest["made_by"] != "import" for each in stores) or not stores
    spelled = describe_spelled(store) if has_text else None
    ids, special_ids, unk_id = _list_ids(manifest, tokenizer_json, store)
    found = count_ids(opened, ids, unk_id=unk_id, progress=progress)
    is_special = np.isin(ids, special_ids)
    return {
        "vocab_size": manifest["vocab_size"],
        "max_id": manifest["max_id"],
        "tokenizer_blake3": manifest["tokenizer_blake3"],
        "num_tokens": found.num_tokens,
        **_describe_never_used(tokenizer_json, ids, found.counts, is_special),
        "missing": {
            "num_ids": manifest["max_id"] + 1 - len(ids),
            "num_tokens": found.num_tokens - int(found.counts.sum()),
            "examples": _describe_examples(tokenizer_json, found.missing, store),
        },
        "unknown": _describe_unknown(tokenizer_json, unk_id, ids, found, store),
        "special_tokens": _count_tokens(tokenizer_json, special_ids, ids, found),
        "spelled_in_text": spelled,
        "most_frequent": _count_tokens(
            tokenizer_json, _find_frequent(ids, found.counts), ids, found
        ),
    }


def _list_ids(
    manifest: dict[str, Any], tokenizer_json: bytes | None, store: TokenStore | None
) -> tuple[np.ndarray, list[int], int | None]:
    """Return the ids of the vocabulary, the special ones, and the unknown token.

    Without a tokenizer, those that the token store names are special.

    Raises:
        OptionError: without a tokenizer, the ids are more than memory may hold.
    """
    if tokenizer_json is None:
        if manifest["max_id"] >= MAX_IDS:
            raise OptionError(
                f"--vocabulary: vocab_size is {manifest['vocab_size']:,}, expected at most "
                f"{MAX_IDS:,} without a tokenizer",
                hint="import the ids again with a smaller --vocab-size, or with --tokenizer FILE",
            )
        roles = {} if store is None else {role: store.manifest.get(role) for role in ROLES}
        special = sorted({id_ for id_ in roles.values() if id_ is not None})
        return np.arange(manifest["max_id"] + 1), special, roles.get("unk_id")
    ids = np.array(list_ids(tokenizer_json), np.int64)
    unk_id = describe_vocabulary(tokenizer_json).unk_id
    return ids[ids <= manifest["max_id"]], [*list_special_tokens(tokenizer_json)], unk_id


def _describe_never_used(
    tokenizer_json: bytes | None, ids: np.ndarray, counts: np.ndarray, is_special: np.ndarray
) -> dict[str, Any]:
    """Count the ids of the vocabulary that occur and those that do not, with examples."""
    is_unused = counts == 0
    num_unused = int(is_unused.sum())
    never_used = {}
    for name, chosen in (("ordinary", ~is_special), ("special", is_special)):
        some = ids[is_unused & chosen]
        examples = _spell(tokenizer_json, some[:MAX_NEVER_USED].tolist())
        never_used[name] = {"num_ids": len(some), "examples": examples, "ids": some.tolist()}
    return {
        "num_ids": len(ids),
        "num_used_ids": len(ids) - num_unused,
        "num_never_used_ids": num_unused,
        "never_used_share": round(num_unused / max(len(ids), 1), 6),
        "never_used": never_used,
    }


def _describe_unknown(
    tokenizer_json: bytes | None,
    unk_id: int | None,
    ids: np.ndarray,
    found: IdCounts,
    store: TokenStore | None,
) -> dict[str, Any] | None:
    if unk_id is None:
        return None
    (counted,) = _count_tokens(tokenizer_json, [unk_id], ids, found)
    return {**counted, "examples": _describe_examples(tokenizer_json, found.unknown, store)}


def _describe_examples(
    tokenizer_json: bytes | None, examples: Sequence[Example], store: TokenStore | None
) -> list[dict[str, Any]]:
    decode = None if tokenizer_json is None else open_decoder(tokenizer_json)
    texts = decode_rows(decode, [example.ids_around for example in examples])
    return [
        {
            "id": example.id,
            "sequence": example.sequence,
            "position": example.position,
            "origin": describe_origin(store, example.sequence),
            "text": text,
        }
        for example, text in zip(examples, texts, strict=True)
    ]


def _count_tokens(
    tokenizer_json: bytes | None, some: Sequence[int], ids: np.ndarray, found: IdCounts
) -> list[dict[str, Any]]:
    """Return some ids with their text, how often they occur, and their share of all tokens."""
    ids_and_none, counts_and_none = np.append(ids, -1), np.append(found.counts, 0)
    places = np.searchsorted(ids, np.asarray(some, np.int64))
    numbers = np.where(ids_and_none[places] == some, counts_and_none[places], 0).tolist()
    return [
        {
            **spelling,
            "num_tokens": number,
            "share": round(number / max(found.num_tokens, 1), 6),
        }
        for spelling, number in zip(_spell(tokenizer_json, some), numbers, strict=True)
    ]


def _spell(tokenizer_json: bytes | None, some: Sequence[int]) -> list[dict[str, Any]]:
    if tokenizer_json is None:
        return [{"id": id_, "token": None, "text": None, "bytes": None} for id_ in some]
    return [asdict(spelling) for spelling in spell_ids(tokenizer_json, some)]


def _find_frequent(ids: np.ndarray, counts: np.ndarray) -> list[int]:
    """Return the most frequent ids, ties by id."""
    order = np.argsort(-counts, kind="stable")[:MAX_FREQUENT]
    frequent: list[int] = ids[order[counts[order] > 0]].tolist()
    return frequent
