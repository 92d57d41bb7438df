"""What pack was told of every batch, beside each batch looked at by itself."""

from __future__ import annotations

from typing import Any

import pytest
from batch_tables import BatchNumbers, make_table
from hypothesis import given, settings
from hypothesis import strategies as st

from seqpack_cli.batching.buckets import find_bucket_key
from seqpack_cli.verification.integers.promises import check_promises


def slow_promises(batch: BatchNumbers, manifest: dict[str, Any]) -> list[str]:
    """Say what one batch breaks."""
    options, keys, found = manifest["options"], manifest["bucket_keys"], []
    told = {name: value for name, value in options.items() if type(value) is int}
    num_cells = batch.num_tokens + batch.num_padding_cells
    if batch.num_rows > told.get("batch_size", batch.num_rows):
        found.append(f"{batch.num_rows} rows, pack was told {told['batch_size']} at most")
    if num_cells > told.get("max_tokens", num_cells):
        found.append(f"{num_cells} cells, pack was told {told['max_tokens']} tokens at most")
    if manifest["layout"] != "varlen":
        if batch.shortest < told.get("min_length", 0):
            what = f"pack was told {told['min_length']} at least"
            found.append(f"a row of {batch.shortest} tokens, {what}")
        if batch.longest > told.get("max_length", batch.longest):
            what = f"pack was told {told['max_length']} at most"
            found.append(f"a row of {batch.longest} tokens, {what}")
        pair = (batch.shortest, batch.longest)
        if keys is not None and len({find_bucket_key(keys, length) for length in pair}) > 1:
            found.append(f"rows of {pair[0]} and {pair[1]} tokens belong to other buckets")
    if manifest["layout"] == "padded":
        width, multiple = num_cells // batch.num_rows, told.get("pad_to_multiple", 0)
        if keys is not None and width not in keys:
            found.append(f"width {width} is none of the bucket keys")
        if multiple > 0 and width % multiple:
            found.append(f"width {width} is no multiple of {multiple}")
    return found


@st.composite
def batches(draw: st.DrawFn) -> BatchNumbers:
    num_rows, shortest = draw(st.integers(1, 5)), draw(st.integers(1, 12))
    longest = shortest if num_rows == 1 else draw(st.integers(shortest, 12))
    width = longest + draw(st.integers(0, 4))
    num_tokens = draw(st.integers(longest, longest * num_rows))
    return BatchNumbers(0, num_rows, longest, shortest, num_tokens, width * num_rows - num_tokens)


limits = st.one_of(
    st.integers(-1, 30),
    st.sampled_from([2**31, 2**61, 2**63, 2**64, 10**30, -(2**63) - 1, None, "many", 2.5, True]),
)
# a multiple from 2**62 on: see the test below that is expected to fail
multiples = limits.filter(lambda value: type(value) is not int or value < 2**62)
keys = st.one_of(
    st.none(),
    st.lists(st.integers(-2, 16), max_size=5),
    st.lists(
        st.one_of(
            st.integers(1, 16),
            st.sampled_from([-(2**63) - 1, -(2**62), 2**62, 2**63 - 1, 2**63, 2**64, 10**30]),
        ),
        max_size=4,
    ),
)


@st.composite
def manifests(draw: st.DrawFn) -> dict[str, Any]:
    names = ("batch_size", "max_tokens", "min_length", "max_length")
    options = {name: draw(limits) for name in names if draw(st.booleans())}
    if draw(st.booleans()):
        options["pad_to_multiple"] = draw(multiples)
    layout = draw(st.sampled_from(["packed", "padded", "varlen"]))
    return {"layout": layout, "options": options, "bucket_keys": draw(keys)}


def find(found: list[BatchNumbers], manifest: dict[str, Any]) -> list[tuple[int, str]]:
    return sorted(check_promises(make_table(found), manifest))


@settings(max_examples=150)
@given(st.lists(batches(), max_size=6), manifests())
def test_broken_promises_are_those_of_each_batch(
    found: list[BatchNumbers], manifest: dict[str, Any]
) -> None:
    assert find(found, manifest) == sorted(
        (place, what)
        for place, batch in enumerate(found)
        for what in slow_promises(batch, manifest)
    )


BATCHES = [  # places, rows, longest, shortest, tokens, padding: widths 4, 6 and 9
    BatchNumbers(7, 2, 4, 3, 7, 1),
    BatchNumbers(8, 3, 6, 6, 18, 0),
    BatchNumbers(9, 1, 9, 9, 9, 0),
]


@pytest.mark.parametrize(
    ("promised", "expected"),
    [
        ({"batch_size": 2}, [(1, "3 rows, pack was told 2 at most")]),
        ({"min_length": 4}, [(0, "a row of 3 tokens, pack was told 4 at least")]),
        ({"max_length": 8}, [(2, "a row of 9 tokens, pack was told 8 at most")]),
        ({"max_tokens": 17}, [(1, "18 cells, pack was told 17 tokens at most")]),
        ({"pad_to_multiple": 3}, [(0, "width 4 is no multiple of 3")]),
        (
            {"bucket_keys": [3, 6, 9]},
            [
                (0, "rows of 3 and 4 tokens belong to other buckets"),
                (0, "width 4 is none of the bucket keys"),
            ],
        ),
        ({"bucket_keys": [4, 6]}, [(2, "width 9 is none of the bucket keys")]),
        ({}, []),
    ],
)
def test_batch_is_named_by_its_place(
    promised: dict[str, Any], expected: list[tuple[int, str]]
) -> None:
    keys = promised.get("bucket_keys")
    manifest = {"layout": "padded", "options": promised, "bucket_keys": keys}
    assert find(BATCHES, manifest) == expected


@pytest.mark.parametrize("multiple", [2**62, 2**63, 10**30])
def test_multiple_that_no_width_has_is_broken(multiple: int) -> None:
    options = {"pad_to_multiple": multiple}
    manifest = {"layout": "padded", "options": options, "bucket_keys": None}
    assert [place for place, _ in find(BATCHES, manifest)] == [0, 1, 2]
