"""The pictures of the documentation are those that the program draws today."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import matplotlib
import pytest
from command import run

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "pictures"
SCRIPT = ROOT / "scripts" / "make_docs_pictures.sh"
DRAW_SCALE = ROOT / "benchmarks" / "draw_scale.py"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make all pictures again by the commands of the script."""
    (tmp_path / "made").mkdir()
    for name in ("sample_data", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    for line in re.findall(r"^seqpack (.*?)(?: >/dev/null)?$", SCRIPT.read_text(), re.MULTILINE):
        result = run(*shlex.split(line.replace("$pictures", "made")))
        assert result.exit_code == 0, result.stderr
    subprocess.run([sys.executable, str(DRAW_SCALE), str(tmp_path / "made")], check=True)
    return tmp_path / "made"


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
