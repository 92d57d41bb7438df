"""Targets that `inspect` counts and marks, compared with plain loops over the sequences."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from command import run

from seqpack_cli import open_shards, open_store
from seqpack_cli.limits import LIMITS
from seqpack_cli.reporting.column_contents import describe_columns
from seqpack_cli.reporting.column_facts import list_column_facts
from seqpack_cli.reporting.opened import name_entry
from seqpack_cli.reporting.row_targets import judge_pieces
from seqpack_cli.reporting.target_counts import count_targets_of_batches, measure_share
from seqpack_cli.tokens.decode import TextPiece

LAYOUTS = [
    ("packed", "--batch-size", 3),
    ("padded", "--padding-side", "left", "--batch-size", 4, "--last-batch", "pad"),
    ("varlen", "--max-tokens", 40),
]


def make_store(folder: Path, records: list[dict[str, str]], *options: object) -> Path:
    """Tokenize prompts and completions into folder/store, a few records in each part."""
    corpus = folder / "records.jsonl"
    corpus.write_text("".join(json.dumps(record) + "\n" for record in records))
    fields = ("--prompt-field", "prompt", "--completion-field", "completion")
    more = ("--part-bytes", 90, *options, "-o", folder / "store", "-q")
    result = run("tokenize", corpus, *fields, *more)
    assert result.exit_code == 0, result.stderr
    return folder / "store"


def make_records(seed: int) -> list[dict[str, str]]:
    generator = random.Random(seed)
    sizes = [(generator.randint(0, 12), generator.randint(0, 12)) for _ in range(30)]
    return [{"prompt": "p" * size, "completion": "c" * other} for size, other in sizes]


def expect(counts: list[tuple[int, int]]) -> dict[str, Any]:
    """Return what is counted of rows, each with its number of targets and of tokens."""
    bins = [0] * 10
    for number, length in counts:
        bins[min(10 * number // length, 9)] += 1
    return {
        "num_values": sum(length for _, length in counts),
        "num_targets": sum(number for number, _ in counts),
        "num_rows": len(counts),
        "num_rows_without": sum(number == 0 for number, _ in counts),
        "shares": [
            {"from": place / 10, "to": (place + 1) / 10, "count": number}
            for place, number in enumerate(bins)
        ],
    }


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout[0])
def test_targets_are_those_of_plain_loops_in_store_and_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: tuple[object, ...]
) -> None:
    monkeypatch.setattr(LIMITS, "ids_per_block", 25)
    records = make_records(1)
    tokens = make_store(tmp_path, records)
    texts = [record for record in records if record["prompt"] + record["completion"]]
    counts = [(len(it["completion"]), len(it["prompt"] + it["completion"])) for it in texts]
    found = describe_columns(open_store(tokens))[0]
    assert found.items() >= {**expect(counts), "row": "sequence"}.items()
    shards = tmp_path / "shards"
    result = run("pack", tokens, "-o", shards, "--layout", *layout, "--keep-without-target", "-q")
    assert result.exit_code == 0, result.stderr
    opened = open_shards(shards)
    rows = [
        counts[index]
        for batch in opened
        for index in batch.original_indices.tolist()  # type: ignore[union-attr]
        if index >= 0
    ]
    found = describe_columns(opened)[0]
    assert found.items() >= {**expect(rows), "row": name_entry(opened)}.items()
    per_batch = count_targets_of_batches(opened).tolist()
    assert per_batch == [
        sum(counts[index][0] for index in batch.original_indices.tolist() if index >= 0)  # type: ignore[union-attr]
        for batch in opened
    ]


def test_only_all_targets_are_a_whole_share() -> None:
    shares = [measure_share(number, 10**9) for number in (0, 1, 10**9 - 1, 10**9)]
    assert shares == [0, 1e-6, 1 - 1e-6, 1]


def test_pieces_of_several_ids_are_targets_in_whole_or_in_part() -> None:
    pieces = [TextPiece("a", (1, 2)), TextPiece("b", (3,)), TextPiece("雨", (4, 5, 6))]
    assert judge_pieces(pieces, [1, 1, 0, 0, 1, 1, 1]) == ["all", "none", "some"]


def test_column_of_targets_is_a_share_in_one_line(tmp_path: Path) -> None:
    records = [{"prompt": "ab", "completion": "cdefgh"}, {"prompt": "ab", "completion": ""}]
    columns = describe_columns(open_store(make_store(tmp_path, records)))
    shown = "targets, 60.00% of the tokens; per sequence  █······█··"
    assert list_column_facts(columns) == [("targets", shown)]


@pytest.mark.parametrize("question", [(), ("--sequence", 0), ("--html", "page.html")])
def test_a_target_that_is_neither_0_nor_1_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, question: tuple[object, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    store = make_store(tmp_path, [{"prompt": "ab", "completion": "cd"}])
    assert run("pack", store, "-o", "shards", "-q").exit_code == 0
    for folder, name in ((store, "part-00000.columns"), (Path("shards"), "shard-00000")):
        path = folder / f"{name}.safetensors"
        data = bytearray(path.read_bytes())
        start = 8 + int.from_bytes(data[:8], "little")
        header = json.loads(data[8:start])
        data[start + header["column.targets"]["data_offsets"][0]] = 2
        path.write_bytes(data)
        result = run("inspect", folder, *question)
        assert result.exit_code == 4
        assert "column 'targets'" in result.stderr
