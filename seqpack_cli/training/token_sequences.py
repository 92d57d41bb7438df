"""The sequences of one batch, as StoreDataset returns them and a collate function takes them.

They are stored one after another in one array, in the store's dtype, and become tensors only when
one is accessed: a batch is laid out without making 64 tensors and joining them again. The same
holds for their columns.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple, overload

import numpy as np
import torch

from seqpack_cli.errors import join_items, quote
from seqpack_cli.ranges import copy_ranges, to_offsets
from seqpack_cli.shards.packed import PackedBatch, pack_ids
from seqpack_cli.tokens.kinds import Values
from seqpack_cli.tokens.text_values import TextValues
from seqpack_cli.training.packed_together import PackedTogether, are_packable

IDS = ""  # no column has this name
NO_ROW = -1  # of a sequence whose row collate_varlen chooses


class TokenSequence(NamedTuple):
    """The ids of a sequence or of a piece of it: an item of StoreDataset."""

    ids: torch.Tensor  # int64[length]
    original_index: int
    # by name: the value of the sequence, or int64[length], a value for each token
    columns: Mapping[str, int | float | str | torch.Tensor] = {}
    piece_start: int = 0  # where in its sequence a piece begins
    row_index: int = NO_ROW  # the row of a varlen batch that it lies in


@dataclass(eq=False, repr=False)
class TokenSequences(Sequence[TokenSequence]):
    """Sequences read together; an item is a copy."""

    ids: np.ndarray  # [S], one after another
    lengths: np.ndarray  # int64[B]
    original_indices: np.ndarray  # int64[B]
    piece_starts: np.ndarray  # int64[B]
    row_indices: np.ndarray  # int64[B]
    columns: Mapping[str, Values] = field(default_factory=dict)  # a value per sequence, [B]
    token_columns: Mapping[str, np.ndarray] = field(default_factory=dict)  # per token, [S]
    # packs the ids or a column with those of the batches that were read together
    packed: Callable[[str], PackedBatch] | None = None

    @classmethod
    def join(cls, sequences: Sequence[TokenSequence]) -> TokenSequences:
        """Put sequences one after another in one array."""
        if isinstance(sequences, TokenSequences):
            return sequences
        try:
            rows = [sequence.ids for sequence in sequences]
            indices = np.array([sequence.original_index for sequence in sequences], np.int64)
            columns = [sequence.columns for sequence in sequences]
            starts = np.array([sequence.piece_start for sequence in sequences], np.int64)
            chosen = np.array([sequence.row_index for sequence in sequences], np.int64)
        except AttributeError as error:
            kinds = " and ".join(sorted({type(sequence).__name__ for sequence in sequences}))
            raise TypeError(f"sequences are {kinds}, expected TokenSequence") from error
        lengths = np.array([row.numel() for row in rows], np.int64)
        ids = torch.cat(rows).numpy() if rows else np.empty(0, np.int64)
        if ids.dtype.kind not in "iu":
            raise TypeError(f"the ids are {ids.dtype}, expected integers")
        return cls(ids, lengths, indices, starts, chosen, *_join_columns(columns, lengths))

    def cut(self, batch_offsets: np.ndarray) -> list[TokenSequences]:
        """Return batches of consecutive sequences, as views; they are packed together.

        Args:
            batch_offsets: int64[batches + 1], the first sequence of each.
        """
        cell_offsets = to_offsets(self.lengths)[batch_offsets].tolist()
        together = None
        if are_packable(self.lengths, batch_offsets):
            values = {IDS: self.ids, **self.token_columns}
            together = PackedTogether(values, self.lengths, batch_offsets)
        batches = []
        places = zip(pairwise(batch_offsets.tolist()), pairwise(cell_offsets), strict=True)
        for number, (rows, cells) in enumerate(places):
            some, tokens = slice(*rows), slice(*cells)
            batches.append(
                TokenSequences(
                    self.ids[tokens],
                    self.lengths[some],
                    self.original_indices[some],
                    self.piece_starts[some],
                    self.row_indices[some],
                    {name: each.take(np.arange(*rows)) for name, each in self.columns.items()},
                    {name: each[tokens] for name, each in self.token_columns.items()},
                    None if together is None else functools.partial(together.take, number),
                )
            )
        return batches

    def pack(self, name: str = IDS) -> PackedBatch:
        """Lay out the ids, or a column per token, as torch's PackedSequence; longest first."""
        if self.packed is not None:
            return self.packed(name)
        return pack_ids(self.ids if name == IDS else self.token_columns[name], self.lengths)

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

        def take_tokens(values: np.ndarray) -> np.ndarray:
            taken = np.empty(int(lengths.sum()), values.dtype)
            copy_ranges(values, starts, taken, np.cumsum(lengths) - lengths, lengths)
            return taken

        return TokenSequences(
            take_tokens(self.ids),
            lengths,
            self.original_indices[order],
            self.piece_starts[order],
            self.row_indices[order],
            {name: values.take(order) for name, values in self.columns.items()},
            {name: take_tokens(values) for name, values in self.token_columns.items()},
        )

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
        return next(iter(self.take(np.array([range(len(self))[index]]))))

    def __iter__(self) -> Iterator[TokenSequence]:
        names = [*self.columns, *self.token_columns]
        columns = [values.tolist() for values in self.columns.values()]
        columns += [self._split(values) for values in self.token_columns.values()]
        rows = zip(*columns, strict=True) if columns else [()] * len(self)
        places = (self.original_indices, self.piece_starts, self.row_indices)
        for ids, values, index, start, row in zip(
            self._split(self.ids), rows, *(each.tolist() for each in places), strict=True
        ):
            yield TokenSequence(ids, index, dict(zip(names, values, strict=True)), start, row)

    def _split(self, values: np.ndarray) -> Sequence[torch.Tensor]:
        """Return a tensor of each sequence, of values of all tokens."""
        tokens = torch.from_numpy(values.astype(np.int64))
        parts: Sequence[torch.Tensor] = torch.split_with_sizes(tokens, self.lengths.tolist())
        return parts

    def _starts(self) -> np.ndarray:
        starts: np.ndarray = np.cumsum(self.lengths) - self.lengths
        return starts


