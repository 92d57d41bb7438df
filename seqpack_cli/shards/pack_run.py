"""The command `pack` as a function: open the token stores, pack them or each of their splits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from seqpack_cli.batching.pack_options import PackOptions
from seqpack_cli.errors import OptionError
from seqpack_cli.files.copy_marks import hashing_copies
from seqpack_cli.files.places import at
from seqpack_cli.files.url import AnyPath, Place, parse_place
from seqpack_cli.runs.arguments import checks_arguments
from seqpack_cli.runs.command_line import spell_command
from seqpack_cli.runs.executor import Executor
from seqpack_cli.runs.open_run import RunOutput
from seqpack_cli.runs.progress import Progress
from seqpack_cli.runs.workers import Workers, find_workers
from seqpack_cli.shards.pack_store import is_planned_here, pack_store
from seqpack_cli.shards.selected_store import SelectedStore
from seqpack_cli.shards.split_run import pack_splits
from seqpack_cli.shards.store_passes import name_by_position
from seqpack_cli.tokens.open_store import (
    AnyPaths,
    AnyStore,
    name_stores,
    open_stores,
    parse_places,
)


@checks_arguments
@hashing_copies()
def pack(
    stores: AnyPaths,
    output: AnyPath,
    options: PackOptions | None = None,
    *,
    executor: Executor | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> tuple[dict[str, Any], bool]:
    """Pack a token store into shards, as `seqpack pack` does.

    Args:
        stores: the token store's folder, or those of several, which are packed as one.
        output: the shards' folder; an interrupted run there is continued.
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
    command = spell_command("pack", places, output, options)
    if options.split_name is not None:
        command = None  # which only the library can select
    options = options.resolve()
    workers = find_workers(executor, progress, (*places, output))
    with workers.hold():
        store, options = _open(places, output, options, workers)
        out = RunOutput(output, overwrite, command)
        if options.split is not None and options.split_name is None:
            return pack_splits(store, options, workers, out)
        return pack_store(SelectedStore(store, options), workers, out)


def _open(
    places: Sequence[Place], output: Place, options: PackOptions, workers: Workers
) -> tuple[AnyStore, PackOptions]:
    """Open the stores of a run; return the options with stores named by position."""
    is_here = is_planned_here(options, workers)
    store = open_stores(places, check_indices=is_here, without=options.drop_column)
    for place in places:
        if at(output).find_real_name() == at(place).find_real_name():
            raise OptionError(f"{output}: is the token store itself", hint="choose another -o")
    return store, name_by_position(options, name_stores(places), [each.name for each in places])
