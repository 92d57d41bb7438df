"""Collate functions beside torch's own packing and padding, and beside slow plain Python."""

from __future__ import annotations

import functools
import pickle
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from shard_reference import make_store, make_texts, slow_length_order, slow_pack, slow_pad
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence, pad_sequence, unpack_sequence
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, random_split

from seqpack_cli.training.collate import collate_packed, collate_padded, collate_varlen
from seqpack_cli.training.store_dataset import FILLER, StoreDataset
from seqpack_cli.training.token_sequences import TokenSequence

LENGTHS = (3, 9, 5, 1, 5, 12, 2, 5, 3, 1, 20)
TEXTS = make_texts(LENGTHS)
PAD = 256

# Rows of ids, short ones that tie often.
ROWS = st.lists(st.lists(st.integers(0, 999), min_size=1, max_size=6), min_size=1, max_size=12)
ROWS_OR_EMPTY = st.lists(st.lists(st.integers(0, 999), max_size=6), min_size=1, max_size=12).filter(
    any
)


def make_sequences(rows: Sequence[Sequence[int]]) -> list[TokenSequence]:
    """Number rows from 100; an empty row is filler."""
    return [
        TokenSequence(torch.tensor(row, dtype=torch.int64), 100 + number if row else -1)
        for number, row in enumerate(rows)
    ]


def slow_sort(rows: Sequence[list[int]]) -> tuple[list[list[int]], list[int]]:
    """Return rows longest first, ties as they come, and the original index of each."""
    order = slow_length_order([len(row) for row in rows])
    return [rows[place] for place in order], [100 + place if rows[place] else -1 for place in order]


def slow_labels(rows: Sequence[list[int]]) -> list[list[int]]:
    """Return the id after each id of its row, and -100 at the end."""
    return [[*row[1:], -100] if row else [] for row in rows]


def tensors_of(batch: Any) -> dict[str, torch.Tensor]:
    """Return all tensors of a batch by name."""
    found = {name: getattr(batch, name) for name in type(batch).__slots__}
    if "sequences" in found:
        sequences = found.pop("sequences")
        found.update(data=sequences.data, batch_sizes=sequences.batch_sizes)
    return {name: value for name, value in found.items() if isinstance(value, torch.Tensor)}


COLLATES: dict[str, Callable[..., Any]] = {
    "packed": collate_packed,
    "padded": functools.partial(collate_padded, pad_id=PAD),
    "varlen": collate_varlen,
}


@given(rows=ROWS)
def test_packed_is_what_pack_sequence_gives_for_sorted_rows(rows: list[list[int]]) -> None:
    batch = collate_packed(make_sequences(rows))
    in_order, indices = slow_sort(rows)
    expected = pack_sequence([torch.tensor(row) for row in in_order])  # refuses unsorted ones
    assert torch.equal(batch.sequences.data, expected.data)
    assert torch.equal(batch.sequences.batch_sizes, expected.batch_sizes)
    assert batch.sequences.sorted_indices is None
    assert batch.sequences.unsorted_indices is None
    assert (batch.sequences.data.tolist(), batch.sequences.batch_sizes.tolist()) == slow_pack(
        in_order
    )
    assert batch.lengths.tolist() == [len(row) for row in in_order]
    assert batch.original_indices.tolist() == indices
    assert batch.labels is None


@given(rows=ROWS)
def test_packed_holds_what_unsorted_pack_sequence_holds(rows: list[list[int]]) -> None:
    """torch's sort is not stable, so its rows of one length may stand in another order."""
    batch = collate_packed(make_sequences(rows))
    theirs = pack_sequence([torch.tensor(row) for row in rows], enforce_sorted=False)
    assert torch.equal(batch.sequences.batch_sizes, theirs.batch_sizes)
    ours = dict(zip(batch.original_indices.tolist(), unpack_sequence(batch.sequences), strict=True))
    for number, row in enumerate(unpack_sequence(theirs)):  # in the order that was given
        assert torch.equal(ours[100 + number], row)
    padded, lengths = pad_packed_sequence(batch.sequences, batch_first=True, padding_value=-1)
    assert torch.equal(lengths, batch.lengths)
    assert (padded >= 0).sum(dim=1).tolist() == lengths.tolist()


