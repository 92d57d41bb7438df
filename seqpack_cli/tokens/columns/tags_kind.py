"""Columns of tags: one class per token, read from one class per word or from spans of characters.

The text of a record is cut into segments, each with a class: its words, or, where tags are spans,
the runs of characters between spaces, cut where a span begins or ends. A token has the class of the
segment in which it begins, spaces left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from typing import Any, NamedTuple

import numpy as np

from seqpack_cli.corpus.document_block import SKIP_HINT, BadRecordError
from seqpack_cli.errors import join_items, quote
from seqpack_cli.tokens.columns.class_kind import NO_CLASS, TYPES, ClassCollector, read_label
from seqpack_cli.tokens.columns.kind import Collected, Field, Kind, Label, wrong_value_error
from seqpack_cli.tokens.offsets.spelling import WORD

OUTSIDE = "O"  # the class of text outside of all spans, as in CoNLL's files
SPAN_KEYS = ("start", "end", "label")


class Segments(NamedTuple):
    """The segments of a text, in order; each ends before the next one begins."""

    starts: list[int]  # in characters
    labels: list[Label | None]  # None is no class
    outside: Label | None = None  # the class of segments outside of all spans


@dataclass(frozen=True)
class TagsReader:
    """Read tags: a list beside a list of words, or spans [start, end, label] of a text.

    Args:
        value_type: of the labels. Text outside of all spans has the class OUTSIDE, and no class if
            labels are no strings or the fixed names do not have it.
    """

    name: str
    value_type: str
    class_names: tuple[Label, ...] | None = None
    reads_words = True  # the text may be a list of words

    def read_all(self, values: list[Any], texts: list[Any]) -> list[Any] | None:
        """Return the segments of many records, None if one cannot be read."""
        try:
            return list(map(self.read, values, texts))
        except BadRecordError:
            return None

    def read(self, value: Any, text: Any) -> Segments:
        """Return the segments of one text; raises BadRecordError."""
        if type(value) is not list:
            raise wrong_value_error(self.name, value, "a list")
        if type(text) is list:
            return self._read_words(value, text)
        return self._read_spans(value, text)

    def parse(self, spelled: str) -> Any:
        """Return the list that a field of CSV spells as JSON, else the text."""
        try:
            return json.loads(spelled)
        except (ValueError, RecursionError):
            return spelled

    def _read_words(self, value: list[Any], words: list[str]) -> Segments:
        if len(value) != len(words):
            raise BadRecordError(
                f"field {quote(self.name)} has {len(value):,} tags, "
                f"expected {len(words):,}, one for each word"
            )
        ends = accumulate(map(len, words), lambda end, length: end + length + 1, initial=0)
        return Segments(list(ends)[: len(words)], self._read_labels(value))

    def _read_spans(self, value: list[Any], text: str) -> Segments:
        spans = sorted((self._read_span(entry, text) for entry in value), key=lambda span: span[:2])
        for (start, end, _), (next_start, next_end, _) in pairwise(spans):
            if next_start < end:
                raise BadRecordError(
                    f"field {quote(self.name)} has the spans {start} to {end} and {next_start} to "
                    f"{next_end}, expected spans that do not overlap"
                )
        outside = OUTSIDE if self.value_type == "string" else None
        if self.class_names is not None and outside not in self.class_names:
            outside = None
        labels = self._read_labels([label for _, _, label in spans])
        pieces = list(_cut(text, spans, labels, outside))
        return Segments([start for start, _ in pieces], [label for _, label in pieces], outside)

    def _read_span(self, entry: Any, text: str) -> tuple[int, int, Any]:
        if isinstance(entry, dict) and set(entry) >= set(SPAN_KEYS):
            entry = [entry[key] for key in SPAN_KEYS]
        if type(entry) is not list or len(entry) != len(SPAN_KEYS):
            is_label = type(entry) in chain.from_iterable(TYPES.values())
            raise BadRecordError(
                f"field {quote(self.name)} has the entry {quote(entry)}, "
                "expected spans [start, end, label] beside a text that is a string",
                hint="for one tag per word, pass --text-field with the field of the words"
                if is_label
                else SKIP_HINT,
            )
        start, end, label = entry
        if type(start) is not int or type(end) is not int or not 0 <= start < end <= len(text):
            raise BadRecordError(
                f"field {quote(self.name)} has the span {quote(start)} to {quote(end)}, "
                f"expected start < end within the {len(text):,} characters of the text"
            )
        return start, end, label

    def _read_labels(self, labels: list[Any]) -> list[Any]:
        if self.value_type != "string" or not set(map(type, labels)) <= {str}:
            labels = [read_label(self.name, label, self.value_type) for label in labels]
        if self.class_names is not None and not set(labels) <= set(self.class_names):
            wrong = next(label for label in labels if label not in self.class_names)
            known = join_items(map(quote, self.class_names))
            raise wrong_value_error(self.name, wrong, f"one of {known}")
        return labels


def _cut(
    text: str, spans: Sequence[tuple[int, int, Any]], labels: list[Any], outside: Label | None
) -> Iterator[tuple[int, Label | None]]:
    """Yield the start and class of each segment of a text; of a span of spaces, its start."""
    done = 0
    for (start, end, _), label in zip(spans, labels, strict=True):
        yield from ((found.start(), outside) for found in WORD.finditer(text, done, start))
        pieces = [found.start() for found in WORD.finditer(text, start, end)]
        yield from ((place, label) for place in pieces or [start])
        done = end
    yield from ((found.start(), outside) for found in WORD.finditer(text, done))


class TagsCollector:
    """Collects tags: `assign` finds those of encoded texts, `add` takes them cut to sequences."""

    def __init__(self, field: Field) -> None:
        self.num_words_without_token = 0
        self._classes = ClassCollector(field.name, field.class_names)

    def assign(
        self,
        values: Sequence[Segments | None],
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
        present = [value or Segments([], []) for value in values]
        owners, has_text, num_segments = _find_segments(present, offsets, lengths)
        labels = list(chain.from_iterable(value.labels for value in present))
        tags = self._number(labels, present)[owners]
        if subtokens == "first":
            tags[np.diff(owners, prepend=-1) == 0] = NO_CLASS
        found = np.full(len(offsets), NO_CLASS, np.int32)
        found[has_text] = tags
        is_found = np.zeros(num_segments, bool)
        is_found[owners] = True
        if not is_found.all():
            outside = list(chain.from_iterable([v.outside] * len(v.labels) for v in present))
            lost = np.flatnonzero(~is_found).tolist()
            self.num_words_without_token += sum(labels[i] not in (outside[i], None) for i in lost)
        return found

    def add(self, entries: np.ndarray) -> None:
        """Add the classes of tokens, as `assign` numbers them."""
        self._classes.add_numbers(entries)

    def finish(self, name: str) -> Collected:
        """Return the column."""
        return self._classes.finish(name)

    def _number(self, labels: list[Any], values: Sequence[Segments]) -> np.ndarray:
        """Return the number of each class; a new one gets the next number."""
        numbers = self._classes.numbers
        for label in dict.fromkeys([*(value.outside for value in values), *labels]):
            if label is not None:
                numbers.setdefault(label, len(numbers))
        table: dict[Any, int] = {None: NO_CLASS, **numbers}
        return np.fromiter(map(table.__getitem__, labels), np.int32, len(labels))


def _find_segments(
    values: Sequence[Segments], offsets: np.ndarray, lengths: np.ndarray
) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the segment of each token that has text, which tokens have, and how many there are."""
    counts = np.fromiter((len(value.starts) for value in values), np.int64, len(values))
    num_segments = int(counts.sum())
    flat = chain.from_iterable(value.starts for value in values)
    starts = np.fromiter(flat, np.int64, num_segments)
    has_text = offsets[:, 0] < offsets[:, 1]
    wide = 1 + max(int(starts.max(initial=0)), int(offsets.max(initial=0)))
    bases = wide * np.arange(len(values))  # so that the places of all texts are in order
    places = (offsets[:, 0] + np.repeat(bases, lengths))[has_text]
    owners = np.searchsorted(starts + np.repeat(bases, counts), places, side="right") - 1
    return owners, has_text, num_segments


TAGS = Kind(
    "tags",
    "int32",
    NO_CLASS,
    lambda field: TagsReader(field.name, field.value_type or "string", field.class_names),
    lambda field, _: TagsCollector(field),
    is_per_token=True,
    has_classes=True,
)
