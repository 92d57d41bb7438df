"""Plan which sequences go into which batch, from the lengths of a store and the options of pack.

A pure function, so that every worker and every later run makes the same batches: sequences are
shuffled, sorted by length, put into buckets or rows and cut into batches, and the finished batches
are shuffled. Batches in length order follow from counts of the lengths: a thousand million
sequences take a few seconds and memory for one part. Windows are sorted one after another, at 56
bytes per batch. All other plans hold the lengths of all sequences and at most 32 bytes more for
each, 12 once they are made; of pairs, which are sorted by both lengths and cut by what both sides
cost, 40 and 24.

A sequence that is visited several times is in several rounds. Each round is planned by itself, so
that no batch holds two visits of a sequence; 12 bytes per visit are kept, 20 while they are joined.

A batch ends at a number of rows, at a token budget, or at whichever comes first. The budget counts
what the device computes: real tokens, or all cells of the rectangle for padded rows. A limit of
rows takes no time; a budget takes about 0.1 us per sequence, or 2 us per run of equal lengths,
whatever the number of sequences.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from seqpack_cli.batching.options import ResolvedOptions
from seqpack_cli.batching.order import (
    BATCHES,
    ROUNDS,
    LengthOrder,
    LengthsChangedError,
    Order,
    Rows,
    WindowOrder,
    epoch_seed,
    join_rows,
    length_order,
    shuffled,
    sort_within_batches,
)
from seqpack_cli.batching.rows import cut_rows, fill_rows, round_up
from seqpack_cli.batching.selection import (
    LAST_BATCH,
    OVERFLOW,
    LengthCounts,
    LengthTest,
    OverlongError,
    PartLengths,
    SourceCounts,
    count_lengths,
    iter_parts,
    join_counts,
    test_side,
)
from seqpack_cli.ranges import expand_ranges, to_offsets

# The table of batches


def _empty() -> np.ndarray:
    return np.empty(0, np.int64)


@dataclass(frozen=True, kw_only=True)
class BatchTable:
    """A table of batch sizes: planned from the lengths of a store, or measured in shards.

    A row of the table stands for `counts` equal batches that follow one another. Sorted by length,
    most neighbours are equal: a thousand million sequences of a few thousand distinct lengths need
    a few thousand rows. If all batches differ, each has its own row of 56 bytes. Columns are each
    int64[rows of the table]; those with a default may be empty.
    """

    starts: np.ndarray  # first row of the first batch, in the order of the plan or shards
    counts: np.ndarray  # number of equal batches, one after another
    num_rows: np.ndarray  # per batch, including filler rows
    num_filler_rows: np.ndarray  # empty rows at the end of a batch
    num_tokens: np.ndarray
    num_cells: np.ndarray  # tokens and padding
    longest: np.ndarray
    # Only in tables measured in shards:
    index: np.ndarray = field(default_factory=_empty)  # number of the first batch
    shortest: np.ndarray = field(default_factory=_empty)  # of the rows that hold a sequence
    # Only where sequences are split:
    num_later_pieces: np.ndarray = field(default_factory=_empty)  # rows that continue a sequence
    num_split_sequences: np.ndarray = field(default_factory=_empty)  # with their second piece here
    decoder: BatchTable | None = None  # of pairs, the decoder's side of the same batches

    @classmethod
    def of_batches(
        cls,
        lengths: np.ndarray,
        batch_offsets: np.ndarray,
        *decoder: np.ndarray,
        first_row: int = 0,
    ) -> BatchTable:
        """Return a table of batches without filler or padding, with one row per batch.

        Args:
            lengths: of all rows.
            batch_offsets: int64[batches + 1], where in lengths each batch begins.
            decoder: the lengths of the decoder's side of pairs.
            first_row: number of rows before these.
        """
        starts, num_rows = batch_offsets[:-1], np.diff(batch_offsets)
        rows = lengths[: batch_offsets[-1]]
        num_tokens = np.add.reduceat(rows, starts, dtype=np.int64)
        return cls(
            starts=starts + first_row,
            counts=np.ones_like(num_rows),
            num_rows=num_rows,
            num_filler_rows=np.zeros_like(num_rows),
            num_tokens=num_tokens,
            num_cells=num_tokens,
            longest=np.maximum.reduceat(rows, starts).astype(np.int64),
            decoder=cls.of_batches(*decoder, batch_offsets, first_row=first_row)
            if decoder
            else None,
        )

    @classmethod
    def join(cls, tables: Sequence[BatchTable]) -> BatchTable:
        """Concatenate tables; without any, return an empty table."""
        if len(tables) == 1:
            return tables[0]
        joined: dict[str, Any] = {
            name: np.concatenate([_empty(), *(getattr(table, name) for table in tables)])
            for name in cls.__dataclass_fields__
            if name != "decoder"
        }
        decoders = [table.decoder for table in tables if table.decoder is not None]
        return cls(**joined, decoder=cls.join(decoders) if decoders else None)

    def __len__(self) -> int:
        """Return the number of rows of the table."""
        return len(self.counts)

    @property
    def num_batches(self) -> int:
        """Return the number of batches."""
        return int(self.counts.sum())

    @property
    def num_real_rows(self) -> np.ndarray:
        """Return the number of rows per batch that hold a sequence or a piece of one."""
        num_rows: np.ndarray = self.num_rows - self.num_filler_rows
        return num_rows

    @property
    def num_sequences(self) -> np.ndarray:
        """Return the number of sequences that begin in each batch, without later pieces."""
        later = self.num_later_pieces if len(self.num_later_pieces) else 0
        num_sequences: np.ndarray = self.num_real_rows - later
        return num_sequences

    @property
    def sides(self) -> list[BatchTable]:
        """Return the table of each side: the encoder's and the decoder's, or the only one."""
        return [self] if self.decoder is None else [self, self.decoder]

    @property
    def widths(self) -> np.ndarray:
        """Return the width of each batch's rectangle; meaningless where rows are not padded."""
        widths: np.ndarray = self.num_cells // self.num_rows
        return widths

    @property
    def padding_ratios(self) -> np.ndarray:
        """Return the share of padding cells in each batch, float64."""
        ratios: np.ndarray = 1 - self.num_tokens / self.num_cells
        return ratios

    @property
    def padding_ratio(self) -> float:
        """Return the share of padding cells in all batches together."""
        return 1 - self.add_up(self.num_tokens) / max(self.add_up(self.num_cells), 1)

    def add_up(self, column: np.ndarray) -> int:
        """Return the sum of a column over all batches, 0 for an empty column."""
        return int((column * self.counts).sum()) if len(column) else 0

    def take(self, rows: np.ndarray | slice) -> BatchTable:
        """Return some rows of the table, selected by a mask, by positions or by a slice."""
        taken: dict[str, Any] = {
            name: column[rows]
            for name, column in vars(self).items()
            if name != "decoder" and len(column)
        }
        decoder = None if self.decoder is None else self.decoder.take(rows)
        return replace(self, **taken, decoder=decoder)

    def expand(self) -> BatchTable:
        """Return the same batches with one row per batch."""
        table = self.take(np.repeat(np.arange(len(self)), self.counts))
        numbers = expand_ranges(0, self.counts)
        return table._skip(numbers, np.ones(len(table), np.int64))

    def cut(self, cuts: Sequence[int]) -> list[BatchTable]:
        """Return one table for the batches between each two neighbouring cuts.

        Args:
            cuts: batch numbers, counted through this table, each larger than the one before.
        """
        offsets = to_offsets(self.counts)
        tables = []
        for first, last in pairwise(cuts):
            place = int(np.searchsorted(offsets, first, "right")) - 1
            rows = slice(place, int(np.searchsorted(offsets, last)))
            bounds = np.clip(offsets[place : rows.stop + 1], first, last)
            skipped = bounds[:-1] - offsets[rows]
            tables.append(self.take(rows)._skip(skipped, np.diff(bounds)))
        return tables

    def _skip(self, num_skipped: np.ndarray, counts: np.ndarray) -> BatchTable:
        """Return `counts` batches of each row of the table, after the first `num_skipped`."""
        decoder = None if self.decoder is None else self.decoder._skip(num_skipped, counts)
        starts = self.starts + num_skipped * self.num_real_rows
        return replace(self, starts=starts, counts=counts, decoder=decoder)


