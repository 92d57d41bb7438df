"""docs/formats.md suffices: what is written from it alone is what seqpack writes, and is read back.

`tests/oracle/` follows the page and use
nothing of seqpack.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import check_refused, run
from oracle.imports import Documents, write_pair, write_store
from oracle.plan import permute
from oracle.shards import (
    ShardWriter,
    read_pairs,
    read_rows,
    read_shards,
    read_streams,
    write_splits,
)
from oracle.stores import PageStore, StoreWriter, read_store

from seqpack_cli import EpochSampler, PackOptions, ShardDataset, StoreBatches, StoreDataset, pack
from seqpack_cli.shards.split_set import open_splits

LETTERS = "abcdefghij klmnop"


def make_texts() -> dict[str, bytes]:
    """Return files of lines: many short ones, some empty, some long, the last without its end."""
    drawn = random.Random(7)
    lengths = [min(int(drawn.lognormvariate(1.8, 0.9)), 60) for _ in range(90)]
    lines = ["".join(drawn.choices(LETTERS, k=length)) for length in [*lengths, 0, 0, 60, 1]]
    texts = [
        "\n".join(lines[:40]) + "\n",
        "",
        "\n".join(lines[40:41]) + "\n",
        "\n".join(lines[41:]),
    ]
    return {f"{name}.txt": text.encode() for name, text in zip("abcd", texts, strict=True)}


FILES = make_texts()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the files and a store of them that seqpack made."""
    folder = tmp_path_factory.mktemp("page")
    for name, data in FILES.items():
        (folder / name).write_bytes(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        result = run("tokenize", *FILES, "-o", "tokens", "-q")
        assert result.exit_code == 0, result.output
    return folder


@pytest.fixture(scope="module")
def store(folder: Path) -> PageStore:
    """Return the store as the page's reader reads it."""
    return read_store(folder / "tokens")


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"max_length": 7},
        {"max_length": 7, "bos": "<bos>", "eos": "<eos>"},
        {"max_length": 9, "overflow": "truncate", "eos": "<eos>"},
        {"max_length": 9, "overflow": "drop", "bos": "<bos>"},
        {"max_length": 9, "overlap": 4, "bos": "<bos>", "eos": "<eos>"},
    ],
)
def test_store_written_from_the_page_is_that_of_tokenize(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any]
) -> None:
    monkeypatch.chdir(folder)
    arguments = [x for name, value in given.items() for x in (f"--{name.replace('_', '-')}", value)]
    assert run("tokenize", *FILES, *arguments, "-o", tmp_path / "theirs", "-q").exit_code == 0
    tokenizer_json = (tmp_path / "theirs" / "tokenizer.json").read_bytes()
    StoreWriter(tmp_path / "ours", tokenizer_json, given).write(FILES, [[0, 1, 2, 3]])
    for name in ("part-00000.bin", "part-00000.idx", "part-00000.columns.safetensors"):
        assert (tmp_path / "ours" / name).read_bytes() == (tmp_path / "theirs" / name).read_bytes()
    ours, theirs = (
        json.loads((tmp_path / x / "manifest.json").read_bytes()) for x in ("ours", "theirs")
    )
    assert ours == theirs


def test_store_written_from_the_page_is_accepted_and_read(folder: Path, tmp_path: Path) -> None:
    tokenizer_json = (folder / "tokens" / "tokenizer.json").read_bytes()
    StoreWriter(tmp_path / "store", tokenizer_json, {"max_length": 9}).write(
        FILES, [[0], [1, 2], [3]]
    )
    theirs = StoreDataset(tmp_path / "store").open_store()
    ours = read_store(tmp_path / "store")
    assert [ids.tolist() for ids in theirs] == ours.sequences
    places = [theirs.locate(index) for index in range(len(theirs))]
    assert [(place.source, place.record) for place in places] == ours.places
    assert run("inspect", tmp_path / "store").exit_code == 0
    assert run("pack", tmp_path / "store", "-o", tmp_path / "shards", "-q").exit_code == 0
    assert run("verify", tmp_path / "shards", "--level", "roundtrip").exit_code == 0
    assert read_shards(tmp_path / "shards") == dict(enumerate(ours.sequences))


