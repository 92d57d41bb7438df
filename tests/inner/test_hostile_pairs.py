"""Shards of pairs from a stranger: whatever their decoder's side says, it is an error of ours."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from blake3 import blake3
from pair_corpus import make_pair_shards
from shard_reference import Arrays, change_manifest, change_shard, put

from seqpack_cli.errors import FolderError
from seqpack_cli.shards.shard_set import open_shards
from seqpack_cli.shards.split_set import open_splits

Change = Callable[[Arrays], object]
KINDS: dict[str, dict[str, Any]] = {
    "packed": {},
    "padded": {"layout": "padded", "last_batch": "pad", "buckets": [(9, 9)]},
}
SHARD = "shard-00000.safetensors"


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make shards of pairs of both layouts: six batches of 4, the last with 3 pairs."""
    folder = tmp_path_factory.mktemp("good")
    for kind, options in KINDS.items():
        for side in open_shards(make_pair_shards(folder / kind, **options)).sides:
            assert len(list(side)) == 6
    return folder


@pytest.fixture(scope="module")
def splits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_pair_shards(tmp_path_factory.mktemp("splits"), split="a=0.5,b=0.5")


@pytest.fixture
def copies(good: Path, tmp_path: Path) -> Path:
    """Return copies of the shards, `packed` and `padded`."""
    for kind in KINDS:
        shutil.copytree(good / kind / "shards", tmp_path / kind)
    return tmp_path


def drop(*names: str) -> Any:
    """Return a change of a manifest that removes a field."""

    def change(manifest: dict[str, Any]) -> None:
        *keys, last = names
        for key in keys:
            manifest = manifest[int(key) if isinstance(manifest, list) else key]
        del manifest[last]

    return change


def set_to(value: Any, *names: str) -> Any:
    """Return a change of a manifest that sets a field."""

    def change(manifest: dict[str, Any]) -> None:
        *keys, last = names
        for key in keys:
            manifest = manifest[int(key) if isinstance(manifest, list) else key]
        manifest[int(last) if isinstance(manifest, list) else last] = value

    return change


