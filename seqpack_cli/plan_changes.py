"""An earlier plan and a new one -> the values that differ, each named by its place."""

from __future__ import annotations

from typing import Any

from seqpack_cli.errors import quote


def find_changes(plan: Any, found: Any, place: str = "") -> list[str]:
    """List the values of the plan that an earlier plan or manifest has otherwise."""
    if isinstance(plan, dict) and isinstance(found, dict):
        return [
            change
            for key, value in plan.items()
            for change in find_changes(value, found.get(key), f"{place}.{key}".lstrip("."))
        ]
    if isinstance(plan, list) and isinstance(found, list) and len(plan) == len(found):
        return [
            change
            for index, (new, old) in enumerate(zip(plan, found, strict=True))
            for change in find_changes(new, old, f"{place}[{_name_item(new, old) or index}]")
        ]
    if isinstance(plan, list) and isinstance(found, list):
        return [f"{place} were {len(found)}, are {len(plan)}"]
    return [] if plan == found else [f"{place} was {quote(found)}, is {quote(plan)}"]


def _name_item(new: Any, old: Any) -> object:
    """Give the path that both have: of a thousand sources nobody knows the number."""
    both = isinstance(new, dict) and isinstance(old, dict) and new.get("path") == old.get("path")
    return new.get("path") if both else None
