"""Check a user's model on batches: in float64 where it can, and in the dtype that it has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from seqpack_cli.errors import MAX_SEED, ModelError
from seqpack_cli.training.token_sequences import TokenSequence
from seqpack_cli.verification.findings import Finding
from seqpack_cli.verification.user_models.case import Case
from seqpack_cli.verification.user_models.causality import check_causal, check_loss
from seqpack_cli.verification.user_models.located_batch import LocatedBatch
from seqpack_cli.verification.user_models.model_notes import (
    note_batch_norm,
    note_unchecked,
    note_unjudged,
)
from seqpack_cli.verification.user_models.model_report import (
    CHECKS,
    LEVEL,
    CheckReport,
    ModelReport,
)
from seqpack_cli.verification.user_models.model_state import restoring
from seqpack_cli.verification.user_models.output_errors import find_scale, is_sound, largest_error
from seqpack_cli.verification.user_models.rebuilt import check_alone, check_order
from seqpack_cli.verification.user_models.runner import Runner, in_float64
from seqpack_cli.verification.user_models.separation import check_isolation, check_padding
from seqpack_cli.verification.user_models.trial import Trial

# Relative to the largest output of a batch. Faults give 0.01 and more as a rule; an error above the
# limit is compared with that of rounding before it counts.
LIMITS = {
    torch.float64: 1e-9,
    torch.float32: 1e-4,
    torch.float16: 1e-2,
    torch.bfloat16: 5e-2,
}
JUDGED = (torch.float64, torch.float32)
CHANGES = (check_isolation, check_padding)
REBUILDS = (check_alone, check_order)
CAUSAL = (check_causal, check_loss)


@dataclass
class ModelRun:
    """The state of the check of a model."""

    model: Any
    call: Callable[[Any, Any], Any]
    report: ModelReport
    causal: bool
    seed: int
    on_batch: Callable[[], None] = lambda: None
    runners: list[Runner] | None = None  # the first is judged first; None before the first batch


def check_batches(run: ModelRun, cases: Iterable[Case]) -> None:
    """Check a model on batches.

    Raises:
        ModelError: the model raised an exception.
        MachineError: the device is out of memory.
        OptionError: its outputs are neither per token nor per sequence.
    """
    names = [name for name in CHECKS if run.causal or name not in ("causal", "loss")]
    run.report.checks = {name: CheckReport() for name in names}
    with restoring(run.model) as dropout:
        run.report.dropout = dropout
        run.report.mode = "train" if getattr(run.model, "training", False) else "eval"
        for case in cases:
            check_batch(run, case)
            run.on_batch()
        run.report.outputs = run.runners[0].kinds.kind if run.runners is not None else None
    note_unjudged(run.report)
    note_unchecked(run.report)
    note_batch_norm(run.model, run.report)


def check_batch(run: ModelRun, case: Case) -> None:
    """Run all checks on one batch, in each dtype."""
    if run.runners is None:
        run.runners = _make_runners(run, case)
    report = run.report
    report.num_batches += 1
    report.num_sequences += len(case.found.numbers)
    report.num_tokens += sum(map(len, case.found.cells))
    _compare_samples(run, case)
    if not _are_steady(run, run.runners, case):
        return
    seen: set[str] = set()
    for runner in run.runners:
        outputs = runner.run(case.found, case.place)
        generator = torch.Generator().manual_seed((run.seed + case.index) % (MAX_SEED + 1))
        is_first = runner is run.runners[0]
        _check_in(
            Trial(case, runner, report, generator, outputs, seen, counts=is_first),
            causal=run.causal,
        )
    for name, why in run.runners[0].others.left_out.items():
        report.note(f"{name} is not checked: {why}")


def _compare_samples(run: ModelRun, case: Case) -> None:
    """Add a finding where a collate function lays out other ids than those of its sample."""
    for number, sample in enumerate(case.samples or ()):
        if not isinstance(sample, TokenSequence) or not len(case.found.cells[number]):
            continue
        found, expected = case.found.sequence(number).tolist(), sample.ids.tolist()
        if found != expected:
            both = zip(found, expected, strict=False)
            place = next((i for i, (one, other) in enumerate(both) if one != other), None)
            what = f"has {len(found)} ids, its sample has {len(expected)}"
            if place is not None:
                what = f"has id {found[place]} as token {place}, its sample has {expected[place]}"
            what = f"{case.name(number)}, as collate_fn lays it out, {what}"
            run.report.findings.append(Finding(LEVEL, case.source, what, case.index, number))
            return


def _check_in(trial: Trial, *, causal: bool) -> None:
    """Run the checks of one batch in one dtype."""
    _check_properties(trial, causal=causal)
    for check in trial.unjudged:
        counts = trial.report.checks[check].unjudged
        counts[trial.dtype] = counts.get(trial.dtype, 0) + 1


def _check_properties(trial: Trial, *, causal: bool) -> None:
    outputs = [each for each in trial.base.sequences if each.numel()]
    if not all(map(is_sound, outputs)):
        number = next(
            number for number, each in enumerate(trial.base.sequences) if not is_sound(each)
        )
        what = f"outputs of {trial.case.name(number)} are not finite"
        trial.add("finite", number, what)
        if not trial.runner.is_gate:
            trial.report.note(f"{what} in {trial.dtype}: its batch was not checked in it")
        return
    for check in CHANGES:
        check(trial)
    for check in CAUSAL if causal else ():
        check(trial)
    for check in REBUILDS:
        try:
            check(trial)
        except ModelError as error:
            # BatchNorm, say, refuses one token; a model with findings need not compute all batches
            if not trial.report.findings:
                raise
            trial.skip(check.__name__.removeprefix("check_"), error.message.partition(": ")[2])


def _make_runners(run: ModelRun, case: Case) -> list[Runner]:
    """Return the runners in float64, if possible, and in the model's own dtype."""
    dtype = find_dtype(run.model)
    own = Runner(run.model, run.call, dtype, LIMITS[dtype], is_gate=dtype in JUDGED)
    tried = [(case.place, case.found)]
    if case.can_rebuild:
        for number in _choose_extremes(case.found):
            place = f"{case.place}: {case.name(number)} alone"
            tried.append((place, case.rebuild([number]).found))
    own.learn(tried)
    runners = [own]
    if dtype is not torch.float64:
        exact, why = in_float64(own, case.found, LIMITS[torch.float64])
        if exact is not None:
            runners.insert(0, exact)
        else:
            run.report.note(f"not computed in float64: {why}")
    run.report.judged = [
        str(runner.dtype).removeprefix("torch.") for runner in runners if runner.is_gate
    ]
    return runners


