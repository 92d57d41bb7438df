"""Token stores: what `tokenize` and `import` write is what the page's writer writes, byte by byte.

The options, the records and what is wrong with some of them are drawn from a seed.
"""

from __future__ import annotations

import contextlib
import json
import pickle
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tokenizers
from command import run
from make_golden import GOLDEN, words_tokenizer_json
from oracle.imports import ImportWriter, write_pair
from oracle.stores import PageStore, Piece, Range, StoreWriter, Token, read_store

from seqpack_cli import (
    CombinedStore,
    DataError,
    DocumentOptions,
    Executor,
    ImportOptions,
    OptionError,
    Progress,
    StoreDataset,
    TargetOptions,
    TokenizeOptions,
    TokenStore,
    export,
    import_store,
    open_store,
    tokenize,
)

HERE = Executor(num_workers=1)
BYTES = (GOLDEN / "v10" / "tokens_bytes" / "tokenizer.json").read_bytes()  # of --tokenizer bytes
Given = dict[str, Any]
OF_DOCUMENTS = ("text_field", "encoding_errors", "on_bad_record", "max_document_bytes")
OF_TARGETS = ("prompt_field", "completion_field", "messages_field", "tools_field", "target_turns")


@dataclass
class Case:
    """Input, a tokenizer and options, drawn from a seed."""

    files: dict[str, bytes]
    tokenizer: Any
    given: Given = field(default_factory=dict)
    template: str | None = None  # of conversations
    render: Callable[[dict[str, Any]], list[Piece]] | None = None  # what it writes
    label: Callable[[str], Any] = str.upper  # of a word
    encoder: str = "tokenizers"

    def tokenize(self, folder: Path, executor: Executor = HERE) -> dict[str, Any]:
        """Write the files into the current folder, and their store."""
        for name, data in self.files.items():
            Path(name).write_bytes(data)
        given = {"tokenizer": self.tokenizer, "encoder": self.encoder, **self.given}
        documents = {name: given.pop(name) for name in OF_DOCUMENTS if name in given}
        targets = {name: given.pop(name) for name in OF_TARGETS if name in given}
        if self.template is not None:
            Path("chat.jinja").write_text(self.template)
            targets["chat_template"] = "chat.jinja"
        given |= {"documents": DocumentOptions(**documents), "targets": TargetOptions(**targets)}
        made = TokenizeOptions(**given)
        return tokenize(list(self.files), folder, made, executor=executor)[0]

    def write(self, folder: Path, parts: Sequence[Sequence[int | Range]], chat: Any) -> None:
        """Write the store as the page says."""
        tokenizer_json = BYTES if self.tokenizer == "bytes" else Path(self.tokenizer).read_bytes()
        encode = open_encoder(tokenizer_json, self.given.get("allow_special_tokens", False))
        given = {**self.given, "chat": chat}
        StoreWriter(folder, tokenizer_json, given, encode, self.render).write(self.files, parts)


@cache
def open_encoder(tokenizer_json: bytes, allow_special_tokens: bool) -> Callable[[str], list[Token]]:
    """Return what encodes a text with `tokenizers`, and finds the characters of each token."""
    saved = json.loads(tokenizer_json)
    for token in [] if allow_special_tokens else saved["added_tokens"]:
        if saved["model"]["type"] == "WordLevel" and token["content"] != "<unk>":
            del saved["model"]["vocab"][token["content"]]  # a word that spells it is unknown
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(saved))
    tokenizer.encode_special_tokens = not allow_special_tokens

    def encode(text: str) -> list[Token]:
        found = tokenizer.encode(text, add_special_tokens=False)
        return [(id_, *place) for id_, place in zip(found.ids, found.offsets, strict=True)]

    return encode


def list_ranges(manifest: dict[str, Any]) -> list[list[Range]]:
    """Return the ranges of each part, which are the whole files together."""
    parts = [[(x["source"], x["start"], x["end"]) for x in y["ranges"]] for y in manifest["parts"]]
    for number, source in enumerate(manifest["sources"]):
        found = [(start, end) for part in parts for x, start, end in part if x == number]
        assert [0, *(end for _, end in found)] == [*(start for start, _ in found), source["bytes"]]
    assert (numbers := [x for part in parts for x, *_ in part]) == sorted(numbers)
    return parts


def read_json(path: Path) -> Any:
    """Return a JSON file, or the lines of one, without the reasons of rejects."""
    if path.suffix == ".json":
        return json.loads(path.read_bytes())
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    if path.name == "rejects.jsonl":
        assert all(line.pop("reason") for line in lines)
    return lines


def check_same(theirs: Path, ours: Path) -> None:
    """Assert that two folders hold the same files."""
    names = sorted(path.name for path in theirs.iterdir() if path.name != "run.json")
    assert names == sorted(path.name for path in ours.iterdir())
    for name in sorted(names, reverse=True):
        if name.endswith((".json", ".jsonl")) and name != "tokenizer.json":
            assert read_json(theirs / name) == read_json(ours / name), name
        else:
            assert (theirs / name).read_bytes() == (ours / name).read_bytes(), name


# What tokenize makes of texts

WORDS = ("ab", "é", "word", "x", "the", "sea", "harbour", "海は", "🛶", "a.b", "<eos>", "<bos>")
SPACES = (" ", " ", " ", "  ", "\t", " \u3000")
CHAT = (
    "{% for m in messages %}<bos>{{ m.role }}{{ '\\n' }}{% if m.role == 'assistant' %}"
    "{% generation %}{{ m.content }}<eos>{% endgeneration %}"
    "{% else %}{{ m.content }}<eos>{% endif %}{{ '\\n' }}{% endfor %}"
)
PREFIXES = (  # without blocks: what is rendered with an answer more is the answer
    "{% for m in messages %}<bos>{{ m.role }}{{ '\\n' }}{{ m.content }}<eos>{% endfor %}"
    "{% if add_generation_prompt %}<bos>assistant{{ '\\n' }}{% endif %}"
)


