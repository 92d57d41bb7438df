"""verify_model and `verify --model`: what is checked, what findings say, and what is refused."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from command import check_refused, run
from model_zoo import CPU, VOCAB_SIZE, ZooModel
from random_models import random_correct_model
from shard_reference import make_shards
from torch import nn
from torch.utils.data import DataLoader
from wrong_models import WRONG_MODELS

from seqpack_cli import (
    ModelError,
    ModelOptions,
    OptionError,
    ShardDataset,
    StoreDataset,
    TokenSequence,
    collate_padded,
    collate_varlen,
    verify_model,
)
from seqpack_cli.verification.user_models.model_report import ModelReport

pytestmark = pytest.mark.usefixtures("one_thread")

LENGTHS = (1, 8, 3, 20, 2, 5)


def draw_samples(lengths: tuple[int, ...] = LENGTHS) -> list[TokenSequence]:
    generator = torch.Generator().manual_seed(0)
    return [
        TokenSequence(torch.randint(1, VOCAB_SIZE, (length,), generator=generator), index)
        for index, length in enumerate(lengths)
    ]


def check(entry: ZooModel) -> ModelReport:
    def collate(samples: list[TokenSequence]) -> Any:
        return entry.collate({each.original_index: each.ids for each in samples}, shorter_by=2)

    return verify_model(
        draw_samples(),
        entry.make(VOCAB_SIZE, CPU, entry.dtype or torch.float32),
        collate_fn=collate,
        call=entry.call,
        options=ModelOptions(causal=entry.causal),
    )


@pytest.mark.parametrize("entry", WRONG_MODELS, ids=lambda entry: entry.name)
def test_wrong_model_is_caught(entry: ZooModel) -> None:
    assert not check(entry).passed


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 12))]
)
def test_random_correct_model_passes(seed: int) -> None:
    report = check(random_correct_model(seed, trains=True))
    assert report.findings == []


class Leaky(nn.Module):
    """Outputs of each token are the embeddings of the `reach` tokens before it and its own."""

    def __init__(self, reach: int, *, ahead: int = 0) -> None:
        super().__init__()
        self.reach, self.ahead = reach, ahead
        self.embedding = nn.Embedding(VOCAB_SIZE, 4)

    def forward(self, ids: torch.Tensor, *_: Any) -> torch.Tensor:
        embedded: torch.Tensor = self.embedding(ids)
        total = embedded.clone()
        for step in range(1, self.reach + 1):
            total[step:] += embedded[:-step]
        if self.ahead:
            total[: -self.ahead] += embedded[self.ahead :]
        return total


def call_flat(model: nn.Module, batch: Any) -> Any:
    return model(batch.ids)


def test_finding_names_the_sequence_that_leaked_and_the_distance() -> None:
    samples = draw_samples((5, 8, 3, 6))
    report = verify_model(samples, Leaky(2), collate_fn=collate_varlen, call=call_flat)
    leak = next(str(each) for each in report.findings if "is changed" in str(each))
    assert "its tokens 0 to 1, 1 token behind the end of sequence" in leak


def test_causal_finding_names_how_many_tokens_later() -> None:
    options = ModelOptions(causal=True)
    model = Leaky(0, ahead=2)
    samples = draw_samples((20,))
    report = verify_model(
        samples, model, collate_fn=collate_varlen, call=call_flat, options=options
    )
    (finding,) = report.findings
    assert ", 2 tokens later" in finding.what


def test_everything_is_restored() -> None:
    model = nn.Sequential(nn.Embedding(VOCAB_SIZE, 8), nn.Dropout(0.5), nn.LayerNorm(8))
    model.append(nn.BatchNorm1d(8))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.random.get_rng_state()
    report = verify_model(draw_samples(), model, collate_fn=collate_varlen, call=call_flat)
    assert report.dropout == ["1 (Dropout, p=0.5)"]
    assert report.mode == "train"
    assert "3 (BatchNorm1d) is in train mode" in report.notes[-1]
    assert model.training
    assert isinstance(model[1], nn.Dropout)
    assert model[1].p == 0.5
    assert torch.equal(torch.random.get_rng_state(), state)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])


class Careless(nn.Module):
    """Changes its own state, and the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCAB_SIZE, 8, max_norm=0.5)
        self.register_buffer("positions", torch.zeros(0, 8))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        random.random()
        self.positions = torch.ones(len(ids), 8, dtype=self.positions.dtype)
        outputs = self.embedding(ids) + self.positions
        ids.fill_(0)
        return outputs


