"""How far two outputs are apart, and what that is relative to."""

from __future__ import annotations

import math

import torch

OUTLIER = 1000  # outputs above this multiple of the median of all different ones
MEDIAN_SIZE = 100_000  # outputs of which the median is taken


def find_errors(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Return the error of each output, float64[length, features] on the CPU.

    It is infinity for NaN, and where one has another length or other features.
    """
    if first.shape != second.shape:
        return torch.full(first.shape, math.inf, dtype=torch.float64)
    one, other = first.double(), second.double()
    errors = (one - other).abs().nan_to_num(nan=math.inf)
    return errors.masked_fill_(one == other, 0).cpu()  # also of two infinities


def largest_error(first: torch.Tensor, second: torch.Tensor) -> float:
    """Return the largest error of all tokens; 0 if there are none."""
    return float(find_errors(first, second).max()) if first.numel() else 0.0


def is_sound(outputs: torch.Tensor) -> bool:
    """Return whether outputs are finite; some of a token may be masked by negative infinity."""
    is_wrong = outputs.isnan() | outputs.isposinf()
    return not bool(is_wrong.any()) and bool(outputs.isfinite().any(dim=1).all())


def find_scale(outputs: list[torch.Tensor]) -> float:
    """Return the largest output of a batch, which errors are relative to.

    Outliers do not count, so that a mask of -1e9 does not hide the errors of all others.
    """
    values = torch.cat([each.flatten() for each in outputs]).abs()
    values = values[values.isfinite() & (values > 0)]
    if not len(values):
        return torch.finfo(torch.float32).tiny
    some = values[:: len(values) // MEDIAN_SIZE + 1].double()
    return min(float(values.max()), OUTLIER * float(torch.unique(some).median()))
