"""Sequences of a token store through torch's Dataset, one or a list at a time."""

from __future__ import annotations

import json
import pickle
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from here import HERE
from hypothesis import given
from hypothesis import strategies as st
from shard_reference import make_store, make_texts
from torch.utils.data import DataLoader, Subset

from seqpack_cli.errors import FolderError
from seqpack_cli.tokens.options import TokenizeOptions
from seqpack_cli.tokens.tokenize_run import tokenize
from seqpack_cli.training.store_dataset import FILLER, Piece, StoreDataset
from seqpack_cli.training.token_sequences import TokenSequence

LENGTHS = (3, 9, 5, 1, 5, 300, 2, 4, 1, 1, 40, 7, 150, 6)
TEXTS = make_texts(LENGTHS)
LAST = len(LENGTHS) - 1
Key = int | Piece


def read_ids(key: Key) -> list[int]:
    """Return the expected ids of a key; with the tokenizer `bytes`, an id is a byte."""
    if isinstance(key, int):
        return list(TEXTS[key].encode())
    return list(TEXTS[key.original_index].encode())[key.start : key.start + key.length]


def keys() -> st.SearchStrategy[list[Key]]:
    """Keys in any order, some twice: whole sequences, pieces, empty rows."""
    whole = st.integers(0, LAST)
    pieces = whole.flatmap(
        lambda index: st.integers(0, LENGTHS[index] - 1).flatmap(
            lambda start: st.builds(
                Piece,
                st.just(index),
                st.just(start),
                st.integers(1, LENGTHS[index] - start),
                st.integers(-1, 9),
            )
        )
    )
    return st.lists(st.one_of(whole, pieces, st.just(FILLER)), max_size=20)


