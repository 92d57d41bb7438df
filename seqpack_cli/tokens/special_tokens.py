"""Count the special tokens that are spelled in texts, at about 10 GB/s where there are none.

Special tokens of a vocabulary begin alike (`<|`, `[`, `<`), so one search for each beginning finds
the few texts that need a closer look.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby

MAX_PLACES = 5  # that are kept of each token: enough to go and look
MAX_DEPTH = 3  # of choices by the next character, which spare the engine to try hundreds of tokens


class SpecialTokenCounts:
    """Which special tokens are spelled in the texts of a part, and in which of its documents.

    Of two at one place the longer one counts.

    >>> counts = SpecialTokenCounts(["<a>", "<a><b>"])
    >>> counts.add(["<a><b> <a>", "a<"], first_document=7)
    2
    >>> counts.describe()
    {'<a><b>': [1, [7]], '<a>': [1, [7]]}
    """

    def __init__(self, special_tokens: Sequence[str]) -> None:
        groups = _group(filter(None, special_tokens))
        self._beginnings = list(groups)
        self._find = re.compile("|".join(_match(*group) for group in groups.items())).findall
        self._counts: Counter[str] = Counter()
        self._documents: dict[str, list[int]] = {}
        self._well_known: set[str] = set()  # those with as many documents as are kept

    def add(self, texts: list[str], *, first_document: int) -> int:
        """Count those in texts that follow the ones before, and give how many there are.

        Args:
            first_document: the number of the first text in its part.
        """
        suspects = {
            index
            for beginning in self._beginnings
            for index, text in enumerate(texts)
            if beginning in text
        }
        all_found: list[str] = []
        for index in sorted(suspects):
            found = self._find(texts[index])
            all_found += found
            for token in set(found) - self._well_known:
                documents = self._documents.setdefault(token, [])
                documents.append(first_document + index)
                if len(documents) == MAX_PLACES:
                    self._well_known.add(token)
        self._counts.update(all_found)
        return len(all_found)

    def describe(self) -> dict[str, list[object]]:
        """Give, by token, how often it was found and the first documents that hold it."""
        return {token: [self._counts[token], self._documents[token]] for token in self._counts}


def _group(tokens: Iterable[str]) -> dict[str, list[str]]:
    """Put tokens together that begin alike, under all that they have in common."""
    groups = [list(group) for _, group in groupby(sorted(tokens), key=lambda token: token[0])]
    return {
        os.path.commonprefix(group): group  # noqa: RUF071 - of characters
        for group in groups
    }


def _match(beginning: str, tokens: list[str], depth: int = MAX_DEPTH) -> str:
    """Write a pattern that the engine can search by its beginning, the longest token first."""
    ends = {token[len(beginning) :] for token in tokens}
    if depth == 0:
        choices = [re.escape(end) for end in sorted(ends, key=len, reverse=True)]
    else:
        groups = _group(filter(None, ends))
        choices = [_match(*group, depth - 1) for group in groups.items()]
        choices += [""] * ("" in ends)
    return re.escape(beginning) + "(?:" + "|".join(choices) + ")"
