"""Several shard sets are read as one: the same batches in turn, or one error that names both."""

from __future__ import annotations

import json
import pickle
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from here import HERE
from shard_reference import change_manifest, make_shards
from tensor_reference import assert_same
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset

import seqpack_cli as seqpack
from seqpack_cli import EpochSampler, FolderError, SamplerOptions, ShardDataset
from seqpack_cli.limits import LIMITS
from seqpack_cli.shards.shard_set import BYTES_PER_ITEM

NAMES = ("a", "b", "c")
LENGTHS = {"a": (3, 9, 5, 1, 5), "b": (4, 2), "c": (7, 1, 8)}


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three shard sets of 5, 2 and 3 batches, two batches or fewer in a shard."""
    folder = tmp_path_factory.mktemp("several")
    return [
        make_shards(folder / name, LENGTHS[name], batch_size=1, shard_bytes=350) for name in NAMES
    ]


def read_apart(paths: Sequence[Path], **options: Any) -> list[Any]:
    """Read the batches of each shard set by itself."""
    return [batch for path in paths for batch in ShardDataset(path, **options)]


def test_batches_are_numbered_one_set_after_the_other(paths: list[Path]) -> None:
    dataset, expected = ShardDataset(paths, labels="next"), read_apart(paths, labels="next")
    assert len(dataset) == len(expected) == 10
    for index in range(-10, 10):
        for make in (int, np.int64, torch.tensor):
            assert_same(dataset[make(index)], expected[index])
    for index in (-11, 10, 2**70):
        with pytest.raises(IndexError, match=f"^batch {index} of 10$"):
            dataset[index]
    with pytest.raises(TypeError):
        dataset["0"]  # type: ignore[call-overload]
    part = dataset[3:8:2]
    assert isinstance(part, Subset)
    for batch, other in zip(part, expected[3:8:2], strict=True):
        assert_same(batch, other)


def test_one_path_in_a_list_is_that_path(paths: list[Path]) -> None:
    alone, listed = ShardDataset(paths[0]), ShardDataset([paths[0]])
    assert listed.fingerprint == alone.fingerprint == seqpack.open_shards(paths[0]).fingerprint
    assert (listed.path, listed.paths) == (alone.path, alone.paths) == (paths[0], (paths[0],))
    assert repr(listed) == repr(alone)


def test_several_paths_are_named_in_order(paths: list[Path]) -> None:
    dataset = ShardDataset((str(paths[1]), paths[0]))
    assert dataset.paths == (paths[1], paths[0])
    with pytest.raises(AttributeError, match=r"^2 shard sets have no one path; use paths$"):
        dataset.path  # noqa: B018
    names = [str(paths[1]), str(paths[0])]
    assert repr(dataset) == f"ShardDataset({names}, layout='packed', num_batches=7, labels=None)"


def test_no_path_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^path is empty, expected at least one folder$"):
        ShardDataset([])


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # on a single core
def test_a_copy_and_a_spawned_worker_open_all_sets(paths: list[Path]) -> None:
    dataset, expected = ShardDataset(paths), read_apart(paths)
    copies: list[Any] = [
        pickle.loads(pickle.dumps(dataset)),  # noqa: S301 - our own
        DataLoader(dataset, batch_size=None, num_workers=1, multiprocessing_context="spawn"),
    ]
    for copied in copies:
        for batch, other in zip(copied, expected, strict=True):
            assert_same(batch, other)


def test_a_set_that_was_replaced_is_refused(tmp_path: Path, paths: list[Path]) -> None:
    replaced = tmp_path / "b"
    shutil.copytree(paths[1], replaced)
    dataset = ShardDataset([paths[0], replaced])
    shutil.rmtree(replaced)
    shutil.copytree(paths[2], replaced)
    assert len(dataset[0].lengths) == 1
    with pytest.raises(FolderError, match=f"^{replaced}: its files were replaced or removed"):
        dataset[5]
    with pytest.raises(FolderError, match=f"^{replaced}: its files were replaced or removed"):
        pickle.loads(pickle.dumps(dataset))[0]  # noqa: S301 - our own


def test_sets_map_as_many_files_together_as_one(
    paths: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LIMITS, "mapped_files", 3)
    dataset = ShardDataset(paths)
    for _ in dataset:
        assert sum(len(shards._opened) for shards in dataset.open_shards()) <= 3


def test_sets_keep_as_many_pages_together_as_one(
    paths: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LIMITS, "mapped_bytes", 5 * BYTES_PER_ITEM)
    for parts in (paths[:1], paths[:2]):
        dataset, kept = ShardDataset(parts), list[int]()
        for index in (0, -1, 1, -2) * 4:  # of two sets: a batch of each in turn
            dataset[index]
            kept.append(sum(shards._num_read for shards in dataset.open_shards()))
        assert 5 * BYTES_PER_ITEM < max(kept) < 7 * BYTES_PER_ITEM
        assert kept != sorted(kept)  # they were released


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ({"buckets": (4, 16)}, {"buckets": (12, 16, 40)}, [4, 12, 16, 40]),
        ({"buckets": (4, 16)}, {}, None),  # rows of the second have any width
        ({}, {}, None),
    ],
)
def test_bucket_keys_are_those_of_all(
    tmp_path: Path, first: dict[str, Any], second: dict[str, Any], expected: list[int] | None
) -> None:
    parts = [
        make_shards(tmp_path / str(n), seed=n, layout="padded", **options)
        for n, options in enumerate((first, second))
    ]
    dataset = ShardDataset(parts)
    assert dataset.bucket_keys == expected
    assert (dataset.layout, dataset.vocab_size, dataset.pad_id) == ("padded", 259, 256)


def test_one_order_ranks_and_resume_over_all_sets(paths: list[Path]) -> None:
    dataset = ShardDataset(paths)

    def make_samplers(world_size: int) -> list[EpochSampler]:
        options = SamplerOptions(repeat=False, balance="attention", longest_first=True)
        return [
            EpochSampler(dataset, seed=1, rank=rank, world_size=world_size, options=options)
            for rank in range(world_size)
        ]

    samplers = make_samplers(3)
    found = [next(iter(sampler)) for sampler in samplers]
    assert {int(dataset[number].lengths[0]) for number in found} == {9, 8, 7}
    state = samplers[0].state_dict()
    for sampler in make_samplers(2):
        sampler.load_state_dict(state)
        found += sampler
    assert Counter(found) == Counter(range(10))


def test_a_state_of_a_concatenation_is_one_of_the_same_sets(paths: list[Path]) -> None:
    """They have the same batches under the same numbers."""
    dataset = ShardDataset(paths)
    joined: Dataset[Any] = ConcatDataset([ShardDataset(path) for path in paths])
    sampler, other = EpochSampler(dataset, seed=3), EpochSampler(joined)
    sampler.skip_steps(4)
    other.load_state_dict(sampler.state_dict())
    assert other.peek(99).tolist() == sampler.peek(99).tolist()
    sampler.track(DataLoader(joined, batch_size=None, sampler=sampler))
    for wrong in (ShardDataset(paths[::-1]), ShardDataset(paths[:2]), ShardDataset(paths[0])):
        with pytest.raises(ValueError, match=r"^the state is of other shards"):
            EpochSampler(wrong).load_state_dict(sampler.state_dict())


def concatenate(parts: Sequence[Path]) -> EpochSampler:
    return EpochSampler(ConcatDataset([ShardDataset(part) for part in parts]))


SAME_TOKENIZER = "tokenize or import both corpora with the same tokenizer"
DIFFERENCES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "layout": (
        {"layout": "varlen", "max_tokens": 16},
        {},
        "layout is 'varlen', {} has 'padded'; pack them with the same --layout",
    ),
    "tokenizer": (
        {},
        {"tokenizer_blake3": "0123"},
        f"tokenizer_blake3 is '0123', {{}} has 'DIGEST'; {SAME_TOKENIZER}",
    ),
    "vocab_size": ({}, {"vocab_size": 300}, f"vocab_size is 300, {{}} has 259; {SAME_TOKENIZER}"),
    "pad_id": ({"pad_id": 7}, {}, "pad_id is 7, {} has 256; pack them with the same --pad-id"),
    "padding_side": (
        {"padding_side": "left"},
        {},
        "padding_side is 'left', {} has 'right'; pack them with the same --padding-side",
    ),
}


@pytest.mark.parametrize("read", [ShardDataset, concatenate])
@pytest.mark.parametrize("difference", DIFFERENCES)
def test_sets_that_one_model_cannot_take_are_refused(
    tmp_path: Path, difference: str, read: Callable[[list[Path]], Any]
) -> None:
    options, changed, expected = DIFFERENCES[difference]
    first = make_shards(tmp_path / "first", layout="padded")
    other = make_shards(tmp_path / "other", seed=1, **{"layout": "padded", **options})
    change_manifest(other, lambda manifest: manifest.update(changed))
    with pytest.raises(ValueError) as caught:
        read([first, other])
    message = str(caught.value)
    if difference == "tokenizer":
        digest = seqpack.open_shards(first).manifest["tokenizer_blake3"]
        message = message.replace(repr(digest)[:59] + "…", "'DIGEST'")
    assert message == f"{other}: {expected.format(first)}"


def test_the_same_shards_twice_are_refused(tmp_path: Path, paths: list[Path]) -> None:
    again = tmp_path / "again"
    shutil.copytree(paths[0], again)
    with pytest.raises(ValueError) as caught:
        ShardDataset([paths[0], paths[1], again])
    assert str(caught.value) == (
        f"{again}: the same shards as {paths[0]}; "
        "pack with --passes to visit sequences several times in an epoch"
    )


@pytest.fixture
def labelled(tmp_path: Path) -> list[Path]:
    """Two shard sets with an equal, a differing and a missing column."""
    kept = {"a": ["size:int", "lang:class=de,en", "label:class"], "b": ["size:int", "lang:class"]}
    made = []
    for name, keep in kept.items():
        records = [
            {"text": f"{name}{number}", "size": number, "lang": "de", "label": "x"}
            for number in range(4)
        ]
        corpus = tmp_path / f"{name}.jsonl"
        corpus.write_text("".join(json.dumps(record) + "\n" for record in records))
        options = seqpack.TokenizeOptions(keep=keep)
        seqpack.tokenize(corpus, tmp_path / f"store-{name}", options, executor=HERE)
        packing = seqpack.PackOptions(batch_size=2)
        seqpack.pack(tmp_path / f"store-{name}", tmp_path / name, packing, executor=HERE)
        made.append(tmp_path / name)
    return made


def test_columns_that_differ_can_be_left_out(labelled: list[Path]) -> None:
    a, b = labelled
    for columns, expected in (
        (None, f"column 'lang': {b} has class of 'de', {a} has class of 'de', 'en'"),
        (["size", "label"], f"column 'label': {b} has none, {a} has class of 'x'"),
    ):
        for parts, others in ((labelled, ""), (labelled[::-1], "reversed")):
            with pytest.raises(ValueError, match=r"; pass columns= to leave it out$") as caught:
                ShardDataset(parts, columns=columns)
            assert others or str(caught.value).startswith(expected)
    dataset = ShardDataset(labelled, columns=["size"], labels="size")
    assert list(dataset.columns) == ["size"]
    assert [batch.labels.tolist() for batch in dataset] == [[0, 1], [2, 3]] * 2
    with pytest.raises(ValueError, match=r"^no column 'first'"):
        ShardDataset(labelled, columns=["first"])
    with pytest.raises(ValueError, match=r"^column 'size' is of kind int, expected one with class"):
        dataset.class_names("size")
