"""Import of files of ids alone: documents by their end token, headers, refusals."""

from __future__ import annotations

import gzip
import io
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
from command import check_refused, run
from foreign_ids import hash_ids, import_ids, write_pair
from hypothesis import given
from hypothesis import strategies as st
from object_store import write_object
from oracle.stores import read_store

from seqpack_cli.errors import DataError, OptionError, SeqpackError
from seqpack_cli.files.objects import Url

EOS = 7
PLACE_HINT = (
    "pass the --eos and the --dtype that wrote the file; write ids without end tokens as JSON lines"
)
UINT16 = ("--vocab-size", 1000, "--eos", EOS, "--dtype", "uint16")


def split(ids: list[int]) -> list[list[int]]:
    """Cut ids behind each end token, one by one."""
    documents: list[list[int]] = [[]]
    for id_ in ids:
        documents[-1].append(id_)
        if id_ == EOS:
            documents.append([])
    return documents if documents[-1] else documents[:-1]


def npy(header: str, data: bytes, *, version: int = 1) -> bytes:
    return (
        b"\x93NUMPY"
        + bytes([version, 0])
        + struct.pack("<H" if version == 1 else "<I", len(header))
        + header.encode()
        + data
    )


def describe(descr: str, shape: str) -> str:
    return f"{{'descr': {descr}, 'fortran_order': False, 'shape': ({shape}), }}\n"


@given(
    ids=st.lists(st.sampled_from([EOS, 1, 2, 99]), max_size=60).filter(lambda ids: EOS in ids),
    dtype=st.sampled_from(["uint8", "uint16", "int32", "uint32", "int64"]),
    npy_order=st.sampled_from(["", "<", ">"]),
    part_bytes=st.integers(1, 200),
)
def test_documents_end_after_each_end_token(
    tmp_path_factory: pytest.TempPathFactory,
    ids: list[int],
    dtype: str,
    npy_order: str,
    part_bytes: int,
) -> None:
    """Whatever the parts are; two end tokens in a row are a document of the second alone."""
    folder = tmp_path_factory.mktemp("flat")
    array = np.array(ids, dtype)
    if npy_order:
        np.save(folder / "ids.npy", array.astype(np.dtype(dtype).newbyteorder(npy_order)))
        (source,) = folder.iterdir()
    else:
        source = folder / "ids.bin"
        array.tofile(source)
    given_dtype = None if npy_order else dtype
    manifest = import_ids(
        source, folder / "store", dtype=given_dtype, eos=EOS, part_bytes=part_bytes
    )
    found = read_store(folder / "store")
    expected = split(ids)
    assert found.sequences == expected
    assert found.hashes == [hash_ids([document]) for document in expected]
    assert found.manifest["eos_id"] == EOS
    assert manifest["ledger"]["num_tokens"] == len(ids)
    assert len(manifest["parts"]) == 1 or part_bytes < source.stat().st_size


@pytest.mark.parametrize("is_remote", [False, True])
def test_documents_longer_than_a_block(tmp_path: Path, is_remote: bool) -> None:
    """Also where blocks end within an id, after a header of another size than numpy writes."""
    ids = np.random.default_rng(0).integers(8, 1000, 700_000, "<i8")
    ids[[5, 400_000, 400_001]] = EOS
    source: Path | Url = tmp_path / "ids.npy"
    (tmp_path / "ids.npy").write_bytes(npy(describe("'<i8'", "700000,"), ids.tobytes()))
    if is_remote:
        source = Url(f"memory://{tmp_path.name}/ids.npy")
        write_object(source, (tmp_path / "ids.npy").read_bytes())
    import_ids(source, tmp_path / "store", eos=EOS, part_bytes=1 << 20)
    found = read_store(tmp_path / "store")
    assert found.sequences == split(ids.tolist())
    assert len(found.manifest["parts"]) == 2


def test_flat_import_tells_how_documents_end(tmp_path: Path) -> None:
    np.array([1, EOS, 2], "<u2").tofile(tmp_path / "ids.bin")
    result = run("import", tmp_path / "ids.bin", "-o", tmp_path / "store", *UINT16)
    assert (result.exit_code, result.stderr) == (
        0,
        f"note: 1 of 2 documents end with id {EOS} (eos)\n"
        "note: the largest id is 7, less than half of --vocab-size 1,000\n",
    )
    again = run("import", tmp_path / "ids.bin", "-o", tmp_path / "store", *UINT16)
    assert "already complete" in again.stdout


def test_end_token_beside_a_tokenizer_is_counted(tmp_path: Path) -> None:
    np.array([1, 200, 2], "<u2").tofile(tmp_path / "ids.bin")
    options = ("--tokenizer", "bytes", "--dtype", "uint16", "--eos", 200)
    result = run("import", tmp_path / "ids.bin", "-o", tmp_path / "store", *options)
    assert ", 1 end with id 200 (eos)\n" in result.stderr


