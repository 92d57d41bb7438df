"""Batches as torch's tensors: their values, where they are, and the way to another process."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
import torch
from random_shards import KINDS, Kind, draw_shard
from shard_reference import slow_pack, slow_pad, to_arrays
from tensor_reference import ON_CPU, assert_same, parts_of, rows_of, tensors_of, to_tensors
from torch.nn.utils.rnn import PackedSequence, pack_sequence
from torch.utils.data import DataLoader

from seqpack_cli.limits import LIMITS
from seqpack_cli.shards import packed, padded
from seqpack_cli.shards.layouts import Batch
from seqpack_cli.shards.padded import PaddedBatch
from seqpack_cli.shards.shared_rows import StreamsBatch, VarlenBatch
from seqpack_cli.tokens.store import TokenStore
from seqpack_cli.tokens.text_values import TextValues
from seqpack_cli.training.batch_tensors import (
    BatchTensors,
    PackedTensors,
    PaddedTensors,
    StreamTensors,
    VarlenTensors,
)

every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
with_and_without_labels = pytest.mark.parametrize("labels", [None, "next"])


def freeze(batch: Batch) -> Batch:
    """Make the arrays of a batch read-only, as those of a map are."""
    for array in vars(batch).values():
        if isinstance(array, np.ndarray):
            array.flags.writeable = False
    return batch


def draw(kind: Kind, num_seeds: int = 12) -> Iterator[tuple[Batch, TokenStore]]:
    """Yield sound batches with read-only arrays, and the store of each."""
    for seed in range(num_seeds):
        shard, store = draw_shard(kind, seed, dtype="uint16" if seed % 2 else "int32", num_most=7)
        for index in range(len(shard)):
            yield freeze(shard[index]), store


def some_items(labels: str | None = "next") -> dict[str, BatchTensors]:
    """Return an item of each layout, with columns of all dtypes."""
    rows = [np.array(ids, np.uint16) for ids in ([5, 6, 7], [8, 9], [65_535])]
    indices, lengths = np.array([4, 0, 2]), np.array([3, 2, 1])
    columns = {
        "label": np.array([1, 0, -100], np.int32),
        "score": np.array([0.5, -1, 2]),
        "id": TextValues.of(["a", "", "é"]),
    }
    varlen = VarlenBatch(np.concatenate(rows), lengths, indices, columns=columns)
    return {
        "packed": to_tensors(
            replace(packed.pack_sequence(rows), original_indices=indices, columns=columns),
            labels=labels,
        ),
        "padded": to_tensors(
            replace(padded.pad_sequence(rows), original_indices=indices, columns=columns),
            labels=labels,
        ),
        "varlen": to_tensors(varlen, labels=labels),
    }


layouts = pytest.mark.parametrize("layout", ["packed", "padded", "varlen"])


def slow_rows(batch: Batch, store: TokenStore) -> list[list[int]]:
    """Return the ids of each row of a batch, of the store alone, none for a filler row."""
    assert batch.original_indices is not None
    rows = [store[number].tolist() if number >= 0 else [] for number in batch.original_indices]
    if isinstance(batch, (VarlenBatch, StreamsBatch)):
        pieces = zip(batch.piece_starts.tolist(), batch.lengths.tolist(), strict=True)
        return [row[start : start + n] for row, (start, n) in zip(rows, pieces, strict=True)]
    return rows


@every_kind
def test_tensors_are_those_of_the_slow_layout(kind: Kind) -> None:
    num_items = 0
    for batch, store in draw(kind):
        rows, item = slow_rows(batch, store), to_tensors(batch)
        lengths = [len(row) for row in rows]
        assert rows_of(item) == [tuple(row) for row in rows]
        assert item.lengths.tolist() == lengths
        assert item.original_indices.tolist() == batch.original_indices.tolist()
        if isinstance(item, PackedTensors):
            data, batch_sizes = slow_pack(rows)
            assert item.sequences.data.tolist() == data
            assert item.sequences.batch_sizes.tolist() == batch_sizes
        elif isinstance(item, PaddedTensors):
            width = batch.ids.shape[1]
            slow = {"width": width, "padding_side": kind.padding_side}
            ones = [[1] * length for length in lengths]
            assert item.ids.tolist() == slow_pad(rows, padding_value=0, **slow)
            assert item.mask.int().tolist() == slow_pad(ones, padding_value=0, **slow)
        elif isinstance(item, StreamTensors):
            begins = zip(batch.first_steps, batch.row_indices, batch.resets, strict=True)
            expected = [(int(step), int(stream)) for step, stream, reset in begins if reset]
            found = item.resets.nonzero().tolist()
            assert sorted(map(tuple, found)) == sorted(expected)
        elif kind.has_rows or kind.multiple > 1:
            assert item.ids.shape == batch.shape
            assert item.cu_seqlens.tolist() == [0, *accumulate(lengths)]
            positions = [0] * item.ids.numel()
            for start, n in zip(batch.starts.tolist(), lengths, strict=True):
                positions[start : start + n] = range(n)
            assert item.position_ids.flatten().tolist() == positions
        else:
            assert item.ids.tolist() == [id_ for row in rows for id_ in row]
            assert item.cu_seqlens.tolist() == [0, *accumulate(lengths)]
            assert item.position_ids.tolist() == [t for n in lengths for t in range(n)]
            assert (type(item.max_seqlen), item.max_seqlen) == (int, max(lengths))
        num_items += 1
    assert num_items > 15


@layouts
def test_dtypes_are_those_that_torch_wants(layout: str) -> None:
    item = some_items()[layout]
    others = {"mask": torch.bool, "cu_seqlens": torch.int32, "columns.score": torch.float64}
    for name, tensor in tensors_of(item).items():
        assert tensor.dtype == others.get(name, torch.int64), name
        assert tensor.is_contiguous(), name
        assert not tensor.requires_grad, name


def test_sequences_are_what_torch_itself_packs() -> None:
    item = some_items()["packed"]
    assert isinstance(item, PackedTensors)
    assert isinstance(item.sequences, PackedSequence)
    rows = [torch.tensor(row) for row in ([5, 6, 7], [8, 9], [65_535])]
    expected = pack_sequence(rows)
    assert item.sequences.data.tolist() == expected.data.tolist()
    assert item.sequences.batch_sizes.tolist() == expected.batch_sizes.tolist()
    assert item.sequences.sorted_indices is expected.sorted_indices is None
    assert item.sequences.unsorted_indices is expected.unsorted_indices is None


def test_left_padded_batch_of_one_column() -> None:
    batch = PaddedBatch(
        np.array([[7], [8], [0]]), np.array([1, 1, 0]), np.array([1, 0, -1]), "left"
    )
    item = to_tensors(batch, labels="next")
    assert item.mask.tolist() == [[True], [True], [False]]
    assert item.labels.tolist() == [[-100]] * 3


@every_kind
@with_and_without_labels
def test_tensors_share_no_memory_with_the_batch(kind: Kind, labels: str | None) -> None:
    for batch, _ in draw(kind, 4):
        item = to_tensors(batch, labels=labels)
        kept = {name: array.tolist() for name, array in to_arrays(batch).items()}
        for tensor in tensors_of(item).values():
            tensor.fill_(1)  # would be a crash in a map
        assert {name: array.tolist() for name, array in to_arrays(batch).items()} == kept


@every_kind
def test_tensors_of_one_item_share_no_memory(kind: Kind) -> None:
    batch, _ = next(draw(kind))
    tensors = tensors_of(to_tensors(batch, labels="next"))
    for name in tensors:
        kept = {other: tensor.tolist() for other, tensor in tensors.items() if other != name}
        tensors[name].fill_(1)
        assert {other: tensors[other].tolist() for other in kept} == kept, name


@layouts
@with_and_without_labels
@pytest.mark.parametrize("non_blocking", [False, True])
@pytest.mark.parametrize("device", ["cpu", torch.device("cpu")])
def test_to_the_cpu_changes_nothing(
    layout: str, labels: str | None, non_blocking: bool, device: str | torch.device
) -> None:
    item = some_items(labels)[layout]
    moved = item.to(device, non_blocking=non_blocking)
    assert_same(moved, item)
    for name, tensor in tensors_of(moved).items():
        assert tensor is tensors_of(item)[name], name  # torch's `to` copies nothing either


@layouts
@with_and_without_labels
@pytest.mark.parametrize("device", ["meta", torch.device("meta")])
def test_to_takes_what_a_model_computes_with(
    layout: str, labels: str | None, device: str | torch.device
) -> None:
    item = some_items(labels)[layout]
    moved = item.to(device)
    assert type(moved) is type(item)
    shapes = {name: tensor.shape for name, tensor in tensors_of(item).items()}
    assert {name: tensor.shape for name, tensor in tensors_of(moved).items()} == shapes
    for name, tensor in tensors_of(moved).items():
        assert tensor.device.type == ("cpu" if name in ON_CPU else "meta"), name
        assert tensor.dtype == tensors_of(item)[name].dtype, name
    if labels is None:
        assert moved.labels is None
    assert_same(item, some_items(labels)[layout])  # what was moved is still where it was


def test_to_keeps_the_longest_length_a_number() -> None:
    moved = some_items()["varlen"].to("meta", True)  # positional, as torch's may be
    assert isinstance(moved, VarlenTensors)
    assert (type(moved.max_seqlen), moved.max_seqlen) == (int, 3)


def test_columns_are_shown_in_one_line() -> None:
    shown = "columns={'label': int64[3] on meta, 'score': float64[3] on meta, 'id': 3 texts}"
    assert shown in repr(some_items()["varlen"].to("meta"))


@layouts
@pytest.mark.parametrize(
    ("labels", "expected"), [("label", [1, 0, -100]), ("score", [0.5, -1.0, 2.0])]
)
def test_a_column_may_be_labels(layout: str, labels: str, expected: list[Any]) -> None:
    item = some_items(labels)[layout]
    assert item.labels is not None
    assert item.labels.tolist() == expected
    assert item.labels.dtype == (torch.float32 if labels == "score" else torch.int64)


def test_labels_beyond_float32_are_refused() -> None:
    """A number too small for float32 is rounded, as any other."""
    indices, lengths, scores = np.arange(3), np.ones(3, np.int64), np.array([1e-50, 1.0, 1e308])
    data = np.zeros(3, np.uint16)
    batch = VarlenBatch(data[:2], lengths[:2], indices[:2], columns={"score": scores[:2]})
    assert to_tensors(batch, labels="score").labels.tolist() == [0.0, 1.0]
    batch = VarlenBatch(data, lengths, indices, columns={"score": scores})
    said = (
        r"^column 'score' holds 1e\+308, expected labels in the range of float32; "
        r"without labels, batch\.columns\['score'\] holds it$"
    )
    with pytest.raises(ValueError, match=said):
        to_tensors(batch, labels="score")


@layouts
def test_unknown_device_is_torchs_error(layout: str) -> None:
    with pytest.raises(RuntimeError, match="device"):
        some_items()[layout].to("nowhere")


@layouts
@with_and_without_labels
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("max_inline_bytes", [LIMITS.inline_bytes, 17, 0])
def test_pickled_items_are_equal_and_may_be_written(
    monkeypatch: pytest.MonkeyPatch,
    layout: str,
    labels: str | None,
    protocol: int,
    max_inline_bytes: int,
) -> None:
    monkeypatch.setattr(LIMITS, "inline_bytes", max_inline_bytes)
    item = some_items(labels)[layout]
    again = pickle.loads(pickle.dumps(item, protocol))  # noqa: S301 - our own
    assert_same(again, item)
    for tensor in tensors_of(again).values():
        tensor.fill_(1)
    assert_same(item, some_items(labels)[layout])


@every_kind
def test_any_item_survives_a_pickle(kind: Kind) -> None:
    for batch, _ in draw(kind, 4):
        item = to_tensors(batch, labels="next")
        assert_same(pickle.loads(pickle.dumps(item)), item)  # noqa: S301 - our own


@layouts
def test_pickled_item_of_another_device_stays_there(layout: str) -> None:
    item = some_items()[layout].to("meta")
    again = pickle.loads(pickle.dumps(item))  # noqa: S301 - our own
    for name, tensor in tensors_of(again).items():
        assert tensor.device == tensors_of(item)[name].device, name
        assert tensor.shape == tensors_of(item)[name].shape, name


@layouts
@with_and_without_labels
def test_deep_copies_are_equal_and_independent(layout: str, labels: str | None) -> None:
    item = some_items(labels)[layout]
    other = copy.deepcopy(item)
    assert_same(other, item)
    for tensor in tensors_of(other).values():
        tensor.fill_(1)
    assert_same(item, some_items(labels)[layout])


@layouts
def test_shallow_copies_share_their_tensors(layout: str) -> None:
    item = some_items()[layout]
    other = copy.copy(item)
    assert_same(other, item)
    for name, tensor in tensors_of(other).items():
        assert tensor.data_ptr() == tensors_of(item)[name].data_ptr(), name


@layouts
def test_saved_items_are_loaded_again(layout: str) -> None:
    item, file = some_items()[layout], io.BytesIO()
    torch.save(item, file)
    file.seek(0)
    assert_same(torch.load(file, weights_only=False), item)


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # on a single core
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_large_tensors_of_a_worker_come_in_shared_memory() -> None:
    num_inline = LIMITS.inline_bytes // 8  # the most ids that go through the pipe
    rows = [np.arange(count) % 60_000 for count in (num_inline, num_inline + 1)]
    batches = [
        replace(
            packed.pack_sequence([row.astype(np.uint16)]),
            original_indices=np.zeros(1, int),
        )
        for row in rows
    ]
    wide = replace(
        padded.pad_sequence([rows[1].astype(np.uint16)]), original_indices=np.zeros(1, int)
    )
    items: list[BatchTensors] = [*map(to_tensors, batches), to_tensors(wide, labels="next")]
    loader = DataLoader(items, batch_size=None, num_workers=1, multiprocessing_context="fork")
    found = list(loader)
    for item, expected in zip(found, items, strict=True):
        for name, tensor in tensors_of(item).items():
            assert torch.equal(tensor, tensors_of(expected)[name]), name
            tensor.fill_(1)
    shared = [
        {name for name, tensor in tensors_of(item).items() if tensor.is_shared()} for item in found
    ]
    assert shared == [
        set(),
        {"sequences.data", "sequences.batch_sizes"},
        {"ids", "labels"},  # the mask has a byte a cell
    ]


@layouts
def test_items_are_no_longer_than_their_fields(layout: str) -> None:
    item = some_items()[layout]
    with pytest.raises(AttributeError):
        item.padding = 3  # type: ignore[union-attr] # a slip of the pen is no new attribute
    assert "labels" in parts_of(item)
    assert item != some_items()[layout]  # an item is itself; tensors have no truth to compare
    assert len({item, item}) == 1


@pytest.mark.cuda
@layouts
@with_and_without_labels
def test_pinned_items_go_to_the_device(layout: str, labels: str | None) -> None:
    item = some_items(labels)[layout]
    pinned = item.pin_memory()
    assert_same(pinned, item)
    for name, tensor in tensors_of(pinned).items():
        assert tensor.is_pinned() is (name not in ON_CPU), name
    for device in ("cuda", torch.device("cuda"), torch.device("cuda", 0), 0):
        moved = pinned.to(device, non_blocking=True)
        for name, tensor in tensors_of(moved).items():
            assert tensor.is_cuda is (name not in ON_CPU), name
        assert_same(moved.to("cpu"), item)
        assert rows_of(moved) == rows_of(item)


@pytest.mark.cuda
@layouts
def test_pickled_pinned_items_are_equal(layout: str) -> None:
    item = some_items()[layout]
    assert_same(pickle.loads(pickle.dumps(item.pin_memory())), item)  # noqa: S301 - our own
    assert_same(copy.deepcopy(item.to("cuda")).to("cpu"), item)
