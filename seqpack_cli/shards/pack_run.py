"""The pack run: a token store -> a plan of batches -> shards -> manifest.

The plan follows from the lengths and options alone, so shards are independent tasks: each worker
maps the store, gathers the rows of its batches and publishes one file. What the plan leaves out is
in the ledger, by reason.
"""

from __future__ import annotations

import dataclasses
import platform
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from seqpack_cli.batching.batch_plan import BatchOptions, BatchPlan, plan_batches
from seqpack_cli.errors import DataError, OptionError, check_choice, check_positive
from seqpack_cli.execution import Progress, count_cores, run_tasks
from seqpack_cli.run_folder import RUN_NAME, RunFolder, open_run
from seqpack_cli.shards.layouts import LAYOUTS
from seqpack_cli.shards.pack_shard import ShardTask, make_shard
from seqpack_cli.shards.shard_manifest import check_ledger, make_manifest
from seqpack_cli.shards.shard_set import FORMAT, FORMAT_VERSION, open_shards
from seqpack_cli.storage import publish, write_json
from seqpack_cli.tokens.token_store import TokenStore, open_store

DEFAULT_BATCH_SIZE = 64
BYTES_PER_ROW = 16  # its length and original index
BYTES_PER_STEP = 8  # its entry of batch_sizes


@dataclass(frozen=True)
class PackOptions:
    """All that decides the bytes of shards, besides the store."""

    layout: str = "packed"
    batch_size: int | None = None  # rows; None is 64, or no limit where max_tokens is given
    max_tokens: int | None = None
    min_length: int | None = None
    max_length: int | None = None
    last_batch: str = "keep"
    pad_id: int | None = None  # None takes the tokenizer's, or 0
    shard_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        check_choice("layout", self.layout, LAYOUTS)
        check_choice("last_batch", self.last_batch, ("keep", "drop"))
        for name in ("batch_size", "max_tokens", "min_length", "max_length", "shard_bytes"):
            check_positive(name, getattr(self, name))


def pack_store(
    store_path: Path,
    output: Path,
    options: PackOptions | None = None,
    *,
    num_workers: int | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> tuple[dict[str, Any], bool]:
    """Pack a token store into shards.

    Args:
        output: the shards' folder; an interrupted run there is continued.
        num_workers: processes; None takes one a core.

    Returns:
        The shards' manifest, and whether it was complete before.

    Raises:
        SeqpackError: see its children; nothing unfinished counts as shards.
    """
    options = options or PackOptions()
    if options.batch_size is None and options.max_tokens is None:
        options = dataclasses.replace(options, batch_size=DEFAULT_BATCH_SIZE)
    progress = progress or Progress()
    started = time.monotonic()
    store = open_store(store_path)
    if output.resolve() == store_path.resolve():
        raise OptionError(f"{output}: is the token store itself", hint="choose another -o")
    plan = _make_plan(store, options)
    batches = _plan_batches(store, options)
    with open_run(output, plan, overwrite=overwrite) as run:
        if run.manifest is not None:
            open_shards(output)  # or say what is damaged
            return run.manifest, True
        with publish(output / "tokenizer.json") as file:
            file.write(store.read_tokenizer_json())
        tasks = _make_tasks(store, store_path, output, plan, batches, options)
        receipts = _make_shards(run, tasks, num_workers or count_cores(), progress)
        manifest = make_manifest(store, store_path, output, plan, batches, receipts)
        check_ledger(manifest["ledger"], store)
        seconds = time.monotonic() - started
        write_json(output / RUN_NAME, _describe_run(manifest, num_workers, seconds))
        run.finish(manifest)
    return manifest, False


def _make_plan(store: TokenStore, options: PackOptions) -> dict[str, Any]:
    pad_id = options.pad_id
    if pad_id is None:
        pad_id = store.manifest.get("pad_id") or 0
    if not 0 <= pad_id <= store.max_id:
        raise OptionError(f"--pad-id {pad_id}: expected an id from 0 to {store.max_id}")
    values = dataclasses.asdict(options)
    del values["layout"], values["pad_id"]
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "layout": options.layout,
        "dtype": store.dtype,
        "pad_id": pad_id,
        "tokenizer_sha256": store.manifest["tokenizer_sha256"],
        "tokens_sha256": store.sha256,
        "options": values,
    }


