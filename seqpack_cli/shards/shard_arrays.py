"""The arrays of a shard: take batches out as views, check or measure all batches at once.

Arrays with the same number of entries per batch share their offsets; arrays without offsets have
one entry per batch. Everything is checked in numpy before torch gets it: a wrong `batch_sizes`
makes torch write out of bounds. Checking all batches takes 2 ns per token, a single batch 50 us.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np

from seqpack_cli.batching.options import LAYOUTS
from seqpack_cli.batching.plan import BatchTable
from seqpack_cli.shards.geometry import Geometry
from seqpack_cli.shards.layouts import Batch, Tensors, find_layout, is_in_range
from seqpack_cli.shards.shard_columns import (
    NO_COLUMN,
    AllValues,
    Columns,
    check_column_lengths,
    cut_columns,
    find_wrong_cells,
    find_wrong_rows,
    view_all,
    view_columns,
)
from seqpack_cli.shards.shard_tensors import OFFSETS_OF


class ShardArrays:
    """The arrays of a shard, with what follows from them for its rows and batches."""

    def __init__(
        self, layout: str, tensors: Tensors, geometry: Geometry, *, columns: Columns = NO_COLUMN
    ) -> None:
        self.columns = columns
        self._values: AllValues | None = None  # found at the first batch
        self.rules = LAYOUTS[layout]
        self.layout = find_layout(layout, geometry)
        self.tensors = tensors
        names = self.layout.arrays
        self._groups = [
            (offsets, [name for name in names if OFFSETS_OF.get(name) == offsets])
            for offsets in dict.fromkeys(map(OFFSETS_OF.get, names))
        ]

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
        other = copy.copy(self)
        other.tensors, other._values = tensors, None
        other.columns = self.columns if columns is None else columns
        return other

    def find_batch(self, row: int) -> tuple[int, int]:
        """Return the batch of a row, counted through the shard, and the row's number in it."""
        offsets = self.tensors["sequence_offsets"]
        batch = int(np.searchsorted(offsets, row, "right")) - 1
        return batch, int(row - offsets[batch])

    def view(self, index: int) -> Batch:
        """Return one batch as views, unchecked.

        Raises:
            ValueError: the arrays cannot belong to one batch.
        """
        arrays = {}
        places: dict[str | None, slice] = {None: slice(index, index + 1)}
        for offsets, names in self._groups:
            if offsets is not None:
                places[offsets] = slice(*self.tensors[offsets][index : index + 2].tolist())
            for name in names:
                arrays[name] = self.tensors[name][places[offsets]]
        batch = self.layout.make_batch(arrays)
        if self.columns:
            if self._values is None:
                self._values = view_all(self.columns, self.tensors)
            view_columns(self._values, batch, places["sequence_offsets"], places["data_offsets"])
        return batch

    def cut(self, first: int, last: int) -> ShardArrays:
        """Return the arrays of some batches; all but the offsets are views."""
        tensors = {}
        for offsets, names in self._groups:
            start, end = first, last
            if offsets is not None:
                begins = self.tensors[offsets][first : last + 1]
                start, end = int(begins[0]), int(begins[-1])
                tensors[offsets] = begins - start
            for name in names:
                tensors[name] = self.tensors[name][start:end]
        tensors |= cut_columns(self.columns, self.tensors, *self._find_ends(first, last))
        return self.with_tensors(tensors)

    def find_cells(self, rows: np.ndarray) -> np.ndarray:
        """Return where the tokens of rows lie in `data`, row after row.

        Args:
            rows: int64[N], counted through the shard; their batches must be valid.
        """
        return self.layout.find_cells(self.tensors, rows)

    def mask_tokens(self) -> np.ndarray:
        """Return the mask of the tokens in `data`, False for padding; batches must be valid."""
        return self.layout.mask_tokens(self.tensors)

    def copy_rows(
        self, rows: np.ndarray, target: np.ndarray, target_starts: np.ndarray, name: str = "data"
    ) -> None:
        """Copy rows without padding, each to its own place in target.

        Args:
            rows: int64[N], counted through the shard; their batches must be valid.
            target_starts: int64[N], where in target each row begins.
            name: of the array to read, which is laid out as `data` is.
        """
        tensors = {**self.tensors, "data": self.tensors[name]}
        self.layout.copy_rows(tensors, rows, target, target_starts)

    def check_offsets(self) -> None:
        """Raise ValueError unless the batches lie one after another and fill the arrays."""
        num_offsets = len(self.tensors["data_offsets"])
        for name, names in self._groups:
            num_entries = {array: len(self.tensors[array]) for array in names}
            if name is None:
                for array, number in num_entries.items():
                    if number != num_offsets - 1:
                        expected = f"expected one for each of {num_offsets - 1} batches"
                        raise ValueError(f"{array} has {number} entries, {expected}")
                continue
            offsets = self.tensors[name]
            if num_offsets < 2 or len(offsets) != num_offsets:
                raise ValueError(
                    f"{name} has {len(offsets)} entries and data_offsets {num_offsets}, "
                    "expected the same number, at least 2"
                )
            rises = offsets[0] == 0 and (offsets[1:] > offsets[:-1]).all()
            for array, number in num_entries.items():
                if not rises or offsets[-1] != number:
                    raise ValueError(
                        f"{name} does not rise from 0 to {number}, the number of entries of {array}"
                    )
        check_column_lengths(self.columns, self.tensors)

    def _find_ends(self, first: int, last: int) -> tuple[slice, slice]:
        """Return the rows and the cells of some batches."""
        offsets = (self.tensors[name] for name in ("sequence_offsets", "data_offsets"))
        rows, cells = (slice(*each[[first, last]].tolist()) for each in offsets)
        return rows, cells

    def find_wrong(self, *, padding: bool = False, max_id: int | None = None) -> np.ndarray:
        """Find the batches whose arrays contradict each other, whatever their ids, bool[batches].

        Columns per sequence are checked too; those per token are not, like the ids. The offsets
        must have been checked. `Batch.check` raises the error that describes the fault.

        Args:
            padding: also check that all padding is pad_id; without it `data` is not read.
            max_id: the largest id allowed in `next_ids`.
        """
        offsets, lengths = self.tensors["sequence_offsets"], self.tensors["lengths"]
        wrong, batch_of = np.zeros(len(self), bool), self.batch_of_rows
        first_fillers = offsets[1:] - self.num_filler_rows
        if "num_filler_rows" in self.tensors:
            wrong |= (self.num_filler_rows < 0) | (self.num_filler_rows >= self.num_rows)
        is_filler = np.arange(len(lengths)) >= first_fillers[batch_of]
        is_wrong = (lengths < 1) != is_filler
        is_wrong |= is_filler & ((lengths != 0) | (self.tensors["original_indices"] != -1))
        is_wrong |= find_wrong_rows(self.columns, self.tensors, is_filler)
        if max_id is not None and "next_ids" in self.tensors:
            is_wrong |= self.tensors["next_ids"] > max_id
        wrong[batch_of[is_wrong]] = True
        if not self.rules.shares_rows and self.layout.geometry.is_sorted:
            rises = (lengths[1:] > lengths[:-1]) & (batch_of[1:] == batch_of[:-1])
            wrong[batch_of[1:][rises]] = True
        if not self.layout.has_padding:
            sizes = np.diff(self.tensors["data_offsets"])
            # each length cut to at most size + 1, so that their sum cannot wrap around
            limited = np.minimum(lengths, sizes[batch_of] + 1)
            wrong |= np.add.reduceat(limited, offsets[:-1]) != sizes
        return self.layout.find_wrong(self.tensors, wrong, padding=padding)

    def find_unsound(self, *, max_id: int) -> np.ndarray:
        """Find the batches that break a rule of their layout or hold a wrong id, bool[batches].

        Args:
            max_id: the largest id allowed.
        """
        wrong, data = self.find_wrong(padding=True, max_id=max_id), self.tensors["data"]
        if not is_in_range(data, max_id):
            starts = self.tensors["data_offsets"][:-1]
            wrong |= np.minimum.reduceat(data, starts) < 0
            wrong |= np.maximum.reduceat(data, starts).astype(np.int64) > max_id
        return find_wrong_cells(self.columns, self.tensors, wrong, self.layout)

    def measure(self, *, first_batch: int = 0, max_piece: int | None = None) -> BatchTable:
        """Measure all batches, including damaged ones.

        Args:
            first_batch: number of the shard's first batch in the whole set.
            max_piece: number of tokens at which long sequences are split.
        """
        offsets, lengths = self.tensors["sequence_offsets"], self.tensors["lengths"]
        starts = self.piece_starts
        real = np.where(lengths > 0, lengths, np.iinfo(np.int64).max)
        table = replace(
            BatchTable.of_batches(lengths, offsets),
            num_filler_rows=self.num_filler_rows,
            num_cells=np.diff(self.tensors["data_offsets"]),
            index=np.arange(first_batch, first_batch + len(self)),
            shortest=np.minimum.reduceat(real, offsets[:-1]),
        )
        if not self.rules.shares_rows:
            return table
        later, second = starts != 0, (starts > 0) & (starts <= (max_piece or 0))
        return replace(
            table,
            num_later_pieces=np.add.reduceat(later, offsets[:-1], dtype=np.int64),
            num_split_sequences=np.add.reduceat(second, offsets[:-1], dtype=np.int64),
        )
