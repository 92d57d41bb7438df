"""Records whose columns follow from their own text, so that a swapped value is found anywhere.

The tokenizer is `bytes`, so a token of the text is a byte of it, and what stands beside a sequence
or a token can be computed from the ids alone.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np

from seqpack_cli.tokens.columns import Column
from seqpack_cli.tokens.kinds import Values

KEEP = ("length:int", "share:float", "first:class", "copy:text", "parity:tags")
LETTERS = "abcdefghij"
NUM_RECORDS = 70


def write_records(path: Path, *, seed: int = 0) -> None:
    """Write records of words; the fields follow from the text, parity from each word's letter."""
    drawn = random.Random(seed)
    with path.open("w") as file:
        for _ in range(NUM_RECORDS):
            words = drawn.choices(LETTERS, k=min(int(drawn.lognormvariate(1.5, 0.8)) + 1, 20))
            file.write(json.dumps(describe(" ".join(words))) + "\n")


def describe(text: str) -> dict[str, Any]:
    """Return the record of a text of single letters between blanks."""
    spans = [[at, at + 1, find_parity(ord(text[at]))] for at in range(0, len(text), 2)]
    fields = {"length": len(text), "share": len(text) / 7, "first": text[0], "copy": text}
    return {"text": text, **fields, "parity": spans}


def find_parity(id_: int) -> str:
    """Return the tag of a letter."""
    return "odd" if id_ % 2 else "even"


def expect_values(ids: list[int]) -> dict[str, Any]:
    """Return the columns of a sequence that is a whole record, from its ids."""
    text = bytes(ids).decode()
    values = {name: value for name, value in describe(text).items() if name != "text"}
    values["parity"] = [None if id_ == ord(" ") else find_parity(id_) for id_ in ids]
    return values


def assert_beside_its_text(
    columns: dict[str, Column], values: dict[str, Values], sequence: list[int], start: int = 0
) -> None:
    """Assert that the values of one row are those of its sequence.

    Args:
        values: one entry for each row column, an array for a column per token.
        sequence: the ids of the whole sequence.
        start: where in it the row begins.
    """
    expected = expect_values(sequence)
    for name, column in columns.items():
        found = column.spell(values[name])
        if column.is_per_token:
            assert found == expected[name][start : start + len(np.asarray(values[name]))], name
        else:
            assert found == [expected[name]], name
