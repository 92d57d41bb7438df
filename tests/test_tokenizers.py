"""Tokenizers of every kind: ids, places and texts are those of `tokenizers`, by any encoder."""

from __future__ import annotations

import hashlib
import importlib
import json
import random
import struct
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
from blake3 import blake3
from command import run
from oracle.stores import PageStore, read_store
from slow_tokens import (
    SPACES,
    cover_marks,
    cut_spans,
    find_targets,
    library_of,
    random_texts,
    split_slowly,
    tag_slowly,
    trim,
)
from tokenizer_kinds import (
    ADDED_TOKEN,
    AFFIXES,
    KINDS,
    LLAMA_3_PATTERN,
    SPECIAL_TOKENS,
    UNKNOWN,
    VARIANTS,
    added_tokens_out_of_order,
    sample_texts,
    tokenizer_of,
    tokenizer_with_all_characters,
    tokenizer_with_pattern,
)
from tokenizers import (
    AddedToken,
    Tokenizer,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

FAST_KINDS = ("byte_level", "byte_level_with_prefix_space", "byte_level_nfc", "split_pattern")
TEXTS = (
    *sample_texts(),
    "",
    *(f"{token} a{token}b {token}" for token in (*SPECIAL_TOKENS, ADDED_TOKEN)),
    *("\x00", "\u2028", "\ufeff", " ", "\n", "\r\n \t", "𝄞é漢", "\U0010ffff", "\u0378"),
    *("  \u180e", "a \u180e b", " \u180e\u180e \n", "▁▁ ▁", "<0x41><0x0A>", "e .  a.  the a"),
    *random_texts(1, 40),
)


def tokenize(folder: Path, data: str, records: list[dict[str, Any]], *options: object) -> str:
    """Make a store with a tokenizer.json; return what was printed beside the summary."""
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.json").write_text(data)
    (folder / "a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    output = ("-o", folder / "store", "--tokenizer", folder, "--num-workers", 1)
    result = run("tokenize", folder / "a.jsonl", *output, *options)
    assert result.exit_code == 0, result.stderr
    return result.stderr


def tokenize_texts(folder: Path, data: str, texts: list[str], *options: object) -> str:
    return tokenize(folder, data, [{"text": text} for text in texts], *options)


def read_documents(store: PageStore) -> dict[int, list[int]]:
    """Return the ids of each document that has any."""
    assert store.documents == sorted(set(store.documents))
    return dict(zip(store.documents, store.sequences, strict=True))


def encoder_of(folder: Path) -> str:
    return str(json.loads((folder / "store" / "run.json").read_bytes())["encoder"])


def read_files(folder: Path) -> dict[str, bytes]:
    """Return the files of a store, but for what says how it was made."""
    names = [path.name for path in (folder / "store").iterdir() if path.name != "run.json"]
    return {name: (folder / "store" / name).read_bytes() for name in sorted(names)}


def check_ids(
    folder: Path,
    data: str,
    texts: list[str],
    *options: object,
    affixes: tuple[list[str], list[str]] = ([], []),
) -> str:
    """Tokenize texts, and compare the ids of each with the library; return what was printed."""
    printed = tokenize_texts(folder, data, texts, *options)
    library = library_of(data, allow="--allow-special-tokens" in options)
    saved = Tokenizer.from_str(data)
    before, after = (list(map(saved.token_to_id, names)) for names in affixes)
    expected = {}
    for number, text in enumerate(texts):
        ids = library.encode(text, add_special_tokens=False).ids
        if ids:
            expected[number] = [*before, *ids, *after]
    assert read_documents(read_store(folder / "store")) == expected
    return printed


# Ids


@pytest.mark.parametrize("kind", KINDS)
def test_ids_are_those_of_the_library(tmp_path: Path, kind: str) -> None:
    """By both encoders, with the same bytes, and with or without the template."""
    data, texts = tokenizer_of(kind), list(TEXTS)
    check_ids(tmp_path / "a", data, texts, affixes=AFFIXES.get(kind, ([], [])))
    is_fast = kind in FAST_KINDS
    assert encoder_of(tmp_path / "a") == ("fastokens" if is_fast else "tokenizers")
    if is_fast:
        (tmp_path / "a" / "a.jsonl").rename(tmp_path / "a.jsonl")
        options = ("--encoder", "tokenizers", "-o", tmp_path / "b" / "store")
        run("tokenize", tmp_path / "a.jsonl", "--tokenizer", tmp_path / "a", *options)
        assert encoder_of(tmp_path / "b") == "tokenizers"
        made = [read_store(tmp_path / name / "store") for name in "ab"]
        assert made[0].sequences == made[1].sequences
    plain = ("--no-add-special-tokens", "--allow-special-tokens", "--part-bytes", 4000)
    check_ids(tmp_path / "c", data, texts, *plain)
    assert encoder_of(tmp_path / "c") == ("fastokens" if is_fast else "tokenizers")


DEEPSEEK_PATTERN = (
    r"[!-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CL100K_PATTERN = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
)
SCHEMES = [("first", True), ("first", False), ("always", True), ("never", False)]
FAST: dict[str, dict[str, Any]] = {
    "fallback": tokenizer_with_all_characters("byte_fallback"),
    **{
        f"{scheme} {split}": tokenizer_with_all_characters(
            "metaspace", prepend_scheme=scheme, split=split
        )
        for scheme, split in SCHEMES
    },
    "deepseek": tokenizer_with_pattern(DEEPSEEK_PATTERN),
    "cl100k": tokenizer_with_pattern(CL100K_PATTERN),
    "llama 3": tokenizer_with_pattern(LLAMA_3_PATTERN),
}


@pytest.mark.parametrize("name", FAST)
def test_fast_encoder_gives_the_ids_of_the_library(tmp_path: Path, name: str) -> None:
    """BPE that falls back to bytes, and patterns for which U+180E is a space, or not."""
    texts = [*TEXTS, *random_texts(2, 20)]
    data = json.dumps(FAST[name], ensure_ascii=False)
    check_ids(tmp_path / "a", data, texts, "--encoder", "fastokens", "--no-add-special-tokens")
    assert encoder_of(tmp_path / "a") == "fastokens"


def change(saved: dict[str, Any], *path: object, **values: Any) -> str:
    """Change a part of a tokenizer.json."""
    part: Any = saved
    for name in path:
        part = part[name]
    part |= values
    return json.dumps(saved)


def saved_of(kind: str) -> dict[str, Any]:
    saved: dict[str, Any] = json.loads(tokenizer_of(kind))
    return saved


def metaspace_without(token: str) -> str:
    saved = tokenizer_with_all_characters("metaspace")
    last = saved["model"]["vocab"].pop(token)
    for name, id_ in saved["model"]["vocab"].items():
        saved["model"]["vocab"][name] = id_ - (id_ > last)
    for added in saved["added_tokens"]:
        added["id"] -= added["id"] > last
    return json.dumps(saved)


NEITHER = "it is neither byte-level BPE nor BPE that falls back to bytes"
NO_TOKENS = "its tokens have characters that are no tokens"
METASPACE = "its Metaspace has other options, or a normalizer before it"
CLASSES = "its regex has character classes that regex engines interpret differently"
STRIPS = "its special tokens strip the whitespace beside them"
PROBE = "different ids from tokenizers for the built-in test texts"
ALLOW = "--allow-special-tokens"
REFUSED: list[tuple[str, tuple[str, ...], str]] = [
    *(
        (tokenizer_of(kind), (), NEITHER)
        for kind in ("word_piece", "unigram", "word_level", "whitespace_bpe")
    ),
    *((tokenizer_of(kind), (), NO_TOKENS) for kind in ("metaspace", "byte_fallback")),
    (
        change(tokenizer_with_all_characters("metaspace"), "pre_tokenizer", replacement="_"),
        (),
        METASPACE,
    ),
    (
        change(tokenizer_with_all_characters("metaspace"), normalizer={"type": "NFC"}),
        (),
        METASPACE,
    ),
    (
        change(tokenizer_with_all_characters("metaspace"), "model", ignore_merges=True),
        (),
        "it has ignore_merges and falls back to bytes",
    ),
    (metaspace_without("<0x00>"), (), "it is not BPE that falls back to all bytes"),
    (
        json.dumps(tokenizer_with_all_characters("metaspace")),
        (ALLOW,),
        "it has added tokens beside Metaspace",
    ),
    *(
        (json.dumps(tokenizer_with_pattern(pattern), indent=indent), (), CLASSES)
        for pattern, indent in (
            (r"\w+|.", None),
            (r"a|\W", 2),
            (r"\b.", None),
            (r"x\By|.", None),
            ("[[:alpha:]]+|.", 1),
            (r'"\w"|.', None),
        )
    ),
    *(
        (change(saved_of("byte_level"), "added_tokens", at, **{side: True}), (ALLOW,), STRIPS)
        for side in ("lstrip", "rstrip")
        for at in (0, -1)
    ),
    (added_tokens_out_of_order(), (), PROBE),
    (
        change(
            saved_of("split_pattern"),
            normalizer={"type": "Replace", "pattern": {"Regex": "(a+a+)+b"}, "content": "x"},
        ),
        (),
        "tokenizers fails on the built-in test texts (",
    ),
]


@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_library_encodes_what_the_fast_encoder_does_not(
    tmp_path: Path, case: int, capfd: pytest.CaptureFixture[str]
) -> None:
    """With a note, and nothing else on stderr; asked for, the fast encoder is refused."""
    data, options, reason = REFUSED[case]
    texts = ["a  b <s> c", f"some {ADDED_TOKEN}", "é<0x41> 12"]
    printed = check_ids(tmp_path, data, texts, "--no-add-special-tokens", *options)
    assert encoder_of(tmp_path) == "tokenizers"
    is_refused = not reason.startswith(("different", "tokenizers"))
    note = "fastokens does not support this tokenizer" if is_refused else f"fastokens: {reason}"
    assert printed.startswith(f"note: {note}") and printed.count("\n") == 1
    assert capfd.readouterr().err == ""  # of a panic in Rust
    if reason.startswith("tokenizers fails"):
        return  # which takes a second
    arguments = ("--tokenizer", tmp_path, "-o", tmp_path / "b", *options)
    result = run("tokenize", tmp_path / "a.jsonl", *arguments, "--encoder", "fastokens")
    assert result.exit_code == (2 if is_refused else 3)
    assert reason in result.stderr


@pytest.mark.parametrize("side", ["lstrip", "rstrip"])
@pytest.mark.parametrize("at", [0, 3, -1])
def test_tokens_that_strip_spaces_are_those_of_the_library(
    tmp_path: Path, at: int, side: str
) -> None:
    data = change(saved_of("byte_level"), "added_tokens", at, **{side: True})
    texts = [
        f"a{blank}{token}{blank}b"
        for token in (*SPECIAL_TOKENS, ADDED_TOKEN)
        for blank in ("", " ", "  ", "\n", " \t\u3000")
    ]
    check_ids(tmp_path, data, texts)


class WrongOn:
    """A fast encoder that gives other ids, or fails, where texts have a word."""

    def __init__(self, real: Any, word: str, fault: str) -> None:
        self.real, self.word, self.fault = real, word, fault

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def encode_batch_flat(self, texts: list[str], **options: Any) -> tuple[bytes, bytes]:
        ids, offsets = self.real.encode_batch_flat(texts, **options)
        if not any(self.word in text for text in texts):
            return ids, offsets
        if self.fault == "fails":
            raise RuntimeError("no\nluck")
        found, ends = np.frombuffer(ids, "<u4").copy(), np.frombuffer(offsets, "<u8").copy()
        if self.fault == "other id":
            found[-1] += 1
        elif self.fault == "borders":
            ends[1:-1] -= 1
        elif self.fault == "fewer":
            ends = ends[[0, *range(2, len(ends))]]
        return found.tobytes(), ends.tobytes()


@pytest.mark.parametrize(
    ("fault", "number", "said"),
    [
        ("other id", 0, "different ids from tokenizers for {}:1"),
        ("borders", 3, "different ids from tokenizers for {}:1"),
        ("fewer", 1, "different ids from tokenizers for {}:1"),
        ("fails", 2, "fastokens failed: no luck"),
        ("other id", 41, ""),  # behind the first 4 KiB: nobody compares
        ("other id", 40, "different ids from tokenizers for {}:1"),
    ],
)
def test_first_texts_of_each_part_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, number: int, said: str
) -> None:
    import fastokens

    real = fastokens.Tokenizer

    class Opened:
        @staticmethod
        def from_json_str(text: str) -> WrongOn:
            return WrongOn(real.from_json_str(text), "Zaphod", fault)

    monkeypatch.setattr(fastokens, "Tokenizer", Opened)
    data = tokenizer_of("byte_level") + " " * (number + len(fault))  # was not opened before
    texts = [f"{at:03}" + "b" * 97 for at in range(50)]
    texts[number] = texts[number][:10] + "Zaphod" + texts[number][16:]
    printed = tokenize_texts(tmp_path, data, texts)
    expected = said.format(tmp_path / "a.jsonl")
    note = f"note: fastokens: {expected}; using tokenizers for the whole run\n"
    assert printed == (note if said else "")
    assert encoder_of(tmp_path) == ("tokenizers" if said else "fastokens")


# The place of each token


def open_kind(kind: str) -> str:
    """Return a tokenizer.json that has special tokens which take the spaces beside them too."""
    tokenizer = VARIANTS[kind]() if kind in VARIANTS else Tokenizer.from_str(tokenizer_of(kind))
    taking = [("<right>", False, True), ("<left>", True, False), ("<both>", True, True)]
    tokenizer.add_special_tokens(
        [
            AddedToken(content, lstrip=left, rstrip=right, normalized=False, special=True)
            for content, left, right in taking
        ]
    )
    tokenizer.add_tokens([AddedToken("12", single_word=True, special=False)])
    return str(tokenizer.to_str())


DROPS_SPACES = ("word_piece", "word_level", "whitespace_bpe", "t5", "dropping")
COMPOSES = ("byte_level_nfc", "unigram", "collapse", "t5")
BORDERS = (
    "A: yes\n\nno  \r\n🙂 é中文\t12 a\u3000b<s> </s>x<both>\nThe cat",
    " \n x",
    "🙂 <left>  <right>  x <right>▁a<right>\u0301 a",
    "xe\u0301 x\u1112\u1161\u11ab",
    "   ",
    "",
)


TAKING = ("byte_level_with_prefix_space", "metaspace", "byte_fallback", "unigram", "t5", "accents")


@pytest.mark.parametrize(
    ("kind", "allow"),
    [*((kind, False) for kind in (*KINDS, *VARIANTS)), *((kind, True) for kind in TAKING)],
)
def test_targets_are_exact_at_every_border(tmp_path: Path, kind: str, allow: bool) -> None:
    """A target has all its characters behind the border, as `tokenizers` places them."""
    data = open_kind(kind)
    library = library_of(data, allow=allow)
    texts = [*BORDERS, *random_texts(3 + allow, 6, without="▁" if kind in DROPS_SPACES else "")]
    records, expected, num_straddling = [], [], 0
    for text in texts:
        encoding = library.encode(text, add_special_tokens=False)
        places = encoding.offsets
        if kind in DROPS_SPACES:
            places = [trim(text, *place) for place in places]
        if kind in COMPOSES:
            places = cover_marks(text, places)
        for border in range(len(text) + 1):
            records.append({"q": text[:border], "a": text[border:]})
            if encoding.ids:
                bits, count = find_targets(text, places, border)
                expected.append((text, border, encoding.ids, bits))
                num_straddling += count
    options = ("--prompt-field", "q", "--completion-field", "a", "--no-add-special-tokens")
    tokenize(tmp_path, data, records, *options, *["--allow-special-tokens"] * allow)
    store = read_store(tmp_path / "store")
    for found, (text, border, *wanted) in zip(
        zip(store.sequences, store.columns["targets"], strict=True), expected, strict=True
    ):
        assert list(found) == wanted, (text, border)
    assert store.manifest["ledger"]["num_straddling_tokens"] == num_straddling


@pytest.mark.parametrize("kind", [*KINDS, *VARIANTS])
def test_tags_are_those_of_the_words_and_spans_in_which_tokens_begin(
    tmp_path: Path, kind: str
) -> None:
    data, numbers = open_kind(kind), random.Random(kind)
    subtokens = numbers.choice(["first", "all"])
    library = library_of(data, allow=False)
    records: list[dict[str, Any]] = []
    cases: list[tuple[str, list[tuple[int, Any]], Any]] = []
    for seed in range(24):
        texts = random_texts(seed, numbers.randrange(6), without="▁")
        if seed % 2:
            labels = numbers.choices("XYZ", k=len(texts))
            starts = [len(" ".join([*texts[:at], ""])) for at in range(len(texts))]
            cases.append((" ".join(texts), list(zip(starts, labels, strict=True)), None))
            records.append({"text": texts, "tags": labels})
            continue
        text = "".join(texts)
        cuts = sorted(numbers.sample(range(len(text) + 1), min(len(text) + 1, 6)))
        spans = [[a, b, numbers.choice("XYZ")] for a, b in pairwise(cuts) if numbers.random() < 0.6]
        cases.append((text, cut_spans(text, spans, "O"), "O"))
        numbers.shuffle(spans)
        named = [dict(zip(("start", "end", "label"), span, strict=True)) for span in spans]
        records.append({"text": text, "tags": numbers.choice([spans, named])})
    expected, num_lost = [], 0
    for text, segments, outside in cases:
        encoding = library.encode(text, add_special_tokens=False)
        places = [trim(text, *place) for place in encoding.offsets]
        for at, id_ in enumerate(encoding.ids):
            if not library.decode([id_], skip_special_tokens=False).strip(SPACES):
                places[at] = (0, 0)  # it stands for a space that was added, or is one
        if encoding.ids:
            labels, seen = tag_slowly(text, segments, places, subtokens)
            expected.append((encoding.ids, labels))
            num_lost += sum(
                label != outside for at, (_, label) in enumerate(segments) if at not in seen
            )
        else:
            num_lost += sum(label != outside for _, label in segments)
    options = ("--keep", "tags:tags", "--tag-subtokens", subtokens, "--no-add-special-tokens")
    tokenize(tmp_path, data, records, *options)
    store = read_store(tmp_path / "store")
    for found in zip(
        zip(store.sequences, store.columns["tags"], strict=True), expected, strict=True
    ):
        assert list(found[0]) == list(found[1])
    assert store.manifest["ledger"]["num_words_without_token"] == num_lost


def charsmap_without(character: str) -> bytes:
    """Return a compiled map of SentencePiece that removes one ASCII character, and nothing else.

    Its header, then a trie in units of 32 bits (label, bit 8: has a leaf, from bit 10: where its
    children are), then the replacements, each ended by a NUL.
    """
    code = ord(character)
    trie = [0] * 256
    trie[0] = 128 << 10
    trie[128 ^ code] = code | 1 << 8 | 1 << 10
    return struct.pack(f"<I{len(trie)}I", 4 * len(trie), *trie) + b"\0"


def word_level(words: list[str] | dict[str, int], unknown: str = UNKNOWN) -> Tokenizer:
    numbers = words if isinstance(words, dict) else {word: at for at, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token=unknown))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return tokenizer


