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

from seqpack_cli.errors import ModelError
from seqpack_cli.verification.device import naming_memory
from seqpack_cli.verification.user_models.batch_kinds import describe_call
from seqpack_cli.verification.user_models.float64 import (
    Widening,
    copy_in_float64,
    default_float64,
    needs_widening,
)
from seqpack_cli.verification.user_models.located_batch import LocatedBatch
from seqpack_cli.verification.user_models.other_outputs import OtherOutputs
from seqpack_cli.verification.user_models.output_errors import find_errors
from seqpack_cli.verification.user_models.outputs import (
    SEQUENCE,
    STATES,
    TOKEN,
    OutputKinds,
    find_loss,
    find_tensor,
)
from seqpack_cli.verification.user_models.user_code import running

WIDE = (torch.float64, torch.complex128)
NUM_PERTURBED = 6  # runs with slightly changed weights
# Units in the last place by which weights are changed, and the limit as a multiple of what that
# moves. 16 units of bfloat16 would be an eighth of each weight.
UNITS, TIMES_NOISE = 16, 10
UNITS_16_BIT, TIMES_NOISE_16_BIT = 1, 2
HINT = "pass a smaller batch, or pack with a smaller --batch-size"


Parts = dict[str, torch.Tensor]  # of a sequence: "" is its outputs, the others have names


@dataclass
class Outputs:
    """What a model gave for a batch."""

    sequences: list[torch.Tensor]  # of each sequence, [length, features] or [1, features]
    loss: float | None
    others: dict[str, list[torch.Tensor]] = field(default_factory=dict)  # beside them, by name

    def parts(self, number: int) -> Parts:
        """Return all outputs of a sequence."""
        return {
            "": self.sequences[number],
            **{key: each[number] for key, each in self.others.items()},
        }


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
    others: OtherOutputs = field(default_factory=OtherOutputs)

    def learn(self, tried: list[tuple[str, LocatedBatch]]) -> None:
        """Find out what the outputs are, from a few batches.

        Raises:
            OptionError: they are neither per token nor per sequence.
        """
        returned = []
        for place, found in tried:
            try:
                returned.append((self.call_model(found, place), found))
            except ModelError:
                if not returned:
                    raise
                continue  # a sequence alone, which the check `alone` raises
            self.kinds.read(*returned[-1], place)
        self.others.learn(returned)

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
        others = {
            name: [_flatten(each) for each in parts]
            for name, parts in self.others.read(returned, found).items()
            if self.dtype is not torch.float64 or parts[0].dtype in WIDE
        }
        return Outputs(sequences, None if loss is None else float(loss), others)

    def is_per_sequence(self, name: str) -> bool:
        """Return whether a part of the outputs is per sequence, not per token."""
        kind = self.others.kinds.get(name, TOKEN) if name else self.kinds.kind
        return kind in (SEQUENCE, STATES)

    def call_model(self, found: LocatedBatch, place: str) -> Any:
        """Call the model on a copy of a batch, which it may change."""
        batch = copy.deepcopy(found.batch)
        code = describe_call(self.call, batch)
        with torch.no_grad(), naming_memory(place, HINT), running(code, place):
            if self.dtype is not torch.float64:
                return self.call(self.model, batch)
            with default_float64(), Widening() if self.widens else nullcontext():
                return self.call(self.model, batch)

    def measure_noise(self, found: LocatedBatch, place: str) -> dict[str, list[torch.Tensor]]:
        """Return a multiple of how far outputs move if weights change in their last places.

        By the name of the part, of each sequence, one number for each feature, so that one that
        amplifies rounding errors hides no other.
        """
        is_narrow = self.dtype.itemsize == 2
        units = UNITS_16_BIT if is_narrow else UNITS
        before = self.run(found, place)
        numbers = range(len(before.sequences))
        moved = {
            name: [torch.zeros(before.parts(number)[name].shape[1]).double() for number in numbers]
            for name in before.parts(0)
        }
        times = TIMES_NOISE_16_BIT if is_narrow else TIMES_NOISE
        for seed in range(NUM_PERTURBED):
            with perturbed(self.model, seed, units):
                after = self.run(found, place)
            for number in numbers:
                old, new = before.parts(number), after.parts(number)
                for name in old.keys() & new.keys():
                    if len(old[name]):
                        error = find_errors(old[name], new[name]).amax(dim=0) * times
                        moved[name][number] = moved[name][number].maximum(error)
        return moved


def in_float64(runner: Runner, found: LocatedBatch, limit: float) -> tuple[Runner | None, str]:
    """Return a runner of a copy in float64; None, and why, if there can be none."""
    try:
        model = copy_in_float64(runner.model)
        exact = Runner(model, runner.call, torch.float64, limit, kinds=runner.kinds)
        exact.others = runner.others
        with torch.no_grad(), running(describe_call(runner.call, found.batch), "float64"):
            exact.widens = needs_widening(lambda: runner.call(model, copy.deepcopy(found.batch)))
        outputs = find_tensor(exact.call_model(found, "float64"))
    except Exception as error:
        return None, f"{type(error).__name__}: {error}".splitlines()[0][:200]
    if outputs is None or outputs.dtype not in WIDE:
        return None, f"its outputs stay {'none' if outputs is None else outputs.dtype}"
    return exact, ""


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
