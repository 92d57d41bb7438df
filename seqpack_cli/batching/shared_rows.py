"""Put filled rows, which several sequences share, into batches.

A batch of `varlen` is one row, or N rows of one length, filled up with padding. A batch of
`streams` has the next row of each of B streams: the rows are dealt to them in B runs, so that each
stream goes on in the next batch where it ended in this one.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from seqpack_cli.batching.batch_table import BatchTable
from seqpack_cli.batching.limits import round_up
from seqpack_cli.batching.options import PackOptions
from seqpack_cli.batching.row_ranges import Rows
from seqpack_cli.batching.shard_rows import FROM_BEFORE, INTO_NEXT
from seqpack_cli.batching.shuffle import ROWS, shuffled
from seqpack_cli.ranges import expand_ranges, to_offsets


def make_batches(
    rows: Rows, row_offsets: np.ndarray, options: PackOptions
) -> tuple[Rows, BatchTable]:
    """Put filled rows into batches, in their order.

    Args:
        rows: the sequences, or pieces of them, of all filled rows.
        row_offsets: int64[N + 1], the first of each filled row.
        options: resolved.

    Returns:
        The sequences in the order of the batches, with row_indices if a batch has several rows, and
        a table with one row for each batch.
    """
    if options.carries_state:
        rows, row_offsets = _deal_streams(rows, row_offsets, _need(options.batch_size))
    elif options.shuffle and options.fill == "best-fit" and options.batch_size is not None:
        rows, row_offsets = _shuffle_rows(rows, row_offsets, options.seed)
    offsets = row_offsets
    if options.batch_size is not None:
        if rows.row_indices is None:
            number_of = np.repeat(np.arange(len(row_offsets) - 1), np.diff(row_offsets))
            rows = rows._replace(row_indices=(number_of % options.batch_size).astype(np.int32))
        firsts = np.arange(0, len(row_offsets) - 1, options.batch_size)
        offsets = np.append(row_offsets[firsts], row_offsets[-1])
    table = BatchTable.of_batches(rows.lengths, offsets)
    if not len(table):
        return rows, table
    if rows.piece_starts is not None:
        is_second = (rows.piece_starts > 0) & (rows.piece_starts <= _need(options.max_tokens))
        table = replace(
            table,
            num_later_pieces=_count_true(rows.piece_starts > 0, offsets),
            num_split_sequences=_count_true(is_second, offsets),
        )
    return rows, replace(table, num_cells=_count_cells(rows, row_offsets, offsets, options))


def _shuffle_rows(rows: Rows, row_offsets: np.ndarray, seed: int) -> tuple[Rows, np.ndarray]:
    """Shuffle filled rows: best fit puts sequences of similar length into neighbours."""
    sizes = np.diff(row_offsets)
    order = shuffled(len(sizes), seed=seed, stream=ROWS)
    places = expand_ranges(row_offsets[:-1][order], sizes[order])
    return rows.take(places), to_offsets(sizes[order])


def _count_cells(
    rows: Rows, row_offsets: np.ndarray, offsets: np.ndarray, options: PackOptions
) -> np.ndarray:
    """Count the cells of each batch, int64[batches]."""
    if options.batch_size is None:
        rounded = round_up(rows.lengths, options.align_sequences)
        return np.add.reduceat(rounded, offsets[:-1], dtype=np.int64)
    num_rows = np.full(len(offsets) - 1, options.batch_size)
    if options.last_batch == "keep" and not options.carries_state:
        num_rows[-1] = len(row_offsets) - 1 - options.batch_size * (len(num_rows) - 1)
    return num_rows * _need(options.max_tokens)


def _deal_streams(rows: Rows, row_offsets: np.ndarray, num_streams: int) -> tuple[Rows, np.ndarray]:
    """Deal rows to streams: row t of each stream, then row t + 1 of each.

    Streams are equally long, or the last ones one row longer: the last row of all, which may be
    shorter, lies in the last batch, and only that has fewer rows than streams.

    Returns:
        The sequences in that order, with their stream as row_indices and with `continues`, and the
        first of each row.
    """
    num_all = len(row_offsets) - 1
    used = np.arange(max(num_streams - num_all, 0), num_streams)  # the others have no row
    least, num_longer = divmod(num_all, max(len(used), 1))
    num_rows = least + (used >= num_streams - num_longer)
    stream_of = np.repeat(used, num_rows)
    step_of = expand_ranges(np.zeros(len(used), np.int64), num_rows)
    order = np.argsort(step_of * num_streams + stream_of, kind="stable")
    sizes = np.diff(row_offsets)
    continues = _find_links(rows, row_offsets, to_offsets(num_rows))
    places = expand_ranges(row_offsets[:-1][order], sizes[order])
    streams = np.repeat(stream_of, sizes).astype(np.int32)
    rows = rows._replace(row_indices=streams, continues=continues)
    return rows.take(places), to_offsets(sizes[order])


def _find_links(rows: Rows, row_offsets: np.ndarray, stream_offsets: np.ndarray) -> np.ndarray:
    """Find the pieces that go on from the row before, or in the next row, of their stream."""
    assert rows.piece_starts is not None  # noqa: S101 - streams are cut into chunks
    links = np.zeros(len(rows.indices), np.uint8)
    is_first_of_stream = np.zeros(len(row_offsets), bool)
    is_first_of_stream[stream_offsets] = True
    later = row_offsets[:-1][~is_first_of_stream[:-1]]  # the first piece of every later row
    later = later[rows.piece_starts[later] > 0]
    links[later] |= FROM_BEFORE
    links[later - 1] |= INTO_NEXT
    return links


def _count_true(mask: np.ndarray, batch_offsets: np.ndarray) -> np.ndarray:
    return np.add.reduceat(mask, batch_offsets[:-1], dtype=np.int64)


def _need(number: int | None) -> int:
    assert number is not None  # noqa: S101 - resolved
    return number
