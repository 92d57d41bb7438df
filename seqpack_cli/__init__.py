"""seqpack: text corpora into shards ready for training, proven on the device that trains.

The library below the commands. Nothing is loaded until it is asked for, torch only by what trains
and by `verify_shards`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from seqpack_cli.runs.version import __version__ as __version__

if TYPE_CHECKING:
    from seqpack_cli.batching.pack_options import PackOptions
    from seqpack_cli.errors import SeqpackError
    from seqpack_cli.runs.progress import Progress
    from seqpack_cli.runs.workers import Executor
    from seqpack_cli.shards.pack_and_pad import pack, pad, unpack, unpad
    from seqpack_cli.shards.pack_run import pack_store
    from seqpack_cli.shards.packed import PackedBatch
    from seqpack_cli.shards.padded import PaddedBatch
    from seqpack_cli.shards.shard_set import ShardSet, open_shards
    from seqpack_cli.shards.varlen import VarlenBatch
    from seqpack_cli.tokens.token_store import TokenStore, open_store
    from seqpack_cli.tokens.tokenize_options import TokenizeOptions
    from seqpack_cli.tokens.tokenize_run import tokenize
    from seqpack_cli.tokens.train_tokenizer import TrainTokenizerOptions, train_tokenizer
    from seqpack_cli.training.batch_tensors import PackedTensors, PaddedTensors, VarlenTensors
    from seqpack_cli.training.collate import collate_packed, collate_padded, collate_varlen
    from seqpack_cli.training.dealing import SamplerOptions
    from seqpack_cli.training.epoch_sampler import EpochSampler
    from seqpack_cli.training.shard_dataset import ShardDataset
    from seqpack_cli.training.store_batches import StoreBatches
    from seqpack_cli.training.store_dataset import StoreDataset
    from seqpack_cli.verification.verify_options import VerifyOptions
    from seqpack_cli.verification.verify_run import verify_shards

_MODULE_OF = {
    "EpochSampler": "training.epoch_sampler",
    "Executor": "runs.workers",
    "PackOptions": "batching.pack_options",
    "PackedBatch": "shards.packed",
    "PackedTensors": "training.batch_tensors",
    "PaddedBatch": "shards.padded",
    "PaddedTensors": "training.batch_tensors",
    "Progress": "runs.progress",
    "SamplerOptions": "training.dealing",
    "SeqpackError": "errors",
    "ShardDataset": "training.shard_dataset",
    "ShardSet": "shards.shard_set",
    "StoreBatches": "training.store_batches",
    "StoreDataset": "training.store_dataset",
    "TokenStore": "tokens.token_store",
    "TokenizeOptions": "tokens.tokenize_options",
    "TrainTokenizerOptions": "tokens.train_tokenizer",
    "VarlenBatch": "shards.varlen",
    "VarlenTensors": "training.batch_tensors",
    "VerifyOptions": "verification.verify_options",
    "collate_packed": "training.collate",
    "collate_padded": "training.collate",
    "collate_varlen": "training.collate",
    "open_shards": "shards.shard_set",
    "open_store": "tokens.token_store",
    "pack": "shards.pack_and_pad",
    "pack_store": "shards.pack_run",
    "pad": "shards.pack_and_pad",
    "tokenize": "tokens.tokenize_run",
    "train_tokenizer": "tokens.train_tokenizer",
    "unpack": "shards.pack_and_pad",
    "unpad": "shards.pack_and_pad",
    "verify_shards": "verification.verify_run",
}

__all__ = [
    "EpochSampler",
    "Executor",
    "PackOptions",
    "PackedBatch",
    "PackedTensors",
    "PaddedBatch",
    "PaddedTensors",
    "Progress",
    "SamplerOptions",
    "SeqpackError",
    "ShardDataset",
    "ShardSet",
    "StoreBatches",
    "StoreDataset",
    "TokenStore",
    "TokenizeOptions",
    "TrainTokenizerOptions",
    "VarlenBatch",
    "VarlenTensors",
    "VerifyOptions",
    "collate_packed",
    "collate_padded",
    "collate_varlen",
    "open_shards",
    "open_store",
    "pack",
    "pack_store",
    "pad",
    "tokenize",
    "train_tokenizer",
    "unpack",
    "unpad",
    "verify_shards",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
