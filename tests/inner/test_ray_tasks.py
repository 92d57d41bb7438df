"""Tasks on a real Ray cluster: results, errors, lost workers and nodes. Workers import the jobs."""

from __future__ import annotations

import functools
import math
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import ray
import ray_clusters
from ray.cluster_utils import Cluster
from ray_clusters import Counted, Job, node_options, read_attempts, wait_for

import seqpack_cli
from seqpack_cli.errors import DataError, MachineError
from seqpack_cli.runs import ray_tasks
from seqpack_cli.runs.executor import Executor
from seqpack_cli.runs.progress import Progress
from seqpack_cli.runs.ray_tasks import MAX_RETRIES
from seqpack_cli.runs.spawned_workers import WorkerDiedError
from seqpack_cli.runs.workers import Workers


def on_ray(progress: Progress | None = None, *, num_workers: int | None = None) -> Workers:
    return Workers(Executor("ray", num_workers=num_workers), progress or Progress())


def make_jobs(folder: Path, num_jobs: int) -> list[Job]:
    return [Job(number, folder) for number in range(num_jobs)]


def start_collecting(
    function: Callable[[Job], int], jobs: list[Job], progress: Progress | None = None
) -> tuple[threading.Thread, list[int]]:
    """Run jobs in a thread of their own; return it, and the list that gets the results."""
    found: list[int] = []

    def collect() -> None:
        found.extend(on_ray(progress).run(function, jobs))

    thread = threading.Thread(target=collect)
    thread.start()
    return thread, found


@pytest.mark.parametrize("num_workers", [None, 1, 3])
def test_every_task_runs_once_whatever_is_in_flight(
    cluster: Cluster, num_workers: int | None
) -> None:
    tasks = list(range(20))
    found = sorted(on_ray(num_workers=num_workers).run(math.factorial, tasks))
    assert found == [math.factorial(task) for task in tasks]


def test_no_task_gives_nothing_and_needs_no_cluster() -> None:
    nowhere = Executor("ray", "127.0.0.1:1")
    assert list(Workers(nowhere, Progress()).run(math.factorial, [])) == []


