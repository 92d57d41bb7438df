"""Texts -> a byte-level BPE tokenizer.json, trained by `tokenizers`.

All bytes are in the vocabulary, so no text is unknown. The same texts and options give the same
file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

from seqpack_cli.corpus.documents import DocumentOptions, iter_documents
from seqpack_cli.corpus.sources import SourceRange, find_sources
from seqpack_cli.execution import Progress
from seqpack_cli.tokens.byte_tokenizer import SPECIAL_TOKENS


def train_tokenizer(
    inputs: Sequence[str],
    *,
    vocab_size: int,
    min_frequency: int,
    documents: DocumentOptions,
    progress: Progress,
) -> tuple[bytes, int]:
    """Train on files, folders and globs; give the tokenizer.json and its number of tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    sources, _ = find_sources(inputs)
    progress.on_total(sum(source.num_bytes for source in sources))

    def iter_texts() -> Iterator[list[str]]:
        for index, source in enumerate(sources):
            source_range = SourceRange(index, source, 0, source.num_bytes)
            position = 0
            for block in iter_documents(source_range, documents, hashlib.sha256()):
                yield [text for text in block.texts if text]
                progress.on_advance(block.end - position)
                position = block.end

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(iter_texts(), trainer)
    return (tokenizer.to_str() + "\n").encode(), tokenizer.get_vocab_size()
