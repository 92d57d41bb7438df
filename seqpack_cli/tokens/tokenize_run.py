"""Tokenize text into a token store: inputs -> plan -> parts -> manifest.

The plan is everything that decides the bytes of the store. This process plans the run, watches it
and publishes the manifest; workers make the parts, each about 1 MiB of text at a time, and publish
their files and receipts. The same input and options give the same bytes with any number of workers,
any encoder, and after any interruption. `import` shares the run: parts, receipts and publishing.
"""

from __future__ import annotations

import functools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from blake3 import blake3

from seqpack_cli.corpus.checks import (
    check_kept_fields,
    check_options_used,
    check_target_fields,
    find_input,
    naming_stray,
)
from seqpack_cli.corpus.fields import FieldText, proposes_field
from seqpack_cli.corpus.find_files import Skipped, list_inputs
from seqpack_cli.corpus.options import TEXT_FORMATS
from seqpack_cli.corpus.parts import check_footers, plan_parts
from seqpack_cli.corpus.records import RecordBlock, iter_records, read_block_file, sample_records
from seqpack_cli.corpus.sources import STANDARD_INPUT, Source, SourceRange, spool_standard_input
from seqpack_cli.corpus.streams import check_unchanged, hash_range
from seqpack_cli.errors import DataError, FolderError, OptionError, join_items
from seqpack_cli.files.inputs import spell_inputs
from seqpack_cli.files.json_files import encode_json
from seqpack_cli.files.objects import AnyPath, map_ahead
from seqpack_cli.files.places import Place, parse_place
from seqpack_cli.runs.options import spell_command, takes_options
from seqpack_cli.runs.run_folder import OVERWRITE_HINT, RunFolder, RunOutput, hold_folder
from seqpack_cli.runs.workers import (
    Executor,
    Progress,
    Workers,
    advance,
    count_cores,
    open_workers,
)
from seqpack_cli.tokens.columns import KINDS, OVERLAP, TARGETS, check_keep, choose_kinds
from seqpack_cli.tokens.encoders import (
    FAST,
    REFERENCE,
    EncodedBatch,
    EncoderRefusedError,
    check_agreement,
    choose_encoder,
    open_batch_encoder,
    open_checked_encoder,
    take_head,
)
from seqpack_cli.tokens.kinds import PlannedColumn
from seqpack_cli.tokens.manifest import describe_plan, is_balanced, make_manifest
from seqpack_cli.tokens.offsets import Encoder, EncodersDifferError
from seqpack_cli.tokens.options import TokenizeOptions
from seqpack_cli.tokens.part_files import (
    REPLACED,
    MadeDocuments,
    PartWriter,
    cast_ids,
    choose_dtype,
    columns_name,
    hash_texts,
)
from seqpack_cli.tokens.sequences import (
    TokenColumn,
    TooLongError,
    make_sequences,
)
from seqpack_cli.tokens.special_tokens import SpecialTokenCounts, write_spelled_tokens
from seqpack_cli.tokens.store import open_store
from seqpack_cli.tokens.tags import Tags
from seqpack_cli.tokens.texts import (
    PromptText,
    TextBatch,
    gather,
    make_text_reader,
)
from seqpack_cli.tokens.tokenizer import (
    Affixes,
    Vocabulary,
    find_affixes,
    list_ignored_settings,
    read_tokenizer,
)

if TYPE_CHECKING:
    from seqpack_cli.tokens.chat import ChatText

MIN_WORKER_BYTES = 64 << 20  # of input per process: starting one takes a second
MAX_PARTS_AT_ONCE = 2  # in a process: Python's lock lets no more than that be read at once
MIN_HASHED_BYTES = 1 << 30  # of input that is only hashed, per process
RECEIPT_FIELDS: dict[str, type] = {
    "ledger": dict,
    "ranges": list,
    "files": list,
    "rejects": list,
    "class_names": dict,
}
TOKENIZE_FIELDS: dict[str, type] = {**RECEIPT_FIELDS, "special_tokens": dict, "encoder": str}

Receipts = dict[str, dict[str, Any] | None]  # by part; None for one that is not made yet
MadePart = tuple[str, dict[str, Any]]  # its name and receipt
HashInput = Callable[[SourceRange], str]

_opening = threading.Lock()  # threads that make parts share one encoder


