"""Attention over a row of `varlen` is that of each sequence alone, and what leaks is caught."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Container
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from shard_reference import lay_out
from torch import nn
from torch.nn.attention import sdpa_kernel

from seqpack_cli.ranges import to_offsets
from seqpack_cli.shards.shared_rows import VarlenBatch
from seqpack_cli.verification.models import attention
from seqpack_cli.verification.models.attention import check_attention
from seqpack_cli.verification.models.attention_arrays import check_borders
from seqpack_cli.verification.models.attention_layer import (
    BACKENDS,
    AttentionLayer,
    Row,
    build_layer,
    mask_of,
    run_alone,
    run_plainly,
    run_row,
)
from seqpack_cli.verification.models.computation import Comparison

CPU = torch.device("cpu")
NUM_EMBEDDINGS = 12
LENGTHS = [4, 1, 7, 2, 1]
ROW_LENGTHS = st.lists(st.integers(1, 12), min_size=1, max_size=10)
OUTPUTS = "attention outputs"
BESIDE = "attention outputs of unchanged sequences"
NOTHING = "attention outputs of a changed sequence"
CONSTANT = "spread of attention outputs"
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


pytestmark = pytest.mark.usefixtures("one_thread")


def make_batch(lengths: list[int] = LENGTHS, *, seed: int = 0, num_ids: int = 12) -> VarlenBatch:
    draws = np.random.default_rng(seed)
    rows = [draws.integers(0, num_ids, n).astype(np.uint16) for n in lengths]
    batch = lay_out("varlen", rows, np.arange(len(rows)))
    assert isinstance(batch, VarlenBatch)
    return batch


def make_layer(
    *, num_embeddings: int = 12, dtype: torch.dtype = torch.float64, seed: int = 0
) -> AttentionLayer:
    return build_layer(num_embeddings=num_embeddings, device=CPU, dtype=dtype, seed=seed)


def compare(batch: VarlenBatch, **options: Any) -> dict[str, Comparison]:
    seed = options.pop("seed", 0)
    of_layer = {name: options.pop(name) for name in ("num_embeddings", "dtype") if name in options}
    layer = options.pop("layer", None) or make_layer(seed=seed, **of_layer)
    usual = {"max_tokens": 1000, "generator": torch.Generator().manual_seed(seed)}
    comparisons = list(check_attention(batch, layer, **{**usual, **options}))
    found = {comparison.quantity: comparison for comparison in comparisons}
    assert len(found) == len(comparisons)
    return found


def failed(batch: VarlenBatch, **options: Any) -> set[str]:
    return {name for name, found in compare(batch, **options).items() if found.failed}


def make_row(lengths: list[int]) -> Row:
    return attention._put_on(CPU, make_batch(lengths))


def dot(left: list[float], right: list[float]) -> float:
    return sum(a * b for a, b in zip(left, right, strict=True))


def slow_attention(layer: AttentionLayer, ids: list[int]) -> list[list[float]]:
    """Return the outputs of one sequence, one product after another."""
    weight, bias = (part.tolist() for part in (layer.projection.weight, layer.projection.bias))
    width, num_heads = 32, 2
    projected = []
    for position, id_ in enumerate(ids):
        angles = [position / 10_000 ** (2 * wave / width) for wave in range(width // 2)]
        waves = [*map(math.sin, angles), *map(math.cos, angles)]
        inputs = [a + b for a, b in zip(layer.embedding.weight[id_].tolist(), waves, strict=True)]
        projected.append(
            [dot(row, inputs) + shift for row, shift in zip(weight, bias, strict=True)]
        )
    outputs: list[list[float]] = [[] for _ in ids]
    size = width // num_heads
    for head in range(num_heads):
        parts = [
            [token[kind * width + head * size :][:size] for token in projected] for kind in range(3)
        ]
        for token, query in enumerate(parts[0]):
            keys, values = parts[1][: token + 1], parts[2][: token + 1]
            scores = [dot(query, key) / math.sqrt(size) for key in keys]
            weights = [math.exp(score) for score in scores]
            outputs[token] += [
                sum(w * value[i] for w, value in zip(weights, values, strict=True)) / sum(weights)
                for i in range(size)
            ]
    return outputs


# What is right passes


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("lengths", [LENGTHS, [1], [3], [1, 1], [40, 30, 50], [1] * 20], ids=str)
def test_a_row_is_its_sequences(lengths: list[int], dtype: torch.dtype) -> None:
    found = compare(make_batch(lengths), dtype=dtype)
    assert set(found) == {"cu_seqlens", "position_ids", "alone attention outputs", OUTPUTS, BESIDE}
    assert {name for name, comparison in found.items() if comparison.failed} == set()
    assert {comparison.level for comparison in found.values()} == {"forward"}
    assert found[OUTPUTS].is_gate is (dtype in (torch.float64, torch.float32))
    assert found[BESIDE].is_gate


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=12),
    seed=st.integers(0, 2**32),
    num_ids=st.sampled_from([1, 2, 300]),
    dtype=st.sampled_from(DTYPES),
    max_tokens=st.sampled_from([1, 2, 30, 1000]),
)
def test_what_is_right_is_never_a_finding(
    lengths: list[int], seed: int, num_ids: int, dtype: torch.dtype, max_tokens: int
) -> None:
    batch = make_batch(lengths, seed=seed, num_ids=num_ids)
    options = {"num_embeddings": num_ids, "seed": seed, "dtype": dtype, "max_tokens": max_tokens}
    assert failed(batch, **options) == set()


def test_pieces_of_split_sequences_begin_at_position_0() -> None:
    batch = replace(make_batch(), piece_starts=np.array([0, 4, 0, 7, 0]))
    assert failed(batch) == set()
    moved = batch.position_ids + np.repeat([0, 4, 0, 7, 0], LENGTHS)
    assert batch.position_ids.tolist() != moved.tolist()


def test_the_reference_is_the_formula() -> None:
    layer = make_layer(dtype=torch.float32, seed=3).in_float64()
    row = make_row([5, 1, 3])
    expected = [
        output
        for ids in row.ids.split(row.lengths)
        for output in slow_attention(layer, ids.tolist())
    ]
    exact = torch.tensor(expected, dtype=torch.float64)
    assert torch.allclose(run_plainly(layer, row), exact, rtol=0, atol=1e-13)
    assert torch.allclose(run_alone(layer, row), exact, rtol=0, atol=1e-13)


@settings(max_examples=40, deadline=None)
@given(ROW_LENGTHS)
def test_the_mask_is_the_slow_one(lengths: list[int]) -> None:
    sequence_of = [number for number, length in enumerate(lengths) for _ in range(length)]
    tokens = range(len(sequence_of))
    expected = [
        [sequence_of[key] == sequence_of[query] and key <= query for key in tokens]
        for query in tokens
    ]
    cu_seqlens = torch.from_numpy(make_batch(lengths).cu_seqlens)
    assert mask_of(cu_seqlens, len(sequence_of)).tolist() == expected


def test_the_same_seed_gives_the_same_layer() -> None:
    layers = [make_layer(dtype=DTYPES[1], seed=seed) for seed in (1, 1, 2)]
    first, same, other = (layer.projection.weight for layer in layers)
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


def test_gradients_stay_switched_on_between_comparisons() -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in check_attention(make_batch(), make_layer(), max_tokens=99, generator=generator):
        assert torch.is_grad_enabled()


@pytest.mark.parametrize("fails", [False, True])
def test_cudnn_does_not_compute_attention(monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    inside = []

    def observe(*heads: torch.Tensor, **options: Any) -> torch.Tensor:
        inside.append(find_backends())
        if fails:
            raise RuntimeError("out of memory")
        return attend(*heads, **options)

    attend, before = nn.functional.scaled_dot_product_attention, find_backends()
    monkeypatch.setattr(nn.functional, "scaled_dot_product_attention", observe)
    with pytest.raises(RuntimeError) if fails else contextlib.nullcontext():
        assert failed(make_batch()) == set()
    assert before == {"cudnn": True, "flash": True, "mem_efficient": True, "math": True}
    assert inside == [before | {"cudnn": False}] * len(inside)
    assert inside
    assert find_backends() == before


def find_backends() -> dict[str, bool]:
    names = ("cudnn", "flash", "mem_efficient", "math")
    return {name: getattr(torch.backends.cuda, f"{name}_sdp_enabled")() for name in names}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_without_cudnn_attention_on_a_cpu_is_the_same(dtype: torch.dtype) -> None:
    heads = [torch.randn(1, 2, 700, 16, dtype=dtype) for _ in range(3)]
    usual = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
    with sdpa_kernel(BACKENDS):
        pinned = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
    assert torch.equal(pinned, usual)


# What is wrong is caught


def without_borders(cu_seqlens: torch.Tensor, num_tokens: int) -> torch.Tensor:
    return mask_of(cu_seqlens[[0, -1]], num_tokens)


def one_later(cu_seqlens: torch.Tensor, num_tokens: int) -> torch.Tensor:
    return mask_of(cu_seqlens + 1, num_tokens)


def one_earlier(cu_seqlens: torch.Tensor, num_tokens: int) -> torch.Tensor:
    return mask_of(cu_seqlens - 1, num_tokens)


def sees_next(cu_seqlens: torch.Tensor, num_tokens: int) -> torch.Tensor:
    mask = mask_of(cu_seqlens, num_tokens)
    return mask | mask.T & torch.ones_like(mask).tril(1)


def sees_all_of_its_sequence(cu_seqlens: torch.Tensor, num_tokens: int) -> torch.Tensor:
    mask = mask_of(cu_seqlens, num_tokens)
    return mask | mask.T


def forgets_its_first(cu_seqlens: torch.Tensor, num_tokens: int) -> torch.Tensor:
    mask = mask_of(cu_seqlens, num_tokens)
    mask[:, cu_seqlens[:-1].long()] = False
    return mask | torch.eye(num_tokens, dtype=torch.bool)


def loses_one_border(cu_seqlens: torch.Tensor, num_tokens: int) -> torch.Tensor:
    return mask_of(torch.cat([cu_seqlens[:1], cu_seqlens[2:]]), num_tokens)


WRONG_MASKS = [
    without_borders,
    one_later,
    one_earlier,
    sees_next,
    sees_all_of_its_sequence,
    forgets_its_first,
    loses_one_border,
]


@pytest.mark.parametrize("make_mask", WRONG_MASKS)
@pytest.mark.parametrize("dtype", DTYPES[:2], ids=str)
@pytest.mark.parametrize("lengths", [LENGTHS, [2, 2], [300, 400]], ids=str)
def test_wrong_masks_are_caught(make_mask: Any, dtype: torch.dtype, lengths: list[int]) -> None:
    for seed in range(3):
        batch = make_batch(lengths, seed=seed + 5)
        found = compare(batch, make_mask=make_mask, dtype=dtype, seed=seed, max_tokens=2000)
        assert found[OUTPUTS].failed
        assert found[OUTPUTS].error > 1e-2  # a thousand times the limit
        assert not found["alone attention outputs"].failed


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_mask_without_borders_is_caught_by_the_changed_sequence(dtype: torch.dtype) -> None:
    batch = make_batch()
    found = [
        compare(batch, make_mask=without_borders, seed=seed, dtype=dtype)[BESIDE]
        for seed in range(20)
    ]
    assert all(comparison.failed for comparison in found)
    # the first after the changed one, which is never the last, as none is behind that
    assert {comparison.row for comparison in found} == {1, 2, 3, 4}


def test_positions_that_run_on_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        VarlenBatch, "position_ids", property(lambda batch: np.arange(len(batch.data)))
    )
    found = compare(make_batch())
    assert {name for name, comparison in found.items() if comparison.failed} == {
        "position_ids",
        OUTPUTS,
    }
    assert found["position_ids"].row == 4
    assert str(found["position_ids"]) == "position_ids: error 14, limit 0"
    assert failed(make_batch([15])) == set()  # one sequence is one anyway


@pytest.mark.parametrize("shift", [1, -1])
def test_cu_seqlens_shifted_by_one_are_caught(monkeypatch: pytest.MonkeyPatch, shift: int) -> None:
    shifted = property(lambda batch: to_offsets(batch.lengths).astype(np.int32) + np.int32(shift))
    monkeypatch.setattr(VarlenBatch, "cu_seqlens", shifted)
    assert failed(make_batch()) >= {"cu_seqlens", OUTPUTS}


@pytest.mark.parametrize(("entry", "row"), [(0, 0), (2, 2), (4, 4), (5, 4)])
def test_one_wrong_entry_of_cu_seqlens_names_its_sequence(
    monkeypatch: pytest.MonkeyPatch, entry: int, row: int
) -> None:
    wrong = make_batch().cu_seqlens
    wrong[entry] += 2
    monkeypatch.setattr(VarlenBatch, "cu_seqlens", wrong)
    found = {comparison.quantity: comparison for comparison in check_borders(make_batch())}
    assert (found["cu_seqlens"].error, found["cu_seqlens"].row) == (2, row)
    assert not found["position_ids"].failed


@pytest.mark.parametrize(("entry", "row"), [(0, 0), (3, 0), (4, 1), (5, 2), (13, 3), (14, 4)])
def test_one_wrong_position_names_its_sequence(
    monkeypatch: pytest.MonkeyPatch, entry: int, row: int
) -> None:
    wrong = make_batch().position_ids
    wrong[entry] -= 1
    monkeypatch.setattr(VarlenBatch, "position_ids", wrong)
    found = {comparison.quantity: comparison for comparison in check_borders(make_batch())}
    assert (found["position_ids"].error, found["position_ids"].row) == (1, row)
    assert OUTPUTS in failed(make_batch())


@pytest.mark.parametrize("name", ["cu_seqlens", "position_ids"])
@pytest.mark.parametrize("change", ["longer", "shorter", "dtype"])
def test_arrays_of_another_shape_end_the_check(
    monkeypatch: pytest.MonkeyPatch, name: str, change: str
) -> None:
    right = getattr(make_batch(), name)
    wrong = {"longer": np.append(right, right[-1:]), "shorter": right[:-1], "dtype": right * 1.0}
    monkeypatch.setattr(VarlenBatch, name, wrong[change])
    found = compare(make_batch())
    assert set(found) == {"cu_seqlens", "position_ids"}
    assert found[name].failed
    assert found[name].error == math.inf


def change_outputs(monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    def changed(*arguments: Any) -> torch.Tensor:
        outputs: torch.Tensor = change(run_row(*arguments))
        return outputs

    monkeypatch.setattr(attention, "run_row", changed)


@pytest.mark.parametrize("calls", [[1], [2], [2, 3], [2, 4, 6, 8], range(1, 99, 2)], ids=str)
def test_noise_now_and_then_is_not_a_leak(
    monkeypatch: pytest.MonkeyPatch, calls: Container[int]
) -> None:
    numbers = itertools.count(1)
    change_outputs(monkeypatch, lambda outputs: outputs + 1e-13 * (next(numbers) in calls))
    found = compare(make_batch())
    assert found[BESIDE].error > 0
    assert not any(comparison.failed for comparison in found.values())


def test_large_leak_is_found_though_it_does_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = itertools.count(1)
    change_outputs(monkeypatch, lambda outputs: outputs + 1e-3 * (next(numbers) == 2))
    assert failed(make_batch()) == {BESIDE}


def test_a_leak_smaller_than_rounding_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    change_outputs(monkeypatch, lambda outputs: outputs + 1e-13 * outputs.sum().sin())
    assert failed(make_batch()) == {BESIDE}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_nan_is_found_where_it_is_and_is_not_a_leak(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    def change(outputs: torch.Tensor) -> torch.Tensor:
        outputs[5, 3] = math.nan
        return outputs

    change_outputs(monkeypatch, change)
    assert failed(make_batch(), dtype=dtype) == {OUTPUTS}


@pytest.mark.parametrize("value", [1e-3, math.nan, math.inf])
@pytest.mark.parametrize(("place", "row"), [(0, 0), (4, 1), (5, 2), (14, 4)])
def test_one_wrong_output_is_found_in_its_sequence(
    monkeypatch: pytest.MonkeyPatch, value: float, place: int, row: int
) -> None:
    def change(outputs: torch.Tensor) -> torch.Tensor:
        outputs[place, 3] += value
        return outputs

    change_outputs(monkeypatch, change)
    found = compare(make_batch(), dtype=torch.float32)[OUTPUTS]
    assert found.failed
    assert found.row == row


def test_a_sequence_that_moves_another_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    # below all limits, but no longer bit for bit
    change_outputs(monkeypatch, lambda outputs: outputs + 1e-14 * outputs.sum(dim=0))
    assert failed(make_batch()) == {BESIDE}


def test_outputs_that_never_move_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    change_outputs(monkeypatch, torch.zeros_like)
    assert failed(make_batch()) == {OUTPUTS, NOTHING}
    change_outputs(monkeypatch, lambda outputs: outputs.flip(0))  # another sequence moves
    assert failed(make_batch([2, 2])) == {OUTPUTS, BESIDE, NOTHING}


def test_a_layer_that_computes_nothing_is_found() -> None:
    layer = make_layer()
    nn.init.zeros_(layer.projection.weight)  # its bias is left: outputs are that, throughout
    assert failed(make_batch(), layer=layer) == {CONSTANT, NOTHING}
    same = replace(make_batch([1, 1, 1]), data=np.array([7, 7, 7]))
    assert failed(same, layer=layer) == {NOTHING}  # all are one token at one position


def test_layers_tell_two_positions_of_one_token_apart() -> None:
    for seed in range(100):
        batch = replace(make_batch([2]), data=np.array([0, 0]))
        assert failed(batch, seed=seed, num_embeddings=1) == set()


def test_errors_of_16_bit_are_reported_and_no_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    change_outputs(monkeypatch, lambda outputs: outputs + 1)
    for dtype in DTYPES[2:]:
        found = compare(make_batch(), dtype=dtype)[OUTPUTS]
        assert found.error > found.limit
        assert not found.failed


def test_a_cut_row_names_sequences_by_their_number_in_the_row() -> None:
    batch = make_batch([30, 30, 3, 2, 30])
    assert failed(batch, max_tokens=6) == set()
    found = compare(batch, max_tokens=6, make_mask=without_borders)
    assert found[OUTPUTS].row == 3
    assert {found[BESIDE].row, None} <= {None, 3}
    nothing = compare(replace(batch, data=batch.data * 0), max_tokens=6, num_embeddings=1)
    assert not any(comparison.failed for comparison in nothing.values())


def test_a_window_of_beginnings_catches_a_mask_without_borders() -> None:
    batch = make_batch([500, 600, 700])
    assert failed(batch, max_tokens=50) == set()
    found = compare(batch, max_tokens=50, make_mask=without_borders)
    assert found[OUTPUTS].failed
    assert found[OUTPUTS].row == 1


# Several rows, filled up, and sequences that are rounded up

PADDED = {
    "rows": {"row_length": 16, "rows": [0, 0, 0, 1, 1]},
    "aligned": {"multiple": 4},
    "aligned rows": {"row_length": 16, "rows": [0, 0, 1, 1, 1], "multiple": 4},
    "an empty row": {"row_length": 16, "rows": [1, 1, 1, 2, 2]},
}
BESIDE_PADDING = "attention outputs beside changed padding"


def make_padded(
    lengths: list[int] = LENGTHS,
    *,
    rows: list[int] | None = None,
    row_length: int | None = None,
    multiple: int = 1,
) -> VarlenBatch:
    """Lay sequences out one after another, beside padding of another id."""
    batch, cells, starts = make_batch(lengths), [], []
    for number, row in enumerate(batch.rows()):
        if rows is not None and row_length is not None:
            cells += [11] * (rows[number] * row_length - len(cells))
        starts.append(len(cells))
        cells += [*row.tolist(), *[11] * (-len(row) % multiple)]
    if rows is not None and row_length is not None:
        cells += [11] * (-len(cells) % row_length)
    padded = replace(batch, data=np.array(cells, np.uint16), multiple=multiple)
    padded = replace(
        padded,
        row_length=row_length,
        row_indices=None if rows is None else np.array(rows),
    )
    assert padded.starts.tolist() == starts
    return padded


@pytest.mark.parametrize("kind", PADDED)
def test_padded_rows_are_their_sequences(kind: str) -> None:
    found = compare(make_padded(**PADDED[kind]))
    assert {name for name, comparison in found.items() if comparison.failed} == set()
    assert {"cu_seqlens_padded", BESIDE_PADDING} < set(found)


@pytest.mark.parametrize("kind", PADDED)
@pytest.mark.parametrize("make_mask", [without_borders, one_later, one_earlier, sees_next])
def test_wrong_masks_over_padding_are_caught(kind: str, make_mask: Any) -> None:
    assert OUTPUTS in failed(make_padded(**PADDED[kind]), make_mask=make_mask)


@pytest.mark.parametrize("kind", PADDED)
def test_padding_that_leaks_is_caught(kind: str) -> None:
    def sees_padding_before(borders: torch.Tensor, num_cells: int) -> torch.Tensor:
        mask = mask_of(borders, num_cells)
        starts, ends = borders[:-1:2].long(), borders[1::2].long()
        for end, start in zip(ends[:-1], starts[1:], strict=True):
            mask[start:, end:start] = True
        return mask

    found = failed(make_padded(**PADDED[kind]), make_mask=sees_padding_before)
    assert found >= {OUTPUTS, BESIDE_PADDING}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", PADDED)
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_padding_whose_outputs_are_not_finite_is_caught(
    monkeypatch: pytest.MonkeyPatch, value: float, kind: str, dtype: torch.dtype
) -> None:
    batch = make_padded(**PADDED[kind])
    is_padding = torch.ones(len(batch.data), dtype=torch.bool)
    is_padding[attention._put_on(CPU, batch).cells] = False

    def change(outputs: torch.Tensor) -> torch.Tensor:
        return outputs.masked_fill(is_padding[:, None], value)

    change_outputs(monkeypatch, change)
    found = compare(batch, dtype=dtype)
    assert {str(each) for each in found.values() if each.failed} == {
        "attention outputs of padding are not finite"
    }


@pytest.mark.parametrize("name", ["cu_seqlens_padded", "position_ids"])
def test_wrong_arrays_of_padded_rows_are_caught(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    batch = make_padded(**PADDED["aligned rows"])
    wrong = getattr(batch, name).copy()
    wrong.reshape(-1)[-1 if name == "position_ids" else 2] += 1
    monkeypatch.setattr(VarlenBatch, name, wrong)
    found = {comparison.quantity: comparison for comparison in check_borders(batch)}
    assert found[name].error == 1
    assert found[name].row == (4 if name == "position_ids" else 2)
    monkeypatch.setattr(VarlenBatch, name, None)
    assert failed(batch) == {name}
