"""Which sequences are packed, and how often: by their lengths, by splits, and by passes.

Each reason to leave a sequence out is a test of the sequences of a part, and a sequence has the
first reason whose test it fails. A pair is a sequence with a second length. Splits and passes
follow from the hash of a document, mixed with a seed and a purpose into a uniform number: it stays
when documents are added or reordered, and a split says nothing about passes. About 5 ns per hash.

2.5 passes are two visits of every document and a third one of those with a mixed hash below half of
2^64. The visits of a document lie in different rounds, which are planned separately, so that they
never share a batch. They are spread evenly over the rounds, from a round that follows from the
document's hash, so that each round has about the same share of each store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import accumulate
from typing import Any, NamedTuple, Protocol

import numpy as np
from blake3 import blake3

from seqpack_cli.batching.options import SIDES, ResolvedOptions, spell_number
from seqpack_cli.errors import OptionError
from seqpack_cli.limits import LIMITS

# Why sequences are left out: the names under which ledgers count them. Those of pairs may have the
# side before them that is at fault: `decoder.drop_longer`.
OTHER_SPLITS, WHERE, NO_TARGET, PASSES = "other_splits", "where", "no_target", "passes"
EMPTY, DROP_SHORTER, DROP_LONGER, OVERFLOW = "empty", "drop_shorter", "drop_longer", "overflow"
LAST_BATCH = "last_batch"
PASS_DECIMALS = 12  # of passes that follow from shares

Tally = tuple[int, int]  # sequences, tokens


class PartLengths(Protocol):
    """A source of sequence lengths, 0 where a sequence is left out: usually of a token store."""

    @property
    def lengths(self) -> np.ndarray:
        """Return the lengths of all sequences, int32[N]."""

    @property
    def part_offsets(self) -> np.ndarray:
        """Return the first sequence of each part, then the number of all, int64[parts + 1]."""

    def part_lengths(self, number: int) -> np.ndarray:
        """Return the lengths of one part, int32."""


def iter_parts(source: PartLengths, first: int = 0) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the number and the lengths of each part, from part `first` on."""
    for number in range(first, len(source.part_offsets) - 1):
        yield number, source.part_lengths(number)


# Counts of lengths: without shuffling they are enough to plan batches in length order


class LengthCounts(NamedTuple):
    """The distinct lengths, longest first, and how many sequences have each."""

    lengths: np.ndarray  # int64
    counts: np.ndarray  # int64

    @property
    def num_sequences(self) -> int:
        """Return the number of all sequences."""
        return int(self.counts.sum())

    @property
    def num_tokens(self) -> int:
        """Return the number of tokens of all sequences."""
        return int((self.lengths * self.counts).sum())


@dataclass(frozen=True)
class SourceCounts:
    """How many sequences of each length a source has, and how many are left out."""

    kept: LengthCounts  # as often as they are visited
    left_out: dict[str, Tally] = field(default_factory=dict)  # by reason
    repeated: Tally = (0, 0)  # visits beyond the first

    @classmethod
    def join(cls, pieces: Sequence[SourceCounts]) -> SourceCounts:
        """Add up counts that were made separately, for the same reasons; at least one."""
        reasons = pieces[0].left_out
        return cls(
            join_counts([piece.kept for piece in pieces]),
            {name: add_up(piece.left_out[name] for piece in pieces) for name in reasons},
            add_up(piece.repeated for piece in pieces),
        )

    def describe(self) -> dict[str, Any]:
        """Return what a ledger says of sequences that are left out, and of repeated visits."""
        names = ("sequences", "tokens")
        dropped: dict[str, Any] = {
            f"num_dropped_{what}": {reason: it[place] for reason, it in self.left_out.items()}
            for place, what in enumerate(names)
        }
        repeated = zip(names, self.repeated, strict=True)
        return {**dropped, **{f"num_repeated_{what}": number for what, number in repeated}}


def tally(lengths: np.ndarray) -> Tally:
    """Return the number of sequences, without those of length 0, and that of their tokens."""
    return int(np.count_nonzero(lengths)), int(lengths.sum(dtype=np.int64))


