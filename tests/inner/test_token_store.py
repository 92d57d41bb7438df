"""An open token store: its sequences, and where they came from."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from here import HERE
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import GOLDEN_IDS, GOLDEN_INDEX, read_store_documents
from strategies import texts

from seqpack_cli.errors import FolderError
from seqpack_cli.tokens.options import TokenizeOptions
from seqpack_cli.tokens.store import Origin, open_store
from seqpack_cli.tokens.tokenize_run import tokenize


def test_store_of_two_documents_has_the_golden_bytes(byte_store: Callable[..., Path]) -> None:
    """The byte tokenizer's ids 1 to 5 are the control characters."""
    store = byte_store(["\1\2\3", "\4\5"], add_special_tokens=False)
    assert (store / "part-00000.idx").read_bytes() == GOLDEN_INDEX
    assert (store / "part-00000.bin").read_bytes() == GOLDEN_IDS


@settings(max_examples=25)
@given(documents=st.lists(texts(), max_size=8), part_bytes=st.integers(1, 120))
def test_store_reads_back_as_utf8_bytes(
    tmp_path_factory: pytest.TempPathFactory, documents: list[str], part_bytes: int
) -> None:
    folder = tmp_path_factory.mktemp("store")
    documents = [*documents, "one with a token"]
    lines = [json.dumps({"text": text}) + "\n" for text in documents]
    (folder / "a.jsonl").write_text("".join(lines))
    options = TokenizeOptions(part_bytes=part_bytes)
    tokenize([str(folder / "a.jsonl")], folder / "store", options, executor=HERE)
    expected = [list(text.encode()) for text in documents]
    store = open_store(folder / "store")
    assert [ids.tolist() for ids in store] == [ids for ids in expected if ids]
    assert read_store_documents(folder / "store") == [[ids] if ids else [] for ids in expected]
    assert store.num_documents == len(documents)
    assert store.num_tokens == sum(map(len, expected))
    records = [store.locate(index).record for index in range(len(store))]
    assert records == [number for number, ids in enumerate(expected, 1) if ids]


def test_document_without_tokens_repeats_the_index_in_the_store(
    byte_store: Callable[..., Path],
) -> None:
    store = byte_store(["", "abc", "", "", "defgh", ""], max_length=2)
    assert read_store_documents(store) == [
        [],
        [[97, 98], [99]],
        [],
        [],
        [[100, 101], [102, 103], [104]],
        [],
    ]


def test_sequences_are_read_only_views(byte_store: Callable[..., Path]) -> None:
    store = open_store(byte_store(["abc"]))
    assert store[0].dtype == np.dtype("<u2")
    with pytest.raises(ValueError, match="read-only"):
        store[0][0] = 1


@pytest.mark.parametrize("index", [-3, 2, 99])
def test_index_outside_the_store_is_an_index_error(
    byte_store: Callable[..., Path], index: int
) -> None:
    store = open_store(byte_store(["ab", "c"]))
    with pytest.raises(IndexError, match=f"sequence {index} of 2"):
        store[index]
    with pytest.raises(IndexError, match=f"sequence {index} of 2"):
        store.locate(index)


@pytest.mark.parametrize("part_bytes", [1, 9, 20, 1000])
def test_locate_names_source_record_and_piece_whatever_the_parts(
    tmp_path: Path, part_bytes: int
) -> None:
    names = ["a.txt", "b.txt", "c.txt", "d.txt", "e.txt", "f.txt"]
    contents = ["\nabcde\n", "", "\n\nfg\nhij", "\n", "", "k\n"]
    for name, content in zip(names, contents, strict=True):
        (tmp_path / name).write_text(content)
    paths = [str(tmp_path / name) for name in names]
    tokenize(
        paths, tmp_path / "s", TokenizeOptions(max_length=2, part_bytes=part_bytes), executor=HERE
    )
    store = open_store(tmp_path / "s")
    assert [store.locate(index) for index in range(len(store))] == [
        Origin(str(tmp_path / "s"), paths[0], record=2, document=1, piece=0, num_pieces=3),
        Origin(str(tmp_path / "s"), paths[0], record=2, document=1, piece=1, num_pieces=3),
        Origin(str(tmp_path / "s"), paths[0], record=2, document=1, piece=2, num_pieces=3),
        Origin(str(tmp_path / "s"), paths[2], record=3, document=4, piece=0, num_pieces=1),
        Origin(str(tmp_path / "s"), paths[2], record=4, document=5, piece=0, num_pieces=2),
        Origin(str(tmp_path / "s"), paths[2], record=4, document=5, piece=1, num_pieces=2),
        Origin(str(tmp_path / "s"), paths[5], record=1, document=7, piece=0, num_pieces=1),
    ]


def test_opened_store_knows_its_tokenizer_and_digests(byte_store: Callable[..., Path]) -> None:
    path = byte_store(["abc"])
    store = open_store(str(path))
    assert store.read_tokenizer_json() == (path / "tokenizer.json").read_bytes()
    store.check_digest()
    assert (store.dtype, store.max_id, len(store)) == ("uint16", 258, 1)


def test_lengths_are_read_part_by_part_and_cached(
    byte_store: Callable[..., Path],
) -> None:
    store = open_store(byte_store(["abc", "", "de", "f", "ghij"], part_bytes=20))
    parts = [store.part_lengths(number).tolist() for number in range(len(store.part_offsets) - 1)]
    assert len(parts) > 2
    assert [length for part in parts for length in part] == [3, 2, 1, 4]
    assert np.diff(store.part_offsets).tolist() == [len(part) for part in parts]
    assert (len(store), store.num_tokens, list(map(len, store))) == (4, 10, [3, 2, 1, 4])
    assert "lengths" not in vars(store)
    assert store.lengths.tolist() == [3, 2, 1, 4]
    assert store.lengths.dtype == np.int32


def test_open_store_can_skip_the_check_of_indices(
    byte_store: Callable[..., Path],
) -> None:
    path = byte_store(["abc", "de"])
    with (path / "part-00000.idx").open("r+b") as file:
        file.seek(34)
        file.write((4).to_bytes(4, "little"))  # of 3 and 2
    with pytest.raises(FolderError, match="lengths do not add up to the 5 ids"):
        open_store(path)
    store = open_store(path, check_indices=False)
    assert store.part_lengths(0).tolist() == [4, 2]
    with pytest.raises(FolderError, match="lengths do not add up to the 5 ids"):
        store.view_part(0)


@pytest.mark.parametrize(
    ("place", "said"), [(18, "its header does not match"), (None, "manifest says")]
)
def test_part_lengths_refuses_another_file(
    byte_store: Callable[..., Path], place: int | None, said: str
) -> None:
    path = byte_store(["abc", "de"])
    store = open_store(path)
    if place is None:
        os.truncate(path / "part-00000.idx", 40)
    else:
        with (path / "part-00000.idx").open("r+b") as file:
            file.seek(place)
            file.write(b"\x07")
    with pytest.raises(FolderError, match=said):
        store.part_lengths(0)
