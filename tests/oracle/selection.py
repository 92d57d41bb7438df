"""Splits, passes and rounds of docs/formats.md, written from that page alone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from typing import Any

import numpy as np
import xxhash
from blake3 import blake3

from oracle.stores import PageStore

WRAP = 2**64
Options = dict[str, Any]


@dataclass
class Selected:
    """What is taken of the sequences of all stores."""

    passes: list[Fraction]  # of each store
    visits: list[int]  # of each sequence
    rounds: list[set[int]]  # the sequences of each
    in_split: list[bool]  # of each sequence
    has_target: list[bool] | None  # of each sequence; None if all are packed
    fits: list[bool]  # of each sequence: whether all conditions hold


def mix(number: int, seed: int, purpose: str) -> int:
    """Mix the bits of a hash."""
    key = blake3(f"{purpose} {seed}".encode()).digest()[:8]
    number ^= int.from_bytes(key, "little")
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 % WRAP
    number = (number ^ number >> 27) * 0x94D049BB133111EB % WRAP
    return number ^ number >> 31


def round_seed(seed: int, number: int) -> int:
    """Return the seed of a round."""
    if not number:
        return seed
    state = np.random.SeedSequence(seed, spawn_key=(4, number)).generate_state(1, np.uint64)
    return int(state[0])


def parse(text: str) -> dict[str, Fraction]:
    """Return the numbers of names."""
    items = (item.split("=") for item in text.split(","))
    return {name: Fraction(value) for name, value in items}


def is_first_split(options: Options) -> bool:
    """Return whether passes and shares apply."""
    name = options["split_name"]
    return name is None or name == options["split"].split(",")[0].split("=")[0]


def find_splits(store: PageStore, options: Options) -> Iterator[str]:
    """Yield the split of each sequence."""
    by = options["split_by"]
    for index, document in enumerate(store.documents):
        number = store.hashes[document]
        if by is not None:
            value = store.columns[by][index]
            spelled = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            if "=" not in options["split"]:
                yield spelled
                continue
            number = xxhash.xxh3_64_intdigest(spelled.encode())
        shares = parse(options["split"])
        mixed = mix(number, options["split_seed"], "split")
        bounds = zip(shares, accumulate(shares.values()), strict=True)
        yield next(name for name, end in bounds if mixed < int(end * WRAP))


def select(stores: list[PageStore], options: Options) -> Selected:
    """Choose sequences and count their visits."""
    fits = list[bool]()
    least, most = options["drop_shorter"] or 0, options["drop_longer"] or WRAP
    in_split, inside, hashes, store_of = [], list[bool](), list[int](), list[int]()
    has_target, has_column = [], any("targets" in store.columns for store in stores)
    asks = has_column and not options["keep_without_target"]
    asks = asks and "targets" not in options["drop_column"]
    num_tokens = [0] * len(stores)
    for number, store in enumerate(stores):
        splits = list(find_splits(store, options)) if options["split_name"] else []
        for index, ids in enumerate(store.sequences):
            in_split.append(not splits or splits[index] == options["split_name"])
            inside.append(least <= len(ids) <= most)
            fits.append(all(holds(text, store, index) for text in options["where"]))
            has_target.append(not asks or any(store.columns.get("targets", {index: [1]})[index]))
            hashes.append(store.hashes[store.documents[index]])
            store_of.append(number)
            num_tokens[number] += len(ids) * _is_kept(in_split, inside, fits, has_target)
    passes = find_passes(num_tokens, options)
    num_rounds = max(1, *(-int(-number // 1) for number in passes))
    seed, visits, rounds = options["seed"], list[int](), [set[int]() for _ in range(num_rounds)]
    for index, number in enumerate(hashes):
        count = count_visits(
            number, seed, passes[store_of[index]] if inside[index] else Fraction(1)
        )
        count *= in_split[index] and fits[index] and has_target[index]
        visits.append(count)
        for place, some in enumerate(rounds):
            if is_in_round(number, seed, place, num_rounds, count):
                some.add(index)
    return Selected(passes, visits, rounds, in_split, has_target if asks else None, fits)


def count_visits(number: int, seed: int, passes: Fraction) -> int:
    """Return the visits of a document by its hash."""
    return int(passes) + (mix(number, seed, "passes") < int(passes % 1 * WRAP))


def is_in_round(number: int, seed: int, place: int, num_rounds: int, visits: int) -> bool:
    """Return whether one of the visits of a document, by its hash, is in a round."""
    distance = (place - mix(number, seed, "rounds")) % num_rounds
    return -distance * visits % num_rounds < visits


def _is_kept(*reasons: list[bool]) -> bool:
    return all(reason[-1] for reason in reasons)


def holds(text: str, store: PageStore, index: int) -> bool:
    """Return whether a condition without quotes holds."""
    found = re.fullmatch(r"\s*([^=!<>]*?)\s*(=|!=|<=|>=|<|>)\s*(.*?)\s*", text)
    assert found is not None
    name, operator, wanted = found.groups()
    if name == "@source":
        pattern = ".*".join(re.escape(part) for part in wanted.split("*"))
        is_same = re.fullmatch(pattern, store.places[index][0], re.DOTALL) is not None
        return is_same == (operator == "=")
    value = len(store.sequences[index]) if name == "@length" else store.columns[name][index]
    if isinstance(value, str | bool):
        is_same = (value if isinstance(value, str) else json.dumps(value)) == wanted
        return is_same == (operator == "=")
    number = float(wanted) if isinstance(value, float) else Fraction(wanted)
    less, same = value < number, value == number
    return {
        "=": same,
        "!=": not same,
        "<": less,
        "<=": less or same,
        ">": not less and not same,
        ">=": not less,
    }[operator]


def find_passes(num_tokens: list[int], options: Options) -> list[Fraction]:
    positions = [str(number) for number in range(1, len(num_tokens) + 1)]
    if not is_first_split(options) or not (options["passes"] or options["share"]):
        return [Fraction(1) for _ in positions]
    if options["passes"]:
        named = parse(options["passes"])
        return [named.get(position, Fraction(1)) for position in positions]
    shares = parse(options["share"])
    wanted = [shares[place] / tokens for place, tokens in zip(positions, num_tokens, strict=True)]
    factor = Fraction(options["max_passes"]) / max(wanted)
    return [Fraction(int(factor * each * 10**12), 10**12) for each in wanted]


def spell(number: Fraction) -> str:
    """Spell a decimal number as manifests have it."""
    whole, decimals = divmod(int(number * 10**18), 10**18)
    return f"{whole}.{decimals:018}".rstrip("0").rstrip(".")
