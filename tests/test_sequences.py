"""Sequences of ids to one batch and back, as torch's functions that pack and pad do."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.utils import rnn

from seqpack_cli import pack_sequence, pad_sequence, unpack_sequence, unpad_sequence


@pytest.mark.parametrize("seed", range(12))
def test_batches_of_sequences_are_those_of_torch(seed: int) -> None:
    drawn = random.Random(seed)
    dtype = drawn.choice([np.uint16, np.int32, np.int64])
    lengths = [drawn.randint(1, 9) for _ in range(drawn.randint(1, 7))]
    rows = [np.array([drawn.randint(0, 65_535) for _ in range(n)], dtype) for n in lengths]
    tensors, longest = [torch.from_numpy(row) for row in rows], max(lengths)
    for side in ("right", "left"):
        padded = pad_sequence(rows, padding_value=7, padding_side=side)
        theirs = rnn.pad_sequence(tensors, True, 7, side)
        assert (padded.ids.dtype, padded.ids.tolist()) == (dtype, theirs.tolist())
        wide = pad_sequence(rows, total_length=longest + 2, padding_side=side)
        zeros = np.zeros((len(rows), 2), int)
        ids = rnn.pad_sequence(tensors, True, 0, side).numpy()
        ids = np.hstack([zeros, ids] if side == "left" else [ids, zeros])
        assert wide.ids.tolist() == ids.tolist()
        for batch in (padded, wide):
            assert batch.lengths.tolist() == lengths
            assert [row.tolist() for row in unpad_sequence(batch)] == [*map(list, rows)]
    rows.sort(key=len, reverse=True)
    packed, expected = pack_sequence(rows), rnn.pack_sequence([*map(torch.from_numpy, rows)])
    assert (packed.data.dtype, packed.data.tolist()) == (dtype, expected.data.tolist())
    assert packed.batch_sizes.tolist() == expected.batch_sizes.tolist()
    assert packed.lengths.tolist() == [*map(len, rows)]
    assert [row.tolist() for row in unpack_sequence(packed)] == [*map(list, rows)]


def ids_of(*values: int, dtype: str = "int64") -> np.ndarray:
    return np.array(values, dtype)


SMALL = ids_of(1, 2, dtype="uint16")
WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: pack_sequence([]), "at least one sequence"),
    (lambda: pack_sequence([ids_of()]), "found one in row 0"),
    (lambda: pack_sequence([ids_of(1), ids_of(1, 2)]), "row 1 is longer than the one before"),
    (lambda: pack_sequence([np.zeros((2, 3), int)]), r"shape \(2, 3\)"),
    (lambda: pack_sequence([ids_of(1), np.array([0.5])]), "sequence 1 is float64"),
    (lambda: pack_sequence([SMALL, ids_of(70_000)]), "sequence 1 has id 70000, the ids are"),
    (lambda: pad_sequence([SMALL, ids_of(-1)]), "sequence 1 has id -1, the ids are uint16"),
    (lambda: pad_sequence([SMALL], total_length=1), "longer than total_length 1"),
    (lambda: pad_sequence([SMALL], padding_value=-100), "padding_value is -100"),
    (lambda: pad_sequence([SMALL], padding_value=65_536), "padding_value is 65536"),
    (lambda: pad_sequence([SMALL], padding_value="0"), "padding_value is '0', expected int"),
    (lambda: pad_sequence([SMALL], total_length="5"), "total_length is '5', expected int"),
    (lambda: pad_sequence([SMALL], padding_side="top"), "padding_side is 'top'"),
    (lambda: unpack_sequence(pad_sequence([SMALL])), "packed_sequences is PaddedBatch"),
    (lambda: unpad_sequence(pack_sequence([SMALL])), "padded_sequences is PackedBatch"),
]
PACKED, PADDED = (
    pack_sequence([ids_of(1, 2, 3), ids_of(4)]),
    pad_sequence([ids_of(1, 2), ids_of(4)]),
)


@pytest.mark.parametrize("sizes", [[2, 1], [2, 1, 2], [2, 2, 0], [5, -1], [], [4, 1], [1, 3]])
def test_batch_sizes_that_would_crash_torch_are_refused(sizes: list[int]) -> None:
    with pytest.raises(ValueError, match="batch_sizes"):
        unpack_sequence(replace(PACKED, batch_sizes=ids_of(*sizes)))


@pytest.mark.parametrize("lengths", [[2], [3, 1], [2, -1]])
def test_lengths_of_another_rectangle_are_refused(lengths: list[int]) -> None:
    with pytest.raises(ValueError, match="length"):
        unpad_sequence(replace(PADDED, lengths=ids_of(*lengths)))


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_sequences_that_have_no_such_batch_are_refused(number: int) -> None:
    call, fragment = WRONG[number]
    with pytest.raises((TypeError, ValueError), match=fragment):
        call()


def test_ids_of_a_wider_type_that_fit_keep_their_values() -> None:
    batch = pack_sequence([SMALL, ids_of(65_535)])
    assert (batch.data.tolist(), batch.data.dtype) == ([1, 65_535, 2], np.uint16)
    empty = unpad_sequence(replace(PADDED, lengths=ids_of(2, 0)))
    assert [row.tolist() for row in empty] == [[1, 2], []]
