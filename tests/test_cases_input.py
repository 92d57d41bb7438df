"""The cases of faults and bad input, as a user meets them: texts, files, tokenizers.

The number in a name is the case's; what one module does by itself stands in the tests of that. Each
runs the command itself and asserts the exit code (0 good, 2 usage, 3 bad input data, 4 a folder
that is refused, 5 the machine), the place and the hint.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import Result
from command import check_refused, run
from oracle.stores import read_store
from small_shards import make_shards
from tokenizers import Regex, Tokenizer, models, pre_tokenizers

CONVERT = "hint: convert the file with iconv and add --overwrite, or pass --encoding-errors replace"
BOS, EOS = 257, 258  # of the byte tokenizer


def write(path: Path, data: bytes) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    return path


def tokenize(source: Path | list[Path], *options: object) -> Result:
    """Run `seqpack tokenize` into the folder `tokens` beside the first input."""
    sources = [source] if isinstance(source, Path) else source
    return run("tokenize", *sources, "-o", store_of(sources[0]), *options)


def store_of(source: Path) -> Path:
    return source.parent / "tokens"


def check_no_store(folder: Path) -> None:
    """Assert that nothing there counts as a store, for any reader."""
    assert not (folder / "manifest.json").exists()
    assert run("inspect", folder).exit_code == 4
    assert run("pack", folder, "-o", folder.parent / "never").exit_code == 4
    assert not (folder.parent / "never").exists()


def read_documents(store: Path) -> list[list[list[int]]]:
    """Return the sequences of each document."""
    page = read_store(store)
    found: list[list[list[int]]] = [[] for _ in page.hashes]
    for document, ids in zip(page.documents, page.sequences, strict=True):
        found[document].append(ids)
    return found


def read_ledger(store: Path) -> dict[str, int]:
    ledger: dict[str, int] = json.loads((store / "manifest.json").read_bytes())["ledger"]
    return ledger


def read_rejects(store: Path) -> list[dict[str, Any]]:
    lines = (store / "rejects.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def read_texts(store: Path) -> list[str | None]:
    """Return the text of each document of a store of bytes, None for one without a sequence."""
    return [
        bytes(itertools.chain(*pieces)).decode() if pieces else None
        for pieces in read_documents(store)
    ]


def unpack_texts(store: Path) -> list[str]:
    """Go the rest of the way and back: pack, then unpack."""
    shards, rows = store.parent / "shards", store.parent / "rows.jsonl"
    assert run("pack", store, "-o", shards, "--num-workers", 1).exit_code == 0
    assert run("unpack", shards, "--text", "-o", rows).exit_code == 0
    return [json.loads(line)["text"] for line in rows.read_text().split("\n")[:-1]]


def save_tokenizer(path: Path, vocabulary: dict[str, int], pre_tokenizer: object = None) -> Path:
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))  # noqa: S106
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    path.parent.mkdir(exist_ok=True)
    tokenizer.save(str(path))
    return path


# Encodings, line ends, lengths of lines


@pytest.mark.parametrize("policy", ["error", "replace", "skip"])
def test_case_01_invalid_utf8(tmp_path: Path, policy: str) -> None:
    lines = [b"line %d" % number for number in range(1, 1043)]
    lines[1041] = b"sixteen bytes..." + b"\xff" + b" and more"
    corpus = write(tmp_path / "a.txt", b"\n".join(lines))
    options = ("--encoding-errors", policy, "--part-bytes", 4000, "--num-workers", 1)
    result = tokenize(corpus, *options)
    if policy == "error":
        check_refused(result, 3, f"{corpus}:1042: byte 0xff, expected UTF-8", CONVERT)
        check_no_store(store_of(corpus))
        return
    assert result.exit_code == 0
    texts = read_texts(store_of(corpus))
    assert len(texts) == 1042
    assert texts[1041] == ("sixteen bytes...\ufffd and more" if policy == "replace" else None)
    assert read_ledger(store_of(corpus))["num_rejected"] == (policy == "skip")
    if policy == "skip":
        assert result.stdout.splitlines()[-1] == "  records skipped, listed in rejects.jsonl: 1"
        byte = corpus.read_bytes().index(b"\xff")
        reason = "byte 0xff, expected UTF-8"
        expected = {"source": str(corpus), "record": 1042, "byte": byte, "reason": reason}
        assert read_rejects(store_of(corpus)) == [expected]


def write_long_line(path: Path, num_bytes: int) -> Path:
    """Write a line of NULs that takes no room on the disk, after a first one."""
    write(path, b"first\n")
    os.truncate(path, num_bytes)
    return path


MEASURED = """
import atexit, re, runpy, sys
from pathlib import Path

