"""Texts that are lists of words, which are joined with one space."""

from __future__ import annotations

from typing import Any

from seqpack_cli.corpus.conversations import hint_about
from seqpack_cli.corpus.document_block import SKIP_HINT, BadRecordError, check_unicode
from seqpack_cli.corpus.missing_fields import TEXT_FIELD
from seqpack_cli.errors import quote

WORDS_HINT = (
    "join the words with one space into a string, or keep their tags with --keep FIELD:tags"
)


def join_all_words(raw_texts: list[Any], *, takes_words: bool) -> list[str]:
    """Return texts, lists of words joined; raise TypeError if one is neither."""
    kinds = set(map(type, raw_texts))
    if kinds <= {str}:
        return raw_texts
    if not takes_words or not kinds <= {str, list}:
        raise TypeError("not a text")
    return [text if type(text) is str else " ".join(text) for text in raw_texts]


def join_words(
    raw_text: Any, text_field: str, *, takes_words: bool, option: str = TEXT_FIELD
) -> str:
    """Return a text, words joined.

    Args:
        option: which asks for the field.

    Raises:
        BadRecordError: it is neither a string nor a list of strings, if these are accepted.
    """
    hint = hint_about(raw_text, text_field, option)
    if isinstance(raw_text, list) and takes_words and hint is None:
        for number, word in enumerate(raw_text, 1):
            if not isinstance(word, str):
                raise BadRecordError(
                    f"field {quote(text_field)}: word {number} is {name_type(word)}, "
                    "expected a string"
                )
        raw_text = " ".join(raw_text)
    elif not isinstance(raw_text, str):
        expected = "a string or a list of words" if takes_words else "a string"
        is_words = isinstance(raw_text, list) and all(isinstance(word, str) for word in raw_text)
        raise BadRecordError(
            f"field {quote(text_field)} is {name_type(raw_text)}, expected {expected}",
            hint=hint or (WORDS_HINT if is_words else SKIP_HINT),
        )
    check_unicode(text_field, raw_text)
    text: str = raw_text
    return text


def name_type(value: Any) -> str:
    """Return the name of a value's type for an error."""
    names = {type(None): "null", list: "a list", dict: "an object"}
    return names.get(type(value), type(value).__name__)
