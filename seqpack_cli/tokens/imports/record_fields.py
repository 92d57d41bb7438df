"""Find the fields of records to read: those that are asked for, and labels and masks beside ids.

A table says what it has. Of JSON, the first records decide.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from seqpack_cli.corpus.documents import JSON_FORMATS, iter_record_blocks
from seqpack_cli.corpus.field_samples import NUM_RECORDS
from seqpack_cli.corpus.json_fields import find_optional
from seqpack_cli.corpus.json_lines import find_parser
from seqpack_cli.corpus.parquet_values import to_python
from seqpack_cli.corpus.sources import Source, SourceRange
from seqpack_cli.corpus.table_rows import iter_table_arrays
from seqpack_cli.errors import DataError, OptionError, join_items, quote
from seqpack_cli.tokens.columns.keep_option import check_keep
from seqpack_cli.tokens.columns.kept import Kept
from seqpack_cli.tokens.columns.kind_choice import choose_kinds
from seqpack_cli.tokens.columns.kinds import KINDS
from seqpack_cli.tokens.columns.made_columns import OVERLAP
from seqpack_cli.tokens.imports.import_options import ImportOptions
from seqpack_cli.tokens.imports.import_setup import (
    PACKED,
    TARGET_MASKS,
    RecordFields,
    hint_packed,
    list_optional,
    spell_option,
)
from seqpack_cli.tokens.imports.record_tables import check_table
from seqpack_cli.tokens.imports.unread_fields import check_masks, iter_unread_notes

TABLE_FORMATS = ("parquet", "arrow")
TARGETS = ("labels", "loss_mask")

Found = Mapping[Source, set[str]]  # what stands beside the ids of a source


class FoundFields(NamedTuple):
    """What there is in the records of an import."""

    fields: RecordFields
    kept: list[Kept]
    notes: list[str]  # about what is not read


def find_fields(sources: Sequence[Source], options: ImportOptions) -> FoundFields:
    """Return the fields beside the ids, and the kept fields with their kinds.

    Raises:
        OptionError: an option names a field that no record has, or the sources differ in theirs.
        DataError: a table lacks a column or has one of another type, or the first records do not
            decide the kind of a kept field.
    """
    records = [each for each in sources if each.format in (*JSON_FORMATS, *TABLE_FORMATS)]
    _check_options(sources, records, options)
    tables = [each for each in records if each.format in TABLE_FORMATS]
    lines = [each for each in records if each.format in JSON_FORMATS]
    names = _name_fields(options)
    columns = {each: check_table(each, names, options) for each in tables}
    found = {each: table.roles for each, table in columns.items()}
    objects = list(islice(_iter_objects(lines, options), NUM_RECORDS))
    if objects:
        found[lines[0]] = _check_objects(objects, lines[0], names, options)
    others = [each for each in sources if each not in records]
    fields = _compare(found, others, names)
    kept = _find_kept(records, objects, options)
    if not any(find_optional(value, options.ids_field) is not None for value in objects):
        objects = []  # an error later
    notes = iter_unread_notes(columns.values(), objects, fields, options)
    return FoundFields(fields, kept, list(notes))


def _check_options(
    sources: Sequence[Source], records: Sequence[Source], options: ImportOptions
) -> None:
    """Raise OptionError if a source has no fields to keep, or a field is both named and ignored."""
    others = [each for each in sources if each not in records]
    if options.keep and others:
        raise OptionError(
            f"--keep {options.keep[0]}: {others[0].path} is {others[0].format}, expected records",
            hint="import it into a store of its own",
        )
    known = (*RecordFields._fields, *TARGET_MASKS, *PACKED, OVERLAP)
    for name in options.ignore_fields:
        if name not in known:
            raise OptionError(
                f"--ignore-field {name}: never read, expected one of {', '.join(known)}"
            )
    named = {spell_option(role): getattr(options, f"{role}_field") for role in RecordFields._fields}
    for option, name in named.items():
        if name is not None and name in options.ignore_fields:
            raise OptionError(f"{option} {name}: conflicts with --ignore-field {name}")


def _name_fields(options: ImportOptions) -> dict[str, str]:
    """Return the name of each field that may stand beside the ids, by what it is."""
    optional = list_optional(options)
    named = {role: getattr(options, f"{role}_field") for role in RecordFields._fields}
    named |= {role: role for role in optional}
    return {role: name for role, name in named.items() if name is not None}


def _iter_objects(sources: Sequence[Source], options: ImportOptions) -> Iterator[dict[str, Any]]:
    """Yield the records of JSON; bad ones are left to who reads them all."""
    loads = find_parser().loads
    for index, source in enumerate(sources):
        whole = SourceRange(index, source, 0, source.num_bytes)
        limit = options.max_document_bytes
        for block in iter_record_blocks(whole, max_document_bytes=limit, on_read=lambda _: None):
            for record in block.records:
                try:
                    value = loads(record)
                except (ValueError, RecursionError):
                    continue
                if isinstance(value, dict):
                    yield value


def _check_objects(
    objects: Sequence[dict[str, Any]],
    source: Source,
    names: Mapping[str, str],
    options: ImportOptions,
) -> set[str]:
    """Return what stands beside the ids of the first records of JSON.

    Raises:
        DataError: a record has several sequences, whose borders would be lost.
        OptionError: none has the field that an option asks for.
    """
    kept = {option.name for option in check_keep(options.keep)}
    for name in PACKED:
        may_be = name not in options.ignore_fields and name not in kept
        if may_be and any(isinstance(value.get(name), list) for value in objects):
            raise DataError(
                f"{source.path}: field {quote(name)}: a record has several sequences, expected one",
                hint_packed(name),
            )
    found = {
        role
        for role, name in names.items()
        if any(find_optional(value, name) is not None for value in objects)
    }
    for role, name in names.items():
        if getattr(options, f"{role}_field") is not None and role not in found:
            keys = dict.fromkeys(key for value in objects for key in value)
            listed = join_items(map(quote, keys))
            raise OptionError(
                f"{spell_option(role)} {name}: none of the first {len(objects):,} records of "
                f"{source.path} has this field (found: {listed})"
            )
    lists = {key for value in objects for key in TARGET_MASKS if isinstance(value.get(key), list)}
    check_masks(f"{source.path}: field", lists, found, options)
    return found


def _compare(found: Found, others: Sequence[Source], names: Mapping[str, str]) -> RecordFields:
    """Return the fields that all sources have.

    Args:
        others: sources that have no fields.

    Raises:
        OptionError: a source has one that another does not have.
    """
    roles = set().union(*found.values())
    for role in sorted(roles):
        has_it = next(source for source, some in found.items() if role in some)
        lacks_it = [source for source, some in found.items() if role not in some]
        lacks_it += others if role in TARGETS else []
        if lacks_it:
            name = quote(names[role])
            raise OptionError(
                f"{lacks_it[0].path}: no {name}, {has_it.path} has it; expected all sources to be "
                "alike",
                hint=f"import them into two stores, or pass --ignore-field {names[role]}",
            )
    return RecordFields(**{role: name for role, name in names.items() if role in roles})


def _find_kept(
    sources: Sequence[Source], objects: Sequence[dict[str, Any]], options: ImportOptions
) -> list[Kept]:
    """Return the kept fields; kinds that are left open follow from the first records."""
    keep = check_keep(options.keep)
    samples: list[list[Any]] = [[] for _ in keep]
    names = [option.name for option in keep]
    for source in sources if keep else ():
        if source.format in JSON_FORMATS:
            more = [[find_optional(value, name) for value in objects] for name in names]
            objects = ()  # they are of all such sources
        else:
            more = _read_first(source, names)
        for sample, values in zip(samples, more, strict=True):
            sample += values[: NUM_RECORDS - len(sample)]
    for option, values in zip(keep, samples, strict=True):
        is_list = option.kind is None and any(isinstance(value, list) for value in values)
        if is_list or (option.kind is not None and KINDS[option.kind].is_per_token):
            found = "tags belong to the words of a text" if option.kind else "found lists"
            raise OptionError(
                f"--keep {option.name}: {found}, expected one value per record",
                hint="omit it; import keeps numbers, strings, true and false",
            )
    return choose_kinds(keep, samples)


def _read_first(source: Source, names: Sequence[str]) -> list[list[Any]]:
    """Return the values of columns in the first rows of a table."""
    found: list[list[Any]] = [[] for _ in names]
    whole = SourceRange(0, source, 0, source.num_bytes)
    for _, arrays in iter_table_arrays(whole, lambda _: names, None):
        for values, array in zip(found, arrays, strict=True):
            values += to_python(array.slice(0, NUM_RECORDS - len(values)))
        if len(found[0]) >= NUM_RECORDS:
            break
    return found
