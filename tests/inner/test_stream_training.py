"""Batches of streams while training: items, labels at cuts, and the shares of the ranks."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from here import HERE
from tensor_reference import assert_same
from torch.utils.data import ConcatDataset, DataLoader

from seqpack_cli import (
    EpochSampler,
    OptionError,
    PackOptions,
    SamplerOptions,
    ShardDataset,
    StoreBatches,
    StoreDataset,
    StreamSlice,
    StreamTensors,
    TokenizeOptions,
    pack,
    tokenize,
)
from seqpack_cli.tokens.options import TargetOptions

NUM_STREAMS, NUM_STEPS = 6, 7
KINDS = ("a", "b", "c")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prompts and completions of 1 to 60 bytes, with a class and a text for each."""
    folder, draw = tmp_path_factory.mktemp("streams"), random.Random(0)
    with (folder / "corpus.jsonl").open("w") as file:
        for number in range(40):
            size = draw.choice([1, 3, 9, 60])
            text = "".join(draw.choices("abcdefgh", k=size))
            record = {"prompt": text[: size // 3], "text": text[size // 3 :], "id": f"{number} ü"}
            file.write(json.dumps({**record, "kind": draw.choice(KINDS)}) + "\n")
    targets = TargetOptions(prompt_field="prompt", completion_field="text")
    keep = ("kind:class=a,b,c", "id:text")
    options = TokenizeOptions(eos="<eos>", keep=keep, targets=targets)
    tokenize([str(folder / "corpus.jsonl")], folder / "store", options, executor=HERE)
    return folder / "store"


def pack_streams(store: Path, output: Path, **options: Any) -> ShardDataset:
    sizes = {"batch_size": NUM_STREAMS, "max_tokens": NUM_STEPS, "shard_bytes": 3000, **options}
    pack(store, output, PackOptions("streams", **sizes), executor=HERE)
    return ShardDataset(output, labels="next")


@pytest.fixture(scope="module")
def dataset(store: Path) -> ShardDataset:
    return pack_streams(store, store.parent / "shards")


def join(batches: list[StreamTensors]) -> StreamTensors:
    """Join the shares of all ranks."""
    starts = itertools.accumulate([0, *(batch.ids.shape[1] for batch in batches)])
    for batch, start in zip(batches, starts, strict=False):
        batch.row_indices += start
    names = ["lengths", "original_indices", "piece_starts", "row_indices"]
    return StreamTensors(
        torch.cat([batch.ids for batch in batches], dim=1),
        torch.cat([batch.resets for batch in batches], dim=1),
        *(torch.cat([getattr(batch, name) for batch in batches]) for name in names),
        labels=torch.cat([batch.labels for batch in batches], dim=1),
        columns={
            "id": [text for batch in batches for text in batch.columns["id"]],
            "kind": torch.cat([batch.columns["kind"] for batch in batches]),
            "targets": torch.cat([batch.columns["targets"] for batch in batches], dim=1),
        },
    )


def test_streams_hold_each_document_once_with_labels_across_cuts(
    store: Path, dataset: ShardDataset
) -> None:
    batches = list(DataLoader(dataset, batch_size=None))
    assert {batch.ids.shape for batch in batches} == {(NUM_STEPS, NUM_STREAMS)}
    runs: list[list[tuple[int, int]]] = []  # of ids and labels, from reset to reset
    for stream in range(NUM_STREAMS):
        for batch in batches:
            pieces = batch.row_indices == stream
            length = int(batch.lengths[pieces].sum())
            assert (batch.labels[length:, stream] == -100).all()  # padding
            assert not batch.resets[length:, stream].any()
            for step in range(length):
                if batch.resets[step, stream]:
                    runs.append([])
                cell = batch.ids[step, stream], batch.labels[step, stream]
                runs[-1].append((int(cell[0]), int(cell[1])))
    expected: list[list[tuple[int, int]]] = []
    for sequence in StoreDataset(store):
        ids, targets = sequence.ids.tolist(), sequence.columns["targets"].tolist()
        following = zip([*ids[1:], 0], [*targets[1:], 0], strict=True)
        labels = [next_id if is_target else -100 for next_id, is_target in following]
        expected.append(list(zip(ids, labels, strict=True)))
    num_split = 0
    for document in expected:  # a stream may end within one, which then begins the next with none
        found = runs.pop(0)
        while len(found) < len(document):
            assert found[-1] == (document[len(found) - 1][0], -100)
            found[-1] = document[len(found) - 1]
            found, num_split = found + runs.pop(0), num_split + 1
        assert found == document
    assert runs == []
    assert 0 < num_split < NUM_STREAMS


@pytest.mark.parametrize(("world_size", "num_workers"), [(2, 1), (3, 0), (6, 0)])
def test_ranks_share_the_streams_of_every_batch(
    dataset: ShardDataset, world_size: int, num_workers: int
) -> None:
    samplers = [
        EpochSampler(dataset, shuffle=False, rank=rank, world_size=world_size)
        for rank in range(world_size)
    ]
    options = {"batch_size": None, "num_workers": num_workers}
    found = [list(DataLoader(dataset, sampler=sampler, **options)) for sampler in samplers]
    assert [len(share) for share in found] == [len(dataset)] * world_size
    for index, shares in enumerate(zip(*found, strict=True)):
        assert_same(join(list(shares)), dataset[index])


def test_steps_taken_by_some_ranks_are_continued_by_others(dataset: ShardDataset) -> None:
    first = EpochSampler(dataset, shuffle=False, rank=1, world_size=3)
    loader = first.track(DataLoader(dataset, batch_size=None, sampler=first))
    taken = list(itertools.islice(loader, 4))
    assert [batch.ids.shape[1] for batch in taken] == [2] * 4
    second = EpochSampler(dataset, shuffle=False, rank=0, world_size=2)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert next(iter(second)) == StreamSlice(4, 0, 3)
    last = EpochSampler(dataset, shuffle=False, rank=0, world_size=1)
    last.load_state_dict(second.state_dict())
    assert (len(last), last.count_steps()) == (len(dataset) - 5, len(dataset))
    assert [*last] == [*range(5, len(dataset))]
    assert last.epoch == 1
    assert last.peek(2).tolist() == [[0], [1]]
    with pytest.raises(ValueError, match="shuffle=True conflicts with streams"):
        last.load_state_dict({**second.state_dict(), "shuffle": True})
    assert (last.epoch, last.shuffle, len(last)) == (1, False, len(dataset))


def test_several_sets_of_as_many_streams_follow_each_other(
    store: Path, dataset: ShardDataset, tmp_path: Path
) -> None:
    longer = pack_streams(store, tmp_path / "longer", max_tokens=30).path
    both = ShardDataset([dataset.path, longer])
    found = [*EpochSampler(both, shuffle=False)]
    assert found == [*range(len(both))]
    assert both[StreamSlice(len(both) - 1, 1, 3)].ids.shape == (30, 2)
    more = pack_streams(store, tmp_path / "more", batch_size=5).path
    with pytest.raises(ValueError, match=r": 5 streams, .* has 6; pack them with the same --batch"):
        ShardDataset([dataset.path, more])


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda it: EpochSampler(it), "shuffle=True conflicts with streams, .* pass shuffle=False"),
        (
            lambda it: EpochSampler(it, shuffle=False, rank=0, world_size=4),
            "world_size is 4, expected a number that divides the 6 streams of a batch",
        ),
        *(
            (
                lambda it, option=option: EpochSampler(
                    it, shuffle=False, options=SamplerOptions(**option)
                ),
                f"{next(iter(option))}=.* conflicts with streams",
            )
            for option in (
                {"drop_last": True},
                {"balance": "tokens"},
                {"longest_first": True},
                {"skip": [1]},
            )
        ),
        (lambda it: EpochSampler(it[:2], shuffle=False), "batches is a Subset of streams"),
        (lambda it: EpochSampler(ConcatDataset([it])), "batches is a ConcatDataset of streams"),
        (lambda it: ShardDataset(it.path, labels="same"), "labels is 'same', which streams"),
    ],
)
def test_what_streams_cannot_do_is_refused(
    dataset: ShardDataset, make: Callable[[ShardDataset], Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        make(dataset)


def test_streams_are_not_made_while_training(store: Path) -> None:
    options = PackOptions("streams", batch_size=2, max_tokens=9)
    with pytest.raises(OptionError, match=r"^layout is 'streams', which needs shards: its batches"):
        StoreBatches(StoreDataset(store), options)


def test_no_repeats_is_what_streams_do_anyway(dataset: ShardDataset) -> None:
    options = SamplerOptions(repeat=False)
    sampler = EpochSampler(dataset, shuffle=False, rank=2, world_size=3, options=options)
    assert len([*sampler]) == len(dataset)


@pytest.mark.parametrize("streams", [(1, 1), (0, NUM_STREAMS + 1), (-1, 1)])
def test_streams_that_a_batch_has_not_are_refused(
    dataset: ShardDataset, streams: tuple[int, int]
) -> None:
    message = f"^streams {streams[0]} to {streams[1]}, expected some of the {NUM_STREAMS} streams "
    with pytest.raises(ValueError, match=message):
        dataset[StreamSlice(0, *streams)]
