"""An EpochSampler deals epochs as the slow ones of `tests/oracle/epochs.py`, also after a stop."""

from __future__ import annotations

import json
import pickle
import random
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracle.batches import read_batches
from oracle.epochs import Costs, Way, count_costs, deal_epoch, epoch_seed
from pair_corpus import make_pair_shards
from slow_tensors import spell
from small_shards import make_shards
from torch.utils.data import BatchSampler, ConcatDataset, DataLoader, Subset

from seqpack_cli import (
    EpochSampler,
    PackOptions,
    SamplerOptions,
    ShardDataset,
    StoreBatches,
    StoreDataset,
    StreamSlice,
)

NUM_BATCHES = 290
State = dict[str, Any]


def measure(path: Path) -> Costs:
    """Return what each batch costs."""
    has_pairs = json.loads((path / "manifest.json").read_bytes())["decoder"] is not None
    sides = [read_batches(path, prefix) for prefix in ["", "decoder."][: 1 + has_pairs]]
    found = [count_costs([page for page in pages if page]) for pages in zip(*sides, strict=True)]
    return {name: [costs[name] for costs in found] for name in ("tokens", "attention")}


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Costs]:
    """Return shards of many batches."""
    drawn, folder = random.Random(0), tmp_path_factory.mktemp("many")
    lengths = [min(int(drawn.lognormvariate(1.5, 1)) + 1, 50) for _ in range(2 * NUM_BATCHES)]
    path = make_shards(folder, lengths, batch_size=2, window=4, shard_bytes=9000)
    return path, measure(path)


KINDS: dict[str, dict[str, Any]] = {
    "padded": {"layout": "padded", "batch_size": 3, "window": 6},
    "varlen": {"layout": "varlen", "max_tokens": 20},
    "rows": {"layout": "varlen", "max_tokens": 15, "batch_size": 3, "align_sequences": 5},
    "pairs": {"batch_size": 3, "shard_bytes": 1500},
    "padded pairs": {"layout": "padded", "batch_size": 3},
}


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Costs]]:
    """Return shards of each kind."""
    drawn, found = random.Random(1), {}
    for name, options in KINDS.items():
        folder = tmp_path_factory.mktemp("kinds")
        if "pairs" in name:
            path = make_pair_shards(folder, 40, **options)
        else:
            path = make_shards(folder, [drawn.randint(1, 14) for _ in range(40)], **options)
        found[name] = path, measure(path)
    return found


