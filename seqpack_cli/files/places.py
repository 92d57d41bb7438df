"""Which kind a place is: the only question in the package that tells paths from URLs.

`at(place)` has verbs, the same for both: `at(path).read(max_bytes=9)`, `at(folder).lock_folder()`.
"""

from __future__ import annotations

from seqpack_cli.files.local_place import LocalPlace
from seqpack_cli.files.remote_place import RemotePlace
from seqpack_cli.files.url import Place, Url


def at(place: Place) -> LocalPlace | RemotePlace:
    """Return what reads, writes, lists and locks at a place."""
    return RemotePlace(place) if isinstance(place, Url) else LocalPlace(place)
