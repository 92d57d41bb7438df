"""The one file that a command writes: what it replaces, and what it never touches."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from command import run
from object_store import write_object
from shard_reference import make_shards

from seqpack_cli.errors import FolderError, MachineError, OptionError
from seqpack_cli.files import disk
from seqpack_cli.files.objects import Url, read_object
from seqpack_cli.files.outputs import FileKind, check_target, parse_file, publish_alone
from seqpack_cli.files.places import Place

LINES = FileKind("lines of seven", lambda head: head.startswith(b"7"))
NEW = b"7 new"
REPLACES = "; other files are not replaced"


def write(path: Place, data: bytes) -> None:
    if isinstance(path, Url):
        write_object(path, data)
    else:
        path.write_bytes(data)


def read(path: Place) -> bytes:
    return read_object(path) if isinstance(path, Url) else path.read_bytes()


def publish_new(path: Place, *, overwrite: bool = True) -> None:
    with publish_alone(path, LINES, overwrite=overwrite) as file:
        file.write(NEW)


def refusal(path: Place, *, overwrite: bool = True) -> str:
    """Return the text of the error, which comes before any work and after it too."""
    with pytest.raises(FolderError) as caught:
        check_target(path, LINES, overwrite=overwrite)
    with pytest.raises(FolderError) as again:
        publish_new(path, overwrite=overwrite)
    assert str(again.value) == str(caught.value)
    return str(caught.value)


@pytest.fixture(params=["local", "object"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return tmp_path if request.param == "local" else Url(f"memory://{tmp_path.name}")


def test_a_new_file_is_written(folder: Place) -> None:
    publish_new(folder / "x", overwrite=False)
    assert read(folder / "x") == NEW


@pytest.mark.parametrize("earlier", [b"7 of before", b""])
def test_a_file_of_its_kind_is_replaced_where_asked(folder: Place, earlier: bytes) -> None:
    write(folder / "x", earlier)
    assert refusal(folder / "x", overwrite=False) == (
        f"{folder / 'x'}: already exists\n\nhint: choose another -o, or pass --overwrite"
    )
    assert read(folder / "x") == earlier
    publish_new(folder / "x")
    assert read(folder / "x") == NEW


def test_a_file_of_another_kind_is_never_replaced(folder: Place) -> None:
    write(folder / "x", b"a thesis")
    assert refusal(folder / "x") == (
        f"{folder / 'x'}: not lines of seven{REPLACES}\n\n"
        "hint: choose another name, or remove the file yourself"
    )
    assert read(folder / "x") == b"a thesis"


def test_too_long_a_name_is_named(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match="x: File name too long"):
        check_target(tmp_path / ("x" * 300), LINES, overwrite=False)


@pytest.mark.parametrize("name", ["manifest.json", "plan.json"])
@pytest.mark.parametrize("earlier", [None, b"7 of before"])
def test_no_file_goes_into_the_folder_of_a_run(
    folder: Place, name: str, earlier: bytes | None
) -> None:
    write(folder / name, b'{\n "format": "seqpack.tokens",\n "format_version": 1\n}\n')
    if earlier is not None:
        write(folder / "x", earlier)
    assert refusal(folder / "x").startswith(f"{folder / 'x'}: {folder} holds a store or shards")
    assert earlier is None or read(folder / "x") == earlier


def test_a_manifest_of_others_is_no_run(folder: Place) -> None:
    write(folder / "manifest.json", b'{"name": "a web page"}')
    publish_new(folder / "x")
    assert read(folder / "x") == NEW


def test_a_folder_is_not_replaced(folder: Place) -> None:
    if isinstance(folder, Path):
        (folder / "x").mkdir()
    write(folder / "x" / "y", b"7")
    assert refusal(folder / "x").startswith(f"{folder / 'x'}: a folder, expected a file")


@pytest.mark.parametrize("target", ["file", "folder", "nothing", "itself"])
def test_a_link_is_neither_replaced_nor_followed(tmp_path: Path, target: str) -> None:
    (tmp_path / "file").write_bytes(b"7 behind the link")
    (tmp_path / "folder").mkdir()
    link = tmp_path / "link"
    link.symlink_to("link" if target == "itself" else target)
    for overwrite in (False, True):
        assert refusal(link, overwrite=overwrite).startswith(
            f"{link}: a symbolic link, expected a file or nothing"
        )
    assert link.is_symlink()
    assert (tmp_path / "file").read_bytes() == b"7 behind the link"
    assert not (tmp_path / "nothing").exists()


def test_a_pipe_is_neither_replaced_nor_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert refusal(tmp_path / "pipe") == f"{tmp_path / 'pipe'}: not a regular file"
    assert refusal(Path(os.devnull)) == f"{os.devnull}: not a regular file"


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "none" / "x"
    assert refusal(path).startswith(f"{path.parent}: no such folder")


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_file_that_appears_during_the_work_stays(folder: Place, overwrite: bool) -> None:
    with pytest.raises(FolderError), publish_alone(folder / "x", LINES, overwrite=overwrite):
        write(folder / "x", b"a thesis")
    assert read(folder / "x") == b"a thesis"
    assert [path.name for path in folder.iterdir()] == ["x"]


def test_a_file_that_appears_at_the_very_end_stays(tmp_path: Path) -> None:
    path, temp = tmp_path / "x", tmp_path / ".x.1.tmp"
    path.write_bytes(b"a thesis")
    temp.write_bytes(NEW)
    with pytest.raises(MachineError, match=r"x: File exists"):
        disk.rename(temp, path, replace=False)
    assert path.read_bytes() == b"a thesis"
    disk.rename(temp, tmp_path / "y", replace=False)
    assert (tmp_path / "y").read_bytes() == NEW
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x", "y"]


def test_a_file_system_without_hard_links_takes_files_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    publish_new(tmp_path / "x", overwrite=False)
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


KILLED_WRITER = """
import os, signal, sys
from pathlib import Path
from seqpack_cli.files.single_file import FileKind, publish_alone