def draw_way(drawn: random.Random, number: int) -> Way:
    """Draw how some of these batches are dealt."""
    ending = drawn.choice([{}, {}, {"drop_last": True}, {"repeat": False}])
    skip = drawn.sample(range(number), drawn.choice([0, 0, min(number // 4, 5)]))
    return Way(
        world_size=drawn.choice([1, 1, 2, 3, 5, min(number, 8)]),
        balance=drawn.choice([None, None, "tokens", "attention"]),
        longest_first=drawn.random() < 0.3,
        skip=tuple(sorted(skip)),
        **ending,
    )


def make_options(way: Way) -> SamplerOptions:
    given = asdict(way)
    del given["world_size"], given["num_steps"]
    return SamplerOptions(**given)


def of_rank(steps: list[list[int]], rank: int) -> list[int]:
    """Return the batches of a rank."""
    return [step[rank] for step in steps if rank < len(step)]


def check_epoch(drawn: random.Random, batches: Any, costs: Costs) -> None:
    """Deal an epoch in several runs, each with the state of any rank of the one before it."""
    number, seed, epoch = len(costs["tokens"]), drawn.randrange(99), drawn.choice([0, 0, 1, 7])
    shuffle = drawn.random() < 0.8
    ways = [draw_way(drawn, number)]
    of_epoch = epoch_seed(seed, epoch) if shuffle else None
    while drawn.random() < 0.5:
        steps = deal_epoch(ways, costs, of_epoch, is_start=epoch == 0)[-1]
        if len(steps) < 2:
            break
        again = drawn.choice([ways[-1], draw_way(drawn, number)])
        ways[-1] = Way(**{**asdict(ways[-1]), "num_steps": drawn.randint(1, len(steps) - 1)})
        ways.append(Way(**{**asdict(again), "num_steps": None}))
    runs = deal_epoch(ways, costs, of_epoch, is_start=epoch == 0)
    state: State = {}
    for way, steps in zip(ways, runs, strict=True):
        states = []
        for rank in range(way.world_size):
            given: dict[str, Any] = {"rank": rank, "world_size": way.world_size}
            sampler = EpochSampler(
                batches, seed=seed, shuffle=shuffle, options=make_options(way), **given
            )
            if state:
                other = EpochSampler(batches, seed=100, options=make_options(way), **given)
                sampler = drawn.choice([sampler, other, pickle.loads(pickle.dumps(sampler))])  # noqa: S301
                sampler.load_state_dict(state)
            else:
                sampler.set_epoch(epoch)
            if not state and not steps:
                with pytest.raises(ValueError, match="too few batches"):
                    len(sampler)
                continue
            if not steps:  # nothing was left
                assert sampler.epoch == epoch + 1
                continue
            expected = of_rank(steps, rank)
            assert (sampler.seed, sampler.epoch, sampler.epoch_seed) == (seed, epoch, of_epoch)
            if way.num_steps is None:
                assert len(sampler) == len(expected)
                padded = [step + [-1] * (way.world_size - len(step)) for step in steps]
                assert sampler.peek(10**6).tolist() == padded
                assert sampler.peek(2).tolist() == padded[:2]
                assert list(sampler) == expected
                assert sampler.epoch == epoch + 1
            else:
                assert list(islice(sampler, way.num_steps)) == expected
                states.append(sampler.state_dict())
        for found in states:
            assert found == states[0]
            state = json.loads(json.dumps(found))


@pytest.mark.parametrize("seed", range(90))
def test_epochs_are_those_of_the_slow_dealing(many: tuple[Path, Costs], seed: int) -> None:
    drawn = random.Random(seed)
    path, costs = many
    number = drawn.choice([1, 2, 7, 20, 33, 70, 140, 200, NUM_BATCHES])
    dataset = ShardDataset(path)
    batches: Any = dataset if number == NUM_BATCHES else dataset[:number]
    check_epoch(drawn, batches, {name: found[:number] for name, found in costs.items()})


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", KINDS)
def test_costs_are_those_of_each_kind(
    kinds: dict[str, tuple[Path, Costs]], kind: str, seed: int
) -> None:
    path, costs = kinds[kind]
    batches = ShardDataset(path)
    for balance in ("tokens", "attention"):
        sampler = EpochSampler(
            batches, rank=0, world_size=3, options=SamplerOptions(balance=balance)
        )
        ways = [Way(world_size=3, balance=balance)]
        (steps,) = deal_epoch(ways, costs, sampler.epoch_seed, is_start=True)
        assert sampler.peek(99).tolist() == steps
    check_epoch(random.Random(seed), batches, costs)


def test_parts_have_the_batches_of_their_datasets(
    many: tuple[Path, Costs], kinds: dict[str, tuple[Path, Costs]]
) -> None:
    (path, costs), (varlen, of_varlen) = many, kinds["varlen"]
    whole, other = ShardDataset(path), ShardDataset(varlen)
    places = [5, 0, 77, 31, 200, 4]
    check_epoch(
        random.Random(3),
        Subset(whole, places),
        {k: [v[n] for n in places] for k, v in costs.items()},
    )
    joined = ConcatDataset([whole[10:40], Subset(whole, places)])
    numbers = [*range(10, 40), *places]
    for seed in range(4):
        check_epoch(
            random.Random(seed), joined, {k: [v[n] for n in numbers] for k, v in costs.items()}
        )
    state = EpochSampler(joined).state_dict()
    EpochSampler(ConcatDataset([whole[10:40], Subset(whole, places)])).load_state_dict(state)
    for wrong in (whole, whole[10:40], ConcatDataset([Subset(whole, places), whole[10:40]])):
        with pytest.raises(ValueError, match="of other shards"):
            EpochSampler(wrong).load_state_dict(state)
    with pytest.raises(ValueError, match="layout"):
        EpochSampler(ConcatDataset([whole, other]))
    assert "Subset(num_batches=6" in repr(EpochSampler(Subset(whole, places)))
    assert len(of_varlen["tokens"]) == len(other)


def test_state_of_several_shard_sets_is_that_of_their_concatenation(
    many: tuple[Path, Costs], tmp_path: Path
) -> None:
    paths = [many[0], make_shards(tmp_path, seed=9)]
    state = EpochSampler(ShardDataset(paths)).state_dict()
    EpochSampler(ConcatDataset([ShardDataset(path) for path in paths])).load_state_dict(state)
    with pytest.raises(ValueError, match="of other shards"):
        EpochSampler(ShardDataset(paths[::-1])).load_state_dict(state)


def test_epochs_follow_each_other(many: tuple[Path, Costs]) -> None:
    part = ShardDataset(many[0])[:7]
    costs = {name: found[:7] for name, found in many[1].items()}
    sampler = EpochSampler(part, seed=4, options=SamplerOptions(longest_first=True))
    way = Way(longest_first=True)
    for epoch in range(3):
        (steps,) = deal_epoch([way], costs, epoch_seed(4, epoch), is_start=epoch == 0)
        assert (sampler.epoch, len(sampler), sampler.count_steps()) == (epoch, 7, 7)
        first = list(islice(sampler, epoch))
        sampler.set_epoch(epoch)  # changes nothing
        assert len(sampler) == 7 - epoch
        assert first + list(sampler) == of_rank(steps, 0)
    state = sampler.state_dict()
    assert (state["epoch"], state["taken"]) == (3, [])
    sampler.set_epoch(1)
    assert (sampler.epoch, len(sampler)) == (1, 7)
    assert "epoch=1" in repr(sampler)


@pytest.mark.parametrize(("number", "world_size"), [(7, 3), (6, 3), (2, 3), (8, 1)])
def test_steps_of_an_epoch_are_counted(
    many: tuple[Path, Costs], number: int, world_size: int
) -> None:
    part = ShardDataset(many[0])[:number]
    for given in ({}, {"repeat": False}, {"drop_last": True}, {"skip": [1]}):
        if given.get("drop_last") and number < world_size:
            continue
        for rank in range(world_size):
            options = SamplerOptions(**given)  # type: ignore[arg-type]
            sampler = EpochSampler(part, rank=rank, world_size=world_size, options=options)
            count = sampler.count_steps()
            assert count == len(sampler)
            next(iter(sampler), None)
            assert sampler.count_steps() == count


def test_steps_may_be_skipped(many: tuple[Path, Costs]) -> None:
    sampler = EpochSampler(ShardDataset(many[0])[:9])
    order = sampler.peek(9)[:, 0].tolist()
    found = []
    for number in sampler:
        found.append(number)
        if len(found) == 3:
            sampler.skip_steps(2)
    assert found + list(sampler) == order[:3] + order[5:]
    for wrong in (-1, 10):
        with pytest.raises(ValueError, match="expected 0 to 9 in this epoch"):
            sampler.skip_steps(wrong)
    sampler.skip_steps(9)
    assert sampler.state_dict()["epoch"] == 2
    assert len(list(sampler)) == 9


# Loaders


def make_loader(sampler: EpochSampler, dataset: Any, group: int | None, workers: int = 0) -> Any:
    """Return a tracked loader of single batches, or of lists of them."""
    given: dict[str, Any] = {"batch_size": None} if group is None else {"batch_size": group}
    given["collate_fn"] = None if group is None else list
    return sampler.track(DataLoader(dataset, sampler=sampler, num_workers=workers, **given))


@pytest.mark.parametrize("group", [None, 1, 2, 5])
def test_loop_goes_on_after_any_batch(many: tuple[Path, Costs], group: int | None) -> None:
    dataset = ShardDataset(many[0])[:5]
    order = EpochSampler(dataset, seed=2).peek(9)[:, 0].tolist()
    items = [spell(dataset[place]) for place in order]
    for stop in range(1, 6):
        sampler = EpochSampler(dataset, seed=2)
        loader = make_loader(sampler, dataset, group)
        assert len(loader) == 5
        found, state = [], {}
        for item in loader:
            found.append(spell(item))
            if len(found) == stop:
                state = sampler.state_dict()
                break
        assert found == items[:stop]
        assert state["epoch"] == (stop == 5)
        if stop < 5:
            assert [spell(item) for item in loader] == items[stop:]
            assert sampler.epoch == 1
        other = EpochSampler(dataset, seed=9)
        other.load_state_dict(state)
        rest = [spell(item) for item in make_loader(other, dataset, 3 if group is None else None)]
        assert len(rest) == (5 - stop or 5)
        assert stop == 5 or rest == items[stop:]


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # on a single core
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_loop_is_counted_and_not_what_workers_fetched(many: tuple[Path, Costs]) -> None:
    dataset = ShardDataset(many[0])[:9]
    sampler = EpochSampler(dataset, seed=2)
    order = sampler.peek(9)[:, 0].tolist()
    loader = make_loader(sampler, dataset, None, workers=2)
    found = [spell(item) for item in islice(loader, 3)]
    assert len(sampler) == 6
    other = EpochSampler(dataset)
    other.load_state_dict(sampler.state_dict())
    found += [spell(item) for item in make_loader(other, dataset, None)]
    assert found == [spell(dataset[place]) for place in order]


def test_rank_without_a_last_batch_goes_on_to_the_next_epoch(many: tuple[Path, Costs]) -> None:
    dataset, given = ShardDataset(many[0])[:5], SamplerOptions(repeat=False)
    for rank, number in ((0, 3), (1, 2)):
        sampler = EpochSampler(dataset, rank=rank, world_size=2, options=given)
        loader = make_loader(sampler, dataset, None)
        assert len([*loader]) == number
        assert (sampler.epoch, len(sampler)) == (1, number)
    short = sampler.track(range(1))  # a loader that ends early
    assert ([*short], sampler.epoch, len(sampler)) == ([0], 1, 1)


def test_last_list_may_be_dropped(many: tuple[Path, Costs]) -> None:
    dataset = ShardDataset(many[0])[:5]
    sampler = EpochSampler(dataset)
    order = sampler.peek(9)[:, 0].tolist()
    loader = DataLoader(dataset, sampler=sampler, batch_size=2, collate_fn=list, drop_last=True)
    found = [spell(item) for item in sampler.track(loader)]
    assert found == [spell(dataset[place]) for place in order[:4]]
    assert (sampler.epoch, len(sampler)) == (1, 5)


def test_collate_function_is_called_and_other_loaders_are_counted(
    many: tuple[Path, Costs],
) -> None:
    dataset = ShardDataset(many[0])[:5]
    sampler = EpochSampler(dataset, shuffle=False)
    loader = DataLoader(
        dataset, batch_size=None, sampler=sampler, collate_fn=lambda item: len(item.lengths)
    )
    assert list(sampler.track(loader)) == [2] * 5
    tracked = sampler.track(range(5))  # a loader of another kind
    assert list(islice(tracked, 2)) == [0, 1]
    assert len(sampler) == len(tracked) == 3
    sampler.skip_steps(1)
    assert sampler.state_dict()["taken"][0]["num_steps"] == 3


def test_skipping_ends_a_tracked_pass(many: tuple[Path, Costs]) -> None:
    dataset = ShardDataset(many[0])[:6]
    sampler = EpochSampler(dataset)
    order = sampler.peek(9)[:, 0].tolist()
    loader, found = make_loader(sampler, dataset, None), []
    for item in loader:
        found.append(spell(item))
        if len(found) == 2:
            sampler.skip_steps(1)
    found += [spell(item) for item in loader]
    assert found == [spell(dataset[place]) for place in order[:2] + order[3:]]


def test_wrong_loaders_are_refused(many: tuple[Path, Costs], tmp_path: Path) -> None:
    dataset = ShardDataset(many[0])
    sampler, other = EpochSampler(dataset), ShardDataset(make_shards(tmp_path))
    mine: dict[str, Any] = {"sampler": sampler, "batch_size": None}
    loaders: list[tuple[Any, str]] = [
        (DataLoader(dataset, batch_size=None, sampler=EpochSampler(dataset)), "another sampler"),
        (DataLoader(dataset, batch_size=None), "another sampler"),
        (DataLoader(other, **mine), "another dataset"),
        (DataLoader(dataset[:5], **mine), "another dataset"),
        (DataLoader(StoreDataset(tmp_path / "store"), **mine), "another dataset"),
        (DataLoader(dataset, **mine, in_order=False), "in_order=False"),
        (sampler.track(DataLoader(dataset, **mine)), "already tracked"),
    ]
    for loader, words in loaders:
        with pytest.raises(ValueError, match=words):
            sampler.track(loader)
    sampler.track(DataLoader(ShardDataset(many[0], labels="next"), **mine))  # of the same content
    grouped = DataLoader(dataset, sampler=sampler, batch_size=2, collate_fn=lambda found: found[0])
    with pytest.raises(TypeError, match="expected a list"):
        list(sampler.track(grouped))


# Streams


@pytest.fixture(scope="module")
def streams(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("streams")
    return make_shards(folder, [9, 30, 4, 17, 8, 22], layout="streams", batch_size=6, max_tokens=5)


def test_ranks_share_the_streams_of_each_batch(streams: Path) -> None:
    dataset = ShardDataset(streams, labels="next")
    number, state = len(dataset), {}
    for world_size in (1, 2, 3, 6):
        share = 6 // world_size
        for rank in range(world_size):
            given: dict[str, Any] = {"rank": rank, "world_size": world_size}
            sampler = EpochSampler(dataset, shuffle=False, **given)
            keys = [StreamSlice(n, rank * share, rank * share + share) for n in range(number)]
            expected = [*range(number)] if world_size == 1 else keys
            assert list(sampler) == expected
            assert sampler.count_steps() == number
            if state:
                sampler.load_state_dict(state)
                assert list(sampler) == expected[2:]
        sampler = EpochSampler(dataset, shuffle=False, rank=0, world_size=world_size)
        list(islice(sampler, 2))
        state = sampler.state_dict()
        loader = make_loader(sampler, dataset, None)
        assert [item.ids.shape[1] for item in loader] == [share] * (number - 2)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "shuffle=True conflicts with streams"),
        ({"shuffle": False, "rank": 0, "world_size": 4}, "divides the 6 streams"),
        ({"shuffle": False, "options": SamplerOptions(drop_last=True)}, "drop_last=True"),
        ({"shuffle": False, "options": SamplerOptions(balance="tokens")}, "balance='tokens'"),
        ({"shuffle": False, "options": SamplerOptions(longest_first=True)}, "longest_first"),
        ({"shuffle": False, "options": SamplerOptions(skip=[1])}, r"skip=\(1,\)"),
    ],
)
def test_streams_have_one_order(streams: Path, given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        EpochSampler(ShardDataset(streams), **given)


def test_streams_are_not_parts(streams: Path) -> None:
    for wrong in (ShardDataset(streams)[:2], ConcatDataset([ShardDataset(streams)])):
        with pytest.raises(ValueError, match="streams"):
            EpochSampler(wrong, shuffle=False)


# What is refused


@pytest.mark.parametrize(
    ("given", "kind", "words"),
    [
        ({"seed": -1}, ValueError, "seed is -1"),
        ({"seed": "1"}, TypeError, "seed"),
        ({"shuffle": 1}, TypeError, "shuffle"),
        ({"rank": 1, "world_size": 1}, ValueError, "rank is 1, expected 0 or more, below 1"),
        ({"rank": -1, "world_size": 2}, ValueError, "rank is -1"),
        ({"rank": 0, "world_size": 0}, ValueError, "rank is 0"),
        ({"rank": 3}, ValueError, "rank is 3"),
        ({"rank": 0, "world_size": 2**20 + 1}, ValueError, "at most 1048576"),
        ({"options": SamplerOptions(skip=[7])}, ValueError, "skip has batch 7"),
        ({"options": SamplerOptions(skip=[-1])}, ValueError, "skip has batch -1"),
        ({"options": {}}, TypeError, "options"),
    ],
)
def test_wrong_arguments_are_refused(
    many: tuple[Path, Costs], given: dict[str, Any], kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        EpochSampler(ShardDataset(many[0])[:7], **given)


def test_too_few_batches_are_refused(many: tuple[Path, Costs]) -> None:
    part = ShardDataset(many[0])[:7]
    few = EpochSampler(part, rank=0, world_size=8, options=SamplerOptions(drop_last=True))
    with pytest.raises(ValueError, match="too few batches for 8 ranks: 7 in the epoch, 0 of them"):
        len(few)
    none = EpochSampler(part, options=SamplerOptions(skip=range(7)))
    with pytest.raises(ValueError, match="7 of them skipped"):
        list(none)
    for method, words in (("peek", "num_steps is -1"), ("set_epoch", "epoch is -1")):
        with pytest.raises(ValueError, match=words):
            getattr(EpochSampler(part), method)(-1)


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"drop_last": True, "repeat": False}, ValueError),
        ({"balance": "cells"}, ValueError),
        ({"skip": ["a"]}, TypeError),
        ({"longest_first": "yes"}, TypeError),
    ],
)
def test_wrong_options_are_refused(given: dict[str, Any], kind: type[Exception]) -> None:
    with pytest.raises(kind):
        SamplerOptions(**given)
    assert SamplerOptions(skip=[3, 1, 3]).skip == (1, 3)


