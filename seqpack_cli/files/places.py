"""Operations on a place, the same for a path and a URL: `at(place).read(max_bytes=9)`.

This is the only module that asks which of the two a place is.
"""

from __future__ import annotations

from seqpack_cli.files.local_place import LocalPlace
from seqpack_cli.files.remote_place import RemotePlace
from seqpack_cli.files.url import Place, Url


def at(place: Place) -> LocalPlace | RemotePlace:
    """Return the operations on a place: read, write, list, lock."""
    return RemotePlace(place) if isinstance(place, Url) else LocalPlace(place)
