"""What is packed of stores: the sequences, or pairs, that no option leaves out, in some passes.

For planning it is a source of lengths in which what is left out has length 0: indices stay those of
the store. Of pairs it has the encoder's lengths, and the decoder's beside them. Each reason to
leave something out is a test of the sequences of a part, made on hashes and columns as they lie in
the files; the first test that a sequence fails has it in its ledger. What such a test finds is kept
with 1 bit per sequence. Passes above 1 are several such sources, the rounds.
"""

from __future__ import annotations

import copy
import fnmatch
import functools
import math
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import xxhash

from seqpack_cli.batching.options import (
    DECODER,
    ENCODER,
    SIDES,
    PackOptions,
    ResolvedOptions,
    parse_condition,
    parse_number,
    parse_numbers,
    parse_splits,
    spell_number,
    spell_numbers,
)
from seqpack_cli.batching.plan import list_fits
from seqpack_cli.batching.selection import (
    EMPTY,
    NO_TARGET,
    OTHER_SPLITS,
    PASSES,
    WHERE,
    LengthCounts,
    SourceCounts,
    Tally,
    add_up,
    assign_splits,
    count_lengths,
    count_visits,
    find_passes,
    is_in_round,
    join_counts,
    list_length_tests,
    mix,
    tally,
)
from seqpack_cli.errors import MAX_LISTED_ITEMS, DataError, OptionError, join_items, quote
from seqpack_cli.files.json_files import encode_json
from seqpack_cli.files.mapping import let_pages_go
from seqpack_cli.ranges import to_offsets
from seqpack_cli.shards.alignment import Alignment, PartTest
from seqpack_cli.shards.manifest import PREFIX, own_options
from seqpack_cli.tokens.columns import OVERLAP, TARGETS, Column
from seqpack_cli.tokens.conditions import EQUALITY, make_integer_test
from seqpack_cli.tokens.kinds import Values
from seqpack_cli.tokens.store import TokenStore, choose_columns
from seqpack_cli.tokens.text_values import TextValues

ONE_PASS = Fraction(1)
NO_SPLIT = -1
PartSplits = Callable[[int], np.ndarray]  # number of a part -> int16, the split of each sequence
BUILT_IN_HINTS = {
    "@source": "write a condition like '@source = corpus/*.txt', where * matches any characters",
    "@length": "write a condition like '@length >= 8', which compares the number of tokens",
}


