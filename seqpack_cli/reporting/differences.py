"""Compare two stores, or two shard sets: what differs, as plain values, and a verdict.

Manifests are compared field by field, ids and batches by their content. What only tells how or
where a run was done is ignored: run.json, the folders, the path of the token store.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seqpack_cli.errors import OptionError
from seqpack_cli.files.objects import AnyPath
from seqpack_cli.reporting.differing_batches import compare_batches, have_equal_arrays
from seqpack_cli.reporting.differing_columns import compare_columns, pair_columns
from seqpack_cli.reporting.differing_manifests import compare_manifests, compare_sources
from seqpack_cli.reporting.differing_pairs import compare_pairing
from seqpack_cli.reporting.differing_sequences import compare_shards, compare_stores, count_equal
from seqpack_cli.reporting.opened import Opened, name_kind
from seqpack_cli.reporting.shared_documents import compare_hashes, find_shared
from seqpack_cli.reporting.verdict import judge, judge_kinds, judge_pairs
from seqpack_cli.runs.options import checks_arguments
from seqpack_cli.runs.workers import Progress
from seqpack_cli.shards.shard_set import ShardSet, open_any
from seqpack_cli.tokens.store import TokenStore


@checks_arguments
def diff(a: AnyPath, b: AnyPath, *, progress: Progress | None = None) -> dict[str, Any]:
    """Compare two token stores, or the shards in two folders, as `seqpack diff --json` prints it.

    Shards of pairs are compared side by side, with shards of single sequences by the encoder's.

    Returns:
        What differs, `identical` (bool) and the `verdict` in words.

    Raises:
        OptionError: one is a token store, the other is not.
        FolderError: one is incomplete or damaged.
    """
    return compare(open_any(a), open_any(b), progress)


def compare(first: Opened, second: Opened, progress: Progress | None = None) -> dict[str, Any]:
    """Find in what two stores, or two shard sets, differ; A is the first, B the second.

    Returns:
        What differs in `options`, `facts` and `ledger`, by name with the value on either side that
        has one; `sources` of stores; `columns`; `sequences`; `batches` of shards of one layout;
        `identical` if nothing does; the `verdict` in words. Of pairs these are those of the
        encoder's side, `decoder` has the same of the other side, and `pairing` the sequences of the
        encoder whose partner differs, None if the stores differ.

    Raises:
        OptionError: one is a token store, the other is not.
        FolderError: one is damaged.
    """
    progress = progress or Progress()
    found = _compare_side(first, second, progress)
    found = {**found, **judge(found), "decoder": None, "pairing": None}
    if not isinstance(first, ShardSet) or not isinstance(second, ShardSet):
        return found
    if first.decoder is None or second.decoder is None:
        return {**found, **judge_kinds(found, [first.side, second.side])}
    decoder = _compare_side(first.decoder, second.decoder, progress)
    found["decoder"] = {**decoder, **judge(decoder)}
    found["pairing"] = compare_pairing(first, second)
    return {**found, **judge_pairs(found)}


def _compare_side(first: Opened, second: Opened, progress: Progress) -> dict[str, Any]:
    """Compare two stores, or one side of two shard sets."""
    found: dict[str, Any] = {
        "kind": "differences",
        "compared": "token stores" if isinstance(first, TokenStore) else "shards",
        "a": str(first.path),
        "b": str(second.path),
        "sources": None,
        "columns": None,
        "batches": None,
        "same_arrays": None,
        "same_numbers": None,
    }
    if isinstance(first, TokenStore) and isinstance(second, TokenStore):
        found |= compare_manifests(first, second, "parts")
        found["sources"] = compare_sources(first.manifest, second.manifest)
        pairs = pair_columns(first.columns, second.columns)
        found["sequences"] = compare_stores(first, second, pairs, progress)
        found["documents"] = {**find_shared(first, second), **compare_hashes(first, second)}
    elif isinstance(first, ShardSet) and isinstance(second, ShardSet):
        found |= compare_manifests(first, second, "shards")
        found["same_arrays"] = have_equal_arrays(first, second, progress)
        pairs = pair_columns(first.columns, second.columns)
        if found["same_arrays"] and first.columns == second.columns:
            found["sequences"] = count_equal(first)
        else:
            found["sequences"] = compare_shards(first, second, pairs, progress)
        found["same_numbers"] = _have_same_numbers(first.manifest, second.manifest)
        found["documents"] = find_shared(first, second)
        if first.layout == second.layout:
            found["batches"] = compare_batches(first, second)
    else:
        raise OptionError(
            f"{second.path} holds {name_kind(second)}, {first.path} {name_kind(first)}",
            hint="name two token stores, or the shards of both",
        )
    found["columns"] = compare_columns(first.columns, second.columns, pairs)
    return found


def _have_same_numbers(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Return whether a number means the same sequence: the stores of both are alike in order."""
    pairs = zip(first["stores"], second["stores"], strict=False)
    return all(store["blake3"] == other["blake3"] for store, other in pairs)