def show_peak():  # of this process alone: ru_maxrss begins with that of the process that started it
    print(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])

atexit.register(show_peak)
runpy.run_module("seqpack_cli", run_name="__main__")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_case_08_memory_of_a_long_line_is_bounded(tmp_path: Path) -> None:
    corpus = write_long_line(tmp_path / "a.txt", 200_000_000)
    command = [sys.executable, "-c", MEASURED, "tokenize", str(corpus), "--num-workers", "1"]
    done = subprocess.run(
        [*command, "-o", tmp_path / "tokens", "-q"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert int(done.stdout) < 200_000, "the limit of 64 MiB, and what the program takes anyway"


# Empty documents


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.txt", b"one\n\nthree\n\n"),
        ("a.jsonl", b'{"text": "one"}\n{"text": ""}\n{"text": "three"}\n\n'),
    ],
)
def test_case_09_empty_document(tmp_path: Path, name: str, data: bytes) -> None:
    """It has no sequence and is counted; the others keep the numbers of the input."""
    corpus = write(tmp_path / name, data)
    result = tokenize(corpus, "--eos", "<eos>")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        f"{store_of(corpus)}: complete",
        "  4 documents -> 2 sequences, 10 tokens (uint16, 1 part)",
        "  empty documents, without a sequence: 2",
    ]
    shown = run("inspect", store_of(corpus), "--sequence", 1).stdout.splitlines()
    assert shown[1].startswith("  source ")
    assert shown[1].endswith(f"{corpus.name}, record 3")  # a long path is cut at its front


def test_case_10_white_space_alone(tmp_path: Path) -> None:
    """It is a document like any other if the tokenizer has tokens for it, else an empty one."""
    path = save_tokenizer(
        tmp_path / "words.json", {"<unk>": 0, "a": 1}, pre_tokenizers.Whitespace()
    )
    corpus = write(tmp_path / "a.txt", b"a\n \t \na a\n")
    assert tokenize(corpus, "--tokenizer", path).exit_code == 0
    assert read_documents(store_of(corpus)) == [[[1]], [], [[1, 1]]]
    assert read_ledger(store_of(corpus))["num_empty_documents"] == 1
    assert tokenize(corpus, "--overwrite").exit_code == 0
    assert read_texts(store_of(corpus)) == ["a", " \t ", "a a"]


def test_case_11_corpus_without_a_token(tmp_path: Path) -> None:
    first = write(tmp_path / "a.txt", b"\n\n")
    second = write(tmp_path / "b.jsonl", b'{"text": ""}\n')
    result = tokenize([first, second])
    found = f"{first}, {second}: no document with a token (3 documents read)"
    check_refused(result, 3, found)
    check_no_store(store_of(first))
    write(first, b"now there is one\n")
    assert tokenize([first, second]).exit_code == 0


# Tokenizers


@pytest.mark.parametrize("own", [True, False])
def test_case_20_special_token_in_the_text(tmp_path: Path, tiny_tokenizer: Path, own: bool) -> None:
    """Text is text and counted; with the option it becomes the id."""
    text = "a <eos> b <bos>"
    corpus = write(tmp_path / "a.txt", f"{text}\n".encode())
    options = ("--tokenizer", tiny_tokenizer if own else "bytes", "--no-add-special-tokens")
    eos, bos = (2, 1) if own else (EOS, BOS)
    result = tokenize(corpus, *options)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == (
        "  special tokens spelled out in the text, listed in special_tokens.jsonl: 2"
    )
    ((ids,),) = read_documents(store_of(corpus))
    assert not {bos, eos} & set(ids)
    assert unpack_texts(store_of(corpus)) == [text]
    result = tokenize(corpus, *options, "--allow-special-tokens", "--overwrite")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == (
        "  special tokens spelled out in the text, listed in special_tokens.jsonl, and encoded as "
        "their ids: 2"
    )
    ((ids,),) = read_documents(store_of(corpus))
    assert (ids.count(eos), ids.count(bos), ids[-1]) == (1, 1, bos)


