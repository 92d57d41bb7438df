"""Read the rows of CSV files as documents."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from seqpack_cli.corpus.UNKNOWN_documents import iter_documents
from strategies import PIECES

from seqpack_cli.corpus.options import DocumentOptions
from seqpack_cli.corpus.records import Reject
from seqpack_cli.corpus.sources import Source, SourceRange
from seqpack_cli.errors import DataError
from seqpack_cli.limits import LIMITS
from seqpack_cli.tokens.columns.kind import Field
from seqpack_cli.tokens.columns.kinds import KINDS

SKIP_HINT = "fix the record and add --overwrite, or pass --on-bad-record skip"
ENCODING_HINT = "convert the file with iconv and add --overwrite, or pass --encoding-errors replace"
SIZE_HINT = "pass a larger --max-document-bytes, or split the document"

FIELDS = st.one_of(
    st.lists(st.sampled_from([*PIECES, '"', '""', ",", ";", "'"]), max_size=8).map("".join),
    st.text(max_size=8),
)


def read_rows(
    path: Path, data: bytes | str, *, delimiter: str = ",", compression: str = "", **options: object
) -> tuple[list[str], list[Reject], list[int]]:
    """Return the texts, the rejects, and the line at which the row of each text begins."""
    data = data.encode() if isinstance(data, str) else data
    path.write_bytes(data)
    source = Source(str(path), "csv", "row", len(data), compression, delimiter)
    found: tuple[list[str], list[Reject], list[int]] = ([], [], [])
    for block in iter_documents(
        SourceRange(0, source, 0, len(data)),
        DocumentOptions(**options),  # type: ignore[arg-type]
        lambda _: None,
    ):
        places = [block.find_place(index) for index in range(len(block.texts))]
        found[0].extend(block.texts)
        found[1].extend(block.rejects)
        found[2].extend(int(place.removeprefix(f"{path}:")) for place in places)
    return found


def read_texts(path: Path, data: bytes | str, **options: object) -> list[str]:
    texts, rejects, _ = read_rows(path, data, **options)  # type: ignore[arg-type]
    assert not rejects
    return texts


def read_error(path: Path, data: bytes | str, **options: object) -> DataError:
    with pytest.raises(DataError) as caught:
        read_rows(path, data, **options)  # type: ignore[arg-type]
    assert caught.value.exit_code == 3
    return caught.value


def write_rows(rows: list[list[str]], **options: object) -> str:
    file = io.StringIO()
    csv.writer(file, **options).writerows(rows)  # type: ignore[arg-type]
    return file.getvalue()


# Rows that are read


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("text\na\nb\n", ["a", "b"]),
        ("text\na\nb", ["a", "b"]),
        ("id,text\r\n1,a\r\n2,b\r\n", ["a", "b"]),
        ('text,id\n"a\nb",1\n', ["a\nb"]),
        ('text,id\r\n"a\r\nb\n\nc",1\r\n', ["a\r\nb\n\nc"]),
        ('text\n"a, b"\n', ["a, b"]),
        ('text\n"say ""yes"""\n', ['say "yes"']),
        ('text\n""""\n""\n', ['"', ""]),
        ('text\nsay "yes"\n', ['say "yes"']),
        ('"text","id"\n"a","1"\n', ["a"]),
        ("text,id\n,1\n", [""]),
        ("text\n a \n", [" a "]),
        ("text\na\0b\n", ["a\0b"]),
        ("text\na\u2028b\x0bc\x85d\n", ["a\u2028b\x0bc\x85d"]),
        ('text\n"a\rb"\n', ["a\rb"]),
        ("text\n", []),
        ("text", []),
        ("", []),
    ],
)
def test_column_is_read(tmp_path: Path, data: str, expected: list[str]) -> None:
    assert read_texts(tmp_path / "a.csv", data) == expected


def test_byte_order_mark_is_not_part_of_the_first_name(tmp_path: Path) -> None:
    for header in ("text,id", '"text",id'):
        assert read_texts(tmp_path / "a.csv", f"\ufeff{header}\n\ufeffa,1\n") == ["\ufeffa"]


