"""Chat templates: the text of a conversation, its special tokens, and what the assistant writes.

A template is compiled in Jinja's sandbox and gives the same text as transformers'
apply_chat_template. What the assistant writes is in its {% generation %} blocks, if it has any, and
otherwise found by rendering the beginnings of the conversation: two more renderings for each
assistant message, one for the last message. A special token that a message spells stays text: the
conversation is rendered again with such tokens hidden, and those still there are the template's.

A rendering of six messages and 3 kB by a short template takes 15 µs; all else takes 40 µs, of which
a quarter is for the JSON that is hashed. Output is bounded by MAX_CHARACTERS; the time that a
template takes, and the memory of a single value in it ('x' * 10**9), are not.
"""

from __future__ import annotations

import io
import json
import os
import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache, partial
from itertools import accumulate, chain, cycle, pairwise
from traceback import walk_tb
from typing import Any, NamedTuple, NoReturn

import jinja2
from blake3 import blake3
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from seqpack_cli.corpus.fields import MESSAGES_FIELD, SKIP_HINT, BadRecordError, Field
from seqpack_cli.corpus.json_records import MAX_DEPTH, encode_canonical
from seqpack_cli.errors import (
    DataError,
    OptionError,
    SeqpackError,
    join_items,
    quote,
)
from seqpack_cli.files.json_files import JSON_TYPES
from seqpack_cli.files.places import parse_place, suggest_name
from seqpack_cli.tokens.offsets import SPACE_CHARACTERS, Span, TargetText
from seqpack_cli.tokens.options import TargetOptions
from seqpack_cli.tokens.special_tokens import MARKS, compile_tokens, group_tokens
from seqpack_cli.tokens.tokenizer import (
    CONFIG,
    ROLES,
    TEMPLATES,
    TOKENS_MAP,
    TokenizerFiles,
    build_tokenizer,
    describe_vocabulary,
    read_text,
    spell_error,
    token_of,
)

HINT = "pass a model's folder, or its name on the Hub, as --tokenizer, or --chat-template FILE"
SAVE_HINT = "open the tokenizer with transformers and save it with save_pretrained"
TEMPLATE_HINT = f"{SKIP_HINT}, or pass another --chat-template"
SHAREGPT_HINT = (
    "rename 'from' to 'role' and 'value' to 'content', and the roles human and gpt to user and "
    "assistant"
)
ASSISTANT = "assistant"
SHORT = [{"role": "user", "content": "?"}, {"role": ASSISTANT, "content": "!"}]
REASONING_FIELDS = ("reasoning_content", "thinking", "reasoning")
MAX_CHARACTERS = 1 << 28  # of a rendered conversation: a template may loop for hours
NUM_SHOWN = 24  # characters of a difference, so that both sides fit on a line
START, END = "seqpack_generation_start", "seqpack_generation_end"  # variables, for MARKS
# Where the text of a block may become a value, which filters change; loops only if recursive.
CAPTURES = (
    *(nodes.Macro, nodes.CallBlock, nodes.AssignBlock, nodes.FilterBlock, nodes.Block, nodes.For),
)
DICT_ATTRIBUTES = frozenset(dir(dict))
PLAIN = re.compile(r"[\w $@.:/-]*")  # a role, or the name of a field, that is not content
HIDEABLE = re.compile(r"""[^\s"\\\x00-\x1f]""")  # all but what templates strip or escape
Conversation = tuple[list[dict[str, Any]], list[Any] | None]  # messages and tools


class TemplateSource(NamedTuple):
    """A template as it is written."""

    source: str  # in Jinja
    path: str  # for messages


