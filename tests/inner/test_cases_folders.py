"""The cases of faults and bad input, as a user meets them, 28 to 32, 40 and some more: folders.

The number in a name is the case's. Each runs the command itself and asserts the exit code (0 good,
1 verify found a fault, 2 usage, 3 bad input data, 4 a folder that is refused, 5 the machine, 130
interrupted), the place and the hint. Where signals meet a run it is a process of its own, held at a
known place: see HOLD.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import torch
from click.testing import Result
from command import check_refused, run
from reference import read_folder, read_store_documents
from shard_reference import (
    make_shards,
    make_store,
    make_texts,
)

SHARD = "shard-00000.safetensors"
CONTINUE = "hint: run the same {} command again: it continues where it stopped"
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


def check_unfinished(
    folder: Path,
    num_finished: int | None = None,
    *,
    writer: str = "tokenize",
    failure: str = "",
    advice: str = CONTINUE,
) -> None:
    """Assert that a folder is an incomplete run for every reader, which says how it ended."""
    result = run("inspect", folder)
    assert result.exit_code == 4
    message, _, hint = result.stderr.splitlines()
    item = {"tokenize": "part", "pack": "shard"}[writer]
    found = rf"incomplete run, (\d+) {item}s? finished, no manifest\.json"
    ended = re.escape(f"; it ended with: {failure}") if failure else ""
    match = re.fullmatch(f"Error: {re.escape(str(folder))}: {found}{ended}", message)
    assert match is not None, message
    assert hint == advice.format(writer)
    if num_finished is not None:
        assert int(match[1]) == num_finished
    for command in (("pack", folder, "-o", f"{folder}-packed"), ("verify", folder)):
        assert run(*command).exit_code == 4
    assert not Path(f"{folder}-packed").exists()


def find_temporary(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.endswith(".tmp")]


def find_faults(result: Result) -> list[str]:
    """Return the findings that verify prints, checked against the code and the verdict."""
    assert result.exit_code == 1, result.stderr
    lines = result.stdout.split("\n\n")
    found = lines[-2].splitlines()
    assert lines[-1] == ("1 fault\n" if len(found) == 1 else f"{len(found)} faults\n")
    return found


def wait_until(is_so: Callable[[], bool], process: subprocess.Popen[str] | None = None) -> None:
    """Wait for what another process does, which must not end before."""
    end = time.monotonic() + DEADLINE
    while not is_so():
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)


class Held:
    """A command in a process group of its own, all of whose processes stop at a place."""

    def __init__(self, folder: Path, place: str, arguments: Sequence[object]) -> None:
        folder.mkdir()
        self.folder = folder
        (folder / "sitecustomize.py").write_text(HOLD)
        os.mkfifo(folder / "pipe")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "seqpack_cli", *map(str, arguments)],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]),
                "HOLD_AT": place,
                "HOLDING": str(folder),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def find_held(self) -> list[int]:
        """Return the numbers of the processes that came to the place."""
        return [int(path.name) for path in self.folder.iterdir() if path.name.isdecimal()]

    def wait_for(self, num_processes: int) -> list[int]:
        """Wait until so many are there."""
        wait_until(lambda: len(self.find_held()) == num_processes, self.process)
        return self.find_held()

    def release(self) -> None:
        """Let them go on, and others that come to the place pass."""
        pipe = os.open(self.folder / "pipe", os.O_RDWR)  # which waits for nobody
        try:
            self.process.wait(DEADLINE)
        finally:
            os.close(pipe)

    def end(self) -> tuple[int, str, str]:
        """Wait for all processes, which hold the output open, and return code, stdout, stderr."""
        stdout, stderr = self.process.communicate(timeout=DEADLINE)
        return self.process.returncode, stdout, stderr


@contextlib.contextmanager
def held(folder: Path, place: str, *arguments: object) -> Iterator[Held]:
    found = Held(folder, place, arguments)
    try:
        yield found
    finally:
        if found.process.poll() is None:
            os.killpg(found.process.pid, signal.SIGKILL)
        found.process.communicate()


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
    store = make_store(tmp_path, make_texts([400] * 400))
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
    check_unfinished(out, num_finished, writer="pack")
    assert run(*arguments, "-o", out).exit_code == 5, "there still is no room"
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
    assert len(read_store_documents(out)) == 5018


# Runs a command again and again in a forked process that kills itself at its first, second, third
# change of the disk, each into a folder of its own, until one comes to its end.
KILL_SWEEP = """
import os, signal, sys
import tokenizers, tqdm
import seqpack_cli.reporting.terminal.summaries
import seqpack_cli.shards.pack, seqpack_cli.tokens.tokenize_run
from seqpack_cli.cli.main import main

