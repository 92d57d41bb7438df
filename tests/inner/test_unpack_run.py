"""Unpack returns the store's sequences in their original order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from here import HERE
from shard_reference import LENGTHS, change_shard, make_shards, make_store, make_texts

from seqpack_cli.batching.options import PackOptions
from seqpack_cli.errors import FolderError, OptionError
from seqpack_cli.limits import LIMITS
from seqpack_cli.runs.workers import Progress
from seqpack_cli.shards.pack import pack
from seqpack_cli.shards.shard_set import open_shards
from seqpack_cli.shards.unpack_run import unpack as run_unpack
from seqpack_cli.shards.unpack_run import write_sequences
from seqpack_cli.shards.unpacked import iter_sequences
from seqpack_cli.tokens.options import TokenizeOptions
from seqpack_cli.tokens.store import open_store
from seqpack_cli.tokens.tokenize_run import tokenize


def unpack(path: Path, **options: Any) -> list[dict[str, Any]]:
    """Unpack into a list of the JSON lines."""
    written: list[bytes] = []
    num_sequences = write_sequences(open_shards(path), written.append, **options)
    lines = b"".join(written).decode().splitlines()
    assert len(lines) == num_sequences
    return [json.loads(line) for line in lines]


LAYOUTS: dict[str, dict[str, Any]] = {
    "packed": {},
    "padded": {"layout": "padded"},
    "left": {"layout": "padded", "padding_side": "left", "pad_to_multiple": 8},
    "filler": {"layout": "padded", "last_batch": "pad", "shuffle": True},
    "varlen": {"layout": "varlen", "max_tokens": 12},
    "varlen split": {"layout": "varlen", "max_tokens": 4},
    "varlen split to single ids": {"layout": "varlen", "max_tokens": 1},
    "varlen chunks": {"layout": "varlen", "max_tokens": 5, "fill": "chunk", "shuffle": True},
    "varlen rows": {
        "layout": "varlen",
        "max_tokens": 8,
        "batch_size": 2,
        "align_sequences": 4,
        "last_batch": "pad",
    },
    "streams": {"layout": "streams", "max_tokens": 3, "batch_size": 2, "shuffle": True},
}


@pytest.mark.parametrize("options", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("shard_bytes", [200, 1 << 20])
def test_unpack_gives_the_ids_of_the_store(
    tmp_path: Path, options: dict[str, Any], shard_bytes: int
) -> None:
    path = make_shards(tmp_path, **options, shard_bytes=shard_bytes)
    store = open_store(tmp_path / "store")
    assert unpack(path) == [
        {"index": index, "ids": ids.tolist()} for index, ids in enumerate(store)
    ]


@pytest.mark.parametrize("as_text", [False, True])
def test_parquet_has_what_the_lines_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, as_text: bool
) -> None:
    monkeypatch.setattr(LIMITS, "texts_per_write", 3)
    pq = pytest.importorskip("pyarrow.parquet")
    path = make_shards(tmp_path, layout="padded", has_columns=True)
    rows = unpack(path, as_text=as_text)
    flat = [{**{name: row[name] for name in [*row][:2]}, **row["columns"]} for row in rows]
    file = tmp_path / "rows.parquet"
    run_unpack(path, file, as_text=as_text, file_format="parquet")
    assert pq.read_table(file).to_pylist() == flat
    with pytest.raises(FolderError, match="already exists"):
        run_unpack(path, file, file_format="parquet")
    run_unpack(path, file, file_format="parquet", overwrite=True)
    pq.write_table(pq.read_table(file), file)  # by another program, the mark included
    with pytest.raises(FolderError, match="not a Parquet file that seqpack unpack wrote"):
        run_unpack(path, file, file_format="parquet", overwrite=True)


def test_parquet_has_no_two_columns_of_one_name(tmp_path: Path) -> None:
    (tmp_path / "corpus.jsonl").write_text('{"text": "a", "index": 7}\n')
    tokenize(
        [tmp_path / "corpus.jsonl"],
        tmp_path / "store",
        TokenizeOptions(keep=("index",)),
        executor=HERE,
    )
    pack(tmp_path / "store", tmp_path / "shards", executor=HERE)
    with pytest.raises(OptionError, match="column 'index' has the name of one that unpack makes"):
        run_unpack(tmp_path / "shards", tmp_path / "out", file_format="parquet")


@pytest.mark.parametrize("options", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize(("num_ids", "num_rows"), [(1, 100), (7, 100), (1000, 1), (1000, 3)])
def test_unpack_reads_in_blocks_of_any_size(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    num_ids: int,
    num_rows: int,
) -> None:
    monkeypatch.setattr(LIMITS, "ids_per_block", num_ids)
    monkeypatch.setattr(LIMITS, "sequences_per_block", num_rows)
    path = make_shards(tmp_path, **options, shard_bytes=200)
    found = [(index, ids.tolist()) for index, ids in iter_sequences(open_shards(path))]
    assert found == [
        (index, ids.tolist()) for index, ids in enumerate(open_store(tmp_path / "store"))
    ]


@pytest.mark.parametrize("options", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("seed", range(5))
def test_rows_of_a_shard_are_those_of_its_batches(
    tmp_path: Path, options: dict[str, Any], seed: int
) -> None:
    draw = np.random.default_rng(seed)
    path = make_shards(tmp_path, draw.integers(1, 20, 30).tolist(), **options)
    shard = open_shards(path).open_shard(0)
    rows = np.flatnonzero(shard.tensors["lengths"] > 0)
    rows = draw.choice(rows, 12, replace=False)
    lengths = shard.tensors["lengths"][rows]
    order = draw.permutation(12)  # of their places in target
    starts = np.empty(12, np.int64)
    starts[order] = np.cumsum(lengths[order]) - lengths[order]
    target = np.full(lengths.sum(), 9999, np.int64)
    shard.arrays.copy_rows(rows, target, starts)
    for row, start, length in zip(rows, starts, lengths, strict=True):
        assert target[start : start + length].tolist() == shard.row(row).tolist()


@pytest.mark.parametrize("options", LAYOUTS.values(), ids=LAYOUTS)
def test_unpack_leaves_dropped_sequences_out(tmp_path: Path, options: dict[str, Any]) -> None:
    path = make_shards(tmp_path, **options, drop_shorter=2, drop_longer=9)
    kept = [index for index, length in enumerate(LENGTHS) if 2 <= length <= 9]
    assert [index for index, _ in iter_sequences(open_shards(path))] == kept


def test_unpack_gives_the_text_back(tmp_path: Path) -> None:
    texts = ["Grüße, 世界 👋", 'a "quoted" \\ line', "x", "\ttab and  spaces ", "<pad>"]
    store = make_store(tmp_path, texts)
    pack(store, tmp_path / "shards", PackOptions(batch_size=2), executor=HERE)
    found = unpack(tmp_path / "shards", as_text=True)
    assert found == [{"index": index, "text": text} for index, text in enumerate(texts)]


def test_unpack_writes_one_json_line_a_sequence(tmp_path: Path) -> None:
    store = make_store(tmp_path, ["ab", "é"])
    pack(store, tmp_path / "shards", executor=HERE)
    shards = open_shards(tmp_path / "shards")
    written: list[bytes] = []
    write_sequences(shards, written.append)
    assert b"".join(written) == (
        b'{"index": 0, "ids": [97, 98]}\n{"index": 1, "ids": [195, 169]}\n'
    )
    written.clear()
    write_sequences(shards, written.append, as_text=True)
    assert b"".join(written).decode() == ('{"index": 0, "text": "ab"}\n{"index": 1, "text": "é"}\n')


def test_unpack_writes_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LIMITS, "texts_per_write", 3)
    path = make_shards(tmp_path)
    written: list[bytes] = []
    totals: list[int] = []
    advanced: list[int] = []
    progress = Progress(on_total=totals.append, on_advance=advanced.append)
    assert write_sequences(open_shards(path), written.append, progress=progress) == 7
    assert [piece.count(b"\n") for piece in written] == [3, 3, 1]
    assert totals == [7]
    assert sum(advanced) == 7


def test_unpack_counts_rows_without_filler_and_with_pieces(tmp_path: Path) -> None:
    for name, num_rows in (("filler", 7), ("varlen split", 13)):
        path = make_shards(tmp_path / name, **LAYOUTS[name])
        totals: list[int] = []
        advanced: list[int] = []
        progress = Progress(on_total=totals.append, on_advance=advanced.append)
        assert len(unpack(path, progress=progress)) == 7
        assert totals == [sum(advanced)] == [num_rows]


@pytest.mark.parametrize(
    ("row", "start", "message"),
    [
        (1, 3, "a piece of sequence 1 begins at token 3, expected 0$"),
        (2, 5, "a piece of sequence 1 begins at token 5, expected 4$"),  # a token is missing
        (2, 3, "a piece of sequence 1 begins at token 3, expected 4$"),  # a token occurs twice
        (2, 0, "sequence 1 occurs twice$"),
        (2, -4, "a piece of sequence 1 begins at token -4, expected 0$"),
        (2, 2**63 - 1, r"a piece of sequence 1 begins at token \d+, expected \d$"),
    ],
)
def test_unpack_refuses_pieces_that_do_not_follow_one_another(
    tmp_path: Path, row: int, start: int, message: str
) -> None:
    path = make_shards(tmp_path, layout="varlen", max_tokens=4, fill="sequential")

    def move(arrays: dict[str, np.ndarray]) -> None:
        assert arrays["original_indices"][1:4].tolist() == [1, 1, 1]
        assert arrays["piece_starts"][1:4].tolist() == [0, 4, 8]
        arrays["piece_starts"][row] = start

    change_shard(path, move)
    with pytest.raises(FolderError, match=f": {message}"):
        unpack(path)


def test_unpack_puts_pieces_of_any_order_together(tmp_path: Path) -> None:
    store = make_store(tmp_path, make_texts(LENGTHS))
    orders = set()
    for seed in range(3):
        path = tmp_path / f"shards{seed}"
        options = PackOptions(layout="varlen", max_tokens=2, seed=seed, shard_bytes=200)
        pack(store, path, options, executor=HERE)
        assert [line["ids"] for line in unpack(path)] == [ids.tolist() for ids in open_store(store)]
        orders.add(str([batch.original_indices for batch in open_shards(path)]))
    assert len(orders) == 3


def test_unpack_refuses_a_sequence_that_occurs_twice(tmp_path: Path) -> None:
    path = make_shards(tmp_path)

    def repeat(arrays: dict[str, np.ndarray]) -> None:
        arrays["original_indices"][4] = 2

    change_shard(path, repeat)
    with pytest.raises(FolderError) as caught:
        unpack(path)
    assert str(caught.value) == f"{path}: sequence 2 occurs twice"


@pytest.mark.parametrize("index", [len(LENGTHS), len(LENGTHS) + 1, 2**62, -1, -(2**63)])
def test_unpack_refuses_a_sequence_that_the_store_does_not_have(tmp_path: Path, index: int) -> None:
    path = make_shards(tmp_path)

    def rename(arrays: dict[str, np.ndarray]) -> None:
        arrays["original_indices"][4] = index

    change_shard(path, rename)
    with pytest.raises(FolderError) as caught:
        unpack(path)
    assert str(caught.value) == (
        f"{path / 'shard-00000.safetensors'}: original index {index}, the store has 7 sequences"
    )


def test_unpack_checks_every_batch_before_the_first_row(tmp_path: Path) -> None:
    path = make_shards(tmp_path, shard_bytes=1)

    def raise_step(arrays: dict[str, np.ndarray]) -> None:
        arrays["batch_sizes"][0] = 2

    change_shard(path, raise_step, number=2)
    written: list[bytes] = []
    with pytest.raises(FolderError, match=r"shard-00002\.safetensors: batch 0: batch_sizes\[0\]"):
        write_sequences(open_shards(path), written.append)
    assert written == []


def test_unpack_of_text_needs_the_tokenizer(tmp_path: Path) -> None:
    path = make_shards(tmp_path)
    (path / "tokenizer.json").unlink()
    with pytest.raises(FolderError, match=r"tokenizer.json: missing"):
        unpack(path, as_text=True)
    assert len(unpack(path)) == 7


def test_unpack_packs_again_to_the_same_shards(tmp_path: Path) -> None:
    path = make_shards(tmp_path / "a")
    texts = [line["text"] for line in unpack(path, as_text=True)]
    assert texts == make_texts(LENGTHS)
