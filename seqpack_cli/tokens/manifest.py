"""Make the manifest of a token store from its parts' receipts, and check it when it is read.

Documents and sequences are numbered within each part; the manifest has the numbers in the whole
store at which each part begins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from seqpack_cli.errors import FolderError, quote
from seqpack_cli.files.json_files import Kind, check_fields
from seqpack_cli.files.manifest import (
    FORMAT_OF_TOKENS,
    MANIFEST_NAME,
    check_files,
    has_tokenizer,
    read_manifest,
)
from seqpack_cli.files.places import Place
from seqpack_cli.ranges import to_offsets
from seqpack_cli.tokens.columns import make_column
from seqpack_cli.tokens.kinds import PlannedColumn
from seqpack_cli.tokens.part_files import CODE_OF_DTYPE, LEDGER_NAMES, choose_dtype, columns_name
from seqpack_cli.tokens.special_tokens import NAME as SPELLED_NAME
from seqpack_cli.tokens.tokenizer import ROLES, Vocabulary

if TYPE_CHECKING:
    from seqpack_cli.corpus.sources import Source

FORMAT_VERSION = 5
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
        "format": FORMAT_OF_TOKENS,
        "format_version": FORMAT_VERSION,
        "made_by": made_by,
        "dtype": choose_dtype(vocabulary.max_id),
        "tokenizer_blake3": vocabulary.tokenizer_blake3,
        **{name: getattr(vocabulary, name) for name in ("vocab_size", "max_id", *ROLES)},
        "options": options,
        "sources": [{"path": source.name, "bytes": source.num_bytes} for source in sources],
    }


def make_manifest(
    plan: dict[str, Any], fields: Sequence[PlannedColumn], receipts: list[dict[str, Any]]
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
    made = {
        "columns": columns,
        "ledger": {name: counts[name] for name in LEDGER_NAMES},
        "sources": sources,
        "parts": parts,
    }
    names = ("format", "format_version", *MANIFEST_FIELDS)
    return {name: made[name] if name in made else plan[name] for name in names}


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
        path, format_name=FORMAT_OF_TOKENS, version=FORMAT_VERSION, fields=MANIFEST_FIELDS
    )
    source, ledger = path / MANIFEST_NAME, manifest["ledger"]
    check_fields(ledger, dict.fromkeys(LEDGER_NAMES, int), source=source)
    check_id_range(manifest, source)
    itemsize = np.dtype(manifest["dtype"]).itemsize
    for number, part in enumerate(manifest["parts"]):
        check_fields(part, PART_FIELDS, source=source)
        check_files(path, part["files"], find_size)
        for entry in part["ranges"]:
            check_fields(entry, RANGE_FIELDS, source=source)
        name, files = f"part-{number:05d}", part["files"]
        expected = [f"{name}.bin", f"{name}.idx", columns_name(name)]
        is_named = part["name"] == name and [file["name"] for file in files] == expected
        if not is_named or files[0]["bytes"] != part["num_tokens"] * itemsize:
            raise FolderError(f"{source}: contradicts itself: the files of part {number}")
    for entry in manifest["sources"]:
        check_fields(entry, SOURCE_FIELDS, source=source)
    for what in _iter_contradictions(manifest):
        raise FolderError(f"{source}: contradicts itself: {what}")
    if ledger["num_special_tokens_in_text"] and find_size(SPELLED_NAME) is None:
        raise FolderError(
            f"{path / SPELLED_NAME}: missing, {MANIFEST_NAME} has "
            f"{ledger['num_special_tokens_in_text']:,} special tokens in the text",
            hint="bring the file back, or make the store again with --overwrite",
        )
    return manifest, digest


def _iter_contradictions(manifest: dict[str, Any]) -> Iterator[str]:
    """Yield what of a manifest contradicts the rest of it."""
    ledger, parts, sources = (manifest[name] for name in ("ledger", "parts", "sources"))
    if manifest["made_by"] not in ("tokenize", "import"):
        yield f"made_by is {quote(manifest['made_by'])}"
    if manifest["made_by"] == "tokenize" and not has_tokenizer(manifest):
        yield "tokenize has no tokenizer"
    for name in ("num_documents", "num_sequences", "num_tokens"):
        if sum(part[name] for part in parts) != ledger[name]:
            yield f"{name} of the parts do not add up to the ledger"
    firsts = to_offsets([entry["num_documents"] for entry in sources]).tolist()
    if firsts != [*(entry["first_document"] for entry in sources), ledger["num_documents"]]:
        yield "the documents of the sources do not add up to the ledger"
    if any(entry["source"] >= len(sources) for part in parts for entry in part["ranges"]):
        yield "a part has a source that is not listed"
    if not ledger["num_sequences"] or not is_balanced(ledger):
        yield "the tokens in the ledger do not add up"


def check_id_range(manifest: dict[str, Any], source: Place) -> None:
    """Raise FolderError unless the dtype of a manifest holds its ids, pad_id included.

    Without a tokenizer the ids have no gaps.
    """
    dtype, max_id = manifest["dtype"], manifest["max_id"]
    is_sound = dtype in CODE_OF_DTYPE and max_id <= np.iinfo(dtype).max
    is_sound &= has_tokenizer(manifest) or max_id == manifest["vocab_size"] - 1
    for id_ in filter(lambda id_: id_ is not None, map(manifest.get, ROLES)):
        is_sound &= type(id_) is int and 0 <= id_ <= max_id
    if not is_sound:
        what = "dtype, vocab_size, max_id and the ids of special tokens"
        raise FolderError(f"{source}: contradicts itself: {what}")
