"""Fixtures of the tests that are bound to private names, and the path to their helpers."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

INNER = Path(__file__).parent
sys.path[:0] = [str(INNER), str(INNER / "campaigns")]

from here import HERE  # noqa: E402

from seqpack_cli.tokens.options import TokenizeOptions  # noqa: E402
from seqpack_cli.tokens.tokenize_run import tokenize  # noqa: E402


@pytest.fixture
def byte_store(tmp_path: Path) -> Callable[..., Path]:
    """Build a token store from texts, with the byte tokenizer unless options say otherwise.

    `byte_store(["ab", ""], name="other", part_bytes=10)` returns the folder of the store. Texts may
    contain anything: they are written as JSON lines.
    """

    def build(texts: Sequence[str], *, name: str = "store", **options: Any) -> Path:
        corpus = tmp_path / f"{name}.jsonl"
        lines = [json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts]
        corpus.write_bytes("".join(lines).encode())
        tokenize([str(corpus)], tmp_path / name, TokenizeOptions(**options), executor=HERE)
        return tmp_path / name

    return build
