"""Tokenizers of every kind: ids, places and texts are those of `tokenizers`, by any encoder."""

from __future__ import annotations

import functools
import hashlib
import json
import operator
import random
import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import slow_tokens as slow
import tokenizer_kinds as zoo
from click.testing import Result
from command import run
from oracle.stores import PageStore, read_store
from tokenizer_kinds import ADDED_TOKEN, KINDS, SPECIAL_TOKENS, UNKNOWN, VARIANTS, tokenizer_of
from tokenizers import (
    AddedToken,
    Tokenizer,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from seqpack_cli import Executor, Progress, TokenizeOptions, tokenize

FAST_KINDS = ("byte_level", "byte_level_with_prefix_space", "byte_level_nfc", "split_pattern")
TEXTS = (
    *zoo.sample_texts(),
    "",
    *(f"{token} a{token}b {token}" for token in (*SPECIAL_TOKENS, ADDED_TOKEN)),
    *("\x00", "\u2028", "\ufeff", " ", "\n", "\r\n \t", "𝄞é漢", "\U0010ffff", "\u0378"),
    *("  \u180e", "a \u180e b", " \u180e\u180e \n", "▁▁ ▁", "<0x41><0x0A>", "e .  a.  the a"),
    *slow.random_texts(1, 40),
)


def start(
    folder: Path, data: str, records: list[Any], *options: object, command: str = "tokenize"
) -> Result:
    """Write a tokenizer.json and records or texts, and make a store of them."""
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.json").write_text(data)
    records = [{"text": each} if isinstance(each, str) else each for each in records]
    (folder / "a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    output = ("-o", folder / "store", "--num-workers", 1)
    tokenizer = ("--tokenizer", folder) if "--tokenizer" not in options else ()
    return run(command, folder / "a.jsonl", *output, *tokenizer, *options)


def make(folder: Path, data: str, records: list[Any], *options: object, **others: str) -> PageStore:
    """Make a store and read it."""
    result = start(folder, data, records, *options, **others)
    assert result.exit_code == 0, result.stderr
    return read_store(folder / "store")


def show(store: Path, *options: object) -> Any:
    return json.loads(run("inspect", store, "--json", *options).stdout)


def encoder_of(folder: Path) -> str:
    return str(json.loads((folder / "store" / "run.json").read_bytes())["encoder"])


def check_ids(
    folder: Path, data: str, texts: list[str], *options: object, affixes: Any = ((), ())
) -> str:
    """Tokenize texts, and compare the ids of each with the library; return what was printed."""
    result = start(folder, data, texts, *options)
    assert result.exit_code == 0, result.stderr
    library = slow.library_of(data, allow="--allow-special-tokens" in options)
    saved = Tokenizer.from_str(data)
    before, after = (list(map(saved.token_to_id, names)) for names in affixes)
    ids = [library.encode(text, add_special_tokens=False).ids for text in texts]
    store = read_store(folder / "store")
    assert store.documents == [number for number, each in enumerate(ids) if each]
    assert store.sequences == [[*before, *each, *after] for each in ids if each]
    return result.stderr


# Ids


@pytest.mark.parametrize("kind", KINDS)
def test_ids_are_those_of_the_library(tmp_path: Path, kind: str) -> None:
    """By both encoders, with the same bytes, and with or without the template."""
    data, texts = tokenizer_of(kind), list(TEXTS)
    check_ids(tmp_path / "a", data, texts, affixes=zoo.AFFIXES.get(kind, ([], [])))
    is_fast = kind in FAST_KINDS
    assert encoder_of(tmp_path / "a") == ("fastokens" if is_fast else "tokenizers")
    if is_fast:
        other = make(tmp_path / "b", data, texts, "--encoder", "tokenizers")
        assert other.sequences == read_store(tmp_path / "a" / "store").sequences
        assert encoder_of(tmp_path / "b") == "tokenizers"
    plain = ("--no-add-special-tokens", "--allow-special-tokens", "--part-bytes", 4000)
    check_ids(tmp_path / "c", data, texts, *plain)
    assert encoder_of(tmp_path / "c") == ("fastokens" if is_fast else "tokenizers")


DEEPSEEK_PATTERN = (
    r"[!-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
with_metaspace = functools.partial(zoo.tokenizer_with_all_characters, "metaspace")
SCHEMES = [("first", True), ("first", False), ("always", True), ("never", False)]
FAST: dict[str, dict[str, Any]] = {
    "fallback": zoo.tokenizer_with_all_characters("byte_fallback"),
    **{
        f"{scheme} {split}": with_metaspace(prepend_scheme=scheme, split=split)
        for scheme, split in SCHEMES
    },
    "deepseek": zoo.tokenizer_with_pattern(DEEPSEEK_PATTERN),
    "llama 3": zoo.tokenizer_with_pattern(zoo.LLAMA_3_PATTERN),
}


@pytest.mark.parametrize("name", FAST)
def test_fast_encoder_gives_the_ids_of_the_library(tmp_path: Path, name: str) -> None:
    """BPE that falls back to bytes, and patterns for which U+180E is a space, or not."""
    texts = [*TEXTS, *slow.random_texts(2, 20)]
    data = json.dumps(FAST[name], ensure_ascii=False)
    check_ids(tmp_path / "a", data, texts, "--encoder", "fastokens", "--no-add-special-tokens")
    assert encoder_of(tmp_path / "a") == "fastokens"


def change(data: str, *path: Any, **values: Any) -> str:
    """Return a tokenizer.json with a part changed."""
    saved = json.loads(data)
    functools.reduce(operator.getitem, path, saved).update(values)
    return json.dumps(saved)


META = json.dumps(zoo.tokenizer_with_all_characters("metaspace"))
NEITHER = "it is neither byte-level BPE nor BPE that falls back to bytes"
CLASSES = "its regex has character classes that regex engines interpret differently"
STRIPS = "its special tokens strip the whitespace beside them"
BESIDE = "it has added tokens beside Metaspace"
SLOW = {"type": "Replace", "pattern": {"Regex": "(a+a+)+b"}, "content": "x"}
PATTERNS = (r"\w+|.", r"a|\W", r"\b.", r"x\By|.", "[[:alpha:]]+|.", r'"\w"|.')
REFUSED: dict[str, list[str]] = {
    NEITHER: list(map(tokenizer_of, ("word_piece", "unigram", "word_level", "whitespace_bpe"))),
    "its tokens have characters that": list(map(tokenizer_of, ("metaspace", "byte_fallback"))),
    "its Metaspace has other options, or a normalizer before it": [
        change(META, "pre_tokenizer", replacement="_"),
        change(META, normalizer={"type": "NFC"}),
    ],
    "it has ignore_merges and falls back to bytes": [change(META, "model", ignore_merges=True)],
    "it is not BPE that falls back to all bytes": [META.replace("<0x00>", "<0xGG>")],
    CLASSES: [
        json.dumps(zoo.tokenizer_with_pattern(pattern), indent=at % 3 or None)
        for at, pattern in enumerate(PATTERNS)
    ],
    BESIDE: [META],
    STRIPS: [
        change(tokenizer_of("byte_level"), "added_tokens", at, **{side: True})
        for at, side in ((0, "lstrip"), (-1, "lstrip"), (0, "rstrip"))
    ],
    "different ids from tokenizers for the built-in test texts": [zoo.added_tokens_out_of_order()],
    "tokenizers fails on the built-in test texts (": [
        change(tokenizer_of("split_pattern"), normalizer=SLOW)
    ],
}


@pytest.mark.parametrize(
    ("reason", "data"), [(reason, each) for reason, some in REFUSED.items() for each in some]
)
def test_library_encodes_what_the_fast_encoder_does_not(
    tmp_path: Path, reason: str, data: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """With a note; asked for, the fast encoder is refused."""
    options = ["--allow-special-tokens"] * (reason in (BESIDE, STRIPS))
    texts = ["a  b <s> c", f"some {ADDED_TOKEN}", "é<0x41> 12"]
    printed = check_ids(tmp_path, data, texts, "--no-add-special-tokens", *options)
    assert encoder_of(tmp_path) == "tokenizers"
    is_refused = not reason.startswith(("different", "tokenizers"))
    note = "fastokens does not support this tokenizer" if is_refused else f"fastokens: {reason}"
    assert printed.startswith(f"note: {note}") and printed.count("\n") == 1
    if reason.startswith("tokenizers fails"):
        return  # which takes a second
    assert capfd.readouterr().err == ""
    result = start(tmp_path / "b", data, texts, *options, "--encoder", "fastokens")
    assert result.exit_code == (2 if is_refused else 3)
    assert reason in result.stderr


def spoil(real: Any, fault: str) -> Any:
    """Return a fast encoder that gives other ids, or fails, where texts have a word."""

    def encode(texts: list[str], **options: Any) -> tuple[bytes, bytes]:
        found = real.encode_batch_flat(texts, **options)
        if not any("Zaphod" in text for text in texts):
            return bytes(found[0]), bytes(found[1])
        if fault == "fails":
            raise RuntimeError("no\nluck")
        ids, ends = np.frombuffer(found[0], "<u4").copy(), np.frombuffer(found[1], "<u8").copy()
        ids[-1] += fault == "other id"
        ends[1:-1] -= np.uint64(fault == "borders")
        return ids.tobytes(), ends[[0, *range(1 + (fault == "fewer"), len(ends))]].tobytes()

    nothing = {name: lambda: None for name in ("no_truncation", "no_padding")}
    return SimpleNamespace(encode_batch_flat=encode, **nothing)


@pytest.mark.parametrize("option", [[], ["--encoder", "fastokens"]])
def test_missing_fast_encoder_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: list[str]
) -> None:
    """It is an ordinary dependency; who cannot install it asks for the other one."""
    monkeypatch.setitem(sys.modules, "fastokens", None)
    data = tokenizer_of("byte_level") + " " * (9 + len(option))  # was not opened before
    result = start(tmp_path / "a", data, ["a"], *option)
    assert result.exit_code == 5
    assert "fastokens cannot be imported: " in result.stderr
    assert result.stderr.endswith("or pass --encoder tokenizers\n")
    start(tmp_path / "b", data, ["a"], "--encoder", "tokenizers")
    assert encoder_of(tmp_path / "b") == "tokenizers"


OTHER = "different ids from tokenizers for {}:1"


@pytest.mark.parametrize(
    ("fault", "number", "said"),
    [
        *(("other id", 0, OTHER), ("borders", 3, OTHER), ("fewer", 1, OTHER)),
        *(("fails", 2, "fastokens failed: no luck"), ("other id", 40, OTHER)),
        ("other id", 41, ""),  # behind the first 4 KiB: nobody compares
    ],
)
def test_first_texts_of_each_part_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, number: int, said: str
) -> None:
    import fastokens

    open_real = fastokens.Tokenizer.from_json_str
    opened = SimpleNamespace(from_json_str=lambda text: spoil(open_real(text), fault))
    monkeypatch.setattr(fastokens, "Tokenizer", opened)
    data = tokenizer_of("byte_level") + " " * (number + len(fault))  # was not opened before
    texts = [f"{at:03}" + "b" * 97 for at in range(50)]
    texts[number] = texts[number][:10] + "Zaphod" + texts[number][16:]
    printed = start(tmp_path, data, texts).stderr
    expected = said.format(tmp_path / "a.jsonl")
    note = f"note: fastokens: {expected}; using tokenizers for the whole run\n"
    assert printed == (note if said else "")
    assert encoder_of(tmp_path) == ("tokenizers" if said else "fastokens")


@pytest.mark.parametrize(
    ("first", "second", "wrong", "num_kept", "used"),
    [
        # Encoders of a run that stopped after two of four parts, and of the next one; lines with
        # other ids, 45 behind the first 4 KiB of its part and 101 within; parts that are kept.
        ("auto", "auto", (), 2, "fastokens"),
        ("auto", "auto", (45, 101), 0, "tokenizers"),
        ("tokenizers", "auto", (101,), 2, "tokenizers"),
        ("auto", "fastokens", (45, 101), 0, None),
        ("tokenizers", "fastokens", (101,), 2, None),
    ],
)
def test_stopped_run_goes_on_without_parts_of_an_encoder_that_differs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    first: str,
    second: str,
    wrong: tuple[int, ...],
    num_kept: int,
    used: str | None,
) -> None:
    import fastokens

    open_real = fastokens.Tokenizer.from_json_str
    opened = SimpleNamespace(from_json_str=lambda text: spoil(open_real(text), "other id"))
    monkeypatch.setattr(fastokens, "Tokenizer", opened)
    data = tokenizer_of("byte_level") + " " * (99 + num_kept + len(wrong))  # was not opened before
    texts = [f"{at:03}{'Zaphod' if at in wrong else 'bbbbbb'}{'b' * 91}" for at in range(200)]
    slow_store = make(tmp_path / "slow", data, texts, "--encoder", "tokenizers")
    lines, source = (tmp_path / "slow" / "a.jsonl").read_bytes(), tmp_path / "run" / "a.jsonl"
    source.parent.mkdir()
    source.write_bytes(lines)
    size, read = len(lines) // 4, list[int]()

    def stop(num_bytes: int) -> None:
        read.append(num_bytes)
        if sum(read) > 2 * size:
            raise KeyboardInterrupt

    options = TokenizeOptions(tokenizer=tmp_path / "slow", part_bytes=size, encoder=first)
    store, here = tmp_path / "run" / "store", Executor(num_workers=1)
    with pytest.raises(KeyboardInterrupt):
        tokenize(source, store, options, executor=here, progress=Progress(on_advance=stop))
    before = (store / "part-00000.bin").stat().st_mtime_ns
    result = start(tmp_path / "run", data, texts, "--part-bytes", size, "--encoder", second)
    assert result.stderr.startswith("note: 2 of 4 parts were already finished\n")
    assert (f"for {source}:101" in result.stderr) == (wrong != () and used != first)
    if used is None:
        assert (result.exit_code, len([*store.glob("part-*.json")])) == (3, num_kept)
        start(tmp_path / "run", data, texts, "--part-bytes", size, "--encoder", "tokenizers")
    else:
        assert result.exit_code == 0
        assert (before == (store / "part-00000.bin").stat().st_mtime_ns) == bool(num_kept)
        assert encoder_of(tmp_path / "run") == used
    assert read_store(store).sequences == slow_store.sequences


# The place of each token


def open_kind(kind: str, *, takes_spaces: bool) -> str:
    """Return a tokenizer.json, maybe with special tokens which take the spaces beside them."""
    tokenizer = VARIANTS[kind]() if kind in VARIANTS else Tokenizer.from_str(tokenizer_of(kind))
    taking = [("<right>", False, True), ("<left>", True, False), ("<both>", True, True)]
    for content, left, right in taking if takes_spaces else ():
        token = AddedToken(content, lstrip=left, rstrip=right, normalized=False)
        tokenizer.add_special_tokens([token])
    tokenizer.add_tokens([AddedToken("12", single_word=True, special=False)])
    return str(tokenizer.to_str())


DROPS_SPACES = ("word_piece", "word_level", "whitespace_bpe", "t5", "dropping")
COMPOSES = ("byte_level_nfc", "unigram", "collapse", "t5")
BORDERS = (
    *("A: yes\n\nno  \r\n🙂 é中文\t12 a\u3000b<s> </s>x<both>\nThe cat", " \n x", "   ", ""),
    *("🙂 <left>  <right>  x <right>▁a<right>\u0301 a", "xe\u0301 x\u1112\u1161\u11ab"),
)
TAKING = ("byte_level", "byte_level_with_prefix_space", "metaspace", "byte_fallback", "unigram")


@pytest.mark.parametrize(
    ("kind", "allow"),
    [
        *((kind, False) for kind in (*KINDS, *VARIANTS)),
        *((kind, True) for kind in (*TAKING, "t5", "accents")),
    ],
)
def test_targets_are_exact_at_every_border(tmp_path: Path, kind: str, allow: bool) -> None:
    """A target has all its characters behind the border, as `tokenizers` places them."""
    data = open_kind(kind, takes_spaces=allow)
    library = slow.library_of(data, allow=allow)
    without = "▁" if kind in DROPS_SPACES else ""
    texts = [*BORDERS, *slow.random_texts(3 + allow, 6, without=without)]
    records, expected, num_straddling = [], [], 0
    for text in texts:
        encoding = library.encode(text, add_special_tokens=False)
        places = encoding.offsets
        if kind in DROPS_SPACES:
            places = [slow.trim(text, *place) for place in places]
        if kind in COMPOSES:
            places = slow.cover_marks(text, places)
        for border in range(len(text) + 1):
            records.append({"q": text[:border], "a": text[border:]})
            if encoding.ids:
                bits, count = slow.find_targets(text, places, border)
                expected.append((text, border, encoding.ids, bits))
                num_straddling += count
    options = ("--prompt-field", "q", "--completion-field", "a", "--no-add-special-tokens")
    store = make(tmp_path, data, records, *options, *["--allow-special-tokens"] * allow)
    rows = zip(store.sequences, store.columns["targets"], expected, strict=True)
    for ids, bits, (text, border, *wanted) in rows:
        assert [ids, bits] == wanted, (text, border)
    assert store.manifest["ledger"]["num_straddling_tokens"] == num_straddling


@pytest.mark.parametrize("texts", [[" ▁"], ["\n▁", "a b"]])
def test_text_of_which_nothing_is_left_has_its_tokens(tmp_path: Path, texts: list[str]) -> None:
    data = open_kind("t5", takes_spaces=False)
    library = slow.library_of(data, allow=False)
    options = ("--prompt-field", "q", "--completion-field", "a", "--no-add-special-tokens")
    store = make(tmp_path, data, [{"q": "", "a": text} for text in texts], *options)
    encoded = library.encode_batch(texts, add_special_tokens=False)
    assert list(store.sequences) == [it.ids for it in encoded]
    assert list(store.columns["targets"]) == [[1] * len(it.ids) for it in encoded]


@pytest.mark.parametrize("kind", [*KINDS, *VARIANTS])
def test_tags_are_those_of_the_words_and_spans_in_which_tokens_begin(
    tmp_path: Path, kind: str
) -> None:
    data, numbers = open_kind(kind, takes_spaces=True), random.Random(kind)
    subtokens = numbers.choice(["first", "all"])
    library = slow.library_of(data, allow=False)
    records: list[dict[str, Any]] = []
    cases: list[tuple[str, list[tuple[int, Any]], Any]] = []
    for seed in range(24):
        texts = slow.random_texts(seed, numbers.randrange(6), without="▁")
        if seed % 2:
            labels = numbers.choices("XYZ", k=len(texts))
            starts = [len(" ".join([*texts[:at], ""])) for at in range(len(texts))]
            cases.append((" ".join(texts), list(zip(starts, labels, strict=True)), None))
            records.append({"text": texts, "tags": labels})
            continue
        text = "".join(texts)
        cuts = sorted(numbers.sample(range(len(text) + 1), min(len(text) + 1, 6)))
        spans = [[a, b, numbers.choice("XYZ")] for a, b in pairwise(cuts) if numbers.random() < 0.6]
        cases.append((text, slow.cut_spans(text, spans, "O"), "O"))
        numbers.shuffle(spans)
        named = [dict(zip(("start", "end", "label"), span, strict=True)) for span in spans]
        records.append({"text": text, "tags": numbers.choice([spans, named])})
    expected, num_lost = [], 0
    for text, segments, outside in cases:
        encoding = library.encode(text, add_special_tokens=False)
        places = [slow.trim(text, *place) for place in encoding.offsets]
        for at, id_ in enumerate(encoding.ids):
            if not library.decode([id_], skip_special_tokens=False).strip(slow.SPACES):
                places[at] = (0, 0)  # it stands for a space that was added, or is one
        labels, seen = slow.tag_tokens(segments, places, subtokens)
        expected += [(encoding.ids, labels)] if encoding.ids else []
        lost = [label for at, (_, label) in enumerate(segments) if at not in seen]
        num_lost += sum(label != outside for label in lost)
    options = ("--keep", "tags:tags", "--tag-subtokens", subtokens, "--no-add-special-tokens")
    store = make(tmp_path, data, records, *options)
    assert list(zip(store.sequences, store.columns["tags"], strict=True)) == expected
    assert store.manifest["ledger"]["num_words_without_token"] == num_lost


@pytest.mark.parametrize(
    ("text", "expected", "num_lost"),
    [("漢\x85b", ["X", "X"], 1), ("漢 b", ["X", None, "Y"], 0), ("b\x85漢", ["X", "Y", None], 0)],
)
def test_space_that_a_normalizer_puts_beside_a_character_is_a_part_of_it(
    tmp_path: Path, text: str, expected: list[str | None], num_lost: int
) -> None:
    """So a token that spells it and the next word begins in the word of the character."""
    words = ["?", "▁漢", "▁b", "▁"]
    tokenizer = Tokenizer(models.WordLevel(dict(zip(words, range(4), strict=True)), unk_token="?"))  # noqa: S106
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.normalizer = normalizers.BertNormalizer()  # makes 漢 a word, and \x85 nothing
    records = [{"text": text, "tags": [[0, 1, "X"], [2, 3, "Y"]]}]
    options = ("--keep", "tags:tags", "--tag-subtokens", "all")
    store = make(tmp_path, tokenizer.to_str(), records, *options)
    assert store.columns["tags"] == [expected]
    assert store.manifest["ledger"]["num_words_without_token"] == num_lost


# Special tokens

SPECIALS = ["<unk>", "<bos>", "<eos>", "<sep>"]


def word_level(words: list[str] | dict[str, int], unknown: str = UNKNOWN) -> Tokenizer:
    numbers = words if isinstance(words, dict) else {word: at for at, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token=unknown))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return tokenizer


