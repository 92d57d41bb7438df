"""Token stores: what `tokenize` writes is what the page's writer writes, and is read back.

The options, the records and what is wrong with some of them are drawn from a seed.
"""

from __future__ import annotations

import contextlib
import json
import pickle
import random
import re
from collections import Counter
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import run
from draw_stores import (
    BAD_VALUES,
    BYTES,
    HERE,
    KEEP,
    Case,
    Given,
    check_import,
    check_same,
    check_tokenize,
    draw_case,
)
from oracle.imports import write_pair
from oracle.stores import PageStore, StoreWriter, read_store

from seqpack_cli import (
    DataError,
    Executor,
    FolderError,
    ImportOptions,
    OptionError,
    Progress,
    StoreDataset,
    TextValues,
    TokenizeOptions,
    TokenStore,
    import_store,
    open_shards,
    open_store,
    pack,
    tokenize,
)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a new folder the current one, so that sources have short names."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("seed", range(40))
def test_tokenize_writes_what_the_page_says(place: Path, tiny_tokenizer: Path, seed: int) -> None:
    check_tokenize(seed, tiny_tokenizer)


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
    assert tokenize("a.jsonl", "two", case.options, executor=HERE) == (manifest, True)
    case.files["a.jsonl"] = case.files["a.jsonl"].replace(b"number 7", b"number 8")
    with pytest.raises(FolderError, match="changed"):
        case.tokenize(Path("two"))


def test_end_of_a_truncated_completion_is_no_target(place: Path) -> None:
    lines = b'{"q": "a", "a": "bcdef"}\n{"q": "a", "a": "b"}'
    given = {"prompt_field": "q", "completion_field": "a", "eos": "<eos>", "max_length": 4}
    Case({"a.jsonl": lines}, "bytes", {**given, "overflow": "truncate"}).tokenize(Path("store"))
    page = read_store(Path("store"))
    assert page.sequences == [[*b"abc", 258], [*b"ab", 258]]
    assert page.columns["targets"] == [[0, 1, 1, 0], [0, 1, 1]]


KEPT = {spelled.split(":")[0]: spelled for spelled in KEEP}


@pytest.mark.parametrize("name", [name for name in BAD_VALUES if name in KEPT] + ["spans", "words"])
def test_bad_values_are_rejected_each(place: Path, name: str) -> None:
    """Each with its own record, among good ones, as the page's writer does."""
    field = name if name in KEPT else "tags"
    words = {"spans": "ab cd", "words": ["ab", "cd"]}.get(name, "ab")
    good = {"spans": [[0, 2, "x"]], "words": ["x", "y"]}.get(name)
    records = []
    for number, bad in enumerate(BAD_VALUES[field]):
        fine = KEEP[KEPT[name]](random.Random(number), number) if good is None else good
        records += [{"text": words, field: fine}, {"text": words, field: bad}]
        records += [{"text": words, field: fine}, {"text": words}]
    lines = b"\n".join(json.dumps(record).encode() for record in records)
    keep = [KEPT.get(name, "tags:tags")]
    case = Case({"a.jsonl": lines}, "bytes", {"keep": keep, "on_bad_record": "skip"})
    manifest = case.tokenize(Path("theirs"))
    case.write(Path("ours"), [[0]], {})
    check_same(Path("theirs"), Path("ours"))
    assert manifest["ledger"]["num_rejected"] >= len(records) // 2 - (name == "words")


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


@pytest.mark.parametrize("suffix", ["bin", "idx", "columns.safetensors"])
def test_changed_file_is_found(place: Path, tiny_tokenizer: Path, suffix: str) -> None:
    write_case(100, tiny_tokenizer, "store")
    path = Path(f"store/part-00000.{suffix}")
    path.write_bytes(change_last(path.read_bytes()))
    store = open_store("store", check_indices=False)
    with pytest.raises(FolderError, match=rf"part-00000\.{suffix}: blake3 differs"):
        store.check_digest()
    if suffix == "idx":
        for check in (lambda: open_store("store"), store.check_indices):
            with pytest.raises(FolderError, match=r"part-00000\.idx"):
                check()
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(FolderError, match=suffix):
        open_store("store")


