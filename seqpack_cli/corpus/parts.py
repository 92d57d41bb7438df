"""Sources -> parts: what one worker reads, about `part_bytes` of input each.

Parts follow from the sources and part_bytes alone, never from the number of workers. Files are cut
where a record begins, one seek and one line read a cut; small files share a part.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from seqpack_cli.corpus.sources import Source, SourceRange


def plan_parts(sources: Sequence[Source], *, part_bytes: int) -> list[list[SourceRange]]:
    """Cut the sources into parts; every source has a range, an empty one too."""
    parts: list[list[SourceRange]] = [[]]
    room = part_bytes
    for index, source in enumerate(sources):
        for start, end in _cut(source, room, part_bytes):
            too_large = source.document == "file" and end - start > room
            if room <= 0 or (too_large and parts[-1]):
                parts.append([])
                room = part_bytes
            parts[-1].append(SourceRange(index, source, start, end))
            room -= end - start
    return parts


def find_record_start(source: Source, byte: int) -> int:
    """Give where the first record begins at or after a byte, or the file's end.

    A paragraph is only said to begin after a blank line, so cuts and no cuts give the same ones.
    """
    with Path(source.path).open("rb") as file:
        file.seek(byte - 1)
        file.readline()  # the rest of the line that holds the byte before
        if source.document == "paragraph":
            while (line := file.readline()) and line.strip():
                pass
        return file.tell()


def _cut(source: Source, room: int, part_bytes: int) -> list[tuple[int, int]]:
    """Give the (start, end) bytes of a source's ranges, the first to fit in the room left."""
    if source.document == "file":
        return [(0, source.num_bytes)]
    ends: list[int] = []
    target = room if room > 0 else part_bytes
    while target < source.num_bytes:
        end = find_record_start(source, target)
        ends.append(end)
        target = end + part_bytes
    if not ends or ends[-1] < source.num_bytes:
        ends.append(source.num_bytes)
    return list(zip([0, *ends], ends, strict=False))
