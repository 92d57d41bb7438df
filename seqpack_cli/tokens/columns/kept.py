"""A field to keep: how its values are read and collected, and the column that they become."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from seqpack_cli.corpus.fields import Reader
from seqpack_cli.tokens.columns.class_kind import sort_labels
from seqpack_cli.tokens.columns.column import Column
from seqpack_cli.tokens.columns.kind import Collector, Field, Label, PartFile, TokenCollector
from seqpack_cli.tokens.columns.kinds import KINDS


class ValuesFrom(Enum):
    """Where the values of a column are from."""

    FIELD = "a field of each record"
    TEXT = "the reader of texts"
    PIECES = "how documents are cut"


@dataclass(frozen=True)
class Kept:
    """A column of a store that is made, in most cases from a field to keep."""

    field: Field
    kind: str
    values_from: ValuesFrom = ValuesFrom.FIELD

    def make_reader(self) -> Reader:
        """Return the reader of the field's values."""
        return KINDS[self.kind].make_reader(self.field)

    def make_collector(self, file: PartFile) -> Collector | TokenCollector:
        """Return what collects the values of a part."""
        return KINDS[self.kind].make_collector(self.field, file)

    def make_column(self, found: Iterable[Label]) -> Column:
        """Return the column of a store.

        Args:
            found: the names of the classes of all its parts.

        Raises:
            DataError: there are too many classes.
        """
        name, _, labels, _ = self.field
        if not KINDS[self.kind].has_classes:
            return Column(name, self.kind)
        return Column(name, self.kind, tuple(labels or sort_labels(found, name)))

    def describe(self) -> dict[str, Any]:
        """Return what decides the column, as in the options of a manifest."""
        names = self.field.class_names
        return {
            "name": self.field.name,
            "kind": self.kind,
            "value_type": self.field.value_type,
            "class_names": None if names is None else list(names),
        }
