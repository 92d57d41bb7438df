"""The `packed` layout: a batch time step by time step, as in torch's PackedSequence.

Row b's token at step t lies at `starts[t] + b`, where `starts` is the sum of `batch_sizes` before
each step. No rectangle is ever made: memory grows with the tokens, however uneven the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from seqpack_cli.batching.shard_rows import ShardRows
from seqpack_cli.ranges import expand_ranges
from seqpack_cli.shards.geometry import Geometry
from seqpack_cli.shards.layouts import NO_CUTS, Layout, RowSource, Tensors, describe_fields
from seqpack_cli.shards.time_steps import (
    check_batch_sizes,
    check_lengths,
    count_alive,
    count_steps,
    iter_steps,
)
from seqpack_cli.tokens.columns.kind import Values


@dataclass(frozen=True, eq=False)
class PackedBatch:
    """Sequences of one batch, longest first."""

    num_filler_rows: ClassVar[int] = 0
    piece_starts: ClassVar[None] = None

    data: np.ndarray  # [S], time step by time step
    batch_sizes: np.ndarray  # int64[T], rows alive at each step
    lengths: np.ndarray  # int64[B]
    original_indices: np.ndarray | None = None  # int64[B], of the token store
    columns: dict[str, Values] = field(default_factory=dict)

    __repr__ = describe_fields

    @property
    def num_steps(self) -> int:
        """Length of the longest row."""
        return len(self.batch_sizes)

    @property
    def first_steps(self) -> np.ndarray:
        """The step of each row's first token, int64[B]: 0."""
        return np.zeros(len(self.lengths), np.int64)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of data."""
        return self.data.shape

    def rows(self) -> list[np.ndarray]:
        """Return the sequences in row order."""
        steps = np.cumsum(self.batch_sizes) - self.batch_sizes
        return [self.data[steps[:length] + row] for row, length in enumerate(self.lengths)]

    def row(self, index: int) -> np.ndarray:
        """Return the sequence of one row; the batch must have been checked."""
        row: np.ndarray = self.data[self.find_cells(index)]
        return row

    def find_cells(self, row: int) -> np.ndarray:
        """Return where the tokens of a row lie in data, int64[length]."""
        alive = self.batch_sizes[: self.lengths[row]]
        cells: np.ndarray = np.cumsum(alive) - alive + row
        return cells

    def follow(self, values: np.ndarray, fill: int) -> np.ndarray:
        """Return for each cell the value at the next token of its row, fill if there is none.

        Row j has place j in every step, and no step has more rows than the one before.
        """
        followed = np.full(len(values), fill, np.int64)
        first = int(self.batch_sizes[0])
        cells = np.arange(first, len(values))
        cells -= np.repeat(self.batch_sizes[:-1], self.batch_sizes[1:])
        followed[cells] = values[first:]
        return followed

    def find_cuts(self) -> tuple[np.ndarray, np.ndarray]:
        """Return no cells: no row goes on in the next batch."""
        return NO_CUTS

    def without_filler(self) -> PackedBatch:
        """Return the batch: it has no filler."""
        return self

    def describe_shape(self) -> dict[str, Any]:
        """Return the fields that only this layout has."""
        return {"batch_sizes": self.batch_sizes.tolist()}

    def check(self, *, pad_id: int) -> None:
        """Raise ValueError if batch_sizes, lengths and data contradict each other."""
        check_lengths(self.lengths)
        found, longest = self.batch_sizes, int(self.lengths[0])
        if len(found) != longest:  # before count_alive, whose memory grows with the longest
            raise ValueError(f"{len(found)} batch_sizes, the longest row has {longest} ids")
        expected = count_alive(self.lengths)
        if not np.array_equal(found, expected):
            step = int((found != expected).argmax())
            raise ValueError(
                f"batch_sizes[{step}] is {found[step]}, but {expected[step]} rows are longer "
                f"than {step}"
            )
        check_batch_sizes(found, num_ids=len(self.data))

    def has_right_padding(self, pad_id: int, values: np.ndarray | None = None) -> bool:
        """Return True: there is no padding."""
        return True

    def count_padding(self) -> int:
        """Return 0: there is no padding."""
        return 0


@dataclass(frozen=True)
class PackedLayout:
    """How packed batches are laid out in a shard: time step after time step."""

    geometry: Geometry
    has_padding: ClassVar[bool] = False
    arrays: ClassVar[tuple[str, ...]] = ("lengths", "original_indices", "batch_sizes", "data")

    def make_batch(self, arrays: dict[str, np.ndarray]) -> PackedBatch:
        """Make a batch from its flat arrays, unchecked."""
        return PackedBatch(
            arrays["data"], arrays["batch_sizes"], arrays["lengths"], arrays["original_indices"]
        )

    def make_arrays(self, rows: ShardRows) -> dict[str, np.ndarray]:
        """Make `batch_sizes`, and the offsets where those of each batch begin."""
        batch_sizes, step_offsets = count_steps(rows.lengths, rows.batch_offsets)
        return {"batch_sizes": batch_sizes, "step_offsets": step_offsets}

    def iter_data(self, tensors: Tensors, source: RowSource) -> Iterator[np.ndarray]:
        """Yield the ids of a shard in pieces of whole time steps."""
        steps = (tensors["batch_sizes"], tensors["step_offsets"])
        yield from iter_steps(*source.read(), tensors["sequence_offsets"], *steps)

    def find_cells(self, tensors: Tensors, rows: np.ndarray) -> np.ndarray:
        """Return where the tokens of rows lie in `data`, row after row, at about 10 ns each.

        Each step begins at the running sum of `batch_sizes` over the whole shard.
        """
        lengths, row_offsets = tensors["lengths"][rows], tensors["sequence_offsets"]
        batches = np.searchsorted(row_offsets, rows, "right") - 1
        sizes = tensors["batch_sizes"]
        step_starts = np.cumsum(sizes) - sizes
        steps = expand_ranges(tensors["step_offsets"][batches], lengths)
        cells: np.ndarray = step_starts[steps] + np.repeat(rows - row_offsets[batches], lengths)
        return cells

    def mask_tokens(self, tensors: Tensors) -> np.ndarray:
        """Return a mask that is True throughout: there is no padding."""
        return np.ones(len(tensors["data"]), bool)

    def copy_rows(
        self, tensors: Tensors, rows: np.ndarray, target: np.ndarray, target_starts: np.ndarray
    ) -> None:
        """Gather rows from their time steps, each to its own place in target."""
        cells = self.find_cells(tensors, rows)
        target[expand_ranges(target_starts, tensors["lengths"][rows])] = tensors["data"][cells]

    def find_wrong(self, tensors: Tensors, wrong: np.ndarray, *, padding: bool) -> np.ndarray:
        """Find the batches whose `batch_sizes` contradict their lengths.

        From each step to the next they fall by the number of rows that end there, at last to 0.
        """
        offsets, step_offsets = tensors["sequence_offsets"], tensors["step_offsets"]
        lengths, found = tensors["lengths"], tensors["batch_sizes"]
        num_steps = np.diff(step_offsets)
        batch_of = np.repeat(np.arange(len(wrong)), np.diff(offsets))
        wrong = wrong | (lengths[offsets[:-1]] != num_steps)
        sound = ~wrong[batch_of]
        last_steps = (step_offsets[:-1][batch_of] + lengths)[sound] - 1
        num_ending = np.bincount(last_steps, minlength=len(found))
        after = np.append(found[1:], 0)
        after[step_offsets[1:] - 1] = 0
        steps_of = np.repeat(np.arange(len(num_steps)), num_steps)
        # a sum, since a difference could wrap around
        wrong[steps_of[found != after + num_ending]] = True
        return wrong


LAYOUT: type[Layout] = PackedLayout