@given(
    rows=ROWS_OR_EMPTY,
    side=st.sampled_from(["right", "left"]),
    multiple=st.integers(1, 8),
    pad_id=st.sampled_from([0, 7, 2**31]),
)
def test_padded_is_what_pad_sequence_gives(
    rows: list[list[int]], side: str, multiple: int, pad_id: int
) -> None:
    in_order, indices = slow_sort(rows)
    longest = len(in_order[0])
    width = next(n for n in range(longest, longest + multiple) if n % multiple == 0)
    batch = collate_padded(
        make_sequences(rows), pad_id=pad_id, padding_side=side, pad_to_multiple=multiple
    )
    expected = slow_pad(in_order, width=width, padding_value=pad_id, padding_side=side)
    assert batch.ids.dtype == torch.int64
    assert batch.ids.tolist() == expected
    real = [[True] * len(row) for row in in_order]
    is_real = slow_pad(real, width=width, padding_value=0, padding_side=side)
    assert batch.mask.dtype == torch.bool
    assert batch.mask.tolist() == is_real
    assert batch.lengths.tolist() == [len(row) for row in in_order]
    assert batch.original_indices.tolist() == indices
    turned = [torch.tensor(row, dtype=torch.int64) for row in in_order]
    if side == "left":
        turned = [row.flip(0) for row in turned]
    theirs = pad_sequence(turned, batch_first=True, padding_value=pad_id)
    theirs = theirs.flip(1) if side == "left" else theirs
    columns = slice(width - longest, None) if side == "left" else slice(0, longest)
    assert torch.equal(batch.ids[:, columns], theirs)


@given(rows=ROWS)
def test_varlen_is_one_row_in_the_order_given(rows: list[list[int]]) -> None:
    batch = collate_varlen(make_sequences(rows))
    assert batch.ids.dtype == batch.position_ids.dtype == torch.int64
    assert batch.cu_seqlens.dtype == torch.int32
    assert batch.ids.tolist() == [id_ for row in rows for id_ in row]
    assert batch.cu_seqlens.tolist() == [
        sum(map(len, rows[:number])) for number in range(len(rows) + 1)
    ]
    assert batch.position_ids.tolist() == [place for row in rows for place in range(len(row))]
    assert batch.max_seqlen == max(map(len, rows))
    assert type(batch.max_seqlen) is int
    assert batch.lengths.tolist() == [len(row) for row in rows]
    assert batch.original_indices.tolist() == [100 + number for number in range(len(rows))]
    starts, ends = batch.cu_seqlens[:-1], batch.cu_seqlens[1:]
    again = [batch.ids[start:end].tolist() for start, end in zip(starts, ends, strict=True)]
    assert again == rows


def fill_lines(
    rows: Sequence[list[int]], *, row_length: int | None, multiple: int, fill: int
) -> list[list[int]]:
    """Put rows one after another into lines, each rounded up to a multiple."""
    lines: list[list[int]] = []
    for row in rows:
        cells = [*row, *[fill] * (-len(row) % multiple)]
        if not lines or (row_length and len(lines[-1]) + len(cells) > row_length):
            lines.append([])
        lines[-1] += cells
    return [line + [fill] * ((row_length or len(line)) - len(line)) for line in lines]


