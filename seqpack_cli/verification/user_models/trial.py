"""One batch under one runner: compare outputs, judge errors, and keep what was found."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from seqpack_cli.verification.findings import Finding
from seqpack_cli.verification.user_models.case import Case
from seqpack_cli.verification.user_models.model_report import LEVEL, ModelReport
from seqpack_cli.verification.user_models.runner import (
    Outputs,
    Runner,
    find_errors,
    find_scale,
)

CHAOTIC = 0.1  # a limit from here on, as a share of the largest output, judges nothing
# In these only ids of others change. They are judged in 16 bits too, from LARGE on, since there a
# kernel may be another one, and a correct model moves by little more than nothing.
SAME_SHAPES = ("isolation", "padding", "causal")
LARGE = 0.05

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

    def judge(self, check: str, pairs: Pairs, *, notes: bool = True) -> Fault | None:
        """Compare outputs; return the largest error if it is a fault.

        Args:
            notes: False leaves the error out of the report.
        """
        errors = {number: find_errors(*pair) for number, pair in pairs.items() if pair[0].numel()}
        if not errors:
            return None
        largest = torch.stack([each.amax(dim=0) for each in errors.values()]).amax(dim=0)
        least = self.base_limit(check) * self.scale
        limits = torch.full_like(largest, least)
        if not bool((largest <= least).all()):
            limits = limits.maximum(self.noise)
        feature = int((largest / limits).nan_to_num(nan=0.0).argmax())
        error, limit = float(largest[feature]) / self.scale, float(limits[feature]) / self.scale
        if notes:
            self.report.checks[check].note_error(self.dtype, error, limit)
        if error <= limit:
            if float(limits.max()) > max(CHAOTIC * self.scale, least):
                self.skip(check, f"rounding errors of {self.dtype} grow too large to judge")
            return None
        number = max(errors, key=lambda each: float(errors[each][:, feature].max()))
        # outputs that lost their order may have the length of another sequence
        known = errors[number][: len(self.case.found.cells[number])]
        tokens = (known > limits).any(dim=1).nonzero().flatten().tolist()
        return Fault(number, tokens or [0], error, limit)

    def judge_loss(self, check: str, after: Outputs) -> str | None:
        """Compare the losses of two runs; return the error and its limit if it is a fault."""
        if self.base.loss is None or after.loss is None:
            return None
        size = max(abs(self.base.loss), torch.finfo(torch.float32).tiny)
        error = abs(after.loss - self.base.loss) / size
        limit = self.runner.limit
        if error > limit:
            limit = max(limit, float(self.noise.max()) / self.scale)
        self.report.checks[check].note_error(self.dtype, error, limit)
        return f"error {error:.2g}, limit {limit:.2g}" if not error <= limit else None

    @functools.cached_property
    def noise(self) -> torch.Tensor:
        """What rounding errors may move each feature by, which large errors are compared with."""
        return self.runner.measure_noise(self.case.found, self.case.place)

    def wants(self, check: str) -> bool:
        """Return whether a finding would be added: one of each check and batch is enough."""
        return (self.runner.is_gate or check in SAME_SHAPES) and check not in self.seen

    def add(self, check: str, number: int | None, what: str) -> None:
        """Add a finding of a check."""
        if self.wants(check):
            self.seen.add(check)
            case = self.case
            self.report.findings.append(Finding(LEVEL, case.source, what, case.index, number))
