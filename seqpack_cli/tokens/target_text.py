"""A text of which some characters are targets: they count in the loss."""

from __future__ import annotations

from typing import NamedTuple

Span = tuple[int, int]  # the first character, and the end of the last one


class TargetText(NamedTuple):
    """The text of a document that was made from several fields."""

    text: str
    targets: tuple[Span, ...]  # rising, apart from each other, none empty
    canonical: bytes  # JSON of the fields, the same for equal values: what is hashed
    # Where special tokens are ids; elsewhere they are text, which has no private characters from
    # U+100000 on. None: wherever they are spelled, or nowhere, as the encoder is set.
    special: tuple[Span, ...] | None = None
    spelled: str = ""  # what the record itself says, if special tokens may be spelled in it
