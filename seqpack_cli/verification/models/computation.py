"""Levels `forward` and `backward`: a model gives the same for a batch as for each sequence alone.

Every output of every step is compared, not only the last state, since a default LSTM forgets a
wrong first token within 20 steps. A second model remembers it (see model.py), so that the last
state shows it too. Results that would make the comparison meaningless are findings as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import torch

from seqpack_cli.verification.models.batch_ids import BatchIds
from seqpack_cli.verification.models.leaks import find_leaks
from seqpack_cli.verification.models.model import Model
from seqpack_cli.verification.models.tolerances import GATES, find_tolerances, measure_error
from seqpack_cli.verification.models.ways import Run, run_alone, run_loop, run_packed, run_padded

Way = Callable[[Model, BatchIds], Run]
WAYS: dict[str, Way] = {"alone": run_alone, "packed": run_packed, "padded": run_padded}
STATE_NAMES = ("h_n", "c_n")
# The least root mean square of outputs; below it there is nothing worth comparing. A GRU that
# remembers takes in only 0.7 % of each step. Least values measured for one token, hidden sizes 4 to
# 512 and up to 6 layers: 9e-3 and 2e-4.
LEAST_DEVIATION = 1e-3
LEAST_DEVIATION_REMEMBERING = 2e-5


@dataclass(frozen=True)
class Comparison:
    """One quantity of one way compared with the float64 loop."""

    level: str
    quantity: str
    error: float
    limit: float
    row: int | None = None  # where the error is largest
    is_gate: bool = True
    what: str | None = None  # replaces the text of the error

    @property
    def failed(self) -> bool:
        """Whether this is a fault."""
        return self.is_gate and not self.error <= self.limit

    def __str__(self) -> str:
        if self.what is not None:
            return self.what
        return f"{self.quantity}: error {self.error:.2g}, limit {self.limit:.2g}"


@torch.no_grad()  # while it computes, not while its caller has the next comparison
def check_forward(
    model: Model,
    ids: BatchIds,
    *,
    generator: torch.Generator,
    ways: Mapping[str, Way] = WAYS,
    reference: Way = run_loop,
) -> Iterator[Comparison]:
    """Compare every output and final state; check that changing one row changes no other row.

    Args:
        generator: chooses the row to change.
        ways: by name, `alone` among them.
        reference: run in float64; every way is compared with it.
    """
    exact = reference(model.in_float64(), ids)
    values = {name: _values(way(model, ids)) for name, way in ways.items()}
    yield from _compare("forward", values, _values(exact), model, ids)
    yield from _check_not_vacuous(exact, remembers=model.remembers)
    for name, way in ways.items():
        if name != "alone":  # which has no other rows
            yield from _check_isolation(name, way, model, ids, generator, values[name])


@torch.enable_grad()
def check_backward(
    model: Model,
    ids: BatchIds,
    *,
    generator: torch.Generator,
    ways: Mapping[str, Way] = WAYS,
    reference: Way = run_loop,
) -> Iterator[Comparison]:
    """Compare the gradients of inputs and weights under a loss on all outputs and final states.

    Args:
        generator: draws the weights of the loss.
        ways, reference: as for check_forward.
    """
    loss = _draw_loss_weights(ids, model, generator)
    exact = _find_gradients(reference, model.in_float64(), ids, loss)
    found = {name: _find_gradients(way, model, ids, loss) for name, way in ways.items()}
    yield from _compare("backward", found, exact, model, ids)
    for name, gradients in found.items():
        yield _check_unused_rows(name, gradients["gradient of weight embedding"], ids)


def _compare(
    level: str,
    found: dict[str, dict[str, torch.Tensor]],
    exact: dict[str, torch.Tensor],
    model: Model,
    ids: BatchIds,
) -> Iterator[Comparison]:
    """Compare all ways with the float64 loop; the error of `alone` may raise the others' limit."""
    dtype = model.embedding.weight.dtype
    tolerances = find_tolerances(ids.rectangle.device, dtype, remembers=model.remembers)
    for quantity, wanted in exact.items():
        alone, _ = _error(quantity, found["alone"][quantity], wanted, ids)
        for name, values in found.items():
            error, row = _error(quantity, values[quantity], wanted, ids)
            limit = tolerances.beside_alone(quantity, alone)
            if name == "alone":
                limit = tolerances.of_alone(quantity)
            # outputs and states, c_n is at most the number of steps, cannot overflow in 16 bits
            # either, so NaN and infinity are faults there too
            is_gate = dtype in GATES or (level == "forward" and error == math.inf)
            yield Comparison(level, f"{name} {quantity}", error, limit, row, is_gate)


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
    """Draw the gradients of a loss that weights every output and final state at random."""
    width = model.num_directions * model.hidden_size
    state_shape = (len(ids.lengths), model.recurrent.num_layers * width)
    shapes = [(len(ids.packed.data), width), *[state_shape] * model.cell.num_states]
    return tuple(
        torch.randn(shape, generator=generator, dtype=torch.float64).to(ids.rectangle.device)
        for shape in shapes
    )


