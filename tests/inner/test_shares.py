"""Decimal numbers with names: exact sums, one spelling, the exact text of every error."""

from __future__ import annotations

from fractions import Fraction

import pytest

from seqpack_cli.batching.shares import parse_numbers, parse_shares, spell_numbers
from seqpack_cli.errors import OptionError

FORM = "expected NAME=NUMBER, with commas between them"
ABOVE_0 = "expected a decimal number above 0, at most 1"
LIKE = "write it like 0.01"


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ("train=0.98,validation=0.01,test=0.01", "train=0.98,validation=0.01,test=0.01"),
        (" b = .5 , a= 5E-1", "b=0.5,a=0.5"),
        ("a=0.1,b=0.2,c=0.70", "a=0.1,b=0.2,c=0.7"),
        ("a=rest,b=1e-18", "a=0.999999999999999999,b=0.000000000000000001"),
        ("a=1e-3,b=+0.4,c=rest", "a=0.001,b=0.4,c=0.599"),
        ("a=1.", "a=1"),
        ("ä b=rest", "ä b=1"),
    ],
)
def test_equal_shares_have_one_spelling(text: str, spelled: str) -> None:
    shares = parse_shares(text, "--split")
    assert sum(shares.values()) == 1
    assert spell_numbers(shares) == spelled
    assert parse_shares(spelled, "--split") == shares


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("a=0.5,b", f"found 'b', {FORM}", "write it like a=0.9,b=0.1"),
        ("a=0.5,,b=0.5", f"found '', {FORM}", "write it like a=0.9,b=0.1"),
        ("=1", f"found '=1', {FORM}", "write it like a=0.9,b=0.1"),
        ("a=b=1", f"found 'a=b=1', {FORM}", "write it like a=0.9,b=0.1"),
        ("a=0.5,a=0.5", "found 'a' twice, expected each name once", "leave out one a"),
        ("a=half,b=rest", f"a: found 'half', {ABOVE_0}", LIKE),
        ("a=1/3,b=rest", f"a: found '1/3', {ABOVE_0}", LIKE),
        ("a=50%,b=rest", f"a: found '50%', {ABOVE_0}", LIKE),
        ("a=nan,b=rest", f"a: found 'nan', {ABOVE_0}", LIKE),
        ("a=٠.٥,b=rest", f"a: found '٠.٥', {ABOVE_0}", LIKE),
        ("a=,b=rest", f"a: found '', {ABOVE_0}", LIKE),
        ("a=-0.1,b=rest", f"a: found -0.1, {ABOVE_0}", LIKE),
        ("a=0.0,b=rest", f"a: found 0.0, {ABOVE_0}", LIKE),
        ("a=98,b=2", f"a: found 98, {ABOVE_0}", LIKE),
        ("a=1e9999,b=rest", f"a: found 1e9999, {ABOVE_0}", LIKE),
        ("a=1e-9999,b=rest", "a: found 1e-9999, expected at most 18 decimals", "round it"),
        (
            "a=0.1234567890123456789,b=rest",
            "a: found 0.1234567890123456789, expected at most 18 decimals",
            "round it",
        ),
        (
            "a=0.98,b=0.01",
            "the shares add up to 0.99, expected 1",
            "write b=rest for what the others leave",
        ),
        (
            "a=0.5,b=0.500000000000000001",
            "the shares add up to 1.000000000000000001, expected 1",
            "write b=rest for what the others leave",
        ),
        (
            "a=rest,b=0.5,c=rest",
            "found rest for 'a' and 'c', expected rest at most once",
            "write a number for c",
        ),
        (
            "a=0.5,b=rest,c=0.5",
            "the other shares add up to 1, expected less than 1 beside b=rest",
            "pass smaller shares",
        ),
    ],
)
def test_shares_that_cannot_be_used_are_refused(text: str, message: str, hint: str) -> None:
    with pytest.raises(OptionError) as raised:
        parse_shares(text, "--split")
    assert raised.value.message == f"--split {text!r}: {message}"
    assert raised.value.hint == hint


def test_numbers_may_be_above_1_and_are_never_the_rest() -> None:
    numbers = parse_numbers("A=2,my store=0.50,x/y=1e2", "--passes", 100)
    assert numbers == {"A": 2, "my store": Fraction(1, 2), "x/y": 100}
    with pytest.raises(OptionError, match="or with the positions of the stores: 1=0"):
        parse_numbers("a,b=c=2", "--passes", 100)
    for text, found in (("A=rest", "'rest'"), ("A=101", "101"), ("A=0", "0")):
        with pytest.raises(OptionError) as raised:
            parse_numbers(text, "--passes", 100)
        expected = "expected a decimal number above 0, at most 100"
        assert raised.value.message == f"--passes {text!r}: A: found {found}, {expected}"
