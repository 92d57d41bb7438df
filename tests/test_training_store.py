"""Batches that are made while training are those that `pack` writes, and torch's own layouts."""

from __future__ import annotations

import pickle
import random
import re
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
import torch
from oracle.batches import read_batches
from oracle.epochs import epoch_seed
from oracle.stores import PER_TOKEN, PageStore
from page_sets import write_stores
from slow_tensors import expect, spell
from test_pack import HERE, draw_options, draw_stores
from torch.nn.utils import rnn
from torch.utils.data import BatchSampler, DataLoader

from seqpack_cli import (
    FILLER,
    EpochSampler,
    PackOptions,
    Piece,
    StoreBatches,
    StoreDataset,
    TokenSequence,
    collate_packed,
    collate_padded,
    collate_varlen,
    pack,
)
from seqpack_cli.errors import DataError, FolderError, OptionError

Given = dict[str, Any]
COLLATES: dict[str, Any] = {
    "packed": collate_packed,
    "padded": lambda *given, **options: collate_padded(*given, pad_id=0, **options),
    "varlen": collate_varlen,
}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[PageStore]]:
    return write_stores(tmp_path_factory.mktemp("page"))


# Sequences


def read_sequence(store: PageStore, index: int, start: int = 0, stop: int | None = None) -> Any:
    """Return a spelled item of the page's reading of a store, classes by name."""
    place = slice(start, stop)
    columns = {}
    for column in store.manifest["columns"]:
        value = store.columns[column["name"]][index]
        columns[column["name"]] = value[place] if column["kind"] in PER_TOKEN else value
    return {"ids": store.sequences[index][place], "index": index, "columns": columns}


def spell_sequence(dataset: StoreDataset, item: TokenSequence) -> Any:
    """Return an item with the names of classes."""
    columns: dict[str, Any] = {}
    for name, value in item.columns.items():
        names = dataset.columns[name].class_names

        def find(number: Any, names: Any = names) -> Any:
            return number if names is None else None if number == -100 else names[number]

        if isinstance(value, torch.Tensor):
            assert value.dtype == torch.int64
            columns[name] = [find(number) for number in value.tolist()]
        else:
            columns[name] = find(value)
    assert item.ids.dtype == torch.int64
    return {"ids": item.ids.tolist(), "index": item.original_index, "columns": columns}


@pytest.mark.parametrize("name", ["lines", "kept", "imported", "overlap"])
def test_items_are_the_sequences_of_a_store(
    stores: dict[str, list[PageStore]], name: str, tiny: int
) -> None:
    ((store,), drawn) = stores[name], random.Random(tiny)
    dataset, number = StoreDataset(store.folder), len(store.sequences)
    assert (len(dataset), dataset.path) == (number, store.folder)
    assert f"num_sequences={number}" in repr(dataset)
    again = pickle.loads(pickle.dumps(dataset))  # noqa: S301 - our own
    keys: list[Any] = []
    expected = []
    for index in drawn.sample(range(number), min(number, 12)):
        length = len(store.sequences[index])
        start = drawn.randrange(length)
        stop = drawn.randint(start + 1, length)
        keys += [index, index - number, Piece(index, start, stop - start, drawn.choice([-1, 3]))]
        expected += [read_sequence(store, index)] * 2 + [read_sequence(store, index, start, stop)]
    places = drawn.sample(range(len(keys)), len(keys))
    keys, expected = [keys[n] for n in places], [expected[n] for n in places]
    for one, found in zip(keys[:9], expected, strict=False):
        item = dataset[one]
        assert spell_sequence(dataset, item) == found
        if isinstance(one, Piece):
            assert (item.piece_start, item.row_index) == (one.start, one.row_index)
        else:
            assert (item.piece_start, item.row_index) == (0, -1)
    for asked in (keys, [key for key in keys if not isinstance(key, Piece)]):
        batch = again.__getitems__(asked)
        right = [found for key, found in zip(keys, expected, strict=True) if key in asked]
        assert [spell_sequence(dataset, item) for item in batch] == right
        assert spell_sequence(dataset, batch[-1]) == right[-1]
        assert [spell_sequence(dataset, item) for item in batch[1:3]] == right[1:3]
    filler = dataset[FILLER]
    assert (filler.ids.tolist(), filler.original_index) == ([], -1)
    assert spell_sequence(dataset, dataset[2:][0]) == read_sequence(store, 2)