@given(
    rows=ROWS,
    row_length=st.sampled_from([None, 8, 12]),
    multiple=st.sampled_from([1, 2, 4]),
    num_more=st.sampled_from([None, 0, 2]),
)
def test_varlen_fills_rows_of_one_length(
    rows: list[list[int]], row_length: int | None, multiple: int, num_more: int | None
) -> None:
    sequences = [
        TokenSequence(ids, number, {"twice": ids * 2})
        for number, ids in enumerate(map(torch.tensor, rows))
    ]
    fill = functools.partial(fill_lines, row_length=row_length, multiple=multiple)
    lines, num_rows = fill(rows, fill=PAD), None
    if row_length is not None and num_more is not None:
        num_rows = len(lines) + num_more
        lines += [[PAD] * row_length] * num_more
    batch = collate_varlen(
        sequences,
        row_length=row_length,
        num_rows=num_rows,
        align_sequences=multiple,
        pad_id=PAD,
        labels="next",
    )
    assert batch.ids.tolist() == (lines[0] if row_length is None else lines)
    assert batch.labels is not None
    for values, cells in (
        (batch.labels, slow_labels(rows)),
        (batch.columns["twice"], [[2 * id_ for id_ in row] for row in rows]),
    ):
        assert isinstance(values, torch.Tensor)
        expected = [value for line in fill(cells, fill=-100) for value in line]
        found = values.flatten().tolist()
        assert found == expected + [-100] * (len(found) - len(expected))
    numbers = batch.sequence_ids
    assert [batch.ids[numbers == row].tolist() for row in range(len(rows))] == rows
    assert [batch.position_ids[numbers == row].tolist() for row in range(len(rows))] == [
        [*range(len(row))] for row in rows
    ]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"row_length": 4}, "sequence 1 has 5 ids, expected at most row_length 4"),
        (
            {"row_length": 6, "num_rows": 1},
            "the sequences take 2 rows of 6 cells, expected at most num_rows 1",
        ),
        ({"num_rows": 2}, "num_rows is 2, expected None without row_length"),
        (
            {"row_length": 6, "align_sequences": 4},
            "row_length is 6, expected a multiple of align_sequences 4",
        ),
        ({"row_length": 0}, "row_length is 0, expected at least 1"),
        ({"pad_id": -1}, "pad_id is -1, expected at least 0"),
    ],
)
def test_varlen_rows_that_do_not_fit_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=f"^{said}$"):
        collate_varlen(make_sequences([[1, 2], [3, 4, 5, 6, 7]]), **options)


@given(rows=ROWS, side=st.sampled_from(["right", "left"]))
def test_labels_are_the_next_ids_of_the_same_row(rows: list[list[int]], side: str) -> None:
    sequences = make_sequences(rows)
    in_order, _ = slow_sort(rows)
    packed = collate_packed(sequences, labels="next")
    assert packed.labels is not None
    assert packed.labels.dtype == torch.int64
    assert packed.labels.tolist() == slow_pack(slow_labels(in_order))[0]
    padded = collate_padded(
        sequences, pad_id=PAD, padding_side=side, pad_to_multiple=4, labels="next"
    )
    assert padded.labels is not None
    assert padded.labels.tolist() == slow_pad(
        slow_labels(in_order),
        width=padded.ids.shape[1],
        padding_value=-100,
        padding_side=side,
    )
    varlen = collate_varlen(sequences, labels="next")
    assert varlen.labels is not None
    assert varlen.labels.tolist() == [label for row in slow_labels(rows) for label in row]


@pytest.mark.parametrize("layout", COLLATES)
@pytest.mark.parametrize("sort", [False, True])
@given(rows=ROWS)
def test_columns_follow_their_rows_and_tokens(
    layout: str, sort: bool, rows: list[list[int]]
) -> None:
    sequences = [
        TokenSequence(ids, n, {"number": n, "name": str(n), "half": n / 2, "twice": ids * 2})
        for n, ids in enumerate(map(torch.tensor, rows))
    ]
    batch = COLLATES[layout](sequences, labels="number", sort=sort)
    indices = batch.original_indices.tolist()
    assert indices == ([n - 100 for n in slow_sort(rows)[1]] if sort else [*range(len(rows))])
    assert batch.labels.tolist() == batch.columns["number"].tolist() == indices
    assert batch.columns["name"] == list(map(str, indices))
    assert batch.columns["half"].tolist() == [index / 2 for index in indices]
    ids = batch.sequences.data if layout == "packed" else batch.ids
    expected = ids * 2 if layout != "padded" else (ids * 2).masked_fill(~batch.mask, -100)
    assert torch.equal(batch.columns["twice"], expected)


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        ([{"a": 1}, {"b": 1}], "sequence 1 has columns 'b', sequence 0 has columns 'a'"),
        ([{"a": 1}, {}], "sequence 1 has no columns, sequence 0 has columns 'a'"),
        ([{"a": 1}, {"a": "1"}], "column 'a' holds int, str, expected only numbers, only texts, "),
        ([{"a": None}] * 2, "column 'a' holds NoneType, expected only numbers"),
        ([{"a": torch.ones(3)}] * 2, "sequence 0: column 'a' has 3 values, expected one for each "),
        ([{"a": torch.ones(2)}] * 2, "column 'a' has tensors of float32, expected integers"),
    ],
)
def test_columns_that_do_not_fit_together_are_refused(
    columns: list[dict[str, Any]], error: str
) -> None:
    sequences = [TokenSequence(torch.tensor([1, 2]), 0, found) for found in columns]
    with pytest.raises((TypeError, ValueError), match=re.escape(error)):
        collate_varlen(sequences)


