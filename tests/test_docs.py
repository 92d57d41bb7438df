"""What docs/ names is there: tests, modules, options."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCS = sorted((ROOT / "docs").glob("*.md"))
FILES = [path for name in ("tests", "seqpack_cli", "examples") for path in (ROOT / name).rglob("*")]
TEST_NAMES = {
    name
    for path in (ROOT / "tests").glob("test_*.py")
    for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
}


def find_code(path: Path) -> list[str]:
    return re.findall(r"`([^`\n]+)`", path.read_text())


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_tests_and_files_that_a_page_names_are_there(path: Path) -> None:
    paths = {str(found.relative_to(ROOT)) for found in FILES} | {found.name for found in FILES}
    num_tests = 0
    for code in find_code(path):
        file, _, name = code.rpartition("::")
        if name.startswith("test_") and not name.endswith(".py"):
            assert any(fnmatch(found, name) for found in TEST_NAMES), code
            num_tests += 1
        elif name.endswith(".py"):
            file = name
        if file:
            assert file in paths, code
    assert num_tests or path.name != "reliability.md"


def test_pages_are_found_from_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    assert DOCS
    for path in DOCS:
        assert f"(docs/{path.name})" in readme
