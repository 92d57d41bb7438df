"""Draw the pictures of docs/scale.md from the figures that bench_scale.py kept.

python benchmarks/draw_scale.py [FOLDER]
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from seqpack_cli.reporting.pictures.colours import DARK, LIGHT, MIDDLE
from seqpack_cli.reporting.pictures.picture import Panel, save_picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FIGURES = Path(__file__).with_name("scale.json")
PICTURES = Path(__file__).parent.parent / "docs" / "pictures"
STYLES = ((DARK, "o", "-"), (MIDDLE, "s", "--"), (LIGHT, "^", "-."))
NAMES = {
    "length": "length order",
    "windows": "windows of 4,096",
    "whole": "shuffled",
    "verify": "verify --level structure",
}
# Case: its title, the horizontal axis, and the unit of that.
CASES = {
    "workers": ("Time by number of workers", "workers", 1),
    "size": ("Time and memory by size of the input", "JSON lines, GB", 1e9),
    "sequences": ("Time and memory of planning", "sequences", 1),
}
AXES = {
    "seconds": "seconds",
    "processor_seconds": "seconds of all processors",
    "peak_megabytes": "largest process, MB",
}
PANELS = {
    "workers": ("seconds", "processor_seconds"),
    "size": ("seconds", "peak_megabytes"),
    "sequences": ("seconds", "peak_megabytes"),
}
MOST_SPELLED = 10_000
Series = dict[str, list[dict[str, float]]]


@click.command()
@click.argument("folder", default=PICTURES, type=click.Path(path_type=Path))
def main(folder: Path) -> None:
    """Draw one picture for each case."""
    draw_pictures(folder)


def draw_pictures(folder: Path) -> None:
    """Draw one picture for each case that was measured."""
    for case, series in json.loads(FIGURES.read_text())["figures"].items():
        title, _, _ = CASES[case]
        panels = [make_panel(case, series, measure) for measure in PANELS[case]]
        save_picture(folder / f"scale-{case}.svg", title, panels)


def make_panel(case: str, series: Series, measure: str) -> Panel:
    """Return the panel of one measure: a line for each command or plan."""
    from matplotlib.ticker import LogLocator

    _, what, unit = CASES[case]

    def draw(axes: Axes) -> None:
        places = sorted({point["at"] / unit for points in series.values() for point in points})
        for (name, points), (colour, marker, line) in zip(series.items(), STYLES, strict=False):
            found = [(point["at"] / unit, point[measure]) for point in points]
            label = NAMES.get(name, name)
            axes.plot(*zip(*found, strict=True), line, color=colour, marker=marker, label=label)
            for place in found:
                text, offset = spell_measure(place[1]), (0, 6)
                axes.annotate(text, place, xytext=offset, textcoords="offset points", fontsize=8)
        axes.set(xscale="log", yscale="log", xlabel=what, ylabel=AXES[measure])
        axes.margins(y=0.15)
        axes.set_xticks(places, list(map(spell, places)))
        axes.xaxis.minorticks_off()
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.minorticks_off()
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
        axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))

    return Panel(measure, AXES[measure], draw)


def spell_measure(number: float) -> str:
    """Return seconds or MB with three digits, or as a whole number."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def spell(number: float) -> str:
    """Return a number of the horizontal axis, a large power of ten as it is written in options."""
    return f"{number:.3g}" if number < MOST_SPELLED else f"1e{len(str(round(number))) - 1}"


if __name__ == "__main__":
    main()
