"""Columns with an entry per token: `tags`, a class, and `targets`, 1 for what counts in the loss.

Tags are one per word of a record, or spans of characters of its text. The text is cut into
segments, each with a class: its words, or, where tags are spans, the runs of characters between
spaces, cut where a span begins or ends. A token has the class of the segment in which it begins,
spaces left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, pairwise
from typing import Any, NamedTuple

import numpy as np

from seqpack_cli.corpus.fields import KEEP, SKIP_HINT, TEXT_FIELD, BadRecordError, Field
from seqpack_cli.errors import join_items, quote
from seqpack_cli.tokens.conditions import Label
from seqpack_cli.tokens.kinds import (
    LABEL_TYPES,
    NO_CLASS,
    ClassNumbers,
    Collected,
    PartFile,
    PlannedColumn,
    TokenKind,
    read_label,
    wrong_value_error,
)
from seqpack_cli.tokens.offsets import WORD, Places
from seqpack_cli.tokens.text_values import TextValues

OUTSIDE = "O"  # the class of text outside of all spans, as in CoNLL's files
SPAN_KEYS = ("start", "end", "label")


class Segments(NamedTuple):
    """The segments of a text with spans, in order; each ends before the next one begins."""

    starts: list[int]  # in bytes
    labels: list[Label | None]  # None is no class
    outside: Label | None = None  # the class of segments outside of all spans


class Words(NamedTuple):
    """The segments of a text that is a list of words."""

    words: list[str]
    labels: list[Label]
    outside: None = None

    @property
    def starts(self) -> list[int]:
        """Where each word begins in the text, in bytes."""
        sizes = (len(word.encode()) for word in self.words)
        ends = accumulate(sizes, lambda end, size: end + size + 1, initial=0)
        return list(ends)[: len(self.words)]


class Tags(TokenKind):
    """A class per token, from a list beside a list of words, or from spans [start, end, label].

    Text outside of all spans has the class OUTSIDE, and no class if labels are no strings or the
    fixed names do not have it.
    """

    dtype, fill, has_classes = "int32", NO_CLASS, True

    def __init__(self, field: PlannedColumn, file: PartFile | None = None) -> None:
        super().__init__(field, file)
        self.value_type = field.value_type or "string"
        self.class_names = field.class_names
        self._classes = ClassNumbers(field)

    @property
    def fields(self) -> tuple[Field, ...]:
        """The tags, and the text or words."""
        return Field(self.name, KEEP), Field(self.field.text_field, TEXT_FIELD, "words")

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

    def assign(
        self,
        values: Sequence[Segments | Words | None],
        words: Places,
        subtokens: str,
    ) -> np.ndarray:
        """Return the class of each token of some texts, int32.

        Args:
            values: the segments of each text; None only for one without tokens.
            words: of all tokens, without the spaces in front.
            subtokens: "all" tokens of a segment have its class, or only the "first".
        """
        present = [Words([], []) if value is None else value for value in values]
        owners, has_text, num_segments = _find_segments(present, words)
        labels = list(chain.from_iterable(value.labels for value in present))
        self._classes.number([value.outside for value in present])
        tags = self._classes.number(labels)[owners]
        if subtokens == "first":
            tags[np.diff(owners, prepend=-1) == 0] = NO_CLASS
        found = np.full(len(words.starts), NO_CLASS, np.int32)
        found[has_text] = tags
        is_found = np.zeros(num_segments, bool)
        is_found[owners] = True
        if not is_found.all():
            outside = list(chain.from_iterable([v.outside] * len(v.labels) for v in present))
            lost = np.flatnonzero(~is_found).tolist()
            num_lost = sum(labels[i] not in (outside[i], None) for i in lost)
            self.counts["num_words_without_token"] += num_lost
        return found

    def add_entries(self, entries: np.ndarray) -> None:
        """Add the classes of tokens, as `assign` numbers them."""
        self._classes.add(entries)

    def finish(self) -> Collected:
        """Return the column."""
        return self._classes.finish()

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
        starts = [start for start, _ in pieces]
        if not text.isascii():
            between = (text[start:end].encode() for start, end in pairwise([0, *starts]))
            starts = list(accumulate(map(len, between)))
        return Segments(starts, [label for _, label in pieces], outside)

    def _read_span(self, entry: Any, text: str) -> tuple[int, int, Any]:
        if isinstance(entry, dict) and set(entry) >= set(SPAN_KEYS):
            entry = [entry[key] for key in SPAN_KEYS]
        if isinstance(entry, dict):
            raise BadRecordError(
                f"field {quote(self.name)} has the entry {quote(entry)}, "
                f"expected the keys {', '.join(SPAN_KEYS)}"
            )
        if type(entry) is not list or len(entry) != len(SPAN_KEYS):
            is_label = type(entry) in chain.from_iterable(LABEL_TYPES.values())
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


class Targets(TokenKind):
    """1 for a token that counts in the loss, else 0; not read from a field."""

    dtype, largest, expected = "uint8", 1, "0 or 1"

    def add_entries(self, entries: np.ndarray) -> None:
        """Add the entries of the tokens of some sequences, and count the targets."""
        self.counts["num_target_tokens"] += int(np.count_nonzero(entries))
        self._pieces.append(entries.astype(self.dtype))


def _find_starts(values: Sequence[Segments | Words], counts: np.ndarray) -> np.ndarray:
    """Return where each segment begins in its text."""
    num_segments = int(counts.sum())
    if not all(isinstance(value, Words) for value in values):
        flat = chain.from_iterable(value.starts for value in values)
        return np.fromiter(flat, np.int64, num_segments)
    words = chain.from_iterable(value.words for value in values if isinstance(value, Words))
    ends = np.cumsum(1 + TextValues.of(list(words)).lengths)
    starts = np.concatenate([[0], ends])[:num_segments]
    first = np.cumsum(counts) - counts
    has_words = counts > 0
    first_starts = starts[first[has_words]]
    found: np.ndarray = starts - np.repeat(first_starts, counts[has_words])
    return found


def _find_segments(
    values: Sequence[Segments | Words], words: Places
) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the segment of each token that has text, which tokens have, and how many there are."""
    counts = np.fromiter((len(value.labels) for value in values), np.int64, len(values))
    starts = _find_starts(values, counts) + np.repeat(words.text_offsets[:-1], counts)
    has_text = words.starts < words.ends
    owners = np.searchsorted(starts, words.starts[has_text], side="right") - 1
    return owners, has_text, len(starts)


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
