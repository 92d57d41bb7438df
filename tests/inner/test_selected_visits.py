"""Shards of another plan version: what their options select is compared with what they hold."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from forgeries import Batch, Forgery, put_together, take_apart
from here import HERE
from shard_reference import (
    change_manifest,
    make_column_store,
    make_store,
    make_texts,
    plan_by_another_version,
)

from seqpack_cli.batching.options import PackOptions
from seqpack_cli.shards.pack_run import pack
from seqpack_cli.verification import verify_run
from seqpack_cli.verification.options import VerifyOptions
from seqpack_cli.verification.report import Report

pytestmark = pytest.mark.usefixtures("one_thread")

LENGTHS = [[5, 5, 9, 12, 5, 7, 7, 3, 5, 9], [6, 6, 4, 5, 5, 11, 6, 8]]
HALF = {"passes": "1=2.5,2=0.5"}


def make_two(folder: Path, *, has_columns: bool, **options: Any) -> Path:
    """Make two stores and pack both."""
    make = make_column_store if has_columns else make_store
    stores = [
        make(folder / str(number), make_texts(lengths, number))
        for number, lengths in enumerate(LENGTHS)
    ]
    pack(stores, folder / "shards", PackOptions(batch_size=4, **options), executor=HERE)
    return folder / "shards"


def verify(path: Path) -> Report:
    report = verify_run.verify(path, VerifyOptions(level="structure"))
    assert not report.plan.compared
    return report


# Lies about options: what is packed, what the manifest says, the passes it says, the finding
SAID: dict[str, tuple[dict[str, Any], dict[str, Any], list[str] | None, str]] = {
    "condition": ({"where": ("label = ham",)}, {"where": ["label = eggs"]}, None, "the options"),
    "seed of passes": ({**HALF, "seed": 3}, {"seed": 0}, None, "the options"),
    "passes": (HALF, {"passes": "1=2.25,2=0.5"}, ["2.25", "0.5"], "the options"),
    "share": (
        {"share": "1=0.7,2=0.3"},
        {"share": "1=0.6,2=0.4"},
        None,
        "passes of store 2 is ",
    ),
}


@pytest.mark.parametrize("name", SAID)
def test_options_that_select_others_are_found(tmp_path: Path, name: str) -> None:
    options, said, passes, what = SAID[name]
    path = make_two(tmp_path, has_columns=True, **options)
    plan_by_another_version(path)
    assert verify(path).findings == []

    def lie(manifest: dict[str, Any]) -> None:
        manifest["options"].update(said)
        for entry, number in zip(manifest["stores"], passes or [], strict=False):
            entry["passes"] = number

    change_manifest(path, lie)
    assert any(what in finding.what for finding in verify(path).findings)


def book(forgery: Forgery, rows: list[Any], reason: str) -> None:
    """Count removed rows as dropped for a reason."""
    ledger = forgery.manifest["ledger"]
    ledger["num_dropped_sequences"][reason] += len(rows)
    ledger["num_dropped_tokens"][reason] += sum(len(ids) for _, _, ids in rows)


def repeat(forgery: Forgery, row: Any, count: int) -> None:
    ledger = forgery.manifest["ledger"]
    ledger["num_repeated_sequences"] += count
    ledger["num_repeated_tokens"] += count * len(row[2])


def drop_row(forgery: Forgery) -> None:
    book(forgery, [forgery.batches[0].rows.pop()], "drop_shorter")


def drop_store(forgery: Forgery) -> None:
    first, dropped = len(LENGTHS[0]), []
    for batch in forgery.batches:
        dropped += [row for row in batch.rows if row[0] >= first]
        batch.rows = [row for row in batch.rows if row[0] < first]
    forgery.shards = [[batch for batch in shard if batch.rows] for shard in forgery.shards]
    book(forgery, dropped, "drop_longer")


def drop_batch(forgery: Forgery) -> None:
    book(forgery, forgery.shards[0].pop(0).rows, "last_batch")


def find_visited(forgery: Forgery, num_visits: int) -> tuple[Batch, int]:
    """Return a batch of several rows, and the place of one whose sequence has so many visits."""
    indices = [index for batch in forgery.batches for index, _, _ in batch.rows]
    return next(
        (batch, place)
        for batch in forgery.batches
        for place, row in enumerate(batch.rows)
        if indices.count(row[0]) == num_visits and len(batch.rows) > 1
    )


def drop_visit(forgery: Forgery) -> None:
    batch, place = find_visited(forgery, 3)
    repeat(forgery, batch.rows.pop(place), -1)


def add_visit(forgery: Forgery) -> None:
    batch, place = find_visited(forgery, 2)
    forgery.shards[0].append(Batch([batch.rows[place]], 0))
    repeat(forgery, batch.rows[place], 1)


FORGED: dict[str, tuple[dict[str, Any], Callable[[Forgery], None], str]] = {
    "row dropped as too short": (
        {"drop_shorter": 2},
        drop_row,
        "is packed 0 times, the options select it once",
    ),
    "a store dropped as too long": ({"drop_longer": 20}, drop_store, "; 7 more differ"),
    "batch dropped as a last one": (
        {"last_batch": "drop"},
        drop_batch,
        "6 sequences are missing, a last batch that is dropped has at most 3",
    ),
    "visit left out": (HALF, drop_visit, "is packed 2 times, the options select it 3 times"),
    "visit too many": (HALF, add_visit, "is packed 3 times, the options select it 2 times"),
}


@pytest.mark.parametrize("name", FORGED)
def test_selection_that_is_not_packed_is_found(tmp_path: Path, name: str) -> None:
    options, change, what = FORGED[name]
    path = make_two(tmp_path, has_columns=False, **options)
    plan_by_another_version(path)
    forgery = take_apart(path, 0)
    put_together(forgery)
    assert verify(path).findings == []
    change(forgery)
    put_together(forgery)
    found = [finding.what for finding in verify(path).findings]
    assert any(what in each for each in found), found


def test_visit_left_out_is_found_without_the_stores(tmp_path: Path) -> None:
    path = make_two(tmp_path, has_columns=False, passes="1=2.5,2=2")
    for number in range(2):
        (tmp_path / str(number)).rename(tmp_path / f"hidden{number}")
    assert verify(path).findings == []
    forgery = take_apart(path, 0)
    row = forgery.batches[0].rows.pop(0)
    visits = sum(other[0] == row[0] for batch in forgery.batches for other in batch.rows)
    assert visits == 1
    repeat(forgery, row, -1)
    put_together(forgery)
    (finding,) = verify(path).findings
    assert finding.what == f"sequence {row[0]} is packed once, expected at least 2 times"
