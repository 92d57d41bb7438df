"""Levels `forward` and `backward`: what they compare, and that what is wrong is caught."""

from __future__ import annotations

import itertools
import math
from collections.abc import Container
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from models import make_model
from shard_reference import lay_out
from torch import nn
from torch.nn.utils.rnn import PackedSequence

from seqpack_cli.batching.options import LAYOUTS
from seqpack_cli.verification.models.batch_ids import BatchIds, SizeLimits, take_ids
from seqpack_cli.verification.models.computation import (
    LEAST_DEVIATION,
    LEAST_DEVIATION_REMEMBERING,
    WAYS,
    Comparison,
    check_backward,
    check_forward,
)
from seqpack_cli.verification.models.model import CELLS, Model
from seqpack_cli.verification.models.ways import Run, run_alone, run_loop, run_packed
from seqpack_cli.verification.options import DTYPES

CPU = torch.device("cpu")
LENGTHS = [7, 5, 5, 2, 1, 1]
NUM_EMBEDDINGS = 12


pytestmark = pytest.mark.usefixtures("one_thread")


def make_ids(layout: str = "packed", lengths: list[int] = LENGTHS) -> BatchIds:
    draws = np.random.default_rng(0)
    rows = [draws.integers(0, 9, n) for n in lengths]
    batch = lay_out(layout, rows, np.arange(len(rows)), pad_id=9)
    return take_ids(batch, CPU, SizeLimits(max_tokens=1000, max_steps=100))


def compare(check: Any, model: Model, ids: BatchIds, **given: Any) -> dict[str, Comparison]:
    generator = torch.Generator().manual_seed(0)
    comparisons = list(check(model, ids, generator=generator, **given))
    return {comparison.quantity: comparison for comparison in comparisons}


def failed(check: Any, model: Model, ids: BatchIds, **given: Any) -> set[str]:
    return {name for name, found in compare(check, model, ids, **given).items() if found.failed}


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("remembers", [False, True])
def test_all_ways_agree(cell: str, layout: str, dtype: torch.dtype, remembers: bool) -> None:
    for check in (check_forward, check_backward):
        model, ids = make_model(cell, dtype, remembers=remembers), make_ids(layout)
        assert failed(check, model, ids) == set()


def test_gradients_are_computed_as_the_caller_set_it_between_comparisons() -> None:
    model, ids, generator = make_model("lstm"), make_ids(), torch.Generator()
    unfinished = check_forward(model, ids, generator=generator)  # as a traceback may keep it
    next(unfinished)
    assert torch.is_grad_enabled()
    with torch.no_grad():
        assert failed(check_backward, model, ids) == set()
        assert not torch.is_grad_enabled()


# In these any two values of any two options meet; the others are slow.
FAST_SHAPES = {
    ("lstm", 1, False, True, torch.float64),
    ("lstm", 2, True, False, torch.float32),
    ("lstm", 3, False, True, torch.float32),
    ("gru", 1, False, False, torch.float64),
    ("gru", 2, True, True, torch.float32),
    ("gru", 3, False, True, torch.float32),
    ("rnn", 1, True, True, torch.float32),
    ("rnn", 2, False, False, torch.float64),
    ("rnn", 3, True, False, torch.float64),
}
SHAPES = itertools.product(
    CELLS, [1, 2, 3], [False, True], [False, True], [torch.float64, torch.float32]
)


@pytest.mark.parametrize(
    ("cell", "num_layers", "bidirectional", "remembers", "dtype"),
    [
        pytest.param(*shape, marks=() if shape in FAST_SHAPES else pytest.mark.slow)
        for shape in SHAPES
    ],
    ids=str,
)
def test_all_ways_agree_for_every_shape_of_model(
    cell: str, num_layers: int, bidirectional: bool, remembers: bool, dtype: torch.dtype
) -> None:
    shape = {"num_layers": num_layers, "bidirectional": bidirectional, "hidden_size": 16}
    model = make_model(cell, dtype, remembers=remembers, **shape)
    for lengths in (LENGTHS, [1], [3], [1, 1], [4, 4]):
        ids = make_ids("padded", lengths)
        for check in (check_forward, check_backward):
            assert failed(check, model, ids) == set()


