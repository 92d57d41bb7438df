"""Labels of stores with targets: in every layout those of each sequence alone, by plain Python.

The stores are made by `tokenize` with prompts and completions, and with overlap; the tokenizer is
`bytes`, so ids, targets and pieces follow from the texts alone.
"""

from __future__ import annotations

import copy
import functools
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from here import HERE
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tensor_reference import rows_of
from torch.nn.utils.rnn import unpack_sequence
from torch.utils.data import ConcatDataset, DataLoader

from seqpack_cli import (
    EpochSampler,
    PackedTensors,
    PackOptions,
    Piece,
    ShardDataset,
    StoreBatches,
    StoreDataset,
    TokenizeOptions,
    TokenSequence,
    VarlenTensors,
    collate_packed,
    collate_padded,
    collate_varlen,
    open_store,
    pack,
    tokenize,
)
from seqpack_cli.tokens.options import TargetOptions
from seqpack_cli.tokens.store import AnyPaths

EOS = 258  # of the tokenizer `bytes`
PROMPTS = TargetOptions(prompt_field="prompt", completion_field="text")

LAYOUTS: dict[str, dict[str, Any]] = {
    "packed": {"batch_size": 4},
    "right": {"layout": "padded", "batch_size": 3, "last_batch": "pad"},
    "left": {"layout": "padded", "batch_size": 3, "last_batch": "pad", "padding_side": "left"},
    "varlen": {"layout": "varlen", "max_tokens": 20},
    "pieces": {"layout": "varlen", "max_tokens": 7, "overflow": "split", "fill": "sequential"},
}
COLLATES: dict[str, Callable[..., Any]] = {
    "packed": collate_packed,
    "packed, unsorted": functools.partial(collate_packed, sort=False),
    "right": functools.partial(collate_padded, pad_id=0),
    "left": functools.partial(collate_padded, pad_id=0, padding_side="left", sort=False),
    "varlen": collate_varlen,
}


@dataclass(frozen=True)
class Cut:
    """A sequence of a store: a piece of a document."""

    document: int
    start: int  # in the document
    ids: list[int]
    targets: list[int]


def slow_sequences(
    records: Sequence[dict[str, str]], *, has_prompts: bool, max_length: int, overlap: int | None
) -> list[Cut]:
    """Return the sequences that `tokenize --eos '<eos>'` makes of records."""
    sequences = []
    for number, record in enumerate(records):
        prompt = record["prompt"] if has_prompts else ""
        if not prompt + record["text"]:
            continue  # an empty document has no sequence
        ids = [*prompt.encode(), *record["text"].encode(), EOS]
        targets = [0] * len(prompt) + [1] * (len(ids) - len(prompt))
        start, context = 0, 0
        while True:
            part = slice(start, start + max_length)
            found = [0] * context + targets[part][context:]
            sequences.append(Cut(number, start, ids[part], found))
            if start + max_length >= len(ids):
                break
            context = overlap or 0
            start += max_length - context
    return sequences


def slow_labels(labels: str, ids: Sequence[int], targets: Sequence[int]) -> list[int]:
    """Return the labels of one row."""
    found = []
    for place in range(len(ids)):
        if labels == "next":
            place += 1
        is_label = 0 < place < len(ids) and targets[place] == 1
        found.append(ids[place] if is_label else -100)
    return found


def make_store(
    folder: Path, records: Sequence[dict[str, str]], *, has_prompts: bool = True, **options: Any
) -> Path:
    """Tokenize records with an end token, and the field `kind` as a column."""
    folder.mkdir(exist_ok=True)
    lines = [json.dumps({**record, "kind": "a"}) + "\n" for record in records]
    (folder / "corpus.jsonl").write_text("".join(lines))
    chosen = {"targets": PROMPTS} if has_prompts else {}
    options = {"eos": "<eos>", "keep": ("kind:class",), **chosen, **options}
    tokenize(
        [str(folder / "corpus.jsonl")], folder / "store", TokenizeOptions(**options), executor=HERE
    )
    return folder / "store"


def split_rows(batch: Any, values: torch.Tensor) -> list[list[int]]:
    """Cut values beside the ids into those of each row; padding must be -100."""
    if isinstance(batch, PackedTensors):
        rows = unpack_sequence(batch.sequences._replace(data=values))
    elif isinstance(batch, VarlenTensors):
        rows = torch.split(values, batch.cu_seqlens.diff().tolist())
    else:
        assert (values[~batch.mask] == -100).all()
        rows = [row[mask] for row, mask in zip(values, batch.mask, strict=True)]
    return [row.tolist() for row in rows]