# The limits of a batch


@dataclass(frozen=True)
class Limits:
    """The limits of a batch in rows, tokens or both, for one bucket or for all sequences."""

    batch_size: int | None = None
    max_tokens: int | None = None  # no sequence or pair costs more
    padded: bool = False  # a batch costs rows x longest, not the sum of its lengths
    multiple: int = 1  # padded widths are rounded up to it
    key: tuple[int, ...] = ()  # of the bucket, the width of each side
    count: str | None = None  # of pairs: "max", the larger side, or "sum"

    def cut(self, *sides: np.ndarray) -> np.ndarray:
        """Cut sequences or pairs into batches, in the given order.

        Args:
            sides: integers, one per sequence, of each side.

        Returns:
            int64[batches + 1]: batch b holds the sequences [b] up to [b + 1].

        >>> Limits(max_tokens=7).cut(np.array([4, 3, 3, 1])).tolist()
        [0, 2, 4]
        >>> Limits(max_tokens=7, padded=True).cut(np.array([4, 3, 3, 1])).tolist()
        [0, 1, 3, 4]
        >>> Limits(max_tokens=6, count="max").cut(np.array([3, 2, 1]), np.array([1, 4, 2])).tolist()
        [0, 2, 3]
        """
        num_rows = len(sides[0])
        most_rows = self.batch_size or max(num_rows, 1)
        if self.max_tokens is None:
            return np.append(np.arange(0, num_rows, most_rows), num_rows)
        costs = [round_up(side, self.multiple) for side in sides]
        if len(costs) > 1 and self.padded == (self.count == "max"):
            # the widest of both sides, or the tokens of both, as if they were of one
            costs = [np.maximum(*costs) if self.padded else np.add(*costs, dtype=np.int64)]
        return cut_rows(costs, most_rows, self.max_tokens, padded=self.padded)

    def cut_counted(self, counted: LengthCounts, first_row: int) -> BatchTable:
        """Cut sequences in length order into batches, as `cut` does, without looking at each.

        Time and memory grow with the number of distinct lengths. Equal batches are one row of the
        table, but for the last batch of all, which has its own.

        Args:
            first_row: number of sequences before these.

        >>> counted = LengthCounts(np.array([4, 3]), np.array([5, 2]))
        >>> table = Limits(batch_size=2).cut_counted(counted, 0)
        >>> table.num_rows.tolist(), table.counts.tolist(), table.num_tokens.tolist()
        ([2, 2, 1], [2, 1, 1], [8, 7, 3])
        """
        most_rows = self.batch_size or counted.num_sequences
        needed = round_up(counted.lengths, self.multiple)
        max_tokens = self.max_tokens or most_rows * int(needed.max(initial=0))
        found, start = array("q"), first_row
        num_rows = num_tokens = longest = widest = 0  # of the open batch
        columns = counted.lengths.tolist(), needed.tolist(), counted.counts.tolist()
        for length, width, count in zip(*columns, strict=True):
            left = count
            while left:
                if not num_rows:
                    longest, widest = length, width
                room = max_tokens // widest if self.padded else (max_tokens - num_tokens) // length
                most = min(most_rows, room if self.padded else num_rows + room)
                if num_rows == most:  # no more fit: close it
                    batches = 1, num_rows, num_tokens
                    num_rows = num_tokens = 0
                elif not num_rows and left > most:  # the last one stays open: a shorter one may fit
                    batches = (left - 1) // most, most, most * length
                    left -= batches[0] * most
                else:
                    taken = min(most - num_rows, left)
                    num_rows, num_tokens = num_rows + taken, num_tokens + taken * length
                    left -= taken
                    continue
                found.extend((start, *batches, longest))
                start += batches[0] * batches[1]
        if num_rows:
            found.extend((start, 1, num_rows, num_tokens, longest))
        starts, counts, sizes, tokens, widest_rows = np.array(found, np.int64).reshape(-1, 5).T
        return BatchTable(
            starts=starts,
            counts=counts,
            num_rows=sizes,
            num_filler_rows=np.zeros_like(sizes),
            num_tokens=tokens,
            num_cells=tokens,
            longest=widest_rows,
        )

    def is_full(self, batch: BatchTable) -> bool:
        """Return whether a table's only batch has no room for another row of single tokens."""
        num_rows = int(batch.num_rows[0]) + 1
        costs = [
            int((side.widths * num_rows if self.padded else side.num_tokens + 1)[0])
            for side in batch.sides
        ]
        cost = sum(costs) if self.count == "sum" else max(costs)
        return num_rows > (self.batch_size or num_rows) or cost > (self.max_tokens or cost)

    def pad(self, table: BatchTable) -> BatchTable:
        """Return the table with the cells of padded rectangles; unchanged if rows are unpadded."""
        if not self.padded:
            return table
        widths = self.key or [round_up(side.longest, self.multiple) for side in table.sides]
        first, *others = (
            replace(side, num_cells=side.num_rows * width)
            for side, width in zip(table.sides, widths, strict=True)
        )
        return replace(first, decoder=others[0] if others else None)


