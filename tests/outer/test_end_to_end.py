"""The whole way as a user goes it: text in, shards out, the same text back."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command import run
from tokenizers import Tokenizer

from seqpack_cli import open_shards, open_store

ROOT = Path(__file__).parents[2]
SAMPLE_DATA = ROOT / "sample_data"
SHARED_DATA = ROOT.parent / "shared" / "data"


def read_files(folder: Path) -> dict[str, bytes]:
    """Return all files of a folder but run.json, which may differ between equal runs."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "run.json"}


def _expected_texts(folder: Path) -> list[str]:
    """Read sample_data by other means than the package's."""
    texts = []
    for path in sorted(folder.rglob("*"), key=lambda path: bytes(path)):
        if path.suffix == ".txt":
            texts += path.read_bytes().decode().removesuffix("\n").split("\n")
        if path.suffix == ".jsonl":
            lines = path.read_bytes().decode().removesuffix("\n").split("\n")
            texts += [json.loads(line)["text"] for line in lines]
    return [text.removesuffix("\r") for text in texts]


WAYS = [
    "--layout packed",
    "--layout padded",
    "--layout varlen --max-tokens 64",
    "--layout padded --buckets auto --batch-size 16 --last-batch pad --padding-side left --shuffle",
    "--layout padded --batch-size 32 --window 64 --pad-to-multiple 8 --shuffle --seed 7",
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("tokenizer", ["bytes", SAMPLE_DATA / "tokenizer.json"])
def test_sample_data_goes_the_whole_way_and_back(
    tmp_path: Path, way: str, tokenizer: str | Path
) -> None:
    tokens, shards, rows = tmp_path / "tokens", tmp_path / "shards", tmp_path / "rows.jsonl"
    assert run("tokenize", SAMPLE_DATA, "--tokenizer", tokenizer, "-o", tokens).exit_code == 0
    assert run("pack", tokens, "-o", shards, *way.split()).exit_code == 0
    assert run("verify", shards, "--level", "roundtrip").exit_code == 0
    assert run("unpack", shards, "-o", rows).exit_code == 0
    library = Tokenizer.from_file(str(tokens / "tokenizer.json"))
    library.encode_special_tokens = True
    expected = [ids for text in _expected_texts(SAMPLE_DATA) if (ids := library.encode(text).ids)]
    found = [json.loads(line) for line in rows.read_text().splitlines()]
    assert [row["index"] for row in found] == list(range(len(expected)))
    assert [row["ids"] for row in found] == expected


def test_sample_data_as_text_comes_back_letter_for_letter(tmp_path: Path) -> None:
    tokens, shards, rows = tmp_path / "tokens", tmp_path / "shards", tmp_path / "rows.jsonl"
    tokenizer = SAMPLE_DATA / "tokenizer.json"
    assert run("tokenize", SAMPLE_DATA, "--tokenizer", tokenizer, "-o", tokens).exit_code == 0
    assert run("pack", tokens, "-o", shards).exit_code == 0
    assert run("unpack", shards, "--text", "-o", rows).exit_code == 0
    found = [json.loads(line)["text"] for line in rows.read_text().split("\n")[:-1]]
    assert found == [text for text in _expected_texts(SAMPLE_DATA) if text]


def test_documents_by_line_paragraph_and_file_hold_the_same_text(tmp_path: Path) -> None:
    counts = {}
    for document in ("line", "paragraph", "file"):
        out = tmp_path / document
        run("tokenize", SAMPLE_DATA / "letters", "--document", document, "-o", out)
        counts[document] = len(open_store(out))
    letters = [path.read_bytes() for path in (SAMPLE_DATA / "letters").iterdir()]
    num_lines = sum(len(line) > 0 for letter in letters for line in letter.split(b"\n"))
    assert counts == {"line": num_lines, "paragraph": 46, "file": 3}
    whole = bytes(open_store(tmp_path / "file")[0].astype(np.uint8))
    assert whole == (SAMPLE_DATA / "letters" / "first.txt").read_bytes()


@pytest.mark.parametrize(  # test_pack_run.py has more, in two processes that stay
    "way", [WAYS[4], *(pytest.param(way, marks=pytest.mark.slow) for way in (WAYS[0], WAYS[2]))]
)
def test_same_input_gives_the_same_bytes_for_any_number_of_workers(
    tmp_path: Path, way: str
) -> None:
    found = []
    for workers in (1, 2):
        tokens, shards = tmp_path / f"tokens{workers}", tmp_path / f"shards{workers}" / "s"
        (tmp_path / f"shards{workers}").mkdir()
        options = ("--num-workers", workers)
        run("tokenize", SAMPLE_DATA, "-o", tokens, "--part-bytes", "20kB", *options)
        link = tmp_path / f"shards{workers}" / "tokens"
        tokens.rename(link)
        run("pack", link, "-o", shards, "--shard-bytes", "50kB", *options, *way.split())
        found.append([read_files(folder) for folder in (link, shards)])
    assert found[0] == found[1]
    assert len(found[0][0]) == 15, "four parts, and the special tokens in the text"
    assert len(found[0][1]) > 4, "several shards"


@pytest.mark.skipif(not SHARED_DATA.exists(), reason="the measuring data is not here")
def test_wikitext_with_gpt2_equals_the_library(tmp_path: Path) -> None:
    text, tokenizer = SHARED_DATA / "wikitext2.txt", SHARED_DATA / "gpt2.tokenizer.json"
    head = tmp_path / "head.txt"
    head.write_bytes(b"".join(text.read_bytes().splitlines(keepends=True)[:1500]))
    tokens, shards = tmp_path / "tokens", tmp_path / "shards"
    assert run("tokenize", head, "--tokenizer", tokenizer, "-o", tokens).exit_code == 0
    assert run("pack", tokens, "-o", shards, "--max-tokens", 4096).exit_code == 0
    assert run("verify", shards, "--sample", 2, "--max-batch-tokens", 2048).exit_code == 0
    library = Tokenizer.from_file(str(tokenizer))
    lines = head.read_bytes().decode().split("\n")[:-1]
    expected = [encoding.ids for encoding in library.encode_batch(lines)]
    store = open_store(tokens)
    assert [ids.tolist() for ids in store] == [ids for ids in expected if ids]
    assert all(len(batch.data) <= 4096 for batch in open_shards(shards))
