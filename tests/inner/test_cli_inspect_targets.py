"""`seqpack inspect` of targets, end to end: marked with and without colours, in all layouts."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from command import run

from seqpack_cli.reporting.terminal.styles import GREEN, RESET

QUESTIONS = [("2 + 2? ", "4."), ("Who? ", "Goethe, in two parts."), ("Nothing", "")]


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    records = [{"question": question, "answer": answer} for question, answer in QUESTIONS]
    Path("qa.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    fields = ("--prompt-field", "question", "--completion-field", "answer", "--eos", "<eos>")
    result = run("tokenize", "qa.jsonl", *fields, "--max-length", 16, "--overlap", 2, "-o", "st")
    assert result.exit_code == 0, result.stderr
    return tmp_path


SEQUENCE = """\
sequence 0
  source             qa.jsonl, record 1
  document           0
  length             10 tokens
  targets            3 tokens, 30.00%
  overlap            0

  │2 │␣ │+ │␣ │2 │? │␣ │4 │. │<eos>│
  │  │  │  │  │  │  │  │^ │^ │^^^^^│
  │50│32│43│32│50│63│32│52│46│  258│
  ^ target

  text               "2 + 2? 4.<eos>"
"""


@pytest.mark.usefixtures("work")
def test_sequence_marks_its_targets() -> None:
    assert run("inspect", "st", "--sequence", 0).stdout == SEQUENCE
    found = json.loads(run("inspect", "st", "--sequence", 0, "--json").stdout)
    assert [token["targets"] for token in found["tokens"]] == ["none"] * 7 + ["all"] * 3
    assert found["columns"]["targets"] == [0] * 7 + [1] * 3
    assert (found["num_targets"], found["target_share"]) == (3, 0.3)


@pytest.mark.usefixtures("work")
def test_colours_are_for_terminals_and_those_who_want_them(monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable, "-m", "seqpack_cli", "inspect", "st", "--sequence", "0"]
    reader, writer = pty.openpty()
    done = subprocess.run(command, stdout=writer, check=True)
    os.close(writer)
    shown = b""
    while chunk := read(reader):
        shown += chunk
    assert done.returncode == 0
    assert f"│{GREEN}4{RESET} │{GREEN}.{RESET} │{GREEN}<eos>{RESET}│" in shown.decode()
    assert "^" not in shown.decode()
    assert subprocess.run(command, capture_output=True, check=True).stdout.decode() == SEQUENCE
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert GREEN in run("inspect", "st", "--sequence", 0).stdout
    monkeypatch.setenv("NO_COLOR", "1")
    assert run("inspect", "st", "--sequence", 0).stdout == SEQUENCE


def read(terminal: int) -> bytes:
    """Return what a terminal shows next, b"" at its end."""
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # Linux says so at the end
        return b""


@pytest.mark.usefixtures("work")
def test_store_tells_its_targets_and_what_made_them() -> None:
    lines = run("inspect", "st").stdout.splitlines()
    for line in (
        "  targets            26 tokens, 55.32%",
        "  prompt field       question",
        "  completion field   answer",
        "  overlap            2",
        "  overlap tokens     2",
        "  targets            targets, 55.32% of the tokens; per sequence  ·█·█··█·█·",
    ):
        assert line in lines
    numbers = json.loads(run("inspect", "st", "--json").stdout)
    made = {"prompt_field": "question", "completion_field": "answer", "overlap": 2}
    assert (numbers["target_options"], numbers["warnings"]) == ([made], [])


@pytest.mark.usefixtures("work")
@pytest.mark.parametrize("layout", ["packed", "padded", "varlen"])
def test_batches_count_the_targets_of_each_row(layout: str) -> None:
    budget = ("--max-tokens", 64) if layout == "varlen" else ()
    assert run("pack", "st", "-o", "sh", "--layout", layout, *budget).exit_code == 0
    batch = json.loads(run("inspect", "sh", "--batch", 0, "--json").stdout)
    found = {
        row["original_index"]: row["num_targets"]
        for row in batch.get("rows", batch.get("sequences"))
    }
    assert found == {0: 3, 1: 11, 2: 11, 3: 1}
    lines = run("inspect", "sh", "--batch", 0).stdout.splitlines()
    first = "cell" if layout == "varlen" else "row"
    start = lines.index(f"  {first}  sequence   length  targets   share  overlap  text")
    shown = {line.split()[1]: line.split()[3:5] for line in lines[start + 1 :]}
    assert shown["0"] == ["3", "30.00%"]
    assert shown["1"] == ["11", "68.75%"]
    assert (
        run("inspect", "sh", "--sequence", 0).stdout.splitlines()[-7:]
        == (SEQUENCE.splitlines()[-7:])
    )
    numbers = run("inspect", "sh").stdout.splitlines()
    assert "  targets            26 tokens, 55.32%" in numbers
    assert "  completion field   answer" in numbers


@pytest.mark.usefixtures("work")
def test_splits_tell_the_targets_of_each() -> None:
    options = ("--split", "a=0.5,b=0.5", "--split-seed", 1, "-o", "sp")
    assert run("pack", "st", *options).exit_code == 0
    splits = json.loads(run("inspect", "sp", "--json").stdout)["splits"]
    lines = run("inspect", "sp").stdout.splitlines()
    for entry in splits:
        number, share = entry["ledger"]["num_target_tokens"], entry["target_share"]
        assert share == pytest.approx(number / entry["ledger"]["num_tokens"], abs=1e-6)
        assert f"  {entry['name']}: {number} targets, {share:.2%} of the tokens" in lines
    assert sum(entry["ledger"]["num_target_tokens"] for entry in splits) == 26