WRONG_PLACES: list[tuple[tuple[str, ...], list[dict[str, Any]], list[Any]]] = [
    (
        ("--keep", "tags:tags"),
        [
            {"text": "b a", "tags": [[0, 1, "X"]]},
            {"text": "\x10a b", "tags": [[1, 2, "Y"]]},
            {"text": "\x10? b", "tags": []},
        ],
        [["X", "O"], ["Y", "O"]],
    ),
    (
        ("--prompt-field", "q", "--completion-field", "a"),
        [{"q": "b", "a": " a"}, {"q": "\x10a", "a": " b"}, {"q": "\x10?", "a": " b"}],
        [[0, 1], [0, 1]],
    ),
]


@pytest.mark.parametrize(("options", "records", "expected"), WRONG_PLACES)
def test_wrong_offsets_of_the_library_are_repaired_or_refused(
    tmp_path: Path, options: tuple[str, ...], records: list[dict[str, Any]], expected: list[Any]
) -> None:
    """They are wrong behind a first character that the normalizer removes."""
    tokenizer = word_level([UNKNOWN, "a", "b"])
    tokenizer.normalizer = normalizers.Precompiled(charsmap_without("\x10"))
    assert tokenizer.encode("\x10a b").offsets == [(0, 1), (2, 3)]
    tokenize(tmp_path, str(tokenizer.to_str()), records[:2], *options)
    (found,) = read_store(tmp_path / "store").columns.values()
    assert found == expected
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(it) + "\n" for it in records))
    output = ("--tokenizer", tmp_path, "-o", tmp_path / "b")
    result = run("tokenize", tmp_path / "a.jsonl", *output, *options)
    assert result.exit_code == 3
    said = f"{tmp_path / 'a.jsonl'}:3: the tokens at 'b' spell nothing, expected 'b'"
    assert said in result.stderr


