"""Special tokens that a text spells: find them, count them, and keep models from writing them.

Their counts are in `special_tokens.jsonl`, one line per token, sorted by token, written only if any
was found: {"token": "<s>", "count": 12, "places": [{"source": "a.txt", "record": 3}]}. Places are
the first five records that spell it, numbered from 1.

Text without special tokens is searched at about 10 GB/s: the special tokens of a vocabulary share a
few prefixes (`<|`, `[`, `<`), and only texts that contain one are searched with the regex.
"""

from __future__ import annotations

import bisect
import functools
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from seqpack_cli.errors import FolderError
from seqpack_cli.files.json_files import check_fields, encode_json, parse_json
from seqpack_cli.files.manifest import MANIFEST_NAME
from seqpack_cli.files.places import Place, at
from seqpack_cli.runs.run_folder import RunFolder
from seqpack_cli.tokens.decode import FALLBACK_BYTE

NAME = "special_tokens.jsonl"
MAX_PLACES = 5  # kept for each token
MAX_BYTES = 64 << 20  # a line has about 100 bytes, and few vocabularies 1,000 special tokens
MARKS = ("\ufdd0", "\ufdd1")  # noncharacters, which no text should have
FIRST_PRIVATE = 0x100000  # of the last private area, which has 65,534 characters


def compile_tokens(tokens: Iterable[str]) -> re.Pattern[str]:
    """Return a regex for any of some tokens, longer ones first; for none if there are none."""
    groups = group_tokens(tokens)
    return re.compile("|".join(_match(*group) for group in groups.items()) or "(?!)")


def group_tokens(tokens: Iterable[str]) -> dict[str, list[str]]:
    """Group tokens by their longest common prefixes: a text with a token contains one of these."""
    groups = [list(group) for _, group in groupby(sorted(tokens), key=lambda token: token[0])]
    return {os.path.commonprefix(group): group for group in groups}  # noqa: RUF071 - of characters


def _match(prefix: str, tokens: list[str]) -> str:
    """Return a regex for tokens with a common prefix; longer tokens match first."""
    ends = {token[len(prefix) :] for token in tokens}
    choices = [_match(*group) for group in group_tokens(filter(None, ends)).items()]
    return re.escape(prefix) + "(?:" + "|".join([*choices, ""] if "" in ends else choices) + ")"


class SpecialTokenCounts:
    """Counts of the special tokens spelled in the texts of a part, and the documents they are in.

    Where two tokens begin at the same place, the longer one counts.

    >>> counts = SpecialTokenCounts(["<a>", "<a><b>"])
    >>> counts.add(["<a><b> <a>", "a<"], first_document=7)
    2
    >>> counts.found
    {'<a><b>': (1, [7]), '<a>': (1, [7])}
    """

    def __init__(self, special_tokens: Sequence[str]) -> None:
        self._prefixes = list(group_tokens(special_tokens))
        self._find = compile_tokens(special_tokens).findall
        # By token, its count and the first documents that contain it.
        self.found: dict[str, tuple[int, list[int]]] = {}

    def add(self, texts: list[str], *, first_document: int) -> int:
        """Count the special tokens in the next texts of the part; return their number.

        Args:
            first_document: the number of the first text in the part.
        """
        suspects = {
            index for prefix in self._prefixes for index, text in enumerate(texts) if prefix in text
        }
        num_found = 0
        for index in sorted(suspects):
            document = first_document + index
            for token in self._find(texts[index]):  # in most texts none
                count, documents = self.found.get(token, (0, []))
                if len(documents) < MAX_PLACES and document not in documents:
                    documents.append(document)
                self.found[token] = count + 1, documents
                num_found += 1
        return num_found


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


