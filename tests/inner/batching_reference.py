"""Slow plain-Python oracles for the plan of a pack run: which sequences share a batch, or a row.

`slow_plan` and `slow_plan_of_rounds` process lists of rows, each a (sequence, start, length), step
by step, and return what `plan_batches` must return. Quadratic; small inputs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import combinations, pairwise

import numpy as np
from blake3 import blake3
from shard_reference import batch_cost, slow_cut, slow_length_order

from seqpack_cli.batching.options import PackOptions
from seqpack_cli.batching.plan import BatchTable, Plan, choose_buckets
from seqpack_cli.batching.selection import LengthCounts

Row = tuple[int, int, int]  # sequence, start of the row in it, length


@dataclass(eq=False)
class Parts:
    """A source of lengths in parts, with a record of the parts that were read."""

    parts: Sequence[Sequence[int]]

    def __post_init__(self) -> None:
        self.part_offsets = np.cumsum([0, *map(len, self.parts)])
        self.read: list[int] = []

    @property
    def lengths(self) -> np.ndarray:
        return _store([length for part in self.parts for length in part])

    def part_lengths(self, number: int) -> np.ndarray:
        self.read.append(number)
        return _store(self.parts[number])


def _store(lengths: Sequence[int]) -> np.ndarray:
    """Return lengths as a store does: int32, read-only."""
    array = np.array(lengths, np.int32)
    array.flags.writeable = False
    return array


@dataclass
class Batches:
    """A plan as lists: what each batch holds, and what is dropped."""

    rows: list[list[Row]]
    num_cells: list[int]
    num_filler_rows: list[int]
    num_dropped_sequences: dict[str, int] = field(default_factory=dict)
    num_dropped_tokens: dict[str, int] = field(default_factory=dict)


def list_batches(plan: Plan, source: Parts, cuts: Sequence[int] = ()) -> Batches:
    """Turn a plan into lists, from the rows that its tasks find: one task, or one for each cut."""
    rows: list[list[Row]] = []
    for planned in plan.cut(sorted({0, *cuts, plan.num_batches})):
        found = planned.find(source)
        starts = found.piece_starts
        if starts is None:
            starts = np.zeros(len(found.indices), np.int32)
        columns = (found.indices, starts, found.lengths)
        assert [column.dtype for column in columns] == [np.int64, np.int32, np.int32]
        each = list(zip(*(column.tolist() for column in columns), strict=True))
        rows += [each[start:end] for start, end in pairwise(found.batch_offsets.tolist())]
    table = plan.table.expand()
    assert_measured(table, rows)
    return Batches(
        rows,
        table.num_cells.tolist(),
        table.num_filler_rows.tolist(),
        plan.num_dropped_sequences,
        plan.num_dropped_tokens,
    )


def assert_measured(table: BatchTable, batches: list[list[Row]]) -> None:
    """Check that the table of a plan agrees with its batches."""
    sizes = [[length for _, _, length in rows] for rows in batches]
    assert table.num_real_rows.tolist() == list(map(len, sizes))
    assert table.num_tokens.tolist() == list(map(sum, sizes))
    assert table.longest.tolist() == list(map(max, sizes))
    begun = [sum(start == 0 for _, start, _ in rows) for rows in batches]
    assert table.num_sequences.tolist() == begun
    whole = {index: length for rows in batches for index, start, length in rows if start == 0}
    second = [sum(start > 0 and start == whole[index] for index, start, _ in b) for b in batches]
    assert (table.num_split_sequences.tolist() or [0] * len(batches)) == second


def round_up(length: int, multiple: int) -> int:
    """Count up to the next multiple, one by one."""
    while length % multiple:
        length += 1
    return length


def slow_shuffled(num_items: int, *, seed: int, stream: int = 0) -> list[int]:
    """Sort items by random bits: those of 64 that the items' numbers leave free."""
    drawn = (
        np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(stream,)))
        .random_raw(num_items)
        .tolist()
    )
    num_bits = max(num_items - 1, 1).bit_length()
    return sorted(range(num_items), key=lambda item: (drawn[item] >> num_bits, item))


def slow_window_order(lengths: Sequence[int], window: int | None) -> list[int]:
    """Sort each window of lengths, longest first, ties by index."""
    step = window or max(len(lengths), 1)
    return [
        first + index
        for first in range(0, len(lengths), step)
        for index in slow_length_order(lengths[first : first + step])
    ]


