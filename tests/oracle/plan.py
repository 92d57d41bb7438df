"""The plan of docs/formats.md, written from that page alone: nothing of seqpack is used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, TypeVar

import numpy as np

from oracle.selection import Refused, Selected, is_first_split, list_limits, round_seed

Item = TypeVar("Item")
SHARED = ("varlen", "streams")  # layouts whose rows are shared by sequences
Options = dict[str, Any]  # as the manifest of shards has them, and `layout`
DEFAULTS: Options = {
    "batch_size": None,
    "max_tokens": None,
    "count": None,
    "order": "length",
    "window": None,
    "shuffle": None,
    "seed": 0,
    "buckets": None,
    "num_buckets": None,
    "fill": None,
    "overflow": None,
    "last_batch": "keep",
    "drop_shorter": None,
    "drop_longer": None,
    "where": [],
    "keep_without_target": False,
    "split": None,
    "split_name": None,
    "split_seed": 0,
    "split_by": None,
    "passes": None,
    "share": None,
    "max_passes": None,
    "drop_column": [],
    "store_column": None,
    "pad_to_multiple": 1,
    "align_sequences": 1,
    "shard_bytes": 67_108_864,
}


@dataclass
class Row:
    """A sequence, or a piece of one."""

    index: int
    start: int
    length: int
    row_index: int = 0  # the shared row in its batch, or the stream
    goes_on_before: bool = False  # from the batch before
    goes_on_after: bool = False  # in the next batch


@dataclass
class PlannedBatch:
    """The rows of a batch."""

    rows: list[Row]
    width: int = 0  # of a padded one, and of rows that sequences share
    num_filler_rows: int = 0
    num_rows: int = 1  # of a rectangle whose rows are shared
    encoder_rows: list[int] | None = None  # of the decoder's side of pairs


@dataclass
class PagePlan:
    """All batches in their order."""

    batches: list[PlannedBatch]
    keys: list[int] | None = None
    dropped: dict[str, list[int]] = field(default_factory=dict)  # by reason: lengths
    repeated: list[int] = field(default_factory=list)  # lengths of visits beyond the first


def fill_in(layout: str, given: Options, *, has_pairs: bool = False) -> Options:
    """Return the options as the manifest records them."""
    options = {**DEFAULTS, **given}
    if has_pairs and options["max_tokens"] is not None and options["count"] is None:
        options["count"] = "max"
    if layout in SHARED:
        if layout == "streams" and options["batch_size"] is None:
            options["batch_size"] = 64
        default = "best-fit" if layout == "varlen" else "chunk"
        options["fill"] = options["fill"] or default
        is_best_fit = options["fill"] == "best-fit"
        options["order"] = "length" if is_best_fit else "none"
        options["overflow"] = options["overflow"] or "split"
        if options["shuffle"] is None:
            options["shuffle"] = is_best_fit
    elif options["batch_size"] is None and options["max_tokens"] is None:
        options["batch_size"] = 64
    if options["buckets"] == "auto" and options["num_buckets"] is None:
        options["num_buckets"] = 8
    options["shuffle"] = bool(options["shuffle"])
    if options["shuffle"] and layout not in SHARED and options["order"] == "length":
        options["window"] = options["window"] or 4096
    has_passes = options["passes"] or options["share"]
    options["seed"] = options["seed"] if options["shuffle"] or has_passes else 0
    if options["share"] and options["max_passes"] is None:
        options["max_passes"] = "1"
    return options


def permute(num_items: int, seed: int, purpose: int) -> list[int]:
    """Return the order that the page defines."""
    raw = np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(purpose,))).random_raw(num_items)
    bits = max(num_items - 1, 1).bit_length()
    keys = sorted((int(key) >> bits << bits) | index for index, key in enumerate(raw))
    return [key & ((1 << bits) - 1) for key in keys]


def round_up(length: int, multiple: int) -> int:
    """Return the next multiple."""
    return -(-length // multiple) * multiple


def make_plan(lengths: list[int], layout: str, options: Options, selected: Selected) -> PagePlan:
    """Follow the steps of the page."""
    dropped = _find_dropped(lengths, options, selected)
    left_out = {index for indices in dropped.values() for index in indices}
    found = {name: [lengths[i] for i in at] for name, at in dropped.items()}
    plan = PagePlan([], None, found)
    plan.repeated = [
        length
        for length, count in zip(lengths, selected.visits, strict=True)
        for _ in range(count - 1)
    ]
    visited = [index for some in selected.rounds for index in some if index not in left_out]
    if not visited:
        raise Refused("no batch is left")
    plan.keys = _choose_keys([lengths[index] for index in visited], options)
    for number, some in enumerate(selected.rounds):
        order: list[int] = list(range(len(lengths)))
        seed = round_seed(options["seed"], number)
        if options["shuffle"]:
            order = permute(len(lengths), seed, 0)
        taken = [index for index in order if index in some and index not in left_out]
        rows = [Row(index, 0, lengths[index]) for index in taken]
        if layout in SHARED:
            deal = _deal_streams if layout == "streams" else _deal_rows
            filled = _fill_rows(rows, options)
            if options["shuffle"] and options["fill"] == "best-fit" and options["batch_size"]:
                filled = [filled[place] for place in permute(len(filled), seed, 5)]
            plan.batches += deal(filled, options)
        else:
            _cut_buckets(plan, rows, layout, options)
    if not plan.batches:
        raise Refused("no batch is left")
    if options["shuffle"] and layout != "streams":
        places = permute(len(plan.batches), options["seed"], 1)
        plan.batches = [plan.batches[place] for place in places]
    return plan


def _find_dropped(lengths: list[int], options: Options, selected: Selected) -> dict[str, list[int]]:
    """Return the sequences that step 1 drops, by reason."""
    dropped: dict[str, list[int]] = {}
    left = dict(enumerate(lengths))

    def drop(reason: str, is_dropped: Callable[[int], bool]) -> None:
        leave_out(reason, [index for index, length in left.items() if is_dropped(length)])

    def leave_out(reason: str, found: list[int]) -> None:
        dropped[reason] = dropped.get(reason, []) + found
        for index in found:
            del left[index]

    def check(limit: int) -> None:
        longest = max(left, key=left.__getitem__, default=None)
        if longest is not None and left[longest] > limit:
            raise Refused(f"sequence {longest} ", f"has {left[longest]} tokens", f"allows {limit}")

    if options["split_name"] is not None:
        leave_out("other_splits", [index for index in left if not selected.in_split[index]])
    if options["drop_shorter"] is not None:
        drop("drop_shorter", lambda length: length < options["drop_shorter"])
    if options["drop_longer"] is not None:
        drop("drop_longer", lambda length: length > options["drop_longer"])
    if options["where"]:
        leave_out("where", [index for index in left if not selected.fits[index]])
    if (has_target := selected.has_target) is not None:
        leave_out("no_target", [index for index in left if not has_target[index]])
    limits = list_limits(options)
    if limits and options["overflow"] == "drop":
        drop("overflow", lambda length: length > min(limits))
    if is_first_split(options) and (options["passes"] or options["share"]):
        leave_out("passes", [index for index in left if not selected.visits[index]])
    for limit in limits:
        check(limit)
    return dropped


def _cut_buckets(plan: PagePlan, rows: list[Row], layout: str, options: Options) -> None:
    """Steps 3 to 7."""
    if options["order"] == "length":
        window = options["window"] or max(len(rows), 1)
        runs = [rows[start : start + window] for start in range(0, len(rows), window)]
        rows = [row for run in runs for row in sorted(run, key=lambda row: -row.length)]
    for key in [None] if plan.keys is None else reversed(plan.keys):
        bucket = rows
        if key is not None:
            assert plan.keys is not None
            keys = plan.keys
            bucket = [row for row in rows if min(k for k in keys if k >= row.length) == key]
        _cut_bucket(plan, bucket, key, layout, options)


def _cut_bucket(
    plan: PagePlan, rows: list[Row], key: int | None, layout: str, options: Options
) -> None:
    def width(rows: Iterable[Row]) -> int:
        return key or round_up(max(row.length for row in rows), options["pad_to_multiple"])

    def breaks_limit(rows: list[Row]) -> bool:
        cost = len(rows) * width(rows) if layout == "padded" else sum(row.length for row in rows)
        too_many = options["batch_size"] is not None and len(rows) > options["batch_size"]
        return too_many or (options["max_tokens"] is not None and cost > options["max_tokens"])

    batches = cut(rows, breaks_limit)
    num_filler = 0
    if batches and not breaks_limit([*batches[-1], Row(-1, 0, 1)]):
        last = batches[-1]
        if options["last_batch"] == "drop":
            plan.dropped.setdefault("last_batch", []).extend(row.length for row in batches.pop())
        if options["last_batch"] == "pad":
            limits = [options["batch_size"]] if options["batch_size"] else []
            if key is not None and options["max_tokens"] is not None:
                limits.append(options["max_tokens"] // key)
            num_filler = min(limits) - len(last)
    if options["last_batch"] == "drop":
        plan.dropped.setdefault("last_batch", [])
    for number, batch in enumerate(batches, 1):
        batch.sort(key=lambda row: -row.length)
        is_last = number == len(batches)
        plan.batches.append(PlannedBatch(batch, width(batch), num_filler if is_last else 0))


def cut(rows: list[Item], breaks_limit: Callable[[list[Item]], bool]) -> list[list[Item]]:
    """Step 5."""
    batches: list[list[Item]] = []
    for row in rows:
        if batches and not breaks_limit([*batches[-1], row]):
            batches[-1].append(row)
        else:
            batches.append([row])
    return batches


def _choose_keys(lengths: list[int], options: Options) -> list[int] | None:
    """Try all choices of keys."""
    if options["buckets"] != "auto":
        return options["buckets"]
    counts = Counter(round_up(length, options["pad_to_multiple"]) for length in lengths)
    *below, longest = sorted(counts)
    num_keys = min(options["num_buckets"], len(counts))
    best: tuple[int, list[int]] | None = None
    for some in combinations(below, num_keys - 1):
        keys = [*some, longest]
        cells = sum(min(k for k in keys if k >= length) * n for length, n in counts.items())
        rank = (cells, [-key for key in reversed(keys)])
        best = min(best, rank) if best else rank
    assert best is not None
    return [-key for key in reversed(best[1])]


def _fill_rows(rows: list[Row], options: Options) -> list[list[Row]]:
    """Return the sequences and pieces of each row that they share."""
    most = options["max_tokens"]

    def rounded(row: Row) -> int:
        return round_up(row.length, options["align_sequences"])

    if options["fill"] == "chunk":
        return _cut_chunks(rows, most)
    pieces = [
        Row(row.index, start, min(most, row.length - start))
        for row in rows
        for start in range(0, row.length, most)
    ]
    if options["fill"] == "sequential":
        return cut(pieces, lambda found: sum(map(rounded, found)) > most)
    bins: list[list[int]] = []  # places in pieces
    rooms: list[tuple[int, int]] = []  # of each bin: room, and since when
    by_length = sorted(range(len(pieces)), key=lambda place: -rounded(pieces[place]))
    for now, place in enumerate(by_length):
        length = rounded(pieces[place])
        fitting = [(*room, number) for number, room in enumerate(rooms) if room[0] >= length]
        if not fitting:
            fitting = [(most, now, len(bins))]
            bins.append([])
            rooms.append((most, now))
        room, _, number = min(fitting)
        bins[number].append(place)
        rooms[number] = (room - length, now)
    return [[pieces[place] for place in sorted(found)] for found in bins]


def _cut_chunks(rows: list[Row], most: int) -> list[list[Row]]:
    """Take one token after another; a row ends with its last token that fits."""
    chunks: list[list[Row]] = []
    num_before = 0  # tokens of all chunks
    for row in rows:
        for start in range(row.length):
            if num_before % most == 0:
                chunks.append([])
            if start == 0 or num_before % most == 0:
                chunks[-1].append(Row(row.index, start, 0))
            chunks[-1][-1].length += 1
            num_before += 1
    return chunks


def _deal_rows(filled: list[list[Row]], options: Options) -> list[PlannedBatch]:
    """Put rows into the batches of varlen."""
    if options["batch_size"] is None:
        return [PlannedBatch(row) for row in filled]
    batches = []
    for first in range(0, len(filled), options["batch_size"]):
        some = filled[first : first + options["batch_size"]]
        for number, found in enumerate(some):
            for row in found:
                row.row_index = number
        num_rows = options["batch_size"] if options["last_batch"] == "pad" else len(some)
        rows = [row for found in some for row in found]
        batches.append(PlannedBatch(rows, options["max_tokens"], num_rows=num_rows))
    return batches


def _deal_streams(filled: list[list[Row]], options: Options) -> list[PlannedBatch]:
    """Put rows into the batches of streams."""
    num_streams = options["batch_size"]
    waiting = list(filled)
    streams = []
    for number in range(num_streams):
        num_rows = len(filled) // num_streams + (num_streams - number <= len(filled) % num_streams)
        streams.append([waiting.pop(0) for _ in range(num_rows)])
    batches = []
    for step in range(len(streams[-1])):
        rows = []
        for number, stream in enumerate(streams):
            if step >= len(stream):
                continue
            for row in stream[step]:
                row.row_index = number
            if step > 0:
                stream[step][0].goes_on_before = stream[step][0].start > 0
            if step + 1 < len(stream):
                stream[step][-1].goes_on_after = stream[step + 1][0].start > 0
            rows += stream[step]
        batches.append(PlannedBatch(rows, options["max_tokens"], num_rows=num_streams))
    return batches
