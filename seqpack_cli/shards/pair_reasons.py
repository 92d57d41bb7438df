"""Why pairs are left out: a side that is empty, too short or too long, or that has no room."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from seqpack_cli.batching.layout_rules import SIDES
from seqpack_cli.batching.limits import round_up
from seqpack_cli.batching.options import PackOptions
from seqpack_cli.batching.pair_buckets import find_pair_buckets
from seqpack_cli.batching.reasons import DROP_LONGER, DROP_SHORTER, EMPTY, OVERFLOW

OF_SINGLES = frozenset((DROP_SHORTER, DROP_LONGER, OVERFLOW))  # which name no side
BothTest = Callable[[np.ndarray, np.ndarray], np.ndarray]  # lengths of both sides -> bool


class Fit(NamedTuple):
    """Whether pairs fit into a batch, and what is done with others."""

    reason: str
    test: BothTest
    is_dropped: bool  # or else they are an error
    option: str


def list_length_tests(options: PackOptions) -> Iterator[tuple[str, BothTest]]:
    """Yield why pairs are left out for the length of a side, and the test of those that are not."""
    least, most = options.drop_shorter, options.drop_longer
    for place, side in enumerate(SIDES):
        if least is not None:
            yield f"{side}.{DROP_SHORTER}", _test_side(place, least, None)
        if most is not None:
            yield f"{side}.{DROP_LONGER}", _test_side(place, None, most)


def list_fits(options: PackOptions) -> Iterator[Fit]:
    """Yield the tests of the room in a batch, by bucket keys and by the budget of tokens.

    Args:
        options: resolved.
    """
    keys, budget, multiple = options.pair_keys, options.max_tokens, options.pad_to_multiple
    if keys is not None:
        is_dropped, option = options.overflow != "error", "--buckets"
        for place, side in enumerate(SIDES):
            test = _test_side(place, None, max(key[place] for key in keys))
            yield Fit(f"{side}.{OVERFLOW}", test, is_dropped, option)
        yield Fit(
            OVERFLOW,
            lambda first, second: find_pair_buckets(first, second, keys) < len(keys),
            is_dropped,
            option,
        )
    if budget is None:
        return
    is_dropped, option = options.overflow == "drop", "--max-tokens"
    if options.count == "sum":
        yield Fit(
            OVERFLOW,
            lambda first, second: (
                round_up(first, multiple).astype(np.int64) + round_up(second, multiple) <= budget
            ),
            is_dropped,
            option,
        )
        return
    for place, side in enumerate(SIDES):
        test = _test_side(place, None, budget // multiple * multiple)
        yield Fit(f"{side}.{OVERFLOW}", test, is_dropped, option)


def list_pair_reasons(options: PackOptions) -> set[str]:
    """Return the reasons of this module for which pairs may be left out.

    Args:
        options: resolved.
    """
    reasons = {f"{side}.{EMPTY}" for side in SIDES}
    reasons.update(reason for reason, _ in list_length_tests(options))
    reasons.update(fit.reason for fit in list_fits(options) if fit.is_dropped)
    return reasons


def _test_side(place: int, least: int | None, most: int | None) -> BothTest:
    """Return the test of the lengths of one side."""

    def test(*lengths: np.ndarray) -> np.ndarray:
        found: np.ndarray = lengths[place] >= least if most is None else lengths[place] <= most
        return found

    return test
