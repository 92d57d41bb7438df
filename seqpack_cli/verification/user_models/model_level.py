"""Level `model`: the user's own model computes a sample of the batches."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from seqpack_cli.batching.plan import BatchTable
from seqpack_cli.errors import ModelError
from seqpack_cli.training.collate import OF_LAYOUT
from seqpack_cli.verification.device import naming_memory
from seqpack_cli.verification.levels import Verification
from seqpack_cli.verification.options import MODEL
from seqpack_cli.verification.report import LevelReport
from seqpack_cli.verification.user_models.batch_kinds import KINDS, bind_collate, call_by_kind
from seqpack_cli.verification.user_models.batch_sources import CaseMaker
from seqpack_cli.verification.user_models.case import Case
from seqpack_cli.verification.user_models.check_model import ModelRun, check_batches
from seqpack_cli.verification.user_models.load_function import load_function, make_model
from seqpack_cli.verification.user_models.model_report import ModelReport
from seqpack_cli.verification.user_models.runner import HINT


def verify_user_model(run: Verification, batches: BatchTable) -> BatchTable:
    """Run level `model` over a sample of the batches.

    Raises:
        OptionError: the function of --model or --call does not do what it should.
        ModelError: the model raised an exception.
        MachineError: the device is out of memory.
    """
    options = run.options
    assert options.model is not None  # noqa: S101 - the level needs it
    chosen = run.sample(batches)
    run.progress.on_total(len(chosen))
    with run.level(MODEL) as level:
        if not chosen:
            return batches
        call = call_by_kind if options.call is None else load_function("--call", options.call)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(options.seed)
            vocab_size = int(run.shards.manifest["vocab_size"])
            model = make_model(options.model, vocab_size, run.device, run.dtype)
        report = ModelReport(options.model, options.dtype, call=options.call)
        model_run = ModelRun(model, call, report, options.causal, options.seed)
        model_run.on_batch = lambda: run.progress.on_advance(1)
        place = f"--model {options.model}"
        with _naming_outputs(place), naming_memory(place, HINT):
            check_batches(model_run, _iter_cases(run, chosen))
        _add_to_report(run, level, report)
    return run.keep_faultless(batches)


@contextmanager
def _naming_outputs(place: str) -> Iterator[None]:
    """Name the model where its outputs are of a kind that torch cannot compare.

    Otherwise the exit code would be that of a fault.
    """
    try:
        yield
    except (RuntimeError, TypeError) as error:
        raise ModelError(
            f"{place}: its outputs cannot be compared", traceback=traceback.format_exc()
        ) from error


def _iter_cases(run: Verification, chosen: list[int]) -> Iterator[Case]:
    tensors, _ = OF_LAYOUT[run.shards.layout]
    labels = KINDS[tensors].labels
    collate = bind_collate(tensors, run.shards.manifest, labels)
    maker = CaseMaker("", run.device, collate=collate)
    for index in chosen:
        name, batch = run.read(index)
        yield maker.make(index, tensors.from_batch(batch, labels), source=name)


def _add_to_report(run: Verification, level: LevelReport, report: ModelReport) -> None:
    level.num_batches, level.num_tokens = report.num_batches, report.num_tokens
    for name, check in report.checks.items():
        for dtype, size in check.errors.items():
            level.note_error(f"{name} ({dtype})", size.error, size.limit)
    run.report.model = report
    run.report.is_gate = bool(report.judged)
    for finding in report.findings:
        run.add(finding)
