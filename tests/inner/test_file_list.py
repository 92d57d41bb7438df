"""Inputs listed in a file: --files-from."""

from __future__ import annotations

import io
import os
import threading
from pathlib import Path

import pytest
from object_store import write_object

from seqpack_cli.corpus.find_files import find_sources, list_inputs
from seqpack_cli.corpus.options import FileOptions
from seqpack_cli.errors import OptionError
from seqpack_cli.files.objects import Url

ODD = os.fsdecode(b"o\xff d.txt")


@pytest.fixture(autouse=True)
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Be in a folder with texts."""
    monkeypatch.chdir(tmp_path)
    for name in ("a.txt", "b.txt", "c/d.txt", "c/e.csv", "c.log", "*.txt", ODD, "n\n.txt", "-"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text("x")


def find(data: bytes, *inputs: str, **patterns: list[str]) -> list[str]:
    Path("list").write_bytes(data)
    names = list_inputs(inputs, FileOptions(files_from="list", **patterns))
    return [source.path for source in find_sources(names, patterns=FileOptions(**patterns))[0]]


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"b.txt\nc.log\na.txt", ["b.txt", "c.log", "a.txt"]),
        (b"\xef\xbb\xbfb.txt\r\n\r\n \n\na.txt\r\nb.txt\r\n", ["b.txt", "a.txt"]),
        (b"*.txt\n", ["*.txt"]),
        (os.fsencode(ODD), [ODD]),
        (b"n\n.txt\0b.txt\0", ["n\n.txt", "b.txt"]),
        (b"-\n./a.txt\n", ["./-", "./a.txt"]),
        (b"c\n", ["c/d.txt"]),
    ],
    ids=["order", "windows", "glob", "odd", "nul", "dash", "folder"],
)
def test_list_names_files_in_its_order(data: bytes, found: list[str]) -> None:
    patterns = {"exclude": ["*.csv"]} if data == b"c\n" else {}
    assert find(data, **patterns) == found


def test_list_comes_after_the_inputs() -> None:
    assert find(b"a.txt\nb.txt\n", "c.log", "b*") == ["c.log", "b.txt", "a.txt"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("none.txt", "no such file or folder"),
        ("b*", "no such file or folder"),
        ("x" * 300, "no such file or folder"),
        ("x.zip", ".zip files are not supported"),
        ("memory://none/a.txt", "no such object or folder"),
        ("http://a/b.txt", "web addresses are not supported"),
    ],
)
def test_line_that_cannot_be_read_is_named(line: str, said: str) -> None:
    Path("x.zip").touch()
    shown = line if len(line) < 300 else "x" * 200 + "…"
    with pytest.raises(OptionError) as caught:
        find(f"a.txt\n\n{line}\nb.txt\n".encode())
    assert caught.value.message == f"list:3: {shown}: {said}"


def test_list_and_its_files_may_be_objects(tmp_path: Path) -> None:
    folder = f"memory://{tmp_path.name}"
    names = [f"{folder}/{number}.txt" for number in (3, 1, 2)]
    for name in names:
        write_object(Url(name), b"x")
    write_object(Url(f"{folder}/list"), "\n".join([*names, "a.txt"]).encode())
    inputs = list_inputs([], FileOptions(files_from=f"{folder}/list"))
    assert [source.path for source in find_sources(inputs)[0]] == [*names, "a.txt"]


def test_list_may_be_a_pipe_or_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo("pipe")
    writer = threading.Thread(target=Path("pipe").write_bytes, args=[b"a.txt\n"])
    writer.start()
    assert list_inputs([], FileOptions(files_from="pipe")) == ["a.txt"]
    writer.join()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"b.txt\n")))
    assert list_inputs(["a.txt"], FileOptions(files_from="-")) == ["a.txt", "b.txt"]
    with pytest.raises(OptionError) as caught:
        list_inputs(["-"], FileOptions(files_from="-"))
    assert caught.value.message == "--files-from - conflicts with the input -"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("none", "no such file"),
        ("c", "a folder, expected a file with one path per line"),
        ("memory://none/list", "no such file"),
        ("empty", "lists no file"),
        ("wide", "found UTF-16, expected UTF-8"),
    ],
)
def test_list_that_names_nothing_is_refused(name: str, said: str) -> None:
    Path("empty").write_text("\n\n")
    Path("wide").write_text("a.txt\n", encoding="utf-16")
    with pytest.raises(OptionError) as caught:
        list_inputs([], FileOptions(files_from=name))
    assert caught.value.message == f"--files-from {name}: {said}"
    with pytest.raises(OptionError, match="--files-from '': expected the path of a file"):
        FileOptions(files_from="")
