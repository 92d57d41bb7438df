"""Files of ids as other tools write them, from their formats' descriptions, and a slow reader.

A pair of `.bin` and `.idx` is given as documents, each a list of sequences, each a list of ids.
"""

from __future__ import annotations

import struct
from itertools import pairwise
from pathlib import Path
from typing import Any

import xxhash
from here import HERE

from seqpack_cli import ImportOptions, import_store
from seqpack_cli.files.places import AnyPath

Documents = list[list[list[int]]]
# By the dtype code, of struct: 6 and 7 are floating point, 9 and 10 those of fairseq alone.
LETTERS = {1: "B", 2: "b", 3: "h", 4: "i", 5: "q", 6: "d", 7: "f", 8: "H", 9: "I", 10: "Q"}


def write_pair(prefix: Path, documents: Documents, code: int = 8, *, fairseq: bool = False) -> Path:
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
    index += b"" if fairseq else struct.pack("<Q", len(firsts))
    index += struct.pack(f"<{len(sequences)}i", *map(len, sequences))
    index += struct.pack(f"<{len(sequences)}q", *starts[:-1])
    index += b"" if fairseq else struct.pack(f"<{len(firsts)}q", *firsts)
    prefix.with_suffix(".bin").write_bytes(data)
    prefix.with_suffix(".idx").write_bytes(index)
    return prefix


def read_pair(index: bytes, data: bytes) -> Documents:
    """Read a pair value by value; raise ValueError unless it is whole."""
    try:
        magic, version, code, num_sequences = struct.unpack_from("<9sQBQ", index)
        letter = LETTERS[code]
        is_fairseq = len(index) == 26 + 12 * num_sequences
        num_firsts = 0 if is_fairseq else struct.unpack_from("<Q", index, 26)[0]
        begin = 26 if is_fairseq else 34
        if len(index) != begin + 12 * num_sequences + 8 * num_firsts:
            raise ValueError("size")
        lengths = struct.unpack_from(f"<{num_sequences}i", index, begin)
        starts = struct.unpack_from(f"<{num_sequences}q", index, begin + 4 * num_sequences)
        firsts = struct.unpack_from(f"<{num_firsts}q", index, begin + 12 * num_sequences)
    except (struct.error, KeyError) as error:
        raise ValueError("header") from error
    if (magic, version) != (b"MMIDIDX\0\0", 1) or letter in "df":
        raise ValueError("header")
    if (code in (9, 10) and not is_fairseq) or any(length < 0 for length in lengths):
        raise ValueError("dtype or length")
    firsts = range(num_sequences + 1) if is_fairseq else firsts
    size, place, sequences = struct.calcsize(f"<{letter}"), 0, []
    for start, length in zip(starts, lengths, strict=True):
        if start != place:
            raise ValueError("start")
        place += size * length
        if place > len(data):
            raise ValueError("end")
        sequences.append(list(struct.unpack(f"<{length}{letter}", data[start:place])))
    if place != len(data) or not firsts or firsts[0] != 0 or firsts[-1] != num_sequences:
        raise ValueError("end")
    if any(first > last for first, last in pairwise(firsts)):
        raise ValueError("documents")
    return [sequences[first:last] for first, last in pairwise(firsts)]


def hash_ids(document: list[list[int]]) -> int:
    """Return the checksum of a document's ids as int32."""
    ids = [id_ for sequence in document for id_ in sequence]
    return xxhash.xxh3_64_intdigest(struct.pack(f"<{len(ids)}i", *ids))


def import_ids(inputs: AnyPath | list[Path], output: Path, **options: Any) -> dict[str, Any]:
    """Import in this process and return the manifest."""
    if "tokenizer" not in options:
        options.setdefault("vocab_size", 1000)
    return import_store(inputs, output, ImportOptions(**options), executor=HERE)[0]
