"""The tokenize run: inputs -> plan -> parts -> manifest.

The parent plans, watches and publishes the manifest; workers make the parts. The same input and
options give the same bytes for any number of workers, and after any interruption: a finished part
is taken as it is if the input it was made from still has the same sha256.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seqpack_cli.corpus.documents import DocumentOptions
from seqpack_cli.corpus.parts import plan_parts
from seqpack_cli.corpus.sources import Source, SourceRange, find_sources, hash_range
from seqpack_cli.errors import FolderError, OptionError, check_choice, check_positive, join_items
from seqpack_cli.execution import Progress, count_cores, run_tasks
from seqpack_cli.run_folder import OVERWRITE_HINT, RUN_NAME, RunFolder, open_run
from seqpack_cli.storage import publish, write_json
from seqpack_cli.tokens.affixes import find_affixes
from seqpack_cli.tokens.encoder import choose_encoder
from seqpack_cli.tokens.indexed_dataset import choose_dtype
from seqpack_cli.tokens.store_manifest import (
    check_ledger,
    describe_run,
    make_manifest,
    write_rejects,
)
from seqpack_cli.tokens.token_store import FORMAT, FORMAT_VERSION, open_store
from seqpack_cli.tokens.tokenize_part import PartTask, tokenize_part
from seqpack_cli.tokens.vocabulary import (
    BYTES,
    Vocabulary,
    describe_vocabulary,
    find_saved_limits,
    read_tokenizer_json,
)


@dataclass(frozen=True)
class TokenizeOptions:
    """All that decides the bytes of a token store, besides the input and the tokenizer's bytes."""

    tokenizer: str = BYTES
    file_format: str = "auto"
    document: str = "line"
    documents: DocumentOptions = field(default_factory=DocumentOptions)
    add_special_tokens: bool = True
    bos: str | None = None
    eos: str | None = None
    allow_special_tokens: bool = False
    max_length: int | None = None
    overflow: str = "split"
    part_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        check_choice("file_format", self.file_format, ("auto", "text", "jsonl"))
        check_choice("document", self.document, ("line", "file", "paragraph"))
        check_choice("overflow", self.overflow, ("split", "truncate", "drop", "error"))
        check_positive("max_length", self.max_length)
        check_positive("part_bytes", self.part_bytes)


def tokenize(
    inputs: Sequence[str],
    output: Path,
    options: TokenizeOptions | None = None,
    *,
    num_workers: int | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> tuple[dict[str, Any], bool]:
    """Tokenize files, folders and globs into a token store.

    Args:
        inputs: files, folders and globs, in the order their documents shall have.
        output: the store's folder; an interrupted run there is continued.
        num_workers: processes; None takes one a core.

    Returns:
        The store's manifest, and whether it was complete before.

    Raises:
        SeqpackError: see its children; nothing unfinished counts as a store.
    """
    options, progress = options or TokenizeOptions(), progress or Progress()
    num_workers = num_workers or count_cores()
    _check_options(options)
    started = time.monotonic()
    sources = _find_input(inputs, output, options, progress)
    tokenizer_json = read_tokenizer_json(options.tokenizer)
    for limit in find_saved_limits(tokenizer_json):
        progress.on_notice(f"tokenizer.json: its saved {limit} is switched off")
    vocabulary = describe_vocabulary(tokenizer_json)
    plan = _make_plan(sources, vocabulary, options)
    tasks = _make_tasks(sources, tokenizer_json, vocabulary, plan["dtype"], options, output)
    with open_run(output, plan, overwrite=overwrite) as run:
        if run.manifest is not None:
            open_store(output)  # or say what is damaged
            _check_inputs_unchanged(sources, run.manifest["parts"], output)
            return run.manifest, True
        with publish(output / "tokenizer.json") as file:
            file.write(tokenizer_json)
        receipts = _make_parts(run, tasks, sources, num_workers, progress)
        manifest = make_manifest(plan, vocabulary, receipts)
        check_ledger(manifest["ledger"], sources)
        write_rejects(output, sources, manifest["parts"], receipts)
        encoder = choose_encoder(tokenizer_json, allow_special_tokens=options.allow_special_tokens)
        seconds = time.monotonic() - started
        done = describe_run(options.tokenizer, encoder, num_workers, sources, seconds)
        write_json(output / RUN_NAME, done)
        run.finish(manifest)
    return manifest, False


def _find_input(
    inputs: Sequence[str], output: Path, options: TokenizeOptions, progress: Progress
) -> list[Source]:
    sources, passed_over = find_sources(
        inputs, file_format=options.file_format, document=options.document
    )
    if passed_over:
        progress.on_notice(
            f"passed over {len(passed_over)} files of unknown suffix: {join_items(passed_over)}"
        )
    folder = output.resolve()
    for source in sources:
        if folder in Path(source.path).resolve().parents:
            raise FolderError(f"{output}: holds the input {source.path}", hint="choose another -o")
    return sources


def _check_options(options: TokenizeOptions) -> None:
    if options.max_length is None and options.overflow != "split":
        raise OptionError(
            f"--overflow {options.overflow}: nothing is too long without --max-length"
        )


def _make_plan(
    sources: list[Source], vocabulary: Vocabulary, options: TokenizeOptions
) -> dict[str, Any]:
    values = dataclasses.asdict(options)
    values.update(values.pop("documents"))
    del values["tokenizer"]  # where it lay; its sha256 says what it was
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "dtype": choose_dtype(vocabulary.max_id),
        "tokenizer_sha256": vocabulary.tokenizer_sha256,
        "options": values,
        "sources": [{"path": source.path, "bytes": source.num_bytes} for source in sources],
    }


