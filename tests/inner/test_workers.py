"""Independent tasks in this process and in workers; builtins, which spawned workers find."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from seqpack_cli.errors import DataError, MachineError
from seqpack_cli.files.ahead import map_ahead
from seqpack_cli.runs.executor import Executor, count_cores
from seqpack_cli.runs.progress import Progress, advance
from seqpack_cli.runs.workers import Workers


def make_workers(num_workers: int | None, progress: Progress | None = None) -> Workers:
    return Workers(Executor(num_workers=num_workers), progress or Progress())


@pytest.mark.parametrize("num_workers", [1, 3])
def test_every_task_runs_once(num_workers: int) -> None:
    tasks = list(range(10))
    found = sorted(make_workers(num_workers).run(math.factorial, tasks))
    assert found == [math.factorial(task) for task in tasks]


@pytest.mark.parametrize("num_workers", [None, 1, 3])
def test_no_task_gives_nothing(num_workers: int | None) -> None:
    assert list(make_workers(num_workers).run(math.factorial, [])) == []


def test_one_worker_or_one_task_runs_in_this_process() -> None:
    assert list(make_workers(1).run(os.getpgid, [0, 0])) == [os.getpgid(0)] * 2
    seen: list[int] = []
    list(make_workers(4).run(seen.append, [7]))
    assert seen == [7]


def test_workers_are_spawned_never_forked() -> None:
    ask = "__import__('multiprocessing').get_start_method(allow_none=True)"
    assert set(make_workers(2).run(eval, [ask, ask])) == {"spawn"}


def test_results_come_as_they_finish() -> None:
    results = make_workers(2).run(eval, ["__import__('time').sleep(60)", "7"])
    assert next(results) == 7
    results.close()  # stopping early waits for nobody
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("num_workers", [1, 2])
def test_first_error_stops_the_rest(num_workers: int) -> None:
    with pytest.raises(ValueError, match="factorial"):
        list(make_workers(num_workers).run(math.factorial, [3, -1, 4, 5]))
    assert multiprocessing.active_children() == []


def test_worker_that_dies_is_an_error_that_names_its_tasks() -> None:
    with pytest.raises(MachineError) as caught:
        list(make_workers(2).run(signal.raise_signal, [9, 9, 9]))
    assert caught.value.message.startswith("a worker process died while working on one of: 9")
    assert caught.value.hint == (
        "run the same command again with fewer workers (--num-workers 1): it continues"
    )
    assert caught.value.exit_code == 5
    assert multiprocessing.active_children() == []


KILLED_PARENT = """
import multiprocessing, os, signal, threading, time
from seqpack_cli.runs.progress import Progress
from seqpack_cli.runs.executor import Executor
from seqpack_cli.runs.workers import Workers

