"""Read the rows of Parquet files as documents, whole or cut between row groups."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st
from seqpack_cli.corpus.UNKNOWN_document_block import DocumentBlock
from seqpack_cli.corpus.UNKNOWN_documents import iter_documents
from strategies import texts

from seqpack_cli.corpus import parquet_rows
from seqpack_cli.corpus.fields import WORDS_HINT
from seqpack_cli.corpus.options import DocumentOptions
from seqpack_cli.corpus.parts import plan_parts
from seqpack_cli.corpus.records import Reject
from seqpack_cli.corpus.sources import Source, SourceRange
from seqpack_cli.errors import DataError, MachineError
from seqpack_cli.limits import LIMITS
from seqpack_cli.tokens.columns.kind import Field
from seqpack_cli.tokens.columns.kinds import KINDS

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

SKIP_HINT = "fix the record and add --overwrite, or pass --on-bad-record skip"
ENCODING_HINT = "convert the file with iconv and add --overwrite, or pass --encoding-errors replace"
WHOLE = 1 << 40


def write(path: Path, column: Any, *, name: str = "text", **options: Any) -> Path:
    """Write a file of one column of text and one of numbers."""
    pq.write_table(pa.table({name: column, "id": range(len(column))}), path, **options)
    return path


def write_groups(path: Path, groups: list[list[str | None]]) -> Path:
    with pq.ParquetWriter(path, pa.schema([("text", pa.string())])) as writer:
        for group in groups:
            writer.write_table(pa.table({"text": pa.array(group, pa.string())}))
    return path


def read_blocks(
    path: Path, *, part_bytes: int = WHOLE, on_read: Any = lambda _: None, **options: Any
) -> list[list[DocumentBlock]]:
    """Return the blocks of each part."""
    source = Source(str(path), "parquet", "row", path.stat().st_size)
    return [
        [
            block
            for source_range in part
            for block in iter_documents(source_range, DocumentOptions(**options), on_read)
        ]
        for part in plan_parts([source], part_bytes=part_bytes)
    ]


def read_texts(path: Path, **options: Any) -> list[str]:
    found = [block for part in read_blocks(path, **options) for block in part]
    assert not any(block.rejects for block in found)
    return [text for block in found for text in block.texts]


def read_error(path: Path, **options: Any) -> DataError:
    with pytest.raises(DataError) as caught:
        read_blocks(path, **options)
    assert caught.value.exit_code == 3
    return caught.value


def make_bad_strings() -> Any:
    """Strings, the second not UTF-8, as some writers leave them."""
    binary = pa.array([b"ok", b"b\xe9d", "é".encode()], pa.binary())
    return pa.StringArray.from_buffers(3, *binary.buffers()[1:])


# Rows that are read


@settings(max_examples=40)
@given(
    rows=st.lists(texts(), max_size=12),
    group_rows=st.integers(1, 5),
    part_bytes=st.integers(1, 2000),
    compression=st.sampled_from(["none", "snappy", "zstd"]),
)
def test_rows_come_back_equal_however_the_file_is_cut(
    tmp_path: Path, rows: list[str], group_rows: int, part_bytes: int, compression: str
) -> None:
    path = write(
        tmp_path / "a.parquet",
        pa.array(rows, pa.string()),
        row_group_size=group_rows,
        compression=compression,
    )
    digest = blake3()
    assert read_texts(path) == rows
    assert read_texts(path, part_bytes=part_bytes, on_read=digest.update) == rows
    assert digest.hexdigest() == blake3(path.read_bytes()).hexdigest()


def test_file_is_cut_between_all_row_groups(tmp_path: Path) -> None:
    groups: list[list[str | None]] = [[f"{group}-{row}" for row in range(3)] for group in range(5)]
    path = write_groups(tmp_path / "a.parquet", groups)
    parts = read_blocks(path, part_bytes=1)
    assert [[text for block in part for text in block.texts] for part in parts] == groups
    places = [block.find_place(index) for part in parts for block in part for index in range(3)]
    assert places == [f"{path}:{row}" for row in range(1, 16)]


@pytest.mark.parametrize("part_bytes", [1, 500, 1000, WHOLE])
def test_parts_hold_as_many_row_groups_as_fit(tmp_path: Path, part_bytes: int) -> None:
    path = write_groups(tmp_path / "a.parquet", [[f"row {number}"] for number in range(30)])
    source = Source(str(path), "parquet", "row", path.stat().st_size)
    groups = parquet_rows.find_row_groups(source)
    ranges = [found for part in plan_parts([source], part_bytes=part_bytes) for found in part]
    ends = [(found.start, found.end) for found in ranges]
    assert [0, *(end for _, end in ends)] == [*(start for start, _ in ends), source.num_bytes]
    assert {start for start, _ in ends} <= set(groups)
    largest = max(end - start for start, end in pairwise(groups))
    assert all(end - start <= max(part_bytes, largest) for start, end in ends)
    assert len(ends) < 30 or part_bytes == 1


@pytest.mark.parametrize("part_bytes", [1, WHOLE])
@pytest.mark.parametrize("groups", [[], [[]], [["a"], [], ["b", "c"], []], [[], ["a"]]])
def test_row_groups_may_be_empty(
    tmp_path: Path, groups: list[list[str | None]], part_bytes: int
) -> None:
    path = write_groups(tmp_path / "a.parquet", groups)
    digest = blake3()
    expected = [text for group in groups for text in group]
    assert read_texts(path, part_bytes=part_bytes, on_read=digest.update) == expected
    assert digest.hexdigest() == blake3(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.dictionary(pa.int32(), pa.string()),
        pa.dictionary(pa.int8(), pa.large_string()),
    ],
    ids=str,
)
def test_every_kind_of_string_is_read(tmp_path: Path, kind: Any) -> None:
    rows = ["a", "", "a", "é漢𝄞", "a\0\r\nb", "\ufeff"]
    path = write(tmp_path / "a.parquet", pa.array(rows, pa.string()).cast(kind), row_group_size=4)
    assert read_texts(path) == rows
    assert read_texts(path, part_bytes=1) == rows


def test_field_of_a_struct_is_read_by_its_path(tmp_path: Path) -> None:
    column = [{"b": "x", "c": {"d": "deep"}}, {"b": "y", "c": {"d": ""}}]
    path = write(tmp_path / "a.parquet", column, name="a")
    assert read_texts(path, text_field="a.b") == ["x", "y"]
    assert read_texts(path, text_field="a.c.d") == ["deep", ""]


def test_column_with_a_dot_in_its_name_goes_before_a_path(tmp_path: Path) -> None:
    table = pa.table({"a": [{"b": "path"}], "a.b": ["name"], "text.x": ["z"], "text": ["t"]})
    pq.write_table(table, tmp_path / "a.parquet")
    assert read_texts(tmp_path / "a.parquet", text_field="a.b") == ["name"]
    assert read_texts(tmp_path / "a.parquet") == ["t"]
    assert read_texts(tmp_path / "a.parquet", text_field="text.x") == ["z"]


def test_rows_are_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory depends on the size of a piece, not of a row group."""
    monkeypatch.setattr(LIMITS, "batch_bytes", 100)
    rows = [f"{number:03} " * 5 for number in range(50)]
    path = write(tmp_path / "a.parquet", rows, use_dictionary=False)
    (found,) = read_blocks(path)
    assert [text for block in found for text in block.texts] == rows
    assert max(len(block.texts) for block in found) <= 10
    places = [block.find_place(index) for block in found for index in range(len(block.texts))]
    assert places == [f"{path}:{row}" for row in range(1, 51)]


