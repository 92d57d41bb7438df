"""JSON lines and .json arrays as tokenize reads them, compared with Python's json."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from documents import Text, draw_part_bytes, draw_text, read, refused, write, write_packed

from seqpack_cli import (
    DataError,
    DocumentOptions,
    OptionError,
    TrainTokenizerOptions,
    train_tokenizer,
)

MARK = b"\xef\xbb\xbf"
FIELDS = ("text", "a.b", "é", 'q"/', "a.text")
# What stands in files beside records: none has a text.
SPELLED = rb"""[] | "text" | 7 | null | true | { | {} | {"text": "a"} x | } | {'text': 1}"""
SPELLED += (
    rb""" | {"text": "a" | {"text": "\x"} | {"text": "\u12"} | {"text": 01} | {"text": "a",}"""
)
SPELLED += rb""" | {"text" "a"} | [{"text": "a"}] | {"text": nul}"""
DEEP = b'{"text": ' + b"[" * 50_000 + b"]" * 50_000 + b"}"
NO_RECORDS = (
    *SPELLED.split(b" | "),
    b'{"text": "a\tb"}',
    b"[" * 100_000,
    b'{"text": "\\ud800"}',
    DEEP,
)
BAD_VALUES = (None, True, 3, 1.5, [], ["a"], {}, {"b": 1}, [{"role": "user"}])
OTHER_VALUES = json.loads('[0, -1, 9007199254740993, 0.1, 1e300, null, "\\"a.b", [1], {"é": {}}]')


def find_field(record: dict[str, Any], name: str) -> Any:
    """Return a field by its whole name, or by a path of keys."""
    if name in record:
        return record[name]
    for key in name.split("."):
        record = record[key]
    return record


def read_record(record: bytes, field: str, policy: str) -> tuple[Text, int]:
    """Return a text, None for a bad record, and which of its bytes is wrong."""
    try:
        line = record.decode(errors="replace" if policy == "replace" else "strict")
    except UnicodeDecodeError as error:
        return None, error.start
    try:
        text = find_field(json.loads(line), field) if line.strip() else ""
        if isinstance(text, str):
            text.encode()
            return text, 0
    except (ValueError, TypeError, KeyError, RecursionError):  # a lone surrogate too
        pass
    return None, 0


def spell(value: Any, rng: random.Random) -> str:
    """Write JSON in one of its spellings."""
    spelled = json.dumps(
        value,
        ensure_ascii=rng.random() < 0.5,
        separators=rng.choice([(",", ":"), (", ", ": "), (" , ", "\t:  ")]),
    )
    if rng.random() < 0.2:
        spelled = spelled.replace("/", "\\/").replace("é", "\\u00E9")
    return spelled


def make_record(field: str, value: Any, rng: random.Random) -> dict[str, Any]:
    """Return a record with a value in a field, and others beside it."""
    others = {f"k{number}": rng.choice(OTHER_VALUES) for number in range(rng.randint(0, 3))}
    if "." in field and rng.random() < 0.7:
        outer, inner = field.split(".")
        pair = {outer: {"k": 1, inner: value, "other": field}}
    else:
        pair = {field: value}
        if "." in field and rng.random() < 0.5:
            pair[field.split(".")[0]] = {field.split(".")[1]: "the path comes second"}
    items = [*others.items(), *pair.items()]
    rng.shuffle(items)
    return dict(items)


def draw_line(field: str, rng: random.Random) -> bytes:
    """Return a line without its end."""
    kind = rng.random()
    if kind < 0.1:
        return rng.choice([b"", b" ", b"\t \r", b"\r"])
    if kind < 0.2:
        return rng.choice(NO_RECORDS[:-2])
    value = draw_text(rng) if kind < 0.75 else rng.choice([*BAD_VALUES, "\x7f\u2028"])
    record = make_record(field if kind < 0.85 else rng.choice(FIELDS), value, rng)
    line = rng.choice(["", "", " "]) + spell(record, rng) + rng.choice(["", "", "\t", "\r"])
    raw = line.encode(errors="surrogatepass")
    if kind > 0.9:
        place = rng.randint(0, len(raw))
        raw = raw[:place] + rng.choice([b"\xff", b"\xc3"]) + raw[place:]
    return raw.replace(b"\n", b" ")


def read_lines(data: bytes, field: str, policy: str) -> tuple[list[Text], list[tuple[int, int]]]:
    """Return the text of each line, and the number and the byte of each bad one."""
    texts: list[Text] = []
    bad = []
    start = 0
    lines = data.split(b"\n")
    for line in lines if lines[-1] else lines[:-1]:
        has_mark = start == 0 and line.startswith(MARK)
        text, byte = read_record(line[3 * has_mark :], field, policy)
        texts.append(text)
        if text is None:
            bad.append((len(texts), start + byte + 3 * (has_mark and byte > 0)))
        start += len(line) + 1
    return texts, bad


def check_random_lines(folder: Path, seed: int, num_files: int) -> None:
    rng = random.Random(seed)
    field, policy = rng.choice(FIELDS), rng.choice(["replace", "skip"])
    plain = {write(folder / "z.jsonl", token := json.dumps({field: "a token"}).encode()): token}
    for number in range(num_files):
        lines = [draw_line(field, rng) for _ in range(rng.choice([1, 2, 8, 30]))]
        data = MARK * (rng.random() < 0.2) + b"\n".join(lines) + b"\n" * rng.randint(0, 1)
        name = f"{number}{rng.choice(['.jsonl', '.ndjson', '.JSONL.gz'])}"
        plain[write_packed(folder / name, data)] = data
    options = {"text_field": field, "encoding_errors": policy, "on_bad_record": "skip"}
    part_bytes = draw_part_bytes(sum(map(len, plain.values())), rng)
    found = read(folder, plain, part_bytes=part_bytes, **options)
    rejects = []
    for path, data in plain.items():
        texts, bad = read_lines(data, field, policy)
        assert found.texts[path] == texts, path
        rejects += [(path, *pair) for pair in bad]
    assert found.rejects == rejects


@pytest.mark.parametrize("seed", range(30))
def test_random_lines_are_read_as_by_plain_python(tmp_path: Path, seed: int) -> None:
    check_random_lines(tmp_path, seed, 6)


def test_random_lines_are_read_the_same_in_tiny_blocks(tmp_path: Path, tiny: int) -> None:
    for seed in range(3):
        check_random_lines(tmp_path / str(seed), seed, 3)


def test_good_lines_may_be_cut_at_every_byte(tmp_path: Path) -> None:
    data = b'{"text": "a"}\r\n\n{"text":"\xc3\xa9 b"}\n  {"x":1,"text":"c"}\n{"text": ""}'
    for room in range(1, len(data), 4):
        before = b"x" * (len(data) - room)
        plain = {write(tmp_path / "a.txt", before): before}
        path = write(tmp_path / "b.jsonl", data)
        found = read(tmp_path, [*plain, path], part_bytes=len(data))
        assert found.texts[path] == ["a", "", "é b", "c", ""]


def test_record_larger_than_a_block_is_whole(tmp_path: Path) -> None:
    texts = ["a" * 10, "é" * 300_000, "b", "c" * 1_200_000 + '"\n', "", "d"]
    records = [json.dumps({"text": text}, ensure_ascii=False).encode() for text in texts]
    lines = write(tmp_path / "a.jsonl", b"\n".join(records))
    array = write(tmp_path / "a.json", b"[\n" + b"\n,".join(records) + b"]")
    assert read(tmp_path, [lines, array]).texts == {lines: texts, array: texts}
    limit = len(records[3])
    for path, line in ((lines, 4), (array, 5)):
        refused(tmp_path, [path], f"{line}: document larger", max_document_bytes=limit - 1)


@pytest.mark.parametrize("seed", range(6))
def test_fields_are_read_beside_texts(tmp_path: Path, seed: int) -> None:
    """Kept values and those of a text of two fields, in blocks and record by record."""
    rng = random.Random(seed)
    records, expected = [], []
    for number in range(60):
        values = {
            "n": rng.choice([0, -5, 2**53 + 1, -(2**63), 2**63 - 1, number]),
            "f": rng.choice([0, 1.5, -1e-300, 2**60, 1e300, float(2**70), number]),
            "s": draw_text(rng),
            "c": rng.choice(["x", "y, z", ""]),
            "b": rng.random() < 0.5,
        }
        record: dict[str, Any] = {"text": f"{number}", "in": {"n": values.pop("n")}, **values}
        is_bad = rng.random() < (0.1 if seed % 2 else 0)
        if is_bad:
            bad = {"f": [None, "1", True], "s": [None, 1, "\ud800"], "c": [1, None], "b": [0, "t"]}
            name = rng.choice([*bad, "in", "text"])
            record[name] = rng.choice(bad.get(name, [{"n": 2**63}, {"n": 1.5}, {"m": 1}, 3, None]))
            if rng.random() < 0.3:
                del record[name]
        records.append(record)
        expected.append(None if is_bad else [record["in"]["n"], *values.values()])
    keep = ["in.n:int", "f:float", "s:text", "c:class", "b:class"]
    data = "\n".join(spell(record, rng) for record in records).encode(errors="surrogatepass")
    path = write(tmp_path / "a.jsonl", data)
    options = {"on_bad_record": "skip", "encoding_errors": "skip"}
    part_bytes = draw_part_bytes(len(data), rng)
    found = read(tmp_path, [path], keep=keep, part_bytes=part_bytes, **options)
    good = [values for values in expected if values is not None]
    assert [text is None for text in found.documents] == [values is None for values in expected]
    columns = [found.column(name.partition(":")[0]) for name in keep]
    assert list(map(list, zip(*columns, strict=True))) == good


@pytest.mark.parametrize("seed", range(4))
def test_prompts_and_completions_are_read_together(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    records: list[dict[str, Any]] = [
        {"x": {"q": draw_text(rng, 5)}, "a": draw_text(rng, 5) + "t", "k": number}
        for number in range(30)
    ]
    expected: list[Text] = [record["x"]["q"] + record["a"] for record in records]
    bad = rng.sample(range(30), seed % 4)
    for number in bad:
        name = rng.choice(["x", "a"])
        records[number][name] = rng.choice([None, 1, {"q": 2}, {}, ["t"]])
        expected[number] = None
    lines = "\n".join(spell(record, rng) for record in records)
    files = {"a.jsonl": lines, "b.json": json.dumps(records)}
    paths = [write(tmp_path / name, data.encode()) for name, data in files.items()]
    options = {"prompt_field": "x.q", "completion_field": "a", "keep": ["k:int"]}
    found = read(tmp_path, paths, on_bad_record="skip", **options)
    assert found.texts == dict.fromkeys(paths, expected)
    assert found.column("k") == [n for n in range(30) if n not in bad] * 2
    targets = sum(len(r["a"].encode()) for n, r in enumerate(records) if n not in bad)
    assert found.manifest["ledger"]["num_target_tokens"] == targets * 2


def test_last_of_equal_keys_counts(tmp_path: Path) -> None:
    lines = [b'{"text": "a", "text": "b", "k": 1, "k": 2}']
    lines.append(b'{"text": 1, "text": "c", "k": "x", "k": 3}')
    array = b"[" + b",".join(lines) + b"]"
    for name, data in (("a.jsonl", b"\n".join(lines)), ("a.json", array)):
        found = read(tmp_path, [write(tmp_path / name, data)], keep=["k:int"])
        assert (found.documents, found.column("k")) == (["b", "c"], [2, 3])


@pytest.mark.parametrize("number", [2**63, -(2**63) - 2**12, 10**20, 1e19])
def test_class_numbers_beyond_64_bits_are_bad_records(tmp_path: Path, number: float) -> None:
    lines = [json.dumps({"text": "a", "k": k}).encode() for k in (5, number, 2**63 - 1)]
    path = write(tmp_path / "a.jsonl", b"\n".join(lines))
    refused(tmp_path, [path], "2: field 'k' is ", keep=["k:class"])
    found = read(tmp_path, [path], keep=["k:class"], on_bad_record="skip")
    assert found.documents == ["a", None, "a"]


# One bad record


def test_lines_that_are_no_records_are_named_or_skipped(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    for line in NO_RECORDS:
        write(path, b'{"text": "a"}\r\n\n' + line + b'\n{"text": "b"}\n')
        refused(tmp_path, [path], "3: ", encoding_errors="skip")
    write(path, b'{"text": "a"}\n' + b"\n".join(NO_RECORDS) + b'\n{"text": "b"}')
    found = read(tmp_path, [path], on_bad_record="skip")
    assert found.documents == ["a", *[None] * len(NO_RECORDS), "b"]
    starts = [14 + sum(map(len, NO_RECORDS[:number])) + number for number in range(len(NO_RECORDS))]
    assert found.rejects == [(str(path), number, byte) for number, byte in enumerate(starts, 2)]


@pytest.mark.parametrize("value", BAD_VALUES, ids=repr)
def test_value_that_is_no_text_is_named_or_skipped(tmp_path: Path, value: Any) -> None:
    path = write(tmp_path / "a.jsonl", json.dumps({"a": {"b": value}}).encode() + b'\n{"a.b":"x"}')
    assert refused(tmp_path, [path], "1: field 'a.b' ", text_field="a.b").hint
    found = read(tmp_path, [path], text_field="a.b", on_bad_record="skip")
    assert found.documents == [None, "x"]


@pytest.mark.parametrize(
    ("record", "option", "hint"),
    [
        ({"id": "x", "body": "the longest", "z": 9}, {}, "pass --text-field body"),
        ({"id": 1}, {}, "on-bad-record skip"),
        ({"m y": "abc"}, {}, "pass --text-field 'm y'"),
        ({"chat": [{"role": "user", "content": "a"}]}, {}, "pass --messages-field chat"),
        ({"chat": [{"from": "human"}], "body": "x"}, {}, "pass --messages-field chat"),
        ({"text": [{"role": "user"}]}, {}, "pass --messages-field text"),
        ({"text": "x", "m": [{"role": "u"}]}, {"text_field": "body"}, "pass --text-field text"),
        ({"text": "x", "long": "the longest"}, {"text_field": "body"}, "pass --text-field text"),
        ({"text": ["a", "b"]}, {}, "join the words"),
        ({"text": "a", "lable": 1}, {"keep": ["label:int"]}, "pass --keep lable"),
        ({"text": "a", "x": 1}, {"keep": ["label:int"]}, "on-bad-record skip"),
        (
            {"question": "a", "answer": "b"},
            {"prompt_field": "question", "completion_field": "answers"},
            "pass --completion-field answer",
        ),
        (
            {"question": "abc", "a": "b"},
            {"prompt_field": "question", "completion_field": "reply"},
            "pass --completion-field a",
        ),
        ([{"text": "a"}], {}, "--format json"),
        (["a"], {}, '{"text": …}'),
        ("a", {}, '{"text": …}'),
    ],
)
def test_hint_names_the_option_to_change(
    tmp_path: Path, record: Any, option: dict[str, Any], hint: str
) -> None:
    path = write(tmp_path / "a.jsonl", json.dumps(record).encode())
    assert hint in str(refused(tmp_path, [path], **option).hint)


def test_lines_of_an_array_that_is_named_wrongly_have_a_hint(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", b'[\n{"text": "a"},\n{"text": "b"}\n]\n')
    assert "--format json" in str(refused(tmp_path, [path], "1: not JSON").hint)
    assert read(tmp_path, [path], file_format="json").documents == ["a", "b"]


# Arrays


def draw_value(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.random()
    if kind < 0.25 and depth < 4:
        return [draw_value(rng, depth + 1) for _ in range(rng.randint(0, 3))]
    if kind < 0.5 and depth < 4:
        return {draw_text(rng, 2): draw_value(rng, depth + 1) for _ in range(rng.randint(0, 3))}
    return draw_text(rng) if kind < 0.9 else rng.choice(OTHER_VALUES)


def spell_array(elements: list[str], rng: random.Random) -> tuple[bytes, list[int]]:
    """Return an array with any blanks between its elements, and the byte of each."""
    blanks = ["", "", " ", "\n", "\r\n  ", "\t"]
    data = rng.choice(["", "", "\ufeff"]) + rng.choice(blanks) + "[" + rng.choice(blanks)
    starts = []
    for number, element in enumerate(elements):
        data += rng.choice(blanks) + "," + rng.choice(blanks) if number else ""
        starts.append(len(data.encode()))
        data += element
    return (data + rng.choice(blanks) + "]" + rng.choice(blanks)).encode(), starts


def check_random_arrays(folder: Path, seed: int, num_files: int) -> None:
    rng = random.Random(seed)
    field = rng.choice(FIELDS)
    token = json.dumps([{field: "a token"}]).encode()
    expected: dict[str, list[Text]] = {write(folder / "z.json", token): ["a token"]}
    rejects = []
    for number in range(num_files):
        elements, texts = [], []
        for _ in range(rng.choice([0, 1, 3, 12])):
            value = draw_value(rng)
            if rng.random() < 0.6:
                value = make_record(field, draw_text(rng), rng) | {"more": draw_value(rng)}
            indent = rng.choice([None, None, 1])
            elements.append(json.dumps(value, indent=indent, ensure_ascii=rng.random() < 0.5))
            texts.append(read_record(elements[-1].encode(), field, "error")[0])
        data, starts = spell_array(elements, rng)
        path = write_packed(folder / f"{number}{rng.choice(['.json', '.json.xz', '.JSON'])}", data)
        expected[path] = texts
        rejects += [(path, n + 1, starts[n]) for n, text in enumerate(texts) if text is None]
    total = sum(Path(path).stat().st_size for path in expected)
    options = {"text_field": field, "part_bytes": draw_part_bytes(total, rng)}
    found = read(folder, expected, on_bad_record="skip", **options)
    assert found.texts == expected
    assert found.rejects == rejects


@pytest.mark.parametrize("seed", range(24))
def test_random_arrays_are_read_as_by_plain_python(tmp_path: Path, seed: int) -> None:
    check_random_arrays(tmp_path, seed, 8)


def test_random_arrays_are_read_the_same_in_tiny_blocks(tmp_path: Path, tiny: int) -> None:
    for seed in range(3):
        check_random_arrays(tmp_path / str(seed), seed, 3)


def test_array_may_hold_lines(tmp_path: Path) -> None:
    """A .json file whose second line begins with an object too is JSON lines."""
    data = b'\xef\xbb\xbf\n{"text": "a"}\n\n {"text": "b"}\n'
    for name in ("a.json", "a.json.gz"):
        path = write_packed(tmp_path / name, data)
        assert read(tmp_path, [path]).documents == ["", "a", "", "b"]
    long = json.dumps({"text": "a" * 1_500_000}).encode()
    path = write(tmp_path / "b.json", long + b"\n" + long)
    assert list(map(len, filter(None, read(tmp_path, [path]).documents))) == [1_500_000] * 2


@pytest.mark.parametrize(
    ("data", "said", "hint"),
    [
        (b"", " no JSON", ""),
        (b" \n\n", " no JSON", ""),
        (b'{"text": "a"}', " an object that begins with", "--format jsonl"),
        (b'{\n "text": "a"\n}\n', " an object that begins with", "--format jsonl"),
        (b'{"a": 1}\n[', " an object that begins with", "--format jsonl"),
        (b'{"v": 1, "data": [{"text": "a"}]}', " an object", "jq -c '.data[]'"),
        (b'{"1": "one", "2": "two"}', " an object", "jq -c 'to_entries"),
        (b"text", " a file that begins with", "--format jsonl"),
        (b'[{"text": "a"},\n{"text": "b"', "2: truncated", "copy"),
        (b'[{"text": "a"}', "1: truncated", "copy"),
        (b'[{"text": "a]"}, "', "1: truncated", "copy"),
        (b"[", "1: truncated", "copy"),
        (b"\n[\\", "2: truncated", "copy"),
        (b'[{"text": "a"}}', "1: '}', expected ']'", ""),
        (b"[]\n ]", "2: ']', expected the end", ""),
        (b'[{"text": "a"}]\n\n[]', "3: '[]', expected the end", ""),
        (b'[{"text": "a"}, ]', "1: record 2: nothing between commas", "correct"),
        (b'[, {"text": "a"}]', "1: record 1: nothing between commas", "correct"),
        (b'[\n{"text": "a"\n"b"}]', "2: record 1: not JSON at line 2", "correct"),
        (b'[{"text": "a"} {"text": "b"}]', "1: record 1: not JSON", "correct"),
        (b'[{"text": "a"},\n\n {"text": "b}]', "3: truncated", "copy"),
        (b'["%s"]' % (b"a" * 99), "1: document larger than 90 bytes", "larger"),
        (b'[1, "%s' % (b"a" * 99), "1: document larger than 90 bytes", "larger"),
    ],
)
def test_file_that_is_no_array_is_an_error(
    tmp_path: Path, data: bytes, said: str, hint: str
) -> None:
    good = write(tmp_path / "good.txt", b"good")
    for name in ("a.json", "b.json.gz"):
        inputs = [good, write_packed(tmp_path / name, data)]
        error = refused(tmp_path, inputs, said, on_bad_record="skip", max_document_bytes=90)
        assert hint in str(error.hint)


def test_bad_element_is_named_by_line_and_number(tmp_path: Path) -> None:
    data = b'[{"text": "a"},\n 7, "x, ]",\n{"text": "\xff"}, {"text": "b"}]'
    path = write(tmp_path / "a.json", data)
    options = {"on_bad_record": "skip"}
    refused(tmp_path, [path], "2: record 2: ")
    refused(tmp_path, [path], "3: record 4: byte 0xff", **options)
    found = read(tmp_path, [path], encoding_errors="skip", **options)
    assert found.documents == ["a", None, None, None, "b"]
    assert [byte for *_, byte in found.rejects] == [17, 20, 38]
    assert read(tmp_path, [path], encoding_errors="replace", **options).documents[3] == "\ufffd"


def test_every_cut_of_an_array_is_an_error(tmp_path: Path) -> None:
    data = b'[{"text": "a"}, {"text": "b\\""},\n {"x": [1, {}], "text": "c"}] '
    for end in range(1, len(data) - 1, 3):
        refused(tmp_path, [write(tmp_path / "a.json", data[:end])])


@pytest.mark.parametrize("depth", [10, 200])
def test_what_stands_beside_a_text_may_be_large(tmp_path: Path, depth: int) -> None:
    deep = b"%s1%s" % (b'[{"x":' * depth, b"}]" * depth)
    record = b'{"deep": %s, "n": %s, "k": -1.5E+2, "text": "a"}' % (deep, b"7" * depth)
    paths = [write(tmp_path / "a.jsonl", record), write(tmp_path / "a.json", b"[%s]" % record)]
    assert read(tmp_path, paths).documents == ["a", "a"]


def test_training_reads_the_field_of_records(tmp_path: Path) -> None:
    rng = random.Random(1)
    texts = [draw_text(rng, 9, ["ab", "ba ", "é", "\t", "."]) for _ in range(60)]
    files = {
        "a.txt": "\n".join(texts),
        "a.jsonl": "\n".join(json.dumps({"a": {"b": text}}) for text in texts),
        "a.json": json.dumps([{"a": {"b": text}} for text in texts]),
        "b.jsonl": "\ufeff7\n" + "\n".join(json.dumps({"a.b": text}) for text in texts),
    }
    made = set()
    for name, data in files.items():
        is_text = name.endswith("txt")
        documents = DocumentOptions("text" if is_text else "a.b", on_bad_record="skip")
        options = TrainTokenizerOptions(vocab_size=300, documents=documents)
        output = tmp_path / f"{name}.tokenizer"
        train_tokenizer([write(tmp_path / name, data.encode())], output, options)
        made.add(output.read_bytes())
    assert len(made) == 1
    options = TrainTokenizerOptions(vocab_size=300, documents=DocumentOptions("a.b"))
    with pytest.raises(DataError, match=r"b\.jsonl:1: "):
        train_tokenizer([tmp_path / "b.jsonl"], tmp_path / "t.json", options)
    with pytest.raises(OptionError, match=r"--text-field a\.b: the input is text"):
        train_tokenizer([tmp_path / "a.txt"], tmp_path / "t.json", options)
