"""Notes on what a check of a model did not cover, and on what explains its findings."""

from __future__ import annotations

from typing import Any

from torch import nn

from seqpack_cli.errors import join_items
from seqpack_cli.verification.user_models.model_report import ModelReport


def note_unjudged(report: ModelReport) -> None:
    """Say plainly where rounding errors left nothing to judge."""
    for name, check in report.checks.items():
        for dtype, num_batches in check.unjudged.items():
            batches = f"{num_batches} of {report.num_batches} batches"
            report.note(
                f"not judged: {name} in {batches} in {dtype}: some outputs move by more when "
                "weights change in their last places"
            )


def note_unchecked(report: ModelReport) -> None:
    """Name the checks of rebuilt batches that did not run, since most faults are found by them."""
    for name in (each for each in ("alone", "order") if each in report.unchecked):
        reasons = report.checks[name].why_not
        report.note(f"{name} was not checked: {join_items(reasons) or 'its batches failed before'}")


def note_batch_norm(model: Any, report: ModelReport) -> None:
    """Name batch normalization in train mode, which explains leaks."""
    if report.passed or not isinstance(model, nn.Module):
        return
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.training:
            report.note(
                f"{name} ({type(module).__name__}) is in train mode: it computes statistics over "
                "all cells, so that each sequence depends on the others and on padding"
            )
