"""The `packed` layout: a batch time step by time step, as in torch's PackedSequence.

Row b's token at step t lies at `starts[t] + b`, where `starts` is the sum of `batch_sizes` before
each step. No rectangle is ever made: memory grows with the tokens, however uneven the rows.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from seqpack_cli.batching.options import LAYOUTS
from seqpack_cli.batching.plan import ShardRows
from seqpack_cli.ranges import expand_ranges
from seqpack_cli.runs.options import convert
from seqpack_cli.shards.arrays import Reader, ShardArrays
from seqpack_cli.shards.layouts import (
    AFTER,
    BEFORE,
    Batch,
    check_sorted,
    describe_fields,
    join_sequences,
    refuse,
)
from seqpack_cli.shards.time_steps import (
    count_alive,
    count_steps,
    iter_steps,
    pack_batches,
    place_rows,
)
from seqpack_cli.tokens.kinds import Values


@dataclass(frozen=True, eq=False)
class PackedBatch(Batch):
    """Sequences of one batch, longest first."""

    piece_starts = None
    has_padding = False

    data: np.ndarray  # [S], time step by time step
    batch_sizes: np.ndarray  # int64[T], rows alive at each step
    lengths: np.ndarray  # int64[B]
    original_indices: np.ndarray | None = None  # int64[B], of the token store
    columns: dict[str, Values] = field(default_factory=dict)
    # int64[B], of the decoder's side of pairs: which row of the encoder's batch is of the same
    # document.
    encoder_rows: np.ndarray | None = None

    __repr__ = describe_fields

    @functools.cached_property
    def starts(self) -> np.ndarray:
        """Where in data each row begins, int64[B]."""
        return np.arange(len(self.lengths))

    def rows(self) -> list[np.ndarray]:
        """Return the sequences in row order."""
        steps = self._steps
        return [self.data[steps[:length] + row] for row, length in enumerate(self.lengths)]

    def follow(self, values: np.ndarray, fill: int) -> np.ndarray:
        """Return for each cell the value at the next token of its row, fill if there is none.

        Row j has place j in every step, and no step has more rows than the one before.
        """
        followed = np.full(len(values), fill, np.int64)
        followed[self._followed] = values[len(self.lengths) :]
        return followed

    def extend(self, *, before: bool, after: bool) -> PackedBatch:
        """Return rows with a token more before or after them; data are the cells of these rows.

        The cells of the new tokens are BEFORE and AFTER. Each step has the tokens of the rows alive
        in it, then AFTER for those that have just ended.
        """
        sizes, num_rows = self.batch_sizes, len(self.lengths)
        cells = np.arange(len(self.data))
        if after:  # behind the rows that are alive in the step after the row's last
            ends = np.cumsum(np.append(sizes, 0))
            cells = np.insert(cells, ends[self.lengths], AFTER)
        cells = np.append(np.full(before * num_rows, BEFORE), cells)
        sizes = np.append(np.full(before + after, num_rows), sizes)
        return replace(self, data=cells, batch_sizes=sizes, lengths=self.lengths + before + after)

    def shorten(self) -> PackedBatch:
        """Return rows without their last token; data are the cells of these rows.

        All rows must have two tokens.
        """
        sizes, lengths = self.batch_sizes[1:], self.lengths - 1
        return replace(self, data=self._followed, batch_sizes=sizes, lengths=lengths)

    def describe_shape(self) -> dict[str, Any]:
        """Return the fields that only this layout has."""
        return {"batch_sizes": self.batch_sizes.tolist()}

    @property
    def _followed(self) -> np.ndarray:
        """The cells of all tokens but the last of each row, step by step."""
        cells = np.arange(len(self.lengths), len(self.data))
        cells -= np.repeat(self.batch_sizes[:-1], self.batch_sizes[1:])
        return cells

    @property
    def _steps(self) -> np.ndarray:
        steps: np.ndarray = np.cumsum(self.batch_sizes) - self.batch_sizes
        return steps

    @property
    def _lasts(self) -> np.ndarray:
        lasts: np.ndarray = self.starts + self._steps[self.lengths - 1]
        return lasts


class PackedArrays(ShardArrays):
    """Time step after time step."""

    rules = LAYOUTS["packed"]
    all_names = ("lengths", "original_indices", "encoder_rows", "batch_sizes", "data")
    is_by_steps = True

    def make_batch(self, arrays: dict[str, Any]) -> PackedBatch:
        """Make a batch from its flat arrays."""
        return PackedBatch(**arrays)

    def make_arrays(self, rows: ShardRows) -> dict[str, np.ndarray]:
        """Make `batch_sizes`, and the offsets where those of each batch begin."""
        batch_sizes, step_offsets = count_steps(rows.lengths, rows.batch_offsets)
        return {"batch_sizes": batch_sizes, "step_offsets": step_offsets}

    def iter_data(self, read: Reader, dtype: str, fill: int) -> Iterator[np.ndarray]:
        """Yield the ids of a shard in pieces of whole time steps."""
        tensors, offsets = self.tensors, self.tensors["sequence_offsets"]
        starts = place_rows(tensors["lengths"], offsets)
        ids = np.full(int(starts[-1]), fill, dtype)  # an id for the gaps
        read(ids, starts[:-1])
        sizes, steps = tensors["batch_sizes"], tensors["step_offsets"]
        yield from iter_steps(ids, starts[:-1], offsets, sizes, steps)

    def find_cells(self, rows: np.ndarray) -> np.ndarray:
        """Return where the tokens of rows lie in `data`, row after row, at about 10 ns each.

        Each step begins at the running sum of `batch_sizes` over the whole shard.
        """
        tensors, row_offsets = self.tensors, self.tensors["sequence_offsets"]
        lengths, sizes = tensors["lengths"][rows], tensors["batch_sizes"]
        batches = np.searchsorted(row_offsets, rows, "right") - 1
        step_starts = np.cumsum(sizes) - sizes
        steps = expand_ranges(tensors["step_offsets"][batches], lengths)
        cells: np.ndarray = step_starts[steps] + np.repeat(rows - row_offsets[batches], lengths)
        return cells

    def check_rows(self) -> None:
        """Raise ValueError unless rows are longest first, `batch_sizes` and rows fit together."""
        super().check_rows()
        tensors = self.tensors
        check_sorted(tensors)
        lengths, offsets = tensors["lengths"], tensors["sequence_offsets"]
        longest, num_steps = lengths[offsets[:-1]], np.diff(tensors["step_offsets"])
        refuse(  # before count_steps, whose memory grows with the longest
            longest != num_steps,
            lambda it: f"{num_steps[it]} batch_sizes, the longest row has {longest[it]} ids",
        )
        found, expected = tensors["batch_sizes"], count_steps(lengths, offsets)[0]
        refuse(
            found != expected,
            lambda step: (
                f"batch_sizes[{step}] is {found[step]}, but {expected[step]} rows are longer "
                f"than {step}"
            ),
        )
        sums, sizes = np.add.reduceat(lengths, offsets[:-1]), np.diff(tensors["data_offsets"])
        refuse(
            sums != sizes, lambda it: f"batch_sizes add up to {sums[it]}, data has {sizes[it]} ids"
        )
        if self.geometry.is_decoder:
            rows, num_rows = tensors["encoder_rows"], self.num_rows
            wrong = (rows < 0) | (rows >= num_rows.repeat(num_rows))
            named = np.sort(rows + offsets[:-1].repeat(num_rows))
            wrong |= named != np.arange(len(rows))
            refuse(wrong, lambda row: f"encoder_rows at row {row} do not name each row once")


def pack_sequence(sequences: Sequence[np.ndarray]) -> PackedBatch:
    """Lay sequences out time step by time step, as torch's `pack_sequence` does.

    Args:
        sequences: token ids, each [length], longest first, none empty.

    Returns:
        data [S] in the dtype of the first, batch_sizes int64[T], lengths int64[B].

    Raises:
        TypeError: ids are not integers.
        ValueError: the list is empty, or a sequence is empty, longer than the one before it, or has
            an id that the first one's dtype cannot hold.

    >>> batch = pack_sequence([np.array([1, 2, 3]), np.array([9])])
    >>> batch.data.tolist(), batch.batch_sizes.tolist()
    ([1, 9, 2, 3], [2, 1, 1])
    """
    return pack_ids(*join_sequences(sequences))


def pack_ids(ids: np.ndarray, lengths: np.ndarray) -> PackedBatch:
    """Pack sequences that lie one after another, as `pack_sequence` does.

    Args:
        ids: [S].
        lengths: int64[B], at least one, longest first, none 0.
    """
    refuse(lengths < 1, lambda row: f"expected no empty sequence, found one in row {row}")
    refuse(
        lengths[1:] > lengths[:-1],
        lambda row: f"expected longest first, row {row + 1} is longer than the one before",
    )
    data, batch_sizes, _ = pack_batches(ids, lengths, np.array([0, len(lengths)]))
    return PackedBatch(data, batch_sizes, lengths)


def unpack_sequence(packed_sequences: PackedBatch) -> list[np.ndarray]:
    """Return the sequences of a packed batch in row order; the inverse of `pack_sequence`.

    Raises:
        ValueError: batch_sizes rise, or do not add up to the data.

    >>> batch = pack_sequence([np.array([1, 2, 3]), np.array([9])])
    >>> [row.tolist() for row in unpack_sequence(batch)]
    [[1, 2, 3], [9]]
    """
    packed: PackedBatch = convert("packed_sequences", packed_sequences, PackedBatch)
    sizes, num_ids = packed.batch_sizes, len(packed.data)
    is_falling = len(sizes) > 0 and sizes.min() > 0 and (sizes[1:] <= sizes[:-1]).all()
    if not is_falling or sum(sizes.tolist()) != num_ids:
        raise ValueError(f"expected batch_sizes from 1 up that never rise, {num_ids} in all")
    return replace(packed, lengths=count_alive(sizes)).rows()  # which are found like batch_sizes
