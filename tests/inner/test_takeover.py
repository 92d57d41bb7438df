"""A run in an object store that stands still, loses its folder to another run, and wakes up.

Each time a request of it is held back, all its processes are stopped, another run with other
options takes the folder over and ends, and the first one goes on: it may not change a byte.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from command import run
from object_store import FaultProxy, read_objects, write_object

from seqpack_cli.errors import FolderError
from seqpack_cli.files import lease
from seqpack_cli.files.url import Url

BUCKET = "takeover"
BEAT_SECONDS = 0.5
SECONDS = 60  # until a child process counts as hanging
TEXT = "".join(f"line {number} of the corpus\n" for number in range(60))
QUICK = f"""
import sys
from seqpack_cli.__main__ import run
from seqpack_cli.files import lease
lease.BEAT_SECONDS = {BEAT_SECONDS}
sys.exit(run())
"""
# With the keys that count; how often there is a beat depends on the machine.
NO_LOCK = r"(^|/)[^/.][^/]*$"
CHANGES = {"PutObject": NO_LOCK, "DeleteObject": NO_LOCK, "DeleteObjects": ""}
LOST = "another process took over while this one was suspended"


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(lease, "BEAT_SECONDS", BEAT_SECONDS)
    (tmp_path / "corpus.txt").write_text(TEXT)
    return tmp_path / "corpus.txt"


def start(*arguments: object) -> subprocess.Popen[str]:
    """Start the program with quick beats, in a session of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", QUICK, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def tokenize(corpus: Path, folder: str, *options: object) -> tuple[object, ...]:
    """Return the arguments of a run with two parts."""
    return ("tokenize", corpus, "-o", f"s3://{BUCKET}/{folder}", "--part-bytes", 900, *options)


def stop_across_takeover(
    server: FaultProxy, corpus: Path, folder: str, options: tuple[object, ...], **point: object
) -> tuple[int, str, dict[str, bytes], dict[str, bytes]]:
    """Return exit code and errors of the stopped run, and the objects before and after it woke."""
    operation = str(point.pop("operation"))
    other_options = ("--eos", "<eos>", "--overwrite", "-q")
    with server.breaking("stall", operation, limit=1, **point) as fault:  # type: ignore[arg-type]
        child = start(*tokenize(corpus, folder, *options))
        try:
            assert fault.happened.wait(SECONDS), child.stderr
            os.killpg(child.pid, signal.SIGSTOP)
            for _ in range(3):  # a beat that was on its way still counts
                other = run(*tokenize(corpus, folder, "--num-workers", 1, *other_options))
                if "is writing here" not in other.stderr:
                    break
            assert other.exit_code == 0, other.stderr
            before = read_objects(server.upstream, BUCKET, folder)
        finally:
            os.killpg(child.pid, signal.SIGCONT)
    _, errors = child.communicate(timeout=SECONDS)
    return child.returncode, errors, before, read_objects(server.upstream, BUCKET, folder)


@pytest.mark.parametrize(
    ("num_workers", "operation", "key"),
    [
        (2, "PutObject", r"part-00001\.bin$"),
        # Those of one worker are in the sweep below too.
        pytest.param(1, "PutObject", r"part-00001\.json$", marks=pytest.mark.slow),
        pytest.param(1, "DeleteObject", r"plan\.json$", marks=pytest.mark.slow),
    ],
)
def test_a_run_that_wakes_after_a_takeover_changes_nothing(
    server, tmp_path, corpus, num_workers, operation, key
):
    options = ("--num-workers", num_workers)
    code, errors, before, after = stop_across_takeover(
        server, corpus, tmp_path.name, options, operation=operation, key=key
    )
    assert after == before
    assert (code, LOST in errors) == (4, True), errors
    assert errors.count("Error") == 1
    assert "Traceback" not in errors


