"""Publish what stands beside the parts of a token store, the manifest last."""

from __future__ import annotations

from typing import Any

from seqpack_cli.corpus.sources import Source
from seqpack_cli.errors import DataError, join_items
from seqpack_cli.runs.run_folder import RunFolder
from seqpack_cli.runs.workers import Executor
from seqpack_cli.tokens.receipts import write_rejects
from seqpack_cli.tokens.store_manifest import is_balanced


def publish_store(
    run: RunFolder,
    sources: list[Source],
    manifest: dict[str, Any],
    receipts: list[dict[str, Any]],
    done: dict[str, Any],
    versions: dict[str, str],
) -> None:
    """Publish the rejected records, `run.json` and the manifest.

    Args:
        done: how the run was done, for `run.json`.
        versions: of the packages that did the work.
    """
    if not is_balanced(manifest["ledger"]):
        raise AssertionError(f"the ledger does not add up: {manifest['ledger']}")
    write_rejects(run, sources, manifest["parts"], receipts)
    run.write_record(done, versions)
    run.finish(manifest, [file for receipt in receipts for file in receipt["files"]])


def describe_run(executor: Executor, sources: list[Source], seconds: float) -> dict[str, Any]:
    """Return how a run was done, for `run.json`; no reader needs it."""
    num_bytes = sum(source.num_bytes for source in sources)
    return {
        "executor": executor.name,
        "num_workers": executor.num_workers,
        "seconds": round(seconds, 3),
        "input_megabytes_per_second": round(num_bytes / 1e6 / seconds, 3),
    }


def check_any_token(
    run: RunFolder,
    sources: list[Source],
    manifest: dict[str, Any],
    receipts: list[dict[str, Any]],
) -> None:
    """Remove what the run wrote and raise DataError if no document has a token."""
    ledger, hint = manifest["ledger"], None
    if ledger["num_sequences"]:
        return
    run.abandon()
    num, num_dropped = ledger["num_documents"], ledger["num_dropped_documents"]
    found = f"{num:,} document{'s' * (num != 1)} read"
    if rejects := [reject for receipt in receipts for reject in receipt["rejects"]]:
        found += f", {len(rejects):,} of them rejected: {rejects[0][-1]}"
    if num_dropped:
        found += f", {num_dropped:,} dropped by --max-length {manifest['options']['max_length']}"
        hint = "pass a larger --max-length, or --overflow split"
    paths = join_items(source.path for source in sources)
    raise DataError(f"{paths}: no document with a token ({found})", hint)
