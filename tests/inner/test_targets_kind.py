"""Targets: which tokens count in the loss, from the characters that do."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqpack_cli.ranges import to_offsets
from seqpack_cli.tokens.columns.column import Column
from seqpack_cli.tokens.columns.targets_kind import TargetsCollector
from seqpack_cli.tokens.offsets import Places, find_targets
from seqpack_cli.tokens.target_text import Span, TargetText


def is_target(text: TargetText, start: int, end: int) -> bool | None:
    """Return whether a token is a target by the rule, character by character; None if some are."""
    inside = [any(first <= at < last for first, last in text.targets) for at in range(len(text[0]))]
    if start == end:
        beside = inside[max(start - 1, 0) : end + 1]
        return bool(beside) and all(beside)
    if all(inside[start:end]):
        return True
    return None if any(inside[start:end]) else False


@st.composite
def cases(draw: st.DrawFn) -> tuple[TargetText | None, list[Span]]:
    """A text with spans, some side by side, and rising places of tokens."""
    length = draw(st.integers(0, 8))
    place = st.integers(0, length)
    bounds = sorted(draw(st.lists(place, max_size=6)))
    spans = [(start, end) for start, end in pairwise(bounds) if start < end and draw(st.booleans())]
    starts, ends = (sorted(draw(st.lists(place, min_size=5, max_size=5))) for _ in "ab")
    tokens = [pair for pair in zip(starts, ends, strict=True) if pair[0] <= pair[1] and length]
    if draw(st.booleans()) and not tokens:
        return None, tokens
    return TargetText("x" * length, tuple(spans), b""), tokens


@given(batch=st.lists(cases(), max_size=4))
def test_targets_equal_the_rule_character_by_character(
    batch: list[tuple[TargetText | None, list[Span]]],
) -> None:
    lengths = np.array([len(tokens) for _, tokens in batch], np.int64)
    text_offsets = to_offsets([len(text.text) if text else 0 for text, _ in batch])
    places = np.array([token for _, tokens in batch for token in tokens], np.int64).reshape(-1, 2)
    places += np.repeat(text_offsets[:-1], lengths)[:, None]
    found = find_targets(
        [text for text, _ in batch], Places(places[:, 0], places[:, 1], text_offsets), lengths
    )
    expected = [is_target(text, *token) for text, tokens in batch for token in tokens if text]
    assert found.entries.dtype == np.uint8
    assert found.entries.tolist() == [int(each or 0) for each in expected]
    assert found.num_straddling == expected.count(None)


def test_collected_targets_are_a_column_and_counted() -> None:
    collector = TargetsCollector()
    collector.add(np.array([0, 1, 1], np.uint8))
    collector.add(np.array([1], np.uint8))
    (tensor,) = collector.finish("targets").tensors.values()
    assert (tensor.dtype, np.concatenate(list(tensor.pieces)).tolist()) == ("uint8", [0, 1, 1, 1])
    assert collector.counts["num_target_tokens"] == 3


def test_targets_other_than_0_and_1_are_wrong() -> None:
    column = Column("targets", "targets")
    values = np.array([[0, 1], [2, 255]], np.uint8)
    assert column.find_wrong(values).tolist() == [[False, False], [True, True]]
    assert column.spell(values) == [[0, 1], [2, 255]]
    assert column.is_fill(values).tolist() == [[True, False], [False, False]]


def test_no_condition_may_ask_for_targets() -> None:
    with pytest.raises(ValueError, match=r"^column 'targets' has a value per token, expected one"):
        Column("targets", "targets").make_test("=", "1")
