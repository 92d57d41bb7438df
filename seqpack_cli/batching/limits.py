"""Cut ordered sequences into batches of limited rows and tokens.

A batch ends at a number of rows, at a token budget, or at whichever comes first. The budget counts
what the device computes: real tokens, or all cells of the rectangle for padded rows. A limit of
rows takes no time; a budget takes about 0.1 us per sequence, or 2 us per run of equal lengths,
whatever the number of sequences.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from seqpack_cli.batching.batch_table import BatchTable
from seqpack_cli.batching.buckets import choose_buckets, find_buckets
from seqpack_cli.batching.length_counts import LengthCounts
from seqpack_cli.batching.options import PackOptions
from seqpack_cli.limits import LIMITS


@dataclass(frozen=True)
class Limits:
    """The limits of a batch in rows, tokens or both, for one bucket or for all sequences."""

    batch_size: int | None = None
    max_tokens: int | None = None  # no sequence is longer
    padded: bool = False  # a batch costs rows x longest, not the sum of its lengths
    multiple: int = 1  # padded widths are rounded up to it
    key: int | None = None  # of the bucket

    def cut(self, lengths: np.ndarray) -> np.ndarray:
        """Cut sequences into batches, in the given order.

        Args:
            lengths: integers, one per sequence.

        Returns:
            int64[batches + 1]: batch b holds the sequences [b] up to [b + 1].

        >>> Limits(max_tokens=7).cut(np.array([4, 3, 3, 1])).tolist()
        [0, 2, 4]
        >>> Limits(max_tokens=7, padded=True).cut(np.array([4, 3, 3, 1])).tolist()
        [0, 1, 3, 4]
        """
        most_rows = self.batch_size or max(len(lengths), 1)
        if self.max_tokens is None or not len(lengths):
            return np.append(np.arange(0, len(lengths), most_rows), len(lengths))
        cut = _cut_by_cells if self.padded else _cut_by_tokens
        starts = cut(round_up(lengths, self.multiple), most_rows, self.max_tokens)
        return np.append(np.frombuffer(starts, np.int64), len(lengths))

    def cut_runs(self, lengths: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Cut runs of equal lengths into batches, as `cut` cuts their sequences.

        Args:
            lengths: integers, one per run, none longer than the one before.
            counts: sequences of each run, at least 1.

        Returns:
            int64[3, N], one column for each group of equal batches: first row, rows of a batch, and
            number of batches. Groups of several batches lie inside one run; the last batch of all
            is a group of its own.

        >>> Limits(batch_size=2).cut_runs(np.array([4, 3]), np.array([5, 2])).tolist()
        [[0, 4, 6], [2, 2, 1], [2, 1, 1]]
        """
        needed = round_up(lengths, self.multiple)
        found, max_tokens = array("q"), self.max_tokens
        most_rows = self.batch_size or int(counts.sum())
        start = num_rows = num_tokens = widest = 0  # of the unfinished batch
        for length, count in zip(needed.tolist(), counts.tolist(), strict=True):
            left = count
            if num_rows:
                room = most_rows - num_rows
                if max_tokens is not None and self.padded:
                    room = min(room, max_tokens // widest - num_rows)
                elif max_tokens is not None:
                    room = min(room, (max_tokens - num_tokens) // length)
                taken = min(room, left)
                num_rows, num_tokens, left = (
                    num_rows + taken,
                    num_tokens + taken * length,
                    left - taken,
                )
                if not left:
                    continue
                found.extend((start, num_rows, 1))
                start += num_rows
            most = most_rows if max_tokens is None else min(most_rows, max_tokens // length)
            num_full = (left - 1) // most  # the last one stays open: a shorter sequence may fit
            if num_full:
                found.extend((start, most, num_full))
                start += num_full * most
            num_rows = left - num_full * most
            num_tokens, widest = num_rows * length, length
        if num_rows:
            found.extend((start, num_rows, 1))
        return np.array(found, np.int64).reshape(-1, 3).T

    def is_full(self, batch: BatchTable) -> bool:
        """Return whether a table's only batch has no room for another row of a single token."""
        num_rows = int(batch.num_rows[0])
        if self.batch_size is not None and num_rows >= self.batch_size:
            return True
        if self.max_tokens is None:
            return False
        if self.padded:
            return (num_rows + 1) * int(round_up(batch.longest, self.multiple)[0]) > self.max_tokens
        return int(batch.num_tokens[0]) + 1 > self.max_tokens

    def pad(self, table: BatchTable) -> BatchTable:
        """Return the table with the cells of padded rectangles; unchanged if rows are unpadded."""
        if not self.padded:
            return table
        widths = round_up(table.longest, self.multiple) if self.key is None else self.key
        return replace(table, num_cells=table.num_rows * widths)


def choose_keys(kept: LengthCounts, options: PackOptions) -> list[int] | None:
    """Return the bucket keys in ascending order, None without buckets or kept sequences."""
    if options.buckets is None or not len(kept.lengths):
        return None
    if isinstance(options.buckets, tuple):
        return list(options.buckets)
    assert options.num_buckets is not None  # noqa: S101 - resolved
    rounded = round_up(kept.lengths, options.pad_to_multiple)
    return choose_buckets(LengthCounts(rounded, kept.counts), options.num_buckets)


def make_limits(options: PackOptions, keys: Sequence[int] | None) -> list[Limits]:
    """Return the limits of each bucket, the largest first, or of all sequences without keys."""
    if keys is None:
        return [_limit(options, None)]
    return [_limit(options, key) for key in reversed(keys)]


def _limit(options: PackOptions, key: int | None) -> Limits:
    batch_size, max_tokens = options.batch_size, options.max_tokens
    padded = options.fills_rectangle
    if key is not None and padded and max_tokens is not None:  # every row costs its key
        batch_size = min(batch_size or max_tokens, max_tokens // key)
        max_tokens = None
    return Limits(batch_size, max_tokens, padded, options.pad_to_multiple, key)


def find_limits(lengths: np.ndarray, limits: Sequence[Limits]) -> np.ndarray:
    """Return the index in limits of each row's bucket; the largest bucket comes first."""
    keys = [limit.key for limit in reversed(limits) if limit.key is not None]
    return max(len(keys) - 1, 0) - find_buckets(lengths, keys)


def round_up(lengths: np.ndarray, multiple: int) -> np.ndarray:
    """Round lengths up to a multiple, as int64; lengths themselves if the multiple is 1."""
    if multiple == 1:
        return lengths
    rounded: np.ndarray = -(-lengths.astype(np.int64) // multiple) * multiple
    return rounded


def _cut_by_tokens(lengths: np.ndarray, batch_size: int, max_tokens: int) -> array[int]:
    starts = array("q", [0])
    start = num_tokens = 0
    size = LIMITS.sequences_per_block
    for block in range(0, len(lengths), size):
        for row, length in enumerate(lengths[block : block + size].tolist(), block):
            num_tokens += length
            if num_tokens > max_tokens or row - start == batch_size:
                start, num_tokens = row, length
                starts.append(row)
    return starts


def _cut_by_cells(lengths: np.ndarray, batch_size: int, max_tokens: int) -> array[int]:
    starts = array("q", [0])
    start = longest = 0
    size = LIMITS.sequences_per_block
    for block in range(0, len(lengths), size):
        for row, length in enumerate(lengths[block : block + size].tolist(), block):
            if length > longest:
                longest = length
            if longest * (row - start + 1) > max_tokens or row - start == batch_size:
                start, longest = row, length
                starts.append(row)
    return starts
