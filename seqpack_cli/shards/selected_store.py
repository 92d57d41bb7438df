"""What is packed of a store: the sequences of a split that meet every condition, in some passes.

For planning it is a source of lengths in which a sequence that is left out has length 0: indices
stay those of the store, and every order takes only lengths of 1 or more. Passes above 1 are several
such sources, the rounds. Splits, conditions and passes are evaluated part by part, on the hashes
and columns as they lie in the files; each sequence then takes 1 bit.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from seqpack_cli.batching.options import ResolvedOptions, parse_splits
from seqpack_cli.batching.plan import Plan, list_fits, plan_batches
from seqpack_cli.batching.selection import (
    NO_TARGET,
    OTHER_SPLITS,
    PASSES,
    WHERE,
    LengthCounts,
    LengthTest,
    PartLengths,
    SourceCounts,
    Tally,
    add_up,
    count_lengths,
    count_rounds,
    count_visits,
    find_first_rounds,
    join_counts,
    list_length_tests,
    tally,
)
from seqpack_cli.shards.round import Round, join_parts
from seqpack_cli.shards.store_conditions import PartTest, join_tests, make_test
from seqpack_cli.shards.store_passes import find_store_passes
from seqpack_cli.shards.store_splits import PartSplits, make_splitter
from seqpack_cli.shards.targets import make_targets_test
from seqpack_cli.tokens.store import TokenStore, choose_columns


class SelectedStore:
    """The lengths of a store, 0 for each sequence that is left out.

    Args:
        store: the store, with all columns.
        options: resolved, with stores named by position.
        passes: of each store, if they are known; None finds those of the options.
        find_split: finds the splits of a part, if they are known.

    Raises:
        OptionError: a condition, a split or the passes name what the stores do not have, or compare
            a column with what it cannot hold; or an option has no effect.
    """

    def __init__(
        self,
        store: TokenStore,
        options: ResolvedOptions,
        passes: Sequence[Fraction] | None = None,
        *,
        find_split: PartSplits | None = None,
    ) -> None:
        without = options.drop_column
        self.store = choose_columns(store, without=without, store_column=options.store_column)
        self.options, self.part_offsets = options, store.part_offsets
        self._all = store
        self._tests = list(self._make_tests(find_split))
        self._turns: dict[int, tuple[np.ndarray, np.ndarray]] = {}  # by part
        names = [str(each.path) for each in store.folders]
        self.passes = tuple(passes or find_store_passes(options, names, self._count_tokens))

    @property
    def sides(self) -> list[TokenStore]:
        """Return the stores of each side: the only one."""
        return [self.store]

    def plan(self, options: ResolvedOptions, counts: SourceCounts) -> Plan:
        """Plan the batches of the sequences.

        Args:
            options: resolved; those of this selection, with others for batches.
            counts: of the lengths.
        """
        return plan_batches(self, options, counts, rounds=self.rounds)

    def with_seed(self, seed: int) -> SelectedStore:
        """Return the same selection with the fractions of passes and the rounds of another seed.

        Splits and conditions are not evaluated again.
        """
        other = copy.copy(self)
        other.options, other._turns = replace(self.options, seed=seed), {}
        other.__dict__.pop("rounds", None)  # they belong to the source
        return other

    @property
    def is_whole(self) -> bool:
        """Return whether every sequence is taken once."""
        return not self._tests and not self.options.has_passes

    @cached_property
    def rounds(self) -> Sequence[PartLengths]:
        """The sources that are planned one by one; the source itself if it is the only one."""
        num_rounds = count_rounds(self.passes)
        if num_rounds == 1:
            return (self,)
        return [Round(self, number, num_rounds) for number in range(num_rounds)]

    @property
    def lengths(self) -> np.ndarray:
        """Return the lengths of all sequences, int32[N]."""
        return self.store.lengths if self.is_whole else join_parts(self)

    def part_lengths(self, number: int) -> np.ndarray:
        """Return the lengths of one part, int32."""
        lengths = self.store.part_lengths(number)
        if self.is_whole:
            return lengths
        taken: np.ndarray = lengths * (self.find_visits(number) > 0)
        return taken

    def find_visits(self, number: int) -> np.ndarray:
        """Return how often each sequence of a part is visited, int32."""
        visits, passes = self._find_taken(number).astype(np.int32), self._find_passes(number)
        if passes != 1:
            of_document = count_visits(self.store.part_hashes(number), passes, self.options.seed)
            visits *= self.store.spread(number, of_document)
        return visits

    def find_turns(self, number: int, num_rounds: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the first round and the visits of each sequence of a part, both int16; kept."""
        if number not in self._turns:
            first_rounds = find_first_rounds(
                self.store.part_hashes(number), num_rounds, self.options.seed
            )
            visits = self.find_visits(number)
            both = self.store.spread(number, first_rounds), visits.astype(np.int16)
            self._turns[number] = both
        return self._turns[number]

    def count(self, first: int = 0, last: int | None = None) -> SourceCounts:
        """Count the lengths of a range of parts; of all by default."""
        return self._count(self.store.part_lengths, first, last)

    def _count(
        self, part_lengths: Callable[[int], np.ndarray], first: int = 0, last: int | None = None
    ) -> SourceCounts:
        """Count lengths, of which a part has one for each sequence."""
        numbers = range(self.store.num_parts)[first:last]
        if self.is_whole:
            return SourceCounts(count_lengths(map(part_lengths, numbers)))
        kept, repeated = list[LengthCounts](), list[Tally]()
        left_out: dict[str, list[Tally]] = {reason: [] for reason, _ in self._tests}
        if self.options.has_passes:
            left_out[PASSES] = []
        for number in numbers:
            lengths = part_lengths(number)
            is_left = np.ones(len(lengths), bool)
            for reason, test in self._tests:
                is_taken = test(number)
                left_out[reason].append(tally(lengths * (is_left & ~is_taken)))
                is_left &= is_taken
            if self._find_passes(number) == 1:
                kept.append(count_lengths([lengths * is_left]))
                continue
            visits = self.find_visits(number)
            left_out[PASSES].append(tally(lengths * (is_left & (visits == 0))))
            repeated.append(tally(lengths.repeat(np.maximum(visits - 1, 0))))
            for num_visits in np.flatnonzero(np.bincount(visits)).tolist():
                if num_visits:
                    found = count_lengths([lengths * (visits == num_visits)])
                    kept.append(LengthCounts(found.lengths, found.counts * num_visits))
        return SourceCounts(
            join_counts(kept),
            {reason: add_up(tallies) for reason, tallies in left_out.items()},
            add_up(repeated),
        )

    def _make_tests(self, find_split: PartSplits | None) -> Iterator[tuple[str, PartTest]]:
        """Yield why sequences are left out, and the test of those that are not, in their order."""
        store, options, splits = self._all, self.options, parse_splits(self.options)
        num_sides = len(self.sides)
        if splits is not None and options.split_name is not None:
            find = find_split or make_splitter(store, splits)
            wanted = splits.names.index(options.split_name)
            yield OTHER_SPLITS, self._remember(lambda number: find(number) == wanted)
        yield from self._make_pair_tests()
        for test in list_length_tests(options, num_sides):
            yield test.reason, self._test_lengths(test)
        if options.where:
            tests = [self._make_condition(text) for text in options.where]
            yield WHERE, self._remember(join_tests(tests))
        has_target = self._make_targets_test()
        if has_target is not None:
            yield NO_TARGET, self._remember(has_target)
        for test in list_fits(options, num_sides) if options.overflow == "drop" else ():
            yield test.reason, self._test_lengths(test)

    def _make_pair_tests(self) -> Iterator[tuple[str, PartTest]]:
        """Yield no test: these are no pairs."""
        yield from ()

    def _make_condition(self, text: str) -> PartTest:
        return make_test(self._all, text)

    def _make_targets_test(self) -> PartTest | None:
        return make_targets_test(self._all, self.options)

    def _test_lengths(self, test: LengthTest) -> PartTest:
        return lambda number: test.holds(*self._part_sides(number))

    def _part_sides(self, number: int) -> list[np.ndarray]:
        """Return the lengths of a part on each side."""
        return [self._all.part_lengths(number)]

    def _remember(self, test: PartTest) -> PartTest:
        """Return a test that is evaluated once for each part: 1 bit for each sequence is kept."""
        bits: dict[int, np.ndarray] = {}

        def find(number: int) -> np.ndarray:
            if number not in bits:
                bits[number] = np.packbits(test(number))
            count = int(self.part_offsets[number + 1] - self.part_offsets[number])
            return np.unpackbits(bits[number], count=count).view(bool)

        return find

    def _find_passes(self, part: int) -> Fraction:
        return self.passes[self.store.folder_of(part).number]

    def _find_taken(self, number: int) -> np.ndarray:
        """Return which sequences of a part every test takes, bool."""
        is_taken = np.ones(int(np.diff(self.part_offsets)[number]), bool)
        for _, test in self._tests:
            is_taken &= test(number)
        return is_taken

    def _count_tokens(self) -> list[int]:
        """Count the tokens of each store that may be visited."""
        num_tokens = [0] * len(self.store.folders)
        for number in range(self.store.num_parts):
            lengths = self.store.part_lengths(number) * self._find_taken(number)
            num_tokens[self.store.folder_of(number).number] += int(lengths.sum(dtype=np.int64))
        return num_tokens
