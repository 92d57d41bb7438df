"""CSV, Parquet and Arrow as tokenize and import read them, compared with the rows written."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from documents import (
    MARK,
    ONE,
    Text,
    draw_text,
    hash_text,
    new_folder,
    read,
    refused,
    write,
    write_packed,
)

from seqpack_cli import (
    DataError,
    ImportOptions,
    TokenizeOptions,
    import_store,
    open_store,
    tokenize,
)
from seqpack_cli.limits import LIMITS

ROOT = Path(__file__).parent
# Rows of a file of two columns that are none, as csv.reader with strict=True finds.
BAD_ROWS = ("b,2,3", "b", " ", '"b" ,2', '"b\nb"b,2', '"b\nb",2,3', "b\rc,2")


def spell_row(fields: list[str], delimiter: str, rng: random.Random) -> str:
    """Write a row, with quotes where they are needed and sometimes elsewhere."""
    spelled = [
        '"' + field.replace('"', '""') + '"'
        if set(field) & {'"', delimiter, "\n", "\r"} or rng.random() < 0.2
        else field
        for field in fields
    ]
    return delimiter.join(spelled)


def check_random_csv(folder: Path, seed: int, num_files: int) -> None:
    """Compare random files, with bad rows and bytes that are not UTF-8."""
    rng = random.Random(seed)
    policy = rng.choice(["replace", "skip"])
    expected: dict[str, list[Text]] = {write(folder / "z.csv", b"text\na token"): ["a token"]}
    rejects = []
    for number in range(num_files):
        suffix = rng.choice([".csv", ".tsv", ".csv.gz", ".TSV"])
        delimiter = "\t" if "tsv" in suffix.lower() else ","
        end = rng.choice(["\n", "\r\n"])
        header = rng.choice([["text", "id"], ["id", "text"], ['"text"', "id"]])
        data = rng.choice([b"", MARK]) + (delimiter.join(header) + end).encode()
        place = "text" in header[1]
        texts: list[Text] = []
        raw = b""
        for _ in range(rng.choice([0, 1, 4, 15])):
            kind, text, is_bad = rng.random(), draw_text(rng), False
            row = spell_row([draw_text(rng, 3), text][:: 1 if place else -1], delimiter, rng)
            raw = row.encode()
            if kind < 0.1:
                raw, text = b"", ""
            elif kind < 0.2:
                raw, is_bad = rng.choice(BAD_ROWS).replace(",", delimiter).encode(), True
            elif kind < 0.3:
                marked = ["1", text + "@x"][:: 1 if place else -1]
                raw = spell_row(marked, delimiter, rng).encode().replace(b"@x", b"\xe9\xff")
                is_bad, text = policy == "skip", text + "\ufffd\ufffd"
            texts.append(None if is_bad else text)
            if is_bad:
                rejects.append((number, len(texts), len(data)))
            data += raw + end.encode()
        if rng.random() < 0.5:
            data = data.removesuffix(end.encode())
            if texts and not raw:  # then there is no last line
                texts.pop()
        expected[write_packed(folder / f"{number}{suffix}", data)] = texts
    found = read(folder, expected, encoding_errors=policy, on_bad_record="skip")
    assert found.texts == expected
    paths = list(expected)[1:]
    assert found.rejects == [(paths[number], *pair) for number, *pair in rejects]


@pytest.mark.parametrize("seed", range(24))
def test_random_csv_files_come_back_equal(tmp_path: Path, seed: int) -> None:
    check_random_csv(tmp_path, seed, 8)


def test_random_csv_files_come_back_equal_in_tiny_blocks(tmp_path: Path, tiny: int) -> None:
    for seed in range(3):
        check_random_csv(tmp_path / str(seed), seed, 3)


@pytest.mark.parametrize("end", ["\r\n", "\n"])
def test_what_the_csv_module_writes_comes_back_equal(tmp_path: Path, end: str) -> None:
    rng = random.Random(6)
    rows = [[draw_text(rng), str(number), draw_text(rng)] for number in range(200)]
    if end == "\n":  # a lone \r is quoted by no csv.writer of such lines before Python 3.13
        rows = [[field.replace("\r", "") for field in row] for row in rows]
    file = io.StringIO()
    csv.writer(file, lineterminator=end).writerows([["text", "n", "a.b"], *rows])
    path = write(tmp_path / "a.csv", file.getvalue().encode())
    found = read(tmp_path, [path], keep=["n:int", "a.b:text"])
    kept = [row for row in rows if row[0]]
    assert found.documents == [row[0] for row in rows]
    assert found.column("n") == [int(row[1]) for row in kept]
    assert found.column("a.b") == [row[2] for row in kept]
    assert read(tmp_path, [path], text_field="a.b").documents == [row[2] for row in rows]


@pytest.mark.parametrize(
    ("data", "texts"),
    [
        ('text\nsay "yes"\n', ['say "yes"']),
        ('text\n""\n', [""]),
        ("text\n a \n", [" a "]),
        ("text,id\n,1\n", [""]),
        ('text\n"a\rb"\n', ["a\rb"]),
        ("Text,text,id,id\n1,2,3,4\n", ["2"]),
        ("text\n" + "a" * 200_000 + "\n", ["a" * 200_000]),
        ("text", []),
        ("", []),
    ],
)
def test_rows_that_no_writer_makes_are_read(tmp_path: Path, data: str, texts: list[str]) -> None:
    path = write(tmp_path / "a.csv", data.encode())
    good = write(tmp_path / "good.txt", b"good")
    assert read(tmp_path, [path, good]).documents == [*texts, "good"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ('text,id\n"a\na",1\n\nb,2,3\nc,3\n', "5: 3 fields, expected 2"),
        ("text,id\na,1\nb\n", "3: 1 fields, expected 2"),
        ('text,id\na,1\n"b"b,2\n', "3: not CSV"),
        ('text,id\na,1\n"b,2\nc,3\n', "3: a quotation mark opens a value of 2 lines"),
        ("text\na\rb\nc\n", "2: not CSV"),
        ("body,id\na,1\n", "1: no column 'text' (found: 'body', 'id')"),
        ("\ntext\na\n", "1: no column 'text' (found: none)"),
        ("text,id,text\na,1,b\n", "1: 2 columns named 'text'"),
        ('"te"xt,id\ntext,id\na,1\n', "1: not CSV"),
        ("te\rxt,id\na,1\n", "1: not CSV"),
        ('text,id\n"a\nb\udce9",1\n', "2: byte 0xe9, expected UTF-8"),
        ("text\nx\udced\udca0\udc80\n", "2: byte 0xed, expected UTF-8"),
        ("te\udcffxt,id\na,1\n", "1: no column 'text'"),
    ],
)
def test_fault_of_csv_is_named_by_its_line(tmp_path: Path, data: str, said: str) -> None:
    path = write(tmp_path / "a.csv", data.encode(errors="surrogateescape"))
    good = write(tmp_path / "good.txt", b"good")
    refused(tmp_path, [good, path], said)
    if said.startswith("1:"):  # else the row after it would name the columns
        refused(tmp_path, [good, path], said, on_bad_record="skip", encoding_errors="skip")


@pytest.mark.parametrize(
    ("row", "size"),
    [('"éé\néé",1', 9), ("éééé,1", 10), ("a" * 50 + ",1", 52), (f"a,{'1' * 50}", 52)],
)
def test_row_of_csv_above_the_limit_is_named(tmp_path: Path, row: str, size: int) -> None:
    path = write(tmp_path / "a.csv", f"text,id\na,1\n{row}\nb,2\n".encode())
    assert len(read(tmp_path, [path], max_document_bytes=size).documents) == 3
    options = {"max_document_bytes": size - 1, "on_bad_record": "skip"}
    refused(tmp_path, [path], f"3: document larger than {size - 1} bytes", **options)


def test_quote_without_an_end_is_not_read_without_end(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", b'text\n"' + b"line\n" * 1000)
    refused(tmp_path, [path], "2: document larger", max_document_bytes=100)


# Parquet and Arrow

KINDS: dict[str, Any] = {
    "string": pa.string(),
    "large": pa.large_string(),
    "view": pa.string_view(),
    "dictionary": pa.dictionary(pa.int32(), pa.string()),
    "small dictionary": pa.dictionary(pa.int16(), pa.large_string()),
}


def make_strings(values: list[bytes | None], kind: str) -> Any:
    """Return strings, some not UTF-8, as some writers leave them."""
    binary = pa.array(values, pa.binary())
    column = pa.StringArray.from_buffers(
        len(values), binary.buffers()[1], binary.buffers()[2], binary.buffers()[0]
    )
    if "dictionary" in kind:
        encoded = binary.dictionary_encode()
        words = encoded.dictionary
        names = pa.StringArray.from_buffers(len(words), *words.buffers()[1:])
        return pa.DictionaryArray.from_arrays(encoded.indices, names)
    return column if kind == "string" else column.cast(KINDS[kind], safe=False)


def write_table(path: Path, table: Any, rng: random.Random) -> str:
    """Write a table in the format of a suffix, by any of its options."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = rng.choice([1, 2, 5, 1000])
    if path.suffix == ".parquet" and "string_view" in str(table.schema.types):
        rows = 1000  # pyarrow cannot write several row groups of these
    if path.suffix == ".parquet":
        pq.write_table(
            table,
            path,
            row_group_size=rows,
            compression=rng.choice(["none", "snappy", "zstd"]),
            use_dictionary=rng.random() < 0.5,
            data_page_version=rng.choice(["1.0", "2.0"]),
            write_page_checksum=rng.random() < 0.5,
        )
    else:
        form = (
            pa.ipc.new_stream
            if path.suffix == ".arrows"
            else rng.choice([pa.ipc.new_stream, pa.ipc.new_file])
        )
        options = pa.ipc.IpcWriteOptions(compression=rng.choice([None, "lz4", "zstd"]))
        with form(str(path), table.schema, options=options) as writer:
            writer.write_table(table, max_chunksize=rows)
    return str(path)


