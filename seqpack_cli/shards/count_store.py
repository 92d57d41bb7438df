"""Check the indices of a store and count its lengths, in parallel tasks.

Each task returns a histogram, a few kilobytes for millions of sequences. The length order, and
where its batches are cut, follow from the sum of the histograms.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from seqpack_cli.batching.length_counts import join_counts
from seqpack_cli.files.copy_marks import find_began, hashing_copies
from seqpack_cli.files.url import Place
from seqpack_cli.runs.workers import Workers
from seqpack_cli.shards.pack_shard import open_store_once
from seqpack_cli.shards.selected_store import SelectedCounts, SelectedStore

PARTS_PER_TASK = 16  # some seconds of reading, for which a worker has to open the store


@dataclass(frozen=True)
class CountTask:
    """The parts of a store whose lengths one task counts."""

    first_part: int
    last_part: int

    def __str__(self) -> str:
        return f"parts {self.first_part} to {self.last_part - 1}"


def count_store(source: SelectedStore, workers: Workers) -> SelectedCounts:
    """Check every index of a store and count its lengths, in parallel tasks.

    Raises:
        FolderError: an index is missing or damaged.
    """
    store = source.store
    opened = (store.path.resolve(), store.digest, find_began(), source.where)
    count = functools.partial(count_parts, *opened)
    num_parts = len(store.manifest["parts"])
    tasks = [
        CountTask(first, min(first + PARTS_PER_TASK, num_parts))
        for first in range(0, num_parts, PARTS_PER_TASK)
    ]
    kept, left_out = zip(*workers.run(count, tasks), strict=True)
    return SelectedCounts(join_counts(kept), join_counts(left_out) if source.where else None)


def count_parts(
    path: Place, checksum: str, began: int | None, where: tuple[str, ...], task: CountTask
) -> SelectedCounts:
    """Check the indices of some parts and count their lengths."""
    with hashing_copies(began):
        source = open_store_once(path, checksum, began, where)
        source.store.check_indices(task.first_part, task.last_part)
        return source.count(task.first_part, task.last_part)
