"""Levels `forward` and `backward`: a model computes the same over a batch as over its sequences.

Every output of every step is compared, not the last state alone: a default LSTM forgets a wrong
first token within 20 steps. A second pass has a model that remembers, so that the state carries it
to the end. What could make a pass vacuous is a finding too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch

from seqpack_cli.verification.batch_ids import BatchIds
from seqpack_cli.verification.limits import (
    GATES,
    find_limits,
    measure_error,
)
from seqpack_cli.verification.ways import (
    HIDDEN_SIZE,
    Model,
    Run,
    run_alone,
    run_loop,
    run_packed,
    run_padded,
)

Way = Callable[[Model, BatchIds], Run]
WAYS: dict[str, Way] = {"alone": run_alone, "packed": run_packed, "padded": run_padded}
STATE_NAMES = ("h_n", "c_n")
LEAST_DEVIATION = 1e-3  # of outputs; below it the model computes nothing worth comparing


@dataclass(frozen=True)
class Comparison:
    """One quantity of one way beside the float64 loop."""

    level: str
    quantity: str
    error: float
    limit: float
    row: int | None = None  # where the error is largest
    is_gate: bool = True

    @property
    def failed(self) -> bool:
        """Whether this is a fault."""
        return self.is_gate and not self.error <= self.limit

    def __str__(self) -> str:
        return f"{self.quantity} is off by {self.error:.2g}, limit {self.limit:.2g}"


def check_forward(
    model: Model, ids: BatchIds, *, remembers: bool, generator: torch.Generator
) -> Iterator[Comparison]:
    """Compare every output and final state, and change one row to see that no other moves.

    Args:
        remembers: the model's memory gate has a bias, so the wider limits hold.
        generator: chooses the row to change.
    """
    with torch.no_grad():
        exact = run_loop(model.in_float64(), ids)
        values = {name: _values(way(model, ids)) for name, way in WAYS.items()}
        yield from _compare("forward", values, _values(exact), model, ids, remembers=remembers)
        yield from _check_not_vacuous(exact)
        for name in ("packed", "padded"):
            yield from _check_isolation(name, model, ids, generator)


def check_backward(
    model: Model, ids: BatchIds, *, remembers: bool, generator: torch.Generator
) -> Iterator[Comparison]:
    """Compare the gradients of inputs and weights under a loss on all outputs and final states.

    Args:
        generator: draws the weights of the loss.
    """
    loss = _draw_loss_weights(ids, model, generator)
    exact = _find_gradients(run_loop, model.in_float64(), ids, loss)
    found = {name: _find_gradients(way, model, ids, loss) for name, way in WAYS.items()}
    yield from _compare("backward", found, exact, model, ids, remembers=remembers)
    for name, gradients in found.items():
        yield _check_unused_rows(name, gradients["gradient of weight embedding"], ids)


def _compare(
    level: str,
    found: dict[str, dict[str, torch.Tensor]],
    exact: dict[str, torch.Tensor],
    model: Model,
    ids: BatchIds,
    *,
    remembers: bool,
) -> Iterator[Comparison]:
    """Compare all ways with the float64 loop; the error of `alone` bears on the others' limit."""
    dtype = model.embedding.weight.dtype
    limits = find_limits(ids.rectangle.device, dtype, remembers=remembers)
    for quantity, wanted in exact.items():
        alone, _ = _error(quantity, found["alone"][quantity], wanted, ids)
        for name, values in found.items():
            error, row = _error(quantity, values[quantity], wanted, ids)
            limit = limits.beside_alone(quantity, alone)
            if name == "alone":
                limit = limits.of_alone(quantity)
            yield Comparison(level, f"{name} {quantity}", error, limit, row, dtype in GATES)


def _find_gradients(
    way: Way, model: Model, ids: BatchIds, loss: tuple[torch.Tensor, ...]
) -> dict[str, torch.Tensor]:
    for parameter in model.parameters().values():
        parameter.grad = None
    run = way(model, ids)
    values = (run.outputs, *run.states)
    torch.autograd.backward(values, [weight.to(run.outputs.dtype) for weight in loss])
    gradients = {"gradient of inputs": run.to_rows(_gradient(run.inputs))}
    for name, parameter in model.parameters().items():
        gradients[f"gradient of {name}"] = _gradient(parameter)
    return gradients


