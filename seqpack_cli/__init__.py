"""seqpack: text corpora into shards ready for training, proven on the device that trains.

The commands as functions of their names, and what a training loop needs. A module is imported when
one of its names is first used; only what trains and `verify` import torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"  # which all workers of a run must have

if TYPE_CHECKING:
    from seqpack_cli.batching.options import PackOptions, ResolvedOptions
    from seqpack_cli.corpus.options import DocumentOptions, FileOptions
    from seqpack_cli.errors import (
        DataError,
        FolderError,
        MachineError,
        ModelError,
        OptionError,
        SeqpackError,
    )
    from seqpack_cli.files.objects import Url
    from seqpack_cli.reporting.contents import inspect
    from seqpack_cli.reporting.differences import diff
    from seqpack_cli.reporting.plans import plan
    from seqpack_cli.runs.workers import Executor, Progress, WorkerDiedError
    from seqpack_cli.shards.export import export
    from seqpack_cli.shards.layouts import Batch
    from seqpack_cli.shards.pack import pack
    from seqpack_cli.shards.packed import PackedBatch, pack_sequence, unpack_sequence
    from seqpack_cli.shards.padded import PaddedBatch, pad_sequence, unpad_sequence
    from seqpack_cli.shards.shard import Shard
    from seqpack_cli.shards.shard_set import ShardSet, open_shards
    from seqpack_cli.shards.shared_rows import StreamsBatch, VarlenBatch
    from seqpack_cli.shards.unpack import unpack
    from seqpack_cli.tokens.columns import Column
    from seqpack_cli.tokens.import_ids import import_store
    from seqpack_cli.tokens.options import (
        ImportOptions,
        TargetOptions,
        TokenizeOptions,
        TrainTokenizerOptions,
    )
    from seqpack_cli.tokens.store import Origin, StoreFolder, TokenStore, open_store
    from seqpack_cli.tokens.text_values import TextValues
    from seqpack_cli.tokens.tokenize_run import tokenize
    from seqpack_cli.tokens.train_tokenizer import train_tokenizer
    from seqpack_cli.training.batch_tensors import (
        PackedTensors,
        PaddedTensors,
        StreamTensors,
        VarlenTensors,
    )
    from seqpack_cli.training.collate import collate_packed, collate_padded, collate_varlen
    from seqpack_cli.training.dealing import SamplerOptions
    from seqpack_cli.training.epoch_plan import EpochBatches, EpochPlan, StreamSlice
    from seqpack_cli.training.epoch_sampler import EpochSampler
    from seqpack_cli.training.pair_tensors import PairTensors
    from seqpack_cli.training.shard_dataset import ShardDataset
    from seqpack_cli.training.store_batches import StoreBatches
    from seqpack_cli.training.store_dataset import FILLER, Piece, StoreDataset
    from seqpack_cli.training.token_sequences import TokenSequence, TokenSequences
    from seqpack_cli.training.tracked_loader import TrackedLoader
    from seqpack_cli.verification.findings import ErrorSize, Finding
    from seqpack_cli.verification.options import ModelOptions, VerifyOptions
    from seqpack_cli.verification.report import (
        Control,
        DocumentsReport,
        LayoutSpeed,
        LevelReport,
        PairsReport,
        PlanReport,
        Report,
        SplitsReport,
    )
    from seqpack_cli.verification.user_models.model_report import CheckReport, ModelReport
    from seqpack_cli.verification.user_models.verify_model import verify_model
    from seqpack_cli.verification.verify_run import verify

_MODULE_OF = {
    "Batch": "shards.layouts",
    "CheckReport": "verification.user_models.model_report",
    "Column": "tokens.columns",
    "Control": "verification.report",
    "DataError": "errors",
    "DocumentOptions": "corpus.options",
    "DocumentsReport": "verification.report",
    "EpochBatches": "training.epoch_plan",
    "EpochPlan": "training.epoch_plan",
    "EpochSampler": "training.epoch_sampler",
    "ErrorSize": "verification.findings",
    "Executor": "runs.workers",
    "FILLER": "training.store_dataset",
    "FileOptions": "corpus.options",
    "Finding": "verification.findings",
    "FolderError": "errors",
    "ImportOptions": "tokens.options",
    "LayoutSpeed": "verification.report",
    "LevelReport": "verification.report",
    "MachineError": "errors",
    "ModelError": "errors",
    "ModelOptions": "verification.options",
    "ModelReport": "verification.user_models.model_report",
    "OptionError": "errors",
    "Origin": "tokens.store",
    "PackOptions": "batching.options",
    "ResolvedOptions": "batching.options",
    "PackedBatch": "shards.packed",
    "PackedTensors": "training.batch_tensors",
    "PaddedBatch": "shards.padded",
    "PaddedTensors": "training.batch_tensors",
    "PairTensors": "training.pair_tensors",
    "PairsReport": "verification.report",
    "Piece": "training.store_dataset",
    "PlanReport": "verification.report",
    "Progress": "runs.workers",
    "Report": "verification.report",
    "SamplerOptions": "training.dealing",
    "SeqpackError": "errors",
    "Shard": "shards.shard",
    "ShardDataset": "training.shard_dataset",
    "ShardSet": "shards.shard_set",
    "SplitsReport": "verification.report",
    "StoreBatches": "training.store_batches",
    "StoreFolder": "tokens.store",
    "StoreDataset": "training.store_dataset",
    "StreamSlice": "training.epoch_plan",
    "StreamTensors": "training.batch_tensors",
    "StreamsBatch": "shards.shared_rows",
    "TextValues": "tokens.text_values",
    "TokenSequence": "training.token_sequences",
    "TokenSequences": "training.token_sequences",
    "TokenStore": "tokens.store",
    "TargetOptions": "tokens.options",
    "TokenizeOptions": "tokens.options",
    "TrackedLoader": "training.tracked_loader",
    "TrainTokenizerOptions": "tokens.options",
    "Url": "files.objects",
    "VarlenBatch": "shards.shared_rows",
    "VarlenTensors": "training.batch_tensors",
    "VerifyOptions": "verification.options",
    "WorkerDiedError": "runs.workers",
    "collate_packed": "training.collate",
    "collate_padded": "training.collate",
    "collate_varlen": "training.collate",
    "diff": "reporting.differences",
    "export": "shards.export",
    "import_store": "tokens.import_ids",
    "inspect": "reporting.contents",
    "open_shards": "shards.shard_set",
    "open_store": "tokens.store",
    "pack": "shards.pack",
    "pack_sequence": "shards.packed",
    "pad_sequence": "shards.padded",
    "plan": "reporting.plans",
    "tokenize": "tokens.tokenize_run",
    "train_tokenizer": "tokens.train_tokenizer",
    "unpack": "shards.unpack",
    "unpack_sequence": "shards.packed",
    "unpad_sequence": "shards.padded",
    "verify": "verification.verify_run",
    "verify_model": "verification.user_models.verify_model",
}

__all__ = [
    "FILLER",
    "Batch",
    "CheckReport",
    "Column",
    "Control",
    "DataError",
    "DocumentOptions",
    "DocumentsReport",
    "EpochBatches",
    "EpochPlan",
    "EpochSampler",
    "ErrorSize",
    "Executor",
    "FileOptions",
    "Finding",
    "FolderError",
    "ImportOptions",
    "LayoutSpeed",
    "LevelReport",
    "MachineError",
    "ModelError",
    "ModelOptions",
    "ModelReport",
    "OptionError",
    "Origin",
    "PackOptions",
    "PackedBatch",
    "PackedTensors",
    "PaddedBatch",
    "PaddedTensors",
    "PairTensors",
    "PairsReport",
    "Piece",
    "PlanReport",
    "Progress",
    "Report",
    "ResolvedOptions",
    "SamplerOptions",
    "SeqpackError",
    "Shard",
    "ShardDataset",
    "ShardSet",
    "SplitsReport",
    "StoreBatches",
    "StoreDataset",
    "StoreFolder",
    "StreamSlice",
    "StreamTensors",
    "StreamsBatch",
    "TargetOptions",
    "TextValues",
    "TokenSequence",
    "TokenSequences",
    "TokenStore",
    "TokenizeOptions",
    "TrackedLoader",
    "TrainTokenizerOptions",
    "Url",
    "VarlenBatch",
    "VarlenTensors",
    "VerifyOptions",
    "WorkerDiedError",
    "collate_packed",
    "collate_padded",
    "collate_varlen",
    "diff",
    "export",
    "import_store",
    "inspect",
    "open_shards",
    "open_store",
    "pack",
    "pack_sequence",
    "pad_sequence",
    "plan",
    "tokenize",
    "train_tokenizer",
    "unpack",
    "unpack_sequence",
    "unpad_sequence",
    "verify",
    "verify_model",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
