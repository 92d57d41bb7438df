"""The token store of shards, opened for `verify`: from level `roundtrip` on it has to be there.

Whoever has the shards alone can still check their structure; then the plan is not compared, and the
report says why.
"""

from __future__ import annotations

from seqpack_cli.errors import FolderError, SeqpackError
from seqpack_cli.files.url import Place
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.tokens.token_store import TokenStore, open_store
from seqpack_cli.tokens.vocabulary import check_kept_tokenizer
from seqpack_cli.verification.verify_options import VerifyOptions


def find_matching_store(
    shards: ShardSet, options: VerifyOptions
) -> tuple[TokenStore | None, str | None]:
    """Open the token store that the shards were packed from; else say why there is none.

    Raises:
        FolderError: it is damaged, or it is not there or another one and has to be.
    """
    try:
        store = _open_store(shards, options.tokens)
    except SeqpackError as error:
        if options.depth > 1 or options.tokens is not None:
            raise
        return None, error.message
    store.check_indices()
    if store.manifest["tokenizer_blake3"] == shards.manifest["tokenizer_blake3"]:
        store.read_tokenizer_json()  # the copy beside the shards is looked into with them
    else:
        check_kept_tokenizer(store.path, store.manifest)
    return store, None


def _open_store(shards: ShardSet, path: Place | None) -> TokenStore:
    found = path or shards.find_store()
    if found is None:
        place = shards.manifest["tokens_path"][:200]
        raise FolderError(
            f"{shards.path}: its token store is no longer at {place}",
            hint="pass --tokens STORE, or --level structure to go without it",
        )
    store = open_store(found, check_indices=False)
    if store.digest != shards.manifest["tokens_blake3"]:
        raise FolderError(
            f"{store.path}: another token store than the one these shards were packed from",
            hint="pass --tokens STORE with that one, or pack again",
        )
    return store