def num_cells(lengths: Sequence[int], keys: Sequence[int]) -> int:
    """Count the cells of rows, each padded to the smallest key that is long enough."""
    return sum(min(key for key in keys if key >= length) for length in lengths)


def slow_fewest_cells(lengths: Sequence[int], num_buckets: int) -> int:
    """Try all sets of at most num_buckets lengths that include the longest one."""
    *shorter, longest = sorted(set(lengths))
    return min(
        num_cells(lengths, [*keys, longest])
        for num_keys in range(min(num_buckets, len(shorter) + 1))
        for keys in combinations(shorter, num_keys)
    )


def slow_best_fit(lengths: Sequence[int], capacity: int) -> list[int]:
    """Put one sequence at a time into the fullest bin; of equals, the one unchanged longest."""
    rooms: list[int] = []
    changed: list[int] = []  # the last sequence put into each bin
    bin_of = []
    for moment, length in enumerate(lengths):
        fitting = [number for number, room in enumerate(rooms) if room >= length]
        if fitting:
            chosen = min(fitting, key=lambda number: (rooms[number], changed[number]))
        else:
            chosen = len(rooms)
            rooms.append(capacity)
            changed.append(moment)
        rooms[chosen] -= length
        changed[chosen] = moment
        bin_of.append(chosen)
    return bin_of


def slow_copy(
    source: Sequence[int],
    target: Sequence[int],
    ranges: Sequence[tuple[int, int, int]],
) -> list[int]:
    """Copy ranges (source start, target start, length) entry by entry."""
    copied = [*target]
    for start, to, length in ranges:
        for place in range(length):
            copied[to + place] = source[start + place]
    return copied


class _Ledger:
    """The rows that are kept, and the dropped ones by reason."""

    def __init__(
        self, lengths: Sequence[int], options: PackOptions, is_selected: Sequence[bool] | None
    ) -> None:
        order = list(range(len(lengths)))
        if options.shuffle:
            order = slow_shuffled(len(lengths), seed=options.seed)
        self.rows: list[Row] = [(index, 0, lengths[index]) for index in order]
        self.sequences: dict[str, int] = {}
        self.tokens: dict[str, int] = {}
        if options.drop_shorter is not None:
            self.drop("drop_shorter", at_least=options.drop_shorter)
        if options.drop_longer is not None:
            self.drop("drop_longer", at_most=options.drop_longer)
        if is_selected is not None:
            self.count("where", [row for row in self.rows if not is_selected[row[0]]])
            self.rows = [row for row in self.rows if is_selected[row[0]]]

    def drop(self, reason: str, *, at_least: int = 0, at_most: int | None = None) -> None:
        """Drop rows that are shorter or longer."""
        kept = [
            row
            for row in self.rows
            if row[2] >= at_least and (at_most is None or row[2] <= at_most)
        ]
        self.count(reason, [row for row in self.rows if row not in kept])
        self.rows = kept

    def count(self, reason: str, rows: list[Row]) -> None:
        """Count rows as dropped."""
        self.sequences[reason] = self.sequences.get(reason, 0) + len(rows)
        self.tokens[reason] = self.tokens.get(reason, 0) + sum(row[2] for row in rows)


def _sort_rows(rows: list[Row], window: int | None = None) -> list[Row]:
    return [rows[index] for index in slow_window_order([row[2] for row in rows], window)]


def _permute(batches: Batches, options: PackOptions) -> Batches:
    """Shuffle the finished batches."""
    if options.shuffle:
        places = slow_shuffled(len(batches.rows), seed=options.seed, stream=1)
        batches.rows = [batches.rows[place] for place in places]
        batches.num_cells = [batches.num_cells[place] for place in places]
        batches.num_filler_rows = [batches.num_filler_rows[place] for place in places]
    return batches


def slow_plan(
    lengths: Sequence[int], options: PackOptions, is_selected: Sequence[bool] | None = None
) -> Batches | None:
    """Plan batches or rows of any layout; None if a sequence is too long."""
    batches = _plan_round(lengths, options, is_selected)
    return None if batches is None else _permute(batches, options)


