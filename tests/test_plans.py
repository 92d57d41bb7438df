"""What `inspect --plan` foretells is what `pack` then makes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import run
from shard_reference import make_store, make_texts

from seqpack_cli.batching.pack_options import PackOptions
from seqpack_cli.cli.pack_command import command
from seqpack_cli.reporting.plans import compare_plans, list_ways, show_plans, spell_options
from seqpack_cli.shards.shard_set import open_shards
from seqpack_cli.tokens.token_store import open_store

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
        if manifest["layout"] == "varlen":
            bound = -(-sum(LENGTHS) // manifest["options"]["max_tokens"])
            assert plan["lower_bound_batches"] == bound
            assert plan["longest"] == plan["most_cells"]
        else:
            longest = [
                len(batch.batch_sizes) if manifest["layout"] == "packed" else batch.ids.shape[1]
                for _, _, batch in sizes
            ]  # type: ignore[union-attr]
            assert plan["longest"] == max(longest)


def test_ways_are_all_different_and_hold_the_longest() -> None:
    for longest in (1, 2, 16_384, 16_385, 2**31 - 1):
        ways = list_ways(longest)
        assert len({spell_options(way) for way in ways}) == len(ways)
        for way in ways:
            way.resolve()
            assert way.layout == "varlen" or (way.max_tokens or longest) >= longest


def test_spelled_options_are_options_of_pack() -> None:
    names = {name for parameter in command.params for name in parameter.opts}
    for way in list_ways(100):
        assert {word for word in spell_options(way).split() if word.startswith("--")} <= names
    assert spell_options(PackOptions(order="none")) == "--layout packed --order none"


def test_plan_shows_a_line_for_each_way(store: Path) -> None:
    compared = compare_plans(open_store(store))
    shown = show_plans(compared)
    assert run("inspect", store, "--plan").stdout == "\n".join(shown) + "\n"
    assert json.loads(run("inspect", store, "--plan", "--json").stdout) == compared
    for plan in compared["plans"]:
        (line,) = [line for line in shown if line.endswith(f"  {plan['options']}")]
        assert f"{plan['num_batches']:,}" in line


def test_plan_of_shards_is_refused(store: Path, tmp_path: Path) -> None:
    shards = tmp_path / "shards"
    assert run("pack", store, "-o", shards).exit_code == 0
    result = run("inspect", shards, "--plan")
    assert (result.exit_code, result.stderr) == (
        2,
        f"Error: {shards}: shards are packed already\n\nhint: name their token store\n",
    )
