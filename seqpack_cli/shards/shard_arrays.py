"""The arrays of a shard: one batch or some taken out as views, all checked or measured at once.

Arrays with the same number of entries in a batch share their offsets; others have one entry a
batch. All is checked here in numpy before torch can see it: a wrong `batch_sizes` makes torch write
out of bounds. A check of all batches takes 2 ns a token, where one of a batch takes 50 us.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np

from seqpack_cli.batching.batch_table import BatchTable
from seqpack_cli.batching.layout_rules import LAYOUTS
from seqpack_cli.batching.shard_rows import ShardRows
from seqpack_cli.ranges import to_offsets
from seqpack_cli.shards.layouts import Batch, Tensors, find_layout, is_in_range

OFFSETS_OF = {
    "lengths": "sequence_offsets",
    "original_indices": "sequence_offsets",
    "piece_starts": "sequence_offsets",
    "batch_sizes": "step_offsets",
    "data": "data_offsets",
}


def tensor_names(layout: str, *, filler: bool) -> list[str]:
    """Name the arrays of a shard in file order: int64 all but the last, the ids.

    Args:
        filler: whether batches are filled up with empty rows, which are then counted.
    """
    *arrays, data = find_layout(layout).arrays
    arrays += ["num_filler_rows"] if filler else []
    offsets = dict.fromkeys(OFFSETS_OF[name] for name in [*arrays, data] if name in OFFSETS_OF)
    return [*arrays, *offsets, data]


def make_tensors(layout: str, rows: ShardRows, *, filler: bool) -> dict[str, np.ndarray]:
    """Make all arrays of a shard but `data`, int64, in file order.

    Args:
        filler: whether batches are filled up with empty rows.
    """
    num_tokens = np.add.reduceat(rows.lengths, rows.batch_offsets[:-1], dtype=np.int64)
    tensors = {
        "lengths": rows.lengths,
        "original_indices": rows.indices,
        "sequence_offsets": rows.batch_offsets,
        "data_offsets": to_offsets(num_tokens),
        **find_layout(layout).make_arrays(rows),
    }
    names = tensor_names(layout, filler=filler)[:-1]
    return {name: tensors[name].astype(np.int64, copy=False) for name in names}


class ShardArrays:
    """The arrays of a shard, and what they say of its rows and batches."""

    def __init__(
        self, layout: str, tensors: Tensors, *, pad_id: int = 0, padding_side: str = "right"
    ) -> None:
        self.rules = LAYOUTS[layout]
        self.layout = find_layout(layout, pad_id=pad_id, padding_side=padding_side)
        self.tensors = tensors
        names = [name for name in (*self.layout.arrays, "num_filler_rows") if name in tensors]
        self._groups = [
            (offsets, [name for name in names if OFFSETS_OF.get(name) == offsets])
            for offsets in dict.fromkeys(map(OFFSETS_OF.get, names))
        ]

    def __len__(self) -> int:
        return len(self.tensors["data_offsets"]) - 1

    @property
    def num_rows(self) -> np.ndarray:
        """Rows of each batch, those of filler too, int64[batches]."""
        return np.diff(self.tensors["sequence_offsets"])

    @property
    def num_filler_rows(self) -> np.ndarray:
        """Empty rows at the end of each batch, int64[batches]."""
        return self.tensors.get("num_filler_rows", np.zeros(len(self), np.int64))

    @property
    def batch_of_rows(self) -> np.ndarray:
        """The batch of each row, int64[rows]."""
        return np.repeat(np.arange(len(self)), self.num_rows)

    @property
    def piece_starts(self) -> np.ndarray:
        """Where in its sequence each row begins, int64[rows]."""
        return self.tensors.get("piece_starts", np.zeros_like(self.tensors["lengths"]))

    def with_tensors(self, tensors: Tensors) -> ShardArrays:
        """Return other arrays in the place of these."""
        other = copy.copy(self)
        other.tensors = tensors
        return other

    def find_batch(self, row: int) -> tuple[int, int]:
        """Return the batch of a row that is counted through the shard, and the row inside it."""
        offsets = self.tensors["sequence_offsets"]
        batch = int(np.searchsorted(offsets, row, "right")) - 1
        return batch, int(row - offsets[batch])

    def view(self, index: int) -> Batch:
        """Take one batch out, unchecked; nothing is copied.

        Raises:
            ValueError: the arrays can not be those of a batch.
        """
        arrays = {}
        for offsets, names in self._groups:
            start, end = index, index + 1
            if offsets is not None:
                start, end = self.tensors[offsets][index : index + 2].tolist()
            for name in names:
                arrays[name] = self.tensors[name][start:end]
        return self.layout.make_batch(arrays)

    def cut(self, first: int, last: int) -> ShardArrays:
        """Take some batches out; all arrays but the offsets are views."""
        tensors = {}
        for offsets, names in self._groups:
            start, end = first, last
            if offsets is not None:
                begins = self.tensors[offsets][first : last + 1]
                start, end = int(begins[0]), int(begins[-1])
                tensors[offsets] = begins - start
            for name in names:
                tensors[name] = self.tensors[name][start:end]
        return self.with_tensors(tensors)

    def find_cells(self, rows: np.ndarray) -> np.ndarray:
        """Return where the tokens of rows of sound batches lie in `data`, row after row.

        Args:
            rows: int64[N], counted through the shard.
        """
        return self.layout.find_cells(self.tensors, rows)

    def mask_tokens(self) -> np.ndarray:
        """Say which entries of the `data` of sound batches are tokens and not padding, bool."""
        return self.layout.mask_tokens(self.tensors)

    def copy_rows(self, rows: np.ndarray, target: np.ndarray, target_starts: np.ndarray) -> None:
        """Copy rows of sound batches, each to its own place, without padding.

        Args:
            rows: int64[N], counted through the shard.
            target_starts: int64[N], where in target each row begins.
        """
        self.layout.copy_rows(self.tensors, rows, target, target_starts)

    def check_offsets(self) -> None:
        """Raise ValueError unless the batches lie one after another and fill the arrays."""
        num_batches = len(self.tensors["data_offsets"]) - 1
        for name, names in self._groups:
            num_entries = {array: len(self.tensors[array]) for array in names}
            if name is None:
                for array, number in num_entries.items():
                    if number != num_batches:
                        raise ValueError(f"{array} has {number} entries for {num_batches} batches")
                continue
            offsets = self.tensors[name]
            if num_batches < 1 or len(offsets) != num_batches + 1:
                raise ValueError(f"{name} has {len(offsets)} entries, {num_batches} batches")
            rises = offsets[0] == 0 and (offsets[1:] > offsets[:-1]).all()
            for array, number in num_entries.items():
                if not rises or offsets[-1] != number:
                    raise ValueError(f"{name} do not rise from 0 to the {number} of {array}")

    def find_wrong(self, *, padding: bool = False) -> np.ndarray:
        """Find the batches whose arrays contradict each other, whatever their ids, bool[batches].

        The offsets must have been checked. Who finds a batch here asks its `check` for words.

        Args:
            padding: look at what stands in cells that hold no token, too; else `data` is not read.
        """
        offsets, lengths = self.tensors["sequence_offsets"], self.tensors["lengths"]
        wrong, batch_of = np.zeros(len(self), bool), self.batch_of_rows
        first_fillers = offsets[1:] - self.num_filler_rows
        if "num_filler_rows" in self.tensors:
            wrong |= (self.num_filler_rows < 0) | (self.num_filler_rows >= self.num_rows)
        is_filler = np.arange(len(lengths)) >= first_fillers[batch_of]
        is_wrong = (lengths < 1) != is_filler
        is_wrong |= is_filler & ((lengths != 0) | (self.tensors["original_indices"] != -1))
        wrong[batch_of[is_wrong]] = True
        if not self.rules.shares_rows:
            rises = (lengths[1:] > lengths[:-1]) & (batch_of[1:] == batch_of[:-1])
            wrong[batch_of[1:][rises]] = True
        if not self.rules.fills_rectangle:
            sizes = np.diff(self.tensors["data_offsets"])
            # lengths of at most size each, so that their sum can not wrap around
            limited = np.minimum(lengths, sizes[batch_of] + 1)
            wrong |= np.add.reduceat(limited, offsets[:-1]) != sizes
        return self.layout.find_wrong(self.tensors, wrong, padding=padding)

    def find_unsound(self, *, max_id: int) -> np.ndarray:
        """Find the batches that break a rule of their layout, bool[batches].

        Args:
            max_id: the largest id there may be.
        """
        wrong, data = self.find_wrong(padding=True), self.tensors["data"]
        if not is_in_range(data, max_id):
            starts = self.tensors["data_offsets"][:-1]
            wrong |= np.minimum.reduceat(data, starts) < 0
            wrong |= np.maximum.reduceat(data, starts).astype(np.int64) > max_id
        return wrong

    def measure(self, *, first_batch: int = 0, max_piece: int | None = None) -> BatchTable:
        """Measure all batches, those that are unsound too.

        Args:
            first_batch: the shard's first, in the whole set.
            max_piece: tokens of a piece, where long sequences are split.
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
        later, second = starts != 0, starts == max_piece
        return replace(
            table,
            num_later_pieces=np.add.reduceat(later, offsets[:-1], dtype=np.int64),
            num_split_sequences=np.add.reduceat(second, offsets[:-1], dtype=np.int64),
        )