def list_fields(value: Any, *before: str) -> Iterator[tuple[str, ...]]:
    """Yield the names that lead to each field of a manifest."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for name, inner in items:
        yield (*before, str(name))
        if isinstance(inner, dict | list):
            yield from list_fields(inner, *before, str(name))


@pytest.mark.parametrize("kind", KINDS)
def test_no_value_of_a_field_is_more_than_a_folder_error(copies: Path, kind: str) -> None:
    path = copies / kind / "manifest.json"
    manifest = json.loads(path.read_bytes())
    num_refused = 0
    for names in list_fields(manifest):
        for value in ("x", -1, 7, None, [], {}, [1], [[2, 3]], 2**70):
            changed = json.loads(json.dumps(manifest))
            set_to(value, *names)(changed)
            path.write_text(json.dumps(changed))
            try:
                for side in open_shards(copies / kind).sides:
                    side[0]
            except FolderError:
                num_refused += 1
    assert num_refused > 500


def test_side_that_a_manifest_names_itself_is_ignored(copies: Path) -> None:
    """Else a manifest could name a tokenizer in another folder."""
    for name in ("decoder", "../x"):
        change_manifest(copies / "packed", set_to(name, "side"))
        shards = open_shards(copies / "packed")
        assert shards.side == "encoder"
        assert (
            blake3(shards.read_tokenizer_json()).hexdigest() == shards.manifest["tokenizer_blake3"]
        )


def put_all(name: str, values: Any) -> Change:
    return lambda arrays: arrays.update({name: values(arrays[name])})


def remove(name: str) -> Change:
    return lambda arrays: arrays.pop(name)


SHARDS: dict[str, tuple[str, Change, str]] = {
    "no data": ("packed", remove("decoder.data"), "data is missing"),
    "no rows of the encoder": ("packed", remove("decoder.encoder_rows"), "encoder_rows is missing"),
    "no column": ("padded", remove("decoder.column.lang"), "column.lang is missing"),
    "rows of the encoder where padded": (
        "padded",
        lambda arrays: arrays.update({"decoder.encoder_rows": arrays["decoder.lengths"]}),
        ".*, expected no such array",
    ),
    "an array of neither side": (
        "packed",
        lambda arrays: arrays.update({"decoder.decoder.data": arrays["data"]}),
        ".*, expected no such array",
    ),
    "other ids": (
        "padded",
        put_all("decoder.data", lambda array: array.astype(np.int32)),
        "data is int32, expected uint16",
    ),
    "narrow rows": (
        "packed",
        put_all("decoder.encoder_rows", lambda array: array.astype(np.int32)),
        "encoder_rows is int32, expected int64",
    ),
    "missing row": (
        "packed",
        put_all("decoder.encoder_rows", lambda array: array[:-1]),
        "encoder_rows has 22 entries, expected 23, the last of sequence_offsets",
    ),
    "row twice": ("packed", put("decoder.encoder_rows", 1, 2), "batch 0: encoder_rows"),
    "row of another batch": ("packed", put("decoder.encoder_rows", 0, 4), "batch 0: encoder_rows"),
    "negative row": ("packed", put("decoder.encoder_rows", 0, -1), "batch 0: encoder_rows"),
    "huge row": ("packed", put("decoder.encoder_rows", 0, 2**62), "batch 0: encoder_rows"),
    "rising lengths": ("packed", put("decoder.lengths", 0, 1), "batch 0: "),
    "empty row": ("padded", put("decoder.lengths", 1, 0), "batch 0: row 1 has length 0"),
    "filler of one side": ("padded", put("decoder.num_filler_rows", 5, 0), "batch 5: "),
    "id above": ("packed", put("decoder.data", 0, 259), "batch 0: id 259 at cell 0"),
}


@pytest.mark.parametrize(("kind", "change", "said"), SHARDS.values(), ids=SHARDS)
def test_decoder_that_lies_is_named(copies: Path, kind: str, change: Change, said: str) -> None:
    change_shard(copies / kind, change)
    shards = open_shards(copies / kind).decoder
    assert shards is not None
    with pytest.raises(FolderError, match=rf"^{copies / kind / SHARD}: {said}"):
        list(shards)
    with pytest.raises(FolderError, match=rf"^{copies / kind / SHARD}: {said}"):
        [shards.take(index) for index in range(len(shards))]


def test_pairs_of_another_decoder_are_refused(good: Path, copies: Path) -> None:
    """Each shard names the stores of both sides."""
    other = "0" * 64
    manifest = json.loads((good / "packed" / "shards" / "manifest.json").read_bytes())
    digest = manifest["decoder"]["stores"][0]["blake3"]
    change_manifest(copies / "packed", set_to(other, "decoder", "stores", "0", "blake3"))
    shards = open_shards(copies / "packed")
    shards[0]
    assert shards.decoder is not None
    with pytest.raises(FolderError, match=f"stores_blake3 is '{digest[:8]}.*manifest says '0000"):
        shards.decoder[0]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (drop("decoder_stores"), "no field 'decoder_stores'"),
        (set_to({}, "decoder_stores"), "field 'decoder_stores' is {}, expected a list or null"),
        (set_to([], "decoder_stores"), "0 stores, expected 1"),
        (set_to([1], "decoder_stores"), "1, expected an object"),
        (set_to("sum", "options", "count"), "--count sum needs --max-tokens"),
    ],
)
def test_hostile_manifest_of_splits_of_pairs_is_refused(
    splits: Path, tmp_path: Path, change: Any, said: str
) -> None:
    copy = Path(shutil.copytree(splits, tmp_path / "copy"))
    change_manifest(copy, change)
    with pytest.raises(FolderError) as caught:
        open_splits(copy)
    assert said in caught.value.message
