"""Tags: one class per word, or spans of characters, become one class per token."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqpack_cli.corpus.document_block import BadRecordError
from seqpack_cli.tokens.byte_tokenizer import byte_tokenizer_json
from seqpack_cli.tokens.columns.kind import Field
from seqpack_cli.tokens.columns.tags_kind import Segments, TagsCollector, TagsReader
from seqpack_cli.tokens.encoders.bytes_encoder import encode_bytes
from seqpack_cli.tokens.offsets.offsets import open_offset_finder

STRINGS = TagsReader("tags", "string")
NUMBERS = TagsReader("tags", "number")


def tag(
    records: list[tuple[Any, Any]], subtokens: str = "all", reader: TagsReader = STRINGS
) -> tuple[list[Any], TagsCollector]:
    """Return the label of each byte of all texts, None for those without one."""
    values = [reader.read(value, text) for text, value in records]
    texts = [" ".join(text) if isinstance(text, list) else text for text, _ in records]
    encoded = encode_bytes(texts)
    offsets = open_offset_finder(byte_tokenizer_json(), allow_special_tokens=False)(texts, encoded)
    collector = TagsCollector(Field("tags", reader.value_type, reader.class_names))
    collector.add(collector.assign(values, offsets, encoded.lengths, subtokens))
    made = collector.finish("tags")
    assert made.class_names is not None
    (pieces,) = [tensor.pieces for tensor in made.tensors.values()]
    names = [*made.class_names, *[None] * 100]
    return [names[number] for number in np.concatenate(list(pieces)).tolist()], collector


def test_every_token_of_a_word_has_its_tag() -> None:
    words = ["né", "b c", "", "d"]
    tags, collector = tag([(words, ["X", "Y", "Z", "W"])])
    assert tags == ["X", "X", "X", None, "Y", None, "Y", None, None, "W"]
    assert collector.num_words_without_token == 1


def test_only_the_first_token_of_a_word_has_its_tag() -> None:
    tags, _ = tag([(["né", "b c"], ["X", "Y"])], "first")
    assert tags == ["X", None, None, None, "Y", None, None]


def test_text_outside_of_spans_is_a_class_of_its_own() -> None:
    spans = [[7, 8, "Y"], {"start": 0, "end": 5, "label": "X", "more": 1}]
    tags, collector = tag([("ab cdef g", spans)])
    assert tags == ["X", "X", None, "X", "X", "O", "O", None, "O"]  # 7 is a space
    assert collector.num_words_without_token == 1


def test_spans_cut_words_into_pieces_with_a_first_token_each() -> None:
    tags, _ = tag([("abcd ef", [[1, 3, "X"]])], "first")
    assert tags == ["O", "X", None, "O", None, "O", None]


def test_text_outside_of_spans_has_no_class_among_numbers_or_fixed_names() -> None:
    assert tag([("ab", [[0, 1, 7]])], reader=NUMBERS)[0] == [7, None]
    fixed = TagsReader("tags", "string", ("Y", "X"))
    assert tag([("ab", [[0, 1, "X"]])], reader=fixed)[0] == ["X", None]
    fixed = TagsReader("tags", "string", ("X", "O"))
    assert tag([("ab", [[0, 1, "X"]])], reader=fixed)[0] == ["X", "O"]


def test_outside_is_among_the_names_even_where_spans_cover_all() -> None:
    collector = TagsCollector(Field("tags"))
    value = STRINGS.read([[0, 1, "X"]], "a")
    collector.assign([value, None], np.array([[0, 1]], np.int32), np.array([1, 0]), "all")
    assert collector.finish("tags").class_names == ["O", "X"]


def test_equal_numbers_are_one_class_and_sort_as_numbers() -> None:
    tags, collector = tag([(["a", "b", "c"], [10, 9.0, 9])], reader=NUMBERS)
    assert tags == [10, None, 9, None, 9]
    assert collector.finish("tags").class_names == [9, 10]


def test_tokens_between_words_and_of_several_words_follow_their_first_character() -> None:
    """A token that spans two words has the class of the first; the second word loses its tag."""
    collector = TagsCollector(Field("tags"))
    value = Segments([0, 3, 6], ["X", "Y", "Z"])
    offsets = np.array([[0, 0], [0, 5], [5, 5], [6, 7]], np.int32)
    tags = collector.assign([value], offsets, np.array([4]), "first")
    assert tags.tolist() == [-100, 0, -100, 2]
    assert collector.num_words_without_token == 1


@given(
    data=st.data(),
    texts=st.lists(st.text(alphabet="ab é\u3000", min_size=1, max_size=8), max_size=4),
    subtokens=st.sampled_from(["first", "all"]),
)
def test_spans_equal_a_slow_reader_character_by_character(
    data: st.DataObject, texts: list[str], subtokens: str
) -> None:
    records = []
    expected: list[str | None] = []
    for text in texts:
        cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=4)))
        spans = [[s, e, f"{s}"] for s, e in pairwise(cuts) if s % 2 == 0]
        records.append((text, data.draw(st.permutations(spans))))
        label_of = {place: (s, label) for s, e, label in spans for place in range(s, e)}
        last = None
        for place, character in enumerate(text):
            start, label = label_of.get(place, (-1 - sum(s < place for s, _, _ in spans), "O"))
            piece = None if character.isspace() else (start, label)
            is_first = piece is not None and piece != last
            count = len(character.encode())
            first = label if piece and (is_first or subtokens == "all") else None
            rest = label if piece and subtokens == "all" else None
            expected += [first, *[rest] * (count - 1)]
            last = piece
    assert tag(records, subtokens)[0] == expected


@pytest.mark.parametrize(
    ("text", "value", "reason"),
    [
        (["a", "b"], ["X"], "has 1 tags, expected 2, one for each word"),
        (["a"], [None], "is null, expected a string as in the first records"),
        (["a"], [1], "is 1, expected a string as in the first records"),
        (["a"], None, "is null, expected a list"),
        (
            "a b",
            ["X", "Y"],
            "has the entry 'X', expected spans [start, end, label] beside a text that is a string",
        ),
        (
            "a",
            [[0, 1]],
            "has the entry [0, 1], expected spans [start, end, label] beside a text that is a "
            "string",
        ),
        (
            "a",
            [[0, 2, "X"]],
            "has the span 0 to 2, expected start < end within the 1 characters of the text",
        ),
        (
            "a",
            [[0, 0, "X"]],
            "has the span 0 to 0, expected start < end within the 1 characters of the text",
        ),
        (
            "a",
            [[False, True, "X"]],
            "has the span False to True, expected start < end within the 1 characters of the text",
        ),
        (
            "abcd",
            [[2, 4, "X"], [0, 3, "Y"]],
            "has the spans 0 to 3 and 2 to 4, expected spans that do not overlap",
        ),
        ("a", [[0, 1, True]], "is true, expected a string as in the first records"),
    ],
)
def test_wrong_tags_are_a_bad_record(text: Any, value: Any, reason: str) -> None:
    assert STRINGS.read_all([value], [text]) is None
    with pytest.raises(BadRecordError) as caught:
        STRINGS.read(value, text)
    assert caught.value.reason == f"field 'tags' {reason}"


def test_labels_outside_of_fixed_names_are_a_bad_record() -> None:
    reader = TagsReader("tags", "string", ("X", "Y"))
    assert reader.read(["X"], ["a"]) == Segments([0], ["X"])
    with pytest.raises(BadRecordError) as caught:
        reader.read(["X", "Z"], ["a", "b"])
    assert caught.value.reason == "field 'tags' is 'Z', expected one of 'X', 'Y'"


def test_tags_of_csv_are_json() -> None:
    assert STRINGS.parse('[[0, 1, "X"]]') == [[0, 1, "X"]]
    assert STRINGS.parse("X") == "X"
