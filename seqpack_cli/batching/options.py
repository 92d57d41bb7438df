"""The options of pack, which together with the stores determine the bytes of the shards.

What is given on the command line or by a caller is a `PackOptions`. `resolve` fills in every
default, refuses options that conflict or have no effect, and parses the texts of splits, passes,
shares and conditions: what plans is given a `ResolvedOptions`. Numbers in texts are exact, so that
shares add up to exactly 1, and equal numbers have one spelling, which is recorded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from seqpack_cli.errors import MAX_COUNT, OptionError, quote
from seqpack_cli.runs.options import RUN, SPLIT_NAME, Conflicts, check_options, option, refuse

if TYPE_CHECKING:
    from fractions import Fraction  # takes 3 ms, so not for --help

# Increase it whenever the same lengths and options give other batches, rows, shards or another
# order: `verify` repeats a plan only if it was made with the same version.
PLAN_VERSION = 2
DEFAULT_BATCH_SIZE = 64
DEFAULT_NUM_BUCKETS = 8
# Sorted over all sequences, batches would be the same in every epoch, each of one length.
SHUFFLED_WINDOW = 4096
MAX_NUM_BUCKETS = 1024  # choosing them takes 8 bytes for each bucket and distinct length
MAX_SPLITS = 1000
MAX_PASSES = 10_000
MAX_DECIMALS = 18  # 10^-18 of all hashes are 18 of 2^64
REST = "rest"
WHICH, BATCHES, ROWS = "Which sequences", "Batches", "Rows of varlen and streams"
ENCODER, DECODER = SIDES = ("encoder", "decoder")  # of pairs


@dataclass(frozen=True)
class LayoutRules:
    """The rules for the batches of a layout."""

    fills_rectangle: bool = False  # rows are padded to one width, and max_tokens counts all cells
    shares_rows: bool = False  # several sequences, or pieces of them, share a row
    needs_sorted_rows: bool = False  # longest first, so that each side of pairs has its own order
    holds_pairs: bool = False  # batches may have a decoder's side
    carries_state: bool = False  # rows go on in the next batch, so the order of batches is fixed


LAYOUTS = {
    "packed": LayoutRules(needs_sorted_rows=True, holds_pairs=True),
    "padded": LayoutRules(fills_rectangle=True, holds_pairs=True),
    "varlen": LayoutRules(shares_rows=True),
    "streams": LayoutRules(shares_rows=True, carries_state=True),
}


@dataclass(frozen=True)
class PackOptions:
    """How sequences become batches, rows and shards, as the options of `seqpack pack` say.

    None leaves the choice to `resolve`.

    Raises:
        ValueError: an option has an unknown value, or a number is out of range.
    """

    layout: str = option(
        "packed",
        "Form of a batch: torch's PackedSequence, padded rows, rows that sequences share "
        "(cu_seqlens), or streams that carry state.",
        BATCHES,
        choices=tuple(LAYOUTS),
    )
    batch_size: int | None = option(
        None,
        "Most sequences in a batch; of varlen the rows, of streams the streams.",
        BATCHES,
        kind="count",
        shown="64; with --max-tokens no limit",
    )
    max_tokens: int | None = option(
        None,
        "Most tokens in a batch, padding included; of varlen the length of a row, of streams the "
        "steps.",
        BATCHES,
        kind="count",
        shown="no limit",
    )
    count: str | None = option(
        None,
        "What --max-tokens counts of pairs: the larger side, or the sum of both.",
        BATCHES,
        choices=("max", "sum"),
        shown="max",
    )
    order: str = option(
        "length",
        "length: longest first, so that a batch holds similar lengths; none: as in the store.",
        BATCHES,
        choices=("length", "none"),
    )
    window: int | None = option(
        None,
        "Sort by length only within windows of N consecutive sequences.",
        BATCHES,
        kind="count",
        shown="all sequences; with --shuffle 4096",
    )
    shuffle: bool | None = option(
        None,
        "Shuffle the sequences before sorting, and the finished batches.",
        BATCHES,
        shown="on for varlen with --fill best-fit, else off",
    )
    seed: int = option(
        0,
        "Random seed for --shuffle, and for a fraction of --passes or --share.",
        BATCHES,
        kind="seed",
    )
    buckets: str | Sequence[int] | Sequence[Sequence[int]] | None = option(
        None,
        "Lengths such as 32,64,128, for pairs '(10,15),(20,25)': a batch takes sequences of one "
        "bucket, padded to its length. auto chooses them.",
        BATCHES,
        kind="buckets",
        metavar="auto|K1,K2,…",
        shown="no buckets",
    )
    num_buckets: int | None = option(
        None,
        "Most buckets for --buckets auto.",
        BATCHES,
        kind="count",
        shown="8",
    )
    fill: str | None = option(
        None,
        "How rows are filled: best-fit for the fewest rows; sequential in the order of the store; "
        "chunk cuts wherever a row ends.",
        ROWS,
        choices=("best-fit", "sequential", "chunk"),
        shown="best-fit; streams: chunk",
    )
    overflow: str | None = option(
        None,
        "A sequence that does not fit: stop, drop it (counted), or, for varlen, split it.",
        BATCHES,
        choices=("error", "drop", "split"),
        shown="error; varlen: split",
    )
    last_batch: str = option(
        "keep",
        "A last batch that is not full: keep it, drop it (counted), or pad it with empty rows.",
        BATCHES,
        choices=("keep", "drop", "pad"),
    )
    drop_shorter: int | None = option(
        None, "Drop sequences of fewer than N tokens (counted).", WHICH, kind="count", shown="none"
    )
    drop_longer: int | None = option(
        None, "Drop sequences of more than N tokens (counted).", WHICH, kind="count", shown="none"
    )
    where: Sequence[str] = option(
        (),
        "Pack only sequences for which all conditions hold, such as 'lang = de', '@length >= 8' or "
        "'@source = corpus/a*'. May be repeated.",
        WHICH,
        metavar="CONDITION",
    )
    keep_without_target: bool = option(
        False,
        "Keep sequences of which no token is a target; else they are dropped (counted).",
        WHICH,
    )
    split: str | None = option(
        None,
        "Write each split into a folder of its own: train=0.98,validation=0.01,test=rest. Equal "
        "documents are in the same split.",
        WHICH,
        metavar="NAME=SHARE,...",
        shown="one shard set",
    )
    split_name: str | None = option(
        None, "Pack this split alone; None packs each into its own folder.", WHICH, kind="library"
    )
    split_seed: int = option(0, "Random seed for --split.", WHICH, kind="seed")
    split_by: str | None = option(
        None,
        "Split by the values of a column; with --split NAME,NAME the values are the names.",
        WHICH,
        metavar="COLUMN",
        shown="by documents",
    )
    passes: str | None = option(
        None,
        "How often each sequence of a store is packed, such as A=2,B=0.5.",
        WHICH,
        metavar="STORE=N,...",
        shown="1 for each store",
    )
    share: str | None = option(
        None,
        "Choose the passes for shares of all packed tokens, such as A=0.7,B=rest or A=2,B=1.",
        WHICH,
        metavar="STORE=SHARE,...",
        shown="none",
    )
    max_passes: str | None = option(
        None, "Most passes of a store with --share.", WHICH, metavar="N", shown="1"
    )
    drop_column: Sequence[str] = option(
        (), "Leave out a column of the stores. May be repeated.", WHICH, metavar="NAME"
    )
    store_column: str | None = option(
        None, "Add a column of classes with the store of each sequence.", WHICH, metavar="NAME"
    )
    pad_to_multiple: int = option(
        1,
        "Round the width of padded batches up to a multiple of M.",
        BATCHES,
        kind="count",
        metavar="M",
    )
    align_sequences: int = option(
        1,
        "Fill up each sequence of varlen to a multiple of M, as context parallelism needs.",
        ROWS,
        kind="count",
        metavar="M",
    )
    padding_side: str = option(
        "right",
        "The side of a padded row where the padding goes.",
        BATCHES,
        choices=("right", "left"),
    )
    pad_id: int | None = option(
        None,
        "Token id of the padding.",
        BATCHES,
        kind="id",
        metavar="ID",
        shown="the tokenizer's pad token, or 0",
    )
    shard_bytes: int = option(64 << 20, "Most data in a shard file.", RUN, kind="size")

    def __post_init__(self) -> None:
        check_options(self)
        object.__setattr__(self, "drop_column", tuple(sorted(set(self.drop_column))))
        if self.buckets is not None and self.buckets != "auto":
            object.__setattr__(self, "buckets", _sort_keys(self.buckets))

    @property
    def fills_rectangle(self) -> bool:
        """Return whether max_tokens counts the cells of a rectangle, padding included."""
        return LAYOUTS[self.layout].fills_rectangle

    @property
    def shares_rows(self) -> bool:
        """Return whether several sequences, or pieces of them, share a row."""
        return LAYOUTS[self.layout].shares_rows

    @property
    def carries_state(self) -> bool:
        """Return whether rows go on in the next batch."""
        return LAYOUTS[self.layout].carries_state

    @property
    def pads_rows(self) -> bool:
        """Return whether batches may hold other cells than tokens."""
        is_padded = self.batch_size is not None or self.align_sequences > 1
        return self.fills_rectangle or (self.shares_rows and is_padded)

    @property
    def keys(self) -> list[tuple[int, ...]] | None:
        """Return the given bucket keys, ascending: the width of each side. None without any."""
        if not isinstance(self.buckets, tuple):
            return None
        return [key if isinstance(key, tuple) else (key,) for key in self.buckets]

    def resolve(self, *, pairs: bool = False) -> ResolvedOptions:
        """Return the options with every default filled in, and texts in the form of the manifest.

        Args:
            pairs: whether there is a decoder's side.

        Raises:
            OptionError: options conflict, one has no effect, or a text cannot be parsed.
            ValueError: split_name is not a split.
        """
        refuse(_conflicts(self, pairs=pairs))
        _check_keys(self)
        chosen = {each.name: getattr(self, each.name) for each in fields(PackOptions)}
        if pairs and self.max_tokens is not None:
            chosen["count"] = self.count or "max"
        if self.shares_rows:
            fill = self.fill or ("chunk" if self.carries_state else "best-fit")
            is_best_fit = fill == "best-fit"
            chosen |= {"fill": fill, "order": "length" if is_best_fit else "none"}
            chosen["overflow"] = self.overflow or "split"
            chosen["shuffle"] = is_best_fit if self.shuffle is None else self.shuffle
        else:
            chosen["shuffle"] = bool(self.shuffle)
            if self.shuffle and self.order == "length":
                chosen["window"] = self.window or SHUFFLED_WINDOW
        if self.carries_state or (self.max_tokens is None and not self.shares_rows):
            chosen["batch_size"] = self.batch_size or DEFAULT_BATCH_SIZE
        if self.buckets == "auto":
            chosen["num_buckets"] = self.num_buckets or DEFAULT_NUM_BUCKETS
        splits = parse_splits(self)
        _check_conditions(self)
        names = () if splits is None else splits.names
        if self.split_name not in (None, *names):
            expected = " or ".join(map(repr, names)) if names else "None without split"
            raise ValueError(f"split_name is {self.split_name!r}, expected {expected}")
        if splits is not None:
            chosen["split"] = splits.spell()
        if self.passes is not None:
            chosen["passes"] = spell_numbers(parse_passes(self.passes))
        if self.share is not None:
            chosen["share"] = spell_numbers(parse_shares(self.share, "--share"))
            chosen["max_passes"] = spell_number(parse_max_passes(self.max_passes or "1"))
        resolved = ResolvedOptions(**chosen)
        is_random = resolved.shuffle or self.passes is not None or self.share is not None
        if self.seed and not is_random:
            raise OptionError(
                f"--seed {self.seed} has no effect without --shuffle, --passes or --share",
                hint="pass --shuffle, or leave out --seed",
            )
        return resolved


class ResolvedOptions(PackOptions):
    """Options that `PackOptions.resolve` has checked, with every default filled in."""

    @property
    def has_passes(self) -> bool:
        """Return whether passes or shares decide how often a sequence is packed.

        They apply to the first split only.
        """
        splits = parse_splits(self)
        is_first = splits is None or self.split_name in (None, splits.names[0])
        return is_first and (self.passes is not None or self.share is not None)

    @property
    def row_length(self) -> int:
        """Return the length of a row that sequences share; 0 where each has its own."""
        return (self.max_tokens or 0) if self.shares_rows else 0

    @property
    def piece_length(self) -> int | None:
        """The length of all pieces of a split sequence but the last; None if they may have any."""
        return None if self.fill == "chunk" else self.max_tokens


def _sort_keys(keys: Any) -> tuple[int, ...] | tuple[tuple[int, int], ...]:
    """Return different bucket keys in ascending order.

    Raises:
        ValueError: they are neither lengths nor pairs of lengths.
    """
    sides = [tuple(key) if isinstance(key, tuple | list) else (key,) for key in keys]
    if {len(key) for key in sides} not in ({1}, {2}) or not all(
        type(value) is int and 1 <= value <= MAX_COUNT for key in sides for value in key
    ):
        raise ValueError(
            f"buckets is {keys!r}, expected 'auto' or lengths, such as [32, 64], or for pairs "
            "[(10, 15), (20, 25)]"
        )
    return tuple(sorted({key if len(key) == 2 else key[0] for key in sides}))


def _check_keys(options: PackOptions) -> None:
    """Refuse a bucket key that conflicts with --pad-to-multiple or --max-tokens."""
    multiple, most = options.pad_to_multiple, options.max_tokens
    for key in options.keys or ():
        spelled = (
            f"--buckets ({','.join(map(str, key))})" if len(key) > 1 else f"--buckets {key[0]}"
        )
        if any(width % multiple for width in key):
            raise OptionError(
                f"{spelled}: not a multiple of --pad-to-multiple {multiple}",
                hint="leave out --pad-to-multiple: the buckets set the widths",
            )
        needed = sum(key) if options.count == "sum" else max(key)
        if options.fills_rectangle and most is not None and needed > most:
            raise OptionError(
                f"{spelled}: a single row exceeds --max-tokens {most:,}",
                hint=f"pass --max-tokens {needed} or more, or leave out this bucket",
            )


# Numbers with names, such as train=0.98,validation=0.01,test=rest

ITEM = r"\s*([^=,]*[^=,\s])\s*(?:=\s*([^=,]*?)\s*)?"
NUMBER = r"\+?([0-9]{1,40}\.?[0-9]{0,40}|\.[0-9]{1,40})"
SPLIT_EXAMPLE = "write it like --split train=0.98,validation=0.01,test=0.01"


@dataclass(frozen=True)
class Splits:
    """The names of all splits, and how documents are assigned to them."""

    names: tuple[str, ...]
    shares: tuple[Fraction, ...] | None  # None: the names are values of the column `by`
    seed: int = 0
    by: str | None = None  # the column whose value is hashed; None is the document

    def spell(self) -> str:
        """Return the text of `--split` in the form that is recorded."""
        if self.shares is None:
            return ",".join(self.names)
        return spell_numbers(dict(zip(self.names, self.shares, strict=True)))


def parse_splits(options: PackOptions) -> Splits | None:
    """Parse the splits of options; None if they have none.

    Raises:
        OptionError: `split` is not of the form NAME=SHARE,… or, with `split_by`, NAME,….
    """
    if options.split is None:
        return None
    place, items = f"--split {quote(options.split)}", _split_items(options.split, "--split")
    folded = {name.lower(): name for name in items}
    for name in items:
        if not re.fullmatch(SPLIT_NAME, name):
            raise OptionError(
                f"{place}: name {quote(name)}, expected only letters from a to z, digits, _ and -",
                hint=SPLIT_EXAMPLE,
            )
        if (twin := folded[name.lower()]) != name:
            raise OptionError(
                f"{place}: found {quote(name)} and {quote(twin)}, expected names that differ in "
                "more than case: some disks do not distinguish it",
                hint=f"rename {name}",
            )
    if not 2 <= len(items) <= MAX_SPLITS:
        raise OptionError(
            f"{place}: found {len(items):,} split{'s' * (len(items) > 1)}, expected 2 to "
            f"{MAX_SPLITS:,}",
            hint=SPLIT_EXAMPLE,
        )
    if any(value is not None for value in items.values()):
        shares = parse_shares(options.split, "--split")
        return Splits(tuple(shares), tuple(shares.values()), options.split_seed, options.split_by)
    if options.split_by is None:
        raise OptionError(
            f"{place}: found names without shares, expected NAME=SHARE",
            hint=f"{SPLIT_EXAMPLE}, or pass --split-by COLUMN to take the values of a column",
        )
    if options.split_seed:
        raise OptionError(
            f"--split-seed {options.split_seed} has no effect: --split names values of --split-by",
            hint="leave out --split-seed",
        )
    return Splits(tuple(items), None, 0, options.split_by)


def parse_shares(text: str, option: str) -> dict[str, Fraction]:
    """Parse shares, in the given order; one of them may be `rest`, what others leave of 1.

    Those of `--split` add up to 1, those of `--share` may be any ratios.

    Args:
        option: the option that a message names, such as --split.

    Raises:
        OptionError: the text has another form, or the shares do not add up to 1.

    >>> {name: str(share) for name, share in parse_shares("a=0.75, b=rest", "--split").items()}
    {'a': '3/4', 'b': '1/4'}
    """
    from fractions import Fraction

    place, numbers = f"{option} {quote(text)}", _split_items(text, option)
    rests = [name for name, value in numbers.items() if value == REST]
    if len(rests) > 1:
        raise OptionError(
            f"{place}: found {REST} for {quote(rests[0])} and {quote(rests[1])}, expected {REST} "
            "at most once",
            hint=f"write a number for {rests[1]}",
        )
    is_ratio = option == "--share" and not rests
    at_most = MAX_PASSES if is_ratio else 1
    given = {name: value for name, value in numbers.items() if value != REST}
    shares = _parse_values(given, place, at_most)
    total = sum(shares.values(), Fraction())
    if rests and total >= 1:
        raise OptionError(
            f"{place}: the other shares add up to {spell_number(total)}, expected less than 1 "
            f"beside {rests[0]}={REST}",
            hint="pass smaller shares",
        )
    if not rests and total != 1 and not is_ratio:
        raise OptionError(
            f"{place}: the shares add up to {spell_number(total)}, expected 1",
            hint=f"write {[*shares][-1]}={REST} for what the others leave",
        )
    return {name: shares.get(name, 1 - total) for name in numbers}


def parse_passes(text: str) -> dict[str, Fraction]:
    """Parse the text of `--passes`, such as A=2,B=0.5, in the given order.

    Raises:
        OptionError: it is not of that form, or a number is out of range.
    """
    return _parse_values(_split_items(text, "--passes"), f"--passes {quote(text)}", MAX_PASSES)


def parse_max_passes(text: str) -> Fraction:
    """Parse the text of `--max-passes`.

    Raises:
        OptionError: it is not a decimal number, or out of range.
    """
    return parse_number(text.strip(), "--max-passes", MAX_PASSES)


def parse_number(text: str, place: str, at_most: int) -> Fraction:
    """Parse a decimal number above 0.

    Args:
        place: what a message begins with.

    Raises:
        OptionError: it is not a decimal number, or out of range.
    """
    from fractions import Fraction

    number = Fraction(text) if re.fullmatch(NUMBER, text) else Fraction()
    if not 0 < number <= at_most:
        raise OptionError(
            f"{place}: found {text[:60] or quote(text)}, expected a decimal number above 0, at "
            f"most {at_most:,}",
            hint="write it like 0.01",
        )
    if (number * 10**MAX_DECIMALS).denominator > 1:
        raise OptionError(
            f"{place}: found {text[:60]}, expected at most {MAX_DECIMALS} decimals",
            hint="round it",
        )
    return number


def spell_numbers(numbers: Mapping[str, Fraction]) -> str:
    """Spell numbers in the form that is recorded.

    >>> from fractions import Fraction
    >>> spell_numbers({"a": Fraction(1, 1000), "b": Fraction(20)})
    'a=0.001,b=20'
    """
    return ",".join(f"{name}={spell_number(number)}" for name, number in numbers.items())


def spell_number(number: Fraction | int) -> str:
    """Spell a number of at most MAX_DECIMALS decimals, without zeros at its end.

    >>> from fractions import Fraction
    >>> spell_number(Fraction(5, 2)), spell_number(20)
    ('2.5', '20')
    """
    whole, decimals = divmod(int(number * 10**MAX_DECIMALS), 10**MAX_DECIMALS)
    return f"{whole}.{decimals:0{MAX_DECIMALS}}".rstrip("0").rstrip(".")


def _split_items(text: str, option: str) -> dict[str, str | None]:
    """Split text at its commas into names and values; a name without = has the value None."""
    items: dict[str, str | None] = {}
    for item in text.split(","):
        found = re.fullmatch(ITEM, item)
        if found is None:
            raise _item_error(f"{option} {quote(text)}", item.strip())
        name, value = found.groups()
        if name in items:
            raise OptionError(
                f"{option} {quote(text)}: found {quote(name)} twice, expected each name once",
                hint=f"leave out one {name}",
            )
        items[name] = value
    return items


def _parse_values(items: Mapping[str, str | None], place: str, at_most: int) -> dict[str, Fraction]:
    numbers = {}
    for name, value in items.items():
        if value is None:
            raise _item_error(place, name)
        numbers[name] = parse_number(value, f"{place}: {name}", at_most)
    return numbers


def _item_error(place: str, item: str) -> OptionError:
    hint = "write it like a=0.9,b=0.1"
    if not place.startswith("--split"):
        hint += ", or with the positions of the stores: 1=0.9,2=0.1"
    return OptionError(
        f"{place}: found {quote(item)}, expected NAME=NUMBER, with commas between them", hint
    )


# Conditions: lang = de    'my field' != "it's"    @length >= 8    @source = corpus/a*

QUOTED = r"""'(?:[^']|'')*'|"(?:[^"]|"")*\""""
CONDITION = (
    rf"""\s*({QUOTED}|[^'"=!<>\s](?:[^=!<>]*[^=!<>\s])?)\s*(!=|<=|>=|=|<|>)(?![=!<>])"""
    rf"""\s*({QUOTED}|[^'"\s](?:.*\S)?)\s*"""
)
BUILT_IN = ("@source", "@length")


