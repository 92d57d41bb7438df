"""The bound on values that a Parquet file stores once and repeats, and its use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command import run
from seqpack_cli.corpus.UNKNOWN_documents import iter_documents
from seqpack_cli.corpus.UNKNOWN_parquet_pages import (
    bound_length,
    find_first_page,
    read_dictionary_size,
)

from seqpack_cli.corpus.find_files import find_sources
from seqpack_cli.corpus.options import DocumentOptions
from seqpack_cli.corpus.parts import check_footers, plan_parts
from seqpack_cli.corpus.sources import Source
from seqpack_cli.errors import DataError
from seqpack_cli.limits import LIMITS

ABORTS = Path(__file__).parents[1] / "data" / "footer_that_aborts.parquet"
VALUE = "a" * 100_000


def write(path: Path, texts: list[str], **options: Any) -> Source:
    pq.write_table(pa.table({"other": texts, "text": texts}), path, **options)
    return find_sources([str(path)])[0][0]


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_dictionary_tells_the_size_of_what_rows_repeat(tmp_path: Path, compression: str) -> None:
    source = write(tmp_path / "a.parquet", [VALUE, "b"] * 50, compression=compression)
    group = pq.ParquetFile(source.path).metadata.row_group(0)
    chunk = group.column(1)
    assert read_dictionary_size(source, find_first_page(chunk)) == len(VALUE) + 1 + 2 * 4
    assert read_dictionary_size(source, chunk.data_page_offset) == 0
    assert bound_length(group, "text", source) == len(VALUE) + 9
    assert bound_length(group, "none", source) == 0


def test_column_without_a_dictionary_repeats_nothing(tmp_path: Path) -> None:
    source = write(tmp_path / "a.parquet", [VALUE] * 3, use_dictionary=False)
    group = pq.ParquetFile(source.path).metadata.row_group(0)
    assert bound_length(group, "text", source) == 0


def test_rows_that_share_their_beginning_may_all_be_as_long_as_the_chunk(tmp_path: Path) -> None:
    options = {"use_dictionary": False, "column_encoding": "DELTA_BYTE_ARRAY"}
    source = write(tmp_path / "a.parquet", [VALUE] * 3, **options)
    group = pq.ParquetFile(source.path).metadata.row_group(0)
    assert bound_length(group, "text", source) == group.column(1).total_uncompressed_size
    assert group.column(1).total_uncompressed_size > len(VALUE)


def test_long_value_is_decoded_a_few_rows_at_a_time_until_it_is_a_bomb(tmp_path: Path) -> None:
    """3 kB decode to 1,000 rows of 100 kB."""
    source = write(tmp_path / "a.parquet", [VALUE] * 2000, compression="zstd")
    (part,) = plan_parts([source], part_bytes=1 << 20)
    blocks = iter_documents(part[0], DocumentOptions(), lambda _: None)
    num_rows = 0
    with pytest.raises(DataError) as caught:
        for block in blocks:
            assert len(block.texts) * len(VALUE) <= 64 << 20
            num_rows += len(block.texts)
    expected = "expands to more than 256 times its compressed size, far more than text does"
    assert caught.value.message == f"{source.path}:{num_rows + 1}: {expected}"
    assert caught.value.hint == "if this is intended, write its text to another file"


def test_footer_that_crashes_pyarrow_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LIMITS, "footer_workers", 1)  # unlike in other tests
    good = write(tmp_path / "a.parquet", ["good"])
    (bad,), _ = find_sources([str(ABORTS)])
    check_footers([good])
    with pytest.raises(DataError) as caught:
        check_footers([good, bad, good])
    assert caught.value.message.startswith(f"{bad.path}: not Parquet, or damaged (")
    result = run("tokenize", ABORTS, "-o", tmp_path / "store")
    assert result.exit_code == 3
    assert not (tmp_path / "store").exists()
    trained = run("train-tokenizer", ABORTS, "-o", tmp_path / "tokenizer.json")
    assert trained.exit_code == 3
    assert trained.stderr == result.stderr
