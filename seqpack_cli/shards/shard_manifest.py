"""The receipts of all shards -> their manifest and its ledger."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from seqpack_cli.batching.batch_plan import BatchPlan
from seqpack_cli.tokens.token_store import TokenStore

COUNTS = ("num_batches", "num_sequences", "num_tokens", "num_padding_cells")


def make_manifest(
    store: TokenStore,
    store_path: Path,
    output: Path,
    plan: dict[str, Any],
    batches: BatchPlan,
    receipts: list[dict[str, Any]],
) -> dict[str, Any]:
    """Add up the shards' receipts into the manifest."""
    ledger: dict[str, Any] = {name: sum(receipt[name] for receipt in receipts) for name in COUNTS}
    ledger["num_dropped_sequences"] = batches.num_dropped_sequences
    ledger["num_dropped_tokens"] = batches.num_dropped_tokens
    inherited = ("vocab_size", "max_id", "tokenizer_sha256")
    return {
        **plan,
        **{name: store.manifest[name] for name in inherited},
        "tokens_path": os.path.relpath(store_path.resolve(), output.resolve()),
        "ledger": ledger,
        "shards": receipts,
    }


def check_ledger(ledger: dict[str, Any], store: TokenStore) -> None:
    """Raise if sequences or tokens went astray, which would be our own bug."""
    for name, came_in in (("sequences", len(store)), ("tokens", store.num_tokens)):
        went_out = ledger[f"num_{name}"] + sum(ledger[f"num_dropped_{name}"].values())
        if went_out != came_in:
            raise AssertionError(f"{came_in} {name} came in, {went_out} went out: {ledger}")
