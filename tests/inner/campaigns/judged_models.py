"""Run `verify_model` on the zoo: no alarm on random correct models, one on every wrong one.

`PYTHONPATH=tests python tests/campaigns/judged_models.py --models 300` prints a line for each model
that was judged wrongly and at the end what was checked; the slow tests run it in parts.
"""

from __future__ import annotations

import argparse
import functools
import math
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from model_zoo import CPU, VOCAB_SIZE, ZooModel, find_faults, iter_values
from plain_models import CORRECT_MODELS, DROPOUT_MODELS
from random_models import random_correct_model, random_wrong_model
from stream_models import CORRECT_STREAMS, WRONG_STREAMS
from transformers_models import WRONG_TRANSFORMERS, random_transformers_model
from wrong_models import WRONG_MODELS

from seqpack_cli.training.token_sequences import TokenSequence
from seqpack_cli.verification.options import ModelOptions
from seqpack_cli.verification.user_models.model_report import ModelReport
from seqpack_cli.verification.user_models.verify_model import verify_model

DTYPES = [torch.float32] * 5 + [torch.float64, torch.bfloat16, torch.float16]


@dataclass(frozen=True)
class Judged:
    """What `verify_model` said of one model."""

    name: str
    dtype: torch.dtype
    report: ModelReport | None  # None if it raised an error
    error: str = ""

    @property
    def failed(self) -> set[str]:
        """The checks with an error above the limit, in a dtype that is judged."""
        assert self.report is not None
        return {
            name
            for name, check in self.report.checks.items()
            if any(each.error > each.limit for each in check.errors.values())
        }


def draw_samples(draws: random.Random, kind: str, longest: int) -> list[TokenSequence]:
    """Draw sequences with a kind of lengths; the last tokens of some are no targets."""
    samples = []
    for index in range(draws.randint(9, 24)):
        length = {
            "even": draws.randint(1, 20),
            "skewed": min(longest, math.ceil(draws.lognormvariate(1.5, 1))),
            "equal": 6,
            "short": draws.randint(1, 3),
            "all": (1, 8, 3, 20, 2, 5, 12, 4)[index % 8],  # with what some mistakes need
        }[kind]
        ids = torch.tensor([draws.randrange(VOCAB_SIZE) for _ in range(length)])
        targets = torch.ones_like(ids)
        targets[length - draws.choice((0, 0, 1, 3)) :] = 0
        samples.append(TokenSequence(ids, index, {"targets": targets}))
    return samples


def judge(
    entry: ZooModel,
    seed: int,
    dtype: torch.dtype | None = None,
    *,
    samples: list[TokenSequence] | None = None,
) -> Judged:
    """Run `verify_model` over batches of samples; dtype and samples None draws them."""
    draws = random.Random(f"batches {seed}")
    dtype = entry.dtype or dtype or draws.choice(DTYPES[:6] if "repeat" in entry.faults else DTYPES)
    model = entry.make(VOCAB_SIZE, CPU, dtype)
    batch_size = draws.randint(3, 8) if samples is None else len(samples)
    options = ModelOptions(
        causal=entry.causal, sample=4, batch_size=batch_size, seed=draws.randrange(100)
    )
    # Longest first, the order of the rows is that of `data`, and some mistakes make no difference.
    sort = draws.random() < 0.5 and not entry.faults
    collate = functools.partial(entry.collate_samples, sort=sort)
    kind = "all" if entry.faults else draws.choice(("even", "skewed", "equal", "short"))
    samples = samples or draw_samples(draws, kind, entry.options.get("row_length", 60))
    if dtype == torch.float16 and not _is_finite(entry.run(model, collate(samples))):
        dtype, model = torch.float32, entry.make(VOCAB_SIZE, CPU, torch.float32)
    try:
        report = verify_model(samples, model, collate_fn=collate, call=entry.call, options=options)
    except Exception as error:  # whatever it is, it is not a verdict
        return Judged(entry.name, dtype, None, f"{type(error).__name__}: {error}")
    return Judged(entry.name, dtype, report)


def iter_correct(first: int, last: int) -> Iterator[tuple[int, ZooModel]]:
    """Yield random correct models: each third one is of transformers, or written by hand."""
    for seed in range(first, last):
        if seed % 6 == 0:
            written = [*CORRECT_MODELS, *CORRECT_STREAMS]
            yield seed, written[seed // 6 % len(written)]
        elif seed % 6 == 3:
            yield seed, random_transformers_model(seed)
        else:
            yield seed, random_correct_model(seed)


def find_false_alarms(first: int, last: int) -> Iterator[tuple[int, Judged]]:
    """Yield the correct models that do not pass."""
    for seed, entry in iter_correct(first, last):
        judged = judge(entry, seed)
        if judged.report is None or not judged.report.passed:
            yield seed, judged


def find_misses(seed: int, dtype: torch.dtype | None = None) -> Iterator[Judged]:
    """Yield the wrong models that pass."""
    for entry in [*WRONG_MODELS, *WRONG_STREAMS, *WRONG_TRANSFORMERS]:
        judged = judge(entry, seed, dtype)
        if judged.report is None or judged.report.passed:
            yield judged


def find_random_misses(first: int, last: int) -> Iterator[tuple[int, Judged]]:
    """Yield the random wrong models that pass, of those whose fault the oracle sees.

    The oracle sees the batch that `verify_model` gets, so nothing depends on rare lengths.
    """
    for seed in range(first, last):
        entry = random_wrong_model(seed)
        samples = draw_samples(random.Random(seed), "all", 24)[:5]
        faults = find_faults(entry, {index: each.ids for index, each in enumerate(samples)})
        if not faults:
            continue
        judged = judge(replace(entry, faults=frozenset(faults)), seed, samples=samples)
        if judged.report is None or judged.report.passed:
            yield seed, judged


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=300)
    parser.add_argument("--wrong", type=int, default=100, help="random wrong models")
    parser.add_argument("--first", type=int, default=0, help="seed of the first model")
    parser.add_argument("--rounds", type=int, default=3, help="batches for each wrong model")
    options = parser.parse_args()
    torch.set_num_threads(1)
    started, counts = time.perf_counter(), Counter[str]()

    for seed, judged in find_false_alarms(options.first, options.first + options.models):
        counts["false alarms"] += 1
        print(f"false alarm: seed {seed}, {_describe(judged)}", flush=True)
    for seed, judged in find_random_misses(options.first, options.first + options.wrong):
        counts["misses"] += 1
        print(f"missed: seed {seed}, {_describe(judged)}", flush=True)
    for seed in range(options.rounds):
        for judged in find_misses(seed):
            counts["misses"] += 1
            print(f"missed: round {seed}, {_describe(judged)}", flush=True)
    for entry in DROPOUT_MODELS:
        judged = judge(entry, 0, torch.float32)
        if judged.report is None or not judged.report.dropout:
            counts["dropout not named"] += 1
            print(f"dropout not named: {_describe(judged)}", flush=True)
    print(dict(counts), f"{time.perf_counter() - started:.0f} s")


def _is_finite(output: Any) -> bool:
    values = (each.data for each in iter_values(output))
    return all(bool(each.isfinite().all()) for each in values)


def _describe(judged: Judged) -> str:
    if judged.report is None:
        return f"{judged.name}, {judged.dtype}: {judged.error}"
    found: list[Any] = [str(finding) for finding in judged.report.findings][:3]
    return f"{judged.name}, {judged.dtype}: {found or judged.report.notes}"


if __name__ == "__main__":
    main()
