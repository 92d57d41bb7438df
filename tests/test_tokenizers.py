"""Tokenizers of every kind: ids, places and texts are those of `tokenizers`, by any encoder."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
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
    VARIANTS,
    added_tokens_out_of_order,
    sample_texts,
    tokenizer_of,
    tokenizer_with_all_characters,
    tokenizer_with_pattern,
)
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors

FAST_KINDS = ("byte_level", "byte_level_with_prefix_space", "byte_level_nfc", "split_pattern")
TEXTS = (
    *sample_texts(),
    "",
    *(f"{token} a{token}b {token}" for token in (*SPECIAL_TOKENS, ADDED_TOKEN)),
    *("\x00", "\u2028", "\ufeff", " ", "\n", "\r\n \t", "𝄞é漢", "\U0010ffff", "\u0378"),
    *("  \u180e", "a \u180e b", " \u180e\u180e \n", "▁▁ ▁", "<0x41><0x0A>", "e .  a.  the a"),
    *random_texts(1, 60),
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
    texts = [*TEXTS, *random_texts(2, 40)]
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


@pytest.mark.parametrize("allow", [False, True])
@pytest.mark.parametrize("kind", [*KINDS, *VARIANTS])
def test_targets_are_exact_at_every_border(tmp_path: Path, kind: str, allow: bool) -> None:
    """A target has all its characters behind the border, as `tokenizers` places them."""
    data = open_kind(kind)
    library = library_of(data, allow=allow)
    texts = [*BORDERS, *random_texts(3 + allow, 12, without="▁" if kind in DROPS_SPACES else "")]
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


@pytest.mark.parametrize("subtokens", ["first", "all"])
@pytest.mark.parametrize("kind", [*KINDS, *VARIANTS])
def test_tags_are_those_of_the_words_and_spans_in_which_tokens_begin(
    tmp_path: Path, kind: str, subtokens: str
) -> None:
    data, numbers = open_kind(kind), random.Random(kind)
    library = library_of(data, allow=False)
    records: list[dict[str, Any]] = []
    cases: list[tuple[str, list[tuple[int, Any]], Any]] = []
    for seed in range(40):
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
