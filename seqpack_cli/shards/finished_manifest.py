"""Make the manifest of shards from their receipts; its ledger accounts for every sequence."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from seqpack_cli.batching.options import spell_number
from seqpack_cli.batching.plan import Plan
from seqpack_cli.files.places import Place, spell_place
from seqpack_cli.shards.manifest import COUNTS, OF_STORES, add_up_stores
from seqpack_cli.shards.selection import SelectedStore
from seqpack_cli.tokens.store import TokenStore


def make_manifest(
    source: SelectedStore,
    output: Place,
    head: dict[str, Any],
    plan: Plan,
    receipts: list[dict[str, Any]],
) -> dict[str, Any]:
    """Add up the shards' receipts into the manifest."""
    manifest = {
        **head,
        **_finish_side(source.store, output, head, plan, receipts),
        "bucket_keys": plan.bucket_keys,
        "shards": receipts,
    }
    if plan.decoder is not None:
        of_side = [receipt["decoder"] for receipt in receipts]
        decoder = _finish_side(source.sides[1], output, head["decoder"], plan.decoder, of_side)
        manifest["decoder"] = {**head["decoder"], **decoder}
    return manifest


def _finish_side(
    store: TokenStore,
    output: Place,
    head: dict[str, Any],
    plan: Plan,
    receipts: list[dict[str, Any]],
) -> dict[str, Any]:
    """Return the fields of one side that are known once its shards are made."""
    ledger: dict[str, Any] = {name: sum(receipt[name] for receipt in receipts) for name in COUNTS}
    for place, what in enumerate(("sequences", "tokens")):
        ledger[f"num_dropped_{what}"] = {name: it[place] for name, it in plan.left_out.items()}
    ledger["num_repeated_sequences"], ledger["num_repeated_tokens"] = plan.repeated
    ledger["stores"] = add_up_stores([receipt["stores"] for receipt in receipts])
    check_ledger(ledger, store)
    paths = [{"path": spell_place(each.path, output)} for each in store.folders]
    return {
        **{name: store.manifest[name] for name in OF_STORES},
        "stores": [{**path, **entry} for path, entry in zip(paths, head["stores"], strict=True)],
        "ledger": ledger,
    }


def describe_stores(store: TokenStore, passes: Sequence[Fraction]) -> list[dict[str, Any]]:
    """Return the entries of the stores of a side, without their paths."""
    return [
        {
            "blake3": each.digest,
            "passes": spell_number(number),
            "num_sequences": each.num_sequences,
            "num_tokens": each.num_tokens,
        }
        for each, number in zip(store.folders, passes, strict=True)
    ]


def check_ledger(ledger: dict[str, Any], store: TokenStore) -> None:
    """Raise AssertionError if sequences or tokens are missing, which would be our own bug."""
    for name, in_store in (("sequences", len(store)), ("tokens", store.num_tokens)):
        found = ledger[f"num_{name}"] + sum(ledger[f"num_dropped_{name}"].values())
        expected = in_store + ledger[f"num_repeated_{name}"]
        if found != expected:
            raise AssertionError(f"packed or dropped {found} of {expected} {name}: {ledger}")
