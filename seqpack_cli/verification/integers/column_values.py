"""Compare the columns of shards with those of the token store: which there are, and every value.

Values per sequence are compared for a whole shard at once, filler rows included. Those per token
are read row by row here only where `shard_roundtrip`, which sends them through the device as it
sends the ids, found that a batch is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from seqpack_cli.errors import join_items, quote
from seqpack_cli.ranges import find_difference, is_equal
from seqpack_cli.shards.shard import Shard
from seqpack_cli.tokens.columns import Column
from seqpack_cli.tokens.conditions import Label
from seqpack_cli.tokens.store import Slices, TokenStore, read_rows, read_values
from seqpack_cli.tokens.text_values import find_differing_values
from seqpack_cli.verification.findings import Finding


def compare_columns(found: Mapping[str, Column], expected: Mapping[str, Column]) -> Iterator[str]:
    """Yield where the columns of shards are not those of their token store."""
    if [*found] != [*expected]:
        spelled = [join_items(map(quote, side)) or "none" for side in (found, expected)]
        yield f"columns are {spelled[0]}, the token store has {spelled[1]}"
        return
    for name, column in found.items():
        wanted = expected[name]
        if column.kind != wanted.kind:
            yield f"column {quote(name)} is {column.kind}, the token store has {wanted.kind}"
            continue
        classes, names = _name_classes(column), _name_classes(wanted)
        if len(classes) != len(names):
            what = f"{len(classes):,} classes, the token store has {len(names):,}"
            yield f"column {quote(name)} has {what}"
        elif classes != names:
            place = [one == other for one, other in zip(classes, names, strict=True)].index(False)
            what = f"{quote(classes[place][1])}, the token store has {quote(names[place][1])}"
            yield f"class {place} of column {quote(name)} is {what}"


def check_row_columns(shard: Shard, store: TokenStore) -> Iterator[Finding]:
    """Yield the first wrong value of each batch, of the columns with one value per sequence.

    Args:
        shard: a sound one, whose rows are the store's.
    """
    indices, offsets = shard.tensors["original_indices"], shard.tensors["sequence_offsets"]
    for name, column in shard.columns.items():
        if column.is_per_token:
            continue
        values, expected = column.view(shard.tensors), read_values(store, indices, name)
        rows = find_differing_values(values, expected)
        batches, firsts = np.unique(np.searchsorted(offsets, rows, "right") - 1, return_index=True)
        for batch, row in zip(batches.tolist(), rows[firsts].tolist(), strict=True):
            found, wanted = (column.spell(side[row : row + 1])[0] for side in (values, expected))
            what = f"column {quote(name)} is {quote(found)}, the token store has {quote(wanted)}"
            inside = row - int(offsets[batch])
            yield Finding("roundtrip", shard.path.name, what, shard.first_batch + batch, inside)


def find_wrong_token(
    shard: Shard, batch: int, store: TokenStore, column: Column
) -> tuple[int, str] | None:
    """Return the row and what is wrong with a column per token, None if all is right.

    Args:
        shard: one whose `data` is the column.
    """
    rows = shard.view(batch).without_filler()
    assert rows.original_indices is not None  # noqa: S101 - shards always have them
    slices = Slices(rows.original_indices, rows.lengths, rows.piece_starts)
    expected, starts = read_rows(store, slices, column=column.name)
    for row, values in enumerate(rows.rows()):
        wanted = expected[starts[row] : starts[row] + len(values)]
        if is_equal(values, wanted):
            continue
        step = find_difference(values, wanted)
        words = [quote(column.spell(side[step : step + 1])[0]) for side in (values, wanted)]
        what = f"is {words[0]} at step {step}, the token store has {words[1]}"
        return row, f"column {quote(column.name)} {what}"
    return None


def view_column(shard: Shard, column: Column) -> Shard:
    """Return a shard whose `data` is a column per token in the place of the ids."""
    return shard.with_tensors({**shard.tensors, "data": shard.tensors[column.tensor_name]})


def _name_classes(column: Column) -> list[tuple[type, Label]]:
    """Return the class names with their types: 1 equals true, as Python has it."""
    return [(type(label), label) for label in column.class_names or ()]
