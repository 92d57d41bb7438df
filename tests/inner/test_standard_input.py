"""Standard input, `-`: the same store as from a file, and no file left behind."""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result
from reference import read_folder, read_store_documents
from test_formats import make_csv, make_jsonl, make_parquet

from seqpack_cli import open_store
from seqpack_cli.cli.main import main
from seqpack_cli.corpus.sources import spool_standard_input
from seqpack_cli.errors import MachineError, OptionError
from seqpack_cli.files.inputs import spell_inputs
from seqpack_cli.limits import LIMITS
from seqpack_cli.tokens.tokenize_run import tokenize

TEXTS = ["one", "", "two\nlines\r\n", "é漢𝄞", *(f"line {number}" for number in range(40))]


class Broken(io.RawIOBase):
    """A pipe that fails after a few bytes."""

    def __init__(self, error: BaseException) -> None:
        self._error = error
        self._num_reads = 0

    def read(self, size: int = -1) -> bytes:
        del size
        self._num_reads += 1
        if self._num_reads == 1:
            return b"some text\n"
        raise self._error


def run(data: bytes, *arguments: object) -> Result:
    """Run `seqpack ARGUMENTS` with these bytes on its standard input."""
    names = [str(argument) for argument in arguments]
    result = CliRunner().invoke(main, [*names, "--num-workers", "1"], input=data)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def hidden_files(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(".stdin")]


# Through the command line


@pytest.mark.parametrize(
    ("file_format", "data"),
    [
        ("jsonl", make_jsonl(TEXTS)),
        ("csv", make_csv(TEXTS)),
        ("parquet", make_parquet(TEXTS)),
    ],
    ids=["jsonl", "csv", "parquet"],
)
@pytest.mark.parametrize("part_bytes", [100, 1 << 30])
def test_standard_input_gives_the_ids_of_a_file(
    tmp_path: Path, file_format: str, data: bytes, part_bytes: int
) -> None:
    (tmp_path / "a.jsonl").write_bytes(make_jsonl(TEXTS))
    plain = run(b"", "tokenize", tmp_path / "a.jsonl", "-o", tmp_path / "plain")
    assert plain.exit_code == 0, plain.output
    store = tmp_path / "store"
    options = ("--format", file_format, "--part-bytes", part_bytes)
    result = run(data, "tokenize", "-", "-o", store, *options)
    assert result.exit_code == 0, result.output
    assert [ids.tolist() for ids in open_store(store)] == [
        ids.tolist() for ids in open_store(tmp_path / "plain")
    ]
    assert read_store_documents(store) == read_store_documents(tmp_path / "plain")
    (source,) = open_store(store).manifest["sources"]
    assert (source["path"], source["bytes"]) == ("-", len(data))
    assert open_store(store).locate(0).source == "-"
    assert hidden_files(store) == []


def test_standard_input_is_text_by_default(tmp_path: Path) -> None:
    result = run(b"\xef\xbb\xbfone\r\n\ntwo", "tokenize", "-", "-o", tmp_path / "store")
    assert result.exit_code == 0, result.output
    assert read_store_documents(tmp_path / "store") == [[[*b"one"]], [], [[*b"two"]]]
    result = run(b"a\nb\n\nc", "tokenize", "-", "-o", tmp_path / "other", "--document", "paragraph")
    assert result.exit_code == 0, result.output
    assert read_store_documents(tmp_path / "other") == [[[*b"a\nb"]], [[*b"c"]]]


def test_standard_input_is_read_in_the_order_of_the_inputs(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text(f"{name}\n")
    inputs = (tmp_path / "b.txt", "-", tmp_path / "a.txt", "-")
    result = run(b"in\n", "tokenize", *inputs, "-o", tmp_path / "store")
    assert result.exit_code == 0, result.output
    assert [ids.tolist() for ids in open_store(tmp_path / "store")] == [[*b"b"], [*b"in"], [*b"a"]]


def test_file_named_like_standard_input_is_read_by_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "-").write_text("file\n")
    assert run(b"pipe\n", "tokenize", "./-", "-", "-o", "store").exit_code == 0
    assert [ids.tolist() for ids in open_store(Path("store"))] == [[*b"file"], [*b"pipe"]]