def test_rows_larger_than_a_piece_are_whole(tmp_path: Path) -> None:
    rows = ["a" * 2_500_000, "b", "é" * 1_500_000, ""]
    assert read_texts(write(tmp_path / "a.parquet", rows)) == rows


def test_many_short_rows_come_in_pieces(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", ["a"] * 40_000)
    (found,) = read_blocks(path)
    assert sum(len(block.texts) for block in found) == 40_000
    assert max(len(block.texts) for block in found) <= LIMITS.rows_per_batch


# Columns


def test_missing_column_is_named_with_those_that_are_there(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", ["a"], name="body")
    error = read_error(path)
    assert error.message == f"{path}: no column 'text' (found: 'body', 'id')"
    assert error.hint == "pass --text-field body"
    for field in ("body.b", "body.", "a.b", ""):
        message = f"{path}: no column {field!r} (found: 'body', 'id')"
        assert read_error(path, text_field=field).message == message


def test_file_without_a_column_of_strings_has_no_column_to_hint_at(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1]}), tmp_path / "a.parquet")
    error = read_error(tmp_path / "a.parquet", on_bad_record="skip")
    assert error.message == f"{tmp_path / 'a.parquet'}: no column 'text' (found: 'id')"
    assert error.hint is None  # putting rows aside does not help: there is no column


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ([1, 2], "int64"),
        ([b"a"], "binary"),
        ([["a"]], "list<element: string>"),
        ([{"a": "b"}], "struct<a: string>"),
        ([None], "null"),
    ],
)
def test_column_of_something_else_is_refused(tmp_path: Path, column: Any, kind: str) -> None:
    path = write(tmp_path / "a.parquet", column)
    error = read_error(path, on_bad_record="skip")
    assert error.message == f"{path}: column 'text' is {kind}, expected strings"


