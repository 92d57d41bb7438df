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
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from itertools import chain
from typing import Any, NoReturn

import jinja2
from blake3 import blake3
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from seqpack_cli.corpus.fields import SKIP_HINT, BadRecordError
from seqpack_cli.corpus.json_records import MAX_DEPTH, encode_canonical
from seqpack_cli.errors import (
    DataError,
    OptionError,
    SeqpackError,
    check_choice,
    join_items,
    quote,
)
from seqpack_cli.files.json_files import JSON_TYPES
from seqpack_cli.files.places import Place, suggest_name
from seqpack_cli.tokens.offsets import Span, TargetText
from seqpack_cli.tokens.special_tokens import TAKEN_SPACE, compile_tokens, list_prefixes
from seqpack_cli.tokens.tokenizer import (
    CONFIG,
    ROLES,
    TEMPLATES,
    TOKENS_MAP,
    TokenizerFiles,
    build_tokenizer,
    decode_file,
    describe_vocabulary,
    read_file,
    token_of,
)

FILE_HINT = "pass --chat-template FILE"
HINT = "pass a model's folder, or its name on the Hub, as --tokenizer, or --chat-template FILE"
SAVE_HINT = "open the tokenizer with transformers and save it with save_pretrained"
TEMPLATE_HINT = f"{SKIP_HINT}, or pass another --chat-template"
SHAREGPT_HINT = (
    "rename 'from' to 'role' and 'value' to 'content', and the roles human and gpt to user and "
    "assistant"
)
PARTIAL = "the chat template writes a part of a {% generation %} block, expected a whole one"
ASSISTANT = "assistant"
SHORT = [{"role": "user", "content": "?"}, {"role": ASSISTANT, "content": "!"}]
REASONING_FIELDS = ("reasoning_content", "thinking", "reasoning")
MAX_CHARACTERS = 1 << 28  # of a rendered conversation: a template may loop for hours
MAX_REASON = 200  # characters of a template's message
NUM_SHOWN = 24  # characters of a difference, so that both sides fit on a line
START, END = "seqpack_generation_start", "seqpack_generation_end"  # variables of the template
MARKS = ("\ufdd0", "\ufdd1")  # their values: noncharacters, which no text should have
DICT_ATTRIBUTES = frozenset(dir(dict))
PLAIN = re.compile(r"[\w $@.:/-]*")  # a role, or the name of a field, that is not content
HIDEABLE = re.compile(r"""[^\s"\\\x00-\x1f]""")  # all but what templates strip or escape
Conversation = tuple[list[dict[str, Any]], list[Any] | None]  # messages and tools


@dataclass(frozen=True)
class ChatSetup:
    """How conversations become texts: plain values, which are pickled for workers.

    Args:
        template: the source of the chat template, in Jinja.
        path: where it is from, for messages.
        variables: what it may use besides the conversation: bos_token, eos_token and so on.
        special_tokens: of the tokenizer; their ids are written by the template alone.
        target_turns: "all" assistant messages are targets, or only the "last".
        template_date: what strftime_now returns, as YYYY-MM-DD; without it, strftime_now fails.
        allow_special_tokens: special tokens spelled in content become ids too.
        tool_template: the template of conversations with tools, if it is another one.
        space_taking: the special tokens that include the white space after them.
        messages_field: what records call the messages.
        tools_field: what they call the tools; None if they have none.
    """

    template: str
    path: str
    variables: Mapping[str, str] = field(hash=False)
    special_tokens: tuple[str, ...]
    target_turns: str = "all"
    template_date: str | None = None
    allow_special_tokens: bool = False
    tool_template: str | None = None
    space_taking: tuple[str, ...] = ()
    messages_field: str = "messages"
    tools_field: str | None = None

    def __post_init__(self) -> None:
        check_choice("target_turns", self.target_turns, ("all", "last"))

    def describe(self) -> dict[str, Any]:
        """Return what decides the texts and their ids, as in the options of a manifest."""
        decisive = {
            "template": self.template,
            "tool_template": self.tool_template,
            "special_tokens": "\n".join(self.special_tokens),
        }
        digests = {
            f"{name}_blake3": None if source is None else blake3(source.encode()).hexdigest()
            for name, source in decisive.items()
        }
        return {**digests, "variables": dict(sorted(self.variables.items()))}