def iter_rows(batch: Any, sequences: Sequence[Cut]) -> Iterator[tuple[Cut, int, list[int]]]:
    """Yield the sequence of each row, where the row begins in it, and its labels."""
    starts = batch.piece_starts.tolist() if isinstance(batch, VarlenTensors) else None
    rows = split_rows(batch, batch.labels)
    ids = rows_of(batch)
    for row, index in enumerate(batch.original_indices.tolist()):
        if index < 0:
            assert rows[row] == []
            continue
        start = starts[row] if starts else 0
        assert [*ids[row]] == sequences[index].ids[start : start + len(ids[row])]
        yield sequences[index], start, rows[row]


def check_batch(batch: Any, labels: str, sequences: Sequence[Cut]) -> int:
    """Check the labels of a batch; return the number of rows that hold a sequence."""
    assert batch.labels.dtype == torch.int64
    num_rows = 0
    for sequence, start, found in iter_rows(batch, sequences):
        part = slice(start, start + len(found))
        assert found == slow_labels(labels, sequence.ids[part], sequence.targets[part])
        num_rows += 1
    return num_rows


def iter_epoch(store: AnyPaths, options: PackOptions, labels: str, **others: Any) -> Iterator[Any]:
    """Yield the batches of one epoch that are made while training."""
    dataset = StoreDataset(store, **others)
    batches = StoreBatches(dataset, options)
    sampler = EpochSampler(batches, seed=1)
    collate = batches.make_collate(labels=labels)
    yield from DataLoader(dataset, batch_sampler=sampler, collate_fn=collate)


WORDS = st.text("abc", max_size=12)
RECORDS = st.lists(st.fixed_dictionaries({"prompt": WORDS, "text": WORDS}), max_size=9)


@settings(max_examples=8)
@given(
    records=RECORDS,
    has_prompts=st.booleans(),
    max_length=st.integers(2, 14),
    overlap=st.integers(1, 13) | st.none(),
    columns=st.sampled_from([None, ["kind"], ["targets"], []]),
)
@example(
    records=[{"prompt": "abcdefgh", "text": "ab"}, {"prompt": "a", "text": "b" * 30}] * 3,
    has_prompts=True,
    max_length=9,
    overlap=3,
    columns=["kind"],
)
@example(
    records=[{"prompt": "", "text": "ab" * n} for n in range(6)],
    has_prompts=False,
    max_length=9,
    overlap=None,
    columns=None,
)
def test_labels_are_the_targets_of_each_sequence_alone(
    records: list[dict[str, str]],
    has_prompts: bool,
    max_length: int,
    overlap: int | None,
    columns: list[str] | None,
) -> None:
    records = [*records, {"prompt": "a", "text": "bc"}]
    overlap = min(overlap, max_length - 1) if overlap else None
    cut: dict[str, Any] = {"max_length": max_length, "overlap": overlap}
    sequences = slow_sequences(records, has_prompts=has_prompts, **cut)
    has_targets = has_prompts or overlap is not None
    if columns == ["targets"] and not has_targets:
        columns = None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = make_store(folder, records, has_prompts=has_prompts, **cut)
        assert [ids.tolist() for ids in open_store(store)] == [each.ids for each in sequences]
        shown = {"kind", "overlap", "targets"} if columns is None else {*columns}
        shown &= {"kind", *(["targets"] * has_targets), *(["overlap"] * bool(overlap))}
        for (layout, options), labels in product(LAYOUTS.items(), ("next", "same")):
            if labels == "next":
                pack(store, folder / layout, PackOptions(**options), executor=HERE)
            shards = ShardDataset(folder / layout, labels=labels, columns=columns)
            num_rows = sum(check_batch(batch, labels, sequences) for batch in shards)
            assert num_rows >= sum(1 in each.targets for each in sequences)
            for batch in iter_epoch(store, PackOptions(**options), labels, columns=columns):
                num_rows -= check_batch(batch, labels, sequences)
            assert num_rows == 0
            assert {*shards.columns} == {*shards[0].columns} == shown
        dataset = StoreDataset(store, columns=columns)
        one_by_one = [dataset[index] for index in range(len(dataset))]
        together = dataset.__getitems__(range(len(dataset)))
        for collate, labels in product(COLLATES.values(), ("next", "same")):
            for samples in (together, one_by_one):
                batch = collate(samples, labels=labels)
                assert check_batch(batch, labels, sequences) == len(sequences)