@dataclass(frozen=True)
class Condition:
    """What must hold for a sequence to be selected; what a value means is up to the column."""

    name: str  # of a column, or one of BUILT_IN
    operator: str
    value: str
    is_built_in: bool = False


def parse_condition(text: str) -> Condition:
    """Parse a condition of `--where`: a name, an operator and a value.

    A bare name is a column; `@source` and `@length` are built in. A name or value in single or
    double quotes is taken as it is, with the quote itself doubled.

    Raises:
        OptionError: it is not one.

    >>> parse_condition("lang != ' it''s '")
    Condition(name='lang', operator='!=', value=" it's ", is_built_in=False)
    """
    found = re.fullmatch(CONDITION, text, re.DOTALL)
    name, operator, value = found.groups() if found else ("", "", "")
    is_built_in = name.startswith("@")
    if not found or (is_built_in and name not in BUILT_IN):
        raise OptionError(
            f"--where {quote(text)}: expected a column, @length or @source, then one of = != < <= "
            "> >=, then a value",
            hint="write a condition like 'lang = de', '@length >= 8' or '\"my field\" != \"a b\"'",
        )
    return Condition(_unquote(name), operator, _unquote(value), is_built_in)


def _unquote(text: str) -> str:
    return text[1:-1].replace(text[0] * 2, text[0]) if text[0] in "'\"" else text