class Selection:
    """The lengths of a store, 0 for each sequence, or pair, that is left out.

    Args:
        store: the store, of the encoder's side if these are pairs; with all columns.
        options: resolved, with stores named by position.
        passes: of each store, if they are known; None finds those of the options.
        alignment: of pairs, with the decoder's side.
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
        alignment: Alignment | None = None,
        find_split: PartSplits | None = None,
    ) -> None:
        self.options, self.alignment = options, alignment
        self.part_offsets = store.part_offsets
        stores = [store] if alignment is None else [store, alignment.decoder]
        sides = list(zip(stores, list_own_options(options, len(stores)), strict=True))
        self.sides = [
            choose_columns(side, without=own.drop_column, store_column=own.store_column)
            for side, own in sides
        ]
        self.store = self.sides[0]
        self._tests = list(self._make_tests(store, *sides[-1], find_split))
        self.passes = tuple(passes or self._choose_passes())

    def with_seed(self, seed: int) -> Selection:
        """Return the same selection with the fractions of passes and the rounds of another seed.

        Splits and conditions are not evaluated again.
        """
        other = copy.copy(self)
        other.options = replace(self.options, seed=seed)
        other.__dict__.pop("rounds", None)  # they belong to the source
        return other

    @property
    def is_whole(self) -> bool:
        """Whether every sequence is taken once."""
        return not self._tests and not self.options.has_passes

    @cached_property
    def rounds(self) -> Sequence[Selection]:
        """The sources that are planned one by one; the source itself if it is the only one."""
        num_rounds = max(1, *map(math.ceil, self.passes))  # the most visits of a document
        if num_rounds == 1:
            return [self]

        @functools.cache  # 4 bytes for each sequence
        def find_turns(number: int) -> tuple[np.ndarray, np.ndarray]:
            hashes = mix(self.store.part_hashes(number), self.options.seed, "rounds")
            first_rounds = (hashes % np.uint64(num_rounds)).astype(np.int16)
            visits = self.find_visits(number).astype(np.int16)
            return self.store.spread(number, first_rounds), visits

        def make_test(place: int) -> PartTest:
            return lambda number: is_in_round(*find_turns(number), place, num_rounds)

        rounds = [copy.copy(self) for _ in range(num_rounds)]
        for place, found in enumerate(rounds):  # in one pass each, whose test is the round
            found._tests = [(PASSES, make_test(place))]
            found.passes = (ONE_PASS,) * len(self.passes)
        return rounds

    @property
    def lengths(self) -> np.ndarray:
        """The lengths of all sequences, int32[N]."""
        if self.is_whole:
            return self.store.lengths
        return np.concatenate([self.part_lengths(it) for it in range(self.store.num_parts)])

    def part_lengths(self, number: int) -> np.ndarray:
        """Return the lengths of one part, int32."""
        lengths = self.store.part_lengths(number)
        return lengths if self.is_whole else lengths * (self.find_visits(number) > 0)

    def find_visits(self, number: int) -> np.ndarray:
        """Return how often each sequence of a part is visited, int32."""
        visits, passes = self._find_taken(number).astype(np.int32), self._find_passes(number)
        if passes != ONE_PASS:
            of_document = count_visits(self.store.part_hashes(number), passes, self.options.seed)
            visits *= self.store.spread(number, of_document)
        return visits

    def count(self, first: int = 0, last: int | None = None, *, side: int = 0) -> SourceCounts:
        """Count the lengths of a range of parts on one side of pairs; of all parts by default."""
        numbers = range(self.store.num_parts)[first:last]
        if self.is_whole:
            return SourceCounts(count_lengths(map(self.store.part_lengths, numbers)))
        counts = SourceCounts.join([self._count_part(number, side) for number in numbers])
        if self.alignment is not None:  # of which this side alone has a sequence
            lone = self.alignment.lone_lengths if side else np.empty(0, np.int32)
            counts.left_out[f"{ENCODER}.{EMPTY}"] = tally(lone)
        return counts

    def _count_part(self, number: int, side: int) -> SourceCounts:
        lengths, passes = self._part_sides(number)[side], self._find_passes(number)
        is_left, left_out = np.ones(len(lengths), bool), dict[str, Tally]()
        for reason, test in self._tests:
            is_taken = test(number)
            found = tally(lengths * (is_left & ~is_taken))
            left_out[reason] = add_up([found, left_out.get(reason, (0, 0))])
            is_left &= is_taken
        visits, repeated = is_left.view(np.uint8), (0, 0)
        if self.options.has_passes:
            visits = self.find_visits(number)
            left_out[PASSES] = tally(lengths * (is_left & (visits == 0)))
            more = np.maximum(visits - 1, 0, dtype=np.int64)
            repeated = int(more.sum()), int(more @ lengths)
        kept = list[LengthCounts]()
        for times in range(max(math.floor(passes), 1), math.ceil(passes) + 1):
            some = count_lengths([lengths * (visits == times)])
            kept.append(LengthCounts(some.lengths, some.counts * times))
        return SourceCounts(join_counts(kept), left_out, repeated)

    def _make_tests(
        self,
        store: TokenStore,
        target_store: TokenStore,
        target_options: PackOptions,
        find_split: PartSplits | None,
    ) -> Iterator[tuple[str, PartTest]]:
        """Yield why sequences are left out, and the test of those that are not, in their order."""
        options, num_sides = self.options, len(self.sides)
        if options.split_name is not None:
            find = find_split or make_splitter(store, options)
            wanted = [*options.split_shares].index(options.split_name)
            yield OTHER_SPLITS, self._remember(lambda number: find(number) == wanted)
        if self.alignment is not None:
            yield f"{DECODER}.{EMPTY}", lambda number: self._part_sides(number)[1] > 0
        for test in list_length_tests(options, num_sides):
            yield test.reason, self._test_lengths(test.holds)
        if options.where:
            tests = [self._make_condition(store, target_store, text) for text in options.where]
            yield WHERE, self._remember(lambda number: np.all([it(number) for it in tests], axis=0))
        has_target = make_targets_test(target_store, target_options)
        if has_target is not None:
            spread = self._remember if self.alignment is None else self.alignment.spread
            yield NO_TARGET, spread(has_target)
        for test in list_fits(options, num_sides) if options.overflow == "drop" else ():
            yield test.reason, self._test_lengths(test.holds)

    def _make_condition(self, store: TokenStore, decoder: TokenStore, text: str) -> PartTest:
        """Return the test of a condition, of pairs on a column of either side."""
        if self.alignment is None:
            return make_test(store, text)
        if text.lstrip().startswith(PREFIX):
            return self.alignment.spread(make_test(decoder, text, prefix=PREFIX))
        text = text.lstrip().removeprefix(f"{ENCODER}.")
        name = parse_condition(text).name
        if name in decoder.columns and name not in store.columns:
            raise OptionError(
                f"--where {quote(text)}: {store.shown_path} has no column {quote(name)}, the "
                "decoder's side has one",
                hint=f"to compare it, pass --where {shlex.quote(f'{PREFIX}{text}')}",
            )
        return make_test(store, text)

    def _test_lengths(self, holds: Callable[..., np.ndarray]) -> PartTest:
        return lambda number: holds(*self._part_sides(number))

    def _part_sides(self, number: int) -> list[np.ndarray]:
        """Return the lengths of a part on each side."""
        sides = [self.store.part_lengths(number)]
        if self.alignment is not None:
            first, last = self.part_offsets[number : number + 2].tolist()
            sides.append(self.alignment.decoder_lengths[first:last])
        return sides

    def _remember(self, test: PartTest) -> PartTest:
        """Return a test that is evaluated once for each part: 1 bit for each sequence is kept."""
        find_bits = functools.cache(lambda number: np.packbits(test(number)))
        sizes = np.diff(self.part_offsets)
        return lambda number: np.unpackbits(find_bits(number), count=sizes[number]).view(bool)

    def _find_passes(self, number: int) -> Fraction:
        return self.passes[self.store.folder_of(number).number]

    def _find_taken(self, number: int) -> np.ndarray:
        """Return which sequences of a part every test takes, bool."""
        is_taken = np.ones(len(self.store.part_lengths(number)), bool)
        for _, test in self._tests:
            is_taken &= test(number)
        return is_taken

    def _choose_passes(self) -> list[Fraction]:
        """Return the passes of each store; raise OptionError if one has no token for its share."""
        options, folders = self.options, self.store.folders
        if not options.has_passes:
            return [ONE_PASS] * len(folders)
        numbers = parse_numbers(options.share or options.passes or "", "--share")
        found = [numbers.get(str(each.number + 1), ONE_PASS) for each in folders]
        if options.share is None:
            return found
        shares = {str(each.path): share for each, share in zip(folders, found, strict=True)}
        tokens = [
            sum(tally(self.store.part_lengths(it) * self._find_taken(it))[1] for it in each.parts)
            for each in folders
        ]
        return find_passes(tokens, shares, parse_number(options.max_passes or "1"))


def list_own_options(options: PackOptions, num_sides: int) -> list[PackOptions]:
    """Return the options as they choose the columns of each side."""
    return [own_options(options, side) for side in (SIDES if num_sides > 1 else (None,))]


# Conditions


def make_test(store: TokenStore, text: str, *, prefix: str = "") -> PartTest:
    """Return the test of a condition, which is evaluated on a whole part at a time.

    Args:
        prefix: what the condition has before the name of the store's column.

    Raises:
        OptionError: it names no column, or compares it with what it cannot hold.
    """
    name, operator, value, is_built_in = parse_condition(text.lstrip().removeprefix(prefix))
    column = store.columns.get(name)
    hint = f"seqpack inspect {store.path} shows the columns and their values"
    if not store.columns:
        hint = f"pass --keep {shlex.quote(name)} to tokenize"
    if is_built_in or column is None:
        hint = BUILT_IN_HINTS.get(f"@{name.removeprefix('@')}", hint)
    elif operator not in EQUALITY and not column.is_ordered:
        field = shlex.quote(name)
        hint = f"to compare numbers, pass --keep {field}:int or --keep {field}:float to tokenize"
    try:
        if is_built_in and name == "@source":
            return _test_source(store, operator, value)
        if is_built_in:
            test = make_integer_test(operator, value)
            return lambda number: test(store.part_lengths(number))
        if column is None:
            columns = join_items(map(quote, store.columns)) or "none"
            raise ValueError(f"{store.shown_path} has no column {quote(name)} (found: {columns})")
        test = column.make_test(operator, value)
        return lambda number: test(store.part_column(number, name))
    except ValueError as error:
        subject = f"{name} " if is_built_in else ""
        raise OptionError(f"--where {quote(text)}: {subject}{error}", hint=hint) from error


def _test_source(store: TokenStore, operator: str, value: str) -> PartTest:
    """Compare the path of a sequence's source, as the manifest has it; `*` is any characters."""
    if operator not in EQUALITY:
        raise ValueError(f"is a path: found {operator}, expected = or !=")
    both = [(it.first_document, some) for it in store.folders for some in it.manifest["sources"]]
    firsts = np.array([first + source["first_document"] for first, source in both])
    paths = [source["path"] for _, source in both]
    pattern = re.sub(r"([?[])", r"[\1]", value)
    is_match = np.array([fnmatch.fnmatchcase(path, pattern) for path in paths])
    if not is_match.any():
        found = join_items(map(quote, paths))
        raise ValueError(f"is never {quote(value)} (found: {found})")
    is_taken = is_match == (operator == "=")
    return lambda number: is_taken[
        np.searchsorted(firsts, store.number_documents(number), "right") - 1
    ]