@pytest.mark.parametrize(("vocab_size", "dtype"), [(65_536, "int32"), (65_537, "uint16")])
def test_imported_store_written_from_the_page_is_that_of_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vocab_size: int, dtype: str
) -> None:
    monkeypatch.chdir(tmp_path)
    most = min(vocab_size, 65_536) - 1
    documents: Documents = [[[1, 2, 3], [], [4]], [], [[0], [most]], [[], []], [[5] * 70]]
    write_pair(Path("pair"), documents, dtype)
    result = run("import", "pair", "--vocab-size", vocab_size, "-o", "theirs", "-q")
    assert result.exit_code == 0, result.output
    write_store(Path("ours"), Path("pair"), documents, vocab_size)
    names = sorted(path.name for path in Path("theirs").iterdir() if path.name != "run.json")
    assert names == sorted(path.name for path in Path("ours").iterdir())
    for name in set(names) - {"manifest.json"}:
        assert Path("ours", name).read_bytes() == Path("theirs", name).read_bytes()
    ours, theirs = (json.loads(Path(x, "manifest.json").read_bytes()) for x in ("ours", "theirs"))
    assert ours == theirs
    store = read_store(Path("theirs").resolve())
    assert store.sequences == [ids for document in documents for ids in document if ids]
    pack("theirs", "packed", PackOptions(layout="padded", pad_id=3))
    ShardWriter(tmp_path / "shards", [store], "padded", {"pad_id": 3}).write()
    check_same(tmp_path / "shards", Path("packed"))
    assert run("verify", "shards", "--level", "roundtrip").exit_code == 0


KEEP = ["label:class", "id:int", "score:float", "title:text", "flag:class", "tags:tags"]


