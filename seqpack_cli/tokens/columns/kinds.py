"""The kinds of columns by their names."""

from __future__ import annotations

from seqpack_cli.tokens.columns.class_kind import CLASS
from seqpack_cli.tokens.columns.kind import Kind
from seqpack_cli.tokens.columns.number_kinds import FLOAT, INT
from seqpack_cli.tokens.columns.tags_kind import TAGS
from seqpack_cli.tokens.columns.targets_kind import TARGETS
from seqpack_cli.tokens.columns.text_kind import TEXT

FIELD_KINDS: dict[str, Kind] = {kind.name: kind for kind in (INT, FLOAT, CLASS, TEXT, TAGS)}
KINDS: dict[str, Kind] = {**FIELD_KINDS, TARGETS.name: TARGETS}
