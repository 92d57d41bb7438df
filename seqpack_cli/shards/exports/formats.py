"""The table of export formats: each is a module of that name here and a word in FORMATS."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqpack_cli.shards.exports.task import Task  # not loaded by `--help`

FORMATS = ("parquet", "megatron", "nanogpt")


def write_format(name: str, task: Task) -> dict[str, Any]:
    """Write one of FORMATS; return its counts."""
    module = importlib.import_module(f"seqpack_cli.shards.exports.{name}_export")
    found: dict[str, Any] = getattr(module, f"export_{name}")(task)
    return found
