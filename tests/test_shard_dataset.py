"""Batches through torch's own DataLoader into torch's own modules."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from shard_reference import LENGTHS, change_shard, make_shards
from torch import nn
from torch.nn.utils.rnn import PackedSequence, unpack_sequence
from torch.utils.data import DataLoader

from seqpack_cli.errors import FolderError
from seqpack_cli.tokens.token_store import open_store
from seqpack_cli.training.shard_dataset import PaddedIds, ShardDataset, VarlenIds

# Four batches each.
OPTIONS: dict[str, dict[str, Any]] = {
    "packed": {"layout": "packed", "batch_size": 2},
    "padded": {"layout": "padded", "batch_size": 2},
    "varlen": {"layout": "varlen", "batch_size": None, "max_tokens": 12},
}


@pytest.fixture(scope="module", params=OPTIONS)
def shards(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    return make_shards(folder, shard_bytes=250, **OPTIONS[request.param])


def rows_of(item: PackedSequence | PaddedIds | VarlenIds) -> list[tuple[int, ...]]:
    """Give the sequences of an item."""
    if isinstance(item, PackedSequence):
        return [tuple(row.tolist()) for row in unpack_sequence(item)]
    if isinstance(item, VarlenIds):
        rows = torch.split(item.ids, item.cu_seqlens.diff().tolist())
        return [tuple(row.tolist()) for row in rows]
    return [tuple(row[mask].tolist()) for row, mask in zip(item.ids, item.mask, strict=True)]


def sequences_of(shards: Path) -> list[tuple[int, ...]]:
    """Give the sequences of the store."""
    return sorted(tuple(ids.tolist()) for ids in open_store(shards.parent / "store"))


def test_items_are_what_a_model_takes(shards: Path) -> None:
    dataset = ShardDataset(shards)
    assert len(dataset) == 4
    store = open_store(shards.parent / "store")
    for index in range(4):
        item = dataset[index]
        indices = dataset.original_indices(index)
        assert rows_of(item) == [tuple(store[i].tolist()) for i in indices]
        if isinstance(item, PackedSequence):
            assert item.data.dtype == item.batch_sizes.dtype == torch.int64
            assert item.sorted_indices is None
            assert item.unsorted_indices is None
        elif isinstance(item, VarlenIds):
            assert item.ids.dtype == torch.int64
            assert item.cu_seqlens.dtype == torch.int32
            ends = np.cumsum([LENGTHS[i] for i in indices])
            assert item.cu_seqlens.tolist() == [0, *ends.tolist()]
            assert type(item.max_seqlen) is int
            assert item.max_seqlen == max(LENGTHS[i] for i in indices)
        else:
            assert item.ids.dtype == torch.int64
            assert item.mask.dtype == torch.bool
            assert item.ids.shape == item.mask.shape
            assert (item.ids[~item.mask] == 256).all()
            lengths = [LENGTHS[i] for i in indices]
            expected = [[step < n for step in range(max(lengths))] for n in lengths]
            assert item.mask.tolist() == expected


def test_items_may_be_changed_without_touching_the_shards(shards: Path) -> None:
    dataset = ShardDataset(shards)
    item, indices = dataset[0], dataset.original_indices(0)
    expected = rows_of(item)
    tensors = (item.data, item.batch_sizes) if isinstance(item, PackedSequence) else item[:2]
    for tensor in tensors:
        tensor.zero_()
    indices[:] = -1
    assert rows_of(dataset[0]) == expected
    assert dataset.original_indices(0).min() >= 0


def test_items_outside_are_an_index_error(shards: Path) -> None:
    dataset = ShardDataset(shards)
    for index in (-1, 4):
        with pytest.raises(IndexError, match=f"^batch {index} of 4$"):
            dataset[index]


def test_loader_without_workers_gives_every_sequence_once(shards: Path) -> None:
    generator = torch.Generator().manual_seed(3)
    loader = DataLoader(ShardDataset(shards), batch_size=None, shuffle=True, generator=generator)
    epochs = [[rows_of(item) for item in loader] for _ in range(4)]
    for epoch in epochs:
        assert sorted(row for rows in epoch for row in rows) == sequences_of(shards)
    assert any(epoch != epochs[0] for epoch in epochs)
    again = DataLoader(
        ShardDataset(shards),
        batch_size=None,
        shuffle=True,
        generator=torch.Generator().manual_seed(3),
    )
    assert [rows_of(item) for item in again] == epochs[0]


@pytest.mark.parametrize(  # 8 s each
    "shards", ["packed", pytest.param("varlen", marks=pytest.mark.slow)], indirect=True
)
@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # on a single core
def test_loader_with_spawned_workers_gives_every_sequence_once(shards: Path) -> None:
    dataset = ShardDataset(shards)
    batches = sorted(rows_of(dataset[index]) for index in range(len(dataset)))  # maps are open now
    loader = DataLoader(
        dataset,
        batch_size=None,
        shuffle=True,
        generator=torch.Generator().manual_seed(3),
        num_workers=2,
        multiprocessing_context="spawn",
        persistent_workers=True,
    )
    for _ in range(2):
        epoch = [rows_of(item) for item in loader]
        assert sorted(row for rows in epoch for row in rows) == sequences_of(shards)
        assert sorted(epoch) == batches


def test_pickled_dataset_opens_the_shards_anew(shards: Path) -> None:
    dataset = ShardDataset(shards)
    for index in range(4):
        rows_of(dataset[index])  # maps are open now, and do not travel
    pickled = pickle.dumps(dataset)
    assert len(pickled) < 500
    again: ShardDataset = pickle.loads(pickled)  # noqa: S301 - our own
    assert len(again) == len(dataset)
    assert rows_of(again[1]) == rows_of(dataset[1])


def test_items_go_through_embedding_and_lstm(shards: Path) -> None:
    torch.manual_seed(0)
    embedding, lstm = nn.Embedding(259, 4), nn.LSTM(4, 5, batch_first=True)
    for item in DataLoader(ShardDataset(shards), batch_size=None):
        rows = rows_of(item)
        if isinstance(item, PackedSequence):
            inputs = PackedSequence(embedding(item.data), item.batch_sizes, None, None)
            outputs, (final, _) = lstm(inputs)
            outputs.data.sum().backward()
            found = final[0]
        elif isinstance(item, VarlenIds):
            inputs_of_rows = torch.split(embedding(item.ids), item.cu_seqlens.diff().tolist())
            found = torch.stack([lstm(inputs[None])[1][0][0, 0] for inputs in inputs_of_rows])
        else:
            outputs, _ = lstm(embedding(item.ids))
            outputs[item.mask].sum().backward()
            found = outputs[torch.arange(len(rows)), item.mask.sum(dim=1) - 1]
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


def test_hostile_batch_sizes_do_not_reach_torch(tmp_path: Path) -> None:
    path = make_shards(tmp_path)

    def rise(arrays: dict[str, np.ndarray]) -> None:
        arrays["batch_sizes"][:3] = [3, 1, 3]

    change_shard(path, rise)
    loader = DataLoader(ShardDataset(path), batch_size=None)
    with pytest.raises(FolderError, match=r"batch 0: batch_sizes\[1\] is 1, but 3 rows"):
        list(loader)


@pytest.mark.cuda
def test_loader_pins_memory_for_the_device(shards: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    loader = DataLoader(
        ShardDataset(shards), batch_size=None, shuffle=True, generator=generator, pin_memory=True
    )
    found = []
    for item in loader:
        if isinstance(item, PackedSequence):
            assert item.data.is_pinned()
            moved = item.to("cuda", non_blocking=True)
            assert moved.data.is_cuda
            found += rows_of(moved)
        elif isinstance(item, VarlenIds):
            assert item.ids.is_pinned()
            assert item.cu_seqlens.is_pinned()
            moved_row = item._replace(
                ids=item.ids.to("cuda", non_blocking=True),
                cu_seqlens=item.cu_seqlens.to("cuda", non_blocking=True),
            )
            found += rows_of(moved_row)
        else:
            assert isinstance(item, PaddedIds)
            assert item.ids.is_pinned()
            assert item.mask.is_pinned()
            moved_ids = PaddedIds(*(tensor.to("cuda", non_blocking=True) for tensor in item))
            found += rows_of(moved_ids)
    assert sorted(found) == sequences_of(shards)


def test_pieces_of_split_sequences_are_rows_of_their_own(tmp_path: Path) -> None:
    path = make_shards(
        tmp_path, layout="varlen", batch_size=None, max_tokens=8, packing="sequential"
    )
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
    items = [dataset[index] for index in range(len(dataset))]
    assert [item.cu_seqlens.tolist() for item in items] == [ends for ends, _ in expected]
    assert [item.max_seqlen for item in items] == [3, 8, 5, 5, 8, 4]
    found = [dataset.original_indices(index).tolist() for index in range(len(dataset))]
    assert found == [indices for _, indices in expected]
    assert torch.cat([item.ids for item in items]).tolist() == np.concatenate([*store]).tolist()


def test_padded_on_the_left_and_filled_up_is_masked(tmp_path: Path) -> None:
    path = make_shards(tmp_path, layout="padded", padding_side="left", last_batch="pad")
    dataset = ShardDataset(path)
    items = list(DataLoader(dataset, batch_size=None))
    # 12 9 5 | 5 3 2 | 1 and two empty ones
    for item, lengths in zip(items, [(12, 9, 5), (5, 3, 2), (1, 0, 0)], strict=True):
        assert isinstance(item, PaddedIds)
        width = lengths[0]
        assert item.mask.tolist() == [
            [step >= width - length for step in range(width)] for length in lengths
        ]
        assert (item.ids[~item.mask] == 256).all()
    indices = [dataset.original_indices(index).tolist() for index in range(3)]
    assert indices == [[5, 1, 2], [4, 0, 6], [3, -1, -1]]
    rows = sorted(row for item in items for row in rows_of(item) if row)
    assert rows == sequences_of(path)


def attend(inputs: torch.Tensor, is_visible: torch.Tensor) -> torch.Tensor:
    """Let each token attend to those it can see."""
    return nn.functional.scaled_dot_product_attention(inputs, inputs, inputs, attn_mask=is_visible)


def test_cu_seqlens_keep_sequences_apart_in_attention(tmp_path: Path) -> None:
    path = make_shards(tmp_path, layout="varlen", batch_size=None, max_tokens=14, shuffle=True)
    torch.manual_seed(0)
    embedding = nn.Embedding(259, 8)
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
