"""The report of `seqpack verify` in the terminal: coverage, largest errors, findings."""

from __future__ import annotations

import re
from typing import Any

from seqpack_cli.errors import MAX_LISTED_ITEMS, join_items
from seqpack_cli.reporting.terminal.model_lines import show_model
from seqpack_cli.reporting.wording import count, show_rounded

MAX_FINDINGS = 4 * MAX_LISTED_ITEMS
VARYING = re.compile(
    r": (all |from )?its tokens?\b.*|\d[\d,.]*(e[-+]\d+)?"
)  # in findings of one kind
BATCH = re.compile(r"(.*): batch (\d+):")  # the shard and the batch of a finding
CAUGHT = {True: "caught", False: "MISSED", None: "n/a"}  # n/a: not possible in this shard


def summarize(report: dict[str, Any], findings: list[str]) -> list[str]:
    """Return the lines of any verify report: of a shard set, of pairs, or of splits."""
    if "splits" in report:
        return summarize_splits(report, findings)
    return (summarize_pairs if "sides" in report else summarize_verify)(report, findings)


def summarize_verify(report: dict[str, Any], findings: list[str]) -> list[str]:
    """Return the lines of a verify report."""
    side = "" if report["side"] is None else f" {report['side']}:"
    lines = [
        f"{report['shards']}:{side} {report['layout']}, {count(report['num_batches'], 'batch')}, "
        f"{count(report['num_sequences'], 'sequence')}, {count(report['num_tokens'], 'token')}",
        f"on {_describe_device(report)}, {_describe_model(report)}, {report['dtype']}, "
        f"seed {report['seed']}",
        "",
        f"  {'level':<10} {'result':<6} {'batches':>18} {'tokens':>7} {'tokens/s':>8}  "
        "largest error / limit",
    ]
    failed = {finding["level"] for finding in report["findings"]}
    for level in report["levels"]:
        lines.append(_show_level(level, report, failed=level["level"] in failed))
    lines.append(_show_plan(report["plan"]))
    lines += show_model(report["model"])
    lines += [*_show_columns(report), *_show_labels(report)]
    lines += [f"  note: {note}" for note in _coverage_notes(report)]
    lines += _show_speeds(report) + _show_controls(report["controls"])
    lines += _show_findings(findings)
    return [*lines, "", count(len(findings), "fault") if findings else _judge(report)]


def summarize_pairs(report: dict[str, Any], findings: list[str]) -> list[str]:
    """Return the lines of a verify report of pairs: of each side, then of both together.

    Args:
        findings: of all, shown once, at the end.
    """
    lines: list[str] = []
    for side in report["sides"].values():
        lines += [*summarize_verify(side, [])[:-1]]
    documents = report["documents"]
    if documents["compared"]:
        same = "" if report["findings"] else "; both sides of each have the same document number"
        lines.append(f"{report['shards']}: {count(documents['num_documents'], 'pair')}{same}")
    else:
        lines.append(f"{report['shards']}: documents not compared: {documents['why_not']}")
    lines += _show_controls(report["controls"]) + _show_findings(findings)
    if findings:
        return [*lines, "", count(len(findings), "fault")]
    verdicts = dict.fromkeys(map(_judge, report["sides"].values()))
    return [*lines, "", "; ".join(verdicts)]


def summarize_splits(report: dict[str, Any], findings: list[str]) -> list[str]:
    """Return the lines of a verify report of splits: of each split, then of all together.

    Args:
        findings: of all, shown once, at the end.
    """
    lines: list[str] = []
    for split in report["splits"].values():
        *some, _, verdict = summarize(split, [])
        num_faults = len(split["findings"])
        lines += [*some, f"  {count(num_faults, 'fault') if num_faults else verdict}", ""]
    names, documents = join_items(report["splits"]), report["documents"]
    lines.append(f"{report['path']}: {count(len(report['splits']), 'split')}: {names}")
    if not documents["compared"]:
        lines.append(f"  documents: not compared: {documents['why_not']}")
    elif report["findings"]:
        lines.append(f"  documents: compared {documents['num_documents']:,}")
    else:
        found = f"{documents['num_documents']:,} packed, each in exactly one split"
        lines.append(f"  documents: {found}")
    lines += _show_controls(report["controls"]) + _show_findings(findings)
    verdict = "all splits passed"
    if not documents["compared"]:
        verdict += "; the documents were not compared"
    return [*lines, "", count(len(findings), "fault") if findings else verdict]


def _show_findings(findings: list[str]) -> list[str]:
    """Return the first findings; of those that only numbers and tokens tell apart, a few."""
    alike: dict[str, list[str]] = {}
    for finding in findings:
        alike.setdefault(VARYING.sub("#", finding), []).append(finding)
    lines = [""] if findings else []
    num_left, num_hidden = MAX_FINDINGS, 0
    for group in alike.values():
        if not num_left:
            num_hidden += len(group)
            continue
        shown = group[: min(num_left, MAX_LISTED_ITEMS)]
        num_left -= len(shown)
        lines += shown
        if others := group[len(shown) :]:
            batches = {(where[1], where[2]) for each in others if (where := BATCH.match(each))}
            places = f" in {count(len(batches), 'batch')}" if batches else ""
            lines.append(f"and {len(others):,} more like this{places} (all with --json)")
    if num_hidden:
        lines.append(f"and {num_hidden:,} more (all with --json)")
    return lines


