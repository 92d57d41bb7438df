"""The pack run: the shards of a store, the same bytes from every run, and its errors."""

from __future__ import annotations

import json
import multiprocessing
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from here import HERE
from reference import read_folder
from shard_reference import (
    LENGTHS,
    batch_cost,
    make_store,
    make_texts,
    read_manifest_json,
    to_arrays,
)

from seqpack_cli.batching.options import PLAN_VERSION, PackOptions
from seqpack_cli.errors import DataError, FolderError, OptionError
from seqpack_cli.runs.workers import Executor, Progress, Workers
from seqpack_cli.shards import pack as pack_module
from seqpack_cli.shards.manifest import COUNTS
from seqpack_cli.shards.pack_plan import plan_store
from seqpack_cli.shards.pack_shard import SetSetup, ShardTask, SourceSetup, make_shard
from seqpack_cli.shards.padded import PaddedBatch
from seqpack_cli.shards.selection import Selection
from seqpack_cli.shards.shard_set import open_shards
from seqpack_cli.shards.shared_rows import VarlenBatch
from seqpack_cli.shards.unpack import iter_unpacked
from seqpack_cli.tokens.store import open_store, open_stores
from seqpack_cli.verification.options import VerifyOptions
from seqpack_cli.verification.verify_run import verify

LAYOUTS = ("packed", "padded")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("pack"), make_texts(LENGTHS))


def pack(store: Path, output: Path, **options: Any) -> dict[str, Any]:
    manifest, complete = pack_module.pack(store, output, PackOptions(**options), executor=HERE)
    assert not complete
    return manifest


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "options",
    [{}, {"batch_size": 3}, {"max_tokens": 14}, {"batch_size": 2, "max_tokens": 20}],
    ids=str,
)
def test_pack_holds_every_sequence_once(
    store: Path, tmp_path: Path, layout: str, options: dict[str, int]
) -> None:
    manifest = pack(store, tmp_path / "shards", layout=layout, shard_bytes=404, **options)
    shards, tokens = open_shards(tmp_path / "shards"), open_store(store)
    found: dict[int, list[int]] = {}
    num_padding_cells = 0
    for batch in shards:
        assert batch.original_indices is not None
        lengths = batch.lengths.tolist()
        assert len(lengths) <= options.get("batch_size", 64)
        cost = batch_cost(lengths, padded=layout == "padded")
        assert cost <= options.get("max_tokens", cost)
        num_padding_cells += batch_cost(lengths, padded=True) - sum(lengths)
        for index, row in zip(batch.original_indices.tolist(), batch.rows(), strict=True):
            assert index not in found
            found[index] = row.tolist()
    assert found == {index: ids.tolist() for index, ids in enumerate(tokens)}
    assert manifest["ledger"] == {
        "num_batches": len(shards),
        "num_rows": 7,
        "num_filler_rows": 0,
        "num_sequences": 7,
        "num_split_sequences": 0,
        "num_tokens": 37,
        "num_target_tokens": 37,
        "num_padding_cells": num_padding_cells if layout == "padded" else 0,
        "num_dropped_sequences": {},
        "num_dropped_tokens": {},
        "num_repeated_sequences": 0,
        "num_repeated_tokens": 0,
        "stores": [{"num_sequences": 7, "num_tokens": 37}],
    }


