"""Arguments of kernels: every sequence is a run of its own, padding too, and nothing else is."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from tensor_reference import assert_same
from varlen_rows import SHAPES, find_ranges, make_tensors

from seqpack_cli.shards.shared_rows import VarlenBatch
from seqpack_cli.training.batch_tensors import VarlenTensors
from seqpack_cli.training.kernel_arguments import TARGETS

every_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
# Of each target: the names of its borders (of queries, of keys) and of the longest run.
NAMES = {
    "transformers": ("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k"),
    "flash_attn": ("cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k"),
    "torch": ("cu_seq_q", "cu_seq_k", "max_q", "max_k"),
}


def slow_numbers(batch: VarlenTensors) -> list[int]:
    numbers = [-1] * batch.ids.numel()
    for number, (start, stop) in enumerate(find_ranges(batch)):
        numbers[start:stop] = [number] * (stop - start)
    return numbers


@every_shape
def test_every_cell_has_the_number_of_its_sequence(shape: dict[str, Any]) -> None:
    batch = make_tensors(**shape)
    assert batch.sequence_ids.shape == batch.ids.shape
    assert batch.sequence_ids.dtype == torch.int64
    assert batch.sequence_ids.flatten().tolist() == slow_numbers(batch)
    assert (batch.ids == 0).equal(batch.sequence_ids == -1)


@every_shape
@pytest.mark.parametrize("target", NAMES)
def test_borders_cover_all_cells_and_part_sequences_and_padding(
    shape: dict[str, Any], target: str
) -> None:
    batch = make_tensors(**shape)
    found = batch.to_kwargs(target)
    begins, begins_k, longest, longest_k = (found[name] for name in NAMES[target])
    assert begins.dtype == torch.int32
    assert begins_k is begins
    runs = list(pairwise(begins.tolist()))
    assert (runs[0][0], runs[-1][1]) == (0, batch.ids.numel())
    assert all(stop > start for start, stop in runs)
    assert longest <= batch.ids.shape[-1]
    assert set(find_ranges(batch)) <= set(runs)
    assert (type(longest), longest, longest_k) == (int, max(b - a for a, b in runs), longest)
    numbers = slow_numbers(batch)
    assert all(len(set(numbers[start:stop])) == 1 for start, stop in runs)


@every_shape
def test_cells_for_transformers_are_rows(shape: dict[str, Any]) -> None:
    batch = make_tensors(**shape, labels="same")
    found = batch.to_kwargs("transformers")
    rows = (1, *batch.ids.shape)[-2:]
    names = ("input_ids", "position_ids", "seq_idx", "labels")
    assert {found[name].shape for name in names} == {rows}
    assert found["seq_idx"].dtype == torch.int32
    numbers, runs = batch.sequence_ids.view(rows), found["seq_idx"]
    assert (numbers.diff() != 0).equal(runs.diff() == 1)
    assert found["use_cache"] is False
    assert "attention_mask" not in found  # with one, the positions are ignored


@every_shape
def test_batches_of_shards_have_the_same_parts(shape: dict[str, Any]) -> None:
    expected = make_tensors(**shape, labels="same")
    rows, width = shape["rows"], shape.get("width")
    numbers = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    batch = VarlenBatch(
        expected.ids.flatten().numpy().astype(np.uint16),
        expected.lengths.numpy(),
        expected.original_indices.numpy(),
        row_indices=None if width is None else numbers,
        row_length=width,
        multiple=shape.get("multiple", 1),
    )
    assert_same(VarlenTensors.from_batch(batch, "same"), expected)


def test_first_position_is_that_of_every_sequence_and_of_padding() -> None:
    batch = make_tensors([[3, 1]], multiple=2)
    shown = batch.to_kwargs("transformers", first_position=2)["position_ids"].tolist()
    assert shown == [[2, 3, 4, 2, 2, 2]]
    assert batch.position_ids.tolist() == [0, 1, 2, 0, 0, 0]


def test_labels_that_transformers_would_shift_twice_are_refused() -> None:
    with pytest.raises(ValueError, match="labels are those of labels='next', expected labels='s"):
        make_tensors([[3]], labels="next").to_kwargs("transformers")
    assert make_tensors([[3]], labels="next").to_kwargs("torch")


def test_labels_of_sequences_are_not_for_transformers() -> None:
    batch = make_tensors([[3, 2]])
    batch.labels = torch.tensor([1, 0])
    assert "labels" not in batch.to_kwargs("transformers")


def test_megatron_is_told_of_padding_only_where_there_is_some() -> None:
    plain = make_tensors([[3, 2]]).to_kwargs("megatron")
    assert not [name for name in plain if name.endswith("_padded")]
    assert (plain["cu_seqlens_q"].tolist(), plain["max_seqlen_q"]) == ([0, 3, 5], 3)
    aligned = make_tensors([[3, 2]], multiple=4).to_kwargs("megatron")
    assert aligned["cu_seqlens_q"].tolist() == [0, 3, 5]
    assert aligned["cu_seqlens_q_padded"].tolist() == [0, 4, 8]
    assert (type(aligned["max_seqlen_kv"]), aligned["max_seqlen_kv"]) == (int, 4)


def test_an_unknown_target_is_an_error() -> None:
    names = ", ".join(map(repr, TARGETS))
    with pytest.raises(ValueError, match=f"target 'xformers': expected one of {names}"):
        make_tensors([[3]]).to_kwargs("xformers")
