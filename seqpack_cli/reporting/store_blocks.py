"""Blocks of consecutive sequences that two token stores have, as flat arrays.

A block lies within one part of each store, so that ids, tags and texts are views of the files.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from seqpack_cli.limits import LIMITS
from seqpack_cli.runs.workers import Progress
from seqpack_cli.tokens.kinds import Values
from seqpack_cli.tokens.store import TokenStore


def iter_blocks(
    first: TokenStore, second: TokenStore, progress: Progress
) -> Iterator[tuple[int, int]]:
    """Yield the first and last + 1 of consecutive sequences that both stores have, in order."""
    num_compared = min(len(first), len(second))
    progress.on_total(num_compared)
    start = num_kept = 0
    while start < num_compared:
        stop = min(num_compared, _find_stop(first, start), _find_stop(second, start))
        yield start, stop
        num_ids = int(first.lengths[start:stop].sum(dtype=np.int64))
        progress.on_advance(stop - start)
        progress.on_tokens(num_ids)
        num_kept += 2 * num_ids
        if num_kept > LIMITS.mapped_ids:
            first.let_pages_go()
            second.let_pages_go()
            num_kept = 0
        start = stop


def view_ids(store: TokenStore, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids of the sequences of a block, concatenated, and the length of each."""
    part, _ = _find_part(store, start)
    return store.view_part(part)[0][_find_tokens(store, start, stop)], store.lengths[start:stop]


def read_block_column(store: TokenStore, name: str, start: int, stop: int) -> Values:
    """Return a column of the sequences of a block, checked.

    Raises:
        FolderError: it holds an impossible value.
    """
    part, inside = _find_part(store, start)
    entries = slice(inside, inside + stop - start)
    if store.columns[name].is_per_token:
        entries = _find_tokens(store, start, stop)
    return store.finish_values(part, name, store.view_column(part, name)[entries])


def _find_part(store: TokenStore, index: int) -> tuple[int, int]:
    """Return the part of a sequence, and its number in that part."""
    part = int(np.searchsorted(store.part_offsets, index, "right")) - 1
    return part, index - int(store.part_offsets[part])


def _find_stop(store: TokenStore, start: int) -> int:
    """Return the end of a block within a part: several short sequences, or a single one."""
    part, inside = _find_part(store, start)
    ids, starts = store.view_part(part)
    limit = starts[inside] + LIMITS.ids_per_block * ids.itemsize
    num_sequences = int(np.searchsorted(starts, limit, "right")) - 1 - inside
    return start + max(num_sequences, 1)


def _find_tokens(store: TokenStore, start: int, stop: int) -> slice:
    """Return where in its part the tokens of a block lie."""
    part, inside = _find_part(store, start)
    ids, starts = store.view_part(part)
    begin = int(starts[inside]) // ids.itemsize
    return slice(begin, begin + int(store.lengths[start:stop].sum(dtype=np.int64)))
