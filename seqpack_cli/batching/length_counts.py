"""The lengths of a store, part by part -> how many sequences have each: all that a sort needs.

Where nothing is shuffled, the batches in the order of length follow from these counts, and so do
the sequences that are left out. About 2 ns a sequence; memory for one part and the distinct
lengths.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

NUM_DENSE = 1 << 16  # lengths below have a counter each, others are sorted
ROWS_PER_BLOCK = 1 << 18  # looked at together, which stay in the cache


class PartLengths(Protocol):
    """Where lengths come from: a token store, or what stands for one."""

    @property
    def lengths(self) -> np.ndarray:
        """Return the lengths of all sequences, int32[N]: some plans need them at once."""

    @property
    def part_offsets(self) -> np.ndarray:
        """Give the first sequence of each part, and their number, int64[parts + 1]."""

    def part_lengths(self, number: int) -> np.ndarray:
        """Give the lengths of one part, int32."""


@dataclass(frozen=True)
class LengthCounts:
    """The distinct lengths, longest first, and how many sequences have each."""

    lengths: np.ndarray  # int64
    counts: np.ndarray  # int64

    @property
    def num_sequences(self) -> int:
        """Return the number of sequences of all lengths."""
        return int(self.counts.sum())

    def take(self, which: np.ndarray | slice) -> LengthCounts:
        """Return some of the distinct lengths, given as bool or as a slice."""
        return LengthCounts(self.lengths[which], self.counts[which])


def join_counts(pieces: Sequence[LengthCounts]) -> LengthCounts:
    """Add up what was counted apart.

    >>> one, other = count_lengths([np.array([5, 2])]), count_lengths([np.array([2])])
    >>> join_counts([one, other])
    LengthCounts(lengths=array([5, 2]), counts=array([1, 2]))
    """
    lengths = np.concatenate([np.empty(0, np.int64), *(piece.lengths for piece in pieces)])
    counts = np.concatenate([np.empty(0, np.int64), *(piece.counts for piece in pieces)])
    found, places = np.unique(-lengths, return_inverse=True)
    sums = np.zeros(len(found), np.int64)
    np.add.at(sums, places, counts)
    return LengthCounts(-found, sums)


def iter_parts(source: PartLengths, first: int = 0) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the number and the lengths of each part that has any, from one on."""
    num_sequences = np.diff(source.part_offsets)
    for number in range(first, len(num_sequences)):
        if num_sequences[number]:
            yield number, source.part_lengths(number)


def find_first(source: PartLengths, length: int) -> int:
    """Return the index of the first sequence of a length, which there is."""
    return next(
        int(source.part_offsets[number]) + int((lengths == length).argmax())
        for number, lengths in iter_parts(source)
        if (lengths == length).any()
    )


def count_lengths(blocks: Iterable[np.ndarray]) -> LengthCounts:
    """Count the sequences of each length.

    Args:
        blocks: int32 or int64, each at least 1, in any number of arrays.

    >>> count_lengths([np.array([5, 2]), np.array([2])])
    LengthCounts(lengths=array([5, 2]), counts=array([1, 2]))
    """
    dense = np.zeros(NUM_DENSE, np.int64)
    sparse: Counter[int] = Counter()
    for block in blocks:
        for start in range(0, len(block), ROWS_PER_BLOCK):
            _count_block(block[start : start + ROWS_PER_BLOCK], dense, sparse)
    found = np.flatnonzero(dense)[::-1]
    long = np.array(sorted(sparse, reverse=True), np.int64)
    counts = np.array([sparse[length] for length in long.tolist()], np.int64)
    return LengthCounts(np.concatenate([long, found]), np.concatenate([counts, dense[found]]))


def _count_block(lengths: np.ndarray, dense: np.ndarray, sparse: Counter[int]) -> None:
    if lengths.max() >= NUM_DENSE:
        found, counts = np.unique(lengths[lengths >= NUM_DENSE], return_counts=True)
        for length, count in zip(found.tolist(), counts.tolist(), strict=True):
            sparse[length] += count
        lengths = lengths[lengths < NUM_DENSE]
    counts = np.bincount(lengths)
    dense[: len(counts)] += counts