kind = FileKind("anything", lambda head: True)
with publish_alone(Path(sys.argv[1]), kind, overwrite=True) as file:
    file.write(b"half")
    if sys.argv[2] == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    print("writes", flush=True)
    sys.stdin.read()
"""


def test_what_killed_writers_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    """No lock of a folder tells who still writes: the temporary files are locked themselves."""
    path = tmp_path / "rows.jsonl"
    arguments = [sys.executable, "-c", KILLED_WRITER, str(path)]
    assert subprocess.run([*arguments, "die"], check=False).returncode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 1
    foreign = tmp_path / ".other.jsonl.1.tmp"
    foreign.write_bytes(b"of another file")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([*arguments, "live"], text=True, **pipes) as living:
        assert living.stdout is not None
        assert living.stdout.readline() == "writes\n"
        publish_new(path)
        left = {found.name for found in tmp_path.iterdir()} - {path.name, foreign.name}
        (temporary,) = left
        assert temporary.startswith(f".{path.name}.{living.pid}")
        assert path.read_bytes() == NEW
        living.communicate()
    assert path.read_bytes() == b"half"
    assert sorted(tmp_path.iterdir()) == [foreign, path]


# The commands that write one file


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("work")
    make_shards(folder)
    return folder


def command_unpack(work: Path, path: Path) -> list[object]:
    return ["unpack", work / "shards", "--overwrite", "-o", path]


def command_unpack_text(work: Path, path: Path) -> list[object]:
    return ["unpack", work / "shards", "--text", "--overwrite", "-o", path]


def command_train(work: Path, path: Path) -> list[object]:
    text = work / "corpus.txt"
    return ["train-tokenizer", text, "--vocab-size", 300, "--overwrite", "-o", path]


def command_plot(work: Path, path: Path) -> list[object]:
    return ["inspect", work / "shards", "--plot", path]


def command_html(work: Path, path: Path) -> list[object]:
    return ["inspect", work / "shards", "--html", path]


Command = Callable[[Path, Path], list[object]]
ROW = b'{"index": 7, "text": "a"}\n'
# The commands, the name of a file of each, and files of others that begin much the same.
COMMANDS: list[tuple[Command, str, list[bytes]]] = [
    (command_unpack, "rows.jsonl", [b'{"index": 0, "label": 1}\n', b'{"index": "a"}\n', b"[1]"]),
    (command_unpack, "ids.jsonl", [b'{"index": 0, "ids": [1]}\nnotes\n', ROW + ROW]),
    (command_unpack_text, "rows.jsonl", [b'{"text": "a"}\n', ROW[:-2] + b', "label": "spam"}\n']),
    (command_train, "tokenizer.json", [b'{"version": "1.0"}', b'{"model": {"type": "BPE"}}']),
    (command_plot, "a.svg", [b'<?xml version="1.0"?>\n<svg><metadata>mine</metadata></svg>']),
    (command_plot, "a.png", [b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"]),
    (command_html, "a.html", [b"<!DOCTYPE html>\n<html><head><title>mine</title></head></html>"]),
]


@pytest.mark.parametrize(("command", "name", "others"), COMMANDS)
def test_a_command_replaces_its_own_output_and_no_other_file(
    tmp_path: Path, work: Path, command: Command, name: str, others: list[bytes]
) -> None:
    path = tmp_path / name
    arguments = command(work, path)
    for _ in range(2):
        result = run(*arguments)
        assert result.exit_code == 0, result.stderr
    for data in (b"a thesis\n", b"{}\n", *others):
        path.write_bytes(data)
        result = run(*arguments)
        assert result.exit_code == 4, result.stdout
        assert REPLACES in result.stderr
        assert path.read_bytes() == data
    path.rename(tmp_path / "behind")
    path.symlink_to("behind")
    assert run(*arguments).exit_code == 4
    assert path.is_symlink()
    assert sorted(found.name for found in tmp_path.iterdir()) == sorted(["behind", name])


@pytest.mark.parametrize(("command", "name"), [(command, name) for command, name, _ in COMMANDS])
def test_a_command_puts_no_file_into_a_store_or_shards(
    work: Path, command: Command, name: str
) -> None:
    for folder in (work / "store", work / "shards"):
        before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
        (folder / "inside").mkdir(exist_ok=True)
        for path in (
            folder / name,
            folder / f"manifest.json{Path(name).suffix}",
            folder / "inside" / name,
        ):
            result = run(*command(work, path))
            assert result.exit_code == 4
            assert "holds a store or shards" in result.stderr
        (folder / "inside").rmdir()
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_no_command_replaces_a_manifest(work: Path) -> None:
    for name in ("manifest.json", "tokenizer.json", "shard-00000.safetensors"):
        path = work / "shards" / name
        before = path.read_bytes()
        for command in (command_unpack, command_train):
            assert run(*command(work, path)).exit_code == 4
        assert path.read_bytes() == before
    assert json.loads((work / "shards" / "manifest.json").read_bytes())


@pytest.mark.parametrize("name", ["x.json/", "x.json//", "new/.", "memory://x/"])
def test_name_of_a_folder_is_refused(name: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_file(name)
    assert str(caught.value) == (
        f"{name}: names a folder, expected a file\n\nhint: choose another name"
    )


@pytest.mark.parametrize("name", ["x.json", ".x", Path("x/"), Url("memory://x")])
def test_name_of_a_file_is_its_place(name: str | Path | Url) -> None:
    assert str(parse_file(name)) == str(name)


def test_threads_may_write_one_file_at_once(tmp_path: Path) -> None:
    num_threads = 4
    barrier = threading.Barrier(num_threads)

    def publish(number: int) -> None:
        with publish_alone(tmp_path / "x", LINES, overwrite=True) as file:
            barrier.wait(timeout=60)
            file.write(b"7" * number)

    with ThreadPoolExecutor(num_threads) as pool:
        list(pool.map(publish, range(1, num_threads + 1)))
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    assert set((tmp_path / "x").read_bytes()) == {ord("7")}
