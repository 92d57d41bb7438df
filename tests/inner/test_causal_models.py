"""Models of transformers take batches as docs/training.md says, and what it warns of happens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from command import run
from pages import ROOT, find_blocks
from torch.nn.functional import cross_entropy

from seqpack_cli import ShardDataset, TokenSequence, collate_padded, collate_varlen

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.usefixtures("one_thread")

LENGTHS = [5, 1, 7, 3, 1, 9]
TARGET_STARTS = [2, 0, 4, 0, 0, 8]
SIZES = {"vocab_size": 20, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
LLAMA = {"num_key_value_heads": 2, "intermediate_size": 32}


def make_sequences() -> list[TokenSequence]:
    torch.manual_seed(0)
    sequences = []
    for number, (length, start) in enumerate(zip(LENGTHS, TARGET_STARTS, strict=True)):
        targets = (torch.arange(length) >= start).long()
        ids = torch.randint(1, 20, (length,))
        sequences.append(TokenSequence(ids, number, {"targets": targets}))
    return sequences


def make_model(name: str, attention: str) -> Any:
    """Return a small model with large random weights, so that what leaks is seen."""
    torch.manual_seed(1)
    sizes = {**SIZES, "bos_token_id": 0, "eos_token_id": 0, "attn_implementation": attention}
    if name == "gpt2":
        config = transformers.GPT2Config(**sizes)
    else:
        config = transformers.LlamaConfig(**sizes, **LLAMA)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    for weights in model.parameters():
        torch.nn.init.normal_(weights, std=0.3)
    return model


def run_blocks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run the blocks of the page with shards of the same names; return what they define."""
    monkeypatch.chdir(folder)
    records = [{"prompt": "a" * n, "text": "bc" * (n + 1)} for n in range(12)]
    Path("qa.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    fields = ["--prompt-field", "prompt", "--completion-field", "text", "-q"]
    assert run("tokenize", "qa.jsonl", *fields, "-o", "prompts").exit_code == 0
    for name, *layout in [
        ("shards-prompts", "varlen", "--max-tokens", "64"),
        ("shards-prompts-padded", "padded", "--batch-size", "4"),
    ]:
        assert run("pack", "prompts", "--layout", *layout, "-o", name, "-q").exit_code == 0
    defined: dict[str, Any] = {}
    for _, block in find_blocks((ROOT / "docs" / "training.md").read_text(), "py"):
        exec(block, defined)  # noqa: S102
    return defined


def test_blocks_of_the_page_run_and_trainer_takes_their_inputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("accelerate")
    defined = run_blocks(tmp_path, monkeypatch)
    to_inputs, model = defined["to_inputs"], defined["model"]
    arguments = transformers.TrainingArguments(
        str(tmp_path), per_device_train_batch_size=1, max_steps=6, logging_steps=3, report_to=[],
        use_cpu=True, save_strategy="no", disable_tqdm=True, learning_rate=1e-2,
    )  # fmt: skip
    for name in ("shards-prompts", "shards-prompts-padded"):
        trainer = transformers.Trainer(
            model,
            arguments,
            train_dataset=ShardDataset(name, labels="same"),
            data_collator=lambda batches: to_inputs(batches[0]),
        )
        trainer.train()
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        assert losses[1] < losses[0]


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_each_sequence_of_a_batch_is_computed_as_alone(
    name: str, attention: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to_inputs = run_blocks(tmp_path, monkeypatch)["to_inputs"]
    model, sequences = make_model(name, attention), make_sequences()
    alone = torch.cat([model(input_ids=each.ids[None]).logits[0] for each in sequences])
    row = collate_varlen(sequences, labels="same")
    loss = cross_entropy(alone, collate_varlen(sequences, labels="next").labels)

    def is_alone(logits: torch.Tensor) -> bool:
        return torch.allclose(logits, alone, rtol=0, atol=1e-4)

    for side in ("right", "left"):
        batch = collate_padded(sequences, pad_id=0, padding_side=side, labels="same", sort=False)
        found = model(**to_inputs(batch))
        assert is_alone(found.logits[batch.mask])
        torch.testing.assert_close(found.loss, loss)
        plain = model(input_ids=batch.ids, attention_mask=batch.mask, labels=batch.labels)
        if side == "right":
            torch.testing.assert_close(plain.loss, loss)
        assert is_alone(plain.logits[batch.mask]) == (side == "right" or name == "llama")

    inputs = to_inputs(row)
    found = model(**inputs)
    assert is_alone(found.logits[0])
    torch.testing.assert_close(found.loss, loss)
    is_seen, added = row.attention_mask(), row.attention_mask(dtype=torch.float32)
    ids = {each: inputs[each] for each in ("input_ids", "position_ids")}
    ones = torch.ones_like(row.ids)[None]
    assert not is_alone(model(**ids).logits[0])
    assert not is_alone(model(**ids, use_cache=False, attention_mask=ones).logits[0])
    assert is_alone(model(**ids, attention_mask=added).logits[0])
    assert is_alone(model(**ids, attention_mask=is_seen).logits[0]) == (attention == "sdpa")


def test_batch_without_a_label_has_a_loss_of_zero(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to_inputs, model = run_blocks(tmp_path, monkeypatch)["to_inputs"], make_model("gpt2", "sdpa")
    for collate in (collate_varlen, lambda *args, **kw: collate_padded(*args, pad_id=0, **kw)):
        inputs = to_inputs(collate(make_sequences()[1:2], labels="same"))
        assert model(**inputs).loss.item() == 0
        del inputs["num_items_in_batch"]
        assert model(**inputs).loss.isnan()