def with_template(template: str, words: tuple[str, ...] = ("a", "b")) -> str:
    tokenizer = word_level([*SPECIALS, *words])
    tokenizer.add_special_tokens(SPECIALS)
    if template:
        names = [(name, at) for at, name in enumerate(SPECIALS)]
        tokenizer.post_processor = processors.TemplateProcessing(template, special_tokens=names)
    return str(tokenizer.to_str())


AROUND = """
                                  |                                     | 45
$A                                |                                     | 45
<bos> <sep> $A <sep> <eos> <eos>  |                                     | 1345322
<bos> $A <eos>                    | --bos <bos> --eos <eos>             | 1452
<bos> $A <eos>                    | --no-add-special-tokens --bos <bos> | 145
$A <eos>                          | --bos <bos> --eos <eos>             | 1452
<sep> $A <sep>                    | --bos <bos> --eos <eos>             | 134532
<bos> <sep> $A                    | --bos <bos> --eos a                 | 13454
                                  | --bos <eos> --eos <eos>             | 2452
<bos> <sep> $A <sep> <eos>        | --bos <bos> --eos <eos>             | 134532
<sep> <bos> $A <eos> <sep>        | --bos <bos> --eos <eos>             | 13145232
"""


@pytest.mark.parametrize("row", AROUND.strip("\n").splitlines())
def test_template_bos_and_eos_are_put_around_each_text(tmp_path: Path, row: str) -> None:
    template, options, ids = map(str.strip, row.split("|"))
    store = make(tmp_path, with_template(template), ["a b", "", "b"], *options.split())
    assert store.sequences == [list(map(int, ids)), list(map(int, ids.replace("45", "5")))]