def kill_when_workers_run():
    while len(multiprocessing.active_children()) < 2:
        time.sleep(0.01)
    print(*(child.pid for child in multiprocessing.active_children()), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    threading.Thread(target=kill_when_workers_run).start()
    list(Workers(Executor(num_workers=2), Progress()).run(time.sleep, [60, 60]))
"""


def test_workers_end_with_a_killed_parent(tmp_path: Path) -> None:
    """They hold the pipe of their own tasks open, so they would wait for ever."""
    script = tmp_path / "parent.py"
    script.write_text(KILLED_PARENT)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=50)
    assert done.returncode == -signal.SIGKILL
    assert len(done.stdout.split()) == 2
    # the workers hold the output pipe: that run returned means that they are gone


HANDLERS = """
import signal
from seqpack_cli.runs.progress import Progress
from seqpack_cli.runs.executor import Executor
from seqpack_cli.runs.workers import Workers

if __name__ == "__main__":
    workers = Workers(Executor(num_workers=2), Progress())
    print(*{handler.name for handler in workers.run(signal.getsignal, [2, 2, 2])})
"""


@pytest.mark.parametrize("handler", [signal.SIG_DFL, signal.SIG_IGN], ids=["heard", "ignored"])
def test_workers_end_at_ctrl_c_unless_it_is_ignored(
    tmp_path: Path, handler: signal.Handlers
) -> None:
    """Under nohup Ctrl-C is for others: a worker that died of it would end the run."""
    script = tmp_path / "parent.py"
    script.write_text(HANDLERS)
    done = subprocess.run(
        [sys.executable, script],
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, handler),
    )
    assert done.stdout.split() == [handler.name]


def test_failed_run_leaves_the_callers_own_processes_alone() -> None:
    context = multiprocessing.get_context("spawn")
    other = context.Process(target=time.sleep, args=(60,))
    other.start()
    try:
        with pytest.raises(ValueError, match="factorial"):
            list(make_workers(2).run(math.factorial, [-1, -1]))
        other.join(0.5)
        assert other.is_alive()
    finally:
        other.kill()
        other.join()


def test_cores_are_those_this_process_may_use() -> None:
    assert 1 <= count_cores() <= (os.cpu_count() or 1)


@pytest.mark.parametrize("num_threads", [1, 2, 5])
def test_map_ahead_gives_results_in_order_and_not_too_far_ahead(num_threads: int) -> None:
    taken = []

    def items() -> Iterator[int]:
        for number in range(20):
            taken.append(number)
            yield number

    def slow_first(number: int) -> int:
        time.sleep(0.02 if number % 3 == 0 else 0)
        return number * number

    for count, found in enumerate(map_ahead(slow_first, items(), num_threads=num_threads)):
        assert found == count * count
        assert len(taken) <= count + 1 + num_threads
    assert len(taken) == 20


@pytest.mark.parametrize("num_threads", [1, 3])
def test_map_ahead_raises_what_a_call_raises_where_it_stands(num_threads: int) -> None:
    results = map_ahead(lambda number: 6 // number, [3, 2, 0, 1], num_threads=num_threads)
    assert [next(results), next(results)] == [2, 3]
    with pytest.raises(ZeroDivisionError):
        next(results)


@pytest.mark.parametrize("num_workers", [1, 2])
def test_advance_reaches_the_caller_from_any_process(num_workers: int) -> None:
    amounts: list[int] = []
    tokens: list[int] = []
    progress = Progress(on_advance=amounts.append, on_tokens=tokens.append)
    calls = [
        f"__import__('seqpack_cli.runs.progress').runs.progress.advance({n}, {2 * n})"
        for n in (3, 4)
    ]
    list(make_workers(num_workers, progress).run(eval, calls))
    assert (sum(amounts), sum(tokens)) == (7, 14)
    advance(100)  # outside a run nobody listens
    assert sum(amounts) == 7


def test_threads_do_every_task_once_and_report_together() -> None:
    counts = [0, 0]

    def on_advance(amount: int) -> None:
        before = counts[0]
        time.sleep(0.001)  # where another thread would come between
        counts[0] = before + amount
        counts[1] += 1

    def work(task: int) -> int:
        for _ in range(task):
            advance(1)
        return task

    run = make_workers(None, Progress(on_advance=on_advance)).run
    assert sorted(run(work, range(12), max_processes=1, num_threads=4)) == list(range(12))
    assert counts == [66, 66]


@pytest.mark.parametrize("error", [DataError("a bad record"), KeyboardInterrupt()])
def test_threads_stop_where_they_report_when_one_fails(error: BaseException) -> None:
    began = threading.Event()

    def work(task: int) -> None:
        if task == 0:
            began.wait()
            raise error
        began.set()
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            time.sleep(0.01)
            advance(1)
        raise AssertionError("was not stopped")

    results = make_workers(None).run(work, range(9), max_processes=1, num_threads=2)
    with pytest.raises(type(error)):
        next(results)


@pytest.mark.parametrize("first_fails", [True, False])
def test_threads_raise_the_error_of_the_first_task_that_fails(first_fails: bool) -> None:
    """And finish the tasks before it: which thread is faster does not matter."""
    others = threading.Semaphore(0)

    def work(task: int) -> int:
        if task > 0:
            others.release()
            raise DataError(f"task {task}")
        others.acquire()  # until the second task fails
        advance(1)
        if first_fails:
            raise DataError("task 0")
        return task

    results = make_workers(None).run(work, range(9), max_processes=1, num_threads=2)
    found = []
    with pytest.raises(DataError, match="task 0" if first_fails else "task 1"):
        found.extend(results)
    assert found == ([] if first_fails else [0])