def check_random_tables(folder: Path, seed: int, num_files: int) -> None:
    rng = random.Random(seed)
    policy = rng.choice(["replace", "skip"])
    field = rng.choice(["text", "a.b", "a.b.c"])
    expected: dict[str, list[Text]] = {}
    for number in range(num_files):
        suffix = rng.choice([".parquet", ".arrow", ".arrows", ".feather", ".ipc", ".parquet"])
        kind = rng.choice(list(KINDS))
        texts: list[Text] = []
        values: list[bytes | None] = []
        for _ in range(rng.choice([0, 1, 4, 15])):
            drawn = rng.random()
            text = draw_text(rng)
            values.append(None if drawn < 0.15 else text.encode() + b"\xe9\xff" * (drawn > 0.85))
            is_bad = drawn < 0.15 or (drawn > 0.85 and policy == "skip")
            texts.append(None if is_bad else text + "\ufffd\ufffd" * (drawn > 0.85))
        column = make_strings(values, kind)
        if rng.random() < 0.5 or field == "text":
            names = {field: column}
            if field != "text":  # a column of this name goes before a path
                names["a"] = pa.array([{"b": "no"}] * len(values), pa.struct({"b": pa.string()}))
        else:
            for name in reversed(field.split(".")[1:]):
                other = pa.array(range(len(values)), pa.int64())
                column = pa.StructArray.from_arrays([other, column], ["other", name])
            names = {"a": column}
        table = pa.table(
            {"id": pa.array(range(len(values)), pa.int64()), **names, "text.x": values}
        )
        expected[write_table(folder / f"{number}{suffix}", table, rng)] = texts
    good = json.dumps({field: "a token"}).encode()
    expected[write(folder / "z.jsonl", good)] = ["a token"]
    options = {"text_field": field, "part_bytes": rng.choice([1 << 20, 2000, 300])}
    found = read(folder, expected, encoding_errors=policy, on_bad_record="skip", **options)
    assert found.texts == expected
    bad = [(p, n) for p in expected for n, text in enumerate(expected[p], 1) if text is None]
    assert found.rejects == [(*place, None) for place in bad]


