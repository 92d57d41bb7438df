"""`seqpack import` of records, as a user types it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from command import run

from seqpack_cli import open_store

VOCABULARY = ("--vocab-size", 100)


def write(path: Path, records: Sequence[dict[str, Any]]) -> Path:
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return path


def test_every_option_about_records_is_passed_on(tmp_path):
    records = [
        {"a": {"ids": ids}, "y": ids, "m": [1] * len(ids), "loss_mask": [5], "n": number, "k": "x"}
        for number, ids in [(3, [7]), (3, [8, 9]), (4, []), (5, [200]), (6, [1])]
    ]
    path = write(tmp_path / "a.jsonl", records)
    fields = {"ids": "a.ids", "labels": "y", "attention-mask": "m"}
    options = [part for name, field in fields.items() for part in (f"--{name}-field", field)]
    options += ["--ignore-field", "loss_mask", "--keep", "k:class", "--on-bad-record", "skip"]
    result = run("import", path, "-o", tmp_path / "store", *VOCABULARY, *options, "--json")
    assert result.exit_code == 0, result.stderr
    manifest = json.loads(result.stdout)
    recorded = manifest["options"]
    assert [recorded[f"{name.replace('-', '_')}_field"] for name in fields] == list(fields.values())
    assert recorded["loss_mask_field"] is None
    assert [(each["name"], each["kind"]) for each in manifest["columns"]] == [
        ("targets", "targets"),
        ("k", "class"),
    ]
    assert [ids.tolist() for ids in open_store(tmp_path / "store")] == [[7], [8, 9], [1]]
    assert open_store(tmp_path / "store").part_column(0, "targets").tolist() == [1, 1, 1, 1]
    ledger = {name: count for name, count in manifest["ledger"].items() if count}
    assert ledger.pop("num_documents") == 5
    assert ledger["num_empty_documents"] == ledger["num_rejected"] == 1
    (reject,) = (tmp_path / "store" / "rejects.jsonl").read_text().splitlines()
    assert json.loads(reject)["reason"] == "token 1 has id 200, expected ids from 0 to 99"


def test_a_run_is_continued_with_the_fields_that_it_found(tmp_path):
    path = write(tmp_path / "a.jsonl", [{"input_ids": [7], "labels": [7]}])
    arguments = ("import", path, "-o", tmp_path / "store", *VOCABULARY)
    assert run(*arguments).exit_code == 0
    assert "already complete" in run(*arguments, "--labels-field", "labels").stdout
    result = run(*arguments, "--ignore-field", "labels")
    assert result.exit_code == 4
    assert "labels" in result.stderr
