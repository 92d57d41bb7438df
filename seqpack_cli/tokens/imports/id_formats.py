"""The formats that ids are imported from: how each is cut into ranges, read and hashed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from seqpack_cli.corpus.blocks import hash_range
from seqpack_cli.corpus.sources import Source, SourceRange
from seqpack_cli.errors import OptionError, join_items
from seqpack_cli.tokens.imports.flat_ids import cut_flat, iter_flat_blocks
from seqpack_cli.tokens.imports.id_block import IdBlock, RangeInput
from seqpack_cli.tokens.imports.import_options import ImportOptions
from seqpack_cli.tokens.imports.import_setup import ImportSetup
from seqpack_cli.tokens.imports.megatron_ids import (
    cut_megatron,
    hash_megatron,
    iter_megatron_blocks,
)


# The parameters of ImportOptions that only records have, and what each is called.
RECORD_OPTIONS = {
    "ids_field": "--ids-field",
    "labels_field": "--labels-field",
    "attention_mask_field": "--attention-mask-field",
    "loss_mask_field": "--loss-mask-field",
    "ignore_fields": "--ignore-field",
    "document_field": "--document-field",
    "keep": "--keep",
}
Cut = Callable[[ImportOptions, Source, int, int], list[tuple[int, int]]]  # see `plan_parts`


class IdFormat(NamedTuple):
    """One format."""

    read: Callable[[RangeInput, ImportSetup], Iterator[IdBlock]]
    cut: Cut | None = None  # None: as texts are cut
    hash_range: Callable[[SourceRange], str] = hash_range
    options: Mapping[str, str] = RECORD_OPTIONS  # those that not every format has


ID_FORMATS = {
    "megatron": IdFormat(iter_megatron_blocks, cut_megatron, hash_megatron, {}),
    "flat": IdFormat(iter_flat_blocks, cut_flat, options={"dtype": "--dtype", "eos": "--eos"}),
}


def hash_input(source_range: SourceRange) -> str:
    """Return the BLAKE3 checksum of the input of a range, "" if it cannot be read."""
    return ID_FORMATS[source_range.source.format].hash_range(source_range)


def check_options_used(sources: Sequence[Source], options: ImportOptions) -> None:
    """Raise OptionError if an option was set that applies to none of the sources."""
    formats = dict.fromkeys(source.format for source in sources)
    read = {name for each in formats for name in ID_FORMATS[each].options}
    if options.tokenizer is None:
        read.add("eos")  # recorded in the store
    for each in dataclasses.fields(options):
        value = getattr(options, each.name)
        takers = [name for name, it in ID_FORMATS.items() if each.name in it.options]
        if takers and each.name not in read and value != each.default:
            flag = ID_FORMATS[takers[0]].options[each.name]
            shown = value if isinstance(value, str | int) else value[0]
            raise OptionError(
                f"{flag} {shown}: the input is {join_items(formats)}, "
                f"expected {join_items(takers)}",
                hint=f"omit {flag}",
            )
