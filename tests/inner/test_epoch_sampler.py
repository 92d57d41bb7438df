"""The order of an epoch for every rank, and how it goes on after a stop of any kind."""

from __future__ import annotations

import copy
import io
import itertools
import json
import multiprocessing
import pickle
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from epoch_reference import NumberedBatches, Way, slow_epoch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from shard_reference import make_shards, make_store, make_texts
from torch.utils.data import ConcatDataset, DataLoader, Dataset

from seqpack_cli.batching.options import PackOptions
from seqpack_cli.batching.order import epoch_seed
from seqpack_cli.training.dealing import SamplerOptions
from seqpack_cli.training.epoch_sampler import EpochSampler
from seqpack_cli.training.shard_dataset import ShardDataset
from seqpack_cli.training.store_batches import StoreBatches
from seqpack_cli.training.store_dataset import StoreDataset

# Of fork, the default of Python 3.11 to 3.13 on Linux; a spawned worker takes seconds to start.
ignore_fork = pytest.mark.filterwarnings(
    "ignore:This DataLoader will create",
    "ignore:This process .* is multi-threaded:DeprecationWarning",
)
NUM_BATCHES = 22
State = dict[str, Any]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> ShardDataset:
    """Batches of one sequence each, of other lengths each; two shards."""
    lengths = [3 + number * 7 % NUM_BATCHES for number in range(NUM_BATCHES)]
    folder = tmp_path_factory.mktemp("shards")
    path = make_shards(folder, lengths, batch_size=1, order="none", shard_bytes=2000)
    return ShardDataset(path)


def number_of(item: Any) -> int:
    """Return the number of a batch of the dataset, which holds the sequence of its number."""
    return int(item.original_indices[0])


def make_loader(dataset: Dataset[Any], sampler: EpochSampler, **options: Any) -> DataLoader[Any]:
    return DataLoader(dataset, sampler=sampler, **{"batch_size": None, **options})


def make_ranks(batches: NumberedBatches, way: Way, **options: Any) -> list[EpochSampler]:
    """Make the samplers of all ranks."""
    return [
        EpochSampler(
            batches,
            rank=rank,
            world_size=way.world_size,
            options=SamplerOptions(
                drop_last=way.drop_last,
                repeat=way.repeat,
                balance=way.balance,
                longest_first=way.longest_first,
                skip=way.skip,
            ),
            **options,
        )
        for rank in range(way.world_size)
    ]


def take(samplers: Sequence[EpochSampler], num_steps: int | None) -> list[int]:
    """Take so many steps on all ranks, None the rest; give the numbers, step after step.

    Only in the last step, the last ranks may be given none.
    """
    ranks = [[*itertools.islice(sampler, num_steps)] for sampler in samplers]
    lengths = [len(keys) for keys in ranks]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] - lengths[-1] <= 1
    steps = itertools.zip_longest(*ranks)
    keys = itertools.chain.from_iterable(steps)
    return [key - NumberedBatches.FIRST_KEY for key in keys if key is not None]


def through_json(state: State) -> State:
    loaded: State = json.loads(json.dumps(state))
    return loaded