@pytest.mark.parametrize("lengths", [[1], [3], [1, 1], [4, 4]], ids=str)
def test_all_ways_agree_on_small_batches(lengths: list[int]) -> None:
    for layout in LAYOUTS:
        assert failed(check_forward, make_model(), make_ids(layout, lengths)) == set()
        assert failed(check_backward, make_model(), make_ids(layout, lengths)) == set()


def test_every_output_state_and_gradient_is_compared() -> None:
    forward = compare(check_forward, make_model(), make_ids())
    backward = compare(check_backward, make_model(), make_ids())
    ways = ("alone", "packed", "padded")
    assert set(forward) == {
        *(f"{way} {quantity}" for way in ways for quantity in ("outputs", "h_n", "c_n")),
        *(
            f"{way} {quantity} of {rows}"
            for way in ("packed", "padded")
            for quantity in ("outputs", "h_n", "c_n")
            for rows in ("unchanged rows", "a repeated run")
        ),
    }
    weights = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    gradients = [
        "gradient of inputs",
        "gradient of weight embedding",
        *(f"gradient of weight {name}" for name in weights),
        "gradient of unused embedding rows",
    ]
    assert set(backward) == {f"{way} {quantity}" for way in ways for quantity in gradients}
    assert {comparison.level for comparison in forward.values()} == {"forward"}
    assert {comparison.level for comparison in backward.values()} == {"backward"}


@pytest.mark.parametrize("cell", ["gru", "rnn"])
def test_cells_without_memory_have_no_c_n(cell: str) -> None:
    found = compare(check_forward, make_model(cell), make_ids())
    assert not any("c_n" in name for name in found)


def packed_with(**changes: Any) -> Any:
    """Return the way `packed` with some of its results changed by functions."""

    def way(model: Model, ids: BatchIds) -> Run:
        run = run_packed(model, ids)
        return replace(run, **{name: change(run, ids) for name, change in changes.items()})

    return way


def test_one_wrong_output_is_found_in_its_row() -> None:
    def change(run: Run, ids: BatchIds) -> torch.Tensor:
        outputs = run.outputs.clone()
        outputs[7 + 5, 3] += 1e-3  # the first of row 2
        return outputs

    ways = WAYS | {"packed": packed_with(outputs=change)}
    found = compare(check_forward, make_model(), make_ids(), ways=ways)
    wrong = [comparison for comparison in found.values() if comparison.failed]
    assert [(comparison.quantity, comparison.row) for comparison in wrong] == [
        ("packed outputs", 2)
    ]
    assert str(wrong[0]) == "packed outputs: error 0.001, limit 1e-12"


class Disturbed(nn.Module):
    """A module whose outputs are off by less than rounding, in some calls or with all tokens."""

    def __init__(self, module: nn.Module, *, calls: Container[int], leaks: bool) -> None:
        super().__init__()
        self.module, self.calls, self.leaks, self.num_calls = module, calls, leaks, 0

    def forward(self, packed: PackedSequence) -> Any:
        outputs, hidden = self.module(packed)
        self.num_calls += 1
        size = outputs.data.sum().sin() if self.leaks else float(self.num_calls in self.calls)
        return outputs._replace(data=outputs.data + 1e-13 * size), hidden


def disturbed(*, calls: Container[int] = (), leaks: bool = False) -> dict[str, Any]:
    model = make_model()
    module: Any = Disturbed(model.recurrent, calls=calls, leaks=leaks)
    ways = WAYS | {"packed": lambda _, ids: run_packed(replace(model, recurrent=module), ids)}
    return compare(check_forward, model, make_ids(), ways=ways)


@pytest.mark.parametrize("calls", [[1], [2], [3], [3, 4], [3, 5, 7, 9], range(1, 99, 2)], ids=str)
def test_noise_now_and_then_is_not_a_leak(calls: Container[int]) -> None:
    found = disturbed(calls=calls)
    assert not any(comparison.failed for comparison in found.values())
    if 1 not in calls:
        assert found["packed outputs of unchanged rows"].error > 0


