"""The errors of a plan: a sequence or a pair that does not fit, or no batch that is left."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import numpy as np

from seqpack_cli.batching.options import ResolvedOptions
from seqpack_cli.batching.plan import Plan
from seqpack_cli.batching.rows import round_up
from seqpack_cli.batching.selection import NO_TARGET, OTHER_SPLITS, PASSES, OverlongError
from seqpack_cli.errors import DataError, OptionError, join_items, quote
from seqpack_cli.shards.manifest import PREFIX
from seqpack_cli.tokens.store import TokenStore

# What to type when everything was dropped for a reason.
LOOSER_OPTIONS = {
    "drop_shorter": "pass a smaller --drop-shorter",
    "drop_longer": "pass a larger --drop-longer",
    "where": "leave out a --where, or look at the values: seqpack inspect {store}",
    NO_TARGET: "to pack sequences without a target too, pass --keep-without-target",
    PASSES: "pass a larger number to --passes",
    OTHER_SPLITS: "pass a larger share to --split",
    "last_batch": "pass --last-batch keep",
}


def overlong_error(
    sides: Sequence[TokenStore], options: ResolvedOptions, error: OverlongError
) -> OptionError:
    """Return the error for a sequence or pair that does not fit, with its place in the input.

    Args:
        sides: the stores of each side.
    """
    test, index, lengths = error.test, error.index, error.lengths
    store = sides[test.side or 0]
    place = f"{store.shown_path}: sequence {index} ({_spell_place(store, index)})"
    if test.side is None:
        found = " and ".join(f"{length:,}" for length in lengths)
        allowed = f"--max-tokens allows {test.limit:,} together with --count sum"
        cure = "pass a larger --max-tokens"
        if test.option == "--buckets":
            allowed, cure = "no bucket holds both", "add a larger bucket"
        return OptionError(
            f"{place} has {found} tokens on its two sides, {allowed}",
            hint=f"{cure}, or drop such pairs with --overflow drop",
        )
    cure = "add a bucket of" if test.option == "--buckets" else f"pass {test.option}"
    multiple = max(options.pad_to_multiple, options.align_sequences)  # one of them is 1
    needed = int(round_up(np.array(lengths[test.side]), multiple))
    hint = f"{cure} {needed}, drop longer ones with --overflow drop, or split them with "
    hint += "--overflow split" if options.shares_rows else f"tokenize --max-length {test.limit}"
    if len(sides) > 1:
        cure = "add a larger bucket" if test.option == "--buckets" else "pass a larger --max-tokens"
        hint = f"{cure}, drop such pairs with --overflow drop, or cut long documents with "
        hint += f"tokenize --max-length {test.limit} --overflow truncate"
    return OptionError(
        f"{place} has {lengths[test.side]:,} tokens, {test.option} allows {test.limit:,}",
        hint=hint,
    )


def _spell_place(store: TokenStore, index: int) -> str:
    """Return the source and the record of a sequence, after its store if there are several."""
    origin = store.locate(index)
    place = f"{origin.source}:{origin.record}"
    return f"{origin.store}: {place}" if len(store.folders) > 1 else place


def no_batch_error(sides: Sequence[TokenStore], plan: Plan, options: ResolvedOptions) -> DataError:
    """Return the error for a plan without a batch; it says why sequences were dropped.

    Args:
        sides: the stores of each side.
    """
    dropped = dict[str, int]()  # a document that is empty on one side is counted on the other
    for side in (plan.decoder, plan):
        if side is not None:
            dropped |= {name: number for name, (number, _) in side.left_out.items() if number}
    place, name = sides[0].shown_path, options.split_name
    if name is not None and len(dropped) > 1:
        place = f"{place}: split {quote(name)}"
        dropped.pop("other_splits", None)
    reasons = [f"{number:,} {_spell_reason(reason, options)}" for reason, number in dropped.items()]
    most = max(dropped, key=dropped.__getitem__, default="drop_shorter")
    store = sides[most.startswith(PREFIX)].folders[0]
    return DataError(
        f"{place}: no batch is left, sequences dropped: {join_items(reasons)}",
        hint=_advise_looser(most, options).format(store=shlex.quote(str(store.path))),
    )


def _spell_reason(reason: str, options: ResolvedOptions) -> str:
    if reason == OTHER_SPLITS:
        return "in other splits"
    if reason == NO_TARGET:
        return "without a target"
    side, _, reason = reason.rpartition(".")
    if reason == "empty":
        return f"with no sequence on the {side}'s side"
    option = "share" if reason == PASSES and options.share is not None else reason
    return f"by --{option.replace('_', '-')}" + (f" ({side})" if side else "")


def _advise_looser(reason: str, options: ResolvedOptions) -> str:
    if reason == PASSES and options.share is not None:
        return "pass a larger --max-passes"
    if reason.endswith(".empty"):
        return "look at the documents: seqpack inspect {store}"
    reason = reason.rpartition(".")[2]  # of a side
    if reason != "overflow":
        return LOOSER_OPTIONS[reason]
    keys, most = options.keys, options.max_tokens
    if keys is not None and (most is None or len(keys[0]) > 1 or keys[-1][0] <= most):
        return "add a larger bucket"
    return "pass a larger --max-tokens"
