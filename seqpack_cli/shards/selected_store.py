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

from seqpack_cli.batching.length_counts import (
    LengthCounts,
    PartLengths,
    SourceCounts,
    count_lengths,
    join_counts,
)
from seqpack_cli.batching.options import PackOptions, parse_splits
from seqpack_cli.batching.passes import count_rounds, count_visits, find_first_rounds
from seqpack_cli.batching.plan import Plan, plan_batches
from seqpack_cli.batching.reasons import NO_TARGET, OTHER_SPLITS, PASSES, WHERE
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
        options: PackOptions,
        passes: Sequence[Fraction] | None = None,
        *,
        find_split: PartSplits | None = None,
    ) -> None:
        without = options.drop_column
        self.store = choose_columns(store, without=without, store_column=options.store_column)
        self.options, self.part_offsets = options, store.part_offsets
        self._all = store
        self._tests = list(self._make_tests(find_split))
        self._bits: dict[tuple[PartTest, int], np.ndarray] = {}  # by part, once evaluated
        self._turns: dict[int, tuple[np.ndarray, np.ndarray]] = {}  # by part
        names = [str(each.path) for each in store.folders]
        self.passes = tuple(passes or find_store_passes(options, names, self._count_tokens))

    @property
    def sides(self) -> list[TokenStore]:
        """Return the stores of each side: the only one."""
        return [self.store]

    def plan(self, options: PackOptions, counts: SourceCounts) -> Plan:
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
        taken: np.ndarray = lengths * (self.find_visits(number, lengths) > 0)
        return taken

    def find_visits(self, number: int, lengths: np.ndarray) -> np.ndarray:
        """Return how often each sequence of a part is visited, int32.

        Args:
            lengths: of its sequences. One that the options drop for its length has one visit.
        """
        visits, passes = self._find_taken(number).astype(np.int32), self._find_passes(number)
        if passes == 1:
            return visits
        of_document = count_visits(self.store.part_hashes(number), passes, self.options.seed)
        least, most = self.options.drop_shorter or 0, self.options.drop_longer
        is_inside = lengths >= least if most is None else (lengths >= least) & (lengths <= most)
        is_inside &= visits > 0
        np.copyto(visits, self.store.spread(number, of_document), where=is_inside)
        return visits

    def find_turns(self, number: int, num_rounds: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the first round and the visits of each sequence of a part, both int16; kept."""
        if number not in self._turns:
            first_rounds = find_first_rounds(
                self.store.part_hashes(number), num_rounds, self.options.seed
            )
            visits = self.find_visits(number, self.store.part_lengths(number))
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
        kept, repeated = list[LengthCounts](), list[LengthCounts]()
        reasons = [*(reason for reason, _ in self._tests), *[PASSES] * self.options.has_passes]
        left_out: dict[str, list[LengthCounts]] = {reason: [] for reason in reasons}
        for number in numbers:
            lengths = part_lengths(number)
            is_left = np.ones(len(lengths), bool)
            for reason, test in self._tests:
                is_taken = self._evaluate(test, number)
                left_out[reason].append(count_lengths([lengths * (is_left & ~is_taken)]))
                is_left &= is_taken
            self._check_fits(number, is_left)
            if self._find_passes(number) == 1:
                kept.append(count_lengths([lengths * is_left]))
                continue
            visits = self.find_visits(number, lengths)
            for num_visits in np.flatnonzero(np.bincount(visits)).tolist():
                found = count_lengths([lengths * (is_left & (visits == num_visits))])
                if num_visits:
                    kept.append(LengthCounts(found.lengths, found.counts * num_visits))
                    repeated.append(LengthCounts(found.lengths, found.counts * (num_visits - 1)))
                elif PASSES in left_out:
                    left_out[PASSES].append(found)
        return SourceCounts(
            join_counts(kept),
            {reason: join_counts(counts) for reason, counts in left_out.items()},
            join_counts(repeated),
        )

    def _make_tests(self, find_split: PartSplits | None) -> Iterator[tuple[str, PartTest]]:
        """Yield why sequences are left out, and the test of those that are not."""
        store, options = self._all, self.options
        splits = parse_splits(options)
        if splits is not None and options.split_name is not None:
            find = find_split or make_splitter(store, splits)
            wanted = splits.names.index(options.split_name)
            yield OTHER_SPLITS, lambda number: find(number) == wanted
        yield from self._make_side_tests()
        if options.where:
            yield WHERE, join_tests([self._make_condition(text) for text in options.where])
        has_target = self._make_targets_test()
        if has_target is not None:
            yield NO_TARGET, has_target
        yield from self._make_fits()

    def _make_side_tests(self) -> Iterator[tuple[str, PartTest]]:
        """Yield no test: single sequences are dropped by their length when they are planned."""
        yield from ()

    def _make_condition(self, text: str) -> PartTest:
        return make_test(self._all, text)

    def _make_targets_test(self) -> PartTest | None:
        return make_targets_test(self._all, self.options)

    def _make_fits(self) -> Iterator[tuple[str, PartTest]]:
        """Yield no test: see `_make_side_tests`."""
        yield from ()

    def _check_fits(self, number: int, is_left: np.ndarray) -> None:
        """Accept the sequences of a part that are left: see `_make_side_tests`."""

    def _find_passes(self, part: int) -> Fraction:
        return self.passes[self.store.folder_of(part).number]

    def _find_taken(self, number: int) -> np.ndarray:
        """Return which sequences of a part the split and the conditions take, bool."""
        is_taken = np.ones(int(np.diff(self.part_offsets)[number]), bool)
        for _, test in self._tests:
            is_taken &= self._evaluate(test, number)
        return is_taken

    def _evaluate(self, test: PartTest, number: int) -> np.ndarray:
        num_sequences = int(self.part_offsets[number + 1] - self.part_offsets[number])
        key = test, number
        if key not in self._bits:
            self._bits[key] = np.packbits(test(number))
        return np.unpackbits(self._bits[key], count=num_sequences).view(bool)

    def _count_tokens(self) -> list[int]:
        """Count the tokens of each store that may be visited."""
        least, most = self.options.drop_shorter or 0, self.options.drop_longer
        num_tokens = [0] * len(self.store.folders)
        for number in range(self.store.num_parts):
            lengths = self.store.part_lengths(number) * self._find_taken(number)
            lengths = lengths[(lengths >= least) & (most is None or lengths <= most)]
            num_tokens[self.store.folder_of(number).number] += int(lengths.sum(dtype=np.int64))
        return num_tokens