@pytest.mark.parametrize("layout", COLLATES)
def test_equal_lengths_stay_as_they_come(layout: str) -> None:
    sequences = [TokenSequence(torch.tensor([n, n]), n) for n in (5, 3, 9, 0, 7, 1)]
    batch = COLLATES[layout](sequences)
    assert batch.original_indices.tolist() == [5, 3, 9, 0, 7, 1]


def test_bucket_is_the_smallest_that_holds_the_longest() -> None:
    for longest, width in ((1, 4), (4, 4), (5, 10), (9, 10), (10, 10)):
        rows = [[7], [5] * longest, [3]]
        batch = collate_padded(make_sequences(rows), pad_id=0, bucket_keys=(10, 4))
        assert batch.ids.shape == (3, width)
        assert batch.mask.sum() == 2 + longest
    with pytest.raises(ValueError, match=r"^a sequence of 11 ids, the buckets are \(4, 10\)$"):
        collate_padded(make_sequences([[1], [2] * 11]), pad_id=0, bucket_keys=(4, 10))


def test_filler_is_an_empty_row_behind_the_others() -> None:
    sequences = make_sequences([[], [1], [], [2, 3]])
    batch = collate_padded(sequences, pad_id=PAD, labels="next")
    assert batch.ids.tolist() == [[2, 3], [1, PAD], [PAD, PAD], [PAD, PAD]]
    assert batch.mask.tolist() == [[True, True], [True, False], [False] * 2, [False] * 2]
    assert batch.lengths.tolist() == [2, 1, 0, 0]
    assert batch.original_indices.tolist() == [103, 101, -1, -1]
    assert batch.labels is not None
    assert batch.labels.tolist() == [[3, -100], [-100] * 2, [-100] * 2, [-100] * 2]


@pytest.mark.parametrize("layout", COLLATES)
def test_no_sequence_is_a_value_error(layout: str) -> None:
    with pytest.raises(ValueError, match=r"^expected at least one sequence$"):
        COLLATES[layout]([])


def test_empty_sequence_is_a_value_error() -> None:
    with pytest.raises(ValueError, match=r"^expected no empty sequence, found one in row 2$"):
        collate_packed(make_sequences([[1], [], [2, 3]]))
    with pytest.raises(ValueError, match=r"^expected no empty sequence, found one in row 1$"):
        collate_varlen(make_sequences([[1], [], [2, 3]]))


def test_rows_that_are_all_empty_fill_their_bucket() -> None:
    batch = collate_padded(make_sequences([[], []]), pad_id=7, bucket_keys=(4,))
    assert batch.ids.tolist() == [[7] * 4] * 2
    assert not batch.mask.any()
    assert batch.original_indices.tolist() == [-1, -1]


@pytest.mark.parametrize("rows", [[[5]], [[5], [6]], [[5], []]], ids=["one", "two", "filler"])
def test_padded_on_the_left_may_have_one_column(rows: list[list[int]]) -> None:
    batch = collate_padded(make_sequences(rows), pad_id=PAD, padding_side="left")
    assert batch.ids.tolist() == [row or [PAD] for row in rows]
    assert batch.mask.tolist() == [[bool(row)] for row in rows]


