"""The encoder of Hugging Face's tokenizers: takes every tokenizer.json, 2 to 3 MB/s a core.

A second thread turns the encodings of one slice of texts into arrays while the library's threads
encode the next, which keeps the cores busy where one process has several.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any

import numpy as np

from seqpack_cli.tokens.encoders.encoded_texts import EncodedTexts, Encoder
from seqpack_cli.tokens.vocabulary import build_tokenizer, catch_failure

SLICE_CHARACTERS = 1 << 17


def open_tokenizers_encoder(
    tokenizer_json: bytes, *, allow_special_tokens: bool, num_threads: int
) -> Encoder:
    """Build the encoder.

    Args:
        num_threads: threads that the library may use; it reads this at its first call.
    """
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if num_threads > 1 else "false"
    os.environ.setdefault("RAYON_NUM_THREADS", str(num_threads))
    tokenizer = build_tokenizer(tokenizer_json, allow_special_tokens=allow_special_tokens)
    if tokenizer.encode_special_tokens is allow_special_tokens:
        raise AssertionError("tokenizers lost the setting of special tokens")

    def encode_slice(texts: list[str]) -> list[Any]:
        with catch_failure():
            encodings: list[Any] = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return encodings

    def encode(texts: list[str]) -> EncodedTexts:
        if num_threads == 1:
            return _flatten(encode_slice(texts))
        with ThreadPoolExecutor(1) as flattener:
            parts = [flattener.submit(_flatten, encode_slice(some)) for some in _iter_slices(texts)]
            return _join([part.result() for part in parts])

    return encode


def _flatten(encodings: list[Any]) -> EncodedTexts:
    lists = [encoding.ids for encoding in encodings]
    lengths = np.fromiter(map(len, lists), np.int64, len(lists))
    ids = np.fromiter(chain.from_iterable(lists), np.uint32, int(lengths.sum()))
    return EncodedTexts(ids, lengths)


def _iter_slices(texts: list[str]) -> Iterator[list[str]]:
    start = num_characters = 0
    for end, text in enumerate(texts, 1):
        num_characters += len(text)
        if num_characters >= SLICE_CHARACTERS:
            yield texts[start:end]
            start, num_characters = end, 0
    yield texts[start:]


def _join(parts: list[EncodedTexts]) -> EncodedTexts:
    return EncodedTexts(
        np.concatenate([part.ids for part in parts]),
        np.concatenate([part.lengths for part in parts]),
    )
