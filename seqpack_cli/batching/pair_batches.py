"""Plan batches of pairs: sorted by both lengths, cut by what both sides cost.

In length order pairs are sorted by the encoder's length, then by the decoder's, longest first, ties
by index. The lengths of all pairs are held in memory: besides them a plan takes at most 40 bytes
for each pair, and keeps 24.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from seqpack_cli.batching.array_batches import choose_order
from seqpack_cli.batching.batch_costs import add_sides
from seqpack_cli.batching.batch_table import BatchTable
from seqpack_cli.batching.length_counts import LengthCounts, SourceCounts
from seqpack_cli.batching.length_order import length_order, sort_within_batches
from seqpack_cli.batching.limits import Limits, round_up
from seqpack_cli.batching.options import PackOptions, spell_key
from seqpack_cli.batching.pair_buckets import (
    choose_num_pair_buckets,
    choose_pair_buckets,
    find_pair_buckets,
)
from seqpack_cli.batching.row_orders import ArrayOrder
from seqpack_cli.batching.row_ranges import Rows
from seqpack_cli.limits import LIMITS
from seqpack_cli.ranges import to_offsets

PairKey = tuple[int, int]  # longest rows of the encoder and of the decoder


@dataclass(frozen=True, eq=False)
class PairLengths:
    """The decoder's side of the sequences of a source.

    Args:
        indices: int64[N], the decoder's sequence for each sequence of the encoder.
        lengths: int32[N], its length; read only where the encoder's sequence is kept.
        counts: of the decoder's lengths, as `SourceCounts` has those of the encoder.
    """

    indices: np.ndarray
    lengths: np.ndarray
    counts: SourceCounts


@dataclass(frozen=True)
class PairLimits:
    """The limits of a batch of pairs, for one bucket or for all pairs."""

    encoder: Limits  # with the limit of rows
    decoder: Limits
    max_tokens: int | None = None  # no pair costs more
    count: str | None = None  # "max": the larger side, or "sum"

    @property
    def batch_size(self) -> int | None:
        """The most rows of a batch."""
        return self.encoder.batch_size

    def cut(self, lengths: np.ndarray, decoder_lengths: np.ndarray) -> np.ndarray:
        """Cut pairs into batches, in the given order; return int64[batches + 1].

        >>> limits = make_pair_limits(PackOptions(max_tokens=6).resolve(pairs=True), None)[0]
        >>> limits.cut(np.array([3, 2, 1]), np.array([1, 4, 2])).tolist()
        [0, 2, 3]
        """
        rows, multiple = Limits(self.batch_size), self.encoder.multiple
        if self.max_tokens is None:
            return rows.cut(lengths)
        sides = [round_up(each, multiple) for each in (lengths, decoder_lengths)]
        limits = Limits(self.batch_size, self.max_tokens, self.encoder.padded)
        if self.encoder.padded and self.count == "max":
            return limits.cut(np.maximum(*sides))  # the widest of both sides
        if not self.encoder.padded and self.count == "sum":
            return limits.cut(sides[0].astype(np.int64) + sides[1])
        most_rows = self.batch_size or max(len(lengths), 1)
        cut = _cut_by_width if self.encoder.padded else _cut_by_side
        return cut(sides[0], sides[1], most_rows, self.max_tokens)

    def is_full(self, batch: BatchTable) -> bool:
        """Return whether a table's only batch has no room for another pair of single tokens."""
        num_rows = int(batch.num_rows[0])
        if self.batch_size is not None and num_rows >= self.batch_size:
            return True
        if self.max_tokens is None:
            return False
        if self.encoder.padded:
            multiple = self.encoder.multiple
            widths = [int(round_up(side.longest, multiple)[0]) for side in batch.sides]
            return (num_rows + 1) * add_sides(widths, self.count) > self.max_tokens
        num_tokens = [int(side.num_tokens[0]) + 1 for side in batch.sides]
        return add_sides(num_tokens, self.count) > self.max_tokens

    def pad(self, table: BatchTable) -> BatchTable:
        """Return the table with the cells of both rectangles; unchanged if rows are unpadded."""
        decoder = table.decoder
        padded = self.encoder.pad(table)
        return padded if decoder is None else padded.with_decoder(self.decoder.pad(decoder))


def choose_pair_keys(
    lengths: np.ndarray, decoder_lengths: np.ndarray, options: PackOptions
) -> list[PairKey] | None:
    """Return the bucket keys in ascending order, None without buckets or pairs.

    Raises:
        OptionError: max_tokens has no room for a row of a bucket.
    """
    if options.buckets is None or not len(lengths):
        return None
    if options.pair_keys is not None:
        return list(options.pair_keys)
    assert options.num_buckets is not None  # noqa: S101 - resolved
    num_batches = _estimate_batches(lengths, decoder_lengths, options)
    num_buckets = min(options.num_buckets, choose_num_pair_buckets(num_batches))
    multiple = options.pad_to_multiple
    keys = choose_pair_buckets(lengths, decoder_lengths, num_buckets, multiple=multiple)
    # Each pair has room, but with --count sum a key may have the long sides of two of them.
    key = max(keys, key=lambda key: add_sides(key, options.count))
    what = f"--buckets auto: a single row of the bucket {spell_key(key)}"
    options.check_room(key, what, "the lengths of all buckets")
    return keys


