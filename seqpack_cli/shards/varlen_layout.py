"""How `varlen` batches lie in a shard: row after row, sequence after sequence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from seqpack_cli.batching.plan import ShardRows
from seqpack_cli.ranges import copy_ranges, expand_ranges, to_offsets
from seqpack_cli.shards.geometry import Geometry
from seqpack_cli.shards.layouts import Layout, RowSource, Tensors
from seqpack_cli.shards.row_places import (
    find_starts,
    find_wrong_padding,
    find_wrong_rows,
    mark_tokens,
)
from seqpack_cli.shards.varlen import VarlenBatch


@dataclass(frozen=True)
class VarlenLayout:
    """How varlen rows are laid out in a shard: row after row, sequence after sequence."""

    geometry: Geometry

    @property
    def arrays(self) -> tuple[str, ...]:
        """The arrays of a batch, in file order."""
        rows = () if self.geometry.num_rows is None else ("row_indices",)
        return ("lengths", "original_indices", "piece_starts", *rows, "data")

    @property
    def has_padding(self) -> bool:
        """Whether rows are filled up, or lengths rounded up."""
        return self.geometry.num_rows is not None or self.geometry.multiple > 1

    def make_batch(self, arrays: dict[str, np.ndarray]) -> VarlenBatch:
        """Make a batch from its flat arrays.

        Raises:
            ValueError: the data is not a rectangle of rows, or has more rows than a batch.
        """
        num_rows, row_length = self.geometry.num_rows, self.geometry.row_length
        num_cells = len(arrays["data"])
        if num_rows is not None and (num_cells % row_length or num_cells > row_length * num_rows):
            raise ValueError(
                f"data has {num_cells} cells, expected up to {num_rows} rows of {row_length}"
            )
        return VarlenBatch(
            arrays["data"],
            arrays["lengths"],
            arrays["original_indices"],
            arrays["piece_starts"],
            row_indices=arrays.get("row_indices"),
            row_length=None if num_rows is None else row_length,
            multiple=self.geometry.multiple,
        )

    def make_arrays(self, rows: ShardRows) -> dict[str, np.ndarray]:
        """Make `piece_starts`, where in its sequence each piece begins, and `row_indices`."""
        starts = rows.piece_starts
        arrays = {
            "piece_starts": np.zeros(len(rows.lengths), np.int64) if starts is None else starts
        }
        if rows.row_indices is not None:
            arrays["row_indices"] = rows.row_indices
        return arrays

    def iter_data(self, tensors: Tensors, source: RowSource) -> Iterator[np.ndarray]:
        """Yield the cells of all rows, one after another."""
        num_cells = int(tensors["data_offsets"][-1])
        cells = (
            np.full(num_cells, self.geometry.pad_id, source.dtype)
            if self.has_padding
            else np.empty(num_cells, source.dtype)
        )
        source.fill(cells, self._find_starts(tensors))
        yield cells

    def find_cells(self, tensors: Tensors, rows: np.ndarray) -> np.ndarray:
        """Return where the tokens of sequences lie in `data`, sequence after sequence."""
        return expand_ranges(self._find_starts(tensors)[rows], tensors["lengths"][rows])

    def mask_tokens(self, tensors: Tensors) -> np.ndarray:
        """Return the mask of tokens in `data`."""
        if not self.has_padding:
            return np.ones(len(tensors["data"]), bool)
        return mark_tokens(len(tensors["data"]), self._find_starts(tensors), tensors["lengths"])

    def copy_rows(
        self, tensors: Tensors, rows: np.ndarray, target: np.ndarray, target_starts: np.ndarray
    ) -> None:
        """Copy sequences, each to its own place in target."""
        starts = self._find_starts(tensors)[rows]
        copy_ranges(tensors["data"], starts, target, target_starts, tensors["lengths"][rows])

    def find_wrong(self, tensors: Tensors, wrong: np.ndarray, *, padding: bool) -> np.ndarray:
        """Find the batches whose sequences do not fit their rows."""
        if not self.has_padding:  # the checks that all layouts share are enough
            return wrong
        found = find_wrong_rows(tensors, wrong, self.geometry)
        if padding:
            found |= find_wrong_padding(tensors, found, self.geometry, tensors["data"])
        return found

    def _find_starts(self, tensors: Tensors) -> np.ndarray:
        if not self.has_padding:
            return to_offsets(tensors["lengths"])[:-1]
        return find_starts(tensors, self.geometry)


LAYOUT: type[Layout] = VarlenLayout
