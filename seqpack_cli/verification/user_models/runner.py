"""Runs a user's model on batches, in one dtype, and says what its outputs are worth.

An error of more than the limit may still be rounding: some models amplify it without bound (deep
recurrent ones, choices between nearly equal scores). So before it counts, the weights are changed
by a few units in their last place, and the error must be larger than what that changes.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from seqpack_cli.errors import ModelError
from seqpack_cli.verification.device import is_out_of_memory, naming_memory
from seqpack_cli.verification.user_models.float64 import (
    Widening,
    copy_in_float64,
    default_float64,
    needs_widening,
)
from seqpack_cli.verification.user_models.located_batch import LocatedBatch
from seqpack_cli.verification.user_models.outputs import HINT as CALL_HINT
from seqpack_cli.verification.user_models.outputs import (
    choose_kind,
    find_loss,
    find_tensor,
    read_outputs,
)

NUM_PERTURBED = 6  # runs with slightly changed weights
# Units in the last place by which weights are changed, and the limit as a multiple of what that
# moves. 16 units of bfloat16 would be an eighth of each weight.
UNITS, TIMES_NOISE = 16, 10
UNITS_16_BIT, TIMES_NOISE_16_BIT = 1, 2
# Frames of a traceback that are not the user's.
HIDDEN = (
    str(Path(__file__).parents[2]),
    str(Path("torch", "nn", "modules", "module.py")),
    "<frozen importlib",
)
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
    kind: str | None = None  # of the outputs: see `outputs`

    def learn_kind(self, tried: list[tuple[str, LocatedBatch]]) -> None:
        """Find out whether outputs are per token or per sequence."""
        self.kind = choose_kind([(self.call_model(found, place), found) for place, found in tried])

    def run(self, found: LocatedBatch, place: str) -> Outputs:
        """Return the outputs of each sequence.

        Raises:
            ModelError: the model raised an exception.
            MachineError: the device is out of memory.
            OptionError: the outputs have another shape than the batch before.
        """
        returned = self.call_model(found, place)
        assert self.kind is not None  # noqa: S101 - learn_kind came before
        sequences = [
            each.detach().reshape(len(each), -1)
            for each in read_outputs(returned, found, self.kind)
        ]
        loss = find_loss(returned)
        return Outputs(sequences, None if loss is None else float(loss))

    def call_model(self, found: LocatedBatch, place: str) -> Any:
        """Call the model on a batch."""
        with torch.no_grad(), naming_memory(place, HINT), naming_model(place):
            if self.dtype is not torch.float64:
                return self.call(self.model, found.batch)
            with default_float64(), Widening() if self.widens else nullcontext():
                return self.call(self.model, found.batch)

    def measure_noise(self, found: LocatedBatch, place: str) -> float:
        """Return a multiple of how far outputs move if weights change in their last places."""
        is_narrow = self.dtype.itemsize == 2
        units = UNITS_16_BIT if is_narrow else UNITS
        before, moved = self.run(found, place), 0.0
        for seed in range(NUM_PERTURBED):
            with perturbed(self.model, seed, units):
                after = self.run(found, place)
            pairs = zip(before.sequences, after.sequences, strict=True)
            moved = max([moved, *(largest_error(old, new) for old, new in pairs)])
        return moved * (TIMES_NOISE_16_BIT if is_narrow else TIMES_NOISE)


def in_float64(runner: Runner, found: LocatedBatch, limit: float) -> tuple[Runner | None, str]:
    """Return a runner of a copy in float64; None, and why, if there can be none."""
    try:
        model = copy_in_float64(runner.model)
        exact = Runner(model, runner.call, torch.float64, limit, kind=runner.kind)
        with torch.no_grad():
            exact.widens = needs_widening(lambda: runner.call(model, found.batch))
        outputs = find_tensor(exact.call_model(found, "float64"))
    except Exception as error:
        return None, f"{type(error).__name__}: {error}".splitlines()[0][:200]
    if outputs is None or outputs.dtype is not torch.float64:
        return None, f"its outputs stay {'none' if outputs is None else outputs.dtype}"
    return exact, ""


def errors_between(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Return the largest error of each token, float64[length] on the CPU.

    It is infinity for NaN, and where one has another length or other features.
    """
    if first.shape != second.shape:
        return torch.full((len(first),), math.inf, dtype=torch.float64)
    errors = (first.double() - second.double()).abs()
    return (
        errors.nan_to_num(nan=math.inf).amax(dim=1).cpu()
        if errors.numel()
        else errors[:, :0].sum(1).cpu()
    )


def largest_error(first: torch.Tensor, second: torch.Tensor) -> float:
    """Return the largest error of all tokens; 0 if there are none."""
    return float(errors_between(first, second).max()) if len(first) else 0.0


def find_scale(outputs: list[torch.Tensor]) -> float:
    """Return the largest output of a batch, which errors are relative to."""
    largest = [float(each.abs().max()) for each in outputs if each.numel()]
    return max([*largest, torch.finfo(torch.float32).tiny])


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


@contextmanager
def naming_model(place: str) -> Iterator[None]:
    """Name the batch in an exception of the user's model, and show their part of the traceback.

    Raises:
        ModelError: there was one.
    """
    try:
        yield
    except Exception as error:
        if is_out_of_memory(error):
            raise
        frames = [
            frame
            for frame in traceback.extract_tb(error.__traceback__)
            if not any(hidden in frame.filename for hidden in HIDDEN)
        ]
        lines = traceback.format_list(frames) + traceback.format_exception_only(error)
        wrong_arguments = isinstance(error, TypeError) and not frames
        raise ModelError(
            f"{place}: the model raised {type(error).__name__}",
            hint=CALL_HINT if wrong_arguments else None,
            traceback="".join(lines),
        ) from error
