"""What `inspect` counts in columns and among documents, compared with Counter and plain loops."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import run
from hypothesis import given
from hypothesis import strategies as st

from seqpack_cli import open_store
from seqpack_cli.limits import LIMITS
from seqpack_cli.reporting.column_contents import _choose_starts, _find_ends, describe_columns
from seqpack_cli.reporting.column_facts import list_column_facts
from seqpack_cli.reporting.duplicates import count_duplicates
from seqpack_cli.reporting.wording import WIDTH, count_columns

TEXTS = ["one", "two", "", "three", "one", "one", "", "two", "four words in one", "one"]


def make_store(folder: Path, records: list[dict[str, Any]], *options: object) -> Path:
    """Tokenize records; a record makes a part of its own."""
    corpus = folder / "records.jsonl"
    corpus.write_text("".join(json.dumps(record) + "\n" for record in records))
    result = run("tokenize", corpus, "--part-bytes", 1, *options, "-o", folder / "store")
    assert result.exit_code == 0, result.stderr
    return folder / "store"


@pytest.mark.parametrize("max_hashes", [1, 2, 3, 1000])
def test_duplicates_are_those_of_a_counter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_hashes: int
) -> None:
    monkeypatch.setattr(LIMITS, "hashes_per_range", max_hashes)
    store = open_store(make_store(tmp_path, [{"text": text} for text in TEXTS]))
    counts = Counter(filter(None, TEXTS))
    assert count_duplicates(store) == {
        "num_documents_with_tokens": counts.total(),
        "num_distinct_documents": len(counts),
        "num_duplicate_documents": counts.total() - len(counts),
    }


def test_columns_of_a_store_are_counted_over_all_parts(tmp_path: Path) -> None:
    labels, scores = "abacabadab", [0.5, -1.5, 9.0, 2.0, 2.5, 0.25, 9.0, 0.0, 4.0, 6.5]
    records = [
        {"text": text, "label": label, "score": score, "n": 10 * index, "id": f"r{index}"}
        for index, (text, label, score) in enumerate(zip(TEXTS, labels, scores, strict=True))
    ]
    keep = ["--keep", "label:class=a,b,c,d,e", "--keep", "score", "--keep", "n", "--keep", "id"]
    store = make_store(tmp_path, records, *keep)
    kept = [record for record in records if record["text"]]  # empty documents have no sequence
    label, score, number, text = describe_columns(open_store(store))
    counts = Counter(record["label"] for record in kept)
    assert [(entry["name"], entry["count"]) for entry in label["classes"]] == [
        *sorted(counts.items(), key=lambda item: (-item[1], item[0])),
        *((name, 0) for name in "abcde" if name not in counts),
    ]
    assert (label["num_classes"], label["num_unused_classes"]) == (5, 5 - len(counts))
    found = [record["score"] for record in kept]
    assert (score["smallest"], score["largest"]) == (min(found), max(found))
    assert score["mean"] == pytest.approx(sum(found) / len(found))
    assert sum(entry["count"] for entry in score["histogram"]) == len(found)
    assert [number[name] for name in ("smallest", "mean", "largest")] == [0, 46.25, 90]
    assert (text["num_bytes"], text["longest"], text["example"]) == (2 * len(kept), 2, "r0")
    shown = run("inspect", store).stdout
    assert "  duplicates         4 of 8 documents repeat an earlier one\n" in shown
    assert "  n                  int, 0 to 90, mean 46.25  █·▄▄▄▄▄▄\n" in shown


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_bins_of_integers_hold_each_value_once(values: list[int]) -> None:
    starts = _choose_starts(min(values), max(values))
    assert len(starts) <= 8
    spans = list(zip(starts.tolist(), _find_ends(starts, max(values)), strict=True))
    assert all(sum(start <= value <= end for start, end in spans) == 1 for value in values)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_bins_of_numbers_rise_from_the_smallest(values: list[float]) -> None:
    starts = _choose_starts(min(values), max(values))
    assert starts[0] == min(values)
    assert (np.diff(starts) > 0).all()
    assert starts[-1] <= max(values)
    assert np.isfinite(starts).all()


def test_the_mean_of_the_largest_numbers_is_finite(tmp_path: Path) -> None:
    records = [{"text": "x", "score": score} for score in (1.7e308, 1.7e308, 1.6e308)]
    (column,) = describe_columns(open_store(make_store(tmp_path, records, "--keep", "score")))
    assert column["mean"] == pytest.approx(1.6666666666667e308)


def test_ten_thousand_classes_take_three_lines(tmp_path: Path) -> None:
    records = [{"text": "x", "label": f"class {index} 雨" * 9} for index in range(10_000)]
    corpus = tmp_path / "records.jsonl"
    corpus.write_text("".join(json.dumps(record) + "\n" for record in records))
    store = tmp_path / "store"
    assert run("tokenize", corpus, "--keep", "label:class", "-o", store).exit_code == 0
    lines = run("inspect", store).stdout.splitlines()
    first = lines.index("columns") + 1
    shown = lines[first : lines.index("", first)]
    assert 1 <= len(shown) <= 3
    assert shown[-1].endswith("more")
    assert all(count_columns(line) <= WIDTH for line in lines)
    (column,) = json.loads(run("inspect", store, "--json").stdout)["columns"]
    assert len(column["classes"]) == 10_000


def test_a_column_of_one_number_has_no_histogram() -> None:
    column = {"name": "n", "kind": "int", "smallest": 7, "largest": 7, "histogram": [{}]}
    assert list_column_facts([column]) == [("n", "int, 7 everywhere")]


def test_classes_whose_names_are_numbers_are_told_from_their_counts() -> None:
    counts = ((0, 3), (1, 1))
    classes = [{"name": name, "count": each, "share": each / 4} for name, each in counts]
    column = {"name": "n", "kind": "class", "num_classes": 2, "num_unused_classes": 0}
    shown = "class, 2 classes: 0: 3 (75.00%), 1: 1 (25.00%)"
    assert list_column_facts([{**column, "classes": classes}]) == [("n", shown)]


def test_tokenize_and_pack_name_the_columns(tmp_path: Path) -> None:
    corpus, store = tmp_path / "records.jsonl", tmp_path / "store"
    records = [{"text": "ab", "label": label, "score": 0.5} for label in "xyz"]
    corpus.write_text("".join(json.dumps(record) + "\n" for record in records))
    shown = "  columns: label (class, 3 classes), score (float)\n"
    assert (
        shown
        in run("tokenize", corpus, "--keep", "label:class", "--keep", "score", "-o", store).stdout
    )
    assert shown in run("pack", store, "-o", tmp_path / "shards").stdout
