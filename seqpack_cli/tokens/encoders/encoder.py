"""Choose and open the encoder of a run.

An encoder is a function from a list of texts to `EncodedTexts`; it adds no special tokens. All
encoders of a tokenizer.json give the same ids, so the choice affects only the speed.
"""

from __future__ import annotations

from collections.abc import Callable

from seqpack_cli.tokens.byte_tokenizer import byte_tokenizer_json
from seqpack_cli.tokens.encoders.bytes_encoder import encode_bytes
from seqpack_cli.tokens.encoders.encoded_texts import Encoder
from seqpack_cli.tokens.encoders.fastokens_encoder import open_fastokens_encoder
from seqpack_cli.tokens.encoders.tokenizers_encoder import open_tokenizers_encoder

OPENERS: dict[str, Callable[..., Encoder]] = {
    "bytes": lambda _, **__: encode_bytes,
    "fastokens": open_fastokens_encoder,
    "tokenizers": open_tokenizers_encoder,
}
REFERENCE = "tokenizers"
# Encoders that are used only if they agree with the reference.
CHECKED = ("fastokens",)
CHOICES = ("auto", "fastokens", "tokenizers")


def choose_encoder(wanted: str, tokenizer_json: bytes, *, allow_special_tokens: bool) -> str:
    """Return the name of the encoder to begin a run with.

    Args:
        wanted: one of CHOICES; "auto" means the fastest.
    """
    if wanted != "auto":
        return wanted
    if tokenizer_json == byte_tokenizer_json() and not allow_special_tokens:
        return "bytes"
    return "fastokens"


def open_encoder(
    name: str, tokenizer_json: bytes, *, allow_special_tokens: bool, num_threads: int = 1
) -> Encoder:
    """Build an encoder.

    Raises:
        EncoderRefusedError: it does not support this tokenizer.
        DataError: it is not a tokenizer.json.
    """
    return OPENERS[name](
        tokenizer_json, allow_special_tokens=allow_special_tokens, num_threads=num_threads
    )
