"""The `varlen` layout: several sequences concatenated in one row, or in several rows of one length.

For transformers with variable-length attention: `cu_seqlens` marks where each sequence begins and
ends, so that no token attends to another sequence. A batch is one row of at most `--max-tokens`
tokens; with `--batch-size` it is a rectangle of rows of that length, filled up with padding. With
`--align-sequences` padding also follows each sequence up to a multiple.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from seqpack_cli.batching.limits import round_up
from seqpack_cli.batching.shard_rows import ShardRows
from seqpack_cli.ranges import copy_ranges, expand_ranges, to_offsets
from seqpack_cli.shards.geometry import Geometry
from seqpack_cli.shards.layouts import NO_CUTS, Layout, RowSource, Tensors, describe_fields
from seqpack_cli.shards.row_places import (
    find_starts,
    find_wrong_padding,
    find_wrong_rows,
    mark_tokens,
    place_in_rows,
)
from seqpack_cli.tokens.columns.kind import Values


@dataclass(frozen=True, eq=False)
class VarlenBatch:
    """One row, or several rows of one length, and the sequences in them."""

    num_filler_rows: ClassVar[int] = 0

    data: np.ndarray  # [S], row after row
    lengths: np.ndarray  # int64[B]
    original_indices: np.ndarray | None = None  # int64[B], of the token store
    piece_starts: np.ndarray | None = None  # int64[B], above 0 for later pieces of a split sequence
    columns: dict[str, Values] = field(default_factory=dict)
    row_indices: np.ndarray | None = None  # int64[B], ascending: the row of each; None in one row
    row_length: int | None = None  # None in one row, which may have any length
    multiple: int = 1  # to which the lengths are rounded up

    __repr__ = describe_fields

    @functools.cached_property
    def _offsets(self) -> np.ndarray:
        return to_offsets(self.lengths)

    @functools.cached_property
    def starts(self) -> np.ndarray:
        """Where in data each sequence begins, int64[B]."""
        if not self.has_gaps:
            return self._offsets[:-1]
        rounded = round_up(self.lengths, self.multiple)
        if self.row_indices is None or self.row_length is None:
            return to_offsets(rounded)[:-1]
        firsts = self.row_indices * self.row_length
        starts: np.ndarray = firsts + place_in_rows(rounded, self.row_indices)
        return starts

    @property
    def has_gaps(self) -> bool:
        """Whether there may be padding."""
        return self.row_length is not None or self.multiple > 1

    @property
    def cu_seqlens(self) -> np.ndarray:
        """The running sum of the lengths, int32[B + 1]."""
        return self._offsets.astype(np.int32)

    @property
    def cu_seqlens_padded(self) -> np.ndarray | None:
        """Where each sequence begins in data, and its end, int32[B + 1]; None without padding."""
        if int(self._offsets[-1]) == len(self.data):
            return None
        return np.append(self.starts, len(self.data)).astype(np.int32)

    @property
    def position_ids(self) -> np.ndarray:
        """The position of each token in its own sequence or piece, from 0; 0 in padding.

        int64, in the shape of the batch.
        """
        positions = expand_ranges(np.zeros(len(self.lengths), np.int64), self.lengths)
        if not self.has_gaps:
            return positions
        filled = np.zeros(len(self.data), np.int64)
        filled[self._find_all()] = positions
        return filled.reshape(self.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the ids: [S], or [rows, row_length]."""
        if self.row_length is None:
            return self.data.shape
        return len(self.data) // self.row_length, self.row_length

    @property
    def num_steps(self) -> int:
        """Length of the longest sequence."""
        return int(self.lengths.max())

    @property
    def first_steps(self) -> np.ndarray:
        """The column of each sequence's first token, int64[B]: 0."""
        return np.zeros(len(self.lengths), np.int64)

    def rows(self) -> list[np.ndarray]:
        """Return the sequences in row order."""
        if not self.has_gaps:
            return np.split(self.data, np.cumsum(self.lengths)[:-1])
        return [self.row(index) for index in range(len(self.lengths))]

    def row(self, index: int) -> np.ndarray:
        """Return one sequence; the batch must have been checked."""
        start = int(self.starts[index])
        return self.data[start : start + int(self.lengths[index])]

    def find_cells(self, row: int) -> np.ndarray:
        """Return where the tokens of a sequence lie in data, int64[length]."""
        return np.arange(self.starts[row], self.starts[row] + self.lengths[row])

    def follow(self, values: np.ndarray, fill: int) -> np.ndarray:
        """Return for each token the value at the next one of its sequence, fill for the last."""
        followed, ends = np.full(len(self.data), fill, np.int64), self.starts + self.lengths - 1
        flat = values.reshape(-1)
        if not self.has_gaps:
            followed[:-1] = flat[1:]
            followed[ends] = fill
            return followed
        cells = expand_ranges(self.starts, self.lengths - 1)
        followed[cells] = flat[cells + 1]
        return followed.reshape(self.shape)

    def find_cuts(self) -> tuple[np.ndarray, np.ndarray]:
        """Return no cells: no row goes on in the next batch."""
        return NO_CUTS

    def without_filler(self) -> VarlenBatch:
        """Return the batch: it has no filler."""
        return self

    def describe_shape(self) -> dict[str, Any]:
        """Return the fields that only this layout has."""
        shape: dict[str, Any] = {"cu_seqlens": self.cu_seqlens.tolist()}
        if self.has_gaps:
            padded = self.cu_seqlens_padded
            shape["cu_seqlens_padded"] = None if padded is None else padded.tolist()
        if self.row_indices is not None:
            shape |= {"shape": [*self.shape], "row_indices": self.row_indices.tolist()}
        return shape

    def check(self, *, pad_id: int) -> None:
        """Raise ValueError if lengths, rows and data contradict each other."""
        check_lengths(self.lengths)
        if not self.has_gaps:
            if int(self.lengths.max()) > len(self.data) or int(self._offsets[-1]) != len(self.data):
                raise ValueError(f"lengths do not add up to the {len(self.data)} ids of data")
            return
        if self.row_indices is not None and self.row_length is not None:
            check_rows(self.lengths, self.row_indices, self.shape, multiple=self.multiple)
        elif int(round_up(np.minimum(self.lengths, len(self.data) + 1), self.multiple).sum()) != (
            len(self.data)
        ):
            raise ValueError(
                f"lengths, rounded up to multiples of {self.multiple}, do not add up to the "
                f"{len(self.data)} cells of data"
            )
        check_padding(self.data, self._mask(), pad_id)

    def has_right_padding(self, pad_id: int, values: np.ndarray | None = None) -> bool:
        """Return whether all padding of the ids, or of other values, is pad_id."""
        if not self.has_gaps:
            return True
        cells = self.data if values is None else values.reshape(-1)
        return bool((cells[~self._mask()] == pad_id).all())

    def count_padding(self) -> int:
        """Count the padding cells."""
        return len(self.data) - int(self._offsets[-1])

    def _find_all(self) -> np.ndarray:
        return expand_ranges(self.starts, self.lengths)

    def _mask(self) -> np.ndarray:
        return mark_tokens(len(self.data), self.starts, self.lengths)


