"""Levels `forward` and `backward` of streams: run a model as training does, from batch to batch.

A sample of runs of consecutive batches is stepped through cell by cell; see `stream_ways`. Among
them are the beginning, the end, and the middle of the longest sequence.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import numpy as np
import torch

from seqpack_cli.shards.shared_rows import StreamsBatch
from seqpack_cli.verification.levels import Verification
from seqpack_cli.verification.models.stream_spans import MAX_STEPS, StreamSpan, take_span
from seqpack_cli.verification.models.stream_ways import (
    check_streams,
    ignore_resets,
    lose_states,
)
from seqpack_cli.verification.report import Control, LevelReport

MAX_RUNS = 8  # each takes about a second on a CPU


def compare_streams(
    run: Verification, level: LevelReport, index: np.ndarray, chosen: list[int]
) -> None:
    """Step through runs of batches, as many as batches were chosen, but at most MAX_RUNS.

    Args:
        index: of the batches of sound shards, rising.
    """
    models, all_steps = run.build_models(one_direction=True), list[int]()
    for first, last in choose_runs(run, index, chosen):
        with run.computing(level.level, run.shards.find_name(first), first, last=last - 1):
            span = take_run(run, first, last)[1]
            for model in models:
                generator = run.make_generator(first)
                for comparison in check_streams(level.level, model, span, generator=generator):
                    batch, row = first, None
                    if comparison.row is not None:
                        inside, row = span.places[comparison.row].tolist()
                        batch += inside
                    run.judge(level, comparison, run.shards.find_name(batch), batch, row)
            all_steps.append(span.num_steps)
    if not all_steps:
        return
    number = "1 run" if len(all_steps) == 1 else f"{len(all_steps)} runs"
    what = f"carried the state through {number} of batches, of {max(all_steps)} steps at most"
    what += ", forwards only" if run.options.bidirectional else ""
    run.report.notes.append(f"{level.level}: {what}")


def control_streams(
    run: Verification, index: np.ndarray, chosen: list[int], *, dtype: torch.dtype
) -> Iterator[Control]:
    """Step in wrong ways: each must be found in the first run of batches whose states it changes.

    Args:
        index, chosen: as for choose_runs.
    """
    model = run.build_model(dtype=dtype, one_direction=True)
    runs = choose_runs(run, index, chosen)
    for name, damage in (("reset ignored", ignore_resets), ("state not carried", lose_states)):
        control = Control(name, "forward", None, "")
        for first, last in runs:
            with run.computing("forward", run.shards.find_name(first), first, last=last - 1):
                span = take_run(run, first, last)[1]
                wrong = damage(span)
                if not _differ_at_tokens(span, wrong):
                    continue
                generator = run.make_generator()
                comparisons = check_streams("forward", model, wrong, generator=generator)
                found = next((comparison for comparison in comparisons if comparison.failed), None)
                control = Control(name, "forward", found is not None, str(found or "nothing"))
                break
        yield control


def _differ_at_tokens(span: StreamSpan, other: StreamSpan) -> bool:
    is_other = (span.resets != other.resets).flatten()
    return bool(is_other[span.cells].any())


def take_run(run: Verification, first: int, last: int) -> tuple[str, StreamSpan]:
    """Put the batches from first to last - 1 on the device, or a part of them.

    Returns:
        The name of the first batch's shard, and the span.
    """
    read = [run.read(number) for number in range(first, last)]
    batches = [cast(StreamsBatch, batch) for _, batch in read]
    num_steps, most = batches[0].num_steps, MAX_STEPS[run.device.type]
    first_step = 0
    if len(batches) > 1 and num_steps * len(batches) > most:
        is_end = last == len(run.shards)
        middle = num_steps - most // 2  # around the border of the first two
        first_step = num_steps * len(batches) - most if is_end else middle
        first_step = 0 if first == 0 else max(first_step, 0)
    span = take_span(
        batches, run.device, max_tokens=run.options.max_batch_tokens, first_step=first_step
    )
    return read[0][0], span


def choose_runs(run: Verification, index: np.ndarray, chosen: list[int]) -> list[tuple[int, int]]:
    """Choose runs of consecutive batches, at most as many as were chosen.

    Args:
        index: of the batches of sound shards, rising.
        chosen: batches that `--sample` asks for.
    """
    per_run = max(MAX_STEPS[run.device.type] // (run.shards.options.max_tokens or 1), 2)
    breaks = np.flatnonzero(np.diff(index) > 1) + 1
    groups = {int(number): group for group in np.split(index, breaks) for number in group}
    starts: list[int] = [int(index[0]), int(index[-1]) - per_run + 1]
    starts += [_find_longest(run, index) - per_run // 2, *chosen]
    runs: dict[tuple[int, int], None] = {}
    for start in map(int, starts):
        place = max(int(np.searchsorted(index, start, "right")) - 1, 0)
        group = groups[int(index[place])]
        first = max(min(start, int(group[-1]) - per_run + 1), int(group[0]))
        runs[first, min(first + per_run, int(group[-1]) + 1)] = None
    return [*runs][: min(len(chosen), MAX_RUNS)]


def _find_longest(run: Verification, index: np.ndarray) -> int:
    """Return the batch, of some, with the piece that begins furthest inside its sequence."""
    furthest, found = -1, int(index[0])
    numbers = np.searchsorted(run.shards.batch_offsets, index, "right") - 1
    for number in np.unique(numbers).tolist():
        shard = run.shards.open_shard(number)
        row = int(shard.tensors["piece_starts"].argmax())
        if int(shard.tensors["piece_starts"][row]) > furthest:
            furthest = int(shard.tensors["piece_starts"][row])
            found = shard.first_batch + shard.arrays.find_batch(row)[0]
    return found
