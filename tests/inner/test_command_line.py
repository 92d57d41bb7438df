"""The command line in `run.json`: typed again, it makes the same bytes."""

from __future__ import annotations

import json
import shlex
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import pytest
from command import run
from reference import read_folder

from seqpack_cli import (
    DocumentOptions,
    FileOptions,
    PackOptions,
    TargetOptions,
    TokenizeOptions,
    pack,
    tokenize,
)
from seqpack_cli.cli import pack_command, tokenize_command
from seqpack_cli.files.places import parse_place
from seqpack_cli.runs.command_line import spell_command

TOKENIZE_OPTIONS = TokenizeOptions(
    tokenizer="my tokenizer.json",
    file_format="jsonl",
    document="file",
    documents=DocumentOptions("body", "replace", "skip", 1000),
    files=FileOptions(["*.txt", "-x"], ["it's/**"], "my list"),
    add_special_tokens=False,
    bos="<s>",
    eos="it's",
    allow_special_tokens=True,
    max_length=7,
    overflow="drop",
    part_bytes=99,
    encoder="tokenizers",
)
OPTIONS_OF_TARGETS = (
    TargetOptions("a b", "-c"),
    TargetOptions(
        messages_field="-m",
        tools_field="t",
        chat_template=parse_place("my chat.jinja"),
        target_turns="last",
        template_date="2026-11-23",
    ),
)
PACK_OPTIONS = (
    PackOptions("padded", batch_size=3, window=9, shuffle=True, seed=5, pad_id=2, shard_bytes=99),
    PackOptions("padded", max_tokens=99, buckets=(8, 16), overflow="drop", last_batch="pad"),
    PackOptions("padded", buckets="auto", num_buckets=3, pad_to_multiple=8, padding_side="left"),
    PackOptions(max_tokens=99, count="sum", buckets=[(20, 25), (10, 15)]),
    PackOptions("padded", order="none", drop_shorter=2, drop_longer=9),
    PackOptions("varlen", max_tokens=99, fill="sequential", shuffle=False),
    PackOptions("varlen", batch_size=4, max_tokens=96, align_sequences=8, last_batch="pad"),
    PackOptions("streams", batch_size=4, max_tokens=96),
    PackOptions(where=("a,b = 'it''s'", "-x != -1", "a,b = 'it''s'")),
    PackOptions(split="train=0.9,test=rest", split_seed=5, drop_column=("-x", "it's")),
    PackOptions(split="a,b", split_by="-my split", passes="my a=2.5,-b=.5", store_column="src"),
    PackOptions(share="a=0.7,b=rest", max_passes="2", keep_without_target=True),
    PackOptions(),
)


def parse(command: click.Command, line: str | None) -> dict[str, Any]:
    assert line is not None
    program, name, *words = shlex.split(line)
    assert (program, name) == ("seqpack", command.name)
    return command.make_context(name, words).params


@pytest.mark.parametrize(
    "options",
    [
        TOKENIZE_OPTIONS,
        *(TokenizeOptions(targets=each, max_length=9, overlap=3) for each in OPTIONS_OF_TARGETS),
    ],
)
def test_every_option_of_tokenize_is_spelled(options: TokenizeOptions) -> None:
    line = spell_command("tokenize", ["a b.txt", "-"], "out", options)
    found = parse(tokenize_command.command, line)
    assert (found["inputs"], str(found["output"])) == (("a b.txt", "-"), "out")
    expected = {
        **vars(options),
        **vars(options.documents),
        **vars(options.files),
        **vars(options.targets),
    }
    del expected["documents"], expected["files"], expected["targets"]
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize("options", PACK_OPTIONS)
def test_every_option_of_pack_is_spelled(options: PackOptions) -> None:
    found = parse(pack_command.command, spell_command("pack", ["tokens"], "out", options))
    expected = {name: value for name, value in vars(options).items() if name != "split_name"}
    assert {name: found[name] for name in expected} == expected


def test_no_option_of_pack_is_forgotten_here() -> None:
    for name, field in PackOptions.__dataclass_fields__.items():
        if name == "split_name":  # only the library has it
            continue
        assert any(getattr(options, name) != field.default for options in PACK_OPTIONS), name


def test_names_and_tokens_that_look_like_urls_with_passwords_are_spelled() -> None:
    options = TokenizeOptions(bos="http://me:pass@host", eos="-x")
    line = spell_command("tokenize", ["d:/me@h.txt", "a:/b@c?token=7"], "x:/y@z", options)
    assert line == (
        "seqpack tokenize d:/me@h.txt 'a:/b@c?token=7' -o x:/y@z --bos http://me:pass@host --eos -x"
    )


@pytest.mark.parametrize("inputs", [("-q b.txt",), ("a.txt", "--", "-"), ("--max-length",)])
def test_inputs_that_look_like_options_are_inputs(inputs: tuple[str, ...]) -> None:
    line = spell_command("tokenize", inputs, "-", TOKENIZE_OPTIONS)
    found = parse(tokenize_command.command, line)
    assert (found["inputs"], str(found["output"])) == (inputs, "-")
    assert found["max_length"] == TOKENIZE_OPTIONS.max_length
    found = parse(pack_command.command, spell_command("pack", ["-q"], "-o", PackOptions()))
    assert (str(*found["stores"]), str(found["output"])) == ("-q", "-o")


@pytest.mark.parametrize("name", ["a\nb", "a\x1b[2J", "a\udcff", "a\u202eb"])
def test_a_name_that_cannot_be_typed_has_no_command(name: str) -> None:
    assert spell_command("tokenize", [name], "out", TokenizeOptions()) is None
    assert spell_command("tokenize", ["a"], name, TokenizeOptions()) is None
    assert spell_command("tokenize", ["a"], "out", TokenizeOptions(bos=name)) is None


def test_run_json_says_how_to_make_the_folder_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a b.txt").write_text("one\ntwo\nthree\n")
    tokenize("a b.txt", "tokens", TokenizeOptions(max_length=4))
    pack("tokens", "shards", PackOptions("padded", batch_size=2, last_batch="pad"))
    for folder, expected in (
        ("shards", "seqpack pack tokens -o shards --layout padded --batch-size 2 --last-batch pad"),
        ("tokens", "seqpack tokenize 'a b.txt' -o tokens --max-length 4"),
    ):
        done = json.loads(Path(folder, "run.json").read_text())
        assert done["command"] == expected
        age = datetime.now(UTC) - datetime.fromisoformat(done["date"])
        assert 0 <= age.total_seconds() < 600
        assert {"seqpack", "python"} <= set(done["versions"])
        before = read_folder(Path(folder))
        shutil.rmtree(folder)
        result = run(*shlex.split(done["command"])[1:])
        assert result.exit_code == 0, result.stderr
        assert read_folder(Path(folder)) == before
