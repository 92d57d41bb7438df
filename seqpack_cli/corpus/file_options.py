"""The options that say which files of the inputs are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from seqpack_cli.errors import OptionError, quote
from seqpack_cli.files.inputs import spell_input
from seqpack_cli.files.places import AnyPath
from seqpack_cli.runs.arguments import check_fields


@dataclass(frozen=True)
class FileOptions:
    """Which files are read. Patterns choose below folders and among the matches of a glob.

    A pattern is matched against the path below the folder; without a slash, against names at any
    depth. `*` does not match a slash, `**` does. What a folder's own path matches goes for all
    files below it.

    Args:
        include: patterns; files that match none of them are skipped.
        exclude: patterns; files that match one of them are skipped, even if included.
        files_from: a file that lists further inputs, one path or URL per line, or `-` for standard
            input.

    Raises:
        OptionError: a pattern has no name to match, or the path of the list is empty.
    """

    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    files_from: AnyPath | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.files_from == "":
            raise OptionError("--files-from '': expected the path of a file", "leave it out")
        if self.files_from is not None:
            object.__setattr__(self, "files_from", spell_input(self.files_from))
        for option, patterns in (("--include", self.include), ("--exclude", self.exclude)):
            for pattern in patterns:
                if not pattern.strip("./"):
                    raise OptionError(f"{option} {quote(pattern)}: expected a pattern like '*.txt'")
