"""Level `roundtrip` of many shards on a CPU, in several processes where that is worth it.

Torch's functions and Python take one core: 10 to 40 million tokens/s. A process takes two seconds
to start, most of them to import torch.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from seqpack_cli.files.places import Place, is_shared
from seqpack_cli.runs.workers import Executor, Progress, Workers, advance
from seqpack_cli.shards.pack_shard import changed_error
from seqpack_cli.shards.shard_set import (
    ShardSet,
    open_packed_stores,
    open_shards,
    show_packed_columns,
)
from seqpack_cli.verification.device import steady_arithmetic
from seqpack_cli.verification.findings import Finding
from seqpack_cli.verification.integers.shard_roundtrip import Roundtrip, check_shard

TOKENS_PER_WORKER = 300_000_000


@dataclass(frozen=True)
class _Setup:
    """What a worker needs to check any shard of a set."""

    shards: Place
    side: str | None
    digest: str  # of the shards, which may be replaced while the run works
    stores: tuple[Place, ...]
    max_batch_tokens: int


def check_shards(
    shards: ShardSet,
    roundtrip: Roundtrip,
    numbers: Sequence[int],
    progress: Progress,
    num_workers: int | None,
) -> Iterator[Finding]:
    """Yield what differs from the token stores in some sound shards; see `check_shard`.

    Args:
        numbers: of the shards.
        num_workers: processes at a time; None is one per core, or fewer if the tokens are not
            worth it. A GPU is used by this process alone.

    Raises:
        FolderError: the shards or a token store were replaced.
        MachineError: the device runs out of memory, or a worker died.
    """
    places = [store.path.resolve() for store in roundtrip.store.folders]
    num_tokens = sum(shards.manifest["shards"][number]["num_tokens"] for number in numbers)
    worth = num_tokens // TOKENS_PER_WORKER if num_workers is None else num_workers
    workers = Workers(Executor(num_workers=num_workers), progress)
    num_processes = workers.count_processes(len(numbers), worth)
    is_alone = roundtrip.device.type != "cpu" or not all(map(is_shared, [shards.path, *places]))
    if num_processes < 2 or is_alone:
        for number in numbers:
            shard = shards.open_shard(number)
            yield from check_shard(shard, roundtrip, on_advance=progress.on_advance)
        return
    setup = _Setup(
        shards.path.resolve(),
        shards.side,
        shards.folder.digest,
        tuple(places),
        roundtrip.max_batch_tokens,
    )
    check = functools.partial(_check_one, setup)
    found = dict(workers.run(check, numbers, max_processes=num_processes))
    for number in numbers:
        yield from found[number]


def _check_one(setup: _Setup, number: int) -> tuple[int, list[Finding]]:
    """Check one shard in a worker."""
    shards, roundtrip = _open(setup)
    with steady_arithmetic(roundtrip.device, hidden_size=1):
        shard = shards.open_shard(number)
        return number, list(check_shard(shard, roundtrip, on_advance=advance))


@functools.lru_cache(maxsize=1)
def _open(setup: _Setup) -> tuple[ShardSet, Roundtrip]:
    """Open the shards and stores of a run once in a worker."""
    shards = open_shards(setup.shards, check_present=False)
    if shards.folder.digest != setup.digest:
        raise changed_error(str(setup.shards))
    shards = next(side for side in shards.sides if side.side == setup.side)
    store = open_packed_stores(shards, setup.stores, check_indices=False)
    store = show_packed_columns(store, shards)
    length = shards.options.piece_length
    return shards, Roundtrip(store, torch.device("cpu"), length, setup.max_batch_tokens)