def add_up(tallies: Iterable[Tally]) -> Tally:
    """Return the sums of sequences and of tokens."""
    sequences, tokens = zip((0, 0), *tallies, strict=True)
    return sum(sequences), sum(tokens)


def join_counts(pieces: Sequence[LengthCounts]) -> LengthCounts:
    """Add up counts that were made separately.

    >>> one, other = count_lengths([np.array([5, 2])]), count_lengths([np.array([2])])
    >>> join_counts([one, other])
    LengthCounts(lengths=array([5, 2]), counts=array([1, 2]))
    """
    columns = zip((np.empty(0, np.int64),) * 2, *pieces, strict=True)
    lengths, counts = map(np.concatenate, columns)
    found, places = np.unique(-lengths, return_inverse=True)
    sums = np.zeros(len(found), np.int64)
    np.add.at(sums, places, counts)
    return LengthCounts(-found, sums)


def count_lengths(blocks: Iterable[np.ndarray]) -> LengthCounts:
    """Count the sequences of each length.

    Args:
        blocks: the lengths in any number of arrays, int32 or int64; 0 is not counted, it stands
            for a sequence that is left out.

    >>> count_lengths([np.array([5, 2]), np.array([2])])
    LengthCounts(lengths=array([5, 2]), counts=array([1, 2]))
    """
    dense, long = np.zeros(LIMITS.table_lengths, np.int64), list[LengthCounts]()
    size = LIMITS.entries_per_block
    for block in blocks:
        for start in range(0, len(block), size):
            lengths = block[start : start + size]
            if lengths.max() >= len(dense):
                is_long = lengths >= len(dense)
                long.append(LengthCounts(*np.unique(lengths[is_long], return_counts=True)))
                lengths = lengths[~is_long]
            counts = np.bincount(lengths)
            dense[: len(counts)] += counts
    dense[0] = 0
    found = np.flatnonzero(dense)
    return join_counts([*long, LengthCounts(found, dense[found])])


# Lengths that cannot be packed


@dataclass(frozen=True)
class LengthTest:
    """Whether sequences, or pairs, have a length that can be packed."""

    reason: str  # under which others are left out
    option: str
    limit: int
    holds: Callable[..., np.ndarray]  # of the lengths of each side -> bool


@dataclass(eq=False)
class OverlongError(ValueError):
    """A sequence or a pair does not fit into a batch or row, and the options do not drop it."""

    index: int  # of the sequence, on the encoder's side
    lengths: Sequence[int]  # of each side
    test: LengthTest  # that it fails


def test_side(
    reason: str,
    limit: int,
    side: int,
    num_sides: int,
    *,
    option: str = "",
    compare: Callable[..., np.ndarray] = np.less_equal,
) -> LengthTest:
    """Return the test of the length of one side; of pairs the reason has the side before it."""
    name = f"{SIDES[side]}.{reason}" if num_sides > 1 else reason
    return LengthTest(name, option, limit, lambda *sides: compare(sides[side], limit))


def list_length_tests(options: ResolvedOptions, num_sides: int) -> list[LengthTest]:
    """Return the tests of `--drop-shorter` and `--drop-longer`, each side by itself."""
    limits = (
        (DROP_SHORTER, options.drop_shorter, np.greater_equal),
        (DROP_LONGER, options.drop_longer, np.less_equal),
    )
    return [
        test_side(reason, limit, side, num_sides, compare=compare)
        for side in range(num_sides)
        for reason, limit, compare in limits
        if limit is not None
    ]


# Splits, passes and rounds


