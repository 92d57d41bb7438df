"""Run import: ids that another tool made -> plan -> parts -> manifest.

The same input and options give the same bytes with any number of workers and after any
interruption.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator, Sequence
from typing import Any

from seqpack_cli.corpus.checks import iter_input_notes
from seqpack_cli.corpus.find_files import Skipped, find_sources, list_inputs
from seqpack_cli.corpus.options import IDS_FORMATS
from seqpack_cli.corpus.parts import check_footers
from seqpack_cli.corpus.sources import STANDARD_INPUT, Source
from seqpack_cli.errors import OptionError
from seqpack_cli.files.inputs import spell_inputs
from seqpack_cli.files.places import AnyPath, parse_place
from seqpack_cli.runs.options import spell_command, takes_options
from seqpack_cli.runs.run_folder import RunFolder, hold_folder
from seqpack_cli.runs.workers import Executor, Progress, Workers, count_cores, open_workers
from seqpack_cli.tokens.imports.id_formats import ID_FORMATS, check_options_used, hash_input
from seqpack_cli.tokens.imports.import_facts import iter_notes
from seqpack_cli.tokens.imports.import_part import check_first, import_part
from seqpack_cli.tokens.imports.import_plan import (
    find_vocabulary,
    list_kept,
    make_plan,
    make_tasks,
)
from seqpack_cli.tokens.imports.import_setup import ImportSetup
from seqpack_cli.tokens.imports.record_fields import find_fields
from seqpack_cli.tokens.make_parts import (
    MadePart,
    check_inputs_unchanged,
    count_bytes,
    find_finished,
    make_missing,
    share_cores,
)
from seqpack_cli.tokens.open_store import open_store
from seqpack_cli.tokens.options import ImportOptions
from seqpack_cli.tokens.part_setup import PartTask
from seqpack_cli.tokens.publish_store import check_any_token, describe_run, publish_store
from seqpack_cli.tokens.store_manifest import make_manifest
from seqpack_cli.tokens.tokenize_plan import adapt_plan

MAX_THREADS = 4  # of one process: about a third of the work holds Python's lock
MAX_THREAD_BYTES = 2 << 30  # of input, which more processes than threads would not read earlier


@takes_options(options=ImportOptions, executor=Executor)
def import_store(
    inputs: AnyPath | Sequence[AnyPath],
    output: AnyPath,
    options: ImportOptions,
    *,
    executor: Executor | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> tuple[dict[str, Any], bool]:
    """Import ids that another tool made into a token store, as `seqpack import` does.

    Args:
        inputs: a file, folder, glob or URL, or a sequence of them, in the order of their documents;
            may be empty if the options name a list of files. An indexed dataset is named by its
            .bin, its .idx, or what comes before both.
        output: the store's folder; an interrupted run there is continued.
        executor: where the work is done, and by how many workers; None is this machine, with as
            many processes as the input is worth, at most one per core.
        overwrite: replace an earlier imported store in the folder.
        progress: what to call with bytes read, tokens imported and notices.

    Returns:
        The store's manifest, and whether the store was already complete.

    Raises:
        OptionError: an input does not exist, or an option cannot be used.
        DataError: a file, a record or the tokenizer cannot be read, or an id is not in the
            vocabulary.
        FolderError: the folder holds something else, or another run is writing there.
        MachineError: the disk, the memory or a worker process failed.
    """
    names, output = spell_inputs(inputs), parse_place(output)
    command = spell_command("import", names, output, options)
    inputs = list_inputs(names, options.files)
    if STANDARD_INPUT in inputs:
        hint = "write it to a file, and pass its name"
        raise OptionError(f"{STANDARD_INPUT}: import does not read standard input", hint)
    with (
        open_workers(executor, progress, (*inputs, output)) as workers,
        hold_folder(output, command=command) as run,
    ):
        sources, skipped = find_sources(
            inputs,
            patterns=options.files,
            output=output,
            formats=IDS_FORMATS.choose(options.file_format),
        )
        for note in iter_input_notes(sources, skipped, file_format=options.file_format):
            workers.progress.on_notice(note)
        check_options_used(sources, options)
        return _import_sources(run, sources, skipped, options, workers, overwrite)


def _import_sources(
    run: RunFolder,
    sources: list[Source],
    skipped: Skipped,
    options: ImportOptions,
    workers: Workers,
    overwrite: bool,
) -> tuple[dict[str, Any], bool]:
    started = time.monotonic()
    vocabulary, tokenizer_json = find_vocabulary(options)
    check_footers(sources)
    fields, kept, notes = find_fields(sources, options)
    for note in notes:
        workers.progress.on_notice(note)
    tasks, all_kept = make_tasks(sources, options), list_kept(fields, kept)
    plan = make_plan(sources, vocabulary, options, fields, all_kept)
    run.begin(plan, overwrite=overwrite, adapt=adapt_plan)
    setup = ImportSetup(run.path, vocabulary, options, fields, all_kept)
    if run.manifest is not None:
        run.check_whole(open_store)
        made = zip(tasks, run.manifest["parts"], strict=False)
        check_inputs_unchanged(made, run, workers, hash_input)
        return run.manifest, True
    if tokenizer_json is not None:
        run.write_tokenizer(tokenizer_json)
    check_first(setup, tasks)
    receipts = _make_parts(run, tasks, setup, workers)
    manifest = make_manifest(plan, vocabulary, setup.kept, receipts)
    check_any_token(run, sources, manifest, receipts)
    has_mask = fields.attention_mask is not None
    affixes, size = setup.affix_ids, options.vocab_size
    for note in iter_notes(receipts, manifest["ledger"], affixes, size, has_mask=has_mask):
        workers.progress.on_notice(note)
    seconds = time.monotonic() - started
    done: dict[str, Any] = {
        "tokenizer": None if options.tokenizer is None else str(options.tokenizer),
        **describe_run(workers.executor, sources, seconds),
        "skipped": skipped.count(),
    }
    publish_store(run, sources, manifest, receipts, done, {})
    return manifest, False


def _make_parts(
    run: RunFolder, tasks: Sequence[PartTask], setup: ImportSetup, workers: Workers
) -> list[dict[str, Any]]:
    receipts = find_finished(run, tasks, setup, workers, hash_input)

    def make(waiting: Sequence[PartTask]) -> Iterator[MadePart]:
        num_processes, num_threads = _share_cores(workers, waiting)
        make_part = functools.partial(import_part, setup)
        return workers.run(make_part, waiting, max_processes=num_processes, num_threads=num_threads)

    make_missing(receipts, tasks, workers, make)
    return [receipt for receipt in receipts.values() if receipt is not None]


def _share_cores(workers: Workers, tasks: Sequence[PartTask]) -> tuple[int, int]:
    """Return the number of processes on this machine for some parts, and of threads in each.

    Threads are faster than processes, which take a second to start, until Python's lock holds them
    up, as it does at once where records are read.
    """
    num_bytes = count_bytes(tasks)
    num_processes, _ = share_cores(workers, num_bytes, len(tasks))
    num_threads = min(MAX_THREADS, count_cores(), len(tasks))
    is_free = workers.executor.num_workers is None and workers.are_local
    ranges = (source_range for task in tasks for source_range in task.ranges)
    if not is_free or any(ID_FORMATS[each.source.format].holds == "records" for each in ranges):
        return num_processes, 1
    is_soon_done = num_processes <= num_threads or num_bytes <= MAX_THREAD_BYTES
    return (1, num_threads) if is_soon_done else (num_processes, 1)
