"""The formats that ids are imported from: how each is cut into ranges, read and hashed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from seqpack_cli.corpus.blocks import hash_range
from seqpack_cli.corpus.parts import Cut
from seqpack_cli.corpus.sources import SourceRange
from seqpack_cli.tokens.imports.id_block import IdBlock, RangeInput
from seqpack_cli.tokens.imports.import_setup import ImportSetup
from seqpack_cli.tokens.imports.megatron_ids import (
    cut_megatron,
    hash_megatron,
    iter_megatron_blocks,
)
from seqpack_cli.tokens.imports.record_arrays import iter_array_blocks
from seqpack_cli.tokens.imports.record_json import iter_json_blocks


class IdFormat(NamedTuple):
    """One format."""

    read: Callable[[RangeInput, ImportSetup], Iterator[IdBlock]]
    cut: Cut | None = None  # None: as texts are cut
    hash_range: Callable[[SourceRange], str] = hash_range


ID_FORMATS = {
    "megatron": IdFormat(iter_megatron_blocks, cut_megatron, hash_megatron),
    "jsonl": IdFormat(iter_json_blocks),
    "json": IdFormat(iter_json_blocks),
    "parquet": IdFormat(iter_array_blocks),
}


def hash_input(source_range: SourceRange) -> str:
    """Return the BLAKE3 checksum of the input of a range, "" if it cannot be read."""
    return ID_FORMATS[source_range.source.format].hash_range(source_range)
