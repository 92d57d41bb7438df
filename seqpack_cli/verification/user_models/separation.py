"""Checks of a batch whose ids are changed: no sequence, and no padding, may move another one."""

from __future__ import annotations

import torch

from seqpack_cli.verification.user_models.leaks import spell_distance, spell_tokens
from seqpack_cli.verification.user_models.located_batch import draw_other_ids
from seqpack_cli.verification.user_models.output_errors import largest_error
from seqpack_cli.verification.user_models.runner import Outputs, Parts
from seqpack_cli.verification.user_models.trial import Fault, Trial

ONE_ID = "all tokens of the batch have the same id"
ONE_SEQUENCE = "a batch of one sequence"
MORE_DRAWS = 4  # of ids, for sequences whose outputs did not move
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
    moved: set[int] = set()
    for group in groups:
        after = run_changed(trial, torch.cat([found.cells[number] for number in group]))
        moved |= {number for number in group if _differs(trial, after, number)}
        others = [number for number in numbers if number not in group]
        fault = trial.judge("isolation", trial_pairs(trial, after, others))
        if fault is not None and trial.wants("isolation"):
            _add_leak(trial, fault, group)
            break
    else:
        _check_moved(trial, moved)
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
            f"{fault.outputs} of {trial.case.name(fault.number)} change when the ids in padding "
            f"cells are changed{spell_tokens(trial, fault)} ({fault.size})"
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


def trial_pairs(trial: Trial, after: Outputs, numbers: list[int]) -> dict[int, tuple[Parts, Parts]]:
    """Return the outputs of some sequences before and after a change."""
    return {number: (trial.base.parts(number), after.parts(number)) for number in numbers}


def _check_moved(trial: Trial, moved: set[int]) -> None:
    """Add a finding if outputs of a sequence stay as they are whatever its ids are."""
    found = trial.case.found
    for _ in range(MORE_DRAWS):
        still = [number for number in found.numbers if number not in moved]
        if not still:
            return
        after = run_changed(trial, torch.cat([found.cells[number] for number in still]))
        moved |= {number for number in still if _differs(trial, after, number)}
    still = [number for number in found.numbers if number not in moved]
    if not moved:
        trial.add("ignored", None, "outputs do not change when ids are changed")
    elif still and not _are_whole(trial.base):
        what = f"outputs of {trial.case.name(still[0])} do not change when its ids are changed"
        others = f", nor do those of {len(still) - 1} others" if len(still) > 1 else ""
        trial.add("ignored", still[0], what + others)


def _are_whole(outputs: Outputs) -> bool:
    """Return whether all outputs are whole numbers, such as classes, which may stay by chance."""
    return all(bool((each == each.round()).all()) for each in outputs.sequences)


def _differs(trial: Trial, after: Outputs, number: int) -> bool:
    return largest_error(trial.base.sequences[number], after.sequences[number]) > 0


def _add_leak(trial: Trial, fault: Fault, group: list[int]) -> None:
    """Add a finding that names the sequence that leaked: the nearest one that does alone."""
    victim = fault.number
    suspects = sorted(group, key=lambda number: abs(number - victim))[:MAX_SUSPECTS]
    for changed in suspects:
        after = run_changed(trial, trial.case.found.cells[changed])
        alone = trial.judge("isolation", trial_pairs(trial, after, [victim]))
        if alone is not None:
            what = (
                f"{alone.outputs} of {trial.case.name(victim)} change when "
                f"{trial.case.name(changed)} is "
                "changed"
                f"{spell_tokens(trial, alone)}, {spell_distance(trial, alone, changed)} "
                f"({alone.size})"
            )
            trial.add("isolation", victim, what)
            return
    what = (
        f"{fault.outputs} of {trial.case.name(victim)} change when {len(group)} other sequences "
        "are changed"
        f"{spell_tokens(trial, fault)} ({fault.size})"
    )
    trial.add("isolation", victim, what)
