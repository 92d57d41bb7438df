"""Checks against batches laid out anew: each sequence alone, and the same ones in another order."""

from __future__ import annotations

import torch

from seqpack_cli.verification.user_models.case import NO_COLLATE, Rebuilt
from seqpack_cli.verification.user_models.leaks import spell_tokens
from seqpack_cli.verification.user_models.output_errors import largest_error
from seqpack_cli.verification.user_models.runner import Parts
from seqpack_cli.verification.user_models.separation import ONE_SEQUENCE
from seqpack_cli.verification.user_models.trial import Fault, Trial

MAX_ALONE = 16  # sequences of a batch that are run alone


def check_alone(trial: Trial) -> None:
    """Compare the outputs of sequences with those of a batch of each of them alone."""
    if not trial.case.can_rebuild:
        trial.skip("alone", NO_COLLATE)
        return
    pairs = {}
    numbers = choose_sequences(trial)
    for number in numbers:
        rebuilt = trial.case.rebuild([number])
        place = f"{trial.case.place}: {trial.case.name(number)} alone"
        alone = trial.runner.run(rebuilt.found, place)
        pairs[number] = _pair(trial, number, alone.parts(0))
    fault = trial.judge("alone", pairs)
    trial.cover("alone", len(numbers))
    if fault is not None:
        _add(trial, "alone", fault, "differ from those of the sequence alone")


def check_order(trial: Trial) -> None:
    """Compare outputs with those of the same sequences in another order."""
    numbers = trial.case.found.numbers
    if not trial.case.can_rebuild:
        trial.skip("order", NO_COLLATE)
        return
    if len(numbers) < 2:
        trial.skip("order", ONE_SEQUENCE)
        return
    rebuilt = _reorder(trial)
    what = "when the sequences are in another order"
    if len(rebuilt.numbers) < len(numbers):
        what = f"when {trial.case.name(numbers[0])} is left out of the batch"
    after = trial.runner.run(rebuilt.found, f"{trial.case.place}: in another order")
    pairs = {
        number: _pair(trial, number, after.parts(place))
        for place, number in enumerate(rebuilt.numbers)
    }
    fault = trial.judge("order", pairs)
    trial.cover("order", len(pairs))
    if fault is not None:
        _add(trial, "order", fault, f"differ {what}")


def _pair(trial: Trial, number: int, found: Parts) -> tuple[Parts, Parts]:
    """Return the outputs of a sequence in its batch, and in another one.

    Of several samples with the same ids but other features, one is as good as another.
    """
    alike = [trial.base.parts(each) for each in trial.case.find_alike(number)]
    return min(alike, key=lambda parts: largest_error(parts[""], found[""])), found


def choose_sequences(trial: Trial) -> list[int]:
    """Choose the sequences that are run alone: all, or the ends, the extremes and random ones."""
    found = trial.case.found
    numbers = found.numbers
    if len(numbers) <= MAX_ALONE:
        return numbers
    lengths = [len(found.cells[number]) for number in numbers]
    special = [0, len(numbers) - 1, lengths.index(max(lengths)), lengths.index(min(lengths))]
    drawn = torch.randperm(len(numbers), generator=trial.generator).tolist()
    chosen = list(dict.fromkeys([*special, *drawn]))[:MAX_ALONE]
    return [numbers[place] for place in sorted(chosen)]


def _reorder(trial: Trial) -> Rebuilt:
    """Return a batch of the sequences in another order.

    A collate function that sorts may restore the order: then the first sequence is left out, so
    that every other one moves.
    """
    numbers = trial.case.found.numbers
    order = torch.randperm(len(numbers), generator=trial.generator).tolist()
    if order == sorted(order):
        order = order[::-1]
    rebuilt = trial.case.rebuild([numbers[place] for place in order])
    if rebuilt.numbers == numbers:
        return trial.case.rebuild(numbers[1:])
    return rebuilt


def _add(trial: Trial, check: str, fault: Fault, what: str) -> None:
    name = trial.case.name(fault.number)
    what = f"{fault.outputs} of {name} {what}{spell_tokens(trial, fault)} ({fault.size})"
    trial.add(check, fault.number, what)
