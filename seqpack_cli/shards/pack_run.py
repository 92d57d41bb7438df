"""The command `pack` as a function: open the token stores, pack them or each of their splits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from seqpack_cli.batching.options import PackOptions, ResolvedOptions, parse_splits
from seqpack_cli.errors import OptionError, quote
from seqpack_cli.files.objects import AnyPath
from seqpack_cli.files.places import Place, parse_place
from seqpack_cli.runs.options import spell_command, takes_options
from seqpack_cli.runs.run_folder import RunOutput
from seqpack_cli.runs.workers import Executor, Progress, Workers, open_workers
from seqpack_cli.shards.alignment_checks import check_numbers
from seqpack_cli.shards.pack_store import is_planned_here, pack_store
from seqpack_cli.shards.row_ends import describe_missing_ends
from seqpack_cli.shards.selector import Selector
from seqpack_cli.shards.sides import PREFIX, of_decoder, of_encoder
from seqpack_cli.shards.split_run import pack_splits
from seqpack_cli.shards.store_passes import name_by_position
from seqpack_cli.tokens.store import AnyPaths, name_stores, open_stores, parse_places


@takes_options(options=PackOptions, executor=Executor)
def pack(
    stores: AnyPaths,
    output: AnyPath,
    options: PackOptions | None = None,
    *,
    decoder: AnyPaths | None = None,
    executor: Executor | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> tuple[dict[str, Any], bool]:
    """Pack a token store into shards, as `seqpack pack` does.

    Args:
        stores: the token store's folder, or those of several, which are packed as one.
        output: the shards' folder; an interrupted run there is continued.
        decoder: the token store of the other side of pairs, or those of several, one for each of
            stores; None packs single sequences.
        executor: where the work is done, and by how many workers; None is this machine, with one
            process per core.
        overwrite: replace earlier shards in the folder.
        progress: what to call with tokens packed and notices.

    Returns:
        The shards' manifest, and whether the shards were already complete.

    Raises:
        OptionError: options conflict, or a sequence does not fit and overflow is "error".
        FolderError: the store is damaged, the folder holds something else, or another run is
            writing there.
        MachineError: the disk, the memory or a worker process failed.
    """
    options = options or PackOptions()
    places, output = parse_places(stores), parse_place(output)
    others = [] if decoder is None else parse_places(decoder)
    if decoder is not None and not others:
        raise OptionError("decoder: no stores", hint="pass one for each store, or None")
    command = spell_command("pack", places, output, options, decoder=others)
    if options.split_name is not None:
        command = None  # which only the library can select
    resolved = options.resolve(pairs=bool(others))
    with open_workers(executor, progress, (*places, *others, output)) as workers:
        select, resolved = _open(places, others, output, resolved, workers)
        out = RunOutput(output, options, overwrite, command)
        splits = parse_splits(resolved)
        if splits is not None and resolved.split_name is None:
            return pack_splits(select, resolved, splits, workers, out)
        return pack_store(select(resolved), workers, out)


def _open(
    places: Sequence[Place],
    others: Sequence[Place],
    output: Place,
    options: ResolvedOptions,
    workers: Workers,
) -> tuple[Selector, ResolvedOptions]:
    """Open the stores of a run; return the options with stores named by position.

    Args:
        others: of the decoder's side, if these are pairs.
    """
    if others:
        check_numbers(len(places), len(others))
    is_here = is_planned_here(options, workers, pairs=bool(others))
    without = of_encoder(options).drop_column if others else options.drop_column
    store = open_stores(places, check_indices=is_here, without=without)
    for place in (*places, *others):
        if output.resolve() == place.resolve():
            raise OptionError(f"{output}: is the token store itself", hint="choose another -o")
    options = name_by_position(options, name_stores(places))
    if not others:
        return Selector(store), options
    decoder = open_stores(others, without=of_decoder(options).drop_column, prefix=PREFIX)
    for name in store.columns:
        if name.startswith(PREFIX):
            raise OptionError(
                f"{store.shown_path}: column {quote(name)} is called like one of the decoder's",
                hint="rename the field, or tokenize without --keep of it",
            )
    if options.store_column is not None and options.store_column.startswith(PREFIX):
        raise OptionError(
            f"--store-column {options.store_column}: is called like a column of the decoder's side",
            hint="choose another name, such as --store-column store",
        )
    select = Selector(store, decoder)
    select.check()
    note = describe_missing_ends(decoder)
    if note is not None:
        workers.progress.on_notice(note)
    return select, options
