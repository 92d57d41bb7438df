"""Count how many sequences of a store have each length, part by part.

Without shuffling, these counts are enough to plan batches in length order and to know which
sequences are dropped. About 2 ns per sequence; memory for one part and the distinct lengths.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from seqpack_cli.limits import LIMITS


class PartLengths(Protocol):
    """A source of sequence lengths, 0 where a sequence is left out: usually a token store."""

    @property
    def lengths(self) -> np.ndarray:
        """Return the lengths of all sequences, int32[N]."""

    @property
    def part_offsets(self) -> np.ndarray:
        """Return the first sequence of each part, then the number of all, int64[parts + 1]."""

    def part_lengths(self, number: int) -> np.ndarray:
        """Return the lengths of one part, int32."""


@dataclass(frozen=True)
class LengthCounts:
    """The distinct lengths, longest first, and how many sequences have each."""

    lengths: np.ndarray  # int64
    counts: np.ndarray  # int64

    @property
    def num_sequences(self) -> int:
        """Return the number of all sequences."""
        return int(self.counts.sum())

    @property
    def num_tokens(self) -> int:
        """Return the number of tokens of all sequences."""
        return int((self.lengths * self.counts).sum())

    def take(self, which: np.ndarray | slice) -> LengthCounts:
        """Return some of the distinct lengths, selected by a mask or a slice."""
        return LengthCounts(self.lengths[which], self.counts[which])


@dataclass(frozen=True)
class SourceCounts:
    """How many sequences of each length a source has, and how many are left out."""

    kept: LengthCounts  # as often as they are visited
    left_out: Mapping[str, LengthCounts] = field(default_factory=dict)  # by reason
    repeated: LengthCounts | None = None  # those of kept that are not a first visit

    @classmethod
    def join(cls, pieces: Sequence[SourceCounts]) -> SourceCounts:
        """Add up counts that were made separately, for the same reasons; at least one."""
        repeated = [piece.repeated for piece in pieces if piece.repeated is not None]
        return cls(
            join_counts([piece.kept for piece in pieces]),
            {
                reason: join_counts([piece.left_out[reason] for piece in pieces])
                for reason in pieces[0].left_out
            },
            join_counts(repeated) if repeated else None,
        )


def join_counts(pieces: Sequence[LengthCounts]) -> LengthCounts:
    """Add up counts that were made separately.

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
    """Yield the number and the lengths of each part that is not empty, from part `first` on."""
    num_sequences = np.diff(source.part_offsets)
    for number in range(first, len(num_sequences)):
        if num_sequences[number]:
            yield number, source.part_lengths(number)


def find_first(source: PartLengths, length: int) -> int:
    """Return the index of the first sequence of a length that occurs in the source."""
    return next(
        int(source.part_offsets[number]) + int((lengths == length).argmax())
        for number, lengths in iter_parts(source)
        if (lengths == length).any()
    )


def count_lengths(blocks: Iterable[np.ndarray]) -> LengthCounts:
    """Count the sequences of each length.

    Args:
        blocks: the lengths in any number of arrays, int32 or int64; 0 is not counted, it stands
            for a sequence that is left out.

    >>> count_lengths([np.array([5, 2]), np.array([2])])
    LengthCounts(lengths=array([5, 2]), counts=array([1, 2]))
    """
    dense, size = np.zeros(LIMITS.table_lengths, np.int64), LIMITS.entries_per_block
    sparse: Counter[int] = Counter()
    for block in blocks:
        for start in range(0, len(block), size):
            _count_block(block[start : start + size], dense, sparse)
    dense[0] = 0
    found = np.flatnonzero(dense)[::-1]
    long = np.array(sorted(sparse, reverse=True), np.int64)
    counts = np.array([sparse[length] for length in long.tolist()], np.int64)
    return LengthCounts(np.concatenate([long, found]), np.concatenate([counts, dense[found]]))


def count_source(source: PartLengths) -> LengthCounts:
    """Count the lengths of a source, part by part."""
    return count_lengths(lengths for _, lengths in iter_parts(source))


def _count_block(lengths: np.ndarray, dense: np.ndarray, sparse: Counter[int]) -> None:
    if lengths.max() >= len(dense):
        found, counts = np.unique(lengths[lengths >= len(dense)], return_counts=True)
        for length, count in zip(found.tolist(), counts.tolist(), strict=True):
            sparse[length] += count
        lengths = lengths[lengths < len(dense)]
    counts = np.bincount(lengths)
    dense[: len(counts)] += counts
