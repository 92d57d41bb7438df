"""Show one batch or one sequence in a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from seqpack_cli.errors import escape_controls, join_items
from seqpack_cli.reporting.column_facts import list_values, select_tags
from seqpack_cli.reporting.terminal.staircase_lines import draw_packed, draw_padded, draw_varlen
from seqpack_cli.reporting.terminal.token_lines import draw_tokens
from seqpack_cli.reporting.texts import NO_TOKENIZER
from seqpack_cli.reporting.wording import (
    WIDTH,
    count,
    count_columns,
    cut,
    fill,
    list_some,
    pair,
    pair_of_path,
    pair_of_text,
    quote_text,
    show_share,
)

MAX_ROWS = 20
MAX_COLUMNS = 3
MAX_COLUMN_WIDTH = 12
MAX_TEXT_LINES = 5


def show_batch(batch: dict[str, Any]) -> list[str]:
    """Return the lines of a batch: its shape, a drawing, and the beginning of each row."""
    lines = [
        cut(f"batch {batch['batch']}  ({batch['shard']}, batch {batch['batch_in_shard']})", WIDTH),
        pair("rows", f"{batch['num_rows']:,}"),
        pair("longest", f"{batch['longest']:,}"),
        pair("tokens", f"{batch['num_tokens']:,}"),
        pair("padding cells", f"{batch['num_padding_cells']:,}"),
    ]
    for name in ("num_filler_rows", "bucket_key", "width"):
        if batch.get(name):
            lines.append(pair(name.removeprefix("num_").replace("_", " "), f"{batch[name]:,}"))
    if "cu_seqlens" in batch:
        lines.append(pair("cu_seqlens", list_some(batch["cu_seqlens"])))
    rows = batch["rows"][:MAX_ROWS]
    has_text = rows[0]["text"] is not None
    lines += [] if has_text else [pair("text", NO_TOKENIZER)]
    lines += ["", *_draw_batch(batch), ""]
    names, *columns = _make_columns([entry["columns"] for entry in rows])
    heading = f"{'row':>5} {'sequence':>9} {'length':>8}"
    if "num_targets" in rows[0]:
        heading += f" {'targets':>8}   share"
    lines.append(f"{heading}  {names}{'text' if has_text else 'ids'}")
    for row, (entry, values) in enumerate(zip(rows, columns, strict=True)):
        head = f"{row:>5} {entry['original_index']:>9,} {entry['length']:>8,}"
        if "num_targets" in entry:
            head += f" {entry['num_targets']:>8,} {show_share(entry['target_share']):>7}"
        head += f"  {values}"
        if entry.get("piece_start"):
            head += f"(from token {entry['piece_start']:,}) "
        ids = " ".join(map(str, entry["ids"][:WIDTH]))
        lines.append(cut(head + (quote_text(entry["text"]) if has_text else ids), WIDTH))
    hidden = len(batch["rows"]) - MAX_ROWS
    return [*lines, f"      and {hidden:,} more rows (all with --json)"] if hidden > 0 else lines


def _make_columns(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return a part of the heading and of each line: the first columns, one value per sequence."""
    table = [list_values(row, in_short=True)[:MAX_COLUMNS] for row in rows]
    lines = [""] * (1 + len(rows))
    for place, (name, _) in enumerate(table[0] if table else ()):
        cells = [name, *(row[place][1] for row in table)]
        shown = [cut(escape_controls(cell), MAX_COLUMN_WIDTH) for cell in cells]
        width = max(map(count_columns, shown))
        lines = [f"{line}{fill(cell, width)}  " for line, cell in zip(lines, shown, strict=True)]
    return lines


def show_sequence(sequence: dict[str, Any], *, colour: bool = False) -> list[str]:
    """Return the lines of a sequence: its source, its tokens with their ids, and its text.

    Args:
        colour: mark targets as only a terminal shows them.
    """
    lines = [f"sequence {sequence['sequence']:,}"]
    origin = sequence["origin"]
    if "split" in sequence:
        lines.append(pair("split", sequence["split"]))
    if origin is None:
        lines.append(pair("source", "unknown: the token store is missing, changed or damaged"))
    else:
        if "store_name" in origin:
            lines.append(pair_of_path("token store", origin["store"]))
        record = f", record {origin['record']:,}"
        lines.append(pair_of_path("source", origin["source"], record))
        lines.append(pair("document", f"{origin['document']:,}"))
        if origin["num_pieces"] > 1:
            lines.append(pair("piece", f"{origin['piece'] + 1:,} of {origin['num_pieces']:,}"))
    if "shard" in sequence:
        place = f", batch {sequence['batch']:,}, row {sequence['row']:,}"
        lines.append(pair_of_path("shard", sequence["shard"], place))
        others = sequence["visits"][1:]
        if others:
            listed = join_items(f"batch {it['batch']:,}, row {it['row']:,};" for it in others)
            lines.append(pair("again in", listed.rstrip(";")))
        if sequence["num_rows"] > 1:
            lines.append(
                pair(
                    "rows",
                    f"{sequence['num_rows']:,}, one per piece; the place is that of the first",
                )
            )
    return [
        *lines,
        pair("length", count(sequence["length"], "token")),
        *_tell_targets(sequence),
        *(pair(name, value) for name, value in list_values(sequence["columns"])),
        "",
        *draw_tokens(
            sequence["tokens"],
            num_tokens=sequence["length"],
            tags=select_tags(sequence["columns"]),
            colour=colour,
        ),
        "",
        *_show_text(sequence["text"]),
    ]


def _show_text(text: str | None) -> list[str]:
    if text is None:
        return [pair("text", NO_TOKENIZER)]
    return pair_of_text("text", text, max_lines=MAX_TEXT_LINES)


def _tell_targets(sequence: dict[str, Any]) -> list[str]:
    if "num_targets" not in sequence:
        return []
    number, share = sequence["num_targets"], show_share(sequence["target_share"])
    return [pair("targets", f"{count(number, 'token')}, {share}")]


def _draw_batch(batch: dict[str, Any]) -> list[str]:
    lengths = [row["length"] for row in batch["rows"]] + [0] * batch["num_filler_rows"]
    if "batch_sizes" in batch:
        return draw_packed(lengths, batch["batch_sizes"])
    if "max_tokens" in batch:  # one row that sequences share
        return draw_varlen(lengths, max(batch["max_tokens"], batch["num_tokens"]))
    width, side = batch.get("width", max(lengths)), batch.get("padding_side", "right")
    return draw_padded(lengths, width, padding_side=side)
