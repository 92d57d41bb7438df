"""The batches of shards as items of a torch Dataset: what they hold, and what is refused."""

from __future__ import annotations

import pickle
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from random_shards import KINDS, Kind, draw_shard, make_shard_in_memory
from reference import read_folder
from shard_reference import (
    LENGTHS,
    Arrays,
    change_manifest,
    change_shard,
    flip_byte,
    make_shards,
    slow_pack,
    slow_pad,
    to_arrays,
)
from tensor_reference import assert_same, rows_of, tensors_of
from torch import nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils.data import DataLoader

from seqpack_cli.errors import FolderError
from seqpack_cli.limits import LIMITS
from seqpack_cli.shards.layouts import OFFSETS_OF
from seqpack_cli.shards.shard import Shard
from seqpack_cli.shards.shard_set import open_shards
from seqpack_cli.tokens.store import open_store
from seqpack_cli.training.batch_tensors import (
    BatchTensors,
    PackedTensors,
    PaddedTensors,
    VarlenTensors,
)
from seqpack_cli.training.shard_dataset import ShardDataset

# Four batches each.
OPTIONS: dict[str, dict[str, Any]] = {
    "packed": {"layout": "packed", "batch_size": 2},
    "padded": {"layout": "padded", "batch_size": 2},
    "varlen": {"layout": "varlen", "batch_size": None, "max_tokens": 12},
}


