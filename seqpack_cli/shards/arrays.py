"""The arrays of a shard: take batches out as views, check or measure many batches at once.

Everything is checked in numpy before torch gets it: a wrong `batch_sizes` makes torch write out of
bounds. Each rule is one computation over the arrays of any number of batches. A column with one
value per sequence has one entry per row; one with a value per token is laid out as `data` is, and
checked as ids are. Checking all batches takes 1 to 2 ns per token.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from seqpack_cli.batching.options import LayoutRules
from seqpack_cli.batching.plan import BatchTable, ShardRows
from seqpack_cli.errors import quote
from seqpack_cli.limits import LIMITS
from seqpack_cli.ranges import copy_ranges, expand_ranges, to_offsets
from seqpack_cli.shards.layouts import OFFSETS_OF, Batch, Geometry, Tensors, mark_ranges, refuse
from seqpack_cli.tokens.columns import Column
from seqpack_cli.tokens.kinds import Values
from seqpack_cli.tokens.text_values import TextValues, check_offsets

Columns = Mapping[str, Column]
NO_COLUMN: Columns = MappingProxyType({})
Reader = Callable[[np.ndarray, np.ndarray], None]  # copies the ids of rows to places in cells


class ShardArrays:
    """The arrays of a shard, with what follows from them for its rows and batches.

    Each layout has its own class, which knows where the tokens of any rows lie; here they lie row
    after row. `check_offsets` and `check` look whether the arrays fit together; all else but `view`
    and `cut` expects that they do. Rows are counted through the shard.
    """

    rules: ClassVar[LayoutRules]
    all_names: ClassVar[tuple[str, ...]]  # arrays of a batch, in file order; geometry drops some
    is_by_steps: ClassVar[bool] = False  # whether other rows lie between the tokens of a row

    def __init__(
        self, tensors: Tensors, geometry: Geometry, *, columns: Columns = NO_COLUMN
    ) -> None:
        self.tensors = tensors
        self.geometry = geometry
        self.columns = columns
        is_there = {
            "encoder_rows": geometry.is_decoder,
            "num_filler_rows": geometry.has_filler_rows,
            "row_indices": geometry.num_rows is not None,
        }
        names = self.names = [name for name in self.all_names if is_there.get(name, True)]
        self._groups = [
            (offsets, [name for name in names if OFFSETS_OF.get(name) == offsets])
            for offsets in dict.fromkeys(map(OFFSETS_OF.get, names))
        ]

    @property
    def tensor_names(self) -> list[str]:
        """The arrays of a shard but its columns, `data` last: all others are int64."""
        *arrays, data = self.names
        return [*arrays, *filter(None, (offsets for offsets, _ in self._groups)), data]

    def make_tensors(self, rows: ShardRows) -> dict[str, np.ndarray]:
        """Make all arrays of a shard of this kind but `data` and columns, int64."""
        starts = rows.piece_starts
        tensors = {
            **vars(rows),
            "original_indices": rows.indices,
            "sequence_offsets": rows.batch_offsets,
            "data_offsets": to_offsets(rows.num_cells),
            "piece_starts": np.zeros_like(rows.lengths) if starts is None else starts,
            **self.make_arrays(rows),
        }
        return {name: tensors[name].astype(np.int64, copy=False) for name in self.tensor_names[:-1]}

    def make_arrays(self, rows: ShardRows) -> dict[str, np.ndarray]:
        """Make the arrays that differ from those of the rows in the order of the plan."""
        del rows
        return {}

    def make_batch(self, arrays: dict[str, Any]) -> Batch:
        """Make a batch from its flat arrays."""
        raise NotImplementedError

    def find_starts(self, rows: np.ndarray) -> np.ndarray:
        """Return where in `data` each of some rows begins, int64[N]."""
        raise NotImplementedError

    def iter_data(self, read: Reader, dtype: str, fill: int) -> Iterator[np.ndarray]:
        """Yield the `data` of a shard, or a column with a value per token, in pieces of any size.

        Args:
            read: of all rows that are not filler.
            fill: the value of padding.
        """
        rows = np.flatnonzero(self.tensors["original_indices"] >= 0)
        cells = np.full(int(self.tensors["data_offsets"][-1]), fill, dtype)
        read(cells, self.find_starts(rows))
        yield cells

    @property
    def has_padding(self) -> bool:
        """Whether `data` holds other cells than tokens."""
        return len(self.tensors["data"]) > int(self.tensors["lengths"].sum())

    def find_cells(self, rows: np.ndarray) -> np.ndarray:
        """Return where the tokens of rows lie in `data`, row after row."""
        return expand_ranges(self.find_starts(rows), self.tensors["lengths"][rows])

    def mask_tokens(self) -> np.ndarray:
        """Return the mask of the tokens in `data`, False for padding."""
        num_cells, lengths = len(self.tensors["data"]), self.tensors["lengths"]
        if not self.has_padding:
            return np.ones(num_cells, bool)
        return mark_ranges(num_cells, self.find_starts(np.arange(len(lengths))), lengths)

    def copy_rows(
        self, rows: np.ndarray, target: np.ndarray, target_starts: np.ndarray, name: str = "data"
    ) -> None:
        """Copy rows without padding, each to its own place in target.

        Args:
            target_starts: int64[N], where in target each row begins.
            name: of the array to read, which is laid out as `data` is.
        """
        data, lengths = self.tensors[name], self.tensors["lengths"][rows]
        if self.is_by_steps:
            target[expand_ranges(target_starts, lengths)] = data[self.find_cells(rows)]
        else:
            copy_ranges(data, self.find_starts(rows), target, target_starts, lengths)

    def __len__(self) -> int:
        return len(self.tensors["data_offsets"]) - 1

    @property
    def num_rows(self) -> np.ndarray:
        """Number of rows of each batch, including filler rows, int64[batches]."""
        return np.diff(self.tensors["sequence_offsets"])

    @property
    def num_filler_rows(self) -> np.ndarray:
        """Number of empty rows at the end of each batch, int64[batches]."""
        return self.tensors.get("num_filler_rows", np.zeros(len(self), np.int64))

    @property
    def batch_of_rows(self) -> np.ndarray:
        """The batch of each row, int64[rows]."""
        return np.repeat(np.arange(len(self)), self.num_rows)

    @property
    def piece_starts(self) -> np.ndarray:
        """Where in its sequence each row begins, int64[rows]."""
        return self.tensors.get("piece_starts", np.zeros_like(self.tensors["lengths"]))

    def with_tensors(self, tensors: Tensors, columns: Columns | None = None) -> ShardArrays:
        """Return a copy with other arrays, and with other columns unless they are None."""
        columns = self.columns if columns is None else columns
        return type(self)(tensors, self.geometry, columns=columns)

    def find_batch(self, row: int) -> tuple[int, int]:
        """Return the batch of a row, counted through the shard, and the row's number in it."""
        offsets = self.tensors["sequence_offsets"]
        batch = int(np.searchsorted(offsets, row, "right")) - 1
        return batch, int(row - offsets[batch])

    @functools.cached_property
    def _values(self) -> list[tuple[str, Values, str]]:
        """Of each column its name, its values, and the offsets where those of a batch begin."""
        of = "sequence_offsets", "data_offsets"
        columns = self.columns.items()
        return [(name, each.view(self.tensors), of[each.is_per_token]) for name, each in columns]

    def _slice(self, first: int, last: int) -> tuple[dict[str, Any], dict[str | None, slice]]:
        """Return views of the arrays of some batches, and where they lie, by their offsets."""
        arrays: dict[str, Any] = {}
        places: dict[str | None, slice] = {None: slice(first, last)}
        for offsets, names in self._groups:
            if offsets is not None:
                begins = self.tensors[offsets]
                places[offsets] = slice(int(begins[first]), int(begins[last]))
            for name in names:
                arrays[name] = self.tensors[name][places[offsets]]
        return arrays, places

    def view(self, index: int) -> Batch:
        """Return one batch as views, unchecked.

        Raises:
            ValueError: the arrays cannot belong to one batch.
        """
        arrays, places = self._slice(index, index + 1)
        batch = self.make_batch(arrays)
        for name, values, offsets in self._values:
            some = values[places[offsets]]
            if offsets == "data_offsets":
                some = np.asarray(some).reshape(batch.shape)
            batch.columns[name] = some
        return batch

    def cut(self, first: int, last: int) -> ShardArrays:
        """Return the arrays of some batches; all but the offsets are views."""
        tensors, places = self._slice(first, last)
        for name in filter(None, places):
            begins = self.tensors[name][first : last + 1]
            tensors[name] = begins - begins[0]
        for name, values, offsets in self._values:
            some = values[places[offsets]]
            if isinstance(some, TextValues):
                some = some.trim()
            tensors |= self.columns[name].make_arrays(some)
        return self.with_tensors(tensors)

    def check_offsets(self) -> None:
        """Raise ValueError unless the batches lie one after another and fill the arrays."""
        tensors = self.tensors
        counts: dict[str | None, tuple[int, str]] = {None: (len(self), "one for each batch")}
        for name in filter(None, (name for name, _ in self._groups)):
            offsets = tensors[name]
            is_rising = len(self) > 0 and offsets[0] == 0 and (offsets[1:] > offsets[:-1]).all()
            if len(offsets) != len(self) + 1 or not is_rising:
                raise ValueError(f"{name} does not rise from 0 in {len(self) + 1} entries")
            counts[name] = int(offsets[-1]), f"the last of {name}"
        arrays = {array: counts[offsets] for offsets, names in self._groups for array in names}
        for name, values, of in self._values:
            column = self.columns[name]
            if isinstance(values, TextValues):
                sizes = {"num_texts": len(tensors["lengths"]), "num_bytes": len(values.data)}
                check_offsets(values.offsets, **sizes, name=column.offsets_name)
            else:
                arrays[column.tensor_name] = counts[of]
        for array, (count, why) in arrays.items():
            if len(tensors[array]) != count:
                found = f"{array} has {len(tensors[array])} entries"
                raise ValueError(f"{found}, expected {count}, {why}")

    def check(self, *, max_id: int, cells: bool = True) -> None:
        """Raise ValueError about the first rule that the batches break.

        The offsets must have been checked. Rows and cells are counted from the first batch's.

        Args:
            max_id: the largest id.
            cells: also check ids, padding and columns per token; without it `data` is not read.
        """
        tensors, data = self.tensors, self.tensors["data"]
        self.check_rows()
        for column in self.columns.values():
            if not column.is_per_token:
                _check_rows(column, column.view(tensors), tensors["lengths"] == 0)
        if not cells:
            return
        wrong = (data < 0) | (data > max_id)
        self._check_cells("", data, wrong, f"ids from 0 to {max_id}", self.geometry.pad_id)
        for column in self.columns.values():
            if column.is_per_token:
                what, values = f"column {quote(column.name)}: ", tensors[column.tensor_name]
                wrong = column.find_wrong(values)
                self._check_cells(what, values, wrong, column.expected, column.fill)

    def check_rows(self) -> None:
        """Raise ValueError unless the arrays of rows fit together; see `check`.

        Neither ids nor padding are looked at. A layout that has more arrays checks them too; what
        it checks may rely on this.
        """
        lengths = self.tensors["lengths"]
        refuse(
            lengths < (not self.geometry.has_filler_rows),
            lambda row: f"row {row} has length {lengths[row]}, expected no empty sequence",
        )

    def _check_cells(
        self, what: str, values: np.ndarray, wrong: np.ndarray, expected: str, fill: int
    ) -> None:
        """Raise ValueError if cells that lie as those of `data` are wrong or not filled."""

        def name(cell: int) -> str:  # in the first batch
            shape = self.view(0).shape
            return f"cell {cell}" if len(shape) == 1 else f"cell {[*divmod(cell, shape[1])]}"

        refuse(wrong, lambda it: f"{what or 'id '}{values[it]} at {name(it)}, expected {expected}")
        if self.has_padding:
            refuse(
                ~self.mask_tokens() & (values != fill),
                lambda it: f"{what}{name(it)} is padding and holds {values[it]}, expected {fill}",
            )

    def find_unsound(self, *, max_id: int, cells: bool = True) -> np.ndarray:
        """Find the batches that `check` refuses, bool[batches], by halves.

        Args:
            max_id, cells: see `check`.
        """
        if len(self) == 1 or int(self.tensors["data_offsets"][-1]) <= LIMITS.ids_per_block:
            try:
                self.check(max_id=max_id, cells=cells)
            except ValueError:
                if len(self) == 1:
                    return np.ones(1, bool)
            else:
                return np.zeros(len(self), bool)
        middle = len(self) // 2
        halves = self.cut(0, middle), self.cut(middle, len(self))
        return np.concatenate([half.find_unsound(max_id=max_id, cells=cells) for half in halves])

    def measure(self, *, first_batch: int = 0, max_piece: int | None = None) -> BatchTable:
        """Measure all batches, including damaged ones.

        Args:
            first_batch: number of the shard's first batch in the whole set.
            max_piece: number of tokens at which long sequences are split.
        """
        offsets, lengths = self.tensors["sequence_offsets"], self.tensors["lengths"]
        real = np.where(lengths > 0, lengths, np.iinfo(np.int64).max)
        starts = self.piece_starts
        later, second = starts != 0, (starts > 0) & (starts <= (max_piece or 0))
        return replace(
            BatchTable.of_batches(lengths, offsets),
            num_filler_rows=self.num_filler_rows,
            num_cells=np.diff(self.tensors["data_offsets"]),
            index=np.arange(first_batch, first_batch + len(self)),
            shortest=np.minimum.reduceat(real, offsets[:-1]),
            num_later_pieces=np.add.reduceat(later, offsets[:-1], dtype=np.int64),
            num_split_sequences=np.add.reduceat(second, offsets[:-1], dtype=np.int64),
        )


def _check_rows(column: Column, values: Values, is_filler: np.ndarray) -> None:
    """Raise ValueError if a row has an impossible value."""

    def describe(row: int) -> str:
        place = f"row {row}: column {quote(column.name)}"
        if isinstance(values, TextValues):
            what = "is not empty, but the row is filler" if is_filler[row] else "is not UTF-8"
            return f"{place} {what}"
        expected = f"{column.fill} in a filler row" if is_filler[row] else column.expected
        return f"{place} is {values[row]}, expected {expected}"

    refuse(np.where(is_filler, ~column.is_fill(values), column.find_wrong(values)), describe)
