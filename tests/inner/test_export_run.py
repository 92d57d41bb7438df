"""What other trainers read, compared with the store one sequence at a time."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from blake3 import blake3
from here import HERE
from object_store import write_object
from reference import read_indexed_dataset
from shard_reference import (
    change_manifest,
    change_shard,
    flip_byte,
    make_column_store,
    make_shards,
    make_store,
    make_texts,
    put,
)

from seqpack_cli import PackOptions, export, open_shards, open_store, pack
from seqpack_cli.errors import DataError, FolderError, MachineError, OptionError
from seqpack_cli.files import disk
from seqpack_cli.files.objects import Url
from seqpack_cli.files.places import Place
from seqpack_cli.limits import LIMITS
from seqpack_cli.runs.workers import Progress
from seqpack_cli.shards.exports import source
from seqpack_cli.shards.exports.parquet_export import export_parquet
from seqpack_cli.shards.exports.task import Task, open_exported
from seqpack_cli.shards.shared_rows import VarlenBatch
from seqpack_cli.tokens.store import TokenStore

TEXTS = ["one two", "", "three four five six", "seven", "eight nine ten"]
EOS = 258  # of the tokenizer `bytes`
FORMATS = ("parquet", "megatron", "nanogpt")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LIMITS, "ids_per_export", 11)


def read_rows(folder: Path) -> list[dict[str, Any]]:
    files = sorted(folder.iterdir())
    assert [file.name for file in files] == [f"part-{n:05d}.parquet" for n in range(len(files))]
    rows: list[dict[str, Any]] = [row for file in files for row in pq.read_table(file).to_pylist()]
    return rows


def expect_rows(store: TokenStore) -> list[dict[str, Any]]:
    """Return the rows of a store, made one at a time."""
    rows = []
    starts = np.append(0, np.cumsum(store.lengths)).tolist()
    columns = {
        name: [
            value
            for part in range(store.num_parts)
            for value in column.spell(store.part_column(part, name))
        ]
        for name, column in store.columns.items()
    }
    for index, ids in enumerate(store):
        row: dict[str, Any] = {"input_ids": ids.tolist(), "attention_mask": [1] * len(ids)}
        row["labels"] = ids.tolist()
        for name, column in store.columns.items():
            is_per_token = column.is_per_token
            cells = slice(starts[index], starts[index + 1])
            row[name] = columns[name][cells] if is_per_token else columns[name][index]
        for place, is_target in enumerate(row.pop("targets", ())):
            row["labels"][place] = row["input_ids"][place] if is_target else -100
        row["document"] = store.locate(index).document
        rows.append(row)
    return rows


def test_parquet_of_a_store_has_a_row_for_each_sequence(tmp_path: Path) -> None:
    path = make_column_store(tmp_path, TEXTS, max_length=6, overlap=2, part_bytes=150)
    found = export(path, tmp_path / "out")
    store = open_store(path)
    assert store.num_parts > 2
    expected = expect_rows(store)
    assert {"label", "score", "number", "id", "tags", "overlap", "document"} <= set(expected[0])
    assert any(-100 in row["labels"] for row in expected)
    assert read_rows(tmp_path / "out") == expected
    assert found == {
        "format": "parquet",
        "num_rows": len(store),
        "num_tokens": store.num_tokens,
        "files": [str(tmp_path / "out" / "part-00000.parquet")],
    }


def test_parquet_has_no_document_where_each_is_a_sequence(tmp_path: Path) -> None:
    export(make_store(tmp_path, ["ab", "c"]), tmp_path / "out")
    assert read_rows(tmp_path / "out") == [
        {"input_ids": [97, 98], "attention_mask": [1, 1], "labels": [97, 98]},
        {"input_ids": [99], "attention_mask": [1], "labels": [99]},
    ]


STREAMS = {"layout": "streams", "batch_size": 2, "max_tokens": 4}


@pytest.mark.parametrize("options", [{"batch_size": 2}, STREAMS], ids=["packed", "streams"])
def test_parquet_of_shards_has_the_rows_of_the_store(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    path = make_column_store(tmp_path, TEXTS, max_length=6, overlap=2)
    packing = PackOptions(**options, shuffle=True, where=("score > 0.2",), drop_shorter=3)
    pack(path, tmp_path / "shards", packing, executor=HERE)
    export(tmp_path / "shards", tmp_path / "out")
    kept = [
        row
        for row in expect_rows(open_store(path))
        if row["score"] > 0.2 and len(row["input_ids"]) >= 3
    ]
    for row in kept:
        del row["document"]
    assert 1 < len(kept) < len(open_store(path))
    assert read_rows(tmp_path / "out") == kept


PACKED_ROWS: dict[str, dict[str, Any]] = {
    "one row": {},
    "rows": {"batch_size": 3, "last_batch": "pad"},
    "aligned": {"align_sequences": 4},
    "aligned rows": {"batch_size": 2, "align_sequences": 4},
    "chunks": {"batch_size": 2, "fill": "chunk"},
}


def expect_packed_rows(batch: VarlenBatch) -> Iterator[dict[str, Any]]:
    """Yield the rows of a batch that have a sequence, made one token at a time."""
    row_of = [0] * len(batch.lengths)
    if batch.row_indices is not None:
        row_of = batch.row_indices.tolist()
    ids, targets = batch.data, np.asarray(batch.columns["targets"]).reshape(-1)
    for number in sorted(set(row_of)):
        row: dict[str, list[int]] = {"input_ids": [], "labels": []}
        row |= {"seq_lengths": [], "position_ids": []}
        for place in np.flatnonzero(np.array(row_of) == number):
            cells = batch.find_cells(place)
            row["seq_lengths"].append(len(cells))
            for position, cell in enumerate(cells):
                row["input_ids"].append(int(ids[cell]))
                is_label = targets[cell] and position > 0
                row["labels"].append(int(ids[cell]) if is_label else -100)
                row["position_ids"].append(position)
        yield row


@pytest.mark.parametrize("options", PACKED_ROWS.values(), ids=PACKED_ROWS)
def test_parquet_of_varlen_shards_has_a_row_for_each_packed_row(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    path = make_store(tmp_path, TEXTS, max_length=6, overlap=2)
    packing = PackOptions(layout="varlen", max_tokens=8, shard_bytes=500, **options)
    pack(path, tmp_path / "shards", packing, executor=HERE)
    shards = open_shards(tmp_path / "shards")
    expected = [row for batch in shards for row in expect_packed_rows(batch)]
    notices: list[str] = []
    export(shards.path, tmp_path / "out", progress=Progress(on_notice=notices.append))
    assert shards.num_shards > 1
    assert max(len(row["seq_lengths"]) for row in expected) > 1
    assert read_rows(tmp_path / "out") == expected
    assert notices == ["packed rows have no columns: left out overlap"]


def test_parquet_files_have_at_most_a_number_of_bytes(tmp_path: Path) -> None:
    path = make_store(tmp_path, make_texts([40] * 60))
    task = Task(open_exported(path), tmp_path / "out", overwrite=False, eos=None)
    export_parquet(task, max_file_bytes=30_000)
    sizes = [file.stat().st_size for file in (tmp_path / "out").iterdir()]
    assert len(sizes) > 2
    assert max(sizes) <= 30_000
    assert len(read_rows(tmp_path / "out")) == 60
    marks = [
        json.loads(pq.read_metadata(file).metadata[b"seqpack.export"])
        for file in sorted((tmp_path / "out").iterdir())
    ]
    assert [mark["first_row"] + mark["num_rows"] for mark in marks] == [
        *(mark["first_row"] for mark in marks[1:]),
        60,
    ]


def test_parquet_files_say_which_documents_they_hold(tmp_path: Path) -> None:
    texts = ["", *(text for text in make_texts([40] * 20) for text in (text, ""))]
    path = make_store(tmp_path, texts, max_length=8)
    export_parquet(Task(open_exported(path), tmp_path / "out", False, None), max_file_bytes=40_000)
    files = sorted((tmp_path / "out").iterdir())
    metadata = [pq.read_metadata(file).metadata[b"seqpack.export"] for file in files]
    ranges = [json.loads(each)["documents"] for each in metadata]
    assert len(ranges) > 2
    assert [ranges[0][0], ranges[-1][1]] == [0, 41]
    assert all(first[1] == second[0] for first, second in pairwise(ranges))
    for file, (first, end) in zip(files, ranges, strict=True):
        found = pq.read_table(file)["document"].to_pylist()
        assert first <= found[0] <= found[-1] < end


@pytest.mark.parametrize("part_bytes", [12, 1 << 20])
def test_megatron_has_the_documents_of_the_store(tmp_path: Path, part_bytes: int) -> None:
    path = make_store(tmp_path, TEXTS, max_length=6, part_bytes=part_bytes)
    export(path, tmp_path / "out", to="megatron")
    parts = [part["name"] for part in open_store(path).manifest["parts"]]
    expected = [each for name in parts for each in read_indexed_dataset(path / name)]
    assert read_indexed_dataset(tmp_path / "out") == expected
    assert [len(each) for each in expected] == [2, 0, 4, 1, 3]
    if len(parts) == 1:
        for suffix in ("bin", "idx"):
            one = (path / f"part-00000.{suffix}").read_bytes()
            assert (tmp_path / f"out.{suffix}").read_bytes() == one


def test_megatron_of_shards_has_a_document_for_each_sequence(tmp_path: Path) -> None:
    path = make_shards(tmp_path, drop_longer=9)
    export(path, tmp_path / "out", to="megatron")
    expected = [[ids.tolist()] for ids in open_store(tmp_path / "store") if len(ids) <= 9]
    assert read_indexed_dataset(tmp_path / "out") == expected


@pytest.mark.parametrize("to", FORMATS)
@pytest.mark.parametrize(
    "options",
    [
        {"last_batch": "drop", "batch_size": 4},
        {"overflow": "drop", "max_tokens": 10},
        {"layout": "varlen", "fill": "chunk", "max_tokens": 4},
    ],
)
def test_visits_of_a_sequence_are_exported_once(
    tmp_path: Path, to: str, options: dict[str, Any]
) -> None:
    path = make_shards(tmp_path, [12, 9, 8, 5, 5, 3], passes="1=3", **options)
    ledger = open_shards(path).manifest["ledger"]
    assert ledger["num_repeated_sequences"]
    assert "layout" in options or any(ledger["num_dropped_sequences"].values())
    held = {i for batch in open_shards(path) for i in batch.original_indices.tolist()}
    expected = [open_store(tmp_path / "store")[i].tolist() for i in sorted(held)]
    found = export(path, tmp_path / "out", to=to)
    if to == "megatron":
        assert found["num_tokens"] == sum(map(len, expected))
        assert read_indexed_dataset(tmp_path / "out") == [[ids] for ids in expected]
    elif to == "nanogpt":
        ids = [id_ for each in expected for id_ in [*each, EOS]]
        assert np.fromfile(tmp_path / "out", "<u2").tolist() == ids
    elif "layout" not in options:
        assert [row["input_ids"] for row in read_rows(tmp_path / "out")] == expected


@pytest.mark.parametrize("overlap", [None, 2])
def test_nanogpt_ends_each_document_once(tmp_path: Path, overlap: int | None) -> None:
    options: dict[str, Any] = {
        "max_length": 6,
        "overlap": overlap,
        "part_bytes": 12,
    }
    path = make_store(tmp_path, TEXTS, eos="<eos>", **options)
    with_end = export(path, tmp_path / "a.bin", to="nanogpt")
    path = make_store(tmp_path / "without", TEXTS, **options)
    without = export(path, tmp_path / "b.bin", to="nanogpt")
    expected = [id_ for text in TEXTS if text for id_ in [*text.encode(), EOS]]
    for name in ("a.bin", "b.bin"):
        assert np.fromfile(tmp_path / name, "<u2").tolist() == expected
    assert (with_end["num_end_tokens_added"], without["num_end_tokens_added"]) == (0, 4)


def test_nanogpt_of_shards_has_the_end_token_of_the_store(tmp_path: Path) -> None:
    path = make_shards(tmp_path, [2])
    export(path, tmp_path / "out.bin", to="nanogpt")
    ids = open_store(tmp_path / "store")[0].tolist()
    assert np.fromfile(tmp_path / "out.bin", "<u2").tolist() == [*ids, EOS]


def test_nanogpt_tells_end_tokens_inside_documents(tmp_path: Path) -> None:
    notices: list[str] = []
    path = make_shards(tmp_path, [4, 4])
    ids = open_store(tmp_path / "store")[0].tolist()
    progress = Progress(on_notice=notices.append)
    found = export(path, tmp_path / "out", to="nanogpt", eos=ids[1], progress=progress)
    assert found["num_end_tokens_inside"] == 1 == len(notices)
    assert notices[0].startswith(f"1 end tokens (id {ids[1]}) are inside documents")


def test_nanogpt_refuses_what_it_cannot_hold(tmp_path: Path) -> None:
    path = make_shards(tmp_path)
    for eos in (-1, 259):
        message = rf"--eos {eos}: not a token of .*shards, expected an id from 0 to 258"
        with pytest.raises(OptionError, match=message):
            export(path, tmp_path / "out", to="nanogpt", eos=eos)
    change_manifest(path, lambda manifest: manifest.update(eos_id=None))
    with pytest.raises(OptionError, match="no end token is known"):
        export(path, tmp_path / "out", to="nanogpt")
    wide = {"dtype": "int32", "max_id": 65_536, "eos_id": 65_536}
    change_manifest(path, lambda manifest: manifest.update(wide))
    with pytest.raises(OptionError, match="end token 65,536 does not fit uint16"):
        export(path, tmp_path / "out", to="nanogpt")
    with pytest.raises(DataError, match="id 70,000 does not fit uint16"):
        list(_flatten_large_id(tmp_path / "store"))


def _flatten_large_id(path: Path) -> Any:
    """Flatten a store of which one id is changed to 70,000 after it was read."""
    from seqpack_cli.shards.exports import nanogpt_export

    class Large(source.StoreSource):
        def iter_blocks(self, *, check: bool = False) -> Any:
            for block in super().iter_blocks(check=check):
                ids = block.ids.astype(np.int32)
                ids[0] = 70_000
                yield source.Block(ids, block.lengths, block.documents)

    return nanogpt_export._iter_flat(Large(open_store(path)), EOS, nanogpt_export._Counts())


@pytest.mark.parametrize("to", FORMATS)
def test_damaged_source_is_refused_and_leaves_nothing(tmp_path: Path, to: str) -> None:
    path = make_store(tmp_path, TEXTS)
    flip_byte(path / "part-00000.bin", -3)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(FolderError, match=r"part-00000\.bin: blake3 differs"):
        export(path, tmp_path / "new" / "out" if to == "parquet" else tmp_path / "out", to=to)
    assert sorted(tmp_path.iterdir()) == before


def test_damaged_shards_are_refused(tmp_path: Path) -> None:
    path = make_shards(tmp_path, layout="varlen", max_tokens=12)
    change_shard(path, put("lengths", 0, 2**40))
    with pytest.raises(FolderError, match="row 0 has 1099511627776 ids"):
        export(path, tmp_path / "out")
    flip_byte(path / "shard-00000.safetensors", -1)
    with pytest.raises(FolderError, match="blake3 differs"):
        export(path, tmp_path / "out")


@pytest.mark.parametrize("to", FORMATS)
def test_what_the_disk_changed_is_not_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str
) -> None:
    path, write_all = make_store(tmp_path, make_texts([1000])), disk.write_all
    before = sorted(tmp_path.iterdir())

    def flip(file: Any, data: Any, shown: Place) -> None:
        changed = bytearray(data)
        if len(changed) > 500:
            changed[len(changed) // 2] ^= 1
        write_all(file, bytes(changed), shown)

    monkeypatch.setattr(disk, "write_all", flip)
    with pytest.raises(MachineError, match="read back"):
        export(path, tmp_path / "out", to=to)
    assert sorted(tmp_path.iterdir()) == before


def names_of(folder: Path) -> list[str]:
    return sorted(str(each.relative_to(folder)) for each in folder.rglob("*"))


@pytest.mark.parametrize("to", FORMATS)
def test_an_export_replaces_an_export_alone(tmp_path: Path, to: str) -> None:
    first = make_store(tmp_path / "a", make_texts([50] * 9))
    second = make_store(tmp_path / "b", ["x"])
    target = tmp_path / "made" / "out"
    target.parent.mkdir()
    export(first, target, to=to)
    names = names_of(target.parent)
    with pytest.raises(FolderError, match="already exists\n\nhint: choose another -o, or pass"):
        export(second, target, to=to)
    export(second, target, to=to, overwrite=True)
    assert names_of(target.parent) == names
    written = next(path for path in sorted(target.parent.rglob("*")) if path.is_file())
    written.write_bytes(b"a thesis")
    with pytest.raises(FolderError, match="other files are not replaced"):
        export(second, target, to=to, overwrite=True)
    assert written.read_bytes() == b"a thesis"


def change_record(record: Path, **changes: Any) -> None:
    record.write_text(json.dumps({**json.loads(record.read_bytes()), **changes}))


@pytest.mark.parametrize(
    ("to", "mine"),
    [("megatron", "out.bin"), ("megatron", "out.idx"), ("nanogpt", "out")],
)
def test_ids_of_others_are_never_replaced(tmp_path: Path, to: str, mine: str) -> None:
    path, folder = make_store(tmp_path, TEXTS, eos="<eos>"), tmp_path / "made"
    folder.mkdir()
    for suffix in ("bin", "idx"):  # what tells by its content that it may be an export
        shutil.copy(path / f"part-00000.{suffix}", folder / f"out.{suffix}")
    shutil.copy(path / "part-00000.bin", folder / "out")
    message = r"out(\.bin)?: already exists, without out\.export\.json"
    with pytest.raises(FolderError, match=message):
        export(path, folder / "out", to=to, overwrite=True)
    for each in folder.iterdir():
        each.unlink()
    export(path, folder / "out", to=to)
    changed = bytearray((folder / mine).read_bytes())
    changed[-1] ^= 1
    for content in (bytes(changed), b""):
        (folder / mine).write_bytes(content)
        with pytest.raises(FolderError, match=rf"{mine}: not the file that out\.export\.json"):
            export(path, folder / "out", to=to, overwrite=True)
        assert (folder / mine).read_bytes() == content
    (folder / mine).unlink()
    export(path, folder / "out", to=to, overwrite=True)


@pytest.mark.parametrize(
    "changes",
    [
        {"format": "seqpack.tokens"},
        {"format_version": 2},
        {"to": "megatron"},
        {"state": "open"},
        {"mine": 1},
        {"files": []},
        {"files": [{"name": "out.bin", "bytes": 1, "blake3": "0" * 64}]},
        {"files": [{"name": "out", "bytes": 1, "blake3": "0"}]},
        {"files": 7},
    ],
    ids=str,
)
def test_other_records_are_not_replaced(tmp_path: Path, changes: dict[str, Any]) -> None:
    path = make_store(tmp_path, ["x"])
    export(path, tmp_path / "out", to="nanogpt")
    (tmp_path / "out").unlink()
    change_record(tmp_path / "out.export.json", **changes)
    message = r"out\.export\.json: not the record of an export of out; other files are not replaced"
    with pytest.raises(FolderError, match=message):
        export(path, tmp_path / "out", to="nanogpt", overwrite=True)


def test_record_says_what_was_exported(tmp_path: Path) -> None:
    path = make_store(tmp_path, TEXTS)
    found = export(path, tmp_path / "out", to="nanogpt")
    data = (tmp_path / "out").read_bytes()
    counts = {"num_documents": 4, "num_tokens": len(data) // 2, "num_end_tokens_added": 4}
    assert json.loads(Path(found["record"]).read_bytes()) == {
        "format": "seqpack.export",
        "format_version": 1,
        "to": "nanogpt",
        "state": "complete",
        "source_format": "seqpack.tokens",
        "source_blake3": open_store(path).digest,
        "counts": {**counts, "num_end_tokens_inside": 0},
        "files": [{"name": "out", "bytes": len(data), "blake3": blake3(data).hexdigest()}],
    }


def test_a_folder_with_other_files_is_not_replaced(tmp_path: Path) -> None:
    path = make_store(tmp_path, ["x"])
    export(path, tmp_path / "out")
    for name, content in (("notes.txt", b"mine"), ("part-00001.parquet", b"")):
        (tmp_path / "out" / name).write_bytes(content)
        message = f"{name}: not a Parquet file that seqpack export wrote"
        with pytest.raises(FolderError, match=message):
            export(path, tmp_path / "out", overwrite=True)
        (tmp_path / "out" / name).unlink()
    for output in (path, path / "inside"):
        with pytest.raises(FolderError):
            export(path, output, overwrite=True)


@pytest.mark.parametrize("to", FORMATS)
def test_objects_hold_the_bytes_of_local_files(tmp_path: Path, to: str) -> None:
    path = make_store(tmp_path, TEXTS)
    local = export(path, tmp_path / "out", to=to)
    folder = Url(f"memory://{tmp_path.name}-{to}")
    for overwrite in (False, True):
        remote = export(path, folder / "out", to=to, overwrite=overwrite)
        for name, url in pairwise([*local["files"], *remote["files"]][:: len(local["files"])]):
            assert read_all(Url(url)) == Path(name).read_bytes()
    with pytest.raises(FolderError, match="already exists"):
        export(path, folder / "out", to=to)
    write_object(Url(remote["files"][-1]), b"a thesis")
    with pytest.raises(FolderError, match="other files are not replaced"):
        export(path, folder / "out", to=to, overwrite=True)


def read_all(url: Url) -> bytes:
    from seqpack_cli.files.objects import read_object

    return read_object(url)


def test_column_with_a_name_that_export_makes_is_refused(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"text": "a", "labels": "b"}\n')
    from seqpack_cli import TokenizeOptions, tokenize

    store, options = tmp_path / "store", TokenizeOptions(keep=("labels",))
    tokenize([corpus], store, options, executor=HERE)
    with pytest.raises(OptionError, match="column 'labels' has the name") as caught:
        export(store, tmp_path / "out")
    assert "pack --drop-column labels" in str(caught.value)


def test_progress_counts_the_bytes_of_ids(tmp_path: Path) -> None:
    path = make_store(tmp_path, TEXTS)
    for to in FORMATS:
        totals, advanced = list[int](), list[int]()
        progress = Progress(on_total=totals.append, on_advance=advanced.append)
        export(path, tmp_path / to, to=to, progress=progress)
        assert totals == [2 * open_store(path).num_tokens] == [sum(advanced)]


def test_an_empty_working_folder_can_be_the_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, output = make_store(tmp_path / "source", ["ab"]), tmp_path / "out"
    output.mkdir(0o700)
    monkeypatch.chdir(output)
    for overwrite in (False, True):
        export(path, ".", overwrite=overwrite)
        assert names_of(output) == ["part-00000.parquet"]
        assert Path("part-00000.parquet").exists()
    assert output.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("to", FORMATS)
@pytest.mark.parametrize("kind", ["store", "index", "packed", "varlen"])
def test_a_source_that_changes_after_its_check_is_refused(
    tmp_path: Path, to: str, kind: str
) -> None:
    """Both readings see the change, so that what was written equals the source."""
    path = make_store(tmp_path, make_texts([400] * 4), part_bytes=900)
    changed = path / ("part-00001.idx" if kind == "index" else "part-00001.bin")
    if kind in ("packed", "varlen"):
        options = {"layout": "varlen", "max_tokens": 800} if kind == "varlen" else {}
        path = make_shards(tmp_path / "shards", [400] * 4, **options)
        changed = path / "shard-00000.safetensors"
    before = sorted(tmp_path.rglob("*"))

    check_file = source.check_file

    def change(place: Place, entry: Any) -> None:
        check_file(place, entry)
        if place == changed:
            flip_byte(changed, 34 if kind == "index" else -10)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "check_file", change)
        with pytest.raises(
            FolderError, match=rf"{changed.name}: (blake3 differs|lengths do not|.* tokens in its)"
        ):
            export(path, tmp_path / "out", to=to, eos=EOS if to == "nanogpt" else None)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_block_of_shards_has_a_number_of_sequences_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LIMITS, "sequences_per_block", 3)
    shards = open_shards(make_shards(tmp_path, [1] * 8))
    blocks = list(source.SequenceSource(shards).iter_blocks())
    assert [len(block.lengths) for block in blocks] == [3, 3, 2]
    assert np.concatenate([block.documents for block in blocks]).tolist() == list(range(8))


@pytest.mark.parametrize(("name", "hint"), [("a.bin", "a"), (".idx", "dataset")])
def test_a_name_of_one_file_is_no_prefix(tmp_path: Path, name: str, hint: str) -> None:
    with pytest.raises(OptionError, match=f"hint: -o {tmp_path / hint}$"):
        export(make_store(tmp_path, ["x"]), tmp_path / name, to="megatron")


@pytest.mark.parametrize("kind", ["link", "folder"])
def test_what_is_no_file_is_not_replaced(tmp_path: Path, kind: str) -> None:
    path, inside = make_store(tmp_path, ["x"]), tmp_path / "out" / "part-00001.parquet"
    export(path, tmp_path / "out")
    inside.symlink_to("elsewhere") if kind == "link" else inside.mkdir()
    with pytest.raises(FolderError, match="other files are not replaced\n\nhint: choose"):
        export(path, tmp_path / "out", overwrite=True)