def slow_plan_of_rounds(
    lengths: Sequence[int], options: PackOptions, rounds: Sequence[Sequence[bool]]
) -> Batches | None:
    """Plan each round by itself, with bucket keys for all, and shuffle the batches of all.

    The ledger has only what is dropped for want of room, in all rounds together.
    """
    if options.buckets == "auto":
        least, most = options.drop_shorter or 1, options.drop_longer or max(lengths, default=0)
        if options.max_tokens is not None:
            most = min(
                most, options.max_tokens // options.pad_to_multiple * options.pad_to_multiple
            )
        needed = [
            round_up(length, options.pad_to_multiple)
            for is_in in rounds
            for length, is_here in zip(lengths, is_in, strict=True)
            if is_here and least <= length <= most
        ]
        ones = LengthCounts(np.array(needed, np.int64), np.ones(len(needed), np.int64))
        keys = choose_buckets(ones, options.num_buckets or 0) if needed else [1]
        options = replace(options, buckets=tuple(keys), overflow=options.overflow or "error")
    joined, plans = Batches([], [], []), list[Batches]()
    for number, is_in in enumerate(rounds):
        seeds = np.random.SeedSequence(options.seed, spawn_key=(4, number))
        seed = int(seeds.generate_state(1, np.uint64)[0]) if number else options.seed
        batches = _plan_round(lengths, replace(options, seed=seed), is_in)
        if batches is None:
            return None
        joined.rows += batches.rows
        joined.num_cells += batches.num_cells
        joined.num_filler_rows += batches.num_filler_rows
        plans.append(batches)
    for reason in ("overflow", "last_batch"):
        made = [each for each in plans if reason in each.num_dropped_sequences]
        if made:
            joined.num_dropped_sequences[reason] = sum(
                each.num_dropped_sequences[reason] for each in made
            )
            joined.num_dropped_tokens[reason] = sum(
                each.num_dropped_tokens[reason] for each in made
            )
    return _permute(joined, options)


def _plan_round(
    lengths: Sequence[int], options: PackOptions, is_selected: Sequence[bool] | None
) -> Batches | None:
    plan = _slow_bins if options.shares_rows else _slow_rows
    return plan(lengths, options, is_selected)


def _slow_rows(
    lengths: Sequence[int], options: PackOptions, is_selected: Sequence[bool] | None
) -> Batches | None:
    """Plan `packed` or `padded` batches, not shuffled yet; None if a sequence is too long.

    Shuffle, choose, sort each window, split by bucket with the largest first, cut each bucket
    greedily, keep, drop or fill its last batch, sort the rows of each batch.
    """
    ledger = _Ledger(lengths, options, is_selected)
    limits = []
    if isinstance(options.buckets, tuple):
        limits.append((options.buckets[-1], options.overflow != "error"))
    if options.max_tokens is not None:
        widest = max(w for w in range(options.max_tokens + 1) if w % options.pad_to_multiple == 0)
        limits.append((widest, options.overflow == "drop"))
    for limit, may_drop in limits:
        is_asked = options.overflow == "drop"
        if may_drop and (is_asked or any(row[2] > limit for row in ledger.rows)):
            ledger.drop("overflow", at_most=limit)
        elif not may_drop and any(row[2] > limit for row in ledger.rows):
            return None
    rows = ledger.rows
    if options.order == "length":
        rows = _sort_rows(rows, options.window)
    batches = Batches([], [], [], ledger.sequences, ledger.tokens)
    for key, bucket in _split_by_bucket(rows, options):
        _cut_bucket(batches, bucket, key, options, ledger)
    if options.last_batch == "drop":
        ledger.count("last_batch", [])
    batches.rows = [_sort_rows(batch) for batch in batches.rows]
    return batches


def _split_by_bucket(rows: list[Row], options: PackOptions) -> list[tuple[int | None, list[Row]]]:
    """Return the key and rows of each bucket, the largest first; all rows if there are none."""
    if options.buckets is None or not rows:
        return [(None, rows)]
    if isinstance(options.buckets, tuple):
        keys = list(options.buckets)
    else:
        needed = np.array([round_up(row[2], options.pad_to_multiple) for row in rows])
        one_each = LengthCounts(needed, np.ones_like(needed))
        keys = choose_buckets(one_each, options.num_buckets or 0)
    key_of = {row: min(key for key in keys if key >= row[2]) for row in rows}
    return [(key, [row for row in rows if key_of[row] == key]) for key in reversed(keys)]