@pytest.fixture(scope="module", params=OPTIONS)
def shards(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    return make_shards(folder, shard_bytes=350, **OPTIONS[request.param])


def sequences_of(shards: Path) -> list[tuple[int, ...]]:
    """Return the sequences of the store."""
    return sorted(tuple(ids.tolist()) for ids in open_store(shards.parent / "store"))


def test_items_are_what_a_model_takes(shards: Path) -> None:
    dataset = ShardDataset(shards)
    assert len(dataset) == 4
    store = open_store(shards.parent / "store")
    for item in dataset:
        indices = item.original_indices.tolist()
        rows = [store[index].tolist() for index in indices]
        assert item.lengths.tolist() == [LENGTHS[index] for index in indices]
        assert rows_of(item) == [tuple(row) for row in rows]
        if isinstance(item, PackedTensors):
            data, batch_sizes = slow_pack(rows)
            assert item.sequences.data.tolist() == data
            assert item.sequences.batch_sizes.tolist() == batch_sizes
        elif isinstance(item, PaddedTensors):
            width = max(map(len, rows))
            assert item.ids.tolist() == slow_pad(rows, width=width, padding_value=256)
            assert item.mask.tolist() == [[t < len(row) for t in range(width)] for row in rows]
        else:
            assert item.cu_seqlens.tolist() == [0, *np.cumsum([len(row) for row in rows]).tolist()]
            assert item.max_seqlen == max(map(len, rows))
            assert item.position_ids.tolist() == [t for row in rows for t in range(len(row))]


def test_items_are_of_one_kind_and_dtype(shards: Path) -> None:
    dataset = ShardDataset(shards, labels="next")
    kinds = {"packed": PackedTensors, "padded": PaddedTensors, "varlen": VarlenTensors}
    others = {"mask": torch.bool, "cu_seqlens": torch.int32}
    for item in dataset:
        assert type(item) is kinds[dataset.layout]
        for name, tensor in tensors_of(item).items():
            assert tensor.dtype == others.get(name, torch.int64), name


def test_ids_of_a_large_vocabulary_are_widened(tmp_path: Path) -> None:
    path = make_shards(tmp_path, [2, 1], layout="varlen", max_tokens=8)
    limit = (1 << 16) - 1

    def raise_ids(arrays: Arrays) -> None:
        arrays["data"][:] = limit  # would be -1 as int16

    change_shard(path, raise_ids)
    change_manifest(path, lambda manifest: manifest.update(max_id=limit))
    (item,) = ShardDataset(path)
    assert item.ids.tolist() == [limit] * 3


def test_every_sequence_comes_once(shards: Path) -> None:
    rows = [row for item in ShardDataset(shards) for row in rows_of(item)]
    assert sorted(rows) == sequences_of(shards)


@pytest.mark.parametrize("labels", [None, "next"])
def test_items_may_be_changed_without_touching_the_shards(shards: Path, labels: str | None) -> None:
    dataset, before = ShardDataset(shards, labels=labels), read_folder(shards)
    for index in range(len(dataset)):
        item = dataset[index]
        for tensor in tensors_of(item).values():
            tensor.zero_()  # writing to a read-only map would kill the process
        assert_same(dataset[index], ShardDataset(shards, labels=labels)[index])
    assert read_folder(shards) == before


def test_items_outlive_their_dataset(shards: Path) -> None:
    dataset = ShardDataset(shards, labels="next")
    items, again = list(dataset), list(ShardDataset(shards, labels="next"))
    del dataset
    for item, expected in zip(items, again, strict=True):
        assert_same(item, expected)


def test_items_outside_are_an_index_error(shards: Path) -> None:
    dataset = ShardDataset(shards)
    for index in (-5, 4, 2**70):
        with pytest.raises(IndexError, match=f"^batch {index} of 4$"):
            dataset[index]


@pytest.mark.parametrize("make", [int, np.int64, np.uint8, torch.tensor])
def test_an_index_may_be_of_any_library(shards: Path, make: Callable[[int], Any]) -> None:
    dataset = ShardDataset(shards)
    for index in range(4):
        assert_same(dataset[make(index)], dataset[index])
    with pytest.raises(IndexError, match=r"^batch .* of 4$"):
        dataset[make(4)]


def test_pickled_dataset_opens_the_shards_anew(shards: Path) -> None:
    dataset = ShardDataset(shards, labels="next")
    items = list(dataset)  # maps are open now, and do not travel
    pickled = pickle.dumps(dataset)
    assert len(pickled) < 900
    again: ShardDataset = pickle.loads(pickled)  # noqa: S301 - our own
    assert (again.layout, again.fingerprint) == (dataset.layout, dataset.fingerprint)
    assert len(again) == len(dataset)
    for index in (3, 1, 0, 2):
        assert_same(again[index], items[index])


def test_fingerprint_is_that_of_the_batches(tmp_path: Path) -> None:
    first = make_shards(tmp_path / "first", shard_bytes=350, batch_size=2)
    again = tmp_path / "again"
    shutil.copytree(first, again)
    change_manifest(again, lambda manifest: manifest["stores"][0].update(path="../elsewhere"))
    others = [
        make_shards(tmp_path / "other seed", shard_bytes=350, batch_size=2, seed=1),
        make_shards(tmp_path / "other rows", shard_bytes=350, batch_size=3),
        make_shards(tmp_path / "other layout", shard_bytes=350, batch_size=2, layout="padded"),
    ]
    expected = ShardDataset(first).fingerprint
    assert ShardDataset(str(again), labels="next").fingerprint == expected
    assert len({expected, *(ShardDataset(other).fingerprint for other in others)}) == 4


def test_items_go_through_embedding_and_lstm(shards: Path) -> None:
    torch.manual_seed(0)
    embedding, lstm = nn.Embedding(259, 4), nn.LSTM(4, 5, batch_first=True)
    for item in DataLoader(ShardDataset(shards), batch_size=None):
        rows = rows_of(item)
        if isinstance(item, PackedTensors):
            data, batch_sizes, *_ = item.sequences
            outputs, (final, _) = lstm(PackedSequence(embedding(data), batch_sizes))
            outputs.data.sum().backward()
            found = final[0]
        elif isinstance(item, VarlenTensors):
            inputs_of_rows = torch.split(embedding(item.ids), item.lengths.tolist())
            found = torch.stack([lstm(inputs[None])[1][0][0, 0] for inputs in inputs_of_rows])
        else:
            outputs, _ = lstm(embedding(item.ids))
            outputs[item.mask].sum().backward()
            found = outputs[torch.arange(len(rows)), item.lengths - 1]
        for row, state in zip(rows, found, strict=True):
            _, (alone, _) = lstm(embedding(torch.tensor([row])))
            assert torch.allclose(state, alone[0, 0], rtol=0, atol=1e-6)


def test_shards_that_are_incomplete_are_refused_at_once(tmp_path: Path) -> None:
    path = make_shards(tmp_path)
    (path / "shard-00000.safetensors").unlink()
    with pytest.raises(FolderError, match="missing"):
        ShardDataset(path)
    with pytest.raises(FolderError, match="no such folder"):
        ShardDataset(str(tmp_path / "nowhere"))


def test_shards_that_go_away_later_are_a_folder_error(tmp_path: Path) -> None:
    path = make_shards(tmp_path, shard_bytes=1)
    dataset = ShardDataset(path)
    kept = dataset[0]
    for shard in path.glob("shard-*"):
        shard.unlink()
    assert_same(dataset[0], kept)  # its map is open
    for _ in range(2):
        with pytest.raises(FolderError, match=r"shard-00001\.safetensors"):
            dataset[1]


def entry(name: str, place: int, value: int) -> Callable[[Arrays], object]:
    """Change one entry of the third batch: two rows, of 3 and 2 ids, or one of 12 in `varlen`."""

    def function(arrays: Arrays) -> None:
        offsets = arrays.get(OFFSETS_OF.get(name, ""), np.arange(9))
        assert 0 <= place < offsets[3] - offsets[2]
        arrays[name][offsets[2] + place] = value

    return function


# The layout, what is done to the third of four batches, and what its error says.
DAMAGES: dict[str, tuple[str, Callable[[Arrays], object], str]] = {
    "batch_sizes fall early": (
        "packed",
        entry("batch_sizes", 1, 1),
        "batch_sizes[1] is 1, but 2 rows are longer than 1",
    ),
    "batch_sizes rise": (
        "packed",
        entry("batch_sizes", 1, 3),
        "batch_sizes[1] is 3, but 2 rows are longer than 1",
    ),
    "batch_sizes of no machine": (
        "packed",
        entry("batch_sizes", 0, 2**62),
        f"batch_sizes[0] is {2**62}, but 2 rows are longer than 0",
    ),
    "negative batch_sizes": (
        "packed",
        entry("batch_sizes", 2, -1),
        "batch_sizes[2] is -1, but 1 rows are longer than 2",
    ),
    "shorter row": ("packed", entry("lengths", 0, 2), "3 batch_sizes, the longest row has 2 ids"),
    "longer row": (
        "packed",
        entry("lengths", 1, 4),
        "row 1 is longer than the one before, expected longest first",
    ),
    "empty row": (
        "packed",
        entry("lengths", 1, 0),
        "row 1 has length 0, expected no empty sequence",
    ),
    "id of packed": (
        "packed",
        entry("data", 4, 259),
        "id 259 at cell 4, expected ids from 0 to 258",
    ),
    "last id there may be": (
        "packed",
        entry("data", 0, 65_535),
        "id 65535 at cell 0, expected ids from 0 to 258",
    ),
    "padding": (
        "padded",
        entry("data", 5, 97),
        "cell [1, 2] is padding and holds 97, expected 256",
    ),
    "id of padded": (
        "padded",
        entry("data", 3, 300),
        "id 300 at cell [1, 0], expected ids from 0 to 258",
    ),
    "narrower": ("padded", entry("widths", 0, 2), "2 rows of width 2, data has 6 cells"),
    "no width": ("padded", entry("widths", 0, 0), "2 rows of width 0, data has 6 cells"),
    "width of no machine": (
        "padded",
        entry("widths", 0, 2**62),
        f"2 rows of width {2**62}, data has 6 cells",
    ),
    "wider row": ("padded", entry("lengths", 0, 4), "row 0 has 4 ids, width is 3"),
    "id of varlen": (
        "varlen",
        entry("data", 0, 259),
        "id 259 at cell 0, expected ids from 0 to 258",
    ),
    "longer sequence": (
        "varlen",
        entry("lengths", 0, 13),
        "row 0 has 13 ids, data has {count} cells",
    ),
    "negative length": (
        "varlen",
        entry("lengths", 0, -1),
        "row 0 has length -1, expected no empty sequence",
    ),
    "length of no machine": (
        "varlen",
        entry("lengths", 0, 2**63 - 1),
        f"row 0 has {2**63 - 1} ids, data has {{count}} cells",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_batch_is_refused_and_the_others_come(tmp_path: Path, name: str) -> None:
    layout, change, message = DAMAGES[name]
    path = make_shards(tmp_path, **OPTIONS[layout])
    good = list(ShardDataset(path, labels="next"))
    assert len(good) == 4
    change_shard(path, change)
    expected = f"{path / 'shard-00000.safetensors'}: batch 2: "
    expected += message.format(count=int(good[2].lengths.sum()))
    dataset = ShardDataset(path, labels="next")
    for again in (dataset, dataset, pickle.loads(pickle.dumps(dataset))):  # noqa: S301 - our own
        for index in (2, 3, 0, 1, 2):
            if index != 2:
                assert_same(again[index], good[index])
                continue
            with pytest.raises(FolderError) as found:
                again[index]
            assert found.value.message == expected


def test_filler_rows_are_checked(tmp_path: Path) -> None:
    """The last batch of three: one row of 1 id, two that are filler."""
    damages: list[tuple[str, int, int, str]] = [
        ("data", -1, 97, "cell [2, 0] is padding and holds 97, expected 256"),
        (
            "lengths",
            -1,
            1,
            "row 2 has length 1 and original index -1, expected 0 and -1 in filler rows alone",
        ),
        (
            "original_indices",
            -1,
            5,
            "row 2 has length 0 and original index 5, expected 0 and -1 in filler rows alone",
        ),
        (
            "num_filler_rows",
            -1,
            1,
            "row 1 has length 0 and original index -1, expected 0 and -1 in filler rows alone",
        ),
        ("num_filler_rows", -1, 3, "3 filler rows in a batch of 3 rows"),
        ("num_filler_rows", -1, -1, "-1 filler rows in a batch of 3 rows"),
    ]
    for number, (name, place, value, message) in enumerate(damages):
        path = make_shards(tmp_path / str(number), layout="padded", last_batch="pad")
        good = list(ShardDataset(path))

        def change(
            arrays: Arrays, name: str = name, place: int = place, value: int = value
        ) -> None:
            arrays[name][place] = value

        change_shard(path, change)
        dataset = ShardDataset(path)
        for _ in range(2):
            with pytest.raises(FolderError) as found:
                dataset[2]
            assert found.value.message == f"{path / 'shard-00000.safetensors'}: batch 2: {message}"
            assert_same(dataset[0], good[0])
            assert_same(dataset[1], good[1])


def test_an_error_names_the_shard_and_the_batch_in_it(tmp_path: Path) -> None:
    path = make_shards(tmp_path, [5] * 12, batch_size=2, shard_bytes=300)
    numbers = [open_shards(path).find(index) for index in range(6)]
    assert numbers == [(shard, batch) for shard in range(3) for batch in range(2)]

    def change(arrays: Arrays) -> None:
        arrays["data"][-1] = 300

    change_shard(path, change, number=1)
    dataset = ShardDataset(path)
    for index in (0, 1, 2, 4, 5):
        assert rows_of(dataset[index])
    with pytest.raises(FolderError, match=r"shard-00001\.safetensors: batch 1: id 300 at cell 9,"):
        dataset[3]


def test_offsets_that_do_not_rise_refuse_the_whole_shard(tmp_path: Path) -> None:
    path = make_shards(tmp_path, [5] * 12, batch_size=2, shard_bytes=300)

    def change(arrays: Arrays) -> None:
        arrays["data_offsets"][1] = arrays["data_offsets"][2]

    change_shard(path, change, number=1)
    dataset = ShardDataset(path)
    for _ in range(2):
        for index in (0, 1, 4, 5):
            assert rows_of(dataset[index])
        for index in (2, 3):
            with pytest.raises(FolderError, match=r"00001\.safetensors: data_offsets does not"):
                dataset[index]


def test_a_flipped_byte_is_seen_where_it_makes_an_id_that_is_none(tmp_path: Path) -> None:
    """The checksum is for verify; what could harm a model is seen here."""
    path = make_shards(tmp_path)
    flip_byte(path / "shard-00000.safetensors", -1)  # the high byte of the last id
    dataset = ShardDataset(path)
    with pytest.raises(FolderError, match=r"batch 2: id \d+ at cell 0, expected ids from 0 to 258"):
        dataset[2]


def test_hostile_batch_sizes_do_not_reach_torch(tmp_path: Path) -> None:
    path = make_shards(tmp_path)

    def rise(arrays: Arrays) -> None:
        arrays["batch_sizes"][:3] = [3, 1, 3]

    change_shard(path, rise)
    loader = DataLoader(ShardDataset(path), batch_size=None)
    with pytest.raises(FolderError, match=r"batch 0: batch_sizes\[1\] is 1, but 3 rows"):
        list(loader)


HOSTILE = (-(2**63), -1, 0, 10, 2**32, 2**63 - 1)  # and the neighbours of each value


def outcome(take: Callable[[int], Any], index: int) -> object:
    """Return all arrays of a batch, or what its error says."""
    try:
        batch = take(index)
    except FolderError as error:
        return error.message
    arrays = {name: array.tolist() for name, array in to_arrays(batch).items()}
    return type(batch), getattr(batch, "num_filler_rows", 0), arrays


def assert_checked_alike(shard: Shard) -> int:
    """Assert that `take` gives and refuses what `shard[index]` does; count what is refused."""
    num_refused = 0
    for index in random.Random(0).sample(range(len(shard)), len(shard)):
        expected = outcome(shard.__getitem__, index)
        assert outcome(shard.take, index) == outcome(shard.take, index) == expected
        num_refused += isinstance(expected, str)
    return num_refused


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_checked_once_is_checked_as_well_for_each_entry(kind: Kind) -> None:
    sound, _ = draw_shard(kind, 4, dtype="int32", max_id=9, num_most=6)
    assert assert_checked_alike(sound) == 0
    num_refused = 0
    for name, array in sound.tensors.items():
        if name in OFFSETS_OF.values():
            continue
        limits = np.iinfo(array.dtype)
        for place in range(len(array)):
            for value in (*HOSTILE, int(array[place]) - 1, int(array[place]) + 1):
                changed = array.copy()
                changed[place] = min(max(value, limits.min), limits.max)
                shard = sound.with_tensors({**sound.tensors, name: changed})
                found = assert_checked_alike(shard)
                if name == "data" and not 0 <= changed[place] <= 9:
                    assert found == 1
                num_refused += found
    assert num_refused > 50


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_checked_once_is_checked_as_well_for_several_entries(kind: Kind) -> None:
    num_refused = 0
    for seed in range(60):
        generator = random.Random(seed)
        sound, _ = draw_shard(kind, seed, max_id=9, num_most=8)
        for _ in range(4):
            shard = sound.with_tensors(damage(sound.tensors, generator))
            try:
                shard.arrays.check_offsets()
            except ValueError:
                continue  # refused as a whole
            num_refused += assert_checked_alike(shard)
    assert num_refused > 30


def test_lengths_whose_sum_wraps_around_are_refused() -> None:
    tensors = {
        "lengths": np.array([2**62, 2**62, 2**62, 2**62, 6]),  # 6 in 64 bits
        "original_indices": np.arange(5),
        "piece_starts": np.zeros(5, np.int64),
        "sequence_offsets": np.array([0, 5]),
        "data_offsets": np.array([0, 6]),
        "data": np.arange(6, dtype=np.uint16),
    }
    assert tensors["lengths"].sum() == 6
    shard = make_shard_in_memory(KINDS["varlen"], tensors)
    assert assert_checked_alike(shard) == 1
    assert outcome(shard.take, 0) == (
        f"shard-00000.safetensors: batch 0: row 0 has {2**62} ids, data has 6 cells"
    )


def damage(tensors: Arrays, generator: random.Random) -> Arrays:
    """Change two to four entries, of any array, some so that their sum stays."""
    changed = {name: array.copy() for name, array in tensors.items()}
    for _ in range(generator.randint(1, 2)):
        array = changed[generator.choice([*changed])]
        first, second = (generator.randrange(len(array)) for _ in range(2))
        limits, step = np.iinfo(array.dtype), generator.choice([-2, -1, 1, 2])
        way = generator.choice(["swapped", "moved", "hostile"])
        if way == "swapped":
            array[[first, second]] = array[[second, first]]
        elif way == "moved":
            for place, amount in ((first, step), (second, -step)):
                array[place] = min(max(int(array[place]) + amount, limits.min), limits.max)
        else:
            array[first] = min(max(generator.choice(HOSTILE), limits.min), limits.max)
    return changed


def test_take_outside_is_an_index_error() -> None:
    shard, _ = draw_shard(KINDS["packed"], 1)
    for index in (-len(shard) - 1, len(shard), -(2**70)):
        with pytest.raises(IndexError, match=f"^batch {index} of {len(shard)}$"):
            shard.take(index)


def test_pieces_of_split_sequences_are_rows_of_their_own(tmp_path: Path) -> None:
    path = make_shards(tmp_path, layout="varlen", batch_size=None, max_tokens=8, fill="sequential")
    dataset, store = ShardDataset(path), open_store(tmp_path / "store")
    # 3 | 8 of 9 | 1 of 9, 5, 1 | 5 | 8 of 12 | 4 of 12, 2
    expected = [
        ([0, 3], [0]),
        ([0, 8], [1]),
        ([0, 1, 6, 7], [1, 2, 3]),
        ([0, 5], [4]),
        ([0, 8], [5]),
        ([0, 4, 6], [5, 6]),
    ]
    items: list[VarlenTensors] = list(dataset)
    assert [item.cu_seqlens.tolist() for item in items] == [ends for ends, _ in expected]
    assert [item.max_seqlen for item in items] == [3, 8, 5, 5, 8, 4]
    assert [item.original_indices.tolist() for item in items] == [
        indices for _, indices in expected
    ]
    assert items[2].position_ids.tolist() == [0, 0, 1, 2, 3, 4, 0]  # from 0 in a later piece too
    assert torch.cat([item.ids for item in items]).tolist() == np.concatenate([*store]).tolist()


@pytest.mark.parametrize("padding_side", ["left", "right"])
def test_padded_and_filled_up_is_masked(tmp_path: Path, padding_side: str) -> None:
    path = make_shards(
        tmp_path, layout="padded", padding_side=padding_side, last_batch="pad", pad_to_multiple=5
    )
    items: list[PaddedTensors] = list(ShardDataset(path))
    # 12 9 5 | 5 3 2 | 1 and two empty ones
    rows = [(15, (12, 9, 5)), (5, (5, 3, 2)), (5, (1, 0, 0))]
    for item, (width, lengths) in zip(items, rows, strict=True):
        ones = [[1] * length for length in lengths]
        expected = slow_pad(ones, width=width, padding_value=0, padding_side=padding_side)
        assert item.mask.int().tolist() == expected
        assert item.lengths.tolist() == list(lengths)
        assert (item.ids[~item.mask] == 256).all()
    found = [item.original_indices.tolist() for item in items]
    assert found == [[5, 1, 2], [4, 0, 6], [3, -1, -1]]
    assert sorted(row for item in items for row in rows_of(item) if row) == sequences_of(path)


def test_left_padded_batch_of_single_tokens(tmp_path: Path) -> None:
    path = make_shards(tmp_path, [1, 1, 1], layout="padded", padding_side="left")
    (item,) = ShardDataset(path)
    assert item.mask.tolist() == [[True]] * 3


def test_padded_to_buckets_is_as_wide_as_they_are(tmp_path: Path) -> None:
    path = make_shards(tmp_path, layout="padded", buckets=(4, 12))
    items: list[PaddedTensors] = list(ShardDataset(path))
    assert {item.ids.shape[1] for item in items} == {4, 12}
    for item in items:
        width = item.ids.shape[1]
        assert all(width == (4 if length <= 4 else 12) for length in item.lengths)
        assert item.mask.sum(dim=1).tolist() == item.lengths.tolist()


def attend(inputs: torch.Tensor, is_visible: torch.Tensor) -> torch.Tensor:
    """Let each token attend to those it can see."""
    return nn.functional.scaled_dot_product_attention(inputs, inputs, inputs, attn_mask=is_visible)


def test_cu_seqlens_keep_sequences_apart_in_attention(tmp_path: Path) -> None:
    path = make_shards(tmp_path, layout="varlen", batch_size=None, max_tokens=14, shuffle=True)
    torch.manual_seed(0)
    embedding = nn.Embedding(259, 8)
    item: BatchTensors
    for item in DataLoader(ShardDataset(path), batch_size=None):
        starts = torch.arange(len(item.ids)) >= item.cu_seqlens[1:, None]
        sequence = starts.sum(dim=0)  # the number of each token's sequence
        together = attend(embedding(item.ids), sequence[:, None] == sequence)
        for row, found in zip(
            rows_of(item), torch.split(together, item.cu_seqlens.diff().tolist()), strict=True
        ):
            is_visible = torch.ones(len(row), len(row), dtype=torch.bool)
            alone = attend(embedding(torch.tensor(row)), is_visible)
            assert torch.allclose(found, alone, rtol=0, atol=1e-6)


@pytest.mark.parametrize("layout", ["packed", "padded", "varlen"])
def test_batches_of_a_large_shard_are_checked_block_by_block(tmp_path: Path, layout: str) -> None:
    batching: dict[str, Any] = {"batch_size": 2, "order": "none"}
    if layout == "varlen":
        batching = {"batch_size": None, "max_tokens": 4, "fill": "sequential"}
    lengths = [3, 1] * (LIMITS.batches_per_check + 20)
    path = make_shards(tmp_path, lengths, layout=layout, **batching)
    found = open_shards(path)[LIMITS.batches_per_check + 7]
    assert len(found.lengths) == 2

    def change(arrays: Arrays) -> None:
        row = arrays["sequence_offsets"][LIMITS.batches_per_check + 7]
        arrays["lengths"][row + 1] = 0

    change_shard(path, change)
    dataset = ShardDataset(path)
    for index in [*range(len(dataset)), 3, LIMITS.batches_per_check + 7, 3]:
        if index == LIMITS.batches_per_check + 7:
            with pytest.raises(
                FolderError, match=f"batch {index}: row 1 has length 0, .*no empty sequence"
            ):
                dataset[index]
        else:
            assert sorted(dataset[index].lengths.tolist()) == [1, 3]


def test_digest_that_is_no_text_is_fingerprinted_all_the_same(tmp_path: Path) -> None:
    """Fuzzing found it: a lone surrogate cannot be encoded."""
    path = make_shards(tmp_path)
    before = ShardDataset(path).fingerprint
    change_manifest(path, lambda manifest: manifest["shards"][0].update(blake3="\ud800"))
    assert ShardDataset(path).fingerprint != before
