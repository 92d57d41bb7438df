"""The special tokens that are spelled out in the texts of one store, or of several together."""

from __future__ import annotations

from typing import Any

from seqpack_cli.reporting.opened import list_store_names, spell_path, spell_source
from seqpack_cli.tokens.special_tokens import MAX_PLACES, read_spelled_tokens
from seqpack_cli.tokens.store import TokenStore


def describe_spelled(store: TokenStore | None) -> dict[str, Any]:
    """Return the number of such tokens and, token by token, their counts and first records.

    Each is None without the store. The source of a record begins with the name of its store if
    there are several.

    Raises:
        FolderError: the list of a store is damaged.
    """
    if store is None:
        return {"num_tokens": None, "tokens": None}
    number = sum(each.manifest["ledger"]["num_special_tokens_in_text"] for each in store.folders)
    found: dict[str, dict[str, Any]] = {}
    names: list[str | None] = [*list_store_names(store)] or [None]
    for each, name in zip(store.folders, names, strict=True):
        for entry in read_spelled_tokens(each.path, each.manifest):
            token = entry["token"]
            both = found.setdefault(token, {"token": token, "count": 0, "places": []})
            both["count"] += entry["count"]
            for place in entry["places"][: MAX_PLACES - len(both["places"])]:
                source = spell_source(spell_path(place["source"]), name)
                both["places"].append({"source": source, "record": place["record"]})
    return {"num_tokens": number, "tokens": [found[token] for token in sorted(found)]}
