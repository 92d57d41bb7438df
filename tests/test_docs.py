"""README and docs are short and name only what exists; tests/outer runs their blocks."""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import safetensors
from make_golden import GOLDEN
from pages import DOCS, README, ROOT, find_blocks, find_broken_links, split_commands

from seqpack_cli.cli.main import main

PAGES = [README, *DOCS]
FOLDERS = ("tests", "seqpack_cli", "examples", "benchmarks", "scripts")
FILES = [path for name in FOLDERS for path in (ROOT / name).rglob("*")]
TEST_NAMES = {
    name
    for path in (ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
}
MAX_LINES = 300


def test_readme_is_short_and_reaches_every_page_and_command() -> None:
    text = README.read_text()
    assert len(text.splitlines()) <= MAX_LINES
    assert DOCS
    for path in DOCS:
        assert f"(docs/{path.name})" in text
    for name in main.list_commands(None):  # type: ignore[arg-type]
        assert f"| `seqpack {name} " in text


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_of_a_page_resolve(path: Path) -> None:
    assert find_broken_links(path) == []


def test_pages_make_no_other_contents_under_the_same_name() -> None:
    """A reader who types the blocks of several pages in one folder gets the shown output."""
    made: dict[str, str] = {}
    for path in PAGES:
        for _, block in find_blocks(path.read_text(), "console", "text"):
            for command, _ in split_commands(block):
                found = re.fullmatch(r"(seqpack .*)-o (\S+)(.*)", command)
                if found is None:
                    continue
                before, name, behind = found.groups()
                told = f"{before}{behind.removesuffix(' -q')}".replace("sample_data/tok", "tok")
                assert made.setdefault(name, told.strip()) == told.strip(), f"{path.name}: {name}"
    assert {"tokens", "shards", "tokens-bpe"} <= set(made)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_tests_and_files_that_a_page_names_exist(path: Path) -> None:
    paths = {str(found.relative_to(ROOT)) for found in FILES} | {found.name for found in FILES}
    num_tests = 0
    for code in re.findall(r"`([^`\n]+)`", path.read_text()):
        file, _, name = code.rpartition("::")
        if name.startswith("test_") and not name.endswith(".py"):
            assert any(fnmatch(found, name) for found in TEST_NAMES), code
            num_tests += 1
        elif name.endswith(".py") and " " not in name:
            file = name
        if file:
            assert any(found.endswith(file) for found in paths), code
    assert num_tests or path.name != "reliability.md"


def test_options_page_is_that_of_the_commands() -> None:
    made = runpy.run_path(str(ROOT / "scripts" / "make_options_page.py"))
    assert (ROOT / "docs" / "options.md").read_text() == made["spell_page"]()


def walk_names(value: Any) -> Iterator[str]:
    """Yield the names of all fields."""
    fields = value.items() if isinstance(value, dict) else ()
    for name, each in fields:
        yield from (name, *walk_names(each))
    for each in value if isinstance(value, list) else ():
        yield from walk_names(each)


def test_formats_page_names_every_field_and_tensor() -> None:
    names = set[str]()
    for path in GOLDEN.rglob("manifest.json"):
        names |= {*walk_names(json.loads(path.read_bytes()))}
    for path in GOLDEN.rglob("*.safetensors"):
        with safetensors.safe_open(path, "numpy") as file:
            names |= {name.split(".")[0] for name in file.keys() if "decoder" not in name}  # noqa: SIM118
    text = (ROOT / "docs" / "formats.md").read_text()
    assert len(names) > 100
    assert sorted(name for name in names if f"`{name}" not in text) == []
