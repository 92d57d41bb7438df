"""Many sequences read at once equal those read one by one, in any order, from any parts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shard_reference import make_store, make_texts

from seqpack_cli.limits import LIMITS
from seqpack_cli.tokens.store import Slices, TokenStore, copy_rows, open_store, read_rows

LENGTHS = (3, 9, 5, 1, 5, 300, 2, 4, 1, 1, 40, 7, 150, 6)
ROWS = st.lists(st.tuples(st.integers(0, len(LENGTHS) - 1), st.integers(0, 2**20)), max_size=30)


@pytest.fixture(scope="module", params=["one part", "many parts"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    part_bytes = 20 if request.param == "many parts" else 1 << 20
    folder = tmp_path_factory.mktemp("rows")
    opened = open_store(make_store(folder, make_texts(LENGTHS), part_bytes=part_bytes))
    assert (len(opened.part_offsets) > 3) == (request.param == "many parts")
    assert opened.lengths.tolist() == list(LENGTHS)
    return opened


def cut(
    store: TokenStore, rows: list[tuple[int, int]]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[list[int]]]:
    """Return indices, offsets and lengths of random pieces of sequences, and their ids."""
    indices = np.array([index for index, _ in rows], np.int64)
    offsets = np.array([draw % LENGTHS[index] for index, draw in rows], np.int64)
    rests = [LENGTHS[index] - draw % LENGTHS[index] for index, draw in rows]
    lengths = np.array([1 + draw % rest for rest, (_, draw) in zip(rests, rows, strict=True)])
    expected = [
        store[index].tolist()[start : start + length]
        for index, start, length in zip(indices, offsets, lengths, strict=True)
    ]
    return indices, offsets, lengths.astype(np.int64), expected


@pytest.mark.parametrize("blocks", [(1 << 18, 128), (8, 4), (1, 1), (8, 1 << 30)], ids=str)
@settings(max_examples=25, deadline=None)
@given(rows=ROWS)
def test_read_rows_gives_what_the_store_gives(
    store: TokenStore, blocks: tuple[int, int], rows: list[tuple[int, int]]
) -> None:
    indices, offsets, lengths, expected = cut(store, rows)
    whole = store.lengths[indices].astype(np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LIMITS, "entries_per_block", blocks[0])
        patch.setattr(LIMITS, "long_range", blocks[1])
        ids, starts = read_rows(store, Slices(indices, whole))
        pieces, piece_starts = read_rows(store, Slices(indices, lengths, offsets))
    assert ids.dtype == pieces.dtype == np.uint16
    found = [ids[start : start + n].tolist() for start, n in zip(starts, whole, strict=True)]
    assert found == [store[index].tolist() for index in indices]
    found = [
        pieces[start : start + n].tolist() for start, n in zip(piece_starts, lengths, strict=True)
    ]
    assert found == expected
    assert (len(ids), len(pieces)) == (whole.sum(), lengths.sum())


def test_read_rows_lays_them_out_in_the_order_of_the_store(store: TokenStore) -> None:
    indices = np.array([12, 0, 12, 5])
    ids, starts = read_rows(store, Slices(indices, store.lengths[indices]))
    assert starts.tolist() == [3 + 300, 0, 3 + 300 + 150, 3]
    assert ids.tolist() == [id_ for index in (0, 5, 12, 12) for id_ in store[index].tolist()]


@pytest.mark.parametrize("blocks", [(1 << 18, 128), (8, 4)], ids=str)
@settings(max_examples=25, deadline=None)
@given(rows=ROWS)
def test_copy_rows_puts_each_row_into_its_own_place(
    store: TokenStore, blocks: tuple[int, int], rows: list[tuple[int, int]]
) -> None:
    indices, offsets, lengths, expected = cut(store, rows)
    gaps = np.array([draw % 3 for _, draw in rows], np.int64)
    places = np.random.default_rng(len(rows)).permutation(len(rows))  # rows stand in any order
    starts = np.zeros(len(rows), np.int64)
    slow, filled = [], 0
    for row in places.tolist():
        starts[row] = filled + gaps[row]
        slow += [999] * int(gaps[row]) + expected[row]
        filled += int(gaps[row] + lengths[row])
    target = np.full(filled + 2, 999, np.uint16)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LIMITS, "entries_per_block", blocks[0])
        patch.setattr(LIMITS, "long_range", blocks[1])
        copy_rows(store, Slices(indices, lengths, offsets), target, starts)
    assert target.tolist() == [*slow, 999, 999]


def test_read_rows_of_32_bits(tmp_path: Path) -> None:
    tokenizer = tmp_path / "tokenizer.json"
    tokenizer.write_text(
        '{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [],'
        ' "normalizer": null, "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null,'
        ' "decoder": null, "model": {"type": "WordLevel", "vocab": {"a": 0, "b": 70000},'
        ' "unk_token": "a"}}'
    )
    path = make_store(tmp_path, ["b a b", "a", "b b"], tokenizer=str(tokenizer), part_bytes=3)
    ids, starts = read_rows(open_store(path), Slices(np.array([2, 0]), np.array([2, 3])))
    assert ids.dtype == np.int32
    assert (ids.tolist(), starts.tolist()) == ([70_000, 0, 70_000, 70_000, 70_000], [3, 0])
