"""The options of pack, which together with the stores determine the bytes of the shards.

What is given on the command line or by a caller is a `PackOptions`. `resolve` fills in every
default, refuses options that conflict or have no effect, and parses the texts of splits, passes,
shares and conditions: what plans is given a `ResolvedOptions`. Numbers in texts are exact, so that
shares add up to exactly 1, and equal numbers have one spelling, which is recorded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from seqpack_cli.errors import MAX_COUNT, OptionError, quote
from seqpack_cli.runs.options import (
    RUN,
    SPLIT_NAME,
    Conflicts,
    check_options,
    find_given,
    option,
    refuse,
)

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
    carries_state: bool = False  # rows go on in the next batch, so the order of batches is fixed


LAYOUTS = {
    "packed": LayoutRules(needs_sorted_rows=True),
    "padded": LayoutRules(fills_rectangle=True),
    "varlen": LayoutRules(shares_rows=True),
    "streams": LayoutRules(shares_rows=True, carries_state=True),
}
UNSHARED = " or ".join(name for name, rules in LAYOUTS.items() if not rules.shares_rows)
# The layouts on which options, or some of their values, have an effect.
LAYOUTS_OF = {
    "--window": UNSHARED,
    "--buckets": UNSHARED,
    "--num-buckets": UNSHARED,
    "--pad-to-multiple": "padded",
    "--padding-side": "padded",
    "--fill": "varlen or streams",
    "--fill best-fit": "varlen",
    "--fill sequential": "varlen",
    "--align-sequences": "varlen",
    "--overflow split": "varlen or streams",
    "--overflow drop": f"{UNSHARED} or varlen",
    "--overflow error": f"{UNSHARED} or varlen",
    "--last-batch drop": UNSHARED,
    "--last-batch pad": "padded or varlen",
}
OTHER_WAYS = {  # to get what they are for, on other layouts
    "--align-sequences": "to round the widths of --layout padded, pass --pad-to-multiple",
    "--overflow split": "split with tokenize --max-length, or pass --overflow drop",
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
        if self.buckets in (None, "auto"):
            return
        given: Any = self.buckets
        keys = self.keys or []
        if {*map(len, keys)} not in ({1}, {2}) or not all(
            type(width) is int and 1 <= width <= MAX_COUNT for key in keys for width in key
        ):
            raise ValueError(
                f"buckets is {given!r}, expected 'auto' or lengths, such as [32, 64], or for pairs "
                "[(10, 15), (20, 25)]"
            )
        object.__setattr__(self, "buckets", tuple(sorted({*given})))

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

    @property
    def split_shares(self) -> Mapping[str, str | None]:
        """Return the share of each split as text; None if its name is a value of split_by."""
        return {} if self.split is None else _split_items(self.split, "--split")

    def resolve(self, *, pairs: bool = False) -> ResolvedOptions:
        """Return the options with every default filled in, and texts in the form of the manifest.

        Args:
            pairs: whether there is a decoder's side.

        Raises:
            OptionError: options conflict, one has no effect, or a text cannot be parsed.
            ValueError: split_name is not a split.
        """
        refuse(_conflicts(self, pairs=pairs))
        chosen = dict(vars(self))
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
        if self.split_name not in (None, *splits):
            expected = " or ".join(map(repr, splits)) or "None without split"
            raise ValueError(f"split_name is {self.split_name!r}, expected {expected}")
        if splits:
            chosen["split"] = spell_numbers(splits)
        if self.passes is not None:
            chosen["passes"] = spell_numbers(parse_numbers(self.passes, "--passes"))
        if self.share is not None:
            chosen["share"] = spell_numbers(parse_numbers(self.share, "--share"))
            chosen["max_passes"] = spell_number(parse_number(self.max_passes or "1"))
        if self.seed and not (chosen["shuffle"] or self.passes or self.share):
            raise OptionError(
                f"--seed {self.seed} has no effect without --shuffle, --passes or --share",
                hint="pass --shuffle, or leave out --seed",
            )
        return ResolvedOptions(**chosen)


class ResolvedOptions(PackOptions):
    """Options that `PackOptions.resolve` has checked, with every default filled in."""

    @property
    def has_passes(self) -> bool:
        """Return whether passes or shares decide how often a sequence is packed.

        They apply to the first split only.
        """
        is_first = self.split_name in (None, *[*self.split_shares][:1])
        return is_first and (self.passes is not None or self.share is not None)

    @property
    def row_length(self) -> int:
        """Return the length of a row that sequences share; 0 where each has its own."""
        return (self.max_tokens or 0) if self.shares_rows else 0

    @property
    def piece_length(self) -> int | None:
        """The length of all pieces of a split sequence but the last; None if they may have any."""
        return None if self.fill == "chunk" else self.max_tokens


# Numbers with names, such as train=0.98,validation=0.01,test=rest

ITEM = r"\s*([^=,]*[^=,\s])\s*(?:=\s*([^=,]*?)\s*)?"
NUMBER = rf"\+?([0-9]{{1,40}}\.?[0-9]{{0,{MAX_DECIMALS}}}|\.[0-9]{{1,{MAX_DECIMALS}}})"
SPLIT_EXAMPLE = "write it like --split train=0.98,validation=0.01,test=0.01"


def parse_splits(options: PackOptions) -> Mapping[str, Fraction | None]:
    """Parse the share of each split; None if its name is a value of `split_by`.

    Raises:
        OptionError: `split` is not of the form NAME=SHARE,… or, with `split_by`, NAME,….
    """
    if options.split is None:
        return {}
    place, items = f"--split {quote(options.split)}", options.split_shares
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
    if "=" in options.split:
        return parse_numbers(options.split, "--split")
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
    return dict.fromkeys(items)


def parse_numbers(text: str, option: str) -> dict[str, Fraction]:
    """Parse names with numbers, in the given order; a share may be `rest`, what others leave of 1.

    Those of `--split` add up to 1, those of `--share` may be any ratios.

    Args:
        option: that has the text: --split, --share or --passes.

    Raises:
        OptionError: the text has another form, or the shares do not add up to 1.

    >>> {name: str(share) for name, share in parse_numbers("a=0.75, b=rest", "--split").items()}
    {'a': '3/4', 'b': '1/4'}
    """
    from fractions import Fraction

    place, items = f"{option} {quote(text)}", _split_items(text, option)
    rests = [name for name, value in items.items() if value == REST and option != "--passes"]
    if len(rests) > 1:
        raise OptionError(
            f"{place}: found {REST} for {quote(rests[0])} and {quote(rests[1])}, expected {REST} "
            "at most once",
            hint=f"write a number for {rests[1]}",
        )
    numbers = {
        name: parse_number(value, f"{place}: {name}")
        for name, value in items.items()
        if name not in rests
    }
    total = sum(numbers.values(), Fraction())
    if rests and total >= 1:
        raise OptionError(
            f"{place}: the other shares add up to {spell_number(total)}, expected less than 1 "
            f"beside {rests[0]}={REST}",
            hint="pass smaller shares",
        )
    if option == "--split" and not rests and total != 1:
        raise OptionError(
            f"{place}: the shares add up to {spell_number(total)}, expected 1",
            hint=f"write {[*items][-1]}={REST} for what the others leave",
        )
    return {name: numbers.get(name, 1 - total) for name in items}


def parse_number(text: str, place: str = "--max-passes") -> Fraction:
    """Parse a decimal number above 0.

    Args:
        place: what a message begins with.

    Raises:
        OptionError: it is not a decimal number, or out of range.
    """
    from fractions import Fraction

    found = text.strip()
    number = Fraction(found) if re.fullmatch(NUMBER, found) else Fraction()
    if not 0 < number <= MAX_PASSES:
        raise OptionError(
            f"{place}: found {found[:60] or quote(found)}, expected a decimal number above 0, at "
            f"most {MAX_PASSES:,}, with at most {MAX_DECIMALS} decimals",
            hint="write it like 0.01",
        )
    return number


def spell_numbers(numbers: Mapping[str, Fraction | None]) -> str:
    """Spell names, and the numbers that they have, in the form that is recorded.

    >>> from fractions import Fraction
    >>> spell_numbers({"a": Fraction(1, 1000), "b": Fraction(20)}), spell_numbers({"a": None})
    ('a=0.001,b=20', 'a')
    """
    return ",".join(
        name if number is None else f"{name}={spell_number(number)}"
        for name, number in numbers.items()
    )


def spell_number(number: Fraction | int) -> str:
    """Spell a number of at most MAX_DECIMALS decimals, without zeros at its end.

    >>> from fractions import Fraction
    >>> spell_number(Fraction(5, 2)), spell_number(20)
    ('2.5', '20')
    """
    whole, decimals = divmod(int(number * 10**MAX_DECIMALS), 10**MAX_DECIMALS)
    return f"{whole}.{decimals:0{MAX_DECIMALS}}".rstrip("0").rstrip(".")


def _split_items(text: str, option: str) -> dict[str, str]:
    """Split text at its commas into names and values; names of splits may stand alone."""
    items, is_plain = dict[str, str](), option == "--split" and "=" not in text
    for item in text.split(","):
        found = re.fullmatch(ITEM, item)
        if found is None or (found[2] is None and not is_plain):
            hint = "write it like a=0.9,b=0.1"
            if option != "--split":
                hint += ", or with the positions of the stores: 1=0.9,2=0.1"
            raise OptionError(
                f"{option} {quote(text)}: found {quote(item.strip())}, expected NAME=NUMBER, with "
                "commas between them",
                hint,
            )
        if found[1] in items:
            raise OptionError(
                f"{option} {quote(text)}: found {quote(found[1])} twice, expected each name once",
                hint=f"leave out one {found[1]}",
            )
        items[found[1]] = found[2]
    return items


# Conditions: lang = de    'my field' != "it's"    @length >= 8    @source = corpus/a*

QUOTED = r"""'(?:[^']|'')*'|"(?:[^"]|"")*\""""
CONDITION = (
    rf"""\s*({QUOTED}|[^'"=!<>\s](?:[^=!<>]*[^=!<>\s])?)\s*(!=|<=|>=|=|<|>)(?![=!<>])"""
    rf"""\s*({QUOTED}|[^'"\s](?:.*\S)?)\s*"""
)
BUILT_IN = ("@source", "@length")


