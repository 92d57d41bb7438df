"""The README is true: its console blocks give what it says, its Python blocks run."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from command import run

ROOT = Path(__file__).parent.parent
SHARED = ROOT.parent / "shared" / "data"
README = (ROOT / "README.md").read_text()
# Measured anew each time: speeds of verify, and errors, which differ between processors.
MEASURED = re.compile(r"(?<=%) +\d+\.?\d*( [kMG])?(?=  \d|\n|$)|\d\.\de-\d\d")


def _blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to be in, and a terminal as wide as where there is none."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


def _run(command: str) -> str:
    """Give what a command prints: of the program in this process, of another in a shell."""
    program, *arguments = shlex.split(command)
    if program == "seqpack":
        result = run(*arguments)
        assert result.exit_code == 0, result.output
        return result.output
    return subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("page", ["README.md", "docs/inspect.md", "docs/training.md"])
def test_commands_print_what_a_page_shows_and_python_runs_after_them(work, page):
    text = (ROOT / page).read_text()
    (work / "sample_data").symlink_to(ROOT / "sample_data")
    for block in _blocks("console", text):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            printed = _run(command)
            assert MEASURED.sub("#", printed) == MEASURED.sub("#", shown), command
    for block in _blocks("python", text):
        exec(block, {})  # noqa: S102


def test_readme_names_every_command():
    from seqpack_cli.cli.main import COMMANDS

    for name in COMMANDS:
        assert f"$ seqpack {name} " in README


def test_readme_documents_every_tensor_and_manifest_field():
    from seqpack_cli.batching.layout_rules import LAYOUTS
    from seqpack_cli.shards import shard_manifest
    from seqpack_cli.shards.shard_arrays import tensor_names
    from seqpack_cli.tokens import store_manifest

    names = {name for layout in LAYOUTS for name in tensor_names(layout, filler=True)}
    names |= set(shard_manifest.MANIFEST_FIELDS) | set(store_manifest.MANIFEST_FIELDS)
    for name in names:
        assert f"`{name}`" in README, name


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the shared data")
def test_readme_plan_is_that_of_the_shared_data(work):
    for path in SHARED.iterdir():
        (work / path.name).symlink_to(path)
    (block,) = _blocks("text")
    *commands, shown = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    for command in commands:
        assert _run(command.strip()) == ""
    command, _, expected = shown.partition("\n")
    assert _run(command) == expected
