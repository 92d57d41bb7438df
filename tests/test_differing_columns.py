"""Columns of two stores, or of shards: what `compare` finds is what a slow look finds."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import HERE

from seqpack_cli.reporting import store_blocks
from seqpack_cli.reporting.differences import compare
from seqpack_cli.reporting.opened import open_any
from seqpack_cli.reporting.terminal.difference_lines import show_differences
from seqpack_cli.reporting.wording import count_columns
from seqpack_cli.tokens.tokenize_options import TokenizeOptions
from seqpack_cli.tokens.tokenize_run import tokenize

Record = dict[str, Any]
KEEP = ("label:class", "score:float", "number:int", "id:text")


def store(
    folder: Path, name: str, records: Sequence[Record], keep: Sequence[str] = KEEP, **options: Any
) -> Path:
    """Tokenize records, always from the same file, into folder/name."""
    corpus = folder / "corpus.jsonl"
    corpus.write_text("".join(json.dumps(record) + "\n" for record in records))
    tokenize([str(corpus)], folder / name, TokenizeOptions(keep=keep, **options), executor=HERE)
    return folder / name


def make_records(generator: random.Random, count: int) -> list[Record]:
    return [
        {
            "text": "x" * generator.randint(1, 9),
            "label": generator.choice(["ham", "spam", "überschuss"]),
            "score": generator.choice([0.0, 0.5, -1.25]),
            "number": generator.randint(-(2**63), 2**63 - 1),
            "id": "é" * generator.randint(0, 3) + str(number % 7),
        }
        for number in range(count)
    ]


def find(a: Path, b: Path) -> dict[str, Any]:
    """Compare two folders; what is found is JSON, and its lines fit the terminal."""
    found = compare(open_any(a), open_any(b))
    assert all(count_columns(line) <= 80 for line in show_differences(found))
    return json.loads(json.dumps(found))  # type: ignore[no-any-return]


@pytest.mark.parametrize("seed", range(4))
def test_values_are_compared_as_a_slow_look_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    generator = random.Random(seed)
    monkeypatch.setattr(store_blocks, "IDS_PER_BLOCK", generator.choice([1, 20, 1000]))
    monkeypatch.setattr(store_blocks, "IDS_KEPT", 50)
    records = make_records(generator, 40)
    others = [dict(record) for record in records]
    for _ in range(12):
        changed = generator.choice(make_records(generator, 3))
        name = generator.choice(["label", "score", "number", "id"])
        others[generator.randrange(40)][name] = changed[name]
    a = store(tmp_path, "a", records, part_bytes=generator.choice([1, 500, 10_000]))
    b = store(tmp_path, "b", others, part_bytes=generator.choice([500, 10_000]))
    found = find(a, b)["columns"]
    for values, name in zip(found["values"], ("label", "score", "number", "id"), strict=True):
        places = [
            {"sequence": index, "position": None, "a": record[name], "b": other[name]}
            for index, (record, other) in enumerate(zip(records, others, strict=True))
            if record[name] != other[name]
        ]
        assert values == {"name": name, "num_differing": len(places), "places": places[:5]}


def test_classes_are_compared_by_name(tmp_path: Path) -> None:
    """A class that only one side has moves the numbers of the others."""
    records = [{"text": "x", "label": label} for label in ("b", "c", "b", "d")]
    others = [{"text": "x", "label": label} for label in ("b", "c", "a", "d")]
    a = store(tmp_path, "a", records, ["label:class"])
    b = store(tmp_path, "b", others, ["label:class"])
    other_order = store(tmp_path, "other_order", records, ["label:class=d,c,b"])
    found = find(a, b)
    place = {"sequence": 2, "position": None, "a": "b", "b": "a"}
    assert found["columns"] == {
        "only_in_a": [],
        "only_in_b": [],
        "changed": [
            {
                "name": "label",
                "a": {"kind": "class", "only_classes": []},
                "b": {"kind": "class", "only_classes": ["a"]},
                "same_order": True,
            }
        ],
        "same_order": True,
        "values": [{"name": "label", "num_differing": 1, "places": [place]}],
    }
    found = find(a, other_order)
    assert [change["same_order"] for change in found["columns"]["changed"]] == [False]
    assert [values["num_differing"] for values in found["columns"]["values"]] == [0]
    assert found["verdict"] == "different options and columns; same sequences"


def test_columns_of_one_side_or_of_another_kind_are_listed(tmp_path: Path) -> None:
    records = [{"text": "x", "label": 1, "old": 1, "new": 1}]
    a = store(tmp_path, "a", records, ["label:class", "old"])
    b = store(tmp_path, "b", records, ["new", "label:int"])
    assert show_differences(compare(open_any(a), open_any(b)))[4:] == [
        "options                        A                        B",
        '  keep                         ["label:class", "old"]   ["new", "label:int"]',
        "",
        "columns",
        '  only in A          "old"',
        '  only in B          "new"',
        "  label              class in A, int in B",
        "",
        "sequences",
        "  in both            1",
        "  differ             0",
        "",
        "different options and columns; same sequences",
    ]


def test_values_that_differ_are_shown_with_their_place(tmp_path: Path) -> None:
    records = [{"text": "xy", "label": "ham", "id": "a\x1b[2J"} for _ in range(12)]
    others = [{**record, "id": "雨" * 60} for record in records]
    others[1]["label"] = "spam"
    a = store(tmp_path, "a", records, ["label:class", "id"])
    b = store(tmp_path, "b", others, ["label:class", "id"])
    wide = f'B "{"雨" * 10}…'
    assert show_differences(compare(open_any(a), open_any(b)))[7:] == [
        "columns",
        '  label              1 class only in B: "spam"',
        "  label              differs in 1 sequence",
        '    sequence 1       A "ham", B "spam"',
        "  id                 differs in 12 sequences",
        *(f'    sequence {index}       A "a\\u001b[2J", {wide}' for index in range(5)),
        "",
        "sequences",
        "  in both            12",
        "  differ             0",
        "",
        "different sources and columns; same sequences",
    ]


def test_equal_columns_are_no_difference(tmp_path: Path) -> None:
    records = make_records(random.Random(0), 5)
    a, b = (store(tmp_path, name, records) for name in "ab")
    found = find(a, b)
    assert found["identical"]
    assert "columns" not in show_differences(found)
