"""`verify --model`: what a user's module, functions and model do to the program, and messages."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from command import run
from shard_reference import make_shards
from torch import nn

from seqpack_cli import ShardDataset, TokenSequence, collate_varlen, verify_model

pytestmark = pytest.mark.usefixtures("one_thread")

MODULE = """
import argparse, sys, torch
from torch import nn

argparse.ArgumentParser().parse_args()  # not of seqpack's arguments
torch.set_default_dtype(torch.float16)
torch.set_float32_matmul_precision("high")
print("imported")

class Model(nn.Module):
    def __init__(self, vocab_size):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, 4, dtype=torch.float32)

    def forward(self, ids, mask):
        print("called")
        torch.set_default_device("meta")
        return self.embedding(ids)

class Exits(Model):
    def forward(self, *_):
        sys.exit(0)

class Other(Model):
    def forward(self, ids):
        return self.embedding(ids)

def make(vocab_size, device, dtype):
    torch.use_deterministic_algorithms(True)
    return Model(vocab_size)

def make_exits(vocab_size, device, dtype):
    return Exits(vocab_size)

class Sparse(Model):
    def forward(self, ids, mask):
        return self.embedding(ids).to_sparse()

def make_sparse(vocab_size, device, dtype):
    return Sparse(vocab_size)

def make_other(vocab_size, device, dtype):
    return Other(vocab_size)

def exits(vocab_size, device, dtype):
    sys.exit(0)

def no_arguments():
    pass
"""


@pytest.fixture
def padded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "argv", ["seqpack", "verify", "--model"])
    for name in ("user_module", "script_module", "broken_module"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "user_module.py").write_text(MODULE)
    (tmp_path / "script_module.py").write_text("import sys\nsys.exit(0)\n")
    (tmp_path / "broken_module.py").write_text("x = = 1\n")
    return make_shards(tmp_path, layout="padded")


def test_what_user_code_prints_and_sets_changes_neither_the_report_nor_the_process(
    padded: Path,
) -> None:
    precision = torch.backends.cuda.matmul.allow_tf32
    result = run("verify", padded, "--model", "user_module:make", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["passed"]
    assert "imported\ncalled\n" in result.stderr
    assert torch.get_default_dtype() is torch.float32
    assert torch.get_default_device() == torch.device("cpu")
    assert torch.backends.cuda.matmul.allow_tf32 == precision
    assert not torch.are_deterministic_algorithms_enabled()


REFUSED = [
    (
        "script_module:make",
        5,
        "--model script_module:make: importing script_module called sys.exit(0)",
        'put what trains below `if __name__ == "__main__":`',
    ),
    (
        "user_module:exits",
        5,
        "--model user_module:exits: the function called sys.exit(0)",
        "let exits return the model",
    ),
    ("user_module:make_exits", 5, "batch 0: the model called sys.exit(0)", "in forward"),
    (
        "user_module:make_other",
        5,
        "batch 0: the model raised TypeError, called as model(batch.ids, batch.mask)",
        "hint: if it takes other arguments, pass --call MODULE:FUNCTION",
    ),
    (
        "user_module:make_sparse",
        5,
        "--model user_module:make_sparse: its outputs cannot be compared",
        "Error: ",
    ),
    (
        "user_module:no_arguments",
        5,
        "the function raised TypeError, called as no_arguments(vocab_size, device, dtype)",
        "hint: let no_arguments take (vocab_size, device, dtype)",
    ),
    (
        "user_module:Model",
        5,
        "the class raised TypeError, called as Model(vocab_size, device, dtype)",
        "hint: pass a function that takes (vocab_size, device, dtype) and returns the model",
    ),
    ("broken_module:make", 5, "importing broken_module raised SyntaxError", "    x = = 1"),
    ("user_module.py:make", 2, "user_module.py is not the name", "pass --model user_module:make"),
    ("./a/b.py:make", 2, "./a/b.py is not the name of a module", "pass --model a.b:make"),
    (".user_module:make", 2, ".user_module is not the name", "pass --model user_module:make"),
]


@pytest.mark.parametrize(("name", "code", "message", "hint"), REFUSED, ids=lambda each: str(each))
def test_message_says_what_the_user_code_did(
    padded: Path, name: str, code: int, message: str, hint: str
) -> None:
    result = run("verify", padded, "--model", name, "--json")
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    assert message in result.stderr
    assert hint in result.stderr
    assert "importlib" not in result.stderr


class Restless(nn.Module):
    """A model that changes all kinds of its state in each call."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, 4)
        self.last = nn.LazyLinear(4)
        self.register_buffer("average", torch.zeros(4))
        self.register_buffer("resized", torch.zeros(0))
        self.table = torch.zeros(0)

    def forward(self, ids: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        self.embedding.weight.clamp_(-0.1, 0.1)
        embedded = self.embedding(ids)
        self.average = self.average + embedded.mean()
        self.resized.resize_(ids.shape[1])
        self.table, self.added = torch.zeros(ids.shape[1]), random.random()
        return self.last(embedded)


def test_all_state_of_a_model_is_as_before(padded: Path) -> None:
    shards = ShardDataset(padded)
    model = Restless(shards.vocab_size)
    weight = model.embedding.weight.detach().clone()
    names, buffers, drawn = set(vars(model)), list(model.buffers()), random.getstate()
    assert verify_model(shards, model).passed
    assert torch.equal(model.embedding.weight, weight)
    assert all(one is other for one, other in zip(model.buffers(), buffers, strict=True))
    assert model.average.tolist() == [0.0] * 4
    assert len(model.resized) == len(model.table) == 0
    assert set(vars(model)) == names
    assert random.getstate() == drawn
    assert model.last.in_features == 4


def test_collate_function_that_drops_a_sequence_is_named_with_its_batch() -> None:
    def collate(samples: list[TokenSequence]) -> Any:
        return collate_varlen(samples[:-1] or samples)

    ids = torch.arange(1, 10)
    samples = [TokenSequence(ids[:length], index) for index, length in enumerate((2, 5, 9, 3))]
    with pytest.raises(ValueError, match=r"list: batch 0: .*collate_fn"):
        verify_model(samples, nn.Embedding(10, 4), collate_fn=collate, call=call_ids)


def call_ids(model: nn.Module, batch: Any) -> Any:
    return model(batch.ids)