def test_template_is_found_without_the_letter_a(tmp_path: Path) -> None:
    """A vocabulary of another script still has its <bos> and <eos>."""
    tokenizer = Tokenizer(models.BPE({"<bos>": 0, "<eos>": 1, "я": 2}, []))
    names = [("<bos>", 0), ("<eos>", 1)]
    tokenizer.post_processor = processors.TemplateProcessing("<bos> $A <eos>", special_tokens=names)
    assert make(tmp_path, tokenizer.to_str(), ["я"]).sequences == [[0, 2, 1]]


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
        here = max((it for it in tokens if text.startswith(it, place)), key=len, default="")
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
    if seed < 2:
        names = ("reserved", "r", "im")
        tokens = [f"<|{name}_{at}|>" for name in names for at in range(99)]
        tokens = tokens if seed else ["a" * length for length in range(2, 9)]
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
    shown = show(tmp_path / "store", "--vocabulary")["spelled_in_text"]
    assert (shown["num_tokens"], len(shown["tokens"])) == (total, len(counts))
    library = slow.library_of(data, allow=bool(allow))
    assert store.sequences == [library.encode(text).ids for text in texts if text]


def test_store_without_spelled_tokens_has_no_such_file(tmp_path: Path) -> None:
    make(tmp_path, tokenizer_of("byte_level"), ["<s", "s>"])
    assert not (tmp_path / "store" / "special_tokens.jsonl").exists()
    shown = show(tmp_path / "store", "--vocabulary")["spelled_in_text"]
    assert shown == {"num_tokens": 0, "tokens": []}


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda _: "", "special_tokens.jsonl: 0 special tokens, manifest.json says 4"),
        (lambda text: text[:-1], "special_tokens.jsonl:2: no line end"),
        (lambda text: text[:-9] + "\n", "special_tokens.jsonl:2: not JSON"),
        (lambda text: text.splitlines()[0] + "\n", ": 3 special tokens, manifest.json says 4"),
    ],
)
def test_damaged_list_of_spelled_tokens_is_refused(tmp_path: Path, spoil: Any, said: str) -> None:
    make(tmp_path, tokenizer_of("byte_level"), ["</s></s>", "<s>", "</s>"])
    path = tmp_path / "store" / "special_tokens.jsonl"
    path.write_text(spoil(path.read_text()))
    result = run("inspect", tmp_path / "store", "--vocabulary")
    assert (result.exit_code, said in result.stderr) == (4, True)


