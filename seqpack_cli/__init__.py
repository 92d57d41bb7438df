"""seqpack: text corpora into shards ready for training, proven on the device that trains.

The library below the commands. Nothing is loaded until it is asked for, torch only by
`ShardDataset` and `verify_shards`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from seqpack_cli.batching.pack_options import PackOptions
    from seqpack_cli.errors import SeqpackError
    from seqpack_cli.shards.pack_run import pack_store
    from seqpack_cli.shards.packed import PackedBatch, pack, unpack
    from seqpack_cli.shards.padded import PaddedBatch, pad, unpad
    from seqpack_cli.shards.shard_set import ShardSet, open_shards
    from seqpack_cli.shards.time_steps import pack_batches
    from seqpack_cli.shards.varlen import VarlenBatch
    from seqpack_cli.tokens.token_store import TokenStore, open_store
    from seqpack_cli.tokens.tokenize_plan import TokenizeOptions
    from seqpack_cli.tokens.tokenize_run import tokenize
    from seqpack_cli.training.shard_dataset import PaddedIds, ShardDataset, VarlenIds
    from seqpack_cli.verification.verify_options import VerifyOptions
    from seqpack_cli.verification.verify_run import verify_shards

_MODULE_OF = {
    "PackOptions": "batching.pack_options",
    "PackedBatch": "shards.packed",
    "PaddedBatch": "shards.padded",
    "PaddedIds": "training.shard_dataset",
    "SeqpackError": "errors",
    "ShardDataset": "training.shard_dataset",
    "ShardSet": "shards.shard_set",
    "TokenStore": "tokens.token_store",
    "TokenizeOptions": "tokens.tokenize_plan",
    "VarlenBatch": "shards.varlen",
    "VarlenIds": "training.shard_dataset",
    "VerifyOptions": "verification.verify_options",
    "open_shards": "shards.shard_set",
    "open_store": "tokens.token_store",
    "pack": "shards.packed",
    "pack_batches": "shards.time_steps",
    "pack_store": "shards.pack_run",
    "pad": "shards.padded",
    "tokenize": "tokens.tokenize_run",
    "unpack": "shards.packed",
    "unpad": "shards.padded",
    "verify_shards": "verification.verify_run",
}

__all__ = [
    "PackOptions",
    "PackedBatch",
    "PaddedBatch",
    "PaddedIds",
    "SeqpackError",
    "ShardDataset",
    "ShardSet",
    "TokenStore",
    "TokenizeOptions",
    "VarlenBatch",
    "VarlenIds",
    "VerifyOptions",
    "open_shards",
    "open_store",
    "pack",
    "pack_batches",
    "pack_store",
    "pad",
    "tokenize",
    "unpack",
    "unpad",
    "verify_shards",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