def test_duplicate_column_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    columns = [pa.array(["a"]), pa.array(["b"])]
    pq.write_table(pa.Table.from_arrays(columns, names=["text", "text"]), path)
    error = read_error(path, on_bad_record="skip")
    assert error.message == f"{path}: 2 columns named 'text'"


# Bad rows


@pytest.mark.parametrize("part_bytes", [1, WHOLE])
@pytest.mark.parametrize("row", [0, 2, 3, 6])
def test_null_is_named_by_its_row(tmp_path: Path, row: int, part_bytes: int) -> None:
    rows: list[str | None] = [f"row {number}" for number in range(7)]
    rows[row] = None
    path = write(tmp_path / "a.parquet", rows, row_group_size=2)
    error = read_error(path, part_bytes=part_bytes)
    assert error.message == f"{path}:{row + 1}: field 'text' is null, expected a string"
    assert error.hint == SKIP_HINT


def test_nulls_are_rejected_if_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LIMITS, "batch_bytes", 1)  # a row a piece
    rows = ["a", None, "c", None, "e", None, "g"]
    path = write(tmp_path / "a.parquet", rows, row_group_size=4)
    reason = "field 'text' is null, expected a string"
    for part_bytes, expected in ((WHOLE, [[1, 3, 5]]), (1, [[1, 3], [1]])):
        parts = read_blocks(path, part_bytes=part_bytes, on_bad_record="skip")
        assert [text for part in parts for block in part for text in block.texts] == [
            *("a", "", "c", "", "e", "", "g")
        ]
        rejects = [[reject for block in part for reject in block.rejects] for part in parts]
        assert rejects == [[Reject(n, None, reason) for n in numbers] for numbers in expected]