@pytest.mark.parametrize(
    ("data", "options", "message", "hint"),
    [
        (
            b"\1\0" * 6,
            {"eos": EOS},
            "ids without a header, expected --dtype",
            "pass the type that wrote the file, probably "
            "--dtype uint16 (6 ids) or --dtype uint32 (3 ids)",
        ),
        (
            b"\1\0" * 5,
            {"eos": EOS},
            "ids without a header, expected --dtype",
            "pass the type that wrote the file, probably "
            "--dtype uint16 (5 ids) or --dtype uint8 (10 ids)",
        ),
        (
            b"\1\0" * 6,
            {"dtype": "uint16"},
            "ids alone, expected --eos",
            "pass --eos ID, the id at the end of each document (GPT-2's is 50256); a .bin of "
            "Megatron needs its .idx beside it instead",
        ),
    ],
)
def test_option_that_flat_files_need(
    tmp_path: Path, data: bytes, options: dict[str, object], message: str, hint: str
) -> None:
    (tmp_path / "ids.bin").write_bytes(data)
    with pytest.raises(OptionError) as caught:
        import_ids(tmp_path / "ids.bin", tmp_path / "store", **options)
    assert (caught.value.message, caught.value.hint) == (f"{tmp_path}/ids.bin: {message}", hint)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\1\0\7", ": 3 bytes, expected a multiple of the 2 bytes of each uint16"),
        (
            b"\1\0" * 6,
            f": no id {EOS} in 6 ids of uint16, expected one at the end of each document",
        ),
        (
            b"\1\0" * 300 + b"\7\0",
            f":1: document larger than 500 bytes without id {EOS} of uint16",
        ),
        (
            b"\7\0" * 9 + b"\1\0" * 300 + b"\7\0",
            ":10: document larger than 500 bytes",
        ),
        (
            struct.pack("<256i", 20240520, 1, 3, *[0] * 253) + b"\1\0\2\0\7\0",
            ": begins with llm.c's header of 1,024 bytes, expected ids",
        ),
        (
            npy(describe("'<f4'", "2,"), b"\0" * 8),
            ": .npy array of '<f4' and shape (2,), expected integers in one dimension",
        ),
        (
            npy(describe("'<u2'", "2, 2"), b"\0" * 8),
            ": .npy array of '<u2' and shape (2, 2), expected integers in one dimension",
        ),
        (
            npy(describe("'|O'", "2,"), b"\x80\4."),
            ": .npy array of '|O' and shape (2,), expected integers in one dimension",
        ),
        (
            npy(describe("'<u2'", ""), b"\0" * 2),
            ": .npy array of '<u2' and shape (), expected integers in one dimension",
        ),
        (npy(describe("'<u2'", "5,"), b"\7\0" * 4), ": 76 bytes, its .npy header says 78"),
        (npy(describe("'<u2'", "-5,"), b"\7\0" * 4), ": .npy header"),
        (npy(describe("[('a', '<u2')]", "5,"), b"\7\0" * 4), ": .npy header"),
        (npy("(" * 9000, b""), ": .npy header"),
        (b"\x93NUMPY\1\0\xff\xff{", ": .npy header"),
    ],
)
def test_file_that_holds_no_flat_ids(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "ids.bin").write_bytes(data)
    dtype = None if data.startswith(b"\x93") else "uint16"
    with pytest.raises(DataError) as caught:
        import_ids(
            tmp_path / "ids.bin", tmp_path / "store", eos=EOS, dtype=dtype, max_document_bytes=500
        )
    place = f"{tmp_path}/ids.bin"
    assert caught.value.message.startswith(f"{place}{message}")


def test_array_of_a_later_version_and_of_no_length(tmp_path: Path) -> None:
    data = npy(describe("'>i4'", "2,"), struct.pack(">2i", 5, EOS), version=2)
    (tmp_path / "a.npy").write_bytes(data)
    np.save(tmp_path / "b.npy", np.array([], "<u2"))
    import_ids(tmp_path, tmp_path / "store", eos=EOS)
    assert read_store(tmp_path / "store").sequences == [[5, EOS]]


def test_dtype_that_contradicts_the_header(tmp_path: Path) -> None:
    np.save(tmp_path / "ids.npy", np.array([1, EOS], "<u4"))
    result = run("import", tmp_path / "ids.npy", "-o", tmp_path / "store", *UINT16)
    message = f"--dtype uint16: {tmp_path}/ids.npy has uint32 in its .npy header"
    check_refused(result, 2, message, "hint: omit --dtype")


