"""Download the files of a tokenizer from the Hugging Face Hub, by the name of its repository.

huggingface_hub, which `tokenizers` depends on, downloads and caches them. It takes half a
minute to notice that the Hub cannot be reached; so that is checked first, and then only its cache
is used.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from urllib.parse import urlsplit

from seqpack_cli.errors import MachineError, OptionError

MAX_SECONDS = 4.0  # after which a Hub that does not answer counts as unreachable
HINT = "pass a tokenizer.json, a folder that contains one, or 'bytes'"


def download_tokenizer_json(name: str) -> bytes:
    """Download the tokenizer.json of a repository; see `download_files`."""
    return download_files(name, "tokenizer.json")["tokenizer.json"]


def download_files(name: str, needed: str, *optional: str) -> dict[str, bytes]:
    """Download files of a repository, or read their cached copies; return those that exist.

    Raises:
        OptionError: the Hub has no such repository, or the file that is needed is not in it.
        MachineError: the Hub cannot be reached, and there is no cached copy.
    """
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    from huggingface_hub import constants, hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    is_online = not constants.HF_HUB_OFFLINE and can_reach(constants.ENDPOINT)
    found = {}
    for file in (needed, *optional):
        try:
            path = hf_hub_download(name, file, local_files_only=not is_online)
            found[file] = Path(path).read_bytes()
        except Exception as error:  # of a dozen types, from no network to no such repository
            # Without the Hub, what is not in the cache counts as not in the repository.
            is_missing = isinstance(error, EntryNotFoundError) and not (
                is_online and isinstance(error, LocalEntryNotFoundError)
            )
            if is_missing and file != needed:
                continue
            if not is_online:
                raise MachineError(
                    f"{name}: no such file or folder, and the Hub ({constants.ENDPOINT}) cannot "
                    "be reached",
                    hint=HINT,
                ) from error
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise OptionError(
                f"{name}: no such file or folder, and not found on the Hub: {reason[:200]}",
                hint=HINT,
            ) from error
    return found


def can_reach(endpoint: str) -> bool:
    """Return whether a server accepts connections; always True if a proxy is configured."""
    import socket
    from urllib.request import getproxies  # takes 16 ms, with ssl, and is rarely needed

    if getproxies():
        return True
    address = urlsplit(endpoint)
    port = address.port or (80 if address.scheme == "http" else 443)
    answered = threading.Event()

    def connect() -> None:
        try:
            socket.create_connection((address.hostname, port), timeout=MAX_SECONDS).close()
        except OSError:
            return
        answered.set()

    # In a thread: looking a name up has no time limit of its own.
    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(MAX_SECONDS)
    return answered.is_set()
