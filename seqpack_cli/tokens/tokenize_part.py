"""Make one part of a tokenize run: read its records, write its files and receipt.

About 1 MiB of text is encoded at a time, and its ids are written at once, so memory is bounded by a
block and its encoding. The worker itself publishes the files and the receipt of the part.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from blake3 import blake3

from seqpack_cli.corpus.fields import FieldText, Reader
from seqpack_cli.corpus.records import RecordBlock, iter_records, read_block_file
from seqpack_cli.corpus.streams import check_unchanged
from seqpack_cli.errors import DataError
from seqpack_cli.files.ahead import map_ahead
from seqpack_cli.runs.workers import advance
from seqpack_cli.tokens.columns.part_collector import PartCollector, hash_texts
from seqpack_cli.tokens.columns.part_columns import columns_name
from seqpack_cli.tokens.encode_batch import list_spelled, open_batch_encoder
from seqpack_cli.tokens.encoders.agreement import (
    check_agreement,
    open_checked_encoder,
    take_head,
)
from seqpack_cli.tokens.encoders.encoded_texts import EncodedTexts, Encoder
from seqpack_cli.tokens.indexed_dataset import cast_ids
from seqpack_cli.tokens.part_setup import PartSetup, PartTask
from seqpack_cli.tokens.part_writer import MadeDocuments, PartWriter
from seqpack_cli.tokens.sequences import (
    DocumentSequences,
    TokenColumn,
    TooLongError,
    make_sequences,
)
from seqpack_cli.tokens.spelled_tokens import SpecialTokenCounts
from seqpack_cli.tokens.text_batches import TextBatch, gather

_opening = threading.Lock()  # threads that make parts share one encoder


def tokenize_part(setup: PartSetup, task: PartTask) -> tuple[str, dict[str, Any]]:
    """Make one part and publish it; return its name and receipt.

    Raises:
        DataError: a record cannot be read or encoded, or is too long.
        MachineError: the disk failed.
        EncoderRefusedError, EncodersDifferError: this encoder cannot be used.
    """
    path, subtokens = setup.folder / columns_name(task.name), setup.options.tag_subtokens
    special_tokens = SpecialTokenCounts(setup.special_tokens)
    with PartCollector(setup.kept, path, subtokens=subtokens or "first") as columns:
        part = PartWriter(setup.folder, task.name, setup.dtype, columns)
        receipt = part.write(
            _iter_made(part, columns, special_tokens, setup, task),
            lambda: {"special_tokens": special_tokens.describe(), "encoder": setup.encoder},
        )
    return task.name, receipt


def _iter_made(
    part: PartWriter,
    columns: PartCollector,
    special_tokens: SpecialTokenCounts,
    setup: PartSetup,
    task: PartTask,
) -> Iterator[MadeDocuments]:
    """Read and encode the documents of a part."""
    with _opening:
        encoder, reference = open_checked_encoder(
            setup.encoder,
            setup.tokenizer_json,
            allow_special_tokens=setup.options.encodes_special_tokens,
            num_threads=setup.num_threads,
            added_tokens=setup.vocabulary.added_tokens,
        )
    batches = gather(_iter_blocks(setup, task, part, columns.readers))
    if reference is not None:
        batches = _check_head(batches, task, encoder, reference)
    encode = open_batch_encoder(setup, encoder, needs_offsets=columns.needs_offsets).encode
    for found in map_ahead(encode, batches, num_threads=setup.num_threads):
        batch, encoded, *_ = found
        num_spelled = special_tokens.add(
            list_spelled(batch, setup), first_document=part.ledger["num_documents"]
        )
        made = _make_sequences(encoded, batch, setup, columns.assign(found))
        yield MadeDocuments(
            made,
            cast_ids(made.ids, setup.dtype, max_id=setup.vocabulary.max_id),
            hash_texts(batch.iter_hashed(has_targets=setup.text is not None)),
            batch.fields,
            batch.num_rejected,
            len(encoded.ids),
            {"num_special_tokens_in_text": num_spelled},
        )


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
    setup: PartSetup, task: PartTask, part: PartWriter, readers: Sequence[Reader]
) -> Iterator[RecordBlock]:
    """Read and hash the ranges one after another; tell the part of each."""
    options = setup.options.documents
    words = any(field.values == "words" for reader in readers for field in reader.fields)
    readers = [setup.text or FieldText(options.text_field, takes_words=words), *readers]
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
