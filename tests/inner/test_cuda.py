"""What only a GPU can show: its kernels, its memory's end, ids sent ahead to it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from shard_reference import Arrays, change_shard, make_shards

from seqpack_cli.errors import MachineError
from seqpack_cli.shards.shared_rows import VarlenBatch
from seqpack_cli.verification import verify_run
from seqpack_cli.verification.device import Sender
from seqpack_cli.verification.models.attention import check_attention
from seqpack_cli.verification.models.attention_layer import build_layer
from seqpack_cli.verification.models.model import CELLS
from seqpack_cli.verification.options import DTYPES, LEVELS, VerifyOptions
from seqpack_cli.verification.report import Report

pytestmark = pytest.mark.cuda

DRAWS = np.random.default_rng(0)
RAGGED = [*DRAWS.geometric(0.02, 300).tolist(), *[40] * 100, 1, 2, 700]
LAYOUTS: dict[str, dict[str, Any]] = {
    "packed": {},
    "padded": {"layout": "padded"},
    "left": {"layout": "padded", "padding_side": "left", "last_batch": "pad"},
    "varlen": {"layout": "varlen", "batch_size": None, "max_tokens": 512},
}


def verify(path: Path, **options: Any) -> Report:
    return verify_run.verify(path, VerifyOptions(device="cuda", **options))


@pytest.fixture(scope="module", params=LAYOUTS)
def shards(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    return make_shards(folder, RAGGED, **{"batch_size": 16, **LAYOUTS[request.param]})


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cell", CELLS)
def test_good_shards_pass(shards: Path, cell: str, dtype: str) -> None:
    report = verify(shards, cell=cell, dtype=dtype, sample=4)
    assert report.findings == []
    assert [level.level for level in report.levels] == list(LEVELS)
    assert report.levels[2].num_batches == report.num_batches


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("num_layers", [1, 3])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_layers_and_directions_pass(
    shards: Path, cell: str, num_layers: int, bidirectional: bool
) -> None:
    report = verify(shards, cell=cell, num_layers=num_layers, bidirectional=bidirectional, sample=3)
    assert report.findings == []


@pytest.mark.parametrize(
    ("cell", "hidden_size"),
    # cuDNN has kernels for small sizes: for an LSTM up to 192 forward and 128 backward, for an RNN
    # up to 384 and 256
    [("lstm", 8), ("lstm", 160), ("lstm", 256), ("lstm", 512), ("gru", 160), ("rnn", 320)],
)
def test_other_sizes_pass(shards: Path, cell: str, hidden_size: int) -> None:
    assert verify(shards, cell=cell, hidden_size=hidden_size, sample=2).findings == []


def test_every_damage_is_caught(shards: Path) -> None:
    report = verify(shards, self_test=True, sample=2)
    assert report.findings == []
    assert {control.caught for control in report.controls} <= {True, None}
    assert sum(control.caught is True for control in report.controls) >= 6


def test_cut_batches_pass(shards: Path) -> None:
    report = verify(shards, max_batch_tokens=100, sample=None)
    assert report.findings == []
    assert report.levels[-1].num_cut_batches


def test_more_rows_than_one_call_takes_pass(tmp_path: Path) -> None:
    path = make_shards(tmp_path, [2] * 40_000 + [1] * 30_000, batch_size=70_000)
    report = verify(path, level="forward", every_batch=True, sample=1, max_batch_tokens=1 << 20)
    assert report.findings == []
    assert any("in groups, of at most 65,535" in note for note in report.notes)


def test_layouts_are_compared(shards: Path) -> None:
    speeds = verify(shards, compare=True, sample=2, level="forward").layout_speeds
    assert [speed.layout for speed in speeds] == ["packed", "padded", "dense"]
    assert all(speed.forward > 0 and speed.training > 0 for speed in speeds)


@pytest.mark.parametrize("dtype", [getattr(torch, name) for name in DTYPES], ids=str)
def test_attention_does_not_leak(dtype: torch.dtype) -> None:
    for lengths in ([4, 1, 9], [1], [700, 1, 300, 1000], [64] * 30):
        batch = VarlenBatch(DRAWS.integers(0, 12, sum(lengths)), np.array(lengths))
        device = torch.device("cuda")
        layer = build_layer(num_embeddings=12, device=device, dtype=dtype, seed=0)
        generator = torch.Generator().manual_seed(0)
        found = check_attention(batch, layer, max_tokens=8192, generator=generator)
        assert [str(comparison) for comparison in found if comparison.failed] == []


@pytest.mark.parametrize("dtype", ["uint16", "int32"])
def test_ids_arrive_as_they_were(dtype: str) -> None:
    sender = Sender(torch.device("cuda"))
    arrays = [DRAWS.integers(0, 65_536, size).astype(dtype) for size in (1, 1000, 3_000_000)]
    sent = [sender.send(array) for array in arrays for _ in range(20)]
    for number, one in enumerate(sent):
        ids = one.receive(torch.int64)
        assert ids.is_cuda
        assert np.array_equal(ids.cpu().numpy(), arrays[number // 20])


@pytest.fixture
def shards_and_little_memory(tmp_path: Path) -> Iterator[Path]:
    """Leave this process 160 MiB of the GPU's memory more than it has once it is warm."""
    path = make_shards(tmp_path, [3000] * 64, batch_size=64)
    verify_part(path)  # cuBLAS takes its workspaces from torch's memory, and keeps them
    total = torch.cuda.get_device_properties(0).total_memory
    free_memory()
    torch.cuda.set_per_process_memory_fraction(
        min(1.0, (torch.cuda.memory_reserved() + (160 << 20)) / total)
    )
    yield path
    torch.cuda.set_per_process_memory_fraction(1.0)


def verify_part(path: Path) -> Report:
    return verify(path, hidden_size=64, max_batch_tokens=1024, sample=1)


def free_memory() -> None:
    gc.collect()
    torch.cuda.empty_cache()


def test_memory_that_is_not_enough_names_the_batch(shards_and_little_memory: Path) -> None:
    with pytest.raises(MachineError) as caught:
        verify(shards_and_little_memory, hidden_size=512, max_batch_tokens=1 << 20)
    error = caught.value
    assert error.exit_code == 5
    assert "shard-00000.safetensors: batch 0: " in error.message
    assert "--max-batch-tokens" in str(error.hint)
    del caught, error  # and the frames of the traceback, which hold tensors
    free_memory()
    assert verify_part(shards_and_little_memory).passed


def test_flipped_id_is_found(tmp_path: Path) -> None:
    path = make_shards(tmp_path)

    def flip(arrays: Arrays) -> None:
        arrays["data"][4] += 1

    change_shard(path, flip)
    assert [finding.level for finding in verify(path).findings] == ["roundtrip"]
