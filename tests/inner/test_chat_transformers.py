"""Conversations as transformers renders and masks them: the same text, the same targets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jinja2
import pytest
from chat_templates import (
    SPECIAL_TOKENS,
    TEMPLATES,
    VARIABLES,
    assistant,
    chat_tokenizer,
    setup_of,
    user,
    without_blocks,
)

from seqpack_cli.corpus.fields import BadRecordError
from seqpack_cli.tokens.chat.find_setup import find_chat_setup
from seqpack_cli.tokens.chat.renderer import open_renderer

transformers = pytest.importorskip("transformers")

TOOL = {
    "type": "function",
    "function": {"name": "bake", "parameters": {"properties": {"loaves": {"type": "integer"}}}},
}
CALL = {"type": "function", "function": {"name": "bake", "arguments": {"loaves": 2, "é<": None}}}
CONVERSATIONS: list[list[dict[str, Any]]] = [
    [user("Bread?"), assistant("  Rye.\n")],
    [{"role": "system", "content": "Be brief."}, user("Bread?"), assistant("Rye.")],
    [user("à\n"), assistant(""), user(" 🍞 "), assistant("<think>\nHm.\n</think>\n\nYes")],
    [user("Bake", name=None), assistant(None, tool_calls=[CALL]), assistant("Done")],
    [user("Bake"), assistant("Well", tool_calls=[CALL, CALL], thinking="I bake"), user("Thanks")],
    [user("Bake"), assistant("", tool_calls=[CALL]), {"role": "tool", "content": "2"}],
    [user(f"{number}") if number % 2 else assistant(f"{number}") for number in range(1, 101)],
    [{"role": "system", "content": "Alone"}],
    [user("Bread?")],
]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return transformers.PreTrainedTokenizerFast(tokenizer_object=chat_tokenizer(), **VARIABLES)


def _mask(text: str, targets: tuple[tuple[int, int], ...]) -> list[int]:
    """Return 1 for each token all of whose characters are targets."""
    places = chat_tokenizer().encode(text, add_special_tokens=False).offsets
    return [int(any(a <= start < end <= b for a, b in targets)) for start, end in places]


@pytest.mark.parametrize("tools", [None, [TOOL]], ids=["", "tools"])
@pytest.mark.parametrize("name", TEMPLATES)
def test_text_and_targets_are_those_of_transformers(
    name: str, tools: list[Any] | None, tokenizer: Any
) -> None:
    template = TEMPLATES[name]
    renderer, plain = (open_renderer(setup_of(t)) for t in (template, without_blocks(template)))
    num_compared = num_targets = 0
    for messages in CONVERSATIONS:
        options = {"tools": tools, "chat_template": template, "return_dict": True}
        try:
            expected = tokenizer.apply_chat_template(
                messages, return_assistant_tokens_mask=True, **options
            )
        except (jinja2.TemplateError, TypeError):
            with pytest.raises(BadRecordError):
                renderer.render(messages, tools)
            continue
        found = renderer.render(messages, tools)
        assert chat_tokenizer().encode(found.text).ids == expected["input_ids"]
        assert _mask(found.text, found.targets) == expected["assistant_masks"]
        num_compared += 1
        num_targets += len(found.targets)
        try:
            by_prefixes = plain.render(messages, tools)
        except BadRecordError:
            assert name in ("qwen-3", "mistral")  # which write earlier messages differently
            continue
        assert by_prefixes.text == found.text
        if name not in ("gemma", "qwen-3", "mistral"):  # their blocks are other parts of a turn
            assert by_prefixes.targets == found.targets
    assert num_compared >= 4
    assert num_targets >= 53


SCOPES = [
    "{% set x = 1 %}{% generation %}{{ x }}{% set x = 2 %}{{ x }}{% endgeneration %}{{ x }}",
    "{% for m in messages %}{% set x = m.role %}{% generation %}{{ x }}{% set y = 3 %}"
    "{% set x = x + 'z' %}{{ x }}{% endgeneration %}{{ x }}{{ y }}{{ loop.last }}{% endfor %}",
    "{% set ns = namespace(a=1) %}{% generation %}{% set ns.a = 2 %}{{ ns.a }}{% endgeneration %}"
    "{{ ns.a }}{{ dict(a=1) | tojson(indent=1) }}",
    "{% generation %}{% macro f() %}F{% endmacro %}{{ f() }}{% endgeneration %}{{ f is defined }}",
    "{% for m in messages %}{% generation %}\n  {{ m.role }} \n  {% endgeneration %}\n{% endfor %}",
    "{{ 'a' | safe }}{% generation %}{{ '<' | e }}{% generation %}b{% endgeneration %}"
    "{% endgeneration %}{{ messages | map(attribute='role') | join(',') }}",
]


@pytest.mark.parametrize("template", SCOPES)
def test_a_generation_block_is_a_scope_of_its_own(template: str, tokenizer: Any) -> None:
    expected = tokenizer.apply_chat_template(
        CONVERSATIONS[0], chat_template=template, tokenize=False
    )
    assert open_renderer(setup_of(template)).render(CONVERSATIONS[0]).text == expected


CONFIGS = [
    {"bos_token": "<s>", "eos_token": {"__type": "AddedToken", "content": "</s>"}},
    {
        "bos_token": None,
        "eos_token": "<eos>",
        "image_token": "<pad>",
        "add_bos_token": True,
        "additional_special_tokens": ["<bos>"],
    },
    {"extra_special_tokens": {"image_token": "<pad>"}, "added_tokens_decoder": {}},
]
TOKENS_MAP = {"eos_token": {"content": "<bos>", "special": True}, "sep_token": "</s>"}


@pytest.mark.parametrize("is_jinja", [False, True])
@pytest.mark.parametrize("config", CONFIGS)
def test_files_beside_a_tokenizer_mean_what_they_mean_to_transformers(
    config: dict[str, Any], is_jinja: bool, tmp_path: Path
) -> None:
    chat_tokenizer().save(str(tmp_path / "tokenizer.json"))
    named = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": named, **config}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "special_tokens_map.json").write_text(json.dumps(TOKENS_MAP))
    if is_jinja:
        (tmp_path / "chat_template.jinja").write_text("J")
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path)
    ours = find_chat_setup(str(tmp_path))
    assert ours.variables == theirs.special_tokens_map
    assert ours.special_tokens == SPECIAL_TOKENS
    for tools in (None, [TOOL]):
        expected = theirs.apply_chat_template(CONVERSATIONS[0], tools=tools, tokenize=False)
        assert open_renderer(ours).render(CONVERSATIONS[0], tools).text == expected
