"""Read and check the receipts of finished parts, for a continued run.

A receipt says what a part contains, which records were rejected (written to `rejects.jsonl`), and
which special tokens are spelled in the text (written to `special_tokens.jsonl`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from seqpack_cli.corpus.sources import Source
from seqpack_cli.errors import FolderError, quote
from seqpack_cli.files.json_files import check_fields, encode_json
from seqpack_cli.files.places import Place
from seqpack_cli.runs.run_folder import RunFolder
from seqpack_cli.tokens.columns.class_kind import find_value_type
from seqpack_cli.tokens.columns.kept import Kept
from seqpack_cli.tokens.columns.kinds import KINDS
from seqpack_cli.tokens.columns.part_columns import columns_name
from seqpack_cli.tokens.part_setup import AnySetup, PartTask
from seqpack_cli.tokens.store_manifest import LEDGER_NAMES, RANGE_FIELDS, is_balanced

RECEIPT_FIELDS: dict[str, type] = {
    "ledger": dict,
    "ranges": list,
    "files": list,
    "rejects": list,
    "class_names": dict,
}
REJECT_TYPES = ([int, int, int, str], [int, int, type(None), str])  # source, record, byte, reason


def check_receipt(
    folder: Place, setup: AnySetup, task: PartTask, receipt: dict[str, Any]
) -> dict[str, Any] | None:
    """Return the receipt of a finished part, None if it does not agree with the part.

    Raises:
        FolderError: it is damaged.
    """
    source = folder / f"{task.name}.json"
    indices = {source_range.source_index for source_range in task.ranges}
    for entry in receipt["ranges"]:
        check_fields(entry, RANGE_FIELDS, source=source)
    for entry in receipt["rejects"]:
        _check_reject(entry, indices, source=source)
    _check_counts(receipt["ledger"], source=source)
    _check_class_names(receipt["class_names"], setup.kept, source=source)
    setup.check_receipt(receipt, source)
    num_bytes = receipt["ledger"]["num_tokens"] * np.dtype(setup.dtype).itemsize
    found = [(file["name"], file["bytes"]) for file in receipt["files"]]
    names = [f"{task.name}.bin", f"{task.name}.idx", columns_name(task.name)]
    is_sound = [name for name, _ in found] == names and found[0][1] == num_bytes
    return receipt if is_sound else None


def write_rejects(
    run: RunFolder,
    sources: list[Source],
    parts: list[dict[str, Any]],
    receipts: list[dict[str, Any]],
) -> None:
    """Write the rejected records, numbered as in their source files."""
    if not any(receipt["rejects"] for receipt in receipts):
        return
    seen: Counter[int] = Counter()  # documents of each source in the previous parts
    with run.publish("rejects.jsonl") as file:
        for part, receipt in zip(parts, receipts, strict=True):
            for source_index, record, byte, reason in receipt["rejects"]:
                entry = {
                    "source": sources[source_index].name,
                    "record": seen[source_index] + record + 1,
                    "byte": byte,
                    "reason": reason,
                }
                file.write(encode_json(entry) + b"\n")
            for entry in part["ranges"]:
                seen[entry["source"]] += entry["num_documents"]


def _check_counts(ledger: Any, *, source: Place) -> None:
    """Raise FolderError unless the counts of a part are complete and add up."""
    check_fields(ledger, dict.fromkeys(LEDGER_NAMES, int), source=source)
    if not is_balanced(ledger):
        raise FolderError(f"{source}: the ledger does not add up")


def _check_reject(entry: Any, indices: set[int], *, source: Place) -> None:
    """Raise FolderError unless this is an entry for a rejected record of the part."""
    is_reject = isinstance(entry, list) and [type(value) for value in entry] in REJECT_TYPES
    if not is_reject or entry[0] not in indices or entry[1] < 0:
        raise FolderError(f"{source}: reject {quote(entry)}, expected source, record, byte, reason")


def _check_class_names(found: dict[str, Any], kept: Sequence[Kept], *, source: Place) -> None:
    """Raise FolderError unless these are the names of the classes of a part."""
    expected = {each.field.name: each for each in kept if KINDS[each.kind].has_classes}
    if set(found) != set(expected):
        raise FolderError(f"{source}: class names of {quote(sorted(found))}")
    for name, labels in found.items():
        value_type = expected[name].field.value_type
        if not isinstance(labels, list) or {*map(find_value_type, labels)} - {value_type}:
            raise FolderError(f"{source}: class names {quote(labels)} of {quote(name)}")
