"""Describe the machine and versions that the figures of a benchmark depend on."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any


def describe_machine(*packages: str) -> dict[str, Any]:
    """Return the machine, the versions of Python and the packages, and the commit."""
    return {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
        "commit": find_commit(),
    }


def find_commit() -> str:
    """Return the commit of the source tree, or the variable COMMIT if there is no git."""
    try:
        command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
        found = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    except OSError:
        found = ""
    return found or os.environ.get("COMMIT", "unknown")
