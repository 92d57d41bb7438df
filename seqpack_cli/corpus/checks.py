"""Find inputs that are probably not what the user meant, and options that have no effect on them.

At most the first 4 kB of 1,000 local files are read, which takes 20 ms.
"""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from seqpack_cli.corpus.fields import FOLDER_FIELD, proposes_field
from seqpack_cli.corpus.find_files import Skipped, find_sources
from seqpack_cli.corpus.options import FileOptions, Formats, find_file_format
from seqpack_cli.corpus.sources import STANDARD_INPUT, Source
from seqpack_cli.errors import DataError, OptionError, join_items

UNPACKED = re.compile(rb'\{"index": 0, "text": ')
JSON_LINES = re.compile(rb'(?:\xef\xbb\xbf)?[ \t]*\{[ \t]*"[^"\n]*"[ \t]*:')
HEAD_BYTES = 4096
MAX_FILES = 1000
LINES_HINT = "; pass --format jsonl to read one field of each line"
FORMAT_HINT = "pass --format "
LIST_OPTIONS = ("--messages-field", "--tools-field")


def find_input(
    inputs: Sequence[str],
    files: FileOptions,
    formats: Formats,
    file_format: str,
    on_notice: Callable[[str], None],
    **more: Any,
) -> tuple[list[Source], Skipped]:
    """Find the sources of a command, and note those that are probably not what the user meant.

    Args:
        formats: those that the command reads, of which `file_format` chooses.
        more: see `find_sources`, which returns the same.
    """
    chosen = formats.choose(file_format)
    sources, skipped = find_sources(inputs, patterns=files, formats=chosen, **more)
    for note in _iter_notes(sources, skipped, file_format):
        on_notice(note)
    return sources, skipped


def _iter_notes(sources: Sequence[Source], skipped: Skipped, file_format: str) -> Iterator[str]:
    if skipped:
        yield str(skipped)
    plain = [source for source in sources if not source.compression]
    lines = [source for source in plain if source.format == "jsonl"]
    texts = [source for source in plain if source.format == "text" and file_format == "auto"]
    guessed = [source for source in texts if find_file_format(source.path).format is None]
    for some, pattern, what, hint in (
        (lines, UNPACKED, "input although apparently output of seqpack unpack --text", ""),
        (guessed, JSON_LINES, "text although apparently JSON lines", LINES_HINT),
    ):
        found = []
        for source in some[:MAX_FILES]:
            with contextlib.suppress(OSError):  # reported when the file is read
                if pattern.match(source.input.read_head(HEAD_BYTES)):
                    found.append(source.path)
        if found:
            yield f"read as {what}: {join_items(found)}{hint}"


def check_options_used(sources: Sequence[Source], *, document: str, text_field: str) -> None:
    """Raise OptionError if an option was set that applies to none of the sources."""
    formats = {source.format: None for source in sources}
    if document != "line" and "text" not in formats:
        raise OptionError(
            f"--document {document}: the input is {join_items(formats)}, expected text",
            hint="omit --document: each record of such a file is one document",
        )
    if text_field != "text" and list(formats) == ["text"]:
        raise OptionError(
            f"--text-field {text_field}: the input is text, "
            "expected jsonl, json, parquet, arrow or csv",
            hint="pass --format jsonl if each line is a JSON object, or omit --text-field",
        )


def check_kept_fields(sources: Sequence[Source], names: Sequence[str]) -> None:
    """Raise OptionError if a source cannot have the fields to keep.

    Text has none, but a file that is one document has the name of its folder.
    """
    if not names:
        return
    texts = [source for source in sources if source.format == "text"]
    other = next((name for name in names if name != FOLDER_FIELD), None)
    for source in texts:
        if source.document != "file" or other is not None:
            raise OptionError(
                f"--keep {other or FOLDER_FIELD}: {source.path} is text, which has no fields",
                hint="pass JSON lines, CSV or Parquet; "
                f"or --document file --keep {FOLDER_FIELD}:class for the name of the file's folder",
            )
        if source.path == STANDARD_INPUT:
            raise OptionError(
                f"--keep {FOLDER_FIELD}: the text is from standard input, expected a file",
                hint="pass the files or their folder",
            )
    if texts and len(texts) < len(sources):
        raise OptionError(
            f"--keep {FOLDER_FIELD}: {texts[0].path} is text, other files are not",
            hint="tokenize them into two stores",
        )


def check_target_fields(sources: Sequence[Source], fields: Mapping[str, str]) -> None:
    """Raise OptionError if a source cannot have the fields that texts are made from.

    Args:
        fields: by the option that names each.
    """
    for option, field in fields.items():
        for source in sources:
            if source.format == "text":
                raise OptionError(
                    f"{option} {field}: {source.path} is text, which has no fields",
                    hint="pass JSON lines, CSV or Parquet; --format jsonl if each line is one",
                )
            if source.format == "csv" and option in LIST_OPTIONS:
                raise OptionError(
                    f"{option} {field}: {source.path} is csv, which has no lists",
                    hint="pass JSON lines or Parquet",
                )


@contextlib.contextmanager
def naming_stray(inputs: Sequence[str], sources: Sequence[Source]) -> Iterator[None]:
    """Add --exclude to the hint about a file of another format, or whose field others have."""
    try:
        yield
    except DataError as error:
        hint, formats = error.hint or "", {source.format for source in sources}
        of_file = (each.path for each in sources if error.message.startswith(f"{each.path}:"))
        stray = next(of_file, None)
        is_field = not hint or proposes_field(hint)
        is_other = FORMAT_HINT in hint or (is_field and len(formats) > 1)
        if stray is None or not is_other or stray in inputs:
            raise
        advice = f"pass --exclude {shlex.quote(Path(stray).name)} to leave out this file"
        raise DataError(error.message, f"{hint}, or {advice}" if hint else advice) from error
