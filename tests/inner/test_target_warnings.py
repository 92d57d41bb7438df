"""What `inspect` warns of: targets that teach nothing, no end token, and a doubled BOS."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from command import run
from test_target_counts import make_store

from seqpack_cli.tokens.tokenizer import byte_tokenizer_json

PROMPT_ONLY = [{"prompt": "ab", "completion": ""}, {"prompt": "c", "completion": ""}]
COMPLETION_ONLY = [{"prompt": "", "completion": "ab"}]
BOTH = [{"prompt": "ab", "completion": "cd"}, {"prompt": "c", "completion": ""}]
NO_TARGETS = "no token is a target: a loss has nothing to learn from"
ALL_TARGETS = "every token is a target, although the texts were made from prompts and completions"
NO_END = "no special token is a target: a model does not learn where an answer ends"
ADD_EOS = "tokenize again with --eos TOKEN, the token that ends an answer"


def list_warnings(path: Path) -> list[str]:
    """Return the messages, which stderr has too."""
    result = run("inspect", path, "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)["warnings"]
    lines = [[f"warning: {each['message']}", f"hint: {each['hint']}"] for each in found]
    assert result.stderr.splitlines() == [line for pair in lines for line in pair]
    return [each["message"] for each in found]


def pack(store: Path, *options: object) -> Path:
    shards = store.parent / "shards"
    result = run("pack", store, "-o", shards, *options, "-q")
    assert result.exit_code == 0, result.stderr
    return shards


def make_texts(folder: Path, texts: list[str], *options: object) -> Path:
    (folder / "texts.txt").write_text("".join(f"{text}\n" for text in texts))
    result = run("tokenize", folder / "texts.txt", *options, "-o", folder / "store", "-q")
    assert result.exit_code == 0, result.stderr
    return folder / "store"


@pytest.mark.parametrize(
    ("records", "options", "expected"),
    [
        (PROMPT_ONLY, (), [NO_TARGETS]),
        (COMPLETION_ONLY, (), [ALL_TARGETS, NO_END]),
        (BOTH, (), [NO_END]),
        (BOTH, ("--eos", "<eos>"), []),
        (BOTH, ("--eos", "."), []),  # not special, but the end of every answer
        ([{"prompt": "", "completion": "a<eos>"}, *BOTH], ("--allow-special-tokens",), []),
    ],
)
def test_targets_that_are_likely_mistakes(
    tmp_path: Path, records: Any, options: tuple[object, ...], expected: list[str]
) -> None:
    assert list_warnings(make_store(tmp_path, records, *options)) == expected


def test_hint_names_the_field_to_check(tmp_path: Path) -> None:
    store = make_store(tmp_path, PROMPT_ONLY)
    assert run("inspect", store).stderr == (
        f"warning: {NO_TARGETS}\nhint: check that completion is the field of the answers, "
        "not empty\n"
    )
    assert run("inspect", store, "-q").stderr == ""


def test_shards_tell_of_the_targets_what_their_store_says(tmp_path: Path) -> None:
    shards = pack(make_store(tmp_path, COMPLETION_ONLY))
    assert list_warnings(shards) == [ALL_TARGETS, NO_END]
    path = tmp_path / "store" / "part-00000.columns.safetensors"
    path.write_bytes(bytes(path.stat().st_size))
    assert list_warnings(shards) == []  # the targets may be as they were meant
    shutil.rmtree(tmp_path / "store")
    assert list_warnings(shards) == []


def test_texts_without_prompts_need_no_end_token(tmp_path: Path) -> None:
    overlapping = make_texts(tmp_path, ["abcdefgh"], "--max-length", 4, "--overlap", 1)
    assert list_warnings(overlapping) == []


def test_sequences_that_begin_with_two_bos_are_counted_over_all_parts(tmp_path: Path) -> None:
    texts = ["ab", "<bos>cd", "x<bos><bos>", "<bos>", "<bos><bos>e"]
    options = ("--bos", "<bos>", "--allow-special-tokens", "--part-bytes", 8)
    store = make_texts(tmp_path, texts, *options)
    found = json.loads(run("inspect", store, "--json", "-q").stdout)["warnings"]
    message = "3 sequences begin with two BOS tokens, the first is 1"
    assert found == [
        {
            "name": "double_bos",
            "message": message,
            "hint": "tokenize again without --bos <bos>: the texts have a BOS token of their own",
            "num_sequences": 3,
            "first_sequence": 1,
        }
    ]
    assert list_warnings(pack(store)) == [message]


def test_a_template_that_adds_two_bos_is_found_in_all_sequences(tmp_path: Path) -> None:
    tokenizer = json.loads(byte_tokenizer_json())
    pieces = [{"SpecialToken": {"id": "<bos>", "type_id": 0}}] * 2
    tokenizer["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [*pieces, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": name, "type_id": 0}} for name in "AB"],
        "special_tokens": {"<bos>": {"id": "<bos>", "ids": [257], "tokens": ["<bos>"]}},
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    store = make_texts(tmp_path, ["ab", "c"], "--tokenizer", tmp_path / "tokenizer.json")
    assert list_warnings(store) == ["2 sequences begin with two BOS tokens, the first is 0"]


def test_one_bos_and_a_text_that_spells_another_is_no_double(tmp_path: Path) -> None:
    assert list_warnings(make_texts(tmp_path, ["<bos>ab"], "--bos", "<bos>")) == []


def test_warnings_of_splits_name_the_split(tmp_path: Path) -> None:
    records = [{"prompt": "a", "completion": ""}, {"prompt": "b", "completion": "c"}]
    store = make_store(tmp_path, records, "--keep", "prompt:class")
    options = ("--split-by", "prompt", "--split", "b,a", "--keep-without-target")
    found = run("inspect", pack(store, *options), "--json")
    warnings = json.loads(found.stdout)["warnings"]
    assert [(each.get("split"), each["message"]) for each in warnings] == [
        ("a", NO_TARGETS),
        (None, NO_END),
    ]
    assert f"warning: a: {NO_TARGETS}\n" in found.stderr
