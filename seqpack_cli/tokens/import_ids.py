"""Import ids that another tool made: inputs -> plan -> parts -> manifest, in the run of `tokenize`.

Ids come from records (JSON, Parquet, Arrow), Megatron-LM's pairs of `.bin` and `.idx`, or files of
ids alone (`.bin`, `.npy`). They are stored as they are: nothing is added to them or guessed from
them, so that what looks wrong is told. One function checks the labels and masks beside the ids of
records, in numpy on a whole block: labels are the ids or -100, masks are 0 or 1, padding lies at
the ends of a record and has no label.
"""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import functools
import io
import re
import shlex
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np
import orjson
from blake3 import blake3

from seqpack_cli.corpus.checks import find_input
from seqpack_cli.corpus.fields import (
    ENCODING_HINT,
    IDS_FIELD,
    KEEP,
    SKIP_HINT,
    BadRecordError,
    Field,
    Reader,
    oversized_error,
)
from seqpack_cli.corpus.find_files import Skipped, list_inputs
from seqpack_cli.corpus.json_records import JSON_FORMATS, find_optional, iter_raw_json
from seqpack_cli.corpus.options import (
    COMPRESSION_OF_SUFFIX,
    IDS_FORMATS,
    SAVE_IDS,
    TOKENIZE,
    DocumentOptions,
)
from seqpack_cli.corpus.parts import check_footers, cut_where, plan_parts
from seqpack_cli.corpus.records import NUM_SAMPLES, Reject, iter_records, sample_records
from seqpack_cli.corpus.sources import (
    PATTERNS,
    STANDARD_INPUT,
    Source,
    SourceRange,
)
from seqpack_cli.corpus.streams import (
    MARK,
    OnRead,
    check_unchanged,
    iter_raw_blocks,
    naming_input,
)
from seqpack_cli.corpus.table_records import (
    TABLE_FORMATS,
    Stream,
    check_column,
    flatten_lists,
    read_schema,
)
from seqpack_cli.errors import DataError, OptionError, join_items, quote
from seqpack_cli.files.inputs import spell_inputs
from seqpack_cli.files.mapping import view_array
from seqpack_cli.files.objects import AnyPath
from seqpack_cli.files.places import Place, parse_place
from seqpack_cli.limits import LIMITS
from seqpack_cli.ranges import to_offsets
from seqpack_cli.runs.options import spell_command, spell_flag, takes_options
from seqpack_cli.runs.run_folder import RunFolder, RunOutput, hold_folder
from seqpack_cli.runs.workers import Executor, Progress, Workers, advance, count_cores, open_workers
from seqpack_cli.tokens.columns import KINDS, OVERLAP, TARGETS, check_keep, choose_kinds
from seqpack_cli.tokens.kinds import PlannedColumn, quote_value
from seqpack_cli.tokens.manifest import describe_plan, make_manifest
from seqpack_cli.tokens.options import PACKED, ROLES, TARGET_MASKS, ImportOptions
from seqpack_cli.tokens.part_files import (
    HEADER,
    MAGIC,
    VERSION,
    MadeDocuments,
    PartWriter,
    choose_dtype,
    hash_texts,
)
from seqpack_cli.tokens.sequences import DocumentSequences
from seqpack_cli.tokens.tokenize_run import (
    RECEIPT_FIELDS,
    MadePart,
    PartTask,
    begin_store,
    check_any_token,
    describe_kept,
    find_finished,
    make_missing,
    make_tasks,
    publish_store,
    share_cores,
)
from seqpack_cli.tokens.tokenizer import Vocabulary, read_tokenizer

IDS = "ids"
TARGET_ROLES = frozenset(("labels", "loss_mask"))  # those that say which tokens are targets
MASKS = ("attention_mask", "loss_mask")  # which may have booleans
DOCUMENT = "document"  # the column in which `seqpack export` numbers documents
EXPORTED = b"seqpack.export"  # in the metadata of what it wrote
IGNORED = -100  # the label of a token that is not a target
# Columns of what `seqpack export` wrote, that are refused: what is wrong, and the hint.
OF_EXPORTS = {
    OVERLAP: (
        ": rows repeat tokens of the rows before, expected each token once",
        f"pass --ignore-field {OVERLAP} to import the repeated tokens as they are",
    ),
    DOCUMENT: (
        ": rows of one document would become documents of their own, which a split divides",
        f"pass --keep {DOCUMENT}:int, and --split-by {DOCUMENT} if you split the store",
    ),
}
# The options that only some formats have, by what such files hold.
OWN_OPTIONS = dict.fromkeys(
    ("ids_field", *(f"{role}_field" for role in ROLES), "ignore_fields", "keep"), "records"
) | dict.fromkeys(("dtype", "eos"), "ids alone")
FACTS = ("num_with_bos", "num_with_eos", "num_ending_twice", "ending_twice_id", "largest_id")
MIN_DOCUMENTS = 20  # of which more than half end as padded ones do
MAX_THREADS = 4  # of one process: about a third of the work holds Python's lock

PACKED_HINT = "write one record per sequence, with a mask of 0 and 1"
HINT_OF_VALUE = "pass --ignore-field {0}, or --keep {0} to keep it as a column"
LACKING_HINT = "pass --ignore-field {0}, or import records without it into a store of their own"
HOLE_HINT = "write the record without padding between its tokens"
RANGE_HINT = (
    "pass the --tokenizer or --vocab-size that the ids are of, or --on-bad-record skip to leave "
    "out such documents"
)
EOS_HINT = (
    "pass the --eos and the --dtype that wrote the file; write ids without end tokens as JSON lines"
)
FLAT_HINT = (
    "pass the --dtype that wrote the file, such as uint16, unless it is .npy, and --eos ID, the id "
    "at the end of each document (GPT-2's is 50256); a .bin of Megatron needs its .idx beside it "
    "instead"
)
NPY_HINT = "save the ids with numpy.save as a flat array of integers"
PAIR_HINT = "copy the pair again, or make it again"

