"""What the columns of a token store or of shards hold, as plain values.

Columns are read part by part and shard by shard, so memory does not grow with the store. Of texts
only the lengths are read, and one example; numbers are read a second time, for their histogram.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from seqpack_cli.errors import FolderError, quote
from seqpack_cli.files.mapping import let_pages_go
from seqpack_cli.reporting.opened import Opened, name_entry
from seqpack_cli.reporting.target_counts import count_targets
from seqpack_cli.shards.shard import Shard
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.tokens.columns import TARGETS, Column
from seqpack_cli.tokens.kinds import Values
from seqpack_cli.tokens.text_values import TextValues

MAX_BINS = 8  # of a histogram of values
MAX_EXAMPLE_CHARACTERS = 200


def describe_columns(opened: Opened) -> list[dict[str, Any]]:
    """Return what each column holds, in the order in which the columns were kept.

    Raises:
        FolderError: a column is damaged.
    """
    return [
        {
            "name": column.name,
            "kind": column.kind,
            "unit": _find_unit(opened, column),
            **_choose(column)(opened, column),
        }
        for column in opened.columns.values()
    ]


def _choose(column: Column) -> Callable[[Opened, Column], dict[str, Any]]:
    if column.name == TARGETS:
        return count_targets
    if column.class_names is not None:
        return _count_classes
    return _measure_texts if column.is_text else _measure_numbers


def _find_unit(opened: Opened, column: Column) -> str:
    """Return what has a value: in shards a row, or a sequence if they share rows."""
    return "tokens" if column.is_per_token else f"{name_entry(opened)}s"


def _count_classes(opened: Opened, column: Column) -> dict[str, Any]:
    """Count the entries of each class, the largest first, and the tokens without a class."""
    names = column.class_names or ()
    counts = np.zeros(len(names), np.int64)
    for values in _iter_values(opened, column):
        assert isinstance(values, np.ndarray)  # noqa: S101 - classes are numbers
        counts += np.bincount(values[values >= 0], minlength=len(names))
    num_values = _count_values(opened, column)
    order = np.argsort(-counts, kind="stable")
    shares = counts / max(int(counts.sum()), 1)
    found: dict[str, Any] = {
        "num_values": num_values,
        "num_classes": len(names),
        "num_unused_classes": int((counts == 0).sum()),
        "classes": [
            {"name": names[number], "count": count, "share": round(share, 6)}
            for number, count, share in zip(
                order.tolist(), counts[order].tolist(), shares[order].tolist(), strict=True
            )
        ],
    }
    if column.is_per_token:
        found["num_without_class"] = num_values - int(counts.sum())
    return found


def _measure_numbers(opened: Opened, column: Column) -> dict[str, Any]:
    """Return smallest, mean and largest number, and how many lie in each of a few equal bins."""
    ends, means = [], []
    for values in _iter_values(opened, column):
        assert isinstance(values, np.ndarray)  # noqa: S101 - texts have another function
        if len(values):
            ends += [values.min().item(), values.max().item()]
            with np.errstate(over="ignore"):  # the sum of the values may overflow
                means.append((len(values), float((values / len(values)).sum())))
    num_values = sum(number for number, _ in means)
    if not ends:
        nothing = dict.fromkeys(("smallest", "mean", "largest"))
        return {"num_values": num_values, **nothing, "histogram": []}
    mean = sum(number / num_values * mean for number, mean in means)
    mean = min(max(mean, min(ends)), max(ends))  # it may have been rounded up to infinity
    starts = _choose_starts(min(ends), max(ends))
    counts = np.zeros(len(starts), np.int64)
    for values in _iter_values(opened, column):
        counts += np.bincount(np.searchsorted(starts[1:], values, "right"), minlength=len(starts))
    return {
        "num_values": num_values,
        "smallest": min(ends),
        "mean": float(f"{mean:.12g}"),  # the last digits are noise
        "largest": max(ends),
        "histogram": [
            {"from": start, "to": end, "count": count}
            for start, end, count in zip(
                starts.tolist(), _find_ends(starts, max(ends)), counts.tolist(), strict=True
            )
        ],
    }


def _choose_starts(smallest: float, largest: float) -> np.ndarray:
    """Return where bins of equal width start; those of integers start at integers."""
    if isinstance(smallest, int):
        width = -(-(int(largest) - smallest + 1) // MAX_BINS)
        return np.array([*range(smallest, int(largest) + 1, width)], np.int64)
    if smallest == largest:
        return np.array([smallest])
    parts = np.arange(MAX_BINS) / MAX_BINS
    return np.unique(smallest * (1 - parts) + largest * parts)  # their difference may overflow


def _find_ends(starts: np.ndarray, largest: float) -> list[float]:
    """Return where bins end: an integer belongs to its bin, other ends to the next."""
    ends = starts[1:] - 1 if starts.dtype.kind == "i" else starts[1:]
    return [*ends.tolist(), largest]


def _measure_texts(opened: Opened, column: Column) -> dict[str, Any]:
    """Return the bytes of all texts, of the longest one, and the first text that is not empty."""
    num_bytes, longest, num_empty, example = 0, 0, 0, None
    for texts in _iter_values(opened, column):
        assert isinstance(texts, TextValues)  # noqa: S101 - other columns have other functions
        lengths = texts.lengths
        num_bytes += int(lengths.sum())
        longest = max(longest, int(lengths.max(initial=0)))
        num_empty += int((lengths == 0).sum())
        if example is None and lengths.any():
            first = int((lengths > 0).argmax())
            example = _decode(texts[first : first + 1], opened, column)
    return {
        "num_values": _count_values(opened, column),
        "num_bytes": num_bytes,
        "longest": longest,
        "num_empty": num_empty,
        "example": example,
    }


def _decode(texts: TextValues, opened: Opened, column: Column) -> str:
    if not column.is_sound(texts):
        name = quote(column.name)
        raise FolderError(f"{opened.path}: column {name} holds bytes that are not UTF-8")
    return texts[0][:MAX_EXAMPLE_CHARACTERS]


def _count_values(opened: Opened, column: Column) -> int:
    """Return the number of entries: of tokens, of sequences, or of the rows of shards."""
    if column.is_per_token:
        found: int = opened.manifest["ledger"]["num_tokens"]
        return found
    if not isinstance(opened, ShardSet):
        return len(opened)
    ledger = opened.manifest["ledger"]
    return int(ledger["num_rows"] - ledger["num_filler_rows"])


def _iter_values(opened: Opened, column: Column) -> Iterator[Values]:
    """Yield the entries of each part or shard, without filler rows; all but texts are checked."""
    if isinstance(opened, ShardSet):
        has_filler = opened.manifest["ledger"]["num_filler_rows"] > 0
        for number in range(opened.num_shards):
            shard = opened.open_shard(number)
            yield _read_shard(shard, column, has_filler=has_filler)
            let_pages_go(shard.tensors[column.tensor_name])
        return
    for number in opened.fetch_columns():
        values = opened.view_column(number, column.name)
        yield values if column.is_text else opened.finish_values(number, column.name, values)
        opened.let_pages_go()


def _read_shard(shard: Shard, column: Column, *, has_filler: bool) -> Values:
    values = column.view(shard.tensors)
    if has_filler and not column.is_per_token:
        values = values.take(np.flatnonzero(shard.tensors["lengths"]))
    if not column.is_text and not column.is_sound(values):
        raise FolderError(f"{shard.path}: column {quote(column.name)} holds a value that cannot be")
    return values
