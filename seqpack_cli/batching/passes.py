"""How often each document is visited: passes of each store, visits of each document, rounds.

2.5 passes are two visits of every document and a third one of those with a mixed hash below half of
2^64. The visits of a document lie in different rounds, which are planned separately, so that they
never share a batch. They are spread evenly over the rounds, from a round that follows from the
document's hash, so that each round has about the same share of each store.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import chain

import numpy as np

from seqpack_cli.batching.hash_mixing import PASSES, ROUNDS, mix, to_bound
from seqpack_cli.batching.shares import parse_number, parse_numbers, spell_number, spell_numbers
from seqpack_cli.errors import OptionError, join_items, quote

MAX_PASSES = 10_000
PASS_DECIMALS = 12  # of passes that follow from shares


def parse_passes(text: str) -> dict[str, Fraction]:
    """Parse the text of `--passes`, such as A=2,B=0.5.

    Raises:
        OptionError: it is not of that form, or a number is out of range.
    """
    return parse_numbers(text, "--passes", MAX_PASSES)


def parse_max_passes(text: str) -> Fraction:
    """Parse the text of `--max-passes`.

    Raises:
        OptionError: it is not a decimal number, or out of range.
    """
    return parse_number(text.strip(), "--max-passes", MAX_PASSES)


def resolve_stores(
    numbers: Mapping[str, Fraction], names: Sequence[str], option: str, links: Sequence[str] = ()
) -> list[Fraction | None]:
    """Return the number of each store, None where a store is not named.

    A store is named by its folder, by a link to it or by its position, from 1. A name has
    precedence over a position. What is recorded has positions only: read it with the positions as
    names.

    Args:
        numbers: the numbers by folder, link or position.
        names: the folder of each store.
        option: --passes or --share, for messages.
        links: the name of each store as the user spelled it, which may be a link.

    Raises:
        OptionError: a name is unknown or belongs to several stores, or a store is named twice.

    >>> resolve_stores({"B": Fraction(2), "1": Fraction(3)}, ["A", "B"], "--passes")
    [Fraction(3, 1), Fraction(2, 1)]
    """
    found: list[Fraction | None] = [None] * len(names)
    for name, number in numbers.items():
        place = _find_store(name, names, option, links)
        if found[place] is not None:
            raise OptionError(
                f"{option}: found {quote(name)} for store {place + 1}, {quote(names[place])}, "
                "expected each store once",
                hint=f"leave out {name}={spell_number(number)}",
            )
        found[place] = number
    return found


def spell_by_position(numbers: Iterable[Fraction | None]) -> str:
    """Spell the numbers of stores in the form that is recorded: by position, from 1.

    >>> spell_by_position([Fraction(2), None, Fraction(1, 2)])
    '1=2,3=0.5'
    """
    named = ((str(place), number) for place, number in enumerate(numbers, 1))
    return spell_numbers((name, number) for name, number in named if number is not None)


def find_passes(
    tokens: Sequence[int], shares: Mapping[str, Fraction], max_passes: Fraction
) -> list[Fraction]:
    """Return the passes with which each store has its share of all tokens.

    One store has max_passes, and no other has more. Rounded down to PASS_DECIMALS.

    Args:
        tokens: of each store, those that can be packed.
        shares: of each store, above 0, by what names it in messages.

    Raises:
        OptionError: a store has no tokens for its share, or too many for so small a share.

    >>> find_passes([100, 100], {"A": Fraction(3, 4), "B": Fraction(1, 4)}, Fraction(1))
    [Fraction(1, 1), Fraction(333333333333, 1000000000000)]
    """
    stores = list(zip(shares, shares.values(), tokens, strict=True))
    for name, share, num_tokens in stores:
        if not num_tokens:
            raise OptionError(
                f"--share: {name} has no token left for its share of {spell_number(share)}",
                hint="leave out the store, or the options that leave out its sequences",
            )
    factor = max_passes * min(Fraction(num_tokens) / share for _, share, num_tokens in stores)
    scale, passes = 10**PASS_DECIMALS, list[Fraction]()
    for name, share, num_tokens in stores:
        found = int(factor * share / num_tokens * scale)
        if not found:
            raise OptionError(
                f"--share: {name} would have less than {spell_number(Fraction(1, scale))} "
                "passes, expected more",
                hint="pass a larger share of it, or leave out the store",
            )
        passes.append(Fraction(found, scale))
    return passes


def count_visits(hashes: np.ndarray, passes: Fraction, seed: int) -> np.ndarray:
    """Return how often each document of a store is visited, int32[N].

    Args:
        hashes: uint64[N], of the documents.
    """
    visits = np.full(len(hashes), int(passes), np.int32)
    if fraction := passes % 1:
        visits += mix(hashes, seed, PASSES) < np.uint64(to_bound(fraction))
    return visits


def count_rounds(passes: Iterable[Fraction]) -> int:
    """Return the number of rounds: the most visits of a document, at least 1.

    >>> count_rounds([Fraction(1, 2), Fraction(5, 2)])
    3
    """
    return max([1, *(-(-number // 1) for number in passes)])


def find_first_rounds(hashes: np.ndarray, num_rounds: int, seed: int) -> np.ndarray:
    """Return the round of the first visit of each document, int16[N].

    Args:
        hashes: uint64[N], of the documents.
        num_rounds: at most MAX_PASSES.
    """
    return (mix(hashes, seed, ROUNDS) % np.uint64(num_rounds)).astype(np.int16)


def is_in_round(
    offsets: np.ndarray, visits: np.ndarray, number: int, num_rounds: int
) -> np.ndarray:
    """Return whether each document has a visit in a round, bool[N].

    A document with n visits is in n of the rounds, as evenly as possible from round `offset` on:
    in the d-th after it if a multiple of num_rounds lies in [d * n, (d + 1) * n).

    Args:
        offsets: int16[N], from `find_first_rounds`.
        visits: int16 or int32[N], each at most num_rounds.
        number: of the round, from 0.
    """
    distances = (number - offsets.astype(np.int32)) % num_rounds
    is_in: np.ndarray = (-distances * visits) % num_rounds < visits
    return is_in


def _find_store(name: str, names: Sequence[str], option: str, links: Sequence[str]) -> int:
    """Return the index of the store that a name or a position stands for."""
    positions = [str(place) for place in range(1, len(names) + 1)]
    spelled = chain(enumerate(names), enumerate(links))
    found = sorted({index for index, other in spelled if other == name})
    if len(found) == 1:
        return found[0]
    if name in positions:
        return positions.index(name)
    if found:
        raise OptionError(
            f"{option}: found {quote(name)}, the name of {len(found)} stores, expected a position "
            f"from 1 to {len(names)}",
            hint=f"name them by position: {join_items(positions[index] for index in found)}",
        )
    raise OptionError(
        f"{option}: no store is named {quote(name)} (found: {join_items(map(quote, names))})",
        hint=f"name a store by its folder, or by its position from 1 to {len(names)}",
    )