def run_until(number, arguments, folder):
    num_changes = 0

    def count(event, values):
        nonlocal num_changes
        writes = event == "open" and values[2] & (os.O_WRONLY | os.O_RDWR)
        if writes or event in ("os.rename", "os.remove", "os.mkdir"):
            if not isinstance(values[0], int) and os.fspath(values[0]).startswith(folder):
                num_changes += 1
                if num_changes == number:
                    os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    main(arguments)

for number in range(1, 200):
    folder = f"{sys.argv[1]}/{number:03d}"
    process = os.fork()
    if process == 0:
        run_until(number, [*sys.argv[2:], "-o", folder, "-q"], folder)
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    if code != -signal.SIGKILL:
        print(number, code)
        break
"""


def check_kill_sweep(folder: Path, *arguments: object) -> None:
    """Kill a command at every change of the disk; each is unfinished, and continues."""
    folder.mkdir()
    command = [sys.executable, "-c", KILL_SWEEP, str(folder), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=DEADLINE)
    number, code = map(int, done.stdout.split())
    assert code == 0, done.stderr
    assert number > 15, "so many changes at least"
    whole = read_folder(folder / f"{number:03d}")
    num_unfinished = 0
    for killed in range(1, number):
        out = folder / f"{killed:03d}"
        is_planned = (out / "plan.json").exists()
        if is_planned:
            num_unfinished += 1
            result = run("inspect", out)
            assert result.stderr.startswith(f"Error: {out}: incomplete run, "), killed
            assert result.stderr.endswith(f"\n{CONTINUE.format(arguments[0])}\n")
            assert result.exit_code == 4
        elif not (out / "manifest.json").exists():
            assert run("inspect", out).exit_code == 4, "nothing was begun"
        else:
            assert read_folder(out).keys() - {".lock"} == whole.keys(), "nothing was left to do"
        assert run(*arguments, "-o", out, "-q").exit_code == 0, killed
        assert read_folder(out) == whole, killed
    assert num_unfinished > 8


def test_case_29_kill_at_any_change_of_the_disk(tmp_path: Path, corpus: Path) -> None:
    arguments = ("tokenize", corpus / "a.txt", "--num-workers", 1)
    check_kill_sweep(tmp_path / "killed", *arguments)


def test_case_29_kill_with_workers(tmp_path: Path, corpus: Path) -> None:
    """One part stands, two are under way in workers, which end with their parent."""
    out = tmp_path / "tokens"
    arguments = ("tokenize", corpus, "-o", out, *PARTS, "--num-workers", 2)
    with held(tmp_path / "held", "*/[bc].txt", *arguments) as command:
        command.wait_for(2)
        command.process.kill()
        code, stdout, _ = command.end()
    assert (code, stdout) == (-signal.SIGKILL, "")
    check_unfinished(out, 1)
    assert len(find_temporary(out)) == 2
    assert run(*arguments).stderr == "note: 1 of 3 parts were already finished\n"
    assert read_folder(out) == tokenize_whole(corpus)


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
    with held(tmp_path / "held", "*/[bc].txt", *arguments) as command:
        command.wait_for(num_workers)
        assert len(find_temporary(out)) == num_workers
        if number == signal.SIGINT:
            os.killpg(command.process.pid, number)
        else:
            command.process.send_signal(number)
        assert command.end() == (130, "", INTERRUPTED)
    assert find_temporary(out) == []
    assert not (out / ".lock").exists()
    check_unfinished(out, 1)
    assert run(*arguments).stderr == "note: 1 of 3 parts were already finished\n"
    assert read_folder(out) == tokenize_whole(corpus)


def test_case_30_interrupted_pack(tmp_path: Path) -> None:
    store = make_store(tmp_path, make_texts([9, 8, 7, 6]))
    options = ("--batch-size", 1, "--shard-bytes", 1, "--num-workers", 1)
    out = tmp_path / "shards"
    with held(tmp_path / "held", "*/.shard-00002.*", "pack", store, "-o", out, *options) as command:
        command.wait_for(1)
        os.killpg(command.process.pid, signal.SIGINT)
        assert command.end() == (130, "", INTERRUPTED)
    assert find_temporary(out) == []
    check_unfinished(out, 2, writer="pack")
    result = run("pack", store, "-o", out, *options)
    assert result.stderr == "note: 2 of 4 shards were finished before\n"
    assert run("pack", store, "-o", tmp_path / "whole", *options).exit_code == 0
    assert read_folder(out) == read_folder(tmp_path / "whole")


def test_case_31_worker_killed(tmp_path: Path, corpus: Path) -> None:
    """As the system does when memory is short."""
    out = tmp_path / "tokens"
    arguments = ("tokenize", corpus, "-o", out, *PARTS)
    with held(tmp_path / "held", "*/[bc].txt", *arguments, "--num-workers", 2) as command:
        worker = command.wait_for(2)[0]
        assert worker != command.process.pid
        os.kill(worker, signal.SIGKILL)
        code, stdout, stderr = command.end()
    assert (code, stdout) == (5, "")
    hint = "hint: run the same command again with fewer workers (--num-workers 1): it continues\n"
    assert stderr in {
        f"Error: a worker process died while working on: {part}.txt)\n\n{hint}"
        for part in (f"part-00001 ({corpus}/b", f"part-00002 ({corpus}/c")
    }
    assert find_temporary(out) == []
    check_unfinished(out, 1)
    result = run(*arguments, "--num-workers", 1)
    assert (result.exit_code, result.stderr) == (0, "note: 1 of 3 parts were already finished\n")
    assert read_folder(out) == tokenize_whole(corpus)


def test_case_31_worker_of_pack_killed(tmp_path: Path) -> None:
    store = make_store(tmp_path, make_texts([9, 8, 7, 6]))
    arguments = ("pack", store, "-o", tmp_path / "shards", "--batch-size", 1, "--shard-bytes", 1)
    place = "*/.shard-0000[23].*"
    with held(tmp_path / "held", place, *arguments, "--num-workers", 2) as command:
        os.kill(command.wait_for(2)[1], signal.SIGKILL)
        code, _, stderr = command.end()
    assert code == 5
    assert stderr.startswith("Error: a worker process died while working on: shard-0000")
    check_unfinished(tmp_path / "shards", 2, writer="pack")
    result = run(*arguments, "--num-workers", 1)
    assert (result.exit_code, result.stderr) == (0, "note: 2 of 4 shards were finished before\n")


# Folders in use


@pytest.mark.parametrize("killed", [False, True])
def test_case_32_two_writers(tmp_path: Path, corpus: Path, killed: bool) -> None:
    """The second is refused and changes nothing; a killed first one stands in nobody's way."""
    out = tmp_path / "tokens"
    arguments = ("tokenize", corpus, "-o", out, *PARTS, "--num-workers", 1)
    with held(tmp_path / "held", "*/b.txt", *arguments) as command:
        command.wait_for(1)
        before = read_folder(out)
        for overwrite in ((), ("--overwrite",)):
            found = f"{out}: process {command.process.pid} on {os.uname().nodename} is writing here"
            hint = "hint: wait until it ends, or choose another -o"
            check_refused(run(*arguments, *overwrite), 4, found, hint)
        assert read_folder(out) == before
        if killed:
            command.process.kill()
        else:
            command.release()
        assert command.end()[0] == (-signal.SIGKILL if killed else 0)
    assert run(*arguments).exit_code == 0
    assert read_folder(out) == tokenize_whole(corpus)


