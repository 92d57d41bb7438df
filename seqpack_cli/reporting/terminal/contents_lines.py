"""Show the numbers of a token store, of shards or of splits in a terminal of 80 columns."""

from __future__ import annotations

from typing import Any

from seqpack_cli.errors import escape_controls
from seqpack_cli.reporting.column_facts import list_column_facts
from seqpack_cli.reporting.facts import (
    NOT_PACKED,
    PATH_LABEL,
    Facts,
    list_facts,
)
from seqpack_cli.reporting.pair_facts import list_pair_facts, list_side_facts, view_sides
from seqpack_cli.reporting.selection_counts import selects_passes
from seqpack_cli.reporting.terminal.selection_lines import show_splits, show_stores
from seqpack_cli.reporting.terminal.staircase_lines import draw_bar
from seqpack_cli.reporting.wording import (
    VALUE_WIDTH,
    WIDTH,
    cut,
    cut_front,
    pair,
    pair_of_path,
    show_span,
    wrap,
)

BAR_WIDTH = 40
MAX_COLUMNS = 16
MAX_LINES_OF_COLUMN = 3
MAX_LINES_OF_FACT = 2


def show_numbers(numbers: dict[str, Any]) -> list[str]:
    """Return the lines of a token store, of shards or of splits."""
    if numbers["kind"] == "splits":
        return show_splits(numbers)
    if numbers.get("decoder") is not None:
        return _show_pairs(numbers)
    return [_title(numbers), *_show_facts(numbers, list_facts(numbers))]


def _show_pairs(numbers: dict[str, Any]) -> list[str]:
    """Return the lines of both sides together, then those of each side."""
    lines = [_title(numbers)]
    for label, value in list_pair_facts(numbers):
        lines += _show_fact(label, value)
    for name, side in view_sides(numbers):
        lines += ["", name, *_show_facts(side, list_side_facts(side))]
    return lines


def _show_facts(numbers: dict[str, Any], listed: Facts) -> list[str]:
    """Return the lines of facts, with the stores, columns and lengths of the same numbers."""
    has_table = numbers["kind"] == "shards" and selects_passes(numbers["stores"])
    facts = [
        line
        for label, value in listed
        if label != PATH_LABEL or not has_table
        for line in _show_fact(label, value)
    ]
    are_pieces = bool(numbers["ledger"].get("num_split_sequences"))
    return [
        *facts,
        *(["", *show_stores(numbers["stores"])] if has_table else []),
        *_show_columns(numbers["columns"]),
        "",
        *_show_lengths(numbers["lengths"], are_pieces=are_pieces),
    ]


def _show_fact(label: str, value: str) -> list[str]:
    if label == PATH_LABEL:
        return [pair_of_path(label, value)]
    if label != NOT_PACKED:
        return [pair(label, value)]
    first, *others = wrap(value, VALUE_WIDTH, max_lines=MAX_LINES_OF_FACT)
    return [pair(label, first), *(pair("", line) for line in others)]


def _title(numbers: dict[str, Any]) -> str:
    layout = ""
    if numbers["kind"] == "shards":
        held = ", pairs" if numbers.get("decoder") is not None else ""
        held += f", {numbers['side']} side" if "side" in numbers else ""
        layout = f"  ({numbers['layout']}{held})"
    room = WIDTH - len(f"{numbers['kind']}  {layout}")
    return f"{numbers['kind']}  {cut_front(escape_controls(numbers['path']), room)}{layout}"


def _show_columns(columns: list[dict[str, Any]]) -> list[str]:
    """Return the lines of the columns, of many only those of the first."""
    if not columns:
        return []
    lines = ["", "columns"]
    for label, value in list_column_facts(columns[:MAX_COLUMNS]):
        first, *others = wrap(value, VALUE_WIDTH, max_lines=MAX_LINES_OF_COLUMN)
        lines += [pair(label, first), *(pair("", line) for line in others)]
    hidden = len(columns) - MAX_COLUMNS
    return [*lines, f"  and {hidden:,} more (all with --json)"] if hidden > 0 else lines


def _show_lengths(lengths: dict[str, Any], *, are_pieces: bool) -> list[str]:
    if lengths["longest"] is None:
        return ["no sequences"]
    shares = [f"p{share} {value:,}" for share, value in lengths["percentiles"].items()]
    span = f"{show_span(lengths['shortest'], lengths['longest'])} tokens"
    what = "lengths of pieces" if are_pieces else "lengths"
    return [
        cut(f"{what}  {span}, mean {lengths['mean']:,}", WIDTH),
        *_show_shares(shares),
        "",
        *_show_histogram(lengths["histogram"]),
    ]


def _show_shares(shares: list[str]) -> list[str]:
    """Return the percentiles in as many lines as they need."""
    lines = [""]
    for share in shares:
        if len(lines[-1]) + 2 + len(share) > WIDTH:
            lines.append("")
        lines[-1] += f"  {share}"
    return lines


def _show_histogram(bins: list[dict[str, int]]) -> list[str]:
    most = max(entry["num_sequences"] for entry in bins)
    spans = [show_span(entry["from"], entry["to"]) for entry in bins]
    span_width = max(21, *map(len, spans))
    number_width = max(10, len(f"{most:,}"))
    bar_width = min(BAR_WIDTH, WIDTH - 4 - span_width - number_width)
    lines = []
    for span, entry in zip(spans, bins, strict=True):
        number = entry["num_sequences"]
        bar = draw_bar(bar_width * number / most) or ("▏" if number else "")
        line = f"  {span:>{span_width}} {number:>{number_width},} {bar}"
        lines.append(cut(line.rstrip(), WIDTH))
    return lines