@pytest.mark.parametrize("seed", range(24))
def test_random_tables_come_back_equal(tmp_path: Path, seed: int) -> None:
    check_random_tables(tmp_path, seed, 6)


def test_random_tables_come_back_equal_in_tiny_blocks(tmp_path: Path, tiny: int) -> None:
    for seed in range(3):
        check_random_tables(tmp_path / str(seed), seed, 3)


def write_groups(path: Path, groups: list[list[str | None]], **options: Any) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    with pq.ParquetWriter(path, pa.schema([("text", pa.string())]), **options) as writer:
        for group in groups:
            writer.write_table(pa.table({"text": pa.array(group, pa.string())}))
    return str(path)


def test_parquet_is_cut_between_row_groups(tmp_path: Path) -> None:
    groups: list[list[str | None]] = [[f"{group}-{row}" for row in range(3)] for group in range(6)]
    path = write_groups(tmp_path / "a.parquet", [*groups[:3], [], *groups[3:]])
    texts = [text for group in groups for text in group]
    size = Path(path).stat().st_size
    for part_bytes, counts in ((1, [3] * 3 + [0] + [3] * 3), (size, [18]), (1 << 30, [18])):
        found = read(tmp_path, [path], part_bytes=part_bytes)
        assert found.documents == texts
        assert [part["num_documents"] for part in found.manifest["parts"]] == counts
    ranges = [part["ranges"][0] for part in read(tmp_path, [path], part_bytes=1).manifest["parts"]]
    largest = max(piece["end"] - piece["start"] for piece in ranges)
    for part_bytes in (largest, 2 * largest + 1, 3 * largest):
        parts = read(tmp_path, [path], part_bytes=part_bytes).manifest["parts"]
        lengths = [part["ranges"][0]["end"] - part["ranges"][0]["start"] for part in parts]
        assert max(lengths) <= part_bytes
        assert all(first + largest > part_bytes for first, _ in itertools.pairwise(lengths))
    groups[4][1] = None
    path = write_groups(tmp_path / "a.parquet", groups)
    for part_bytes in (1, 1 << 20):
        refused(tmp_path, [path], "14: field 'text' is null", part_bytes=part_bytes)