def through_torch(state: State) -> State:
    """Save and load a state as checkpoints are, without pickle's freedom."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    loaded: State = torch.load(file, weights_only=True)
    return loaded


def tables_of_cells() -> st.SearchStrategy[list[int]]:
    return st.one_of(
        st.lists(st.integers(1, 30), min_size=1, max_size=40),
        st.integers(1, 300).map(lambda num: [number * 37 % 101 for number in range(num)]),
    )


def ways(max_world_size: int = 7) -> st.SearchStrategy[Way]:
    return st.builds(
        Way,
        world_size=st.integers(1, max_world_size),
        drop_last=st.booleans(),
        repeat=st.booleans(),
        balance=st.sampled_from([None, "tokens", "attention"]),
        longest_first=st.booleans(),
    ).filter(lambda way: way.repeat or not way.drop_last)


@st.composite
def runs(draw: st.DrawFn, num_batches: int) -> list[Way]:
    """Draw several runs of one epoch, each dealt another way; the last goes to the end."""
    found = draw(st.lists(ways(), min_size=1, max_size=4, unique=True))
    skip = st.just(()) if num_batches == 0 else st.sets(st.integers(0, num_batches - 1), max_size=3)
    stops = [draw(st.integers(0, num_batches // way.world_size + 1)) for way in found]
    return [
        replace(way, skip=tuple(sorted(draw(skip))), num_steps=stop)
        for way, stop in zip(found, [*stops[:-1], None], strict=True)
    ]


@settings(max_examples=40)
@given(tables_of_cells(), ways(), st.integers(0, 2**70), st.integers(0, 3))
def test_an_epoch_gives_every_batch_once_but_for_what_is_stated(
    cells: list[int], way: Way, seed: int, epoch: int
) -> None:
    assume(not way.drop_last or len(cells) >= way.world_size)
    samplers = make_ranks(NumberedBatches(cells), way, seed=seed)
    for sampler in samplers:
        sampler.set_epoch(epoch)
    lengths = [len(sampler) for sampler in samplers]
    assert lengths == [sampler.count_steps() for sampler in samplers]
    found = take(samplers, None)
    assert sum(lengths) == len(found)
    counts = Counter(found)
    if way.repeat:
        assert len(set(lengths)) == 1
    else:
        assert counts.total() == len(cells)
    if way.drop_last:
        assert counts.total() == len(cells) - len(cells) % way.world_size
        assert set(counts.values()) <= {1}
    else:
        assert set(counts) == set(range(len(cells)))
        assert counts.total() - len(counts) < way.world_size
    assert {sampler.epoch for sampler in samplers} == {epoch + 1}


@settings(max_examples=60)
@given(st.data(), tables_of_cells(), st.integers(0, 9), st.integers(0, 1))
def test_runs_go_on_where_others_stopped(
    data: st.DataObject, cells: list[int], seed: int, epoch: int
) -> None:
    batches, segments = NumberedBatches(cells), data.draw(runs(len(cells)))
    for way in segments:  # that there is no step in a whole epoch is an error
        num_left = len(cells) - len(way.skip)
        assume(num_left >= (way.world_size if way.drop_last else 1))
    ways_drawn, state, found = segments, None, []
    for number, way in enumerate(segments):
        samplers = make_ranks(batches, way, seed=seed if state is None else 12345)
        for rank, sampler in enumerate(samplers):
            if state is None:
                sampler.set_epoch(epoch)
            else:
                sampler.load_state_dict((through_json, through_torch)[number % 2](state))
                assert sampler.rank == rank
        if samplers[0].epoch > epoch:  # nothing was left, or nothing dealt in this way
            segments = segments[:number]
            break
        assert {sampler.epoch for sampler in samplers} == {epoch}
        if way.num_steps is None:
            found.append(take(samplers, None))
            break
        num_steps = min(way.num_steps, len(samplers[0]))
        ahead = samplers[0].peek(num_steps)
        found.append(take(samplers, num_steps))
        assert found[-1] == ahead[ahead >= 0].tolist()
        states = [sampler.state_dict() for sampler in samplers]
        assert all(other == states[0] for other in states)
        state = states[0]
    together = [number for numbers in found for number in numbers]
    assert together == slow_epoch(cells, segments, seed=seed, epoch=epoch)
    # Each run repeats, of its own and of what others gave, fewer than it has ranks.
    given: set[int] = set()
    for way, numbers in zip(segments, found, strict=True):
        assert not set(numbers) & set(way.skip)
        assert len(numbers) - len(set(numbers) - given) < (way.world_size if way.repeat else 1)
        given |= set(numbers)
    if not any(way.drop_last for way in ways_drawn):
        skipped = set().union(*(way.skip for way in ways_drawn))
        assert set(together) | skipped >= set(range(len(cells)))


def test_orders_stay_as_they_are() -> None:
    # Golden: a run that is continued years later rests on them.
    assert epoch_seed(0, 0) == 5741515530665531126
    assert epoch_seed(0, 1) == 13862406978120918789
    assert epoch_seed(1, 0) == 5986519294958235966
    assert epoch_seed(2**64 + 3, 2**33) == 7726264072693783804
    sampler = EpochSampler(NumberedBatches([1] * 12), seed=7)
    expected = [
        [6, 7, 0, 11, 4, 5, 1, 2, 10, 3, 8, 9],
        [8, 10, 9, 1, 5, 0, 6, 7, 2, 4, 3, 11],
        [7, 4, 6, 11, 3, 5, 10, 8, 2, 1, 9, 0],
    ]
    assert [take([sampler], None) for _ in range(3)] == expected
    cells = [5, 40, 12, 7, 7, 33, 2, 18, 25, 9]
    balanced = make_ranks(
        NumberedBatches(cells), Way(3, balance="tokens", longest_first=True), seed=7
    )
    assert take(balanced, None) == [5, 1, 8, 7, 2, 4, 0, 6, 3, 9, 6, 7]


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    batches, orders = NumberedBatches([1] * 30), set()
    for seed in (0, 1, 2, 2**32, 2**64):
        sampler = EpochSampler(batches, seed=seed)
        for epoch in (0, 1, 2, 2**32):
            sampler.set_epoch(epoch)
            orders.add(tuple(sampler.peek(30).ravel()))
    assert len(orders) == 20


def test_the_order_does_not_depend_on_the_ranks() -> None:
    batches = NumberedBatches(range(24))
    alone = EpochSampler(batches, seed=3).peek(99).ravel().tolist()
    for world_size in (2, 3, 4, 8):
        samplers = make_ranks(batches, Way(world_size), seed=3)
        assert {str(sampler.peek(99)) for sampler in samplers} == {str(samplers[0].peek(99))}
        assert take(samplers, None) == alone


def test_two_samplers_of_a_seed_agree_and_disturb_nobody() -> None:
    state = torch.random.get_rng_state(), np.random.get_state()[1].tolist()
    one, other = (EpochSampler(NumberedBatches([1] * 20), seed=5) for _ in range(2))
    assert [*one] == [*other]
    assert torch.equal(torch.random.get_rng_state(), state[0])
    assert np.random.get_state()[1].tolist() == state[1]


def test_without_shuffle_the_order_is_that_of_the_data() -> None:
    samplers = make_ranks(NumberedBatches(range(6)), Way(2), shuffle=False)
    assert [take(samplers, None) for _ in range(2)] == [[*range(6)], [*range(6)]]
    balanced = make_ranks(NumberedBatches([5, 9, 1, 7]), Way(2, balance="tokens"), shuffle=False)
    assert [take(balanced, None) for _ in range(2)] == [[1, 3, 2, 0]] * 2


def test_longest_first_is_the_first_step_of_epoch_0_only() -> None:
    cells = [int(number) for number in np.random.default_rng(0).permutation(40)]
    way = Way(4, longest_first=True)
    samplers = make_ranks(NumberedBatches(cells), way)
    plain = make_ranks(NumberedBatches(cells), Way(4))
    first = take(samplers, 1)
    assert {cells[number] for number in first} == {36, 37, 38, 39}
    rest = [number for number in take(plain, None) if number not in first]
    assert take(samplers, None) == rest
    assert take(samplers, None) == take(plain, None)  # epoch 1
    # Not again in the middle of epoch 0.
    stopped, other = EpochSampler(NumberedBatches(cells)), make_ranks(NumberedBatches(cells), way)
    take([stopped], 1)
    for sampler in other:
        sampler.load_state_dict(stopped.state_dict())
    assert take(other, None)[:4] == stopped.peek(4).ravel().tolist()


def test_balanced_ranks_are_given_batches_of_about_one_cost() -> None:
    costs = np.random.default_rng(1).lognormal(8, 1, 3000).astype(np.int64)
    batches = NumberedBatches(costs.tolist())
    spread = {}
    for balance in (None, "tokens"):
        way = Way(8, balance=balance)
        steps = costs[make_ranks(batches, way)[0].peek(999)]
        spread[balance] = np.ptp(steps, axis=1).mean()
    assert spread["tokens"] < 0.15 * spread[None]


def test_costs_are_counted_only_where_they_are_asked_for() -> None:
    class Costless(NumberedBatches):
        def plan_epoch(self, seed: int | None) -> Any:
            return replace(super().plan_epoch(seed), count_costs=lambda _: pytest.fail("counted"))

    assert len([*EpochSampler(Costless([1] * 5))]) == 5


def test_skipped_batches_are_left_out_in_every_epoch() -> None:
    batches = NumberedBatches(range(10))
    for way in (Way(1), Way(3), Way(3, balance="tokens"), Way(2, longest_first=True)):
        samplers = make_ranks(batches, replace(way, skip=(2, 9)), seed=1)
        for _ in range(2):
            assert set(take(samplers, None)) == set(range(10)) - {2, 9}
    plain = EpochSampler(batches).peek(10).ravel().tolist()
    skipping = (
        EpochSampler(batches, options=SamplerOptions(skip=[9, 2, 9])).peek(10).ravel().tolist()
    )
    assert skipping == [number for number in plain if number not in (2, 9)]
    expected = r"^too few batches for 1 ranks: 10 in the epoch, 10 of them skipped$"
    with pytest.raises(ValueError, match=expected):
        len(EpochSampler(batches, options=SamplerOptions(skip=range(10))))
    with pytest.raises(
        ValueError, match=r"^too few batches for 11 ranks: 10 in the epoch, 0 of them skipped"
    ):
        len(EpochSampler(batches, world_size=11, rank=0, options=SamplerOptions(drop_last=True)))


@pytest.mark.parametrize(
    ("skip", "last_step"),
    [((0, 1, 2), [9, 10, 3]), ((0, 1, 2, 3), [10, 4, 5]), ((0, 2, 5, 7), [10, 1, 3])],
)
def test_a_last_step_is_made_up_of_the_first_batches_that_are_not_skipped(
    skip: tuple[int, ...], last_step: list[int]
) -> None:
    samplers = make_ranks(NumberedBatches(range(11)), Way(3, skip=skip), shuffle=False)
    found = take(samplers, None)
    assert found[-3:] == last_step
    assert not set(found) & set(skip)


@pytest.mark.parametrize(("skip", "number"), [([10], 10), ([0, -1], -1), ([3, 10**12], 10**12)])
def test_a_batch_to_skip_must_be_there(skip: list[int], number: int) -> None:
    expected = rf"^skip has batch {number}, expected 0 to 9$"
    with pytest.raises(ValueError, match=expected):
        EpochSampler(NumberedBatches(range(10)), options=SamplerOptions(skip=skip))


def test_batches_that_are_new_in_each_epoch_can_not_be_skipped() -> None:
    with pytest.raises(ValueError, match="a token store has new batches in each epoch"):
        EpochSampler(NumberedBatches(range(10), is_fixed=False), options=SamplerOptions(skip=[1]))


@pytest.mark.parametrize(("rank", "world_size"), [(2, 2), (-1, 2), (1, None), (0, 0)])
def test_a_rank_must_be_there(rank: int, world_size: int | None) -> None:
    with pytest.raises(ValueError, match=rf"^rank is {rank}, expected 0 or more, below \d$"):
        EpochSampler(NumberedBatches([1]), rank=rank, world_size=world_size)


def test_a_negative_seed_or_epoch_is_refused() -> None:
    with pytest.raises(ValueError, match="seed is -1, expected at least 0"):
        EpochSampler(NumberedBatches([1]), seed=-1)
    with pytest.raises(ValueError, match="epoch is -1, expected at least 0"):
        EpochSampler(NumberedBatches([1])).set_epoch(-1)


def test_len_counts_what_is_left() -> None:
    sampler = EpochSampler(NumberedBatches([1] * 11), world_size=2, rank=1)
    found = []
    for _ in sampler:
        found.append(len(sampler))
    assert found == [5, 4, 3, 2, 1, 0]
    assert len(sampler) == 6  # of the next epoch
    sampler.skip_steps(2)
    assert len(sampler) == 4
    sampler.set_epoch(7)
    assert len(sampler) == 6


def test_peek_gives_what_comes_and_changes_nothing() -> None:
    samplers = make_ranks(NumberedBatches(range(11)), Way(2))
    before = samplers[0].state_dict()
    peeked = samplers[0].peek(3)
    assert (peeked.shape, peeked.dtype) == ((3, 2), np.int64)
    peeked[:] = 0  # the caller's own
    assert samplers[0].state_dict() == before
    peeked = samplers[0].peek(3)
    assert peeked.ravel().tolist() == take(samplers, 3)
    assert samplers[0].peek(99).shape == (3, 2)
    assert samplers[0].peek(0).shape == (0, 2)
    assert samplers[0].peek(99).ravel().tolist() == take(samplers, None)


def test_skip_steps_leaves_them_out_on_every_rank_for_good() -> None:
    batches = NumberedBatches(range(12))
    samplers, plain = (make_ranks(batches, Way(2)) for _ in range(2))
    order = take(plain, None)
    found = take(samplers, 2)
    for sampler in samplers:
        sampler.skip_steps(3)
        sampler.skip_steps(0)
    alone = EpochSampler(batches)
    alone.load_state_dict(through_json(samplers[0].state_dict()))
    assert take(samplers, None) == order[10:]
    assert take([alone], None) == order[10:]
    assert found == order[:4]
    assert take(samplers, None) == take(plain, None)  # the next epoch is whole


@pytest.mark.parametrize("num_steps", [-1, 5])
def test_skip_steps_stays_in_the_epoch(num_steps: int) -> None:
    sampler = EpochSampler(NumberedBatches(range(4)))
    with pytest.raises(
        ValueError, match=rf"^num_steps is {num_steps}, expected 0 to 4 in this epoch$"
    ):
        sampler.skip_steps(num_steps)


def test_set_epoch_is_that_of_torch_but_stays_in_the_epoch_it_is_in() -> None:
    batches = NumberedBatches(range(8))
    orders = [take([EpochSampler(batches)], None)]
    sampler = EpochSampler(batches)
    sampler.set_epoch(1)
    orders.append(take([sampler], 3))
    sampler.set_epoch(1)
    assert len(sampler) == 5
    orders[1] += take([sampler], None)
    assert sorted(orders[1]) == [*range(8)] != orders[1] != orders[0]
    sampler.set_epoch(1)  # which is over: from its beginning
    assert take([sampler], 2) == orders[1][:2]
    sampler.set_epoch(0)
    assert take([sampler], None) == orders[0]
    assert sampler.epoch == 1


def test_one_plan_serves_a_whole_epoch() -> None:
    batches = NumberedBatches(range(8))
    sampler = EpochSampler(batches)
    for _ in range(3):
        take([sampler], 2)
        sampler.peek(1)
        len(sampler)
        sampler.state_dict()
    assert batches.num_planned == 1


@pytest.mark.parametrize("num_taken", [0, 1, 8])
def test_states_at_the_ends_of_an_epoch(num_taken: int) -> None:
    batches = NumberedBatches(range(8))
    sampler, other = EpochSampler(batches, seed=2), EpochSampler(batches)
    sampler.set_epoch(3)
    found = take([sampler], num_taken)
    assert sampler.epoch == 3  # also after its last batch, as long as nobody asked for another
    other.load_state_dict(through_torch(sampler.state_dict()))
    if num_taken < 8:
        assert (other.epoch, len(other), other.seed) == (3, 8 - num_taken, 2)
        assert sorted(found + take([other], None)) == [*range(8)]
        take([sampler], None)
    assert (other.epoch, len(other)) == (4, 8)  # after the last batch the next epoch
    assert take([sampler], None) == take([other], None)


def test_a_state_holds_numbers_strings_and_lists() -> None:
    sampler = EpochSampler(
        NumberedBatches(range(8)),
        seed=3,
        world_size=2,
        options=SamplerOptions(skip=[5], balance="tokens"),
    )
    take([sampler], 2)
    dealing = {
        "world_size": 2,
        "drop_last": False,
        "repeat": True,
        "balance": "tokens",
        "longest_first": False,
        "skip": [5],
        "num_steps": 2,
    }
    expected = {"batches": "batches", "seed": 3, "shuffle": True, "epoch": 0, "taken": [dealing]}
    assert sampler.state_dict() == expected
    assert through_json(expected) == through_torch(expected) == expected


def test_a_state_is_a_copy() -> None:
    sampler = EpochSampler(NumberedBatches(range(8)))
    take([sampler], 2)
    state = sampler.state_dict()
    before = copy.deepcopy(state)
    other = EpochSampler(NumberedBatches(range(8)))
    other.load_state_dict(state)
    take([sampler], 2)
    take([other], 3)
    assert state == before
    state["taken"][0]["num_steps"] = 7
    state["taken"].clear()
    assert len(other) == 3


def test_a_state_of_other_batches_is_refused() -> None:
    state = EpochSampler(NumberedBatches(range(8), "others")).state_dict()
    sampler = EpochSampler(NumberedBatches(range(8)))
    with pytest.raises(
        ValueError, match=r"^the state is of other shards, or of a store with other"
    ):
        sampler.load_state_dict(state)


def test_a_state_that_is_not_a_dict_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^the state is 7, expected a dict$"):
        EpochSampler(NumberedBatches(range(8))).load_state_dict(7)  # type: ignore[arg-type]


def test_a_state_of_other_shards_is_refused(tmp_path: Path, dataset: ShardDataset) -> None:
    other = ShardDataset(make_shards(tmp_path, [5] * NUM_BATCHES, batch_size=1))
    with pytest.raises(ValueError, match="the state is of other shards"):
        EpochSampler(dataset).load_state_dict(EpochSampler(other).state_dict())
    again = ShardDataset(dataset.path, labels="next")  # the same batches
    EpochSampler(again).load_state_dict(EpochSampler(dataset).state_dict())


FLAGS = {"drop_last": False, "repeat": True, "balance": None, "longest_first": False}
DEALING = {"world_size": 2, "num_steps": 1, "skip": [], **FLAGS}
NO_STATES: list[Any] = [None, [], {}, "state"]
NO_VALUES: list[tuple[str, Any]] = [
    *[(name, value) for name in ("seed", "epoch") for value in (-1, "3", 1.5, None)],
    ("shuffle", "no"),
    *[("taken", value) for value in (None, {}, "ab", [1], [{}])],
]
NO_DEALINGS: list[dict[str, Any]] = [
    *[{"world_size": value} for value in (0, -1, "2", None, 2**20 + 1, 10**12)],
    *[{"num_steps": value} for value in (-1, "1", None)],
    {"num_steps": 99},  # more than there are
    *[{"skip": value} for value in (None, ["a"], [99])],
    *[{"balance": value} for value in (True, False, "cells", 1)],
    {"another": 1},
    {"drop_last": True, "repeat": False},
]


def check_refused(change: Callable[[State], Any]) -> None:
    """Expect a ValueError, and a sampler that stands where it stood."""
    sampler = EpochSampler(NumberedBatches(range(8)), world_size=2)
    sampler.skip_steps(1)
    state = change(sampler.state_dict())
    with pytest.raises(ValueError, match=r"the state |skip has batch 99|conflicts"):
        sampler.load_state_dict(state)
    assert (sampler.seed, sampler.shuffle, sampler.epoch, len(sampler)) == (0, True, 0, 3)


@pytest.mark.parametrize("state", NO_STATES)
def test_what_is_no_state_is_refused(state: Any) -> None:
    check_refused(lambda _: state)


@pytest.mark.parametrize("name", ["batches", "seed", "shuffle", "epoch", "taken"])
def test_a_state_that_lacks_something_is_refused(name: str) -> None:
    check_refused(lambda state: {key: state[key] for key in state if key != name})


@pytest.mark.parametrize(("name", "value"), NO_VALUES)
def test_a_state_with_a_wrong_value_is_refused(name: str, value: Any) -> None:
    check_refused(lambda state: {**state, name: value})


def test_more_ranks_than_memory_holds_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^world_size is 1000000000000, expected at most 1048576"):
        EpochSampler(NumberedBatches(range(8)), rank=0, world_size=10**12)


def test_the_dealing_that_the_next_test_changes_is_a_state() -> None:
    sampler = EpochSampler(NumberedBatches(range(8)), world_size=2)
    sampler.load_state_dict({**sampler.state_dict(), "taken": [DEALING]})
    assert len(sampler) == 3


def test_a_state_from_before_there_was_repeat_goes_on() -> None:
    sampler = EpochSampler(NumberedBatches(range(8)), world_size=2)
    dealing = {name: value for name, value in DEALING.items() if name != "repeat"}
    sampler.load_state_dict({**sampler.state_dict(), "taken": [dealing]})
    assert sampler.state_dict()["taken"] == [DEALING]


@pytest.mark.parametrize("change", NO_DEALINGS, ids=str)
def test_a_state_with_a_wrong_dealing_is_refused(change: dict[str, Any]) -> None:
    check_refused(lambda state: {**state, "taken": [{**DEALING, **change}]})


@pytest.mark.parametrize(
    ("num_batches", "way"),
    [
        (24, Way(4)),
        (26, Way(4, drop_last=True)),
        (24, Way(4, longest_first=True)),
        (26, Way(4)),
        (600, Way(4, balance="tokens")),
    ],
)
def test_a_run_that_goes_on_unchanged_is_the_unbroken_run(num_batches: int, way: Way) -> None:
    batches = NumberedBatches([number * 37 % 101 for number in range(num_batches)])
    unbroken, samplers = (make_ranks(batches, way, seed=1) for _ in range(2))
    found = []
    for _ in range(3):
        found += take(samplers, 1)
        state = through_json(samplers[0].state_dict())
        samplers = make_ranks(batches, way, seed=1)
        for sampler in samplers:
            sampler.load_state_dict(state)
    assert found + take(samplers, None) == take(unbroken, None)


def test_a_state_does_not_grow_with_the_stops() -> None:
    batches = NumberedBatches(range(24))
    sampler = EpochSampler(batches)
    for _ in range(5):
        take([sampler], 2)
        state = sampler.state_dict()
        sampler = EpochSampler(batches)
        sampler.load_state_dict(state)
    assert len(state["taken"]) == 1


@pytest.mark.parametrize("through", [through_json, through_torch])
def test_numpy_numbers_are_numbers(through: Callable[[State], State]) -> None:
    batches = NumberedBatches(range(24))
    seed, world_size = np.int64(4), np.int64(2)
    bad_steps = EpochSampler(batches).peek(2).ravel()
    sampler = EpochSampler(
        batches, seed=seed, world_size=world_size, options=SamplerOptions(skip=bad_steps)
    )
    sampler.set_epoch(np.int64(3))
    take([sampler], 2)
    state = sampler.state_dict()
    assert through(state) == state


def test_batches_come_through_the_loader(dataset: ShardDataset) -> None:
    sampler = EpochSampler(dataset, seed=1)
    loader = make_loader(dataset, sampler)
    epochs = []
    for epoch in range(3):
        assert sampler.epoch == epoch
        ahead = sampler.peek(NUM_BATCHES).ravel().tolist()
        assert len(loader) == NUM_BATCHES
        epochs.append([number_of(item) for item in loader])
        assert epochs[-1] == ahead
    assert all(sorted(epoch) == [*range(NUM_BATCHES)] for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3


def test_longest_batches_of_shards_come_first(dataset: ShardDataset) -> None:
    sampler = EpochSampler(dataset, world_size=2, options=SamplerOptions(longest_first=True))
    longest = {number_of(dataset[int(number)]) for number in sampler.peek(1)[0]}
    lengths = [int(item.lengths.sum()) for item in dataset]
    assert {lengths[number] for number in longest} == set(sorted(lengths)[-2:])


def test_ranks_with_loaders_share_an_epoch(dataset: ShardDataset) -> None:
    found = []
    for rank in range(4):
        sampler = EpochSampler(
            dataset, rank=rank, world_size=4, options=SamplerOptions(balance="tokens")
        )
        loader = make_loader(dataset, sampler)
        assert len(loader) == 6
        found.append([number_of(item) for item in loader])
    counts = Counter(itertools.chain(*found))
    assert [len(numbers) for numbers in found] == [6] * 4
    assert set(counts) == set(range(NUM_BATCHES))
    assert sorted(counts.values()) == [1] * (NUM_BATCHES - 2) + [2] * 2


@pytest.mark.parametrize("num_taken", [0, 1, 7, NUM_BATCHES - 1])
def test_a_tracked_loader_breaks_and_goes_on(dataset: ShardDataset, num_taken: int) -> None:
    sampler, unbroken = EpochSampler(dataset, seed=1), EpochSampler(dataset, seed=1)
    loader = sampler.track(make_loader(dataset, sampler))
    order = unbroken.peek(NUM_BATCHES).ravel().tolist()
    found = [number_of(item) for item in itertools.islice(loader, num_taken)]
    assert len(loader) == len(sampler) == NUM_BATCHES - num_taken
    assert sampler.epoch == 0
    other = EpochSampler(dataset)
    other.load_state_dict(through_json(sampler.state_dict()))
    for rest in (loader, other.track(make_loader(dataset, other))):
        assert found + [number_of(item) for item in rest] == order
    assert (sampler.epoch, other.epoch, len(loader)) == (1, 1, NUM_BATCHES)
    unbroken.set_epoch(1)
    following = unbroken.peek(NUM_BATCHES).ravel().tolist()
    assert [number_of(item) for item in loader] == following


@ignore_fork
@pytest.mark.parametrize("persistent_workers", [False, True])
def test_track_tells_what_the_loop_was_given_not_what_workers_fetched(
    dataset: ShardDataset, persistent_workers: bool
) -> None:
    options = {
        "num_workers": 2,
        "prefetch_factor": 3,
        "persistent_workers": persistent_workers,
        "multiprocessing_context": "fork",
    }
    sampler = EpochSampler(dataset, seed=1)
    order = sampler.peek(NUM_BATCHES).ravel().tolist()
    loader = sampler.track(make_loader(dataset, sampler, **options))
    found = []
    for item in loader:
        found.append(number_of(item))
        assert sampler.state_dict()["taken"][0]["num_steps"] == len(found)
        if len(found) == 5:
            break
    found += [number_of(item) for item in itertools.islice(loader, 4)]
    other = EpochSampler(dataset, rank=1, world_size=2)
    other.load_state_dict(through_torch(sampler.state_dict()))
    rest = [number_of(item) for item in loader]
    assert found + rest == order
    # The state of then, for two ranks and without workers.
    expected = [*rest, order[0]][1::2]
    assert [number_of(item) for item in other.track(make_loader(dataset, other))] == expected
    assert sampler.epoch == other.epoch == 1
    assert sorted(number_of(item) for item in loader) == [*range(NUM_BATCHES)]
    assert sampler.epoch == 2


@ignore_fork
def test_untracked_the_state_is_that_of_the_loader(dataset: ShardDataset) -> None:
    sampler = EpochSampler(dataset)
    loader = make_loader(dataset, sampler, num_workers=2, multiprocessing_context="fork")
    next(iter(loader))
    # 2 workers are asked for 2 batches each ahead, and for one more as one was given
    assert sampler.state_dict()["taken"][0]["num_steps"] == 5
    alone = EpochSampler(dataset)
    next(iter(make_loader(dataset, alone)))
    assert alone.state_dict()["taken"][0]["num_steps"] == 1


@ignore_fork
@pytest.mark.parametrize("num_workers", [0, 2])
def test_grouped_batches_are_given_one_by_one(dataset: ShardDataset, num_workers: int) -> None:
    options: dict[str, Any] = {"batch_size": 4, "collate_fn": list, "num_workers": num_workers}
    if num_workers:
        options["multiprocessing_context"] = "fork"
    sampler = EpochSampler(dataset, seed=1)
    order = sampler.peek(NUM_BATCHES).ravel().tolist()
    loader = sampler.track(make_loader(dataset, sampler, **options))
    assert len(loader) == NUM_BATCHES
    found = [number_of(item) for item in itertools.islice(loader, 6)]  # in the second group
    assert sampler.state_dict()["taken"][0]["num_steps"] == 6
    assert len(loader) == NUM_BATCHES - 6
    other = EpochSampler(dataset)
    other.load_state_dict(through_json(sampler.state_dict()))
    again = other.track(make_loader(dataset, other, **options))
    assert found + [number_of(item) for item in again] == order
    assert found + [number_of(item) for item in loader] == order
    assert sampler.epoch == other.epoch == 1


def test_two_epochs_of_a_store_go_on_for_other_ranks(tmp_path: Path) -> None:
    lengths = [3 + number % 9 for number in range(60)]
    make_shards(tmp_path, lengths)
    dataset = StoreDataset(tmp_path / "store")
    batches = StoreBatches(dataset, PackOptions(max_tokens=40, window=20))

    def loaders(state: State | None, world_size: int) -> Iterator[Any]:
        for rank in range(world_size):
            sampler = EpochSampler(batches, rank=rank, world_size=world_size, seed=9)
            if state is not None:
                sampler.load_state_dict(through_torch(state))
            collate = batches.make_collate()
            loader = DataLoader(dataset, batch_sampler=sampler, collate_fn=collate)
            yield sampler, sampler.track(loader)

    def indices_of(items: Any) -> list[int]:
        return [index for item in items for index in item.original_indices.tolist()]

    [(sampler, loader)] = loaders(None, 1)
    whole = [indices_of(loader) for _ in range(2)]
    assert [sorted(indices) for indices in whole] == [[*range(60)]] * 2
    assert whole[0] != whole[1]
    state, found = None, []
    for epoch in range(2):
        for world_size, num_steps in ((2, 1), (3, 1), (1, 2)):
            for sampler, loader in loaders(state, world_size):
                assert sampler.epoch == epoch
                found += indices_of(itertools.islice(loader, num_steps))
            state = sampler.state_dict()
        [(sampler, loader)] = loaders(state, 1)
        found += indices_of(loader)
        state = sampler.state_dict()
        assert sorted(found) == [*range(60)]
        found = []


def join_group(path: Path, rank: int, results: Any) -> None:
    """Be one of two processes of torch.distributed."""
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"file://{path}",
        rank=rank,
        world_size=2,
        timeout=timedelta(seconds=30),
    )
    batches = NumberedBatches(range(7))
    sampler, alone = EpochSampler(batches), EpochSampler(batches, rank=0, world_size=1)
    results.put((rank, sampler.rank, sampler.peek(99).tolist(), [*sampler], len([*alone])))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


@ignore_fork
def test_torch_distributed_says_rank_and_world_size(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    processes = [
        context.Process(target=join_group, args=(tmp_path / "store", rank, results))
        for rank in range(2)
    ]
    for process in processes:
        process.start()
    found = sorted(results.get(timeout=40) for _ in processes)
    for process in processes:
        process.join()
    steps = EpochSampler(NumberedBatches(range(7)), world_size=2).peek(99)
    for rank in range(2):
        given = (steps[:, rank] + NumberedBatches.FIRST_KEY).tolist()
        assert found[rank] == (rank, rank, steps.tolist(), given, 7)
    assert EpochSampler(NumberedBatches(range(7))).peek(99).shape == (7, 1)  # not initialized


@pytest.mark.parametrize("is_tracked", [False, True])
def test_unrepeated_passes_end_together_on_all_ranks(is_tracked: bool) -> None:
    """A rank without a batch in the last step stays in the epoch while others have one."""
    samplers = make_ranks(NumberedBatches(range(5)), Way(2, repeat=False), shuffle=False)
    passes: list[Any] = [it.track(it) for it in samplers] if is_tracked else samplers
    found = [[*itertools.islice(each, 2)] for each in passes]
    assert found == [[1000, 1002], [1001, 1003]]
    assert samplers[0].state_dict() == samplers[1].state_dict()
    assert [len(sampler) for sampler in samplers] == [1, 0]
    assert [sampler.epoch for sampler in samplers] == [0, 0]
    assert [[*each] for each in passes] == [[1004], []]
    assert [sampler.epoch for sampler in samplers] == [1, 1]
    assert [[*each] for each in passes] == [[1000, 1002, 1004], [1001, 1003]]
    assert [sampler.epoch for sampler in samplers] == [2, 2]


def test_a_rank_may_be_given_nothing() -> None:
    samplers = make_ranks(NumberedBatches(range(2)), Way(3, repeat=False), shuffle=False)
    for epoch in range(2):
        assert [sampler.epoch for sampler in samplers] == [epoch] * 3
        assert [sampler.count_steps() for sampler in samplers] == [1, 1, 0]
        assert samplers[2].peek(9).tolist() == [[0, 1, -1]]
        assert [[*sampler] for sampler in samplers] == [[1000], [1001], []]


def test_steps_are_skipped_on_a_rank_that_has_no_batch_in_the_last() -> None:
    samplers = make_ranks(NumberedBatches(range(5)), Way(2, repeat=False))
    for sampler in samplers:
        sampler.skip_steps(3)
        assert len(sampler) == 0
    assert samplers[0].state_dict() == samplers[1].state_dict()
    assert samplers[1].state_dict()["epoch"] == 1
    assert len(take(samplers, None)) == 5


def test_drop_last_conflicts_with_repeat_false() -> None:
    with pytest.raises(ValueError, match=r"^drop_last=True conflicts with repeat=False$"):
        SamplerOptions(drop_last=True, repeat=False)


def validate(group: Path, shards: Path, rank: int, results: Any) -> None:
    """Be one of two processes that go through a validation set together, twice."""
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"file://{group}",
        rank=rank,
        world_size=2,
        timeout=timedelta(seconds=30),
    )
    dataset = ShardDataset(shards)
    sampler = EpochSampler(dataset, shuffle=False, options=SamplerOptions(repeat=False))
    loader = make_loader(dataset, sampler)
    for _ in range(2):
        counts = torch.zeros(len(dataset), dtype=torch.int64)
        for batch in loader:
            counts[number_of(batch)] += 1
        num_own = int(counts.sum())
        torch.distributed.all_reduce(counts)
        results.put((rank, num_own, counts.tolist()))
    torch.distributed.destroy_process_group()


@ignore_fork
def test_two_processes_validate_every_batch_once(tmp_path: Path) -> None:
    shards = make_shards(tmp_path, [3, 1, 4, 1, 5, 9, 2], batch_size=1, order="none")
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    processes = [
        context.Process(target=validate, args=(tmp_path / "group", shards, rank, results))
        for rank in range(2)
    ]
    for process in processes:
        process.start()
    found = sorted(results.get(timeout=40) for _ in range(4))
    for process in processes:
        process.join()
    assert found == [(0, 4, [1] * 7)] * 2 + [(1, 3, [1] * 7)] * 2


def test_a_balanced_step_does_not_hold_a_batch_twice() -> None:
    samplers = make_ranks(NumberedBatches([*range(30)]), Way(4, balance="tokens"))
    assert all(len(set(step)) == 4 for step in samplers[0].peek(99).tolist())


def test_a_batch_is_not_given_more_than_twice_where_there_are_enough() -> None:
    samplers = make_ranks(NumberedBatches([*range(9)]), Way(8, longest_first=True))
    assert max(Counter(take(samplers, None)).values()) == 2


def test_a_loader_that_is_gone_through_without_its_tracker_still_ends(
    dataset: ShardDataset,
) -> None:
    sampler = EpochSampler(dataset)
    loader = make_loader(dataset, sampler)
    sampler.track(loader)
    epochs = [[number_of(item) for item in loader] for _ in range(2)]
    assert epochs[0] != epochs[1]


def test_a_loader_that_stops_early_does_not_lose_the_rest(dataset: ShardDataset) -> None:
    sampler = EpochSampler(dataset)
    loader = make_loader(dataset, sampler)
    found = [number_of(item) for item in sampler.track(itertools.islice(loader, 5))]
    assert len(found) == 5
    found += [number_of(item) for item in sampler.track(loader)]
    assert sorted(found) == [*range(NUM_BATCHES)]


@ignore_fork
@pytest.mark.parametrize("options", [{}, {"num_workers": 2, "multiprocessing_context": "fork"}])
def test_steps_skipped_inside_the_loop_end_it_and_stay_out(
    dataset: ShardDataset, options: dict[str, Any]
) -> None:
    sampler = EpochSampler(dataset)
    order = sampler.peek(NUM_BATCHES).ravel().tolist()
    loader = sampler.track(make_loader(dataset, sampler, **options))
    found = []
    while sampler.epoch == 0:
        for item in loader:
            found.append(number_of(item))
            if len(found) == 2:
                sampler.skip_steps(3)
    assert found == order[:2] + order[5:]


def test_a_pass_that_gives_nothing_ends_the_epoch(dataset: ShardDataset) -> None:
    sampler = EpochSampler(dataset)
    assert [*sampler.track(filter(None, []))] == []  # else a loop over epochs would have no end
    assert sampler.epoch == 1


@pytest.mark.parametrize("drop_last", [False, True])
def test_groups_that_are_dropped_end_the_epoch_too(dataset: ShardDataset, drop_last: bool) -> None:
    sampler = EpochSampler(dataset)
    loader = DataLoader(
        dataset, batch_size=5, sampler=sampler, collate_fn=list, drop_last=drop_last
    )
    for epoch in (1, 2):
        found = [number_of(item) for item in sampler.track(loader)]
        assert len(set(found)) == (20 if drop_last else NUM_BATCHES)
        assert (sampler.epoch, len(sampler)) == (epoch, NUM_BATCHES)


def test_the_epoch_can_not_be_set_by_hand(dataset: ShardDataset) -> None:
    with pytest.raises(AttributeError):
        EpochSampler(dataset).epoch = 3  # type: ignore[misc]


def test_after_the_last_batch_comes_the_next_epoch(dataset: ShardDataset) -> None:
    sampler = EpochSampler(dataset)
    loader = sampler.track(make_loader(dataset, sampler))
    iterator = iter(loader)
    first = [number_of(next(iterator)) for _ in range(len(sampler))]  # its end is never asked for
    assert sorted(first) == [*range(NUM_BATCHES)]
    assert (sampler.epoch, sampler.state_dict()["epoch"]) == (0, 1)
    second = [number_of(item) for item in loader]
    assert sorted(second) == [*range(NUM_BATCHES)]
    assert second != first
    assert sampler.epoch == 2


def test_a_loader_out_of_order_can_not_be_tracked(dataset: ShardDataset) -> None:
    sampler = EpochSampler(dataset)
    loader = make_loader(dataset, sampler, num_workers=2, in_order=False)
    with pytest.raises(
        ValueError, match=r"^the loader has in_order=False, which cannot be tracked$"
    ):
        sampler.track(loader)


def test_a_loader_of_another_sampler_is_not_tracked(dataset: ShardDataset) -> None:
    sampler = EpochSampler(dataset)
    for loader in (
        make_loader(dataset, EpochSampler(dataset)),
        DataLoader(dataset, batch_size=None, shuffle=True),
        DataLoader(dataset, batch_size=4, collate_fn=list),
    ):
        with pytest.raises(
            ValueError, match=r"^the loader has another sampler, expected this one$"
        ):
            sampler.track(loader)
    tracked = sampler.track(make_loader(dataset, sampler))
    with pytest.raises(ValueError, match=r"^the loader is already tracked$"):
        sampler.track(tracked)


def test_a_loader_of_another_dataset_is_not_tracked(
    dataset: ShardDataset, byte_store: Callable[..., Path]
) -> None:
    first, second = (StoreDataset(byte_store(["ab", "c"] * n, name=f"{n}")) for n in (1, 2))
    batches = StoreBatches(first, PackOptions("padded", batch_size=1))
    pairs: list[tuple[Any, Any]] = [
        (dataset[-5:], dataset),
        (dataset, dataset[-5:]),
        (dataset[:5], dataset[-5:]),
        (ConcatDataset([dataset, dataset[:2]]), ConcatDataset([dataset[:2], dataset])),
        (batches, second),
        (batches, dataset),
        (dataset, first),
    ]
    for sampled, read in pairs:
        sampler = EpochSampler(sampled)
        with pytest.raises(
            ValueError, match=r"^the loader has another dataset, expected that of this sampler$"
        ):
            sampler.track(make_loader(read, sampler))


class Wrapped(Dataset[Any]):
    """A dataset of a user, which changes the items of another one."""

    def __init__(self, dataset: Dataset[Any]) -> None:
        self.dataset = dataset

    def __getitem__(self, index: int) -> Any:
        return (self.dataset[index],)


def test_a_loader_of_the_same_content_is_tracked(
    dataset: ShardDataset, byte_store: Callable[..., Path]
) -> None:
    store = byte_store(["ab", "c"])
    labelled = ShardDataset(dataset.path, labels="next")
    batches = StoreBatches(StoreDataset(store), PackOptions("padded", batch_size=1))
    pairs: list[tuple[Any, Any]] = [
        (dataset, labelled),
        (dataset, Wrapped(dataset)),
        (dataset[2:], labelled[2:]),
        (dataset[2:], Wrapped(dataset[2:])),
        (ConcatDataset([dataset, dataset[:2]]), ConcatDataset([labelled, labelled[:2]])),
        (batches, StoreDataset(store)),
    ]
    for sampled, read in pairs:
        sampler = EpochSampler(sampled)
        sampler.track(make_loader(read, sampler))


@pytest.mark.parametrize("collate", [lambda batches: batches[0], lambda batches: {"a": batches}])
def test_a_fetch_of_several_batches_must_be_a_list(
    dataset: ShardDataset, collate: Callable[[list[Any]], Any]
) -> None:
    sampler = EpochSampler(dataset)
    loader = DataLoader(dataset, batch_size=4, sampler=sampler, collate_fn=collate)
    with pytest.raises(TypeError, match=r"expected a list: pass collate_fn=list, or batch_size"):
        list(sampler.track(loader))
    assert len(sampler) == NUM_BATCHES


def test_a_sampler_that_was_used_can_be_pickled(dataset: ShardDataset, tmp_path: Path) -> None:
    store = StoreDataset(make_store(tmp_path, make_texts([3, 1, 4, 1, 5, 9, 2, 6])))
    for batches in (dataset, StoreBatches(store, PackOptions(batch_size=2))):
        sampler = EpochSampler(batches, seed=3)
        next(iter(sampler))
        for again in (pickle.loads(pickle.dumps(sampler)), copy.deepcopy(sampler)):  # noqa: S301
            assert again.state_dict() == sampler.state_dict()
            assert again.peek(99).tolist() == sampler.peek(99).tolist()


def test_steps_of_a_whole_epoch_are_counted() -> None:
    batches = NumberedBatches(range(10))
    for way, expected in ((Way(3), 4), (Way(3, drop_last=True), 3), (Way(2, skip=(1, 2, 3)), 4)):
        sampler = make_ranks(batches, way)[0]
        assert sampler.count_steps() == len(sampler) == expected
        next(iter(sampler))
        assert (sampler.count_steps(), len(sampler)) == (expected, expected - 1)


def test_windows_of_balanced_steps_have_about_one_size() -> None:
    # Of 66 steps, 64 and 2 would leave two steps of any batches at all.
    costs = np.random.default_rng(0).lognormal(8, 1, 132).astype(np.int64)
    steps = EpochSampler(
        NumberedBatches(costs.tolist()),
        rank=0,
        world_size=2,
        options=SamplerOptions(balance="tokens"),
    )
    dealt = costs[steps.peek(99)]
    ratios = np.sort(dealt.max(axis=1) / dealt.min(axis=1))
    assert ratios[-2] < 1.3


@pytest.mark.parametrize("batches", ["shards", [1, 2], None])
def test_a_sampler_of_no_batches_is_a_type_error(batches: Any) -> None:
    expected = r"^batches is a \w+, expected a ShardDataset, a Subset or ConcatDataset of them, or "
    with pytest.raises(TypeError, match=expected):
        EpochSampler(batches)
