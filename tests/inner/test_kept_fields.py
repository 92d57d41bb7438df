"""The values of kept fields arrive beside their texts, from every format."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from seqpack_cli.corpus.UNKNOWN_documents import iter_documents
from seqpack_cli.corpus.UNKNOWN_field_samples import sample_values
from seqpack_cli.corpus.UNKNOWN_json_fields import read_json_record, read_json_records
from seqpack_cli.corpus.UNKNOWN_kept_fields import Readers
from test_json_lines import without_orjson

from seqpack_cli import TokenizeOptions, tokenize
from seqpack_cli.corpus.checks import check_kept_fields
from seqpack_cli.corpus.fields import BadRecordError, FieldText
from seqpack_cli.corpus.options import DocumentOptions
from seqpack_cli.corpus.records import Reject
from seqpack_cli.corpus.sources import Source, SourceRange
from seqpack_cli.errors import DataError, OptionError
from seqpack_cli.tokens.columns.kind import Field
from seqpack_cli.tokens.columns.kinds import KINDS

SKIP_HINT = "fix the record and add --overwrite, or pass --on-bad-record skip"
STOP = DocumentOptions()
SKIP = DocumentOptions(on_bad_record="skip")

TEXT = FieldText("text", takes_words=True)


@dataclass(frozen=True)
class Anything:
    """Reads any value but null, one by one where one of a block is null."""

    name: str
    reads_words: bool = False

    def read_all(self, values: list[Any], texts: list[Any]) -> list[Any] | None:
        del texts
        return None if None in values else values

    def read(self, value: Any, text: Any) -> Any:
        del text
        if value is None:
            raise BadRecordError(f"field {self.name!r} is null")
        return value

    def parse(self, spelled: str) -> str:
        return spelled


def read(
    path: Path, readers: Readers, options: DocumentOptions = STOP
) -> tuple[list[str], list[list[Any]], list[Reject]]:
    """Return the texts, the values of each field, and the rejects of a file."""
    file_format = {"txt": "text", "tsv": "csv"}.get(path.suffix[1:], path.suffix[1:])
    unit = {"text": "file", "jsonl": "line"}.get(file_format, "row")
    source = Source(str(path), file_format, unit, path.stat().st_size)
    whole = SourceRange(0, source, 0, source.num_bytes)
    blocks = list(iter_documents(whole, options, lambda _: None, readers))
    columns = [
        [value for block in blocks for value in block.fields[n]] for n in range(len(readers))
    ]
    texts = [text for block in blocks for text in block.texts]
    assert all(len(values) == len(texts) for values in columns)
    return texts, columns, [reject for block in blocks for reject in block.rejects]


def read_lines(
    path: Path, lines: Sequence[str], readers: Readers, options: DocumentOptions = SKIP
) -> tuple[list[str], list[list[Any]], list[Reject]]:
    path = path / "a.jsonl"
    path.write_text("\n".join(lines), errors="surrogatepass")
    return read(path, readers, options)


def kind(spelled: str) -> Any:
    """Return the reader of a column, "NAME:KIND"."""
    name, _, kind_name = spelled.partition(":")
    return KINDS[kind_name].make_reader(Field(name))


# JSON lines: the fast path equals the slow path, with orjson and without

NUMBERS = [
    *("0", "-0", "-0.0", "1", "1.0", "1E5", "1e400", "-1e400", "NaN", "Infinity", "1e19"),
    *(
        str(sign * 2**bits + more)
        for bits in (53, 63, 64)
        for sign in (1, -1)
        for more in (-1, 0, 1)
    ),
    *("7" * 25, "7" * 308, "7" * 400, "7" * 5000, "1.7976931348623159e308", "5e-324", "1e-400"),
]
STRINGS = [
    *('""', '"a"', '"id"', '"\\"id\\""', '"\\u0022id\\u0022"', '"\\\\u0022"', '"\\u005cu0022"'),
    *('"\\ud800"', '"\\ud834\\udd1e"', '"\\u0000"', '"a.b"', '"é"', '"\\/"'),
]
KEYS = ['"id"', '"id"', '"a"', '"b"', '"a.b"', '"text"', '"\\u0069d"', '"a\\u002eb"']
FIELDS = ("id", "a.b")


def json_values() -> st.SearchStrategy[str]:
    flat = st.sampled_from([*NUMBERS, *STRINGS, "null", "true"])
    return st.recursive(flat, _lists_and_objects, max_leaves=4)


def _lists_and_objects(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pairs = st.tuples(st.sampled_from(KEYS), inner).map(":".join)
    lists = st.lists(inner, max_size=3).map(lambda items: f"[{','.join(items)}]")
    return st.one_of(lists, st.lists(pairs, max_size=3).map(lambda items: f"{{{','.join(items)}}}"))


def json_lines() -> st.SearchStrategy[str]:
    """Objects that often have all fields, and some fields twice."""
    value = json_values()
    usual = st.tuples(value, value).map(
        lambda pair: ['"text": "t"', f'"id": {pair[0]}', f'"a": {{"b": {pair[1]}}}']
    )
    more = st.lists(st.tuples(st.sampled_from(KEYS), value).map(": ".join), max_size=2)
    return st.tuples(usual, more, st.randoms()).map(_shuffle)


def _shuffle(parts: tuple[list[str], list[str], Any]) -> str:
    pairs = [*parts[0], *parts[1]]
    parts[2].shuffle(pairs)
    return f"{{{', '.join(pairs)}}}"


def spell(found: object) -> str:
    """Tell 1 from 1.0 and True, and 0.0 from -0.0."""
    return repr(found)


@settings(max_examples=300)
@given(lines=st.lists(json_lines(), min_size=1, max_size=3))
@example(lines=['{"text": "t", "id": 1, "id": 2, "a": {"b": "\\u0022 \\u0022"}}'])
@example(lines=['{"text": "t", "id": 1, "a": {"b": 1}, "a\\u002eb": 2}'])
@example(lines=['{"text": "t", "id": [1, {"x": 18446744073709551616}], "a": {"b": 1}}'])
def test_fast_path_has_the_values_of_the_slow_path(lines: list[str]) -> None:
    readers = [Anything(name) for name in FIELDS]
    records = [line.encode() for line in lines]
    found = [read_json_records(records, TEXT, readers)]
    with without_orjson():
        found.append(read_json_records(records, TEXT, readers))
    for quick in filter(None, found):
        slow = [read_json_record(line, TEXT, readers) for line in lines]
        rows = zip(quick[0], zip(*quick[1], strict=True), strict=True)
        assert spell([(text, list(values)) for text, values in rows]) == spell(slow)


@settings(max_examples=100)
@given(lines=st.lists(json_lines(), min_size=1, max_size=3))
def test_files_have_the_same_values_without_orjson(tmp_path: Path, lines: list[str]) -> None:
    readers = [kind("id:int"), kind("a.b:text")]
    found = read_lines(tmp_path, lines, readers)
    with without_orjson():
        assert spell(read_lines(tmp_path, lines, readers)) == spell(found)


@pytest.mark.parametrize(
    "line",
    [
        '{"text": "t", "id": 1, "a": {"b": "x"}}',
        '{"text": "t", "id": 1, "user": {"id": 2, "text": "u"}, "a": {"b": ["id", "id"]}}',
        '{"text": "say \\"id\\" \\u00e9", "id": 1, "a.b": "x"}',
    ],
)
def test_plain_records_are_read_at_once(line: str) -> None:
    """A nested key of the same name, which is common, does not slow a block down."""
    assert read_json_records([line.encode()] * 2, TEXT, [Anything("id"), Anything("a.b")])


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"text": "t", "a.b": 1, "a": {"b": 2}}', 1),
        ('{"text": "t", "a": {"b": 2, "c": {"b": 3}}}', 2),
        ('{"text": "t", "a": {"b": 12345678901234567890123}}', 12345678901234567890123),
        ('{"text": "t", "a": {"b": -0.0}}', -0.0),
        ('{"text": "t", "a": {"b": NaN}, "x": 1}', float("nan")),
        ('{"text": "t", "a": {"b": [1, true, "x"]}}', [1, True, "x"]),
    ],
)
def test_nested_field_arrives_as_json_has_it(tmp_path: Path, line: str, expected: Any) -> None:
    assert spell(read_lines(tmp_path, [line], [Anything("a.b")])[1]) == spell([[expected]])


# JSON lines: bad records


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ('"x": 1', "no field 'id' (found: 'text', 'x')"),
        ('"id": null', "field 'id' is null, expected an integer"),
        ('"id": "7"', "field 'id' is '7', expected an integer"),
        ('"id": 1.0', "field 'id' is 1.0, expected an integer"),
        ('"id": true', "field 'id' is true, expected an integer"),
        ('"id": [1]', "field 'id' is a list, expected an integer"),
        (
            '"id": 9223372036854775808',
            "field 'id' is 9223372036854775808, "
            "expected an integer from -9223372036854775808 to 9223372036854775807",
        ),
        ('"id": 1, "id": 1', "duplicate key 'id' in an object"),
        ('"id": 1, "\\u0069d": 2', "duplicate key 'id' in an object"),
        ('"id": "\\ud800"', "field 'id' has the lone surrogate \\ud800, expected Unicode text"),
    ],
)
def test_bad_value_is_an_error_or_rejects_its_record(
    tmp_path: Path, fields: str, reason: str
) -> None:
    good = '{"text": "t", "id": 5}'
    lines = [good, "", f'{{"text": "bad", {fields}}}', good]
    path, byte = tmp_path / "a.jsonl", len(good) + 2
    found = read_lines(tmp_path, lines, [kind("id:int")])
    assert found == (["t", "", "", "t"], [[5, None, None, 5]], [Reject(2, byte, reason)])
    with pytest.raises(DataError) as caught:
        read(path, [kind("id:int")])
    hint = "pass --keep id:float" if "1.0" in reason else SKIP_HINT
    assert (caught.value.message, caught.value.hint) == (f"{path}:3: {reason}", hint)


LONG = '"\u00e9' * 3000  # so few records in a chunk that their texts are not written again


@pytest.mark.parametrize("spell", [json.dumps, lambda text: json.dumps(text, ensure_ascii=False)])
@pytest.mark.parametrize("twice", ['"id": 6', '"text": ""', '"x": 1, "x": 2'])
def test_a_key_that_is_lost_beside_a_long_text_is_found(
    tmp_path: Path, spell: Callable[[str], str], twice: str
) -> None:
    text = spell(LONG).replace('\\"', "\\u0022", 3)
    good, bad = (f'{{"id": 5, "text": {text}{more}}}' for more in ("", f", {twice}"))
    readers = [kind("id:int"), kind("text:text")]
    found = read_lines(tmp_path, [good, bad, good], readers)
    is_bad = not twice.startswith('"x"')  # other keys may be there twice, as without kept fields
    assert found[0] == [LONG, "" if is_bad else LONG, LONG]
    assert found[1] == [[5, None if is_bad else 5, 5], [LONG, None if is_bad else LONG, LONG]]
    assert len(found[2]) == is_bad


# Lists of words


def test_words_are_joined_and_handed_to_the_readers(tmp_path: Path) -> None:
    seen: list[Any] = []

    class Reader(Anything):
        def read_all(self, values: list[Any], texts: list[Any]) -> list[Any]:
            seen.extend(texts)
            return values

    lines = [
        '{"text": ["New", "York"], "id": 1}',
        '{"text": [], "id": 2}',
        '{"text": "a", "id": 3}',
    ]
    found = read_lines(tmp_path, lines, [Reader("id", reads_words=True)])
    assert found == (["New York", "", "a"], [[1, 2, 3]], [])
    assert seen == [["New", "York"], [], "a"]


@pytest.mark.parametrize(
    ("text", "reads_words", "reason"),
    [
        ('["a", null]', True, "field 'text': word 2 is null, expected a string"),
        ('["a", ["b"]]', True, "field 'text': word 2 is a list, expected a string"),
        ('["\\ud800"]', True, "field 'text' has the lone surrogate \\ud800, expected Unicode text"),
        ('{"a": 1}', True, "field 'text' is an object, expected a string or a list of words"),
        ('["a"]', False, "field 'text' is a list, expected a string"),
    ],
)
def test_wrong_words_are_a_bad_record(
    tmp_path: Path, text: str, reads_words: bool, reason: str
) -> None:
    line = f'{{"text": {text}, "id": 1}}'
    for _ in range(2):
        found = read_lines(tmp_path, [line], [Anything("id", reads_words)])
        assert found == ([""], [[None]], [Reject(0, 0, reason)])
        with without_orjson():
            assert read_lines(tmp_path, [line], [Anything("id", reads_words)]) == found


# The folder of a file


def test_folder_is_that_of_the_absolute_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "de").mkdir()
    (tmp_path / "de" / "a.txt").write_text("hallo\nwelt")
    monkeypatch.chdir(tmp_path / "de")
    assert read(Path("a.txt"), [kind("folder:class")]) == (["hallo\nwelt"], [["de"]], [])
    manifest, _ = tokenize(
        [str(tmp_path / "de")],
        tmp_path / "store",
        TokenizeOptions(document="file", keep=["folder:class"]),
    )
    column = {"name": "folder", "kind": "class", "dtype": "int32", "class_names": ["de"]}
    assert manifest["columns"] == [column]


def test_file_that_is_rejected_has_no_folder(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xff")
    options = DocumentOptions(encoding_errors="skip")
    found = read(path, [kind("folder:class")], options)
    assert found == ([""], [[None]], [Reject(0, 0, "byte 0xff, expected UTF-8")])


FILE = Source("in/a.txt", "text", "file", 1)
LINES = Source("in/a.jsonl", "jsonl", "line", 1)


@pytest.mark.parametrize("names", [[], ["label"], ["folder", "id"]])
def test_records_may_have_any_field(names: list[str]) -> None:
    check_kept_fields([LINES, Source("a.csv", "csv", "row", 1)], names)
    check_kept_fields([FILE], names and ["folder"])


@pytest.mark.parametrize(
    ("sources", "names", "message"),
    [
        ([FILE], ["label"], "--keep label: in/a.txt is text, whose one field is folder"),
        ([LINES, FILE], ["label"], "--keep label: in/a.txt is text, whose one field is folder"),
        (
            [FILE._replace(document="line")],
            ["folder"],
            "--keep folder: in/a.txt is text, which has no fields",
        ),
        ([FILE, LINES], ["folder"], "--keep folder: in/a.txt is text, other files are not"),
        (
            [FILE._replace(path="-")],
            ["folder"],
            "--keep folder: the text is from standard input, expected a file",
        ),
    ],
)
def test_text_has_no_fields(sources: list[Source], names: list[str], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        check_kept_fields(sources, names)
    assert caught.value.message == message


# The first records


def test_sample_has_the_values_of_the_first_records(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a", "x": 1}\n{"text": "b"}\n{"text": ["c"], "x": null}\n' * 5)
    source = Source(str(path), "jsonl", "line", path.stat().st_size)
    missing = Source(str(tmp_path / "gone.txt"), "text", "file", 1)
    assert sample_values([source], SKIP, ["x"], limit=4) == [[1, None, None, 1]]
    assert sample_values([missing], SKIP, ["folder"]) == [[tmp_path.name]]
    assert sample_values([], SKIP, ["x", "y"]) == [[], []]
    with pytest.raises(DataError, match=":2: no field 'x'"):
        sample_values([source], DocumentOptions(), ["x"])