TRAINERS: dict[str, tuple[Any, Any]] = {
    "unigram": (models.Unigram(), functools.partial(trainers.UnigramTrainer, unk_token=UNKNOWN)),
    "wordlevel": (models.WordLevel(unk_token=UNKNOWN), trainers.WordLevelTrainer),
    "wordpiece": (models.WordPiece(unk_token=UNKNOWN), trainers.WordPieceTrainer),
    "bpe": (models.BPE(unk_token=UNKNOWN), trainers.BpeTrainer),
    "ignoring": (models.BPE(unk_token=UNKNOWN, ignore_merges=True), trainers.BpeTrainer),
    "merging": (models.BPE(unk_token=UNKNOWN), trainers.BpeTrainer),
}


@pytest.mark.parametrize("kind", TRAINERS)
def test_no_model_writes_a_special_token_that_a_text_spells(tmp_path: Path, kind: str) -> None:
    """Though the library does, where it is one of the words of the model."""
    model, make_trainer = TRAINERS[kind]
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = [UNKNOWN, "<|end|>", "§"]
    trainer = make_trainer(vocab_size=60, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(["an end | and <an> end of it"] * 9, trainer)
    saved = json.loads(tokenizer.to_str())
    if kind == "merging":
        saved["model"]["merges"] += [["<|end|>"[:at], "<|end|>"[at]] for at in range(1, 7)]
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


ROLES = """
[PAD] [UNK] [BOS] [EOS]            | {} | {} | 0 2 3 1
<s> </s> <unk> <pad>               | {} | {} | 3 0 1 2
<|endoftext|> a                    | {} | {} | - - 0 -
<|begin_of_text|> <|end_of_text|>  | {} | {} | - 0 1 -
<eos> </s> <|padding|> <|unk|>     | {} | {} | 2 - 0 3
a b                                | {} | {} | - - - -
<pad> <s> <unk> x | {"pad_token": "x", "bos_token": "no", "unk_token": "<s>"} | {} | 3 1 - 2
<s> x | {"eos_token": {"content": "x"}, "bos_token": 7, "pad_token": null} | {} | - 0 1 -
<s> x y | {}                 | {"bos_token": "x", "eos_token": "y"} | - 1 2 -
<s> x y | {"bos_token": "y"} | {"bos_token": "x", "eos_token": "x"} | - 1 1 -
<s> x y | {"bos_token": "y", "added_tokens_decoder": {}} | {"bos_token": "x"} | - 2 - -
"""


@pytest.mark.parametrize("row", ROLES.strip().splitlines())
def test_roles_are_found_in_files_and_by_common_names(tmp_path: Path, row: str) -> None:
    names, config, tokens_map, expected = row.rsplit(" | ", 3)
    (tmp_path / "tokenizer_config.json").write_text(config)
    (tmp_path / "special_tokens_map.json").write_text(tokens_map)
    words = [*names.split(), "text"]
    manifest = make(tmp_path, word_level(words, "<unk>").to_str(), ["text"]).manifest
    found = [manifest[f"{role}_id"] for role in ("pad", "bos", "eos", "unk")]
    assert found == [None if number == "-" else int(number) for number in expected.split()]


@pytest.mark.parametrize(
    ("numbers", "dtype"),
    [
        *(({"a": 0, "b": 65_535}, "uint16"), ({"a": 0, "b": 65_536}, "int32")),
        *(({"a": 0, "b": 1, "c": 1}, "uint16"), ({"a": 5, "b": 2**31 - 1}, "int32")),
    ],
)
def test_vocabulary_may_have_gaps_and_equal_ids(
    tmp_path: Path, numbers: dict[str, int], dtype: str
) -> None:
    data = change(word_level(["a"], "a").to_str(), "model", vocab=numbers)
    library = Tokenizer.from_str(data)
    store = make(tmp_path, data, ["a b", "b"])
    assert store.sequences == [library.encode(text).ids for text in ("a b", "b")]
    facts = [store.manifest[name] for name in ("vocab_size", "max_id", "dtype")]
    assert facts == [len(numbers), max(numbers.values()), dtype]
    shown = show(store.folder, "--vocabulary")
    assert [shown["num_ids"], shown["num_used_ids"]] == [len(set(numbers.values())), 2]


@pytest.mark.parametrize(
    ("name", "spelled"),
    [
        ("truncation", ""),
        ("padding", ""),
        *(("dropout", it) for it in ("0.5", "5e-1", "1", "1e-1")),
    ],
)
def test_settings_saved_in_a_tokenizer_are_off(tmp_path: Path, name: str, spelled: str) -> None:
    tokenizer = Tokenizer.from_str(tokenizer_of("byte_level"))
    expected = tokenizer.encode("The cat and the dog").ids
    if name == "truncation":
        tokenizer.enable_truncation(2)
    if name == "padding":
        tokenizer.enable_padding(length=90)
    for encoder in ("tokenizers", "auto"):
        texts, options = ["The cat and the dog"], ("--encoder", encoder)
        data = tokenizer.to_str().replace('"dropout":null', f'"dropout":{spelled or "null"}')
        result = start(tmp_path / encoder, data, texts, *options)
        assert result.stderr == f"note: tokenizer.json: ignoring its saved {name}\n"
        assert read_store(tmp_path / encoder / "store").sequences == [expected]


TOO_LARGE = word_level({"a": 0, "b": 77_777}).to_str().replace("77777", "2147483648")
NO_JSON = ("", "{}", "[]", "\ufeff", "PK\3\4", '{"model": {}}', "1", '{"a": "dropout": 1.}')
BYTES = ("--tokenizer", "bytes")
CONFIG, MAP = "tokenizer_config.json", "special_tokens_map.json"
UNUSABLE: list[tuple[str, str, tuple[str, ...], int, str]] = [
    *(("", data, (), 3, "expected a file in the format of Hugging Face") for data in NO_JSON),
    ("", '{"model": {"type": "BPE", "vocab": {}, "merges": []}}', (), 3, "is empty"),
    ("", TOO_LARGE, (), 3, "its largest id is 2,147,483,648, expected at most 2,147,483,647"),
    ("", with_template("<bos> <eos>", ()), (), 3, "unsupported template"),
    ("", word_level(["a"]).to_str(), (), 3, "a.jsonl:2: tokenizer.json: "),
    (CONFIG, "[]", (), 3, "tokenizer_config.json: [], expected an object"),
    (MAP, "{", (), 3, "special_tokens_map.json: not JSON ("),
    (CONFIG, "\udcff", (), 3, "tokenizer_config.json: byte 0xff, expected UTF-8"),
    *(
        ("", "", ("--tokenizer", name), 2, f"Error: {Path(name)}: no such file\n")
        for name in ("./gone", "a/b/c", "link", "gone.json")
    ),
    ("", "", ("--tokenizer", "folder"), 2, "Error: folder/tokenizer.json: no such file"),
    *(
        ("", "", (*BYTES, option, "<start>"), 2, "'<start>': not in the tokenizer's vocabulary")
        for option in ("--bos", "--eos")
    ),
    ("", "", (*BYTES, "--bos", "<s>"), 2, "tokens: '<pad>', '<bos>', '<eos>'"),
]


@pytest.mark.parametrize(("name", "data", "options", "code", "said"), UNUSABLE)
def test_tokenizer_that_cannot_be_used_is_refused(
    tmp_path: Path, monkeypatch: Any, name: str, data: str, options: Any, code: int, said: str
) -> None:
    """Broken files, also beside it; names that are none of the Hub; tokens that it lacks."""
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("link").symlink_to("nowhere")
    (tmp_path / (name or "other")).write_text(data, errors="surrogateescape")
    result = start(tmp_path, tokenizer_of("byte_level") if name else data, ["a", "c"], *options)
    assert (result.exit_code, said in result.stderr) == (code, True), result.stderr


GOLDEN = "f59667538c5ce3232533ce6fe7b52929ec5a70f8d70d398796337c7e5bd1f171"


@pytest.mark.parametrize("allow", [False, True])
def test_byte_tokenizer_gives_bytes_and_is_one_of_the_library(tmp_path: Path, allow: bool) -> None:
    texts = [*TEXTS, "é<eos> <pad>", "".join(map(chr, range(0x800))), "\u0800\uffff\U00010000"]
    options = ("--tokenizer", "bytes", "--bos", "<bos>", *["--allow-special-tokens"] * allow)
    store, other = (
        make(tmp_path / encoder, "", texts, *options, "--encoder", encoder)
        for encoder in ("auto", "tokenizers")
    )
    assert store.sequences == other.sequences
    assert (encoder_of(tmp_path / "auto") == "bytes") == (not allow)
    data = (store.folder / "tokenizer.json").read_bytes()
    assert hashlib.sha256(data).hexdigest() == GOLDEN  # stores name it so: it never changes
    library = Tokenizer.from_str(data.decode())
    library.encode_special_tokens = not allow
    assert store.sequences == [[257, *library.encode(text).ids] for text in texts if text]
    if not allow:
        assert store.sequences == [[257, *text.encode()] for text in texts if text]
    assert [library.token_to_id(name) for name in ("<pad>", "<bos>", "<eos>")] == [256, 257, 258]


# Texts of ids

STRIP = {"type": "Strip", "content": "a", "start": 1, "stop": 0}
REPLACE = {"type": "Replace", "pattern": {"Regex": "(a|t)+h"}, "content": "dd"}
DECODERS: dict[str, Any] = {
    "no decoder": None,
    "spaces": {"type": "Metaspace", "replacement": "e", "prepend_scheme": "always", "split": True},
    "suffixes": {"type": "BPEDecoder", "suffix": "e"},
    "ctc": {"type": "CTC", "pad_token": "e", "word_delimiter_token": "t", "cleanup": True},
    "strips": {"type": "Sequence", "decoders": [REPLACE, {"type": "Fuse"}, STRIP]},
}


@pytest.mark.parametrize("kind", [*KINDS, *DECODERS])
def test_ids_are_decoded_and_split_as_the_library_does(tmp_path: Path, kind: str) -> None:
    """Any ids, also parts of characters, as `inspect` shows them and `unpack` writes them."""
    data = tokenizer_of(kind if kind in KINDS else "whitespace_bpe")
    data = change(data, decoder=DECODERS[kind]) if kind in DECODERS else data
    library, numbers = Tokenizer.from_str(data), random.Random(kind)
    text = f"The quick {SPECIAL_TOKENS[4]} ґанку, 雨 {ADDED_TOKEN} don't 😀  go . \n"
    rows = [library.encode(text).ids]
    for length in (2, 30, 257 if kind in ("byte_level", "byte_fallback") else 1):
        rows.append([numbers.randrange(library.get_vocab_size()) for _ in range(length)])
    make(tmp_path, data, [{"input_ids": row} for row in rows], command="import")
    for number, row in enumerate(rows):
        shown = show(tmp_path / "store", "--sequence", number)
        assert shown["text"] == library.decode(row, skip_special_tokens=False)
        pieces = [(piece["text"], piece["ids"]) for piece in shown["tokens"]]
        assert pieces == slow.split_text(library, row)
    layout = ("--layout", "varlen", "--max-tokens", 5000)
    assert run("pack", tmp_path / "store", "-o", tmp_path / "shards", *layout).exit_code == 0
    written = run("unpack", tmp_path / "shards", "--text", "-o", "-").stdout.split("\n")[:-1]
    texts = [library.decode(row, skip_special_tokens=False) for row in rows]
    assert [json.loads(line)["text"] for line in written] == texts


def test_text_that_cannot_be_split_is_one_piece(tmp_path: Path) -> None:
    """It is too long, or the decoder fails on a part of it."""
    strip = {"type": "Strip", "content": "b", "start": 0, "stop": 1}
    failing = {"type": "Sequence", "decoders": [{"type": "Fuse"}, strip]}
    half = 1 << 17
    for at, (words, decoder, rows, expected) in enumerate(
        [
            (["x" * half], {"type": "Fuse"}, [[0, 0]], [[half, half]]),
            (["x" * half + "y"], {"type": "Fuse"}, [[0, 0]], [[2 * half + 2]]),
            (["", "ab"], failing, [[0, 1], [1, 1]], [[1], [1, 2]]),
        ]
    ):
        data = change(word_level(words, words[-1]).to_str(), decoder=decoder)
        records = [{"input_ids": row} for row in rows]
        make(tmp_path / str(at), data, records, command="import")
        shown = [show(tmp_path / str(at) / "store", "--sequence", n) for n in range(len(rows))]
        assert [[len(piece["text"]) for piece in each["tokens"]] for each in shown] == expected


SPELLED = {
    "byte_level": "Ã© é -|é \ufffd e9|Ġ \xa0 -|ã \ufffd e3|à¤ \ufffd e0\xa0a4|Ġthe \xa0the -",
    "byte_fallback": "<0xE0> \ufffd e0|<0x41> A -|▁the the -",
}


@pytest.mark.parametrize("kind", SPELLED)
def test_vocabulary_shows_what_each_token_spells(tmp_path: Path, kind: str) -> None:
    library = Tokenizer.from_str(tokenizer_of(kind))
    expected = [entry.split(" ") for entry in SPELLED[kind].split("|")]
    records = [{"input_ids": [library.token_to_id(token) for token, _, _ in expected]}]
    make(tmp_path, tokenizer_of(kind), records, command="import")
    shown = show(tmp_path / "store", "--vocabulary")["most_frequent"]
    found = {each["token"]: [each["text"], each["bytes"] or "-"] for each in shown}
    wanted = {token: [each.replace("\xa0", " ") for each in rest] for token, *rest in expected}
    assert found == wanted


# The Hub


REQUESTS: list[str] = []


class OneTokenizer(BaseHTTPRequestHandler):
    """Answer that there is one repository, with two files, of one revision."""

    def do_HEAD(self) -> None:
        is_there = self.path in (
            "/here/it-is/resolve/main/tokenizer.json",
            f"/here/it-is/resolve/{'0' * 40}/special_tokens_map.json",
        )
        REQUESTS.append(self.path)
        self.send_response(200 if is_there else 404)
        code = "EntryNotFound" if self.path.startswith("/here/") else "RepoNotFound"
        data = tokenizer_of("byte_level").encode()
        if self.path.endswith("map.json"):
            data = b'{"pad_token": "[CLS]"}'
        headers = {"X-Repo-Commit": "0" * 40, "ETag": len(data), "Content-Length": len(data)}
        for name, value in headers.items() if is_there else [("X-Error-Code", code)]:
            self.send_header(name, str(value))
        self.end_headers()
        if is_there and self.command == "GET":
            self.wfile.write(data)

    do_GET = do_HEAD  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, Any], None]]:
    """Let the Hub be a server with one tokenizer, and the cache empty; return what changes it."""
    constants = pytest.importorskip("huggingface_hub.constants")
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    server = HTTPServer(("127.0.0.1", 0), OneTokenizer)
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    values = {"HF_HUB_CACHE": str(tmp_path / "cache"), "HF_HUB_OFFLINE": False, "ENDPOINT": address}
    values["HUGGINGFACE_CO_URL_TEMPLATE"] = address + "/{repo_id}/resolve/{revision}/{filename}"
    for name, value in values.items():
        monkeypatch.setattr(constants, name, value)
    yield functools.partial(monkeypatch.setattr, constants)
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("changes", "code", "said"),
    [
        ({}, 2, "some/name: no such file or folder, and not found on the Hub: "),
        ({"ENDPOINT": "http://127.0.0.1:1"}, 5, "and the Hub (http://127.0.0.1:1) cannot be"),
        ({"HF_HUB_OFFLINE": True}, 5, "cannot be reached"),
    ],
)
def test_name_that_is_not_cached_is_looked_for_on_the_hub(
    tmp_path: Path, hub: Any, changes: dict[str, Any], code: int, said: str
) -> None:
    for name, value in changes.items():
        hub(name, value)
    result = start(tmp_path, "", ["a"], "--tokenizer", "some/name")
    assert (result.exit_code, said in result.stderr) == (code, True)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(("files", "pad_id"), [((), 1), ((CONFIG,), 5)])
