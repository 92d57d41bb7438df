"""The encoder of fastokens: byte-level BPE at 100 MB/s and more a core, flat ids from the start.

It takes fewer kinds of tokenizer than tokenizers does, and is trusted only where it agrees with it:
see agreement.py.
"""

from __future__ import annotations

import os

import numpy as np

from seqpack_cli.errors import MachineError
from seqpack_cli.tokens.encoders.encoded_texts import (
    EncodedTexts,
    Encoder,
    EncoderRefusedError,
    EncodersDifferError,
)
from seqpack_cli.tokens.vocabulary import usable_json


def open_fastokens_encoder(
    tokenizer_json: bytes, *, allow_special_tokens: bool, num_threads: int
) -> Encoder:
    """Build the encoder.

    Args:
        num_threads: threads that the library may use; it reads this at its first call.

    Raises:
        MachineError: fastokens is not installed.
        EncoderRefusedError: it does not take this tokenizer.
    """
    os.environ.setdefault("FASTOKENS_BPE_THREADS", str(num_threads))
    try:
        import fastokens
    except ImportError as error:
        raise MachineError(
            "fastokens is not installed", hint="pip install 'seqpack[fast]'"
        ) from error
    try:
        tokenizer = fastokens.Tokenizer.from_json_str(usable_json(tokenizer_json).decode())
        tokenizer.no_truncation()
        tokenizer.no_padding()
    except BaseException as error:
        if not _is_failure(error):
            raise
        raise EncoderRefusedError(_describe(error)) from error

    def encode(texts: list[str]) -> EncodedTexts:
        try:
            # Said with every call, so no copy of the tokenizer can lose it.
            ids, offsets = tokenizer.encode_batch_flat(
                texts, add_special_tokens=False, split_special_tokens=not allow_special_tokens
            )
        except BaseException as error:
            if not _is_failure(error):
                raise
            raise EncodersDifferError(f"fastokens failed: {_describe(error)}") from error
        lengths = np.diff(np.frombuffer(offsets, "<u8").astype(np.int64))
        return EncodedTexts(np.frombuffer(ids, "<u4"), lengths)

    return encode


def is_installed() -> bool:
    """Say whether fastokens can be imported."""
    import importlib.util

    return importlib.util.find_spec("fastokens") is not None


def _is_failure(error: BaseException) -> bool:
    """Say whether the library failed: a panic of its Rust side is a BaseException."""
    if isinstance(error, MemoryError):
        return False
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def _describe(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