# Special tokens

SPECIALS = ["<unk>", "<bos>", "<eos>", "<sep>"]


def with_template(template: str | None, words: tuple[str, ...] = ("a", "b")) -> str:
    tokenizer = word_level([*SPECIALS, *words])
    tokenizer.add_special_tokens(SPECIALS)
    if template is not None:
        names = [(name, at) for at, name in enumerate(SPECIALS)]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=template, special_tokens=names
        )
    return str(tokenizer.to_str())


@pytest.mark.parametrize(
    ("template", "options", "expected"),
    [
        (None, "", "45"),
        ("$A", "", "45"),
        ("<bos> $A", "", "145"),
        ("$A <eos>", "", "452"),
        ("<bos> <sep> $A <sep> <eos> <eos>", "", "1345322"),
        ("<bos> $A <eos>", "--bos <bos> --eos <eos>", "1452"),
        ("<bos> $A <eos>", "--no-add-special-tokens", "45"),
        ("<bos> $A <eos>", "--no-add-special-tokens --bos <bos>", "145"),
        ("$A <eos>", "--bos <bos> --eos <eos>", "1452"),
        ("<sep> $A <sep>", "--bos <bos> --eos <eos>", "134532"),
        ("<bos> <sep> $A", "--bos <bos> --eos a", "13454"),
        (None, "--bos <eos> --eos <eos>", "2452"),
        ("<bos> <sep> $A <sep> <eos>", "--bos <bos> --eos <eos>", "134532"),
        ("<sep> <bos> $A <eos> <sep>", "--bos <bos> --eos <eos>", "13145232"),
    ],
)
def test_template_bos_and_eos_are_put_around_each_text(
    tmp_path: Path, template: str | None, options: str, expected: str
) -> None:
    tokenize_texts(tmp_path, with_template(template), ["a b", "", "b"], *options.split())
    wanted = [list(map(int, expected)), list(map(int, expected.replace("45", "5")))]
    assert read_store(tmp_path / "store").sequences == wanted


