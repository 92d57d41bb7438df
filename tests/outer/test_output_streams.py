"""stdout and stderr that are closed, full, or without a reader, for every command.

No failure of the program's own output may look like a verdict: 1 says that verify found a fault.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command import run
from small_shards import make_shards

from seqpack_cli.cli.main import main

needs_full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
# What the shell does with a stream, as a redirection.
CLOSED, FULL, GONE = "closed", "full", "gone"


def start(arguments: tuple[object, ...], **streams: str) -> subprocess.CompletedProcess[bytes]:
    """Run the program, its streams as said; those that are not named are captured."""
    options: dict[str, object] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    opened = []
    for name, state in streams.items():
        if state == FULL:
            opened.append(os.open("/dev/full", os.O_WRONLY))
            options[name] = opened[-1]
        elif state == GONE:
            reader, writer = os.pipe()
            os.close(reader)
            opened.append(writer)
            options[name] = writer
    closed = [
        number
        for number, name in enumerate(("stdin", "stdout", "stderr"))
        if streams.get(name) == CLOSED
    ]

    def close() -> None:
        for number in closed:
            os.close(number)

    try:
        return subprocess.run(
            [sys.executable, "-m", "seqpack_cli", *map(str, arguments)],
            preexec_fn=close,
            stdin=subprocess.DEVNULL,
            timeout=120,
            check=False,
            **options,  # type: ignore[call-overload]
        )
    finally:
        for number in opened:
            os.close(number)


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("work")
    make_shards(folder)
    return folder


def name_commands(work: Path, out: Path) -> dict[str, tuple[object, ...]]:
    text, store, shards = work / "corpus.txt", work / "store", work / "shards"
    return {
        "tokenize": ("tokenize", text, "-o", out, "--part-bytes", 20, "--num-workers", 2),
        "import": ("import", store / "part-00000.idx", "--tokenizer", "bytes", "-o", out),
        "plan": ("plan", store),
        "pack": ("pack", store, "-o", out, "--shard-bytes", 1, "--num-workers", 1),
        "inspect": ("inspect", shards, "--json"),
        "diff": ("diff", shards, shards),
        "verify": ("verify", shards, "--level", "structure"),
        "unpack": ("unpack", shards, "-o", "-"),
        "export": ("export", store, "--to", "nanogpt", "--eos", 258, "-o", out),
        "train-tokenizer": ("train-tokenizer", text, "--vocab-size", 300, "-o", out),
        "help": ("--help",),
        "version": ("--version",),
        "help of a command": ("verify", "--help"),
    }


NAMES = [*main.list_commands(None), "help", "version", "help of a command"]


def test_every_command_is_among_them(work: Path) -> None:
    assert list(name_commands(work, work)) == NAMES


def each_command(states: list[str], quick: set[tuple[str, str]]) -> pytest.MarkDecorator:
    """Parametrize by command and state; all but a few are slow, since each is a process or two."""
    cases = []
    for name in NAMES:
        for state in states:
            marks = [] if (name, state) in quick else [pytest.mark.slow]
            marks += [needs_full] if state == FULL else []
            cases.append(pytest.param(name, state, marks=marks))
    return pytest.mark.parametrize(("name", "state"), cases)


@each_command([CLOSED, GONE, FULL], {("tokenize", CLOSED), ("tokenize", FULL), ("inspect", GONE)})
def test_what_cannot_be_said_on_stderr_stops_no_command(
    work: Path, tmp_path: Path, name: str, state: str
) -> None:
    arguments = name_commands(work, tmp_path / "out")[name]
    done = start(arguments, stderr=state)
    assert (done.returncode, done.stdout != b"") == (0, True)
    if "-o" in arguments and name != "unpack":
        assert (tmp_path / "out").exists()


@each_command([CLOSED, FULL], {("inspect", CLOSED), ("unpack", FULL), ("help", FULL)})
def test_a_stdout_that_takes_nothing_is_an_error_of_the_machine(
    work: Path, tmp_path: Path, name: str, state: str
) -> None:
    done = start(name_commands(work, tmp_path / "out")[name], stdout=state)
    assert done.returncode == 5
    reason = b"Bad file descriptor" if state == CLOSED else b"No space left on device"
    assert done.stderr.endswith(b"Error: stdout: " + reason + b"\n")
    assert done.stderr.count(b"\n") <= 2  # one note of tokenize


@each_command([GONE], {("inspect", GONE), ("unpack", GONE), ("help", GONE)})
def test_a_reader_that_goes_changes_no_result(
    work: Path, tmp_path: Path, name: str, state: str
) -> None:
    done = start(name_commands(work, tmp_path / "out")[name], stdout=state)
    assert done.returncode == (5 if name == "unpack" else 0)  # whose lines are not all written
    assert b"Error" not in done.stderr


@pytest.mark.parametrize(
    ("streams", "code"),
    [
        ({"stdout": GONE, "stderr": GONE}, 1),
        pytest.param({"stderr": CLOSED}, 1, marks=pytest.mark.slow),
        pytest.param({"stdout": GONE}, 1, marks=pytest.mark.slow),
        pytest.param({"stdout": CLOSED}, 5, marks=pytest.mark.slow),
        pytest.param({"stdout": FULL, "stderr": FULL}, 5, marks=[needs_full, pytest.mark.slow]),
        pytest.param(
            dict.fromkeys(("stdin", "stdout", "stderr"), CLOSED), 5, marks=pytest.mark.slow
        ),
    ],
)
def test_a_fault_that_was_found_is_said_by_its_code(
    tmp_path: Path, streams: dict[str, str], code: int
) -> None:
    shards = make_shards(tmp_path)
    data = bytearray((shards / "shard-00000.safetensors").read_bytes())
    data[-1] ^= 1
    (shards / "shard-00000.safetensors").write_bytes(data)
    assert start(("verify", shards, "--level", "structure"), **streams).returncode == code


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(("tokenise",), 2), (("inspect", "none"), 4)],
)
@pytest.mark.parametrize("state", [CLOSED, GONE])
def test_an_error_that_cannot_be_said_keeps_its_code(
    arguments: tuple[str, ...], code: int, state: str
) -> None:
    assert start(arguments, stderr=state).returncode == code


def test_no_file_of_a_run_takes_the_number_of_a_closed_stream(work: Path, tmp_path: Path) -> None:
    """What a library says on stderr would stand in it."""
    closed = dict.fromkeys(("stdin", "stdout", "stderr"), CLOSED)
    out, whole = tmp_path / "out", tmp_path / "whole"
    arguments = ("tokenize", work / "corpus.txt", "--part-bytes", 20, "--num-workers", 1, "-q")
    assert start((*arguments, "-o", out), **closed).returncode == 0
    assert run(*arguments, "-o", whole).exit_code == 0
    for path in whole.iterdir():
        assert path.name == "run.json" or (out / path.name).read_bytes() == path.read_bytes()
