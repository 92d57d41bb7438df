"""Words for what moved: which tokens of a sequence, and how far from the one that was changed."""

from __future__ import annotations

from seqpack_cli.verification.user_models.located_batch import LocatedBatch
from seqpack_cli.verification.user_models.trial import Fault, Trial


def spell_tokens(trial: Trial, fault: Fault) -> str:
    """Return which outputs of a sequence differ, beginning with a colon; empty if it has one."""
    if fault.is_per_sequence:
        return ""
    tokens, length = fault.tokens, len(trial.case.found.cells[fault.number])
    first, last = tokens[0], tokens[-1]
    if len(tokens) == length:
        return ": all its tokens"
    if len(tokens) != last - first + 1:
        return f": {len(tokens)} of its {length} tokens, the first is token {first}"
    if first == last:
        return f": its token {first}"
    if last == length - 1:
        return f": from its token {first} on"
    return f": its tokens {first} to {last}"


def spell_distance(trial: Trial, fault: Fault, changed: int) -> str:
    """Return how far the outputs that differ are from the sequence that was changed."""
    found = trial.case.found
    cells = found.cells[fault.number]
    if not fault.is_per_sequence:
        cells = cells[fault.tokens]
    distances = [found.distance(cell, changed) for cell in (int(cells[0]), int(cells[-1]))]
    near = min((each for each in distances if each is not None), key=abs, default=None)
    if near is None:
        return _spell_rows(found, fault.number, changed)
    tokens = f"{abs(near)} token{'s' if abs(near) != 1 else ''}"
    place = "behind the end of" if near > 0 else "before the beginning of"
    return f"{tokens} {place} {trial.case.name(changed)}"


def _spell_rows(found: LocatedBatch, number: int, changed: int) -> str:
    if found.shares_rows:
        return "in another row"
    apart = abs(number - changed)
    return f"{apart} row{'s' if apart != 1 else ''} apart"