def test_cached_files_of_a_name_are_read_offline(
    tmp_path: Path, hub: Any, files: tuple[str, ...], pad_id: int
) -> None:
    hub("HF_HUB_OFFLINE", True)
    repository = tmp_path / "cache" / "models--some--name"
    snapshot = repository / "snapshots" / ("0" * 40)
    for folder in (snapshot, repository / "refs"):
        folder.mkdir(parents=True)
    (repository / "refs" / "main").write_text("0" * 40)
    (snapshot / "tokenizer.json").write_text(tokenizer_of("byte_level"))
    for name in files:
        (snapshot / name).write_text('{"pad_token": "[CLS]"}')
    store = make(tmp_path, "", ["a"], "--tokenizer", "some/name")
    assert store.manifest["pad_id"] == pad_id


def test_tokenizer_of_a_name_is_downloaded_once(tmp_path: Path, hub: Any) -> None:
    """All files are of the revision of the first; one that is not there is not missed."""
    REQUESTS.clear()
    for name, is_offline in (("a", False), ("b", True)):
        hub("HF_HUB_OFFLINE", is_offline)
        store = make(tmp_path / name, "", ["a"], "--tokenizer", "here/it-is")
        assert (store.folder / "tokenizer.json").read_text() == tokenizer_of("byte_level")
        assert store.manifest["pad_id"] == 5
    asked = {tuple(path.split("/")[-2:]) for path in REQUESTS if "/resolve/" in path}
    assert asked == {("main", "tokenizer.json"), ("0" * 40, CONFIG), ("0" * 40, MAP)}


def test_words_that_the_template_adds_do_not_hide_where_the_text_begins(tmp_path: Path) -> None:
    """The only other word of the vocabulary tells what is added before a text and what behind."""
    numbers = {"<bos>": 0, "<eos>": 1, "я": 2}
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token="?"))  # noqa: S106
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<bos> $A <eos>", special_tokens=[("<bos>", 0), ("<eos>", 1)]
    )
    assert make(tmp_path, tokenizer.to_str(), ["я"]).sequences == [[0, 2, 1]]
