"""docs/interop.md is true: its blocks run, with the trainers that are installed, and are right."""

from __future__ import annotations

import math
import re
import sys
import types
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pages import ROOT, find_blocks, run_page
from safetensors.numpy import load_file
from torch.nn.functional import cross_entropy

from seqpack_cli import export, open_shards, open_store

PAGE = (ROOT / "docs" / "interop.md").read_text()
INTRODUCTION, *REST = re.split(r"^## ", PAGE, flags=re.MULTILINE)
SECTIONS = {text.partition("\n")[0].partition(":")[0]: text for text in REST}
PINNED = pytest.mark.filterwarnings(
    "ignore:'pin_memory' argument is set as true but no accelerator"
)
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with what the introduction makes."""
    pytest.importorskip("pyarrow")
    found = tmp_path_factory.mktemp("interop")
    for name in ("sample_data", "examples"):
        (found / name).symlink_to(ROOT / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(found)
        patch.setenv("COLUMNS", "80")
        run_page(INTRODUCTION)
    return found


@pytest.fixture
def work(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "80")
    return folder


@pytest.fixture
def model(work: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the small model in the folder "model", with weights so large that leaks are seen."""
    datasets, transformers = map(pytest.importorskip, ("datasets", "transformers"))
    pytest.importorskip("accelerate")
    datasets.disable_progress_bars()
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", work / "cache")
    torch.manual_seed(0)
    run_page(INTRODUCTION, "py")
    found = transformers.AutoModelForCausalLM.from_pretrained("model").eval()
    for weights in found.parameters():
        torch.nn.init.normal_(weights, std=0.3)
    found.save_pretrained("model")
    return found


def run_section(name: str) -> dict[str, Any]:
    """Run the blocks of a section in order; return what they define."""
    return run_page(SECTIONS[name], "console", "python", "py")


def compute_loss(model: Any) -> float:
    """Return the mean loss of the targets of tokens-chat, each sequence computed alone."""
    store = open_store("tokens-chat")
    offsets = np.cumsum([len(ids) for ids in store])
    targets = np.split(
        load_file(store.path / "part-00000.columns.safetensors")["column.targets"], offsets[:-1]
    )
    losses = list[float]()
    for ids, bits in zip(store, targets, strict=True):
        row = torch.from_numpy(ids.astype(np.int64))
        with torch.no_grad():
            logits = model(input_ids=row[None]).logits[0]
        each = cross_entropy(logits[:-1], row[1:], reduction="none")
        losses += each[torch.from_numpy(bits[1:] == 1)].tolist()
    return math.fsum(losses) / len(losses)


def find_losses(trainer: Any) -> list[float]:
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


@pytest.mark.filterwarnings("ignore:`gradient_checkpointing` is deprecated:FutureWarning")
def test_trl_computes_each_sequence_of_a_row_alone(model: Any) -> None:
    pytest.importorskip("trl")
    trainer = run_section("TRL")["trainer"]
    assert find_losses(trainer)[0] == pytest.approx(compute_loss(model), rel=1e-5)


@PINNED
def test_trainer_of_transformers_finds_the_sequences_of_a_row(model: Any) -> None:
    """By their positions, as the section about TRL says."""
    transformers = pytest.importorskip("transformers")
    export("shards-chat", "rows")
    rows = pytest.importorskip("datasets").load_dataset("parquet", data_dir="rows", split="train")
    sizes = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": len(rows)}
    arguments = transformers.TrainingArguments("run", max_steps=1, logging_steps=1, **sizes)
    trainer = transformers.Trainer(
        model,
        arguments,
        train_dataset=rows,
        data_collator=transformers.default_data_collator,
    )
    loss = compute_loss(model)
    trainer.train()
    assert find_losses(trainer) == [pytest.approx(loss, rel=1e-5)]


@PINNED
def test_trainer_computes_the_mean_loss_of_the_targets(model: Any) -> None:
    trainer = run_section("Hugging Face datasets")["trainer"]
    assert find_losses(trainer)[0] == pytest.approx(compute_loss(model), rel=1e-5)


@pytest.mark.filterwarnings("ignore")  # of the reader's imports
def test_part_reads_back_with_megatron_core(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With Megatron's own reader, but not the rest of its package, which takes 7 s to import."""
    folder = next(iter(pytest.importorskip("megatron").__path__))
    for name in ("core", "core.datasets", "core.utils"):
        module = types.ModuleType(f"megatron.{name}")
        module.__path__ = [f"{folder}/{name.replace('.', '/')}"]
        module.log_single_rank = print  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)
    ((_, block),) = find_blocks(SECTIONS["Megatron-LM"], "py")
    before = set(sys.modules)
    try:
        exec(block, {})  # noqa: S102
    finally:
        for name in set(sys.modules) - before:
            if name.startswith("megatron."):
                del sys.modules[name]


@pytest.mark.parametrize("name", ["Megatron-LM", "nanoGPT"])
def test_blocks_that_need_no_trainer_do_what_they_show(name: str, work: Path) -> None:
    run_page(SECTIONS[name])


def test_rows_of_megatron_bridge_are_those_of_the_shards(work: Path) -> None:
    """Its loader takes ids[:-1] of each sequence as input, ids[1:] as labels, and mask[:-1]."""
    from pyarrow import parquet

    run_page(SECTIONS["Megatron-Bridge"])
    rows = parquet.read_table("training.idx.parquet").to_pylist()
    for row, batch in zip(rows, open_shards("shards-chat"), strict=True):
        ids, targets = row["input_ids"], batch.columns["targets"]
        assert ids == batch.data.tolist()
        for start, end in pairwise([*row["seq_start_id"], len(ids)]):
            assert row["loss_mask"][start : end - 1] == targets[start + 1 : end].tolist()
        assert row["seq_start_id"] == batch.cu_seqlens[:-1].tolist()
