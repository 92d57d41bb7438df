"""The plan of pairs of docs/formats.md, written from that page alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction

from oracle.plan import Options, PagePlan, PlannedBatch, Row, cut, permute, round_up
from oracle.selection import (
    Refused,
    check_condition,
    count_visits,
    find_passes,
    find_splits,
    holds,
    is_first_split,
    is_in_round,
    round_seed,
)
from oracle.stores import PageStore

Key = tuple[int, int]  # one number for each side
SIDES = ("encoder", "decoder")
TOTALS = {"max": max, "sum": sum}


@dataclass
class Pair:
    """A document with a sequence on at least one side."""

    store: int  # the place of both stores in theirs
    document: int  # in its store
    rows: Key  # of the sequences, counted in their stores; -1 for none
    indices: Key  # of the sequences, counted over all stores; -1 for none
    lengths: Key  # 0 for none
    visits: int = 1


@dataclass
class PairPlan:
    """All batches of pairs in their order."""

    keys: list[Key] | None
    passes: list[Fraction] = field(default_factory=list)  # of each store
    batches: list[tuple[list[Pair], Key, int]] = field(default_factory=list)  # widths, fillers
    dropped: dict[str, list[Key]] = field(default_factory=dict)  # by reason: lengths
    repeated: list[Key] = field(default_factory=list)  # lengths of visits beyond the first

    def view(self, side: int, layout: str) -> PagePlan:
        """Return the plan of one side."""
        plan = PagePlan([])
        plan.dropped = {
            reason: [lengths[side] for lengths in found if lengths[side]]
            for reason, found in self.dropped.items()
        }
        plan.repeated = [lengths[side] for lengths in self.repeated]
        for pairs, widths, num_filler in self.batches:
            rows = list(range(len(pairs)))
            if side and layout == "packed":
                rows.sort(key=lambda row: -pairs[row].lengths[1])
            found = [Row(pairs[row].indices[side], 0, pairs[row].lengths[side]) for row in rows]
            plan.batches.append(PlannedBatch(found, widths[side], num_filler, encoder_rows=rows))
        return plan


def make_pair_plan(sides: list[list[PageStore]], layout: str, options: Options) -> PairPlan:
    """Follow the steps of the page."""
    num_sequences = sum(len(store.sequences) for store in sides[0])
    keys = options["buckets"] and [tuple(key) for key in options["buckets"]]
    plan = PairPlan(keys)
    pairs = _drop(plan, list(_join_sides(*sides)), sides, options)
    plan.repeated = [pair.lengths for pair in pairs for _ in range(pair.visits - 1)]
    num_rounds = max(1, *(-int(-number // 1) for number in plan.passes))
    by_index = {pair.indices[0]: pair for pair in pairs}
    for number in range(num_rounds):
        order = list(range(num_sequences))
        if options["shuffle"]:
            order = permute(num_sequences, round_seed(options["seed"], number), 0)
        taken = [by_index[index] for index in order if index in by_index]
        hashes = [sides[0][pair.store].hashes[pair.document] for pair in taken]
        taken = [
            pair
            for pair, found in zip(taken, hashes, strict=True)
            if is_in_round(found, options["seed"], number, num_rounds, pair.visits)
        ]
        if options["order"] == "length":
            window = options["window"] or max(len(taken), 1)
            runs = [taken[start : start + window] for start in range(0, len(taken), window)]
            taken = [pair for run in runs for pair in sorted(run, key=_rank)]
        for key in [None] if keys is None else reversed(keys):
            bucket = [p for p in taken if key is None or find_key(p.lengths, keys or []) == key]
            _cut_bucket(plan, bucket, key, layout, options)
    if not plan.batches:
        raise Refused("no batch is left")
    if options["shuffle"]:
        places = permute(len(plan.batches), options["seed"], 1)
        plan.batches = [plan.batches[place] for place in places]
    return plan


def options_of_side(options: Options, prefix: str) -> Options:
    """Return the options as they choose the columns of a side."""
    names: list[str] = options["drop_column"]
    if not prefix:
        kept = [name for name in names if not name.startswith("decoder.")]
        return {**options, "drop_column": kept}
    names = [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
    return {**options, "drop_column": names, "store_column": None}


def find_key(lengths: Key, keys: list[Key]) -> Key | None:
    """Return the key that a pair belongs to."""
    fitting = [key for key in sorted(keys) if key[0] >= lengths[0] and key[1] >= lengths[1]]
    return min(fitting, key=sum) if fitting else None


def _rank(pair: Pair) -> Key:
    return -pair.lengths[0], -pair.lengths[1]


def _join_sides(*sides: list[PageStore]) -> Iterator[Pair]:
    first = [0, 0]  # sequences of the stores before
    for number, stores in enumerate(zip(*sides, strict=True)):
        rows = [{d: row for row, d in enumerate(store.documents)} for store in stores]
        assert len(stores[0].hashes) == len(stores[1].hashes)
        assert [len(found) for found in rows] == [len(store.sequences) for store in stores]
        for document in range(len(stores[0].hashes)):
            encoder, decoder = (found.get(document, -1) for found in rows)
            if (encoder, decoder) == (-1, -1):
                continue
            yield Pair(
                *(number, document, (encoder, decoder)),
                (
                    encoder if encoder < 0 else first[0] + encoder,
                    decoder if decoder < 0 else first[1] + decoder,
                ),
                (
                    0 if encoder < 0 else len(stores[0].sequences[encoder]),
                    0 if decoder < 0 else len(stores[1].sequences[decoder]),
                ),
            )
        first = [before + len(store.sequences) for before, store in zip(first, stores, strict=True)]


def _drop(
    plan: PairPlan, pairs: list[Pair], sides: list[list[PageStore]], options: Options
) -> list[Pair]:
    """Leave out pairs as in step 1, and count the visits of the others."""
    asks_target = _asks_target(sides[1], options)
    for text in options["where"]:
        bare = text.strip().removeprefix("decoder.")
        check_condition(bare, sides[bare != text.strip()])
    plan.dropped = {reason: [] for reason in _list_reasons(asks_target, options)}
    splits = [list(find_splits(store, options)) if options["split"] else [] for store in sides[0]]
    left, unfit = list[Pair](), list[Pair]()
    for pair in pairs:
        stores = (sides[0][pair.store], sides[1][pair.store])
        split = splits[pair.store][pair.rows[0]] if options["split"] and pair.lengths[0] else None
        reasons = _find_reasons(pair, stores, split, asks_target, plan.keys, options)
        reason, may_drop = next(reasons, (None, True))
        if reason is None or not may_drop:
            left.append(pair)
            unfit += [] if may_drop else [pair]
        else:
            plan.dropped[reason].append(pair.lengths)
    num_tokens = [
        sum(pair.lengths[0] for pair in left if pair.store == number)
        for number in range(len(sides[0]))
    ]
    plan.passes = find_passes(num_tokens, options)
    for pair in left:
        found = sides[0][pair.store].hashes[pair.document]
        pair.visits = count_visits(found, options["seed"], plan.passes[pair.store])
        if not pair.visits:
            plan.dropped["passes"].append(pair.lengths)
    if any(pair.visits for pair in unfit):
        raise Refused(" tokens")
    return [pair for pair in left if pair.visits]


def _list_reasons(asks_target: bool, options: Options) -> list[str]:
    names = ["encoder.empty", "decoder.empty"]
    names += ["other_splits"] if options["split_name"] is not None else []
    for reason in ("drop_shorter", "drop_longer"):
        names += [f"{side}.{reason}" for side in SIDES if options[reason] is not None]
    names += ["where"] if options["where"] else []
    names += ["no_target"] if asks_target else []
    if is_first_split(options) and (options["passes"] or options["share"]):
        names.append("passes")
    is_dropped, by_tokens = options["overflow"] == "drop", options["max_tokens"] is not None
    has_keys = isinstance(options["buckets"], list) and is_dropped
    if has_keys or (is_dropped and by_tokens and options["count"] == "max"):
        names += ["encoder.overflow", "decoder.overflow"]
    if has_keys or (is_dropped and by_tokens and options["count"] == "sum"):
        names.append("overflow")
    return names + (["last_batch"] if options["last_batch"] == "drop" else [])


def _asks_target(decoders: list[PageStore], options: Options) -> bool:
    has_column = any("targets" in store.columns for store in decoders)
    is_dropped = "decoder.targets" in options["drop_column"]
    return has_column and not is_dropped and not options["keep_without_target"]


def _find_reasons(
    pair: Pair,
    stores: tuple[PageStore, PageStore],
    split: str | None,
    asks_target: bool,
    keys: list[Key] | None,
    options: Options,
) -> Iterator[tuple[str, bool]]:
    """Yield the reasons to leave out a pair in order, and whether each is no error."""
    lengths, may_drop = pair.lengths, options["overflow"] == "drop"
    if not lengths[0]:
        yield "encoder.empty", True
    if split != options["split_name"]:
        yield "other_splits", True
    if not lengths[1]:
        yield "decoder.empty", True
    for side, length in zip(SIDES, lengths, strict=True):
        if options["drop_shorter"] is not None and length < options["drop_shorter"]:
            yield f"{side}.drop_shorter", True
        if options["drop_longer"] is not None and length > options["drop_longer"]:
            yield f"{side}.drop_longer", True
    for text in options["where"]:
        bare = text.strip().removeprefix("decoder.")
        side = bare != text.strip()
        if not holds(bare, stores[side], pair.rows[side]):
            yield "where", True
    targets = stores[1].columns.get("targets", {pair.rows[1]: [1]})
    if asks_target and not any(targets[pair.rows[1]]):
        yield "no_target", True
    if keys is not None:
        for side in (0, 1):
            if lengths[side] > max(key[side] for key in keys):
                yield f"{SIDES[side]}.overflow", may_drop
        if find_key(lengths, keys) is None:
            yield "overflow", may_drop
    if options["max_tokens"] is not None:
        rounded = [round_up(length, options["pad_to_multiple"]) for length in lengths]
        for side in (0, 1):
            if options["count"] == "max" and rounded[side] > options["max_tokens"]:
                yield f"{SIDES[side]}.overflow", may_drop
        if options["count"] == "sum" and sum(rounded) > options["max_tokens"]:
            yield "overflow", may_drop


def _cut_bucket(
    plan: PairPlan, pairs: list[Pair], key: Key | None, layout: str, options: Options
) -> None:
    """Steps 5 to 7."""

    def measure(pairs: Iterable[Pair]) -> Key:
        longest = (max(pair.lengths[side] for pair in pairs) for side in (0, 1))
        encoder, decoder = (round_up(length, options["pad_to_multiple"]) for length in longest)
        return key or (encoder, decoder)

    def breaks_limit(pairs: list[Pair]) -> bool:
        too_many = options["batch_size"] is not None and len(pairs) > options["batch_size"]
        if too_many or options["max_tokens"] is None:
            return too_many
        cells = [len(pairs) * width for width in measure(pairs)]
        if layout == "packed":
            cells = [sum(pair.lengths[side] for pair in pairs) for side in (0, 1)]
        return TOTALS[options["count"]](cells) > options["max_tokens"]

    batches = cut(pairs, breaks_limit)
    num_filler = 0
    if batches and not breaks_limit([*batches[-1], Pair(0, 0, (-1, -1), (-1, -1), (1, 1))]):
        if options["last_batch"] == "pad":
            limits = [options["batch_size"]] if options["batch_size"] else []
            if key is not None and options["max_tokens"] is not None:
                limits.append(options["max_tokens"] // TOTALS[options["count"]](key))
            num_filler = min(limits) - len(batches[-1])
        if options["last_batch"] == "drop":
            plan.dropped["last_batch"] += [pair.lengths for pair in batches.pop()]
    for number, batch in enumerate(batches, 1):
        fillers = num_filler if number == len(batches) else 0
        plan.batches.append((sorted(batch, key=_rank), measure(batch), fillers))
