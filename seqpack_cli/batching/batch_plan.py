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

from seqpack_cli.batching.batches import cut_batches, is_full
from seqpack_cli.batching.buckets import choose_buckets, find_buckets
from seqpack_cli.batching.length_order import length_order, sort_within_batches
from seqpack_cli.batching.pack_options import PackOptions
from seqpack_cli.batching.selection import Selection
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


@dataclass(frozen=True)
class _Limits:
    """What cuts the batches of one bucket, or of all sequences."""

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

    def is_full(self, lengths: np.ndarray) -> bool:
        """Say whether a batch of these rows has no room for one more."""
        needed = round_up(lengths, self.multiple)
        return is_full(
            needed, batch_size=self.batch_size, max_tokens=self.max_tokens, padded=self.padded
        )

    def widths(self, lengths: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """Give the width of each batch."""
        if self.key is not None or len(offsets) < 2:
            return np.full(len(offsets) - 1, self.key or 0, np.int64)
        longest = np.maximum.reduceat(lengths, offsets[:-1]).astype(np.int64)
        return round_up(longest, self.multiple)


def round_up(lengths: np.ndarray, multiple: int) -> np.ndarray:
    """Round lengths up to a multiple, in 64 bits unless there is nothing to round."""
    if multiple == 1:
        return lengths
    rounded: np.ndarray = -(-lengths.astype(np.int64) // multiple) * multiple
    return rounded


def plan_batches(lengths: np.ndarray, options: PackOptions) -> BatchPlan:
    """Choose the sequences of `packed` or `padded` batches, order them, and cut the order.

    Args:
        lengths: int32, one per sequence of the store.
        options: resolved.

    Raises:
        OverlongError: a sequence does not fit, and the options do not say to drop it.
    """
    selection = select_sequences(lengths, options)
    _leave_out_overlong(selection, options)
    order = selection.take(seed=options.seed if options.shuffle else None)
    if options.order == "length":
        order = order[length_order(lengths[order], window=options.window)]
    keys = _choose_keys(lengths[order], options)
    if keys is None:
        starts = np.array([0, len(order)])
    else:
        order, starts = _sort_by_bucket(order, lengths, keys)
    limits = [_limit(options, key) for key in (reversed(keys) if keys else [None])]
    plan = _cut(order, lengths[order], starts, limits, options.last_batch, selection)
    plan.bucket_keys = keys
    if options.order == "none" or options.window is not None:
        sort_within_batches(plan.order, plan.lengths, plan.batch_offsets)
    if options.shuffle:
        plan.permute_batches(shuffled(plan.num_batches, seed=options.seed, stream=BATCHES))
    return plan


def select_sequences(lengths: np.ndarray, options: PackOptions) -> Selection:
    """Leave out sequences that are too short or too long by themselves."""
    selection = Selection(lengths)
    if options.min_length is not None:
        selection.drop("min_length", lengths < options.min_length)
    if options.max_length is not None:
        selection.drop("max_length", lengths > options.max_length)
    return selection


def _leave_out_overlong(selection: Selection, options: PackOptions) -> None:
    """Drop or refuse what is longer than the largest bucket or than the budget."""
    if isinstance(options.buckets, tuple):
        limit = options.buckets[-1]
        if options.overlong == "error":
            selection.check_at_most(limit, "--buckets")
        elif options.overlong == "drop" or selection.any_above(limit):
            selection.drop("overlong", selection.lengths > limit)
    if options.max_tokens is not None:
        limit = options.max_tokens // options.pad_to_multiple * options.pad_to_multiple
        if options.overlong == "drop":
            selection.drop("overlong", selection.lengths > limit)
        else:
            selection.check_at_most(limit, "--max-tokens")


def _choose_keys(lengths: np.ndarray, options: PackOptions) -> list[int] | None:
    if options.buckets is None or not len(lengths):
        return None
    if isinstance(options.buckets, tuple):
        return list(options.buckets)
    assert options.num_buckets is not None  # noqa: S101 - resolved
    return choose_buckets(round_up(lengths, options.pad_to_multiple), options.num_buckets)


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


def _limit(options: PackOptions, key: int | None) -> _Limits:
    batch_size, max_tokens = options.batch_size, options.max_tokens
    padded = options.layout == "padded"
    if key is not None and padded and max_tokens is not None:  # every row costs its key
        batch_size = min(batch_size or max_tokens, max_tokens // key)
        max_tokens = None
    return _Limits(batch_size, max_tokens, padded, options.pad_to_multiple, key)


def _cut(
    order: np.ndarray,
    lengths: np.ndarray,
    starts: np.ndarray,
    limits: list[_Limits],
    last_batch: str,
    selection: Selection,
) -> BatchPlan:
    """Cut each bucket into batches, and see to the last one of each."""
    kept, offsets, widths, fillers = [], [np.zeros(1, np.int64)], [], []
    num_rows = 0
    for (start, end), limit in zip(pairwise(starts.tolist()), limits, strict=True):
        cuts = limit.cut(lengths[start:end])
        last = lengths[start + cuts[-2] : end] if len(cuts) > 1 else lengths[:0]
        num_filler_rows = 0
        if len(last) and last_batch != "keep" and not limit.is_full(last):
            if last_batch == "drop":
                selection.drop("last_batch", order[end - len(last) : end])
                cuts = cuts[:-1]
            else:
                num_filler_rows = (limit.batch_size or 0) - len(last)
        rows = slice(start, start + int(cuts[-1]))
        kept.append(rows)
        offsets.append(cuts[1:] + num_rows)
        num_rows += int(cuts[-1])
        widths.append(limit.widths(lengths[rows], cuts))
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
