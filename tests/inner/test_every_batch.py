"""The packed model over every batch: its values are those of a plain loop, and faults are found."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from models import make_model
from shard_reference import LENGTHS, make_shards
from torch import nn
from torch.nn.utils.rnn import PackedSequence

from seqpack_cli.errors import MachineError
from seqpack_cli.runs.workers import Progress
from seqpack_cli.shards.padded import PaddedBatch
from seqpack_cli.shards.shard_set import ShardSet, open_shards
from seqpack_cli.verification import model_levels, verify_run
from seqpack_cli.verification.levels import Verification
from seqpack_cli.verification.models import every_batch
from seqpack_cli.verification.models.every_batch import (
    BatchRun,
    count_fitting_tokens,
    run_every_batch,
)
from seqpack_cli.verification.models.model import CELLS, Model
from seqpack_cli.verification.options import VerifyOptions
from seqpack_cli.verification.report import Report

CPU = torch.device("cpu")
WHOLE = 1 << 20  # tokens of one call: no batch is cut
KINDS: dict[str, dict[str, Any]] = {
    "packed": {},
    "padded": {"layout": "padded", "pad_to_multiple": 4},
    "left": {"layout": "padded", "padding_side": "left"},
    "filler": {"layout": "padded", "last_batch": "pad"},
    "varlen": {"layout": "varlen", "batch_size": None, "max_tokens": 7},
}
MODELS: dict[str, dict[str, Any]] = {
    **{cell: {"cell": cell} for cell in CELLS},
    "2 layers": {"cell": "lstm", "num_layers": 2},
    "bidirectional": {"cell": "gru", "bidirectional": True},
    "both": {"cell": "lstm", "num_layers": 2, "bidirectional": True},
}


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module", params=KINDS)
def shards(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ShardSet:
    folder = tmp_path_factory.mktemp("every_batch")
    lengths = [*LENGTHS, 5, 5, 5, 2, 2]  # batches of equal rows too
    return open_shards(make_shards(folder, lengths, shard_bytes=1, **KINDS[request.param]))


build = partial(make_model, num_embeddings=260, seed=3, hidden_size=8)


def run_all(model: Model, shards: ShardSet, *, max_tokens: int = WHOLE) -> list[BatchRun]:
    return list(run_every_batch(model, shards, range(len(shards)), max_tokens=max_tokens))


def list_sequences(shards: ShardSet, index: int) -> list[torch.Tensor]:
    batch = shards[index]
    batch = batch.without_filler() if isinstance(batch, PaddedBatch) else batch
    return [torch.tensor(row.astype("int64")) for row in batch.rows()]


@torch.no_grad()
def slow_spread(model: Model, sequences: list[torch.Tensor]) -> float:
    """Run each sequence by itself; give how far the output that varies most does."""
    outputs = torch.cat([model.recurrent(model.embedding(ids[None]))[0][0] for ids in sequences])
    return max(float(unit.max() - unit.min()) for unit in outputs.T)


@pytest.mark.parametrize("options", MODELS.values(), ids=MODELS)
def test_values_are_those_of_each_sequence_alone(shards: ShardSet, options: dict[str, Any]) -> None:
    model = build(**options)
    runs = run_all(model, shards)
    assert [run.index for run in runs] == list(range(len(shards)))
    for run in runs:
        sequences = list_sequences(shards, run.index)
        assert run.shard == shards.open_shard(shards.find(run.index)[0]).path.name
        assert run.num_tokens == sum(map(len, sequences))
        spread, difference, sum_of_ids = run.values.tolist()
        assert spread == pytest.approx(slow_spread(model, sequences), abs=1e-12)
        assert difference <= 1e-12
        assert sum_of_ids == run.sum_of_ids
        assert run.varies == (len({id_ for row in sequences for id_ in row.tolist()}) > 1)


@pytest.mark.parametrize("max_tokens", [1, 4, 7, 15])
@pytest.mark.parametrize("name", ["lstm", "gru", "rnn", "2 layers"])
def test_windows_carry_the_state_on(shards: ShardSet, max_tokens: int, name: str) -> None:
    model = build(**MODELS[name])
    whole, cut = (run_all(model, shards, max_tokens=size) for size in (WHOLE, max_tokens))
    for run, wanted in zip(cut, whole, strict=True):
        assert run.values.tolist() == pytest.approx(wanted.values.tolist(), abs=1e-12)


def test_windows_are_no_larger_than_allowed(
    shards: ShardSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[tuple[int, int]] = []
    whole = every_batch._run_packed

    def spy(model: Model, ids: torch.Tensor, batch_sizes: Any, hidden: Any) -> Any:
        sizes.append((len(ids), len(batch_sizes)))
        return whole(model, ids, batch_sizes, hidden)

    monkeypatch.setattr(every_batch, "_run_packed", spy)
    run_all(build(), shards, max_tokens=4)
    num_tokens = sum(
        len(row) for index in range(len(shards)) for row in list_sequences(shards, index)
    )
    assert sum(size for size, _ in sizes) == num_tokens
    assert all(size <= 4 or steps == 1 for size, steps in sizes)
    monkeypatch.setitem(every_batch.MAX_STEPS, "cuda", 2)
    sizes.clear()
    run_all(build(), shards)
    assert sum(size for size, _ in sizes) == num_tokens
    assert max(steps for _, steps in sizes) == 2


@pytest.mark.parametrize("max_tokens", [1, 4, 7])
def test_windows_of_both_directions_begin_anew(shards: ShardSet, max_tokens: int) -> None:
    model = build(**MODELS["bidirectional"])
    for run in run_all(model, shards, max_tokens=max_tokens):
        spread, difference, _ = run.values.tolist()
        assert 0 < spread < 2
        assert difference <= 1e-12


@pytest.mark.parametrize("name", [*CELLS, "2 layers"])
def test_groups_of_rows_give_what_whole_batches_give(
    shards: ShardSet, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    model = build(**MODELS[name])
    whole = run_all(model, shards)
    assert {run.num_groups for run in whole} == {1}
    monkeypatch.setattr(every_batch, "MAX_ROWS", 2)
    for max_tokens in (WHOLE, 3):
        for run, wanted in zip(run_all(model, shards, max_tokens=max_tokens), whole, strict=True):
            assert run.values.tolist() == pytest.approx(wanted.values.tolist(), abs=1e-12)
            assert run.num_groups == -(-len(list_sequences(shards, run.index)) // 2)


@pytest.mark.parametrize(("name", "num_gates"), [("lstm", 4), ("gru", 3), ("both", 8)])
def test_no_tensor_of_a_call_is_larger_than_allowed(
    shards: ShardSet, monkeypatch: pytest.MonkeyPatch, name: str, num_gates: int
) -> None:
    model = build(**MODELS[name])
    monkeypatch.setattr(every_batch, "MAX_NUMBERS", 2 * num_gates * 8 + 7)
    assert count_fitting_tokens(model) == 2
    sizes: list[int] = []
    model.recurrent.register_forward_pre_hook(lambda _, given: sizes.append(len(given[0].data)))
    num_tokens = sum(run.num_tokens for run in run_all(model, shards))
    assert sum(sizes) == num_tokens
    assert max(sizes) == 2  # of batches of 3 rows too
    monkeypatch.setattr(every_batch, "MAX_NUMBERS", 1)  # one token is always computed
    assert count_fitting_tokens(model) == 1


def test_levels_that_compare_keep_to_the_same_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_shards(tmp_path, [9, 8, 7])
    assert verify(path, level="forward").levels[-1].num_cut_batches == 0
    monkeypatch.setattr(every_batch, "MAX_NUMBERS", 4 * 8 * 4 * 6)  # 6 tokens, 4 cells for each
    report = verify(path, level="forward")
    assert report.findings == []
    assert report.levels[-1].num_cut_batches == 1
    assert report.levels[-1].num_tokens == 6 - 1  # two steps, in the second of which a row ends


def test_groups_of_rows_are_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_shards(tmp_path, [3, 2, 2, 2, 1])  # batches of 3 and of 2 rows
    assert not any("groups" in note for note in verify(path).notes)
    monkeypatch.setattr(every_batch, "MAX_ROWS", 2)
    monkeypatch.setattr(model_levels, "MAX_ROWS", 2)
    report = verify(path)
    assert report.findings == []
    assert "run: computed the rows of 1 batch in groups, of at most 2" in report.notes


def test_memory_that_is_not_enough_names_the_batch(
    shards: ShardSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object) -> object:
        raise torch.OutOfMemoryError("no GPU memory")

    num_threads = threading.active_count()
    for name in ("_try_batch", "to_torch_rows"):
        with monkeypatch.context() as patched:
            patched.setattr(every_batch, name, refuse)
            with pytest.raises(
                MachineError, match=r"shard-00000.safetensors: batch 0: no GPU"
            ) as caught:
                run_all(build(), shards)
            assert caught.value.__traceback__ is not None
            assert threading.active_count() == num_threads  # though the error is kept


# The level, through verify


def verify(path: Path, **options: Any) -> Report:
    options = {"level": "run", "sample": 1, "hidden_size": 8, **options}
    return verify_run.verify(path, VerifyOptions(**options))


def find_in_run(report: Report) -> list[str]:
    return [str(finding) for finding in report.findings if finding.level == "run"]


@pytest.mark.parametrize("options", MODELS.values(), ids=MODELS)
def test_every_batch_of_good_shards_passes(shards: ShardSet, options: dict[str, Any]) -> None:
    advanced: list[int] = []
    totals: list[int] = []
    progress = Progress(on_total=totals.append, on_advance=advanced.append)
    verify_options = VerifyOptions(level="run", sample=1, hidden_size=8, **options)
    report = verify_run.verify(shards.path, verify_options, progress=progress)
    assert report.findings == []
    level = report.levels[2]
    num_tokens = shards.manifest["ledger"]["num_tokens"]
    assert (level.level, level.num_batches) == ("run", len(shards))
    assert level.num_tokens == num_tokens
    assert "final states and last outputs" in level.errors
    assert sum(advanced) == sum(totals)
    assert totals[-1] == num_tokens


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("hidden_size", [4, 64])
@pytest.mark.parametrize("lengths", [[1], [1, 2, 1]], ids=str)
def test_batches_of_one_token_are_no_false_alarm(
    tmp_path: Path, cell: str, hidden_size: int, lengths: list[int]
) -> None:
    path = make_shards(tmp_path, lengths, batch_size=1)
    for seed in range(2):
        report = verify(path, cell=cell, hidden_size=hidden_size, seed=seed, dtype="float64")
        assert find_in_run(report) == []


@pytest.mark.parametrize("num_layers", [2, 3, 12])
def test_good_batches_of_two_tokens_pass_however_deep_the_model(
    tmp_path: Path, num_layers: int
) -> None:
    path = make_shards(tmp_path, [1] * 20, batch_size=2)
    report = verify(path, num_layers=num_layers, hidden_size=4)
    assert find_in_run(report) == []
    note = f"run: with {num_layers} layers, not checked that outputs differ between tokens"
    assert (note in report.notes) == (num_layers > 2)


def spoil_model(monkeypatch: pytest.MonkeyPatch, change: Callable[[Model], object]) -> None:
    whole = Verification.build_model

    def build_spoiled(self: Verification, **options: Any) -> Model:
        model = whole(self, **options)
        with torch.no_grad():
            change(model)
        return model

    monkeypatch.setattr(Verification, "build_model", build_spoiled)


def fill(value: float) -> Callable[[Model], object]:
    def change(model: Model) -> None:
        for parameter in model.parameters().values():
            parameter.fill_(value)

    return change


@pytest.mark.parametrize("layout", ["packed", "padded"])
@pytest.mark.parametrize(
    ("change", "what"),
    [
        (fill(float("nan")), "outputs are not finite"),
        (fill(0.0), "outputs differ by at most 0, expected 0.0001 or more"),
        (
            lambda model: model.embedding.weight.fill_(float("inf")),
            "outputs are not finite",
        ),
    ],
    ids=["NaN", "zeros", "infinite"],
)
def test_model_that_computes_nothing_is_found_in_every_batch(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    layout: str,
    change: Callable[[Model], object],
    what: str,
) -> None:
    path = make_shards(tmp_path, layout=layout)
    spoil_model(monkeypatch, change)
    report = verify(path)
    place = "run: shard-00000.safetensors: batch"
    num_found = 2 if "differ" in what else 3  # the last batch is of one token
    assert find_in_run(report) == [f"{place} {index}: {what}" for index in range(num_found)]
    assert [level.num_batches for level in report.levels] == [3, 3, 3]


def test_one_wrong_embedding_is_found_in_its_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards = open_shards(make_shards(tmp_path, [9, 8, 7, 6, 5, 4]))
    every = [{int(id_) for ids in list_sequences(shards, place) for id_ in ids} for place in (0, 1)]
    only = sorted(every[1] - every[0])[0]
    spoil_model(monkeypatch, lambda model: model.embedding.weight[only].fill_(float("nan")))
    (finding,) = find_in_run(verify(shards.path))
    assert finding.startswith("run: shard-00000.safetensors: batch 1: outputs are not finite")


Spoil = Callable[[Any, Any], tuple[Any, Any]]


class WrongLSTM(nn.LSTM):
    """Gives what another function makes of outputs and states."""

    spoil: Spoil

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return WrongLSTM.spoil(*super().forward(*args, **kwargs))


def spoil_states(monkeypatch: pytest.MonkeyPatch, spoil: Spoil) -> None:
    WrongLSTM.spoil = staticmethod(spoil)
    spoil_model(monkeypatch, lambda model: setattr(model.recurrent, "__class__", WrongLSTM))


WRONG_STATES: dict[str, Spoil] = {
    "one entry": lambda outputs, hidden: (outputs, (spoil_entry(hidden[0]), hidden[1])),
    "rows in another order": lambda outputs, hidden: (outputs, (hidden[0].flip(1), hidden[1])),
    "NaN": lambda outputs, hidden: (outputs, (hidden[0] * float("nan"), hidden[1])),
    "of the last step, not of each row's": lambda outputs, hidden: (
        outputs,
        (hidden[0][:, :1].expand_as(hidden[0]), hidden[1]),
    ),
    "outputs of other rows": lambda outputs, hidden: (roll_outputs(outputs), hidden),
}


def spoil_entry(state: torch.Tensor) -> torch.Tensor:
    state = state.clone()
    state[-1, -1, -1] += 1e-3
    return state


def roll_outputs(outputs: PackedSequence) -> PackedSequence:
    return outputs._replace(data=outputs.data.roll(1, 0))


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float16"])
def test_final_state_that_is_not_finite_is_found_in_all_dtypes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    spoil_states(monkeypatch, WRONG_STATES["NaN"])
    assert len(find_in_run(verify(make_shards(tmp_path), dtype=dtype))) == 3


@pytest.mark.parametrize("spoil", WRONG_STATES.values(), ids=WRONG_STATES)
@pytest.mark.parametrize("layout", ["packed", "padded"])
@pytest.mark.parametrize("max_batch_tokens", [9, 32_768])
def test_final_state_that_is_wrong_is_found(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    spoil: Spoil,
    layout: str,
    max_batch_tokens: int,
) -> None:
    path = make_shards(tmp_path, [9, 7, 5, 4, 4, 4], layout=layout)
    spoil_states(monkeypatch, spoil)
    found = find_in_run(verify(path, max_batch_tokens=max_batch_tokens))
    assert len(found) == 2
    for index, finding in enumerate(found):
        # of a NaN in a state that the next window goes on with, the outputs say it first
        assert re.match(
            rf"run: shard-00000.safetensors: batch {index}: "
            "(final states and last outputs: error|outputs are not finite)",
            finding,
        )


def test_16_bit_states_are_not_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_shards(tmp_path)
    spoil_states(monkeypatch, WRONG_STATES["one entry"])
    assert find_in_run(verify(path, dtype="bfloat16")) == []


@pytest.mark.cuda
@pytest.mark.parametrize("options", MODELS.values(), ids=MODELS)
def test_every_batch_passes_on_cuda(shards: ShardSet, options: dict[str, Any]) -> None:
    report = verify(shards.path, device="cuda", **options)
    assert report.findings == []
    assert report.levels[2].num_tokens == shards.manifest["ledger"]["num_tokens"]
