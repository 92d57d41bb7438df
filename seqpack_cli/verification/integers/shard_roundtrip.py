"""Level `roundtrip` of a whole shard: send it block by block through the device.

Blocks are read ahead in threads. If a block is wrong, `batch_roundtrip` finds out what, batch by
batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from seqpack_cli.files.ahead import map_ahead
from seqpack_cli.shards.shard import Shard
from seqpack_cli.tokens.token_store import TokenStore
from seqpack_cli.verification.device import NUM_READERS, Sender, Sent, naming_batch
from seqpack_cli.verification.integers.batch_roundtrip import check_batch
from seqpack_cli.verification.integers.blocks import Block, BlockSpan, cut_blocks, read_block
from seqpack_cli.verification.integers.stacks import has_right_ids
from seqpack_cli.verification.report import Finding

# Large enough that the cost of torch's calls themselves hardly counts.
CELLS_PER_BLOCK = {"cpu": 1 << 20, "cuda": 1 << 22}
ID_CELLS_PER_TOKEN = 32  # a model takes at least so many times the memory of an id


def check_shard(
    shard: Shard,
    store: TokenStore,
    device: torch.device,
    *,
    max_tokens: int | None,
    max_batch_tokens: int,
    on_advance: Callable[[int], None],
) -> Iterator[Finding]:
    """Yield what differs from the token store in a sound shard.

    Args:
        max_tokens: the longest piece of a split sequence in varlen.
        max_batch_tokens: as for the models; rectangles that take more memory are cut.
        on_advance: called with the number of tokens of each block that was checked.

    Raises:
        MachineError: the device runs out of memory; the batch is named.
    """
    sender, name = Sender(device), shard.path.name

    def read(span: BlockSpan) -> tuple[Block, Sent, Sent]:
        with naming_batch(name, shard.first_batch + span.first):
            block = read_block(shard, store, span, max_tokens=max_tokens)
            return block, sender.send(block.data), sender.send(block.expected)

    max_cells = min(CELLS_PER_BLOCK[device.type], ID_CELLS_PER_TOKEN * max_batch_tokens)
    spans = cut_blocks(shard, max_cells=max_cells)

    def check(read: tuple[Block, Sent, Sent]) -> tuple[Block, bool]:
        block, data, expected = read
        with naming_batch(name, shard.first_batch + block.span.first):
            return block, block.is_of_store and has_right_ids(
                block, data.receive(), expected.receive()
            )

    if device.type == "cpu":  # the reading threads check as well
        checked = map_ahead(lambda span: check(read(span)), spans, num_threads=NUM_READERS)
    else:
        checked = map(check, map_ahead(read, spans, num_threads=NUM_READERS))
    explained: set[int] = set()
    for block, is_right in checked:
        if not is_right:
            unexplained = set(range(block.span.first, block.span.last)) - explained
            explained |= unexplained
            yield from _explain(shard, store, device, sorted(unexplained), max_tokens)
        on_advance(block.num_tokens)


def _explain(
    shard: Shard,
    store: TokenStore,
    device: torch.device,
    batches: list[int],
    max_tokens: int | None,
) -> Iterator[Finding]:
    """Yield what differs in the batches of a wrong block."""
    found = False
    for batch in batches:
        with naming_batch(shard.path.name, shard.first_batch + batch):
            differences = list(check_batch(shard[batch], store, device, max_tokens=max_tokens))
        for row, what in differences:
            found = True
            yield Finding("roundtrip", shard.path.name, what, shard.first_batch + batch, row)
    if batches and not found:
        what = f"{device} returns ids that differ from the token store's"
        yield Finding("roundtrip", shard.path.name, what, shard.first_batch + batches[0])
