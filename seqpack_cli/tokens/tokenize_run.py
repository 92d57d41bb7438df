"""The tokenize run: inputs -> plan -> parts -> manifest.

The parent plans, watches and publishes the manifest; workers make the parts. The same input and
options give the same bytes for any number of workers, any encoder, and after any interruption.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

from seqpack_cli.corpus.parts import check_footers
from seqpack_cli.corpus.skipped import Skipped
from seqpack_cli.corpus.sources import STANDARD_INPUT, Source, find_sources, find_unpacked
from seqpack_cli.corpus.standard_input import spool_standard_input
from seqpack_cli.errors import DataError, check_choice, join_items
from seqpack_cli.files.json_files import write_json
from seqpack_cli.files.url import Place, is_shared
from seqpack_cli.runs.execution import Executor, hold_executor
from seqpack_cli.runs.progress import Progress
from seqpack_cli.runs.run_folder import RUN_NAME, RunFolder, hold_folder
from seqpack_cli.tokens.encoders.agreement import start_loading
from seqpack_cli.tokens.encoders.encoder import CHOICES, REFERENCE, choose_encoder
from seqpack_cli.tokens.make_parts import check_inputs_unchanged, make_parts, share_cores
from seqpack_cli.tokens.receipts import write_rejects
from seqpack_cli.tokens.spelled_tokens import write_spelled_tokens
from seqpack_cli.tokens.store_manifest import (
    check_ledger,
    describe_run,
    make_manifest,
)
from seqpack_cli.tokens.token_store import open_store
from seqpack_cli.tokens.tokenize_part import PartTask
from seqpack_cli.tokens.tokenize_plan import (
    TokenizeOptions,
    adapt_plan,
    check_overflow,
    make_plan,
    make_tasks,
)
from seqpack_cli.tokens.vocabulary import (
    Vocabulary,
    describe_vocabulary,
    find_saved_limits,
    locate_tokenizer,
    read_tokenizer_json,
)


def tokenize(
    inputs: Sequence[str],
    output: Place,
    options: TokenizeOptions | None = None,
    *,
    encoder: str = "auto",
    num_workers: int | None = None,
    executor: Executor | None = None,
    overwrite: bool = False,
    standard_input: BinaryIO | None = None,
    progress: Progress | None = None,
) -> tuple[dict[str, Any], bool]:
    """Tokenize files, folders and globs into a token store.

    Args:
        inputs: files, folders, globs and `-`, in the order their documents shall have.
        output: the store's folder; an interrupted run there is continued.
        encoder: "auto", "fastokens" or "tokenizers"; the bytes are the same.
        num_workers: processes; None takes as many as the input is worth, at most one a core.
        executor: where they are; None is this machine.
        standard_input: what `-` stands for.

    Returns:
        The store's manifest, and whether it was complete before.

    Raises:
        SeqpackError: see its children; nothing unfinished counts as a store.
    """
    options, progress = options or TokenizeOptions(), progress or Progress()
    check_choice("encoder", encoder, CHOICES)
    check_overflow(options)
    executor = executor or Executor()
    if not all(map(is_shared, (*inputs, output))):
        num_workers = executor.keep_here()
    # The cluster first: where none answers, nothing has begun.
    with hold_executor(executor, num_workers=num_workers), hold_folder(output) as run:
        if STANDARD_INPUT in inputs:
            run.check_foreign(overwrite=overwrite)  # before the wait for what comes in
        with spool_standard_input(inputs, standard_input, output) as spool:
            return _tokenize_sources(
                run,
                *_find_input(inputs, output, options, spool, progress),
                options,
                encoder=encoder,
                num_workers=num_workers,
                executor=executor,
                overwrite=overwrite,
                progress=progress,
            )


def _tokenize_sources(
    run: RunFolder,
    sources: list[Source],
    skipped: Skipped,
    options: TokenizeOptions,
    *,
    encoder: str,
    num_workers: int | None,
    executor: Executor,
    overwrite: bool,
    progress: Progress,
) -> tuple[dict[str, Any], bool]:
    started = time.monotonic()
    tokenizer_json = read_tokenizer_json(options.tokenizer)
    with _naming_tokenizer(options.tokenizer):
        first_encoder = choose_encoder(
            encoder, tokenizer_json, allow_special_tokens=options.allow_special_tokens
        )
        _start_encoder(first_encoder, tokenizer_json, options, sources, executor, num_workers)
        vocabulary = describe_vocabulary(tokenizer_json)
    for notice in _iter_notices(tokenizer_json, vocabulary, options):
        progress.on_notice(notice)
    check_footers(sources)
    tasks = make_tasks(sources, tokenizer_json, vocabulary, options, run.path)
    plan = make_plan(sources, vocabulary, options)
    run.begin(plan, overwrite=overwrite, adapt=adapt_plan)
    if run.manifest is not None:
        _check_finished(run, run.manifest, tasks, executor, num_workers)
        return run.manifest, True
    run.write_tokenizer(tokenizer_json)
    receipts, used_encoder = make_parts(
        run,
        tasks,
        encoder=first_encoder,
        may_fall_back=encoder == "auto",
        num_workers=num_workers,
        executor=executor,
        progress=progress,
    )
    manifest = make_manifest(plan, vocabulary, receipts)
    seconds = time.monotonic() - started
    how = (options.tokenizer, used_encoder, executor.name, num_workers)
    done = {**describe_run(*how, sources, seconds), "skipped": skipped.count()}
    _publish(run, sources, manifest, receipts, done)
    return manifest, False


def _check_finished(
    run: RunFolder,
    manifest: dict[str, Any],
    tasks: list[PartTask],
    executor: Executor,
    num_workers: int | None,
) -> None:
    run.check_whole(open_store)
    made = zip(tasks, manifest["parts"], strict=False)
    check_inputs_unchanged(made, run, num_workers=num_workers, executor=executor)


def _publish(
    run: RunFolder,
    sources: list[Source],
    manifest: dict[str, Any],
    receipts: list[dict[str, Any]],
    done: dict[str, Any],
) -> None:
    """Write what stands beside the parts, the manifest last."""
    if manifest["ledger"]["num_sequences"] == 0:
        run.abandon()
    check_ledger(manifest["ledger"], sources)
    write_rejects(run, sources, manifest["parts"], receipts)
    write_spelled_tokens(run, manifest, receipts)
    write_json(run.path / RUN_NAME, done)
    run.finish(manifest, [file for receipt in receipts for file in receipt["files"]])


def _iter_notices(
    tokenizer_json: bytes, vocabulary: Vocabulary, options: TokenizeOptions
) -> Iterator[str]:
    """Yield what a user may not expect of a tokenizer."""
    for limit in find_saved_limits(tokenizer_json):
        yield f"tokenizer.json: its saved {limit} is switched off"
    if options.allow_special_tokens and not vocabulary.special_tokens:
        yield "--allow-special-tokens: the tokenizer has no special tokens"


@contextmanager
def _naming_tokenizer(name: str) -> Iterator[None]:
    """Say of a tokenizer.json that can not be used where it was found."""
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
    executor: Executor,
    num_workers: int | None,
) -> None:
    """Begin to load the encoder while this thread reads the vocabulary, if it is used here."""
    num_bytes = sum(source.num_bytes for source in sources)
    num_processes, num_threads = share_cores(num_workers, num_bytes)
    if executor.name == "local" and num_processes == 1 and name != REFERENCE:
        start_loading(name, tokenizer_json, options.allow_special_tokens, num_threads)


def _find_input(
    inputs: Sequence[str],
    output: Place,
    options: TokenizeOptions,
    spool: str | None,
    progress: Progress,
) -> tuple[list[Source], Skipped]:
    sources, skipped = find_sources(
        inputs,
        file_format=options.file_format,
        document=options.document,
        spool=spool,
        output=output,
    )
    if skipped.count():
        progress.on_notice(str(skipped))
    if unpacked := find_unpacked(sources):
        looks = "it looks" if len(unpacked) == 1 else "they look"
        progress.on_notice(
            f"read as input, although {looks} like output of seqpack unpack --text: "
            f"{join_items(unpacked)}"
        )
    return sources, skipped
