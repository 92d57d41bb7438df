"""Make the manifest of a token store from its parts' receipts, and check it when it is read.

Documents and sequences are numbered within each part; the manifest has the numbers in the whole
store at which each part begins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from seqpack_cli.errors import FolderError, join_items, quote
from seqpack_cli.files.json_files import Kind, check_fields
from seqpack_cli.files.manifest import MANIFEST_NAME, check_files, has_tokenizer, read_manifest
from seqpack_cli.files.places import Place
from seqpack_cli.tokens.columns import make_column
from seqpack_cli.tokens.kinds import PlannedColumn
from seqpack_cli.tokens.part_files import CODE_OF_DTYPE, LEDGER_NAMES, choose_dtype, columns_name
from seqpack_cli.tokens.special_tokens import NAME as SPELLED_NAME
from seqpack_cli.tokens.tokenizer import ROLES, Vocabulary

if TYPE_CHECKING:
    from seqpack_cli.corpus.sources import Source

FORMAT = "seqpack.tokens"
FORMAT_VERSION = 5
MAKERS = ("tokenize", "import")
MANIFEST_FIELDS: dict[str, Kind] = {
    "made_by": str,
    "dtype": str,
    "vocab_size": int,
    "max_id": int,
    **dict.fromkeys(ROLES, object),  # checked with the range of ids
    "tokenizer_blake3": str | None,
    "options": dict,
    "columns": list,
    "ledger": dict,
    "sources": list,
    "parts": list,
}
PART_FIELDS: dict[str, type] = {
    "name": str,
    "num_documents": int,
    "num_sequences": int,
    "num_tokens": int,
    "ranges": list,
    "files": list,
}
RANGE_FIELDS: dict[str, type] = {
    "source": int,
    "start": int,
    "end": int,
    "num_documents": int,
    "blake3": str,
}
SOURCE_FIELDS: dict[str, type] = {
    "path": str,
    "bytes": int,
    "num_documents": int,
    "first_document": int,
}


def describe_plan(
    made_by: str, vocabulary: Vocabulary, options: dict[str, Any], sources: Sequence[Source]
) -> dict[str, Any]:
    """Return the plan of a run: everything that decides the bytes of the store.

    Args:
        made_by: the command.
        options: as the manifest has them.
    """
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "made_by": made_by,
        "dtype": choose_dtype(vocabulary.max_id),
        "tokenizer_blake3": vocabulary.tokenizer_blake3,
        **{name: getattr(vocabulary, name) for name in ("vocab_size", "max_id", *ROLES)},
        "options": options,
        "sources": [{"path": source.name, "bytes": source.num_bytes} for source in sources],
    }


def make_manifest(
    plan: dict[str, Any],
    vocabulary: Vocabulary,
    fields: Sequence[PlannedColumn],
    receipts: list[dict[str, Any]],
) -> dict[str, Any]:
    """Add up the parts' receipts into the manifest of the store.

    Raises:
        DataError: a column has too many classes.
    """
    counts: Counter[str] = Counter()
    documents_of_source: Counter[int] = Counter()
    parts = []
    for number, receipt in enumerate(receipts):
        ledger = receipt["ledger"]
        parts.append(
            {
                "name": f"part-{number:05d}",
                "num_documents": ledger["num_documents"],
                "num_sequences": ledger["num_sequences"],
                "num_tokens": ledger["num_tokens"],
                "first_document": counts["num_documents"],
                "first_sequence": counts["num_sequences"],
                "ranges": receipt["ranges"],
                "files": receipt["files"],
            }
        )
        counts.update(ledger)
        for entry in receipt["ranges"]:
            documents_of_source[entry["source"]] += entry["num_documents"]
    columns = []
    for field in fields:
        labels = (receipt["class_names"].get(field.name, ()) for receipt in receipts)
        columns.append(make_column(field, chain.from_iterable(labels)).describe())
    sources, first_document = [], 0
    for index, source in enumerate(plan["sources"]):
        num_documents = documents_of_source[index]
        numbers = {"num_documents": num_documents, "first_document": first_document}
        sources.append({**source, **numbers})
        first_document += num_documents
    return {
        **{name: plan[name] for name in ("format", "format_version", "made_by", "dtype")},
        **{name: getattr(vocabulary, name) for name in ("vocab_size", "max_id", *ROLES)},
        "tokenizer_blake3": vocabulary.tokenizer_blake3,
        "options": plan["options"],
        "columns": columns,
        "ledger": {name: counts[name] for name in LEDGER_NAMES},
        "sources": sources,
        "parts": parts,
    }


def is_balanced(ledger: dict[str, int]) -> bool:
    """Return whether the tokens that were encoded or imported, added or repeated equal those
    written or left out."""
    came_in = ledger["num_encoded_tokens"] + ledger["num_special_tokens_added"]
    came_in += ledger["num_overlap_tokens"]
    left_out = ledger["num_truncated_tokens"] + ledger["num_dropped_tokens"]
    left_out += ledger["num_padding_tokens"]
    return came_in == ledger["num_tokens"] + left_out


def read_store_manifest(path: Place) -> tuple[dict[str, Any], str]:
    """Read and check the manifest of a finished token store; return it and its digest.

    Raises:
        FolderError: it is incomplete, of another version, not a token store, or contradicts itself;
            or a file is missing or has another size.
    """
    manifest, digest, find_size = read_manifest(
        path, format_name=FORMAT, version=FORMAT_VERSION, fields=MANIFEST_FIELDS
    )
    source, made_by, ledger = path / MANIFEST_NAME, manifest["made_by"], manifest["ledger"]
    check_fields(ledger, dict.fromkeys(LEDGER_NAMES, int), source=source)
    if made_by not in MAKERS:
        raise FolderError(f"{source}: made_by {quote(made_by)}, expected {' or '.join(MAKERS)}")
    if made_by == "tokenize" and not has_tokenizer(manifest):
        raise FolderError(f"{source}: tokenizer_blake3 is null, expected a string for tokenize")
    check_id_range(manifest, source)
    for number, part in enumerate(manifest["parts"]):
        check_fields(part, PART_FIELDS, source=source)
        name = f"part-{number:05d}"
        expected = [f"{name}.bin", f"{name}.idx", columns_name(name)]
        check_files(path, part["files"], find_size)
        names = [file["name"] for file in part["files"]]
        if names != expected or part["name"] != name:
            raise FolderError(f"{source}: part {number} does not list {join_items(expected)}")
        num_bytes = part["num_tokens"] * np.dtype(manifest["dtype"]).itemsize
        if part["files"][0]["bytes"] != num_bytes:
            found = part["files"][0]["bytes"]
            raise FolderError(f"{path / names[0]}: {found:,} bytes, expected {num_bytes:,}")
        for entry in part["ranges"]:
            check_fields(entry, RANGE_FIELDS, source=source)
    _check_sums(manifest, source)
    if ledger["num_special_tokens_in_text"] and find_size(SPELLED_NAME) is None:
        raise FolderError(
            f"{path / SPELLED_NAME}: missing, {MANIFEST_NAME} has "
            f"{ledger['num_special_tokens_in_text']:,} special tokens in the text",
            hint="bring the file back, or make the store again with --overwrite",
        )
    return manifest, digest


def _check_sums(manifest: dict[str, Any], source: Place) -> None:
    """Raise unless the counts of sources and parts add up to the ledger, and its tokens."""
    ledger, num_documents = manifest["ledger"], 0
    for entry in manifest["sources"]:
        check_fields(entry, SOURCE_FIELDS, source=source)
        if entry["first_document"] != num_documents:
            raise FolderError(
                f"{source}: source {quote(entry['path'])} begins at document "
                f"{entry['first_document']}, expected {num_documents}"
            )
        num_documents += entry["num_documents"]
    names = ("num_documents", "num_sequences", "num_tokens")
    counts = [("parts", name, sum(part[name] for part in manifest["parts"])) for name in names]
    for what, name, found in (("sources", names[0], num_documents), *counts):
        if found != ledger[name]:
            raise FolderError(
                f"{source}: the {what} have {found} {name}, the ledger has {ledger[name]}"
            )
    ranges = (entry for part in manifest["parts"] for entry in part["ranges"])
    if any(entry["source"] >= len(manifest["sources"]) for entry in ranges):
        raise FolderError(f"{source}: a part has a source that is not listed")
    if not ledger["num_sequences"]:
        raise FolderError(f"{source}: no sequences")
    if not is_balanced(ledger):
        raise FolderError(f"{source}: the tokens in the ledger do not add up")


def check_id_range(manifest: dict[str, Any], source: Place) -> None:
    """Raise FolderError unless the dtype of a manifest holds its ids, pad_id included.

    Without a tokenizer the ids have no gaps.
    """
    dtype, max_id = manifest["dtype"], manifest["max_id"]
    if dtype not in CODE_OF_DTYPE:
        raise FolderError(f"{source}: dtype {quote(dtype)}, expected uint16 or int32")
    if max_id > np.iinfo(dtype).max:
        raise FolderError(f"{source}: max_id {max_id:,} does not fit {dtype}")
    if not has_tokenizer(manifest) and max_id != (last := manifest["vocab_size"] - 1):
        raise FolderError(f"{source}: max_id {max_id:,}, expected {last:,} without a tokenizer")
    for role in ("pad_id", "bos_id", "eos_id", "unk_id"):
        id_ = manifest.get(role)
        if id_ is not None and (type(id_) is not int or not 0 <= id_ <= max_id):
            raise FolderError(f"{source}: {role} {quote(id_)}, expected an id from 0 to {max_id}")
