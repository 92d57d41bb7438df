"""The entries below the inputs that are skipped: listed in one note, counted in `run.json`."""

from __future__ import annotations

import os
from collections.abc import Container

from seqpack_cli.errors import join_items

UNKNOWN_SUFFIX = "unknown_suffix"
UNNAMED_JSON = "unnamed_json"
UNLISTED_ARROW = "unlisted_arrow"
DANGLING_LINK = "dangling_link"
REPEATED_LINK = "repeated_link"
SPECIAL_FILE = "special_file"
SEQPACK_OUTPUT = "seqpack_output"
VANISHED = "vanished"
EXCLUDED = "excluded"
NOT_INCLUDED = "not_included"
NOUNS = {  # one, many
    UNKNOWN_SUFFIX: ("file with an unknown suffix", "files with unknown suffixes"),
    UNNAMED_JSON: ("JSON file that is not named", "JSON files that are not named"),
    UNLISTED_ARROW: (
        "Arrow file that is not data of a saved dataset",
        "Arrow files that are not data of a saved dataset",
    ),
    DANGLING_LINK: ("dangling link", "dangling links"),
    REPEATED_LINK: ("link to something already read", "links to something already read"),
    SPECIAL_FILE: ("pipe, socket or device", "pipes, sockets or devices"),
    SEQPACK_OUTPUT: ("folder written by seqpack", "folders written by seqpack"),
    VANISHED: ("entry that disappeared", "entries that disappeared"),
    EXCLUDED: ("file or folder that matches --exclude", "files or folders that match --exclude"),
    NOT_INCLUDED: (
        "file or folder that does not match --include",
        "files or folders that do not match --include",
    ),
}


class Skipped:
    """The entries that were skipped, by reason."""

    def __init__(self) -> None:
        self._real_paths: dict[str, dict[str, str]] = {reason: {} for reason in NOUNS}  # by path

    def add(self, reason: str, path: str, real: str = "") -> None:
        """Add an entry, with its real path if it may be a file that another input names."""
        self._real_paths[reason][path] = real

    def remove_read(self, read: Container[str]) -> None:
        """Remove the files that are read through another input or link."""
        for reason in (UNKNOWN_SUFFIX, UNNAMED_JSON, UNLISTED_ARROW, EXCLUDED, NOT_INCLUDED):
            found = self._real_paths[reason]
            self._real_paths[reason] = {
                path: real for path, real in found.items() if real not in read
            }

    def remove_named(self, reason: str, paths: Container[str]) -> None:
        """Remove files that belong to what is read."""
        found = self._real_paths[reason]
        self._real_paths[reason] = {path: real for path, real in found.items() if path not in paths}

    def list_paths(self, reason: str) -> list[str]:
        """Return the entries that were skipped for a reason, sorted by the bytes of their paths."""
        return sorted(self._real_paths[reason], key=os.fsencode)

    def count(self) -> dict[str, int]:
        """Return the number of entries by reason, without reasons that did not occur."""
        return {reason: len(paths) for reason, paths in self._real_paths.items() if paths}

    def __str__(self) -> str:
        """List the entries on one line.

        >>> skipped = Skipped()
        >>> skipped.add(DANGLING_LINK, "data/latest.txt")
        >>> str(skipped)
        'skipped 1 dangling link: data/latest.txt'
        """
        found = [
            f"{count:,} {NOUNS[reason][count > 1]}: {join_items(self.list_paths(reason))}"
            for reason, count in self.count().items()
        ]
        return f"skipped {'; '.join(found) or 'nothing'}"
