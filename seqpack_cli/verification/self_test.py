"""`verify --self-test`: damage one shard in memory in every known way, and check that it is found.

Each damage has a level that must be the first to find it. Faulty kernels are simulated by faulty
computations. No file is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import cast

import numpy as np
import torch

from seqpack_cli.batching.plan import BatchTable
from seqpack_cli.shards.shard import Shard
from seqpack_cli.shards.shared_rows import VarlenBatch
from seqpack_cli.tokens.columns import TARGETS
from seqpack_cli.tokens.store import TokenStore
from seqpack_cli.verification.damages import DAMAGES, Damage, repeat_index
from seqpack_cli.verification.findings import Finding
from seqpack_cli.verification.integers.column_values import compare_columns
from seqpack_cli.verification.integers.coverage import Coverage
from seqpack_cli.verification.integers.plan_comparison import compare_shard
from seqpack_cli.verification.integers.row_fills import make_fills
from seqpack_cli.verification.integers.shard_roundtrip import check_shard
from seqpack_cli.verification.integers.structure import check_batches, mark_rows
from seqpack_cli.verification.integers.totals import check_counts, check_shard_targets
from seqpack_cli.verification.label_damages import control_labels
from seqpack_cli.verification.levels import Verification, choose_batches
from seqpack_cli.verification.models.attention import check_attention
from seqpack_cli.verification.models.attention_arrays import take_window
from seqpack_cli.verification.models.attention_layer import mask_of
from seqpack_cli.verification.models.batch_ids import BatchIds, choose_limits, take_ids
from seqpack_cli.verification.models.computation import (
    WAYS,
    Comparison,
    check_backward,
    check_forward,
)
from seqpack_cli.verification.models.model import Model
from seqpack_cli.verification.models.recurrence import Hidden, Step, as_state
from seqpack_cli.verification.models.tolerances import GATES
from seqpack_cli.verification.models.ways import Run, run_loop, run_packed
from seqpack_cli.verification.report import Control
from seqpack_cli.verification.selection_damages import control_visits, list_selection_damages
from seqpack_cli.verification.stream_levels import control_streams

MAX_TRIES = 8  # batches that are tried per faulty computation


def run_self_test(run: Verification, batches: BatchTable, store: TokenStore | None) -> None:
    """Run every control of the chosen levels; one that is not caught is a finding.

    Args:
        batches: the batches of shards without a finding; the smallest of these shards is damaged.
    """
    if not len(batches):
        run.report.notes.append("self-test skipped: every shard has a fault")
        return
    numbers = np.unique(run.find_shards(batches)).tolist()
    number = min(numbers, key=lambda one: int(run.shards.manifest["shards"][one]["bytes"]))
    controls = [*_damage_arrays(run, number, store), *control_visits(run)]
    controls += [*_swap_class_names(run, store), *control_labels(run, number, store)]
    first, last = run.shards.batch_offsets[number : number + 2]
    inside = (batches.index >= first) & (batches.index < last)
    controls += _damage_computation(run, batches.take(inside))
    run.report.controls = controls
    for control in controls:
        if control.caught is False:
            name = run.shards.manifest["shards"][number]["name"]
            what = f"self-test did not catch: {control.name}; found: {control.found}"
            run.report.findings.append(Finding(control.level, name, what))


def _damage_arrays(run: Verification, number: int, store: TokenStore | None) -> Iterator[Control]:
    shard = run.shards.open_shard(number)
    for damage in (*DAMAGES, *list_selection_damages(run)):
        if run.repeats_sequences and damage.change is repeat_index:
            damage = replace(damage, needs_plan=True)  # a sequence may be there twice
        if damage.level not in run.options.levels or not damage.belongs_to(shard):
            continue
        changed = damage.change(shard) if run.planned is not None or not damage.needs_plan else None
        if changed is None:
            yield Control(damage.name, damage.level, None, "")
            continue
        damaged = shard.with_tensors({**shard.tensors, **changed})
        found = next(_find(run, number, damaged, store, damage), None)
        yield Control(
            damage.name,
            damage.level,
            found is not None and found.level == damage.level,
            "nothing" if found is None else found.what,
        )


def _swap_class_names(run: Verification, store: TokenStore | None) -> Iterator[Control]:
    """Swap the first two class names of a column, as the manifest of the shards has them."""
    for name, column in run.shards.columns.items():
        if column.class_names is None:
            continue
        found = None
        if is_possible := store is not None and len(column.class_names) > 1:
            swapped = (*column.class_names[1::-1], *column.class_names[2:])
            columns = {**run.shards.columns, name: replace(column, class_names=swapped)}
            found = next(compare_columns(columns, store.columns), None)
        caught = found is not None if is_possible else None
        missed = "nothing" if is_possible else ""
        yield Control("swapped class names", "structure", caught, found or missed)
        return


def _find(
    run: Verification, number: int, shard: Shard, store: TokenStore | None, damage: Damage
) -> Iterator[Finding]:
    """Yield the findings in a damaged shard up to the damage's level, checksums left out.

    The comparison with the plan would find most damages, so it runs only where a damage needs it.
    """
    max_tokens = run.shards.options.max_tokens
    found, batches = check_batches(shard, max_tokens=max_tokens)
    yield from found
    yield from mark_rows(shard, Coverage.of_stores(run.shards.manifest["stores"]))
    fills = make_fills(run.shards)
    if number:
        fills.check(None)  # what the streams go on with is not known
    yield from fills.check(shard)
    if number == run.shards.num_shards - 1:
        yield from fills.finish()
    yield from check_counts(shard.path.name, shard.entry, batches)
    if TARGETS in shard.columns:
        yield from check_shard_targets(shard)
    if damage.needs_plan and run.planned is not None:
        yield from compare_shard(shard, run.planned, number)
    if damage.level != "structure" and store is not None:  # others could crash torch
        yield from check_shard(shard, run.roundtrip(store), on_advance=lambda _: None)


def _damage_computation(run: Verification, batches: BatchTable) -> Iterator[Control]:
    """Run the faulty computations: no trimming, attention across sequences, a missing gradient."""
    uneven = batches.take(batches.longest > batches.shortest)
    several = batches.take(batches.num_rows > 1)
    if "forward" in run.options.levels:
        yield _control(run, "hidden state not trimmed", "forward", uneven, _check_untrimmed)
        if run.shards.options.carries_state:
            chosen = choose_batches(batches, num_batches=MAX_TRIES, seed=run.options.seed)
            yield from control_streams(run, batches.index, chosen, dtype=_judged_dtype(run))
        elif run.shards.options.shares_rows:
            yield _control(run, "attention across sequences", "forward", several, _check_borderless)
    if "backward" in run.options.levels:
        yield _control(run, "row missing from gradient", "backward", batches, _check_lacking)


def _control(
    run: Verification,
    name: str,
    level: str,
    batches: BatchTable,
    check: Callable[[Verification, int], Iterator[Comparison] | None],
) -> Control:
    """Run a faulty computation on the first batch whose results it changes."""
    for index in choose_batches(batches, num_batches=MAX_TRIES, seed=run.options.seed):
        shard, _ = run.read(index)
        with run.computing(level, shard, index):
            comparisons = check(run, index)
            if comparisons is None:
                continue
            found = next((comparison for comparison in comparisons if comparison.failed), None)
            return Control(name, level, found is not None, str(found or "nothing"))
    return Control(name, level, None, "")


def _check_untrimmed(run: Verification, index: int) -> Iterator[Comparison] | None:
    model, ids = _prepare(run, index, "forward")
    if ids.lengths[0] == ids.lengths[-1]:  # in the window that is computed
        return None

    def run_untrimmed(model: Model, ids: BatchIds) -> Run:
        return run_loop(model, ids, walk=_walk_untrimmed)

    generator = run.make_generator()
    ways = {**WAYS, "packed": run_untrimmed}
    return check_forward(model, ids, generator=generator, ways=ways)


def _walk_untrimmed(
    step: Step, inputs: torch.Tensor, batch_sizes: list[int], hidden: Hidden
) -> tuple[torch.Tensor, Hidden]:
    """Run all rows to the end of the longest, with zeros as inputs after their end."""
    outputs = []
    for rows in torch.split(inputs, batch_sizes):
        num_ended = batch_sizes[0] - len(rows)
        hidden = step(torch.cat([rows, rows.new_zeros(num_ended, rows.shape[1])]), hidden)
        outputs.append(as_state(hidden)[0][: len(rows)])
    return torch.cat(outputs), hidden


def _check_borderless(run: Verification, index: int) -> Iterator[Comparison] | None:
    batch = cast(VarlenBatch, run.read(index)[1])
    max_tokens = run.max_attention_tokens
    window, _, _ = take_window(batch, max_tokens)
    if len(window.lengths) == 1 or not np.ptp(window.data):
        return None
    return check_attention(
        batch,
        run.build_attention(dtype=_judged_dtype(run)),
        max_tokens=max_tokens,
        generator=run.make_generator(),
        make_mask=lambda cu_seqlens, num_tokens: mask_of(cu_seqlens[[0, -1]], num_tokens),
    )


def _check_lacking(run: Verification, index: int) -> Iterator[Comparison]:
    model, ids = _prepare(run, index, "backward")
    end = int(ids.lengths[0])

    def run_lacking(model: Model, ids: BatchIds) -> Run:
        run = run_packed(model, ids)
        first = run.outputs[:end].detach()
        return replace(run, outputs=torch.cat([first, run.outputs[end:]]))

    generator = run.make_generator()
    return check_backward(model, ids, generator=generator, ways={**WAYS, "packed": run_lacking})


def _prepare(run: Verification, index: int, level: str) -> tuple[Model, BatchIds]:
    limits = choose_limits(level, run.device, max_tokens=run.options.max_batch_tokens)
    _, batch = run.read(index)
    return run.build_model(dtype=_judged_dtype(run)), take_ids(batch, run.device, limits)


def _judged_dtype(run: Verification) -> torch.dtype:
    """Return float32 for 16-bit models, whose errors are not judged."""
    return run.dtype if run.dtype in GATES else torch.float32