def test_of_two_who_take_a_dead_lock_over_in_the_same_moment_one_succeeds(
    server, tmp_path, corpus, monkeypatch: pytest.MonkeyPatch
):
    folder = Url(f"s3://{BUCKET}/{tmp_path.name}")
    write_object(folder / ".lock", b"elsewhere 1 another-home 0123456789abcdef 0")
    found_dead = threading.Barrier(2)
    has_gone = lease.has_gone

    def meet(url: Url, found: str) -> bool:
        is_gone = has_gone(url, found)
        if is_gone:
            found_dead.wait(SECONDS)
        return is_gone

    def hold(_: int) -> bool:
        try:
            with lease.hold_lease(folder) as held:
                lease.check_held(held / "x")
                ended.wait(SECONDS)
                lease.check_held(held / "x")
                return True
        except FolderError as error:
            assert " is writing here" in error.message
            return False
        finally:
            ended.set()

    ended = threading.Event()
    monkeypatch.setattr(lease, "has_gone", meet)
    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(hold, range(2))) == [False, True]


def test_a_store_without_conditions_is_written_too(server, tmp_path, corpus):
    with server.breaking("deny", "PutObject") as fault:
        for options in ((), ("--eos", "<eos>", "--overwrite")):
            result = run(*tokenize(corpus, tmp_path.name, "--num-workers", 1, *options))
            assert result.exit_code == 0, result.stderr
    assert fault.num_done > 20
    expected = run(*tokenize(corpus, f"{tmp_path.name}-2", "--num-workers", 1, "--eos", "<eos>"))
    assert expected.exit_code == 0
    found, whole = (
        read_objects(server.upstream, BUCKET, folder)
        for folder in (tmp_path.name, f"{tmp_path.name}-2")
    )
    assert {**found, "run.json": b""} == {**whole, "run.json": b""}


def count_requests(server: FaultProxy, *arguments: object) -> dict[str, int]:
    """Count what a whole run asks the server to change."""
    server.forget()
    child = start(*arguments)
    _, errors = child.communicate(timeout=SECONDS)
    assert child.returncode == 0, errors
    return {name: len(server.find(name, key=key)) for name, key in CHANGES.items()}


@pytest.mark.slow
@pytest.mark.parametrize("overwrites", [False, True])
def test_a_run_stopped_at_any_change_changes_nothing_afterwards(
    server, tmp_path, corpus, overwrites
):
    """Some minutes: every put and removal of a run is held back once."""
    options: tuple[object, ...] = ("--num-workers", 1, *(["--overwrite"] if overwrites else []))
    counts = count_requests(server, *tokenize(corpus, f"{tmp_path.name}-first", *options))
    ended = []
    for operation, num_requests in counts.items():
        for number in range(num_requests):
            folder = f"{tmp_path.name}-{operation}-{number}"
            if overwrites:
                assert run(*tokenize(corpus, folder, "--bos", "<bos>", "-q")).exit_code == 0
            server.forget()
            code, errors, before, after = stop_across_takeover(
                server,
                corpus,
                folder,
                options,
                operation=operation,
                key=CHANGES[operation],
                num_before=number,
            )
            found = next(found for found in server.find(operation) if found.status == 0)
            name = found.key.rpartition("/")[2]
            ended.append((operation, name, code))
            assert after == before, (operation, name)
            assert (code, LOST in errors) == (4, True), (operation, name, errors)
    assert len(ended) >= 12, ended


@pytest.mark.slow
def test_a_run_killed_at_any_change_is_finished_by_the_same_command(server, tmp_path, corpus):
    """Some minutes: every put and removal of a run is the last one before SIGKILL."""
    folder = f"{tmp_path.name}-whole"
    counts = count_requests(server, *tokenize(corpus, folder, "--num-workers", 1))
    whole = read_objects(server.upstream, BUCKET, folder)
    del whole["run.json"]
    for operation, num_requests in counts.items():
        for kind in ("stall", "lose"):  # the server does not see it, or does it
            for number in range(num_requests):
                folder = f"{tmp_path.name}-{operation}-{kind}-{number}"
                arguments = tokenize(corpus, folder, "--num-workers", 1)
                point = {"limit": 1, "num_before": number, "key": CHANGES[operation]}
                with server.breaking(kind, operation, **point) as fault:  # type: ignore[arg-type]
                    child = start(*arguments)
                    assert fault.happened.wait(SECONDS)
                    os.killpg(child.pid, signal.SIGKILL)
                    child.communicate()
                again = run(*arguments, "-q")
                assert again.exit_code == 0, (operation, kind, number, again.stderr)
                found = read_objects(server.upstream, BUCKET, folder)
                del found["run.json"]
                assert found == whole, (operation, kind, number)