def test_rows_that_are_all_empty_are_a_batch_or_named() -> None:
    """As torch's pad_sequence makes [B, 0] of empty tensors."""
    try:
        batch = collate_padded(make_sequences([[], []]), pad_id=0)
    except ValueError as error:
        assert "empty" in str(error)
    else:
        assert batch.ids.shape == (2, 0)


@given(rows=ROWS)
def test_unsorted_packed_gives_the_samples_back_in_their_order(rows: list[list[int]]) -> None:
    batch = collate_packed(make_sequences(rows), labels="next", sort=False)
    assert [row.tolist() for row in unpack_sequence(batch.sequences)] == rows
    assert batch.lengths.tolist() == [len(row) for row in rows]
    assert batch.original_indices.tolist() == [100 + number for number in range(len(rows))]
    assert batch.labels is not None
    labels = unpack_sequence(batch.sequences._replace(data=batch.labels))
    assert [row.tolist() for row in labels] == slow_labels(rows)
    embedded = batch.sequences._replace(data=batch.sequences.data[:, None].double())
    with torch.no_grad():
        _, last = torch.nn.RNN(1, 2, dtype=torch.float64)(embedded)
    assert last.shape == (1, len(rows), 2)
    expected = pack_sequence([torch.tensor(row) for row in rows], enforce_sorted=False)
    assert torch.equal(batch.sequences.batch_sizes, expected.batch_sizes)
    moved = pickle.loads(pickle.dumps(batch.to("cpu")))  # noqa: S301 - as a DataLoader's worker does
    assert [row.tolist() for row in unpack_sequence(moved.sequences)] == rows


def test_unsorted_outputs_are_those_of_each_sample_alone() -> None:
    rows = [[3], [1, 2, 4], [5, 6]]
    batch = collate_packed(make_sequences(rows), sort=False)
    torch.manual_seed(0)
    embedding, rnn = torch.nn.Embedding(9, 3), torch.nn.GRU(3, 4)
    with torch.no_grad():
        _, last = rnn(batch.sequences._replace(data=embedding(batch.sequences.data)))
        alone = [rnn(embedding(torch.tensor(row))[:, None])[1][0, 0] for row in rows]
    torch.testing.assert_close(last[0], torch.stack(alone))


@given(rows=ROWS_OR_EMPTY, side=st.sampled_from(["right", "left"]))
def test_unsorted_padded_keeps_the_order_of_the_samples(rows: list[list[int]], side: str) -> None:
    batch = collate_padded(make_sequences(rows), pad_id=PAD, padding_side=side, sort=False)
    width = max(len(row) for row in rows)
    assert batch.ids.tolist() == slow_pad(rows, width=width, padding_value=PAD, padding_side=side)
    assert batch.lengths.tolist() == [len(row) for row in rows]


@given(rows=ROWS)
def test_varlen_may_be_sorted(rows: list[list[int]]) -> None:
    batch = collate_varlen(make_sequences(rows), sort=True)
    in_order, indices = slow_sort(rows)
    assert batch.ids.tolist() == [id_ for row in in_order for id_ in row]
    assert batch.original_indices.tolist() == indices


@pytest.mark.parametrize("layout", COLLATES)
def test_arguments_of_another_type_are_refused(layout: str) -> None:
    with pytest.raises(TypeError, match=r"^sort is 'no', expected bool$"):
        COLLATES[layout](make_sequences([[1]]), sort="no")
    with pytest.raises(TypeError, match=r"^sequences are Tensor and int, expected TokenSequence$"):
        COLLATES[layout]([torch.tensor([1]), 3])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"pad_id": "0"}, "pad_id is '0', expected int"),
        ({"pad_to_multiple": 2.0}, "pad_to_multiple is 2.0, expected int"),
        ({"bucket_keys": 8}, "bucket_keys is 8, expected Sequence[int]"),
    ],
)
def test_padding_of_another_type_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(TypeError) as caught:
        collate_padded(make_sequences([[1]]), **{"pad_id": 0, **options})
    assert str(caught.value) == said


