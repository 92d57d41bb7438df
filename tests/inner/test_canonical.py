"""Canonical JSON: the same bytes with orjson and without."""

from __future__ import annotations

import contextlib
import sys
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seqpack_cli.corpus.UNKNOWN_json_lines import find_parser

from seqpack_cli.corpus.json_records import MAX_DEPTH, encode_canonical

CHARACTERS = "".join(map(chr, [*range(0x250), 0x2028, 0x2029, 0xD7FF, 0xE000, 0xFFFF, 0x10FFFF]))
STRINGS = st.text(st.sampled_from(CHARACTERS + "\ud800\udfff") | st.characters())
NUMBERS = st.integers() | st.floats() | st.sampled_from([2**63, 2**64, -(2**63), -(2**63) - 1])
VALUES = st.recursive(
    STRINGS | NUMBERS | st.booleans() | st.none(),
    lambda inner: st.lists(inner) | st.dictionaries(STRINGS, inner) | st.tuples(inner),
)


def encode(record: dict[str, Any], *, hides_orjson: bool) -> bytes | type[Exception]:
    hidden = mock.patch.dict(sys.modules, {"orjson": None})
    find_parser.cache_clear()
    try:
        with hidden if hides_orjson else contextlib.nullcontext():
            return encode_canonical(record)
    except (ValueError, TypeError, RecursionError) as error:
        return type(error)
    finally:
        find_parser.cache_clear()


@settings(max_examples=25)
@given(st.dictionaries(STRINGS, VALUES))
def test_bytes_are_the_same_without_orjson(record: dict[str, Any]) -> None:
    assert encode(record, hides_orjson=False) == encode(record, hides_orjson=True)


@pytest.mark.parametrize("hides_orjson", [False, True])
def test_every_character_of_the_first_plane(hides_orjson: bool) -> None:
    everything = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x10000)]))
    record = {"b": everything, "a": [*everything], **dict.fromkeys(everything, 1)}
    found = encode(record, hides_orjson=hides_orjson)
    assert found == encode(record, hides_orjson=True)


@pytest.mark.parametrize("leaf", [1, 1.5])
def test_nesting_is_bounded(leaf: float) -> None:
    value: Any = leaf
    for _ in range(MAX_DEPTH - 2):
        value = [value]
    assert encode_canonical({"a": value})
    with pytest.raises(RecursionError):
        encode_canonical({"a": [value]})
