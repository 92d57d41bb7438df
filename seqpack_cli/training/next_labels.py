"""Next-token labels for a batch of each layout: the label of a token is the token after it.

Labels stand where the token stands that they follow, so a model's outputs and its labels are
aligned and nothing is shifted afterwards. The last token of a sequence, and padding, have IGNORED,
which `cross_entropy` leaves out. A piece of a split sequence ends like a sequence: what follows is
in another row.
"""

from __future__ import annotations

import numpy as np

from seqpack_cli.shards.layouts import Batch
from seqpack_cli.shards.packed import PackedBatch
from seqpack_cli.shards.padded import PaddedBatch

IGNORED = -100  # cross_entropy's ignore_index


def make_next_labels(batch: Batch) -> np.ndarray:
    """Give the next-token labels of a batch that was checked.

    Returns:
        int64, in the shape of the batch's ids: [S], or [B, width] for padded.

    >>> from seqpack_cli.shards.pack_and_pad import pack
    >>> make_next_labels(pack([np.array([1, 2, 3]), np.array([9])])).tolist()
    [2, -100, 3, -100]
    """
    if isinstance(batch, PackedBatch):
        return _label_packed(batch.data, batch.batch_sizes)
    if isinstance(batch, PaddedBatch):
        return _label_padded(batch.ids, batch.mask)
    labels = np.full(len(batch.data), IGNORED, np.int64)
    labels[:-1] = batch.data[1:]
    labels[np.cumsum(batch.lengths) - 1] = IGNORED
    return labels


def _label_packed(data: np.ndarray, batch_sizes: np.ndarray) -> np.ndarray:
    """The row at place j of a step was at place j of the step before, which is larger."""
    labels = np.full(len(data), IGNORED, np.int64)
    first = int(batch_sizes[0])
    followed = np.arange(first, len(data))
    followed -= np.repeat(batch_sizes[:-1], batch_sizes[1:])
    labels[followed] = data[first:]
    return labels


def _label_padded(ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """A cell is followed where it and the next one hold tokens."""
    labels = np.full(ids.shape, IGNORED, np.int64)
    is_followed = mask[:, :-1] & mask[:, 1:]
    labels[:, :-1][is_followed] = ids[:, 1:][is_followed]
    return labels