def check_lengths(lengths: np.ndarray) -> None:
    """Raise ValueError for an empty sequence."""
    if int(lengths.min()) < 1:
        raise ValueError(f"expected no empty sequence, found one in row {int(lengths.argmin())}")


def check_rows(
    lengths: np.ndarray, row_indices: np.ndarray, shape: tuple[int, ...], *, multiple: int = 1
) -> None:
    """Raise ValueError unless sequences fit their rows.

    Args:
        shape: of the rectangle: rows, and cells of a row.
    """
    num_rows, row_length = shape
    wrong = (row_indices < 0) | (row_indices >= num_rows)
    wrong[1:] |= row_indices[1:] < row_indices[:-1]
    if wrong.any():
        place = int(wrong.argmax())
        raise ValueError(
            f"row_indices[{place}] is {row_indices[place]}, expected ascending numbers below "
            f"{num_rows}"
        )
    limited = round_up(np.minimum(lengths, row_length + 1), multiple)
    too_long = place_in_rows(limited, row_indices) + limited > row_length
    if too_long.any():
        row = int(row_indices[too_long.argmax()])
        raise ValueError(f"row {row}: its sequences take more than the {row_length} cells of a row")


def check_padding(data: np.ndarray, mask: np.ndarray, pad_id: int) -> None:
    """Raise ValueError if a cell outside of the mask does not hold pad_id."""
    wrong = ~mask & (data != pad_id)
    if wrong.any():
        cell = int(wrong.argmax())
        raise ValueError(f"cell {cell} is padding and holds {data[cell]}, expected {pad_id}")


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
        batch = VarlenBatch(
            arrays["data"],
            arrays["lengths"],
            arrays["original_indices"],
            arrays["piece_starts"],
            multiple=self.geometry.multiple,
        )
        num_rows, row_length = self.geometry.num_rows, self.geometry.row_length
        if num_rows is None:
            return batch
        num_cells = len(arrays["data"])
        if num_cells % row_length or num_cells > row_length * num_rows:
            raise ValueError(
                f"data has {num_cells} cells, expected up to {num_rows} rows of {row_length}"
            )
        return replace(batch, row_indices=arrays["row_indices"], row_length=row_length)

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
