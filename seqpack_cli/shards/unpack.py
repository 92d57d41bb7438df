"""Write the sequences of shards into a file, in their original order: the inverse of pack.

Every batch is checked once. Then rows are read in the order of the token stores, about a million
ids at a time from all shards, with 32 bytes of memory per row. Split sequences are joined again. A
sequence that is visited several times is yielded once, after its visits were compared.
"""

from __future__ import annotations

import contextlib
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from seqpack_cli.batching.options import DECODER, SIDES
from seqpack_cli.errors import FolderError, OptionError, SeqpackError, check_choice, quote
from seqpack_cli.files.json_files import encode_json, read_json
from seqpack_cli.files.manifest import MANIFEST_NAME
from seqpack_cli.files.mapping import let_pages_go
from seqpack_cli.files.objects import AnyPath
from seqpack_cli.files.outputs import OTHER_NAME, FileKind, parse_file, publish_alone
from seqpack_cli.files.places import Place, find_place
from seqpack_cli.limits import LIMITS
from seqpack_cli.ranges import to_offsets
from seqpack_cli.runs.options import checks_arguments
from seqpack_cli.runs.workers import Progress
from seqpack_cli.shards.arrays import Columns
from seqpack_cli.shards.manifest import PREFIX
from seqpack_cli.shards.pairs import check_pairs, view_side
from seqpack_cli.shards.parquet import (
    import_pyarrow,
    make_column,
    make_kind,
    make_lists,
    make_table,
    write_parquet,
)
from seqpack_cli.shards.shard import Shard
from seqpack_cli.shards.shard_set import ShardSet, open_shards
from seqpack_cli.tokens.columns import OVERLAP
from seqpack_cli.tokens.decode import open_decoder
from seqpack_cli.tokens.kinds import Values
from seqpack_cli.tokens.text_values import join_values

ROW_BEGIN = re.compile(rb'\{"index": \d+, "(?:ids": \[|text": ")')
KINDS = {  # of files, by their format
    "jsonl": FileKind("rows that seqpack unpack wrote", lambda head: bool(ROW_BEGIN.match(head))),
    "parquet": make_kind("unpack"),
}


@dataclass(slots=True)  # not frozen: it takes a third of the time
class UnpackedSequence:
    """One sequence of the token stores."""

    index: int
    ids: np.ndarray
    columns: dict[str, Any]  # by name, as JSON has them: a value, or a list with one for each id


Rows = list[tuple[UnpackedSequence, ...]]  # each of one sequence, or of both of a pair
Piece = tuple[int, UnpackedSequence]  # its first token in the whole sequence, and a piece of it


