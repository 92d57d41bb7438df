"""The program itself: help, versions, completion, exit codes, one JSON document."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from command import run

from seqpack_cli import __version__
from seqpack_cli.cli.main import main

COMMANDS = main.list_commands(None)  # type: ignore[arg-type]


def test_help_names_every_command():
    result = run("--help")
    assert result.exit_code == 0
    for name in COMMANDS:
        assert f"\n  {name} " in result.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_every_command_explains_every_option(name):
    result = run(name, "--help")
    assert result.exit_code == 0
    assert f"seqpack {name} " in result.stdout.split("Options:")[0], "an example in the help"


@pytest.mark.parametrize(
    ("name", "shown"), [("verify", "--sample N|all "), ("pack", "--buckets auto|K1,K2,… ")]
)
def test_help_spells_a_value_as_it_is_typed(name, shown):
    assert shown in run(name, "--help").stdout


@pytest.mark.parametrize(("columns", "least", "most"), [("80", 70, 80), ("300", 90, 100)])
def test_help_is_as_wide_as_the_terminal_up_to_100(columns: str, least: int, most: int) -> None:
    command = [sys.executable, "-m", "seqpack_cli", "pack", "--help"]
    environment = {**os.environ, "COLUMNS": columns}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    options = done.stdout.partition("Batches:")[2].splitlines()
    assert least < max(map(len, options)) <= most


@pytest.mark.parametrize(("command", "has_workers"), [("pack a -o b", True), ("diff a b", False)])
def test_out_of_memory_names_workers_only_where_a_command_has_them(
    command: str, has_workers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_out(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(main.get_command(None, command.split()[0]), "invoke", run_out)
    result = run(*command.split())
    assert result.exit_code == 5
    assert ("--num-workers" in result.stderr) == has_workers


def test_version_names_what_matters() -> None:
    first, system, *packages = run("--version").stdout.splitlines()
    assert first == f"seqpack, version {__version__}"
    assert system.startswith(f"python {platform.python_version()}, {platform.system()} ")
    for name in ("torch", "tokenizers", "numpy", "xxhash", "pyarrow", "jinja2"):
        assert f"{name} {metadata.version(name)}" in packages


def _complete(shell: str, line: str) -> list[str]:
    words = line.split(" ")
    environment = {
        "_SEQPACK_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    code = "import sys; sys.argv = ['seqpack']; from seqpack_cli.__main__ import run; run()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("seqpack ver", ["plain,verify"]),
        (
            "seqpack pack tokens --layout ",
            ["plain,packed", "plain,padded", "plain,varlen", "plain,streams"],
        ),
        (
            "seqpack tokenize a.txt --over",
            ["plain,--overflow", "plain,--overlap", "plain,--overwrite"],
        ),
        ("seqpack inspect sha", ["file,sha"]),
    ],
)
def test_bash_completes_commands_options_and_choices(line, expected):
    assert _complete("bash", line) == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_gets_its_completion_script(shell):
    program = Path(sys.executable).with_name("seqpack")
    if not program.exists():
        pytest.skip("needs the installed program")
    done = subprocess.run(
        [program],
        env={**os.environ, "_SEQPACK_COMPLETE": f"{shell}_source"},
        capture_output=True,
        text=True,
    )
    if "Bash version" in done.stderr or "bash" in done.stderr.lower():
        pytest.skip(done.stderr)  # click asks bash for its version
    assert done.returncode == 0
    assert f"_SEQPACK_COMPLETE={shell}_complete" in done.stdout


def test_module_runs_like_the_command():
    command = [sys.executable, "-m", "seqpack_cli", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("seqpack, version ")


@pytest.mark.parametrize(("name", "shown"), [("Maß", "Maß"), ("Ma\udcdf", r"Ma\udcdf")])
def test_json_spells_unicode_as_it_is(tmp_path, name, shown):
    (tmp_path / "a.txt").write_text("a\n")
    assert run("tokenize", tmp_path / "a.txt", "-o", tmp_path / name).exit_code == 0
    assert f'/{shown}"' in run("inspect", tmp_path / name, "--json").stdout


def test_json_prints_one_document(tmp_path):
    (tmp_path / "a.txt").write_text("one\ntwo two\n")
    tokens, shards = tmp_path / "tokens", tmp_path / "shards"
    for arguments in (
        ("tokenize", tmp_path / "a.txt", "-o", tokens),
        ("pack", tokens, "-o", shards),
        ("inspect", tokens),
        ("inspect", shards),
        ("verify", shards),
    ):
        result = run(*arguments, "--json")
        assert result.exit_code == 0, result.stderr
        assert isinstance(json.loads(result.stdout), dict)


@pytest.mark.parametrize(
    ("names", "is_coloured"), [("", False), ("FORCE_COLOR", True), ("FORCE_COLOR NO_COLOR", False)]
)
def test_colours_are_as_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: str, is_coloured: bool
) -> None:
    (tmp_path / "a.jsonl").write_text('{"p": "one", "c": "two"}')
    words = ("tokenize", tmp_path / "a.jsonl", "--prompt-field", "p", "--completion-field", "c")
    assert run(*words, "-o", tmp_path / "tokens").exit_code == 0
    for name in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.setenv(name, "1" if name in names.split() else "")
    monkeypatch.setenv("TERM", "xterm")
    shown = run("inspect", tmp_path / "tokens", "--sequence", 0).stdout
    assert ("\x1b[" in shown) is is_coloured
