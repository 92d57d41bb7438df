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

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, processors, trainers
from tokenizers import normalizers as norm
from tokenizers import pre_tokenizers as pre

SAMPLE_DATA = Path(__file__).parent.parent / "sample_data"
NUM_CHARACTERS = 6000  # of each training file
SPECIAL_TOKENS = ["<unk>", "<pad>", "<s>", "</s>", "<|endoftext|>", "[CLS]", "[SEP]"]
ADDED_TOKEN = "oat biscuits"  # noqa: S105
UNKNOWN = "<unk>"
# The published pattern of Llama 3's tokenizer.json.
LLAMA_3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
OPTIONS: dict[str, Any] = {"vocab_size": 500, "show_progress": False}
OPTIONS["special_tokens"] = SPECIAL_TOKENS


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
    before, after = AFFIXES.get(kind, ([], []))
    if before or after:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=" ".join([*before, "$A", *after]),
            special_tokens=[(name, tokenizer.token_to_id(name)) for name in {*before, *after}],
        )
    tokenizer.add_special_tokens(SPECIAL_TOKENS)
    tokenizer.add_tokens([AddedToken(ADDED_TOKEN, special=False)])
    return str(tokenizer.to_str())


def _set(tokenizer: Tokenizer, **parts: Any) -> Tokenizer:
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    return tokenizer


def _make(model: Any, trainer: Any, **parts: Any) -> Tokenizer:
    tokenizer = _set(Tokenizer(model), **parts)
    tokenizer.train_from_iterator(sample_texts(), trainer)
    return tokenizer


def _byte_level(pre_tokenizer: Any, *, ignore_merges: bool = False, **parts: Any) -> Tokenizer:
    alphabet = pre.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(initial_alphabet=alphabet, **OPTIONS)
    parts = {"pre_tokenizer": pre_tokenizer, "decoder": decoders.ByteLevel(), **parts}
    return _make(models.BPE(ignore_merges=ignore_merges), trainer, **parts)


def _byte_fallback(**parts: Any) -> Tokenizer:
    """Make a BPE on characters that falls back to bytes, as Llama 2 has it."""
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    options = OPTIONS | {"vocab_size": 756, "special_tokens": [*SPECIAL_TOKENS, *bytes_]}
    # Metaspace, so that merges stay within words.
    metaspace = pre.Metaspace()
    model = models.BPE(unk_token=UNKNOWN, byte_fallback=True, fuse_unk=True)
    trainer = trainers.BpeTrainer(limit_alphabet=100, **options)
    # A trainer accepts the bytes only as special tokens, which they are not.
    saved = json.loads(_make(model, trainer, pre_tokenizer=metaspace).to_str())
    saved["pre_tokenizer"] = None
    saved["added_tokens"] = saved["added_tokens"][: len(SPECIAL_TOKENS)]
    return _set(Tokenizer.from_str(json.dumps(saved)), **parts)


