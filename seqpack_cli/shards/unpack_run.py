"""Read the sequences of shards in their original order: the inverse of pack.

Every batch is checked once. Then rows are read in the order of the token store, about a million ids
at a time from all shards, with 32 bytes of memory per row. Split sequences are joined again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from itertools import islice, pairwise

import numpy as np

from seqpack_cli.errors import FolderError
from seqpack_cli.files.copy_marks import hashing_copies
from seqpack_cli.files.mapping import let_pages_go
from seqpack_cli.files.single_file import FileKind, parse_file, publish_alone
from seqpack_cli.files.url import AnyPath
from seqpack_cli.ranges import to_offsets
from seqpack_cli.runs.arguments import checks_arguments
from seqpack_cli.runs.progress import Progress
from seqpack_cli.shards.shard_set import ShardSet, open_shards
from seqpack_cli.tokens.decoder import open_decoder

ROWS_PER_WRITE = 1024
IDS_PER_READ = 1 << 20  # whose places take 8 bytes each; a longer row is read alone
ROWS_PER_READ = 1 << 16
NUMBERS = rb"(?:\d+(?:, \d+)*)?"
ROW = re.compile(
    rb'\{"index": (\d+), (?:"ids": \[' + NUMBERS + rb'\]|"text": "(?:[^"\\\n]|\\.)*")\}'
)
ROW_BEGIN = re.compile(rb'\{"index": \d+, "(?:ids": \[|text": ")')
LOOK_BYTES = 64 << 20  # 0.3 s


def _are_rows(head: bytes) -> bool:
    """Return whether the beginning of a file holds nothing but rows as unpack writes them."""
    *lines, rest = head.split(b"\n")
    rows = [ROW.fullmatch(line) for line in lines]
    indices = [int(row[1]) for row in rows if row is not None]
    is_rising = all(first < second for first, second in pairwise(indices))
    return len(indices) == len(rows) and is_rising and (not rest or bool(ROW_BEGIN.match(rest)))


ROWS = FileKind("rows that seqpack unpack wrote", _are_rows, max_bytes=LOOK_BYTES)


def iter_sequences(
    shards: ShardSet, progress: Progress | None = None
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (original index, ids) of every sequence in the shards, in ascending order.

    Raises:
        FolderError: a batch is damaged, a sequence occurs twice, or a piece of it is missing.
    """
    progress = progress or Progress()
    indices, starts, lengths = _read_indices(shards)
    order = np.lexsort((starts, indices))
    order = order[np.searchsorted(indices, 0, sorter=order) :]  # without filler rows: index -1
    progress.on_total(len(order))
    pieces: list[np.ndarray] = []
    num_ids = 0  # of the pieces
    before = -1
    for index, start, ids in _iter_rows(shards, order, indices, starts, lengths):
        if pieces and index != before:
            yield before, pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
            pieces, num_ids = [], 0
        if start != num_ids:
            what = f"sequence {index} occurs twice"
            if start:
                what = f"a piece of sequence {index} begins at token {start}, expected {num_ids}"
            raise FolderError(f"{shards.path}: {what}")
        pieces.append(ids)
        num_ids += len(ids)
        before = index
        progress.on_advance(1)
    if pieces:
        yield before, pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


@checks_arguments
@hashing_copies()
def unpack(
    shards: AnyPath,
    output: AnyPath,
    *,
    as_text: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> int:
    """Write the sequences of shards into a JSON lines file, in the order of the token store.

    Args:
        shards: the shards' folder.
        output: the file; each line has the `index` of a sequence and its `ids`.
        as_text: write the decoded `text` instead of `ids`.
        overwrite: replace a file that an earlier `unpack` wrote.

    Returns:
        The number of sequences.

    Raises:
        FolderError: the shards are damaged, or another file would be replaced.
        MachineError: the disk is full or fails.
    """
    opened = open_shards(shards)
    with publish_alone(parse_file(output), ROWS, overwrite=overwrite) as file:
        return write_sequences(opened, file.write, as_text=as_text, progress=progress)


@hashing_copies()
def write_sequences(
    shards: ShardSet,
    write: Callable[[bytes], None],
    *,
    as_text: bool = False,
    progress: Progress | None = None,
) -> int:
    """Write every sequence as one JSON line, `index` and `ids` or `text`; return their number."""
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


def _iter_rows(
    shards: ShardSet,
    order: np.ndarray,
    indices: np.ndarray,
    starts: np.ndarray,
    lengths: np.ndarray,
) -> Iterator[tuple[int, int, np.ndarray]]:
    """Yield original index, first token and ids of each row, in the given order."""
    opened = (shards.open_shard(number) for number in range(shards.num_shards))
    first_rows = to_offsets([len(shard.tensors["lengths"]) for shard in opened])
    ends = np.cumsum(lengths[order])
    first = 0
    while first < len(order):
        done = int(ends[first - 1]) if first else 0
        last = max(int(np.searchsorted(ends, done + IDS_PER_READ, "right")), first + 1)
        last = min(last, first + ROWS_PER_READ)
        rows = order[first:last]
        ids, offsets = _read_block(shards, rows, first_rows, lengths[rows])
        for place, (index, start) in enumerate(
            zip(indices[rows].tolist(), starts[rows].tolist(), strict=True)
        ):
            yield index, start, ids[offsets[place] : offsets[place + 1]]
        first = last


def _read_block(
    shards: ShardSet, rows: np.ndarray, first_rows: np.ndarray, lengths: np.ndarray
) -> tuple[np.ndarray, list[int]]:
    """Read some rows, shard by shard; return their ids and where each row begins."""
    offsets = to_offsets(lengths)
    ids = np.empty(int(offsets[-1]), shards.manifest["dtype"])
    numbers = np.searchsorted(first_rows, rows, "right") - 1
    by_shard = np.argsort(numbers, kind="stable")
    bounds = np.searchsorted(numbers[by_shard], np.arange(len(first_rows)))
    for number in np.flatnonzero(np.diff(bounds)).tolist():
        some = by_shard[bounds[number] : bounds[number + 1]]
        shard = shards.open_shard(number)
        shard.arrays.copy_rows(rows[some] - first_rows[number], ids, offsets[some])
        let_pages_go(shard.tensors["data"])
    return ids, offsets.tolist()


def _read_indices(shards: ShardSet) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Check every batch; return each row's original index, start in its sequence, and length."""
    num_sequences = shards.num_store_sequences
    nothing = np.empty(0, np.int64)
    found, starts, all_lengths = [nothing], [nothing], [nothing]
    for number in range(shards.num_shards):
        shard = shards.open_shard(number)
        for index in np.flatnonzero(shard.find_unsound()).tolist():
            shard[index]  # raises the error that describes what is wrong
        indices, lengths = shard.tensors["original_indices"], shard.tensors["lengths"]
        outside = np.flatnonzero(((indices < 0) | (indices >= num_sequences)) & (lengths > 0))
        if len(outside):
            index = indices[outside[0]]
            raise FolderError(
                f"{shard.path}: original index {index}, the store has {num_sequences:,} sequences"
            )
        found.append(indices.copy())  # a view would keep the file of every shard open
        starts.append(shard.arrays.piece_starts.copy())
        all_lengths.append(lengths.copy())
    return np.concatenate(found), np.concatenate(starts), np.concatenate(all_lengths)
