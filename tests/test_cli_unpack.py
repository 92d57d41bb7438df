from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import run


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("a\n\nlong one\nné\n")
    run("tokenize", tmp_path / "a.txt", "-o", tmp_path / "tokens")
    run("pack", tmp_path / "tokens", "-o", tmp_path / "out")
    return tmp_path / "out"


def test_unpack_writes_ids_in_the_original_order(tmp_path: Path, shards: Path) -> None:
    result = run("unpack", shards, "-o", tmp_path / "rows.jsonl")
    assert result.stdout == f"{tmp_path}/rows.jsonl: 3 sequences\n"
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert rows == [
        {"index": 0, "ids": [97]},
        {"index": 1, "ids": list(b"long one")},
        {"index": 2, "ids": list("né".encode())},
    ]


def test_unpack_writes_text_on_stdout(shards: Path) -> None:
    result = run("unpack", shards, "--text", "-o", "-")
    assert [json.loads(line)["text"] for line in result.stdout.splitlines()] == [
        "a",
        "long one",
        "né",
    ]


def test_unpack_prints_json(tmp_path: Path, shards: Path) -> None:
    result = run("unpack", shards, "-o", tmp_path / "rows.jsonl", "--json")
    assert json.loads(result.stdout) == {"num_sequences": 3, "file": f"{tmp_path}/rows.jsonl"}


@pytest.mark.parametrize(
    "options",
    [
        "--layout varlen --max-tokens 3",
        "--layout varlen --max-tokens 3 --fill sequential --shuffle",
        "--layout padded --padding-side left --batch-size 2 --last-batch pad",
        "--layout padded --buckets auto --shuffle --seed 4",
    ],
)
def test_unpack_gives_whole_sequences_in_the_original_order(
    tmp_path: Path, shards: Path, options: str
) -> None:
    other = tmp_path / "other"
    assert run("pack", tmp_path / "tokens", "-o", other, *options.split()).exit_code == 0
    result = run("unpack", other, "-o", tmp_path / "rows.jsonl")
    assert result.stdout == f"{tmp_path}/rows.jsonl: 3 sequences\n"
    expected = run("unpack", shards, "-o", "-").stdout
    assert (tmp_path / "rows.jsonl").read_text() == expected
    texts = run("unpack", other, "--text", "-o", "-").stdout.splitlines()
    assert [json.loads(line)["text"] for line in texts] == ["a", "long one", "né"]