def draw_text(drawn: random.Random, most: int = 9) -> str:
    """Draw some words; one in nine texts is empty."""
    words = drawn.choices(WORDS, k=drawn.randint(0, most))
    return drawn.choice(["", "", " "]) + "".join(x + drawn.choice(SPACES) for x in words)[:-1]


def draw_spans(drawn: random.Random, text: str) -> list[Any]:
    """Draw spans of characters that do not overlap, in any order."""
    places = sorted(drawn.sample(range(len(text) + 1), min(len(text) + 1, 2 * drawn.randint(0, 3))))
    pairs = zip(places[::2], places[1::2], strict=False)
    spans: list[Any] = [[a, b, drawn.choice(["thing", "É", "O"])] for a, b in pairs]
    if drawn.random() < 0.3:
        spans = [{"start": start, "end": end, "label": label} for start, end, label in spans]
    return drawn.sample(spans, len(spans))


KINDS = ("lines", "records", "records", "words", "spans", "prompts", "chat", "chat")
LABELS = (["b", "a", "é", "Z", "a,b"], [3, 1.0, 1, 0.5, -2, 10], [True, False])
# By the spelled `--keep` of a field: what draws its value from its number and text.
KEEP: dict[str, Callable[[random.Random, int], Any]] = {
    "id:int": lambda draw, n: draw.choice([n, -(2**63), 2**63 - 1]),
    "n": lambda _, n: n - 3,
    "score:float": lambda draw, n: draw.choice([n / 7, n, -0.0, 5e-324, 2**60]),
    "half": lambda _, n: n / 2,
    "title": lambda _, n: "ü\n" * (n % 4),
    "meta.lang:text": lambda draw, _: draw.choice(["de", "", "🛶"]),
    "label:class": lambda draw, _: draw.choice(LABELS[0]),
    "rank:class": lambda draw, _: draw.choice(LABELS[1]),
    "flag": lambda _, n: n % 3 == 0,
    "odd:class": lambda _, n: n % 2 == 1,
    'fixed:class=Z,é,"a,b",a,b': lambda draw, _: draw.choice(LABELS[0]),
    "sized:class=3,1,0.5,10,-2,7": lambda draw, _: draw.choice(LABELS[1]),
    "yes:class=true,false": lambda _, n: n % 2 == 1,
}
BAD_VALUES: dict[str, tuple[Any, ...]] = {
    "id": (1.5, True, "1", 2**63, -(2**63) - 1, None),
    "score": ("1", True, 2**53 + 1, None, [1]),
    "title": (3, None),
    "label": (1, None, True),
    "rank": ("1", None, True, 2**63),
    "fixed": ("c", 1),
    "sized": (2, "3"),
    "yes": (1, None),
    "tags": (
        [1],
        "x",
        None,
        [[0, 999, "a"]],
        [[0, 0, "a"]],
        [[0, 1]],
        ["y"] * 9,
        [[0, 2, "a"]] * 2,
    ),
    "text": (None, 7, ["ab", 3]),
    "prompt": (None, 7),
    "completion": (["x"],),
}
BAD_LINES = (b"{", b"[1]", b'"x"', b'{"other": 1}', b'{"text": "x"} 3', b"nul")


def set_field(record: dict[str, Any], name: str, value: Any) -> None:
    """Set a field of a record, or one within an object."""
    *outer, last = name.split(".")
    for key in outer:
        record = record.setdefault(key, {})
    record[last] = value


