"""Fields of records that import does not read: refused where targets would be lost, else listed."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command import run
from test_import_records import FORMATS, GOOD, import_records, read_sequences, read_targets, write

from seqpack_cli import DataError


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_mask_of_targets_that_is_not_read_is_refused(tmp_path, suffix):
    path = write(tmp_path / f"a.{suffix}", [{**GOOD, "assistant_masks": [0, 1, 1]}])
    with pytest.raises(DataError, match=r"assistant_masks.: a mask of targets.*not read") as caught:
        import_records(path, tmp_path / "store")
    hint = "pass --loss-mask-field assistant_masks, or --ignore-field assistant_masks"
    assert str(caught.value.hint).startswith(hint)
    import_records(path, tmp_path / "store", loss_mask_field="assistant_masks")
    assert read_targets(tmp_path / "store") == [[0, 1, 1]]
    import_records(path, tmp_path / "store", ignore_fields=["assistant_masks"])
    write(path, [{**GOOD, "assistant_masks": [0, 1, 1], "labels": [-100, 8, 9]}])
    import_records(path, tmp_path / "store")


@pytest.mark.parametrize("suffix", FORMATS)
def test_other_fields_are_listed_in_a_note(tmp_path, suffix):
    record = {"a": GOOD, "lang": "en", "kind": "x", "n": 5, "seq_lengths": [3]}
    path = write(tmp_path / f"a.{suffix}", [record])
    options = ("--ids-field", "a.input_ids", "--keep", "kind", "--ignore-field", "seq_lengths")
    result = run("import", path, "-o", tmp_path / "store", "--vocab-size", 100, *options)
    assert "not read: 'lang', 'n'; --keep FIELD keeps one\n" in result.stderr


def write_export(path, **columns):
    table = pa.table({"input_ids": [[7, 8], [8, 9]], **columns})
    pq.write_table(table.replace_schema_metadata({"seqpack.export": "{}"}), path)
    return path


def test_repeated_tokens_of_an_export_are_refused(tmp_path):
    path = write_export(tmp_path / "a.parquet", overlap=[0, 1])
    with pytest.raises(DataError, match="column 'overlap': rows repeat tokens") as caught:
        import_records(path, tmp_path / "store")
    assert str(caught.value.hint).startswith("pass --ignore-field overlap")
    import_records(path, tmp_path / "store", ignore_fields=["overlap"])
    assert read_sequences(tmp_path / "store") == [[7, 8], [8, 9]]
    pq.write_table(pq.read_table(path).replace_schema_metadata(None), path)
    import_records(path, tmp_path / "store")  # of another program


def test_a_note_says_how_documents_of_an_export_are_joined(tmp_path):
    path = write_export(tmp_path / "a.parquet", document=[0, 0])
    arguments = ("import", path, "--vocab-size", 100)
    note = "each row is a document; --document-field document joins rows of one document\n"
    assert note in run(*arguments, "-o", tmp_path / "store").stderr
    options = ("--document-field", "document")
    assert "joins" not in run(*arguments, "-o", tmp_path / "joined", *options).stderr


def test_ignored_fields_are_recorded(tmp_path):
    path = write(tmp_path / "a.jsonl", [GOOD])
    manifest = import_records(path, tmp_path / "store", ignore_fields=["loss_mask", "labels"])
    assert manifest["options"]["ignore_fields"] == ["labels", "loss_mask"]
