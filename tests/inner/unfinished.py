"""Runs that stop before their end, like killed ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from seqpack_cli.runs import run_folder


class Stop(BaseException):
    """Stands for Ctrl-C or a kill: no `except Exception` sees it."""


@contextmanager
def stopping_before_manifest() -> Iterator[None]:
    """Stop the run in the block just before it writes its manifest."""

    def stop_at_manifest(path: Path, value: dict[str, Any]) -> str:
        if path.name == "manifest.json":
            raise Stop
        return write_json(path, value)

    write_json = run_folder.write_json
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_folder, "write_json", stop_at_manifest)
        with pytest.raises(Stop):
            yield
