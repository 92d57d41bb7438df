"""Import tells what looks wrong about ids, and counts what is not in its documents."""

from __future__ import annotations

import pytest
from command import run
from foreign_ids import write_pair
from test_import_records import import_records, write

import seqpack_cli.tokens.import_ids as import_run
from seqpack_cli import DataError, open_store


def import_lines(folder, records, *options):
    path = write(folder / "a.jsonl", records)
    result = run("import", path, "-o", folder / "store", "--vocab-size", 10, *options)
    assert result.exit_code == 0, result.stderr
    return result.stderr


def test_documents_that_end_with_the_same_id_twice_look_padded(tmp_path):
    records = [{"input_ids": [9, 8, 0, 0]}] * 11 + [{"input_ids": [0]}] * 8 + [{"input_ids": []}]
    assert "twice" not in import_lines(tmp_path, records)
    found = import_lines(tmp_path, [*records, {"input_ids": [9]}], "--overwrite")
    assert (
        "11 of 20 documents end with the same id twice, such as 0; if that is padding, pass "
        "--attention-mask-field, or remove it before import\n" in found
    )
    records = [{**each, "attention_mask": [1] * len(each["input_ids"])} for each in records * 2]
    assert "twice" not in import_lines(tmp_path, records, "--overwrite")


def test_a_vocabulary_that_is_far_too_large_is_told(tmp_path):
    assert "largest" not in import_lines(tmp_path, [{"input_ids": [1, 4]}])
    note = "the largest id is 3, less than half of --vocab-size 10\n"
    assert note in import_lines(tmp_path, [{"input_ids": [1, 3]}], "--overwrite")


@pytest.mark.parametrize("field", [None, "n"])
def test_padding_of_a_rejected_document_is_not_counted(tmp_path, field):
    records = [
        {"input_ids": [7, 0], "attention_mask": [1, 0], "n": 1},
        {"input_ids": [7, 200, 0, 0], "attention_mask": [1, 1, 0, 0], "n": 2},
    ]
    path = write(tmp_path / "a.jsonl", records)
    options = {"on_bad_record": "skip", "document_field": field}
    ledger = import_records(path, tmp_path / "store", **options)["ledger"]
    assert (ledger["num_padding_tokens"], ledger["num_rejected"]) == (1, 1)


def test_empty_sequences_of_a_rejected_document_are_not_counted(tmp_path):
    pair = write_pair(tmp_path / "a", [[[7], []], [[200], [], []]], code=4)
    import_records(pair.with_suffix(".idx"), tmp_path / "store", on_bad_record="skip")
    assert open_store(tmp_path / "store").manifest["ledger"]["num_empty_sequences"] == 1


def test_inspect_says_nothing_of_texts_that_were_never_read(tmp_path):
    import_lines(tmp_path, [{"input_ids": [1, 4]}])
    shown = run("inspect", tmp_path / "store", "--vocabulary")
    assert (shown.exit_code, "in the text" in shown.stdout) == (0, False)


def test_of_bad_records_the_first_is_named_before_any_part_is_made(tmp_path, monkeypatch):
    path = write(tmp_path / "a.jsonl", [{"ids": [n]} for n in range(500)])
    monkeypatch.setattr(import_run, "import_part", None)
    with pytest.raises(DataError, match=r"a.jsonl:1: no field 'input_ids'"):
        import_records(path, tmp_path / "store", part_bytes=1000)
