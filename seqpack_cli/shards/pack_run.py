"""The pack run: a token store -> a plan of batches -> shards -> manifest.

The plan follows from the lengths and options alone, so shards are independent tasks: each worker
maps the store, finds the rows of its batches where the plan names only their range, gathers them
and publishes one file. What the plan leaves out is in the ledger, by reason.
"""

from __future__ import annotations

import platform
import time
from pathlib import Path
from typing import Any

import numpy as np

from seqpack_cli.batching.pack_options import PLAN_VERSION, PackOptions
from seqpack_cli.batching.plan import Plan, needs_array
from seqpack_cli.errors import OptionError
from seqpack_cli.files.copy_marks import find_began, hashing_copies
from seqpack_cli.files.json_files import write_json
from seqpack_cli.files.places import at
from seqpack_cli.files.url import Place, is_shared
from seqpack_cli.runs.execution import Executor, count_cores, hold_executor, run_tasks
from seqpack_cli.runs.progress import Progress
from seqpack_cli.runs.run_folder import RUN_NAME, RunFolder, open_run
from seqpack_cli.shards.count_store import count_store
from seqpack_cli.shards.pack_plan import (
    check_memory,
    choose_pad_id,
    cut_shards,
    describe_lent_pad_id,
    plan_store,
)
from seqpack_cli.shards.pack_shard import ShardTask, count_rows, make_shard
from seqpack_cli.shards.recorded_options import record_options
from seqpack_cli.shards.shard_manifest import (
    FORMAT,
    FORMAT_VERSION,
    SHARD_FIELDS,
    check_ledger,
    make_manifest,
)
from seqpack_cli.shards.shard_set import open_shards
from seqpack_cli.tokens.token_store import TokenStore, open_store


@hashing_copies()
def pack_store(
    store_path: Place,
    output: Place,
    options: PackOptions | None = None,
    *,
    num_workers: int | None = None,
    executor: Executor | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> tuple[dict[str, Any], bool]:
    """Pack a token store into shards.

    Args:
        output: the shards' folder; an interrupted run there is continued.
        num_workers: processes; None takes one a core.
        executor: where they are; None is this machine.

    Returns:
        The shards' manifest, and whether it was complete before.

    Raises:
        SeqpackError: see its children; nothing unfinished counts as shards.
    """
    options = (options or PackOptions()).resolve()
    progress = progress or Progress()
    executor = executor or Executor()
    if not (is_shared(store_path) and is_shared(output)):
        num_workers = executor.keep_here()
    with hold_executor(executor, num_workers=num_workers):
        return _pack_store(
            store_path,
            output,
            options,
            num_workers=num_workers,
            executor=executor,
            overwrite=overwrite,
            progress=progress,
        )


def _pack_store(
    store_path: Place,
    output: Place,
    options: PackOptions,
    *,
    num_workers: int | None,
    executor: Executor,
    overwrite: bool,
    progress: Progress,
) -> tuple[dict[str, Any], bool]:
    started = time.monotonic()
    is_here = executor.name == "local" or needs_array(options)
    store = open_store(store_path, check_indices=is_here)
    if at(output).find_real_name() == at(store_path).find_real_name():
        raise OptionError(f"{output}: is the token store itself", hint="choose another -o")
    head = _make_head(store, options)
    found = None if is_here else count_store(store, num_workers=num_workers, executor=executor)
    plan = plan_store(store, options, found)
    check_memory(plan.table, np.dtype(store.dtype).itemsize)
    with open_run(output, head, overwrite=overwrite) as run:
        output = run.path  # which knows the holder of its lock
        if run.manifest is not None:
            run.check_whole(open_shards)
            return run.manifest, True
        note = describe_lent_pad_id(store, options)
        if note is not None:
            progress.on_notice(note)
        run.write_tokenizer(store.read_tokenizer_json())
        tasks = _make_tasks(store, store_path, output, head, plan, options)
        receipts = _make_shards(run, tasks, num_workers, executor, progress)
        manifest = make_manifest(store, store_path, output, head, plan, receipts)
        check_ledger(manifest["ledger"], store)
        seconds = time.monotonic() - started
        write_json(output / RUN_NAME, _describe_run(manifest, num_workers, executor, seconds))
        run.finish(manifest, receipts)
    return manifest, False


def _make_head(store: TokenStore, options: PackOptions) -> dict[str, Any]:
    """Give what the manifest says before anything is packed; a continued run must agree."""
    pad_id = choose_pad_id(store, options)
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "plan_version": PLAN_VERSION,
        "layout": options.layout,
        "dtype": store.dtype,
        "pad_id": pad_id,
        "padding_side": options.padding_side,
        "tokenizer_blake3": store.manifest["tokenizer_blake3"],
        "tokens_blake3": store.digest,
        "options": record_options(options),
    }


def _make_tasks(
    store: TokenStore,
    store_path: Place,
    output: Place,
    head: dict[str, Any],
    plan: Plan,
    options: PackOptions,
) -> list[ShardTask]:
    began = find_began()
    cuts = cut_shards(plan.table, options, np.dtype(store.dtype).itemsize)
    return [
        ShardTask(number, output, store_path.resolve(), head, rows, began)
        for number, rows in enumerate(plan.cut(cuts))
    ]


def _make_shards(
    run: RunFolder,
    tasks: list[ShardTask],
    num_workers: int | None,
    executor: Executor,
    progress: Progress,
) -> list[dict[str, Any]]:
    """Make the shards that are not there yet; give all receipts in order."""
    named = {Path(str(task)).stem: task for task in tasks}
    receipts = dict(enumerate(run.read_receipts(named, lambda task: _read_receipt(run, task))))
    waiting = [task for task in tasks if receipts[task.number] is None]
    if len(waiting) < len(tasks):
        progress.on_notice(
            f"{len(tasks) - len(waiting)} of {len(tasks)} shards were finished before"
        )
    for number, receipt in run_tasks(
        make_shard, waiting, num_workers=num_workers, progress=progress, executor=executor
    ):
        receipts[number] = receipt
    return [receipt for receipt in receipts.values() if receipt is not None]


def _read_receipt(run: RunFolder, task: ShardTask) -> dict[str, Any] | None:
    """Give the receipt of a finished shard if it says what the plan says."""
    receipt = run.read_receipt(Path(str(task)).stem, SHARD_FIELDS)
    expected = {"name": str(task), **count_rows(task)}
    if receipt is None or any(receipt[name] != value for name, value in expected.items()):
        return None
    return {name: receipt[name] for name in SHARD_FIELDS}


def _describe_run(
    manifest: dict[str, Any], num_workers: int | None, executor: Executor, seconds: float
) -> dict[str, Any]:
    """Say how the run was done; no reader needs it."""
    num_tokens = manifest["ledger"]["num_tokens"]
    return {
        "executor": executor.name,
        "num_workers": num_workers or (count_cores() if executor.name == "local" else None),
        "seconds": round(seconds, 3),
        "tokens_per_second": round(num_tokens / seconds),
        "versions": {"python": platform.python_version(), "numpy": np.__version__},
    }
