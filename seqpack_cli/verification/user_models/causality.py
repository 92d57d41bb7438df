"""Checks of causal models: no token sees a later one, and no token behind the targets counts."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from seqpack_cli.verification.user_models.located_batch import LocatedBatch, draw_other_ids
from seqpack_cli.verification.user_models.outputs import SEQUENCE
from seqpack_cli.verification.user_models.separation import ONE_ID, run_changed
from seqpack_cli.verification.user_models.trial import Trial

NO_LOSS = "the model returned no loss: pass it labels with --call (call= in Python)"
NUM_RANDOM = 2  # runs with a random token of each sequence changed; one more with the last


def check_causal(trial: Trial) -> None:
    """Change one token of each sequence, and compare the outputs of all tokens before it."""
    found = trial.case.found
    numbers = [number for number in found.numbers if len(found.cells[number]) > 1]
    if trial.runner.kinds.kind == SEQUENCE:
        trial.skip("causal", "outputs are per sequence, not per token")
        return
    if trial.runner.kinds.are_ambiguous:
        trial.skip("causal", "by their shape, outputs may be per token or per sequence")
        return
    if not numbers:
        trial.skip("causal", "all sequences have one token")
        return
    if draw_other_ids(found, found.cells[numbers[0]], trial.generator) is None:
        trial.skip("causal", ONE_ID)
        return
    for turn in range(NUM_RANDOM + 1):
        places = [_choose_place(trial, number, is_last=turn == NUM_RANDOM) for number in numbers]
        changed = dict(zip(numbers, places, strict=True))
        cells = torch.stack([found.cells[number][place] for number, place in changed.items()])
        after = run_changed(trial, cells)
        pairs = {
            number: (
                trial.parts_before(trial.base, number, place),
                trial.parts_before(after, number, place),
            )
            for number, place in changed.items()
        }
        suspect = trial.judge("causal", pairs, notes=False)
        if suspect is None:
            trial.judge("causal", pairs)
        elif _is_confirmed(trial, suspect.number, changed[suspect.number]):
            break
    trial.cover("causal", len(numbers))


def check_loss(trial: Trial) -> None:
    """Change the tokens behind the last target of each sequence, and compare the loss."""
    found = trial.case.found
    labels = find_labels(found)
    if trial.base.loss is None:
        trial.skip("loss", NO_LOSS)
        return
    if labels is None:
        trial.skip("loss", "batches have no labels in the shape of the ids")
        return
    flat = labels.flatten()
    behind = [_find_cells_behind(flat, found.cells[number]) for number in found.numbers]
    cells = torch.cat(behind)
    if not len(cells) or draw_other_ids(found, cells, trial.generator) is None:
        trial.skip("loss", "no token behind the last target")
        return
    after = run_changed(trial, cells)
    trial.cover("loss", len(found.numbers))
    error = trial.judge_loss("loss", after)
    if error is not None:
        what = f"the loss changes when tokens behind the last target are changed ({error})"
        trial.add("loss", None, what)


def find_labels(found: LocatedBatch) -> torch.Tensor | None:
    """Return the labels of a batch, if they are in the shape of its ids."""
    batch = found.batch
    labels = batch.get("labels") if isinstance(batch, Mapping) else getattr(batch, "labels", None)
    if not isinstance(labels, torch.Tensor) or labels.numel() != found.ids.numel():
        return None
    return labels


def _find_cells_behind(labels: torch.Tensor, cells: torch.Tensor) -> torch.Tensor:
    """Return the cells of a sequence behind its last target.

    That is the token after the last one with a label, as labels name the next token. Where a model
    shifts labels itself, it is one token earlier, which leaves out one.
    """
    labelled = (labels[cells] >= 0).nonzero().flatten()
    return cells[int(labelled[-1]) + 2 :] if len(labelled) else cells


def _choose_place(trial: Trial, number: int, *, is_last: bool) -> int:
    """Choose a token other than the first."""
    length = len(trial.case.found.cells[number])
    if is_last:
        return length - 1
    return int(torch.randint(1, length, (1,), generator=trial.generator))


def _is_confirmed(trial: Trial, number: int, changed: int) -> bool:
    """Add a finding, if changing the token of this sequence alone shows it; return whether so.

    Otherwise another sequence leaked into it, which check_isolation finds.
    """
    after = run_changed(trial, trial.case.found.cells[number][changed : changed + 1])
    pair = tuple(trial.parts_before(each, number, changed) for each in (trial.base, after))
    fault = trial.judge("causal", {number: (pair[0], pair[1])})
    if fault is None:
        return False
    first, last = fault.tokens[0], fault.tokens[-1]
    near, far = changed - last, changed - first
    tokens = f"token {first}" if first == last else f"tokens {first} to {last}"
    away = f"{near}" if near == far else f"{near} to {far}"
    what = (
        f"{fault.outputs} of {tokens} of {trial.case.name(number)} change when its token "
        f"{changed} is changed, {away} token{'s' if far != 1 else ''} later ({fault.size})"
    )
    trial.add("causal", number, what)
    return True
