"""Turn encoded documents into sequences: add special tokens, cut long documents, count both.

Pure functions on flat arrays. A document without tokens gets no special tokens and no sequence, but
keeps its number. Columns with an entry per token are cut as the ids are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from seqpack_cli.ranges import expand_ranges, to_offsets
from seqpack_cli.tokens.tokenizer import Affixes


@dataclass(frozen=True)
class EncodedTexts:
    """The ids of some texts, back to back: the result of every encoder."""

    ids: np.ndarray  # [S], any integer dtype that holds them
    lengths: np.ndarray  # int64[number of texts]


class TokenColumn(NamedTuple):
    """A value for each encoded token."""

    values: np.ndarray  # [S]
    fill: int  # of the special tokens that are added in front
    last_fill: int  # of those that are added at the end of a text that is not truncated
    of_overlap: int | None = None  # of tokens that a piece repeats; None is their own value


NO_COLUMNS: Mapping[str, TokenColumn] = MappingProxyType({})


@dataclass(frozen=True)
class DocumentSequences:
    """The sequences of some documents, back to back, and counts of added and removed tokens."""

    ids: np.ndarray  # [S]
    lengths: np.ndarray  # int64, one per sequence, none 0
    num_sequences: np.ndarray  # int64, one per document
    overlaps: np.ndarray  # int64, one per sequence: how many tokens it repeats of the one before
    columns: Mapping[str, np.ndarray]  # by name, each [S]
    num_special_tokens: int = 0
    num_truncated_tokens: int = 0
    num_dropped_tokens: int = 0
    num_dropped_documents: int = 0


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
    overlap: int = 0,
    columns: Mapping[str, TokenColumn] = NO_COLUMNS,
) -> DocumentSequences:
    """Turn encoded documents into sequences of at most max_length tokens.

    Args:
        columns: by name, what stands beside each encoded token.
        overflow: for a document that is longer, affixes included: "split" cuts all its tokens into
            pieces, "truncate" shortens the text and keeps the affixes, "drop" drops it, "error"
            raises.
        overlap: tokens with which a later piece repeats the end of the one before, less than
            max_length.

    Raises:
        TooLongError: a document is too long and overflow is "error".

    >>> encoded = EncodedTexts(np.array([5, 6, 7, 8]), np.array([3, 0, 1]))
    >>> made = make_sequences(encoded, affixes=Affixes((1,), (2,)), max_length=4)
    >>> made.ids.tolist(), made.lengths.tolist(), made.num_sequences.tolist()
    ([1, 5, 6, 7, 2, 1, 8, 2], [4, 1, 3], [2, 0, 1])
    """
    kept = _find_kept(encoded.lengths, len(affixes), max_length, overflow)
    is_whole = (kept == encoded.lengths)[kept > 0]
    num_removed = int((encoded.lengths - kept).sum())
    is_dropping = overflow == "drop"
    ids = _shorten(encoded.ids, encoded.lengths, kept)
    wide = ids.astype(np.promote_types(ids.dtype, np.uint32), copy=False) if len(affixes) else ids
    whole = _surround(wide, kept, affixes.prefix, affixes.suffix)
    pieces = _cut(kept + len(affixes) * (kept > 0), max_length, overlap)
    cut = {}
    for name, column in columns.items():
        values = _shorten(column.values, encoded.lengths, kept)
        firsts = [column.fill] * len(affixes.prefix)
        lasts = [np.where(is_whole, column.last_fill, column.fill)] * len(affixes.suffix)
        cut[name] = pieces.take(_surround(values, kept, firsts, lasts), column.of_overlap)
    return DocumentSequences(
        ids=pieces.take(whole),
        lengths=pieces.lengths,
        num_sequences=pieces.num_pieces,
        overlaps=pieces.overlaps,
        columns=cut,
        num_special_tokens=len(whole) - len(ids),
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


def _surround(
    values: np.ndarray,
    lengths: np.ndarray,
    firsts: Sequence[int],
    lasts: Sequence[int | np.ndarray],
) -> np.ndarray:
    """Add values before and after those of every document that has a token.

    Args:
        firsts, lasts: what is added, the same for each such document, or a value for each.
    """
    if not firsts and not lasts:
        return values
    alive = lengths[lengths > 0] + len(firsts) + len(lasts)
    ends = np.cumsum(alive)
    starts = ends - alive
    surrounded = np.empty(int(alive.sum()), values.dtype)
    is_text = np.ones(len(surrounded), bool)
    places = [starts + index for index in range(len(firsts))]
    places += [ends - index for index in range(len(lasts), 0, -1)]
    for place, value in zip(places, (*firsts, *lasts), strict=True):
        surrounded[place], is_text[place] = value, False
    surrounded[is_text] = values
    return surrounded


def _shorten(array: np.ndarray, lengths: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Keep the first kept[i] of the lengths[i] tokens of each document."""
    if np.array_equal(kept, lengths):
        return array
    starts = np.cumsum(lengths) - lengths
    place = np.arange(len(array)) - np.repeat(starts, lengths)
    shortened: np.ndarray = array[place < np.repeat(kept, lengths)]
    return shortened


class _Pieces(NamedTuple):
    """How documents are cut."""

    lengths: np.ndarray  # int64, one per piece
    num_pieces: np.ndarray  # int64, one per document
    overlaps: np.ndarray  # int64, one per piece: tokens that it repeats

    def take(self, values: np.ndarray, of_overlap: int | None = None) -> np.ndarray:
        """Return the values of all pieces, from those of all documents.

        Args:
            of_overlap: what tokens that are repeated have instead of their own value.
        """
        if not self.overlaps.any():
            return values
        begins = np.cumsum(self.lengths - self.overlaps) - self.lengths
        taken: np.ndarray = values[expand_ranges(begins, self.lengths)]
        if of_overlap is not None:
            places = to_offsets(self.lengths)[:-1]
            taken[expand_ranges(places, self.overlaps)] = of_overlap
        return taken


def _cut(lengths: np.ndarray, max_length: int | None, overlap: int) -> _Pieces:
    """Cut documents into pieces of max_length and a rest; each but the first repeats some tokens.

    >>> _cut(np.array([7, 3]), max_length=3, overlap=1).lengths.tolist()
    [3, 3, 3, 3]
    """
    alive = lengths > 0
    if max_length is None:
        return _Pieces(lengths[alive], alive.astype(np.int64), np.zeros(alive.sum(), np.int64))
    step = max_length - overlap
    num_later = np.maximum(-(-(lengths - max_length) // step), 0)
    num_pieces = num_later + alive
    pieces = np.full(int(num_pieces.sum()), max_length, np.int64)
    last = np.cumsum(num_pieces)[alive] - 1
    pieces[last] = (lengths - num_later * step)[alive]
    overlaps = np.full(len(pieces), overlap, np.int64)
    overlaps[last - num_later[alive]] = 0
    return _Pieces(pieces, num_pieces, overlaps)