NPY_MAGIC = b"\x93NUMPY"
HEAD_BYTES = 1 << 14  # numpy refuses to read longer headers, too
# Files of another kind; ids begin so by a chance of 1 in 10 million.
FOREIGN = (
    *("gzip", "bzip2", "xz", "zstd", "zip", "7z", "Parquet", "Arrow", "indexed dataset"),
    *("HDF5", "SQLite", "PDF", "PNG"),
)
DTYPE_OF_CODE = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}
ZERO = np.zeros(1, np.int64)


@dataclass(frozen=True)
class ImportSetup:
    """What a worker needs to import any part of a run."""

    folder: Place
    max_id: int
    affix_ids: Mapping[str, int | None]  # which may begin and end a document, by their roles
    options: ImportOptions
    lists: Mapping[str, Field]  # the fields that are read of records, by what they are
    kept: tuple[PlannedColumn, ...]  # the columns to make

    @property
    def dtype(self) -> str:
        """The dtype of the ids in the store."""
        return choose_dtype(self.max_id)


class IdBlock(NamedTuple):
    """Some documents of a source, in order."""

    ids: np.ndarray  # [S], of any integer dtype, as they were read
    lengths: np.ndarray  # int64, one per sequence, none 0
    num_sequences: np.ndarray  # int64, one per document; 0 for a rejected or empty one
    find_place: Callable[[int], str]  # "path:record" of a document, by its place in the block
    rejects: Sequence[Reject] = ()  # each stands for one of the documents
    targets: np.ndarray | None = None  # uint8 [S]
    fields: Sequence[Sequence[Any]] = ()  # of each kept field, an entry per document
    # What was left out of each document, int64, by its name in the ledger.
    left_out: Mapping[str, np.ndarray] = {}

    @property
    def offsets(self) -> np.ndarray:
        """Where the ids of each document begin, and their number last, int64[documents + 1]."""
        found: np.ndarray = to_offsets(self.lengths)[to_offsets(self.num_sequences)]
        return found


class IdFormat(NamedTuple):
    """How a format is read, cut and hashed."""

    iter_blocks: Callable[[ImportSetup, SourceRange, Sequence[Reader], OnRead], Iterator[IdBlock]]
    holds: str  # see OWN_OPTIONS
    # The byte at which the first document ends at a byte or after it; None: records are cut so.
    find_end: Callable[[ImportOptions, Source, int], int] | None = None
    # Hashes what an index says of a range, before the bytes of the range.
    hash_index: Callable[[SourceRange, OnRead], None] = lambda *_: None


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
        hold_folder(RunOutput(output, options, overwrite, command)) as run,
    ):
        files, file_format, notice = options.files, options.file_format, workers.progress.on_notice
        found = find_input(inputs, files, IDS_FORMATS, file_format, notice, output=output)
        sources, skipped = found
        _check_options(sources, options)
        return _import_sources(run, sources, skipped, options, workers)


def _import_sources(
    run: RunFolder,
    sources: list[Source],
    skipped: Skipped,
    options: ImportOptions,
    workers: Workers,
) -> tuple[dict[str, Any], bool]:
    started = time.monotonic()
    vocabulary, tokenizer_json = _find_vocabulary(options)
    check_footers(sources)
    lists, kept, names = _find_fields(sources, options)
    known = {*_list_taken(options), *(field.name for field in lists.values())}
    known |= {name.partition(".")[0] for name in known}
    if unread := [name for name in dict.fromkeys(names) if name not in known]:
        shown = join_items(map(quote, unread))
        workers.progress.on_notice(f"not read: {shown}; --keep FIELD keeps one")
    cuts = {
        name: functools.partial(_cut, functools.partial(it.find_end, options))
        for name, it in FORMATS.items()
        if it.find_end
    }
    tasks = make_tasks(plan_parts(sources, part_bytes=options.part_bytes, cuts=cuts))
    found = {f"{role}_field": lists[role].name if role in lists else None for role in ROLES}
    recorded = {**options.record(), **found, "keep": describe_kept(kept)}
    plan = describe_plan("import", vocabulary, recorded, sources)
    whole = begin_store(run, plan, tasks, workers, hash_input)
    if whole is not None:
        return whole, True
    if tokenizer_json is not None:
        run.write_tokenizer(tokenizer_json)
    eos_id = vocabulary.eos_id if options.eos is None else options.eos
    affix_ids = {"bos": vocabulary.bos_id, "eos": eos_id}
    setup = ImportSetup(run.path, vocabulary.max_id, affix_ids, options, lists, kept)
    receipts = _make_parts(run, tasks, setup, workers)
    manifest = make_manifest(plan, kept, receipts)
    check_any_token(run, sources, manifest, receipts)
    for note in _iter_notes(receipts, manifest["ledger"], setup):
        workers.progress.on_notice(note)
    tokenizer = None if options.tokenizer is None else str(options.tokenizer)
    done: dict[str, Any] = {"tokenizer": tokenizer, "skipped": skipped.count()}
    publish_store(run, workers, manifest, receipts, done, {}, started=started)
    return manifest, False


def _find_vocabulary(options: ImportOptions) -> tuple[Vocabulary, bytes | None]:
    """Return the vocabulary of the ids, and its tokenizer.json if there is one.

    Raises:
        DataError: the tokenizer cannot be read.
        OptionError: it does not exist, or --eos is not one of its ids.
    """
    if options.tokenizer is None:
        size = options.vocab_size or 0
        roles = (None, None, options.eos, None)
        return Vocabulary(None, size, size - 1, *roles, special_tokens=()), None
    files = read_tokenizer(str(options.tokenizer))
    vocabulary = files.describe()
    if options.eos is not None and options.eos > vocabulary.max_id:
        raise OptionError(f"--eos {options.eos}: expected an id from 0 to {vocabulary.max_id}")
    return vocabulary, files.tokenizer_json


