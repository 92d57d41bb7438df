"""Show the stores of shards and the splits of stores as tables of 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from seqpack_cli.batching.selection import OTHER_SPLITS
from seqpack_cli.errors import escape_controls, join_items
from seqpack_cli.reporting.left_out import PAIR, SEQUENCE, list_not_packed, list_repeated
from seqpack_cli.reporting.selection_counts import selects_passes
from seqpack_cli.reporting.wording import (
    WIDTH,
    count,
    count_columns,
    cut,
    cut_front,
    fill,
    pair,
    pair_of_path,
    show_rounded,
    show_share,
)
from seqpack_cli.tokens.store import number_repeated

MAX_STORES = 16
MAX_SPLITS = 4  # whose stores are shown
EXACT_BELOW = 1_000_000_000
GAP = "  "
HEAD_OF_STORES = ("store", "passes", "sequences", "tokens", "share")
OF_ENCODER = "documents, sequences, tokens: the encoder's"
COUNTS = ("documents", "sequences", "tokens")
HEAD_OF_SPLITS = ("split", "asked", "found", *COUNTS, "batches", "shards")


def show_stores(stores: Sequence[dict[str, Any]]) -> list[str]:
    """Return the table of the stores of shards, from `describe_stores`."""
    rows = [
        (
            escape_controls(path),
            entry["passes"],
            _show_number(entry["num_packed_sequences"]),
            _show_number(entry["num_packed_tokens"]),
            show_share(entry["packed_share"]),
        )
        for path, entry in zip(_mark_repeated(stores), stores[:MAX_STORES], strict=False)
    ]
    hidden = len(stores) - MAX_STORES
    more = [f"{GAP}and {hidden:,} more stores (all with --json)"] if hidden > 0 else []
    return [*_draw_table([HEAD_OF_STORES, *rows]), *more]


def _mark_repeated(stores: Sequence[dict[str, Any]]) -> list[str]:
    """Return the paths of stores, after the position that names one whose folder does not."""
    folders = [entry["path"].rstrip("/").rpartition("/")[2] for entry in stores]
    names = number_repeated(folders)
    return [
        entry["path"] if name == folder else f"{name}: {entry['path']}"
        for entry, folder, name in zip(stores, folders, names, strict=True)
    ]


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
        *(
            pair_of_path(label, join_items(store["path"] for store in found[field]))
            for label, field in _name_stores(found)
        ),
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
            _show_number(entry["num_documents"]),
            *(_show_number(entry["ledger"][f"num_{name}"]) for name in COUNTS[1:]),
            _show_number(entry["ledger"]["num_batches"]),
            _show_number(entry["num_shards"]),
        )
        for entry in found["splits"]
    ]
    packed = [line for entry in found["splits"] for line in _tell_packed(entry, found["options"])]
    if found["decoder_stores"] is not None:
        packed.insert(0, f"{GAP}{OF_ENCODER}")
    mixed = [entry for entry in found["splits"] if selects_passes(entry["stores"])]
    for entry in mixed[:MAX_SPLITS]:
        both = zip(entry["stores"], found["stores"], strict=True)
        stores = [{**store, "path": named["path"]} for store, named in both]
        packed += ["", f"{GAP}stores of {entry['name']}", *show_stores(stores)]
    if (hidden := len(mixed) - MAX_SPLITS) > 0:
        packed += ["", f"{GAP}and those of {count(hidden, 'more split')} (all with --json)"]
    return [cut(line, WIDTH) for line in (*_draw_table([HEAD_OF_SPLITS, *rows]), *packed)]


def _tell_packed(entry: dict[str, Any], options: dict[str, Any]) -> Iterator[str]:
    ledger, noun, decoder = entry["ledger"], SEQUENCE, entry.get("decoder")
    if decoder is not None:
        sides = [f"{side['ledger']['num_tokens']:,}" for side in (entry, decoder)]
        ledger, noun = entry["both"], PAIR
        yield (
            f"{GAP}{entry['name']}: {count(ledger['num_pairs'], PAIR)}, "
            f"{' + '.join(sides)} tokens, {show_share(ledger['padding_ratio'])} padding"
        )
    for side in (entry, decoder):
        if side is not None and "target_share" in side:
            number, share = side["ledger"]["num_target_tokens"], show_share(side["target_share"])
            yield f"{GAP}{entry['name']}: {count(number, 'target')}, {share} of the tokens"
    for reason, words in list_not_packed(ledger, options, noun=noun):
        if reason != OTHER_SPLITS:
            yield f"{GAP}{entry['name']}: {words}"
    for label, words in list_repeated(ledger, options, noun=noun):
        yield f"{GAP}{entry['name']}: {label} {words}"


def _name_stores(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the label of the stores of each side, and their field."""
    if found["decoder_stores"] is None:
        return [("token store", "stores")]
    return [("encoder's store", "stores"), ("decoder's store", "decoder_stores")]


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
