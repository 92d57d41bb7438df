"""The passes of each store, from `--passes` or `--share`, which name stores by folder or position.

What is recorded names them by position alone, since folders may be moved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

from seqpack_cli.batching.options import PackOptions
from seqpack_cli.batching.passes import (
    MAX_PASSES,
    find_passes,
    parse_passes,
    resolve_stores,
    spell_by_position,
)
from seqpack_cli.batching.shares import parse_number, parse_shares
from seqpack_cli.errors import OptionError, join_items, quote

ONE_PASS = Fraction(1)


def name_by_position(
    options: PackOptions, names: Sequence[str], links: Sequence[str] = ()
) -> PackOptions:
    """Return resolved options whose passes and shares name stores by position, from 1.

    Args:
        names: of the stores.
        links: their names as the user spelled them, which may be links.

    Raises:
        OptionError: a name is unknown, or a store has no share.
    """
    if options.passes is not None:
        passes = resolve_stores(parse_passes(options.passes), names, "--passes", links)
        return replace(options, passes=spell_by_position(passes))
    if options.share is not None:
        shares = resolve_stores(parse_shares(options.share, "--share"), names, "--share", links)
        missing = [name for name, share in zip(names, shares, strict=True) if share is None]
        if missing:
            raise OptionError(
                f"--share: no share for {join_items(map(quote, missing))}, expected one for each "
                "store",
                hint=f"pass smaller shares, with {missing[0]}=rest for what they leave",
            )
        return replace(options, share=spell_by_position(shares))
    return options


def find_store_passes(
    options: PackOptions, names: Sequence[str], count_tokens: Callable[[], Sequence[int]]
) -> list[Fraction]:
    """Return the passes of each store.

    Args:
        options: with stores named by position.
        names: of the stores, for messages.
        count_tokens: returns the tokens of each store that can be packed.

    Raises:
        OptionError: a store does not exist, or has no tokens for its share.
    """
    positions = [str(number) for number in range(1, len(names) + 1)]
    if not options.has_passes:
        return [ONE_PASS] * len(names)
    if options.passes is not None:
        found = resolve_stores(parse_passes(options.passes), positions, "--passes")
        return [ONE_PASS if passes is None else passes for passes in found]
    assert options.share is not None  # noqa: S101 - or it has no passes
    shares = resolve_stores(parse_shares(options.share, "--share"), positions, "--share")
    given = {name: share for name, share in zip(names, shares, strict=True) if share is not None}
    if len(given) < len(names):
        raise OptionError(f"--share {quote(options.share)}: not a share for each store")
    most = ONE_PASS
    if options.max_passes is not None:
        most = parse_number(options.max_passes, "--max-passes", MAX_PASSES)
    return find_passes(count_tokens(), given, most)
