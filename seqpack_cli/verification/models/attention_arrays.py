"""The arrays that attention over a `varlen` batch needs, and the part of a batch that is computed.

`cu_seqlens`, `cu_seqlens_padded` and `position_ids` are compared with arrays that are made from the
lengths alone, one sequence after another. A batch with more cells than attention is computed for is
cut to some of its rows, or to neighbouring sequences.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate

import numpy as np

from seqpack_cli.ranges import to_offsets
from seqpack_cli.shards.shared_rows import VarlenBatch
from seqpack_cli.verification.models.computation import Comparison


def check_borders(batch: VarlenBatch) -> Iterator[Comparison]:
    """Compare the arrays that say where sequences lie with ones made from the lengths alone."""
    lengths, starts = batch.lengths.tolist(), _place(batch)
    borders, ends = np.array([0, *accumulate(lengths)]), np.array([*starts, len(batch.data)])
    is_padded = sum(lengths) < len(batch.data)
    positions = np.zeros(len(batch.data), np.int64)
    for start, length in zip(starts, lengths, strict=True):
        positions[start : start + length] = np.arange(length)
    for name, found, wanted, dtype in (
        ("cu_seqlens", batch.cu_seqlens, borders, np.int32),
        ("cu_seqlens_padded", batch.cu_seqlens_padded, ends if is_padded else None, np.int32),
        ("position_ids", batch.position_ids, positions.reshape(batch.shape), np.int64),
    ):
        if found is None and wanted is None:
            continue
        if found is None or wanted is None or found.shape != wanted.shape or found.dtype != dtype:
            yield Comparison("forward", name, math.inf, 0.0)
            continue
        errors = np.abs(found.astype(np.int64) - wanted).reshape(-1)
        place = int(errors.argmax())
        # the last entry is the end of the last sequence
        is_cell = name == "position_ids"
        inside = np.searchsorted(ends, place, "right") - 1 if is_cell else place
        row = min(int(inside), len(lengths) - 1) if errors[place] else None
        yield Comparison("forward", name, float(errors[place]), 0.0, row)


def _place(batch: VarlenBatch) -> list[int]:
    """Return the first cell of each sequence, one after another."""
    lengths = batch.lengths.tolist()
    rows = [0] * len(lengths) if batch.row_indices is None else batch.row_indices.tolist()
    starts, row, cell = [], 0, 0
    for length, its_row in zip(lengths, rows, strict=True):
        if its_row != row:
            row, cell = its_row, its_row * (batch.row_length or 0)
        starts.append(cell)
        cell += -(-length // batch.multiple) * batch.multiple
    return starts


def take_window(batch: VarlenBatch, max_tokens: int) -> tuple[VarlenBatch, int, bool]:
    """Return the part of a batch that is computed, if it has too many cells.

    Returns:
        The part as a batch, the index of its first sequence in the whole, and whether it is only a
        part.
    """
    if len(batch.data) <= max_tokens:
        return batch, 0, False
    if batch.row_length is not None and batch.row_length <= max_tokens:
        return *_take_rows(batch, max_tokens // batch.row_length), True
    rounded = -(-batch.lengths // batch.multiple) * batch.multiple
    first, sizes = choose_sequences(rounded, max_tokens)
    taken = slice(first, first + len(sizes))
    lengths = np.minimum(batch.lengths[taken], sizes)
    is_whole = np.array_equal(sizes, rounded[taken])
    multiple, places = batch.multiple if is_whole else 1, to_offsets(sizes if is_whole else lengths)
    data = np.zeros(int(places[-1]), batch.data.dtype)
    starts = batch.starts[taken].tolist()
    for place, start, length in zip(places.tolist(), starts, lengths.tolist(), strict=False):
        data[place : place + length] = batch.data[start : start + length]
    part = _take(batch, taken)
    part = replace(part, data=data, lengths=lengths, row_indices=None, row_length=None)
    return replace(part, multiple=multiple), first, True


def _take_rows(batch: VarlenBatch, num_rows: int) -> tuple[VarlenBatch, int]:
    """Return the neighbouring rows with the most sequences, and the first of these."""
    assert batch.row_indices is not None  # noqa: S101 - rows of one length have them
    assert batch.row_length is not None  # noqa: S101
    firsts = np.searchsorted(batch.row_indices, np.arange(batch.shape[0] + 1))
    row = int((firsts[num_rows:] - firsts[:-num_rows]).argmax())
    taken = slice(int(firsts[row]), int(firsts[row + num_rows]))
    cells = slice(row * batch.row_length, (row + num_rows) * batch.row_length)
    part = replace(_take(batch, taken), data=batch.data[cells])
    return replace(part, row_indices=batch.row_indices[taken] - row), taken.start


def _take(batch: VarlenBatch, taken: slice) -> VarlenBatch:
    """Return a batch with the arrays of some sequences, and the cells of all."""
    indices, starts = batch.original_indices, batch.piece_starts
    return replace(
        batch,
        lengths=batch.lengths[taken],
        original_indices=None if indices is None else indices[taken],
        piece_starts=None if starts is None else starts[taken],
        columns={},
    )


def choose_sequences(lengths: np.ndarray, max_tokens: int) -> tuple[int, np.ndarray]:
    """Choose neighbouring sequences: as many as possible, then with as many tokens as possible.

    These are whole sequences if two fit; else the beginnings of the two shortest neighbours, since
    attention cannot leak from a single sequence.

    Returns:
        The first sequence, and how many tokens of it and of each next one are taken.

    >>> choose_sequences(np.array([9, 3, 2, 3, 9]), 6)
    (1, array([3, 2]))
    >>> choose_sequences(np.array([9, 7, 8]), 6)
    (1, array([3, 3]))
    """
    offsets = to_offsets(lengths)
    ends = np.searchsorted(offsets, offsets[:-1] + max_tokens, "right") - 1
    counts = ends - np.arange(len(lengths))
    if counts.max() > 1:
        num_tokens = offsets[ends] - offsets[:-1]
        first = int(np.lexsort((-num_tokens, -counts))[0])
        return first, lengths[first : ends[first]]
    if len(lengths) == 1 or max_tokens == 1:
        return 0, np.minimum(lengths[:1], max_tokens)
    first = int((lengths[:-1] + lengths[1:]).argmin())
    pair = lengths[first : first + 2]
    shorter = min(int(pair.min()), max_tokens // 2)
    return first, np.where(np.arange(2) == pair.argmin(), shorter, max_tokens - shorter)
