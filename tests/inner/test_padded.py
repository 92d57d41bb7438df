"""The padded layout, compared with torch's pad_sequence and a plain loop."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from shard_reference import lay_out, slow_pad, to_arrays
from torch.nn.utils.rnn import pad_sequence

from seqpack_cli.shards import sequence_arrays
from seqpack_cli.shards.layouts import Geometry
from seqpack_cli.shards.padded import PaddedBatch, PaddedLayout

LENGTHS = st.lists(st.integers(1, 12), min_size=1, max_size=10)


def draw_rows(lengths: list[int], dtype: type = np.int64) -> list[np.ndarray]:
    """Draw rows with ids up to the largest of the dtype."""
    draws = np.random.default_rng(sum(lengths))
    return [draws.integers(0, min(np.iinfo(dtype).max, 2**40), n).astype(dtype) for n in lengths]


@pytest.mark.parametrize("dtype", [np.uint16, np.int32, np.int64])
@settings(max_examples=40, deadline=None)
@given(lengths=LENGTHS, padding_value=st.integers(0, 65_535), extra=st.integers(0, 3))
def test_pad_agrees_with_torch_and_the_slow_one(
    dtype: type, lengths: list[int], padding_value: int, extra: int
) -> None:
    rows = draw_rows(lengths, dtype)
    batch = sequence_arrays.pad_sequence(rows, padding_value=padding_value)
    theirs = pad_sequence(
        [torch.from_numpy(row) for row in rows], batch_first=True, padding_value=padding_value
    )
    assert batch.ids.dtype == dtype
    assert batch.lengths.tolist() == lengths
    assert torch.equal(torch.from_numpy(batch.ids), theirs)
    width = max(lengths) + extra
    wider = sequence_arrays.pad_sequence(rows, padding_value=padding_value, total_length=width)
    assert wider.ids.tolist() == slow_pad(rows, width=width, padding_value=padding_value)


@settings(max_examples=60, deadline=None)
@given(LENGTHS, st.integers(0, 3))
def test_unpad_is_the_inverse_of_pad(lengths: list[int], extra: int) -> None:
    rows = draw_rows(lengths)
    batch = sequence_arrays.pad_sequence(rows, total_length=max(lengths) + extra)
    for again in (
        sequence_arrays.unpad_sequence(batch),
        batch.rows(),
        [batch.row(row) for row in range(len(rows))],
    ):
        assert [row.tolist() for row in again] == [row.tolist() for row in rows]
    assert batch.mask.tolist() == [
        [column < length for column in range(max(lengths) + extra)] for length in lengths
    ]
    assert batch.count_padding() == int((~batch.mask).sum())


def test_pad_refuses_nothing_and_rows_wider_than_the_width() -> None:
    with pytest.raises(ValueError, match=r"^expected at least one sequence$"):
        sequence_arrays.pad_sequence([])
    with pytest.raises(ValueError, match=r"^a sequence of 3 ids is longer than total_length 2$"):
        sequence_arrays.pad_sequence([np.arange(3)], total_length=2)


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([3, 4], "a length is not from 0 to the width 3"),
        ([3, -1], "a length is not from 0 to the width 3"),
        ([3], "1 lengths for 2 rows"),
    ],
)
def test_unpad_refuses_lengths_of_another_rectangle(lengths: list[int], message: str) -> None:
    batch = sequence_arrays.pad_sequence([np.arange(3), np.arange(2)])
    with pytest.raises(ValueError, match=f"^{message}$"):
        sequence_arrays.unpad_sequence(replace(batch, lengths=np.array(lengths)))


@pytest.mark.parametrize("width", [0, -1, 2, 4, 2**62])
def test_make_batch_refuses_data_that_is_not_a_rectangle(width: int) -> None:
    arrays = sequence_arrays.pad_sequence([np.arange(3), np.arange(2)]).ids.reshape(-1)
    with pytest.raises(ValueError, match=f"^2 rows of width {width}, data has 6 cells$"):
        PaddedLayout(Geometry()).make_batch(
            {
                "lengths": np.array([3, 2]),
                "original_indices": np.array([0, 1]),
                "widths": np.array([width]),
                "data": arrays,
            }
        )


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([3, 1], "row 1: cell 1 is padding and holds 1, expected 0"),
        ([4, 2], "the longest row has 4 ids, width is 3"),
        ([2, 3], "expected longest first, row 1 is longer than the one before"),
        ([3, 0], "expected no empty sequence, found one in row 1"),
    ],
)
def test_check_names_what_contradicts_the_rest(lengths: list[int], message: str) -> None:
    batch = sequence_arrays.pad_sequence([np.arange(3), np.arange(2)])
    batch.check(pad_id=0)
    with pytest.raises(ValueError, match=f"^{message}$"):
        replace(batch, lengths=np.array(lengths)).check(pad_id=0)


@pytest.mark.parametrize("longest", [10**12, 2**62])
def test_check_refuses_a_length_beyond_all_memory(longest: int) -> None:
    batch = replace(
        sequence_arrays.pad_sequence([np.arange(3), np.arange(2)]), lengths=np.array([longest, 2])
    )
    with pytest.raises(ValueError, match="longest row"):
        batch.check(pad_id=0)


@settings(max_examples=60, deadline=None)
@given(LENGTHS, st.integers(0, 3))
def test_pad_on_the_left_agrees_with_torch_and_the_slow_one(lengths: list[int], extra: int) -> None:
    rows = draw_rows(lengths)
    theirs = pad_sequence(
        [torch.from_numpy(row) for row in rows],
        batch_first=True,
        padding_value=7,
        padding_side="left",
    )
    assert torch.equal(
        torch.from_numpy(
            sequence_arrays.pad_sequence(rows, padding_value=7, padding_side="left").ids
        ),
        theirs,
    )
    width = max(lengths) + extra
    batch = sequence_arrays.pad_sequence(
        rows, padding_value=7, total_length=width, padding_side="left"
    )
    assert batch.ids.tolist() == slow_pad(rows, width=width, padding_value=7, padding_side="left")
    assert batch.mask.tolist() == [
        [column >= width - length for column in range(width)] for length in lengths
    ]
    for again in (
        sequence_arrays.unpad_sequence(batch),
        batch.rows(),
        [batch.row(row) for row in range(len(rows))],
    ):
        assert [row.tolist() for row in again] == [row.tolist() for row in rows]
    assert batch.count_padding() == int((~batch.mask).sum())


def test_check_of_left_padding_looks_on_the_left() -> None:
    batch = sequence_arrays.pad_sequence(
        [np.arange(1, 4), np.arange(1, 3)], padding_value=9, padding_side="left"
    )
    assert batch.ids.tolist() == [[1, 2, 3], [9, 1, 2]]
    batch.check(pad_id=9)
    with pytest.raises(ValueError, match=r"^row 1: cell 0 is padding and holds 9, expected 0$"):
        batch.check(pad_id=0)
    with pytest.raises(ValueError, match=r"^row 1: cell 2 is padding and holds 2, expected 9$"):
        replace(batch, padding_side="right").check(pad_id=9)


def padded_with_filler(padding_side: str = "right", num_filler_rows: int = 2) -> PaddedBatch:
    """Return two rows of sequences 7 and 3, and filler, 4 cells wide, padded with 9."""
    batch = lay_out(
        "padded",
        [np.array([1, 2, 3]), np.array([4])],
        np.array([7, 3]),
        pad_id=9,
        width=4,
        padding_side=padding_side,
        num_filler_rows=num_filler_rows,
    )
    assert isinstance(batch, PaddedBatch)
    return batch


@pytest.mark.parametrize("padding_side", ["right", "left"])
def test_filler_rows_are_checked_and_can_be_left_out(padding_side: str) -> None:
    batch = padded_with_filler(padding_side)
    batch.check(pad_id=9)
    assert batch.lengths.tolist() == [3, 1, 0, 0]
    assert not batch.mask[2:].any()
    assert batch.count_padding() == 16 - 4
    assert [row.tolist() for row in batch.rows()] == [[1, 2, 3], [4], [], []]
    kept = batch.without_filler()
    kept.check(pad_id=9)
    assert [row.tolist() for row in kept.rows()] == [[1, 2, 3], [4]]
    assert (kept.num_filler_rows, kept.padding_side) == (0, padding_side)
    assert kept.original_indices is not None
    assert kept.original_indices.tolist() == [7, 3]
    assert kept.without_filler() is kept


@pytest.mark.parametrize(
    ("name", "place", "value", "message"),
    [
        ("ids", (2, 1), 5, "row 2: cell 1 is padding and holds 5, expected 9"),
        ("ids", (3, 3), 0, "row 3: cell 3 is padding and holds 0, expected 9"),
        ("lengths", 2, 1, "a filler row has ids, expected none"),
        ("lengths", 3, -1, "a filler row has ids, expected none"),
        ("lengths", 1, 0, "expected no empty sequence, found one in row 1"),
        ("original_indices", 3, 0, "a filler row has an original index, expected -1"),
        ("original_indices", 2, -2, "a filler row has an original index, expected -1"),
    ],
)
def test_check_refuses_filler_rows_with_ids_or_an_index(
    name: str, place: int | tuple[int, int], value: int, message: str
) -> None:
    batch = padded_with_filler()
    getattr(batch, name)[place] = value
    with pytest.raises(ValueError, match=f"^{message}$"):
        batch.check(pad_id=9)


@pytest.mark.parametrize(
    ("num_filler_rows", "message"),
    [
        (0, "expected no empty sequence, found one in row 2"),
        (1, "expected no empty sequence, found one in row 2"),
        (3, "a filler row has ids, expected none"),
    ],
)
def test_check_refuses_another_number_of_filler_rows(num_filler_rows: int, message: str) -> None:
    batch = replace(padded_with_filler(), num_filler_rows=num_filler_rows)
    with pytest.raises(ValueError, match=f"^{message}$"):
        batch.check(pad_id=9)


@pytest.mark.parametrize("number", [-1, 4, 5, 2**62, -(2**62)])
def test_make_batch_refuses_more_filler_rows_than_rows(number: int) -> None:
    arrays = {**to_arrays(padded_with_filler()), "num_filler_rows": np.array([number])}
    with pytest.raises(ValueError, match=f"^{number} filler rows in a batch of 4 rows$"):
        PaddedLayout(Geometry(has_filler_rows=True)).make_batch(arrays)


def test_pad_refuses_a_side_that_is_none() -> None:
    with pytest.raises(ValueError, match=r"^padding_side is 'center', expected 'right' or 'left'$"):
        sequence_arrays.pad_sequence([np.arange(3)], padding_side="center")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"total_length": "5"}, "total_length is '5', expected int | None"),
        ({"padding_value": 0.5}, "padding_value is 0.5, expected int"),
    ],
)
def test_pad_refuses_arguments_of_another_type(options: dict[str, Any], said: str) -> None:
    with pytest.raises(TypeError) as caught:
        sequence_arrays.pad_sequence([np.arange(3)], **options)
    assert str(caught.value) == said


def test_pad_refuses_a_value_that_the_ids_cannot_hold() -> None:
    ids = np.arange(3, dtype=np.uint16)
    with pytest.raises(ValueError, match=r"^padding_value is -100, the ids are uint16$"):
        sequence_arrays.pad_sequence([ids], padding_value=-100)


def test_inverse_functions_refuse_the_other_batch() -> None:
    padded = sequence_arrays.pad_sequence([np.arange(3)])
    packed = sequence_arrays.pack_sequence([np.arange(3)])
    with pytest.raises(TypeError, match=r"^packed_sequences is PaddedBatch\(.*PackedBatch$"):
        sequence_arrays.unpack_sequence(padded)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^padded_sequences is PackedBatch\(.*PaddedBatch$"):
        sequence_arrays.unpad_sequence(packed)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^sequence 0 has shape \(2, 3\), expected \[length\]$"):
        sequence_arrays.pack_sequence([np.zeros((2, 3), int)])