def test_pack_writes_its_manifest_and_nothing_else(store: Path, tmp_path: Path) -> None:
    output = tmp_path / "shards"
    manifest = pack(store, output, batch_size=3, shard_bytes=312)
    assert read_manifest_json(output) == manifest
    assert sorted(path.name for path in output.iterdir()) == [
        "manifest.json",
        "run.json",
        "shard-00000.safetensors",
        "shard-00001.safetensors",
        "tokenizer.json",
    ]
    tokens = open_store(store)
    assert {
        name: value for name, value in manifest.items() if name not in ("shards", "ledger")
    } == {
        "format": "seqpack.shards",
        "format_version": 11,
        "plan_version": PLAN_VERSION,
        "layout": "packed",
        "dtype": "uint16",
        "pad_id": 256,
        "padding_side": "right",
        "bucket_keys": None,
        "vocab_size": 259,
        "max_id": 258,
        **{"bos_id": 257, "eos_id": 258, "unk_id": None},
        "tokenizer_blake3": tokens.manifest["tokenizer_blake3"],
        "stores": [
            {
                "path": manifest["stores"][0]["path"],
                "blake3": tokens.digest,
                "passes": "1",
                "num_sequences": len(LENGTHS),
                "num_tokens": sum(LENGTHS),
            }
        ],
        "columns": [],
        "options": {
            "batch_size": 3,
            "max_tokens": None,
            "count": None,
            "order": "length",
            "window": None,
            "shuffle": False,
            "seed": 0,
            "buckets": None,
            "num_buckets": None,
            "fill": None,
            "overflow": None,
            "last_batch": "keep",
            "drop_shorter": None,
            "drop_longer": None,
            "where": [],
            "keep_without_target": False,
            "split": None,
            "split_name": None,
            "split_seed": 0,
            "split_by": None,
            "passes": None,
            "share": None,
            "max_passes": None,
            "drop_column": [],
            "store_column": None,
            "pad_to_multiple": 1,
            "align_sequences": 1,
            "shard_bytes": 312,
        },
        "decoder": None,
    }
    assert (output / manifest["stores"][0]["path"]).resolve() == store.resolve()
    assert [(entry["num_batches"], entry["longest"]) for entry in manifest["shards"]] == [
        (1, 12),
        (2, 5),
    ]
    assert (output / "tokenizer.json").read_bytes() == (store / "tokenizer.json").read_bytes()


def test_pack_cuts_shards_at_their_size(store: Path, tmp_path: Path) -> None:
    # 26 ids, 3 rows, 12 steps, offsets: 52 + 48 + 96 + 24 bytes; then 20 + 48 + 40 + 24; then 50
    sizes = ((1, [1, 1, 1]), (351, [1, 2]), (352, [2, 1]), (402, [3]))
    for shard_bytes, num_batches in sizes:
        manifest = pack(store, tmp_path / str(shard_bytes), batch_size=3, shard_bytes=shard_bytes)
        assert [entry["num_batches"] for entry in manifest["shards"]] == num_batches


def test_pack_gives_the_same_bytes_with_workers(store: Path, tmp_path: Path) -> None:
    """Layouts other than these are tested below, with processes that are kept."""
    options = PackOptions(batch_size=2, shard_bytes=100, where=["@length != 3"])
    advanced: list[int] = []
    for num_workers in (1, 2):
        advanced.clear()
        pack_module.pack(
            store,
            tmp_path / str(num_workers),
            options,
            executor=Executor(num_workers=num_workers),
            progress=Progress(on_advance=advanced.append),
        )
        assert sum(advanced) == 34
    assert read_folder(tmp_path / "1") == read_folder(tmp_path / "2")
    assert len(read_folder(tmp_path / "1")) > 4


