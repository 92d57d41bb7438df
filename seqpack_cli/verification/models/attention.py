"""Level `forward` for `varlen`: no sequence of a row attends to another.

A small causal self-attention layer over the whole row, with a mask from the row's `cu_seqlens` and
its `position_ids`, must give the same outputs as over each sequence alone, and as a float64 formula
with the softmax written out. Both arrays are compared with ones made from the lengths first, and
changing one sequence must not change the outputs of the others. Memory and time grow with the
square of the row's length: 4,096 tokens on a CPU take up to 2 s and 0.6 GB.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import accumulate

import numpy as np
import torch

from seqpack_cli.ranges import to_offsets
from seqpack_cli.shards.varlen import VarlenBatch
from seqpack_cli.verification.models.attention_layer import (
    AttentionLayer,
    Row,
    mask_of,
    run_alone,
    run_plainly,
    run_row,
)
from seqpack_cli.verification.models.computation import LEAST_DEVIATION, Comparison
from seqpack_cli.verification.models.tolerances import GATES, find_tolerances, measure_error

# The most tokens of a row, whatever the caller allows: 2 s on a CPU, an estimated 3 GB on CUDA.
MAX_TOKENS = {"cuda": 8_192, "cpu": 4_096}

MakeMask = Callable[[torch.Tensor, int], torch.Tensor]


def check_attention(
    batch: VarlenBatch,
    layer: AttentionLayer,
    *,
    max_tokens: int,
    generator: torch.Generator,
    make_mask: MakeMask = mask_of,
) -> Iterator[Comparison]:
    """Compare boundaries, positions and attention of a row; `row` of a comparison is a sequence.

    Args:
        max_tokens: for a longer row, attention is compared only in the window of take_window.
        generator: chooses the sequence to change.
        make_mask: a wrong one shows that a wrong mask is found.
    """
    borders = list(check_borders(batch))
    yield from borders
    if any(math.isinf(comparison.error) for comparison in borders):
        return  # a wrong shape, which the layer cannot take
    window, first, _ = take_window(batch, max_tokens)
    row = _put_on(layer.embedding.weight.device, window)
    mask = make_mask(row.cu_seqlens, len(row.ids))
    outputs = run_row(layer, row, mask)
    exact = run_plainly(layer.in_float64(), row)
    # not the last of several, since attention leaks into later sequences only
    changed = int(torch.randint(max(len(row.lengths) - 1, 1), (1,), generator=generator))
    for comparison in (
        *_compare(outputs, run_alone(layer, row), exact, row),
        *_check_not_constant(exact, row),
        *_check_isolation(layer, row, mask, outputs, changed),
    ):
        place = comparison.row
        yield replace(comparison, row=None if place is None else first + place)


def check_borders(batch: VarlenBatch) -> Iterator[Comparison]:
    """Compare cu_seqlens and position_ids with arrays made from the lengths alone."""
    lengths = batch.lengths.tolist()
    borders = np.array([0, *accumulate(lengths)])
    positions = np.concatenate([np.arange(length) for length in lengths])
    for name, found, wanted, dtype in (
        ("cu_seqlens", batch.cu_seqlens, borders, np.int32),
        ("position_ids", batch.position_ids, positions, np.int64),
    ):
        if found.shape != wanted.shape or found.dtype != dtype:
            yield Comparison("forward", name, math.inf, 0.0)
            continue
        errors = np.abs(found.astype(np.int64) - wanted)
        place = int(errors.argmax())
        # the last entry is the end of the last sequence
        inside = place if name == "cu_seqlens" else np.searchsorted(borders, place, "right") - 1
        row = min(int(inside), len(lengths) - 1) if errors[place] else None
        yield Comparison("forward", name, float(errors[place]), 0.0, row)


def take_window(batch: VarlenBatch, max_tokens: int) -> tuple[VarlenBatch, int, bool]:
    """Return the part of a row that is computed, if the row is too long.

    Returns:
        The part as a batch, the index of its first sequence in the row, and whether it is only a
        part.
    """
    if len(batch.data) <= max_tokens:
        return batch, 0, False
    first, lengths = choose_sequences(batch.lengths, max_tokens)
    taken = slice(first, first + len(lengths))
    starts = to_offsets(batch.lengths)[taken].tolist()
    parts = [
        batch.data[start : start + length]
        for start, length in zip(starts, lengths.tolist(), strict=True)
    ]
    indices = None if batch.original_indices is None else batch.original_indices[taken]
    piece_starts = None if batch.piece_starts is None else batch.piece_starts[taken]
    return VarlenBatch(np.concatenate(parts), lengths, indices, piece_starts), first, True


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


def _put_on(device: torch.device, batch: VarlenBatch) -> Row:
    ids, cu_seqlens, position_ids = (
        torch.from_numpy(array).to(device)
        for array in (batch.data.astype(np.int64), batch.cu_seqlens, batch.position_ids)
    )
    return Row(ids, cu_seqlens, position_ids, batch.lengths.tolist())


def _compare(
    outputs: torch.Tensor, alone: torch.Tensor, exact: torch.Tensor, row: Row
) -> Iterator[Comparison]:
    tolerances = find_tolerances(outputs.device, outputs.dtype, remembers=False)
    error_alone = measure_error(alone, exact, summed=False)
    for name, found, limit in (
        ("alone attention outputs", alone, tolerances.of_alone("outputs")),
        ("attention outputs", outputs, tolerances.beside_alone("outputs", error_alone)),
    ):
        error = measure_error(found, exact, summed=False)
        places = (found.double() - exact).abs().amax(dim=1).nan_to_num(nan=math.inf)
        sequence = _sequence_of(int(places.argmax()), row)
        yield Comparison("forward", name, error, limit, sequence, outputs.dtype in GATES)


def _check_not_constant(exact: torch.Tensor, row: Row) -> Iterator[Comparison]:
    """Check that outputs differ between tokens, unless all are the same token and position."""
    same = all(length == 1 for length in row.lengths) and bool((row.ids == row.ids[0]).all())
    spread = float((exact.amax(dim=0) - exact.amin(dim=0)).max())
    if not same and not spread >= LEAST_DEVIATION:
        what = (
            f"attention outputs differ by at most {spread:.2g}, expected {LEAST_DEVIATION} or more"
        )
        yield Comparison("forward", "spread of attention outputs", math.inf, 0.0, what=what)


def _check_isolation(
    layer: AttentionLayer, row: Row, mask: torch.Tensor, before: torch.Tensor, changed: int
) -> Iterator[Comparison]:
    """Check that changing one sequence's tokens changes its outputs, and no bit of the others."""
    num_embeddings = layer.embedding.num_embeddings
    start = sum(row.lengths[:changed])
    inside = torch.zeros(len(row.ids), dtype=torch.bool, device=row.ids.device)
    inside[start : start + row.lengths[changed]] = True
    ids = torch.where(inside, (row.ids + 1) % num_embeddings, row.ids)
    after = run_row(layer, replace(row, ids=ids), mask)
    moved = (before != after).any(dim=1)
    leaked = moved & ~inside
    leaks = bool(leaked.any())
    yield Comparison(
        "forward",
        "attention outputs of unchanged sequences",
        float((before - after).abs()[leaked].max()) if leaks else 0.0,
        0.0,
        _sequence_of(int(leaked.int().argmax()), row) if leaks else None,
    )
    if not bool(moved[inside].any()) and num_embeddings > 1:
        name = "attention outputs of a changed sequence"
        what = f"{name} do not change"
        yield Comparison("forward", name, math.inf, 0.0, changed, what=what)


def _sequence_of(place: int, row: Row) -> int:
    """Return the sequence that a token is in."""
    return int(np.searchsorted(np.cumsum(row.lengths), place, side="right"))