@dataclass(frozen=True)
class ChatText:
    """A text that a chat template renders from messages, of which the assistant's are targets.

    Args:
        options: what records call the messages and tools, which messages are targets, and the date.
        template: of conversations without tools.
        tool_template: of those with tools.
        variables: what they may use besides the conversation: bos_token, eos_token and so on.
        special_tokens: of the tokenizer; their ids are written by the template alone.
        space_taking: those of them that include the white space after them.
        allow_special_tokens: special tokens spelled in content become ids too.
    """

    options: TargetOptions
    template: TemplateSource
    tool_template: TemplateSource | None
    variables: Mapping[str, str] = field(hash=False)
    special_tokens: tuple[str, ...]
    space_taking: tuple[str, ...] = ()
    allow_special_tokens: bool = False
    num_lists = 2

    @property
    def fields(self) -> tuple[Field, ...]:
        """The messages, and the tools, which a record may lack."""
        messages = Field(str(self.options.messages_field), MESSAGES_FIELD, "json")
        if self.options.tools_field is None:
            return (messages,)
        tools = Field(self.options.tools_field, "--tools-field", "json", is_optional=True)
        return messages, tools

    def read_all(self, columns: Sequence[list[Any]]) -> list[list[Any]]:
        """Return the texts; raises BadRecordError if one cannot be rendered."""
        all_messages, all_tools, *_ = (*columns, [None] * len(columns[0]))
        plain, with_tools = open_templates(self)
        made = [
            (plain if tools is None else with_tools).make_text(messages, tools)
            for messages, tools in zip(all_messages, map(self._read_tools, all_tools), strict=True)
        ]
        return [[each.text for each in made], made]

    def read(self, values: Sequence[Any]) -> list[Any]:
        """Return the text of a record; raises BadRecordError."""
        return [value for [value] in self.read_all([[value] for value in values])]

    def describe(self) -> dict[str, Any]:
        """Return what decides the texts and their ids, as in the options of a manifest."""
        decisive = {
            "template": self.template.source,
            "tool_template": self.tool_template and self.tool_template.source,
            "special_tokens": "\n".join(self.special_tokens),
        }
        digests = {
            f"{name}_blake3": None if source is None else blake3(source.encode()).hexdigest()
            for name, source in decisive.items()
        }
        return {**digests, "variables": dict(sorted(self.variables.items()))}

    def writes_special(self) -> bool:
        """Return whether the template writes a special token around a question and its answer.

        True if it refuses them, so that it cannot be told.
        """
        try:
            text = open_templates(self)[0].render(SHORT, None)
        except (BadRecordError, OptionError):
            return True
        return any(token in text for token in self.special_tokens)

    def _read_tools(self, value: Any) -> Any:
        """Return the tools of a conversation, which some data sets have as JSON in a string."""
        if type(value) is not str:
            return value
        try:
            return json.loads(value)
        except (ValueError, RecursionError) as error:
            what = f"{quote(value)}, expected a list, or a string with JSON of one"
            raise BadRecordError(f"{self.options.tools_field}: {what}") from error


def find_chat_text(
    tokenizer: TokenizerFiles, options: TargetOptions, *, allow_special_tokens: bool
) -> ChatText:
    """Find what conversations are rendered with, and check that the templates compile.

    Both the template and the tokens that it may name are in files beside tokenizer.json, as
    transformers writes them. A chat_template.jinja replaces those in tokenizer_config.json.

    Args:
        tokenizer: read with its templates.

    Raises:
        OptionError: there is no chat template, or no such file.
        DataError: a template or a file beside the tokenizer cannot be read.
    """
    if options.chat_template is None:
        templates = _list_templates(tokenizer)
    else:
        place = parse_place(options.chat_template)
        source = read_text(place)
        if source is None:
            what = f"{place}: no such file{suggest_name(place)}"
            raise OptionError(what, hint="pass --chat-template FILE")
        templates = {"default": TemplateSource(source, str(place))}
    if "default" not in templates:
        others = f" (found: only {join_items(map(quote, templates))})" if templates else ""
        raise OptionError(f"{tokenizer.name}: no chat template{others}", hint=HINT)
    library = build_tokenizer(tokenizer.tokenizer_json, allow_special_tokens=False)
    variables = tokenizer.named_tokens
    if tokenizer.beside.keys().isdisjoint((CONFIG, TOKENS_MAP)):
        roles = describe_vocabulary(tokenizer.tokenizer_json)
        variables = {
            token_of(role): str(library.id_to_token(id_))
            for role in ROLES
            if (id_ := getattr(roles, role)) is not None
        }
    added = [token for _, token in sorted(library.get_added_tokens_decoder().items())]
    named = {
        *variables.values(),
        *(token for _, token, is_special in tokenizer.tokens if is_special),
    }
    special = [token for token in added if token.special or token.content in named]
    text = ChatText(
        options,
        templates["default"],
        templates.get("tool_use"),
        variables=variables,
        special_tokens=tuple(token.content for token in special),
        space_taking=tuple(token.content for token in special if token.rstrip),
        allow_special_tokens=allow_special_tokens,
    )
    open_templates(text)
    for source, path in filter(None, (text.template, text.tool_template)):
        missing = tokenizer.find_missing({token.content for token in added}, source)
        if missing is not None:
            raise DataError(
                f"{tokenizer.path}: no added token {quote(missing)}, expected "
                f"one, because {CONFIG} or {TOKENS_MAP} names it and the chat template {path} "
                "writes it",
                hint=SAVE_HINT,
            )
    return text


