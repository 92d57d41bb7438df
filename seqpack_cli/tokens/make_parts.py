"""The tasks of a tokenize run -> its parts: those that were finished before, and the rest.

A finished part is taken as it is if the input it was made from still has the same checksum. A fast
encoder that is refused, or found to differ anywhere, is not trusted for any part of the run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from seqpack_cli.corpus.blocks import hash_range
from seqpack_cli.corpus.document_block import TEXT_FIELD_HINT
from seqpack_cli.corpus.sources import SourceRange
from seqpack_cli.errors import DataError, FolderError, OptionError, SeqpackError
from seqpack_cli.runs.earlier_run import OVERWRITE_HINT
from seqpack_cli.runs.execution import Executor, count_cores, run_tasks
from seqpack_cli.runs.progress import Progress
from seqpack_cli.runs.run_folder import RunFolder
from seqpack_cli.tokens.encoders.encoded_texts import EncoderRefusedError, EncodersDifferError
from seqpack_cli.tokens.encoders.encoder import CHECKED, REFERENCE
from seqpack_cli.tokens.receipts import read_receipt
from seqpack_cli.tokens.tokenize_part import PartTask, tokenize_part

MIN_WORKER_BYTES = 64 << 20  # of input: starting another process costs a second
MIN_HASHED_BYTES = 1 << 30  # of input that is only hashed, for another process


def make_parts(
    run: RunFolder,
    tasks: Sequence[PartTask],
    *,
    encoder: str,
    may_fall_back: bool,
    num_workers: int | None,
    executor: Executor,
    progress: Progress,
) -> tuple[list[dict[str, Any]], str]:
    """Make the parts that are not there yet; give all receipts in order, and who encoded.

    Args:
        encoder: the encoder to begin with.
        may_fall_back: let tokenizers do it where a fast encoder can not be trusted.
        num_workers: processes; None takes as many as the input is worth, at most one a core, and
            all the cores of a cluster.

    Raises:
        OptionError: the encoder does not take this tokenizer, and there is no falling back.
        DataError: its ids differ, and there is no falling back.
        FolderError: the input of a finished part changed.
    """
    receipts = _read_receipts(run, tasks)
    made = [(task, receipts[task.name]) for task in tasks]
    finished = [(task, receipt) for task, receipt in made if receipt is not None]
    check_inputs_unchanged(finished, run, num_workers=num_workers, executor=executor)
    if may_fall_back and any(receipt["encoder"] == REFERENCE for _, receipt in finished):
        encoder = REFERENCE  # what began with it, or fell back to it, ends with it
    if finished:
        progress.on_notice(f"{len(finished)} of {len(tasks)} parts were finished before")
    try:
        _make_missing(receipts, tasks, encoder, num_workers, executor, progress)
    except (EncoderRefusedError, EncodersDifferError) as error:
        _forget_unchecked(run, tasks, receipts)
        if not may_fall_back:
            raise _refuse(encoder, error) from error
        if isinstance(error, EncoderRefusedError):
            progress.on_notice(f"{encoder} does not take this tokenizer, {REFERENCE} encodes")
        else:
            progress.on_notice(f"{encoder}: {error}; {REFERENCE} encodes the whole run")
        encoder = REFERENCE
        _make_missing(receipts, tasks, encoder, num_workers, executor, progress)
    return [receipt for receipt in receipts.values() if receipt is not None], encoder


def _read_receipts(run: RunFolder, tasks: Sequence[PartTask]) -> dict[str, dict[str, Any] | None]:
    """Give the receipt of each part that has one."""
    named = {task.name: task for task in tasks}
    found = run.read_receipts(named, lambda task: read_receipt(run, task))
    return dict(zip(named, found, strict=True))


def _refuse(encoder: str, error: Exception) -> SeqpackError:
    """Make the error about an encoder that was asked for and can not be trusted."""
    hint = "pass --encoder auto"
    if isinstance(error, EncoderRefusedError):
        return OptionError(f"--encoder {encoder}: does not take this tokenizer ({error})", hint)
    return DataError(f"--encoder {encoder}: {error}", hint)


def _forget_unchecked(
    run: RunFolder, tasks: Sequence[PartTask], receipts: dict[str, dict[str, Any] | None]
) -> None:
    """Forget every part that a distrusted encoder made, those too that no one has heard of yet."""
    for name, receipt in _read_receipts(run, tasks).items():
        if receipt is not None and receipt["encoder"] in CHECKED:
            run.forget(name)
            receipts[name] = None


def _make_missing(
    receipts: dict[str, dict[str, Any] | None],
    tasks: Sequence[PartTask],
    encoder: str,
    num_workers: int | None,
    executor: Executor,
    progress: Progress,
) -> None:
    waiting = [task for task in tasks if receipts[task.name] is None]
    num_bytes = sum(task.num_bytes for task in waiting)
    progress.on_total(num_bytes)
    num_threads = 1  # a Ray task has one core
    if executor.name == "local":
        num_workers, num_threads = share_cores(num_workers, num_bytes, len(waiting))
    waiting = [
        dataclasses.replace(task, encoder=encoder, num_threads=num_threads) for task in waiting
    ]
    try:
        for name, receipt in run_tasks(
            tokenize_part, waiting, num_workers=num_workers, progress=progress, executor=executor
        ):
            receipts[name] = receipt
    except DataError as error:
        raise _complete_hint(error, receipts) from error


def _complete_hint(error: DataError, receipts: dict[str, dict[str, Any] | None]) -> DataError:
    """Add --overwrite to a hint that no part which is finished agrees with."""
    is_field = error.hint is not None and error.hint.startswith(TEXT_FIELD_HINT)
    if not is_field or not any(receipts.values()):
        return error
    return DataError(error.message, f"{error.hint} --overwrite")


def share_cores(
    num_workers: int | None, num_bytes: int, num_parts: int | None = None
) -> tuple[int, int]:
    """Give the processes for an input, and the threads of each.

    A process more has to be worth its start. In this process alone, threads take the cores.
    """
    cores = num_workers or count_cores()
    num_processes = num_workers or min(cores, 1 + num_bytes // MIN_WORKER_BYTES)
    if num_parts is not None:
        num_processes = max(1, min(num_processes, num_parts))
    return num_processes, cores if num_processes == 1 else 1


def check_inputs_unchanged(
    finished: Iterable[tuple[PartTask, dict[str, Any]]],
    run: RunFolder,
    *,
    num_workers: int | None = None,
    executor: Executor | None = None,
) -> None:
    """Raise unless the input that finished parts were made from is still the same.

    Args:
        finished: what each part would be made from now, and its receipt or entry in the manifest.
        num_workers: as of `make_parts`.
        executor: where the input is read.

    Raises:
        FolderError: it is not; the message names the file.
    """
    finished = list(finished)
    parts = [_FinishedPart(task.name, task.ranges, part["ranges"]) for task, part in finished]
    executor = executor or Executor()
    if executor.name == "local":
        num_bytes = sum(task.num_bytes for task, _ in finished)
        num_workers = min(num_workers or count_cores(), 1 + num_bytes // MIN_HASHED_BYTES)
    for changed in run_tasks(_find_changed, parts, num_workers=num_workers, executor=executor):
        if changed is not None:
            raise FolderError(
                f"{run.path}: {changed} changed since this run began", hint=OVERWRITE_HINT
            )


@dataclass(frozen=True)
class _FinishedPart:
    """What a part was made from, and what it would be made from now."""

    name: str
    ranges: list[SourceRange]
    made_from: list[dict[str, Any]]

    def __str__(self) -> str:
        return self.name


def _find_changed(part: _FinishedPart) -> str | None:
    """Give the first source of a part that changed."""
    found = [(entry["source"], entry["start"], entry["end"]) for entry in part.made_from]
    for place, source_range in enumerate(part.ranges):
        index, source, start, end = source_range
        # A line end that moved cuts the parts elsewhere, though each has its bytes still.
        is_same = len(found) == len(part.ranges) and found[place] == (index, start, end)
        if not is_same or hash_range(source_range) != part.made_from[place]["blake3"]:
            return source.path
    return None
