"""Paths of this machine: plain files, files that are whole or absent, the lock of a folder."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from io import FileIO
from pathlib import Path

import numpy as np
import pytest
from blake3 import blake3

from seqpack_cli.errors import FolderError, MachineError
from seqpack_cli.files import disk
from seqpack_cli.files.places import at

FILE_LIMIT_HINT = "raise the limit on file sizes (ulimit -f), then run the same command again"


class Stop(BaseException):
    """Stands for Ctrl-C: no `except Exception` sees it."""


def test_only_a_plain_file_of_the_right_size_is_regular(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    at(tmp_path / "a").check_size()
    at(tmp_path / "a").check_size(3)
    cases = {"gone": "missing", "a": "3 bytes, manifest says 2,000"}
    cases |= dict.fromkeys(("link", "folder", "pipe"), "not a regular file")
    for name, said in cases.items():
        with pytest.raises(FolderError) as caught:
            at(tmp_path / name).check_size(2000)
        assert caught.value.message == f"{tmp_path / name}: {said}"


def test_link_to_nowhere_is_there(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("gone")
    assert at(tmp_path / "link").exists()
    assert not at(tmp_path / "gone").exists()


def test_published_file_is_whole_counted_and_hashed(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    with at(path).publish() as file:
        file.write(b"ab")
        file.write(np.array([1, 2], "<i4"))
        file.write(np.empty(0, "<i4"))
        file.write(b"")
        assert not path.exists()
    data = b"ab\1\0\0\0\2\0\0\0"
    assert path.read_bytes() == data
    assert file.describe() == {"bytes": 10, "blake3": blake3(data).hexdigest()}
    assert at(path).hash() == file.describe()["blake3"]
    assert [found.name for found in tmp_path.iterdir()] == ["a.bin"]


@pytest.mark.parametrize("error", [ValueError, Stop])
@pytest.mark.parametrize("earlier", [None, b"old"])
def test_failed_publish_leaves_what_was_there(
    tmp_path: Path, error: type[BaseException], earlier: bytes | None
) -> None:
    path = tmp_path / "a.bin"
    if earlier is not None:
        path.write_bytes(earlier)
    with pytest.raises(error), at(path).publish() as file:
        file.write(b"new")
        raise error
    assert [found.read_bytes() for found in tmp_path.iterdir()] == ([earlier] if earlier else [])


def test_publish_replaces_the_file_at_the_end_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")
    with at(path).publish() as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"


def test_file_is_synced_before_its_rename_and_its_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    fsync = os.fsync

    def noting_fsync(descriptor: int) -> None:
        kind = "folder" if Path(f"/dev/fd/{descriptor}").is_dir() else "file"
        calls.append(f"{kind} {(tmp_path / 'a.bin').exists()}")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noting_fsync)
    with at(tmp_path / "a.bin").publish() as file:
        file.write(b"x")
    assert calls == ["file False", "folder True"]


FULL_DISK = """
import resource, sys
from pathlib import Path
from seqpack_cli.errors import MachineError
from seqpack_cli.files.places import at

resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    with at(Path(sys.argv[1])).publish() as file:
        for _ in range(int(sys.argv[2])):
            file.write(b"x" * int(sys.argv[3]))
except MachineError as error:
    print(error)
    sys.exit(error.exit_code)
"""


@pytest.mark.parametrize(("num_writes", "num_bytes"), [(1, 2000), (1, 100_000), (2000, 100)])
def test_disk_without_room_is_an_error_of_the_machine(
    tmp_path: Path, num_writes: int, num_bytes: int
) -> None:
    """A small write fails only when it is flushed, a large one at once."""
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")
    arguments = [sys.executable, "-c", FULL_DISK, str(path), str(num_writes), str(num_bytes)]
    process = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert process.stderr == ""
    assert process.returncode == 5
    assert process.stdout == f"{path}: {os.strerror(errno.EFBIG)}\n\nhint: {FILE_LIMIT_HINT}\n"
    assert [found.read_bytes() for found in tmp_path.iterdir()] == [b"old"]


def test_missing_folder_is_an_error_of_the_machine(tmp_path: Path) -> None:
    with pytest.raises(MachineError) as caught, at(tmp_path / "gone" / "a.bin").publish():
        pass
    assert caught.value.message == f"{tmp_path / 'gone' / 'a.bin'}: No such file or directory"


HOLD_LOCK = """
import sys, time
from pathlib import Path
from seqpack_cli.files.places import at

