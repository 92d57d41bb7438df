"""The tokenize run: ids, ledger, parts, interruptions, refusals."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from here import HERE
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import (
    SLOW_READERS,
    change_json,
    read_folder,
    read_store_documents,
    slow_jsonl_texts,
    slow_lines,
    slow_paragraphs,
    slow_sequences,
)
from strategies import texts
from tokenizers import Tokenizer, models
from unfinished import stopping_before_manifest

from seqpack_cli.corpus.options import DocumentOptions
from seqpack_cli.errors import DataError, FolderError, OptionError
from seqpack_cli.runs.workers import Executor, Progress
from seqpack_cli.tokens.options import TargetOptions, TokenizeOptions
from seqpack_cli.tokens.store import open_store
from seqpack_cli.tokens.tokenize_run import tokenize
from seqpack_cli.tokens.tokenizer import ROLES

OVERWRITE_HINT = "choose another -o, or pass --overwrite to replace what is there"
BOS, EOS = 257, 258  # of the byte tokenizer; <pad> is 256


def run(inputs: list[Path], output: Path, **options: Any) -> dict[str, Any]:
    """Tokenize in this process and return the manifest."""
    names = [str(path) for path in inputs]
    return tokenize(names, output, TokenizeOptions(**options), executor=HERE)[0]


def write_lines(path: Path, num_lines: int = 60) -> Path:
    path.write_text("".join(f"line {number} of {path.name}\n" for number in range(num_lines)))
    return path


def save_words(folder: Path, vocabulary: dict[str, int], *, unknown: str) -> None:
    tokenizer = json.loads(Tokenizer(models.WordLevel({}, unk_token=unknown)).to_str())
    tokenizer["model"]["vocab"] = vocabulary  # the library takes 10 s to save large ids
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))


# Ids equal those of the library


@pytest.mark.parametrize("add_special_tokens", [True, False])
@pytest.mark.parametrize(
    ("name", "document", "reader"),
    [
        ("stories.txt", "line", slow_lines),
        ("languages.jsonl", "line", slow_jsonl_texts),
        ("windows_notes.txt", "line", slow_lines),
        ("letters/first.txt", "paragraph", slow_paragraphs),
        ("letters/second.txt", "paragraph", slow_paragraphs),
        ("letters/third.txt", "file", lambda data: [data.decode()]),
    ],
)
def test_ids_equal_the_tokenizers_library(
    sample_data: Path,
    tiny_tokenizer: Path,
    tmp_path: Path,
    name: str,
    document: str,
    reader: Callable[[bytes], list[str]],
    add_special_tokens: bool,
) -> None:
    run(
        [sample_data / name],
        tmp_path / "store",
        tokenizer=str(tiny_tokenizer),
        document=document,
        add_special_tokens=add_special_tokens,
        part_bytes=8000,
    )
    library = Tokenizer.from_file(str(tiny_tokenizer))
    library.encode_special_tokens = True  # a special token in a text is text
    expected = [
        library.encode(text, add_special_tokens=add_special_tokens).ids
        if library.encode(text, add_special_tokens=False).ids
        else []
        for text in reader((sample_data / name).read_bytes())
    ]
    assert read_store_documents(tmp_path / "store") == [[ids] if ids else [] for ids in expected]


@settings(max_examples=30)
@given(documents=st.lists(texts(), max_size=8))
def test_ids_of_any_text_equal_the_tokenizers_library(
    tiny_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory, documents: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("any")
    documents = [*documents, "end"]
    (folder / "a.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in documents))
    run([folder / "a.jsonl"], folder / "store", tokenizer=str(tiny_tokenizer))
    library = Tokenizer.from_file(str(tiny_tokenizer))
    library.encode_special_tokens = True
    expected = [[library.encode(text).ids] if text else [] for text in documents]
    assert read_store_documents(folder / "store") == expected


def test_bos_and_eos_are_put_around_bytes(byte_store: Callable[..., Path]) -> None:
    store = byte_store(["ab", ""], bos="<bos>", eos="<eos>")
    assert read_store_documents(store) == [[[BOS, 97, 98, EOS]], []]
    manifest = open_store(store).manifest
    assert (manifest["pad_id"], manifest["bos_id"], manifest["eos_id"]) == (256, BOS, EOS)
    assert manifest["unk_id"] is None
    assert manifest["ledger"]["num_special_tokens_added"] == 2


def test_bos_and_eos_are_not_doubled_where_the_template_has_them(
    byte_store: Callable[..., Path], tiny_tokenizer: Path
) -> None:
    tokenizer = str(tiny_tokenizer)
    once = byte_store(["some text"], name="once", tokenizer=tokenizer)
    again = byte_store(["some text"], name="again", tokenizer=tokenizer, bos="<bos>", eos="<eos>")
    bare = byte_store(
        ["some text"],
        name="bare",
        tokenizer=tokenizer,
        bos="<bos>",
        eos="<eos>",
        add_special_tokens=False,
    )
    assert read_store_documents(once) == read_store_documents(again) == read_store_documents(bare)
    ids = read_store_documents(once)[0][0]
    assert (ids.count(1), ids.count(2), ids[0], ids[-1]) == (1, 1, 1, 2)


@pytest.mark.parametrize("option", ["bos", "eos"])
def test_unknown_bos_or_eos_is_refused(byte_store: Callable[..., Path], option: str) -> None:
    with pytest.raises(OptionError) as caught:
        byte_store(["ab"], **{option: "<start>"})
    assert caught.value.message == "token '<start>': not in the tokenizer's vocabulary"
    assert caught.value.hint == "pass one of its special tokens: '<pad>', '<bos>', '<eos>'"
    assert caught.value.exit_code == 2


def test_special_tokens_in_a_text_stay_text_and_are_counted(
    byte_store: Callable[..., Path], tiny_tokenizer: Path
) -> None:
    documents = ["a <eos> b<bos><pad>", "no <eo s>", "<eos>"]
    store = byte_store(documents, tokenizer=str(tiny_tokenizer), add_special_tokens=False)
    assert open_store(store).manifest["ledger"]["num_special_tokens_in_text"] == 4
    library = Tokenizer.from_file(str(tiny_tokenizer))
    for (ids,), text in zip(read_store_documents(store), documents, strict=True):
        assert min(ids) > 2
        assert library.decode(ids, skip_special_tokens=False) == text


@pytest.mark.parametrize("tiny", [True, False])
def test_special_tokens_in_a_text_become_ids_if_allowed(
    byte_store: Callable[..., Path], tiny_tokenizer: Path, tiny: bool
) -> None:
    name = str(tiny_tokenizer) if tiny else "bytes"
    store = byte_store(
        ["<bos>b<eos>"], tokenizer=name, allow_special_tokens=True, add_special_tokens=False
    )
    ((ids,),) = read_store_documents(store)
    assert (ids[0], ids[2]) == ((1, 2) if tiny else (BOS, EOS))
    assert len(ids) == 3
    assert open_store(store).manifest["ledger"]["num_special_tokens_in_text"] == 2


@pytest.mark.parametrize(
    ("max_id", "dtype"), [(65_535, "uint16"), (65_536, "int32"), (2**31 - 1, "int32")]
)
def test_borders_of_dtypes_round_trip(tmp_path: Path, max_id: int, dtype: str) -> None:
    save_words(tmp_path, {"a": 0, "b": max_id}, unknown="a")
    (tmp_path / "a.txt").write_text("b\na\n")
    manifest = run([tmp_path / "a.txt"], tmp_path / "store", tokenizer=str(tmp_path))
    assert manifest["dtype"] == dtype
    assert read_store_documents(tmp_path / "store") == [[[max_id]], [[0]]]


def test_the_folder_of_a_tokenizer_says_which_token_has_a_role(tmp_path: Path) -> None:
    """For the plan too: the manifest depends on these files."""
    save_words(tmp_path, {"a": 0, "<pad>": 1, "<end>": 2}, unknown="a")
    (tmp_path / "a.txt").write_text("a\n")
    tokens = {"pad_token": "<end>", "eos_token": {"content": "<end>"}}
    (tmp_path / "special_tokens_map.json").write_text(json.dumps(tokens))
    manifest = run([tmp_path / "a.txt"], tmp_path / "store", tokenizer=str(tmp_path))
    assert [manifest[name] for name in ROLES] == [2, None, 2, 0]
    (tmp_path / "tokenizer_config.json").write_text('{"added_tokens_decoder": {}}')
    with pytest.raises(FolderError) as caught:
        run([tmp_path / "a.txt"], tmp_path / "store", tokenizer=str(tmp_path))
    assert "holds a run that differs" in caught.value.message
    (tmp_path / "tokenizer_config.json").write_text("[]")
    with pytest.raises(DataError) as refused:
        run([tmp_path / "a.txt"], tmp_path / "store", tokenizer=str(tmp_path))
    assert refused.value.message == f"{tmp_path}/tokenizer_config.json: [], expected an object"


def test_id_beyond_int32_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    save_words(tmp_path, {"a": 0, "b": 2**31}, unknown="a")
    (tmp_path / "a.txt").write_text("a\n")  # the large id is not even used
    with pytest.raises(DataError) as caught:
        run([tmp_path / "a.txt"], tmp_path / "store", tokenizer=str(tmp_path))
    assert caught.value.message == (
        f"{tmp_path / 'tokenizer.json'}: its largest id is 2,147,483,648, "
        "expected at most 2,147,483,647"
    )
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    "data", [b"", b'{"model"', b"[]", b"{}", b'{"model": "LSTM"}', b"\xff"], ids=repr
)
def test_file_that_is_not_a_tokenizer_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(data)
    with pytest.raises(DataError) as caught:
        run([write_lines(tmp_path / "a.txt")], tmp_path / "store", tokenizer=str(path))
    assert caught.value.message.startswith(f"{path}: ")
    assert caught.value.message.endswith(
        ", expected a file in the format of Hugging Face's tokenizers"
    )
    assert caught.value.hint == "pass --tokenizer bytes to use one id per byte"
    assert not (tmp_path / "store").exists()


def test_document_that_the_tokenizer_cannot_encode_is_named(tmp_path: Path) -> None:
    """A word-level vocabulary without its unknown token fails on every other word."""
    save_words(tmp_path, {"a": 0}, unknown="<unk>")
    corpus = tmp_path / "a.txt"
    corpus.write_text("a\na\nb\n")
    with pytest.raises(DataError) as caught:
        run([corpus], tmp_path / "store", tokenizer=str(tmp_path))
    assert caught.value.message.startswith(f"{corpus}:3: tokenizer.json: ")


# The ledger


@pytest.mark.parametrize("overflow", ["split", "truncate", "drop"])
@pytest.mark.parametrize("max_length", [60, 100, 400])
def test_ledger_equals_slow_oracle(
    sample_data: Path, tmp_path: Path, overflow: str, max_length: int
) -> None:
    corpus = sample_data / "windows_notes.txt"
    manifest = run(
        [corpus],
        tmp_path / "store",
        bos="<bos>",
        eos="<eos>",
        max_length=max_length,
        overflow=overflow,
        part_bytes=1000,
    )
    documents = [list(text.encode()) for text in slow_lines(corpus.read_bytes())]
    slow = slow_sequences(
        documents, prefix=[BOS], suffix=[EOS], max_length=max_length, overflow=overflow
    )
    assert read_store_documents(tmp_path / "store") == slow.sequences_of_document
    assert manifest["ledger"] == {
        "num_documents": len(documents),
        "num_empty_documents": documents.count([]),
        "num_rejected": 0,
        "num_dropped_documents": slow.num_dropped_documents,
        "num_sequences": len(slow.sequences),
        "num_encoded_tokens": sum(map(len, documents)),
        "num_special_tokens_added": slow.num_special_tokens,
        "num_truncated_tokens": slow.num_truncated_tokens,
        "num_dropped_tokens": slow.num_dropped_tokens,
        "num_tokens": sum(map(len, slow.sequences)),
        "num_special_tokens_in_text": 0,
        "num_words_without_token": 0,
        "num_overlap_tokens": 0,
        "num_padding_tokens": 0,
        "num_empty_sequences": 0,
        "num_straddling_tokens": 0,
        "num_target_tokens": sum(map(len, slow.sequences)),  # every token counts
    }


def test_too_long_document_is_an_error_if_asked(tmp_path: Path) -> None:
    corpus = tmp_path / "a.txt"
    corpus.write_text("ab\n\nabcde\n")
    with pytest.raises(DataError) as caught:
        run([corpus], tmp_path / "store", max_length=4, overflow="error", eos="<eos>")
    assert caught.value.message == f"{corpus}:3: 6 tokens, expected at most 4"
    assert caught.value.hint == (
        "pass a larger --max-length, or --overflow split, truncate or drop"
    )


def test_overflow_without_max_length_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError) as caught:
        run([write_lines(tmp_path / "a.txt")], tmp_path / "store", overflow="drop")
    assert caught.value.message == "--overflow drop needs --max-length"


def test_max_length_without_room_for_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError) as caught:
        run(
            [write_lines(tmp_path / "a.txt")],
            tmp_path / "store",
            bos="<bos>",
            eos="<eos>",
            max_length=2,
            overflow="truncate",
        )
    assert caught.value.message == (
        "--max-length 2: no room for text beside the 2 special tokens of each document, "
        "expected at least 3"
    )


def test_input_without_a_token_is_refused(tmp_path: Path) -> None:
    corpus = tmp_path / "a.txt"
    corpus.write_text("\n\n\n")
    with pytest.raises(DataError) as caught:
        run([corpus], tmp_path / "store")
    assert caught.value.message == f"{corpus}: no document with a token (3 documents read)"
    assert not (tmp_path / "store").exists()
    corpus.write_text("abc\n\nde\n")
    with pytest.raises(DataError) as caught:
        run([corpus], tmp_path / "store", max_length=1, overflow="drop")
    assert str(caught.value) == (
        f"{corpus}: no document with a token (3 documents read, 2 dropped by --max-length 1)\n\n"
        "hint: pass a larger --max-length, or --overflow split"
    )


@pytest.mark.parametrize("part_bytes", [1, 30, 45, 10_000])
def test_rejects_are_numbered_through_their_source(tmp_path: Path, part_bytes: int) -> None:
    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    first.write_bytes(b'{"text": "one"}\nbroken\n\n{"text": 7}\n{"text": "\xff"}\n{"text": "x"}\n')
    second.write_bytes(b'{"text": "one"}\n{"text": null}\n')
    manifest = run(
        [first, second],
        tmp_path / "store",
        part_bytes=part_bytes,
        documents=DocumentOptions(on_bad_record="skip", encoding_errors="skip"),
    )
    lines = (tmp_path / "store" / "rejects.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    expected = [
        (
            first,
            2,
            16,
            "not JSON at column 1 (unexpected character, expected a JSON value): 'broken'",
        ),
        (first, 4, 24, "field 'text' is int, expected a string"),
        (first, 5, 46, "byte 0xff, expected UTF-8"),
        (second, 2, 16, "field 'text' is null, expected a string"),
    ]
    assert found == [
        {"source": str(path), "record": record, "byte": byte, "reason": reason}
        for path, record, byte, reason in expected
    ]
    ledger = manifest["ledger"]
    assert (ledger["num_documents"], ledger["num_rejected"]) == (8, 4)
    assert (ledger["num_empty_documents"], ledger["num_sequences"]) == (1, 3)


def test_store_without_rejects_has_no_rejects_file(byte_store: Callable[..., Path]) -> None:
    store = byte_store(["ab"], documents=DocumentOptions(on_bad_record="skip"))
    assert sorted(path.name for path in store.iterdir()) == [
        "manifest.json",
        "part-00000.bin",
        "part-00000.columns.safetensors",
        "part-00000.idx",
        "run.json",
        "tokenizer.json",
    ]


def test_document_limit_of_bytes_reaches_the_reader(byte_store: Callable[..., Path]) -> None:
    with pytest.raises(DataError, match="document larger than 20 bytes"):
        byte_store(["x" * 30], documents=DocumentOptions(max_document_bytes=20))


# The manifest


def test_manifest_does_not_depend_on_how_the_run_was_done(tmp_path: Path) -> None:
    corpus = write_lines(tmp_path / "a.txt", 3)
    manifest = run([corpus], tmp_path / "store")
    assert json.loads((tmp_path / "store" / "manifest.json").read_bytes()) == manifest
    assert list(manifest) == [
        "format",
        "format_version",
        "made_by",
        "dtype",
        "vocab_size",
        "max_id",
        "pad_id",
        "bos_id",
        "eos_id",
        "unk_id",
        "tokenizer_blake3",
        "options",
        "columns",
        "ledger",
        "sources",
        "parts",
    ]
    assert manifest["format"] == "seqpack.tokens"
    assert manifest["format_version"] == 5
    assert manifest["sources"] == [
        {
            "path": str(corpus),
            "bytes": corpus.stat().st_size,
            "num_documents": 3,
            "first_document": 0,
        }
    ]
    assert "num_workers" not in manifest["options"]
    assert json.loads((tmp_path / "store" / "run.json").read_bytes())["encoder"] == "bytes"


def test_manifest_offsets_run_through_all_parts(tmp_path: Path) -> None:
    corpora = [write_lines(tmp_path / f"{name}.txt", 20) for name in "abc"]
    manifest = run(corpora, tmp_path / "store", part_bytes=150, max_length=7)
    num_documents = num_sequences = 0
    assert len(manifest["parts"]) > 5
    for number, part in enumerate(manifest["parts"]):
        assert part["name"] == f"part-{number:05d}"
        assert part["first_document"] == num_documents
        assert part["first_sequence"] == num_sequences
        num_documents += part["num_documents"]
        num_sequences += part["num_sequences"]
    assert num_documents == manifest["ledger"]["num_documents"] == 60
    assert num_sequences == manifest["ledger"]["num_sequences"]
    assert [source["first_document"] for source in manifest["sources"]] == [0, 20, 40]


@settings(max_examples=15)
@given(part_bytes=st.integers(1, 400))
@pytest.mark.parametrize("kind", ["line", "paragraph", "jsonl"])
def test_documents_are_the_same_for_any_part_bytes(
    sample_data: Path,
    tmp_path_factory: pytest.TempPathFactory,
    kind: str,
    part_bytes: int,
) -> None:
    name = {"line": "windows_notes.txt", "paragraph": "letters/first.txt"}
    data = (sample_data / name.get(kind, "languages.jsonl")).read_bytes()
    data = b"".join(data.splitlines(keepends=True)[:12])
    folder = tmp_path_factory.mktemp("parts")
    corpus = folder / ("a.jsonl" if kind == "jsonl" else "a.txt")
    corpus.write_bytes(data)
    document = "paragraph" if kind == "paragraph" else "line"
    run([corpus], folder / "store", document=document, part_bytes=part_bytes)
    expected = [list(text.encode()) for text in SLOW_READERS[kind](data)]
    found = read_store_documents(folder / "store")
    assert found == [[ids] if ids else [] for ids in expected]


# The same bytes


def test_bytes_are_the_same_for_any_number_of_workers(
    sample_data: Path, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    options = TokenizeOptions(tokenizer=str(tiny_tokenizer), part_bytes=8000, max_length=32)
    inputs = [str(sample_data / "languages.jsonl"), str(sample_data / "stories.txt")]
    folders = []
    for num_workers in (1, 2, 3):
        tokenize(
            inputs, tmp_path / str(num_workers), options, executor=Executor(num_workers=num_workers)
        )
        folders.append(read_folder(tmp_path / str(num_workers)))
    assert len([name for name in folders[0] if name.endswith(".bin")]) >= 6
    assert folders[0] == folders[1] == folders[2]


@pytest.mark.parametrize("num_workers", [1, 2])
def test_error_in_a_worker_arrives_complete(tmp_path: Path, num_workers: int) -> None:
    corpus = write_lines(tmp_path / "a.txt", 100)
    with corpus.open("ab") as file:
        file.write(b"\xff\n")
    with pytest.raises(DataError) as caught:
        tokenize(
            [str(corpus)],
            tmp_path / "store",
            TokenizeOptions(part_bytes=400),
            executor=Executor(num_workers=num_workers),
        )
    assert caught.value.message == f"{corpus}:101: byte 0xff, expected UTF-8"
    assert caught.value.hint == (
        "convert the file with iconv and add --overwrite, or pass --encoding-errors replace"
    )


# Hints work


def write_parts(folder: Path, last: bytes) -> Path:
    """Write two good files and a bad one, each a part of its own with PARTS."""
    folder.mkdir()
    for name in ("a.jsonl", "b.jsonl"):
        (folder / name).write_text('{"text": "good"}\n' * 20)
    (folder / "c.jsonl").write_bytes(b'{"text": "good"}\n' * 10 + last)
    return folder


PARTS: dict[str, Any] = {"part_bytes": 200, "max_length": 100, "overflow": "error"}
SMALL = DocumentOptions(max_document_bytes=300)


@pytest.mark.parametrize(
    ("last", "changed", "documents"),
    [
        (b'{"text": "\xff"}\n', {}, {"encoding_errors": "replace"}),
        (b'{"text": "\xff"}\n', {}, {"encoding_errors": "skip"}),
        (b'{"text": 7}\n', {}, {"on_bad_record": "skip"}),
        (b'{"text": "%s"}\n' % (b"x" * 400), {"overflow": "drop"}, {"max_document_bytes": 500}),
        (b'{"text": "%s"}\n' % (b"x" * 200), {"overflow": "split"}, {}),
        (b'{"text": "%s"}\n' % (b"x" * 200), {"overflow": "truncate"}, {}),
        (b'{"text": "%s"}\n' % (b"x" * 200), {"max_length": 250}, {}),
        (b'{"text": "%s"}\n' % (b"x" * 200), {"max_length": None, "overflow": "split"}, {}),
    ],
)
def test_options_that_a_hint_names_keep_the_finished_parts(
    tmp_path: Path, last: bytes, changed: dict[str, Any], documents: dict[str, Any]
) -> None:
    corpus, output = write_parts(tmp_path / "corpus", last), tmp_path / "store"
    with pytest.raises(DataError):
        run([corpus], output, documents=SMALL, **PARTS)
    finished = [(output / f"part-{number:05d}.bin").stat() for number in range(2)]
    options = {**PARTS, **changed, "documents": dataclasses.replace(SMALL, **documents)}
    run([corpus], output, **options)
    assert [(output / f"part-{number:05d}.bin").stat() for number in range(2)] == finished
    run([corpus], tmp_path / "fresh", **options)
    assert read_folder(output) == read_folder(tmp_path / "fresh")


def test_hint_about_the_field_replaces_parts_that_had_another(tmp_path: Path) -> None:
    corpus, output = write_parts(tmp_path / "corpus", b'{"body": "x"}\n'), tmp_path / "store"
    with pytest.raises(DataError) as caught:
        run([corpus], output, part_bytes=200)
    assert caught.value.hint == "pass --text-field body --overwrite"


def test_failure_is_reported_to_readers_of_the_unfinished_run(tmp_path: Path) -> None:
    corpus, output = write_parts(tmp_path / "corpus", b'{"text": 7}\n'), tmp_path / "store"
    with pytest.raises(DataError) as caught:
        run([corpus], output, part_bytes=200)
    with pytest.raises(FolderError) as read:
        open_store(output)
    assert read.value.message == (
        f"{output}: incomplete run, 4 parts finished, no manifest.json; "
        f"it ended with: {caught.value.message}"
    )
    assert read.value.hint == f"for tokenize: {caught.value.hint}"
    with pytest.raises(DataError):
        run([corpus], output, part_bytes=200)
    documents = DocumentOptions(on_bad_record="skip")
    run([corpus], output, part_bytes=200, documents=documents)
    assert "failure" not in open_store(output).manifest


@pytest.mark.parametrize("failure", [7, {}, {"message": 7}, {"message": "x" * 10**6, "hint": 7}])
def test_failure_in_a_foreign_file_is_cut_or_ignored(tmp_path: Path, failure: object) -> None:
    corpus, output = write_parts(tmp_path / "corpus", b'{"text": 7}\n'), tmp_path / "store"
    with pytest.raises(DataError):
        run([corpus], output, part_bytes=200)
    change_json(output / "plan.json", lambda plan: plan.update(failure=failure))
    with pytest.raises(FolderError) as caught:
        open_store(output)
    assert len(str(caught.value)) < 2000


@pytest.mark.parametrize("num_workers", [1, 2])
def test_progress_adds_up_to_its_total(tmp_path: Path, num_workers: int) -> None:
    totals: list[int] = []
    amounts: list[int] = []
    corpus = write_lines(tmp_path / "a.txt", 50)
    tokenize(
        [str(corpus)],
        tmp_path / "store",
        TokenizeOptions(part_bytes=500),
        executor=Executor(num_workers=num_workers),
        progress=Progress(on_total=totals.append, on_advance=amounts.append),
    )
    assert totals == [corpus.stat().st_size]
    assert sum(amounts) == corpus.stat().st_size


# Interruptions


def unfinish(corpus: Path, output: Path, **options: Any) -> None:
    """Leave a run as it is just before its manifest."""
    with stopping_before_manifest():
        run([corpus], output, **options)


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "part-00001.bin").unlink(),
        lambda folder: (folder / "part-00001.idx").write_bytes(b""),
        lambda folder: os.truncate(folder / "part-00001.bin", 3),
        lambda folder: (folder / "part-00001.json").write_text("{"),
        lambda folder: (folder / "part-00001.json").write_text("{}"),
        lambda folder: (folder / "part-00001.json").write_text('{"files": []}'),
        lambda folder: (folder / "part-00001.json").write_text('{"files": 7}'),
        lambda folder: (folder / "part-00001.json").unlink(),
    ],
    ids=["no bin", "cut idx", "cut bin", "no JSON", "no fields", "no files", "count", "no receipt"],
)
def test_incomplete_part_is_made_again(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    corpus = write_lines(tmp_path / "a.txt")
    run([corpus], tmp_path / "whole", part_bytes=500)
    unfinish(corpus, tmp_path / "store", part_bytes=500)
    damage(tmp_path / "store")
    run([corpus], tmp_path / "store", part_bytes=500)
    assert read_folder(tmp_path / "store") == read_folder(tmp_path / "whole")


@pytest.mark.parametrize("finished", [True, False])
def test_changed_input_of_equal_size_is_refused(tmp_path: Path, finished: bool) -> None:
    corpus, output = write_lines(tmp_path / "a.txt"), tmp_path / "store"
    if finished:
        run([corpus], output, part_bytes=500)
    else:
        unfinish(corpus, output, part_bytes=500)
    corpus.write_bytes(corpus.read_bytes().replace(b"line 7 ", b"line X "))
    before = read_folder(output)
    with pytest.raises(FolderError) as caught:
        run([corpus], output, part_bytes=500)
    assert caught.value.message == f"{output}: {corpus} changed since this run began"
    assert caught.value.hint == OVERWRITE_HINT
    assert caught.value.exit_code == 4
    assert read_folder(output) == before


def test_tokenizer_may_move_between_equal_runs(tmp_path: Path, tiny_tokenizer: Path) -> None:
    corpus, output = write_lines(tmp_path / "a.txt"), tmp_path / "store"
    (tmp_path / "tokenizer.json").write_bytes(tiny_tokenizer.read_bytes())
    first = run([corpus], output, tokenizer=str(tiny_tokenizer))
    options = TokenizeOptions(tokenizer=str(tmp_path))
    assert tokenize([str(corpus)], output, options) == (first, True)


def test_finished_run_is_already_complete(tmp_path: Path) -> None:
    corpus, output = write_lines(tmp_path / "a.txt"), tmp_path / "store"
    manifest = run([corpus], output)
    before = {path: path.stat().st_mtime_ns for path in output.iterdir()}
    assert tokenize([str(corpus)], output) == (manifest, True)
    assert {path: path.stat().st_mtime_ns for path in output.iterdir()} == before


def test_finished_run_with_a_part_gone_is_not_called_complete(tmp_path: Path) -> None:
    corpus, output = write_lines(tmp_path / "a.txt"), tmp_path / "store"
    run([corpus], output)
    (output / "part-00000.bin").unlink()
    with pytest.raises(FolderError, match=r"part-00000\.bin: missing"):
        run([corpus], output)


def test_overwrite_makes_the_store_anew(tmp_path: Path) -> None:
    corpus, output = write_lines(tmp_path / "a.txt"), tmp_path / "store"
    run([corpus], output, part_bytes=100)
    (tmp_path / "b.txt").write_text("another\n")
    options = TokenizeOptions(eos="<eos>")
    tokenize([str(tmp_path / "b.txt")], output, options, executor=HERE, overwrite=True)
    run([tmp_path / "b.txt"], tmp_path / "fresh", eos="<eos>")
    assert read_folder(output) == read_folder(tmp_path / "fresh")


def test_refusal_of_the_input_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(OptionError):
        run([tmp_path / "gone.txt"], tmp_path / "store")
    assert list(tmp_path.iterdir()) == []


def test_file_name_that_is_not_utf8_is_kept_or_refused(tmp_path: Path) -> None:
    """Linux allows any bytes in a name: a store of such a file, or an error, but no traceback."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    name = os.fsdecode(os.fsencode(folder) + b"/caf\xe9.txt")
    try:
        Path(name).write_text("text\n")
    except OSError:
        pytest.skip("this file system wants UTF-8 names")
    try:
        run([folder], tmp_path / "store")
    except (DataError, OptionError) as error:
        str(error).encode()
    else:
        assert open_store(tmp_path / "store").locate(0).source == name


def test_damaged_manifest_of_a_finished_run_is_an_error_of_the_folder(tmp_path: Path) -> None:
    corpus, output = write_lines(tmp_path / "a.txt"), tmp_path / "store"
    run([corpus], output)
    change_json(output / "manifest.json", lambda manifest: manifest["parts"][0].pop("ranges"))
    with pytest.raises(FolderError):
        run([corpus], output)


def test_options_cover_all_fields_of_the_plan(tmp_path: Path) -> None:
    """An option that the plan forgot would let a changed run pass as the same one."""
    manifest = run([write_lines(tmp_path / "a.txt")], tmp_path / "store")
    names = {field.name for field in dataclasses.fields(TokenizeOptions)}
    names |= {field.name for field in dataclasses.fields(DocumentOptions)}
    names |= {field.name for field in dataclasses.fields(TargetOptions)}
    not_recorded = {"tokenizer", "documents", "encoder", "targets"}
    not_recorded |= {"files", "chat_template"}  # `sources` are the files, `chat` the template
    assert set(manifest["options"]) == names - not_recorded | {"chat"}
