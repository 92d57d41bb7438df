"""The verify run: good shards pass, the report says what was covered, the rest is an error."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from shard_reference import (
    LENGTHS,
    Arrays,
    change_manifest,
    change_shard,
    flip_byte,
    make_shards,
    make_store,
    make_texts,
    plan_by_another_version,
)

from seqpack_cli.batching.options import PLAN_VERSION, PackOptions
from seqpack_cli.errors import FolderError, MachineError, OptionError
from seqpack_cli.reporting.terminal.verify_summary import summarize
from seqpack_cli.runs.workers import Executor, Progress
from seqpack_cli.shards.pack_run import pack
from seqpack_cli.shards.padded import PaddedBatch
from seqpack_cli.shards.shard_set import open_shards
from seqpack_cli.verification import model_levels, verify_run
from seqpack_cli.verification.levels import Verification
from seqpack_cli.verification.models import batch_ids, computation
from seqpack_cli.verification.models.batch_ids import BatchIds
from seqpack_cli.verification.models.model import CELLS, Model
from seqpack_cli.verification.models.ways import Run, run_packed
from seqpack_cli.verification.options import LEVELS, VerifyOptions
from seqpack_cli.verification.report import Report

LAYOUTS = ("packed", "padded")
ON_CPU = ("structure", "roundtrip", "forward", "backward")  # `run` only where asked for


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module", params=LAYOUTS)
def shards(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    return make_shards(folder, layout=request.param, shard_bytes=1)


def verify(path: Path, **options: Any) -> Report:
    return verify_run.verify(path, VerifyOptions(**options))


@pytest.mark.parametrize(
    ("cell", "dtype"), [("lstm", "float32"), *((cell, "float64") for cell in CELLS)]
)
def test_good_shards_pass_all_levels(shards: Path, cell: str, dtype: str) -> None:
    report = verify(shards, cell=cell, dtype=dtype)
    assert report.findings == []
    assert report.passed
    assert report.is_gate
    assert [level.level for level in report.levels] == list(ON_CPU)
    for level in report.levels:
        assert (level.num_batches, level.num_tokens, level.num_cut_batches) == (3, 37, 0)
    for level in report.levels[2:]:
        assert level.worst is not None
        assert 0 < level.worst.share <= 1
        assert level.worst.error <= level.worst.limit


@pytest.mark.cuda
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_good_shards_pass_all_levels_on_cuda(shards: Path, cell: str, dtype: str) -> None:
    report = verify(shards, cell=cell, dtype=dtype, device="cuda")
    assert report.findings == []
    assert report.device.startswith("cuda")
    assert report.device_name == torch.cuda.get_device_name()
    assert [level.num_batches for level in report.levels] == [3] * 5  # with `run`


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bit_is_reported_on_cuda(shards: Path, dtype: str) -> None:
    report = verify(shards, dtype=dtype, device="cuda")
    assert report.passed
    assert not report.is_gate


@pytest.mark.cuda
def test_flipped_id_is_found_on_cuda(tmp_path: Path) -> None:
    path = make_shards(tmp_path)
    change_shard(path, flip_id)
    report = verify(path, device="cuda")
    assert [finding.level for finding in report.findings] == ["roundtrip"]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bit_is_reported_and_never_a_finding(shards: Path, dtype: str) -> None:
    report = verify(shards, dtype=dtype)
    assert report.passed
    assert not report.is_gate
    assert report.levels[2].errors["packed outputs"].error > 1e-5


LEVELS_THAT_RUN: list[tuple[str, bool | None, tuple[str, ...]]] = [
    ("structure", None, LEVELS[:1]),
    ("roundtrip", None, LEVELS[:2]),
    ("run", None, LEVELS[:3]),
    ("forward", None, ON_CPU[:3]),
    ("forward", False, ON_CPU[:3]),
    ("forward", True, LEVELS[:4]),
    ("backward", None, ON_CPU),
    ("backward", True, LEVELS),
]


@pytest.mark.parametrize(("level", "every_batch", "expected"), LEVELS_THAT_RUN, ids=str)
def test_levels_are_cumulative_and_end_at_the_asked_one(
    shards: Path, level: str, every_batch: bool | None, expected: tuple[str, ...]
) -> None:
    report = verify(shards, level=level, every_batch=every_batch)
    assert tuple(level.level for level in report.levels) == expected
    assert [level.num_batches for level in report.levels] == [3] * len(expected)
    assert report.passed


@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_level_run_is_checked_on_a_gpu_unless_switched_off(device: str) -> None:
    assert VerifyOptions(device=device).levels == LEVELS
    assert VerifyOptions(device=device, level="run").levels == LEVELS[:3]
    assert VerifyOptions(device=device, every_batch=False).levels == ON_CPU


RUN_HINT = "pass --level run to run the model over every batch and stop there"


@pytest.mark.parametrize(
    ("level", "every_batch", "hint"),
    [
        ("structure", True, RUN_HINT),
        ("roundtrip", True, RUN_HINT),
        ("run", True, "leave out --every-batch"),
        ("structure", False, "leave out --no-every-batch"),
        ("roundtrip", False, "leave out --no-every-batch"),
        ("run", False, "pass --level roundtrip, which does not run the model"),
    ],
)
def test_every_batch_without_effect_is_refused(level: str, every_batch: bool, hint: str) -> None:
    name = "--every-batch" if every_batch else "--no-every-batch"
    with pytest.raises(OptionError) as caught:
        VerifyOptions(level=level, every_batch=every_batch)
    assert str(caught.value) == (
        f"{name} needs --level forward or backward, found --level {level}\n\nhint: {hint}"
    )


def test_level_run_stops_before_the_sample(tmp_path: Path) -> None:
    path = make_shards(tmp_path, [*range(1, 13)], batch_size=2)
    report = verify(path, level="run", sample=2, dtype="float64")
    assert report.passed
    assert [level.num_tokens for level in report.levels] == [78, 78, 78]
    assert list(report.levels[2].errors) == ["final states and last outputs"]
    change_shard(path, flip_id)
    report = verify(path, level="run")
    assert [finding.level for finding in report.findings] == ["roundtrip"]
    assert [level.num_batches for level in report.levels] == [6, 6, 0]  # it is the only shard


def test_report_says_what_was_proven(shards: Path) -> None:
    report = verify(shards, cell="gru", dtype="float64", seed=5)
    document = json.loads(json.dumps(report.to_json(), allow_nan=False))
    levels = document.pop("levels")
    assert document == {
        "passed": True,
        "shards": str(shards),
        "side": None,
        "layout": report.layout,
        "device": "cpu",
        "device_name": "CPU",
        "dtype": "float64",
        "cell": "gru",
        "num_layers": 1,
        "bidirectional": False,
        "hidden_size": 64,
        "seed": 5,
        "num_shards": 3,
        "num_batches": 3,
        "num_sequences": 7,
        "num_tokens": 37,
        "is_gate": True,
        "columns": [],
        "plan": {"compared": True, "plan_version": PLAN_VERSION, "why_not": None},
        "findings": [],
        "notes": [],
        "model": None,
        "layout_speeds": [],
        "controls": [],
    }
    assert [level["level"] for level in levels] == list(ON_CPU)
    assert set(levels[0]) == {
        "level",
        "num_batches",
        "num_tokens",
        "num_cut_batches",
        "num_column_values",
        "num_labels",
        "num_label_targets",
        "num_sampled_batches",
        "seconds",
        "tokens_per_second",
        "errors",
    }
    assert set(levels[2]["errors"]["packed outputs"]) == {"quantity", "error", "limit"}


def flip_id(arrays: Arrays) -> None:
    arrays["data"][4] += 1  # row 1 at step 1 of lengths 12, 9, 5


def flip_last(arrays: Arrays) -> None:
    arrays["data"][-1] += 1


def test_report_with_findings_is_json(tmp_path: Path) -> None:
    path = make_shards(tmp_path)
    change_shard(path, flip_id)
    document = json.loads(json.dumps(verify(path).to_json(), allow_nan=False))
    assert document["passed"] is False
    ((finding),) = document["findings"]
    assert (finding["level"], finding["batch"], finding["row"]) == ("roundtrip", 0, 1)


def without_seconds(report: Report) -> dict[str, Any]:
    document = report.to_json()
    for level in document["levels"]:
        del level["seconds"], level["tokens_per_second"]
    return document


def test_workers_find_the_same_in_the_same_order(tmp_path: Path) -> None:
    path, found = make_shards(tmp_path, shard_bytes=1), []
    change_shard(path, flip_last, number=2)
    change_shard(path, flip_id)
    for num_workers in (1, 2):
        options, advanced = VerifyOptions(level="roundtrip", num_workers=num_workers), list[int]()
        progress = Progress(on_advance=advanced.append)
        report = verify_run.verify(path, options, progress=progress)
        found.append((without_seconds(report), sum(advanced)))
    alone, shared = found
    assert [finding["batch"] for finding in alone[0]["findings"]] == [0, 2]
    assert shared == alone


@pytest.mark.parametrize(
    "options", [{"level": "structure"}, {"device": "cuda"}], ids=["structure", "cuda"]
)
def test_workers_without_work_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="--num-workers conflicts with --"):
        VerifyOptions(num_workers=2, **options)


def test_same_seed_gives_the_same_report(shards: Path) -> None:
    first, again, other = (
        without_seconds(verify(shards, sample=2, seed=seed, dtype="float64")) for seed in (1, 1, 2)
    )
    assert first == again
    assert first["levels"][2]["errors"] != other["levels"][2]["errors"]


def test_sample_covers_so_many_batches(tmp_path: Path) -> None:
    path = make_shards(tmp_path, [*range(1, 13)], batch_size=2)
    report = verify(path, sample=2, cell="rnn")
    assert [level.num_batches for level in report.levels] == [6, 6, 2, 2]
    assert [level.num_tokens for level in report.levels[:2]] == [78, 78]
    assert report.levels[2].num_tokens < 78
    report = verify(path, sample=None, cell="rnn")
    assert [level.num_tokens for level in report.levels] == [78, 78, 78, 78]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_large_batches_are_cut_to_a_window_and_counted(tmp_path: Path, layout: str) -> None:
    path = make_shards(tmp_path, layout=layout)
    report = verify(path, max_batch_tokens=7, dtype="float64")
    assert report.passed
    assert [level.num_cut_batches for level in report.levels] == [0, 0, 2, 2]
    assert [level.num_batches for level in report.levels] == [3, 3, 3, 3]
    assert all(level.num_tokens <= 3 * 7 for level in report.levels[2:])
    assert report.levels[1].num_tokens == 37


def test_the_loop_has_a_most_of_steps_and_run_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(batch_ids.MAX_LOOP_STEPS, "forward", 4)
    monkeypatch.setitem(batch_ids.MAX_LOOP_STEPS, "backward", 3)
    path = make_shards(tmp_path, [9, 6, 5], batch_size=3)
    assert [level.num_tokens for level in verify(path, level="run").levels] == [20, 20, 20]
    report = verify(path)
    assert report.findings == []
    # forward steps 3 to 6, backward 4 to 6: there two rows end before the other
    assert [level.num_tokens for level in report.levels] == [20, 20, 9, 6]
    lines = summarize(report.to_json(), [])
    for level in ("forward", "backward"):
        note = "computed only part of 1 large batch: the time steps in which most rows end"
        assert f"  note: {level}: {note}" in lines


def test_sample_without_ragged_batches_is_a_fault_if_there_are_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_shards(tmp_path, [5, 5, 4, 3], batch_size=2)
    whole = Verification.sample
    monkeypatch.setattr(Verification, "sample", lambda *args: whole(*args)[:1])
    (finding,) = verify(path, level="forward").findings
    assert str(finding) == (
        "forward: manifest.json: no computed batch has rows of different lengths, "
        "pass a larger --max-batch-tokens"
    )
    even = make_shards(tmp_path / "even", [5, 5, 4, 4], batch_size=2)
    report = verify(even, level="forward")
    assert report.passed
    assert report.notes == [
        "forward: no batch has rows of different lengths, so no hidden state was trimmed"
    ]


def test_progress_counts_tokens_then_batches(shards: Path) -> None:
    totals: list[int] = []
    advanced: list[int] = []
    progress = Progress(on_total=totals.append, on_advance=advanced.append)
    verify_run.verify(shards, VerifyOptions(sample=2), progress=progress)
    assert sum(advanced) == sum(totals)
    assert totals == [37, 27, 2, 2]  # ids, the labels of the sample, batches


@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
def test_settings_of_torch_are_given_back(shards: Path, precision: str) -> None:
    settings = (torch.backends.cuda.matmul, torch.backends.cudnn)
    precision_before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        before = [setting.allow_tf32 for setting in settings]
        random_state = torch.random.get_rng_state()
        verify(shards, sample=1, cell="rnn")
        assert [setting.allow_tf32 for setting in settings] == before
        assert torch.get_float32_matmul_precision() == precision
        assert torch.equal(torch.random.get_rng_state(), random_state)
    finally:
        torch.set_float32_matmul_precision(precision_before)


def copy_of(shards: Path, folder: Path) -> Path:
    """Copy the store and the shards, so that they may be damaged."""
    shutil.copytree(shards.parent, folder / "copy")
    return folder / "copy" / "shards"


def test_store_that_moved_is_an_error_with_a_hint(shards: Path, tmp_path: Path) -> None:
    path = copy_of(shards, tmp_path)
    (path.parent / "store").rename(tmp_path / "moved")
    with pytest.raises(FolderError) as caught:
        verify(path)
    assert str(caught.value) == (
        f"{path}: its token store is not at ../store\n\n"
        "hint: pass --tokens STORE, or --level structure, which needs no store"
    )
    assert caught.value.exit_code == 4
    assert verify(path, tokens=tmp_path / "moved").passed
    assert verify(path, level="structure").passed
    with pytest.raises(FolderError, match="no such folder"):
        verify(path, tokens=tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["part-00000.bin", "part-00000.idx"])
def test_damaged_store_is_refused(shards: Path, tmp_path: Path, name: str) -> None:
    path = copy_of(shards, tmp_path)
    flip_byte(path.parent / "store" / name, -4 if name.endswith("bin") else -1)
    with pytest.raises(FolderError, match=name) as caught:
        verify(path)
    assert caught.value.exit_code == 4


def test_store_with_a_flipped_id_is_refused(shards: Path, tmp_path: Path) -> None:
    store = copy_of(shards, tmp_path).parent / "store"
    flip_byte(store / "part-00000.bin", 0)
    with pytest.raises(FolderError) as caught:
        verify(store.parent / "shards", tokens=store)
    assert str(caught.value) == (
        f"{store / 'part-00000.bin'}: blake3 differs from the manifest's\n\n"
        "hint: the store was changed or damaged: make it again with --overwrite"
    )


def test_unfinished_shards_are_refused(shards: Path, tmp_path: Path) -> None:
    path = copy_of(shards, tmp_path)
    (path / "manifest.json").unlink()
    with pytest.raises(FolderError, match=r"no manifest\.json, expected a token store or shards"):
        verify(path)


@pytest.mark.cuda
def test_cuda_beyond_the_last_is_an_error(shards: Path) -> None:
    num_devices = torch.cuda.device_count()
    with pytest.raises(MachineError) as caught:
        verify(shards, device=f"cuda:{num_devices}")
    assert str(caught.value) == (
        f"--device cuda:{num_devices}: there are {num_devices} CUDA devices, from cuda:0"
    )


def test_memory_that_is_not_enough_names_the_batch(
    shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **kwargs: object) -> object:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB\nand more")

    monkeypatch.setattr(model_levels, "take_ids", refuse)
    with pytest.raises(MachineError) as caught:
        verify(shards)
    assert str(caught.value) == (
        "shard-00000.safetensors: batch 0: CUDA out of memory. Tried to allocate 2 GiB\n\n"
        "hint: pass a smaller --max-batch-tokens, or pack with a smaller --batch-size"
    )


def test_sequence_that_shards_and_ledger_both_forgot_is_found(tmp_path: Path) -> None:
    # the last sequence of the store is alone in the last shard: take both away
    path = make_shards(tmp_path, [5, 4, 3, 1], shard_bytes=1)
    (path / "shard-00001.safetensors").unlink()

    def forget(manifest: dict[str, Any]) -> None:
        del manifest["shards"][1]
        manifest["ledger"].update(num_batches=1, num_sequences=3, num_tokens=12)

    change_manifest(path, forget)
    assert not verify(path).passed


def test_sequences_that_were_dropped_are_not_missing(tmp_path: Path) -> None:
    for layout in LAYOUTS:
        path = make_shards(
            tmp_path / layout, layout=layout, drop_shorter=2, drop_longer=9, last_batch="drop"
        )
        assert verify(path).passed


def test_shards_of_one_token_pass(tmp_path: Path) -> None:
    for layout in LAYOUTS:
        path = make_shards(tmp_path / layout, [1], layout=layout)
        report = verify(path, dtype="float64")
        assert report.passed
        assert [note.split(":")[0] for note in report.notes] == ["forward", "backward"]


def test_shards_of_a_store_in_several_parts_pass(tmp_path: Path) -> None:
    store = make_store(tmp_path, make_texts(LENGTHS), part_bytes=10)
    pack(store, tmp_path / "shards", PackOptions(batch_size=3), executor=Executor(num_workers=1))
    assert verify(tmp_path / "shards", cell="rnn").passed


# Options beyond those of LAYOUTS; each puts the sequences 2 and 4, of equal length, somewhere.
KINDS: dict[str, dict[str, Any]] = {
    "varlen": {"layout": "varlen", "batch_size": None, "max_tokens": 14},
    "varlen with pieces": {
        "layout": "varlen",
        "batch_size": None,
        "max_tokens": 7,
        "fill": "sequential",
    },
    "left": {"layout": "padded", "padding_side": "left", "pad_to_multiple": 8},
    "filler": {"layout": "padded", "last_batch": "pad"},
    "buckets": {"layout": "padded", "buckets": (4, 8, 16)},
    "buckets of packed": {"buckets": (6, 16)},
    "buckets with a budget, filler and left": {
        "layout": "padded",
        "batch_size": None,
        "max_tokens": 32,
        "buckets": "auto",
        "num_buckets": 2,
        "last_batch": "pad",
        "padding_side": "left",
    },
    "shuffled": {"shuffle": True, "seed": 5},
    "windows": {"shuffle": True, "window": 4, "batch_size": 2, "layout": "padded"},
    "in no order": {"order": "none"},
}


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_shards(tmp_path_factory.mktemp("kind"), **KINDS[request.param])


def test_every_kind_of_shards_passes_all_levels(kind: Path) -> None:
    report = verify(kind, sample=None)
    assert report.findings == []
    num_batches = len(open_shards(kind))
    for level in report.levels:
        assert (level.num_batches, level.num_tokens, level.num_cut_batches) == (num_batches, 37, 0)
    assert [level.level for level in report.levels] == list(ON_CPU)


@pytest.mark.cuda
def test_every_kind_of_shards_passes_all_levels_on_cuda(kind: Path) -> None:
    report = verify(kind, sample=None, device="cuda")
    assert report.findings == []
    assert [level.num_tokens for level in report.levels] == [37] * 5  # with `run`


def test_windows_of_every_kind_pass(kind: Path) -> None:
    report = verify(kind, max_batch_tokens=9, cell="rnn", dtype="float64")
    assert report.findings == []
    assert [level.num_tokens for level in report.levels[:2]] == [37, 37]
    is_large = any(int(batch.lengths.sum()) > 9 for batch in open_shards(kind))
    assert (report.levels[3].num_cut_batches > 0) == is_large


def test_last_piece_that_ends_early_is_found(tmp_path: Path) -> None:
    path = make_shards(tmp_path, **KINDS["varlen with pieces"])
    last = int(open_shards(path).open_shard(0).tensors["sequence_offsets"][-1])

    def cut(arrays: Arrays) -> None:  # the last row is sequence 6, of 2 ids
        arrays["lengths"][last - 1] -= 1
        arrays["data"] = arrays["data"][:-1]
        arrays["data_offsets"][-1] -= 1

    of_store = {"num_sequences": 7, "num_tokens": 36}
    counts = {"num_tokens": 36, "num_target_tokens": 36, "stores": [of_store]}
    change_shard(path, cut, **counts)
    change_manifest(path, lambda manifest: manifest["ledger"].update(counts))
    change_manifest(path, lambda manifest: manifest["stores"][0].update(num_tokens=36))
    plan_by_another_version(path)
    assert [str(finding) for finding in verify(path, sample=1).findings] == [
        "structure: manifest.json: num_tokens of store 1 is 36, the stores and options give 37",
        "roundtrip: manifest.json: num_tokens of store 1 is 36, the token store has 37",
        "roundtrip: shard-00000.safetensors: batch 5: row 1: length 1, the token store has 2",
    ]


@pytest.mark.parametrize("name", ["varlen", "varlen with pieces", "left", "filler"])
@pytest.mark.parametrize("place", [0, -1])
def test_finding_of_forward_names_the_row_in_the_shards_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, place: int
) -> None:
    path = make_shards(tmp_path, **KINDS[name])

    def wrong(model: Model, ids: BatchIds) -> Run:
        run = run_packed(model, ids)
        run.outputs[place] += 1  # of the longest row's first id, or of the shortest row's last
        return run

    monkeypatch.setitem(computation.WAYS, "packed", wrong)
    report = verify(path, level="forward", sample=None)
    found = {
        (finding.batch, finding.row)
        for finding in report.findings
        if finding.what.startswith("packed outputs: error")
    }
    expected = set()
    for index, batch in enumerate(open_shards(path)):
        lengths = (
            batch.without_filler().lengths if isinstance(batch, PaddedBatch) else batch.lengths
        )
        if place == 0:
            row = int(lengths.argmax())
        else:
            row = len(lengths) - 1 - int(lengths[::-1].argmin())
        expected.add((index, row))
    assert found == expected


@pytest.mark.parametrize("name", ["varlen", "filler", "buckets"])
def test_broken_promise_ends_its_shard_at_structure(tmp_path: Path, name: str) -> None:
    path = make_shards(tmp_path, **KINDS[name])
    option = {"varlen": "max_tokens", "filler": "batch_size", "buckets": "batch_size"}[name]

    def promise(manifest: dict[str, Any]) -> None:
        manifest["options"][option] = 1

    change_manifest(path, promise)
    plan_by_another_version(path)
    report = verify(path)
    assert {finding.level for finding in report.findings} == {"structure"}
    assert {finding.batch for finding in report.findings} == set(range(len(open_shards(path))))
    assert [level.num_batches for level in report.levels[1:]] == [0, 0, 0]
