"""The pages that are tested, what is in them, and how their blocks are run."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

from command import run

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
DOCS = sorted((ROOT / "docs").glob("*.md"))
# Measured anew each time: speeds of verify, and errors, which differ between processors.
MEASURED = re.compile(r"(?<=%) +\d+\.?\d*( [kMG])?(?=  \d|\n|$)|\d\.\de[-+]\d\d")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def find_blocks(text: str, *languages: str) -> list[tuple[str, str]]:
    """Return language and contents of the blocks in some languages, in order."""
    found = BLOCK.findall(text)
    return [(language, block) for language, block in found if language in languages]


def split_commands(block: str) -> list[tuple[str, str]]:
    """Return the commands of a console block, each with what it shows."""
    parts = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    return [(command, shown) for command, _, shown in (part.partition("\n") for part in parts)]


def run_command(command: str) -> str:
    """Return what a command prints: seqpack's in this process, another's in a shell."""
    program, *arguments = shlex.split(command)
    if program == "seqpack":
        result = run(*arguments)
        assert result.exit_code == 0, result.output
        return result.output
    return subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=True
    ).stdout


def run_page(text: str, *languages: str) -> dict[str, Any]:
    """Run the blocks of a page in order, and compare what it shows.

    Args:
        languages: of the blocks; none are `console` and `python`.

    Returns:
        What the blocks of Python define; none sees what another one defines.
    """
    defined: dict[str, Any] = {}
    for language, block in find_blocks(text, *(languages or ("console", "python"))):
        if language != "console":
            names: dict[str, Any] = {}
            exec(block, names)  # noqa: S102
            defined |= names
            continue
        for command, shown in split_commands(block):
            printed = run_command(command)
            assert MEASURED.sub("#", printed) == MEASURED.sub("#", shown), command
    return defined


def find_headings(text: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", BLOCK.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}


def find_broken_links(page: Path) -> list[str]:
    """Return the links of a page to files or headings that do not exist."""
    broken = []
    for link in LINK.findall(BLOCK.sub("", page.read_text())):
        if link.startswith(("https://", "http://")):
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if not target.exists() or (anchor and anchor not in find_headings(target.read_text())):
            broken.append(link)
    return broken
