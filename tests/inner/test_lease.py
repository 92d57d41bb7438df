"""The lock in an object store: its holder is seen alive by a beat, and replaced without one."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from object_store import write_object

from seqpack_cli.errors import FolderError
from seqpack_cli.files import lease
from seqpack_cli.files.lease import check_held, hold_lease
from seqpack_cli.files.objects import read_object
from seqpack_cli.files.url import Url


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Url:
    monkeypatch.setattr(lease, "BEAT_SECONDS", 0.05)
    return Url(f"memory://{tmp_path.name}/.lock")  # in the folder that is held


def spell(pid: int, home: str, beat: int = 0) -> bytes:
    return f"elsewhere {pid} {home} 0123456789abcdef {beat}".encode()


def find_dead_pid() -> int:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return ended.pid


def test_a_lease_is_held_by_one_and_then_gone(url: Url) -> None:
    for _ in range(2):
        with hold_lease(url.parent) as held:
            check_held(held / "x")
            with pytest.raises(FolderError) as caught, hold_lease(url.parent):
                pass
            assert caught.value.message.startswith(f"{url.parent}: process {os.getpid()} on ")
            check_held(held / "x")
        assert not url.exists()


def test_the_holder_beats(url: Url) -> None:
    with hold_lease(url.parent):
        first = read_object(url)
        deadline = time.monotonic() + 20
        while read_object(url) == first:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_the_lease_of_a_dead_process_here_is_taken_at_once(
    url: Url, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "BEAT_SECONDS", 1000)
    write_object(url, spell(find_dead_pid(), lease._find_pid_namespace()))
    with hold_lease(url.parent) as held:
        check_held(held / "x")


@pytest.mark.parametrize("home", ["another-machine", "unknown"])
def test_a_lease_that_stands_still_is_taken_over(url: Url, home: str) -> None:
    write_object(url, spell(os.getpid(), home))
    with hold_lease(url.parent) as held:
        check_held(held / "x")


def test_a_lease_of_another_machine_that_beats_is_respected(url: Url) -> None:
    stop = threading.Event()

    def beat() -> None:
        number = 0
        while not stop.wait(0.01):
            number += 1
            write_object(url, spell(find_dead, "another-machine", number))

    find_dead = find_dead_pid()
    write_object(url, spell(find_dead, "another-machine"))
    thread = threading.Thread(target=beat)
    thread.start()
    try:
        with (
            pytest.raises(FolderError, match=f"process {find_dead} on elsewhere is writing here"),
            hold_lease(url.parent),
        ):
            pass
    finally:
        stop.set()
        thread.join()
    assert read_object(url).startswith(b"elsewhere ")


@pytest.mark.parametrize("data", [b"", b"something else", b"a 1 b 0123456789abcdef"])
def test_a_lock_that_is_not_ours_stays(url: Url, data: bytes) -> None:
    write_object(url, data)
    with pytest.raises(FolderError) as caught, hold_lease(url.parent):
        pass
    assert caught.value.message == f"{url}: not a lock file of seqpack"
    assert caught.value.hint == "remove it if it is not needed, or choose another -o"
    assert read_object(url) == data


def test_who_lost_the_lease_hears_it_and_leaves_the_new_one_alone(url: Url) -> None:
    with hold_lease(url.parent) as held:
        write_object(url, spell(1, "another-machine"))
        with pytest.raises(FolderError, match="another process took over"):
            check_held(held / "x")
    assert read_object(url) == spell(1, "another-machine")


def test_a_beat_leaves_the_lock_of_a_new_holder_alone(
    url: Url, monkeypatch: pytest.MonkeyPatch
) -> None:
    num_beats = threading.Semaphore(0)
    find_tag = lease.find_tag

    def count(url: Url) -> str | None:
        num_beats.release()
        return find_tag(url)

    with hold_lease(url.parent):
        write_object(url, spell(1, "another-machine"))
        monkeypatch.setattr(lease, "find_tag", count)
        for _ in range(3):  # the second begins when the first has ended
            assert num_beats.acquire(timeout=20)
        assert read_object(url) == spell(1, "another-machine")
