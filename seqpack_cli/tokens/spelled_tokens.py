"""`special_tokens.jsonl`: which special tokens are spelled in the raw text, how often, where first.

One line a token, in the order of the tokens' texts, beside the manifest of a token store if there
is any: {"token": "<s>", "count": 12, "places": [{"source": "a.txt", "record": 3}]}. A place is a
record that holds it, counted from 1; the first five are named.
"""

from __future__ import annotations

import bisect
from typing import Any

from seqpack_cli.errors import FolderError, quote
from seqpack_cli.files.json_files import check_fields, encode_json, parse_json
from seqpack_cli.files.manifest import MANIFEST_NAME
from seqpack_cli.files.places import at
from seqpack_cli.files.url import Place
from seqpack_cli.runs.run_folder import RunFolder
from seqpack_cli.tokens.special_tokens import MAX_PLACES

NAME = "special_tokens.jsonl"
MAX_BYTES = 64 << 20  # a line has some hundred, and few vocabularies a thousand special tokens
TOKEN_FIELDS: dict[str, type] = {"token": str, "count": int, "places": list}
PLACE_FIELDS: dict[str, type] = {"source": str, "record": int}


def write_spelled_tokens(
    run: RunFolder, manifest: dict[str, Any], receipts: list[dict[str, Any]]
) -> None:
    """Add up what the parts found, and name the first records of the whole input."""
    firsts = [source["first_document"] for source in manifest["sources"]]
    tokens: dict[str, dict[str, Any]] = {}
    for part, receipt in zip(manifest["parts"], receipts, strict=True):
        for token, (count, documents) in receipt["special_tokens"].items():
            entry = tokens.setdefault(token, {"token": token, "count": 0, "places": []})
            entry["count"] += count
            for inside in documents[: MAX_PLACES - len(entry["places"])]:
                document = part["first_document"] + inside
                source = manifest["sources"][bisect.bisect_right(firsts, document) - 1]
                record = document - source["first_document"] + 1
                entry["places"].append({"source": source["path"], "record": record})
    if tokens:
        with run.publish(NAME) as file:
            for token in sorted(tokens):
                file.write(encode_json(tokens[token]) + b"\n")


def read_spelled_tokens(folder: Place, manifest: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Read what `write_spelled_tokens` wrote; None if the store is older than this file.

    Args:
        manifest: of the store, checked.

    Raises:
        FolderError: it is damaged, or does not belong to this store; the message has the line.
    """
    path, expected = folder / NAME, manifest["ledger"]["num_special_tokens_in_text"]
    if not at(path).exists():
        return None if expected else []
    num_records = {source["path"]: source["num_documents"] for source in manifest["sources"]}
    tokens: list[dict[str, Any]] = []
    lines = at(path).read(max_bytes=MAX_BYTES).split(b"\n")
    if lines.pop():
        raise FolderError(f"{path}:{len(lines) + 1}: no line end, expected one after each token")
    for number, line in enumerate(lines, 1):
        place = f"{path}:{number}"
        entry = parse_json(line, source=place)
        _check_entry(entry, num_records, place)
        if tokens and entry["token"] <= tokens[-1]["token"]:
            raise FolderError(
                f"{place}: token {quote(entry['token'])} after {quote(tokens[-1]['token'])}, "
                "expected the order of their texts"
            )
        tokens.append(entry)
    found = sum(entry["count"] for entry in tokens)
    if found != expected:
        raise FolderError(
            f"{path}: {found:,} special tokens, {MANIFEST_NAME} says {expected:,}",
            hint="the file was changed or damaged: run tokenize --overwrite",
        )
    return tokens


def _check_entry(entry: dict[str, Any], num_records: dict[str, int], place: str) -> None:
    """Raise FolderError unless this is a token that is there, at records that there are."""
    check_fields(entry, TOKEN_FIELDS, source=place)
    places, most = entry["places"], min(entry["count"], MAX_PLACES)
    if not 1 <= len(places) <= most:
        raise FolderError(
            f"{place}: {len(places)} places of {entry['count']:,} tokens, expected 1 to {most}"
        )
    for found in places:
        check_fields(found, PLACE_FIELDS, source=place)
        if not 1 <= found["record"] <= num_records.get(found["source"], 0):
            raise FolderError(
                f"{place}: record {found['record']:,} of {quote(found['source'])}, "
                f"expected one that {MANIFEST_NAME} has"
            )
