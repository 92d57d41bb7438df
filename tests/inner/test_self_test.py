"""The self-test catches every damage, says so where a level is crippled, and changes no file."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3
from command import run
from shard_reference import LENGTHS, change_shard, flip_byte, make_shards

from seqpack_cli.shards.shard import Shard
from seqpack_cli.verification import self_test, verify_run
from seqpack_cli.verification.findings import Finding
from seqpack_cli.verification.models.computation import Comparison
from seqpack_cli.verification.options import LEVELS, VerifyOptions
from seqpack_cli.verification.report import Control, Report

VARLEN: dict[str, Any] = {
    "layout": "varlen",
    "batch_size": None,
    "max_tokens": 14,
    "fill": "sequential",
}
KINDS: dict[str, dict[str, Any]] = {
    "packed": {},
    "padded": {"layout": "padded", "pad_to_multiple": 4},
    "left": {"layout": "padded", "padding_side": "left"},
    "filler": {"layout": "padded", "last_batch": "pad"},
    "varlen": VARLEN,
    "pieces": {**VARLEN, "max_tokens": 5},
}

FLIP, SWAP, TWICE, DROP = "changed id", "swapped rows", "duplicate index", "dropped row"
SWAPPED = "swapped batches"
BORDER = "shifted sequence boundary"
LABELS = "labels shifted by one"
UNTRIMMED, LACKING = "hidden state not trimmed", "row missing from gradient"
STEPS, PADDING, BORDERLESS = (
    "wrong batch_sizes entry",
    "id in padding",
    "attention across sequences",
)
NAMES = {  # of the controls, in their order
    "packed": [FLIP, SWAP, STEPS, TWICE, DROP, SWAPPED, LABELS, UNTRIMMED, LACKING],
    "padded": [FLIP, SWAP, TWICE, PADDING, DROP, SWAPPED, LABELS, UNTRIMMED, LACKING],
    "varlen": [FLIP, SWAP, BORDER, TWICE, DROP, SWAPPED, LABELS, UNTRIMMED, BORDERLESS, LACKING],
}


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module", params=KINDS)
def shards(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("self_test")
    return make_shards(folder, shard_bytes=800, **KINDS[request.param])


def verify(path: Path, **options: Any) -> Report:
    return verify_run.verify(path, VerifyOptions(self_test=True, **{"hidden_size": 8, **options}))


def find_missed(report: Report) -> list[Control]:
    return [control for control in report.controls if control.caught is False]


def file_states(folder: Path) -> dict[str, tuple[str, int]]:
    """Return checksum and time of change of every file."""
    return {
        str(path.relative_to(folder)): (
            blake3(path.read_bytes()).hexdigest(),
            path.stat().st_mtime_ns,
        )
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_every_control_is_caught_and_nothing_on_disk_changes(shards: Path) -> None:
    before = file_states(shards.parent)
    report = verify(shards)
    assert file_states(shards.parent) == before
    assert [control.name for control in report.controls] == NAMES[report.layout]
    assert find_missed(report) == []
    assert report.findings == []
    for control in report.controls:
        assert (control.caught is None) == (control.found == "")


@pytest.mark.parametrize("cell", ["gru", "rnn"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_every_control_is_caught_for_other_models(
    tmp_path: Path, cell: str, bidirectional: bool
) -> None:
    path = make_shards(tmp_path, [5, 4, 2], batch_size=2)
    report = verify(path, cell=cell, bidirectional=bidirectional, num_layers=2)
    assert report.findings == []
    assert all(control.caught for control in report.controls)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", KINDS)
def test_random_shards_have_no_control_missed(tmp_path: Path, name: str, seed: int) -> None:
    generator = random.Random(seed)
    most = generator.choice([2, 4, 13])
    lengths = [generator.randint(1, most) for _ in range(generator.randint(1, 16))]
    options = {"shard_bytes": generator.choice([1, 400, 1 << 20]), **KINDS[name]}
    path = make_shards(tmp_path, lengths, seed=seed, **options)
    report = verify(path, seed=seed, sample=1)
    assert find_missed(report) == []


@pytest.mark.parametrize("lengths", [[1], [3], [1, 1, 1]], ids=str)
@pytest.mark.parametrize("name", KINDS)
def test_shards_without_a_place_are_no_fault(tmp_path: Path, name: str, lengths: list[int]) -> None:
    report = verify(make_shards(tmp_path, lengths, **KINDS[name]))
    assert report.findings == []
    assert report.controls
    assert UNTRIMMED in {control.name for control in report.controls if control.caught is None}


@pytest.mark.parametrize("level", LEVELS)
def test_controls_are_those_of_the_levels_asked_for(shards: Path, level: str) -> None:
    report = verify(shards, level=level, sample=1)
    asked = LEVELS[: LEVELS.index(level) + 1]
    found = [control.level for control in report.controls]
    assert set(found) <= set(asked)
    assert level in found or level == "run"  # which has no control
    if level == LEVELS[-1]:
        assert [control.name for control in report.controls] == NAMES[report.layout]


def test_without_being_asked_there_is_none(shards: Path) -> None:
    assert verify_run.verify(shards, VerifyOptions(level="roundtrip")).controls == []


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
@pytest.mark.parametrize("name", ["packed", "varlen"])
def test_computations_are_judged_whatever_the_dtype(tmp_path: Path, name: str, dtype: str) -> None:
    report = verify(make_shards(tmp_path, [4, 4, 2, 1], **KINDS[name]), dtype=dtype)
    judged = {control.name: control.caught for control in report.controls}
    assert judged[UNTRIMMED] is judged[LACKING] is True
    assert judged.get(BORDERLESS, True) is True


def test_faulty_shards_are_left_out(tmp_path: Path) -> None:
    path = make_shards(tmp_path, shard_bytes=1)
    flip_byte(path / "shard-00002.safetensors", -2)  # the smallest
    report = verify(path)
    assert [finding.shard for finding in report.findings] == ["shard-00002.safetensors"]
    assert find_missed(report) == []
    assert len(report.controls) == len(NAMES["packed"])
    for number in range(2):
        flip_byte(path / f"shard-{number:05d}.safetensors", -2)
    assert verify(path).controls == []


def test_shard_faulty_at_roundtrip_is_left_out(tmp_path: Path) -> None:
    path = make_shards(tmp_path, shard_bytes=1)

    def flip(arrays: dict[str, Any]) -> None:
        arrays["data"][0] ^= 1

    change_shard(path, flip, number=2)
    report = verify(path)
    assert [finding.level for finding in report.findings] == ["roundtrip"]
    assert find_missed(report) == []
    assert [control.name for control in report.controls if not control.caught] == [SWAPPED]


def find_nothing(*args: object, **kwargs: object) -> Iterator[Any]:
    return iter(())


def compare_nothing(*args: object, **kwargs: object) -> Iterator[Comparison]:
    yield Comparison("forward", "nothing at all", 0.0, 1.0)


# what is replaced, by what, the level asked for, the layout, what is missed and found instead
CRIPPLED: dict[str, tuple[str, Callable[..., object], str, str, dict[str, str]]] = {
    "structure that overlooks duplicates": (
        "mark_rows",
        lambda *_: [],
        "structure",
        "padded",
        {TWICE: "nothing"},
    ),
    "structure that does not count": (
        "check_counts",
        lambda *_: [],
        "structure",
        "varlen",
        {DROP: "nothing"},
    ),
    "roundtrip": (
        "check_shard",
        find_nothing,
        "roundtrip",
        "packed",
        {FLIP: "nothing", SWAP: "nothing"},
    ),
    "forward": ("check_forward", compare_nothing, "forward", "padded", {UNTRIMMED: "nothing"}),
    "attention": ("check_attention", compare_nothing, "forward", "varlen", {BORDERLESS: "nothing"}),
    "backward": ("check_backward", compare_nothing, "backward", "packed", {LACKING: "nothing"}),
}


@pytest.mark.parametrize(
    ("name", "crippled", "level", "layout", "missed"), CRIPPLED.values(), ids=CRIPPLED
)
def test_crippled_level_is_a_finding(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    crippled: Callable[..., object],
    level: str,
    layout: str,
    missed: dict[str, str],
) -> None:
    path = make_shards(tmp_path, [5, 5, 3, 2, 1, 4], **KINDS[layout])
    monkeypatch.setattr(self_test, name, crippled)
    report = verify(path, level=level)
    controls = find_missed(report)
    assert {control.name: control.found for control in controls} == missed
    for control in controls:
        assert f"self-test did not catch: {control.name}; found: " in str(
            [str(finding) for finding in report.findings]
        )
    assert len(report.findings) == len(controls)
    result = run("verify", path, "--level", level, "--self-test", "--hidden-size", 8)
    assert result.exit_code == int(bool(controls))
    assert ("MISSED" in result.stdout) == bool(controls)


def test_padding_that_nobody_looks_at_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_shards(tmp_path, layout="padded")
    whole = Shard.find_unsound
    monkeypatch.setattr(Shard, "find_unsound", lambda self: whole(self) & False)
    report = verify(path, level="roundtrip")
    assert [control.name for control in find_missed(report)] == [PADDING]
    assert [str(finding) for finding in report.findings] == [
        "structure: shard-00000.safetensors: self-test did not catch: id in padding; found: nothing"
    ]


def test_damage_that_a_later_level_would_find_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_shards(tmp_path)
    monkeypatch.setattr(self_test, "mark_rows", lambda *_: [])
    (missed,) = find_missed(verify(path, level="roundtrip"))
    assert (missed.name, missed.found) == (TWICE, "nothing")


def test_cli_shows_what_was_caught(tmp_path: Path) -> None:
    shards = make_shards(tmp_path)
    options = ("--self-test", "--hidden-size", 8, "--level", "roundtrip")
    result = run("verify", shards, *options)
    assert result.exit_code == 0
    assert "MISSED" not in result.stdout
    lines = [line.split()[:3] for line in result.stdout.splitlines()]
    assert ["changed", "id", "caught"] in lines
    result = run("verify", shards, *options, "--json")
    assert result.exit_code == 0
    assert '"controls": [' in result.stdout


@pytest.mark.parametrize("lengths", [[3, 1], [1, 3], [4, 2, 1]], ids=str)
def test_moved_border_of_good_shards_is_no_false_alarm(tmp_path: Path, lengths: list[int]) -> None:
    path = make_shards(tmp_path, lengths, **VARLEN)
    assert verify(path, level="roundtrip").findings == []


@pytest.mark.parametrize(
    ("lengths", "max_batch_tokens"),
    [([12, 9, 5], 1), ([12, 3], 2)],
    ids=str,
)
def test_window_in_which_all_rows_are_equal_is_no_place_for_trimming(
    tmp_path: Path, lengths: list[int], max_batch_tokens: int
) -> None:
    path = make_shards(tmp_path, lengths)
    options = {"level": "forward", "max_batch_tokens": max_batch_tokens, "sample": 1}
    report = verify(path, **options)
    assert find_missed(report) == []
    without_place = [control.name for control in report.controls if control.caught is None]
    assert without_place == [SWAPPED, UNTRIMMED]


@pytest.mark.parametrize("name", ["check_forward", "check_backward"])
def test_level_that_compares_nothing_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = make_shards(tmp_path, [5, 4, 2])
    monkeypatch.setattr(self_test, name, find_nothing)
    assert find_missed(verify(path, level=name.removeprefix("check_"), sample=1))


def test_attention_without_borders_is_caught_in_windows(tmp_path: Path) -> None:
    path = make_shards(tmp_path, [3, 3, 3], **VARLEN)
    report = verify(path, level="forward", max_batch_tokens=1, sample=1)
    assert BORDERLESS not in {control.name for control in find_missed(report)}


def test_more_than_one_shard_is_not_needed(tmp_path: Path) -> None:
    report = verify(make_shards(tmp_path, LENGTHS))
    assert report.findings == []
    assert [control.name for control in report.controls] == NAMES["packed"]
    assert all(control.caught for control in report.controls)


@pytest.mark.cuda
def test_every_control_is_caught_on_cuda(shards: Path) -> None:
    report = verify(shards, device="cuda")
    assert find_missed(report) == []


def test_damage_that_another_level_finds_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_shards(tmp_path)
    fault = Finding("structure", "shard-00000.safetensors", "something else")
    monkeypatch.setattr(self_test, "mark_rows", lambda *_: [fault])
    missed = {
        control.name: control.found for control in find_missed(verify(path, level="roundtrip"))
    }
    assert missed == {"changed id": "something else", "swapped rows": "something else"}


def test_a_batch_without_a_place_gives_way_to_the_next(tmp_path: Path) -> None:
    # cut to 4 tokens, the window of four rows is one step, of two rows two
    path = make_shards(tmp_path, [9, 8, 7, 1, 6, 5], batch_size=4)
    report = verify(path, level="forward", max_batch_tokens=4, sample=None)
    caught = {control.name: control.caught for control in report.controls}
    assert caught[UNTRIMMED] is True
