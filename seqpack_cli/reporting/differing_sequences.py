"""Compare the sequences of two stores, or of two shard sets, id by id.

The counts of the manifests are not trusted. Stores are compared as flat arrays, block by block, at
about 2 ns per token; shards sequence by sequence in the order of the token store, 0.1 ms each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from seqpack_cli.errors import DataError
from seqpack_cli.files.mapping import let_pages_go
from seqpack_cli.limits import LIMITS
from seqpack_cli.ranges import find_difference, find_differing, is_equal
from seqpack_cli.reporting.differing_columns import ColumnPair
from seqpack_cli.reporting.opened import Opened, describe_origin, find_store
from seqpack_cli.reporting.store_blocks import iter_blocks, read_block_column, view_ids
from seqpack_cli.reporting.texts import decode_rows, open_texts
from seqpack_cli.runs.workers import Progress
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.shards.unpack import UnpackedSequence, iter_unpacked
from seqpack_cli.tokens.store import TokenStore

NUM_AROUND = 8  # ids shown before and after the first that differs

END = UnpackedSequence(2**63, np.empty(0, np.int32), {})  # its index is above every other


def compare_stores(
    first: TokenStore, second: TokenStore, pairs: Sequence[ColumnPair], progress: Progress
) -> dict[str, Any]:
    """Compare sequence i of one store with sequence i of the other, for all i that both have.

    Args:
        pairs: the columns that both have, whose values are compared too.
    """
    counts = _begin_counts()
    num_compared = counts["num_compared"] = min(len(first), len(second))
    for side, store in (("a", first), ("b", second)):
        if len(store) > num_compared:
            counts[f"num_only_in_{side}"] = len(store) - num_compared
            counts[f"first_only_in_{side}"] = num_compared
    for start, stop in iter_blocks(first, second, progress):
        ids_a, lengths_a = view_ids(first, start, stop)
        ids_b, lengths_b = view_ids(second, start, stop)
        differing = find_differing(ids_a, ids_b, lengths_a, lengths_b)
        counts["num_differing"] += len(differing)
        if len(differing) and counts["first"] is None:
            index = start + int(differing[0])
            counts["first"] = _describe(index, (first, first[index]), (second, second[index]))
        for pair in pairs:
            values, others = (
                read_block_column(store, pair.name, start, stop) for store in (first, second)
            )
            pair.compare(np.arange(start, stop), values, others, (lengths_a, lengths_b))
    return counts


def compare_shards(
    first: ShardSet, second: ShardSet, pairs: Sequence[ColumnPair], progress: Progress
) -> dict[str, Any]:
    """Compare the sequences that have the same index in the token store.

    Args:
        pairs: the columns that both have, whose values are compared too.

    Raises:
        FolderError: a batch is damaged, or an index occurs twice.
    """
    counts = _begin_counts()
    progress.on_total(_count_rows(first) + _count_rows(second))
    rows = Progress(on_advance=progress.on_advance)  # else each side would set its own total
    sides = (
        iter_unpacked(shards, {pair.name: shards.columns[pair.name] for pair in pairs}, rows)
        for shards in (first, second)
    )
    size = LIMITS.sequences_per_block
    for number, (index, a, b) in enumerate(_merge(*sides), 1):
        if a is not None and b is not None:
            counts["num_compared"] += 1
            if not is_equal(a.ids, b.ids):
                counts["num_differing"] += 1
                if counts["first"] is None:
                    counts["first"] = _describe(index, (first, a.ids), (second, b.ids))
            for pair in pairs:
                pair.compare_spelled(index, a.columns[pair.name], b.columns[pair.name])
        else:
            side = "a" if b is None else "b"
            counts[f"num_only_in_{side}"] += 1
            if counts[f"first_only_in_{side}"] is None:
                counts[f"first_only_in_{side}"] = index
        if number % size == 0:  # scattered pages are mapped
            _let_shards_go(first, second)
    return counts


def count_equal(shards: ShardSet) -> dict[str, Any]:
    """Return the counts for shards with equal arrays: all sequences are the same."""
    counts, is_repeated = _begin_counts(), shards.max_visits > 1
    visited = [np.empty(0, np.int64)]  # kept only where a sequence may occur several times
    for number in range(shards.num_shards):
        arrays = shards.open_shard(number).arrays
        indices = arrays.tensors["original_indices"]
        indices = indices[(indices >= 0) & (arrays.piece_starts == 0)]
        counts["num_compared"] += len(indices)
        visited += [indices] if is_repeated else []
    if is_repeated:
        counts["num_compared"] = len(np.unique(np.concatenate(visited)))
    return counts


def _begin_counts() -> dict[str, Any]:
    numbers = ("num_compared", "num_differing", "num_only_in_a", "num_only_in_b")
    firsts = ("first_only_in_a", "first_only_in_b", "first")
    return {**dict.fromkeys(numbers, 0), **dict.fromkeys(firsts)}


def _merge(
    first: Iterator[UnpackedSequence], second: Iterator[UnpackedSequence]
) -> Iterator[tuple[int, UnpackedSequence | None, UnpackedSequence | None]]:
    """Yield each index, rising, with the sequences of both sides; None for a side without it."""
    a, b = next(first, END), next(second, END)
    while (index := min(a.index, b.index)) < END.index:
        is_in_a, is_in_b = a.index == index, b.index == index
        yield index, a if is_in_a else None, b if is_in_b else None
        a = next(first, END) if is_in_a else a
        b = next(second, END) if is_in_b else b


def _count_rows(shards: ShardSet) -> int:
    """Return the number of rows to read by the manifest, for the progress bar."""
    ledger = shards.manifest["ledger"]
    return max(int(ledger["num_rows"] - ledger["num_filler_rows"]), 0)


def _let_shards_go(*shard_sets: ShardSet) -> None:
    for shards in shard_sets:
        for number in range(shards.num_shards):
            let_pages_go(shards.open_shard(number).tensors["data"])


Side = tuple[Opened, np.ndarray]


def _describe(index: int, first: Side, second: Side) -> dict[str, Any]:
    """Return how a sequence differs: position, ids and text around it, and the sources."""
    position = find_difference(first[1], second[1])
    described: dict[str, Any] = {"sequence": index, "position": position}
    described["ids_from"] = start = max(position - NUM_AROUND, 0)
    for name, (opened, ids) in (("a", first), ("b", second)):
        around = ids[start : position + NUM_AROUND + 1]
        described[name] = {
            "length": len(ids),
            "ids": around.tolist(),
            "text": _decode(opened, around),
            "origin": describe_origin(find_store(opened), index),
        }
    return described


def _decode(opened: Opened, ids: np.ndarray) -> str | None:
    """Return the text of ids, None if they cannot be decoded: an id may be damaged."""
    try:
        return decode_rows(open_texts(opened), [ids])[0]
    except DataError:
        return None
