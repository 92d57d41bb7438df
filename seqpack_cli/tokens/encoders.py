"""Encode texts to ids with the built-in bytes, fastokens or tokenizers, and batches with places.

An encoder is a function from a list of texts to `EncodedTexts`; it adds no special tokens. All
encoders of a tokenizer.json give the same ids, so the choice affects only the speed: tokenizers
takes any, at 1 to 3 MB/s per core, fastokens byte-level BPE at 100 MB/s and BPE that falls back to
bytes (Llama 2, Mistral, Gemma) at 40 MB/s. It is used only if it agrees with tokenizers on a probe,
100 kB of text from all of Unicode, with the combinations of spaces, digits, line ends and added
tokens on which pre-tokenizers differ, and on each part's head, a thousandth of it: so the check
takes about 4 % of the time.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from seqpack_cli.errors import DataError, MachineError, SeqpackError
from seqpack_cli.files.inputs import Input
from seqpack_cli.ranges import to_offsets
from seqpack_cli.runs.workers import Executor
from seqpack_cli.tokens.offsets import (
    METASPACE,
    Encoder,
    EncodersDifferError,
    FoundTargets,
    Places,
    find_targets,
    open_place_finder,
)
from seqpack_cli.tokens.sequences import EncodedTexts
from seqpack_cli.tokens.special_tokens import hide_special_tokens, mark_special_tokens
from seqpack_cli.tokens.tokenizer import (
    BYTES,
    NAME,
    build_tokenizer,
    byte_tokenizer_json,
    catch_failure,
)

if TYPE_CHECKING:
    from seqpack_cli.tokens.texts import TextBatch

Encoded = TypeVar("Encoded")

REFERENCE, FAST = "tokenizers", "fastokens"
MAX_EARLY_BYTES = 64 << 20  # of input that this process encodes itself
HEAD_SHARE = 1024  # the head is 1/1024 of the part
MIN_HEAD_BYTES, MAX_HEAD_BYTES = 4 << 10, 64 << 10
MAX_VARIED_TOKENS = 64  # of the added tokens; some tokenizers have thousands
FIRST_BLOCKS = 0x3000  # every character of the first scripts, a sample of the others
SAMPLE_STEP = 251
BLANKS = (  # between |
    "|| |  |   |\t|\n|\r\n|\r|\n\n| \n |\u00a0|\u2003|\u3000"
    "|\x0b|\x0c|\x1c|\x85|\u2028|\u200b|\u200d|\ufeff|\x00|\u00ad"
)
WORDS = (
    "a The don't DON'T we'll l’été I'M x_y İi ſs Straße ǅ Ⅷ "
    "1 12 123 1234 12345678901 3.14 ٣٤ १२३ ²³ ½ ① 1e-5 "
    "... !! a.b -- «» $5 #x @ ~ \\n </p> {} (); → "
    "漢字 かな 한국어 ᄒ\u1161ᆫ ไทย नमस्ते العربية שלום ქართული 𝄞 𠀀 "
    "e\u0301 é 🙂 👩\u200d👩\u200d👧 🇺🇦 👍🏽 \ufffd \u0378 \ue000 \U0010ffff"
)
# Encoded by tokenizers: U+180E is whitespace for PCRE2, not for Oniguruma.
DISPUTED_CHARACTER = "\u180e"
BYTE_LEVEL = re.compile(rb'"type"\s*:\s*"ByteLevel"')
BYTE_FALLBACK = re.compile(rb'"byte_fallback"\s*:\s*true')
REGEX = re.compile(rb'"Regex"\s*:\s*("(?:[^"\\]|\\.)*")')
WORD_CLASSES = re.compile(r"\\[wWbB]|\[:")
# A vocabulary may have the word, but with a whole number after it.
DROPOUT = re.compile(rb'"dropout"\s*:\s*(?:\d+[.eE]|1\b)')
STRIPPING = re.compile(rb'"[lr]strip"\s*:\s*true')
FALLBACK_BYTES = {f"<0x{byte:02X}>" for byte in range(256)}
SPACES_TO_METASPACE = {"type": "Replace", "pattern": {"String": " "}, "content": METASPACE}
CUT_AT_METASPACE = {
    **{"type": "Split", "pattern": {"String": METASPACE}},
    **{"behavior": "MergedWithNext", "invert": False},
}


class EncoderRefusedError(Exception):
    """An encoder does not support this tokenizer; tokenizers supports all of them."""


def choose_encoder(wanted: str, tokenizer_json: bytes, *, allow_special_tokens: bool) -> str:
    """Return the name of the encoder to begin a run with; "auto" means the fastest."""
    if wanted != "auto":
        return wanted
    is_bytes = tokenizer_json == byte_tokenizer_json() and not allow_special_tokens
    return BYTES if is_bytes else FAST


def start_early(
    inputs: Sequence[str],
    tokenizer: str,
    wanted: str,
    *,
    allow_special_tokens: bool,
    executor: Executor,
) -> None:
    """Start to load the fast encoder of a local tokenizer.json, if this process may use it.

    A command does so while its other modules are imported. The run finds the encoder by the bytes
    of the tokenizer.json. Errors are left to the run as well.

    Args:
        wanted: the encoder, or "auto".
    """
    if executor.name != "local" or executor.num_workers not in (None, 1) or tokenizer == BYTES:
        return
    with suppress(OSError, ValueError, SeqpackError):
        files, path = list(map(Path, inputs)), Path(tokenizer)
        is_small = all(map(Path.is_file, files)) and (
            sum(file.stat().st_size for file in files) <= MAX_EARLY_BYTES
        )  # workers may encode a large folder, and load their own
        tokenizer_json = Input(str(path / NAME if path.is_dir() else path)).read()
        if tokenizer_json is not None and is_small:
            name = choose_encoder(wanted, tokenizer_json, allow_special_tokens=allow_special_tokens)
            if name == FAST:
                start_loading(tokenizer_json, allow_special_tokens)


@functools.lru_cache(maxsize=1)
def start_loading(tokenizer_json: bytes, allow_special_tokens: bool) -> Future[Encoder]:
    """Start to load the fast encoder in a thread; it takes half a second."""
    loader = ThreadPoolExecutor(1)
    loading = loader.submit(_open_fastokens, tokenizer_json, allow_special_tokens)
    loader.shutdown(wait=False)
    return loading


@functools.lru_cache(maxsize=1)
def open_checked_encoder(
    name: str,
    tokenizer_json: bytes,
    *,
    allow_special_tokens: bool,
    added_tokens: tuple[str, ...],
) -> tuple[Encoder, Encoder | None]:
    """Open an encoder and, if it has to be checked, the reference encoder; once in a process.

    Raises:
        EncoderRefusedError: the encoder does not support this tokenizer.
        EncodersDifferError: it gives different ids for the probe.
        MachineError: its package cannot be imported.
    """
    if name == BYTES:
        return encode_bytes, None
    loading = start_loading(tokenizer_json, allow_special_tokens) if name == FAST else None
    reference = open_tokenizers(tokenizer_json, allow_special_tokens=allow_special_tokens)
    if loading is None:
        return reference, None
    encoder = _send_disputed(loading.result(), reference)
    probe = list(iter_probe(added_tokens))
    check_agreement(encoder, reference, probe, lambda: "the built-in test texts")
    return encoder, reference


def encode_bytes(texts: list[str]) -> EncodedTexts:
    """Encode with the byte tokenizer: the ids are the UTF-8 bytes.

    >>> encode_bytes(["né", ""]).ids.tolist()
    [110, 195, 169]
    """
    encoded = list(map(str.encode, texts))
    lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
    return EncodedTexts(np.frombuffer(b"".join(encoded), np.uint8), lengths)


def open_tokenizers(tokenizer_json: bytes, *, allow_special_tokens: bool) -> Encoder:
    """Open the encoder of Hugging Face's tokenizers; raises DataError."""
    if not allow_special_tokens:
        tokenizer_json = hide_special_tokens(tokenizer_json)
    tokenizer = build_tokenizer(tokenizer_json, allow_special_tokens=allow_special_tokens)

    def encode(texts: list[str]) -> EncodedTexts:
        with catch_failure():
            encodings = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        ids = [encoding.ids for encoding in encodings]
        lengths = np.fromiter(map(len, ids), np.int64, len(ids))
        flat = np.fromiter(itertools.chain.from_iterable(ids), np.uint32, int(lengths.sum()))
        return EncodedTexts(flat, lengths)

    return encode