def test_field_of_a_struct_that_is_null_is_a_bad_row(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", [{"b": "x"}, None, {"b": None}], name="a")
    error = read_error(path, text_field="a.b")
    assert error.message == f"{path}:2: field 'a.b' is null, expected a string"
    ((block,),) = read_blocks(path, text_field="a.b", on_bad_record="skip")
    assert block.texts == ["x", "", ""]
    assert [reject.record for reject in block.rejects] == [1, 2]


@pytest.mark.parametrize("kind", ["string", "large_string", "dictionary", "struct"])
def test_bytes_that_are_not_utf8_follow_the_policy(tmp_path: Path, kind: str) -> None:
    column = make_bad_strings()
    if kind == "large_string":
        column = column.cast(pa.large_string(), safe=False)
    elif kind == "dictionary":
        column = column.dictionary_encode()
    elif kind == "struct":
        column = pa.StructArray.from_arrays([column], ["b"])
    path = write(tmp_path / "a.parquet", column)
    field = "text.b" if kind == "struct" else "text"
    error = read_error(path, text_field=field, on_bad_record="skip")
    assert error.message == f"{path}:2: byte 0xe9, expected UTF-8"
    assert error.hint == ENCODING_HINT
    replaced = read_texts(path, text_field=field, encoding_errors="replace")
    assert replaced == ["ok", "b\ufffdd", "é"]
    ((block,),) = read_blocks(path, text_field=field, encoding_errors="skip")
    assert block.texts == ["ok", "", "é"]
    assert block.rejects == [Reject(1, None, "byte 0xe9, expected UTF-8")]


def test_document_above_the_limit_is_refused(tmp_path: Path) -> None:
    rows = ["a", None, "b", "ééé", "c"]
    path = write(tmp_path / "a.parquet", rows, row_group_size=2)
    options = {"on_bad_record": "skip", "part_bytes": 1}
    assert len(read_blocks(path, max_document_bytes=6, **options)) == 3
    error = read_error(path, max_document_bytes=5, **options)
    assert error.message == f"{path}:4: document larger than 5 bytes"
    assert error.hint == "pass a larger --max-document-bytes, or split the document"


# Bad files


def test_every_cut_of_a_file_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", ["a", "b"])
    data = path.read_bytes()
    for end in range(0, len(data), 7):
        path.write_bytes(data[:end])
        assert read_error(path).message.startswith(f"{path}: not Parquet, or damaged (")
    path.write_bytes(data[:-1])
    read_error(path)


@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1PAR1", b'{"text": "a"}\n' * 9])
def test_file_that_is_not_parquet_is_named(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(data)
    assert read_error(path).message.startswith(f"{path}: not Parquet, or damaged (")


def test_page_that_is_damaged_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", ["some text " * 10] * 50, use_dictionary=False)
    data = bytearray(path.read_bytes())
    data[4:24] = b"\xff" * 20
    path.write_bytes(data)
    error = read_error(path)
    assert error.message.startswith(f"{path}: damaged (")
    assert "\n" not in error.message


def test_damaged_data_never_loses_rows_silently(tmp_path: Path) -> None:
    """The footer says how many rows there are, whatever the head of a page says."""
    path = write(tmp_path / "a.parquet", [f"t{n}" for n in range(12)], compression="none")
    data = path.read_bytes()
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    for bit in range(8 * 4, 8 * footer, 3):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            ((*found,),) = read_blocks(path, encoding_errors="replace", on_bad_record="skip")
        except DataError:
            continue
        assert sum(len(block.texts) for block in found) == 12, f"bit {bit}"


def test_checksums_of_pages_are_checked(tmp_path: Path) -> None:
    rows = [f"some text {number}" for number in range(20)]
    path = write(
        tmp_path / "a.parquet",
        rows,
        compression="none",
        use_dictionary=False,
        write_page_checksum=True,
    )
    assert read_texts(path) == rows
    data = path.read_bytes()
    for row in (3, 7, 15):  # the least and the last stand in statistics too
        at = data.index(rows[row].encode())
        path.write_bytes(data[:at] + b"S" + data[at + 1 :])
        assert read_error(path).message.startswith(f"{path}: damaged (")


def test_rows_that_are_missing_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pyarrow silently skips rows after some damaged pages."""
    path = write(tmp_path / "a.parquet", ["a"] * 3000, row_group_size=1500)
    iter_batches = pq.ParquetFile.iter_batches

    def iter_fewer(*arguments: Any, **options: Any) -> Any:
        for batch in iter_batches(*arguments, **options):
            yield batch.slice(1)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", iter_fewer)
    error = read_error(path, on_bad_record="skip")
    assert error.message == f"{path}: damaged (1,499 rows, expected 1,500)"


def test_damaged_name_in_the_footer_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", ["a", "b"])
    data = path.read_bytes()
    places = [at for at in range(len(data)) if data[at : at + 4] == b"text"]
    assert len(places) > 1
    for at in places:
        path.write_bytes(data[:at] + b"\xfe" + data[at + 1 :])
        assert read_error(path).message.startswith(f"{path}: ")


def test_file_that_became_shorter_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", ["a"])
    size = path.stat().st_size
    (part,) = plan_parts([Source(str(path), "parquet", "row", size + 9)], part_bytes=WHOLE)
    with pytest.raises(DataError) as caught:
        list(iter_documents(part[0], DocumentOptions(), lambda _: None))
    assert caught.value.message == f"{path}: changed while it was read, ends 9 bytes early"


def test_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.parquet", ["a"])
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MachineError) as caught:
        read_blocks(path)
    assert caught.value.message == f"{path}: pyarrow is not installed, .parquet files need it"
    assert caught.value.hint == "pip install pyarrow"
    assert caught.value.exit_code == 5


# Kept fields


@dataclass(frozen=True)
class Anything:
    """Reads any value; a list of words may be the text."""

    name: str
    reads_words: bool = True

    def read_all(self, values: list[Any], texts: list[Any]) -> list[Any]:
        del texts
        return values

    def read(self, value: Any, text: Any) -> Any:
        del text
        return value

    def parse(self, spelled: str) -> str:
        return spelled


def keep_rows(
    path: Path, columns: dict[str, Any], readers: list[Any], **options: Any
) -> tuple[list[str], list[list[Any]], list[Reject]]:
    """Write columns; return the texts, the values of each field, and the rejects."""
    pq.write_table(pa.table(columns), path)
    source = Source(str(path), "parquet", "row", path.stat().st_size)
    whole = SourceRange(0, source, 0, source.num_bytes)
    blocks = list(iter_documents(whole, DocumentOptions(**options), lambda _: None, readers))
    fields = zip(*(block.fields for block in blocks), strict=True)
    return (
        [text for block in blocks for text in block.texts],
        [[value for values in column for value in values] for column in fields],
        [reject for block in blocks for reject in block.rejects],
    )


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([1, -2], pa.int8()), [1, -2]),
        (pa.array([2**64 - 1, 0], pa.uint64()), [2**64 - 1, 0]),
        (pa.array([0.5, -0.0], pa.float32()), [0.5, -0.0]),
        (pa.array([True, False]), [True, False]),
        (pa.array([1, None]), [1, None]),
        (pa.array(["é", ""], pa.large_string()), ["é", ""]),
        (pa.array(["a", "a"]).dictionary_encode(), ["a", "a"]),
        (pa.array([7, 7]).dictionary_encode(), [7, 7]),
        (pa.array([["a", "b"], []]), [["a", "b"], []]),
        (
            pa.array([[{"start": 0, "label": "x"}], []]),
            [[{"start": 0, "label": "x"}], []],
        ),
    ],
    ids=lambda value: str(getattr(value, "type", "")),
)
def test_kept_columns_become_python_values(
    tmp_path: Path, column: Any, expected: list[Any]
) -> None:
    columns = {"text": ["a", "b"], "label": column, "meta": [{"n": 1}, {"n": 2}]}
    readers = [Anything("label"), Anything("meta.n")]
    found = keep_rows(tmp_path / "a.parquet", columns, readers)
    assert repr(found) == repr((["a", "b"], [expected, [1, 2]], []))


def test_nan_arrives_and_is_refused(tmp_path: Path) -> None:
    columns = {"text": ["a", "b"], "x": [1.5, float("nan")]}
    readers = [KINDS["float"].make_reader(Field("x"))]
    _, values, rejects = keep_rows(tmp_path / "a.parquet", columns, readers, on_bad_record="skip")
    assert values == [[1.5, None]]
    assert rejects == [Reject(1, None, "field 'x' is nan, expected a finite number")]


def test_null_is_an_error_or_rejects_its_row(tmp_path: Path) -> None:
    path, columns = tmp_path / "a.parquet", {"text": ["a", "b", None], "n": [1, None, 3]}
    readers = [KINDS["int"].make_reader(Field("n"))]
    reason = "field 'n' is null, expected an integer"
    found = keep_rows(path, columns, readers, on_bad_record="skip")
    other = Reject(2, None, "field 'text' is null, expected a string")
    assert found == (["a", "", ""], [[1, None, None]], [Reject(1, None, reason), other])
    with pytest.raises(DataError) as caught:
        keep_rows(path, columns, readers)
    assert caught.value.message == f"{path}:2: {reason}"


def test_kept_string_that_is_not_utf8_is_a_bad_byte(tmp_path: Path) -> None:
    path, columns = tmp_path / "a.parquet", {"text": ["a", "b", "c"], "x": make_bad_strings()}
    readers = [KINDS["text"].make_reader(Field("x"))]
    found = keep_rows(path, columns, readers, encoding_errors="skip")
    reason = "byte 0xe9, expected UTF-8"
    assert found == (["a", "", "c"], [["ok", None, "é"]], [Reject(1, None, reason)])
    found = keep_rows(path, columns, readers, encoding_errors="replace")
    assert found[1:] == ([["ok", "b\ufffdd", "é"]], [])


@pytest.mark.parametrize(
    "column",
    [
        pa.array([0], pa.timestamp("us")),
        pa.array([0], pa.date32()),
        pa.array([b"a"], pa.binary()),
        pa.array([None], pa.decimal128(20, 2)),
        pa.array([{"n": 1}]),
        pa.array([[b"a"]], pa.list_(pa.field("element", pa.binary()))),
    ],
    ids=lambda column: str(column.type),
)
def test_kept_column_of_another_type_is_refused(tmp_path: Path, column: Any) -> None:
    path = tmp_path / "a.parquet"
    with pytest.raises(DataError) as caught:
        keep_rows(path, {"text": ["a"], "x": column}, [Anything("x")])
    assert caught.value.message == (
        f"{path}: column 'x' is {column.type}, expected numbers, booleans, strings or lists of them"
    )


def test_kept_column_must_exist(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    with pytest.raises(DataError) as caught:
        keep_rows(path, {"text": ["a"], "m": [1]}, [Anything("n")])
    assert str(caught.value) == f"{path}: no column 'n' (found: 'text', 'm')"


def test_text_may_be_a_list_of_words(tmp_path: Path) -> None:
    path, n, readers = tmp_path / "a.parquet", [1, 1, 1, 1], [Anything("n")]
    columns = {"text": [["a", "b"], [], None, ["c", None]], "n": n}
    texts, values, rejects = keep_rows(path, columns, readers, on_bad_record="skip")
    assert (texts, values) == (["a b", "", "", ""], [[1, 1, None, None]])
    assert [reject.reason for reject in rejects] == [
        "field 'text' is null, expected a string or a list of words",
        "field 'text': word 2 is null, expected a string",
    ]
    with pytest.raises(DataError, match="2: document larger than 3 bytes"):
        keep_rows(
            path,
            {**columns, "text": [["a"], ["bb", "cc"], [], []]},
            [Anything("n")],
            max_document_bytes=3,
        )
    with pytest.raises(DataError, match=r"column 'text' is list<.*>, expected strings") as caught:
        keep_rows(path, columns, [Anything("n", reads_words=False)])
    assert caught.value.hint == WORDS_HINT


def test_wide_kept_columns_are_read_in_smaller_pieces(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    rows = [f"{number:05d}" * 20_000 for number in range(60)]
    pq.write_table(pa.table({"text": ["a"] * 60, "x": rows}), path, use_dictionary=False)
    source = Source(str(path), "parquet", "row", path.stat().st_size)
    whole = SourceRange(0, source, 0, source.num_bytes)
    blocks = iter_documents(whole, DocumentOptions(), lambda _: None, [Anything("x")])
    assert max(len(block.texts) for block in blocks) <= 11