@pytest.mark.parametrize("overlap", [1, None])
@pytest.mark.parametrize("layout", ["packed", "right", "left", "varlen"])
def test_overlap_trains_the_first_token_of_later_pieces(
    tmp_path: Path, layout: str, overlap: int | None
) -> None:
    records = [{"text": "abcdefghij" * n, "prompt": ""} for n in range(1, 6)]
    cut: dict[str, Any] = {"max_length": 8, "overlap": overlap}
    sequences = slow_sequences(records, has_prompts=False, **cut)
    store = make_store(tmp_path, records, has_prompts=False, **cut)
    pack(store, tmp_path / "shards", PackOptions(**LAYOUTS[layout]), executor=HERE)
    counts: Counter[tuple[int, int]] = Counter()  # of each token of a document
    for batch in ShardDataset(tmp_path / "shards", labels="next"):
        for sequence, start, labels in iter_rows(batch, sequences):
            assert start == 0
            for place, label in enumerate(labels):
                if label != -100:
                    counts[sequence.document, sequence.start + place + 1] += 1
    tokens = {
        (number, place)
        for number, record in enumerate(records)
        for place in range(1, len(record["text"]) + 1)  # the end token is the last one
    }
    if overlap is None:
        tokens -= {(each.document, each.start) for each in sequences}
    assert counts == Counter(tokens)


