"""The `streams` layout: B parallel streams, of which each batch has the next T steps.

For recurrent networks that carry their state from batch to batch (truncated backpropagation through
time). Each stream is a column of [T, B] and a run of sequences one after another, cut every T steps
wherever a sequence happens to be; the batches keep their order. `resets` marks the pieces that
begin with a new state, because their sequence, or their stream, begins there.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from seqpack_cli.shards.layouts import describe_fields
from seqpack_cli.shards.row_checks import check_not_empty, check_padding, check_rows
from seqpack_cli.shards.row_places import (
    mark_tokens,
    place_in_rows,
)
from seqpack_cli.tokens.kinds import Values

NO_ID = -1  # of a piece that does not go on in the next batch


@dataclass(frozen=True, eq=False)
class StreamsBatch:
    """The next steps of each stream, and the pieces of sequences in them, stream after stream."""

    num_filler_rows: ClassVar[int] = 0

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
        if self.count_padding():
            return place_in_rows(self.lengths, self.row_indices)
        begins = np.add.accumulate(self.lengths) - self.lengths
        steps: np.ndarray = begins - self.row_indices * self.num_steps  # all streams are full
        return steps

    @property
    def is_reset(self) -> np.ndarray:
        """Where the state is set to zero before a token, bool[T, B]."""
        marks = np.zeros(len(self.data), bool)
        marks[self.first_steps * self.num_streams + self.row_indices] = self.resets
        return marks.reshape(self.shape)

    def rows(self) -> list[np.ndarray]:
        """Return the pieces in row order."""
        return [self.row(index) for index in range(len(self.lengths))]

    def row(self, index: int) -> np.ndarray:
        """Return one piece; the batch must have been checked."""
        row: np.ndarray = self.data[self.find_cells(index)]
        return row

    def find_cells(self, row: int) -> np.ndarray:
        """Return where the tokens of a piece lie in data, int64[length]."""
        first = int(self.first_steps[row])
        steps = np.arange(first, first + int(self.lengths[row]))
        return steps * self.num_streams + int(self.row_indices[row])

    def follow(self, values: np.ndarray, fill: int) -> np.ndarray:
        """Return for each token the value at the next one of its piece, fill for the last."""
        followed = np.empty(len(self.data), np.int64)
        followed[: -self.num_streams] = values.reshape(-1)[self.num_streams :]
        followed[self._last_steps() * self.num_streams + self.row_indices] = fill
        if self.count_padding():
            followed[~self._mask()] = fill
        return followed.reshape(self.shape)

    def find_cuts(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the cells whose next token lies in the next batch, and its id."""
        goes_on = self.next_ids != NO_ID
        steps, streams = self._last_steps()[goes_on], self.row_indices[goes_on]
        cells: np.ndarray = steps * self.num_streams + streams
        return cells, self.next_ids[goes_on]

    def without_filler(self) -> StreamsBatch:
        """Return the batch: it has no filler."""
        return self

    def describe_shape(self) -> dict[str, Any]:
        """Return the fields that only this layout has."""
        names = ("row_indices", "resets", "next_ids")
        return {"shape": [*self.shape], **{name: getattr(self, name).tolist() for name in names}}

    def check(self, *, pad_id: int) -> None:
        """Raise ValueError if pieces, streams and data contradict each other."""
        check_not_empty(self.lengths)
        check_rows(self.lengths, self.row_indices, self.shape[::-1])
        wrong = find_wrong_links(self.resets, self.next_ids)
        if wrong.any():
            place = int(wrong.argmax())
            found = f"resets[{place}] is {self.resets[place]}, next_ids[{place}] is "
            raise ValueError(
                f"{found}{self.next_ids[place]}, expected 0 or 1, and an id or {NO_ID}"
            )
        check_padding(self.data, self._mask(), pad_id)

    def has_right_padding(self, pad_id: int, values: np.ndarray | None = None) -> bool:
        """Return whether all padding of the ids, or of other values, is pad_id."""
        if not self.count_padding():
            return True
        cells = self.data if values is None else values.reshape(-1)
        return bool((cells[~self._mask()] == pad_id).all())

    def count_padding(self) -> int:
        """Count the padding cells."""
        return len(self.data) - int(self.lengths.sum())

    def _last_steps(self) -> np.ndarray:
        steps: np.ndarray = self.first_steps + self.lengths - 1
        return steps

    def _mask(self) -> np.ndarray:
        """Return the mask of tokens in data."""
        starts = self.row_indices * self.num_steps + self.first_steps
        by_stream = mark_tokens(len(self.data), starts, self.lengths)
        mask: np.ndarray = by_stream.reshape(self.shape[::-1]).T.reshape(-1)
        return mask


def find_wrong_links(resets: np.ndarray, next_ids: np.ndarray) -> np.ndarray:
    """Find pieces whose `resets` or `next_ids` are impossible, whatever the vocabulary, bool[N]."""
    wrong: np.ndarray = ((resets != 0) & (resets != 1)) | (next_ids < NO_ID)
    return wrong