def _judge(report: dict[str, Any]) -> str:
    """Return the last line of a report without findings."""
    levels = [level["level"] for level in report["levels"] if level["num_batches"]]
    if report["is_gate"] or len(levels) <= 2:
        plan = "" if report["plan"]["compared"] else "; the plan was not compared"
        return f"all levels passed{plan}"
    return (
        f"{join_items(levels[:2])}: passed; "
        f"{join_items(levels[2:])}: 16-bit errors are reported, not judged"
    )


def _describe_device(report: dict[str, Any]) -> str:
    if report["device_name"] == "CPU":
        return str(report["device"])
    return f"{report['device']} ({report['device_name']})"


def _describe_model(report: dict[str, Any]) -> str:
    """Describe the model: its cell, and what differs from the defaults."""
    if report["model"] is not None:
        return str(report["model"]["model"])
    words = [report["cell"] or "no model"]
    if report["num_layers"] > 1:
        words.append(count(report["num_layers"], "layer"))
    if report["bidirectional"]:
        words.append("bidirectional")
    if report["hidden_size"] != 64:
        words.append(f"hidden size {report['hidden_size']}")
    return ", ".join(words)


def _show_level(level: dict[str, Any], report: dict[str, Any], *, failed: bool) -> str:
    result = "FAULT" if failed else "ok" if level["num_batches"] else "none"
    share = level["num_tokens"] / max(report["num_tokens"], 1)
    batches = f"{level['num_batches']:,} of {report['num_batches']:,}"
    line = (
        f"  {level['level']:<10} {result:<6} {batches:>18} {share:>7.1%} "
        f"{show_rounded(level['tokens_per_second']):>8}"
    )
    judged = [size for size in level["errors"].values() if size["limit"] > 0]
    if judged:
        worst = max(judged, key=lambda size: float(size["error"]) / size["limit"])
        line += f"  {float(worst['error']):.1e} / {worst['limit']:.1e}"
    return line if report["is_gate"] or not judged else f"{line} (not judged)"


def _show_plan(plan: dict[str, Any]) -> str:
    if plan["compared"]:
        return f"  plan: compared with the token store (plan version {plan['plan_version']})"
    return f"  plan: not compared: {plan['why_not']}"


def _show_columns(report: dict[str, Any]) -> list[str]:
    if not report["columns"]:
        return []
    num_values = sum(level["num_column_values"] for level in report["levels"])
    compared = f"compared {count(num_values, 'value')} with the token store"
    if not num_values:
        compared = "values not compared"
    return [f"  columns: {len(report['columns']):,}, {compared}"]


def _show_labels(report: dict[str, Any]) -> list[str]:
    num_tokens = sum(level["num_labels"] for level in report["levels"])
    num_targets = sum(level["num_label_targets"] for level in report["levels"])
    if not num_tokens:
        return []
    compared = f'compared the labels "next" and "same" of {count(num_tokens, "token")}'
    return [f"  labels: {compared}, {num_targets:,} of them targets"]


def _coverage_notes(report: dict[str, Any]) -> list[str]:
    notes = []
    for level in report["levels"]:
        name = level["level"]
        if level["num_sampled_batches"]:
            sampled = count(level["num_sampled_batches"], "batch")
            notes.append(f"{name}: checked {sampled} with unpack_sequence and pack_sequence too")
        if level["num_cut_batches"]:
            large = count(level["num_cut_batches"], "large batch")
            notes.append(
                f"{name}: computed only part of {large}: the time steps in which most rows end"
            )
    return [*notes, *report["notes"]]


def _show_speeds(report: dict[str, Any]) -> list[str]:
    speeds, hidden_size = report["layout_speeds"], report["hidden_size"]
    if not speeds:
        return []
    lines = ["", f"  {'layout':<10} {'forward':>12} {'forward and backward':>22}"]
    for speed in speeds:
        lines.append(
            f"  {speed['layout']:<10} {show_rounded(speed['forward']):>12} "
            f"{show_rounded(speed['training']):>22}"
        )
    best, second = sorted(speeds[:2], key=lambda speed: -float(speed["training"]))
    times = best["training"] / second["training"]
    return [
        *lines,
        "  tokens/s, padding not counted; dense is the same tokens in rows of equal length",
        f"  {best['layout']} trains {times:.1f} x as fast as {second['layout']} on this device "
        f"with hidden size {hidden_size}",
    ]


def _show_controls(controls: list[dict[str, Any]]) -> list[str]:
    if not controls:
        return []
    lines = ["", f"  {'damage (in memory)':<28} {'result':<9} {'level':<10} finding"]
    for control in controls:
        lines.append(
            f"  {control['name']:<28} {CAUGHT[control['caught']]:<9} {control['level']:<10} "
            f"{control['found']}"
        )
    return lines
