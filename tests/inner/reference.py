"""Slow oracles in plain Python, one item at a time, that the fast code must agree with."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

# Two documents [1, 2, 3] and [4, 5] as uint16, computed with struct by hand.
GOLDEN_INDEX = bytes.fromhex(
    "4d4d49444944580000 0100000000000000 08 0200000000000000 0300000000000000"
    "03000000 02000000 0000000000000000 0600000000000000"
    "0000000000000000 0100000000000000 0200000000000000"
)
GOLDEN_IDS = bytes.fromhex("0100 0200 0300 0400 0500")

BLANK = " \t\r\n\x0b\x0c"  # a line of these is blank and separates paragraphs


def slow_lines(data: bytes) -> list[str]:
    """Return the documents of a text file whose documents are lines."""
    lines = [""]
    for character in data.decode().removeprefix("\ufeff"):
        if character == "\n":
            lines.append("")
        else:
            lines[-1] += character
    if not lines[-1]:
        lines.pop()  # the last line end does not begin another line
    return [line.removesuffix("\r") for line in lines]


def slow_paragraphs(data: bytes) -> list[str]:
    """Return the documents of a text file in which blank lines separate documents."""
    paragraphs: list[list[str]] = [[]]
    for line in slow_lines(data):
        if all(character in BLANK for character in line):
            paragraphs.append([])
        else:
            paragraphs[-1].append(line)
    return ["\n".join(lines) for lines in paragraphs if lines]


def slow_jsonl_texts(data: bytes) -> list[str]:
    """Return the field `text` of each line of JSON; a blank line is an empty document."""
    return [json.loads(line)["text"] if line.strip() else "" for line in slow_lines(data)]


SLOW_READERS = {"line": slow_lines, "paragraph": slow_paragraphs, "jsonl": slow_jsonl_texts}


@dataclass
class SlowSequences:
    """The sequences of a list of documents, and the ledger for them."""

    sequences_of_document: list[list[list[int]]] = field(default_factory=list)
    overlaps: list[int] = field(default_factory=list)  # of each sequence with the one before
    num_special_tokens: int = 0
    num_truncated_tokens: int = 0
    num_dropped_tokens: int = 0
    num_dropped_documents: int = 0

    @property
    def sequences(self) -> list[list[int]]:
        return [ids for pieces in self.sequences_of_document for ids in pieces]


def slow_sequences(
    documents: list[list[int]],
    *,
    prefix: list[int],
    suffix: list[int],
    max_length: int | None,
    overflow: str,
    overlap: int = 0,
) -> SlowSequences:
    """Put special tokens around documents and cut the long ones, document by document.

    Args:
        overlap: how many entries each later piece repeats of the one before.
    """
    made = SlowSequences()
    for text in documents:
        if not text:
            made.sequences_of_document.append([])
            continue
        room = None if max_length is None else max_length - len(prefix) - len(suffix)
        if room is not None and len(text) > room and overflow == "drop":
            made.num_dropped_tokens += len(text)
            made.num_dropped_documents += 1
            made.sequences_of_document.append([])
            continue
        if room is not None and len(text) > room and overflow == "truncate":
            made.num_truncated_tokens += len(text) - room
            text = text[:room]
        made.num_special_tokens += len(prefix) + len(suffix)
        rest = prefix + text + suffix
        pieces = []
        while max_length is not None and len(rest) > max_length:
            pieces.append(rest[:max_length])
            rest = rest[max_length - overlap :]
        made.overlaps += [0] + [overlap] * len(pieces)
        made.sequences_of_document.append([*pieces, rest])
    return made


def read_indexed_dataset(prefix: Path) -> list[list[list[int]]]:
    """Read a Megatron-LM indexed dataset as Megatron does: per document, its sequences of ids."""
    index = prefix.with_suffix(".idx").read_bytes()
    data = prefix.with_suffix(".bin").read_bytes()
    assert index[:9] == b"MMIDIDX\x00\x00"
    assert struct.unpack_from("<Q", index, 9) == (1,)
    (code,) = struct.unpack_from("<B", index, 17)
    num_sequences, num_firsts = struct.unpack_from("<QQ", index, 18)
    lengths = struct.unpack_from(f"<{num_sequences}i", index, 34)
    pointers = struct.unpack_from(f"<{num_sequences}q", index, 34 + 4 * num_sequences)
    firsts = struct.unpack_from(f"<{num_firsts}q", index, 34 + 12 * num_sequences)
    assert len(index) == 34 + 12 * num_sequences + 8 * num_firsts
    assert firsts[0] == 0
    assert firsts[-1] == num_sequences
    letter = {8: "H", 4: "i"}[code]
    sequences = [
        list(struct.unpack_from(f"<{length}{letter}", data, pointer))
        for length, pointer in zip(lengths, pointers, strict=True)
    ]
    assert sum(lengths) * struct.calcsize(f"<{letter}") == len(data)
    return [sequences[first:last] for first, last in pairwise(firsts)]


def read_store_documents(store: Path) -> list[list[list[int]]]:
    """Read a token store without seqpack's code: per document, its sequences of ids."""
    manifest = json.loads((store / "manifest.json").read_bytes())
    return [
        document
        for part in manifest["parts"]
        for document in read_indexed_dataset(store / part["name"])
    ]


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