def mix(hashes: np.ndarray, seed: int, purpose: str) -> np.ndarray:
    """Return a number for each hash: equal for equal hashes, otherwise as if drawn at random.

    SplitMix64's finalizer (Steele, Lea and Flood 2014) over hash ^ key, where the key is the first
    8 bytes of the BLAKE3 checksum of "PURPOSE SEED".

    Args:
        hashes: uint64[N].
        seed: from 0 to 2**64 - 1.
        purpose: "split", "passes" or "rounds".

    Returns:
        uint64[N].

    >>> [hex(number) for number in mix(np.array([0, 1], np.uint64), 0, "split").tolist()]
    ['0x2e2bae1dd8c329e6', '0x8180f772b3ff5799']
    """
    key = np.uint64(int.from_bytes(blake3(f"{purpose} {seed}".encode()).digest()[:8], "little"))
    mixed: np.ndarray = np.bitwise_xor(hashes, key, dtype=np.uint64)
    size = LIMITS.entries_in_cache
    shifted = np.empty(min(len(mixed), size), np.uint64)
    for start in range(0, len(mixed), size):
        block = mixed[start : start + size]
        for num_bits, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, None)):
            block ^= np.right_shift(block, np.uint64(num_bits), out=shifted[: len(block)])
            if factor:
                block *= np.uint64(factor)
    return mixed


def to_bound(share: Fraction) -> int:
    """Return the bound below which a mixed hash lies with the probability `share`.

    >>> to_bound(Fraction(1, 2)) == 2**63
    True
    """
    return int(share * 2**64)


def assign_splits(hashes: np.ndarray, shares: Sequence[Fraction], seed: int) -> np.ndarray:
    """Return the number of the split of each hash: the first below whose bound it is, mixed.

    Args:
        hashes: uint64[N], of documents or of a column's values.
        shares: of each split; their running sums are the bounds.

    Returns:
        int16[N].
    """
    bounds = np.array([to_bound(share) for share in [*accumulate(shares)][:-1]], np.uint64)
    mixed = mix(hashes, seed, "split")
    if len(bounds) > LIMITS.bounds_compared:
        return np.searchsorted(bounds, mixed, "right").astype(np.int16)
    found = np.zeros(len(mixed), np.int16)
    for bound in bounds:
        found += mixed >= bound
    return found


def find_passes(
    tokens: Sequence[int], shares: Mapping[str, Fraction], max_passes: Fraction
) -> list[Fraction]:
    """Return the passes with which each store has its share of all tokens.

    One store has max_passes, and no other has more. Rounded down to PASS_DECIMALS.

    Args:
        tokens: of each store, those that can be packed.
        shares: of each store, above 0, by what names it in messages.

    Raises:
        OptionError: a store has no tokens for its share, or too many for so small a share.

    >>> find_passes([100, 100], {"A": Fraction(3, 4), "B": Fraction(1, 4)}, Fraction(1))
    [Fraction(1, 1), Fraction(333333333333, 1000000000000)]
    """
    both, scale = zip(shares.values(), tokens, strict=True), 10**PASS_DECIMALS
    ratios = [share / num_tokens if num_tokens else Fraction() for share, num_tokens in both]
    factor = max_passes / (max(ratios) or 1) * scale
    passes = [Fraction(int(factor * ratio), scale) for ratio in ratios]
    for (name, share), number in zip(shares.items(), passes, strict=True):
        if not number:
            raise OptionError(
                f"--share: {name} has no token left for its share of {spell_number(share)}",
                hint="leave out the store, or the options that leave out its sequences",
            )
    return passes


def count_visits(hashes: np.ndarray, passes: Fraction, seed: int) -> np.ndarray:
    """Return how often each document of a store is visited, int32[N].

    Args:
        hashes: uint64[N], of the documents.
    """
    visits = np.full(len(hashes), int(passes), np.int32)
    if fraction := passes % 1:
        visits += mix(hashes, seed, "passes") < np.uint64(to_bound(fraction))
    return visits


def is_in_round(
    first_rounds: np.ndarray, visits: np.ndarray, number: int, num_rounds: int
) -> np.ndarray:
    """Return whether each document has a visit in a round, bool[N].

    A document with n visits is in n of the rounds, as evenly as possible from its first one on:
    in the d-th after it if a multiple of num_rounds lies in [d * n, (d + 1) * n).

    Args:
        first_rounds: int16[N], the round of the first visit, drawn by the document's hash.
        visits: int16 or int32[N], each at most num_rounds.
        number: of the round, from 0.
    """
    distances = (number - first_rounds.astype(np.int32)) % num_rounds
    is_in: np.ndarray = (-distances * visits) % num_rounds < visits
    return is_in
