"""A caller of the library who passes nonsense gets a ValueError, at once."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from command import run

from seqpack_cli import Executor, PackOptions, TokenizeOptions, TrainTokenizerOptions
from seqpack_cli.cli.options import KINDS
from seqpack_cli.corpus.options import DocumentOptions
from seqpack_cli.errors import MAX_COUNT, MAX_SEED, MAX_SIZE, OptionError
from seqpack_cli.verification.options import VerifyOptions


@pytest.mark.parametrize(
    ("options", "values", "said"),
    [
        (TokenizeOptions, {"overflow": "trunkate"}, "overflow is 'trunkate', expected 'split' or"),
        (TokenizeOptions, {"document": "sentence"}, "document is 'sentence', expected 'line' or"),
        (
            TokenizeOptions,
            {"file_format": "xml"},
            "file_format is 'xml', expected 'auto' or 'text'",
        ),
        (TokenizeOptions, {"max_length": 0}, "max_length is 0, expected at least 1"),
        (TokenizeOptions, {"part_bytes": -1}, "part_bytes is -1, expected at least 1"),
        (DocumentOptions, {"encoding_errors": "ignore"}, "encoding_errors is 'ignore'"),
        (DocumentOptions, {"on_bad_record": "log"}, "on_bad_record is 'log'"),
        (DocumentOptions, {"max_document_bytes": 0}, "max_document_bytes is 0"),
        (PackOptions, {"layout": "jagged"}, "layout is 'jagged', expected 'packed' or 'padded' or"),
        (PackOptions, {"last_batch": "fill"}, "last_batch is 'fill', expected 'keep' or 'drop' or"),
        (PackOptions, {"order": "random"}, "order is 'random', expected 'length' or 'none'"),
        (PackOptions, {"fill": "first-fit"}, "fill is 'first-fit', expected None or"),
        (PackOptions, {"overflow": "cut"}, "overflow is 'cut', expected None or 'error' or"),
        (PackOptions, {"padding_side": "top"}, "padding_side is 'top', expected 'right' or 'left'"),
        (TokenizeOptions, {"max_length": 10**30}, f"expected at most {MAX_COUNT}"),
        (TokenizeOptions, {"part_bytes": 2**50 + 1}, f"expected at most {MAX_SIZE}"),
        (DocumentOptions, {"max_document_bytes": 10**30}, f"expected at most {MAX_SIZE}"),
        (TrainTokenizerOptions, {"vocab_size": 10**30}, f"expected at most {MAX_COUNT}"),
        (PackOptions, {"seed": 2**64}, f"expected at most {MAX_SEED}"),
        (VerifyOptions, {"seed": 2**64}, f"expected at most {MAX_SEED}"),
        (PackOptions, {"batch_size": 0}, "batch_size is 0, expected at least 1"),
        (PackOptions, {"window": 0}, "window is 0, expected at least 1"),
        (PackOptions, {"num_buckets": 0}, "num_buckets is 0, expected at least 1"),
        (PackOptions, {"pad_to_multiple": 0}, "pad_to_multiple is 0, expected at least 1"),
        (PackOptions, {"seed": -1}, "seed is -1, expected at least 0"),
        (PackOptions, {"buckets": "many"}, "buckets is 'many', expected 'auto' or lengths"),
        (PackOptions, {"buckets": ()}, "buckets is (), expected 'auto' or lengths"),
        (PackOptions, {"buckets": (8, 0)}, "buckets is (8, 0), expected 'auto' or lengths"),
        (VerifyOptions, {"level": "all"}, "level is 'all', expected None or 'structure' or"),
        (VerifyOptions, {"cell": "LSTM"}, "cell is 'LSTM', expected 'lstm' or 'gru' or 'rnn'"),
        (VerifyOptions, {"dtype": "float8"}, "dtype is 'float8'"),
        (VerifyOptions, {"sample": 0}, "sample is 0, expected at least 1"),
    ],
)
def test_options_refuse_what_no_run_can_follow(
    options: Callable[..., object], values: dict[str, object], said: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        options(**values)


@pytest.mark.parametrize(
    ("options", "values", "said"),
    [
        (
            TrainTokenizerOptions,
            {"special_tokens": [""]},
            "--special-token '': expected at least one character",
        ),
        (
            TrainTokenizerOptions,
            {"special_tokens": ["a\ud800"]},
            "--special-token 'a\\ud800': expected valid UTF-8",
        ),
        (Executor, {"ray_address": "auto"}, "--ray-address needs --executor ray"),
    ],
)
def test_options_that_mean_nothing_are_refused(
    options: Callable[..., object], values: dict[str, object], said: str
) -> None:
    with pytest.raises(OptionError) as caught:
        options(**values)
    assert caught.value.message == said


@pytest.mark.parametrize(
    ("text", "buckets"),
    [
        ("auto", "auto"),
        ("32", (32,)),
        ("32,64", (32, 64)),
        ("64, 32,64", (64, 32, 64)),  # put in order by PackOptions
        (str(MAX_COUNT), (MAX_COUNT,)),
        ("(10,15)", ((10, 15),)),
        ("(20, 25), (10,15)", ((20, 25), (10, 15))),
    ],
)
def test_buckets_are_auto_or_lengths(text: str, buckets: str | tuple[int, ...]) -> None:
    assert KINDS["buckets"].convert(text, None, None) == buckets


@pytest.mark.parametrize(
    "text",
    [
        "nonsense",
        "",
        " ",
        "32,",
        ",32",
        "32 64",
        "0",
        "-1",
        "+1",
        "1e3",
        "²",
        "Auto",
        "(1,2",
        "(1,2,3)",
    ],
)
def test_buckets_that_are_no_lengths_are_refused(text: str) -> None:
    with pytest.raises(click.BadParameter) as caught:
        KINDS["buckets"].convert(text, None, None)
    assert caught.value.message == (
        f"{text!r}, expected auto, lengths like 32,64,128, or for pairs (10,15),(20,25)"
    )


@pytest.mark.parametrize("text", [str(MAX_COUNT + 1), "9" * 5000])
def test_bucket_that_no_sequence_can_fill_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        KINDS["buckets"].convert(text, None, None)


def test_pack_options_put_bucket_keys_in_order_once() -> None:
    assert PackOptions(buckets=(64, 32, 64)).buckets == (32, 64)


@pytest.mark.parametrize(
    ("options", "chosen"),
    [
        ({}, {"batch_size": 64, "shuffle": False}),
        ({"max_tokens": 9}, {"batch_size": None, "shuffle": False}),
        ({"max_tokens": 9, "batch_size": 2}, {"batch_size": 2}),
        ({"buckets": "auto"}, {"num_buckets": 8, "batch_size": 64}),
        ({"buckets": (8,)}, {"num_buckets": None, "overflow": None}),
        (
            {"layout": "varlen", "max_tokens": 9},
            {"fill": "best-fit", "shuffle": True, "overflow": "split"},
        ),
        (
            {"layout": "varlen", "max_tokens": 9, "fill": "sequential"},
            {"fill": "sequential", "order": "none", "shuffle": False},
        ),
        ({"layout": "varlen", "max_tokens": 9, "shuffle": False}, {"seed": 0}),
        ({"layout": "varlen", "max_tokens": 9, "overflow": "drop"}, {"overflow": "drop"}),
    ],
)
def test_pack_options_choose_what_was_left_open(
    options: dict[str, Any], chosen: dict[str, object]
) -> None:
    resolved = PackOptions(**options).resolve()
    assert {name: getattr(resolved, name) for name in chosen} == chosen
    assert resolved.resolve() == resolved


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tokenize", "a.txt", "-o", ""), "the name is empty"),
        (("pack", "", "-o", "x"), "the name is empty"),
        (("inspect", ""), "the name is empty"),
        (("verify", "x", "--tokens", ""), "the name is empty"),
        (("tokenize", "a.txt", "-o", "-"), "stdout is not supported here"),
        (("pack", "x", "-o", "-"), "stdout is not supported here"),
        (("train-tokenizer", "a.txt", "-o", "-"), "stdout is not supported here"),
        (("train-tokenizer", "a.txt", "-o", "new/"), "new/: names a folder, expected a file"),
        (("unpack", "x", "-o", "new/"), "new/: names a folder, expected a file"),
    ],
)
def test_names_that_can_not_be_meant_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("a\n")
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