def _draw_loss_weights(
    ids: BatchIds, model: Model, generator: torch.Generator
) -> tuple[torch.Tensor, ...]:
    """Draw the gradients of a loss that weighs every output and final state at random."""
    num_rows, num_tokens = len(ids.lengths), len(ids.packed.data)
    heights = (num_tokens, *[num_rows] * model.cell.num_states)
    return tuple(
        torch.randn(height, HIDDEN_SIZE, generator=generator, dtype=torch.float64).to(
            ids.rectangle.device
        )
        for height in heights
    )


def _gradient(tensor: torch.Tensor) -> torch.Tensor:
    assert tensor.grad is not None  # noqa: S101 - backward has run
    return tensor.grad


def _values(run: Run) -> dict[str, torch.Tensor]:
    return {"outputs": run.outputs, **dict(zip(STATE_NAMES, run.states, strict=False))}


def _error(
    quantity: str, value: torch.Tensor, exact: torch.Tensor, ids: BatchIds
) -> tuple[float, int | None]:
    """Give the largest error and, where the quantity has rows, the row that has it."""
    summed = quantity.startswith("gradient of weight")
    error = measure_error(value, exact, summed=summed)
    if summed:
        return error, None
    places = (value.double() - exact).abs().amax(dim=1)
    place = int(places.nan_to_num(nan=float("inf")).argmax())
    if quantity in STATE_NAMES:
        return error, place
    return error, int(torch.searchsorted(ids.lengths.cumsum(0), place, right=True))


def _check_not_vacuous(exact: Run) -> Iterator[Comparison]:
    deviation = float(exact.outputs.std()) if exact.outputs.numel() > 1 else 0.0
    if not deviation >= LEAST_DEVIATION:
        yield Comparison(
            "forward", "outputs hardly vary: their deviation", LEAST_DEVIATION, deviation
        )


def _check_unused_rows(name: str, gradient: torch.Tensor, ids: BatchIds) -> Comparison:
    """Embedding rows of ids that are not in the batch have a gradient of exactly zero."""
    unused = torch.ones(len(gradient), dtype=torch.bool, device=gradient.device)
    unused[ids.packed.data] = False
    largest = float(gradient[unused].abs().max()) if bool(unused.any()) else 0.0
    return Comparison("backward", f"{name} gradient of unused embedding rows", largest, 0.0)


def _check_isolation(
    name: str, model: Model, ids: BatchIds, generator: torch.Generator
) -> Iterator[Comparison]:
    """Change the tokens of one row: it changes, and no other row does, bit for bit."""
    num_rows = len(ids.lengths)
    changed = int(torch.randint(num_rows, (1,), generator=generator))
    num_embeddings = model.embedding.num_embeddings
    rectangle = ids.rectangle.clone()
    rectangle[changed] = (rectangle[changed] + 1) % num_embeddings
    data = ids.packed.data.clone()
    row_of = torch.repeat_interleave(torch.arange(num_rows), ids.lengths)
    in_row = (row_of == changed).to(data.device)
    places = ids.row_order[in_row]
    data[places] = (data[places] + 1) % num_embeddings
    other = replace(ids, packed=ids.packed._replace(data=data), rectangle=rectangle)
    before, after = WAYS[name](model, ids), WAYS[name](model, other)
    moved = (before.outputs != after.outputs).any(dim=1)
    leaked = moved & ~in_row
    error = (
        float((before.outputs - after.outputs).abs()[leaked].max()) if bool(leaked.any()) else 0.0
    )
    row = int(row_of[int(leaked.int().argmax())]) if error else None
    yield Comparison("forward", f"{name} outputs of rows beside a changed one", error, 0.0, row)
    if not bool(moved[in_row].any()) and num_embeddings > 1:
        yield Comparison("forward", f"{name} outputs of a changed row: nothing", 1.0, 0.0, changed)
