"""Texts -> flat token ids and offsets.

An encoder is one function from a list of texts to `EncodedTexts`, so that no part of the program
sees an object per token. It adds no special tokens. Encoders of the same tokenizer.json give the
same ids; which one runs is only a matter of speed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain

import numpy as np

from seqpack_cli.tokens.byte_tokenizer import byte_tokenizer_json
from seqpack_cli.tokens.vocabulary import build_tokenizer, catch_failure


@dataclass(frozen=True)
class EncodedTexts:
    """The ids of some texts, back to back."""

    ids: np.ndarray  # int64[S], or uint8[S] from the byte encoder
    lengths: np.ndarray  # int64[number of texts]


Encoder = Callable[[list[str]], EncodedTexts]


def choose_encoder(tokenizer_json: bytes, *, allow_special_tokens: bool) -> str:
    """Name the fastest encoder there is for a tokenizer.json."""
    is_bytes = tokenizer_json == byte_tokenizer_json() and not allow_special_tokens
    return "bytes" if is_bytes else "tokenizers"


def open_encoder(
    tokenizer_json: bytes, *, allow_special_tokens: bool, num_threads: int = 1
) -> Encoder:
    """Build the fastest encoder there is for a tokenizer.json.

    Args:
        num_threads: threads that the encoder may use; read by `tokenizers` at its first call.
    """
    if choose_encoder(tokenizer_json, allow_special_tokens=allow_special_tokens) == "bytes":
        return encode_bytes
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if num_threads > 1 else "false"
    os.environ.setdefault("RAYON_NUM_THREADS", str(num_threads))
    tokenizer = build_tokenizer(tokenizer_json, allow_special_tokens=allow_special_tokens)

    def encode(texts: list[str]) -> EncodedTexts:
        with catch_failure():
            encodings = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        lists = [encoding.ids for encoding in encodings]
        lengths = np.fromiter(map(len, lists), np.int64, len(lists))
        ids = np.fromiter(chain.from_iterable(lists), np.int64, int(lengths.sum()))
        return EncodedTexts(ids, lengths)

    return encode


def encode_bytes(texts: list[str]) -> EncodedTexts:
    """Give the UTF-8 bytes of the texts as ids.

    >>> encode_bytes(["né", ""]).ids.tolist()
    [110, 195, 169]
    """
    encoded = [text.encode() for text in texts]
    lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
    return EncodedTexts(np.frombuffer(b"".join(encoded), np.uint8), lengths)
