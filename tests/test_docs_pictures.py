"""The pictures of the documentation are those that the program draws of sample_data/ today."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import matplotlib
import pytest

ROOT = Path(__file__).parent.parent
PICTURES = ROOT / "docs" / "pictures"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make all pictures again."""
    folder = tmp_path_factory.mktemp("made")
    programs = Path(sys.executable).parent
    if not (programs / "seqpack").exists():
        pytest.skip("needs the installed program")
    done = subprocess.run(
        [ROOT / "scripts" / "make_docs_pictures.sh", folder],
        env={**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder


def read_texts(path: Path) -> list[str]:
    return re.findall(r"<text[^>]*>(.*?)</text>", path.read_text(), re.DOTALL)


def test_pictures_are_current(made: Path) -> None:
    names = sorted(path.name for path in PICTURES.iterdir())
    assert names == sorted(path.name for path in made.iterdir())
    for name in names:
        kept, now = PICTURES / name, made / name
        assert read_texts(kept) == read_texts(now), "run scripts/make_docs_pictures.sh"
        if f"Matplotlib v{matplotlib.__version__}," in kept.read_text():
            assert kept.read_bytes() == now.read_bytes(), "run scripts/make_docs_pictures.sh"


def test_every_picture_is_shown_and_described() -> None:
    shown = {}
    for page in PAGES:
        for description, target in re.findall(r"!\[(.*?)\]\((.*?)\)", page.read_text()):
            path = (page.parent / target).resolve()
            assert path.is_file(), f"{page.name}: {target}"
            assert len(description.split()) >= 5, f"{page.name}: {target} needs a description"
            shown[path.name] = page.name
    assert sorted(shown) == sorted(path.name for path in PICTURES.iterdir())
    assert {"README.md", "inspect.md"} <= set(shown.values())
