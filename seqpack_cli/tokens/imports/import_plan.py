"""Make the plan and the tasks of an import from its options and input."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from seqpack_cli.corpus.parts import plan_parts
from seqpack_cli.corpus.sources import Source
from seqpack_cli.errors import OptionError
from seqpack_cli.tokens.columns import TARGETS
from seqpack_cli.tokens.imports.id_formats import ID_FORMATS
from seqpack_cli.tokens.imports.import_setup import RecordFields
from seqpack_cli.tokens.kinds import PlannedColumn, ValuesFrom
from seqpack_cli.tokens.manifest import describe_plan
from seqpack_cli.tokens.options import ImportOptions
from seqpack_cli.tokens.tokenize_run import PartTask, describe_kept
from seqpack_cli.tokens.tokenize_run import make_tasks as cut_tasks
from seqpack_cli.tokens.tokenizer_config import read_named_tokens
from seqpack_cli.tokens.vocabulary import Vocabulary, describe_vocabulary, read_tokenizer_json


def find_vocabulary(options: ImportOptions) -> tuple[Vocabulary, bytes | None]:
    """Return the vocabulary of the ids, and its tokenizer.json if there is one.

    Raises:
        DataError: the tokenizer cannot be read.
        OptionError: it does not exist, or --eos is not one of its ids.
    """
    if options.tokenizer is None:
        assert options.vocab_size is not None  # noqa: S101 - one of them is set
        size = options.vocab_size
        roles = (None, None, options.eos, None)
        return Vocabulary(None, size, size - 1, *roles, special_tokens=()), None
    name = str(options.tokenizer)
    tokenizer_json = read_tokenizer_json(name)
    vocabulary = describe_vocabulary(tokenizer_json, read_named_tokens(name))
    if options.eos is not None and options.eos > vocabulary.max_id:
        raise OptionError(f"--eos {options.eos}: expected an id from 0 to {vocabulary.max_id}")
    return vocabulary, tokenizer_json


def list_kept(fields: RecordFields, kept: Sequence[PlannedColumn]) -> tuple[PlannedColumn, ...]:
    """Return the columns to make: targets if a field says them, and the fields that are kept."""
    made = (
        [PlannedColumn(TARGETS, "targets", values_from=ValuesFrom.TEXT)]
        if fields.has_targets
        else []
    )
    return (*made, *kept)


def make_plan(
    sources: list[Source],
    vocabulary: Vocabulary,
    options: ImportOptions,
    fields: RecordFields,
    kept: Sequence[PlannedColumn],
) -> dict[str, Any]:
    """Return everything that decides the bytes of the store, as plain values."""
    found = {f"{name}_field": field for name, field in fields._asdict().items()}
    recorded = {**options.record(), **found, "keep": describe_kept(kept)}
    return describe_plan("import", vocabulary, recorded, sources)


def make_tasks(sources: list[Source], options: ImportOptions) -> list[PartTask]:
    """Cut the input into parts, one task each.

    Raises:
        DataError: a source cannot be read.
    """
    cuts = {
        name: functools.partial(it.cut, options)
        for name, it in ID_FORMATS.items()
        if it.cut is not None
    }
    return cut_tasks(plan_parts(sources, part_bytes=options.part_bytes, cuts=cuts))
