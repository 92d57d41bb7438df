"""The four ways to run a model, beside torch's own module over the whole batch."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from models import make_model
from torch.nn.utils.rnn import pack_sequence, unpack_sequence

from seqpack_cli.shards import packed, padded
from seqpack_cli.verification.models.batch_ids import BatchIds, SizeLimits, take_ids
from seqpack_cli.verification.models.model import CELLS
from seqpack_cli.verification.models.recurrence import walk_batch_sizes, walk_batch_sizes_reversed
from seqpack_cli.verification.models.ways import run_alone, run_loop, run_packed, run_padded

LENGTHS = [6, 4, 4, 1]
WAYS = [run_alone, run_packed, run_padded, run_loop]


def make_rows(lengths: list[int]) -> list[np.ndarray]:
    draws = np.random.default_rng(1)
    return [draws.integers(0, 9, length) for length in lengths]


def make_ids(lengths: list[int] = LENGTHS, width: int | None = None) -> BatchIds:
    rows = make_rows(lengths)
    batch = (
        packed.pack_sequence(rows)
        if width is None
        else padded.pad_sequence(rows, total_length=width)
    )
    return take_ids(batch, torch.device("cpu"), SizeLimits(max_tokens=1000, max_steps=100))


build = partial(make_model, num_embeddings=10, hidden_size=8, seed=1)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("num_layers", [1, 2, 3])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_way_gives_what_torch_gives(
    cell: str, num_layers: int, bidirectional: bool, way: Any
) -> None:
    model = build(cell, num_layers=num_layers, bidirectional=bidirectional)
    embedded = [model.embedding(torch.from_numpy(row)) for row in make_rows(LENGTHS)]
    with torch.no_grad():
        wanted, hidden = model.recurrent(pack_sequence(embedded))
        for width in (None, 6, 9):
            run = way(model, make_ids(width=width))
            assert torch.allclose(
                run.outputs, torch.cat(unpack_sequence(wanted)), rtol=0, atol=1e-14
            )
            states = hidden if isinstance(hidden, tuple) else (hidden,)
            for found, state in zip(run.states, states, strict=True):
                by_row = torch.stack([state[:, row].flatten() for row in range(len(LENGTHS))])
                assert torch.allclose(found, by_row, rtol=0, atol=1e-14)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_inputs_come_row_after_row_and_get_gradients(way: Any, bidirectional: bool) -> None:
    model, ids = build(bidirectional=bidirectional, num_layers=2), make_ids(width=8)
    run = way(model, ids)
    wanted = model.embedding(torch.from_numpy(np.concatenate(make_rows(LENGTHS))))
    assert torch.equal(run.to_rows(run.inputs), wanted)
    run.outputs.sum().backward()
    assert run.inputs.grad is not None
    assert run.to_rows(run.inputs.grad).abs().amin(dim=1).min() > 0
    assert all(value.grad is not None for value in model.parameters().values())


def test_padded_way_never_reads_padding() -> None:
    for bidirectional in (False, True):
        model, ids = build(bidirectional=bidirectional, num_layers=2), make_ids(width=9)
        with torch.no_grad():
            before = run_padded(model, ids)
            ids.rectangle[~ids.mask] = 7
            after = run_padded(model, ids)
        assert torch.equal(before.outputs, after.outputs)
        assert all(map(torch.equal, before.states, after.states))


def test_padded_way_draws_nothing_and_leaves_the_weights_where_they_are() -> None:
    model = build(bidirectional=True, num_layers=2)
    random_state = torch.random.get_rng_state()
    places = [value.data_ptr() for value in model.parameters().values()]
    run_padded(model, make_ids()).outputs.sum().backward()
    assert torch.equal(torch.random.get_rng_state(), random_state)
    assert [value.data_ptr() for value in model.parameters().values()] == places


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("cell", CELLS)
def test_16_bit_runs_in_every_way(cell: str, dtype: torch.dtype) -> None:
    model = build(cell, dtype, bidirectional=True, num_layers=2)
    for way in WAYS:
        run = way(model, make_ids())
        assert run.outputs.dtype == dtype
        run.outputs.sum().backward()


def test_loop_takes_the_walk_it_is_given() -> None:
    calls = []

    def noting(name: str, walk: Any, *arguments: Any) -> Any:
        calls.append(name)
        return walk(*arguments)

    model, ids = build(bidirectional=True, num_layers=2), make_ids()
    found = run_loop(
        model,
        ids,
        walk=partial(noting, "forwards", walk_batch_sizes),
        walk_reversed=partial(noting, "backwards", walk_batch_sizes_reversed),
    )
    assert calls == ["forwards", "backwards"] * 2
    assert torch.equal(found.outputs, run_loop(model, ids).outputs)
