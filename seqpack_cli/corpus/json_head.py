"""Tell what a .json file is by its beginning: one array, or JSON lines, as many of them are.

A file whose first two lines begin with `{` is JSON lines. Anything else is an error that says what
was found. The first files are checked before a run begins.
"""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from seqpack_cli.corpus.blocks import iter_blocks
from seqpack_cli.corpus.records import MARK
from seqpack_cli.corpus.sources import Source, SourceRange
from seqpack_cli.errors import DataError, quote

SPACE = b" \t\r\n"
HEAD_BYTES = 1 << 12
MAX_FILES = 1000  # whose beginnings are checked
MAX_LINE_BYTES = 1 << 26  # of one that is checked
MAX_BLANK_BYTES = 64 << 20  # before the first value
# Keys under which the records of an object often are.
RECORDS_KEY = re.compile(rb'"(data|rows|records|examples|instances|items|documents)"\s*:\s*\[')

MAP = re.compile(rb'\{\s*"[^"]*\d[^"]*"\s*:\s*"')  # of ids to texts


def check_arrays(sources: Sequence[Source]) -> None:
    """Read the beginnings of the first .json files, before a run begins.

    Raises:
        DataError: one is not an array, nor JSON lines.
    """
    named = [source for source in sources if source.format == "json" and not source.compression]
    for source in named[:MAX_FILES]:
        with contextlib.suppress(OSError):  # reported when the file is read
            head = source.input.read_head(HEAD_BYTES).removeprefix(MARK).lstrip(SPACE)
            if head and not head.startswith(b"["):
                whole = SourceRange(0, source, 0, source.num_bytes)
                read_head(iter_blocks(whole, len), source, MAX_LINE_BYTES)


def read_head(
    blocks: Iterator[bytes], source: Source, limit: int
) -> tuple[list[bytes], int | None]:
    """Read the blocks that tell what a file is.

    Returns:
        The blocks, and the byte after the bracket that opens the array; None for JSON lines.
    """
    seen: list[bytes] = []
    text = b""
    while MARK.startswith(text) and sum(map(len, seen)) < MAX_BLANK_BYTES:
        block = next(blocks, None)
        if block is None:
            break
        seen.append(block)
        text = b"".join(seen).removeprefix(MARK).lstrip(SPACE)
    if text.startswith(b"["):
        return seen, sum(map(len, seen)) - len(text) + 1
    if text.startswith(b"{") and _has_lines(text, seen, blocks, limit):
        return seen, None
    text = b"".join(seen).removeprefix(MARK).lstrip(SPACE)
    raise _no_array_error(source, read_more(text, blocks))


def _has_lines(text: bytes, seen: list[bytes], blocks: Iterator[bytes], limit: int) -> bool:
    """Return whether the second line begins with an object too; what is read is added to seen."""
    head = bytearray(text)
    while True:
        _, _, rest = head.partition(b"\n")
        rest = rest.lstrip(SPACE)
        block = None if rest or len(head) > limit else next(blocks, None)
        if block is None:
            return rest.startswith(b"{")
        seen.append(block)
        head += block


def _no_array_error(source: Source, text: bytes) -> DataError:
    """Return the error about a file that is neither an array nor JSON lines."""
    if not text:
        return DataError(f"{source.path}: no JSON, expected an array of objects")
    what = "an object" if text.startswith(b"{") else "a file"
    return DataError(
        f"{source.path}: {what} that begins with {quote_head(text)}, expected an array of objects",
        hint=_hint_array(source, text),
    )


def _hint_array(source: Source, text: bytes) -> str:
    key = RECORDS_KEY.search(text[:HEAD_BYTES]) if text.startswith(b"{") else None
    if MAP.match(text):
        return _hint_jq("to_entries[] | {id: .key, text: .value}", source)
    if key is None:
        return "pass --format jsonl if each line is one JSON object"
    return _hint_jq(f".{key[1].decode()}[]", source)


def _hint_jq(records: str, source: Source) -> str:
    typed = shlex.quote(source.path)
    command = f"jq -c '{records}'"
    command = (
        f"{source.compression} -dc {typed} | {command}"
        if source.compression
        else (f"{command} {typed}")
    )
    result = Path(Path(source.path).name.partition(".")[0]).with_suffix(".jsonl")
    return f"write its records as JSON lines: {command} > {shlex.quote(str(result))}"


def read_more(text: bytes, blocks: Iterator[bytes]) -> bytes:
    """Return a text with as much of what follows as an error message may quote."""
    while len(text) < HEAD_BYTES and (block := next(blocks, None)) is not None:
        text += block
    return text


def quote_head(text: bytes) -> str:
    """Return how bytes begin, as text."""
    return quote(text[:HEAD_BYTES].decode(errors="replace"))
