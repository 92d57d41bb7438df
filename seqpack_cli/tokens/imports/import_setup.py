"""What a worker needs to import the parts of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from seqpack_cli.files.places import Place
from seqpack_cli.tokens.columns.keep_option import check_keep
from seqpack_cli.tokens.columns.kept import Kept, ValuesFrom
from seqpack_cli.tokens.imports.import_facts import RECEIPT_FIELDS, check_facts
from seqpack_cli.tokens.indexed_dataset import choose_dtype
from seqpack_cli.tokens.options import PACKED, ROLES, ImportOptions
from seqpack_cli.tokens.vocabulary import Vocabulary

TARGET_ROLES = frozenset(("labels", "loss_mask"))  # those that say which tokens are targets
MASKS = ("attention_mask", "loss_mask")  # which may have booleans


class RecordFields(NamedTuple):
    """The fields that stand beside the ids of records; None for those that are not read."""

    labels: str | None = None
    attention_mask: str | None = None
    loss_mask: str | None = None

    @property
    def names(self) -> dict[str, str]:
        """Return the fields that are read, by what they are."""
        return {role: name for role, name in self._asdict().items() if name is not None}

    @property
    def has_targets(self) -> bool:
        """Return whether one says which tokens are targets."""
        return not TARGET_ROLES.isdisjoint(self.names)


@dataclass(frozen=True)
class ImportSetup:
    """What a worker needs to import any part of a run."""

    folder: Place
    vocabulary: Vocabulary
    options: ImportOptions
    fields: RecordFields
    kept: tuple[Kept, ...] = ()

    def list_fields(self) -> list[Kept]:
        """Return the columns that are kept fields."""
        return [each for each in self.kept if each.values_from is ValuesFrom.FIELD]

    def list_unexpected(self) -> list[str]:
        """Return the fields that would be read if the first records had them."""
        return [
            role
            for role, name in self.fields._asdict().items()
            if name is None and role in list_optional(self.options)
        ]

    def list_names(self) -> list[str]:
        """Return the fields of records that are read, in the order in which readers take them."""
        numbers = [self.options.document_field] if self.options.document_field is not None else []
        kept = [each.field.name for each in self.list_fields()]
        return [self.options.ids_field, *self.fields.names.values(), *numbers, *kept]

    @property
    def dtype(self) -> str:
        """The dtype of the ids in the store."""
        return choose_dtype(self.vocabulary.max_id)

    @property
    def affix_ids(self) -> Mapping[str, int | None]:
        """The ids that may begin and end a document, by their roles."""
        eos = self.options.eos
        return {
            "bos": self.vocabulary.bos_id,
            "eos": self.vocabulary.eos_id if eos is None else eos,
        }

    @property
    def receipt_fields(self) -> Mapping[str, type]:
        """See `AnySetup`."""
        return RECEIPT_FIELDS

    def check_receipt(self, receipt: dict[str, Any], source: Place) -> None:
        """Raise FolderError unless these fields are possible."""
        check_facts(receipt, self.vocabulary.max_id, source)


def list_optional(options: ImportOptions) -> list[str]:
    """Return the roles of fields that are read where records have them: no option names another.

    One that is kept as a column is not read as a list of numbers.
    """
    taken = _list_taken(options)
    return [role for role in ROLES if role not in taken and find_named(options, role) is None]


def list_packed(options: ImportOptions) -> list[str]:
    """Return the fields by which a record is refused, since it has several sequences."""
    return [name for name in PACKED if name not in _list_taken(options)]


def find_named(options: ImportOptions, role: str) -> str | None:
    """Return the field that an option names; None if it names none."""
    found: str | None = getattr(options, f"{role}_field")
    return found


def _list_taken(options: ImportOptions) -> set[str]:
    """Return the fields that are something else, or ignored."""
    taken = {option.name for option in check_keep(options.keep)}
    taken |= {options.ids_field, options.document_field or "", *options.ignore_fields}
    return taken | {find_named(options, role) or "" for role in ROLES}


def spell_option(role: str) -> str:
    """Return the option that names a field."""
    return f"--{role.replace('_', '-')}-field"


def hint_unread(role: str, name: str) -> str:
    """Return the hint how a field is left unread."""
    return f"pass --ignore-field {name}" if name == role else f"omit {spell_option(role)} {name}"


def hint_value(name: str) -> str:
    """Return the hint about a field of one value that has the name of one with a list."""
    return f"pass --keep {name} to keep it as a column, or --ignore-field {name}"


def hint_packed(name: str) -> str:
    """Return the hint about records of several sequences."""
    return f"write one record per sequence, or pass --ignore-field {name} if each record is one"
