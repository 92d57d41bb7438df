"""Refuse bucket keys that conflict with other options of pack."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from seqpack_cli.batching.batch_costs import add_sides
from seqpack_cli.errors import OptionError

if TYPE_CHECKING:
    from seqpack_cli.batching.pack_options import PackOptions


def has_keys(options: PackOptions) -> bool:
    """Return whether the bucket keys are given."""
    return isinstance(options.buckets, tuple)


def check_keys(options: PackOptions) -> None:
    """Refuse bucket keys that conflict with --pad-to-multiple or --max-tokens."""
    keys: Any = options.buckets
    for key in keys:
        widths = key if isinstance(key, tuple) else (key,)
        shown, needed = spell_key(key), add_sides(widths, options.count)
        if any(width % options.pad_to_multiple for width in widths):
            raise OptionError(
                f"--buckets {shown}: not a multiple of --pad-to-multiple {options.pad_to_multiple}",
                hint="leave out --pad-to-multiple: the buckets set the widths",
            )
        budget = options.max_tokens if options.fills_rectangle else None
        if budget is not None and needed > budget:
            raise OptionError(
                f"--buckets {shown}: a single row exceeds --max-tokens {budget:,}",
                hint=f"pass --max-tokens {needed} or more, or leave out this bucket",
            )


def check_chosen_keys(keys: Sequence[tuple[int, int]], options: PackOptions) -> None:
    """Refuse a key that was chosen for pairs if --max-tokens has no room for a row of it.

    Each pair has room, but with --count sum a key may have the long sides of two of them.
    """
    budget = options.max_tokens if options.fills_rectangle else None
    key = max(keys, key=lambda key: add_sides(key, options.count))
    needed = add_sides(key, options.count)
    if budget is not None and needed > budget:
        raise OptionError(
            f"--buckets auto: a single row of the bucket {spell_key(key)} exceeds "
            f"--max-tokens {budget:,}",
            hint=f"pass --max-tokens {needed} or more, or the lengths of all buckets",
        )


def spell_key(key: object) -> str:
    """Return a bucket key as the option takes it.

    >>> spell_key(32), spell_key((10, 15))
    ('32', '(10,15)')
    """
    return f"({','.join(map(str, key))})" if isinstance(key, tuple | list) else str(key)
