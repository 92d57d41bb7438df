"""The number, shape and padding of the batches of shards, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from seqpack_cli.batching.options import LAYOUTS
from seqpack_cli.reporting.wording import count, show_share, show_span


def count_batches(number: int, layout: str) -> str:
    """Return the number of batches of a layout.

    >>> count_batches(1, "padded"), count_batches(58, "streams")
    ('1 padded batch', '58 stream batches')
    """
    return count(number, f"{layout.removesuffix('s')} batch")


def spell_batches(manifest: Mapping[str, Any]) -> str | None:
    """Return the shape of the batches of shards if sequences share their rows, else None."""
    rules, options, ledger = (
        LAYOUTS[manifest["layout"]],
        manifest["options"],
        manifest["ledger"],
    )
    if not rules.shares_rows:
        return None
    num_rows, length = options["batch_size"], options["max_tokens"]
    if rules.carries_state:
        return f"{count(num_rows, 'stream')} x {count(length, 'step')}"
    if num_rows is None:
        return f"1 row of up to {length:,}"
    num_cells = ledger["num_tokens"] + ledger["num_padding_cells"]
    most = "up to " if num_cells < ledger["num_batches"] * num_rows * length else ""
    return f"{most}{count(num_rows, 'row')} of {length:,}"


def spell_keys(keys: Sequence[Any]) -> list[str]:
    """Return bucket keys as text.

    >>> spell_keys([32, 64]), spell_keys([[10, 15]])
    (['32', '64'], ['(10, 15)'])
    """
    return [str(tuple(key) if isinstance(key, list) else key) for key in keys]


def list_batches(numbers: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the number of batches, and how many rows, or sequences in shared rows, they hold."""
    number, shape = numbers["ledger"]["num_batches"], numbers["batch_shape"]
    if shape is None:
        span = numbers["rows_of_batch"]
        return [
            ("batches", f"{number:,}"),
            ("rows per batch", show_span(span["fewest"], span["most"])),
        ]
    span = numbers["sequences_of_batch"]
    return [
        ("batches", f"{number:,}, each {shape}"),
        ("in a batch", f"{show_span(span['fewest'], span['most'])} sequences"),
    ]


def spell_padding(numbers: dict[str, Any]) -> str:
    """Return the share of padding of shards, and where it is."""
    rules, share = LAYOUTS[numbers["layout"]], show_share(numbers["padding_ratio"])
    if rules.fills_rectangle:
        return f"{share} of all cells, on the {numbers['padding_side']}, id {numbers['pad_id']}"
    if not numbers["padding_ratio"]:
        return "none"
    where = ", in the last batch" if rules.carries_state else ""
    return f"{share} of all cells{where}, id {numbers['pad_id']}"
