"""Sizes in bytes as users write them: 1048576, 2MB, 64MiB."""

from __future__ import annotations

import re

UNITS = {
    "": 1,
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
    "TIB": 2**40,
}


def read_size(text: str) -> int | None:
    """Return the bytes of a size, or None if the text is not a size.

    >>> read_size("1.5KiB")
    1536
    """
    from decimal import Decimal  # takes 3 ms, so not at the top

    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text.strip())
    unit = UNITS.get(match[2].upper()) if match else None
    return None if match is None or unit is None else int(Decimal(match[1]) * unit)
