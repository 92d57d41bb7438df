"""Documents that two stores, or two shard sets, both contain, as a slow look at texts finds."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import run
from here import HERE
from shard_reference import change_shard

from seqpack_cli.batching.options import PackOptions
from seqpack_cli.errors import FolderError
from seqpack_cli.limits import LIMITS
from seqpack_cli.reporting.differences import diff
from seqpack_cli.reporting.shared_documents import MAX_EXAMPLES, find_shared
from seqpack_cli.reporting.terminal.difference_lines import show_differences
from seqpack_cli.shards.pack import pack
from seqpack_cli.shards.shard_set import open_any, open_shards
from seqpack_cli.shards.unpack import iter_unpacked
from seqpack_cli.tokens.options import TokenizeOptions
from seqpack_cli.tokens.store import open_store
from seqpack_cli.tokens.tokenize_run import tokenize

PACKED: dict[str, dict[str, Any]] = {
    "all": {"batch_size": 3},
    "passes": {"passes": "1=2.5,2=0.3", "layout": "padded", "last_batch": "pad", "batch_size": 4},
    "pieces": {"layout": "varlen", "max_tokens": 2, "drop_shorter": 2},
    "rest": {"last_batch": "drop", "order": "none", "batch_size": 7},
}


def store(folder: Path, name: str, texts: Sequence[str], **options: Any) -> Path:
    """Tokenize texts into folder/name."""
    (folder / f"{name}.txt").write_text("".join(f"{text}\n" for text in texts))
    chosen = TokenizeOptions(**options)
    tokenize([folder / f"{name}.txt"], folder / name, chosen, executor=HERE)
    return folder / name


def list_documents(path: Path, stores: Sequence[Path]) -> dict[tuple[str, int], str]:
    """Return the texts of the documents in a store or in shards, by store and record."""
    tokens, texts = open_store(stores), dict[tuple[str, int], str]()
    keys = []
    for index, ids in enumerate(tokens):
        origin = tokens.locate(index)
        keys.append((origin.store, origin.record))
        texts[keys[-1]] = texts.get(keys[-1], "") + bytes(ids.tolist()).decode()
    if path in stores:
        return texts
    held = [each.index for each in iter_unpacked(open_shards(path), {})]
    return {keys[index]: texts[keys[index]] for index in held}


@pytest.mark.parametrize("seed", range(4))
def test_shared_documents_are_those_of_a_slow_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(LIMITS, "hashes_per_range", 5)
    draw = random.Random(seed)
    texts = ["".join(draw.choices("abc", k=draw.randint(0, 5))) for _ in range(60)]
    names = ("x", "y", "z")
    stores = [
        store(tmp_path, name, draw.choices(texts, k=20), max_length=3, part_bytes=30)
        for name in names
    ]
    split = PackOptions(split="train=0.6,test=rest", batch_size=2, where=("@length < 3",))
    pack(stores[:2], tmp_path / "splits", split, executor=HERE)
    sides = [(stores[0], stores[:1]), (stores[2], stores[2:])]
    shards = [(tmp_path / "splits" / name, stores[:2]) for name in ("train", "test")]
    for name, options in PACKED.items():
        chosen = draw.sample(stores, 2)
        pack(chosen, tmp_path / name, PackOptions(**options), executor=HERE)
        shards.append((tmp_path / name, chosen))
    for pairs in (sides, draw.sample(shards, 3)):
        for first, second in pairwise(pairs):
            a, b = (list_documents(*side) for side in (first, second))
            found = find_shared(open_any(first[0]), open_any(second[0]))
            examples = found.pop("examples")
            shared = {*a.values()} & {*b.values()}
            assert found == {
                "without_stores": [],
                "has_other_hashes": False,
                "num_in_a": len(a),
                "num_in_b": len(b),
                "num_shared_in_a": sum(text in shared for text in a.values()),
                "num_shared_in_b": sum(text in shared for text in b.values()),
                "num_shared_texts": len(shared),
            }
            assert len(examples) == min(len(shared), MAX_EXAMPLES)
            for example in examples:
                keys = [(example[side]["store"], example[side]["record"]) for side in "ab"]
                assert a[keys[0]] == b[keys[1]]
                assert example["a"]["source"] == f"{keys[0][0]}.txt"


def test_diff_names_documents_of_a_test_set_from_another_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    a = store(Path(), "a", ["one", "two", "three", "four", "two"])
    b = store(Path(), "b", ["five", "six", "two"])
    for tokens in (a, b):
        pack(tokens, f"{tokens.name}-shards", executor=HERE)
    found = diff("a-shards", "b-shards")
    assert found["identical"] is False
    assert found["verdict"] == (
        "3 of 3 sequences differ, the first is 0, 2 only in A; 1 document of B is in A"
    )
    lines = show_differences(found)
    start = lines.index("documents")
    shown = [line[:21] + line[21:].rsplit("/")[-1] for line in lines[start:-2]]  # paths are cut
    assert shown == [
        "documents",
        "  in A               5, 2 of them also in B",
        "  in B               3, 1 of them also in A",
        "  in both, for example",
        "    A                a.txt, record 2",
        "      of store       a",
        "    B                b.txt, record 3",
        "      of store       b",
    ]
    b.rename(tmp_path / "moved")
    found = diff("a-shards", "b-shards")
    assert found["documents"]["without_stores"] == ["b"]
    assert found["documents"]["num_shared_in_b"] is None
    assert show_differences(found)[-3] == (
        "  in both            unknown: token stores of B not found"
    )


def test_diff_of_splits_and_of_their_folders(tmp_path: Path) -> None:
    stores = [store(tmp_path, name, [f"{name} {n % 35}" for n in range(40)]) for name in "ab"]
    for seed in (0, 1):
        options = PackOptions(split="train=0.8,test=rest", split_seed=seed)
        pack(stores, tmp_path / f"out{seed}", options, executor=HERE)
    out, other = tmp_path / "out0", tmp_path / "out1"
    result = run("diff", out / "train", out / "test", "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    num_a, num_b = (found["documents"][f"num_in_{side}"] for side in "ab")
    assert num_a + num_b == 80
    assert found["verdict"] == (
        f"no sequence in both, {num_a} only in A, {num_b} only in B; no document of B is in A"
    )
    assert "num_sequences of store 2" in [entry["name"] for entry in found["ledger"]]
    leak = diff(out / "train", other / "test")["documents"]
    assert 0 < leak["num_shared_in_b"] <= leak["num_in_b"]
    result = run("diff", out, other)
    assert result.exit_code == 4
    assert "these are splits: name" in result.stderr


def test_copies_of_shards_with_passes_are_identical(tmp_path: Path) -> None:
    tokens = store(tmp_path, "a", ["one", "two", "three"])
    for name, passes in (("once", None), ("twice", "a=2"), ("again", "a=2")):
        pack(tokens, tmp_path / name, PackOptions(passes=passes), executor=HERE)
    found = diff(tmp_path / "twice", tmp_path / "again")
    assert (found["verdict"], found["sequences"]["num_compared"]) == ("identical", 3)
    found = diff(tmp_path / "once", tmp_path / "twice")
    assert found["verdict"] == "different options and counts; same sequences in different batches"
    assert found["sequences"]["num_compared"] == 3


def test_shards_of_stores_with_equal_sequences_are_not_identical(tmp_path: Path) -> None:
    a = store(tmp_path, "a", ["one", "two"], part_bytes=4)
    b = store(tmp_path, "b", ["one", "two"], part_bytes=100)
    for tokens in (a, b):
        pack(tokens, tmp_path / f"{tokens.name}-shards", executor=HERE)
    found = diff(tmp_path / "a-shards", tmp_path / "b-shards")
    assert [entry["name"] for entry in found["facts"]] == ["stores"]
    assert found["verdict"] == "different properties; same sequences in the same batches"


def test_stores_of_equal_ids_and_other_texts_are_not_identical(tmp_path: Path) -> None:
    texts = ["one", "", "two", "three", "four"]
    a = store(tmp_path, "a", texts, part_bytes=9)
    a = a.rename(tmp_path / "cut")
    b = store(tmp_path, "a", texts, part_bytes=100)
    path = b / "part-00000.columns.safetensors"
    data = bytearray(path.read_bytes())
    data[-16] ^= 1  # in the hash of the document before the last
    path.write_bytes(data)
    found = diff(a, b)
    documents = found["documents"]
    assert (documents["num_differing"], documents["first_differing"]) == (1, 3)
    assert (documents["num_in_a"], documents["num_shared_in_a"]) == (4, 3)
    assert found["verdict"] == "different options, properties and documents; same sequences"
    assert found["identical"] is False


def test_an_index_that_no_store_has_is_refused(tmp_path: Path) -> None:
    tokens = store(tmp_path, "a", ["one", "two"])
    pack(tokens, tmp_path / "shards", executor=HERE)

    def rename(arrays: dict[str, np.ndarray]) -> None:
        arrays["original_indices"][0] = 2

    change_shard(tmp_path / "shards", rename)
    with pytest.raises(FolderError, match="original index 2, the store has 2 sequences"):
        diff(tmp_path / "shards", tmp_path / "shards")
