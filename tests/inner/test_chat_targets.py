"""What of a conversation is a target: blocks of the template, or what is found by rendering."""

from __future__ import annotations

from typing import Any

import pytest
from chat_templates import (
    CHATML,
    GEMMA,
    LLAMA_2,
    PHI_3,
    QWEN_3,
    assistant,
    setup_of,
    user,
    without_blocks,
)

from seqpack_cli.corpus.fields import BadRecordError
from seqpack_cli.tokens.chat.renderer import open_renderer


def _targets(template: str, *messages: dict[str, Any], **options: Any) -> list[str]:
    found = open_renderer(setup_of(template, **options)).render(list(messages))
    return [found.text[start:end] for start, end in found.targets]


def test_the_end_of_turn_is_a_target_and_the_line_end_after_it_is_not() -> None:
    messages = user("a"), assistant("b \n"), user("c"), assistant("")
    assert _targets(without_blocks(CHATML), *messages) == ["b \n<|im_end|>", "<|im_end|>"]
    # In the tokenizer of Phi-3 the token <|end|> includes the white space after it.
    assert _targets(without_blocks(PHI_3), *messages) == ["b \n<|end|>\n", "<|end|>\n"]
    assert _targets(PHI_3, *messages) == ["b \n<|end|>\n", "<|end|>\n"]
    # A block is taken as it is.
    assert _targets(GEMMA, *messages) == ["b<end_of_turn>\n", "<end_of_turn>\n"]


@pytest.mark.parametrize("template", [CHATML, without_blocks(CHATML)])
def test_only_the_last_turn_is_a_target_if_asked_for(template: str) -> None:
    messages = user("a"), assistant("b"), user("c"), assistant("d"), user("e")
    assert _targets(template, *messages, target_turns="last") == ["d<|im_end|>"]
    assert _targets(template, user("a"), target_turns="last") == []


def test_the_last_turn_has_all_its_blocks() -> None:
    """The last message of Phi-3 ends with a block more, for the end of the text."""
    end = "{% if messages[-1].role == 'assistant' %}{% generation %}{{ eos_token }}"
    template = PHI_3 + end + "{% endgeneration %}{% endif %}"
    messages = user("a"), assistant("b"), user("c"), assistant("d")
    assert _targets(template, *messages, target_turns="last") == ["d<|end|>\n</s>"]


def test_history_that_is_written_differently_is_refused() -> None:
    template = without_blocks(QWEN_3)
    turn = "<think>\nHm.\n</think>\n\nb"
    messages = user("a"), assistant(turn), user("c"), assistant(turn)
    with pytest.raises(BadRecordError) as caught:
        _targets(template, *messages)
    assert (caught.value.reason, caught.value.hint) == (
        "message 2: at character 51, the chat template writes '|>assistant\\nb<|im_end|>\\n', "
        "but without the messages that follow '|>assistant\\n<think>\\nHm.\\n', expected the same "
        "text",
        "pass --target-turns last, or a --chat-template with {% generation %} blocks",
    )
    assert _targets(template, *messages, target_turns="last") == [f"{turn}<|im_end|>"]
    assert _targets(QWEN_3, *messages) == ["b<|im_end|>", f"{turn}<|im_end|>"]


def test_a_beginning_that_the_template_refuses_names_the_message() -> None:
    template = "{% if messages | length == 1 %}{{ raise_exception('too short') }}{% endif %}"
    with pytest.raises(BadRecordError) as caught:
        _targets(template, user("a"), assistant("b"))
    assert caught.value.reason == (
        "message 2: without what follows, the chat template chat.jinja:1 failed: too short"
    )


def test_text_behind_the_whole_conversation_belongs_to_its_last_message() -> None:
    template = (
        without_blocks(PHI_3) + "{% if not add_generation_prompt %}{{ eos_token }}{% endif %}"
    )
    assert _targets(template, user("a"), assistant("b")) == ["b<|end|>\n</s>"]


def test_conversations_without_targets() -> None:
    for template in (CHATML, without_blocks(CHATML)):
        assert _targets(template) == []
        assert _targets(template, {"role": "system", "content": "a"}, user("b")) == []


def test_blocks_in_macros_and_captured_text_are_where_they_are_written() -> None:
    """Transformers takes the place from what was written before the macro or set block began."""
    block = "{% generation %}{{ m.content }}{% endgeneration %}"
    for template in (
        "{% macro f(m) %}[" + block + "]{% endmacro %}"
        "{% for m in messages %}{% set a = f(m) %}>{{ a }}{% endfor %}",
        "{% for m in messages %}{% set a %}[" + block + "]{% endset %}>{{ a }}{% endfor %}",
        "{% for m in messages %}>{% filter trim %} [" + block + "]{% endfilter %}{% endfor %}",
    ):
        found = open_renderer(setup_of(template)).render([user("ab"), user("c")])
        assert (found.text, found.targets) == (">[ab]>[c]", ((2, 4), (7, 8)))


def test_a_captured_block_that_is_changed_is_refused() -> None:
    template = (
        "{% set a %}{% generation %} {{ messages[0].content }}{% endgeneration %}{% endset %}"
        "{{ a | trim }}"
    )
    with pytest.raises(BadRecordError, match="changes the text of a"):
        _targets(template, user("a"))


@pytest.mark.parametrize("mark", ["\ufdd0", "\ufdd0\ufdd1\ufdef"])
def test_marks_of_blocks_may_be_content(mark: str) -> None:
    assert _targets(CHATML, user(mark), assistant(mark)) == [f"{mark}<|im_end|>"]
    with pytest.raises(BadRecordError, match="almost all of U"):
        _targets(CHATML, assistant("".join(map(chr, range(0xFDD0, 0xFDF0)))))


def test_equal_conversations_have_the_same_json() -> None:
    template = LLAMA_2
    tools = [{"b": 1.5, "a": [True, None]}]
    found = open_renderer(setup_of(template)).render([{"role": "user", "content": 'é"'}], tools)
    swapped = open_renderer(setup_of(template)).render([{"content": 'é"', "role": "user"}], tools)
    assert found == swapped
    assert found.canonical.decode() == (
        '{"messages":[{"content":"é\\"","role":"user"}],"tools":[{"a":[true,null],"b":1.5}]}'
    )
