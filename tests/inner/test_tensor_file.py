"""A shard file: its golden bytes, the safetensors library reading it, and damaged files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st
from shard_reference import Arrays, join_batches, lay_out, load_shard, safetensors_bytes

from seqpack_cli.errors import FolderError
from seqpack_cli.files.tensor_file import Tensor, map_tensor_file, write_tensor_file
from seqpack_cli.shards.layouts import Geometry

ROWS = [[np.array([5, 6, 7]), np.array([8])], [np.array([9, 10])]]
METADATA = {"format": "seqpack.shards", "layout": "packed"}

GOLDEN_PACKED = (
    b"\x10\x02\0\0\0\0\0\0"
    b'{"__metadata__":{"format":"seqpack.shards","layout":"packed"},'
    b'"lengths":{"dtype":"I64","shape":[3],"data_offsets":[0,24]},'
    b'"original_indices":{"dtype":"I64","shape":[3],"data_offsets":[24,48]},'
    b'"batch_sizes":{"dtype":"I64","shape":[5],"data_offsets":[48,88]},'
    b'"sequence_offsets":{"dtype":"I64","shape":[3],"data_offsets":[88,112]},'
    b'"step_offsets":{"dtype":"I64","shape":[3],"data_offsets":[112,136]},'
    b'"data_offsets":{"dtype":"I64","shape":[3],"data_offsets":[136,160]},'
    b'"data":{"dtype":"U16","shape":[6],"data_offsets":[160,172]}}'
)
PACKED_NUMBERS = (3, 1, 2, 4, 2, 0, 2, 1, 1, 1, 1, 0, 2, 3, 0, 3, 5, 0, 4, 6)
GOLDEN_PADDED = (
    b"\xc8\x01\0\0\0\0\0\0"
    b'{"__metadata__":{"format":"seqpack.shards","layout":"padded"},'
    b'"lengths":{"dtype":"I64","shape":[3],"data_offsets":[0,24]},'
    b'"original_indices":{"dtype":"I64","shape":[3],"data_offsets":[24,48]},'
    b'"widths":{"dtype":"I64","shape":[2],"data_offsets":[48,64]},'
    b'"sequence_offsets":{"dtype":"I64","shape":[3],"data_offsets":[64,88]},'
    b'"data_offsets":{"dtype":"I64","shape":[3],"data_offsets":[88,112]},'
    b'"data":{"dtype":"I32","shape":[8],"data_offsets":[112,144]}}'
)
PADDED_NUMBERS = (3, 1, 2, 4, 2, 0, 3, 2, 0, 2, 3, 0, 6, 8)
GOLDEN_FILLER = (
    b"\x10\x02\0\0\0\0\0\0"
    b'{"__metadata__":{"format":"seqpack.shards","layout":"padded"},'
    b'"lengths":{"dtype":"I64","shape":[4],"data_offsets":[0,32]},'
    b'"original_indices":{"dtype":"I64","shape":[4],"data_offsets":[32,64]},'
    b'"widths":{"dtype":"I64","shape":[2],"data_offsets":[64,80]},'
    b'"num_filler_rows":{"dtype":"I64","shape":[2],"data_offsets":[80,96]},'
    b'"sequence_offsets":{"dtype":"I64","shape":[3],"data_offsets":[96,120]},'
    b'"data_offsets":{"dtype":"I64","shape":[3],"data_offsets":[120,144]},'
    b'"data":{"dtype":"U16","shape":[10],"data_offsets":[144,164]}}'
)
FILLER_NUMBERS = (3, 1, 2, 0, 4, 2, 0, 2**64 - 1, 3, 2, 0, 1, 0, 2, 4, 0, 6, 10)
GOLDEN_VARLEN = (
    b"\xc8\x01\0\0\0\0\0\0"
    b'{"__metadata__":{"format":"seqpack.shards","layout":"varlen"},'
    b'"lengths":{"dtype":"I64","shape":[3],"data_offsets":[0,24]},'
    b'"original_indices":{"dtype":"I64","shape":[3],"data_offsets":[24,48]},'
    b'"piece_starts":{"dtype":"I64","shape":[3],"data_offsets":[48,72]},'
    b'"sequence_offsets":{"dtype":"I64","shape":[3],"data_offsets":[72,96]},'
    b'"data_offsets":{"dtype":"I64","shape":[3],"data_offsets":[96,120]},'
    b'"data":{"dtype":"U16","shape":[6],"data_offsets":[120,132]}}'
)
VARLEN_NUMBERS = (3, 1, 2, 4, 2, 4, 0, 0, 3, 0, 2, 3, 0, 4, 6)


def make_tensors(layout: str, dtype: str) -> Arrays:
    """Lay the rows out as two batches."""
    batches = [
        lay_out(layout, [row.astype(dtype) for row in rows], indices, pad_id=1)
        for rows, indices in zip(ROWS, (np.array([4, 2]), np.array([0])), strict=True)
    ]
    return join_batches(layout, batches)


def write_arrays(
    path: Path,
    tensors: Arrays,
    pieces: Iterable[np.ndarray],
    metadata: dict[str, str] | None = None,
    dtype: str = "uint16",
) -> dict[str, Any]:
    """Write int64 arrays, and the ids in pieces."""
    arrays = {name: Tensor("int64", len(array), [array]) for name, array in tensors.items()}
    arrays["data"] = Tensor(dtype, int(tensors["data_offsets"][-1]), pieces)
    return write_tensor_file(path, arrays, metadata or {})


def write(path: Path, tensors: Arrays, metadata: dict[str, str]) -> dict[str, Any]:
    """Write arrays, the ids in pieces of one, two, three, ... entries."""
    others = {name: array for name, array in tensors.items() if name != "data"}
    data = tensors["data"]
    pieces = np.split(data, np.arange(1, len(data) + 1).cumsum())
    return write_arrays(path, others, pieces, metadata, data.dtype.name)


def with_numbers(header: bytes, numbers: tuple[int, ...], data: bytes) -> bytes:
    """Append little-endian 64-bit numbers and the ids to a header."""
    num_bytes = int.from_bytes(header[:8], "little")
    header = header.ljust(8 + num_bytes)
    return header + b"".join(number.to_bytes(8, "little") for number in numbers) + data


def test_packed_file_has_its_golden_bytes(tmp_path: Path) -> None:
    path = tmp_path / "shard.safetensors"
    described = write(path, make_tensors("packed", "uint16"), METADATA)
    data = b"\x05\0\x08\0\x06\0\x07\0\x09\0\x0a\0"
    golden = with_numbers(GOLDEN_PACKED, PACKED_NUMBERS, data)
    assert path.read_bytes() == golden
    assert described == {"bytes": len(golden), "blake3": blake3(golden).hexdigest()}


def test_padded_file_has_its_golden_bytes(tmp_path: Path) -> None:
    path = tmp_path / "shard.safetensors"
    metadata = {**METADATA, "layout": "padded"}
    described = write(path, make_tensors("padded", "int32"), metadata)
    data = b"".join(id_.to_bytes(4, "little") for id_ in (5, 6, 7, 8, 1, 1, 9, 10))
    golden = with_numbers(GOLDEN_PADDED, PADDED_NUMBERS, data)
    assert path.read_bytes() == golden
    assert described == {"bytes": len(golden), "blake3": blake3(golden).hexdigest()}


def test_padded_file_with_filler_has_its_golden_bytes(tmp_path: Path) -> None:
    path = tmp_path / "shard.safetensors"
    rows = [[ids.astype(np.uint16) for ids in batch] for batch in ROWS]
    batches = [
        lay_out("padded", rows[0], np.array([4, 2]), pad_id=1, padding_side="left"),
        lay_out("padded", rows[1], np.array([0]), pad_id=1, num_filler_rows=1),
    ]
    tensors = join_batches("padded", batches, Geometry(has_filler_rows=True))
    write(path, tensors, {**METADATA, "layout": "padded"})
    data = b"".join(id_.to_bytes(2, "little") for id_ in (5, 6, 7, 1, 1, 8, 9, 10, 1, 1))
    assert path.read_bytes() == with_numbers(GOLDEN_FILLER, FILLER_NUMBERS, data)


def test_varlen_file_has_its_golden_bytes(tmp_path: Path) -> None:
    path = tmp_path / "shard.safetensors"
    rows = [[ids.astype(np.uint16) for ids in batch] for batch in ROWS]
    batches = [
        lay_out("varlen", rows[0], np.array([4, 2])),
        lay_out("varlen", rows[1], np.array([4]), piece_starts=np.array([3])),
    ]
    write(path, join_batches("varlen", batches), {**METADATA, "layout": "varlen"})
    data = b"".join(id_.to_bytes(2, "little") for id_ in (5, 6, 7, 8, 9, 10))
    assert path.read_bytes() == with_numbers(GOLDEN_VARLEN, VARLEN_NUMBERS, data)


@pytest.mark.parametrize("layout", ["packed", "padded", "varlen"])
@pytest.mark.parametrize("dtype", ["uint16", "int32"])
def test_safetensors_library_reads_the_same_arrays(tmp_path: Path, layout: str, dtype: str) -> None:
    path = tmp_path / "shard.safetensors"
    tensors = make_tensors(layout, dtype)
    write(path, tensors, METADATA)
    theirs, metadata = load_shard(path)
    ours, own_metadata = map_tensor_file(path)
    assert metadata == own_metadata == METADATA
    assert list(ours) == list(tensors)
    assert sorted(theirs) == sorted(tensors)
    for name, array in tensors.items():
        for found in (theirs[name], ours[name]):
            assert found.dtype == array.dtype
            assert found.tolist() == array.tolist()
    assert all(array.flags.aligned and not array.flags.writeable for array in ours.values())


def test_map_tensor_file_reads_what_the_library_wrote(tmp_path: Path) -> None:
    path = tmp_path / "shard.safetensors"
    tensors = make_tensors("packed", "uint16")
    safetensors.numpy.save_file(tensors, path, METADATA)
    ours, metadata = map_tensor_file(path)
    assert metadata == METADATA
    assert {name: array.tolist() for name, array in ours.items()} == {
        name: array.tolist() for name, array in tensors.items()
    }


def test_write_tensor_file_stores_any_arrays_as_little_endian(tmp_path: Path) -> None:
    path = tmp_path / "shard.safetensors"
    tensors = {
        "a": np.array([1, 2], ">i8"),
        "b": np.arange(6)[::2],
        "data_offsets": np.array([0, 4], np.int32),
    }
    pieces = [np.array([7, 258], ">u2"), np.array([], np.uint16), np.arange(4, dtype="<u2")[::2]]
    write_arrays(path, tensors, pieces)
    ours, _ = map_tensor_file(path)
    assert {name: array.tolist() for name, array in ours.items()} == {
        "a": [1, 2],
        "b": [0, 2, 4],
        "data_offsets": [0, 4],
        "data": [7, 258, 0, 2],
    }


@pytest.mark.parametrize("num_ids", [0, 3, 5])
def test_write_tensor_file_refuses_data_of_another_length(tmp_path: Path, num_ids: int) -> None:
    path = tmp_path / "shard.safetensors"
    tensors = {"data_offsets": np.array([0, 4])}
    with pytest.raises(ValueError, match=r"\.safetensors: wrote \d+ bytes, its header says \d+$"):
        write_arrays(path, tensors, [np.arange(num_ids)])
    assert list(tmp_path.iterdir()) == []


def test_write_tensor_file_asks_for_a_piece_when_the_one_before_is_written(tmp_path: Path) -> None:
    path = tmp_path / "shard.safetensors"

    def pieces() -> Iterator[np.ndarray]:
        piece = np.zeros(2, np.uint16)
        for value in (1, 2, 3):
            piece[:] = value  # reuses the memory: the ids before must be in the file by now
            yield piece

    tensors = {"data_offsets": np.array([0, 6])}
    write_arrays(path, tensors, pieces())
    assert map_tensor_file(path)[0]["data"].tolist() == [1, 1, 2, 2, 3, 3]


def test_write_tensor_file_leaves_nothing_when_the_data_fails(tmp_path: Path) -> None:
    def pieces() -> Iterator[np.ndarray]:
        yield np.zeros(2, np.uint16)
        raise FolderError("the store is gone")

    tensors = {"data_offsets": np.array([0, 6])}
    with pytest.raises(FolderError, match="the store is gone"):
        write_arrays(tmp_path / "shard.safetensors", tensors, pieces())
    assert list(tmp_path.iterdir()) == []


def file_with_header(header: object, body: bytes = b"\0" * 16) -> bytes:
    """Return the bytes of a file with any header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


