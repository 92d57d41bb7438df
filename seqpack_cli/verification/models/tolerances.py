"""How large a rounding error may be before it counts as a fault.

All ways are compared with the float64 loop. The limit of a way is the table's or, for long sums,
four times the error of running each sequence alone in the same dtype. The limit of running alone is
20 times the table's, since a comparison with a run that is far off proves nothing. Faults of layout
give errors of 0.01 and more, far above these limits. Errors of outputs, states and input gradients
are relative to max(1, largest value). Those of weight gradients, which are sums over all tokens,
are relative to their largest value, or to LEAST_SUM where terms cancel or units are saturated so
that few digits are left. The CUDA limits come from torch's own tests and were not measured.

Measured on a CPU, all cells, one direction and two. float32, 1 and 3 layers, 64 and 256 units, rows
of up to 600 steps forward and 350 backward: values 1e-6, weights 1e-6; in models that remember 3e-6
and 4e-6 with one layer, 3e-5 and 2e-5 with three. An LSTM that remembers over 1,000 steps: 3e-4
with 5 layers, the same when run alone; with 8 layers it is chaotic: 3e-3, and alone is above its
limit. float64, up to 3 layers of 16 and 64 units, rows of 120 steps: 3e-15 and 7e-15.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

TIMES_ALONE = 4
TIMES_TABLE = 20
MOST_BESIDE_ALONE = 5e-3  # faults of layout give larger errors
LEAST_SUM = 0.5  # a usual weight gradient is about 1: the loss has standard normal weights
GATES = (torch.float64, torch.float32)  # 16-bit errors are reported only


@dataclass(frozen=True)
class Tolerances:
    """The limits of one dtype on one kind of device."""

    values: float  # outputs, states, input gradients
    weights: float  # weight gradients

    def of(self, quantity: str) -> float:
        """Return the table's limit of a quantity, chosen by its name."""
        return self.weights if quantity.startswith("gradient of weight") else self.values

    def beside_alone(self, quantity: str, error_alone: float) -> float:
        """Return the limit of a way, given the error of running each sequence alone."""
        return max(self.of(quantity), min(TIMES_ALONE * error_alone, MOST_BESIDE_ALONE))

    def of_alone(self, quantity: str) -> float:
        """Return the limit of running each sequence alone."""
        return self.of(quantity) * TIMES_TABLE


# For torch's initialisation, then for the model that remembers, whose states and errors grow.
_TOLERANCES = {
    ("cpu", torch.float64): (Tolerances(1e-12, 1e-11), Tolerances(1e-12, 1e-11)),
    ("cpu", torch.float32): (Tolerances(1e-5, 1e-5), Tolerances(5e-5, 5e-5)),
    ("cpu", torch.float16): (Tolerances(2e-3, 1e-2), Tolerances(5e-2, 2e-2)),
    ("cpu", torch.bfloat16): (Tolerances(2e-2, 8e-2), Tolerances(5e-1, 1e-1)),
    ("cuda", torch.float64): (Tolerances(1e-10, 1e-9), Tolerances(1e-10, 1e-9)),
    ("cuda", torch.float32): (Tolerances(5e-5, 1e-4), Tolerances(2e-4, 2e-4)),
    ("cuda", torch.float16): (Tolerances(5e-3, 2e-2), Tolerances(1e-1, 4e-2)),
    ("cuda", torch.bfloat16): (Tolerances(3e-2, 1e-1), Tolerances(5e-1, 2e-1)),
}


def find_tolerances(device: torch.device, dtype: torch.dtype, *, remembers: bool) -> Tolerances:
    """Return the limits for a device, a dtype and one of the two models."""
    return _TOLERANCES[(device.type, dtype)][int(remembers)]


def measure_error(found: torch.Tensor, reference: torch.Tensor, *, summed: bool) -> float:
    """Return the largest error of a tensor divided by its scale; infinity if it is not finite.

    Args:
        summed: the tensor is a sum over all tokens, so the least scale is LEAST_SUM, else 1.
    """
    if found.numel() == 0:
        return 0.0
    found = found.double()
    if not bool(torch.isfinite(found).all()):
        return float("inf")
    largest = float(reference.abs().max())
    scale = max(LEAST_SUM if summed else 1.0, largest)
    return float((found - reference).abs().max()) / scale
