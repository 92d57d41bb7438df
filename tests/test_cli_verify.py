from __future__ import annotations

import json

import pytest
import torch
from command import run


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    folder = tmp_path_factory.mktemp("verify")
    (folder / "a.txt").write_text("".join("xyz"[:1] * length + "\n" for length in (3, 1, 9, 2, 5)))
    assert run("tokenize", folder / "a.txt", "-o", folder / "tokens").exit_code == 0
    assert run("pack", folder / "tokens", "-o", folder / "out", "--batch-size", 2).exit_code == 0
    return folder / "out"


def test_verify_reports_coverage_and_errors_beside_their_limits(shards):
    result = run("verify", shards)
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == f"{shards}: packed, 3 batches, 5 sequences, 20 tokens"
    assert lines[1] == "on cpu, lstm, float32, seed 0"
    assert [line.split()[:5] for line in lines[4:8]] == [
        [level, "ok", "3", "of", "3"] for level in ("structure", "roundtrip", "forward", "backward")
    ]
    assert " / " in lines[6]
    assert lines[-1] == "proven at these levels"


@pytest.mark.parametrize("level", ["structure", "roundtrip", "forward"])
def test_verify_stops_at_the_level_asked_for(shards, level):
    report = json.loads(run("verify", shards, "--level", level, "--json").stdout)
    assert report["levels"][-1]["level"] == level
    assert report["passed"]


def test_verify_samples_and_says_so(shards):
    report = json.loads(run("verify", shards, "--sample", 2, "--seed", 5, "--json").stdout)
    assert [level["num_batches"] for level in report["levels"]] == [3, 3, 2, 2]
    assert report["seed"] == 5


@pytest.mark.parametrize("cell", ["gru", "rnn"])
def test_verify_runs_other_cells(shards, cell):
    assert run("verify", shards, "--cell", cell, "--sample", "all").exit_code == 0


def test_verify_does_not_judge_16_bit(shards):
    result = run("verify", shards, "--dtype", "bfloat16")
    assert result.exit_code == 0
    assert "(not judged)" in result.stdout


def test_verify_ends_with_1_at_a_fault(shards, tmp_path):
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in shards.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    shard = copy / "shard-00000.safetensors"
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    result = run("verify", copy, "--tokens", shards.parent / "tokens", "-q")
    assert result.exit_code == 1
    assert "structure: shard-00000.safetensors: sha256 is not the manifest's" in result.stdout
    assert result.stdout.splitlines()[-1] == "1 fault"


def test_verify_without_the_store_is_refused(shards, tmp_path):
    copy = tmp_path / "copy"
    shards.rename(copy)
    try:
        result = run("verify", copy)
        assert result.exit_code == 4
        assert result.stderr == (
            f"Error: {copy}: its token store is no longer at ../tokens\n\n"
            "hint: pass --tokens STORE, or --level structure to go without it\n"
        )
        assert run("verify", copy, "--level", "structure").exit_code == 0
        assert run("verify", copy, "--tokens", shards.parent / "tokens").exit_code == 0
    finally:
        copy.rename(shards)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is here")
def test_verify_on_cuda_that_is_absent_is_an_error(shards):
    result = run("verify", shards, "--device", "cuda")
    assert result.exit_code == 5
    assert result.stderr.startswith("Error: --device cuda: no CUDA device")
    assert "hint: verify on the machine that trains, or pass --device cpu" in result.stderr


@pytest.mark.parametrize("device", ["gpu", "meta", "cuda:x"])
def test_verify_on_an_unknown_device_is_a_usage_error(shards, device):
    result = run("verify", shards, "--device", device)
    assert result.exit_code == 2
    assert f"--device {device}: expected cpu, cuda or cuda:N" in result.stderr


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_verify_passes_on_cuda(shards, dtype):
    result = run("verify", shards, "--device", "cuda", "--dtype", dtype, "--sample", "all")
    assert result.exit_code == 0, result.stdout + result.stderr
    assert torch.cuda.get_device_name() in result.stdout
