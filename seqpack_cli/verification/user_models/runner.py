"""Runs a user's model on batches, in one dtype, and says what its outputs are worth.

An error of more than the limit may still be rounding: some models amplify it without bound (deep
recurrent ones, choices between nearly equal scores). So before it counts, the weights are changed
by a few units in their last place, and the error must be larger than what that changes.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from seqpack_cli.verification.device import naming_memory
from seqpack_cli.verification.user_models.batch_kinds import describe_call
from seqpack_cli.verification.user_models.float64 import (
    Widening,
    copy_in_float64,
    default_float64,
    needs_widening,
)
from seqpack_cli.verification.user_models.located_batch import LocatedBatch
from seqpack_cli.verification.user_models.outputs import (
    OutputKinds,
    find_loss,
    find_tensor,
)
from seqpack_cli.verification.user_models.user_code import running

NUM_PERTURBED = 6  # runs with slightly changed weights
# Units in the last place by which weights are changed, and the limit as a multiple of what that
# moves. 16 units of bfloat16 would be an eighth of each weight.
UNITS, TIMES_NOISE = 16, 10
UNITS_16_BIT, TIMES_NOISE_16_BIT = 1, 2
OUTLIER = 1000  # outputs above this multiple of the median of all different ones
MEDIAN_SIZE = 100_000  # outputs of which the median is taken
HINT = "pass a smaller batch, or pack with a smaller --batch-size"


@dataclass
class Outputs:
    """What a model gave for a batch."""

    sequences: list[torch.Tensor]  # of each sequence, [length, features] or [1, features]
    loss: float | None


@dataclass
class Runner:
    """A model, how it is called, and what its outputs are."""

    model: Any
    call: Callable[[Any, Any], Any]
    dtype: torch.dtype
    limit: float
    is_gate: bool = True
    widens: bool = False
    kinds: OutputKinds = field(default_factory=OutputKinds)

    def run(self, found: LocatedBatch, place: str) -> Outputs:
        """Return the outputs of each sequence.

        Raises:
            ModelError: the model raised an exception.
            MachineError: the device is out of memory.
            OptionError: the outputs are neither per token nor per sequence.
        """
        returned = self.call_model(found, place)
        sequences = [_flatten(each) for each in self.kinds.read(returned, found, place)]
        loss = find_loss(returned)
        return Outputs(sequences, None if loss is None else float(loss))

    def call_model(self, found: LocatedBatch, place: str) -> Any:
        """Call the model on a copy of a batch, which it may change."""
        batch = copy.deepcopy(found.batch)
        code = describe_call(self.call, batch)
        with torch.no_grad(), naming_memory(place, HINT), running(code, place):
            if self.dtype is not torch.float64:
                return self.call(self.model, batch)
            with default_float64(), Widening() if self.widens else nullcontext():
                return self.call(self.model, batch)

    def measure_noise(self, found: LocatedBatch, place: str) -> torch.Tensor:
        """Return a multiple of how far outputs move if weights change in their last places.

        One number for each feature, so that one that amplifies rounding errors hides no other.
        """
        is_narrow = self.dtype.itemsize == 2
        units = UNITS_16_BIT if is_narrow else UNITS
        before = self.run(found, place)
        moved = torch.zeros(before.sequences[0].shape[1], dtype=torch.float64)
        for seed in range(NUM_PERTURBED):
            with perturbed(self.model, seed, units):
                after = self.run(found, place)
            for old, new in zip(before.sequences, after.sequences, strict=True):
                if len(old):
                    moved = moved.maximum(find_errors(old, new).amax(dim=0))
        return moved * (TIMES_NOISE_16_BIT if is_narrow else TIMES_NOISE)


def in_float64(runner: Runner, found: LocatedBatch, limit: float) -> tuple[Runner | None, str]:
    """Return a runner of a copy in float64; None, and why, if there can be none."""
    try:
        model = copy_in_float64(runner.model)
        exact = Runner(model, runner.call, torch.float64, limit, kinds=runner.kinds)
        with torch.no_grad(), running(describe_call(runner.call, found.batch), "float64"):
            exact.widens = needs_widening(lambda: runner.call(model, copy.deepcopy(found.batch)))
        outputs = find_tensor(exact.call_model(found, "float64"))
    except Exception as error:
        return None, f"{type(error).__name__}: {error}".splitlines()[0][:200]
    if outputs is None or outputs.dtype not in (torch.float64, torch.complex128):
        return None, f"its outputs stay {'none' if outputs is None else outputs.dtype}"
    return exact, ""


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


def _flatten(outputs: torch.Tensor) -> torch.Tensor:
    """Return outputs as floating-point numbers, [length, features]."""
    real = torch.view_as_real(outputs.detach().resolve_conj()) if outputs.is_complex() else outputs
    flat = real.detach().reshape(len(real), math.prod(real.shape[1:]))
    return flat if flat.is_floating_point() else flat.double()


@contextmanager
def perturbed(model: Any, seed: int, units: int) -> Iterator[None]:
    """Change all weights at random by a few units in the last place, and restore them."""
    weights = [each for each in model.parameters() if each.is_floating_point()]
    before = [weight.detach().clone() for weight in weights]
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in weights:
            size = units * torch.finfo(weight.dtype).eps
            noise = torch.randint(0, 2, weight.shape, generator=generator) * 2 - 1
            weight.mul_(1 + size * noise.to(weight.device, torch.float64).to(weight.dtype))
    try:
        yield
    finally:
        with torch.no_grad():
            for weight, old in zip(weights, before, strict=True):
                weight.copy_(old)
