"""Errors about files: refused by the system or an object store, or different from the manifest.

`naming_failures` turns exceptions of the system, or of the package behind an object store, into
errors that name the file. Its callers say which exceptions mean "missing", and what to hint.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from seqpack_cli.errors import FolderError, MachineError, SeqpackError

WAIT_HINT = "wait until it ends, or choose another -o"


@contextlib.contextmanager
def naming_failures(
    place: object,
    *,
    missing: tuple[type[Exception], ...] = (),
    others: type[Exception] = OSError,
    find_hint: Callable[[Exception], str | None] = lambda _: None,
) -> Iterator[None]:
    """Turn an exception in a block into an error that names the place.

    Args:
        missing: exceptions that become a FolderError "missing".
        others: exceptions that become a MachineError.
        find_hint: returns the hint for one of the others.
    """
    try:
        yield
    except SeqpackError:
        raise
    except missing as error:
        raise FolderError(f"{place}: missing") from error
    except others as error:
        raise MachineError(f"{place}: {_describe(error)}", hint=find_hint(error)) from error


def _describe(error: Exception) -> str:
    """Return the text of an exception on one line, or its type if it has no text."""
    text = getattr(error, "strerror", None) or str(error).strip() or type(error).__name__
    return " ".join(str(text).split())[:200]


def check_same_size(place: object, size: int, num_bytes: int | None) -> None:
    """Raise FolderError if a file has not the expected size; None accepts any size."""
    if num_bytes not in (None, size):
        raise FolderError(f"{place}: {size:,} bytes, manifest says {num_bytes:,}")


def check_at_most(place: object, size: int, max_bytes: int) -> None:
    """Raise FolderError if a file is too large."""
    if size > max_bytes:
        raise FolderError(f"{place}: {size:,} bytes, expected at most {max_bytes:,}")


def foreign_lock_error(lock: object) -> FolderError:
    """Return the error about a lock file that seqpack did not write."""
    return FolderError(
        f"{lock}: not a lock file of seqpack",
        hint="remove it if it is not needed, or choose another -o",
    )


def in_use_error(folder: object, holder: str) -> FolderError:
    """Return the error about a folder that another process is writing.

    Args:
        holder: subject and verb, as in "process 7 on host is writing".
    """
    return FolderError(f"{folder}: {holder} here", hint=WAIT_HINT)
