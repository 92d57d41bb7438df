"""Show the differences of two stores, or of two shard sets, in a terminal of 80 columns."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from seqpack_cli.batching.options import DECODER, ENCODER
from seqpack_cli.errors import MAX_LISTED_ITEMS, escape_controls
from seqpack_cli.reporting.terminal.column_difference_lines import cut_alike, show_columns
from seqpack_cli.reporting.terminal.document_lines import show_documents
from seqpack_cli.reporting.wording import (
    VALUE_WIDTH,
    WIDTH,
    count,
    cut,
    fill,
    list_some,
    pair,
    pair_of_path,
    pair_of_text,
    wrap,
)

NAME_WIDTH = 28
SIDE_WIDTH = 24  # of a value
COUNT_WIDTH = 15
MAX_CHARACTERS = 1_000  # of a name; the rest is ignored
MAX_SHOWN = 20  # names of a table
MAX_ID_LINES = 4
MAX_TEXT_LINES = 2
SIDES = {"a": "A", "b": "B"}


def show_differences(found: dict[str, Any]) -> list[str]:
    """Return the lines of what differs; the last one is the verdict."""
    lines = [f"{found['compared']} compared"]
    lines += [pair_of_path(title, found[side]) for side, title in SIDES.items()]
    for section in _list_sections(found):
        lines += ["", *section] if section else []
    return [*lines, "", *wrap(found["verdict"], WIDTH)]


def _list_sections(found: dict[str, Any]) -> Iterator[list[str]]:
    """Yield the sections of lines, some of them empty; of pairs those of each side."""
    yield _show_values("options", found["options"])
    decoder = found.get("decoder")
    if decoder is None:
        yield from _list_own_sections(found)
        return
    for name, side in ((ENCODER, found), (DECODER, decoder)):
        yield [f"{name.upper()}'S SIDE"]
        yield from _list_own_sections(side)
    yield _show_pairing(found["pairing"])


def _list_own_sections(found: dict[str, Any]) -> Iterator[list[str]]:
    yield _show_values("properties", found["facts"])
    yield _show_counts(found["ledger"])
    yield _show_sources(found["sources"])
    yield show_columns(found["columns"])
    yield _show_batches(found["batches"], found["same_numbers"])
    yield _show_sequences(found["sequences"], found["same_numbers"])
    yield _show_first(found["sequences"]["first"])
    yield show_documents(found["documents"], with_examples=found["compared"] == "shards")


def _show_pairing(pairing: Mapping[str, Any] | None) -> list[str]:
    if pairing is None:
        return ["pairs", "  not compared: the token stores of a side differ"]
    first = pairing["first"]
    if first is None:
        return []
    partners = ", ".join(f"{title} {first[side]:,}" for side, title in SIDES.items())
    return [
        "pairs",
        pair("other partner", f"{pairing['num_differing']:,} sequences of the encoder"),
        pair("first", f"sequence {first['sequence']:,}: {partners} of the decoder"),
    ]


def _show_values(title: str, listed: Sequence[Mapping[str, Any]]) -> list[str]:
    if not listed:
        return []
    lines = [f"{title:<{NAME_WIDTH + 2}} {'A':<{SIDE_WIDTH}} B"]
    for entry in listed[:MAX_SHOWN]:
        a, b = cut_alike([_spell(entry, side) for side in SIDES], SIDE_WIDTH)
        lines.append(f"  {_fit_name(entry['name'])} {fill(a, SIDE_WIDTH)} {b}")
    return [*lines, *_count_hidden(listed)]


def _show_counts(listed: Sequence[Mapping[str, Any]]) -> list[str]:
    if not listed:
        return []
    rows = [("A", "B", "difference")]
    rows += [(f"{it['a']:,}", f"{it['b']:,}", f"{it['difference']:+,}") for it in listed]
    rows = rows[: MAX_SHOWN + 1]
    names = [it["name"].removeprefix("num_").replace("_", " ") for it in listed[:MAX_SHOWN]]
    # Names take what the numbers leave.
    needed = min(max(len(number) for row in rows for number in row), COUNT_WIDTH)
    longest = max(NAME_WIDTH, *map(len, names))
    name_width = min(longest, WIDTH - len("  ") - 3 * (needed + 1))
    width = min((WIDTH - len("  ") - name_width) // 3 - 1, COUNT_WIDTH)
    numbers = [" ".join(cut(number, width).rjust(width) for number in row) for row in rows]
    titles = ["counts".ljust(name_width + 2), *(f"  {_fit_name(it, name_width)}" for it in names)]
    lines = [f"{title} {columns}" for title, columns in zip(titles, numbers, strict=True)]
    return [*lines, *_count_hidden(listed)]


def _fit_name(name: str, width: int = NAME_WIDTH) -> str:
    return fill(cut(escape_controls(name[:MAX_CHARACTERS]), width), width)


def _spell(entry: Mapping[str, Any], side: str) -> str:
    if side not in entry:
        return "absent"
    return escape_controls(json.dumps(entry[side], ensure_ascii=False))


def _count_hidden(listed: Sequence[object]) -> list[str]:
    num_hidden = len(listed) - MAX_SHOWN
    return [f"  and {num_hidden:,} more (all with --json)"] if num_hidden > 0 else []


def _show_sources(sources: Mapping[str, Any] | None) -> list[str]:
    if sources is None:
        return []
    lines = []
    for side, title in SIDES.items():
        lines += _list_paths(
            f"only in {title}", [(path, "") for path in sources[f"only_in_{side}"]]
        )
    changed = [(entry["path"], f": {_say_change(entry)}") for entry in sources["changed"]]
    lines += _list_paths("changed", changed)
    if not sources["same_order"]:
        lines.append(pair("order", "different for the sources in both"))
    return ["sources", *lines] if lines else []


def _list_paths(label: str, paths: Sequence[tuple[str, str]]) -> list[str]:
    lines = []
    for number, (path, more) in enumerate(paths[:MAX_LISTED_ITEMS]):
        lines.append(pair_of_path("" if number else label, path, more))
    num_hidden = len(paths) - MAX_LISTED_ITEMS
    return [*lines, pair("", f"and {num_hidden:,} more")] if num_hidden > 0 else lines


def _say_change(entry: Mapping[str, Any]) -> str:
    changes = [
        f"{entry['a'][name]:,} to {entry['b'][name]:,} {word}"
        for name, word in (("bytes", "bytes"), ("num_documents", "documents"))
        if entry["a"][name] != entry["b"][name]
    ]
    return ", ".join(changes) or "different text of the same size"


def _show_batches(batches: Mapping[str, Any] | None, same_numbers: bool | None) -> list[str]:
    if batches is None:
        return []
    numbers = f"{batches['num_a']:,} in A, {batches['num_b']:,} in B"
    same = (
        f"{batches['num_same']:,} at the same index, {batches['num_same_anywhere']:,} at any index"
    )
    by_number = ", by number" if same_numbers is False else ""
    entry, first = batches["entry"], batches["first"]
    lines = ["batches", pair("number", numbers), pair(f"same {entry}s", same + by_number)]
    if first is not None:
        place = f"batch {first['batch']:,}, from {entry} {first['row']:,}"
        lines.append(pair("first difference", place))
        for side, title in SIDES.items():
            lines.append(pair(f"  {title}", _list_rows(first, side, entry)))
    return lines


def _list_rows(first: Mapping[str, Any], side: str, entry: str) -> str:
    if first[side] is None:
        return "no such batch"
    indices = first[side]["original_indices"]
    head = count(len(indices), entry)
    others = indices[first["row"] :]
    if not others:
        return f"{head}, ends before"
    return f"{head}, from there {list_some(others, VALUE_WIDTH - len(head) - len(', from there '))}"


def _show_sequences(sequences: Mapping[str, Any], same_numbers: bool | None) -> list[str]:
    by_number = " by number; the token stores differ" if same_numbers is False else ""
    lines = ["sequences", pair("in both", f"{sequences['num_compared']:,}{by_number}")]
    lines.append(pair("differ", f"{sequences['num_differing']:,}"))
    for side, title in SIDES.items():
        if num_only := sequences[f"num_only_in_{side}"]:
            first = sequences[f"first_only_in_{side}"]
            lines.append(pair(f"only in {title}", f"{num_only:,}, the first is {first:,}"))
    return lines


def _show_first(first: Mapping[str, Any] | None) -> list[str]:
    """Return the lines of the first sequence that differs: its source and ids on each side."""
    if first is None:
        return []
    lines = [
        f"first sequence that differs: {first['sequence']:,}, from token {first['position']:,}"
    ]
    for side, title in SIDES.items():
        entry = first[side]
        origin = entry["origin"]
        length = count(entry["length"], "token")
        if origin is None:
            lines.append(pair(title, f"{length}, source unknown"))
        else:
            piece = f", piece {origin['piece'] + 1:,} of {origin['num_pieces']:,}"
            more = f", record {origin['record']:,}{piece if origin['num_pieces'] > 1 else ''}"
            lines.append(pair_of_path(title, origin["source"], f"{more}, {length}"))
        ids = wrap(_mark_ids(first, entry), VALUE_WIDTH, max_lines=MAX_ID_LINES)
        lines += [pair("" if number else "  ids", line) for number, line in enumerate(ids)]
        if entry["text"] is None:
            lines.append(pair("  text", "unknown: these ids cannot be decoded"))
        else:
            lines += pair_of_text("  text", entry["text"], max_lines=MAX_TEXT_LINES)
    return lines


def _mark_ids(first: Mapping[str, Any], entry: Mapping[str, Any]) -> str:
    """Return the ids around the first that differs, which is in brackets."""
    place = first["position"] - first["ids_from"]
    words = [f"[{id_}]" if number == place else str(id_) for number, id_ in enumerate(entry["ids"])]
    if place == len(words):
        words.append("[end]")
    before = ["…"] if first["ids_from"] else []
    after = ["…"] if first["ids_from"] + len(entry["ids"]) < entry["length"] else []
    return " ".join([*before, *words, *after])