def _cut_bucket(
    batches: Batches,
    rows: list[Row],
    key: int | None,
    options: PackOptions,
    ledger: _Ledger,
) -> None:
    padded = options.layout == "padded"

    def needed(length: int) -> int:
        return key if padded and key is not None else round_up(length, options.pad_to_multiple)

    def fits(lengths: Sequence[int]) -> bool:
        if options.batch_size is not None and len(lengths) > options.batch_size:
            return False
        cost = batch_cost([needed(length) for length in lengths], padded=padded)
        return options.max_tokens is None or cost <= options.max_tokens

    limits = {"batch_size": options.batch_size, "max_tokens": options.max_tokens, "padded": padded}
    left = iter(rows)
    cut = slow_cut([needed(row[2]) for row in rows], **limits)  # type: ignore[arg-type]
    made = [[next(left) for _ in batch] for batch in cut]
    num_filler_rows = [0] * len(made)
    if made and options.last_batch != "keep":
        last = [row[2] for row in made[-1]]
        if options.last_batch == "drop" and fits([*last, 1]):
            ledger.count("last_batch", made.pop())
            num_filler_rows.pop()
        while options.last_batch == "pad" and fits([*last, *[1] * (num_filler_rows[-1] + 1)]):
            num_filler_rows[-1] += 1
    batches.rows += made
    batches.num_filler_rows += num_filler_rows
    for batch, filler in zip(made, num_filler_rows, strict=True):
        width = key if key is not None else max(needed(row[2]) for row in batch)
        num_tokens = sum(row[2] for row in batch)
        batches.num_cells.append((len(batch) + filler) * width if padded else num_tokens)


def _slow_bins(
    lengths: Sequence[int], options: PackOptions, is_selected: Sequence[bool] | None
) -> Batches | None:
    """Plan `varlen` rows, not shuffled yet; None if a sequence is too long.

    Shuffle, choose, split, and put one piece after the other into a bin. The pieces of a bin keep
    the order in which they were put in.
    """
    capacity = options.max_tokens or 0
    ledger = _Ledger(lengths, options, is_selected)
    if options.overflow == "drop":
        ledger.drop("overflow", at_most=capacity)
    elif options.overflow == "error" and any(row[2] > capacity for row in ledger.rows):
        return None
    pieces = [
        (index, start, min(capacity, length - start))
        for index, _, length in ledger.rows
        for start in range(0, length, capacity)
    ]
    sizes = [piece[2] for piece in pieces]
    if options.fill == "best-fit":
        order = slow_length_order(sizes)
        bin_of = dict(
            zip(order, slow_best_fit([sizes[place] for place in order], capacity), strict=True)
        )
        bins = [
            [piece for place, piece in enumerate(pieces) if bin_of[place] == number]
            for number in range(len(set(bin_of.values())))
        ]
    else:
        left = iter(pieces)
        cut = slow_cut(sizes, batch_size=None, max_tokens=capacity, padded=False)
        bins = [[next(left) for _ in batch] for batch in cut]
    num_tokens = [sum(piece[2] for piece in row) for row in bins]
    return Batches(bins, num_tokens, [0] * len(bins), ledger.sequences, ledger.tokens)


def slow_mix(document_hash: int, seed: int, purpose: str) -> int:
    """Mix one hash in integers without limit, of which 64 bits are kept."""
    key = blake3(f"{purpose} {seed}".encode("ascii")).digest()[:8]
    mixed = document_hash ^ sum(byte << 8 * place for place, byte in enumerate(key))
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB % 2**64
    return mixed ^ (mixed >> 31)


def slow_split(document_hash: int, shares: Sequence[Fraction], seed: int) -> int:
    """Return the number of the first split that ends above a hash."""
    end = Fraction(0)
    for number, share in enumerate(shares):
        end += share
        if slow_mix(document_hash, seed, "split") < math.floor(end * 2**64):
            return number
    raise AssertionError("shares add up to less than 1")


def slow_visits(document_hash: int, passes: Fraction, seed: int) -> int:
    """Count the visits of a document."""
    whole = math.floor(passes)
    bound = math.floor((passes - whole) * 2**64)
    return whole + (slow_mix(document_hash, seed, "passes") < bound)


def slow_rounds(document_hash: int, num_visits: int, num_rounds: int, seed: int) -> set[int]:
    """Return the rounds of a document: visit k is in the round where k / visits of them are over.

    Counted from the round that follows from the hash.
    """
    first = slow_mix(document_hash, seed, "rounds") % num_rounds
    return {(first + visit * num_rounds // num_visits) % num_rounds for visit in range(num_visits)}
