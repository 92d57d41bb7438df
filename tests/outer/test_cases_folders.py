"""The cases of faults that need a disk, a limit or a terminal of their own.

The number in a name is the case's; `tests/test_runs.py` has what one process can show. Where
signals meet a run it is a process of its own, held at a known place: see HOLD.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import check_refused, run
from small_shards import make_shards

from seqpack_cli import open_store

INTERRUPTED = "\nInterrupted: run the same command again\n"
DEADLINE = 30.0  # seconds, for a process on a busy machine

# Loaded by every Python process with this folder on its path, workers too: a process that opens a
# file of the pattern leaves its number in the folder HOLDING, then waits for a writer of the pipe.
HOLD = """
import fnmatch, os, sys

def hold(event, arguments):
    if event == "open" and isinstance(arguments[0], (str, os.PathLike)):
        if fnmatch.fnmatch(os.fspath(arguments[0]), os.environ["HOLD_AT"]):
            holding = os.environ["HOLDING"]
            os.close(os.open(f"{holding}/{os.getpid()}", os.O_CREAT))
            os.close(os.open(f"{holding}/pipe", os.O_RDONLY))

sys.addaudithook(hold)
"""


def check_unfinished(folder: Path, num_finished: str = r"\d+", writer: str = "tokenize") -> None:
    """Assert that a folder is an incomplete run for every reader."""
    for words in (("inspect", folder), ("pack", folder, "-o", f"{folder}-2"), ("verify", folder)):
        result = run(*words)
        assert result.exit_code == 4
        item = {"tokenize": "part", "pack": "shard"}[writer]
        found = rf"Error: {folder}: incomplete run, {num_finished} {item}s? finished, no manifest"
        assert re.match(found, result.stderr), result.stderr
        hint = f"hint: run the same {writer} command again: it continues where it stopped\n"
        assert result.stderr.endswith(hint)


def find_temporary(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.endswith(".tmp")]


@contextlib.contextmanager
def held(
    folder: Path, place: str, num_processes: int, *arguments: object
) -> Iterator[subprocess.Popen[str]]:
    """Run a command in a process group of its own until so many of its processes are at a place."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(HOLD)
    os.mkfifo(folder / "pipe")
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    environment = {"PYTHONPATH": path, "HOLD_AT": place, "HOLDING": str(folder)}
    pipe, end = subprocess.PIPE, time.monotonic() + DEADLINE
    with subprocess.Popen(
        [sys.executable, "-m", "seqpack_cli", *map(str, arguments)],
        env={**os.environ, **environment},
        **{"stdout": pipe, "stderr": pipe, "text": True, "start_new_session": True},
    ) as process:
        try:
            while sum(path.name.isdecimal() for path in folder.iterdir()) < num_processes:
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < end, "they never came"
                time.sleep(0.01)
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


NAMES = ("a.txt", "b.txt", "c.txt")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A folder of three files, each a part of its own with `PARTS`."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    for name in NAMES:
        (folder / name).write_text("".join(f"line {number} of {name}\n" for number in range(9)))
    return folder


PARTS = ("--part-bytes", 144)  # what a file has: none is cut


def read_folder(folder: Path) -> dict[str, bytes]:
    """Return all files but run.json, which may differ between equal runs."""
    files = (path for path in folder.iterdir() if path.name != "run.json")
    return {path.name: path.read_bytes() for path in files}


def tokenize_whole(corpus: Path) -> dict[str, bytes]:
    """Return the store that an uninterrupted run makes."""
    store = corpus.parent / "whole"
    assert run("tokenize", corpus, "-o", store, *PARTS, "--num-workers", 1).exit_code == 0
    assert len(list(store.glob("part-*.bin"))) == 3
    return read_folder(store)


# Stopped runs


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 128 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=128k", "seqpack-test", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a file system cannot be mounted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_case_28_disk_full_at_a_shard(tmp_path: Path, small_disk: Path) -> None:
    make_shards(tmp_path, [400] * 400)
    store = tmp_path / "store"
    out = small_disk / "shards"
    arguments = ("pack", store, "--batch-size", 20, "--shard-bytes", 20_000, "--num-workers", 1)
    (tmp_path / "elsewhere").mkdir()
    assert run(*arguments, "-o", tmp_path / "elsewhere" / "shards").exit_code == 0
    result = run(*arguments, "-o", out)
    place = result.stderr.removeprefix(f"Error: {out}/").split(":")[0]
    match = re.fullmatch(r"shard-(\d{5})\.(safetensors|json)", place)
    assert match is not None, result.stderr
    hint = "hint: free some disk space, then run the same command again"
    check_refused(result, 5, f"{out}/{place}: No space left on device", hint)
    assert find_temporary(out) == []
    num_finished = int(match[1])
    assert num_finished > 2
    check_unfinished(out, str(num_finished), "pack")
    assert run(*arguments, "-o", out).exit_code == 5, "the disk is still full"
    subprocess.run(["mount", "-o", "remount,size=4m", str(small_disk)], check=True)
    result = run(*arguments, "-o", out)
    assert result.exit_code == 0
    num_shards = len(list(out.glob("*.safetensors")))
    notice = f"note: {num_finished} of {num_shards} shards were finished before"
    assert result.stderr.splitlines() == [notice]
    assert read_folder(out) == read_folder(tmp_path / "elsewhere" / "shards")