@pytest.mark.parametrize("kind", ["string", "dictionary", "view"])
def test_table_of_many_or_long_rows_is_read_in_pieces(tmp_path: Path, kind: str) -> None:
    texts = ["x", "a" * 400_000, *["b", "c" * 90_000, "éé" * 30_000] * 3, ""]
    table = pa.table({"text": pa.array(texts).cast(KINDS[kind]), "n": range(len(texts))})
    pq.write_table(table, tmp_path / "a.parquet")
    encoding = {"text": "DELTA_BYTE_ARRAY" if kind == "string" else "PLAIN"}
    pq.write_table(table, tmp_path / "b.parquet", use_dictionary=False, column_encoding=encoding)
    with pa.ipc.new_file(str(tmp_path / "c.arrow"), table.schema) as writer:
        writer.write_table(table)
    found = read(tmp_path, [f"{tmp_path}/*.*r*"], keep=["n:int"])
    assert list(found.texts.values()) == [texts] * 3
    assert found.column("n") == list(range(len(texts) - 1)) * 3


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_row_above_the_limit_is_named(tmp_path: Path, suffix: str) -> None:
    rng = random.Random(2)
    for kind in KINDS:
        column = pa.array(["a", None, "b", "ééé", "c"]).cast(KINDS[kind])
        path = write_table(tmp_path / f"a{suffix}", pa.table({"text": column}), rng)
        for part_bytes in (1, 1 << 20):
            options = {"on_bad_record": "skip", "part_bytes": part_bytes}
            assert len(read(tmp_path, [path], max_document_bytes=6, **options).documents) == 5
            refused(tmp_path, [path], "4: document larger", max_document_bytes=5, **options)


# Columns

TIME = np.datetime64(0, "us")


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
@pytest.mark.parametrize(
    ("columns", "options", "said", "hint"),
    [
        ({"body": ["a"], "id": [1]}, {}, "no column 'text' (found: 'body', 'id')", "body"),
        ({"id": [1]}, {}, "no column 'text' (found: 'id')", "None"),
        ({"a": [{"c": "x"}]}, {"text_field": "a.b"}, "no column 'a.b' (found: 'a.c', 'a')", ""),
        ({"a": ["x"]}, {"text_field": "a.b"}, "no column 'a.b'", ""),
        ({"text": [1]}, {}, "column 'text' is int64, expected strings", ""),
        ({"text": [b"a"]}, {}, "column 'text' is binary, expected strings", ""),
        ({"text": [{"a": "b"}]}, {}, "column 'text' is struct", ""),
        ({"text": [None]}, {}, "column 'text' is null", ""),
        ({"text": [["a"]]}, {}, "column 'text' is list", "join the words"),
        ({"text": [[{"role": "user"}]]}, {}, "column 'text' is list", "--messages-field text"),
        ({"text": ["a"], "m": [1]}, {"keep": ["n:int"]}, "no column 'n'", ""),
        ({"text": ["a"], "x": [b"a"]}, {"keep": ["x:text"]}, "column 'x' is binary", "convert"),
        ({"text": ["a"], "x": [{"n": 1}]}, {"keep": ["x:int"]}, "column 'x' is struct", ""),
        ({"text": ["a"], "x": [TIME]}, {"keep": ["x:int"]}, "column 'x' is timestamp", ""),
        ({"text": ["a"], "x": [[b"a"]]}, {"keep": ["x:tags"]}, "column 'x' is list", ""),
        ({"m": [b"a"]}, {"messages_field": "m"}, "column 'm' is binary", "convert"),
    ],
)
def test_column_that_cannot_be_read_is_named(
    tmp_path: Path, suffix: str, columns: Any, options: dict[str, Any], said: str, hint: str
) -> None:
    path = write_table(tmp_path / f"a{suffix}", pa.table(columns), random.Random(1))
    if "messages_field" in options:
        options = {**options, "chat_template": write(tmp_path / "t.jinja", b"{{ messages }}")}
    error = refused(tmp_path, [path], f" {said}", on_bad_record="skip", **options)
    assert hint in str(error.hint)


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_column_of_a_name_that_is_there_twice_is_refused(tmp_path: Path, suffix: str) -> None:
    arrays = [pa.array(["a"]), pa.array(["b"]), pa.array([1])]
    table = pa.Table.from_arrays(arrays, names=["text", "text", "n"])
    path = write_table(tmp_path / f"a{suffix}", table, random.Random(1))
    refused(tmp_path, [path], " 2 columns named 'text'")


