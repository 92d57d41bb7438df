"""The chat template of a tokenizer: which one, with which variables, and what is missing."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jinja2
import pytest
from chat_templates import SPACE_TAKING, SPECIAL_TOKENS, chat_tokenizer

from seqpack_cli import TargetOptions, TokenizeOptions, open_store, tokenize
from seqpack_cli.errors import DataError, MachineError, OptionError
from seqpack_cli.reporting.target_warnings import find_warnings
from seqpack_cli.tokens.affixes import Affixes
from seqpack_cli.tokens.byte_tokenizer import byte_tokenizer_json
from seqpack_cli.tokens.chat.find_setup import find_chat_setup
from seqpack_cli.tokens.chat.renderer import writes_special
from seqpack_cli.tokens.text_readers import MessagesText
from seqpack_cli.tokens.tokenize_run import _iter_notices as iter_notices
from seqpack_cli.tokens.vocabulary import describe_vocabulary

NO_SPECIAL = (
    "--messages-field: the chat template {} writes no special token of the tokenizer, so a model "
    "does not learn to stop; pass a --tokenizer that has the template's special tokens"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    chat_tokenizer().save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def _write_config(folder: Path, **fields: Any) -> None:
    (folder / "tokenizer_config.json").write_text(json.dumps(fields))


def test_a_file_wins_over_the_folder_and_the_folder_over_the_configuration(folder: Path) -> None:
    _write_config(folder, chat_template="C", eos_token="</s>")  # noqa: S106
    setup = find_chat_setup(str(folder))
    assert (setup.template, setup.path) == ("C", f"{folder}/tokenizer_config.json: chat_template")
    assert setup.special_tokens == SPECIAL_TOKENS
    assert setup.space_taking == SPACE_TAKING
    (folder / "chat_template.jinja").write_text("J")
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tool_use.jinja").write_text("T")
    setup = find_chat_setup(str(folder / "tokenizer.json"), target_turns="last")
    assert (setup.template, setup.tool_template, setup.target_turns) == ("J", "T", "last")
    (folder / "mine.jinja").write_text("M")
    setup = find_chat_setup(str(folder), folder / "mine.jinja", allow_special_tokens=True)
    assert (setup.template, setup.tool_template) == ("M", None)
    assert setup.variables == {"eos_token": "</s>"}
    assert setup.allow_special_tokens


def test_without_configuration_the_names_of_tokens_say_what_they_are_for(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("J")
    expected = {"pad_token": "<pad>", "bos_token": "<bos>", "eos_token": "<eos>"}
    assert find_chat_setup(str(folder)).variables == expected
    _write_config(folder)
    assert find_chat_setup(str(folder)).variables == {}
    assert find_chat_setup("bytes", folder / "chat_template.jinja").template == "J"


def test_tokens_that_the_configuration_calls_special_are_special(folder: Path) -> None:
    """transformers takes them so, whatever tokenizer.json says."""
    tokenizer = chat_tokenizer()
    others = ["<a>", "<b>", "<c>", "<d>", "<e>"]
    saved = json.loads(tokenizer.to_str())
    first = max(it["id"] for it in saved["added_tokens"]) + 1
    plain = {**saved["added_tokens"][0], "special": False}
    saved["added_tokens"] += [
        {**plain, "id": first + at, "content": token} for at, token in enumerate(others)
    ]
    (folder / "tokenizer.json").write_text(json.dumps(saved))
    (folder / "chat_template.jinja").write_text("{{ eos_token }}<f>")
    tokens = {"1": {"content": "<c>", "special": True}, "2": {"content": "<d>", "special": False}}
    fields = {"eos_token": {"content": "<a>"}, "additional_special_tokens": ["<b>", "<no>"]}
    _write_config(folder, added_tokens_decoder=tokens, **fields)
    assert find_chat_setup(str(folder)).special_tokens == (*SPECIAL_TOKENS, "<a>", "<b>", "<c>")
    _write_config(folder)
    (folder / "special_tokens_map.json").write_text(json.dumps(fields))
    assert find_chat_setup(str(folder)).special_tokens == (*SPECIAL_TOKENS, "<a>", "<b>")


def test_a_message_cannot_spell_a_token_that_only_the_configuration_calls_special(
    tmp_path: Path,
) -> None:
    saved = json.loads(byte_tokenizer_json())
    [end] = [token for token in saved["added_tokens"] if token["content"] == "<eos>"]
    end["special"] = False
    (tmp_path / "tokenizer.json").write_text(json.dumps(saved))
    _write_config(tmp_path, eos_token="<eos>")  # noqa: S106
    block = "{% generation %}{{ m.content + eos_token }}{% endgeneration %}"
    template = "x{% for m in messages %}" + block + "{% endfor %}"
    (tmp_path / "chat_template.jinja").write_text(template)
    record = {"messages": [{"role": "assistant", "content": "a<eos>"}]}
    (tmp_path / "a.jsonl").write_text(json.dumps(record))
    options = TokenizeOptions(tokenizer=tmp_path, targets=TargetOptions(messages_field="messages"))
    manifest, _ = tokenize(tmp_path / "a.jsonl", tmp_path / "store", options)
    store = open_store(tmp_path / "store")
    assert store[0].tolist() == [*b"xa<eos>", end["id"]]
    assert manifest["ledger"]["num_special_tokens_in_text"] == 1
    assert find_warnings(store, {"": (6, 8)}) == []


@pytest.mark.parametrize(
    ("template", "fields"),
    [
        ("<a>", {"extra_special_tokens": ["<a>"]}),
        ("{{ eos_token }}", {"eos_token": "<a>"}),
        ("<a>", {"added_tokens_decoder": {"1": {"content": "<a>", "special": False}}}),
    ],
)
def test_a_token_that_the_template_writes_must_be_in_tokenizer_json(
    folder: Path, template: str, fields: dict[str, Any]
) -> None:
    """transformers adds it; here it would be text."""
    _write_config(folder, chat_template="{# <a>, eos_token2 #}", **fields)
    assert "<a>" not in find_chat_setup(str(folder)).special_tokens
    _write_config(folder, chat_template=template, **fields)
    with pytest.raises(DataError) as caught:
        find_chat_setup(str(folder))
    assert str(caught.value) == (
        f"{folder}/tokenizer.json: no added token '<a>', expected one, because "
        "tokenizer_config.json or special_tokens_map.json names it and the chat template "
        f"{folder}/tokenizer_config.json: chat_template writes it\n\nhint: open the tokenizer with "
        "transformers and save it with save_pretrained"
    )


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ messages[1].content }}<|im_end|>", True),
        ("{{ messages[1].content + eos_token }}", True),
        ("{{ '<|' + messages[0].role + '|>' }}", True),
        ("{{ raise_exception('needs a system message') }}", True),
        ("{{ messages[1].role + ': ' + messages[1].content }}{# eos_token <|im_end|> #}", False),
    ],
)
def test_a_template_that_writes_no_special_token_is_noted(
    folder: Path, template: str, expected: bool
) -> None:
    _write_config(folder, eos_token="</s>")  # noqa: S106
    path = folder / "mine.jinja"
    path.write_text(template)
    setup = find_chat_setup(str(folder), path)
    assert writes_special(setup) is expected
    options = TokenizeOptions(targets=TargetOptions(messages_field="m", chat_template=path))
    text = MessagesText(setup, "m")
    tokenizer_json = byte_tokenizer_json()
    vocabulary = describe_vocabulary(tokenizer_json)
    notes = list(iter_notices(tokenizer_json, vocabulary, Affixes(), options, text))
    assert notes == [NO_SPECIAL.format(path)] * (not expected)


WRONG: list[tuple[Callable[[Path], object], type[Exception], str]] = [
    (lambda _: None, OptionError, "{}: no chat template"),
    (
        lambda folder: _write_config(folder, chat_template=[{"name": "rag", "template": "a"}]),
        OptionError,
        "{}: no chat template (found: only 'rag')",
    ),
    (
        lambda folder: _write_config(folder, chat_template={"default": 1}),
        DataError,
        "{}/tokenizer_config.json: chat_template: {{'default': 1}}, expected a template, or a list "
        "of named templates",
    ),
    (
        lambda folder: _write_config(folder, chat_template="a\n{% if %}"),
        DataError,
        "{}/tokenizer_config.json: chat_template:2: Expected an expression, got 'end of statement "
        "block', expected a Jinja template",
    ),
    (
        lambda folder: (folder / "chat_template.jinja").write_text("{{ a | no_such_filter }}"),
        DataError,
        "{}/chat_template.jinja:1: No filter named 'no_such_filter', expected a Jinja template",
    ),
    (
        lambda folder: (folder / "chat_template.jinja").write_text("{% break %}"),
        DataError,
        "{}/chat_template.jinja: 'break' outside loop",
    ),
    (
        lambda folder: (folder / "chat_template.jinja").write_bytes(b"\xff"),
        DataError,
        "{}/chat_template.jinja: byte 0xff, expected UTF-8",
    ),
    (
        lambda folder: (folder / "tokenizer_config.json").write_text("[]"),
        DataError,
        "{}/tokenizer_config.json: [], expected an object",
    ),
    (
        lambda folder: (folder / "special_tokens_map.json").write_text("{"),
        DataError,
        "{}/special_tokens_map.json: not JSON (Expecting property name",
    ),
]


@pytest.mark.parametrize(("spoil", "kind", "message"), WRONG)
def test_what_is_wrong_with_a_template_is_said(
    folder: Path, spoil: Callable[[Path], object], kind: type[Exception], message: str
) -> None:
    spoil(folder)
    with pytest.raises(kind) as caught:
        find_chat_setup(str(folder))
    assert str(caught.value).startswith(message.format(folder))
    if kind is OptionError:
        assert str(caught.value).endswith(
            "\n\nhint: pass a model's folder, or its name on the Hub, as --tokenizer, or "
            "--chat-template FILE"
        )


def test_a_file_that_does_not_exist_is_named(folder: Path) -> None:
    with pytest.raises(OptionError, match=r"mine\.jinja: no such file"):
        find_chat_setup(str(folder), folder / "mine.jinja")


def test_without_jinja2_the_package_to_install_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "chat_template.jinja").write_text("J")
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MachineError) as caught:
        find_chat_setup(str(folder))
    assert str(caught.value) == (
        "jinja2 is not installed, chat templates need it\n\nhint: pip install jinja2"
    )
    monkeypatch.undo()
    monkeypatch.setattr(jinja2, "__version__", "3.1.5")
    with pytest.raises(MachineError, match=r"jinja2 3\.1\.5, expected 3\.1\.6 or later"):
        find_chat_setup(str(folder))
