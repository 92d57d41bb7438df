"""A difference in rows that were not changed is a leak if it is large, or comes back each time."""

from __future__ import annotations

import math

import pytest
import torch

from seqpack_cli.verification.models.leaks import NUM_REPEATS, Leak, find_leaks

PLAIN = torch.zeros(3, 2)
OTHERS = torch.tensor([True, False, True])
LIMIT = 0.1

Pair = tuple[torch.Tensor, torch.Tensor]  # the outputs without and with the change


def off_by(error: float, *rows: int) -> torch.Tensor:
    outputs = PLAIN.clone()
    outputs[list(rows), 1] = error
    return outputs


def find(*pairs: Pair) -> tuple[Leak, int]:
    """Compare the first pair of outputs; return the leak and how many of the others were needed."""
    runs = {False: [pair[0] for pair in pairs], True: [pair[1] for pair in pairs]}
    found = find_leaks(
        lambda is_changed: {"outputs": runs[is_changed].pop(0)},
        (False, True),
        tuple({"outputs": outputs.pop(0)} for outputs in runs.values()),
        {"outputs": OTHERS},
        most_noise=LIMIT,
    )
    return found["outputs"], len(pairs) - 1 - len(runs[True])


def test_a_change_of_what_was_changed_is_not_a_leak() -> None:
    assert find((PLAIN, off_by(9.0, 1))) == (Leak(0.0, 0.0, None), 0)


@pytest.mark.parametrize("error", [0.2, math.inf, math.nan])
def test_a_large_leak_needs_no_repeat(error: float) -> None:
    found = math.inf if math.isnan(error) else pytest.approx(error)
    assert find((PLAIN, off_by(error, 0, 1))) == (Leak(found, 0.0, 0), 0)


def test_nan_in_both_is_not_a_leak() -> None:
    assert find((off_by(math.nan, 2), off_by(math.nan, 2))) == (Leak(0.0, 0.0, None), 0)


def test_a_small_leak_is_one_if_it_comes_back_in_the_same_row() -> None:
    leak, found = (PLAIN, off_by(0.05, 1, 2)), Leak(pytest.approx(0.05), 0.0, 2)
    assert find(*[leak] * (NUM_REPEATS + 1)) == (found, NUM_REPEATS)
    # in row 0 only once
    assert find((PLAIN, off_by(0.05, 0, 2)), *[leak] * NUM_REPEATS) == (found, NUM_REPEATS)


@pytest.mark.parametrize(
    "repeat",
    [(PLAIN, PLAIN), (PLAIN, off_by(0.05, 0)), (off_by(0.05, 1), off_by(0.05, 2))],
    ids=["does not come back", "comes back in another row", "unchanged runs differ"],
)
def test_a_small_leak_that_may_be_noise_has_a_limit(repeat: Pair) -> None:
    leak, found = (PLAIN, off_by(0.05, 2)), Leak(pytest.approx(0.05), LIMIT, 2)
    assert find(leak, repeat, leak) == (found, 1)
    assert find(*[leak] * NUM_REPEATS, repeat) == (found, NUM_REPEATS)
