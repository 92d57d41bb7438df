"""Labels of a batch, token by token, as docs/training.md describes them; nothing of seqpack."""

from __future__ import annotations

from typing import Any

from oracle.batches import FILLS, PageBatch
from oracle.stores import PER_TOKEN

IGNORE = -100
Row = dict[str, list[int]]


def find_kinds(page: PageBatch) -> dict[str, str]:
    """Return the kind of each column."""
    return {column["name"]: column["kind"] for column in page.side["columns"]}


def make_labels(page: PageBatch, name: str) -> list[Any]:
    """Return the labels of single sequences: of each cell, or of each row.

    Args:
        name: "next", "same", or a column.
    """
    if name not in ("next", "same"):
        values = page.arrays[f"column.{name}"].tolist()
        if find_kinds(page)[name] in (*PER_TOKEN, "float"):
            return list(values)
        lengths = page.arrays["lengths"].tolist()
        return [x if length else IGNORE for x, length in zip(values, lengths, strict=True)]
    ids = page.arrays["data"].tolist()
    labels = [IGNORE] * len(ids)
    is_target = page.arrays.get("column.targets", [1] * len(ids))
    for row, cells in enumerate(page.cells):
        for place in range(1, len(cells)):
            if is_target[cells[place]]:
                labels[cells[place - (name == "next")]] = ids[cells[place]]
        if name == "next" and "next_ids" in page.arrays and cells:
            next_id = int(page.arrays["next_ids"][row])
            labels[cells[-1]] = IGNORE if next_id == -1 else next_id
    return labels


def force(page: PageBatch, bos: int | None, eos: int | None, *, is_shifted: bool) -> list[Row]:
    """Return what a decoder reads of each row: `ids`, columns per token, and `labels` beside them.

    Args:
        is_shifted: whether the labels are the next tokens, and the last token is no input.
    """
    kinds = {name: kind for name, kind in find_kinds(page).items() if kind in PER_TOKEN}
    beside = {name: page.arrays[f"column.{name}"].tolist() for name in kinds}
    rows = []
    for cells, of_page in zip(page.cells, page.rows, strict=True):
        ids = list(of_page)
        row = {name: [values[cell] for cell in cells] for name, values in beside.items()}
        is_target = list(row.get("targets", [1] * len(ids)))
        if cells and bos is not None:
            ids, is_target = [bos, *ids], [0, *is_target]
            row = {name: [int(FILLS[kinds[name]]), *values] for name, values in row.items()}
        if cells and eos is not None:
            ids, is_target = [*ids, eos], [*is_target, 1]
            fills = {name: 1 if name == "targets" else int(FILLS[kinds[name]]) for name in kinds}
            row = {name: [*values, fills[name]] for name, values in row.items()}
        row["ids"] = ids
        if is_shifted:
            row = {name: values[:-1] for name, values in row.items()}
            after = zip(ids[1:], is_target[1:], strict=True)
            row["labels"] = [id_ if counts else IGNORE for id_, counts in after]
        rows.append(row)
    return rows
