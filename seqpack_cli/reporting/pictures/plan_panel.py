"""The picture of `seqpack plan`: the padding of each way to pack as a bar."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, Any

from seqpack_cli.batching.options import ENCODER, LAYOUTS, SIDES
from seqpack_cli.reporting.pack_ways import find_best, read_options
from seqpack_cli.reporting.pictures.colours import DARK, LABEL_BOX, LIGHT, MIDDLE
from seqpack_cli.reporting.pictures.picture import Panel
from seqpack_cli.reporting.pictures.ticks import label_shares
from seqpack_cli.reporting.wording import count, show_share

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HEIGHT_OF_BAR = 0.25  # inches
CHARACTER_WIDTH = 0.0125  # of the axis, at 8 points
# The colour and hatch of each layout, in the order of their table.
BARS = dict(
    zip(LAYOUTS, cycle([(DARK, ""), (MIDDLE, ""), (LIGHT, "///"), (DARK, "///")]), strict=False)
)


def make_plan_panel(compared: dict[str, Any]) -> Panel:
    """Return the panel of the padding of each way.

    Args:
        compared: what `compare_plans` returns.
    """
    plans = compared["plans"]
    best = find_best(plans)
    colours, hatches = zip(*(BARS[read_options(plan)["layout"]] for plan in plans), strict=True)

    def draw(axes: Axes) -> None:
        places = range(len(plans))
        ratios = [plan["padding_ratio"] for plan in plans]
        axes.barh(places, ratios, color=colours, hatch=hatches, edgecolor="white")
        for place, plan in zip(places, plans, strict=True):
            text, ratio = _describe(plan) + (" *" if plan is best else ""), plan["padding_ratio"]
            has_room = ratio + CHARACTER_WIDTH * len(text) < 1
            axes.annotate(
                text,
                (ratio if has_room else 0, place),  # over its bar where there is no room beside it
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
                bbox=LABEL_BOX if has_room else None,
            )
        axes.set_yticks(places, [plan["options"].removeprefix("--layout ") for plan in plans])
        axes.tick_params("y", length=0, labelsize=8)
        axes.set_ylim(len(plans) - 0.4, -0.6)
        axes.set_xlim(0, 1)
        label_shares(axes.xaxis)
        axes.set_xlabel("padding: padded cells / all cells (*: least of the padded layouts)")
        axes.grid(visible=False, axis="y")
        axes.grid(visible=True, axis="x")

    title = f"Padding of {len(plans)} ways to pack" + " pairs" * ("num_pairs" in compared)
    return Panel("plan", title, draw, height=1.0 + HEIGHT_OF_BAR * len(plans))


def _describe(plan: dict[str, Any]) -> str:
    batches, cells = count(plan["num_batches"], "batch"), count(plan["most_cells"], "cell")
    share = show_share(plan["padding_ratio"])
    if ENCODER in plan:
        each = (f"{side} {show_share(plan[side]['padding_ratio'])}" for side in SIDES)
        share += f" ({', '.join(each)})"
    return f"{share}, {batches} of up to {cells}"