def describe(dtype: str, shape: list[int], start: int, end: int) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


ONE_DIMENSION = "expected one dimension of I64 or U64 or F64 or I32 or U16 or U8"
GOOD = safetensors_bytes({"a": np.arange(2)}, METADATA)
NO_SAFETENSORS = {
    "empty": b"",
    "seven bytes": b"\0" * 7,
    "no header": b"\0" * 8,
    "cut": GOOD[:-1],
    "longer": GOOD + b"\0",
    "header cut": GOOD[:40],
    "header longer than the file": (5000).to_bytes(8, "little") + GOOD[8:],
    "garbage": bytes([99, 0, 0, 0, 0, 0, 0, 0, *range(255)]),
    "no JSON": file_with_header(b"{not json}"),
    "not UTF-8": file_with_header(b'{"\xff":1}'),
    "a list": file_with_header([]),
    "overlapping": file_with_header(
        {"a": describe("I64", [1], 0, 8), "b": describe("I64", [1], 4, 12)}, b"\0" * 12
    ),
    "hole": file_with_header(
        {"a": describe("I64", [1], 0, 8), "b": describe("I64", [1], 16, 24)}, b"\0" * 24
    ),
    "backwards": file_with_header({"a": describe("I64", [2], 16, 0)}),
    "shape of another size": file_with_header({"a": describe("I64", [3], 0, 16)}),
    "negative shape": file_with_header({"a": describe("I64", [-2], 0, 16)}),
    "overflowing shape": file_with_header({"a": describe("I64", [2**62, 8], 0, 16)}),
    "unknown dtype": file_with_header({"a": describe("I7", [2], 0, 16)}),
    "metadata of numbers": file_with_header(
        {"__metadata__": {"a": 1}, "a": describe("I64", [2], 0, 16)}
    ),
    "deep JSON": file_with_header(b"[" * 50_000 + b"]" * 50_000),
}