def test_blank_line_is_an_empty_document(tmp_path: Path) -> None:
    data = "text,id\na,1\n\nb,2\n\r\n"
    assert read_rows(tmp_path / "a.csv", data) == (["a", "", "b", ""], [], [2, 3, 4, 5])


def test_tabs_part_the_fields_of_a_tsv_file(tmp_path: Path) -> None:
    data = 'id\ttext\n1\ta,b\n2\t"c\td"\n'
    assert read_texts(tmp_path / "a.tsv", data, delimiter="\t") == ["a,b", "c\td"]


def test_column_is_found_by_its_whole_name(tmp_path: Path) -> None:
    data = "a.b,text,Text\n1,2,3\n"
    assert read_texts(tmp_path / "a.csv", data, text_field="a.b") == ["1"]
    assert read_texts(tmp_path / "a.csv", data, text_field="Text") == ["3"]


@pytest.mark.parametrize("lineterminator", ["\n", "\r\n"])
@given(rows=st.lists(st.tuples(FIELDS, FIELDS), max_size=5))
@example(rows=[("\r", "\r\n"), ("a\r", '"'), ("", "")])
def test_quoted_rows_come_back_equal(
    tmp_path: Path, lineterminator: str, rows: list[tuple[str, str]]
) -> None:
    """Every value does where all are quoted."""
    options = {"lineterminator": lineterminator, "quoting": csv.QUOTE_ALL}
    data = write_rows([["text", "id"], *map(list, rows)], **options)
    path = tmp_path / "a.csv"
    assert read_texts(path, data) == [text for text, _ in rows]
    assert read_texts(path, data, text_field="id") == [other for _, other in rows]


@pytest.mark.parametrize("delimiter", [",", "\t"])
@given(rows=st.lists(st.tuples(FIELDS, FIELDS), max_size=5))
@example(rows=[("\r", "\r\n"), ("a\r", '"'), ("", "")])
def test_rows_come_back_equal(tmp_path: Path, delimiter: str, rows: list[tuple[str, str]]) -> None:
    """Every value does in what csv.writer writes by itself: its line ends are \\r\\n."""
    data = write_rows([["text", "id"], *map(list, rows)], delimiter=delimiter)
    path = tmp_path / "a.csv"
    assert read_texts(path, data, delimiter=delimiter) == [text for text, _ in rows]


@given(texts=st.lists(FIELDS, max_size=5), num_columns=st.integers(1, 3))
def test_rows_of_unix_lines_come_back_equal_but_for_returns(
    tmp_path: Path, texts: list[str], num_columns: int
) -> None:
    """A lone \\r is quoted by no csv.writer of such lines before Python 3.13."""
    texts = [text.replace("\r", "") for text in texts]
    rows = [[text] * num_columns for text in texts]
    names = ["text", "b", "c"][:num_columns]
    data = write_rows([names, *rows], lineterminator="\n")
    assert read_texts(tmp_path / "a.csv", data) == texts


@given(
    rows=st.lists(st.tuples(FIELDS, FIELDS), max_size=6),
    block_bytes=st.integers(1, 9),
    block_characters=st.sampled_from([1, 64, 128]),
    is_compressed=st.booleans(),
)
def test_seams_of_blocks_change_nothing(
    tmp_path: Path,
    rows: list[tuple[str, str]],
    block_bytes: int,
    block_characters: int,
    is_compressed: bool,
) -> None:
    data = write_rows([["text", "id"], *map(list, rows), ["bad"]]).encode()
    whole = read_rows(tmp_path / "a.csv", data, on_bad_record="skip")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LIMITS, "read_bytes", block_bytes)
        patch.setattr(LIMITS, "batch_bytes", block_characters)
        patch.setattr(LIMITS, "rows_per_batch", block_characters >> 6)
        packed, kind = (gzip.compress(data), "gzip") if is_compressed else (data, "")
        found = read_rows(tmp_path / "b.csv", packed, compression=kind, on_bad_record="skip")
    assert found == whole
    assert len(whole[0]) == len(rows) + 1


