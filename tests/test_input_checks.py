"""Inputs that look like another format, and options that apply to none of them."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from click.testing import CliRunner
from command import check_refused, run

from seqpack_cli import open_store
from seqpack_cli.cli.main import main

LINE = b'{"id": 1, "text": "one"}\n'
JSON_NOTE = "pass --format jsonl to read one field of each line\n"


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def pipe(data: bytes, *arguments: str) -> tuple[int, str]:
    """Run `seqpack ARGUMENTS` with these bytes on standard input."""
    result = CliRunner().invoke(main, [*arguments], input=data)
    return result.exit_code, result.stderr


@pytest.mark.parametrize(
    "data", [LINE, b"\xef\xbb\xbf" + LINE, b'  { "a b" : [1]}', b'{"": 0}\ntext\n']
)
def test_json_lines_on_standard_input_are_noted(data: bytes) -> None:
    code, stderr = pipe(data, "tokenize", "-", "-o", "store")
    note = f"note: read as text although it looks like JSON lines: -; {JSON_NOTE}"
    assert (code, stderr.startswith(note)) == (0, True), stderr
    assert len(open_store(Path("store"))) == data.rstrip().count(b"\n") + 1


@pytest.mark.parametrize(
    "data", [b"", b"{", b"{}\n", b"{'a': 1}\n", b"text\n" + LINE, b'{\n"a":1}']
)
def test_other_text_on_standard_input_is_not_noted(data: bytes) -> None:
    assert "JSON" not in pipe(data, "tokenize", "-", "-o", "store")[1]


def test_hint_about_a_stray_file_names_exclude() -> None:
    Path("corpus").mkdir()
    Path("corpus/a.jsonl").write_bytes(LINE)
    stray = Path("corpus/my table.csv")
    stray.write_text("body\nx\n")
    result = run("tokenize", "corpus", "-o", "store")
    advice = "pass --exclude 'my table.csv' to leave out this file"
    assert result.stderr.endswith(f"hint: pass --text-field body, or {advice}\n")
    stray.write_text("text\nx\n")
    result = run("tokenize", "corpus", "-o", "store", "--keep", "id")
    assert result.stderr.endswith(f"no column 'id' (found: 'text')\n\nhint: {advice}\n")
    stray.write_text("body\nx\n")
    for names in ([stray], [stray, "corpus/a.jsonl"]):  # a file that is named is always read
        result = run("tokenize", *names, "-o", "store")
        assert result.stderr.endswith("hint: pass --text-field body\n")
    assert run("tokenize", "corpus", "-o", "store", "--exclude", "my table.csv").exit_code == 0


@pytest.mark.parametrize("file_format", ["text", "jsonl"])
def test_named_format_is_not_noted(file_format: str) -> None:
    code, stderr = pipe(LINE, "tokenize", "-", "-o", "store", "--format", file_format)
    assert (code, "JSON lines" in stderr) == (0, False)


def test_json_lines_in_files_without_a_known_suffix_are_noted() -> None:
    for name in ("a", "b.data", "known.txt"):
        Path(name).write_bytes(LINE)
    Path("c.gz").write_bytes(gzip.compress(LINE))
    result = run("tokenize", "a", "b.data", "c.gz", "known.txt", "-o", "store")
    note = f"note: read as text although they look like JSON lines: a, b.data; {JSON_NOTE}"
    assert (result.exit_code, result.stderr.startswith(note)) == (0, True), result.stderr


def test_training_notes_json_lines() -> None:
    arguments = ("train-tokenizer", "-", "-o", "tokenizer.json", "--vocab-size", "280")
    code, stderr = pipe(LINE, *arguments)
    note = f"note: read as text although it looks like JSON lines: -; {JSON_NOTE}"
    assert (code, stderr.startswith(note)) == (0, True), stderr


@pytest.mark.parametrize("unit", ["file", "paragraph"])
def test_document_without_a_text_file_is_refused(unit: str) -> None:
    Path("a.jsonl").write_bytes(LINE)
    Path("b.csv").write_text("text\none\n")
    check_refused(
        run("tokenize", "a.jsonl", "b.csv", "-o", "store", "--document", unit),
        2,
        f"--document {unit}: the input is jsonl, csv, expected text",
        "hint: omit --document: each record of such a file is one document",
    )
    assert not Path("store", "manifest.json").exists()
    Path("c.txt").write_text("one\n")
    result = run("tokenize", "a.jsonl", "c.txt", "-o", "store", "--document", unit)
    assert result.exit_code == 0, result.stderr


@pytest.mark.parametrize(
    "command", [("tokenize", "-o", "store"), ("train-tokenizer", "-o", "t.json")], ids="+".join
)
def test_text_field_without_fields_is_refused(command: tuple[str, ...]) -> None:
    Path("a.txt").write_text("one\n")
    check_refused(
        run(*command, "a.txt", "--text-field", "body"),
        2,
        "--text-field body: the input is text, expected jsonl, json, parquet, arrow or csv",
        "hint: pass --format jsonl if each line is a JSON object, or omit --text-field",
    )
    Path("b.jsonl").write_bytes(b'{"body": "two"}\n')
    result = run("tokenize", "a.txt", "b.jsonl", "-o", "both", "--text-field", "body")
    assert result.exit_code == 0, result.stderr
