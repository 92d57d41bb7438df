"""The Pythons that the scripts take, and the places that name them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OLDEST = (3, 11)


def source_environment(folder: Path, python: str | None) -> subprocess.CompletedProcess[str]:
    """Source environment.sh in a folder whose environments are complete; print its python."""
    (folder / "scripts").mkdir()
    for name in ("scripts/environment.sh", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, folder / name)
    command = """
        set -euo pipefail
        stamp=installed-$(cat pyproject.toml constraints.txt | cksum | tr ' ' '-')-[dev]
        for name in .venv "$@"; do mkdir -p "$name/bin"; touch "$name/$stamp"; done
        . scripts/environment.sh '[dev]'
        echo "${PATH%%:*}"
    """
    version = f".venv-{sys.version_info[0]}.{sys.version_info[1]}"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHON"}
    if python is not None:
        environment["PYTHON"] = python
    return subprocess.run(
        ["bash", "-c", command, "bash", version],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_each_python_has_its_own_environment(tmp_path: Path) -> None:
    (tmp_path / "default").mkdir()
    (tmp_path / "chosen").mkdir()
    default = source_environment(tmp_path / "default", None)
    chosen = source_environment(tmp_path / "chosen", sys.executable)
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert default.stdout == f"{tmp_path}/default/.venv/bin\n", default.stderr
    assert chosen.stdout == f"{tmp_path}/chosen/.venv-{version}/bin\n", chosen.stderr


def test_python_that_does_not_run_is_an_error(tmp_path: Path) -> None:
    done = source_environment(tmp_path, "python3.99")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "Error: PYTHON=python3.99 does not run\n"


def test_python_that_is_too_old_is_an_error(tmp_path: Path) -> None:
    """It is played by this one, which is told that it is another."""
    old = tmp_path / "old-python"
    old.write_text(
        f'#!/bin/sh\nexec "{sys.executable}" -c "import platform, sys\n'
        "sys.version_info = (3, 10, 13)\nplatform.python_version = lambda: '3.10.13'\n"
        'exec(sys.argv[1])" "$2"\n'
    )
    old.chmod(0o755)
    done = source_environment(tmp_path, str(old))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"Error: PYTHON={old} is Python 3.10.13, expected 3.11 or newer\n"


@pytest.mark.parametrize("name", ["scripts/environment.sh", "CONTRIBUTING.md"])
def test_oldest_python_is_named_alike_everywhere(name: str) -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project, tool = settings["project"], settings["tool"]
    oldest = f"{OLDEST[0]}.{OLDEST[1]}"
    assert project["requires-python"] == f">={oldest}"
    assert tool["mypy"]["python_version"] == oldest
    assert tool["ruff"]["target-version"] == f"py{OLDEST[0]}{OLDEST[1]}"
    text = (ROOT / name).read_text(encoding="utf-8")
    assert set(re.findall(r"(3\.\d+) or newer", text)) == {oldest}


def test_classifiers_name_every_python_from_the_oldest_on() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    python = "Programming Language :: Python :: 3."
    minors = [
        int(classifier.removeprefix(python))
        for classifier in settings["project"]["classifiers"]
        if classifier.startswith(python)
    ]
    assert minors == list(range(OLDEST[1], minors[-1] + 1))
