"""Start to load the encoder of a command while the command's other modules are imported."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from seqpack_cli.errors import SeqpackError
from seqpack_cli.files.inputs import Input
from seqpack_cli.runs.workers import Executor
from seqpack_cli.tokens.encoders.agreement import start_loading
from seqpack_cli.tokens.encoders.encoder import CHECKED, choose_encoder
from seqpack_cli.tokens.vocabulary import BYTES

MAX_BYTES = 64 << 20  # of input that this process encodes itself


def start_early(
    inputs: Sequence[str],
    tokenizer: str,
    wanted: str,
    *,
    allow_special_tokens: bool,
    executor: Executor,
) -> None:
    """Start to load the fast encoder of a local tokenizer.json, if this process may use it.

    The run finds it by the bytes of the tokenizer.json. Errors are left to the run as well.

    Args:
        wanted: the encoder, or "auto".
    """
    if executor.name != "local" or executor.num_workers not in (None, 1) or tokenizer == BYTES:
        return
    path = Path(tokenizer)
    with contextlib.suppress(OSError, ValueError, SeqpackError):
        files = [name for name in map(Path, inputs) if name.is_file()]
        num_bytes = sum(file.stat().st_size for file in files)
        if len(files) < len(inputs) or num_bytes > MAX_BYTES:
            return  # workers may encode a large folder, and load their own
        path = path / "tokenizer.json" if path.is_dir() else path
        tokenizer_json = Input(str(path)).read()
        if tokenizer_json is None:
            return
        name = choose_encoder(wanted, tokenizer_json, allow_special_tokens=allow_special_tokens)
        if name in CHECKED:
            start_loading(name, tokenizer_json, allow_special_tokens)