def find_chat_setup(
    tokenizer: TokenizerFiles, chat_template: Place | None, **options: Any
) -> ChatSetup:
    """Find what conversations are rendered with, and check that the templates compile.

    Both the template and the tokens that it may name are in files beside tokenizer.json, as
    transformers writes them. A chat_template.jinja replaces those in tokenizer_config.json.

    Args:
        tokenizer: read with its templates.
        chat_template: a file to use instead of the tokenizer's own template.
        options: of the `ChatSetup`, what files do not say.

    Raises:
        OptionError: there is no chat template, or no such file.
        DataError: a template or a file beside the tokenizer cannot be read.
    """
    tokenizer_json = tokenizer.tokenizer_json
    if chat_template is None:
        templates = _list_templates(tokenizer)
    elif (content := read_file(chat_template)) is not None:
        path = str(chat_template)
        templates = {"default": (decode_file(content, path), path)}
    else:
        what = f"{chat_template}: no such file{suggest_name(chat_template)}"
        raise OptionError(what, hint=FILE_HINT)
    if "default" not in templates:
        others = f" (found: only {join_items(map(quote, templates))})" if templates else ""
        raise OptionError(f"{tokenizer.name}: no chat template{others}", hint=HINT)
    vocabulary = build_tokenizer(tokenizer_json, allow_special_tokens=False)
    variables = tokenizer.named_tokens
    if tokenizer.beside.keys().isdisjoint((CONFIG, TOKENS_MAP)):
        roles = describe_vocabulary(tokenizer_json)
        ids = {token_of(role): getattr(roles, role) for role in ROLES}
        variables = {
            name: str(vocabulary.id_to_token(id_)) for name, id_ in ids.items() if id_ is not None
        }
    added = [token for _, token in sorted(vocabulary.get_added_tokens_decoder().items())]
    named = {*tokenizer.special_tokens, *variables.values()}
    special = [token for token in added if token.special or token.content in named]
    setup = ChatSetup(
        *templates["default"],
        variables=variables,
        special_tokens=tuple(token.content for token in special),
        space_taking=tuple(token.content for token in special if token.rstrip),
        tool_template=templates.get("tool_use", (None, ""))[0],
        **options,
    )
    for name in templates.keys() & {"default", "tool_use"}:
        source, path = templates[name]
        literals = ChatTemplate(replace(setup, template=source, path=path)).literals
        missing = tokenizer.find_missing({token.content for token in added}, source, literals)
        if missing is not None:
            raise DataError(
                f"{tokenizer.folder}/tokenizer.json: no added token {quote(missing)}, expected "
                f"one, because {CONFIG} or {TOKENS_MAP} names it and the chat template {path} "
                "writes it",
                hint=SAVE_HINT,
            )
    return setup


def _list_templates(tokenizer: TokenizerFiles) -> dict[str, tuple[str, str]]:
    """Return the templates of a tokenizer by their names: the source of each, and its path."""
    found = {
        name: (tokenizer.read_text(file), f"{tokenizer.folder}/{file}")
        for name, file in zip(("default", "tool_use"), TEMPLATES, strict=True)
        if file in tokenizer.beside
    }
    if found:
        return found
    path = f"{tokenizer.folder}/{CONFIG}: chat_template"
    value = given = tokenizer.settings.get("chat_template")
    if isinstance(value, str):
        return {"default": (value, path)}
    if isinstance(value, list):
        value = {it.get("name"): it.get("template") for it in value if isinstance(it, dict)}
    if value is None:
        return {}
    if not isinstance(value, dict) or {*map(type, chain.from_iterable(value.items()))} - {str}:
        raise DataError(
            f"{path}: {quote(given)}, expected a template, or a list of named templates"
        )
    return {name: (source, f"{path} {quote(name)}") for name, source in value.items()}


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


class _Dict:
    """The type dict as a template may use it: as a function."""

    def __call__(self, *args: Any, **fields: Any) -> dict[Any, Any]:
        return dict(*args, **fields)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args)


