"""Errors about files: what the system or a store refuses, and what is not as a manifest says.

One mechanism turns exceptions of a system, or of the package behind a store, into errors that name
the file; which of them mean that it is missing, and what the hints are, its callers say.
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
    """Turn what goes wrong in a block into an error that names the place.

    Raises:
        FolderError: of the exceptions that mean that nothing is there.
        MachineError: of all others; of some the hint says what to do.
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
    """Say what went wrong on one line; some of the exceptions have no text."""
    text = getattr(error, "strerror", None) or str(error).strip() or type(error).__name__
    return " ".join(str(text).split())[:200]


def check_same_size(place: object, size: int, num_bytes: int | None) -> None:
    """Raise FolderError if a file is not as long as it should be; None: it may have any size."""
    if num_bytes not in (None, size):
        raise FolderError(f"{place}: {size:,} bytes, manifest says {num_bytes:,}")


def check_at_most(place: object, size: int, max_bytes: int) -> None:
    """Raise FolderError if a file is longer than it may be."""
    if size > max_bytes:
        raise FolderError(f"{place}: {size:,} bytes, expected at most {max_bytes:,}")


def foreign_lock_error(lock: object) -> FolderError:
    """Make the error about a file in the place of a lock that no run of ours has written."""
    return FolderError(
        f"{lock}: not a lock file of seqpack",
        hint="remove it if it is not needed, or choose another -o",
    )


def in_use_error(folder: object, holder: str) -> FolderError:
    """Make the error about a folder that others write.

    Args:
        holder: who they are, and the verb: "process 7 on host is writing".
    """
    return FolderError(f"{folder}: {holder} here", hint=WAIT_HINT)
