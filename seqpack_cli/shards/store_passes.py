"""The passes of each store, from `--passes` or `--share`, which name stores by folder or position.

What is recorded names them by position alone, since folders may be moved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from seqpack_cli.batching.options import (
    MAX_PASSES,
    ResolvedOptions,
    parse_number,
    parse_passes,
    parse_shares,
    spell_number,
    spell_numbers,
)
from seqpack_cli.batching.selection import find_passes
from seqpack_cli.errors import OptionError, join_items, quote

ONE_PASS = Fraction(1)


def name_by_position(options: ResolvedOptions, names: Sequence[str]) -> ResolvedOptions:
    """Return resolved options whose passes and shares name stores by position, from 1.

    Args:
        names: of the stores.

    Raises:
        OptionError: a name is unknown, or a store has no share.
    """
    if options.passes is not None:
        passes = resolve_stores(parse_passes(options.passes), names, "--passes")
        return replace(options, passes=_spell(passes))
    if options.share is not None:
        shares = resolve_stores(parse_shares(options.share, "--share"), names, "--share")
        missing = [name for name, share in zip(names, shares, strict=True) if share is None]
        if missing:
            raise OptionError(
                f"--share: no share for {join_items(map(quote, missing))}, expected one for each "
                "store",
                hint=f"pass smaller shares, with {missing[0]}=rest for what they leave",
            )
        return replace(options, share=_spell(shares))
    return options


def find_store_passes(
    options: ResolvedOptions, names: Sequence[str], count_tokens: Callable[[], Sequence[int]]
) -> list[Fraction]:
    """Return the passes of each store.

    Args:
        options: with stores named by position.
        names: of the stores, for messages.
        count_tokens: returns the tokens of each store that can be packed.

    Raises:
        OptionError: a store does not exist, or has no tokens for its share.
    """
    positions = [str(number) for number in range(1, len(names) + 1)]
    if not options.has_passes:
        return [ONE_PASS] * len(names)
    if options.passes is not None:
        found = resolve_stores(parse_passes(options.passes), positions, "--passes")
        return [ONE_PASS if passes is None else passes for passes in found]
    shares = resolve_stores(parse_shares(options.share or "", "--share"), positions, "--share")
    given = {name: share for name, share in zip(names, shares, strict=True) if share is not None}
    if len(given) < len(names):
        raise OptionError(f"--share {quote(options.share)}: not a share for each store")
    most = ONE_PASS
    if options.max_passes is not None:
        most = parse_number(options.max_passes, "--max-passes", MAX_PASSES)
    return find_passes(count_tokens(), given, most)


def resolve_stores(
    numbers: Mapping[str, Fraction], names: Sequence[str], option: str
) -> list[Fraction | None]:
    """Return the number of each store, None where a store is not named.

    A store is named by its folder or by its position, from 1. A name has precedence over a
    position. What is recorded has positions only: read it with the positions as names.

    Args:
        numbers: the numbers by folder or position.
        names: the folder of each store, or its position if several have one name.
        option: --passes or --share, for messages.

    Raises:
        OptionError: a name is unknown, or a store is named twice.

    >>> resolve_stores({"B": Fraction(2), "1": Fraction(3)}, ["A", "B"], "--passes")
    [Fraction(3, 1), Fraction(2, 1)]
    """
    found: list[Fraction | None] = [None] * len(names)
    positions = [str(place) for place in range(1, len(names) + 1)]
    for name, number in numbers.items():
        if name not in (*names, *positions):
            raise OptionError(
                f"{option}: no store is named {quote(name)} (found: "
                f"{join_items(map(quote, names))})",
                hint=f"name a store by its folder, or by its position from 1 to {len(names)}",
            )
        place = (names if name in names else positions).index(name)
        if found[place] is not None:
            raise OptionError(
                f"{option}: found {quote(name)} for store {place + 1}, {quote(names[place])}, "
                "expected each store once",
                hint=f"leave out {name}={spell_number(number)}",
            )
        found[place] = number
    return found


def _spell(numbers: Sequence[Fraction | None]) -> str:
    """Spell the numbers of stores in the form that is recorded: by position, from 1."""
    named = {str(place): number for place, number in enumerate(numbers, 1) if number is not None}
    return spell_numbers(named)
