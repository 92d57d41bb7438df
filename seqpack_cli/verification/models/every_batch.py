"""Level `run`: run the packed model over every batch once, forwards only.

A batch passes if the device takes it, its ids add up to the same number there as on disk, outputs
are finite and differ between tokens, and each row's final state is its output at its last step.
Batches are read and sent ahead; nothing waits for the device until the results of several are
fetched. A batch that is too large for one call is run in groups of rows and windows of steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import PackedSequence

from seqpack_cli.files.objects import map_ahead
from seqpack_cli.limits import LIMITS
from seqpack_cli.ranges import to_offsets
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.shards.time_steps import count_alive
from seqpack_cli.verification.device import (
    NUM_READERS,
    Sender,
    Sent,
    name_batches,
    naming_batch,
    read_refusal,
    synchronize,
)
from seqpack_cli.verification.models.batch_ids import MAX_STEPS
from seqpack_cli.verification.models.model import Model
from seqpack_cli.verification.torch_rows import TorchRows, to_torch_rows

MAX_ROWS = 65_535  # of one call, as of steps; whether cuDNN takes more is not measured
MAX_NUMBERS = 2**31 - 1  # in one tensor: kernels may count them in 32 bits


@dataclass(frozen=True)
class BatchRun:
    """The results of one batch."""

    index: int
    shard: str
    num_tokens: int
    varies: bool  # not all tokens are the same
    sum_of_ids: int  # on disk, padding too
    num_groups: int  # of rows, run one after another
    # float64[3]: the largest difference of an output between two tokens, that of a final state from
    # its row's last output, and the sum of the ids
    values: torch.Tensor
    refusal: str | None = None  # why the device did not compute it; all values are 0 then


@dataclass(frozen=True)
class _CallResult:
    """The results of one call of the model, on the device."""

    lowest: torch.Tensor  # [units], over all tokens
    highest: torch.Tensor
    difference: torch.Tensor  # the largest, of a final state from its row's last output


@dataclass(frozen=True)
class _Batch:
    index: int
    shard: str
    rows: TorchRows
    ids: Sent  # flat, padding too
    varies: bool
    sum_of_ids: int


def run_every_batch(
    model: Model, shards: ShardSet, indices: Sequence[int], *, max_tokens: int
) -> Iterator[BatchRun]:
    """Run the model over batches of sound shards.

    Args:
        max_tokens: per call. Larger batches are run in windows of steps; the state is passed from
            each window to the next, unless the model is bidirectional.

    Raises:
        MachineError: the device fails or runs out of memory; the batches are named that it may
            have been computing.
    """
    sender = Sender(model.embedding.weight.device)

    def read(index: int) -> _Batch:
        number, inside = shards.find(index)
        shard = shards.open_shard(number)
        rows = to_torch_rows(shard.view(inside))
        cells, tokens = rows.cells.reshape(-1), rows.tokens
        varies = bool((tokens != tokens[0]).any())
        sum_of_ids = int(cells.sum(dtype=np.int64))
        return _Batch(index, shard.path.name, rows, sender.send(cells), varies, sum_of_ids)

    started: list[BatchRun] = []  # their values are on the device
    # closed at once: the traceback of an error keeps this frame, and the readers with it
    with closing(map_ahead(read, indices, num_threads=NUM_READERS)) as batches:
        for number, index in enumerate(indices, start=1):
            place = (shards.find_name(index), index)
            first = (started[0].shard, started[0].index) if started else place
            with naming_batch(*place, unfinished=name_batches(first, place)), torch.no_grad():
                started.append(_try_batch(model, next(batches), max_tokens, sender))
                if number % LIMITS.runs_per_fetch and number < len(indices):
                    continue
                fetched = torch.stack([run.values for run in started]).cpu()
            for run, values in zip(started, fetched, strict=True):
                yield replace(run, values=values)
            started = []


def count_fitting_tokens(model: Model) -> int:
    """Return how many tokens a call may have so that no tensor of it exceeds MAX_NUMBERS."""
    num_gates = model.layers()[0][0][0].shape[0]
    return max(MAX_NUMBERS // (num_gates * model.num_directions), 1)


def _try_batch(model: Model, batch: _Batch, max_tokens: int, sender: Sender) -> BatchRun:
    """Run one batch, and report why if the device refuses it."""
    most = count_fitting_tokens(model)
    max_rows, refusal = min(MAX_ROWS, most), None
    try:
        ids = batch.ids.receive(torch.int64)
        calls: list[_CallResult] = []
        for group in _split_rows(batch.rows.pack(ids), max_rows, sender):
            calls += _run_windows(model, group, min(max_tokens, most), sender)
        values = _join(calls, ids)
    except RuntimeError as error:
        refusal = read_refusal(error)
        if refusal is None:
            raise
        synchronize(batch.ids.tensor.device)  # fails if the device can compute nothing any more
        values = batch.ids.tensor.new_zeros(3, dtype=torch.float64)
    return BatchRun(
        batch.index,
        batch.shard,
        num_tokens=int(batch.rows.lengths.sum()),
        varies=batch.varies,
        sum_of_ids=batch.sum_of_ids,
        num_groups=-(-len(batch.rows.lengths) // max_rows),
        values=values,
        refusal=refusal,
    )


def _split_rows(packed: PackedSequence, max_rows: int, sender: Sender) -> Iterator[PackedSequence]:
    """Yield a batch in groups of at most max_rows rows."""
    batch_sizes = packed.batch_sizes.numpy()
    num_rows, starts = int(batch_sizes[0]), to_offsets(batch_sizes)
    if num_rows <= max_rows:
        yield packed
        return
    for first in range(0, num_rows, max_rows):
        sizes = np.clip(batch_sizes - first, 0, max_rows)
        sizes = sizes[sizes > 0]
        offsets = to_offsets(sizes)
        places = np.arange(offsets[-1])
        places += np.repeat(starts[: len(sizes)] + first - offsets[:-1], sizes)
        ids = packed.data[sender.send(places).receive()]
        yield PackedSequence(ids, torch.from_numpy(sizes), None, None)


def _run_windows(
    model: Model, packed: PackedSequence, max_tokens: int, sender: Sender
) -> Iterator[_CallResult]:
    """Run a batch, in windows of steps if it is too large."""
    hidden: Any = None
    batch_sizes = packed.batch_sizes.numpy()
    offsets = to_offsets(batch_sizes)
    start = 0
    while start < len(batch_sizes):
        end = int(np.searchsorted(offsets, offsets[start] + max_tokens, "right")) - 1
        end = min(max(end, start + 1), start + MAX_STEPS["cuda"], len(batch_sizes))
        sizes = batch_sizes[start:end]
        ids = packed.data[offsets[start] : offsets[end]]
        outputs, hidden = _run_packed(model, ids, sizes, hidden)
        steps = count_alive(sizes) - 1  # the last step of each row
        places = sender.send(to_offsets(sizes)[steps] + np.arange(len(steps))).receive()
        yield _measure(model, outputs, outputs[places], hidden)
        if end < len(batch_sizes):
            hidden = _keep_alive(hidden, int(batch_sizes[end]))
            hidden = None if model.num_directions == 2 else hidden
        start = end


def _run_packed(
    model: Model, ids: torch.Tensor, batch_sizes: np.ndarray, hidden: Any
) -> tuple[torch.Tensor, Any]:
    sizes = torch.from_numpy(batch_sizes.copy())
    packed = PackedSequence(model.embedding(ids), sizes, None, None)
    outputs, hidden = model.recurrent(packed, hidden)
    return outputs.data, hidden


def _measure(model: Model, outputs: torch.Tensor, last: torch.Tensor, hidden: Any) -> _CallResult:
    """Measure the outputs of a call; `last` are those of each row's last step."""
    state = hidden if isinstance(hidden, torch.Tensor) else hidden[0]
    final = state[-model.num_directions]  # of the last layer, forwards
    difference = (final - last[:, : model.hidden_size]).abs().amax()
    return _CallResult(outputs.amin(dim=0), outputs.amax(dim=0), difference)


def _join(results: list[_CallResult], ids: torch.Tensor) -> torch.Tensor:
    """Return the values of BatchRun."""
    lowest = torch.stack([one.lowest for one in results]).amin(dim=0)
    highest = torch.stack([one.highest for one in results]).amax(dim=0)
    difference = torch.stack([one.difference for one in results]).amax()
    spread = (highest - lowest).amax()
    return torch.stack([spread.double(), difference.double(), ids.sum().double()])


def _keep_alive(hidden: Any, num_alive: int) -> Any:
    if isinstance(hidden, torch.Tensor):
        return hidden[:, :num_alive].contiguous()
    return tuple(part[:, :num_alive].contiguous() for part in hidden)
