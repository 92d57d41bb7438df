"""Show the stores of shards and the splits of stores as tables of 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from seqpack_cli.errors import escape_controls, join_items
from seqpack_cli.reporting.facts import list_not_packed, list_repeated
from seqpack_cli.reporting.selection_counts import selects_passes
from seqpack_cli.reporting.wording import (
    WIDTH,
    count_columns,
    cut,
    cut_front,
    fill,
    pair,
    pair_of_path,
    show_rounded,
    show_share,
)
from seqpack_cli.shards.selected_store import OTHER_SPLITS

MAX_STORES = 16
EXACT_BELOW = 1_000_000_000
GAP = "  "
HEAD_OF_STORES = ("store", "passes", "sequences", "tokens", "share")
COUNTS = ("documents", "sequences", "tokens")
HEAD_OF_SPLITS = ("split", "asked", "found", *COUNTS, "batches", "shards")


def show_stores(stores: Sequence[dict[str, Any]]) -> list[str]:
    """Return the table of the stores of shards, from `describe_stores`."""
    rows = [
        (
            escape_controls(entry["path"]),
            entry["passes"],
            _show_number(entry["num_packed_sequences"]),
            _show_number(entry["num_packed_tokens"]),
            show_share(entry["packed_share"]),
        )
        for entry in stores[:MAX_STORES]
    ]
    hidden = len(stores) - MAX_STORES
    more = [f"{GAP}and {hidden:,} more stores (all with --json)"] if hidden > 0 else []
    return [*_draw_table([HEAD_OF_STORES, *rows]), *more]


def show_splits(found: dict[str, Any]) -> list[str]:
    """Return the lines of all splits."""
    title = f"splits{GAP}{{}}{GAP}({found['splits'][0]['layout']})"
    room = WIDTH - len(title) + 2
    path, by = cut_front(escape_controls(found["path"]), room), found["split_by"]
    what = "documents" if by is None else f"values of column {by}"
    if found["splits"][0]["share"] is not None:
        what += f", by hash, seed {found['split_seed']}"
    return [
        title.format(path),
        pair_of_path("token store", join_items(store["path"] for store in found["stores"])),
        pair("split by", what),
        "",
        *draw_splits(found),
    ]


def draw_splits(found: dict[str, Any]) -> list[str]:
    """Return the table of the splits, and what of each was dropped or packed more than once."""
    rows = [
        (
            entry["name"],
            entry["share"] or "-",
            show_share(entry["token_share"]),
            *(_show_number(entry[f"num_{name}"]) for name in COUNTS),
            _show_number(entry["ledger"]["num_batches"]),
            _show_number(entry["num_shards"]),
        )
        for entry in found["splits"]
    ]
    packed = [line for entry in found["splits"] for line in _tell_packed(entry, found["options"])]
    first = found["splits"][0]  # the only one that may have other passes than 1
    if selects_passes(first["stores"]):
        both = zip(first["stores"], found["stores"], strict=True)
        stores = [{**entry, "path": named["path"]} for entry, named in both]
        packed += ["", f"{GAP}stores of {first['name']}", *show_stores(stores)]
    return [cut(line, WIDTH) for line in (*_draw_table([HEAD_OF_SPLITS, *rows]), *packed)]


def _tell_packed(entry: dict[str, Any], options: dict[str, Any]) -> Iterator[str]:
    ledger = entry["ledger"]
    for reason, words in list_not_packed(ledger, options):
        if reason != OTHER_SPLITS:
            yield f"{GAP}{entry['name']}: {words}"
    for label, words in list_repeated(ledger, options):
        yield f"{GAP}{entry['name']}: {label} {words}"


def _show_number(number: int) -> str:
    return f"{number:,}" if number < EXACT_BELOW else show_rounded(number)


def _draw_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of rows: names, which are cut, on the left, numbers on the right."""
    widths = [max(map(count_columns, column)) for column in zip(*rows, strict=True)]
    room = WIDTH - sum(widths[1:]) - len(GAP) * len(widths)
    widths[0] = max(min(widths[0], room), len(rows[0][0]))
    return [
        GAP
        + GAP.join(
            [
                fill(cut_front(name, widths[0]), widths[0]),
                *(cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)),
            ]
        )
        for name, *cells in rows
    ]
