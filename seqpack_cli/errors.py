"""Errors in a user's options, data, files or machine, each with its exit code.

One line says where, what was found and what was expected; a hint may add one thing to type. The
click group prints the error. Wrong arguments of a library call raise ValueError instead, and our
own bugs end in a traceback.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

# Control characters, lone surrogates, line and paragraph separators, marks that change the writing
# direction, characters that XML does not allow.
CONTROLS = "[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029\u202a-\u202e\u2066-\u2069\ufffe\uffff]"
# In a URL: `user:password@` (the password may contain a slash), and secret values of the query.
SECRETS = (  # upper or lower case
    r"(:/+)(?!arn:)(?:[^/\s@]*|[^/\s@:]*:(?!\d+/)[^\s@]*)@"
    r"|((?:[?&#;]|%3f|%26|%23|%3b)"
    r"(?:[\w.%-]*(?:signature|credential|token|secret|passw|key|auth)[\w.%-]*?|sig)(?:=|%3d))[^&\s'\"]+"
)
MAX_QUOTED_CHARACTERS = 60
MAX_LISTED_ITEMS = 5
MAX_COUNT = 2**31 - 1  # of tokens, rows and other things, as the longest sequence possible
MAX_SIZE = 2**50  # of a file or a part of it, in bytes
MAX_SEED = 2**64 - 1


class SeqpackError(Exception):
    """Base of all errors that are shown to the user; the program ends with its exit code."""

    exit_code = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        message, hint = mask_secrets(message), hint and mask_secrets(hint)
        super().__init__(message, hint)  # both in args, so that workers can pickle the error
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        lines = [self.message]
        if self.message.startswith("Caught "):  # a DataLoader added its worker's traceback
            lines = self.message.split("\n")
        message = "\n".join(map(escape_controls, lines))
        return f"{message}\n\nhint: {escape_controls(self.hint)}" if self.hint else message


class OptionError(SeqpackError):
    """An option or argument cannot be used: a missing input, an unknown token."""

    exit_code = 2


class DataError(SeqpackError):
    """A text, record or tokenizer cannot be read in its format."""

    exit_code = 3


class FolderError(SeqpackError):
    """A store or shard set is incomplete, damaged, from another run, or in use."""

    exit_code = 4


class MachineError(SeqpackError):
    """The disk, the memory, the device or a worker process failed."""

    exit_code = 5


class ModelError(SeqpackError):
    """The user's own model raised an exception; its traceback is shown below the message."""

    exit_code = 5

    def __init__(self, message: str, hint: str | None = None, *, traceback: str = "") -> None:
        super().__init__(message, hint)
        self.traceback = traceback.rstrip()

    def __str__(self) -> str:
        lines = map(escape_controls, self.traceback.split("\n"))
        return "\n".join([super().__str__(), "", *lines]) if self.traceback else super().__str__()


def escape_controls(text: str) -> str:
    """Escape control characters, and characters that change the direction of text, as Python does.

    >>> escape_controls("a name with a line end\\n and \\x1b[2J")
    'a name with a line end\\\\n and \\\\x1b[2J'
    """
    return re.sub(CONTROLS, lambda found: found[0].encode("unicode_escape").decode(), text)


def mask_secrets(text: str) -> str:
    """Replace passwords and signatures in the URLs of a text with `***`.

    >>> mask_secrets("s3://me:pass@bucket/key?X-Amz-Signature=0123&part=1")
    's3://***@bucket/key?X-Amz-Signature=***&part=1'
    """
    return re.sub(
        SECRETS,
        lambda found: f"{found[1]}***@" if found[1] else f"{found[2]}***",
        text,
        flags=re.IGNORECASE,
    )


def quote(value: object) -> str:
    """Return the repr of a value, cut to MAX_QUOTED_CHARACTERS.

    >>> quote("a\\nb")
    "'a\\\\nb'"
    """
    text = repr(value)
    if len(text) <= MAX_QUOTED_CHARACTERS:
        return text
    return text[: MAX_QUOTED_CHARACTERS - 1] + "…"


def join_items(items: Iterable[object]) -> str:
    """Join the first items with commas and count the rest.

    >>> join_items("abcdefg")
    'a, b, c, d, e and 2 more'
    """
    texts = [str(item) for item in items]
    shown = ", ".join(texts[:MAX_LISTED_ITEMS])
    hidden = len(texts) - MAX_LISTED_ITEMS
    return f"{shown} and {hidden} more" if hidden > 0 else shown


def suggest(name: str, names: Iterable[str]) -> str:
    """Return a question that names the most similar of some names; "" if none is similar.

    >>> suggest("packk", ["unpack", "pack", "plan"])
    "; did you mean 'pack'?"
    """
    from difflib import get_close_matches  # takes 2 ms, so not at the top

    near = get_close_matches(name, names, 1)
    return "".join(f"; did you mean {each!r}?" for each in near)


def check_choice(name: str, value: object, choices: Iterable[object]) -> None:
    """Raise ValueError unless value is one of the choices."""
    allowed = list(choices)
    if value not in allowed:
        raise ValueError(f"{name} is {value!r}, expected {' or '.join(map(repr, allowed))}")


def check_positive(name: str, value: int | None, *, at_most: int = MAX_COUNT) -> None:
    """Raise ValueError unless value is None or from 1 to at_most."""
    if value is not None:
        _check_range(name, value, 1, at_most)


def check_seed(name: str, seed: int) -> None:
    """Raise ValueError unless a seed is from 0 to MAX_SEED."""
    _check_range(name, seed, 0, MAX_SEED)


def _check_range(name: str, value: int, at_least: int, at_most: int) -> None:
    if value < at_least:
        raise ValueError(f"{name} is {value}, expected at least {at_least}")
    if value > at_most:
        raise ValueError(f"{name} is {value}, expected at most {at_most}")
