"""All that decides the bytes of shards, besides the store: one value, checked as a whole.

What can not go together is refused here, with the option to leave out or to add, rather than
passed over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from seqpack_cli.batching.layout_rules import LAYOUTS
from seqpack_cli.errors import OptionError, check_choice, check_positive
from seqpack_cli.runs.arguments import check_fields

# Raise it whenever the same lengths and options would be cut into other batches, rows or shards, or
# put into another order: `verify` plans again only what was planned by its own version.
PLAN_VERSION = 1
DEFAULT_BATCH_SIZE = 64
MAX_INT32 = 2**31 - 1  # tokens of a sequence at most, and so of all that is counted here
DEFAULT_NUM_BUCKETS = 8
MAX_NUM_BUCKETS = 1024  # choosing them takes 8 bytes for each bucket and distinct length
MAX_SHARD_BYTES = 2**50
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
    """How sequences become batches, rows and shards; None leaves the choice to `resolve`."""

    layout: str = "packed"  # one of LAYOUTS
    batch_size: int | None = None  # rows; None is 64, or no limit where max_tokens is given
    max_tokens: int | None = None  # padded: cells of the rectangle; else real tokens
    order: str = "length"  # or "none": as they come, or shuffled
    window: int | None = None  # sort by length inside runs of so many sequences
    shuffle: bool | None = None  # sequences, then batches; None is only for best-fit
    seed: int = 0
    buckets: str | Sequence[int] | None = None  # "auto" or keys
    num_buckets: int | None = None  # of auto; None is 8
    fill: str | None = None  # of varlen: "best-fit" (None) or "sequential"
    overflow: str | None = None  # "error", "drop", "split"; None goes by what is too short
    last_batch: str = "keep"  # or "drop", "pad"
    drop_shorter: int | None = None
    drop_longer: int | None = None
    pad_to_multiple: int = 1
    padding_side: str = "right"  # or "left"
    pad_id: int | None = None  # None takes the tokenizer's, or 0
    shard_bytes: int = 64 << 20  # of a file at most, unless one batch takes more

    def __post_init__(self) -> None:
        check_fields(self)
        check_choice("layout", self.layout, LAYOUTS)
        check_choice("order", self.order, ("length", "none"))
        check_choice("fill", self.fill, (None, "best-fit", "sequential"))
        check_choice("overflow", self.overflow, (None, "error", "drop", "split"))
        check_choice("last_batch", self.last_batch, ("keep", "drop", "pad"))
        check_choice("padding_side", self.padding_side, ("right", "left"))
        for name in COUNTS:
            check_positive(name, getattr(self, name))
            most = MAX_SHARD_BYTES if name == "shard_bytes" else MAX_INT32
            if (getattr(self, name) or 0) > most:
                raise ValueError(f"{name} is {getattr(self, name)}, expected at most {most}")
        if self.seed < 0:
            raise ValueError(f"seed is {self.seed}, expected at least 0")
        if self.buckets is not None and self.buckets != "auto":
            keys = tuple(self.buckets)
            if not keys or not all(type(key) is int and 1 <= key <= MAX_INT32 for key in keys):
                raise ValueError(f"buckets are {self.buckets!r}, expected 'auto' or lengths")
            object.__setattr__(self, "buckets", tuple(sorted(set(keys))))

    @property
    def fills_rectangle(self) -> bool:
        """Say whether budgets count the cells of a rectangle, whose width is rounded up."""
        return LAYOUTS[self.layout].fills_rectangle

    @property
    def shares_rows(self) -> bool:
        """Say whether a batch is one row that several sequences share, or pieces of them."""
        return LAYOUTS[self.layout].shares_rows

    def resolve(self) -> PackOptions:
        """Choose what was left open.

        Raises:
            OptionError: options that can not go together.
        """
        if self.shares_rows:
            _check_varlen(self)
            fill = self.fill or "best-fit"
            shuffle = fill == "best-fit" if self.shuffle is None else self.shuffle
            overflow = self.overflow or "split"
            seed = self.seed if shuffle else 0
            return replace(
                self,
                fill=fill,
                order="length" if fill == "best-fit" else "none",
                shuffle=shuffle,
                seed=seed,
                overflow=overflow,
            )
        _check_rows(self)
        if not self.fills_rectangle:
            _check_unpadded(self)
        batch_size, num_buckets = self.batch_size, self.num_buckets
        if batch_size is None and self.max_tokens is None:
            batch_size = DEFAULT_BATCH_SIZE
        if self.buckets == "auto" and num_buckets is None:
            num_buckets = DEFAULT_NUM_BUCKETS
        return replace(
            self,
            batch_size=batch_size,
            num_buckets=num_buckets,
            shuffle=bool(self.shuffle),
            seed=self.seed if self.shuffle else 0,  # another one would change nothing
        )


def _check_varlen(options: PackOptions) -> None:
    """Refuse what means nothing where a batch is one row of several sequences."""
    if options.max_tokens is None:
        raise OptionError(
            "--layout varlen: no length of a row", hint="pass --max-tokens, for example 2048"
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
        "--layout varlen: {} has no meaning, a batch is one row of --max-tokens",
        "leave out {}",
    )
    if options.order == "none" and options.fill != "sequential":
        raise OptionError(
            "--layout varlen: --order none, but bins have no order of length",
            hint="pass --fill sequential to keep the order of the input",
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
        f"--layout {options.layout}: {{}}, but these rows are not padded",
        "pass --layout padded, or leave out {}",
    )


def _refuse(refused: dict[str, bool], message: str, hint: str) -> None:
    """Raise OptionError for the first option that is given."""
    for name, given in refused.items():
        if given:
            raise OptionError(message.format(name), hint=hint.format(name))


def _check_rows(options: PackOptions) -> None:
    """Refuse what contradicts itself where a batch is several rows."""
    if options.fill is not None:
        raise OptionError(
            f"--layout {options.layout}: --fill {options.fill} is for rows that share bins",
            hint="pass --layout varlen, or leave out --fill",
        )
    if options.overflow == "split":
        raise OptionError(
            f"--layout {options.layout}: --overflow split is for varlen",
            hint="split with tokenize --max-length, or pass --overflow drop",
        )
    if options.overflow is not None and options.max_tokens is None and not _has_keys(options):
        raise OptionError(
            f"--overflow {options.overflow}: no --max-tokens and no --buckets K1,K2,… "
            "to be longer than",
            hint="drop long sequences with --drop-longer",
        )
    if options.window is not None and options.order == "none":
        raise OptionError(
            "--window sorts by length, --order none does not", hint="leave out one of the two"
        )
    if options.num_buckets is not None and options.buckets != "auto":
        raise OptionError("--num-buckets is for --buckets auto", hint="pass --buckets auto")
    if (options.num_buckets or 0) > MAX_NUM_BUCKETS:
        raise OptionError(
            f"--num-buckets {options.num_buckets}: expected at most {MAX_NUM_BUCKETS:,}"
        )
    if options.last_batch == "pad" and options.max_tokens is not None and not options.buckets:
        raise OptionError(
            "--last-batch pad: with --max-tokens and no --buckets batches have no number of rows "
            "to be filled up to",
            hint="leave out --max-tokens, or add --buckets",
        )
    if options.max_tokens is not None and options.max_tokens < options.pad_to_multiple:
        raise OptionError(
            f"--max-tokens {options.max_tokens}: no room for one row of "
            f"--pad-to-multiple {options.pad_to_multiple}",
            hint=f"pass --max-tokens {options.pad_to_multiple}, or more",
        )
    if _has_keys(options):
        _check_keys(options)


def _has_keys(options: PackOptions) -> bool:
    return isinstance(options.buckets, tuple)


def _check_keys(options: PackOptions) -> None:
    """Refuse bucket keys that the padding or the budget can not have."""
    for key in options.buckets or ():
        assert isinstance(key, int)  # noqa: S101 - "auto" has no keys
        if key % options.pad_to_multiple:
            raise OptionError(
                f"--buckets {key}: no multiple of --pad-to-multiple {options.pad_to_multiple}",
                hint="leave out --pad-to-multiple: each bucket is one width already",
            )
        budget = options.max_tokens if options.fills_rectangle else None
        if budget is not None and key > budget:
            raise OptionError(
                f"--buckets {key}: one row of it is above --max-tokens {budget:,}",
                hint=f"pass --max-tokens {key} or more, or leave out this bucket",
            )
