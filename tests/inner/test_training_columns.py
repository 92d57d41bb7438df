"""Columns from the text to the batches of a training loop, in every layout and order.

Each value follows from the text of its own document, or from its own token, so that a value beside
a wrong row or token is found, whatever the order.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from here import HERE
from torch.nn.utils.rnn import PackedSequence, unpack_sequence
from torch.utils.data import ConcatDataset, DataLoader

import seqpack_cli as seqpack
from seqpack_cli import EpochSampler, PackOptions, ShardDataset, StoreBatches, StoreDataset

KEEP = ("size", "score", "first:class", "source", "parity:tags")
PARITIES = ["even", "odd"]


def make_records(num_records: int = 60, seed: int = 0) -> list[dict[str, Any]]:
    """Return documents of words of one letter, with values that follow from the letters."""
    draw = random.Random(seed)
    records = []
    for _ in range(num_records):
        words = draw.choices("abcdefgh", k=draw.choice([1, 2, 3, 5, 8, 13, 20]))
        records.append(
            {
                "text": words,
                "size": len(words) - 10,
                "score": len(words) / 7,
                "first": words[0],
                "source": " ".join(words) + "é",
                "parity": [PARITIES[ord(word) % 2] for word in words],
            }
        )
    return records


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store of many parts whose documents are split into sequences."""
    folder = tmp_path_factory.mktemp("columns")
    lines = [json.dumps(record) + "\n" for record in make_records()]
    (folder / "corpus.jsonl").write_text("".join(lines))
    options = seqpack.TokenizeOptions(keep=KEEP, max_length=17, part_bytes=2000)
    seqpack.tokenize([str(folder / "corpus.jsonl")], folder / "store", options, executor=HERE)
    assert len(seqpack.open_store(folder / "store").manifest["parts"]) > 3
    return folder


def split_rows(batch: Any, values: torch.Tensor) -> list[list[int]]:
    """Cut values beside the ids into those of each row, without padding."""
    if isinstance(batch, seqpack.PackedTensors):
        packed: PackedSequence = batch.sequences._replace(data=values)
        return [row.tolist() for row in unpack_sequence(packed)]
    if isinstance(batch, seqpack.VarlenTensors):
        numbers = batch.sequence_ids
        assert (values[numbers < 0] == -100).all() or values is batch.ids
        return [values[numbers == row].tolist() for row in range(len(batch.lengths))]
    assert (values[~batch.mask] == -100).all() or values is batch.ids
    return [row[mask].tolist() for row, mask in zip(values, batch.mask, strict=True)]


def check_batch(batch: Any, labels: str, store: seqpack.TokenStore) -> list[tuple[int, str]]:
    """Check every value of a batch; return the sequence and text of each row."""
    records, columns = make_records(), batch.columns
    assert list(columns) == ["size", "score", "first", "source", "parity"]
    ids = batch.sequences.data if isinstance(batch, seqpack.PackedTensors) else batch.ids
    assert columns["parity"].shape == ids.shape
    dtypes = {name: columns[name].dtype for name in columns if name != "source"}
    score = dtypes.pop("score")
    assert (score, set(dtypes.values())) == (torch.float64, {torch.int64})
    rows = []
    parities, texts = split_rows(batch, columns["parity"]), split_rows(batch, ids)
    for row, index in enumerate(batch.original_indices.tolist()):
        found = tuple(
            columns[name][row] if name == "source" else columns[name][row].item()
            for name in ("size", "score", "first", "source")
        )
        if index < 0:
            assert found == (0, 0.0, -100, "")
            continue
        record = records[store.locate(index).record - 1]
        expected = (record["size"], record["score"], "abcdefgh".index(record["first"]))
        assert found == (*expected, record["source"])
        text = bytes(texts[row]).decode()
        assert text in record["source"]
        letters = [PARITIES.index(PARITIES[ord(one) % 2]) if one != " " else -100 for one in text]
        assert parities[row] == letters
        rows.append((index, text))
    wanted = columns[labels]
    if labels == "score":
        assert batch.labels.tolist() == wanted.float().tolist()
    elif labels == "size":
        assert batch.labels.tolist() == wanted.masked_fill(batch.lengths == 0, -100).tolist()
    else:
        assert torch.equal(batch.labels, wanted)
    return rows


