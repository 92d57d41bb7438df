"""Records with the same number become one document, wherever batches, parts and files end."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_import_records import FORMATS, import_records, read_rejects, read_sequences, write

from seqpack_cli import DataError
from seqpack_cli.corpus import parts
from seqpack_cli.corpus.sources import Source
from seqpack_cli.tokens.imports.id_block import IdBlock, RangeInput
from seqpack_cli.tokens.imports.id_formats import ID_FORMATS
from seqpack_cli.tokens.imports.import_plan import make_tasks
from seqpack_cli.tokens.imports.import_setup import ImportSetup
from seqpack_cli.tokens.imports.record_fields import find_fields
from seqpack_cli.tokens.options import ImportOptions

NUMBERS = st.lists(st.integers(0, 3), max_size=30).map(lambda steps: np.cumsum(steps).tolist())


def describe(path: Path) -> Source:
    """Return the source of a file."""
    kind = path.suffix[1:]
    return Source(str(path), kind, "line" if kind == "jsonl" else "row", path.stat().st_size)


def write_numbered(path: Path, numbers: list[int], end: int | None = None) -> list[dict[str, Any]]:
    """Write a record for each number, one per row group; return them."""
    records = [
        {"input_ids": [place % 100] * (place % 4), "document": number, "even": number % 2}
        for place, number in enumerate(numbers)
    ]
    if path.suffix == ".jsonl":
        write(path, records)
        return records
    fields = {"input_ids": pa.list_(pa.int32()), "document": pa.int64(), "even": pa.int64()}
    metadata = {} if end is None else {"seqpack.export": json.dumps({"documents": [0, end]})}
    schema = pa.schema(list(fields.items()), metadata)
    pq.write_table(pa.Table.from_pylist(records, schema), path, row_group_size=1)
    return records


def read_documents(source: Source, part_bytes: int = 1) -> list[list[list[int]]]:
    """Return the sequences of each document, read in parts."""
    options = ImportOptions(
        vocab_size=100, document_field="document", keep=["even:int"], part_bytes=part_bytes
    )
    fields, kept, _ = find_fields([source], options)
    setup = ImportSetup(Path(), None, options, fields, tuple(kept))  # type: ignore[arg-type]
    found = []
    for task in make_tasks([source], options):
        for source_range in task.ranges:
            opened = RangeInput(source_range)
            for block in ID_FORMATS[source.format].read(opened, setup):
                found += list_documents(block)
    return found


def list_documents(block: IdBlock) -> list[list[list[int]]]:
    """Return the sequences of each document of a block, whose field says whether it is even."""
    sequences = [each.tolist() for each in np.split(block.ids, np.cumsum(block.lengths)[:-1])]
    sequences = sequences if len(block.lengths) else []
    bounds = np.cumsum([0, *block.num_sequences]).tolist()
    return [sequences[start:end] for start, end in pairwise(bounds)]


@pytest.mark.parametrize("suffix", FORMATS)
@settings(max_examples=25, deadline=None)
@given(numbers=NUMBERS, part_bytes=st.integers(1, 700))
def test_documents_are_the_runs_of_equal_numbers(tmp_path_factory, suffix, numbers, part_bytes):
    path = tmp_path_factory.mktemp("a") / f"a.{suffix}"
    records = write_numbered(path, numbers)
    if not records:
        return
    expected: dict[int, list[list[int]]] = {}
    for record in records:
        ids = [record["input_ids"]] if record["input_ids"] else []
        expected.setdefault(record["document"], []).extend(ids)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "MIN_PART_BYTES", 1)
        assert read_documents(describe(path), part_bytes) == list(expected.values())


@pytest.mark.parametrize("part_bytes", [1, 300, 1 << 20])
def test_a_table_says_which_documents_have_no_record(tmp_path, monkeypatch, part_bytes):
    monkeypatch.setattr(parts, "MIN_PART_BYTES", 1)
    path = tmp_path / "a.parquet"
    numbers = [1, 1, 4, 7, 7, 8]
    write_numbered(path, numbers, end=11)
    expected = [[], [[1]], [], [], [[2, 2]], [], [], [[3, 3, 3]], [[5]], [], []]
    assert read_documents(describe(path), part_bytes) == expected
    write_numbered(path, [], end=3)
    assert read_documents(describe(path)) == [[], [], []]
    write_numbered(path, numbers, end=8)
    with pytest.raises(DataError, match=r"a.parquet:6: document 8, expected at most 7, as the"):
        read_documents(describe(path), 1 << 20)


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("part_bytes", [1, 1 << 20])
def test_numbers_that_fall_are_an_error(tmp_path, monkeypatch, suffix, part_bytes):
    monkeypatch.setattr(parts, "MIN_PART_BYTES", 1)
    write_numbered(tmp_path / f"a.{suffix}", [3, 5, 4])
    with pytest.raises(DataError) as caught:
        read_documents(describe(tmp_path / f"a.{suffix}"), part_bytes)
    assert "3: document 4 follows document 5, expected numbers that do not fall" in str(
        caught.value
    )


def test_a_document_with_a_bad_record_is_skipped_whole(tmp_path):
    numbers, lists = [1, 2, 2, 2, 5], [[7], [8], [9, 100], [], [6]]
    records = [
        {"input_ids": ids, "document": number} for ids, number in zip(lists, numbers, strict=True)
    ]
    records[3]["attention_mask"] = [1]
    for record in records:
        record.setdefault("attention_mask", [1] * len(record["input_ids"]))
    path = write(tmp_path / "a.jsonl", records)
    options = {"document_field": "document", "on_bad_record": "skip"}
    manifest = import_records(path, tmp_path / "store", **options)
    (reject,) = read_rejects(tmp_path / "store")
    reason = "attention_mask has 1 entries, input_ids has 0, expected as many"
    assert (reject["record"], reject["reason"]) == (2, reason)
    assert reject["byte"] == path.read_bytes().index(b'{"input_ids": []')
    ledger = manifest["ledger"]
    names = ("num_documents", "num_rejected", "num_sequences", "num_empty_sequences")
    assert [ledger[name] for name in names] == [3, 1, 2, 0]


@pytest.mark.parametrize("value", ["-1", "null", "2.0", "true", "9223372036854775808"])
def test_a_record_of_an_unknown_document_is_never_skipped(tmp_path, value):
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"input_ids": [7], "n": 1}}\n{{"input_ids": [8], "n": {value}}}\n')
    with pytest.raises(DataError, match=r"a.jsonl:2: field 'n' is .*; its document is not known"):
        import_records(path, tmp_path / "store", document_field="n", on_bad_record="skip")


def test_numbers_of_a_table_are_any_integers(tmp_path):
    path = tmp_path / "a.parquet"
    rows = {"input_ids": [[7], [8]], "n": pa.array([1, 2**63], pa.uint64())}
    pq.write_table(pa.table(rows), path)
    with pytest.raises(DataError, match=r"a.parquet:2: field 'n' is 9223372036854775808, expected"):
        import_records(path, tmp_path / "store", document_field="n")


def test_records_of_a_document_share_their_kept_fields(tmp_path):
    records = [{"input_ids": [7], "document": 1, "name": name} for name in "aab"]
    path = write(tmp_path / "a.jsonl", records)
    with pytest.raises(DataError, match=r"a.jsonl:3: field 'name' is 'a' and 'b' in records of"):
        import_records(path, tmp_path / "store", document_field="document", keep=["name"])


def test_a_document_of_many_records_is_at_most_as_large_as_allowed(tmp_path):
    path = write(tmp_path / "a.jsonl", [{"input_ids": [7, 8], "document": 1}] * 6)
    options = {"document_field": "document", "max_document_bytes": 40}
    with pytest.raises(DataError, match=r"a.jsonl:1: document larger than 40 bytes"):
        import_records(path, tmp_path / "store", **options)


GOOD = '{"input_ids": [8], "n": 2}'
BAD_IDS = ('"ids": null', '"input_ids": null', '"input_ids": [1], "input_ids": [2]')


@pytest.mark.parametrize("bad", BAD_IDS)
def test_a_bad_record_whose_document_is_known_is_skipped_with_it(tmp_path, bad):
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"input_ids": [7], "n": 0}}\n{{{bad}, "n": 0}}\n{GOOD}\n')
    import_records(path, tmp_path / "store", document_field="n", on_bad_record="skip")
    assert read_sequences(tmp_path / "store") == [[8]]


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("part_bytes", [1, 1 << 20])
def test_a_document_number_that_is_null_is_an_error_with_its_row(
    tmp_path, monkeypatch, suffix, part_bytes
):
    monkeypatch.setattr(parts, "MIN_PART_BYTES", 1)
    path = tmp_path / f"a.{suffix}"
    records = [{"input_ids": [7], "n": number} for number in (0, None, 1)]
    if suffix == "parquet":
        pq.write_table(pa.Table.from_pylist(records), path, row_group_size=1)
    else:
        write(path, records)
    with pytest.raises(DataError) as caught:
        import_records(path, tmp_path / "store", document_field="n", part_bytes=part_bytes)
    assert caught.value.message == f"{path}:2: field 'n' is null, expected a whole number"
    assert caught.value.hint == "fix the record and add --overwrite, or omit --document-field"


@pytest.mark.parametrize("counts", [(1, 0, 0, 2), (0, 2), (2, 0), (0, 0)])
def test_row_groups_without_rows_are_of_no_document(tmp_path, monkeypatch, counts):
    monkeypatch.setattr(parts, "MIN_PART_BYTES", 1)
    path = tmp_path / "a.parquet"
    schema = pa.schema({"input_ids": pa.list_(pa.int32()), "document": pa.int64()})
    schema = schema.append(pa.field("even", pa.int64()))
    number = 0
    with pq.ParquetWriter(path, schema) as file:
        for count in counts:
            rows = [
                {"input_ids": [number + row], "document": (number + row) // 2, "even": 0}
                for row in range(count)
            ]
            file.write_table(pa.Table.from_pylist(rows, schema))
            number += count
    expected = [[[0], [1]], [[2]]][: (number + 1) // 2]
    assert read_documents(describe(path), 1) == expected


def test_no_document_is_divided_at_a_record_that_only_the_standard_library_reads(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(parts, "MIN_PART_BYTES", 1)
    path = tmp_path / "a.jsonl"
    records = [f'{{"input_ids": [{place}], "document": 4, "x": NaN}}\n' for place in range(4)]
    path.write_text("".join(records))
    manifest = import_records(path, tmp_path / "store", document_field="document", part_bytes=1)
    assert manifest["ledger"]["num_documents"] == 1