def test_what_a_model_changes_is_restored() -> None:
    model = Careless()
    weights, state = model.embedding.weight.clone(), random.getstate()
    batches = [collate_varlen(draw_samples())]
    ids = batches[0].ids.clone()
    assert verify_model(iter(batches), model, call=call_flat).findings == []
    assert torch.equal(model.embedding.weight, weights)
    assert len(model.positions) == 0
    assert random.getstate() == state
    assert torch.equal(batches[0].ids, ids)


def add_column(value: float) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda outputs: nn.functional.pad(outputs, (0, 1), value=value)


@pytest.mark.parametrize("value", [torch.finfo(torch.float32).min, -1e9, -torch.inf])
def test_output_that_masks_hides_no_leak(value: float) -> None:
    verify = partial(verify_model, draw_samples(), collate_fn=collate_varlen)
    for reach, passes in ((0, True), (1, False)):
        report = verify(Leaky(reach), call=lambda model, batch: add_column(value)(model(batch.ids)))
        assert report.passed == passes


def test_feature_that_amplifies_rounding_errors_hides_no_leak() -> None:
    def call_chaotic(model: nn.Module, batch: Any) -> torch.Tensor:
        outputs: torch.Tensor = model(batch.ids)
        chaos = outputs[:, :1]
        for _ in range(80):
            chaos = torch.sin(4 * chaos + 1) * 3
        return torch.cat([outputs, chaos], 1)

    verify = partial(verify_model, draw_samples(), collate_fn=collate_varlen, call=call_chaotic)
    assert not verify(Leaky(1)).passed


@pytest.mark.parametrize("convert", [torch.view_as_complex, lambda outputs: outputs > 0])
def test_outputs_of_other_types_are_compared(convert: Callable[[Any], Any]) -> None:
    verify = partial(verify_model, draw_samples(), collate_fn=collate_varlen)

    def call(model: nn.Module, batch: Any) -> Any:
        leaky = model(batch.ids)  # the second half of each pair has the leak
        return convert(torch.stack([leaky[:, 0] * 0 + 1, leaky[:, 1]], dim=1))

    assert verify(Leaky(0), call=call).passed
    assert not verify(Leaky(2), call=call).passed


def test_findings_name_sequences_by_their_number_in_the_store() -> None:
    samples = [each._replace(original_index=100 + each.original_index) for each in draw_samples()]
    report = verify_model(samples, Leaky(1), collate_fn=collate_varlen, call=call_flat)
    assert report.findings
    assert all("outputs of sequence 10" in each.what for each in report.findings)


def test_leak_of_another_sequence_is_no_error_of_causality() -> None:
    options = ModelOptions(causal=True)
    report = verify_model(
        draw_samples(), Leaky(3), collate_fn=collate_varlen, call=call_flat, options=options
    )
    assert not report.passed
    assert all(each.error == 0 for each in report.checks["causal"].errors.values())


def call_trimmed(model: nn.Module, batch: Any) -> Any:
    return model(batch.ids)[:, : int(batch.mask.sum(dim=1).max())]


def call_pooled(model: nn.Module, batch: Any) -> Any:
    return (model.embedding(batch.ids) * batch.mask[..., None]).sum(dim=1)


@pytest.mark.parametrize(("call", "kind"), [(call_trimmed, "token"), (call_pooled, "sequence")])
def test_other_batches_show_what_outputs_are(call: Callable[..., Any], kind: str) -> None:
    def collate(samples: list[TokenSequence]) -> Any:
        return collate_padded(samples, pad_id=0, pad_to_multiple=4 if len(samples) > 1 else 1)

    def flat(ids: torch.Tensor) -> torch.Tensor:
        return model.embedding(ids)

    model = Leaky(0)  # 4 features, as many as the first batch has columns
    model.forward = flat  # type: ignore[method-assign]
    batches = [collate(draw_samples((4, 2, 1, 1))), collate(draw_samples((5, 3)))]
    report = verify_model(iter(batches), model, collate_fn=collate, call=call)
    assert report.findings == []
    assert str(report.outputs).startswith(kind)


def test_notes_say_what_was_not_checked() -> None:
    def call(model: nn.Module, batch: Any) -> Any:
        return {"logits": model(batch.ids), "pooler_output": model(batch.ids).sum(dim=0)}

    report = verify_model(iter([collate_varlen(draw_samples())]), Leaky(0), call=call)
    assert report.unchecked == ["alone", "order", "padding"]
    assert report.notes[0] == (
        "pooler_output is not checked: it is neither per token nor per sequence"
    )
    assert sum("was not checked: no collate_fn" in note for note in report.notes) == 2


