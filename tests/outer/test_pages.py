"""README and docs are true: their console blocks print what they show, their Python blocks run."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import DOCS, README, ROOT, find_blocks, run_command, run_page, split_commands

SHARED = ROOT.parent / "shared" / "data"
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


@pytest.mark.usefixtures("one_thread")
def test_blocks_of_the_readme_do_what_it_shows(work: Path) -> None:
    run_page(README.read_text())
    made = (work / "tokenizer.json").read_bytes()
    assert made == (ROOT / "sample_data" / "tokenizer.json").read_bytes()


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the shared data")
def test_plan_of_the_shared_data_is_the_one_shown(work: Path) -> None:
    for path in SHARED.iterdir():
        (work / path.name).symlink_to(path)
    ((_, block),) = find_blocks((ROOT / "docs" / "batching.md").read_text(), "text")
    for command, shown in split_commands(block):
        assert run_command(command) == shown