@pytest.mark.parametrize("raw", NO_SAFETENSORS.values(), ids=NO_SAFETENSORS)
def test_map_tensor_file_refuses_what_is_not_a_safetensors_file(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "shard.safetensors"
    path.write_bytes(raw)
    with pytest.raises(FolderError, match=r"shard\.safetensors: not a safetensors file \(.+\)$"):
        map_tensor_file(path)


def test_map_tensor_file_refuses_a_huge_header_before_reading_it(tmp_path: Path) -> None:
    path = tmp_path / "shard.safetensors"
    path.write_bytes((2**63).to_bytes(8, "little") + GOOD[8:])
    with pytest.raises(FolderError) as caught:
        map_tensor_file(path)
    assert str(caught.value) == (
        f"{path}: a header of 9,223,372,036,854,775,808 bytes, expected at most 1,048,576"
    )


@pytest.mark.parametrize(
    ("array", "found"),
    [
        (np.zeros(2, np.float32), r"F32\[2\]"),
        (np.zeros((2, 2), np.int64), r"I64\[2, 2\]"),
        (np.array(1), r"I64\[\]"),
    ],
)
def test_map_tensor_file_refuses_other_arrays(
    tmp_path: Path, array: np.ndarray, found: str
) -> None:
    path = tmp_path / "shard.safetensors"
    path.write_bytes(safetensors_bytes({"a": array}, {}))
    with pytest.raises(FolderError, match=f"safetensors: a is {found}, {ONE_DIMENSION}$"):
        map_tensor_file(path)


def test_map_tensor_file_gives_no_metadata_as_an_empty_one(tmp_path: Path) -> None:
    path = tmp_path / "shard.safetensors"
    safetensors.numpy.save_file({"a": np.arange(3), "empty": np.arange(0)}, path)
    ours, metadata = map_tensor_file(path)
    assert metadata == {}
    assert ours["a"].tolist() == [0, 1, 2]
    assert ours["empty"].tolist() == []


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_map_tensor_file_takes_damage_or_refuses_it(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    raw = bytearray(with_numbers(GOLDEN_PACKED, PACKED_NUMBERS, b"\0" * 12))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, 530))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged.safetensors"
    path.write_bytes(raw[: data.draw(st.sampled_from([len(raw), len(raw) - 1, 300, 9]))])
    try:
        tensors, _ = map_tensor_file(path)
    except FolderError:
        return
    for array in tensors.values():
        assert array.ndim == 1
        array.tolist()