def test_exit_in_a_model_is_an_error() -> None:
    def leave(*_: Any) -> None:
        sys.exit(0)

    with pytest.raises(ModelError, match=r"the model called sys.exit\(0\)"):
        verify_model(draw_samples(), Leaky(0), collate_fn=collate_varlen, call=leave)


LAID_OUT: dict[str, dict[str, Any]] = {
    "padded": {"batch_size": 3, "pad_to_multiple": 8},
    "streams": {"batch_size": 2, "max_tokens": 8},
    "varlen": {"batch_size": 2, "max_tokens": 64, "align_sequences": 8},
}


@pytest.mark.parametrize("layout", LAID_OUT)
def test_batches_are_laid_out_again_as_those_of_the_shards(tmp_path: Path, layout: str) -> None:
    def call(model: nn.Module, batch: Any) -> Any:
        assert batch.labels.shape == batch.ids.shape
        assert layout == "streams" or batch.ids.shape[-1] % 8 == 0
        assert set(batch.columns) == names
        return model(batch.ids)

    path = make_shards(tmp_path, layout=layout, has_columns=True, **LAID_OUT[layout])
    shards = ShardDataset(path, labels="next")
    names = set(shards[0].columns)
    report = verify_model(shards, nn.Embedding(shards.vocab_size, 4), call=call)
    assert report.findings == []
    assert report.checks["alone"].num_sequences


def test_number_per_sequence_is_kept_where_all_sequences_have_one_token() -> None:
    samples = [TokenSequence(torch.tensor([i + 1]), i, {"score": i / 2}) for i in range(3)]
    batches = iter([collate_varlen(samples)])
    report = verify_model(batches, Leaky(0), collate_fn=collate_varlen, call=call_flat)
    assert report.findings == []


def test_model_that_ignores_its_input_is_found() -> None:
    class Constant(Leaky):
        def forward(self, ids: torch.Tensor, *_: Any) -> torch.Tensor:
            return self.embedding(torch.zeros_like(ids))

    report = verify_model(draw_samples(), Constant(0), collate_fn=collate_varlen, call=call_flat)
    assert [each.what for each in report.findings] == ["outputs do not change when ids are changed"]


def check_rows(model: Any, **options: Any) -> ModelReport:
    """Check a model that takes padded ids, on samples that are dicts."""
    samples = [each.ids for each in draw_samples((1, 8, 3, 6, 7))]
    return verify_model(
        samples, model, collate_fn=collate_dict, call=call_dict, locate=locate_rows, **options
    )


class Sums(Leaky):
    """Outputs of a causal sum, its last states, and its first ones."""

    def forward(self, ids: torch.Tensor, *_: Any) -> Any:
        total = self.embedding(ids).cumsum(1)
        return total, (total[:, -1][None], total[:, 0]), ids


def test_tensors_beside_the_outputs_are_checked() -> None:
    report = check_rows(Sums(0))
    found = {each.what.partition(" of ")[0] for each in report.findings}
    assert found == {"outputs[1][0]"}  # over padding
    assert "outputs[2] is not checked: it is int64" in report.notes


def test_each_sequence_must_move_its_outputs() -> None:
    class Half(Leaky):
        def forward(self, ids: torch.Tensor, *_: Any) -> torch.Tensor:
            embedded: torch.Tensor = self.embedding(ids)
            return torch.cat([embedded[:2], torch.zeros_like(embedded[2:])])

    found = [each.what for each in check_rows(Half(0)).findings]
    assert (
        "outputs of row 2 do not change when its ids are changed, nor do those of 2 others" in found
    )


def test_amplified_rounding_is_named_and_hides_no_other_feature() -> None:
    class Chaotic(Leaky):
        def forward(self, ids: torch.Tensor, *_: Any) -> torch.Tensor:
            embedded = self.embedding(ids)
            chaos = embedded[..., :1] + embedded[:1, :1, :1] * self.reach * 1e-7
            for _ in range(80):
                chaos = torch.sin(4 * chaos + 1) * 3
            return torch.cat([embedded + self.reach * embedded[:1, :1], chaos], dim=-1)

    assert not check_rows(Chaotic(1)).passed

    class Chaos(Chaotic):
        def forward(self, ids: torch.Tensor, *_: Any) -> torch.Tensor:
            return super().forward(ids)[..., 4:]

    report = check_rows(Chaos(1))
    assert any(each.startswith("not judged: isolation in 1 of 1 batches") for each in report.notes)
    assert report.checks["isolation"].unjudged


