"""The work of one tokenize task: the records of a part -> its `.bin`, `.idx` and receipt.

Texts go to the encoder about 1 MiB at a time, ids straight to the file, so memory is bounded by a
block and its encoding. The part's files and receipt are published here, by the worker itself.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from seqpack_cli.corpus.documents import (
    DocumentBlock,
    DocumentOptions,
    iter_documents,
    located_error,
)
from seqpack_cli.corpus.sources import Source, SourceRange
from seqpack_cli.errors import DataError
from seqpack_cli.run_folder import write_receipt
from seqpack_cli.storage import HashingWriter, publish
from seqpack_cli.tokens.affixes import Affixes
from seqpack_cli.tokens.encoder import EncodedTexts, Encoder, open_encoder
from seqpack_cli.tokens.indexed_dataset import cast_ids, write_index
from seqpack_cli.tokens.sequences import DocumentSequences, TooLongError, make_sequences
from seqpack_cli.tokens.vocabulary import Vocabulary


@dataclass(frozen=True)
class PartTask:
    """All that a worker needs to make one part."""

    name: str
    folder: Path
    ranges: list[SourceRange]
    tokenizer_json: bytes
    vocabulary: Vocabulary
    dtype: str
    affixes: Affixes
    documents: DocumentOptions
    allow_special_tokens: bool
    max_length: int | None
    overflow: str
    num_threads: int
    on_bytes: Callable[[int], None] | None = None  # progress, only within one process


@dataclass
class _PartInProgress:
    """What one part has counted so far."""

    ledger: Counter[str] = field(default_factory=Counter)
    lengths: list[np.ndarray] = field(default_factory=list)
    num_sequences: list[np.ndarray] = field(default_factory=list)


def tokenize_part(task: PartTask) -> tuple[str, dict[str, Any]]:
    """Make one part and publish it; give its name and receipt.

    Raises:
        DataError: a record can not be read, encoded, or is too long.
        MachineError: the disk failed.
    """
    encoder = open_encoder(
        task.tokenizer_json,
        allow_special_tokens=task.allow_special_tokens,
        num_threads=task.num_threads,
    )
    count_special = _special_token_counter(task.vocabulary.special_tokens)
    part = _PartInProgress()
    ranges, rejects = [], []
    bin_path, idx_path = (task.folder / f"{task.name}.{suffix}" for suffix in ("bin", "idx"))
    with publish(bin_path) as bin_file:
        for source_range in task.ranges:
            digest = hashlib.sha256()
            num_documents, position = 0, source_range.start
            for block in iter_documents(source_range, task.documents, digest):
                texts = [text or "" for text in block.texts]
                part.ledger["num_special_tokens_in_text"] += count_special(texts)
                encoded = _encode(encoder, texts, block.starts, source_range.source)
                made = _make_sequences(encoded, block.starts, source_range.source, task)
                _write(bin_file, part, block, made, encoded, task)
                for reject in block.rejects:
                    rejects.append([source_range.source_index, *reject])
                num_documents += len(texts)
                if task.on_bytes is not None:
                    task.on_bytes(block.end - position)
                position = block.end
            ranges.append(_describe_range(source_range, num_documents, digest))
        bin_entry = {"name": bin_path.name, **bin_file.describe()}
    with publish(idx_path) as idx_file:
        lengths = _join(part.lengths)
        num_sequences = _join(part.num_sequences)
        write_index(idx_file, lengths=lengths, num_sequences=num_sequences, dtype=task.dtype)
        idx_entry = {"name": idx_path.name, **idx_file.describe()}
    receipt = {
        "ledger": dict(part.ledger),
        "ranges": ranges,
        "files": [bin_entry, idx_entry],
        "rejects": rejects,
    }
    write_receipt(task.folder, task.name, receipt)
    return task.name, receipt


def _write(
    file: HashingWriter,
    part: _PartInProgress,
    block: DocumentBlock,
    made: DocumentSequences,
    encoded: EncodedTexts,
    task: PartTask,
) -> None:
    file.write(cast_ids(made.ids, task.dtype, max_id=task.vocabulary.max_id))
    part.lengths.append(made.lengths)
    part.num_sequences.append(made.num_sequences)
    num_silent = int((made.num_sequences == 0).sum())
    part.ledger.update(
        num_documents=len(block.texts),
        num_rejected=len(block.rejects),
        num_dropped_documents=made.num_dropped_documents,
        num_empty_documents=num_silent - len(block.rejects) - made.num_dropped_documents,
        num_sequences=len(made.lengths),
        num_encoded_tokens=len(encoded.ids),
        num_special_tokens_added=made.num_special_tokens,
        num_truncated_tokens=made.num_truncated_tokens,
        num_dropped_tokens=made.num_dropped_tokens,
        num_tokens=len(made.ids),
    )


def _encode(encoder: Encoder, texts: list[str], starts: list[int], source: Source) -> EncodedTexts:
    """Encode a block, and name the document if the tokenizer fails on one."""
    try:
        return encoder(texts)
    except DataError as error:
        for text, start in zip(texts, starts, strict=True):
            try:
                encoder([text])
            except DataError:
                raise located_error(source.path, start, error.message) from error
        raise


def _make_sequences(
    encoded: EncodedTexts, starts: list[int], source: Source, task: PartTask
) -> DocumentSequences:
    try:
        return make_sequences(
            encoded, affixes=task.affixes, max_length=task.max_length, overflow=task.overflow
        )
    except TooLongError as error:
        raise located_error(
            source.path,
            starts[error.document],
            f"{error.length:,} tokens, expected at most {task.max_length:,}",
            hint="pass a larger --max-length, or --overflow split, truncate or drop",
        ) from error


def _special_token_counter(special_tokens: tuple[str, ...]) -> Callable[[list[str]], int]:
    """Build a function that counts the special tokens spelled in texts."""
    tokens = sorted(filter(None, special_tokens), key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, tokens)))

    def count(texts: list[str]) -> int:
        joined = "\0".join(texts)  # NUL is in no special token, so none is made by joining
        if not any(token in joined for token in tokens):
            return 0
        return len(pattern.findall(joined))

    return count


def _describe_range(
    source_range: SourceRange, num_documents: int, digest: hashlib._Hash
) -> dict[str, Any]:
    return {
        "source": source_range.source_index,
        "start": source_range.start,
        "end": source_range.end,
        "num_documents": num_documents,
        "sha256": digest.hexdigest(),
    }


def _join(arrays: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(arrays) if arrays else np.empty(0, np.int64)
