"""Which rows and sequences of both sides of pairs are of the same document."""

from __future__ import annotations

import numpy as np

from seqpack_cli.errors import FolderError
from seqpack_cli.shards.packed import PackedBatch
from seqpack_cli.shards.shard import Shard
from seqpack_cli.shards.shard_set import ShardSet

ENCODER_ROWS = "encoder_rows"  # an array of packed pairs


def match_rows(shards: ShardSet, index: int) -> np.ndarray:
    """Return the decoder's row for each row of a batch of pairs, int64[rows], without filler."""
    assert shards.decoder is not None  # noqa: S101 - of pairs
    batch = shards.decoder[index].without_filler()
    if isinstance(batch, PackedBatch) and batch.encoder_rows is not None:
        return np.argsort(batch.encoder_rows)
    return np.arange(len(batch.lengths))


def find_partner(shards: ShardSet, index: int, row: int) -> int:
    """Return the decoder's sequence of the pair in a row of the encoder's batch."""
    assert shards.decoder is not None  # noqa: S101 - of pairs
    indices = shards.decoder[index].original_indices
    assert indices is not None  # noqa: S101 - shards always have them
    return int(indices[match_rows(shards, index)[row]])


def read_pairs(shards: ShardSet) -> tuple[np.ndarray, np.ndarray]:
    """Return the encoder's and the decoder's sequence of each pair, both int64[N], rising.

    A pair that is packed several times counts once.

    Raises:
        FolderError: a sequence has two partners, or partners are in another order, which those of
            aligned stores never are.
    """
    assert shards.decoder is not None  # noqa: S101 - of pairs
    found = [np.empty((2, 0), np.int64)]
    for number in range(shards.num_shards):
        encoder, decoder = (side.open_shard(number) for side in shards.sides)
        indices = encoder.tensors["original_indices"][_find_encoder_rows(decoder)]
        both = np.stack([indices, decoder.tensors["original_indices"]])
        found.append(both[:, decoder.tensors["lengths"] > 0])
    encoder_indices, decoder_indices = np.concatenate(found, axis=1)
    order = np.lexsort((decoder_indices, encoder_indices))
    pairs = np.stack([encoder_indices[order], decoder_indices[order]])
    is_new = np.ones(len(order), bool)
    is_new[1:] = (pairs[:, 1:] != pairs[:, :-1]).any(axis=0)
    pairs = pairs[:, is_new]
    wrong = np.flatnonzero((np.diff(pairs) <= 0).any(axis=0))
    if len(wrong):
        (first, second), (one, other) = pairs[:, wrong[0] : wrong[0] + 2].tolist()
        raise FolderError(
            f"{shards.path}: sequences {first} and {second} of the encoder are paired with {one} "
            f"and {other} of the decoder, expected rising ones"
        )
    return pairs[0], pairs[1]


def _find_encoder_rows(decoder: Shard) -> np.ndarray:
    """Return the encoder's row for each row of the decoder's side of a shard, int64[rows]."""
    rows = decoder.tensors.get(ENCODER_ROWS)
    if rows is None:
        return np.arange(len(decoder.tensors["lengths"]))
    arrays = decoder.arrays
    batches = arrays.batch_of_rows
    is_wrong = (rows < 0) | (rows >= arrays.num_rows[batches])
    if is_wrong.any():
        decoder[int(batches[is_wrong.argmax()])]  # raises the error that describes it
    found: np.ndarray = decoder.tensors["sequence_offsets"][batches] + rows
    return found
