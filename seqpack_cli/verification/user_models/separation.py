"""Checks of a batch whose ids are changed: no sequence, and no padding, may move another one."""

from __future__ import annotations

import torch

from seqpack_cli.verification.user_models.leaks import spell_distance, spell_tokens
from seqpack_cli.verification.user_models.located_batch import draw_other_ids
from seqpack_cli.verification.user_models.runner import Outputs, largest_error
from seqpack_cli.verification.user_models.trial import Fault, Trial

ONE_ID = "all tokens of the batch have the same id"
ONE_SEQUENCE = "a batch of one sequence"
MAX_SUSPECTS = 16  # sequences that are changed one by one to find the one that leaked


def check_isolation(trial: Trial) -> None:
    """Change some sequences, and compare the outputs of all others.

    First every second one, then the others, then a random half, then its complement.
    """
    found, numbers = trial.case.found, trial.case.found.numbers
    if draw_other_ids(found, found.cells[numbers[0]], trial.generator) is None:
        trial.skip("isolation", ONE_ID)
        return
    shuffled = [numbers[i] for i in torch.randperm(len(numbers), generator=trial.generator)]
    half = len(numbers) // 2
    groups = [numbers[::2], numbers[1::2], shuffled[:half], shuffled[half:]]
    if len(numbers) == 1:
        groups = [numbers]
    still = set(numbers)
    for group in groups:
        after = run_changed(trial, torch.cat([found.cells[number] for number in group]))
        still -= {number for number in group if _differs(trial, after, number)}
        others = [number for number in numbers if number not in group]
        fault = trial.judge("isolation", trial_pairs(trial, after, others))
        if fault is not None and trial.wants("isolation"):
            _add_leak(trial, fault, group)
            break
    if len(still) == len(numbers) and trial.wants("isolation"):
        trial.add("ignored", None, "outputs do not change when ids are changed")
    elif still and trial.wants("isolation"):
        _note_ignored(trial, sorted(still))
    if len(numbers) == 1:
        trial.skip("isolation", ONE_SEQUENCE)
    else:
        trial.cover("isolation", len(numbers))


def check_padding(trial: Trial) -> None:
    """Change the ids in all padding cells, and compare all outputs."""
    found = trial.case.found
    cells = found.padding()
    if not len(cells):
        trial.skip("padding", "a batch without padding")
        return
    if draw_other_ids(found, cells, trial.generator) is None:
        trial.skip("padding", ONE_ID)
        return
    after = run_changed(trial, cells)
    fault = trial.judge("padding", trial_pairs(trial, after, found.numbers))
    trial.cover("padding", len(found.numbers))
    if fault is not None:
        what = (
            f"outputs of {trial.case.name(fault.number)} change when the ids in padding cells are "
            f"changed{spell_tokens(trial, fault)} ({fault.size})"
        )
        trial.add("padding", fault.number, what)
    error = trial.judge_loss("padding", after)
    if error is not None:
        trial.add("padding", None, f"the loss changes when padding cells are changed ({error})")


def run_changed(trial: Trial, cells: torch.Tensor) -> Outputs:
    """Return the outputs of the batch with other ids in some cells."""
    values = draw_other_ids(trial.case.found, cells, trial.generator)
    assert values is not None  # noqa: S101 - there are several ids
    return trial.runner.run(trial.case.change(cells, values), trial.case.place)


def trial_pairs(
    trial: Trial, after: Outputs, numbers: list[int]
) -> dict[int, tuple[torch.Tensor, torch.Tensor]]:
    """Return the outputs of some sequences before and after a change."""
    return {number: (trial.base.sequences[number], after.sequences[number]) for number in numbers}


def _differs(trial: Trial, after: Outputs, number: int) -> bool:
    return largest_error(trial.base.sequences[number], after.sequences[number]) > 0


def _note_ignored(trial: Trial, numbers: list[int]) -> None:
    """Note sequences that the model may ignore; one of few tokens may happen to give the same."""
    name = trial.case.name(numbers[0])
    others = f" and of {len(numbers) - 1} more" if len(numbers) > 1 else ""
    trial.report.note(
        f"{trial.case.place}: outputs of {name}{others} do not change when its ids are changed"
    )


def _add_leak(trial: Trial, fault: Fault, group: list[int]) -> None:
    """Add a finding that names the sequence that leaked: the nearest one that does alone."""
    victim = fault.number
    suspects = sorted(group, key=lambda number: abs(number - victim))[:MAX_SUSPECTS]
    for changed in suspects:
        after = run_changed(trial, trial.case.found.cells[changed])
        alone = trial.judge("isolation", trial_pairs(trial, after, [victim]))
        if alone is not None:
            what = (
                f"outputs of {trial.case.name(victim)} change when {trial.case.name(changed)} is "
                "changed"
                f"{spell_tokens(trial, alone)}, {spell_distance(trial, alone, changed)} "
                f"({alone.size})"
            )
            trial.add("isolation", victim, what)
            return
    what = (
        f"outputs of {trial.case.name(victim)} change when {len(group)} other sequences are changed"
        f"{spell_tokens(trial, fault)} ({fault.size})"
    )
    trial.add("isolation", victim, what)
