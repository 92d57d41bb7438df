"""Make one part of a tokenize run: read its records, write its files and receipt.

About 1 MiB of text is encoded at a time, and its ids are written at once, so memory is bounded by a
block and its encoding. The worker itself publishes the files and the receipt of the part.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from blake3 import blake3

from seqpack_cli.corpus.blocks import check_unchanged
from seqpack_cli.corpus.document_block import DocumentBlock
from seqpack_cli.corpus.documents import iter_documents
from seqpack_cli.corpus.kept_fields import FieldReader
from seqpack_cli.errors import DataError
from seqpack_cli.files.ahead import map_ahead
from seqpack_cli.files.places import at
from seqpack_cli.runs.progress import advance
from seqpack_cli.runs.run_folder import write_receipt
from seqpack_cli.tokens.columns.part_collector import PartCollector
from seqpack_cli.tokens.columns.part_columns import columns_name
from seqpack_cli.tokens.encode_batch import list_spelled, open_batch_encoder
from seqpack_cli.tokens.encoders.agreement import (
    check_agreement,
    open_checked_encoder,
    take_head,
)
from seqpack_cli.tokens.encoders.encoded_texts import EncodedTexts, Encoder
from seqpack_cli.tokens.indexed_dataset import cast_ids, write_index
from seqpack_cli.tokens.part_setup import PartSetup, PartTask
from seqpack_cli.tokens.sequences import (
    DocumentSequences,
    TokenColumn,
    TooLongError,
    make_sequences,
)
from seqpack_cli.tokens.spelled_tokens import SpecialTokenCounts
from seqpack_cli.tokens.store_manifest import LEDGER_NAMES
from seqpack_cli.tokens.text_batches import TextBatch, gather


@dataclass
class _Counts:
    """The counts of one part so far."""

    ledger: Counter[str] = field(default_factory=Counter)
    lengths: list[np.ndarray] = field(default_factory=list)
    num_sequences: list[np.ndarray] = field(default_factory=list)
    ranges: list[dict[str, Any]] = field(default_factory=list)
    rejects: list[list[Any]] = field(default_factory=list)
    special_tokens: dict[str, Any] = field(default_factory=dict)


def tokenize_part(setup: PartSetup, task: PartTask) -> tuple[str, dict[str, Any]]:
    """Make one part and publish it; return its name and receipt.

    Raises:
        DataError: a record cannot be read or encoded, or is too long.
        MachineError: the disk failed.
        EncoderRefusedError, EncodersDifferError: this encoder cannot be used.
    """
    encoder, reference = open_checked_encoder(
        setup.encoder,
        setup.tokenizer_json,
        allow_special_tokens=setup.options.encodes_special_tokens,
        num_threads=setup.num_threads,
        added_tokens=setup.vocabulary.added_tokens,
    )
    path, subtokens = setup.folder / columns_name(task.name), setup.options.tag_subtokens
    with PartCollector(setup.kept, path, subtokens=subtokens or "first") as columns:
        receipt = _make_files(setup, task, encoder, reference, columns)
    write_receipt(setup.folder, task.name, receipt)
    return task.name, receipt


def _make_files(
    setup: PartSetup,
    task: PartTask,
    encoder: Encoder,
    reference: Encoder | None,
    columns: PartCollector,
) -> dict[str, Any]:
    """Write the files of a part; return its receipt."""
    counts = _Counts()
    bin_path, idx_path = (setup.folder / f"{task.name}.{suffix}" for suffix in ("bin", "idx"))
    with at(bin_path).publish() as bin_file:
        for ids in _iter_ids(counts, columns, setup, task, encoder, reference):
            bin_file.write(ids)
        bin_entry = {"name": bin_path.name, **bin_file.describe()}
    with at(idx_path).publish() as idx_file:
        lengths, num_sequences = _join(counts.lengths), _join(counts.num_sequences)
        write_index(idx_file, lengths=lengths, num_sequences=num_sequences, dtype=setup.dtype)
        idx_entry = {"name": idx_path.name, **idx_file.describe()}
    columns_entry, class_names = columns.write()
    return {
        "ledger": {name: counts.ledger[name] for name in LEDGER_NAMES},
        "ranges": counts.ranges,
        "files": [bin_entry, idx_entry, columns_entry],
        "class_names": class_names,
        "rejects": counts.rejects,
        "special_tokens": counts.special_tokens,
        "encoder": setup.encoder,
    }


def _iter_ids(
    counts: _Counts,
    columns: PartCollector,
    setup: PartSetup,
    task: PartTask,
    encoder: Encoder,
    reference: Encoder | None,
) -> Iterator[np.ndarray]:
    """Yield the ids of a part, and add what stands beside them to the counts and columns."""
    special_tokens = SpecialTokenCounts(setup.special_tokens)
    batches = gather(_iter_blocks(setup, task, counts, columns.readers))
    if reference is not None:
        batches = _check_head(batches, task, encoder, reference)

    encode = open_batch_encoder(setup, encoder, needs_offsets=columns.needs_offsets).encode
    for found in map_ahead(encode, batches, num_threads=setup.num_threads):
        batch, encoded, *_ = found
        counts.ledger["num_special_tokens_in_text"] += special_tokens.add(
            list_spelled(batch, setup), first_document=counts.ledger["num_documents"]
        )
        made = _make_sequences(encoded, batch, setup, columns.assign(found))
        yield cast_ids(made.ids, setup.dtype, max_id=setup.vocabulary.max_id)
        columns.add(batch, made)
        counts.lengths.append(_narrow(made.lengths))
        counts.num_sequences.append(_narrow(made.num_sequences))
        _count(counts.ledger, batch, encoded, made)
        advance(0, len(made.ids))
    counts.special_tokens = special_tokens.describe()
    counts.ledger["num_target_tokens"] = counts.ledger["num_tokens"]  # if no column says it
    for name, count in columns.counts.items():
        counts.ledger[name] = count


def _check_head(
    batches: Iterator[TextBatch], task: PartTask, encoder: Encoder, reference: Encoder
) -> Iterator[TextBatch]:
    """Compare both encoders on the first texts of the part, then yield all batches."""
    for batch in batches:
        head = take_head(batch.texts, task.num_bytes)
        check_agreement(encoder, reference, head, functools.partial(batch.find_place, 0))
        yield batch
        break
    yield from batches


def _iter_blocks(
    setup: PartSetup, task: PartTask, counts: _Counts, readers: Sequence[FieldReader]
) -> Iterator[DocumentBlock]:
    """Read and hash the ranges one after another; add an entry for each to the counts."""
    for source_range in task.ranges:
        digest = blake3()

        def on_read(block: bytes, digest: Any = digest) -> None:
            digest.update(block)
            advance(len(block))

        num_documents = 0
        blocks = iter_documents(source_range, setup.options.documents, on_read, readers, setup.text)
        for block in blocks:
            yield block
            num_documents += len(block.texts)
            for reject in block.rejects:
                counts.rejects.append([source_range.source_index, *reject])
        check_unchanged(source_range.source)
        counts.ranges.append(
            {
                "source": source_range.source_index,
                "start": source_range.start,
                "end": source_range.end,
                "num_documents": num_documents,
                "blake3": digest.hexdigest(),
            }
        )


def _count(
    ledger: Counter[str], batch: TextBatch, encoded: EncodedTexts, made: DocumentSequences
) -> None:
    num_silent = int((made.num_sequences == 0).sum())
    ledger.update(
        num_documents=len(batch.texts),
        num_rejected=batch.num_rejected,
        num_dropped_documents=made.num_dropped_documents,
        num_empty_documents=num_silent - batch.num_rejected - made.num_dropped_documents,
        num_sequences=len(made.lengths),
        num_encoded_tokens=len(encoded.ids),
        num_special_tokens_added=made.num_special_tokens,
        num_truncated_tokens=made.num_truncated_tokens,
        num_dropped_tokens=made.num_dropped_tokens,
        num_overlap_tokens=int(made.overlaps.sum()),
        num_tokens=len(made.ids),
    )


def _make_sequences(
    encoded: EncodedTexts,
    batch: TextBatch,
    setup: PartSetup,
    columns: Mapping[str, TokenColumn],
) -> DocumentSequences:
    max_length = setup.options.max_length
    try:
        return make_sequences(
            encoded,
            affixes=setup.affixes,
            max_length=max_length,
            overflow=setup.options.overflow,
            overlap=setup.options.overlap or 0,
            columns=columns,
        )
    except TooLongError as error:
        raise DataError(
            f"{batch.find_place(error.document)}: {error.length:,} tokens, "
            f"expected at most {max_length:,}",
            hint="pass a larger --max-length, or --overflow split, truncate or drop",
        ) from error


def _narrow(counts: np.ndarray) -> np.ndarray:
    """Cast counts to the smallest dtype that holds them: a part may have 30 million documents."""
    return counts.astype(np.min_scalar_type(int(counts.max(initial=0))))


def _join(arrays: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(arrays) if arrays else np.empty(0, np.int64)
