"""`special_tokens.jsonl`: the same for any workers and encoder, and checked when it is read."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from here import HERE
from reference import change_json, read_folder
from unfinished import stopping_before_manifest

from seqpack_cli.corpus.options import DocumentOptions
from seqpack_cli.errors import FolderError
from seqpack_cli.limits import LIMITS
from seqpack_cli.runs.workers import Executor
from seqpack_cli.tokens.options import TokenizeOptions
from seqpack_cli.tokens.spelled_tokens import NAME, read_spelled_tokens
from seqpack_cli.tokens.store import open_store
from seqpack_cli.tokens.tokenize_run import tokenize

RECORDS = ("<pad> <bos>", "no", 7, "<eos><eos>", "", "<bos> and <eos>", "<bos", "<eos>", "<eos>")
LINES = ("<eos>", "", "only text", "<eos>", "<bos>", "<pad><eos>")


def write_input(folder: Path) -> list[Path]:
    """Write two files: one with a record that is rejected, and one whose name is not ASCII."""
    records, lines = folder / "a.jsonl", folder / "zwölf.txt"
    records.write_text("".join(json.dumps({"text": text}) + "\n" for text in RECORDS))
    lines.write_text("".join(f"{line}\n" for line in LINES))
    return [records, lines]


def expect(records: Path, lines: Path) -> list[dict[str, Any]]:
    """Return what must be found, counted by hand."""

    def places(*numbers: tuple[Path, int]) -> list[dict[str, Any]]:
        return [{"source": str(path), "record": record} for path, record in numbers]

    return [
        {"token": "<bos>", "count": 3, "places": places((records, 1), (records, 6), (lines, 5))},
        {
            "token": "<eos>",
            "count": 8,
            "places": places(
                (records, 4), (records, 6), (records, 8), (records, 9), (lines, 1)
            ),  # and lines 4 and 6
        },
        {"token": "<pad>", "count": 2, "places": places((records, 1), (lines, 6))},
    ]


def run(inputs: list[Path], output: Path, *, num_workers: int = 1, **options: Any) -> None:
    documents = DocumentOptions(on_bad_record="skip")
    made = TokenizeOptions(documents=documents, **options)
    tokenize(
        [str(path) for path in inputs], output, made, executor=Executor(num_workers=num_workers)
    )


def unfinish(inputs: list[Path], output: Path, **options: Any) -> None:
    """Leave a run as it is just before its manifest."""
    with stopping_before_manifest():
        run(inputs, output, **options)


def read(store: Path) -> list[dict[str, Any]] | None:
    return read_spelled_tokens(store, open_store(store).manifest)


@pytest.fixture
def inputs(tmp_path: Path) -> list[Path]:
    return write_input(tmp_path)


# Written


@pytest.mark.parametrize("part_bytes", [1, 20, 40, 90, 10_000])
@pytest.mark.parametrize("allowed", [False, True])
def test_tokens_and_their_first_records_are_written(
    tmp_path: Path, inputs: list[Path], part_bytes: int, allowed: bool
) -> None:
    run(inputs, tmp_path / "store", part_bytes=part_bytes, allow_special_tokens=allowed)
    lines = (tmp_path / "store" / NAME).read_text(encoding="utf-8").splitlines()
    expected = expect(*inputs)
    assert [json.loads(line) for line in lines] == expected
    assert read(tmp_path / "store") == expected
    assert lines[2] == (
        f'{{"token": "<pad>", "count": 2, "places": [{{"source": "{inputs[0]}", "record": 1}}, '
        f'{{"source": "{inputs[1]}", "record": 6}}]}}'
    )
    ledger = open_store(tmp_path / "store").manifest["ledger"]
    assert ledger["num_special_tokens_in_text"] == 13


def test_bytes_are_the_same_for_any_workers_and_encoder(
    tmp_path: Path, inputs: list[Path], tiny_tokenizer: Path
) -> None:
    names = [str(path) for path in inputs]
    documents = DocumentOptions(on_bad_record="skip")
    options = TokenizeOptions(str(tiny_tokenizer), documents=documents, part_bytes=40)
    found = []
    for number, (num_workers, encoder) in enumerate([(1, "tokenizers"), (1, "auto"), (2, "auto")]):
        output = tmp_path / str(number)
        executor = Executor(num_workers=num_workers)
        tokenize(names, output, replace(options, encoder=encoder), executor=executor)
        found.append((output / NAME).read_bytes())
    assert found[0] == found[1] == found[2]
    assert [json.loads(line)["token"] for line in found[0].splitlines()] == [
        "<bos>",
        "<eos>",
        "<pad>",
    ]


def test_records_are_numbered_through_all_batches_of_a_part(
    tmp_path: Path, inputs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LIMITS, "batch_bytes", 1)  # a batch for each of the two files
    run(inputs, tmp_path / "store")
    assert read(tmp_path / "store") == expect(*inputs)


def test_text_without_special_tokens_leaves_no_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("<bos and eos>\n")
    run([tmp_path / "a.txt"], tmp_path / "store")
    assert not (tmp_path / "store" / NAME).exists()
    assert read(tmp_path / "store") == []


def test_overwrite_leaves_nothing_of_the_store_before(tmp_path: Path, inputs: list[Path]) -> None:
    run(inputs, tmp_path / "store")
    (tmp_path / "a.txt").write_text("plain\n")
    tokenize([str(tmp_path / "a.txt")], tmp_path / "store", executor=HERE, overwrite=True)
    assert not (tmp_path / "store" / NAME).exists()


def test_file_alone_is_not_read_as_that_of_a_store(tmp_path: Path, inputs: list[Path]) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / NAME).write_text("")
    with pytest.raises(FolderError, match=r"special_tokens\.jsonl without a manifest or plan"):
        run(inputs, tmp_path / "store")


def test_source_name_that_is_not_unicode_is_written_and_read(tmp_path: Path) -> None:
    name = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.txt")
    try:
        Path(name).write_text("<pad>\n")
    except OSError:
        pytest.skip("this file system wants UTF-8 names")
    run([Path(name)], tmp_path / "store")
    assert read(tmp_path / "store") == [
        {"token": "<pad>", "count": 1, "places": [{"source": name, "record": 1}]}
    ]


# Continued


def test_continued_run_writes_the_same(tmp_path: Path, inputs: list[Path]) -> None:
    run(inputs, tmp_path / "whole", part_bytes=40)
    unfinish(inputs, tmp_path / "store", part_bytes=40)
    (tmp_path / "store" / NAME).unlink()
    (tmp_path / "store" / "part-00001.json").unlink()
    times = (tmp_path / "store" / "part-00002.bin").stat().st_mtime_ns
    run(inputs, tmp_path / "store", part_bytes=40)
    assert read_folder(tmp_path / "store") == read_folder(tmp_path / "whole")
    assert (tmp_path / "store" / "part-00002.bin").stat().st_mtime_ns == times


# In the receipt of the first part, which is all of a.jsonl.
SOUND = {"<pad>": [1, [0]], "<bos>": [2, [0, 5]], "<eos>": [5, [3, 5, 7, 8]]}
DAMAGES: dict[str, Any] = {
    "older": None,
    "list": [],
    "none": {},
    "wrong sum": SOUND | {"<bos>": [3, [0, 5]]},
    "no special token": {
        "<end>" if name == "<pad>" else name: entry for name, entry in SOUND.items()
    },
    "no list": SOUND | {"<bos>": 2},
    "no documents": SOUND | {"<bos>": [2, []]},
    "documents no list": SOUND | {"<bos>": [2, 5]},
    "more documents than tokens": SOUND | {"<bos>": [2, [0, 1, 5]]},
    "too many documents": SOUND | {"<eos>": [5, [0, 1, 2, 3, 4, 5]], "<bos>": [2, [0]]},
    "falling": SOUND | {"<bos>": [2, [5, 0]]},
    "twice": SOUND | {"<bos>": [2, [5, 5]]},
    "below": SOUND | {"<bos>": [2, [-1, 5]]},
    "beyond": SOUND | {"<bos>": [2, [0, 9]]},
    "fraction": SOUND | {"<bos>": [2, [0, 5.0]]},
    "text": SOUND | {"<bos>": [2, ["0", "5"]]},
    "truth": SOUND | {"<bos>": [2, [False, True]]},
    "count no number": SOUND | {"<bos>": ["2", [0, 5]]},
    "negative": SOUND | {"<bos>": [-1, [0]], "<eos>": [8, [3, 5, 7, 8]]},
    "third": SOUND | {"<bos>": [2, [0, 5], 1]},
}


@pytest.mark.parametrize("name", DAMAGES)
def test_changed_receipt_is_ignored(tmp_path: Path, inputs: list[Path], name: str) -> None:
    size = inputs[0].stat().st_size
    run(inputs, tmp_path / "whole", part_bytes=size)
    unfinish(inputs, tmp_path / "store", part_bytes=size)
    receipt = tmp_path / "store" / "part-00000.json"
    assert json.loads(receipt.read_bytes())["special_tokens"] == SOUND

    def damage(value: dict[str, Any]) -> None:
        value["special_tokens"] = DAMAGES[name]
        if name == "older":
            del value["special_tokens"]

    change_json(receipt, damage)
    made = tmp_path / "store" / "part-00000.bin"
    os.utime(made, (0, 0))
    run(inputs, tmp_path / "store", part_bytes=size)
    assert made.stat().st_mtime_ns > 0, "the part was not made again"
    assert read_folder(tmp_path / "store") == read_folder(tmp_path / "whole")


def test_unchanged_receipt_is_reused(tmp_path: Path, inputs: list[Path]) -> None:
    unfinish(inputs, tmp_path / "store")
    made = tmp_path / "store" / "part-00000.bin"
    os.utime(made, (0, 0))
    run(inputs, tmp_path / "store")
    assert made.stat().st_mtime_ns == 0


# Read


def test_store_of_an_older_seqpack_has_counts_only(tmp_path: Path, inputs: list[Path]) -> None:
    run(inputs, tmp_path / "store")
    (tmp_path / "store" / NAME).unlink()
    assert read(tmp_path / "store") is None


def change_line(number: int, **fields: Any) -> Callable[[Path], None]:
    """Return a function that changes fields of a line, and removes those whose value is None."""

    def change(path: Path) -> None:
        lines = path.read_bytes().splitlines(keepends=True)
        entry = json.loads(lines[number - 1]) | fields
        kept = {name: value for name, value in entry.items() if value is not None}
        lines[number - 1] = json.dumps(kept).encode() + b"\n"
        path.write_bytes(b"".join(lines))

    return change


def change_bytes(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(change(path.read_bytes())) and None


PLACE = {"source": "?", "record": 1}
TWIN = {"token": "<bos>"}


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (change_bytes(lambda _: b""), ": 0 special tokens, manifest.json says 13"),
        (change_bytes(lambda data: data[:-1]), ":3: no line end, expected one after each token"),
        (change_bytes(lambda data: data[:-9] + b"\n"), ":3: not JSON (*"),
        (change_bytes(lambda data: b"\n" + data), ":1: not JSON (*"),
        (change_bytes(lambda data: b"7\n" + data), ":1: an integer, expected an object"),
        (change_bytes(lambda data: data + b"\xff\n"), ":4: not JSON (*"),
        (
            change_bytes(lambda data: data + data.splitlines()[1] + b"\n"),
            ":4: token '<eos>' after '<pad>', expected sorted tokens",
        ),
        (
            change_bytes(lambda data: b"".join(data.splitlines(True)[:2])),
            ": 11 special tokens, manifest.json says 13",
        ),
        (change_line(1, token=None), ":1: no field 'token'"),
        (change_line(1, token=7), ":1: field 'token' is 7, expected a string"),
        (change_line(2, **TWIN), ":2: token '<bos>' after '<bos>', expected *"),
        (change_line(2, count=9), ": 14 special tokens, manifest.json says 13"),
        (change_line(2, count=-8), ":2: field 'count' is -8, expected a count"),
        (change_line(2, count=True), ":2: field 'count' is True, expected a count"),
        (change_line(2, count=4), ":2: 5 places for a count of 4, expected 1 to 4"),
        (change_line(3, count=0), ":3: 2 places for a count of 0, expected 1 to 0"),
        (change_line(2, places=[]), ":2: 0 places for a count of 8, expected 1 to 5"),
        (change_line(2, places={}), ":2: field 'places' is {}, expected a list"),
        (change_line(2, places=[7]), ":2: 7, expected an object"),
        (change_line(2, places=[{"source": "?"}]), ":2: no field 'record'"),
        (
            change_line(2, places=[PLACE]),
            ":2: record 1 of '?', expected a record that manifest.json lists",
        ),
    ],
)
def test_damaged_file_is_refused_with_its_line(
    tmp_path: Path, inputs: list[Path], damage: Callable[[Path], None], said: str
) -> None:
    run(inputs, tmp_path / "store")
    path = tmp_path / "store" / NAME
    damage(path)
    with pytest.raises(FolderError) as caught:
        read(tmp_path / "store")
    expected = f"{path}{said}"
    if said.endswith("*"):
        assert caught.value.message.startswith(expected[:-1])
    else:
        assert caught.value.message == expected


@pytest.mark.parametrize("record", [0, 7])
def test_record_that_is_not_there_is_refused(
    tmp_path: Path, inputs: list[Path], record: int
) -> None:
    run(inputs, tmp_path / "store")
    path = tmp_path / "store" / NAME
    change_line(3, places=[{"source": str(inputs[1]), "record": record}])(path)
    with pytest.raises(FolderError, match=f":3: record {record} of "):
        read(tmp_path / "store")


def test_link_and_pipe_are_not_followed(tmp_path: Path, inputs: list[Path]) -> None:
    run(inputs, tmp_path / "store")
    path = tmp_path / "store" / NAME
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FolderError, match="not a regular file"):
        read(tmp_path / "store")
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(FolderError, match="not a regular file"):
        read(tmp_path / "store")
