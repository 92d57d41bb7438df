"""Write the sequences of shards into a file, in their original order: the inverse of pack."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice

from seqpack_cli.batching.options import SIDES
from seqpack_cli.errors import FolderError, check_choice
from seqpack_cli.files.objects import AnyPath
from seqpack_cli.files.outputs import parse_file, publish_alone
from seqpack_cli.limits import LIMITS
from seqpack_cli.runs.options import checks_arguments
from seqpack_cli.runs.workers import Progress
from seqpack_cli.shards.paired_rows import check_pairs, view_side
from seqpack_cli.shards.shard_set import ShardSet, open_shards
from seqpack_cli.shards.unpacked import UnpackedSequence, iter_unpacked
from seqpack_cli.shards.unpacked_lines import ROWS, Group, spell_lines
from seqpack_cli.shards.unpacked_parquet import PARQUET, write_parquet
from seqpack_cli.tokens.columns import OVERLAP
from seqpack_cli.tokens.decoder import open_decoder

KINDS = {"jsonl": ROWS, "parquet": PARQUET}  # of files, by their format


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
        OptionError: there is no such side.
        MachineError: the disk is full or fails.
    """
    check_choice("file_format", file_format, KINDS)
    check_choice("side", side, (None, *SIDES))
    opened, kind = choose_side(open_shards(shards), side), KINDS[file_format]
    with publish_alone(parse_file(output), kind, overwrite=overwrite) as file:
        return write_sequences(
            opened, file.write, as_text=as_text, file_format=file_format, progress=progress
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

    A line has `index`, `ids` or `text`, and `columns` if there are any. Tokens that repeat the end
    of the piece before, of which the column `overlap` has the number, are left out. Of pairs, both
    sides are in one line.
    """
    progress, sides = progress or Progress(), shards.sides
    if len(sides) > 1:
        check_pairs(shards)
        progress.on_total(sum(side.manifest["ledger"]["num_sequences"] for side in sides))
        progress = replace(progress, on_total=Progress().on_total)
    num_sequences = 0

    def iter_groups() -> Iterator[list[Group]]:
        nonlocal num_sequences
        of_sides = [_iter_side(side, progress, as_text=as_text) for side in sides]
        for groups in zip(*of_sides, strict=True):
            yield list(groups)
            num_sequences += len(groups[0][0])

    if file_format == "parquet":
        write_parquet(sides, iter_groups(), write)
    else:
        for groups in iter_groups():
            write(spell_lines(groups))
    return num_sequences


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


def _iter_side(shards: ShardSet, progress: Progress, *, as_text: bool) -> Iterator[Group]:
    """Yield the sequences of one side, some at a time."""
    whole = iter_unpacked(shards, shards.columns, progress)
    sequences = (drop_overlap(each, shards) for each in whole)
    decode = open_decoder(shards.read_tokenizer_json()) if as_text else None
    while rows := list(islice(sequences, LIMITS.texts_per_write)):
        yield rows, None if decode is None else decode([row.ids for row in rows])


def drop_overlap(sequence: UnpackedSequence, shards: ShardSet) -> UnpackedSequence:
    """Return a sequence without its first tokens if they repeat the end of the piece before.

    Raises:
        FolderError: it would repeat all of its tokens.
    """
    num_repeated = sequence.columns.get(OVERLAP, 0)
    if not num_repeated:
        return sequence
    num_tokens = len(sequence.ids)
    if not 0 < num_repeated < num_tokens:
        raise FolderError(
            f"{shards.path}: sequence {sequence.index}: column {OVERLAP!r} is {num_repeated}, "
            f"expected less than its {num_tokens:,} tokens"
        )
    columns = {
        name: value[num_repeated:] if shards.columns[name].is_per_token else value
        for name, value in sequence.columns.items()
    }
    return UnpackedSequence(sequence.index, sequence.ids[num_repeated:], columns)
