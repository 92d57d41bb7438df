"""verify compares labels and targets with the token store, and finds wrong ones in their rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import run
from shard_reference import Arrays, change_manifest, change_shard
from target_corpus import LAYOUTS, ONE, make_target_shards, make_target_store

from seqpack_cli.batching.options import PackOptions
from seqpack_cli.corpus.options import DocumentOptions
from seqpack_cli.limits import LIMITS
from seqpack_cli.shards.layouts import Batch
from seqpack_cli.shards.pack import pack
from seqpack_cli.shards.shard_set import open_shards
from seqpack_cli.tokens.options import TargetOptions
from seqpack_cli.tokens.store import open_store
from seqpack_cli.training.labels import IGNORED, NEXT, SAME, make_labels
from seqpack_cli.verification import verify_run
from seqpack_cli.verification.findings import Finding
from seqpack_cli.verification.integers.label_values import MakeLabels, check_labels
from seqpack_cli.verification.label_damages import make_masked_before, make_unshifted
from seqpack_cli.verification.options import VerifyOptions
from seqpack_cli.verification.report import LevelReport, Report

pytestmark = pytest.mark.usefixtures("one_thread")

# of a store whose text is one field
PLAIN: dict[str, Any] = {
    "targets": TargetOptions(),
    "documents": DocumentOptions(text_field="completion"),
}
every_layout = pytest.mark.parametrize("layout", LAYOUTS)


def verify(path: Path, level: str = "roundtrip", **options: Any) -> Report:
    return verify_run.verify(path, VerifyOptions(level=level, **options))


def find_roundtrip(report: Report) -> LevelReport:
    (level,) = (level for level in report.levels if level.level == "roundtrip")
    return level


def find_labels(path: Path, make: MakeLabels = make_labels) -> list[Finding]:
    shards, store = open_shards(path), open_store(path.parent / "store")
    return [
        finding
        for number in range(shards.num_shards)
        for shard in [shards.open_shard(number)]
        for checked in check_labels(shard, store, np.arange(len(shard)), make=make)
        for finding in checked.findings
    ]


@every_layout
def test_labels_and_targets_of_good_shards_are_compared(tmp_path: Path, layout: str) -> None:
    path = make_target_shards(tmp_path, layout)
    report = verify(path, self_test=True)
    assert report.findings == []
    num_targets = open_shards(path).manifest["ledger"]["num_target_tokens"]
    assert 0 < num_targets < report.num_tokens
    level = find_roundtrip(report)
    assert (level.num_labels, level.num_label_targets) == (report.num_tokens, num_targets)
    assert level.num_column_values == report.num_tokens
    shown = run("verify", path, "--level", "roundtrip").stdout
    compared = f'compared the labels "next" and "same" of {report.num_tokens:,} tokens'
    assert f"\n  labels: {compared}, {num_targets:,} of them targets\n" in shown
    caught = {control.name: control.caught for control in report.controls}
    of_targets = {"targets shifted by one", "targets of another row", "targets all zero"}
    of_targets |= {"labels shifted by one", "labels masked one token late"}
    if "padded" in str(LAYOUTS[layout]):
        of_targets.add("target in padding")
    assert {name for name in caught if "target" in name or "label" in name} == of_targets
    assert all(caught[name] for name in of_targets)


def test_without_targets_the_labels_of_the_sample_are_compared(tmp_path: Path) -> None:
    store = make_target_store(tmp_path)
    options = PackOptions(batch_size=3, drop_column=("targets",))
    pack(store, tmp_path / "shards", options, executor=ONE)
    path = tmp_path / "shards"
    level = find_roundtrip(verify(path, sample=2))
    sizes = [int(batch.lengths.sum()) for batch in open_shards(path)]
    assert 0 < level.num_labels == level.num_label_targets < sum(sizes)
    assert level.num_sampled_batches == 2
    level = find_roundtrip(verify(path, sample=None))
    assert level.num_labels == sum(sizes)


@every_layout
def test_stores_with_and_without_targets_pass_together(tmp_path: Path, layout: str) -> None:
    stores = [
        make_target_store(tmp_path),
        make_target_store(tmp_path, 20, "overlapping", max_length=4, overlap=2),
        make_target_store(tmp_path, 25, "pieces", max_length=6, overlap=1, **PLAIN),
        make_target_store(tmp_path, 15, "plain", **PLAIN),
    ]
    options = PackOptions(passes="store=2", **LAYOUTS[layout])
    pack(stores, tmp_path / "shards", options, executor=ONE)
    report = verify(tmp_path / "shards")
    assert report.findings == []
    assert report.columns == ["targets", "overlap"]


def make_padding_counted(batch: Batch, labels: str) -> np.ndarray:
    """Return labels that count padding, as those made from ids do if pad is a token."""
    made = make_labels(batch, labels)
    return np.where(made == IGNORED, batch.data.reshape(batch.shape), made)


FAULTS: dict[str, MakeLabels] = {
    "not shifted": make_unshifted,
    "masked by their own bit": make_masked_before,
    "shifted twice": lambda batch, labels: batch.follow(make_labels(batch, labels), IGNORED),
    "not masked": make_padding_counted,
}


@pytest.mark.parametrize("make", FAULTS.values(), ids=FAULTS)
@every_layout
def test_wrong_labels_are_found_in_every_batch_that_has_them(
    tmp_path: Path, layout: str, make: MakeLabels, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_target_shards(tmp_path, layout)
    monkeypatch.setattr(LIMITS, "ids_per_block", 40)  # several spans
    assert find_labels(path) == []
    expected = {
        (labels, number)
        for number, batch in enumerate(open_shards(path))
        for labels in (NEXT, SAME)
        if not np.array_equal(make(batch, labels), make_labels(batch, labels))
    }
    found = find_labels(path, make)
    assert expected
    assert {(finding.what.split("'")[1], finding.batch) for finding in found} == expected
    for finding in found:
        assert (finding.row is None) == ("in padding" in finding.what)


def test_the_first_wrong_label_of_a_row_is_named(tmp_path: Path) -> None:
    path = make_target_shards(tmp_path)

    def make(batch: Batch, labels: str) -> np.ndarray:
        made = make_labels(batch, labels)
        if labels == NEXT and batch.original_indices is not None:
            made[batch.find_cells(1)[2:4]] = 7
        return made

    finding = find_labels(path, make)[0]
    row = open_store(tmp_path / "store")[int(open_shards(path)[0].original_indices[1])]
    assert (finding.level, finding.batch, finding.row) == ("roundtrip", 0, 1)
    assert finding.what == f"labels 'next': 7 at step 2, expected {row[3]}"


def swap_targets(arrays: Arrays) -> None:
    """Exchange two targets of the first batch, so that their number stays."""
    targets, end = arrays["column.targets"], int(arrays["data_offsets"][1])
    first, second = (int((targets[:end] == value).argmax()) for value in (0, 1))
    targets[[first, second]] = targets[[second, first]]


def clear_targets(arrays: Arrays) -> None:
    arrays["column.targets"][:] = 0


def forge_counts(path: Path, number: int) -> None:
    """Set the number of targets of the only shard, and of all."""

    def change(manifest: dict[str, Any]) -> None:
        for entry in (manifest["shards"][0], manifest["ledger"]):
            entry["num_target_tokens"] = number

    change_manifest(path, change)


def test_targets_that_are_not_the_stores_are_found(tmp_path: Path) -> None:
    path = make_target_shards(tmp_path)
    change_shard(path, swap_targets)
    (finding,) = verify(path).findings
    assert str(finding).startswith("roundtrip: shard-00000.safetensors: batch 0: row ")
    assert "column 'targets' is 1 at step " in finding.what
    change_shard(path, clear_targets)
    (finding,) = verify(path).findings
    assert (finding.level, finding.what.split(", ")[1]) == ("structure", "the shard has 0")
    forge_counts(path, 0)
    assert {finding.level for finding in verify(path).findings} == {"roundtrip"}


def test_shards_without_the_targets_of_their_store_are_found(tmp_path: Path) -> None:
    path = make_target_shards(tmp_path)
    num_tokens = open_shards(path).manifest["ledger"]["num_tokens"]
    change_shard(path, lambda arrays: arrays.pop("column.targets"))
    change_manifest(path, lambda manifest: manifest["columns"].pop(0))
    for name in ("num_dropped_sequences", "num_dropped_tokens"):
        change_manifest(path, lambda manifest, name=name: manifest["ledger"][name].pop("no_target"))
    forge_counts(path, num_tokens)
    found = [str(finding) for finding in verify(path).findings]
    assert "structure: manifest.json: columns are none, the token store has 'targets'" in found, (
        found
    )