@pytest.mark.parametrize("layout", COLLATES)
def test_sequences_of_another_kind_are_refused(layout: str) -> None:
    with pytest.raises(TypeError, match=r"^sequences is a generator, expected a sequence of Token"):
        COLLATES[layout](sequence for sequence in make_sequences([[1]]))
    with pytest.raises(TypeError, match=r"^the ids are float32, expected integers$"):
        COLLATES[layout]([TokenSequence(torch.tensor([1.5]), 0)])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"pad_id": -1}, "pad_id is -1, expected at least 0"),
        ({"pad_to_multiple": 10**30}, f"pad_to_multiple is {10**30}, expected at most 2147483647"),
        ({"bucket_keys": [10**30]}, f"a bucket key is {10**30}, expected at most 2147483647"),
        (
            {"bucket_keys": [16, 100], "pad_to_multiple": 8},
            "bucket key 100 is not a multiple of pad_to_multiple 8",
        ),
    ],
)
def test_padding_out_of_range_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=f"^{said}$"):
        collate_padded(make_sequences([[1]]), **{"pad_id": 0, **options})


@pytest.mark.parametrize("layout", COLLATES)
def test_labels_that_nobody_makes_are_a_value_error(layout: str) -> None:
    said = (
        r"^labels is 'previous', expected None, 'next', 'same' or a column \(found: no columns\)$"
    )
    with pytest.raises(ValueError, match=said):
        COLLATES[layout](make_sequences([[1, 2]]), labels="previous")


def test_padding_side_that_is_none_is_a_value_error() -> None:
    with pytest.raises(ValueError, match=r"^padding_side is 'Left', expected 'right' or 'left'$"):
        collate_padded(make_sequences([[1, 2], [3]]), pad_id=0, padding_side="Left")


@pytest.mark.parametrize("multiple", [0, -4])
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_multiple_below_1_is_a_value_error(multiple: int) -> None:
    with pytest.raises(ValueError, match=r"^pad_to_multiple is -?[04], expected at least 1$"):
        collate_padded(make_sequences([[1, 2]]), pad_id=0, pad_to_multiple=multiple)


@pytest.mark.parametrize("layout", COLLATES)
@pytest.mark.parametrize("rows", [[[1, 2, 3]], [[1], [2, 3]]], ids=["one", "two"])
def test_batches_may_be_changed_without_touching_the_sequences(
    layout: str, rows: list[list[int]]
) -> None:
    sequences = make_sequences(rows)
    batch = COLLATES[layout](sequences, labels="next")
    tensors = tensors_of(batch)
    for name, tensor in tensors.items():
        others = {other: kept.clone() for other, kept in tensors.items() if other != name}
        tensor.zero_()
        assert all(torch.equal(tensors[other], kept) for other, kept in others.items())
    assert [sequence.ids.tolist() for sequence in sequences] == rows


@pytest.mark.parametrize("layout", COLLATES)
def test_sequences_are_left_in_the_order_they_had(layout: str) -> None:
    sequences = make_sequences([[1], [2, 3], [4, 5, 6]])
    COLLATES[layout](sequences)
    assert [sequence.original_index for sequence in sequences] == [100, 101, 102]
    assert COLLATES[layout](tuple(sequences)).lengths.sum() == 6  # any sequence of sequences


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> StoreDataset:
    path: Path = make_store(tmp_path_factory.mktemp("collate"), TEXTS, part_bytes=20)
    return StoreDataset(path)


def rows_of(batch: Any) -> list[tuple[int, ...]]:
    """Return the sequences of a batch of any layout as a model would find them."""
    if hasattr(batch, "sequences"):
        return [tuple(row.tolist()) for row in unpack_sequence(batch.sequences)]
    if hasattr(batch, "cu_seqlens"):
        rows = torch.split(batch.ids, batch.cu_seqlens.diff().tolist())
        return [tuple(row.tolist()) for row in rows]
    return [tuple(row[mask].tolist()) for row, mask in zip(batch.ids, batch.mask, strict=True)]


