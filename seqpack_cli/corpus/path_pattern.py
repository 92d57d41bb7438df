"""A glob pattern of paths below a folder, matched one name at a time as a walk goes down.

`*` stays within a name, `**` matches any number of folders. A state is the index of the part that
the next name must match, so a walk knows at each folder whether anything below it can match.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from typing import NamedTuple

DEEP = "**"


class Match(NamedTuple):
    """What a name matches; states are the parts to match next below a folder of this name."""

    states: frozenset[int]
    is_file: bool
    is_named: bool  # by the last part, not only below a folder that matches


NOTHING = Match(frozenset(), is_file=False, is_named=False)


class PathPattern:
    """A pattern of paths.

    Args:
        parts: the pattern, split at slashes, the last one empty if only folders shall match;
            without parts everything matches.
        matches_hidden: let wildcards match names that begin with a dot.
    """

    def __init__(self, parts: Sequence[str], *, matches_hidden: bool = False) -> None:
        self._only_folders = parts[-1:] == [""]
        parts = [part for part in parts if part]
        while self._only_folders and parts[-1:] == [DEEP]:
            parts.pop()  # matches all folders, so everything in them
        self._matches_hidden = matches_hidden
        self._parts = [
            None if part == DEEP else re.compile(fnmatch.translate(part)).match for part in parts
        ]
        self._shows_hidden = [matches_hidden or part.startswith(".") for part in parts]
        self.end = len(parts)  # the state that matches everything
        self._all = Match(frozenset({self.end}), is_file=True, is_named=False)
        self.start = self._close({0})

    def match(self, name: str, states: frozenset[int]) -> Match:
        """Match the name of an entry of a folder."""
        is_hidden = not self._matches_hidden and name.startswith(".")
        if states == self._all.states:
            return NOTHING if is_hidden else self._all
        is_file = is_named = False
        below: set[int] = set()
        for state in states:
            part = self._parts[state] if state < self.end else None
            if part is None:
                if not is_hidden:
                    below.add(state)
                    is_file |= state >= self.end - 1
                    is_named |= state == self.end - 1
            elif (not is_hidden or self._shows_hidden[state]) and part(name):
                below.add(state + 1)
                is_named |= state == self.end - 1 and not self._only_folders
        return Match(self._close(below), is_file or is_named, is_named)

    def matches_all_below(self, states: frozenset[int]) -> bool:
        """Return whether the pattern matches all files below a folder."""
        is_deep = self.end > 0 and self._parts[-1] is None
        return self.end in states or (is_deep and self.end - 1 in states)

    def _close(self, states: set[int]) -> frozenset[int]:
        """Add the states that need no entry: `**` also matches no folder."""
        for state in sorted(states):
            while state < self.end - 1 and self._parts[state] is None:
                state += 1
                states.add(state)
        return frozenset(states)
