"""Finish the last batch of each bucket: keep it, drop it, or fill it up with empty rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from seqpack_cli.batching.batch_table import BatchTable
from seqpack_cli.batching.options import PackOptions


class BatchLimits(Protocol):
    """The limits of a batch, as `Limits` or `PairLimits`."""

    @property
    def batch_size(self) -> int | None:
        """The most rows of a batch."""

    def is_full(self, batch: BatchTable) -> bool:
        """Return whether a table's only batch has no room for another row."""

    def pad(self, table: BatchTable) -> BatchTable:
        """Return the table with the cells of padded rectangles."""


def finish_batches(
    tables: Sequence[BatchTable],
    limits: Sequence[BatchLimits],
    options: PackOptions,
    count_dropped: Callable[[BatchTable], None],
) -> BatchTable:
    """Join the batches of all buckets, padded and with their last batches finished.

    Args:
        tables: of each bucket.
        limits: of each bucket.
        count_dropped: is called with each last batch that is dropped.
    """
    both = zip(tables, limits, strict=True)
    return BatchTable.join(
        [
            _finish(limit.pad(table), limit, options.last_batch, count_dropped)
            for table, limit in both
        ]
    )


def _finish(
    table: BatchTable,
    limits: BatchLimits,
    last_batch: str,
    count_dropped: Callable[[BatchTable], None],
) -> BatchTable:
    """Keep, drop or fill up the last batch of a bucket, which has its own row in the table."""
    last = table.take(slice(-1, None))
    if last_batch == "keep" or not len(last) or limits.is_full(last):
        return table
    before = table.take(slice(0, -1))
    if last_batch == "drop":
        count_dropped(last)
        return before
    assert limits.batch_size is not None  # noqa: S101 - resolved
    return BatchTable.join([before, last.fill_up(limits.batch_size)])