COLUMNS = [
    (pa.array([1, -2, 3], pa.int8()), "int", [1, -2, 3]),
    (pa.array([2**63 - 1, 0, 7], pa.uint64()), "int", [2**63 - 1, 0, 7]),
    (pa.array([7, 7, 8]).dictionary_encode(), "int", [7, 7, 8]),
    (pa.array([0.5, -0.0, 1e30], pa.float64()), "float", [0.5, -0.0, 1e30]),
    (pa.array([0.5, -1, 2], pa.float16()), "float", [0.5, -1.0, 2.0]),
    (pa.array([1, 2, None]), "int", [1, 2, None]),
    (pa.array([1.5, math.nan, math.inf]), "float", [1.5, None, None]),
    (pa.array([True, False, True]), "class", [True, False, True]),
    (pa.array(["é", "", "b"], pa.large_string()), "text", ["é", "", "b"]),
    (pa.array(["a", None, "a"]).dictionary_encode(), "class", ["a", None, "a"]),
    (pa.array(["a", "b", None], pa.string_view()), "text", ["a", "b", None]),
    (pa.array([2**63, 1, 2], pa.uint64()), "int", [None, 1, 2]),
]


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
@pytest.mark.parametrize(("column", "kind", "values"), COLUMNS, ids=lambda it: str(it)[:9])
def test_columns_are_kept_beside_texts(
    tmp_path: Path, suffix: str, column: Any, kind: str, values: list[Any]
) -> None:
    columns = {"text": ["a", "b", "c"], "x": column, "in": [{"y": n} for n in range(3)]}
    table = pa.table(columns)
    path = write_table(tmp_path / f"a{suffix}", table, random.Random(len(values)))
    keep = [f"x:{kind}", "in.y:int"]
    found = read(tmp_path, [path], keep=keep, on_bad_record="skip")
    good = [number for number, value in enumerate(values) if value is not None]
    assert found.documents == [
        text if number in good else None for number, text in enumerate("abc")
    ]
    assert repr(found.column("x")) == repr([values[number] for number in good])
    assert found.column("in.y") == good


def test_kept_bytes_that_are_not_utf8_follow_the_policy(tmp_path: Path) -> None:
    for suffix in (".parquet", ".arrow"):
        table = pa.table({"text": ["a", "b"], "x": make_strings([b"\xe9", b"ok"], "string")})
        path = write_table(tmp_path / f"a{suffix}", table, random.Random(3))
        refused(tmp_path, [path], "1: byte 0xe9", keep=["x:text"])
        found = read(tmp_path, [path], keep=["x:text"], encoding_errors="replace")
        assert found.column("x") == ["\ufffd", "ok"]
        found = read(tmp_path, [path], keep=["x:text"], encoding_errors="skip")
        assert (found.documents, found.column("x")) == ([None, "b"], ["ok"])


# The same records in every format


def write_records(path: Path, records: list[dict[str, Any]], rng: random.Random) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".jsonl":
        return write(path, "\n".join(map(json.dumps, records)).encode())
    if path.suffix == ".json":
        return write(path, json.dumps(records, indent=1).encode())
    names = dict.fromkeys(name for record in records for name in record)
    columns = {name: [record.get(name) for record in records] for name in names}
    return write_table(path, pa.table(columns), rng)


RECORD_SUFFIXES = (".jsonl", ".json", ".parquet", ".arrow")


def test_words_and_tags_are_read_from_every_format(tmp_path: Path) -> None:
    rng = random.Random(7)
    records: list[dict[str, Any]] = []
    for number in range(30):
        words = [rng.choice(["a", "bé", "c c"]) for _ in range(rng.randint(1, 4))]
        records.append({"text": words, "tags": [rng.choice(["X", "Y"]) for _ in words]})
        if number % 10 == 9:
            bad: Any = rng.choice([{"text": None}, {"tags": None}, {"text": ["a", None]}])
            records[-1].update(bad)
    spans = [{"text": "one two", "tags": [{"start": 0, "end": 3, "label": "X"}]}] * 3
    made = []
    for suffix in RECORD_SUFFIXES:
        paths = [
            write_records(tmp_path / f"{name}{suffix}", rows, rng)
            for name, rows in (("words", records), ("spans", spans))
        ]
        found = [read(tmp_path, [path], keep=["tags:tags"], on_bad_record="skip") for path in paths]
        made.append([[each.documents, each.column("tags")] for each in found])
        assert found[0].documents == [
            None if number % 10 == 9 else " ".join(record["text"])
            for number, record in enumerate(records)
        ]
    assert all(each == made[0] for each in made)
    path = write_records(tmp_path / "a.parquet", [{"text": ["aa", "b"], "tags": ["X", "X"]}], rng)
    options = {"keep": ["tags:tags"]}
    assert (
        "larger than 2 bytes" in refused(tmp_path, [path], max_document_bytes=2, **options).message
    )


