"""Sequences that conditions select: their plans in every order and layout, and what is counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import pytest
from batching_reference import Parts, list_batches, slow_plan
from hypothesis import given, settings
from hypothesis import strategies as st
from test_bin_batches import OPTIONS as BIN_OPTIONS
from test_plan import draw_parts, pack_options

from seqpack_cli.batching.conditions import ONE_EACH
from seqpack_cli.batching.options import PackOptions
from seqpack_cli.batching.plan import Plan, plan_batches
from seqpack_cli.batching.selection import OverlongError
from seqpack_cli.errors import OptionError
from seqpack_cli.shards.selected_store import SelectedStore
from seqpack_cli.shards.store_conditions import HINTS, matches
from seqpack_cli.tokens.columns import Column
from seqpack_cli.tokens.text_values import TextValues

INSPECT = "seqpack inspect store shows the columns and their values"
LANGUAGES = ("de", "en", "")
# In Python, by the label, language and score of a sequence, its length and its source.
CONDITIONS: dict[str, Callable[[int, str, float, int, str], bool]] = {
    "label >= 2": lambda label, *_: label >= 2,
    "label != 1": lambda label, *_: label != 1,
    "lang = de": lambda _, lang, *__: lang == "de",
    "'my id' != ''": lambda _, lang, *__: lang != "",
    "score < 0.5": lambda _, __, score, *___: score < 0.5,
    "@length > 9": lambda *values: values[3] > 9,
    "@source = b/*": lambda *values: values[4].startswith("b/"),
    "@source != *.csv": lambda *values: not values[4].endswith(".csv"),
}
SOURCES = ("a/1.txt", "empty.txt", "b/1.csv", "b/2.txt", "last.txt")


class FakeStore(Parts):
    """Lengths in parts, with columns of made-up values; four sources share the sequences."""

    path = shown_path = digest = "store"

    def __post_init__(self) -> None:
        super().__post_init__()
        count = int(self.part_offsets[-1])
        firsts = [0, count // 4, count // 4, count // 2, count * 3 // 4]
        entries = zip(SOURCES, firsts, strict=True)
        self.manifest = {"sources": [{"path": p, "first_document": n} for p, n in entries]}
        self.source_of = [SOURCES[sum(n >= f for f in firsts) - 1] for n in range(count)]
        self.columns = {
            "label": Column("label", "int"),
            "lang": Column("lang", "class", LANGUAGES),
            "my id": Column("my id", "text"),
            "score": Column("score", "float"),
        }
        self.folders, self.number, self.first_document = (self,), 0, 0
        self.evaluated: list[tuple[int, str]] = []

    @property
    def num_parts(self) -> int:
        return len(self.parts)

    def folder_of(self, _: int) -> FakeStore:
        return self

    def part_column(self, number: int, name: str) -> np.ndarray | TextValues:
        self.evaluated.append((number, name))
        numbers = self.number_documents(number)
        if name == "my id":
            return TextValues.of([LANGUAGES[each % 3] for each in numbers.tolist()])
        return {"label": numbers % 5, "lang": numbers % 3, "score": numbers % 7 / 7}[name]

    def number_documents(self, number: int) -> np.ndarray:
        return np.arange(*self.part_offsets[number : number + 2].tolist())

    def find_selected(self, where: Sequence[str]) -> list[bool]:
        """Return which sequences meet all conditions, one after another."""
        return [
            all(
                CONDITIONS[each](index % 5, LANGUAGES[index % 3], index % 7 / 7, length, source)
                for each in where
            )
            for index, (length, source) in enumerate(
                zip(self.lengths.tolist(), self.source_of, strict=True)
            )
        ]


WHERE = st.lists(st.sampled_from([*CONDITIONS]), min_size=1, max_size=3)
STORES = draw_parts().map(lambda source: FakeStore(source.parts))


def select_where(store: FakeStore, *where: str) -> SelectedStore:
    return SelectedStore(store, PackOptions(where=where))  # type: ignore[arg-type]


def plan_selected(
    store: FakeStore, options: PackOptions, where: Sequence[str]
) -> tuple[Plan, SelectedStore]:
    source = select_where(store, *where)
    return plan_batches(source, options, source.count()), source


@settings(max_examples=100)
@given(
    STORES,
    pack_options() | BIN_OPTIONS.map(PackOptions.resolve),
    WHERE,
    st.lists(st.integers(0, 9)),
)
def test_a_plan_has_only_selected_sequences(
    store: FakeStore, options: PackOptions, where: list[str], cuts: list[int]
) -> None:
    expected = slow_plan(store.lengths.tolist(), options, store.find_selected(where))
    if expected is None:
        with pytest.raises(OverlongError):
            plan_selected(store, options, where)
        return
    plan, source = plan_selected(store, options, where)
    cuts = [cut for cut in cuts if cut < plan.num_batches]
    assert list_batches(plan, source, cuts) == expected


@given(STORES, WHERE)
def test_lengths_are_0_where_a_sequence_is_left_out(store: FakeStore, where: list[str]) -> None:
    source = select_where(store, *where)
    selected = store.find_selected(where)
    assert source.lengths.dtype == np.int32
    assert source.lengths.tolist() == (store.lengths * selected).tolist()
    parts = [source.part_lengths(number).tolist() for number in range(len(store.parts))]
    assert parts == [
        source.lengths[first:last].tolist() for first, last in pairwise(store.part_offsets)
    ]


def test_without_conditions_it_is_the_store() -> None:
    store = FakeStore([[3, 1], [2]])
    source = select_where(store)
    assert source.lengths.tolist() == [3, 1, 2]
    assert source.count().left_out == {}


def test_a_part_is_evaluated_once() -> None:
    store = FakeStore([[3, 1], [2], []])
    source = select_where(store, "lang != en", "@length < 3")
    counts = source.count()
    assert [counts.kept.lengths.tolist(), counts.kept.counts.tolist()] == [[2], [1]]
    assert counts.left_out["where"].lengths.tolist() == [3, 1]
    assert source.count(1).kept.lengths.tolist() == source.lengths[2:].tolist() == [2]
    assert store.evaluated == [(0, "lang"), (1, "lang"), (2, "lang")]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("b/1.csv", ["b/1.csv"]),
        ("*", [*SOURCES]),
        ("b*", ["b/1.csv", "b/2.txt"]),
        ("*.txt", ["a/1.txt", "empty.txt", "b/2.txt", "last.txt"]),
        ("*t*t*t", ["empty.txt", "last.txt"]),
        ("a/1.txt*", ["a/1.txt"]),
        ("a/1.txt*t", []),
        ("**/**", ["a/1.txt", "b/1.csv", "b/2.txt"]),
        ("1", []),
        ("[ab]/?.*", []),
        ("", []),
    ],
)
def test_a_star_stands_for_any_characters(pattern: str, expected: list[str]) -> None:
    assert [path for path in SOURCES if matches(path, pattern)] == expected


@pytest.mark.parametrize(
    ("condition", "message", "hint"),
    [
        (
            "lnag = de",
            "store has no column 'lnag' (found: 'label', 'lang', 'my id', 'score')",
            INSPECT,
        ),
        (
            "length > 3",
            "store has no column 'length' (found: 'label', 'lang', 'my id', 'score')",
            HINTS["@length"],
        ),
        ("@source < b", "@source is a path: found <, expected = or !=", HINTS["@source"]),
        (
            "@source != b/3*",
            "no source is 'b/3*' (found: 'a/1.txt', 'empty.txt', 'b/1.csv', 'b/2.txt', 'last.txt')",
            HINTS["@source"],
        ),
        (
            "@length = ten",
            "@length holds numbers, found 'ten', expected a number",
            HINTS["@length"],
        ),
        ("lang = fr", "column 'lang' has no class 'fr' (found: 'de', 'en', '')", INSPECT),
        (
            "lang = de, en",
            "column 'lang' has no class 'de, en' (found: 'de', 'en', '')",
            ONE_EACH,
        ),
        (
            "score > 0 and label = 1",
            "column 'score' holds numbers, found '0 and label = 1', expected a number",
            ONE_EACH,
        ),
        (
            "my id > 3",
            "column 'my id' is of kind text: found >, expected = or !=",
            "to compare numbers, pass --keep 'my id':int or --keep 'my id':float to tokenize",
        ),
    ],
)
def test_a_condition_that_does_not_fit_the_store_is_refused(
    condition: str, message: str, hint: str
) -> None:
    with pytest.raises(OptionError) as caught:
        select_where(FakeStore([[1, 2], [3]]), "label = 1", condition)
    assert caught.value.message == f"--where {condition!r}: {message}"
    assert caught.value.hint == hint


def test_a_condition_on_a_store_without_columns_is_refused() -> None:
    store = FakeStore([[1, 2], [3]])
    store.columns = {}
    with pytest.raises(OptionError) as caught:
        select_where(store, "lang = de")
    assert caught.value.message == "--where 'lang = de': store has no column 'lang' (found: none)"
    assert caught.value.hint == "pass --keep lang to tokenize"
