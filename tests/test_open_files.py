"""More parts and shards than a process may have files open: 1,024 in most systems, 60 here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from command import run

NUM_FILES = 60
pytestmark = pytest.mark.filterwarnings(
    "ignore:This process .* is multi-threaded:DeprecationWarning"
)

LIBRARY = f"""
import resource, sys
from pathlib import Path
import numpy as np
from seqpack_cli import Executor, PackOptions, ShardDataset, open_shards, open_store, pack

resource.setrlimit(resource.RLIMIT_NOFILE, ({NUM_FILES}, {NUM_FILES}))
store = open_store(sys.argv[1])
assert len(store.manifest["parts"]) > {NUM_FILES}
assert sum(map(len, store)) == store.num_tokens
assert [store.locate(index).record for index in range(len(store))] == list(range(1, len(store) + 1))
options = PackOptions(batch_size=2, shard_bytes=300)
pack(Path(sys.argv[1]), Path(sys.argv[2]), options, executor=Executor(num_workers=1))
shards = open_shards(sys.argv[2])
assert shards.num_shards > {NUM_FILES}
kept = [shards[index] for index in range(2 * {NUM_FILES})]  # a batch keeps its file mapped
assert sum(len(batch.data) for batch in shards) == store.num_tokens
dataset = ShardDataset(sys.argv[2])
assert sum(len(dataset[i].sequences.data) for i in range(len(dataset))) == store.num_tokens
"""


@pytest.fixture(scope="module")
def many_parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("many_parts")
    (folder / "text.txt").write_text("".join(f"line {number}\n" for number in range(250)))
    arguments = ("tokenize", folder / "text.txt", "-o", folder / "store")
    assert run(*arguments, "--part-bytes", 30, "--num-workers", 1).exit_code == 0
    return folder / "store"


@pytest.fixture(scope="module")
def many_shards(many_parts: Path) -> Path:
    shards = many_parts.with_name("shards")
    pack = ("pack", many_parts, "-o", shards, "--batch-size", 2, "--shard-bytes", 300)
    assert run(*pack, "--num-workers", 1).exit_code == 0
    return shards


def test_library_reads_more_files_than_may_be_open(many_parts: Path, tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", LIBRARY, many_parts, tmp_path / "shards"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


COMMANDS = f"""
import resource, sys
from seqpack_cli.cli.main import main

resource.setrlimit(resource.RLIMIT_NOFILE, ({NUM_FILES}, {NUM_FILES}))
shards, rows = sys.argv[1:]
for command in (
    ["inspect", shards],
    ["inspect", shards, "--sequence", "{2 * NUM_FILES}"],
    ["verify", shards, "--level", "roundtrip", "--device", "cpu"],
    ["unpack", shards, "-o", rows],
):
    try:
        main(command)
    except SystemExit as end:
        assert end.code == 0, command
"""


def test_commands_read_more_files_than_may_be_open(many_shards: Path, tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", COMMANDS, many_shards, tmp_path / "rows.jsonl"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
