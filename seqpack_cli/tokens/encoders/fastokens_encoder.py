"""The encoder of fastokens: byte-level BPE at 100 MB/s and more a core, flat ids from the start.

It takes fewer kinds of tokenizer than tokenizers does, and is trusted only where it agrees with it:
see agreement.py.
"""

from __future__ import annotations

import json
import os
import re

import numpy as np

from seqpack_cli.tokens.encoders.encoded_texts import (
    EncodedTexts,
    Encoder,
    EncoderRefusedError,
    EncodersDifferError,
)
from seqpack_cli.tokens.vocabulary import is_failure, usable_json

# Texts with it go to tokenizers: PCRE2 counts U+180E as a blank, Oniguruma does not.
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
        num_threads: not needed: threads that call it share its cache of words, which is faster than
            the library's own.

    Raises:
        EncoderRefusedError: it does not take this tokenizer.
        ImportError: it is not installed; see is_installed.
    """
    del num_threads
    _check_supported(tokenizer_json, allow_special_tokens=allow_special_tokens)
    os.environ.setdefault("FASTOKENS_BPE_THREADS", "1")
    import fastokens

    try:
        tokenizer = fastokens.Tokenizer.from_json_str(usable_json(tokenizer_json).decode())
        tokenizer.no_truncation()
        tokenizer.no_padding()
    except BaseException as error:
        if not is_failure(error):
            raise
        raise EncoderRefusedError(_describe(error)) from error

    def encode(texts: list[str]) -> EncodedTexts:
        try:
            # Said with every call, so no copy of the tokenizer can lose it.
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


def is_installed() -> bool:
    """Say whether fastokens can be imported."""
    try:
        import fastokens  # noqa: F401
    except ImportError:
        return False
    return True


def _check_supported(tokenizer_json: bytes, *, allow_special_tokens: bool) -> None:
    """Refuse what fastokens loads and was seen to encode otherwise than tokenizers."""
    if not BYTE_LEVEL.search(tokenizer_json) or BYTE_FALLBACK.search(tokenizer_json):
        raise EncoderRefusedError("it is not byte-level BPE")
    for pattern in REGEX.findall(tokenizer_json):
        try:
            has_classes = WORD_CLASSES.search(json.loads(b'"' + pattern + b'"'))
        except ValueError as error:
            raise EncoderRefusedError("its pattern is not JSON") from error
        if has_classes:
            raise EncoderRefusedError("its pattern has classes that engines read differently")
    if allow_special_tokens and STRIPPING.search(tokenizer_json):
        raise EncoderRefusedError("its special tokens take the blanks beside them")


def _describe(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
