"""Draw rows or streams that several sequences share, as segments of alternating shades.

One row of any length goes on in as many lines as it needs. Of several rows of one length, or
streams, each has a line, up to 16 of them.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from itertools import groupby

from seqpack_cli.reporting.terminal.staircase_lines import (
    MAX_BARS,
    MAX_BLOCKS,
    PADDING,
    count_blocks,
    draw_axis,
    label_width_of,
    put_together,
    spell_scale,
)
from seqpack_cli.reporting.wording import count

BLOCKS_OF_SEGMENT = 3  # at least, on average, if there is room
FREE = "·"
SHADES = "█▓"
KEEPS_STATE, NO_MARK = "›", " "
NO_SEGMENT = -1


def draw_one_row(
    starts: Sequence[int], lengths: Sequence[int], *, num_cells: int, capacity: int
) -> list[str]:
    """Draw the one row of a batch.

    Args:
        starts: the first cell of each sequence, in their order.
        lengths: of the sequences; cells between them are padding.
        num_cells: of the row, with padding.
        capacity: maximum number of cells of a row, at least num_cells.
    """
    label_width = max(len("token"), len(f"{capacity:,}"))
    num_lines = -(-BLOCKS_OF_SEGMENT * len(lengths) // MAX_BLOCKS)
    num_lines = max(min(num_lines, MAX_BARS, capacity // MAX_BLOCKS), 1)
    per_line = -(-capacity // num_lines)
    num_blocks = count_blocks(per_line, label_width)
    middles = [
        line * per_line + middle
        for line in range(num_lines)
        for middle in _find_middles(per_line, num_blocks)
    ]
    blocks, shown = _paint(starts, lengths, [it for it in middles if it < capacity], num_cells)
    drawn = [
        (f"{line * per_line:,}", blocks[line * num_blocks : (line + 1) * num_blocks])
        for line in range(num_lines)
    ]
    if num_lines == 1:
        drawn = [("row", blocks), ("cell", draw_axis(capacity, num_blocks))]
    title = (
        f"one row of up to {count(capacity, 'cell')}, {capacity - num_cells:,} of them free; "
        f"{spell_scale(per_line, num_blocks, 'cell')}"
    )
    return put_together([title, _explain(len(lengths), len(shown), blocks)], drawn, label_width)


def draw_shared_rows(
    lines: Sequence[Sequence[tuple[int, int]]],
    row_length: int,
    *,
    names: tuple[str, str],
    keeps_state: Sequence[bool] | None = None,
) -> list[str]:
    """Draw rows or streams of one length.

    Args:
        lines: of each row, where its sequences begin in it and their lengths.
        row_length: cells of a row, with padding.
        names: of a row and of one of its cells.
        keeps_state: of streams, whether the first sequence goes on from the batch before.
    """
    row_name, cell_name = names
    labels = [f"{row_name} {row:,}" for row in range(min(len(lines), MAX_BARS))]
    label_width = label_width_of([cell_name, *labels])
    num_blocks = count_blocks(row_length, label_width + 1)
    middles, drawn, num_shown, num_sequences = _find_middles(row_length, num_blocks), [], 0, 0
    for row, (label, segments) in enumerate(zip(labels, lines, strict=False)):
        starts, lengths = ([segment[place] for segment in segments] for place in range(2))
        blocks, shown = _paint(starts, lengths, middles, row_length)
        mark = KEEPS_STATE if keeps_state is not None and keeps_state[row] else NO_MARK
        drawn.append((label, (mark if keeps_state is not None else "") + blocks))
        num_shown += len(shown)
        num_sequences += len(segments)
    margin = "" if keeps_state is None else NO_MARK
    drawn.append((cell_name, margin + draw_axis(row_length, num_blocks)))
    title = f"{count(len(lines), row_name)} x {count(row_length, cell_name)}"
    title += f", {row_name}s 0 to {MAX_BARS - 1} drawn" if len(lines) > MAX_BARS else ""
    title += f"; {spell_scale(row_length, num_blocks, cell_name)}"
    legend = _explain(num_sequences, num_shown, "".join(bar for _, bar in drawn[:-1]))
    if any(keeps_state or ()):
        legend += f"; {KEEPS_STATE} goes on from the batch before, all others reset the state"
    return put_together([title, legend], drawn, label_width)


def _find_middles(per_line: int, num_blocks: int) -> list[int]:
    """Return the cell in the middle of each block of a line."""
    return [(2 * block + 1) * per_line // (2 * num_blocks) for block in range(num_blocks)]


def _paint(
    starts: Sequence[int], lengths: Sequence[int], cells: Sequence[int], num_cells: int
) -> tuple[str, set[int]]:
    """Return a block for each of some cells, and the numbers of the segments that they show."""

    def find(cell: int) -> int:
        found = bisect.bisect_right(starts, cell) - 1
        return found if found >= 0 and cell < starts[found] + lengths[found] else NO_SEGMENT

    found = [find(cell) for cell in cells]
    blocks, number = "", 0
    for segment, run in groupby(zip(found, cells, strict=True), key=lambda pair: pair[0]):
        if segment == NO_SEGMENT:
            blocks += "".join(PADDING if cell < num_cells else FREE for _, cell in run)
            continue
        blocks += SHADES[number % 2] * len(list(run))
        number += 1
    return blocks, set(found) - {NO_SEGMENT}


def _explain(num_sequences: int, num_shown: int, blocks: str) -> str:
    num_hidden = num_sequences - num_shown
    legend = f"{count(num_sequences, 'sequence')}, alternately {' and '.join(SHADES)}"
    legend += f", {num_hidden:,} too short to be drawn" if num_hidden else ""
    legend += f", padding {PADDING}" if PADDING in blocks else ""
    return legend + (f", free {FREE}" if FREE in blocks else "")
