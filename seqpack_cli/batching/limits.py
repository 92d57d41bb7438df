"""What cuts the batches of one bucket, or of all sequences: rows, tokens or cells, and the widths.

Lengths are given one by one, or as runs of equal ones: then the time is that of the distinct
lengths, whatever their number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from seqpack_cli.batching.batch_table import BatchTable
from seqpack_cli.batching.batches import cut_batches, cut_runs, is_full
from seqpack_cli.batching.buckets import choose_buckets, find_buckets
from seqpack_cli.batching.length_counts import LengthCounts
from seqpack_cli.batching.pack_options import PackOptions


@dataclass(frozen=True)
class Limits:
    """What a batch may hold."""

    batch_size: int | None
    max_tokens: int | None
    padded: bool
    multiple: int
    key: int | None  # the bucket's

    def cut(self, lengths: np.ndarray) -> np.ndarray:
        """Give where each batch begins, and the end."""
        needed = round_up(lengths, self.multiple)
        return cut_batches(
            needed, batch_size=self.batch_size, max_tokens=self.max_tokens, padded=self.padded
        )

    def cut_runs(self, lengths: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Give start, rows and number of the batches that are alike, [3, runs]."""
        return cut_runs(
            round_up(lengths, self.multiple),
            counts,
            batch_size=self.batch_size,
            max_tokens=self.max_tokens,
            padded=self.padded,
        )

    def is_full(self, batch: BatchTable) -> bool:
        """Say whether the one batch of a table has no room for a sequence of a single token."""
        return is_full(
            int(batch.num_rows[0]),
            int(batch.num_tokens[0]),
            int(round_up(batch.longest, self.multiple)[0]),
            batch_size=self.batch_size,
            max_tokens=self.max_tokens,
            padded=self.padded,
        )

    def pad(self, table: BatchTable) -> BatchTable:
        """Return the table of batches that fill rectangles, if that is what they do."""
        if not self.padded:
            return table
        widths = round_up(table.longest, self.multiple) if self.key is None else self.key
        return replace(table, num_cells=table.num_rows * widths)


def choose_keys(kept: LengthCounts, options: PackOptions) -> list[int] | None:
    """Return the bucket keys of the sequences that are kept, if there are any, in rising order."""
    if options.buckets is None or not len(kept.lengths):
        return None
    if isinstance(options.buckets, tuple):
        return list(options.buckets)
    assert options.num_buckets is not None  # noqa: S101 - resolved
    rounded = round_up(kept.lengths, options.pad_to_multiple)
    return choose_buckets(rounded, options.num_buckets, counts=kept.counts)


def make_limits(options: PackOptions, keys: Sequence[int] | None) -> list[Limits]:
    """Give the limits of each bucket, the largest first, or of all sequences."""
    if keys is None:
        return [_limit(options, None)]
    return [_limit(options, key) for key in reversed(keys)]


def _limit(options: PackOptions, key: int | None) -> Limits:
    batch_size, max_tokens = options.batch_size, options.max_tokens
    padded = options.fills_rectangle
    if key is not None and padded and max_tokens is not None:  # every row costs its key
        batch_size = min(batch_size or max_tokens, max_tokens // key)
        max_tokens = None
    return Limits(batch_size, max_tokens, padded, options.pad_to_multiple, key)


def find_limits(lengths: np.ndarray, limits: Sequence[Limits]) -> np.ndarray:
    """Return the place in limits of the bucket of each row, the largest bucket first."""
    keys = [limit.key for limit in reversed(limits) if limit.key is not None]
    return max(len(keys) - 1, 0) - find_buckets(lengths, keys)


def round_up(lengths: np.ndarray, multiple: int) -> np.ndarray:
    """Round lengths up to a multiple, in 64 bits unless there is nothing to round."""
    if multiple == 1:
        return lengths
    rounded: np.ndarray = -(-lengths.astype(np.int64) // multiple) * multiple
    return rounded