class Condition(NamedTuple):
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


# Options that conflict


def _need(
    is_lacking: object, flag: str, needed: str, hint: str | None = None
) -> tuple[object, str, str]:
    """Return the conflict of an option that has no effect without another one."""
    name = flag.partition(" ")[0]
    return is_lacking, f"{flag} needs {needed}", hint or f"pass {needed}, or leave out {name}"


def _conflicts(o: PackOptions, *, pairs: bool) -> Conflicts:
    keys, most, multiple = o.keys or [], o.max_tokens, o.pad_to_multiple
    if pairs:
        yield from _conflicts_of_pairs(o)
    else:
        yield _need(o.count, f"--count {o.count}", "--decoder")
        is_pair = any(len(key) > 1 for key in keys)
        yield _need(is_pair, "--buckets with two lengths each", "--decoder")
    for _, flag, value in find_given(o):
        for spelled in (flag, f"{flag} {value}"):
            layouts, hint = LAYOUTS_OF.get(spelled, o.layout), OTHER_WAYS.get(spelled)
            yield _need(o.layout not in layouts, spelled, f"--layout {layouts}", hint)
    yield from _conflicts_of_shared(o) if o.shares_rows else _conflicts_of_unshared(o)
    yield o.passes and o.share, "--passes conflicts with --share", "leave out one of the two"
    yield _need(o.max_passes is not None and o.share is None, "--max-passes", "--share")
    yield _need(o.split_seed and o.split is None, "--split-seed", "--split")
    yield _need(o.split_by and o.split is None, "--split-by", "--split")
    for key in keys:
        spelled = f"--buckets ({','.join(map(str, key))})" if pairs else f"--buckets {key[0]}"
        yield (
            any(width % multiple for width in key),
            f"{spelled}: not a multiple of --pad-to-multiple {multiple}",
            "leave out --pad-to-multiple: the buckets set the widths",
        )
        needed = sum(key) if o.count == "sum" else max(key)
        yield (
            o.fills_rectangle and needed > (most or needed),
            f"{spelled}: a single row exceeds --max-tokens {most or 0:,}",
            f"pass --max-tokens {needed} or more, or leave out this bucket",
        )
    for text in o.where:
        condition, added = parse_condition(text), o.store_column
        yield (
            condition.name == added and not condition.is_built_in and added not in o.drop_column,
            f"--where {quote(text)}: found the column that --store-column adds, expected one of "
            "the stores",
            "to pack only some stores, leave out the others",
        )