def test_a_leak_smaller_than_rounding_is_found() -> None:
    found = disturbed(leaks=True)
    wrong = [name for name, comparison in found.items() if comparison.failed]
    assert wrong == ["packed outputs of unchanged rows"]
    assert found[wrong[0]].row in (0, 1)  # the first, or that after the changed one


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("dtype", [getattr(torch, name) for name in DTYPES], ids=DTYPES)
@pytest.mark.parametrize("quantity", ["outputs", "h_n", "c_n"])
def test_result_that_is_not_finite_is_found(
    quantity: str, dtype: torch.dtype, value: float
) -> None:
    def change(run: Run, ids: BatchIds) -> torch.Tensor:
        return spoil(run.outputs)

    def change_states(run: Run, ids: BatchIds) -> tuple[torch.Tensor, ...]:
        h_n, c_n = run.states
        return (spoil(h_n), c_n) if quantity == "h_n" else (h_n, spoil(c_n))

    def spoil(values: torch.Tensor) -> torch.Tensor:
        values = values.clone()
        values[-1, 0] = value
        return values

    spoils = {"outputs": change} if quantity == "outputs" else {"states": change_states}
    ways = WAYS | {"packed": packed_with(**spoils)}
    model = make_model(dtype=dtype)
    found = compare(check_forward, model, make_ids(), ways=ways)[f"packed {quantity}"]
    assert found.failed
    assert found.error == math.inf
    assert found.row == 5


def test_large_leak_is_found_though_it_does_not_come_back() -> None:
    calls = itertools.count(1)

    def change(run: Run, ids: BatchIds) -> torch.Tensor:
        return run.outputs + 1e-3 * (next(calls) == 3)  # the run with a changed row

    ways = WAYS | {"packed": packed_with(outputs=change)}
    found = compare(check_forward, make_model(), make_ids(), ways=ways)
    assert found["packed outputs of unchanged rows"].failed


def test_state_of_another_row_is_found() -> None:
    def change(run: Run, ids: BatchIds) -> tuple[torch.Tensor, ...]:
        return (run.states[0][[0, 2, 1, 3, 4, 5]], run.states[1])

    ways = WAYS | {"packed": packed_with(states=change)}
    found = compare(check_forward, make_model(), make_ids(), ways=ways)
    wrong = {name: comparison.row for name, comparison in found.items() if comparison.failed}
    assert wrong["packed h_n"] in (1, 2)
    # row 1 or 2 is the changed one, and the other has its state
    assert set(wrong) == {"packed h_n", "packed h_n of unchanged rows"}


def test_row_that_moves_another_is_found() -> None:
    def change(run: Run, ids: BatchIds) -> torch.Tensor:
        outputs = run.outputs.clone()
        outputs += 1e-13 * outputs.sum(dim=0)  # below all limits, but no longer bit for bit
        return outputs

    ways = WAYS | {"packed": packed_with(outputs=change)}
    assert failed(check_forward, make_model(), make_ids(), ways=ways) >= {
        "packed outputs of unchanged rows"
    }


def test_wrong_order_of_ids_is_found() -> None:
    ids = make_ids()
    data = ids.packed.data.clone()
    data[[6, 7]] = data[[7, 6]]
    assert data[6] != data[7]
    # packed and loop read packed.data, padded the rectangle
    wrong = failed(check_forward, make_model(), replace(ids, packed=ids.packed._replace(data=data)))
    assert "padded outputs" in wrong


def test_model_that_computes_nothing_is_found() -> None:
    model = make_model()
    with torch.no_grad():
        for parameter in model.parameters().values():
            parameter.zero_()
    wrong = failed(check_forward, model, make_ids())
    assert "root mean square of outputs" in wrong
    assert "packed outputs and states of a changed row" in wrong


def test_backward_finds_a_gradient_that_is_too_large() -> None:
    def change(run: Run, ids: BatchIds) -> torch.Tensor:
        return 1.001 * run.outputs

    ways = WAYS | {"packed": packed_with(outputs=change)}
    wrong = failed(check_backward, make_model(), make_ids(), ways=ways)
    assert {"packed gradient of inputs", "packed gradient of weight weight_hh_l0"} <= wrong
    assert not any(name.startswith("alone") for name in wrong)


