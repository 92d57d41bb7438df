"""The README is true: its console blocks give what it says, its Python blocks run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SHARED = ROOT.parent / "shared" / "data"
README = (ROOT / "README.md").read_text()
# Measured anew each time: speeds of verify, and errors, which differ between processors.
MEASURED = re.compile(r"(?<=%) +\d+\.?\d*( [kMG])?(?=  \d|\n|$)|\d\.\de-\d\d")


def _blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def _run(command: str, folder: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={
            **os.environ,
            "PATH": path,
            "PYTHONPATH": str(ROOT),
            "LC_ALL": "C.UTF-8",
            "OMP_NUM_THREADS": "1",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.parametrize("page", ["README.md", "docs/inspect.md", "docs/training.md"])
def test_commands_print_what_a_page_shows_and_python_runs_after_them(tmp_path, page):
    text = (ROOT / page).read_text()
    (tmp_path / "sample_data").symlink_to(ROOT / "sample_data")
    for block in _blocks("console", text):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            printed = _run(command, tmp_path)
            assert MEASURED.sub("#", printed) == MEASURED.sub("#", shown), command
    # Each in a namespace of its own; torch is imported once.
    blocks = "".join(f"exec({block!r}, {{}})\n" for block in _blocks("python", text))
    _run(f"{sys.executable} -W error - <<'END'\n{blocks}END", tmp_path)


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
def test_readme_plan_is_that_of_the_shared_data(tmp_path):
    for path in SHARED.iterdir():
        (tmp_path / path.name).symlink_to(path)
    (block,) = _blocks("text")
    *commands, shown = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    for command in commands:
        assert _run(command.strip(), tmp_path) == ""
    command, _, expected = shown.partition("\n")
    assert _run(command, tmp_path) == expected
