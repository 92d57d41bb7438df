"""Shards -> their sequences in the original order: the inverse of pack.

Every batch is checked once; then rows are read one by one in the order of the token store, straight
from the maps, with 24 bytes of memory a row. A split sequence is put together again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np

from seqpack_cli.errors import FolderError
from seqpack_cli.execution import Progress
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.tokens.decoder import open_decoder

ROWS_PER_WRITE = 1024


def iter_sequences(
    shards: ShardSet, progress: Progress | None = None
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (original index, ids) of every sequence in the shards, by rising index.

    Raises:
        FolderError: a batch is damaged, or an index stands twice.
    """
    progress = progress or Progress()
    indices, starts = _read_indices(shards)
    order = np.lexsort((starts, indices))
    order = order[np.searchsorted(indices, 0, sorter=order) :]  # without filler rows, which have -1
    first_rows = [0]
    for number in range(shards.num_shards):
        first_rows.append(first_rows[-1] + len(shards.open_shard(number).tensors["lengths"]))
    progress.on_total(len(order))
    pieces: list[np.ndarray] = []
    num_ids = 0  # of the pieces
    for place, position in enumerate(order):
        index = int(indices[position])
        if starts[position] != num_ids:
            found = f"begins at token {starts[position]}" if starts[position] else "stands twice"
            raise FolderError(f"{shards.path}: sequence {index} {found}")
        number = int(np.searchsorted(first_rows, position, "right")) - 1
        pieces.append(shards.open_shard(number).row(position - first_rows[number]))
        num_ids += len(pieces[-1])
        progress.on_advance(1)
        if place + 1 == len(order) or indices[order[place + 1]] != index:
            yield index, pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
            pieces, num_ids = [], 0


def unpack_shards(
    shards: ShardSet,
    write: Callable[[bytes], None],
    *,
    as_text: bool = False,
    progress: Progress | None = None,
) -> int:
    """Write every sequence as one JSON line, `index` and `ids` or `text`; give their number."""
    sequences = iter_sequences(shards, progress)
    decode = open_decoder(shards.read_tokenizer_json()) if as_text else None
    num_sequences = 0
    while rows := list(islice(sequences, ROWS_PER_WRITE)):
        if decode is not None:
            texts = decode([ids for _, ids in rows])
            lines = [
                json.dumps({"index": index, "text": text}, ensure_ascii=False)
                for (index, _), text in zip(rows, texts, strict=True)
            ]
        else:
            lines = [json.dumps({"index": index, "ids": ids.tolist()}) for index, ids in rows]
        write(("\n".join(lines) + "\n").encode())
        num_sequences += len(rows)
    return num_sequences


def _read_indices(shards: ShardSet) -> tuple[np.ndarray, np.ndarray]:
    """Check every batch; give the original index of every row, and where in it the row begins."""
    ledger = shards.manifest["ledger"]
    num_sequences = ledger["num_sequences"] + sum(ledger["num_dropped_sequences"].values())
    found, starts = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for number in range(shards.num_shards):
        shard = shards.open_shard(number)
        for index in np.flatnonzero(shard.find_unsound()).tolist():
            shard[index]  # says what is wrong
        indices, lengths = shard.tensors["original_indices"], shard.tensors["lengths"]
        nowhere = np.flatnonzero(((indices < 0) | (indices >= num_sequences)) & (lengths > 0))
        if len(nowhere):
            index = indices[nowhere[0]]
            raise FolderError(
                f"{shard.path}: original index {index}, the store has {num_sequences:,} sequences"
            )
        found.append(indices.copy())  # a view would keep the file of every shard open
        starts.append(shard.tensors.get("piece_starts", np.zeros_like(indices)).copy())
    return np.concatenate(found), np.concatenate(starts)
