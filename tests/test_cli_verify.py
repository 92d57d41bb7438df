"""`seqpack verify` as a user types it: what it reports, refuses and ends with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from command import run
from oracle.forger import Arrays, change_shard


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("verify")
    (folder / "a.txt").write_text("".join("xyz"[:1] * length + "\n" for length in (3, 1, 9, 2, 5)))
    assert run("tokenize", folder / "a.txt", "-o", folder / "tokens").exit_code == 0
    assert run("pack", folder / "tokens", "-o", folder / "out", "--batch-size", 2).exit_code == 0
    return folder / "out"


def test_verify_reports_coverage_and_errors_beside_their_limits(shards: Path) -> None:
    result = run("verify", shards)
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == f"{shards}: packed, 3 batches, 5 sequences, 20 tokens"
    assert lines[1] == "on cpu, lstm, float32, seed 0"
    assert [line.split()[:5] for line in lines[4:8]] == [
        [level, "ok", "3", "of", "3"] for level in ("structure", "roundtrip", "forward", "backward")
    ]
    assert " / " in lines[6]
    assert lines[-1] == "all levels passed"


@pytest.mark.parametrize("level", ["structure", "roundtrip", "forward", "backward"])
def test_verify_stops_at_the_level_asked_for(shards: Path, level: str) -> None:
    report = json.loads(run("verify", shards, "--level", level, "--json").stdout)
    assert report["levels"][-1]["level"] == level
    assert report["passed"]


def test_verify_samples_and_says_so(shards: Path) -> None:
    report = json.loads(run("verify", shards, "--sample", 2, "--seed", 5, "--json").stdout)
    assert [level["num_batches"] for level in report["levels"]] == [3, 3, 2, 2]
    assert report["seed"] == 5


@pytest.mark.parametrize("cell", ["gru", "rnn"])
def test_verify_runs_other_cells(shards: Path, cell: str) -> None:
    assert run("verify", shards, "--cell", cell, "--sample", "all").exit_code == 0


def test_verify_does_not_judge_16_bit(shards: Path) -> None:
    result = run("verify", shards, "--dtype", "bfloat16")
    assert result.exit_code == 0
    assert "(not judged)" in result.stdout


def test_verify_ends_with_1_at_a_fault(shards: Path, tmp_path: Path) -> None:
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
    assert "structure: shard-00000.safetensors: blake3 differs from the manifest's" in result.stdout
    assert result.stdout.splitlines()[-1] == "1 fault"


def test_verify_without_the_store_is_refused(shards: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shards.rename(copy)
    try:
        result = run("verify", copy)
        assert result.exit_code == 4
        assert result.stderr == (
            f"Error: {copy}: its token store is not at ../tokens\n\n"
            "hint: pass --tokens STORE, or --level structure, which needs no store\n"
        )
        assert run("verify", copy, "--level", "structure").exit_code == 0
        assert run("verify", copy, "--tokens", shards.parent / "tokens").exit_code == 0
    finally:
        copy.rename(shards)


def test_verify_finds_each_of_several_stores(tmp_path: Path) -> None:
    """They may be named in any order; the others are where they were."""
    for name in "abcd":
        (tmp_path / f"{name}.txt").write_text(f"{name}\nof {name}\n")
        assert run("tokenize", tmp_path / f"{name}.txt", "-o", tmp_path / name).exit_code == 0
    a, b, c, d = (tmp_path / name for name in "abcd")
    verify = ("verify", tmp_path / "out", "--level", "roundtrip")
    assert run("pack", a, b, c, "-o", tmp_path / "out", "--store-column", "of").exit_code == 0
    moved = b.rename(tmp_path / "moved")
    result = run(*verify)
    assert result.exit_code == 4
    assert f"{tmp_path}/out: its token store is not at ../b\n" in result.stderr
    assert run(*verify, "--tokens", moved).exit_code == 0
    assert run(*verify, "--tokens", moved, "--tokens", a).exit_code == 0
    result = run(*verify, "--tokens", d)
    assert f"{d}: not a token store that these shards were packed from" in result.stderr
    d.rename(b)
    result = run(*verify)
    assert result.exit_code == 4
    assert f"{b}: not a token store that these shards were packed from" in result.stderr


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is here")
def test_verify_on_cuda_that_is_absent_is_an_error(shards: Path) -> None:
    result = run("verify", shards, "--device", "cuda")
    assert result.exit_code == 5
    assert result.stderr.startswith("Error: --device cuda: no CUDA device")
    assert "hint: run verify on the machine that trains, or pass --device cpu" in result.stderr


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_verify_passes_on_cuda(shards: Path, dtype: str) -> None:
    result = run("verify", shards, "--device", "cuda", "--dtype", dtype, "--sample", "all")
    assert result.exit_code == 0, result.stdout + result.stderr
    assert torch.cuda.get_device_name() in result.stdout


OPTIONS = {
    "varlen": "--layout varlen --max-tokens 4",
    "left": "--layout padded --padding-side left --batch-size 2 --last-batch pad",
    "buckets": "--layout padded --buckets 2,4,12 --batch-size 2 --shuffle",
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_verify_proves_what_the_options_of_pack_make(
    shards: Path, tmp_path: Path, options: str
) -> None:
    tokens = shards.parent / "tokens"
    assert run("pack", tokens, "-o", tmp_path / "out", *options.split()).exit_code == 0
    result = run("verify", tmp_path / "out", "--sample", 1)
    assert result.exit_code == 0, result.stdout
    lines = result.stdout.splitlines()
    assert lines[0].endswith("5 sequences, 20 tokens")
    assert [line.split()[:2] for line in lines[4:8]] == [
        [level, "ok"] for level in ("structure", "roundtrip", "forward", "backward")
    ]


def test_stream_of_a_round_may_begin_with_the_rest_of_what_ended_before(tmp_path: Path) -> None:
    """Stream 11 ends with 3 tokens of a sequence and, in the next round, begins with the others."""
    text, tokens, out = tmp_path / "a.txt", tmp_path / "t", tmp_path / "out"
    text.write_text("".join(f"row {number % 10} {number}\n" for number in range(47)))
    assert run("tokenize", text, "-o", tokens).exit_code == 0
    options = ("--layout", "streams", "--max-tokens", 64, "--batch-size", 16, "--passes", "t=3.5")
    assert run("pack", tokens, "-o", out, *options).exit_code == 0
    result = run("verify", out, "--level", "structure")
    assert result.exit_code == 0, result.stdout


@pytest.mark.parametrize("seed", [2**63, 2**64 - 1])
def test_verify_takes_every_seed_of_64_bits(shards: Path, tmp_path: Path, seed: int) -> None:
    tokens, out = shards.parent / "tokens", tmp_path / "out"
    assert run("pack", tokens, "-o", out, *OPTIONS["varlen"].split()).exit_code == 0
    result = run("verify", out, "--sample", "all", "--self-test", "--seed", seed)
    assert result.exit_code == 0, result.stdout + result.stderr
    assert run("verify", out, "--seed", 2**64).exit_code == 2


def test_verify_names_the_row_of_varlen_with_a_fault(shards: Path, tmp_path: Path) -> None:
    tokens, out = shards.parent / "tokens", tmp_path / "out"
    options = ("--layout", "varlen", "--max-tokens", 8, "--fill", "sequential")
    assert run("pack", tokens, "-o", out, *options).exit_code == 0

    def flip(arrays: Arrays) -> None:
        arrays["data"][12 + 2] += 1  # 3, 1 | 8 of 9 | 1 of 9, 2, 5: the last of row 1 in batch 2

    change_shard(out, flip)
    result = run("verify", out)
    assert result.exit_code == 1
    place = "roundtrip: shard-00000.safetensors: batch 2: row 1: "
    assert f"{place}id 121 at step 1, the token store has 120" in result.stdout.splitlines()
    assert result.stdout.splitlines()[-1] == "1 fault"
