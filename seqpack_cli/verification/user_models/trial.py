"""One batch under one runner: compare outputs, judge errors, and keep what was found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from seqpack_cli.verification.findings import Finding
from seqpack_cli.verification.user_models.case import Case
from seqpack_cli.verification.user_models.model_report import LEVEL, ModelReport
from seqpack_cli.verification.user_models.runner import (
    Outputs,
    Runner,
    errors_between,
    find_scale,
)

CHAOTIC = 0.1  # a limit from here on, as a share of the largest output, judges nothing
# In these only ids of others change. They are judged in 16 bits too, from LARGE on, since there a
# kernel may be another one, and a correct model moves by little more than nothing.
SAME_SHAPES = ("isolation", "padding", "causal")
LARGE = 0.1

Pairs = Mapping[int, tuple[torch.Tensor, torch.Tensor]]  # sequence -> expected, found


@dataclass(frozen=True)
class Fault:
    """Outputs of one sequence that differ by more than the limit."""

    number: int
    tokens: list[int]
    error: float  # relative to the largest output of the batch
    limit: float

    @property
    def size(self) -> str:
        """The error and its limit."""
        return f"error {self.error:.2g}, limit {self.limit:.2g}"


@dataclass
class Trial:
    """The checks of one batch in one dtype."""

    case: Case
    runner: Runner
    report: ModelReport
    generator: torch.Generator
    base: Outputs  # of the unchanged batch
    seen: set[str]  # checks with a finding in this batch
    counts: bool = True  # False in a second dtype
    noise: float | None = None
    scale: float = field(init=False)

    def __post_init__(self) -> None:
        self.scale = find_scale(self.base.sequences)

    @property
    def dtype(self) -> str:
        """The dtype that the model computes in."""
        return str(self.runner.dtype).removeprefix("torch.")

    def cover(self, check: str, num_sequences: int) -> None:
        """Count a batch that was checked."""
        if self.counts:
            self.report.checks[check].num_batches += 1
            self.report.checks[check].num_sequences += num_sequences

    def skip(self, check: str, reason: str) -> None:
        """Count a batch that was not checked."""
        if self.counts:
            self.report.checks[check].skip(reason)

    def base_limit(self, check: str) -> float:
        """Return the limit of a check, not raised for a model that amplifies rounding errors."""
        if check in SAME_SHAPES and not self.runner.is_gate:
            return max(self.runner.limit, LARGE)
        return self.runner.limit

    def judge(self, check: str, pairs: Pairs) -> Fault | None:
        """Compare outputs; return the largest error if it is a fault."""
        errors = {number: errors_between(*pair) for number, pair in pairs.items() if len(pair[0])}
        if not errors:
            return None
        number = max(errors, key=lambda each: float(errors[each].max()))
        error = float(errors[number].max()) / self.scale
        limit = self.find_limit(error, self.base_limit(check))
        self.report.checks[check].note_error(self.dtype, error, limit)
        if error <= limit:
            if limit > max(CHAOTIC, self.base_limit(check)):
                self.skip(check, f"rounding errors of {self.dtype} grow too large to judge")
            return None
        # outputs that lost their order may have the length of another sequence
        known = errors[number][: len(self.case.found.cells[number])]
        tokens = (known > limit * self.scale).nonzero().flatten().tolist()
        return Fault(number, tokens or [0], error, limit)

    def judge_loss(self, check: str, after: Outputs) -> str | None:
        """Compare the losses of two runs; return the error and its limit if it is a fault."""
        if self.base.loss is None or after.loss is None:
            return None
        size = max(abs(self.base.loss), torch.finfo(torch.float32).tiny)
        error = abs(after.loss - self.base.loss) / size
        limit = self.find_limit(error, self.runner.limit)
        self.report.checks[check].note_error(self.dtype, error, limit)
        return f"error {error:.2g}, limit {limit:.2g}" if not error <= limit else None

    def find_limit(self, error: float, limit: float) -> float:
        """Return the limit of a relative error; a large one is compared with rounding errors."""
        if error > limit:
            if self.noise is None:
                noise = self.runner.measure_noise(self.case.found, self.case.place)
                self.noise = noise / self.scale
            limit = max(limit, self.noise)
        return limit

    def wants(self, check: str) -> bool:
        """Return whether a finding would be added: one of each check and batch is enough."""
        return (self.runner.is_gate or check in SAME_SHAPES) and check not in self.seen

    def add(self, check: str, number: int | None, what: str) -> None:
        """Add a finding of a check."""
        if self.wants(check):
            self.seen.add(check)
            case = self.case
            self.report.findings.append(Finding(LEVEL, case.source, what, case.index, number))
