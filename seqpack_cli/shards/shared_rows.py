"""The layouts whose rows are shared by several sequences, or pieces of them: `varlen`, `streams`.

`varlen` is for transformers with variable-length attention: `cu_seqlens` marks where each sequence
begins and ends, so that no token attends to another sequence. A batch is one row of at most
`--max-tokens` tokens; with `--batch-size` it is a rectangle of rows of that length, filled up with
padding. With `--align-sequences` padding also follows each sequence up to a multiple.

`streams` is for recurrent networks that carry their state from batch to batch (truncated
backpropagation through time): B parallel streams, of which each batch has the next T steps. Each
stream is a column of [T, B] and a run of sequences one after another, cut every T steps wherever a
sequence happens to be; the batches keep their order. `resets` marks the pieces that begin with a
new state, because their sequence, or their stream, begins there.

In both, sequences follow each other from the first cell of the row that they share; each takes its
length, rounded up to a multiple, and padding fills the rest.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from seqpack_cli.batching.options import LAYOUTS
from seqpack_cli.batching.plan import ShardRows
from seqpack_cli.batching.rows import FROM_BEFORE, round_up
from seqpack_cli.ranges import expand_ranges, to_offsets
from seqpack_cli.shards.arrays import Reader, ShardArrays
from seqpack_cli.shards.layouts import Batch, describe_fields, refuse, within_batches
from seqpack_cli.tokens.kinds import Values

ORIGIN = ("original_indices", "piece_starts")
OF_PIECES = ("row_indices", "resets", "next_ids")
NO_ID = -1  # of a piece that does not go on in the next batch


def place_in_rows(lengths: np.ndarray, row_indices: np.ndarray) -> np.ndarray:
    """Return where each sequence begins in its own row, int64[N].

    Args:
        lengths: cells that each takes.
        row_indices: the row of each, ascending; neighbours with the same one share it.

    >>> place_in_rows(np.array([2, 3, 4]), np.array([0, 0, 1])).tolist()
    [0, 2, 0]
    """
    begins = np.add.accumulate(lengths, dtype=np.int64) - lengths
    firsts = begins.copy()
    firsts[1:] *= row_indices[1:] != row_indices[:-1]  # of the first sequence of a row, else 0
    places: np.ndarray = begins - np.maximum.accumulate(firsts)
    return places


@dataclass(frozen=True, eq=False)
class VarlenBatch(Batch):
    """One row, or several rows of one length, and the sequences in them."""

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
    def starts(self) -> np.ndarray:
        """Where in data each sequence begins, int64[B]."""
        lengths = round_up(self.lengths, self.multiple)
        if self.row_indices is None or self.row_length is None:
            return to_offsets(lengths)[:-1]
        firsts = self.row_indices * self.row_length
        starts: np.ndarray = firsts + place_in_rows(lengths, firsts)
        return starts

    @property
    def has_padding(self) -> bool:
        """Whether there may be padding."""
        return self.row_length is not None or self.multiple > 1

    @property
    def cu_seqlens(self) -> np.ndarray:
        """The running sum of the lengths, int32[B + 1]."""
        return to_offsets(self.lengths).astype(np.int32)

    @property
    def cu_seqlens_padded(self) -> np.ndarray | None:
        """Where each sequence begins in data, and its end, int32[B + 1]; None without padding."""
        if not self.count_padding():
            return None
        return np.append(self.starts, len(self.data)).astype(np.int32)

    @property
    def position_ids(self) -> np.ndarray:
        """The position of each token in its own sequence or piece, from 0; 0 in padding.

        int64, in the shape of the batch.
        """
        if not self.has_padding:
            return expand_ranges(0, self.lengths)
        ends = np.append(self.starts[1:], len(self.data))  # with the padding behind
        num_cells = ends - self.starts
        num_cells[0] = ends[0]  # and with the padding before the first sequence
        positions = np.arange(len(self.data))
        positions -= np.repeat(self.starts, num_cells)
        positions[self._padding] = 0
        return positions.reshape(self.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the ids: [S], or [rows, row_length]."""
        if self.row_length is None:
            return self.data.shape
        return len(self.data) // self.row_length, self.row_length

    def describe_shape(self) -> dict[str, Any]:
        """Return the fields that only this layout has."""
        shape: dict[str, Any] = {"cu_seqlens": self.cu_seqlens.tolist()}
        if self.has_padding:
            padded = self.cu_seqlens_padded
            shape["cu_seqlens_padded"] = None if padded is None else padded.tolist()
        if self.row_indices is not None:
            shape["row_indices"] = self.row_indices.tolist()
        return shape