def test_several_stores_are_numbered_in_turn(stores: dict[str, list[PageStore]]) -> None:
    two = stores["two"]
    dataset = StoreDataset([store.folder for store in two], columns=["label", "id"])
    assert dataset.paths == tuple(store.folder for store in two)
    names = {name for store in two for name in store.columns["label"]}
    assert dataset.class_names("label") == sorted(names)
    found = [spell_sequence(dataset, dataset[index]) for index in range(len(dataset))]
    first = len(two[0].sequences)
    for index, item in enumerate(found):
        store, place = two[index >= first], index - first * (index >= first)
        expected = read_sequence(store, place)
        columns = {name: expected["columns"][name] for name in ("label", "id")}
        assert item == {**expected, "index": index, "columns": columns}
    with pytest.raises(AttributeError, match="no one path"):
        _ = dataset.path
    answers = StoreDataset([store.folder for store in stores["targets"]], columns=[])
    assert [*answers.columns] == ["targets"]


WRONG_KEYS: list[tuple[Any, type[Exception], str]] = [
    (99, IndexError, "sequence 99 of"),
    (-99, IndexError, "sequence -99 of"),
    (Piece(-1, 0, 1), IndexError, "sequence -1 of"),
    (Piece(0, -1, 1), IndexError, "out of range"),
    (Piece(0, 0, 0), IndexError, "out of range"),
    (Piece(0, 0, 99), IndexError, "out of range"),
    (Piece(0, 1, 9**9), IndexError, "out of range"),
    (Piece(0, 0, 1, -2), IndexError, "row_index is -2"),
    (Piece(0, 0, 1, 2**63), IndexError, "row_index"),
    ((0, 1), TypeError, "expected an integer or a Piece"),
    ((0, 1, 1, 1, 1), TypeError, "expected an integer or a Piece"),
    ("0", TypeError, "integer"),
    (1.0, TypeError, "integer"),
]


@pytest.mark.parametrize(("key", "kind", "words"), WRONG_KEYS)
def test_wrong_keys_of_a_store_are_refused(
    stores: dict[str, list[PageStore]], key: Any, kind: type[Exception], words: str
) -> None:
    dataset = StoreDataset(stores["lines"][0].folder)
    with pytest.raises(kind, match=words):
        dataset[key]
    with pytest.raises(kind, match=words):
        dataset.__getitems__([0, FILLER, key])


def test_wrong_stores_are_refused(stores: dict[str, list[PageStore]], tmp_path: Path) -> None:
    (kept,), (lines,) = stores["kept"], stores["lines"]
    refused: list[tuple[Any, Given, type[Exception], str]] = [
        (tmp_path / "nowhere", {}, FolderError, "no such folder"),
        (kept.folder, {"columns": ["none"]}, ValueError, "no column 'none'"),
        (kept.folder, {"columns": "id"}, TypeError, "columns"),
        ([kept.folder, lines.folder], {}, OptionError, "column"),
        ([kept.folder, kept.folder], {}, OptionError, "kept"),
        ([stores["ends"][0].folder, lines.folder], {}, OptionError, "tokenizer"),
    ]
    for path, given, kind, words in refused:
        with pytest.raises(kind, match=words):
            StoreDataset(path, **given)
    with pytest.raises(ValueError, match="is of kind int, expected one with classes"):
        StoreDataset(kept.folder).class_names("id")


# Collate functions


def make_rows(drawn: random.Random) -> list[TokenSequence]:
    """Draw sequences with columns of every kind, and a column of targets."""
    rows = []
    for number in range(drawn.randint(1, 9)):
        ids = torch.tensor([drawn.randrange(1, 99) for _ in range(drawn.choice([1, 1, 2, 5, 8]))])
        columns: Given = {"number": number, "half": number / 2, "name": str(number)}
        columns |= {"tags": ids * 2, "targets": torch.tensor([drawn.randint(0, 1) for _ in ids])}
        rows.append(TokenSequence(ids, 100 + number, columns, drawn.choice([0, 3])))
    return rows