LONG_LENGTHS = (3, 9, 5, 1, 5, 12, 2, 30, 7, 1, 1, 16, 4, 4, 25, 3, 8, 2, 11, 1, 6, 40, 2, 2, 5)
COMBINATIONS: dict[str, dict[str, Any]] = {
    "packed": {"batch_size": 4},
    "packed by tokens": {"max_tokens": 40, "shuffle": True, "seed": 1},
    "packed, windows": {"batch_size": 5, "max_tokens": 60, "window": 6, "last_batch": "drop"},
    "packed as it comes": {"batch_size": 4, "order": "none", "drop_longer": 29},
    "packed, shuffled alone": {"batch_size": 4, "order": "none", "shuffle": True, "seed": 9},
    "packed, buckets": {"batch_size": 3, "buckets": (4, 16, 64), "last_batch": "drop"},
    "packed, auto buckets": {"max_tokens": 50, "buckets": "auto", "num_buckets": 3},
    "packed, overflow": {"max_tokens": 20, "overflow": "drop", "drop_shorter": 2},
    "padded": {"layout": "padded", "batch_size": 4, "pad_to_multiple": 8},
    "padded left": {"layout": "padded", "max_tokens": 96, "padding_side": "left", "window": 7},
    "padded, filler": {
        "layout": "padded",
        "batch_size": 7,
        "last_batch": "pad",
        "shuffle": True,
        "pad_id": 0,
    },
    "padded, buckets": {
        "layout": "padded",
        "max_tokens": 64,
        "buckets": (8, 16, 32),
        "overflow": "drop",
        "last_batch": "pad",
        "padding_side": "left",
        "shuffle": True,
        "window": 9,
    },
    "padded, auto buckets": {
        "layout": "padded",
        "batch_size": 3,
        "max_tokens": 128,
        "buckets": "auto",
        "num_buckets": 4,
        "pad_to_multiple": 4,
        "last_batch": "drop",
        "order": "none",
        "shuffle": True,
    },
    "varlen": {"layout": "varlen", "max_tokens": 64},
    "varlen, split": {"layout": "varlen", "max_tokens": 7, "seed": 3},
    "varlen, dropped": {
        "layout": "varlen",
        "max_tokens": 16,
        "overflow": "drop",
        "drop_shorter": 3,
    },
    "varlen in order": {"layout": "varlen", "max_tokens": 9, "fill": "sequential"},
    "varlen in order, shuffled": {
        "layout": "varlen",
        "max_tokens": 9,
        "fill": "sequential",
        "shuffle": True,
        "drop_longer": 30,
    },
}


