"""Turn encoded documents into sequences: add special tokens, cut long documents, count both.

Pure functions on flat arrays. A document without tokens gets no special tokens and no sequence, but
keeps its number.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from seqpack_cli.tokens.affixes import Affixes
from seqpack_cli.tokens.encoders.encoded_texts import EncodedTexts


@dataclass(frozen=True)
class DocumentSequences:
    """The sequences of some documents, back to back, and counts of added and removed tokens."""

    ids: np.ndarray  # [S]
    lengths: np.ndarray  # int64, one per sequence, none 0
    num_sequences: np.ndarray  # int64, one per document
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
) -> DocumentSequences:
    """Turn encoded documents into sequences of at most max_length tokens.

    Args:
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
    num_truncated = num_dropped = num_dropped_documents = 0
    if max_length is not None and overflow != "split":
        full = encoded.lengths + len(affixes) * (encoded.lengths > 0)
        too_long = full > max_length
        if overflow == "error" and too_long.any():
            first = int(too_long.argmax())
            raise TooLongError(first, int(full[first]))
        if overflow == "drop":
            num_dropped = int(encoded.lengths[too_long].sum())
            num_dropped_documents = int(too_long.sum())
            encoded = _shorten(encoded, np.where(too_long, 0, encoded.lengths))
        if overflow == "truncate":
            limit = max(0, max_length - len(affixes))
            kept = np.minimum(encoded.lengths, limit)
            num_truncated = int((encoded.lengths - kept).sum())
            encoded = _shorten(encoded, kept)
    whole = add_affixes(encoded, affixes)
    lengths, num_sequences = _split_lengths(whole.lengths, max_length)
    return DocumentSequences(
        ids=whole.ids,
        lengths=lengths,
        num_sequences=num_sequences,
        num_special_tokens=len(whole.ids) - len(encoded.ids),
        num_truncated_tokens=num_truncated,
        num_dropped_tokens=num_dropped,
        num_dropped_documents=num_dropped_documents,
    )


def add_affixes(encoded: EncodedTexts, affixes: Affixes) -> EncodedTexts:
    """Add the affixes to every document that has a token."""
    if not len(affixes):
        return encoded
    lengths = encoded.lengths + len(affixes) * (encoded.lengths > 0)
    alive = encoded.lengths > 0
    ends = np.cumsum(lengths)[alive]
    starts = ends - lengths[alive]
    dtype = np.promote_types(encoded.ids.dtype, np.uint32)
    ids = np.empty(int(lengths.sum()), dtype)
    is_text = np.ones(len(ids), bool)
    for index, token in enumerate(affixes.prefix):
        ids[starts + index] = token
        is_text[starts + index] = False
    for index, token in enumerate(reversed(affixes.suffix), 1):
        ids[ends - index] = token
        is_text[ends - index] = False
    ids[is_text] = encoded.ids
    return EncodedTexts(ids, lengths)


def _shorten(encoded: EncodedTexts, lengths: np.ndarray) -> EncodedTexts:
    """Keep the first lengths[i] ids of each document."""
    if np.array_equal(lengths, encoded.lengths):
        return encoded
    starts = np.cumsum(encoded.lengths) - encoded.lengths
    place = np.arange(len(encoded.ids)) - np.repeat(starts, encoded.lengths)
    return EncodedTexts(encoded.ids[place < np.repeat(lengths, encoded.lengths)], lengths)


def _split_lengths(lengths: np.ndarray, max_length: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Split lengths into pieces of max_length and a rest; return them and the number of each."""
    if max_length is None:
        return lengths[lengths > 0], (lengths > 0).astype(np.int64)
    num_pieces = -(-lengths // max_length)
    pieces = np.full(int(num_pieces.sum()), max_length, np.int64)
    last = np.cumsum(num_pieces)[num_pieces > 0] - 1
    pieces[last] = (lengths - (num_pieces - 1) * max_length)[num_pieces > 0]
    return pieces, num_pieces
