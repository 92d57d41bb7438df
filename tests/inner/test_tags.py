"""Tags: one class per word, or spans of characters, become one class per token."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from seqpack_cli.tokens.byte_tokenizer import byte_tokenizer_json
from seqpack_cli.tokens.encoders.bytes_encoder import encode_bytes
from tokenizer_kinds import tokenizer_of

from seqpack_cli.corpus.fields import BadRecordError
from seqpack_cli.corpus.options import DocumentOptions
from seqpack_cli.errors import DataError
from seqpack_cli.tokens.kinds import PlannedColumn
from seqpack_cli.tokens.offsets import Places, open_place_finder
from seqpack_cli.tokens.options import TokenizeOptions
from seqpack_cli.tokens.store import open_store
from seqpack_cli.tokens.tags import Segments, Tags
from seqpack_cli.tokens.tokenize_run import tokenize

STRINGS = Tags(PlannedColumn("tags", "tags", "string"))
NUMBERS = Tags(PlannedColumn("tags", "tags", "number"))


def tag(
    records: list[tuple[Any, Any]], subtokens: str = "all", reader: Tags = STRINGS
) -> tuple[list[Any], Tags]:
    """Return the label of each byte of all texts, None for those without one."""
    values = [reader.read([value, text])[0] for text, value in records]
    texts = [" ".join(text) if isinstance(text, list) else text for text, _ in records]
    encoded = encode_bytes(texts)
    finder = open_place_finder(byte_tokenizer_json(), allow_special_tokens=False)
    words = finder.leave_out_spaces(texts, encoded, finder.find(texts, encoded))
    collector = Tags(reader.field)
    collector.add_entries(collector.assign(values, words, subtokens))
    made = collector.finish()
    assert made.class_names is not None
    (pieces,) = [tensor.pieces for tensor in made.tensors.values()]
    names = [*made.class_names, *[None] * 100]
    return [names[number] for number in np.concatenate(list(pieces)).tolist()], collector


def test_every_token_of_a_word_has_its_tag() -> None:
    words = ["né", "b c", "", "d"]
    tags, collector = tag([(words, ["X", "Y", "Z", "W"])])
    assert tags == ["X", "X", "X", None, "Y", None, "Y", None, None, "W"]
    assert collector.counts == {"num_words_without_token": 1}


def test_only_the_first_token_of_a_word_has_its_tag() -> None:
    tags, _ = tag([(["né", "b c"], ["X", "Y"])], "first")
    assert tags == ["X", None, None, None, "Y", None, None]


def test_text_outside_of_spans_is_a_class_of_its_own() -> None:
    spans = [[7, 8, "Y"], {"start": 0, "end": 5, "label": "X", "more": 1}]
    tags, collector = tag([("ab cdef g", spans)])
    assert tags == ["X", "X", None, "X", "X", "O", "O", None, "O"]  # 7 is a space
    assert collector.counts == {"num_words_without_token": 1}


def test_spans_cut_words_into_pieces_with_a_first_token_each() -> None:
    tags, _ = tag([("abcd ef", [[1, 3, "X"]])], "first")
    assert tags == ["O", "X", None, "O", None, "O", None]


def test_text_outside_of_spans_has_no_class_among_numbers_or_fixed_names() -> None:
    assert tag([("ab", [[0, 1, 7]])], reader=NUMBERS)[0] == [7, None]
    fixed = Tags(PlannedColumn("tags", "tags", "string", ("Y", "X")))
    assert tag([("ab", [[0, 1, "X"]])], reader=fixed)[0] == ["X", None]
    fixed = Tags(PlannedColumn("tags", "tags", "string", ("X", "O")))
    assert tag([("ab", [[0, 1, "X"]])], reader=fixed)[0] == ["X", "O"]


def test_outside_is_among_the_names_even_where_spans_cover_all() -> None:
    collector = Tags(PlannedColumn("tags", "tags"))
    value = STRINGS.read([[[0, 1, "X"]], "a"])[0]
    collector.assign([value, None], Places(*np.array([[0], [1]]), np.array([0, 1, 1])), "all")
    assert collector.finish().class_names == ["O", "X"]


def test_equal_numbers_are_one_class_and_sort_as_numbers() -> None:
    tags, collector = tag([(["a", "b", "c"], [10, 9.0, 9])], reader=NUMBERS)
    assert tags == [10, None, 9, None, 9]
    assert collector.finish().class_names == [9, 10]


def test_tokens_between_words_and_of_several_words_follow_their_first_character() -> None:
    """A token that spans two words has the class of the first; the second word loses its tag."""
    collector = Tags(PlannedColumn("tags", "tags"))
    value = Segments([0, 3, 6], ["X", "Y", "Z"])
    words = Places(np.array([0, 0, 5, 6]), np.array([0, 5, 5, 7]), np.array([0, 7]))
    tags = collector.assign([value], words, "first")
    assert tags.tolist() == [-100, 0, -100, 2]
    assert collector.counts == {"num_words_without_token": 1}


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
        (["a", "b"], ["X"], "has 1 tag, expected 2, one for each word"),
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
            "has the entry [False, True, 'X'], expected integers as start and end, and then a "
            "label",
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
    with pytest.raises(ValueError, match=r"tags|words"):
        STRINGS.read_all([[value], [text]])
    with pytest.raises(BadRecordError) as caught:
        STRINGS.read([value, text])
    assert caught.value.reason == f"field 'tags' {reason}"


def test_labels_outside_of_fixed_names_are_a_bad_record() -> None:
    reader = Tags(PlannedColumn("tags", "tags", "string", ("X", "Y")))
    assert reader.read_all([[["X"]], [["a"]]]) == [reader.read([["X"], ["a"]])]
    with pytest.raises(BadRecordError) as caught:
        reader.read([["X", "Z"], ["a", "b"]])
    assert caught.value.reason == "field 'tags' is 'Z', expected one of 'X', 'Y'"


def test_tags_of_csv_are_json() -> None:
    assert STRINGS.parse('[[0, 1, "X"]]') == [[0, 1, "X"]]
    assert STRINGS.parse("X") == "X"


RECORDS = [
    {"words": ["Ada", "Lovelace", "né", "\u3000", "x"], "tags": ["PER", "PER", "O", "X", "O"]},
    {"words": [], "tags": []},
    {"words": "Ada met Bob", "tags": [[0, 3, "PER"], [8, 11, "PER"]]},
]


@pytest.mark.parametrize("tokenizer", ["bytes", "byte_level", "word_piece"])
@pytest.mark.parametrize("subtokens", ["first", "all"])
def test_tags_come_along_with_their_tokens_into_every_piece(
    tmp_path: Path, tokenizer: str, subtokens: str
) -> None:
    (tmp_path / "corpus.jsonl").write_text("\n".join(map(json.dumps, RECORDS)))
    if tokenizer != "bytes":
        (tmp_path / "tokenizer.json").write_text(tokenizer_of(tokenizer))
    found = []
    for number, (encoder, max_length) in enumerate(
        [("auto", None), ("auto", 4), ("tokenizers", None)]
    ):
        options = TokenizeOptions(
            "bytes" if tokenizer == "bytes" else tmp_path,
            documents=DocumentOptions(text_field="words"),
            keep=["tags:tags"],
            tag_subtokens=subtokens,
            bos="<bos>" if tokenizer == "bytes" else "<s>",
            max_length=max_length,
            encoder=encoder,
        )
        manifest, _ = tokenize(tmp_path / "corpus.jsonl", tmp_path / f"{number}", options)
        store = open_store(tmp_path / f"{number}")
        names = store.columns["tags"].class_names
        assert names == ("O", "PER", "X")
        tags = store.part_column(0, "tags")
        found.append([None if tag < 0 else names[tag] for tag in tags.tolist()])
        assert manifest["ledger"]["num_words_without_token"] == 1
    assert found[0] == found[1] == found[2]
    if subtokens == "first":
        assert [tag for tag in found[0] if tag] == ["PER", "PER", "O", "O", "PER", "O", "PER"]
    assert found[0][0] is None  # <bos>


def test_wrong_tags_name_the_line(tmp_path: Path) -> None:
    (tmp_path / "corpus.jsonl").write_text('{"words": ["a"], "tags": ["X", "Y"]}\n')
    options = TokenizeOptions(documents=DocumentOptions(text_field="words"), keep=["tags:tags"])
    with pytest.raises(DataError) as caught:
        tokenize(tmp_path / "corpus.jsonl", tmp_path / "store", options)
    assert caught.value.message == (
        f"{tmp_path}/corpus.jsonl:1: field 'tags' has 2 tags, expected 1, one for each word"
    )
