"""Write and read the options of `pack` in the manifest of shards.

A reader checks them before use: names, types and combinations must be those that `pack` accepts,
and bucket keys and reasons for dropped sequences must agree with them. Everything else that follows
from the options needs the lengths of the token store: `verify` repeats the plan for it.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from seqpack_cli.batching.options import SIDES, PackOptions, ResolvedOptions
from seqpack_cli.batching.plan import list_fits
from seqpack_cli.batching.selection import (
    EMPTY,
    LAST_BATCH,
    NO_TARGET,
    OTHER_SPLITS,
    PASSES,
    WHERE,
    list_length_tests,
)
from seqpack_cli.errors import FolderError, OptionError, join_items, quote
from seqpack_cli.files.json_files import JSON_TYPES
from seqpack_cli.files.places import Place
from seqpack_cli.runs.options import list_options
from seqpack_cli.shards.layouts import Geometry
from seqpack_cli.shards.sides import hold_pairs
from seqpack_cli.tokens.columns import TARGETS

MAX_KEY = 2**32  # a length, rounded up to a multiple
APART = ("layout", "pad_id", "padding_side")  # fields of the manifest itself
NAMES = tuple(name for name in PackOptions.__dataclass_fields__ if name not in APART)
TEXTS = ("split", "split_name", "split_by", "passes", "share", "max_passes", "store_column")
TYPES: dict[str, tuple[type, ...]] = {
    **{
        name: (int, type(None))
        for name, (_, option) in list_options(PackOptions).items()
        if option.kind == "count"
    },
    "shard_bytes": (int,),
    "pad_to_multiple": (int,),
    "align_sequences": (int,),
    "order": (str,),
    "count": (str, type(None)),
    "shuffle": (bool,),
    "seed": (int,),
    "buckets": (str, list, type(None)),
    "fill": (str, type(None)),
    "overflow": (str, type(None)),
    "last_batch": (str,),
    "where": (list,),
    "keep_without_target": (bool,),
    "split_seed": (int,),
    "drop_column": (list,),
    **dict.fromkeys(TEXTS, (str, type(None))),
}


def record_options(options: PackOptions) -> dict[str, Any]:
    """Return resolved options in the form of the manifest."""
    return {name: to_lists(getattr(options, name)) for name in NAMES}


def find_geometry(options: PackOptions, *, pad_id: int = 0, is_decoder: bool = False) -> Geometry:
    """Return what the layout of batches with these resolved options needs to know."""
    values, side = record_options(options), options.padding_side
    return Geometry.of_options(
        options.layout, values, pad_id=pad_id, padding_side=side, is_decoder=is_decoder
    )


def read_options(manifest: dict[str, Any], source: Place) -> ResolvedOptions:
    """Return the options recorded in a manifest, resolved.

    Raises:
        FolderError: `pack` cannot have recorded them.
    """
    apart = {name: manifest[name] for name in APART}
    options = parse_options(manifest["options"], apart, source, pairs=hold_pairs(manifest))
    if options.split is not None and options.split_name is None:
        raise FolderError(f"{source}: option split_name is None, expected the name of a split")
    return options


def parse_options(
    values: dict[str, Any], apart: dict[str, Any], source: Place, *, pairs: bool
) -> ResolvedOptions:
    """Return recorded options, resolved.

    Args:
        values: the options.
        apart: those of APART, of which a manifest may have its own fields.
        pairs: whether there is a decoder's side.

    Raises:
        FolderError: `pack` cannot have recorded them.
    """
    if set(values) != set(NAMES):
        wrong = sorted(set(values) ^ set(NAMES))
        raise FolderError(
            f"{source}: options differ from those of pack in {join_items(map(quote, wrong))}",
            hint="run seqpack pack again, or install the version of seqpack that wrote it",
        )
    for name in NAMES:
        if type(values[name]) not in TYPES[name]:
            expected = " or ".join(JSON_TYPES[kind] for kind in TYPES[name])
            raise FolderError(
                f"{source}: option {name} is {quote(values[name])}, expected {expected}"
            )
    try:
        options = PackOptions(**apart, **values).resolve(pairs=pairs)
    except (TypeError, ValueError, OptionError) as error:
        what = error.message if isinstance(error, OptionError) else str(error)
        raise FolderError(f"{source}: options that pack does not accept: {what[:200]}") from error
    for name, value in record_options(options).items():
        if value != values[name]:
            raise FolderError(
                f"{source}: option {name} is {quote(values[name])}, pack would record "
                f"{quote(value)}"
            )
    return options


def check_plan_fields(manifest: dict[str, Any], options: ResolvedOptions, source: Place) -> None:
    """Raise FolderError if bucket keys or reasons for dropped sequences contradict the options.

    Args:
        manifest: one whose columns were checked.
        options: the options recorded in the manifest.
    """
    keys = manifest["bucket_keys"]
    if not _are_keys(keys, options, pairs=hold_pairs(manifest)):
        expected = _describe_keys(options)
        raise FolderError(f"{source}: bucket_keys {quote(keys)}, expected {expected}")
    possible = _list_reasons(options, manifest)
    for reason, count in manifest["ledger"]["num_dropped_sequences"].items():
        if reason not in possible:
            raise FolderError(
                f"{source}: {count:,} sequences dropped by {quote(reason)}, which its options "
                "never do"
            )


def to_lists(value: Any) -> Any:
    """Return a value in the form of JSON, which has no tuples."""
    return [to_lists(item) for item in value] if isinstance(value, tuple) else value


def _are_keys(keys: object, options: ResolvedOptions, *, pairs: bool) -> bool:
    if options.buckets is None:
        return keys is None
    widths = _list_widths(keys, num_sides=2 if pairs else 1)
    if not widths:
        return False
    if options.num_buckets is None:
        return bool(keys == to_lists(options.buckets))
    is_rising = all(low < high for low, high in pairwise(widths))
    multiple = options.pad_to_multiple
    fits = all(1 <= width < MAX_KEY and width % multiple == 0 for key in widths for width in key)
    return is_rising and fits and len(widths) <= options.num_buckets


def _list_widths(keys: object, *, num_sides: int) -> list[list[int]]:
    """Return the widths of each bucket on every side, [] if these are no keys."""
    found = (
        [key if isinstance(key, list) else [key] for key in keys] if isinstance(keys, list) else []
    )
    is_good = all(
        len(key) == num_sides and all(type(width) is int for width in key) for key in found
    )
    return found if is_good else []


def _describe_keys(options: ResolvedOptions) -> str:
    if options.buckets is None:
        return "null"
    if options.buckets != "auto":
        return quote(list(options.buckets))
    return f"1 to {options.num_buckets} rising multiples of {options.pad_to_multiple}"


def _list_reasons(options: ResolvedOptions, manifest: dict[str, Any]) -> set[str]:
    """Return the reasons for which sequences may be dropped."""
    columns = (manifest["decoder"] or manifest)["columns"]
    has_targets = any(column["name"] == TARGETS for column in columns)
    num_sides = 2 if hold_pairs(manifest) else 1
    reasons = {
        OTHER_SPLITS: options.split_name is not None,
        WHERE: bool(options.where),
        NO_TARGET: has_targets and not options.keep_without_target,
        PASSES: options.has_passes,
        LAST_BATCH: options.last_batch == "drop",
        **{f"{side}.{EMPTY}": num_sides > 1 for side in SIDES},
    }
    tests = list_length_tests(options, num_sides)
    if options.overflow == "drop":
        tests += list_fits(options, num_sides)
    found = {reason for reason, is_possible in reasons.items() if is_possible}
    return found | {test.reason for test in tests}