def test_template_is_found_without_the_letter_a(tmp_path: Path) -> None:
    """A vocabulary of another script still has its <bos> and <eos>."""
    tokenizer = Tokenizer(models.BPE({"<bos>": 0, "<eos>": 1, "я": 2}, []))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<bos> $A <eos>", special_tokens=[("<bos>", 0), ("<eos>", 1)]
    )
    tokenize_texts(tmp_path, str(tokenizer.to_str()), ["я"])
    assert read_store(tmp_path / "store").sequences == [[0, 2, 1]]


LETTERS = ("ab<|", "a.\\[(*|^é𝄞\n")


def byte_level_with(special: list[str]) -> str:
    """Return a BPE with a token for each byte and some special tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: at for at, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.add_special_tokens(special)
    return str(tokenizer.to_str())


def find_spelled(tokens: list[str], text: str) -> list[str]:
    """Scan a text; where tokens begin, take the longest and continue behind it."""
    found, place = [], 0
    while place < len(text):
        here = max(
            [token for token in tokens if text.startswith(token, place)], key=len, default=""
        )
        found += [here] * bool(here)
        place += len(here) or 1
    return found


@pytest.mark.parametrize("seed", range(16))
def test_special_tokens_that_texts_spell_are_counted_and_stay_text(
    tmp_path: Path, seed: int
) -> None:
    """In texts of any number of parts and files; allowed, they are ids."""
    numbers = random.Random(seed)
    letters = LETTERS[seed % 2]
    tokens = sorted({"".join(numbers.choices(letters, k=numbers.randint(2, 5))) for _ in range(6)})
    if seed == 0:
        tokens = [f"<|{name}_{at}|>" for name in ("reserved", "r", "im") for at in range(99)]
    if seed == 1:
        tokens = ["a" * length for length in range(2, 9)]
    pieces = [*tokens, *tokens, *letters, "x"]
    texts = ["".join(numbers.choices(pieces, k=numbers.randrange(12))) for _ in range(30)]
    data, files = byte_level_with(tokens), []
    (tmp_path / "tokenizer.json").write_text(data)
    for number, some in enumerate((texts[:7], texts[7:])):
        files.append(tmp_path / f"zwölf {number}.jsonl")
        files[-1].write_text("".join(json.dumps({"text": text}) + "\n" for text in some))
    options = ("--tokenizer", tmp_path, "--part-bytes", numbers.choice([1, 200, 10_000]))
    allow = ("--allow-special-tokens",) * (seed % 4 == 2)
    options += ("--encoder", "tokenizers" if seed > 4 else "auto")
    assert run("tokenize", *files, *options, *allow, "-o", tmp_path / "store").exit_code == 0
    counts: dict[str, dict[str, Any]] = {}
    for number, text in enumerate(texts):
        place = {"source": str(files[number >= 7]), "record": number + (1 if number < 7 else -6)}
        found = find_spelled(tokens, text)
        for token in dict.fromkeys(found):
            entry = counts.setdefault(token, {"token": token, "count": 0, "places": []})
            entry["count"] += found.count(token)
            entry["places"] += [place] if len(entry["places"]) < 5 else []
    lines = (tmp_path / "store" / "special_tokens.jsonl").read_text().splitlines()
    assert list(map(json.loads, lines)) == [counts[token] for token in sorted(counts)]
    store = read_store(tmp_path / "store")
    total = sum(entry["count"] for entry in counts.values())
    assert store.manifest["ledger"]["num_special_tokens_in_text"] == total
    shown = json.loads(run("inspect", tmp_path / "store", "--vocabulary", "--json").stdout)
    assert shown["spelled_in_text"]["num_tokens"] == total
    library = library_of(data, allow=bool(allow))
    assert store.sequences == [library.encode(text).ids for text in texts if text]


def test_store_without_spelled_tokens_has_no_such_file(tmp_path: Path) -> None:
    tokenize_texts(tmp_path, tokenizer_of("byte_level"), ["<s", "s>"])
    assert not (tmp_path / "store" / "special_tokens.jsonl").exists()
    shown = json.loads(run("inspect", tmp_path / "store", "--vocabulary", "--json").stdout)
    assert shown["spelled_in_text"] == {"num_tokens": 0, "tokens": []}


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda _: "", "special_tokens.jsonl: 0 special tokens, manifest.json says 4"),
        (lambda text: text[:-1], "special_tokens.jsonl:2: no line end"),
        (lambda text: text[:-9] + "\n", "special_tokens.jsonl:2: not JSON"),
        (lambda text: text.splitlines()[0] + "\n", ": 3 special tokens, manifest.json says 4"),
        (lambda text: "\n".join(text.splitlines()[::-1]) + "\n", ":2: token '</s>' after '<s>'"),
        (lambda text: text.replace('"record": 2', '"record": 4'), ":2: record 4 of "),
        (lambda text: text.replace('"record": 2', '"record": 0'), ":2: record 0 of "),
        (lambda text: text.replace('"count": 3', '"count": 1'), ":1: 2 places for a count of 1"),
        (lambda text: text.replace('"count": 1', '"count": 0'), ":2: 1 places for a count of 0"),
    ],
)
def test_damaged_list_of_spelled_tokens_is_refused(tmp_path: Path, spoil: Any, said: str) -> None:
    texts = ["</s></s>", "<s>", "</s>"]
    tokenize_texts(tmp_path, tokenizer_of("byte_level"), texts)
    path = tmp_path / "store" / "special_tokens.jsonl"
    path.write_text(spoil(path.read_text()))
    result = run("inspect", tmp_path / "store", "--vocabulary")
    assert result.exit_code == 4
    assert said in result.stderr


TRAINERS = {
    "unigram": (models.Unigram, trainers.UnigramTrainer, {"unk_token": UNKNOWN}),
    "wordlevel": (models.WordLevel, trainers.WordLevelTrainer, {}),
    "wordpiece": (models.WordPiece, trainers.WordPieceTrainer, {}),
    "bpe": (models.BPE, trainers.BpeTrainer, {}),
    "ignoring merges": (models.BPE, trainers.BpeTrainer, {}),
    "merging": (models.BPE, trainers.BpeTrainer, {}),
}


@pytest.mark.parametrize("kind", TRAINERS)
def test_no_model_writes_a_special_token_that_a_text_spells(tmp_path: Path, kind: str) -> None:
    """Though the library does, where it is one of the words of the model."""
    make_model, make_trainer, others = TRAINERS[kind]
    tokenizer = Tokenizer(make_model(**({} if others else {"unk_token": UNKNOWN})))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = [UNKNOWN, "<|end|>", "§"]
    trainer = make_trainer(vocab_size=60, special_tokens=special, show_progress=False, **others)
    tokenizer.train_from_iterator(["an end | and <an> end of it"] * 9, trainer)
    saved = json.loads(tokenizer.to_str())
    if kind == "ignoring merges":
        saved["model"]["ignore_merges"] = True
    if kind == "merging":
        saved["model"]["merges"] += [["<", "|"], ["<|", "e"], ["<|e", "n"], ["<|en", "d"]]
        saved["model"]["merges"] += [["<|end", "|"], ["<|end|", ">"]]
        for merge in saved["model"]["merges"]:
            saved["model"]["vocab"].setdefault("".join(merge), len(saved["model"]["vocab"]))
    data = json.dumps(saved, ensure_ascii=False)
    texts = ["an <|end|> of § it<|end|>", "an end of it", "hidden 1", " \U00100001 "]
    for number, options in enumerate([(), ("--allow-special-tokens",)]):
        check_ids(tmp_path / f"{number}", data, texts, *options)
    own = [tokenizer.token_to_id(token) for token in special[1:]]
    text, allowed = (read_store(tmp_path / name / "store").sequences for name in "01")
    assert not {*own} & {id_ for ids in text for id_ in ids}
    assert [id_ for id_ in allowed[0] if id_ in own] == [own[0], own[1], own[0]]
    assert text[1] == allowed[1]


# The vocabulary


@pytest.mark.parametrize(
    ("names", "files", "expected"),
    [
        (["[PAD]", "[UNK]", "[BOS]", "[EOS]"], {}, (0, 2, 3, 1)),
        (["<s>", "</s>", "<unk>", "<pad>"], {}, (3, 0, 1, 2)),
        (["<|endoftext|>", "a", "b", "c"], {}, (None, None, 0, None)),
        (["<|begin_of_text|>", "<|end_of_text|>", "a", "b"], {}, (None, 0, 1, None)),
        (["<eos>", "</s>", "<|padding|>", "<|unk|>"], {}, (2, None, 0, 3)),
        (["a", "b", "c", "d"], {}, (None, None, None, None)),
        (
            ["<pad>", "<s>", "</s>", "<unk>", "x"],
            {
                "config": {
                    "pad_token": "x",
                    "bos_token": "no",
                    "eos_token": {"content": "x"},
                    "unk_token": "<s>",
                }
            },
            (4, 1, 4, 3),  # the tokenizer itself says which one is unknown
        ),
        (["<s>", "x", "y"], {"map": {"bos_token": "x", "eos_token": "y"}}, (None, 1, 2, None)),
        (
            ["<s>", "x", "y"],
            {"config": {"bos_token": "y"}, "map": {"bos_token": "x", "eos_token": "x"}},
            (None, 1, 1, None),
        ),
        (
            ["<s>", "x", "y"],
            {"config": {"bos_token": "y", "added_tokens_decoder": {}}, "map": {"bos_token": "x"}},
            (None, 2, None, None),
        ),
        (["<s>", "x"], {"config": {"bos_token": 7, "eos_token": None}}, (None, 0, None, None)),
    ],
)
def test_roles_are_found_in_files_and_by_common_names(
    tmp_path: Path, names: list[str], files: dict[str, Any], expected: tuple[int | None, ...]
) -> None:
    paths = {"config": "tokenizer_config.json", "map": "special_tokens_map.json"}
    for name, value in files.items():
        (tmp_path / paths[name]).write_text(json.dumps(value))
    tokenize_texts(tmp_path, str(word_level([*names, "text"], "<unk>").to_str()), ["text"])
    manifest = read_store(tmp_path / "store").manifest
    found = tuple(manifest[f"{role}_id"] for role in ("pad", "bos", "eos", "unk"))
    assert found == expected


@pytest.mark.parametrize(
    ("numbers", "added", "facts"),
    [
        ({"a": 0, "b": 65_535}, (), (2, 65_535, "uint16")),
        ({"a": 0, "b": 65_536}, (), (2, 65_536, "int32")),
        ({"a": 5, "b": 70_000}, ("<eos>",), (3, 70_000, "int32")),
        ({"a": 0, "b": 1, "c": 1}, (), (3, 1, "uint16")),
        ({"a": 0, "b": 2**31 - 1}, (), (2, 2**31 - 1, "int32")),
    ],
)
def test_vocabulary_may_have_gaps_and_equal_ids(
    tmp_path: Path, numbers: dict[str, int], added: tuple[str, ...], facts: tuple[int, int, str]
) -> None:
    tokenizer = word_level({"a": 0}, "a")
    tokenizer.add_special_tokens(list(added))
    saved = json.loads(tokenizer.to_str())
    saved["model"]["vocab"] = numbers
    for at, token in enumerate(saved["added_tokens"]):
        token["id"] = max(numbers.values()) + 1 + at
    library = Tokenizer.from_str(json.dumps(saved))
    tokenize_texts(tmp_path, json.dumps(saved), ["a b", "b"])
    store = read_store(tmp_path / "store")
    assert store.sequences == [library.encode(text).ids for text in ("a b", "b")]
    assert tuple(store.manifest[name] for name in ("vocab_size", "max_id", "dtype")) == facts
    shown = json.loads(run("inspect", tmp_path / "store", "--vocabulary", "--json").stdout)
    assert shown["num_ids"] == len(set(numbers.values())) + len(added)
    assert shown["num_used_ids"] == 2


@pytest.mark.parametrize("name", ["truncation", "padding", "dropout"])
def test_settings_saved_in_a_tokenizer_are_off(tmp_path: Path, name: str) -> None:
    tokenizer = Tokenizer.from_str(tokenizer_of("byte_level"))
    expected = tokenizer.encode("The cat and the dog").ids
    if name == "truncation":
        tokenizer.enable_truncation(2)
    elif name == "padding":
        tokenizer.enable_padding(length=90)
    else:
        tokenizer.model.dropout = 0.5
    for at, encoder in enumerate(("tokenizers", "auto")):
        folder = tmp_path / str(at)
        options = ("--encoder", encoder)
        printed = tokenize_texts(folder, str(tokenizer.to_str()), ["The cat and the dog"], *options)
        assert printed == f"note: tokenizer.json: ignoring its saved {name}\n"
        assert read_store(folder / "store").sequences == [expected]


BROKEN: list[tuple[bytes | None, str, int, str]] = [
    *(
        (data, "tokenizer.json", 3, "expected a file in the format of Hugging Face's tokenizers")
        for data in (
            b"",
            b"{}",
            b"[]",
            b"\xff",
            b"PK\3\4",
            b'{"model": {}}',
            b"1",
            b'{"a": "dropout": 1.}',
        )
    ),
    (b'{"model": {"type": "BPE", "vocab": {}, "merges": []}}', "tokenizer.json", 3, "is empty"),
    (None, "tokenizer.json", 2, "no such file"),
    (None, "./gone", 2, "no such file"),
    (None, "a/b/c", 2, "no such file"),
    (None, "folder", 2, "folder/tokenizer.json: no such file"),
    (None, "link", 2, "link: no such file"),
    (
        word_level({"a": 0, "b": 77_777}).to_str().replace("77777", "2147483648").encode(),
        "tokenizer.json",
        3,
        "its largest id is 2,147,483,648, expected at most 2,147,483,647",
    ),
    (with_template("<bos> <eos>", ()).encode(), "tokenizer.json", 3, "unsupported template"),
    (word_level(["a"]).to_str().encode(), "tokenizer.json", 3, "a.jsonl:2: tokenizer.json: "),
]


@pytest.mark.parametrize(("data", "name", "code", "said"), BROKEN)
def test_tokenizer_that_cannot_be_used_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    data: bytes | None,
    name: str,
    code: int,
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("link").symlink_to("nowhere")
    Path("a.jsonl").write_text('{"text": "a"}\n{"text": "c"}\n')
    if data is not None:
        Path(name).write_bytes(data)
    result = run("tokenize", "a.jsonl", "--tokenizer", name, "-o", "store")
    assert result.exit_code == code
    assert said in result.stderr


@pytest.mark.parametrize("option", ["--bos", "--eos"])
def test_unknown_token_is_refused(tmp_path: Path, option: str) -> None:
    (tmp_path / "a.txt").write_text("a\n")
    result = run("tokenize", tmp_path / "a.txt", option, "<start>", "-o", tmp_path / "store")
    assert result.exit_code == 2
    assert "token '<start>': not in the tokenizer's vocabulary" in result.stderr
    assert "'<pad>', '<bos>', '<eos>'" in result.stderr


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("tokenizer_config.json", b"[]", "tokenizer_config.json: [], expected an object"),
        ("special_tokens_map.json", b"{", "special_tokens_map.json: not JSON ("),
        ("tokenizer_config.json", b"\xff", "tokenizer_config.json: byte 0xff, expected UTF-8"),
    ],
)
def test_broken_file_beside_a_tokenizer_is_refused(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    (tmp_path / "tokenizer.json").write_text(tokenizer_of("byte_level"))
    (tmp_path / "a.txt").write_text("a\n")
    (tmp_path / name).write_bytes(content)
    result = run("tokenize", tmp_path / "a.txt", "--tokenizer", tmp_path, "-o", tmp_path / "store")
    assert result.exit_code == 3
    assert f"{tmp_path}/{said}" in result.stderr


@pytest.mark.parametrize(
    ("change_store", "said"),
    [
        (
            lambda folder, _: (folder / "tokenizer.json").write_text("{}"),
            "not a tokenizer (",
        ),
        (
            lambda _, manifest: manifest.update(vocab_size=500),
            "vocab_size is 501, manifest says 500",
        ),
        (lambda _, manifest: manifest.update(max_id=502), "max_id is 500, manifest says 502"),
    ],
)
def test_kept_tokenizer_must_fit_the_manifest(tmp_path: Path, change_store: Any, said: str) -> None:
    tokenize_texts(tmp_path, tokenizer_of("byte_level"), ["a"])
    folder = tmp_path / "store"
    assert run("inspect", folder).exit_code == 0
    manifest = json.loads((folder / "manifest.json").read_bytes())
    change_store(folder, manifest)
    manifest["tokenizer_blake3"] = blake3((folder / "tokenizer.json").read_bytes()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))
    result = run("inspect", folder)
    assert result.exit_code == 4
    assert said in result.stderr


# Byte tokenizer


GOLDEN = "f59667538c5ce3232533ce6fe7b52929ec5a70f8d70d398796337c7e5bd1f171"


@pytest.mark.parametrize("allow", [False, True])
def test_byte_tokenizer_gives_bytes_and_is_one_of_the_library(tmp_path: Path, allow: bool) -> None:
    texts = [*TEXTS, "é<eos> <pad>", "".join(map(chr, range(0x800))), "\u0800\uffff\U00010000"]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    options = ("--bos", "<bos>", *["--allow-special-tokens"] * allow)
    for encoder in ("auto", "tokenizers"):
        output = ("-o", tmp_path / encoder / "store", "--encoder", encoder)
        assert run("tokenize", tmp_path / "a.jsonl", *output, *options).exit_code == 0
    assert read_files(tmp_path / "auto") == read_files(tmp_path / "tokenizers")
    is_ours = not allow
    assert (encoder_of(tmp_path / "auto") == "bytes") == is_ours
    data = (tmp_path / "auto" / "store" / "tokenizer.json").read_bytes()
    assert hashlib.sha256(data).hexdigest() == GOLDEN  # stores name it so: it never changes
    library = Tokenizer.from_str(data.decode())
    library.encode_special_tokens = not allow
    found = read_store(tmp_path / "auto" / "store").sequences
    assert found == [[257, *library.encode(text).ids] for text in texts if text]
    if is_ours:
        assert found == [[257, *text.encode()] for text in texts if text]
    assert [library.token_to_id(name) for name in ("<pad>", "<bos>", "<eos>")] == [256, 257, 258]


# Texts of ids


def open_decoding(kind: str) -> str:
    """Return the tokenizer of a kind, or one with another decoder."""
    saved = json.loads(tokenizer_of(kind if kind in KINDS else "whitespace_bpe"))
    if kind not in KINDS:
        saved["decoder"] = DECODERS[kind]
    return json.dumps(saved)


DECODERS: dict[str, Any] = {
    "none": None,
    "metaspace": {
        "type": "Metaspace",
        "replacement": "e",
        "prepend_scheme": "always",
        "split": True,
    },
    "bpe": {"type": "BPEDecoder", "suffix": "e"},
    "ctc": {"type": "CTC", "pad_token": "e", "word_delimiter_token": "t", "cleanup": True},
    "replacing": {
        "type": "Sequence",
        "decoders": [
            {"type": "Replace", "pattern": {"Regex": "(a|t)+h"}, "content": "dd"},
            *({"type": "ByteFallback"}, {"type": "Fuse"}),
            {"type": "Strip", "content": "a", "start": 1, "stop": 0},
        ],
    },
}


@pytest.mark.parametrize("kind", [*KINDS, *(f"{kind} decoder" for kind in DECODERS)])
def test_ids_are_decoded_and_split_as_the_library_does(tmp_path: Path, kind: str) -> None:
    """Any ids, also parts of characters, as `inspect` shows them and `unpack` writes them."""
    data = open_decoding(kind.removesuffix(" decoder") if "decoder" in kind else kind)
    library, numbers = Tokenizer.from_str(data), random.Random(kind)
    text = f"The quick {SPECIAL_TOKENS[4]} ґанку, 雨 {ADDED_TOKEN} don't 😀  go . \n"
    rows = [library.encode(text).ids]
    rows += [
        [numbers.randrange(library.get_vocab_size()) for _ in range(length)]
        for length in (2, 30, 257 if kind in ("byte_level", "byte_fallback") else 1)
    ]
    (tmp_path / "tokenizer.json").write_text(data)
    (tmp_path / "a.jsonl").write_text(
        "".join(json.dumps({"input_ids": row}) + "\n" for row in rows)
    )
    store, shards = tmp_path / "store", tmp_path / "shards"
    assert run("import", tmp_path / "a.jsonl", "--tokenizer", tmp_path, "-o", store).exit_code == 0
    for number, row in enumerate(rows):
        shown = json.loads(run("inspect", store, "--sequence", number, "--json").stdout)
        assert shown["text"] == library.decode(row, skip_special_tokens=False)
        pieces = [(piece["text"], piece["ids"]) for piece in shown["tokens"]]
        assert pieces == split_slowly(library, row)
    assert (
        run("pack", store, "-o", shards, "--layout", "varlen", "--max-tokens", 5000).exit_code == 0
    )
    written = run("unpack", shards, "--text", "-o", "-").stdout.split("\n")[:-1]
    texts = [library.decode(row, skip_special_tokens=False) for row in rows]
    assert [json.loads(line)["text"] for line in written] == texts


def test_very_long_text_is_one_piece(tmp_path: Path) -> None:
    """Also one whose decoder fails on a part of it."""
    lengths = [1 << 17, (1 << 17) + 1]
    for number, (length, count) in enumerate(zip(lengths, (2, 1), strict=True)):
        folder = tmp_path / str(number)
        saved = json.loads(word_level(["x" * length], "x" * length).to_str())
        saved["decoder"] = {"type": "Fuse"}
        tokenize_texts(folder, json.dumps(saved), ["x" * length + " y"])
        shown = json.loads(run("inspect", folder / "store", "--sequence", 0, "--json").stdout)
        assert [len(piece["text"]) for piece in shown["tokens"]] == [length * 2 // count] * count
    saved = json.loads(word_level(["", "ab"], "ab").to_str())
    strip = {"type": "Strip", "content": "b", "start": 0, "stop": 1}
    saved["decoder"] = {"type": "Sequence", "decoders": [{"type": "Fuse"}, strip]}
    (tmp_path / "tokenizer.json").write_text(json.dumps(saved))
    (tmp_path / "a.jsonl").write_text('{"input_ids": [0, 1]}\n{"input_ids": [1, 1]}\n')
    store = tmp_path / "store"
    assert run("import", tmp_path / "a.jsonl", "--tokenizer", tmp_path, "-o", store).exit_code == 0
    shown = [json.loads(run("inspect", store, "--sequence", at, "--json").stdout) for at in (0, 1)]
    assert [[piece["text"] for piece in each["tokens"]] for each in shown] == [["a"], ["a", "ba"]]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (
            "byte_level",
            {
                "Ã©": ("é", None),
                "é": ("\ufffd", "e9"),
                "Ġ": (" ", None),
                "ã": ("\ufffd", "e3"),
                "Ġthe": (" the", None),
                "à¤": ("\ufffd", "e0 a4"),
            },
        ),
        (
            "byte_fallback",
            {"<0xE0>": ("\ufffd", "e0"), "<0x41>": ("A", None), "▁the": ("the", None)},
        ),
    ],
)
def test_vocabulary_shows_what_each_token_spells(
    tmp_path: Path, kind: str, expected: dict[str, tuple[str, str | None]]
) -> None:
    data = tokenizer_of(kind)
    library = Tokenizer.from_str(data)
    row = [library.token_to_id(token) for token in expected]
    (tmp_path / "tokenizer.json").write_text(data)
    (tmp_path / "a.jsonl").write_text(json.dumps({"input_ids": row}))
    store = tmp_path / "store"
    assert run("import", tmp_path / "a.jsonl", "--tokenizer", tmp_path, "-o", store).exit_code == 0
    shown = json.loads(run("inspect", store, "--vocabulary", "--json").stdout)
    found = {each["token"]: (each["text"], each["bytes"]) for each in shown["most_frequent"]}
    assert found == expected


# The Hub


class NothingHere(BaseHTTPRequestHandler):
    """Answer that there is no such repository."""

    def do_HEAD(self) -> None:
        self.send_response(404)
        self.send_header("X-Error-Code", "RepoNotFound")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return an empty cache, and let the Hub be a server that has nothing."""
    constants = pytest.importorskip("huggingface_hub.constants")
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    server = HTTPServer(("127.0.0.1", 0), NothingHere)
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", address)
    template = address + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    yield tmp_path / "cache"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("is_there", "offline", "code", "said"),
    [
        (True, False, 2, "some/name: no such file or folder, and not found on the Hub: "),
        (False, False, 5, "some/name: no such file or folder, and the Hub (http://127.0.0.1:1) "),
        (True, True, 5, "cannot be reached"),
    ],
)
def test_name_that_is_not_cached_is_looked_for_on_the_hub(
    tmp_path: Path,
    hub: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_there: bool,
    offline: bool,
    code: int,
    said: str,
) -> None:
    constants = importlib.import_module("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
    if not is_there:
        monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:1")
    (tmp_path / "a.txt").write_text("a\n")
    output = tmp_path / "store"
    result = run("tokenize", tmp_path / "a.txt", "--tokenizer", "some/name", "-o", output)
    assert result.exit_code == code
    assert said in result.stderr
    assert not output.exists()
    assert not hub.exists() or not list(hub.rglob("tokenizer.json"))


@pytest.mark.parametrize("files", [(), ("tokenizer_config.json",)])
def test_cached_files_of_a_name_are_read_offline(
    tmp_path: Path, hub: Path, monkeypatch: pytest.MonkeyPatch, files: tuple[str, ...]
) -> None:
    constants = importlib.import_module("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    repository = hub / "models--some--name"
    snapshot = repository / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0" * 40)
    (snapshot / "tokenizer.json").write_text(tokenizer_of("byte_level"))
    for name in files:
        (snapshot / name).write_text('{"pad_token": "[CLS]"}')
    (tmp_path / "a.txt").write_text("a\n")
    output = tmp_path / "store"
    result = run("tokenize", tmp_path / "a.txt", "--tokenizer", "some/name", "-o", output)
    assert result.exit_code == 0, result.stderr
    assert read_store(output).manifest["pad_id"] == (5 if files else 1)
    assert (output / "tokenizer.json").read_text() == tokenizer_of("byte_level")
