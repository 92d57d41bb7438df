"""The numbers of a plan on which the places of tokens in a shard depend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from seqpack_cli.batching.options import LAYOUTS
from seqpack_cli.files.manifest import SIDE


@dataclass(frozen=True)
class Geometry:
    """What a layout needs to know to lay out batches."""

    pad_id: int = 0
    padding_side: str = "right"
    has_filler_rows: bool = False  # batches may end with rows that hold no sequence
    num_rows: int | None = None  # of a batch whose rows are shared and padded to row_length
    row_length: int = 0  # where num_rows is a number
    multiple: int = 1  # lengths of sequences that share a row are rounded up to it
    is_decoder: bool = False  # the decoder's side of pairs, whose rows follow the encoder's
    is_sorted: bool = True  # rows that sequences do not share are longest first

    @classmethod
    def of_manifest(cls, manifest: Mapping[str, Any]) -> Geometry:
        """Return the geometry of the shards of a manifest."""
        return cls.of_options(
            manifest["layout"],
            manifest["options"],
            pad_id=manifest["pad_id"],
            padding_side=manifest["padding_side"],
            is_decoder=manifest.get(SIDE) == "decoder",
        )

    @classmethod
    def of_options(
        cls,
        layout: str,
        options: Mapping[str, Any],
        *,
        pad_id: int = 0,
        padding_side: str = "right",
        is_decoder: bool = False,
    ) -> Geometry:
        """Return the geometry that the recorded options of `pack` give."""
        if not LAYOUTS[layout].shares_rows:
            has_filler_rows = options["last_batch"] == "pad"
            is_sorted = LAYOUTS[layout].needs_sorted_rows or not is_decoder
            return cls(
                pad_id, padding_side, has_filler_rows, is_decoder=is_decoder, is_sorted=is_sorted
            )
        num_rows, row_length = options["batch_size"], options["max_tokens"]
        return cls(
            pad_id,
            num_rows=num_rows,
            row_length=0 if num_rows is None else row_length,
            multiple=options["align_sequences"],
        )