@dataclass(frozen=True, eq=False)
class StreamsBatch(Batch):
    """The next steps of each stream, and the pieces of sequences in them, stream after stream."""

    data: np.ndarray  # [T x B], step after step
    lengths: np.ndarray  # int64[N]
    original_indices: np.ndarray | None  # int64[N], of the token store
    piece_starts: np.ndarray | None  # int64[N], where in its sequence each piece begins
    row_indices: np.ndarray  # int64[N], ascending: the stream of each piece
    resets: np.ndarray  # int64[N], 0 for a piece that goes on from the batch before, else 1
    next_ids: np.ndarray  # int64[N], the target that follows in the next batch, else NO_ID
    num_streams: int
    columns: dict[str, Values] = field(default_factory=dict)

    __repr__ = describe_fields

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the ids: [T, B]."""
        return len(self.data) // self.num_streams, self.num_streams

    @property
    def num_steps(self) -> int:
        """The number of time steps."""
        return self.shape[0]

    @functools.cached_property
    def first_steps(self) -> np.ndarray:
        """The step of each piece's first token, int64[N]."""
        return place_in_rows(self.lengths, self.row_indices)

    @functools.cached_property
    def starts(self) -> np.ndarray:
        """Where in data each piece begins, int64[N]."""
        starts: np.ndarray = self.first_steps * self.num_streams + self.row_indices
        return starts

    @property
    def stride(self) -> int:
        """The distance in data between two tokens of a piece."""
        return self.num_streams

    @property
    def is_reset(self) -> np.ndarray:
        """Where the state is set to zero before a token, bool[T, B]."""
        marks = np.zeros(len(self.data), bool)
        marks[self.starts] = self.resets
        return marks.reshape(self.shape)

    def find_cuts(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the cells whose next token lies in the next batch, and its id."""
        goes_on = self.next_ids != NO_ID
        return self._lasts[goes_on], self.next_ids[goes_on]

    def take(self, start: int, stop: int) -> StreamsBatch:
        """Return the streams from start to stop, numbered from 0, as the share of one rank."""
        pieces = slice(*np.searchsorted(self.row_indices, [start, stop]).tolist())

        def take(values: Any) -> Any:
            is_per_token = isinstance(values, np.ndarray) and values.ndim == 2  # [T, B]
            return values[:, start:stop] if is_per_token else values[pieces]

        taken = {name: take(getattr(self, name)) for name in ("lengths", *ORIGIN, *OF_PIECES)}
        taken["row_indices"] = taken["row_indices"] - start
        columns = {name: take(values) for name, values in self.columns.items()}
        data = take(self.data.reshape(self.shape)).reshape(-1)
        return StreamsBatch(data, **taken, num_streams=stop - start, columns=columns)

    def describe_shape(self) -> dict[str, Any]:
        """Return the fields that only this layout has."""
        return {name: getattr(self, name).tolist() for name in OF_PIECES}

    @functools.cached_property
    def _padding(self) -> np.ndarray:
        steps = expand_ranges(self.first_steps, self.lengths)
        mask = np.ones(self.shape, bool)
        mask[steps, np.repeat(self.row_indices, self.lengths)] = False
        return np.flatnonzero(mask)


class VarlenArrays(ShardArrays):
    """Row after row, sequence after sequence."""

    rules = LAYOUTS["varlen"]
    all_names: ClassVar[tuple[str, ...]] = ("lengths", *ORIGIN, "row_indices", "data")

    def make_batch(self, arrays: dict[str, Any]) -> Batch:
        """Make a batch from its flat arrays."""
        length = None if self.geometry.num_rows is None else self.geometry.row_length
        return VarlenBatch(**arrays, row_length=length, multiple=self.geometry.multiple)

    def find_starts(self, rows: np.ndarray) -> np.ndarray:
        """Return where in `data` each of some sequences begins, int64[N]."""
        lengths, firsts = self._rounded, self._find_firsts()
        starts: np.ndarray = (firsts + place_in_rows(lengths, firsts))[rows]
        return starts

    def check_rows(self) -> None:
        """Raise ValueError unless the sequences fill their rows, or fit into them."""
        super().check_rows()
        tensors, lengths, num_rows = self.tensors, self.tensors["lengths"], self.geometry.num_rows
        sizes, offsets = np.diff(tensors["data_offsets"]), tensors["sequence_offsets"]
        sizes_of_rows = sizes.repeat(self.num_rows)
        refuse(  # longer ones could make the sums wrap around
            lengths > sizes_of_rows,
            lambda row: f"row {row} has {lengths[row]} ids, data has {sizes_of_rows[row]} cells",
        )
        lengths = self._rounded
        if num_rows is None:
            sums = np.add.reduceat(lengths, offsets[:-1])
            refuse(
                sums != sizes,
                lambda it: f"lengths take {sums[it]} cells, data has {sizes[it]}",
            )
            return
        row_length = self.geometry.row_length
        refuse(
            (sizes % row_length != 0) | (sizes > num_rows * row_length),
            lambda it: (
                f"data has {sizes[it]} cells, expected up to {num_rows} rows of {row_length}"
            ),
        )
        rows, most = tensors["row_indices"], sizes_of_rows // row_length
        wrong = (rows < 0) | (rows >= most)
        wrong[1:] |= within_batches(rows[1:] < rows[:-1], offsets)
        refuse(
            wrong,
            lambda it: (
                f"row_indices[{it}] is {rows[it]}, expected ascending numbers below {most[it]}"
            ),
        )
        places = place_in_rows(lengths, self._find_firsts())
        refuse(
            places + lengths > row_length,
            lambda it: (
                f"row {rows[it]}: its sequences take more than the {row_length} cells of a row"
            ),
        )

    @property
    def _rounded(self) -> np.ndarray:
        """The cells that each sequence takes, int64[N]."""
        return round_up(self.tensors["lengths"], self.geometry.multiple)

    def _find_firsts(self) -> np.ndarray:
        """Return the first cell of the row that each sequence lies in, int64[N]."""
        firsts = self.tensors["data_offsets"][:-1].repeat(self.num_rows)
        if self.geometry.num_rows is not None:
            firsts += self.tensors["row_indices"] * self.geometry.row_length
        return firsts


class StreamsArrays(VarlenArrays):
    """Step after step: rectangles of one row per stream, all of one shape, turned on their side.

    `find_starts` returns places in the rectangles before they are turned.
    """

    rules = LAYOUTS["streams"]
    all_names = ("lengths", *ORIGIN, *OF_PIECES, "data")
    is_by_steps = True

    def make_batch(self, arrays: dict[str, Any]) -> Batch:
        """Make a batch from its flat arrays."""
        return StreamsBatch(**arrays, num_streams=self._shape[0])

    def make_arrays(self, rows: ShardRows) -> dict[str, np.ndarray]:
        """Make `resets`, which mark the pieces that begin with a new state."""
        assert rows.continues is not None  # noqa: S101 - planned as streams
        return {"resets": (rows.continues & FROM_BEFORE) == 0}

    def iter_data(self, read: Reader, dtype: str, fill: int) -> Iterator[np.ndarray]:
        """Yield the cells of all batches."""
        for cells in super().iter_data(read, dtype, fill):
            for batch in cells.reshape(-1, *self._shape):
                yield np.ascontiguousarray(batch.T).reshape(-1)

    def find_cells(self, rows: np.ndarray) -> np.ndarray:
        """Return where the tokens of pieces lie in `data`, piece after piece."""
        num_streams, num_steps = self._shape
        rows_before, steps = np.divmod(super().find_cells(rows), num_steps)
        batches, streams = np.divmod(rows_before, num_streams)
        cells: np.ndarray = (batches * num_steps + steps) * num_streams + streams
        return cells

    def mask_tokens(self) -> np.ndarray:
        """Return the mask of tokens in `data`."""
        return super().mask_tokens().reshape(-1, *self._shape).swapaxes(1, 2).reshape(-1)

    def check_rows(self) -> None:
        """Raise ValueError unless pieces fit their streams and say how they go on."""
        tensors, (num_streams, num_steps) = self.tensors, self._shape
        sizes = np.diff(tensors["data_offsets"])
        refuse(
            sizes != num_streams * num_steps,
            lambda it: (
                f"data has {sizes[it]} cells, expected {num_steps} steps of {num_streams} streams"
            ),
        )
        super().check_rows()
        resets = tensors["resets"]
        refuse(
            (resets != 0) & (resets != 1),
            lambda it: f"resets[{it}] is {resets[it]}, expected 0 or 1",
        )

    def check(self, *, max_id: int, cells: bool = True) -> None:
        """Raise ValueError about the first rule that the batches break."""
        super().check(max_id=max_id, cells=cells)
        next_ids = self.tensors["next_ids"]
        refuse(
            (next_ids < NO_ID) | (next_ids > max_id),
            lambda it: (
                f"next_ids[{it}] is {next_ids[it]}, expected {NO_ID} or ids from 0 to {max_id}"
            ),
        )

    @property
    def _shape(self) -> tuple[int, int]:
        """The number of streams and steps of every batch."""
        return self.geometry.num_rows or 1, self.geometry.row_length


def count_streams(manifest: Mapping[str, Any]) -> int | None:
    """Return the number of streams of shards; None if their batches do not carry a state."""
    if not LAYOUTS[manifest["layout"]].carries_state:
        return None
    num_streams: int = manifest["options"]["batch_size"]
    return num_streams
