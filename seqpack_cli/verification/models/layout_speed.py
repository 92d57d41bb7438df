"""Measure the speed of each layout on this device, in real tokens per second.

The same ids run as a PackedSequence (`packed`), as their rectangle, where padding is computed but
not counted (`padded`), and as rows of equal length (`dense`), the best that ragged rows could
reach. `forward` runs in evaluation mode; `training` is forward and backward of the outputs' sum,
embedding included, without an optimizer. It takes about 15 s, however many batches there are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import numpy as np
import torch
from torch.nn.utils.rnn import PackedSequence

from seqpack_cli.shards.layouts import Batch
from seqpack_cli.verification.device import naming_batch, synchronize
from seqpack_cli.verification.models.batch_ids import MAX_STEPS, BatchIds, SizeLimits, take_ids
from seqpack_cli.verification.models.model import Model
from seqpack_cli.verification.report import LayoutSpeed

MEASURED_LAYOUTS = ("packed", "padded", "dense")
SECONDS = 15.0
FIRST_ROUND_SHARE = 1 / 3  # of the time, since a second round has to follow
MAX_ROUNDS = 10
# torch's packed backward on a CPU takes time by steps x tokens: 2**21 of them about 1 s.
MAX_CPU_WORK = 1 << 21

Ids = PackedSequence | torch.Tensor
Clock = Callable[[], float]
Computing = Callable[[str, int], AbstractContextManager[None]]


@dataclass(frozen=True)
class _Trial:
    """One batch in all layouts."""

    shard: str
    index: int
    ids: dict[str, Ids]  # of each layout
    num_tokens: dict[str, int]  # padding not counted
    # the best of all rounds, by layout and whether it trains
    seconds: dict[tuple[str, bool], float] = field(default_factory=dict)


def measure_layouts(
    model: Model,
    batches: Iterable[tuple[str, int, Batch]],
    *,
    max_tokens: int,
    computing: Computing = naming_batch,
    seconds: float = SECONDS,
    clock: Clock = time.perf_counter,
) -> list[LayoutSpeed]:
    """Measure the same batches in every layout, in several rounds of which the best counts.

    The first round warms up. If it takes too long, fewer batches are measured, chosen at random.

    Args:
        batches: with the name of the shard and the index of each, for error messages.
        max_tokens: a larger batch is cut to the window where most rows end; on a CPU also one whose
            packed backward would take more than about a second.
        computing: returns a context, of the name of a shard and the index of a batch. If it keeps
            back an error, that batch is left out.
        seconds: for all rounds, about; at least two rounds of one batch are run.

    Returns:
        packed, padded and dense; nothing if there is no batch. dense has the rows of the batch, all
        of the mean length rounded down; the remaining tokens are left out.

    Raises:
        MachineError: the device runs out of memory; the batch is named.
    """
    started, device = clock(), model.embedding.weight.device
    work = MAX_CPU_WORK if device.type == "cpu" else None
    limits = SizeLimits(max_tokens, MAX_STEPS[device.type], work)
    was_training = model.recurrent.training
    trials: list[_Trial] = []
    for name, index, batch in _spread(list(batches)):
        with computing(name, index):
            trial = _lay_out(name, index, take_ids(batch, device, limits))
            _run_trial(model, trial, MEASURED_LAYOUTS, clock)
            trials.append(trial)
        if clock() - started > seconds * FIRST_ROUND_SHARE:
            break
    for number in range(1, MAX_ROUNDS):
        layouts = MEASURED_LAYOUTS[::-1] if number % 2 else MEASURED_LAYOUTS
        before, trials = trials, []
        for trial in before:
            with computing(trial.shard, trial.index):
                if number == 1 or clock() - started <= seconds:
                    _run_trial(model, trial, layouts, clock)
                trials.append(trial)
    model.recurrent.train(was_training)
    return [_sum_up(trials, layout) for layout in MEASURED_LAYOUTS] if trials else []


def _spread(batches: list[tuple[str, int, Batch]]) -> list[tuple[str, int, Batch]]:
    """Shuffle batches with a fixed seed, so that the first few have long ones and short ones."""
    return [batches[place] for place in np.random.default_rng(0).permutation(len(batches))]


def _lay_out(shard: str, index: int, ids: BatchIds) -> _Trial:
    """Put one batch into all layouts."""
    num_tokens, num_rows = len(ids.packed.data), len(ids.lengths)
    num_steps = num_tokens // num_rows  # every row has a token, so at least 1
    dense = ids.packed.data[ids.row_order][: num_rows * num_steps].view(num_rows, num_steps)
    # a rectangle may be wider than its longest row, and wider than cuDNN takes
    padded = ids.rectangle[:, : MAX_STEPS["cuda"]].contiguous()
    return _Trial(
        shard,
        index,
        {"packed": ids.packed, "padded": padded, "dense": dense},
        {"packed": num_tokens, "padded": num_tokens, "dense": dense.numel()},
    )


def _run_trial(model: Model, trial: _Trial, layouts: Sequence[str], clock: Clock) -> None:
    """Time every layout, forward and training, and keep the shortest times."""
    device = model.embedding.weight.device
    for trains in (False, True):
        # cuDNN stores what backward needs in training mode only; there is no dropout
        model.recurrent.train(trains)
        for layout in layouts:
            synchronize(device)
            started = clock()
            _run(model, trial.ids[layout], trains=trains)
            synchronize(device)
            taken = clock() - started
            key = (layout, trains)
            trial.seconds[key] = min(taken, trial.seconds.get(key, taken))


def _run(model: Model, ids: Ids, *, trains: bool) -> None:
    """Run the model, and its backward pass if it trains."""
    with torch.set_grad_enabled(trains):
        if isinstance(ids, PackedSequence):
            inputs = PackedSequence(model.embedding(ids.data), ids.batch_sizes, None, None)
            outputs = model.recurrent(inputs)[0].data
        else:
            outputs = model.recurrent(model.embedding(ids))[0]
        if trains:
            torch.autograd.backward(outputs.sum())
    for parameter in model.parameters().values():
        parameter.grad = None


def _sum_up(trials: list[_Trial], layout: str) -> LayoutSpeed:
    num_tokens = sum(trial.num_tokens[layout] for trial in trials)
    forward, training = (
        num_tokens / sum(trial.seconds[layout, trains] for trial in trials)
        for trains in (False, True)
    )
    return LayoutSpeed(layout, forward, training)
