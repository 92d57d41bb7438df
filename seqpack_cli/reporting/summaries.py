"""What a command says when it is done: a few lines for the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seqpack_cli.errors import MAX_LISTED_ITEMS, join_items
from seqpack_cli.reporting.tables import count

MAX_FINDINGS = 4 * MAX_LISTED_ITEMS


def summarize_tokenize(output: Path, manifest: dict[str, Any], *, was_complete: bool) -> list[str]:
    """Say what a token store holds, and what of the input it does not."""
    ledger = manifest["ledger"]
    lines = [
        _done(output, was_complete=was_complete),
        f"  {count(ledger['num_documents'], 'document')} -> "
        f"{count(ledger['num_sequences'], 'sequence')}, {count(ledger['num_tokens'], 'token')} "
        f"({manifest['dtype']}, {count(len(manifest['parts']), 'part')})",
    ]
    for name, text in (
        ("num_empty_documents", "empty documents, which have no sequence"),
        ("num_rejected", "records put aside in rejects.jsonl"),
        ("num_dropped_documents", "documents dropped as too long"),
        ("num_truncated_tokens", "tokens cut off"),
        ("num_special_tokens_in_text", "special tokens spelled in the text"),
    ):
        if ledger[name]:
            lines.append(f"  {text}: {ledger[name]:,}")
    return lines


def summarize_pack(output: Path, manifest: dict[str, Any], *, was_complete: bool) -> list[str]:
    """Say what shards hold, and what of the store they do not."""
    ledger = manifest["ledger"]
    num_cells = ledger["num_tokens"] + ledger["num_padding_cells"]
    batches = count(ledger["num_batches"], manifest["layout"] + " batch")
    lines = [
        _done(output, was_complete=was_complete),
        f"  {count(ledger['num_sequences'], 'sequence')}, "
        f"{count(ledger['num_tokens'], 'token')} -> "
        f"{batches}, {count(len(manifest['shards']), 'shard')}",
    ]
    if manifest["layout"] == "varlen":
        capacity = manifest["options"]["max_tokens"]
        bound = -(-ledger["num_tokens"] // capacity)
        lines.append(
            f"  {ledger['num_batches'] / bound - 1:.2%} above the lower bound {bound:,}: "
            f"all tokens / {capacity:,}, rounded up"
        )
    else:
        lines.append(f"  {ledger['num_padding_cells'] / num_cells:.2%} of the cells are padding")
    if manifest["bucket_keys"] is not None:
        lines.append(f"  buckets: {join_items(manifest['bucket_keys'])}")
    for name, text in (
        ("num_filler_rows", "empty rows that fill up last batches"),
        ("num_split_sequences", "sequences split into pieces"),
    ):
        if ledger[name]:
            lines.append(f"  {text}: {ledger[name]:,}")
    for reason, num_dropped in ledger["num_dropped_sequences"].items():
        tokens = ledger["num_dropped_tokens"][reason]
        lines.append(
            f"  {count(num_dropped, 'sequence')}, {count(tokens, 'token')} dropped by {reason}"
        )
    return lines


def summarize_verify(report: dict[str, Any], findings: list[str]) -> list[str]:
    """Show a verify report: coverage, the error nearest to its limit, and findings."""
    device = report["device"]
    if report["device_name"] != "CPU":
        device += f" ({report['device_name']})"
    lines = [
        f"{report['shards']}: {report['layout']}, {count(report['num_batches'], 'batch')}, "
        f"{count(report['num_sequences'], 'sequence')}, {count(report['num_tokens'], 'token')}",
        f"on {device}, {report['cell']}, {report['dtype']}, seed {report['seed']}",
        "",
        f"  {'level':<10} {'result':<7} {'batches':>13} {'tokens':>7} {'seconds':>8}  "
        "largest error / limit",
    ]
    failed = {finding["level"] for finding in report["findings"]}
    for level in report["levels"]:
        lines.append(_show_level(level, report, failed=level["level"] in failed))
    lines += [f"  note: {note}" for note in _coverage_notes(report)]
    lines += ["", *findings[:MAX_FINDINGS]] if findings else []
    if len(findings) > MAX_FINDINGS:
        lines.append(f"and {len(findings) - MAX_FINDINGS:,} more (all with --json)")
    verdict = "proven at these levels" if report["passed"] else count(len(findings), "fault")
    return [*lines, "", verdict]


def _show_level(level: dict[str, Any], report: dict[str, Any], *, failed: bool) -> str:
    result = "FAULT" if failed else "ok" if level["num_batches"] else "none"
    share = level["num_tokens"] / max(report["num_tokens"], 1)
    batches = f"{level['num_batches']:,} of {report['num_batches']:,}"
    line = (
        f"  {level['level']:<10} {result:<7} {batches:>13} {share:>7.1%} {level['seconds']:>8.2f}"
    )
    judged = [size for size in level["errors"].values() if size["limit"] > 0]
    if judged:
        worst = max(judged, key=lambda size: float(size["error"] / size["limit"]))
        line += f"  {worst['error']:.1e} / {worst['limit']:.1e}"
    return line if report["is_gate"] or not judged else f"{line} (not judged)"


def _coverage_notes(report: dict[str, Any]) -> list[str]:
    cut = {
        level["level"]: level["num_cut_batches"]
        for level in report["levels"]
        if level["num_cut_batches"]
    }
    notes = [
        f"{name}: of {count(number, 'large batch')}, only the steps where most rows end"
        for name, number in cut.items()
    ]
    return [*notes, *report["notes"]]


def _done(output: Path, *, was_complete: bool) -> str:
    return f"{output}: already complete" if was_complete else f"{output}: complete"