@pytest.fixture(scope="module", params=["one part", "many parts"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    part_bytes = 20 if request.param == "many parts" else 1 << 20
    path = make_store(tmp_path_factory.mktemp("dataset"), TEXTS, part_bytes=part_bytes)
    assert (len([*path.glob("*.bin")]) > 3) == (request.param == "many parts")
    return path


@pytest.fixture
def own_store(store: Path, tmp_path: Path) -> Path:
    """Copy the store, to be changed."""
    return Path(shutil.copytree(store, tmp_path / "store"))


def only_ids(sequences: Sequence[TokenSequence]) -> list[TokenSequence]:
    """Do as collate_fn=list does."""
    return list(sequences)


def test_items_are_the_sequences_of_the_store(store: Path) -> None:
    dataset = StoreDataset(store)
    assert len(dataset) == len(LENGTHS)
    for index, text in enumerate(TEXTS):
        item = dataset[index]
        assert item.ids.dtype == torch.int64
        assert item.ids.tolist() == list(text.encode())
        assert item.original_index == index
        assert type(item.original_index) is int


def test_path_may_be_a_string(store: Path) -> None:
    assert StoreDataset(str(store))[1].ids.tolist() == read_ids(1)


def test_indices_of_numpy_and_torch_are_taken(store: Path) -> None:
    dataset = StoreDataset(store)
    for index in (np.int64(5), np.uint8(5), torch.tensor(5)):
        assert dataset[index].ids.tolist() == read_ids(5)  # type: ignore[index]
        assert dataset[index].original_index == 5  # type: ignore[index]


def test_iteration_ends(store: Path) -> None:
    """Python iterates over anything with IndexError at its end."""
    assert [item.original_index for item in StoreDataset(store)] == [*range(len(LENGTHS))]


@pytest.mark.parametrize(("start", "length"), [(0, 300), (0, 1), (299, 1), (7, 100)])
def test_piece_is_a_part_of_its_sequence(store: Path, start: int, length: int) -> None:
    item = StoreDataset(store)[Piece(5, start, length)]
    assert item.ids.tolist() == list(TEXTS[5].encode())[start : start + length]
    assert item.ids.dtype == torch.int64
    assert item.original_index == 5


def test_filler_is_an_empty_row(store: Path) -> None:
    item = StoreDataset(store)[FILLER]
    assert item.ids.tolist() == []
    assert item.ids.dtype == torch.int64
    assert item.original_index == -1


@given(asked=keys())
def test_list_of_keys_gives_each_in_its_place(store: Path, asked: list[Key]) -> None:
    dataset = StoreDataset(store)
    found = dataset.__getitems__(asked)
    assert [item.ids.tolist() for item in found] == [read_ids(key) for key in asked]
    indices = [key if isinstance(key, int) else key.original_index for key in asked]
    assert [item.original_index for item in found] == indices
    assert all(item.ids.dtype == torch.int64 for item in found)
    assert all(type(item.original_index) is int for item in found)


def test_nothing_asked_for_is_nothing(store: Path) -> None:
    assert list(StoreDataset(store).__getitems__([])) == []


def test_items_may_be_changed_without_touching_others(store: Path) -> None:
    dataset = StoreDataset(store)
    before = {path.name: path.read_bytes() for path in store.iterdir()}
    twice = dataset.__getitems__([1, 2, 1, Piece(1, 0, 9)])
    twice[0].ids.zero_()
    twice[0].ids[-1] = -1
    for key, item in zip([2, 1, 1], twice[1:], strict=True):
        assert item.ids.tolist() == read_ids(key)
    dataset[1].ids.fill_(7)
    assert dataset[1].ids.tolist() == read_ids(1)
    assert {path.name: path.read_bytes() for path in store.iterdir()} == before


@pytest.mark.parametrize("index", [-15, 14, 2**31, 2**62])
def test_index_outside_is_an_index_error(store: Path, index: int) -> None:
    dataset = StoreDataset(store)
    with pytest.raises(IndexError, match=f"^sequence {index} of 14$"):
        dataset[index]
    with pytest.raises(IndexError, match=f"^sequence {index} of 14$"):
        dataset.__getitems__([3, FILLER, index, 3])
    with pytest.raises(IndexError, match=f"^sequence {index} of 14$"):
        dataset[Piece(index, 0, 1)]


@pytest.mark.parametrize(
    ("start", "length"),
    [(0, 10), (9, 1), (8, 2), (3, 0), (-1, 1), (-1, 10), (2**62, 1), (1, 2**62), (10, 0), (1, -1)],
)
def test_piece_outside_its_sequence_is_an_index_error(store: Path, start: int, length: int) -> None:
    dataset, piece = StoreDataset(store), Piece(1, start, length)
    expected = f"^{re.escape(str(piece))} is out of range: the sequence has 9 tokens$"
    for asked in ([piece], [5, FILLER, piece, 0]):
        with pytest.raises(IndexError, match=expected):
            dataset.__getitems__(asked)
    with pytest.raises(IndexError, match=expected):
        dataset[piece]


@pytest.mark.parametrize("filler", [Piece(-1, 0, 1), Piece(-1, 1, 0), Piece(-1, 0, -1)])
def test_what_is_nearly_filler_is_an_index_error(store: Path, filler: Piece) -> None:
    with pytest.raises(IndexError, match=r"^sequence -1 of 14$"):
        StoreDataset(store)[filler]


@pytest.mark.parametrize("row_index", [-2, 2**63])
def test_piece_in_no_row_is_an_index_error(store: Path, row_index: int) -> None:
    with pytest.raises(IndexError, match=f"row_index is {row_index}, expected 0 or more, or -1$"):
        StoreDataset(store)[Piece(1, 0, 1, row_index)]


def test_piece_of_a_negative_length_is_an_index_error(store: Path) -> None:
    with pytest.raises(IndexError, match=r"is out of range: the sequence has 9 tokens$"):
        StoreDataset(store)[Piece(1, 0, -1)]


@pytest.mark.parametrize("key", [1.9, "1", True, (1,), (1, 2, 3, 4, 5), Piece(1, 0.5, 2)])  # type: ignore[arg-type]
def test_key_that_is_no_integer_is_a_type_error(store: Path, key: object) -> None:
    with pytest.raises(TypeError, match="integer"):
        StoreDataset(store)[key]  # type: ignore[index]


def test_ids_that_the_tokenizer_does_not_have_are_refused(own_store: Path) -> None:
    part = own_store / "part-00000.bin"
    ids = np.frombuffer(part.read_bytes(), "<u2").copy()
    ids[LENGTHS[0] + 4] = 259  # in sequence 1
    part.write_bytes(ids.tobytes())
    dataset = StoreDataset(own_store)
    expected = (
        f"{own_store}: holds id 259, expected ids from 0 to 258\n\n"
        "hint: the store was changed or damaged: make it again with --overwrite"
    )
    for asked in ([1], [0, 1, 5], [Piece(1, 4, 1)]):
        with pytest.raises(FolderError, match=f"^{re.escape(expected)}$"):
            dataset.__getitems__(asked)
    with pytest.raises(FolderError, match="id 259"):
        list(DataLoader(dataset, batch_size=4, collate_fn=only_ids))
    around = dataset.__getitems__([0, Piece(1, 0, 4), Piece(1, 5, 4), LAST])
    assert around[1].ids.tolist() == read_ids(Piece(1, 0, 4))
    ids[LENGTHS[0] + 4] = 258  # <eos>, the last one there is
    part.write_bytes(ids.tobytes())
    assert StoreDataset(own_store)[1].ids[4] == 258


def test_wide_ids_are_kept_and_negative_ones_refused(tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("ab\nbb\n")
    model = {"type": "BPE", "vocab": {"a": 0, "b": 70_000}, "merges": []}
    (tmp_path / "tokenizer.json").write_text(json.dumps({"version": "1.0", "model": model}))
    options = TokenizeOptions(tokenizer=str(tmp_path))
    tokenize([str(tmp_path / "corpus.txt")], tmp_path / "store", options, executor=HERE)
    part = tmp_path / "store" / "part-00000.bin"
    found = StoreDataset(tmp_path / "store").__getitems__([1, 0])
    assert [item.ids.tolist() for item in found] == [[70_000, 70_000], [0, 70_000]]
    for id_ in (-1, -(2**31), 70_001, 2**31 - 1):
        part.write_bytes(np.array([0, id_, 70_000, 70_000], "<i4").tobytes())
        dataset = StoreDataset(tmp_path / "store")
        expected = f"holds id {id_}, expected ids from 0 to 70000"
        with pytest.raises(FolderError, match=expected):
            dataset[0]
        assert dataset[1].ids.tolist() == [70_000, 70_000]


def test_store_that_is_incomplete_is_refused_at_once(own_store: Path, tmp_path: Path) -> None:
    with pytest.raises(FolderError, match="no such folder"):
        StoreDataset(tmp_path / "nowhere")
    (own_store / "part-00000.idx").unlink()
    with pytest.raises(FolderError, match=r"part-00000\.idx"):
        StoreDataset(own_store)
    (own_store / "manifest.json").unlink()
    with pytest.raises(FolderError, match=r"manifest\.json"):
        StoreDataset(own_store)


def test_store_that_is_cut_after_opening_is_refused_at_the_item(own_store: Path) -> None:
    dataset = StoreDataset(own_store)
    part = own_store / "part-00000.bin"
    part.write_bytes(part.read_bytes()[:-2])
    with pytest.raises(FolderError, match=r"part-00000\.bin"):
        dataset[0]


def test_pickled_dataset_opens_the_store_anew(store: Path) -> None:
    dataset = StoreDataset(store)
    dataset.__getitems__([*range(len(LENGTHS))])  # maps are open now, and do not travel
    pickled = pickle.dumps(dataset)
    assert len(pickled) < 500
    again: StoreDataset = pickle.loads(pickled)  # noqa: S301 - our own
    assert len(again) == len(dataset)
    assert again[Piece(5, 7, 11)].ids.tolist() == read_ids(Piece(5, 7, 11))
    assert dataset[5].ids.tolist() == read_ids(5)


def test_loader_without_batches_gives_single_sequences(store: Path) -> None:
    found = list(DataLoader(StoreDataset(store), batch_size=None))
    assert [item.original_index for item in found] == [*range(len(LENGTHS))]
    assert [item.ids.tolist() for item in found] == [read_ids(i) for i in range(len(LENGTHS))]
    assert all(isinstance(item, TokenSequence) for item in found)


def test_subset_reads_its_own_sequences(store: Path) -> None:
    subset = Subset(StoreDataset(store), [5, 3, 12])
    assert len(subset) == 3
    (found,) = DataLoader(subset, batch_size=3, collate_fn=only_ids)
    assert [item.original_index for item in found] == [5, 3, 12]
    assert [item.ids.tolist() for item in found] == [read_ids(i) for i in (5, 3, 12)]


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # on a single core
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("context", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])  # 8 s
def test_workers_give_what_one_process_gives(store: Path, context: str) -> None:
    dataset = StoreDataset(store)
    dataset.__getitems__([*range(len(LENGTHS))])  # maps are open now
    batches = [[5, Piece(5, 7, 11), FILLER], [12, 12], [0], [3, 13, 1, 2]]
    loader = DataLoader(
        dataset,
        batch_sampler=batches,  # type: ignore[arg-type]
        collate_fn=only_ids,
        num_workers=2,
        multiprocessing_context=context,
    )
    for asked, found in zip(batches, loader, strict=True):
        assert [item.ids.tolist() for item in found] == [read_ids(key) for key in asked]
        assert [item.ids.dtype for item in found] == [torch.int64] * len(asked)
