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


class Refused(Exception):  # noqa: N818 - `pack` refuses it; nothing is wrong here
    """What the page calls an error, with words that a message about it has."""


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
    if by is not None and by not in store.columns:
        raise Refused(f"--split-by {by}")
    for index, document in enumerate(store.documents):
        number = store.hashes[document]
        if by is not None:
            value = store.columns[by][index]
            value = value + 0 if isinstance(value, float) else value  # -0.0 becomes 0.0
            spelled = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            if "=" not in options["split"]:
                if spelled not in options["split"].split(","):
                    raise Refused(repr(spelled))
                yield spelled
                continue
            number = xxhash.xxh3_64_intdigest(spelled.encode())
        shares = parse(options["split"])
        mixed = mix(number, options["split_seed"], "split")
        bounds = zip(shares, accumulate(shares.values()), strict=True)
        yield next(name for name, end in bounds if mixed < int(end * WRAP))


def select(stores: list[PageStore], options: Options) -> Selected:
    """Choose sequences and count their visits."""
    for text in options["where"]:
        check_condition(text, stores)
    fits = list[bool]()
    least, most = options["drop_shorter"] or 0, options["drop_longer"] or WRAP
    if options["overflow"] == "drop":
        most = min([most, *list_limits(options)])
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
        count = count_visits(number, seed, passes[store_of[index]])
        count *= in_split[index] and inside[index] and fits[index] and has_target[index]
        visits.append(count)
        for place, some in enumerate(rounds):
            if is_in_round(number, seed, place, num_rounds, count):
                some.add(index)
    return Selected(passes, visits, rounds, in_split, has_target if asks else None, fits)


def list_limits(options: Options) -> list[int]:
    """Return the lengths that single sequences must not exceed, unless they are split."""
    limits = [max(options["buckets"])] if isinstance(options["buckets"], list) else []
    if options["max_tokens"] is not None and options["overflow"] != "split":
        limits.append(
            options["max_tokens"] // options["pad_to_multiple"] * options["pad_to_multiple"]
        )
    return limits


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
    """Return whether a condition holds."""
    typed, name, operator, wanted = _parse_condition(text)
    if typed == "@source":
        pattern = ".*".join(re.escape(part) for part in wanted.split("*"))
        is_same = re.fullmatch(pattern, store.places[index][0], re.DOTALL) is not None
        return is_same == (operator == "=")
    if typed == "@length":
        value: Any = len(store.sequences[index])
    else:  # `overlap` may be missing, and is 0 there
        value = store.columns[name][index] if name in store.columns else 0
    if isinstance(value, str | bool):
        return _spells(wanted, value) == (operator == "=")
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


def check_condition(text: str, stores: list[PageStore]) -> None:
    """Refuse a column that a store has not, and a class that none has."""
    typed, name, _, wanted = _parse_condition(text)
    columns = [each for store in stores for each in store.manifest["columns"]]
    num_found = sum(each["name"] == name for each in columns)
    if not typed.startswith("@") and name != "overlap" and num_found < len(stores):
        raise Refused("--where", repr(name))
    found = [
        each["class_names"] for each in columns if each["name"] == name and "class_names" in each
    ]
    labels = [label for names in found for label in names]
    if found and not any(_spells(wanted, label) for label in labels):
        raise Refused("--where", repr(wanted))


def _parse_condition(text: str) -> tuple[str, str, str, str]:
    """Return the name as it was typed, the name, the operator and the value."""
    quoted = r"""'(?:[^']|'')*'|"(?:[^"]|"")*\""""
    pattern = rf"\s*({quoted}|[^=!<>]*?)\s*(=|!=|<=|>=|<|>)\s*({quoted}|.*?)\s*"
    found = re.fullmatch(pattern, text, re.DOTALL)
    assert found is not None
    typed, operator, wanted = found.groups()
    return typed, _unquote(typed), operator, _unquote(wanted)


def _spells(wanted: str, label: str | bool) -> bool:
    return wanted == (label if isinstance(label, str) else json.dumps(label))


def _unquote(text: str) -> str:
    return text[1:-1].replace(text[0] * 2, text[0]) if text[:1] in ("'", '"') else text


def find_passes(num_tokens: list[int], options: Options) -> list[Fraction]:
    positions = [str(number) for number in range(1, len(num_tokens) + 1)]
    if not is_first_split(options) or not (options["passes"] or options["share"]):
        return [Fraction(1) for _ in positions]
    if options["passes"]:
        named = parse(options["passes"])
        return [named.get(position, Fraction(1)) for position in positions]
    shares = parse(options["share"])
    if 0 in num_tokens:
        raise Refused("--share")
    wanted = [shares[place] / tokens for place, tokens in zip(positions, num_tokens, strict=True)]
    factor = Fraction(options["max_passes"]) / max(wanted)
    return [Fraction(int(factor * each * 10**12), 10**12) for each in wanted]


def spell(number: Fraction) -> str:
    """Spell a decimal number as manifests have it."""
    whole, decimals = divmod(int(number * 10**18), 10**18)
    return f"{whole}.{decimals:018}".rstrip("0").rstrip(".")
