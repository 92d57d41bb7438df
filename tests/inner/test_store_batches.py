"""Batches of a token store made while training, beside those that pack writes of it."""

from __future__ import annotations

import functools
import itertools
import json
import pickle
import random
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from batching_reference import Parts
from here import HERE
from shard_reference import make_store, make_texts
from torch.utils.data import BatchSampler, DataLoader

from seqpack_cli.batching.options import PackOptions
from seqpack_cli.batching.order import epoch_seed
from seqpack_cli.batching.plan import plan_batches
from seqpack_cli.batching.selection import OverlongError
from seqpack_cli.errors import DataError, OptionError
from seqpack_cli.shards.layouts import Batch
from seqpack_cli.shards.pack import pack
from seqpack_cli.shards.packed import PackedBatch
from seqpack_cli.shards.padded import PaddedBatch
from seqpack_cli.shards.shard_set import ShardSet, open_shards
from seqpack_cli.shards.shared_rows import VarlenBatch
from seqpack_cli.training.batch_tensors import PackedTensors, PaddedTensors, VarlenTensors
from seqpack_cli.training.collate import collate_packed
from seqpack_cli.training.dealing import SamplerOptions
from seqpack_cli.training.epoch_sampler import EpochSampler
from seqpack_cli.training.shard_dataset import ShardDataset
from seqpack_cli.training.store_batches import StoreBatches
from seqpack_cli.training.store_dataset import FILLER, Piece, StoreDataset

LENGTHS = (3, 9, 5, 1, 5, 12, 2, 30, 7, 1, 1, 16, 4, 4, 25, 3, 8, 2, 6, 2, 19, 5, 5, 11)
SEED = 5
SHUFFLED_EPOCH = 2

# Values of each option that change batches; the first is the default.
CHOICES: dict[str, tuple[Any, ...]] = {
    "layout": ("packed", "padded", "varlen"),
    "batch_size": (None, 1, 4),
    "max_tokens": (None, 20, 64),
    "order": ("length", "none"),
    "window": (None, 5),
    "buckets": (None, "auto", (8, 16), (8, 16, 32)),
    "num_buckets": (None, 3),
    "fill": (None, "best-fit", "sequential", "chunk"),
    "overflow": (None, "error", "drop", "split"),
    "last_batch": ("keep", "drop", "pad"),
    "drop_shorter": (None, 2),
    "drop_longer": (None, 18),
    "where": ((), ("@length != 5",)),
    "pad_to_multiple": (1, 8),
    "align_sequences": (1, 4),
    "padding_side": ("right", "left"),
    "pad_id": (None, 7),
}
# Options that select documents, or that only pairs have: tests/test_training_several_stores.py
SELECTION = {"split", "split_name", "split_seed", "split_by", "passes", "share", "max_passes"}
SELECTION |= {"drop_column", "store_column", "keep_without_target", "count"}
NUM_DRAWS = 6000

LAYOUTS: dict[str, dict[str, Any]] = {
    "packed": {"max_tokens": 40, "window": 8},
    "filler": {"layout": "padded", "batch_size": 4, "last_batch": "pad", "buckets": (8, 32)},
    "left": {"layout": "padded", "batch_size": 3, "padding_side": "left", "pad_to_multiple": 4},
    "pieces": {"layout": "varlen", "max_tokens": 11},
    "rows": {"layout": "varlen", "max_tokens": 16, "batch_size": 2, "align_sequences": 4},
}


def is_taken(options: dict[str, Any]) -> bool:
    """Return whether pack takes these options for a store of LENGTHS."""
    try:
        return plan_batches(Parts([LENGTHS]), PackOptions(**options).resolve()).num_batches > 0
    except (OptionError, OverlongError):
        return False


@functools.cache
def draw_options(seed: int, num_draws: int) -> list[dict[str, Any]]:
    """Draw options, of which those remain that pack takes: many exclude each other."""
    draw = random.Random(seed)
    drawn = []
    for _ in range(num_draws):
        share = draw.random()  # of the options that are given
        options = {
            name: draw.choice(values)
            for name, values in CHOICES.items()
            if name == "layout" or draw.random() < share
        }
        if is_taken(options):
            drawn.append(options)
    return drawn


