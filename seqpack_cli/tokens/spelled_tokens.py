"""Count the special tokens that are spelled in the raw text, for `special_tokens.jsonl`.

The file has one line per token, sorted by token, and is written only if any was found:
{"token": "<s>", "count": 12, "places": [{"source": "a.txt", "record": 3}]}. Places are the first
five records that contain it, numbered from 1.

Text without special tokens is searched at about 10 GB/s: the special tokens of a vocabulary share a
few prefixes (`<|`, `[`, `<`), and only texts that contain one are searched with the regex.
"""

from __future__ import annotations

import bisect
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from seqpack_cli.errors import FolderError, quote
from seqpack_cli.files.json_files import check_fields, encode_json, parse_json
from seqpack_cli.files.manifest import MANIFEST_NAME
from seqpack_cli.files.places import Place, at
from seqpack_cli.runs.run_folder import RunFolder

NAME = "special_tokens.jsonl"
MAX_PLACES = 5  # kept for each token
MAX_DEPTH = 3  # levels of the regex that branch by prefix instead of trying hundreds of tokens
MAX_BYTES = 64 << 20  # a line has about 100 bytes, and few vocabularies 1,000 special tokens
TOKEN_FIELDS: dict[str, type] = {"token": str, "count": int, "places": list}
PLACE_FIELDS: dict[str, type] = {"source": str, "record": int}


class SpecialTokenCounts:
    """Counts of the special tokens spelled in the texts of a part, and the documents they are in.

    Where two tokens begin at the same place, the longer one counts.

    >>> counts = SpecialTokenCounts(["<a>", "<a><b>"])
    >>> counts.add(["<a><b> <a>", "a<"], first_document=7)
    2
    >>> counts.describe()
    {'<a><b>': [1, [7]], '<a>': [1, [7]]}
    """

    def __init__(self, special_tokens: Sequence[str]) -> None:
        self._prefixes = list_prefixes(special_tokens)
        self._find = compile_tokens(special_tokens).findall
        self._counts: Counter[str] = Counter()
        self._documents: dict[str, list[int]] = {}
        self._full: set[str] = set()  # tokens with MAX_PLACES documents

    def add(self, texts: list[str], *, first_document: int) -> int:
        """Count the special tokens in the next texts of the part; return their number.

        Args:
            first_document: the number of the first text in the part.
        """
        suspects = {
            index for prefix in self._prefixes for index, text in enumerate(texts) if prefix in text
        }
        all_found: list[str] = []
        for index in sorted(suspects):
            found = self._find(texts[index])
            all_found += found
            for token in set(found) - self._full:
                documents = self._documents.setdefault(token, [])
                documents.append(first_document + index)
                if len(documents) == MAX_PLACES:
                    self._full.add(token)
        self._counts.update(all_found)
        return len(all_found)

    def describe(self) -> dict[str, list[object]]:
        """Return, by token, its count and the first documents that contain it."""
        return {token: [self._counts[token], self._documents[token]] for token in self._counts}


def list_prefixes(tokens: Iterable[str]) -> list[str]:
    """Return texts of which a text contains one if it contains a token."""
    return list(_group(filter(None, tokens)))


def compile_tokens(tokens: Iterable[str]) -> re.Pattern[str]:
    """Return a regex for any of some tokens, longer ones first; for none if there are none."""
    groups = _group(filter(None, tokens))
    return re.compile("|".join(_match(*group) for group in groups.items()) or "(?!)")


def write_spelled_tokens(
    run: RunFolder, manifest: dict[str, Any], receipts: list[dict[str, Any]]
) -> None:
    """Add up the counts of the parts and write them, with the first records of the whole input."""
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
    """Read what `write_spelled_tokens` wrote; None if the store was written before this file
    existed.

    Args:
        manifest: the manifest of the store, checked.

    Raises:
        FolderError: it is damaged, or not of this store; the message has the line.
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
                "expected sorted tokens"
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
    """Raise FolderError unless an entry has a count and records that exist."""
    check_fields(entry, TOKEN_FIELDS, source=place)
    places, most = entry["places"], min(entry["count"], MAX_PLACES)
    if not 1 <= len(places) <= most:
        raise FolderError(
            f"{place}: {len(places)} places for a count of {entry['count']:,}, expected 1 to {most}"
        )
    for found in places:
        check_fields(found, PLACE_FIELDS, source=place)
        if not 1 <= found["record"] <= num_records.get(found["source"], 0):
            raise FolderError(
                f"{place}: record {found['record']:,} of {quote(found['source'])}, "
                f"expected a record that {MANIFEST_NAME} lists"
            )


def _group(tokens: Iterable[str]) -> dict[str, list[str]]:
    """Group tokens by their first character; the keys are the longest common prefixes."""
    groups = [list(group) for _, group in groupby(sorted(tokens), key=lambda token: token[0])]
    return {
        os.path.commonprefix(group): group  # noqa: RUF071 - of characters
        for group in groups
    }


def _match(prefix: str, tokens: list[str], depth: int = MAX_DEPTH) -> str:
    """Return a regex for tokens with a common prefix; longer tokens match first."""
    ends = {token[len(prefix) :] for token in tokens}
    if depth == 0:
        choices = [re.escape(end) for end in sorted(ends, key=len, reverse=True)]
    else:
        groups = _group(filter(None, ends))
        choices = [_match(*group, depth - 1) for group in groups.items()]
        choices += [""] * ("" in ends)
    return re.escape(prefix) + "(?:" + "|".join(choices) + ")"


def check_spelled_tokens(
    receipt: dict[str, Any], special_tokens: Sequence[str], *, source: Place
) -> None:
    """Raise FolderError unless these are special tokens, counted, each in documents of the part."""
    known, total = set(special_tokens), receipt["ledger"]["num_special_tokens_in_text"]
    num_documents = sum(entry["num_documents"] for entry in receipt["ranges"])
    for token, entry in receipt["special_tokens"].items():
        is_entry = isinstance(entry, list) and [type(value) for value in entry] == [int, list]
        count, documents = entry if is_entry else (0, [])
        is_sound = (
            token in known
            and 1 <= len(documents) <= min(count, MAX_PLACES)
            and all(type(document) is int for document in documents)
            and documents == sorted(set(documents))
            and 0 <= documents[0] <= documents[-1] < num_documents
        )
        if not is_sound:
            raise FolderError(
                f"{source}: special token {quote(token)} has {quote(entry)}, "
                "expected a count and the first documents"
            )
        total -= count
    if total:
        raise FolderError(f"{source}: the special tokens do not add up to the ledger's")