def test_backward_finds_states_without_a_gradient() -> None:
    def change(run: Run, ids: BatchIds) -> tuple[torch.Tensor, ...]:
        return (run.states[0].detach() + 0 * run.states[0], run.states[1])

    ways = WAYS | {"packed": packed_with(states=change)}
    assert "packed gradient of inputs" in failed(
        check_backward, make_model(), make_ids(), ways=ways
    )


def test_backward_finds_gradients_of_unused_embedding_rows() -> None:
    def change(run: Run, ids: BatchIds) -> torch.Tensor:
        return run.outputs + 1e-20 * model.embedding.weight[NUM_EMBEDDINGS - 1].sum()

    model = make_model()
    ways = WAYS | {"packed": packed_with(outputs=change)}
    assert failed(check_backward, model, make_ids(), ways=ways) == {
        "packed gradient of unused embedding rows"
    }


def test_backward_finds_a_wrong_loop() -> None:
    def scaled(model: Model, ids: BatchIds) -> Run:
        run = run_loop(model, ids)
        return replace(run, outputs=1.001 * run.outputs)

    model, ids = make_model(), make_ids()
    wrong = failed(check_backward, model, ids, reference=scaled)
    assert "alone gradient of inputs" in wrong
    assert "alone outputs" in failed(check_forward, model, ids, reference=scaled)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("cell", CELLS)
def test_errors_of_16_bit_are_reported_and_no_gate(cell: str, dtype: torch.dtype) -> None:
    model, ids = make_model(cell, dtype), make_ids()
    for check in (check_forward, check_backward):
        found = compare(check, model, ids)
        assert not any(comparison.failed for comparison in found.values())
        assert any(comparison.error > 1e-5 for comparison in found.values())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_errors_of_16_bit_are_no_finding_however_large(dtype: torch.dtype) -> None:
    def change(run: Run, ids: BatchIds) -> torch.Tensor:
        return run.outputs + 1

    ways = WAYS | {"packed": packed_with(outputs=change)}
    found = compare(check_forward, make_model(dtype=dtype), make_ids(), ways=ways)["packed outputs"]
    assert found.error > found.limit
    assert not found.failed


def test_comparison_fails_above_its_limit_only() -> None:
    assert not Comparison("forward", "x", 1.0, 1.0).failed
    assert Comparison("forward", "x", 1.0000001, 1.0).failed
    assert Comparison("forward", "x", math.nan, 1.0).failed
    assert not Comparison("forward", "x", math.inf, 1.0, is_gate=False).failed


def run_padding_first(model: Model, ids: BatchIds) -> Run:
    """Run torch's own module over the rectangle: backwards it reads a row's padding first."""
    inputs = model.embedding(ids.rectangle)
    outputs, _ = model.recurrent(inputs)
    right = WAYS["padded"](model, ids)
    return Run(outputs[ids.mask], right.states, inputs, lambda array: array[ids.mask])


def test_padding_read_first_is_found_backwards_only() -> None:
    ways = WAYS | {"padded": run_padding_first}
    for bidirectional, wrong in ((False, set()), (True, {"padded outputs"})):
        model = make_model(bidirectional=bidirectional, num_layers=2)
        assert failed(check_forward, model, make_ids("padded"), ways=ways) == wrong
    # rows of one length have no padding
    assert failed(check_forward, model, make_ids("padded", [4, 4]), ways=ways) == set()


@pytest.mark.parametrize("bidirectional", [False, True])
def test_states_of_one_step_late_are_found(bidirectional: bool) -> None:
    def change(run: Run, ids: BatchIds) -> tuple[torch.Tensor, ...]:
        """Return the h_n of one step after each row's end."""
        longer = [torch.cat([row, row[:1]]) for row in rows_of(ids)]
        late = [model.recurrent(model.embedding(row)[None])[1][0] for row in longer]
        return (torch.cat(late, dim=1).transpose(0, 1).flatten(1), *run.states[1:])

    model = make_model(bidirectional=bidirectional, num_layers=2)
    ways = WAYS | {"packed": packed_with(states=change)}
    found = compare(check_forward, model, make_ids(), ways=ways)
    assert {name for name, comparison in found.items() if comparison.failed} == {"packed h_n"}
    assert found["packed h_n"].error > 0.01


