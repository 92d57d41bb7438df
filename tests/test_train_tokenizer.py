"""train_tokenizer trains what `tokenizers` does on the same texts, and refuses what cannot be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from command import run
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from seqpack_cli import (
    DataError,
    DocumentOptions,
    FolderError,
    OptionError,
    TrainTokenizerOptions,
    train_tokenizer,
)

Given = dict[str, Any]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a new folder the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


UNKNOWN = "<unk>"
TRAINED = ["to be or not to be, that is the question", "Übermut tut selten gut", "", "🛶 to be"]


def make_trained(model: str, options: TrainTokenizerOptions) -> tokenizers.Tokenizer:
    """Train with `tokenizers` alone."""
    own = ["<pad>", "<bos>", "<eos>"] + [UNKNOWN] * (model != "bpe")
    special = [*own, *(x for x in options.special_tokens if x not in own)]
    given: Given = {"vocab_size": options.vocab_size, "special_tokens": special}
    given |= {"show_progress": False, "min_frequency": options.min_frequency}
    if model == "unigram":
        trained, trainer = tokenizers.Tokenizer(models.Unigram()), trainers.UnigramTrainer
        trained.pre_tokenizer, trained.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
        del given["min_frequency"]
        given["unk_token"] = UNKNOWN
    elif model == "bpe":
        trained, trainer = tokenizers.Tokenizer(models.BPE()), trainers.BpeTrainer
        trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trained.decoder = decoders.ByteLevel()
        given["initial_alphabet"] = sorted(pre_tokenizers.ByteLevel.alphabet())
    elif model == "wordlevel":
        trained = tokenizers.Tokenizer(models.WordLevel(unk_token=UNKNOWN))
        trained.pre_tokenizer, trainer = pre_tokenizers.Whitespace(), trainers.WordLevelTrainer
    else:
        trained = tokenizers.Tokenizer(models.WordPiece(unk_token=UNKNOWN))
        trained.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=False)
        trained.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trained.decoder, trainer = decoders.WordPiece(), trainers.WordPieceTrainer
        given["limit_alphabet"] = (options.vocab_size - len(special)) // 2
    trained.train_from_iterator([text for text in TRAINED * 9 if text], trainer(**given))
    return trained


@pytest.mark.parametrize("special", [(), ("<sep>", "<eos>")])
@pytest.mark.parametrize("model", ["bpe", "wordlevel", "wordpiece", "unigram"])
def test_trained_tokenizer_is_that_of_tokenizers(
    place: Path, model: str, special: tuple[str, ...]
) -> None:
    Path("a.txt").write_text("\n".join(TRAINED * 5))
    lines = [json.dumps({"text": text}) for text in TRAINED * 4]
    Path("b.jsonl").write_text("\n".join(lines))
    size = 290 if model == "bpe" else 46
    options = TrainTokenizerOptions(model, size, min_frequency=3, special_tokens=special)
    count = train_tokenizer(["a.txt", "b.jsonl"], "t.json", options)
    found = json.loads(Path("t.json").read_bytes())
    trained = make_trained(model, options)
    expected = json.loads(trained.to_str())
    if model in ("wordpiece", "unigram"):  # whose trainers break ties in a new way each time
        assert abs(count - trained.get_vocab_size()) < 9
        for each in (found, expected):
            del each["model"]["vocab"]
    else:
        assert count == trained.get_vocab_size()
    assert found == expected


def test_sample_tokenizer_is_what_its_command_makes(
    place: Path, sample_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The README has the command."""
    monkeypatch.chdir(sample_data.parent)
    result = run("train-tokenizer", "sample_data", "--vocab-size", 2000, "-o", place / "t.json")
    assert result.exit_code == 0, result.stderr
    assert (place / "t.json").read_bytes() == (sample_data / "tokenizer.json").read_bytes()


@pytest.mark.parametrize(
    ("data", "given", "fragment"),
    [
        ("\n\n", {}, "no text to train on"),
        ("ab", {"vocab_size": 258}, "expected at least 259"),
        ("ab", {"vocab_size": 4, "model": "wordlevel"}, "expected at least 5"),
        (
            "abcdefghijklmnopqrstuvwxyz\n",
            {"vocab_size": 20, "model": "unigram"},
            "not large enough",
        ),
        ("ab", {"special_tokens": [""]}, "at least one character"),
        (
            "ab",
            {"special_tokens": ["<a>", "\ud800"]},
            r"--special-token '\ud800': expected",
        ),
        ("ab", {"documents": DocumentOptions(text_field="x")}, "--text-field"),
    ],
)
def test_training_refuses(place: Path, data: str, given: Given, fragment: str) -> None:
    Path("a.txt").write_text(data)
    with pytest.raises((OptionError, DataError)) as caught:
        train_tokenizer("a.txt", "t.json", TrainTokenizerOptions(**given))
    assert fragment in caught.value.message
    assert not Path("t.json").exists()
    Path("t.json").write_text("mine")
    with pytest.raises(FolderError):
        train_tokenizer("a.txt", "t.json", TrainTokenizerOptions(), overwrite=True)
    assert Path("t.json").read_text() == "mine"


@pytest.mark.parametrize(
    ("line", "option", "value"),
    [
        (b'{"text": "\xff"}', "--encoding-errors", "replace"),
        (b'{"text": 7}', "--on-bad-record", "skip"),
        (b'{"text": "%s"}' % (b"x" * 2000), "--max-document-bytes", "3KB"),
    ],
)
def test_training_takes_the_option_that_its_hint_names(
    place: Path, line: bytes, option: str, value: str
) -> None:
    Path("a.jsonl").write_bytes(b'{"text": "to be or not to be"}\n' * 20 + line + b"\n")
    options = {"--max-document-bytes": "1000", "--vocab-size": "270", "-o": "t.json"}
    result = run("train-tokenizer", "a.jsonl", *sum(options.items(), ()))
    assert result.exit_code == 3
    assert option in result.stderr.partition("hint: ")[2]
    options[option] = value
    result = run("train-tokenizer", "a.jsonl", *sum(options.items(), ()), "--json")
    vocab_size = len(json.loads(Path("t.json").read_bytes())["model"]["vocab"])
    assert json.loads(result.stdout) == {"vocab_size": vocab_size, "file": "t.json"}


def test_training_reads_the_files_that_are_chosen(place: Path) -> None:
    for name in ("a", "b", "c"):
        Path("data", name).mkdir(parents=True)
        Path("data", name, "x.txt").write_text(f"{name * 3} {name * 3}\n")
    Path("list").write_text("data\n")
    files = ("--files-from", "list", "--exclude", "c", "-o", "words.json")
    assert run("train-tokenizer", "--model", "wordlevel", *files).exit_code == 0
    vocabulary = json.loads(Path("words.json").read_text())["model"]["vocab"]
    assert list(vocabulary) == ["<pad>", "<bos>", "<eos>", "<unk>", "aaa", "bbb"]
