"""Each damage changes something, passes the levels before the one named for it, and no further."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_shards import (
    KINDS,
    NAME,
    Kind,
    draw_shard,
    make_shard_in_memory,
    make_store_in_memory,
)
from shard_reference import Arrays, join_batches, lay_out, to_arrays

from seqpack_cli.shards.shard import Shard
from seqpack_cli.tokens.store import TokenStore
from seqpack_cli.verification import damages
from seqpack_cli.verification.damages import DAMAGES, Damage
from seqpack_cli.verification.integers.coverage import Coverage
from seqpack_cli.verification.integers.shard_roundtrip import Roundtrip, check_shard
from seqpack_cli.verification.integers.stream_links import StreamLinks
from seqpack_cli.verification.integers.structure import check_batches, mark_rows
from seqpack_cli.verification.integers.totals import check_counts

COUNTS = ("num_rows", "num_filler_rows", "num_sequences", "num_tokens", "num_padding_cells")


def count_entry(shard: Shard, kind: Kind) -> dict[str, int]:
    """Count what the manifest says of a shard."""
    _, table = check_batches(shard, max_tokens=kind.piece_length)
    columns = {name: getattr(table, name, None) for name in COUNTS}
    columns["num_padding_cells"] = table.num_cells - table.num_tokens
    counts = {name: int(column.sum()) for name, column in columns.items() if column is not None}
    return {**counts, "longest": int(table.longest.max())}


def iter_levels(
    shard: Shard, store: TokenStore, kind: Kind, entry: dict[str, int]
) -> Iterator[tuple[str, str]]:
    """Yield (level, what) of all that is found in a shard."""
    found, table = check_batches(shard, max_tokens=kind.piece_length)
    found += mark_rows(shard, Coverage([len(store)], [1])) + check_counts(NAME, entry, table)
    if kind.layout == "streams" and not found:
        links = StreamLinks(1)
        found += links.check(shard) + links.finish()
    yield from ((finding.level, finding.what) for finding in found)
    roundtrip = Roundtrip(store, torch.device("cpu"), kind.piece_length, 1 << 15)
    for finding in check_shard(shard, roundtrip, on_advance=lambda _: None):
        yield finding.level, finding.what


def belongs(damage: Damage, kind: Kind) -> bool:
    return damage.belongs_to(draw_shard(kind, 0)[0])


every_damage_of_every_kind = pytest.mark.parametrize(
    ("damage", "kind"),
    [
        pytest.param(damage, kind, id=f"{damage.name}-{name}")
        for damage in DAMAGES
        for name, kind in KINDS.items()
        if belongs(damage, kind)
    ],
)


@every_damage_of_every_kind
@settings(max_examples=6)
@given(seed=st.integers(0, 10**6))
def test_damage_is_found_first_by_its_level(damage: Damage, kind: Kind, seed: int) -> None:
    shard, store = draw_shard(kind, seed)
    before = {name: array.copy() for name, array in shard.tensors.items()}
    entry = count_entry(shard, kind)
    assert list(iter_levels(shard, store, kind, entry)) == []
    changed = damage.change(shard)
    for name, array in before.items():
        assert np.array_equal(shard.tensors[name], array)
    if changed is None:
        return
    assert any(not np.array_equal(changed[name], before[name]) for name in changed)
    for name, array in changed.items():
        assert array.dtype == before[name].dtype
        assert not np.shares_memory(array, shard.tensors[name])
    damaged = shard.with_tensors({**shard.tensors, **changed})
    damaged.arrays.check_offsets()
    found = next(iter_levels(damaged, store, kind, entry), None)
    if damage.needs_plan:  # what only the plan can tell is sound by itself
        assert found is None or (found[0] == damage.level and kind.layout == "streams")
        return
    assert (found and found[0]) == damage.level


@every_damage_of_every_kind
def test_damage_has_a_place_in_most_shards(damage: Damage, kind: Kind) -> None:
    changed = [damage.change(draw_shard(kind, seed, num_most=30)[0]) for seed in range(10)]
    least = 3 if damage.name == BORDER else 5
    if kind.layout == "streams" and damage.name in (BORDER, SWAP):
        least = 2  # only whole sequences inside a stream
    if kind.multiple > 1 and damage.name == BORDER:
        least = 0  # padding would show it
    assert sum(arrays is not None for arrays in changed) >= least


def make_shard(
    kind: Kind,
    rows: list[list[list[int]]],
    *,
    max_id: int = 9,
    indices: list[int] | None = None,
) -> Shard:
    """Make a shard of batches of rows of ids, longest first; rows count as sequences.

    Args:
        indices: of the sequences; None counts them.
    """
    batches, numbers = [], iter(indices or range(sum(map(len, rows))))
    for batch in rows:
        arrays = [np.array(ids, np.uint16) for ids in batch]
        some = np.array([next(numbers) for _ in arrays], np.int64)
        batches.append(lay_out(kind.layout, arrays, some, padding_side=kind.padding_side))
    tensors = join_batches(kind.layout, batches, kind.make_geometry())
    return make_shard_in_memory(kind, tensors, max_id=max_id)


def find_places(kind: Kind, rows: list[list[list[int]]], *, max_id: int = 9) -> set[str]:
    """Name the damages that a shard has a place for."""
    shard = make_shard(kind, rows, max_id=max_id)
    return {
        damage.name
        for damage in DAMAGES
        if belongs(damage, kind) and damage.change(shard) is not None
    }


FLIP, SWAP, BORDER = "changed id", "swapped rows", "shifted sequence boundary"
SWAPPED = "swapped batches"
STEPS, TWICE, PADDING, DROP = (
    "wrong batch_sizes entry",
    "duplicate index",
    "id in padding",
    "dropped row",
)
PLACES: dict[str, tuple[list[list[list[int]]], dict[str, set[str]]]] = {
    "one token": ([[[1]]], {"packed": {FLIP}, "padded": {FLIP}, "varlen": {FLIP}}),
    "one row": (
        [[[1, 2, 3]]],
        {"packed": {FLIP, STEPS}, "padded": {FLIP}, "varlen": {FLIP}},
    ),
    "batches of one row": (
        [[[1, 2, 3]], [[4]]],
        {
            "packed": {FLIP, SWAP, STEPS, TWICE, SWAPPED},
            "padded": {FLIP, SWAP, TWICE, SWAPPED},
            "varlen": {FLIP, SWAP, TWICE, SWAPPED},
        },
    ),
    "all rows equal": (
        [[[1, 2], [1, 2]], [[1, 2], [1, 2]]],
        {
            "packed": {FLIP, STEPS, TWICE, DROP, SWAPPED},
            "padded": {FLIP, TWICE, DROP, SWAPPED},
            "varlen": {FLIP, TWICE, DROP, SWAPPED},
        },
    ),
    "rows of one token": (
        [[[1], [2]]],
        {
            "packed": {FLIP, SWAP, TWICE, DROP},
            "padded": {FLIP, SWAP, TWICE, DROP},
            "varlen": {FLIP, SWAP, TWICE, DROP},
        },
    ),
    "uneven rows": (
        [[[1, 2, 3], [4]]],
        {
            "packed": {FLIP, SWAP, STEPS, TWICE, DROP},
            "padded": {FLIP, SWAP, TWICE, PADDING, DROP},
            "varlen": {FLIP, SWAP, TWICE, DROP},
        },
    ),
    "uneven rows beside a longer one": (
        [[[1, 2, 3, 4], [5, 6], [7]]],
        {
            "packed": {FLIP, SWAP, STEPS, TWICE, DROP},
            "padded": {FLIP, SWAP, TWICE, PADDING, DROP},
            "varlen": {FLIP, SWAP, BORDER, TWICE, DROP},
        },
    ),
}


@pytest.mark.parametrize(("rows", "expected"), PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("layout", ["packed", "padded", "varlen"])
def test_damage_without_a_place_is_none(
    layout: str, rows: list[list[list[int]]], expected: dict[str, set[str]]
) -> None:
    assert find_places(Kind(layout), rows) == expected[layout]


@pytest.mark.parametrize("layout", ["packed", "padded", "varlen"])
def test_one_id_alone_can_not_be_another(layout: str) -> None:
    rows = [[[0, 0, 0], [0]]]
    found = find_places(Kind(layout), rows, max_id=0)
    assert not found & {FLIP, PADDING}
    assert SWAP in found


def test_only_pieces_of_one_sequence_have_no_index_that_stands_twice() -> None:
    pieces = [np.array([1, 2], np.uint16), np.array([3], np.uint16)]
    starts = np.array([0, 2])
    batch = lay_out("varlen", pieces, np.array([0, 0]), piece_starts=starts)
    shard = make_shard_in_memory(Kind("varlen"), join_batches("varlen", [batch]))
    assert damages.repeat_index(shard) is None
    assert damages.swap_rows(shard) is None  # links between pieces would show it


@pytest.mark.parametrize(
    ("damage", "batches", "expected"),
    [
        (damages.swap_rows, ["a", "ab", "c"], [2, 0, 1, 0]),  # b would put a twice into a batch
        (damages.swap_rows, ["ab", "bc"], [1, 0, 1, 2]),  # the first b would not
        (damages.swap_rows, ["a", "ab"], None),
        (damages.swap_batches, ["a", "a", "b"], [0, 1, 0]),
        (damages.swap_batches, ["ab", "ab"], None),
        (damages.repeat_index, ["a", "a", "b"], [0, 0, 0]),
        (damages.repeat_index, ["a", "a"], None),
    ],
)
def test_damage_to_repeated_sequences_changes_something_else_than_repeats(
    damage: Callable[[Shard], Arrays | None], batches: list[str], expected: list[int] | None
) -> None:
    indices = ["abc".index(letter) for batch in batches for letter in batch]
    ids = {"a": [1, 2], "b": [3, 4], "c": [5, 6]}
    rows = [[ids[letter] for letter in batch] for batch in batches]
    changed = damage(make_shard(Kind("packed"), rows, indices=indices))
    assert (changed and changed["original_indices"].tolist()) == expected


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("pad_id", [0, 7])
def test_id_in_the_padding_is_in_the_padding(side: str, pad_id: int) -> None:
    rows = [np.array([1, 2, 3], np.uint16), np.array([4], np.uint16)]
    batch = lay_out("padded", rows, np.arange(2), pad_id=pad_id, padding_side=side)
    kind = Kind("padded", side)
    shard = make_shard_in_memory(kind, join_batches("padded", [batch]), pad_id=pad_id)
    changed = damages.spoil_padding(shard)
    assert changed is not None
    (cell,) = np.flatnonzero(changed["data"] != shard.tensors["data"])
    assert cell == (4 if side == "right" else 3)
    assert changed["data"][cell] == (1 if pad_id == 0 else 0)


def test_dropped_row_leaves_the_others_as_they_are() -> None:
    for kind in KINDS.values():
        for seed in range(15):
            shard, _ = draw_shard(kind, seed)
            changed = damages.drop_row(shard)
            if changed is None:
                continue
            damaged = shard.with_tensors({**shard.tensors, **changed})
            assert not damaged.find_unsound().any()
            rows, kept = list_rows(shard), list_rows(damaged)
            assert len(kept) == len(rows) - 1
            assert [row for row in rows if row in kept] == kept


def list_rows(shard: Shard) -> list[tuple[int, int, list[int]]]:
    rows = []
    for index in range(len(shard)):
        arrays: Arrays = to_arrays(shard.view(index))
        starts = arrays.get("piece_starts", np.zeros_like(arrays["lengths"])).tolist()
        indices = arrays["original_indices"].tolist()
        ids = [row.tolist() for row in shard.view(index).rows()]
        found = zip(indices, starts, ids, strict=True)
        rows += [row for row in found if row[0] >= 0]
    return rows


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ((3, 1), None),  # where the longest row would be another
        ((2, 3), None),
        ((1, 3, 1), None),
        ((4, 2, 1), [4, 1, 2]),
        ((4, 3, 4), [3, 4, 4]),
        ((3, 1, 4), [2, 2, 4]),
    ],
    ids=str,
)
def test_moved_border_leaves_the_longest_row_as_long(
    lengths: tuple[int, ...], expected: list[int] | None
) -> None:
    rows = [list(range(1, length + 1)) for length in lengths]
    shard = make_shard(Kind("varlen"), [rows])
    store = make_store_in_memory([np.array(ids, np.uint16) for ids in rows])
    changed = damages.move_border(shard)
    if changed is None:
        assert expected is None
        return
    assert changed["lengths"].tolist() == expected
    damaged = shard.with_tensors({**shard.tensors, **changed})
    entry = count_entry(shard, Kind("varlen"))
    level, _ = next(iter_levels(damaged, store, Kind("varlen"), entry))
    assert level == "roundtrip"
