"""The packed layout, compared with torch's PackedSequence, a plain loop and a worked example."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from shard_reference import slow_pack
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_sequence

from seqpack_cli.batching.order import length_order
from seqpack_cli.shards import sequence_arrays
from seqpack_cli.shards.packed import PackedBatch
from seqpack_cli.shards.time_steps import check_batch_sizes, count_alive

DTYPES = (np.uint16, np.int32, np.int64)
LENGTHS = st.lists(st.integers(1, 12), min_size=1, max_size=10)
SENTENCES = (
    "John lives in a beautiful mansion with a swimming pool.",
    "John loves to swim.",
    "John is a good swimmer.",
)


def draw_rows(lengths: list[int], dtype: type = np.int64) -> list[np.ndarray]:
    """Draw rows, longest first, with ids up to the largest of the dtype."""
    draws = np.random.default_rng(sum(lengths))
    largest = min(np.iinfo(dtype).max, 2**40)
    return [draws.integers(0, largest, n).astype(dtype) for n in sorted(lengths, reverse=True)]


def test_pack_is_the_example_done_by_hand() -> None:
    words = [sentence.split() for sentence in SENTENCES]
    vocabulary = sorted({word for sentence in words for word in sentence})
    rows = [np.array([vocabulary.index(word) for word in sentence]) for sentence in words]
    lengths = np.array([len(row) for row in rows])
    assert lengths.tolist() == [10, 4, 5]
    order = length_order(lengths)
    assert order.tolist() == [0, 2, 1]
    batch = sequence_arrays.pack_sequence([rows[index] for index in order])
    assert batch.lengths.tolist() == [10, 5, 4]
    assert batch.batch_sizes.tolist() == [3, 3, 3, 3, 2, 1, 1, 1, 1, 1]
    assert " ".join(vocabulary[id_] for id_ in batch.data) == (
        "John John John lives is loves in a to a good swim. beautiful swimmer. "
        "mansion with a swimming pool."
    )
    assert [[vocabulary[id_] for id_ in row] for row in sequence_arrays.unpack_sequence(batch)] == [
        words[0],
        words[2],
        words[1],
    ]


@pytest.mark.parametrize("dtype", DTYPES)
@settings(max_examples=40, deadline=None)
@given(lengths=LENGTHS)
def test_pack_agrees_with_torch(dtype: type, lengths: list[int]) -> None:
    rows = draw_rows(lengths, dtype)
    ours = sequence_arrays.pack_sequence(rows)
    tensors = [torch.from_numpy(row) for row in rows]
    theirs = pack_sequence(tensors, enforce_sorted=True)
    from_rectangle = pack_padded_sequence(
        pad_sequence(tensors, batch_first=True), torch.tensor(ours.lengths), batch_first=True
    )
    assert ours.data.dtype == dtype
    assert ours.batch_sizes.dtype == np.int64
    assert ours.lengths.dtype == np.int64
    for expected in (theirs, from_rectangle):
        assert torch.equal(torch.from_numpy(ours.data), expected.data)
        assert torch.equal(torch.from_numpy(ours.batch_sizes), expected.batch_sizes)


@settings(max_examples=60, deadline=None)
@given(LENGTHS)
def test_pack_agrees_with_the_slow_one(lengths: list[int]) -> None:
    rows = draw_rows(lengths)
    batch = sequence_arrays.pack_sequence(rows)
    data, batch_sizes = slow_pack([row.tolist() for row in rows])
    assert batch.data.tolist() == data
    assert batch.batch_sizes.tolist() == batch_sizes
    assert batch.lengths.tolist() == [len(row) for row in rows]


@settings(max_examples=60, deadline=None)
@given(LENGTHS)
def test_unpack_is_the_inverse_of_pack(lengths: list[int]) -> None:
    rows = draw_rows(lengths)
    batch = sequence_arrays.pack_sequence(rows)
    batch.check(pad_id=0)
    found = [
        sequence_arrays.unpack_sequence(batch),
        batch.rows(),
        [batch.row(index) for index in range(len(rows))],
    ]
    for again in found:
        assert [row.tolist() for row in again] == [row.tolist() for row in rows]
    repacked = sequence_arrays.pack_sequence(sequence_arrays.unpack_sequence(batch))
    assert repacked.data.tolist() == batch.data.tolist()


@settings(max_examples=60, deadline=None)
@given(LENGTHS)
def test_count_alive_twice_gives_the_lengths_back(lengths: list[int]) -> None:
    falling = np.array(sorted(lengths, reverse=True))
    batch_sizes = count_alive(falling)
    assert batch_sizes.tolist() == [
        sum(length > step for length in lengths) for step in range(max(lengths))
    ]
    assert count_alive(batch_sizes).tolist() == falling.tolist()


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([], "expected at least one sequence"),
        ([0], "expected no empty sequence, found one in row 0"),
        ([3, 0], "expected no empty sequence, found one in row 1"),
        ([2, 1, 3], "expected longest first, row 2 is longer than the one before"),
    ],
)
def test_pack_refuses_what_has_no_packed_form(lengths: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        sequence_arrays.pack_sequence([np.zeros(length, np.int64) for length in lengths])


@pytest.mark.parametrize("value", [70_000, -1, 2**64 - 1])
@pytest.mark.parametrize("lay_out", [sequence_arrays.pack_sequence, sequence_arrays.pad_sequence])
def test_an_id_that_the_first_dtype_cannot_hold_is_refused(
    lay_out: Callable[..., object], value: int
) -> None:
    wide = np.array([value], np.uint64 if value > 2**63 else np.int64)
    with pytest.raises(ValueError, match=f"^sequence 1 has id {value}, sequence 0 is uint16$"):
        lay_out([np.array([1, 2], np.uint16), wide])


def test_ids_of_a_wider_dtype_that_fit_keep_their_values() -> None:
    batch = sequence_arrays.pack_sequence([np.array([1, 2], np.uint16), np.array([65_535])])
    assert batch.data.tolist() == [1, 65_535, 2]
    assert batch.data.dtype == np.uint16


@pytest.mark.parametrize(
    ("row", "dtype"), [([True], "bool"), (["a"], "<U1"), ([None], "object"), ([1.0], "float64")]
)
def test_ids_that_are_not_integers_are_refused(row: list[object], dtype: str) -> None:
    with pytest.raises(TypeError, match=f"^sequence 1 is {dtype}, expected integers$"):
        sequence_arrays.pack_sequence([np.array([1]), row])  # type: ignore[list-item]


HOSTILE = {
    "rises": ([3, 1, 3], "batch_sizes rise at step 2 from 1 to 3"),
    "zero": ([3, 3, 1, 0], "batch_sizes are empty or have an entry below 1"),
    "negative": ([4, 4, -1], "batch_sizes are empty or have an entry below 1"),
    "none": ([], "batch_sizes are empty or have an entry below 1"),
    "sum": ([3, 3], "batch_sizes add up to 6, data has 7 ids"),
}


@pytest.mark.parametrize(("batch_sizes", "message"), HOSTILE.values(), ids=HOSTILE)
def test_unpack_refuses_batch_sizes_that_would_crash_torch(
    batch_sizes: list[int], message: str
) -> None:
    sizes = np.array(batch_sizes, np.int64)
    batch = PackedBatch(np.arange(7), sizes, np.array([3, 2, 2]))
    with pytest.raises(ValueError, match=f"^{message}$"):
        sequence_arrays.unpack_sequence(batch)


def test_unpack_refuses_lists() -> None:
    batch = PackedBatch(np.arange(3), [2, 1], np.array([2, 1]))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^packed_sequences.batch_sizes is \[2, 1\], expected nd"):
        sequence_arrays.unpack_sequence(batch)


def test_unpack_refuses_a_sum_that_wraps_around() -> None:
    sizes = np.array([2**62, 2**62, 2**62, 2**62 - 7, 7, 7], np.int64)
    assert int(sizes.sum()) == 7  # of 64 bits
    with pytest.raises(ValueError, match="batch_sizes"):
        sequence_arrays.unpack_sequence(PackedBatch(np.arange(7), sizes, np.array([3, 2, 2])))


@pytest.mark.parametrize(
    ("batch_sizes", "message"),
    [
        (np.array([3, 2], np.int32), r"batch_sizes are int32\(2,\), expected int64\[T\]"),
        (np.array([[3, 2]]), r"batch_sizes are int64\(1, 2\), expected int64\[T\]"),
        (np.array([3.0, 2.0]), r"batch_sizes are float64\(2,\), expected int64\[T\]"),
    ],
)
def test_check_batch_sizes_refuses_other_arrays(batch_sizes: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        check_batch_sizes(batch_sizes, num_ids=5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_sizes": [3, 3, 1, 1]}, "4 batch_sizes, the longest row has 3 ids"),
        (
            {"batch_sizes": [3, 3, 1]},
            r"batch_sizes\[1\] is 3, but 2 rows are longer than 1",
        ),
        ({"data": [0] * 5}, "batch_sizes add up to 6, data has 5 ids"),
        ({"lengths": [3, 2, 0]}, "expected no empty sequence, found one in row 2"),
        ({"lengths": [3, 2, -5]}, "expected no empty sequence, found one in row 2"),
        ({"lengths": [3, 1, 2]}, "expected longest first, row 2 is longer than the one before"),
    ],
)
def test_check_names_what_contradicts_the_rest(changes: dict[str, list[int]], message: str) -> None:
    batch = sequence_arrays.pack_sequence([np.array([1, 2, 3]), np.array([4, 5]), np.array([6])])
    arrays = {name: np.array(values, np.int64) for name, values in changes.items()}
    with pytest.raises(ValueError, match=f"^{message}$"):
        replace(batch, **arrays).check(pad_id=0)  # type: ignore[arg-type]


@pytest.mark.parametrize("longest", [10**12, 2**62, 2**63 - 1])
def test_check_refuses_a_length_beyond_all_memory(longest: int) -> None:
    batch = sequence_arrays.pack_sequence([np.array([1, 2, 3]), np.array([4, 5])])
    hostile = replace(batch, lengths=np.array([longest, 2]))
    with pytest.raises(ValueError, match="longest row"):
        hostile.check(pad_id=0)
