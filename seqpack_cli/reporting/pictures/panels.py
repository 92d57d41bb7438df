"""Choose the panels for the picture of a token store, of shards, of a batch or of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from seqpack_cli.batching.batch_table import BatchTable
from seqpack_cli.batching.layout_rules import LAYOUTS
from seqpack_cli.errors import escape_controls
from seqpack_cli.reporting.contents import find_capacity, measure_batches, read_lengths
from seqpack_cli.reporting.opened import AnyOpened, Opened, show_path
from seqpack_cli.reporting.pictures.batch_panel import is_small, make_batch_panel
from seqpack_cli.reporting.pictures.column_panel import make_column_panels
from seqpack_cli.reporting.pictures.length_panel import make_length_panel
from seqpack_cli.reporting.pictures.padding_panel import make_padding_panel
from seqpack_cli.reporting.pictures.picture import Panel
from seqpack_cli.reporting.pictures.plan_panel import make_plan_panel
from seqpack_cli.reporting.pictures.row_panel import make_row_panel
from seqpack_cli.reporting.rows import check_batch
from seqpack_cli.reporting.texts import open_texts, split_row
from seqpack_cli.reporting.wording import count, cut_front, show_token
from seqpack_cli.shards.shard_set import ShardSet

MAX_VARLEN_ROWS = 12
MAX_PATH_COLUMNS = 40  # of the title, which is one line


def make_panels(
    opened: Opened, *, batch: int | None = None, columns: Sequence[dict[str, Any]] = ()
) -> list[Panel]:
    """Return the panels of a store or of shards.

    Args:
        batch: show only this batch; None shows the lengths, the padding and a typical batch.
        columns: what `describe_columns` returns.

    Raises:
        OptionError: there is no such batch.
        FolderError: a shard is damaged.
    """
    if batch is not None:
        return [_show_batch(check_batch(opened, batch), batch, name="Batch")]
    if not isinstance(opened, ShardSet):
        panel = make_length_panel(opened.lengths, what=count(len(opened), "sequence"))
        return [panel, *make_column_panels(columns)]
    numbers, lengths = measure_batches(opened), read_lengths(opened)
    what = count(len(lengths), "sequence")
    if opened.manifest["ledger"]["num_split_sequences"]:
        what = f"{count(len(lengths), 'piece')} of sequences"
    return [
        make_length_panel(lengths, what=what),
        make_padding_panel(numbers, opened.layout),
        _show_batch(opened, choose_batch(numbers), name="Typical batch", num_rows=MAX_VARLEN_ROWS),
        *make_column_panels(columns),
    ]


def make_plan_panels(compared: dict[str, Any]) -> list[Panel]:
    """Return the panels of what `compare_plans` returns."""
    return [make_plan_panel(compared)]


def make_title(opened: AnyOpened) -> str:
    """Return the title of a picture or page, one line."""
    path = cut_front(escape_controls(show_path(opened)), MAX_PATH_COLUMNS)
    if not isinstance(opened, ShardSet):
        counts = f"{count(len(opened), 'sequence')}, {count(opened.num_tokens, 'token')}"
        kind = "token store" if len(opened.stores) == 1 else "token stores"
        return f"{path}: {kind}, {counts}"
    ledger = opened.manifest["ledger"]
    return (
        f"{path}: {count(len(opened), opened.layout + ' batch')}, "
        f"{count(ledger['num_sequences'], 'sequence')}, {count(ledger['num_tokens'], 'token')}"
    )


def choose_batch(numbers: BatchTable) -> int:
    """Return a typical batch: of those with the median number of rows, the one of median length."""
    median = np.sort(numbers.num_rows)[len(numbers.num_rows) // 2]
    usual = np.flatnonzero(numbers.num_rows == median)
    order = numbers.longest[usual].argsort(kind="stable")
    return int(usual[order[len(order) // 2]])


def _show_batch(shards: ShardSet, index: int, *, name: str, num_rows: int = 1) -> Panel:
    """Return the panel of a batch; of varlen, where a batch is one row, of `num_rows` of them."""
    if LAYOUTS[shards.layout].shares_rows:
        first = max(0, min(index, len(shards) - num_rows))
        rows = range(first, min(first + num_rows, len(shards)))
        lengths = [shards[row].lengths for row in rows]
        return make_row_panel(lengths, first=first, capacity=find_capacity(shards))
    batch = shards[index]
    texts = _read_texts(shards, batch.rows()) if is_small(batch) else None
    return make_batch_panel(batch, title=f"{name} {index:,} ({shards.layout})", texts=texts)


def _read_texts(shards: ShardSet, rows: list[Any]) -> list[list[str]]:
    """Return the text of each token, or its id if it is only a part of a character."""
    decode = open_texts(shards)
    texts: list[list[str]] = []
    for ids in rows:
        texts.append([])
        for piece in split_row(decode, ids):
            is_one = len(piece.ids) == 1 and piece.text
            texts[-1] += [_show_text(piece.text)] if is_one else map(str, piece.ids)
    return texts


def _show_text(text: str) -> str:
    """Return the text of a token for its cell, without the blanks around it."""
    return show_token(text.strip(" ") or text)
