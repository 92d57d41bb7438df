"""Clusters that `ray start` started, as the README says, and what becomes of a run when they go."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray_clusters
from command import run
from kills import count_receipts, hash_folder, write_text
from ray_clusters import Started, python, wait_for

pytest.importorskip("ray")
pytestmark = pytest.mark.slow
NUM_BYTES = 1_000_000
BROKEN = (
    "Error: lost the connection to the Ray cluster: its node or its head node is gone\n\n"
    "hint: run the same command again when 'ray status' answers: it continues\n"
)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("text") / "text.txt", NUM_BYTES)


@pytest.fixture(scope="module")
def store(text: Path) -> Path:
    """The store of a local run."""
    assert run(*tokenize(text, text.with_name("store"))).exit_code == 0
    return text.with_name("store")


def tokenize(text: Path, output: Path) -> list[str]:
    return ["tokenize", str(text), "-o", str(output), "--part-bytes", "10KB"]


@contextlib.contextmanager
def start(cluster: Started, *arguments: object, address: str) -> Iterator[subprocess.Popen[str]]:
    """Run a command in the environment of a cluster; what has not ended is killed."""
    with subprocess.Popen(
        python(*arguments, "--executor", "ray", "--ray-address", address),
        env=cluster.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_cluster_that_wants_a_token_is_used(text: Path, store: Path, tmp_path: Path) -> None:
    """By every kind of address; and one without a CPU is named, and waited for."""
    tokens, shards = tmp_path / "tokens", tmp_path / "shards"
    with ray_clusters.started_cluster("--num-cpus=0", has_token=True) as cluster:
        with start(cluster, *tokenize(text, tokens), address="auto") as process:
            assert process.stderr is not None
            note = process.stderr.readline()
            assert note == "note: the Ray cluster has no CPU; waiting up to 600 s for a node\n"
            cluster.add_node("--num-cpus=1")
            assert process.communicate(timeout=60)[1] == ""
        assert process.returncode == 0
        assert hash_folder(tokens) == hash_folder(store)
        with start(cluster, "pack", tokens, "-o", shards, address=cluster.address) as process:
            assert process.communicate(timeout=60)[1] == ""
        assert process.returncode == 0
        check_other_token(cluster, text, tmp_path / "other")
    assert run("pack", tokens, "-o", tmp_path / "local").exit_code == 0
    assert hash_folder(shards) == hash_folder(tmp_path / "local")


def check_other_token(cluster: Started, text: Path, output: Path) -> None:
    """Another token than the cluster's is named, and nothing begun."""
    cluster.environment["RAY_AUTH_TOKEN"] = "other"  # noqa: S105
    with start(cluster, *tokenize(text, output), address=cluster.address) as process:
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 5
    assert stderr == (
        f"Error: {cluster.address}: the Ray cluster requires a token and refuses the one found here"
        "\n\nhint: set RAY_AUTH_TOKEN to what 'ray get-auth-token' prints on its head node,"
        " and RAY_AUTH_MODE=token\n"
    )
    assert not output.exists()


def test_cluster_that_wants_no_token_is_not_given_one(
    text: Path, tmp_path: Path, sample_data: Path
) -> None:
    """Ray's own search gives it, and its nodes then cannot fetch from the driver."""
    tokenizer = tmp_path / "tokenizer.json"  # too large to go with each task
    tokenizer.write_bytes((sample_data / "tokenizer.json").read_bytes() + b" " * 1_000_000)
    command = [*tokenize(text, tmp_path / "out"), "--tokenizer", tokenizer]
    with ray_clusters.started_cluster("--num-cpus=1", has_token=False) as cluster:
        cluster.add_node("--num-cpus=1")
        (cluster.folder / "home" / ".ray").mkdir(parents=True)
        (cluster.folder / "home" / ".ray" / "auth_token").write_text("ab" * 32)
        with start(cluster, *command, address="auto") as process:
            _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (0, "")


@pytest.mark.parametrize("name", ["raylet", "gcs_server"])
def test_killed_cluster_ends_the_run_which_continues(
    text: Path, store: Path, tmp_path: Path, name: str
) -> None:
    tokens = tmp_path / "tokens"
    with (
        ray_clusters.started_cluster("--num-cpus=1", has_token=False) as cluster,
        start(cluster, *tokenize(text, tokens), address="auto") as process,
    ):
        wait_for(lambda: count_receipts(tokens) >= 3)
        os.kill(cluster.find_process(name), signal.SIGKILL)
        stdout, stderr = process.communicate(timeout=120)
    assert (process.returncode, stdout, stderr) == (5, "", BROKEN)
    again = run(*tokenize(text, tokens))
    assert again.exit_code == 0
    assert "parts were already finished" in again.stderr
    assert hash_folder(tokens) == hash_folder(store)