def label_rows(rows: list[TokenSequence], labels: str) -> list[torch.Tensor]:
    """Return the labels of each token."""
    found = []
    for row in rows:
        kept = torch.where(row.columns["targets"] == 1, row.ids, -100)
        if labels == "next":
            found.append(torch.cat([kept[1:], torch.tensor([-100])]))
        else:
            found.append(torch.cat([torch.tensor([-100]), kept[1:]]) if labels == "same" else kept)
    return found


def check_rows(batch: Any, rows: list[TokenSequence]) -> None:
    """Check what has a value per row."""
    assert batch.lengths.tolist() == [len(row.ids) for row in rows]
    assert batch.original_indices.tolist() == [row.original_index for row in rows]
    for name in ("number", "half"):
        assert batch.columns[name].tolist() == [row.columns[name] for row in rows]
    assert batch.columns["half"].dtype == torch.float64
    assert batch.columns["name"] == [row.columns["name"] for row in rows]


@pytest.mark.parametrize("seed", range(40))
def test_collated_rows_are_the_layouts_of_torch(seed: int) -> None:
    drawn = random.Random(seed)
    samples, sort, labels = make_rows(drawn), seed % 2 == 0, drawn.choice(["next", "same"])
    rows = sorted(samples, key=lambda row: -len(row.ids)) if sort else samples
    beside = {
        "ids": [row.ids for row in rows],
        "labels": label_rows(rows, labels),
        **{name: [row.columns[name] for row in rows] for name in ("tags", "targets")},
    }
    packed = collate_packed(samples, labels=labels, sort=sort)
    theirs = {name: rnn.pack_sequence(each, enforce_sorted=sort) for name, each in beside.items()}
    assert spell(packed.sequences) == spell(theirs["ids"])
    assert torch.equal(packed.labels, theirs["labels"].data)
    check_rows(packed, rows)
    multiple, side = drawn.choice([1, 4, 7]), drawn.choice(["left", "right"])
    keys, pad_id = drawn.choice([None, (28, 8 * multiple)]), drawn.choice([0, 5])
    longest = max(len(row.ids) for row in rows)
    width = -(-longest // multiple) * multiple
    if keys:
        width = min(key for key in keys if key >= longest)
    padded = collate_padded(
        samples,
        **{"pad_id": pad_id, "padding_side": side, "pad_to_multiple": multiple},
        **{"bucket_keys": keys, "labels": labels, "sort": sort},
    )

    def pad(name: str, fill: int) -> list[list[int]]:
        ends = [[fill] * (width - len(row)) for row in beside[name]]
        both = [(row.tolist(), end) for row, end in zip(beside[name], ends, strict=True)]
        return [end + row if side == "left" else row + end for row, end in both]

    fills = {"ids": pad_id, "labels": -100, "tags": -100, "targets": 0}
    found = {"ids": padded.ids, "labels": padded.labels, **padded.columns}
    for name, fill in fills.items():
        assert found[name].tolist() == pad(name, fill)
        assert found[name].dtype == torch.int64
    cells = torch.arange(width)
    expected = cells < padded.lengths[:, None]
    assert torch.equal(padded.mask, expected.flip(1) if side == "left" else expected)
    check_rows(padded, rows)
    assert torch.equal(packed.columns["tags"], theirs["tags"].data)
    assert torch.equal(packed.columns["targets"], theirs["targets"].data)


@pytest.mark.parametrize("seed", range(40))
def test_varlen_rows_are_filled_in_turn(seed: int) -> None:
    drawn = random.Random(seed)
    samples, sort, labels = make_rows(drawn), seed % 2 == 0, drawn.choice(["next", "same"])
    rows = sorted(samples, key=lambda row: -len(row.ids)) if sort else samples
    multiple, length = drawn.choice([1, 2, 4]), drawn.choice([None, 8, 12])
    fills = {"ids": 7, "labels": -100, "tags": -100, "targets": 0, "position_ids": 0}
    values = {
        "ids": [row.ids for row in rows],
        "labels": label_rows(rows, labels),
        **{name: [row.columns[name] for row in rows] for name in ("tags", "targets")},
        "position_ids": [torch.arange(len(row.ids)) for row in rows],
    }
    lines: dict[str, list[list[int]]] = {}
    starts: list[int] = []
    for name, fill in fills.items():
        found: list[list[int]] = []
        starts = []
        for row in values[name]:
            cells = [*row.tolist(), *[fill] * (-len(row) % multiple)]
            if not found or (length and len(found[-1]) + len(cells) > length):
                found.append([])
            starts.append(len(found[-1]) + (length or 0) * (len(found) - 1))
            found[-1] += cells
        lines[name] = [line + [fill] * ((length or len(line)) - len(line)) for line in found]
    more = drawn.choice([None, 0, 2]) if length else None
    num_rows = None if more is None else len(lines["ids"]) + more
    given: Given = {"row_length": length, "num_rows": num_rows, "align_sequences": multiple}
    batch = collate_varlen(samples, **given, pad_id=7, labels=labels, sort=sort)
    got = {"position_ids": batch.position_ids, "ids": batch.ids, "labels": batch.labels}
    for name, tensor in {**got, "tags": batch.columns["tags"]}.items():
        expected = lines[name] + [[fills[name]] * (length or 0)] * (more or 0)
        assert tensor.tolist() == (expected if length else expected[0]), name
    assert (
        batch.columns["targets"].flatten().tolist()[: len(lines["targets"][0])]
        == lines["targets"][0]
    )
    sizes = [len(row.ids) for row in rows]
    assert batch.cu_seqlens.tolist() == [0, *accumulate(sizes)]
    padded = [*starts, batch.ids.numel()]
    has_padding = batch.ids.numel() > sum(sizes)
    assert spell(batch.cu_seqlens_padded) == ((torch.int32, padded) if has_padding else None)
    assert (batch.max_seqlen, batch.labels_name) == (max(sizes), labels)
    assert batch.piece_starts.tolist() == [row.piece_start for row in rows]
    check_rows(batch, rows)


def make_samples(*rows: list[int], **columns: Any) -> list[TokenSequence]:
    return [TokenSequence(torch.tensor(row, dtype=torch.int64), 0, columns) for row in rows]


def test_empty_rows_are_filler_behind_the_others() -> None:
    batch = collate_padded(make_samples([], [1], [2, 3], number=4), pad_id=9, labels="number")
    assert batch.ids.tolist() == [[2, 3], [1, 9], [9, 9]]
    assert batch.labels.tolist() == [4, 4, -100]
    chosen = [TokenSequence(torch.tensor([n]), n, row_index=n) for n in (0, 2)]
    rows = collate_varlen(chosen, row_length=2, num_rows=3, pad_id=9)
    assert rows.ids.tolist() == [[0, 9], [9, 9], [2, 9]]
    whole = collate_varlen(make_samples([1], [2]))
    assert whole.cu_seqlens_padded is None
    assert (
        spell(collate_packed(StoreLike())).keys() == spell(collate_packed(make_samples([1]))).keys()
    )


class StoreLike(list[TokenSequence]):
    """A sequence of another class."""

    def __init__(self) -> None:
        super().__init__(make_samples([1]))


TWO = make_samples([1, 2], [3, 4, 5, 6, 7])
WRONG_ROWS: list[tuple[str, Any, Given, type[Exception], str]] = [
    *[(name, [], {}, ValueError, "at least one sequence") for name in COLLATES],
    *[(name, iter(TWO), {}, TypeError, "expected a sequence of") for name in COLLATES],
    *[(name, [TWO[0].ids, 3], {}, TypeError, "sequences are Tensor and int") for name in COLLATES],
    *[(name, TWO, {"sort": "no"}, TypeError, "sort is 'no'") for name in COLLATES],
    *[(name, TWO, {"labels": "none"}, ValueError, "labels is 'none'") for name in COLLATES],
    *[(name, TWO, {"labels": 3}, TypeError, "labels is 3") for name in COLLATES],
    ("packed", [TokenSequence(torch.tensor([1.5]), 0)], {}, TypeError, "float32"),
    ("packed", make_samples([1], [], [2, 3]), {}, ValueError, "empty sequence, found one in row 2"),
    ("varlen", make_samples([1], []), {}, ValueError, "empty sequence, found one in row 1"),
    ("padded", make_samples([], []), {}, ValueError, "all sequences are empty"),
    ("padded", TWO, {"padding_side": "Left"}, ValueError, "'right' or 'left'"),
    ("padded", TWO, {"pad_to_multiple": 0}, ValueError, "expected at least 1"),
    ("padded", TWO, {"pad_to_multiple": 1.5}, TypeError, "pad_to_multiple"),
    ("padded", TWO, {"bucket_keys": (2, 4)}, ValueError, "a sequence of 5 ids, the buckets"),
    ("padded", TWO, {"bucket_keys": (0, 8)}, ValueError, "a bucket key"),
    ("padded", TWO, {"bucket_keys": (9,), "pad_to_multiple": 4}, ValueError, "not a multiple"),
    ("padded", TWO, {"bucket_keys": 8}, TypeError, "bucket_keys"),
    ("varlen", TWO, {"row_length": 4}, ValueError, "sequence 1 has 5 ids, expected at most"),
    ("varlen", TWO, {"row_length": 6, "num_rows": 1}, ValueError, "take 2 rows of 6 cells"),
    ("varlen", TWO, {"num_rows": 2}, ValueError, "expected None without row_length"),
    ("varlen", TWO, {"row_length": 6, "align_sequences": 4}, ValueError, "expected a multiple"),
    ("varlen", TWO, {"row_length": 0}, ValueError, "row_length is 0"),
    ("varlen", TWO, {"align_sequences": 0}, ValueError, "align_sequences is 0"),
    ("varlen", TWO, {"pad_id": -1}, ValueError, "pad_id is -1"),
    ("varlen", TWO, {"row_length": "6"}, TypeError, "row_length"),
]
TENSOR = torch.ones(3, dtype=torch.int64)
WRONG_ROWS += [
    (
        "varlen",
        [TokenSequence(torch.tensor([1, 2]), 0, found) for found in columns],
        {},
        kind,
        words,
    )
    for columns, kind, words in (
        (
            [{"a": 1}, {"b": 1}],
            ValueError,
            "sequence 1 has columns 'b', sequence 0 has columns 'a'",
        ),
        ([{"a": 1}, {}], ValueError, "sequence 1 has no columns"),
        ([{"a": 1}, {"a": "1"}], TypeError, "column 'a' holds int, str"),
        ([{"a": None}] * 2, TypeError, "column 'a' holds NoneType"),
        ([{"a": TENSOR}] * 2, ValueError, "sequence 0: column 'a' has 3 values"),
        ([{"a": TENSOR[:2].float()}] * 2, TypeError, "column 'a' has tensors of float32"),
    )
]


@pytest.mark.parametrize(("name", "rows", "given", "kind", "words"), WRONG_ROWS)
def test_rows_that_make_no_batch_are_refused(
    name: str, rows: Any, given: Given, kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=re.escape(words)):
        COLLATES[name](rows, **given)
    for wrong in ({"pad_id": -1}, {"pad_id": "0"}):
        with pytest.raises((TypeError, ValueError), match="pad_id"):
            collate_padded(TWO, **wrong)  # type: ignore[arg-type]


# Batches of an epoch


def read_epoch(
    dataset: StoreDataset, options: PackOptions, seed: int, epoch: int, given: Given
) -> list[Any]:
    """Read all batches of an epoch."""
    batches = StoreBatches(dataset, options)
    if epoch % 2:
        batches = pickle.loads(pickle.dumps(batches))  # noqa: S301 - our own
    sampler = EpochSampler(batches, seed=seed, shuffle=given["shuffle"])
    sampler.set_epoch(epoch)
    assert sampler.epoch_seed == (epoch_seed(seed, epoch) if given["shuffle"] else None)
    collate = batches.make_collate(labels=given["labels"])
    fetches: Any = BatchSampler(sampler, 3, drop_last=False) if given["groups"] else sampler
    loader = DataLoader(dataset, batch_sampler=fetches, collate_fn=collate)
    number = len(sampler)
    found = list(sampler.track(loader))
    assert len(found) == number
    return found


def check_batches(drawn: random.Random, folder: Path, most: int = 50) -> None:
    """Compare an epoch of drawn stores and options with the shards of `pack`."""
    stores = draw_stores(drawn, folder, most=most)
    layout, options = draw_options(drawn, [stores])
    while layout == "streams":
        layout, options = draw_options(drawn, [stores])
    for name in ("shuffle", "seed", "shard_bytes"):
        options.pop(name, None)
    if options.get("split") and not options["split_name"]:
        options["split_name"] = options["split"].split(",")[0].split("=")[0]
    epoch, seed = drawn.randrange(4), drawn.randrange(99)
    names = [*stores[0].columns]
    labels = drawn.choice([None, "next", "next", "same", *(set(names) & {"id", "label", "tags"})])
    labels = None if labels in options["drop_column"] else labels
    given: Given = {"shuffle": drawn.random() < 0.7, "labels": labels, "groups": epoch > 1}
    paths = [store.folder for store in stores]
    packing = {"shuffle": given["shuffle"]}
    packing |= {"seed": epoch_seed(seed, epoch)} if given["shuffle"] else {}
    try:
        pack(paths, folder / "out", PackOptions(layout=layout, **options, **packing), executor=HERE)
    except (OptionError, DataError) as error:
        with pytest.raises((OptionError, DataError, ValueError)):
            read_epoch(
                StoreDataset(paths), PackOptions(layout=layout, **options), seed, epoch, given
            )
        assert error.message
        return
    try:
        found = read_epoch(
            StoreDataset(paths), PackOptions(layout=layout, **options), seed, epoch, given
        )
    except ValueError as refused:
        assert "buckets is 'auto', which has other keys" in str(refused)
        assert options.get("passes") or options.get("share")
        return
    pages = [page for page in read_batches(folder / "out") if page]
    assert len(found) == len(pages)
    for item, page in zip(found, pages, strict=True):
        assert spell(item) == expect(page, labels)


@pytest.mark.parametrize("seed", range(45))
def test_epochs_are_the_batches_of_pack(tmp_path: Path, seed: int) -> None:
    check_batches(random.Random(seed), tmp_path)


@pytest.mark.parametrize("seed", range(100, 103))
def test_epochs_are_the_batches_of_pack_with_tiny_limits(
    tmp_path: Path, tiny: int, seed: int
) -> None:
    check_batches(random.Random(seed), tmp_path, most=25)


def test_batches_have_the_columns_of_their_options(stores: dict[str, list[PageStore]]) -> None:
    dataset = StoreDataset([store.folder for store in stores["two"]], columns=["label", "id"])
    options = PackOptions(store_column="from", drop_column=["id"], batch_size=4)
    batches = StoreBatches(dataset, options)
    assert [*batches.columns] == ["label", "from"]
    assert batches.class_names("from") == [path.name for path in dataset.paths]
    assert batches.class_names("label") == dataset.class_names("label")
    sampler = EpochSampler(batches)
    collate = batches.make_collate(labels="from")
    (item, *_) = DataLoader(dataset, batch_sampler=sampler, collate_fn=collate)
    first = len(stores["two"][0].sequences)
    assert item.labels.tolist() == [int(n >= first) for n in item.original_indices.tolist()]
    assert [*item.columns] == ["label", "from"]
    assert "batch_size=4" in repr(batches)


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # on a single core
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_workers_make_the_same_batches(stores: dict[str, list[PageStore]]) -> None:
    dataset = StoreDataset(stores["kept"][0].folder)
    batches = StoreBatches(dataset, PackOptions(layout="padded", batch_size=5, last_batch="pad"))
    found = []
    for num_workers in (0, 2):
        loader = DataLoader(
            dataset,
            batch_sampler=EpochSampler(batches, seed=3),
            collate_fn=batches.make_collate(labels="next"),
            num_workers=num_workers,
        )
        found.append([spell(item) for item in loader])
    assert found[0] == found[1]


SAME: list[tuple[Given, Given]] = [
    ({}, {"batch_size": 64}),
    ({}, {"shard_bytes": 1 << 20}),
    ({}, {"drop_column": ["id"], "store_column": "from"}),
    ({"buckets": "auto"}, {"buckets": "auto", "num_buckets": 8}),
    ({"buckets": (8, 16)}, {"buckets": (16, 8, 8)}),
    ({"passes": "1=2"}, {"passes": " kept = 2.0"}),
]
VARLEN: Given = {"layout": "varlen", "max_tokens": 64}
DIFFERENT: list[Given] = [
    *[{}, {"batch_size": 4}, {"max_tokens": 64}, {"order": "none"}, {"window": 4}],
    *[{"drop_shorter": 2}, {"drop_longer": 9}, {"last_batch": "drop"}, {"where": ["id > 0"]}],
    *[{"layout": "padded"}, {"layout": "padded", "padding_side": "left"}, {"pad_id": 3}],
    *[{"layout": "padded", "pad_to_multiple": 4}, {"buckets": "auto"}, {"passes": "1=2"}],
    *[VARLEN, {**VARLEN, "fill": "sequential"}, {**VARLEN, "overflow": "drop"}],
    *[{**VARLEN, "align_sequences": 4}, {**VARLEN, "batch_size": 2}],
]


def test_states_are_of_batches_and_not_of_how_they_are_spelled(
    stores: dict[str, list[PageStore]],
) -> None:
    dataset = StoreDataset(stores["kept"][0].folder)

    def find(given: Given) -> Any:
        return EpochSampler(StoreBatches(dataset, PackOptions(**given))).state_dict()["batches"]

    for one, other in SAME:
        assert find(one) == find(other)
    assert len({find(given) for given in DIFFERENT}) == len(DIFFERENT)
    other = StoreBatches(StoreDataset(stores["lines"][0].folder), PackOptions())
    with pytest.raises(ValueError, match="of a store with other options"):
        EpochSampler(other).load_state_dict(
            EpochSampler(StoreBatches(dataset, PackOptions())).state_dict()
        )
    targets = StoreDataset([store.folder for store in stores["targets"]])
    one, without = (
        StoreBatches(targets, PackOptions(drop_column=names)).fingerprint
        for names in ([], ["targets"])
    )
    assert one != without


WRONG_OPTIONS: list[tuple[Given, type[Exception], str]] = [
    ({"shuffle": True}, ValueError, "which EpochSampler sets"),
    ({"shuffle": False}, ValueError, "which EpochSampler sets"),
    ({"seed": 3}, ValueError, "which EpochSampler sets"),
    ({"layout": "streams", "max_tokens": 8}, OptionError, "which needs shards"),
    ({"layout": "varlen"}, OptionError, "--max-tokens"),
    ({"window": 5, "order": "none"}, OptionError, "--window conflicts"),
    ({"split": "a=0.5,b=0.5"}, ValueError, "expected 'a' or 'b'"),
    ({"passes": "radio=2"}, OptionError, "no store is named 'radio'"),
    ({"drop_column": ["no"]}, OptionError, "no store has this column"),
    ({"store_column": "label"}, OptionError, "have a column of that name"),
    ({"buckets": "auto", "passes": "1=0.5"}, ValueError, "buckets is 'auto'"),
    ({"max_tokens": 9, "count": "sum"}, OptionError, "--decoder"),
]


@pytest.mark.parametrize(("given", "kind", "words"), WRONG_OPTIONS)
def test_wrong_options_are_refused_at_once(
    stores: dict[str, list[PageStore]], given: Given, kind: type[Exception], words: str
) -> None:
    dataset = StoreDataset(stores["kept"][0].folder)
    with pytest.raises(kind, match=words):
        StoreBatches(dataset, PackOptions(**given))


def test_wrong_arguments_of_batches_are_refused(stores: dict[str, list[PageStore]]) -> None:
    dataset = StoreDataset(stores["kept"][0].folder)
    with pytest.raises(TypeError, match="dataset is a Subset, expected a StoreDataset"):
        StoreBatches(dataset[:3], PackOptions())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="options"):
        StoreBatches(dataset, {})  # type: ignore[arg-type]
    batches = StoreBatches(dataset, PackOptions())
    for labels, words in (("none", "labels is 'none'"), ("title", "a column of text")):
        with pytest.raises(ValueError, match=words):
            batches.make_collate(labels=labels)
    wrong: list[tuple[Given, str]] = [
        ({"max_tokens": 5, "overflow": "error"}, "--max-tokens allows 5"),
        ({"drop_shorter": 99}, "no batch is left"),
    ]
    for given, words in wrong:
        for shuffle in (True, False):
            sampler = EpochSampler(StoreBatches(dataset, PackOptions(**given)), shuffle=shuffle)
            for begin in (len, list):
                with pytest.raises((OptionError, DataError), match=words):
                    begin(sampler)
    padded = StoreBatches(dataset, PackOptions(layout="padded", pad_id=10**6))
    with pytest.raises(OptionError, match="--pad-id"):
        padded.make_collate()