TEMPLATE = (
    b"{% if tools %}[{{ tools | length }}]{% endif %}"
    b"{% for message in messages %}<{{ message.role }}>{{ message.content }}"
    b"{% if message.name is defined %}({{ message.name }}){% endif %}|{% endfor %}"
)


def draw_conversation(rng: random.Random) -> dict[str, Any]:
    messages = [
        {"role": role, "content": draw_text(rng, 4, ["a", "é", '"', "\\", " "]) + "."}
        | ({"name": "n"} if rng.random() < 0.3 else {})
        for role in ("user", "assistant") * rng.randint(1, 2)
    ]
    tools = [{"name": "t", "n": 3, "f": 0.5, "deep": {"x": [1, 2]}}] if rng.random() < 0.5 else None
    return {"m": messages, "id": rng.randint(0, 9)} | ({"t": tools} if tools else {})


def hash_conversation(record: dict[str, Any]) -> int:
    """Return the hash of a document as docs/formats.md says."""
    hashed = {"messages": record["m"]} | ({"tools": record["t"]} if "t" in record else {})
    return hash_text(json.dumps(hashed, sort_keys=True, ensure_ascii=False, separators=(",", ":")))


@pytest.mark.parametrize("seed", range(3))
def test_conversations_are_read_from_every_format(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    template = write(tmp_path / "t.jinja", TEMPLATE)
    records = [draw_conversation(rng) for _ in range(12)]
    texts: list[Text] = [
        ("[1]" if "t" in record else "")
        + "".join(
            f"<{each['role']}>{each['content']}" + ("(n)" if "name" in each else "") + "|"
            for each in record["m"]
        )
        for record in records
    ]
    hashes = list(map(hash_conversation, records))
    for number in (2, 7) if seed else ():
        records[number]["m"] = None
        texts[number], hashes[number] = None, hash_text("")
    for suffix in RECORD_SUFFIXES:
        path = write_records(tmp_path / f"a{suffix}", records, rng)
        options = {"messages_field": "m", "tools_field": "t", "chat_template": template}
        options |= {"keep": ["id:int"], "part_bytes": rng.choice([1 << 20, 400])}
        found = read(tmp_path, [path], on_bad_record="skip", **options)
        assert (found.documents, found.hashes) == (texts, hashes)
        good = [record["id"] for record, text in zip(records, texts, strict=True) if text]
        assert found.column("id") == good


def test_maps_of_messages_are_objects(tmp_path: Path) -> None:
    template = write(tmp_path / "t.jinja", TEMPLATE)
    kind = pa.list_(pa.map_(pa.string(), pa.string()))
    good = [[("role", "user"), ("content", "a")], [("content", "b"), ("role", "assistant")]]
    twice = [[*good[0], ("role", "x")]]
    words = pa.array(["user", "assistant"]).dictionary_encode()
    structs = pa.StructArray.from_arrays([words, pa.array(["a", "b"])], ["role", "content"])
    for column in (pa.array([good, twice], kind), pa.ListArray.from_arrays([0, 2, 2], structs)):
        for suffix in (".parquet", ".arrow"):
            path = write_table(tmp_path / f"a{suffix}", pa.table({"m": column}), random.Random(1))
            options = {"messages_field": "m", "chat_template": template, "tools_field": "none"}
            found = read(tmp_path, [path], on_bad_record="skip", **options)
            second = "<x>a|" if pa.types.is_map(column.type.value_type) else ""
            assert found.documents == ["<user>a|<assistant>b|", second]
            refused(tmp_path, [path], "1: document larger", max_document_bytes=4, **options)


@pytest.mark.parametrize("name", ["a.parquet", "a.jsonl.gz"])
def test_equal_texts_of_any_number_are_read(tmp_path: Path, name: str) -> None:
    prompt, count = "x" * 192, 400_000
    path = tmp_path / name
    if name == "a.parquet":
        pq.write_table(pa.table({"text": pa.array([prompt]).take(pa.array([0] * count))}), path)
    else:
        path.write_bytes(gzip.compress(b'{"text": "%s"}\n' % prompt.encode() * count))
    options = TokenizeOptions(max_length=1, overflow="truncate")
    manifest, _ = tokenize([path], tmp_path / "store", options, executor=ONE)
    assert manifest["ledger"]["num_documents"] == len(open_store(tmp_path / "store")) == count


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="needs Linux to count what is read")
def test_kinds_are_found_without_reading_the_other_columns(tmp_path: Path) -> None:
    texts = [random.Random(number).randbytes(2000).hex() for number in range(3000)]
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": texts, "label": ["a", "b", "c"] * 1000}), path)

    def count_read() -> int:
        return int(Path("/proc/self/io").read_text().split()[1])

    before = count_read()
    tokenize([path], tmp_path / "store", keep=["label"], executor=ONE)
    # Once for the checksum, once for the texts.
    assert count_read() - before < 2.5 * path.stat().st_size


