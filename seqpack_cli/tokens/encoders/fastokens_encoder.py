"""Encode BPE with fastokens, into flat arrays of ids: byte-level at 100 MB/s and more per core.

BPE that falls back to bytes (Llama 2, Mistral, Gemma), at 40 MB/s, has its Metaspace rewritten.

It supports fewer kinds of tokenizers than tokenizers does, and is used only if both give the same
ids: see agreement.py.
"""

from __future__ import annotations

import json
import os
import re

import numpy as np

from seqpack_cli.tokens.encoders.byte_fallback import (
    check_model,
    put_spaces_first,
    replace_metaspace,
)
from seqpack_cli.tokens.encoders.encoded_texts import (
    EncodedTexts,
    Encoder,
    EncoderRefusedError,
    EncodersDifferError,
)
from seqpack_cli.tokens.panics import is_failure
from seqpack_cli.tokens.vocabulary import usable_json

# Encoded by tokenizers: U+180E is whitespace for PCRE2, not for Oniguruma.
DISPUTED_CHARACTER = "\u180e"
BYTE_LEVEL = re.compile(rb'"type"\s*:\s*"ByteLevel"')
BYTE_FALLBACK = re.compile(rb'"byte_fallback"\s*:\s*true')
REGEX = re.compile(rb'"Regex"\s*:\s*"((?:[^"\\]|\\.)*)"')
WORD_CLASSES = re.compile(r"\\[wWbB]|\[:")
STRIPPING = re.compile(rb'"[lr]strip"\s*:\s*true')


def open_fastokens_encoder(
    tokenizer_json: bytes, *, allow_special_tokens: bool, num_threads: int
) -> Encoder:
    """Build the encoder.

    Args:
        num_threads: ignored: calls from several threads share the cache of words, which is faster
            than the threads of the library.

    Raises:
        EncoderRefusedError: fastokens does not support this tokenizer.
    """
    del num_threads
    _check_supported(tokenizer_json, allow_special_tokens=allow_special_tokens)
    os.environ.setdefault("FASTOKENS_BPE_THREADS", "1")
    import fastokens

    try:
        prepared, needs_space = _prepare(usable_json(tokenizer_json), allow_special_tokens)
        tokenizer = fastokens.Tokenizer.from_json_str(prepared.decode())
        tokenizer.no_truncation()
        tokenizer.no_padding()
    except BaseException as error:
        if not is_failure(error) or isinstance(error, EncoderRefusedError):
            raise
        raise EncoderRefusedError(_describe(error)) from error

    def encode(texts: list[str]) -> EncodedTexts:
        texts = put_spaces_first(texts) if needs_space else texts
        try:
            # Passed with every call, so that no copy of the tokenizer can lose it.
            ids, offsets = tokenizer.encode_batch_flat(
                texts, add_special_tokens=False, split_special_tokens=not allow_special_tokens
            )
        except BaseException as error:
            if not is_failure(error):
                raise
            raise EncodersDifferError(f"fastokens failed: {_describe(error)}") from error
        lengths = np.diff(np.frombuffer(offsets, "<u8").astype(np.int64))
        return EncodedTexts(np.frombuffer(ids, "<u4"), lengths)

    return encode


def _check_supported(tokenizer_json: bytes, *, allow_special_tokens: bool) -> None:
    """Refuse tokenizers that fastokens loads and is known to encode differently."""
    if bool(BYTE_LEVEL.search(tokenizer_json)) == bool(BYTE_FALLBACK.search(tokenizer_json)):
        raise EncoderRefusedError("it is neither byte-level BPE nor BPE that falls back to bytes")
    for pattern in REGEX.findall(tokenizer_json):
        try:
            has_classes = WORD_CLASSES.search(json.loads(b'"' + pattern + b'"'))
        except ValueError as error:
            raise EncoderRefusedError("its regex is not JSON") from error
        if has_classes:
            raise EncoderRefusedError(
                "its regex has character classes that regex engines interpret differently"
            )
    if allow_special_tokens and STRIPPING.search(tokenizer_json):
        raise EncoderRefusedError("its special tokens strip the whitespace beside them")


def _prepare(tokenizer_json: bytes, allow_special_tokens: bool) -> tuple[bytes, bool]:
    """Return a tokenizer.json that fastokens reads, and whether texts need a space first."""
    if not BYTE_FALLBACK.search(tokenizer_json):
        return tokenizer_json, False
    saved = {**json.loads(tokenizer_json), "decoder": None, "post_processor": None}
    check_model(saved["model"])
    changed, needs_space = replace_metaspace(saved, allow_special_tokens=allow_special_tokens)
    return json.dumps(changed, ensure_ascii=False).encode(), needs_space


def _describe(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
