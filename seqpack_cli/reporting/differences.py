"""Compare two stores, or two shard sets: what differs, as plain values, and a verdict.

Manifests are compared field by field, ids and batches by their content. What only tells how or
where a run was done is ignored: run.json, the folders, the path of the token store.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from seqpack_cli.errors import OptionError
from seqpack_cli.files.json_files import MAX_JSON_COUNT
from seqpack_cli.files.manifest import has_tokenizer
from seqpack_cli.files.url import AnyPath
from seqpack_cli.reporting.differing_batches import compare_batches, have_equal_arrays
from seqpack_cli.reporting.differing_columns import compare_columns, pair_columns
from seqpack_cli.reporting.differing_sequences import compare_shards, compare_stores, count_equal
from seqpack_cli.reporting.opened import Opened, name_kind, open_any
from seqpack_cli.reporting.shared_documents import compare_hashes, find_shared
from seqpack_cli.reporting.verdict import judge
from seqpack_cli.runs.arguments import checks_arguments
from seqpack_cli.runs.progress import Progress
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.tokens.token_store import TokenStore

# Fields of a manifest that are compared on their own, or ignored.
NO_FACTS = ("options", "columns", "ledger", "sources", "parts", "shards", "stores")


@checks_arguments
def diff(a: AnyPath, b: AnyPath, *, progress: Progress | None = None) -> dict[str, Any]:
    """Compare two token stores, or the shards in two folders, as `seqpack diff --json` prints it.

    Returns:
        What differs, `identical` (bool) and the `verdict` in words.

    Raises:
        OptionError: one is a token store, the other is not.
        FolderError: one is incomplete or damaged.
    """
    return compare(open_any(a), open_any(b), progress)


def compare(first: Opened, second: Opened, progress: Progress | None = None) -> dict[str, Any]:
    """Find in what two stores, or two shard sets, differ; A is the first, B the second.

    Returns:
        What differs in `options`, `facts` and `ledger`, by name with the value on either side that
        has one; `sources` of stores; `columns`; `sequences`; `batches` of shards of one layout;
        `identical` if nothing does; the `verdict` in words.

    Raises:
        OptionError: one is a token store, the other is not.
        FolderError: one is damaged.
    """
    progress = progress or Progress()
    found: dict[str, Any] = {
        "kind": "differences",
        "compared": "token stores" if isinstance(first, TokenStore) else "shards",
        "a": str(first.path),
        "b": str(second.path),
        "sources": None,
        "columns": None,
        "batches": None,
        "same_arrays": None,
        "same_numbers": None,
    }
    if isinstance(first, TokenStore) and isinstance(second, TokenStore):
        found |= _compare_manifests(first, second, "parts")
        found["sources"] = _compare_sources(first.manifest, second.manifest)
        pairs = pair_columns(first.columns, second.columns)
        found["sequences"] = compare_stores(first, second, pairs, progress)
        found["documents"] = {**find_shared(first, second), **compare_hashes(first, second)}
    elif isinstance(first, ShardSet) and isinstance(second, ShardSet):
        found |= _compare_manifests(first, second, "shards")
        found["same_arrays"] = have_equal_arrays(first, second, progress)
        pairs = pair_columns(first.columns, second.columns)
        if found["same_arrays"] and first.columns == second.columns:
            found["sequences"] = count_equal(first)
        else:
            found["sequences"] = compare_shards(first, second, pairs, progress)
        found["same_numbers"] = _have_same_numbers(first.manifest, second.manifest)
        found["documents"] = find_shared(first, second)
        if first.layout == second.layout:
            found["batches"] = compare_batches(first, second)
    else:
        raise OptionError(
            f"{second.path} holds {name_kind(second)}, {first.path} {name_kind(first)}",
            hint="name two token stores, or the shards of both",
        )
    found["columns"] = compare_columns(first.columns, second.columns, pairs)
    return {**found, **judge(found)}


def _have_same_numbers(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Return whether a number means the same sequence: the stores of both are alike in order."""
    pairs = zip(first["stores"], second["stores"], strict=False)
    return all(store["blake3"] == other["blake3"] for store, other in pairs)


def _compare_manifests(first: Opened, second: Opened, files: str) -> dict[str, Any]:
    """Return the options, facts and counts that differ.

    Args:
        files: the field that lists the parts or shards; their number is compared.
    """
    facts = []
    for opened in (first, second):
        manifest = opened.manifest
        if has_tokenizer(manifest):
            opened.read_tokenizer_json()  # raises if its checksum is not that of the manifest
        fields = {name: value for name, value in manifest.items() if name not in NO_FACTS}
        if "stores" in manifest:
            fields["stores"] = [entry["blake3"] for entry in manifest["stores"]]
        facts.append({**fields, f"num_{files}": len(manifest[files])})
    return {
        "options": _list_differing(first.manifest["options"], second.manifest["options"]),
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


def _compare_sources(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
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