def _join_columns(
    columns: Sequence[Mapping[str, Any]], lengths: np.ndarray
) -> tuple[dict[str, Values], dict[str, np.ndarray]]:
    """Join the columns of many sequences: those with a value per sequence, those per token."""
    names = list(columns[0]) if columns else []
    for number, found in enumerate(columns):
        if set(found) != set(names):
            raise ValueError(
                f"sequence {number} has {_spell_names(found)}, sequence 0 has {_spell_names(names)}"
            )
    joined, joined_tokens = {}, {}
    for name in names:
        values = [found[name] for found in columns]
        if all(isinstance(value, torch.Tensor) and value.ndim == 1 for value in values):
            joined_tokens[name] = _join_tokens(name, values, lengths)
        else:
            joined[name] = _join_values(name, values)
    return joined, joined_tokens


def _join_tokens(name: str, values: Sequence[torch.Tensor], lengths: np.ndarray) -> np.ndarray:
    """Concatenate the values of all tokens of a column."""
    for number, (value, length) in enumerate(zip(values, lengths.tolist(), strict=True)):
        if len(value) != length:
            raise ValueError(
                f"sequence {number}: column {quote(name)} has {len(value)} values, "
                f"expected one for each of {length} ids"
            )
    joined: np.ndarray = torch.cat(list(values)).numpy()
    if joined.dtype.kind not in "iu":
        raise TypeError(f"column {quote(name)} has tensors of {joined.dtype}, expected integers")
    return joined


def _join_values(name: str, values: Sequence[Any]) -> Values:
    """Return the values of all sequences of a column as one array, or as texts."""
    if all(isinstance(value, str) for value in values):
        return TextValues.of(values)
    kinds = {type(value) for value in values}
    joined = np.array(values) if kinds.isdisjoint((str, torch.Tensor)) else np.empty(0, object)
    if joined.ndim != 1 or joined.dtype.kind not in "iuf":
        found = join_items(sorted(kind.__name__ for kind in kinds))
        raise TypeError(
            f"column {quote(name)} holds {found}, expected only numbers, only texts, or "
            "a tensor [length] for each sequence"
        )
    return joined.astype(np.float64 if joined.dtype.kind == "f" else np.int64)


def _spell_names(names: Collection[str]) -> str:
    return f"columns {join_items(map(quote, names))}" if names else "no columns"