@given(data=st.binary(max_size=40), at=st.integers(0, 90), cut=st.integers(0, 140))
def test_damaged_array_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, at: int, cut: int
) -> None:
    """Nothing but an error of ours, whatever the header says."""
    folder = tmp_path_factory.mktemp("damaged")
    whole = npy(describe("'<u2'", "9,"), b"\7\0" * 9)
    (folder / "ids.npy").write_bytes(b"\x93NUMPY" + (whole[6:at] + data + whole[at:])[:cut])
    try:
        manifest = import_ids(folder / "ids.npy", folder / "store", eos=EOS)
    except SeqpackError:
        return
    assert manifest["ledger"]["num_tokens"] in (9, 18)


@pytest.mark.parametrize("part_bytes", [10, 1000])
def test_id_outside_the_vocabulary_is_named_by_its_document(
    tmp_path: Path, part_bytes: int
) -> None:
    np.array([1, EOS, EOS, 2, EOS, 3, 2000, EOS], "<u2").tofile(tmp_path / "ids.bin")
    options = {"dtype": "uint16", "eos": EOS, "part_bytes": part_bytes}
    with pytest.raises(DataError) as caught:
        import_ids(tmp_path / "ids.bin", tmp_path / "store", **options)
    place = f"{tmp_path}/ids.bin:4: token 2"
    assert caught.value.message == f"{place} has id 2000, expected ids from 0 to 999"
    import_ids(tmp_path / "ids.bin", tmp_path / "store", on_bad_record="skip", **options)
    assert read_store(tmp_path / "store").sequences == [[1, EOS], [EOS], [2, EOS]]
    assert '"record": 4,' in (tmp_path / "store/rejects.jsonl").read_text()


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("--dtype", "uint16", "ids alone"),
        ("--eos", "5", "ids alone"),
        ("--keep", "id", "records"),
        ("--labels-field", "y", "records"),
        ("--ignore-field", "labels", "records"),
        ("--ids-field", "tokens", "records"),
        ("--document-field", "doc", "records"),
    ],
)
def test_option_without_effect_on_a_pair_is_refused(
    tmp_path: Path, option: str, value: str, expected: str
) -> None:
    write_pair(tmp_path / "ids", [[[1, 2]]])
    options = ("--tokenizer", "bytes", option, value)
    result = run("import", tmp_path / "ids", "-o", tmp_path / "store", *options)
    message = f"{option} {value}: the input is megatron, expected {expected}"
    check_refused(result, 2, message, f"hint: omit {option}")


def test_end_token_is_recorded_without_a_tokenizer(tmp_path: Path) -> None:
    write_pair(tmp_path / "ids", [[[1, 2]]])
    assert import_ids(tmp_path / "ids", tmp_path / "store", eos=2)["eos_id"] == 2


def write_kinds() -> dict[str, bytes]:
    zipped, ids = io.BytesIO(), np.arange(1, 2000, dtype="<u2")
    np.savez(zipped, ids=ids)
    return {
        "zip": zipped.getvalue(),
        "pickle": pickle.dumps(ids.tolist()),
        "gzip": gzip.compress(ids.tobytes()),
        "PNG": b"\x89PNG\r\n\x1a\n".ljust(100, b"\1"),
    }


@pytest.mark.parametrize("kind", ["zip", "pickle", "gzip", "PNG"])
def test_other_files_are_not_read_as_ids(tmp_path: Path, kind: str) -> None:
    data = write_kinds()[kind]
    (tmp_path / "ids").write_bytes(data + bytes(len(data) % 2))
    with pytest.raises(DataError, match=rf"ids: {kind} \(begins with .*\), expected ids alone"):
        options = {"file_format": "flat", "dtype": "uint16", "eos": 0}
        import_ids(tmp_path / "ids", tmp_path / "store", **options)


def test_ids_that_begin_as_short_signatures_are_ids(tmp_path: Path) -> None:
    for head in (b"PK\x03\x04", b"\x1f\x8b\x08\0", b"\x80\4\x95\0", b"\xff\xd8\xff\0", b"\x7fELF"):
        ids = np.frombuffer(head + bytes(range(100, 140)), "<u2")
        ids.tofile(tmp_path / "ids.bin")
        options = {"vocab_size": 65_536, "eos": int(ids[-1]), "dtype": "uint16"}
        import_ids(tmp_path / "ids.bin", tmp_path / head.hex(), **options)


def test_all_missing_options_of_flat_files_are_named(tmp_path: Path) -> None:
    np.arange(9, dtype="<u2").tofile(tmp_path / "ids.bin")
    with pytest.raises(OptionError, match="ids alone, expected --dtype and --eos") as caught:
        import_ids(tmp_path / "ids.bin", tmp_path / "store")
    for part in ("--dtype uint16", "--eos ID", "its .idx beside it"):
        assert part in str(caught.value.hint)
