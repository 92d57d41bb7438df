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
from seqpack_cli.cli import versions
from seqpack_cli.cli.main import COMMANDS
from seqpack_cli.cli.versions import EXTRAS, PACKAGES

HEAVY = {"torch", "numpy", "tokenizers", "safetensors", "tqdm"}
# Each takes 5 to 20 ms, and only runs with workers, networks or object stores need them.
OF_RUNS = {"asyncio", "concurrent.futures", "logging", "multiprocessing", "socket", "tempfile"}
# What each command may load; torch costs seconds and is only for verify and training.
PROBE = """
import sys
from seqpack_cli.cli.main import main
for arguments in {commands!r}:
    try:
        main(arguments)
    except SystemExit as end:
        assert end.code in (0, None), end.code
print("loaded:", *sorted(sys.modules))
"""


def _loaded_by(*commands: tuple[object, ...]) -> set[str]:
    """Run commands in a new process, and return the modules that it has loaded then."""
    code = PROBE.format(commands=[[str(part) for part in command] for command in commands])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.strip().splitlines()[-1].split()[1:])


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


def test_help_loads_no_heavy_package():
    loaded = _loaded_by(("--help",), *((name, "--help") for name in COMMANDS))
    assert not loaded & (HEAVY | OF_RUNS)


def test_the_list_of_commands_imports_none_of_them():
    assert not [name for name in _loaded_by(("--help",)) if name.endswith("_command")]


def test_all_commands_but_verify_run_without_torch(tmp_path):
    text = tmp_path / "a.txt"
    text.write_text("one\ntwo two\n")
    tokens, shards = tmp_path / "tokens", tmp_path / "shards"
    assert "torch" not in _loaded_by(
        ("tokenize", text, "-o", tokens, "--num-workers", 1),
        ("pack", tokens, "-o", shards, "--num-workers", 1),
        ("inspect", tokens),
        ("inspect", shards, "--sequence", 1),
        ("unpack", shards, "-o", tmp_path / "rows.jsonl"),
    )


def test_inspect_loads_nothing_that_only_runs_need(tmp_path):
    text, tokens, shards = tmp_path / "a.txt", tmp_path / "tokens", tmp_path / "shards"
    text.write_text("one\ntwo two\n")
    assert run("tokenize", text, "-o", tokens, "--num-workers", 1).exit_code == 0
    assert run("pack", tokens, "-o", shards, "--num-workers", 1).exit_code == 0
    loaded = _loaded_by(("inspect", tokens), ("inspect", shards))
    own = {f"seqpack_cli.{name}" for name in ("batching.plan", "corpus.sources", "runs.workers")}
    assert not loaded & ({"torch", "tqdm", "fsspec", "hashlib"} | OF_RUNS | own)


def test_version_names_what_matters_and_loads_none_of_it():
    first, system, *packages = run("--version").stdout.splitlines()
    assert first == f"seqpack, version {__version__}"
    assert system.startswith(f"python {platform.python_version()}, {platform.system()} ")
    assert f"torch {metadata.version('torch')}" in packages
    assert f"tokenizers {metadata.version('tokenizers')}" in packages
    assert len(packages) == len(PACKAGES) + len(EXTRAS)
    assert not _loaded_by(("--version",)) & HEAVY


def test_version_names_an_extra_that_is_not_there(monkeypatch):
    monkeypatch.setattr(versions, "EXTRAS", ("no-such-package",))
    assert run("--version").stdout.endswith("\nno-such-package not installed\n")


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


def test_unknown_command_is_a_usage_error():
    result = run("packk")
    assert result.exit_code == 2
    assert result.stderr.endswith("Error: No such command 'packk'. Did you mean 'pack'?\n")
    assert run("frobnicate").stderr.endswith("Error: No such command 'frobnicate'.\n")


def test_option_that_takes_one_value_is_refused_when_given_twice():
    result = run("pack", "tokens", "-o", "a", "--output", "b")
    assert result.exit_code == 2
    assert result.stderr.endswith("Error: --output was given 2 times, expected one value\n")
    result = run("unpack", "shards", "--text", "-o", "-", "--ids")
    assert result.stderr.endswith("Error: --ids/--text was given 2 times, expected one value\n")
    twice = ("--special-token", "<a>", "--special-token", "<b>")  # takes many
    assert "given" not in run("train-tokenizer", "none.txt", "-o", "t.json", *twice).stderr


def test_error_goes_to_stderr_with_its_hint_and_code(tmp_path):
    result = run("tokenize", tmp_path / "none.txt", "-o", tmp_path / "out")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr == (
        f"Error: {tmp_path}/none.txt: no such file or folder\n\n"
        "hint: pass a file, a folder, or a glob in quotes: 'corpus/**/*.jsonl'\n"
    )


def test_module_runs_like_the_command():
    command = [sys.executable, "-m", "seqpack_cli", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("seqpack, version ")


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
