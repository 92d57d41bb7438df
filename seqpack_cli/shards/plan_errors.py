"""The errors of a plan: a sequence or a pair that does not fit, or no batch that is left."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import numpy as np

from seqpack_cli.batching.limits import round_up
from seqpack_cli.batching.options import PackOptions
from seqpack_cli.batching.plan import Plan
from seqpack_cli.batching.reasons import NO_TARGET, OTHER_SPLITS, PASSES
from seqpack_cli.batching.selection import OverlongError
from seqpack_cli.errors import DataError, OptionError, join_items, quote
from seqpack_cli.shards.sides import PREFIX
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


def overlong_error(store: TokenStore, options: PackOptions, error: OverlongError) -> OptionError:
    """Return the error for a sequence that does not fit, with its place in the input."""
    place = _spell_place(store, error.index)
    splitting = "--overflow split"
    if not options.shares_rows:
        splitting = f"tokenize --max-length {error.limit}"
    cure = "add a bucket of" if error.option == "--buckets" else f"pass {error.option}"
    multiple = max(options.pad_to_multiple, options.align_sequences)  # one of them is 1
    needed = int(round_up(np.array(error.length), multiple))
    return OptionError(
        f"{store.shown_path}: sequence {error.index} ({place}) has "
        f"{error.length:,} tokens, {error.option} allows {error.limit:,}",
        hint=f"{cure} {needed}, drop longer ones with --overflow drop, "
        f"or split them with {splitting}",
    )


def pair_overlong_error(sides: Sequence[TokenStore], error: OverlongError) -> OptionError:
    """Return the error for a pair of which a side, or both together, do not fit.

    Args:
        sides: the stores of the encoder and of the decoder.
    """
    store = sides[error.of_decoder]
    place = f"{store.shown_path}: sequence {error.index} ({_spell_place(store, error.index)})"
    cure, dropping = "pass a larger --max-tokens", "drop such pairs with --overflow drop"
    if error.option == "--buckets":
        cure = "add a larger bucket"
    if error.sides:
        lengths = " and ".join(f"{length:,}" for length in error.sides)
        found = f"{lengths} tokens on its two sides"
        allowed = f"--max-tokens allows {error.limit:,} together with --count sum"
        if error.option == "--buckets":
            allowed = "no bucket holds both"
        return OptionError(f"{place} has {found}, {allowed}", hint=f"{cure}, or {dropping}")
    truncating = f"tokenize --max-length {error.limit} --overflow truncate"
    return OptionError(
        f"{place} has {error.length:,} tokens, {error.option} allows {error.limit:,}",
        hint=f"{cure}, {dropping}, or cut long documents with {truncating}",
    )


def _spell_place(store: TokenStore, index: int) -> str:
    """Return the source and the record of a sequence, after its store if there are several."""
    origin = store.locate(index)
    place = f"{origin.source}:{origin.record}"
    return f"{origin.store}: {place}" if len(store.folders) > 1 else place


def no_batch_error(sides: Sequence[TokenStore], plan: Plan, options: PackOptions) -> DataError:
    """Return the error for a plan without a batch; it says why sequences were dropped.

    Args:
        sides: the stores of each side.
    """
    of_decoder = {} if plan.decoder is None else plan.decoder.num_dropped_sequences
    # a document that is empty on one side is counted on the other
    found = {**of_decoder, **{it: n for it, n in plan.num_dropped_sequences.items() if n}}
    dropped = {name: number for name, number in found.items() if number}
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


def _spell_reason(reason: str, options: PackOptions) -> str:
    if reason == OTHER_SPLITS:
        return "in other splits"
    if reason == NO_TARGET:
        return "without a target"
    side, _, reason = reason.rpartition(".")
    if reason == "empty":
        return f"with no sequence on the {side}'s side"
    option = "share" if reason == PASSES and options.share is not None else reason
    return f"by --{option.replace('_', '-')}" + (f" ({side})" if side else "")


def _advise_looser(reason: str, options: PackOptions) -> str:
    if reason == PASSES and options.share is not None:
        return "pass a larger --max-passes"
    if reason.endswith(".empty"):
        return "look at the documents: seqpack inspect {store}"
    reason = reason.rpartition(".")[2]  # of a side
    if reason != "overflow":
        return LOOSER_OPTIONS[reason]
    if isinstance(options.buckets, tuple) and (
        options.max_tokens is None
        or options.pair_keys is not None
        or options.buckets[-1] <= options.max_tokens
    ):
        return "add a larger bucket"
    return "pass a larger --max-tokens"
