"""Show one sequence in a terminal of 80 columns: its source, its tokens and its text."""

from __future__ import annotations

from typing import Any

from seqpack_cli.batching.options import DECODER, ENCODER
from seqpack_cli.errors import join_items
from seqpack_cli.reporting.batch_places import spell_place
from seqpack_cli.reporting.column_facts import list_values, select_tags
from seqpack_cli.reporting.terminal.token_lines import draw_tokens
from seqpack_cli.reporting.texts import NO_TOKENIZER
from seqpack_cli.reporting.wording import (
    count,
    pair,
    pair_of_path,
    pair_of_text,
    show_share,
)

MAX_TEXT_LINES = 5


def show_sequence(sequence: dict[str, Any], *, colour: bool = False) -> list[str]:
    """Return the lines of a sequence: its source, its tokens with their ids, and its text.

    Of a pair, these are the lines of both sides.

    Args:
        colour: mark targets as only a terminal shows them.
    """
    title = f"sequence {sequence['sequence']:,}"
    if "decoder" not in sequence:
        return [title, *_show_one(sequence, colour=colour)]
    decoder = sequence["decoder"]
    return [
        f"{ENCODER}: {title}",
        *_show_one(sequence, colour=colour),
        "",
        f"{DECODER}: sequence {decoder['sequence']:,}",
        *_show_one(decoder, colour=colour),
    ]


def _show_one(sequence: dict[str, Any], *, colour: bool) -> list[str]:
    lines = []
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
        lines.append(pair_of_path("shard", sequence["shard"], f", {spell_place(sequence)}"))
        others = sequence["visits"][1:]
        if others:
            listed = join_items(f"{spell_place(it)};" for it in others)
            lines.append(pair("again in", listed.replace(";,", ";").rstrip(";")))
        if sequence["num_pieces"] > 1:
            pieces = f"{sequence['num_pieces']:,}; the place is that of the first"
            lines.append(pair("packed pieces", pieces))
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