def _check_options(sources: Sequence[Source], options: ImportOptions) -> None:
    """Raise OptionError if an option does not apply to the sources, or contradicts another."""
    formats = dict.fromkeys(source.format for source in sources)
    held = {FORMATS[name].holds for name in formats}
    for each in dataclasses.fields(options):
        value, holds = getattr(options, each.name), OWN_OPTIONS.get(each.name)
        is_recorded = each.name == "eos" and options.tokenizer is None
        is_used = {holds} == held if each.name == "keep" else holds in (None, *held)
        if not is_used and value != each.default and not is_recorded:
            shown = value if isinstance(value, str | int) else value[0]
            what = f"the input is {join_items(formats)}, expected {holds}"
            flag = spell_flag(each)
            alone = f"import {holds} into a store of their own"
            hint = alone if holds in held else f"omit {flag}"
            raise OptionError(f"{flag} {shown}: {what}", hint)


# Fields of records


def _list_taken(options: ImportOptions) -> set[str]:
    """Return the fields that options name: none of them is something else."""
    named = {getattr(options, f"{role}_field") or "" for role in ROLES}
    kept = {option.name for option in check_keep(options.keep)}
    return {*kept, *named, options.ids_field, *options.ignore_fields}


def _list_fields(options: ImportOptions) -> dict[str, Field]:
    """Return the fields with lists that are read if they are there, by what they are."""
    fields, taken = {IDS: Field(options.ids_field, IDS_FIELD, "integers")}, _list_taken(options)
    for role in ROLES:
        name, values = getattr(options, f"{role}_field"), "masks" if role in MASKS else "integers"
        if name is not None or role not in taken:
            option = f"--{role.replace('_', '-')}-field"
            fields[role] = Field(name or role, option, values, is_optional=name is None)
    return fields


def _list_refused(roles: Collection[str], options: ImportOptions) -> dict[str, tuple[str, str]]:
    """Return the fields that may not be lists: for each, what is wrong, and the hint.

    Without the mask of a chat, its prompts would be trained in silence.

    Args:
        roles: what is read beside the ids.
    """
    found = {}
    for name in PACKED:
        hint = f"write one record per sequence, or pass --ignore-field {name} if each record is one"
        found[name] = (": a record has several sequences, expected one", hint)
    for name in TARGET_MASKS if TARGET_ROLES.isdisjoint(roles) else ():
        hint = f"pass --loss-mask-field {name}, or --ignore-field {name} if every token is a target"
        reason = ": a mask of targets that is not read, expected --loss-mask-field"
        found[name] = (reason, hint)
    for role, field in _list_fields(options).items():
        if role not in roles:
            hint = f"pass --ignore-field {field.name} to leave it unread in all records"
            found[role] = (", which the first records do not have", hint)
    taken = _list_taken(options)
    return {name: refusal for name, refusal in found.items() if name not in taken}


def _find_fields(
    sources: Sequence[Source], options: ImportOptions
) -> tuple[dict[str, Field], tuple[PlannedColumn, ...], list[str]]:
    """Find the fields to read. A table says what it has; of JSON, the first records decide.

    Returns:
        The fields with lists, by what they are; the columns to make; the names of all fields.

    Raises:
        OptionError: records have targets and other sources have none, or a field cannot be kept.
        DataError: a field is missing or of another type, or the first records do not decide the
            kind of a kept field.
    """
    fields = _list_fields(options)
    records = [each for each in sources if FORMATS[each.format].holds == "records"]
    lines = [each for each in records if each.format in JSON_FORMATS]
    roles, names = _sample_lines(lines, fields, options.max_document_bytes)
    for source in records:
        if source.format in TABLE_FORMATS:
            found, more = _check_table(source, fields, options)
            roles |= found
            names += more
    columns = _choose_columns(records, options)
    if targets := roles & TARGET_ROLES:
        if other := next((each for each in sources if each not in records), None):
            name = fields[min(targets)].name
            what = f"has ids without {quote(name)}, which other sources have"
            hint = f"import it into a store of its own, or pass --ignore-field {name}"
            raise OptionError(f"{other.path}: {what}", hint)
        columns.insert(0, PlannedColumn(TARGETS, "targets", is_kept=False))
    return {role: fields[role] for role in fields if role in roles}, tuple(columns), names


def _sample_lines(
    sources: Sequence[Source], fields: Mapping[str, Field], limit: int
) -> tuple[set[str], list[str]]:
    """Return what the first records of JSON have of the fields, and the names of all fields."""
    wholes = [SourceRange(0, source, 0, source.num_bytes) for source in sources]
    blocks = chain.from_iterable(iter_raw_json(whole, limit, None) for whole in wholes)
    roles, names = {IDS}, dict[str, None]()
    for line in islice(chain.from_iterable(block.records for block in blocks), NUM_SAMPLES):
        with contextlib.suppress(ValueError, TypeError):
            record = dict(orjson.loads(line.removeprefix(MARK)))
            names |= dict.fromkeys(record)
            roles |= {
                role
                for role, field in fields.items()
                if not field.is_optional or find_optional(record, field.name) is not None
            }
    return roles, list(names)


def _choose_columns(records: Sequence[Source], options: ImportOptions) -> list[PlannedColumn]:
    """Return the columns of kept fields; kinds that are left open follow from the first records."""
    keep = check_keep(options.keep)
    kept = sample_records(records, [option.name for option in keep], _read_how(options))
    for option, values in zip(keep, kept, strict=True):
        is_list = not option.kind and any(isinstance(value, list) for value in values)
        if is_list or (option.kind and KINDS[option.kind].is_per_token):
            what = "tags belong to the words of a text" if option.kind else "found lists"
            raise OptionError(
                f"--keep {option.name}: {what}, expected one value per record",
                hint="omit it; import keeps numbers, strings, true and false",
            )
    return choose_kinds(keep, kept)


def _check_table(
    source: Source, fields: Mapping[str, Field], options: ImportOptions
) -> tuple[set[str], list[str]]:
    """Return what a table has of the fields, and the names of its columns.

    Raises:
        DataError: a column is missing, of another type, or would be lost.
    """
    schema, roles = read_schema(source), set()
    for role, field in fields.items():
        hint = HINT_OF_VALUE.format(field.name) if field.is_optional else TOKENIZE
        if check_column(schema, field, source, fields.values(), hint) is not None:
            roles.add(role)
    is_export, taken = EXPORTED in (schema.metadata or {}), _list_taken(options)
    for name, (what, hint) in OF_EXPORTS.items():
        if is_export and name in schema.names and name not in taken:
            raise DataError(f"{source.path}: column {quote(name)}{what}", hint)
    return roles, schema.names


