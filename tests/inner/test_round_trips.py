"""What `export` writes, `import` reads again: the ids and documents are the same, byte by byte."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from foreign_ids import Documents, import_ids, write_pair
from here import HERE
from test_prompts import load_columns

from seqpack_cli import (
    TargetOptions,
    TokenizeOptions,
    export,
    open_store,
    tokenize,
)

VOCABULARIES = {"uint16": 1000, "int32": 70_000}
PART_BYTES = {"one-part": 1 << 20, "parts": 4000}


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
def test_documents_and_sequences_come_back(
    tmp_path: Path, vocab_size: int, part_bytes: int
) -> None:
    pair = write_pair(tmp_path / "foreign", make_documents(vocab_size), code=4)
    store, again = tmp_path / "store", tmp_path / "again"
    options = {"vocab_size": vocab_size, "part_bytes": part_bytes}
    import_ids(pair.with_suffix(".idx"), store, **options)
    assert (open_store(store).num_parts == 1) == (part_bytes == PART_BYTES["one-part"])
    export(store, tmp_path / "out", to="megatron")
    import_ids(tmp_path / "out.idx", again, **options)
    assert read_joined(again) == read_joined(store)
    if part_bytes == PART_BYTES["one-part"]:
        assert read_files(again) == read_files(store)


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
