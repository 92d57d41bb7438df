"""Pairs of ids as Megatron-LM writes them, from the format's description.

A pair of `.bin` and `.idx` is given as documents, each a list of sequences, each a list of ids.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from here import HERE

from seqpack_cli import ImportOptions, import_store
from seqpack_cli.files.objects import AnyPath

Documents = list[list[list[int]]]
LETTERS = {1: "B", 2: "b", 3: "h", 4: "i", 5: "q", 6: "d", 7: "f", 8: "H"}  # by dtype code


def write_pair(prefix: Path, documents: Documents, code: int = 8) -> Path:
    """Write PREFIX.bin and PREFIX.idx, and return the prefix."""
    sequences = [sequence for document in documents for sequence in document]
    ids = [id_ for sequence in sequences for id_ in sequence]
    data = struct.pack(f"<{len(ids)}{LETTERS[code]}", *ids)
    size = struct.calcsize(f"<{LETTERS[code]}")
    starts, firsts = [0], [0]
    for sequence in sequences:
        starts.append(starts[-1] + size * len(sequence))
    for document in documents:
        firsts.append(firsts[-1] + len(document))
    index = struct.pack("<9sQBQ", b"MMIDIDX\0\0", 1, code, len(sequences))
    index += struct.pack("<Q", len(firsts))
    index += struct.pack(f"<{len(sequences)}i", *map(len, sequences))
    index += struct.pack(f"<{len(sequences)}q", *starts[:-1])
    index += struct.pack(f"<{len(firsts)}q", *firsts)
    prefix.with_suffix(".bin").write_bytes(data)
    prefix.with_suffix(".idx").write_bytes(index)
    return prefix


def import_ids(inputs: AnyPath | list[Path], output: Path, **options: Any) -> dict[str, Any]:
    """Import in this process and return the manifest."""
    if "tokenizer" not in options:
        options.setdefault("vocab_size", 1000)
    return import_store(inputs, output, ImportOptions(**options), executor=HERE)[0]
