"""Which fields of JSON records are read, and which no record may have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from seqpack_cli.corpus.kept_fields import FieldReader
from seqpack_cli.corpus.missing_fields import IDS_FIELD
from seqpack_cli.corpus.number_lists import NumberLists, join_lists
from seqpack_cli.errors import quote
from seqpack_cli.tokens.imports.import_setup import (
    MASKS,
    ImportSetup,
    find_named,
    hint_packed,
    list_packed,
    spell_option,
)
from seqpack_cli.tokens.imports.record_batch import IDS
from seqpack_cli.tokens.imports.unread_fields import describe_mask, list_masks
from seqpack_cli.tokens.options import ROLES


class Wanted(NamedTuple):
    """The fields to read, and those that must not be there."""

    lists: dict[str, str]  # names of fields, by what they are
    number: str | None
    readers: list[FieldReader]
    unexpected: list[str]  # which the first records do not have
    refused: dict[str, tuple[str, str]]  # fields that may not be lists; the reason, and the hint
    options: dict[str, str]  # which name a field, by what that is

    @classmethod
    def of(cls, setup: ImportSetup) -> Wanted:
        """Return the fields that a setup asks for."""
        options = setup.options
        named = [role for role in ROLES if find_named(options, role) is not None]
        refused = {name: _describe_several(name) for name in list_packed(options)}
        refused |= {name: describe_mask(name) for name in list_masks(setup.fields.names, options)}
        return cls(
            {IDS: options.ids_field, **setup.fields.names},
            options.document_field,
            [each.make_reader() for each in setup.list_fields()],
            setup.list_unexpected(),
            refused,
            {IDS: IDS_FIELD, **{role: spell_option(role) for role in named}},
        )

    @property
    def names(self) -> list[str]:
        """Those that a record must have."""
        number = [] if self.number is None else [self.number]
        return [*self.lists.values(), *number, *(reader.name for reader in self.readers)]

    def join(self, columns: Sequence[list[Any]]) -> dict[str, NumberLists]:
        """Join the lists of numbers of some records; raise TypeError or OverflowError."""
        found = zip(self.lists, columns, strict=False)
        return {role: join_lists(lists, takes_booleans=role in MASKS) for role, lists in found}


def _describe_several(name: str) -> tuple[str, str]:
    return f"{quote(name)}: the record has several sequences, expected one", hint_packed(name)
