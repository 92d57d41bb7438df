"""Find the fields of records to read: those that are asked for, and labels and masks beside ids.

A table says what it has. Of JSON, the first records decide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from seqpack_cli.corpus.documents import JSON_FORMATS
from seqpack_cli.corpus.field_samples import (
    NUM_RECORDS,
    Samples,
    UnmadeText,
    sample_names,
    sample_records,
)
from seqpack_cli.corpus.missing_fields import IDS_FIELD
from seqpack_cli.corpus.options import DocumentOptions
from seqpack_cli.corpus.parquet_values import to_python
from seqpack_cli.corpus.sources import Source, SourceRange
from seqpack_cli.corpus.table_rows import FORMATS as TABLE_FORMATS
from seqpack_cli.corpus.table_rows import iter_table_arrays
from seqpack_cli.errors import OptionError, quote
from seqpack_cli.tokens.columns.keep_option import check_keep
from seqpack_cli.tokens.columns.kept import Kept
from seqpack_cli.tokens.columns.kind_choice import choose_kinds
from seqpack_cli.tokens.columns.kinds import KINDS
from seqpack_cli.tokens.imports.import_setup import (
    TARGET_ROLES,
    RecordFields,
    find_named,
    list_optional,
)
from seqpack_cli.tokens.imports.record_tables import check_table
from seqpack_cli.tokens.imports.unread_fields import iter_unread_notes
from seqpack_cli.tokens.options import ROLES, ImportOptions

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
    samples = _sample_lines(lines, names, options)
    if samples.num_records:
        named = {role for role in names if find_named(options, role) is not None}
        found[lines[0]] = named | {role for role, name in names.items() if name in samples.seen}
    others = [each for each in sources if each not in records]
    fields = _compare(found, others, names)
    kept = _find_kept(records, samples, options)
    keys = sample_names(lines, options.max_document_bytes)
    notes = iter_unread_notes(columns.values(), keys, fields, options)
    return FoundFields(fields, kept, list(notes))


def _check_options(
    sources: Sequence[Source], records: Sequence[Source], options: ImportOptions
) -> None:
    """Raise OptionError if a source has no fields to keep."""
    others = [each for each in sources if each not in records]
    if options.keep and others:
        raise OptionError(
            f"--keep {options.keep[0]}: {others[0].path} is {others[0].format}, expected records",
            hint="import it into a store of its own",
        )


def _name_fields(options: ImportOptions) -> dict[str, str]:
    """Return the name of each field that may stand beside the ids, by what it is."""
    optional = {role: role for role in list_optional(options)}
    found = {role: find_named(options, role) or optional.get(role) for role in ROLES}
    return {role: name for role, name in found.items() if name is not None}


def _sample_lines(
    sources: Sequence[Source], names: Mapping[str, str], options: ImportOptions
) -> Samples:
    """Read the first records of JSON; bytes that are not UTF-8 are left to who reads them all."""
    keep = [option.name for option in check_keep(options.keep)]
    text = UnmadeText((options.ids_field,), (IDS_FIELD,), tuple(names.values()), takes_strings=True)
    limit = options.max_document_bytes
    how = DocumentOptions(
        encoding_errors="skip", on_bad_record=options.on_bad_record, max_document_bytes=limit
    )
    return sample_records(sources, how, keep, text)


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
        lacks_it += others if role in TARGET_ROLES else []
        if lacks_it:
            name = quote(names[role])
            raise OptionError(
                f"{lacks_it[0].path}: no {name}, {has_it.path} has it; expected all sources to be "
                "alike",
                hint=f"import them into two stores, or pass --ignore-field {names[role]}",
            )
    return RecordFields(**{role: name for role, name in names.items() if role in roles})


def _find_kept(sources: Sequence[Source], of_lines: Samples, options: ImportOptions) -> list[Kept]:
    """Return the kept fields; kinds that are left open follow from the first records."""
    keep = check_keep(options.keep)
    samples: list[list[Any]] = [[] for _ in keep]
    names = [option.name for option in keep]
    is_read = False  # the JSON, which was read together
    for source in sources if keep else ():
        if source.format not in JSON_FORMATS:
            more = _read_first(source, names)
        elif not is_read:
            more, is_read = of_lines.values, True
        else:
            continue
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