def test_other_batches_are_refused(many: tuple[Path, Costs], tmp_path: Path) -> None:
    make_shards(tmp_path)
    store = StoreDataset(tmp_path / "store")
    batches = StoreBatches(store, PackOptions())
    for wrong in (store, [1, 2], ConcatDataset([store]), Subset(store, [0]), None):
        with pytest.raises(TypeError):
            EpochSampler(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="skip needs shards"):
        EpochSampler(batches, options=SamplerOptions(skip=[0]))


def list_wrong_states(good: State) -> list[Any]:
    """Return states that are none, each wrong in one place."""
    values: dict[str, list[Any]] = {
        "batches": ["", 3],
        "seed": [-1, "3", 1.5, None, True],
        "epoch": [-1, "3", None],
        "shuffle": ["no", 1],
        "taken": [None, {}, [1], [{}]],
    }
    taken: dict[str, list[Any]] = {
        "world_size": [0, "2", 2**20 + 1, True],
        "num_steps": [-1, "1", 99],
        "skip": [None, ["a"], [99], [-1]],
        "balance": [True, "cells"],
        "drop_last": [1],
        "longest_first": [None],
        "repeat": ["no"],
        "another": [1],
    }
    wrong: list[Any] = [None, [], 7, {}]
    wrong += [{**good, name: value} for name, found in values.items() for value in found]
    wrong += [{name: good[name] for name in good if name != lacking} for lacking in values]
    (dealing,) = good["taken"]
    changed = [{**dealing, name: value} for name, found in taken.items() for value in found]
    changed += [{**dealing, "drop_last": True, "repeat": False}]
    changed += [{name: dealing[name] for name in dealing if name not in ("skip", "num_steps")}]
    return wrong + [{**good, "taken": [found]} for found in changed]