def _conflicts_of_pairs(o: PackOptions) -> Conflicts:
    yield _need(o.shares_rows, "--decoder", f"--layout {UNSHARED}")
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
    yield _need(o.count and o.max_tokens is None, f"--count {o.count}", "--max-tokens")
    example = "pass pairs of lengths, such as --buckets '(10,15),(20,25)'"
    yield (
        o.buckets == "auto",
        "--buckets auto conflicts with --decoder",
        f"leave it out: --order length, the default, pads little; or {example}",
    )
    for key in o.keys or ():
        what = "found one length, expected two, of the encoder's and of the decoder's row"
        yield len(key) == 1, f"--buckets {key[0]}: {what}", example


def _conflicts_of_shared(o: PackOptions) -> Conflicts:
    example, layout = "the length of a row, for example --max-tokens 2048", f"--layout {o.layout}"
    if o.carries_state:
        example = "the steps of a batch, for example --max-tokens 128"
    yield _need(o.max_tokens is None, layout, "--max-tokens", f"pass {example}")
    for is_other, flag in (
        (o.align_sequences > 1, "--align-sequences"),
        (o.overflow not in (None, "split"), f"--overflow {o.overflow}"),
    ):
        what = f"{flag} conflicts with --fill chunk, which cuts anywhere to fill every row"
        yield o.fill == "chunk" and is_other, what, f"leave out {flag}"
    yield (
        o.last_batch == "pad" and o.batch_size is None,
        f"--last-batch pad conflicts with {layout} without --batch-size: a batch is one row",
        "pass --batch-size, or leave out --last-batch pad",
    )
    yield (
        o.order == "none" and o.fill not in ("sequential", "chunk") and not o.carries_state,
        f"--order none conflicts with --fill best-fit, the default of {layout}",
        "pass --fill sequential to keep the order of the store",
    )
    length, multiple = o.max_tokens or 0, o.align_sequences
    yield (
        length % multiple,
        f"--max-tokens {length}: not a multiple of --align-sequences {multiple}",
        f"pass --max-tokens {max(length // multiple, 1) * multiple}",
    )


