"""Lengths, part by part -> the batches as numbers, and what a task needs to find its own rows.

The same batches as `plan_batches` makes where nothing is shuffled, without an array of all
sequences. In the order of length they follow from the counts of the lengths: a thousand million
sequences take some seconds, and memory for one part. Windows are sorted one after the other, and
take 56 bytes a batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from seqpack_cli.batching.batch_plan import choose_keys
from seqpack_cli.batching.batch_runs import BatchRuns
from seqpack_cli.batching.buckets import find_buckets
from seqpack_cli.batching.length_counts import LengthCounts, PartLengths, count_lengths, iter_parts
from seqpack_cli.batching.limits import Limits, make_limits
from seqpack_cli.batching.pack_options import PackOptions
from seqpack_cli.batching.row_ranges import LengthOrder, RangeRows, WindowOrder
from seqpack_cli.batching.selection import (
    OverlongError,
    Selection,
    drop_by_length,
    drop_overlong,
)
from seqpack_cli.batching.window_batches import cut_windows
from seqpack_cli.ranges import to_offsets

ROWS_PER_SPAN = 1 << 22  # of neighbours in the order of length, found together: 100 MB at most


@dataclass(frozen=True)
class RangePlan:
    """The batches of a whole token store, but for their sequences."""

    runs: BatchRuns
    bucket_keys: list[int] | None  # in rising order, those without batches too
    num_dropped_sequences: dict[str, int]  # by reason
    num_dropped_tokens: dict[str, int]
    order: LengthOrder | WindowOrder

    @property
    def num_batches(self) -> int:
        """Count the batches."""
        return self.runs.num_batches

    def cut(self, cuts: list[int]) -> list[RangeRows]:
        """Give what each task needs to find its rows.

        In the order of length that is the same for neighbours, since whoever looks for rows has
        to read all lengths: one look serves them all.

        Args:
            cuts: the first batch of each task, and the number of all batches.
        """
        pieces = self.runs.cut(cuts)
        starts = [int(runs.starts[0]) for runs in pieces]
        stops = [int(runs.starts[-1] + runs.counts[-1] * runs.num_rows[-1]) for runs in pieces]
        most = ROWS_PER_SPAN if isinstance(self.order, LengthOrder) else 0
        return [
            RangeRows(runs, span)
            for first, last in pairwise(_group(starts, stops, most))
            for span in [self.order.between(starts[first], stops[last - 1])]
            for runs in pieces[first:last]
        ]


def _group(starts: list[int], stops: list[int], most: int) -> list[int]:
    """Give the first of each group of ranges that together hold so many rows, or of one range."""
    firsts = [0] if stops else []
    for number, stop in enumerate(stops):
        if number > firsts[-1] and stop - starts[firsts[-1]] > most:
            firsts.append(number)
    return [*firsts, len(stops)]


def can_plan_ranges(options: PackOptions) -> bool:
    """Say whether the batches of resolved options are runs of an order that needs no array."""
    if options.layout == "varlen" or options.shuffle:
        return False
    return options.buckets is None or (options.order == "length" and options.window is None)


def plan_ranges(
    source: PartLengths, options: PackOptions, found: LengthCounts | None = None
) -> RangePlan:
    """Choose the sequences of `packed` or `padded` batches and cut their order, as numbers.

    Args:
        source: read once, or twice in windows.
        options: resolved, and such that `can_plan_ranges`.
        found: the lengths of the source if they have been counted: it is read once less.

    Raises:
        OverlongError: a sequence does not fit, and the options do not say to drop it.
    """
    found = found or count_lengths(lengths for _, lengths in iter_parts(source))
    selection = Selection(found.lengths, found.counts)
    try:
        drop_by_length(selection, options)
        drop_overlong(selection, options)
    except OverlongError as error:
        index = _find_first(source, error.length)
        raise OverlongError(index, error.length, error.option, error.limit) from error
    kept = LengthCounts(found.lengths[selection.kept], found.counts[selection.kept])
    order: LengthOrder | WindowOrder = LengthOrder(kept)
    window = options.window or (1 if options.order == "none" else None)
    if window is None or window >= kept.counts.sum():
        keys = choose_keys(kept.lengths, options, counts=kept.counts)
        runs = _cut_order(kept, options, keys, selection)
    else:
        keys = None
        order, runs = _cut_windows(source, kept, options, selection)
    if options.last_batch == "drop":
        selection.count_dropped("last_batch", 0, 0)  # the reason stands there all the same
    dropped = (selection.num_dropped_sequences, selection.num_dropped_tokens)
    return RangePlan(runs, keys, *dropped, order)


def _find_first(source: PartLengths, length: int) -> int:
    return next(
        int(source.part_offsets[number]) + int((lengths == length).argmax())
        for number, lengths in iter_parts(source)
        if (lengths == length).any()
    )


def _cut_order(
    kept: LengthCounts, options: PackOptions, keys: list[int] | None, selection: Selection
) -> BatchRuns:
    """Cut the order of length, each bucket by itself."""
    bounds = np.array([0, len(kept.lengths)])
    if keys is not None:
        numbers = len(keys) - 1 - find_buckets(kept.lengths, keys)
        bounds = to_offsets(np.bincount(numbers, minlength=len(keys)))
    offsets = to_offsets(kept.counts)
    pieces = []
    limits = make_limits(options, keys)
    for (first, last), limit in zip(pairwise(bounds.tolist()), limits, strict=True):
        found = limit.cut_runs(kept.lengths[first:last], kept.counts[first:last])
        runs = _number(kept, offsets, found[0] + offsets[first], found[1], found[2], limit)
        pieces.append(_finish(runs, limit, options.last_batch, selection))
    return BatchRuns.join(pieces)


def _number(
    kept: LengthCounts,
    offsets: np.ndarray,
    starts: np.ndarray,
    num_rows: np.ndarray,
    counts: np.ndarray,
    limits: Limits,
) -> BatchRuns:
    """Give the numbers of batches from where they begin in the order of length."""
    num_tokens = to_offsets(kept.lengths * kept.counts)  # before each length

    def count_before(rows: np.ndarray) -> np.ndarray:
        found = np.searchsorted(offsets[:-1], rows, "right") - 1
        before: np.ndarray = num_tokens[found] + (rows - offsets[found]) * kept.lengths[found]
        return before

    longest = kept.lengths[np.searchsorted(offsets, starts, "right") - 1]
    return BatchRuns(
        starts,
        counts,
        num_rows,
        count_before(starts + num_rows) - count_before(starts),
        longest,
        limits.widths(longest),
        np.zeros_like(starts),
    )


def _cut_windows(
    source: PartLengths, kept: LengthCounts, options: PackOptions, selection: Selection
) -> tuple[WindowOrder, BatchRuns]:
    """Read the lengths once more, in the order of the store, and cut them as they come."""
    least, most = int(kept.lengths[-1]), int(kept.lengths[0])
    num_kept = np.zeros(len(source.part_offsets) - 1, np.int64)

    def iter_kept() -> Iterator[np.ndarray]:
        for number, lengths in iter_parts(source):
            left = lengths[(lengths >= least) & (lengths <= most)]
            num_kept[number] = len(left)
            yield left

    (limits,) = make_limits(options, None)
    runs = cut_windows(iter_kept(), options.window, limits)
    runs = _finish(runs, limits, options.last_batch, selection)
    return WindowOrder(to_offsets(num_kept), least, most, options.window), runs


def _finish(runs: BatchRuns, limits: Limits, last_batch: str, selection: Selection) -> BatchRuns:
    """See to the last batch of a bucket, which stands alone in its run."""
    if not len(runs.starts):
        return runs
    columns = (runs.num_rows, runs.num_tokens, runs.longest)
    num_rows, num_tokens, longest = (int(column[-1]) for column in columns)
    filler = limits.count_filler_rows(num_rows, num_tokens, longest, last_batch=last_batch)
    if filler is None:
        selection.count_dropped("last_batch", num_rows, num_tokens)
        return runs.cut([0, runs.num_batches - 1])[0]
    fillers = runs.num_filler_rows.copy()
    fillers[-1] = filler
    return replace(runs, num_filler_rows=fillers)
