"""The lines of verify in the terminal: marks of the checks of a model, and findings alike."""

from __future__ import annotations

from typing import Any

import pytest

from seqpack_cli.reporting.terminal.model_lines import show_model
from seqpack_cli.reporting.terminal.verify_summary import _show_speeds, summarize_splits

LIMITS = {"float64": 1e-9, "float32": 1e-4, "bfloat16": 5e-2}


def check(errors: dict[str, Any], num_batches: int = 2, **why_not: int) -> dict[str, Any]:
    sizes = {dtype: {"error": error, "limit": LIMITS[dtype]} for dtype, error in errors.items()}
    found = {"num_batches": num_batches, "num_sequences": 9, "errors": sizes}
    return {**found, "why_not": {name.replace("_", " "): each for name, each in why_not.items()}}


@pytest.mark.parametrize(
    ("name", "found", "judged", "line"),
    [
        ("alone", check({"float32": 1e-6}), ["float32"], "ok           9 sequences of 2 batches;"),
        ("alone", check({"float64": 1e-8, "float32": 1e-8}), ["float64", "float32"], "FAULT  "),
        ("alone", check({"float32": "inf"}), ["float32"], "FAULT  "),
        ("alone", check({"bfloat16": 0.2}), [], "not judged   9 sequences"),
        ("isolation", check({"bfloat16": 0.2}), [], "FAULT  "),
        ("alone", check({}, 0, no_padding=2), ["float32"], "not checked  in 2 batches: no padding"),
        ("alone", check({"float32": 0}, no_padding=1), ["float32"], "ok  "),
    ],
)
def test_each_check_of_a_model_has_a_mark(
    name: str, found: dict[str, Any], judged: list[str], line: str
) -> None:
    model = {"num_batches": 2, "outputs": "token", "mode": "train", "dropout": [], "notes": []}
    shown = show_model({**model, "judged": judged, "checks": {name: found}})[1]
    assert shown.startswith(f"    {name:<10} {line}")


def summarize(findings: list[str]) -> list[str]:
    documents = {"compared": True, "num_documents": 1}
    report = {"path": "out", "splits": {}, "documents": documents, "controls": []}
    lines = summarize_splits({**report, "findings": findings}, findings)
    return lines[lines.index("") + 1 : -2]


def test_findings_alike_are_shown_a_few_times() -> None:
    alone = (
        "model: shard-0.safetensors: batch {}: row 3: outputs of sequence {} differ: {} (error 1)"
    )
    tokens = ("all its tokens", "its token 3", "from its token 4 on")
    findings = [alone.format(each // 2, each, tokens[each % 3]) for each in range(12)]
    other = "model: shard-0: batch 0: row 3: outputs of sequence 1 change"
    shown = summarize([findings[0], other, *findings[1:]])
    assert shown == [
        *findings[:5],
        "and 7 more like this in 4 batches (all with --json)",
        other,
    ]


def test_speeds_name_the_hidden_size() -> None:
    speeds = [
        {"layout": layout, "forward": 5e6, "training": training}
        for layout, training in (("packed", 1e6), ("padded", 2e6), ("dense", 3e6))
    ]
    shown = _show_speeds({"layout_speeds": speeds, "hidden_size": 160})
    expected = "padded trains 2.0 x as fast as packed on this device with hidden size 160"
    assert shown[-1].strip() == expected
    assert _show_speeds({"layout_speeds": [], "hidden_size": 160}) == []


def test_at_most_twenty_findings_are_shown() -> None:
    kinds = [f"structure: shard {chr(97 + kind)}: wrong {{}}" for kind in range(6)]
    shown = summarize([kind.format(number) for kind in kinds for number in range(4)])
    assert shown[-1] == "and 4 more (all with --json)"
    assert len(shown) == 21