with at(Path(sys.argv[1])).lock_folder():
    print("held", flush=True)
    time.sleep(60)
"""


def hold_lock(folder: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD_LOCK, str(folder)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_second_writer_is_refused_by_name_until_the_first_dies(tmp_path: Path) -> None:
    with hold_lock(tmp_path) as process:
        try:
            with pytest.raises(FolderError) as caught, at(tmp_path).lock_folder():
                pass
            host = os.uname().nodename
            assert caught.value.message == (
                f"{tmp_path}: process {process.pid} on {host} is writing here"
            )
            assert caught.value.hint == "wait until it ends, or choose another -o"
        finally:
            process.send_signal(signal.SIGKILL)
        process.wait()
    assert (tmp_path / ".lock").exists()  # what a killed process leaves, and stops nobody
    with at(tmp_path).lock_folder():
        pass
    assert list(tmp_path.iterdir()) == []


def test_lock_of_a_file_that_its_owner_removes_is_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner ends between the second writer's opening of the file and its lock of it."""
    try_lock = disk.try_lock
    num_calls = 0

    def remove_and_lock(file: FileIO, path: Path) -> bool:
        nonlocal num_calls
        num_calls += 1
        if num_calls == 1:
            path.unlink()
        if num_calls == 2:  # and a third writer has made one of its own
            path.unlink()
            path.write_text("")
        return try_lock(file, path)

    monkeypatch.setattr(disk, "try_lock", remove_and_lock)
    with at(tmp_path).lock_folder():
        assert num_calls == 3
        assert (tmp_path / ".lock").exists()
        with pytest.raises(FolderError), at(tmp_path).lock_folder():
            pass


def test_lock_file_that_is_not_ours_stays(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text("{}")
    with pytest.raises(FolderError) as caught, at(tmp_path).lock_folder():
        pass
    assert caught.value.message == f"{tmp_path}/.lock: not a lock file of seqpack"
    assert (tmp_path / ".lock").read_text() == "{}"
    (tmp_path / ".lock").unlink()
    (tmp_path / ".lock").write_text("")  # of a writer that was killed at its beginning
    with at(tmp_path).lock_folder():
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("elsewhere")])
def test_lock_that_is_not_a_plain_file_is_refused(
    tmp_path: Path, make: Callable[[Path], object]
) -> None:
    make(tmp_path / ".lock")
    with pytest.raises(FolderError) as caught, at(tmp_path).lock_folder():
        pass
    assert caught.value.message == f"{tmp_path}/.lock: not a lock file of seqpack"
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_lock_is_held_once_within_a_process_too(tmp_path: Path) -> None:
    with at(tmp_path).lock_folder():
        with pytest.raises(FolderError), at(tmp_path).lock_folder():
            pass
        with (
            pytest.raises(FolderError),
            at(tmp_path).lock_folder(),
        ):  # refused ones take no lock away
            pass
    with at(tmp_path).lock_folder():
        pass


def test_lock_is_let_go_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(Stop), at(tmp_path).lock_folder():
        raise Stop
    with at(tmp_path).lock_folder():
        pass
    assert list(tmp_path.iterdir()) == []


def test_lock_of_two_processes_at_once_is_won_by_one(tmp_path: Path) -> None:
    """Two writers take turns a few hundred times; both inside at once would show in the file."""
    script = (
        "import sys; from pathlib import Path\n"
        "from seqpack_cli.errors import FolderError\n"
        "from seqpack_cli.files.places import at\n"
        "folder, inside = Path(sys.argv[1]), Path(sys.argv[1]) / 'inside'\n"
        "num_won = 0\n"
        "while num_won < 200:\n"
        "    try:\n"
        "        with at(folder).lock_folder():\n"
        "            inside.touch(exist_ok=False)\n"
        "            inside.unlink()\n"
        "            num_won += 1\n"
        "    except FolderError:\n"
        "        pass\n"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    for process in processes:
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (0, b"")
