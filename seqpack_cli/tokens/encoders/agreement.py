"""Check that a fast encoder agrees with tokenizers: on a probe per run, and on each part's head.

The probe is 100 kB of text from all of Unicode, with the combinations of spaces, digits, line ends
and added tokens on which pre-tokenizers differ. The head is the beginning of the part, a thousandth
of it: with an encoder forty times as fast as tokenizers, the check takes about 4 % of the time.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from seqpack_cli.errors import DataError
from seqpack_cli.tokens.encoders.encoded_texts import (
    EncodedTexts,
    Encoder,
    EncodersDifferError,
    interleave,
)
from seqpack_cli.tokens.encoders.encoder import CHECKED, REFERENCE, open_encoder
from seqpack_cli.tokens.encoders.fastokens_encoder import DISPUTED_CHARACTER
from seqpack_cli.tokens.panics import hiding_panics

HEAD_SHARE = 1024  # the head is 1/1024 of the part
MIN_HEAD_BYTES = 4 << 10
MAX_HEAD_BYTES = 64 << 10
MAX_VARIED_TOKENS = 64  # of the added tokens; some tokenizers have thousands
FIRST_BLOCKS = 0x3000  # every character of the first scripts, a sample of the others
SAMPLE_STEP = 251
PROBE_NAME = "the built-in test texts"
BLANKS = (
    *("", " ", "  ", "   ", "\t", "\n", "\r\n", "\r", "\n\n", " \n ", "\u00a0", "\u2003", "\u3000"),
    *("\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u200b", "\u200d", "\ufeff", "\x00", "\u00ad"),
)
WORDS = (
    *("a", "The", "don't", "DON'T", "we'll", "l’été", "I'M", "x_y", "İi", "ſs", "Straße", "ǅ", "Ⅷ"),
    *("1", "12", "123", "1234", "12345678901", "3.14", "٣٤", "१२३", "²³", "½", "①", "1e-5"),
    *("...", "!!", "a.b", "--", "«»", "$5", "#x", "@", "~", "\\n", "</p>", "{}", "();", "→"),
    *("漢字", "かな", "한국어", "ᄒ\u1161ᆫ", "ไทย", "नमस्ते", "العربية", "שלום", "ქართული", "𝄞", "𠀀"),
    *(
        "e\u0301",
        "é",
        "🙂",
        "👩\u200d👩\u200d👧",
        "🇺🇦",
        "👍🏽",
        "\ufffd",
        "\u0378",
        "\ue000",
        "\U0010ffff",
    ),
)


@functools.lru_cache(maxsize=1)
def open_checked_encoder(
    name: str,
    tokenizer_json: bytes,
    *,
    allow_special_tokens: bool,
    num_threads: int,
    added_tokens: tuple[str, ...],
) -> tuple[Encoder, Encoder | None]:
    """Open an encoder and, if it has to be checked, the reference encoder; once in a process.

    Raises:
        EncoderRefusedError: the encoder does not support this tokenizer.
        EncodersDifferError: it gives different ids for the probe.
    """
    open_one = functools.partial(
        open_encoder,
        tokenizer_json=tokenizer_json,
        allow_special_tokens=allow_special_tokens,
        num_threads=num_threads,
    )
    if name not in CHECKED:
        return open_one(name), None
    loading = start_loading(name, tokenizer_json, allow_special_tokens)
    reference = open_one(REFERENCE)
    encoder = send_disputed(loading.result(), reference)
    with hiding_panics(EncodersDifferError):
        check_agreement(encoder, reference, make_probe(added_tokens), lambda: PROBE_NAME)
    return encoder, reference


@functools.lru_cache(maxsize=1)
def start_loading(name: str, tokenizer_json: bytes, allow_special_tokens: bool) -> Future[Encoder]:
    """Start to load a fast encoder in a thread; it takes half a second."""
    loader = ThreadPoolExecutor(1)
    loading = loader.submit(
        open_encoder, name, tokenizer_json, allow_special_tokens=allow_special_tokens
    )
    loader.shutdown(wait=False)
    return loading


def send_disputed(encoder: Encoder, reference: Encoder) -> Encoder:
    """Return an encoder that encodes texts with the disputed character by the reference."""

    def encode(texts: list[str]) -> EncodedTexts:
        is_disputed = np.array([DISPUTED_CHARACTER in text for text in texts], bool)
        if not is_disputed.any():
            return encoder(texts)
        most = encoder([text for text in texts if DISPUTED_CHARACTER not in text])
        few = reference([text for text in texts if DISPUTED_CHARACTER in text])
        if len(most.lengths) != (~is_disputed).sum() or most.lengths.sum() != len(most.ids):
            raise EncodersDifferError("lengths do not match its ids and texts")
        return interleave(few, most, is_disputed)

    return encode


def check_agreement(
    encoder: Encoder, reference: Encoder, texts: Sequence[str], find_place: Callable[[], str]
) -> None:
    """Raise EncodersDifferError unless both encoders give the same ids for every text.

    Also if the reference fails on a text: then the run fails with the reference's error.
    """
    texts = list(texts)
    found = encoder(texts)
    try:
        expected = reference(texts)
    except DataError as error:
        raise EncodersDifferError(
            f"{REFERENCE} fails on {find_place()} ({error.message})"
        ) from error
    if not np.array_equal(found.lengths, expected.lengths) or not np.array_equal(
        found.ids, expected.ids
    ):
        raise EncodersDifferError(f"different ids from {REFERENCE} for {find_place()}")


def take_head(texts: Sequence[str], num_bytes: int) -> list[str]:
    """Return the first texts of a part, the last one cut: about 1/1024 of its input bytes."""
    left = min(MAX_HEAD_BYTES, max(MIN_HEAD_BYTES, num_bytes // HEAD_SHARE))
    head = []
    for text in texts:
        if left <= 0:
            break
        cut = text[:left].encode()[:left]
        head.append(cut.decode(errors="ignore"))  # without an incomplete last character
        left -= len(cut)
    return head


def make_probe(added_tokens: tuple[str, ...]) -> list[str]:
    """Return texts on which pre-tokenizers, normalizers and vocabularies tend to differ.

    Args:
        added_tokens: all are in the texts, the first ones in several variants.
    """
    mixed = [
        word + blank + other
        for blank, (word, other) in zip(
            itertools.cycle(BLANKS), itertools.product(WORDS, WORDS[::7]), strict=False
        )
    ]
    spelled = [
        text
        for token in added_tokens[:MAX_VARIED_TOKENS]
        for text in (f"a{token}b", f" {token} ", token * 2, token[1:], token[:-1])
    ]
    runs = [piece * count for piece in (" ", "\n", "\t", "a", "0", "é", ".") for count in (7, 300)]
    return [*BLANKS, *WORDS, *mixed, *added_tokens, *spelled, *runs, *_iter_characters()]


def _iter_characters() -> list[str]:
    sampled = range(FIRST_BLOCKS, 0x110000, SAMPLE_STEP)
    characters = [
        chr(code)
        for code in itertools.chain(range(FIRST_BLOCKS), sampled)
        if not 0xD800 <= code <= 0xDFFF
    ]
    lines = ["".join(characters[start : start + 64]) for start in range(0, len(characters), 64)]
    between = [" ".join(characters[start : start + 64]) for start in range(0, len(characters), 640)]
    return [*lines, *between]
