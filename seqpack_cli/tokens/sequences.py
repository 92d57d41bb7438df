"""Turn encoded documents into sequences: add special tokens, cut long documents, count both.

Pure functions on flat arrays. A document without tokens gets no special tokens and no sequence, but
keeps its number. Columns with an entry per token are cut as the ids are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from seqpack_cli.tokens.affixes import Affixes
from seqpack_cli.tokens.encoders.encoded_texts import EncodedTexts


class TokenColumn(NamedTuple):
    """A value for each encoded token."""

    values: np.ndarray  # [S]
    fill: int  # of the special tokens that are added


NO_COLUMNS: Mapping[str, TokenColumn] = MappingProxyType({})


@dataclass(frozen=True)
class DocumentSequences:
    """The sequences of some documents, back to back, and counts of added and removed tokens."""

    ids: np.ndarray  # [S]
    lengths: np.ndarray  # int64, one per sequence, none 0
    num_sequences: np.ndarray  # int64, one per document
    columns: Mapping[str, np.ndarray]  # by name, each [S]
    num_special_tokens: int
    num_truncated_tokens: int
    num_dropped_tokens: int
    num_dropped_documents: int


class TooLongError(Exception):
    """A document is longer than max_length, and overflow is "error"."""

    def __init__(self, document: int, length: int) -> None:
        super().__init__(document, length)
        self.document = document
        self.length = length


def make_sequences(
    encoded: EncodedTexts,
    *,
    affixes: Affixes,
    max_length: int | None = None,
    overflow: str = "split",
    columns: Mapping[str, TokenColumn] = NO_COLUMNS,
) -> DocumentSequences:
    """Turn encoded documents into sequences of at most max_length tokens.

    Args:
        columns: by name, what stands beside each encoded token.
        overflow: for a document that is longer, affixes included: "split" cuts all its tokens into
            pieces, "truncate" shortens the text and keeps the affixes, "drop" drops it, "error"
            raises.

    Raises:
        TooLongError: a document is too long and overflow is "error".

    >>> encoded = EncodedTexts(np.array([5, 6, 7, 8]), np.array([3, 0, 1]))
    >>> made = make_sequences(encoded, affixes=Affixes((1,), (2,)), max_length=4)
    >>> made.ids.tolist(), made.lengths.tolist(), made.num_sequences.tolist()
    ([1, 5, 6, 7, 2, 1, 8, 2], [4, 1, 3], [2, 0, 1])
    """
    kept = _find_kept(encoded.lengths, len(affixes), max_length, overflow)
    num_removed = int((encoded.lengths - kept).sum())
    is_dropping = overflow == "drop"
    ids, *values = (
        _shorten(array, encoded.lengths, kept)
        for array in (encoded.ids, *(column.values for column in columns.values()))
    )
    whole = add_affixes(EncodedTexts(ids, kept), affixes)
    lengths, num_sequences = _split_lengths(whole.lengths, max_length)
    return DocumentSequences(
        ids=whole.ids,
        lengths=lengths,
        num_sequences=num_sequences,
        columns={
            name: _surround(array, kept, affixes, column.fill)
            for (name, column), array in zip(columns.items(), values, strict=True)
        },
        num_special_tokens=len(whole.ids) - len(ids),
        num_truncated_tokens=0 if is_dropping else num_removed,
        num_dropped_tokens=num_removed if is_dropping else 0,
        num_dropped_documents=int((kept < encoded.lengths).sum()) if is_dropping else 0,
    )


def _find_kept(
    lengths: np.ndarray, num_affixes: int, max_length: int | None, overflow: str
) -> np.ndarray:
    """Return how many tokens of each document stay."""
    if max_length is None or overflow == "split":
        return lengths
    if overflow == "truncate":
        limit = np.int64(max(0, max_length - num_affixes))
        shortened: np.ndarray = np.minimum(lengths, limit)
        return shortened
    full = lengths + num_affixes * (lengths > 0)
    too_long = full > max_length
    if overflow == "error" and too_long.any():
        first = int(too_long.argmax())
        raise TooLongError(first, int(full[first]))
    return np.where(too_long, 0, lengths)


def add_affixes(encoded: EncodedTexts, affixes: Affixes) -> EncodedTexts:
    """Add the affixes to every document that has a token."""
    if not len(affixes):
        return encoded
    starts, ends, is_text = _find_places(encoded.lengths, affixes)
    dtype = np.promote_types(encoded.ids.dtype, np.uint32)
    ids = np.empty(len(is_text), dtype)
    for index, token in enumerate(affixes.prefix):
        ids[starts + index] = token
    for index, token in enumerate(reversed(affixes.suffix), 1):
        ids[ends - index] = token
    ids[is_text] = encoded.ids
    return EncodedTexts(ids, encoded.lengths + len(affixes) * (encoded.lengths > 0))


def _surround(values: np.ndarray, lengths: np.ndarray, affixes: Affixes, fill: int) -> np.ndarray:
    """Add entries for the affixes to the values of all tokens."""
    if not len(affixes):
        return values
    _, _, is_text = _find_places(lengths, affixes)
    surrounded = np.full(len(is_text), fill, values.dtype)
    surrounded[is_text] = values
    return surrounded


def _find_places(
    lengths: np.ndarray, affixes: Affixes
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return where each document with a token begins and ends, and which tokens are text."""
    alive = lengths[lengths > 0] + len(affixes)
    ends = np.cumsum(alive)
    starts = ends - alive
    is_text = np.ones(int(alive.sum()), bool)
    for index in range(len(affixes.prefix)):
        is_text[starts + index] = False
    for index in range(len(affixes.suffix)):
        is_text[ends - 1 - index] = False
    return starts, ends, is_text


def _shorten(array: np.ndarray, lengths: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Keep the first kept[i] of the lengths[i] tokens of each document."""
    if np.array_equal(kept, lengths):
        return array
    starts = np.cumsum(lengths) - lengths
    place = np.arange(len(array)) - np.repeat(starts, lengths)
    shortened: np.ndarray = array[place < np.repeat(kept, lengths)]
    return shortened


def _split_lengths(lengths: np.ndarray, max_length: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Split lengths into pieces of max_length and a rest; return them and the number of each."""
    if max_length is None:
        return lengths[lengths > 0], (lengths > 0).astype(np.int64)
    num_pieces = -(-lengths // max_length)
    pieces = np.full(int(num_pieces.sum()), max_length, np.int64)
    last = np.cumsum(num_pieces)[num_pieces > 0] - 1
    pieces[last] = (lengths - (num_pieces - 1) * max_length)[num_pieces > 0]
    return pieces, num_pieces
