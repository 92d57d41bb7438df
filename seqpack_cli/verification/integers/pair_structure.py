"""Level `structure` of pairs: both sides have the same batches, and keep to the options together.

Each side was checked by itself before. No token store is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from seqpack_cli.batching.options import SIDES, ResolvedOptions
from seqpack_cli.batching.plan import BatchTable, find_buckets, make_limits
from seqpack_cli.shards.pairs import find_matched_rows
from seqpack_cli.shards.shard import Shard
from seqpack_cli.verification.findings import Finding
from seqpack_cli.verification.integers.promises import check_limits

LEVEL = "structure"


def check_pairs(
    sides: Sequence[Shard], options: ResolvedOptions, keys: Sequence[tuple[int, int]] | None
) -> Iterator[Finding]:
    """Yield what is wrong between the sides of a shard.

    Args:
        sides: the encoder's and the decoder's, each without a fault.
        keys: the bucket keys.
    """
    name, first_batch = sides[0].path.name, sides[0].first_batch
    found = [*_compare_batches(sides)]
    if not found:  # else rows cannot be matched
        tables = [side.arrays.measure() for side in sides]
        found = [*_check_ties(sides[1]), *_check_sizes(tables, options, keys)]
        found += _check_buckets(sides, tables, keys) if keys is not None else []
    for batch, row, what in found:
        yield Finding(LEVEL, name, what, first_batch + batch, row)


Fault = tuple[int, int | None, str]  # batch of the shard, row, what is wrong


def _compare_batches(sides: Sequence[Shard]) -> Iterator[Fault]:
    """Yield the first batch whose sides have different numbers of rows."""
    encoder, decoder = (side.arrays for side in sides)
    for words, expected, found in (
        ("rows", encoder.num_rows, decoder.num_rows),
        ("filler rows", encoder.num_filler_rows, decoder.num_filler_rows),
    ):
        wrong = np.flatnonzero(found != expected)
        if len(wrong):
            batch = int(wrong[0])
            what = f"the decoder has {found[batch]} {words}, the encoder {expected[batch]}"
            yield batch, None, what
            return


def _check_ties(decoder: Shard) -> Iterator[Fault]:
    """Yield the first row that is not behind those of its length that the encoder has before it."""
    tensors = decoder.tensors
    if "encoder_rows" not in tensors:
        return
    rows, lengths, batches = (
        tensors["encoder_rows"],
        tensors["lengths"],
        decoder.arrays.batch_of_rows,
    )
    is_tie = (lengths[1:] == lengths[:-1]) & (batches[1:] == batches[:-1])
    wrong = np.flatnonzero(is_tie & (rows[1:] < rows[:-1]))
    if len(wrong):
        row = int(wrong[0]) + 1
        what = f"encoder_rows is {rows[row]} after {rows[row - 1]}, expected rising rows of "
        yield *decoder.arrays.find_batch(row), f"{what}{lengths[row]} tokens"


def _check_sizes(
    tables: Sequence[BatchTable], options: ResolvedOptions, keys: Sequence[tuple[int, int]] | None
) -> Iterator[Fault]:
    """Yield the batches that break a limit of both sides, or of their bucket."""
    buckets = _find_buckets(tables, keys)
    for number, limits in enumerate(reversed(make_limits(options, keys))):
        for side, (name, table) in enumerate(zip(SIDES, tables, strict=True)):
            limit = replace(limits, key=limits.key[side : side + 1])
            for batch, what in check_limits(table.take(buckets == number), options, limit):
                yield batch, None, f"{name}: {what}"
    most, num_cells = options.max_tokens, tables[0].num_cells + tables[1].num_cells
    if most is not None and options.count == "sum":
        for batch in np.flatnonzero(num_cells > most).tolist():
            what = f"{num_cells[batch]} cells on both sides, the options allow at most {most}"
            yield batch, None, what


def _check_buckets(
    sides: Sequence[Shard], tables: Sequence[BatchTable], keys: Sequence[tuple[int, int]]
) -> Iterator[Fault]:
    """Yield the batches that no bucket holds, and the first row of another bucket."""
    encoder, decoder = sides
    buckets = _find_buckets(tables, keys)
    for batch in np.flatnonzero(buckets == len(keys)).tolist():
        longest = [int(table.longest[batch]) for table in tables]
        yield batch, None, f"rows of {longest[0]} and {longest[1]} tokens, which no bucket holds"
    rows = np.flatnonzero(decoder.tensors["lengths"] > 0)
    first = encoder.tensors["lengths"][find_matched_rows(decoder)[rows]]
    second = decoder.tensors["lengths"][rows]
    wrong = find_buckets(keys, first, second) != buckets[decoder.arrays.batch_of_rows[rows]]
    if wrong.any():
        place = int(wrong.argmax())
        what = f"a pair of {first[place]} and {second[place]} tokens belongs to another "
        yield *decoder.arrays.find_batch(int(rows[place])), f"{what}bucket than its batch"


def _find_buckets(
    tables: Sequence[BatchTable], keys: Sequence[tuple[int, int]] | None
) -> np.ndarray:
    """Return the bucket of each batch, int64; 0 without keys."""
    if keys is None:
        return np.zeros(len(tables[0]), np.int64)
    return find_buckets(keys, tables[0].longest, tables[1].longest)
