"""Conversations and templates that are wrong: a reason with its place, never a traceback."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from chat_templates import CHATML, QWEN_3, TEMPLATES, assistant, setup_of, user, without_blocks
from hypothesis import given
from hypothesis import strategies as st

from seqpack_cli.corpus.document_block import BadRecordError
from seqpack_cli.errors import OptionError
from seqpack_cli.tokens.chat import chat_template
from seqpack_cli.tokens.chat.renderer import Renderer, open_renderer
from seqpack_cli.tokens.text_readers import MessagesText


def _nest(depth: int) -> Any:
    value: Any = "a"
    for _ in range(depth):
        value = [value]
    return value


WRONG = [
    (None, None, "messages: null, expected a list"),
    ("[]", None, "messages: a string, expected a list"),
    ([user("a"), None], None, "message 2: null, expected an object"),
    (
        [{"from": "human", "value": "a"}],
        None,
        "message 1: no field 'role' (found: 'from', 'value')",
    ),
    ([{"role": None}], None, "message 1: field 'role' is null, expected a string"),
    ([], "f", "tools: a string, expected a list"),
    ([], [{}, 1], "tool 2: an integer, expected an object"),
    ([user(float("nan"))], [], "messages: NaN or an infinite number, expected JSON"),
    ([user("a")], [{"a": float("inf")}], "tools: NaN or an infinite number, expected JSON"),
    ([user(b"a")], None, "messages: Object of type bytes is not JSON serializable, expected JSON"),
    ([user(_nest(10_000))], None, "messages: nested more than 100 levels deep"),
    ([user(_nest(98))], None, "messages: nested more than 100 levels deep"),
    ([user("a\ud800")], None, "messages: lone surrogate \\ud800, expected Unicode text"),
    (
        [user(None)],
        None,
        "the chat template chat.jinja:7 failed: 'dict object' has no attribute 'content'",
    ),
    (
        [user(7)],
        None,
        "the chat template chat.jinja:7 failed: unsupported operand type(s) for +: 'int' and 'str'",
    ),
]


@pytest.mark.parametrize(("messages", "tools", "reason"), WRONG)
def test_a_wrong_conversation_is_a_bad_record(messages: Any, tools: Any, reason: str) -> None:
    with pytest.raises(BadRecordError) as caught:
        open_renderer(setup_of(CHATML)).render(messages, tools)
    assert caught.value.reason.startswith(reason)


def test_the_hint_says_how_to_go_on() -> None:
    """A hint that knows no better is that of all bad records."""
    fix = "fix the record and add --overwrite, or pass --on-bad-record skip"
    rename = "rename 'from' to 'role' and 'value' to 'content', and the roles human and gpt to "
    hints = [
        ([{"from": "human", "value": "a"}], f"{rename}user and assistant"),
        ([{"role": None}], fix),
        ([user(None)], f"{fix}, or pass another --chat-template"),
    ]
    for messages, hint in hints:
        with pytest.raises(BadRecordError) as caught:
            open_renderer(setup_of(CHATML)).render(messages)
        assert caught.value.hint == hint


def test_the_field_of_a_record_is_named() -> None:
    reader = MessagesText(setup_of(CHATML), "chat", "functions")
    for values, name in (("[]", None), "chat"), (([], "[{}, {}"), "functions"):
        with pytest.raises(BadRecordError) as caught:
            reader.read(values)
        assert caught.value.reason.startswith(f"{name}: ")


def test_content_that_is_nested_as_deeply_as_allowed_is_rendered() -> None:
    template = "{{ messages | tojson }}"
    assert open_renderer(setup_of(template)).render([user(_nest(96))]).text.count("[") == 97


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)
NAMES = st.sampled_from(["role", "content", "tool_calls", "reasoning", "name", "function"])
ROLES = st.sampled_from(["user", "assistant", "system", "tool", "<|im_start|>"])
MESSAGES = st.builds(
    lambda fields, role: {**fields, "role": role}, st.dictionaries(NAMES, VALUES), ROLES | VALUES
)


@given(
    st.lists(MESSAGES, max_size=4) | VALUES,
    st.none() | st.lists(st.dictionaries(NAMES, VALUES), max_size=2) | VALUES,
    st.sampled_from(list(TEMPLATES.values())),
    st.booleans(),
)
def test_any_conversation_gives_a_text_or_a_bad_record(
    messages: Any, tools: Any, template: str, has_blocks: bool
) -> None:
    template = template if has_blocks else without_blocks(template)
    try:
        found = open_renderer(setup_of(template)).render(messages, tools)
    except BadRecordError:
        return
    bounds = [bound for span in found.targets for bound in span]
    assert bounds == sorted(set(bounds))
    assert not bounds or bounds[-1] <= len(found.text)
    found.text.encode()


HOSTILE = {
    "{{ messages[0].x.y }}": "'dict object' has no attribute 'x'",
    "{{ raise_exception('no\nsystem') }}": "no system",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}": "maximum recursion depth exceeded",
    "{{ 1 / 0 }}": "division by zero",
    "{{ 'a' + 1 }}": 'can only concatenate str (not "int") to str',
    "{{ messages.append(1) }}": "access to attribute 'append' of 'list' object is unsafe.",
    "{{ messages.__class__.a }}": "access to attribute '__class__' of 'list' object is unsafe.",
    "{% set n = namespace(_a=1) %}": "a namespace cannot have the field '_a'",
    "{% set n = namespace() %}{% set n._a = 1 %}": "a namespace cannot have the field '_a'",
    "{% include 'a' %}": "no loader for this environment specified",
}


@pytest.mark.parametrize("template", HOSTILE)
def test_a_template_that_fails_says_where(template: str) -> None:
    with pytest.raises(BadRecordError) as caught:
        open_renderer(setup_of(f"\n{template}")).render([user("a")])
    place = "the chat template chat.jinja:2 failed: "
    assert caught.value.reason.startswith(place + HOSTILE[template])


def test_endless_output_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "MAX_CHARACTERS", 10_000)
    loops = "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}"
    with pytest.raises(BadRecordError, match="writes more than 10,000 characters"):
        open_renderer(setup_of(loops)).render([])


def test_the_date_is_the_one_that_is_passed() -> None:
    template = "{{ strftime_now('%d %b %Y') }}"
    setup = setup_of(template, template_date="2026-11-23")
    assert open_renderer(setup).render([]).text == "23 Nov 2026"
    with pytest.raises(OptionError, match="expected a date that is the same in each run") as caught:
        open_renderer(setup_of(template)).render([])
    assert caught.value.hint == "pass --template-date YYYY-MM-DD"


def test_a_setup_is_compiled_once_in_each_process() -> None:
    setup = setup_of(CHATML)
    assert open_renderer(pickle.loads(pickle.dumps(setup))) is open_renderer(setup)  # noqa: S301
    assert open_renderer(setup_of(QWEN_3)) is not open_renderer(setup)
    assert Renderer(setup).render([assistant("a")]).targets