# Devices


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is here")
@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
@pytest.mark.parametrize("level", ["structure", "backward"])
def test_case_40_no_cuda_device(tmp_path: Path, device: str, level: str) -> None:
    """Never a silent run on the CPU, not even of the level that needs no device."""
    shards = make_shards(tmp_path)
    built = "" if torch.version.cuda else f", torch {torch.__version__} is built without CUDA"
    hint = "hint: run verify on the machine that trains, or pass --device cpu"
    result = run("verify", shards, "--device", device, "--level", level)
    check_refused(result, 5, f"--device {device}: no CUDA device{built}", hint)


@pytest.mark.cuda
def test_case_40_cuda_device_that_is_not_there(tmp_path: Path) -> None:
    result = run("verify", make_shards(tmp_path), "--device", "cuda:99")
    num_devices = torch.cuda.device_count()
    found = f"--device cuda:99: there are {num_devices} CUDA devices, from cuda:0"
    check_refused(result, 5, found)


@pytest.mark.cuda
def test_case_40_cuda_memory_is_not_enough(tmp_path: Path) -> None:
    shards = make_shards(tmp_path, [3000] * 64, batch_size=64)
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + (64 << 20)) / total)
    try:
        options = ("--hidden-size", 512, "--max-batch-tokens", 1_000_000)
        result = run("verify", shards, "--device", "cuda", *options)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert result.exit_code == 5
    message, _, hint = result.stderr.splitlines()
    assert message.startswith(f"Error: {SHARD}: batch 0: ")
    expected = "pass a smaller --max-batch-tokens, or pack with a smaller --batch-size"
    assert hint == f"hint: {expected}"
    assert "proven" not in result.stdout


