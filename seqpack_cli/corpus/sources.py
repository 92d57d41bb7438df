"""Inputs as the user names them -> source files with their formats, in one fixed order.

An input is a file, a folder (every file below it with a known suffix, sorted by the bytes of the
paths) or a glob. Nothing is opened here.
"""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from seqpack_cli.errors import OptionError, join_items

FORMAT_OF_SUFFIX = {
    ".txt": "text",
    ".text": "text",
    ".md": "text",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
# Known, but not read as text: guessing here would tokenize compressed bytes or JSON syntax.
REFUSED_SUFFIXES = {
    ".bz2": "decompress it first: bunzip2 -k",
    ".csv": "turn it into JSON lines first",
    ".gz": "decompress it first: gunzip -k",
    ".json": "pass --format jsonl if each line is one JSON object, or --format text",
    ".parquet": "turn it into JSON lines first",
    ".tsv": "turn it into JSON lines first",
    ".xz": "decompress it first: unxz -k",
    ".zst": "decompress it first: unzstd",
}


@dataclass(frozen=True)
class Source:
    """One input file."""

    path: str  # as the user would type it, the name kept in the manifest
    format: str  # "text" or "jsonl"
    document: str  # what one document is: a "line", a "paragraph" or the whole "file"
    num_bytes: int


@dataclass(frozen=True)
class SourceRange:
    """The records of a source that begin in bytes start to end."""

    source_index: int
    source: Source
    start: int
    end: int


def find_sources(
    inputs: Sequence[str], *, file_format: str = "auto", document: str = "line"
) -> tuple[list[Source], list[str]]:
    """Find the files that the inputs name.

    Args:
        inputs: files, folders and globs, taken in this order; a folder's files sorted by the bytes
            of their paths.
        file_format: "text" or "jsonl" for all files, or "auto" to go by the suffix.
        document: what one document of a text file is; a JSON document is always a line.

    Returns:
        The sources, each once however it is spelled, and the files below folders that were passed
        over for their suffix.

    Raises:
        OptionError: an input does not exist, or a file has a suffix that can not be read.
    """
    paths: dict[str, str] = {}  # by what they are, however they are spelled
    passed_over: list[str] = []
    for name in inputs:
        for path in _expand(name):
            if not Path(path).is_dir():
                paths.setdefault(os.path.abspath(path), path)  # noqa: PTH100 - keeps links
                continue
            for below in _walk(path):
                known = Path(below).suffix.lower() in FORMAT_OF_SUFFIX
                if known or file_format != "auto":
                    paths.setdefault(os.path.abspath(below), below)  # noqa: PTH100
                else:
                    passed_over.append(below)
    if not paths:
        raise OptionError(
            f"{join_items(inputs)}: no file with a known suffix",
            hint=f"known are {' '.join(FORMAT_OF_SUFFIX)}; pass --format text to take every file",
        )
    return [_describe_source(path, file_format, document) for path in paths.values()], passed_over


def find_line_number(path: str, byte: int) -> int:
    """Give the number, from 1, of the line that holds a byte: read only when an error needs it."""
    number = 1
    with Path(path).open("rb") as file:
        while byte > 0 and (block := file.read(min(byte, 1 << 20))):
            number += block.count(b"\n")
            byte -= len(block)
    return number


def hash_range(source_range: SourceRange) -> str:
    """Give the sha256 of a range's bytes as hex, or "" if the file is no longer there."""
    digest = hashlib.sha256()
    left = source_range.end - source_range.start
    try:
        with Path(source_range.source.path).open("rb") as file:
            file.seek(source_range.start)
            while left > 0 and (block := file.read(min(left, 1 << 20))):
                digest.update(block)
                left -= len(block)
    except OSError:
        return ""
    return digest.hexdigest()


def _expand(name: str) -> list[str]:
    if Path(name).exists():
        return [name]
    matches = sorted(glob.glob(name, recursive=True), key=_path_bytes)  # noqa: PTH207
    if not matches:
        raise OptionError(
            f"{name}: no such file or folder",
            hint="name a file, a folder, or a glob in quotes: 'corpus/**/*.jsonl'",
        )
    return matches


def _walk(folder: str) -> Iterator[str]:
    paths = (path for path in Path(folder).rglob("*") if path.is_file())
    visible = (path for path in paths if not _is_hidden(path.relative_to(folder)))
    yield from sorted(map(str, visible), key=_path_bytes)


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _path_bytes(path: str) -> bytes:
    return path.encode(errors="surrogateescape")


def _describe_source(path: str, file_format: str, document: str) -> Source:
    if not Path(path).is_file():
        raise OptionError(f"{path}: not a regular file, expected a file, a folder or a glob")
    suffix = Path(path).suffix.lower()
    if file_format == "auto" and suffix in REFUSED_SUFFIXES:
        raise OptionError(f"{path}: {suffix} files are not read", hint=REFUSED_SUFFIXES[suffix])
    if file_format == "auto":
        file_format = FORMAT_OF_SUFFIX.get(suffix, "text")
    unit = document if file_format == "text" else "line"
    return Source(path, file_format, unit, Path(path).stat().st_size)
