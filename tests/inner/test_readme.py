"""The README is short and true: its console blocks print what it shows, its Python blocks run."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import DOCS, README, ROOT, find_broken_links, run_page

MAX_LINES = 300
TEXT = README.read_text()


@pytest.mark.usefixtures("one_thread")
def test_blocks_of_the_readme_do_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("sample_data", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    run_page(TEXT)
    made = (tmp_path / "tokenizer.json").read_bytes()
    assert made == (ROOT / "sample_data" / "tokenizer.json").read_bytes()


def test_readme_is_short() -> None:
    assert len(TEXT.splitlines()) <= MAX_LINES


def test_links_of_the_readme_resolve_and_reach_every_page() -> None:
    assert find_broken_links(README) == []
    assert DOCS
    for path in DOCS:
        assert f"(docs/{path.name})" in TEXT


def test_readme_names_every_command() -> None:
    from seqpack_cli.cli.main import COMMANDS

    for name in COMMANDS:
        assert f"| `seqpack {name} " in TEXT