def rows_of(ids: BatchIds) -> list[torch.Tensor]:
    return [row[:length] for row, length in zip(ids.rectangle, ids.lengths, strict=True)]


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_gradient_without_one_row_is_found(bidirectional: bool, dtype: torch.dtype) -> None:
    def leave_out(model: Model, ids: BatchIds) -> Run:
        run = run_packed(model, ids)
        keeps = torch.ones(len(run.outputs), 1, dtype=torch.bool)
        keeps[-1] = False  # the last row, of one token
        outputs = torch.where(keeps, run.outputs, run.outputs.detach())
        states = tuple(torch.cat([state[:-1], state[-1:].detach()]) for state in run.states)
        return replace(run, outputs=outputs, states=states)

    model = make_model(dtype=dtype, bidirectional=bidirectional, num_layers=2)
    ways = WAYS | {"packed": leave_out}
    found = compare(check_backward, model, make_ids(), ways=ways)
    wrong = {name for name, comparison in found.items() if comparison.failed}
    assert "packed gradient of inputs" in wrong
    assert found["packed gradient of inputs"].row == 5
    assert "packed gradient of weight weight_ih_l1" in wrong
    assert all(name.startswith("packed") for name in wrong)
    assert failed(check_forward, model, make_ids(), ways=ways) == set()


def test_weight_without_a_gradient_is_found() -> None:
    def cut(model: Model, ids: BatchIds) -> Run:
        run = run_alone(model, ids)
        inputs = run.inputs.detach().requires_grad_()
        outputs = run.outputs.detach() + 0 * inputs.sum()
        states = tuple(state.detach() + 0 * inputs.sum() for state in run.states)
        return replace(run, outputs=outputs, states=states, inputs=inputs)

    wrong = failed(check_backward, make_model(), make_ids(), ways=WAYS | {"packed": cut})
    assert "packed gradient of weight weight_hh_l0" in wrong


def test_state_that_moves_with_another_row_is_found() -> None:
    def change(run: Run, ids: BatchIds) -> tuple[torch.Tensor, ...]:
        return (run.states[0], run.states[1] + 1e-13 * run.states[1].sum(dim=0))

    ways = WAYS | {"packed": packed_with(states=change)}
    assert failed(check_forward, make_model(bidirectional=True), make_ids(), ways=ways) == {
        "packed c_n of unchanged rows"
    }


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("remembers", [False, True])
@pytest.mark.parametrize(
    "hidden_sizes", [[1, 16], pytest.param([1, 1, 2, 3, 4, 16], marks=pytest.mark.slow)], ids=str
)
def test_no_small_model_is_called_vacuous(
    cell: str, remembers: bool, hidden_sizes: list[int]
) -> None:
    draws = np.random.default_rng(0)
    for seed, hidden_size in enumerate(hidden_sizes):
        for num_layers, bidirectional in ((1, False), (4, True)):
            shape = {"num_layers": num_layers, "bidirectional": bidirectional}
            for rows in ([draws.integers(0, 9, 1)], [np.zeros(6, int), np.zeros(2, int)]):
                batch = lay_out("packed", rows, np.arange(len(rows)), pad_id=9)
                ids = take_ids(batch, CPU, SizeLimits(max_tokens=1000, max_steps=100))
                model = make_model(
                    cell,
                    torch.float32,
                    remembers=remembers,
                    seed=seed,
                    hidden_size=hidden_size,
                    **shape,
                )
                assert failed(check_forward, model, ids) == set()


@pytest.mark.parametrize("remembers", [False, True])
def test_outputs_far_below_those_of_any_model_are_found(remembers: bool) -> None:
    least = LEAST_DEVIATION_REMEMBERING if remembers else LEAST_DEVIATION

    def shrunk(model: Model, ids: BatchIds) -> Run:
        run = run_loop(model, ids)
        scale = least / 2 / float(run.outputs.square().mean().sqrt())
        return replace(run, outputs=scale * run.outputs)

    wrong = failed(check_forward, make_model(remembers=remembers), make_ids(), reference=shrunk)
    assert "root mean square of outputs" in wrong
