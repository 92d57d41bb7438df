"""Run tokenize: inputs -> plan -> parts -> manifest.

This process plans the run, watches it and publishes the manifest; workers make the parts. The same
input and options give the same bytes with any number of workers, any encoder, and after any
interruption.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from seqpack_cli.corpus.checks import (
    check_kept_fields,
    check_options_used,
    check_target_fields,
    iter_input_notes,
    naming_stray,
)
from seqpack_cli.corpus.find_files import Skipped, find_sources, list_inputs
from seqpack_cli.corpus.options import TEXT_FORMATS
from seqpack_cli.corpus.parts import check_footers
from seqpack_cli.corpus.sources import STANDARD_INPUT, Source, spool_standard_input
from seqpack_cli.errors import DataError
from seqpack_cli.files.inputs import spell_inputs
from seqpack_cli.files.places import AnyPath, Place, parse_place
from seqpack_cli.runs.options import spell_command, takes_options
from seqpack_cli.runs.run_folder import RunFolder, hold_folder
from seqpack_cli.runs.workers import Executor, Progress, Workers, open_workers
from seqpack_cli.tokens.columns.keep_option import check_keep
from seqpack_cli.tokens.encoders.agreement import start_loading
from seqpack_cli.tokens.encoders.encoder import CHECKED, choose_encoder
from seqpack_cli.tokens.make_parts import check_inputs_unchanged, make_parts, share_cores
from seqpack_cli.tokens.open_store import open_store
from seqpack_cli.tokens.options import TokenizeOptions
from seqpack_cli.tokens.part_setup import PartSetup
from seqpack_cli.tokens.publish_store import check_any_token, describe_run, publish_store
from seqpack_cli.tokens.spelled_tokens import write_spelled_tokens
from seqpack_cli.tokens.store_manifest import make_manifest
from seqpack_cli.tokens.text_readers import make_text_reader
from seqpack_cli.tokens.tokenize_plan import (
    adapt_plan,
    choose_affixes,
    find_kept,
    iter_notices,
    make_plan,
    make_tasks,
)
from seqpack_cli.tokens.tokenizer_config import read_named_tokens
from seqpack_cli.tokens.vocabulary import (
    describe_vocabulary,
    locate_tokenizer,
    read_tokenizer_json,
)


@takes_options(options=TokenizeOptions, executor=Executor)
def tokenize(
    inputs: AnyPath | Sequence[AnyPath],
    output: AnyPath,
    options: TokenizeOptions | None = None,
    *,
    executor: Executor | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> tuple[dict[str, Any], bool]:
    """Tokenize text into a token store, as `seqpack tokenize` does.

    Args:
        inputs: a file, folder, glob or URL, `-` for standard input, or a sequence of them, in the
            order of their documents; may be empty if the options name a list of files.
        output: the store's folder; an interrupted run there is continued.
        executor: where the work is done, and by how many workers; None is this machine, with as
            many processes as the input is worth, at most one per core.
        overwrite: replace an earlier token store in the folder.
        progress: what to call with bytes read, tokens made and notices.

    Returns:
        The store's manifest, and whether the store was already complete.

    Raises:
        OptionError: an input does not exist, or an option cannot be used.
        DataError: a record or the tokenizer cannot be read.
        FolderError: the folder holds something else, or another run is writing there.
        MachineError: the disk, the memory or a worker process failed.
    """
    options = options or TokenizeOptions()
    names, output = spell_inputs(inputs), parse_place(output)
    command = spell_command("tokenize", names, output, options)
    inputs = list_inputs(names, options.files)
    # The cluster first: if none answers, no folder is made.
    with (
        open_workers(executor, progress, (*inputs, output)) as workers,
        hold_folder(output, command=command) as run,
    ):
        if STANDARD_INPUT in inputs:
            run.check_foreign(overwrite=overwrite)  # before waiting for standard input
        with spool_standard_input(inputs, output) as spool:
            found = _find_input(inputs, output, options, spool, workers.progress)
            with naming_stray(inputs, found[0]):
                return _tokenize_sources(run, *found, options, workers, overwrite)


def _tokenize_sources(
    run: RunFolder,
    sources: list[Source],
    skipped: Skipped,
    options: TokenizeOptions,
    workers: Workers,
    overwrite: bool,
) -> tuple[dict[str, Any], bool]:
    import tokenizers

    started = time.monotonic()
    tokenizer = str(options.tokenizer)
    tokenizer_json = read_tokenizer_json(tokenizer)
    named = read_named_tokens(tokenizer)
    with _naming_tokenizer(tokenizer):
        encoder = choose_encoder(
            options.encoder, tokenizer_json, allow_special_tokens=options.encodes_special_tokens
        )
        _start_encoder(encoder, tokenizer_json, options, sources, workers)
        vocabulary = describe_vocabulary(tokenizer_json, named)
    affixes = choose_affixes(tokenizer_json, options)
    text = make_text_reader(
        options.targets, tokenizer, allow_special_tokens=options.allow_special_tokens
    )
    for notice in iter_notices(tokenizer_json, vocabulary, affixes, options, text):
        workers.progress.on_notice(notice)
    check_footers(sources)
    kept = find_kept(sources, options)
    tasks = make_tasks(sources, options)
    plan = make_plan(sources, vocabulary, options, kept, text)
    run.begin(plan, overwrite=overwrite, adapt=adapt_plan)
    setup = PartSetup(run.path, tokenizer_json, vocabulary, affixes, options, encoder, kept, text)
    if run.manifest is not None:
        run.check_whole(open_store)
        made = zip(tasks, run.manifest["parts"], strict=False)
        check_inputs_unchanged(made, run, workers)
        return run.manifest, True
    run.write_tokenizer(tokenizer_json)
    receipts, encoder = make_parts(run, tasks, setup, workers)
    manifest = make_manifest(plan, vocabulary, kept, receipts)
    seconds = time.monotonic() - started
    done: dict[str, Any] = {"tokenizer": tokenizer, "encoder": encoder}
    done |= describe_run(workers.executor, sources, seconds)
    done |= {} if setup.chat is None else {"chat_template": setup.chat.path}
    done["skipped"] = skipped.count()
    check_any_token(run, sources, manifest, receipts)
    write_spelled_tokens(run, manifest, receipts)
    versions = {"tokenizers": tokenizers.__version__}
    publish_store(run, sources, manifest, receipts, done, versions)
    return manifest, False


@contextmanager
def _naming_tokenizer(name: str) -> Iterator[None]:
    """Name the path of a tokenizer.json that cannot be used."""
    try:
        yield
    except DataError as error:
        what = error.message.removeprefix("tokenizer.json: ")
        raise DataError(f"{locate_tokenizer(name)}: {what}", error.hint) from error


def _start_encoder(
    name: str,
    tokenizer_json: bytes,
    options: TokenizeOptions,
    sources: list[Source],
    workers: Workers,
) -> None:
    """Load the encoder in a thread while this one reads the vocabulary, if it is used here."""
    num_bytes = sum(source.num_bytes for source in sources)
    num_processes, _ = share_cores(workers, num_bytes)
    if workers.are_local and num_processes == 1 and name in CHECKED:
        start_loading(name, tokenizer_json, options.encodes_special_tokens)


def _find_input(
    inputs: Sequence[str],
    output: Place,
    options: TokenizeOptions,
    spool: str | None,
    progress: Progress,
) -> tuple[list[Source], Skipped]:
    sources, skipped = find_sources(
        inputs,
        document=options.document,
        patterns=options.files,
        spool=spool,
        output=output,
        formats=TEXT_FORMATS.choose(options.file_format),
    )
    for note in iter_input_notes(sources, skipped, file_format=options.file_format):
        progress.on_notice(note)
    text_field = options.documents.text_field
    check_options_used(sources, document=options.document, text_field=text_field)
    check_kept_fields(sources, [name for name, *_ in check_keep(options.keep)])
    check_target_fields(sources, options.targets.fields)
    return sources, skipped