# In the same spirit


def test_case_extra_read_only_output(corpus: Path, small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    result = run("tokenize", corpus, "-o", small_disk / "tokens")
    found = f"{small_disk}/tokens: Read-only file system"
    check_refused(result, 5, found, "hint: choose another -o")


CHANGED = "hint: wait until it is completely written, then run the same command with --overwrite"


def rewrite(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"line", b"LINE"))


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda path: os.truncate(path, 100), "changed while it was read, ends 44 bytes early"),
        pytest.param(
            lambda path: os.truncate(path, 150), "changed while it was read", marks=pytest.mark.slow
        ),
        pytest.param(rewrite, "changed while it was read", marks=pytest.mark.slow),
    ],
    ids=["shorter", "longer", "other"],  # more of them in test_kills.py, in one process
)
def test_case_extra_input_that_changes_during_the_run(
    tmp_path: Path, corpus: Path, change: Callable[[Path], object], found: str
) -> None:
    """The second file, while the first is read: planned as it was, read as it is."""
    out = tmp_path / "tokens"
    arguments = ("tokenize", corpus, "-o", out, *PARTS, "--num-workers", 1)
    with held(tmp_path / "held", "*/a.txt", *arguments) as command:
        command.wait_for(1)
        change(corpus / "b.txt")
        command.release()
        code, stdout, stderr = command.end()
    assert stderr == f"Error: {corpus}/b.txt: {found}\n\n{CHANGED}\n"
    assert (code, stdout) == (3, "")
    advice = CHANGED.replace("hint: ", "hint: for tokenize: ")
    check_unfinished(out, 1, failure=f"{corpus}/b.txt: {found}", advice=advice)
    assert run(*arguments, "--overwrite").exit_code == 0


def test_case_extra_clock_that_is_wrong(tmp_path: Path, corpus: Path) -> None:
    """Times of files say nothing: a run continues, a finished one is known by its bytes."""
    out = tmp_path / "tokens"
    arguments = ("tokenize", corpus, "-o", out, *PARTS, "--num-workers", 1)
    with held(tmp_path / "held", "*/c.txt", *arguments) as command:
        command.wait_for(1)
        os.killpg(command.process.pid, signal.SIGINT)
        assert command.end()[0] == 130
    for path in corpus.iterdir():
        os.utime(path, (4e9, 4e9))
    for path in out.iterdir():
        os.utime(path, (0, 0))
    assert run(*arguments).stderr == "note: 2 of 3 parts were already finished\n"
    whole = tokenize_whole(corpus)
    assert read_folder(out) == whole
    for path in corpus.iterdir():
        os.utime(path, (0, 0))
    assert run(*arguments).stdout.splitlines()[0] == f"{out}: already complete"


@pytest.mark.parametrize(
    "name",
    [
        "日本語 é.txt",
        "with 'quotes\".txt",
        "two\nlines.txt",
        "bell \x07.txt",
    ],
)
def test_case_extra_file_name_in_a_message(tmp_path: Path, name: str) -> None:
    """It stands as it is if it can be printed, else escaped; a store keeps any name."""
    path = tmp_path / name
    path.write_bytes(b"good\n\xff\n")
    assert (
        run("tokenize", path, "-o", tmp_path / "good", "--encoding-errors", "skip").exit_code == 0
    )
    reject = json.loads((tmp_path / "good" / "rejects.jsonl").read_text())
    assert reject["source"] == str(path)
    result = run("tokenize", path, "-o", tmp_path / "tokens")
    assert result.exit_code == 3
    first, empty, _ = result.stderr.splitlines()
    assert empty == ""
    assert first.endswith(":2: byte 0xff, expected UTF-8")
    assert first.isprintable()
    if name.isprintable():
        assert first.startswith(f"Error: {path}:2: ")


def test_case_extra_shard_smaller_than_a_sequence(tmp_path: Path) -> None:
    """A shard is then one batch, as DESIGN.md has it."""
    shards = make_shards(tmp_path, shard_bytes=1)
    entries = json.loads((shards / "manifest.json").read_bytes())["shards"]
    assert [entry["num_batches"] for entry in entries] == [1, 1, 1]
    assert run("verify", shards, "--level", "roundtrip").exit_code == 0
    result = run("pack", tmp_path / "store", "-o", tmp_path / "other", "--shard-bytes", 0)
    assert result.exit_code == 2
    assert "'0' is not a size from 1 byte to 1024 TiB" in result.stderr


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
