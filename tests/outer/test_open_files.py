"""More parts and shards than a process may have files open: 1,024 in most systems, 60 here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from command import run

NUM_FILES = 60

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


COMMANDS = f"""
import sys
from seqpack_cli.cli.main import main

for command in (
    ["inspect", sys.argv[2]],
    ["inspect", sys.argv[2], "--sequence", "{2 * NUM_FILES}"],
    ["verify", sys.argv[2], "--level", "roundtrip", "--device", "cpu"],
    ["unpack", sys.argv[2], "-o", sys.argv[2] + ".jsonl"],
):
    try:
        main(command)
    except SystemExit as end:
        assert end.code == 0, command
"""


def test_library_and_commands_read_more_files_than_may_be_open(tmp_path: Path) -> None:
    """In one process, which the limit is for; the library closes what the commands then open."""
    (tmp_path / "text.txt").write_text("".join(f"line {number}\n" for number in range(250)))
    arguments = ("tokenize", tmp_path / "text.txt", "-o", tmp_path / "store")
    assert run(*arguments, "--part-bytes", 30, "--num-workers", 1).exit_code == 0
    code = f"{LIBRARY}\ndel shards, kept, dataset, store\n{COMMANDS}"
    folders = tmp_path / "store", tmp_path / "shards"
    done = subprocess.run([sys.executable, "-c", code, *folders], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
