"""Which tokens of one row are targets, as `inspect` marks them: piece by piece of its text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from seqpack_cli.ranges import to_offsets
from seqpack_cli.reporting.target_counts import measure_share
from seqpack_cli.tokens.columns import TARGETS
from seqpack_cli.tokens.decode import TextPiece

ALL, SOME, NONE = "all", "some", "none"  # of the ids of a piece


def judge_pieces(pieces: Sequence[TextPiece], targets: Sequence[int]) -> list[str]:
    """Return whether all, some or none of the ids of each piece are targets.

    >>> judge_pieces([TextPiece("a", (7,)), TextPiece("b", (8, 9))], [1, 0, 1])
    ['all', 'some']
    """
    ends = to_offsets([len(piece.ids) for piece in pieces]).tolist()
    judged = []
    for piece, start in zip(pieces, ends, strict=False):
        number = sum(targets[start : start + len(piece.ids)])
        judged.append(NONE if not number else ALL if number == len(piece.ids) else SOME)
    return judged


def count_row_targets(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return the number and the share of the targets of a row; nothing if they are no column.

    Args:
        columns: the values of the row by name.
    """
    if TARGETS not in columns:
        return {}
    targets = columns[TARGETS]
    number = sum(targets)
    return {"num_targets": number, "target_share": measure_share(number, len(targets))}
