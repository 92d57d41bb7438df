"""All lengths -> which sequence goes into which batch, and what is left out and why.

A pure function of the lengths and the options, so that every worker and every later run makes the
same batches: sequences are chosen, shuffled, sorted by length, put into buckets, cut into batches,
and the finished batches shuffled. It takes at most 32 bytes a sequence and about 64 a batch above
the lengths; at its end 12 and 24.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from seqpack_cli.batching.batch_runs import BatchRuns
from seqpack_cli.batching.buckets import choose_buckets, find_buckets
from seqpack_cli.batching.length_order import length_order, sort_within_batches
from seqpack_cli.batching.limits import Limits, make_limits, round_up
from seqpack_cli.batching.pack_options import PackOptions
from seqpack_cli.batching.selection import Selection, drop_by_length, drop_overlong
from seqpack_cli.batching.shuffle import BATCHES, shuffled
from seqpack_cli.ranges import copy_ranges, to_offsets


@dataclass
class BatchPlan:
    """The batches of a whole token store."""

    order: np.ndarray  # int64[rows]: the sequence of each row, batch after batch
    lengths: np.ndarray  # int32[rows]
    batch_offsets: np.ndarray  # int64[batches + 1], into order
    widths: np.ndarray  # int64[batches]: bucket key, or the longest row, rounded up where padded
    num_filler_rows: np.ndarray  # int64[batches]: empty rows behind the others
    piece_starts: np.ndarray | None = None  # int32[rows]: where in its sequence each begins
    bucket_keys: list[int] | None = None  # in rising order, those without batches too
    num_dropped_sequences: dict[str, int] = field(default_factory=dict)  # by reason
    num_dropped_tokens: dict[str, int] = field(default_factory=dict)

    @property
    def num_batches(self) -> int:
        """Count the batches."""
        return len(self.batch_offsets) - 1

    @property
    def runs(self) -> BatchRuns:
        """Give the numbers of each batch, made anew: 2 ns a sequence."""
        return BatchRuns.of_batches(
            self.lengths, self.batch_offsets, self.widths, self.num_filler_rows
        )

    def permute_batches(self, permutation: np.ndarray) -> None:
        """Put the finished batches into another order, in place."""
        starts = self.batch_offsets[:-1][permutation]
        counts = np.diff(self.batch_offsets)[permutation]
        self.batch_offsets = to_offsets(counts)
        for name in ("order", "lengths", "piece_starts"):
            before = getattr(self, name)
            if before is not None:
                moved = np.empty_like(before)
                copy_ranges(before, starts, moved, self.batch_offsets[:-1], counts)
                setattr(self, name, moved)
        self.widths = self.widths[permutation]
        self.num_filler_rows = self.num_filler_rows[permutation]


def plan_batches(lengths: np.ndarray, options: PackOptions) -> BatchPlan:
    """Choose the sequences of `packed` or `padded` batches, order them, and cut the order.

    Args:
        lengths: int32, one per sequence of the store.
        options: resolved.

    Raises:
        OverlongError: a sequence does not fit, and the options do not say to drop it.
    """
    selection = Selection(lengths)
    drop_by_length(selection, options)
    drop_overlong(selection, options)
    order = selection.take(seed=options.seed if options.shuffle else None)
    if options.order == "length":
        order = order[length_order(lengths[order], window=options.window)]
    keys = choose_keys(lengths[order], options)
    if keys is None:
        starts = np.array([0, len(order)])
    else:
        order, starts = _sort_by_bucket(order, lengths, keys)
    limits = make_limits(options, keys)
    plan = _cut(order, lengths[order], starts, limits, options.last_batch, selection)
    plan.bucket_keys = keys
    if options.order == "none" or options.window is not None:
        sort_within_batches(plan.order, plan.lengths, plan.batch_offsets)
    if options.shuffle:
        plan.permute_batches(shuffled(plan.num_batches, seed=options.seed, stream=BATCHES))
    return plan


def choose_keys(
    lengths: np.ndarray, options: PackOptions, *, counts: np.ndarray | None = None
) -> list[int] | None:
    """Give the bucket keys of the sequences that are left, if there are any, in rising order.

    Args:
        counts: sequences of each length; None is one of each.
    """
    if options.buckets is None or not len(lengths):
        return None
    if isinstance(options.buckets, tuple):
        return list(options.buckets)
    assert options.num_buckets is not None  # noqa: S101 - resolved
    rounded = round_up(lengths, options.pad_to_multiple)
    return choose_buckets(rounded, options.num_buckets, counts=counts)


def _sort_by_bucket(
    order: np.ndarray, lengths: np.ndarray, keys: list[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Bring the rows of each bucket together, the largest first; give where each begins too."""
    numbers = len(keys) - 1 - find_buckets(lengths[order], keys)
    numbers = numbers.astype(np.uint16 if len(keys) < 1 << 16 else np.int64)
    starts = to_offsets(np.bincount(numbers, minlength=len(keys)))
    if (numbers[1:] < numbers[:-1]).any():
        order = order[np.argsort(numbers, kind="stable")]
    return order, starts


def _cut(
    order: np.ndarray,
    lengths: np.ndarray,
    starts: np.ndarray,
    limits: list[Limits],
    last_batch: str,
    selection: Selection,
) -> BatchPlan:
    """Cut each bucket into batches, and see to the last one of each."""
    kept, offsets, widths, fillers = [], [np.zeros(1, np.int64)], [], []
    num_rows = 0
    for (start, end), limit in zip(pairwise(starts.tolist()), limits, strict=True):
        cuts = limit.cut(lengths[start:end])
        num_filler_rows = 0
        if len(cuts) > 1:
            last = lengths[start + cuts[-2] : end]
            numbers = (len(last), int(last.sum(dtype=np.int64)), int(last.max()))
            filler = limit.count_filler_rows(*numbers, last_batch=last_batch)
            if filler is None:
                selection.drop("last_batch", order[end - len(last) : end])
                cuts = cuts[:-1]
            num_filler_rows = filler or 0
        rows = slice(start, start + int(cuts[-1]))
        kept.append(rows)
        offsets.append(cuts[1:] + num_rows)
        num_rows += int(cuts[-1])
        longest = np.empty(0, np.int64)
        if len(cuts) > 1:
            longest = np.maximum.reduceat(lengths[rows], cuts[:-1])
        widths.append(limit.widths(longest))
        fillers.append(np.zeros(len(cuts) - 1, np.int64))
        fillers[-1][-1:] = num_filler_rows
    if last_batch == "drop":
        order = np.concatenate([order[rows] for rows in kept])
        lengths = np.concatenate([lengths[rows] for rows in kept])
        selection.num_dropped_sequences.setdefault("last_batch", 0)
        selection.num_dropped_tokens.setdefault("last_batch", 0)
    return BatchPlan(
        order,
        lengths,
        np.concatenate(offsets),
        np.concatenate(widths),
        np.concatenate(fillers),
        num_dropped_sequences=selection.num_dropped_sequences,
        num_dropped_tokens=selection.num_dropped_tokens,
    )
