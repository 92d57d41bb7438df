"""A token store of imported ids, without a tokenizer."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from command import run

VOCAB_SIZE = 259  # of the ids of `bytes`
TEXTS = ("The ferry", "leaves at nine.", "", "x", "No bridge crosses the river, only a rope.")


def write_pair(prefix: Path, documents: Iterable[bytes]) -> Path:
    """Write an indexed dataset as Megatron-LM does, an id a byte, a sequence a document."""
    lengths = np.array([len(ids) for ids in documents], "<i4")
    ids = np.frombuffer(b"".join(documents), np.uint8)
    Path(f"{prefix}.bin").write_bytes(ids.astype("<i4").tobytes())
    header = struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, 4, len(lengths), len(lengths) + 1)
    starts = (np.cumsum(lengths) - lengths).astype("<i8") * 4
    firsts = np.arange(len(lengths) + 1, dtype="<i8")
    parts = [header, *(array.tobytes() for array in (lengths, starts, firsts))]
    Path(f"{prefix}.idx").write_bytes(b"".join(parts))
    return prefix


def make_imported(
    folder: Path, texts: Iterable[str] = TEXTS, vocab_size: int = VOCAB_SIZE, **changes: Any
) -> Path:
    """Import the bytes of some texts as ids; `changes` are of the manifest."""
    prefix = write_pair(folder.with_suffix(".pair"), [text.encode() for text in texts])
    result = run("import", prefix, "--vocab-size", vocab_size, "-o", folder, "-q")
    assert result.exit_code == 0, result.stderr
    return change_manifest(folder, changes) if changes else folder


def change_manifest(folder: Path, changes: dict[str, Any]) -> Path:
    """Change fields of a manifest, or fields of its objects."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_bytes())
    for name, value in changes.items():
        manifest[name] = {**manifest[name], **value} if isinstance(value, dict) else value
    path.write_text(json.dumps(manifest))
    return folder