# Targets: tokens with 1 in the column of that name; every token, if there is none or it is dropped


def make_targets_test(store: TokenStore, options: PackOptions) -> PartTest | None:
    """Return the test of sequences that have a target; None if those without one are packed too.

    It takes 8 bytes per sequence of a part, and raises FolderError for a value that is not 0 or 1.

    Args:
        store: the store, with all columns.

    Raises:
        OptionError: `--keep-without-target` has no effect.
    """
    has_targets = TARGETS in store.columns and TARGETS not in options.drop_column
    if options.keep_without_target and not has_targets:
        raise OptionError(
            "--keep-without-target has no effect: every token is a target",
            hint="leave out --keep-without-target",
        )
    if options.keep_without_target or not has_targets:
        return None

    def test(number: int) -> np.ndarray:
        starts = to_offsets(store.part_lengths(number))[:-1]
        values = np.asarray(store.view_column(number, TARGETS))
        largest = np.maximum.reduceat(values, starts)
        let_pages_go(values)
        return np.greater(store.finish_values(number, TARGETS, largest), 0, dtype=bool)

    return test


# Splits: of documents, by their hashes or by the values of a column


def make_splitter(store: TokenStore, options: PackOptions) -> PartSplits:
    """Return the function that finds the split of each sequence of a part.

    It raises DataError for a value that names no split.

    Raises:
        OptionError: `--split-by` names no column, or one that documents have no single value of.
    """
    splits, name, place = parse_splits(options), options.split_by, f"--split-by {options.split_by}"
    shares, seed = [it for it in splits.values() if it is not None], options.split_seed
    if name is None:
        return lambda number: store.spread(
            number, assign_splits(store.part_hashes(number), shares, seed)
        )
    column = store.columns.get(name)
    if name == OVERLAP or (column and column.is_per_token):
        raise OptionError(
            f"{place}: differs within a document, expected one value per document",
            hint="split by another column, or by documents: leave out --split-by",
        )
    if column is None:
        columns = join_items(map(quote, store.columns)) or "none"
        raise OptionError(
            f"{place}: {store.shown_path} has no such column (found: {columns})",
            hint=f"pass --keep {name} to tokenize, or leave out --split-by",
        )

    def find(number: int) -> np.ndarray:
        values = store.part_column(number, name)
        found: np.ndarray
        if shares:
            hashes, numbers = hash_values(column, values)
            found = assign_splits(hashes, shares, seed)[numbers]
            return found
        texts, numbers = _spell_distinct(column, values)
        number_of = {split: number for number, split in enumerate(splits)}
        found = np.array([number_of.get(text, NO_SPLIT) for text in texts], np.int16)[numbers]
        if missing := [texts[place] for place in np.unique(numbers[found == NO_SPLIT])]:
            names = ",".join((*splits, *missing[:MAX_LISTED_ITEMS]))
            raise DataError(
                f"{store.shown_path}: column {quote(name)} has {join_items(map(quote, missing))}, "
                f"expected the names of splits: {join_items(splits)}",
                hint=f"write --split {names}, or give each split a share, such as "
                "train=0.9,test=0.1",
            )
        return found

    return find


