"""Hints lead from a command that reads something else to the one that reads a file."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from command import run

WAYS = {
    "x.bin": ("inspect", "run seqpack import"),
    "y.idx": ("inspect", "run seqpack import"),
    "hf": ("inspect", "run seqpack import"),
    "x.bin ": ("tokenize", "run seqpack import"),
    "array.json": ("tokenize --format jsonl", "pass --format json"),
    "lines.json": ("tokenize --format jsonl", "pass --format json"),
    "lists.jsonl": ("import", 'write each record as an object: {"input_ids": …}'),
    "map.json": ("tokenize", "jq -c 'to_entries[] | {id: .key, text: .value}' "),
    "folder": ("tokenize", "pass --include '*.json'"),
    "ids.csv": ("import", "write ids as JSON lines"),
    "ids.npz": ("import", "with numpy.save"),
}


@pytest.mark.parametrize("name", WAYS)
def test_a_hint_leads_to_the_command_that_reads_a_file(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    for folder in ("hf", "folder"):
        (tmp_path / folder).mkdir()
    (tmp_path / "hf/dataset_info.json").write_text("{}")
    records = [{"text": "ab"}]
    (tmp_path / "folder/corpus.json").write_text(json.dumps(records))
    (tmp_path / "array.json").write_text(json.dumps(records))
    (tmp_path / "lines.json").write_text(json.dumps(records, indent=1))
    (tmp_path / "lists.jsonl").write_text("[1, 2, 3]\n")
    (tmp_path / "map.json").write_text('{"17": "ab", "18": "c"}')
    for file in ("x.bin", "ids.csv", "ids.npz"):
        (tmp_path / file).write_bytes(b"ab")
    command, hint = WAYS[name]
    options = {"import": ["-o", "o", "--vocab-size", "9"], "tokenize": ["-o", "o"]}
    words = command.split()
    result = run(*words, name.strip(), *options.get(words[0], []))
    assert result.exit_code in (2, 3, 4)
    assert hint in result.stderr.partition("hint: ")[2]


def test_files_of_a_saved_dataset_are_not_told_as_skipped(tmp_path):
    table = pa.table({"input_ids": [[1, 2]]})
    with pa.ipc.new_stream(str(tmp_path / "data.arrow"), table.schema) as stream:
        stream.write_table(table)
    state = {"_data_files": [{"filename": "data.arrow"}]}
    (tmp_path / "state.json").write_text(json.dumps(state))
    (tmp_path / "dataset_info.json").write_text("{}")
    output = tmp_path.with_name(f"{tmp_path.name}-store")
    result = run("import", tmp_path, "-o", output, "--vocab-size", 4)
    assert (result.exit_code, result.stderr) == (0, "")