def change_last(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def test_texts_are_a_sequence(place: Path) -> None:
    (page,) = write_sides(place, {"keep": ["note:text"]})
    texts = open_store(page.folder).part_column(0, "note")
    expected = page.columns["note"]
    assert isinstance(texts, TextValues)
    assert (len(texts), texts.tolist(), [*texts]) == (len(expected), expected, expected)
    for part in (slice(1, None), slice(None, None, -1), slice(2, 1), slice(-1, 9)):
        assert texts[part].tolist() == expected[part]
    assert [texts[index] for index in range(-len(texts), len(texts))] == expected * 2
    with pytest.raises(IndexError):
        texts[len(texts)]
    assert repr(expected[-1])[1:-1] in repr(texts)


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
    assert [folder.path for folder in store.folders] == paths
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


@pytest.mark.parametrize(
    ("given", "fragment"),
    [
        ({"completion_field": "s", "prompt_field": "s"}, "no end token follows a completion"),
        ({"completion_field": "s", "prompt_field": "s", "eos": "<eos>"}, None),
        ({"allow_special_tokens": True}, None),
    ],
)
def test_tokenize_notes_what_looks_odd(place: Path, given: Given, fragment: str | None) -> None:
    case = Case({"a.jsonl": RECORDS.encode()}, "bytes", given)
    case.tokenize(Path("store"))
    notes: list[str] = []
    progress = Progress(on_notice=notes.append)
    tokenize("a.jsonl", "again", case.options, executor=HERE, progress=progress)
    assert [note for note in notes if fragment is None or fragment not in note] == []
    assert bool(notes) == (fragment is not None)


# Conditions: what a user writes is compared exactly

VALUES = [
    (-(2**63), 0.1, True, "ab", 1),
    (2**53, 0.3, False, "é", 2.5),
    (2**53 + 1, 1e300, True, "", 2**53 + 1),
    (2**63 - 1, -0.5, False, "ba", 0.1),
    (3, 3.0, True, "\0\0", 1),
]
MET = """
n = 9007199254740993: 2; n > 9007199254740992: 2 3; n >= 9223372036854775807: 3; n = 3.0: 4
n < 3.5: 0 4; n < 2.5: 0; n >= 2.5: 1 2 3 4; n > 2.5: 1 2 3 4; n <= 2.5: 0; n != 3.5: 0 1 2 3 4
n <= -9223372036854775808: 0; n < 1e30: 0 1 2 3 4; n > -1e30: 0 1 2 3 4; n != 1e30: 0 1 2 3 4
x = 0.1: 0; x = 1e-1: 0; x <= .3: 0 1 3; x > +3.: 2; x != 0.3: 0 2 3 4
b = TRUE: 0 2 4; b != false: 0 2 4; c = 1.0: 0 4; c = 1e-1: 3; c = 9007199254740993: 2
c != 1: 1 2 3; s = ab: 0; s != ab: 1 2 3 4; s = é: 1; s = "": 2
"""


@pytest.fixture(scope="module")
def conditions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("conditions")
    lines = [{"text": "a", **dict(zip("nxbsc", row, strict=True))} for row in VALUES]
    (folder / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    keep = ["n:int", "x:float", "b:class", "s:text", "c:class"]
    tokenize(folder / "a.jsonl", folder / "store", keep=keep, num_workers=1)
    return folder


@pytest.mark.parametrize("row", re.split("[;\n] *", MET.strip()))
def test_condition_is_met_by_these_values(conditions: Path, row: str) -> None:
    where, _, found = row.rpartition(":")
    options = {"where": [where], "order": "none", "shard_bytes": 1 << 20}
    pack(conditions / "store", conditions / "shards", num_workers=1, overwrite=True, **options)
    (batch,) = open_shards(conditions / "shards")
    assert batch.original_indices.tolist() == list(map(int, found.split()))


@pytest.mark.parametrize("value", ["nan", "-inf", "1_000", "0x1", "1/2", "٣", "1" * 401])
def test_condition_with_a_word_for_a_number_is_refused(conditions: Path, value: str) -> None:
    for name in ("n", "x"):
        with pytest.raises(OptionError, match=f"column '{name}' holds numbers, found '"):
            pack(conditions / "store", conditions / "none", where=[f"{name} < {value}"])
