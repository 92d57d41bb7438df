"""Parse and spell decimal numbers with names, such as train=0.98,validation=0.01,test=rest.

The form of `--split`, `--passes` and `--share`. The numbers are exact, so that shares add up to
exactly 1. Equal numbers have one spelling, which is recorded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from fractions import Fraction

from seqpack_cli.errors import OptionError, quote

MAX_CHARACTERS = 100  # of a number: a million digits would take minutes
MAX_DECIMALS = 18  # 10^-18 of all hashes are 18 of 2^64
REST = "rest"
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")


def parse_shares(text: str, option: str) -> dict[str, Fraction]:
    """Parse shares that add up to 1, in the given order; one of them may be `rest`.

    Args:
        option: the option that a message names, such as --split.

    Raises:
        OptionError: the text has another form, or the shares do not add up to 1.

    >>> {name: str(share) for name, share in parse_shares("a=0.75, b=rest", "--split").items()}
    {'a': '3/4', 'b': '1/4'}
    """
    items, place = split_items(text, option), f"{option} {quote(text)}"
    if without := [name for name, value in items.items() if value is None]:
        raise _refuse_item(place, without[0])
    rests = [name for name, value in items.items() if value == REST]
    if len(rests) > 1:
        raise OptionError(
            f"{place}: found {REST} for {quote(rests[0])} and {quote(rests[1])}, expected {REST} "
            "at most once",
            hint=f"write a number for {rests[1]}",
        )
    shares = {
        name: Fraction(0) if value == REST else parse_number(value or "", f"{place}: {name}", 1)
        for name, value in items.items()
    }
    total = sum(shares.values(), Fraction(0))
    if rests and total >= 1:
        raise OptionError(
            f"{place}: the other shares add up to {spell_number(total)}, expected less than 1 "
            f"beside {rests[0]}={REST}",
            hint="pass smaller shares",
        )
    if rests:
        shares[rests[0]] = 1 - total
    elif total != 1:
        last = [*shares][-1]
        raise OptionError(
            f"{place}: the shares add up to {spell_number(total)}, expected 1",
            hint=f"write {last}={REST} for what the others leave",
        )
    return shares


def parse_numbers(text: str, option: str, at_most: int) -> dict[str, Fraction]:
    """Parse a number above 0 for each name, in the given order.

    Raises:
        OptionError: the text has another form, or a number is out of range.

    >>> {name: str(number) for name, number in parse_numbers("A=2,B=.5", "--passes", 9).items()}
    {'A': '2', 'B': '1/2'}
    """
    place, numbers = f"{option} {quote(text)}", {}
    for name, value in split_items(text, option).items():
        if value is None:
            raise _refuse_item(place, name)
        numbers[name] = parse_number(value, f"{place}: {name}", at_most)
    return numbers


def parse_number(text: str, place: str, at_most: int) -> Fraction:
    """Parse a decimal number above 0.

    Args:
        place: what a message begins with.

    Raises:
        OptionError: it is not a decimal number, or out of range.
    """
    expected = f"expected a decimal number above 0, at most {at_most:,}"
    if len(text) > MAX_CHARACTERS or not _NUMBER.fullmatch(text):
        raise OptionError(f"{place}: found {quote(text)}, {expected}", hint="write it like 0.01")
    number = Decimal(text)
    if number <= 0 or number > at_most:
        raise OptionError(f"{place}: found {text[:60]}, {expected}", hint="write it like 0.01")
    # the smallest allowed number first, or the fraction of 1e-9999 would be large
    if number.adjusted() < -MAX_DECIMALS or (Fraction(number) * 10**MAX_DECIMALS).denominator > 1:
        raise OptionError(
            f"{place}: found {text[:60]}, expected at most {MAX_DECIMALS} decimals",
            hint="round it",
        )
    return Fraction(number)


def split_items(text: str, option: str) -> dict[str, str | None]:
    """Split text at its commas into names and values; a name without = has the value None.

    Raises:
        OptionError: an item has no name, or two have the same.

    >>> split_items("a=0.5, b", "--split")
    {'a': '0.5', 'b': None}
    """
    items: dict[str, str | None] = {}
    for item in text.split(","):
        name, mark, value = (word.strip() for word in item.partition("="))
        if not name or "=" in value:
            raise _refuse_item(f"{option} {quote(text)}", item.strip())
        if name in items:
            raise OptionError(
                f"{option} {quote(text)}: found {quote(name)} twice, expected each name once",
                hint=f"leave out one {name}",
            )
        items[name] = value if mark else None
    return items


def spell_numbers(numbers: Mapping[str, Fraction] | Iterable[tuple[str, Fraction]]) -> str:
    """Spell numbers in the form that is recorded.

    >>> spell_numbers({"a": Fraction(1, 1000), "b": Fraction(20)})
    'a=0.001,b=20'
    """
    return ",".join(f"{name}={spell_number(number)}" for name, number in dict(numbers).items())


def spell_number(number: Fraction | int) -> str:
    """Spell a number of at most MAX_DECIMALS decimals, without zeros at its end.

    >>> spell_number(Fraction(5, 2)), spell_number(20)
    ('2.5', '20')
    """
    whole, decimals = divmod(int(number * 10**MAX_DECIMALS), 10**MAX_DECIMALS)
    return f"{whole}.{decimals:0{MAX_DECIMALS}}".rstrip("0").rstrip(".")


def _refuse_item(place: str, item: str) -> OptionError:
    hint = "write it like a=0.9,b=0.1"
    if not place.startswith("--split"):
        hint += ", or with the positions of the stores: 1=0.9,2=0.1"
    return OptionError(
        f"{place}: found {quote(item)}, expected NAME=NUMBER, with commas between them", hint
    )
