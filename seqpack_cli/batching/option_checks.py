"""Refuse options of pack that conflict, or that have no effect.

Each error names the option to add or to leave out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seqpack_cli.batching.conditions import parse_condition
from seqpack_cli.batching.key_checks import check_keys, has_keys
from seqpack_cli.batching.pair_checks import refuse_first
from seqpack_cli.errors import OptionError, quote

if TYPE_CHECKING:
    from seqpack_cli.batching.pack_options import PackOptions
    from seqpack_cli.batching.splits import Splits

MAX_NUM_BUCKETS = 1024  # choosing them takes 8 bytes for each bucket and distinct length


def check_selection(options: PackOptions, splits: Splits | None) -> None:
    """Refuse options that select documents and conflict, or lack the option that they belong to.

    Raises:
        ValueError: split_name, which only a caller of the library passes, is not a split.
    """
    if options.passes is not None and options.share is not None:
        raise OptionError("--passes conflicts with --share", hint="leave out one of the two")
    needed = {
        "--max-passes": ("--share", options.max_passes is not None and options.share is None),
        "--split-seed": ("--split", options.split_seed != 0 and splits is None),
        "--split-by": ("--split", options.split_by is not None and splits is None),
    }
    for name, (other, is_alone) in needed.items():
        if is_alone:
            raise OptionError(f"{name} needs {other}", hint=f"pass {other}, or leave out {name}")
    if splits is not None and splits.shares is None and options.split_seed:
        raise OptionError(
            f"--split-seed {options.split_seed} has no effect: --split names values of --split-by",
            hint="leave out --split-seed",
        )
    added = options.store_column
    for text in options.where:
        found = parse_condition(text)
        if not found.is_built_in and found.name == added and added not in options.drop_column:
            raise OptionError(
                f"--where {quote(text)}: found the column that --store-column adds, expected one "
                "of the stores",
                hint="to pack only some stores, leave out the others",
            )
    names = splits.names if splits is not None else ()
    if options.split_name is not None and options.split_name not in names:
        expected = " or ".join(map(repr, names)) if names else "None without split"
        raise ValueError(f"split_name is {options.split_name!r}, expected {expected}")


def check_seed_has_effect(options: PackOptions) -> None:
    """Refuse a seed if nothing is random."""
    is_random = options.shuffle or options.passes is not None or options.share is not None
    if options.seed and not is_random:
        raise OptionError(
            f"--seed {options.seed} has no effect without --shuffle, --passes or --share",
            hint="pass --shuffle, or leave out --seed",
        )


def check_shared_rows(options: PackOptions) -> None:
    """Refuse options that conflict with rows that several sequences share."""
    layout = f"--layout {options.layout}"
    if options.max_tokens is None:
        example = "the steps of a batch, for example --max-tokens 128"
        if not options.carries_state:
            example = "the length of a row, for example --max-tokens 2048"
        raise OptionError(
            f"{layout} needs --max-tokens",
            hint=f"pass {example}",
        )
    refused = {
        "--window": options.window is not None,
        "--buckets": options.buckets is not None,
        "--num-buckets": options.num_buckets is not None,
        "--last-batch drop": options.last_batch == "drop",
    }
    refuse_first(refused, f"{{}} conflicts with {layout}, whose rows several sequences share")
    if options.carries_state:
        _check_streams(options)
        return
    if options.last_batch == "pad" and options.batch_size is None:
        raise OptionError(
            f"--last-batch pad conflicts with {layout} without --batch-size: a batch is one row",
            hint="pass --batch-size, or leave out --last-batch pad",
        )
    if options.order == "none" and options.fill not in ("sequential", "chunk"):
        raise OptionError(
            f"--order none conflicts with --fill best-fit, the default of {layout}",
            hint="pass --fill sequential to keep the order of the store",
        )
    _check_cuts(options)
    check_unpadded(options)


def _check_streams(options: PackOptions) -> None:
    """Refuse options that conflict with streams, which are cut every --max-tokens steps."""
    refused = {
        f"--fill {options.fill}": options.fill not in (None, "chunk"),
        f"--overflow {options.overflow}": options.overflow not in (None, "split"),
        f"--last-batch {options.last_batch}": options.last_batch != "keep",
        f"--align-sequences {options.align_sequences}": options.align_sequences != 1,
    }
    refuse_first(
        refused,
        "{} conflicts with --layout streams: streams are cut every --max-tokens steps, and only "
        "the last batch is padded",
    )
    check_unpadded(options)


def _check_cuts(options: PackOptions) -> None:
    """Refuse options that conflict with how varlen sequences are cut or rounded up."""
    multiple, max_tokens = options.align_sequences, options.max_tokens or 0
    if options.fill == "chunk":
        refused = {
            f"--overflow {options.overflow}": options.overflow not in (None, "split"),
            f"--align-sequences {multiple}": multiple != 1,
        }
        refuse_first(
            refused, "{} conflicts with --fill chunk, which cuts anywhere to fill every row"
        )
    if max_tokens % multiple:
        rounded = max(max_tokens // multiple, 1) * multiple
        raise OptionError(
            f"--max-tokens {max_tokens}: not a multiple of --align-sequences {multiple}",
            hint=f"pass --max-tokens {rounded}",
        )


def check_unpadded(options: PackOptions) -> None:
    """Refuse options that only padded rows have."""
    refused = {
        f"--last-batch {options.last_batch}": options.last_batch == "pad"
        and not options.shares_rows,
        f"--pad-to-multiple {options.pad_to_multiple}": options.pad_to_multiple != 1,
        f"--padding-side {options.padding_side}": options.padding_side != "right",
    }
    refuse_first(
        refused,
        "{} needs --layout padded",
        "pass --layout padded, or leave out {}",
    )


def check_rows(options: PackOptions) -> None:
    """Refuse options that conflict where a batch has several rows."""
    if options.fill is not None:
        raise OptionError(
            f"--fill {options.fill} needs --layout varlen",
            hint="pass --layout varlen, or leave out --fill",
        )
    if options.align_sequences != 1:
        raise OptionError(
            f"--align-sequences {options.align_sequences} needs --layout varlen",
            hint="to round the widths of --layout padded, pass --pad-to-multiple",
        )
    if options.overflow == "split":
        raise OptionError(
            "--overflow split needs --layout varlen",
            hint="split with tokenize --max-length, or pass --overflow drop",
        )
    if options.overflow is not None and options.max_tokens is None and not has_keys(options):
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
    if has_keys(options):
        check_keys(options)
