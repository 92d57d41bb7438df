"""Ids -> their text, cut where tokens end.

No token has a text of its own: a decoder joins bytes to characters, strips and cleans up. So the
beginnings of a run are decoded as well: where the text of k ids is a beginning of the whole text,
the k-th token ends there, else it ends inside a character that the next ones complete. Quadratic
in the ids, 10 ms for the 256 that are split at most; so a very long text is not split at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from seqpack_cli.errors import DataError
from seqpack_cli.tokens.decoder import Decoder

MAX_IDS = 256
MAX_CHARACTERS = 1 << 18  # of the text: its beginnings take 256 times as much


@dataclass(frozen=True)
class TextPiece:
    """The least text between two borders, and the ids that it is made of."""

    text: str
    ids: tuple[int, ...]


def split_at_tokens(decode: Decoder, ids: Sequence[int] | np.ndarray) -> list[TextPiece]:
    """Cut the decoded text of a run of ids where tokens end.

    A character of several tokens is one piece with all their ids, and a token without text belongs
    to the piece before it, or to the first.

    Args:
        ids: of more than MAX_IDS only so many are split, and those left out at the end that have
            no border among them: then the pieces are a beginning. A text above MAX_CHARACTERS is
            one piece, and so is one of a decoder that fails on some beginnings.

    Returns:
        The pieces; their texts joined are the text, their ids joined are `ids`.
    """
    ids = np.asarray(ids, np.int64)
    values = tuple(ids.tolist())
    if not values:
        return []
    (text,) = decode([ids])
    if len(text) > MAX_CHARACTERS:
        return [TextPiece(text, values)]
    counts = range(1, min(len(values), MAX_IDS) + 1)
    try:
        beginnings = decode([ids[:count] for count in counts])
    except DataError:  # `Strip` does where it finds too little
        return [TextPiece(text, values)]
    pieces: list[TextPiece] = []
    num_ids = num_characters = 0  # before the border found last
    for count, beginning in zip(counts, beginnings, strict=True):
        if not text.startswith(beginning):
            continue
        taken = values[num_ids:count]
        if len(beginning) > num_characters:
            pieces.append(TextPiece(beginning[num_characters:], taken))
            num_characters = len(beginning)
        elif pieces:
            pieces[-1] = TextPiece(pieces[-1].text, pieces[-1].ids + taken)
        elif count == len(values):
            return [TextPiece("", values)]
        else:
            continue  # nothing to see yet: these belong to the first piece
        num_ids = count
    return pieces
