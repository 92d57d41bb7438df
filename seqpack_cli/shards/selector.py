"""Opened stores of which something is selected: single sequences, or pairs of two sides."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from seqpack_cli.batching.options import ResolvedOptions
from seqpack_cli.shards.alignment import Alignment
from seqpack_cli.shards.selected_pairs import SelectedPairs
from seqpack_cli.shards.selected_store import SelectedStore
from seqpack_cli.shards.store_splits import PartSplits
from seqpack_cli.tokens.store import TokenStore


class Selector:
    """The opened stores of a run, from which each set of options selects.

    Args:
        store: the stores, of the encoder's side if these are pairs.
        decoder: those of the decoder's side; None for single sequences.
    """

    def __init__(self, store: TokenStore, decoder: TokenStore | None = None) -> None:
        self.store = store
        self.decoder = decoder

    @property
    def sides(self) -> list[TokenStore]:
        """The stores of each side."""
        return [self.store] if self.decoder is None else [self.store, self.decoder]

    def check(self) -> None:
        """Raise OptionError unless the stores of both sides hold the same documents."""
        if self.decoder is not None:
            Alignment(self.store, self.decoder).check()

    def __call__(
        self,
        options: ResolvedOptions,
        passes: Sequence[Fraction] | None = None,
        *,
        find_split: PartSplits | None = None,
    ) -> SelectedStore:
        """Return what resolved options select; see `SelectedStore` and `SelectedPairs`."""
        if self.decoder is None:
            return SelectedStore(self.store, options, passes, find_split=find_split)
        return SelectedPairs(self.store, self.decoder, options, passes, find_split=find_split)
