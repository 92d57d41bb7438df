"""The tokenizer.json in a store or in shards, built once to see that it is what it has to be.

Its digest only says that it is the file which the manifest names. Building it takes 0.2 s for
50,000 tokens, so that only who looks into the whole folder does it: `verify` and `inspect`.
"""

from __future__ import annotations

from typing import Any

from seqpack_cli.errors import DataError, FolderError
from seqpack_cli.files.manifest import read_kept_tokenizer
from seqpack_cli.files.url import Place
from seqpack_cli.tokens.vocabulary import describe_vocabulary


def check_kept_tokenizer(folder: Place, manifest: dict[str, Any]) -> None:
    """Raise FolderError unless the folder's tokenizer has the vocabulary of its manifest."""
    tokenizer_json = read_kept_tokenizer(folder, manifest)
    path = folder / "tokenizer.json"
    try:
        vocabulary = describe_vocabulary(tokenizer_json)
    except DataError as error:
        what = error.message.removeprefix("tokenizer.json: ")
        raise FolderError(f"{path}: not a tokenizer ({what})") from error
    for name in ("vocab_size", "max_id"):
        found = getattr(vocabulary, name)
        if found != manifest[name]:
            raise FolderError(f"{path}: {name} is {found}, the manifest has {manifest[name]}")