def make_limits(
    options: ResolvedOptions, keys: Sequence[int | Sequence[int]] | None
) -> list[Limits]:
    """Return the limits of each bucket, the largest first, or of all sequences without keys."""
    made, is_padded, count = [], options.fills_rectangle, options.count
    for key in reversed([()] if keys is None else keys):
        widths = (key,) if isinstance(key, int) else tuple(key)
        most_rows, max_tokens = options.batch_size, options.max_tokens
        if widths and is_padded and max_tokens is not None:  # every row costs its key
            most = max_tokens // (sum(widths) if count == "sum" else max(widths))
            most_rows, max_tokens = min(most_rows or most, most), None
        limits = most_rows, max_tokens, is_padded, options.pad_to_multiple
        made.append(Limits(*limits, widths, count))
    return made


def list_fits(options: ResolvedOptions, num_sides: int) -> list[LengthTest]:
    """Return the tests of the room in a batch, by bucket keys and by the budget of tokens."""
    keys, most, multiple = options.keys or [], options.max_tokens or 0, options.pad_to_multiple

    tests = [
        test_side(OVERFLOW, max(widths), side, num_sides, option="--buckets")
        for side, widths in enumerate(zip(*keys, strict=True))
    ]
    if keys and num_sides > 1:
        tests.append(
            LengthTest(
                OVERFLOW, "--buckets", 0, lambda *sides: find_buckets(keys, *sides) < len(keys)
            )
        )
    if options.count == "sum":

        def has_room(*sides: np.ndarray) -> np.ndarray:
            needed: np.ndarray = np.add(*(round_up(it, multiple) for it in sides), dtype=np.int64)
            return needed <= most

        tests.append(LengthTest(OVERFLOW, "--max-tokens", most, has_room))
    elif most and options.overflow != "split":
        limit = most // multiple * multiple
        tests += [
            test_side(OVERFLOW, limit, side, num_sides, option="--max-tokens")
            for side in range(num_sides)
        ]
    return tests