def _make_tasks(
    sources: list[Source],
    tokenizer_json: bytes,
    vocabulary: Vocabulary,
    dtype: str,
    options: TokenizeOptions,
    output: Path,
) -> list[PartTask]:
    affixes = find_affixes(
        tokenizer_json,
        add_special_tokens=options.add_special_tokens,
        bos=options.bos,
        eos=options.eos,
    )
    if options.overflow == "truncate" and (options.max_length or 0) <= len(affixes):
        raise OptionError(
            f"--max-length {options.max_length}: no room for text beside the "
            f"{len(affixes)} special tokens of each document"
        )
    return [
        PartTask(
            name=f"part-{number:05d}",
            folder=output,
            ranges=ranges,
            tokenizer_json=tokenizer_json,
            vocabulary=vocabulary,
            dtype=dtype,
            affixes=affixes,
            documents=options.documents,
            allow_special_tokens=options.allow_special_tokens,
            max_length=options.max_length,
            overflow=options.overflow,
            num_threads=1,
        )
        for number, ranges in enumerate(plan_parts(sources, part_bytes=options.part_bytes))
    ]


def _make_parts(
    run: RunFolder,
    tasks: list[PartTask],
    sources: list[Source],
    num_workers: int,
    progress: Progress,
) -> list[dict[str, Any]]:
    """Make the parts that are not there yet; give all receipts in order."""
    receipts = {task.name: run.read_receipt(task.name) for task in tasks}
    finished = [receipt for receipt in receipts.values() if receipt is not None]
    _check_inputs_unchanged(sources, finished, run.path)
    waiting = [task for task in tasks if receipts[task.name] is None]
    progress.on_total(sum(_num_bytes(task) for task in waiting))
    if finished:
        progress.on_notice(f"{len(finished)} of {len(tasks)} parts were finished before")
    in_process = min(num_workers, len(waiting)) <= 1
    if in_process:  # then the encoder's own threads take the cores
        waiting = [
            dataclasses.replace(task, num_threads=num_workers, on_bytes=progress.on_advance)
            for task in waiting
        ]
    sizes = {task.name: _num_bytes(task) for task in waiting}
    for name, receipt in run_tasks(tokenize_part, waiting, num_workers=num_workers):
        receipts[name] = receipt
        if not in_process:
            progress.on_advance(sizes[name])
    return [receipt for receipt in receipts.values() if receipt is not None]


def _num_bytes(task: PartTask) -> int:
    return sum(source_range.end - source_range.start for source_range in task.ranges)


def _check_inputs_unchanged(
    sources: list[Source], parts: list[dict[str, Any]], folder: Path
) -> None:
    """Raise unless the input that finished parts were made from is still the same."""
    for part in parts:
        for entry in part["ranges"]:
            source = sources[entry["source"]]
            source_range = SourceRange(entry["source"], source, entry["start"], entry["end"])
            if hash_range(source_range) != entry["sha256"]:
                raise FolderError(
                    f"{folder}: {source.path} changed since this run began", hint=OVERWRITE_HINT
                )
