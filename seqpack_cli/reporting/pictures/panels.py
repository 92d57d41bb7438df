"""Choose the panels for the picture of a token store, of shards, of a batch or of a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from seqpack_cli.batching.options import LAYOUTS, SIDES, LayoutRules
from seqpack_cli.batching.plan import BatchTable
from seqpack_cli.errors import escape_controls
from seqpack_cli.reporting.batch_facts import count_batches
from seqpack_cli.reporting.batch_places import find_place, sort_by_line
from seqpack_cli.reporting.contents import (
    find_capacity,
    has_one_row,
    measure_batches,
    read_lengths,
)
from seqpack_cli.reporting.opened import AnyOpened, Opened, show_path
from seqpack_cli.reporting.pictures.batch_panel import is_small, make_batch_panel
from seqpack_cli.reporting.pictures.column_panel import make_column_panels
from seqpack_cli.reporting.pictures.length_panel import make_length_panel
from seqpack_cli.reporting.pictures.padding_panel import make_padding_panel
from seqpack_cli.reporting.pictures.picture import Panel
from seqpack_cli.reporting.pictures.plan_panel import make_plan_panel
from seqpack_cli.reporting.pictures.row_panel import Bar, make_row_panel
from seqpack_cli.reporting.rows import check_batch
from seqpack_cli.reporting.texts import open_texts, split_row
from seqpack_cli.reporting.wording import count, cut_front, show_token
from seqpack_cli.shards.layouts import Batch
from seqpack_cli.shards.shard_set import ShardSet

NOTHING: Mapping[str, Any] = MappingProxyType({})
MAX_SINGLE_ROWS = 12  # of as many batches
MAX_SHARED_ROWS = 32  # of a batch
MAX_PATH_COLUMNS = 40  # of the title, which is one line


def make_panels(
    opened: Opened, *, batch: int | None = None, found: Mapping[str, Any] = NOTHING
) -> list[Panel]:
    """Return the panels of a store or of shards; of pairs those of each side.

    Args:
        batch: show only this batch; None shows the lengths, the padding and a typical batch.
        found: what `describe` returns.

    Raises:
        OptionError: there is no such batch.
        FolderError: a shard is damaged.
    """
    if not isinstance(opened, ShardSet) or opened.decoder is None:
        return _make_panels(opened, batch, found.get("columns", ()))
    if batch is not None:
        check_batch(opened, batch)
    typical = choose_batch(measure_batches(opened))
    panels = []
    sides = zip(opened.sides, (found, found.get("decoder", NOTHING)), strict=True)
    for name, (side, numbers) in zip(SIDES, sides, strict=True):
        for panel in _make_panels(side, batch, numbers.get("columns", ()), typical=typical):
            title = f"{name.capitalize()}: {panel.title[0].lower()}{panel.title[1:]}"
            panels.append(replace(panel, name=f"{name}-{panel.name}", title=title))
    return panels


def _make_panels(
    opened: Opened,
    batch: int | None,
    columns: Sequence[dict[str, Any]],
    *,
    typical: int | None = None,
) -> list[Panel]:
    if batch is not None:
        return [_show_batch(check_batch(opened, batch), batch, name="Batch")]
    if not isinstance(opened, ShardSet):
        panel = make_length_panel(opened.lengths, what=count(len(opened), "sequence"))
        return [panel, *make_column_panels(columns)]
    numbers, lengths = measure_batches(opened), read_lengths(opened)
    what = count(len(lengths), "sequence")
    if opened.manifest["ledger"]["num_split_sequences"]:
        what = f"{count(len(lengths), 'piece')} of sequences"
    shown = choose_batch(numbers) if typical is None else typical
    return [
        make_length_panel(lengths, what=what),
        make_padding_panel(
            numbers,
            opened.layout,
            has_free_room=has_one_row(opened),
            is_of_side=typical is not None,
        ),
        _show_batch(opened, shown, name="Typical batch", num_rows=MAX_SINGLE_ROWS),
        *make_column_panels(columns),
    ]


def make_plan_panels(compared: dict[str, Any]) -> list[Panel]:
    """Return the panels of what `compare_plans` returns."""
    return [make_plan_panel(compared)]


def make_plan_title(compared: dict[str, Any]) -> str:
    """Return the title of the picture of what `plan` returns, one line."""
    path = cut_front(escape_controls(compared["path"]), MAX_PATH_COLUMNS)
    num_tokens = count(compared["num_tokens"], "token")
    if "num_pairs" in compared:
        return f"{path}: {count(compared['num_pairs'], 'pair')}, {num_tokens}"
    kind = "token store" if len(compared["stores"]) == 1 else "token stores"
    return f"{path}: {kind}, {count(compared['num_sequences'], 'sequence')}, {num_tokens}"


def make_title(opened: AnyOpened) -> str:
    """Return the title of a picture or page, one line."""
    path = cut_front(escape_controls(show_path(opened)), MAX_PATH_COLUMNS)
    if not isinstance(opened, ShardSet):
        counts = f"{count(len(opened), 'sequence')}, {count(opened.num_tokens, 'token')}"
        kind = "token store" if len(opened.folders) == 1 else "token stores"
        return f"{path}: {kind}, {counts}"
    noun = "sequence" if opened.decoder is None else "pair"
    path += f", {opened.side} side" if opened.side is not None and opened.decoder is None else ""
    ledger = opened.manifest["ledger"]
    num_tokens = sum(side.manifest["ledger"]["num_tokens"] for side in opened.sides)
    return (
        f"{path}: {count_batches(len(opened), opened.layout)}, "
        f"{count(ledger['num_sequences'], noun)}, {count(num_tokens, 'token')}"
    )


def choose_batch(numbers: BatchTable) -> int:
    """Return a typical batch: of those with the median number of rows, the one of median length."""
    median = np.sort(numbers.num_rows)[len(numbers.num_rows) // 2]
    usual = np.flatnonzero(numbers.num_rows == median)
    order = numbers.longest[usual].argsort(kind="stable")
    return int(usual[order[len(order) // 2]])


def _show_batch(shards: ShardSet, index: int, *, name: str, num_rows: int = 1) -> Panel:
    """Return the panel of a batch; where a batch is one shared row, of `num_rows` batches."""
    if has_one_row(shards):
        return _show_rows(shards, index, num_rows)
    batch, rules = shards[index], LAYOUTS[shards.layout]
    if rules.shares_rows:
        return _show_shared_rows(batch, rules, f"{name} {index:,}")
    texts = _read_texts(shards, batch.rows()) if is_small(batch) else None
    return make_batch_panel(batch, title=f"{name} {index:,} ({shards.layout})", texts=texts)


def _show_rows(shards: ShardSet, index: int, num_rows: int) -> Panel:
    """Return the panel of batches of one row, the first of them `index` unless it is near the end.

    Cells behind the last sequence of a row are free, those between sequences are padding.
    """
    first, capacity = max(0, min(index, len(shards) - num_rows)), find_capacity(shards)
    batches = [shards[row] for row in range(first, min(first + num_rows, len(shards)))]
    bars = [
        Bar(np.array([it.find_cells(n)[0] for n in range(len(it.lengths))]), it.lengths)
        for it in batches
    ]
    last = first + len(bars) - 1
    which = f"Row {first:,}" if len(bars) == 1 else f"Rows {first:,} to {last:,}"
    num_sequences = sum(len(bar.lengths) for bar in bars)  # or pieces
    title = f"{which} of up to {capacity:,} tokens: {count(num_sequences, 'sequence')}"
    empty = "padding or free" if any(it.count_padding() for it in batches) else "free"
    return make_row_panel(bars, capacity, title=title, first=first, empty=empty)


def _show_shared_rows(batch: Batch, rules: LayoutRules, name: str) -> Panel:
    """Return the panel of the rows or streams of one batch, of many only the first."""
    names, (num_lines, capacity) = ("row", "column"), batch.shape
    if rules.carries_state:
        names, (capacity, num_lines) = ("stream", "step"), batch.shape
    places = [find_place(batch, rules, number) for number in range(len(batch.lengths))]
    starts, resets = np.array([it[names[1]] for it in places]), batch.describe_shape().get("resets")
    bars = [
        Bar(starts[line], batch.lengths[line], None if resets is None else np.array(resets)[line])
        for line in sort_by_line(places, num_lines)[:MAX_SHARED_ROWS]
    ]
    title = f"{name}: {count(num_lines, names[0])} x {count(capacity, names[1])}"
    title += f", {count(len(places), 'sequence')}, {count(int(batch.lengths.sum()), 'token')}"
    title += f"; the first {len(bars)} {names[0]}s" * (len(bars) < num_lines)
    return make_row_panel(bars, capacity, title=title, names=names)


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