def _estimate_batches(
    lengths: np.ndarray, decoder_lengths: np.ndarray, options: PackOptions
) -> int:
    """Return about how many batches there would be without buckets and without padding."""
    num_batches = len(lengths) // (options.batch_size or len(lengths))
    if options.max_tokens is None:
        return num_batches
    join = np.add if options.count == "sum" else np.maximum
    num_tokens = int(join(lengths, decoder_lengths).sum(dtype=np.int64))
    return max(num_batches, num_tokens // options.max_tokens)


def make_pair_limits(options: PackOptions, keys: Sequence[PairKey] | None) -> list[PairLimits]:
    """Return the limits of each bucket, the largest first, or of all pairs without keys."""
    if keys is None:
        return [_limit(options, None)]
    return [_limit(options, key) for key in reversed(keys)]


def _limit(options: PackOptions, key: PairKey | None) -> PairLimits:
    batch_size, max_tokens = options.batch_size, options.max_tokens
    padded, multiple = options.fills_rectangle, options.pad_to_multiple
    if key is not None and padded and max_tokens is not None:  # every row costs its key
        batch_size = min(batch_size or max_tokens, max_tokens // add_sides(key, options.count))
        max_tokens = None
    sides = [
        Limits(batch_size, None, padded, multiple, None if key is None else key[side])
        for side in range(2)
    ]
    return PairLimits(sides[0], sides[1], max_tokens, options.count)


def cut_pairs(
    lengths: np.ndarray,
    pairs: PairLengths,
    kept: LengthCounts,
    options: PackOptions,
    limits: Sequence[PairLimits],
) -> tuple[ArrayOrder, list[BatchTable]]:
    """Order the kept pairs, and cut each bucket into batches.

    Args:
        lengths: int32[N], of the encoder's sequences, 0 where a pair is left out.
        kept: of lengths.
        limits: one per bucket, the largest bucket first.
    """
    order = choose_order(lengths, kept, options)
    if options.order == "length":
        for side in (pairs.lengths, lengths):
            order = order[length_order(side[order], window=options.window)]
    order, starts = _sort_by_bucket(order, lengths, pairs.lengths, limits)
    found, decoder_found = lengths[order], pairs.lengths[order]
    tables = []
    for (start, end), limit in zip(pairwise(starts.tolist()), limits, strict=True):
        rows = slice(start, end)
        offsets = limit.cut(found[rows], decoder_found[rows])
        if options.order == "none" or options.window is not None:
            sort_within_batches(order[rows], decoder_found[rows], offsets)
            found[rows] = lengths[order[rows]]
            sort_within_batches(order[rows], found[rows], offsets)
            decoder_found[rows] = pairs.lengths[order[rows]]
        sides = [
            BatchTable.of_batches(each[rows], offsets, first_row=start)
            for each in (found, decoder_found)
        ]
        tables.append(sides[0].with_decoder(sides[1]))
    rows_of = Rows(
        order, found, decoder_indices=pairs.indices[order], decoder_lengths=decoder_found
    )
    return ArrayOrder(rows_of), tables


def _sort_by_bucket(
    order: np.ndarray,
    lengths: np.ndarray,
    decoder_lengths: np.ndarray,
    limits: Sequence[PairLimits],
) -> tuple[np.ndarray, np.ndarray]:
    """Group the pairs by bucket; return the new order and the first row of each bucket."""
    keys = [
        (limit.encoder.key, limit.decoder.key)
        for limit in reversed(limits)
        if limit.encoder.key is not None and limit.decoder.key is not None
    ]
    if len(keys) <= 1:
        return order, np.array([0, len(order)])
    found = find_pair_buckets(lengths[order], decoder_lengths[order], keys)
    numbers = (len(keys) - 1 - found).astype(np.uint16)
    starts = to_offsets(np.bincount(numbers, minlength=len(limits)))
    return order[np.argsort(numbers, kind="stable")], starts


def _cut_by_side(
    lengths: np.ndarray, decoder_lengths: np.ndarray, most_rows: int, max_tokens: int
) -> np.ndarray:
    """Cut where the tokens of either side go beyond the budget; 5 us per batch."""
    sides = [to_offsets(each) for each in (lengths, decoder_lengths)]
    starts, start, num_rows = [0], 0, len(lengths)
    while start < num_rows:
        ends = [np.searchsorted(each, each[start] + max_tokens, "right") - 1 for each in sides]
        start = int(min(*ends, start + most_rows))
        starts.append(start)
    return np.array(starts, np.int64)


def _cut_by_width(
    lengths: np.ndarray, decoder_lengths: np.ndarray, most_rows: int, max_tokens: int
) -> np.ndarray:
    """Cut where the cells of both rectangles go beyond the budget; 0.1 us per pair."""
    starts, size, start, widest, decoder_widest = [0], LIMITS.sequences_per_block, 0, 0, 0
    for block in range(0, len(lengths), size):
        rows = slice(block, block + size)
        both = zip(lengths[rows].tolist(), decoder_lengths[rows].tolist(), strict=True)
        for row, (length, decoder_length) in enumerate(both, block):
            if length > widest:
                widest = length
            if decoder_length > decoder_widest:
                decoder_widest = decoder_length
            num_rows = row - start
            if (widest + decoder_widest) * (num_rows + 1) > max_tokens or num_rows == most_rows:
                start, widest, decoder_widest = row, length, decoder_length
                starts.append(row)
    return np.array([*starts, len(lengths)] if len(lengths) else starts, np.int64)
