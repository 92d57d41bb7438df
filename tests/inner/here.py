"""A run in this process."""

from __future__ import annotations

from seqpack_cli.runs.workers import Executor

HERE = Executor(num_workers=1)
