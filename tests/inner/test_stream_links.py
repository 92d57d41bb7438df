"""Forged shards of streams and shared rows: none passes, none ends in a traceback."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from shard_reference import make_shards, plan_by_another_version, read_manifest_json
from shared_forgeries import FORGERIES, put_together, take_apart

from seqpack_cli.errors import SeqpackError
from seqpack_cli.verification.options import VerifyOptions
from seqpack_cli.verification.report import Report
from seqpack_cli.verification.verify_run import verify

LENGTHS = [9, 1, 6, 14, 6, 6, 29, 3, 3, 12, 5, 40, 2, 2, 7]
STREAMS: dict[str, Any] = {"layout": "streams", "batch_size": 3, "max_tokens": 7}
VARLEN: dict[str, Any] = {"layout": "varlen", "max_tokens": 16}
KINDS: dict[str, dict[str, Any]] = {
    "streams": STREAMS,
    "streams, passes": {**STREAMS, "passes": "store=2.5", "shuffle": True, "seed": 3},
    "streams, one step": {**STREAMS, "max_tokens": 1, "batch_size": 2},
    "rows": {**VARLEN, "batch_size": 2},
    "rows, padded": {**VARLEN, "batch_size": 3, "fill": "sequential", "last_batch": "pad"},
    "aligned": {**VARLEN, "align_sequences": 4},
    "aligned rows": {**VARLEN, "batch_size": 2, "align_sequences": 4, "passes": "store=2"},
    "chunk": {**VARLEN, "fill": "chunk"},
    "chunk rows": {**VARLEN, "fill": "chunk", "batch_size": 2, "shuffle": True},
}
QUICK = "streams, passes"
OTHERS = [kind for kind in KINDS if kind != QUICK]
SLOW = pytest.mark.slow
# Without the plan, other orders of whole sequences, and rows that are not as full, are possible.
NEED_PLAN = {"swap_batches", "swap_sequences", "swap_streams", "move_cut", "pad_the_middle"}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("shared")
    return {
        name: make_shards(folder / str(number), LENGTHS, shard_bytes=700, **options)
        for number, (name, options) in enumerate(KINDS.items())
    }


def check(path: Path, *, has_plan: bool = True) -> Report:
    if not has_plan:
        plan_by_another_version(path)
    return verify(path, VerifyOptions(level="roundtrip"))


@pytest.mark.parametrize("kind", KINDS)
def test_sets_that_are_taken_apart_and_put_together_pass(
    good: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    path = copy_of(good[kind], tmp_path)
    assert len(take_apart(path).shards) > 1
    put_together(take_apart(path))
    assert check(path).findings == []
    assert check(path, has_plan=False).findings == []


@pytest.mark.parametrize("kind", [QUICK, *(pytest.param(kind, marks=SLOW) for kind in OTHERS)])
def test_no_forgery_passes(good: dict[str, Path], tmp_path: Path, kind: str) -> None:
    done = 0
    for number, (name, forge) in enumerate(FORGERIES.items()):
        for has_plan in (True, False) if name in NEED_PLAN else (False,):
            path = copy_of(good[kind], tmp_path / f"{number}{has_plan}")
            forged = take_apart(path, number)
            if not forge(forged):
                continue
            if not forged.tamper:
                put_together(forged)
            done += 1
            try:
                found = check(path, has_plan=has_plan).findings
            except SeqpackError as error:
                assert error.message.startswith(str(path))
                continue
            assert found or (not has_plan and name in NEED_PLAN), (name, has_plan)
    assert done > 20


@pytest.mark.parametrize(
    ("name", "batch", "row", "what"),
    [
        ("flip_resets", 1, 3, "resets is 1, but stream 1 goes on from the batch before"),
        ("clear_next_ids", 1, 3, "next_ids is -1, the next batch of stream 1 gives 112"),
        ("swap_streams", 1, 0, "stream 0 begins at token 11, where the batch before does not end"),
        ("drop_last_batch", 0, 1, "stream 1 begins at token 7, where the stream before does not"),
    ],
)
def test_faults_of_links_name_batch_and_row(
    good: dict[str, Path], tmp_path: Path, name: str, batch: int, row: int, what: str
) -> None:
    path = copy_of(good["streams"], tmp_path)
    forged = take_apart(path, 1)
    assert FORGERIES[name](forged)
    if not forged.tamper:
        put_together(forged)
    finding = check(path, has_plan=False).findings[0]
    assert (finding.level, finding.batch, finding.row) == ("structure", batch, row)
    assert finding.what.startswith(what)


def copy_of(path: Path, folder: Path) -> Path:
    """Copy a set beside its store, which is linked."""
    shutil.copytree(path, folder / "shards")
    (folder / "store").symlink_to(path.parent / "store")
    assert read_manifest_json(folder / "shards")["stores"][0]["path"] == "../store"
    return folder / "shards"
