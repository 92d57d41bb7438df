"""Compare the sequences of two stores, or of two shard sets, id by id.

The counts of the manifests are not trusted. Stores are compared as flat arrays, block by block, at
about 2 ns per token; shards sequence by sequence in the order of the token store, 0.1 ms each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from seqpack_cli.errors import DataError
from seqpack_cli.files.mapping import let_pages_go
from seqpack_cli.ranges import expand_ranges
from seqpack_cli.reporting.opened import Opened, describe_origin, find_store
from seqpack_cli.runs.progress import Progress
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.shards.unpack_run import iter_sequences
from seqpack_cli.tokens.decoder import open_decoder
from seqpack_cli.tokens.token_store import TokenStore

IDS_PER_BLOCK = 1 << 20  # compared at once, with a byte each for the result
IDS_KEPT = 1 << 26  # after so many ids the mapped pages of a store are released
SEQUENCES_KEPT = 1 << 16  # the same for shards, where sequences are scattered
NUM_AROUND = 8  # ids shown before and after the first that differs

Found = tuple[int, np.ndarray]  # the index of a sequence in its token store, and its ids
END: Found = (2**63, np.empty(0, np.int32))  # greater than every index


def compare_stores(first: TokenStore, second: TokenStore, progress: Progress) -> dict[str, Any]:
    """Compare sequence i of one store with sequence i of the other, for all i that both have."""
    counts = _begin_counts()
    num_compared = counts["num_compared"] = min(len(first), len(second))
    for side, store in (("a", first), ("b", second)):
        if len(store) > num_compared:
            counts[f"num_only_in_{side}"] = len(store) - num_compared
            counts[f"first_only_in_{side}"] = num_compared
    progress.on_total(num_compared)
    for indices in _iter_differing(first, second, progress):
        counts["num_differing"] += len(indices)
        if counts["first"] is None:
            index = int(indices[0])
            counts["first"] = _describe(index, (first, first[index]), (second, second[index]))
    return counts


def compare_shards(first: ShardSet, second: ShardSet, progress: Progress) -> dict[str, Any]:
    """Compare the sequences that have the same index in the token store.

    Raises:
        FolderError: a batch is damaged, or an index occurs twice.
    """
    counts = _begin_counts()
    progress.on_total(_count_rows(first) + _count_rows(second))
    rows = Progress(on_advance=progress.on_advance)  # else each side would set its own total
    merged = _merge(iter_sequences(first, rows), iter_sequences(second, rows))
    for number, (index, ids_a, ids_b) in enumerate(merged, 1):
        if ids_a is not None and ids_b is not None:
            counts["num_compared"] += 1
            if not is_equal(ids_a, ids_b):
                counts["num_differing"] += 1
                if counts["first"] is None:
                    counts["first"] = _describe(index, (first, ids_a), (second, ids_b))
        else:
            side = "a" if ids_b is None else "b"
            counts[f"num_only_in_{side}"] += 1
            if counts[f"first_only_in_{side}"] is None:
                counts[f"first_only_in_{side}"] = index
        if number % SEQUENCES_KEPT == 0:
            _let_shards_go(first, second)
    return counts


def count_equal(shards: ShardSet) -> dict[str, Any]:
    """Return the counts for shards with equal arrays: all sequences are the same."""
    counts = _begin_counts()
    for number in range(shards.num_shards):
        arrays = shards.open_shard(number).arrays
        is_filler = arrays.tensors["original_indices"] < 0
        counts["num_compared"] += int(np.count_nonzero(~is_filler & (arrays.piece_starts == 0)))
    return counts


def is_equal(first: np.ndarray, second: np.ndarray) -> bool:
    """Return whether two flat arrays hold the same numbers."""
    return len(first) == len(second) == find_difference(first, second)


def find_difference(first: np.ndarray, second: np.ndarray) -> int:
    """Return the first index where two flat arrays differ, or the length of the shorter one.

    >>> find_difference(np.array([1, 2, 3]), np.array([1, 5, 3])), find_difference(END[1], END[1])
    (1, 0)
    """
    num_common = min(len(first), len(second))
    for start in range(0, num_common, IDS_PER_BLOCK):
        end = min(start + IDS_PER_BLOCK, num_common)
        differs = first[start:end] != second[start:end]
        if differs.any():
            return start + int(differs.argmax())
    return num_common


def _begin_counts() -> dict[str, Any]:
    numbers = ("num_compared", "num_differing", "num_only_in_a", "num_only_in_b")
    firsts = ("first_only_in_a", "first_only_in_b", "first")
    return {**dict.fromkeys(numbers, 0), **dict.fromkeys(firsts)}


def _iter_differing(
    first: TokenStore, second: TokenStore, progress: Progress
) -> Iterator[np.ndarray]:
    """Yield the indices of sequences that differ, rising, one array per block."""
    num_compared = min(len(first), len(second))
    start = num_kept = 0
    while start < num_compared:
        stop = min(num_compared, _find_stop(first, start), _find_stop(second, start))
        (ids_a, lengths_a), (ids_b, lengths_b) = (
            _view(first, start, stop),
            _view(second, start, stop),
        )
        if stop - start == 1:  # one sequence may be longer than a block
            inside = np.flatnonzero([not is_equal(ids_a, ids_b)])
        else:
            inside = _compare_block(ids_a, ids_b, lengths_a, lengths_b)
        if len(inside):
            yield start + inside
        progress.on_advance(stop - start)
        progress.on_tokens(len(ids_a))
        num_kept += len(ids_a) + len(ids_b)
        if num_kept > IDS_KEPT:
            first.let_pages_go()
            second.let_pages_go()
            num_kept = 0
        start = stop


def _find_stop(store: TokenStore, start: int) -> int:
    """Return the end of a block within a part: several short sequences, or a single one."""
    part = int(np.searchsorted(store.part_offsets, start, "right")) - 1
    ids, starts = store.view_part(part)
    first = int(store.part_offsets[part])
    limit = starts[start - first] + IDS_PER_BLOCK * ids.itemsize
    return max(first + int(np.searchsorted(starts, limit, "right")) - 1, start + 1)


def _view(store: TokenStore, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids of some sequences of one part, concatenated, and the length of each."""
    part = int(np.searchsorted(store.part_offsets, start, "right")) - 1
    ids, starts = store.view_part(part)
    begin = int(starts[start - store.part_offsets[part]]) // ids.itemsize
    lengths = store.lengths[start:stop]
    return ids[begin : begin + int(lengths.sum(dtype=np.int64))], lengths


