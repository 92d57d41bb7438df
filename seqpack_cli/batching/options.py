"""The options of pack, which together with the store determine the bytes of the shards.

Options that conflict, or that have no effect, raise an error that names the one to add or to leave
out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from seqpack_cli.batching.conditions import parse_condition
from seqpack_cli.batching.layout_rules import LAYOUTS
from seqpack_cli.batching.shares import (
    parse_shares,
    spell_number,
    spell_numbers,
    split_items,
)
from seqpack_cli.errors import MAX_COUNT, OptionError, quote
from seqpack_cli.runs.options import RUN, Conflict, check_options, option, refuse

if TYPE_CHECKING:
    from seqpack_cli.batching.splits import Splits

# Increase it whenever the same lengths and options give other batches, rows, shards or another
# order: `verify` repeats a plan only if it was made with the same version.
PLAN_VERSION = 1
DEFAULT_BATCH_SIZE = 64
DEFAULT_NUM_BUCKETS = 8
DEFAULT_NUM_PAIR_BUCKETS = 1024
MAX_SPLITS = 1000
SPLIT_EXAMPLE = "write it like --split train=0.98,validation=0.01,test=0.01"
MAX_NUM_BUCKETS = 1024  # choosing them takes 8 bytes for each bucket and distinct length
WHICH, BATCHES, ROWS = "Which sequences", "Batches", "Rows of varlen and streams"


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
        shown="all sequences",
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
        shown="8, for pairs 1024",
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
        shown="error; varlen: split; buckets: drop",
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
        "Choose the passes for shares of all packed tokens, such as A=0.7,B=rest.",
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
    shard_bytes: int = option(64 << 20, "Largest size of a shard file.", RUN, kind="size")

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
    def pair_keys(self) -> tuple[tuple[int, int], ...] | None:
        """Return the bucket keys of pairs, ascending; None if no keys are given, or single ones."""
        keys: Any = self.buckets
        return keys if isinstance(keys, tuple) and isinstance(keys[0], tuple) else None

    @property
    def shares_rows(self) -> bool:
        """Return whether several sequences, or pieces of them, share a row."""
        return LAYOUTS[self.layout].shares_rows

    @property
    def pads_rows(self) -> bool:
        """Return whether batches may hold other cells than tokens."""
        is_padded = self.batch_size is not None or self.align_sequences > 1
        return self.fills_rectangle or (self.shares_rows and is_padded)

    @property
    def piece_length(self) -> int | None:
        """The length of all pieces of a split sequence but the last; None if they may have any."""
        return None if self.fill == "chunk" else self.max_tokens

    @property
    def carries_state(self) -> bool:
        """Return whether rows go on in the next batch."""
        return LAYOUTS[self.layout].carries_state

    @property
    def rounded_tokens(self) -> int:
        """The length of a row that fits --align-sequences."""
        return max((self.max_tokens or 0) // self.align_sequences, 1) * self.align_sequences

    @property
    def has_passes(self) -> bool:
        """Return whether passes or shares decide how often a sequence is packed.

        They apply to the first split only.
        """
        splits = parse_splits(self)
        is_first = splits is None or self.split_name in (None, splits.names[0])
        return is_first and (self.passes is not None or self.share is not None)

    def resolve(self, *, pairs: bool = False) -> PackOptions:
        """Return the options with every default filled in, and texts in the form of the manifest.

        Args:
            pairs: whether there is a decoder's side.

        Raises:
            OptionError: options conflict, one has no effect, or a text cannot be parsed.
            ValueError: split_name is not a split.
        """
        refuse(PAIRED if pairs else UNPAIRED, self)
        options = self
        if pairs and self.max_tokens is not None:
            options = replace(self, count=self.count or "max")
        if pairs and self.buckets == "auto" and self.num_buckets is None:
            options = replace(options, num_buckets=DEFAULT_NUM_PAIR_BUCKETS)
        options = options._choose()._choose_documents()
        refuse(RANDOM, options)
        return options

    def _choose(self) -> PackOptions:
        if self.shares_rows:
            refuse([*SHARED, *(STREAMS if self.carries_state else VARLEN), *UNPADDED], self)
            fill = self.fill or ("chunk" if self.carries_state else "best-fit")
            shuffle = fill == "best-fit" if self.shuffle is None else self.shuffle
            return replace(
                self,
                batch_size=self.batch_size or (DEFAULT_BATCH_SIZE if self.carries_state else None),
                fill=fill,
                order="length" if fill == "best-fit" else "none",
                shuffle=shuffle,
                overflow=self.overflow or "split",
            )
        refuse(UNSHARED, self)
        for key in self.buckets if isinstance(self.buckets, tuple) else ():
            self._check_key(key)
        if not self.fills_rectangle:
            refuse(UNPADDED, self)
        batch_size, num_buckets = self.batch_size, self.num_buckets
        if batch_size is None and self.max_tokens is None:
            batch_size = DEFAULT_BATCH_SIZE
        if self.buckets == "auto" and num_buckets is None:
            num_buckets = DEFAULT_NUM_BUCKETS
        shuffle = bool(self.shuffle)
        return replace(self, batch_size=batch_size, num_buckets=num_buckets, shuffle=shuffle)

    def _check_key(self, key: Any) -> None:
        """Refuse a bucket key that conflicts with --pad-to-multiple or --max-tokens."""
        widths = key if isinstance(key, tuple) else (key,)
        if any(width % self.pad_to_multiple for width in widths):
            raise OptionError(
                f"--buckets {spell_key(key)}: not a multiple of --pad-to-multiple "
                f"{self.pad_to_multiple}",
                hint="leave out --pad-to-multiple: the buckets set the widths",
            )
        self.check_room(key, f"--buckets {spell_key(key)}: a single row", "leave out this bucket")

    def check_room(self, key: Any, what: str, otherwise: str) -> None:
        """Refuse a bucket key if --max-tokens has no room for a row of it."""
        widths = key if isinstance(key, tuple | list) else (key,)
        needed = sum(widths) if self.count == "sum" else max(widths)
        if self.fills_rectangle and self.max_tokens is not None and needed > self.max_tokens:
            raise OptionError(
                f"{what} exceeds --max-tokens {self.max_tokens:,}",
                hint=f"pass --max-tokens {needed} or more, or {otherwise}",
            )

    def _choose_documents(self) -> PackOptions:
        from seqpack_cli.batching.passes import parse_max_passes, parse_passes

        splits = parse_splits(self)
        refuse(SELECTED, self)
        if splits is not None and splits.shares is None and self.split_seed:
            raise OptionError(
                f"--split-seed {self.split_seed} has no effect: --split names values of --split-by",
                hint="leave out --split-seed",
            )
        self._check_conditions()
        names = splits.names if splits is not None else ()
        if self.split_name is not None and self.split_name not in names:
            expected = " or ".join(map(repr, names)) if names else "None without split"
            raise ValueError(f"split_name is {self.split_name!r}, expected {expected}")
        passes, share, max_passes = self.passes, self.share, self.max_passes
        if passes is not None:
            passes = spell_numbers(parse_passes(passes))
        if share is not None:
            share = spell_numbers(parse_shares(share, "--share"))
            max_passes = spell_number(parse_max_passes(max_passes or "1"))
        split = None if splits is None else splits.spell()
        return replace(self, split=split, passes=passes, share=share, max_passes=max_passes)

    def _check_conditions(self) -> None:
        added = self.store_column
        for text in self.where:
            found = parse_condition(text)
            if not found.is_built_in and found.name == added and added not in self.drop_column:
                raise OptionError(
                    f"--where {quote(text)}: found the column that --store-column adds, expected "
                    "one of the stores",
                    hint="to pack only some stores, leave out the others",
                )


def parse_splits(options: PackOptions) -> Splits | None:
    """Parse the splits of options; None if they have none.

    Raises:
        OptionError: `split` is not of the form NAME=SHARE,… or, with `split_by`, NAME,….
    """
    from seqpack_cli.batching.splits import Splits
    from seqpack_cli.runs.run_folder import SPLIT_NAME

    text = options.split
    if text is None:
        return None
    items = split_items(text, "--split")
    place = f"--split {quote(text)}"
    for name in items:
        if not SPLIT_NAME.fullmatch(name):
            raise OptionError(
                f"{place}: name {quote(name)}, expected only letters from a to z, digits, _ and -",
                hint=SPLIT_EXAMPLE,
            )
    twin = {name.lower(): name for name in items}
    for name in items:
        if twin[name.lower()] != name:
            raise OptionError(
                f"{place}: found {quote(name)} and {quote(twin[name.lower()])}, expected names "
                "that differ in more than case: some disks do not distinguish it",
                hint=f"rename {name}",
            )
    if not 2 <= len(items) <= MAX_SPLITS:
        raise OptionError(
            f"{place}: found {len(items):,} split{'s' * (len(items) > 1)}, expected 2 to "
            f"{MAX_SPLITS:,}",
            hint=SPLIT_EXAMPLE,
        )
    if any(value is not None for value in items.values()):
        shares = parse_shares(text, "--split")
        return Splits(tuple(shares), tuple(shares.values()), options.split_seed, options.split_by)
    if options.split_by is None:
        raise OptionError(
            f"{place}: found names without shares, expected NAME=SHARE",
            hint=f"{SPLIT_EXAMPLE}, or pass --split-by COLUMN to take the values of a column",
        )
    return Splits(tuple(items), None, 0, options.split_by)


def spell_key(key: object) -> str:
    """Return a bucket key as the option takes it.

    >>> spell_key(32), spell_key((10, 15))
    ('32', '(10,15)')
    """
    return f"({','.join(map(str, key))})" if isinstance(key, tuple | list) else str(key)


def _sort_keys(keys: Any) -> tuple[int, ...] | tuple[tuple[int, int], ...]:
    """Return different bucket keys in ascending order.

    Raises:
        ValueError: they are neither lengths nor pairs of lengths.
    """
    pairs = [key if isinstance(key, tuple | list) else (key,) for key in keys]
    sizes = {len(pair) for pair in pairs}
    values = [value for pair in pairs for value in pair]
    if sizes not in ({1}, {2}) or not all(
        type(value) is int and 1 <= value <= MAX_COUNT for value in values
    ):
        raise ValueError(
            f"buckets is {keys!r}, expected 'auto' or lengths, such as [32, 64], or for pairs "
            "[(10, 15), (20, 25)]"
        )
    return tuple(sorted({tuple(pair) if len(pair) == 2 else pair[0] for pair in pairs}))


def _set(names: str, message: str, hint: str = "leave out {}") -> tuple[Conflict, ...]:
    """Return a conflict for each of some fields that is not what it is by default.

    Args:
        message, hint: with {} for the option and its value.
    """
    defaults = {name: PackOptions.__dataclass_fields__[name].default for name in names.split()}
    flags = {name: f"--{name.replace('_', '-')} {{o.{name}}}" for name in defaults}
    return tuple(
        (
            lambda o, name=name: getattr(o, name) != defaults[name],
            message.replace("{}", flags[name]),
            hint.replace("{}", flags[name]),
        )
        for name in defaults
    )


PAIR_LAYOUTS = [name for name, rules in LAYOUTS.items() if rules.holds_pairs]
LEAVE = "leave out one of the two"
UNPAIRED: tuple[Conflict, ...] = (
    *_set("count", "{} needs --decoder", "pass the decoder's store as --decoder, or leave out {}"),
    (
        lambda o: o.pair_keys is not None,
        "--buckets with two lengths each needs --decoder",
        "pass the decoder's store as --decoder, or leave out --buckets with two lengths each",
    ),
)
PAIRED: tuple[Conflict, ...] = (
    (
        lambda o: o.layout not in PAIR_LAYOUTS,
        "--decoder conflicts with --layout {o.layout}, whose rows hold single sequences",
        f"pass --layout {' or '.join(PAIR_LAYOUTS)}",
    ),
    (
        lambda o: o.overflow == "split",
        "--overflow split conflicts with --decoder: a pair is whole documents",
        "pass --overflow drop, or tokenize --max-length N --overflow truncate",
    ),
    (
        lambda o: (o.split_by or "").startswith("decoder."),
        "--split-by {o.split_by}: splits follow the encoder's side",
        "keep the column on the encoder's side too: tokenize --keep",
    ),
    (
        lambda o: o.count is not None and o.max_tokens is None,
        "--count {o.count} needs --max-tokens",
        "pass --max-tokens, or leave out --count",
    ),
    (
        lambda o: isinstance(o.buckets, tuple) and o.pair_keys is None,
        "--buckets {o.buckets[0]}: found one length, expected two, of the encoder's and of the "
        "decoder's row",
        "pass pairs of lengths, such as --buckets '(10,15),(20,25)'",
    ),
)
OF_SHARED = "conflicts with --layout {o.layout}, whose rows several sequences share"
SHARED: tuple[Conflict, ...] = (
    (
        lambda o: o.max_tokens is None and o.carries_state,
        "--layout {o.layout} needs --max-tokens",
        "pass the steps of a batch, for example --max-tokens 128",
    ),
    (
        lambda o: o.max_tokens is None,
        "--layout {o.layout} needs --max-tokens",
        "pass the length of a row, for example --max-tokens 2048",
    ),
    (lambda o: o.window is not None, f"--window {OF_SHARED}", "leave out --window"),
    (lambda o: o.buckets is not None, f"--buckets {OF_SHARED}", "leave out --buckets"),
    (lambda o: o.num_buckets is not None, f"--num-buckets {OF_SHARED}", "leave out --num-buckets"),
    (
        lambda o: o.last_batch == "drop",
        f"--last-batch drop {OF_SHARED}",
        "leave out --last-batch drop",
    ),
)
OF_STREAMS = (
    "conflicts with --layout streams: streams are cut every --max-tokens steps, and only the last "
    "batch is padded"
)
STREAMS: tuple[Conflict, ...] = (
    (
        lambda o: o.fill not in (None, "chunk"),
        f"--fill {{o.fill}} {OF_STREAMS}",
        "leave out --fill {o.fill}",
    ),
    (
        lambda o: o.overflow not in (None, "split"),
        f"--overflow {{o.overflow}} {OF_STREAMS}",
        "leave out --overflow {o.overflow}",
    ),
    *_set("last_batch align_sequences", f"{{}} {OF_STREAMS}"),
)
OF_CHUNKS = "conflicts with --fill chunk, which cuts anywhere to fill every row"
VARLEN: tuple[Conflict, ...] = (
    (
        lambda o: o.last_batch == "pad" and o.batch_size is None,
        "--last-batch pad conflicts with --layout {o.layout} without --batch-size: a batch is one "
        "row",
        "pass --batch-size, or leave out --last-batch pad",
    ),
    (
        lambda o: o.order == "none" and o.fill not in ("sequential", "chunk"),
        "--order none conflicts with --fill best-fit, the default of --layout {o.layout}",
        "pass --fill sequential to keep the order of the store",
    ),
    (
        lambda o: o.fill == "chunk" and o.overflow not in (None, "split"),
        f"--overflow {{o.overflow}} {OF_CHUNKS}",
        "leave out --overflow {o.overflow}",
    ),
    (
        lambda o: o.fill == "chunk" and o.align_sequences != 1,
        f"--align-sequences {{o.align_sequences}} {OF_CHUNKS}",
        "leave out --align-sequences {o.align_sequences}",
    ),
    (
        lambda o: (o.max_tokens or 0) % o.align_sequences,
        "--max-tokens {o.max_tokens}: not a multiple of --align-sequences {o.align_sequences}",
        "pass --max-tokens {o.rounded_tokens}",
    ),
)
ONLY_PADDED = ("{} needs --layout padded", "pass --layout padded, or leave out {}")
UNPADDED: tuple[Conflict, ...] = (
    (
        lambda o: o.last_batch == "pad" and not o.shares_rows,
        "--last-batch pad needs --layout padded",
        "pass --layout padded, or leave out --last-batch pad",
    ),
    *_set("pad_to_multiple padding_side", *ONLY_PADDED),
)
UNSHARED: tuple[Conflict, ...] = (
    *_set("fill", "{} needs --layout varlen", "pass --layout varlen, or leave out --fill"),
    *_set(
        "align_sequences",
        "{} needs --layout varlen",
        "to round the widths of --layout padded, pass --pad-to-multiple",
    ),
    (
        lambda o: o.overflow == "split",
        "--overflow split needs --layout varlen",
        "split with tokenize --max-length, or pass --overflow drop",
    ),
    (
        lambda o: (
            o.overflow is not None and o.max_tokens is None and not isinstance(o.buckets, tuple)
        ),
        "--overflow {o.overflow} needs --max-tokens or --buckets K1,K2,…",
        "drop long sequences with --drop-longer",
    ),
    (
        lambda o: o.window is not None and o.order == "none",
        "--window conflicts with --order none",
        LEAVE,
    ),
    (
        lambda o: o.num_buckets is not None and o.buckets != "auto",
        "--num-buckets needs --buckets auto",
        "pass --buckets auto",
    ),
    (
        lambda o: (o.num_buckets or 0) > MAX_NUM_BUCKETS,
        f"--num-buckets {{o.num_buckets}}: expected at most {MAX_NUM_BUCKETS:,}",
        "",
    ),
    (
        lambda o: o.last_batch == "pad" and o.max_tokens is not None and not o.buckets,
        "--last-batch pad needs a fixed number of rows: --batch-size alone, or --buckets",
        "pass --batch-size instead of --max-tokens, or add --buckets",
    ),
    (
        lambda o: o.max_tokens is not None and o.max_tokens < o.pad_to_multiple,
        "--max-tokens {o.max_tokens}: expected at least one row of --pad-to-multiple "
        "{o.pad_to_multiple}",
        "pass --max-tokens {o.pad_to_multiple}, or more",
    ),
)
SELECTED: tuple[Conflict, ...] = (
    (
        lambda o: o.passes is not None and o.share is not None,
        "--passes conflicts with --share",
        LEAVE,
    ),
    (
        lambda o: o.max_passes is not None and o.share is None,
        "--max-passes needs --share",
        "pass --share, or leave out --max-passes",
    ),
    (
        lambda o: o.split_seed != 0 and o.split is None,
        "--split-seed needs --split",
        "pass --split, or leave out --split-seed",
    ),
    (
        lambda o: o.split_by is not None and o.split is None,
        "--split-by needs --split",
        "pass --split, or leave out --split-by",
    ),
)
RANDOM: tuple[Conflict, ...] = (
    (
        lambda o: o.seed and not (o.shuffle or o.passes is not None or o.share is not None),
        "--seed {o.seed} has no effect without --shuffle, --passes or --share",
        "pass --shuffle, or leave out --seed",
    ),
)
