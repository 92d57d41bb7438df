"""Cut the sources into parts, each of about `part_bytes` of input, read by one worker.

Parts depend on the sources and part_bytes alone, never on the number of workers. Line files are cut
where a record begins (one seek and one line read per cut), Parquet between row groups; other files
stay whole. Small files share a part.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import BinaryIO

from seqpack_cli.corpus.json_records import check_arrays
from seqpack_cli.corpus.sources import Source, SourceRange
from seqpack_cli.corpus.table_records import find_row_groups, read_schema
from seqpack_cli.errors import DataError
from seqpack_cli.files.places import is_shared
from seqpack_cli.limits import LIMITS
from seqpack_cli.runs.workers import Progress, WorkerDiedError, run_in_processes

MIN_PARTS = 16  # of a small input, so that a few cores finish at about the same time
Cut = Callable[[Source, int, int], list[tuple[int, int]]]  # source, room left, part_bytes
MIN_PART_BYTES = 4 << 20  # for less, starting a part costs more than it saves


def check_footers(sources: Sequence[Source]) -> None:
    """Read how Arrow and .json files begin, and, in a separate process, the footers of Parquet.

    Some damaged footers crash pyarrow and the process it runs in, with no error to catch.

    Raises:
        DataError: a file is damaged.
        MachineError: the process could not start.
    """
    check_arrays(sources)
    for source in sources:
        if source.format == "arrow":
            read_schema(source)
    files = [each for each in sources if each.format == "parquet" and is_shared(each.location)]
    if not files or not LIMITS.footer_workers:
        return  # a worker process takes 0.1 s to start, without tasks too
    num_read = 0
    try:
        for _ in run_in_processes(find_row_groups, files, num_processes=1, progress=Progress()):
            num_read += 1  # one worker reads them in order
    except WorkerDiedError as error:
        message = f"{files[num_read].path}: not Parquet, or damaged (pyarrow crashed)"
        raise DataError(message) from error


def plan_parts(
    sources: Sequence[Source], *, part_bytes: int, cuts: Mapping[str, Cut] | None = None
) -> list[list[SourceRange]]:
    """Cut the sources into parts; every source has a range, even an empty one.

    Args:
        cuts: for formats that are cut in another way: returns the (start, end) bytes of ranges, of
            which the first fits in the room that is left.
    """
    total = sum(source.num_bytes for source in sources)
    part_bytes = min(part_bytes, max(MIN_PART_BYTES, -(-total // MIN_PARTS)))
    parts: list[list[SourceRange]] = [[]]
    room = part_bytes
    for index, source in enumerate(sources):
        cut = (cuts or {}).get(source.format, cut_source)
        for start, end in cut(source, room, part_bytes):
            too_large = not source.is_cut_anywhere and end - start > room
            if room <= 0 or (too_large and parts[-1]):
                parts.append([])
                room = part_bytes
            parts[-1].append(SourceRange(index, source, start, end))
            room -= end - start
    return parts


def cut_where(
    find_end: Callable[[int], int], source: Source, room: int, part_bytes: int
) -> list[tuple[int, int]]:
    """Return the (start, end) bytes of a source's ranges; the first one fits in the room left.

    Args:
        find_end: returns where a range may end, at a byte or after it.
    """
    ends: list[int] = []
    target = room if room > 0 else part_bytes
    while target < source.num_bytes:
        ends.append(find_end(target))
        target = ends[-1] + part_bytes
    if not ends or ends[-1] < source.num_bytes:
        ends.append(source.num_bytes)
    return list(zip([0, *ends], ends, strict=False))


def find_record_start(source: Source, byte: int) -> int:
    """Return where the first record at or after a byte begins, or the file's size.

    A paragraph begins only after a blank line here, so that a cut file has the same paragraphs.
    """
    with source.input.open(source.num_bytes) as file:
        file.seek(byte - 1)
        _skip_line(file)  # the rest of the line with the previous byte
        if source.document == "paragraph":
            while _skip_line(file):
                pass
        return file.tell()


def _skip_line(file: BinaryIO) -> bool:
    """Read to the next line end, however far; return whether the line had any text."""
    has_text = False
    while block := file.readline(LIMITS.read_bytes):
        has_text = has_text or bool(block.strip())
        if block.endswith(b"\n"):
            break
    return has_text


def cut_source(source: Source, room: int, part_bytes: int) -> list[tuple[int, int]]:
    """Return the (start, end) bytes of a source's ranges; the first one fits in the room left."""
    if source.format == "parquet":
        return _join_row_groups(find_row_groups(source), part_bytes)
    if source.num_bytes <= room or not source.is_cut_anywhere:
        return [(0, source.num_bytes)]
    return cut_where(functools.partial(find_record_start, source), source, room, part_bytes)


def _join_row_groups(offsets: list[int], part_bytes: int) -> list[tuple[int, int]]:
    """Return ranges of whole row groups, each as large as fits, at least one group."""
    cuts = [offsets[0]]
    for start, end in pairwise(offsets[1:]):
        if end - cuts[-1] > part_bytes:
            cuts.append(start)
    return list(zip(cuts, [*cuts[1:], offsets[-1]], strict=True))
