"""Level `roundtrip` for a whole shard: block by block over the device, read ahead in a thread.

What is wrong in a block is then said by `roundtrip.check_batch`, batch by batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch

from seqpack_cli.files.ahead import map_ahead
from seqpack_cli.shards.shard import Shard
from seqpack_cli.tokens.token_store import TokenStore
from seqpack_cli.verification.device import Sender, Sent, naming_batch
from seqpack_cli.verification.integers.blocks import Block, BlockPlan, cut_blocks, read_block
from seqpack_cli.verification.integers.roundtrip import check_batch
from seqpack_cli.verification.integers.stacks import Truth, check_packed_stack, check_padded_stack
from seqpack_cli.verification.report import Finding

NUM_READERS = 2
# Of a block: so much that torch's calls cost little beside their work.
CELLS_PER_BLOCK = {"cpu": 1 << 20, "cuda": 1 << 22}
ID_CELLS_PER_TOKEN = 32  # an id's cell takes this share of what a model takes for a token, or less


def check_shard(
    shard: Shard,
    store: TokenStore,
    device: torch.device,
    *,
    first_batch: int,
    max_tokens: int | None,
    max_batch_tokens: int,
    on_advance: Callable[[int], None],
) -> Iterator[Finding]:
    """Yield what differs from the token store in a sound shard.

    Args:
        first_batch: the shard's first, in the whole set.
        max_tokens: where varlen splits a sequence.
        max_batch_tokens: of a model; larger rectangles of ids are cut by the same memory.
        on_advance: hears of the tokens of every block that was checked.

    Raises:
        MachineError: the device's memory is not enough for a batch, which is named.
    """
    sender, name = Sender(device), shard.path.name

    def read(plan: BlockPlan) -> tuple[Block, Sent, Sent]:
        with naming_batch(name, first_batch + plan.first):
            block = read_block(shard, store, plan, max_tokens=max_tokens)
            return block, sender.send(block.data), sender.send(block.expected)

    max_cells = min(CELLS_PER_BLOCK[device.type], ID_CELLS_PER_TOKEN * max_batch_tokens)
    plans = cut_blocks(shard, max_cells=max_cells)

    def check(read: tuple[Block, Sent, Sent]) -> tuple[Block, bool]:
        block, data, expected = read
        with naming_batch(name, first_batch + block.plan.first):
            return block, block.is_of_store and _is_right(shard, block, data, expected)

    if device.type == "cpu":  # readers have nobody to read ahead for, and check as well
        checked = map_ahead(lambda plan: check(read(plan)), plans, num_threads=NUM_READERS)
    else:
        checked = map(check, map_ahead(read, plans, num_threads=NUM_READERS))
    explained: set[int] = set()
    for block, is_right in checked:
        if not is_right:
            unexplained = set(range(block.plan.first, block.plan.last)) - explained
            explained |= unexplained
            yield from _explain(shard, store, device, sorted(unexplained), first_batch, max_tokens)
        on_advance(block.num_tokens)


def _explain(
    shard: Shard,
    store: TokenStore,
    device: torch.device,
    batches: list[int],
    first_batch: int,
    max_tokens: int | None,
) -> Iterator[Finding]:
    """Yield what differs in batches of a block that is not right."""
    found = False
    for batch in batches:
        with naming_batch(shard.path.name, first_batch + batch):
            differences = list(check_batch(shard[batch], store, device, max_tokens=max_tokens))
        for row, what in differences:
            found = True
            yield Finding("roundtrip", shard.path.name, what, first_batch + batch, row)
    if batches and not found:
        what = f"{device} gives other ids than the token store"
        yield Finding("roundtrip", shard.path.name, what, first_batch + batches[0])


def _is_right(shard: Shard, block: Block, data: Sent, expected: Sent) -> bool:
    """Say if every stack is right; the device is waited for once."""
    ids, wanted = data.receive(), expected.receive()
    if shard.layout == "varlen":
        return torch.equal(ids, wanted)
    holds: list[Truth] = []
    ids_end = wanted_end = 0
    for stack in block.stacks:
        ids_start, wanted_start = ids_end, wanted_end
        ids_end = ids_start + math.prod(stack.data_shape)
        wanted_end = wanted_start + stack.num_cells
        both = (ids[ids_start:ids_end], wanted[wanted_start:wanted_end])
        if shard.layout == "packed":
            holds += check_packed_stack(stack, *both)
        else:
            holds += check_padded_stack(stack, *both, padding_side=shard.padding_side)
    return all_hold(holds)


def all_hold(holds: list[Truth]) -> bool:
    """Say if all are true; those of a device are fetched together."""
    on_device = [hold for hold in holds if isinstance(hold, torch.Tensor)]
    return all(hold for hold in holds if isinstance(hold, bool)) and bool(
        not on_device or torch.stack(on_device).all()
    )
