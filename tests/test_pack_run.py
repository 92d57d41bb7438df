"""The pack run: shards of a store, the same bytes however they were made, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from shard_reference import (
    LENGTHS,
    batch_cost,
    folder_bytes,
    make_store,
    make_texts,
    read_manifest_json,
)

from seqpack_cli.errors import DataError, FolderError, OptionError
from seqpack_cli.execution import Progress
from seqpack_cli.run_folder import RunFolder
from seqpack_cli.shards import pack_run
from seqpack_cli.shards.pack_run import PackOptions, pack_store
from seqpack_cli.shards.pack_shard import make_shard
from seqpack_cli.shards.shard_set import open_shards
from seqpack_cli.tokens.token_store import open_store

LAYOUTS = ("packed", "padded")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("pack"), make_texts(LENGTHS))


def pack(store: Path, output: Path, **options: Any) -> dict[str, Any]:
    manifest, complete = pack_store(store, output, PackOptions(**options), num_workers=1)
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
    manifest = pack(store, tmp_path / "shards", layout=layout, shard_bytes=400, **options)
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
        "num_sequences": 7,
        "num_tokens": 37,
        "num_padding_cells": num_padding_cells if layout == "padded" else 0,
        "num_dropped_sequences": {},
        "num_dropped_tokens": {},
    }


def test_pack_writes_its_manifest_and_nothing_else(store: Path, tmp_path: Path) -> None:
    output = tmp_path / "shards"
    manifest = pack(store, output, batch_size=3, shard_bytes=300)
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
        "format_version": 1,
        "layout": "packed",
        "dtype": "uint16",
        "pad_id": 256,
        "vocab_size": 259,
        "max_id": 258,
        "tokenizer_sha256": tokens.manifest["tokenizer_sha256"],
        "tokens_sha256": tokens.sha256,
        "tokens_path": manifest["tokens_path"],
        "options": {
            "batch_size": 3,
            "max_tokens": None,
            "min_length": None,
            "max_length": None,
            "last_batch": "keep",
            "shard_bytes": 300,
        },
    }
    assert (output / manifest["tokens_path"]).resolve() == store.resolve()
    assert [(entry["num_batches"], entry["longest"]) for entry in manifest["shards"]] == [
        (1, 12),
        (2, 5),
    ]
    assert (output / "tokenizer.json").read_bytes() == (store / "tokenizer.json").read_bytes()


def test_pack_cuts_shards_at_their_size(store: Path, tmp_path: Path) -> None:
    # 26 ids, 3 rows, 12 steps: 52 + 48 + 96 bytes; then 20 + 48 + 40; then 2 + 16 + 8
    for shard_bytes, num_batches in ((1, [1, 1, 1]), (303, [1, 2]), (304, [2, 1]), (330, [3])):
        manifest = pack(store, tmp_path / str(shard_bytes), batch_size=3, shard_bytes=shard_bytes)
        assert [entry["num_batches"] for entry in manifest["shards"]] == num_batches


@pytest.mark.parametrize("layout", LAYOUTS)
def test_pack_gives_the_same_bytes_with_workers(store: Path, tmp_path: Path, layout: str) -> None:
    options = PackOptions(layout=layout, batch_size=2, shard_bytes=150)
    advanced: list[int] = []
    for num_workers in (1, 2):
        advanced.clear()
        pack_store(
            store,
            tmp_path / str(num_workers),
            options,
            num_workers=num_workers,
            progress=Progress(on_advance=advanced.append),
        )
        assert sum(advanced) == 37
    assert folder_bytes(tmp_path / "1") == folder_bytes(tmp_path / "2")
    assert len(folder_bytes(tmp_path / "1")) > 4


class _StopError(Exception):
    """Stands for whatever ends a run."""


@pytest.mark.parametrize("num_finished", [0, 1, 2])
def test_pack_goes_on_where_it_stopped(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_finished: int
) -> None:
    options = {"batch_size": 3, "shard_bytes": 1}
    pack(store, tmp_path / "whole", **options)
    made: list[int] = []

    def stop_later(task: Any) -> Any:
        if len(made) == num_finished:
            raise _StopError
        made.append(task.number)
        return make_shard(task)

    output = tmp_path / "stopped"
    with monkeypatch.context() as patch:
        patch.setattr(pack_run, "make_shard", stop_later)
        with pytest.raises(_StopError):
            pack(store, output, **options)
    with pytest.raises(FolderError, match=f"incomplete run, {num_finished} parts or shards finish"):
        open_shards(output)
    kept = {path.name: path.stat().st_ino for path in output.glob("*.safetensors")}
    assert len(kept) == num_finished
    (output / ".shard-00002.safetensors.1.tmp").write_bytes(b"cut off")
    notices: list[str] = []
    pack_store(
        store,
        output,
        PackOptions(**options),  # type: ignore[arg-type]
        num_workers=1,
        progress=Progress(on_notice=notices.append),
    )
    assert notices == ([f"{num_finished} of 3 shards were finished before"] if kept else [])
    assert folder_bytes(output) == folder_bytes(tmp_path / "whole")
    assert kept.items() <= {path.name: path.stat().st_ino for path in output.iterdir()}.items()


def test_pack_goes_on_when_only_the_manifest_is_missing(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(run: RunFolder, manifest: dict[str, Any]) -> None:
        raise _StopError

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "finish", stop)
        with pytest.raises(_StopError):
            pack(store, tmp_path / "stopped", batch_size=3)
    pack(store, tmp_path / "stopped", batch_size=3)
    pack(store, tmp_path / "whole", batch_size=3)
    assert folder_bytes(tmp_path / "stopped") == folder_bytes(tmp_path / "whole")


def test_pack_makes_a_shard_again_that_was_cut(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(run: RunFolder, manifest: dict[str, Any]) -> None:
        raise _StopError

    output = tmp_path / "stopped"
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "finish", stop)
        with pytest.raises(_StopError):
            pack(store, output, batch_size=3, shard_bytes=1)
    shard = output / "shard-00001.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1])
    (output / "shard-00002.json").write_text("{")
    pack(store, output, batch_size=3, shard_bytes=1)
    pack(store, tmp_path / "whole", batch_size=3, shard_bytes=1)
    assert folder_bytes(output) == folder_bytes(tmp_path / "whole")


def test_pack_again_is_already_complete(store: Path, tmp_path: Path) -> None:
    manifest = pack(store, tmp_path / "shards", batch_size=3)
    before = folder_bytes(tmp_path / "shards")
    again = pack_store(store, tmp_path / "shards", PackOptions(batch_size=3), num_workers=1)
    assert again == (manifest, True)
    assert folder_bytes(tmp_path / "shards") == before


def test_pack_of_the_default_is_64_rows(store: Path, tmp_path: Path) -> None:
    manifest = pack(store, tmp_path / "shards")
    again = pack_store(store, tmp_path / "shards", PackOptions(batch_size=64), num_workers=1)
    assert again == (manifest, True)


@pytest.mark.parametrize(
    ("options", "change"),
    [
        ({"batch_size": 4}, "options.batch_size was 3, is 4"),
        ({"layout": "padded"}, "layout was 'packed', is 'padded'"),
        ({"pad_id": 0}, "pad_id was 256, is 0"),
        ({"max_tokens": 30}, "options.max_tokens was None, is 30"),
    ],
    ids=str,
)
def test_pack_with_other_options_is_refused_until_overwritten(
    store: Path, tmp_path: Path, options: dict[str, Any], change: str
) -> None:
    output = tmp_path / "shards"
    pack(store, output, batch_size=3, shard_bytes=1)
    other = PackOptions(**{"batch_size": 3, "shard_bytes": 1, **options})
    with pytest.raises(FolderError) as caught:
        pack_store(store, output, other, num_workers=1)
    assert str(caught.value) == (
        f"{output}: holds a run that differs: {change}\n\n"
        "hint: choose another -o, or pass --overwrite to replace what is there"
    )
    pack_store(store, output, other, num_workers=1, overwrite=True)
    pack_store(store, tmp_path / "fresh", other, num_workers=1)
    assert folder_bytes(output) == folder_bytes(tmp_path / "fresh")


def test_pack_overwrites_a_larger_run_without_leftovers(store: Path, tmp_path: Path) -> None:
    pack(store, tmp_path / "shards", batch_size=1, shard_bytes=1)
    pack_store(store, tmp_path / "shards", PackOptions(batch_size=7), num_workers=1, overwrite=True)
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
        store, tmp_path / "shards", batch_size=3, min_length=2, max_length=9, last_batch="drop"
    )
    ledger = manifest["ledger"]
    assert ledger["num_sequences"] == 3
    assert ledger["num_dropped_sequences"] == {"min_length": 1, "max_length": 1, "last_batch": 2}
    assert ledger["num_dropped_tokens"] == {"min_length": 1, "max_length": 12, "last_batch": 5}
    (batch,) = open_shards(tmp_path / "shards")
    assert batch.original_indices is not None
    assert batch.original_indices.tolist() == [1, 2, 4]


def test_pack_pads_with_the_asked_for_id(store: Path, tmp_path: Path) -> None:
    for pad_id, found in ((None, 256), (0, 0), (258, 258)):
        manifest = pack(store, tmp_path / str(pad_id), layout="padded", pad_id=pad_id)
        (batch,) = open_shards(tmp_path / str(pad_id))
        assert manifest["pad_id"] == found
        assert int(batch.to_arrays()["data"][-1]) == found


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
        "--max-tokens is 11\n\n"
        "hint: pass --max-tokens 12, drop longer ones with --max-length 11, or split them with "
        "tokenize --max-length 11"
    )
    assert caught.value.exit_code == 2
    pack(store, tmp_path / "dropped", max_tokens=11, max_length=11)
    with pytest.raises(OptionError, match=r"sequence 5 .* has 12 tokens, --max-tokens is 9"):
        pack(store, tmp_path / "other", max_tokens=9, max_length=12)


def test_pack_refused_can_follow_its_hint(store: Path, tmp_path: Path) -> None:
    # a refused option leaves nothing behind that refuses the next try
    with pytest.raises(OptionError, match=r"hint: pass --max-tokens 12"):
        pack(store, tmp_path / "shards", max_tokens=11)
    pack(store, tmp_path / "shards", max_tokens=12)


def test_pack_judges_max_tokens_by_the_sequences_it_keeps(store: Path, tmp_path: Path) -> None:
    # 12 is dropped by --max-length 11, so nothing that is kept has more than 9
    manifest = pack(store, tmp_path / "shards", max_tokens=9, max_length=11)
    assert manifest["ledger"]["num_sequences"] == 6
    with pytest.raises(OptionError, match=r"sequence 1 .* has 9 tokens, --max-tokens is 8"):
        pack(store, tmp_path / "other", max_tokens=8, max_length=11)


def test_pack_refuses_to_leave_nothing(store: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        pack(store, tmp_path / "shards", min_length=13)
    assert str(caught.value) == (
        f"{store}: no batch is left, dropped are {{'min_length': 7}}\n\n"
        "hint: loosen --min-length, --max-length or --last-batch"
    )


def test_pack_refuses_to_write_into_the_store(store: Path) -> None:
    with pytest.raises(OptionError) as caught:
        pack(store, store)
    assert str(caught.value) == f"{store}: is the token store itself\n\nhint: choose another -o"


def test_pack_refuses_shards_as_its_input(store: Path, tmp_path: Path) -> None:
    pack(store, tmp_path / "shards")
    with pytest.raises(FolderError, match="hint: these are shards: name the token store they were"):
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


def test_pack_checks_that_nothing_went_astray(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan: Callable[..., Any] = pack_run.plan_batches

    def forgetful(*args: Any) -> Any:
        planned = plan(*args)
        planned.order = planned.order[:-1]
        planned.batch_offsets[-1] -= 1
        return planned

    monkeypatch.setattr(pack_run, "plan_batches", forgetful)
    with pytest.raises(AssertionError, match="7 sequences came in, 6 went out"):
        pack(store, tmp_path / "shards")
    with pytest.raises(FolderError, match="incomplete run"):
        open_shards(tmp_path / "shards")
