"""The `packed` layout: a batch time step by time step, as torch's PackedSequence holds it.

Row b's token at step t lies at `step_offset[t] + b`, where step_offset is the running sum of
`batch_sizes`. No rectangle is ever made: memory is the tokens, however uneven the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from seqpack_cli.shards.time_steps import pack_batches


@dataclass(frozen=True)
class PackedBatch:
    """Sequences of one batch, longest first."""

    ARRAYS: ClassVar[tuple[str, ...]] = ("lengths", "original_indices", "batch_sizes", "data")

    data: np.ndarray  # [S], time step by time step
    batch_sizes: np.ndarray  # int64[T], rows alive at each step
    lengths: np.ndarray  # int64[B]
    original_indices: np.ndarray | None = None  # int64[B], of the token store

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], *, padding_side: str) -> PackedBatch:
        """Make a batch of the flat arrays of ARRAYS, unchecked."""
        del padding_side
        return cls(**arrays)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Give the flat arrays of ARRAYS."""
        return {name: getattr(self, name) for name in self.ARRAYS}

    def rows(self) -> list[np.ndarray]:
        """Give the sequences, as `unpack` does."""
        return unpack(self)

    def row(self, index: int) -> np.ndarray:
        """Give one sequence of a batch that was checked."""
        alive = self.batch_sizes[: self.lengths[index]]
        row: np.ndarray = self.data[np.cumsum(alive) - alive + index]
        return row

    def check(self, *, pad_id: int) -> None:
        """Raise ValueError unless batch_sizes, lengths and data belong together."""
        del pad_id
        check_lengths(self.lengths)
        found, longest = self.batch_sizes, int(self.lengths[0])
        if len(found) != longest:  # before count_alive, which takes memory by the longest
            raise ValueError(f"{len(found)} batch_sizes, the longest row has {longest} ids")
        expected = count_alive(self.lengths)
        if not np.array_equal(found, expected):
            step = int((found != expected).argmax())
            raise ValueError(
                f"batch_sizes[{step}] is {found[step]}, but {expected[step]} rows are longer "
                f"than {step}"
            )
        check_batch_sizes(found, num_ids=len(self.data))

    def count_padding(self) -> int:
        """Count the cells that hold no token."""
        return 0


def pack(sequences: Sequence[np.ndarray]) -> PackedBatch:
    """Lay sequences out time step by time step, as torch's `pack_sequence` does.

    Args:
        sequences: token ids, each [length], longest first, none empty.

    Returns:
        data [S] in the dtype of the first, batch_sizes int64[T], lengths int64[B].

    Raises:
        ValueError: there is none, one is empty, or one is longer than the one before it.

    >>> batch = pack([np.array([1, 2, 3]), np.array([9])])
    >>> batch.data.tolist(), batch.batch_sizes.tolist()
    ([1, 9, 2, 3], [2, 1, 1])
    """
    if not len(sequences):
        raise ValueError("expected at least one sequence")
    lengths = np.array([len(sequence) for sequence in sequences], np.int64)
    return pack_ids(np.concatenate(sequences, dtype=np.asarray(sequences[0]).dtype), lengths)


def pack_ids(ids: np.ndarray, lengths: np.ndarray) -> PackedBatch:
    """Do what `pack` does with sequences that lie one after another.

    Args:
        ids: [S].
        lengths: int64[B], at least one, longest first, none 0.
    """
    check_lengths(lengths)
    data, batch_sizes, _ = pack_batches(ids, lengths, np.array([0, len(lengths)]))
    return PackedBatch(data, batch_sizes, lengths)


def unpack(batch: PackedBatch) -> list[np.ndarray]:
    """Give the sequences of a packed batch back, in its row order; the inverse of `pack`.

    Raises:
        ValueError: batch_sizes rise, or do not add up to the data.

    >>> [row.tolist() for row in unpack(pack([np.array([1, 2, 3]), np.array([9])]))]
    [[1, 2, 3], [9]]
    """
    check_batch_sizes(batch.batch_sizes, num_ids=len(batch.data))
    steps = np.cumsum(batch.batch_sizes) - batch.batch_sizes
    lengths = count_alive(batch.batch_sizes)  # the same relation, read the other way
    return [batch.data[steps[:length] + row] for row, length in enumerate(lengths)]


def count_alive(lengths: np.ndarray) -> np.ndarray:
    """Give `batch_sizes` of lengths that never rise: at each step, how many rows are longer.

    Applied to batch_sizes it gives the lengths back.

    Raises:
        ValueError: a length is below 1 or above the one before it.

    >>> count_alive(np.array([3, 3, 1])).tolist()
    [3, 2, 2]
    """
    check_lengths(lengths)
    longest = int(lengths[0]) if len(lengths) else 0
    # lengths[::-1] rises, so a search counts those of at most t tokens
    ended = np.searchsorted(lengths[::-1], np.arange(longest), "right")
    return (len(lengths) - ended).astype(np.int64)


def check_lengths(lengths: np.ndarray) -> None:
    """Raise ValueError unless all lengths are at least 1 and none is above the one before it."""
    if len(lengths) and int(lengths.min()) < 1:
        raise ValueError(f"expected no empty sequence, found one in row {int(lengths.argmin())}")
    rises = lengths[1:] > lengths[:-1]  # a difference could wrap around
    if rises.any():
        row = int(rises.argmax()) + 1
        raise ValueError(f"expected longest first, row {row} is longer than the one before")


def check_batch_sizes(batch_sizes: np.ndarray, *, num_ids: int) -> None:
    """Raise ValueError for batch_sizes that would make torch read or write out of bounds."""
    if batch_sizes.ndim != 1 or batch_sizes.dtype != np.int64:
        raise ValueError(
            f"batch_sizes are {batch_sizes.dtype}{batch_sizes.shape}, expected int64[T]"
        )
    if not len(batch_sizes) or int(batch_sizes.min()) < 1:
        raise ValueError("batch_sizes have an entry below 1, or none")
    rises = batch_sizes[1:] > batch_sizes[:-1]
    if rises.any():
        step = int(rises.argmax()) + 1
        raise ValueError(
            f"batch_sizes rise at step {step} from {batch_sizes[step - 1]} to {batch_sizes[step]}"
        )
    total = sum(batch_sizes.tolist()) if batch_sizes[0] > num_ids else int(batch_sizes.sum())
    if total != num_ids:
        raise ValueError(f"batch_sizes add up to {total}, data has {num_ids} ids")
