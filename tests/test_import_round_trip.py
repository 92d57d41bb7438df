"""Store -> export -> import -> store gives the same ids, documents and targets."""

from __future__ import annotations

import json

import numpy as np
import pytest
from conftest import HERE

from seqpack_cli import ImportOptions, TokenizeOptions, import_store, open_store, tokenize
from seqpack_cli.shards.exports import source
from seqpack_cli.shards.exports.parquet_export import export_parquet
from seqpack_cli.shards.exports.task import Task, open_exported

# Empty documents at both ends, a file of none but these, and documents of several sequences.
TEXTS = (["", "ab", "", "abcdefghijk", "", ""], [""], ["abcde", "a" * 90, "", "fghij", "b" * 9, ""])


@pytest.mark.parametrize(("overlap", "part_bytes"), [(None, 3000), (2, 64 << 20)])
def test_parquet_comes_back_with_its_documents(tmp_path, monkeypatch, overlap, part_bytes):
    paths = []
    for number, texts in enumerate(TEXTS):
        paths.append(tmp_path / f"{number}.jsonl")
        lines = [json.dumps({"text": text, "score": len(text)}) for text in texts]
        paths[-1].write_text("".join(f"{line}\n" for line in lines))
    options = TokenizeOptions(max_length=5, overlap=overlap, keep=["score"])
    tokenize(paths, tmp_path / "store", options, executor=HERE)
    monkeypatch.setattr(source, "IDS_PER_BLOCK", 11)
    task = Task(open_exported(tmp_path / "store"), tmp_path / "out", overwrite=False, eos=None)
    export_parquet(task, max_file_bytes=1)
    files = sorted((tmp_path / "out").iterdir())
    assert len(files) == 3  # none of which begins within the document of 90 tokens
    again = ImportOptions(
        tokenizer=tmp_path / "store",
        document_field="document",
        keep=["score"],
        part_bytes=part_bytes,
    )
    import_store(tmp_path / "out", tmp_path / "again", again, executor=HERE)
    first, second = open_store(tmp_path / "store"), open_store(tmp_path / "again")
    assert (second.num_parts == 1) == (overlap is not None)
    assert np.array_equal(np.concatenate(list(first)), np.concatenate(list(second)))
    assert np.array_equal(first.lengths, second.lengths)
    counts = [
        [store.count_sequences(part) for part in range(store.num_parts)]
        for store in (first, second)
    ]
    assert np.array_equal(*map(np.concatenate, counts))
    if second.num_parts == 1:
        for name in ("part-00000.bin", "part-00000.idx"):
            found, expected = ((tmp_path / it / name).read_bytes() for it in ("again", "store"))
            assert found == expected
        for name in ("score", "targets"):
            assert np.array_equal(first.part_column(0, name), second.part_column(0, name))
