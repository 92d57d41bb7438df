"""Chat templates in the styles that models use, written for these tests, and their tokenizer."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

TESTS = Path(__file__).parent
SAMPLE_TOKENIZER = TESTS.parent / "sample_data" / "tokenizer.json"
SPECIAL_TOKENS = (
    *("<pad>", "<bos>", "<eos>", "<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|eot_id|>"),
    *("<|start_header_id|>", "<|end_header_id|>", "<start_of_turn>", "<end_of_turn>"),
    *("[INST]", "[/INST]", "[TOOL_CALLS]", "<|user|>", "<|assistant|>", "<|end|>"),
)
SPACE_TAKING = ("<|user|>", "<|end|>")  # as in the tokenizer of Phi-3
VARIABLES = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}

FILES = sorted((TESTS / "data/templates").glob("*.jinja"))
TEMPLATES = {path.stem: path.read_text() for path in FILES}
CHATML, GEMMA, _, MISTRAL, PHI_3, QWEN_3 = TEMPLATES.values()


def without_blocks(template: str) -> str:
    """Return a template without its generation blocks, that writes the same text.

    An empty comment takes the place of each tag, and has its signs for white space.
    """
    return re.sub(r"{%(-?)\s*(?:end)?generation\s*(-?)%}", r"{#\1 \2#}", template)


@functools.cache
def chat_tokenizer() -> Tokenizer:
    """Return the sample tokenizer with SPECIAL_TOKENS."""
    tokenizer = Tokenizer.from_file(str(SAMPLE_TOKENIZER))
    tokenizer.add_special_tokens(
        [AddedToken(token, rstrip=token in SPACE_TAKING) for token in SPECIAL_TOKENS]
    )
    return tokenizer


def user(content: Any, **fields: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **fields}


def assistant(content: Any, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **fields}
