"""One batch under one runner: compare outputs, judge errors, and keep what was found."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from seqpack_cli.verification.findings import Finding
from seqpack_cli.verification.user_models.case import Case
from seqpack_cli.verification.user_models.model_report import LEVEL, ModelReport
from seqpack_cli.verification.user_models.output_errors import find_errors, find_scale
from seqpack_cli.verification.user_models.runner import Outputs, Parts, Runner

CHAOTIC = 0.1  # a limit from here on, as a share of the largest output, judges nothing
# In these only ids of others change. They are judged in 16 bits too, from LARGE on, since there a
# kernel may be another one, and a correct model moves by little more than nothing.
SAME_SHAPES = ("isolation", "padding", "causal")
LARGE = 0.05

Pairs = Mapping[int, tuple[Parts, Parts]]  # sequence -> expected, found


@dataclass(frozen=True)
class Fault:
    """Outputs of one sequence that differ by more than the limit."""

    number: int
    tokens: list[int]
    error: float  # relative to the largest output of the batch
    limit: float
    name: str = ""  # of the tensor, if it is not the first that the model returned
    is_per_sequence: bool = False

    @property
    def size(self) -> str:
        """The error and its limit."""
        return f"error {self.error:.2g}, limit {self.limit:.2g}"

    @property
    def outputs(self) -> str:
        """What differs, for messages."""
        return self.name or "outputs"


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
    unjudged: set[str] = field(default_factory=set)  # checks where rounding hides some outputs
    scales: dict[str, float] = field(init=False)

    def __post_init__(self) -> None:
        self.scales = {name: find_scale(each) for name, each in self.base.others.items()}
        self.scales[""] = find_scale(self.base.sequences)

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

    def parts_before(self, outputs: Outputs, number: int, place: int) -> Parts:
        """Return the outputs of the tokens of a sequence before a place."""
        parts = outputs.parts(number).items()
        return {key: each[:place] for key, each in parts if not self.runner.is_per_sequence(key)}

    def judge(self, check: str, pairs: Pairs, *, notes: bool = True) -> Fault | None:
        """Compare outputs; return the largest error if it is a fault.

        Args:
            notes: False leaves the error out of the report.
        """
        names = {name for pair in pairs.values() for name in pair[0].keys() & pair[1].keys()}
        worst, share = None, 0.0
        for name in sorted(names):
            fault = self._judge_part(check, name, pairs, notes=notes)
            if fault is not None and fault.error / fault.limit > share:
                worst, share = fault, fault.error / fault.limit
        return worst

    def _judge_part(self, check: str, name: str, pairs: Pairs, *, notes: bool) -> Fault | None:
        """Compare one of the tensors that the model returned."""
        errors = {
            number: find_errors(one[name], other[name]).amax(dim=0)
            for number, (one, other) in pairs.items()
            if name in one and name in other and one[name].numel()
        }
        if not errors:
            return None
        scale = self.scales[name]
        least = self.base_limit(check) * scale
        limits = {number: torch.full_like(each, least) for number, each in errors.items()}
        if not all(bool((each <= least).all()) for each in errors.values()):
            limits = {key: each.maximum(self.noise[name][key]) for key, each in limits.items()}
        shares = {key: (each / limits[key]).nan_to_num(nan=0.0) for key, each in errors.items()}
        number = max(shares, key=lambda key: float(shares[key].max()))
        feature = int(shares[number].argmax())
        error = float(errors[number][feature]) / scale
        limit = float(limits[number][feature]) / scale
        if notes:
            self.report.checks[check].note_error(self.dtype, error, limit)
        if error <= limit:
            if max(float(each.max()) for each in limits.values()) > max(CHAOTIC * scale, least):
                self.unjudged.add(check)
            return None
        found = find_errors(pairs[number][0][name], pairs[number][1][name])
        # outputs that lost their order may have the length of another sequence
        known = found[: len(self.case.found.cells[number])] > limits[number]
        tokens = known.any(dim=1).nonzero().flatten().tolist() or [0]
        per_sequence = self.runner.is_per_sequence(name)
        return Fault(number, tokens, error, limit, name, is_per_sequence=per_sequence)

    def judge_loss(self, check: str, after: Outputs) -> str | None:
        """Compare the losses of two runs; return the error and its limit if it is a fault."""
        if self.base.loss is None or after.loss is None:
            return None
        size = max(abs(self.base.loss), torch.finfo(torch.float32).tiny)
        error = abs(after.loss - self.base.loss) / size
        limit = self.runner.limit
        if error > limit:
            noise = max(float(each.max()) for each in self.noise[""] if each.numel())
            limit = max(limit, noise / self.scales[""])
        self.report.checks[check].note_error(self.dtype, error, limit)
        return f"error {error:.2g}, limit {limit:.2g}" if not error <= limit else None

    @functools.cached_property
    def noise(self) -> dict[str, list[torch.Tensor]]:
        """What rounding errors may move outputs by, which large errors are compared with."""
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