RECORDS_OF_THREE = [{"prompt": "a" * n, "text": "b" * (7 - n)} for n in (3, 5, 2)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with targets, overlap and a class."""
    return make_store(tmp_path_factory.mktemp("labels"), RECORDS_OF_THREE, max_length=6, overlap=2)


@pytest.mark.parametrize("labels", ["targets", "overlap"])
def test_targets_and_overlap_are_no_labels(store: Path, tmp_path: Path, labels: str) -> None:
    """The targets as labels would be 0 and 1 instead of ids."""
    pack(store, tmp_path / "shards", PackOptions(), executor=HERE)
    dataset = StoreDataset(store)
    batches = StoreBatches(dataset, PackOptions())
    refused = [
        lambda labels: ShardDataset(tmp_path / "shards", labels=labels),
        lambda labels: batches.make_collate(labels=labels),
        lambda labels: collate_packed([dataset[0]], labels=labels),
    ]
    said = f"labels is '{labels}', expected 'next' or 'same': the ids of the tokens that are tar"
    for open_with in refused:
        with pytest.raises(ValueError, match=f"^{said}"):
            open_with(labels)
        with pytest.raises(ValueError, match=r"or a column \(found: 'kind'\)$"):
            open_with("target")


def test_targets_are_read_only_where_labels_depend_on_them(store: Path, tmp_path: Path) -> None:
    pack(store, tmp_path / "shards", PackOptions(), executor=HERE)
    for labels in ("next", "same", None, "kind"):
        dataset = ShardDataset(tmp_path / "shards", labels=labels, columns=["kind"])
        for each in (dataset, copy.copy(dataset)):  # a copy opens the shards again
            found = [*each.open_shards()[0].columns]
            assert found == (["targets", "kind"] if labels in ("next", "same") else ["kind"])
            assert [*each[0].columns] == [*each.columns] == ["kind"]
    assert [*StoreDataset(store, columns=["kind"]).columns] == ["targets", "kind"]
    assert "targets" in StoreDataset(store, columns=[])[0].columns


def test_shard_sets_with_and_without_targets(store: Path, tmp_path: Path) -> None:
    """Each has the labels of its own tokens; their columns must be the same."""
    plain = make_store(tmp_path / "plain", RECORDS_OF_THREE, has_prompts=False)
    sequences = [
        slow_sequences(RECORDS_OF_THREE, has_prompts=True, max_length=6, overlap=2),
        slow_sequences(RECORDS_OF_THREE, has_prompts=False, max_length=99, overlap=None),
    ]
    paths = [tmp_path / "0", tmp_path / "1"]
    for path, each in zip(paths, [store, plain], strict=True):
        pack(each, path, PackOptions(batch_size=64), executor=HERE)
    both = ShardDataset(paths, labels="next", columns=["kind"])
    one_by_one = [ShardDataset(path, labels="next", columns=["kind"]) for path in paths]
    joined = ConcatDataset(one_by_one)
    sampler = EpochSampler(joined, shuffle=False)
    for batches in (both, sampler.track(DataLoader(joined, batch_size=None, sampler=sampler))):
        for batch, expected in zip(batches, sequences, strict=True):
            assert check_batch(batch, "next", expected) == len(expected)
            assert [*batch.columns] == ["kind"]
    said = r"^column 'targets': .* has none, .* has targets; pass columns= to leave it out"
    said += ": labels still honour the targets of each$"
    with pytest.raises(ValueError, match=said):
        ShardDataset(paths, labels="next", columns=["kind", "targets"])
    with pytest.raises(ValueError, match=said):
        EpochSampler(
            ConcatDataset(
                ShardDataset(path, columns=None if path == paths[0] else []) for path in paths
            )
        )


def test_stores_with_and_without_targets(store: Path, tmp_path: Path) -> None:
    """As one store, in which every token of the store without targets is one."""
    plain = make_store(tmp_path / "plain", RECORDS_OF_THREE, has_prompts=False)
    sequences = [
        *slow_sequences(RECORDS_OF_THREE, has_prompts=False, max_length=99, overlap=None),
        *slow_sequences(RECORDS_OF_THREE, has_prompts=True, max_length=6, overlap=2),
    ]
    options, both = PackOptions(keep_without_target=True), [plain, store]
    pack(both, tmp_path / "shards", options, executor=HERE)
    shards = ShardDataset(tmp_path / "shards", labels="next", columns=["kind"])
    for batches in (shards, iter_epoch(both, options, "next", columns=["kind"])):
        num_rows = sum(check_batch(batch, "next", sequences) for batch in batches)
        assert num_rows == len(sequences)


def test_dropped_targets_count_every_token(store: Path, tmp_path: Path) -> None:
    options = PackOptions(drop_column=("targets",))
    pack(store, tmp_path / "shards", options, executor=HERE)
    for batch in (
        *ShardDataset(tmp_path / "shards", labels="same"),
        *iter_epoch(store, options, "same"),
    ):
        expected = batch.sequences.data.clone()
        expected[: batch.sequences.batch_sizes[0]] = -100  # the first tokens
        assert torch.equal(batch.labels, expected)


def test_sequences_with_and_without_targets_do_not_mix(store: Path, tmp_path: Path) -> None:
    plain = make_store(tmp_path, RECORDS_OF_THREE, has_prompts=False)
    joined = ConcatDataset([StoreDataset(path, columns=["kind"]) for path in (plain, store)])
    samples = [joined[index] for index in range(len(joined))]
    said = r"^sequence 3 has columns 'kind', 'targets', sequence 0 has columns 'kind'$"
    with pytest.raises(ValueError, match=said):
        collate_packed(samples, labels="next")


@pytest.mark.parametrize("collate", COLLATES.values(), ids=COLLATES)
def test_sequences_of_ones_own_may_have_targets(collate: Callable[..., Any]) -> None:
    ids, targets = torch.tensor([5, 6, 7]), torch.tensor([0, 0, 1])
    samples = [
        TokenSequence(ids, 0, {"targets": targets}),
        TokenSequence(ids[:1], 1, {"targets": targets[:1]}),
    ]
    batch = collate(samples, labels="next")
    assert split_rows(batch, batch.labels) == [[-100, 7, -100], [-100]]
    if "mask" in type(batch).__slots__:
        assert (batch.columns["targets"][~batch.mask] == 0).all()
    for labels in ("next", "same"):
        with pytest.raises(
            ValueError, match=r"^column 'targets': expected one 0 or 1 for each tok"
        ):
            collate([TokenSequence(ids, 0, {"targets": 1})] * 3, labels=labels)


def test_piece_starts_are_those_of_the_pieces(store: Path) -> None:
    dataset = StoreDataset(store)
    keys = [Piece(1, 0, 1), Piece(0, 2, 3), Piece(0, 5, 1)]
    for samples in (dataset.__getitems__(keys), [dataset[key] for key in keys]):
        batch = collate_varlen(samples, sort=True)
        assert batch.piece_starts.tolist() == [2, 0, 5]
    assert collate_varlen([dataset[0], dataset[1]]).piece_starts.tolist() == [0, 0]
