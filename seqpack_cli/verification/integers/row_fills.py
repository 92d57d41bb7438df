"""Level `structure` of rows that several sequences share: how far each is filled.

No plan is needed. Rows of a batch are used one after another, and only the last batch of a round of
passes may lack rows. With `--fill chunk` every row but the last of a round is full, and only the
first sequence of a row may begin inside a document, where the row before ends. Takes about 10 ns
per sequence.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from seqpack_cli.batching.options import PackOptions
from seqpack_cli.shards.shard import Shard
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.verification.findings import Finding
from seqpack_cli.verification.integers.stream_links import StreamLinks

LEVEL = "structure"


def make_fills(shards: ShardSet) -> RowFills | StreamLinks:
    """Return what checks the shards of a set, one after another."""
    num_rounds = shards.max_visits
    if shards.options.carries_state:
        return StreamLinks(num_rounds)
    return RowFills(shards.options, num_rounds)


class RowFills:
    """Checks shards one after another; nothing where rows are not shared.

    Args:
        num_rounds: how often a sequence may be visited, at most.
    """

    def __init__(self, options: PackOptions, num_rounds: int) -> None:
        self._options = options
        self._num_rows = options.batch_size or 1
        self._has_rows = options.shares_rows and options.batch_size is not None
        self._is_chunk = options.fill == "chunk"
        self._num_unfilled = {"batches": num_rounds, "rows": num_rounds}  # that may still come

    def check(self, shard: Shard | None) -> list[Finding]:
        """Check the next shard, None for one that has a fault; return the first faults."""
        if shard is None or not (self._has_rows or self._is_chunk):
            return []
        lines = _number_rows(shard, self._num_rows)
        firsts = np.flatnonzero(np.append(True, lines[1:] != lines[:-1]))
        batches, rows = np.divmod(lines[firsts], self._num_rows)
        found = list[Finding]()
        if self._has_rows:
            found += self._check_rows(shard, batches, rows)
        if self._is_chunk and not found:
            found += [*self._check_full(shard, firsts, batches), *_check_cuts(shard, firsts, rows)]
        return found

    def finish(self) -> list[Finding]:
        """Return nothing: all was checked."""
        return []

    def _check_rows(self, shard: Shard, batches: np.ndarray, rows: np.ndarray) -> Iterator[Finding]:
        """Check which rows are used.

        Args:
            batches, rows: of the rows that are used.
        """
        num_used = np.bincount(batches, minlength=len(shard))
        holes = np.bincount(batches, rows, minlength=len(shard)) != num_used * (num_used - 1) // 2
        row_length = shard.arrays.geometry.row_length
        expected = num_used if self._options.last_batch == "keep" else self._num_rows
        num_rows = np.diff(shard.tensors["data_offsets"]) // row_length
        lacks = num_used < self._num_rows
        excess = lacks & (np.cumsum(lacks) > self._num_unfilled["batches"])
        self._num_unfilled["batches"] -= int(lacks.sum())
        for wrong, words in (
            (holes, "sequences in {} rows, but not in the first ones"),
            (num_rows != expected, "{} rows hold a sequence, the data has another number of rows"),
            (excess, f"{{}} rows, only the last batch may have fewer than {self._num_rows}"),
        ):
            if wrong.any():
                batch = int(wrong.argmax())
                what = words.format(num_used[batch])
                yield Finding(LEVEL, shard.path.name, what, shard.first_batch + batch)

    def _check_full(
        self, shard: Shard, firsts: np.ndarray, batches: np.ndarray
    ) -> Iterator[Finding]:
        """Check that chunks are full."""
        num_tokens = np.add.reduceat(shard.tensors["lengths"], firsts)
        is_short = num_tokens != self._options.max_tokens
        left = self._num_unfilled["rows"]
        wrong = is_short & (np.cumsum(is_short) > left)
        wrong[:-1] |= is_short[:-1] & (batches[1:] == batches[:-1])  # not the last of its batch
        self._num_unfilled["rows"] -= int(is_short.sum())
        if wrong.any():
            place = int(wrong.argmax())
            what = f"a row of {num_tokens[place]} tokens, expected {self._options.max_tokens} in "
            yield _locate(shard, int(firsts[place]), f"{what}every row but the last")


def _number_rows(shard: Shard, num_rows: int) -> np.ndarray:
    """Return the number of the row that each sequence lies in, counted through all batches."""
    numbers = shard.arrays.batch_of_rows * num_rows
    rows = shard.tensors.get("row_indices")
    return numbers if rows is None else numbers + rows


def _check_cuts(shard: Shard, firsts: np.ndarray, rows: np.ndarray) -> Iterator[Finding]:
    """Check where chunks begin inside a document.

    Args:
        firsts: the first sequence of each row.
        rows: the number of each in its batch.
    """
    tensors = shard.tensors
    starts, indices = tensors["piece_starts"], tensors["original_indices"]
    ends = starts + tensors["lengths"]
    wrong = starts > 0
    wrong[firsts[rows == 0]] = False  # batches may be in any order
    later = firsts[rows > 0]
    wrong[later] &= (indices[later] != indices[later - 1]) | (starts[later] != ends[later - 1])
    if wrong.any():
        row = int(wrong.argmax())
        what = f"a piece of sequence {indices[row]} begins at token {starts[row]}, where the row "
        yield _locate(shard, row, f"{what}before does not end")


def _locate(shard: Shard, row: int, what: str) -> Finding:
    batch, inside = shard.arrays.find_batch(row)
    return Finding(LEVEL, shard.path.name, what, shard.first_batch + batch, inside)
