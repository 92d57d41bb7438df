"""Level `roundtrip` of one batch: send its ids through torch's functions on the device.

It passes if pad_packed_sequence (both values of `batch_first`, with `total_length` and
`padding_value`) and unpack_sequence return exactly the token store's sequences, and packing these
again returns exactly the stored data and batch_sizes. These are integers, so there is no tolerance.
Only a sample is checked here, since unpack_sequence is slow, and batches in which `shard_roundtrip`
found a difference, to find out which.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import (
    PackedSequence,
    pack_padded_sequence,
    pack_sequence,
    pad_packed_sequence,
    unpack_sequence,
)

from seqpack_cli.shards.layouts import Batch
from seqpack_cli.shards.manifest import OF_STORES
from seqpack_cli.shards.packed import pack_ids
from seqpack_cli.tokens.store import TokenStore
from seqpack_cli.verification.integers.blocks import NO_ID
from seqpack_cli.verification.integers.stacks import EXTRA_STEPS
from seqpack_cli.verification.torch_rows import to_torch_rows


def check_batch(
    batch: Batch, store: TokenStore, device: torch.device, *, piece_length: int | None = None
) -> Iterator[tuple[int | None, str]]:
    """Yield (row or None, what differs) for a batch that passed the level `structure`.

    Args:
        piece_length: of all pieces but the last where rows are shared; None: they may have any.
    """
    batch = batch.without_filler()
    assert batch.original_indices is not None  # noqa: S101 - shards always have them
    beyond = np.flatnonzero(batch.original_indices >= len(store))
    if len(beyond):
        index = batch.original_indices[beyond[0]]
        what = f"original index {index} is out of range"
        yield int(beyond[0]), f"{what}: the token store has {len(store)} sequences"
        return
    rows = _read_rows(batch, store, piece_length)
    found = _compare_rows(batch.rows(), rows)
    if found is not None:
        yield found
        return
    for_torch = to_torch_rows(batch)
    rows = [rows[row] for row in for_torch.order]
    expected = torch.from_numpy(np.concatenate(rows).astype(np.int64)).to(device)
    lengths = torch.from_numpy(for_torch.lengths.copy())
    packed = for_torch.to_packed_sequence(device)
    for what in _check_torch(packed, expected, lengths):
        yield None, what
    own = torch.from_numpy(
        pack_ids(np.concatenate(rows), for_torch.lengths).data.astype(np.int64)
    ).to(device)
    if not torch.equal(packed.data, own):
        yield None, "the packed data differs from the token store's sequences, packed"


def _read_rows(batch: Batch, store: TokenStore, piece_length: int | None) -> list[np.ndarray]:
    """Return the store's ids of each row; of a piece, those up to the start of the next one."""
    assert batch.original_indices is not None  # noqa: S101 - shards always have them
    rows = [store[index] for index in batch.original_indices]
    if batch.piece_starts is None:
        return rows
    lengths = batch.lengths if piece_length is None else np.full_like(batch.lengths, piece_length)
    pieces = zip(rows, batch.piece_starts.tolist(), lengths.tolist(), strict=True)
    return [row[start : start + length] for row, start, length in pieces]


def compare_manifests(manifest: dict[str, Any], store: TokenStore) -> Iterator[str]:
    """Yield where the manifests of shards and stores disagree on the ids, or on their sizes.

    The size of a model follows from these numbers.
    """
    for name in ("dtype", *OF_STORES, "tokenizer_blake3"):
        if manifest[name] != store.manifest[name]:
            yield f"{name} is {manifest[name]}, the token store has {store.manifest[name]}"
    for number, (entry, one) in enumerate(zip(manifest["stores"], store.folders, strict=True), 1):
        for name, in_store in (
            ("num_sequences", one.num_sequences),
            ("num_tokens", one.num_tokens),
        ):
            if entry[name] != in_store:
                yield f"{name} of store {number} is {entry[name]}, the token store has {in_store}"


def _compare_rows(found: list[np.ndarray], expected: list[np.ndarray]) -> tuple[int, str] | None:
    for row, (ids, wanted) in enumerate(zip(found, expected, strict=True)):
        if len(ids) != len(wanted):
            return row, f"length {len(ids)}, the token store has {len(wanted)}"
        if not np.array_equal(ids, wanted):
            step = int((ids != wanted).argmax())
            return row, f"id {ids[step]} at step {step}, the token store has {wanted[step]}"
    return None


def _check_torch(
    packed: PackedSequence, expected: torch.Tensor, lengths: torch.Tensor
) -> Iterator[str]:
    """Yield where the results of torch's functions differ from the expected ids, row after row."""
    longest = int(lengths[0])
    for batch_first, total_length in ((True, longest + EXTRA_STEPS), (False, None)):
        padded, found_lengths = pad_packed_sequence(
            packed, batch_first=batch_first, padding_value=NO_ID, total_length=total_length
        )
        rectangle = padded if batch_first else padded.transpose(0, 1)  # (B, T)
        width = total_length or longest
        mask = torch.arange(width) < lengths[:, None]
        mask = mask.to(packed.data.device)
        name = f"pad_packed_sequence(batch_first={batch_first}, total_length={total_length})"
        if not torch.equal(found_lengths, lengths):
            yield f"{name} returns wrong lengths"
        elif not torch.equal(rectangle[mask], expected):
            yield f"{name} returns ids that differ from the token store's"
        elif not bool((rectangle[~mask] == NO_ID).all()):
            yield f"{name} does not fill padding with padding_value"
        repacked = pack_padded_sequence(padded, lengths, batch_first, enforce_sorted=True)
        if not _equal(repacked, packed):
            yield f"pack_padded_sequence(batch_first={batch_first}) does not restore the data"
    rows = unpack_sequence(packed)
    if not torch.equal(torch.cat(rows), expected):
        yield "unpack_sequence returns ids that differ from the token store's"
    if not _equal(pack_sequence(rows, enforce_sorted=True), packed):
        yield "pack_sequence does not restore the data"


def _equal(first: PackedSequence, second: PackedSequence) -> bool:
    return torch.equal(first.data, second.data) and torch.equal(
        first.batch_sizes, second.batch_sizes
    )
