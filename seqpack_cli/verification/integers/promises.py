"""What follows for every batch from the recorded options alone: sizes, budgets, widths, buckets.

These hold without the token store. With it, `plan_comparison` says more: that each batch is the
planned one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from seqpack_cli.batching.batch_table import BatchTable
from seqpack_cli.batching.buckets import find_buckets
from seqpack_cli.batching.limits import make_limits, round_up
from seqpack_cli.batching.pack_options import PackOptions


def check_promises(
    batches: BatchTable, options: PackOptions, keys: Sequence[int] | None
) -> Iterator[tuple[int, str]]:
    """Yield (batch, what) for every batch that breaks a limit which pack was told.

    Args:
        batches: sound ones; the batch is yielded by its place here.
        keys: of the buckets.
    """
    yield from _check_most(batches.num_cells, options.max_tokens, "{} cells", "tokens ")
    if options.layout == "varlen":  # whose rows may be pieces
        return
    for place in np.flatnonzero(batches.shortest < (options.min_length or 1)).tolist():
        found = batches.shortest[place]
        yield place, f"a row of {found} tokens, pack was told {options.min_length} at least"
    yield from _check_most(batches.longest, options.max_length, "a row of {} tokens")
    bucket = np.zeros(len(batches), np.int64)
    if keys is not None:
        bucket = find_buckets(batches.longest, keys)
        yield from _check_buckets(batches, bucket, keys)
    fits = bucket < len(keys or [None])
    yield from _check_rows(batches, options, keys, bucket, fits)
    if options.layout == "padded":
        yield from _check_widths(batches, options, keys, bucket, fits)


def find_unused_keys(
    batches: BatchTable, options: PackOptions, keys: Sequence[int] | None
) -> list[int]:
    """Return the chosen bucket keys that are the width of no row.

    A last batch that was dropped may have had it, so that nothing is known then.
    """
    if keys is None or options.buckets != "auto" or options.last_batch == "drop":
        return []
    return sorted({*keys} - {*round_up(batches.longest, options.pad_to_multiple).tolist()})


def _check_most(
    found: np.ndarray, most: int | None, name: str, unit: str = ""
) -> Iterator[tuple[int, str]]:
    if most is not None:
        for place in np.flatnonzero(found > most).tolist():
            yield place, f"{name.format(found[place])}, pack was told {most} {unit}at most"


def _check_buckets(
    batches: BatchTable, bucket: np.ndarray, keys: Sequence[int]
) -> Iterator[tuple[int, str]]:
    for place in np.flatnonzero(bucket == len(keys)).tolist():
        yield place, f"a row of {batches.longest[place]} tokens, the largest bucket is {keys[-1]}"
    apart = find_buckets(batches.shortest, keys) != bucket
    for place in np.flatnonzero(apart).tolist():
        shortest, longest = batches.shortest[place], batches.longest[place]
        yield place, f"rows of {shortest} and {longest} tokens belong to other buckets"


def _check_rows(
    batches: BatchTable,
    options: PackOptions,
    keys: Sequence[int] | None,
    bucket: np.ndarray,
    fits: np.ndarray,
) -> Iterator[tuple[int, str]]:
    """Rows are limited by each bucket; filled up, every batch has as many."""
    limits = [limit.batch_size for limit in reversed(make_limits(options, keys))]
    if None in limits:
        return
    most = np.array([*limits, 0], np.int64)[bucket]
    is_wrong = fits & (batches.num_rows > most)
    for place in np.flatnonzero(is_wrong).tolist():
        yield place, f"{batches.num_rows[place]} rows, pack was told {most[place]} at most"
    if options.last_batch == "pad":
        for place in np.flatnonzero(fits & (batches.num_rows < most)).tolist():
            yield place, f"{batches.num_rows[place]} rows, filled up it has {most[place]}"


def _check_widths(
    batches: BatchTable,
    options: PackOptions,
    keys: Sequence[int] | None,
    bucket: np.ndarray,
    fits: np.ndarray,
) -> Iterator[tuple[int, str]]:
    widths = batches.widths
    expected = round_up(batches.longest, options.pad_to_multiple)
    if keys is not None:
        expected = np.array([*keys, 0], np.int64)[bucket]
    for place in np.flatnonzero(fits & (widths != expected)).tolist():
        longest = batches.longest[place]
        yield place, f"width {widths[place]}, expected {expected[place]} for {longest} tokens"
