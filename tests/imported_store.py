"""A token store of imported ids, without a tokenizer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from command import run

VOCAB_SIZE = 259  # of the ids of `bytes`
TEXTS = ("The ferry", "leaves at nine.", "", "x", "No bridge crosses the river, only a rope.")


def make_imported(folder: Path, *options: object, texts: Any = TEXTS, **changes: Any) -> Path:
    """Make a store with the ids of some texts, an id a byte; `changes` are of the manifest."""
    folder.parent.mkdir(exist_ok=True)
    source = folder.with_suffix(".txt")
    source.write_text("".join(f"{text}\n" for text in texts))
    result = run("tokenize", source, "-o", folder, "-q", *options)
    assert result.exit_code == 0, result.stderr
    return forget_tokenizer(folder, **changes)


def forget_tokenizer(folder: Path, **changes: Any) -> Path:
    """Make an imported store without a tokenizer of one that `tokenize` wrote."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_bytes())
    manifest |= {"made_by": "import", "tokenizer_blake3": None, "options": {"format": "jsonl"}}
    manifest |= dict.fromkeys(("pad_id", "bos_id", "eos_id", "unk_id"))
    manifest |= {"vocab_size": VOCAB_SIZE, "max_id": VOCAB_SIZE - 1, **changes}
    path.write_text(json.dumps(manifest))
    (folder / "tokenizer.json").unlink()
    return folder
