"""The formats that ids are imported from: how each is cut into ranges, read and hashed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from seqpack_cli.corpus.sources import Source, SourceRange
from seqpack_cli.corpus.streams import hash_range
from seqpack_cli.errors import OptionError, join_items
from seqpack_cli.tokens.imports.flat_ids import cut_flat, iter_flat_blocks
from seqpack_cli.tokens.imports.id_block import IdBlock, RangeInput
from seqpack_cli.tokens.imports.import_setup import ImportSetup
from seqpack_cli.tokens.imports.megatron_ids import (
    cut_megatron,
    hash_megatron,
    iter_megatron_blocks,
)
from seqpack_cli.tokens.imports.record_arrays import iter_array_blocks
from seqpack_cli.tokens.imports.record_cuts import cut_lines, cut_parquet
from seqpack_cli.tokens.imports.record_json import iter_json_blocks
from seqpack_cli.tokens.options import ImportOptions

# The options that only some formats have: by what such files hold, the names of the parameters.
OWN_OPTIONS = {
    "records": {
        "ids_field": "--ids-field",
        "labels_field": "--labels-field",
        "attention_mask_field": "--attention-mask-field",
        "loss_mask_field": "--loss-mask-field",
        "ignore_fields": "--ignore-field",
        "document_field": "--document-field",
        "keep": "--keep",
    },
    "ids alone": {"dtype": "--dtype", "eos": "--eos"},
}
Cut = Callable[[ImportOptions, Source, int, int], list[tuple[int, int]]]  # see `plan_parts`


class IdFormat(NamedTuple):
    """One format."""

    read: Callable[[RangeInput, ImportSetup], Iterator[IdBlock]]
    cut: Cut | None = None  # None: as texts are cut
    hash_range: Callable[[SourceRange], str] = hash_range
    holds: str = "records"  # see OWN_OPTIONS


ID_FORMATS = {
    "megatron": IdFormat(iter_megatron_blocks, cut_megatron, hash_megatron, "documents"),
    "flat": IdFormat(iter_flat_blocks, cut_flat, holds="ids alone"),
    "jsonl": IdFormat(iter_json_blocks, cut_lines),
    "json": IdFormat(iter_json_blocks),
    "parquet": IdFormat(iter_array_blocks, cut_parquet),
    "arrow": IdFormat(iter_array_blocks),
}


def hash_input(source_range: SourceRange) -> str:
    """Return the BLAKE3 checksum of the input of a range, "" if it cannot be read."""
    return ID_FORMATS[source_range.source.format].hash_range(source_range)


def check_options_used(sources: Sequence[Source], options: ImportOptions) -> None:
    """Raise OptionError if an option was set that applies to none of the sources."""
    formats = dict.fromkeys(source.format for source in sources)
    held = {ID_FORMATS[name].holds for name in formats}
    defaults = {each.name: each.default for each in dataclasses.fields(options)}
    for holds, flags in OWN_OPTIONS.items():
        for name, flag in flags.items():
            value = getattr(options, name)
            is_recorded = name == "eos" and options.tokenizer is None
            if holds not in held and value != defaults[name] and not is_recorded:
                shown = value if isinstance(value, str | int) else value[0]
                raise OptionError(
                    f"{flag} {shown}: the input is {join_items(formats)}, expected {holds}",
                    hint=f"omit {flag}",
                )
