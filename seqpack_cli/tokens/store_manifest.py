"""The receipts of all parts -> the token store's manifest, its ledger and its rejects.

Numbers within a part become numbers of the whole store here: documents and sequences are counted
through all parts in order, records through each source file.
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seqpack_cli.corpus.sources import Source
from seqpack_cli.errors import DataError, join_items
from seqpack_cli.storage import encode_json, publish
from seqpack_cli.tokens.token_store import LEDGER_NAMES
from seqpack_cli.tokens.vocabulary import Vocabulary


def make_manifest(
    plan: dict[str, Any],
    vocabulary: Vocabulary,
    receipts: list[dict[str, Any]],
) -> dict[str, Any]:
    """Add up the parts' receipts into the manifest of the store."""
    counts: Counter[str] = Counter()
    documents_of_source: Counter[int] = Counter()
    parts = []
    for number, receipt in enumerate(receipts):
        ledger = receipt["ledger"]
        parts.append(
            {
                "name": f"part-{number:05d}",
                "num_documents": ledger.get("num_documents", 0),
                "num_sequences": ledger.get("num_sequences", 0),
                "num_tokens": ledger.get("num_tokens", 0),
                "first_document": counts["num_documents"],
                "first_sequence": counts["num_sequences"],
                "ranges": receipt["ranges"],
                "files": receipt["files"],
            }
        )
        counts.update(ledger)
        for entry in receipt["ranges"]:
            documents_of_source[entry["source"]] += entry["num_documents"]
    names = ("vocab_size", "max_id", "pad_id", "bos_id", "eos_id", "unk_id")
    return {
        "format": plan["format"],
        "format_version": plan["format_version"],
        "dtype": plan["dtype"],
        **{name: getattr(vocabulary, name) for name in names},
        "tokenizer_sha256": vocabulary.tokenizer_sha256,
        "options": plan["options"],
        "ledger": {name: counts[name] for name in LEDGER_NAMES},
        "sources": list(_describe_sources(plan["sources"], documents_of_source)),
        "parts": parts,
    }


def _describe_sources(
    planned: list[dict[str, Any]], documents_of_source: Counter[int]
) -> Iterator[dict[str, Any]]:
    first_document = 0
    for index, source in enumerate(planned):
        num_documents = documents_of_source[index]
        yield {**source, "num_documents": num_documents, "first_document": first_document}
        first_document += num_documents


def check_ledger(ledger: dict[str, int], sources: list[Source]) -> None:
    """Raise if there is nothing to write, or, which would be our own bug, tokens went astray."""
    if ledger["num_sequences"] == 0:
        raise DataError(
            f"{join_items(source.path for source in sources)}: no document with a token "
            f"({ledger['num_documents']:,} documents read)"
        )
    came_in = ledger["num_encoded_tokens"] + ledger["num_special_tokens_added"]
    left_out = ledger["num_truncated_tokens"] + ledger["num_dropped_tokens"]
    if came_in != ledger["num_tokens"] + left_out:
        raise AssertionError(f"the ledger does not add up: {ledger}")


def write_rejects(
    folder: Path,
    sources: list[Source],
    parts: list[dict[str, Any]],
    receipts: list[dict[str, Any]],
) -> None:
    """Write the records that were put aside, numbered as in their source files."""
    if not any(receipt["rejects"] for receipt in receipts):
        return
    seen: Counter[int] = Counter()  # documents of each source in the parts before
    with publish(folder / "rejects.jsonl") as file:
        for part, receipt in zip(parts, receipts, strict=True):
            for source_index, record, byte, reason in receipt["rejects"]:
                entry = {
                    "source": sources[source_index].path,
                    "record": seen[source_index] + record + 1,
                    "byte": byte,
                    "reason": reason,
                }
                file.write(encode_json(entry) + b"\n")
            for entry in part["ranges"]:
                seen[entry["source"]] += entry["num_documents"]


def describe_run(
    tokenizer: str, encoder: str, num_workers: int | None, sources: list[Source], seconds: float
) -> dict[str, Any]:
    """Say how the run was done; no reader needs it."""
    import tokenizers

    num_bytes = sum(source.num_bytes for source in sources)
    return {
        "tokenizer": tokenizer,
        "encoder": encoder,
        "num_workers": num_workers,
        "seconds": round(seconds, 3),
        "input_megabytes_per_second": round(num_bytes / 1e6 / seconds, 3),
        "versions": {"python": platform.python_version(), "tokenizers": tokenizers.__version__},
    }
