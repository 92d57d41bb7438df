"""Find the fields of records that are not read: masks of targets and repeated tokens are refused.

Without the mask of a chat, its prompts would be trained in silence. The other fields are listed in
one note.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import chain
from typing import NamedTuple

from seqpack_cli.corpus.sources import Source
from seqpack_cli.errors import DataError, join_items, quote
from seqpack_cli.tokens.columns.keep_option import check_keep
from seqpack_cli.tokens.columns.made_columns import OVERLAP
from seqpack_cli.tokens.imports.import_setup import TARGET_ROLES, RecordFields
from seqpack_cli.tokens.options import TARGET_MASKS, ImportOptions

DOCUMENT = "document"  # the column of a file that `seqpack export` wrote


class TableFields(NamedTuple):
    """The columns of a table."""

    roles: set[str]  # what stands beside the ids
    names: list[str]
    is_exported: bool  # whether `seqpack export` wrote it


def check_masks(
    place: str, lists: Collection[str], roles: Collection[str], options: ImportOptions
) -> None:
    """Raise DataError if there is a mask of targets, and nothing says what the targets are.

    Args:
        place: the file, and what its fields are called.
        lists: the fields that hold lists.
        roles: what is read beside the ids.
    """
    for name in list_masks(roles, options):
        if name in lists:
            reason, hint = describe_mask(name)
            raise DataError(f"{place} {reason}", hint)


def list_masks(roles: Collection[str], options: ImportOptions) -> list[str]:
    """Return the fields that are refused, since they would say what the targets are.

    Args:
        roles: what is read beside the ids.
    """
    if not TARGET_ROLES.isdisjoint(roles):
        return []
    return [name for name in TARGET_MASKS if name not in _list_known(options)]


def describe_mask(name: str) -> tuple[str, str]:
    """Return the reason why a mask of targets is refused, and the hint."""
    return (
        f"{quote(name)}: a mask of targets that is not read, expected --loss-mask-field",
        f"pass --loss-mask-field {name}, or --ignore-field {name} if every token is a target",
    )


def check_overlap(source: Source, names: Collection[str], options: ImportOptions) -> None:
    """Raise DataError if rows that `seqpack export` wrote repeat tokens of the rows before."""
    if OVERLAP in names and OVERLAP not in _list_known(options):
        raise DataError(
            f"{source.path}: column {quote(OVERLAP)}: rows repeat tokens of the rows before, "
            "expected each token once",
            f"pass --ignore-field {OVERLAP} to import the repeated tokens as they are",
        )


def iter_unread_notes(
    tables: Collection[TableFields],
    names_of_lines: Collection[str],
    fields: RecordFields,
    options: ImportOptions,
) -> Iterator[str]:
    """Yield notes about the fields that are not read.

    Args:
        names_of_lines: of the fields of the first records of JSON.
    """
    known = _list_known(options) | {*fields.names.values()}
    known |= {name.partition(".")[0] for name in known}
    is_joined = options.document_field is not None
    if not is_joined and any(each.is_exported and DOCUMENT in each.names for each in tables):
        known.add(DOCUMENT)
        yield f"each row is a document; --document-field {DOCUMENT} joins rows of one document"
    names = dict.fromkeys(chain(*(each.names for each in tables), names_of_lines))
    if unread := [name for name in names if name not in known]:
        yield f"not read: {join_items(map(quote, unread))}; --keep FIELD keeps one"


def _list_known(options: ImportOptions) -> set[str]:
    """Return the fields that options name."""
    kept = {option.name for option in check_keep(options.keep)}
    return kept | {options.ids_field, options.document_field or "", *options.ignore_fields}
