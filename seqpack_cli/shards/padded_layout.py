"""How `padded` batches lie in a shard: rectangle after rectangle, row after row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from seqpack_cli.batching.plan import ShardRows
from seqpack_cli.limits import LIMITS
from seqpack_cli.ranges import copy_ranges, expand_ranges, to_offsets
from seqpack_cli.shards.geometry import Geometry
from seqpack_cli.shards.layouts import Layout, RowSource, Tensors
from seqpack_cli.shards.padded import PaddedBatch


@dataclass(frozen=True)
class PaddedLayout:
    """How rectangles are laid out in a shard: row after row."""

    geometry: Geometry
    has_padding: ClassVar[bool] = True

    @property
    def arrays(self) -> tuple[str, ...]:
        """The arrays of a batch, in file order."""
        filler = ("num_filler_rows",) if self.geometry.has_filler_rows else ()
        return ("lengths", "original_indices", "widths", *filler, "data")

    @property
    def _is_left(self) -> bool:
        return self.geometry.padding_side == "left"

    def make_batch(self, arrays: dict[str, np.ndarray]) -> PaddedBatch:
        """Make a batch from its flat arrays.

        Raises:
            ValueError: the data is not a rectangle of that width, or no row is left of filler.
        """
        num_rows, width = len(arrays["lengths"]), int(arrays["widths"][0])
        if width < 1 or num_rows * width != len(arrays["data"]):
            raise ValueError(
                f"{num_rows} rows of width {width}, data has {len(arrays['data'])} cells"
            )
        num_filler_rows = int(arrays["num_filler_rows"][0]) if "num_filler_rows" in arrays else 0
        if not 0 <= num_filler_rows < num_rows:
            raise ValueError(f"{num_filler_rows} filler rows in a batch of {num_rows} rows")
        ids = arrays["data"].reshape(num_rows, width)
        lengths, indices = arrays["lengths"], arrays["original_indices"]
        return PaddedBatch(
            ids,
            lengths,
            indices,
            self.geometry.padding_side,
            num_filler_rows,
            is_sorted=self.geometry.is_sorted,
        )

    def make_arrays(self, rows: ShardRows) -> dict[str, np.ndarray]:
        """Make the arrays of all rows, including filler rows, and the width of each batch."""
        num_rows = np.diff(rows.batch_offsets) + rows.num_filler_rows
        ends = np.repeat(rows.batch_offsets[1:], rows.num_filler_rows)
        return {
            "lengths": np.insert(rows.lengths.astype(np.int64), ends, 0),
            "original_indices": np.insert(rows.indices, ends, -1),
            "sequence_offsets": to_offsets(num_rows),
            "widths": rows.num_cells // num_rows,
            "num_filler_rows": rows.num_filler_rows,
        }

    def iter_data(self, tensors: Tensors, source: RowSource) -> Iterator[np.ndarray]:
        """Yield the cells of all rectangles."""
        cells = np.full(int(tensors["data_offsets"][-1]), self.geometry.pad_id, source.dtype)
        rows = np.flatnonzero(tensors["original_indices"] >= 0)
        source.fill(cells, self._find_starts(tensors, rows))
        yield cells

    def find_cells(self, tensors: Tensors, rows: np.ndarray) -> np.ndarray:
        """Return where the tokens of rows lie in `data`, row after row."""
        starts = self._find_starts(tensors, rows)
        return expand_ranges(starts, tensors["lengths"][rows])

    def mask_tokens(self, tensors: Tensors) -> np.ndarray:
        """Return the mask of tokens: the first cells of a row, or the last if padded left."""
        lengths, is_left = tensors["lengths"], self._is_left
        widths = np.repeat(tensors["widths"], np.diff(tensors["sequence_offsets"]))
        both = [widths - lengths, lengths] if is_left else [lengths, widths - lengths]
        runs = np.stack(both, axis=1).ravel()
        return np.repeat(np.arange(len(runs)) % 2 == is_left, runs)

    def copy_rows(
        self, tensors: Tensors, rows: np.ndarray, target: np.ndarray, target_starts: np.ndarray
    ) -> None:
        """Copy rows without their padding, each to its own place in target."""
        starts = self._find_starts(tensors, rows)
        copy_ranges(tensors["data"], starts, target, target_starts, tensors["lengths"][rows])

    def find_wrong(self, tensors: Tensors, wrong: np.ndarray, *, padding: bool) -> np.ndarray:
        """Find the batches that are not rectangles, or have a row longer than their width."""
        offsets, widths = tensors["sequence_offsets"], tensors["widths"]
        sizes = np.diff(tensors["data_offsets"])
        longest = np.maximum.reduceat(tensors["lengths"], offsets[:-1])
        # widths above the number of cells fail here, so that the product below cannot wrap around
        fits = (widths >= 1) & (widths <= sizes) & (longest <= widths)
        found: np.ndarray = ~fits | (np.where(fits, widths, 0) * np.diff(offsets) != sizes)
        found |= wrong
        return found | self._find_wrong_padding(tensors, found) if padding else found

    def _find_wrong_padding(self, tensors: Tensors, wrong: np.ndarray) -> np.ndarray:
        """Find the batches with a padding cell that does not hold pad_id."""
        found, offsets = np.zeros_like(wrong), tensors["sequence_offsets"]
        batch_of = np.repeat(np.arange(len(wrong)), np.diff(offsets))
        rows = np.flatnonzero(~wrong[batch_of])
        starts, widths = self._find_lines(tensors, rows)
        lengths = tensors["lengths"][rows]
        if not self._is_left:
            starts = starts + lengths
        num_cells = widths - lengths
        blocks = np.cumsum(num_cells) // LIMITS.ids_per_block
        for block in np.split(np.arange(len(rows)), np.flatnonzero(np.diff(blocks)) + 1):
            cells = expand_ranges(starts[block], num_cells[block])
            is_wrong = tensors["data"][cells] != self.geometry.pad_id
            if is_wrong.any():
                found[np.repeat(batch_of[rows[block]], num_cells[block])[is_wrong]] = True
        return found

    def _find_lines(self, tensors: Tensors, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return where each row with its padding begins in `data`, and its width."""
        offsets = tensors["sequence_offsets"]
        batches = np.searchsorted(offsets, rows, "right") - 1
        widths = tensors["widths"][batches]
        return tensors["data_offsets"][batches] + (rows - offsets[batches]) * widths, widths

    def _find_starts(self, tensors: Tensors, rows: np.ndarray) -> np.ndarray:
        starts, widths = self._find_lines(tensors, rows)
        return starts + widths - tensors["lengths"][rows] if self._is_left else starts


LAYOUT: type[Layout] = PaddedLayout
