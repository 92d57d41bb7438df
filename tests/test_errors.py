"""Errors: their text, their exit codes, their way out of a worker.

error_table.txt has the errors that a user meets, typed in the folder of error_cases.py: a command,
then its exit code, the message and the hint after two spaces. `<any>` stands for what a library
says, or a list that goes on.
"""

from __future__ import annotations

import contextlib
import pickle
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import run
from error_cases import make_folder

from seqpack_cli.cli.main import main
from seqpack_cli.errors import (
    DataError,
    FolderError,
    MachineError,
    OptionError,
    SeqpackError,
    join_items,
    quote,
)

TABLE = Path(__file__).with_name("error_table.txt").read_text(encoding="utf-8").splitlines()
NAMES = set(main.list_commands(None))  # type: ignore[arg-type]
ROWS = [(line[2:], found) for line, found in zip(TABLE[::2], TABLE[1::2], strict=True)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Make the folder of the table, and work in it; no row may change one of its files."""
    path = tmp_path_factory.mktemp("errors")
    with contextlib.chdir(path):
        make_folder()
        before = read_files(path)
        yield path
        assert read_files(path) == before


def read_files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("command", "expected"), ROWS, ids=[command for command, _ in ROWS])
def test_mistake_has_its_exit_code_message_and_hint(
    folder: Path, command: str, expected: str
) -> None:
    result = run(*shlex.split(command))
    lines = result.stderr.splitlines()
    start = next((n for n, line in enumerate(lines) if line.startswith("Error: ")), len(lines))
    found = "  ".join(filter(None, lines[start:])).removeprefix("Error: ")
    pattern = re.escape(expected).replace("<any>", ".*")
    assert re.fullmatch(pattern, f"{result.exit_code} {found}"), f"{result.exit_code} {found}"
    assert result.stdout == ""
    assert not any(folder.joinpath("out").glob("manifest.json"))
    assert not Path("out").exists() or any(Path("out").iterdir())
    shutil.rmtree("out", ignore_errors=True)


def test_hint_names_options_that_a_command_has() -> None:
    """They are options of the command that was typed, or of one that the hint names."""
    seen: dict[str, set[str]] = {}
    lacking = []
    for command, expected in ROWS:
        words = re.findall(r"-*[a-z][a-z-]*", expected.partition("  hint: ")[2])
        names = {command.split()[0], *words} & NAMES
        for name in names - set(seen):
            seen[name] = set(re.findall(r"--[a-z][a-z-]*", run(name, "--help").stdout))
        options = {word for word in words if word.startswith("--")}
        lacking += [
            (command, option) for option in options.difference(*(seen[name] for name in names))
        ]
    assert lacking == []


def follow_hint(command: str, hint: str) -> list[str] | None:
    """Return the command with the option that the hint says to pass; None if it cannot be typed."""
    found = re.search(
        r"pass (--[a-z-]+)(?: ('[^']*'|[a-z0-9][\w.:*-]*))?(?=$|,| or | if | to (?!tokenize|pack))",
        hint,
    )
    if not found or found[2] == "too":
        return None
    name, value = found[1], found[2]
    params = main.get_command(None, command.split()[0]).params  # type: ignore[arg-type]
    option = next((param for param in params if name in param.opts), None)
    if option is None or option.is_flag != (value is None):
        return None
    words = shlex.split(command)
    for other in (name, *re.findall("without (--[a-z-]+)", hint)):
        while not option.is_flag and other in words:
            del words[words.index(other) : words.index(other) + 2]
    return [*words, name, *shlex.split(value or "")]


FOLLOWED = [
    (words, expected)
    for command, expected in ROWS
    if (words := follow_hint(command, expected.partition("  hint: ")[2]))
]


@pytest.mark.parametrize(
    ("words", "expected"), FOLLOWED, ids=[shlex.join(words) for words, _ in FOLLOWED]
)
def test_hint_that_is_followed_ends_the_error(
    folder: Path, words: list[str], expected: str, tmp_path: Path
) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy", symlinks=True)
    with contextlib.chdir(copy):
        result = run(*words)
    message = expected.partition("  hint: ")[0].partition(" ")[2]
    assert not re.search(re.escape(message).replace("<any>", ".*"), result.stderr)
    assert result.exit_code == 0, result.stderr


@pytest.mark.parametrize(
    ("kind", "exit_code"),
    [(OptionError, 2), (DataError, 3), (FolderError, 4), (MachineError, 5)],
)
def test_error_carries_its_exit_code(kind: type[SeqpackError], exit_code: int) -> None:
    assert kind("text").exit_code == exit_code
    assert issubclass(kind, SeqpackError)


def test_error_text_has_the_hint_after_a_blank_line() -> None:
    assert str(DataError("a.txt:3: found x, expected y")) == "a.txt:3: found x, expected y"
    assert str(DataError("a.txt:3: found x", hint="do y")) == "a.txt:3: found x\n\nhint: do y"


def test_error_text_moves_no_cursor_and_ends_no_line() -> None:
    error = FolderError("a\x1b[2J\nb: found", hint="remove c\nd\x1b]0;e\x07 or \u202ef")
    assert str(error) == ("a\\x1b[2J\\nb: found\n\nhint: remove c\\nd\\x1b]0;e\\x07 or \\u202ef")


def test_error_shows_no_secret_of_a_url_and_nothing_else_less() -> None:
    """botocore repeats the endpoint, which has a password."""
    said = 'no answer from "http://me:SECRET@host:9000/bucket?token=SECRET"'
    masked = 'no answer from "http://***@host:9000/bucket?token=***"'
    assert str(FolderError(said, hint=said)) == f"{masked}\n\nhint: {masked}"
    for text in ("s3://bucket/a@b.c", "s3://bucket/a:b@c", "http://host:9000/a@b", "gs://b/x?y#z"):
        assert str(FolderError(text)) == text


@pytest.mark.parametrize("hint", [None, "type this"])
def test_error_survives_the_pickle_of_a_worker(hint: str | None) -> None:
    error = pickle.loads(pickle.dumps(FolderError("where: what", hint)))  # noqa: S301
    assert type(error) is FolderError
    assert (error.message, error.hint) == ("where: what", hint)


@pytest.mark.parametrize(
    ("value", "quoted"),
    [
        ("a", "'a'"),
        ("a\nb\x00", "'a\\nb\\x00'"),
        (b"\xff", "b'\\xff'"),
        ("\ud800", "'\\ud800'"),
        ("x" * 58, "'" + "x" * 58 + "'"),
        ("x" * 59, "'" + "x" * 58 + "…"),
    ],
)
def test_quoted_value_is_one_line_of_60_characters(value: object, quoted: str) -> None:
    assert quote(value) == quoted
    assert len(quote(value)) <= 60


@pytest.mark.parametrize(
    ("items", "joined"),
    [("", ""), ("a", "a"), ("abcde", "a, b, c, d, e"), ("abcdef", "a, b, c, d, e and 1 more")],
)
def test_list_stops_at_five_items(items: str, joined: str) -> None:
    assert join_items(iter(items)) == joined
