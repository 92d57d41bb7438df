"""The limits of rounding errors, and how an error is measured."""

from __future__ import annotations

import math

import pytest
import torch

from seqpack_cli.verification.models.tolerances import (
    GATES,
    LEAST_SUM,
    Tolerances,
    find_tolerances,
    measure_error,
)

DEVICES = [torch.device("cpu"), torch.device("cuda", 0)]


@pytest.mark.parametrize("device", DEVICES, ids=str)
@pytest.mark.parametrize("dtype", GATES, ids=str)
def test_limits_of_a_gate_are_below_any_fault(device: torch.device, dtype: torch.dtype) -> None:
    """Faults of layout give errors of 0.01 and more."""
    for remembers in (False, True):
        limits = find_tolerances(device, dtype, remembers=remembers)
        assert 1e-13 < max(limits.values, limits.weights) < 5e-4


def test_limits_tell_weights_from_values() -> None:
    tolerances = Tolerances(values=2e-4, weights=3e-4)
    assert (
        tolerances.of("outputs")
        == tolerances.of("gradient of inputs")
        == tolerances.of("h_n")
        == 2e-4
    )
    assert tolerances.of("gradient of weight bias_hh_l0") == 3e-4
    assert tolerances.beside_alone("outputs", 1e-5) == 2e-4
    assert tolerances.beside_alone("outputs", 1e-4) == 4e-4
    assert tolerances.beside_alone("outputs", 1.0) == 5e-3
    assert tolerances.of_alone("outputs") == pytest.approx(4e-3)


def test_error_is_a_share_of_the_largest_value_above_one() -> None:
    small, large = torch.tensor([0.5, 0.25]), torch.tensor([-8.0, 2.0])
    assert measure_error(small + 0.125, small, summed=False) == 0.125
    assert measure_error(large + 0.125, large, summed=False) == 0.125 / 8


def test_error_of_a_sum_is_a_share_of_its_own_size_down_to_a_half() -> None:
    ordinary, small = torch.tensor([0.75, 0.25]), torch.tensor([1e-4, 0.0])
    assert measure_error(ordinary + 0.125, ordinary, summed=True) == pytest.approx(0.125 / 0.75)
    assert measure_error(small + 0.125, small, summed=True) == pytest.approx(0.125 / LEAST_SUM)
    assert measure_error(torch.tensor([0.125]), torch.zeros(1), summed=True) == 0.25
    assert measure_error(torch.empty(0), torch.empty(0), summed=True) == 0


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_error_of_what_is_not_finite_is_infinite(wrong: float) -> None:
    assert measure_error(torch.tensor([0.5, wrong]), torch.zeros(2), summed=False) == math.inf