def test_tasks_run_in_workers_in_the_folder_of_the_driver(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    jobs = make_jobs(tmp_path, 2)
    found = on_ray().run(ray_clusters.name_folder, jobs)
    assert list(found) == [str(tmp_path)] * 2
    (pid,) = on_ray().run(eval, ["__import__('os').getpid()"])
    assert pid != os.getpid()


def test_at_most_so_many_tasks_are_in_flight(cluster: Cluster, tmp_path: Path) -> None:
    jobs = make_jobs(tmp_path, 5)
    times = sorted(on_ray(num_workers=1).run(ray_clusters.tell_times, jobs))
    assert all(times[i][1] <= times[i + 1][0] for i in range(4))


def test_what_all_tasks_have_in_common_is_sent_once(cluster: Cluster, tmp_path: Path) -> None:
    """A tokenizer may have megabytes, and be in every task of a hundred thousand."""
    count = functools.partial(ray_clusters.count_bytes, Counted(b"t" * 5_000_000))
    Counted.num_pickled = 0
    found = list(on_ray().run(count, make_jobs(tmp_path, 50)))
    assert found == [5_000_000] * 50
    assert Counted.num_pickled == 1


def test_error_of_a_task_comes_out_as_itself_and_ends_the_rest(
    cluster: Cluster, tmp_path: Path
) -> None:
    jobs = make_jobs(tmp_path, 6)
    with pytest.raises(DataError) as caught:
        list(on_ray().run(ray_clusters.wait_or_fail, jobs))
    assert type(caught.value) is DataError
    assert caught.value.message == "a.jsonl:7: no field 'text'"
    assert caught.value.hint == "pass --text-field body"
    assert len(read_attempts(tmp_path, 1)) == 1
    assert (tmp_path / "1.ended").exists()
    assert len(list(tmp_path.glob("?-*"))) <= 2  # nothing else began


def test_results_that_nobody_takes_are_not_waited_for(cluster: Cluster, tmp_path: Path) -> None:
    jobs = make_jobs(tmp_path, 2)
    (tmp_path / "go").touch()
    results = on_ray(num_workers=1).run(ray_clusters.wait_for_go, jobs)
    next(results)
    (tmp_path / "go").unlink()
    results.close()
    assert not (tmp_path / "1.ended").exists()


def test_killed_worker_costs_only_its_own_task(cluster: Cluster, tmp_path: Path) -> None:
    amounts: list[int] = []
    tokens: list[int] = []
    progress = Progress(on_advance=amounts.append, on_tokens=tokens.append)
    thread, found = start_collecting(ray_clusters.wait_for_go, make_jobs(tmp_path, 4), progress)
    wait_for(lambda: len(list(tmp_path.glob("?-*"))) == 2)
    number = int(next(tmp_path.glob("?-*")).name[0])
    (first,) = read_attempts(tmp_path, number)
    os.kill(first.pid, signal.SIGKILL)
    wait_for(lambda: len(list(tmp_path.glob("?-*"))) == 3)
    (tmp_path / "go").touch()
    thread.join()
    assert sorted(found) == [0, 1, 2, 3]
    attempts = {each: len(read_attempts(tmp_path, each)) for each in range(4)}
    assert attempts == {**dict.fromkeys(range(4), 1), number: 2}
    assert (sum(amounts), sum(tokens)) == (8, 80)  # the lost half is not counted


@pytest.mark.slow
def test_task_that_always_kills_its_worker_is_named(cluster: Cluster, tmp_path: Path) -> None:
    with pytest.raises(WorkerDiedError) as caught:
        list(on_ray(num_workers=1).run(ray_clusters.kill_own_worker, make_jobs(tmp_path, 2)))
    assert caught.value.message == (
        "a Ray worker or its node died 4 times while working on: job-1 (WorkerCrashedError)"
    )
    assert caught.value.hint == (
        "run the same command again with fewer workers (--num-workers 1): it continues"
    )
    assert caught.value.exit_code == 5
    assert len(read_attempts(tmp_path, 1)) == 1 + MAX_RETRIES
    assert len(read_attempts(tmp_path, 0)) == 1


@pytest.mark.slow
def test_new_node_is_used_and_a_lost_one_costs_only_its_own_tasks(
    cluster: Cluster, tmp_path: Path
) -> None:
    thread, found = start_collecting(ray_clusters.wait_for_go, make_jobs(tmp_path, 8))
    wait_for(lambda: len(list(tmp_path.glob("?-*"))) == 2)
    node = cluster.add_node(**node_options(2))
    wait_for(lambda: len(list(tmp_path.glob("?-*"))) == 4)
    lost = {
        number
        for number in range(8)
        for attempt in read_attempts(tmp_path, number)
        if attempt.node == node.node_id
    }
    assert len(lost) == 2
    cluster.remove_node(node, allow_graceful=False)
    (tmp_path / "go").touch()
    thread.join()
    assert sorted(found) == list(range(8))
    assert {n: len(read_attempts(tmp_path, n)) for n in range(8)} == {
        number: 2 if number in lost else 1 for number in range(8)
    }


def test_worker_of_another_version_is_refused(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = seqpack_cli.__version__
    monkeypatch.setattr(ray_tasks, "__version__", "9.8.7")
    with pytest.raises(MachineError) as caught:
        list(on_ray().run(math.factorial, [1]))
    assert caught.value.message == (
        f"{os.uname().nodename}: seqpack {there} is installed,"
        " expected 9.8.7 as on the machine that started the run"
    )
    assert caught.value.hint == ("on every node, in a clone of seqpack 9.8.7: pip install '.[ray]'")


def test_worker_that_cannot_read_the_task_is_told_to_have_the_same_version(
    cluster: Cluster, tmp_path: Path
) -> None:
    count = functools.partial(ray_clusters.count_bytes, ray_clusters.Foreign())
    with pytest.raises(MachineError) as caught:
        list(on_ray().run(count, make_jobs(tmp_path, 1)))
    assert caught.value.message == (
        "a Ray worker cannot load the task: AttributeError: module 'os' has no attribute"
        " 'no_such_name'"
    )
    assert caught.value.hint == (
        f"on every node, in a clone of seqpack {seqpack_cli.__version__}: pip install '.[ray]'"
    )


def test_cluster_that_gets_no_core_is_given_up(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_tasks, "WAIT_SECONDS", 0.3)
    monkeypatch.setattr(ray, "cluster_resources", dict)
    notices: list[str] = []
    tasks = on_ray(Progress(on_notice=notices.append)).run(time.sleep, [1])
    with pytest.raises(MachineError, match=r"the Ray cluster has had no CPU for 0 s"):
        list(tasks)
    assert notices == ["the Ray cluster has no CPU; waiting up to 0 s for a node"]


def test_connection_of_the_caller_is_used_and_left(cluster: Cluster) -> None:
    elsewhere = Executor("ray", "127.0.0.1:1")  # not asked, since there is a connection
    assert list(Workers(elsewhere, Progress()).run(math.factorial, [3])) == [6]
    assert ray.is_initialized()