@pytest.fixture(scope="module")
def long_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a store of several parts."""
    store = make_store(tmp_path_factory.mktemp("long"), make_texts(LONG_LENGTHS), part_bytes=40)
    assert len(open_store(store).manifest["parts"]) > 3
    return store


@pytest.fixture(scope="module")
def two_processes() -> Iterator[ProcessPoolExecutor]:
    """Return two spawned processes for all tests: starting them takes longer than packing."""
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        yield pool


@pytest.mark.parametrize("values", COMBINATIONS.values(), ids=COMBINATIONS)
def test_pack_holds_the_whole_store_with_any_options(
    long_store: Path,
    two_processes: ProcessPoolExecutor,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    values: dict[str, Any],
) -> None:
    options = {**values, "shard_bytes": 404}
    manifest = pack(long_store, tmp_path / "shards", **options)
    assert len(manifest["shards"]) > 1
    assert_ledger_adds_up(tmp_path / "shards", manifest, values)
    assert verify(tmp_path / "shards", VerifyOptions(level="roundtrip")).passed

    def run_in_two(
        self: Workers, function: Callable[[Any], Any], tasks: Sequence[Any], **limits: int
    ) -> Iterator[Any]:
        futures = [two_processes.submit(function, task) for task in reversed(tasks)]
        yield from (future.result() for future in as_completed(futures))

    monkeypatch.setattr(Workers, "run", run_in_two)
    assert pack(long_store, tmp_path / "again", **options) == manifest
    assert read_folder(tmp_path / "again") == read_folder(tmp_path / "shards")


def assert_ledger_adds_up(path: Path, manifest: dict[str, Any], values: dict[str, Any]) -> None:
    """Compare the ledger and the unpacked sequences with the store and a count of every row."""
    shards = open_shards(path)
    tokens = list(open_stores(shards.find_stores() or []))
    rows: list[tuple[int, int, int]] = []  # index, start in its sequence, length
    num_cells = 0
    for batch in shards:
        assert batch.original_indices is not None
        starts = np.zeros_like(batch.lengths)
        if isinstance(batch, VarlenBatch):
            assert batch.piece_starts is not None
            starts = batch.piece_starts
        rows += zip(batch.original_indices, starts, batch.lengths, strict=True)
        num_cells += batch.ids.size if isinstance(batch, PaddedBatch) else len(batch.data)
    kept = [row for row in rows if row[0] >= 0]
    indices = {int(index) for index, _, _ in kept}
    num_tokens = sum(int(length) for _, _, length in kept)
    ledger = manifest["ledger"]
    assert {name: ledger[name] for name in ledger if "dropped" not in name} == {
        "num_batches": len(shards),
        "num_rows": len(rows),
        "num_filler_rows": len(rows) - len(kept),
        "num_sequences": len(indices),
        "num_split_sequences": len({int(index) for index, start, _ in kept if start > 0}),
        "num_tokens": num_tokens,
        "num_target_tokens": num_tokens,
        "num_padding_cells": num_cells - num_tokens,
        "num_repeated_sequences": 0,
        "num_repeated_tokens": 0,
        "stores": [{"num_sequences": len(indices), "num_tokens": num_tokens}],
    }
    for name in COUNTS:
        assert sum(entry[name] for entry in manifest["shards"]) == ledger[name]
    assert max(entry["longest"] for entry in manifest["shards"]) == max(row[2] for row in kept)
    found = [(each.index, each.ids.tolist()) for each in iter_unpacked(shards, {})]
    assert found == [(index, tokens[index].tolist()) for index in sorted(indices)]
    missing = [len(ids) for index, ids in enumerate(tokens) if index not in indices]
    assert sum(ledger["num_dropped_sequences"].values()) == len(missing)
    assert sum(ledger["num_dropped_tokens"].values()) == sum(missing)
    assert_dropped_for_a_reason(ledger, values)


def assert_dropped_for_a_reason(ledger: dict[str, Any], values: dict[str, Any]) -> None:
    """Compare the reasons with the lengths; only `last_batch` drops sequences that would fit."""
    shortest = values.get("drop_shorter", 1)
    longest = values.get("drop_longer", max(LONG_LENGTHS))
    limit = longest
    if values.get("overflow") == "drop":
        keys = values.get("buckets", (values["max_tokens"],))
        limit = min(values["max_tokens"], max(keys))
    reasons = {
        "drop_shorter": [n for n in LONG_LENGTHS if n < shortest],
        "drop_longer": [n for n in LONG_LENGTHS if n > longest],
        "overflow": [n for n in LONG_LENGTHS if shortest <= n <= longest and n > limit],
    }
    for reason, lengths in reasons.items():
        assert ledger["num_dropped_sequences"].get(reason, 0) == len(lengths)
        assert ledger["num_dropped_tokens"].get(reason, 0) == sum(lengths)
    others = set(ledger["num_dropped_sequences"]) - set(reasons)
    assert others == ({"last_batch"} if values.get("last_batch") == "drop" else set())


@pytest.mark.parametrize(
    "name", ["packed by tokens", "padded left", "padded, filler", "varlen in order, shuffled"]
)
def test_pack_cuts_shards_that_its_options_allow(
    long_store: Path, tmp_path: Path, name: str
) -> None:
    values = COMBINATIONS[name]
    pack(long_store, tmp_path / "one", **values, shard_bytes=1 << 20)
    pack(long_store, tmp_path / "many", **values, shard_bytes=604)
    one, many = open_shards(tmp_path / "one"), open_shards(tmp_path / "many")
    assert one.num_shards == 1
    for found, expected in zip(many, one, strict=True):  # cuts do not change the rows
        for array_name, array in to_arrays(expected).items():
            assert to_arrays(found)[array_name].tolist() == array.tolist()
    for number in range(many.num_shards):
        shard = many.open_shard(number)
        assert len(shard) == 1 or shard.path.stat().st_size <= 1304


@pytest.mark.parametrize(
    ("values", "keys"),
    [
        ({"buckets": (1, 4, 8, 16)}, [1, 4, 8, 16]),
        ({"buckets": (4, 8, 16, 64)}, [4, 8, 16, 64]),
        pytest.param(
            {"layout": "padded", "buckets": (4, 9, 16), "last_batch": "drop"},
            [4, 9, 16],
        ),
        ({"layout": "padded", "buckets": (16, 4)}, [4, 16]),
        ({"layout": "padded", "buckets": "auto", "num_buckets": 2}, [5, 12]),
        ({"layout": "padded", "buckets": "auto", "pad_to_multiple": 4}, [4, 8, 12]),
        ({"layout": "padded"}, None),
    ],
    ids=str,
)
def test_pack_names_all_buckets(
    store: Path, tmp_path: Path, values: dict[str, Any], keys: list[int] | None
) -> None:
    manifest = pack(store, tmp_path / "shards", batch_size=2, **values)
    assert manifest["bucket_keys"] == keys
    if values.get("layout") == "padded" and keys is not None:
        widths = {to_arrays(batch)["widths"].item() for batch in open_shards(tmp_path / "shards")}
        assert widths <= set(keys)


def test_pack_with_buckets_again_is_already_complete(store: Path, tmp_path: Path) -> None:
    values = {"layout": "padded", "batch_size": 2, "buckets": (4, 8, 16)}
    manifest = pack(store, tmp_path / "shards", **values)
    again = pack_module.pack(store, tmp_path / "shards", PackOptions(**values), executor=HERE)  # type: ignore[arg-type]
    assert again == (manifest, True)


CONTINUED: dict[str, dict[str, Any]] = {
    "packed": {"batch_size": 2, "shuffle": True, "seed": 2**64 - 1, "buckets": (4, 8, 16)},
    "where": {"batch_size": 1, "shuffle": True, "where": ("@length != 5",)},
    "padded": {
        "layout": "padded",
        "batch_size": 2,
        "shuffle": True,
        "seed": 3,
        "window": 4,
        "last_batch": "pad",
        "padding_side": "left",
    },
    "varlen": {"layout": "varlen", "max_tokens": 8, "seed": 11},
}
# Ends like a process killed with -9, after the second shard and before its receipt is written.
KILLED = """
import os, signal, sys
from pathlib import Path
from seqpack_cli.batching.options import PackOptions
from seqpack_cli.runs.workers import Executor
from seqpack_cli.shards import pack_shard
from seqpack_cli.shards import pack as pack_module

