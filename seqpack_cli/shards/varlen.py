"""The `varlen` layout: several sequences concatenated in one row.

For transformers with variable-length attention: `cu_seqlens` marks where each sequence begins and
ends, so that no token attends to another sequence. A row has at most `--max-tokens` tokens.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from seqpack_cli.batching.shard_rows import ShardRows
from seqpack_cli.ranges import copy_ranges, expand_ranges, to_offsets
from seqpack_cli.shards.layouts import Layout, RowSource, Tensors, describe_fields
from seqpack_cli.tokens.columns.kind import Values


@dataclass(frozen=True, eq=False)
class VarlenBatch:
    """One row and the sequences in it."""

    num_filler_rows: ClassVar[int] = 0

    data: np.ndarray  # [S]
    lengths: np.ndarray  # int64[B]
    original_indices: np.ndarray | None = None  # int64[B], of the token store
    piece_starts: np.ndarray | None = None  # int64[B], above 0 for later pieces of a split sequence
    columns: dict[str, Values] = field(default_factory=dict)

    __repr__ = describe_fields

    @functools.cached_property
    def _offsets(self) -> np.ndarray:
        return to_offsets(self.lengths)

    @property
    def cu_seqlens(self) -> np.ndarray:
        """Where each sequence begins, and the end of the last one, int32[B + 1]."""
        return self._offsets.astype(np.int32)

    @property
    def position_ids(self) -> np.ndarray:
        """The position of each token in its own sequence or piece, from 0, int64[S]."""
        return expand_ranges(np.zeros(len(self.lengths), np.int64), self.lengths)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of data."""
        return self.data.shape

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
        return np.split(self.data, np.cumsum(self.lengths)[:-1])

    def row(self, index: int) -> np.ndarray:
        """Return one sequence; the batch must have been checked."""
        return self.data[self._offsets[index] : self._offsets[index + 1]]

    def find_cells(self, row: int) -> np.ndarray:
        """Return where the tokens of a sequence lie in data, int64[length]."""
        return np.arange(self._offsets[row], self._offsets[row + 1])

    def follow(self, values: np.ndarray, fill: int) -> np.ndarray:
        """Return for each token the value at the next one of its sequence, fill for the last."""
        followed = np.full(len(values), fill, np.int64)
        followed[:-1] = values[1:]
        followed[self._offsets[1:] - 1] = fill
        return followed

    def without_filler(self) -> VarlenBatch:
        """Return the batch: it has no filler."""
        return self

    def describe_shape(self) -> dict[str, Any]:
        """Return the fields that only this layout has."""
        return {"cu_seqlens": self.cu_seqlens.tolist()}

    def check(self, *, pad_id: int) -> None:
        """Raise ValueError if lengths and data contradict each other."""
        if int(self.lengths.min()) < 1:
            row = int(self.lengths.argmin())
            raise ValueError(f"expected no empty sequence, found one in row {row}")
        if int(self.lengths.max()) > len(self.data) or int(self.lengths.sum()) != len(self.data):
            raise ValueError(f"lengths do not add up to the {len(self.data)} ids of data")

    def has_right_padding(self, pad_id: int, values: np.ndarray | None = None) -> bool:
        """Return True: there is no padding."""
        return True

    def count_padding(self) -> int:
        """Return 0: there is no padding."""
        return 0


@dataclass(frozen=True)
class VarlenLayout:
    """How varlen rows are laid out in a shard: sequence after sequence."""

    pad_id: int = 0
    padding_side: str = "right"
    arrays: ClassVar[tuple[str, ...]] = ("lengths", "original_indices", "piece_starts", "data")

    def make_batch(self, arrays: dict[str, np.ndarray]) -> VarlenBatch:
        """Make a batch from its flat arrays, unchecked."""
        return VarlenBatch(
            arrays["data"], arrays["lengths"], arrays["original_indices"], arrays["piece_starts"]
        )

    def make_arrays(self, rows: ShardRows) -> dict[str, np.ndarray]:
        """Make `piece_starts`, where in its sequence each piece begins."""
        starts = rows.piece_starts
        return {"piece_starts": np.zeros(len(rows.lengths), np.int64) if starts is None else starts}

    def iter_data(self, tensors: Tensors, source: RowSource) -> Iterator[np.ndarray]:
        """Yield the ids of all sequences, one after another."""
        offsets = to_offsets(tensors["lengths"])
        cells = np.empty(int(offsets[-1]), source.dtype)
        source.fill(cells, offsets[:-1])
        yield cells

    def find_cells(self, tensors: Tensors, rows: np.ndarray) -> np.ndarray:
        """Return where the tokens of sequences lie in `data`, sequence after sequence."""
        return expand_ranges(to_offsets(tensors["lengths"])[rows], tensors["lengths"][rows])

    def mask_tokens(self, tensors: Tensors) -> np.ndarray:
        """Return a mask that is True throughout: there is no padding."""
        return np.ones(len(tensors["data"]), bool)

    def copy_rows(
        self, tensors: Tensors, rows: np.ndarray, target: np.ndarray, target_starts: np.ndarray
    ) -> None:
        """Copy sequences, each to its own place in target."""
        lengths = tensors["lengths"]
        starts = to_offsets(lengths)[rows]
        copy_ranges(tensors["data"], starts, target, target_starts, lengths[rows])

    def find_wrong(self, tensors: Tensors, wrong: np.ndarray, *, padding: bool) -> np.ndarray:
        """Return `wrong`: the checks that all layouts share are enough."""
        return wrong


LAYOUT: type[Layout] = VarlenLayout
