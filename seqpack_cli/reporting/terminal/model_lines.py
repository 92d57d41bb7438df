"""The lines of a verify report about the user's own model."""

from __future__ import annotations

from typing import Any

from seqpack_cli.errors import join_items
from seqpack_cli.reporting.wording import count

JUDGED_IN_16_BITS = ("isolation", "padding", "causal")  # see docs/verify.md, "Limits"


def show_model(model: dict[str, Any] | None) -> list[str]:
    """Return what was checked of a model, the largest errors, and what was not checked and why."""
    if model is None or not model["num_batches"]:
        return []
    outputs = f"outputs per {model['outputs']}" if model["outputs"] else "no outputs"
    judged = f"judged in {join_items(model['judged'])}" if model["judged"] else "not judged"
    lines = [
        f"  model: {outputs}, {model['mode']} mode, {judged}",
        *(_show_check(name, check, model["judged"]) for name, check in model["checks"].items()),
    ]
    lines += [f"  dropout: switched off for the check: {each}" for each in model["dropout"]]
    return lines + [f"  note: model: {note}" for note in model["notes"]]


def _show_check(name: str, check: dict[str, Any], judged: list[str]) -> str:
    mark = _mark(name, check, judged)
    parts = []
    if check["num_batches"]:
        batches = count(check["num_batches"], "batch")
        parts.append(f"{count(check['num_sequences'], 'sequence')} of {batches}")
    for dtype, size in check["errors"].items():
        parts.append(f"{dtype} {float(size['error']):.1e} / {size['limit']:.1e}")
    for reason, num_batches in check["why_not"].items():
        skipped = f"in {count(num_batches, 'batch')}: {reason}"
        parts.append(skipped if mark == "not checked" else f"not checked {skipped}")
    return f"    {name:<10} {mark:<11}  {'; '.join(parts)}".rstrip()


def _mark(name: str, check: dict[str, Any], judged: list[str]) -> str:
    if not check["num_batches"] and not check["errors"]:
        return "not checked"
    sizes = [
        size
        for dtype, size in check["errors"].items()
        if dtype in judged or name in JUDGED_IN_16_BITS
    ]
    if any(float(size["error"]) > size["limit"] for size in sizes):
        return "FAULT"
    return "ok" if sizes else "not judged"
