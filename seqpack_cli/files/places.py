"""Operations on a place, the same for a path and a URL: `at(place).read(max_bytes=9)`.

This is the only module that asks which of the two a place is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seqpack_cli.files.local_place import LocalPlace
from seqpack_cli.files.url import Place, Url

if TYPE_CHECKING:
    from seqpack_cli.files.remote_place import RemotePlace


def at(place: Place) -> LocalPlace | RemotePlace:
    """Return the operations on a place: read, write, list, lock."""
    if not isinstance(place, Url):
        return LocalPlace(place)
    from seqpack_cli.files.remote_place import RemotePlace

    return RemotePlace(place)