# Lists of records


class IdLists(NamedTuple):
    """The ids of some records, without padding, and which of them are targets."""

    ids: np.ndarray
    lengths: np.ndarray  # int64, one per record
    num_padding: np.ndarray  # int64, one per record
    targets: np.ndarray | None  # uint8


@dataclass(frozen=True)
class IdReader:
    """Read the lists of records; makes one `IdLists` of all records of a block.

    Args:
        lists: the fields that are read, by what they are.
        refused: see `_list_refused`.
    """

    lists: Mapping[str, Field]
    refused: Mapping[str, tuple[str, str]]
    num_lists = 1

    @property
    def fields(self) -> list[Field]:
        """The lists, then those that may not be there."""
        return [*self.lists.values(), *(Field(name, KEEP, "json", True) for name in self.refused)]

    def read_all(self, columns: Sequence[Any]) -> list[Any]:
        """Join the lists of some records, and check them against each other.

        Raises:
            BadRecordError: there is something wrong; of one record, this says what.
        """
        refused = columns[len(self.lists) :]
        for (name, (reason, hint)), values in zip(self.refused.items(), refused, strict=True):
            if list in set(map(type, values)):
                raise BadRecordError(f"field {quote(name)}{reason}", hint)
        joined: dict[str, tuple[np.ndarray, np.ndarray]] = {
            role: _join_lists(self.lists[role], column)
            for role, column in zip(self.lists, columns, strict=False)
        }
        lists = {role: values for role, (values, _) in joined.items()}
        ids, lengths = joined[IDS]

        def hint_unread(role: str) -> str:
            field = self.lists[role]
            ignore = f"pass --ignore-field {field.name}"
            return ignore if field.is_optional else f"omit {field.option} {field.name}"

        for role, (_, others) in joined.items():
            if not np.array_equal(others, lengths):
                what = f"{others[0]} entries, {self.lists[IDS].name} has {lengths[0]}"
                reason = f"{self.lists[role].name} has {what}, expected as many"
                raise BadRecordError(reason, hint_unread(role))

        def refuse(is_wrong: np.ndarray, role: str, expected: str, hint: str = SKIP_HINT) -> None:
            if is_wrong.any():
                place = int(is_wrong.argmax())
                entry = f"entry {place + 1} of {self.lists[role].name}"
                reason = f"{entry} is {int(lists[role][place])}, expected {expected}"
                raise BadRecordError(reason, hint)

        labels, mask, loss = map(lists.get, ROLES)
        is_token, kept, targets = np.ones(len(ids), bool), lengths, None
        if mask is not None:
            refuse((mask != 0) & (mask != 1), "attention_mask", "0 or 1", PACKED_HINT)
            is_token, starts = mask != 0, to_offsets(lengths)
            before = to_offsets(is_token)  # tokens before each entry
            is_inside = before[:-1] > np.repeat(before[starts[:-1]], lengths)  # behind a token
            is_hole = is_token & is_inside & ~np.append(True, is_token)[:-1]
            refuse(is_hole, "attention_mask", "padding at the ends only", HOLE_HINT)
            kept = np.diff(before[starts])
        if loss is not None:
            targets = loss != 0
            refuse(targets & (loss != 1), "loss_mask", "0 or 1")
            refuse(targets & ~is_token, "loss_mask", "0 for padding")
        if labels is not None:
            is_label, hint = labels != IGNORED, hint_unread("labels")
            refuse(is_label & ~is_token, "labels", f"{IGNORED} for padding")
            is_wrong = is_label & (labels != ids)
            if is_wrong.any() and _are_shifted(ids[is_token], labels[is_token]):
                name, ids_name = self.lists["labels"].name, self.lists[IDS].name
                expected = f"{name}[i] to be {ids_name}[i] or {IGNORED}"
                raise BadRecordError(
                    f"{name} are shifted by one, expected {expected}",
                    f"write them unshifted, as [{IGNORED}, *{name}[:-1]]; or {hint}",
                )
            refuse(is_wrong, "labels", f"its id or {IGNORED}", hint)
            if targets is not None:
                expected = f"a label where the mask is 1, and {IGNORED} where it is 0"
                refuse(is_label != targets, "labels", expected, hint)
            targets = is_label
        targets = None if targets is None else targets.view(np.uint8)
        if not is_token.all():
            ids, targets = ids[is_token], None if targets is None else targets[is_token]
        return [IdLists(ids, kept, lengths - kept, targets)]

    def read(self, values: Sequence[Any]) -> list[Any]:
        """Return the ids of one record; raises BadRecordError."""
        return self.read_all([[value] for value in values])


def _are_shifted(ids: np.ndarray, labels: np.ndarray) -> bool:
    """Return whether each label, but the last, is the id of the next token, or ignored."""
    is_next = labels[:-1] == ids[1:]
    return bool(is_next.any() and (is_next | (labels[:-1] == IGNORED)).all())


