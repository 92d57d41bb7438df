"""A value derived from a text arrives beside it, through every layout and every option of order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from column_corpus import KEEP, assert_beside_its_text, expect_values, write_records
from command import run
from here import HERE
from shard_reference import change_shard

from seqpack_cli import PackOptions, TokenizeOptions, open_shards, open_store, pack, tokenize
from seqpack_cli.runs.workers import Progress
from seqpack_cli.shards.layouts import Batch
from seqpack_cli.shards.shard_set import ShardSet

CASES: dict[str, dict[str, Any]] = {
    "packed": {},
    "packed, order none": {"batch_size": 7, "order": "none"},
    "packed, window": {"max_tokens": 120, "window": 9},
    "packed, shuffled, buckets": {"batch_size": 5, "shuffle": True, "buckets": "auto"},
    "packed, selected": {"batch_size": 4, "where": ["first != a", "length < 20"]},
    "padded": {"layout": "padded", "batch_size": 8, "pad_to_multiple": 4},
    "padded left, filler": {
        "layout": "padded",
        "batch_size": 6,
        "padding_side": "left",
        "last_batch": "pad",
        "buckets": (8, 16, 64),
        "shuffle": True,
        "seed": 3,
    },
    "padded, dropped": {"layout": "padded", "max_tokens": 90, "drop_longer": 25, "window": 12},
    "varlen": {"layout": "varlen", "max_tokens": 64},
    "varlen, split": {"layout": "varlen", "max_tokens": 6},
    "varlen, sequential": {"layout": "varlen", "max_tokens": 10, "fill": "sequential"},
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a store of several parts whose columns follow from its texts."""
    folder = tmp_path_factory.mktemp("columns")
    write_records(folder / "records.jsonl")
    options = TokenizeOptions(keep=KEEP, tag_subtokens="all", part_bytes=4000)
    manifest, _ = tokenize([folder / "records.jsonl"], folder / "store", options, executor=HERE)
    assert len(manifest["parts"]) > 2
    return folder / "store"


def check_batch(shards: ShardSet, batch: Batch, sequences: list[np.ndarray]) -> None:
    """Assert that every value of a batch is right, those of filler and padding too."""
    assert batch.original_indices is not None
    is_padding = np.ones(batch.data.size, bool)
    starts = np.zeros_like(batch.lengths) if batch.piece_starts is None else batch.piece_starts
    for row, index in enumerate(batch.original_indices.tolist()):
        values = {}
        for name, column in shards.columns.items():
            values[name] = batch.columns[name][row : row + 1]
            if column.is_per_token:
                assert batch.columns[name].shape == batch.shape
                values[name] = np.ravel(batch.columns[name])[batch.find_cells(row)]
        if index >= 0:
            is_padding[batch.find_cells(row)] = False
            ids = sequences[index].tolist()
            assert_beside_its_text(shards.columns, values, ids, int(starts[row]))
        else:
            found = {name: list(value) for name, value in values.items()}
            assert found == {
                "length": [0],
                "share": [0],
                "first": [-100],
                "copy": [""],
                "parity": [],
            }
    assert (np.ravel(batch.columns["parity"])[is_padding] == -100).all()


@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
def test_values_arrive_beside_their_text(
    store: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    manifest, _ = pack(
        store, tmp_path / "shards", PackOptions(**options, shard_bytes=9000), executor=HERE
    )
    assert len(manifest["shards"]) > 1
    shards, sequences = open_shards(tmp_path / "shards"), list(open_store(store))
    for index in range(len(shards)):
        for batch in (shards[index], shards.take(index), shards[index].without_filler()):
            check_batch(shards, batch, sequences)
    assert run("unpack", tmp_path / "shards", "-o", tmp_path / "rows.jsonl").exit_code == 0
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert len(rows) == manifest["ledger"]["num_sequences"]
    for row in rows:
        assert row["ids"] == sequences[row["index"]].tolist()
        assert row["columns"] == expect_values(row["ids"])
    assert run("unpack", tmp_path / "shards", "-o", tmp_path / "rows.jsonl").exit_code == 4
    overwritten = run(
        "unpack", tmp_path / "shards", "--text", "-o", tmp_path / "rows.jsonl", "--overwrite"
    )
    assert overwritten.exit_code == 0, overwritten.output


def test_interrupted_pack_goes_on_with_its_columns(store: Path, tmp_path: Path) -> None:
    options = PackOptions(batch_size=4, shard_bytes=9000)
    manifest, _ = pack(store, tmp_path / "whole", options, executor=HERE)

    def stop(num_tokens: int) -> None:
        if len(list(tmp_path.glob("again/*.safetensors"))) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pack(store, tmp_path / "again", options, executor=HERE, progress=Progress(on_advance=stop))
    notices: list[str] = []
    progress = Progress(on_notice=notices.append)
    pack(store, tmp_path / "again", options, executor=HERE, progress=progress)
    assert f"1 of {len(manifest['shards'])} shards were finished before" in notices
    for name in ["manifest.json", *(entry["name"] for entry in manifest["shards"])]:
        found = (tmp_path / "again" / name).read_bytes()
        assert found == (tmp_path / "whole" / name).read_bytes()


def test_pieces_with_other_values_are_refused(store: Path, tmp_path: Path) -> None:
    pack(store, tmp_path / "s", PackOptions(layout="varlen", max_tokens=6), executor=HERE)

    def change(arrays: dict[str, np.ndarray]) -> None:
        row = int((arrays["piece_starts"] > 0).argmax())
        arrays["column.length"][row] += 1

    change_shard(tmp_path / "s", change)
    result = run("unpack", tmp_path / "s", "-o", "-")
    assert result.exit_code == 4
    assert "differ in column 'length'" in result.stderr
