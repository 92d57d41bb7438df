"""What `import` writes of pairs, ids alone and records is what the page's writer writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from draw_stores import BYTES, HERE, Given, check_import, check_same, list_ranges
from make_golden import words_tokenizer_json
from oracle.imports import ImportWriter, write_pair
from oracle.stores import StoreWriter, read_store

from seqpack_cli import (
    DataError,
    FolderError,
    ImportOptions,
    OptionError,
    Progress,
    export,
    import_store,
)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a new folder the current one, so that sources have short names."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("seed", range(30))
def test_import_writes_what_the_page_says(place: Path, seed: int) -> None:
    check_import(seed)


@pytest.mark.parametrize("dtype", ["int32", "uint16"])
def test_import_knows_the_tokenizer(place: Path, tiny_tokenizer: Path, dtype: str) -> None:
    tokenizer_json = words_tokenizer_json() if dtype == "int32" else tiny_tokenizer.read_bytes()
    Path("tokenizer.json").write_bytes(tokenizer_json)
    write_pair(Path("a"), [[[2, 5], [], [300, 3]], [], [[399]]], "int32")
    files = {name: Path(name).read_bytes() for name in ("a.bin", "a.idx")}
    made = ImportOptions(tokenizer=place)
    manifest, _ = import_store("a", "theirs", made, executor=HERE)
    writer = ImportWriter(Path("ours"), {}, tokenizer_json=tokenizer_json)
    writer.write(files, list_ranges(manifest))
    check_same(Path("theirs"), Path("ours"))
    assert manifest["dtype"] == dtype


IDS = '{"input_ids": [7, 8, 9]}\n'
FLAT = np.array([1, 2, 7, 3], "<u2").tobytes()
LATE = np.array([1, 2, 3] * 9 + [8, 3], "<u2").tobytes()
ALONE: Given = {"eos": 7, "dtype": "uint16"}
REFUSED_IDS: list[
    tuple[str | bytes, Given, str]
] = [  # text is JSON lines; or what a record has too
    (IDS, {"tokenizer": "bytes"}, "found both"),
    (IDS, {"vocab_size": None}, "found neither"),
    (IDS, {"labels_field": "x"}, "'x'"),
    (IDS, {"ids_field": "x"}, "no field 'x'"),
    (IDS, {"labels_field": "labels", "ignore_fields": ["labels"]}, "conflicts with"),
    (IDS, {"dtype": "uint16"}, "expected ids alone"),
    (IDS, {"vocab_size": 9}, "a.jsonl:1: token 3 has id 9, expected ids from 0 to 8"),
    (IDS, {"max_document_bytes": 9}, "a.jsonl:1: document larger than 9 bytes"),
    (IDS * 1000 + IDS.replace("}", ', "labels": [7]}'), {}, "a.jsonl:1001: field 'labels', which"),
    (', "labels": 1', {}, "expected a list of integers"),
    (', "labels": [7, null, 9]', {}, "entry 2 is null, expected an integer"),
    (', "attention_mask": [true, false, 1.5]', {}, "entry 3 is 1.5, expected an integer"),
    (IDS.replace("]", f", {2**64}]"), {}, "entry 4 is 1.8"),
    (', "labels": [8, 9, -100]', {}, "shifted by one"),
    (', "labels": [7, 8, 10]', {}, "entry 3 of labels is 10"),
    (', "labels": [7]', {}, "labels has 1 entries, input_ids has 3"),
    (', "labels": [7, 8, 9], "loss_mask": [0, 1, 1]', {}, "expected a label where the mask is 1"),
    (', "labels": [7, 8, 9], "attention_mask": [0, 1, 1]', {}, "expected -100 for padding"),
    (', "attention_mask": [1, 0, 1]', {}, "at the ends only"),
    (', "attention_mask": [1, 2, 2]', {}, "entry 2 of attention_mask"),
    (', "seq_lengths": [1, 2]', {}, "several sequences"),
    (', "completion_mask": [0, 1, 1]', {}, "completion_mask"),
    (', "x": [1]', {"keep": ["x"]}, "expected one value per record"),
    (FLAT, {"dtype": "uint16"}, "expected --eos"),
    (FLAT, {"eos": 7}, "expected --dtype"),
    (FLAT, {}, "expected --dtype and --eos"),
    (FLAT + b"x", ALONE, "9 bytes, expected a multiple of the 2"),
    (FLAT, {**ALONE, "eos": 9}, "no id 9 in 4 ids"),
    (FLAT, {**ALONE, "eos": 100}, "--eos 100: expected less than --vocab-size 100"),
    (FLAT, {**ALONE, "keep": ["n"]}, "expected records"),
    (FLAT, {**ALONE, "max_document_bytes": 4}, "a.bin:1: document larger than 4 bytes"),
    (FLAT * 9, {**ALONE, "eos": 3, "vocab_size": 7}, "a.bin:1: token 3 has id 7"),
    (LATE, {**ALONE, "eos": 3, "vocab_size": 8, "part_bytes": 20}, "a.bin:10: token 1 has id 8"),
]


@pytest.mark.parametrize(("data", "given", "fragment"), REFUSED_IDS)
def test_import_refuses(place: Path, data: str | bytes, given: Given, fragment: str) -> None:
    name = "a.bin" if isinstance(data, bytes) else "a.jsonl"
    if isinstance(data, str):
        data = (IDS.replace("}", data + "}") if data.startswith(",") else data).encode()
    Path(name).write_bytes(data)
    with pytest.raises((OptionError, DataError)) as caught:
        made = ImportOptions(**{"vocab_size": 100, **given})
        import_store(name, "store", made, executor=HERE)
    assert fragment in caught.value.message
    assert not Path("store/manifest.json").exists()


def test_tables_that_differ_are_refused(place: Path) -> None:
    rows = [{"input_ids": [7, 8], "labels": [7, 8], "x": 1.5}]
    pq.write_table(pa.Table.from_pylist(rows), "a.parquet")
    pq.write_table(pa.Table.from_pylist(rows).select(["input_ids"]), "b.parquet")
    for given, fragment in (
        ({}, "field 'labels' is missing or null"),
        ({"ignore_fields": ["labels"], "ids_field": "x"}, "'x' is double"),
        ({"ignore_fields": ["labels"], "ids_field": "y"}, "no column 'y'"),
        ({"ignore_fields": ["labels"], "keep": ["x"]}, "b.parquet: no column 'x'"),
    ):
        with pytest.raises((OptionError, DataError), match=fragment):
            made = ImportOptions(vocab_size=100, **given)
            import_store(["a.parquet", "b.parquet"], "store", made, executor=HERE)
    write_pair(Path("c"), [[[1, 2]]], "int32")
    for given, fragment in (
        ({"keep": ["x"]}, "the input is parquet, megatron, expected records"),
        ({}, r"c\.bin: has ids without 'labels', which other sources have"),
    ):
        with pytest.raises(OptionError, match=fragment):
            made = ImportOptions(vocab_size=100, **given)
            import_store(["a.parquet", "c.bin"], "store", made, executor=HERE)


def test_export_of_overlapping_sequences_is_imported_on_demand(place: Path) -> None:
    given = {"keep": ["n:int"], "max_length": 5, "overlap": 2}
    lines = b"\n".join(b'{"text": "%s", "n": %d}' % (b"ab " * n, n) for n in range(5))
    StoreWriter(Path("store"), BYTES, given).write({"a.jsonl": lines}, [[0]])
    page = read_store(Path("store"))
    export(page.folder, "rows")
    with pytest.raises(DataError, match="rows repeat tokens of the rows before"):
        import_store("rows", "again", ImportOptions(vocab_size=300), executor=HERE)
    made = ImportOptions(vocab_size=300, ignore_fields=["overlap"], keep=["n", "document:int"])
    import_store("rows", "again", made, executor=HERE)
    again = read_store(Path("again"))
    assert again.sequences == page.sequences
    assert again.columns == {name: page.columns[name] for name in ("targets", "n")} | {
        "document": [1, 2, 2, 3, 3, 3, 4, 4, 4, 4]
    }


def test_rows_of_an_export_keep_the_number_of_their_document(place: Path) -> None:
    write_pair(Path("a"), [[[1, 2], [3]], [], [[4]]], "uint16")
    import_store("a.idx", "store", ImportOptions(vocab_size=100), executor=HERE)
    export("store", "rows")
    with pytest.raises(DataError, match="column 'document': rows of one document") as caught:
        import_store("rows", "again", ImportOptions(vocab_size=100), executor=HERE)
    assert caught.value.hint == (
        "pass --keep document:int, and --split-by document if you split the store"
    )
    made = ImportOptions(vocab_size=100, keep=["document:int"])
    import_store("rows", "again", made, executor=HERE)
    again = read_store(Path("again"))
    assert again.sequences == [[1, 2], [3], [4]]
    assert again.columns["document"] == [0, 0, 2]


@pytest.mark.parametrize("name", ["a.bin", "a.idx"])
def test_pair_that_changed_since_is_refused(place: Path, name: str) -> None:
    """Either file, also where the other has the same bytes: a length is moved to its neighbour."""
    write_pair(Path("a"), [[[1, 2], [3]], [[4]]], "uint16")
    made = ImportOptions(vocab_size=100, part_bytes=6)
    import_store("a", "store", made, executor=HERE)
    changed = [[[1, 2], [9]], [[4]]] if name == "a.bin" else [[[1], [2, 3]], [[4]]]
    write_pair(Path("a"), changed, "uint16")
    with pytest.raises(FolderError, match=r"a\.bin or a\.idx changed since this run began"):
        import_store("a", "store", made, executor=HERE)


def test_what_is_left_out_of_rejected_documents_is_not_counted(place: Path) -> None:
    rows = [([7, 0], [1, 0]), ([7, 200, 0, 0], [1, 1, 0, 0])]
    lines = [json.dumps({"input_ids": ids, "attention_mask": mask}) for ids, mask in rows]
    Path("a.jsonl").write_text("\n".join(lines))
    write_pair(Path("a"), [[[7], []], [[200], [], []]], "uint16")
    for name, count in (("a.jsonl", "num_padding_tokens"), ("a.idx", "num_empty_sequences")):
        made = ImportOptions(vocab_size=100, on_bad_record="skip")
        manifest, _ = import_store(name, "store", made, executor=HERE, overwrite=True)
        assert (manifest["ledger"][count], manifest["ledger"]["num_rejected"]) == (1, 1)


def test_import_notes_what_looks_odd(place: Path) -> None:
    rows = [{"input_ids": [257, 5, 9, 9], "other": n, "more": {"x": 1}} for n in range(40)]
    Path("a.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    notes: list[str] = []
    progress = Progress(on_notice=notes.append)
    given: list[tuple[Given, str]] = [
        (
            {"tokenizer": "bytes"},
            "40 of 40 documents begin with id 257 (bos), 0 end with id 258 (eos)",
        ),
        ({"vocab_size": 517}, "the largest id is 257, less than half of --vocab-size 517"),
        ({"vocab_size": 300}, "40 of 40 documents end with the same id twice, such as 9"),
        ({"vocab_size": 300, "keep": ["other"]}, "not read: 'more'"),
    ]
    for options, note in given:
        made = ImportOptions(**options)
        import_store("a.jsonl", "store", made, executor=HERE, progress=progress, overwrite=True)
        assert any(note in each for each in notes), notes
        notes.clear()
    Path("a.jsonl").write_text('{"input_ids": [5, 258]}\n{"input_ids": [5, 7]}\n')
    made = ImportOptions(tokenizer="bytes")
    import_store("a.jsonl", "store", made, executor=HERE, progress=progress, overwrite=True)
    assert any("1 end with id 258 (eos)" in each for each in notes), notes


def test_first_record_behind_a_byte_order_mark_says_which_fields_there_are(place: Path) -> None:
    Path("a.jsonl").write_bytes(b'\xef\xbb\xbf{"input_ids": [5, 7], "labels": [-100, 7]}\n')
    manifest, _ = import_store("a.jsonl", "store", ImportOptions(vocab_size=9), executor=HERE)
    assert manifest["ledger"]["num_target_tokens"] == 1


def change(data: bytes, *changes: tuple[int, bytes]) -> bytes:
    """Return bytes of which some are others."""
    found = bytearray(data)
    for place, new in changes:
        found[place : place + len(new)] = new
    return bytes(found)


PAIR: list[list[list[int]]] = [
    [[1, 2, 3], [4]],
    [],
    [[5, 6]],
]  # of 3 sequences, so starts are at 46
BAD_INDICES: list[tuple[Any, str]] = [
    (lambda _: b"", "begins with b''"),
    (lambda idx: change(idx, (0, b"X")), "expected an indexed dataset"),
    (lambda idx: change(idx, (9, b"\2")), "version 2, dtype code 8, expected 1"),
    (lambda idx: change(idx, (17, b"\6")), "dtype code 6, expected 1, and an integer"),
    (lambda idx: change(idx, (17, b"\x63")), "dtype code 99, expected 1, and an integer"),
    (lambda idx: change(idx, (17, b"\4")), "do not follow one another"),
    (lambda idx: idx[:30], "expected an indexed dataset"),
    (lambda idx: idx[:-8], "94 bytes, expected 102 for sequences of text"),
    (lambda idx: idx + b"\0" * 3, "105 bytes, expected 102 for sequences of text"),
    (lambda idx: change(idx, (34, b"\xff\xff\xff\xff")), "do not follow one another"),
    (lambda idx: change(idx, (34, b"\4")), "do not follow one another"),
    (lambda idx: change(idx, (46, b"\2")), "do not follow one another"),
    (lambda idx: change(idx, (42, b"\1")), "12 bytes, a.idx describes 10"),
    (lambda idx: change(idx, (78, b"\3")), "do not follow one another"),
    (lambda idx: change(idx, (70, b"\1")), "do not follow one another"),
    (lambda idx: change(idx, (94, b"\2")), "do not follow one another"),
]


@pytest.mark.parametrize(("damage", "fragment"), BAD_INDICES)
def test_damaged_index_is_refused(place: Path, damage: Any, fragment: str) -> None:
    write_pair(Path("a"), PAIR, "uint16")
    Path("a.idx").write_bytes(damage(Path("a.idx").read_bytes()))
    with pytest.raises(DataError) as caught:
        import_store("a.bin", "store", ImportOptions(vocab_size=100), executor=HERE)
    assert fragment in caught.value.message


def make_npy(descr: str, shape: str, data: bytes = b"\7\0\7\0", version: int = 1) -> bytes:
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': ({shape}), }}\n".encode()
    size = len(header).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + size + header + data


@pytest.mark.parametrize(
    ("data", "fragment"),
    [
        (make_npy("'<u2'", "2,"), None),
        (make_npy("'<u2'", "2,", version=2), None),
        (make_npy("'>i4'", "1,", b"\0\0\0\7"), None),
        (make_npy("'<f4'", "1,"), "expected integers in one dimension"),
        (make_npy("'<u2'", "1, 2"), "expected integers in one dimension"),
        (make_npy("'<u2'", ""), "expected integers in one dimension"),
        (make_npy("'|O'", "2,"), "expected integers in one dimension"),
        (make_npy("'<u2'", "3,"), "72 bytes, its .npy header says 74"),
        (make_npy("[('a', '<u2')]", "2,"), "expected integers in one dimension"),
        (make_npy("(" * 99, "2,"), ".npy header"),
        (b"\x93NUMPY\1\0\xff\xff{", ".npy header"),
    ],
)
def test_arrays_are_read_or_refused(place: Path, data: bytes, fragment: str | None) -> None:
    Path("a.npy").write_bytes(data)
    made = ImportOptions(vocab_size=100, eos=7)
    if fragment is None:
        import_store("a.npy", "store", made, executor=HERE)
        assert {*map(tuple, read_store(Path("store")).sequences)} == {(7,)}
        return
    with pytest.raises(DataError, match=fragment):
        import_store("a.npy", "store", made, executor=HERE)


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.int8()),
        pa.large_list(pa.uint16()),
        pa.list_(pa.uint64()),
        pa.list_(pa.int64(), 2),
    ],
)
def test_lists_of_any_integers_are_read_from_tables(place: Path, kind: pa.DataType) -> None:
    rows = pa.array([[7, 8], None, [9, None], [5, 6]], kind)
    notes = pa.array(["a", "b", "c", "d"])
    numbers = pa.array([1, 2, 3, None])
    table = pa.table({"input_ids": rows, "note": notes, "n": numbers})
    pq.write_table(table, "a.parquet", row_group_size=3)
    with pytest.raises(DataError, match=r"a\.parquet:2: field 'input_ids' is missing or null"):
        import_store("a.parquet", "store", ImportOptions(vocab_size=100), executor=HERE)
    for keep, expected in (["note:text"], [[7, 8], [5, 6]]), (["n:int"], [[7, 8]]):
        made = ImportOptions(vocab_size=100, on_bad_record="skip", keep=keep)
        import_store("a.parquet", "store", made, executor=HERE, overwrite=True)
        assert read_store(Path("store")).sequences == expected
    lines = Path("store/rejects.jsonl").read_text().splitlines()
    rejects = [(x["record"], x["byte"], x["reason"]) for x in map(json.loads, lines)]
    assert [reject[:2] for reject in rejects] == [(2, None), (3, None), (4, None)]
    assert [reason[:16] for *_, reason in rejects] == ["field 'input_ids"] * 2 + [
        "field 'n' is nul"
    ]


def test_end_token_is_an_id_from_0() -> None:
    assert ImportOptions(vocab_size=5, eos=0).eos == 0
    with pytest.raises(ValueError, match="eos is -1, expected at least 0"):
        ImportOptions(vocab_size=5, eos=-1)
