"""What is packed of two aligned stores: the pairs of which both sides meet every condition.

For planning it is the source of the encoder's lengths, 0 where a pair is left out, with the
decoder's lengths beside them. A pair is left out for one reason: another split, else a side that is
empty, too short or too long, else a condition, no target, or no room in a batch, else its passes.
The ledgers of both sides count it under the same name.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np

from seqpack_cli.batching.options import DECODER, ENCODER, ResolvedOptions, parse_condition
from seqpack_cli.batching.plan import PairLengths, Plan, plan_batches
from seqpack_cli.batching.selection import EMPTY, SourceCounts, tally
from seqpack_cli.errors import OptionError, quote
from seqpack_cli.shards.alignment import Alignment
from seqpack_cli.shards.manifest import PREFIX, of_decoder, of_encoder
from seqpack_cli.shards.selected_store import SelectedStore
from seqpack_cli.shards.store_conditions import PartTest, make_test
from seqpack_cli.shards.store_splits import PartSplits
from seqpack_cli.shards.targets import make_targets_test
from seqpack_cli.tokens.store import TokenStore, choose_columns


class SelectedPairs(SelectedStore):
    """The encoder's lengths of pairs, 0 for each pair that is left out.

    Args:
        store: the encoder's side, with all columns.
        decoder: the decoder's side, with all columns.
        options, passes, find_split: as for `SelectedStore`.
    """

    def __init__(
        self,
        store: TokenStore,
        decoder: TokenStore,
        options: ResolvedOptions,
        passes: Sequence[Fraction] | None = None,
        *,
        find_split: PartSplits | None = None,
    ) -> None:
        self.alignment = Alignment(store, decoder)
        self.decoder = choose_columns(decoder, without=of_decoder(options).drop_column)
        self._decoder_store = decoder  # with the columns that conditions may name
        super().__init__(store, options, passes, find_split=find_split)
        own = of_encoder(options)  # its columns may be named as those of the decoder's side are
        self.store = choose_columns(store, without=own.drop_column, store_column=own.store_column)

    @property
    def sides(self) -> list[TokenStore]:
        """Return the stores of each side: the encoder's, and the decoder's."""
        return [self.store, self.decoder]

    def pair_up(self) -> PairLengths:
        """Return the decoder's side of all sequences, with its counts."""
        found = self._count(self._part_decoder_lengths)
        lone = tally(self.alignment.find_lone_lengths())  # whose encoder side is empty
        left_out = {**found.left_out, f"{ENCODER}.{EMPTY}": lone}
        counts = SourceCounts(found.kept, left_out, found.repeated)
        return PairLengths(self.alignment.decoder_indices, self.alignment.decoder_lengths, counts)

    def count(self, first: int = 0, last: int | None = None) -> SourceCounts:
        """Count the lengths of the encoder's side."""
        found = super().count(first, last)
        none = {f"{ENCODER}.{EMPTY}": (0, 0)}  # they have no sequence on this side
        return SourceCounts(found.kept, {**found.left_out, **none}, found.repeated)

    def plan(self, options: ResolvedOptions, counts: SourceCounts) -> Plan:
        """Plan the batches of the pairs."""
        return plan_batches(self, options, counts, pairs=self.pair_up(), rounds=self.rounds)

    def _part_decoder_lengths(self, number: int) -> np.ndarray:
        first, last = self.part_offsets[number : number + 2].tolist()
        lengths: np.ndarray = self.alignment.decoder_lengths[first:last]
        return lengths

    def _part_sides(self, number: int) -> list[np.ndarray]:
        return [self._all.part_lengths(number), self._part_decoder_lengths(number)]

    def _make_pair_tests(self) -> Iterator[tuple[str, PartTest]]:
        """Yield the test of pairs whose encoder's side alone has a sequence."""
        yield f"{DECODER}.{EMPTY}", lambda number: self._part_decoder_lengths(number) > 0

    def _make_condition(self, text: str) -> PartTest:
        """Return the test of a condition on a column of either side."""
        if text.lstrip().startswith(PREFIX):
            return self.alignment.spread(make_test(self._decoder_store, text, prefix=PREFIX))
        text = text.lstrip().removeprefix(f"{ENCODER}.")
        name = parse_condition(text).name
        if name in self._decoder_store.columns and name not in self._all.columns:
            raise OptionError(
                f"--where {quote(text)}: {self._all.shown_path} has no column {quote(name)}, the "
                "decoder's side has one",
                hint=f"to compare it, pass --where {shlex.quote(f'{PREFIX}{text}')}",
            )
        return super()._make_condition(text)

    def _make_targets_test(self) -> PartTest | None:
        """Return the test of pairs whose decoder side has a target."""
        test = make_targets_test(self._decoder_store, of_decoder(self.options))
        return None if test is None else self.alignment.spread(test)
