"""Which sequences of stores have a target, and how many targets shards hold.

A token is a target if the column `targets` has 1 beside it. In stores and shards without the
column, or if it is dropped, every token is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from seqpack_cli.batching.options import PackOptions
from seqpack_cli.errors import OptionError
from seqpack_cli.files.mapping import let_pages_go
from seqpack_cli.ranges import to_offsets
from seqpack_cli.shards.store_conditions import PartTest
from seqpack_cli.tokens.columns import TARGETS, Column
from seqpack_cli.tokens.store import TokenStore

NUM_TARGETS = "num_target_tokens"


def make_targets_test(store: TokenStore, options: PackOptions) -> PartTest | None:
    """Return the test of sequences that have a target; None if those without one are packed too.

    It takes 8 bytes per sequence of a part, and raises FolderError for a value that is not 0 or 1.

    Args:
        store: the store, with all columns.

    Raises:
        OptionError: `--keep-without-target` has no effect.
    """
    has_targets = TARGETS in store.columns and TARGETS not in options.drop_column
    if options.keep_without_target and not has_targets:
        raise OptionError(
            "--keep-without-target has no effect: every token is a target",
            hint="leave out --keep-without-target",
        )
    if options.keep_without_target or not has_targets:
        return None

    def test(number: int) -> np.ndarray:
        starts = to_offsets(store.part_lengths(number))[:-1]
        values = np.asarray(store.view_column(number, TARGETS))
        largest = np.maximum.reduceat(values, starts)
        let_pages_go(values)
        found: np.ndarray = np.asarray(store.finish_values(number, TARGETS, largest)) > 0
        return found

    return test


class TargetCounter:
    """Counts the targets of a shard while its arrays are written.

    Args:
        columns: of the shard.
        num_tokens: of the shard, which are all targets if there is no column `targets`.
    """

    def __init__(self, columns: Mapping[str, Column], num_tokens: int) -> None:
        self.num_targets = 0 if TARGETS in columns else num_tokens

    def watch(self, column: Column, pieces: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
        """Yield the pieces of a column; count those of `targets`, whose padding is 0."""
        for piece in pieces:
            if column.name == TARGETS:
                self.num_targets += int(np.count_nonzero(piece))
            yield piece


def count_targets(columns: Mapping[str, Column], tensors: Mapping[str, np.ndarray]) -> int:
    """Count the targets in the arrays of a shard."""
    if TARGETS in columns:
        return int(np.count_nonzero(tensors[columns[TARGETS].tensor_name]))
    return int(tensors["lengths"].sum())
