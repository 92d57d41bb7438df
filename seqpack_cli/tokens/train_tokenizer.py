"""Train a tokenizer.json on texts, with `tokenizers`.

Byte-level BPE has every byte in its vocabulary, so no text is unknown to it; the other models have
an unknown token. The input is streamed; memory is taken by the trainer's counts. The same texts and
options give the same file with bpe and wordlevel; the trainers of wordpiece and unigram break ties
differently each time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from seqpack_cli.corpus.checks import check_options_used, find_input
from seqpack_cli.corpus.fields import FieldText
from seqpack_cli.corpus.find_files import list_inputs
from seqpack_cli.corpus.options import TEXT_FORMATS
from seqpack_cli.corpus.parts import check_footers
from seqpack_cli.corpus.records import iter_records
from seqpack_cli.corpus.sources import Source, SourceRange, spool_standard_input
from seqpack_cli.errors import DataError, join_items
from seqpack_cli.files.objects import AnyPath
from seqpack_cli.files.outputs import parse_file, publish_alone
from seqpack_cli.runs.options import takes_options
from seqpack_cli.runs.workers import Progress
from seqpack_cli.tokens.options import UNKNOWN, TrainTokenizerOptions
from seqpack_cli.tokens.tokenizer import TOKENIZER_FILE, catch_failure

if TYPE_CHECKING:
    from tokenizers import Tokenizer

OTHER_OPTIONS = ("--messages-field", "--prompt-field", "--keep")  # which readers may propose
TEXTS_HINT = (
    "train on text: name a field of text with --text-field, or write the texts as lines first"
)


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
    """
    options, progress = options or TrainTokenizerOptions(), progress or Progress()
    output = parse_file(output)
    inputs, files = list_inputs(inputs, options.files), options.files
    with (
        publish_alone(output, TOKENIZER_FILE, overwrite=overwrite) as file,
        spool_standard_input(inputs, output.parent) as spool,
    ):
        file_format, notice = options.file_format, progress.on_notice
        sources, _ = find_input(inputs, files, TEXT_FORMATS, file_format, notice, spool=spool)
        check_options_used(sources, document="line", text_field=options.documents.text_field)
        check_footers(sources)
        progress.on_total(sum(source.num_bytes for source in sources))
        tokenizer, trainer = _make_untrained(options)
        hint = "pass a larger --vocab-size" if options.model == "unigram" else None
        with catch_failure(f"--model {options.model}", hint=hint):
            tokenizer.train_from_iterator(_iter_texts(sources, options, progress), trainer)
        file.write((tokenizer.to_str() + "\n").encode())
    return tokenizer.get_vocab_size()


def _iter_texts(
    sources: Sequence[Source], options: TrainTokenizerOptions, progress: Progress
) -> Iterator[list[str]]:
    has_text = False
    for index, source in enumerate(sources):
        source_range = SourceRange(index, source, 0, source.num_bytes)
        readers = [FieldText(options.documents.text_field)]
        try:
            for block in iter_records(
                source_range, readers, options.documents, lambda it: progress.on_advance(len(it))
            ):
                texts = [text for text in block.lists[0] if text]
                has_text = has_text or bool(texts)
                yield texts
        except DataError as error:
            is_other = any(option in (error.hint or "") for option in OTHER_OPTIONS)
            raise DataError(error.message, TEXTS_HINT if is_other else error.hint) from error
    if not has_text:
        raise DataError(f"{join_items(source.path for source in sources)}: no text to train on")


def _make_untrained(options: TrainTokenizerOptions) -> tuple[Tokenizer, Any]:
    """Return an empty tokenizer and its trainer.

    wordpiece is like BERT's, but keeps case and accents; unigram like SentencePiece's: a word
    begins with a mark for the space before it.
    """
    import tokenizers
    from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

    special_tokens, frequency = options.all_special_tokens, {"min_frequency": options.min_frequency}
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    # Each character has two tokens: alone, and with "##" inside a word.
    most_characters = max(1, (options.vocab_size - len(special_tokens)) // 2)
    recipes: dict[str, tuple[Any, ...]] = {
        "bpe": (
            models.BPE(),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
            decoders.ByteLevel(),
            trainers.BpeTrainer,
            {**frequency, "initial_alphabet": alphabet},
        ),
        "wordpiece": (
            models.WordPiece(unk_token=UNKNOWN),
            pre_tokenizers.BertPreTokenizer(),
            decoders.WordPiece(),
            trainers.WordPieceTrainer,
            {**frequency, "limit_alphabet": most_characters},
        ),
        "unigram": (
            models.Unigram(),
            pre_tokenizers.Metaspace(),
            decoders.Metaspace(),
            trainers.UnigramTrainer,
            {"unk_token": UNKNOWN},
        ),
        "wordlevel": (
            models.WordLevel(unk_token=UNKNOWN),
            pre_tokenizers.Whitespace(),
            None,
            trainers.WordLevelTrainer,
            frequency,
        ),
    }
    model, pre_tokenizer, decoder, trainer, given = recipes[options.model]
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizer
    if decoder is not None:
        tokenizer.decoder = decoder
    if options.model == "wordpiece":
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=False)
    common = {"vocab_size": options.vocab_size, "special_tokens": special_tokens}
    return tokenizer, trainer(**common, **given, show_progress=False)
