"""Find the chat template of a tokenizer, and the tokens that it may name, as transformers does.

Both are in files beside tokenizer.json: see `tokenizer_config`. A chat_template.jinja replaces
the templates in tokenizer_config.json.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from seqpack_cli.errors import DataError, OptionError, join_items, quote
from seqpack_cli.files.places import Place, suggest_name
from seqpack_cli.tokens.chat.chat_setup import ChatSetup
from seqpack_cli.tokens.chat.renderer import compile_template
from seqpack_cli.tokens.roles import ROLES, token_of
from seqpack_cli.tokens.tokenizer_config import (
    CONFIG,
    TOKENS_MAP,
    decode_file,
    find_missing,
    find_variables,
    list_special,
    merge_files,
    parse_file,
    read_file,
    read_files,
)
from seqpack_cli.tokens.vocabulary import (
    build_tokenizer,
    describe_vocabulary,
    read_tokenizer_json,
)

if TYPE_CHECKING:
    from tokenizers import AddedToken

TEMPLATE, TOOL_TEMPLATE = "chat_template.jinja", "additional_chat_templates/tool_use.jinja"
OPTIONAL = (TOKENS_MAP, TEMPLATE, TOOL_TEMPLATE)
FILE_HINT = "pass --chat-template FILE"
HINT = "pass a model's folder, or its name on the Hub, as --tokenizer, or --chat-template FILE"
SAVE_HINT = "open the tokenizer with transformers and save it with save_pretrained"
Found = tuple[str, str]  # the source of a template, and where it is from


def find_chat_setup(
    tokenizer: str,
    chat_template: Place | None = None,
    *,
    target_turns: str = "all",
    template_date: str | None = None,
    allow_special_tokens: bool = False,
) -> ChatSetup:
    """Find what conversations are rendered with, and check that the templates compile.

    Args:
        tokenizer: `bytes`, a tokenizer.json, a folder that contains one, or a name on the Hub.
        chat_template: a file to use instead of the tokenizer's own template.

    Raises:
        OptionError: there is no chat template, or no such file or tokenizer.
        DataError: a template or a file beside the tokenizer cannot be read.
        MachineError: jinja2 is missing, or the Hub cannot be reached.
    """
    tokenizer_json = read_tokenizer_json(tokenizer)
    files, place = read_files(tokenizer, CONFIG, *OPTIONAL)
    config, tokens_map = (parse_file(files, name, place) for name in (CONFIG, TOKENS_MAP))
    if chat_template is not None:
        templates = {"default": _read_template(chat_template)}
    else:
        templates = _find_templates(files, config, place)
    if "default" not in templates:
        others = f" (found: only {join_items(map(quote, templates))})" if templates else ""
        raise OptionError(f"{tokenizer}: no chat template{others}", hint=HINT)
    values = merge_files(config, tokens_map)
    variables = find_variables(values) or _find_roles(tokenizer_json, files)
    added = _list_added(tokenizer_json)
    named = {*list_special(values), *variables.values()}
    special = [token for token in added if token.special or token.content in named]
    setup = ChatSetup(
        *templates["default"],
        variables=variables,
        special_tokens=tuple(token.content for token in special),
        target_turns=target_turns,
        template_date=template_date,
        allow_special_tokens=allow_special_tokens,
        space_taking=tuple(token.content for token in special if token.rstrip),
    )
    _compile(setup, values, added, place)
    if tool_use := templates.get("tool_use"):
        _compile(replace(setup, template=tool_use[0], path=tool_use[1]), values, added, place)
        setup = replace(setup, tool_template=tool_use[0])
    return setup


def _list_added(tokenizer_json: bytes) -> list[AddedToken]:
    added = build_tokenizer(tokenizer_json, allow_special_tokens=False).get_added_tokens_decoder()
    return [token for _, token in sorted(added.items())]


def _compile(
    setup: ChatSetup, values: dict[str, Any], added: Iterable[AddedToken], place: str
) -> None:
    """Check that a template compiles, and that tokenizer.json has the tokens that it writes."""
    literals = compile_template(setup).literals
    contents = {token.content for token in added}
    missing = find_missing(values, contents, setup.template, literals)
    if missing is not None:
        raise DataError(
            f"{place}/tokenizer.json: no added token {quote(missing)}, expected one, because "
            f"{CONFIG} or {TOKENS_MAP} names it and the chat template {setup.path} writes it",
            hint=SAVE_HINT,
        )


def _read_template(path: Place) -> Found:
    content = read_file(path)
    if content is None:
        raise OptionError(f"{path}: no such file{suggest_name(path)}", hint=FILE_HINT)
    return decode_file(content, str(path)), str(path)


def _find_templates(
    files: dict[str, bytes], config: dict[str, Any], place: str
) -> dict[str, Found]:
    """Return the templates of a tokenizer by their names."""
    named = {"default": TEMPLATE, "tool_use": TOOL_TEMPLATE}
    found = {
        name: (decode_file(files[file], f"{place}/{file}"), f"{place}/{file}")
        for name, file in named.items()
        if file in files
    }
    if found:
        return found
    path = f"{place}/{CONFIG}: chat_template"
    value = config.get("chat_template")
    if isinstance(value, str):
        return {"default": (value, path)}
    if isinstance(value, list):
        value = {each.get("name"): each.get("template") for each in value if _is_object(each)}
    if value is None:
        return {}
    if not _is_object(value) or not all(
        isinstance(text, str) for pair in value.items() for text in pair
    ):
        raise DataError(
            f"{path}: {quote(config['chat_template'])}, expected a template, or a list of named "
            "templates"
        )
    return {name: (source, f"{path} {quote(name)}") for name, source in value.items()}


def _find_roles(tokenizer_json: bytes, files: dict[str, bytes]) -> dict[str, str]:
    """Return the special tokens of common names; none if there are files that name none."""
    if CONFIG in files or TOKENS_MAP in files:
        return {}
    vocabulary = describe_vocabulary(tokenizer_json)
    tokenizer = build_tokenizer(tokenizer_json, allow_special_tokens=False)
    named = {}
    for role in ROLES:
        id_ = getattr(vocabulary, role)
        if id_ is not None:
            named[token_of(role)] = str(tokenizer.id_to_token(id_))
    return named


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)
