"""Check every batch against the recorded options: numbers of rows and tokens, widths, buckets.

This needs no token store. With one, `plan_comparison` also checks that each batch is the planned
one. Of pairs, buckets and widths are those of both sides together: see `pair_structure`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from seqpack_cli.batching.options import ResolvedOptions
from seqpack_cli.batching.plan import BatchTable, Limits, find_buckets, make_limits
from seqpack_cli.batching.rows import round_up


def check_promises(
    batches: BatchTable, options: ResolvedOptions, keys: Sequence[int] | None
) -> Iterator[tuple[int, str]]:
    """Yield (batch, what is wrong) for every batch that breaks a limit of the options.

    Args:
        batches: sound ones, of single sequences.
        keys: the bucket keys.
    """
    yield from check_sizes(batches, options)
    if options.shares_rows:  # rows may be pieces of sequences, so the checks below do not hold
        return
    bucket = np.zeros(len(batches), np.int64)
    if keys is not None:
        bucket = find_buckets(keys, batches.longest)
        yield from _check_buckets(batches, bucket, keys)
    for number, limits in enumerate(reversed(make_limits(options, keys))):
        yield from check_limits(batches.take(bucket == number), options, limits)


def check_sizes(batches: BatchTable, options: ResolvedOptions) -> Iterator[tuple[int, str]]:
    """Yield (batch, what is wrong) for every batch with too many cells, or a row of wrong length.

    Args:
        batches: sound ones, of either side of pairs.
    """
    most = options.max_tokens
    if options.shares_rows and most is not None:
        most *= options.batch_size or 1
    yield from _check_most(batches, "num_cells", most, "{} cells")
    if options.shares_rows:
        return
    for index, found in _find(batches, batches.shortest < (options.drop_shorter or 1), "shortest"):
        yield index, f"a row of {found} tokens, the options require at least {options.drop_shorter}"
    yield from _check_most(batches, "longest", options.drop_longer, "a row of {} tokens")


def find_unused_keys(
    batches: BatchTable, options: ResolvedOptions, keys: Sequence[int] | None
) -> list[int]:
    """Return the automatically chosen bucket keys that are the width of no batch.

    None are returned if last batches were dropped, since a dropped batch may have had the width.
    """
    if keys is None or options.buckets != "auto" or options.last_batch == "drop":
        return []
    return sorted({*keys} - {*round_up(batches.longest, options.pad_to_multiple).tolist()})


def _find(batches: BatchTable, is_wrong: np.ndarray, *names: str) -> Iterator[tuple[int, ...]]:
    """Yield the index and some columns of every batch that is wrong."""
    wrong = batches.take(is_wrong)
    return zip(*(getattr(wrong, name).tolist() for name in ("index", *names)), strict=True)


def _check_most(
    batches: BatchTable, name: str, most: int | None, words: str
) -> Iterator[tuple[int, str]]:
    if most is not None:
        for index, found in _find(batches, getattr(batches, name) > most, name):
            yield index, f"{words.format(found)}, the options allow at most {most}"


def _check_buckets(
    batches: BatchTable, bucket: np.ndarray, keys: Sequence[int]
) -> Iterator[tuple[int, str]]:
    for index, longest in _find(batches, bucket == len(keys), "longest"):
        yield index, f"a row of {longest} tokens, the largest bucket is {keys[-1]}"
    is_mixed = find_buckets(keys, batches.shortest) != bucket
    for index, shortest, longest in _find(batches, is_mixed, "shortest", "longest"):
        yield index, f"rows of {shortest} and {longest} tokens belong to different buckets"


def check_limits(
    batches: BatchTable, options: ResolvedOptions, limits: Limits
) -> Iterator[tuple[int, str]]:
    """Check numbers of rows and widths of the batches of one bucket, or of all."""
    most = limits.batch_size
    if most is not None:
        for index, found in _find(batches, batches.num_rows > most, "num_rows"):
            yield index, f"{found} rows, the options allow at most {most}"
        if options.last_batch == "pad":
            for index, found in _find(batches, batches.num_rows < most, "num_rows"):
                yield index, f"{found} rows, expected {most} with --last-batch pad"
    widths, planned = batches.widths, limits.pad(batches).widths
    for place in np.flatnonzero(widths != planned).tolist():
        what = f"width {widths[place]}, expected {planned[place]}"
        yield (
            int(batches.index[place]),
            f"{what} for a longest row of {batches.longest[place]} tokens",
        )
