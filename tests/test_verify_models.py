"""`verify` with its own models and with users': good ones pass, and every fault is named."""

from __future__ import annotations

import json
import math
import random
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import faulty_torch as faults
import numpy as np
import pytest
import torch
from command import run
from mistakes import MISTAKES, STREAM_MISTAKES, Plain, Stepwise
from right_models import DROPOUTS, RIGHT_MODELS, DataOnly
from torch import nn
from torch.utils.data import DataLoader
from zoo import VOCAB_SIZE, Entry, draw_samples, find_failed

from seqpack_cli import (
    DocumentOptions,
    Executor,
    Finding,
    MachineError,
    ModelError,
    ModelOptions,
    ModelReport,
    OptionError,
    PackOptions,
    PairsReport,
    Progress,
    Report,
    ShardDataset,
    SplitsReport,
    StoreDataset,
    TokenizeOptions,
    TokenSequence,
    VerifyOptions,
    collate_padded,
    collate_varlen,
    open_shards,
    pack,
    tokenize,
    verify,
    verify_model,
)

pytestmark = pytest.mark.usefixtures("one_thread", "same_weights")

Made, Patch = dict[str, Path], pytest.MonkeyPatch
ONE = Executor(num_workers=1)
LENGTHS = (3, 9, 5, 1, 5, 12, 2, 1, 7, 5)  # 50 ids
LONG = (9, 1, 6, 14, 6, 6, 29, 3, 3, 12, 5, 40, 2, 2, 7)
LADDER = ["structure", "roundtrip", "forward", "backward"]


