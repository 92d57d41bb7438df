"""What pack was told of every batch, beside each batch looked at by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from batch_tables import BatchNumbers, make_table
from batching_reference import round_up
from hypothesis import given, settings
from hypothesis import strategies as st

from seqpack_cli.batching.buckets import find_bucket_key
from seqpack_cli.batching.options import PackOptions
from seqpack_cli.errors import OptionError
from seqpack_cli.verification.integers.promises import check_promises, find_unused_keys


def slow_promises(batch: BatchNumbers, options: PackOptions, keys: list[int] | None) -> list[str]:
    """Say what one batch breaks."""
    found = []
    num_cells = batch.num_tokens + batch.num_padding_cells
    if options.max_tokens is not None and num_cells > options.max_tokens:
        found.append(f"{num_cells} cells, the options allow at most {options.max_tokens}")
    if options.layout == "varlen":
        return found
    if options.drop_shorter is not None and batch.shortest < options.drop_shorter:
        found.append(
            f"a row of {batch.shortest} tokens, the options require at least {options.drop_shorter}"
        )
    if options.drop_longer is not None and batch.longest > options.drop_longer:
        found.append(
            f"a row of {batch.longest} tokens, the options allow at most {options.drop_longer}"
        )
    key = None
    if keys is not None:
        pair = (batch.shortest, batch.longest)
        key = find_bucket_key(keys, batch.longest)
        if len({find_bucket_key(keys, length) for length in pair}) > 1:
            found.append(f"rows of {pair[0]} and {pair[1]} tokens belong to different buckets")
        if key is None:
            return [*found, f"a row of {batch.longest} tokens, the largest bucket is {keys[-1]}"]
    most = options.batch_size
    if options.layout == "padded" and key is not None and options.max_tokens is not None:
        most = min(most or options.max_tokens, options.max_tokens // key)
    if most is not None and batch.num_rows > most:
        found.append(f"{batch.num_rows} rows, the options allow at most {most}")
    if most is not None and options.last_batch == "pad" and batch.num_rows < most:
        found.append(f"{batch.num_rows} rows, expected {most} with --last-batch pad")
    if options.layout == "padded":
        width = num_cells // batch.num_rows
        expected = key or round_up(batch.longest, options.pad_to_multiple)
        if width != expected:
            found.append(
                f"width {width}, expected {expected} for a longest row of {batch.longest} tokens"
            )
    return found


@st.composite
def batches(draw: st.DrawFn) -> BatchNumbers:
    num_rows, shortest = draw(st.integers(1, 5)), draw(st.integers(1, 12))
    longest = shortest if num_rows == 1 else draw(st.integers(shortest, 12))
    width = longest + draw(st.integers(0, 4))
    num_tokens = draw(st.integers(longest, longest * num_rows))
    index = draw(st.integers(0, 99))
    return BatchNumbers(
        index, num_rows, longest, shortest, num_tokens, width * num_rows - num_tokens
    )


limits = st.one_of(st.none(), st.integers(1, 30), st.just(2**31 - 1))
keys = st.none() | st.lists(st.integers(1, 16), min_size=1, max_size=5, unique=True).map(sorted)


@st.composite
def promised(draw: st.DrawFn) -> tuple[PackOptions, list[int] | None]:
    """Draw options that pack takes, and bucket keys that may be theirs."""
    names = ("batch_size", "max_tokens", "drop_shorter", "drop_longer")
    values: dict[str, Any] = {name: draw(limits) for name in names}
    values["layout"] = draw(st.sampled_from(["packed", "padded", "varlen"]))
    if values["layout"] == "varlen":
        values |= {"batch_size": None, "max_tokens": values["max_tokens"] or 8}
        return PackOptions(**values).resolve(), None
    found = draw(keys)
    values["buckets"] = None if found is None else "auto"
    if values["layout"] == "padded":
        values["pad_to_multiple"] = draw(st.integers(1, 5))
        values["last_batch"] = draw(st.sampled_from(["keep", "pad", "drop"]))
    try:
        return PackOptions(**values).resolve(), found
    except OptionError:  # options that do not go together
        return PackOptions().resolve(), None


def find(
    found: Sequence[BatchNumbers], options: PackOptions, keys: list[int] | None
) -> list[tuple[int, str]]:
    return sorted(check_promises(make_table(found), options, keys))


@settings(max_examples=120)
@given(st.lists(batches(), max_size=6), promised())
def test_broken_promises_are_those_of_each_batch(
    found: list[BatchNumbers], told: tuple[PackOptions, list[int] | None]
) -> None:
    assert find(found, *told) == sorted(
        (batch.index, what) for batch in found for what in slow_promises(batch, *told)
    )


BATCHES = [  # index, rows, longest, shortest, tokens, padding: widths 4, 6 and 9
    BatchNumbers(7, 2, 4, 3, 7, 1),
    BatchNumbers(8, 3, 6, 6, 18, 0),
    BatchNumbers(9, 1, 9, 9, 9, 0),
]


@pytest.mark.parametrize(
    ("told", "keys", "expected"),
    [
        ({"batch_size": 2}, None, [(8, "3 rows, the options allow at most 2")]),
        ({"drop_shorter": 4}, None, [(7, "a row of 3 tokens, the options require at least 4")]),
        ({"drop_longer": 8}, None, [(9, "a row of 9 tokens, the options allow at most 8")]),
        ({"max_tokens": 17}, None, [(8, "18 cells, the options allow at most 17")]),
        ({"pad_to_multiple": 2}, None, [(9, "width 9, expected 10 for a longest row of 9 tokens")]),
        (
            {"buckets": "auto"},
            [3, 6, 9],
            [
                (7, "rows of 3 and 4 tokens belong to different buckets"),
                (7, "width 4, expected 6 for a longest row of 4 tokens"),
            ],
        ),
        ({"buckets": "auto"}, [4, 6], [(9, "a row of 9 tokens, the largest bucket is 6")]),
        (
            {"buckets": "auto", "max_tokens": 18, "last_batch": "pad"},
            [4, 6, 9],
            [
                (7, "2 rows, expected 4 with --last-batch pad"),
                (9, "1 rows, expected 2 with --last-batch pad"),
            ],
        ),
        ({}, None, []),
    ],
)
def test_batch_is_named_by_its_index(
    told: dict[str, Any], keys: list[int] | None, expected: list[tuple[int, str]]
) -> None:
    assert find(BATCHES, PackOptions("padded", **told).resolve(), keys) == expected


def test_key_that_is_the_width_of_no_row_is_named() -> None:
    table = make_table(BATCHES)
    options = PackOptions("padded", buckets="auto").resolve()
    assert find_unused_keys(table, options, [4, 5, 6, 9, 10]) == [5, 10]
    assert find_unused_keys(table, options, [4, 6, 9]) == []
    given = PackOptions("padded", buckets=(4, 5, 9)).resolve()  # those may be of no use
    assert find_unused_keys(table, given, [4, 5, 9]) == []
    drops = PackOptions("padded", buckets="auto", last_batch="drop").resolve()
    assert find_unused_keys(table, drops, [4, 5, 9]) == []
    wide = PackOptions("padded", buckets="auto", pad_to_multiple=2).resolve()
    assert find_unused_keys(table, wide, [4, 6, 8, 10]) == [8]
    assert np.array_equal(table.longest, [4, 6, 9])