def _gradient(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor's gradient after backward; zeros if it has none, which is a finding."""
    return torch.zeros_like(tensor) if tensor.grad is None else tensor.grad


def _values(run: Run) -> dict[str, torch.Tensor]:
    return {"outputs": run.outputs, **dict(zip(STATE_NAMES, run.states, strict=False))}


def _error(
    quantity: str, value: torch.Tensor, exact: torch.Tensor, ids: BatchIds
) -> tuple[float, int | None]:
    """Return the largest error and, if the quantity has rows, the row that has it."""
    summed = quantity.startswith("gradient of weight")
    error = measure_error(value, exact, summed=summed)
    if summed:
        return error, None
    places = (value.double() - exact).abs().amax(dim=1)
    place = int(places.nan_to_num(nan=float("inf")).argmax())
    if quantity in STATE_NAMES:
        return error, place
    return error, int(torch.searchsorted(ids.lengths.cumsum(0), place, right=True))


def _check_not_vacuous(exact: Run, *, remembers: bool) -> Iterator[Comparison]:
    size = float(exact.outputs.square().mean().sqrt())
    least = LEAST_DEVIATION_REMEMBERING if remembers else LEAST_DEVIATION
    if not size >= least:
        what = (
            f"outputs are close to zero: root mean square {size:.2g}, expected {least:.2g} or more"
        )
        yield Comparison("forward", "root mean square of outputs", math.inf, 0.0, what=what)


def _check_unused_rows(name: str, gradient: torch.Tensor, ids: BatchIds) -> Comparison:
    """Check that embeddings of ids that are not in the batch have a gradient of exactly zero."""
    unused = torch.ones(len(gradient), dtype=torch.bool, device=gradient.device)
    unused[ids.packed.data] = False
    largest = float(gradient[unused].abs().max()) if bool(unused.any()) else 0.0
    return Comparison("backward", f"{name} gradient of unused embedding rows", largest, 0.0)


def _check_isolation(
    name: str,
    way: Way,
    model: Model,
    ids: BatchIds,
    generator: torch.Generator,
    first: dict[str, torch.Tensor],
) -> Iterator[Comparison]:
    """Check that changing one row's tokens changes its results, and not those of the others.

    The others must be the same bit for bit, unless the device gives other bits for a repeated run.

    Args:
        first: the earlier results of the way for the unchanged batch.
    """
    num_rows, num_embeddings = len(ids.lengths), model.embedding.num_embeddings
    changed = int(torch.randint(num_rows, (1,), generator=generator))
    dtype, device = model.embedding.weight.dtype, ids.rectangle.device

    def run(ids: BatchIds) -> dict[str, torch.Tensor]:
        return _values(way(model, ids))

    inputs = (ids, _change_row(ids, changed, num_embeddings))
    before, after = run(inputs[0]), run(inputs[1])
    rows = {name: torch.arange(num_rows) for name in before}
    rows["outputs"] = torch.repeat_interleave(rows["outputs"], ids.lengths)
    others = {quantity: (row != changed).to(device) for quantity, row in rows.items()}
    limit = find_tolerances(device, dtype, remembers=False).values
    leaks = find_leaks(run, inputs, (before, after), others, most_noise=limit)
    for quantity, leak in leaks.items():
        again = float((before[quantity] - first[quantity]).abs().max())
        yield Comparison(
            "forward", f"{name} {quantity} of a repeated run", again, 0.0, is_gate=False
        )
        row = None if leak.place is None else int(rows[quantity][leak.place])
        of_others = f"{name} {quantity} of unchanged rows"
        yield Comparison("forward", of_others, leak.error, limit if again > 0 else leak.limit, row)
    moved = ((before[each] != after[each])[~others[each]] for each in before)
    if num_embeddings > 1 and not any(bool(each.any()) for each in moved):
        # in 16 bits, one token may not change the rounded outputs of a few units
        is_gate = dtype in GATES
        quantity = f"{name} outputs and states of a changed row"
        what = f"{quantity} do not change"
        yield Comparison("forward", quantity, math.inf, 0.0, changed, is_gate, what)


def _change_row(ids: BatchIds, changed: int, num_embeddings: int) -> BatchIds:
    """Return a copy in which every token of one row is another one."""
    rectangle, data = ids.rectangle.clone(), ids.packed.data.clone()
    rectangle[changed] = (rectangle[changed] + 1) % num_embeddings
    start = int(ids.lengths[:changed].sum())
    places = ids.row_order[start : start + int(ids.lengths[changed])]
    data[places] = (data[places] + 1) % num_embeddings
    return replace(ids, packed=ids.packed._replace(data=data), rectangle=rectangle)