def _plan_batches(store: TokenStore, options: PackOptions) -> BatchPlan:
    if options.max_tokens is not None:
        _check_budget(store, options.max_tokens, options.max_length)
    plan = plan_batches(
        store.lengths,
        BatchOptions(
            batch_size=options.batch_size,
            max_tokens=options.max_tokens,
            padded=options.layout == "padded",
            min_length=options.min_length,
            max_length=options.max_length,
            last_batch=options.last_batch,
        ),
    )
    if plan.num_batches == 0:
        raise DataError(
            f"{store.path}: no batch is left, dropped are {plan.num_dropped_sequences}",
            hint="loosen --min-length, --max-length or --last-batch",
        )
    return plan


def _check_budget(store: TokenStore, max_tokens: int, max_length: int | None) -> None:
    """Raise for the longest sequence that is kept and over the budget."""
    kept = store.lengths if max_length is None else store.lengths * (store.lengths <= max_length)
    longest = int(kept.argmax())
    length = int(kept[longest])
    if length > max_tokens:
        origin = store.locate(longest)
        raise OptionError(
            f"{store.path}: sequence {longest} ({origin.source}:{origin.record}) has {length:,} "
            f"tokens, --max-tokens is {max_tokens:,}",
            hint=f"pass --max-tokens {length}, drop longer ones with --max-length {max_tokens}, "
            f"or split them with tokenize --max-length {max_tokens}",
        )


def _make_tasks(
    store: TokenStore,
    store_path: Path,
    output: Path,
    plan: dict[str, Any],
    batches: BatchPlan,
    options: PackOptions,
) -> list[ShardTask]:
    cuts = _cut_shards(store, batches, options)
    tasks = []
    for number, (first, last) in enumerate(pairwise(cuts)):
        offsets = batches.batch_offsets[first : last + 1]
        indices = batches.order[offsets[0] : offsets[-1]]
        tasks.append(
            ShardTask(number, output, store_path.resolve(), plan, indices, offsets - offsets[0])
        )
    return tasks


def _cut_shards(store: TokenStore, batches: BatchPlan, options: PackOptions) -> list[int]:
    """Cut batches into shards of at most shard_bytes, or of one batch if that is larger."""
    starts = batches.batch_offsets[:-1]
    lengths = store.lengths[batches.order].astype(np.int64)
    num_rows = np.diff(batches.batch_offsets)
    longest = np.maximum.reduceat(lengths, starts)
    cells = num_rows * longest
    if options.layout == "packed":
        cells = np.add.reduceat(lengths, starts)
    itemsize = np.dtype(store.dtype).itemsize
    num_bytes = cells * itemsize + num_rows * BYTES_PER_ROW + longest * BYTES_PER_STEP
    cuts, filled = [0], 0
    for batch, size in enumerate(num_bytes.tolist()):
        if filled and filled + size > options.shard_bytes:
            cuts.append(batch)
            filled = 0
        filled += size
    return [*cuts, batches.num_batches]


def _make_shards(
    run: RunFolder, tasks: list[ShardTask], num_workers: int, progress: Progress
) -> list[dict[str, Any]]:
    """Make the shards that are not there yet; give all receipts in order."""
    receipts = {task.number: run.read_receipt(f"shard-{task.number:05d}") for task in tasks}
    waiting = [task for task in tasks if receipts[task.number] is None]
    if len(waiting) < len(tasks):
        progress.on_notice(
            f"{len(tasks) - len(waiting)} of {len(tasks)} shards were finished before"
        )
    for number, receipt in run_tasks(
        make_shard, waiting, num_workers=num_workers, progress=progress
    ):
        receipts[number] = receipt
    return [receipt for receipt in receipts.values() if receipt is not None]


def _describe_run(
    manifest: dict[str, Any], num_workers: int | None, seconds: float
) -> dict[str, Any]:
    """Say how the run was done; no reader needs it."""
    num_tokens = manifest["ledger"]["num_tokens"]
    return {
        "num_workers": num_workers or count_cores(),
        "seconds": round(seconds, 3),
        "tokens_per_second": round(num_tokens / seconds),
        "versions": {"python": platform.python_version(), "numpy": np.__version__},
    }
