"""Batches joined into a shard's arrays and taken out again, and offsets not to be believed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shard_reference import Arrays

from seqpack_cli.shards.layouts import (
    LAYOUTS,
    Batch,
    check_ids,
    check_offsets,
    join_batches,
    tensor_names,
    view_batch,
)

BATCHES = st.lists(
    st.lists(st.integers(1, 6), min_size=1, max_size=4).map(lambda n: sorted(n, reverse=True)),
    min_size=1,
    max_size=5,
)
OFFSETS = ("sequence_offsets", "data_offsets", "step_offsets")


def make_batches(layout: str, lengths: list[list[int]]) -> list[Batch]:
    """Lay out rows of rising ids."""
    batches, next_index = [], 0
    for rows in lengths:
        indices = np.arange(next_index, next_index + len(rows))
        sequences = [np.arange(n, dtype=np.uint16) + i for i, n in zip(indices, rows, strict=True)]
        sequences = [sequence.astype(np.uint16) for sequence in sequences]
        batches.append(LAYOUTS[layout].lay_out(sequences, indices, pad_id=0))
        next_index += len(rows)
    return batches


@pytest.mark.parametrize("layout", LAYOUTS)
@settings(max_examples=40, deadline=None)
@given(lengths=BATCHES)
def test_view_batch_is_the_inverse_of_join_batches(layout: str, lengths: list[list[int]]) -> None:
    batches = make_batches(layout, lengths)
    tensors = join_batches(layout, batches)
    assert list(tensors) == tensor_names(layout)
    assert all(tensors[name].dtype == np.int64 for name in tensors if name != "data")
    assert tensors["data"].dtype == np.uint16
    check_offsets(layout, tensors)
    for index, batch in enumerate(batches):
        found = view_batch(layout, tensors, index)
        found.check(pad_id=0)
        expected = batch.to_arrays()
        for name, array in found.to_arrays().items():
            assert array.tolist() == expected[name].tolist(), name
        assert np.shares_memory(found.to_arrays()["data"], tensors["data"])


def test_tensor_names_are_those_of_the_format() -> None:
    assert tensor_names("packed") == [
        "lengths",
        "original_indices",
        "batch_sizes",
        "sequence_offsets",
        "step_offsets",
        "data_offsets",
        "data",
    ]
    assert tensor_names("padded") == [
        "lengths",
        "original_indices",
        "widths",
        "sequence_offsets",
        "data_offsets",
        "data",
    ]


def three_batches(layout: str) -> Arrays:
    """Give the arrays of a shard of three batches."""
    return join_batches(layout, make_batches(layout, [[4, 2], [3], [2, 2, 1]]))


WRONG_OFFSETS = {
    "first is not 0": lambda end: [1, 2, 3, end],
    "not to the end": lambda end: [0, 1, 2, end - 1],
    "beyond the end": lambda end: [0, 1, 2, end + 1],
    "falls": lambda end: [0, 3, 2, end],
    "an empty batch": lambda end: [0, 1, 1, end],
    "negative": lambda end: [0, -1, 2, end],
    "far out": lambda end: [0, 2**62, 2, end],
    "too few": lambda end: [0, 1, end],
    "too many": lambda end: [0, 1, 2, 3, end],
    "one": lambda end: [end],
    "none": lambda end: [end][1:],
    "differences wrap around": lambda end: [0, 2**63 - 1, -2, end],
}


@pytest.mark.parametrize("wrong", WRONG_OFFSETS)
@pytest.mark.parametrize(
    ("layout", "name"),
    [(layout, name) for layout in LAYOUTS for name in OFFSETS if name in tensor_names(layout)],
)
def test_check_offsets_refuses(layout: str, name: str, wrong: str) -> None:
    tensors = three_batches(layout)
    end = int(tensors[name][-1])
    tensors[name] = np.array(WRONG_OFFSETS[wrong](end), np.int64)
    with pytest.raises(ValueError, match=r"offsets|entries for -?\d+ batches"):
        check_offsets(layout, tensors)


def test_check_offsets_says_what_it_found() -> None:
    tensors = three_batches("packed")
    tensors["step_offsets"] = np.array([0, 4, 4, 9])
    with pytest.raises(ValueError, match=r"^step_offsets do not rise from 0 to the 9 of batch_si"):
        check_offsets("packed", tensors)
    tensors["step_offsets"] = np.array([0, 9])
    with pytest.raises(ValueError, match=r"^step_offsets has 2 entries, 3 batches$"):
        check_offsets("packed", tensors)
    tensors = three_batches("padded")
    tensors["widths"] = np.array([4, 3])
    with pytest.raises(ValueError, match=r"^widths has 2 entries for 3 batches$"):
        check_offsets("padded", tensors)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_check_ids_names_the_first_id_out_of_range(layout: str) -> None:
    batch = make_batches(layout, [[3, 2]])[0]
    check_ids(batch, max_id=2)
    cell = 3 if layout == "packed" else 2
    with pytest.raises(ValueError, match=f"^id 2 at cell {cell}, expected ids from 0 to 1$"):
        check_ids(batch, max_id=1)
    batch.to_arrays()["data"][1] = 60_000
    with pytest.raises(ValueError, match=r"^id 60000 at cell 1, expected ids from 0 to 2$"):
        check_ids(batch, max_id=2)


def test_check_ids_refuses_negative_ids() -> None:
    rows = [np.array([1, -1, 2], np.int32)]
    batch = LAYOUTS["packed"].lay_out(rows, np.array([0]), pad_id=0)
    with pytest.raises(ValueError, match=r"^id -1 at cell 1, expected ids from 0 to 2$"):
        check_ids(batch, max_id=2)
