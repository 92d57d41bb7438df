"""Encode with Hugging Face's tokenizers: any tokenizer.json, 1 to 3 MB/s per core with 0.x."""

from __future__ import annotations

import os
from itertools import chain

import numpy as np

from seqpack_cli.tokens.encoders.encoded_texts import EncodedTexts, Encoder
from seqpack_cli.tokens.special_tokens import hide_special_tokens
from seqpack_cli.tokens.vocabulary import build_tokenizer, catch_failure


def open_tokenizers_encoder(
    tokenizer_json: bytes, *, allow_special_tokens: bool, num_threads: int
) -> Encoder:
    """Build the encoder.

    Args:
        num_threads: threads that the library may use; it reads this once, at its first call.
    """
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if num_threads > 1 else "false"
    os.environ.setdefault("RAYON_NUM_THREADS", str(num_threads))
    if not allow_special_tokens:
        tokenizer_json = hide_special_tokens(tokenizer_json)
    tokenizer = build_tokenizer(tokenizer_json, allow_special_tokens=allow_special_tokens)
    if tokenizer.encode_special_tokens is allow_special_tokens:
        raise AssertionError("tokenizers lost the setting of special tokens")

    def encode(texts: list[str]) -> EncodedTexts:
        with catch_failure():
            encodings = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        ids = [encoding.ids for encoding in encodings]
        lengths = np.fromiter(map(len, ids), np.int64, len(ids))
        flat = np.fromiter(chain.from_iterable(ids), np.uint32, int(lengths.sum()))
        return EncodedTexts(flat, lengths)

    return encode