def draw_case(seed: int, tiny_tokenizer: Path) -> Case:
    """Draw files, a tokenizer and options of tokenize."""
    drawn = random.Random(seed)
    kind = drawn.choice(KINDS)
    Path("words.json").write_bytes(words_tokenizer_json())
    tokenizer = drawn.choice(["bytes", str(tiny_tokenizer), "words.json"])
    tokenizer = str(tiny_tokenizer) if kind == "chat" else tokenizer
    given: Given = {}
    if kind != "chat":
        given |= {name: f"<{name}>" for name in ("bos", "eos") if drawn.random() < 0.4}
    given |= drawn.choice([{}, {}, {"add_special_tokens": False}, {"allow_special_tokens": True}])
    num = drawn.choice([3, 12, 40])
    given["part_bytes"] = drawn.choice([10 * num, 40 * num, 64 << 20])
    if drawn.random() < 0.7:
        given["max_length"] = drawn.choice([30, 45] if kind == "chat" else [5, 7, 12, 20])
        ways = [
            {},
            {"overflow": "truncate"},
            {"overflow": "drop"},
            {"overlap": drawn.randint(1, 4)},
        ]
        given |= drawn.choice(ways)
    skips = drawn.random() < 0.5
    given |= {"on_bad_record": "skip"} if skips else {}
    given |= drawn.choice([{}, {"encoding_errors": "replace"}, {"encoding_errors": "skip"}])
    case = Case({}, tokenizer, given, encoder=drawn.choice(["tokenizers"] * 5 + ["auto"]))
    draw_kind(drawn, kind, case)
    if kind == "lines":
        records = [draw_record(drawn, "records", number, [], case) for number in range(num)]
        lines = [record["text"].encode() for record in records]
    else:
        keep = drawn.sample(list(KEEP), drawn.randint(0, 5))
        records = [draw_record(drawn, kind, number, keep, case) for number in range(num)]
        keep += ["tags:tags"] if kind in ("words", "spans") else []
        given["keep"] = drawn.sample(keep, len(keep))
        if skips:
            for record in drawn.sample(records[1:], num // 4):
                name = drawn.choice(sorted(BAD_VALUES.keys() & record.keys()) or ["none"])
                record[name] = drawn.choice(BAD_VALUES.get(name, (0,)))
        lines = [json.dumps(x, ensure_ascii=drawn.random() < 0.5).encode() for x in records]
        if skips:
            lines += drawn.choices(BAD_LINES, k=2)
    lines = [x.replace(b"QQ", drawn.choice([b"\xff\xfe", b"\xff\xc3"])) for x in lines]
    if drawn.random() < 0.5:
        lines.insert(drawn.randint(1, len(lines)), b"")
    case.files = draw_files(drawn, lines, "txt" if kind == "lines" else "jsonl")
    return case


def draw_files(drawn: random.Random, lines: list[bytes], suffix: str) -> dict[str, bytes]:
    """Cut lines into files with all kinds of ends."""
    places = [0, *sorted(drawn.choices(range(len(lines) + 1), k=drawn.randint(0, 3))), len(lines)]
    files = {}
    for number, (a, b) in enumerate(pairwise(places)):
        ends = [drawn.choice([b"\n", b"\n", b"\r\n"]) for _ in lines[a:b]]
        ends[-1:] = [drawn.choice([b"", b"\n"])] if ends else []
        data = b"".join(x + y for x, y in zip(lines[a:b], ends, strict=True))
        mark = b"\xef\xbb\xbf" if data and drawn.random() < 0.2 else b""
        files[f"{'abcd'[number]}.{suffix}"] = mark + data
    return files


def draw_record(
    drawn: random.Random, kind: str, number: int, keep: list[str], case: Case
) -> dict[str, Any]:
    """Draw a record; the first has all that decides a kind, and a token."""
    record: dict[str, Any] = {}
    for spelled in keep:
        set_field(record, spelled.split(":")[0], KEEP[spelled](drawn, number))
    text = draw_text(drawn) if number else "x"
    if number and "encoding_errors" in case.given and drawn.random() < 0.2:
        text += "QQ"  # stands for bytes that are not UTF-8
    if kind == "records":
        set_field(record, case.given["text_field"], text)
    elif kind == "words":
        words = text.split()
        record |= {"text": words, "tags": list(map(case.label, words))}
    elif kind == "spans":
        record |= {"text": text, "tags": draw_spans(drawn, text) or ([[0, 1, "É"]] * (number == 0))}
    elif kind == "prompts":
        record |= {"prompt": draw_text(drawn, 4) if number else "", "completion": text}
    else:
        turns = ["user", "assistant"] * (drawn.randint(1, 3) if number else 1)
        texts = [draw_text(drawn, 3) if number else "x" for _ in turns]
        record["talk"] = [{"role": x, "content": y} for x, y in zip(turns, texts, strict=True)]
    return record


def draw_kind(drawn: random.Random, kind: str, case: Case) -> None:
    """Draw the options that only one kind of input has."""
    if kind == "lines":
        case.given["text_field"] = "text"
    elif kind == "records":
        case.given["text_field"] = drawn.choice(["text", "text", "body.text"])
    elif kind in ("words", "spans"):
        case.given["tag_subtokens"] = drawn.choice([None, "first", "all"])
        case.label = drawn.choice([str.upper, len, lambda word: word > "m"])
    elif kind == "prompts":
        case.given |= {"prompt_field": "prompt", "completion_field": "completion"}
    elif kind == "chat":
        turns = drawn.choice(["all", "last"])
        case.given |= {"messages_field": "talk", "target_turns": turns}
        case.template = drawn.choice([CHAT, PREFIXES])
        case.render = partial(render, is_block=case.template == CHAT, is_last=turns == "last")


def render(record: dict[str, Any], is_block: bool, is_last: bool) -> list[Piece]:
    """Return what the templates write of a conversation."""
    pieces: list[Piece] = []
    answers = [n for n, x in enumerate(record["messages"]) if x["role"] == "assistant"]
    for number, message in enumerate(record["messages"]):
        is_target = number in (answers[-1:] if is_last else answers)
        pieces += [("<bos>", True, False), (f"{message['role']}\n", False, False)]
        pieces += [(message["content"], False, is_target), ("<eos>", True, is_target)]
        pieces += [("\n", False, False)] * is_block
    return pieces


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a new folder the current one, so that sources have short names."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def check_tokenize(seed: int, tiny_tokenizer: Path) -> None:
    case = draw_case(seed, tiny_tokenizer)
    manifest = case.tokenize(Path("theirs"))
    case.write(Path("ours"), list_ranges(manifest), manifest["options"]["chat"])
    check_same(Path("theirs"), Path("ours"))


@pytest.mark.parametrize("seed", range(40))
def test_tokenize_writes_what_the_page_says(place: Path, tiny_tokenizer: Path, seed: int) -> None:
    check_tokenize(seed, tiny_tokenizer)


# What import makes of ids


def draw_import(seed: int) -> tuple[dict[str, bytes], Given]:
    """Write files of ids into the current folder; return them and the options of import."""
    drawn = random.Random(seed)
    kind = drawn.choice(["megatron", "flat", "jsonl", "jsonl", "parquet", "parquet"])
    vocab_size = drawn.choice([100, 256, 65_536, 65_537, 70_000])
    most = drawn.choice([99, vocab_size - 1])
    part_bytes = drawn.choice([20, 300, 64 << 20])
    given: Given = {"part_bytes": part_bytes, "vocab_size": vocab_size}
    if drawn.random() < 0.3:
        given |= {"on_bad_record": "skip"}
        most = vocab_size + 9

    def draw_ids(most_ids: int) -> list[int]:
        return [drawn.randint(0, most) for _ in range(drawn.randint(0, most_ids))]

    if kind == "megatron":
        dtypes = [x for x in DTYPES_OF_PAIRS if np.iinfo(x).max >= most] or ["int32"]
        for name in "ab"[: drawn.randint(1, 2)]:
            counts = [drawn.randint(0, 3) for _ in range(drawn.randint(1, 9))]
            documents = [[draw_ids(6) for _ in range(count)] for count in counts]
            write_pair(Path(name), [[[1, 2]], *documents], drawn.choice(dtypes))
        given |= drawn.choice([{}, {"eos": 7}])
    elif kind == "flat":
        dtype = drawn.choice([x for x in DTYPES_OF_IDS if np.iinfo(x).max >= most])
        given |= {"eos": drawn.randint(0, 2), "dtype": dtype}
        ids = [drawn.choice([x, x, drawn.randint(0, 2)]) for x in draw_ids(99)]
        ids.append(given["eos"])
        ids += draw_ids(2)
        if drawn.random() < 0.5:
            given["dtype"] = drawn.choice([None, dtype])
            np.save("a.npy", np.array(ids, np.dtype(dtype).newbyteorder(drawn.choice("<>"))))
        else:
            np.array(ids, np.dtype(dtype).newbyteorder("<")).tofile("a.bin")
    else:
        draw_records(drawn, kind, given, draw_ids)
    paths = sorted(Path().glob("[ab].*"))
    return {path.name: path.read_bytes() for path in paths}, given


DTYPES_OF_PAIRS = ("uint8", "int8", "int16", "uint16", "int32", "int64")
DTYPES_OF_IDS = ("uint8", "uint16", "int32", "uint32", "int64")
BAD_IDS: dict[str, tuple[Any, ...]] = {
    "ids": ([1, 2.5], [True], None, 7, [[1]], [-1], [2**63], ["1"]),
    "labels": ([1], "x", [5] * 4, None),
    "mask": ([1, 0, 1, 1], [2], None),
    "loss": ([3] * 4, [1] * 5, None),
}


def draw_records(
    drawn: random.Random, kind: str, given: Given, draw_ids: Callable[[int], list[int]]
) -> None:
    """Write records with ids, and draw which fields stand beside them."""
    own = drawn.random() < 0.5
    names = {"ids": "input_ids", "labels": "labels", "mask": "attention_mask", "loss": "loss_mask"}
    names = {name: f"my.{name}" if own else usual for name, usual in names.items()}
    beside = drawn.sample(["labels", "mask", "loss"], drawn.randint(0, 3))
    options = {"labels": "labels_field", "mask": "attention_mask_field", "loss": "loss_mask_field"}
    given |= {options[name]: names[name] for name in beside} if own else {}
    given["ids_field"] = names["ids"]
    ignored = drawn.sample(beside, drawn.randint(0, 1)) if not own and beside else []
    given["ignore_fields"] = [names[name] for name in ignored]
    kept = [x for x in KEEP if kind == "jsonl" or x not in ONLY_JSON]
    given["keep"] = keep = drawn.sample(kept, drawn.randint(0, 3))
    records: list[Given] = []
    for number in range(drawn.choice([3, 20])):
        ids = draw_ids(8) if number else [1, 2]
        tokens = [1] * len(ids)
        if "mask" in beside and number:
            side = drawn.choice([slice(0, 2), slice(-1, None), slice(1, 1), slice(None)])
            tokens[side] = [0] * len(tokens[side])
        targets = [drawn.choice([0, x]) for x in tokens]
        columns: Given = {"ids": ids, "mask": tokens, "loss": targets}
        if kind == "jsonl" and number % 2:
            columns["loss"] = list(map(bool, targets))
        columns["labels"] = [x if y else -100 for x, y in zip(ids, targets, strict=True)]
        if "on_bad_record" in given and number and drawn.random() < 0.3:
            name = drawn.choice(["ids", *(x for x in beside if x not in ignored)])
            if kind == "jsonl":
                columns[name] = drawn.choice(BAD_IDS[name])
            else:
                columns[name] = drawn.choice([None, [*columns[name], 1], [3] * len(columns[name])])
        record: Given = {"other": number}
        for name in ("ids", *beside):
            set_field(record, names[name], columns[name])
        for spelled in keep:
            set_field(record, spelled.split(":")[0], KEEP[spelled](drawn, number))
        records.append(record)
    cut = drawn.randint(1, len(records))
    for name, some in (("a", records[:cut]), ("b", records[cut:])):
        if some and kind == "parquet":
            schema = pa.Table.from_pylist(records).schema
            size = drawn.choice([1, 4, 99])
            table = pa.Table.from_pylist(some, schema)
            pq.write_table(table, f"{name}.parquet", row_group_size=size)
        elif some:
            spelled = [json.dumps(record) for record in some]
            spelled += drawn.choice([[], [""], *[["{"]] * ("on_bad_record" in given)])
            Path(f"{name}.jsonl").write_text("\n".join(spelled) + drawn.choice(["", "\n"]))


ONLY_JSON = ("score:float", "rank:class", "sized:class=3,1,0.5,10,-2,7")  # of several types


def read_tables(files: dict[str, bytes]) -> dict[str, Any]:
    """Return the row groups of Parquet files: where each begins, and its rows."""
    tables: dict[str, Any] = {}
    for name in files:
        if name.endswith(".parquet"):
            file = pq.ParquetFile(name)
            for group in range(file.num_row_groups):
                column = file.metadata.row_group(group).column(0)
                first = column.dictionary_page_offset or column.data_page_offset
                rows = file.read_row_group(group).to_pylist()
                tables.setdefault(name, []).append((first, rows))
    return tables


def check_import(seed: int, _: Any = None) -> None:
    files, given = draw_import(seed)
    inputs = [name for name in files if not name.endswith(".idx")]
    made = ImportOptions(**given)
    manifest, _ = import_store(inputs, "theirs", made, executor=HERE)
    vocab_size = given.pop("vocab_size")
    writer = ImportWriter(Path("ours"), given, vocab_size=vocab_size, tables=read_tables(files))
    writer.write(files, list_ranges(manifest))
    check_same(Path("theirs"), Path("ours"))


@pytest.mark.parametrize("seed", range(30))
def test_import_writes_what_the_page_says(place: Path, seed: int) -> None:
    check_import(seed)


@pytest.mark.parametrize("made_by", ["tokenize", "import"])
def test_sizes_of_blocks_change_no_byte(
    place: Path, tiny_tokenizer: Path, tiny: int, made_by: str
) -> None:
    check = check_tokenize if made_by == "tokenize" else check_import
    for seed in range(1000 + tiny, 1080, 20):
        Path(str(seed)).mkdir()
        with contextlib.chdir(str(seed)):
            check(seed, tiny_tokenizer)


def test_two_workers_write_the_same_bytes(place: Path, tiny_tokenizer: Path) -> None:
    lines = [json.dumps({"text": f"number {n}", "n": n}).encode() for n in range(40)]
    case = Case({"a.jsonl": b"\n".join(lines)}, "bytes", {"part_bytes": 99, "keep": ["n"]})
    case.tokenize(Path("one"))
    manifest = case.tokenize(Path("two"), Executor(num_workers=2))
    assert len(manifest["parts"]) > 9
    Path("two/run.json").unlink()
    check_same(Path("one"), Path("two"))


@pytest.mark.parametrize("dtype", ["int32", "uint16"])
def test_import_knows_the_tokenizer(place: Path, tiny_tokenizer: Path, dtype: str) -> None:
    tokenizer_json = words_tokenizer_json() if dtype == "int32" else tiny_tokenizer.read_bytes()
    Path("tokenizer.json").write_bytes(tokenizer_json)
    write_pair(Path("a"), [[[2, 5], [], [300, 3]], [], [[399]]], "int32")
    files = {name: Path(name).read_bytes() for name in ("a.bin", "a.idx")}
    made = ImportOptions(tokenizer=place)
    manifest, _ = import_store("a", "theirs", made, executor=HERE)
    writer = ImportWriter(Path("ours"), {}, tokenizer_json=tokenizer_json)
    writer.write(files, list_ranges(manifest))
    check_same(Path("theirs"), Path("ours"))
    assert manifest["dtype"] == dtype


# Reading what the page's writer wrote


def write_case(seed: int, tiny_tokenizer: Path, folder: str) -> PageStore:
    """Write a store by the page alone, of which every part is one file."""
    case = draw_case(seed, tiny_tokenizer)
    case.write(Path(folder), [[number] for number in range(len(case.files))], {})
    return read_store(Path(folder))


def spell(store: Any, read: Callable[[int], Any]) -> list[Any]:
    """Return what all parts of a store have."""
    return [value for part in range(store.num_parts) for value in read(part)]


def check_reads(store: Any, pages: list[PageStore]) -> None:
    """Assert that a store, or several as one, is what the page's reader finds."""
    expected = [ids for page in pages for ids in page.sequences]
    count = len(expected)
    assert (len(store), store.num_tokens) == (count, sum(map(len, expected)))
    assert store.num_documents == sum(len(page.hashes) for page in pages)
    assert [ids.tolist() for ids in store] == expected
    assert [store[index].tolist() for index in range(-count, count)] == expected * 2
    for part in (slice(1, None, 2), slice(None, None, -1), slice(-3, 99)):
        assert [ids.tolist() for ids in store[part]] == expected[part]
    for index in (count, -count - 1):
        with pytest.raises(IndexError):
            store[index]
        with pytest.raises(IndexError):
            store.locate(index)
    with pytest.raises(TypeError):
        store[1.0]
    with pytest.raises(ValueError, match="read-only"):
        store[0][0] = 1
    assert (store.lengths.dtype, store.lengths.tolist()) == (np.int32, [*map(len, expected)])
    assert store.dtype == pages[0].manifest["dtype"]
    assert repr(count) in repr(store)
    for copy in (store, pickle.loads(pickle.dumps(store))):  # noqa: S301
        assert copy[count - 1].tolist() == expected[-1]
        store.check_digest()
        store.check_indices()
    origins = [store.locate(index) for index in range(count)]
    assert [(x.source, x.record) for x in origins] == [y for page in pages for y in page.places]
    assert [Path(x.store) for x in origins] == [page.folder for page in pages for _ in page.places]
    numbers = [number for page in pages for number in page.documents]
    assert [x.document for x in origins] == numbers
    for number, same in groupby(origins, lambda origin: (origin.store, origin.document)):
        found = [(origin.piece, origin.num_pieces) for origin in same]
        assert found == [(piece, len(found)) for piece in range(len(found))], number
    firsts = np.cumsum([0, *(len(page.hashes) for page in pages)])
    counted = [
        n + first for page, first in zip(pages, firsts, strict=False) for n in page.documents
    ]
    assert spell(store, store.number_documents) == counted
    counts = Counter(counted)
    assert spell(store, store.count_sequences) == [counts[n] for n in range(firsts[-1])]
    assert spell(store, store.part_hashes) == [x for page in pages for x in page.hashes]


def check_columns(store: Any, dataset: StoreDataset, pages: list[PageStore]) -> None:
    """Assert that the values of a store and of its items are those that the page's reader finds."""
    assert [*store.columns] == [*dataset.columns] == [*pages[0].columns]
    items = [dataset[index] for index in range(len(store))]
    assert [item.ids.tolist() for item in items] == [x for page in pages for x in page.sequences]
    for name, column in store.columns.items():
        values = [value for page in pages for value in page.columns[name]]
        entries = [x for each in values for x in each] if column.is_per_token else values
        parts = (column.spell(store.part_column(n, name)) for n in range(store.num_parts))
        assert [value for part in parts for value in part] == entries
        found = [item.columns[name] for item in items]
        if column.is_per_token:
            assert [column.spell(each.numpy()) for each in found] == values
        else:
            assert (found if column.is_text else column.spell(np.array(found))) == values


@pytest.mark.parametrize("seed", range(100, 107))
def test_store_written_from_the_page_is_read(place: Path, tiny_tokenizer: Path, seed: int) -> None:
    page = write_case(seed, tiny_tokenizer, "store")
    store = open_store("store")
    check_reads(store, [page])
    check_columns(store, StoreDataset("store"), [page])
    described = json.loads(run("inspect", "store", "--json").stdout)
    names = ("ledger", "dtype", "vocab_size", "max_id", "pad_id", "bos_id", "eos_id", "unk_id")
    assert [described[name] for name in names] == [page.manifest[name] for name in names]
    index = len(store) - 1
    row = json.loads(run("inspect", "store", "--sequence", index, "--json").stdout)
    assert row["ids"] == page.sequences[index]
    assert row["columns"] == {name: values[index] for name, values in page.columns.items()}


def test_tiny_pieces_change_nothing_that_is_read(
    place: Path, tiny_tokenizer: Path, tiny: int
) -> None:
    page = write_case(100 + tiny, tiny_tokenizer, "store")
    check_reads(open_store("store"), [page])
    check_columns(open_store("store"), StoreDataset("store"), [page])


def write_sides(place: Path, *given: Given) -> list[PageStore]:
    """Write a store by the page for each set of options, of records of their own."""
    pages = []
    for number, options in enumerate(given):
        records = [
            {"text": "ab " * (n % 4), "lang": "zyxw"[(n + number) % 4], "n": n, "note": "é" * n}
            for n in range(3 + number)
        ]
        tags = [{"tags": [[0, 1, f"t{number}"]] * (record["n"] % 4 > 0)} for record in records]
        lines = [json.dumps(x | y) for x, y in zip(records, tags, strict=True)]
        writer = StoreWriter(place / f"side{number}", BYTES, options)
        writer.write({f"{number}.jsonl": "\n".join(lines).encode()}, [[0]])
        pages.append(read_store(writer.folder))
    return pages


def test_several_stores_are_read_as_one(place: Path) -> None:
    given = {"keep": ["lang:class", "n:int", "note:text", "tags:tags"], "max_length": 4}
    pages = write_sides(place, given, given, given)
    paths = [page.folder for page in pages]
    store = open_store(paths)
    assert isinstance(store, CombinedStore)
    check_reads(store, pages)
    check_columns(store, StoreDataset(paths), pages)
    assert store.columns["lang"].class_names == ("w", "x", "y", "z")
    assert store.columns["tags"].class_names == ("O", "t0", "t1", "t2")
    assert StoreDataset(paths).class_names("lang") == ["w", "x", "y", "z"]
    assert isinstance(open_store(paths[:1]), TokenStore)
    some = open_store(paths, columns=["n", "lang"])
    assert [*some.columns] == ["lang", "n"]
    assert some.part_column(2, "n").tolist() == store.part_column(2, "n").tolist()


def test_stores_without_targets_count_every_token(place: Path) -> None:
    plain, given = {"keep": ["n:int"]}, {"keep": ["n:int"], "max_length": 5, "overlap": 2}
    pages = write_sides(place, plain, given)
    pages[0].columns["targets"] = [[1] * len(ids) for ids in pages[0].sequences]
    pages[0].columns["overlap"] = [0] * len(pages[0].sequences)
    paths = [page.folder for page in pages]
    for page in pages:
        page.columns = {name: page.columns[name] for name in ("targets", "overlap", "n")}
    check_columns(open_store(paths), StoreDataset(paths), pages)


def test_fixed_names_keep_their_order_where_all_stores_have_it(place: Path) -> None:
    fixed, free = {"keep": ["lang:class=z,w,y,x"]}, {"keep": ["lang:class"]}
    paths = [page.folder for page in write_sides(place, fixed, fixed, free)]
    assert open_store(paths[:2]).columns["lang"].class_names == ("z", "w", "y", "x")
    assert open_store(paths).columns["lang"].class_names == ("w", "x", "y", "z")


@pytest.mark.parametrize(
    ("given", "others", "columns", "fragment"),
    [
        ({"keep": ["n:int"]}, {"keep": ["n:float"]}, None, "kind float, .* has kind int"),
        (
            {"keep": ["n:class"]},
            {"keep": ["n:int"]},
            None,
            "kind int, .* has kind class with number",
        ),
        ({"keep": ["n:int"]}, {"keep": []}, None, "column 'n': found none"),
        ({"keep": ["n:int"]}, {"keep": ["n:int"]}, ["k"], r"no column 'k' \(found: 'n'\)"),
    ],
)
def test_stores_that_differ_are_refused(
    place: Path, given: Given, others: Given, columns: list[str] | None, fragment: str
) -> None:
    paths = [page.folder for page in write_sides(place, given, others)]
    with pytest.raises((OptionError, ValueError), match=fragment):
        open_store(paths, columns=columns)
    if columns is None:
        assert [*open_store(paths, columns=[]).columns] == []


def test_stores_of_other_ids_or_twice_are_refused(place: Path, tiny_tokenizer: Path) -> None:
    (page,) = write_sides(place, {})
    Path("b.txt").write_text("b")
    tokenize("b.txt", "b", TokenizeOptions(tokenizer=str(tiny_tokenizer)), executor=HERE)
    write_pair(Path("c"), [[[1, 2]]], "int32")
    for size in (259, 300):
        import_store("c.bin", f"c{size}", ImportOptions(vocab_size=size), executor=HERE)
    for other, fragment in (
        (page.folder, "the same content"),
        ("b", r"tokenizer [0-9a-f]{64}"),
        ("c259", "no tokenizer"),
    ):
        with pytest.raises(OptionError, match=fragment):
            open_store([page.folder, other])
    with pytest.raises(OptionError, match=r"vocab_size 300, .* has 259"):
        open_store(["c259", "c300"])
    with pytest.raises(ValueError, match="no store"):
        open_store([])


# What is refused, and what is noted

RECORDS = '{"text": "ab", "n": 1, "s": "a", "b": true, "l": ["a"], "o": {"a": 1}, "z": null}\n' * 2
BOTH: Given = {"prompt_field": "s", "completion_field": "s"}
REFUSED: list[tuple[Given, str]] = [
    *(({"keep": [keep]}, "cannot be named") for keep in ("", ":int", "targets:int", "next")),
    *(({"keep": [keep]}, "type '") for keep in ("s:clas", "x:targets")),
    *(({"keep": keep}, "") for keep in (["n", "n:int"], ["s:text", "s.offsets:int"])),
    *(({"keep": [keep]}, "class name") for keep in ("n:int=1,2", "s:class=a,a", "s:class=")),
    *(({"keep": [f"n:class={x}"]}, "") for x in ("a,b", "1,nan", "1,1e400", "1_0,2", "1,1.0")),
    ({"keep": ["n:class=1,99999999999999999999"]}, ""),
    ({"keep": ['s:class="a']}, "cannot be read"),
    ({"keep": ["b:class=no,yes"]}, "have booleans"),
    ({"keep": ["l"]}, "have a list there"),
    ({"keep": ["o"]}, "have an object there"),
    ({"keep": ["z"]}, "no value there"),
    ({"keep": ["z:class"]}, "no value there that can be a class"),
    ({"keep": ["y"]}, "a.jsonl:1: no field 'y'"),
    ({"keep": ["n:text"]}, "a.jsonl:1: field 'n' is 1, expected"),
    ({"keep": ["s:class=b"]}, "field 's' is 'a', expected one of 'b'"),
    ({"keep": ["l:tags"], "text_field": "s"}, "expected spans"),
    ({"keep": ["l:tags"], **BOTH}, "tags belong to"),
    ({"tag_subtokens": "all"}, "no tags are kept"),
    ({"overflow": "drop"}, "needs --max-length"),
    ({"overlap": 2}, "expected --max-length"),
    ({"overlap": 2, "max_length": 4, "overflow": "drop"}, "expected --overflow split"),
    ({"overlap": 4, "max_length": 4}, "expected less than --max-length 4"),
    ({"max_length": 1, "overflow": "error"}, "a.jsonl:1: 2 tokens, expected at most 1"),
    ({"max_length": 1, "overflow": "drop"}, "2 dropped by --max-length 1"),
    ({"max_length": 1, "overflow": "truncate", "eos": "<eos>"}, "no room for text"),
    ({"eos": "</s>"}, "not in the tokenizer's vocabulary"),
    ({"max_document_bytes": 20}, "a.jsonl:1: document larger than 20 bytes"),
    ({"prompt_field": "s"}, "--prompt-field needs --completion-field"),
    ({"completion_field": "s"}, "--completion-field needs --prompt-field"),
    ({"messages_field": "s", **BOTH}, "both say how"),
    ({"messages_field": "s", "eos": "<eos>"}, "writes every special token"),
    ({**BOTH, "prompt_field": ""}, "expected the name of a field"),
    ({**BOTH, "text_field": "s"}, "made from"),
    ({**BOTH, "completion_field": "n"}, "field 'n' is int"),
    ({"tools_field": "s"}, "no conversations are read"),
    ({"target_turns": "last"}, "no conversations are read"),
    ({"text_field": "n", "on_bad_record": "skip"}, "2 documents read, 2 of them rejected"),
]


@pytest.mark.parametrize(("given", "fragment"), REFUSED)
def test_tokenize_refuses(place: Path, given: Given, fragment: str) -> None:
    with pytest.raises((OptionError, DataError)) as caught:
        Case({"a.jsonl": RECORDS.encode()}, "bytes", given).tokenize(Path("store"))
    assert fragment in caught.value.message
    assert not Path("store/manifest.json").exists()


IDS = '{"input_ids": [7, 8, 9]}\n'
FLAT = np.array([1, 2, 7, 3], "<u2").tobytes()
ALONE: Given = {"eos": 7, "dtype": "uint16"}
REFUSED_IDS: list[
    tuple[str | bytes, Given, str]
] = [  # text is JSON lines; or what a record has too
    (IDS, {"tokenizer": "bytes"}, "found both"),
    (IDS, {"vocab_size": None}, "found neither"),
    (IDS, {"labels_field": "x"}, "'x'"),
    (IDS, {"ids_field": "x"}, "no field 'x'"),
    (IDS, {"ignore_fields": ["x"]}, "never read"),
    (IDS, {"labels_field": "labels", "ignore_fields": ["labels"]}, "conflicts with"),
    (IDS, {"dtype": "uint16"}, "expected ids alone"),
    (IDS, {"vocab_size": 9}, "a.jsonl:1: token 3 has id 9, expected ids from 0 to 8"),
    (IDS, {"max_document_bytes": 9}, "a.jsonl:1: document larger than 9 bytes"),
    (IDS * 1000 + IDS.replace("}", ', "labels": [7]}'), {}, "a.jsonl:1001: field 'labels', which"),
    (', "labels": 1', {}, "expected a list of integers"),
    (', "labels": [8, 9, -100]', {}, "shifted by one"),
    (', "labels": [7, 8, 10]', {}, "entry 3 of labels is 10"),
    (', "labels": [7]', {}, "labels has 1 entries, input_ids has 3"),
    (', "labels": [7, 8, 9], "loss_mask": [0, 1, 1]', {}, "expected a label where the mask is 1"),
    (', "labels": [7, 8, 9], "attention_mask": [0, 1, 1]', {}, "expected -100 for padding"),
    (', "attention_mask": [1, 0, 1]', {}, "at the ends only"),
    (', "attention_mask": [1, 2, 2]', {}, "entry 2 of attention_mask"),
    (', "seq_lengths": [1, 2]', {}, "several sequences"),
    (', "completion_mask": [0, 1, 1]', {}, "completion_mask"),
    (', "x": [1]', {"keep": ["x"]}, "expected one value per record"),
    (FLAT, {"dtype": "uint16"}, "expected --eos"),
    (FLAT, {"eos": 7}, "expected --dtype"),
    (FLAT, {}, "expected --dtype and --eos"),
    (FLAT + b"x", ALONE, "9 bytes, expected a multiple of the 2"),
    (FLAT, {**ALONE, "eos": 9}, "no id 9 in 4 ids"),
    (FLAT, {**ALONE, "eos": 100}, "--eos 100: expected an id from 0 to 99"),
    (FLAT, {**ALONE, "keep": ["n"]}, "expected records"),
    (FLAT, {**ALONE, "max_document_bytes": 4}, "a.bin:1: document larger than 4 bytes"),
    (FLAT * 9, {**ALONE, "eos": 3, "vocab_size": 7}, "a.bin:1: token 3 has id 7"),
]


@pytest.mark.parametrize(("data", "given", "fragment"), REFUSED_IDS)
def test_import_refuses(place: Path, data: str | bytes, given: Given, fragment: str) -> None:
    name = "a.bin" if isinstance(data, bytes) else "a.jsonl"
    if isinstance(data, str):
        data = (IDS.replace("}", data + "}") if data.startswith(",") else data).encode()
    Path(name).write_bytes(data)
    with pytest.raises((OptionError, DataError)) as caught:
        made = ImportOptions(**{"vocab_size": 100, **given})
        import_store(name, "store", made, executor=HERE)
    assert fragment in caught.value.message
    assert not Path("store/manifest.json").exists()


def test_tables_that_differ_are_refused(place: Path) -> None:
    rows = [{"input_ids": [7, 8], "labels": [7, 8], "x": 1.5}]
    pq.write_table(pa.Table.from_pylist(rows), "a.parquet")
    pq.write_table(pa.Table.from_pylist(rows).select(["input_ids"]), "b.parquet")
    for given, fragment in (
        ({}, "no 'labels', a.parquet has it"),
        ({"ignore_fields": ["labels"], "ids_field": "x"}, "'x' is double"),
        ({"ignore_fields": ["labels"], "ids_field": "y"}, "no column 'y'"),
        ({"ignore_fields": ["labels"], "keep": ["x"]}, "b.parquet: no column 'x'"),
    ):
        with pytest.raises((OptionError, DataError), match=fragment):
            made = ImportOptions(vocab_size=100, **given)
            import_store(["a.parquet", "b.parquet"], "store", made, executor=HERE)


def test_export_of_overlapping_sequences_is_imported_on_demand(place: Path) -> None:
    (page,) = write_sides(place, {"keep": ["n:int"], "max_length": 5, "overlap": 2})
    export(page.folder, "rows")
    with pytest.raises(DataError, match="rows repeat tokens of the rows before"):
        import_store("rows", "again", ImportOptions(vocab_size=300), executor=HERE)
    made = ImportOptions(vocab_size=300, ignore_fields=["overlap"], keep=["n"])
    import_store("rows", "again", made, executor=HERE)
    again = read_store(Path("again"))
    assert again.sequences == page.sequences
    assert again.columns == {name: page.columns[name] for name in ("targets", "n")}


def test_import_notes_what_looks_odd(place: Path) -> None:
    rows = [{"input_ids": [257, 5, 9, 9], "other": n, "more": {"x": 1}} for n in range(40)]
    Path("a.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    notes: list[str] = []
    progress = Progress(on_notice=notes.append)
    given: list[tuple[Given, str]] = [
        (
            {"tokenizer": "bytes"},
            "40 of 40 documents begin with id 257 (bos), 0 end with id 258 (eos)",
        ),
        ({"vocab_size": 1000}, "the largest id is 257, less than half of --vocab-size 1,000"),
        ({"vocab_size": 300}, "40 of 40 documents end with the same id twice, such as 9"),
        ({"vocab_size": 300, "keep": ["other"]}, "not read: 'more'"),
    ]
    for options, note in given:
        made = ImportOptions(**options)
        import_store("a.jsonl", "store", made, executor=HERE, progress=progress, overwrite=True)
        assert any(note in each for each in notes), notes
        notes.clear()
