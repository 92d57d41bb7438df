"""The first rows of shards, or sequences of a store, decoded token by token."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, pairwise
from typing import Any

import numpy as np

from seqpack_cli.batching.options import LAYOUTS, SIDES
from seqpack_cli.errors import escape_controls
from seqpack_cli.files.manifest import has_tokenizer
from seqpack_cli.reporting.batch_places import find_place, spell_place
from seqpack_cli.reporting.column_facts import list_values, select_tags, spell_tag
from seqpack_cli.reporting.opened import Opened, describe_origin, name_entry, spell_source
from seqpack_cli.reporting.row_targets import (
    ALL,
    NONE,
    SOME,
    count_row_targets,
    judge_pieces,
)
from seqpack_cli.reporting.row_values import read_row_values, read_sequence_values
from seqpack_cli.reporting.texts import open_texts, split_row
from seqpack_cli.reporting.wording import count, cut, show_share
from seqpack_cli.shards.pairs import list_in_encoder_order
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.tokens.columns import TARGETS
from seqpack_cli.tokens.decode import TextPiece
from seqpack_cli.tokens.store import TokenStore
from seqpack_cli.tokens.tokenizer import describe_vocabulary

MAX_ROWS = 40
MAX_TOKENS = 240  # of a row
MAX_CHARACTERS = 4_000  # of a row: tokens of an unknown tokenizer may be long
MAX_VALUE_COLUMNS = 200  # of the value of a column
MAX_TAG_COLUMNS = 16


def make_rows(
    opened: Opened, stores: Sequence[TokenStore | None]
) -> tuple[list[dict[str, Any]], str]:
    """Return the first rows, of pairs those of both sides in turn, and the heading above them.

    Args:
        stores: of each side.

    Raises:
        FolderError: a batch is damaged.
    """
    if not isinstance(opened, ShardSet) or opened.decoder is None:
        rows = _make_rows(opened, stores[0])
        return rows, f"First {len(rows)} {name_entry(opened)}s"
    both = (_make_rows(side, store) for side, store in zip(opened.sides, stores, strict=True))
    pairs = list(zip(*both, strict=True))[: MAX_ROWS // 2]
    for pair in pairs:
        for name, row in zip(SIDES, pair, strict=True):
            row["heading"] = f"{name}, {row['heading']}"
        pair[1]["anchor"] = None  # the page finds sequences of the encoder
    return [row for pair in pairs for row in pair], f"First {len(pairs)} pairs"


def _make_rows(opened: Opened, store: TokenStore | None) -> list[dict[str, Any]]:
    decode, special_tokens = open_texts(opened), find_special_tokens(opened)
    rows: list[dict[str, Any]] = []
    seen: set[int] = set()
    for index, name, ids, columns in islice(_iter_rows(opened), MAX_ROWS):
        pieces = _take_pieces(split_row(decode, ids[:MAX_TOKENS]))
        ends = np.cumsum([0, *(len(piece.ids) for piece in pieces)]).tolist()
        tags, marks = select_tags(columns), [NONE] * len(pieces)
        if TARGETS in columns:
            marks = judge_pieces(pieces, columns[TARGETS])
        rows.append(
            {
                # A split sequence has several rows, and ids must be unique in a page.
                "anchor": None if index in seen else f"sequence-{index}",
                "heading": f"{name}: {count(len(ids), 'token')}{_tell_targets(columns)}",
                "place": _spell_place(store, index),
                "columns": [
                    (escape_controls(label), cut(value, MAX_VALUE_COLUMNS))
                    for label, value in list_values(columns)
                ],
                "tokens": [
                    show_token(piece, special_tokens, _cut_tags(tags, first, last), mark)
                    for piece, mark, (first, last) in zip(
                        pieces, marks, pairwise(ends), strict=True
                    )
                ],
                "num_hidden": len(ids) - sum(len(piece.ids) for piece in pieces),
            }
        )
        seen.add(index)
    return rows


def find_special_tokens(opened: Opened) -> set[str]:
    """Return the special tokens of the tokenizer, none without one."""
    if not has_tokenizer(opened.manifest):
        return set()
    return set(describe_vocabulary(opened.read_tokenizer_json()).special_tokens)


def _tell_targets(columns: Mapping[str, Any]) -> str:
    counts = count_row_targets(columns)
    if not counts:
        return ""
    return f", {count(counts['num_targets'], 'target')} ({show_share(counts['target_share'])})"


def _take_pieces(pieces: list[TextPiece]) -> list[TextPiece]:
    """Return the first pieces, up to MAX_CHARACTERS of text."""
    num_characters = 0
    for number, piece in enumerate(pieces):
        num_characters += len(piece.text)
        if num_characters > MAX_CHARACTERS:
            return pieces[:number]
    return pieces


def _iter_rows(opened: Opened) -> Iterator[tuple[int, str, np.ndarray, dict[str, Any]]]:
    """Yield the index in the token store, the heading, the ids and the columns of each row."""
    if not isinstance(opened, ShardSet):
        for index in range(len(opened)):
            columns = read_sequence_values(opened, index)
            yield index, f"sequence {index:,}", opened[index], columns
        return
    rules = LAYOUTS[opened.layout]
    for number, batch in enumerate(opened):
        whole = batch.without_filler()
        assert whole.original_indices is not None  # noqa: S101 - shards always have them
        starts = whole.piece_starts
        all_ids = whole.rows()
        for row in list_in_encoder_order(whole):
            index, ids = whole.original_indices[row], all_ids[row]
            place = spell_place({"batch": number, **find_place(whole, rules, row)})
            name = f"{place}, sequence {int(index):,}"
            if starts is not None and starts[row]:
                name += f" from token {int(starts[row]):,}"
            yield int(index), name, ids, read_row_values(whole, opened.columns, row)


def _cut_tags(tags: dict[str, list[Any]], first: int, last: int) -> list[tuple[str, str]]:
    """Return the columns in which some ids of a token have tags, and these tags."""
    found = {
        name: [spell_tag(value) for value in values[first:last] if value is not None]
        for name, values in tags.items()
    }
    return [
        (escape_controls(name), escape_controls(" ".join(some)))
        for name, some in found.items()
        if some
    ]


def _spell_place(store: TokenStore | None, index: int) -> str:
    origin = describe_origin(store, index)
    if origin is None:
        return "unknown source"
    source = spell_source(origin["source"], origin.get("store_name"))
    place = f"{source}, record {origin['record']:,}, document {origin['document']:,}"
    if origin["num_pieces"] > 1:
        place += f", piece {origin['piece'] + 1:,} of {origin['num_pieces']:,}"
    return escape_controls(place)


def show_token(
    piece: TextPiece, special_tokens: set[str], tags: list[tuple[str, str]], mark: str
) -> dict[str, Any]:
    """Return a token for the template; `mark` is whether all, some or none of it are targets."""
    ids = "id " + " ".join(map(str, piece.ids))
    is_special = len(piece.ids) == 1 and piece.text in special_tokens
    targets = {NONE: [], ALL: ["target"], SOME: ["target in part"]}[mark]
    return {
        "text": _make_visible(piece.text) or "∅",
        "label": ", ".join([ids, *targets, *(f"{name} {shown}" for name, shown in tags)]),
        "tags": " ".join(cut(shown, MAX_TAG_COLUMNS) for _, shown in tags),
        "classes": " ".join(["special"] * is_special + [mark] * bool(targets)),
    }


def _make_visible(text: str) -> str:
    """Mark line ends and tabs, and escape other control characters.

    >>> _make_visible("a\\tb\\n\\x00")
    'a⇥\\tb↵\\n\\\\x00'
    """
    shown = {"\n": "↵\n", "\t": "⇥\t"}
    return "".join(shown.get(character) or escape_controls(character) for character in text)
