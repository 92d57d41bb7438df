"""Ways to run one model over consecutive batches of streams, as training does, and alone.

`run_streams` steps through all streams at once, cell by cell: the state goes on from batch to batch
and is set to zero where `resets` says. In backward, gradients end where a batch begins, as in
truncated backpropagation through time; `run_alone_truncated` and `run_loop_truncated` end them at
the same tokens of each unbroken piece alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch
from torch import nn

from seqpack_cli.verification.models.batch_ids import BatchIds
from seqpack_cli.verification.models.computation import Comparison, check_backward, check_forward
from seqpack_cli.verification.models.model import Model
from seqpack_cli.verification.models.recurrence import Hidden, Step, as_state, walk_batch_sizes
from seqpack_cli.verification.models.stream_spans import StreamSpan
from seqpack_cli.verification.models.ways import Run, run_alone, run_loop


def check_streams(
    level: str, model: Model, span: StreamSpan, *, generator: torch.Generator
) -> Iterator[Comparison]:
    """Compare stepping through a span with each unbroken piece alone; `row` is a row of the span.

    Args:
        level: "forward" or "backward".
        generator: as for check_forward and check_backward.
    """

    def run(model: Model, ids: BatchIds) -> Run:
        return run_streams(model, ids, span)

    if level == "forward":
        ways = {"alone": run_alone, "streams": run}
        yield from check_forward(model, span.ids, generator=generator, ways=ways)
        return
    yield from check_backward(
        model,
        span.ids,
        generator=generator,
        ways={
            "alone": lambda model, ids: run_alone_truncated(model, ids, span),
            "streams": run,
        },
        reference=lambda model, ids: run_loop_truncated(model, ids, span),
    )


def run_streams(model: Model, ids: BatchIds, span: StreamSpan) -> Run:
    """Step through a span; the ids are those of its rows, which may have been changed."""
    steps, width = span.resets.shape
    stream_ids = ids.packed.data.new_zeros(steps * width)
    stream_ids[span.cells] = ids.packed.data[ids.row_order]
    inputs: torch.Tensor = model.embedding(stream_ids)
    if inputs.requires_grad:
        inputs.retain_grad()
    values, states = inputs, []
    for ((weight_ih, weight_hh, bias_ih, bias_hh),) in model.layers():
        entering = nn.functional.linear(values, weight_ih, bias_ih).view(steps, width, -1)

        def step(
            rows: torch.Tensor,
            hidden: Hidden,
            weight: torch.Tensor = weight_hh,
            bias: torch.Tensor = bias_hh,
        ) -> Hidden:
            return model.cell.step(rows, hidden, weight, bias)

        found = _walk(step, entering, model, span)
        states.append(tuple(part[span.last_cells] for part in found))
        values = found[0]
    joined = tuple(torch.cat(parts, dim=1) for parts in zip(*states, strict=True))
    return Run(values[span.cells], joined, inputs, lambda array: array[span.cells])


def _walk(
    step: Step, entering: torch.Tensor, model: Model, span: StreamSpan
) -> tuple[torch.Tensor, ...]:
    """Return the states of all cells, each [steps x streams, H], the output first."""
    zeros = entering.new_zeros(entering.shape[1], model.hidden_size)
    state: tuple[torch.Tensor, ...] = (zeros,) * model.cell.num_states
    has_reset, cuts = span.resets.any(dim=1).tolist(), set(span.cuts)
    kept: list[tuple[torch.Tensor, ...]] = []
    for number, rows in enumerate(entering.unbind()):
        if number in cuts:
            state = tuple(part.detach() for part in state)
        if has_reset[number]:
            is_reset = span.resets[number][:, None]
            state = tuple(part.masked_fill(is_reset, 0) for part in state)
        state = as_state(step(rows, state if len(state) > 1 else state[0]))
        kept.append(state)
    return tuple(torch.cat(parts) for parts in zip(*kept, strict=True))


def run_alone_truncated(model: Model, ids: BatchIds, span: StreamSpan) -> Run:
    """Run torch's module over each row alone, from batch to batch with a detached state."""
    inputs: torch.Tensor = model.embedding(ids.packed.data[ids.row_order])
    if inputs.requires_grad:
        inputs.retain_grad()
    outputs, states = [], []
    for row, begin in zip(
        torch.split(inputs, ids.lengths.tolist()), span.begins.tolist(), strict=True
    ):
        inside = [cut - begin for cut in span.cuts if 0 < cut - begin < len(row)]
        hidden: Hidden | None = None
        for first, last in pairwise([0, *inside, len(row)]):
            if hidden is not None:
                parts = tuple(part.detach() for part in as_state(hidden))
                hidden = parts if len(parts) > 1 else parts[0]
            output, hidden = model.recurrent(row[None, first:last], hidden)
            outputs.append(output[0])
        assert hidden is not None  # noqa: S101 - no row is empty
        states.append([part.transpose(0, 1).flatten(1) for part in as_state(hidden)])
    joined = tuple(torch.cat(parts) for parts in zip(*states, strict=True))
    return Run(torch.cat(outputs), joined, inputs, lambda array: array)


def run_loop_truncated(model: Model, ids: BatchIds, span: StreamSpan) -> Run:
    """Run the reference recurrence over the rows, and end gradients where a batch begins."""
    is_cut = np.zeros((len(ids.packed.batch_sizes), len(span.begins)), bool)
    for cut in span.cuts:
        steps = cut - span.begins
        rows = np.flatnonzero((steps > 0) & (steps < len(is_cut)))
        is_cut[steps[rows], rows] = True
    marks = torch.from_numpy(is_cut).to(ids.rectangle.device)

    def walk(
        step: Step, inputs: torch.Tensor, batch_sizes: list[int], hidden: Hidden
    ) -> tuple[torch.Tensor, Hidden]:
        numbers = iter(range(len(batch_sizes)))

        def step_truncated(rows: torch.Tensor, hidden: Hidden) -> Hidden:
            number = next(numbers)
            if is_cut[number].any():
                here = marks[number, : len(rows), None]
                state = tuple(torch.where(here, part.detach(), part) for part in as_state(hidden))
                hidden = state if len(state) > 1 else state[0]
            return step(rows, hidden)

        return walk_batch_sizes(step_truncated, inputs, batch_sizes, hidden)

    return run_loop(model, ids, walk=walk)


def ignore_resets(span: StreamSpan) -> StreamSpan:
    """Return a span whose state is never reset but at its first step: a fault to be found."""
    resets = torch.zeros_like(span.resets)
    resets[0] = True
    return replace(span, resets=resets)


def lose_states(span: StreamSpan) -> StreamSpan:
    """Return a span whose state is reset at each batch: a fault to be found."""
    resets = span.resets.clone()
    resets[span.cuts] = True
    return replace(span, resets=resets)
