"""The lines that unpack writes, one JSON object per sequence, and how its files are known."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from seqpack_cli.batching.options import DECODER
from seqpack_cli.files.json_files import encode_json
from seqpack_cli.files.outputs import FileKind
from seqpack_cli.shards.unpacked import UnpackedSequence

Group = tuple[Sequence[UnpackedSequence], Sequence[str] | None]  # sequences, and their texts
NUMBERS = r"(?:\d+(?:, \d+)*)?"
STRING = r'"(?:[^"\\\n]|\\.)*"'
VALUE = rf"(?:{STRING}|-?\d[\d.e+-]*|true|false|null)"
VALUES = rf"(?:{VALUE}|\[(?:{VALUE}(?:, {VALUE})*)?\])"
COLUMNS = rf"(?:, \"columns\": \{{{STRING}: {VALUES}(?:, {STRING}: {VALUES})*\}})?"
FIELDS = rf'(?:"ids": \[{NUMBERS}\]|"text": {STRING}){COLUMNS}'
OF_DECODER = rf'(?:, "decoder": \{{"index": \d+, {FIELDS}\}})?'
ROW = re.compile(rf'\{{"index": (\d+), {FIELDS}{OF_DECODER}\}}'.encode())
ROW_BEGIN = re.compile(rb'\{"index": \d+, "(?:ids": \[|text": ")')


def _are_rows(head: bytes) -> bool:
    """Return whether the beginning of a file holds nothing but rows as unpack writes them."""
    *lines, rest = head.split(b"\n")
    rows = [ROW.fullmatch(line) for line in lines]
    indices = [int(row[1]) for row in rows if row is not None]
    is_rising = all(first < second for first, second in pairwise(indices))
    return len(indices) == len(rows) and is_rising and (not rest or bool(ROW_BEGIN.match(rest)))


ROWS = FileKind("rows that seqpack unpack wrote", _are_rows)


def spell_lines(sides: Sequence[Group]) -> bytes:
    """Return one JSON line for each sequence, or for each pair with its `decoder`.

    Args:
        sides: the same documents, of the only side or of both.
    """
    rows, *others = (_spell_rows(*side) for side in sides)
    for row, decoder in zip(rows, others[0] if others else (), strict=False):
        row[DECODER] = decoder
    return b"".join(encode_json(row) + b"\n" for row in rows)


def _spell_rows(
    sequences: Sequence[UnpackedSequence], texts: Sequence[str] | None
) -> list[dict[str, Any]]:
    if texts is None:
        values = [("ids", sequence.ids.tolist()) for sequence in sequences]
    else:
        values = [("text", text) for text in texts]
    rows = []
    for sequence, (name, value) in zip(sequences, values, strict=True):
        row = {"index": sequence.index, name: value}
        rows.append({**row, "columns": sequence.columns} if sequence.columns else row)
    return rows
