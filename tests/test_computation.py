"""Levels `forward` and `backward`: what they compare, and that what is wrong is caught."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from shard_reference import lay_out

from seqpack_cli.shards.layouts import LAYOUTS
from seqpack_cli.verification import computation
from seqpack_cli.verification.batch_ids import BatchIds, SizeLimits, take_ids
from seqpack_cli.verification.cells import CELLS
from seqpack_cli.verification.computation import Comparison, check_backward, check_forward
from seqpack_cli.verification.ways import Model, Run, build_model, run_loop, run_packed

CPU = torch.device("cpu")
LENGTHS = [7, 5, 5, 2, 1, 1]
NUM_EMBEDDINGS = 12


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def make_ids(layout: str = "packed", lengths: list[int] = LENGTHS) -> BatchIds:
    draws = np.random.default_rng(0)
    rows = [draws.integers(0, 9, n) for n in lengths]
    batch = lay_out(layout, rows, np.arange(len(rows)), pad_id=9)
    return take_ids(batch, CPU, SizeLimits(max_tokens=1000, max_steps=100))


def make_model(
    cell: str = "lstm", dtype: torch.dtype = torch.float64, *, remembers: bool = False
) -> Model:
    return build_model(
        CELLS[cell],
        num_embeddings=NUM_EMBEDDINGS,
        device=CPU,
        dtype=dtype,
        seed=0,
        remembers=remembers,
    )


def compare(
    check: Any, model: Model, ids: BatchIds, *, remembers: bool = False
) -> dict[str, Comparison]:
    generator = torch.Generator().manual_seed(0)
    comparisons = list(check(model, ids, remembers=remembers, generator=generator))
    return {comparison.quantity: comparison for comparison in comparisons}


def failed(check: Any, model: Model, ids: BatchIds) -> set[str]:
    return {name for name, found in compare(check, model, ids).items() if found.failed}


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("remembers", [False, True])
def test_all_ways_agree(cell: str, layout: str, dtype: torch.dtype, remembers: bool) -> None:
    for check in (check_forward, check_backward):
        model, ids = make_model(cell, dtype, remembers=remembers), make_ids(layout)
        found = compare(check, model, ids, remembers=remembers)
        assert {name for name, comparison in found.items() if comparison.failed} == set()


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
        "packed outputs of rows beside a changed one",
        "padded outputs of rows beside a changed one",
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
    """Give a packed way whose run is changed by a function of it."""

    def way(model: Model, ids: BatchIds) -> Run:
        run = run_packed(model, ids)
        return replace(run, **{name: change(run, ids) for name, change in changes.items()})

    return way


def test_one_wrong_output_is_found_in_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def change(run: Run, ids: BatchIds) -> torch.Tensor:
        outputs = run.outputs.clone()
        outputs[7 + 5, 3] += 1e-3  # the first of row 2
        return outputs

    monkeypatch.setitem(computation.WAYS, "packed", packed_with(outputs=change))
    found = compare(check_forward, make_model(), make_ids())
    wrong = [comparison for comparison in found.values() if comparison.failed]
    assert [(comparison.quantity, comparison.row) for comparison in wrong] == [
        ("packed outputs", 2)
    ]
    assert str(wrong[0]) == "packed outputs is off by 0.001, limit 1e-12"


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_output_that_is_not_finite_is_found(monkeypatch: pytest.MonkeyPatch, value: float) -> None:
    def change(run: Run, ids: BatchIds) -> torch.Tensor:
        outputs = run.outputs.clone()
        outputs[-1, 0] = value
        return outputs

    monkeypatch.setitem(computation.WAYS, "packed", packed_with(outputs=change))
    found = compare(check_forward, make_model(), make_ids())["packed outputs"]
    assert found.failed
    assert found.error == math.inf
    assert found.row == 5


def test_state_of_another_row_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def change(run: Run, ids: BatchIds) -> tuple[torch.Tensor, ...]:
        return (run.states[0][[0, 2, 1, 3, 4, 5]], run.states[1])

    monkeypatch.setitem(computation.WAYS, "packed", packed_with(states=change))
    found = compare(check_forward, make_model(), make_ids())
    wrong = {name: comparison.row for name, comparison in found.items() if comparison.failed}
    assert wrong in ({"packed h_n": 1}, {"packed h_n": 2})


def test_row_that_moves_another_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def change(run: Run, ids: BatchIds) -> torch.Tensor:
        outputs = run.outputs.clone()
        outputs += 1e-13 * outputs.sum(dim=0)  # below all limits, but no longer bit for bit
        return outputs

    monkeypatch.setitem(computation.WAYS, "packed", packed_with(outputs=change))
    assert failed(check_forward, make_model(), make_ids()) >= {
        "packed outputs of rows beside a changed one"
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
    assert "outputs hardly vary: their deviation" in wrong
    assert "packed outputs of a changed row: nothing" in wrong


def test_backward_finds_a_gradient_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    def change(run: Run, ids: BatchIds) -> torch.Tensor:
        return 1.001 * run.outputs

    monkeypatch.setitem(computation.WAYS, "packed", packed_with(outputs=change))
    wrong = failed(check_backward, make_model(), make_ids())
    assert {"packed gradient of inputs", "packed gradient of weight weight_hh_l0"} <= wrong
    assert not any(name.startswith("alone") for name in wrong)


def test_backward_finds_states_without_a_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    def change(run: Run, ids: BatchIds) -> tuple[torch.Tensor, ...]:
        return (run.states[0].detach() + 0 * run.states[0], run.states[1])

    monkeypatch.setitem(computation.WAYS, "packed", packed_with(states=change))
    assert "packed gradient of inputs" in failed(check_backward, make_model(), make_ids())


def test_backward_finds_gradients_of_unused_embedding_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def change(run: Run, ids: BatchIds) -> torch.Tensor:
        return run.outputs + 1e-20 * model.embedding.weight[NUM_EMBEDDINGS - 1].sum()

    model = make_model()
    monkeypatch.setitem(computation.WAYS, "packed", packed_with(outputs=change))
    assert failed(check_backward, model, make_ids()) == {"packed gradient of unused embedding rows"}


def test_backward_finds_a_wrong_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    def scaled(model: Model, ids: BatchIds) -> Run:
        run = run_loop(model, ids)
        return replace(run, outputs=1.001 * run.outputs)

    monkeypatch.setattr(computation, "run_loop", scaled)
    assert "alone gradient of inputs" in failed(check_backward, make_model(), make_ids())
    assert "alone outputs" in failed(check_forward, make_model(), make_ids())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("cell", CELLS)
def test_errors_of_16_bit_are_reported_and_no_gate(cell: str, dtype: torch.dtype) -> None:
    model, ids = make_model(cell, dtype), make_ids()
    for check in (check_forward, check_backward):
        found = compare(check, model, ids)
        assert not any(comparison.failed for comparison in found.values())
        assert any(comparison.error > 1e-5 for comparison in found.values())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_errors_of_16_bit_are_no_finding_however_large(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    def change(run: Run, ids: BatchIds) -> torch.Tensor:
        return run.outputs + 1

    monkeypatch.setitem(computation.WAYS, "packed", packed_with(outputs=change))
    found = compare(check_forward, make_model(dtype=dtype), make_ids())["packed outputs"]
    assert found.error > found.limit
    assert not found.failed


def test_comparison_fails_above_its_limit_only() -> None:
    assert not Comparison("forward", "x", 1.0, 1.0).failed
    assert Comparison("forward", "x", 1.0000001, 1.0).failed
    assert Comparison("forward", "x", math.nan, 1.0).failed
    assert not Comparison("forward", "x", math.inf, 1.0, is_gate=False).failed