def test_two_workers_share_standard_input(tmp_path: Path) -> None:
    data = make_jsonl(TEXTS)
    for num_workers in (1, 2):
        result = CliRunner().invoke(
            main,
            [
                *("tokenize", "-", "-o", str(tmp_path / f"by-{num_workers}"), "--format", "jsonl"),
                *("--part-bytes", "500", "--num-workers", str(num_workers)),
            ],
            input=data,
        )
        assert result.exit_code == 0, result.output
    assert read_folder(tmp_path / "by-2") == read_folder(tmp_path / "by-1")
    assert len(open_store(tmp_path / "by-2").manifest["parts"]) > 2


def test_same_bytes_again_are_already_complete_and_others_are_refused(tmp_path: Path) -> None:
    arguments = ("tokenize", "-", "-o", tmp_path / "store")
    assert run(b"one\n", *arguments).exit_code == 0
    before = read_folder(tmp_path / "store")
    again = run(b"one\n", *arguments)
    assert again.stdout.startswith(f"{tmp_path / 'store'}: already complete\n")
    other = run(b"two\n", *arguments)
    assert other.exit_code == 4
    message = f"Error: {tmp_path / 'store'}: - changed since this run began\n"
    assert other.stderr.startswith(message)
    assert run(b"longer\n", *arguments).exit_code == 4
    assert read_folder(tmp_path / "store") == before
    assert hidden_files(tmp_path / "store") == []


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (b"", [], "-: no document with a token (0 documents read)"),
        (b"a\n\xff\n", [], "-:2: byte 0xff, expected UTF-8"),
        (b"{}", ["--format", "jsonl"], "-:1: no field 'text' (found: none)"),
        (b"a\n", ["--format", "csv"], "-:1: no column 'text' (found: 'a')"),
        (b"text\n" * 9, ["--format", "parquet"], "-: not Parquet, or damaged (Parquet magic"),
        (gzip.compress(b"a\n", mtime=0), [], "-: gzip (begins with b'\\x1f\\x8b\\x08"),
    ],
)
def test_error_names_standard_input_and_leaves_nothing(
    tmp_path: Path, data: bytes, options: Sequence[str], message: str
) -> None:
    result = run(data, "tokenize", "-", "-o", tmp_path / "store", *options)
    assert result.exit_code == 3
    assert result.stderr.startswith(f"Error: {message}")
    store = tmp_path / "store"
    names = {path.name for path in store.iterdir()} if store.exists() else set()
    assert not {name for name in names if name.startswith(("manifest", ".stdin"))}


@pytest.mark.parametrize("first", [b"", b"\n\r\n\n"])
def test_run_without_a_token_can_be_made_with_other_input(tmp_path: Path, first: bytes) -> None:
    """A broken pipe gives no bytes; then the same command is run again."""
    arguments = ("tokenize", "-", "-o", tmp_path / "store")
    for _ in range(2):
        result = run(first, *arguments)
        assert result.exit_code == 3
        assert result.stderr.startswith("Error: -: no document with a token (")
        assert list((tmp_path / "store").glob("part-*.json")) == []
    result = run(b"one\ntwo\n", *arguments)
    assert result.exit_code == 0, result.output
    assert [ids.tolist() for ids in open_store(tmp_path / "store")] == [[*b"one"], [*b"two"]]
    assert hidden_files(tmp_path / "store") == []
    assert run(b"one\ntwo\n", "tokenize", "-", "-o", tmp_path / "plain").exit_code == 0
    assert read_folder(tmp_path / "store") == read_folder(tmp_path / "plain")


