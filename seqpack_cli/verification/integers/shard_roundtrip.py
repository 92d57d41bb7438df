"""Level `roundtrip` of a whole shard: send it block by block through the device.

Columns with a value per token take the same way as the ids. For a GPU, blocks are read ahead in
threads. If a block is wrong, `batch_roundtrip` or `column_values` finds out what, batch by batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property

import torch

from seqpack_cli.errors import quote
from seqpack_cli.files.objects import map_ahead
from seqpack_cli.limits import LIMITS
from seqpack_cli.shards.shard import Shard
from seqpack_cli.tokens.columns import Column
from seqpack_cli.tokens.store import TokenStore
from seqpack_cli.verification.device import (
    NUM_READERS,
    Sender,
    Sent,
    name_batches,
    naming_batch,
)
from seqpack_cli.verification.findings import Finding
from seqpack_cli.verification.integers.batch_roundtrip import check_batch
from seqpack_cli.verification.integers.blocks import Block, BlockSpan, cut_blocks, read_block
from seqpack_cli.verification.integers.column_values import (
    check_row_columns,
    find_wrong_token,
    view_column,
)
from seqpack_cli.verification.integers.stacks import has_right_ids

# Large enough that the cost of torch's calls themselves hardly counts.
ID_CELLS_PER_TOKEN = 32  # a model takes at least so many times the memory of an id


@dataclass(frozen=True)
class Roundtrip:
    """Where shards are sent, and what they are compared with."""

    store: TokenStore
    device: torch.device
    piece_length: int | None  # of all pieces but the last; None: they may have any
    max_batch_tokens: int  # as for the models; rectangles that take more memory are cut

    @cached_property
    def sender(self) -> Sender:
        """What sends all shards, on one stream."""
        return Sender(self.device)


def check_shard(
    shard: Shard, roundtrip: Roundtrip, *, on_advance: Callable[[int], None]
) -> Iterator[Finding]:
    """Yield what differs from the token store in a sound shard: first ids, then columns.

    Args:
        on_advance: called with the number of tokens of each block that was checked.

    Raises:
        MachineError: the device fails or runs out of memory; the batch is named.
    """
    is_right = True
    for finding in _check_cells(shard, roundtrip, None, on_advance):
        is_right = False
        yield finding
    if not is_right:  # the rows may be those of other sequences
        return
    yield from check_row_columns(shard, roundtrip.store)
    for column in shard.columns.values():
        if column.is_per_token:
            cells = view_column(shard, column)
            yield from _check_cells(cells, roundtrip, column, on_advance)


def _check_cells(
    shard: Shard,
    roundtrip: Roundtrip,
    column: Column | None,
    on_advance: Callable[[int], None],
) -> Iterator[Finding]:
    """Yield what differs in the `data` of a shard: the ids, or a column in their place."""
    store, device, length = roundtrip.store, roundtrip.device, roundtrip.piece_length
    sender, name = roundtrip.sender, shard.path.name
    column_name = None if column is None else column.name

    def read(span: BlockSpan) -> tuple[Block, Sent, Sent]:
        block = read_block(shard, store, span, piece_length=length, column=column_name)
        return block, sender.send(block.data), sender.send(block.expected)

    max_cells = LIMITS.ids_per_block if device.type == "cpu" else LIMITS.cells_on_gpu
    max_cells = min(max_cells, ID_CELLS_PER_TOKEN * roundtrip.max_batch_tokens)
    spans = list(cut_blocks(shard, max_cells=max_cells))
    # On a CPU two threads take 1.5 times the processor time of one, and are no faster.
    num_readers = 1 if device.type == "cpu" else NUM_READERS
    explained: set[int] = set()
    # closed at once: the traceback of an error keeps this frame, and the readers with it
    with closing(map_ahead(read, spans, num_threads=num_readers)) as blocks:
        for span in spans:
            first, last = shard.first_batch + span.first, shard.first_batch + span.last - 1
            unfinished = name_batches((name, first), (name, last))
            with naming_batch(name, first, unfinished=unfinished):
                block, data, expected = next(blocks)
                is_right = block.is_of_store and has_right_ids(
                    block, data.receive(), expected.receive()
                )
            if not is_right:
                unexplained = set(range(block.span.first, block.span.last)) - explained
                explained |= unexplained
                yield from _explain(shard, roundtrip, column, sorted(unexplained))
            on_advance(block.num_tokens)


def _explain(
    shard: Shard, roundtrip: Roundtrip, column: Column | None, batches: list[int]
) -> Iterator[Finding]:
    """Yield what differs in the batches of a wrong block."""
    found, values = False, "ids" if column is None else f"values of column {quote(column.name)}"
    for batch in batches:
        with naming_batch(shard.path.name, shard.first_batch + batch):
            differences = list(_find_differences(shard, batch, roundtrip, column))
        for row, what in differences:
            found = True
            yield Finding("roundtrip", shard.path.name, what, shard.first_batch + batch, row)
    if batches and not found:
        what = f"{roundtrip.device} returns {values} that differ from the token store's"
        yield Finding("roundtrip", shard.path.name, what, shard.first_batch + batches[0])


def _find_differences(
    shard: Shard, batch: int, roundtrip: Roundtrip, column: Column | None
) -> Iterator[tuple[int | None, str]]:
    store = roundtrip.store
    if column is None:
        yield from check_batch(
            shard[batch], store, roundtrip.device, piece_length=roundtrip.piece_length
        )
    elif (found := find_wrong_token(shard, batch, store, column)) is not None:
        yield found
