"""Each argument of torch's DataLoader has torch's documented meaning with a ShardDataset.

The oracle is torch's own: a DataLoader over plain numbers, with the same arguments, says which
batches come in which order.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from shard_reference import (
    Arrays,
    change_shard,
    make_shards,
    make_store,
    make_texts,
    read_manifest_json,
)
from tensor_reference import ON_CPU, assert_same, rows_of, tensors_of
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    RandomSampler,
    Sampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    WeightedRandomSampler,
    default_convert,
    get_worker_info,
    random_split,
)
from torch.utils.data.distributed import DistributedSampler

from seqpack_cli.errors import FolderError
from seqpack_cli.training.batch_tensors import BatchTensors, PackedTensors
from seqpack_cli.training.collate import collate_packed, collate_padded
from seqpack_cli.training.shard_dataset import ShardDataset
from seqpack_cli.training.store_dataset import StoreDataset

OPTIONS: dict[str, dict[str, Any]] = {
    "packed": {"layout": "packed", "batch_size": 2},
    "padded": {"layout": "padded", "batch_size": 2, "padding_side": "left"},
    "varlen": {"layout": "varlen", "batch_size": None, "max_tokens": 10, "fill": "sequential"},
}
LENGTHS = (3, 9, 5, 2, 5, 9, 4, 6, 4, 8, 2, 5, 7, 3, 6, 4, 9, 2, 3)
FORKED: dict[str, Any] = {"num_workers": 2, "multiprocessing_context": "fork"}

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),  # on a single core
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]


@pytest.fixture(scope="module", params=OPTIONS)
def dataset(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> ShardDataset:
    """Open 10 batches or more in several shards."""
    folder = tmp_path_factory.mktemp(request.param)
    path = make_shards(folder, LENGTHS, shard_bytes=350, **OPTIONS[request.param])
    made = ShardDataset(path, labels="next")
    assert len(made) >= 10
    return made


only_packed = pytest.mark.parametrize("dataset", ["packed"], indirect=True)


def seeded(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def find_order(num_batches: int, num_epochs: int = 1, **arguments: Any) -> list[list[Any]]:
    """Return what a DataLoader over the numbers of the batches yields, epoch after epoch."""
    numbers: Any = range(num_batches)
    loader: DataLoader[Any] = DataLoader(numbers, **{"batch_size": None, **arguments})
    return [list(loader) for _ in range(num_epochs)]


def assert_order(
    found: Iterable[BatchTensors], dataset: ShardDataset, numbers: Iterable[int]
) -> None:
    """Assert that the batches of these numbers came, in this order, as the dataset has them."""
    for item, number in zip(found, numbers, strict=True):
        assert_same(item, dataset[number])


def test_without_arguments_batches_come_in_their_order(dataset: ShardDataset) -> None:
    loader = DataLoader(dataset, batch_size=None)
    assert len(loader) == len(dataset)
    for _ in range(2):
        assert_order(loader, dataset, range(len(dataset)))


def test_shuffle_gives_the_order_of_random_sampler(dataset: ShardDataset) -> None:
    generator, same = seeded(), seeded()
    loader = DataLoader(dataset, batch_size=None, shuffle=True, generator=generator)
    assert isinstance(loader.sampler, RandomSampler)
    orders = []
    for _ in range(3):
        torch.empty((), dtype=torch.int64).random_(generator=same)  # the workers' seed, drawn first
        orders.append(list(RandomSampler(dataset, generator=same)))
        assert_order(loader, dataset, orders[-1])
    assert sorted(orders[0]) == list(range(len(dataset)))
    assert orders[0] != orders[1] != orders[2]


def test_the_same_generator_gives_the_same_order(dataset: ShardDataset) -> None:
    count = len(dataset)
    expected = find_order(count, 2, shuffle=True, generator=seeded())
    for _ in range(2):
        loader = DataLoader(dataset, batch_size=None, shuffle=True, generator=seeded())
        for order in expected:
            assert_order(loader, dataset, order)
    assert find_order(count, shuffle=True, generator=seeded(4))[0] not in expected
    loader = DataLoader(dataset, batch_size=None, shuffle=True, generator=seeded(4))
    assert_order(loader, dataset, find_order(count, shuffle=True, generator=seeded(4))[0])


def test_shuffle_without_a_generator_follows_manual_seed(dataset: ShardDataset) -> None:
    torch.manual_seed(5)
    (expected,) = find_order(len(dataset), shuffle=True)
    torch.manual_seed(5)
    assert_order(DataLoader(dataset, batch_size=None, shuffle=True), dataset, expected)


def test_reading_draws_no_random_numbers(dataset: ShardDataset) -> None:
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()
    for _ in DataLoader(dataset, batch_size=None, generator=seeded()):
        pass
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]


def test_num_workers_change_neither_batches_nor_their_order(dataset: ShardDataset) -> None:
    arguments: dict[str, Any] = {"batch_size": None, "shuffle": True}
    expected = find_order(len(dataset), 2, shuffle=True, generator=seeded())
    for workers in ({"num_workers": 0}, {**FORKED, "num_workers": 1}, FORKED):
        loader = DataLoader(dataset, **arguments, generator=seeded(), **workers)
        for order in expected:
            assert_order(loader, dataset, order)


def test_more_workers_than_batches_give_each_batch_once(tmp_path: Path) -> None:
    dataset = ShardDataset(make_shards(tmp_path, [2], batch_size=1))
    assert_order(DataLoader(dataset, batch_size=None, **FORKED), dataset, [0])


@only_packed
@pytest.mark.parametrize("persistent_workers", [False, True])
def test_persistent_workers_live_for_two_epochs(
    dataset: ShardDataset, tmp_path: Path, persistent_workers: bool
) -> None:
    def note(worker_id: int) -> None:
        (tmp_path / f"{worker_id}-{os.getpid()}").touch()

    arguments: dict[str, Any] = {"shuffle": True, "persistent_workers": persistent_workers}
    loader = DataLoader(
        dataset,
        batch_size=None,
        generator=seeded(),
        worker_init_fn=note,
        **arguments,
        **FORKED,
    )
    expected = find_order(len(dataset), 2, generator=seeded(), **arguments, **FORKED)
    assert expected[0] != expected[1]
    for order in expected:
        assert_order(loader, dataset, order)
    assert len(list(tmp_path.iterdir())) == (2 if persistent_workers else 4)


@pytest.mark.parametrize(  # a process that imports torch each
    "dataset",
    [
        "packed",
        pytest.param("padded", marks=pytest.mark.slow),
        pytest.param("varlen", marks=pytest.mark.slow),
    ],
    indirect=True,
)
def test_multiprocessing_context_may_be_spawn(dataset: ShardDataset) -> None:
    list(dataset)  # maps are open now, and do not travel
    arguments: dict[str, Any] = {"batch_size": None, "shuffle": True, "persistent_workers": True}
    loader = DataLoader(
        dataset,
        generator=seeded(),
        num_workers=1,
        multiprocessing_context="spawn",
        **arguments,
    )
    for order in find_order(len(dataset), 2, generator=seeded(), **arguments, **FORKED):
        assert_order(loader, dataset, order)


class CountedSampler(Sampler[int]):
    """A sampler that tells how many numbers it was asked for."""

    def __init__(self, count: int) -> None:
        self.count, self.num_asked = count, 0

    def __iter__(self) -> Iterator[int]:
        for number in range(self.count):
            self.num_asked += 1
            yield number


@only_packed
@pytest.mark.parametrize("prefetch_factor", [1, 3])
def test_prefetch_factor_is_batches_ahead_for_each_worker(
    dataset: ShardDataset, prefetch_factor: int
) -> None:
    sampler = CountedSampler(len(dataset))
    loader = DataLoader(
        dataset, batch_size=None, sampler=sampler, prefetch_factor=prefetch_factor, **FORKED
    )
    items = iter(loader)
    for index in range(len(dataset)):
        # all that was asked for ahead, and one more for each batch that was taken
        assert sampler.num_asked == min(2 * prefetch_factor + index, len(dataset))
        assert_same(next(items), dataset[index])
    assert next(items, None) is None


Samplers = Callable[[Any], Any]
SAMPLERS: dict[str, Samplers] = {
    "sequential": SequentialSampler,
    "random": lambda data: RandomSampler(data, generator=seeded()),
    "with replacement": lambda data: RandomSampler(
        data, replacement=True, num_samples=25, generator=seeded()
    ),
    "subset": lambda _: SubsetRandomSampler([7, 1, 4], generator=seeded()),
    "weighted": lambda data: WeightedRandomSampler(
        [float(number % 3) for number in range(len(data))], 20, generator=seeded()
    ),
    "weighted, each once": lambda data: WeightedRandomSampler(
        [1.0 + number for number in range(len(data))],
        len(data),
        replacement=False,
        generator=seeded(),
    ),
    "a list": lambda _: [3, 3, 0],
    "a tensor": lambda data: torch.randperm(len(data), generator=seeded()),
    "an array": lambda data: np.arange(len(data))[::-1],
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_sampler_says_which_batches_come(dataset: ShardDataset, name: str) -> None:
    (numbers,) = find_order(len(dataset), sampler=SAMPLERS[name](range(len(dataset))))
    sampler = SAMPLERS[name](dataset)
    loader = DataLoader(dataset, batch_size=None, sampler=sampler)
    assert len(loader) == len(sampler) == len(numbers)
    assert_order(loader, dataset, map(int, numbers))


def test_weights_of_zero_leave_batches_out(dataset: ShardDataset) -> None:
    weights = [0.0] * len(dataset)
    weights[2] = weights[5] = 1.0
    sampler = WeightedRandomSampler(weights, 12, generator=seeded())
    found = [rows_of(item) for item in DataLoader(dataset, batch_size=None, sampler=sampler)]
    assert len(found) == 12
    assert all(rows in (rows_of(dataset[2]), rows_of(dataset[5])) for rows in found)


@only_packed
def test_sampler_excludes_shuffle(dataset: ShardDataset) -> None:
    with pytest.raises(ValueError, match="mutually exclusive"):
        DataLoader(dataset, batch_size=None, shuffle=True, sampler=SequentialSampler(dataset))


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("num_ranks", [2, 3, 7])
def test_distributed_sampler_deals_batches_to_ranks(
    dataset: ShardDataset, num_ranks: int, drop_last: bool
) -> None:
    epochs = []
    for epoch in range(2):
        dealt: list[list[int]] = []
        for rank in range(num_ranks):
            samplers = [
                DistributedSampler(data, num_ranks, rank, seed=3, drop_last=drop_last)
                for data in (dataset, range(len(dataset)))
            ]
            for sampler in samplers:
                sampler.set_epoch(epoch)
            (numbers,) = find_order(len(dataset), sampler=samplers[1])
            loader = DataLoader(dataset, batch_size=None, sampler=samplers[0])
            assert_order(loader, dataset, numbers)
            dealt.append(numbers)
        whole, rest = divmod(len(dataset), num_ranks)
        assert {len(numbers) for numbers in dealt} == {whole + (rest > 0 and not drop_last)}
        seen = {number for numbers in dealt for number in numbers}
        assert len(seen) == (whole * num_ranks if drop_last else len(dataset))
        epochs.append(dealt)
    assert epochs[0] != epochs[1]


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("workers", [{}, FORKED], ids=["alone", "workers"])
def test_batch_size_is_batches_in_a_list(
    dataset: ShardDataset, workers: dict[str, Any], drop_last: bool
) -> None:
    arguments: dict[str, Any] = {"batch_size": 4, "collate_fn": list, "drop_last": drop_last}
    (groups,) = find_order(len(dataset), shuffle=True, generator=seeded(), **arguments)
    whole, rest = divmod(len(dataset), 4)
    assert rest
    assert [len(group) for group in groups] == [4] * whole + [rest] * (not drop_last)
    loader = DataLoader(dataset, shuffle=True, generator=seeded(), **arguments, **workers)
    assert len(loader) == len(groups)
    for found, group in zip(loader, groups, strict=True):
        assert type(found) is list
        assert_order(found, dataset, group)


@pytest.mark.parametrize("drop_last", [False, True])
def test_batch_sampler_says_which_batches_come_together(
    dataset: ShardDataset, drop_last: bool
) -> None:
    sampler = BatchSampler(RandomSampler(dataset, generator=seeded()), 4, drop_last)
    groups = list(BatchSampler(RandomSampler(dataset, generator=seeded()), 4, drop_last))
    loader = DataLoader(dataset, batch_sampler=sampler, collate_fn=list, generator=seeded(9))
    assert len(loader) == len(groups)
    for found, group in zip(loader, groups, strict=True):
        assert_order(found, dataset, group)


@only_packed
def test_drop_last_needs_a_batch_size(dataset: ShardDataset) -> None:
    with pytest.raises(ValueError, match=r"^batch_size=None option .* mutually exclusive"):
        DataLoader(dataset, batch_size=None, drop_last=True)
    with pytest.raises(ValueError, match="mutually exclusive"):
        sampler = BatchSampler(SequentialSampler(dataset), 4, False)
        DataLoader(dataset, batch_sampler=sampler, drop_last=True)


def test_default_collate_says_that_batches_are_made_already(dataset: ShardDataset) -> None:
    name = type(dataset[0]).__name__
    for arguments in ({}, {"batch_size": 4}):
        with pytest.raises(TypeError, match=f"default_collate: .*{name}"):
            next(iter(DataLoader(dataset, **arguments)))


def test_default_convert_leaves_items_alone(dataset: ShardDataset) -> None:
    item = dataset[0]
    assert default_convert(item) is item
    assert DataLoader(dataset, batch_size=None).collate_fn is default_convert


@pytest.mark.parametrize("workers", [{}, FORKED], ids=["alone", "workers"])
def test_collate_fn_is_called_for_each_batch(
    dataset: ShardDataset, workers: dict[str, Any]
) -> None:
    loader = DataLoader(dataset, batch_size=None, collate_fn=rows_of, **workers)
    assert list(loader) == [rows_of(item) for item in dataset]


def test_worker_init_fn_runs_in_each_worker_with_its_own_dataset(
    dataset: ShardDataset, tmp_path: Path
) -> None:
    def leave_labels_out(worker_id: int) -> None:
        found = get_worker_info()
        assert isinstance(found.dataset, ShardDataset)
        found.dataset.labels = None
        (tmp_path / f"{found.id} of {found.num_workers} is {worker_id}").touch()

    loader = DataLoader(
        dataset, batch_size=None, worker_init_fn=leave_labels_out, generator=seeded(), **FORKED
    )
    assert_order(loader, ShardDataset(dataset.path), range(len(dataset)))
    assert dataset.labels == "next"  # that of this process
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["0 of 2 is 0", "1 of 2 is 1"]
    assert get_worker_info() is None


@only_packed
def test_timeout_is_of_a_batch_that_does_not_come(dataset: ShardDataset) -> None:
    loader = DataLoader(dataset, batch_size=None, timeout=300, **FORKED)
    assert_order(loader, dataset, range(len(dataset)))
    with pytest.raises(ValueError, match="timeout"):
        DataLoader(dataset, batch_size=None, timeout=-1)


@only_packed
def test_in_order_false_gives_each_batch_once(dataset: ShardDataset) -> None:
    try:
        loader = DataLoader(dataset, batch_size=None, in_order=False, **FORKED)
    except TypeError:
        pytest.skip("torch before 2.6 has no in_order")
    found = sorted(rows_of(item) for item in loader)
    assert found == sorted(rows_of(item) for item in dataset)


@only_packed
@pytest.mark.parametrize(
    "arguments", [{"prefetch_factor": 2}, {"persistent_workers": True}], ids=str
)
def test_arguments_of_workers_need_workers(
    dataset: ShardDataset, arguments: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match="num_workers > 0"):
        DataLoader(dataset, batch_size=None, **arguments)


def test_datasets_are_cut_and_joined_as_torch_does(dataset: ShardDataset) -> None:
    count = len(dataset)
    assert_order(DataLoader(Subset(dataset, [5, 0]), batch_size=None), dataset, [5, 0])
    parts = random_split(dataset, [count - 3, 3], generator=seeded())
    numbers = random_split(range(count), [count - 3, 3], generator=seeded())  # type: ignore[arg-type]
    for part, expected in zip(parts, numbers, strict=True):
        assert_order(DataLoader(part, batch_size=None), dataset, list(expected))
    both = DataLoader(ConcatDataset([dataset, dataset]), batch_size=None)
    assert_order(both, dataset, [*range(count), *range(count)])


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """Make three shards of several batches, and put an id that is none at the end of the first."""
    path = make_shards(tmp_path, [5] * 16, batch_size=2, shard_bytes=350)

    def change(arrays: Arrays) -> None:
        arrays["data"][-1] = 300

    change_shard(path, change)
    return path


@pytest.mark.parametrize("workers", [{}, FORKED], ids=["alone", "workers"])
def test_a_loader_goes_on_after_a_damaged_batch(damaged: Path, workers: dict[str, Any]) -> None:
    dataset = ShardDataset(damaged)
    bad = read_manifest_json(damaged)["shards"][0]["num_batches"] - 1
    assert 0 < bad < len(dataset) - 1
    loader = DataLoader(dataset, batch_size=None, **workers)
    message = rf"shard-00000\.safetensors: batch {bad}: id 300 at cell 9, expected ids from 0 to"
    for _ in range(2):
        items = iter(loader)
        for index in range(len(dataset)):
            if index == bad:
                with pytest.raises(FolderError, match=message):
                    next(items)
            else:
                assert_same(next(items), dataset[index])
        assert next(items, None) is None


def test_an_error_of_a_worker_is_shown_in_lines(damaged: Path) -> None:
    items = iter(DataLoader(ShardDataset(damaged), batch_size=None, **FORKED))
    with pytest.raises(FolderError) as found:
        list(items)
    list(items)  # at its end the workers end; else some later test waits for them, 5 s each
    lines = str(found.value).splitlines()
    assert lines[0].startswith("Caught FolderError in DataLoader worker process")
    assert any(line.endswith("id 300 at cell 9, expected ids from 0 to 258") for line in lines)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device to pin memory for")
@pytest.mark.skipif(torch.backends.mps.is_available(), reason="there is a device of another kind")
@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true but")
def test_pin_memory_without_a_device_changes_nothing(dataset: ShardDataset) -> None:
    loader = DataLoader(dataset, batch_size=None, pin_memory=True)
    assert_order(loader, dataset, range(len(dataset)))


@pytest.mark.cuda
@pytest.mark.parametrize("workers", [{}, FORKED], ids=["alone", "workers"])
def test_pin_memory_pins_every_batch_for_the_device(
    dataset: ShardDataset, workers: dict[str, Any]
) -> None:
    arguments: dict[str, Any] = {"shuffle": True, "pin_memory": True, **workers}
    loader = DataLoader(dataset, batch_size=None, generator=seeded(), **arguments)
    (numbers,) = find_order(len(dataset), shuffle=True, generator=seeded())
    for item, number in zip(loader, numbers, strict=True):
        assert_same(item, dataset[number])
        moved = item.to("cuda", non_blocking=True)
        for name, tensor in tensors_of(item).items():
            assert tensor.is_pinned() is (name not in ON_CPU), name
            assert tensors_of(moved)[name].is_cuda is (name not in ON_CPU), name
        assert rows_of(moved) == rows_of(dataset[number])
        assert_same(moved.to("cpu"), dataset[number])


@pytest.mark.cuda
def test_pin_memory_pins_batches_in_a_list(dataset: ShardDataset) -> None:
    loader = DataLoader(dataset, batch_size=4, collate_fn=list, pin_memory=True)
    for item, expected in zip((item for group in loader for item in group), dataset, strict=True):
        assert_same(item, expected)
        for name, tensor in tensors_of(item).items():
            assert tensor.is_pinned() is (name not in ON_CPU), name


@pytest.mark.cuda
@pytest.mark.parametrize("collate", [collate_packed, partial(collate_padded, pad_id=0)])
def test_pin_memory_pins_batches_of_a_store(tmp_path: Path, collate: Callable[..., Any]) -> None:
    dataset = StoreDataset(make_store(tmp_path, make_texts(LENGTHS)))
    for batch in DataLoader(dataset, batch_size=4, collate_fn=collate, pin_memory=True):
        ids = batch.sequences.data if isinstance(batch, PackedTensors) else batch.ids
        assert ids.is_pinned()
        assert rows_of(batch.to("cuda", non_blocking=True)) == rows_of(batch)