@dataclass(frozen=True)
class PartSetup:
    """What a worker needs to tokenize any part of a run."""

    folder: Place
    tokenizer_json: bytes
    vocabulary: Vocabulary
    affixes: Affixes
    options: TokenizeOptions
    encoder: str  # the one in use
    fields: tuple[PlannedColumn, ...] = ()  # the columns to make
    text: PromptText | ChatText | None = None  # None: a text is one field
    num_threads: int = 1

    @property
    def chat(self) -> ChatText | None:
        """How a chat template renders the texts, special tokens among them; None if none does."""
        return None if isinstance(self.text, PromptText) else self.text

    @property
    def dtype(self) -> str:
        """The dtype of the ids."""
        return choose_dtype(self.vocabulary.max_id)


@dataclass(frozen=True)
class PartTask:
    """One part to make; or one that was made, with the ranges in its receipt."""

    name: str
    ranges: list[SourceRange]
    made_from: Sequence[dict[str, Any]] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle plain tuples, much faster than named ones: a part may have 10,000 files."""
        ranges = [(index, tuple(source), start, end) for index, source, start, end in self.ranges]
        return _load_task, (self.name, ranges, self.made_from)

    def __str__(self) -> str:
        paths = [source_range.source.path for source_range in self.ranges]
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        return f"{self.name} ({paths[0]}{more})"


def _load_task(name: str, ranges: list[tuple[Any, ...]], made_from: list[Any]) -> PartTask:
    found = [SourceRange(index, Source(*source), *ends) for index, source, *ends in ranges]
    return PartTask(name, found, made_from)


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
        hold_folder(RunOutput(output, options, overwrite, command)) as run,
    ):
        if STANDARD_INPUT in inputs:
            run.check_foreign()  # before waiting for standard input
        with spool_standard_input(inputs, output) as spool:
            sources, skipped = find_input(
                inputs,
                options.files,
                TEXT_FORMATS,
                options.file_format,
                workers.progress.on_notice,
                document=options.document,
                spool=spool,
                output=output,
            )
            text_field = options.documents.text_field
            check_options_used(sources, document=options.document, text_field=text_field)
            check_kept_fields(sources, [column.name for column in check_keep(options.keep)])
            check_target_fields(sources, options.targets.fields)
            with naming_stray(inputs, sources):
                return _tokenize_sources(run, sources, skipped, options, workers)


def _tokenize_sources(
    run: RunFolder,
    sources: list[Source],
    skipped: Skipped,
    options: TokenizeOptions,
    workers: Workers,
) -> tuple[dict[str, Any], bool]:
    import tokenizers

    started = time.monotonic()
    has_chat = options.targets.messages_field is not None
    tokenizer = read_tokenizer(str(options.tokenizer), with_templates=has_chat)
    tokenizer_json = tokenizer.tokenizer_json
    encoder = choose_encoder(
        options.encoder, tokenizer_json, allow_special_tokens=options.encodes_special_tokens
    )
    vocabulary = tokenizer.describe()
    affixes = _choose_affixes(tokenizer_json, options)
    text = make_text_reader(
        options.targets, tokenizer, allow_special_tokens=options.allow_special_tokens
    )
    for notice in _iter_notices(tokenizer_json, vocabulary, affixes, options, text):
        workers.progress.on_notice(notice)
    check_footers(sources)
    fields = _find_fields(sources, options)
    tasks = make_tasks(plan_parts(sources, part_bytes=options.part_bytes))
    chat = {} if text is None else text.describe()
    recorded = {**options.record(), "chat": chat, "keep": describe_kept(fields)}
    plan = describe_plan("tokenize", vocabulary, recorded, sources)
    whole = begin_store(run, plan, tasks, workers)
    if whole is not None:
        return whole, True
    setup = PartSetup(run.path, tokenizer_json, vocabulary, affixes, options, encoder, fields, text)
    run.write_tokenizer(tokenizer_json)
    receipts, encoder = _make_parts(run, tasks, setup, workers)
    manifest = make_manifest(plan, fields, receipts)
    check_any_token(run, sources, manifest, receipts)
    write_spelled_tokens(run, manifest, receipts)
    done: dict[str, Any] = {"tokenizer": tokenizer.name, "encoder": encoder}
    done["skipped"] = skipped.count()
    if num_replaced := sum(receipt["ledger"].get(REPLACED, 0) for receipt in receipts):
        what = "documents with U+FFFD, which --encoding-errors replace puts for invalid bytes"
        workers.progress.on_notice(f"{what}: {num_replaced:,}")
        done[REPLACED] = num_replaced
    done |= {} if setup.chat is None else {"chat_template": setup.chat.template.path}
    versions = {"tokenizers": tokenizers.__version__}
    publish_store(run, workers, manifest, receipts, done, versions, started=started)
    return manifest, False


def _find_fields(sources: list[Source], options: TokenizeOptions) -> tuple[PlannedColumn, ...]:
    """Return the columns to make; kinds that are left open are found from the first records.

    Raises:
        DataError: the first records do not decide, or cannot be read.
        OptionError: an option does not apply to any of the fields.
    """
    keep, kept = check_keep(options.keep), list[PlannedColumn]()
    if keep:
        samples = sample_records(sources, [option.name for option in keep], options.documents)
        kept = choose_kinds(keep, samples, options.documents.text_field)
    tags = next((field for field in kept if KINDS[field.kind].is_per_token), None)
    if options.tag_subtokens and tags is None:
        raise OptionError(
            f"--tag-subtokens {options.tag_subtokens}: no tags are kept",
            hint="pass --keep FIELD:tags, or leave it out",
        )
    if tags is not None and options.makes_texts:
        raise OptionError(
            f"--keep {tags.name}: tags belong to a text of one field, "
            f"found {next(iter(options.targets.fields))}",
            hint="tokenize the tags into a store of their own",
        )
    made = []
    if options.makes_texts or options.overlap is not None:
        made.append(PlannedColumn(TARGETS, "targets", is_kept=False))
    if options.overlap is not None:
        made.append(PlannedColumn(OVERLAP, "int", is_kept=False))
    return (*made, *kept)


def _choose_affixes(tokenizer_json: bytes, options: TokenizeOptions) -> Affixes:
    """Find the special tokens before and after each document.

    Raises:
        OptionError: --bos or --eos is unknown, or leaves no room for text.
        DataError: the tokenizer's template is not supported.
    """
    affixes = find_affixes(
        tokenizer_json,
        add_special_tokens=options.add_special_tokens and options.targets.messages_field is None,
        bos=options.bos,
        eos=options.eos,
    )
    if options.overflow == "truncate" and (options.max_length or 0) <= len(affixes):
        raise OptionError(
            f"--max-length {options.max_length}: no room for text beside the {len(affixes)} "
            f"special tokens of each document, expected at least {len(affixes) + 1}"
        )
    return affixes


def _iter_notices(
    tokenizer_json: bytes,
    vocabulary: Vocabulary,
    affixes: Affixes,
    options: TokenizeOptions,
    text: PromptText | ChatText | None,
) -> Iterator[str]:
    """Yield notes about settings that have no effect, or not the one that most users want."""
    for name in list_ignored_settings(tokenizer_json):
        yield f"tokenizer.json: ignoring its saved {name}"
    if options.allow_special_tokens and not vocabulary.special_tokens:
        yield "--allow-special-tokens: the tokenizer has no special tokens"
    if options.targets.completion_field is not None and not affixes.suffix:
        yield (
            "--completion-field: no end token follows a completion, so a model does not learn to "
            "stop; pass --eos TOKEN to add one"
        )
    if not (text is None or isinstance(text, PromptText) or text.writes_special()):
        yield (
            f"--messages-field: the chat template {text.template.path} writes no special "
            "token of the tokenizer, so a model does not learn to stop; pass a --tokenizer that "
            "has the template's special tokens"
        )


# Parts


def tokenize_part(setup: PartSetup, task: PartTask) -> tuple[str, dict[str, Any]]:
    """Make one part and publish it; return its name and receipt.

    Raises:
        DataError: a record cannot be read or encoded, or is too long.
        MachineError: the disk failed.
        EncoderRefusedError, EncodersDifferError: this encoder cannot be used.
    """
    # What is counted where a record spells it: of a chat, all that its template writes.
    known = setup.vocabulary if setup.chat is None else setup.chat
    special_tokens = SpecialTokenCounts(known.special_tokens)
    part = PartWriter(setup.folder, task.name, setup.dtype, setup.fields)
    receipt = part.write(
        _iter_made(part, special_tokens, setup, task),
        lambda: {"special_tokens": special_tokens.found, "encoder": setup.encoder},
    )
    return task.name, receipt


def _iter_made(
    part: PartWriter, special_tokens: SpecialTokenCounts, setup: PartSetup, task: PartTask
) -> Iterator[MadeDocuments]:
    """Read and encode the documents of a part."""
    options = setup.options
    with _opening:
        encoder, reference = open_checked_encoder(
            setup.encoder,
            setup.tokenizer_json,
            allow_special_tokens=options.encodes_special_tokens,
            added_tokens=setup.vocabulary.added_tokens,
        )
    batches = gather(_iter_blocks(setup, task, part), are_made=setup.text is not None)
    if reference is not None:
        batches = _check_head(batches, task, encoder, reference)
    encode = open_batch_encoder(
        encoder,
        setup.tokenizer_json,
        allow_special_tokens=options.encodes_special_tokens,
        has_tags=any(isinstance(kind, Tags) for kind in part.kinds),
        has_targets=setup.text is not None,
        special_tokens=() if setup.chat is None else setup.chat.special_tokens,
    )
    num_documents = num_replaced = 0
    for found in map_ahead(encode, batches, num_threads=setup.num_threads):
        batch, encoded = found.batch, found.encoded
        num_spelled = special_tokens.add(batch.spelled, first_document=num_documents)
        num_documents += len(batch.texts)
        if options.documents.encoding_errors == "replace":
            num_replaced = sum("\ufffd" in text for text in batch.texts)
        try:
            made = make_sequences(
                encoded,
                affixes=setup.affixes,
                max_length=options.max_length,
                overflow=options.overflow,
                overlap=options.overlap or 0,
                columns=_assign(found, part, options),
            )
        except TooLongError as error:
            raise DataError(
                f"{batch.find_place(error.document)}: {error.length:,} tokens, "
                f"expected at most {options.max_length:,}",
                hint="pass a larger --max-length, or --overflow split, truncate or drop",
            ) from error
        yield MadeDocuments(
            made,
            cast_ids(made.ids, setup.dtype, max_id=setup.vocabulary.max_id),
            hash_texts(batch.iter_hashed()),
            batch.fields,
            batch.num_rejected,
            len(encoded.ids),
            {"num_special_tokens_in_text": num_spelled, REPLACED: num_replaced},
        )


def _check_head(
    batches: Iterator[TextBatch], task: PartTask, encoder: Encoder, reference: Encoder
) -> Iterator[TextBatch]:
    """Compare both encoders on the first texts of the part, then yield all batches."""
    for batch in batches:
        head = take_head(batch.texts, count_bytes([task]))
        check_agreement(encoder, reference, head, functools.partial(batch.find_place, 0))
        yield batch
        break
    yield from batches


def _iter_blocks(setup: PartSetup, task: PartTask, part: PartWriter) -> Iterator[RecordBlock]:
    """Read and hash the ranges one after another; tell the part of each."""
    options = setup.options.documents
    words = any(field.values == "words" for reader in part.readers for field in reader.fields)
    text = setup.text or FieldText(options.text_field, takes_words=words)
    readers = [text, *part.readers]
    for source_range in task.ranges:
        whole = read_block_file(source_range, readers, options)
        if whole is not None:
            data, block = whole
            advance(len(data))
            yield block
            part.add_rejects(source_range, block.rejects)
            part.add_range(source_range, block.num_records, blake3(data).hexdigest())
            continue
        digest = blake3()

        def on_read(block: bytes, digest: Any = digest) -> None:
            digest.update(block)
            advance(len(block))

        num_documents = 0
        for block in iter_records(source_range, readers, options, on_read):
            yield block
            num_documents += block.num_records
            part.add_rejects(source_range, block.rejects)
        check_unchanged(source_range.source)
        part.add_range(source_range, num_documents, digest.hexdigest())


def _assign(
    found: EncodedBatch, part: PartWriter, options: TokenizeOptions
) -> dict[str, TokenColumn]:
    """Return the entries of the columns per token, before the texts are cut."""
    assigned, lengths = {}, found.encoded.lengths
    values = dict(zip(part.readers, found.batch.fields, strict=True))
    for kind in part.kinds:
        if isinstance(kind, Tags):
            assert found.words is not None  # noqa: S101 - they were asked for
            entries = kind.assign(values[kind], found.words, options.tag_subtokens or "first")
            assigned[kind.name] = TokenColumn(entries, kind.fill, kind.fill)
        elif kind.is_per_token and found.targets is not None:
            kind.counts["num_straddling_tokens"] += found.targets.num_straddling
            assigned[kind.name] = TokenColumn(found.targets.entries, kind.fill, 1, of_overlap=0)
        elif kind.is_per_token:  # all tokens but repeated ones
            ones = np.ones(int(lengths.sum()), np.uint8)
            assigned[kind.name] = TokenColumn(ones, 1, 1, of_overlap=0)
    return assigned


def _make_parts(
    run: RunFolder, tasks: Sequence[PartTask], setup: PartSetup, workers: Workers
) -> tuple[list[dict[str, Any]], str]:
    """Tokenize the missing parts; return all receipts in order, and the encoder that was used.

    A fast encoder that does not support the tokenizer, or gives different ids anywhere, is not used
    for any part of the run.

    Args:
        setup: has the encoder to try first; with `encoder="auto"`, tokenizers replaces a fast
            encoder that cannot be used.

    Raises:
        OptionError: the encoder does not support this tokenizer, and may not be replaced.
        DataError: its ids differ from those of tokenizers, and it may not be replaced.
        FolderError: the input of a finished part changed.
    """
    encoder, may_fall_back = setup.encoder, setup.options.encoder == "auto"
    receipts = find_finished(run, tasks, TOKENIZE_FIELDS, workers)
    used = {receipt["encoder"] for receipt in receipts.values() if receipt is not None}
    if may_fall_back and REFERENCE in used:
        encoder = REFERENCE  # the run began with it, or fell back to it

    def make(waiting: Sequence[PartTask]) -> Iterator[MadePart]:
        num_processes, num_threads = share_cores(workers, waiting)
        # Making texts from fields holds Python's lock, and a template belongs to one thread.
        most = MAX_PARTS_AT_ONCE if setup.text is None else 1
        at_once = max(1, min(num_threads, most, len(waiting)))
        of_part = replace(setup, encoder=encoder, num_threads=num_threads // at_once)
        tokenize = functools.partial(tokenize_part, of_part)
        return workers.run(tokenize, waiting, max_processes=num_processes, num_threads=at_once)

    try:
        made = make_missing(receipts, tasks, workers, make)
    except (EncoderRefusedError, EncodersDifferError) as error:
        # Every part of a fast encoder goes, also those that workers finished meanwhile.
        for name, receipt in _read_receipts(run, tasks, TOKENIZE_FIELDS).items():
            if receipt is not None and receipt["encoder"] == FAST:
                run.forget(name)
                receipts[name] = None
        is_refused, hint = isinstance(error, EncoderRefusedError), "pass --encoder auto"
        if not may_fall_back and is_refused:
            what = f"--encoder {encoder}: does not support this tokenizer ({error})"
            raise OptionError(what, hint) from error
        if not may_fall_back:
            raise DataError(f"--encoder {encoder}: {error}", hint) from error
        note = f"{encoder}: {error}; using {REFERENCE} for the whole run"
        if is_refused:
            note = f"{encoder} does not support this tokenizer; using {REFERENCE}"
        workers.progress.on_notice(note)
        encoder = REFERENCE
        made = make_missing(receipts, tasks, workers, make)
    return made, encoder


def begin_store(
    run: RunFolder,
    plan: dict[str, Any],
    tasks: Sequence[PartTask],
    workers: Workers,
    hash_input: HashInput = hash_range,
) -> dict[str, Any] | None:
    """Begin or continue a run; return the manifest of an equal one that is complete.

    Args:
        hash_input: the checksum of the bytes of a range.

    Raises:
        FolderError: the folder holds another run, or the store or its input has changed.
    """
    run.begin(plan, adapt_plan)
    if run.manifest is not None:
        run.check_whole(open_store)
        finished = zip(tasks, run.manifest["parts"], strict=False)
        _check_unchanged(finished, run, workers, hash_input)
    return run.manifest


def find_finished(
    run: RunFolder,
    tasks: Sequence[PartTask],
    fields: Mapping[str, type],
    workers: Workers,
    hash_input: HashInput = hash_range,
) -> Receipts:
    """Return the receipt of each part, None for parts that are still to be made.

    Args:
        fields: those of a receipt.
        hash_input: the checksum of the bytes of a range.

    Raises:
        FolderError: the input of a finished part changed.
    """
    receipts = _read_receipts(run, tasks, fields)
    made = [(task, receipts[task.name]) for task in tasks]
    finished = [(task, receipt) for task, receipt in made if receipt is not None]
    _check_unchanged(finished, run, workers, hash_input)
    if finished:
        notice = f"{len(finished)} of {len(tasks)} parts were already finished"
        workers.progress.on_notice(notice)
    return receipts


def make_missing(
    receipts: Receipts,
    tasks: Sequence[PartTask],
    workers: Workers,
    make: Callable[[Sequence[PartTask]], Iterator[MadePart]],
) -> list[dict[str, Any]]:
    """Make the parts without a receipt; return the receipts of all parts.

    Args:
        make: makes some parts, and yields each when it is finished.
    """
    waiting = [task for task in tasks if receipts[task.name] is None]
    workers.progress.on_total(count_bytes(waiting))
    try:
        receipts.update(make(waiting))
    except DataError as error:
        if proposes_field(error.hint) and any(receipts.values()):  # made with the other option
            raise DataError(error.message, f"{error.hint} --overwrite") from error
        raise
    return [receipt for receipt in receipts.values() if receipt is not None]


def count_bytes(tasks: Iterable[PartTask]) -> int:
    """Return the input bytes of some parts."""
    ranges = chain.from_iterable(task.ranges for task in tasks)
    return sum(source_range.end - source_range.start for source_range in ranges)


def _read_receipts(
    run: RunFolder, tasks: Sequence[PartTask], fields: Mapping[str, type]
) -> Receipts:
    """Return the receipt of each part, None for parts without one, or with a damaged one."""
    names = [task.name for task in tasks]
    files = {name: [f"{name}.bin", f"{name}.idx", columns_name(name)] for name in names}
    return dict(zip(files, run.read_receipts(files, fields), strict=True))


def share_cores(workers: Workers, tasks: Sequence[PartTask]) -> tuple[int, int]:
    """Return the number of processes on this machine for some parts, and of threads in each.

    Small inputs get fewer processes, unless the user sets the number. A single process uses a
    thread per core; a task on a cluster has one thread.
    """
    num_wanted = workers.executor.num_workers
    cores = num_wanted or count_cores()
    num_processes = num_wanted or min(cores, 1 + count_bytes(tasks) // MIN_WORKER_BYTES)
    num_processes = max(1, min(num_processes, len(tasks)))
    return num_processes, cores if num_processes == 1 and workers.are_local else 1


def _check_unchanged(
    finished: Iterable[tuple[PartTask, dict[str, Any]]],
    run: RunFolder,
    workers: Workers,
    hash_input: HashInput,
) -> None:
    """Check that the input of finished parts is still the same.

    Args:
        finished: each part's task now, and its receipt or entry in the manifest.
    """
    parts = [replace(task, made_from=part["ranges"]) for task, part in finished]
    max_processes = 1 + count_bytes(parts) // MIN_HASHED_BYTES
    find_changed = functools.partial(_find_changed, hash_input)
    for changed in workers.run(find_changed, parts, max_processes=max_processes):
        if changed is not None:
            raise FolderError(
                f"{run.path}: {changed} changed since this run began", hint=OVERWRITE_HINT
            )


def _find_changed(hash_input: HashInput, part: PartTask) -> str | None:
    """Return the path of the first source of a part that changed."""
    found = [(entry["source"], entry["start"], entry["end"]) for entry in part.made_from]
    for place, source_range in enumerate(part.ranges):
        index, source, start, end = source_range
        # A line end that moved changes where parts are cut; their bytes may still be the same.
        is_same = len(found) == len(part.ranges) and found[place] == (index, start, end)
        if not is_same or hash_input(source_range) != part.made_from[place]["blake3"]:
            pair = source.index_file
            return source.path if pair is None else f"{source.path} or {pair.path}"
    return None


# Shared with import


def describe_kept(fields: Sequence[PlannedColumn]) -> list[dict[str, Any]]:
    """Return what decides the columns that are kept, as in the options of a manifest."""
    return [
        {
            "name": field.name,
            "kind": field.kind,
            "value_type": field.value_type,
            "class_names": None if field.class_names is None else [*field.class_names],
        }
        for field in fields
        if field.is_kept
    ]


def adapt_plan(earlier: dict[str, Any], plan: dict[str, Any]) -> dict[str, Any]:
    """Return the plan of an unfinished run with those new options that its parts do not depend on.

    If a bad record, a bad byte, or a document that is too large or too long was an error, finished
    parts contain none, so their bytes are the same whatever the new plan does with those.
    """
    found, new = earlier.get("options"), plan["options"]
    if not isinstance(found, dict):
        return earlier

    def is_raised(name: str) -> bool:
        limit = found.get(name)
        return type(limit) is int and (new[name] is None or new[name] >= limit)

    names = [name for name in ("encoding_errors", "on_bad_record") if found.get(name) == "error"]
    if is_raised("max_document_bytes"):
        names.append("max_document_bytes")
    if found.get("overflow") == "error" and is_raised("max_length"):
        names += ["overflow", "max_length"]
    return {**earlier, "options": {**found, **{name: new[name] for name in names}}}


def make_tasks(parts: Iterable[list[SourceRange]]) -> list[PartTask]:
    """Return a task for the ranges of each part."""
    return [PartTask(f"part-{number:05d}", ranges) for number, ranges in enumerate(parts)]


def publish_store(
    run: RunFolder,
    workers: Workers,
    manifest: dict[str, Any],
    receipts: list[dict[str, Any]],
    done: dict[str, Any],
    versions: dict[str, str],
    *,
    started: float,
) -> None:
    """Publish the rejected records, `run.json` and the manifest.

    Args:
        done: how the run was done, for `run.json`, which no reader needs.
        versions: of the packages that did the work.
        started: when the run began, by `time.monotonic`.
    """
    if not is_balanced(manifest["ledger"]):
        raise AssertionError(f"the ledger does not add up: {manifest['ledger']}")
    if any(receipt["rejects"] for receipt in receipts):
        with run.publish("rejects.jsonl") as file:
            for entry in _iter_rejects(manifest, receipts):
                file.write(encode_json(entry) + b"\n")
    num_bytes = sum(source["bytes"] for source in manifest["sources"])
    executor, seconds = workers.executor, time.monotonic() - started
    done = {
        **done,
        "executor": executor.name,
        "num_workers": executor.num_workers,
        "seconds": round(seconds, 3),
        "input_megabytes_per_second": round(num_bytes / 1e6 / seconds, 3),
    }
    run.write_record(done, versions)
    run.finish(manifest, [file for receipt in receipts for file in receipt["files"]])


def check_any_token(
    run: RunFolder,
    sources: Sequence[Source],
    manifest: dict[str, Any],
    receipts: list[dict[str, Any]],
) -> None:
    """Remove what the run wrote and raise DataError if no document has a token."""
    ledger, hint = manifest["ledger"], None
    if ledger["num_sequences"]:
        return
    run.abandon()
    num, num_dropped = ledger["num_documents"], ledger["num_dropped_documents"]
    found = f"{num:,} document{'s' * (num != 1)} read"
    if rejects := [reject for receipt in receipts for reject in receipt["rejects"]]:
        found += f", {len(rejects):,} of them rejected: {rejects[0][-1]}"
    if num_dropped:
        found += f", {num_dropped:,} dropped by --max-length {manifest['options']['max_length']}"
        hint = "pass a larger --max-length, or --overflow split"
    paths = join_items(source.path for source in sources)
    raise DataError(f"{paths}: no document with a token ({found})", hint)


def _iter_rejects(
    manifest: dict[str, Any], receipts: list[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Yield the rejected records, numbered as in their source files."""
    seen: Counter[int] = Counter()  # documents of each source in the previous parts
    for receipt in receipts:
        for source_index, record, byte, reason in receipt["rejects"]:
            yield {
                "source": manifest["sources"][source_index]["path"],
                "record": seen[source_index] + record + 1,
                "byte": byte,
                "reason": reason,
            }
        for entry in receipt["ranges"]:
            seen[entry["source"]] += entry["num_documents"]