def _compare_block(
    ids_a: np.ndarray, ids_b: np.ndarray, lengths_a: np.ndarray, lengths_b: np.ndarray
) -> np.ndarray:
    """Return the indices within the block of the sequences that differ, rising."""
    is_as_long = lengths_a == lengths_b
    if not is_as_long.all():
        ids_a, ids_b = _pick(ids_a, lengths_a, is_as_long), _pick(ids_b, lengths_b, is_as_long)
    has_other_ids = ids_a != ids_b
    if has_other_ids.any():
        lengths = lengths_a[is_as_long].astype(np.int64)
        marks = np.bitwise_or.reduceat(has_other_ids.view(np.uint8), np.cumsum(lengths) - lengths)
        is_as_long[is_as_long] = marks == 0
    return np.flatnonzero(~is_as_long)


def _pick(ids: np.ndarray, lengths: np.ndarray, is_wanted: np.ndarray) -> np.ndarray:
    """Return a copy of the ids of the wanted sequences."""
    starts = np.cumsum(lengths, dtype=np.int64) - lengths
    picked: np.ndarray = ids[expand_ranges(starts[is_wanted], lengths[is_wanted])]
    return picked


def _merge(
    first: Iterator[Found], second: Iterator[Found]
) -> Iterator[tuple[int, np.ndarray | None, np.ndarray | None]]:
    """Yield each index, rising, with the ids of both sides; None for a side without it."""
    a, b = next(first, END), next(second, END)
    while (index := min(a[0], b[0])) < END[0]:
        ids_a, ids_b = (found[1] if found[0] == index else None for found in (a, b))
        yield index, ids_a, ids_b
        a = a if ids_a is None else next(first, END)
        b = b if ids_b is None else next(second, END)


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
        return open_decoder(opened.read_tokenizer_json())([ids])[0]
    except DataError:
        return None
