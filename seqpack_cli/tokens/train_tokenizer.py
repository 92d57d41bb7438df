"""Train a tokenizer.json on texts, with `tokenizers`.

Byte-level BPE has every byte in its vocabulary, so no text is unknown to it; the other models have
an unknown token. The input is streamed; memory is taken by the trainer's counts. The same texts and
options give the same file with bpe and wordlevel; the trainers of wordpiece and unigram break ties
differently each time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from seqpack_cli.corpus.documents import iter_documents
from seqpack_cli.corpus.file_list import list_inputs
from seqpack_cli.corpus.formats import TEXT_FORMATS
from seqpack_cli.corpus.input_checks import check_options_used, iter_input_notes
from seqpack_cli.corpus.parts import check_footers
from seqpack_cli.corpus.sources import Source, SourceRange, find_sources
from seqpack_cli.corpus.standard_input import spool_standard_input
from seqpack_cli.errors import (
    DataError,
    join_items,
)
from seqpack_cli.files.outputs import parse_file, publish_alone
from seqpack_cli.files.places import AnyPath, Place
from seqpack_cli.runs.options import takes_options
from seqpack_cli.runs.workers import Progress
from seqpack_cli.tokens.options import UNKNOWN, TrainTokenizerOptions
from seqpack_cli.tokens.tokenizers_api import check_can_train
from seqpack_cli.tokens.vocabulary import TOKENIZER_FILE, catch_failure

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@takes_options(options=TrainTokenizerOptions)
def train_tokenizer(
    inputs: AnyPath | Sequence[AnyPath],
    output: AnyPath,
    options: TrainTokenizerOptions | None = None,
    *,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> int:
    """Train a tokenizer on text and write its tokenizer.json.

    Args:
        inputs: one path, URL or glob, or a sequence of them; `-` is standard input. It may be empty
            if the options name a list of files.
        output: the file to write.
        overwrite: replace a tokenizer.json.

    Returns:
        The number of tokens in its vocabulary.

    Raises:
        OptionError: an input does not exist, or vocab_size is too small for the special
            tokens and bytes.
        DataError: a record cannot be read, or the trainer fails.
        FolderError: another file would be replaced.
        MachineError: tokenizers 1.x is installed, which has no trainers.
    """
    options, progress = options or TrainTokenizerOptions(), progress or Progress()
    output = parse_file(output)
    check_can_train()
    names = list_inputs(inputs, options.files)
    with publish_alone(output, TOKENIZER_FILE, overwrite=overwrite) as file:
        tokenizer = _train(names, output.parent, options, progress)
        file.write((tokenizer.to_str() + "\n").encode())
    return tokenizer.get_vocab_size()


def _train(
    inputs: list[str], folder: Place, options: TrainTokenizerOptions, progress: Progress
) -> Tokenizer:
    """Train on the inputs; standard input is spooled into the folder."""
    with spool_standard_input(inputs, folder) as spool:
        sources, skipped = find_sources(
            inputs,
            patterns=options.files,
            spool=spool,
            formats=TEXT_FORMATS.choose(options.file_format),
        )
        for note in iter_input_notes(sources, skipped, file_format=options.file_format):
            progress.on_notice(note)
        check_options_used(sources, document="line", text_field=options.documents.text_field)
        check_footers(sources)
        progress.on_total(sum(source.num_bytes for source in sources))
        tokenizer, trainer = MAKERS[options.model](options)
        hint = "pass a larger --vocab-size" if options.model == "unigram" else None
        with catch_failure(f"--model {options.model}", hint):
            tokenizer.train_from_iterator(_iter_texts(sources, options, progress), trainer)
    return tokenizer


def _iter_texts(
    sources: Sequence[Source], options: TrainTokenizerOptions, progress: Progress
) -> Iterator[list[str]]:
    has_text = False
    for index, source in enumerate(sources):
        source_range = SourceRange(index, source, 0, source.num_bytes)
        for block in iter_documents(
            source_range, options.documents, lambda read: progress.on_advance(len(read))
        ):
            texts = [text for text in block.texts if text]
            has_text = has_text or bool(texts)
            yield texts
    if not has_text:
        raise DataError(f"{join_items(source.path for source in sources)}: no text to train on")


def _make_bpe(options: TrainTokenizerOptions) -> tuple[Tokenizer, Any]:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        **_name_limits(options),
        min_frequency=options.min_frequency,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    return tokenizer, trainer


def _make_wordpiece(options: TrainTokenizerOptions) -> tuple[Tokenizer, Any]:
    """Like BERT's, but keeps case and accents."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.WordPiece(unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    room = options.vocab_size - len(options.all_special_tokens)
    trainer = trainers.WordPieceTrainer(
        **_name_limits(options),
        min_frequency=options.min_frequency,
        limit_alphabet=max(
            1, room // 2
        ),  # each character has two tokens: alone, and with "##" inside a word
    )
    return tokenizer, trainer


def _make_unigram(options: TrainTokenizerOptions) -> tuple[Tokenizer, Any]:
    """Like SentencePiece's: a word begins with a mark for the space before it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer, trainers.UnigramTrainer(**_name_limits(options), unk_token=UNKNOWN)


def _make_wordlevel(options: TrainTokenizerOptions) -> tuple[Tokenizer, Any]:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.WordLevel(unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    limits = _name_limits(options)
    return tokenizer, trainers.WordLevelTrainer(**limits, min_frequency=options.min_frequency)


def _name_limits(options: TrainTokenizerOptions) -> dict[str, Any]:
    """Return the arguments that every trainer takes."""
    return {
        "vocab_size": options.vocab_size,
        "special_tokens": options.all_special_tokens,
        "show_progress": False,
    }


MAKERS = {
    "bpe": _make_bpe,
    "wordpiece": _make_wordpiece,
    "unigram": _make_unigram,
    "wordlevel": _make_wordlevel,
}
