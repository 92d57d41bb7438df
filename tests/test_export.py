"""What export and unpack replace, and how files appear; test_read.py compares their contents."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from command import run
from page_sets import change_shard

ONE = ("--num-workers", 1)
OUTPUTS = {
    "parquet": ("export", "tokens", "--to", "parquet"),
    "megatron": ("export", "tokens", "--to", "megatron"),
    "nanogpt": ("export", "tokens", "--to", "nanogpt"),
    "lines": ("unpack", "shards"),
    "text": ("unpack", "shards", "--text"),
    "table": ("unpack", "shards", "--format", "parquet"),
}
FILES = {"parquet": ["out/part-00000.parquet"], "megatron": ["out.bin", "out.idx"]}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder, with a token store, shards, and a folder for the outputs."""
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("ab\ncde\n")
    assert run("tokenize", "a.txt", "-o", "tokens", *ONE).exit_code == 0
    assert run("pack", "tokens", "-o", "shards", *ONE).exit_code == 0
    Path("made").mkdir()
    return tmp_path


def files_of(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


@pytest.mark.parametrize("name", OUTPUTS)
def test_overwrite_replaces_what_the_same_command_wrote(folder: Path, name: str) -> None:
    words, made = (*OUTPUTS[name], "-o", "made/out"), folder / "made"
    assert run(*words).exit_code == 0
    before = files_of(made)
    assert sorted(before) == FILES.get(name, ["out"])
    again = run(*words)
    assert again.exit_code == 4
    assert "already exists\n\nhint: choose another -o, or pass --overwrite" in again.stderr
    Path("b.txt").write_text("fgh\n")
    assert run("tokenize", "b.txt", "-o", "tokens", "--overwrite", *ONE).exit_code == 0
    result = run(*words, "--overwrite")
    assert result.exit_code == 0, result.stderr
    assert files_of(made).keys() == before.keys()
    assert (files_of(made) == before) == (words[0] == "unpack")


THESIS = b"a thesis\n"
OTHER_LINES = b'{"text": "mine"}\n'


@pytest.mark.parametrize(
    ("name", "path"),
    [
        *((name, "out") for name in ("nanogpt", "lines", "text", "table")),
        *(("megatron", path) for path in ("out.bin", "out.idx")),
        *(("parquet", f"out/{path}") for path in ("notes.txt", "part-00001.parquet", "deep/x")),
    ],
)
@pytest.mark.parametrize("data", [THESIS, OTHER_LINES])
def test_what_export_did_not_write_is_not_replaced(
    folder: Path, name: str, path: str, data: bytes
) -> None:
    mine = folder / "made" / path
    mine.parent.mkdir(parents=True, exist_ok=True)
    mine.write_bytes(data)
    for options in ([], ["--overwrite"]):
        result = run(*OUTPUTS[name], "-o", "made/out", *options)
        assert (result.exit_code, files_of(folder / "made")) == (4, {path: data})
    assert "other files are not replaced" in result.stderr


@pytest.mark.parametrize("name", OUTPUTS)
def test_links_are_not_replaced(folder: Path, name: str) -> None:
    assert run(*OUTPUTS[name], "-o", "made/out").exit_code == 0
    path = folder / "made" / FILES.get(name, ["out"])[-1]
    path.rename("elsewhere")
    path.symlink_to(folder / "elsewhere")
    assert run(*OUTPUTS[name], "-o", "made/out", "--overwrite").exit_code == 4
    assert path.is_symlink()


@pytest.mark.parametrize("name", ["parquet", "table"])
def test_parquet_that_another_program_wrote_again_is_not_replaced(folder: Path, name: str) -> None:
    words = (*OUTPUTS[name], "-o", "made/out", "--overwrite")
    assert run(*words).exit_code == 0
    path = folder / "made" / FILES.get(name, ["out"])[0]
    pq.write_table(pq.read_table(path), path)
    before, result = path.read_bytes(), run(*words)
    assert result.exit_code == 4
    assert f"not a Parquet file that seqpack {words[0]} wrote" in result.stderr
    assert path.read_bytes() == before


def test_ids_without_their_index_are_not_replaced_and_an_index_alone_is(folder: Path) -> None:
    words = (*OUTPUTS["megatron"], "-o", "made/out")
    assert run(*words).exit_code == 0
    whole = files_of(folder / "made")
    Path("made/out.idx").unlink()
    result = run(*words, "--overwrite")
    assert result.exit_code == 4
    assert "out.bin: already exists, without out.idx beside it" in result.stderr
    Path("made/out.bin").unlink()
    Path("made/out.idx").write_bytes(whole["out.idx"])  # as a killed export leaves it
    assert run(*words).exit_code == 4
    assert run(*words, "--overwrite").exit_code == 0
    assert files_of(folder / "made") == whole


def refuse_input(command: tuple[object, ...], path: Path) -> None:
    before = path.read_bytes()
    result = run(*command, "--overwrite")
    assert result.exit_code == 4
    assert f"{path}: an input of the token store, which is not replaced" in result.stderr
    assert path.read_bytes() == before


def test_inputs_of_the_store_are_not_replaced(folder: Path) -> None:
    """Also under another name, and those of the stores of shards."""
    flat, pair, lines, table = (folder / "made" / name for name in ("flat", "pair", "rows", "out"))
    part = table / "part-00000.parquet"
    assert run("export", "tokens", "-o", table).exit_code == 0
    assert run("export", "tokens", "--to", "nanogpt", "-o", flat).exit_code == 0
    assert run("export", "tokens", "--to", "megatron", "-o", pair).exit_code == 0
    assert run("unpack", "shards", "--text", "-o", lines).exit_code == 0
    vocabulary = ("--vocab-size", 300)
    kind = ("--dtype", "uint16", "--eos", 258)
    os.link(flat, folder / "flat.bin")
    for source, store, options in (
        (folder / "flat.bin", "from-flat", (*vocabulary, *kind)),
        (pair.with_suffix(".idx"), "from-pair", vocabulary),
        (table, "from-table", vocabulary),
    ):
        result = run("import", source, "-o", store, *options, *ONE)
        assert result.exit_code == 0, result.stderr
    assert run("tokenize", lines, "-o", "from-lines", *ONE).exit_code == 0
    assert run("pack", "from-lines", "-o", "packed", *ONE).exit_code == 0
    refuse_input(("export", "from-flat", "--to", "nanogpt", "--eos", 258, "-o", flat), flat)
    ids = pair.with_suffix(".bin")
    refuse_input(("export", "from-pair", "--to", "megatron", "-o", pair), ids)
    refuse_input(("export", "from-table", "-o", table), part)
    refuse_input(("unpack", "packed", "--text", "-o", lines), lines)
    shutil.rmtree("from-lines")  # the shards do not need it
    assert run("unpack", "packed", "--text", "-o", lines, "--overwrite").exit_code == 0


def test_shards_in_the_place_of_their_store_have_no_inputs(folder: Path) -> None:
    words = ("unpack", "shards", "-o", "made/out", "--overwrite")
    assert run(*words).exit_code == 0
    shutil.rmtree("tokens")
    shutil.copytree("shards", "tokens")
    assert run(*words).exit_code == 0


def test_inputs_of_the_other_side_are_not_replaced(folder: Path) -> None:
    lines = folder / "made" / "rows"
    assert run("unpack", "shards", "--text", "-o", lines).exit_code == 0
    assert run("tokenize", lines, "--format", "jsonl", "-o", "written", *ONE).exit_code == 0
    assert run("pack", "tokens", "--decoder", "written", "-o", "pairs", *ONE).exit_code == 0
    for side in ("encoder", "decoder"):
        refuse_input(("unpack", "pairs", "--side", side, "-o", lines), lines)


def test_an_empty_working_folder_can_be_the_output(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = folder / "made"
    output.chmod(0o700)
    monkeypatch.chdir(output)
    for options in ([], ["--overwrite"]):
        assert run("export", "../tokens", "-o", ".", *options).exit_code == 0
        assert [*files_of(output)] == ["part-00000.parquet"]
    assert output.stat().st_mode & 0o777 == 0o700


def test_what_a_killed_export_left_beside_a_new_folder_is_removed(folder: Path) -> None:
    left = folder / "made" / ".out.123.tmp"
    left.mkdir()
    (left / "part-00000.parquet").write_bytes(b"x")
    (left / ".part-00001.parquet.123.tmp").write_bytes(b"x")
    assert run("export", "tokens", "-o", "made/out").exit_code == 0
    assert [*files_of(folder / "made")] == ["out/part-00000.parquet"]
    assert not left.exists()


def test_error_about_a_repeated_end_names_the_sequence(folder: Path) -> None:
    """Its number in the store, whatever is before it in the shards."""
    lines = [{"text": "abcdefgh"}, {"text": "x"}, {"text": "ijklmnop"}]
    Path("a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    cut = ("--max-length", 4, "--overlap", 1, *ONE)
    assert run("tokenize", "a.jsonl", "-o", "cut", *cut).exit_code == 0
    words = ("--drop-shorter", 2, "--layout", "padded", "--batch-size", 9, *ONE)
    assert run("pack", "cut", "-o", "packed", *words).exit_code == 0

    def repeat_all(arrays: dict[str, np.ndarray]) -> None:
        row = arrays["original_indices"].tolist().index(5)
        arrays["column.overlap"][row] = 4

    change_shard(Path("packed"), repeat_all)
    for words in (("export", "packed", "--to", "nanogpt"), ("unpack", "packed")):
        result = run(*words, "-o", "made/out")
        message = "packed: sequence 5: column 'overlap' is 4, expected less than its 4 tokens"
        assert (result.exit_code, message in result.stderr) == (4, True), result.stderr