def _check_conditions(options: PackOptions) -> None:
    """Refuse a condition on the column that --store-column adds."""
    for text in options.where:
        found, added = parse_condition(text), options.store_column
        if found.name == added and not found.is_built_in and added not in options.drop_column:
            raise OptionError(
                f"--where {quote(text)}: found the column that --store-column adds, expected "
                "one of the stores",
                hint="to pack only some stores, leave out the others",
            )


# Options that conflict


def _list_set(o: PackOptions, *names: str) -> Iterator[str]:
    """Yield those of some fields that are not as by default, as options with their values."""
    for name in names:
        if (value := getattr(o, name)) != PackOptions.__dataclass_fields__[name].default:
            yield f"--{name.replace('_', '-')} {value}"


def _conflicts(o: PackOptions, *, pairs: bool) -> Conflicts:
    yield from _conflicts_of_pairs(o) if pairs else _conflicts_of_singles(o)
    if o.shares_rows:
        yield from _conflicts_of_shared(o)
        yield from _conflicts_of_streams(o) if o.carries_state else _conflicts_of_varlen(o)
    else:
        yield from _conflicts_of_unshared(o)
    if not o.fills_rectangle:
        for flag in _list_set(o, "pad_to_multiple", "padding_side"):
            message = f"{flag} needs --layout padded"
            yield True, message, f"pass --layout padded, or leave out {flag}"
    is_twice = o.passes is not None and o.share is not None
    yield is_twice, "--passes conflicts with --share", "leave out one of the two"
    needs_share = o.max_passes is not None and o.share is None
    yield needs_share, "--max-passes needs --share", "pass --share, or leave out --max-passes"
    for name in ("split_seed", "split_by") if o.split is None else ():
        flag = f"--{name.replace('_', '-')}"
        hint = f"pass --split, or leave out {flag}"
        yield getattr(o, name), f"{flag} needs --split", hint


