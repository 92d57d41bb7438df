"""What the batches of all layouts share, and the rules that their arrays must keep.

A batch is a few flat arrays. A shard concatenates those of all its batches: see `arrays`. Each
layout has two small classes: a `Batch`, which a training loop reads, and the `ShardArrays` of many
batches. The defaults of both are those of rows that lie in `data` as they are. Other code asks
them, and never which layout it has.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, fields, replace
from typing import Any, ClassVar, Self

import numpy as np

from seqpack_cli.batching.options import DECODER, LAYOUTS
from seqpack_cli.files.manifest import SIDE
from seqpack_cli.limits import LIMITS
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

    @classmethod
    def of_manifest(cls, manifest: Mapping[str, Any]) -> Geometry:
        """Return the geometry of the shards of a manifest, or of one side of pairs."""
        options, shares_rows = manifest["options"], LAYOUTS[manifest["layout"]].shares_rows
        num_rows = options["batch_size"] if shares_rows else None
        return cls(
            manifest["pad_id"],
            manifest["padding_side"],
            has_filler_rows=options["last_batch"] == "pad" and not shares_rows,
            num_rows=num_rows,
            row_length=0 if num_rows is None else options["max_tokens"],
            multiple=options["align_sequences"],
            is_decoder=manifest.get(SIDE) == DECODER,
        )


class Batch:
    """The rows of one batch; each layout has its own class, with the arrays that only it has.

    Unless a layout says otherwise, token t of a row lies in `data` t x `stride` cells after the
    row's start.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    ids_name: ClassVar[str] = "data"  # of the field that holds the ids

    data: np.ndarray  # the ids and padding as one flat array, in the order of the shard
    lengths: np.ndarray  # int64[B], tokens of each row
    original_indices: np.ndarray | None  # int64[B], of the token store; None if not from a store
    piece_starts: np.ndarray | None  # int64[B], where in its sequence each row begins, if pieces
    columns: dict[str, Values]  # per sequence [B], filler rows filled; per token as `shape`
    num_filler_rows: int = 0  # empty rows at the end of the batch
    encoder_rows: np.ndarray | None = None  # int64[B], of the same documents; None if in one order

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
    def has_padding(self) -> bool:
        """Whether there may be padding."""
        return self.count_padding() > 0

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
        cells: np.ndarray = self.starts[row] + self._steps[: self.lengths[row]]
        return cells

    def find_ends(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the cells of the first and of the last token of each row but filler, int64."""
        rows = np.flatnonzero(self.lengths)
        return self.starts[rows], self._lasts[rows]

    def follow(self, values: np.ndarray, fill: int) -> np.ndarray:
        """Return for each cell the value at the next token of its row, fill if there is none.

        Args:
            values: one for each cell, in the shape of the ids.
        """
        followed, stride = np.empty(len(self.data), np.int64), self.stride
        followed[:-stride] = values.reshape(-1)[stride:]
        followed[self._lasts] = fill
        if self.has_padding:
            followed[self._padding] = fill
        return followed.reshape(self.shape)

    def find_cuts(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the cells whose next token lies in the next batch, and its id there.

        Left out are tokens whose next one is not a target.
        """
        return np.empty(0, np.int64), np.empty(0, np.int64)

    def without_filler(self) -> Batch:
        """Return the batch without its filler rows."""
        return self

    def with_ids(self, ids: np.ndarray, columns: dict[str, Values]) -> Self:
        """Return the same rows with other ids, as one flat array, and columns."""
        return replace(self, **{self.ids_name: ids.reshape(self.shape), "columns": columns})

    def has_right_padding(self, values: np.ndarray, fill: int) -> bool:
        """Return whether padding holds nothing but fill in values, one for each cell."""
        return not self.has_padding or bool((values.reshape(-1)[self._padding] == fill).all())

    def count_padding(self) -> int:
        """Count the padding cells."""
        return len(self.data) - int(self.lengths.sum())

    def describe_shape(self) -> dict[str, Any]:
        """Return the fields that only this layout has, as JSON values."""
        raise NotImplementedError

    @property
    def _steps(self) -> np.ndarray:
        """The distance in data from a row's first token to each of its tokens, int64[T]."""
        return np.arange(self.num_steps) * self.stride

    @property
    def _lasts(self) -> np.ndarray:
        """The cell of each row's last token, int64[B]."""
        lasts: np.ndarray = self.starts + (self.lengths - 1) * self.stride
        return lasts

    @functools.cached_property
    def _padding(self) -> np.ndarray:
        """The cells that hold no token, int64."""
        return np.flatnonzero(~mark_ranges(len(self.data), self.starts, self.lengths))


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
    names = getattr(batch, "_fields", None) or [it.name for it in fields(batch) if it.repr]
    values = ((name, getattr(batch, name)) for name in names)
    spelled = (
        f"{name}={_describe_value(value)}"
        for name, value in values
        if value is not None and (name != "columns" or value)
    )
    return f"{type(batch).__name__}({', '.join(spelled)})"


def _describe_value(value: Any) -> str:
    if hasattr(value, "_fields"):  # torch's PackedSequence
        return describe_fields(value)
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
    for number, row in enumerate(rows):
        if row.ndim != 1:
            raise ValueError(f"sequence {number} has shape {row.shape}, expected [length]")
        if row.dtype.kind not in "iu":
            raise TypeError(f"sequence {number} is {row.dtype}, expected integers")
        if row.dtype != rows[0].dtype and len(row):  # concatenate would let an id wrap around
            check_fits(rows[0].dtype, f"sequence {number} has id", int(row.min()), int(row.max()))
    lengths = np.array([len(row) for row in rows], np.int64)
    return np.concatenate(rows, dtype=rows[0].dtype, casting="unsafe"), lengths


def check_fits(dtype: np.dtype[Any], what: str, *values: int) -> None:
    """Raise ValueError if ids of a dtype cannot hold a value."""
    for value in values:
        if not np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
            raise ValueError(f"{what} {value}, the ids are {dtype}")
