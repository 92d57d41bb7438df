"""Next-token labels: those of each sequence alone, laid out as the ids are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from random_shards import KINDS, Kind, draw_shard
from shard_reference import lay_out, make_shards
from tensor_reference import rows_of
from torch.nn.functional import cross_entropy

from seqpack_cli.shards.layouts import Batch
from seqpack_cli.shards.padded import PaddedBatch
from seqpack_cli.shards.shard_set import open_shards
from seqpack_cli.shards.shared_rows import StreamsBatch, VarlenBatch
from seqpack_cli.tokens.store import open_store
from seqpack_cli.training.batch_tensors import PackedTensors
from seqpack_cli.training.labels import IGNORED, make_next_labels
from seqpack_cli.training.shard_dataset import ShardDataset

every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def slow_labels(row: Sequence[int]) -> np.ndarray:
    """Return the labels of one sequence: at each token the one after it, nothing at the last."""
    return np.array([*[int(id_) for id_ in row[1:]], -100], np.int64)


def slow_next_labels(layout: str, batch: Batch, rows: Sequence[Sequence[int]]) -> list[Any]:
    """Lay the labels of each sequence out as the ids of the batch are."""
    if isinstance(batch, (VarlenBatch, StreamsBatch)):
        cells = np.full(batch.data.size, -100)
        for number, row in enumerate(rows):
            cells[batch.find_cells(number)] = slow_labels(row)
            if isinstance(batch, StreamsBatch) and batch.next_ids[number] != -1:
                cells[batch.find_cells(number)[-1]] = batch.next_ids[number]
        return cells.reshape(batch.shape).tolist()  # type: ignore[no-any-return]
    num_filler_rows, width, padding_side = 0, None, "right"
    if isinstance(batch, PaddedBatch):
        num_filler_rows, width = batch.num_filler_rows, batch.ids.shape[1]
        padding_side = batch.padding_side
    labels = lay_out(
        layout,
        [slow_labels(row) for row in rows],
        np.arange(len(rows)),
        pad_id=-100,
        width=width,
        padding_side=padding_side,
        num_filler_rows=num_filler_rows,
    )
    found = labels.ids if isinstance(labels, PaddedBatch) else labels.data
    return found.tolist()  # type: ignore[no-any-return]


def test_ignored_is_what_cross_entropy_leaves_out() -> None:
    logits = torch.zeros(2, 5)
    both = cross_entropy(logits, torch.tensor([3, IGNORED]), reduction="sum")
    assert both == cross_entropy(logits[:1], torch.tensor([3]))


@every_kind
@given(
    seed=st.integers(0, 10**6),
    dtype=st.sampled_from(["uint16", "int32"]),
    max_id=st.sampled_from([0, 2, 65_535]),  # padding has id 0: it may be a token's too
)
def test_labels_are_those_of_each_sequence_alone(
    kind: Kind, seed: int, dtype: str, max_id: int
) -> None:
    shard, store = draw_shard(kind, seed, dtype=dtype, max_id=max_id, num_most=8)
    for index in range(len(shard)):
        batch = shard[index]
        assert batch.original_indices is not None
        real = [int(number) for number in batch.original_indices if number >= 0]
        rows = [store[number].tolist() for number in real]
        if batch.piece_starts is not None:
            places = zip(batch.piece_starts.tolist(), batch.lengths.tolist(), strict=True)
            rows = [
                row[start : start + length]
                for row, (start, length) in zip(rows, places, strict=True)
            ]
        labels = make_next_labels(batch)
        assert labels.dtype == np.int64
        assert labels.tolist() == slow_next_labels(kind.layout, batch, rows)


# What is laid out, and the labels; ids count up from 10 a row, padding is 0.
CASES: dict[str, tuple[str, list[int], dict[str, Any], list[Any]]] = {
    "packed": ("packed", [3, 2, 1], {}, [11, 21, -100, 12, -100, -100]),
    "packed, one token": ("packed", [1], {}, [-100]),
    "packed, rows of one token": ("packed", [1, 1, 1], {}, [-100, -100, -100]),
    "packed, equal rows": ("packed", [2, 2], {}, [11, 21, -100, -100]),
    "right": ("padded", [3, 1], {"width": 4}, [[11, 12, -100, -100], [-100] * 4]),
    "left": (
        "padded",
        [3, 1],
        {"width": 4, "padding_side": "left"},
        [[-100, 11, 12, -100], [-100] * 4],
    ),
    "padded, one token": ("padded", [1], {}, [[-100]]),
    "padded, nothing to fill": ("padded", [2, 2], {}, [[11, -100], [21, -100]]),
    "filler": ("padded", [2], {"num_filler_rows": 2}, [[11, -100], [-100] * 2, [-100] * 2]),
    "filler on the left": (
        "padded",
        [2],
        {"num_filler_rows": 1, "padding_side": "left", "width": 3},
        [[-100, 11, -100], [-100] * 3],
    ),
    "varlen": ("varlen", [1, 3, 1, 2], {}, [-100, 21, 22, -100, -100, 41, -100]),
    "varlen, one token": ("varlen", [1], {}, [-100]),
    "varlen, rows of one token": ("varlen", [1, 1], {}, [-100, -100]),
}


@pytest.mark.parametrize(("layout", "lengths", "options", "expected"), CASES.values(), ids=CASES)
def test_labels_of(
    layout: str, lengths: list[int], options: dict[str, Any], expected: list[Any]
) -> None:
    rows = [np.arange(length, dtype=np.uint16) + 10 * n for n, length in enumerate(lengths, 1)]
    batch = lay_out(layout, rows, np.arange(len(rows)), **options)
    assert make_next_labels(batch).tolist() == expected


def test_large_ids_stay_positive() -> None:
    batch = lay_out("packed", [np.array([1, 65_535], np.uint16)], np.arange(1))
    assert make_next_labels(batch).tolist() == [65_535, -100]
    batch = lay_out("varlen", [np.array([1, 2**31 - 1], np.int32)], np.arange(1))
    assert make_next_labels(batch).tolist() == [2**31 - 1, -100]


def test_a_piece_of_a_split_sequence_ends_without_a_label(tmp_path: Path) -> None:
    path = make_shards(
        tmp_path, [12, 3], layout="varlen", batch_size=None, max_tokens=8, fill="sequential"
    )
    whole = [ids.tolist() for ids in open_store(tmp_path / "store")]
    first, second = ShardDataset(path, labels="next")
    assert [batch.lengths.tolist() for batch in open_shards(path)] == [[8], [4, 3]]
    assert first.labels.tolist() == [*whole[0][1:8], -100]  # not the ninth id, of another row
    assert second.labels.tolist() == [*whole[0][9:12], -100, *whole[1][1:], -100]


LAYOUTS: dict[str, dict[str, Any]] = {
    "packed": {"layout": "packed"},
    "padded": {"layout": "padded", "last_batch": "pad"},
    "left": {"layout": "padded", "padding_side": "left", "last_batch": "pad"},
    "varlen": {"layout": "varlen", "batch_size": None, "max_tokens": 14},
}


@pytest.mark.parametrize("options", LAYOUTS.values(), ids=LAYOUTS)
def test_loss_is_that_of_each_sequence_alone(tmp_path: Path, options: dict[str, Any]) -> None:
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(259, 259, generator=generator, dtype=torch.float64)  # id -> logits
    num_labels = 0
    for item in ShardDataset(make_shards(tmp_path, **options), labels="next"):
        ids = item.sequences.data if isinstance(item, PackedTensors) else item.ids
        found = cross_entropy(table[ids].flatten(0, -2), item.labels.flatten(), reduction="sum")
        expected = torch.zeros((), dtype=torch.float64)
        for row in map(torch.tensor, rows_of(item)):
            if len(row) > 1:
                expected += cross_entropy(table[row[:-1]], row[1:], reduction="sum")
                num_labels += len(row) - 1
        torch.testing.assert_close(found, expected)
    assert num_labels == 37 - 7  # tokens of all sequences, less the last of each


@pytest.mark.parametrize("options", LAYOUTS.values(), ids=LAYOUTS)
def test_labels_come_when_asked_for(tmp_path: Path, options: dict[str, Any]) -> None:
    path = make_shards(tmp_path, **options)
    with_labels, without = ShardDataset(path, labels="next"), ShardDataset(path)
    for batch, labelled, item in zip(open_shards(path), with_labels, without, strict=True):
        assert item.labels is None
        assert labelled.labels.dtype == torch.int64
        assert labelled.labels.tolist() == make_next_labels(batch).tolist()
        ids = labelled.sequences.data if isinstance(labelled, PackedTensors) else labelled.ids
        assert labelled.labels.shape == ids.shape


@pytest.mark.parametrize("labels", ["Next", "", "previous"])
def test_other_labels_are_refused(tmp_path: Path, labels: str) -> None:
    with pytest.raises(ValueError, match=r"^labels is .*, expected .*next"):
        ShardDataset(make_shards(tmp_path), labels=labels)


@pytest.mark.parametrize("labels", [True, 1])
def test_labels_of_another_type_are_refused(tmp_path: Path, labels: Any) -> None:
    with pytest.raises(TypeError, match=rf"^labels is {labels}, expected str \\| None$"):
        ShardDataset(tmp_path, labels=labels)
