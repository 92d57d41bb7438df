"""Show one batch in a terminal of 80 columns: numbers, a drawing, the beginning of each row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from seqpack_cli.batching.options import DECODER, ENCODER, LAYOUTS
from seqpack_cli.errors import escape_controls
from seqpack_cli.reporting.batch_places import list_names, sort_by_line, spell_shape
from seqpack_cli.reporting.column_facts import list_values
from seqpack_cli.reporting.terminal.shared_row_lines import draw_one_row, draw_shared_rows
from seqpack_cli.reporting.terminal.staircase_lines import draw_packed, draw_padded
from seqpack_cli.reporting.texts import NO_TOKENIZER
from seqpack_cli.reporting.wording import (
    WIDTH,
    count,
    count_columns,
    cut,
    fill,
    list_some,
    pair,
    quote_text,
    show_share,
)

MAX_ROWS = 20
MAX_COLUMNS = 3
MAX_COLUMN_WIDTH = 12
NO_ID = "-"  # of a sequence that does not go on in the next batch


def show_batch(batch: dict[str, Any]) -> list[str]:
    """Return the lines of a batch: its shape, a drawing, and the beginning of each row."""
    title = f"batch {batch['batch']}  ({batch['shard']}, batch {batch['batch_in_shard']})"
    if "decoder" in batch:
        return [cut(title, WIDTH), *_show_pairs(batch)]
    shares_rows = LAYOUTS[batch["layout"]].shares_rows
    entries = batch["sequences" if shares_rows else "rows"]
    has_text = entries[0]["text"] is not None
    return [
        cut(title, WIDTH),
        *(_list_shared_rows(batch) if shares_rows else _list_rows(batch)),
        *([] if has_text else [pair("text", NO_TOKENIZER)]),
        "",
        *(_draw_shared_rows(batch) if shares_rows else _draw_rows(batch)),
        "",
        *_show_entries(batch, entries),
    ]


def _show_pairs(batch: dict[str, Any]) -> list[str]:
    """Return the numbers and a drawing of each side, then the rows, two for each pair."""
    decoder, lines = {"padding_side": "right", **batch["decoder"]}, []
    key = batch.get("bucket_key")
    if key is not None:
        lines.append(pair("bucket key", f"{key[0]:,} x {key[1]:,}"))
    for name, side in ((ENCODER, {**batch, "bucket_key": None}), (DECODER, decoder)):
        lines += ["", name, *_list_rows(side), "", *_draw_rows(side)]
    shown, names = [], {ENCODER: batch["rows"], DECODER: decoder["rows"]}
    shared = names[ENCODER][0]["columns"].keys() & names[DECODER][0]["columns"].keys()
    for number, row in enumerate(names[ENCODER][:MAX_ROWS]):
        for name, place in ((ENCODER, number), (DECODER, row["decoder_row"])):
            entry = names[name][place]
            columns = {it: value for it, value in entry["columns"].items() if it in shared}
            shown.append({**entry, "columns": columns, "side": name, "row": place})
    hidden = batch["num_rows"] - batch["num_filler_rows"] - MAX_ROWS
    more = f"      and {count(hidden, 'more pair')} (all with --json)"
    return [*lines, "", *_draw_table(batch, shown), *([more] if hidden > 0 else [])]


def _list_rows(batch: dict[str, Any]) -> list[str]:
    lines = [
        pair("rows", f"{batch['num_rows']:,}"),
        pair("longest", f"{batch['longest']:,}"),
        pair("tokens", f"{batch['num_tokens']:,}"),
        pair("padding cells", f"{batch['num_padding_cells']:,}"),
    ]
    for name in ("num_filler_rows", "bucket_key", "width"):
        if batch.get(name):
            lines.append(pair(name.removeprefix("num_").replace("_", " "), f"{batch[name]:,}"))
    return lines


def _list_shared_rows(batch: dict[str, Any]) -> list[str]:
    lines = [
        pair("shape", spell_shape(batch["shape"], LAYOUTS[batch["layout"]])),
        pair("sequences", f"{batch['num_sequences']:,}"),
        pair("longest", f"{batch['longest']:,}"),
        pair("tokens", f"{batch['num_tokens']:,}"),
        pair("padding cells", f"{batch['num_padding_cells']:,}"),
    ]
    if "cu_seqlens" in batch:
        lines.append(pair("cu_seqlens", list_some(batch["cu_seqlens"])))
    if "cu_seqlens_padded" in batch:
        padded = batch["cu_seqlens_padded"]
        equal = "none: no padding in this batch"
        lines.append(pair("cu_seqlens_padded", equal if padded is None else list_some(padded)))
    if "resets" in batch:
        number = sum(batch["resets"])
        others = f"{batch['num_sequences'] - number:,} sequences go on from the batch before"
        lines.append(pair("resets", f"{number:,}; {others}"))
    return lines


def _draw_rows(batch: dict[str, Any]) -> list[str]:
    lengths = [row["length"] for row in batch["rows"]] + [0] * batch["num_filler_rows"]
    if "batch_sizes" in batch:
        return draw_packed(lengths, batch["batch_sizes"])
    width, side = batch.get("width", max(lengths)), batch.get("padding_side", "right")
    return draw_padded(lengths, width, padding_side=side)


def _draw_shared_rows(batch: dict[str, Any]) -> list[str]:
    rules, sequences, shape = LAYOUTS[batch["layout"]], batch["sequences"], batch["shape"]
    if len(shape) == 1:
        starts, lengths = ([entry[name] for entry in sequences] for name in ("cell", "length"))
        capacity = max(batch["max_tokens"], shape[0])
        return draw_one_row(starts, lengths, num_cells=shape[0], capacity=capacity)
    names, (num_lines, row_length) = ("row", "column"), shape
    if rules.carries_state:
        names, (row_length, num_lines) = ("stream", "step"), shape
    numbers = sort_by_line(sequences, num_lines)
    lines = [
        [(sequences[it][names[1]], sequences[it]["length"]) for it in line] for line in numbers
    ]
    if not rules.carries_state:
        return draw_shared_rows(lines, row_length, names=names)
    keeps_state = [any(not batch["resets"][it] for it in line) for line in numbers]
    return draw_shared_rows(lines, row_length, names=names, keeps_state=keeps_state)


def _show_entries(batch: dict[str, Any], entries: Sequence[dict[str, Any]]) -> list[str]:
    """Return the table of the rows of a batch, or of the sequences in its rows."""
    hidden, noun = len(entries) - MAX_ROWS, "sequence" if "sequences" in batch else "row"
    more = f"      and {count(hidden, f'more {noun}')} (all with --json)"
    lines = _draw_table(batch, entries[:MAX_ROWS])
    return [*lines, more] if hidden > 0 else lines


def _draw_table(batch: dict[str, Any], shown: Sequence[dict[str, Any]]) -> list[str]:
    """Return the lines of some entries, with a heading."""
    has_text = any(entry["text"] is not None for entry in shown)
    values = _make_values([entry["columns"] for entry in shown])
    values[0] += "text" if has_text else "ids"
    for place, entry in enumerate(shown, 1):
        if entry.get("piece_start"):
            values[place] += f"(from token {entry['piece_start']:,}) "
        ids = " ".join(map(str, entry["ids"][:WIDTH]))
        values[place] += ids if entry["text"] is None else quote_text(entry["text"])
    rows = zip(*_make_numbers(batch, shown), values, strict=True)
    return [cut(f"{' '.join(numbers)}  {value}", WIDTH) for *numbers, value in rows]


def _make_numbers(batch: dict[str, Any], shown: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Return columns of numbers, the heading of each first: places, sequences, lengths, targets."""
    places = {name: [entry[name] for entry in shown] for name in list_names(shown[0])}
    places = places or {"row": list(range(len(shown)))}
    columns = [
        _align(name, numbers, len(name) + 2 * (not place))
        for place, (name, numbers) in enumerate(places.items())
    ]
    if "side" in shown[0]:
        columns.insert(
            0, [fill(name, len(ENCODER)) for name in ("side", *(it["side"] for it in shown))]
        )
    columns.append(_align("sequence", [entry["original_index"] for entry in shown], 9))
    columns.append(_align("length", [entry["length"] for entry in shown], 8))
    if all("num_targets" in entry for entry in shown):
        columns.append(_align("targets", [entry["num_targets"] for entry in shown], 8))
        columns.append(_align("share", [show_share(entry["target_share"]) for entry in shown], 7))
    if "resets" in batch:
        links = list(zip(batch["resets"], batch["next_ids"], shown, strict=False))
        columns.append(_align("state", ["reset" if reset else "kept" for reset, *_ in links], 5))
        columns.append(_align("next id", [NO_ID if it < 0 else str(it) for _, it, _ in links], 7))
    return columns


def _align(name: str, values: Sequence[int | str], width: int) -> list[str]:
    """Return a heading and the values below it, aligned right."""
    cells = [name, *(f"{value:,}" if isinstance(value, int) else value for value in values)]
    width = max(width, *map(len, cells))
    return [cell.rjust(width) for cell in cells]


def _make_values(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return a part of the heading and of each line: the first columns, one value per sequence."""
    table = [list_values(row, in_short=True)[:MAX_COLUMNS] for row in rows]
    lines = [""] * (1 + len(rows))
    for place, (name, _) in enumerate(table[0] if table else ()):
        cells = [name, *(row[place][1] for row in table)]
        shown = [cut(escape_controls(cell), MAX_COLUMN_WIDTH) for cell in cells]
        width = max(map(count_columns, shown))
        lines = [f"{line}{fill(cell, width)}  " for line, cell in zip(lines, shown, strict=True)]
    return lines
