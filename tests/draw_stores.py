"""Input and options of tokenize and import, drawn from a seed, and the stores of both writers."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tokenizers
from make_golden import GOLDEN, words_tokenizer_json
from oracle.imports import ImportWriter, write_pair
from oracle.stores import Piece, Range, StoreWriter, Token

from seqpack_cli import (
    DocumentOptions,
    Executor,
    ImportOptions,
    TargetOptions,
    TokenizeOptions,
    import_store,
    tokenize,
)

HERE = Executor(num_workers=1)
BYTES = (GOLDEN / "v11" / "tokens_bytes" / "tokenizer.json").read_bytes()  # of --tokenizer bytes
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

    @property
    def options(self) -> TokenizeOptions:
        """Return the options; the template is written into the current folder."""
        given = {"tokenizer": self.tokenizer, "encoder": self.encoder, **self.given}
        documents = {name: given.pop(name) for name in OF_DOCUMENTS if name in given}
        targets = {name: given.pop(name) for name in OF_TARGETS if name in given}
        if self.template is not None:
            Path("chat.jinja").write_text(self.template)
            targets["chat_template"] = "chat.jinja"
        given |= {"documents": DocumentOptions(**documents), "targets": TargetOptions(**targets)}
        return TokenizeOptions(**given)

    def tokenize(self, folder: Path, executor: Executor = HERE) -> dict[str, Any]:
        """Write the files into the current folder, and their store."""
        for name, data in self.files.items():
            Path(name).write_bytes(data)
        return tokenize(list(self.files), folder, self.options, executor=executor)[0]

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


def check_tokenize(seed: int, tiny_tokenizer: Path) -> None:
    case = draw_case(seed, tiny_tokenizer)
    manifest = case.tokenize(Path("theirs"))
    case.write(Path("ours"), list_ranges(manifest), manifest["options"]["chat"])
    check_same(Path("theirs"), Path("ours"))


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