def read_ranks(
    dataset: Any, batches: Any, num_workers: int, collate: Any = None
) -> Iterator[tuple[int, Any]]:
    """Yield every batch of one epoch of two ranks."""
    for rank in range(2):
        sampler = EpochSampler(batches, seed=3, rank=rank, world_size=2)
        given = {"sampler": sampler, "batch_size": None}
        if collate is not None:
            given = {"batch_sampler": sampler, "collate_fn": collate}
        context = "fork" if num_workers else None
        loader = DataLoader(
            dataset, num_workers=num_workers, multiprocessing_context=context, **given
        )
        yield from ((rank, batch) for batch in loader)


CASES: dict[str, tuple[str, int, dict[str, Any]]] = {
    "packed": ("first", 1, {"batch_size": 5}),
    "packed, windows": ("parity", 0, {"max_tokens": 60, "window": 16}),
    "packed, as they come": ("size", 0, {"batch_size": 4, "order": "none"}),
    "padded, filler": ("size", 1, {"layout": "padded", "batch_size": 7, "last_batch": "pad"}),
    "padded, left, buckets": (
        "parity",
        0,
        {"layout": "padded", "batch_size": 5, "buckets": (4, 10, 20), "padding_side": "left"},
    ),
    "varlen, split": ("parity", 1, {"layout": "varlen", "max_tokens": 11, "overflow": "split"}),
    "varlen, sequential": (
        "score",
        0,
        {"layout": "varlen", "max_tokens": 40, "fill": "sequential"},
    ),
    "varlen, rows": (
        "parity",
        1,
        {"layout": "varlen", "max_tokens": 40, "batch_size": 3, "last_batch": "pad"},
    ),
    "varlen, aligned": ("size", 0, {"layout": "varlen", "max_tokens": 40, "align_sequences": 8}),
}


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # on a single core
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize(
    ("labels", "num_workers", "options", "is_shuffled"),
    [(*case, number % 2 == 0) for number, case in enumerate(CASES.values())],
    ids=CASES,
)
def test_every_value_arrives_beside_its_row_or_token(
    folder: Path,
    tmp_path: Path,
    labels: str,
    num_workers: int,
    options: dict[str, Any],
    is_shuffled: bool,
) -> None:
    store = seqpack.open_store(folder / "store")
    packing = PackOptions(**options, shuffle=is_shuffled)
    seqpack.pack(folder / "store", tmp_path / "shards", packing, executor=HERE)
    shards = ShardDataset(tmp_path / "shards", labels=labels)
    sequences = StoreDataset(folder / "store")
    batches = StoreBatches(sequences, PackOptions(**options))
    collate = batches.make_collate(labels=labels)
    for read in (
        read_ranks(shards, shards, num_workers),
        read_ranks(sequences, batches, num_workers, collate),
    ):
        rows = [row for _, batch in read for row in check_batch(batch, labels, store)]
        assert {index for index, _ in rows} == set(range(len(store)))
        num_tokens = sum(len(text) for _, text in set(rows))
        assert num_tokens >= store.num_tokens or options.get("overflow") == "split"


def test_columns_that_are_not_asked_for_are_not_read(folder: Path, tmp_path: Path) -> None:
    seqpack.pack(folder / "store", tmp_path / "shards", executor=HERE)
    shards = ShardDataset(tmp_path / "shards", labels="first", columns=["size"])
    assert list(shards.columns) == list(shards[0].columns) == ["size", "first"]
    sequences = StoreDataset(folder / "store", columns=["size"])
    assert list(sequences.columns) == list(sequences[0].columns) == ["size"]
    assert shards.class_names("first") == list("abcdefgh")
    for dataset in (shards, sequences):
        with pytest.raises(ValueError, match=r"^no column 'source' \(found: 'size'"):
            dataset.class_names("source")
        with pytest.raises(TypeError, match=r"^column is \['size'\], expected str$"):
            dataset.class_names(["size"])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^column 'size' is of kind int, expected one with clas"):
        shards.class_names("size")
    with pytest.raises(ValueError, match=r"^no column 'Size' \(found: 'size', 'score', 'first', "):
        StoreDataset(folder / "store", columns=["Size"])
    said = r"^labels is 'source', a column of text, expected one of numbers, classes or tags, "
    with pytest.raises(ValueError, match=said):
        ShardDataset(tmp_path / "shards", labels="source")
    batches = StoreBatches(StoreDataset(folder / "store"), PackOptions())
    with pytest.raises(ValueError, match=said):
        batches.make_collate(labels="source")
    with pytest.raises(ValueError, match=said):
        seqpack.collate_varlen(batches.dataset.__getitems__([0]), labels="source")
    with pytest.raises(ValueError, match=r"^labels is 'Size', expected None, 'next', 'same' or a "):
        ShardDataset(tmp_path / "shards", labels="Size")


