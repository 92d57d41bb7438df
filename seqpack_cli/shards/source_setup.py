"""How a worker opens what a run packs: the same stores, with the same selection of sequences."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from seqpack_cli.batching.options import PackOptions, ResolvedOptions
from seqpack_cli.files.places import Place
from seqpack_cli.shards.manifest import of_decoder, of_encoder
from seqpack_cli.shards.selection import SelectedStore, Selector
from seqpack_cli.shards.store_rows import changed_error
from seqpack_cli.tokens.store import TokenStore, open_stores


@dataclass(frozen=True)
class SourceSetup:
    """The stores of a run and what of them is packed.

    Args:
        digest: of the stores, which may be replaced while the run works.
        options: resolved, with stores named by position.
        passes: of each store.
    """

    places: tuple[Place, ...]
    digest: str
    options: ResolvedOptions
    passes: tuple[Fraction, ...]
    decoder_places: tuple[Place, ...] = ()  # of pairs
    decoder_digest: str | None = None

    @classmethod
    def of(cls, source: SelectedStore) -> SourceSetup:
        """Return that of an opened source."""
        places, *others = (
            tuple(store.path.resolve() for store in side.folders) for side in source.sides
        )
        found = cls(places, source.store.digest, source.options, source.passes)
        if not others:
            return found
        return replace(found, decoder_places=others[0], decoder_digest=source.sides[1].digest)


@functools.lru_cache(maxsize=1)
def open_source(setup: SourceSetup) -> SelectedStore:
    """Open a source once in a worker; another run opens it again.

    Raises:
        FolderError: a store was replaced.
    """
    options, passes = setup.options, setup.passes
    if setup.decoder_digest is None:
        store = _open(setup.places, setup.digest, options)
        return Selector(store)(options, passes)
    store = _open(setup.places, setup.digest, of_encoder(options))
    decoder = _open(setup.decoder_places, setup.decoder_digest, of_decoder(options))
    return Selector(store, decoder)(options, passes)


def _open(places: Sequence[Place], digest: str, options: PackOptions) -> TokenStore:
    """Open the stores of one side, whose indices the run has checked."""
    store = open_stores(places, check_indices=False, without=options.drop_column)
    if store.digest != digest:
        raise changed_error(store.shown_path)
    return store
