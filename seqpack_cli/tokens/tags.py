"""Columns with an entry per token: `tags`, a class, and `targets`, 1 for what counts in the loss.

Tags are one per word of a record, or spans of characters of its text. The text is cut into
segments, each with a class: its words, or, where tags are spans, the runs of characters between
spaces, cut where a span begins or ends. A token has the class of the segment in which it begins,
spaces left out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np

from seqpack_cli.corpus.fields import KEEP, SKIP_HINT, TEXT_FIELD, BadRecordError, Field
from seqpack_cli.errors import quote
from seqpack_cli.ranges import to_offsets
from seqpack_cli.tokens.conditions import Label
from seqpack_cli.tokens.kinds import (
    LABEL_TYPES,
    NO_CLASS,
    Class,
    Kind,
    wrong_value_error,
)
from seqpack_cli.tokens.offsets import WORD, Places
from seqpack_cli.tokens.text_values import TextValues

OUTSIDE = "O"  # the class of text outside of all spans, as in CoNLL's files
SPAN_KEYS = ("start", "end", "label")
Span = tuple[int, int, Any]  # first character, end, label


class Segments(NamedTuple):
    """The segments of a text, in order."""

    pieces: list[str]  # of each: its word, or the text up to the next one
    labels: list[Label | None]  # None is no class
    outside: Label | None = None  # the class of segments outside of all spans
    gap: int = 1  # bytes between pieces


class Tags(Class):
    """A class per token, from a list beside a list of words, or from spans [start, end, label].

    Text outside of all spans has the class OUTSIDE, and no class if labels are no strings or the
    fixed names do not have it.
    """

    is_per_token, make_test = True, None

    @property
    def fields(self) -> tuple[Field, ...]:
        """The tags, and the text or words."""
        return Field(self.name, KEEP, parse=self.parse), Field(
            self.field.text_field, TEXT_FIELD, "words"
        )

    def read_all(self, columns: Sequence[list[Any]]) -> list[list[Any]]:
        """Return the segments of many records; raise ValueError if one must be read alone."""
        values, texts = columns
        if {*map(type, values), *map(type, texts)} != {list}:
            raise ValueError("not lists of words")
        if list(map(len, values)) != list(map(len, texts)):
            raise ValueError("not one for each word")
        super().read_all([list(chain.from_iterable(values))])
        return [list(map(Segments, texts, values))]

    def read(self, values: Sequence[Any]) -> list[Any]:
        """Return the segments of one text; raises BadRecordError."""
        value, text = values
        if type(value) is not list:
            raise wrong_value_error(self.name, value, "a list")
        if type(text) is not list:
            return [self._read_spans(value, text)]
        if len(value) != len(text):
            raise self._refuse(
                f"{len(value):,} tag{'s' * (len(value) != 1)}",
                f"{len(text):,}, one for each word",
            )
        return [Segments(text, self._read_labels(value))]

    def parse(self, spelled: str) -> Any:
        """Return the list that a field of CSV spells as JSON, else the text."""
        try:
            return json.loads(spelled)
        except (ValueError, RecursionError):
            return spelled

    def assign(
        self, values: Sequence[Segments | None], words: Places, subtokens: str
    ) -> np.ndarray:
        """Return the class of each token of some texts, int32.

        Args:
            values: the segments of each text; None only for one without tokens.
            words: of all tokens, without the spaces in front.
            subtokens: "all" tokens of a segment have its class, or only the "first".
        """
        present = [Segments([], []) if value is None else value for value in values]
        outside = self.number([value.outside for value in present])
        numbers = self.number(list(chain.from_iterable(it.labels for it in present)))
        counts, gaps = (
            np.fromiter(it, np.int64, len(present))
            for it in ((len(value.labels) for value in present), (it.gap for it in present))
        )
        sizes = TextValues.of(list(chain.from_iterable(it.pieces for it in present))).lengths
        offsets = to_offsets(sizes + np.repeat(gaps, counts))
        before = offsets[to_offsets(counts)[:-1]]  # the text
        starts = offsets[:-1] + np.repeat(words.text_offsets[:-1] - before, counts)
        has_text = words.starts < words.ends
        owners = np.searchsorted(starts, words.starts[has_text], side="right") - 1
        tags = numbers[owners]
        if subtokens == "first":
            tags[np.diff(owners, prepend=-1) == 0] = NO_CLASS
        found = np.full(len(words.starts), NO_CLASS, np.int32)
        found[has_text] = tags
        is_lost = (numbers != np.repeat(outside, counts)) & (numbers != NO_CLASS)
        is_lost[owners] = False
        self.counts["num_words_without_token"] += int(np.count_nonzero(is_lost))
        return found

    def _read_labels(self, labels: list[Any]) -> list[Any]:
        return [label for each in labels for label in super(Tags, self).read([each])]

    def _read_spans(self, value: list[Any], text: str) -> Segments:
        spans = sorted((self._read_span(entry, text) for entry in value), key=lambda span: span[:2])
        for (start, end, _), (next_start, next_end, _) in pairwise(spans):
            if next_start < end:
                found = f"the spans {start} to {end} and {next_start} to {next_end}"
                raise self._refuse(found, "spans that do not overlap")
        names, outside = self.field.class_names, None
        if self.value_type == "string" and (names is None or OUTSIDE in names):
            outside = OUTSIDE
        starts, labels, done = list[int](), list[Label | None](), 0
        for start, end, label in (*spans, (len(text), len(text), None)):
            before = [found.start() for found in WORD.finditer(text, done, start)]
            inside = [found.start() for found in WORD.finditer(text, start, end)] or [start]
            starts += before + inside
            labels += [outside] * len(before) + [label] * len(inside)
            done = end
        pieces = [text[start:end] for start, end in pairwise([0, *starts[1:]])]
        return Segments(pieces, labels[:-1], outside, gap=0)

    def _read_span(self, entry: Any, text: str) -> Span:
        found = f"the entry {quote(entry)}"
        if isinstance(entry, dict):
            entry = list(map(entry.get, SPAN_KEYS))
        if type(entry) is not list or len(entry) != len(SPAN_KEYS):
            is_label = type(entry) in chain.from_iterable(LABEL_TYPES.values())
            raise self._refuse(
                found,
                "spans [start, end, label] beside a text that is a string",
                "for one tag per word, the text must be a list of words: pass --text-field"
                if is_label
                else SKIP_HINT,
            )
        start, end, label = entry
        if {type(start), type(end)} != {int} or not 0 <= start < end <= len(text):
            expected = f"start, end and label, where 0 <= start < end <= {len(text):,}"
            raise self._refuse(found, expected)
        return start, end, *self._read_labels([label])

    def _refuse(self, found: str, expected: str, hint: str = SKIP_HINT) -> BadRecordError:
        what = f"field {quote(self.name)} has {found}, expected {expected}"
        return BadRecordError(what, hint)


class Targets(Kind):
    """1 for a token that counts in the loss, else 0; not read from a field."""

    dtype, is_per_token, largest, expected = "uint8", True, 1, "0 or 1"

    def add_entries(self, entries: np.ndarray) -> None:
        """Add the entries of the tokens of some sequences, and count the targets."""
        self.counts["num_target_tokens"] += int(np.count_nonzero(entries))
        super().add_entries(entries)
