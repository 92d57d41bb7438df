from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import run

from seqpack_cli import open_store

SAMPLE_DATA = Path(__file__).parents[1] / "sample_data"


def test_train_tokenizer_gives_a_tokenizer_that_tokenize_takes(tmp_path):
    (tmp_path / "a.txt").write_text("to be or not to be\n" * 20)
    tokenizer = tmp_path / "tokenizer.json"
    result = run("train-tokenizer", tmp_path / "a.txt", "--vocab-size", 270, "-o", tokenizer)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith(f"{tokenizer}: ")
    result = run("tokenize", tmp_path / "a.txt", "--tokenizer", tokenizer, "-o", tmp_path / "out")
    assert result.exit_code == 0, result.stderr
    store = open_store(tmp_path / "out")
    assert (store.manifest["pad_id"], store.manifest["bos_id"], store.manifest["eos_id"]) == (
        0,
        1,
        2,
    )
    assert len(store[0]) < len("to be or not to be")


def test_train_tokenizer_prints_what_it_wrote_as_json(tmp_path):
    (tmp_path / "a.txt").write_text("to be or not to be\n" * 20)
    tokenizer = tmp_path / "tokenizer.json"
    result = run(
        "train-tokenizer", tmp_path / "a.txt", "--vocab-size", 270, "-o", tokenizer, "--json"
    )
    assert result.exit_code == 0, result.stderr
    vocab_size = len(json.loads(tokenizer.read_bytes())["model"]["vocab"])
    assert json.loads(result.stdout) == {"vocab_size": vocab_size, "file": str(tokenizer)}


def test_sample_tokenizer_is_what_its_command_makes(tmp_path, monkeypatch):
    """The command stands in the README; it gives the file in sample_data byte for byte."""
    monkeypatch.chdir(SAMPLE_DATA.parent)
    made = tmp_path / "tokenizer.json"
    result = run("train-tokenizer", "sample_data", "--vocab-size", 2000, "-o", made)
    assert result.exit_code == 0, result.stderr
    assert made.read_bytes() == (SAMPLE_DATA / "tokenizer.json").read_bytes()


def test_unigram_that_lacks_room_for_all_characters_names_the_option(tmp_path):
    (tmp_path / "a.txt").write_text("abcdefghijklmnopqrstuvwxyz\n" * 20)
    arguments = ("--model", "unigram", "--vocab-size", 20, "-o", tmp_path / "tokenizer.json")
    result = run("train-tokenizer", tmp_path / "a.txt", *arguments)
    assert result.exit_code == 3
    assert result.stderr == (
        "Error: --model unigram: The vocabulary is not large enough to contain all chars\n\n"
        "hint: pass a larger --vocab-size\n"
    )


def test_train_tokenizer_does_not_replace_a_file(tmp_path):
    (tmp_path / "a.txt").write_text("a\n")
    (tmp_path / "tokenizer.json").write_text("mine")
    result = run("train-tokenizer", tmp_path / "a.txt", "-o", tmp_path / "tokenizer.json")
    assert result.exit_code == 4
    assert (tmp_path / "tokenizer.json").read_text() == "mine"


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        (b'{"text": "\xff"}', ("--encoding-errors", "replace")),
        (b'{"text": 7}', ("--on-bad-record", "skip")),
        (b'{"text": "%s"}' % (b"x" * 2000), ("--max-document-bytes", "3KB")),
    ],
)
def test_train_tokenizer_takes_what_its_hints_name(tmp_path, line, hint):
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "to be or not to be"}\n' * 20 + line + b"\n")
    command = ("train-tokenizer", tmp_path / "a.jsonl", "--vocab-size", 270, "-o", tmp_path / "t")
    options = {"--max-document-bytes": "1000"}
    result = run(*command, *sum(options.items(), ()))
    assert result.exit_code == 3
    assert hint[0] in result.stderr.partition("hint: ")[2]
    options[hint[0]] = hint[1]
    assert run(*command, *sum(options.items(), ())).exit_code == 0


def test_input_without_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n\n")
    result = run("train-tokenizer", tmp_path / "empty.txt", "-o", tmp_path / "tokenizer.json")
    assert result.exit_code == 3
    assert result.stderr == f"Error: {tmp_path / 'empty.txt'}: no text to train on\n"
    assert not (tmp_path / "tokenizer.json").exists()


def test_train_tokenizer_reads_the_files_that_are_chosen(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / "data" / name).mkdir(parents=True)
        (tmp_path / "data" / name / "x.txt").write_text(f"{name * 3} {name * 3}\n")
    (tmp_path / "list").write_text(f"{tmp_path}/data\n")
    files = ("--files-from", tmp_path / "list", "--exclude", "c", "-o", tmp_path / "words.json")
    result = run("train-tokenizer", "--model", "wordlevel", *files)
    assert result.exit_code == 0, result.stderr
    vocabulary = json.loads((tmp_path / "words.json").read_text())["model"]["vocab"]
    assert list(vocabulary) == ["<pad>", "<bos>", "<eos>", "<unk>", "aaa", "bbb"]
