"""Compare how often each sequence is packed with what the recorded options select, without a plan.

Splits, conditions, drops by length, and passes follow from the lengths, hashes and columns of the
stores, whatever version of the plan made the batches. So this is compared where the plan cannot be
made again. It takes about 10 ns per sequence, and memory for one part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from seqpack_cli.batching.options import DECODER
from seqpack_cli.batching.plan import Limits, find_limits, make_limits
from seqpack_cli.batching.selection import LAST_BATCH, SourceCounts, iter_parts
from seqpack_cli.files.manifest import MANIFEST_NAME
from seqpack_cli.shards.pack import describe_stores
from seqpack_cli.shards.selection import Selection
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.tokens.store import TokenStore
from seqpack_cli.verification.findings import Finding
from seqpack_cli.verification.integers.coverage import Coverage, show_times

LEVEL = "structure"
Visits = tuple[int, np.ndarray, np.ndarray]  # first sequence, lengths, and visits of each
BY_OPTIONS, BY_PLAN = "the stores and options give", "the plan has"  # whose numbers are expected


def compare_selection(shards: ShardSet, source: Selection, coverage: Coverage) -> Iterator[Finding]:
    """Yield where the sequences of the shards, or the ledger, are not what the options select.

    Args:
        source: what the options select of the stores.
        coverage: of all shards, which are sound.
    """
    store = source.sides[shards.side == DECODER]
    of_stores = list(compare_stores(shards.manifest["stores"], store, source, BY_OPTIONS))
    if of_stores:
        yield from of_stores
        return
    counts, expected = source.count(side=shards.side == DECODER), _iter_selected(source)
    if shards.side == DECODER and source.alignment is not None:
        expected = _select_decoder(source, source.alignment.decoder_indices, expected)
    missing, left_out = _MissingVisits(shards), dict(counts.left_out)
    for first, lengths, visits in expected:
        packed = coverage.visits[first : first + len(visits)].astype(np.int32)
        missing.add(first, lengths, packed, visits)
    if shards.options.last_batch == "drop":
        left_out[LAST_BATCH] = missing.count()
    yield from missing.find_faults(len(source.rounds))
    counts = replace(counts, left_out=left_out)
    yield from compare_ledger(shards.manifest["ledger"], counts, BY_OPTIONS)


def compare_ledger(
    ledger: Mapping[str, Any], counts: SourceCounts, holder: str
) -> Iterator[Finding]:
    """Yield where the ledger's dropped and repeated sequences and tokens are not the expected ones.

    Args:
        holder: whose counts they are.
    """
    for name, expected in counts.describe().items():
        claimed = ledger[name]
        if not isinstance(expected, dict):
            if claimed != expected:
                yield Finding(LEVEL, MANIFEST_NAME, f"{name} is {claimed}, {holder} {expected}")
            continue
        for reason in sorted({*claimed, *expected}):
            if claimed.get(reason) != expected.get(reason):
                what = f"{name} by {reason} is {claimed.get(reason)}, "
                what += f"{holder} {expected.get(reason)}"
                yield Finding(LEVEL, MANIFEST_NAME, what)


def compare_stores(
    entries: list[dict[str, Any]], store: TokenStore, source: Selection, holder: str
) -> Iterator[Finding]:
    """Yield where the sizes and passes of the stores of a side are not those in the manifest."""
    found = describe_stores(store, source.passes)
    for number, (entry, known) in enumerate(zip(entries, found, strict=True), 1):
        for name, expected in known.items():
            if entry[name] != expected:
                what = f"{name} of store {number} is {entry[name]}, {holder} {expected}"
                yield Finding(LEVEL, MANIFEST_NAME, what)


def _iter_selected(source: Selection) -> Iterator[Visits]:
    """Yield what should be packed of each part."""
    for number, lengths in iter_parts(source.store):
        yield int(source.part_offsets[number]), lengths, source.find_visits(number)


def _select_decoder(
    source: Selection, of_pairs: np.ndarray, encoder: Iterator[Visits]
) -> Iterator[Visits]:
    """Yield what should be packed of the decoder's side, given that of the encoder's."""
    decoder = source.sides[1]
    visits = np.zeros(len(decoder), np.int32)
    for first, lengths, of_encoder in encoder:
        indices = of_pairs[first : first + len(lengths)]
        visits[indices[indices >= 0]] = of_encoder[indices >= 0]
    yield 0, decoder.lengths, visits


def _make_limits(shards: ShardSet) -> list[Limits]:
    """Return the limits of each bucket; of pairs, those of the last batches of all together."""
    options, keys = shards.options, shards.manifest["bucket_keys"]
    limits = make_limits(options, keys)
    if shards.side is None:
        return limits
    rows = [limit.batch_size - 1 for limit in limits if limit.batch_size is not None]
    tokens = [limit.max_tokens - 1 for limit in limits if limit.max_tokens is not None]
    return [Limits(1 + sum(rows) if rows else None, 1 + sum(tokens) if tokens else None)]


class _MissingVisits:
    """The visits that the options select and no shard has: only a last batch may be dropped."""

    def __init__(self, shards: ShardSet) -> None:
        self._limits = _make_limits(shards)
        self._may_drop = shards.options.last_batch == "drop"
        self._dropped = np.zeros((2, len(self._limits)), np.int64)  # sequences, tokens
        self._num_wrong = 0
        self._first_wrong = ""

    def add(
        self, first: int, lengths: np.ndarray, packed: np.ndarray, expected: np.ndarray
    ) -> None:
        """Compare the visits of one part, whose first sequence is given."""
        missing = expected - packed
        wrong = np.flatnonzero(missing < 0 if self._may_drop else missing)
        if len(wrong):
            place = int(wrong[0])
            self._first_wrong = self._first_wrong or (
                f"sequence {first + place} is packed {show_times(int(packed[place]))}, "
                f"the options select it {show_times(int(expected[place]))}"
            )
            self._num_wrong += len(wrong)
        if self._may_drop:
            places = np.flatnonzero(missing > 0)
            visits = missing[places].astype(np.int64)
            buckets = find_limits(self._limits, lengths[places])
            np.add.at(self._dropped[0], buckets, visits)
            np.add.at(self._dropped[1], buckets, visits * lengths[places])

    def count(self) -> tuple[int, int]:
        """Return how many sequences, and tokens, last batches must have had."""
        num_sequences, num_tokens = self._dropped.sum(axis=1).tolist()
        return num_sequences, num_tokens

    def find_faults(self, num_rounds: int) -> Iterator[Finding]:
        """Yield sequences packed too often or too seldom, and more than the last batches hold."""
        if self._num_wrong:
            more = self._num_wrong - 1
            what = self._first_wrong + (f"; {more} more differ" if more else "")
            yield Finding(LEVEL, MANIFEST_NAME, what)
        for limit, found in zip(self._limits, self._dropped.T.tolist(), strict=True):
            for most, number, name in zip(
                (limit.batch_size, limit.max_tokens), found, ("sequences", "tokens"), strict=True
            ):
                if most is not None and number > num_rounds * (most - 1):
                    of_bucket = f" of bucket {limit.key[0]}" if limit.key else ""
                    what = f"{number} {name}{of_bucket} are missing, a last batch that is dropped "
                    what += f"has at most {num_rounds * (most - 1)}"
                    yield Finding(LEVEL, MANIFEST_NAME, what)
