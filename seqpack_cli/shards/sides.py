"""The two sides of pairs: the encoder's sequences, and the decoder's of the same documents.

A shard file holds the arrays of the encoder's side under their own names, and those of the
decoder's behind a prefix; a manifest holds the decoder's fields in an object. Seen from the
decoder's side both are those of ordinary shards, so that one code reads either side.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from seqpack_cli.batching.options import DECODER, ENCODER, PackOptions
from seqpack_cli.files.manifest import SIDE

PREFIX = f"{DECODER}."  # of the names of the decoder's arrays and columns


def find_side(manifest: Mapping[str, Any]) -> str | None:
    """Return the side whose fields a manifest has; None if it is not of pairs."""
    side: str | None = manifest.get(SIDE)
    return side if manifest["decoder"] is None else ENCODER


def hold_pairs(manifest: Mapping[str, Any]) -> bool:
    """Return whether the shards of a manifest, or of a side of it, hold pairs."""
    return find_side(manifest) is not None


def view_decoder(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return a manifest of pairs as that of the decoder's side."""
    shards = [{**entry, **entry["decoder"]} for entry in manifest["shards"]]
    return {**manifest, **manifest["decoder"], "shards": shards, "decoder": None, SIDE: DECODER}


def of_encoder(options: PackOptions) -> PackOptions:
    """Return the options of pairs as they choose the columns of the encoder's side."""
    names = tuple(name for name in options.drop_column if not name.startswith(PREFIX))
    return replace(options, drop_column=names)


def of_decoder(options: PackOptions) -> PackOptions:
    """Return the options of pairs as they choose the columns of the decoder's side."""
    names = (name for name in options.drop_column if name.startswith(PREFIX))
    found = tuple(name.removeprefix(PREFIX) for name in names)
    return replace(options, drop_column=found, store_column=None)


def own_options(manifest: Mapping[str, Any], options: PackOptions) -> PackOptions:
    """Return the options of a manifest as they choose the columns of its side."""
    if SIDE in manifest:
        return of_decoder(options)
    if manifest["decoder"] is None:
        return options
    return replace(of_encoder(options), keep_without_target=False)  # targets are the decoder's


def choose_tensors(tensors: Mapping[str, Any], side: str | None) -> dict[str, Any]:
    """Return the arrays of a side under the names that a file of single sequences gives them.

    Args:
        side: one of SIDES; None where a file holds single sequences.
    """
    if side is None:
        return dict(tensors)
    if side == ENCODER:
        return {name: array for name, array in tensors.items() if not name.startswith(PREFIX)}
    return {
        name.removeprefix(PREFIX): array
        for name, array in tensors.items()
        if name.startswith(PREFIX)
    }


def name_tensors(tensors: Mapping[str, Any], side: str | None) -> dict[str, Any]:
    """Return the arrays of a side under the names that they have in a file; see choose_tensors."""
    prefix = PREFIX if side == DECODER else ""
    return {f"{prefix}{name}": array for name, array in tensors.items()}
