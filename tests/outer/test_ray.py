"""`--executor ray` as docs/scale.md says, on clusters that `ray start` starts on this machine."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("ray")
ROOT = Path(__file__).parents[2]
LIMIT_SECONDS = 90
# How soon a cluster notices that a node is gone; 15 s by default.
SOON = {"RAY_health_check_period_ms": "300", "RAY_health_check_failure_threshold": "3"}
SOON |= {"RAY_gcs_rpc_server_reconnect_timeout_s": "5"}  # 60 by default
LOST = (
    "Error: lost the connection to the Ray cluster: its node or its head node is gone\n\n"
    "hint: run the same command again when 'ray status' answers: it continues\n"
)
INTERRUPTED = "\nInterrupted: run the same command again\n"


@dataclass(frozen=True)
class Machine:
    """A folder that Ray uses as /tmp, with a home folder, so that it meets no other cluster."""

    folder: Path
    environment: dict[str, str]

    @property
    def address(self) -> str:
        return (self.folder / "ray" / "ray_current_cluster").read_text()

    def start_ray(self, *options: str, **environment: str) -> None:
        """Run `ray start`."""
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", *options]
        with (self.folder / "start.log").open("a") as log:  # a pipe would stay open
            done = subprocess.run(
                command, env={**self.environment, **environment}, stdout=log, stderr=log
            )
        assert done.returncode == 0, (self.folder / "start.log").read_text()

    @contextlib.contextmanager
    def start(self, *arguments: object, **environment: str) -> Iterator[subprocess.Popen[str]]:
        """Run seqpack; what has not ended is killed."""
        with subprocess.Popen(
            [sys.executable, "-m", "seqpack_cli", *map(str, arguments)],
            env={**self.environment, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def run(self, *arguments: object, **environment: str) -> tuple[int, str]:
        """Run seqpack; return the exit code and stderr."""
        with self.start(*arguments, **environment) as process:
            stderr = process.communicate(timeout=LIMIT_SECONDS)[1]
        return process.returncode, stderr

    def list_processes(self) -> dict[int, str]:
        """Return the living processes with the folder in their environment, the oldest first.

        Their numbers do not say which is older: they begin again after the largest one.
        """
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):  # it may have ended
                mark = f"RAY_TMPDIR={self.folder}\0".encode()
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes():
                    called = (entry / "cmdline").read_text(errors="replace").rstrip("\0")
                    started = int((entry / "stat").read_text().rpartition(")")[2].split()[19])
                    found.append((started, int(entry.name), called.replace("\0", " ")))
        return {pid: called for _, pid, called in sorted(found)}

    def kill(self, name: str, *, which: int = 0) -> None:
        """Kill the oldest process of a name, or another one, when there is one."""
        found: list[int] = []

        def look() -> bool:
            names = {pid: called.split(" ")[0] for pid, called in self.list_processes().items()}
            found.extend(pid for pid, called in names.items() if name in called)
            return bool(found)

        wait_for(look)
        os.kill(found[which], signal.SIGKILL)


@contextlib.contextmanager
def new_machine() -> Iterator[Machine]:
    """Yield a new folder for Ray; end everything that was started there."""
    folder = Path(tempfile.mkdtemp(prefix="ray-"))  # short: a socket's path has 107 bytes at most
    environment = {**os.environ, **SOON, "RAY_TMPDIR": str(folder), "HOME": str(folder / "home")}
    environment |= {"PYTHONPATH": str(ROOT)}
    for name in ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        environment.pop(name, None)
    (folder / "home" / ".ray").mkdir(parents=True)
    machine = Machine(folder, environment)
    try:
        yield machine
    finally:
        for pid in machine.list_processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        subprocess.run(["rm", "-rf", folder], check=False)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Machine]:
    """A cluster of two nodes, one core each, without a token."""
    with new_machine() as machine:
        machine.start_ray("--head", "--port=0", "--include-dashboard=false", "--num-cpus=1")
        machine.start_ray("--address", machine.address, "--num-cpus=1")
        yield machine


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    lines = (f"line {number} " + "word " * (number % 50) for number in range(12_000))
    (folder / "text.txt").write_text("\n".join(lines))
    return folder / "text.txt"


@pytest.fixture(scope="module")
def store(text: Path, cluster: Machine) -> dict[str, str]:
    """The store of a local run."""
    assert cluster.run(*tokenize(text, text.with_name("store"))) == (0, "")
    return hash_folder(text.with_name("store"))


def tokenize(text: Path, output: Path) -> list[object]:
    """Return the arguments of a run of some seconds, with many parts."""
    tokenizer = ROOT / "sample_data" / "tokenizer.json"
    options = ["--tokenizer", tokenizer, "--encoder", "tokenizers", "--part-bytes", "20KB"]
    return ["tokenize", text, "-o", output, *options]


def on_ray(arguments: list[object], address: str = "auto") -> list[object]:
    return [*arguments, "--executor", "ray", "--ray-address", address]


def hash_folder(folder: Path) -> dict[str, str]:
    """Return the digests of all files but run.json, which says how the run was done."""
    return {
        str(path.relative_to(folder)): hashlib.blake2b(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "run.json"
    }


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def wait_for_receipts(process: subprocess.Popen[str], output: Path) -> None:
    """Wait until some parts are finished; the run must not have ended."""
    wait_for(lambda: len([*output.glob("part-*.json")]) >= 3 or process.poll() is not None)
    assert process.poll() is None, process.communicate()


def test_the_commands_of_the_page_work_as_typed(
    cluster: Machine, text: Path, store: dict[str, str], tmp_path: Path
) -> None:
    """With paths of this machine; `ray start` has been typed."""
    page = (ROOT / "docs" / "scale.md").read_text()
    block = re.search(r"```sh\nray start --head .*?\n(.*?)```", page, re.DOTALL)
    assert block is not None
    commands = block[1].replace("'s3://corpus/**/*.jsonl.zst'", f"'{text.parent}/*.txt'")
    commands = commands.replace("gpt2.json", str(ROOT / "sample_data" / "tokenizer.json"))
    commands = commands.replace("s3://data", str(tmp_path))
    lines = [shlex.split(line) for line in commands.splitlines()]
    assert [line[:2] for line in lines] == [
        ["seqpack", name] for name in ("tokenize", "pack", "verify")
    ]
    for line in lines:
        assert cluster.run(*line[1:]) == (0, "")
    local = [tmp_path / "tokens", "--shard-bytes", "512MiB", "--window", "500000"]
    assert cluster.run("pack", *local, "-o", tmp_path / "local") == (0, "")
    assert hash_folder(tmp_path / "shards") == hash_folder(tmp_path / "local")


def test_pack_gives_the_bytes_of_a_local_run(
    cluster: Machine, text: Path, store: dict[str, str], tmp_path: Path
) -> None:
    """Lengths are counted by workers, and shards written by them, one split after the other."""
    del store
    options = "--passes store=1.5 --split train=0.9,test=rest"
    arguments = ["pack", text.with_name("store"), "--shard-bytes", "200KB", *options.split(), "-o"]
    assert cluster.run(*arguments, tmp_path / "local") == (0, "")
    assert cluster.run(*on_ray([*arguments, tmp_path / "ray"])) == (0, "")
    assert hash_folder(tmp_path / "ray") == hash_folder(tmp_path / "local")
    assert len([*(tmp_path / "ray").rglob("shard-*")]) > 3


def test_a_bad_record_is_told_in_the_words_of_a_local_run(cluster: Machine, tmp_path: Path) -> None:
    lines = [f'{{"text": "line {number}"}}\n' for number in range(1000)]
    lines[700] = '{"body": 1}\n'
    (tmp_path / "a.jsonl").write_text("".join(lines))
    arguments = ["tokenize", tmp_path / "a.jsonl", "--part-bytes", "5000", "-o"]
    there, here = (tmp_path / name for name in ("there", "here"))
    code, stderr = cluster.run(*on_ray([*arguments, there]))
    assert (code, stderr) == cluster.run(*arguments, here)
    assert code == 3
    assert "a.jsonl:701: no field 'text' (found: 'body')" in stderr


def test_a_killed_worker_costs_its_part_and_not_the_run(
    cluster: Machine, text: Path, store: dict[str, str], tmp_path: Path
) -> None:
    output = tmp_path / "store"
    with cluster.start(*on_ray(tokenize(text, output))) as process:
        wait_for_receipts(process, output)
        made = {path: path.stat().st_mtime_ns for path in output.glob("part-*.bin")}
        cluster.kill("ray::_call")
        stderr = process.communicate(timeout=LIMIT_SECONDS)[1]
    assert (process.returncode, stderr) == (0, "")
    assert hash_folder(output) == store
    assert len([path for path, then in made.items() if path.stat().st_mtime_ns != then]) <= 1


def check_continued(ended: tuple[int, str], output: Path, store: dict[str, str]) -> None:
    """Assert that a run kept what an earlier one had finished, and made the rest."""
    code, stderr = ended
    assert code == 0
    assert "parts were already finished" in stderr
    assert hash_folder(output) == store


def test_an_interrupted_run_leaves_nothing_half_written_and_continues(
    cluster: Machine, text: Path, store: dict[str, str], tmp_path: Path
) -> None:
    output = tmp_path / "store"
    with cluster.start(*on_ray(tokenize(text, output))) as process:
        wait_for_receipts(process, output)
        wait_for(lambda: [*output.glob(".part-*.tmp")] or process.poll() is not None)
        process.send_signal(signal.SIGINT)
        stderr = process.communicate(timeout=LIMIT_SECONDS)[1]
    assert (process.returncode, stderr) == (130, INTERRUPTED)
    assert [*output.glob(".*")] == []
    check_continued(cluster.run(*tokenize(text, output)), output, store)


def test_a_lost_node_costs_its_parts_and_not_the_run(
    cluster: Machine, text: Path, store: dict[str, str], tmp_path: Path
) -> None:
    output = tmp_path / "store"
    with cluster.start(*on_ray(tokenize(text, output))) as process:
        wait_for_receipts(process, output)
        cluster.kill("raylet", which=-1)
        stderr = process.communicate(timeout=LIMIT_SECONDS)[1]
    assert (process.returncode, stderr) == (0, "")
    assert hash_folder(output) == store


@pytest.mark.parametrize("name", ["raylet", "gcs_server"])
def test_a_killed_node_ends_the_run_which_continues(
    text: Path, store: dict[str, str], tmp_path: Path, name: str
) -> None:
    output = tmp_path / "store"
    with new_machine() as machine:
        machine.start_ray("--head", "--port=0", "--include-dashboard=false", "--num-cpus=1")
        with machine.start(*on_ray(tokenize(text, output))) as process:
            wait_for_receipts(process, output)
            machine.kill(name)
            stdout, stderr = process.communicate(timeout=LIMIT_SECONDS)
        assert (process.returncode, stdout, stderr) == (5, "", LOST)
        check_continued(machine.run(*tokenize(text, output)), output, store)


def test_a_cluster_with_a_token(text: Path, store: dict[str, str], tmp_path: Path) -> None:
    """And without a core at first: that is told, and one waited for."""
    token = {"RAY_AUTH_MODE": "token"}
    with new_machine() as machine:
        (machine.folder / "home" / ".ray" / "auth_token").write_text(uuid.uuid4().hex * 2)
        machine.start_ray("--head", "--port=0", "--include-dashboard=false", "--num-cpus=0")
        with machine.start(*on_ray(tokenize(text, tmp_path / "out"))) as process:
            assert process.stderr is not None
            note = process.stderr.readline()
            assert note == "note: the Ray cluster has no CPU; waiting up to 600 s for a node\n"
            machine.start_ray("--address", machine.address, "--num-cpus=1", **token)
            assert process.communicate(timeout=LIMIT_SECONDS)[1] == ""
        assert process.returncode == 0
        assert hash_folder(tmp_path / "out") == store
        by_address = on_ray(tokenize(text, tmp_path / "out"), machine.address)
        assert machine.run(*by_address, **token) == (0, "")
        other = on_ray(tokenize(text, tmp_path / "other"), machine.address)
        assert machine.run(*other, **token, RAY_AUTH_TOKEN="ab" * 32) == (
            5,
            f"Error: {machine.address}: cannot connect to Ray: Failed to connect to Ray cluster at"
            f" {machine.address}\n\nhint: set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN"
            " ('ray get-auth-token' on the head node prints it)\n",
        )
        assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nonsense"])
def test_an_address_where_nobody_answers_is_told_soon(
    text: Path, tmp_path: Path, address: str
) -> None:
    with new_machine() as machine:
        assert machine.run(*on_ray(tokenize(text, tmp_path / "out"), address)) == (
            5,
            f"Error: {address}: no Ray cluster answers\n\nhint: pass the host:port that"
            " 'ray start --head' prints, or leave out --ray-address\n",
        )
    assert not (tmp_path / "out").exists()


def test_a_cluster_that_a_run_started_ends_with_it(text: Path, tmp_path: Path) -> None:
    """It is started where a killed one left its address."""
    with new_machine() as machine:
        (machine.folder / "ray").mkdir()
        (machine.folder / "ray" / "ray_current_cluster").write_text("127.0.0.1:1")
        arguments = [*tokenize(text, tmp_path / "out"), "--executor", "ray", "--num-workers", "1"]
        with machine.start(*arguments) as process:
            wait_for_receipts(process, tmp_path / "out")
            process.kill()
            process.communicate()
        wait_for(lambda: all("Agent" in called for called in machine.list_processes().values()))
