"""The encoder that a command loads before its run is the one that the run uses."""

from __future__ import annotations

from pathlib import Path

import pytest
from seqpack_cli.tokens.encoders.early_start import start_early

from seqpack_cli.runs.workers import Executor
from seqpack_cli.tokens.encoders import agreement

pytest.importorskip("fastokens")


@pytest.mark.parametrize(
    ("tokenizer", "num_workers", "is_started"),
    [("tokenizer.json", None, True), ("tokenizer.json", 2, False), ("missing.json", None, False)],
)
def test_an_encoder_is_loaded_early_if_this_process_may_use_it(
    tmp_path: Path, tokenizer: str, num_workers: int | None, is_started: bool
) -> None:
    content = (Path(__file__).parents[2] / "sample_data" / "tokenizer.json").read_bytes()
    (tmp_path / "tokenizer.json").write_bytes(content)
    agreement.start_loading.cache_clear()
    executor = Executor(num_workers=num_workers)
    start_early(
        [], str(tmp_path / tokenizer), "fastokens", allow_special_tokens=False, executor=executor
    )
    agreement.start_loading("fastokens", content, False)
    assert agreement.start_loading.cache_info().hits == is_started
    agreement.start_loading.cache_clear()