def read_spelled_tokens(folder: Place, manifest: dict[str, Any]) -> list[dict[str, Any]]:
    """Read what `write_spelled_tokens` wrote.

    Raises:
        FolderError: it is damaged, or not of this store; the message has the line.
    """
    path = folder / NAME
    content = at(path).read(max_bytes=MAX_BYTES) if at(path).exists() else b""
    tokens: list[dict[str, Any]] = []
    for number, line in enumerate(content.splitlines(keepends=True), 1):
        place = f"{path}:{number}"
        if not line.endswith(b"\n"):
            raise FolderError(f"{place}: no line end, expected one after each token")
        entry = parse_json(line, source=place)
        check_fields(entry, {"token": str, "count": int, "places": list}, source=place)
        for found in entry["places"]:
            check_fields(found, {"source": str, "record": int}, source=place)
        tokens.append(entry)
    found, expected = (
        sum(entry["count"] for entry in tokens),
        manifest["ledger"]["num_special_tokens_in_text"],
    )
    if found != expected:
        raise FolderError(
            f"{path}: {found:,} special tokens, {MANIFEST_NAME} says {expected:,}",
            hint="the file was changed or damaged: run tokenize --overwrite",
        )
    return tokens


@functools.lru_cache(maxsize=2)
def hide_special_tokens(tokenizer_json: bytes) -> bytes:
    """Return a tokenizer.json with the same ids, whose special tokens no text can spell.

    Without that, a model with a special token among its words writes it where a text spells it,
    though the library was told to take it as text. If it has no such word, it stays as it is.
    """
    saved = json.loads(tokenizer_json)
    model, known = saved["model"], dict(saved["model"]["vocab"])
    # With spaces: nearly all tokenizers take them from words, so that no text can spell these.
    names = {
        token["content"]: f" {chr(FIRST_PRIVATE + number)} "
        for number, token in enumerate(saved.get("added_tokens") or ())
        if token["special"] and token["content"] in known and not _is_byte(model, token["content"])
    }
    merges = map(_parts, model.get("merges") or ())
    is_spelled = any(len(token) == 1 for token in names) or not all(
        map(names.keys().isdisjoint, merges)
    )
    if not names or ("merges" in model and not model.get("ignore_merges") and not is_spelled):
        return tokenizer_json  # BPE makes all but single characters by merges
    return _rename(saved, names)


def mark_special_tokens(tokenizer_json: bytes, special_tokens: Sequence[str]) -> bytes:
    """Return a tokenizer.json with the same ids, for texts in which special tokens are marked.

    Those between MARKS become their ids, wherever they are; without marks they are text.

    Args:
        special_tokens: those that may be marked; tokenizer.json may not call them special.
    """
    saved = json.loads(tokenizer_json)
    names = {it: it.join(MARKS) for it in special_tokens if not _is_byte(saved["model"], it)}
    for token in saved["added_tokens"]:
        if token["content"] in names:
            token |= {"special": False, "normalized": False, "single_word": False}
    return _rename(saved, names)


def _is_byte(model: dict[str, Any], word: str) -> bool:
    return bool(model.get("byte_fallback") and FALLBACK_BYTE.fullmatch(word))


def _rename(saved: dict[str, Any], names: Mapping[str, str]) -> bytes:
    """Return a tokenizer.json in which tokens have other names, and no merge makes them."""

    def rename(token: Any) -> Any:
        return names.get(token, token)

    model, vocabulary = saved["model"], saved["model"]["vocab"]
    words = vocabulary.items() if isinstance(vocabulary, dict) else vocabulary
    model["vocab"] = type(vocabulary)([(rename(word), number) for word, number in words])
    if "merges" in model:
        model["merges"] = [it for it in model["merges"] if names.keys().isdisjoint(_parts(it))]
    model |= {"unk_token": rename(model["unk_token"])} if "unk_token" in model else {}
    added = [{**token, "content": rename(token["content"])} for token in saved["added_tokens"]]
    none = {"truncation": None, "padding": None, "post_processor": None}
    return json.dumps({**saved, **none, "added_tokens": added}, ensure_ascii=False).encode()


def _parts(merge: str | list[str]) -> tuple[str, str, str]:
    """Return both parts of a merge of BPE, and what they make."""
    first, second = merge.split(" ") if isinstance(merge, str) else merge
    return first, second, first + second