# fastokens


def _open_fastokens(tokenizer_json: bytes, allow_special_tokens: bool) -> Encoder:
    with catch_failure(FAST, EncoderRefusedError):
        adapted, needs_space = _adapt(tokenizer_json, allow_special_tokens=allow_special_tokens)
        try:
            import fastokens
        except ImportError as error:
            hint = "pip install --force-reinstall fastokens, or pass --encoder tokenizers"
            raise MachineError(f"fastokens cannot be imported: {error}", hint) from error
        tokenizer = fastokens.Tokenizer.from_json_str(adapted.decode())
        tokenizer.no_truncation()
        tokenizer.no_padding()

    def encode(texts: list[str]) -> EncodedTexts:
        if needs_space:
            texts = [f" {it}" if it and not it.startswith((" ", METASPACE)) else it for it in texts]
        with catch_failure("fastokens failed", EncodersDifferError):
            ids, offsets = tokenizer.encode_batch_flat(
                texts, add_special_tokens=False, split_special_tokens=not allow_special_tokens
            )
        lengths = np.diff(np.frombuffer(offsets, "<u8").astype(np.int64))
        return EncodedTexts(np.frombuffer(ids, "<u4"), lengths)

    return encode


def _adapt(tokenizer_json: bytes, *, allow_special_tokens: bool) -> tuple[bytes, bool]:
    """Return a tokenizer.json that fastokens encodes alike, and whether texts need a space first.

    fastokens has no Metaspace, which writes each space as ▁, puts one before a text that begins
    with neither, and cuts before each ▁, or nowhere. A normalizer and a split do the same.

    Raises:
        EncoderRefusedError: fastokens does not load it, or is known to encode it differently.
    """

    def refuse(is_refused: object, reason: str) -> None:
        if is_refused:
            raise EncoderRefusedError(reason)

    falls_back = BYTE_FALLBACK.search(tokenizer_json) is not None
    refuse(
        falls_back == (BYTE_LEVEL.search(tokenizer_json) is not None),
        "it is neither byte-level BPE nor BPE that falls back to bytes",
    )
    refuse(
        any(WORD_CLASSES.search(json.loads(pattern)) for pattern in REGEX.findall(tokenizer_json)),
        "its regex has character classes that regex engines interpret differently",
    )
    refuse(
        allow_special_tokens and STRIPPING.search(tokenizer_json),
        "its special tokens strip the whitespace beside them",
    )
    if not falls_back and not DROPOUT.search(tokenizer_json):
        return tokenizer_json, False
    saved = {**json.loads(tokenizer_json), "decoder": None, "post_processor": None}
    model, split = saved["model"], saved.get("pre_tokenizer") or {"type": None}
    model["dropout"] = None
    if not falls_back:
        return json.dumps(saved, ensure_ascii=False).encode(), False
    words = model["vocab"]
    refuse(
        model["type"] != "BPE" or not words.keys() >= FALLBACK_BYTES,
        "it is not BPE that falls back to all bytes",
    )
    for name in ("ignore_merges", "continuing_subword_prefix", "end_of_word_suffix"):
        refuse(model.get(name), f"it has {name} and falls back to bytes")
    # There it takes a token that the merges do not make, such as <0x41> where a text spells it.
    refuse(set("".join(words)) - words.keys(), "its tokens have characters that are no tokens")
    needs_space = False
    if split["type"] == "Metaspace":
        is_plain = split["replacement"] == METASPACE and "add_prefix_space" not in split
        refuse(
            not is_plain or saved.get("normalizer"),
            "its Metaspace has other options, or a normalizer before it",
        )
        added = saved.get("added_tokens") or ()
        refuse(
            any(allow_special_tokens or not token["special"] for token in added),
            "it has added tokens beside Metaspace",
        )
        cut = CUT_AT_METASPACE if split["split"] else None
        saved |= {"normalizer": SPACES_TO_METASPACE, "pre_tokenizer": cut, "added_tokens": []}
        needs_space = split["prepend_scheme"] != "never"
    return json.dumps(saved, ensure_ascii=False).encode(), needs_space


