"""The `varlen` layout: several sequences concatenated in one row, or in several rows of one length.

For transformers with variable-length attention: `cu_seqlens` marks where each sequence begins and
ends, so that no token attends to another sequence. A batch is one row of at most `--max-tokens`
tokens; with `--batch-size` it is a rectangle of rows of that length, filled up with padding. With
`--align-sequences` padding also follows each sequence up to a multiple.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from seqpack_cli.batching.rows import round_up
from seqpack_cli.ranges import expand_ranges, to_offsets
from seqpack_cli.shards.layouts import NO_CUTS, describe_fields
from seqpack_cli.shards.row_checks import check_not_empty, check_padding, check_rows
from seqpack_cli.shards.row_places import find_padding, mark_tokens, place_in_rows
from seqpack_cli.tokens.kinds import Values


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
        if not self.has_gaps:
            return expand_ranges(np.zeros(len(self.lengths), np.int64), self.lengths)
        starts, ends = self.starts, np.empty_like(self.starts)  # ends with the padding behind
        ends[:-1], ends[-1] = starts[1:], len(self.data)
        num_cells = ends - starts
        num_cells[0] = ends[0]  # and with the padding before the first sequence
        positions = np.arange(len(self.data))
        positions -= np.repeat(starts, num_cells)
        positions[self._padding] = 0
        return positions.reshape(self.shape)

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
        followed = np.empty(len(self.data), np.int64)
        followed[:-1] = values.reshape(-1)[1:]
        followed[self.starts + self.lengths - 1] = fill
        if self.has_gaps:
            followed[self._padding] = fill
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
        check_not_empty(self.lengths)
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
        mask = mark_tokens(len(self.data), self.starts, self.lengths)
        check_padding(self.data, mask, pad_id)

    def has_right_padding(self, pad_id: int, values: np.ndarray | None = None) -> bool:
        """Return whether all padding of the ids, or of other values, is pad_id."""
        if not self.has_gaps:
            return True
        cells = self.data if values is None else values.reshape(-1)
        return bool((cells[self._padding] == pad_id).all())

    def count_padding(self) -> int:
        """Count the padding cells."""
        return len(self.data) - int(self._offsets[-1])

    @functools.cached_property
    def _padding(self) -> np.ndarray:
        return find_padding(len(self.data), self.starts, self.lengths)
