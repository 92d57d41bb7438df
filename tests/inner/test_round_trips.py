"""What `export` writes, `import` reads again: the ids and documents are the same, byte by byte."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from foreign_ids import Documents, import_ids, write_pair
from here import HERE
from test_prompts import load_columns

from seqpack_cli import (
    ImportOptions,
    TargetOptions,
    TokenizeOptions,
    export,
    import_store,
    open_store,
    tokenize,
)
from seqpack_cli.limits import LIMITS
from seqpack_cli.shards.exports.parquet_export import export_parquet
from seqpack_cli.shards.exports.task import Task, open_exported

VOCABULARIES = {"uint16": 1000, "int32": 70_000}
PART_BYTES = {"one-part": 1 << 20, "parts": 4000}
WAYS: dict[str, tuple[str, dict[str, Any]]] = {  # the suffix of what is imported, and options
    "megatron": (".idx", {}),
    "parquet": ("", {"document_field": "document"}),
}

# Empty documents at both ends, a file of none but these, and documents of several sequences.
TEXTS = (["", "ab", "", "abcdefghijk", "", ""], [""], ["abcde", "a" * 90, "", "fghij", "b" * 9, ""])


def make_documents(vocab_size: int) -> Documents:
    """Return documents of no, one or several sequences; the first and the last are empty."""
    numbers = random.Random(vocab_size)

    def make_sequence() -> list[int]:
        return [numbers.randrange(vocab_size) for _ in range(numbers.randrange(1, 20))]

    middle = [[make_sequence() for _ in range(numbers.choice([0, 1, 3]))] for _ in range(200)]
    return [[], *middle, []]


def read_files(store: Path) -> dict[str, bytes]:
    """Return the ids and the indices of all parts."""
    return {path.name: path.read_bytes() for path in store.glob("part-*.[bi]*")}


def read_joined(store: Path) -> list[bytes]:
    """Return the ids and the index of all parts as one."""
    prefix = store.with_name(f"{store.name}-joined")
    export(store, prefix, to="megatron")
    return [prefix.with_suffix(suffix).read_bytes() for suffix in (".bin", ".idx")]


@pytest.mark.parametrize("part_bytes", PART_BYTES.values(), ids=PART_BYTES)
@pytest.mark.parametrize("vocab_size", VOCABULARIES.values(), ids=VOCABULARIES)
@pytest.mark.parametrize("way", WAYS)
def test_documents_and_sequences_come_back(
    tmp_path: Path, way: str, vocab_size: int, part_bytes: int
) -> None:
    pair = write_pair(tmp_path / "foreign", make_documents(vocab_size), code=4)
    store, again = tmp_path / "store", tmp_path / "again"
    options = {"vocab_size": vocab_size, "part_bytes": part_bytes}
    import_ids(pair.with_suffix(".idx"), store, **options)
    assert (open_store(store).num_parts == 1) == (part_bytes == PART_BYTES["one-part"])
    export(store, tmp_path / "out", to=way)
    suffix, own_options = WAYS[way]
    import_ids(tmp_path / f"out{suffix}", again, **options, **own_options)
    assert read_joined(again) == read_joined(store)
    if part_bytes == PART_BYTES["one-part"]:
        assert read_files(again) == read_files(store)


@pytest.mark.parametrize(("overlap", "part_bytes"), [(None, 3000), (2, 64 << 20)])
def test_documents_come_back_from_several_parquet_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overlap: int | None, part_bytes: int
) -> None:
    paths = []
    for number, texts in enumerate(TEXTS):
        paths.append(tmp_path / f"{number}.jsonl")
        lines = [json.dumps({"text": text, "score": len(text)}) for text in texts]
        paths[-1].write_text("".join(f"{line}\n" for line in lines))
    options = TokenizeOptions(max_length=5, overlap=overlap, keep=["score"])
    tokenize(paths, tmp_path / "store", options, executor=HERE)
    monkeypatch.setattr(LIMITS, "ids_per_export", 11)
    task = Task(open_exported(tmp_path / "store"), tmp_path / "out", overwrite=False, eos=None)
    export_parquet(task, max_file_bytes=1)
    files = sorted((tmp_path / "out").iterdir())
    assert len(files) == 3  # none of which begins within the document of 90 tokens
    again = ImportOptions(
        tokenizer=tmp_path / "store",
        document_field="document",
        ignore_fields=["overlap"],
        keep=["score"],
        part_bytes=part_bytes,
    )
    import_store(tmp_path / "out", tmp_path / "again", again, executor=HERE)
    first, second = open_store(tmp_path / "store"), open_store(tmp_path / "again")
    assert (second.num_parts == 1) == (overlap is not None)
    assert np.array_equal(np.concatenate(list(first)), np.concatenate(list(second)))
    assert np.array_equal(first.lengths, second.lengths)
    counts = [
        [store.count_sequences(part) for part in range(store.num_parts)]
        for store in (first, second)
    ]
    assert np.array_equal(*map(np.concatenate, counts))
    if second.num_parts == 1:
        for name in ("part-00000.bin", "part-00000.idx"):
            found, expected = ((tmp_path / it / name).read_bytes() for it in ("again", "store"))
            assert found == expected
        for name in ("score", "targets"):
            assert np.array_equal(first.part_column(0, name), second.part_column(0, name))


def test_documents_that_end_with_the_end_token_come_back_from_nanogpt(tmp_path: Path) -> None:
    texts = "".join(f"{'x' * n}\n" for n in range(1, 200))
    (tmp_path / "a.txt").write_text(texts)
    options = TokenizeOptions(eos="<eos>")
    eos = tokenize(tmp_path / "a.txt", tmp_path / "store", options, executor=HERE)[0]["eos_id"]
    export(tmp_path / "store", tmp_path / "out.bin", to="nanogpt")
    import_ids(tmp_path / "out.bin", tmp_path / "again", dtype="uint16", eos=eos, tokenizer="bytes")
    assert read_files(tmp_path / "again") == read_files(tmp_path / "store")


def test_targets_and_kept_fields_come_back_from_parquet(tmp_path: Path) -> None:
    records = [
        {"p": "a" * n, "c": "b" * (n % 5), "stars": n, "name": f"é{n}"} for n in range(1, 99)
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(each) + "\n" for each in records))
    keep = ["stars", "name:text", "p:class"]
    targets = TargetOptions(prompt_field="p", completion_field="c")
    options = TokenizeOptions(targets=targets, eos="<eos>", keep=keep)
    tokenize(tmp_path / "a.jsonl", tmp_path / "store", options, executor=HERE)
    export(tmp_path / "store", tmp_path / "out")
    import_ids(tmp_path / "out", tmp_path / "again", tokenizer="bytes", keep=keep)
    assert read_files(tmp_path / "again") == read_files(tmp_path / "store")
    expected, found = load_columns(tmp_path / "store"), load_columns(tmp_path / "again")
    hashes = {"document_hashes"}  # of the text, and of the ids
    assert {name: found[name] for name in found if name not in hashes} == {
        name: expected[name] for name in expected if name not in hashes
    }
