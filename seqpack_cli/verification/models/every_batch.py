"""Level `run`: run the packed model over every batch once, forwards only.

A batch passes if the device takes it, its ids add up to the same number there as on disk, outputs
are finite and differ between tokens, and each row's final state is its output at its last step.
Batches are read and sent ahead; nothing waits for the device until a group of results is checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import PackedSequence

from seqpack_cli.files.ahead import map_ahead
from seqpack_cli.ranges import to_offsets
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.shards.time_steps import count_alive
from seqpack_cli.verification.device import NUM_READERS, Sender, Sent, naming_batch
from seqpack_cli.verification.models.batch_ids import MAX_STEPS
from seqpack_cli.verification.models.model import Model
from seqpack_cli.verification.torch_rows import TorchRows, to_torch_rows


@dataclass(frozen=True)
class BatchRun:
    """The results of one batch."""

    index: int
    shard: str
    num_tokens: int
    varies: bool  # not all tokens are the same
    sum_of_ids: int  # on disk, padding too
    # float64[3], on the device: the largest difference of an output between two tokens, that of a
    # final state from its row's last output, and the sum of the ids
    values: torch.Tensor


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
    """
    device = model.embedding.weight.device
    sender = Sender(device)

    def read(index: int) -> _Batch:
        number, inside = shards.find(index)
        shard = shards.open_shard(number)
        with naming_batch(shard.path.name, index):
            rows = to_torch_rows(shard.view(inside))
            cells, tokens = rows.cells.reshape(-1), rows.tokens
            varies = bool((tokens != tokens[0]).any())
            sum_of_ids = int(cells.sum(dtype=np.int64))
            return _Batch(index, shard.path.name, rows, sender.send(cells), varies, sum_of_ids)

    for batch in map_ahead(read, indices, num_threads=NUM_READERS):
        with naming_batch(batch.shard, batch.index), torch.no_grad():
            run = _run_batch(model, batch, max_tokens)
        yield run


def _run_batch(model: Model, batch: _Batch, max_tokens: int) -> BatchRun:
    ids = batch.ids.receive(torch.int64)
    found = list(_run_windows(model, batch.rows.pack(ids), max_tokens))
    return BatchRun(
        batch.index,
        batch.shard,
        num_tokens=int(batch.rows.lengths.sum()),
        varies=batch.varies,
        sum_of_ids=batch.sum_of_ids,
        values=_join(found, ids),
    )


def _run_windows(model: Model, packed: PackedSequence, max_tokens: int) -> Iterator[_CallResult]:
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
        places = torch.from_numpy(to_offsets(sizes)[steps] + np.arange(len(steps)))
        places = places.to(outputs.device, non_blocking=True)
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