class Speakers(Leaky):
    def forward(self, ids: torch.Tensor, speakers: Any = None) -> torch.Tensor:
        embedded: torch.Tensor = self.embedding(ids)
        return embedded + self.embedding(speakers)[:, None]


def test_samples_of_the_same_ids_and_other_features_are_told_apart() -> None:
    def collate(samples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        samples = sorted(samples, key=lambda sample: -sample["speaker"])
        speakers = torch.tensor([sample["speaker"] for sample in samples])
        return {**collate_dict([sample["ids"] for sample in samples]), "speakers": speakers}

    samples = [{"ids": torch.tensor([1 + i % 2]), "speaker": i} for i in range(12)]
    report = verify_model(
        samples,
        Speakers(0),
        collate_fn=collate,
        call=lambda model, batch: model(batch["ids"], batch["speakers"]),
        locate=locate_rows,
    )
    assert report.findings == []


def test_collate_function_that_changes_ids_is_found() -> None:
    def cut(samples: list[TokenSequence]) -> Any:
        return collate_varlen([each._replace(ids=each.ids[:7]) for each in samples])

    report = verify_model(draw_samples((3, 8)), Leaky(0), collate_fn=cut, call=call_flat)
    assert [each.what for each in report.findings] == [
        "sequence 1, as collate_fn lays it out, has 7 ids, its sample has 8"
    ]


def locate_rows(batch: dict[str, torch.Tensor]) -> tuple[torch.Tensor, list[torch.Tensor]]:
    ids = batch["ids"]
    rows = [row.nonzero().flatten() + number * ids.shape[1] for number, row in enumerate(ids)]
    return ids, rows


def collate_dict(samples: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    return {"ids": nn.utils.rnn.pad_sequence(samples, batch_first=True)}


def call_dict(model: nn.Module, batch: dict[str, torch.Tensor]) -> Any:
    return model(batch["ids"])


BATCHES: dict[str, Callable[[list[torch.Tensor]], tuple[Any, Any]]] = {
    "samples": lambda ids: (ids, collate_dict),
    "loader": lambda ids: (DataLoader(ids, 3, collate_fn=collate_dict), None),  # type: ignore[arg-type]
    "batches": lambda ids: (iter([collate_dict(ids[:3]), collate_dict(ids[3:])]), collate_dict),
    "no collate_fn": lambda ids: (iter([collate_dict(ids)]), None),
}


@pytest.mark.parametrize("kind", BATCHES)
def test_batches_of_others_are_checked(kind: str) -> None:
    batches, collate = BATCHES[kind]([each.ids for each in draw_samples()])
    verify = partial(verify_model, collate_fn=collate, call=call_dict, locate=locate_rows)
    report = verify(batches, nn.Embedding(VOCAB_SIZE, 4))
    assert report.findings == []
    alone = report.checks["alone"]
    assert alone.num_sequences == (0 if kind == "no collate_fn" else len(LENGTHS))
    if kind == "no collate_fn":
        assert list(alone.why_not) == ["no collate_fn that can lay out its sequences again"]


def test_data_sets_of_ours_are_checked(tmp_path: Path) -> None:
    path = make_shards(tmp_path, layout="padded")
    shards = ShardDataset(path)
    model = nn.Embedding(shards.vocab_size, 4)
    call = call_flat
    assert verify_model(shards, model, call=call).checks["alone"].num_sequences == 7
    assert verify_model(shards[:1], model, call=call).num_batches == 1
    store = StoreDataset(tmp_path / "store")
    collate = partial(collate_padded, pad_id=0)
    assert verify_model(store, model, collate_fn=collate, call=call).num_sequences == 7


def test_errors_name_the_batch_or_the_shapes() -> None:
    class Broken(Leaky):
        def forward(self, *_: Any) -> torch.Tensor:
            raise KeyError("no such thing")

    verify = partial(verify_model, draw_samples(), collate_fn=collate_varlen, call=call_flat)
    with pytest.raises(ModelError, match="list: batch 0: the model raised KeyError") as raised:
        verify(Broken(0))
    assert "in forward" in str(raised.value)
    assert "seqpack_cli" not in raised.value.traceback
    with pytest.raises(OptionError, match=r"shape \[3, 4\], expected \[39, \.\.\.\]"):
        verify(Leaky(0), call=lambda *_: torch.zeros(3, 4))
    with pytest.raises(ValueError, match="batches are int: pass locate"):
        verify_model([1, 2], Leaky(0))


MODULE = """
import torch
from torch import nn
from seqpack_cli import PaddedTensors

class Tagger(nn.Module):
    def __init__(self, vocab_size, bidirectional=False):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, 8)
        self.lstm = nn.LSTM(8, 8, batch_first=True, bidirectional=bidirectional)

    def forward(self, ids, mask):
        return self.lstm(self.embedding(ids))[0]

def make(vocab_size, device, dtype):
    return Tagger(vocab_size).to(device, dtype)

def make_wrong(vocab_size, device, dtype):
    return Tagger(vocab_size, bidirectional=True).to(device, dtype)

def make_nothing(vocab_size, device, dtype):
    pass

def call(model, batch):
    assert isinstance(batch, PaddedTensors) and batch.labels is not None
    return model(batch.ids, batch.mask)
"""


@pytest.fixture
def padded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "verified_models.py").write_text(MODULE)
    return make_shards(tmp_path, layout="padded")


def test_command_checks_a_model_of_the_current_folder(padded: Path) -> None:
    arguments = ("--model", "verified_models:make", "--call", "verified_models:call", "--causal")
    result = run("verify", padded, *arguments)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[1] == "on cpu, verified_models:make, float32, seed 0"
    assert [line.split()[0] for line in lines[4:7]] == ["structure", "roundtrip", "model"]
    assert "  model: outputs per token, train mode, judged in float64, float32" in lines
    report = json.loads(run("verify", padded, *arguments, "--json").stdout)
    assert report["model"]["checks"]["alone"]["num_sequences"] == 7


def test_command_reports_the_faults_of_a_model(padded: Path) -> None:
    result = run("verify", padded, "--model", "verified_models:make_wrong")
    assert result.exit_code == 1
    assert "change when the ids in padding cells are changed" in result.stdout
    assert "differ from those of the sequence alone" in result.stdout


REFUSED = [
    (("--model", "make"), "--model make: expected MODULE:FUNCTION", "pass --model models:make"),
    (
        ("--model", "verified_models:mak"),
        "--model verified_models:mak: 'mak' does not exist in verified_models, found: make, "
        "make_wrong, make_nothing, call",
        "pass --model verified_models:make",
    ),
    (
        ("--model", "verified_models:make_nothing"),
        "--model verified_models:make_nothing returned NoneType, expected an nn.Module",
        "let make_nothing(vocab_size, device, dtype) return the model",
    ),
    (("--causal",), "--causal needs --model", "pass --model MODULE:FUNCTION as well"),
    (("--level", "model"), "--level model needs --model", "pass --model MODULE:FUNCTION"),
    (
        ("--model", "verified_models:make", "--level", "forward"),
        "--level forward conflicts with --model, which runs structure, roundtrip and model",
        "leave out --level",
    ),
    (
        ("--model", "verified_models:make", "--layers", "2"),
        "--layers conflicts with --model: it is for the model that verify makes",
        "leave out --layers",
    ),
]


@pytest.mark.parametrize(("arguments", "message", "hint"), REFUSED, ids=lambda each: str(each)[:40])
def test_command_refuses(padded: Path, arguments: tuple[str, ...], message: str, hint: str) -> None:
    check_refused(run("verify", padded, *arguments), 2, message, f"hint: {hint}")


def test_command_names_a_module_that_does_not_exist(padded: Path) -> None:
    result = run("verify", padded, "--model", "no_such_package.models:make")
    assert result.exit_code == 2
    assert "no module 'no_such_package' in " in result.stderr
    assert "hint: run seqpack in the folder that holds no_such_package" in result.stderr


@pytest.mark.cuda
@pytest.mark.parametrize("name", ["make", "make_wrong"])
def test_command_checks_a_model_on_cuda(padded: Path, name: str) -> None:
    result = run("verify", padded, "--model", f"verified_models:{name}", "--device", "cuda")
    assert result.exit_code == (1 if name == "make_wrong" else 0), result.output
    assert "train mode, judged in float64, float32" in result.stdout


@pytest.mark.cuda
@pytest.mark.parametrize("seed", range(6))
def test_random_correct_model_passes_on_cuda(seed: int) -> None:
    entry = random_correct_model(seed)
    model = entry.make(VOCAB_SIZE, torch.device("cuda"), torch.float32)
    report = verify_model(
        draw_samples(),
        model,
        collate_fn=entry.collate_samples,
        call=entry.call,
        options=ModelOptions(causal=entry.causal),
    )
    assert report.findings == []
