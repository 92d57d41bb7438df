"""A decoder's rows with bos and eos, their input and labels, beside slow plain Python."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shard_reference import slow_pack, slow_pad

from seqpack_cli.shards.packed import PackedBatch, pack_sequence
from seqpack_cli.shards.padded import PaddedBatch, pad_sequence
from seqpack_cli.training.teacher_forcing import DecoderEnds, add_ends, shift_rows

PAD, BOS, EOS, NO_TAG = 300, 301, 302, -100
Rows = list[list[int]]


@dataclass
class Case:
    """Rows of ids, with a tag and a 0 or 1 for each token, and what goes around them."""

    rows: Rows
    ends: DecoderEnds
    width: int
    side: str
    num_fillers: int

    def targets(self) -> Rows:
        return [[id_ % 2 for id_ in row] for row in self.rows]

    def tags(self) -> Rows:
        return [[id_ + 7 for id_ in row] for row in self.rows]

    def packed(self) -> PackedBatch:
        ids, *columns = (pack_sequence(arrays(it)) for it in self.all_rows())
        return self.with_columns(ids, [column.data for column in columns])

    def padded(self) -> PaddedBatch:
        options = {"total_length": self.width, "padding_side": self.side}
        fillers: Rows = [[]] * self.num_fillers
        ids, *columns = (
            pad_sequence(arrays(it + fillers), padding_value=fill, **options)
            for it, fill in zip(self.all_rows(), (PAD, 0, NO_TAG), strict=True)
        )
        return self.with_columns(ids, [column.ids for column in columns])

    def all_rows(self) -> tuple[Rows, Rows, Rows]:
        return self.rows, self.targets(), self.tags()

    def with_columns(self, batch, columns):  # type: ignore[no-untyped-def]
        batch.columns.update(zip(("targets", "tag"), columns, strict=True))
        batch.columns["class"] = np.arange(len(batch.lengths))
        return batch

    def surround(self, rows: Rows, bos: int, eos: int) -> Rows:
        first, last = [bos] * (self.ends.bos_id is not None), [eos] * (self.ends.eos_id is not None)
        return [[*first, *row, *last] for row in rows]

    def expect(self) -> tuple[Rows, Rows, Rows]:
        """Return the ids, targets and tags of whole rows, with bos and eos."""
        ends = (BOS, EOS), (0, 1), (NO_TAG, NO_TAG)
        ids, targets, tags = map(self.surround, self.all_rows(), *zip(*ends, strict=True))
        return ids, targets, tags

    def expect_labels(self) -> Rows:
        ids, targets, _ = self.expect()
        both = (
            zip(row[1:], marks[1:], strict=True) for row, marks in zip(ids, targets, strict=True)
        )
        return [[id_ if mark else -100 for id_, mark in row] for row in both]


def arrays(rows: Rows) -> list[np.ndarray]:
    return [np.array(row, np.int16) for row in rows]


@st.composite
def draw_case(draw: st.DrawFn, min_size: int = 1) -> Case:
    row = st.lists(st.integers(0, 299), min_size=min_size, max_size=6)
    rows = sorted(draw(st.lists(row, min_size=1, max_size=8)), key=len, reverse=True)
    bos, eos = draw(st.sampled_from([None, BOS])), draw(st.sampled_from([None, EOS]))
    width = len(rows[0]) + draw(st.integers(0, 2))
    ends = DecoderEnds(bos, eos, PAD, {"targets": 0, "tag": NO_TAG})
    side = draw(st.sampled_from(["left", "right"]))
    return Case(rows, ends, width, side, draw(st.integers(0, 2)))


def check_packed(batch: PackedBatch, ids: Rows, columns: dict[str, Rows]) -> None:
    assert (batch.data.tolist(), batch.batch_sizes.tolist()) == slow_pack(ids)
    assert batch.lengths.tolist() == [len(row) for row in ids]
    for name, rows in columns.items():
        assert batch.columns[name].tolist() == slow_pack(rows)[0], name
    assert batch.columns["class"].tolist() == [*range(len(ids))]


def check_padded(
    batch: PaddedBatch, case: Case, width: int, ids: Rows, columns: dict[str, Rows]
) -> None:
    fillers: Rows = [[]] * case.num_fillers
    options = {"width": width, "padding_side": case.side}
    assert batch.ids.tolist() == slow_pad(ids + fillers, padding_value=PAD, **options)
    assert batch.lengths.tolist() == [len(row) for row in ids + fillers]
    for name, rows in columns.items():
        expected = slow_pad(rows + fillers, padding_value=case.ends.fills[name], **options)
        assert batch.columns[name].tolist() == expected, name


def cut(rows: Rows) -> Rows:
    return [row[:-1] for row in rows]


@given(case=draw_case())
def test_bos_and_eos_surround_each_row(case: Case) -> None:
    ids, targets, tags = case.expect()
    columns = {"targets": targets, "tag": tags}
    check_packed(add_ends(case.packed(), case.ends), ids, columns)
    width = case.width + len(case.surround([[]], 0, 0)[0])
    check_padded(add_ends(case.padded(), case.ends), case, width, ids, columns)


@given(case=draw_case(min_size=2))
def test_input_is_without_the_last_token_and_labels_without_the_first(case: Case) -> None:
    ids, targets, tags = map(cut, case.expect())
    columns = {"targets": targets, "tag": tags}
    batch, labels = shift_rows(add_ends(case.packed(), case.ends), case.ends)
    check_packed(batch, ids, columns)
    assert labels.tolist() == slow_pack(case.expect_labels())[0]
    assert labels.dtype == np.int64

    width = case.width + len(case.surround([[]], 0, 0)[0]) - 1
    batch, labels = shift_rows(add_ends(case.padded(), case.ends), case.ends)
    check_padded(batch, case, width, ids, columns)
    rows = case.expect_labels() + [[]] * case.num_fillers
    assert labels.tolist() == slow_pad(
        rows, width=width, padding_value=-100, padding_side=case.side
    )
    assert labels.dtype == np.int64


def test_every_token_is_a_target_without_the_column() -> None:
    rows = arrays([[1, 2, 3], [4, 5]])
    for batch in (pack_sequence(rows), pad_sequence(rows)):
        _, labels = shift_rows(batch, DecoderEnds())
        assert labels.flatten().tolist() == ([2, 5, 3] if labels.ndim == 1 else [2, 3, 5, -100])


@pytest.mark.parametrize("lay_out", [pack_sequence, pad_sequence])
def test_a_row_of_one_token_needs_bos_or_eos(lay_out) -> None:  # type: ignore[no-untyped-def]
    batch = lay_out(arrays([[1, 2], [3]]))
    expected = "row 1 of the decoder has 1 token, expected at least 2"
    with pytest.raises(ValueError, match=re.escape(expected)):
        shift_rows(batch, DecoderEnds())
    shorter, labels = shift_rows(add_ends(batch, DecoderEnds(bos_id=9)), DecoderEnds())
    assert shorter.lengths.tolist() == [2, 1]
    assert labels.flatten()[:2].tolist() == ([1, 3] if labels.ndim == 1 else [1, 2])