# Buckets


def find_buckets(keys: Sequence[int | Sequence[int]], *sides: np.ndarray) -> np.ndarray:
    """Return the number of the key that holds each sequence or pair in the fewest cells.

    Args:
        keys: in ascending order; of equals the first is taken.
        sides: the lengths of each side.

    Returns:
        int64[N], len(keys) where no key holds the sequence or pair.

    >>> find_buckets([4, 8], np.array([3, 4, 5, 9])).tolist()
    [0, 0, 1, 2]
    >>> keys = [(2, 9), (4, 4), (9, 9)]
    >>> find_buckets(keys, np.array([2, 2, 5, 10]), np.array([4, 5, 1, 1])).tolist()
    [1, 0, 2, 3]
    """
    widths = np.array(keys, np.int64).reshape(len(keys), -1).T
    known, places = zip(*(np.unique(side, return_inverse=True) for side in widths), strict=True)
    order = np.argsort(widths.sum(0), kind="stable")
    # on the grid of all widths, the key of fewest cells at each place or beyond
    ranks = np.full([len(side) + 1 for side in known], len(keys))
    ranks[tuple(side[order] for side in places)] = np.arange(len(keys))
    for axis in range(len(known)):
        ranks = np.flip(np.minimum.accumulate(np.flip(ranks, axis), axis), axis)
    best = np.append(order, len(keys))[ranks]
    cells = [np.searchsorted(*both) for both in zip(known, sides, strict=True)]
    found: np.ndarray = best[tuple(cells)]
    return found


