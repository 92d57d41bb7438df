"""Plans in which sequences are visited several times: in rounds, one visit in each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from batching_reference import Parts, list_batches, slow_plan_of_rounds
from hypothesis import given, settings
from hypothesis import strategies as st
from test_bin_batches import OPTIONS as BIN_OPTIONS
from test_plan import pack_options

from seqpack_cli.batching.length_counts import LengthCounts, SourceCounts, count_lengths
from seqpack_cli.batching.options import PackOptions
from seqpack_cli.batching.passes import find_first_rounds, is_in_round
from seqpack_cli.batching.plan import needs_array, plan_batches
from seqpack_cli.batching.selection import OverlongError

REASONS = ("other_splits", "where", "passes")
ANY_OPTIONS = pack_options() | BIN_OPTIONS.map(PackOptions.resolve)


@dataclass
class Visited:
    """Sequences, why each is left out if it is, and how often it is visited if it is not."""

    lengths: list[int]
    reasons: list[str | None]
    visits: list[int]
    rounds: list[list[bool]]

    @property
    def source(self) -> Parts:
        return Parts([self.mask([times > 0 for times in self.visits])])

    def mask(self, is_here: Sequence[bool]) -> list[int]:
        """Return the lengths, 0 for each sequence that is not here."""
        return [each * here for each, here in zip(self.lengths, is_here, strict=True)]

    def count(self) -> SourceCounts:
        """Count visits of each length; what is left out by reason, also for those without any."""
        repeated = [max(times - 1, 0) for times in self.visits]
        left_out = {
            reason: self._repeat([int(each == reason) for each in self.reasons])
            for reason in REASONS
        }
        return SourceCounts(self._repeat(self.visits), left_out, self._repeat(repeated))

    def list_rounds(self) -> list[Parts]:
        return [Parts([self.mask(is_here)]) for is_here in self.rounds]

    def _repeat(self, times: list[int]) -> LengthCounts:
        return count_lengths([np.repeat(np.array(self.lengths), times)])


@st.composite
def draw_visited(draw: st.DrawFn, options: PackOptions) -> Visited:
    """Draw sequences with 2 to 6 rounds; one that is dropped for its length has one visit."""
    lengths = draw(st.lists(st.integers(1, 30), min_size=1, max_size=30))
    num_rounds = draw(st.integers(2, 6))
    reasons, visits = [], []
    for length in lengths:
        reason = draw(st.sampled_from([None, None, None, *REASONS]))
        times = draw(st.integers(1, num_rounds))
        least, most = options.drop_shorter or 0, options.drop_longer or 30
        reasons.append(reason)
        visits.append(0 if reason else times if least <= length <= most else 1)
    hashes = np.random.default_rng(len(lengths)).integers(0, 2**64, len(lengths), np.uint64)
    first_rounds = find_first_rounds(hashes, num_rounds, options.seed)
    rounds = [
        is_in_round(first_rounds, np.array(visits, np.int16), number, num_rounds).tolist()
        for number in range(num_rounds)
    ]
    return Visited(lengths, reasons, visits, rounds)


def count_by_length(visited: Visited, options: PackOptions) -> dict[str, list[int]]:
    """Return the lengths dropped before there are batches, by the reason that comes first."""
    dropped: dict[str, list[int]] = {"other_splits": []}
    for name in ("drop_shorter", "drop_longer"):
        if getattr(options, name) is not None:
            dropped[name] = []
    dropped |= {"where": [], "passes": []}
    for length, reason in zip(visited.lengths, visited.reasons, strict=True):
        if reason != "other_splits" and length < (options.drop_shorter or 0):
            reason = "drop_shorter"
        elif reason != "other_splits" and length > (options.drop_longer or 30):
            reason = "drop_longer"
        if reason is not None:
            dropped[reason].append(length)
    return dropped


@settings(max_examples=60, deadline=None)
@given(st.data(), ANY_OPTIONS, st.lists(st.integers(0, 20), max_size=3))
def test_rounds_agree_with_the_slow_ones(
    data: st.DataObject, options: PackOptions, cuts: list[int]
) -> None:
    visited = data.draw(draw_visited(options))
    counts, rounds = visited.count(), visited.list_rounds()
    expected = slow_plan_of_rounds(visited.lengths, options, visited.rounds)
    if expected is None:
        with pytest.raises(OverlongError):
            plan_batches(visited.source, options, counts, rounds=rounds)
        return
    plan = plan_batches(visited.source, options, counts, rounds=rounds)
    cuts = [cut for cut in cuts if cut < plan.num_batches]
    found = list_batches(plan, visited.source, cuts)
    early = count_by_length(visited, options)
    expected = replace(
        expected,
        num_dropped_sequences={name: len(each) for name, each in early.items()}
        | expected.num_dropped_sequences,
        num_dropped_tokens={name: sum(each) for name, each in early.items()}
        | expected.num_dropped_tokens,
    )
    assert found == expected
    assert [*found.num_dropped_sequences] == [*expected.num_dropped_sequences]


@settings(max_examples=60, deadline=None)
@given(st.data(), ANY_OPTIONS)
def test_visits_of_a_sequence_are_in_different_batches_and_all_counted(
    data: st.DataObject, options: PackOptions
) -> None:
    if options.overflow == "error" or (options.max_tokens and options.overflow is None):
        options = replace(options, overflow="drop")
    visited = data.draw(draw_visited(options))
    rounds = visited.list_rounds()
    plan = plan_batches(visited.source, options, visited.count(), rounds=rounds)
    batches = list_batches(plan, visited.source).rows
    for batch in batches:
        indices = [index for index, _, _ in batch]
        assert len({*indices}) == len(indices)
    packed = Counter(index for batch in batches for index, start, _ in batch if start == 0)
    least, most = options.drop_shorter or 0, options.drop_longer or 30
    dropped = plan.num_dropped_sequences
    for index, (length, times) in enumerate(zip(visited.lengths, visited.visits, strict=True)):
        if not least <= length <= most:
            assert packed[index] == 0
        elif dropped.get("overflow", 0) + dropped.get("last_batch", 0) == 0:
            assert packed[index] == times
    repeated = plan.num_repeated_sequences, plan.num_repeated_tokens
    assert repeated == (
        sum(max(times - 1, 0) for times in visited.visits),
        sum(each * max(n - 1, 0) for each, n in zip(visited.lengths, visited.visits, strict=True)),
    )
    assert packed.total() + sum(dropped.values()) == len(visited.lengths) + repeated[0]
    num_tokens = sum(length for batch in batches for _, _, length in batch)
    assert num_tokens + sum(plan.num_dropped_tokens.values()) == sum(visited.lengths) + repeated[1]


def plan_two_rounds(**options: Any) -> list[list[int]]:
    lengths = [*range(1, 101)]
    source = Parts([lengths])
    found = count_lengths([np.array(lengths)])
    counts = SourceCounts(LengthCounts(found.lengths, found.counts * 2), {}, found)
    rounds = [Parts([lengths]), Parts([lengths])]
    plan = plan_batches(source, PackOptions(**options).resolve(), counts, rounds=rounds)
    return [[index for index, _, _ in rows] for rows in list_batches(plan, source).rows]


def test_rounds_are_shuffled_differently_and_their_batches_together() -> None:
    batches = plan_two_rounds(batch_size=10, order="none", shuffle=True, seed=3)
    assert len({frozenset(batch) for batch in batches}) == 20
    first = {index for batch in batches[:10] for index in batch}
    assert len(first) < 100  # of both rounds
    assert plan_two_rounds(batch_size=10) == 2 * [
        [*range(last, last - 10, -1)] for last in range(99, 0, -10)
    ]


def test_several_rounds_need_all_lengths() -> None:
    assert not needs_array(PackOptions().resolve())
    assert needs_array(PackOptions().resolve(), 2)