def test_a_sequence_has_values_and_a_tensor(folder: Path) -> None:
    dataset = StoreDataset(folder / "store")
    longest = max(range(len(dataset)), key=lambda index: len(dataset[index].ids))
    whole, piece = dataset[longest], dataset[seqpack.Piece(longest, 2, 5)]
    for name in ("size", "score", "first", "source"):
        assert piece.columns[name] == whole.columns[name]
    kinds = [type(whole.columns[name]) for name in ("size", "score", "first", "source")]
    assert kinds == [int, float, int, str]
    assert torch.equal(piece.columns["parity"], whole.columns["parity"][2:7])
    filler = dataset[seqpack.FILLER].columns
    assert filler.pop("parity").tolist() == []
    assert filler == {"size": 0, "score": 0.0, "first": -100, "source": ""}


def test_samples_of_a_concatenation_are_joined(folder: Path) -> None:
    """torch asks a ConcatDataset for one sequence after another."""
    dataset = StoreDataset(folder / "store")
    both = ConcatDataset([dataset, dataset])
    keys = [5, len(dataset) + 1, 0, 7]
    joined = seqpack.collate_packed([both[key] for key in keys], labels="first", sort=False)
    expected = seqpack.collate_packed(
        dataset.__getitems__([5, 1, 0, 7]), labels="first", sort=False
    )
    assert torch.equal(joined.labels, expected.labels)
    assert joined.columns["source"] == expected.columns["source"]
    assert torch.equal(joined.columns["parity"], expected.columns["parity"])
    assert joined.labels.tolist() == [dataset[key].columns["first"] for key in (5, 1, 0, 7)]


def test_combined_shards_have_the_same_columns(folder: Path, tmp_path: Path) -> None:
    corpus = "".join(json.dumps({**record, "first": "z"}) + "\n" for record in make_records(9))
    (tmp_path / "other.jsonl").write_text(corpus)
    options = seqpack.TokenizeOptions(keep=KEEP)
    seqpack.tokenize([str(tmp_path / "other.jsonl")], tmp_path / "other", options, executor=HERE)
    for store, name in ((folder / "store", "a"), (tmp_path / "other", "b")):
        seqpack.pack(store, tmp_path / name, executor=HERE)
    parts = [ShardDataset(tmp_path / name) for name in "ab"]
    with pytest.raises(ValueError) as caught:
        EpochSampler(ConcatDataset([*parts]))
    assert str(caught.value) == (
        f"column 'first': {tmp_path / 'b'} has class of 'z', {tmp_path / 'a'} has class of "
        "'a', 'b', 'c', 'd', 'e' and 3 more; pass columns= to leave it out"
    )
    parts = [ShardDataset(tmp_path / name, columns=["size"]) for name in "ab"]
    assert len(EpochSampler(ConcatDataset([*parts]))) == sum(map(len, parts))


def test_labels_are_the_column_where_all_rows_hold_a_sequence(folder: Path, tmp_path: Path) -> None:
    seqpack.pack(folder / "store", tmp_path / "shards", executor=HERE)
    batch = ShardDataset(tmp_path / "shards", labels="first")[0]
    assert batch.labels is batch.columns["first"]


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="Linux shows resident pages")
def test_pages_of_texts_are_released(tmp_path: Path) -> None:
    records, store, path = (tmp_path / name for name in ("records.jsonl", "store", "shards"))
    record = json.dumps({"text": "a", "title": "x" * 500_000})
    records.write_text(f"{record}\n" * 32)
    options = seqpack.TokenizeOptions(tokenizer="bytes", keep=["title:text"])
    seqpack.tokenize(records, store, options, executor=HERE)
    seqpack.pack(store, path, PackOptions(batch_size=4), executor=HERE)
    shards, resident = seqpack.open_shards(path), []
    for index in range(len(shards)):
        batch = shards.take(index, bytes_kept=1 << 20)
        assert len(list(batch.columns["title"])) == 4
        lines = Path("/proc/self/smaps").read_text().split(str(path))[1].splitlines()
        resident.append(next(int(line.split()[1]) for line in lines if line.startswith("Rss:")))
    assert max(resident) < 5_000  # KiB: a batch and its surroundings; three were 6,200
