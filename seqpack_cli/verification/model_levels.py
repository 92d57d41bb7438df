"""The levels that compute: `run` over every batch, `forward` and `backward` over a sample."""

from __future__ import annotations

import math
from functools import partial
from typing import cast

from seqpack_cli.batching.plan import BatchTable
from seqpack_cli.files.manifest import MANIFEST_NAME
from seqpack_cli.shards.layouts import Batch
from seqpack_cli.shards.shared_rows import VarlenBatch
from seqpack_cli.verification.findings import Finding
from seqpack_cli.verification.levels import Verification
from seqpack_cli.verification.models.attention import check_attention
from seqpack_cli.verification.models.batch_ids import CELLS_PER_TOKEN, choose_limits, take_ids
from seqpack_cli.verification.models.computation import (
    Comparison,
    check_backward,
    check_forward,
)
from seqpack_cli.verification.models.every_batch import (
    MAX_ROWS,
    BatchRun,
    count_fitting_tokens,
    run_every_batch,
)
from seqpack_cli.verification.models.layout_speed import measure_layouts
from seqpack_cli.verification.models.model import Model
from seqpack_cli.verification.models.tolerances import GATES, find_tolerances
from seqpack_cli.verification.report import LevelReport
from seqpack_cli.verification.stream_levels import compare_streams

RUN, COMPARE = "run", "compare"
# Outputs of a batch of different tokens differ by this at least. The least measured with 2 layers
# of 4 units was 4.5e-4 (150 models, two tokens), with 3 layers 2e-5, and with 12 layers of 64 2e-9.
LEAST_SPREAD = 1e-4
MAX_SPREAD_LAYERS = 2  # outputs of deeper models hardly depend on a single token


def verify_every_batch(run: Verification, batches: BatchTable) -> BatchTable:
    """Run the packed model over every batch."""
    options = run.options
    run.progress.on_total(int(batches.num_tokens.sum()))
    model = run.build_model()
    model.recurrent.eval()  # so that cuDNN stores nothing for a backward pass
    with run.level(RUN) as level:
        runs = run_every_batch(
            model,
            run.shards,
            batches.index.tolist(),
            max_tokens=options.max_batch_tokens,
        )
        num_split = 0
        for batch in runs:
            run.progress.on_advance(batch.num_tokens)
            if batch.refusal is not None:
                run.add(Finding(RUN, batch.shard, batch.refusal, batch.index))
                continue
            _check_run(run, level, batch)
            num_split += batch.num_groups > 1
    if options.num_layers > MAX_SPREAD_LAYERS:
        what = f"with {options.num_layers} layers, not checked that outputs differ between tokens"
        run.report.notes.append(f"{RUN}: {what}")
    if num_split:
        number = "1 batch" if num_split == 1 else f"{num_split:,} batches"
        what = f"computed the rows of {number} in groups, of at most {MAX_ROWS:,}"
        run.report.notes.append(f"{RUN}: {what}")
    return run.keep_faultless(batches)


def _check_run(run: Verification, level: LevelReport, batch: BatchRun) -> None:
    """Check the results of one batch that was computed."""
    level.num_batches += 1
    level.num_tokens += batch.num_tokens
    spread, difference, sum_of_ids = batch.values.tolist()
    what = None
    if sum_of_ids != batch.sum_of_ids:
        what = f"ids add up to {sum_of_ids:.0f} on the device, {batch.sum_of_ids} on disk"
    elif not math.isfinite(spread):
        what = "outputs are not finite"
    elif batch.varies and run.options.num_layers <= MAX_SPREAD_LAYERS and spread < LEAST_SPREAD:
        what = f"outputs differ by at most {spread:.2g}, expected {LEAST_SPREAD} or more"
    if what is not None:
        run.add(Finding(RUN, batch.shard, what, batch.index))
        return
    limit = find_tolerances(run.device, run.dtype, remembers=False).values
    # neither can overflow in 16 bits, so NaN and infinity are faults there too
    is_gate = run.dtype in GATES or not math.isfinite(difference)
    name = "final states and last outputs"
    comparison = Comparison(RUN, name, difference, limit, None, is_gate)
    run.judge(level, comparison, batch.shard, batch.index, None)


def measure_speeds(run: Verification, batches: BatchTable) -> None:
    """Measure how fast the device computes the sampled batches in each layout."""
    chosen = run.sample(batches)
    named = ((index, run.read(index)) for index in chosen)
    run.report.layout_speeds = measure_layouts(
        run.build_model(),
        ((name, index, batch) for index, (name, batch) in named),
        max_tokens=run.options.max_batch_tokens,
        computing=partial(run.computing, COMPARE),
    )


def verify_computation(run: Verification, level_name: str, batches: BatchTable) -> BatchTable:
    """Run level `forward` or `backward` over a sample of the batches."""
    chosen = run.sample(batches)
    run.progress.on_total(len(chosen))
    is_ragged = False
    with run.level(level_name) as level:
        models = run.build_models() if chosen else []
        for index in chosen:
            name, batch = run.read(index)
            with run.computing(level_name, name, index):
                is_ragged |= _compare_batch(run, level, models, name, index, batch)
                level.num_batches += 1
            run.progress.on_advance(1)
        if chosen and run.shards.options.carries_state:
            compare_streams(run, level, batches.index, chosen)
    if chosen and not is_ragged and level.num_batches == len(chosen):
        _report_no_ragged_batch(run, level_name, batches)
    return run.keep_faultless(batches)


def _report_no_ragged_batch(run: Verification, level: str, batches: BatchTable) -> None:
    """Report that no computed batch is ragged: a finding if other batches are, else a note."""
    if bool((batches.longest > batches.shortest).any()):
        what = "no computed batch has rows of different lengths, pass a larger --max-batch-tokens"
        run.add(Finding(level, MANIFEST_NAME, what))
    else:
        what = "no batch has rows of different lengths, so no hidden state was trimmed"
        run.report.notes.append(f"{level}: {what}")


def _compare_batch(
    run: Verification,
    level: LevelReport,
    models: list[Model],
    name: str,
    index: int,
    batch: Batch,
) -> bool:
    """Compare one batch; return whether it has rows of different lengths."""
    check = {"forward": check_forward, "backward": check_backward}[level.level]
    most = max(count_fitting_tokens(models[0]) // CELLS_PER_TOKEN, 1)
    max_tokens = min(run.options.max_batch_tokens, most)
    limits = choose_limits(level.level, run.device, max_tokens=max_tokens)
    ids = take_ids(batch, run.device, limits)
    was_cut = ids.was_cut
    for model in models:
        generator = run.make_generator(index)
        for comparison in check(model, ids, generator=generator):
            row = None if comparison.row is None else int(ids.row_numbers[comparison.row])
            run.judge(level, comparison, name, index, row)
    options = run.shards.options
    if options.shares_rows and not options.carries_state and level.level == "forward":
        was_cut |= _compare_attention(run, level, name, index, cast(VarlenBatch, batch))
    level.num_tokens += len(ids.packed.data)
    level.num_cut_batches += was_cut
    return int(ids.lengths[0]) != int(ids.lengths[-1])


def _compare_attention(
    run: Verification, level: LevelReport, name: str, index: int, batch: VarlenBatch
) -> bool:
    """Compare attention over a varlen row; return whether only part of it was computed."""
    generator = run.make_generator(index)
    layer, max_tokens = run.build_attention(), run.max_attention_tokens
    for comparison in check_attention(batch, layer, max_tokens=max_tokens, generator=generator):
        run.judge(level, comparison, name, index, comparison.row)
    return len(batch.data) > max_tokens
