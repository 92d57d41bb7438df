"""Level `roundtrip`: every id equals the token store's, through torch and back."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from shard_reference import LENGTHS, lay_out, make_store, make_texts, to_arrays
from torch.nn.utils.rnn import PackedSequence

from seqpack_cli.batching.options import LAYOUTS
from seqpack_cli.shards.layouts import Batch
from seqpack_cli.shards.padded import PaddedBatch, pad_sequence
from seqpack_cli.shards.shared_rows import VarlenBatch
from seqpack_cli.tokens.store import TokenStore, open_store
from seqpack_cli.verification.integers import batch_roundtrip
from seqpack_cli.verification.integers.batch_roundtrip import check_batch
from seqpack_cli.verification.torch_rows import TorchRows

CPU = torch.device("cpu")
ROWS = [5, 1, 2, 4, 0]  # longest first: lengths 12, 9, 5, 5, 3


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    return open_store(make_store(tmp_path_factory.mktemp("roundtrip"), make_texts(LENGTHS)))


def make_batch(store: TokenStore, layout: str, indices: list[int] = ROWS) -> Batch:
    rows = [store[index].copy() for index in indices]
    return lay_out(layout, rows, np.array(indices), pad_id=256)


def find(
    batch: Batch, store: TokenStore, *, piece_length: int | None = None
) -> list[tuple[int | None, str]]:
    return list(check_batch(batch, store, CPU, piece_length=piece_length))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("indices", [ROWS, [3], [2, 4], [5]], ids=str)
def test_good_batch_has_no_finding(store: TokenStore, layout: str, indices: list[int]) -> None:
    assert find(make_batch(store, layout, indices), store) == []


@pytest.mark.parametrize("layout", LAYOUTS)
def test_flipped_id_is_named_by_row_and_step(store: TokenStore, layout: str) -> None:
    batch = make_batch(store, layout)
    cell = 5 * 2 + 1 if layout == "packed" else 12 + 2  # row 1, step 2; row 0 has no padding
    data = to_arrays(batch)["data"]
    data[cell] += 1
    assert find(batch, store) == [
        (1, f"id {data[cell]} at step 2, the token store has {data[cell] - 1}")
    ]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_swapped_rows_of_one_length_are_found(store: TokenStore, layout: str) -> None:
    batch = make_batch(store, layout)
    swapped = replace(batch, original_indices=np.array([5, 1, 4, 2, 0]))
    ((row, what),) = find(swapped, store)
    assert row == 2
    assert "the token store has" in what


@pytest.mark.parametrize("layout", LAYOUTS)
def test_row_of_another_length_is_found(store: TokenStore, layout: str) -> None:
    batch = make_batch(store, layout)
    wrong = replace(batch, original_indices=np.array([5, 1, 2, 4, 6]))
    assert find(wrong, store) == [(4, "length 3, the token store has 2")]


def drop_the_last(packed: PackedSequence) -> PackedSequence:
    return packed._replace(data=packed.data.roll(1))


BROKEN_TORCH: dict[str, tuple[str, Callable[..., object], str]] = {
    "other ids from pad_packed_sequence": (
        "pad_packed_sequence",
        lambda whole, *args, **kwargs: (whole(*args, **kwargs)[0] + 1, whole(*args, **kwargs)[1]),
        "pad_packed_sequence(batch_first=True, total_length=15) returns ids that differ from the "
        "token store's",
    ),
    "other padding from pad_packed_sequence": (
        "pad_packed_sequence",
        lambda whole, *args, **kwargs: whole(*args, **{**kwargs, "padding_value": 0}),
        "pad_packed_sequence(batch_first=True, total_length=15) does not fill padding "
        "with padding_value",
    ),
    "other lengths from pad_packed_sequence": (
        "pad_packed_sequence",
        lambda whole, *args, **kwargs: (whole(*args, **kwargs)[0], torch.ones(5)),
        "pad_packed_sequence(batch_first=True, total_length=15) returns wrong lengths",
    ),
    "other data from pack_padded_sequence": (
        "pack_padded_sequence",
        lambda whole, *args, **kwargs: drop_the_last(whole(*args, **kwargs)),
        "pack_padded_sequence(batch_first=False) does not restore the data",
    ),
    "other rows from unpack_sequence": (
        "unpack_sequence",
        lambda whole, *args, **kwargs: whole(*args, **kwargs)[::-1],
        "unpack_sequence returns ids that differ from the token store's",
    ),
    "other data from pack_sequence": (
        "pack_sequence",
        lambda whole, *args, **kwargs: drop_the_last(whole(*args, **kwargs)),
        "pack_sequence does not restore the data",
    ),
}


@pytest.mark.parametrize(("name", "broken", "what"), BROKEN_TORCH.values(), ids=BROKEN_TORCH)
def test_a_backend_that_is_wrong_is_found(
    store: TokenStore,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    broken: Callable[..., object],
    what: str,
) -> None:
    whole = getattr(batch_roundtrip, name)
    monkeypatch.setattr(
        batch_roundtrip, name, lambda *args, **kwargs: broken(whole, *args, **kwargs)
    )
    if name == "unpack_sequence":  # else packing the rows again is refused for their order
        monkeypatch.setattr(batch_roundtrip, "pack_sequence", lambda *_, **__: None)
        monkeypatch.setattr(batch_roundtrip, "_equal", lambda *_: True)
    assert (None, what) in find(make_batch(store, "packed"), store)


def test_padded_rows_packed_by_torch_are_our_packing(
    store: TokenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = TorchRows.to_packed_sequence

    def wrong(rows: TorchRows, device: torch.device) -> PackedSequence:
        return drop_the_last(whole(rows, device))

    monkeypatch.setattr(TorchRows, "to_packed_sequence", wrong)
    what = "the packed data differs from the token store's sequences, packed"
    assert (None, what) in find(make_batch(store, "padded"), store)


def test_id_zero_is_not_taken_for_padding(tmp_path: Path) -> None:
    store = open_store(make_store(tmp_path, ["\0\0\0", "\0"]))
    for layout in LAYOUTS:
        rows = [store[index] for index in range(2)]
        batch = lay_out(layout, rows, np.array([0, 1]))
        assert find(batch, store) == []


def make_pieces(store: TokenStore, pieces: list[tuple[int, int, int]]) -> VarlenBatch:
    """Make a row of pieces, given as (sequence, start, end)."""
    rows = [store[index][start:end] for index, start, end in pieces]
    return VarlenBatch(
        np.concatenate(rows),
        np.array([len(row) for row in rows], np.int64),
        np.array([index for index, _, _ in pieces], np.int64),
        np.array([start for _, start, _ in pieces], np.int64),
    )


MAX_TOKENS = 8  # where those pieces are cut
PIECES = [(3, 0, 1), (5, 8, 12), (1, 0, 8), (5, 0, 8)]


def test_pieces_of_split_sequences_are_compared_with_their_part(store: TokenStore) -> None:
    assert find(make_pieces(store, PIECES), store, piece_length=MAX_TOKENS) == []


@pytest.mark.parametrize("row", range(4))
def test_flipped_id_of_a_piece_is_named_by_its_row_in_the_shard(
    store: TokenStore, row: int
) -> None:
    batch = make_pieces(store, PIECES)
    cell = int(batch.lengths[: row + 1].sum()) - 1
    batch.data[cell] += 1
    step = int(batch.lengths[row]) - 1
    assert find(batch, store, piece_length=MAX_TOKENS) == [
        (row, f"id {batch.data[cell]} at step {step}, the token store has {batch.data[cell] - 1}")
    ]


@pytest.mark.parametrize(
    ("start", "what"),
    [
        (9, "length 4, the token store has 3"),
        (12, "length 4, the token store has 0"),
        (2**62, "length 4, the token store has 0"),
        (7, "length 4, the token store has 5"),
    ],
)
def test_piece_of_another_part_is_found(store: TokenStore, start: int, what: str) -> None:
    batch = make_pieces(store, PIECES)
    batch = replace(batch, piece_starts=np.array([0, start, 0, 0]))
    ((row, found),) = find(batch, store, piece_length=MAX_TOKENS)
    assert row == 1
    assert re.fullmatch(what, found)


@pytest.mark.parametrize("side", ["left", "right"])
def test_filler_rows_are_passed_over(store: TokenStore, side: str) -> None:
    wide = pad_sequence(
        [store[index] for index in ROWS], padding_value=256, total_length=14, padding_side=side
    )
    batch = PaddedBatch(
        np.concatenate([wide.ids, np.full((2, 14), 256, wide.ids.dtype)]),
        np.append(wide.lengths, [0, 0]),
        np.array([*ROWS, -1, -1]),
        side,
        num_filler_rows=2,
    )
    assert find(batch, store) == []
    cell = 14 - 9 if side == "left" else 0  # row 1 has 9 ids
    batch.ids[1, cell] += 1
    ((row, what),) = find(batch, store)
    assert (row, what.partition(",")[0]) == (1, f"id {batch.ids[1, cell]} at step 0")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("dtype", "int32"),
        ("vocab_size", 9),
        ("max_id", 9),
        ("eos_id", 9),
        ("tokenizer_blake3", "0"),
    ],
)
def test_manifest_of_another_store_is_found(
    store: TokenStore, tmp_path: Path, name: str, value: object
) -> None:
    manifest = {**store.manifest, "stores": [count_store(store)]}
    assert list(batch_roundtrip.compare_manifests(manifest, store)) == []
    (what,) = batch_roundtrip.compare_manifests({**manifest, name: value}, store)
    assert what == f"{name} is {value}, the token store has {store.manifest[name]}"


def count_store(store: TokenStore) -> dict[str, int]:
    return {"num_sequences": len(store), "num_tokens": store.num_tokens}


@pytest.mark.parametrize("name", ["num_sequences", "num_tokens"])
def test_sizes_that_are_not_the_stores_are_found(store: TokenStore, name: str) -> None:
    counts = count_store(store)
    wrong = {**store.manifest, "stores": [{**counts, name: 1}]}
    (what,) = batch_roundtrip.compare_manifests(wrong, store)
    assert what == f"{name} of store 1 is 1, the token store has {counts[name]}"