NO_SPACE, WITH_SPACE = (pre.ByteLevel(add_prefix_space=adds) for adds in (False, True))
BYTES_ONLY = pre.ByteLevel(add_prefix_space=False, use_regex=False)
LLAMA_3_SPLIT = pre.Split(Regex(LLAMA_3_PATTERN), behavior="isolated")
FALLING_BACK = [decoders.ByteFallback(), decoders.Fuse()]
KINDS: dict[str, Callable[[], Tokenizer]] = {
    "byte_level": lambda: _byte_level(NO_SPACE),  # GPT-2
    "byte_level_with_prefix_space": lambda: _byte_level(WITH_SPACE),  # RoBERTa's variants
    "byte_level_nfc": lambda: _byte_level(NO_SPACE, normalizer=norm.NFC()),  # Qwen
    "split_pattern": lambda: _byte_level(  # Llama 3
        pre.Sequence([LLAMA_3_SPLIT, BYTES_ONLY]), ignore_merges=True
    ),
    "metaspace": lambda: _byte_fallback(  # newer files of Llama 2
        pre_tokenizer=pre.Metaspace(prepend_scheme="first", split=False),
        decoder=decoders.Sequence([*FALLING_BACK, decoders.Metaspace()]),
    ),
    "byte_fallback": lambda: _byte_fallback(  # the first files of Llama 2
        normalizer=norm.Sequence([norm.Prepend("▁"), norm.Replace(" ", "▁")]),
        decoder=decoders.Sequence(
            [decoders.Replace("▁", " "), *FALLING_BACK, decoders.Strip(" ", 1, 0)]
        ),
    ),
    "word_piece": lambda: _make(  # BERT
        models.WordPiece(unk_token=UNKNOWN),
        trainers.WordPieceTrainer(**OPTIONS),
        normalizer=norm.BertNormalizer(lowercase=True),
        pre_tokenizer=pre.BertPreTokenizer(),
        decoder=decoders.WordPiece(),
    ),
    "unigram": lambda: _make(  # T5 and XLM-R
        models.Unigram(),
        trainers.UnigramTrainer(unk_token=UNKNOWN, **(OPTIONS | {"vocab_size": 1500})),
        normalizer=norm.NFKC(),
        pre_tokenizer=pre.Metaspace(),
        decoder=decoders.Metaspace(),
    ),
    "word_level": lambda: _make(
        models.WordLevel(unk_token=UNKNOWN),
        trainers.WordLevelTrainer(**OPTIONS),
        pre_tokenizer=pre.Whitespace(),
    ),
    "whitespace_bpe": lambda: _make(  # an unknown token stands for rare characters
        models.BPE(unk_token=UNKNOWN),
        trainers.BpeTrainer(limit_alphabet=100, **OPTIONS),
        pre_tokenizer=pre.Whitespace(),
    ),
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
    return _set(Tokenizer.from_str(tokenizer_of(kind)), **parts)


_STRIP_ACCENTS = [norm.NFD(), norm.StripAccents(), norm.Lowercase()]
_DIGITS = pre.Sequence([pre.Digits(True), WITH_SPACE])
_REMOVED = pre.Sequence([pre.Split(" ", "removed"), WITH_SPACE])
_T5 = pre.Sequence([pre.WhitespaceSplit(), pre.Metaspace()])
# Variants that normalize, split and take spaces otherwise.
VARIANTS: dict[str, Callable[[], Tokenizer]] = {
    "always": lambda: with_parts("metaspace", pre_tokenizer=pre.Metaspace()),
    "never": lambda: with_parts("metaspace", pre_tokenizer=pre.Metaspace(prepend_scheme="never")),
    "accents": lambda: with_parts("metaspace", normalizer=norm.Sequence(_STRIP_ACCENTS)),
    "collapse": lambda: with_parts("unigram", normalizer=norm.Replace(Regex(" {2,}"), " ")),
    "strip": lambda: with_parts("metaspace", normalizer=norm.Strip()),
    "digits": lambda: with_parts("byte_level", pre_tokenizer=_DIGITS),
    "removed": lambda: with_parts("byte_level", pre_tokenizer=_REMOVED),
    "t5": lambda: with_parts("unigram", pre_tokenizer=_T5),
    "trimming": lambda: with_parts(
        "byte_level_with_prefix_space", post_processor=processors.ByteLevel(trim_offsets=True)
    ),
    "bytes": lambda: with_parts("unigram", normalizer=None, pre_tokenizer=NO_SPACE),
    "longer": lambda: with_parts("byte_level", normalizer=norm.Replace("a", "xyz")),
    "lowercase": lambda: with_parts("byte_level", normalizer=norm.Lowercase()),
    "dropping": lambda: with_parts("word_level", normalizer=norm.Replace("a", "")),
}


def added_tokens_out_of_order() -> str:
    """Return a tokenizer.json with unsorted added tokens, which the two encoders read differently.

    `tokenizers` numbers them in the order of the file; fastokens uses the ids in the file.
    """
    saved = json.loads(tokenizer_of("byte_level"))
    last = saved["added_tokens"].pop()
    second = {**last, "id": last["id"] + 1, "content": "two words"}
    saved["added_tokens"] += [second, last]
    return json.dumps(saved)


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
