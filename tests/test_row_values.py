"""`inspect --sequence` and `--batch` show the columns beside their own sequence and token."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command import run

LAYOUTS = [
    ("packed",),
    ("padded", "--padding-side", "left", "--batch-size", 3, "--last-batch", "pad"),
    ("varlen", "--max-tokens", 9, "--overflow", "split"),
]
# A tag of each word says the first letter of it; a token of another letter has none.
WORDS = ["ab cd", "efgh", "i jk lm no p", "q", "rstuvwxyz ab"]


def make_record(index: int, text: str) -> dict[str, Any]:
    spans = [[start, start + 1, text[start]] for start in range(len(text)) if text[start] != " "]
    return {"text": text, "tag": spans, "n": -index, "kind": text[0], "id": f"r{index}"}


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of a few texts, in which the tag of each byte is its letter."""
    monkeypatch.chdir(tmp_path)
    records = [make_record(index, text) for index, text in enumerate(WORDS)]
    Path("records.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    keep = [word for name in ("tag:tags", "n", "kind:class", "id") for word in ("--keep", name)]
    result = run("tokenize", "records.jsonl", *keep, "-o", "tokens")
    assert result.exit_code == 0, result.stderr
    return tmp_path


def expect(index: int, text: str) -> dict[str, Any]:
    tags = [None if letter == " " else letter for letter in text]
    return {"tag": tags, "n": -index, "kind": WORDS[index][0], "id": f"r{index}"}


@pytest.mark.usefixtures("work")
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout[0])
def test_values_stand_beside_their_own_row_and_token(layout: tuple[object, ...]) -> None:
    result = run("pack", "tokens", "-o", "shards", "--layout", *layout)
    assert result.exit_code == 0, result.stderr
    in_store, in_shards = (
        json.loads(run("inspect", path, "--json").stdout) for path in ("tokens", "shards")
    )
    tags, _, kinds, _ = in_shards["columns"]
    assert tags == in_store["columns"][0]  # padding is not counted
    ledger = in_shards["ledger"]
    assert sum(entry["count"] for entry in kinds["classes"]) == (
        ledger["num_rows"] - ledger["num_filler_rows"]
    )
    seen = []
    for number in range(ledger["num_batches"]):
        batch = json.loads(run("inspect", "shards", "--batch", number, "--json").stdout)
        for row in batch.get("rows", batch.get("sequences")):
            assert row["columns"] == expect(row["original_index"], row["text"])
            seen.append(row["original_index"])
    assert sorted(set(seen)) == [*range(len(WORDS))]
    for index, text in enumerate(WORDS):
        for path in ("tokens", "shards"):
            found = json.loads(run("inspect", path, "--sequence", index, "--json").stdout)
            assert found["columns"] == expect(index, text)


@pytest.mark.usefixtures("work")
def test_terminal_shows_the_columns_of_rows_and_tokens() -> None:
    assert run("inspect", "tokens", "--sequence", 0).stdout == (
        "sequence 0\n"
        "  source             records.jsonl, record 1\n"
        "  document           0\n"
        "  length             5 tokens\n"
        "  n                  0\n"
        '  kind               "a"\n'
        '  id                 "r0"\n'
        "\n"
        "  │a │b │␣ │c │d  │\n"
        "  │97│98│32│99│100│\n"
        "  │a │b │  │c │d  │\n"
        "  below the ids: tag\n"
        "\n"
        '  text               "ab cd"\n'
    )
    assert run("pack", "tokens", "-o", "shards").exit_code == 0
    lines = run("inspect", "shards", "--batch", 0).stdout.splitlines()
    assert lines[-6:-3] == [
        "  row  sequence   length  n   kind  id    text",
        '    0         2       12  -2  "i"   "r2"  "i jk lm no p"',
        '    1         4       12  -4  "r"   "r4"  "rstuvwxyz ab"',
    ]


@pytest.mark.usefixtures("work")
@pytest.mark.parametrize(("name", "value"), [("tag", 99), ("kind", -100), ("kind", 5)])
def test_a_class_that_does_not_exist_is_refused(name: str, value: int) -> None:
    assert run("pack", "tokens", "-o", "shards").exit_code == 0
    path = Path("shards/shard-00000.safetensors")
    data = bytearray(path.read_bytes())
    num_header_bytes = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + num_header_bytes])
    place = 8 + num_header_bytes + header[f"column.{name}"]["data_offsets"][0]
    data[place : place + 4] = value.to_bytes(4, "little", signed=True)
    path.write_bytes(data)
    for question in ([], ["--batch", 0], ["--html", "page.html"]):
        result = run("inspect", "shards", *question)
        assert result.exit_code == 4
        assert f"column '{name}'" in result.stderr