write = pack_shard.write_receipt

def write_or_die(folder, name, receipt):
    if name == "shard-00001":
        os.kill(os.getpid(), signal.SIGKILL)
    write(folder, name, receipt)

pack_shard.write_receipt = write_or_die
options = PackOptions(**eval(sys.argv[3]))
pack_module.pack(Path(sys.argv[1]), Path(sys.argv[2]), options, executor=Executor(num_workers=1))
"""


def test_pack_of_another_seed_gives_other_batches(store: Path, tmp_path: Path) -> None:
    for layout, limit in (("packed", {"batch_size": 2}), ("varlen", {"max_tokens": 12})):
        found = set()
        for seed in range(3):
            folder = tmp_path / f"{layout}{seed}"
            pack(store, folder, layout=layout, shuffle=True, seed=seed, **limit)
            batches = [batch.original_indices for batch in open_shards(folder)]
            found.add(str(batches))
        assert len(found) == 3


def test_pack_again_is_already_complete(store: Path, tmp_path: Path) -> None:
    manifest = pack(store, tmp_path / "shards", batch_size=3)
    before = read_folder(tmp_path / "shards")
    again = pack_module.pack(store, tmp_path / "shards", PackOptions(batch_size=3), executor=HERE)
    assert again == (manifest, True)
    assert read_folder(tmp_path / "shards") == before


def test_pack_of_the_default_is_64_rows(store: Path, tmp_path: Path) -> None:
    manifest = pack(store, tmp_path / "shards")
    again = pack_module.pack(store, tmp_path / "shards", PackOptions(batch_size=64), executor=HERE)
    assert again == (manifest, True)


def test_pack_overwrites_a_larger_run_without_leftovers(store: Path, tmp_path: Path) -> None:
    pack(store, tmp_path / "shards", batch_size=1, shard_bytes=1)
    pack_module.pack(
        store, tmp_path / "shards", PackOptions(batch_size=7), executor=HERE, overwrite=True
    )
    assert len(list((tmp_path / "shards").glob("shard-*"))) == 1


def test_pack_sees_a_store_that_was_overwritten(tmp_path: Path) -> None:
    for seed in (0, 1):
        if (tmp_path / "store").exists():
            for path in (tmp_path / "store").iterdir():
                path.unlink()
        store = make_store(tmp_path, make_texts(LENGTHS, seed))
        shards = tmp_path / f"shards{seed}"
        pack(store, shards, batch_size=7)
        (batch,) = open_shards(shards)
        assert batch.rows()[0].tolist() == open_store(store)[5].tolist()


def test_pack_drops_what_it_is_told_to_and_counts_it(store: Path, tmp_path: Path) -> None:
    manifest = pack(
        store,
        tmp_path / "shards",
        batch_size=3,
        drop_shorter=2,
        drop_longer=9,
        where=("@length != 9", "@length < 12"),
        last_batch="drop",
    )
    ledger = manifest["ledger"]
    assert ledger["num_sequences"] == 3
    reasons = ("drop_shorter", "drop_longer", "where", "last_batch")
    assert ledger["num_dropped_sequences"] == dict(zip(reasons, (1, 1, 1, 1), strict=True))
    assert ledger["num_dropped_tokens"] == dict(zip(reasons, (1, 12, 9, 2), strict=True))
    (batch,) = open_shards(tmp_path / "shards")
    assert batch.original_indices is not None
    assert batch.original_indices.tolist() == [2, 4, 0]


def test_pack_pads_with_the_asked_for_id(store: Path, tmp_path: Path) -> None:
    for pad_id, found in ((None, 256), (0, 0), (258, 258)):
        manifest = pack(store, tmp_path / str(pad_id), layout="padded", pad_id=pad_id)
        (batch,) = open_shards(tmp_path / str(pad_id))
        assert manifest["pad_id"] == found
        assert int(to_arrays(batch)["data"][-1]) == found


def test_pack_refuses_a_padding_id_without_an_embedding(store: Path, tmp_path: Path) -> None:
    for pad_id in (-1, 259):
        with pytest.raises(OptionError) as caught:
            pack(store, tmp_path / "shards", pad_id=pad_id)
        assert str(caught.value) == f"--pad-id {pad_id}: expected an id from 0 to 258"
    assert not (tmp_path / "shards").exists()


def test_pack_refuses_a_sequence_beyond_max_tokens(store: Path, tmp_path: Path) -> None:
    with pytest.raises(OptionError) as caught:
        pack(store, tmp_path / "shards", max_tokens=11)
    assert str(caught.value) == (
        f"{store}: sequence 5 ({store.parent / 'corpus.txt'}:6) has 12 tokens, "
        "--max-tokens allows 11\n\n"
        "hint: pass --max-tokens 12, drop longer ones with --overflow drop, or split them with "
        "tokenize --max-length 11"
    )
    assert caught.value.exit_code == 2
    pack(store, tmp_path / "dropped", max_tokens=11, drop_longer=11)
    pack(store, tmp_path / "hinted", max_tokens=11, overflow="drop")
    with pytest.raises(OptionError, match=r"sequence 5 .* has 12 tokens, --max-tokens allows 9"):
        pack(store, tmp_path / "other", max_tokens=9, drop_longer=12)


def test_pack_refused_can_follow_its_hint(store: Path, tmp_path: Path) -> None:
    # a refused run leaves nothing behind that blocks the next one
    with pytest.raises(OptionError, match=r"hint: pass --max-tokens 12"):
        pack(store, tmp_path / "shards", max_tokens=11)
    pack(store, tmp_path / "shards", max_tokens=12)


def test_pack_judges_max_tokens_by_the_sequences_it_keeps(store: Path, tmp_path: Path) -> None:
    # 12 is dropped by --drop-longer 11, so nothing that is kept has more than 9
    manifest = pack(store, tmp_path / "shards", max_tokens=9, drop_longer=11)
    assert manifest["ledger"]["num_sequences"] == 6
    with pytest.raises(OptionError, match=r"sequence 1 .* has 9 tokens, --max-tokens allows 8"):
        pack(store, tmp_path / "other", max_tokens=8, drop_longer=11)
    pack(store, tmp_path / "where", max_tokens=5, where=["@length <= 5"])


def test_pack_refuses_to_leave_nothing(store: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        pack(store, tmp_path / "shards", drop_shorter=13)
    assert str(caught.value) == (
        f"{store}: no batch is left, sequences dropped: 7 by --drop-shorter\n\n"
        "hint: pass a smaller --drop-shorter"
    )
    with pytest.raises(DataError, match="sequences dropped: 7 by --where\n\nhint: leave out a --"):
        pack(store, tmp_path / "shards", where=["@length = 4"])


def test_pack_refuses_to_write_into_the_store(store: Path) -> None:
    with pytest.raises(OptionError) as caught:
        pack(store, store)
    assert str(caught.value) == f"{store}: is the token store itself\n\nhint: choose another -o"


def test_pack_refuses_shards_as_its_input(store: Path, tmp_path: Path) -> None:
    pack(store, tmp_path / "shards")
    with pytest.raises(FolderError, match="hint: these are shards: pass the token store they were"):
        pack(tmp_path / "shards", tmp_path / "again")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_pack_keeps_ids_beyond_16_bits(tmp_path: Path, layout: str) -> None:
    tokenizer = {
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": {"type": "Whitespace"},
        "model": {"type": "WordLevel", "vocab": {"a": 0, "b": 70_000}, "unk_token": "a"},
    }
    names = ("truncation", "padding", "normalizer", "post_processor", "decoder")
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(tokenizer | dict.fromkeys(names)))
    store = make_store(tmp_path, ["b a b", "b"], tokenizer=str(path))
    manifest = pack(store, tmp_path / "shards", layout=layout)
    assert manifest["dtype"] == "int32"
    (batch,) = open_shards(tmp_path / "shards")
    assert [row.tolist() for row in batch.rows()] == [[70_000, 0, 70_000], [70_000]]


def test_pack_checks_that_nothing_is_lost(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan: Callable[..., Any] = pack_module.plan_store

    def forgetful(*args: Any) -> Any:
        planned = plan(*args)
        return replace(planned, table=planned.table.cut([0, planned.num_batches - 1])[0])

    monkeypatch.setattr(pack_module, "plan_store", forgetful)
    with pytest.raises(AssertionError, match="packed or dropped 6 of 7 sequences"):
        pack(store, tmp_path / "shards", batch_size=1)
    with pytest.raises(FolderError, match="incomplete run"):
        open_shards(tmp_path / "shards")


@pytest.mark.parametrize(
    ("lengths", "moves"), [([9, 5], (1, 5)), ([9, 5], (9, 9))], ids=["rows", "tokens"]
)
def test_worker_refuses_lengths_that_changed_since_the_plan(
    tmp_path: Path, lengths: list[int], moves: tuple[int, int]
) -> None:
    store = make_store(tmp_path, make_texts(lengths))
    opened = open_store(store)
    options = PackOptions(drop_shorter=2).resolve()
    source = Selection(opened, options)
    (rows,) = plan_store(source, options).cut([0, 1])
    setup = SetSetup(tmp_path, SourceSetup.of(source), {"layout": "packed"})
    with (store / "part-00000.idx").open("r+b") as file:
        file.seek(34)
        file.write(np.array(moves, "<i4").tobytes())
    with pytest.raises(FolderError) as caught:
        make_shard({None: setup}, ShardTask(None, 0, rows))
    assert (
        str(caught.value)
        == f"{store}: changed since this run began\n\nhint: run the same command again"
    )


@pytest.mark.parametrize("shuffle", [False, True])
def test_worker_refuses_another_store_of_the_same_lengths(tmp_path: Path, shuffle: bool) -> None:
    store = make_store(tmp_path / "first", make_texts([9, 5]))
    opened = open_store(store)
    options = PackOptions(shuffle=shuffle).resolve()
    source = Selection(opened, options)
    (rows,) = plan_store(source, options).cut([0, 1])
    setup = SetSetup(tmp_path, SourceSetup.of(source), {"layout": "packed"})
    shutil.rmtree(store)
    make_store(tmp_path / "second", make_texts([9, 5], seed=1)).rename(store)
    with pytest.raises(FolderError, match="store: changed since this run began"):
        make_shard({None: setup}, ShardTask(None, 0, rows))
    assert list(tmp_path.glob("shard-*")) == []