def pairs_of(options: dict[str, Any]) -> set[tuple[tuple[str, Any], ...]]:
    """Return every pair of values of two options."""
    values = [(name, options.get(name, choices[0])) for name, choices in CHOICES.items()]
    return {*itertools.combinations(values, 2)}


@functools.cache
def choose_options() -> list[dict[str, Any]]:
    """Choose options so that every two values that can go together do so once."""
    seen: set[tuple[tuple[str, Any], ...]] = set()
    chosen = []
    for options in sorted(draw_options(0, NUM_DRAWS), key=len, reverse=True):
        if pairs_of(options) - seen:
            seen |= pairs_of(options)
            chosen.append(options)
    return chosen


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a store of several parts."""
    path = make_store(tmp_path_factory.mktemp("batches"), make_texts(LENGTHS), part_bytes=60)
    assert len([*path.glob("*.bin")]) > 2
    return path


@pytest.fixture(scope="module")
def dataset(store: Path) -> StoreDataset:
    return StoreDataset(store)


def make_loader(
    batches: StoreBatches,
    sampler: EpochSampler | BatchSampler,
    *,
    labels: str | None = None,
    **options: Any,
) -> DataLoader[Any]:
    """Make the loader of the documentation."""
    collate = batches.make_collate(labels=labels)
    return DataLoader(batches.dataset, batch_sampler=sampler, collate_fn=collate, **options)


def read_epoch(
    batches: StoreBatches, epoch: int, *, shuffle: bool = True, per_fetch: int | None = None
) -> list[Any]:
    """Read all batches of an epoch, one by one or several per fetch."""
    sampler = EpochSampler(batches, seed=SEED, shuffle=shuffle)
    sampler.set_epoch(epoch)
    if per_fetch is None:
        return list(make_loader(batches, sampler))
    fetches = BatchSampler(sampler, per_fetch, drop_last=False)
    return list(sampler.track(make_loader(batches, fetches)))


def write_epoch(
    store: Path, output: Path, epoch: int, options: dict[str, Any], *, shuffle: bool = True
) -> ShardSet:
    """Let pack write the batches of an epoch."""
    seed = epoch_seed(SEED, epoch) if shuffle else 0
    packing = PackOptions(**options, shuffle=shuffle, seed=seed)
    pack(store, output, packing, executor=HERE)
    return open_shards(output)


def check_same(found: Any, written: Batch) -> None:
    """Compare a batch of tensors with one of a shard, cell by cell."""
    assert written.original_indices is not None
    assert found.lengths.tolist() == written.lengths.tolist()
    assert found.original_indices.tolist() == written.original_indices.tolist()
    if isinstance(written, PackedBatch):
        assert isinstance(found, PackedTensors)
        assert found.sequences.data.tolist() == written.data.tolist()
        assert found.sequences.batch_sizes.tolist() == written.batch_sizes.tolist()
    elif isinstance(written, PaddedBatch):
        assert isinstance(found, PaddedTensors)
        assert found.ids.tolist() == written.ids.tolist()
        assert found.mask.tolist() == written.mask.tolist()
    else:
        assert isinstance(written, VarlenBatch)
        expected = VarlenTensors.from_batch(written)
        assert {name: spell(getattr(found, name)) for name in VarlenTensors.__slots__} == {
            name: spell(getattr(expected, name)) for name in VarlenTensors.__slots__
        }


def spell(value: Any) -> Any:
    """Return a value that can be compared: a tensor as its type and its numbers."""
    return (value.dtype, value.tolist()) if isinstance(value, torch.Tensor) else value


def rows_of(batches: Sequence[Any]) -> list[list[int]]:
    """Return the indices of the sequences of each batch."""
    return [batch.original_indices.tolist() for batch in batches]


def count_tokens(batches: Sequence[Any]) -> Counter[int]:
    """Count the tokens of each sequence, over all batches."""
    counts: Counter[int] = Counter()
    for batch in batches:
        indices, lengths = batch.original_indices.tolist(), batch.lengths.tolist()
        for index, length in zip(indices, lengths, strict=True):
            counts[index] += length
    assert counts.pop(-1, 0) == 0  # filler
    return counts


def check_epochs(store: Path, dataset: StoreDataset, folder: Path, options: dict[str, Any]) -> None:
    """Compare an epoch in order and a shuffled one with what pack writes."""
    batches = StoreBatches(dataset, PackOptions(**options))
    for epoch, shuffle in ((0, False), (SHUFFLED_EPOCH, True)):
        found = read_epoch(batches, epoch, shuffle=shuffle, per_fetch=3 if shuffle else None)
        output = folder / f"shards {epoch}"
        written = write_epoch(store, output, epoch, options, shuffle=shuffle)
        for batch, expected in zip(found, written, strict=True):
            check_same(batch, expected)
        counts = count_tokens(found)
        assert all(counts[index] == LENGTHS[index] for index in counts)  # pieces add up
        num_dropped = sum(written.manifest["ledger"]["num_dropped_sequences"].values())
        assert len(counts) + num_dropped == len(LENGTHS)


@pytest.mark.slow  # 40 s
def test_epochs_of_many_options_are_what_pack_writes(
    store: Path, dataset: StoreDataset, tmp_path: Path
) -> None:
    for number, options in enumerate(draw_options(2, NUM_DRAWS)):
        batches = StoreBatches(dataset, PackOptions(**options))
        written = write_epoch(store, tmp_path / str(number), number, options)
        for batch, expected in zip(read_epoch(batches, number), written, strict=True):
            check_same(batch, expected)


@pytest.mark.parametrize("options", LAYOUTS.values(), ids=LAYOUTS)
def test_each_sequence_comes_once_an_epoch_in_other_batches(
    dataset: StoreDataset, options: dict[str, Any]
) -> None:
    batches = StoreBatches(dataset, PackOptions(**options))
    sampler = EpochSampler(batches, seed=SEED)
    loader = make_loader(batches, sampler)  # one loader, epoch after epoch
    epochs = []
    for epoch in range(3):
        assert sampler.epoch == epoch
        num_batches = len(loader)
        found = list(loader)
        assert len(found) == num_batches
        counts = count_tokens(found)
        assert [counts[index] for index in range(len(LENGTHS))] == [*LENGTHS]
        epochs.append(rows_of(found))
    for one, other in itertools.combinations(epochs, 2):
        assert {frozenset(rows) for rows in one} != {frozenset(rows) for rows in other}
    assert rows_of(read_epoch(batches, 1)) == epochs[1]


def test_order_without_shuffle_is_the_same_in_every_epoch(dataset: StoreDataset) -> None:
    batches = StoreBatches(dataset, PackOptions(batch_size=5))
    first, later = (read_epoch(batches, epoch, shuffle=False) for epoch in (0, 7))
    assert rows_of(first) == rows_of(later)
    in_order = sorted(range(len(LENGTHS)), key=lambda index: -LENGTHS[index])
    assert [index for rows in rows_of(first) for index in rows] == in_order


@pytest.mark.parametrize("options", LAYOUTS.values(), ids=LAYOUTS)
def test_labels_are_the_next_ids(dataset: StoreDataset, options: dict[str, Any]) -> None:
    batches = StoreBatches(dataset, PackOptions(**options))
    for batch in make_loader(batches, EpochSampler(batches), labels="next"):
        if isinstance(batch, PaddedTensors):
            expected = torch.full_like(batch.ids, -100)
            for row, is_token in enumerate(batch.mask):
                places = is_token.nonzero()[:, 0]
                expected[row, places[:-1]] = batch.ids[row, places[1:]]
        elif isinstance(batch, VarlenTensors):
            expected = torch.full_like(batch.ids, -100)
            ids, labels = batch.ids.flatten(), expected.view(-1)
            for place in range(len(ids) - 1):
                if batch.position_ids.flatten()[place + 1] > 0:
                    labels[place] = ids[place + 1]
        else:
            # at step t the row b lies at starts[t] + b
            starts = batch.sequences.batch_sizes.cumsum(0) - batch.sequences.batch_sizes
            expected = torch.full_like(batch.sequences.data, -100)
            for row, length in enumerate(batch.lengths.tolist()):
                for step in range(length - 1):
                    expected[starts[step] + row] = batch.sequences.data[starts[step + 1] + row]
        assert torch.equal(batch.labels, expected)
    assert next(iter(make_loader(batches, EpochSampler(batches)))).labels is None
    with pytest.raises(
        ValueError, match=r"^labels is 'previous', expected None, 'next', 'same' or a col"
    ):
        batches.make_collate(labels="previous")


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # on a single core
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize(
    ("name", "context"),
    [
        *((name, "fork") for name in LAYOUTS),
        pytest.param("filler", "spawn", marks=pytest.mark.slow),  # 8 s
    ],
)
def test_workers_give_the_same_batches(
    store: Path, dataset: StoreDataset, tmp_path: Path, name: str, context: str
) -> None:
    options = LAYOUTS[name]
    batches = StoreBatches(dataset, PackOptions(**options))
    loader = make_loader(
        batches,
        EpochSampler(batches, seed=SEED),
        num_workers=2,
        multiprocessing_context=context,
        persistent_workers=True,
    )
    for epoch in range(2):
        written = write_epoch(store, tmp_path / str(epoch), epoch, options)
        for batch, expected in zip(loader, written, strict=True):
            check_same(batch, expected)


@pytest.mark.parametrize("options", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("balance", [None, "attention"])
def test_ranks_share_the_batches_of_an_epoch(
    dataset: StoreDataset, options: dict[str, Any], drop_last: bool, balance: str | None
) -> None:
    world_size = 3
    whole = rows_of(read_epoch(StoreBatches(dataset, PackOptions(**options)), 1))
    shares = []
    for rank in range(world_size):
        batches = StoreBatches(StoreDataset(dataset.path), PackOptions(**options))
        sampler = EpochSampler(
            batches,
            seed=SEED,
            rank=rank,
            world_size=world_size,
            options=SamplerOptions(drop_last=drop_last, balance=balance),
        )
        sampler.set_epoch(1)
        loader = make_loader(batches, sampler)
        num_batches = len(loader)
        share = rows_of(list(loader))
        assert len(share) == num_batches
        shares.append(share)
    num_steps, num_left = divmod(len(whole), world_size)
    if drop_last:
        expected = whole[: num_steps * world_size]
    else:
        expected = whole + whole[: -num_left % world_size]
    assert {len(share) for share in shares} == {len(expected) // world_size}
    if not balance:
        assert [rows for step in zip(*shares, strict=True) for rows in step] == expected
    assert sorted(rows for share in shares for rows in share) == sorted(expected)


@pytest.mark.parametrize("options", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("num_taken", [0, 1, 4])
def test_training_goes_on_in_the_middle_of_an_epoch(
    dataset: StoreDataset, options: dict[str, Any], num_taken: int
) -> None:
    batches = StoreBatches(dataset, PackOptions(**options))
    whole = [rows_of(read_epoch(batches, epoch)) for epoch in (1, 2)]
    assert len(whole[0]) > 4
    sampler = EpochSampler(batches, seed=SEED)
    sampler.set_epoch(1)
    loader = sampler.track(make_loader(batches, sampler))
    taken = list(itertools.islice(loader, num_taken))
    state = json.loads(json.dumps(sampler.state_dict()))

    again = StoreBatches(StoreDataset(dataset.path), PackOptions(**options))
    continued = EpochSampler(again, seed=99)  # the state has the seed
    continued.load_state_dict(state)
    loader = continued.track(make_loader(again, continued))
    assert len(loader) == len(whole[0]) - num_taken
    assert rows_of(taken) + rows_of(list(loader)) == whole[0]
    assert rows_of(list(loader)) == whole[1]


def test_rest_of_an_epoch_is_dealt_to_another_number_of_ranks(dataset: StoreDataset) -> None:
    options = PackOptions(batch_size=2, window=8)
    batches = StoreBatches(dataset, options)
    whole = rows_of(read_epoch(batches, 0))
    assert len(whole) == 12
    taken, states = [], []
    for rank in range(3):
        sampler = EpochSampler(batches, seed=SEED, rank=rank, world_size=3)
        loader = sampler.track(make_loader(batches, sampler))
        taken += rows_of(list(itertools.islice(loader, 2)))
        states.append(sampler.state_dict())
    assert states[0] == states[1] == states[2]
    rest = []
    for rank in range(2):
        sampler = EpochSampler(batches, rank=rank, world_size=2)
        sampler.load_state_dict(states[0])
        rest.append(rows_of(list(make_loader(batches, sampler))))
    assert [rows for step in zip(*rest, strict=True) for rows in step] == whole[6:]
    assert sorted(taken) == sorted(whole[:6])


def test_largest_batch_comes_first_once(dataset: StoreDataset) -> None:
    batches = StoreBatches(dataset, PackOptions(layout="padded", batch_size=4, window=8))
    cells = [batch.ids.numel() for batch in read_epoch(batches, 0)]
    assert cells[0] < max(cells)
    sampler = EpochSampler(batches, seed=SEED, options=SamplerOptions(longest_first=True))
    loader = make_loader(batches, sampler)
    found = [batch.ids.numel() for batch in loader]
    assert found[0] == max(cells)
    assert sorted(found) == sorted(cells)
    assert rows_of(list(loader)) == rows_of(read_epoch(batches, 1))  # only in epoch 0


@pytest.mark.parametrize("options", LAYOUTS.values(), ids=LAYOUTS)
def test_plans_and_shards_count_the_costs_of_each_batch(
    store: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    batches = StoreBatches(StoreDataset(store), PackOptions(**options))
    written = write_epoch(store, tmp_path / "shards", 1, options)
    cells = [batch.data.size for batch in written]
    pairs = [
        batch.ids.size * batch.ids.shape[1]  # rows x width^2: padding is computed too
        if isinstance(batch, PaddedBatch)
        else sum(length**2 for length in batch.lengths.tolist())
        for batch in written
    ]
    for plan in (
        batches.plan_epoch(epoch_seed(SEED, 1)),
        ShardDataset(tmp_path / "shards").plan_epoch(None),
    ):
        assert plan.count_costs("tokens").tolist() == cells
        assert plan.count_costs("attention").tolist() == pairs


def test_keys_are_a_sequence_of_what_the_dataset_is_asked_for(dataset: StoreDataset) -> None:
    keys = StoreBatches(dataset, PackOptions(batch_size=10)).plan_epoch(None).keys
    in_order = sorted(range(len(LENGTHS)), key=lambda index: -LENGTHS[index])
    expected = [in_order[:10], in_order[10:20], in_order[20:]]
    assert len(keys) == 3
    assert [*keys] == [*keys[:]] == expected
    assert keys[2:0:-1] == [expected[2], expected[1]]
    assert all(type(key) is int for batch in keys for key in batch)
    filled = PackOptions(layout="padded", batch_size=10, last_batch="pad")
    keys = StoreBatches(dataset, filled).plan_epoch(None).keys
    assert keys[2] == [*expected[2], *[FILLER] * 6]
    split = PackOptions(layout="varlen", max_tokens=9, fill="sequential")
    keys = StoreBatches(dataset, split).plan_epoch(None).keys
    assert keys[:4] == [
        [Piece(0, 0, 3)],
        [Piece(1, 0, 9)],
        [Piece(2, 0, 5), Piece(3, 0, 1)],
        [Piece(4, 0, 5)],
    ]
    assert keys[4:6] == [[Piece(5, 0, 9)], [Piece(5, 9, 3), Piece(6, 0, 2)]]


@pytest.mark.parametrize("index", [13, 100])
def test_keys_outside_are_an_index_error(dataset: StoreDataset, index: int) -> None:
    keys = StoreBatches(dataset, PackOptions(batch_size=2)).plan_epoch(None).keys
    assert len(keys) == 12
    with pytest.raises(IndexError):
        keys[index]


@pytest.mark.parametrize("index", [-1, -2, -12])
def test_keys_are_counted_from_the_end_as_in_any_sequence(
    dataset: StoreDataset, index: int
) -> None:
    keys = StoreBatches(dataset, PackOptions(batch_size=2)).plan_epoch(None).keys
    assert keys[index] == keys[12 + index]


def test_shuffle_and_seed_are_the_samplers(dataset: StoreDataset) -> None:
    for options in ({"shuffle": True}, {"shuffle": False}, {"seed": 3}):
        expected = "^options has shuffle or seed, which EpochSampler sets: leave them out$"
        with pytest.raises(ValueError, match=expected):
            StoreBatches(dataset, PackOptions(**options))  # type: ignore[arg-type]


def test_options_that_can_not_go_together_are_refused_at_once(dataset: StoreDataset) -> None:
    with pytest.raises(OptionError, match=r"^layout is 'streams', which needs shards: "):
        StoreBatches(dataset, PackOptions(layout="streams", max_tokens=8))
    with pytest.raises(OptionError, match="--layout varlen needs --max-tokens"):
        StoreBatches(dataset, PackOptions(layout="varlen"))
    with pytest.raises(OptionError, match="--window conflicts with --order none"):
        StoreBatches(dataset, PackOptions(window=5, order="none"))


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("layout", ["packed", "varlen"])
def test_sequence_that_does_not_fit_is_named_with_its_place_in_the_input(
    dataset: StoreDataset, layout: str, shuffle: bool
) -> None:
    batches = StoreBatches(dataset, PackOptions(layout=layout, max_tokens=25, overflow="error"))
    source = dataset.path.parent / "corpus.txt"
    expected = (
        f"{dataset.path}: sequence 7 ({source}:8) has 30 tokens, --max-tokens allows 25\n\nhint: "
        "pass --max-tokens 30, drop longer ones with --overflow drop, "
    )
    for begin in (iter, len):
        sampler = EpochSampler(batches, shuffle=shuffle)
        with pytest.raises(OptionError, match=f"^{re.escape(expected)}"):
            list(begin(sampler))  # type: ignore[operator]
    with pytest.raises(OptionError, match=r"sequence 7 \(.*:8\)"):
        list(make_loader(batches, EpochSampler(batches, shuffle=shuffle)))


def test_sequence_longer_than_the_buckets_is_named_with_its_place(dataset: StoreDataset) -> None:
    options = PackOptions(layout="padded", buckets=(4, 29), overflow="error")
    batches = StoreBatches(dataset, options)
    expected = r"sequence 7 \(.*corpus.txt:8\) has 30 tokens, --buckets allows 29"
    with pytest.raises(OptionError, match=expected):
        next(iter(EpochSampler(batches)))
    with pytest.raises(OptionError, match=expected):
        batches.make_collate()


def test_nothing_left_is_a_data_error(dataset: StoreDataset) -> None:
    batches = StoreBatches(dataset, PackOptions(drop_shorter=31))
    expected = (
        f"{dataset.path}: no batch is left, sequences dropped: 24 by --drop-shorter\n\n"
        "hint: pass a smaller --drop-shorter"
    )
    with pytest.raises(DataError, match=f"^{re.escape(expected)}$"):
        next(iter(EpochSampler(batches)))


def test_pad_id_outside_the_vocabulary_is_refused(dataset: StoreDataset) -> None:
    batches = StoreBatches(dataset, PackOptions(layout="padded", pad_id=259))
    with pytest.raises(OptionError, match=r"^--pad-id 259: expected an id from 0 to 258$"):
        batches.make_collate()


def test_batches_that_are_new_each_epoch_can_not_be_skipped(dataset: StoreDataset) -> None:
    with pytest.raises(ValueError, match="a token store has new batches in each epoch"):
        EpochSampler(StoreBatches(dataset, PackOptions()), options=SamplerOptions(skip=[0]))


def fingerprint(path: Path, **options: Any) -> str:
    return StoreBatches(StoreDataset(path), PackOptions(**options)).fingerprint


def test_fingerprint_is_of_the_store_and_all_options(store: Path, tmp_path: Path) -> None:
    alone = ("batch_size", "max_tokens", "order", "window", "drop_shorter", "drop_longer", "pad_id")
    variants: list[dict[str, Any]] = [{}, *({name: CHOICES[name][1]} for name in alone)]
    padded = {"layout": "padded"}
    variants += [padded, {**padded, "padding_side": "left"}, {**padded, "pad_to_multiple": 8}]
    variants += [{"max_tokens": 64, "overflow": "drop"}, {"max_tokens": 64}]
    variants += [{"last_batch": "drop"}, {**padded, "last_batch": "pad"}]
    variants += [{"buckets": "auto"}, {"buckets": "auto", "num_buckets": 3}, {"buckets": (8, 16)}]
    rows = {"layout": "varlen", "max_tokens": 64}
    variants += [rows, {**rows, "fill": "sequential"}, {**rows, "overflow": "drop"}]
    found = [fingerprint(store, **options) for options in variants]
    assert len({*found}) == len(variants)
    assert [fingerprint(store, **options) for options in variants] == found
    other = make_store(tmp_path, make_texts(LENGTHS, seed=1), part_bytes=60)
    assert fingerprint(other) != fingerprint(store)
    assert fingerprint(store, buckets=[16, 8, 8]) == fingerprint(store, buckets=(8, 16))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({}, {"batch_size": 64}),
        ({}, {"shard_bytes": 1 << 20}),
        ({"buckets": "auto"}, {"buckets": "auto", "num_buckets": 8}),
        (LAYOUTS["pieces"], {**LAYOUTS["pieces"], "fill": "best-fit", "overflow": "split"}),
    ],
    ids=["batch_size", "shard_bytes", "num_buckets", "varlen"],
)
def test_fingerprint_is_the_same_for_the_same_batches(
    store: Path, one: dict[str, Any], other: dict[str, Any]
) -> None:
    assert fingerprint(store, **one) == fingerprint(store, **other)


@pytest.mark.parametrize("options", [{"window": 4}, {"batch_size": 3}], ids=str)
def test_state_of_other_options_is_refused(dataset: StoreDataset, options: dict[str, Any]) -> None:
    state = EpochSampler(StoreBatches(dataset, PackOptions(window=8))).state_dict()
    other = EpochSampler(StoreBatches(dataset, PackOptions(**options)))
    with pytest.raises(
        ValueError, match=r"^the state is of other shards, or of a store with other"
    ):
        other.load_state_dict(state)


@pytest.mark.parametrize("options", LAYOUTS.values(), ids=LAYOUTS)
def test_batches_and_collate_travel_to_another_process(
    dataset: StoreDataset, options: dict[str, Any]
) -> None:
    batches = StoreBatches(dataset, PackOptions(**options))
    again: StoreBatches = pickle.loads(pickle.dumps(batches))  # noqa: S301 - our own
    assert again.fingerprint == batches.fingerprint
    assert rows_of(read_epoch(again, 3)) == rows_of(read_epoch(batches, 3))
    collate = pickle.loads(pickle.dumps(batches.make_collate()))  # noqa: S301 - our own
    keys = batches.plan_epoch(1).keys[0]
    one, other = (
        collate(dataset.__getitems__(keys)),
        batches.make_collate()(dataset.__getitems__(keys)),
    )
    assert rows_of([one]) == rows_of([other])


def test_loop_of_a_user_trains_on_every_batch(dataset: StoreDataset) -> None:
    """The loop of the README: an embedding, an LSTM, labels, two epochs."""
    torch.manual_seed(0)
    batches = StoreBatches(dataset, PackOptions(max_tokens=64, window=8))
    sampler = EpochSampler(batches, seed=0)
    loader = sampler.track(make_loader(batches, sampler, labels="next"))
    embedding, lstm = torch.nn.Embedding(259, 8), torch.nn.LSTM(8, 8)
    head = torch.nn.Linear(8, 259)
    parameters = [*embedding.parameters(), *lstm.parameters(), *head.parameters()]
    means = []
    for _ in range(2):
        losses = []
        for batch in loader:
            packed = batch.sequences
            outputs, _ = lstm(packed._replace(data=embedding(packed.data)))
            loss = torch.nn.functional.cross_entropy(
                head(outputs.data), batch.labels, ignore_index=-100
            )
            gradients = torch.autograd.grad(loss, parameters)
            with torch.no_grad():  # torch.optim takes seconds to import
                for parameter, gradient in zip(parameters, gradients, strict=True):
                    parameter -= 0.5 * gradient
            losses.append(loss.item())
        means.append(sum(losses) / len(losses))
    assert means[1] < means[0]
    assert sampler.epoch == 2


def test_batches_that_are_read_together_may_be_unsorted(dataset: StoreDataset) -> None:
    keys: list[list[int | Piece]] = [[0, 7, 3], [1], [5, 2]]
    together = [collate_packed(each) for each in dataset.__getitems__(keys)]
    for found, some in zip(together, keys, strict=True):
        alone = collate_packed(dataset.__getitems__(some))
        assert found.sequences.data.tolist() == alone.sequences.data.tolist()
        assert found.original_indices.tolist() == alone.original_indices.tolist()
