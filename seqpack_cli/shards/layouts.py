"""What all layouts share: a batch, and how the batches of a shard lie in its arrays.

A batch is a few flat arrays. A shard concatenates those of all its batches, with offsets where each
batch begins, so that one batch can be taken out as views. Each layout has two small classes: a
`Batch`, which a training loop reads, and a `Layout`, which knows where the tokens of any rows of a
shard lie and what its arrays must be. The defaults here are those of rows that lie in `data` as
they are. Other code asks them, and never which layout it has.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, fields, replace
from typing import Any, ClassVar, Protocol

import numpy as np

from seqpack_cli.batching.options import LAYOUTS
from seqpack_cli.batching.plan import ShardRows
from seqpack_cli.files.manifest import SIDE
from seqpack_cli.limits import LIMITS
from seqpack_cli.ranges import copy_ranges, expand_ranges
from seqpack_cli.tokens.kinds import Values

Tensors = Mapping[str, np.ndarray]  # the arrays of a shard by name

# Arrays with the same number of entries per batch share their offsets; others have one per batch.
OFFSETS_OF = {
    "lengths": "sequence_offsets",
    "original_indices": "sequence_offsets",
    "piece_starts": "sequence_offsets",
    "row_indices": "sequence_offsets",
    "encoder_rows": "sequence_offsets",
    "resets": "sequence_offsets",
    "next_ids": "sequence_offsets",
    "batch_sizes": "step_offsets",
    "data": "data_offsets",
}

# In changed rows, a number for each cell that those before did not have; counted from the end.
PADDING, BEFORE, AFTER = -1, -2, -3
NO_CUTS = (np.empty(0, np.int64), np.empty(0, np.int64))  # cells and ids


@dataclass(frozen=True)
class Geometry:
    """The numbers of a plan on which the places of tokens in a shard depend."""

    pad_id: int = 0
    padding_side: str = "right"
    has_filler_rows: bool = False  # batches may end with rows that hold no sequence
    num_rows: int | None = None  # of a batch whose rows are shared and padded to row_length
    row_length: int = 0  # where num_rows is a number
    multiple: int = 1  # lengths of sequences that share a row are rounded up to it
    is_decoder: bool = False  # the decoder's side of pairs, whose rows follow the encoder's
    is_sorted: bool = True  # rows that sequences do not share are longest first

    @classmethod
    def of_manifest(cls, manifest: Mapping[str, Any]) -> Geometry:
        """Return the geometry of the shards of a manifest."""
        return cls.of_options(
            manifest["layout"],
            manifest["options"],
            pad_id=manifest["pad_id"],
            padding_side=manifest["padding_side"],
            is_decoder=manifest.get(SIDE) == "decoder",
        )

    @classmethod
    def of_options(
        cls,
        layout: str,
        options: Mapping[str, Any],
        *,
        pad_id: int = 0,
        padding_side: str = "right",
        is_decoder: bool = False,
    ) -> Geometry:
        """Return the geometry that the recorded options of `pack` give."""
        rules, num_rows = LAYOUTS[layout], options["batch_size"]
        if rules.shares_rows:
            length = 0 if num_rows is None else options["max_tokens"]
            multiple = options["align_sequences"]
            return cls(pad_id, num_rows=num_rows, row_length=length, multiple=multiple)
        is_sorted = rules.needs_sorted_rows or not is_decoder
        has_filler_rows = options["last_batch"] == "pad"
        return cls(
            pad_id, padding_side, has_filler_rows, is_decoder=is_decoder, is_sorted=is_sorted
        )


class Batch:
    """The rows of one batch; each layout has its own class, with the arrays that only it has.

    Unless a layout says otherwise, token t of a row lies in `data` t x `stride` cells after the
    row's start.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    data: np.ndarray  # the ids and padding as one flat array, in the order of the shard
    lengths: np.ndarray  # int64[B], tokens of each row
    original_indices: np.ndarray | None  # int64[B], of the token store; None if not from a store
    piece_starts: np.ndarray | None  # int64[B], where in its sequence each row begins, if pieces
    columns: dict[str, Values]  # per sequence [B], filler rows filled; per token as `shape`
    num_filler_rows: int = 0  # empty rows at the end of the batch

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the ids in torch: [S], or that of a rectangle."""
        return self.data.shape

    @property
    def num_steps(self) -> int:
        """Width of the rectangle, or length of the longest row where there is none."""
        return int(self.lengths.max())

    @property
    def first_steps(self) -> np.ndarray:
        """The column, or time step, of each row's first token, int64[B]."""
        return np.zeros(len(self.lengths), np.int64)

    @functools.cached_property
    def starts(self) -> np.ndarray:
        """Where in data each row begins, int64[B]."""
        raise NotImplementedError

    @property
    def stride(self) -> int:
        """The distance in data between two tokens of a row."""
        return 1

    @property
    def has_gaps(self) -> bool:
        """Whether there may be padding."""
        return True

    def rows(self) -> list[np.ndarray]:
        """Return the sequences in row order."""
        ends, stride = self.starts + self.lengths * self.stride, self.stride
        places = zip(self.starts.tolist(), ends.tolist(), strict=True)
        return [self.data[start:end:stride] for start, end in places]

    def row(self, index: int) -> np.ndarray:
        """Return the sequence of one row; the batch must have been checked."""
        row: np.ndarray = self.data[self.find_cells(index)]
        return row

    def find_cells(self, row: int) -> np.ndarray:
        """Return where the tokens of a row lie in data, int64[length]."""
        cells: np.ndarray = self.starts[row] + np.arange(self.lengths[row]) * self.stride
        return cells

    def follow(self, values: np.ndarray, fill: int) -> np.ndarray:
        """Return for each cell the value at the next token of its row, fill if there is none.

        Args:
            values: one for each cell, in the shape of the ids.
        """
        followed, stride = np.empty(len(self.data), np.int64), self.stride
        followed[:-stride] = values.reshape(-1)[stride:]
        followed[self._lasts] = fill
        if self.has_gaps:
            followed[self._padding] = fill
        return followed.reshape(self.shape)

    def find_cuts(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the cells whose next token lies in the next batch, and its id there.

        Left out are tokens whose next one is not a target.
        """
        return NO_CUTS

    def without_filler(self) -> Batch:
        """Return the batch without its filler rows."""
        return self

    def has_right_padding(self, pad_id: int, values: np.ndarray | None = None) -> bool:
        """Return whether all padding is pad_id.

        Args:
            values: looked at instead of the ids, in their shape.
        """
        if not self.has_gaps:
            return True
        cells = self.data if values is None else values.reshape(-1)
        return bool((cells[self._padding] == pad_id).all())

    def count_padding(self) -> int:
        """Count the padding cells."""
        return len(self.data) - int(self.lengths.sum())

    def describe_shape(self) -> dict[str, Any]:
        """Return the fields that only this layout has, as JSON values."""
        raise NotImplementedError

    @property
    def _lasts(self) -> np.ndarray:
        """The cell of each row's last token, int64[B]."""
        lasts: np.ndarray = self.starts + (self.lengths - 1) * self.stride
        return lasts

    @functools.cached_property
    def _padding(self) -> np.ndarray:
        """The cells that hold no token, int64."""
        return np.flatnonzero(~mark_ranges(len(self.data), self.starts, self.lengths))


class RowSource(Protocol):
    """A source of the ids of planned rows."""

    @property
    def dtype(self) -> str:
        """The dtype of the ids."""

    def fill(self, cells: np.ndarray, begins: np.ndarray) -> None:
        """Copy the ids of each row to its own place in cells."""


@dataclass(frozen=True)
class Layout:
    """How the batches of a shard lie in its arrays, row after row unless a layout says otherwise.

    All but `check` expect tensors that it accepts.
    """

    geometry: Geometry
    is_by_steps: ClassVar[bool] = False  # whether other rows lie between the tokens of a row

    @property
    def names(self) -> tuple[str, ...]:
        """The arrays of a batch, in file order, `data` last."""
        raise NotImplementedError

    @property
    def tensor_names(self) -> list[str]:
        """The arrays of a shard but its columns, `data` last: all others are int64."""
        *arrays, data = self.names
        offsets = dict.fromkeys(OFFSETS_OF[name] for name in self.names if name in OFFSETS_OF)
        return [*arrays, *offsets, data]

    @property
    def has_padding(self) -> bool:
        """Whether `data` may hold other cells than tokens."""
        return True

    def make_batch(self, arrays: dict[str, Any]) -> Batch:
        """Make a batch from its flat arrays."""
        raise NotImplementedError

    def make_arrays(self, rows: ShardRows) -> dict[str, np.ndarray]:
        """Make the arrays of a shard that differ from layout to layout."""
        raise NotImplementedError

    def find_starts(self, tensors: Tensors, rows: np.ndarray) -> np.ndarray:
        """Return where in `data` each of some rows begins, int64[N]."""
        raise NotImplementedError

    def iter_data(self, tensors: Tensors, source: RowSource) -> Iterator[np.ndarray]:
        """Yield the `data` of a shard, or a column with a value per token, in pieces of any size.

        Args:
            source: of all rows that are not filler.
        """
        rows = np.flatnonzero(tensors["original_indices"] >= 0)
        cells = np.full(int(tensors["data_offsets"][-1]), self.geometry.pad_id, source.dtype)
        source.fill(cells, self.find_starts(tensors, rows))
        yield cells

    def find_cells(self, tensors: Tensors, rows: np.ndarray) -> np.ndarray:
        """Return where the tokens of rows lie in `data`, row after row."""
        return expand_ranges(self.find_starts(tensors, rows), tensors["lengths"][rows])

    def mask_tokens(self, tensors: Tensors) -> np.ndarray:
        """Return the mask of the tokens in `data`, False for padding."""
        if not self.has_padding:
            return np.ones(len(tensors["data"]), bool)
        lengths = tensors["lengths"]
        starts = self.find_starts(tensors, np.arange(len(lengths)))
        return mark_ranges(len(tensors["data"]), starts, lengths)

    def copy_rows(
        self, tensors: Tensors, rows: np.ndarray, target: np.ndarray, target_starts: np.ndarray
    ) -> None:
        """Copy rows without padding, each to its own place in target."""
        data, lengths = tensors["data"], tensors["lengths"][rows]
        if self.is_by_steps:
            cells = self.find_cells(tensors, rows)
            target[expand_ranges(target_starts, lengths)] = data[cells]
        else:
            starts = self.find_starts(tensors, rows)
            copy_ranges(data, starts, target, target_starts, lengths)

    def check(self, tensors: Tensors, *, max_id: int) -> None:
        """Raise ValueError, which says what was found, unless the arrays fit together.

        Neither ids nor padding are looked at. Rows and cells are counted from the first batch's.
        A layout that has more arrays checks them too; what it checks may rely on this.

        Args:
            max_id: the largest id.
        """
        del max_id
        lengths = tensors["lengths"]
        refuse(
            lengths < (not self.geometry.has_filler_rows),
            lambda row: f"row {row} has length {lengths[row]}, expected no empty sequence",
        )


def refuse(wrong: np.ndarray, describe: Callable[[int], str]) -> None:
    """Raise ValueError about the first entry that is wrong, if there is one."""
    if wrong.any():
        raise ValueError(describe(int(wrong.argmax())))


def check_sorted(tensors: Tensors) -> None:
    """Raise ValueError if a row is longer than the one before it in its batch."""
    lengths = tensors["lengths"]
    rises = within_batches(lengths[1:] > lengths[:-1], tensors["sequence_offsets"])
    message = "is longer than the one before, expected longest first"
    refuse(rises, lambda row: f"row {row + 1} {message}")


def within_batches(pairs: np.ndarray, sequence_offsets: np.ndarray) -> np.ndarray:
    """Clear the marks of neighbouring rows that lie in different batches, bool[rows - 1]."""
    pairs[sequence_offsets[1:-1] - 1] = False
    return pairs


def fill_with(layout: Layout, fill: int) -> Layout:
    """Return the layout with another value in its padding."""
    return type(layout)(replace(layout.geometry, pad_id=fill))


def mark_ranges(num_cells: int, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the mask of the cells that the ranges cover, bool[num_cells].

    Args:
        starts: ascending, without overlap.
    """
    borders = np.empty(2 * len(starts) + 2, np.int64)  # gap, range, gap, …, gap
    borders[0], borders[-1] = 0, num_cells
    borders[1:-1:2], borders[2:-1:2] = starts, starts + lengths
    return np.repeat(np.arange(len(borders) - 1) % 2 == 1, np.diff(borders))


def iter_pieces(cells: np.ndarray) -> Iterator[np.ndarray]:
    """Yield cells in pieces small enough to stay in the cache while they are hashed and written."""
    size = LIMITS.entries_per_block
    for start in range(0, len(cells), size):
        yield cells[start : start + size]


def is_in_range(ids: np.ndarray, max_id: int) -> bool:
    """Return whether all ids are from 0 to max_id."""
    return not ids.size or (
        np.maximum.reduce(ids, axis=None) <= max_id
        and (ids.dtype.kind == "u" or np.minimum.reduce(ids, axis=None) >= 0)
    )


def describe_fields(batch: Any) -> str:
    """Return the repr of a batch in one line: dtype and shape stand for an array or a tensor."""
    values = ((it.name, getattr(batch, it.name)) for it in fields(batch) if it.repr)
    spelled = (
        f"{name}={_describe_value(value)}"
        for name, value in values
        if value is not None and (name != "columns" or value)
    )
    return f"{type(batch).__name__}({', '.join(spelled)})"


def _describe_value(value: Any) -> str:
    if hasattr(value, "_fields"):  # torch's PackedSequence
        values = zip(value._fields, value, strict=True)
        spelled = (f"{name}={_describe_value(each)}" for name, each in values if each is not None)
        return f"{type(value).__name__}({', '.join(spelled)})"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name!r}: {_describe_value(value[name])}' for name in value)}}}"
    if isinstance(value, list):
        return f"{len(value)} texts"
    if not hasattr(value, "dtype"):
        return repr(value)
    device = getattr(value, "device", "cpu")  # a numpy array has none, or says so itself
    place = "" if str(device) == "cpu" else f" on {device}"
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}{place}"


def join_sequences(sequences: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids of all sequences one after another, and their lengths, int64[B]."""
    rows = [np.asarray(sequence) for sequence in sequences]
    if not rows:
        raise ValueError("expected at least one sequence")
    dtype = rows[0].dtype
    for number, row in enumerate(rows):
        if row.ndim != 1:
            raise ValueError(f"sequence {number} has shape {row.shape}, expected [length]")
        if row.dtype.kind not in "iu":
            raise TypeError(f"sequence {number} is {row.dtype}, expected integers")
        if row.dtype != dtype and len(row):  # concatenate would let an id wrap around
            outside = [one for one in (int(row.min()), int(row.max())) if not fits(one, dtype)]
            if outside:
                raise ValueError(f"sequence {number} has id {outside[0]}, sequence 0 is {dtype}")
    lengths = np.array([len(row) for row in rows], np.int64)
    return np.concatenate(rows, dtype=dtype, casting="unsafe"), lengths


def fits(value: int, dtype: np.dtype[Any]) -> bool:
    """Return whether an array of integers can hold a value."""
    return bool(np.iinfo(dtype).min <= value <= np.iinfo(dtype).max)
