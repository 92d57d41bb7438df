"""Tell the special tokens of a chat template from those that a message spells.

Content is every string of the messages and tools, and the names of fields, except plain words as
names and roles: templates make tokens such as <|user|> from a role. Most conversations are
done after a search of their JSON, 3 µs, or of their content, 20 µs. Others are rendered again with
their content replaced by private characters, one for one: a special token that is still spelled is
the template's own. One of nothing but white space and quotes is not told apart.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import numpy as np

from seqpack_cli.corpus.fields import BadRecordError
from seqpack_cli.errors import quote
from seqpack_cli.tokens.spelled_tokens import compile_tokens, list_prefixes
from seqpack_cli.tokens.target_text import Span

PLAIN = re.compile(r"[\w $@.:/-]*")  # a role, or the name of a field, that is not content
BMP, PLANE_15, PLANE_16 = 0x10000, 0xF0000, 0x100000
Change = Callable[[str], str]
Conversation = tuple[list[dict[str, Any]], list[Any] | None]  # messages and tools


class _Placeholders(dict[int, int]):
    """A private character for each character, except those that decide how a text is cut.

    Templates strip white space, and write quotes, backslashes and control characters in JSON
    longer than they are. Different characters stay different in the plane of common ones.
    """

    def __missing__(self, code: int) -> int:
        if code >= BMP:
            return PLANE_16 + code % BMP  # not kept here: there are a million
        is_kept = (
            chr(code).isspace() or chr(code) in "\"'\\" or unicodedata.category(chr(code)) == "Cc"
        )
        self[code] = code if is_kept else PLANE_15 + code
        return self[code]


PLACEHOLDERS = _Placeholders()


class SpelledContent:
    """Finds special tokens in content, for one chat template.

    Args:
        special_tokens: of the tokenizer.
        literals: the texts in the template: whether it makes tokens around content is seen there.
    """

    def __init__(self, special_tokens: Iterable[str], literals: Iterable[str]) -> None:
        tokens = sorted(filter(None, set(special_tokens)))
        self._compiled = compile_tokens(tokens)
        self._prefixes = list_prefixes(tokens)
        self._joined = "\0".join(tokens)
        self._beginnings = {token[:end] for token in tokens for end in range(1, len(token))}
        self._ends = {token[start:] for token in tokens for start in range(1, len(token))}
        self._max_length = max(map(len, tokens), default=1) - 1
        self._first = sorted({token[0] for token in tokens})
        self._last = sorted({token[-1] for token in tokens})
        begins, ends = False, False
        for literal in literals:
            begins |= self._find_beginning(literal.rstrip()) > 0
            ends |= self._find_end(literal.lstrip()) > 0
        self._encloses = begins and ends  # as in '<|' + name + '|>'
        is_escaped = any(json.dumps(token, ensure_ascii=False)[1:-1] != token for token in tokens)
        marks = {*self._prefixes, *self._first, *self._last}
        marks = {""} if self._encloses or is_escaped else marks
        self._marks = [mark.encode() for mark in sorted(marks)]

    def list_content(self, conversation: Conversation, canonical: bytes) -> list[str]:
        """Return the content, if a special token or a part of one at a border is spelled in it."""
        if not any(map(canonical.__contains__, self._marks)):
            return []
        content = list_content(conversation)
        if not self._encloses and not self._may_risk(content):
            return []
        return content if any(map(self._find_risks, content)) else []

    def _may_risk(self, content: list[str]) -> bool:
        """Search all content at once, for what most conversations do not have."""
        length = self._max_length
        heads = "\0".join([text.lstrip()[:length] for text in content])
        tails = "\0".join([text.rstrip()[-length:] for text in content])
        return (
            any(map(heads.__contains__, self._last))
            or any(map(tails.__contains__, self._first))
            or any(map("\0".join(content).__contains__, self._prefixes))
        )

    def find(self, text: str) -> tuple[Span, ...]:
        """Return the places of the special tokens in a text."""
        return tuple(found.span() for found in self._compiled.finditer(text))

    def find_own(
        self, text: str, conversation: Conversation, render: Callable[[Conversation], str]
    ) -> tuple[Span, ...] | None:
        """Return the places of the template's own special tokens; None if they are all there are.

        Args:
            text: of the conversation.
            render: returns the text of a changed conversation.

        Raises:
            BadRecordError: what the template does depends on the content too much.
        """
        found = self.find(text)
        if not found:
            return None
        for change in (_hide, self._hide_risks):
            try:
                hidden = render(change_content(conversation, change))
            except BadRecordError:
                continue
            if _agrees(hidden, text):
                own = self.find(hidden)
                return None if own == found else own
        start, end = found[0]
        raise BadRecordError(
            f"messages: a special token such as {quote(text[start:end])} is spelled in them, and "
            "the chat template looks into them, so its own special tokens cannot be told apart",
            hint="pass --allow-special-tokens, and those in messages become ids too",
        )

    def _find_risks(self, text: str) -> list[Span]:
        """Return the places of special tokens in a content, and of parts of them at its borders."""
        risks = []
        for prefix in self._prefixes:  # `any` would take longer than the search
            if prefix in text:
                risks = [found.span() for found in self._compiled.finditer(text)]
                break
        stripped = text.strip()
        at_begin, at_end = self._find_end(stripped), self._find_beginning(stripped)
        if self._encloses and len(stripped) <= self._max_length and stripped in self._joined:
            at_begin = len(stripped)
        if at_begin or at_end:
            first = len(text) - len(text.lstrip())
            end = first + len(stripped)
            risks += [(first, first + at_begin), (end - at_end, end)]
        return risks

    def _find_beginning(self, text: str) -> int:
        """Return the length of the longest beginning of a special token that ends a text."""
        tail = text[max(0, len(text) - self._max_length) :]
        longest = 0
        for mark in self._first:
            place = tail.find(mark)
            while place >= 0 and tail[place:] not in self._beginnings:
                place = tail.find(mark, place + 1)
            if place >= 0:
                longest = max(longest, len(tail) - place)
        return longest

    def _find_end(self, text: str) -> int:
        """Return the length of the longest end of a special token that begins a text."""
        head = text[: self._max_length]
        longest = 0
        for mark in self._last:
            length = head.rfind(mark) + 1
            while length > 0 and head[:length] not in self._ends:
                length = head.rfind(mark, 0, length - 1) + 1
            if length > longest:
                longest = length
        return longest

    def _hide_risks(self, text: str) -> str:
        for start, end in self._find_risks(text):
            text = text[:start] + _hide(text[start:end]) + text[end:]
        return text


def list_content(conversation: Conversation) -> list[str]:
    """Return the content of a conversation: what `change_content` changes."""
    content: list[str] = []

    def visit(value: Any) -> None:
        if isinstance(value, str):
            content.append(value)
        elif isinstance(value, dict):
            content.extend(key for key in value if not _is_plain(key))
            for item in value.values():
                visit(item)
        elif isinstance(value, list | tuple):
            for item in value:
                visit(item)

    messages, tools = conversation
    for message in messages:
        for key, item in message.items():
            if not _is_plain(key):
                content.append(key)
            if key != "role" or not _is_plain(item):
                content.append(item) if type(item) is str else visit(item)
    visit(tools)
    return content


def change_content(conversation: Conversation, change: Change) -> Conversation:
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


def _hide(text: str) -> str:
    return text.translate(PLACEHOLDERS)


def _agrees(hidden: str, text: str) -> bool:
    """Return whether a text with hidden content is the text, except where it is hidden."""
    if len(hidden) != len(text):
        return False
    codes, originals, privates = (
        np.frombuffer(each.encode("utf-32-le", "surrogatepass"), "<u4")
        for each in (hidden, text, _hide(text))
    )
    return bool(((codes == originals) | (codes == privates)).all())