def _conflicts_of_singles(o: PackOptions) -> Conflicts:
    hint = "pass the decoder's store as --decoder, or leave out"
    yield o.count, f"--count {o.count} needs --decoder", f"{hint} --count {o.count}"
    keys = "--buckets with two lengths each"
    yield o.keys and len(o.keys[0]) > 1, f"{keys} needs --decoder", f"{hint} {keys}"


def _conflicts_of_pairs(o: PackOptions) -> Conflicts:
    layouts = " or ".join(name for name, rules in LAYOUTS.items() if rules.holds_pairs)
    yield (
        not LAYOUTS[o.layout].holds_pairs,
        f"--decoder conflicts with --layout {o.layout}, whose rows hold single sequences",
        f"pass --layout {layouts}",
    )
    yield (
        o.overflow == "split",
        "--overflow split conflicts with --decoder: a pair is whole documents",
        "pass --overflow drop, or tokenize --max-length N --overflow truncate",
    )
    yield (
        (o.split_by or "").startswith("decoder."),
        f"--split-by {o.split_by}: splits follow the encoder's side",
        "keep the column on the encoder's side too: tokenize --keep",
    )
    yield (
        o.count and o.max_tokens is None,
        f"--count {o.count} needs --max-tokens",
        "pass --max-tokens, or leave out --count",
    )
    example = "pass pairs of lengths, such as --buckets '(10,15),(20,25)'"
    yield (
        o.buckets == "auto",
        "--buckets auto conflicts with --decoder",
        f"leave it out: --order length, the default, pads little; or {example}",
    )
    keys = o.keys or [(0, 0)]
    yield (
        len(keys[0]) == 1,
        f"--buckets {keys[0][0]}: found one length, expected two, of the encoder's and of the "
        "decoder's row",
        example,
    )


