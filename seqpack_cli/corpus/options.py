"""The options that say which files are read, and how records become texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from seqpack_cli.errors import OptionError, quote
from seqpack_cli.files.places import AnyPath
from seqpack_cli.runs.options import check_options, option

INPUT, DOCUMENTS = "Which files", "Documents"


@dataclass(frozen=True)
class FileOptions:
    """Which files are read. Patterns choose below folders and among the matches of a glob.

    A pattern is matched against the path below the folder; without a slash, against names at any
    depth. `*` does not match a slash, `**` does. What a folder's own path matches goes for all
    files below it.

    Raises:
        OptionError: a pattern has no name to match, or the path of the list is empty.
    """

    include: Sequence[str] = option(
        (),
        "Read only files below folders that match GLOB: 'en/**' for paths, '*.txt' for names. May "
        "be repeated.",
        INPUT,
        metavar="GLOB",
    )
    exclude: Sequence[str] = option(
        (),
        "Skip files and folders that match GLOB, even if they match --include. May be repeated.",
        INPUT,
        metavar="GLOB",
    )
    files_from: AnyPath | None = option(
        None,
        "Read the files that LIST names, one path or URL per line; - is standard input.",
        INPUT,
        metavar="LIST",
    )

    def __post_init__(self) -> None:
        from seqpack_cli.files.inputs import spell_input

        check_options(self)
        if self.files_from == "":
            raise OptionError("--files-from '': expected the path of a file", "leave it out")
        if self.files_from is not None:
            object.__setattr__(self, "files_from", spell_input(self.files_from))
        for flag, patterns in (("--include", self.include), ("--exclude", self.exclude)):
            for pattern in patterns:
                if not pattern.strip("./"):
                    raise OptionError(f"{flag} {quote(pattern)}: expected a pattern like '*.txt'")


@dataclass(frozen=True)
class DocumentOptions:
    """How records become texts."""

    text_field: str = option(
        "text", "Field or column that holds the text; a.b is field b inside a.", DOCUMENTS
    )
    encoding_errors: str = option(
        "error",
        "A record that is not valid UTF-8: stop, put U+FFFD for invalid bytes, or skip it.",
        DOCUMENTS,
        choices=("error", "replace", "skip"),
    )
    on_bad_record: str = option(
        "error",
        "A record that cannot be read or lacks a field: stop, or skip it (listed in "
        "rejects.jsonl).",
        DOCUMENTS,
        choices=("error", "skip"),
    )
    max_document_bytes: int = option(
        64 << 20, "Largest document; a larger one is an error.", DOCUMENTS, kind="size"
    )

    def __post_init__(self) -> None:
        check_options(self)
