"""A tokenizer.json from the Hub of Hugging Face, by the name of its repository.

The client that `tokenizers` brings along fetches it and keeps it. Where the Hub cannot be reached,
which the client takes half a minute to find out, only what it has kept is asked for.
"""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path
from urllib.parse import urlsplit

from seqpack_cli.errors import MachineError, OptionError

MAX_SECONDS = 4.0  # until a Hub that does not answer counts as out of reach
HINT = "name a tokenizer.json, a folder that holds one, or bytes"


def download_tokenizer_json(name: str) -> bytes:
    """Fetch the tokenizer.json of a repository, or read the copy that was kept.

    Raises:
        OptionError: the Hub has no such repository, or no tokenizer.json in it.
        MachineError: the Hub cannot be reached, and there is no copy.
    """
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    from huggingface_hub import constants, hf_hub_download

    is_near = not constants.HF_HUB_OFFLINE and can_reach(constants.ENDPOINT)
    try:
        path = hf_hub_download(name, "tokenizer.json", local_files_only=not is_near)
        return Path(path).read_bytes()
    except Exception as error:  # a dozen kinds, from no network to no such repository
        if not is_near:
            raise MachineError(
                f"{name}: no such file or folder, and the Hub ({constants.ENDPOINT}) cannot be "
                "reached",
                hint=HINT,
            ) from error
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise OptionError(
            f"{name}: no such file or folder, and not found on the Hub: {reason[:200]}", hint=HINT
        ) from error


def can_reach(endpoint: str) -> bool:
    """Say whether a server takes connections; of one behind a proxy nothing is known: True."""
    from urllib.request import getproxies  # 16 ms, with ssl: only a name on the Hub needs it

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
