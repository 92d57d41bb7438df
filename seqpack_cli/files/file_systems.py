"""Open fsspec's file system for the protocol of a URL, and turn its failures into our errors.

fsspec and the packages behind it do the work, retries included. Access, endpoints and regions come
from their own settings (`AWS_…`, `GOOGLE_…`, `FSSPEC_…`, ~/.config/fsspec); seqpack has no options
for them.
"""

from __future__ import annotations

import contextlib
import functools
from contextlib import AbstractContextManager
from typing import Any

from seqpack_cli.errors import MachineError, OptionError
from seqpack_cli.files.failures import naming_failures

PACKAGES = {  # by protocol
    "s3": "s3fs",
    "s3a": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
}
# No cached listings: other machines write at the same time.
SETTINGS: dict[str, Any] = {"use_listings_cache": False}
# botocore's "standard" mode also retries dropped connections and 503, with growing pauses. s3fs
# retries around it: an object store that does not answer is an error after about a minute.
S3_SETTINGS: dict[str, Any] = {
    **SETTINGS,
    "config_kwargs": {
        "retries": {"mode": "standard", "max_attempts": 4},
        "connect_timeout": 10,
        "read_timeout": 30,
        # Each put has a CRC, over http too; a signed payload would cost as much as our own hash.
        "s3": {"payload_signing_enabled": False},
    },
}
AGAIN_HINT = "run the same command again when the object store answers"
ACCESS_HINT = "check the credentials and their permissions"


@functools.cache
def open_file_system(protocol: str) -> Any:
    """Open the file system of a protocol, once per process.

    Raises:
        MachineError: its package is not installed.
        OptionError: fsspec does not know the protocol.
    """
    try:
        import fsspec
    except ImportError as error:
        raise MachineError(
            f"fsspec is not installed, {protocol}:// needs it", hint="pip install fsspec"
        ) from error
    try:
        with contextlib.suppress(ValueError):
            fsspec.get_filesystem_class(protocol)
        settings = S3_SETTINGS if PACKAGES.get(protocol) == "s3fs" else SETTINGS
        return fsspec.filesystem(protocol, **settings)
    except ImportError as error:
        if protocol not in PACKAGES:
            raise MachineError(f"{protocol}://: {error}") from error
        package = PACKAGES[protocol]
        raise MachineError(
            f"{package} is not installed, {protocol}:// needs it",
            hint=f"pip install {package}",
        ) from error
    except ValueError as error:
        raise OptionError(f"{protocol}://: {error}", hint="use a path, s3:// or gs://") from error


def naming_requests(url: object) -> AbstractContextManager[None]:
    """Turn a failure of the object store into an error that names the object.

    Each package raises its own exceptions, most of them not OSError.
    """
    return naming_failures(
        url, missing=(FileNotFoundError,), others=Exception, find_hint=_find_hint
    )


def _find_hint(error: Exception) -> str:
    is_denied = isinstance(error, PermissionError) or "Credential" in type(error).__name__
    return ACCESS_HINT if is_denied else AGAIN_HINT
