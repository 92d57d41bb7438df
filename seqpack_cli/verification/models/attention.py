"""Level `forward` for `varlen`: no sequence of a batch attends to another, or to padding.

A small causal self-attention layer over all cells of the batch, with a mask from `cu_seqlens` and
`cu_seqlens_padded` and with `position_ids`, must give the same outputs as over each sequence alone,
and as a float64 formula with the softmax written out. All three arrays are compared with ones made
from the lengths first, and changing one sequence, or the padding, must not change the outputs of
the others. Memory and time grow with the square of the number of cells: 4,096 on a CPU take up to
2 s and 0.6 GB.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import torch

from seqpack_cli.ranges import expand_ranges
from seqpack_cli.shards.shared_rows import VarlenBatch
from seqpack_cli.verification.models.attention_arrays import check_borders, take_window
from seqpack_cli.verification.models.attention_layer import (
    AttentionLayer,
    Row,
    mask_of,
    run_alone,
    run_plainly,
    run_row,
)
from seqpack_cli.verification.models.computation import LEAST_DEVIATION, Comparison
from seqpack_cli.verification.models.leaks import find_leaks
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
    """Compare boundaries, positions and attention; `row` of a comparison is a sequence.

    Args:
        max_tokens: of a batch with more cells, attention is compared only in that of take_window.
        generator: chooses the sequence to change.
        make_mask: a wrong one shows that a wrong mask is found.
    """
    borders = list(check_borders(batch))
    yield from borders
    if any(math.isinf(comparison.error) for comparison in borders):
        return  # a wrong shape, which the layer cannot take
    window, first, _ = take_window(batch, max_tokens)
    row = _put_on(layer.embedding.weight.device, window)
    mask = make_mask(row.borders, len(row.ids))
    outputs = run_row(layer, row, mask)
    exact = run_plainly(layer.in_float64(), row)
    # not the last of several, since attention leaks into later sequences only
    changed = int(torch.randint(max(len(row.lengths) - 1, 1), (1,), generator=generator))
    for comparison in (
        *_compare(outputs[row.cells], run_alone(layer, row), exact, row),
        *_check_not_constant(exact, row),
        *_check_isolation(layer, row, mask, outputs, changed),
        *_check_padding(layer, row, mask, outputs),
    ):
        place = comparison.row
        yield replace(comparison, row=None if place is None else first + place)


def _put_on(device: torch.device, batch: VarlenBatch) -> Row:
    ids, borders, position_ids = (
        torch.from_numpy(array).to(device)
        for array in (
            batch.data.astype(np.int64),
            _find_borders(batch),
            batch.position_ids.reshape(-1),
        )
    )
    cells: slice | torch.Tensor = slice(None)
    if batch.cu_seqlens_padded is not None:
        cells = torch.from_numpy(expand_ranges(batch.starts, batch.lengths)).to(device)
    return Row(ids, borders, position_ids, batch.lengths.tolist(), batch.starts.tolist(), cells)


def _find_borders(batch: VarlenBatch) -> np.ndarray:
    """Return where each sequence, and the padding after it, begins, and the number of cells."""
    padded = batch.cu_seqlens_padded
    if padded is None:
        return batch.cu_seqlens
    ends = padded[:-1] + np.diff(batch.cu_seqlens)
    return np.append(np.stack([padded[:-1], ends], axis=1), padded[-1:])


def _compare(
    outputs: torch.Tensor, alone: torch.Tensor, exact: torch.Tensor, row: Row
) -> Iterator[Comparison]:
    tolerances = find_tolerances(outputs.device, outputs.dtype, remembers=False)
    error_alone, ends = measure_error(alone, exact, summed=False), np.cumsum(row.lengths)
    for name, found, limit in (
        ("alone attention outputs", alone, tolerances.of_alone("outputs")),
        ("attention outputs", outputs, tolerances.beside_alone("outputs", error_alone)),
    ):
        error = measure_error(found, exact, summed=False)
        places = (found.double() - exact).abs().amax(dim=1).nan_to_num(nan=math.inf)
        sequence = int(np.searchsorted(ends, int(places.argmax()), side="right"))
        # outputs are means of values, so NaN and infinity are faults in 16 bits too
        is_gate = outputs.dtype in GATES or error == math.inf
        yield Comparison("forward", name, error, limit, sequence, is_gate)


def _check_not_constant(exact: torch.Tensor, row: Row) -> Iterator[Comparison]:
    """Check that outputs differ between tokens, unless all are the same token and position."""
    ids = row.ids[row.cells]
    same = all(length == 1 for length in row.lengths) and bool((ids == ids[0]).all())
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
    start = row.starts[changed]
    inside = torch.zeros(len(row.ids), dtype=torch.bool, device=row.ids.device)
    inside[start : start + row.lengths[changed]] = True
    ids = torch.where(inside, (row.ids + 1) % num_embeddings, row.ids)
    name = "attention outputs of unchanged sequences"
    after, comparison = _compare_others(name, layer, (row, ids), mask, before, ~inside)
    yield comparison
    if not bool((before != after)[inside].any()) and num_embeddings > 1:
        name = "attention outputs of a changed sequence"
        what = f"{name} do not change"
        yield Comparison("forward", name, math.inf, 0.0, changed, what=what)


def _check_padding(
    layer: AttentionLayer, row: Row, mask: torch.Tensor, before: torch.Tensor
) -> Iterator[Comparison]:
    """Check that outputs of padding are finite, and that its ids change no output of a token."""
    if isinstance(row.cells, slice):
        return
    is_token = torch.zeros(len(row.ids), dtype=torch.bool, device=row.ids.device)
    is_token[row.cells] = True
    if not bool(before[~is_token].isfinite().all()):  # they would be so in gradients too
        name = "attention outputs of padding"
        yield Comparison("forward", name, math.inf, 0.0, what=f"{name} are not finite")
    ids = torch.where(is_token, row.ids, (row.ids + 1) % layer.embedding.num_embeddings)
    name = "attention outputs beside changed padding"
    yield _compare_others(name, layer, (row, ids), mask, before, is_token)[1]


def _compare_others(
    name: str,
    layer: AttentionLayer,
    changed: tuple[Row, torch.Tensor],
    mask: torch.Tensor,
    before: torch.Tensor,
    others: torch.Tensor,
) -> tuple[torch.Tensor, Comparison]:
    """Compare the outputs before and after a change, where nothing was changed.

    Args:
        changed: a row, and its ids after the change.
        others: bool[S], True where nothing was changed.

    Returns:
        The outputs after the change, and the comparison.
    """

    def run(row: Row) -> dict[str, torch.Tensor]:
        return {name: run_row(layer, row, mask)}

    row, ids = changed
    inputs = (row, replace(row, ids=ids))
    after, limit = run(inputs[1]), find_tolerances(before.device, before.dtype, remembers=False)
    leak = find_leaks(
        run, inputs, ({name: before}, after), {name: others}, most_noise=limit.values
    )[name]
    sequence = None if leak.place is None else _sequence_of(leak.place, row)
    return after[name], Comparison("forward", name, leak.error, leak.limit, sequence)


def _sequence_of(cell: int, row: Row) -> int:
    """Return the sequence that a cell belongs to, or follows."""
    return max(int(np.searchsorted(row.starts, cell, side="right")) - 1, 0)
