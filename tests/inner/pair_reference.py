"""Slow plain-Python oracles for pairs: which share a batch, why others are left out, their rows.

`slow_pair_plan` goes through pairs of lists of ids step by step and returns what `pack` must write
into the batches of both sides. Quadratic; small inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from batching_reference import round_up, slow_shuffled, slow_window_order
from shard_reference import slow_pad

from seqpack_cli.batching.pack_options import PackOptions
from seqpack_cli.batching.pair_batches import choose_pair_keys
from seqpack_cli.errors import OptionError

Pair = tuple[list[int], list[int]]  # ids of the encoder's and of the decoder's side
Key = tuple[int, int]
SIDES = ("encoder", "decoder")


class DoesNotFitError(Exception):
    """A pair does not fit, or a single row of a bucket does not."""


@dataclass
class PairBatch:
    """The documents of one batch, in the order of the encoder's rows."""

    documents: list[int]
    widths: Key | None = None  # of padded rows
    num_filler_rows: int = 0


@dataclass
class PairPlan:
    """What becomes of every pair."""

    batches: list[PairBatch] = field(default_factory=list)
    left_out: list[tuple[int, str]] = field(default_factory=list)  # document, reason
    keys: list[Key] | None = None


def slow_pair_plan(
    pairs: Sequence[Pair],
    options: PackOptions,
    is_selected: Sequence[bool] | None = None,
    rounds_of: Sequence[set[int]] = (),
) -> PairPlan:
    """Plan batches of pairs.

    Args:
        pairs: of all documents.
        options: resolved.
        is_selected: which documents meet the conditions; None is all.
        rounds_of: in which rounds each document is visited; () is one round of all.

    Raises:
        DoesNotFitError: pack must refuse the options, or a pair.
    """
    plan, kept = PairPlan(), []
    rounds_of = rounds_of or [{0}] * len(pairs)
    for document, pair in enumerate(pairs):
        reason = _find_reason(pair, options, is_selected is None or is_selected[document])
        if reason is None and not rounds_of[document]:
            reason = "passes"
        if reason is None:
            kept.append(document)
        else:
            plan.left_out.append((document, reason))
    lengths = np.array([list(map(len, pairs[document])) for document in kept], np.int32)
    encoder, decoder = lengths.reshape(-1, 2).T
    try:
        plan.keys = choose_pair_keys(encoder, decoder, options)
    except OptionError as error:
        raise DoesNotFitError from error
    for number in range(max(max(found, default=0) for found in rounds_of) + 1):
        seeds = np.random.SeedSequence(options.seed, spawn_key=(4, number))
        seed = int(seeds.generate_state(1, np.uint64)[0]) if number else options.seed
        visited = {document for document in kept if number in rounds_of[document]}
        _plan_round(plan, pairs, visited, replace(options, seed=seed))
    if options.shuffle:
        places = slow_shuffled(len(plan.batches), seed=options.seed, stream=1)
        plan.batches = [plan.batches[place] for place in places]
    return plan


def _find_reason(pair: Pair, options: PackOptions, is_selected: bool) -> str | None:
    """Return why a pair is left out, None if it is packed."""
    lengths = list(map(len, pair))
    both = list(zip(SIDES, lengths, strict=True))
    for side, length in both:
        if length == 0:
            return f"{side}.empty"
    for side, length in both:
        if options.drop_shorter is not None and length < options.drop_shorter:
            return f"{side}.drop_shorter"
        if options.drop_longer is not None and length > options.drop_longer:
            return f"{side}.drop_longer"
    if not is_selected:
        return "where"
    reason = None
    if options.pair_keys is not None:
        for place, (side, length) in enumerate(both):
            if reason is None and length > max(key[place] for key in options.pair_keys):
                reason = f"{side}.overflow"
        if reason is None and _find_key(lengths, options.pair_keys) is None:
            reason = "overflow"
        if reason is not None and options.overflow == "error":
            raise DoesNotFitError
    if reason is None and options.max_tokens is not None:
        costs = [round_up(length, options.pad_to_multiple) for length in lengths]
        if options.count == "sum" and sum(costs) > options.max_tokens:
            reason = "overflow"
        for side, cost in zip(SIDES, costs, strict=True):
            if options.count == "max" and reason is None and cost > options.max_tokens:
                reason = f"{side}.overflow"
        if reason is not None and options.overflow != "drop":
            raise DoesNotFitError
    return reason


def _find_key(lengths: Sequence[int], keys: Sequence[Key]) -> Key | None:
    """Return the key with the fewest cells that holds a pair, the first of equals."""
    fitting = [key for key in keys if key[0] >= lengths[0] and key[1] >= lengths[1]]
    return min(fitting, key=lambda key: (sum(key), key), default=None)


def _cost(costs: Sequence[int], options: PackOptions) -> int:
    return sum(costs) if options.count == "sum" else max(costs)