def _choose_extremes(found: LocatedBatch) -> list[int]:
    """Return the longest sequence, and the shortest of several tokens if it has another length."""
    lengths = {number: len(found.cells[number]) for number in found.numbers}
    longest = max(lengths, key=lambda number: lengths[number])
    several = [number for number in lengths if 1 < lengths[number] < lengths[longest]]
    return [longest, *sorted(several, key=lambda number: lengths[number])[:1]]


def _are_steady(run: ModelRun, runners: list[Runner], case: Case) -> bool:
    """Return whether two runs of a batch give the same; if not, the model is put in eval mode."""
    if (found := _compare_runs(runners, case)) is None:
        return True
    if getattr(run.model, "training", False) and isinstance(run.model, nn.Module):
        for runner in runners:
            runner.model.eval()
        run.report.mode = "eval"
        run.report.note(
            f"outputs are random in train mode, two runs of {case.place} {found}: checked in eval "
            "mode"
        )
        if (found := _compare_runs(runners, case)) is None:
            return True
    what = (
        f"outputs are random, two runs {found}, so nothing else can be checked: make the model "
        "without noise, and without a state that it keeps from one batch to the next"
    )
    run.report.findings.append(Finding(LEVEL, case.source, what, case.index))
    return False


def _compare_runs(runners: list[Runner], case: Case) -> str | None:
    """Return by how much two runs of a batch differ; None if that is below the limit."""
    for runner in runners:
        outputs = [runner.run(case.found, case.place) for _ in range(2)]
        first, second = (each.sequences for each in outputs)
        if not all(is_sound(each) for each in first if each.numel()):
            continue  # which is reported as such
        error = max(map(largest_error, first, second)) / find_scale(first)
        if not error <= runner.limit:
            return f"differ by {error:.2g} (limit {runner.limit:.2g})"
        runner.others.leave_out_random([each.others for each in outputs], runner.limit)
    return None


def find_dtype(model: Any) -> torch.dtype:
    """Return the dtype of a model's first floating-point weight; float32 if it has none."""
    weights: Iterator[torch.Tensor] = iter(model.parameters())
    return next((each.dtype for each in weights if each.is_floating_point()), torch.float32)
