"""Speeds of layouts: tokens over the clock's seconds, padding never counted, bound by time."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from models import make_model
from shard_reference import lay_out
from torch.nn.utils.rnn import PackedSequence

from seqpack_cli.errors import MachineError
from seqpack_cli.shards.layouts import Batch
from seqpack_cli.verification.device import steady_arithmetic
from seqpack_cli.verification.models import layout_speed
from seqpack_cli.verification.models.layout_speed import MAX_CPU_WORK, MAX_ROUNDS, measure_layouts
from seqpack_cli.verification.models.model import CELLS, Model
from seqpack_cli.verification.report import LayoutSpeed

NUM_LAYOUTS = 3
BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "bench_verify.py"

Named = tuple[str, int, Batch]


class Ticks:
    """A clock that goes on by one second each time it is read."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> float:
        self.now += 1
        return self.now


pytestmark = pytest.mark.usefixtures("one_thread")


def make_batch(
    layout: str,
    lengths: list[int],
    *,
    index: int = 0,
    padding_side: str = "right",
    num_filler_rows: int = 0,
) -> Named:
    rows = [np.arange(n, dtype=np.uint16) % 50 for n in lengths]
    batch = lay_out(
        layout,
        rows,
        np.arange(len(rows)),
        padding_side=padding_side,
        num_filler_rows=num_filler_rows,
    )
    return "shard-00000.safetensors", index, batch


build = partial(make_model, dtype=torch.float32, num_embeddings=50, hidden_size=8)


def measure(batches: list[Named], *, seconds: float = 1e6) -> list[LayoutSpeed]:
    return measure_layouts(build(), batches, max_tokens=1000, seconds=seconds, clock=Ticks())


def check_speeds(speeds: list[LayoutSpeed]) -> None:
    assert [speed.layout for speed in speeds] == ["packed", "padded", "dense"]
    for speed in speeds:
        assert math.isfinite(speed.forward)
        assert math.isfinite(speed.training)
        assert speed.forward > 0
        assert speed.training > 0


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("layout", ["packed", "padded", "varlen"])
def test_speeds_are_positive_numbers(layout: str, cell: str) -> None:
    batches = [make_batch(layout, [9, 4, 1]), make_batch(layout, [7]), make_batch(layout, [3, 3])]
    model = build(cell=cell)
    check_speeds(measure_layouts(model, iter(batches), max_tokens=1000, seconds=0.1))


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("layout", ["packed", "padded", "varlen"])
def test_speeds_are_positive_numbers_on_cuda(layout: str, dtype: str) -> None:
    cuda = torch.device("cuda")
    batches = [make_batch(layout, [900, 400, 1]), make_batch(layout, [7])]
    model = build(dtype=getattr(torch, dtype), device=cuda)
    with steady_arithmetic(cuda, hidden_size=model.hidden_size):
        check_speeds(measure_layouts(model, batches, max_tokens=10_000, seconds=1))


@pytest.mark.parametrize(
    ("batch", "num_tokens", "num_dense_tokens"),
    [
        (make_batch("packed", [9, 4, 1]), 14, 12),
        (make_batch("padded", [9, 4, 1]), 14, 12),
        (make_batch("padded", [9, 4, 1], padding_side="left"), 14, 12),
        (make_batch("padded", [9, 4, 1], num_filler_rows=2), 14, 12),
        (make_batch("varlen", [4, 9, 1]), 14, 12),
        (make_batch("packed", [9]), 9, 9),
        (make_batch("padded", [1]), 1, 1),
        (make_batch("packed", [5, 5, 5]), 15, 15),
        (make_batch("packed", [2, 1, 1]), 4, 3),
    ],
)
def test_real_tokens_are_counted_and_no_padding(
    batch: Named, num_tokens: int, num_dense_tokens: int
) -> None:
    # the clock gives each way exactly one second
    assert measure([batch]) == [
        LayoutSpeed("packed", num_tokens, num_tokens),
        LayoutSpeed("padded", num_tokens, num_tokens),
        LayoutSpeed("dense", num_dense_tokens, num_dense_tokens),
    ]


def test_tokens_of_all_batches_are_divided_by_the_time_of_all() -> None:
    batches = [make_batch("packed", [9, 4, 1]), make_batch("packed", [2])]
    assert measure(batches)[0] == LayoutSpeed("packed", 16 / 2, 16 / 2)