class _Namespace(Namespace):
    """A namespace without underscored names, which lead to what Python keeps for itself."""

    def __init__(*args: Any, **fields: Any) -> None:  # a field may be called self
        namespace, *others = args
        values = dict(*others, **fields)
        for name in values:
            _check_name(name)
        Namespace.__init__(namespace, values)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"a namespace cannot have the field {name!r}")


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _to_json(
    x: Any,
    ensure_ascii: bool = False,
    indent: Any = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _open_environment(path: str, template_date: str | None) -> jinja2.Environment:
    """Return the environment of templates, as transformers makes it, but with a fixed date."""

    def strftime_now(pattern: str) -> str:
        if template_date is None:
            raise OptionError(
                f"{path}: the chat template writes the current date (strftime_now), expected a "
                "date that is the same in each run",
                hint="pass --template-date YYYY-MM-DD",
            )
        return datetime.fromisoformat(template_date).strftime(pattern)

    environment = _Environment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlocks, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals |= {
        "raise_exception": _raise_exception,
        "strftime_now": strftime_now,
        "dict": _Dict(),
        "namespace": _Namespace,
    }
    return environment


class ChatTemplate:
    """The compiled chat template of a setup."""

    def __init__(self, setup: ChatSetup) -> None:
        """Compile a template.

        Raises:
            DataError: it is not a Jinja template; the message has the line.
        """
        self._path = path = setup.path
        environment = _open_environment(path, setup.template_date)
        try:
            tree = environment.parse(setup.template)
            code = environment.compile(tree)
        except jinja2.TemplateSyntaxError as error:
            found = str(error.message).rstrip(".")
            raise DataError(f"{path}:{error.lineno}: {found}, expected a Jinja template") from error
        except Exception as error:  # nested too deeply, or a break outside a loop
            raise DataError(f"{path}: {_spell(error)}, expected a Jinja template") from error
        self._template = jinja2.Template.from_code(environment, code, dict(environment.globals))
        self._variables = {**environment.globals, "documents": None, **setup.variables}
        self.has_blocks = _has_blocks(tree)
        # The text of a block may become a value, which filters change.
        kinds = (nodes.Macro, nodes.CallBlock, nodes.AssignBlock, nodes.FilterBlock, nodes.Block)
        captures = [*tree.find_all(kinds), *(f for f in tree.find_all(nodes.For) if f.recursive)]
        self._is_captured = any(map(_has_blocks, captures))
        self.literals = [
            *(data.data for data in tree.find_all(nodes.TemplateData)),
            *(c.value for c in tree.find_all(nodes.Const) if isinstance(c.value, str)),
        ]

    def render_blocks(self, messages: list[Any], tools: Any) -> tuple[str, list[Span]]:
        """Return the text of a conversation, and the places of the generation blocks in it.

        Raises:
            BadRecordError: see `render`; or the template changes a block that it has captured.
        """
        text, blocks = _take_blocks(self.render(messages, tools, marks=MARKS))
        if self._is_captured and text != self.render(messages, tools):
            raise BadRecordError(
                f"the chat template {self._path} changes the text of a {{% generation %}} block "
                "after it is rendered, expected a block that is written as it is",
                SKIP_HINT,
            )
        return text, blocks

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
            **dict(zip((START, END), marks, strict=True)),
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
            line, trace = "", error.__traceback__
            while trace is not None:
                if trace.tb_frame.f_code.co_filename == "<template>":
                    line = f":{self._template.get_corresponding_lineno(trace.tb_lineno)}"
                trace = trace.tb_next
            what = f"the chat template {self._path}{line} failed: {_spell(error)}"
            raise BadRecordError(what, TEMPLATE_HINT) from error
        return text


def _spell(error: Exception) -> str:
    return " ".join(str(error).split())[:MAX_REASON] or type(error).__name__


def _take_blocks(marked: str) -> tuple[str, list[Span]]:
    """Return a text without the marks of blocks, and the outermost blocks.

    Raises:
        BadRecordError: a block has no end, or no beginning.

    >>> _take_blocks("a<b<c>d>e<>".translate({60: MARKS[0], 62: MARKS[1]}))
    ('abcde', [(1, 4), (5, 5)])
    """
    texts: list[str] = []
    blocks: list[Span] = []
    position = depth = first = 0
    for piece in re.split(f"([{''.join(MARKS)}])", marked):
        if piece not in MARKS:
            texts.append(piece)
            position += len(piece)
            continue
        first = first if depth else position
        depth += 1 if piece == MARKS[0] else -1
        if depth < 0:
            break
        if depth == 0:
            blocks.append((first, position))
    if depth:
        raise BadRecordError(PARTIAL)
    return "".join(texts), blocks


# Conversations


class Renderer:
    """Renders conversations with one setup."""

    def __init__(self, setup: ChatSetup) -> None:
        """Compile the templates; raises DataError if one is not a Jinja template."""
        self._setup = setup
        self.template = self._tool_template = ChatTemplate(setup)
        if setup.tool_template is not None:
            path = f"{setup.path} (tool_use)"
            other = replace(setup, template=setup.tool_template, path=path)
            self._tool_template = ChatTemplate(other)
        self._spelled = SpelledTokens(setup.special_tokens)

    def render(self, messages: Any, tools: Any = None) -> TargetText:
        """Return the text of a conversation, and the targets in it.

        Args:
            messages: a list of objects, each with a `role`.
            tools: None, or a list of objects.

        Raises:
            BadRecordError: they are something else, or the template refuses or fails to render
                them, or it cannot be told what the assistant writes.
        """
        setup = self._setup
        template = self.template if tools is None else self._tool_template
        _check_conversation(setup, messages, tools)
        if None in chain.from_iterable(map(dict.values, messages)):
            messages = [
                {name: value for name, value in message.items() if value is not None}
                for message in messages
            ]
        canonical = _encode_conversation(setup, messages, tools)
        prepared = _name_thoughts(messages)
        if template.has_blocks:
            if any(mark.encode() in canonical for mark in MARKS):
                raise BadRecordError(
                    f"{setup.messages_field}: a noncharacter, U+FDD0 or U+FDD1, expected none, "
                    "since they mark {% generation %} blocks"
                )
            text, spans = _find_blocks(template, prepared, tools, setup.target_turns)
        else:
            text, spans = _find_turns(template, prepared, tools, setup.target_turns)
        special, spelled = None, ""
        if self._spelled.may_be_in(canonical):
            special, spelled = self._find_special(text, (messages, tools), template)
        targets: list[Span] = []  # apart from each other, none empty
        for span in spans:
            start, end = self._fit_end(*span, text, special, is_block=template.has_blocks)
            if targets and start <= targets[-1][1]:
                targets[-1] = targets[-1][0], max(targets[-1][1], end)
            elif start < end:
                targets.append((start, end))
        return TargetText(text, tuple(targets), canonical, special, spelled)

    def _find_special(
        self, text: str, conversation: Conversation, template: ChatTemplate
    ) -> tuple[tuple[Span, ...] | None, str]:
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
        if self._setup.allow_special_tokens or not found:
            return None, spelled
        try:
            hidden = template.render(_name_thoughts(messages), tools)
        except BadRecordError:
            hidden = ""
        if len(hidden) != len(text) or any(
            a not in (b, _hide(b)) for a, b in zip(hidden, text, strict=True)
        ):
            typed = "".join(a for a, b in zip(*changed[0], strict=True) if a != b)
            raise BadRecordError(
                f"{self._setup.messages_field}: {quote(typed)} spells a special token, or a part "
                "of one, and the chat template looks into messages, so that its own cannot be "
                "told apart",
                "pass --allow-special-tokens, and those in messages become ids too",
            )
        own = self._spelled.find(hidden)
        return None if own == found else own, spelled

    def _fit_end(
        self,
        start: int,
        end: int,
        text: str,
        special: tuple[Span, ...] | None,
        *,
        is_block: bool,
    ) -> Span:
        """Return a span that ends where a special token ends, if it does so but for white space.

        Nothing writes the white space after it, but some tokens include it.
        """
        last = end if is_block else start + len(text[start:end].rstrip())
        if special is None:
            is_token = text.endswith(self._setup.special_tokens, start, last)
        else:
            is_token = any(start <= first and stop == last for first, stop in special)
        if not is_token:
            return start, end
        found = TAKEN_SPACE.match(text, last)
        takes_space = text.endswith(self._setup.space_taking, start, last)
        return start, found.end() if found and takes_space else last


@lru_cache(maxsize=4)
def open_renderer(setup: ChatSetup) -> Renderer:
    """Return the renderer of a setup, made once in each process; see `Renderer`."""
    return Renderer(setup)


def writes_special(setup: ChatSetup) -> bool:
    """Return whether the template writes a special token around a question and its answer.

    True if it refuses them, so that it cannot be told.
    """
    try:
        text = open_renderer(setup).template.render(SHORT, None)
    except (BadRecordError, OptionError):
        return True
    return any(token in text for token in setup.special_tokens)


def _check_conversation(setup: ChatSetup, messages: Any, tools: Any) -> None:
    """Raise BadRecordError unless messages are objects with a role, and tools are objects."""

    def name(value: Any) -> str:
        return JSON_TYPES.get(type(value), type(value).__name__)

    given = [] if tools is None else tools
    both = ((setup.messages_field, "message", messages), (setup.tools_field, "tool", given))
    for names, one, values in both:
        if type(values) is not list:
            raise BadRecordError(f"{names}: {name(values)}, expected a list")
        for number, value in enumerate(values, 1):
            if type(value) is not dict:
                raise BadRecordError(f"{one} {number:,}: {name(value)}, expected an object")
    for number, message in enumerate(messages, 1):
        role = message.get("role")
        if type(role) is not str:
            found = f"field 'role' is {name(role)}, expected a string"
            if "role" not in message:
                found = f"no field 'role' (found: {join_items(map(quote, message)) or 'none'})"
            hint = SHAREGPT_HINT if message.keys() >= {"from", "value"} else SKIP_HINT
            raise BadRecordError(f"message {number:,}: {found}", hint)


def _encode_conversation(setup: ChatSetup, messages: list[Any], tools: list[Any] | None) -> bytes:
    """Return JSON that is the same for equal conversations.

    Raises:
        BadRecordError: they have what JSON does not have, or are nested too deeply.
    """
    record = {"messages": messages} if tools is None else {"messages": messages, "tools": tools}
    try:
        return encode_canonical(record)
    except (RecursionError, TypeError, ValueError) as error:
        if isinstance(error, RecursionError):
            what = f"nested more than {MAX_DEPTH} levels deep"
        elif isinstance(error, UnicodeEncodeError):
            found = f"\\u{ord(error.object[error.start]):04x}"
            what = f"lone surrogate {found}, expected Unicode text"
        elif isinstance(error, ValueError):
            what = "NaN or an infinite number, expected JSON"
        else:
            what = f"{error}, expected JSON"
        if tools is not None:
            _encode_conversation(setup, messages, None)  # raises if they are at fault
        place = setup.messages_field if tools is None else setup.tools_field
        raise BadRecordError(f"{place}: {what}") from error


def _name_thoughts(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return messages in which what a model thought has the two names that templates read."""
    if set().union(*messages).isdisjoint(REASONING_FIELDS):
        return messages

    def name_thought(message: dict[str, Any]) -> dict[str, Any]:
        for name in REASONING_FIELDS:
            if name in message:
                thought = message[name]
                return {"thinking": thought, **message, "reasoning_content": thought}
        return message

    return list(map(name_thought, messages))


# What the assistant writes


def _find_blocks(
    template: ChatTemplate, messages: list[dict[str, Any]], tools: Any, target_turns: str
) -> tuple[str, list[Span]]:
    """Return the text and its generation blocks, or those of the last assistant message.

    Those are the blocks that the text has more than the text of the messages before it, and at
    least the last one: a template may join messages to one block.
    """
    text, blocks = template.render_blocks(messages, tools)
    if target_turns == "last" and len(blocks) > 1:
        turns = [at for at, message in enumerate(messages) if message["role"] == ASSISTANT]
        before = messages[: turns[-1]] if turns else messages
        num_before = len(template.render_blocks(before, tools)[1])
        blocks = blocks[min(num_before, len(blocks) - 1) :]
    return text, blocks


def _find_turns(
    template: ChatTemplate, messages: list[dict[str, Any]], tools: Any, target_turns: str
) -> tuple[str, list[Span]]:
    """Return the text and the place of each assistant message in it, or of the last.

    An assistant message begins where the messages before it end, with the generation prompt behind
    them, and ends where it is the last one. That holds only if both are beginnings of the text.

    Raises:
        BadRecordError: the template renders a beginning of the conversation differently.
    """
    text = template.render(messages, tools)
    turns = [at for at, message in enumerate(messages) if message["role"] == ASSISTANT]
    hint = "pass a --chat-template with {% generation %} blocks"
    if target_turns == "last":
        turns = turns[-1:]
    elif len(turns) > 1:
        hint = f"pass --target-turns last, or {hint.removeprefix('pass ')}"

    def measure(at: int, num_messages: int, has_prompt: bool) -> int:
        some = messages[:num_messages]
        try:
            beginning = template.render(some, tools, add_generation_prompt=has_prompt)
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


# Special tokens that messages spell


class SpelledTokens:
    """Finds and hides special tokens, and parts of one at the borders of a message's content.

    Content is every string of the messages and tools, and the names of fields, except plain words
    as names and roles: templates make tokens such as <|user|> from a role.
    """

    def __init__(self, special_tokens: Iterable[str]) -> None:
        tokens = sorted(filter(None, set(special_tokens)))
        self._compiled = compile_tokens(tokens)
        self._prefixes = list_prefixes(tokens)
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

    def find(self, text: str) -> tuple[Span, ...]:
        """Return the places of the special tokens in a text."""
        return tuple(found.span() for found in self._compiled.finditer(text))

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

    def visit(value: Any) -> Any:
        if isinstance(value, str):
            return change(value)
        if isinstance(value, dict):
            return {name(key): visit(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [visit(item) for item in value]
        return value

    def name(key: Any) -> Any:
        return key if _is_plain(key) else change(key)

    messages, tools = conversation
    changed = [
        {name(key): name(item) if key == "role" else visit(item) for key, item in message.items()}
        for message in messages
    ]
    return changed, visit(tools)


@lru_cache(maxsize=1024)
def _is_plain(name: Any) -> bool:
    return not isinstance(name, str) or PLAIN.fullmatch(name) is not None
