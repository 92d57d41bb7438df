"""Small tokenizers of every common kind, trained here on a few kB of the sample texts.

Each has the special tokens SPECIAL_TOKENS, which may occur in a text by chance, the added token
ADDED_TOKEN, which is not special, and the template that is usual for its kind.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

SAMPLE_DATA = Path(__file__).parent.parent / "sample_data"
NUM_CHARACTERS = 6000  # of each training file
VOCAB_SIZE = 500  # 256 bytes and some merges
SPECIAL_TOKENS = ["<unk>", "<pad>", "<s>", "</s>", "<|endoftext|>", "[CLS]", "[SEP]"]
ADDED_TOKEN = "oat biscuits"  # noqa: S105
UNKNOWN = "<unk>"
# The published pattern of Llama 3's tokenizer.json.
LLAMA_3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@functools.cache
def sample_texts() -> tuple[str, ...]:
    """Return some texts in English and some in other languages and scripts."""
    stories = (SAMPLE_DATA / "stories.txt").read_text()[:NUM_CHARACTERS].splitlines()
    lines = (SAMPLE_DATA / "languages.jsonl").read_text().strip().split("\n")
    texts = [json.loads(line)["text"] for line in lines]
    return (*stories, *(text[: NUM_CHARACTERS // len(texts)] for text in texts))


@functools.cache
def tokenizer_of(kind: str) -> str:
    """Train the tokenizer of one of KINDS, once; return its tokenizer.json."""
    tokenizer = KINDS[kind]()
    tokenizer.add_special_tokens(SPECIAL_TOKENS)
    tokenizer.add_tokens([AddedToken(ADDED_TOKEN, special=False)])
    return tokenizer.to_str()


def byte_level() -> Tokenizer:
    """Make a byte-level BPE, as GPT-2 has one."""
    return _train_byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False))


def byte_level_with_prefix_space() -> Tokenizer:
    """Make a byte-level BPE that puts a space before a text, as RoBERTa's variants do."""
    tokenizer = _train_byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True))
    return _add_template(tokenizer, "<s> $A </s>", "<s>", "</s>")


def byte_level_nfc() -> Tokenizer:
    """Make a byte-level BPE that normalizes text to NFC first, as Qwen's does."""
    return _train_byte_level(
        pre_tokenizers.ByteLevel(add_prefix_space=False), normalizer=normalizers.NFC()
    )


def split_pattern() -> Tokenizer:
    """Make a byte-level BPE with its own split pattern, as Llama 3 has."""
    split = pre_tokenizers.Split(Regex(LLAMA_3_PATTERN), behavior="isolated")
    bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer = _train_byte_level(pre_tokenizers.Sequence([split, bytes_only]), ignore_merges=True)
    return _add_template(tokenizer, "<|endoftext|> $A", "<|endoftext|>")


def metaspace() -> Tokenizer:
    """Make a BPE on characters that falls back to bytes, as newer files of Llama 2 have it."""
    tokenizer = _train_byte_fallback()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence(
        [decoders.ByteFallback(), decoders.Fuse(), decoders.Metaspace()]
    )
    return _add_template(tokenizer, "<s> $A", "<s>")


def byte_fallback() -> Tokenizer:
    """Make a BPE on characters that falls back to bytes, as the first files of Llama 2 have it."""
    tokenizer = _train_byte_fallback()
    blanks = [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    tokenizer.normalizer = normalizers.Sequence(blanks)
    bytes_first = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*bytes_first, decoders.Strip(" ", 1, 0)])
    return _add_template(tokenizer, "<s> $A", "<s>")