@checks_arguments
def unpack(
    shards: AnyPath,
    output: AnyPath,
    *,
    as_text: bool = False,
    file_format: str = "jsonl",
    side: str | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> int:
    """Write the sequences of shards into a file, in the order of the token store.

    Args:
        shards: the shards' folder.
        output: the file; each line has the `index` of a sequence, its `ids` and its `columns`.
            Of pairs these are the encoder's, and `decoder` has the same of the other side.
        as_text: write the decoded `text` instead of `ids`.
        file_format: "jsonl", or "parquet", where columns stand beside `index` and `ids`, and those
            of the decoder's side have the prefix "decoder.".
        side: of pairs, "encoder" or "decoder" to write that side alone; lines of the same number
            are of the same pair in the files of both.
        overwrite: replace a file that an earlier `unpack` wrote.

    Returns:
        The number of sequences, or of pairs.

    Raises:
        FolderError: the shards are damaged, or another file would be replaced.
        OptionError: there is no such side, or a file of JSON lines is named like Parquet.
        MachineError: the disk is full or fails, or pyarrow is missing.
    """
    check_choice("file_format", file_format, KINDS)
    check_choice("side", side, (None, *SIDES))
    opened, path = choose_side(open_shards(shards), side), parse_file(output)
    if path.suffix == ".parquet" and file_format != "parquet":
        raise OptionError(
            f"{path}: named like a Parquet file, --format is {file_format}",
            hint="pass --format parquet, or choose another -o",
        )
    if overwrite:
        check_no_source(path, opened.path, opened.manifest)
    with publish_alone(path, KINDS[file_format], overwrite=overwrite) as file:
        return write_sequences(
            opened, file.write, as_text=as_text, file_format=file_format, progress=progress
        )


def choose_side(shards: ShardSet, side: str | None) -> ShardSet:
    """Return what to write: one side of pairs, or all that the shards hold.

    Raises:
        OptionError: these are not pairs.
        FolderError: the sides are not in the same order.
    """
    if side is None:
        return shards
    chosen = view_side(shards, side)
    check_pairs(shards)
    return chosen


def check_no_source(path: Place, folder: Place, manifest: Mapping[str, Any]) -> None:
    """Raise FolderError if a file is an input of a token store, or of the stores of shards.

    Args:
        manifest: of the store or the shards in the folder.
    """
    if not isinstance(path, Path) or not path.exists():
        return
    sides = [manifest, manifest.get("decoder") or {}]
    manifests = [manifest]
    for store in chain.from_iterable(each.get("stores", ()) for each in sides):
        with contextlib.suppress(SeqpackError):  # it may be elsewhere
            manifests.append(read_json(find_place(folder, store["path"]) / MANIFEST_NAME))
    for source in chain.from_iterable(each.get("sources", ()) for each in manifests):
        with contextlib.suppress(OSError, ValueError):
            if Path(source["path"]).samefile(path):
                raise FolderError(
                    f"{path}: an input of the token store, which is not replaced", hint=OTHER_NAME
                )


def write_sequences(
    shards: ShardSet,
    write: Callable[[bytes], None],
    *,
    as_text: bool = False,
    file_format: str = "jsonl",
    progress: Progress | None = None,
) -> int:
    """Write every sequence as one JSON line, or as a row of a Parquet file; return their number.

    Tokens that repeat the end of the piece before, of which the column `overlap` has the number,
    are left out. Of pairs, both sides are in one row.
    """
    progress, sides = progress or Progress(), shards.sides
    if len(sides) > 1:
        check_pairs(shards)
        progress.on_total(sum(side.manifest["ledger"]["num_sequences"] for side in sides))
        progress = replace(progress, on_total=Progress().on_total)
    decoders = [open_decoder(side.read_tokenizer_json()) for side in sides if as_text]
    whole = (_drop_overlaps(side, iter_unpacked(side, side.columns, progress)) for side in sides)
    rows = zip(*whole, strict=True)
    if file_format == "parquet":
        pa = import_pyarrow(shards.path)
        groups = cut_groups(rows, LIMITS.ids_per_block, LIMITS.rows_per_batch)
        tables = (_make_rows_table(pa, sides, group, decoders) for group in groups)
        return write_parquet(write, tables, "unpack", {})
    num_rows = 0
    for group in cut_groups(rows, LIMITS.ids_per_block, LIMITS.texts_per_write):
        write(_spell_lines(group, decoders))
        num_rows += len(group)
    return num_rows


def cut_groups(
    rows: Iterator[tuple[UnpackedSequence, ...]], max_ids: int, max_rows: int
) -> Iterator[Rows]:
    """Yield rows in lists that end at the row that reaches a number of ids, or of rows."""
    group, num_ids = Rows(), 0
    for row in rows:
        group.append(row)
        for sequence in row:
            num_ids += len(sequence.ids)
        if num_ids >= max_ids or len(group) >= max_rows:
            yield group
            group, num_ids = [], 0
    if group:
        yield group


def _drop_overlaps(
    shards: ShardSet, sequences: Iterator[UnpackedSequence]
) -> Iterator[UnpackedSequence]:
    """Yield sequences without their first tokens if they repeat the end of the piece before."""
    if OVERLAP not in shards.columns:
        yield from sequences
        return
    for sequence in sequences:
        num_repeated = sequence.columns.get(OVERLAP, 0)
        if not num_repeated:
            yield sequence
            continue
        if not 0 < num_repeated < len(sequence.ids):
            raise overlap_error(shards.path, sequence.index, num_repeated, len(sequence.ids))
        columns = {
            name: value[num_repeated:] if shards.columns[name].is_per_token else value
            for name, value in sequence.columns.items()
        }
        yield UnpackedSequence(sequence.index, sequence.ids[num_repeated:], columns)


def overlap_error(path: Place, index: int, num_repeated: int, num_tokens: int) -> FolderError:
    """Return the error about a sequence that repeats more tokens than it has."""
    return FolderError(
        f"{path}: sequence {index}: column {OVERLAP!r} is {num_repeated}, "
        f"expected less than its {num_tokens:,} tokens"
    )


def _spell_lines(rows: Rows, decoders: Sequence[Callable[..., list[str]]]) -> bytes:
    """Return one JSON line for each row: `index`, `ids` or `text`, `columns`, `decoder`."""
    sides = list[list[dict[str, Any]]]()
    for number, sequences in enumerate(zip(*rows, strict=True)):
        ids = [each.ids for each in sequences]
        name = "text" if decoders else "ids"
        values = decoders[number](ids) if decoders else [each.tolist() for each in ids]
        sides.append(
            [
                {"index": each.index, name: value}
                | ({"columns": each.columns} if each.columns else {})
                for each, value in zip(sequences, values, strict=True)
            ]
        )
    for row, decoder in zip(*sides, strict=True) if len(sides) > 1 else ():
        row[DECODER] = decoder
    return b"".join(encode_json(row) + b"\n" for row in sides[0])


def _make_rows_table(
    pa: Any, sides: Sequence[ShardSet], rows: Rows, decoders: Sequence[Callable[..., list[str]]]
) -> Any:
    """Return a table of `index`, `ids` or `text`, and the columns, of each side.

    Raises:
        OptionError: a column has one of these names.
    """
    arrays = list[tuple[str, Any]]()
    for number, sequences in enumerate(zip(*rows, strict=True)):
        prefix, columns = PREFIX * number, sides[number].columns
        ids, offsets, values = join_sequences(sequences, columns)
        made = {"index": pa.array([each.index for each in sequences], pa.int64())}
        if decoders:
            texts = decoders[number]([each.ids for each in sequences])
            made["text"] = pa.array(texts, pa.large_string())
        else:
            made["ids"] = make_lists(pa, ids.astype(np.int32), offsets)
        arrays += [(prefix + name, array) for name, array in made.items()]
        for name, column in columns.items():
            arrays.append((prefix + name, make_column(pa, column, values[name], offsets)))
    return make_table(pa, arrays, sides[0].path, "unpack", hint="pass --format jsonl")


def join_sequences(
    sequences: Sequence[UnpackedSequence], columns: Columns
) -> tuple[np.ndarray, np.ndarray, dict[str, list[Any]]]:
    """Return the ids of some sequences, where each begins, and the values of each column."""
    values = dict[str, list[Any]]()
    for name, column in columns.items():
        found = [each.columns[name] for each in sequences]
        values[name] = list(chain.from_iterable(found)) if column.is_per_token else found
    ids = [each.ids for each in sequences]
    return np.concatenate(ids), to_offsets([len(each) for each in ids]), values


def iter_unpacked(
    shards: ShardSet, columns: Columns, progress: Progress | None = None
) -> Iterator[UnpackedSequence]:
    """Yield every sequence in the shards once with some of its columns, in ascending order.

    Sequences are whole: tokens that repeat the piece before (`tokenize --overlap`) are included.

    Raises:
        FolderError: a batch is damaged, a sequence occurs more often than its store's passes allow,
            its visits or its pieces have different values, or a piece of it is missing.
    """
    progress = progress or Progress()
    found = [_read_places(shards, number) for number in range(shards.num_shards)]
    first_rows = to_offsets([places.shape[1] for places in found])
    places = np.concatenate([np.empty((3, 0), np.int64), *found], axis=1)
    order = np.lexsort((places[1], places[0]))
    order = order[np.searchsorted(places[0], 0, sorter=order) :]  # without filler rows: index -1
    progress.on_total(len(order))
    max_visits = shards.max_visits
    ends = to_offsets([entry["num_sequences"] for entry in shards.manifest["stores"]])[1:].tolist()
    pieces = _iter_pieces(shards, columns, order, first_rows, places, progress)
    is_last = np.diff(places[0, order], append=-1) != 0
    for number in np.diff(np.flatnonzero(is_last), prepend=-1).tolist():
        some = [*islice(pieces, number)]
        start, sequence = some[0]
        if number == 1 and start == 0:
            yield sequence
            continue
        try:
            yield join_pieces(columns, some, max_visits[bisect_right(ends, sequence.index)])
        except ValueError as error:
            raise FolderError(f"{shards.path}: {error}") from error


def _read_places(shards: ShardSet, number: int) -> np.ndarray:
    """Check every batch of a shard; return each row's original index, start and length, [3, rows].

    A copy: views would keep the file of every shard open.
    """
    shard = open_sound(shards, number)
    indices = read_original_indices(shard, shards.num_store_sequences)
    return np.stack([indices, shard.arrays.piece_starts, shard.tensors["lengths"]])


def open_sound(shards: ShardSet, number: int) -> Shard:
    """Open a shard and check each of its batches.

    Raises:
        FolderError: a batch is damaged.
    """
    shard = shards.open_shard(number)
    for index in np.flatnonzero(shard.find_unsound()).tolist():
        shard[index]  # raises the error that describes what is wrong
    return shard


def read_original_indices(shard: Shard, num_sequences: int) -> np.ndarray:
    """Return the sequence of each row of a shard, int64, -1 for filler rows; a view.

    Raises:
        FolderError: an index is outside the stores, which have `num_sequences`.
    """
    indices, lengths = shard.tensors["original_indices"], shard.tensors["lengths"]
    outside = np.flatnonzero(((indices < 0) | (indices >= num_sequences)) & (lengths > 0))
    if len(outside):
        index = indices[outside[0]]
        raise FolderError(
            f"{shard.path}: original index {index}, the store has {num_sequences:,} sequences"
        )
    return indices


def join_pieces(columns: Columns, pieces: list[Piece], max_visits: int) -> UnpackedSequence:
    """Return the sequence of its pieces: those of one or more visits, which must be equal.

    Every visit covers the whole sequence, but each may be cut elsewhere.

    Raises:
        ValueError: the pieces are not those of such visits; with a message without the folder.
    """
    _, first = pieces[0]
    index = first.index
    begins = Counter(start for start, _ in pieces)
    ends = Counter(start + len(piece.ids) for start, piece in pieces)
    length, num_visits = max(ends), begins[0]
    if num_visits > max_visits:
        times = "twice" if max_visits == 1 else f"more than {max_visits} times"
        raise ValueError(f"sequence {index} occurs {times}")
    begins[length] += num_visits  # where a visit ends, another one may begin
    ends[0] += num_visits
    for place in sorted({*begins, *ends}):
        if begins[place] != ends[place]:
            message = f"pieces of sequence {index} do not follow one another at token {place}"
            raise ValueError(message)
    ids = np.empty(length, first.ids.dtype)
    values = dict(first.columns)
    per_token = {name: [None] * length for name in values if columns[name].is_per_token}
    values |= per_token
    for start, piece in pieces:
        ids[start : start + len(piece.ids)] = piece.ids
        for name, known in per_token.items():
            known[start : start + len(piece.ids)] = piece.columns[name]
    of = "visits" if max_visits > 1 else "pieces"
    for start, piece in pieces:
        cells = slice(start, start + len(piece.ids))
        if (ids[cells] != piece.ids).any():
            raise ValueError(f"visits of sequence {index} differ in their ids")
        for name, value in piece.columns.items():
            if value != (values[name][cells] if name in per_token else values[name]):
                raise ValueError(f"{of} of sequence {index} differ in column {quote(name)}")
    return UnpackedSequence(index, ids, values)


def cut_rows(offsets: np.ndarray, max_ids: int) -> Iterator[slice]:
    """Yield ranges of rows that together have at most a number of ids, or are one row.

    Args:
        offsets: where each row begins, and the end of the last.
    """
    first = 0
    while first < len(offsets) - 1:
        last = int(np.searchsorted(offsets, offsets[first] + max_ids, "right")) - 1
        last = min(max(last, first + 1), first + LIMITS.sequences_per_block)
        yield slice(first, last)
        first = last


def _iter_pieces(
    shards: ShardSet,
    columns: Columns,
    order: np.ndarray,
    first_rows: np.ndarray,
    places: np.ndarray,
    progress: Progress,
) -> Iterator[Piece]:
    """Yield the piece in each row in the given order.

    Args:
        first_rows: of the shards, of all rows.
        places: of all rows; see `_read_places`.
    """
    all_offsets = to_offsets(places[2, order])
    for block in cut_rows(all_offsets, LIMITS.ids_per_block):
        rows = order[block]
        offsets = all_offsets[block.start : block.stop + 1] - all_offsets[block.start]
        ids, values = _read_rows(shards, columns, rows, first_rows, offsets)
        progress.on_advance(len(rows))
        bounds, (indices, starts, _) = offsets.tolist(), places[:, rows].tolist()
        for row, (index, start) in enumerate(zip(indices, starts, strict=True)):
            cells = slice(bounds[row], bounds[row + 1])
            found = {
                name: values[name][cells if column.is_per_token else row]
                for name, column in columns.items()
            }
            yield start, UnpackedSequence(index, ids[cells], found)


def _read_rows(
    shards: ShardSet,
    columns: Columns,
    rows: np.ndarray,
    first_rows: np.ndarray,
    offsets: np.ndarray,
) -> tuple[np.ndarray, dict[str, list[Any]]]:
    """Read some rows, shard by shard; return their ids and columns, laid end to end."""
    num_ids = int(offsets[-1])
    ids = np.empty(num_ids, shards.manifest["dtype"])
    by_cell, by_row = dict[str, np.ndarray](), dict[str, list[Values]]()
    for name, column in columns.items():
        if column.is_per_token:
            by_cell[name] = np.empty(num_ids, column.dtype)
        else:
            by_row[name] = []
    numbers = np.searchsorted(first_rows, rows, "right") - 1
    by_shard = np.argsort(numbers, kind="stable")
    for some in np.split(by_shard, np.flatnonzero(np.diff(numbers[by_shard])) + 1):
        number = int(numbers[some[0]])
        shard = shards.open_shard(number)
        found, starts = rows[some] - first_rows[number], offsets[some]
        shard.arrays.copy_rows(found, ids, starts)
        for name, cells in by_cell.items():
            shard.arrays.copy_rows(found, cells, starts, columns[name].tensor_name)
        for name, pieces in by_row.items():
            pieces.append(columns[name].view(shard.tensors).take(found))
        let_pages_go(shard.tensors["data"])
    places = np.argsort(by_shard)
    values: dict[str, Values] = {**by_cell}
    values |= {name: join_values(pieces).take(places) for name, pieces in by_row.items()}
    return ids, {name: columns[name].spell(found) for name, found in values.items()}
