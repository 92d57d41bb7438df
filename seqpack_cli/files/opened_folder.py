"""The folder of an opened token store or shard set, whose files are mapped later.

Between opening and mapping, the process may change its working folder, a copy may travel to another
process, and another run may replace the files. So the real path is kept, and after a file was
mapped, the manifest is compared with the one that was opened: a run that replaces files removes the
manifest first. That takes a `stat`; the manifest is read only if its status changed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from blake3 import blake3

from seqpack_cli.errors import FolderError
from seqpack_cli.files.json_files import MAX_JSON_BYTES
from seqpack_cli.files.manifest import MANIFEST_NAME
from seqpack_cli.files.places import at
from seqpack_cli.files.url import Place


class OpenedFolder:
    """A folder and the digest of the manifest that was read in it."""

    def __init__(self, path: Place, digest: str) -> None:
        self.digest = digest
        self._named, self._real = path, path.resolve()
        self._status: tuple[int, ...] | None = None  # of the manifest when it was last compared

    @property
    def path(self) -> Place:
        """The path as the caller named it, or the real one if that name now leads elsewhere."""
        try:
            return self._named if self._named.resolve() == self._real else self._real
        except (OSError, RuntimeError):  # no working folder any more, or a loop of links
            return self._real

    @contextlib.contextmanager
    def while_same(self) -> Iterator[None]:
        """Check that the folder still has the manifest that was opened, when the block has ended.

        Objects in an object store need no check: each is compared with its checksum when it is
        opened.

        Raises:
            FolderError: the manifest is missing or another one.
        """
        try:
            yield
        except FolderError:
            self._check_same()
            raise
        self._check_same()

    def check_digest(self, digest: str) -> None:
        """Raise FolderError unless a manifest that was read here again has the same digest."""
        if digest != self.digest:
            raise self._replaced_error()

    def _check_same(self) -> None:
        manifest = at(self._real / MANIFEST_NAME)
        try:
            status = manifest.find_status()
            if status == self._status:
                return
            digest = blake3(manifest.read(max_bytes=MAX_JSON_BYTES)).hexdigest()
        except FolderError as error:
            raise self._replaced_error() from error
        self.check_digest(digest)
        self._status = status

    def _replaced_error(self) -> FolderError:
        return FolderError(
            f"{self.path}: its files were replaced or removed since they were opened",
            hint="open the folder again",
        )