def _send_disputed(encoder: Encoder, reference: Encoder) -> Encoder:
    """Return an encoder that encodes texts with the disputed character by the reference."""

    def encode(texts: list[str]) -> EncodedTexts:
        disputed = [index for index, text in enumerate(texts) if DISPUTED_CHARACTER in text]
        if not disputed:
            return encoder(texts)
        most = encoder(["" if DISPUTED_CHARACTER in text else text for text in texts])
        return _put_in(most, disputed, reference([texts[index] for index in disputed]))

    return encode


def _put_in(most: EncodedTexts, places: Sequence[int], few: EncodedTexts) -> EncodedTexts:
    """Put some texts in their places among others, where they were empty so far.

    >>> few = EncodedTexts(np.array([7, 8]), np.array([2]))
    >>> _put_in(EncodedTexts(np.array([5]), np.array([0, 1])), [0], few).ids
    array([7, 8, 5])
    """
    at = np.repeat(to_offsets(most.lengths)[places], few.lengths)
    lengths = most.lengths.copy()
    lengths[places] = few.lengths
    return EncodedTexts(np.insert(most.ids, at, few.ids), lengths)


# Agreement


def check_agreement(
    encoder: Encoder, reference: Encoder, texts: list[str], find_place: Callable[[], str]
) -> None:
    """Raise EncodersDifferError unless both encoders give the same ids for every text.

    Also if the reference fails on a text: then the run fails with the reference's error.
    """
    found = encoder(texts)
    try:
        expected = reference(texts)
    except DataError as error:
        raise EncodersDifferError(
            f"{REFERENCE} fails on {find_place()} ({error.message})"
        ) from error
    if not all(map(np.array_equal, (found.lengths, found.ids), (expected.lengths, expected.ids))):
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