def _list_templates(tokenizer: TokenizerFiles) -> dict[str, TemplateSource]:
    """Return the templates of a tokenizer by their names."""
    found = {
        name: TemplateSource(tokenizer.beside[file], f"{tokenizer.folder}/{file}")
        for name, file in zip(("default", "tool_use"), TEMPLATES, strict=True)
        if file in tokenizer.beside
    }
    if found:
        return found
    path = f"{tokenizer.folder}/{CONFIG}: chat_template"
    given = tokenizer.settings.get("chat_template")
    if isinstance(given, str):
        return {"default": TemplateSource(given, path)}
    named = {} if given is None else given
    if isinstance(given, list):
        named = {it.get("name"): it.get("template") for it in given if isinstance(it, dict)}
    if not isinstance(named, dict) or {*map(type, chain.from_iterable(named.items()))} - {str}:
        raise DataError(
            f"{path}: {quote(given)}, expected a template, or a list of named templates"
        )
    return {name: TemplateSource(it, f"{path} {quote(name)}") for name, it in named.items()}


# Templates


class _GenerationBlocks(Extension):
    """Compile {% generation %}...{% endgeneration %} to mark, body, mark.

    Transformers runs such a block as a function, and takes its place from what was written before:
    in a macro or a {% set %} block that is the wrong place. Here a block stands where it is, as a
    scope of its own; the marks are then removed from the rendered text.
    """

    tags = {"generation"}  # noqa: RUF012 - Jinja's interface

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        marks = [nodes.Output([nodes.Name(name, "load")], lineno=line) for name in (START, END)]
        return nodes.Scope([marks[0], *body, marks[1]], lineno=line)


def _has_blocks(tree: nodes.Node) -> bool:
    return any(name.name == START for name in tree.find_all(nodes.Name))


