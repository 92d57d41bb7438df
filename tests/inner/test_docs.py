"""docs/ is true: its blocks do what it shows, and what it names exists."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path

import pytest
from pages import (
    DOCS,
    README,
    ROOT,
    find_blocks,
    find_broken_links,
    run_command,
    run_page,
    split_commands,
)

SHARED = ROOT.parent / "shared" / "data"
PAGES = [README, *DOCS]
FOLDERS = ("tests", "seqpack_cli", "examples", "benchmarks", "scripts")
FILES = [path for name in FOLDERS for path in (ROOT / name).rglob("*")]
TEST_NAMES = {
    name
    for path in (ROOT / "tests").glob("test_*.py")
    for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
}
OWN_TEST = "interop.md"  # needs trainers: test_interop.py
RUNNING = [
    path
    for path in DOCS
    if path.name != OWN_TEST and find_blocks(path.read_text(), "console", "python")
]


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder to work in, with the width that a terminal has where there is none."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("sample_data", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


@pytest.mark.usefixtures("one_thread", "work")
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")  # once
@pytest.mark.parametrize("path", RUNNING, ids=lambda path: path.name)
def test_blocks_of_a_page_do_what_it_shows(path: Path) -> None:
    run_page(path.read_text())


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


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_links_of_a_page_resolve(path: Path) -> None:
    assert find_broken_links(path) == []


def test_formats_page_documents_every_tensor_field_and_option() -> None:
    from seqpack_cli.batching.layout_rules import LAYOUTS
    from seqpack_cli.shards import recorded_options, shard_manifest
    from seqpack_cli.shards.geometry import Geometry
    from seqpack_cli.shards.shard_tensors import tensor_names
    from seqpack_cli.tokens import store_manifest
    from seqpack_cli.tokens.imports.import_options import ImportOptions
    from seqpack_cli.tokens.tokenize_options import TokenizeOptions

    geometry = Geometry(has_filler_rows=True, num_rows=1)
    names = {name for layout in LAYOUTS for name in tensor_names(layout, geometry)}
    for fields in ("MANIFEST_FIELDS", "LEDGER_FIELDS", "SHARD_FIELDS"):
        names |= set(getattr(shard_manifest, fields))
    for fields in ("MANIFEST_FIELDS", "LEDGER_NAMES", "PART_FIELDS", "RANGE_FIELDS"):
        names |= set(getattr(store_manifest, fields))
    names |= {*store_manifest.SOURCE_FIELDS, *recorded_options.NAMES, *TokenizeOptions().record()}
    names |= set(ImportOptions(vocab_size=1).record())
    text = (ROOT / "docs" / "formats.md").read_text()
    assert sorted(name for name in names if f"`{name}`" not in text) == []


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the shared data")
def test_plan_of_the_shared_data_is_the_one_shown(work: Path) -> None:
    for path in SHARED.iterdir():
        (work / path.name).symlink_to(path)
    ((_, block),) = find_blocks((ROOT / "docs" / "batching.md").read_text(), "text")
    for command, shown in split_commands(block):
        assert run_command(command) == shown
