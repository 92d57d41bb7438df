from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command import check_refused, run


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("ab\n\nlong one\n")
    run("tokenize", tmp_path / "a.txt", "-o", tmp_path / "tokens", "--max-length", 5)
    return tmp_path / "tokens"


def test_export_says_what_it_wrote(tokens: Path) -> None:
    out = tokens.parent / "out"
    result = run("export", tokens, "-o", out)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == f"{out}: 3 rows, 10 tokens, 1 file\n"
    result = run("export", tokens, "-o", out, "--to", "megatron")
    assert result.stdout == f"{out}: 3 documents, 3 sequences, 10 tokens, 2 files\n"
    result = run("export", tokens, "-o", f"{out}.bin", "--to", "nanogpt", "--eos", 7, "--overwrite")
    assert result.exit_code == 4  # the ids of the indexed dataset
    result = run("export", tokens, "-o", f"{out}.u16", "--to", "nanogpt", "--eos", 7, "--json")
    assert json.loads(result.stdout) == {
        **{"format": "nanogpt", "num_documents": 2, "num_tokens": 12, "num_end_tokens_added": 2},
        **{"num_end_tokens_inside": 0, "files": [f"{out}.u16"]},
        "record": f"{out}.u16.export.json",
    }
    assert np.fromfile(f"{out}.u16", "<u2").tolist() == [*b"ab\7long one\7"]


def test_export_refuses_options_of_other_formats(tokens: Path) -> None:
    result = run("export", tokens, "-o", tokens.parent / "out", "--eos", 7)
    hint = "hint: leave out --eos, or pass --to nanogpt"
    check_refused(result, 2, "--eos has no effect on --to parquet", hint)


def test_export_refuses_all_splits_at_once(tokens: Path) -> None:
    splits = tokens.parent / "splits"
    assert run("pack", tokens, "--split", "a=0.5,b=rest", "-o", splits).exit_code == 0
    result = run("export", splits, "-o", tokens.parent / "out")
    assert result.exit_code == 4
    assert f"hint: these are splits: name one of them, such as {splits / 'a'}" in result.stderr
    assert run("export", splits / "a", "-o", tokens.parent / "out").exit_code == 0


def test_prefix_of_an_indexed_dataset_has_no_suffix(tokens: Path) -> None:
    out = tokens.parent / "out"
    result = run("export", tokens, "-o", f"{out}.idx", "--to", "megatron")
    check_refused(
        result, 2, f"{out}.idx: names a file, expected the prefix of two", f"hint: -o {out}"
    )
