"""Columns of token stores: the same bytes however they are made, and no damaged value is read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import xxhash
from reference import read_folder
from unfinished import stopping_before_manifest

from seqpack_cli import Executor, TokenizeOptions, open_store, tokenize
from seqpack_cli.errors import FolderError
from seqpack_cli.limits import LIMITS
from seqpack_cli.tokens import part_files
from seqpack_cli.tokens.store import read_values

KEEP = ("label:class", "number", "score:float", "id")
RECORDS = [
    {
        "text": "" if number % 7 == 3 else f"text {number} " * (number % 5 + 1),
        "label": "ßaZ"[number * 5 % 3] * (number // 40 + 1),  # other classes in every part
        "number": number - 2**62,
        "score": number / 3,
        "id": f"é{number}" * (number % 3),
    }
    for number in range(120)
]
OPTIONS = TokenizeOptions(keep=KEEP, max_length=20, part_bytes=2000)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    return path


@pytest.fixture
def store(corpus: Path, tmp_path: Path) -> Path:
    tokenize(corpus, tmp_path / "store", OPTIONS, executor=Executor(num_workers=1))
    return tmp_path / "store"


def change_tensors(store: Path, change: Callable[[dict[str, np.ndarray]], None]) -> None:
    """Change the arrays of the first part's columns, and its entry in the manifest."""
    path = store / "part-00000.columns.safetensors"
    arrays = {name: array.copy() for name, array in safetensors.numpy.load_file(path).items()}
    change(arrays)
    safetensors.numpy.save_file(arrays, path, {"format": part_files.FORMAT})
    manifest = json.loads((store / "manifest.json").read_bytes())
    manifest["parts"][0]["files"][2]["bytes"] = path.stat().st_size
    (store / "manifest.json").write_text(json.dumps(manifest))


def test_every_sequence_has_the_values_of_its_record(store: Path) -> None:
    opened = open_store(store)
    assert len(opened.manifest["parts"]) > 3
    assert list(opened.columns) == ["label", "number", "score", "id"]
    indices = np.random.default_rng(1).permutation(len(opened))
    found = {
        name: column.spell(read_values(opened, indices, name))
        for name, column in opened.columns.items()
    }
    for place, index in enumerate(indices.tolist()):
        record = RECORDS[opened.locate(index).document]
        assert {name: values[place] for name, values in found.items()} == {
            name: record[name] for name in found
        }
    labels = {record["label"] for record in RECORDS if record["text"]}
    assert opened.columns["label"].class_names == tuple(sorted(labels))


def test_values_of_no_sequence_are_filled(store: Path) -> None:
    opened = open_store(store)
    nothing = np.array([-1, -1])
    assert [read_values(opened, nothing, name).tolist() for name in opened.columns] == [
        [-100, -100],
        [0, 0],
        [0.0, 0.0],
        ["", ""],
    ]


def test_document_hashes_are_those_of_the_texts(store: Path) -> None:
    opened = open_store(store)
    parts = range(len(opened.manifest["parts"]))
    found = np.concatenate([opened.part_hashes(number) for number in parts])
    assert found.tolist() == [
        xxhash.xxh3_64_intdigest(record["text"].encode()) for record in RECORDS
    ]


