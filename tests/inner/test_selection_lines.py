"""What `pack` and `inspect` show of several stores, of passes and of splits."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

import numpy as np
import pytest
from command import check_refused, run

from seqpack_cli.reporting.opened import find_store
from seqpack_cli.reporting.page.places import collect_places
from seqpack_cli.shards.shard_set import open_shards

PASSES = ("--passes", "a=2,b=0.5", "--batch-size", 4)
SPLIT = ("--split", "train=0.5,rest=rest", "--batch-size", 4)


@pytest.fixture
def stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Make two stores: of ten texts of 2 bytes, and of twelve texts of 3 bytes."""
    monkeypatch.chdir(tmp_path)
    for name, texts in (("a", range(10, 20)), ("b", range(100, 112))):
        (tmp_path / f"{name}.txt").write_text("".join(f"{text}\n" for text in texts))
        assert run("tokenize", f"{name}.txt", "-o", name).exit_code == 0
    return ["a", "b"]


def run_page(path: str) -> str:
    assert run("inspect", path, "--html", "page.html").exit_code == 0
    return Path("page.html").read_text()


def test_sequence_that_is_packed_twice_is_shown_once_with_both_places(stores: list[str]) -> None:
    run("pack", *stores, "-o", "out", *PASSES)
    found = json.loads(run("inspect", "out", "--sequence", 3, "--json").stdout)
    assert (found["text"], found["num_pieces"], found["origin"]["store_name"]) == ("13", 1, "a")
    first, second = found["visits"]
    assert first["batch"] < second["batch"]
    shown = run("inspect", "out", "--sequence", 3).stdout
    assert f"  again in           batch {second['batch']}, row {second['row']}\n" in shown


def test_places_of_several_visits_are_listed(stores: list[str]) -> None:
    run("pack", *stores, "-o", "out", "--passes", "a=3", "--batch-size", "4")
    shown = run("inspect", "out", "--sequence", 3).stdout
    assert re.search(r"^  again in +batch \d+, row \d+; batch \d+, row \d+$", shown, re.MULTILINE)


def test_search_of_a_page_finds_the_first_visit_and_the_store(stores: list[str]) -> None:
    run("pack", *stores, "-o", "out", *PASSES)
    shards = open_shards("out")
    places = collect_places(shards, find_store(shards))
    arrays = {
        name: np.frombuffer(base64.b64decode(places[name]), "<i4")
        for name in ("batches", "rows", "lengths", "visits", "documents")
    }
    order = [index for batch in shards for index in batch.original_indices.tolist()]
    assert arrays["visits"].tolist() == [order.count(index) for index in range(22)]
    for index in range(22):
        visits = arrays["visits"][index]
        assert arrays["lengths"][index] == ((2 if index < 10 else 3) if visits else -1)
        if visits:
            number = next(n for n, batch in enumerate(shards) if index in batch.original_indices)
            row = shards[number].original_indices.tolist().index(index)
            assert (arrays["batches"][index], arrays["rows"][index]) == (number, row)
    assert places["stores"] == [["a", 0], ["b", 10]]
    assert places["sources"] == [["a.txt", 0], ["b.txt", 10]]


@pytest.mark.usefixtures("stores")
def test_stores_of_each_split_are_shown_by_what_passes_call_them() -> None:
    Path("x").mkdir()
    assert run("tokenize", "a.txt", "-o", "x/b").exit_code == 0
    shown = run("pack", "b", "x/b", "-o", "out", *SPLIT, "--passes", "2=0.5").stdout.splitlines()
    for name, passes in (("train", "0.5"), ("rest", "1")):
        place = shown.index(f"  stores of {name}")
        assert shown[place + 2].split()[:3] == ["1:", "../b", "1"]
        assert shown[place + 3].split()[:3] == ["2:", "../x/b", passes]


@pytest.mark.usefixtures("stores")
def test_sequence_of_all_splits_names_its_split() -> None:
    run("pack", "a", "b", "-o", "out", *SPLIT)
    for index in (0, 15):
        found = json.loads(run("inspect", "out", "--sequence", index, "--json").stdout)
        inside = run("inspect", f"out/{found['split']}", "--sequence", index)
        assert (
            f"split              {found['split']}"
            in run("inspect", "out", "--sequence", index).stdout
        )
        assert found["text"] in inside.stdout
    missing = run("inspect", "out", "--sequence", 22)
    check_refused(missing, 2, "--sequence 22: out has sequences 0 to 21")


@pytest.mark.usefixtures("stores")
@pytest.mark.parametrize(
    ("arguments", "code", "lines"),
    [
        (
            ("inspect", "out", "--batch", 2),
            2,
            ("--batch 2: out holds 2 splits, expected one", "seqpack inspect out/train --batch 2"),
        ),
        (
            ("inspect", "out", "--html", "page.html"),
            2,
            (
                "--html page.html: out holds 2 splits, expected one",
                "seqpack inspect out/train --html page.html",
            ),
        ),
        (
            ("inspect", "out", "--vocabulary"),
            4,
            (
                "out/manifest.json: format 'seqpack.splits', expected 'seqpack.shards'",
                "these are splits: name one of them, such as out/train",
            ),
        ),
        (
            ("unpack", "out", "-o", "-"),
            4,
            (
                "out/manifest.json: format 'seqpack.splits', expected 'seqpack.shards'",
                "these are splits: name one of them, such as out/train",
            ),
        ),
    ],
)
def test_commands_that_take_one_split_name_one(
    arguments: tuple[object, ...], code: int, lines: tuple[str, str]
) -> None:
    assert run("pack", "a", "b", "-o", "out", *SPLIT).exit_code == 0
    check_refused(run(*arguments), code, lines[0], f"hint: {lines[1]}")


@pytest.mark.usefixtures("stores")
@pytest.mark.parametrize(
    "arguments", [("pack", "out", "-o", "again"), ("plan", "out"), ("plan", "a", "out")]
)
def test_commands_that_take_token_stores_name_them_where_splits_are_given(
    arguments: tuple[str, ...],
) -> None:
    assert run("pack", "a", "b", "-o", "out", *SPLIT).exit_code == 0
    message = "out/manifest.json: format 'seqpack.splits', expected 'seqpack.tokens'"
    hint = "hint: these are splits: pass the token store they were packed from"
    check_refused(run(*arguments), 4, message, hint)


@pytest.mark.usefixtures("stores")
def test_inspect_of_several_folders_needs_vocabulary() -> None:
    result = run("inspect", "a", "b")
    assert result.exit_code == 2
    assert "found 2 folders: only --vocabulary takes several" in result.stderr