def test_csv_leaves_the_limits_of_the_process_as_they_are(tmp_path: Path) -> None:
    limit = csv.field_size_limit()
    path = write(tmp_path / "a.csv", b"text\n" + b"x" * 2 * limit + b"\n")
    assert read(tmp_path, [path]).documents == ["x" * 2 * limit]
    refused(tmp_path, [path], "2: document larger", max_document_bytes=limit)
    assert csv.field_size_limit() == limit


def import_records(folder: Path, path: str, **options: Any) -> tuple[list[Any], list[int]]:
    """Return the record, ids and targets of each sequence, and the records that were rejected."""
    output = new_folder(folder)
    made = ImportOptions(**{"vocab_size": 1000, "on_bad_record": "skip", **options})
    import_store([path], output, made, executor=ONE)
    store = open_store(output)
    parts = range(store.num_parts) if "targets" in store.columns else ()
    flat = iter([t for part in parts for t in np.asarray(store.part_column(part, "targets"))])
    found = []
    for index, ids in enumerate(store):
        targets = [int(next(flat)) for _ in ids] if parts else None
        found.append((store.locate(index).record, ids.tolist(), targets))
    path_of_rejects = output / "rejects.jsonl"
    lines = path_of_rejects.read_text().splitlines() if path_of_rejects.exists() else ()
    return found, [json.loads(line)["record"] for line in lines]