@pytest.mark.parametrize("encoder", ["auto", "tokenizers"])
def test_stores_are_equal_whatever_made_them(
    store: Path, corpus: Path, tmp_path: Path, encoder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several processes, another encoder, texts that wait on the disk."""
    monkeypatch.setattr(LIMITS, "spool_bytes", 10)
    options = TokenizeOptions(keep=KEEP, max_length=20, part_bytes=2000, encoder=encoder)
    workers = Executor(num_workers=2 if encoder == "auto" else 1)
    tokenize(corpus, tmp_path / "other", options, executor=workers)
    assert read_folder(tmp_path / "other") == read_folder(store)


def test_an_interrupted_run_reuses_its_parts(store: Path, corpus: Path, tmp_path: Path) -> None:
    """All parts but one, whose receipt lacks a field."""
    other = tmp_path / "other"
    here = Executor(num_workers=1)
    with stopping_before_manifest():
        tokenize(corpus, other, OPTIONS, executor=here)
    receipt = other / "part-00001.json"
    changed = json.loads(receipt.read_bytes())
    del changed["class_names"]
    receipt.write_text(json.dumps(changed))
    before = {path.name: path.stat().st_mtime_ns for path in other.glob("*.safetensors")}
    tokenize(corpus, other, OPTIONS, executor=here)
    assert read_folder(other) == read_folder(store)
    made_again = [
        path.name
        for path in other.glob("*.safetensors")
        if path.stat().st_mtime_ns != before[path.name]
    ]
    assert made_again == ["part-00001.columns.safetensors"]


def test_a_finished_store_is_complete(store: Path, corpus: Path) -> None:
    before = read_folder(store)
    _, was_complete = tokenize(corpus, store, OPTIONS)
    assert was_complete
    assert read_folder(store) == before


def set_value(name: str, value: Any) -> Callable[[dict[str, np.ndarray]], None]:
    """Return a change of the second entry of an array."""

    def change(arrays: dict[str, np.ndarray]) -> None:
        arrays[name][1] = value

    return change


DAMAGES: dict[str, tuple[Callable[[dict[str, np.ndarray]], Any], str]] = {
    "class": (set_value("column.label", 99), "column 'label' holds class 99"),
    "no class": (set_value("column.label", -100), "column 'label' holds class -100"),
    "nan": (set_value("column.score", np.nan), "column 'score' holds a value that cannot be"),
    "utf-8": (set_value("column.id", 0xFF), "column 'id' holds a value that cannot be"),
    "offsets": (set_value("column.id.offsets", 10**9), "column.id.offsets does not rise from 0"),
    "missing": (lambda arrays: arrays.pop("column.number"), "holds ['class_names.label', 'colu"),
    "shorter": (
        lambda arrays: arrays.update({"column.number": arrays["column.number"][1:]}),
        "column.number is int64[",
    ),
    "dtype": (
        lambda arrays: arrays.update({"column.label": arrays["column.label"].astype(np.int64)}),
        "column.label is int64[",
    ),
    "class names": (
        set_value("class_names.label", ord("q")),
        "column 'label' holds class names that are not those of the manifest",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_column_is_not_read(store: Path, damage: str) -> None:
    change, message = DAMAGES[damage]
    change_tensors(store, change)
    with pytest.raises(FolderError) as caught:
        opened = open_store(store)
        for name in opened.columns:
            opened.part_column(0, name)
    assert message in caught.value.message


def test_wrong_arguments_of_part_column_are_refused(store: Path) -> None:
    opened = open_store(store)
    num_parts = len(opened.manifest["parts"])
    last = opened.part_column(num_parts - 1, "number")
    assert np.array_equal(opened.part_column(-1, "number"), last)
    for number in (num_parts, -num_parts - 1):
        with pytest.raises(IndexError, match=rf"^part {number} of {num_parts}$"):
            opened.part_column(number, "number")
        with pytest.raises(IndexError, match=rf"^part {number} of {num_parts}$"):
            opened.part_hashes(number)
    with pytest.raises(KeyError, match=r"no column 'Number' \(found: 'label', 'number', 'score', "):
        opened.part_column(0, "Number")
    for wrong in (True, "0"):
        with pytest.raises(TypeError, match=rf"^number is {wrong!r}, expected int$"):
            opened.part_column(wrong, "number")  # type: ignore[arg-type]


def change_columns(store: Path, change: Callable[[list[dict[str, Any]]], Any]) -> None:
    manifest = json.loads((store / "manifest.json").read_bytes())
    change(manifest["columns"])
    (store / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    "change",
    [
        lambda columns: columns.append(1),
        lambda columns: columns.append(columns[0]),
        lambda columns: columns[0].update(kind="label"),
        lambda columns: columns[0].update(dtype="int64"),
        lambda columns: columns[0].update(class_names=None),
        lambda columns: columns[0].update(class_names=["a", 1]),
        lambda columns: columns[0].update(class_names=["a", "a"]),
        lambda columns: columns[1].update(class_names=["a"]),
        lambda columns: columns[1].update(name="id.offsets"),
    ],
)
def test_a_forged_list_of_columns_is_refused(store: Path, change: Any) -> None:
    change_columns(store, change)
    with pytest.raises(FolderError, match=r"manifest\.json: "):
        open_store(store)


def test_a_file_of_another_format_is_refused(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_files, "FORMAT", "seqpack.shards")
    change_tensors(store, lambda _: None)
    monkeypatch.undo()
    with pytest.raises(
        FolderError, match=r"format is 'seqpack.shards', expected 'seqpack.columns'"
    ):
        open_store(store).part_hashes(0)


def test_a_part_of_another_store_is_refused(store: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(store, other)
    change_columns(other, lambda columns: columns[0]["class_names"].reverse())
    opened = open_store(other)
    names = opened.columns["label"].spell(opened.part_column(0, "label"))
    same = open_store(store)
    assert names == same.columns["label"].spell(same.part_column(0, "label"))
    change_columns(other, lambda columns: columns[0]["class_names"].pop())
    with pytest.raises(FolderError, match="are not those of the manifest"):
        for number in range(len(opened.manifest["parts"])):
            open_store(other).part_column(number, "label")
