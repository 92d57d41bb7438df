"""Random stores and valid shards in memory, with any ids and any layout, drawn by a seed.

Nothing is on disk: a shard of a few batches takes a millisecond, and it may have ids that no
tokenizer of the tests has. Equal lengths, single rows, filler, wide rows and pieces are frequent.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from shard_reference import Arrays, join_batches, lay_out

from seqpack_cli.batching.options import LAYOUTS
from seqpack_cli.ranges import to_offsets
from seqpack_cli.shards.layouts import Batch, Geometry
from seqpack_cli.shards.shard import ARRAYS, Shard
from seqpack_cli.shards.shared_rows import StreamsBatch, VarlenBatch
from seqpack_cli.tokens.part_files import Index
from seqpack_cli.tokens.store import TokenStore

MAX_PIECE = 5  # ids, of a sequence that varlen splits
ROW_LENGTH = 16  # of rows that sequences share
NUM_STEPS = 6  # of a batch of streams
NUM_ROWS = 3  # of a batch whose rows are shared
Row = tuple[int, int, np.ndarray]  # index of the sequence, start in it, ids
NAME = "shard-00000.safetensors"


@dataclass(frozen=True)
class Kind:
    """The layout of batches and its options."""

    layout: str
    padding_side: str = "right"
    filler: bool = False
    splits: bool = False
    has_rows: bool = False  # varlen batches of up to NUM_ROWS rows of ROW_LENGTH
    multiple: int = 1

    @property
    def shares_rows(self) -> bool:
        """Whether sequences share rows."""
        return LAYOUTS[self.layout].shares_rows

    @property
    def piece_length(self) -> int | None:
        """The length of all pieces but the last; None if they may have any."""
        if self.layout == "streams":
            return None
        return MAX_PIECE if self.splits else ROW_LENGTH

    @property
    def most_of_second(self) -> int:
        """The largest start of the second piece of a sequence."""
        return NUM_STEPS if self.layout == "streams" else MAX_PIECE

    def make_geometry(self, pad_id: int = 0) -> Geometry:
        """Return what the layout of these batches needs to know."""
        is_rectangle = self.has_rows or self.layout == "streams"
        length = NUM_STEPS if self.layout == "streams" else ROW_LENGTH
        return Geometry(
            pad_id,
            self.padding_side,
            self.filler,
            NUM_ROWS if is_rectangle else None,
            length if is_rectangle else 0,
            self.multiple,
        )


KINDS = {
    "packed": Kind("packed"),
    "padded": Kind("padded"),
    "padded left": Kind("padded", "left"),
    "filler": Kind("padded", filler=True),
    "filler left": Kind("padded", "left", filler=True),
    "varlen": Kind("varlen"),
    "pieces": Kind("varlen", splits=True),
    "rows": Kind("varlen", splits=True, has_rows=True),
    "aligned": Kind("varlen", multiple=4),
    "aligned rows": Kind("varlen", has_rows=True, multiple=4),
    "streams": Kind("streams"),
}


def draw_sequences(
    generator: random.Random, *, dtype: str = "uint16", max_id: int = 65_535, num_most: int = 16
) -> list[np.ndarray]:
    """Draw sequences of 1 to 12 token ids, many of the same length."""
    lengths = generator.sample(range(1, 13), generator.randint(1, 4))
    return [
        np.array([generator.randint(0, max_id) for _ in range(generator.choice(lengths))], dtype)
        for _ in range(generator.randint(1, num_most))
    ]


def make_store_in_memory(sequences: Sequence[np.ndarray], *, num_parts: int = 2) -> TokenStore:
    """Make a store of sequences in parts of about equal size."""
    store = object.__new__(TokenStore)
    store.dtype = sequences[0].dtype.name
    store.lengths = np.array([len(sequence) for sequence in sequences], np.int32)
    bounds = [len(sequences) * part // num_parts for part in range(num_parts + 1)]
    store.part_offsets = np.array(bounds)
    parts: list[tuple[np.ndarray, Index]] = []
    store._open_part = parts.__getitem__  # type: ignore[method-assign]
    for first, last in pairwise(bounds):
        ids = np.concatenate([np.empty(0, sequences[0].dtype), *sequences[first:last]])
        ids.flags.writeable = False
        lengths = store.lengths[first:last]
        starts = to_offsets(lengths)[:-1] * ids.itemsize
        parts.append((ids, Index(lengths, starts, np.arange(len(lengths) + 1))))
    return store


def draw_batches(
    kind: Kind, sequences: Sequence[np.ndarray], generator: random.Random, *, pad_id: int = 0
) -> list[Batch]:
    """Lay all sequences out in batches of 1 to 4 rows, most of the same number."""
    rows: list[Row] = [(index, 0, ids) for index, ids in enumerate(sequences)]
    if kind.layout == "streams":
        generator.shuffle(rows)
        return deal_streams(rows, pad_id)
    if kind.splits:
        rows = [
            (index, start, ids[start : start + MAX_PIECE])
            for index, _, ids in rows
            for start in range(0, len(ids), MAX_PIECE)
        ]
    generator.shuffle(rows)
    if generator.random() < 0.5:
        rows.sort(key=lambda row: -len(row[2]))
    usual = generator.randint(1, 4)
    batches = []
    while rows:
        count = usual if generator.random() < 0.8 else generator.randint(1, 4)
        if kind.has_rows:
            places = _place(rows, kind.multiple)
            count = sum(row < min(usual, NUM_ROWS) for row, _ in places)
        some, rows = rows[:count], rows[count:]
        if kind.has_rows or kind.multiple > 1:
            batches.append(_lay_out_rows(kind, some, pad_id))
        else:
            batches.append(_lay_out(kind, some, generator, pad_id))
    return batches


def _place(rows: list[Row], multiple: int) -> list[tuple[int, int]]:
    """Return row and first cell of each sequence; rows are filled one after another."""
    places, row, cell = [], 0, 0
    for _, _, ids in rows:
        length = -(-len(ids) // multiple) * multiple
        if cell + length > ROW_LENGTH:
            row, cell = row + 1, 0
        places.append((row, cell))
        cell += length
    return places


def _lay_out_rows(kind: Kind, rows: list[Row], pad_id: int) -> VarlenBatch:
    """Lay sequences out in rows of one length, or in one row with gaps."""
    found = _join_rows(rows)
    dtype, multiple = rows[0][2].dtype, kind.multiple
    if not kind.has_rows:
        cells: list[int] = []
        for _, _, ids in rows:
            cells += [*ids.tolist(), *[pad_id] * (-len(ids) % multiple)]
        return VarlenBatch(np.array(cells, dtype), *found, multiple=multiple)
    places = _place(rows, multiple)
    rectangle = np.full((places[-1][0] + 1, ROW_LENGTH), pad_id, dtype)
    for (row, cell), (_, _, ids) in zip(places, rows, strict=True):
        rectangle[row, cell : cell + len(ids)] = ids
    numbers = np.array([row for row, _ in places], np.int64)
    return VarlenBatch(
        rectangle.reshape(-1),
        *found,
        row_indices=numbers,
        row_length=ROW_LENGTH,
        multiple=multiple,
    )


def deal_streams(rows: list[Row], pad_id: int) -> list[Batch]:
    """Cut sequences into chunks of NUM_STEPS tokens, and deal these to NUM_ROWS streams in runs."""
    tokens = [(index, place, id_) for index, _, ids in rows for place, id_ in enumerate(ids)]
    chunks = [tokens[start : start + NUM_STEPS] for start in range(0, len(tokens), NUM_STEPS)]
    least, num_longer = divmod(len(chunks), NUM_ROWS)
    streams, start = [], 0
    for stream in range(NUM_ROWS):
        end = start + least + (stream >= NUM_ROWS - num_longer)
        streams.append(chunks[start:end])
        start = end
    dtype = rows[0][2].dtype
    return [_make_step(streams, step, dtype, pad_id) for step in range(len(streams[-1]))]


def _make_step(
    streams: list[list[list[tuple[int, int, int]]]], step: int, dtype: np.dtype[Any], pad_id: int
) -> StreamsBatch:
    """Make the batch of one chunk of each stream, token by token."""
    rectangle = np.full((NUM_STEPS, NUM_ROWS), pad_id, dtype)
    pieces: list[list[int]] = []  # index, start, length, stream, reset, next id
    for number, stream in enumerate(streams):
        chunk = stream[step] if step < len(stream) else []
        before = stream[step - 1][-1][:2] if step and chunk else (-1, -1)
        after = stream[step + 1][0] if step + 1 < len(stream) else (-1, -1, -1)
        for cell, (index, place, id_) in enumerate(chunk):
            rectangle[cell, number] = id_
            if cell == 0 or place == 0:
                goes_on = cell == 0 and (index, place - 1) == before
                pieces.append([index, place, 0, number, 1 - goes_on, -1])
            pieces[-1][2] += 1
        if chunk and after[:2] == (chunk[-1][0], chunk[-1][1] + 1):
            pieces[-1][5] = after[2]
    columns = np.array(pieces, np.int64).T
    return StreamsBatch(
        rectangle.reshape(-1), columns[2], columns[0], columns[1], *columns[3:], NUM_ROWS
    )


def _join_rows(rows: list[Row]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return lengths, indices and starts of rows."""
    columns = [[len(ids), index, start] for index, start, ids in rows]
    lengths, indices, starts = np.array(columns, np.int64).T
    return lengths, indices, starts


