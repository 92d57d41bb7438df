"""Independent tasks in this process and in workers; builtins, which spawned workers find."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from seqpack_cli.errors import MachineError
from seqpack_cli.execution import count_cores, run_tasks


@pytest.mark.parametrize("num_workers", [1, 3])
def test_every_task_runs_once(num_workers: int) -> None:
    tasks = list(range(10))
    found = sorted(run_tasks(math.factorial, tasks, num_workers=num_workers))
    assert found == [math.factorial(task) for task in tasks]


@pytest.mark.parametrize("num_workers", [0, 1, 3])
def test_no_task_gives_nothing(num_workers: int) -> None:
    assert list(run_tasks(math.factorial, [], num_workers=num_workers)) == []


def test_one_worker_or_one_task_runs_in_this_process() -> None:
    assert list(run_tasks(os.getpgid, [0, 0], num_workers=1)) == [os.getpgid(0)] * 2
    seen: list[int] = []
    list(run_tasks(seen.append, [7], num_workers=4))
    assert seen == [7]


def test_workers_are_spawned_never_forked() -> None:
    ask = "__import__('multiprocessing').get_start_method(allow_none=True)"
    assert set(run_tasks(eval, [ask, ask], num_workers=2)) == {"spawn"}


def test_results_come_as_they_finish() -> None:
    results = run_tasks(time.sleep, [30, 0], num_workers=2)
    started = time.monotonic()
    next(results)
    assert time.monotonic() - started < 20
    results.close()
    assert time.monotonic() - started < 20  # stopping early waits for nobody


@pytest.mark.parametrize("num_workers", [1, 2])
def test_first_error_stops_the_rest(num_workers: int) -> None:
    with pytest.raises(ValueError, match="factorial"):
        list(run_tasks(math.factorial, [3, -1, 4, 5], num_workers=num_workers))
    assert multiprocessing.active_children() == []


def test_worker_that_dies_is_an_error_that_names_its_tasks() -> None:
    with pytest.raises(MachineError) as caught:
        list(run_tasks(signal.raise_signal, [9, 9, 9], num_workers=2))
    assert caught.value.message.startswith("a worker process died while it held one of: 9")
    assert caught.value.hint == (
        "run the same command again with fewer workers (--num-workers 1): it continues"
    )
    assert caught.value.exit_code == 5
    assert multiprocessing.active_children() == []


KILLED_PARENT = """
import multiprocessing, os, signal, threading, time
from seqpack_cli.execution import run_tasks

def kill_when_workers_run():
    while len(multiprocessing.active_children()) < 2:
        time.sleep(0.01)
    print(*(child.pid for child in multiprocessing.active_children()), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    threading.Thread(target=kill_when_workers_run).start()
    list(run_tasks(time.sleep, [60, 60], num_workers=2))
"""


def test_workers_end_with_a_killed_parent(tmp_path: Path) -> None:
    """They hold the pipe of their own tasks open, so they would wait for ever."""
    script = tmp_path / "parent.py"
    script.write_text(KILLED_PARENT)
    started = time.monotonic()
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=50)
    assert done.returncode == -signal.SIGKILL
    assert len(done.stdout.split()) == 2
    # the workers hold the output pipe: that run returned means that they are gone
    assert time.monotonic() - started < 40


def test_failed_run_leaves_the_callers_own_processes_alone() -> None:
    context = multiprocessing.get_context("spawn")
    other = context.Process(target=time.sleep, args=(60,))
    other.start()
    try:
        with pytest.raises(ValueError, match="factorial"):
            list(run_tasks(math.factorial, [-1, -1], num_workers=2))
        other.join(0.5)
        assert other.is_alive()
    finally:
        other.kill()
        other.join()


def test_cores_are_those_this_process_may_use() -> None:
    assert 1 <= count_cores() <= (os.cpu_count() or 1)
