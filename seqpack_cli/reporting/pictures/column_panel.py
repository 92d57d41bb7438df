"""The pictures of columns: how often each class occurs, and the histogram of numbers.

Bars stand beside each other in the order of their bins, whatever the numbers are: the axis of
numbers up to 1e308 has no ticks that matplotlib could place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from seqpack_cli.errors import escape_controls
from seqpack_cli.reporting.column_facts import spell_number, spell_value
from seqpack_cli.reporting.pictures.colours import DARK, HATCH, PALE
from seqpack_cli.reporting.pictures.picture import Panel
from seqpack_cli.reporting.pictures.ticks import label_counts
from seqpack_cli.reporting.wording import count, cut, show_share

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_PANELS = 4
MAX_BARS = 10  # of classes, the largest; one more is the sum of the others
MAX_NAME_COLUMNS = 24
HEIGHT_OF_BAR = 0.22  # inches
ROOM_FOR_NUMBERS = 1.2  # times the longest bar
MAX_DIGITS = 9  # of an integer below a bar; a longer one is rounded


def make_column_panels(columns: Sequence[dict[str, Any]]) -> list[Panel]:
    """Return a panel for each of the first columns of classes or numbers.

    Args:
        columns: what `describe_columns` returns.
    """
    makers = {
        "classes": _make_class_panel,
        "histogram": _make_number_panel,
        "shares": _make_target_panel,
    }
    found = [
        (column, maker) for column in columns for key, maker in makers.items() if key in column
    ]
    panels = [
        maker(column, f"column-{place}") for place, (column, maker) in enumerate(found[:MAX_PANELS])
    ]
    hidden = len(columns) - len(panels)
    if panels and hidden:
        title = f"{panels[-1].title} ({count(hidden, 'more column')} not drawn)"
        panels[-1] = replace(panels[-1], title=title)
    return panels


def _make_class_panel(column: dict[str, Any], name: str) -> Panel:
    classes = [entry for entry in column["classes"] if entry["count"]]
    shown, others = classes[:MAX_BARS], classes[MAX_BARS:]
    labels = [_name(spell_value(entry["name"])) for entry in shown]
    counts = [entry["count"] for entry in shown]
    if others:
        labels.append(count(len(others), "more class"))
        counts.append(sum(entry["count"] for entry in others))
    total = max(sum(counts), 1)

    def draw(axes: Axes) -> None:
        colours = [DARK] * len(shown) + [PALE] * bool(others)
        edges = ["white"] * len(shown) + [HATCH] * bool(others)
        bars = axes.barh(range(len(counts)), counts, color=colours, edgecolor=edges)
        texts = [f"{number:,} ({show_share(number / total)})" for number in counts]
        axes.bar_label(bars, texts, fontsize=8, padding=3)
        axes.set_yticks(range(len(labels)), labels)
        axes.tick_params("y", length=0, labelsize=8)
        axes.set_ylim(len(counts) - 0.4, -0.6)
        axes.set_xlim(0, ROOM_FOR_NUMBERS * max([*counts, 1]))
        label_counts(axes.xaxis)
        axes.set_xlabel(column["unit"])
        axes.grid(visible=False, axis="y")
        axes.grid(visible=True, axis="x")

    title = f"{_name(column['name'])}: {count(column['num_classes'], 'class')}"
    if column["num_unused_classes"]:
        title += f", {column['num_unused_classes']:,} unused"
    if column.get("num_without_class"):
        title += f"; {column['num_without_class']:,} {column['unit']} without a class"
    return Panel(name, title, draw, height=1.0 + HEIGHT_OF_BAR * max(len(counts), 1))


def _make_number_panel(column: dict[str, Any], name: str) -> Panel:
    bins = column["histogram"]
    title = f"{_name(column['name'])}: no values"
    if bins:
        smallest, largest = spell_number(column["smallest"]), spell_number(column["largest"])
        mean = spell_number(column["mean"])
        title = f"{_name(column['name'])}: {smallest} to {largest}, mean {mean}"
    return _make_histogram_panel(
        name, title, bins, [_spell_bin(each) for each in bins], column["unit"]
    )


def _make_target_panel(column: dict[str, Any], name: str) -> Panel:
    """Return the panel of the shares of targets, row by row."""
    bins = column["shares"]
    labels = [f"{entry['from']:.0%}\nto {entry['to']:.0%}" for entry in bins]
    title = f"{_name(column['name'])}: {show_share(column['share'])} of the tokens; "
    title += f"share per {column['row']}"
    return _make_histogram_panel(name, title, bins, labels, f"{column['row']}s")


def _make_histogram_panel(
    name: str, title: str, bins: Sequence[dict[str, Any]], labels: Sequence[str], unit: str
) -> Panel:
    def draw(axes: Axes) -> None:
        counts = [entry["count"] for entry in bins]
        bars = axes.bar(range(len(bins)), counts, width=1, color=DARK, ec="white", lw=0.5)
        axes.bar_label(bars, [f"{number:,}" for number in counts], fontsize=7, padding=1)
        axes.set_xticks(range(len(bins)), labels)
        axes.tick_params("x", length=0, labelsize=7)
        axes.set_ylim(0, ROOM_FOR_NUMBERS * max([*counts, 1]))
        label_counts(axes.yaxis)
        axes.set_ylabel(unit)

    return Panel(name, title, draw, height=2.4)


def _name(text: str) -> str:
    return cut(escape_controls(text), MAX_NAME_COLUMNS)


def _spell_bin(entry: dict[str, Any]) -> str:
    if entry["from"] == entry["to"]:
        return _spell(entry["from"])
    return f"{_spell(entry['from'])}\nto {_spell(entry['to'])}"


def _spell(value: float) -> str:
    is_short = isinstance(value, int) and len(str(value)) <= MAX_DIGITS
    return str(value) if is_short else f"{value:.4g}"
