"""Compare the manifests of two stores, or of one side of two shard sets, field by field."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from seqpack_cli.batching.options import DECODER
from seqpack_cli.files.json_files import MAX_JSON_COUNT
from seqpack_cli.files.manifest import SIDE, has_tokenizer
from seqpack_cli.reporting.opened import Opened
from seqpack_cli.shards.manifest import DECODER_FIELDS, find_side

# Fields of a manifest that are compared on their own, or ignored.
NO_FACTS = ("options", "columns", "ledger", "sources", "parts", "shards", "stores", "decoder")


def compare_manifests(first: Opened, second: Opened, files: str) -> dict[str, Any]:
    """Return the options, facts and counts that differ.

    Of shards these are those of one side; the options and facts of the decoder's are its own alone.

    Args:
        files: the field that lists the parts or shards; their number is compared.
    """
    facts, both = [], (first, second)
    for opened in both:
        manifest = opened.manifest
        if has_tokenizer(manifest):
            opened.read_tokenizer_json()  # raises if its checksum is not that of the manifest
        fields = {name: value for name, value in manifest.items() if name not in NO_FACTS}
        if "stores" in manifest:
            fields["stores"] = [entry["blake3"] for entry in manifest["stores"]]
            fields["pairs"] = find_side(manifest) is not None
        fields[f"num_{files}"] = len(manifest[files])
        if manifest.get(SIDE) == DECODER:
            fields = {name: value for name, value in fields.items() if name in DECODER_FIELDS}
        facts.append(fields)
    options = [{} if it.manifest.get(SIDE) == DECODER else it.manifest["options"] for it in both]
    return {
        "options": _list_differing(*options),
        "facts": _list_differing(*facts),
        "ledger": _compare_ledgers(first.manifest["ledger"], second.manifest["ledger"]),
    }


def _list_differing(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[dict[str, Any]]:
    """List the names whose values differ; a side without a value lacks its key."""
    listed = []
    for name in {**first, **second}:
        values = {side: x[name] for side, x in (("a", first), ("b", second)) if name in x}
        spelled = [json.dumps(value, sort_keys=True) for value in values.values()]  # 1 is not True
        if len(spelled) == 1 or spelled[0] != spelled[1]:
            listed.append({"name": name, **values})
    return listed


def _compare_ledgers(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[dict[str, Any]]:
    """List the counts that differ, and by how much; a missing count is 0."""
    num_stores = max(len(_read_stores(ledger)) for ledger in (first, second))
    counts, others = (_read_counts(ledger, num_stores) for ledger in (first, second))
    return [
        {
            "name": name,
            "a": counts[name],
            "b": others[name],
            "difference": others[name] - counts[name],
        }
        for name in {**counts, **others}
        if counts[name] != others[name]
    ]


def _read_stores(ledger: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the counts of each store; none in the ledger of a token store."""
    stores = ledger.get("stores")
    return stores if isinstance(stores, list) else ()


def _read_counts(ledger: Mapping[str, Any], num_stores: int) -> Counter[str]:
    """Return the counts of a ledger by name, or by name and reason; of stores by position.

    Args:
        num_stores: of the side that has more; those of a single store are the counts themselves.
    """
    counts: Counter[str] = Counter()
    counted = [*ledger.items()]
    if num_stores > 1:
        for number, entry in enumerate(_read_stores(ledger), 1):
            counted += [(f"{name} of store {number}", value) for name, value in entry.items()]
    for name, value in counted:
        by_reason = value if isinstance(value, dict) else {"": value}
        for reason, number in by_reason.items():
            if (
                type(number) is int and abs(number) <= MAX_JSON_COUNT
            ):  # a stranger's may be anything
                counts[f"{name} by {reason}" if reason else name] = number
    return counts


def compare_sources(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Return which sources only one store has, and which changed in text or documents."""
    sources, others = _read_sources(first), _read_sources(second)
    in_both = [key for key in sources if key in others]
    changed = []
    for key in in_both:
        (values, texts), (other_values, other_texts) = sources[key], others[key]
        # Ranges that were cut differently cannot be compared.
        is_other_text = any(texts[cut] != other_texts[cut] for cut in texts.keys() & other_texts)
        if values != other_values or is_other_text:
            changed.append({"path": key[0], "a": values, "b": other_values})
    return {
        "only_in_a": [path for path, turn in sources if (path, turn) not in others],
        "only_in_b": [path for path, turn in others if (path, turn) not in sources],
        "changed": changed,
        "same_order": in_both == [key for key in others if key in sources],
    }


def _read_sources(
    manifest: Mapping[str, Any],
) -> dict[tuple[str, int], tuple[dict[str, int], dict[tuple[int, int], str]]]:
    """Return size, documents and the checksum of each range of the sources.

    Returns:
        By path and turn: 0 for the first source of this path, 1 for the second.
    """
    texts: dict[int, dict[tuple[int, int], str]] = defaultdict(dict)
    for part in manifest["parts"]:
        for entry in part["ranges"]:
            texts[entry["source"]][entry["start"], entry["end"]] = entry["blake3"]
    turns: Counter[str] = Counter()
    found = {}
    for number, source in enumerate(manifest["sources"]):
        values = {name: source[name] for name in ("bytes", "num_documents")}
        found[source["path"], turns[source["path"]]] = values, texts[number]
        turns[source["path"]] += 1
    return found
