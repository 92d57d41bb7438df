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
from types import SimpleNamespace

import numpy as np
from shard_reference import Arrays, join_batches, lay_out

from seqpack_cli.ranges import to_offsets
from seqpack_cli.shards.layouts import Batch
from seqpack_cli.shards.shard import Shard
from seqpack_cli.shards.shard_arrays import ShardArrays
from seqpack_cli.tokens.indexed_dataset import Index
from seqpack_cli.tokens.token_store import TokenStore

MAX_PIECE = 5  # ids, of a sequence that varlen splits
NAME = "shard-00000.safetensors"


@dataclass(frozen=True)
class Kind:
    """The layout of batches and its options."""

    layout: str
    padding_side: str = "right"
    filler: bool = False
    splits: bool = False

    @property
    def max_tokens(self) -> int | None:
        """Where varlen splits a sequence."""
        return MAX_PIECE if self.splits else None


KINDS = {
    "packed": Kind("packed"),
    "padded": Kind("padded"),
    "padded left": Kind("padded", "left"),
    "filler": Kind("padded", filler=True),
    "filler left": Kind("padded", "left", filler=True),
    "varlen": Kind("varlen"),
    "pieces": Kind("varlen", splits=True),
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
    store._parts = SimpleNamespace(open_part=parts.__getitem__)  # type: ignore[assignment]
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
    rows = [(index, 0, ids) for index, ids in enumerate(sequences)]
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
        batches.append(_lay_out(kind, rows[:count], generator, pad_id))
        rows = rows[count:]
    return batches


def _lay_out(
    kind: Kind, rows: list[tuple[int, int, np.ndarray]], generator: random.Random, pad_id: int
) -> Batch:
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
    shard.arrays = ShardArrays(kind.layout, tensors, pad_id=pad_id, padding_side=kind.padding_side)
    return shard.with_tensors(tensors)


def draw_shard(
    kind: Kind, seed: int, *, dtype: str = "uint16", max_id: int = 65_535, num_most: int = 16
) -> tuple[Shard, TokenStore]:
    """Draw a valid shard, and the store of its sequences, each of which it holds once."""
    generator = random.Random(seed)
    sequences = draw_sequences(generator, dtype=dtype, max_id=max_id, num_most=num_most)
    batches = draw_batches(kind, sequences, generator)
    tensors = join_batches(kind.layout, batches, filler=kind.filler)
    store = make_store_in_memory(sequences, num_parts=generator.randint(1, 3))
    return make_shard_in_memory(kind, tensors, max_id=max_id), store
