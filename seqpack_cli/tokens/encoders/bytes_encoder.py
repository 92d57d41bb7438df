"""Encode with the byte tokenizer: the ids are the UTF-8 bytes."""

from __future__ import annotations

import numpy as np

from seqpack_cli.tokens.encoders.encoded_texts import EncodedTexts


def encode_bytes(texts: list[str]) -> EncodedTexts:
    """Return the UTF-8 bytes of the texts as ids.

    >>> encode_bytes(["né", ""]).ids.tolist()
    [110, 195, 169]
    """
    encoded = [text.encode() for text in texts]
    lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
    return EncodedTexts(np.frombuffer(b"".join(encoded), np.uint8), lengths)
