"""Report phrases in code, help and docs that a reader has to read twice; exit with 1 for any.

python scripts/check_prose.py
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("seqpack_cli", "tests", "benchmarks", "examples", "scripts", "docs")
SUFFIXES = (".py", ".sh", ".md", ".jinja", ".js")
DATED = "benchmarks/RESULTS.md"  # keeps what was written on its day
PATTERNS = (
    r"'s? is no [a-z]",  # 'x' is not a size
    r"\bis no (?:size|number|UTF|store|shard|text|token)\b",
    r"\bare no (?:shards|text|numbers)\b",
    r"\b[Pp]assed over\b",  # skipped
    r"\b(?:is|are) there already\b",  # already exists
    r"\bmemory is not enough\b",  # out of memory
    r"\bnot to be had\b",  # not found
    r"\bseparate questions\b",  # use only one of
    r"\bdoes not take this tokenizer\b",  # does not support
    r"\bWho (?:encodes|has)\b",
    r"help=\"Of \S",
    r"\bunbroken run\b",  # uninterrupted
    r"\bstands? twice\b",  # duplicate
    r"\b(?:is|are) not looked at\b",  # ignored
    r"\bhad our number\b",  # had the same pid
    r"\b[Mm]end (?:the|it|a)\b",  # fix
    r"\bto be filled up to\b",
    r"sorts by length, --order",  # conflicts with
    r"tokenizer, tokenizers encodes",  # using tokenizers
    r"\bRecords that are not UTF-8\.",
    r"\bOne token is one token\b",
    r"\b[Cc]an not\b",  # cannot
    r"\"\"\"Give\b",  # Return
    r"\"\"\"Say (?:whether|that|of)\b",  # Return whether
)
PATTERN = re.compile("|".join(PATTERNS).replace(" ", " +"))


def find_phrases(text: str) -> list[str]:
    """Return `line: phrase` for each phrase to avoid; a line break counts as a space."""
    joined = re.sub(r"\n[ #*>]*", lambda match: " " * len(match[0]), text)
    return [
        f"{text.count(chr(10), 0, found.start()) + 1}: {found[0]}"
        for found in PATTERN.finditer(joined)
    ]


def main() -> int:
    """Print every phrase of the list that is used, with its place."""
    files = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    for folder in FOLDERS:
        files += [path for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES]
    found = [
        f"{name}:{phrase}"
        for path in sorted(files)
        if (name := str(path.relative_to(ROOT))) not in (DATED, "scripts/check_prose.py")
        for phrase in find_phrases(path.read_text())
    ]
    print(*found, sep="\n", end="\n" if found else "")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