def iter_probe(added_tokens: tuple[str, ...]) -> Iterator[str]:
    """Yield texts on which pre-tokenizers, normalizers and vocabularies tend to differ.

    Args:
        added_tokens: all are in the texts, the first ones in several variants.
    """
    blanks, words = BLANKS[1:].split("|"), WORDS.split(" ")
    yield from (*blanks, *words)
    mixed = zip(itertools.cycle(blanks), itertools.product(words, words[::7]), strict=False)
    yield from (word + blank + other for blank, (word, other) in mixed)
    yield from added_tokens
    for token in added_tokens[:MAX_VARIED_TOKENS]:
        yield from (f"a{token}b", f" {token} ", token * 2, token[1:], token[:-1])
    yield from (piece * count for piece in " \n\ta0é." for count in (7, 300))
    sampled = (*range(FIRST_BLOCKS), *range(FIRST_BLOCKS, 0x110000, SAMPLE_STEP))
    characters = [chr(code) for code in sampled if not 0xD800 <= code <= 0xDFFF]
    for between, step in (("", 64), (" ", 640)):
        for first in range(0, len(characters), step):
            yield between.join(characters[first : first + 64])


# Batches


class EncodedBatch(NamedTuple):
    """Texts and their tokens, and what is asked for beside these."""

    batch: TextBatch
    encoded: EncodedTexts
    words: Places | None = None  # of each token, without the spaces in front
    targets: FoundTargets | None = None


def open_batch_encoder(
    encoder: Encoder,
    tokenizer_json: bytes,
    *,
    allow_special_tokens: bool,
    has_tags: bool = False,
    has_targets: bool = False,
    special_tokens: tuple[str, ...] = (),
) -> Callable[[TextBatch], EncodedBatch]:
    """Return a function that encodes the texts of a batch.

    It raises DataError, with the place of the document, if the tokenizer fails on a text.

    Args:
        has_tags: the words of each token are asked for.
        has_targets: the texts have targets.
        special_tokens: those that may be marked in a text.
    """
    if not has_tags and not has_targets:
        return lambda batch: EncodedBatch(batch, _encode(encoder, batch.texts, batch.find_place))
    # Before several threads ask for it at once.
    finder = open_place_finder(tokenizer_json, allow_special_tokens=allow_special_tokens)

    def encode(batch: TextBatch) -> EncodedBatch:
        encode_all = functools.partial(finder.encode, encoder)
        if has_tags:
            encoded, places = _encode(encode_all, batch.texts, batch.find_place)
            words = finder.leave_out_spaces(batch.texts, encoded, places)
            return EncodedBatch(batch, encoded, words)
        marked = [at for at, it in enumerate(batch.made) if it is not None and it.is_marked]
        texts, made = list(batch.texts), list(batch.made)
        for at in marked:
            texts[at], made[at] = "", None
        encoded, places = _encode(encode_all, texts, batch.find_place)
        targets = find_targets(made, places, encoded.lengths)
        if not marked:
            return EncodedBatch(batch, encoded, targets=targets)
        encode_few = _open_marked_encoder(tokenizer_json, special_tokens)
        few, places = _encode(
            encode_few, [batch.texts[at] for at in marked], lambda at: batch.find_place(marked[at])
        )
        of_few = find_targets([batch.made[at] for at in marked], places, few.lengths)
        entries = EncodedTexts(targets.entries, encoded.lengths)
        entries = _put_in(entries, marked, EncodedTexts(of_few.entries, few.lengths))
        whole = _put_in(encoded, marked, few)
        num_straddling = targets.num_straddling + of_few.num_straddling
        return EncodedBatch(batch, whole, targets=FoundTargets(entries.ids, num_straddling))

    return encode


def _encode(
    encode: Callable[[list[str]], Encoded], texts: list[str], find_place: Callable[[int], str]
) -> Encoded:
    """Encode texts; name the one on which the tokenizer fails."""
    try:
        return encode(texts)
    except DataError:
        for index, text in enumerate(texts):
            try:
                encode([text])
            except DataError as error:
                raise DataError(f"{find_place(index)}: {error.message}", error.hint) from error
        raise


@functools.lru_cache(maxsize=1)
def _open_marked_encoder(
    tokenizer_json: bytes, special_tokens: tuple[str, ...]
) -> Callable[[list[str]], tuple[EncodedTexts, Places]]:
    """Return what encodes texts in which special tokens are marked."""
    tokenizer_json = mark_special_tokens(tokenizer_json, special_tokens)
    encoder = open_tokenizers(tokenizer_json, allow_special_tokens=False)
    finder = open_place_finder(tokenizer_json, allow_special_tokens=False)
    return functools.partial(finder.encode, encoder)
