"""Folders as tests compare them, and JSON files that they change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read_folder(folder: Path) -> dict[str, bytes]:
    """Return all files of a folder except run.json, which may differ between equal runs."""
    return {
        path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.name != "run.json"
    }


def change_json(path: Path, change: Any) -> None:
    """Rewrite a JSON file; `change` changes its value in place."""
    value = json.loads(path.read_bytes())
    change(value)
    path.write_text(json.dumps(value))
