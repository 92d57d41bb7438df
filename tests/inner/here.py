"""A run in this process, and zstd wherever it is."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import pytest

from seqpack_cli.runs.workers import Executor

HERE = Executor(num_workers=1)


def import_zstd() -> Any:
    """Import zstd: of the standard library from Python 3.14 on, else the package."""
    if sys.version_info >= (3, 14):
        return importlib.import_module("compression.zstd")
    return pytest.importorskip("backports.zstd")
