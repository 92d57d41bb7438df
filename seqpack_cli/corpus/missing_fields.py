"""The error about a field that a record lacks: what it has instead, and which option to change."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from seqpack_cli.corpus.conversations import (
    MESSAGES_FIELD,
    find_conversation,
    is_conversation,
    propose_messages,
)
from seqpack_cli.corpus.document_block import SKIP_HINT, BadRecordError
from seqpack_cli.corpus.formats import TOKENIZE
from seqpack_cli.errors import join_items, quote

KEEP = "--keep"
TEXT_FIELD = "--text-field"
FIELD_HINT = re.compile(r"pass --(keep|[a-z]+-field) ")
IDS_FIELD, DOCUMENT_FIELD = "--ids-field", "--document-field"
# Of these, only a field of a similar name is proposed.
OTHERS = (KEEP, DOCUMENT_FIELD, "--labels-field", "--attention-mask-field", "--loss-mask-field")
SIMILAR = 0.7  # of two names, from 0 to 1


def missing_field_error(
    kind: str, option: str, name: str, found: Mapping[str, Any], *, taken: Sequence[str] = ()
) -> BadRecordError:
    """Return the error about a missing field.

    The hint names the option and a field: one of a similar name, or else a text, the longest. If
    there is a conversation, it is that, unless a field is called text.

    Args:
        kind: "field" or "column".
        option: which asks for the field.
        found: the fields that are there, and their values.
        taken: fields that other options ask for.
    """
    names = list_names(found)
    similar = get_close_matches(name, filter(str.isprintable, names), cutoff=SIMILAR)
    listed = join_items(map(quote, dict.fromkeys([*similar, *names]))) or "none"
    hint = SKIP_HINT if kind == "field" else None
    likely = _find_likely(option, found, similar, taken)
    is_text = option not in (*OTHERS, IDS_FIELD)
    messages = find_conversation(found) if is_text and likely not in similar else None
    if option == IDS_FIELD and likely is None and any(map(_is_readable, found.values())):
        hint = TOKENIZE
    elif messages is not None and likely != "text":
        hint = propose_messages(messages)
    elif likely is not None:
        hint = f"pass {option} {shlex.quote(likely)}"
    return BadRecordError(f"no {kind} {quote(name)} (found: {listed})", hint)


def proposes_field(hint: str | None) -> bool:
    """Return whether a hint proposes another field."""
    return hint is not None and FIELD_HINT.match(hint) is not None


def list_names(found: Mapping[str, Any]) -> list[str]:
    """Return the fields of an object, and those of the objects in it as dotted paths."""
    inside = [
        f"{name}.{key}" for name, inner in found.items() if isinstance(inner, dict) for key in inner
    ]
    return [*found, *inside]


def _find_likely(
    option: str, found: Mapping[str, Any], similar: Sequence[str], taken: Sequence[str]
) -> str | None:
    """Return the field that is probably meant, if any."""
    if option != TEXT_FIELD and similar:
        return similar[0]
    if option in OTHERS:
        return None
    is_likely = LIKELY.get(option, _is_text)
    sizes = {
        name: len(value)
        for name, value in found.items()
        if is_likely(value) and name not in taken and name.isprintable()
    }
    return max(sizes, key=lambda name: (name == "text", sizes[name]), default=None)


def _is_readable(value: Any) -> bool:
    """Return whether tokenize could read a value."""
    return _is_text(value) or is_conversation(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _is_ids(value: Any) -> bool:
    return isinstance(value, list) and not any(isinstance(x, str | list | dict) for x in value[:1])


LIKELY = {MESSAGES_FIELD: _is_list, IDS_FIELD: _is_ids}  # what an option probably means
