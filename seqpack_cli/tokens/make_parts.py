"""Make the parts of a token store: reuse finished ones, make the others.

A finished part is reused if its input still has the same checksum. A fast encoder that does not
support the tokenizer, or gives different ids anywhere, is not used for any part of the run.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from seqpack_cli.corpus.fields import proposes_field
from seqpack_cli.corpus.sources import SourceRange
from seqpack_cli.corpus.streams import hash_range
from seqpack_cli.errors import DataError, FolderError, OptionError, SeqpackError
from seqpack_cli.runs.run_folder import OVERWRITE_HINT, RunFolder
from seqpack_cli.runs.workers import Workers, count_cores
from seqpack_cli.tokens.encoders.encoded_texts import EncoderRefusedError, EncodersDifferError
from seqpack_cli.tokens.encoders.encoder import CHECKED, REFERENCE
from seqpack_cli.tokens.part_setup import AnySetup, PartSetup, PartTask
from seqpack_cli.tokens.receipts import read_receipt
from seqpack_cli.tokens.tokenize_part import tokenize_part

MIN_WORKER_BYTES = 64 << 20  # of input per process: starting one takes a second
MAX_PARTS_AT_ONCE = 2  # in a process: Python's lock lets no more than that be read at once
MIN_HASHED_BYTES = 1 << 30  # of input that is only hashed, per process

Receipts = dict[str, dict[str, Any] | None]  # by part; None for one that is not made yet
MadePart = tuple[str, dict[str, Any]]  # its name and receipt
HashInput = Callable[[SourceRange], str]
MakeParts = Callable[[Sequence[PartTask]], Iterator[MadePart]]


def make_parts(
    run: RunFolder, tasks: Sequence[PartTask], setup: PartSetup, workers: Workers
) -> tuple[list[dict[str, Any]], str]:
    """Tokenize the missing parts; return all receipts in order, and the encoder that was used.

    Args:
        setup: has the encoder to try first; with `encoder="auto"`, tokenizers replaces a fast
            encoder that cannot be used.

    Raises:
        OptionError: the encoder does not support this tokenizer, and may not be replaced.
        DataError: its ids differ from those of tokenizers, and it may not be replaced.
        FolderError: the input of a finished part changed.
    """
    may_fall_back, on_notice = setup.options.encoder == "auto", workers.progress.on_notice
    receipts = find_finished(run, tasks, setup, workers)
    encoders = [receipt["encoder"] for receipt in receipts.values() if receipt is not None]
    if may_fall_back and REFERENCE in encoders:
        setup = replace(setup, encoder=REFERENCE)  # the run began with it, or fell back to it
    try:
        _tokenize_missing(receipts, tasks, setup, workers)
    except (EncoderRefusedError, EncodersDifferError) as error:
        _forget_unchecked(run, tasks, setup, receipts)
        if not may_fall_back:
            raise _encoder_error(setup.encoder, error) from error
        if isinstance(error, EncoderRefusedError):
            on_notice(f"{setup.encoder} does not support this tokenizer; using {REFERENCE}")
        else:
            on_notice(f"{setup.encoder}: {error}; using {REFERENCE} for the whole run")
        setup = replace(setup, encoder=REFERENCE)
        _tokenize_missing(receipts, tasks, setup, workers)
    return [receipt for receipt in receipts.values() if receipt is not None], setup.encoder


def find_finished(
    run: RunFolder,
    tasks: Sequence[PartTask],
    setup: AnySetup,
    workers: Workers,
    hash_input: HashInput = hash_range,
) -> Receipts:
    """Return the receipt of each part, None for parts that are still to be made.

    Args:
        hash_input: the checksum of the bytes of a range.

    Raises:
        FolderError: the input of a finished part changed.
    """
    receipts = _read_receipts(run, tasks, setup)
    made = [(task, receipts[task.name]) for task in tasks]
    finished = [(task, receipt) for task, receipt in made if receipt is not None]
    check_inputs_unchanged(finished, run, workers, hash_input)
    if finished:
        notice = f"{len(finished)} of {len(tasks)} parts were already finished"
        workers.progress.on_notice(notice)
    return receipts


def make_missing(
    receipts: Receipts, tasks: Sequence[PartTask], workers: Workers, make: MakeParts
) -> None:
    """Make the parts without a receipt, and add theirs.

    Args:
        make: makes some parts, and yields each when it is finished.
    """
    waiting = [task for task in tasks if receipts[task.name] is None]
    workers.progress.on_total(count_bytes(waiting))
    try:
        for name, receipt in make(waiting):
            receipts[name] = receipt
    except DataError as error:
        raise _complete_hint(error, receipts) from error


def count_bytes(tasks: Iterable[PartTask]) -> int:
    """Return the input bytes of some parts."""
    return sum(task.num_bytes for task in tasks)


def _read_receipts(run: RunFolder, tasks: Sequence[PartTask], setup: AnySetup) -> Receipts:
    """Return the receipt of each part, None for parts without one."""
    named = {task.name: task for task in tasks}
    found = run.read_receipts(named, lambda task: read_receipt(run, task, setup))
    return dict(zip(named, found, strict=True))


def _encoder_error(encoder: str, error: Exception) -> SeqpackError:
    """Return the error about an encoder that the user chose and that cannot be used."""
    hint = "pass --encoder auto"
    if isinstance(error, EncoderRefusedError):
        return OptionError(f"--encoder {encoder}: does not support this tokenizer ({error})", hint)
    return DataError(f"--encoder {encoder}: {error}", hint)


def _forget_unchecked(
    run: RunFolder, tasks: Sequence[PartTask], setup: PartSetup, receipts: Receipts
) -> None:
    """Discard every part made by a fast encoder, also those that workers finished meanwhile."""
    for name, receipt in _read_receipts(run, tasks, setup).items():
        if receipt is not None and receipt["encoder"] in CHECKED:
            run.forget(name)
            receipts[name] = None


def _tokenize_missing(
    receipts: Receipts, tasks: Sequence[PartTask], setup: PartSetup, workers: Workers
) -> None:
    def make(waiting: Sequence[PartTask]) -> Iterator[MadePart]:
        num_processes, num_threads = share_cores(workers, count_bytes(waiting), len(waiting))
        # Making texts from fields holds Python's lock, and a template belongs to one thread.
        most = MAX_PARTS_AT_ONCE if setup.text is None else 1
        at_once = max(1, min(num_threads, most, len(waiting)))
        of_part = replace(setup, num_threads=num_threads // at_once)
        tokenize = functools.partial(tokenize_part, of_part)
        return workers.run(tokenize, waiting, max_processes=num_processes, num_threads=at_once)

    make_missing(receipts, tasks, workers, make)


def _complete_hint(error: DataError, receipts: Receipts) -> DataError:
    """Add --overwrite to a hint that changes an option which finished parts were made with."""
    if not proposes_field(error.hint) or not any(receipts.values()):
        return error
    return DataError(error.message, f"{error.hint} --overwrite")


def share_cores(workers: Workers, num_bytes: int, num_parts: int | None = None) -> tuple[int, int]:
    """Return the number of processes on this machine for an input, and of threads in each.

    Small inputs get fewer processes, unless the user sets the number. A single process uses a
    thread per core; a task on a cluster has one thread.
    """
    num_wanted = workers.executor.num_workers
    cores = num_wanted or count_cores()
    num_processes = num_wanted or min(cores, 1 + num_bytes // MIN_WORKER_BYTES)
    if num_parts is not None:
        num_processes = max(1, min(num_processes, num_parts))
    return num_processes, cores if num_processes == 1 and workers.are_local else 1


def check_inputs_unchanged(
    finished: Iterable[tuple[PartTask, dict[str, Any]]],
    run: RunFolder,
    workers: Workers,
    hash_input: HashInput = hash_range,
) -> None:
    """Check that the input of finished parts is still the same.

    Args:
        finished: each part's task now, and its receipt or entry in the manifest.
        hash_input: the checksum of the bytes of a range.

    Raises:
        FolderError: it changed; the message names the file.
    """
    finished = list(finished)
    parts = [_FinishedPart(task.name, task.ranges, part["ranges"]) for task, part in finished]
    num_bytes = count_bytes(task for task, _ in finished)
    max_processes = 1 + num_bytes // MIN_HASHED_BYTES
    find_changed = functools.partial(_find_changed, hash_input)
    for changed in workers.run(find_changed, parts, max_processes=max_processes):
        if changed is not None:
            raise FolderError(
                f"{run.path}: {changed} changed since this run began", hint=OVERWRITE_HINT
            )


@dataclass(frozen=True)
class _FinishedPart:
    """The input of a part when it was made, and its input now."""

    name: str
    ranges: list[SourceRange]
    made_from: list[dict[str, Any]]

    def __str__(self) -> str:
        return self.name


def _find_changed(hash_input: HashInput, part: _FinishedPart) -> str | None:
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
