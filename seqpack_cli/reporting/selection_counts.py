"""What was packed of each store and what each split holds, as plain values."""

from __future__ import annotations

from typing import Any

from seqpack_cli.reporting.pair_counts import add_up_sides
from seqpack_cli.reporting.target_counts import measure_share
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.shards.split_set import FIELDS_OF_SIDES, SplitSet
from seqpack_cli.tokens.columns import TARGETS


def describe_stores(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the stores of shards with what was packed of each, and its share of all tokens."""
    packed = manifest["ledger"]["stores"]
    total = sum(counts["num_tokens"] for counts in packed)
    return [
        {
            **entry,
            "num_packed_sequences": counts["num_sequences"],
            "num_packed_tokens": counts["num_tokens"],
            "packed_share": round(counts["num_tokens"] / max(total, 1), 6),
        }
        for entry, counts in zip(manifest["stores"], packed, strict=True)
    ]


def selects_passes(stores: list[dict[str, Any]]) -> bool:
    """Return whether shards have several stores, or one in other than one pass."""
    return len(stores) > 1 or stores[0]["passes"] != "1"


def describe_splits(splits: SplitSet) -> dict[str, Any]:
    """Return the numbers of all splits: those before anything is dropped, and those packed.

    Of pairs the numbers before are the encoder's, and each split has its `decoder` side and `both`.
    """
    manifest = splits.manifest
    total = sum(entry["num_tokens"] for entry in manifest["splits"])
    return {
        "kind": "splits",
        "path": str(splits.path),
        **{
            name: manifest[name] for name in ("split_seed", "split_by", *FIELDS_OF_SIDES, "options")
        },
        "splits": [
            {
                **entry,
                "token_share": round(entry["num_tokens"] / max(total, 1), 6),
                **_describe_packed(splits.splits[entry["name"]]),
            }
            for entry in manifest["splits"]
        ],
    }


def _describe_packed(shards: ShardSet) -> dict[str, Any]:
    found = {
        "path": str(shards.path),
        "layout": shards.layout,
        "num_shards": shards.num_shards,
        "bytes": sum(entry["bytes"] for entry in shards.manifest["shards"]),
        **_describe_side(shards),
    }
    if shards.decoder is not None:
        found["decoder"] = _describe_side(shards.decoder)
        found["both"] = add_up_sides([side.manifest["ledger"] for side in shards.sides])
    return found


def _describe_side(shards: ShardSet) -> dict[str, Any]:
    manifest, ledger = shards.manifest, shards.manifest["ledger"]
    num_cells = ledger["num_tokens"] + ledger["num_padding_cells"]
    return {
        "padding_ratio": round(ledger["num_padding_cells"] / max(num_cells, 1), 6),
        **_describe_targets(shards),
        "stores": describe_stores(manifest),
        "ledger": ledger,
    }


def _describe_targets(shards: ShardSet) -> dict[str, Any]:
    """Return the share of targets; nothing if they are no column."""
    if TARGETS not in shards.columns:
        return {}
    ledger = shards.manifest["ledger"]
    return {"target_share": measure_share(ledger["num_target_tokens"], ledger["num_tokens"])}
