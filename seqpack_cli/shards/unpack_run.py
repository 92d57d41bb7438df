"""Shards -> their sequences in the original order: the inverse of pack.

Every batch is checked once; then rows are read one by one in the order of the token store, straight
from the maps, with 16 bytes of memory a sequence.
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
    indices = _read_indices(shards)
    order = np.argsort(indices, kind="stable")
    twice = np.flatnonzero(np.diff(indices[order]) == 0)
    if len(twice):
        raise FolderError(f"{shards.path}: sequence {indices[order[twice[0]]]} stands twice")
    first_rows = [0]
    for number in range(shards.num_shards):
        first_rows.append(first_rows[-1] + len(shards.open_shard(number).tensors["lengths"]))
    progress.on_total(len(order))
    for position in order:
        number = int(np.searchsorted(first_rows, position, "right")) - 1
        yield int(indices[position]), shards.open_shard(number).row(position - first_rows[number])
        progress.on_advance(1)


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


def _read_indices(shards: ShardSet) -> np.ndarray:
    """Check every batch and give the original index of every row, shard after shard."""
    found = []
    for number in range(shards.num_shards):
        shard = shards.open_shard(number)
        for index in range(len(shard)):
            shard[index]
        found.append(shard.tensors["original_indices"])
    return np.concatenate([np.empty(0, np.int64), *found])
