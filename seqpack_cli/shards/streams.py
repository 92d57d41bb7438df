"""The `streams` layout: B parallel streams, of which each batch has the next T steps.

For recurrent networks that carry their state from batch to batch (truncated backpropagation through
time). Each stream is a column of [T, B] and a run of sequences one after another, cut every T steps
wherever a sequence happens to be; the batches keep their order. `resets` marks the pieces that
begin with a new state, because their sequence, or their stream, begins there.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from seqpack_cli.batching.shard_rows import FROM_BEFORE, ShardRows
from seqpack_cli.ranges import expand_ranges
from seqpack_cli.shards.geometry import Geometry
from seqpack_cli.shards.layouts import Layout, RowSource, Tensors, describe_fields
from seqpack_cli.shards.row_places import (
    find_starts,
    find_wrong_padding,
    find_wrong_rows,
    mark_tokens,
    place_in_rows,
)
from seqpack_cli.shards.varlen import check_lengths, check_padding, check_rows
from seqpack_cli.tokens.columns.kind import Values

NO_ID = -1  # of a piece that does not go on in the next batch


@dataclass(frozen=True, eq=False)
class StreamsBatch:
    """The next steps of each stream, and the pieces of sequences in them, stream after stream."""

    num_filler_rows: ClassVar[int] = 0

    data: np.ndarray  # [T x B], step after step
    lengths: np.ndarray  # int64[N]
    original_indices: np.ndarray | None  # int64[N], of the token store
    piece_starts: np.ndarray | None  # int64[N], where in its sequence each piece begins
    row_indices: np.ndarray  # int64[N], ascending: the stream of each piece
    resets: np.ndarray  # int64[N], 0 for a piece that goes on from the batch before, else 1
    next_ids: np.ndarray  # int64[N], the target that follows in the next batch, else NO_ID
    num_streams: int
    columns: dict[str, Values] = field(default_factory=dict)

    __repr__ = describe_fields

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the ids: [T, B]."""
        return len(self.data) // self.num_streams, self.num_streams

    @property
    def num_steps(self) -> int:
        """The number of time steps."""
        return self.shape[0]

    @functools.cached_property
    def first_steps(self) -> np.ndarray:
        """The step of each piece's first token, int64[N]."""
        if self.count_padding():
            return place_in_rows(self.lengths, self.row_indices)
        begins = np.add.accumulate(self.lengths) - self.lengths
        steps: np.ndarray = begins - self.row_indices * self.num_steps  # all streams are full
        return steps

    @property
    def is_reset(self) -> np.ndarray:
        """Where the state is set to zero before a token, bool[T, B]."""
        marks = np.zeros(len(self.data), bool)
        marks[self.first_steps * self.num_streams + self.row_indices] = self.resets
        return marks.reshape(self.shape)

    def rows(self) -> list[np.ndarray]:
        """Return the pieces in row order."""
        return [self.row(index) for index in range(len(self.lengths))]

    def row(self, index: int) -> np.ndarray:
        """Return one piece; the batch must have been checked."""
        row: np.ndarray = self.data[self.find_cells(index)]
        return row

    def find_cells(self, row: int) -> np.ndarray:
        """Return where the tokens of a piece lie in data, int64[length]."""
        first = int(self.first_steps[row])
        steps = np.arange(first, first + int(self.lengths[row]))
        return steps * self.num_streams + int(self.row_indices[row])

    def follow(self, values: np.ndarray, fill: int) -> np.ndarray:
        """Return for each token the value at the next one of its piece, fill for the last."""
        followed = np.empty(len(self.data), np.int64)
        followed[: -self.num_streams] = values.reshape(-1)[self.num_streams :]
        followed[self._last_steps() * self.num_streams + self.row_indices] = fill
        if self.count_padding():
            followed[~self._mask()] = fill
        return followed.reshape(self.shape)

    def find_cuts(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the cells whose next token lies in the next batch, and its id."""
        goes_on = self.next_ids != NO_ID
        steps, streams = self._last_steps()[goes_on], self.row_indices[goes_on]
        cells: np.ndarray = steps * self.num_streams + streams
        return cells, self.next_ids[goes_on]

    def without_filler(self) -> StreamsBatch:
        """Return the batch: it has no filler."""
        return self

    def describe_shape(self) -> dict[str, Any]:
        """Return the fields that only this layout has."""
        names = ("row_indices", "resets", "next_ids")
        return {"shape": [*self.shape], **{name: getattr(self, name).tolist() for name in names}}

    def check(self, *, pad_id: int) -> None:
        """Raise ValueError if pieces, streams and data contradict each other."""
        check_lengths(self.lengths)
        check_rows(self.lengths, self.row_indices, self.shape[::-1])
        wrong = find_wrong_links(self.resets, self.next_ids)
        if wrong.any():
            place = int(wrong.argmax())
            found = f"resets[{place}] is {self.resets[place]}, next_ids[{place}] is "
            raise ValueError(
                f"{found}{self.next_ids[place]}, expected 0 or 1, and an id or {NO_ID}"
            )
        check_padding(self.data, self._mask(), pad_id)

    def has_right_padding(self, pad_id: int, values: np.ndarray | None = None) -> bool:
        """Return whether all padding of the ids, or of other values, is pad_id."""
        if not self.count_padding():
            return True
        cells = self.data if values is None else values.reshape(-1)
        return bool((cells[~self._mask()] == pad_id).all())

    def count_padding(self) -> int:
        """Count the padding cells."""
        return len(self.data) - int(self.lengths.sum())

    def _last_steps(self) -> np.ndarray:
        steps: np.ndarray = self.first_steps + self.lengths - 1
        return steps

    def _mask(self) -> np.ndarray:
        """Return the mask of tokens in data."""
        starts = self.row_indices * self.num_steps + self.first_steps
        by_stream = mark_tokens(len(self.data), starts, self.lengths)
        mask: np.ndarray = by_stream.reshape(self.shape[::-1]).T.reshape(-1)
        return mask


def find_wrong_links(resets: np.ndarray, next_ids: np.ndarray) -> np.ndarray:
    """Find pieces whose `resets` or `next_ids` are impossible, whatever the vocabulary, bool[N]."""
    wrong: np.ndarray = ((resets != 0) & (resets != 1)) | (next_ids < NO_ID)
    return wrong


@dataclass(frozen=True)
class StreamsLayout:
    """How streams are laid out in a shard: step after step, as in a rectangle turned on its side.

    All batches have the same shape. Turned back, they are rectangles of one row per stream.
    """

    geometry: Geometry
    has_padding: ClassVar[bool] = True
    arrays: ClassVar[tuple[str, ...]] = (
        "lengths",
        "original_indices",
        "piece_starts",
        "row_indices",
        "resets",
        "next_ids",
        "data",
    )

    @property
    def _num_streams(self) -> int:
        assert self.geometry.num_rows is not None  # noqa: S101 - streams have a number of rows
        return self.geometry.num_rows

    @property
    def _num_cells(self) -> int:
        return self._num_streams * self.geometry.row_length

    def make_batch(self, arrays: dict[str, np.ndarray]) -> StreamsBatch:
        """Make a batch from its flat arrays.

        Raises:
            ValueError: the data has not the shape of all batches.
        """
        if len(arrays["data"]) != self._num_cells:
            raise ValueError(
                f"data has {len(arrays['data'])} cells, expected {self.geometry.row_length} steps "
                f"of {self._num_streams} streams"
            )
        return StreamsBatch(
            arrays["data"],
            arrays["lengths"],
            arrays["original_indices"],
            arrays["piece_starts"],
            arrays["row_indices"],
            arrays["resets"],
            arrays["next_ids"],
            self._num_streams,
        )

    def make_arrays(self, rows: ShardRows) -> dict[str, np.ndarray]:
        """Make the arrays of the pieces, but their lengths and indices."""
        assert rows.piece_starts is not None  # noqa: S101 - planned as streams
        assert rows.row_indices is not None  # noqa: S101
        assert rows.continues is not None  # noqa: S101
        assert rows.next_ids is not None  # noqa: S101 - found in the store
        return {
            "piece_starts": rows.piece_starts,
            "row_indices": rows.row_indices,
            "resets": (rows.continues & FROM_BEFORE) == 0,
            "next_ids": rows.next_ids,
        }

    def iter_data(self, tensors: Tensors, source: RowSource) -> Iterator[np.ndarray]:
        """Yield the cells of all batches."""
        num_cells = int(tensors["data_offsets"][-1])
        cells = np.full(num_cells, self.geometry.pad_id, source.dtype)
        source.fill(cells, find_starts(tensors, self.geometry))
        for first in range(0, num_cells, self._num_cells):
            batch = cells[first : first + self._num_cells].reshape(self._num_streams, -1)
            yield np.ascontiguousarray(batch.T).reshape(-1)

    def find_cells(self, tensors: Tensors, rows: np.ndarray) -> np.ndarray:
        """Return where the tokens of pieces lie in `data`, piece after piece."""
        starts = find_starts(tensors, self.geometry)[rows]
        return self._turn(expand_ranges(starts, tensors["lengths"][rows]))

    def mask_tokens(self, tensors: Tensors) -> np.ndarray:
        """Return the mask of tokens in `data`."""
        mask = np.zeros(len(tensors["data"]), bool)
        mask[self.find_cells(tensors, np.arange(len(tensors["lengths"])))] = True
        return mask

    def copy_rows(
        self, tensors: Tensors, rows: np.ndarray, target: np.ndarray, target_starts: np.ndarray
    ) -> None:
        """Gather pieces from their time steps, each to its own place in target."""
        cells = self.find_cells(tensors, rows)
        target[expand_ranges(target_starts, tensors["lengths"][rows])] = tensors["data"][cells]

    def find_wrong(self, tensors: Tensors, wrong: np.ndarray, *, padding: bool) -> np.ndarray:
        """Find the batches of another shape, or whose pieces do not fit their streams."""
        has_shape = np.diff(tensors["data_offsets"]) == self._num_cells
        found: np.ndarray = wrong | ~has_shape
        found |= find_wrong_rows(tensors, found, self.geometry)
        links = find_wrong_links(tensors["resets"], tensors["next_ids"])
        found |= np.logical_or.reduceat(links, tensors["sequence_offsets"][:-1])
        if padding and has_shape.all():
            steps = tensors["data"].reshape(-1, self.geometry.row_length, self._num_streams)
            by_stream = steps.transpose(0, 2, 1).reshape(-1)
            found |= find_wrong_padding(tensors, found, self.geometry, by_stream)
        return found

    def _turn(self, places: np.ndarray) -> np.ndarray:
        """Return the cells of places in rectangles of one row per stream, turned on their side."""
        batches, inside = np.divmod(places, self._num_cells)
        streams, steps = np.divmod(inside, self.geometry.row_length)
        cells: np.ndarray = batches * self._num_cells + steps * self._num_streams + streams
        return cells


LAYOUT: type[Layout] = StreamsLayout