def _conflicts_of_shared(o: PackOptions) -> Conflicts:
    example = "the length of a row, for example --max-tokens 2048"
    if o.carries_state:
        example = "the steps of a batch, for example --max-tokens 128"
    message = f"--layout {o.layout} needs --max-tokens"
    yield o.max_tokens is None, message, f"pass {example}"
    reason = f"conflicts with --layout {o.layout}, whose rows several sequences share"
    for flag in _list_set(o, "window", "buckets", "num_buckets"):
        name = flag.partition(" ")[0]
        yield True, f"{name} {reason}", f"leave out {name}"
    yield o.last_batch == "drop", f"--last-batch drop {reason}", "leave out --last-batch drop"


def _conflicts_of_streams(o: PackOptions) -> Conflicts:
    reason = "conflicts with --layout streams: streams are cut every --max-tokens steps, and only "
    reason += "the last batch is padded"
    flags = [*_list_set(o, "last_batch", "align_sequences")]
    flags += _list_set(o, "fill") if o.fill != "chunk" else ()
    flags += _list_set(o, "overflow") if o.overflow != "split" else ()
    for flag in flags:
        yield True, f"{flag} {reason}", f"leave out {flag}"


def _conflicts_of_varlen(o: PackOptions) -> Conflicts:
    yield (
        o.last_batch == "pad" and o.batch_size is None,
        f"--last-batch pad conflicts with --layout {o.layout} without --batch-size: a batch is "
        "one row",
        "pass --batch-size, or leave out --last-batch pad",
    )
    yield (
        o.order == "none" and o.fill not in ("sequential", "chunk"),
        f"--order none conflicts with --fill best-fit, the default of --layout {o.layout}",
        "pass --fill sequential to keep the order of the store",
    )
    if o.fill == "chunk":
        flags = [*_list_set(o, "align_sequences")]
        flags += _list_set(o, "overflow") if o.overflow != "split" else ()
        for flag in flags:
            message = f"{flag} conflicts with --fill chunk, which cuts anywhere to fill every row"
            yield True, message, f"leave out {flag}"
    length, multiple = o.max_tokens or 0, o.align_sequences
    yield (
        length % multiple,
        f"--max-tokens {length}: not a multiple of --align-sequences {multiple}",
        f"pass --max-tokens {max(length // multiple, 1) * multiple}",
    )


