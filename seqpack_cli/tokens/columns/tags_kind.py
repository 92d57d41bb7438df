"""Columns of tags: one class per token.

A token has the class of the word, or of the piece of a span, in which it begins, spaces left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from seqpack_cli.tokens.columns.class_kind import NO_CLASS, ClassCollector
from seqpack_cli.tokens.columns.kind import Collected, Field, Kind, Label
from seqpack_cli.tokens.columns.tags_reader import Segments, TagsReader, Words


class TagsCollector:
    """Collects tags: `assign` finds those of encoded texts, `add` takes them cut to sequences."""

    def __init__(self, field: Field) -> None:
        self.counts: Counter[str] = Counter()
        self._classes = ClassCollector(field.name, field.class_names)

    def assign(
        self,
        values: Sequence[Segments | Words | None],
        offsets: np.ndarray,
        lengths: np.ndarray,
        subtokens: str,
    ) -> np.ndarray:
        """Return the class of each token of some texts, int32.

        Args:
            values: the segments of each text; None only for one without tokens.
            offsets: of all tokens, int32[S, 2].
            lengths: number of tokens of each text.
            subtokens: "all" tokens of a segment have its class, or only the "first".
        """
        present = [Words([], []) if value is None else value for value in values]
        owners, has_text, num_segments = _find_segments(present, offsets, lengths)
        labels = list(chain.from_iterable(value.labels for value in present))
        for label in {value.outside for value in present}:
            self._add_label(label)
        tags = self._number(labels)[owners]
        if subtokens == "first":
            tags[np.diff(owners, prepend=-1) == 0] = NO_CLASS
        found = np.full(len(offsets), NO_CLASS, np.int32)
        found[has_text] = tags
        is_found = np.zeros(num_segments, bool)
        is_found[owners] = True
        if not is_found.all():
            outside = list(chain.from_iterable([v.outside] * len(v.labels) for v in present))
            lost = np.flatnonzero(~is_found).tolist()
            num_lost = sum(labels[i] not in (outside[i], None) for i in lost)
            self.counts["num_words_without_token"] += num_lost
        return found

    def add(self, entries: np.ndarray) -> None:
        """Add the classes of tokens, as `assign` numbers them."""
        self._classes.add_numbers(entries)

    def finish(self, name: str) -> Collected:
        """Return the column."""
        return self._classes.finish(name)

    def _number(self, labels: list[Any]) -> np.ndarray:
        """Return the number of each class; a new one gets the next number."""
        table: dict[Any, int] = {None: NO_CLASS, **self._classes.numbers}
        try:
            return np.fromiter(map(table.__getitem__, labels), np.int32, len(labels))
        except KeyError:
            for label in dict.fromkeys(labels):
                self._add_label(label)
            return self._number(labels)

    def _add_label(self, label: Label | None) -> None:
        if label is not None:
            self._classes.numbers.setdefault(label, len(self._classes.numbers))


def _find_starts(values: Sequence[Segments | Words], counts: np.ndarray) -> np.ndarray:
    """Return where each segment begins in its text."""
    num_segments = int(counts.sum())
    if not all(isinstance(value, Words) for value in values):
        flat = chain.from_iterable(value.starts for value in values)
        return np.fromiter(flat, np.int64, num_segments)
    words = chain.from_iterable(value.words for value in values if isinstance(value, Words))
    ends = np.cumsum(1 + np.fromiter(map(len, words), np.int64, num_segments))
    starts = np.concatenate([[0], ends])[:num_segments]
    first = np.cumsum(counts) - counts
    has_words = counts > 0
    first_starts = starts[first[has_words]]
    found: np.ndarray = starts - np.repeat(first_starts, counts[has_words])
    return found


def _find_segments(
    values: Sequence[Segments | Words], offsets: np.ndarray, lengths: np.ndarray
) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the segment of each token that has text, which tokens have, and how many there are."""
    counts = np.fromiter((len(value.labels) for value in values), np.int64, len(values))
    starts = _find_starts(values, counts)
    has_text = offsets[:, 0] < offsets[:, 1]
    wide = 1 + max(int(starts.max(initial=0)), int(offsets.max(initial=0)))
    bases = wide * np.arange(len(values))  # so that the places of all texts are in order
    places = (offsets[:, 0] + np.repeat(bases, lengths))[has_text]
    owners = np.searchsorted(starts + np.repeat(bases, counts), places, side="right") - 1
    return owners, has_text, len(starts)


TAGS = Kind(
    "tags",
    "int32",
    NO_CLASS,
    lambda field: TagsReader(
        field.name, field.value_type or "string", field.class_names, field.text_field
    ),
    lambda field, _: TagsCollector(field),
    is_per_token=True,
    has_classes=True,
)