@pytest.mark.parametrize("num_workers", [1, 2])
def test_case_23_pattern_that_never_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_workers: int
) -> None:
    """Oniguruma gives up after ten million steps: a panic, which is no Exception."""
    monkeypatch.setenv("RUST_BACKTRACE", "0")  # what the library says itself, on stderr
    pattern = pre_tokenizers.Split(Regex(r"(x+x+)+y|."), "isolated")
    path = save_tokenizer(tmp_path / "words.json", {"<unk>": 0, "a": 1}, pattern)
    good = write(tmp_path / "a.txt", b"a\n" * 10)
    bad = write(tmp_path / "b.txt", b"a\n" * 4 + b"x" * 40 + b"\na\n")
    options = ("--tokenizer", path, "--encoder", "tokenizers", "--part-bytes", 20)
    options = (*options, "--num-workers", num_workers)
    result = tokenize([good, bad], *options)
    found = "tokenizer.json: Onig: Regex search error: retry-limit-in-match over"
    check_refused(result, 3, f"{bad}:5: {found}")
    check_no_store(store_of(good))
    assert not (store_of(good) / "part-00001.bin").exists()
    write(bad, b"a\n" * 5)
    assert tokenize([good, bad], *options[:4], "--overwrite").exit_code == 0
    assert len(read_documents(store_of(good))) == 15


# Lengths

CUT = {
    "split": ["  3 documents -> 6 sequences, 20 tokens (uint16, 1 part)"],
    "truncate": ["  3 documents -> 3 sequences, 11 tokens (uint16, 1 part)", "  tokens cut off: 9"],
    "drop": [
        "  3 documents -> 1 sequence, 3 tokens (uint16, 1 part)",
        "  documents dropped as too long: 2",
    ],
}


@pytest.mark.parametrize("policy", CUT)
def test_case_26_longer_than_max_length(tmp_path: Path, policy: str) -> None:
    """Splitting, where nothing is lost, is what happens unless asked otherwise."""
    corpus = write(tmp_path / "a.txt", b"abc\nabcdefgh\nabcdefghi\n")
    result = tokenize(corpus, "--max-length", 4, "--overflow", policy)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[1:] == CUT[policy]


@pytest.fixture
def long_shards(tmp_path: Path) -> Path:
    """Shards with one sequence that is longer than cuDNN takes in one call."""
    return make_shards(tmp_path, [65_600, 40, 7])


def test_case_27_longer_than_65535(long_shards: Path) -> None:
    """Every id is compared; models compute a part, and the report says so."""
    result = run("verify", long_shards, "--level", "forward")
    assert result.exit_code == 0, result.stdout
    lines = result.stdout.splitlines()
    assert lines[0] == f"{long_shards}: packed, 1 batch, 3 sequences, 65,647 tokens"
    assert [line.split()[:6] for line in lines[4:6]] == [
        ["structure", "ok", "1", "of", "1", "100.0%"],
        ["roundtrip", "ok", "1", "of", "1", "100.0%"],
    ]
    note = "computed only part of 1 large batch: the time steps in which most rows end"
    assert f"  note: forward: {note}" in lines
    assert lines[-1] == "all levels passed"


@pytest.mark.cuda
def test_case_27_longer_than_65535_on_cuda(long_shards: Path) -> None:
    options = ("--device", "cuda", "--max-batch-tokens", 1_000_000)
    result = run("verify", long_shards, *options)
    assert result.exit_code == 0, result.stdout
    lines = result.stdout.splitlines()
    note = "computed only part of 1 large batch: the time steps in which most rows end"
    assert f"  note: forward: {note}" in lines
    assert lines[-1] == "all levels passed"


@pytest.mark.cuda
def test_case_40_cuda_memory_is_not_enough(tmp_path: Path) -> None:
    shards = make_shards(tmp_path, [3000] * 64, batch_size=64)
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + (64 << 20)) / total)
    try:
        options = ("--hidden-size", 512, "--max-batch-tokens", 1_000_000)
        result = run("verify", shards, "--device", "cuda", *options)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert result.exit_code == 5
    message, _, hint = result.stderr.splitlines()
    assert message.startswith("Error: shard-00000.safetensors: batch 0: ")
    expected = "pass a smaller --max-batch-tokens, or pack with a smaller --batch-size"
    assert hint == f"hint: {expected}"
    assert "proven" not in result.stdout