class _Environment(ImmutableSandboxedEnvironment):
    """The sandbox, which finds the fields of messages without an AttributeError for each."""

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Return a field of an object, where the object has no attribute of that name."""
        if type(obj) is dict and attribute not in DICT_ATTRIBUTES:
            return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
        return super().getattr(obj, attribute)


class _Namespace(Namespace):
    """A namespace without underscored names, which lead to what Python keeps for itself."""

    def __init__(*args: Any, **fields: Any) -> None:  # a field may be called self
        namespace, *others = args
        Namespace.__init__(namespace)
        for name, value in dict(*others, **fields).items():
            namespace[name] = value

    def __setitem__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            what = f"a namespace cannot have the field {name!r}"
            raise jinja2.exceptions.SecurityError(what)
        super().__setitem__(name, value)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


class ChatTemplate:
    """A compiled chat template: renders conversations, and finds the targets in them."""

    def __init__(self, text: ChatText, template: TemplateSource) -> None:
        """Compile one of the templates of a text.

        Raises:
            DataError: it is not a Jinja template; the message has the line.
        """
        self._text, self._path = text, template.path
        # As transformers makes it, but with a fixed date.
        environment = _Environment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlocks, loopcontrols]
        )
        environment.filters["tojson"] = partial(json.dumps, ensure_ascii=False)
        environment.globals |= {
            "raise_exception": _raise_exception,
            "strftime_now": self._spell_date,
            "namespace": _Namespace,
        }
        try:
            tree = environment.parse(template.source)
            code = environment.compile(tree)
        except Exception as error:  # also one nested too deeply, or a break outside a loop
            place, found = template.path, spell_error(error)
            if isinstance(error, jinja2.TemplateSyntaxError):
                place, found = f"{place}:{error.lineno}", str(error.message).rstrip(".")
            raise DataError(f"{place}: {found}, expected a Jinja template") from error
        self._template = jinja2.Template.from_code(environment, code, dict(environment.globals))
        self._variables = {**environment.globals, "documents": None, **text.variables}
        self._has_blocks = _has_blocks(tree)
        captures = [it for it in tree.find_all(CAPTURES) if getattr(it, "recursive", True)]
        self._is_captured = any(map(_has_blocks, captures))
        self._spelled = SpelledTokens(text.special_tokens)

    def make_text(self, messages: Any, tools: Any) -> TargetText:
        """Return the text of a conversation, and the targets in it.

        Args:
            messages: a list of objects, each with a `role`.
            tools: None, or a list of objects.

        Raises:
            BadRecordError: they are something else, or the template refuses or fails to render
                them, or it cannot be told what the assistant writes.
        """
        options = self._text.options
        _check_objects(messages, options.messages_field, "message")
        _check_objects([] if tools is None else tools, options.tools_field, "tool")
        if None in chain.from_iterable(map(dict.values, messages)):
            messages = [
                {name: value for name, value in message.items() if value is not None}
                for message in messages
            ]
        canonical = _encode_fields(
            (options.messages_field, {"messages": messages}),
            *[] if tools is None else [(options.tools_field, {"tools": tools})],
        )
        if any(mark.encode() in canonical for mark in MARKS):
            raise BadRecordError(
                f"{options.messages_field}: a noncharacter, U+FDD0 or U+FDD1, expected none, "
                "since they mark what the template writes"
            )
        prepared = _name_thoughts(messages)
        find = self._find_blocks if self._has_blocks else self._find_turns
        text, spans = find(prepared, tools)
        for number, message in enumerate(messages, 1):
            content = message.get("content")
            if type(content) is list and content and str(content) in text:
                raise BadRecordError(
                    f"message {number:,}: the chat template {self._path} writes a list as Python "
                    "spells it, expected content that is a string",
                    "write the text of the parts as one string, or pass a --chat-template that "
                    "reads the parts",
                )
        own, spelled = None, ""
        if self._spelled.may_be_in(canonical):
            own, spelled = self._find_own(text, (messages, tools))
        targets: list[Span] = []  # apart from each other, none empty
        for span in spans:
            start, end = self._fit_end(*span, text, own)
            if targets and start <= targets[-1][1]:
                targets[-1] = targets[-1][0], max(targets[-1][1], end)
            elif start < end:
                targets.append((start, end))
        if own is None:
            return TargetText(text, tuple(targets), canonical, spelled=spelled)
        return TargetText(*_mark(text, targets, own), canonical, is_marked=True, spelled=spelled)

    def render(
        self,
        messages: list[dict[str, Any]],
        tools: list[Any] | None,
        *,
        add_generation_prompt: bool = False,
        marks: tuple[str, str] = ("", ""),
    ) -> str:
        """Return the text of a conversation.

        Args:
            marks: what is written around each generation block.

        Raises:
            BadRecordError: the template refuses the conversation, fails, or writes without end.
            OptionError: it asks for the date, and there is none.
        """
        variables = {
            "messages": messages,
            "tools": tools,
            "add_generation_prompt": add_generation_prompt,
            START: marks[0],
            END: marks[1],
        }
        found = io.StringIO()
        try:
            context = self._template.new_context({**self._variables, **variables}, shared=True)
            for piece in self._template.root_render_func(context):
                found.write(piece)
                if found.tell() > MAX_CHARACTERS:
                    what = f"the chat template writes more than {MAX_CHARACTERS:,} characters"
                    raise BadRecordError(what)
            text = found.getvalue()
            text.encode()  # a template may write half a surrogate pair
        except (BadRecordError, SeqpackError, MemoryError):
            raise
        except Exception as error:  # whatever a template does to values that it does not expect
            trace = walk_tb(error.__traceback__)
            lines = [line for frame, line in trace if frame.f_code.co_filename == "<template>"]
            place = f":{self._template.get_corresponding_lineno(lines[-1])}" if lines else ""
            what = f"the chat template {self._path}{place} failed: {spell_error(error)}"
            raise BadRecordError(what, TEMPLATE_HINT) from error
        return text

    def _spell_date(self, pattern: str) -> str:
        if self._text.options.template_date is None:
            raise OptionError(
                f"{self._path}: the chat template writes the current date (strftime_now), expected "
                "a date that is the same in each run",
                hint="pass --template-date YYYY-MM-DD",
            )
        return datetime.fromisoformat(self._text.options.template_date).strftime(pattern)

    def _render_blocks(self, messages: list[Any], tools: Any) -> tuple[str, list[Span]]:
        """Return the text of a conversation, and the places of the generation blocks in it."""
        text, blocks = _take_blocks(self.render(messages, tools, marks=MARKS))
        if self._is_captured and text != self.render(messages, tools):
            raise BadRecordError(
                f"the chat template {self._path} changes the text of a {{% generation %}} block "
                "after it is rendered, expected a block that is written as it is",
                SKIP_HINT,
            )
        return text, blocks

    def _find_blocks(self, messages: list[dict[str, Any]], tools: Any) -> tuple[str, list[Span]]:
        """Return the text and its generation blocks, or those of the last assistant message.

        Those are the blocks that the text has more than the text of the messages before it, and at
        least the last one: a template may join messages to one block.
        """
        text, blocks = self._render_blocks(messages, tools)
        if self._text.options.target_turns == "last" and len(blocks) > 1:
            before = messages[: (_list_turns(messages) or [len(messages)])[-1]]
            num_before = len(self._render_blocks(before, tools)[1])
            blocks = blocks[min(num_before, len(blocks) - 1) :]
        return text, blocks

    def _find_turns(self, messages: list[dict[str, Any]], tools: Any) -> tuple[str, list[Span]]:
        """Return the text and the place of each assistant message in it, or of the last.

        An assistant message begins where the messages before it end, with the generation prompt
        behind them, and ends where it is the last one. That holds only if both are beginnings of
        the text.

        Raises:
            BadRecordError: the template renders a beginning of the conversation differently.
        """
        text, turns = self.render(messages, tools), _list_turns(messages)
        hint = "pass a --chat-template with {% generation %} blocks"
        if self._text.options.target_turns == "last":
            turns = turns[-1:]
        elif len(turns) > 1:
            hint = f"pass --target-turns last, or {hint.removeprefix('pass ')}"

        def measure(at: int, num_messages: int, has_prompt: bool) -> int:
            some = messages[:num_messages]
            try:
                beginning = self.render(some, tools, add_generation_prompt=has_prompt)
            except BadRecordError as error:
                what = f"message {at + 1:,}: without what follows, {error.reason}"
                raise BadRecordError(what, hint) from error
            if not text.startswith(beginning):
                raise BadRecordError(f"message {at + 1:,}: {_compare(beginning, text)}", hint)
            return len(beginning)

        spans = []
        for at in turns:
            start = measure(at, at, True)
            end = len(text) if at + 1 == len(messages) else measure(at, at + 1, False)
            spans.append((start, max(start, end)))
        return text, spans

    def _find_own(self, text: str, conversation: Conversation) -> tuple[list[Span] | None, str]:
        """Return the places of the template's own special tokens, and the content.

        The places are None if no other special tokens are in the text.

        Raises:
            BadRecordError: what the template does depends on the content too much.
        """
        content: list[str] = []
        changed: list[tuple[str, str]] = []

        def hide(value: str) -> str:
            hidden = self._spelled.hide(value)
            content.append(value)
            if hidden != value:
                changed.append((value, hidden))
            return hidden

        messages, tools = _change_content(conversation, hide)
        if not changed:
            return None, ""
        spelled, found = "\0".join(content), self._spelled.find(text)
        if self._text.allow_special_tokens or not found:
            return None, spelled
        try:
            hidden = self.render(_name_thoughts(messages), tools)
        except BadRecordError:
            hidden = ""
        if len(hidden) != len(text) or any(
            a not in (b, _hide(b)) for a, b in zip(hidden, text, strict=True)
        ):
            typed = "".join(a for a, b in zip(*changed[0], strict=True) if a != b)
            raise BadRecordError(
                f"{self._text.options.messages_field}: {quote(typed)} spells a special token, or a "
                "part of one, and the chat template looks into messages, so that its own cannot be "
                "told apart",
                "pass --allow-special-tokens, and those in messages become ids too",
            )
        own = self._spelled.find(hidden)
        return None if own == found else own, spelled

    def _fit_end(self, start: int, end: int, text: str, own: list[Span] | None) -> Span:
        """Return a span that ends where a special token ends, if it does so but for white space.

        Nothing writes the white space after it, but some tokens include it.
        """
        last = end if self._has_blocks else start + len(text[start:end].rstrip())
        is_own = own is None or any(last == stop for _, stop in own)
        if not (is_own and text.endswith(self._text.special_tokens, start, last)):
            return start, end
        if text.endswith(self._text.space_taking, start, last):
            last = len(text) - len(text[last:].lstrip(SPACE_CHARACTERS))
        return start, last


@lru_cache(maxsize=4)
def open_templates(text: ChatText) -> tuple[ChatTemplate, ChatTemplate]:
    """Return the templates of conversations without and with tools, made once in each process."""
    template = ChatTemplate(text, text.template)
    return template, ChatTemplate(text, text.tool_template) if text.tool_template else template


def _take_blocks(marked: str) -> tuple[str, list[Span]]:
    """Return a text without the marks of blocks, and the outermost blocks.

    Raises:
        BadRecordError: a block has no end, or no beginning.

    >>> _take_blocks("a<b<c>d>e<>".translate({60: MARKS[0], 62: MARKS[1]}))
    ('abcde', [(1, 4), (5, 5)])
    """
    pieces = re.split(f"([{''.join(MARKS)}])", marked)  # text, mark, text and so on
    blocks: list[Span] = []
    depth = first = 0
    for mark, position in zip(pieces[1::2], accumulate(map(len, pieces[::2])), strict=False):
        first = first if depth else position
        depth += 1 if mark == MARKS[0] else -1
        if depth < 0:
            break
        if depth == 0:
            blocks.append((first, position))
    if depth:
        raise BadRecordError(
            "the chat template writes a part of a {% generation %} block, expected a whole one"
        )
    return "".join(pieces[::2]), blocks


def _compare(beginning: str, text: str) -> str:
    place = len(os.path.commonprefix([beginning, text]))  # noqa: RUF071 - of characters
    first = max(0, place - NUM_SHOWN // 2)
    found, expected = (
        quote(each[first : first + NUM_SHOWN]) if place < len(each) else "its end"
        for each in (beginning, text)
    )
    return (
        f"at character {place:,}, the chat template writes {expected}, but without the messages "
        f"that follow {found}, expected the same text"
    )


# Conversations


def _check_objects(values: Any, field: str | None, one: str) -> None:
    """Raise BadRecordError unless values are a list of objects, and messages have a role."""
    if type(values) is not list:
        raise BadRecordError(f"{field}: {_name(values)}, expected a list")
    for number, value in enumerate(values, 1):
        if type(value) is not dict:
            raise BadRecordError(f"{one} {number:,}: {_name(value)}, expected an object")
        if one == "message" and type(value.get("role")) is not str:
            found = f"no field 'role' (found: {join_items(map(quote, value)) or 'none'})"
            if "role" in value:
                found = f"field 'role' is {_name(value['role'])}, expected a string"
            hint = SHAREGPT_HINT if value.keys() >= {"from", "value"} else SKIP_HINT
            raise BadRecordError(f"message {number:,}: {found}", hint)


def _name(value: Any) -> str:
    return JSON_TYPES.get(type(value), type(value).__name__)


def _encode_fields(*fields: tuple[str | None, dict[str, Any]]) -> bytes:
    """Return JSON of one object that is the same for equal fields.

    Raises:
        BadRecordError: they have what JSON does not have, or are nested too deeply.
    """
    encoded = []
    for name, value in fields:
        try:
            encoded.append(encode_canonical(value)[1:-1])
        except RecursionError as error:
            raise BadRecordError(f"{name}: nested more than {MAX_DEPTH} levels deep") from error
        except (TypeError, ValueError) as error:  # a number or half of a surrogate pair
            raise BadRecordError(f"{name}: {error}, expected JSON") from error
    return b"{%b}" % b",".join(encoded)


def _list_turns(messages: list[dict[str, Any]]) -> list[int]:
    """Return which messages are the assistant's."""
    return [at for at, message in enumerate(messages) if message["role"] == ASSISTANT]


