"""Write the sequences of shards into a file, in their original order: the inverse of pack.

Every batch is checked once. Then rows are read in the order of the token stores, about a million
ids at a time from all shards, with 50 bytes of memory per row. Split sequences are joined again. A
sequence that is visited several times is yielded once, after its visits were compared.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seqpack_cli.batching.options import DECODER, SIDES
from seqpack_cli.errors import FolderError, OptionError, SeqpackError, check_choice, quote
from seqpack_cli.files.json_files import encode_json
from seqpack_cli.files.mapping import let_pages_go
from seqpack_cli.files.objects import AnyPath
from seqpack_cli.files.outputs import OTHER_NAME, FileKind, parse_file, publish_alone
from seqpack_cli.files.places import Place
from seqpack_cli.limits import LIMITS
from seqpack_cli.ranges import expand_ranges, to_offsets
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
from seqpack_cli.tokens.store import TokenStore, open_stores
from seqpack_cli.tokens.text_values import find_differing_values, join_values

ROW_BEGIN = re.compile(rb'\{"index": \d+, "(?:ids": \[|text": ")')
KINDS = {  # of files, by their format
    "jsonl": FileKind("rows that seqpack unpack wrote", lambda head: bool(ROW_BEGIN.match(head))),
    "parquet": make_kind("unpack"),
}


class Block(NamedTuple):
    """Some consecutive sequences of the token stores."""

    indices: np.ndarray  # int64[N], their numbers
    ids: np.ndarray  # [S]
    lengths: np.ndarray  # int64[N]
    columns: dict[str, Values]  # by name, each of N or S values


Decode = Callable[..., list[str]]


@dataclass(slots=True)  # not frozen: it takes a third of the time
class UnpackedSequence:
    """One sequence of the token stores."""

    index: int
    ids: np.ndarray
    columns: dict[str, Any]  # by name, as JSON has them: a value, or a list with one for each id


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
    whole, path = open_shards(shards), parse_file(output)
    if path.suffix == ".parquet" and file_format != "parquet":
        raise OptionError(
            f"{path}: named like a Parquet file, --format is {file_format}",
            hint="pass --format parquet, or choose another -o",
        )
    check_no_source(path, whole)
    with publish_alone(path, KINDS[file_format], overwrite=overwrite) as file:
        how: dict[str, Any] = {"as_text": as_text, "file_format": file_format, "side": side}
        return write_sequences(whole, file.write, progress=progress, **how)


def check_no_source(path: Place, source: TokenStore | ShardSet) -> None:
    """Raise FolderError if a file is an input of a token store, or of the stores of shards."""
    if not isinstance(path, Path) or not path.exists():
        return
    sources = list[dict[str, Any]]()
    if isinstance(source, TokenStore):
        sources += source.manifest["sources"]
    else:
        for folder in [it for side in source.sides for it in side.find_stores() if it]:
            with contextlib.suppress(SeqpackError):  # it may hold something else
                sources += open_stores([folder], check_indices=False).manifest["sources"]
    for each in sources:
        with contextlib.suppress(OSError, ValueError):
            if path.samefile(each["path"]):
                raise FolderError(
                    f"{path}: an input of the token store, which is not replaced", hint=OTHER_NAME
                )


def write_sequences(
    shards: ShardSet,
    write: Callable[[bytes], None],
    *,
    as_text: bool = False,
    file_format: str = "jsonl",
    side: str | None = None,
    progress: Progress | None = None,
) -> int:
    """Write every sequence as one JSON line, or as a row of a Parquet file; return their number.

    Tokens that repeat the end of the piece before, of which the column `overlap` has the number,
    are left out. Of pairs, both sides are in one row, or one side alone: see `unpack`.

    Raises:
        OptionError: these are not pairs.
        FolderError: the sides are not in the same order, or the shards are damaged.
    """
    sides = shards.sides if side is None else [view_side(shards, side)]
    if shards.decoder is not None:
        check_pairs(shards)
    decoders = [open_decoder(each.read_tokenizer_json()) if as_text else None for each in sides]
    read = iter_blocks(sides, LIMITS.ids_per_block, progress or Progress())
    blocks = ([*map(drop_overlaps, sides, some)] for some in read)
    if file_format == "parquet":
        tables = (_make_rows_table(sides, some, decoders) for some in blocks)
        return write_parquet(write, tables, "unpack", {})
    num_rows = 0
    for some in blocks:
        lines = list[bytes]()
        for row, *others in zip(*map(_iter_rows, sides, some, decoders), strict=True):
            row.update(zip([DECODER], others, strict=False))
            lines.append(encode_json(row) + b"\n")
        write(b"".join(lines))
        num_rows += len(lines)
    return num_rows


def drop_overlaps(source: TokenStore | ShardSet, block: Block) -> Block:
    """Return a block without the tokens that repeat the end of the sequence before.

    Raises:
        FolderError: a sequence repeats more tokens than it has.
    """
    overlaps = block.columns.get(OVERLAP)
    if overlaps is None:
        return block
    lengths = block.lengths - np.asarray(overlaps)
    for row in np.flatnonzero((lengths < 1) | (lengths > block.lengths))[:1]:
        raise FolderError(
            f"{source.path}: sequence {block.indices[row]}: column {OVERLAP!r} is "
            f"{overlaps[row]}, expected less than its {block.lengths[row]:,} tokens"
        )
    cells = expand_ranges(np.cumsum(block.lengths) - lengths, lengths)
    columns = {
        name: values.take(cells) if source.columns[name].is_per_token else values
        for name, values in block.columns.items()
    }
    return Block(block.indices, block.ids[cells], lengths, columns)


def _iter_sequences(shards: ShardSet, block: Block) -> Iterator[UnpackedSequence]:
    """Yield the sequences of a block one by one."""
    cells = [slice(*each) for each in pairwise(to_offsets(block.lengths).tolist())]
    columns = dict[str, list[Any]]()
    for name, values in block.columns.items():
        column = shards.columns[name]
        spelled = column.spell(values)
        columns[name] = [spelled[each] for each in cells] if column.is_per_token else spelled
    for row, index in enumerate(block.indices.tolist()):
        found = {name: values[row] for name, values in columns.items()}
        yield UnpackedSequence(index, block.ids[cells[row]], found)


def _iter_rows(side: ShardSet, block: Block, decode: Decode | None) -> Iterator[dict[str, Any]]:
    """Yield the JSON of each sequence: `index`, `ids` or `text`, and `columns` if there are any."""
    sequences = [*_iter_sequences(side, block)]
    ids = [each.ids for each in sequences]
    values = decode(ids) if decode else map(np.ndarray.tolist, ids)
    for each, value in zip(sequences, values, strict=True):
        row = {"index": each.index, "text" if decode else "ids": value}
        yield {**row, "columns": each.columns} if each.columns else row


def _make_rows_table(
    sides: Sequence[ShardSet], blocks: Sequence[Block], decoders: Sequence[Decode | None]
) -> Any:
    """Return a table of `index`, `ids` or `text`, and the columns, of each side.

    Raises:
        OptionError: a column has one of these names.
    """
    pa, arrays = import_pyarrow(), list[tuple[str, Any]]()
    for prefix, side, block, decode in zip(("", PREFIX), sides, blocks, decoders, strict=False):
        offsets = to_offsets(block.lengths)
        arrays.append((f"{prefix}index", pa.array(block.indices)))
        if decode:
            texts = pa.array(decode(np.split(block.ids, offsets[1:-1])), pa.large_string())
            arrays.append((f"{prefix}text", texts))
        else:
            arrays.append((f"{prefix}ids", make_lists(block.ids.astype(np.int32), offsets)))
        for name, values in block.columns.items():
            arrays.append((prefix + name, make_column(side.columns[name], values, offsets)))
    return make_table(arrays, sides[0].path, "unpack", hint="pass --format jsonl")


def iter_unpacked(
    shards: ShardSet, columns: Collection[str], progress: Progress | None = None
) -> Iterator[UnpackedSequence]:
    """Yield every sequence in the shards once with some of its columns, in ascending order.

    Sequences are whole: tokens that repeat the piece before (`tokenize --overlap`) are included.

    Raises:
        FolderError: as of `iter_blocks`.
    """
    chosen = shards.with_columns(columns)
    for (block,) in iter_blocks([chosen], LIMITS.ids_per_block, progress or Progress()):
        yield from _iter_sequences(chosen, block)


def iter_blocks(
    sides: Sequence[ShardSet], max_ids: int, progress: Progress
) -> Iterator[list[Block]]:
    """Yield every sequence in the shards once, in ascending order; of pairs both, side by side.

    Args:
        max_ids: of a block, with those of repeated visits.

    Raises:
        FolderError: a batch is damaged, the visits or the pieces of a sequence have different
            values, or a piece of it is missing.
    """
    readers = [_Reader(side) for side in sides]
    rows = np.sum([reader.row_offsets for reader in readers], axis=0)
    progress.on_total(int(rows[-1]))
    for some in cut_rows(np.sum([reader.id_offsets for reader in readers], axis=0), max_ids):
        yield [reader.read(some) for reader in readers]
        progress.on_advance(int(rows[some.stop] - rows[some.start]))


class _Reader:
    """Reads the sequences of shards: the rows of each, all pieces of all visits.

    `row_offsets` and `id_offsets` say where those of each sequence begin, int64[sequences + 1].
    """

    def __init__(self, shards: ShardSet) -> None:
        self._shards = shards
        found = list[np.ndarray]()
        for shard in map(shards.open_shard, range(shards.num_shards)):
            shard.check_all()
            indices = read_original_indices(shard, shards.num_store_sequences)
            # A copy: views would keep the file of every shard open.
            found.append(np.stack([indices, shard.arrays.piece_starts, shard.tensors["lengths"]]))
        self._first_rows = to_offsets([places.shape[1] for places in found])
        places = np.concatenate(found, axis=1)
        order = np.lexsort((places[1], places[0]))
        # Without filler rows: index -1.
        self._order = order[np.searchsorted(places[0], 0, sorter=order) :]
        self._places = places
        firsts = np.flatnonzero(np.diff(places[0, self._order], prepend=-1))
        self.row_offsets = np.append(firsts, len(self._order))
        self.id_offsets = to_offsets(places[2, self._order])[self.row_offsets]

    def read(self, some: slice) -> Block:
        """Return some of the sequences; see `iter_blocks`."""
        rows = self._order[slice(*self.row_offsets[[some.start, some.stop]].tolist())]
        block, starts = self._read_rows(rows), self._places[1, rows]
        if len(rows) == some.stop - some.start and not starts.any():
            return block
        try:
            return join_pieces(self._shards.columns, block, starts)
        except ValueError as error:
            raise FolderError(f"{self._shards.path}: {error}") from error

    def _read_rows(self, rows: np.ndarray) -> Block:
        """Read some rows, shard by shard."""
        indices, _, lengths = self._places[:, rows]
        shards, offsets = self._shards, to_offsets(lengths)
        ids = np.empty(offsets[-1], shards.manifest["dtype"])
        columns: dict[str, Any] = {  # of rows, lists with those of each shard
            name: np.empty(offsets[-1], column.dtype) if column.is_per_token else []
            for name, column in shards.columns.items()
        }
        numbers = np.searchsorted(self._first_rows, rows, "right") - 1
        by_shard = np.argsort(numbers, kind="stable")
        for some in np.split(by_shard, np.flatnonzero(np.diff(numbers[by_shard])) + 1):
            number = int(numbers[some[0]])
            shard = shards.open_shard(number)
            found = rows[some] - self._first_rows[number]
            shard.arrays.copy_rows(found, ids, offsets[some])
            for name, column in shards.columns.items():
                if column.is_per_token:
                    shard.arrays.copy_rows(found, columns[name], offsets[some], column.tensor_name)
                else:
                    columns[name].append(column.view(shard.tensors).take(found))
            let_pages_go(shard.tensors["data"])
        places = np.argsort(by_shard)
        for name, values in columns.items():
            if isinstance(values, list):
                columns[name] = join_values(values).take(places)
        return Block(indices, ids, lengths, columns)


def join_pieces(columns: Columns, block: Block, starts: np.ndarray) -> Block:
    """Return the sequences of a block of pieces, of one or more visits, which must be equal.

    Each visit may be cut elsewhere. A token that has several pieces must be the same in all.

    Args:
        block: of rows, those of a sequence together, and in the order of their starts.
        starts: int64[rows], the place of the first token in the sequence.

    Raises:
        ValueError: a token has no piece, or pieces differ; with a message without the folder.
    """
    firsts = np.flatnonzero(np.diff(block.indices, prepend=-1))
    indices = block.indices[firsts]
    owners = np.repeat(np.arange(len(firsts)), np.diff(firsts, append=len(starts)))
    lengths = np.maximum.reduceat(starts + block.lengths, firsts)
    sums = np.add.reduceat(block.lengths, firsts)
    has_gap = (starts[firsts] != 0) | (lengths > sums)
    has_gap |= np.maximum.reduceat(starts, firsts) > sums  # whose end may have wrapped around
    if not has_gap.any():  # else there may be any number of cells
        offsets = to_offsets(lengths)
        cells = expand_ranges(offsets[owners] + starts, block.lengths)
        entries = np.full(offsets[-1], -1)
        entries[cells] = np.arange(len(cells))
        has_gap = np.logical_or.reduceat(entries < 0, offsets[:-1])
    for index in indices[has_gap][:1]:
        raise ValueError(f"pieces of sequence {index} do not follow one another")
    # Which entry becomes that of a sequence or token, and which of these each entry must equal.
    ways = (firsts, owners), (entries, cells)

    def join(values: Values, what: str, *, is_per_token: bool) -> Values:
        taken, others = ways[is_per_token]
        joined = values.take(taken)
        for entry in find_differing_values(joined.take(others), values)[:1]:
            row = np.repeat(owners, block.lengths)[entry] if is_per_token else owners[entry]
            raise ValueError(f"rows of sequence {indices[row]} differ in {what}")
        return joined

    ids = np.asarray(join(block.ids, "their ids", is_per_token=True))
    found = {
        name: join(values, f"column {quote(name)}", is_per_token=columns[name].is_per_token)
        for name, values in block.columns.items()
    }
    return Block(indices, ids, lengths, found)


def read_original_indices(shard: Shard, num_sequences: int) -> np.ndarray:
    """Return the sequence of each row of a shard, int64, -1 for filler rows; a view.

    Raises:
        FolderError: an index is outside the stores, which have `num_sequences`.
    """
    indices, lengths = shard.tensors["original_indices"], shard.tensors["lengths"]
    for index in indices[((indices < 0) | (indices >= num_sequences)) & (lengths > 0)][:1]:
        raise FolderError(
            f"{shard.path}: original index {index}, the store has {num_sequences:,} sequences"
        )
    return indices


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
