"""How `streams` lie in a shard: step after step, rectangles of streams turned on their side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from seqpack_cli.batching.plan import ShardRows
from seqpack_cli.batching.rows import FROM_BEFORE
from seqpack_cli.ranges import expand_ranges
from seqpack_cli.shards.geometry import Geometry
from seqpack_cli.shards.layouts import Layout, RowSource, Tensors
from seqpack_cli.shards.row_places import (
    find_starts,
    find_wrong_padding,
    find_wrong_rows,
)
from seqpack_cli.shards.streams import StreamsBatch, find_wrong_links


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
