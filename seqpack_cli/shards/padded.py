"""The `padded` layout: one rectangle per batch, padded right or left; `lengths` give the mask."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from seqpack_cli.batching.shard_rows import ShardRows
from seqpack_cli.ranges import copy_ranges, expand_ranges, to_offsets
from seqpack_cli.shards.geometry import Geometry
from seqpack_cli.shards.layouts import NO_CUTS, Layout, RowSource, Tensors, describe_fields
from seqpack_cli.shards.time_steps import check_lengths
from seqpack_cli.tokens.columns.kind import Values

CELLS_PER_BLOCK = 1 << 20  # of padding checked at a time; their places take 8 bytes each


@dataclass(frozen=True, eq=False)
class PaddedBatch:
    """Sequences of one batch, padded to a rectangle."""

    piece_starts: ClassVar[None] = None

    ids: np.ndarray  # [B, width]
    lengths: np.ndarray  # int64[B]
    original_indices: np.ndarray | None = None  # int64[B], of the token store
    padding_side: str = "right"
    num_filler_rows: int = 0  # the last rows, of length 0 and original index -1
    columns: dict[str, Values] = field(default_factory=dict)

    __repr__ = describe_fields

    @property
    def mask(self) -> np.ndarray:
        """True for tokens, False for padding, bool[B, width]."""
        width = self.ids.shape[1]
        mask: np.ndarray = np.arange(width) < self.lengths[:, None]
        return mask[:, ::-1] if self.padding_side == "left" else mask

    @property
    def data(self) -> np.ndarray:
        """The cells, row after row, [B x width]."""
        return self.ids.reshape(-1)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of ids."""
        return self.ids.shape

    @property
    def num_steps(self) -> int:
        """The width of the rectangle."""
        return int(self.ids.shape[1])

    @property
    def first_steps(self) -> np.ndarray:
        """The column of each row's first token, int64[B]."""
        return (self.padding_side == "left") * (self.num_steps - self.lengths)

    def find_cuts(self) -> tuple[np.ndarray, np.ndarray]:
        """Return no cells: no row goes on in the next batch."""
        return NO_CUTS

    def without_filler(self) -> PaddedBatch:
        """Return the batch without its filler rows."""
        if not self.num_filler_rows:
            return self
        kept = slice(0, len(self.lengths) - self.num_filler_rows)
        assert self.original_indices is not None  # noqa: S101 - only shards have filler rows
        return replace(
            self,
            ids=self.ids[kept],
            lengths=self.lengths[kept],
            original_indices=self.original_indices[kept],
            num_filler_rows=0,
            columns={name: values[kept] for name, values in self.columns.items()},
        )

    def rows(self) -> list[np.ndarray]:
        """Return the sequences in row order."""
        return [self.row(row) for row in range(len(self.lengths))]

    def row(self, index: int) -> np.ndarray:
        """Return the sequence of one row; the batch must have been checked."""
        start = self._find_start(index)
        row: np.ndarray = self.data[start : start + self.lengths[index]]
        return row

    def find_cells(self, row: int) -> np.ndarray:
        """Return where the tokens of a row lie in data, int64[length]."""
        return self._find_start(row) + np.arange(self.lengths[row])

    def _find_start(self, row: int) -> int:
        is_left = self.padding_side == "left"
        return (row + is_left) * self.num_steps - is_left * int(self.lengths[row])

    def follow(self, values: np.ndarray, fill: int) -> np.ndarray:
        """Return for each cell the value at the next token of its row, fill if there is none."""
        followed, mask = np.full(values.shape, fill, np.int64), self.mask
        is_followed = mask[:, :-1] & mask[:, 1:]
        followed[:, :-1][is_followed] = values[:, 1:][is_followed]
        return followed

    def describe_shape(self) -> dict[str, Any]:
        """Return the fields that only this layout has."""
        return {"width": self.num_steps, "padding_side": self.padding_side}

    def check(self, *, pad_id: int) -> None:
        """Raise ValueError if a row does not fit the width, or padding is not pad_id."""
        self._check_filler()
        check_lengths(self.lengths[: len(self.lengths) - self.num_filler_rows])
        longest = int(self.lengths[0])
        if longest > self.ids.shape[1]:
            raise ValueError(f"the longest row has {longest} ids, width is {self.ids.shape[1]}")
        wrong = self.find_wrong_padding(pad_id)
        if wrong.any():
            row, cell = (int(places[0]) for places in np.nonzero(wrong))
            raise ValueError(
                f"row {row}: cell {cell} is padding and holds {self.ids[row, cell]}, "
                f"expected {pad_id}"
            )

    def find_wrong_padding(self, pad_id: int, values: np.ndarray | None = None) -> np.ndarray:
        """Find padding cells that do not hold pad_id, bool[B, width]."""
        wrong: np.ndarray = ((self.ids if values is None else values) != pad_id) & ~self.mask
        return wrong

    def has_right_padding(self, pad_id: int, values: np.ndarray | None = None) -> bool:
        """Return whether all padding of the ids, or of other values, is pad_id."""
        return not self.find_wrong_padding(pad_id, values).any()

    def count_padding(self) -> int:
        """Count the padding cells."""
        return self.ids.size - int(self.lengths.sum())

    def _check_filler(self) -> None:
        filler = slice(len(self.lengths) - self.num_filler_rows, None)
        if self.lengths[filler].any():
            raise ValueError("a filler row has ids, expected none")
        if self.original_indices is not None and (self.original_indices[filler] != -1).any():
            raise ValueError("a filler row has an original index, expected -1")


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
        return PaddedBatch(ids, lengths, indices, self.geometry.padding_side, num_filler_rows)

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
        blocks = np.cumsum(num_cells) // CELLS_PER_BLOCK
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