def _lay_out(kind: Kind, rows: list[Row], generator: random.Random, pad_id: int) -> Batch:
    if kind.layout != "varlen":
        rows = sorted(rows, key=lambda row: -len(row[2]))
    wider = generator.choice([0, 0, 0, 1, 4]) if kind.layout == "padded" else 0
    return lay_out(
        kind.layout,
        [ids for _, _, ids in rows],
        np.array([index for index, _, _ in rows], np.int64),
        pad_id=pad_id,
        width=max(len(ids) for _, _, ids in rows) + wider,
        padding_side=kind.padding_side,
        num_filler_rows=generator.choice([0, 0, 1, 3]) if kind.filler else 0,
        piece_starts=np.array([start for _, start, _ in rows], np.int64),
    )


def make_shard_in_memory(
    kind: Kind, tensors: Arrays, *, pad_id: int = 0, max_id: int = 65_535
) -> Shard:
    """Make a shard of arrays with correct offsets."""
    shard = object.__new__(Shard)
    shard.path = Path(NAME)
    shard.entry = {}
    shard.layout = kind.layout
    shard.padding_side = kind.padding_side
    shard.pad_id, shard.max_id = pad_id, max_id
    shard.first_batch = 0
    shard.arrays = ARRAYS[kind.layout](tensors, kind.make_geometry(pad_id))
    return shard.with_tensors(tensors)


def draw_shard(
    kind: Kind, seed: int, *, dtype: str = "uint16", max_id: int = 65_535, num_most: int = 16
) -> tuple[Shard, TokenStore]:
    """Draw a valid shard, and the store of its sequences, each of which it holds once."""
    generator = random.Random(seed)
    sequences = draw_sequences(generator, dtype=dtype, max_id=max_id, num_most=num_most)
    batches = draw_batches(kind, sequences, generator)
    tensors = join_batches(kind.layout, batches, kind.make_geometry())
    store = make_store_in_memory(sequences, num_parts=generator.randint(1, 3))
    return make_shard_in_memory(kind, tensors, max_id=max_id), store