def choose_buckets(rows: LengthCounts, num_buckets: int) -> list[int]:
    """Choose the bucket keys that need the fewest cells in total, in MXNet's sense.

    A row is padded to the smallest key that holds it. The keys with the least padding are found
    exactly, by dynamic programming over the distinct lengths: with k buckets, the rows up to the
    j-th length cost

        best[k][j] = min over i < j of best[k - 1][i] + length[j] * (rows up to j - rows up to i)

    For each j this is the lowest of several lines, evaluated at length[j], so one pass over the
    lengths takes linear time (the convex hull trick): about 1 us per bucket and distinct length, in
    integers.

    Args:
        rows: counts of at least one row; a length may occur more than once.
        num_buckets: the maximum; there are fewer if there are fewer distinct lengths.

    Returns:
        Keys in ascending order, each a length that occurs; the last is the longest.

    >>> choose_buckets(LengthCounts(np.array([1, 2, 9, 10]), np.array([2, 1, 1, 2])), 2)
    [2, 10]
    """
    distinct = join_counts([rows])
    keys: list[int] = distinct.lengths[::-1].tolist()
    if len(keys) <= num_buckets:
        return keys
    num_rows = [0, *np.cumsum(distinct.counts[::-1]).tolist()]  # up to each key
    # costs[j]: fewest cells for all rows up to the j-th key, with the buckets so far
    costs = [0, *(key * rows for key, rows in zip(keys, num_rows[1:], strict=True))]
    passes = []
    for number in range(2, num_buckets + 1):
        # with one more bucket, and where it begins
        added, begins = [*costs], np.zeros(len(costs), np.int64)
        lines, lowest = list[int](), 0  # candidates for the first row of it, one line each
        for end in range(number, len(costs)):
            new, key = end - 1, keys[end - 1]
            while len(lines) - lowest >= 2:
                before, last = lines[-2:]
                # `last` is never the lowest if `new` crosses `before` no later than `last` does
                if (costs[new] - costs[before]) * (num_rows[last] - num_rows[before]) > (
                    costs[last] - costs[before]
                ) * (num_rows[new] - num_rows[before]):
                    break
                lines.pop()
            lines.append(new)
            while lowest + 1 < len(lines) and (
                costs[lines[lowest + 1]] - key * num_rows[lines[lowest + 1]]
                <= costs[lines[lowest]] - key * num_rows[lines[lowest]]
            ):
                lowest += 1
            begins[end] = lines[lowest]
            added[end] = costs[lines[lowest]] + key * (num_rows[end] - num_rows[lines[lowest]])
        costs = added
        passes.append(begins)
    ends = [len(keys)]
    for begins in reversed(passes):
        ends.append(int(begins[ends[-1]]))
    return [keys[end - 1] for end in reversed(ends)]


# The plan, and the rows of a task


@dataclass(frozen=True)
class ShardRows:
    """The rows of the batches of one shard, batch after batch."""

    indices: np.ndarray  # int64[N], the sequence of each row
    lengths: np.ndarray  # int32[N]
    batch_offsets: np.ndarray  # int64[batches + 1], from 0
    num_cells: np.ndarray  # int64[batches], tokens and padding
    num_filler_rows: np.ndarray  # int64[batches]
    piece_starts: np.ndarray | None = None  # int32[N], where in its sequence each row begins
    row_indices: np.ndarray | None = None  # int32[N], the shared row of the batch it lies in
    continues: np.ndarray | None = None  # uint8[N], FROM_BEFORE and INTO_NEXT
    # Of pairs: the other side, and in the decoder's the row of the encoder's batch, int64[N].
    decoder: ShardRows | None = None
    encoder_rows: np.ndarray | None = None
    next_ids: np.ndarray | None = None  # int64[N], of rows that go on in the next batch, else -1