def test_case_28_file_larger_than_allowed(tmp_path: Path, corpus: Path) -> None:
    """The same without a disk of its own: the system refuses the part's file at 64 KiB."""
    (corpus / "b.txt").write_text("0123456789abcdef\n" * 5000)
    out = tmp_path / "tokens"
    arguments = ["tokenize", str(corpus), "-o", str(out), "--part-bytes", "90kB"]
    limited = ["sh", "-c", 'ulimit -f 128; exec "$@"', "sh"]  # blocks of 512 bytes, 1024 in bash
    command = [*limited, sys.executable, "-m", "seqpack_cli", *arguments, "--num-workers", "1"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 5
    message, _, hint = done.stderr.splitlines()
    assert re.fullmatch(f"Error: {re.escape(str(out))}/part-0000[01].bin: File too large", message)
    limit = "raise the limit on file sizes (ulimit -f), then run the same command again"
    assert hint == f"hint: {limit}"
    assert find_temporary(out) == []
    check_unfinished(out)
    assert run(*arguments).exit_code == 0
    assert len(open_store(out)) == 5018


@pytest.mark.parametrize(
    ("number", "num_workers"),
    [
        (signal.SIGINT, 2),
        (signal.SIGTERM, 1),
        pytest.param(signal.SIGINT, 1, marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, 2, marks=pytest.mark.slow),
    ],
)
def test_case_30_interrupted(
    tmp_path: Path, corpus: Path, number: signal.Signals, num_workers: int
) -> None:
    """Ctrl-C reaches all processes of the terminal, SIGTERM the one that was started."""
    out = tmp_path / "tokens"
    arguments = ("tokenize", corpus, "-o", out, *PARTS, "--num-workers", num_workers)
    with held(tmp_path / "held", "*/[bc].txt", num_workers, *arguments) as process:
        assert len(find_temporary(out)) == num_workers
        if number == signal.SIGINT:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        assert process.communicate(timeout=DEADLINE) == ("", INTERRUPTED)
        assert process.returncode == 130
    assert find_temporary(out) == []
    assert not (out / ".lock").exists()
    check_unfinished(out, "1")
    assert run(*arguments).stderr == "note: 1 of 3 parts were already finished\n"
    assert read_folder(out) == tokenize_whole(corpus)


# In the same spirit


def test_case_extra_read_only_output(corpus: Path, small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    result = run("tokenize", corpus, "-o", small_disk / "tokens")
    found = f"{small_disk}/tokens: Read-only file system"
    check_refused(result, 5, found, "hint: choose another -o")


def test_case_extra_environment_changes_no_byte(tmp_path: Path, corpus: Path) -> None:
    """Neither the seed of hashes, nor the language and its encoding, nor the time zone."""
    (corpus / "été.txt").write_text("une ligne\n")
    settings = {"PYTHONHASHSEED": "7", "LC_ALL": "C", "LANG": "C", "TZ": "Pacific/Apia"}
    settings |= {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}  # else C is taken for UTF-8
    options = ("--shuffle", "--window", 4, "--shard-bytes", 100, "--num-workers", 1)

    def name_commands(folder: Path) -> list[tuple[object, ...]]:
        tokens, shards = folder / "tokens", folder / "shards"
        tokenize = ("tokenize", corpus, "-o", tokens, *PARTS, "--num-workers", 1)
        return [tokenize, ("pack", tokens, "-o", shards, *options)]

    for arguments in name_commands(tmp_path / "here"):
        assert run(*arguments).exit_code == 0
    for arguments in name_commands(tmp_path / "there"):
        command = [sys.executable, "-m", "seqpack_cli", *map(str, arguments)]
        environment = {**os.environ, **settings}
        subprocess.run(command, env=environment, check=True, capture_output=True)
    for name in ("tokens", "shards"):
        assert read_folder(tmp_path / "here" / name) == read_folder(tmp_path / "there" / name)
