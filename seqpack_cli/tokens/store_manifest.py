"""Make the manifest of a token store from its parts' receipts, and check it when it is read.

Documents and sequences are numbered within each part; the manifest has the numbers in the whole
store at which each part begins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from seqpack_cli.errors import FolderError, join_items, quote
from seqpack_cli.files.json_files import Kind, check_fields
from seqpack_cli.files.manifest import MANIFEST_NAME, check_files, has_tokenizer, read_manifest
from seqpack_cli.files.places import Place
from seqpack_cli.tokens.columns.column import Column
from seqpack_cli.tokens.columns.kept import Kept
from seqpack_cli.tokens.columns.part_columns import columns_name
from seqpack_cli.tokens.indexed_dataset import check_id_range, choose_dtype
from seqpack_cli.tokens.made_counts import check_made_counts
from seqpack_cli.tokens.roles import ROLES

if TYPE_CHECKING:
    from seqpack_cli.corpus.sources import Source
    from seqpack_cli.tokens.vocabulary import Vocabulary

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
LEDGER_NAMES = (
    "num_documents",
    "num_empty_documents",
    "num_empty_sequences",
    "num_rejected",
    "num_dropped_documents",
    "num_sequences",
    "num_encoded_tokens",
    "num_special_tokens_added",
    "num_truncated_tokens",
    "num_dropped_tokens",
    "num_padding_tokens",
    "num_tokens",
    "num_target_tokens",
    "num_straddling_tokens",
    "num_overlap_tokens",
    "num_special_tokens_in_text",
    "num_words_without_token",
)
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
    kept: Sequence[Kept],
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
    names = ("vocab_size", "max_id", *ROLES)
    return {
        "format": plan["format"],
        "format_version": plan["format_version"],
        "made_by": plan["made_by"],
        "dtype": plan["dtype"],
        **{name: getattr(vocabulary, name) for name in names},
        "tokenizer_blake3": vocabulary.tokenizer_blake3,
        "options": plan["options"],
        "columns": [_make_column(each, receipts).describe() for each in kept],
        "ledger": {name: counts[name] for name in LEDGER_NAMES},
        "sources": list(_describe_sources(plan["sources"], documents_of_source)),
        "parts": parts,
    }


def _make_column(kept: Kept, receipts: list[dict[str, Any]]) -> Column:
    """Return a column with the classes of all parts."""
    names = (receipt["class_names"].get(kept.field.name, ()) for receipt in receipts)
    return kept.make_column(chain.from_iterable(names))


def _describe_sources(
    planned: list[dict[str, Any]], documents_of_source: Counter[int]
) -> Iterator[dict[str, Any]]:
    first_document = 0
    for index, source in enumerate(planned):
        num_documents = documents_of_source[index]
        yield {**source, "num_documents": num_documents, "first_document": first_document}
        first_document += num_documents


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
        FolderError: it is incomplete, of another version, or not a token store.
    """
    manifest, digest, find_size = read_manifest(
        path, format_name=FORMAT, version=FORMAT_VERSION, fields=MANIFEST_FIELDS
    )
    source = path / MANIFEST_NAME
    check_fields(manifest["ledger"], dict.fromkeys(LEDGER_NAMES, int), source=source)
    _check_maker(manifest, source)
    check_id_range(manifest, source)
    _check_sources(manifest, source)
    if not manifest["ledger"]["num_sequences"]:
        raise FolderError(f"{source}: no sequences")
    for number, part in enumerate(manifest["parts"]):
        check_fields(part, PART_FIELDS, source=source)
        name = f"part-{number:05d}"
        expected = [f"{name}.bin", f"{name}.idx", columns_name(name)]
        check_files(path, part["files"], find_size)
        names = [file["name"] for file in part["files"]]
        if names != expected or part["name"] != name:
            raise FolderError(f"{source}: part {number} does not list {join_items(expected)}")
        for entry in part["ranges"]:
            check_fields(entry, RANGE_FIELDS, source=source)
            if entry["source"] >= len(manifest["sources"]):
                raise FolderError(
                    f"{source}: part {number} has source {entry['source']}, "
                    f"expected less than {len(manifest['sources'])}"
                )
    return manifest, digest


def _check_maker(manifest: dict[str, Any], source: Place) -> None:
    """Raise unless one of the commands can have made the store, with or without a tokenizer."""
    made_by = manifest["made_by"]
    if made_by not in MAKERS:
        raise FolderError(f"{source}: made_by {quote(made_by)}, expected {' or '.join(MAKERS)}")
    if made_by == "tokenize" and not has_tokenizer(manifest):
        raise FolderError(f"{source}: tokenizer_blake3 is null, expected a string for tokenize")


def _check_sources(manifest: dict[str, Any], source: Place) -> None:
    """Raise unless the documents of the sources are numbered without gaps, up to the ledger's."""
    num_documents = 0
    for entry in manifest["sources"]:
        check_fields(entry, SOURCE_FIELDS, source=source)
        if entry["first_document"] != num_documents:
            raise FolderError(
                f"{source}: source {quote(entry['path'])} begins at document "
                f"{entry['first_document']}, expected {num_documents}"
            )
        num_documents += entry["num_documents"]
    if num_documents != manifest["ledger"]["num_documents"]:
        raise FolderError(
            f"{source}: the sources have {num_documents} documents, "
            f"the ledger has {manifest['ledger']['num_documents']}"
        )


def check_totals(manifest: dict[str, Any], source: Place) -> None:
    """Raise unless the counts of the parts add up to the ledger."""
    for name in ("num_documents", "num_sequences", "num_tokens"):
        found, expected = sum(part[name] for part in manifest["parts"]), manifest["ledger"][name]
        if found != expected:
            raise FolderError(f"{source}: the parts have {found} {name}, the ledger has {expected}")
    if not is_balanced(manifest["ledger"]):
        raise FolderError(f"{source}: the tokens in the ledger do not add up")
    check_made_counts(manifest, source)
