"""The sequences of one batch, as StoreDataset returns them and a collate function takes them.

They are stored one after another in one array, in the store's dtype, and become tensors only when
one is accessed: a batch is laid out without making 64 tensors and joining them again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, overload

import numpy as np
import torch

from seqpack_cli.ranges import copy_ranges


class TokenSequence(NamedTuple):
    """The ids of a sequence or of a piece of it: an item of StoreDataset."""

    ids: torch.Tensor  # int64[length]
    original_index: int


class TokenSequences(Sequence[TokenSequence]):
    """Sequences read together; an item is a copy."""

    def __init__(self, ids: np.ndarray, lengths: np.ndarray, original_indices: np.ndarray) -> None:
        self.ids = ids  # [S], one after another
        self.lengths = lengths  # int64[B]
        self.original_indices = original_indices  # int64[B]

    @classmethod
    def join(cls, sequences: Sequence[TokenSequence]) -> TokenSequences:
        """Put sequences one after another in one array."""
        if isinstance(sequences, TokenSequences):
            return sequences
        try:
            rows = [sequence.ids for sequence in sequences]
            indices = np.array([sequence.original_index for sequence in sequences], np.int64)
        except AttributeError as error:
            kinds = " and ".join(sorted({type(sequence).__name__ for sequence in sequences}))
            raise TypeError(f"sequences are {kinds}, expected TokenSequence") from error
        lengths = np.array([row.numel() for row in rows], np.int64)
        ids = torch.cat(rows).numpy() if rows else np.empty(0, np.int64)
        if ids.dtype.kind not in "iu":
            raise TypeError(f"the ids are {ids.dtype}, expected integers")
        return cls(ids, lengths, indices)

    def longest_first(self) -> TokenSequences:
        """Sort by length, equal ones as they come."""
        if not (self.lengths[1:] > self.lengths[:-1]).any():
            return self
        return self.take(self.find_order())

    def find_order(self) -> np.ndarray:
        """Return the rows by falling length, equal ones as they come, int64[B]."""
        return np.argsort(-self.lengths, kind="stable")

    def take(self, order: np.ndarray) -> TokenSequences:
        """Return the sequences in another order."""
        lengths, starts = self.lengths[order], self._starts()[order]
        ids = np.empty_like(self.ids)
        copy_ranges(self.ids, starts, ids, np.cumsum(lengths) - lengths, lengths)
        return TokenSequences(ids, lengths, self.original_indices[order])

    def __repr__(self) -> str:
        return f"TokenSequences(num_sequences={len(self)}, num_tokens={len(self.ids)})"

    def __len__(self) -> int:
        return len(self.lengths)

    @overload
    def __getitem__(self, index: int) -> TokenSequence: ...

    @overload
    def __getitem__(self, index: slice) -> list[TokenSequence]: ...

    def __getitem__(self, index: int | slice) -> TokenSequence | list[TokenSequence]:
        if isinstance(index, slice):
            return [self[row] for row in range(*index.indices(len(self)))]
        start = int(self._starts()[index])
        ids = self.ids[start : start + int(self.lengths[index])].astype(np.int64)
        return TokenSequence(torch.from_numpy(ids), int(self.original_indices[index]))

    def __iter__(self) -> Iterator[TokenSequence]:
        rows = torch.split_with_sizes(
            torch.from_numpy(self.ids.astype(np.int64)), self.lengths.tolist()
        )
        return map(TokenSequence, rows, self.original_indices.tolist())

    def _starts(self) -> np.ndarray:
        starts: np.ndarray = np.cumsum(self.lengths) - self.lengths
        return starts
