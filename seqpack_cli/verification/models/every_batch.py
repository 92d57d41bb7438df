"""The packed model over every batch, once: what training would do, without an optimizer.

Holds when the device takes every batch, its ids add up there to what they do here, outputs are
finite and differ between tokens, and each row's final state is its output at its last step. Batches
are read and sent ahead; nothing waits for the device until a group of results is looked at. Where
all rows of a batch end together, torch's dense path computes the same, and is taken if it is the
faster one here.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import PackedSequence

from seqpack_cli.files.ahead import map_ahead
from seqpack_cli.ranges import to_offsets
from seqpack_cli.shards.packed import PackedBatch
from seqpack_cli.shards.padded import PaddedBatch
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.shards.time_steps import count_alive
from seqpack_cli.verification.device import naming_batch, synchronize
from seqpack_cli.verification.models.batch_ids import MAX_STEPS, pack_ids, to_torch_rows
from seqpack_cli.verification.models.model import Model
from seqpack_cli.verification.transfer import Sender, Sent

NUM_READERS = 2
NUM_TRIALS = 3


@dataclass(frozen=True)
class BatchRun:
    """What a batch gave."""

    index: int
    shard: str
    num_tokens: int
    was_dense: bool
    varies: bool  # not all tokens are the same
    sum_of_ids: int  # on disk, padding too
    # float64[3], on the device: how far an output varies between tokens, the largest difference of
    # a final state, the sum of the ids
    values: torch.Tensor


@dataclass
class DensePath:
    """Whether batches of equal rows are computed without packing: as the first of them says."""

    is_faster: bool | None = None
    shard: str = ""
    index: int = -1  # of that first one
    difference: float = 0.0  # of its outputs from those of the packed path
    seconds: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class _Seen:
    """What one call of the model gave, on the device."""

    lowest: torch.Tensor  # [units], over all tokens
    highest: torch.Tensor
    difference: torch.Tensor  # the largest of a final state from its row's last output


@dataclass(frozen=True)
class _Batch:
    index: int
    shard: str
    rows: PackedBatch | PaddedBatch
    ids: Sent  # flat, padding too
    varies: bool
    sum_of_ids: int


def run_every_batch(
    model: Model, shards: ShardSet, indices: Sequence[int], dense: DensePath, *, max_tokens: int
) -> Iterator[BatchRun]:
    """Run the model over batches of sound shards.

    Args:
        dense: is decided at the first batch of equal rows.
        max_tokens: of one call; larger batches are run in windows of their steps, whose state goes
            on from one to the next unless the model is bidirectional.
    """
    device = model.embedding.weight.device
    sender = Sender(device)

    def read(index: int) -> _Batch:
        number, inside = shards.find(index)
        shard = shards.open_shard(number)
        with naming_batch(shard.path.name, index):
            rows, _ = to_torch_rows(shard.view(inside))
            cells = rows.data if isinstance(rows, PackedBatch) else rows.ids.reshape(-1)
            tokens = cells if isinstance(rows, PackedBatch) else rows.ids[rows.mask]
            varies = bool((tokens != tokens[0]).any())
            sum_of_ids = int(cells.sum(dtype=np.int64))
            return _Batch(index, shard.path.name, rows, sender.send(cells), varies, sum_of_ids)

    for batch in map_ahead(read, indices, num_threads=NUM_READERS):
        with naming_batch(batch.shard, batch.index), torch.no_grad():
            run = _run_batch(model, batch, dense, max_tokens)
        yield run


def _run_batch(model: Model, batch: _Batch, dense: DensePath, max_tokens: int) -> BatchRun:
    ids = batch.ids.receive(torch.int64)
    lengths = batch.rows.lengths
    num_tokens = int(lengths.sum())
    is_whole = bool(num_tokens <= max_tokens and lengths[0] <= MAX_STEPS["cuda"])
    is_even = is_whole and len(lengths) > 1 and bool(lengths[0] == lengths[-1])
    if is_even and dense.is_faster is None:
        dense.shard, dense.index = batch.shard, batch.index
        _try_both(model, batch.rows, ids, dense)
    if is_even and dense.is_faster:
        found = [_run_dense(model, _to_rectangle(batch.rows, ids))]
    else:
        found = list(_run_windows(model, pack_ids(batch.rows, ids), max_tokens))
    return BatchRun(
        batch.index,
        batch.shard,
        num_tokens,
        was_dense=bool(is_even and dense.is_faster),
        varies=batch.varies,
        sum_of_ids=batch.sum_of_ids,
        values=_join(found, ids),
    )


def _to_rectangle(rows: PackedBatch | PaddedBatch, ids: torch.Tensor) -> torch.Tensor:
    """Give the ids of rows of equal length, [B, T]."""
    num_rows, num_steps = len(rows.lengths), int(rows.lengths[0])
    if isinstance(rows, PackedBatch):
        return ids.view(num_steps, num_rows).t()
    return ids.view(rows.ids.shape)[:, :num_steps]


def _run_windows(model: Model, packed: PackedSequence, max_tokens: int) -> Iterator[_Seen]:
    """Run a batch, in pieces if it is too large."""
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
        steps = count_alive(sizes) - 1  # the last of each row
        places = torch.from_numpy(to_offsets(sizes)[steps] + np.arange(len(steps)))
        places = places.to(outputs.device, non_blocking=True)
        yield _look(model, outputs, outputs[places], hidden)
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


def _run_dense(model: Model, ids: torch.Tensor) -> _Seen:
    outputs, hidden = model.recurrent(model.embedding(ids))
    return _look(model, outputs, outputs[:, -1], hidden)


def _look(model: Model, outputs: torch.Tensor, last: torch.Tensor, hidden: Any) -> _Seen:
    """Look at the outputs of a call, and at those of each row's last step."""
    state = hidden if isinstance(hidden, torch.Tensor) else hidden[0]
    final = state[-model.num_directions]  # of the last layer, forwards
    over_tokens = tuple(range(outputs.dim() - 1))
    difference = (final - last[:, : model.hidden_size]).abs().amax()
    return _Seen(outputs.amin(dim=over_tokens), outputs.amax(dim=over_tokens), difference)


