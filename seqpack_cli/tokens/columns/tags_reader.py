"""Read tags: one per word of a record, or spans of characters of its text.

The text of a record is cut into segments, each with a class: its words, or, where tags are spans,
the runs of characters between spaces, cut where a span begins or ends.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from typing import Any, NamedTuple

from seqpack_cli.corpus.fields import KEEP, SKIP_HINT, TEXT_FIELD, BadRecordError, Field
from seqpack_cli.errors import join_items, quote
from seqpack_cli.tokens.columns.class_kind import TYPES, read_label
from seqpack_cli.tokens.columns.kind import Label, wrong_value_error
from seqpack_cli.tokens.offsets.spelling import WORD

OUTSIDE = "O"  # the class of text outside of all spans, as in CoNLL's files
SPAN_KEYS = ("start", "end", "label")


class Segments(NamedTuple):
    """The segments of a text with spans, in order; each ends before the next one begins."""

    starts: list[int]  # in characters
    labels: list[Label | None]  # None is no class
    outside: Label | None = None  # the class of segments outside of all spans


class Words(NamedTuple):
    """The segments of a text that is a list of words."""

    words: list[str]
    labels: list[Label]
    outside: None = None

    @property
    def starts(self) -> list[int]:
        """Where each word begins in the text, in characters."""
        ends = accumulate(map(len, self.words), lambda end, length: end + length + 1, initial=0)
        return list(ends)[: len(self.words)]


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
    text_field: str = "text"  # whose value may be a list of words
    num_lists = 1

    @property
    def fields(self) -> tuple[Field, Field]:
        """The tags, and the text or words."""
        return Field(self.name, KEEP), Field(self.text_field, TEXT_FIELD, "words")

    def read_all(self, columns: Sequence[list[Any]]) -> list[list[Any]]:
        """Return the segments of many records; raise ValueError if one must be read alone."""
        values, texts = columns
        if set(map(type, values)) != {list} or set(map(type, texts)) != {list}:
            raise ValueError("not lists of words")
        are_known = self.value_type == "string" and self._are_known(chain.from_iterable(values))
        if not are_known or list(map(len, values)) != list(map(len, texts)):
            raise ValueError("other tags")
        return [list(map(Words, texts, values))]

    def read(self, values: Sequence[Any]) -> list[Segments | Words]:
        """Return the segments of one text; raises BadRecordError."""
        value, text = values
        if type(value) is not list:
            raise wrong_value_error(self.name, value, "a list")
        if type(text) is list:
            return [self._read_words(value, text)]
        return [self._read_spans(value, text)]

    def parse(self, spelled: str) -> Any:
        """Return the list that a field of CSV spells as JSON, else the text."""
        try:
            return json.loads(spelled)
        except (ValueError, RecursionError):
            return spelled

    def _read_words(self, value: list[Any], words: list[str]) -> Words:
        if len(value) != len(words):
            raise BadRecordError(
                f"field {quote(self.name)} has {len(value):,} "
                f"tag{'s' * (len(value) != 1)}, expected {len(words):,}, one for each word"
            )
        return Words(words, self._read_labels(value))

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
        if isinstance(entry, dict):
            raise BadRecordError(
                f"field {quote(self.name)} has the entry {quote(entry)}, "
                f"expected the keys {', '.join(SPAN_KEYS)}"
            )
        if type(entry) is not list or len(entry) != len(SPAN_KEYS):
            is_label = type(entry) in chain.from_iterable(TYPES.values())
            raise BadRecordError(
                f"field {quote(self.name)} has the entry {quote(entry)}, "
                "expected spans [start, end, label] beside a text that is a string",
                hint="for one tag per word, the text must be a list of words: pass --text-field"
                if is_label
                else SKIP_HINT,
            )
        start, end, label = entry
        if type(start) is not int or type(end) is not int:
            raise BadRecordError(
                f"field {quote(self.name)} has the entry {quote(entry)}, "
                "expected integers as start and end, and then a label"
            )
        if not 0 <= start < end <= len(text):
            raise BadRecordError(
                f"field {quote(self.name)} has the span {quote(start)} to {quote(end)}, "
                f"expected start < end within the {len(text):,} characters of the text"
            )
        return start, end, label

    def _are_known(self, labels: Iterable[Any]) -> bool:
        """Return whether all labels are strings, of the fixed names."""
        if self.class_names is not None:
            known = set(self.class_names)
            return all(type(label) is str and label in known for label in labels)
        return set(map(type, labels)) <= {str}

    def _read_labels(self, labels: list[Any]) -> list[Any]:
        if self.value_type == "string" and self._are_known(labels):
            return labels
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
