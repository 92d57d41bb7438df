"""Check the indices of a store and count its lengths, in parallel tasks.

Each task returns a histogram, a few kilobytes for millions of sequences. The length order, and
where its batches are cut, follow from the sum of the histograms.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from seqpack_cli.batching.selection import SourceCounts
from seqpack_cli.limits import LIMITS
from seqpack_cli.runs.workers import Workers
from seqpack_cli.shards.selection import SelectedStore
from seqpack_cli.shards.source_setup import SourceSetup, open_source


@dataclass(frozen=True)
class CountTask:
    """The parts of a store whose lengths one task counts."""

    first_part: int
    last_part: int

    def __str__(self) -> str:
        return f"parts {self.first_part} to {self.last_part - 1}"


def count_store(source: SelectedStore, opened: SourceSetup, workers: Workers) -> SourceCounts:
    """Check every index of a store and count its lengths, in parallel tasks.

    Args:
        opened: how a worker opens the source.

    Raises:
        FolderError: an index is missing or damaged.
    """
    num_parts, size = source.store.num_parts, LIMITS.parts_per_task
    tasks = [CountTask(first, min(first + size, num_parts)) for first in range(0, num_parts, size)]
    return SourceCounts.join(list(workers.run(functools.partial(count_parts, opened), tasks)))


def count_parts(opened: SourceSetup, task: CountTask) -> SourceCounts:
    """Check the indices of some parts and count their lengths."""
    source = open_source(opened)
    source.store.check_indices(task.first_part, task.last_part)
    return source.count(task.first_part, task.last_part)
