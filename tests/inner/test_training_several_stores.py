"""Training on several stores as one: their sequences, and the batches that pack makes of them."""

from __future__ import annotations

import json
import pickle
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from here import HERE
from shard_reference import make_texts
from tensor_reference import assert_same
from torch.utils.data import DataLoader

from seqpack_cli import (
    DataError,
    EpochSampler,
    FolderError,
    OptionError,
    PackOptions,
    ShardDataset,
    StoreBatches,
    StoreDataset,
    TokenizeOptions,
    open_store,
    pack,
    tokenize,
)

LENGTHS = {
    "web": (3, 29, 5, 1, 5, 12, 22, 30, 7, 9, 1, 16, 14, 4, 25, 3, 8, 12, 26, 2),
    "books": (9, 2, 30, 4, 17, 6, 11, 2),
}
KEEP = {"web": ("lang:class", "id:text", "score:float"), "books": ("lang:class", "id:text")}
LANGUAGES = {"web": ("de", "fr"), "books": ("en", "fr")}
COLUMNS = ["lang", "id"]  # those of both stores
SPLIT = {"split": "train=0.7,test=rest", "split_name": "train"}

# Options that select sequences, beside some of each layout.
OPTIONS: dict[str, dict[str, Any]] = {
    "passes": {"passes": "web=2.5,2=0.5", "batch_size": 4, "window": 8, **SPLIT},
    "share": {"share": "web=0.3,books=rest", "max_passes": "3", "max_tokens": 40},
    "filler": {
        **{"layout": "padded", "batch_size": 3, "last_batch": "pad", "buckets": (4, 8, 12)},
        **{"passes": "2=3", "store_column": "store", "drop_column": ("id",)},
    },
    "keys": {"layout": "padded", "batch_size": 3, "buckets": "auto", "passes": "web=2"},
    "pieces": {"layout": "varlen", "max_tokens": 11, "passes": "web=1.5", "where": ("lang = fr",)},
    "values": {"split": "de,en,fr", "split_by": "lang", "split_name": "fr", "batch_size": 2},
}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two stores of several parts, documents of several sequences, and different columns."""
    folder = tmp_path_factory.mktemp("stores")
    return [make_store(folder, name) for name in LENGTHS]


def make_store(folder: Path, name: str) -> Path:
    languages = LANGUAGES[name]
    records = [
        {"text": text, "lang": languages[number % 2], "id": f"{name} {number}", "score": 0.5}
        for number, text in enumerate(make_texts(LENGTHS[name], seed=len(name)))
    ]
    corpus = folder / f"{name}.jsonl"
    corpus.write_text("".join(json.dumps(record) + "\n" for record in records))
    options = TokenizeOptions(max_length=12, part_bytes=300, keep=KEEP[name])
    tokenize([str(corpus)], folder / name, options, executor=HERE)
    assert len([*(folder / name).glob("*.bin")]) > 1
    return folder / name


def make_batches(stores: list[Path], **options: Any) -> StoreBatches:
    return StoreBatches(StoreDataset(stores, columns=COLUMNS), PackOptions(**options))


def read_epoch(batches: StoreBatches, epoch: int, *, shuffle: bool = True) -> list[Any]:
    sampler = EpochSampler(batches, seed=5, shuffle=shuffle)
    sampler.set_epoch(epoch)
    collate = batches.make_collate(labels="next")
    return list(DataLoader(batches.dataset, batch_sampler=sampler, collate_fn=collate))


def count_visits(found: list[Any]) -> Counter[int]:
    """Count how often each sequence is in a batch."""
    return Counter(index for batch in found for index in batch.original_indices.tolist())


def test_sequences_are_numbered_over_all_stores(stores: list[Path]) -> None:
    dataset, apart = StoreDataset(stores, columns=COLUMNS), [*map(open_store, stores)]
    expected = [sequence.tolist() for store in apart for sequence in store]
    assert len(dataset) == len(expected)
    assert [item.ids.tolist() for item in dataset] == expected
    assert dataset[-1].original_index == len(expected) - 1
    assert dataset.class_names("lang") == ["de", "en", "fr"]
    first = len(apart[0])  # of the second store
    items = [dataset[0], dataset[first], dataset[-1]]
    found = [(item.columns["id"], item.columns["lang"]) for item in items]
    assert found == [("web 0", 0), ("books 0", 1), ("books 7", 2)]
    assert [item.ids.tolist() for item in dataset.__getitems__([first, -1, 0])] == [
        expected[index] for index in (first, -1, 0)
    ]


def test_dataset_of_several_names_all_and_has_no_one_path(stores: list[Path]) -> None:
    dataset = StoreDataset(stores, columns=[])
    assert dataset.paths == tuple(stores)
    names = [str(path) for path in stores]
    assert repr(dataset) == f"StoreDataset({names!r}, num_sequences={len(dataset)})"
    with pytest.raises(AttributeError, match=r"^2 token stores have no one path; use paths$"):
        _ = dataset.path
    assert StoreDataset(stores[:1]).path == StoreDataset(stores[0]).path == stores[0]


def test_columns_in_which_the_stores_differ_are_left_out_with_the_others(
    stores: list[Path],
) -> None:
    with pytest.raises(OptionError, match=r"column 'score': found none, .*web has kind float"):
        StoreDataset(stores)
    assert [*StoreDataset(stores, columns=["lang"]).columns] == ["lang"]


def test_pickled_dataset_refuses_a_store_that_was_replaced(
    stores: list[Path], tmp_path: Path
) -> None:
    copies = [Path(shutil.copytree(store, tmp_path / store.name)) for store in stores]
    dataset = StoreDataset(copies, columns=COLUMNS)
    sent = pickle.dumps(dataset)
    again: StoreDataset = pickle.loads(sent)  # noqa: S301 - our own
    assert [item.ids.tolist() for item in again] == [item.ids.tolist() for item in dataset]
    again = pickle.loads(sent)  # noqa: S301 - our own
    shutil.rmtree(copies[1])
    options = TokenizeOptions(keep=KEEP["books"])
    tokenize([str(stores[0].parent / "books.jsonl")], copies[1], options, executor=HERE)
    with pytest.raises(FolderError, match=f"^{copies[1]}: its files were replaced"):
        again[0]


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_epoch_of_several_stores_is_what_pack_writes(
    stores: list[Path], tmp_path: Path, options: dict[str, Any]
) -> None:
    batches = make_batches(stores, **options)
    dropped = {"score", *options.get("drop_column", ())}
    for epoch, shuffle in ((0, False), (2, True)):
        sampler = EpochSampler(batches, seed=5, shuffle=shuffle)
        sampler.set_epoch(epoch)
        seeds = {"shuffle": shuffle, "seed": sampler.epoch_seed or 0}
        packing = PackOptions(**{**options, **seeds, "drop_column": tuple(dropped)})
        pack(stores, tmp_path / str(epoch), packing, executor=HERE)
        written = ShardDataset(tmp_path / str(epoch), labels="next")
        assert written.columns == batches.columns
        found = read_epoch(batches, epoch, shuffle=shuffle)
        for batch, expected in zip(found, written, strict=True):
            assert_same(batch, expected)


def test_batches_have_a_column_of_their_stores(stores: list[Path]) -> None:
    options = {"layout": "padded", "batch_size": 64, "last_batch": "pad", "store_column": "store"}
    batches = make_batches(stores, **options)
    assert [*batches.columns] == ["lang", "id", "store"]
    assert batches.class_names("store") == ["web", "books"]
    collate, (keys,) = batches.make_collate(labels="store"), batches.plan_epoch(1).keys
    batch = collate(batches.dataset.__getitems__(keys))
    num_web, indices = len(open_store(stores[0])), batch.original_indices
    expected = [-100 if index < 0 else int(index >= num_web) for index in indices.tolist()]
    assert batch.columns["store"].tolist() == batch.labels.tolist() == expected
    assert {*expected} == {-100, 0, 1}


def test_each_epoch_takes_another_part_of_a_pass(stores: list[Path]) -> None:
    batches = make_batches(stores, passes="web=0.5,books=1.5", batch_size=4)
    one, other = (count_visits(read_epoch(batches, epoch)) for epoch in (0, 1))
    assert one != other
    assert count_visits(read_epoch(batches, 0)) == one
    kept, later = (count_visits(read_epoch(batches, epoch, shuffle=False)) for epoch in (0, 1))
    assert kept == later


def test_options_that_do_not_belong_to_the_stores_are_refused(stores: list[Path]) -> None:
    taken = "--store-column lang: the stores have a column of that name"
    no_name = "options has split without split_name, expected 'a' or 'b'"
    no_keys = "buckets is 'auto', which has other keys in each epoch"
    refused: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (ValueError, no_name, {"split": "a=0.5,b=0.5"}),
        (OptionError, "--passes: no store is named 'radio'", {"passes": "radio=2"}),
        (OptionError, "--drop-column 'no': no store has this column", {"drop_column": ["no"]}),
        (OptionError, taken, {"store_column": "lang"}),
        (ValueError, no_keys, {"buckets": "auto", "passes": "1=0.5"}),
    ]
    for kind, message, options in refused:
        with pytest.raises(kind, match=f"^{message}"):
            make_batches(stores, **options)


def test_split_without_a_document_is_an_error_when_an_epoch_begins(stores: list[Path]) -> None:
    batches = make_batches(stores, split="a=0.999,b=rest", split_name="b")
    expected = r"no batch is left, sequences dropped: \d+ in other splits\n\nhint: pass a larger "
    with pytest.raises(DataError, match=expected):
        batches.plan_epoch(0)


def test_fingerprint_is_of_the_batches_however_stores_are_named(stores: list[Path]) -> None:
    named = make_batches(stores, passes="web=2").fingerprint
    assert make_batches(stores, passes=" 1 = 2.0", store_column="store").fingerprint == named
    others = [make_batches(stores[::-1], passes="web=2"), make_batches(stores, passes="web=3")]
    assert named not in [other.fingerprint for other in others]


def test_pickled_batches_plan_the_same_epochs(stores: list[Path]) -> None:
    batches = make_batches(stores, passes="web=1.5", **SPLIT)
    again: StoreBatches = pickle.loads(pickle.dumps(batches))  # noqa: S301 - our own
    assert [*again.plan_epoch(3).keys] == [*batches.plan_epoch(3).keys]
