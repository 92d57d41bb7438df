"""Which rows and sequences of both sides of pairs are of the same document."""

from __future__ import annotations

import numpy as np

from seqpack_cli.batching.options import SIDES
from seqpack_cli.errors import FolderError, OptionError
from seqpack_cli.shards.layouts import Batch
from seqpack_cli.shards.shard import Shard
from seqpack_cli.shards.shard_set import ShardSet


def view_side(shards: ShardSet, side: str) -> ShardSet:
    """Return one side of pairs as shards of single sequences.

    Raises:
        OptionError: these are not pairs.
    """
    if len(shards.sides) == 1:
        raise OptionError(
            f"--side {side}: {shards.path} holds no pairs",
            hint="leave out --side, or name shards that pack --decoder wrote",
        )
    return shards.sides[SIDES.index(side)]


def list_in_encoder_order(batch: Batch) -> list[int]:
    """Return the rows of a batch, of a decoder's in the order of the encoder's rows."""
    rows = batch.encoder_rows
    return list(range(len(batch.lengths))) if rows is None else np.argsort(rows).tolist()


def match_rows(shards: ShardSet, index: int) -> list[int]:
    """Return the decoder's row for each row of a batch of pairs, without filler."""
    return list_in_encoder_order(shards.sides[1][index].without_filler())


def find_partner(shards: ShardSet, index: int, row: int) -> int:
    """Return the decoder's sequence of the pair in a row of the encoder's batch."""
    indices = shards.sides[1][index].original_indices
    assert indices is not None  # noqa: S101 - shards always have them
    return int(indices[match_rows(shards, index)[row]])


def read_pairs(shards: ShardSet) -> tuple[np.ndarray, np.ndarray]:
    """Return the encoder's and the decoder's sequence of each pair, both int64[N].

    They are sorted by the encoder's sequence; a pair that is packed several times counts once.

    Raises:
        FolderError: the rows of a batch are not matched one to one.
    """
    found = []
    for number in range(shards.num_shards):
        encoder, decoder = (side.open_shard(number) for side in shards.sides)
        decoder.check_all(cells=False)
        indices = encoder.tensors["original_indices"][find_matched_rows(decoder)]
        both = np.stack([indices, decoder.tensors["original_indices"]])
        found.append(both[:, decoder.tensors["lengths"] > 0])
    pairs = np.concatenate(found, axis=1)
    pairs = pairs[:, np.lexsort(pairs[::-1])]  # np.unique takes four times as long
    is_new = np.append(True, np.diff(pairs).any(axis=0))[: pairs.shape[1]]
    return pairs[0, is_new], pairs[1, is_new]


def find_matched_rows(decoder: Shard) -> np.ndarray:
    """Return the encoder's row for each row of the decoder's side of a sound shard, int64[rows].

    Rows are counted through the shard.
    """
    rows = decoder.tensors.get("encoder_rows")
    if rows is None:
        return np.arange(len(decoder.tensors["lengths"]))
    found: np.ndarray = decoder.tensors["sequence_offsets"][decoder.arrays.batch_of_rows] + rows
    return found


def check_pairs(shards: ShardSet) -> None:
    """Raise FolderError unless both sides of pairs are in the same order, as in aligned stores."""
    pairs = np.stack(read_pairs(shards))
    wrong = np.flatnonzero((np.diff(pairs) <= 0).any(axis=0))
    if len(wrong):
        (first, second), (one, other) = pairs[:, wrong[0] : wrong[0] + 2].tolist()
        raise FolderError(
            f"{shards.path}: sequences {first} and {second} of the encoder are paired with {one} "
            f"and {other} of the decoder, expected rising ones"
        )
