"""Draw a batch from the lengths of its rows, in at most 16 bars of 60 blocks.

A packed batch is a staircase over the time steps, a padded batch a rectangle. A bar of several rows
shows where all of them and where only some have tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from seqpack_cli.reporting.wording import WIDTH, count, wrap

MAX_BARS = 16
MAX_BLOCKS = 60  # of a bar
MAX_BLOCKS_OF_STEP = 4  # if there are few steps
NUM_TICKS = 4
INDENT = 2
EIGHTHS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")
TOKENS, SOME, PADDING = "█", "▒", "░"


@dataclass(frozen=True)
class _Bar:
    """Consecutive rows that share a line."""

    label: str
    shortest: int
    longest: int


def draw_packed(lengths: Sequence[int], batch_sizes: Sequence[int]) -> list[str]:
    """Draw a packed batch as a staircase, with `batch_sizes` at a few steps.

    Args:
        lengths: of the rows, longest first.
        batch_sizes: number of rows alive at each step.
    """
    num_steps, bars = len(batch_sizes), _share_bars(lengths)
    label_width = label_width_of(["batch_sizes", *(bar.label for bar in bars)])
    num_blocks = count_blocks(num_steps, label_width)
    drawn = [(bar.label, _draw_stairs(bar, num_blocks / num_steps)) for bar in bars]
    ticks = _choose_ticks(num_steps, num_blocks, most=max(num_steps, batch_sizes[0]))
    axis = [(place, f"{step:,}") for place, step in ticks]
    axis.append((num_blocks, f"{num_steps:,}"))
    alive = [(place, f"{batch_sizes[step]:,}") for place, step in ticks]
    drawn += [("step", _place(axis, num_blocks)), ("batch_sizes", _place(alive, num_blocks))]
    title = f"{count(num_steps, 'time step')}; {spell_scale(num_steps, num_blocks, 'step')}"
    if len(bars) == len(lengths):
        return put_together([title], drawn, label_width)
    legend = f"{TOKENS} tokens in all rows of the bar, {SOME} in some"
    return put_together([title, legend], drawn, label_width)


def draw_padded(lengths: Sequence[int], width: int, *, padding_side: str) -> list[str]:
    """Draw a padded batch as a rectangle.

    Args:
        lengths: of the rows; filler rows have 0.
        width: columns of the rectangle, with padding.
    """
    bars = _share_bars(lengths)
    label_width = label_width_of(["column", *(bar.label for bar in bars)])
    num_blocks = count_blocks(width, label_width)
    drawn = []
    for bar in bars:
        num_full, num_held = (
            _count_held(length, width, num_blocks) for length in (bar.shortest, bar.longest)
        )
        blocks = TOKENS * num_full + SOME * (num_held - num_full)
        blocks += PADDING * (num_blocks - num_held)
        drawn.append((bar.label, blocks[::-1] if padding_side == "left" else blocks))
    drawn.append(("column", draw_axis(width, num_blocks)))
    title = f"{count(width, 'column')}; {spell_scale(width, num_blocks, 'column')}"
    legend = f"{TOKENS} tokens, {PADDING} padding"
    if len(bars) < len(lengths):
        legend = f"{TOKENS} tokens in all rows of the bar, {SOME} in some, {PADDING} padding"
    return put_together([title, legend], drawn, label_width)


def label_width_of(labels: Iterable[str]) -> int:
    """Return the width of the labels on the left of the bars."""
    return max(map(len, labels))


def count_blocks(num_steps: int, label_width: int) -> int:
    """Return the number of blocks of a bar: several per step if there are few steps."""
    room = min(MAX_BLOCKS, WIDTH - 2 * INDENT - label_width)
    return min(room, num_steps * max(min(room // num_steps, MAX_BLOCKS_OF_STEP), 1))


def spell_scale(num_steps: int, num_blocks: int, noun: str) -> str:
    """Return how many blocks a step has, or the other way round."""
    if num_blocks >= num_steps:
        return f"1 {noun} = {count(num_blocks // num_steps, 'block')}"
    return f"1 block = {num_steps / num_blocks:,.1f} {noun}s"


def draw_axis(num_steps: int, num_blocks: int) -> str:
    """Return the line below the bars: 0 on the left, the number of steps on the right."""
    return _place([(0, "0"), (num_blocks, f"{num_steps:,}")], num_blocks)


def put_together(
    title: Sequence[str], drawn: Iterable[tuple[str, str]], label_width: int
) -> list[str]:
    """Return the lines of a drawing: the title, broken where it is too long, and labelled bars."""
    named = [line for text in title for line in wrap(text, WIDTH - INDENT)]
    bars = [f"{label:<{label_width}}  {bar}" for label, bar in drawn]
    return [" " * INDENT + line for line in [*named, *bars]]


def _share_bars(lengths: Sequence[int]) -> list[_Bar]:
    """Divide the rows among bars, the same number to each."""
    size = -(-len(lengths) // MAX_BARS)
    bars = []
    for first in range(0, len(lengths), size):
        rows = lengths[first : first + size]
        last = first + len(rows) - 1
        label = f"rows {first:,}-{last:,}" if last > first else f"row {first:,}"
        bars.append(_Bar(label, min(rows), max(rows)))
    return bars


def draw_bar(num_blocks: float) -> str:
    """Draw a bar, to an eighth of a block.

    >>> draw_bar(2.5)
    '██▌'
    """
    full, part = divmod(int(num_blocks * 8 + 0.5), 8)
    return TOKENS * full + EIGHTHS[part]


def _count_held(length: int, width: int, num_blocks: int) -> int:
    """Return the number of blocks of tokens; any tokens and any padding have at least one."""
    num_held = (2 * length * num_blocks + width) // (2 * width)  # rounded
    num_held = min(num_held, num_blocks - (length < width))
    return max(num_held, min(length, 1))


def _draw_stairs(bar: _Bar, blocks_per_step: float) -> str:
    """Draw the steps of some rows, to an eighth of a block if they have about the same length."""
    num_full = int(bar.shortest * blocks_per_step + 0.5)
    num_held = max(int(bar.longest * blocks_per_step + 0.5), 1)
    if num_held > num_full and bar.longest > bar.shortest:
        return TOKENS * num_full + SOME * (num_held - num_full)
    mean = (bar.shortest + bar.longest) / 2
    return draw_bar(max(mean * blocks_per_step, 1 / 8))


def _choose_ticks(num_steps: int, num_blocks: int, *, most: int) -> list[tuple[int, int]]:
    """Choose steps whose numbers fit below their blocks; return pairs (block, step)."""
    number = min(num_steps, NUM_TICKS)
    while number > 1 and num_blocks // number < len(f"{most:,}") + 2:
        number -= 1
    steps = [num_steps * tick // number for tick in range(number)]
    return [(step * num_blocks // num_steps, step) for step in steps]


def _place(texts: Iterable[tuple[int, str]], num_blocks: int) -> str:
    """Write each text below its block; the one of the end is aligned to its left."""
    line = ""
    for place, text in texts:
        begin = place - len(text) if place == num_blocks else place
        line += " " * max(begin - len(line), 1 if line else 0) + text
    return line