def _join_lists(field: Field, column: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return lists of numbers as one array, of an integer dtype or bool, and the length of each.

    Args:
        column: lists, or an Arrow array of them, whose numbers are not copied.

    Raises:
        BadRecordError: there is something else; of one record, this says what.
    """
    if not isinstance(column, list):
        return flatten_lists(column)
    kinds = {int, bool} if field.values == "masks" else {int}
    are_lists = set(map(type, column)) <= {list}
    if are_lists and set(map(type, chain.from_iterable(column))) <= kinds:
        lengths = np.fromiter(map(len, column), np.int64, len(column))
        with contextlib.suppress(OverflowError):  # an integer above 64 bits
            return np.fromiter(chain.from_iterable(column), np.int64, int(lengths.sum())), lengths
    value, what = column[0], f"field {quote(field.name)}"
    if type(value) is not list:
        found = "missing or null" if value is None else quote_value(value)
        hint = HINT_OF_VALUE if value is not None else LACKING_HINT
        hint = hint.format(field.name) if field.is_optional else SKIP_HINT
        raise BadRecordError(f"{what} is {found}, expected a list of integers", hint)
    for number, entry in enumerate(value, 1):
        if type(entry) not in kinds or not -(2**63) <= entry < 2**63:
            found = f"entry {number} is {quote_value(entry)}, expected an integer of 64 bits"
            raise BadRecordError(f"{what}: {found}")
    raise BadRecordError("in another record")


def _read_how(options: ImportOptions) -> DocumentOptions:
    """Return how records are read: one that is not UTF-8 is a bad record like others."""
    policy, limit = options.on_bad_record, options.max_document_bytes
    return DocumentOptions(encoding_errors=policy, on_bad_record=policy, max_document_bytes=limit)


def _iter_records(
    setup: ImportSetup, source_range: SourceRange, readers: Sequence[Reader], on_read: OnRead
) -> Iterator[IdBlock]:
    """Read the records of a range, each of them a document."""
    reader = IdReader(setup.lists, _list_refused(setup.lists, setup.options))
    nothing = reader.read_all([[] for _ in reader.fields])[0]
    none = nothing._replace(lengths=ZERO, num_padding=ZERO)
    try:
        for block in iter_records(
            source_range, [reader, *readers], _read_how(setup.options), on_read
        ):
            found: Any = block.lists[0]
            if not isinstance(found, IdLists):  # they were read one by one
                pieces = zip(*(each or none for each in found), strict=True)
                found = IdLists._make(
                    None if each[0] is None else np.concatenate(each) for each in pieces
                )
            lengths = found.lengths
            yield IdBlock(
                found.ids,
                lengths[lengths > 0],
                (lengths > 0).astype(np.int64),
                block.find_place,
                block.rejects,
                found.targets,
                block.lists[1:],
                {"num_padding_tokens": found.num_padding},
            )
    except DataError as error:
        if error.hint == ENCODING_HINT:  # with an option that import does not have
            raise DataError(error.message, SKIP_HINT) from error
        raise


# Ids alone: nanoGPT's and dolma's .bin, numpy's .npy


class FlatLayout(NamedTuple):
    """Where the ids of a file are, and how they are stored."""

    dtype: np.dtype
    offset: int  # in bytes, of the first id
    eos: int


@functools.lru_cache(maxsize=1024)
def _read_layout(source: Source, dtype: str | None, eos: int | None) -> FlatLayout:
    """Read the head of a file of ids.

    A file that begins as numpy's .npy files do says its type, whatever its suffix is. Any other is
    ids from its first byte on, little-endian, of the type that the user names: to guess it from the
    values has gone wrong too often.

    Raises:
        OptionError: an option is needed, or contradicts the file's header.
        DataError: the file cannot be read, holds something else, or its size is not possible.
    """
    path, num_bytes = source.path, source.num_bytes
    head_range = SourceRange(0, source, 0, min(num_bytes, HEAD_BYTES))
    head = b"".join(iter_raw_blocks(head_range, None))
    is_npy = head.startswith(NPY_MAGIC)
    for kind in FOREIGN:
        if re.match(PATTERNS[kind], head, re.DOTALL):
            hint = f"decompress it: {kind} -dc {shlex.quote(path)} > ids.bin"
            if kind not in COMPRESSION_OF_SUFFIX.values():
                hint = f"pass --format {kind.lower()}" if kind in ("Parquet", "Arrow") else SAVE_IDS
            what = f"{kind} (begins with {quote(head[:8])}), expected ids alone"
            raise DataError(f"{path}: {what}", hint)
    missing = ["--dtype"] * (dtype is None and not is_npy) + ["--eos"] * (eos is None)
    if missing:
        raise OptionError(f"{path}: ids alone, expected {' and '.join(missing)}", FLAT_HINT)
    found, offset = _read_npy(head, source) if is_npy else (np.dtype(dtype).newbyteorder("<"), 0)
    if dtype not in (None, found.name):
        what = f"--dtype {dtype}: {path} has {found.name} in its .npy header"
        raise OptionError(what, hint="omit --dtype")
    if (num_bytes - offset) % found.itemsize:
        what = f"{num_bytes:,} bytes, expected a multiple of the {found.itemsize} bytes of each"
        hint = "pass the --dtype that wrote the file, or copy it again"
        raise DataError(f"{path}: {what} {dtype}", hint)
    return FlatLayout(found, offset, int(eos or 0))


def _read_npy(head: bytes, source: Source) -> tuple[np.dtype, int]:
    """Return the type of the ids in a .npy file, and the byte at which they begin."""
    file, path = io.BytesIO(head), source.path
    try:
        is_first = np.lib.format.read_magic(file) == (1, 0)
        read = "read_array_header_1_0" if is_first else "read_array_header_2_0"
        shape, _, found = getattr(np.lib.format, read)(file)
    except Exception as error:  # numpy raises six kinds
        raise DataError(f"{path}: .npy header, {str(error)[:60]}", NPY_HINT) from error
    if found.kind not in "iu" or len(shape) != 1:
        what = f".npy array of {quote(found.str)} and shape {shape}"
        raise DataError(f"{path}: {what}, expected integers in one dimension", NPY_HINT)
    expected = file.tell() + shape[0] * found.itemsize
    if source.num_bytes != expected:
        what = f"{source.num_bytes:,} bytes, its .npy header says {expected:,}"
        raise DataError(f"{path}: {what}", hint="copy the file again")
    return found, file.tell()


def _find_end_token(options: ImportOptions, source: Source, byte: int) -> int:
    """Return where the first document ends at a byte or after it.

    That is the end of the file if the document is larger than the limit, which is an error later.
    """
    dtype, offset, eos = _read_layout(source, options.dtype, options.eos)
    size = dtype.itemsize
    start = offset + max(0, byte - offset - 1) // size * size
    last = min(source.num_bytes, start + options.max_document_bytes + size)
    step = max(LIMITS.seek_bytes // size, 1) * size
    for first in range(start, last, step):
        searched = SourceRange(0, source, first, min(first + step, last))
        data = b"".join(iter_raw_blocks(searched, None))
        found = np.flatnonzero(np.frombuffer(data, dtype) == eos)
        if len(found):
            return first + (int(found[0]) + 1) * size
    return source.num_bytes


def _iter_flat(
    setup: ImportSetup, source_range: SourceRange, readers: Sequence[Reader], on_read: OnRead
) -> Iterator[IdBlock]:
    """Read the documents of a range of ids alone, about 1 MiB at a time.

    A document ends with the end token, which stays with it; what follows the last one is a document
    too, so that all documents in a row are the file again.
    """
    del readers
    options, (_, source, start, _) = setup.options, source_range
    layout = _read_layout(source, options.dtype, options.eos)
    limit, eos, dtype = options.max_document_bytes, layout.eos, layout.dtype
    num_documents = 0

    def find_place(first: int, document: int) -> str:
        """Return "path:document"; reads the file again from its start, for errors only."""
        before = _iter_ids(SourceRange(0, source, 0, start), layout, None)
        number = sum(int((ids == eos).sum()) for ids in before) + first + document + 1
        return f"{source.path}:{number}"

    rest = nothing = np.empty(0, dtype)  # of a document whose end was not read yet
    for more in chain(_iter_ids(source_range, layout, on_read), [nothing]):
        is_last = more is nothing
        ids = np.concatenate([rest, more]) if len(rest) else more
        ends = np.flatnonzero(more == eos) + len(rest) + 1
        is_long = np.diff(ends, prepend=0, append=len(ids)) > limit // dtype.itemsize
        if start == num_documents == len(ends) == 0 < len(ids) and (is_last or is_long.any()):
            what = f"no id {eos} in {len(ids):,} ids of {dtype}"
            expected = "expected one at the end of each document"
            raise DataError(f"{source.path}: {what}, {expected}", EOS_HINT)
        place = functools.partial(find_place, num_documents)
        if is_long.any():
            raise oversized_error(place(int(is_long.argmax())), limit)
        if is_last and len(ids):
            ends = np.append(ends, len(ids))
        if len(ends):
            lengths = np.diff(ends, prepend=0)
            yield IdBlock(ids[: ends[-1]], lengths, np.ones(len(ends), np.int64), place)
            num_documents += len(ends)
        rest = ids[ends[-1] if len(ends) else 0 :]


def _iter_ids(
    source_range: SourceRange, layout: FlatLayout, on_read: OnRead | None
) -> Iterator[np.ndarray]:
    """Read the ids of a range, block by block."""
    stream = Stream(iter_raw_blocks(source_range, on_read))
    stream.read(max(layout.offset - source_range.start, 0))
    while data := stream.read(LIMITS.read_bytes // 8 * 8 or 8):
        yield np.frombuffer(data, layout.dtype)


# Megatron-LM's pairs


class PairIndex(NamedTuple):
    """The sequences and documents of an indexed dataset."""

    dtype: np.dtype
    lengths: np.ndarray  # int32[S], in tokens; may be 0
    starts: np.ndarray  # int64[S], in bytes
    first_sequences: np.ndarray  # int64[D + 1]
    num_bytes: int  # of the .bin

    def find_document(self, byte: int) -> int:
        """Return the first document that begins at a byte or after it.

        A document without tokens is where the one after it begins; the last ones are at the end.
        """
        # searchsorted would copy the arrays, which are not aligned
        first = bisect.bisect_left(self.starts, byte) if byte else 0
        return bisect.bisect_left(self.first_sequences, first) if first else 0

    def find_documents(self, source_range: SourceRange) -> tuple[int, int]:
        """Return the first document of a range, and the first behind the range."""
        is_last = source_range.end >= self.num_bytes
        last = len(self.first_sequences) - 1 if is_last else self.find_document(source_range.end)
        return self.find_document(source_range.start), last

    def find_start(self, document: int) -> int:
        """Return the byte at which a document begins."""
        first = int(self.first_sequences[document])
        return int(self.starts[first]) if first < len(self.starts) else self.num_bytes


@functools.lru_cache(maxsize=4)
def _read_pair(source: Source) -> PairIndex:
    """Read and check the index beside a `.bin`; that of a local file is mapped.

    What a `.bin` holds between or after its sequences would be lost, so the starts must be the
    running sum of the lengths, up to its size.

    Raises:
        DataError: it is damaged, does not describe the `.bin`, or its tokens are not integers.
    """
    index_file = source.index_file
    assert index_file is not None  # noqa: S101 - it is a pair
    path = index_file.path
    with naming_input(path):
        data = index_file.input.map(index_file.num_bytes)
    begin = data[: HEADER.size].tobytes()
    if len(begin) < HEADER.size or not begin.startswith(MAGIC):
        found = quote(begin[: len(MAGIC)])
        raise DataError(f"{path}: begins with {found}, expected an indexed dataset ({MAGIC!r})")
    _, version, code, num_sequences, num_firsts = HEADER.unpack(begin)
    if version != VERSION or code not in DTYPE_OF_CODE:
        known = ", ".join(f"{it} ({np.dtype(name)})" for it, name in DTYPE_OF_CODE.items())
        what = f"version {version}, dtype code {code}, expected {VERSION}, and an integer: {known}"
        raise DataError(f"{path}: {what}", "write the ids as int32")
    expected = HEADER.size + 12 * num_sequences + 8 * num_firsts
    if len(data) != expected or not num_firsts:
        what = f"{len(data):,} bytes, expected {expected:,} for sequences of text"
        raise DataError(f"{path}: {what}", PAIR_HINT)
    offset = HEADER.size + 4 * num_sequences
    index = PairIndex(
        np.dtype(DTYPE_OF_CODE[code]),
        view_array(data, "<i4", count=num_sequences, offset=HEADER.size),
        view_array(data, "<i8", count=num_sequences, offset=offset),
        view_array(data, "<i8", count=num_firsts, offset=offset + 8 * num_sequences),
        source.num_bytes,
    )
    num_bytes = _count_bytes(index)
    if num_bytes is None:
        what = "its sequences or documents do not follow one another"
        raise DataError(f"{path}: {what}", PAIR_HINT)
    if num_bytes != source.num_bytes:
        what = f"{source.num_bytes:,} bytes, {path} describes {num_bytes:,}"
        raise DataError(f"{source.path}: {what}", PAIR_HINT)
    return index


def _count_bytes(index: PairIndex) -> int | None:
    """Return the bytes of all sequences; None if one does not begin where the one before ends.

    A block of entries at a time is checked: an index may be as large as the memory.
    """
    num_bytes, step, firsts = 0, LIMITS.ids_per_block, index.first_sequences
    for first in range(0, len(index.lengths), step):
        lengths = index.lengths[first : first + step]
        starts = to_offsets(lengths) * index.dtype.itemsize + num_bytes
        if lengths.min() < 0 or (index.starts[first : first + step] != starts[:-1]).any():
            return None
        num_bytes = int(starts[-1])
    for first in range(0, len(firsts), step):
        some = firsts[first : first + step + 1]
        if (some[1:] < some[:-1]).any():
            return None
    return num_bytes if firsts[0] == 0 and firsts[-1] == len(index.lengths) else None


def _find_end_of_pair(options: ImportOptions, source: Source, byte: int) -> int:
    """Return where the first document begins at a byte or after it."""
    del options  # the index says everything
    index = _read_pair(source)
    return index.find_start(index.find_document(byte))


def _hash_index(source_range: SourceRange, update: OnRead) -> None:
    """Hash what the index says of a range, relative to its start: it may change, too."""
    index = _read_pair(source_range.source)
    first, last = index.find_documents(source_range)
    firsts = index.first_sequences[first : last + 1]
    for some in np.array_split(firsts, 1 + len(firsts) // LIMITS.sequences_per_block):
        update((some - firsts[0]).astype("<i8").tobytes())
    update(index.lengths[firsts[0] : firsts[-1]].tobytes())


def _iter_megatron(
    setup: ImportSetup, source_range: SourceRange, readers: Sequence[Reader], on_read: OnRead
) -> Iterator[IdBlock]:
    """Read the documents of a range of a pair, about 1 MiB at a time."""
    del readers
    source, limit = source_range.source, setup.options.max_document_bytes
    index = _read_pair(source)
    stream = Stream(iter_raw_blocks(source_range, on_read))
    first, last = index.find_documents(source_range)
    while first < last:
        near = source_range._replace(end=index.find_start(first) + LIMITS.read_bytes)
        stop = min(first + LIMITS.sequences_per_block, last)
        stop = min(stop, max(first + 1, index.find_documents(near)[1]))
        firsts = index.first_sequences[first : stop + 1].astype(np.int64)
        lengths = index.lengths[firsts[0] : firsts[-1]].astype(np.int64)
        ends = to_offsets(lengths)[firsts - firsts[0]] * index.dtype.itemsize

        def place(document: int, first: int = first) -> str:
            return f"{source.path}:{first + document + 1}"

        if (is_large := np.diff(ends) > limit).any():
            raise oversized_error(place(int(is_large.argmax())), limit)
        has_ids = to_offsets(lengths > 0)[firsts - firsts[0]]
        yield IdBlock(
            np.frombuffer(stream.read(int(ends[-1])), index.dtype),
            lengths[lengths > 0],
            np.diff(has_ids),
            place,
            left_out={"num_empty_sequences": np.diff(firsts) - np.diff(has_ids)},
        )
        first = stop


FORMATS = {
    "megatron": IdFormat(_iter_megatron, "documents", _find_end_of_pair, _hash_index),
    "flat": IdFormat(_iter_flat, "ids alone", _find_end_token),
    **dict.fromkeys(("jsonl", "json", "parquet", "arrow"), IdFormat(_iter_records, "records")),
}


def hash_input(source_range: SourceRange) -> str:
    """Return the BLAKE3 checksum of the input of a range, "" if it cannot be read."""
    digest = blake3()
    try:
        FORMATS[source_range.source.format].hash_index(source_range, digest.update)
        for _ in iter_raw_blocks(source_range, digest.update):
            pass
    except DataError:
        return ""
    return digest.hexdigest()


# Parts


def _cut(
    find_end: Callable[[Source, int], int], source: Source, room: int, part_bytes: int
) -> list[tuple[int, int]]:
    """Return the (start, end) bytes of ranges of whole documents."""
    return cut_where(functools.partial(find_end, source), source, room, part_bytes)


def _make_parts(
    run: RunFolder, tasks: Sequence[PartTask], setup: ImportSetup, workers: Workers
) -> list[dict[str, Any]]:
    """Import the missing parts; return all receipts in order."""
    receipts = find_finished(
        run, tasks, {**RECEIPT_FIELDS, **dict.fromkeys(FACTS, int)}, workers, hash_input
    )
    held = {FORMATS[each.source.format].holds for task in tasks for each in task.ranges}
    is_free = workers.executor.num_workers is None and workers.are_local

    def make(waiting: Sequence[PartTask]) -> Iterator[MadePart]:
        num_processes, num_threads = share_cores(workers, waiting)[0], 1
        if is_free and "records" not in held:  # threads start at once, and need no Python's lock
            num_processes, num_threads = 1, min(MAX_THREADS, count_cores(), len(waiting))
        made = functools.partial(import_part, setup)
        return workers.run(made, waiting, max_processes=num_processes, num_threads=num_threads)

    return make_missing(receipts, tasks, workers, make)


def import_part(setup: ImportSetup, task: PartTask) -> tuple[str, dict[str, Any]]:
    """Make one part and publish it; return its name and receipt.

    Raises:
        DataError: a file or record cannot be read, or an id is not in the vocabulary.
        MachineError: the disk failed.
    """
    facts = Counter(dict.fromkeys(FACTS, 0))
    part = PartWriter(setup.folder, task.name, setup.dtype, setup.kept)
    return task.name, part.write(_iter_made(part, facts, setup, task), lambda: dict(facts))


def _iter_made(
    part: PartWriter, facts: Counter[str], setup: ImportSetup, task: PartTask
) -> Iterator[MadeDocuments]:
    for source_range in task.ranges:
        digest, num_documents = blake3(), 0

        def on_read(block: bytes, digest: Any = digest) -> None:
            digest.update(block)
            advance(len(block))

        source_format = FORMATS[source_range.source.format]
        source_format.hash_index(source_range, digest.update)
        for found in source_format.iter_blocks(setup, source_range, part.readers, on_read):
            block = _check_ids(found, setup, num_documents)
            _count_ends(facts, block, setup.affix_ids)
            num_documents += len(block.num_sequences)
            part.add_rejects(source_range, block.rejects)
            yield _make_documents(block, setup)
        check_unchanged(source_range.source)
        part.add_range(source_range, num_documents, digest.hexdigest())


def _check_ids(block: IdBlock, setup: ImportSetup, num_before: int) -> IdBlock:
    """Reject documents with an id that is not in the vocabulary.

    Args:
        num_before: documents of the range before the block.

    Raises:
        DataError: there is one, and it is not to be skipped.
    """
    ids, max_id, offsets = block.ids, setup.max_id, block.offsets
    if ids.min(initial=0) >= 0 and ids.max(initial=0) <= max_id:
        return block
    outside = np.flatnonzero((ids > max_id) | (ids < 0))
    is_kept, rejects = np.ones(len(block.num_sequences), bool), list(block.rejects)
    bad, firsts = np.unique(np.searchsorted(offsets, outside, "right") - 1, return_index=True)
    is_kept[bad] = False
    for document, place in zip(bad.tolist(), outside[firsts].tolist(), strict=True):
        where = f"token {place - int(offsets[document]) + 1} has id {ids[place]}"
        reason = f"{where}, expected ids from 0 to {max_id:,}"
        if setup.options.on_bad_record == "error":
            raise DataError(f"{block.find_place(document)}: {reason}", RANGE_HINT)
        rejects.append(Reject(num_before + document, None, reason))
    of_tokens = np.repeat(is_kept, np.diff(offsets))
    return block._replace(
        ids=ids[of_tokens],
        lengths=block.lengths[np.repeat(is_kept, block.num_sequences)],
        num_sequences=block.num_sequences * is_kept,
        rejects=sorted(rejects),
        targets=None if block.targets is None else block.targets[of_tokens],
        left_out={name: each * is_kept for name, each in block.left_out.items()},
    )


def _make_documents(block: IdBlock, setup: ImportSetup) -> MadeDocuments:
    made = DocumentSequences(
        ids=block.ids,
        lengths=block.lengths,
        num_sequences=block.num_sequences,
        overlaps=np.zeros(len(block.lengths), np.int64),
        columns={} if block.targets is None else {TARGETS: block.targets},
    )
    # What is hashed of a document is its ids, as little-endian int32.
    data = block.ids.astype("<i4", copy=False).view(np.uint8).data
    bounds = (block.offsets * 4).tolist()
    texts = map(data.__getitem__, map(slice, bounds[:-1], bounds[1:]))
    left_out = {name: int(each.sum()) for name, each in block.left_out.items()}
    return MadeDocuments(
        made,
        block.ids.astype(f"<{np.dtype(setup.dtype).str[1:]}", copy=False),
        hash_texts(texts),
        block.fields,
        len(block.rejects),
        len(block.ids) + left_out.get("num_padding_tokens", 0),
        left_out,
    )


# What looks wrong


def _count_ends(facts: Counter[str], block: IdBlock, affix_ids: Mapping[str, int | None]) -> None:
    """Count the documents that begin with BOS, end with EOS, or end with the same id twice."""
    ids, offsets = block.ids, block.offsets
    facts["largest_id"] = max(facts["largest_id"], int(ids.max(initial=0)))
    lengths = np.diff(offsets)
    ends = {"bos": offsets[:-1][lengths > 0], "eos": offsets[1:][lengths > 0] - 1}
    for role, places in ends.items():
        if affix_ids[role] is not None:  # numpy compares with None as Python does, slowly
            facts[f"num_with_{role}"] += int((ids[places] == affix_ids[role]).sum())
    lasts = offsets[1:][lengths > 1]
    twice = lasts[ids[lasts - 1] == ids[lasts - 2]]
    if len(twice) and not facts["num_ending_twice"]:
        facts["ending_twice_id"] = int(ids[twice[0] - 1])
    facts["num_ending_twice"] += len(twice)


def _iter_notes(
    receipts: Sequence[Mapping[str, Any]], ledger: Mapping[str, int], setup: ImportSetup
) -> Iterator[str]:
    """Yield notes about the ids of a store."""
    num_documents = ledger["num_documents"] - ledger["num_empty_documents"]
    num_documents -= ledger["num_rejected"]
    counts = {name: sum(receipt[name] for receipt in receipts) for name in FACTS}
    of_all, found = f" of {num_documents:,} documents", []
    for verb, (role, id_) in zip(("begin", "end"), setup.affix_ids.items(), strict=True):
        if id_ is not None:
            found.append(f"{counts[f'num_with_{role}']:,}{of_all} {verb} with id {id_} ({role})")
            of_all = ""
    if found:
        yield ", ".join(found)
    num_twice = counts["num_ending_twice"]
    is_often = num_documents >= MIN_DOCUMENTS and 2 * num_twice > num_documents
    if is_often and "attention_mask" not in setup.lists:
        id_ = next(each["ending_twice_id"] for each in receipts if each["num_ending_twice"])
        yield (
            f"{num_twice:,} of {num_documents:,} documents end with the same id twice, such as "
            f"{id_}; if that is padding, pass --attention-mask-field, or remove it before import"
        )
    largest = max(each["largest_id"] for each in receipts)
    size = setup.options.vocab_size
    if size is not None and 2 * (largest + 1) < size:
        yield f"the largest id is {largest:,}, less than half of --vocab-size {size:,}"
