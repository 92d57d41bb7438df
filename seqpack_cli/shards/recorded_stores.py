"""Check the stores that the manifest of shards or splits records, before anything depends on them.

Digests must be checksums of different stores, and the passes of each store those that the recorded
options give it. With `--share` the passes also depend on the lengths: `verify` finds them again.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

from seqpack_cli.batching.options import (
    MAX_PASSES,
    PackOptions,
    ResolvedOptions,
    parse_max_passes,
    parse_number,
    spell_number,
)
from seqpack_cli.errors import FolderError, OptionError, quote
from seqpack_cli.files.json_files import check_fields
from seqpack_cli.files.places import Place
from seqpack_cli.shards.selection import find_store_passes, name_by_position
from seqpack_cli.tokens.columns import TARGETS, read_columns
from seqpack_cli.tokens.store import MAX_STORES

DIGEST = re.compile("[0-9a-f]{64}")


def check_stores(stores: list[Any], fields: dict[str, type], source: Place) -> None:
    """Raise FolderError unless there are entries of different stores.

    Args:
        fields: those of each entry, `blake3` among them.
    """
    for entry in stores:
        check_fields(entry, fields, source=source)
        if not DIGEST.fullmatch(entry["blake3"]):
            raise FolderError(
                f"{source}: blake3 of a store is {quote(entry['blake3'])}, expected 64 hexadecimal "
                "digits"
            )
    num_different = len({entry["blake3"] for entry in stores})
    if not 1 <= num_different == len(stores) <= MAX_STORES:
        raise FolderError(
            f"{source}: {len(stores):,} stores, {num_different:,} of them different, expected 1 to "
            f"{MAX_STORES:,} different ones"
        )


def check_passes(stores: list[dict[str, Any]], options: ResolvedOptions, source: Place) -> None:
    """Raise FolderError unless the passes of each store are those that the options give.

    Args:
        stores: checked by `check_stores`.
        options: those that the manifest records.
    """
    found = [_parse_passes(entry["passes"], source) for entry in stores]
    positions = [str(number) for number in range(1, len(stores) + 1)]
    try:
        named = name_by_position(options, positions)
        if options.share is None or not options.has_passes:
            expected = find_store_passes(options, positions, lambda: ())
        else:  # they depend on the lengths of the stores too
            most = parse_max_passes(options.max_passes or "1")
            expected = [min(passes, most) for passes in found]
    except OptionError as error:
        raise FolderError(f"{source}: {error.message[:200]}") from error
    for name in ("passes", "share"):
        value, canonical = getattr(options, name), getattr(named, name)
        if value != canonical:
            raise FolderError(
                f"{source}: option {name} is {quote(value)}, pack would record {quote(canonical)}"
            )
    for number, (passes, wanted) in enumerate(zip(found, expected, strict=True), 1):
        if passes != wanted:
            raise FolderError(
                f"{source}: store {number} has {spell_number(passes)} passes, its options give it "
                f"{spell_number(wanted)}"
            )


def check_columns(manifest: dict[str, Any], options: PackOptions, source: Place) -> None:
    """Raise FolderError if the columns contradict the options about columns."""
    columns = read_columns(manifest, source)
    dropped = (name for name in options.drop_column if name != options.store_column)
    if found := [name for name in dropped if name in columns]:
        raise FolderError(f"{source}: has column {quote(found[0])}, which its options drop")
    if options.keep_without_target and TARGETS not in columns:
        raise FolderError(f"{source}: option keep_without_target, but there is no column targets")
    if options.store_column is None:
        return
    added, num_stores = columns.get(options.store_column), len(manifest["stores"])
    labels = () if added is None else added.class_names or ()
    if added is None or added.is_per_token or len(labels) != num_stores:
        raise FolderError(
            f"{source}: option store_column is {quote(options.store_column)}, which is not a "
            f"column of {num_stores:,} classes"
        )


def _parse_passes(text: str, source: Place) -> Fraction:
    try:
        passes = parse_number(text, "passes of a store", MAX_PASSES)
    except OptionError as error:
        raise FolderError(f"{source}: {error.message}") from error
    if spell_number(passes) != text:
        raise FolderError(
            f"{source}: passes of a store {quote(text)}, expected {spell_number(passes)}"
        )
    return passes
