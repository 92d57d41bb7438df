"""Batches joined into a shard's arrays and taken out again, and wrong offsets."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shard_reference import PLAIN_GEOMETRY, Arrays, join_batches, lay_out, to_arrays

from seqpack_cli.batching.options import LAYOUTS
from seqpack_cli.shards.arrays import ShardArrays, tensor_names
from seqpack_cli.shards.layouts import Batch, Geometry, check_ids
from seqpack_cli.shards.padded import PaddedBatch

BATCHES = st.lists(
    st.lists(st.integers(1, 6), min_size=1, max_size=4).map(lambda n: sorted(n, reverse=True)),
    min_size=1,
    max_size=5,
)
FILLER = Geometry(1, has_filler_rows=True)
OF_ROWS = [name for name in LAYOUTS if not LAYOUTS[name].carries_state]
OFFSETS = ("sequence_offsets", "data_offsets", "step_offsets")


def make_batches(layout: str, lengths: list[list[int]]) -> list[Batch]:
    """Lay out rows of consecutive ids."""
    batches, next_index = [], 0
    for rows in lengths:
        indices = np.arange(next_index, next_index + len(rows))
        sequences = [np.arange(n, dtype=np.uint16) + i for i, n in zip(indices, rows, strict=True)]
        sequences = [sequence.astype(np.uint16) for sequence in sequences]
        batches.append(lay_out(layout, sequences, indices))
        next_index += len(rows)
    return batches


@pytest.mark.parametrize("layout", OF_ROWS)
@settings(max_examples=40, deadline=None)
@given(lengths=BATCHES)
def test_view_batch_is_the_inverse_of_join_batches(layout: str, lengths: list[list[int]]) -> None:
    batches = make_batches(layout, lengths)
    tensors = join_batches(layout, batches)
    assert list(tensors) == tensor_names(layout, Geometry())
    assert all(tensors[name].dtype == np.int64 for name in tensors if name != "data")
    assert tensors["data"].dtype == np.uint16
    ShardArrays(layout, tensors, Geometry()).check_offsets()
    for index, batch in enumerate(batches):
        found = ShardArrays(layout, tensors, Geometry()).view(index)
        found.check(pad_id=0)
        expected = to_arrays(batch)
        for name, array in to_arrays(found).items():
            assert array.tolist() == expected[name].tolist(), name
        assert np.shares_memory(to_arrays(found)["data"], tensors["data"])


def test_tensor_names_are_those_of_the_format() -> None:
    assert tensor_names("packed", Geometry()) == [
        "lengths",
        "original_indices",
        "batch_sizes",
        "sequence_offsets",
        "step_offsets",
        "data_offsets",
        "data",
    ]
    assert tensor_names("padded", Geometry()) == [
        "lengths",
        "original_indices",
        "widths",
        "sequence_offsets",
        "data_offsets",
        "data",
    ]
    assert tensor_names("padded", FILLER) == [
        "lengths",
        "original_indices",
        "widths",
        "num_filler_rows",
        "sequence_offsets",
        "data_offsets",
        "data",
    ]
    assert tensor_names("varlen", Geometry()) == [
        "lengths",
        "original_indices",
        "piece_starts",
        "sequence_offsets",
        "data_offsets",
        "data",
    ]


@pytest.mark.parametrize("padding_side", ["right", "left"])
@settings(max_examples=30, deadline=None)
@given(lengths=BATCHES, draws=st.randoms(use_true_random=False))
def test_view_batch_gives_filler_rows_and_the_padding_side(
    padding_side: str, lengths: list[list[int]], draws: Random
) -> None:
    batches, next_index = [], 0
    for batch in lengths:
        batches.append(
            lay_out(
                "padded",
                [np.full(n, 5, np.uint16) for n in batch],
                np.arange(next_index, next_index + len(batch)),
                pad_id=1,
                width=max(batch) + draws.randrange(3),
                padding_side=padding_side,
                num_filler_rows=draws.randrange(3),
            )
        )
        next_index += len(batch)
    tensors = join_batches("padded", batches, FILLER)
    geometry = replace(FILLER, padding_side=padding_side)
    ShardArrays("padded", tensors, geometry).check_offsets()
    for index, expected in enumerate(batches):
        found = ShardArrays("padded", tensors, geometry).view(index)
        found.check(pad_id=1)
        assert isinstance(found, PaddedBatch)
        assert isinstance(expected, PaddedBatch)
        assert found.num_filler_rows == expected.num_filler_rows
        assert found.ids.tolist() == expected.ids.tolist()
        assert found.mask.tolist() == expected.mask.tolist()
        assert [row.tolist() for row in found.without_filler().rows()] == [
            [5] * n for n in lengths[index]
        ]


def three_batches(layout: str) -> Arrays:
    """Return the arrays of a shard of three batches."""
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
    [
        (layout, name)
        for layout in OF_ROWS
        for name in OFFSETS
        if name in tensor_names(layout, Geometry())
    ],
)
def test_check_offsets_refuses(layout: str, name: str, wrong: str) -> None:
    tensors = three_batches(layout)
    end = int(tensors[name][-1])
    tensors[name] = np.array(WRONG_OFFSETS[wrong](end), np.int64)
    with pytest.raises(ValueError, match=r"offsets|, expected one for each of -?\d+ batches"):
        ShardArrays(layout, tensors, Geometry()).check_offsets()


def test_check_offsets_says_what_it_found() -> None:
    wrong = {**three_batches("packed"), "step_offsets": np.array([0, 4, 4, 9])}
    message = "step_offsets does not rise from 0 to 9, the number of entries of batch_sizes"
    check_refused("packed", wrong, message)
    wrong = {**three_batches("packed"), "step_offsets": np.array([0, 9])}
    message = "step_offsets has 2 entries and data_offsets 4, expected the same number, at least 2"
    check_refused("packed", wrong, message)
    wrong = {**three_batches("padded"), "widths": np.array([4, 3])}
    check_refused("padded", wrong, "widths has 2 entries, expected one for each of 3 batches")
    wrong = {**three_batches("padded"), "num_filler_rows": np.array([0, 0, 0, 0])}
    message = "num_filler_rows has 4 entries, expected one for each of 3 batches"
    check_refused("padded", wrong, message, FILLER)
    wrong = {**three_batches("varlen"), "piece_starts": np.zeros(5, np.int64)}
    message = "sequence_offsets does not rise from 0 to 5, the number of entries of piece_starts"
    check_refused("varlen", wrong, message)


def check_refused(
    layout: str, tensors: Arrays, message: str, geometry: Geometry = PLAIN_GEOMETRY
) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        ShardArrays(layout, tensors, geometry).check_offsets()


@pytest.mark.parametrize("layout", OF_ROWS)
def test_check_ids_names_the_first_id_out_of_range(layout: str) -> None:
    batch = make_batches(layout, [[3, 2]])[0]
    check_ids(batch, max_id=2)
    cell = 3 if layout == "packed" else 2
    with pytest.raises(ValueError, match=f"^id 2 at cell {cell}, expected ids from 0 to 1$"):
        check_ids(batch, max_id=1)
    to_arrays(batch)["data"][1] = 60_000
    with pytest.raises(ValueError, match=r"^id 60000 at cell 1, expected ids from 0 to 2$"):
        check_ids(batch, max_id=2)


def test_check_ids_refuses_negative_ids() -> None:
    rows = [np.array([1, -1, 2], np.int32)]
    batch = lay_out("packed", rows, np.array([0]))
    with pytest.raises(ValueError, match=r"^id -1 at cell 1, expected ids from 0 to 2$"):
        check_ids(batch, max_id=2)
