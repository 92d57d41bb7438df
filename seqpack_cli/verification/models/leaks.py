"""Find results that change where nothing was changed, and tell them from a device's noise.

Changing some rows must not change one bit of the others. Some kernels of a GPU give other bits now
and then for the same input, so a difference as small as rounding is a leak only if it comes back
each time the two runs are repeated, and if the run without the change has equal bits each time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch

NUM_REPEATS = 4

Given = TypeVar("Given")
Results = Mapping[str, torch.Tensor]  # by name, each [N, units]


@dataclass(frozen=True)
class Leak:
    """The largest difference where nothing was changed, and how large it may be."""

    error: float
    limit: float  # above 0 if the device is noisy
    place: int | None  # the first of the N that differs


def find_leaks(
    run: Callable[[Given], Results],
    inputs: tuple[Given, Given],
    outputs: tuple[Results, Results],
    others: Mapping[str, torch.Tensor],
    *,
    most_noise: float,
) -> dict[str, Leak]:
    """Compare results without and with a change, where nothing was changed.

    Args:
        run: computes the results again.
        inputs: of a run, without the change and with it.
        outputs: the results of both.
        others: bool[N] for each name, True where nothing was changed.
        most_noise: the largest difference that may be noise.
    """
    before, after = outputs
    leaked = {name: differ(value, after[name]) & others[name] for name, value in before.items()}
    errors = {name: _measure(value, after[name], leaked[name]) for name, value in before.items()}
    unsure = {name for name, error in errors.items() if 0 < error <= most_noise}
    noisy: set[str] = set()
    for number in range(NUM_REPEATS):
        if unsure <= noisy:
            break
        # in turn the one and the other first, so that noise in every second run is no leak
        found = [run(each) for each in (inputs if number % 2 else inputs[::-1])]
        again, changed = found if number % 2 else found[::-1]
        for name in unsure - noisy:
            lasting = leaked[name] & differ(before[name], changed[name])
            if bool(differ(before[name], again[name]).any()) or not bool(lasting.any()):
                noisy.add(name)
            else:
                leaked[name] = lasting
    return {
        name: Leak(
            error,
            most_noise if name in noisy else 0.0,
            int(leaked[name].int().argmax()) if error > 0 else None,
        )
        for name, error in errors.items()
    }


def differ(before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
    """Return which of N rows are not the same, bool[N]; NaN is the same as NaN.

    >>> differ(torch.tensor([[math.nan], [1.0]]), torch.tensor([[math.nan], [2.0]])).tolist()
    [False, True]
    """
    return ~_same(before, after).all(dim=1)


def _same(before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
    return (before == after) | (before.isnan() & after.isnan())


def _measure(before: torch.Tensor, after: torch.Tensor, leaked: torch.Tensor) -> float:
    """Return the largest difference of the rows that leaked; infinity if one is not finite."""
    if not bool(leaked.any()):
        return 0.0
    differences = (before - after).abs().masked_fill(_same(before, after), 0)
    largest = float(differences[leaked].max())
    return math.inf if math.isnan(largest) else largest
