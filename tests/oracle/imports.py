"""Write the token store of an indexed dataset from docs/formats.md, with nothing of seqpack."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from blake3 import blake3

from oracle.stores import CODES, HEADER, ROLES, describe_file, make_tensor_file

OPTIONS: dict[str, Any] = {
    "file_format": "auto",
    "ids_field": "input_ids",
    "labels_field": None,
    "attention_mask_field": None,
    "loss_mask_field": None,
    "ignore_fields": [],
    "document_field": None,
    "dtype": None,
    "eos": None,
    "on_bad_record": "error",
    "max_document_bytes": 64 << 20,
    "part_bytes": 64 << 20,
    "keep": [],
}
Documents = list[list[list[int]]]  # the sequences of each document


def write_pair(prefix: Path, documents: Documents, dtype: str) -> None:
    """Write an indexed dataset, with the empty sequences of its documents."""
    sequences = [ids for document in documents for ids in document]
    Path(f"{prefix}.bin").write_bytes(spell_ids(sequences, np.dtype(dtype)))
    Path(f"{prefix}.idx").write_bytes(make_index(documents, np.dtype(dtype)))


def spell_ids(sequences: list[list[int]], dtype: np.dtype[Any]) -> bytes:
    """Return the ids of some sequences, one after another."""
    return np.array([*chain(*sequences)], dtype.newbyteorder("<")).tobytes()


def make_index(documents: Documents, dtype: np.dtype[Any]) -> bytes:
    """Return the `.idx` of some documents."""
    lengths = [len(ids) for document in documents for ids in document]
    starts = [dtype.itemsize * sum(lengths[:number]) for number in range(len(lengths))]
    firsts = np.cumsum([0, *map(len, documents)])
    header = HEADER.pack(b"MMIDIDX\0\0", 1, CODES[dtype.name], len(lengths), len(firsts))
    arrays = (np.array(lengths, "<i4"), np.array(starts, "<i8"), firsts.astype("<i8"))
    return header + b"".join(array.tobytes() for array in arrays)


def write_store(folder: Path, prefix: Path, documents: Documents, vocab_size: int) -> None:
    """Write the store of an indexed dataset without a tokenizer, in one part."""
    folder.mkdir()
    dtype = np.dtype("uint16" if vocab_size <= 65_536 else "int32")
    kept = [[ids for ids in document if ids] for document in documents]
    sequences = [ids for document in kept for ids in document]
    joined = [spell_ids(document, np.dtype(np.int32)) for document in kept]
    hashes = np.array(list(map(xxhash.xxh3_64_intdigest, joined)), "<u8")
    columns = make_tensor_file({"format": "seqpack.columns"}, {"document_hashes": hashes})
    contents = {
        "bin": spell_ids(sequences, dtype),
        "idx": make_index(kept, dtype),
        "columns.safetensors": columns,
    }
    paths = [folder / f"part-00000.{suffix}" for suffix in contents]
    for path, data in zip(paths, contents.values(), strict=True):
        path.write_bytes(data)
    counts = {
        "num_documents": len(kept),
        "num_sequences": len(sequences),
        "num_tokens": sum(map(len, sequences)),
    }
    data = Path(f"{prefix}.bin").read_bytes()
    lengths = np.array([len(ids) for document in documents for ids in document], "<i4")
    firsts = np.cumsum([0, *map(len, documents)]).astype("<i8")
    digest = blake3(firsts.tobytes() + lengths.tobytes() + data).hexdigest()
    of_source = {"source": 0, "start": 0, "end": len(data), "num_documents": len(kept)}
    manifest = {
        "format": "seqpack.tokens",
        "format_version": 5,
        "made_by": "import",
        "dtype": dtype.name,
        "vocab_size": vocab_size,
        "max_id": vocab_size - 1,
        **dict.fromkeys(ROLES),
        "tokenizer_blake3": None,
        "options": OPTIONS,
        "columns": [],
        "ledger": make_ledger(documents, counts),
        "sources": [
            {"path": f"{prefix}.bin", "bytes": len(data), "num_documents": len(kept)}
            | {"first_document": 0}
        ],
        "parts": [
            {"name": "part-00000", **counts, "first_document": 0, "first_sequence": 0}
            | {"ranges": [{**of_source, "blake3": digest}], "files": [*map(describe_file, paths)]}
        ],
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))


def make_ledger(documents: Documents, counts: dict[str, int]) -> dict[str, int]:
    """Return the counts of the store; those of texts are 0."""
    zeros = [f"num_{what}" for what in ("rejected", "dropped_documents", "truncated_tokens")]
    zeros += [f"num_{what}_tokens" for what in ("dropped", "straddling", "overlap", "padding")]
    zeros += ["num_special_tokens_added", "num_special_tokens_in_text", "num_words_without_token"]
    sequences = [ids for document in documents for ids in document]
    return {
        **dict.fromkeys(zeros, 0),
        **counts,
        "num_empty_documents": sum(not any(document) for document in documents),
        "num_empty_sequences": sequences.count([]),
        "num_encoded_tokens": counts["num_tokens"],
        "num_target_tokens": counts["num_tokens"],
    }