def _plan_round(
    plan: PairPlan, pairs: Sequence[Pair], visited: set[int], options: PackOptions
) -> None:
    """Shuffle, sort each window, split by bucket with the largest first, cut, finish, sort rows."""
    with_encoder = [document for document, pair in enumerate(pairs) if pair[0]]  # its sequences
    order = with_encoder
    if options.shuffle:
        places = slow_shuffled(len(with_encoder), seed=options.seed)
        order = [with_encoder[place] for place in places]
    order = [document for document in order if document in visited]
    if options.order == "length":
        order = _sort(order, pairs, options.window)
    buckets: list[tuple[Key | None, list[int]]] = [(None, order)]
    if plan.keys is not None:
        key_of = {it: _find_key(list(map(len, pairs[it])), plan.keys) for it in order}
        buckets = [(key, [it for it in order if key_of[it] == key]) for key in plan.keys[::-1]]
    for key, documents in buckets:
        for batch in _cut(plan, pairs, documents, key, options):
            batch.documents = _sort(batch.documents, pairs)
            plan.batches.append(batch)


def _sort(documents: list[int], pairs: Sequence[Pair], window: int | None = None) -> list[int]:
    """Sort each window by the decoder's length, then by the encoder's, longest first."""
    for side in (1, 0):
        lengths = [len(pairs[document][side]) for document in documents]
        documents = [documents[place] for place in slow_window_order(lengths, window)]
    return documents


def _cut(
    plan: PairPlan,
    pairs: Sequence[Pair],
    documents: list[int],
    key: Key | None,
    options: PackOptions,
) -> list[PairBatch]:
    """Add one pair after another to a batch until a limit is reached."""

    def widths(lengths: Sequence[Sequence[int]]) -> Key:
        if key is not None:
            return key
        first, second = (
            round_up(max(each), options.pad_to_multiple) for each in zip(*lengths, strict=True)
        )
        return first, second

    def fits(lengths: Sequence[Sequence[int]]) -> bool:
        if options.batch_size is not None and len(lengths) > options.batch_size:
            return False
        if options.layout == "padded":
            costs = [len(lengths) * width for width in widths(lengths)]
        else:
            costs = [sum(each) for each in zip(*lengths, strict=True)]
        return options.max_tokens is None or _cost(costs, options) <= options.max_tokens

    def lengths_of(batch: list[int]) -> list[list[int]]:
        return [list(map(len, pairs[document])) for document in batch]

    batches: list[list[int]] = []
    for document in documents:
        if batches and fits(lengths_of([*batches[-1], document])):
            batches[-1].append(document)
        else:
            batches.append([document])
    num_filler_rows = 0
    if batches:
        last = lengths_of(batches[-1])
        if options.last_batch == "drop" and fits([*last, [1, 1]]):
            plan.left_out += [(document, "last_batch") for document in batches.pop()]
        while options.last_batch == "pad" and fits([*last, *[[1, 1]] * (num_filler_rows + 1)]):
            num_filler_rows += 1
    made = [PairBatch(batch) for batch in batches]
    for batch in made if options.layout == "padded" else ():
        batch.widths = widths(lengths_of(batch.documents))
    if made:
        made[-1].num_filler_rows = num_filler_rows
    return made


def list_rows(
    plan: PairPlan, pairs: Sequence[Pair], options: PackOptions, pad_id: int
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield both sides of each batch as `make_golden.read_batches` reads them."""
    numbers = [
        {document: number for number, document in enumerate(_list_present(pairs, side))}
        for side in range(2)
    ]
    for batch in plan.batches:
        orders = [list(range(len(batch.documents)))] * 2
        if options.layout == "packed":
            lengths = [-len(pairs[document][1]) for document in batch.documents]
            orders[1] = sorted(orders[1], key=lambda row: (lengths[row], row))
        sides = []
        for side, order in enumerate(orders):
            documents = [batch.documents[row] for row in order]
            rows = [pairs[document][side] for document in documents]
            indices = [numbers[side][document] for document in documents]
            found: dict[str, Any] = {"width": None, "num_filler_rows": 0}
            if batch.widths is not None:
                rows += [[]] * batch.num_filler_rows
                indices += [-1] * batch.num_filler_rows
                width, padding_side = batch.widths[side], options.padding_side
                rows = slow_pad(rows, width=width, padding_value=pad_id, padding_side=padding_side)
                found = {"width": width, "num_filler_rows": batch.num_filler_rows}
            elif side:
                found["encoder_rows"] = order
            found["rows"] = [list(row) for row in zip(indices, [0] * len(rows), rows, strict=True)]
            sides.append(found)
        yield sides[0], sides[1]


def _list_present(pairs: Sequence[Pair], side: int) -> list[int]:
    """Return the documents of which a side is not empty."""
    return [document for document, pair in enumerate(pairs) if pair[side]]


def count_left_out(plan: PairPlan, pairs: Sequence[Pair], side: int) -> dict[str, tuple[int, int]]:
    """Return the sequences and the tokens of a side that are left out, by reason."""
    counts: dict[str, tuple[int, int]] = {}
    for document, reason in plan.left_out:
        if pairs[document][side]:
            sequences, tokens = counts.get(reason, (0, 0))
            counts[reason] = sequences + 1, tokens + len(pairs[document][side])
    return counts
