"""Exports of many Parquet files: with files of at most some kilobytes, which no option sets."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from shard_reference import make_store, make_texts

from seqpack_cli import export
from seqpack_cli.limits import LIMITS
from seqpack_cli.shards import export as module


def test_parquet_files_have_at_most_a_number_of_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LIMITS, "ids_per_export", 100)
    monkeypatch.setattr(module, "MAX_FILE_BYTES", 5000)
    path = make_store(tmp_path, make_texts([40] * 60))
    found = export(path, tmp_path / "out")
    files = sorted((tmp_path / "out").iterdir())
    assert found["files"] == [str(file) for file in files]
    assert len(files) > 2
    assert max(file.stat().st_size for file in files) < 9_000  # with the footer
    rows = [row for file in files for row in pq.read_table(file).to_pylist()]
    assert (len(rows), sum(len(row["input_ids"]) for row in rows)) == (60, found["num_tokens"])
    assert export(path, tmp_path / "out", overwrite=True)["files"] == found["files"]
