"""Counts, sizes and rates as people read them."""

from __future__ import annotations


def count(number: int, noun: str) -> str:
    """Put a number before its noun.

    >>> count(1, "shard"), count(2000, "batch")
    ('1 shard', '2,000 batches')
    """
    plural = f"{noun}es" if noun.endswith(("ch", "s")) else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def show_bytes(count: int) -> str:
    """Give a size in a unit that is easily read."""
    for unit, size in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= 0.99995 * size:  # less would be rounded to 999.9 of the unit below
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"


def show_share(share: float) -> str:
    """Show a share in percent; only all is 100 %, only none is 0 %.

    >>> show_share(0.12345), show_share(0.99999), show_share(1), show_share(1e-9)
    ('12.35%', '99.99%', '100.00%', '0.01%')
    """
    if 0 < share < 1:
        share = min(max(share, 0.0001), 0.9999)
    return f"{share:.2%}"


def show_span(first: int, last: int) -> str:
    """Show from where to where numbers go.

    >>> show_span(1, 2000), show_span(64, 64)
    ('1 to 2,000', '64')
    """
    return f"{first:,}" if first == last else f"{first:,} to {last:,}"


def show_rate(per_second: float) -> str:
    """Show a number of tokens a second in three digits.

    >>> show_rate(41_234_567), show_rate(2_340), show_rate(12)
    ('41.2 M', '2.34 k', '12')
    """
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if per_second >= size:
            return f"{per_second / size:#.3g}".rstrip(".") + f" {unit}"
    return f"{per_second:.3g}"
