"""Check what the manifest of a token store says of targets and overlaps against its options.

Nothing but the manifest is read: `verify` compares the columns themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from seqpack_cli.errors import FolderError, join_items, quote
from seqpack_cli.files.places import Place
from seqpack_cli.tokens.columns.made_columns import KINDS_OF_MADE, OVERLAP, TARGETS

TEXT_FIELDS = ("completion_field", "messages_field")  # options by which a text has targets
TARGET_FIELDS = ("labels_field", "loss_mask_field")  # options by which imported ids have targets


def check_made_counts(manifest: dict[str, Any], source: Place) -> None:
    """Raise unless the columns that a command makes, and its counts, are those of the options."""
    options, ledger, is_import = manifest["options"], manifest["ledger"], _is_import(manifest)
    overlap = None if is_import else options.get(OVERLAP)
    if not is_import:
        _check_target_options(options, source)
    has_spans = not is_import and any(options.get(name) for name in TEXT_FIELDS)
    has_targets = overlap is not None or has_spans
    if is_import:
        has_targets = any(options.get(name) is not None for name in TARGET_FIELDS)
    _check_made_columns(manifest, {TARGETS: has_targets, OVERLAP: overlap is not None}, source)
    found, most = ledger["num_straddling_tokens"], ledger["num_encoded_tokens"]
    if found > (most if has_spans else 0):
        expected = f"at most {most}" if has_spans else "0"
        raise FolderError(f"{source}: num_straddling_tokens is {found}, expected {expected}")
    for name in _list_zeros(manifest):
        if ledger[name]:
            raise FolderError(f"{source}: {name} is {ledger[name]}, expected 0")
    found, most = ledger["num_target_tokens"], ledger["num_tokens"] - ledger["num_overlap_tokens"]
    if found > most or (found < most and not has_targets):
        words = "at most " if has_targets else ""
        raise FolderError(f"{source}: num_target_tokens is {found}, expected {words}{most}")


def _is_import(manifest: dict[str, Any]) -> bool:
    return bool(manifest["made_by"] == "import")


def _check_made_columns(
    manifest: dict[str, Any], is_expected: dict[str, bool], source: Place
) -> None:
    names = [column["name"] for column in manifest["columns"]]
    for name, is_made in is_expected.items():
        if (name in names) != is_made:
            found, expected = ("no column", "one") if is_made else ("column", "none")
            raise FolderError(
                f"{source}: {found} {quote(name)}, expected {expected} for its options"
            )
    made = [name for name in KINDS_OF_MADE if name in names]
    if names[: len(made)] != made:
        shown, wanted = (join_items(map(quote, each)) for each in (names, made))
        raise FolderError(f"{source}: columns {shown}, expected {wanted} first")


def _list_zeros(manifest: dict[str, Any]) -> Iterator[str]:
    """Yield the counts that must be 0 for the command and its options."""
    options, is_import = manifest["options"], _is_import(manifest)
    if is_import or options.get(OVERLAP) is None:
        yield "num_overlap_tokens"
    if not is_import or options.get("attention_mask_field") is None:
        yield "num_padding_tokens"
    if not is_import:
        yield "num_empty_sequences"


def _check_target_options(options: dict[str, Any], source: Place) -> None:
    """Raise unless tokenize can have had these options, as far as they decide the targets."""
    overlap, max_length = options.get(OVERLAP), options.get("max_length")
    if overlap is not None and (type(overlap) is not int or overlap < 1):
        raise FolderError(f"{source}: overlap is {quote(overlap)}, expected null, or 1 or more")
    if overlap is not None and (type(max_length) is not int or max_length <= overlap):
        raise FolderError(
            f"{source}: max_length is {quote(max_length)}, expected more than overlap, {overlap}"
        )
    prompt, completion = (options.get(name) for name in ("prompt_field", "completion_field"))
    if (prompt is None) != (completion is None):
        what = f"prompt_field is {quote(prompt)}, completion_field is {quote(completion)}"
        raise FolderError(f"{source}: {what}, expected both or neither")
