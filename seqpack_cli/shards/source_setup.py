"""How a worker opens what a run packs: the same stores, with the same selection of sequences."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from fractions import Fraction

from seqpack_cli.batching.pack_options import PackOptions
from seqpack_cli.files.copy_marks import find_began
from seqpack_cli.files.url import Place
from seqpack_cli.shards.selected_store import SelectedStore
from seqpack_cli.shards.store_rows import changed_error
from seqpack_cli.tokens.open_store import open_stores


@dataclass(frozen=True)
class SourceSetup:
    """The stores of a run and what of them is packed.

    Args:
        digest: of the stores, which may be replaced while the run works.
        options: resolved, with stores named by position.
        passes: of each store.
        began: when the run began, in ns: see `hashing_copies`.
    """

    places: tuple[Place, ...]
    digest: str
    options: PackOptions
    passes: tuple[Fraction, ...]
    began: int | None = None

    @classmethod
    def of(cls, source: SelectedStore) -> SourceSetup:
        """Return that of an opened source."""
        places = tuple(store.path.resolve() for store in source.store.stores)
        passes, began = source.passes, find_began()
        return cls(places, source.store.digest, source.options, passes, began)


@functools.lru_cache(maxsize=1)
def open_source(setup: SourceSetup) -> SelectedStore:
    """Open a source once in a worker; another run opens it again.

    Raises:
        FolderError: a store was replaced.
    """
    options = setup.options
    # the run has checked the indices
    store = open_stores(setup.places, check_indices=False, without=options.drop_column)
    if store.digest != setup.digest:
        raise changed_error(store.shown_path)
    return SelectedStore(store, options, setup.passes)