def check_epoch(batches: Sequence[Any], expected: Sequence[int]) -> None:
    """Check that batches hold the texts of these indices once each."""
    indices = [index for batch in batches for index in batch.original_indices.tolist()]
    assert sorted(indices) == sorted(expected)
    rows = [row for batch in batches for row in rows_of(batch)]
    assert rows == [tuple(TEXTS[index].encode()) for index in indices]


@pytest.mark.parametrize("layout", COLLATES)
def test_plain_loader_shuffles_and_packs(dataset: StoreDataset, layout: str) -> None:
    def read_epochs(seed: int) -> list[list[list[int]]]:
        loader = DataLoader(
            dataset,
            batch_size=4,
            shuffle=True,
            generator=torch.Generator().manual_seed(seed),
            collate_fn=COLLATES[layout],
        )
        assert len(loader) == 3
        epochs = []
        for _ in range(2):
            batches = list(loader)
            assert [len(batch.lengths) for batch in batches] == [4, 4, 3]
            check_epoch(batches, range(len(LENGTHS)))
            epochs.append([batch.original_indices.tolist() for batch in batches])
        return epochs

    epochs = read_epochs(3)
    assert epochs[0] != epochs[1]
    assert read_epochs(3) == epochs


@pytest.mark.parametrize("layout", COLLATES)
@pytest.mark.parametrize("drop_last", [False, True])
def test_samplers_of_torch_choose_the_sequences(
    dataset: StoreDataset, layout: str, drop_last: bool
) -> None:
    generator = torch.Generator().manual_seed(1)
    sampler = RandomSampler(dataset, generator=generator)
    loader = DataLoader(
        dataset,
        batch_sampler=BatchSampler(sampler, 3, drop_last=drop_last),
        collate_fn=COLLATES[layout],
    )
    chosen = [*RandomSampler(dataset, generator=torch.Generator().manual_seed(1))]
    batches = list(loader)
    assert len(batches) == (3 if drop_last else 4)
    check_epoch(batches, chosen[:9] if drop_last else chosen)
    for number, batch in enumerate(batches):
        drawn = chosen[3 * number : 3 * number + 3]
        if layout != "varlen":
            drawn = [drawn[place] for place in slow_length_order([LENGTHS[i] for i in drawn])]
        assert batch.original_indices.tolist() == drawn


def test_sampler_that_repeats_gives_a_sequence_twice(dataset: StoreDataset) -> None:
    sampler = RandomSampler(
        dataset, replacement=True, num_samples=64, generator=torch.Generator().manual_seed(0)
    )
    loader = DataLoader(dataset, batch_size=64, sampler=sampler, collate_fn=collate_packed)
    (batch,) = loader
    assert len(batch.lengths) == 64
    assert len({*batch.original_indices.tolist()}) <= len(LENGTHS)
    assert rows_of(batch) == [tuple(TEXTS[i].encode()) for i in batch.original_indices.tolist()]


def test_random_split_keeps_its_parts_apart(dataset: StoreDataset) -> None:
    parts = random_split(dataset, [8, 3], generator=torch.Generator().manual_seed(0))
    for part in parts:
        loader = DataLoader(part, batch_size=2, shuffle=True, collate_fn=collate_packed)
        check_epoch(list(loader), part.indices)


def test_sampler_of_ones_own_may_ask_for_filler(dataset: StoreDataset) -> None:
    collate = functools.partial(collate_padded, pad_id=PAD, padding_side="left")
    loader = DataLoader(dataset, batch_sampler=[[3, FILLER, 2], [5]], collate_fn=collate)  # type: ignore[arg-type]
    first, second = loader
    assert first.original_indices.tolist() == [2, 3, -1]
    assert first.ids.tolist() == slow_pad(
        [list(TEXTS[2].encode()), list(TEXTS[3].encode()), []],
        width=5,
        padding_value=PAD,
        padding_side="left",
    )
    assert second.original_indices.tolist() == [5]