def make_store(folder: Path, lengths: Sequence[int] = LENGTHS, name: str = "store") -> Path:
    """Tokenize documents of random letters, with so many ids each and two columns."""
    folder.mkdir(parents=True, exist_ok=True)
    letters = random.Random(name)
    corpus = folder / f"{name}.jsonl"
    with corpus.open("w") as file:
        for number, length in enumerate(lengths):
            text = "".join(letters.choices("abcdefghijklmnopqrstuvwxyz", k=length))
            file.write(json.dumps({"text": text, "lang": "de", "score": number // 2 / 4}) + "\n")
    documents = DocumentOptions(text_field="text")
    options = TokenizeOptions(documents=documents, keep=("lang:class", "score:float"))
    tokenize([corpus], folder / name, options, executor=ONE)
    return folder / name


def make_shards(folder: Path, lengths: Sequence[int] = LENGTHS, **options: Any) -> Path:
    """Pack such a store; with the layout "pairs", two of them."""
    store, decoder = make_store(folder, lengths), None
    if options.get("layout") == "pairs":
        decoder, options = make_store(folder, lengths[::-1], "decoder"), {**options}
        options["layout"] = "padded"
    pack(store, folder / "shards", PackOptions(**options), decoder=decoder, executor=ONE)
    return folder / "shards"


VARLEN, STREAMS = {"layout": "varlen"}, {"layout": "streams"}
KINDS: dict[str, dict[str, Any]] = {
    "packed": {"batch_size": 3, "shard_bytes": 1},
    "buckets": {"batch_size": 3, "buckets": (6, 16)},
    "unsorted": {"batch_size": 4, "order": "none"},
    "padded": {"layout": "padded", "batch_size": 4, "pad_to_multiple": 8},
    "left": {"layout": "padded", "batch_size": 3, "padding_side": "left", "shuffle": True},
    "filler": {"layout": "padded", "batch_size": 4, "last_batch": "pad", "padding_side": "left"},
    "varlen": {**VARLEN, "max_tokens": 14},
    "pieces": {**VARLEN, "max_tokens": 7, "fill": "sequential"},
    "rows": {**VARLEN, "max_tokens": 16, "batch_size": 2},
    "aligned": {**VARLEN, "max_tokens": 24, "align_sequences": 4},
    "aligned rows": {**VARLEN, "max_tokens": 16, "batch_size": 3, "align_sequences": 4},
    "chunks": {**VARLEN, "max_tokens": 8, "batch_size": 2, "fill": "chunk"},
    "streams": {**STREAMS, "max_tokens": 7, "batch_size": 3},
    "streams again": {**STREAMS, "max_tokens": 4, "batch_size": 2, "passes": "store=2"},
    "pairs": {"layout": "pairs", "batch_size": 3},
    "splits": {"batch_size": 2, "split": "train=0.7,test=rest", "split_seed": 3},
    "split by": {"batch_size": 2, "split": "train=0.5,test=rest", "split_by": "score"},
}
CELLS, KERNELS = ("lstm", "gru", "rnn"), {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}


@pytest.fixture
def same_weights() -> None:
    """Let every test make models with the same weights."""
    torch.manual_seed(0)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Shards of each kind."""
    folder = tmp_path_factory.mktemp("made")
    return {name: make_shards(folder / name, **KINDS[name]) for name in KINDS}


def list_reports(report: Report | PairsReport | SplitsReport) -> list[Report]:
    """Return the reports of the sides, or of the splits."""
    if isinstance(report, Report):
        return [report]
    parts = report.sides if isinstance(report, PairsReport) else report.splits
    return [each for part in parts.values() for each in list_reports(part)]


def check(path: Path, **options: Any) -> Report:
    report = verify(path, VerifyOptions(**{"hidden_size": 8, **options}))
    assert isinstance(report, Report)
    return report


@pytest.mark.parametrize("name", KINDS)
def test_good_shards_pass_all_levels(made: Made, name: str) -> None:
    """With each cell, dtype and number of layers."""
    number = list(KINDS).index(name)
    options = VerifyOptions(
        cell=CELLS[number % 3],
        num_layers=(1, 2)[number % 5 == 4],
        bidirectional=number % 4 == 1,
        hidden_size=(4, 8)[number % 2],
        dtype=("float32", "float64")[number // 2 % 2],
        sample=1,
        seed=number,
    )
    report = verify(made[name], options)
    assert [str(each) for each in report.findings] == []
    assert report.passed
    for each in list_reports(report):
        levels = {level.level: level for level in each.levels}
        assert set(levels) >= set(LADDER)
        num_batches = [levels[name].num_batches for name in LADDER]
        assert num_batches == [each.num_batches] * 2 + [1, 1]
        assert levels["structure"].num_tokens == levels["roundtrip"].num_tokens == each.num_tokens
        for name in LADDER[2:]:
            level = levels[name]
            assert level.num_cut_batches == 0
            assert level.worst is not None
            assert 0 < level.worst.share <= 1
            assert level.worst.share == max(size.share for size in level.errors.values())
        assert each.is_gate


@pytest.mark.parametrize("name", ["packed", "left", "unsorted", "aligned rows", "streams", "pairs"])
def test_windows_of_a_few_tokens_pass(made: Made, name: str) -> None:
    options = VerifyOptions(cell="gru", hidden_size=4, max_batch_tokens=9, sample=3, seed=4)
    report = verify(made[name], options)
    assert [str(each) for each in report.findings] == []
    for each in list_reports(report):
        assert all(level.num_cut_batches > 0 for level in each.levels[2:])
        assert all(0 < level.num_tokens <= 3 * 9 for level in each.levels[2:])


def test_every_output_state_and_gradient_is_compared(made: Made) -> None:
    report = check(made["packed"], num_layers=2)
    errors = {level.level: set(level.errors) for level in report.levels}
    ways = ("alone", "packed", "padded")
    assert errors["forward"] >= {
        f"{way} {value}" for way in ways for value in ("outputs", "h_n", "c_n")
    }
    weights = [f"{kind}_l{k}" for k in (0, 1) for kind in ("weight_ih", "weight_hh", "bias_ih")]
    assert errors["backward"] >= {
        f"{way} gradient of {value}"
        for way in ways
        for value in ("inputs", "weight embedding", *(f"weight {each}" for each in weights))
    }
    report = check(made["streams"])
    errors = {level.level: set(level.errors) for level in report.levels}
    assert errors["forward"] >= {"streams outputs", "streams h_n", "packed outputs"}
    assert errors["backward"] >= {"streams gradient of inputs", "packed gradient of inputs"}
    assert any("through 1 run of batches, of 21 steps" in note for note in report.notes)


LEVELS_ASKED = [(level, LADDER[: k + 1]) for k, level in enumerate(LADDER)]


@pytest.mark.parametrize(("level", "levels"), LEVELS_ASKED)
def test_levels_are_cumulative(made: Made, level: str, levels: list[str]) -> None:
    totals, advanced = list[int](), list[int]()
    progress = Progress(on_total=totals.append, on_advance=advanced.append)
    options = VerifyOptions(level=level, sample=2, hidden_size=8)
    report = verify(made["packed"], options, progress=progress)
    assert isinstance(report, Report)
    assert [each.level for each in report.levels] == levels
    assert [each.num_batches for each in report.levels] == [4, 4, 2, 2][: len(levels)]
    assert sum(advanced) == sum(totals)
    assert all(each.seconds > 0 and each.tokens_per_second > 0 for each in report.levels)


def test_command_prints_coverage_and_errors_beside_limits(made: Made) -> None:
    arguments = ("verify", made["padded"], "--hidden-size", 8, "--sample", 2, "--seed", 2**64 - 1)
    result = run(*arguments, "--cell", "gru", "--layers", 2, "--bidirectional")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == f"{made['padded']}: padded, 3 batches, 10 sequences, 50 tokens"
    rows = {line.split()[0]: line for line in lines[4:8]}
    assert list(rows) == LADDER
    assert all(" ok " in row for row in rows.values())
    assert " 2 of 3 " in rows["forward"]
    assert all(" / " in rows[level] for level in LADDER[2:])
    report = json.loads(run(*arguments, "--dtype", "float64", "--json").stdout)
    assert report["passed"]
    assert (report["dtype"], report["seed"], report["cell"]) == ("float64", 2**64 - 1, "lstm")
    assert (report["device"], report["device_name"], report["layout"]) == ("cpu", "CPU", "padded")
    assert report["columns"] == ["lang", "score"]
    error = report["levels"][2]["errors"]["packed outputs"]
    assert error["error"] <= error["limit"] < 1e-9


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bit_errors_are_reported_and_not_judged(made: Made, dtype: str) -> None:
    result = run("verify", made["varlen"], "--dtype", dtype, "--sample", 1, "--hidden-size", 8)
    assert result.exit_code == 0, result.output
    assert "(not judged)" in result.stdout
    report = check(made["streams"], dtype=dtype, cell="gru", sample=1)
    assert not report.is_gate
    assert report.passed
    assert report.levels[-1].errors["streams gradient of inputs"].error > 1e-5


def test_windows_of_large_batches_pass(tmp_path: Path) -> None:
    """Of rows of more than 1,024 steps, or more than 1,024 rows, a part is computed."""
    for name, lengths in (("long", [1040, 1030, 5]), ("many", [2, 1] * 513)):
        path = make_shards(tmp_path / name, lengths, batch_size=len(lengths))
        report = check(path, cell="rnn", hidden_size=4)
        assert report.passed
        assert [level.num_cut_batches for level in report.levels] == [0, 0, 1, 1]
        assert all(0 < level.num_tokens < sum(lengths) for level in report.levels[2:])


def test_batches_of_equal_rows_are_noted(tmp_path: Path) -> None:
    path = make_shards(tmp_path, [4, 4, 4], batch_size=3)
    report = check(path, num_layers=6)
    assert report.passed
    assert any("no hidden state was trimmed" in note for note in report.notes)
    assert any("skipped the second model" in note for note in report.notes)
    assert check(make_shards(tmp_path / "one", [1], batch_size=3), dtype="float64").passed


def test_window_without_an_end_of_a_row_is_a_finding(tmp_path: Path) -> None:
    path = make_shards(tmp_path, [30, 20], batch_size=2)
    (finding,) = check(path, level="forward", max_batch_tokens=2).findings
    assert "larger --max-batch-tokens" in finding.what
    assert finding.batch is None


def test_settings_and_random_state_are_given_back(made: Made) -> None:
    settings = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [each.allow_tf32 for each in settings]
    state, num_threads = torch.random.get_rng_state(), torch.get_num_threads()
    torch.manual_seed(5)
    torch.set_num_threads(3)
    try:
        check(made["varlen"], sample=1)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(num_threads)
        torch.random.set_rng_state(state)
    assert [each.allow_tf32 for each in settings] == before


REFUSAL = RuntimeError("cuDNN error: CUDNN_STATUS_NOT_SUPPORTED\nmore")
IN_16 = {"dtype": "bfloat16"}
# The fault, the kind of shards, the options, and what a finding of level forward says.
FORWARD_FAULTS: list[tuple[faults.Change, str, dict[str, Any], str]] = [
    (faults.run_on, "packed", {}, "packed h_n"),
    (faults.run_on, "left", {"cell": "gru"}, "packed h_n"),
    (faults.run_on, "rows", {"cell": "rnn"}, "packed h_n"),
    (faults.begin_in_padding, "padded", {"bidirectional": True}, "packed outputs"),
    (faults.swap_states(0), "packed", {}, "packed h_n"),
    (faults.swap_states(1), "packed", {}, "packed c_n"),
    (faults.add(1e-3), "packed", {}, "packed outputs"),
    (faults.add(1e-10), "packed", {"dtype": "float64"}, "packed outputs"),
    (faults.leak(1e-7), "padded", {}, "outputs of unchanged rows"),
    (faults.leak(1e-2), "padded", {}, "packed outputs: error"),
    (faults.spoil(math.nan), "packed", {}, "packed outputs: error inf"),
    (faults.spoil(math.nan), "streams", IN_16, "packed outputs: error inf"),
    (faults.spoil(math.inf, state=True), "packed", {"dtype": "float16"}, "packed c_n: error inf"),
    (faults.raise_error(REFUSAL, rows=3), "packed", {}, "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED"),
]
BACKWARD_FAULTS: list[tuple[faults.Change, str, dict[str, Any], str]] = [
    (faults.detach_row, "padded", {}, "packed gradient of"),
    (faults.detach_states, "packed", {"cell": "gru"}, "packed gradient of"),
]


@pytest.mark.parametrize(
    ("level", "change", "kind", "options", "what"),
    [
        *(("forward", *each) for each in FORWARD_FAULTS),
        *(("backward", *each) for each in BACKWARD_FAULTS),
    ],
)
def test_fault_of_a_kernel_is_found_by_its_level(
    made: Made,
    monkeypatch: Patch,
    level: str,
    change: faults.Change,
    kind: str,
    options: dict[str, Any],
    what: str,
) -> None:
    cell = options.get("cell", "lstm")
    faults.change_packed(monkeypatch, change, kind=KERNELS[cell])
    report = check(made[kind], **{"sample": 2, "level": level, **options})
    found = {each.level for each in report.findings}
    assert found == {level}, [str(each) for each in report.findings]
    assert any(what in each.what for each in report.findings)
    shards = open_shards(made[kind])
    for each in report.findings:
        assert each.batch is not None
        batch = shards[each.batch]
        assert each.shard == shards.find_name(each.batch)
        assert each.row is None or 0 <= each.row < len(batch.lengths)


@pytest.mark.parametrize(
    ("kind", "place"),
    [("packed", 0), ("unsorted", 0), ("left", -1), ("filler", 0), ("varlen", 0), ("pieces", -1)],
)
def test_finding_names_batch_and_row(made: Made, monkeypatch: Patch, kind: str, place: int) -> None:
    """The first id in the packed data is the longest row's, the last one the last row's."""
    faults.change_packed(monkeypatch, faults.add(1e-2, place))
    found = set()
    for each in check(made[kind], level="forward", sample=None).findings:
        if "outputs: error" in each.what:
            found.add((each.batch, each.row))
    expected = set()
    for number, batch in enumerate(open_shards(made[kind])):
        lengths = [int(each) for each in batch.lengths if each]
        if len(lengths) < 2:
            continue
        longest = [row for row, each in enumerate(lengths) if each == max(lengths)]
        expected.add((number, longest[0] if place == 0 else longest[-1]))
    assert found == expected


def test_noise_of_a_device_is_no_leak(made: Made, monkeypatch: Patch) -> None:
    for calls in ({1}, {2}, {2, 3}, {2, 4, 6}, set(range(1, 99, 2))):
        faults.change_packed(monkeypatch, faults.noise(calls, 1e-13))
        options = {"dtype": "float64", "level": "forward", "sample": 1, "cell": "lstm"}
        assert check(made["padded"], **options).findings == [], calls
    faults.change_packed(monkeypatch, faults.noise({2}, 1e-3))
    assert any("unchanged rows" in each.what for each in check(made["padded"], **options).findings)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_error_in_16_bits_is_no_finding(made: Made, monkeypatch: Patch, dtype: str) -> None:
    faults.change_packed(monkeypatch, faults.add(1.0))
    report = check(made["packed"], dtype=dtype, level="forward")
    assert report.passed
    found = report.levels[-1].errors["packed outputs"]
    assert found.share > 1
    assert found.error == pytest.approx(1.0, rel=0.05)  # outputs are at most 1, so is their scale


RECTANGLES: list[tuple[str, dict[str, bool], str, str, str]] = [
    ("outputs", {"single": False}, "packed", "forward", "padded outputs"),
    ("states", {"single": False}, "packed", "forward", "padded h_n"),
    ("outputs", {"single": True}, "streams", "forward", "alone outputs"),
    ("gradient", {"single": False}, "filler", "backward", "padded gradient of"),
    ("outputs", {"single": True, "given": True}, "streams again", "backward", "alone gradient of"),
]


@pytest.mark.parametrize(("what", "options", "kind", "level", "found"), RECTANGLES)
def test_fault_outside_of_packed_sequences_is_found(
    made: Made,
    monkeypatch: Patch,
    what: str,
    options: dict[str, bool],
    kind: str,
    level: str,
    found: str,
) -> None:
    faults.change_rectangles(monkeypatch, what, **options)
    report = check(made[kind], level=level, sample=2)
    assert {each.level for each in report.findings} == {level}
    assert any(found in each.what for each in report.findings), report.findings


def test_gradient_of_an_unused_id_is_found(made: Made, monkeypatch: Patch) -> None:
    right = nn.Embedding.forward

    def forward(module: nn.Embedding, ids: torch.Tensor) -> torch.Tensor:
        return right(module, ids) + 1e-20 * module.weight[0].sum()

    monkeypatch.setattr(nn.Embedding, "forward", forward)
    report = check(made["packed"])
    assert {each.level for each in report.findings} == {"backward"}
    assert all("unused embedding rows" in each.what for each in report.findings)


def test_model_that_computes_nothing_is_found(made: Made, monkeypatch: Patch) -> None:
    right = nn.Embedding.forward
    monkeypatch.setattr(nn.Embedding, "forward", lambda *given: 0 * right(*given))
    found = {each.what for each in check(made["varlen"], level="forward", sample=1).findings}
    assert any("do not change" in each for each in found)
    for kind in CELLS:
        monkeypatch.setattr(KERNELS[kind], "reset_parameters", zero)
        found = {each.what for each in check(made["packed"], level="forward", cell=kind).findings}
        assert any("close to zero" in each for each in found)


def zero(module: nn.Module) -> None:
    for weight in module.parameters():
        nn.init.zeros_(weight)


ERRORS: list[tuple[Exception, type[Exception], str]] = [
    (torch.OutOfMemoryError("CUDA out of memory.\nmore"), MachineError, "batch {}: CUDA out of"),
    (MemoryError(), MachineError, "batch {}: out of memory"),
    (RuntimeError("CUDA error: device-side"), MachineError, "batch {}: CUDA error: device-side"),
    (RuntimeError("something else"), RuntimeError, "something else"),
]


@pytest.mark.parametrize(("error", "kind", "what"), ERRORS, ids=lambda each: str(each)[:20])
def test_device_that_fails_names_the_batch(
    made: Made, monkeypatch: Patch, error: Exception, kind: type[Exception], what: str
) -> None:
    faults.change_packed(monkeypatch, faults.raise_error(error))
    with pytest.raises(kind, match=what.format("0")) as raised:
        check(made["packed"])
    if isinstance(raised.value, MachineError):
        assert raised.value.hint
        assert "more" not in str(raised.value)
        assert str(raised.value).startswith("shard-00000.safetensors: ")


ATTENTION_FAULTS = [
    (faults.see_all_before, "varlen", {}, "attention outputs: error"),
    (faults.see_all_before, "aligned rows", {"max_batch_tokens": 20}, "attention outputs: error"),
    (faults.see_the_next, "rows", {}, "attention outputs: error"),
    (faults.leak_a_little, "chunks", {}, "of unchanged sequences"),
    (faults.leak_a_little, "aligned", {}, "beside changed padding"),
    (faults.spoil_last, "aligned", {"dtype": "bfloat16"}, "of padding are not finite"),
    (faults.spoil_last, "varlen", {"dtype": "bfloat16"}, "attention outputs: error inf"),
]


@pytest.mark.parametrize(("change", "kind", "options", "what"), ATTENTION_FAULTS)
def test_fault_of_attention_is_found(
    made: Made, monkeypatch: Patch, change: Any, kind: str, options: dict[str, Any], what: str
) -> None:
    faults.change_attention(monkeypatch, change)
    report = check(made[kind], **options)
    assert {each.level for each in report.findings} == {"forward"}
    assert any(what in each.what for each in report.findings), report.findings
    shards = open_shards(made[kind])
    for each in report.findings:
        assert each.batch is not None
        assert each.row is None or 0 <= each.row < len(shards[each.batch].lengths)


@pytest.mark.parametrize(
    ("kind", "most"),
    [("varlen", 13), ("varlen", 5), ("pieces", 6), ("rows", 16), ("aligned rows", 33)],
)
def test_attention_covers_as_many_sequences_as_it_may(
    made: Made, monkeypatch: Patch, kind: str, most: int
) -> None:
    masks = faults.change_attention(monkeypatch, lambda *_: None)
    report = check(made[kind], cell="rnn", level="forward", max_batch_tokens=most)
    assert report.passed
    sizes = {len(mask) for mask in masks}
    assert max(sizes) <= most
    for mask in masks:
        assert mask.diagonal().all()
        assert not mask.triu(1).any()
    several = [mask for mask in masks if not mask[:, 0].all()]
    assert several or max(len(batch.lengths) for batch in open_shards(made[kind])) == 1


# The smallest shard is damaged, so there must be several batches in it.
SELF_TESTED = (
    *("buckets", "filler", "pieces", "aligned rows", "streams again", "pairs", "split by"),
)


@pytest.mark.parametrize("name", SELF_TESTED)
def test_self_test_catches_all_its_damages(made: Made, name: str) -> None:
    before = {path: path.read_bytes() for path in made[name].parent.rglob("*") if path.is_file()}
    report = verify(made[name], VerifyOptions(self_test=True, sample=1, hidden_size=8))
    assert [str(each) for each in report.findings] == []
    controls = [*report.controls]
    for each in list_reports(report):
        controls += [] if each is report else each.controls
    assert sum(control.caught is True for control in controls) >= 5
    assert not any(control.caught is False for control in controls)
    assert all((control.caught is None) == (control.found == "") for control in controls)
    levels = {control.level for control in controls if control.caught}
    assert levels >= {"structure", "roundtrip", "forward", "backward"}
    assert {path: path.read_bytes() for path in before} == before


NO_PLACE: list[tuple[str, list[int], dict[str, Any]]] = [
    ("padded", [5, 4, 2], {"cell": "gru", "bidirectional": True, "num_layers": 2}),
    ("packed", [4, 2, 4, 1], {"cell": "rnn", "dtype": "float16"}),
    ("varlen", [12, 9, 5], {"max_batch_tokens": 1, "level": "forward"}),
    ("left", [9, 8, 7, 1, 6, 5], {"max_batch_tokens": 4, "level": "forward", "sample": None}),
    ("varlen", [1], {}),
    ("varlen", [4, 4], {"dtype": "bfloat16"}),
    ("streams", [1], {}),
    ("packed", [3, 3], {}),
]


@pytest.mark.parametrize(("name", "lengths", "options"), NO_PLACE)
def test_self_test_without_a_place_is_no_fault(
    tmp_path: Path, lengths: list[int], options: dict[str, Any], name: str
) -> None:
    path = make_shards(tmp_path, lengths, **KINDS[name])
    report = check(path, self_test=True, **options)
    assert [each for each in report.controls if each.caught is False] == []
    assert report.controls


def test_self_test_leaves_faulty_shards_out(tmp_path: Path) -> None:
    path = make_shards(tmp_path, **KINDS["packed"])
    shards = sorted(path.glob("*.safetensors"))
    for number in (3, 2, 1, 0):  # the smallest is the last
        content = bytearray(shards[number].read_bytes())
        content[-2] ^= 1
        shards[number].write_bytes(content)
        report = check(path, self_test=True, level="roundtrip")
        assert {each.shard for each in report.findings} == {each.name for each in shards[number:]}
        assert bool(report.controls) == (number > 0)
        assert all(each.caught is not False for each in report.controls)
    assert any("self-test skipped" in note for note in report.notes)


@pytest.mark.parametrize("entry", RIGHT_MODELS, ids=str)
def test_right_model_passes(entry: Entry) -> None:
    report = entry.judge(seed=len(str(entry)))
    assert [str(each) for each in report.findings] == []
    names = {"alone", "isolation", *(("causal", "loss") if entry.causal else ())}
    assert set(report.checks) >= {*names, "padding"}
    per_token = str(report.outputs).startswith("token")
    assert per_token == (str(entry) not in ("FinalStates", "MeanOfSequences"))
    assert (report.num_batches, report.num_sequences, report.num_tokens) == (1, 6, 31)
    assert report.mode == ("train" if entry.trains else "eval")
    assert report.dropout == DROPOUTS.get(str(entry), [])
    for name in names - {"loss"}:
        assert report.checks[name].num_sequences == 6 - (name == "causal")
        assert report.checks[name].errors
    dtype = str(entry.dtype).removeprefix("torch.")
    assert report.dtype == dtype
    judged = {"float32": ["float64", "float32"]}.get(dtype, ["float64"])
    assert report.judged == judged[str(entry) == "OneByOne" :]


@pytest.mark.parametrize("entry", MISTAKES, ids=str)
def test_mistake_fails_the_checks_named_for_it(entry: Entry) -> None:
    report = entry.judge()
    assert not report.passed
    assert find_failed(report) - {"order"} == set(entry.faults.split())
    for finding in report.findings:
        assert (finding.batch, finding.shard) == (0, "list")
        assert finding.row is None or 0 <= finding.row < 6


class Near(nn.Module):
    """Adds to each embedding those of the tokens at some distances, wherever they lie."""

    def __init__(self, *distances: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCAB_SIZE, 4)
        self.distances = distances

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(ids)
        total = hidden.clone()
        for distance in self.distances:
            if distance > 0:
                total[distance:] += hidden[:-distance]
            else:
                total[:distance] += hidden[-distance:]
        return total


def call_ids(model: Any, batch: Any) -> Any:
    return model(batch.ids)


def judge(
    model: Any, lengths: Sequence[int] = (5, 8, 3, 6), *, shuffled: bool = False, **given: Any
) -> ModelReport:
    """Check a model on sequences from 100 on in one row.

    Args:
        shuffled: give samples, which are drawn in another order, in place of a batch.
        given: arguments of verify_model, or `causal`.
    """
    samples = draw_samples(lengths, first_index=100)
    given = {"collate_fn": collate_varlen, "call": call_ids, **given}
    if "causal" in given:
        given["options"] = ModelOptions(causal=given.pop("causal"))
    return verify_model(samples if shuffled else iter([collate_varlen(samples)]), model, **given)


TEXTS: list[tuple[tuple[int, ...], tuple[int, ...], bool, str, str]] = [
    # distances, lengths, causal, check, what the finding says
    ((2, 1), (5, 8), False, "isolation", "101 .*sequence 100 .*: its tokens 0 to 1, 1 token be"),
    ((3,), (5, 8), False, "isolation", "101 .*: its tokens 0 to 2, 1 token behind the end of seq"),
    ((1,), (5, 8), False, "alone", r"101 differ .*alone: its token 0 \(error"),
    ((-1,), (5, 8), False, "isolation", "100 .*: its token 4, 1 token before the beginning of"),
    ((-3,), (5, 8), False, "isolation", "100 .*: from its token 2 on, 1 token before the beginn"),
    ((9, 8), (2, 8), False, "alone", "101 differ .*alone: from its token 6 on"),
    ((5, 2), (2, 9), False, "alone", r"101 .*: 4 of its 9 tokens, the first is token 0 \("),
    ((20, 5), (5, 5), False, "alone", "101 .*: all its tokens"),
    ((-2,), (20,), True, "causal", r"of token \d+ of sequence 100 .* token \d+ is .*, 2 tokens"),
    ((-1,), (20,), True, "causal", r"its token \d+ is changed, 1 token later"),
    ((-1, -2), (20,), True, "causal", r"of tokens \d+ to \d+ of .*changed, 1 to 2 tokens later"),
]


@pytest.mark.parametrize(("distances", "lengths", "causal", "check", "what"), TEXTS)
def test_finding_names_sequences_tokens_and_distance(
    distances: tuple[int, ...], lengths: tuple[int, ...], causal: bool, check: str, what: str
) -> None:
    model = Near(*(each for each in distances if abs(each) < sum(lengths)))
    report = judge(model, lengths, causal=causal)
    assert check in find_failed(report)
    assert any(re.search(what, each.what) for each in report.findings), report.findings


def test_leak_is_no_error_of_causality() -> None:
    report = judge(Near(1, 2, 3), causal=True)
    assert find_failed(report) - {"order"} == {"alone", "isolation"}
    assert all(each.error == 0 for each in report.checks["causal"].errors.values())


def pad_last(value: float) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda outputs: nn.functional.pad(outputs, (0, 1), value=value)


def add_chaos(outputs: torch.Tensor) -> torch.Tensor:
    """Add a feature that amplifies rounding errors."""
    chaos = outputs[:, :1]
    for _ in range(80):
        chaos = torch.sin(4 * chaos + 1) * 3
    return torch.cat([outputs, chaos], 1)


CONVERTED: dict[str, Callable[[torch.Tensor], Any]] = {
    "masks": pad_last(-math.inf),
    "masks with a number": pad_last(-1e9),
    "masks with the least": pad_last(torch.finfo(torch.float32).min),
    "amplifies": add_chaos,
    "complex": lambda outputs: torch.view_as_complex(outputs.reshape(-1, 2, 2)),
    "classes": lambda outputs: outputs > 0,
    "small": lambda outputs: 1e-20 * outputs,
    "in a list": lambda outputs: [{"x": outputs, "logits": outputs}],
    "one more dimension": lambda outputs: outputs[None],
    "no features": lambda outputs: outputs[:, 0],
}


@pytest.mark.parametrize("name", CONVERTED)
def test_no_form_of_outputs_hides_a_leak(name: str) -> None:
    convert = CONVERTED[name]
    for model, passes in ((Near(), True), (Near(1, 2), False)):
        report = judge(model, call=lambda model, batch: convert(model(batch.ids)))
        assert report.passed == passes, report.findings
        assert report.passed or report.findings[0].batch == 0


def test_outputs_where_rounding_leaves_nothing_to_judge_are_noted() -> None:
    def call(model: nn.Module, batch: Any) -> torch.Tensor:
        hidden = model(batch.ids)
        return add_chaos(hidden[:, :1] + 1e-7 * hidden[:1, :1])[:, 1:]

    report = judge(Near(), call=call)
    assert any(each.startswith("not judged: isolation in 1 of 1") for each in report.notes)
    assert set(report.checks["isolation"].unjudged) == {"float32", "float64"}


class Restless(nn.Module):
    """Changes all kinds of its own state, and its batch, in each call."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCAB_SIZE, 8, max_norm=0.5)
        self.dropout, self.norm = nn.Dropout(0.5), nn.LayerNorm(8)
        self.last = nn.LazyLinear(4)
        self.register_buffer("average", torch.zeros(4))
        self.register_buffer("resized", torch.zeros(0))
        self.table = torch.zeros(0)
        self.drop_path_rate, self.layerdrop = 0.25, 0  # only a number above 0 is switched off

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        assert self.drop_path_rate == 0.0
        self.norm.weight.add_(1e-12)
        hidden = self.last(self.norm(self.dropout(self.embedding(ids))))
        self.average = self.average + hidden.mean()
        self.resized.resize_(len(ids))
        self.table, self.added = torch.zeros(len(ids)), random.random() + np.random.rand()
        self.norm.eval()
        ids.fill_(0)
        return hidden


def test_state_of_model_batch_and_process_is_as_before() -> None:
    model = Restless()
    model.last(torch.zeros(1, 8))
    model.embedding.weight.grad = torch.ones(VOCAB_SIZE, 8)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    names, tensors = set(vars(model)), [*model.buffers(), *model.parameters()]
    state = torch.random.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    batches = [collate_varlen(draw_samples())]
    ids = batches[0].ids.clone()
    report = verify_model(iter(batches), model, call=call_ids)
    assert report.findings == []
    assert report.dropout == [
        "the model (Restless, drop_path_rate=0.25)",
        "dropout (Dropout, p=0.5)",
    ]
    assert report.mode == "train"
    assert model.training
    assert model.norm.training
    assert (model.dropout.p, model.drop_path_rate) == (0.5, 0.25)
    after = model.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert all(
        one is two
        for one, two in zip(tensors, [*model.buffers(), *model.parameters()], strict=True)
    )
    assert (len(model.resized), len(model.table), set(vars(model))) == (0, 0, names)
    assert model.embedding.weight.grad.eq(1).all()
    now = torch.random.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    assert torch.equal(now[0], state[0])
    assert now[1:] == state[1:]
    assert torch.equal(batches[0].ids, ids)


def test_lazy_model_keeps_the_shapes_of_the_first_batch() -> None:
    model = nn.Sequential(nn.Embedding(VOCAB_SIZE, 8), nn.LazyLinear(4))
    assert judge(model).passed
    assert model[1].in_features == 8


def randomize(size: float, *, trains: bool) -> Callable[[nn.Module, Any], torch.Tensor]:
    def call(model: nn.Module, batch: Any) -> torch.Tensor:
        hidden = model(batch.ids)
        is_random = model.training or not trains
        return hidden + size * is_random * torch.rand_like(hidden)

    return call


def test_random_model_is_checked_in_eval_mode_or_reported() -> None:
    report = judge(Near(), call=randomize(0.1, trains=True))
    assert report.passed
    assert report.mode == "eval"
    assert any("random in train mode" in note for note in report.notes)
    report = judge(Near(1), call=randomize(0.1, trains=True))
    assert find_failed(report) - {"order"} == {"alone", "isolation"}
    report = judge(Near(), call=randomize(0.1, trains=False))
    assert [each.batch for each in report.findings] == [0]
    assert "outputs are random" in report.findings[0].what
    assert judge(Near(), call=randomize(1e-12, trains=False)).passed


def test_batch_normalization_is_named() -> None:
    model = nn.Sequential(nn.Embedding(VOCAB_SIZE, 8), nn.Dropout(0.5), nn.BatchNorm1d(8))
    report = judge(model)
    assert {"isolation"} <= find_failed(report)
    assert any("2 (BatchNorm1d) is in train mode" in note for note in report.notes)
    assert judge(model.eval()).notes == []
    model.train()
    with pytest.raises(ModelError, match=r"sequence 10\d alone: the model raised ValueError"):
        judge(model, (1, 4, 2), call=lambda model, batch: model(batch.ids) * 0 + batch.ids[:, None])


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_outputs_that_are_not_finite_are_found(value: float, dtype: torch.dtype) -> None:
    def call(model: nn.Module, batch: Any) -> torch.Tensor:
        outputs = model(batch.ids)
        outputs[6] = value  # of sequence 101
        return outputs

    report = judge(Near().to(dtype), call=call)
    (finding,) = report.findings
    assert "outputs of sequence 101 are not finite" in finding.what
    assert (finding.batch, finding.row) == (0, 1)


def test_model_that_ignores_its_input_is_found() -> None:
    report = judge(Near(), call=lambda model, batch: model(torch.zeros_like(batch.ids)))
    assert [each.what for each in report.findings] == ["outputs do not change when ids are changed"]

    def call_first(model: nn.Module, batch: Any) -> torch.Tensor:
        outputs = model(batch.ids)
        return torch.cat([outputs[:13], torch.zeros_like(outputs[13:])])

    report = judge(Near(), call=call_first)
    assert any(
        "sequence 102 do not change when its ids are changed, nor do those of 1 others" in each.what
        for each in report.findings
    )


class Pair(NamedTuple):
    ids: torch.Tensor
    mask: torch.Tensor


@dataclass
class Rows:
    ids: torch.Tensor
    mask: torch.Tensor


CONTAINERS: dict[str, tuple[Callable[..., Any], Callable[[Any], Any]]] = {
    "dict": (lambda ids, mask: {"ids": ids, "mask": mask}, lambda batch: batch["ids"]),
    "tuple": (lambda ids, mask: (ids, mask), lambda batch: batch[0]),
    "list": (lambda ids, mask: [ids, [mask]], lambda batch: batch[0]),
    "namedtuple": (Pair, lambda batch: batch.ids),
    "dataclass": (Rows, lambda batch: batch.ids),
    "tensor": (lambda ids, _: ids, lambda batch: batch),
    "columns": (lambda ids, _: ids.T.contiguous(), lambda batch: batch),
}


SOURCES = [
    *((kind, "samples") for kind in CONTAINERS),
    *(("dict", source) for source in ("loader", "batches", "no collate_fn")),
]


@pytest.mark.parametrize(("kind", "source"), SOURCES)
def test_batches_of_others_are_checked(kind: str, source: str) -> None:
    wrap, take = CONTAINERS[kind]

    def collate(samples: list[torch.Tensor]) -> Any:
        samples = sorted(samples, key=lambda each: -len(each))
        ids = nn.utils.rnn.pad_sequence(samples, batch_first=True)
        return wrap(ids, ids > 0)

    def locate(batch: Any) -> tuple[torch.Tensor, list[torch.Tensor]]:
        ids = take(batch)
        places = torch.arange(ids.numel()).view(ids.shape)
        rows = (
            zip(ids.T, places.T, strict=True)
            if kind == "columns"
            else zip(ids, places, strict=True)
        )
        return ids, [place[row > 0] for row, place in rows]

    ids = [each.ids for each in draw_samples()]
    collates = None if source in ("loader", "no collate_fn") else collate
    batches: Any = {
        "samples": ids,
        "loader": DataLoader(ids, 3, collate_fn=collate),  # type: ignore[arg-type]
        "batches": iter([collate(ids[:3]), collate(ids[3:])]),
        "no collate_fn": iter([collate(ids)]),
    }[source]
    check = partial(verify_model, collate_fn=collates, locate=locate)
    options = ModelOptions(batch_size=4)
    model = nn.Embedding(VOCAB_SIZE, 4)
    report = check(batches, model, call=lambda model, batch: model(take(batch)), options=options)
    assert report.findings == []
    assert report.num_batches == (1 if source == "no collate_fn" else 2)
    assert report.num_sequences == 6
    alone = report.checks["alone"]
    assert alone.num_sequences == (0 if source == "no collate_fn" else 6)
    if source == "no collate_fn":
        assert set(report.unchecked) >= {"alone"}
        assert any("alone was not checked: no collate_fn" in note for note in report.notes)
    if source == "samples":
        leak = lambda model, batch: model(take(batch)) + model(take(batch)).mean()  # noqa: E731
        report = check(ids, model, call=leak, options=options)
        assert {"alone", "isolation"} <= find_failed(report)
        assert any("1 row apart" in str(each) for each in report.findings) or kind == "columns"


def test_samples_of_equal_ids_and_other_features_are_told_apart() -> None:
    def collate(samples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        samples = sorted(samples, key=lambda sample: -sample["speaker"][0])
        speakers = torch.tensor([sample["speaker"][0] for sample in samples])
        return {"ids": torch.stack([each["ids"] for each in samples]), "speakers": speakers}

    samples = [{"ids": torch.tensor([1 + i % 2]), "speaker": [i, "x"]} for i in range(12)]
    report = verify_model(
        samples,
        nn.Embedding(VOCAB_SIZE, 4),
        collate_fn=collate,
        call=lambda model, batch: model(batch["ids"]) + model(batch["speakers"])[:, None],
        locate=lambda batch: (batch["ids"], [[k] for k in range(len(batch["ids"]))]),
    )
    assert report.findings == []


def test_other_batches_show_what_outputs_are() -> None:
    """The first batch has as many rows as features, and as many columns."""

    def pool(model: nn.Module, batch: Any) -> torch.Tensor:
        return (model.embedding(batch.ids) * batch.mask[..., None]).sum(dim=1)

    def trim(model: nn.Module, batch: Any) -> torch.Tensor:
        return model.embedding(batch.ids)[:, : int(batch.mask.sum(dim=1).max())]

    def sum_up(model: nn.Module, batch: Any) -> torch.Tensor:
        return (model.embedding(batch.ids) * batch.mask[..., None]).sum(dim=(1, 2))

    collate = partial(collate_padded, pad_id=0, pad_to_multiple=4)
    for call, kind in ((pool, "sequence"), (trim, "token"), (sum_up, "sequence")):
        batches = [collate(draw_samples(each)) for each in ((4, 2, 1, 1), (5, 3), (1, 1))]
        report = verify_model(iter(batches), Near(), collate_fn=collate, call=call)
        assert report.findings == []
        assert str(report.outputs).startswith(kind)
        assert report.checks["alone"].num_sequences == 8


def test_checks_that_cannot_run_say_why() -> None:
    one = torch.ones(3, dtype=torch.int64)
    samples = [TokenSequence(one, index) for index in range(2)]
    report = verify_model(
        samples, Near(), collate_fn=collate_varlen, call=call_ids, options=ModelOptions(causal=True)
    )
    assert set(report.unchecked) >= {"isolation", "causal", "loss", "padding"}
    assert all(report.checks[name].why_not for name in report.unchecked)
    report = judge(Near(), (1, 1, 1), causal=True)
    assert report.passed
    assert "causal" in report.unchecked
    report = judge(Near(), (7,))
    assert {"isolation", "padding"} <= set(report.unchecked)
    mean = lambda model, batch: model(batch.ids).mean(0, keepdim=True)  # noqa: E731
    report = judge(Near(), (7,), causal=True, call=mean)
    assert report.outputs == "sequence"
    assert "causal" in report.unchecked


def test_at_most_sixteen_sequences_run_alone_with_the_extremes() -> None:
    alone: list[int] = []

    def call(model: nn.Module, batch: Any) -> torch.Tensor:
        if len(batch.lengths) == 1 and alone[-1:] != [int(batch.original_indices)]:
            alone.append(int(batch.original_indices))
        return model(batch.ids)

    report = judge(Near(), [2] * 9 + [7] + [2] * 9 + [1] + [2] * 5, call=call)
    assert report.checks["alone"].num_sequences == 16
    assert {100, 109, 119, 124} <= set(alone)
    assert len(set(alone)) <= 17


def change(sample: TokenSequence, *, ids: torch.Tensor) -> TokenSequence:
    return TokenSequence(ids, sample.original_index)


WRONG_COLLATES: list[tuple[Callable[[Any], Any], type[Exception] | None, str]] = [
    (lambda samples: samples[:-1] or samples, ValueError, "list: batch 0: .*collate_fn"),
    (lambda samples: [*samples, *samples], ValueError, "2 sequences of one sample"),
    (
        lambda samples: [change(each, ids=each.ids + len(samples)) for each in samples],
        ValueError,
        "other ids",
    ),
    (lambda samples: [change(each, ids=each.ids[:7]) for each in samples], None, "has 7 ids"),
    (lambda samples: [change(each, ids=each.ids.flip(0)) for each in samples], None, "as token 0"),
]


@pytest.mark.parametrize(("change", "error", "what"), WRONG_COLLATES)
def test_wrong_collate_function_is_named(change: Any, error: Any, what: str) -> None:
    collate = lambda samples: collate_varlen(change(samples))  # noqa: E731
    if error is not None:
        with pytest.raises(error, match=what):
            judge(Near(), collate_fn=collate, shuffled=True)
        return
    report = judge(Near(), collate_fn=collate, shuffled=True)
    assert any(
        what in each.what and "collate_fn lays it out" in each.what for each in report.findings
    )


WRONG_LOCATES: list[tuple[Callable[[Any], Any], str]] = [
    (lambda batch: batch.ids, "expected"),
    (lambda batch: (batch.ids.float(), [[0]]), "tensor of integers"),
    (lambda batch: (batch.ids > 0, [[0]]), "tensor of integers"),
    (lambda batch: (batch.ids, [[0.5]]), "not integers"),
    (lambda batch: (batch.ids, []), "no sequence"),
    (lambda batch: (batch.ids, [[-1]]), "outside"),
    (lambda batch: (batch.ids, [[len(batch.ids)]]), "outside"),
    (lambda batch: (batch.ids, [[0, 1], [1]]), "a cell twice"),
    (lambda batch: (batch.ids, [[0, 0]]), "a cell twice"),
]


@pytest.mark.parametrize(("locate", "what"), WRONG_LOCATES)
def test_wrong_locate_is_refused(locate: Callable[[Any], Any], what: str) -> None:
    batches = iter([collate_varlen(draw_samples())])
    with pytest.raises(ValueError, match=f"locate.*{what}"):
        verify_model(batches, Near(), call=call_ids, locate=locate)


def fail(*_: Any) -> Any:
    raise KeyError("no such thing")


def leave(*_: Any) -> Any:
    sys.exit(0)


def run_out(*_: Any) -> Any:
    raise torch.OutOfMemoryError("CUDA out of memory.\nmore")


def interrupt(*_: Any) -> Any:
    raise KeyboardInterrupt


WRONG_CALLS: list[tuple[Callable[..., Any], type[BaseException], str]] = [
    (fail, ModelError, "list: batch 0: the model raised KeyError"),
    (leave, ModelError, r"list: batch 0: the model called sys.exit\(0\)"),
    (run_out, MachineError, "list: batch 0: CUDA out of memory"),
    (interrupt, KeyboardInterrupt, "^$"),
    (lambda *_: torch.zeros(3, 4), OptionError, r"shape \[3, 4\], expected \[22, \.\.\.\]"),
    (lambda *_: {"loss": torch.zeros(())}, OptionError, "returned dict"),
    (lambda *_: None, OptionError, "returned NoneType"),
    (lambda *_: torch.nested.nested_tensor([torch.zeros(2)]), OptionError, "a nested tensor"),
]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize(("call", "error", "what"), WRONG_CALLS)
def test_model_that_fails_names_the_batch(call: Any, error: Any, what: str) -> None:
    with pytest.raises(error, match=what) as raised:
        judge(Near(), call=call, shuffled=True)
    if error is ModelError:
        assert "test_verify_models.py" in raised.value.traceback
        assert "seqpack_cli" not in raised.value.traceback
    if error is OptionError:
        assert "--call" in str(raised.value.hint)


WRONG_ARGUMENTS: list[tuple[Any, Any, type[Exception], str]] = [
    ([1, 2], Near(), ValueError, "batches are int: pass locate"),
    ([], Near(), ValueError, "no batch"),
    ([collate_varlen(draw_samples())], nn.Module, TypeError, "expected an nn.Module"),
    ([collate_varlen(draw_samples())], len, TypeError, "expected an nn.Module"),
    (
        [collate_varlen(draw_samples())],
        nn.Embedding(2, 2).to(torch.float8_e5m2),
        ValueError,
        "e5m2",
    ),
]


@pytest.mark.parametrize(("batches", "model", "error", "what"), WRONG_ARGUMENTS)
def test_wrong_arguments_are_refused(batches: Any, model: Any, error: Any, what: str) -> None:
    with pytest.raises(error, match=what):
        verify_model(batches, model, call=None if batches == [1, 2] else call_ids)


class Pointwise(Plain):
    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.head(self.embedding(ids)) * mask[..., None]


class ByPositions(Plain):
    """Finds sequences in rows by their positions; padding is seen by itself."""

    def forward(
        self, input_ids: torch.Tensor, position_ids: torch.Tensor, **_: Any
    ) -> torch.Tensor:
        numbers = (position_ids == 0).cumsum(dim=1)
        sees = (numbers[:, :, None] == numbers[:, None]).tril()
        hidden = self.embedding(input_ids) + self.positions(position_ids)
        return self.head(nn.functional.scaled_dot_product_attention(*[hidden] * 3, attn_mask=sees))


LAID_OUT: dict[str, tuple[Callable[..., nn.Module], str]] = {
    "packed": (DataOnly, "next"),
    "left": (Pointwise, "next"),
    "filler": (Pointwise, "same"),
    "pieces": (ByPositions, "same"),
    "aligned rows": (ByPositions, "next"),
    "streams": (Stepwise, "next"),
    "streams again": (Stepwise, "next"),
}


@pytest.mark.parametrize("kind", LAID_OUT)
def test_shards_are_checked_by_the_default_call(made: Made, kind: str) -> None:
    """Batches are laid out again with the labels, the columns and the padding of the shards."""
    make, labels = LAID_OUT[kind]
    shards = ShardDataset(made[kind], labels=labels)
    model, seen = make(shards.vocab_size), []
    report = verify_model(shards, model, options=ModelOptions(sample=2, seed=1))
    assert report.findings == []
    assert report.num_batches == 2
    assert report.checks["alone"].num_sequences >= 2

    def call(model: nn.Module, batch: Any) -> Any:
        ids = batch.sequences.data if kind == "packed" else batch.ids
        assert batch.labels.shape == ids.shape
        assert set(batch.columns) == {"lang", "score"}
        seen.append(ids.shape)
        return model.embedding(ids)

    assert verify_model(shards[:1], model, call=call).num_batches == 1
    if kind == "aligned rows":
        assert {shape[-1] for shape in seen} == {16}


@pytest.mark.parametrize("make", STREAM_MISTAKES)
def test_mistake_with_streams_is_found(made: Made, make: Any) -> None:
    shards = ShardDataset(made["streams"])
    report = verify_model(shards, make(shards.vocab_size), options=ModelOptions(sample=2))
    assert {"alone", "isolation"} <= find_failed(report)
    assert {each.shard for each in report.findings} == {"ShardDataset"}


def test_store_and_sample_of_shards_are_checked(made: Made) -> None:
    store = StoreDataset(made["packed"].parent / "store")
    model = nn.Embedding(1000, 4)
    collate = partial(collate_padded, pad_id=0)
    options = ModelOptions(sample=2, batch_size=3)
    report = verify_model(store, model, collate_fn=collate, call=call_ids, options=options)
    assert (report.num_batches, report.num_sequences, report.findings) == (2, 6, [])
    seen = set()

    def call(model: nn.Module, batch: Any) -> Any:
        if len(batch.lengths) > 1:
            seen.add(tuple(batch.original_indices.tolist()))
        return model(batch.ids)

    shards = ShardDataset(made["aligned"])
    loader = DataLoader(shards, batch_size=None)
    assert verify_model(loader, model, call=call_ids, options=ModelOptions(sample=2)).passed
    verify_model(shards, model, call=call, options=ModelOptions(sample=2), collate_fn=None)
    ends = [tuple(shards[k].original_indices.tolist()) for k in (0, len(shards) - 1)]
    assert set(ends) <= seen


MODULE = """
import argparse, random, sys, torch
import numpy
from torch import nn
from seqpack_cli import PaddedTensors

argparse.ArgumentParser().parse_args()  # not of seqpack's arguments
torch.set_default_dtype(torch.float16)
torch.set_float32_matmul_precision("high")
torch.set_num_threads(2)
print("imported")

class Tagger(nn.Module):
    def __init__(self, vocab_size, **options):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, 8, dtype=torch.float32)
        self.lstm = nn.LSTM(8, 8, batch_first=True, dtype=torch.float32, **options)

    def forward(self, ids, mask):
        print("called")
        torch.set_default_device("meta")
        torch.use_deterministic_algorithms(True)
        torch.set_grad_enabled(True)
        return self.lstm(self.embedding(ids))[0]

class Other(Tagger):
    def forward(self, ids):
        return self.embedding(ids)

class Exits(Tagger):
    def forward(self, *_):
        sys.exit(0)

class Sparse(Tagger):
    def forward(self, ids, mask):
        return self.embedding(ids).to_sparse()

def maker(kind, **options):
    return lambda vocab_size, device, dtype: kind(vocab_size, **options).to(device, dtype)

make, make_wrong = maker(Tagger), maker(Tagger, bidirectional=True)
make_other, make_exits, make_sparse = maker(Other), maker(Exits), maker(Sparse)
make_half = lambda vocab_size, device, dtype: Tagger(vocab_size).half()

def make_nothing(vocab_size, device, dtype):
    pass

def exits(vocab_size, device, dtype):
    sys.exit(0)

def no_arguments():
    pass

def call(model, batch):
    assert isinstance(batch, PaddedTensors) and batch.labels is not None
    return model(batch.ids, batch.mask)

chosen = []

def note(model, batch):
    chosen.append(tuple(batch.original_indices.tolist()))
    return model.embedding(batch.ids if hasattr(batch, "ids") else batch.sequences.data)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: Patch) -> Path:
    """Be in a folder with a module of the user's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "argv", ["seqpack", "verify", "--model"])
    for name, text in (
        ("user_module", MODULE),
        ("script_module", "import sys\nsys.exit(0)\n"),
        ("broken_module", "x = = 1\n"),
        ("lost_module", "import no_such_module\n"),
    ):
        monkeypatch.delitem(sys.modules, name, raising=False)
        (tmp_path / f"{name}.py").write_text(text)
    return tmp_path


def test_command_checks_a_model(made: Made, module: Path) -> None:
    own = ("--model", "user_module:make", "--call", "user_module:call", "--causal")
    precision, num_threads = torch.get_float32_matmul_precision(), torch.get_num_threads()
    result = run("verify", made["padded"], *own, "--sample", 2)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[1] == "on cpu, user_module:make, float32, seed 0"
    names = [line.split()[0] for line in lines if line]
    assert {"structure", "roundtrip", "alone", "isolation", "padding", "causal"} <= set(names)
    assert "called" not in names
    result = run("verify", made["padded"], *own, "--sample", 2, "--json")
    report = json.loads(result.stdout)
    assert report["passed"]
    assert report["cell"] is None
    assert report["model"]["checks"]["alone"]["num_sequences"] >= 4
    assert report["model"]["judged"] == ["float64", "float32"]
    assert report["levels"][-1]["num_batches"] == 2
    assert report["levels"][-1]["errors"]
    assert "called\n" in result.stderr
    assert torch.get_default_dtype() is torch.float32
    assert torch.get_default_device() == torch.device("cpu")
    assert torch.get_float32_matmul_precision() == precision
    assert torch.get_num_threads() == num_threads
    assert not torch.are_deterministic_algorithms_enabled()


def test_command_reports_the_faults_of_a_model(made: Made, module: Path) -> None:
    result = run("verify", made["padded"], "--model", "user_module:make_wrong", "--sample", 2)
    assert result.exit_code == 1
    assert "change when the ids in padding cells are changed" in result.stdout
    assert "differ from those of the sequence alone" in result.stdout
    options = VerifyOptions(model="user_module:make_wrong", sample=1)
    report = verify(made["padded"], options)
    assert isinstance(report, Report)
    assert find_failed(report) - {"order"} == {"alone", "padding"}
    names = {open_shards(made["padded"]).find_name(each.batch or 0) for each in report.findings}
    assert {each.shard for each in report.findings} == names
    assert not report.passed
    options = VerifyOptions(model="user_module:make_half", dtype="float16", sample=1)
    report = verify(made["padded"], options)
    assert isinstance(report, Report)
    assert report.passed
    assert report.is_gate == bool(report.model and report.model.judged)


def test_sample_has_the_batches_that_tell_most(tmp_path: Path, module: Path) -> None:
    """The most uneven, the longest, the one of one row, the shortest, and one of equal rows."""
    lengths = [20, 2, 30, 29, 9, 9, 1, 1, *[15, 13] * 8, 8]
    path = make_shards(tmp_path / "made", lengths, batch_size=2, order="none")
    sys.modules.pop("user_module", None)
    for sample, seed in ((1, 0), (2, 0), (4, 1), (5, 2), (8, 3)):
        options = VerifyOptions(
            model="user_module:make", call="user_module:note", sample=sample, seed=seed
        )
        assert verify(path, options).passed
        chosen = sys.modules["user_module"].chosen
        found = {tuple(sorted(each)) for each in chosen}
        special = [{(0, 1)}, {(2, 3)}, {(24,)}, {(6, 7)}, {(4, 5)}][:sample]
        assert set().union(*special) <= found, (sample, seed)
        chosen.clear()


MODULES: list[tuple[str, int, str, str]] = [
    ("script_module:make", 5, "importing script_module called sys.exit(0)", "__main__"),
    ("user_module:exits", 5, "the function called sys.exit(0)", "let exits return the model"),
    ("user_module:make_exits", 5, "batch 0: the model called sys.exit(0)", "in forward"),
    ("user_module:make_other", 5, "batch 0: the model raised TypeError", "pass --call"),
    ("user_module:make_sparse", 5, "its outputs cannot be compared", ""),
    ("user_module:no_arguments", 5, "raised TypeError", "take (vocab_size, device, dtype)"),
    ("user_module:Tagger", 5, "the class raised TypeError", "pass a function that takes"),
    ("user_module:make_nothing", 2, "returned NoneType, expected an nn.Module", "return the model"),
    ("user_module:make_half", 2, "float16", ""),
    ("user_module:mak", 2, "'mak' does not exist in user_module", "pass --model user_module:make"),
    ("user_module:chosen", 2, "chosen", ""),
    ("broken_module:make", 5, "importing broken_module raised SyntaxError", "    x = = 1"),
    ("lost_module:make", 5, "raised ModuleNotFoundError", "no_such_module"),
    ("no_such.models:make", 2, "no module 'no_such'", "the folder that holds no_such"),
    ("user_module.py:make", 2, "user_module.py is not the name", "pass --model user_module:make"),
    ("./a/b.py:make", 2, "./a/b.py is not the name of a module", "pass --model a.b:make"),
    ("/a/b.py:make", 2, "/a/b.py is not the name of a module", "run seqpack in /a"),
    ("../c/b:make", 2, "../c/b is not the name of a module", "c.b:make"),
    (".user_module:make", 2, ".user_module is not the name", "pass --model user_module:make"),
]


@pytest.mark.parametrize(("name", "code", "message", "hint"), MODULES, ids=lambda each: str(each))
def test_message_says_what_the_users_code_did(
    made: Made, module: Path, name: str, code: int, message: str, hint: str
) -> None:
    result = run("verify", made["padded"], "--model", name, "--json")
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    assert message in result.stderr
    assert hint in result.stderr
    assert "importlib" not in result.stderr


def test_finding_and_report_are_json(made: Made, monkeypatch: Patch) -> None:
    faults.change_packed(monkeypatch, faults.spoil(math.nan))
    report = check(made["packed"], level="forward", sample=1)
    document = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert not document["passed"]
    first = document["findings"][0]
    assert Finding(**first) == report.findings[0]
    assert str(report.findings[0]).startswith(
        f"forward: {first['shard']}: batch {first['batch']}: row {first['row']}: packed"
    )
    assert document["levels"][2]["errors"]["packed outputs"]["error"] == "inf"
    for kind, parts in (("pairs", "sides"), ("splits", "splits")):
        report = verify(made[kind], VerifyOptions(level="forward", sample=1, hidden_size=8))
        document = json.loads(json.dumps(report.to_json(), allow_nan=False))
        assert document["passed"] is report.passed is False
        assert len(report.findings) == sum(len(each.findings) for each in list_reports(report))
        names = {str(each).split(": ")[1 + (kind == "pairs")] for each in report.findings}
        assert len(names) == len(document[parts])