def _join(seen: list[_Seen], ids: torch.Tensor) -> torch.Tensor:
    """Give the values of BatchRun."""
    lowest = torch.stack([one.lowest for one in seen]).amin(dim=0)
    highest = torch.stack([one.highest for one in seen]).amax(dim=0)
    difference = torch.stack([one.difference for one in seen]).amax()
    spread = (highest - lowest).amax()
    return torch.stack([spread.double(), difference.double(), ids.sum().double()])


def _keep_alive(hidden: Any, num_alive: int) -> Any:
    if isinstance(hidden, torch.Tensor):
        return hidden[:, :num_alive].contiguous()
    return tuple(part[:, :num_alive].contiguous() for part in hidden)


def _try_both(
    model: Model, rows: PackedBatch | PaddedBatch, ids: torch.Tensor, dense: DensePath
) -> None:
    """Run one batch packed and dense; note which is faster and how far apart they are."""
    packed, rectangle = pack_ids(rows, ids), _to_rectangle(rows, ids)

    def run_packed() -> torch.Tensor:
        return _run_packed(model, packed.data, packed.batch_sizes.numpy(), None)[0]

    def run_dense() -> torch.Tensor:
        outputs: torch.Tensor = model.recurrent(model.embedding(rectangle))[0]
        return outputs

    by_steps = run_dense().transpose(0, 1).flatten(0, 1)  # as packed data of equal rows lie
    dense.difference = float((run_packed() - by_steps).abs().amax())
    for name, run in (("packed", run_packed), ("dense", run_dense)):
        trials = []
        for _ in range(NUM_TRIALS):
            synchronize(ids.device)
            started = time.perf_counter()
            run()
            synchronize(ids.device)
            trials.append(time.perf_counter() - started)
        dense.seconds[name] = min(trials)
    dense.is_faster = dense.seconds["dense"] < dense.seconds["packed"]
