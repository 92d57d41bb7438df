"""The options of pack, which together with the store determine the bytes of the shards.

Options that conflict, or that have no effect, raise an error that names the one to add or to leave
out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from seqpack_cli.batching.layout_rules import LAYOUTS
from seqpack_cli.batching.option_checks import (
    check_rows,
    check_seed_has_effect,
    check_selection,
    check_shared_rows,
    check_unpadded,
)
from seqpack_cli.batching.pair_buckets import DEFAULT_NUM_PAIR_BUCKETS
from seqpack_cli.batching.pair_checks import check_pairs
from seqpack_cli.batching.passes import parse_max_passes, parse_passes
from seqpack_cli.batching.shares import parse_shares, spell_number, spell_numbers
from seqpack_cli.batching.splits import parse_splits
from seqpack_cli.errors import MAX_COUNT, MAX_SIZE, check_choice, check_positive, check_seed
from seqpack_cli.runs.arguments import check_fields

# Increase it whenever the same lengths and options give other batches, rows, shards or another
# order: `verify` repeats a plan only if it was made with the same version.
PLAN_VERSION = 1
DEFAULT_BATCH_SIZE = 64
DEFAULT_NUM_BUCKETS = 8
COUNTS = (
    "batch_size",
    "max_tokens",
    "window",
    "num_buckets",
    "pad_to_multiple",
    "align_sequences",
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
    # Most rows in a batch; None is 64, or no limit with max_tokens, or one unpadded varlen row.
    batch_size: int | None = None
    # Most tokens in a batch; for padded, most cells; for varlen and streams, the length of a row.
    max_tokens: int | None = None
    # What a pair costs: "max" (the larger side) or "sum" of both; None is "max" with max_tokens.
    count: str | None = None
    order: str = "length"  # or "none": the order of the store, or shuffled
    window: int | None = None  # sort by length only inside runs of this many sequences
    shuffle: bool | None = None  # sequences, then batches; None is True for best-fit, else False
    seed: int = 0  # for shuffle, and for the documents that a fraction of a pass takes
    # "auto", or the bucket keys: lengths, or for pairs (encoder, decoder).
    buckets: str | Sequence[int] | Sequence[Sequence[int]] | None = None
    num_buckets: int | None = None  # for buckets="auto"; None is 8, for pairs 1024
    fill: str | None = None  # of varlen rows: "best-fit" (None), "sequential" or "chunk"
    overflow: str | None = None  # "error", "drop" or "split"; None: varlen split, keys drop, error
    last_batch: str = "keep"  # or "drop", "pad"
    drop_shorter: int | None = None
    drop_longer: int | None = None
    where: Sequence[str] = ()  # conditions that all hold for a packed sequence: "lang = de"
    keep_without_target: bool = False  # pack sequences of which no token is a target, too
    split: str | None = None  # "train=0.98,validation=0.01,test=rest"; names alone with split_by
    split_name: str | None = None  # pack this split alone; None packs each into its own folder
    split_seed: int = 0  # for split
    split_by: str | None = None  # split by the values of this column, not by documents
    passes: str | None = None  # visits of each sequence, by store: "A=2,B=0.5"; others have 1
    share: str | None = None  # shares of all tokens, by store: "A=0.7,B=rest"
    max_passes: str | None = None  # most passes of a store with share; None is 1
    drop_column: Sequence[str] = ()  # columns to leave out
    store_column: str | None = None  # name of a new column: the number of each sequence's store
    pad_to_multiple: int = 1
    align_sequences: int = 1  # lengths of varlen sequences are rounded up to a multiple
    padding_side: str = "right"  # or "left"
    pad_id: int | None = None  # None is the store's, or 0
    shard_bytes: int = 64 << 20  # largest file, unless a single batch is larger

    def __post_init__(self) -> None:
        check_fields(self)
        check_choice("layout", self.layout, LAYOUTS)
        check_choice("order", self.order, ("length", "none"))
        check_choice("fill", self.fill, (None, "best-fit", "sequential", "chunk"))
        check_choice("overflow", self.overflow, (None, "error", "drop", "split"))
        check_choice("count", self.count, (None, "max", "sum"))
        check_choice("last_batch", self.last_batch, ("keep", "drop", "pad"))
        check_choice("padding_side", self.padding_side, ("right", "left"))
        for name in COUNTS:
            most = MAX_SIZE if name == "shard_bytes" else MAX_COUNT
            check_positive(name, getattr(self, name), at_most=most)
        check_seed("seed", self.seed)
        check_seed("split_seed", self.split_seed)
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
        check_pairs(self, pairs=pairs)
        options = self
        if pairs and self.max_tokens is not None:
            options = replace(self, count=self.count or "max")
        if pairs and self.buckets == "auto" and self.num_buckets is None:
            options = replace(options, num_buckets=DEFAULT_NUM_PAIR_BUCKETS)
        options = options._choose()._choose_documents()
        check_seed_has_effect(options)
        return options

    def _choose(self) -> PackOptions:
        if self.shares_rows:
            check_shared_rows(self)
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
        check_rows(self)
        if not self.fills_rectangle:
            check_unpadded(self)
        batch_size, num_buckets = self.batch_size, self.num_buckets
        if batch_size is None and self.max_tokens is None:
            batch_size = DEFAULT_BATCH_SIZE
        if self.buckets == "auto" and num_buckets is None:
            num_buckets = DEFAULT_NUM_BUCKETS
        shuffle = bool(self.shuffle)
        return replace(self, batch_size=batch_size, num_buckets=num_buckets, shuffle=shuffle)

    def _choose_documents(self) -> PackOptions:
        splits = parse_splits(self)
        check_selection(self, splits)
        passes, share, max_passes = self.passes, self.share, self.max_passes
        if passes is not None:
            passes = spell_numbers(parse_passes(passes))
        if share is not None:
            share = spell_numbers(parse_shares(share, "--share"))
            max_passes = spell_number(parse_max_passes(max_passes or "1"))
        split = None if splits is None else splits.spell()
        return replace(self, split=split, passes=passes, share=share, max_passes=max_passes)


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