def word_piece() -> Tokenizer:
    """Make a WordPiece tokenizer, as BERT has one."""
    tokenizer = Tokenizer(models.WordPiece(unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    _train(tokenizer, trainers.WordPieceTrainer(special_tokens=SPECIAL_TOKENS, **_SIZES))
    return _add_template(tokenizer, "[CLS] $A [SEP]", "[CLS]", "[SEP]")


def unigram() -> Tokenizer:
    """Make a Unigram tokenizer, as T5 and XLM-R have one."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    _train(
        tokenizer,
        trainers.UnigramTrainer(
            vocab_size=1500,  # room for all characters
            special_tokens=SPECIAL_TOKENS,
            unk_token=UNKNOWN,
            show_progress=False,
        ),
    )
    return _add_template(tokenizer, "$A </s>", "</s>")


def word_level() -> Tokenizer:
    """Make a tokenizer of whole words."""
    tokenizer = Tokenizer(models.WordLevel(unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    _train(tokenizer, trainers.WordLevelTrainer(special_tokens=SPECIAL_TOKENS, **_SIZES))
    return tokenizer


def whitespace_bpe() -> Tokenizer:
    """Make a BPE on the characters of words, with an unknown token for other characters."""
    tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    _train(
        tokenizer,
        trainers.BpeTrainer(special_tokens=SPECIAL_TOKENS, limit_alphabet=100, **_SIZES),
    )
    return tokenizer


def added_tokens_out_of_order() -> str:
    """Return a tokenizer.json with unsorted added tokens, which the two encoders read differently.

    `tokenizers` numbers them in the order of the file; fastokens uses the ids in the file.
    """
    saved = json.loads(tokenizer_of("byte_level"))
    last = saved["added_tokens"].pop()
    second = {**last, "id": last["id"] + 1, "content": "two words"}
    saved["added_tokens"] += [second, last]
    return json.dumps(saved)


KINDS: dict[str, Callable[[], Tokenizer]] = {
    "byte_level": byte_level,
    "byte_level_with_prefix_space": byte_level_with_prefix_space,
    "byte_level_nfc": byte_level_nfc,
    "split_pattern": split_pattern,
    "metaspace": metaspace,
    "byte_fallback": byte_fallback,
    "word_piece": word_piece,
    "unigram": unigram,
    "word_level": word_level,
    "whitespace_bpe": whitespace_bpe,
}

# The special tokens that the template of a kind puts before and after a text.
AFFIXES = {
    "byte_level_with_prefix_space": (["<s>"], ["</s>"]),
    "split_pattern": (["<|endoftext|>"], []),
    "metaspace": (["<s>"], []),
    "byte_fallback": (["<s>"], []),
    "word_piece": (["[CLS]"], ["[SEP]"]),
    "unigram": ([], ["</s>"]),
}


def with_parts(kind: str, **parts: object) -> Tokenizer:
    """Return the tokenizer of a kind with another normalizer or pre-tokenizer."""
    tokenizer = Tokenizer.from_str(tokenizer_of(kind))
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    return tokenizer


_STRIP_ACCENTS = [normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()]
_REMOVED = pre_tokenizers.Split(" ", "removed")
_WITH_SPACE = pre_tokenizers.ByteLevel(add_prefix_space=True)
_split = pre_tokenizers.Sequence
# Variants that normalize, split and take spaces otherwise.
VARIANTS: dict[str, Callable[[], Tokenizer]] = {
    "always": lambda: with_parts("metaspace", pre_tokenizer=pre_tokenizers.Metaspace()),
    "never": lambda: with_parts(
        "metaspace", pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme="never")
    ),
    "accents": lambda: with_parts("metaspace", normalizer=normalizers.Sequence(_STRIP_ACCENTS)),
    "collapse": lambda: with_parts("unigram", normalizer=normalizers.Replace(Regex(" {2,}"), " ")),
    "strip": lambda: with_parts("metaspace", normalizer=normalizers.Strip()),
    "digits": lambda: with_parts(
        "byte_level", pre_tokenizer=_split([pre_tokenizers.Digits(True), _WITH_SPACE])
    ),
    "removed": lambda: with_parts("byte_level", pre_tokenizer=_split([_REMOVED, _WITH_SPACE])),
    "t5": lambda: with_parts(
        "unigram",
        pre_tokenizer=_split([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]),
    ),
    "trimming": lambda: with_parts(
        "byte_level_with_prefix_space", post_processor=processors.ByteLevel(trim_offsets=True)
    ),
    "longer": lambda: with_parts("byte_level", normalizer=normalizers.Replace("a", "xyz")),
    "lowercase": lambda: with_parts("byte_level", normalizer=normalizers.Lowercase()),
    "dropping": lambda: with_parts("word_level", normalizer=normalizers.Replace("a", "")),
}


def tokenizer_with_all_characters(kind: str, **metaspace: object) -> dict[str, Any]:
    """Return a BPE that falls back to bytes, as large files have it, with only special tokens.

    All characters of its tokens are tokens, and some tokens are runs of spaces and cross words.

    Args:
        metaspace: options of its Metaspace to change.
    """
    saved: dict[str, Any] = json.loads(tokenizer_of(kind))
    saved["added_tokens"].pop()
    model = saved["model"]
    pairs = [("▁", "▁"), ("▁▁", "▁▁"), ("e", "▁"), ("e▁", "t"), (".", "▁"), ("▁▁", "▁a")]
    for token in (*sorted(set("".join(model["vocab"]))), *map("".join, pairs)):
        model["vocab"].setdefault(token, len(model["vocab"]))
    model["merges"] += map(list, pairs)
    if metaspace:
        saved["pre_tokenizer"] |= metaspace
    return saved


def tokenizer_with_pattern(pattern: str) -> dict[str, Any]:
    """Return a byte-level BPE that is split by a pattern, with a token for a space before U+180E.

    That character is white space for PCRE2, as before Unicode 6.3, but not for Oniguruma.
    """
    saved: dict[str, Any] = json.loads(tokenizer_of("split_pattern"))
    saved["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = pattern
    saved["added_tokens"].pop()
    model = saved["model"]
    for left, right in (("Ġ", "Ġ"), ("Ġ", "á")):
        if left + right not in model["vocab"]:
            model["vocab"][left + right] = len(model["vocab"])
            model["merges"].append([left, right])
    return saved


_SIZES = {"vocab_size": VOCAB_SIZE, "show_progress": False}


def _train(tokenizer: Tokenizer, trainer: object) -> None:
    tokenizer.train_from_iterator(sample_texts(), trainer)


def _train_byte_level(
    pre_tokenizer: object, *, normalizer: object = None, ignore_merges: bool = False
) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        special_tokens=SPECIAL_TOKENS, initial_alphabet=alphabet, **_SIZES
    )
    _train(tokenizer, trainer)
    return tokenizer


def _train_byte_fallback() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN, byte_fallback=True, fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()  # so that merges stay within words
    fallbacks = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE + 256,
        special_tokens=[*SPECIAL_TOKENS, *fallbacks],
        limit_alphabet=100,
        show_progress=False,
    )
    _train(tokenizer, trainer)
    # A trainer accepts the bytes only as special tokens, which they are not.
    saved = json.loads(tokenizer.to_str())
    saved["pre_tokenizer"] = None
    saved["added_tokens"] = saved["added_tokens"][: len(SPECIAL_TOKENS)]
    return Tokenizer.from_str(json.dumps(saved))


def _add_template(tokenizer: Tokenizer, single: str, *names: str) -> Tokenizer:
    tokenizer.post_processor = processors.TemplateProcessing(
        single=single, special_tokens=[(name, tokenizer.token_to_id(name)) for name in names]
    )
    return tokenizer
