"""Texts that are made from several fields of a record, in every format with fields."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_json_lines import without_orjson
from test_kept_fields import json_lines, spell

from seqpack_cli.corpus.conversations import JOIN_HINT
from seqpack_cli.corpus.document_block import BadRecordError, Reject
from seqpack_cli.corpus.documents import iter_documents
from seqpack_cli.corpus.json_fields import read_json_record, read_json_records
from seqpack_cli.corpus.kept_fields import Readers
from seqpack_cli.corpus.options import DocumentOptions
from seqpack_cli.corpus.sources import Source, SourceRange
from seqpack_cli.corpus.text_reader import FieldText, Made, TextReader
from seqpack_cli.errors import DataError
from seqpack_cli.tokens.columns.kind import Field
from seqpack_cli.tokens.columns.kinds import KINDS
from seqpack_cli.tokens.texts import PromptText

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

SKIP_HINT = "fix the record and add --overwrite, or pass --on-bad-record skip"
STOP = DocumentOptions()
SKIP = DocumentOptions(on_bad_record="skip", encoding_errors="skip")
PAIR = PromptText("q", "a")
GOOD = {"q": "x", "a": "y"}


@dataclass(frozen=True)
class Values:
    """A text that is the fields as JSON, whatever they are, but no text where the first is null."""

    names: tuple[str, ...] = ("messages",)
    options: tuple[str, ...] = ("--messages-field",)
    optional: tuple[str, ...] = ("tools",)
    takes_strings: bool = False
    num_values: int = 1

    def read_all(self, columns: Sequence[list[Any]]) -> Made:
        if None in columns[0]:
            raise TypeError("null")
        made = [json.dumps(values) for values in zip(*columns, strict=True)]
        return made, [made]

    def read(self, values: Sequence[Any]) -> tuple[str, list[Any]]:
        if values[0] is None:
            raise BadRecordError(f"field {self.names[0]!r} is null, expected a list")
        return json.dumps(values), [json.dumps(values)]


def read(
    path: Path, text: TextReader = PAIR, options: DocumentOptions = STOP, readers: Readers = ()
) -> tuple[list[str], list[list[Any]], list[Reject]]:
    """Return the texts of a file, what stands beside them, and the rejects."""
    file_format = path.suffix[1:].replace("tsv", "csv")
    unit = "line" if file_format == "jsonl" else "row"
    delimiter = "\t" if path.suffix == ".tsv" else ","
    source = Source(str(path), file_format, unit, path.stat().st_size, delimiter=delimiter)
    whole = SourceRange(0, source, 0, source.num_bytes)
    blocks = list(iter_documents(whole, options, lambda _: None, readers, text))
    beside = [
        [value for block in blocks for value in block.fields[n]]
        for n in range(text.num_values + len(readers))
    ]
    texts = [made for block in blocks for made in block.texts]
    assert all(len(values) == len(texts) for values in beside)
    return texts, beside, [reject for block in blocks for reject in block.rejects]


def read_lines(
    path: Path, lines: Sequence[str], text: TextReader = PAIR, options: DocumentOptions = SKIP
) -> tuple[list[str], list[list[Any]], list[Reject]]:
    path = path / "a.jsonl"
    path.write_text("\n".join(lines), errors="surrogatepass")
    return read(path, text, options)


def read_rows(path: Path, columns: dict[str, Any], text: TextReader = PAIR) -> list[Any]:
    pq.write_table(pa.table(columns), path / "a.parquet")
    return read(path / "a.parquet", text, SKIP)[1][0]


def spans(made: Sequence[Any]) -> list[Any]:
    return [
        None if each is None else (each.text, each.targets, each.canonical.decode())
        for each in made
    ]


# Records become texts


def test_record_is_the_same_text_in_every_format(tmp_path: Path) -> None:
    """The text, the characters that are targets, and the canonical JSON, which is hashed."""
    records = [GOOD, {"q": "", "a": "é𝄞"}, {"q": 'say "hi"\n', "a": ""}, {"q": "", "a": ""}]
    expected = [
        ("xy", ((1, 2),), '{"completion":"y","prompt":"x"}'),
        ("é𝄞", ((0, 2),), '{"completion":"é𝄞","prompt":""}'),
        ('say "hi"\n', (), '{"completion":"","prompt":"say \\"hi\\"\\n"}'),
        ("", (), '{"completion":"","prompt":""}'),
    ]
    lines = [json.dumps(record) for record in records]
    (tmp_path / "a.csv").write_text('a,q\ny,x\né𝄞,""\n,"say ""hi""\n"\n"",""\n')
    (tmp_path / "a.tsv").write_text('q\ta\nx\ty\n\té𝄞\n"say ""hi""\n"\t\n\t\n')
    columns = {name: [record[name] for record in records] for name in ("q", "a")}
    found = [
        read_lines(tmp_path, lines)[1][0],
        read(tmp_path / "a.csv")[1][0],
        read(tmp_path / "a.tsv")[1][0],
        read_rows(tmp_path, columns),
        read_rows(tmp_path, {name: pa.array(v).dictionary_encode() for name, v in columns.items()}),
    ]
    with without_orjson():
        found.append(read_lines(tmp_path, lines)[1][0])
    assert list(map(spans, found)) == [expected] * len(found)


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_prompt_may_be_its_own_completion_and_a_kept_field(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    if suffix == "parquet":
        pq.write_table(pa.table({"q": ["x", "yz"]}), path)
    else:
        path.write_text({"jsonl": '{"q": "x"}\n{"q": "yz"}', "csv": "q\nx\nyz\n"}[suffix])
    kept = KINDS["text"].make_reader(Field("q"))
    texts, (made, values), _ = read(path, PromptText("q", "q"), readers=[kept])
    assert texts == ["xx", "yzyz"]
    assert [each.targets for each in made] == [((1, 2),), ((2, 4),)]
    assert values == ["x", "yz"]


def test_dotted_names_are_paths_unless_a_key_is_spelled_so(tmp_path: Path) -> None:
    text = PromptText("a.b", "a.c")
    lines = [
        '{"a": {"b": "x", "c": "y"}}',
        '{"a": {"b": "x", "c": "y"}, "a.b": "z"}',
        '{"a": {"b": "x"}, "a.c": "w"}',
    ]
    assert read_lines(tmp_path, lines, text)[0] == ["xy", "zy", "xw"]
    struct = pa.array([{"b": "x", "c": "y"}, None, {"b": None, "c": "y"}])
    assert spans(read_rows(tmp_path, {"a": struct}, text)) == [
        ("xy", ((1, 2),), '{"completion":"y","prompt":"x"}'),
        None,
        None,
    ]


def test_byte_order_mark_windows_line_ends_nul_and_blank_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"q": "a\\u0000", "a": "b"}\r\n\r\n{"q": "c", "a": ""}\r\n')
    texts, (made,), _ = read(path)
    assert (texts, made[1]) == (["a\0b", "", "c"], None)
    path = tmp_path / "a.csv"
    path.write_bytes(b"\xef\xbb\xbfq,a\r\nx,y\r\n\r\nz,\r\n")
    texts, (made,), _ = read(path)
    assert (texts, made[1]) == (["xy", "", "z"], None)


# Bad records


BAD = [
    ('"q": null, "a": "y"', "field 'q' is null, expected a string"),
    ('"q": "x", "a": 7', "field 'a' is int, expected a string"),
    ('"q": ["x"], "a": "y"', "field 'q' is a list, expected a string"),
    ('"q": "x"', "no field 'a' (found: 'q')"),
    ('"q": "x", "a": "y", "a": "y"', "duplicate key 'a' in an object"),
    ('"q": "x", "\\u0071": "x", "a": "y"', "duplicate key 'q' in an object"),
    ('"q": "x", "a": "\\ud800"', "field 'a' has the lone surrogate \\ud800, expected Unicode text"),
]


@pytest.mark.parametrize(("fields", "reason"), BAD)
def test_bad_field_rejects_its_record(tmp_path: Path, fields: str, reason: str) -> None:
    good = json.dumps(GOOD)
    lines = [good, f"{{{fields}}}", good]
    reject = Reject(1, len(good) + 1, reason)
    for parser in (contextlib.nullcontext, without_orjson):
        with parser():
            texts, (made,), rejects = read_lines(tmp_path, lines)
        assert (texts, made[1], rejects) == (["xy", "", "xy"], None, [reject])


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ('"messages": [{"a": 1, "b": {"c": 1, "c": 2}}]', "duplicate key 'c' in an object"),
        ('"messages": [], "tools": [{"x": 1, "x": 1}]', "duplicate key 'x' in an object"),
        (
            '"messages": [["\\udc80"]]',
            "field 'messages' has the lone surrogate \\udc80, expected Unicode text",
        ),
        (
            '"messages": [], "tools": {"\\ud800": 1}',
            "field 'tools' has the lone surrogate \\ud800, expected Unicode text",
        ),
        ('"messages": null', "field 'messages' is null, expected a list"),
        ('"tools": []', "no field 'messages' (found: 'tools')"),
    ],
)
def test_bad_value_deep_inside_rejects_its_record(tmp_path: Path, fields: str, reason: str) -> None:
    lines = ['{"messages": []}', f"{{{fields}}}"]
    for parser in (contextlib.nullcontext, without_orjson):
        with parser():
            texts, _, rejects = read_lines(tmp_path, lines, Values())
        assert (texts, [reject.reason for reject in rejects]) == (["[[], null]", ""], [reason])


def test_bad_row_leaves_the_others_as_they_are(tmp_path: Path) -> None:
    """A block with a bad row is read row by row."""
    (tmp_path / "a.csv").write_text('q,a\nx,y\nx\n\n"",z\n')
    columns = {"q": ["x", None, "", ""], "a": ["y", "y", "", "z"]}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    reasons = {"csv": "1 fields, expected 2 as in the first row"}
    reasons["parquet"] = "field 'q' is null, expected a string"
    for suffix, reason in reasons.items():
        texts, (made,), rejects = read(tmp_path / f"a.{suffix}", options=SKIP)
        assert texts == ["xy", "", "", "z"]
        assert [each and each.targets for each in made[::3]] == [((1, 2),), ((0, 1),)]
        assert made[1] is None
        assert [(reject.record, reject.reason) for reject in rejects] == [(1, reason)]


def test_bytes_that_are_not_utf8_in_either_field(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"q": "x", "a": "\xff"}\n{"q": "\xff", "a": "y"}\n')
    replaced = DocumentOptions(encoding_errors="replace")
    assert read(path, options=replaced)[0] == ["x\ufffd", "\ufffdy"]
    assert [reject.byte for reject in read(path, options=SKIP)[2]] == [17, 28]
    path = tmp_path / "a.csv"
    path.write_bytes(b"q,a\nx,\xff\n\xff,y\n")
    assert read(path, options=replaced)[0] == ["x\ufffd", "\ufffdy"]
    assert len(read(path, options=SKIP)[2]) == 2


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_limit_is_for_both_fields_together(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    if suffix == "parquet":
        pq.write_table(pa.table({"q": ["é" * 20], "a": ["y" * 40]}), path)
    elif suffix == "jsonl":
        path.write_text(json.dumps({"q": "é" * 20, "a": "y" * 40}, ensure_ascii=False))
    else:
        path.write_text("q,a\n" + "é" * 20 + "," + "y" * 40)
    with pytest.raises(DataError, match="document larger than 79 bytes"):
        read(path, options=DocumentOptions(max_document_bytes=79))
    longest = 80 + (len('{"q": "", "a": ""}') if suffix == "jsonl" else 0)
    limit = longest + (suffix == "csv")  # the comma
    assert read(path, options=DocumentOptions(max_document_bytes=limit))[0]


# Messages about a missing field


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
@pytest.mark.parametrize(
    ("names", "found", "reason", "advice"),
    [
        (
            ("prompt", "completion"),
            ["id", "Prompt", "completion"],
            "'prompt' (found: 'Prompt', 'id', 'completion')",
            "--prompt-field Prompt",
        ),
        (
            ("prompt", "completions"),
            ["prompt", "completion"],
            "'completions' (found: 'completion', 'prompt')",
            "--completion-field completion",
        ),
        (
            ("question", "completion"),
            ["question", "answer"],
            "'completion' (found: 'question', 'answer')",
            "--completion-field answer",
        ),
        (("question", "answer"), ["question"], "'answer' (found: 'question')", None),
    ],
)
def test_hint_names_the_option_of_the_missing_field(
    tmp_path: Path,
    suffix: str,
    names: tuple[str, str],
    found: list[str],
    reason: str,
    advice: str | None,
) -> None:
    path, record = tmp_path / f"a.{suffix}", dict.fromkeys(found, "x")
    if suffix == "parquet":
        pq.write_table(pa.table({name: ["x"] for name in found}), path)
    else:
        path.write_text(json.dumps(record) if suffix == "jsonl" else f"{','.join(found)}\n")
    with pytest.raises(DataError) as caught:
        read(path, PromptText(*names))
    what = "field" if suffix == "jsonl" else "column"
    assert caught.value.message.endswith(f": no {what} {reason}")
    other = SKIP_HINT if suffix == "jsonl" else None
    assert caught.value.hint == (f"pass {advice}" if advice else other)


MESSAGES = [{"role": "user", "content": "Hi"}]
RECORD = {"id": "x", "chat": MESSAGES}
PROPOSED = "pass --messages-field chat"


@pytest.mark.parametrize(
    ("record", "reader", "hint"),
    [
        (RECORD, FieldText("text"), PROPOSED),
        ({"chat": [{"from": "human", "value": "Hi"}]}, FieldText("chat"), PROPOSED),
        ({**RECORD, "text": "a"}, FieldText("body"), "pass --text-field text"),
        (RECORD, PAIR, PROPOSED),
        ({"q": MESSAGES, "a": MESSAGES}, PAIR, JOIN_HINT),
        ({"ids": ["x"] * 9, "chat": MESSAGES}, Values(), PROPOSED),
    ],
)
def test_hint_names_the_field_of_a_conversation(
    tmp_path: Path, record: dict[str, Any], reader: TextReader, hint: str
) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps(record))
    pq.write_table(
        pa.table({name: [value] for name, value in record.items()}), tmp_path / "a.parquet"
    )
    for name in ("a.jsonl", "a.parquet"):
        with pytest.raises(DataError) as caught:
            read(tmp_path / name, reader)
        assert caught.value.hint == hint


def test_hint_names_the_conversation_where_another_field_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps(RECORD | {"id": None}))
    with pytest.raises(DataError) as caught:
        read(tmp_path / "a.jsonl", Values(("id",)))
    assert caught.value.hint == PROPOSED
    (tmp_path / "a.jsonl").write_text(json.dumps({"id": None, "chat": []}))
    with pytest.raises(DataError) as caught:
        read(tmp_path / "a.jsonl", Values(("id",)))
    assert caught.value.hint == SKIP_HINT


def test_hint_about_messages_names_a_list(tmp_path: Path) -> None:
    lines = ['{"id": "a long text", "chat": [{}, {}], "tags": ["x"]}']
    with pytest.raises(DataError) as caught:
        read_lines(tmp_path, lines, Values(), STOP)
    assert caught.value.hint == "pass --messages-field chat"
    pq.write_table(pa.table({"id": ["x"], "chat": [[{"role": "user"}]]}), tmp_path / "a.parquet")
    with pytest.raises(DataError) as caught:
        read(tmp_path / "a.parquet", Values())
    assert caught.value.hint == "pass --messages-field chat"


# The fast path equals the slow path


@settings(max_examples=150)
@given(lines=st.lists(json_lines(), min_size=1, max_size=3))
@example(lines=['{"text": "t", "id": "x", "a": {"b": "y"}, "id": "x"}'])
@example(lines=['{"text": "t", "id": [{"x": 1, "x": 1}], "a": {"b": ""}}'])
@example(lines=['{"text": "t", "id": [18446744073709551616], "a": {"b": ""}}'])
@pytest.mark.parametrize(
    "text",
    [PromptText("text", "a.b"), Values(("id",), ("--messages-field",), ("a.b", "b"))],
    ids=["prompt", "values"],
)
def test_fast_path_equals_the_slow_path(text: TextReader, lines: list[str]) -> None:
    def read_each() -> list[Any]:
        found = []
        for line in lines:
            try:
                found.append(read_json_record(line, text, ()))
            except BadRecordError as error:
                found.append(error.reason)
        return found

    records = [line.encode() for line in lines]
    slow = read_each()
    found = [read_json_records(records, text, ())]
    with without_orjson():
        assert read_each() == slow
        found.append(read_json_records(records, text, ()))
    for quick in filter(None, found):
        rows = zip(quick[0], zip(*quick[1], strict=True), strict=True)
        assert spell([(made, list(values)) for made, values in rows]) == spell(slow)


# Lists of structs in Parquet


def test_structs_arrive_without_the_keys_that_only_their_type_has(tmp_path: Path) -> None:
    messages = [
        [{"role": "user", "content": "hi", "n": None}, {"role": "assistant", "n": 0, "b": False}],
        [{"role": "tool", "content": None, "calls": [{"name": "f", "args": None}, None]}],
        [],
    ]
    columns = {"messages": messages, "id": ["a", "b", "c"]}
    found = list(map(json.loads, read_rows(tmp_path, columns, Values())))
    assert found == [
        [[{"role": "user", "content": "hi"}, {"role": "assistant", "n": 0, "b": False}], None],
        [[{"role": "tool", "calls": [{"name": "f"}, None]}], None],
        [[], None],
    ]


def test_tools_that_some_files_and_rows_lack_are_null(tmp_path: Path) -> None:
    columns = {"messages": [[{"a": "x"}], [{"a": "y"}]], "tools": [None, [{"name": "f"}]]}
    found = read_rows(tmp_path, columns, Values())
    assert found == ['[[{"a": "x"}], null]', '[[{"a": "y"}], [{"name": "f"}]]']


def test_maps_become_objects_and_null_stays_in_a_json_record(tmp_path: Path) -> None:
    kind = pa.list_(pa.struct([("args", pa.map_(pa.string(), pa.string()))]))
    maps = [
        [{"args": [("k", None), ("l", "v")]}],
        [{"args": []}],
        [{"args": [("k", ""), ("k", "")]}],
    ]
    found = read_rows(tmp_path, {"messages": pa.array(maps, kind)}, Values())
    assert found == ['[[{"args": {"k": null, "l": "v"}}], null]', '[[{"args": {}}], null]', None]
    lines = ['{"messages": [{"content": null}]}']
    assert read_lines(tmp_path, lines, Values())[0] == ['[[{"content": null}], null]']


def test_null_among_conversations_is_a_bad_row(tmp_path: Path) -> None:
    columns = {"messages": [[{"a": "x", "b": None}], None, [{"a": "y", "b": "z"}]]}
    found = read_rows(tmp_path, columns, Values())
    assert found == ['[[{"a": "x"}], null]', None, '[[{"a": "y", "b": "z"}], null]']


def test_one_long_conversation_is_above_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    messages = [[{"a": "x"}]] * 50 + [[{"a": "y" * 500}, {"a": "z" * 500}]]
    pq.write_table(pa.table({"messages": messages}), path)
    with pytest.raises(DataError, match=r"a\.parquet:51: document larger than 999 bytes"):
        read(path, Values(), DocumentOptions(max_document_bytes=999))
    assert len(read(path, Values(), DocumentOptions(max_document_bytes=1000))[0]) == 51


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pa.array([[b"x"]]), "list<element: binary>"),
        (pa.array([[{"at": 1}]], pa.list_(pa.struct([("at", pa.date32())]))), "date32"),
        (pa.array([[[(1, 2)]]], pa.list_(pa.map_(pa.int32(), pa.int32()))), "map<int32"),
    ],
    ids=["bytes", "date", "map"],
)
def test_values_that_json_has_not_are_refused(tmp_path: Path, column: Any, kind: str) -> None:
    path = tmp_path / "a.parquet"
    for columns in ({"messages": column}, {"messages": [[]], "tools": column}):
        pq.write_table(pa.table(columns), path)
        with pytest.raises(DataError) as caught:
            read(path, Values())
        assert kind in caught.value.message
        assert caught.value.message.endswith(
            "expected strings, numbers, booleans, and lists, structs or maps of them"
        )