def test_wrong_states_are_refused_and_change_nothing(many: tuple[Path, Costs]) -> None:
    part = ShardDataset(many[0])[:8]
    sampler = EpochSampler(part, rank=0, world_size=2)
    sampler.skip_steps(1)
    good = sampler.state_dict()
    assert json.loads(json.dumps(good)) == good
    for state in list_wrong_states(good):
        with pytest.raises(ValueError, match=r"state|skip has batch|conflicts"):
            sampler.load_state_dict(state)
        assert sampler.state_dict() == good
        assert len(sampler) == 3
    old = {**good["taken"][0]}
    del old["repeat"]  # as versions without it wrote
    sampler.load_state_dict({**good, "taken": [old]})
    assert len(sampler) == 3
    assert np.array_equal(sampler.peek(1), EpochSampler(part, rank=1, world_size=2).peek(2)[1:])


def test_lists_of_keys_are_fetched_together(tmp_path: Path) -> None:
    make_shards(tmp_path, range(1, 30))
    dataset = StoreDataset(tmp_path / "store")
    batches = StoreBatches(dataset, PackOptions(batch_size=4))
    sampler, alone = EpochSampler(batches), EpochSampler(batches)
    loader = DataLoader(dataset, batch_sampler=alone, collate_fn=batches.make_collate())
    expected = [spell(item) for item in alone.track(loader)]
    for stop in (1, 3, 4):
        sampler.load_state_dict(EpochSampler(batches).state_dict())
        fetches = BatchSampler(sampler, 3, drop_last=False)
        loader = DataLoader(dataset, batch_sampler=fetches, collate_fn=batches.make_collate())
        found = [spell(item) for item in islice(sampler.track(loader), stop)]
        found += [spell(item) for item in sampler.track(loader)]
        assert found == expected
