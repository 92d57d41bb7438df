"""The package as syntax trees, each file parsed and walked once for all tests of a process."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import seqpack_cli

PACKAGE = Path(seqpack_cli.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))


@functools.cache
def parse(path: Path) -> ast.Module:
    """Return the tree of a file."""
    return ast.parse(path.read_text())


@functools.cache
def find_nodes(path: Path) -> list[ast.AST]:
    """Return all nodes of a file, in the order of `ast.walk`."""
    return [*ast.walk(parse(path))]
