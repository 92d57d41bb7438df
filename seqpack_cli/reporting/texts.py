"""The texts of ids, of a store or shards that have a tokenizer.

Ids that were imported without one are shown as numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seqpack_cli.files.manifest import has_tokenizer
from seqpack_cli.reporting.opened import AnyOpened
from seqpack_cli.tokens.decode import MAX_IDS, Decoder, TextPiece, open_decoder, split_at_tokens

NO_TOKENIZER = "no tokenizer: ids are not decoded"


def open_texts(opened: AnyOpened) -> Decoder | None:
    """Return what decodes the ids of a store or of shards; None if they have no tokenizer."""
    if not has_tokenizer(opened.manifest):
        return None
    return open_decoder(opened.read_tokenizer_json())


def decode_rows(
    decode: Decoder | None, rows: Sequence[np.ndarray]
) -> Sequence[str] | Sequence[None]:
    """Return the text of the ids of each row, None without a tokenizer."""
    return [None] * len(rows) if decode is None else decode(rows)


def split_row(decode: Decoder | None, ids: np.ndarray) -> list[TextPiece]:
    """Split ids where tokens end; without a tokenizer each of the first ids is its own text."""
    if decode is None:
        return [TextPiece(str(id_), (id_,)) for id_ in ids[:MAX_IDS].tolist()]
    return split_at_tokens(decode, ids)