def test_blocks_are_bounded_by_characters_and_by_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LIMITS, "batch_bytes", 640)
    monkeypatch.setattr(LIMITS, "rows_per_batch", 10)
    data = "text\n" + "a\n" * 25 + "b" * 700 + "\n" + "c\n"
    path = tmp_path / "a.csv"
    path.write_text(data)
    source = Source(str(path), "csv", "row", len(data))
    found = iter_documents(SourceRange(0, source, 0, len(data)), DocumentOptions(), lambda _: None)
    assert [len(block.texts) for block in found] == [10, 10, 6, 1]


def test_field_of_more_than_the_csv_modules_own_limit_is_read(tmp_path: Path) -> None:
    text = "a" * 200_000
    assert read_texts(tmp_path / "a.csv", f"text\n{text}\n") == [text]


def test_every_byte_of_the_file_is_seen_once(tmp_path: Path) -> None:
    data = gzip.compress(b'text,id\n"a\nb",1\n')
    (tmp_path / "a").write_bytes(data)
    source = Source(str(tmp_path / "a"), "csv", "row", len(data), "gzip")
    seen = bytearray()
    list(iter_documents(SourceRange(0, source, 0, len(data)), DocumentOptions(), seen.extend))
    assert seen == data


# The first row


def test_missing_column_is_named_with_those_that_are_there(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    error = read_error(path, "body,id\na,1\n")
    assert error.message == f"{path}:1: no column 'text' (found: 'body', 'id')"
    assert error.hint == "pass --text-field body"


def test_first_row_without_a_name_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    error = read_error(path, "\ntext\na\n", on_bad_record="skip")
    assert error.message == f"{path}:1: no column 'text' (found: none)"
    assert error.hint is None  # putting rows aside does not help: there is no column


def test_duplicate_column_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    error = read_error(path, "text,id,text\na,1,b\n", on_bad_record="skip")
    assert error.message == f"{path}:1: 2 columns named 'text'"
    assert read_texts(path, "id,text,id\n1,a,2\n") == ["a"]


@pytest.mark.parametrize("header", ['"te"xt,id', "te\rxt,id", '"text","id'])
def test_first_row_that_is_not_csv_is_never_rejected(tmp_path: Path, header: str) -> None:
    """Else the row after it would name the columns."""
    path = tmp_path / "a.csv"
    error = read_error(path, f"{header}\ntext,id\nreal,1\n", on_bad_record="skip")
    assert error.message.startswith(f"{path}:1: not CSV (")


def test_utf16_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    error = read_error(path, "text\na\n".encode("utf-16"))
    assert error.message == f"{path}:1: UTF-16 (begins with b'\\xff\\xfe'), expected UTF-8"


# Bad rows

BAD_ROWS = [
    ("b,2,3\n", "3 fields, expected 2 as in the first row"),
    ("b\n", "1 fields, expected 2 as in the first row"),
    (" \n", "1 fields, expected 2 as in the first row"),
    ('"b" ,2\n', "not CSV (',' expected after '\"')"),
    ('"b\nb"b,2\n', "not CSV (',' expected after '\"')"),
    ('"b\nb",2,3\n', "3 fields, expected 2 as in the first row"),
]


@pytest.mark.parametrize(("row", "reason"), BAD_ROWS)
def test_bad_row_is_named_by_its_first_line(tmp_path: Path, row: str, reason: str) -> None:
    path = tmp_path / "a.csv"
    error = read_error(path, f'text,id\n"a\na",1\n\n{row}c,3\n')
    assert error.message == f"{path}:5: {reason}"
    assert error.hint == SKIP_HINT


@pytest.mark.parametrize(("row", "reason"), BAD_ROWS)
def test_bad_row_is_rejected_if_asked(tmp_path: Path, row: str, reason: str) -> None:
    before = 'text,id\n"é\né",1\n\n'
    data = f'{before}{row}"c\nc",3\n{row}'
    texts, rejects, lines = read_rows(tmp_path / "a.csv", data, on_bad_record="skip")
    assert texts == ["é\né", "", "", "c\nc", ""]
    first = len(before.encode())
    second = first + len(row) + len('"c\nc",3\n')
    assert rejects == [Reject(2, first, reason), Reject(4, second, reason)]
    after = 5 + row.count("\n")
    assert lines == [2, 4, 5, after, after + 2]


def test_lone_return_outside_quotes_is_not_csv(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    assert read_error(path, "text\na\rb\nc\n").message.startswith(f"{path}:2: not CSV (new-line")
    texts, rejects, _ = read_rows(path, "text\na\rb\nc\n", on_bad_record="skip")
    assert texts == ["", "c"]
    assert [(reject.record, reject.byte) for reject in rejects] == [(0, 5)]


def test_quote_without_an_end_is_named_by_the_line_it_begins(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    data = 'text,id\na,1\n"b,2\nc,3\nd,4\n'
    error = read_error(path, data)
    assert error.message == f"{path}:3: not CSV (unexpected end of data)"
    assert error.hint == SKIP_HINT
    texts, rejects, _ = read_rows(path, data, on_bad_record="skip")
    assert texts == ["a", ""]
    assert rejects == [Reject(1, 12, "not CSV (unexpected end of data)")]


def test_rejects_are_numbered_through_all_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LIMITS, "rows_per_batch", 2)
    data = "text\na\nb\nc,c\nd\ne,e\n"
    _, rejects, _ = read_rows(tmp_path / "a.csv", data, on_bad_record="skip")
    assert [(reject.record, reject.byte) for reject in rejects] == [(2, 9), (4, 15)]


# Bytes that are not UTF-8


def test_bytes_that_are_not_utf8_follow_the_policy(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    data = b'text,id\na,1\n"b\nb\xe9\xe8",2\nc,3\n'
    error = read_error(path, data, on_bad_record="skip")
    assert error.message == f"{path}:3: byte 0xe9, expected UTF-8"
    assert error.hint == ENCODING_HINT
    assert read_texts(path, data, encoding_errors="replace") == ["a", "b\nb\ufffd\ufffd", "c"]
    texts, rejects, _ = read_rows(path, data, encoding_errors="skip")
    assert texts == ["a", "", "c"]
    assert [(reject.record, reject.reason) for reject in rejects] == [
        (1, "byte 0xe9, expected UTF-8")
    ]


@pytest.mark.parametrize("bad", [b"\xed\xa0\x80", b"\xc0\x80", b"\xf5\x80\x80\x80", b"\xe2\x82"])
def test_surrogates_overlong_and_cut_characters_are_not_utf8(tmp_path: Path, bad: bytes) -> None:
    error = read_error(tmp_path / "a.csv", b"text\nx" + bad + b"\n")
    assert error.message == f"{tmp_path / 'a.csv'}:2: byte {bad[0]:#04x}, expected UTF-8"


def test_name_that_is_not_utf8_can_be_shown(tmp_path: Path) -> None:
    error = read_error(tmp_path / "a.csv", b"te\xffxt,id\na,1\n")
    str(error).encode()
    assert error.hint == "pass --text-field id"


# Size


@pytest.mark.parametrize(
    ("row", "limit"),
    [('"éé\néé",1', 9), ("éééé,1", 8), ("a" * 50 + ",1", 50), (f"a,{'1' * 50}", 52)],
)
def test_document_above_the_limit_is_refused(tmp_path: Path, row: str, limit: int) -> None:
    path = tmp_path / "a.csv"
    limit_of_row = max(limit, len("text,id"), *(len(line.encode()) for line in row.split("\n")))
    assert len(read_texts(path, f"text,id\na,1\n{row}\n", max_document_bytes=limit_of_row)) == 2
    with_limit = limit_of_row - 1
    error = read_error(
        path, f"text,id\na,1\n{row}\n", max_document_bytes=with_limit, on_bad_record="skip"
    )
    assert error.message == f"{path}:3: document larger than {with_limit:,} bytes"
    assert error.hint == SIZE_HINT


def test_field_of_many_lines_above_the_limit_is_named_by_its_first_line(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    data = 'text,id\na,1\n"' + "line\n" * 5 + '",2\n'
    assert read_texts(path, data, max_document_bytes=25) == ["a", "line\n" * 5]
    error = read_error(path, data, max_document_bytes=24)
    assert error.message == f"{path}:3: document larger than 24 bytes"


def test_quote_without_an_end_is_not_read_into_memory_without_end(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    error = read_error(path, 'text\n"' + "line\n" * 1000, max_document_bytes=100)
    assert error.message == f"{path}:2: document larger than 100 bytes"


# Kept fields


def keep_rows(
    path: Path, data: bytes, *kept: str, **options: Any
) -> tuple[list[str], list[list[Any]], list[Reject]]:
    """Return the texts, the values of each "NAME:KIND", and the rejects."""
    path.write_bytes(data)
    readers = [KINDS[kind].make_reader(Field(name)) for name, _, kind in map(_part, kept)]
    whole = SourceRange(0, Source(str(path), "csv", "row", len(data)), 0, len(data))
    blocks = list(iter_documents(whole, DocumentOptions(**options), lambda _: None, readers))
    fields = [block.fields for block in blocks]
    return (
        [text for block in blocks for text in block.texts],
        [[value for values in column for value in values] for column in zip(*fields, strict=True)],
        [reject for block in blocks for reject in block.rejects],
    )


def _part(kept: str) -> tuple[str, str, str]:
    return kept.partition(":")


def test_kept_columns_arrive_beside_the_texts(tmp_path: Path) -> None:
    data = 'n,text,"a.b"\n1,x,é\n\n-2,"y\nz",""\n'.encode()
    found = keep_rows(tmp_path / "a.csv", data, "a.b:text", "n:int")
    assert found == (["x", "", "y\nz"], [["é", None, ""], [1, None, -2]], [])


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (b"x,one", "field 'n' is 'one', expected an integer"),
        (b"x,", "field 'n' is '', expected an integer"),
        (b"x,1,2", "3 fields, expected 2 as in the first row"),
        (b"x,\xff", "byte 0xff, expected UTF-8"),
    ],
)
def test_bad_value_is_an_error_or_rejects_its_row(tmp_path: Path, row: bytes, reason: str) -> None:
    path, data = tmp_path / "a.csv", b"text,n\na,1\n" + row + b"\nb,2\n"
    found = keep_rows(path, data, "n:int", on_bad_record="skip", encoding_errors="skip")
    assert found == (["a", "", "b"], [[1, None, 2]], [Reject(1, 11, reason)])
    with pytest.raises(DataError) as caught:
        keep_rows(path, data, "n:int")
    assert caught.value.message == f"{path}:3: {reason}"


def test_first_bad_row_is_named_whatever_is_wrong_with_it(tmp_path: Path) -> None:
    path, data = tmp_path / "a.csv", b"text,n\na,one\nb\n" + b'"%s",1\n' % (b"c\n" * 50)
    with pytest.raises(DataError, match=":2: field 'n' is 'one'"):
        keep_rows(path, data, "n:int", max_document_bytes=40)


def test_kept_column_must_be_in_the_first_row(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    with pytest.raises(DataError) as caught:
        keep_rows(path, b"text,m\na,1\n", "n:int")
    assert str(caught.value) == f"{path}:1: no column 'n' (found: 'text', 'm')"
    with pytest.raises(DataError, match="2 columns named 'n'"):
        keep_rows(path, b"text,n,n\na,1,2\n", "n:int")


def test_wide_kept_columns_make_smaller_blocks(tmp_path: Path) -> None:
    data = b"text,n\n" + b"a,%s\n" % (b"x" * 100_000) * 30
    path = tmp_path / "a.csv"
    path.write_bytes(data)
    whole = SourceRange(0, Source(str(path), "csv", "row", len(data)), 0, len(data))
    readers = [KINDS["text"].make_reader(Field("n"))]
    blocks = iter_documents(whole, DocumentOptions(), lambda _: None, readers)
    assert [len(block.texts) for block in blocks] == [11, 11, 8]