@dataclass(frozen=True)
class Plan:
    """Batches, of a whole token store or of one task, and the order of their rows."""

    table: BatchTable
    order: Order
    # Only of a whole store:
    bucket_keys: list[Any] | None = None  # lengths, or pairs of them, ascending; some have no batch
    counts: Sequence[SourceCounts] = ()  # of each side, with what is left out

    @property
    def num_batches(self) -> int:
        """Return the number of batches."""
        return self.table.num_batches

    def cut(self, cuts: Sequence[int]) -> list[Plan]:
        """Return the batches of each task.

        Args:
            cuts: the first batch of each task, and the end of the last one.
        """
        return [Plan(table, self.order) for table in self.table.cut(cuts)]

    def find(self, source: PartLengths) -> ShardRows:
        """Find the rows of all batches in the source that was planned.

        Raises:
            LengthsChangedError: its lengths are not those of the plan.
        """
        batches = self.table.expand()
        rows = self.order.find(source, batches.starts, batches.num_real_rows)
        offsets = to_offsets(batches.num_real_rows)
        num_tokens = np.add.reduceat(rows.lengths, offsets[:-1], dtype=np.int64)
        if not np.array_equal(num_tokens, batches.num_tokens):
            raise LengthsChangedError
        decoder, fillers = None, batches.num_filler_rows
        if rows.decoder is not None and batches.decoder is not None:
            cells = batches.decoder.num_cells
            decoder = ShardRows(*rows.decoder[:2], offsets, cells, fillers)
        sizes = offsets, batches.num_cells, fillers
        return ShardRows(*rows[:2], *sizes, *rows[2:5], decoder)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle an order in memory with only the rows of these batches."""
        table, order = self.table, self.order
        if isinstance(order, Rows):
            order = order.take(expand_ranges(table.starts, table.num_real_rows))
            table = replace(table, starts=to_offsets(table.num_real_rows)[:-1])
        return {**vars(self), "table": table, "order": order}


def plan_batches(
    source: PartLengths,
    options: ResolvedOptions,
    counts: Sequence[SourceCounts] = (),
    *,
    pairs: Rows | None = None,
    rounds: Sequence[PartLengths] = (),
) -> Plan:
    """Order the sequences of a source, or pairs, and cut them into batches.

    Args:
        source: the lengths, 0 for a sequence or pair that is left out.
        counts: of the lengths of each side, with what is left out; without any, those of source are
            counted here.
        pairs: the decoder's sequence for each of the source, and its length, which is read only
            where that of the source is kept.
        rounds: the sequences of each round, with the indices of the source, if sequences are
            visited several times; counts must include all visits.

    Raises:
        OverlongError: a sequence or pair does not fit, and the options do not drop it.
    """
    if not counts:
        counts = [SourceCounts(count_lengths(lengths for _, lengths in iter_parts(source)))]
    kept, dropped = counts[0].kept, list[BatchTable]()
    longest = int(kept.lengths.max(initial=0))
    _check_fits(source, pairs, longest, options)
    keys = _choose_keys(kept, options)
    limits = make_limits(options, keys)
    window = options.window or (1 if options.order == "none" else kept.num_sequences)

    def cut(found: PartLengths, number: int) -> tuple[Order, BatchTable]:
        order: Order
        seed = epoch_seed(options.seed, number, stream=ROUNDS) if number else options.seed
        seeded = replace(options, seed=seed)
        if options.shares_rows:
            return _cut_shared(found, longest, seeded)
        if pairs is not None or len(rounds) > 1 or needs_array(options):
            order, tables = _cut_arrays(found, pairs, seeded, limits)
        elif window < kept.num_sequences:
            order, tables = _cut_windows(found, window, limits[0])
        else:
            order, tables = LengthOrder(kept), _cut_counted(kept, limits)
        both = zip(tables, limits, strict=True)
        finished = [_finish(table, limit, options.last_batch, dropped) for table, limit in both]
        return order, BatchTable.join(finished)

    orders, tables = list[Any](), list[BatchTable]()
    for number, found in enumerate(rounds or [source]):
        order, table = cut(found, number)
        for side in table.sides:
            side.starts[:] += sum(len(rows.indices) for rows in orders)
        orders.append(order)
        tables.append(table)
        del order  # or it would be in memory while all are joined
    order, table = join_rows(orders), BatchTable.join(tables)
    if options.shuffle and not options.carries_state:
        table = table.take(shuffled(len(table), seed=options.seed, stream=BATCHES))
    of_sides = [*counts]
    if options.last_batch == "drop":  # listed even if it is 0
        for place, of_side in enumerate(of_sides):
            last = BatchTable.join(dropped).sides[-place]  # without any there is one side
            sums = int(last.num_rows.sum()), int(last.num_tokens.sum())
            of_sides[place] = replace(of_side, left_out={**of_side.left_out, LAST_BATCH: sums})
    return Plan(table, order, keys, of_sides)


def needs_array(options: ResolvedOptions) -> bool:
    """Return whether a plan with these options needs all lengths in one array."""
    has_windows = options.window or options.order == "none"
    return bool(options.shares_rows or options.shuffle or (options.buckets and has_windows))


def _check_fits(
    source: PartLengths, pairs: Rows | None, longest: int, options: ResolvedOptions
) -> None:
    """Raise OverlongError for the longest sequence or pair, the first if several, without room."""
    for test in list_fits(options, 1 if pairs is None else 2):
        if options.overflow == "drop" or (pairs is None and longest <= test.limit):
            continue
        sides = [source.lengths] if pairs is None else [source.lengths, pairs.lengths]
        wrong = np.flatnonzero((sides[0] > 0) & ~test.holds(*sides))
        if len(wrong):
            sizes = np.array(sides, np.int64)[:, wrong].sum(0)
            index = int(wrong[sizes.argmax()])
            raise OverlongError(index, [int(side[index]) for side in sides], test)


def _choose_keys(kept: LengthCounts, options: ResolvedOptions) -> list[Any] | None:
    """Return the bucket keys in ascending order, None without buckets or kept sequences."""
    if options.buckets is None or not len(kept.lengths):
        return None
    if options.num_buckets is None:
        return [*options.buckets]
    rounded = round_up(kept.lengths, options.pad_to_multiple)
    return choose_buckets(LengthCounts(rounded, kept.counts), options.num_buckets)


def _finish(
    table: BatchTable, limits: Limits, last_batch: str, dropped: list[BatchTable]
) -> BatchTable:
    """Keep, drop or fill up the last batch of a bucket, which has its own row in the table."""
    table = limits.pad(table)
    last = table.take(slice(-1, None))
    if last_batch == "keep" or not len(last) or limits.is_full(last):
        return table
    if last_batch == "drop":
        dropped.append(last)
        return table.take(slice(0, -1))
    for side in last.sides:  # views of the table
        side.num_cells[:] = side.widths * limits.batch_size
        side.num_filler_rows[:] = limits.batch_size - side.num_rows
        side.num_rows[:] = limits.batch_size
    return table


# Batches without the lengths of all sequences in memory


def _cut_counted(kept: LengthCounts, limits: list[Limits]) -> list[BatchTable]:
    """Cut sequences in length order into the batches of each bucket, from counts of the lengths.

    Args:
        limits: one per bucket, the largest bucket first.
    """
    numbers, tables, first_row = find_limits(limits, kept.lengths), list[BatchTable](), 0
    for number, limit in enumerate(limits):
        bucket = LengthCounts(*(column[numbers == number] for column in kept))
        tables.append(limit.cut_counted(bucket, first_row))
        first_row += bucket.num_sequences
    return tables


def _cut_windows(
    source: PartLengths, window: int, limits: Limits
) -> tuple[WindowOrder, list[BatchTable]]:
    """Sort each window of the kept sequences by length, and cut them into batches.

    Memory holds a few windows, one batch, and 56 bytes for each batch.
    """
    pieces, num_kept, last_part = list[BatchTable](), list[int](), len(source.part_offsets) - 2
    size = max(window, limits.batch_size or limits.max_tokens or 1)
    waiting, num_waiting = list[np.ndarray](), 0
    unfinished, start = np.empty(0, np.int32), 0  # the last batch, and where it begins
    for number, lengths in iter_parts(source):
        waiting.append(lengths[lengths > 0])
        num_kept.append(len(waiting[-1]))
        num_waiting += num_kept[-1]
        if num_waiting < size and number < last_part:
            continue
        end = num_waiting if number == last_part else num_waiting // window * window
        lengths, left = np.split(np.concatenate(waiting), [end])
        waiting, num_waiting = [left], num_waiting - end
        if window > 1:
            lengths = lengths[length_order(lengths, window=window)]
        lengths = np.concatenate([unfinished, lengths])
        offsets = limits.cut(lengths)[:-1]
        pieces.append(BatchTable.of_batches(lengths, offsets, first_row=start))
        unfinished, start = lengths[offsets[-1] :], start + int(offsets[-1])
    last = np.array([0, len(unfinished)])
    pieces.append(BatchTable.of_batches(unfinished, last, first_row=start))
    return WindowOrder(to_offsets(num_kept), window), [BatchTable.join(pieces)]


# Batches, and rows that sequences share, from the lengths of all sequences


def _cut_arrays(
    source: PartLengths,
    pairs: Rows | None,
    options: ResolvedOptions,
    limits: Sequence[Limits],
) -> tuple[Rows, list[BatchTable]]:
    """Order the kept sequences or pairs, and cut each bucket into batches.

    Args:
        limits: one per bucket, the largest bucket first.
    """
    sides = [source.lengths] if pairs is None else [source.lengths, pairs.lengths]
    order = _choose_order(sides[0], options)
    if options.order == "length":
        for side in reversed(sides):
            order = order[length_order(side[order], window=options.window)]
    bounds = [0, len(order)]
    if len(limits) > 1:
        numbers = find_limits(limits, *(side[order] for side in sides)).astype(np.uint16)
        bounds = to_offsets(np.bincount(numbers, minlength=len(limits))).tolist()
        order = order[np.argsort(numbers, kind="stable")]
        del numbers
    found, tables = [side[order] for side in sides], list[BatchTable]()
    for (start, end), limit in zip(pairwise(bounds), limits, strict=True):
        of_bucket = [side[start:end] for side in found]
        offsets = limit.cut(*of_bucket)
        if options.order == "none" or options.window is not None:
            sort_within_batches(order[start:end], of_bucket, offsets)
        lengths, *decoders = of_bucket
        tables.append(BatchTable.of_batches(lengths, offsets, *decoders, first_row=start))
    decoder = None if pairs is None else Rows(pairs.indices[order], found[1])
    return Rows(order, found[0], decoder=decoder), tables


def _cut_shared(
    source: PartLengths, longest: int, options: ResolvedOptions
) -> tuple[Rows, BatchTable]:
    """Fill the rows that the kept sequences share, and put them into batches.

    A batch of `varlen` is one row, or N rows of one length, filled up with padding. A batch of
    `streams` has the next row of each of B streams.
    """
    rows, row_offsets = fill_rows(_list_rows(source.lengths, options), longest, options)
    offsets, num_rows = row_offsets, options.batch_size
    if num_rows is not None:
        offsets = np.append(row_offsets[:-1:num_rows], row_offsets[-1])
    table = BatchTable.of_batches(rows.lengths, offsets)

    def add_up(column: np.ndarray) -> np.ndarray:
        return np.add.reduceat(column, offsets[:-1], dtype=np.int64)

    if num_rows is None:
        num_cells = add_up(round_up(rows.lengths, options.align_sequences))
    else:
        num_cells = np.full(len(table), num_rows * options.row_length)
        if options.last_batch == "keep" and not options.carries_state:
            num_left = (len(row_offsets) - 2) % num_rows + 1  # rows of the last batch
            num_cells[-1:] = num_left * options.row_length
    table = replace(table, num_cells=num_cells)
    if rows.piece_starts is not None:
        is_later = rows.piece_starts > 0
        second = add_up(is_later & (rows.piece_starts <= options.row_length))
        table = replace(table, num_later_pieces=add_up(is_later), num_split_sequences=second)
    return rows, table


def _list_rows(lengths: np.ndarray, options: ResolvedOptions) -> Rows:
    order = _choose_order(lengths, options)
    return Rows(order, lengths[order])


def _choose_order(lengths: np.ndarray, options: ResolvedOptions) -> np.ndarray:
    """Return the indices of the kept sequences, ascending or shuffled, int64[N]."""
    is_kept = lengths > 0
    if not options.shuffle:
        return np.flatnonzero(is_kept)
    order = shuffled(len(lengths), seed=options.seed)
    return order if is_kept.all() else order[is_kept[order]]


def find_limits(limits: Sequence[Limits], *sides: np.ndarray) -> np.ndarray:
    """Return the index in limits of each row's bucket; the largest bucket comes first."""
    keys = [limit.key for limit in reversed(limits)]
    if not keys[0]:
        return np.zeros(len(sides[0]), np.int64)
    return len(keys) - 1 - find_buckets(keys, *sides)
