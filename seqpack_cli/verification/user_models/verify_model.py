"""`verify_model`: prove a model and a collate function, ours or not, on sampled batches."""

from __future__ import annotations

from typing import Any

import torch

from seqpack_cli.verification.device import steady_arithmetic
from seqpack_cli.verification.options import ModelOptions
from seqpack_cli.verification.user_models.batch_kinds import Call, Collate, call_by_kind
from seqpack_cli.verification.user_models.batch_sources import CaseMaker, iter_cases
from seqpack_cli.verification.user_models.check_model import (
    LIMITS,
    ModelRun,
    check_batches,
    find_dtype,
)
from seqpack_cli.verification.user_models.located_batch import Locate
from seqpack_cli.verification.user_models.model_report import ModelReport


def verify_model(
    batches: Any,
    model: Any,
    *,
    collate_fn: Collate | None = None,
    call: Call | None = None,
    locate: Locate | None = None,
    options: ModelOptions | None = None,
) -> ModelReport:
    """Check that a model computes each sequence of a batch as if it were alone.

    The model is run on its own device, in its dtype and, where possible, as a copy in float64.
    Weights, buffers, training mode, attributes that it sets anew and random generators are as
    before at the end.

    Args:
        batches: a ShardDataset; a DataLoader; a data set of samples (anything with `[i]` and
            `len`), with collate_fn; or any other iterable of batches.
        model: an nn.Module, or anything that can be called and has `parameters()`.
        collate_fn: makes a batch of a list of samples, one sequence of each. That of a ShardDataset
            or a DataLoader is found by itself. For an iterable of batches it gets the ids of each
            sequence, int64[length], or TokenSequences if the batches are ours; without it, what
            needs other batches is reported as not checked.
        call: `call(model, batch)` returns the outputs. None calls it as is usual for our batch
            classes: with the PackedSequence, with ids and mask, or with the keyword arguments of
            transformers.
        locate: `locate(batch)` returns `(ids, cells)`: the tensor of ids in the batch and, for each
            sequence, the places of its tokens in `ids.flatten()`. None does so for our classes.

    Returns:
        What was checked, the largest errors, and what was found; `passed` if there are no findings.

    Raises:
        ModelError: the model raised an exception.
        MachineError: the device is out of memory.
        OptionError: the outputs are neither per token nor per sequence.
        ValueError: there is no batch, or locate is missing for one of an unknown class.
    """
    options = options or ModelOptions()
    dtype = check_model(model)
    report = ModelReport(type(model).__name__, str(dtype).removeprefix("torch."))
    device = next((each.device for each in model.parameters()), torch.device("cpu"))
    run = ModelRun(model, call or call_by_kind, report, options.causal, options.seed)
    maker = CaseMaker(type(batches).__name__, device, locate, collate_fn)
    with steady_arithmetic(device, hidden_size=None):
        check_batches(run, iter_cases(batches, maker, options))
    if not report.num_batches:
        raise ValueError("there is no batch to check")
    return report


def check_model(model: Any) -> torch.dtype:
    """Return the dtype of a model.

    Raises:
        TypeError: it cannot be called, or has no parameters().
        ValueError: its dtype has no limit.
    """
    if not callable(model) or isinstance(model, type) or not hasattr(model, "parameters"):
        raise TypeError(f"model is {type(model).__name__}, expected an nn.Module")
    dtype = find_dtype(model)
    if dtype not in LIMITS:
        raise ValueError(f"model has weights of {dtype}, expected {', '.join(map(str, LIMITS))}")
    return dtype
