"""One part of a store is Megatron-LM's indexed dataset, byte for byte."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import GOLDEN_IDS, GOLDEN_INDEX, read_indexed_dataset

from seqpack_cli.errors import DataError, FolderError
from seqpack_cli.files.places import at
from seqpack_cli.tokens.part_files import cast_ids, choose_dtype, map_index, write_index


def write_part(
    prefix: Path, documents: list[list[list[int]]], *, dtype: str = "uint16", max_id: int = 65535
) -> Path:
    sequences = [sequence for document in documents for sequence in document]
    ids = np.array([id_ for sequence in sequences for id_ in sequence], np.int64)
    with at(prefix.with_suffix(".bin")).publish() as file:
        file.write(cast_ids(ids, dtype, max_id=max_id))
    with at(prefix.with_suffix(".idx")).publish() as file:
        write_index(
            file,
            lengths=np.array([len(sequence) for sequence in sequences], np.int64),
            num_sequences=np.array([len(document) for document in documents], np.int64),
            dtype=dtype,
        )
    return prefix.with_suffix(".idx")


def test_golden_constants_are_the_published_ones() -> None:
    assert hashlib.sha256(GOLDEN_INDEX).hexdigest() == (
        "416ba3f8d9601192c5b0c9424ce7e61d6ac2d9d464dba8e5ee55deb8247de3aa"
    )
    assert hashlib.sha256(GOLDEN_IDS).hexdigest() == (
        "6ca637cc10a303925c94bfc4d8cd3238c76c64df56b1bf0a06ce901da433f48a"
    )


def test_two_documents_give_the_golden_bytes(tmp_path: Path) -> None:
    path = write_part(tmp_path / "part", [[[1, 2, 3]], [[4, 5]]])
    assert path.read_bytes() == GOLDEN_INDEX
    assert path.with_suffix(".bin").read_bytes() == GOLDEN_IDS


@given(
    documents=st.lists(
        st.lists(st.lists(st.integers(0, 65535), min_size=1, max_size=4), max_size=3), max_size=5
    ),
    dtype=st.sampled_from(["uint16", "int32"]),
)
def test_part_reads_back_as_megatron_reads_it(
    tmp_path: Path, documents: list[list[list[int]]], dtype: str
) -> None:
    path = write_part(tmp_path / "part", documents, dtype=dtype)
    assert read_indexed_dataset(tmp_path / "part") == documents
    num_tokens = sum(len(sequence) for document in documents for sequence in document)
    num_sequences = sum(map(len, documents))
    part = dict(PART, num_sequences=num_sequences, num_documents=len(documents))
    index = map_index(path, path, {**part, "num_tokens": num_tokens}, dtype)
    assert index.lengths.tolist() == [len(s) for document in documents for s in document]
    assert np.diff(index.first_sequences).tolist() == [len(document) for document in documents]


def test_documents_without_tokens_repeat_the_index(tmp_path: Path) -> None:
    path = write_part(tmp_path / "part", [[], [[1], [2]], [], []])
    firsts = path.read_bytes()[-5 * 8 :]
    assert struct.unpack("<5q", firsts) == (0, 0, 2, 2, 2)


@pytest.mark.parametrize(
    ("max_id", "dtype"),
    [(0, "uint16"), (65_534, "uint16"), (65_535, "uint16"), (65_536, "int32"), (70_000, "int32")],
)
def test_dtype_follows_from_the_largest_id(max_id: int, dtype: str) -> None:
    assert choose_dtype(max_id) == dtype


@pytest.mark.parametrize(
    ("ids", "found"), [([0, 301], 301), ([-1, 3], -1), ([65_536], 65_536), ([2**40], 2**40)]
)
def test_id_out_of_range_is_refused_before_it_wraps(ids: list[int], found: int) -> None:
    with pytest.raises(DataError) as caught:
        cast_ids(np.array(ids), "uint16", max_id=300)
    assert caught.value.message == f"tokenizer.json: gave id {found}, expected ids from 0 to 300"


@pytest.mark.parametrize("dtype", ["uint16", "int32"])
def test_ids_are_stored_little_endian(dtype: str) -> None:
    ids = cast_ids(np.array([258], np.int64), dtype, max_id=300)
    assert ids.tobytes() == (b"\x02\x01" if dtype == "uint16" else b"\x02\x01\0\0")


def test_big_endian_ids_are_turned_around() -> None:
    assert cast_ids(np.array([258], ">u2"), "uint16", max_id=300).tobytes() == b"\x02\x01"


def test_sequence_above_int32_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught, at(tmp_path / "a.idx").publish() as file:
        write_index(file, lengths=np.array([2**31]), num_sequences=np.array([1]), dtype="uint16")
    assert caught.value.message == (
        "a sequence of 2,147,483,648 tokens, expected at most 2,147,483,647"
    )
    assert caught.value.hint == "pass --max-length"
    assert list(tmp_path.iterdir()) == []


def put(data: bytes, offset: int, form: str, *values: int) -> bytes:
    new = struct.pack(form, *values)
    return data[:offset] + new + data[offset + len(new) :]


HEADER, FOLLOW = "its header does not match the manifest", "do not follow from the lengths"
SUM = "lengths do not add up to the 5 ids of its .bin"
PART = {"num_sequences": 2, "num_documents": 2, "num_tokens": 5}
DAMAGE = {
    "empty": (b"", "0 bytes, manifest says 82"),
    "other file": (b"PK\3\4" + GOLDEN_INDEX[4:], HEADER),
    "version": (put(GOLDEN_INDEX, 9, "<Q", 2), HEADER),
    "dtype code": (put(GOLDEN_INDEX, 17, "<B", 4), HEADER),
    "more sequences": (put(GOLDEN_INDEX, 18, "<Q", 3), HEADER),
    "huge count": (put(GOLDEN_INDEX, 18, "<Q", 2**64 - 1), HEADER),
    "no documents": (put(put(GOLDEN_INDEX, 18, "<Q", 4), 26, "<Q", 0)[:82], HEADER),
    "cut": (GOLDEN_INDEX[:-1], "81 bytes, manifest says 82"),
    "longer": (GOLDEN_INDEX + b"\0", "83 bytes, manifest says 82"),
    "fairseq": (GOLDEN_INDEX[:26] + GOLDEN_INDEX[34:58], "50 bytes, manifest says 82"),
    "length of zero": (put(GOLDEN_INDEX, 34, "<ii", 5, 0), SUM),
    "negative length": (put(GOLDEN_INDEX, 34, "<ii", 6, -1), SUM),
    "sum": (put(GOLDEN_INDEX, 34, "<i", 4), SUM),
    "starts": (put(GOLDEN_INDEX, 42, "<qq", 0, 4), FOLLOW),
    "first document": (put(GOLDEN_INDEX, 58, "<q", 1), FOLLOW),
    "last document": (put(GOLDEN_INDEX, 74, "<q", 3), FOLLOW),
    "falling documents": (put(GOLDEN_INDEX, 66, "<q", 3), FOLLOW),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_index_is_named(tmp_path: Path, name: str) -> None:
    data, reason = DAMAGE[name]
    path = tmp_path / "part.idx"
    path.write_bytes(data)
    with pytest.raises(FolderError) as caught:
        map_index(path, path, PART, "uint16")
    assert caught.value.message.startswith(f"{path}: ")
    assert reason in caught.value.message


def test_every_flipped_bit_of_an_index_is_found(tmp_path: Path) -> None:
    """Given the dtype and the count of ids, every bit of the golden index is determined.

    One exception: two lengths may change together with a start, which needs three flips.
    """
    path = tmp_path / "part.idx"
    for bit in range(len(GOLDEN_INDEX) * 8):
        data = bytearray(GOLDEN_INDEX)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        try:
            index = map_index(path, path, PART, "uint16")
        except FolderError:
            continue
        # The inner document border is free: document 1 may begin at any sequence.
        assert 66 <= bit // 8 < 74
        assert 0 <= index.first_sequences[1] <= 2