def _conflicts_of_unshared(o: PackOptions) -> Conflicts:
    for flag in _list_set(o, "fill"):
        message = f"{flag} needs --layout varlen"
        yield True, message, "pass --layout varlen, or leave out --fill"
    for flag in _list_set(o, "align_sequences"):
        message = f"{flag} needs --layout varlen"
        yield True, message, "to round the widths of --layout padded, pass --pad-to-multiple"
    yield (
        o.overflow == "split",
        "--overflow split needs --layout varlen",
        "split with tokenize --max-length, or pass --overflow drop",
    )
    yield (
        o.overflow and o.max_tokens is None and o.keys is None,
        f"--overflow {o.overflow} needs --max-tokens or --buckets K1,K2,…",
        "drop long sequences with --drop-longer",
    )
    yield (
        o.window and o.order == "none",
        "--window conflicts with --order none",
        "leave out one of the two",
    )
    needs_auto = o.num_buckets and o.buckets != "auto"
    yield needs_auto, "--num-buckets needs --buckets auto", "pass --buckets auto"
    message = f"--num-buckets {o.num_buckets}: expected at most {MAX_NUM_BUCKETS:,}"
    yield (o.num_buckets or 0) > MAX_NUM_BUCKETS, message, ""
    is_padded = o.last_batch == "pad"
    yield (
        is_padded and not o.fills_rectangle,
        "--last-batch pad needs --layout padded",
        "pass --layout padded, or leave out --last-batch pad",
    )
    yield (
        is_padded and o.max_tokens and not o.buckets,
        "--last-batch pad needs a fixed number of rows: --batch-size alone, or --buckets",
        "pass --batch-size instead of --max-tokens, or add --buckets",
    )
    yield (
        o.max_tokens and o.max_tokens < o.pad_to_multiple,
        f"--max-tokens {o.max_tokens}: expected at least one row of --pad-to-multiple "
        f"{o.pad_to_multiple}",
        f"pass --max-tokens {o.pad_to_multiple}, or more",
    )