def hash_values(column: Column, values: Values) -> tuple[np.ndarray, np.ndarray]:
    """Hash different values as text, uint64; return also the number of the one of each sequence."""
    texts, numbers = _spell_distinct(column, values)
    hashes = [xxhash.xxh3_64_intdigest(text.encode()) for text in texts]
    return np.array(hashes, np.uint64), numbers


def _spell_distinct(column: Column, values: Values) -> tuple[list[str], np.ndarray]:
    """Return different values as text, others as JSON, and the number of that of each sequence."""
    texts: Iterable[object]
    if column.class_names is not None:
        texts, numbers = column.class_names, np.asarray(values)
    elif isinstance(values, TextValues):
        place_of: dict[str, int] = {}
        numbers = np.array([place_of.setdefault(it, len(place_of)) for it in values], np.int64)
        texts = place_of
    else:
        found, numbers = np.unique(values + 0, return_inverse=True)  # -0.0 becomes 0.0
        texts = found.tolist()
    return [it if isinstance(it, str) else encode_json(it).decode() for it in texts], numbers


# The passes of each store, which options name by folder or position, and records by position


def name_by_position(options: ResolvedOptions, names: Sequence[str]) -> ResolvedOptions:
    """Return options whose passes or shares name stores by position, from 1.

    What is recorded names them so, since folders may be moved. A store is named by its folder or by
    its position; a name has precedence over a position.

    Args:
        names: of the stores.

    Raises:
        OptionError: a name is unknown, a store is named twice, or one has no share.
    """
    field = "passes" if options.share is None else "share"
    text, found = getattr(options, field), dict[int, Fraction]()
    if text is None:
        return options
    places = {str(place): place for place in range(1, len(names) + 1)}
    places |= {name: place for place, name in enumerate(names, 1)}
    for name, number in parse_numbers(text, f"--{field}").items():
        place = places.get(name, 0)
        if not place:
            raise OptionError(
                f"--{field}: no store is named {quote(name)} (found: "
                f"{join_items(map(quote, names))})",
                hint=f"name a store by its folder, or by its position from 1 to {len(names)}",
            )
        if place in found:
            raise OptionError(
                f"--{field}: found {quote(name)} for store {place}, {quote(names[place - 1])}, "
                "expected each store once",
                hint=f"leave out {name}={spell_number(number)}",
            )
        found[place] = number
    missing = [name for place, name in enumerate(names, 1) if place not in found]
    if missing and options.share is not None:
        raise OptionError(
            f"--share: no share for {join_items(map(quote, missing))}, expected one for each store",
            hint=f"pass smaller shares, with {missing[0]}=rest for what they leave",
        )
    spelled = spell_numbers({str(place): found[place] for place in sorted(found)})
    changed: dict[str, Any] = {field: spelled}
    return replace(options, **changed)