def make_records() -> dict[str, bytes]:
    """Return files of records with fields of every kind, the value of each made from its words."""
    drawn = random.Random(3)
    lines = []
    for number in range(70):
        words = [drawn.choice(["ab", "é", "word", "x"]) for _ in range(drawn.randint(1, 9))]
        record = {"text": words, "tags": [word[0].upper() for word in words], "id": number - 40}
        record |= {"label": words[0], "flag": len(words) > 4, "title": "ü" * (number % 5)}
        lines.append(json.dumps({**record, "score": number / 7}))
    cuts = [lines[:30], lines[30:31], lines[31:]]
    return {f"{name}.jsonl": "\n".join(cut).encode() for name, cut in zip("abc", cuts, strict=True)}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> PageStore:
    """Return a store with columns that was written from the page, in three parts."""
    folder = tmp_path_factory.mktemp("kept")
    for name, data in make_records().items():
        (folder / name).write_bytes(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        keep = [argument for kept in KEEP for argument in ("--keep", kept)]
        result = run("tokenize", *make_records(), *keep, "--max-length", 15, "-o", "theirs", "-q")
        assert result.exit_code == 0, result.output
    tokenizer_json = (folder / "theirs" / "tokenizer.json").read_bytes()
    given = {"keep": KEEP, "max_length": 15}
    StoreWriter(folder / "ours", tokenizer_json, given).write(make_records(), [[0, 1, 2]])
    names = sorted(path.name for path in (folder / "theirs").iterdir() if path.name != "run.json")
    assert names == sorted(path.name for path in (folder / "ours").iterdir())
    for name in set(names) - {"manifest.json"}:
        assert (folder / "ours" / name).read_bytes() == (folder / "theirs" / name).read_bytes()
    ours, theirs = (
        json.loads((folder / x / "manifest.json").read_bytes()) for x in ("ours", "theirs")
    )
    assert ours == theirs
    StoreWriter(folder / "parts", tokenizer_json, given).write(make_records(), [[0], [1], [2]])
    return read_store(folder / "parts")


COLUMN_CASES: list[tuple[str, dict[str, Any]]] = [
    ("packed", {"batch_size": 5, "shuffle": True, "seed": 4, "shard_bytes": 3500}),
    ("padded", {"batch_size": 9, "last_batch": "pad", "padding_side": "left"}),
    ("varlen", {"max_tokens": 6, "shard_bytes": 4000}),
    ("varlen", {"max_tokens": 16, "batch_size": 3, "align_sequences": 4, "last_batch": "pad"}),
    ("varlen", {"max_tokens": 7, "fill": "chunk", "batch_size": 2, "shard_bytes": 6000}),
    ("streams", {"max_tokens": 5, "batch_size": 4, "shuffle": True, "shard_bytes": 4000}),
]


@pytest.mark.parametrize(("layout", "given"), COLUMN_CASES)
def test_columns_written_from_the_page_are_those_of_pack(
    kept: PageStore, tmp_path: Path, layout: str, given: dict[str, Any]
) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    pack(kept.folder, theirs, PackOptions(layout=layout, **given))
    ShardWriter(ours, [kept], layout, given).write()
    manifests = [json.loads((path / "manifest.json").read_bytes()) for path in (ours, theirs)]
    assert manifests[0] == manifests[1]
    for entry in manifests[0]["shards"]:
        assert (ours / entry["name"]).read_bytes() == (theirs / entry["name"]).read_bytes()
    assert read_rows(theirs) == {
        index: {"ids": ids, **{name: kept.columns[name][index] for name in kept.columns}}
        for index, ids in enumerate(kept.sequences)
    }
    assert run("verify", ours, "--level", "roundtrip").exit_code == 0


CASES: list[tuple[str, dict[str, Any]]] = [
    ("packed", {}),
    ("packed", {"batch_size": 5, "window": 12}),
    ("packed", {"batch_size": 5, "window": 12, "shuffle": True, "seed": 2**63 + 5}),
    ("packed", {"max_tokens": 61, "order": "none"}),
    ("packed", {"max_tokens": 60, "batch_size": 7, "shuffle": True, "seed": 3}),
    ("packed", {"max_tokens": 20, "overflow": "drop", "last_batch": "drop"}),
    ("packed", {"buckets": "auto", "num_buckets": 3, "max_tokens": 70, "order": "none"}),
    ("packed", {"buckets": [5, 11], "overflow": "drop", "drop_shorter": 2, "drop_longer": 40}),
    ("packed", {"shard_bytes": 1500, "batch_size": 3}),
    ("padded", {"batch_size": 6, "last_batch": "pad", "pad_to_multiple": 4}),
    ("padded", {"max_tokens": 130, "pad_to_multiple": 8, "padding_side": "left", "pad_id": 3}),
    ("padded", {"max_tokens": 130, "last_batch": "drop", "window": 10}),
    ("padded", {"buckets": "auto", "num_buckets": 4, "last_batch": "pad", "batch_size": 9}),
    (
        "padded",
        {
            "buckets": "auto",
            "num_buckets": 3,
            "max_tokens": 120,
            "last_batch": "pad",
            "shuffle": True,
        },
    ),
    ("padded", {"buckets": "auto", "num_buckets": 3, "pad_to_multiple": 5, "window": 20}),
    ("padded", {"buckets": [8, 16, 32, 100], "max_tokens": 200, "last_batch": "drop"}),
    ("padded", {"buckets": [8, 16], "overflow": "drop", "shard_bytes": 2000, "batch_size": 4}),
    ("varlen", {"max_tokens": 24}),
    ("varlen", {"max_tokens": 24, "shuffle": False}),
    ("varlen", {"max_tokens": 50, "seed": 9, "drop_shorter": 3}),
    ("varlen", {"max_tokens": 20, "fill": "sequential"}),
    ("varlen", {"max_tokens": 20, "fill": "sequential", "shuffle": True, "shard_bytes": 1200}),
    ("varlen", {"max_tokens": 30, "overflow": "drop", "seed": 1}),
    ("varlen", {"max_tokens": 24, "batch_size": 3, "seed": 4}),
    ("varlen", {"max_tokens": 21, "batch_size": 4, "last_batch": "pad", "fill": "sequential"}),
    ("varlen", {"max_tokens": 24, "align_sequences": 8, "pad_id": 3, "shard_bytes": 1500}),
    ("varlen", {"max_tokens": 20, "align_sequences": 5, "fill": "sequential", "shuffle": True}),
    ("varlen", {"max_tokens": 28, "align_sequences": 4, "batch_size": 5, "overflow": "drop"}),
    ("varlen", {"max_tokens": 17, "fill": "chunk"}),
    ("varlen", {"max_tokens": 11, "fill": "chunk", "batch_size": 3, "shuffle": True, "seed": 2}),
    ("streams", {"max_tokens": 9}),
    ("streams", {"max_tokens": 13, "batch_size": 4, "shuffle": True, "seed": 6}),
    ("streams", {"max_tokens": 1, "batch_size": 7, "shard_bytes": 4000, "drop_longer": 12}),
    ("streams", {"max_tokens": 1000, "batch_size": 5, "pad_id": 2}),
]


@pytest.mark.parametrize(("layout", "given"), CASES)
def test_shards_written_from_the_page_are_those_of_pack(
    store: PageStore, tmp_path: Path, layout: str, given: dict[str, Any]
) -> None:
    """The same bytes, and the same manifest."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    pack(store.folder, theirs, PackOptions(layout=layout, **given))
    ShardWriter(ours, [store], layout, given).write()
    manifests = [json.loads((path / "manifest.json").read_bytes()) for path in (ours, theirs)]
    assert manifests[0] == manifests[1]
    for entry in manifests[0]["shards"]:
        assert (ours / entry["name"]).read_bytes() == (theirs / entry["name"]).read_bytes()
    kept = read_shards(theirs)
    assert kept == {index: store.sequences[index] for index in kept}
    num_dropped = sum(manifests[0]["ledger"]["num_dropped_sequences"].values())
    assert len(kept) + num_dropped == len(store.sequences)


def test_streams_read_from_the_page_carry_the_state_through_sequences(
    store: PageStore, tmp_path: Path
) -> None:
    """Between two resets lies one run of tokens of one sequence, across any number of batches."""
    options = PackOptions(layout="streams", max_tokens=7, batch_size=4)
    pack(store.folder, tmp_path / "shards", options)
    left = [list(ids) for ids in store.sequences]
    num_torn = 0
    for ids, next_ids in read_streams(tmp_path / "shards"):
        assert left[0][: len(ids)] == ids
        del left[0][: len(ids)]
        assert next_ids[-1] == -1
        assert -1 not in next_ids[:-1]
        if left[0]:  # the stream ends in the middle of it
            num_torn += 1
        else:
            left.pop(0)
    assert left == []
    assert 0 < num_torn < 4


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory, kept: PageStore) -> list[PageStore]:
    """Return a store with columns and a second one, of fewer documents and another class."""
    folder, records = tmp_path_factory.mktemp("two"), make_records()["c.jsonl"].splitlines()
    lines = [record.replace(b'"label": "ab"', b'"label": "more"') for record in records[:20]]
    tokenizer_json = (kept.folder / "tokenizer.json").read_bytes()
    writer = StoreWriter(folder / "more", tokenizer_json, {"keep": KEEP, "max_length": 15})
    writer.write({"d.jsonl": b"\n".join(lines)}, [[0]])
    return [kept, read_store(folder / "more")]


STORE_CASES: list[tuple[str, dict[str, Any]]] = [
    ("packed", {"batch_size": 5}),
    ("packed", {"passes": "1=2.5,2=0.25", "batch_size": 4, "seed": 5, "store_column": "store"}),
    ("packed", {"passes": "2=3", "shuffle": True, "seed": 6, "drop_column": ["id", "label"]}),
    (
        "packed",
        {"passes": "2=2.1", "window": 9, "batch_size": 6, "drop_shorter": 4, "last_batch": "drop"},
    ),
    (
        "padded",
        {
            **{"share": "1=0.3,2=0.7", "max_passes": "2.5", "shuffle": True, "batch_size": 7},
            **{"buckets": "auto", "num_buckets": 3, "last_batch": "pad", "shard_bytes": 5000},
        },
    ),
    ("padded", {"passes": "1=2", "buckets": [4, 9], "overflow": "drop", "batch_size": 5}),
    ("varlen", {"max_tokens": 20, "passes": "1=1.5,2=3", "seed": 8, "store_column": "from"}),
    ("varlen", {"max_tokens": 9, "passes": "1=0.1", "fill": "sequential"}),
    ("varlen", {"max_tokens": 20, "batch_size": 4, "passes": "1=2.5", "align_sequences": 5}),
    ("varlen", {"max_tokens": 9, "fill": "chunk", "batch_size": 3, "passes": "2=2"}),
    ("streams", {"max_tokens": 6, "batch_size": 3, "passes": "1=2.3,2=0.1", "shuffle": True}),
]


@pytest.mark.parametrize(("layout", "given"), STORE_CASES)
def test_shards_of_two_stores_written_from_the_page_are_those_of_pack(
    two: list[PageStore], tmp_path: Path, layout: str, given: dict[str, Any]
) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    pack([store.folder for store in two], theirs, PackOptions(layout=layout, **given))
    ShardWriter(ours, two, layout, given).write()
    check_same(ours, theirs)


def check_same(ours: Path, theirs: Path) -> None:
    """Compare the manifests and the bytes of shards."""
    manifests = [json.loads((path / "manifest.json").read_bytes()) for path in (ours, theirs)]
    assert manifests[0] == manifests[1]
    for entry in manifests[0]["shards"]:
        assert (ours / entry["name"]).read_bytes() == (theirs / entry["name"]).read_bytes()


def make_answers() -> dict[str, bytes]:
    """Return a file of prompts and completions: some without an answer, some with nothing else."""
    drawn = random.Random(5)
    lines = []
    for number in range(60):
        question, answer = ("é".join(drawn.choices(LETTERS, k=drawn.randint(0, 20))) for _ in "qa")
        record = {"question": question, "answer": answer if number % 3 else "", "id": number}
        lines.append(json.dumps({**record, "title": "ü" * (number % 5)}))
    return {"answers.jsonl": "\n".join(lines).encode()}


ANSWERS = {
    "keep": ["id:int", "title:text"],
    "prompt_field": "question",
    "completion_field": "answer",
}


@pytest.mark.parametrize(
    "given",
    [
        {"max_length": 12},
        {"max_length": 9, "overflow": "truncate", "eos": "<eos>", "bos": "<bos>"},
        {"max_length": 12, "overlap": 5, "eos": "<eos>"},
    ],
)
def test_targets_written_from_the_page_are_those_of_tokenize(
    kept: PageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any]
) -> None:
    make_with_targets(kept, tmp_path, monkeypatch, given)


def make_with_targets(
    kept: PageStore, folder: Path, patch: pytest.MonkeyPatch, given: dict[str, Any]
) -> PageStore:
    """Return a store with targets that was written from the page, once it equals tokenize's."""
    patch.chdir(folder)
    (folder / "answers.jsonl").write_bytes(make_answers()["answers.jsonl"])
    given = {**ANSWERS, **given}
    options = [f"--{name.replace('_', '-')}={given[name]}" for name in given if name != "keep"]
    keep = [f"--keep={field}" for field in given["keep"]]
    result = run("tokenize", "answers.jsonl", *keep, *options, "-o", "theirs", "-q")
    assert result.exit_code == 0, result.output
    tokenizer_json = (kept.folder / "tokenizer.json").read_bytes()
    StoreWriter(folder / "answers", tokenizer_json, given).write(make_answers(), [[0]])
    for suffix in ("bin", "idx", "columns.safetensors"):
        name = f"part-00000.{suffix}"
        assert (folder / "answers" / name).read_bytes() == (folder / "theirs" / name).read_bytes()
    ours, theirs = (
        json.loads((folder / x / "manifest.json").read_bytes()) for x in ("answers", "theirs")
    )
    assert ours == theirs
    return read_store(folder / "answers")


def draw_shared_rows(drawn: random.Random) -> tuple[str, dict[str, Any]]:
    """Draw a layout whose rows are shared, and any of its options."""
    layout = drawn.choice(["varlen", "varlen", "streams"])
    given: dict[str, Any] = {"batch_size": drawn.choice([1, 2, 3, 8])}
    given |= {"max_tokens": drawn.choice([1, 4, 12, 60]), "shuffle": drawn.random() < 0.6}
    if layout == "varlen":
        given["batch_size"] = drawn.choice([None, given["batch_size"]])
        given["fill"] = drawn.choice(["best-fit", "sequential", "chunk"])
        if given["fill"] != "chunk" and given["max_tokens"] > 1:
            given |= {"align_sequences": drawn.choice([1, 2, 4])}
            given |= {"overflow": drawn.choice(["split", "drop"])}
        if given["batch_size"]:
            given["last_batch"] = drawn.choice(["keep", "pad"])
    choices = {
        "passes": ["1=2.5,2=0.5", "2=3", None],
        "where": [["id >= 10"], ["@length < 9", "title != ü"], []],
        "drop_longer": [9, None],
        "store_column": ["store", None],
        "shard_bytes": [1, 4000, 1 << 20],
    }
    given |= {name: drawn.choice(values) for name, values in choices.items()}
    if given["shuffle"] or given["passes"]:
        given["seed"] = drawn.randrange(2**64)
    return layout, given


@pytest.mark.parametrize("seed", range(8))
def test_random_shared_rows_written_from_the_page_are_those_of_pack(
    two: list[PageStore], with_targets: list[PageStore], tmp_path: Path, seed: int
) -> None:
    drawn = random.Random(seed)
    layout, given = draw_shared_rows(drawn)
    ours, theirs, stores = tmp_path / "ours", tmp_path / "theirs", drawn.choice([two, with_targets])
    pack([store.folder for store in stores], theirs, PackOptions(layout=layout, **given))
    ShardWriter(ours, stores, layout, given).write()
    check_same(ours, theirs)


@pytest.fixture(scope="module")
def with_targets(tmp_path_factory: pytest.TempPathFactory, kept: PageStore) -> list[PageStore]:
    """Return a store without targets, and one with targets and overlap."""
    folder = tmp_path_factory.mktemp("targets")
    given = {"max_length": 12, "overlap": 5, "eos": "<eos>"}
    with pytest.MonkeyPatch.context() as patch:
        found = make_with_targets(kept, folder, patch, given)
    tokenizer_json = (kept.folder / "tokenizer.json").read_bytes()
    writer = StoreWriter(folder / "plain", tokenizer_json, {"keep": ANSWERS["keep"]})
    writer.write({"b.jsonl": make_records()["a.jsonl"]}, [[0]])
    return [read_store(folder / "plain"), found]


TARGET_CASES: list[tuple[str, dict[str, Any]]] = [
    ("packed", {"batch_size": 5, "shard_bytes": 3000, "shuffle": True, "seed": 3}),
    ("padded", {"keep_without_target": True, "padding_side": "left", "store_column": "store"}),
    ("padded", {"drop_column": ["targets"], "batch_size": 9, "last_batch": "pad"}),
    ("varlen", {"max_tokens": 7, "passes": "1=0.5,2=2.5", "seed": 3, "drop_longer": 40}),
    ("packed", {"share": "1=0.5,2=0.5", "max_passes": "2", "drop_shorter": 6}),
    ("varlen", {"max_tokens": 12, "batch_size": 3, "align_sequences": 3, "fill": "sequential"}),
    ("streams", {"max_tokens": 4, "batch_size": 5, "shuffle": True, "seed": 3}),
    ("streams", {"max_tokens": 4, "batch_size": 2, "drop_column": ["targets"], "passes": "1=2"}),
]


@pytest.mark.parametrize(("layout", "given"), TARGET_CASES)
def test_targets_written_from_the_page_are_those_of_pack(
    with_targets: list[PageStore], tmp_path: Path, layout: str, given: dict[str, Any]
) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    pack([store.folder for store in with_targets], theirs, PackOptions(layout=layout, **given))
    ShardWriter(ours, with_targets, layout, given).write()
    check_same(ours, theirs)
    result = run("verify", theirs, "--level", "roundtrip")
    assert result.exit_code == 0, result.output


SPLIT_CASES: list[tuple[str, dict[str, Any]]] = [
    ("packed", {"split": "train=0.75,test=0.25", "split_seed": 2, "passes": "2=2", "seed": 3}),
    ("padded", {"split": "a=0.5,b=0.1,c=0.4", "split_by": "label", "padding_side": "left"}),
    ("packed", {"split": "a=0.5,b=0.5", "split_by": "score", "share": "1=0.5,2=0.5"}),
    ("varlen", {"split": "true,false", "split_by": "flag", "max_tokens": 30}),
    ("streams", {"split": "a=0.5,b=0.5", "max_tokens": 8, "batch_size": 3, "passes": "1=2"}),
]
SPLIT_OF_TARGETS = {"split": "a=0.5,b=0.5", "batch_size": 4, "passes": "2=2"}


@pytest.mark.parametrize(("layout", "given"), SPLIT_CASES)
def test_splits_written_from_the_page_are_those_of_pack(
    two: list[PageStore], tmp_path: Path, layout: str, given: dict[str, Any]
) -> None:
    check_splits(two, tmp_path, layout, given)


def test_splits_of_stores_with_targets_written_from_the_page_are_those_of_pack(
    with_targets: list[PageStore], tmp_path: Path
) -> None:
    check_splits(with_targets, tmp_path, "packed", SPLIT_OF_TARGETS)


def check_splits(two: list[PageStore], folder: Path, layout: str, given: dict[str, Any]) -> None:
    """Compare splits that are written from the page with those of pack."""
    ours, theirs = folder / "ours", folder / "theirs"
    pack([store.folder for store in two], theirs, PackOptions(layout=layout, **given))
    write_splits(ours, two, layout, given)
    check_same_splits(ours, theirs)


def check_same_splits(ours: Path, theirs: Path) -> None:
    """Compare the manifests of splits, and their shards."""
    manifests = [json.loads((path / "manifest.json").read_bytes()) for path in (ours, theirs)]
    for manifest in manifests:
        for entry in manifest["splits"]:
            entry.pop("blake3")  # spacing of the JSON text is free
    assert manifests[0] == manifests[1]
    for entry in manifests[0]["splits"]:
        check_same(ours / entry["name"], theirs / entry["name"])
    assert [*open_splits(ours).splits] == [*open_splits(theirs).splits]


@pytest.mark.parametrize(("layout", "given"), [CASES[1], CASES[12], CASES[17]])
def test_shards_written_from_the_page_are_verified(
    store: PageStore, tmp_path: Path, layout: str, given: dict[str, Any]
) -> None:
    ShardWriter(tmp_path / "shards", [store], layout, given).write()
    result = run("verify", tmp_path / "shards", "--level", "roundtrip")
    assert result.exit_code == 0, result.output
    assert "plan: compared with the token store (plan version 2)" in result.output
    assert run("inspect", tmp_path / "shards").exit_code == 0


def epoch_seed(seed: int, epoch: int) -> int:
    """Return the seed that the page defines."""
    return int(np.random.SeedSequence(seed, spawn_key=(3, epoch)).generate_state(1, np.uint64)[0])


@pytest.mark.parametrize("case", [1, 7, 13, 17, 20])
def test_batches_of_an_epoch_are_those_of_pack_with_its_seed(
    store: PageStore, tmp_path: Path, case: int
) -> None:
    layout, given = CASES[case]
    given = {name: given[name] for name in given if name not in ("shuffle", "seed")}
    dataset = StoreDataset(store.folder)
    batches = StoreBatches(dataset, PackOptions(layout=layout, **given))
    collate = batches.make_collate()
    for epoch in range(2):
        sampler = EpochSampler(batches, seed=11)
        sampler.set_epoch(epoch)
        assert sampler.epoch_seed == epoch_seed(11, epoch)
        found = [collate(dataset.__getitems__(keys)) for keys in sampler]
        seed = epoch_seed(11, epoch)
        options = PackOptions(layout=layout, shuffle=True, seed=seed, **given)
        pack(store.folder, tmp_path / f"epoch-{epoch}", options)
        packed = ShardDataset(tmp_path / f"epoch-{epoch}")
        assert len(found) == len(packed)
        for ours, theirs in zip(found, (packed[i] for i in range(len(packed))), strict=True):
            assert ours.original_indices.tolist() == theirs.original_indices.tolist()
            assert ours.lengths.tolist() == theirs.lengths.tolist()


def test_order_of_shards_in_an_epoch_follows_from_its_seed(
    store: PageStore, tmp_path: Path
) -> None:
    pack(store.folder, tmp_path / "shards", PackOptions(batch_size=4))
    dataset = ShardDataset(tmp_path / "shards")
    order = permute(len(dataset), epoch_seed(5, 0), 1)
    assert list(EpochSampler(dataset, seed=5)) == order
    second = EpochSampler(dataset, seed=5, rank=1, world_size=3)
    dealt = [*order, *order[: -len(order) % 3]]
    assert list(second) == dealt[1::3]


def test_input_without_a_token_is_an_error_and_leaves_no_store(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n\n")
    result = run("tokenize", tmp_path / "empty.txt", "-o", tmp_path / "tokens")
    message = f"{tmp_path / 'empty.txt'}: no document with a token (2 documents read)"
    check_refused(result, 3, message)
    assert not (tmp_path / "tokens").exists()


# Pairs


def make_pairs() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the records of both sides, aligned; some are empty on one side or on both."""
    drawn = random.Random(9)
    sides: tuple[list[dict[str, Any]], list[dict[str, Any]]] = ([], [])
    for number in range(90):
        num_words = drawn.choice([0, *range(1, 9)])
        words = [drawn.choice(["ab", "é", "word", "x"]) for _ in range(num_words)]
        record = {"text": words, "tags": [word[0].upper() for word in words], "id": number - 40}
        sides[0].append({**record, "lang": drawn.choice("abc"), "title": "ü" * (number % 5)})
        num_words = min(max(0, num_words + drawn.randint(-2, 2)), drawn.randint(0, 40))
        prompt, completion = ("é".join(["y"] * drawn.randint(0, num_words)) for _ in range(2))
        record = {"prompt": prompt, "completion": completion, "text": prompt + completion}
        sides[1].append({**record, "score": number / 7, "note": "n" * drawn.randint(0, 30)})
    return sides


def write_side(folder: Path, tokenizer_json: bytes, records: list[str], given: Any) -> PageStore:
    source = f"{folder.name}.jsonl"
    StoreWriter(folder, tokenizer_json, given).write({source: "\n".join(records).encode()}, [[0]])
    return read_store(folder)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, kept: PageStore) -> list[list[PageStore]]:
    """Return two aligned stores for each side; one of the second side has targets."""
    folder = tmp_path_factory.mktemp("pairs")
    tokenizer_json = (kept.folder / "tokenizer.json").read_bytes()
    other = json.loads(tokenizer_json)
    other["model"]["vocab"]["far"] = 70_000
    tokens = {"keep": ["lang:class", "tags:tags", "title:text", "id:int"]}
    affixed: dict[str, Any] = {"keep": ["score:float", "note:text"], "bos": "<bos>", "eos": "<eos>"}
    with_targets = {"prompt_field": "prompt", "completion_field": "completion"}
    encoder, decoder = ([json.dumps(record) for record in records] for records in make_pairs())
    found: list[list[PageStore]] = [[], []]
    for number, cut in enumerate((slice(60), slice(60, None))):
        given = affixed | (with_targets if number else {})
        names = folder / f"encoder-{number}", folder / f"decoder-{number}"
        found[0].append(write_side(names[0], tokenizer_json, encoder[cut], tokens))
        found[1].append(write_side(names[1], json.dumps(other).encode(), decoder[cut], given))
    return found


def draw_pairs(drawn: random.Random, *, swaps: bool) -> tuple[str, dict[str, Any]]:
    """Draw a layout of pairs and any of its options; the sides may be swapped."""
    layout, (encoder, decoder) = drawn.choice(["packed", "padded"]), ("", "decoder.")
    if swaps:
        encoder, decoder = decoder, encoder
    buckets = drawn.choice([None, None, "auto", [[5, 8], [10, 50], [50, 12]], [[16, 19]]])
    given: dict[str, Any] = {"buckets": buckets, "batch_size": drawn.choice([None, 1, 4, 9])}
    given["max_tokens"] = drawn.choice([None, 30 if buckets is None else 70, 100, 200])
    if given["max_tokens"]:
        given |= {"count": drawn.choice([None, "max", "sum"]), "overflow": "drop"}
    if isinstance(buckets, list):
        given["overflow"] = drawn.choice(["drop", given.get("overflow")])
    if buckets == "auto":
        given["num_buckets"] = drawn.choice([None, 1, 3])
    if layout == "padded":
        if not isinstance(buckets, list):
            given["pad_to_multiple"] = drawn.choice([1, 4, 5])
        given |= {
            "padding_side": drawn.choice(["left", "right"]),
            "pad_id": drawn.choice([None, 3]),
        }
    wheres = ["@length < 20", "decoder.@length < 40", f"{encoder}lang != a", f"{decoder}score < 9"]
    fixed = [f"{encoder}tags", f"{encoder}title", f"{decoder}note"]
    choices: dict[str, list[Any]] = {
        "last_batch": ["keep", "drop"],
        "order": ["length", "length", "none"],
        "shuffle": [True, False],
        "drop_shorter": [None, None, 4],
        "drop_longer": [None, None, 25],
        "where": [[], [], drawn.sample(wheres, 2)],
        "passes": [None, None, "1=2.5,2=0.5", "2=3"],
        "drop_column": [[], [], sorted(drawn.sample(fixed, 2))],
        "store_column": ["store", None],
        "shard_bytes": [1, 6000, 20_000, 1 << 20],
        "split": [None, None, None, "train=0.6,test=0.4"],
    }
    if not swaps:
        choices["keep_without_target"] = [False, True]
    if layout == "padded" and (given["batch_size"] or (buckets and given["max_tokens"])):
        choices["last_batch"].append("pad")
    given |= {name: drawn.choice(values) for name, values in choices.items()}
    if given["order"] == "length":
        given["window"] = drawn.choice([None, 11])
    if not given["passes"] and drawn.random() < 0.3:
        given |= {"share": "1=0.4,2=0.6", "max_passes": drawn.choice(["1", "2.5"])}
    if given["split"]:
        given["split_by"] = drawn.choice([None, "score" if swaps else "id"])
    if given["shuffle"] or given["passes"] or given.get("share"):
        given["seed"] = drawn.randrange(2**64)
    return layout, given


def check_pairs(
    sides: list[list[PageStore]], folder: Path, layout: str, given: dict[str, Any]
) -> None:
    """Compare pairs that are written from the page with those of pack."""
    ours, theirs = folder / "ours", folder / "theirs"
    folders = [[store.folder for store in stores] for stores in sides]
    options = {**given}
    if isinstance(given.get("buckets"), list):
        options["buckets"] = tuple(tuple(key) for key in given["buckets"])
    pack(folders[0], theirs, PackOptions(layout=layout, **options), decoder=folders[1])
    names = given["split"].split(",") if given.get("split") else []
    names = [name.split("=")[0] for name in names]
    keys = {
        name: json.loads((theirs / name / "manifest.json").read_bytes())["bucket_keys"]
        for name in names or [""]
    }
    found = {name: each and [tuple(key) for key in each] for name, each in keys.items()}
    if not names:
        ShardWriter(ours, sides[0], layout, given, decoder=sides[1], keys=found[""]).write()
        check_same(ours, theirs)
        return
    write_splits(ours, sides[0], layout, given, decoder=sides[1], keys=found)
    check_same_splits(ours, theirs)


@pytest.mark.parametrize(
    ("layout", "given"),
    [
        ("packed", {"batch_size": 9, "shuffle": True, "shard_bytes": 6000}),
        ("padded", {"batch_size": 9, "last_batch": "pad", "padding_side": "left"}),
    ],
)
def test_pairs_are_read_and_verified(
    both: list[list[PageStore]], tmp_path: Path, layout: str, given: dict[str, Any]
) -> None:
    """What pack writes is read from the page; what is written from the page is verified."""
    given = {**given, "keep_without_target": True}
    folders = [[store.folder for store in stores] for stores in both]
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    pack(folders[0], theirs, PackOptions(layout=layout, **given), decoder=folders[1])
    documents = [find_documents(stores) for stores in both]
    pairs = read_pairs(theirs)
    assert all(documents[0][encoder] == documents[1][decoder] for encoder, decoder in pairs)
    assert len(pairs) == len({*documents[0]} & {*documents[1]}) > 50
    for side, prefix in enumerate(("", "decoder.")):
        sequences = [ids for store in both[side] for ids in store.sequences]
        found = read_rows(theirs, prefix)
        assert {index: row["ids"] for index, row in found.items()} == {
            pair[side]: sequences[pair[side]] for pair in pairs
        }
    ShardWriter(ours, both[0], layout, given, decoder=both[1]).write()
    assert run("verify", ours, "--level", "roundtrip").exit_code == 0


def find_documents(stores: list[PageStore]) -> list[tuple[int, int]]:
    """Return the store and the document of each sequence."""
    return [(place, number) for place, store in enumerate(stores) for number in store.documents]