def test_standard_input_that_is_closed_is_an_error(tmp_path: Path) -> None:
    """Only if `-` is an input. A shell closes it with `<&-`."""
    (tmp_path / "a.txt").write_text("a\n")
    command = f'exec {sys.executable} -m seqpack_cli tokenize "$0" -o "$1" -q <&-'
    codes = {}
    for name in ("-", "a.txt"):
        done = subprocess.run(
            ["sh", "-c", command, name, f"store-{len(name)}"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )
        codes[name] = (done.returncode, done.stderr)
    assert codes == {
        "-": (2, "Error: -: standard input is closed\n\nhint: pass a file\n"),
        "a.txt": (0, ""),
    }


def test_training_reads_standard_input_and_leaves_nothing(tmp_path: Path) -> None:
    data = "".join(json.dumps({"text": f"word {n} and word"}) + "\n" for n in range(50)).encode()
    (tmp_path / "a.jsonl").write_bytes(data)
    for name, source in (("file.json", tmp_path / "a.jsonl"), ("pipe.json", "-")):
        result = CliRunner().invoke(
            main,
            [
                *("train-tokenizer", str(source), "-o", str(tmp_path / name)),
                *("--vocab-size", "280", "--format", "jsonl"),
            ],
            input=data,
        )
        assert result.exit_code == 0, result.output
    assert (tmp_path / "pipe.json").read_bytes() == (tmp_path / "file.json").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "file.json", "pipe.json"]


# The spool


@contextmanager
def reading(stream: object) -> Iterator[None]:
    """Replace standard input by a stream."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", SimpleNamespace(buffer=stream))
        yield


@contextmanager
def spooled(inputs: list[str], stream: object, folder: Path) -> Iterator[str | None]:
    with reading(stream), spool_standard_input(inputs, folder) as spool:
        yield spool


@pytest.mark.parametrize("block_bytes", [1, 3, 1 << 20])
def test_spool_holds_every_byte_while_it_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int
) -> None:
    monkeypatch.setattr(LIMITS, "read_bytes", block_bytes)
    data = bytes(range(256))
    with spooled(["a", "-"], io.BytesIO(data), tmp_path) as spool:
        assert spool is not None
        assert Path(spool).read_bytes() == data
        assert Path(spool).parent == tmp_path
    assert list(tmp_path.iterdir()) == []


def test_pipe_with_small_reads_is_read_to_its_end(tmp_path: Path) -> None:
    receiver, sender = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-c", "import os\nfor _ in range(50): os.write(1, b'x' * 999)"],
        stdout=sender,
    ):
        os.close(sender)
        with (
            os.fdopen(receiver, "rb") as pipe,
            spooled(["-"], pipe, tmp_path) as spool,
        ):
            assert Path(str(spool)).read_bytes() == b"x" * 49950


def test_input_that_is_not_named_is_not_read(tmp_path: Path) -> None:
    stream = io.BytesIO(b"data")
    with spooled(["a.txt"], stream, tmp_path) as spool:
        assert spool is None
        assert list(tmp_path.iterdir()) == []
    assert stream.read() == b"data"


def test_missing_standard_input_is_an_error(tmp_path: Path) -> None:
    with (
        pytest.raises(OptionError) as caught,
        spooled(["-"], None, tmp_path),
    ):
        pass
    assert caught.value.message == "-: standard input is closed"
    assert caught.value.hint == "pass a file"


def test_run_that_fails_leaves_no_spool(tmp_path: Path) -> None:
    with (
        pytest.raises(ZeroDivisionError),
        spooled(["-"], io.BytesIO(b"data"), tmp_path),
    ):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_disk_that_fails_leaves_no_spool(tmp_path: Path) -> None:
    broken = Broken(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    with (
        pytest.raises(MachineError) as caught,
        spooled(["-"], broken, tmp_path),
    ):
        pass
    assert caught.value.message == "-: No space left on device"
    assert caught.value.exit_code == 5
    assert list(tmp_path.iterdir()) == []


def test_interrupt_while_it_is_copied_leaves_no_spool(tmp_path: Path) -> None:
    """train-tokenizer spools beside the file it writes, where no later run cleans up."""
    broken = Broken(KeyboardInterrupt())
    with (
        pytest.raises(KeyboardInterrupt),
        spooled(["-"], broken, tmp_path),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_interrupted_run_leaves_no_spool_and_continues(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with reading(Broken(KeyboardInterrupt())), pytest.raises(KeyboardInterrupt):
        tokenize(["-"], store)
    assert not store.exists()
    with reading(io.BytesIO(b"ab\n")):
        tokenize(["-"], store)
    assert [ids.tolist() for ids in open_store(store)] == [[97, 98]]


def test_path_of_a_dash_is_a_file() -> None:
    assert spell_inputs(Path("./-")) == ["./-"]
    assert spell_inputs(["-", Path("-"), Path("a.txt")]) == ["-", "./-", "a.txt"]
