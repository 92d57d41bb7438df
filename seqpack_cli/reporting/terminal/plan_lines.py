"""Show the comparison of `seqpack plan` as a table of 80 columns."""

from __future__ import annotations

from typing import Any

from seqpack_cli.batching.options import ENCODER, LAYOUTS, SIDES
from seqpack_cli.errors import escape_controls
from seqpack_cli.reporting.left_out import PAIR, list_not_packed
from seqpack_cli.reporting.pack_ways import find_best, read_options
from seqpack_cli.reporting.wording import WIDTH, count, cut, cut_front, show_bytes, show_rounded

HEAD = ("layout", "batch", "buckets", "batches", "padding", "size", "split", "largest")
HEAD_OF_PAIRS = (*HEAD[:5], *SIDES, "size")
LEAST_WIDTHS_OF_PAIRS = (7, 18, 7, 7, 8, 7, 7, 8)
LEAST_WIDTHS = (7, 17, 7, 7, 7, 8, 6, 9)
NUM_NAMES = 2  # columns of words, aligned left; numbers are aligned right
LIMITS = ("batch-size", "max-tokens")
EXACT_BELOW = 1_000_000
EXACT_CELLS_BELOW = 10_000_000  # which have a wider column
BEST = "*"
FOOTER = [
    "batch    at most this many rows (--batch-size), tokens or cells (--max-tokens),",
    "         or both: 8 rows x 2,048 cells, 64 streams x 128 steps;",
    "         unsorted: --order none; sequential, chunk: --fill; aligned:",
    "         --align-sequences",
    "buckets  --buckets auto with this --num-buckets",
    "split    sequences cut into pieces: longer than a row, or at the end of a chunk",
    "largest  cells of the largest batch",
]
FOOTER_OF_PAIRS = [
    "batch    at most this many pairs (--batch-size), tokens or cells (--max-tokens)",
    "         of the larger side, with sum of both (--count); unsorted: --order none",
    "buckets  how many --buckets auto chooses, at most --num-buckets",
    "padding  of both sides together, then of each",
]
NONE_DROPPED = "No sequence is dropped; varlen splits those that are longer than a row."


def show_plans(compared: dict[str, Any]) -> list[str]:
    """Return the table, and the options of the padded way with the least padding."""
    plans, are_pairs = compared["plans"], "num_pairs" in compared
    best = find_best(plans)
    head, least = (HEAD_OF_PAIRS, LEAST_WIDTHS_OF_PAIRS) if are_pairs else (HEAD, LEAST_WIDTHS)
    rows = [head, *(_make_row(plan, is_best=plan is best) for plan in plans)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    widths = [max(pair) for pair in zip(widths, least, strict=True)]
    for place in range(NUM_NAMES):
        widths[place] += sum(widths) + len(widths) - 1 < WIDTH
    numbers = _spell_counts(compared)
    return [
        cut_front(escape_controls(compared["path"]), WIDTH - len(numbers)) + numbers,
        "",
        *(cut(_join_cells(row, widths), WIDTH) for row in rows),
        "",
        f"{BEST} least padding of the padded layouts:",
        f"    {best['options']}",
        "",
        *(FOOTER_OF_PAIRS if are_pairs else FOOTER),
        *(_tell_left_out(compared) if are_pairs else _tell_dropped(compared)),
    ]


def _spell_counts(compared: dict[str, Any]) -> str:
    noun, longest = "sequences", [compared["longest"]]
    if "num_pairs" in compared:
        noun, longest = "pairs", compared["longest"]
    number = count(compared[f"num_{noun}"], noun.removesuffix("s"))
    return (
        f": {number}, {count(compared['num_tokens'], 'token')}, "
        f"longest {' + '.join(f'{each:,}' for each in longest)}"
    )


def _tell_left_out(compared: dict[str, Any]) -> list[str]:
    left_out = list_not_packed(compared, {}, noun=PAIR)
    return [f"Left out: {words}." for _, words in left_out] or ["No pair is left out."]


def _tell_dropped(compared: dict[str, Any]) -> list[str]:
    number = compared["num_sequences_without_target"]
    if not number:
        return [NONE_DROPPED]
    return [
        f"Left out: {count(number, 'sequence')} without a target (see --keep-without-target).",
        "varlen splits sequences that are longer than a row.",
    ]


def _make_row(plan: dict[str, Any], *, is_best: bool) -> tuple[str, ...]:
    options = read_options(plan)
    padding = f"{plan['padding_ratio']:.2%}"
    row = [
        options["layout"],
        _name_batch(options),
        options.get("num-buckets", ""),
        _show_number(plan["num_batches"]),
        padding + (BEST if is_best else " "),
    ]
    if ENCODER in plan:
        row[2] = str(len(plan["bucket_keys"] or ())) if "buckets" in options else ""
        row += [f"{plan[side]['padding_ratio']:.2%}" for side in SIDES]
        return (*row, show_bytes(plan["bytes"]))
    num_split = _show_number(plan["num_split_sequences"]) if "num_split_sequences" in plan else ""
    largest = _show_number(plan["most_cells"], EXACT_CELLS_BELOW)
    return (*row, show_bytes(plan["bytes"]), num_split, largest)


def _name_batch(options: dict[str, str]) -> str:
    """Name what limits a batch.

    >>> _name_batch({"layout": "padded", "batch-size": "64", "order": "none"})
    '64 rows, unsorted'
    >>> _name_batch({"layout": "streams", "batch-size": "64", "max-tokens": "128"})
    '64 x 128 steps'
    """
    rules = LAYOUTS[options["layout"]]
    numbers = [_show_number(int(options[name])) for name in LIMITS if name in options]
    if rules.shares_rows:
        more = [options["fill"]] if "fill" in options else []
        if "align-sequences" in options:
            more.append(f"aligned {options['align-sequences']}")
        unit = " steps" if rules.carries_state else "" if more or len(numbers) > 1 else " tokens"
        return ", ".join([" x ".join(numbers) + unit, *more])
    if "max-tokens" in options:
        unit = "cells" if rules.fills_rectangle else "tokens"
        return f"{numbers[-1]} {unit}" + (", sum" if options.get("count") == "sum" else "")
    rows = f"{numbers[0]} rows"
    return f"{rows}, unsorted" if options.get("order") == "none" else rows


def _show_number(number: int, exact_below: int = EXACT_BELOW) -> str:
    """Show a number exactly if it is narrow enough for its column, else in three digits.

    >>> _show_number(999_999), _show_number(2_147_483_647)
    ('999,999', '2.15 G')
    """
    return f"{number:,}" if number < exact_below else show_rounded(number)


def _join_cells(row: tuple[str, ...], widths: list[int]) -> str:
    cells = [
        cell.ljust(width) if place < NUM_NAMES else cell.rjust(width)
        for place, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return " ".join(cells).rstrip()
