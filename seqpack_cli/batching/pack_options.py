"""The options of pack, which together with the store determine the bytes of the shards.

Options that conflict, or that have no effect, raise an error that names the one to add or to leave
out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from seqpack_cli.batching.conditions import parse_condition
from seqpack_cli.batching.layout_rules import LAYOUTS
from seqpack_cli.errors import (
    MAX_COUNT,
    MAX_SIZE,
    OptionError,
    check_choice,
    check_positive,
    check_seed,
)
from seqpack_cli.runs.arguments import check_fields

# Increase it whenever the same lengths and options give other batches, rows, shards or another
# order: `verify` repeats a plan only if it was made with the same version.
PLAN_VERSION = 1
DEFAULT_BATCH_SIZE = 64
DEFAULT_NUM_BUCKETS = 8
MAX_NUM_BUCKETS = 1024  # choosing them takes 8 bytes for each bucket and distinct length
COUNTS = (
    "batch_size",
    "max_tokens",
    "window",
    "num_buckets",
    "pad_to_multiple",
    "drop_shorter",
    "drop_longer",
    "shard_bytes",
)


@dataclass(frozen=True)
class PackOptions:
    """How sequences become batches, rows and shards, as the options of `seqpack pack` say.

    `seqpack pack --help` explains each; None leaves the choice to `resolve`.

    Raises:
        ValueError: an option has an unknown value, or a number is out of range.
    """

    layout: str = "packed"  # one of LAYOUTS
    batch_size: int | None = None  # most rows in a batch; None is 64, or no limit with max_tokens
    max_tokens: int | None = None  # most tokens in a batch; for padded, most cells
    order: str = "length"  # or "none": the order of the store, or shuffled
    window: int | None = None  # sort by length only inside runs of this many sequences
    shuffle: bool | None = None  # sequences, then batches; None is True for best-fit, else False
    seed: int = 0  # for shuffle
    buckets: str | Sequence[int] | None = None  # "auto", or the bucket keys
    num_buckets: int | None = None  # for buckets="auto"; None is 8
    fill: str | None = None  # how varlen rows are filled: "best-fit" (None) or "sequential"
    overflow: str | None = None  # "error", "drop" or "split"; None: varlen split, keys drop, error
    last_batch: str = "keep"  # or "drop", "pad"
    drop_shorter: int | None = None
    drop_longer: int | None = None
    where: Sequence[str] = ()  # conditions that all hold for a packed sequence: "lang = de"
    pad_to_multiple: int = 1
    padding_side: str = "right"  # or "left"
    pad_id: int | None = None  # None is the tokenizer's, or 0
    shard_bytes: int = 64 << 20  # largest file, unless a single batch is larger

    def __post_init__(self) -> None:
        check_fields(self)
        check_choice("layout", self.layout, LAYOUTS)
        check_choice("order", self.order, ("length", "none"))
        check_choice("fill", self.fill, (None, "best-fit", "sequential"))
        check_choice("overflow", self.overflow, (None, "error", "drop", "split"))
        check_choice("last_batch", self.last_batch, ("keep", "drop", "pad"))
        check_choice("padding_side", self.padding_side, ("right", "left"))
        for name in COUNTS:
            most = MAX_SIZE if name == "shard_bytes" else MAX_COUNT
            check_positive(name, getattr(self, name), at_most=most)
        check_seed(self.seed)
        if self.buckets is not None and self.buckets != "auto":
            keys = tuple(self.buckets)
            if not keys or not all(type(key) is int and 1 <= key <= MAX_COUNT for key in keys):
                raise ValueError(
                    f"buckets is {self.buckets!r}, expected 'auto' or lengths, such as [32, 64]"
                )
            object.__setattr__(self, "buckets", tuple(sorted(set(keys))))

    @property
    def fills_rectangle(self) -> bool:
        """Return whether max_tokens counts the cells of a rectangle, padding included."""
        return LAYOUTS[self.layout].fills_rectangle

    @property
    def shares_rows(self) -> bool:
        """Return whether a batch is one row that several sequences share."""
        return LAYOUTS[self.layout].shares_rows

    def resolve(self) -> PackOptions:
        """Return the options with every default filled in.

        Raises:
            OptionError: options conflict, one has no effect, or a condition cannot be parsed.
        """
        options = self._choose()
        for condition in self.where:
            parse_condition(condition)
        if options.seed and not options.shuffle:
            raise OptionError(
                f"--seed {options.seed} has no effect without --shuffle",
                hint="pass --shuffle, or leave out --seed",
            )
        return options

    def _choose(self) -> PackOptions:
        if self.shares_rows:
            _check_varlen(self)
            fill = self.fill or "best-fit"
            shuffle = fill == "best-fit" if self.shuffle is None else self.shuffle
            return replace(
                self,
                fill=fill,
                order="length" if fill == "best-fit" else "none",
                shuffle=shuffle,
                overflow=self.overflow or "split",
            )
        _check_rows(self)
        if not self.fills_rectangle:
            _check_unpadded(self)
        batch_size, num_buckets = self.batch_size, self.num_buckets
        if batch_size is None and self.max_tokens is None:
            batch_size = DEFAULT_BATCH_SIZE
        if self.buckets == "auto" and num_buckets is None:
            num_buckets = DEFAULT_NUM_BUCKETS
        shuffle = bool(self.shuffle)
        return replace(self, batch_size=batch_size, num_buckets=num_buckets, shuffle=shuffle)


def _check_varlen(options: PackOptions) -> None:
    """Refuse options that conflict with batches of one row each."""
    if options.max_tokens is None:
        raise OptionError(
            "--layout varlen needs --max-tokens",
            hint="pass the length of a row, for example --max-tokens 2048",
        )
    refused = {
        "--batch-size": options.batch_size is not None,
        "--window": options.window is not None,
        "--buckets": options.buckets is not None,
        "--num-buckets": options.num_buckets is not None,
        f"--last-batch {options.last_batch}": options.last_batch != "keep",
    }
    _refuse(
        refused,
        "{} conflicts with --layout varlen: a batch is one row of at most --max-tokens",
        "leave out {}",
    )
    if options.order == "none" and options.fill != "sequential":
        raise OptionError(
            "--order none conflicts with --fill best-fit, the default of --layout varlen",
            hint="pass --fill sequential to keep the order of the store",
        )
    _check_unpadded(options)


def _check_unpadded(options: PackOptions) -> None:
    refused = {
        f"--last-batch {options.last_batch}": options.last_batch == "pad",
        f"--pad-to-multiple {options.pad_to_multiple}": options.pad_to_multiple != 1,
        f"--padding-side {options.padding_side}": options.padding_side != "right",
    }
    _refuse(
        refused,
        f"{{}} conflicts with --layout {options.layout}: its rows are not padded",
        "pass --layout padded, or leave out {}",
    )


def _refuse(refused: dict[str, bool], message: str, hint: str) -> None:
    """Raise OptionError for the first option that is refused."""
    for name, is_refused in refused.items():
        if is_refused:
            raise OptionError(message.format(name), hint=hint.format(name))


def _check_rows(options: PackOptions) -> None:
    """Refuse options that conflict where a batch has several rows."""
    if options.fill is not None:
        raise OptionError(
            f"--fill {options.fill} needs --layout varlen",
            hint="pass --layout varlen, or leave out --fill",
        )
    if options.overflow == "split":
        raise OptionError(
            "--overflow split needs --layout varlen",
            hint="split with tokenize --max-length, or pass --overflow drop",
        )
    if options.overflow is not None and options.max_tokens is None and not _has_keys(options):
        raise OptionError(
            f"--overflow {options.overflow} needs --max-tokens or --buckets K1,K2,…",
            hint="drop long sequences with --drop-longer",
        )
    if options.window is not None and options.order == "none":
        raise OptionError("--window conflicts with --order none", hint="leave out one of the two")
    if options.num_buckets is not None and options.buckets != "auto":
        raise OptionError("--num-buckets needs --buckets auto", hint="pass --buckets auto")
    if (options.num_buckets or 0) > MAX_NUM_BUCKETS:
        raise OptionError(
            f"--num-buckets {options.num_buckets}: expected at most {MAX_NUM_BUCKETS:,}"
        )
    if options.last_batch == "pad" and options.max_tokens is not None and not options.buckets:
        raise OptionError(
            "--last-batch pad needs a fixed number of rows: --batch-size alone, or --buckets",
            hint="pass --batch-size instead of --max-tokens, or add --buckets",
        )
    if options.max_tokens is not None and options.max_tokens < options.pad_to_multiple:
        raise OptionError(
            f"--max-tokens {options.max_tokens}: expected at least one row of "
            f"--pad-to-multiple {options.pad_to_multiple}",
            hint=f"pass --max-tokens {options.pad_to_multiple}, or more",
        )
    if _has_keys(options):
        _check_keys(options)


def _has_keys(options: PackOptions) -> bool:
    return isinstance(options.buckets, tuple)


def _check_keys(options: PackOptions) -> None:
    """Refuse bucket keys that conflict with --pad-to-multiple or --max-tokens."""
    for key in options.buckets or ():
        assert isinstance(key, int)  # noqa: S101 - "auto" has no keys
        if key % options.pad_to_multiple:
            raise OptionError(
                f"--buckets {key}: not a multiple of --pad-to-multiple {options.pad_to_multiple}",
                hint="leave out --pad-to-multiple: the buckets set the widths",
            )
        budget = options.max_tokens if options.fills_rectangle else None
        if budget is not None and key > budget:
            raise OptionError(
                f"--buckets {key}: a single row exceeds --max-tokens {budget:,}",
                hint=f"pass --max-tokens {key} or more, or leave out this bucket",
            )
