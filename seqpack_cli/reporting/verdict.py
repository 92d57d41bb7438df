"""One line about how two stores, or two shard sets, differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from seqpack_cli.batching.options import DECODER, ENCODER
from seqpack_cli.reporting.wording import count


def judge(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return whether both sides are the same, and the verdict in words."""
    is_other = _has_other_sequences(found) or found["same_arrays"] is False
    is_identical = not is_other and not _name_others(found)
    return {"identical": is_identical, "verdict": "identical" if is_identical else _judge(found)}


def judge_kinds(found: Mapping[str, Any], sides: Sequence[str | None]) -> dict[str, Any]:
    """Return the judgement where only one shard set may hold pairs.

    Args:
        found: with the judgement of the sides that were compared.
        sides: which side of pairs was compared, of each shard set; None for single sequences.
    """
    if sides[0] == sides[1]:
        return {name: found[name] for name in ("identical", "verdict")}
    held = [
        f"{name} holds {'single sequences' if side is None else 'pairs'}"
        for name, side in zip("AB", sides, strict=True)
    ]
    verdict = f"{', '.join(held)}; the encoder's side compared: {found['verdict']}"
    return {"identical": False, "verdict": verdict}


def judge_pairs(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return whether both sides of pairs, and which belong together, are the same."""
    sides = {ENCODER: found, DECODER: found["decoder"]}
    num_differing = found["pairing"]["num_differing"] if found["pairing"] else 0
    if all(side["identical"] for side in sides.values()) and not num_differing:
        return {"identical": True, "verdict": "identical"}
    words = [f"{name}: {side['verdict']}" for name, side in sides.items()]
    if num_differing:
        words.append(f"{count(num_differing, 'pair')} put together differently")
    return {"identical": False, "verdict": "; ".join(words)}


def _has_other_sequences(found: Mapping[str, Any]) -> bool:
    sequences = found["sequences"]
    return any(sequences[name] for name in ("num_differing", "num_only_in_a", "num_only_in_b"))


def _name_others(found: Mapping[str, Any]) -> list[str]:
    """Return the names of what differs, except sequences."""
    names = {"options": "options", "facts": "properties", "ledger": "counts"}
    others = [word for name, word in names.items() if found[name]]
    sources = found["sources"]
    if sources is not None and (
        not sources["same_order"]
        or any(sources[name] for name in ("only_in_a", "only_in_b", "changed"))
    ):
        others.append("sources")
    if found["documents"].get("num_differing"):
        others.append("documents")
    columns = found["columns"]
    if columns is not None and (
        not columns["same_order"]
        or any(columns[name] for name in ("only_in_a", "only_in_b", "changed"))
        or any(column["num_differing"] for column in columns["values"])
    ):
        others.append("columns")
    return others


def _judge(found: Mapping[str, Any]) -> str:
    """Return one line about how the two differ."""
    sequences = found["sequences"]
    if not _has_other_sequences(found):
        others = _name_others(found)
        if len(others) > 1:
            others = [", ".join(others[:-1]) + f" and {others[-1]}"]
        return "; ".join([*(f"different {words}" for words in others), _judge_batches(found)])
    num_compared, num_differing = sequences["num_compared"], sequences["num_differing"]
    if num_differing:
        verdict = (
            f"{num_differing:,} of {count(num_compared, 'sequence')} "
            f"{'differs' if num_differing == 1 else 'differ'}, "
            f"the first is {sequences['first']['sequence']:,}"
        )
    elif num_compared:
        verdict = f"{count(num_compared, 'sequence')} identical"
        if "columns" in _name_others(found):
            verdict = f"different columns; {count(num_compared, 'sequence')} with identical ids"
    else:
        verdict = "no sequence in both"
    for side in "ab":
        if num_only := sequences[f"num_only_in_{side}"]:
            verdict += f", {num_only:,} only in {side.upper()}"
    num_shared = found["documents"]["num_shared_in_b"]
    if found["compared"] != "shards" or num_differing < num_compared or num_shared is None:
        return verdict
    shared = count(num_shared, "document") if num_shared else "no document"
    return f"{verdict}; {shared} of B {'is' if num_shared < 2 else 'are'} in A"


def _judge_batches(found: Mapping[str, Any]) -> str:
    """Return whether equal sequences are in equal batches, in words."""
    batches = found["batches"]
    if batches is None:
        return "same sequences"
    if batches["first"] is None:
        is_as_said = found["same_arrays"] or _name_others(found)
        return "same sequences in the same batches" + (
            "" if is_as_said else ", laid out differently"
        )
    if batches["num_a"] == batches["num_b"] == batches["num_same_anywhere"]:
        return "same sequences in the same batches, in a different order"
    return "same sequences in different batches"
