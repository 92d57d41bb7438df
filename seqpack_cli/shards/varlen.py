"""The `varlen` layout: several sequences in one row, one behind the other, nothing between them.

For transformers with variable-length attention: `cu_seqlens` says where each sequence begins and
ends, so that none can look into another. A row holds at most as many tokens as pack was told.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from seqpack_cli.ranges import expand_ranges, to_offsets


@dataclass(frozen=True)
class VarlenBatch:
    """One row and the sequences in it."""

    ARRAYS: ClassVar[tuple[str, ...]] = ("lengths", "original_indices", "piece_starts", "data")

    data: np.ndarray  # [S]
    lengths: np.ndarray  # int64[B]
    original_indices: np.ndarray | None = None  # int64[B], of the token store
    piece_starts: np.ndarray | None = None  # int64[B], above 0 for later pieces of a split sequence

    @functools.cached_property
    def _offsets(self) -> np.ndarray:
        return to_offsets(self.lengths)

    @property
    def cu_seqlens(self) -> np.ndarray:
        """Where each sequence begins, and the end, int32[B + 1]."""
        return self._offsets.astype(np.int32)

    @property
    def position_ids(self) -> np.ndarray:
        """The position of each token in its own sequence or piece, from 0, int64[S]."""
        return expand_ranges(np.zeros(len(self.lengths), np.int64), self.lengths)

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], *, padding_side: str) -> VarlenBatch:
        """Make a batch of the flat arrays of ARRAYS, unchecked."""
        del padding_side
        return cls(**arrays)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Give the flat arrays of ARRAYS."""
        return {name: getattr(self, name) for name in self.ARRAYS}

    def rows(self) -> list[np.ndarray]:
        """Give the sequences in their order."""
        return np.split(self.data, np.cumsum(self.lengths)[:-1])

    def row(self, index: int) -> np.ndarray:
        """Give one sequence of a batch that was checked."""
        return self.data[self._offsets[index] : self._offsets[index + 1]]

    def check(self, *, pad_id: int) -> None:
        """Raise ValueError unless lengths and data belong together."""
        del pad_id
        if int(self.lengths.min()) < 1:
            row = int(self.lengths.argmin())
            raise ValueError(f"expected no empty sequence, found one in row {row}")
        if int(self.lengths.max()) > len(self.data) or int(self.lengths.sum()) != len(self.data):
            raise ValueError(f"lengths do not add up to the {len(self.data)} ids of data")

    def count_padding(self) -> int:
        """Count the cells that hold no token."""
        return 0
