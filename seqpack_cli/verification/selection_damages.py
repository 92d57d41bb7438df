"""Damages that the self-test makes where stores, splits and passes decide what is packed.

As in `damages`, nothing on disk is changed. A sequence of another split takes the place of a row,
a row claims to be of another store, and a visit of a sequence is left out or made once more.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from seqpack_cli.shards.shard import Shard
from seqpack_cli.tokens.columns import Column
from seqpack_cli.verification.column_damages import Arrays, find_real_rows
from seqpack_cli.verification.damages import Damage, damage_column
from seqpack_cli.verification.integers.coverage import Coverage
from seqpack_cli.verification.integers.totals import check_visits
from seqpack_cli.verification.levels import Verification
from seqpack_cli.verification.report import Control


def list_selection_damages(run: Verification) -> Iterator[Damage]:
    """Yield the damages that shards with these options can have."""
    options = run.shards.options
    if options.split_name is not None:
        yield Damage(
            "sequence of another split",
            "structure",
            lambda shard: None if run.coverage is None else _take_other(shard, run, run.coverage),
            needs_plan=True,
        )
    if options.store_column is not None:
        yield damage_column(
            "wrong store",
            "roundtrip",
            change_class,
            lambda column: column.name == options.store_column,
        )


def control_visits(run: Verification) -> Iterator[Control]:
    """Visit a sequence once less, and once more, if sequences may be visited several times."""
    coverage, level = run.coverage, "structure"
    if coverage is None or not coverage.has_repeats:
        return
    visited = np.flatnonzero(coverage.visits)
    less = coverage.copy()
    less.visits[visited[:1]] = coverage.visits[visited[:1]] - 1
    found = next(check_visits(run.shards.manifest, less), None)
    yield Control("visit left out", level, found is not None, found or "nothing")
    full = visited[coverage.visits[visited] >= coverage.find_most(visited)][:1]
    if not len(full):
        yield Control("visit too many", level, None, "")
        return
    fault = coverage.copy().mark(full, np.ones(1, np.int64), None)
    yield Control(
        "visit too many", level, fault is not None, "nothing" if fault is None else fault[1]
    )


def change_class(shard: Shard, column: Column) -> dict[str, np.ndarray] | None:
    """Write another class into the first row."""
    num_classes = len(column.class_names or ())
    if num_classes < 2:
        return None
    values, rows = shard.tensors[column.tensor_name].copy(), find_real_rows(shard)
    if not len(rows):
        return None
    row = rows[0]
    values[row] = (values[row] + 1) % num_classes
    return {column.tensor_name: values}


def _take_other(shard: Shard, run: Verification, coverage: Coverage) -> Arrays | None:
    """Replace a row's sequence by one that is not packed, of the same length if there is one."""
    others, rows = np.flatnonzero(coverage.visits == 0), find_real_rows(shard)
    if run.store is None or not len(others) or not len(rows):
        return None
    row = rows[0]
    is_same = run.store.lengths[others] == shard.tensors["lengths"][row]
    indices = shard.tensors["original_indices"].copy()
    indices[row] = others[is_same.argmax()]
    return {"original_indices": indices}