def _name_thoughts(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return messages in which what a model thought has the two names that templates read."""
    if set().union(*messages).isdisjoint(REASONING_FIELDS):
        return messages

    named = []
    for message in messages:
        thoughts = [message[name] for name in REASONING_FIELDS if name in message]
        if thoughts:
            message = {"thinking": thoughts[0], **message, "reasoning_content": thoughts[0]}
        named.append(message)
    return named


# Special tokens that messages spell


def _mark(text: str, targets: list[Span], own: list[Span]) -> tuple[str, tuple[Span, ...]]:
    """Return a text with marks around special tokens, and the targets in it.

    >>> marked, targets = _mark("a<b>", [(0, 1), (1, 4)], [(1, 4)])
    >>> marked == "a<b>".replace("<b>", "<b>".join(MARKS)), targets
    (True, ((0, 1), (1, 6)))
    """
    places = list(chain.from_iterable(own))
    first, *pieces = [text[start:end] for start, end in pairwise([0, *places, len(text)])]
    marked = [mark + piece for mark, piece in zip(cycle(MARKS), pieces, strict=False)]

    def move(place: int) -> int:
        """Return a place in the marked text; of the border of a token, that of its mark."""
        num_marks = bisect_left(places, place)
        return place + num_marks + num_marks % 2

    return "".join([first, *marked]), tuple((move(start), move(end)) for start, end in targets)


class SpelledTokens:
    """Finds and hides special tokens, and parts of one at the borders of a message's content.

    Content is every string of the messages and tools, and the names of fields, except plain words
    as names and roles: templates make tokens such as <|user|> from a role.
    """

    def __init__(self, tokens: Sequence[str]) -> None:
        self._compiled = compile_tokens(tokens)
        self._prefixes = list(group_tokens(tokens))
        self._max_length = max(map(len, tokens), default=0)
        ends = {token[start:] for token in tokens for start in range(1, len(token))}
        starts = {token[:end] for token in tokens for end in range(1, len(token))}
        self._end = re.compile(rf"\s*(?:{compile_tokens(ends).pattern})")
        self._start = re.compile(rf"(?:{compile_tokens(starts).pattern})\s*\Z")
        borders = {character for token in tokens for character in (token[0], token[-1])}
        self._borders = [json.dumps(it, ensure_ascii=False)[1:-1].encode() for it in borders]

    def may_be_in(self, canonical: bytes) -> bool:
        """Return False if a conversation, as JSON, has no character at which a token can begin."""
        return any(map(canonical.__contains__, self._borders))

    def find(self, text: str) -> list[Span]:
        """Return the places of the special tokens in a text."""
        return [found.span() for found in self._compiled.finditer(text)]

    def hide(self, text: str) -> str:
        """Return a content of the same length in which no special token can be found.

        >>> SpelledTokens(["<|end|>"]).hide("d|> an <|end|>").encode("ascii", "replace")
        b'??? an ???????'
        """
        if any(map(text.__contains__, self._prefixes)):
            text = self._compiled.sub(_cover, text)
        if found := self._end.match(text):
            text = _cover(found) + text[found.end() :]
        if found := self._start.search(text, max(0, len(text.rstrip()) - self._max_length)):
            text = text[: found.start()] + _cover(found)
        return text


def _cover(found: re.Match[str]) -> str:
    return HIDEABLE.sub(lambda character: _hide(character[0]), found[0])


def _hide(character: str) -> str:
    """Return a private character, the same for the same one, since names must stay different."""
    return chr(0xE000 + ord(character) % 0x1900)


def _change_content(conversation: Conversation, change: Callable[[str], str]) -> Conversation:
    """Return a copy of a conversation with each content changed."""

    def visit(value: Any, *, is_name: bool = False) -> Any:
        if isinstance(value, str):
            return value if is_name and PLAIN.fullmatch(value) else change(value)
        if isinstance(value, dict):
            return {
                visit(key, is_name=True): visit(item, is_name=key == "role")
                for key, item in value.items()
            }
        return [visit(item) for item in value] if isinstance(value, list | tuple) else value

    messages, tools = conversation
    return visit(messages), visit(tools)
