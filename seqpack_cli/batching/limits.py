"""What cuts the batches of one bucket, or of all sequences: rows, tokens or cells, and the widths.

Lengths are given one by one, or as runs of equal ones: then the time is that of the distinct
lengths, whatever their number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from seqpack_cli.batching.batches import cut_batches, cut_runs, is_full
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

    def count_filler_rows(
        self, num_rows: int, num_tokens: int, longest: int, *, last_batch: str
    ) -> int | None:
        """Count the empty rows that a last batch gets; None leaves it out."""
        needed = int(round_up(np.array(longest), self.multiple))
        if last_batch == "keep" or is_full(
            num_rows,
            num_tokens,
            needed,
            batch_size=self.batch_size,
            max_tokens=self.max_tokens,
            padded=self.padded,
        ):
            return 0
        return None if last_batch == "drop" else (self.batch_size or 0) - num_rows

    def widths(self, longest: np.ndarray) -> np.ndarray:
        """Give the width of each batch from its longest row, int64[batches]."""
        if self.key is not None:
            return np.full(len(longest), self.key, np.int64)
        return round_up(longest.astype(np.int64), self.multiple)


def make_limits(options: PackOptions, keys: Sequence[int] | None) -> list[Limits]:
    """Give the limits of each bucket, the largest first, or of all sequences."""
    if keys is None:
        return [_limit(options, None)]
    return [_limit(options, key) for key in reversed(keys)]


def _limit(options: PackOptions, key: int | None) -> Limits:
    batch_size, max_tokens = options.batch_size, options.max_tokens
    padded = options.layout == "padded"
    if key is not None and padded and max_tokens is not None:  # every row costs its key
        batch_size = min(batch_size or max_tokens, max_tokens // key)
        max_tokens = None
    return Limits(batch_size, max_tokens, padded, options.pad_to_multiple, key)


def round_up(lengths: np.ndarray, multiple: int) -> np.ndarray:
    """Round lengths up to a multiple, in 64 bits unless there is nothing to round."""
    if multiple == 1:
        return lengths
    rounded: np.ndarray = -(-lengths.astype(np.int64) // multiple) * multiple
    return rounded