@pytest.mark.parametrize("seed", range(2))
def test_ids_are_imported_from_every_format(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    records, expected, rejected = [], [], []
    for number in range(1, 40):
        left, length, right = rng.randint(0, 1), rng.randint(0, 5), rng.randint(0, 2)
        mask: Any = [0] * left + [1] * length + [0] * right  # padding stands at the ends
        ids: Any = [rng.randint(0, 999) for _ in mask]
        labels: Any = [
            rng.choice([i, -100]) if bit else -100 for i, bit in zip(ids, mask, strict=True)
        ]
        sequence = ids[left : left + length]
        targets = [int(label != -100) for label in labels[left : left + length]]
        if rng.random() < 0.2:
            rejected.append(number)
            kind = rng.randrange(6)
            if kind < 2:
                ids = [[*ids, None], None][kind]
            elif kind < 4:
                ids = [*ids, [1000, -1][kind - 2]]
            else:
                mask = [[*mask, None], [*mask, 1]][kind - 4]
        elif sequence:
            expected.append((number, sequence, targets))
        records.append({"ids": ids, "labels": labels, "attention_mask": mask, "n": number})
    for suffix in RECORD_SUFFIXES:
        path = write_records(tmp_path / f"a{suffix}", records, rng)
        options: dict[str, Any] = {"ids_field": "ids"}
        found = import_records(tmp_path, path, part_bytes=rng.choice([1 << 20, 700]), **options)
        assert found == (expected, rejected), suffix


@pytest.mark.parametrize(
    "ids", ["1 2", 7, {"a": 1}, ["1"], [1, 2.0], [True], [1, [2]], [2**63], [1, {"a": 1}]]
)
def test_ids_that_are_none_are_named_or_rejected(tmp_path: Path, ids: Any) -> None:
    good = {"input_ids": [1, 2]}
    path = write(
        tmp_path / "a.jsonl", "\n".join(map(json.dumps, [good, {"input_ids": ids}])).encode()
    )
    assert import_records(tmp_path, path) == ([(1, [1, 2], None)], [2])
    with pytest.raises(DataError, match=r"a\.jsonl:2: field 'input_ids'"):
        import_records(tmp_path, path, on_bad_record="error")


def test_lists_of_any_integers_are_imported(tmp_path: Path) -> None:
    lists = [[1, 2, 3], [], [4], [5, 6]]
    for kind in (pa.uint8(), pa.int64(), pa.uint64()):
        for column in (pa.array(lists, pa.list_(kind)), pa.array(lists, pa.large_list(kind))):
            for suffix in (".parquet", ".arrow"):
                table = pa.table({"input_ids": column, "other": range(4)})
                path = write_table(tmp_path / f"a{suffix}", table, random.Random(1))
                expected = [(n, ids, None) for n, ids in enumerate(lists, 1) if ids]
                assert import_records(tmp_path, path) == (expected, [])
    fixed = pa.table({"input_ids": pa.array([[1, 2], [3, 4]], pa.list_(pa.int32(), 2))})
    path = write_table(tmp_path / "a.parquet", fixed, random.Random(1))
    assert import_records(tmp_path, path)[0] == [(1, [1, 2], None), (2, [3, 4], None)]


# Damage


def test_every_cut_of_a_table_is_an_error(tmp_path: Path) -> None:
    table = pa.table({"text": list("abcdef")})
    for name in ("a.parquet", "a.arrows", "b.arrow"):
        path = write_table(tmp_path / name, table, random.Random(5))
        data = Path(path).read_bytes()
        for end in [*range(0, len(data), max(1, len(data) // 20)), len(data) - 1]:
            write(path, data[:end])
            refused(tmp_path, [path], " ")
        write(path, data + data)
        if "arrow" in name:
            refused(tmp_path, [path], f" {len(data)} bytes after the end of the stream")
        for other in (b"PAR1", b"PAR1PAR1", b"ARROW1\0\0", b'{"text": "a"}\n' * 9, b"FEA1\0\0\0\0"):
            write(path, other)
            refused(tmp_path, [path], " ")


def test_damaged_pages_never_lose_rows(tmp_path: Path) -> None:
    """The footer says how many rows there are, whatever the head of a page says."""
    texts = [f"t{number}" for number in range(12)]
    path = tmp_path / "a.parquet"
    for options in ({}, {"use_dictionary": False, "data_page_version": "2.0"}):
        pq.write_table(pa.table({"text": texts}), path, compression="none", **options)
        data = path.read_bytes()
        footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
        for bit in range(8 * 4, 8 * footer, 47):
            damaged = bytearray(data)
            damaged[bit // 8] ^= 1 << bit % 8
            path.write_bytes(damaged)
            try:
                found = read(tmp_path, [path], encoding_errors="replace", on_bad_record="skip")
            except DataError:
                continue
            assert len(found.documents) == 12, f"bit {bit}"


def test_checksums_of_pages_are_checked(tmp_path: Path) -> None:
    rows = [f"some text {number}" for number in range(20)]
    path = tmp_path / "a.parquet"
    options: dict[str, Any] = {"compression": "none", "use_dictionary": False}
    pq.write_table(pa.table({"text": rows}), path, write_page_checksum=True, **options)
    data = path.read_bytes()
    for row in (3, 7, 15):  # the least and the last stand in statistics too
        at = data.index(rows[row].encode())
        path.write_bytes(data[:at] + b"S" + data[at + 1 :])
        refused(tmp_path, [path], " damaged (")


@pytest.mark.parametrize("suffix", [".parquet", ".arrows"])
def test_damaged_name_of_a_column_is_an_error(tmp_path: Path, suffix: str) -> None:
    table = pa.table({"text": ["a"], "other": [{"field": 1}]})
    path = write_table(tmp_path / f"a{suffix}", table, random.Random(4))
    data = Path(path).read_bytes()
    for name in (b"text", b"other", b"field"):
        for at in [at for at in range(len(data)) if data[at : at + len(name)] == name]:
            write(path, data[:at] + b"\xfe" + data[at + 1 :])
            refused(tmp_path, [path], " ")


def test_arrow_of_damaged_offsets_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    table = pa.table({"text": ["ab", "cd", "efg"]})
    with pa.ipc.new_stream(str(path), table.schema) as writer:
        writer.write_table(table)
    data = path.read_bytes()
    offsets = np.array([0, 2, 4, 7], np.int32).tobytes()
    for wrong in ([0, 2, 9, 7], [0, 2, 4, 7_000_000], [0, 4, 2, 7], [-1, 2, 4, 7]):
        path.write_bytes(data.replace(offsets, np.array(wrong, np.int32).tobytes()))
        refused(tmp_path, [path], " damaged (")


def test_footer_that_crashes_pyarrow_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read in a process of its own."""
    monkeypatch.setattr(LIMITS, "footer_workers", 1)
    good = write_groups(tmp_path / "good.parquet", [["a"]])
    bad = ROOT / "data" / "footer_that_aborts.parquet"
    refused(tmp_path, [good, bad], " not Parquet, or damaged (")
