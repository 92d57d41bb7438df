"""What `plan` predicts is what `pack` then makes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import run
from hypothesis import example, given
from hypothesis import strategies as st
from shard_reference import make_store, make_texts

from seqpack_cli.batching.options import PackOptions
from seqpack_cli.cli.pack_commands import pack_command
from seqpack_cli.reporting.opened import open_any_as_one
from seqpack_cli.reporting.pack_ways import list_ways, spell_options
from seqpack_cli.reporting.plans import compare_plans
from seqpack_cli.reporting.terminal.plan_lines import FOOTER, show_plans
from seqpack_cli.reporting.wording import WIDTH, count_columns
from seqpack_cli.shards.shard_set import open_shards
from seqpack_cli.tokens.store import open_store

LENGTHS = (*range(1, 60), *(7 * n % 300 + 1 for n in range(150)), 2100)
HEADER_BYTES = 2048  # of a shard at most, with the one more entry of each offsets array


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("plans"), make_texts(LENGTHS), part_bytes=4000)


def test_every_plan_is_what_pack_makes_of_its_options(store: Path, tmp_path: Path) -> None:
    compared = compare_plans(open_store(store))
    assert compared["num_sequences"] == len(LENGTHS)
    assert compared["num_tokens"] == sum(LENGTHS)
    for number, plan in enumerate(compared["plans"]):
        output = tmp_path / str(number)
        result = run("pack", store, "-o", output, "--json", *plan["options"].split())
        assert result.exit_code == 0, plan
        manifest = json.loads(result.stdout)
        ledger = manifest["ledger"]
        num_cells = ledger["num_tokens"] + ledger["num_padding_cells"]
        sizes = [
            (sum(batch.lengths) + batch.count_padding(), len(batch.lengths), batch)
            for batch in open_shards(output)
        ]
        assert ledger["num_dropped_sequences"] == {}
        assert plan["num_batches"] == ledger["num_batches"] == len(sizes)
        assert plan["padding_ratio"] == round(ledger["num_padding_cells"] / num_cells, 6)
        assert plan["most_cells"] == max(cells for cells, _, _ in sizes)
        assert plan["bucket_keys"] == manifest["bucket_keys"]
        num_bytes = sum(entry["bytes"] for entry in manifest["shards"])
        assert 0 < num_bytes - plan["bytes"] < HEADER_BYTES * len(manifest["shards"])
        if "num_split_sequences" in plan:
            num_rows = manifest["options"]["batch_size"] or 1
            bound = -(-sum(LENGTHS) // manifest["options"]["max_tokens"])
            assert plan["lower_bound_batches"] == -(-bound // num_rows)
            assert plan["longest"] == plan["most_cells"] // num_rows
            assert plan["num_split_sequences"] == ledger["num_split_sequences"]
        else:
            longest = [
                len(batch.batch_sizes) if manifest["layout"] == "packed" else batch.ids.shape[1]
                for _, _, batch in sizes
            ]  # type: ignore[union-attr]
            assert plan["longest"] == max(longest)


def test_several_stores_are_planned_as_one(store: Path, tmp_path: Path) -> None:
    for name, lengths in (("a", LENGTHS[:90]), ("b", LENGTHS[90:])):
        make_store(tmp_path / name, make_texts(lengths))
    names = [str(tmp_path / name / "store") for name in ("a", "b")]
    found, whole = compare_plans(open_any_as_one(names)), compare_plans(open_store(store))
    assert found.pop("stores") == names
    assert found.pop("path") == ", ".join(names)
    assert found == {name: value for name, value in whole.items() if name not in ("path", "stores")}
    assert json.loads(run("plan", *names, "--json").stdout)["plans"] == whole["plans"]
    first = run("plan", *names).stdout.splitlines()[0]
    assert first.endswith(f": {len(LENGTHS)} sequences, {sum(LENGTHS):,} tokens, longest 2,100")


def test_ways_are_all_different_and_hold_the_longest() -> None:
    for longest in (1, 2, 16_384, 16_385, 2**31 - 1):
        ways = list_ways(longest)
        assert len({spell_options(way) for way in ways}) == len(ways)
        for way in ways:
            way.resolve()
            assert way.shares_rows or (way.max_tokens or longest) >= longest


def test_spelled_options_are_options_of_pack() -> None:
    names = {name for parameter in pack_command.params for name in parameter.opts}
    for way in list_ways(100):
        assert {word for word in spell_options(way).split() if word.startswith("--")} <= names
    assert spell_options(PackOptions(order="none")) == "--layout packed --order none"


def test_plan_shows_a_line_for_each_way(store: Path) -> None:
    compared = compare_plans(open_store(store))
    shown = show_plans(compared)
    assert run("plan", store).stdout == "\n".join(shown) + "\n"
    assert json.loads(run("plan", store, "--json").stdout) == compared
    table = shown[3 : 3 + len(compared["plans"])]
    assert len(set(table)) == len(table)
    for plan, line in zip(compared["plans"], table, strict=True):
        words = line.split()
        assert words[0] == plan["options"].split()[1]
        assert f"{plan['num_batches']:,}" in words
        assert f"{plan['padding_ratio']:.2%}" in [word.rstrip("*") for word in words]
        split = [f"{it:,}" for name, it in plan.items() if name == "num_split_sequences"]
        assert words[-1 - len(split) :] == [*split, f"{plan['most_cells']:,}"]


def plan(options: str, num_batches: int = 7, padding_ratio: float = 0.0) -> dict[str, object]:
    return {
        "options": options,
        "num_batches": num_batches,
        "padding_ratio": padding_ratio,
        "bytes": 1234,
        "longest": 5,
        "most_cells": 60,
    }


def shared(options: str, num_batches: int = 3, padding_ratio: float = 0.0) -> dict[str, object]:
    return {**plan(options, num_batches, padding_ratio), "num_split_sequences": 4}


def test_plan_table_names_the_batches_and_the_best_padded_way() -> None:
    plans = [
        plan("--layout packed --batch-size 64"),
        plan("--layout padded --batch-size 64 --order none", 7, 0.9),
        plan("--layout padded --batch-size 32 --buckets auto --num-buckets 16", 8, 0.25),
        plan("--layout padded --max-tokens 131072", 1200, 0.25),
        shared("--layout varlen --max-tokens 2048 --fill sequential"),
        shared("--layout varlen --batch-size 8 --max-tokens 2048 --fill chunk"),
        shared("--layout varlen --max-tokens 2048 --align-sequences 16", 3, 0.1),
        shared("--layout streams --batch-size 64 --max-tokens 128", 2, 0.01),
    ]
    compared = {"path": "p", "num_sequences": 9, "num_tokens": 40, "longest": 5, "plans": plans}
    compared["num_sequences_without_target"] = 0
    assert show_plans(compared) == [
        "p: 9 sequences, 40 tokens, longest 5",
        "",
        "layout   batch              buckets batches padding     size  split   largest",
        "packed   64 rows                          7  0.00%    1.2 kB               60",
        "padded   64 rows, unsorted                7 90.00%    1.2 kB               60",
        "padded   32 rows                 16       8 25.00%*   1.2 kB               60",
        "padded   131,072 cells                1,200 25.00%    1.2 kB               60",
        "varlen   2,048, sequential                3  0.00%    1.2 kB      4        60",
        "varlen   8 x 2,048, chunk                 3  0.00%    1.2 kB      4        60",
        "varlen   2,048, aligned 16                3 10.00%    1.2 kB      4        60",
        "streams  64 x 128 steps                   2  1.00%    1.2 kB      4        60",
        "",
        "* least padding of the padded layouts:",
        "    --layout padded --batch-size 32 --buckets auto --num-buckets 16",
        "",
        *FOOTER,
        "No sequence is dropped; varlen splits those that are longer than a row.",
    ]


@pytest.mark.parametrize(
    ("number", "shown"),
    [(999_999, "999,999"), (1_000_000, "1.00 M"), (123_456_789, "123 M"), (2**40, "1.10 T")],
)
def test_plan_table_shows_large_numbers_in_three_digits(number: int, shown: str) -> None:
    plans = [plan("--layout padded --batch-size 64", number)]
    compared = {"path": "p", "num_sequences": 1, "num_tokens": 1, "longest": 1, "plans": plans}
    compared["num_sequences_without_target"] = 0
    assert f" {shown}  0.00%*" in show_plans(compared)[3]


@example([1_000_000, 100, 1_000_000, 0, 0, 0], 0.0, 1)
@given(st.lists(st.integers(0, 10**14), min_size=6, max_size=6), st.floats(0, 1), st.integers(1))
def test_plan_table_fits_and_cuts_nothing(
    numbers: list[int], padding_ratio: float, longest: int
) -> None:
    ways = list_ways(min(longest, 2**31 - 1))
    plans = [
        {
            **{"options": spell_options(way), "padding_ratio": padding_ratio},
            **{"num_batches": numbers[0], "bytes": numbers[1]},
            **({"num_split_sequences": numbers[2]} if way.shares_rows else {}),
            **{"most_cells": numbers[3]},
        }
        for way in ways
    ]
    compared = {"num_sequences": numbers[4], "num_tokens": numbers[5], "longest": longest}
    compared["num_sequences_without_target"] = 0
    lines = show_plans({"path": "path" * 30, "plans": plans, **compared})
    assert max(map(count_columns, lines[1:])) <= WIDTH
    assert not any("…" in line for line in lines[1:])
    assert sum("*" in line for line in lines[3 : 3 + len(plans)]) == 1


def test_plan_of_shards_is_refused(store: Path, tmp_path: Path) -> None:
    shards = tmp_path / "shards"
    assert run("pack", store, "-o", shards).exit_code == 0
    result = run("plan", shards)
    assert (result.exit_code, result.stderr) == (
        4,
        f"Error: {shards}/manifest.json: format 'seqpack.shards', expected 'seqpack.tokens'\n\n"
        "hint: these are shards: pass the token store they were packed from\n",
    )
