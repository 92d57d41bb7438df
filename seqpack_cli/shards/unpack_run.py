"""Write the sequences of shards into a file, in their original order: the inverse of pack."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from seqpack_cli.errors import FolderError, check_choice
from seqpack_cli.files.copy_marks import hashing_copies
from seqpack_cli.files.single_file import parse_file, publish_alone
from seqpack_cli.files.url import AnyPath
from seqpack_cli.runs.arguments import checks_arguments
from seqpack_cli.runs.progress import Progress
from seqpack_cli.shards.shard_set import ShardSet, open_shards
from seqpack_cli.shards.unpacked import UnpackedSequence, iter_unpacked
from seqpack_cli.shards.unpacked_lines import ROWS, spell_lines
from seqpack_cli.shards.unpacked_parquet import PARQUET, Group, write_parquet
from seqpack_cli.tokens.columns.made_columns import OVERLAP
from seqpack_cli.tokens.decoder import open_decoder

ROWS_PER_WRITE = 1024
KINDS = {"jsonl": ROWS, "parquet": PARQUET}  # of files, by their format


@checks_arguments
@hashing_copies()
def unpack(
    shards: AnyPath,
    output: AnyPath,
    *,
    as_text: bool = False,
    file_format: str = "jsonl",
    overwrite: bool = False,
    progress: Progress | None = None,
) -> int:
    """Write the sequences of shards into a file, in the order of the token store.

    Args:
        shards: the shards' folder.
        output: the file; each line has the `index` of a sequence, its `ids` and its `columns`.
        as_text: write the decoded `text` instead of `ids`.
        file_format: "jsonl", or "parquet", where columns stand beside `index` and `ids`.
        overwrite: replace a file that an earlier `unpack` wrote.

    Returns:
        The number of sequences.

    Raises:
        FolderError: the shards are damaged, or another file would be replaced.
        MachineError: the disk is full or fails.
    """
    check_choice("file_format", file_format, KINDS)
    opened, kind = open_shards(shards), KINDS[file_format]
    with publish_alone(parse_file(output), kind, overwrite=overwrite) as file:
        return write_sequences(
            opened, file.write, as_text=as_text, file_format=file_format, progress=progress
        )


@hashing_copies()
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
    of the piece before, of which the column `overlap` has the number, are left out.
    """
    num_sequences = 0

    def iter_groups() -> Iterator[Group]:
        nonlocal num_sequences
        whole = iter_unpacked(shards, shards.columns, progress)
        sequences = (drop_overlap(each, shards) for each in whole)
        decode = open_decoder(shards.read_tokenizer_json()) if as_text else None
        while rows := list(islice(sequences, ROWS_PER_WRITE)):
            yield rows, None if decode is None else decode([row.ids for row in rows])
            num_sequences += len(rows)

    if file_format == "parquet":
        write_parquet(shards, iter_groups(), write)
    else:
        for rows, texts in iter_groups():
            write(spell_lines(rows, texts))
    return num_sequences


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
