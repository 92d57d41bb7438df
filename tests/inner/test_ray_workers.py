"""`tokenize` and `pack` on a real Ray cluster: the bytes of a local run, whatever is killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray_clusters
from command import run
from kills import count_receipts, hash_folder, write_text
from ray.cluster_utils import Cluster
from ray_clusters import python, wait_for
from test_split_run import read_tree

from seqpack_cli.runs.executor import Executor

NUM_BYTES = 1_500_000
NUM_PARTS = 30
RAY = ("--executor", "ray")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("text") / "text.txt", NUM_BYTES)


@pytest.fixture(scope="module")
def store(text: Path, sample_data: Path) -> Path:
    """The store of a local run."""
    assert run(*tokenize(text, sample_data, text.with_name("store"))).exit_code == 0
    return text.with_name("store")


def tokenize(text: Path, sample_data: Path, output: Path) -> list[str]:
    """Return the arguments of a run of many parts that takes seconds."""
    tokenizer = str(sample_data / "tokenizer.json")
    return [
        *("tokenize", str(text), "-o", str(output), "--tokenizer", tokenizer),
        *("--encoder", "tokenizers", "--part-bytes", str(NUM_BYTES // NUM_PARTS)),
    ]


@contextlib.contextmanager
def running(arguments: list[str]) -> Iterator[subprocess.Popen[str]]:
    """Run the program in a process of its own."""
    with subprocess.Popen(
        python(*arguments),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for_receipts(process: subprocess.Popen[str], output: Path, num_receipts: int) -> None:
    """Wait until a run has finished some parts; it must not have ended."""
    wait_for(lambda: count_receipts(output) >= num_receipts or process.poll() is not None)
    assert process.poll() is None, process.stderr.read() if process.stderr else ""


# The same bytes


def test_tokenize_gives_the_bytes_of_a_local_run(
    cluster: Cluster, text: Path, store: Path, sample_data: Path, tmp_path: Path
) -> None:
    result = run(*tokenize(text, sample_data, tmp_path / "store"), *RAY)
    assert result.exit_code == 0
    assert hash_folder(tmp_path / "store") == hash_folder(store)
    assert f"{NUM_PARTS} parts" in result.stdout
    again = run(*tokenize(text, sample_data, tmp_path / "store"), *RAY)
    assert "already complete" in again.stdout


def test_columns_prompts_and_pieces_are_those_of_a_local_run(
    cluster: Cluster, tmp_path: Path
) -> None:
    """What else is read from a record, and what a store keeps of it for pack."""
    records = [
        {
            **{"q": f"{number} ", "a": f"text {number} " * (number % 5), "of": "ßaZ"[number // 40]},
            **{"score": number / 3, "number": number - 2**62},
        }
        for number in range(120)
    ]
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps(record) + "\n" for record in records))
    fields = ("--prompt-field", "q", "--completion-field", "a", "--keep", "of:class")
    fields += ("--keep", "score:float", "--keep", "number")
    sizes = ("--max-length", 16, "--overlap", 3, "--part-bytes", 900)
    selection = ("--where", "score > 3", "--shard-bytes", 900)
    for name, how in (("here", ("--num-workers", 1)), ("ray", RAY)):
        folder = tmp_path / name
        made = run("tokenize", corpus, *fields, *sizes, "-o", folder / "store", *how)
        assert made.exit_code == 0, made.stderr
        made = run("pack", folder / "store", *selection, "-o", folder / "shards", *how)
        assert made.exit_code == 0, made.stderr
    found, expected = (read_tree(tmp_path / name) for name in ("ray", "here"))
    assert found == expected
    assert sum(name.endswith(".columns.safetensors") for name in found) > 3
    assert sum("shards/shard-" in name for name in found) > 2


def test_import_gives_the_bytes_of_a_local_run(
    cluster: Cluster, store: Path, tmp_path: Path
) -> None:
    """A part of a store is an indexed dataset."""
    (tmp_path / "in").mkdir()
    for path in (*store.glob("*.bin"), *store.glob("*.idx")):
        (tmp_path / "in" / path.name).write_bytes(path.read_bytes())
    arguments = ["import", tmp_path / "in", "--vocab-size", 65_536, "--part-bytes", "30KB"]
    assert run(*arguments, "-o", tmp_path / "local").exit_code == 0
    assert run(*arguments, "-o", tmp_path / "ray", *RAY).exit_code == 0
    assert hash_folder(tmp_path / "ray") == hash_folder(tmp_path / "local")
    assert len(list((tmp_path / "ray").glob("part-*.bin"))) > 3


@pytest.mark.parametrize(
    "options",
    [
        ("--batch-size", "8", "--where", "@length != 9"),
        ("--layout", "padded", "--shuffle", "--window", "512", "--max-tokens", "4096"),
        ("--layout", "varlen", "--max-tokens", "512"),
        ("--batch-size", "8", "--decoder"),
    ],
    ids=["packed", "padded", "varlen", "pairs"],
)
def test_pack_gives_the_bytes_of_a_local_run(
    cluster: Cluster, store: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    both = [str(store)] if options[-1] == "--decoder" else []
    arguments = ["pack", str(store), "--shard-bytes", "200KB", *options, *both]
    assert run(*arguments, "-o", tmp_path / "local").exit_code == 0
    assert run(*arguments, "-o", tmp_path / "ray", *RAY).exit_code == 0
    assert hash_folder(tmp_path / "ray") == hash_folder(tmp_path / "local")
    assert len(list((tmp_path / "ray").glob("shard-*"))) > 3


@pytest.mark.parametrize(
    "options",
    [
        pytest.param("--passes a=2.5,b=0.3 --shuffle --window 256", id="passes"),
        pytest.param(
            "--share a=0.5,b=0.1,c=0.1,d=rest --max-passes 1.5 --layout padded",
            id="shares",
            marks=pytest.mark.slow,
        ),
        pytest.param(  # less than one pass
            "--share a=0.1,b=0.1,c=0.1,d=rest --store-column source",
            id="fractions",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_split_mix_of_stores_is_the_same_anywhere(
    cluster: Cluster, text: Path, tmp_path: Path, options: str
) -> None:
    lines = text.read_text().splitlines(keepends=True)
    for number, name in enumerate("abcd"):
        (tmp_path / f"{name}.txt").write_text("".join(lines[number : 4000 * (number + 1) : 5]))
        tokenizing = ("tokenize", tmp_path / f"{name}.txt", "--part-bytes", "20KB")
        assert run(*tokenizing, "-o", tmp_path / name, "--num-workers", 1).exit_code == 0
    split = ("--split", "train=0.7,validation=0.2,test=rest", "--split-seed", 4)
    packing = ("pack", *(tmp_path / name for name in "abcd"), "--shard-bytes", "50KB", *split)
    found = []
    for name, how in (("1", ("--num-workers", 1)), ("2", ("--num-workers", 2)), ("ray", RAY)):
        result = run(*packing, *options.split(), *how, "-o", tmp_path / f"out {name}")
        assert result.exit_code == 0, result.stderr
        found.append(read_tree(tmp_path / f"out {name}"))
    assert found[0] == found[1] == found[2]
    assert sum("shard-" in name for name in found[0]) > 8
    repeated = json.loads(found[0]["train/manifest.json"])["ledger"]["num_repeated_sequences"]
    assert (repeated > 0) == ("a=2.5,b=0.3" in options or "passes 1.5" in options)


def test_encoder_is_given_up_for_the_whole_run_as_locally(
    cluster: Cluster, text: Path, store: Path, sample_data: Path, tmp_path: Path
) -> None:
    """What fastokens refuses, or does otherwise, workers say as their local brothers do."""
    pytest.importorskip("fastokens")
    arguments = tokenize(text, sample_data, tmp_path / "store")
    arguments[arguments.index("tokenizers")] = "auto"
    assert run(*arguments, *RAY).exit_code == 0
    assert hash_folder(tmp_path / "store") == hash_folder(store)


# Errors


def test_bad_record_ends_the_run_with_the_words_of_a_local_one(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [json.dumps({"text": f"line {number}"}) for number in range(1000)]
    lines[700] = '{"body": 1}'
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    monkeypatch.chdir(tmp_path)  # the name is relative, and stays so
    result = run("tokenize", "a.jsonl", "-o", "store", "--part-bytes", "5000", *RAY)
    assert result.exit_code == 3
    assert result.stderr == (
        "Error: a.jsonl:701: no field 'text' (found: 'body')\n\n"
        "hint: fix the record and add --overwrite, or pass --on-bad-record skip\n"
    )
    assert not (tmp_path / "store" / "manifest.json").exists()


def test_changed_input_of_a_finished_part_is_named(cluster: Cluster, tmp_path: Path) -> None:
    text = tmp_path / "a.txt"
    text.write_text("one line\n" * 1000)
    arguments = ["tokenize", text, "-o", tmp_path / "store", "--part-bytes", "2000", *RAY]
    assert run(*arguments).exit_code == 0
    with text.open("r+") as file:
        file.write("two")
    result = run(*arguments)
    assert result.exit_code == 4
    assert f"Error: {tmp_path / 'store'}: {text} changed since this run began" in result.stderr


def test_without_ray_it_is_an_error_of_the_machine_before_anything_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("a\n")
    monkeypatch.setitem(sys.modules, "ray", None)
    result = run("tokenize", tmp_path / "a.txt", "-o", tmp_path / "store", *RAY)
    assert result.exit_code == 5
    assert result.stderr == (
        "Error: ray is not installed, --executor ray needs it\n\nhint: pip install ray\n"
    )
    assert not (tmp_path / "store").exists()
    assert Executor().name == "local"  # which needs no Ray


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1:1",
        pytest.param("nonsense", marks=pytest.mark.slow),
        pytest.param("ray://127.0.0.1:1", marks=pytest.mark.slow),
    ],
)
def test_address_where_nobody_answers_is_said_soon(tmp_path: Path, address: str) -> None:
    (tmp_path / "a.txt").write_text("a\n")
    arguments = ["tokenize", str(tmp_path / "a.txt"), "-o", str(tmp_path / "store"), *RAY]
    done = subprocess.run(
        python(*arguments, "--ray-address", address), capture_output=True, text=True, timeout=40
    )
    assert done.returncode == 5
    assert done.stderr == (
        f"Error: {address}: no Ray cluster answers\n\n"
        "hint: pass the host:port that 'ray start --head' prints, or leave out --ray-address\n"
    )


def test_address_without_ray_is_a_usage_error(tmp_path: Path) -> None:
    for command in (("tokenize", "a.txt"), ("pack", "store")):
        result = run(*command, "-o", tmp_path / "out", "--ray-address", "127.0.0.1:6379")
        assert result.exit_code == 2
        assert "--ray-address needs --executor ray" in result.stderr


# Kills


@pytest.mark.slow  # test_ray_tasks.py has it of a task
def test_killed_worker_costs_its_part_and_not_the_run(
    cluster: Cluster, text: Path, store: Path, sample_data: Path, tmp_path: Path
) -> None:
    output = tmp_path / "store"
    arguments = [*tokenize(text, sample_data, output), *RAY, "--ray-address", cluster.address]
    with running(arguments) as process:
        wait_for_receipts(process, output, 3)
        made = [path.with_suffix(".bin") for path in output.glob("part-*.json")]  # and published
        finished = {path: path.stat().st_mtime_ns for path in made}
        os.kill(wait_for_worker(), signal.SIGKILL)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 0, stderr
    remade = [path for path, then in finished.items() if path.stat().st_mtime_ns != then]
    assert len(remade) <= 1  # the worker's own, if it died between its receipt and its answer
    assert hash_folder(output) == hash_folder(store)


def wait_for_worker() -> int:
    """Wait until a worker of the cluster does a task."""
    found: list[int] = []

    def look() -> bool:
        processes = ray_clusters.list_processes(Path(os.environ["RAY_TMPDIR"]))
        found.extend(pid for pid, called in processes.items() if called == "ray::_call")
        return bool(found)

    wait_for(look)
    return found[0]


@pytest.mark.parametrize("first", ["ray", pytest.param("local", marks=pytest.mark.slow)])
def test_killed_run_continues_with_the_other_executor(
    cluster: Cluster, text: Path, store: Path, sample_data: Path, tmp_path: Path, first: str
) -> None:
    output = tmp_path / "store"
    local = tokenize(text, sample_data, output)
    on_ray = [*local, *RAY, "--ray-address", cluster.address]
    with running(on_ray if first == "ray" else local) as process:
        wait_for_receipts(process, output, 3)
        process.kill()
        process.communicate()
    num_finished = count_receipts(output)
    result = run(*(local if first == "ray" else on_ray))
    assert result.exit_code == 0
    assert "parts were already finished" in result.stderr
    assert 3 <= num_finished < NUM_PARTS
    assert hash_folder(output) == hash_folder(store)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_cluster_that_a_run_started_ends_with_it(
    text: Path, sample_data: Path, tmp_path: Path, number: signal.Signals
) -> None:
    """It is started where one that was killed left its address, which is not waited for."""
    output = tmp_path / "store"
    with ray_clusters.ray_folder() as folder:
        (folder / "ray").mkdir()
        (folder / "ray" / "ray_current_cluster").write_text("127.0.0.1:1")
        arguments = [*tokenize(text, sample_data, output), *RAY, "--num-workers", "1"]
        with running(arguments) as process:
            wait_for_receipts(process, output, 1)
            assert len(ray_clusters.list_processes(folder)) > 3
            process.send_signal(number)
            _, stderr = process.communicate(timeout=60)
        assert ray_clusters.wait_until_gone(folder) == []
    if number == signal.SIGKILL:
        assert process.returncode == -number
    else:
        assert process.returncode == 130, stderr
        assert stderr == "\nInterrupted: run the same command again\n"


@pytest.mark.parametrize("num_times", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_interrupted_run_leaves_nothing_half_written(
    cluster: Cluster, text: Path, sample_data: Path, tmp_path: Path, num_times: int
) -> None:
    output = tmp_path / "store"
    arguments = [*tokenize(text, sample_data, output), *RAY, "--ray-address", cluster.address]
    with running(arguments) as process:
        wait_for(lambda: any(output.glob(".part-*.tmp")) or process.poll() is not None)
        for _ in range(num_times):
            process.send_signal(signal.SIGINT)
            time.sleep(0.1)
        _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (130, "\nInterrupted: run the same command again\n")
    if num_times == 1:
        assert list(output.glob(".*")) == []


@pytest.mark.slow
def test_cluster_that_runs_here_is_found(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one line\n" * 1000)
    arguments = ["tokenize", str(tmp_path / "a.txt"), *RAY, "-o", str(tmp_path / "store")]
    folder = Path(os.environ["RAY_TMPDIR"])
    num_sessions = len([*(folder / "ray").glob("session_2*")])
    with running(arguments) as process:
        _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (0, "")
    assert len([*(folder / "ray").glob("session_2*")]) == num_sessions  # none was started