def test_layouts_hold_the_same_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[list[list[int]], bool, bool, bool]] = []

    def look(model: Model, ids: PackedSequence | torch.Tensor, *, trains: bool) -> None:
        is_packed = isinstance(ids, PackedSequence)
        shown = [ids.data.tolist(), ids.batch_sizes.tolist()] if is_packed else ids.tolist()
        seen.append((shown, is_packed, trains, model.recurrent.training))

    monkeypatch.setattr(layout_speed, "_run", look)
    measure([make_batch("padded", [3, 2], padding_side="left")])
    ids = [[[0, 0, 1, 1, 2], [2, 2, 1]], [[0, 1, 2], [0, 1, 0]], [[0, 1], [2, 0]]]
    assert [shown for shown, *_ in seen[:6]] == [*ids, *ids]
    assert [shown for shown, *_ in seen[6:12]] == [*ids[::-1], *ids[::-1]]  # in turn
    assert len(seen) == 2 * NUM_LAYOUTS * MAX_ROUNDS
    assert all(is_packed == (len(shown[0]) == 5) for shown, is_packed, *_ in seen)
    # evaluation mode forward, training mode where backward follows
    assert [(trains, mode) for _, _, trains, mode in seen[2:4]] == [(False, False), (True, True)]


def test_training_runs_backward_and_forward_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    losses: list[float] = []
    backward = torch.autograd.backward

    def watch(loss: torch.Tensor) -> None:
        backward(loss)
        losses.append(float(model.embedding.get_parameter("weight").grad.abs().sum()))  # type: ignore[union-attr]

    model = build()
    monkeypatch.setattr(torch.autograd, "backward", watch)
    measure_layouts(model, [make_batch("packed", [4, 2])], max_tokens=99, clock=Ticks())
    assert len(losses) >= 2 * NUM_LAYOUTS
    assert min(losses) > 0
    assert all(parameter.grad is None for parameter in model.parameters().values())
    assert model.recurrent.training  # as it was


def test_time_bounds_batches_and_rounds() -> None:
    clock = Ticks()
    batches = [make_batch("packed", [2, 1], index=index) for index in range(100)]
    ticks_a_batch = 2 * 2 * NUM_LAYOUTS + 1  # before and after each way, and a look at the time
    speeds = measure_layouts(
        build(), batches, max_tokens=99, seconds=6 * ticks_a_batch, clock=clock
    )
    check_speeds(speeds)
    assert 4 * ticks_a_batch < clock.now < 9 * ticks_a_batch


def test_at_least_one_batch_is_measured_twice() -> None:
    clock = Ticks()
    batches = [make_batch("packed", [2, 1], index=index) for index in range(5)]
    check_speeds(measure_layouts(build(), batches, max_tokens=99, seconds=0, clock=clock))
    assert clock.now >= 2 * 2 * 2 * NUM_LAYOUTS


def test_no_batch_has_no_speed() -> None:
    assert measure([]) == []


def test_large_batches_are_cut() -> None:
    (packed, *_) = measure_layouts(
        build(), [make_batch("packed", [90, 40])], max_tokens=50, clock=Ticks()
    )
    assert packed.forward == 49  # 25 steps of two rows, one of which ends before the last
    long = make_batch("packed", [2048] * 4)
    (packed, *_) = measure_layouts(build(), [long], max_tokens=1 << 20, seconds=0, clock=Ticks())
    assert packed.forward**2 <= 4 * MAX_CPU_WORK  # tokens are 4 a step


def test_batch_too_large_for_the_memory_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **options: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(layout_speed, "_run", fail)
    with pytest.raises(MachineError) as caught:
        measure([make_batch("packed", [2, 1], index=7)])
    assert caught.value.message == "shard-00000.safetensors: batch 7: CUDA out of memory"


@pytest.mark.slow
def test_benchmark_runs_anywhere(tmp_path: Path) -> None:
    sizes = "--tokens 2000 --run-tokens 200 --mean-length 9 --vocab-size 99 --hidden-size 4"
    options = f"{sizes} --repeats 1 --sample 1 --dtype float32".split()
    result = subprocess.run(
        [sys.executable, str(BENCHMARK), "--device", "cpu", *options],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    figures = json.loads(result.stdout.splitlines()[-1])["figures"]
    assert list(figures) == ["integers", "run", "errors"]
    assert all(figure["best"] > 0 for figure in figures["integers"].values())
    assert figures["run"]["float32"]["run_times_bare"] > 0
    assert list(figures["errors"]) == ["float64", "float32", "bfloat16", "float16"]
    for levels in figures["errors"].values():
        assert list(levels) == ["forward", "backward"]
