"""Count the targets of a token store or of shards: all of them, and the share in each row.

Targets are read part by part and shard by shard, without padding, and added up row by row: 600
million tokens/s of a store, 60 million of packed shards, whose rows are gathered.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from seqpack_cli.files.mapping import let_pages_go
from seqpack_cli.limits import LIMITS
from seqpack_cli.ranges import to_offsets
from seqpack_cli.reporting.opened import Opened, name_entry
from seqpack_cli.shards.shard import Shard
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.tokens.columns import TARGETS, Column

NUM_BINS = 10  # of the shares of rows


def count_targets(opened: Opened, column: Column) -> dict[str, Any]:
    """Count targets, rows without one, and rows by their share of targets.

    A row is a sequence of a store, or a row of shards. `shares` has NUM_BINS bins, each without its
    end but the last.

    Raises:
        FolderError: the column or a batch is damaged.
    """
    num_tokens = num_targets = num_rows = num_without = 0
    bins = np.zeros(NUM_BINS, np.int64)
    for counts, lengths in _iter_rows(opened, column):
        num_tokens += int(lengths.sum(dtype=np.int64))
        num_targets += int(counts.sum())
        num_rows += len(counts)
        num_without += int(np.count_nonzero(counts == 0))
        places = np.minimum(counts * NUM_BINS // lengths, NUM_BINS - 1)
        bins += np.bincount(places, minlength=NUM_BINS)
    return {
        "num_values": num_tokens,
        "num_targets": num_targets,
        "share": measure_share(num_targets, num_tokens),
        "row": name_entry(opened),
        "num_rows": num_rows,
        "num_rows_without": num_without,
        "shares": [
            {"from": place / NUM_BINS, "to": (place + 1) / NUM_BINS, "count": number}
            for place, number in enumerate(bins.tolist())
        ],
    }


def count_targets_of_batches(shards: ShardSet) -> np.ndarray:
    """Count the targets of each batch of shards that have a column of them, int64[batches]."""
    column = shards.columns[TARGETS]
    counts = [np.empty(0, np.int64)]
    for number in range(shards.num_shards):
        tensors = shards.open_shard(number).tensors
        values, starts = tensors[column.tensor_name], tensors["data_offsets"][:-1]
        counts.append(_add_up(values, starts))  # padding is 0
        let_pages_go(values)
    return np.concatenate(counts)


def measure_share(num_targets: int, num_tokens: int) -> float:
    """Return the share of targets; only all tokens are 1, only none are 0."""
    share = round(num_targets / max(num_tokens, 1), 6)
    return share if num_targets in (0, num_tokens) else min(max(share, 1e-6), 1 - 1e-6)


def _iter_rows(opened: Opened, column: Column) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the number of targets, int64, and of tokens of the rows of each part or shard."""
    if isinstance(opened, ShardSet):
        for number in range(opened.num_shards):
            yield from _iter_rows_of_shard(opened.open_shard(number), column)
        return
    for number in opened.fetch_columns():
        lengths = opened.part_lengths(number)
        values = opened.part_column(number, column.name)
        starts = to_offsets(lengths)[:-1]
        if len(starts):
            yield _add_up(np.asarray(values), starts), lengths
        opened.let_pages_go()


def _iter_rows_of_shard(shard: Shard, column: Column) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the same of blocks of rows, without filler rows."""
    shard.check_all()
    lengths = shard.tensors["lengths"]
    rows = np.flatnonzero(lengths)
    ends = np.cumsum(lengths[rows])
    first = 0
    while first < len(rows):
        done = int(ends[first - 1]) if first else 0
        last = max(int(np.searchsorted(ends, done + LIMITS.ids_per_block, "right")), first + 1)
        some = rows[first:last]
        starts = to_offsets(lengths[some])
        values = np.empty(int(starts[-1]), column.dtype)
        shard.arrays.copy_rows(some, values, starts[:-1], column.tensor_name)
        yield _add_up(values, starts[:-1]), lengths[some]
        first = last
    let_pages_go(shard.tensors[column.tensor_name])
    let_pages_go(shard.tensors["data"])


def _add_up(values: np.ndarray, starts: np.ndarray) -> np.ndarray:
    sums = np.add.reduceat(values, starts, dtype=np.uint32)  # twice as fast as int64
    return sums.astype(np.int64)
