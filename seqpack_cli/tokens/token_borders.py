"""Decode ids and split the text where tokens end.

The text of a token depends on its neighbors: a decoder joins bytes to characters, strips and cleans
up. So every prefix of the ids is decoded: if the text of the first k ids is a prefix of the whole
text, token k ends there; else it ends inside a character that later tokens complete. This takes
quadratic time, 10 ms for the maximum of 256 ids; a very long text is not split at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from seqpack_cli.errors import DataError
from seqpack_cli.tokens.decoder import Decoder

MAX_IDS = 256
MAX_CHARACTERS = 1 << 18  # of the text: all prefixes together may take 256 times as much


@dataclass(frozen=True)
class TextPiece:
    """The shortest text between two token borders, and its ids."""

    text: str
    ids: tuple[int, ...]


def split_at_tokens(decode: Decoder, ids: Sequence[int] | np.ndarray) -> list[TextPiece]:
    """Decode ids and split their text where tokens end.

    A character of several tokens is one piece with all their ids. A token without text belongs to
    the previous piece, or to the first.

    Args:
        ids: of more than MAX_IDS, only the first MAX_IDS are split, up to their last border. A text
            above MAX_CHARACTERS is one piece, and so is one whose prefixes the decoder fails on.

    Returns:
        The pieces; unless ids were cut, their texts joined are the whole text, and their ids `ids`.
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
        prefixes = decode([ids[:count] for count in counts])
    except DataError:  # `Strip` fails on texts that are too short
        return [TextPiece(text, values)]
    pieces: list[TextPiece] = []
    num_ids = num_characters = 0  # before the last border found
    for count, prefix in zip(counts, prefixes, strict=True):
        if not text.startswith(prefix):
            continue
        taken = values[num_ids:count]
        if len(prefix) > num_characters:
            pieces.append(TextPiece(prefix[num_characters:], taken))
            num_characters = len(prefix)
        elif pieces:
            pieces[-1] = TextPiece(pieces[-1].text, pieces[-1].ids + taken)
        elif count == len(values):
            return [TextPiece("", values)]
        else:
            continue  # no text yet: these ids belong to the first piece
        num_ids = count
    return pieces
