"""JSON that has the same bytes for equal values: what is hashed of a record with several fields.

orjson writes it where it is installed, ten times as fast. Only strings, integers, true, false and
null are left to it: numbers with a fraction it writes differently, and it accepts what is not JSON.
"""

from __future__ import annotations

import json
from typing import Any

from seqpack_cli.corpus.json_lines import find_parser
from seqpack_cli.corpus.levels import iter_levels

# A template needs a few of Python's frames per level, and 1,000 are allowed, so that whether a
# record is accepted must not depend on how deep the caller stands.
MAX_DEPTH = 100
SIMPLE = {str, int, bool, type(None), list, dict}
_encode = json.JSONEncoder(
    ensure_ascii=False,
    check_circular=False,  # MAX_DEPTH is checked
    allow_nan=False,
    sort_keys=True,
    separators=(",", ":"),
).encode


def encode_canonical(record: dict[str, Any]) -> bytes:
    """Return a record as JSON with sorted keys and without spaces.

    Raises:
        RecursionError: it is nested more than MAX_DEPTH levels deep.
        UnicodeEncodeError: a string has a lone surrogate.
        TypeError, ValueError: it has what JSON does not have.

    >>> encode_canonical({"b": ["Hé"], "a": 1.5}).decode()
    '{"a":1.5,"b":["Hé"]}'
    """
    dump_sorted = find_parser().dump_sorted
    if _is_simple(record) and dump_sorted is not None:
        try:
            return dump_sorted(record)
        except TypeError:  # an integer above 64 bits, or a lone surrogate
            pass
    return _encode(record).encode()


def _is_simple(record: dict[str, Any]) -> bool:
    """Return whether a record is of the types that orjson writes as the standard library."""
    is_simple = True
    for depth, (kinds, _) in enumerate(iter_levels([record])):
        if depth == MAX_DEPTH:
            raise RecursionError
        is_simple = is_simple and kinds <= SIMPLE
    return is_simple
