"""The kinds of columns by the names that `--keep FIELD:TYPE` has for them."""

from __future__ import annotations

from seqpack_cli.tokens.columns.class_kind import CLASS
from seqpack_cli.tokens.columns.kind import Kind
from seqpack_cli.tokens.columns.number_kinds import FLOAT, INT
from seqpack_cli.tokens.columns.tags_kind import TAGS
from seqpack_cli.tokens.columns.text_kind import TEXT

KINDS: dict[str, Kind] = {kind.name: kind for kind in (INT, FLOAT, CLASS, TEXT, TAGS)}
