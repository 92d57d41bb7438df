"""Show in a terminal in what the columns of two stores, or of two shard sets, differ."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from seqpack_cli.errors import MAX_LISTED_ITEMS, escape_controls, join_items
from seqpack_cli.reporting.wording import (
    LABEL_WIDTH,
    VALUE_WIDTH,
    count,
    count_columns,
    cut,
    cut_front,
    pair,
)

SIDES = {"a": "A", "b": "B"}
MAX_CHARACTERS = 1_000  # of a column's name; the rest is ignored
COMMON_WIDTH = 5  # of the common front of two texts, where it is cut
NAME_WIDTH = VALUE_WIDTH - len("1 class only in A: ")  # of a class
VALUES_WIDTH = (VALUE_WIDTH - len("A has , B has ")) // 2


def show_columns(columns: Mapping[str, Any] | None) -> list[str]:
    """Return the lines of which columns differ, and where their values do; none if none do."""
    if columns is None:
        return []
    lines = []
    for side, title in SIDES.items():
        if names := columns[f"only_in_{side}"]:
            lines.append(pair(f"only in {title}", join_items(map(_spell, names))))
    if not columns["same_order"]:
        lines.append(pair("order", "different for the columns in both"))
    for change in columns["changed"]:
        lines += _show_change(change)
    for values in columns["values"]:
        lines += _show_values(values)
    return ["columns", *lines] if lines else []


def cut_alike(texts: Sequence[str], width: int) -> list[str]:
    """Cut texts that are too wide, their common front first: the place where they differ stays.

    >>> cut_alike(["the same for many letters, A", "the same for many letters, B"], 24)
    ['…rs, A', '…rs, B']
    """
    front = os.path.commonprefix(texts)  # noqa: RUF071 - characters are what is compared
    is_long = count_columns(front[:width]) >= width // 2
    if len(texts) > 1 and is_long and any(cut(text, width) != text for text in texts):
        texts = [cut_front(front, COMMON_WIDTH) + text[len(front) :] for text in texts]
    return [cut(text, width) for text in texts]


def _show_change(change: Mapping[str, Any]) -> list[str]:
    kinds = [change[side]["kind"] for side in SIDES]
    if kinds[0] != kinds[1]:
        return [pair(_name(change["name"]), f"{kinds[0]} in A, {kinds[1]} in B")]
    lines = []
    sides = {side: change[side]["only_classes"] for side in SIDES}
    listed = [label for classes in sides.values() for label in classes[:MAX_LISTED_ITEMS]]
    names = iter(cut_alike([_spell(label) for label in listed], NAME_WIDTH))
    for side, title in SIDES.items():
        if classes := sides[side]:
            shown = ", ".join(islice(names, min(len(classes), MAX_LISTED_ITEMS)))
            more = ", …" if len(classes) > MAX_LISTED_ITEMS else ""
            lines.append(f"{count(len(classes), 'class')} only in {title}: {shown}{more}")
    if not change["same_order"]:
        lines.append("classes numbered in another order")
    elif not change["same_numbers"]:
        lines.append("the classes in both have other numbers")
    return [pair("" if place else _name(change["name"]), line) for place, line in enumerate(lines)]


def _show_values(values: Mapping[str, Any]) -> list[str]:
    num_differing = values["num_differing"]
    if not num_differing:
        return []
    where = f"differs in {count(num_differing, 'sequence')}"
    if "num_differing_tokens" in values:
        where += f", {count(values['num_differing_tokens'], 'token')}"
    return [
        pair(_name(values["name"]), where),
        *(line for place in values["places"] for line in _show_place(place)),
    ]


def _show_place(place: Mapping[str, Any]) -> list[str]:
    where = f"  sequence {place['sequence']:,}"
    if place["position"] is not None:
        where += f", token {place['position']:,}"
    values = iter(cut_alike([_spell(place[side]) for side in SIDES if side in place], VALUES_WIDTH))
    sides = [
        f"{title} {next(values)}" if side in place else f"{title} ends before"
        for side, title in SIDES.items()
    ]
    if len(where) <= LABEL_WIDTH:
        return [pair(where, ", ".join(sides))]
    return [f"  {where}", pair("", ", ".join(sides))]


def _name(name: str) -> str:
    return cut(escape_controls(name[:MAX_CHARACTERS]), LABEL_WIDTH)


def _spell(value: object) -> str:
    return escape_controls(json.dumps(value, ensure_ascii=False))