def _conflicts_of_unshared(o: PackOptions) -> Conflicts:
    is_lacking = o.overflow and o.max_tokens is None and o.keys is None
    limits, hint = "--max-tokens or --buckets K1,K2,…", "drop long sequences with --drop-longer"
    yield _need(is_lacking, f"--overflow {o.overflow}", limits, hint)
    yield (
        o.window and o.order == "none",
        "--window conflicts with --order none",
        "leave out one of the two",
    )
    yield _need(o.num_buckets and o.buckets != "auto", "--num-buckets", "--buckets auto")
    message = f"--num-buckets {o.num_buckets}: expected at most {MAX_NUM_BUCKETS:,}"
    yield (o.num_buckets or 0) > MAX_NUM_BUCKETS, message, ""
    yield (
        o.last_batch == "pad" and o.max_tokens and not o.buckets,
        "--last-batch pad needs a fixed number of rows: --batch-size alone, or --buckets",
        "pass --batch-size instead of --max-tokens, or add --buckets",
    )
    yield (
        o.max_tokens and o.max_tokens < o.pad_to_multiple,
        f"--max-tokens {o.max_tokens}: expected at least one row of --pad-to-multiple "
        f"{o.pad_to_multiple}",
        f"pass --max-tokens {o.pad_to_multiple}, or more",
    )
