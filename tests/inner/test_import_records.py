"""Records with ids, from JSON and Parquet, become a store; labels and masks become targets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command import check_refused, run
from here import HERE

from seqpack_cli import DataError, ImportOptions, OptionError, import_store, open_store

FORMATS = ("jsonl", "parquet")
SKIP = "fix the record and add --overwrite, or pass --on-bad-record skip"
GOOD = {"input_ids": [7, 8, 9]}


def write(path: Path, records: Sequence[dict[str, Any]]) -> Path:
    """Write records in the format of a suffix."""
    if path.suffix == ".jsonl":
        path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    elif path.suffix == ".json":
        path.write_text(json.dumps(records, indent=1))
    elif path.suffix == ".arrow":
        table = pa.Table.from_pylist(list(records))
        with pa.ipc.new_stream(str(path), table.schema) as stream:
            stream.write_table(table, max_chunksize=90)
    else:
        pq.write_table(pa.Table.from_pylist(list(records)), path)
    return path


def import_records(paths: Any, store: Path, **options: Any) -> dict[str, Any]:
    """Return the manifest of a store that is made from files, instead of an earlier one."""
    made = ImportOptions(**{"vocab_size": 100, **options})
    return import_store(paths, store, made, executor=HERE, overwrite=True)[0]


def read_sequences(store: Path) -> list[list[int]]:
    """Return the ids of each sequence."""
    return [ids.tolist() for ids in open_store(store)]


def read_targets(store: Path) -> list[list[int]]:
    """Return the targets of each sequence of a store of one part."""
    opened = open_store(store)
    entries = np.asarray(opened.part_column(0, "targets"))
    return [each.tolist() for each in np.split(entries, np.cumsum(opened.lengths)[:-1])]


def read_rejects(store: Path) -> list[dict[str, Any]]:
    """Return the records that were skipped."""
    return [json.loads(line) for line in (store / "rejects.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("suffix", FORMATS)
def test_records_become_sequences_without_their_padding(tmp_path, suffix):
    records = [
        {"input_ids": [7, 8, 9], "labels": [-100, 8, 9], "attention_mask": [1, 1, 1]},
        {"input_ids": [], "labels": [], "attention_mask": []},
        {"input_ids": [0, 0, 5], "labels": [-100, -100, 5], "attention_mask": [0, 0, 1]},
        {"input_ids": [5, 0, 0], "labels": [5, -100, -100], "attention_mask": [1, 1, 0]},
        {"input_ids": [1], "labels": [-100], "attention_mask": [0]},
    ]
    manifest = import_records(write(tmp_path / f"a.{suffix}", records), tmp_path / "store")
    assert read_sequences(tmp_path / "store") == [[7, 8, 9], [5], [5, 0]]
    assert read_targets(tmp_path / "store") == [[0, 1, 1], [1], [1, 0]]
    assert open_store(tmp_path / "store").locate(1).record == 3
    assert {name: count for name, count in manifest["ledger"].items() if count} == {
        "num_documents": 5,
        "num_empty_documents": 2,
        "num_sequences": 3,
        "num_encoded_tokens": 10,
        "num_padding_tokens": 4,
        "num_tokens": 6,
        "num_target_tokens": 4,
    }
    fields = ("ids_field", "labels_field", "attention_mask_field", "loss_mask_field")
    recorded = [manifest["options"][name] for name in fields]
    assert recorded == ["input_ids", "labels", "attention_mask", None]


LABELS = "pass --ignore-field labels"
BAD = {
    "lengths": (
        {"input_ids": [7, 8], "labels": [7]},
        "labels has 1 entries, input_ids has 2, expected as many",
        LABELS,
    ),
    "label": (
        {"input_ids": [7, 8], "labels": [-100, 9]},
        "entry 2 of labels is 9, expected 8, its id, or -100",
        LABELS,
    ),
    "shifted": (
        {"input_ids": [0, 7, 8, 9], "labels": [-100, 8, 9, -100], "attention_mask": [0, 1, 1, 1]},
        "labels are shifted by one (entry 2 of labels is 8, the id of the next token), expected "
        "labels[i] to be input_ids[i] or -100",
        f"write them unshifted, as [-100, *labels[:-1]]; or {LABELS}",
    ),
    "labelled padding": (
        {"input_ids": [7, 0], "labels": [7, 0], "attention_mask": [1, 0]},
        "entry 2 of labels is 0, expected -100 for padding",
        SKIP,
    ),
    "hole": (
        {"input_ids": [7, 0, 8], "attention_mask": [1, 0, 1]},
        "entry 3 of attention_mask is 1, expected padding at the ends only",
        "write the record without padding between its tokens",
    ),
    "packed": (
        {"input_ids": [7, 8, 9], "attention_mask": [1, 2, 2]},
        "entry 2 of attention_mask is 2, expected 0 or 1",
        "write one record per sequence, with a mask of 0 and 1",
    ),
    "loss": (
        {"input_ids": [7, 8], "loss_mask": [1, 3]},
        "entry 2 of loss_mask is 3, expected 0 or 1",
        SKIP,
    ),
    "masked padding": (
        {"input_ids": [7, 8], "loss_mask": [1, 1], "attention_mask": [1, 0]},
        "entry 2 of loss_mask is 1, expected 0 for padding",
        SKIP,
    ),
    "disagreement": (
        {"input_ids": [7, 8], "labels": [7, 8], "loss_mask": [0, 1]},
        "entry 1 of labels is 7 and of loss_mask is 0, expected a label where the mask is 1, and "
        "-100 where it is 0",
        LABELS,
    ),
}


def complete(record: dict[str, Any]) -> dict[str, Any]:
    """Return a good record that has the same fields."""
    return {name: [1] if name.endswith("mask") else [7] for name in record}


@pytest.mark.parametrize("case", [*BAD, "shifted rows"])
def test_a_record_whose_fields_disagree_is_an_error_or_skipped(tmp_path, case):
    bad, reason, hint = BAD[case.removesuffix(" rows")]
    path = write(
        tmp_path / ("a.parquet" if "rows" in case else "a.jsonl"),
        [complete(bad), bad, complete(bad)],
    )
    with pytest.raises(DataError) as caught:
        import_records(path, tmp_path / "store")
    assert (caught.value.message, caught.value.hint) == (f"{path}:2: {reason}", hint)
    import_records(path, tmp_path / "skipped", on_bad_record="skip")
    assert read_sequences(tmp_path / "skipped") == [[7], [7]]
    assert open_store(tmp_path / "skipped").locate(1).record == 3
    (reject,) = read_rejects(tmp_path / "skipped")
    assert (reject["record"], reject["reason"]) == (2, reason)


WRONG = {
    "[7, true]": "field 'input_ids': entry 2 is true, expected an integer",
    "[7.0]": "field 'input_ids': entry 1 is 7.0, expected an integer",
    '[7, "8"]': "field 'input_ids': entry 2 is '8', expected an integer",
    "[18446744073709551616]": "field 'input_ids': entry 1 is 18446744073709551616, expected an "
    "integer of 64 bits",
    "[[7]]": "field 'input_ids': entry 1 is a list, expected an integer",
    "null": "field 'input_ids' is null, expected a list of integers",
    "7": "field 'input_ids' is 7, expected a list of integers",
    "[7], ": "not JSON at column 20 (",
    '[7], "input_ids": [8]': "duplicate key 'input_ids' in an object",
    "[7, 100]": "token 2 has id 100, expected ids from 0 to 99",
}


@pytest.mark.parametrize("value", WRONG)
def test_ids_of_json_are_lists_of_integers(tmp_path, value):
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"input_ids": [5]}}\n\n{{"input_ids": {value}}}\n{{"input_ids": [6]}}')
    with pytest.raises(DataError) as caught:
        import_records(path, tmp_path / "store")
    assert caught.value.message.startswith(f"{path}:3: {WRONG[value]}")
    import_records(path, tmp_path / "skipped", on_bad_record="skip")
    assert read_sequences(tmp_path / "skipped") == [[5], [6]]
    (reject,) = read_rejects(tmp_path / "skipped")
    assert reject["record"] == 3
    assert reject["reason"].startswith(WRONG[value])


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.int8()),
        pa.large_list(pa.uint16()),
        pa.list_(pa.int64(), 2),
        pa.list_(pa.uint64()),
    ],
    ids=str,
)
def test_ids_of_a_table_are_lists_of_any_integers_without_nulls(tmp_path, kind):
    rows = pa.array([[7, 8], None, [9, None], [5, 6]], kind)
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"input_ids": rows}), path, row_group_size=3)
    import_records(path, tmp_path / "store", on_bad_record="skip")
    assert read_sequences(tmp_path / "store") == [[7, 8], [5, 6]]
    rejects = read_rejects(tmp_path / "store")
    assert [(reject["record"], reject["reason"]) for reject in rejects] == [
        (2, "field 'input_ids' is null, expected a list of integers"),
        (3, "field 'input_ids': entry 2 is null, expected an integer"),
    ]


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_loss_mask_of_booleans_says_the_targets(tmp_path, suffix):
    records = [{"input_ids": [7, 8], "loss_mask": [False, True]}]
    manifest = import_records(write(tmp_path / f"a.{suffix}", records), tmp_path / "store")
    assert read_targets(tmp_path / "store") == [[0, 1]]
    assert manifest["options"]["loss_mask_field"] == "loss_mask"


def test_a_field_that_only_later_json_records_have_is_a_bad_record(tmp_path):
    path = write(tmp_path / "a.jsonl", [*[GOOD] * 1000, {**GOOD, "labels": [7, 8, 9]}])
    with pytest.raises(DataError) as caught:
        import_records(path, tmp_path / "store")
    reason = "field 'labels', which the first records do not have"
    assert caught.value.message == f"{path}:1001: {reason}"
    assert caught.value.hint == "pass --ignore-field labels to leave it unread in all records"
    manifest = import_records(path, tmp_path / "store", ignore_fields=["labels"])
    assert manifest["ledger"]["num_sequences"] == 1001


def test_a_json_record_that_lacks_a_field_of_the_first_ones_is_a_bad_record(tmp_path):
    path = write(tmp_path / "a.jsonl", [{**GOOD, "labels": [7, 8, 9]}, {**GOOD, "labels": None}])
    with pytest.raises(DataError) as caught:
        import_records(path, tmp_path / "store")
    assert caught.value.message == (
        f"{path}:2: field 'labels' is missing or null, expected a list of integers, as other "
        "records have"
    )
    assert caught.value.hint == "pass --ignore-field labels"


def test_sources_that_differ_in_their_fields_are_refused(tmp_path):
    first = write(tmp_path / "a.parquet", [{**GOOD, "labels": [7, 8, 9]}])
    for other in (write(tmp_path / "b.parquet", [GOOD]), write(tmp_path / "b.jsonl", [GOOD])):
        with pytest.raises(OptionError) as caught:
            import_records([first, other], tmp_path / "store")
        assert caught.value.message == (
            f"{other}: no 'labels', {first} has it; expected all sources to be alike"
        )
    import_records([first, other], tmp_path / "store", ignore_fields=["labels"])
    assert read_sequences(tmp_path / "store") == [[7, 8, 9]] * 2


@pytest.mark.parametrize("suffix", FORMATS)
def test_labels_that_are_a_class_are_kept_or_ignored_but_not_read(tmp_path, suffix):
    path = write(tmp_path / f"a.{suffix}", [{**GOOD, "labels": 1}])
    found = "column 'labels' is int64, expected lists of integers"
    if suffix == "jsonl":
        found = "field 'labels' is 1, expected a list of integers"
    place = path if suffix == "parquet" else f"{path}:1"
    check_refused(
        run("import", path, "-o", tmp_path / "store", "--vocab-size", 100),
        3,
        f"{place}: {found}",
        "hint: pass --keep labels to keep it as a column, or --ignore-field labels",
    )
    manifest = import_records(path, tmp_path / "store", keep=["labels:class"])
    assert [column["name"] for column in manifest["columns"]] == ["labels"]
    assert manifest["options"]["labels_field"] is None


@pytest.mark.parametrize("suffix", FORMATS)
def test_records_of_several_sequences_are_refused(tmp_path, suffix):
    records = [{**GOOD, "seq_lengths": None}] * 1000 + [{**GOOD, "seq_lengths": [1, 2]}]
    path = write(tmp_path / f"a.{suffix}", records)
    with pytest.raises(DataError, match="several sequences, expected one") as caught:
        import_records(path, tmp_path / "store")
    place = f"{path}:1001: field" if suffix == "jsonl" else f"{path}: column"
    assert caught.value.message.startswith(f"{place} 'seq_lengths'")
    manifest = import_records(path, tmp_path / "store", ignore_fields=["seq_lengths"])
    assert manifest["ledger"]["num_sequences"] == 1001


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_missing_field_is_an_error_that_names_the_likely_one(tmp_path, suffix):
    path = write(tmp_path / f"a.{suffix}", [{"text": "ab", "tokens": [7], "parts": ["ab"]}])
    with pytest.raises(DataError) as caught:
        import_records(path, tmp_path / "store")
    assert caught.value.hint == "pass --ids-field tokens"
    texts = write(tmp_path / f"text.{suffix}", [{"text": "ab", "labels": [7]}])
    with pytest.raises(DataError, match=r"no .* 'input_ids' .*\n\nhint: run seqpack tokenize to"):
        import_records(texts, tmp_path / "store")
    wanted = {"ids_field": "tokens", "labels_field": "targets"}
    with pytest.raises((DataError, OptionError), match="targets"):
        import_records(path, tmp_path / "store", **wanted)


def test_formats_give_the_same_store_and_keep_fields(tmp_path):
    draws = np.random.default_rng(0)
    records = [
        {
            "input_ids": draws.integers(0, 100, count).tolist(),
            "name": f"r{count}",
            "meta": {"score": count / 2},
            "kind": ["a", "b"][count % 2],
        }
        for count in draws.integers(0, 9, 200).tolist()
    ]
    made = {}
    for suffix in (*FORMATS, "json", "arrow"):
        path = write(tmp_path / f"a.{suffix}", records)
        keep = ["name", "meta.score", "kind:class"]
        import_records(path, tmp_path / suffix, keep=keep)
        made[suffix] = {
            file.suffix: file.read_bytes() for file in (tmp_path / suffix).glob("part-*")
        }
    assert made["jsonl"] == made["parquet"] == made["json"] == made["arrow"]


def test_lists_are_not_kept(tmp_path):
    path = write(tmp_path / "a.jsonl", [{**GOOD, "words": ["a"]}])
    for keep in ("words", "words:tags"):
        with pytest.raises(OptionError, match=r"^--keep words: .*expected one value per record"):
            import_records(path, tmp_path / "store", keep=[keep])


def test_options_about_fields_need_records(tmp_path):
    write(tmp_path / "a.jsonl", [GOOD])
    import_records(tmp_path / "a.jsonl", tmp_path / "store")
    part = tmp_path / "store/part-00000.bin"
    with pytest.raises(OptionError, match=r"^--labels-field tgt: the input is megatron, expected"):
        import_records(part, tmp_path / "again", labels_field="tgt")
    with pytest.raises(OptionError, match=r"^--keep name: .* is megatron, expected records"):
        import_records([part, tmp_path / "a.jsonl"], tmp_path / "again", keep=["name"])
    import_records([part, tmp_path / "a.jsonl"], tmp_path / "again")
    assert read_sequences(tmp_path / "again") == [[7, 8, 9]] * 2


def test_an_array_with_a_bad_element_is_read_as_tokenize_reads_it(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('[{"input_ids": [7]},\n 3,\n {"input_ids": [8]}]')
    with pytest.raises(DataError, match=r"a.json:2: record 2: an integer, expected an object"):
        import_records(path, tmp_path / "store")
    import_records(path, tmp_path / "store", on_bad_record="skip")
    assert read_sequences(tmp_path / "store") == [[7], [8]]
    path.write_text('[{"input_ids": [7]},\n {"input_ids": 8,,},\n {"input_ids": [8]}]')
    for on_bad_record in ("error", "skip"):
        with pytest.raises(DataError, match=r"a.json:2: record 2: not JSON at column"):
            import_records(path, tmp_path / "store", on_bad_record=on_bad_record)


PADDED = {
    "input_ids": [1, 2, 8, 8],
    "attention_mask": [1, 1, 0, 0],
    "labels": [-100, 2] + [-100] * 2,
}
MARK = "\ufeff"
NAMED = {"labels_field": "labels", "attention_mask_field": "attention_mask"}
