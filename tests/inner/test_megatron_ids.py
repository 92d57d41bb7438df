"""Import of pairs of .bin and .idx: what Megatron-LM and fairseq write, damaged ones, places."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import check_refused, run
from foreign_ids import Documents, hash_ids, import_ids, read_pair, write_pair
from here import HERE
from hypothesis import given, settings
from hypothesis import strategies as st
from object_store import FaultProxy, put_object, read_objects
from oracle.stores import PageStore, read_store
from reference import read_folder
from unfinished import Stop

from seqpack_cli import ImportOptions, import_store, tokenize
from seqpack_cli.corpus.find_files import find_sources
from seqpack_cli.corpus.options import IDS_FORMATS
from seqpack_cli.corpus.sources import SourceRange
from seqpack_cli.errors import DataError, FolderError
from seqpack_cli.runs.workers import Progress
from seqpack_cli.tokens.imports.id_block import RangeInput
from seqpack_cli.tokens.imports.import_setup import ImportSetup, RecordFields
from seqpack_cli.tokens.imports.megatron_ids import cut_megatron, iter_megatron_blocks
from seqpack_cli.tokens.vocabulary import Vocabulary

BUCKET = "import"
INTEGERS = [1, 2, 3, 4, 5, 8]  # dtype codes of Megatron-LM
FAIRSEQ = [*INTEGERS, 9, 10]
HINT = "copy the pair again, or make it again"


def documents(max_id: int = 99) -> st.SearchStrategy[Documents]:
    """Documents of several sequences, some of them empty, some of the documents too."""
    sequence = st.lists(st.integers(0, max_id), max_size=5)
    return st.lists(st.lists(sequence, max_size=3), max_size=8)


def list_documents(store: PageStore) -> Documents:
    """Return the sequences of each document of a store, those without any too."""
    found: Documents = [[] for _ in store.hashes]
    for document, sequence in zip(store.documents, store.sequences, strict=True):
        found[document].append(sequence)
    return found


def drop_empty(documents: Documents) -> Documents:
    return [[sequence for sequence in document if sequence] for document in documents]


def read_files(prefix: Path) -> Documents:
    index, data = (prefix.with_suffix(suffix).read_bytes() for suffix in (".idx", ".bin"))
    return read_pair(index, data)


# The same ids


def test_example_of_the_format_is_stored_byte_for_byte(tmp_path: Path) -> None:
    """The checksums are of the format's description; a part is such a pair again."""
    pair = write_pair(tmp_path / "pair", [[[1, 2, 3]], [[4, 5]]])
    index, data = (pair.with_suffix(suffix).read_bytes() for suffix in (".idx", ".bin"))
    assert hashlib.sha256(index).hexdigest().startswith("416ba3f8d9601192c5b0c9424ce7e61d")
    assert hashlib.sha256(data).hexdigest().startswith("6ca637cc10a303925c94bfc4d8cd3238")
    import_ids(pair, tmp_path / "store")
    assert (tmp_path / "store/part-00000.idx").read_bytes() == index
    assert (tmp_path / "store/part-00000.bin").read_bytes() == data


@given(
    sets=st.lists(documents(), min_size=1, max_size=2).filter(
        lambda sets: any(sequence for each in sets for document in each for sequence in document)
    ),
    format_=st.sampled_from(
        [*((code, False) for code in INTEGERS), *((code, True) for code in FAIRSEQ)]
    ),
    part_bytes=st.integers(1, 200),
)
def test_documents_come_back_whatever_the_dtype_and_the_parts(
    tmp_path_factory: pytest.TempPathFactory,
    sets: list[Documents],
    format_: tuple[int, bool],
    part_bytes: int,
) -> None:
    """Documents without tokens keep their numbers, at the cuts and in an empty .bin too."""
    folder, (code, fairseq) = tmp_path_factory.mktemp("pairs"), format_
    for number, each in enumerate(sets):
        write_pair(folder / f"{number}", each, code, fairseq=fairseq)
    expected = [document for path in sorted(folder.glob("*.bin")) for document in read_files(path)]
    manifest = import_ids(folder, folder / "store", part_bytes=part_bytes)
    found = read_store(folder / "store")
    assert list_documents(found) == drop_empty(expected)
    assert found.hashes == list(map(hash_ids, expected))
    sequences = [sequence for document in expected for sequence in document]
    counts = {
        "num_documents": len(expected),
        "num_empty_documents": sum(not any(document) for document in expected),
        "num_empty_sequences": sequences.count([]),
        "num_tokens": sum(map(len, sequences)),
        "num_encoded_tokens": sum(map(len, sequences)),
        "num_rejected": 0,
    }
    assert manifest["ledger"] == manifest["ledger"] | counts


def test_long_and_many_documents(tmp_path: Path) -> None:
    """Longer than what is read at once, and more than a block has, with and without tokens."""
    chance = np.random.default_rng(0)
    long = chance.integers(0, 1000, 1_500_000).tolist()
    expected = [[[1]], [long, [2]], *[[[number % 1000]] for number in range(70_000)]]
    expected += [[] for _ in range(70_000)]
    write_pair(tmp_path / "pair", expected, 4)
    import_ids(tmp_path / "pair", tmp_path / "store")
    store = read_store(tmp_path / "store")
    assert len(store.hashes) == len(expected)
    assert store.sequences == [sequence for document in expected for sequence in document]


def test_offsets_have_64_bits(tmp_path: Path) -> None:
    """A .bin of 9 GB, which has holes; only its last documents are read."""
    lengths = np.array([2**31 - 1, 2**31 - 1, 3, 2], "<i4")
    starts = 2 * (np.cumsum(lengths, dtype="<i8") - lengths)
    index = struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, 8, 4, 5)
    index += lengths.tobytes() + starts.tobytes() + np.arange(5, dtype="<i8").tobytes()
    (tmp_path / "pair.idx").write_bytes(index)
    with (tmp_path / "pair.bin").open("wb") as file:
        file.seek(int(starts[2]))
        file.write(np.array([5, 6, 7, 8, 9], "<u2").tobytes())
    (source,), _ = find_sources([str(tmp_path / "pair")], formats=IDS_FORMATS)
    options = ImportOptions(vocab_size=10)
    cuts = cut_megatron(options, source, 1, 7)
    assert cuts == [(0, starts[1]), (starts[1], starts[2]), (starts[2], starts[3] + 4)]
    assert cuts[-1][0] > 2**33 - 5
    vocabulary = Vocabulary(None, 10, 9, None, None, None, None, special_tokens=())
    setup = ImportSetup(tmp_path, vocabulary, options, RecordFields())
    opened = RangeInput(SourceRange(0, source, *cuts[-1]))
    (block,) = iter_megatron_blocks(opened, setup)
    assert block.ids.tolist() == [5, 6, 7, 8, 9]
    assert block.lengths.tolist() == [3, 2]
    assert block.find_place(1) == f"{tmp_path}/pair.bin:4"


# Damage


def make_index(
    code: int = 8,
    lengths: tuple[int, ...] = (3, 2),
    starts: tuple[int, ...] = (0, 6),
    firsts: tuple[int, ...] = (0, 1, 2),
    **header: int,
) -> bytes:
    """Return an index of a .bin of 10 bytes; the header may lie."""
    header = {"version": 1, "num_sequences": len(lengths), "num_firsts": len(firsts), **header}
    numbers = (header["version"], code, header["num_sequences"], header["num_firsts"])
    index = struct.pack("<9sQBQQ", b"MMIDIDX\0\0", *numbers)
    index += struct.pack(f"<{len(lengths)}i", *lengths)
    return index + struct.pack(f"<{len(starts) + len(firsts)}q", *starts, *firsts)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (make_index(6), "dtype code 6 (floating point), expected that of an integer: 1 (uint8), "),
        (make_index(7), "dtype code 7 (floating point), expected that of an integer: 1 (uint8), "),
        (make_index(9), "dtype code 9, expected that of an integer: 1 (uint8), 2 (int8), "),
        (make_index(version=2), "version 2, expected 1"),
        (b"TNTIDX\0\0" + make_index(), "fairseq's index of lazy or cached data, expected"),
        (b"", "begins with b'', expected an indexed dataset"),
        (make_index()[:20], "begins with b'MMIDIDX\\x00\\x00', expected an indexed dataset"),
        (make_index()[:30], "30 bytes, expected at least 34"),
        (make_index()[:-1], "81 bytes, its header says 82"),
        (make_index() + b"\0", "83 bytes, its header says 82"),
        (make_index() + b"\0\1", "has a mode for each sequence, as multimodal data, expected text"),
        (make_index(num_sequences=2**63), "82 bytes, its header says 110,680,464,442,257,309,754"),
        (make_index(num_firsts=2**64 - 1), "82 bytes, its header says 147,573,952,589,676,412,978"),
        (make_index(firsts=(), num_sequences=2), "58 bytes, its header says 58"),
        (make_index(lengths=(-3, 8)), "sequence 0 has -3 tokens"),
        (make_index(starts=(0, 4)), "sequence 1 starts at byte 4, expected 6, where the one"),
        (make_index(starts=(2, 8)), "sequence 0 starts at byte 2, expected 0, where the one"),
        (make_index(lengths=(3, 1)), "10 bytes, "),
        (make_index(firsts=(0, 2, 1, 2)), "the documents are not in the order of their sequences"),
        (make_index(firsts=(0, -1, 2)), "the documents are not in the order of their sequences"),
        (make_index(firsts=(1, 2)), "the documents run from sequence 1 to 2, expected 0 to 2"),
        (make_index(firsts=(0, 1)), "the documents run from sequence 0 to 1, expected 0 to 2"),
    ],
)
def test_damaged_index_is_refused(tmp_path: Path, index: bytes, message: str) -> None:
    (tmp_path / "pair.bin").write_bytes(b"\1\0\2\0\3\0\4\0\5\0")
    (tmp_path / "pair.idx").write_bytes(index)
    with pytest.raises(DataError) as caught:
        import_ids(tmp_path / "pair", tmp_path / "store")
    suffix = "bin" if message == "10 bytes, " else "idx"
    assert caught.value.message.startswith(f"{tmp_path}/pair.{suffix}: {message}")
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("num_bytes", [0, 8, 9, 11, 12])
def test_bin_of_another_size_is_refused(tmp_path: Path, num_bytes: int) -> None:
    write_pair(tmp_path / "pair", [[[1, 2, 3]], [[4, 5]]])
    os.truncate(tmp_path / "pair.bin", num_bytes)
    result = run("import", tmp_path / "pair", "-o", tmp_path / "store", "--vocab-size", 10)
    message = f"{tmp_path}/pair.bin: {num_bytes} bytes, {tmp_path}/pair.idx describes 10"
    check_refused(result, 3, message, f"hint: {HINT}")


@st.composite
def damages(draw: st.DrawFn) -> list[tuple[int, bytes]]:
    """Places and bytes to write there; numbers with all bits set, or none, do most harm."""
    value = st.one_of(
        st.binary(min_size=1, max_size=3),
        st.sampled_from([b"\0" * 8, b"\xff" * 8, b"\xff" * 4, b"\xff" * 7 + b"\x7f"]),
        st.integers(-3, 30).map(lambda number: struct.pack("<q", number)),
        st.integers(-3, 30).map(lambda number: struct.pack("<i", number)),
    )
    return draw(st.lists(st.tuples(st.integers(9, 160), value), min_size=1, max_size=3))


@settings(max_examples=150)
@given(
    original=documents(200),
    code=st.sampled_from([1, 3, 8]),
    fairseq=st.booleans(),
    damage=damages(),
    cut=st.integers(-4, 12),
)
def test_damaged_pair_is_read_as_by_the_slow_reader_or_refused(
    tmp_path_factory: pytest.TempPathFactory,
    original: Documents,
    code: int,
    fairseq: bool,
    damage: list[tuple[int, bytes]],
    cut: int,
) -> None:
    """Never other ids, and no error but ours."""
    folder = tmp_path_factory.mktemp("damaged")
    pair = write_pair(folder / "pair", original, code, fairseq=fairseq)
    index = pair.with_suffix(".idx").read_bytes()
    for place, value in damage:
        index = index[:place] + value + index[place + len(value) :]
    index = index[: len(index) + min(cut, 0)] + b"\0" * max(cut - 8, 0)
    pair.with_suffix(".idx").write_bytes(index)
    try:
        expected = read_files(pair)
    except ValueError:
        expected = []
    ids = [id_ for document in expected for sequence in document for id_ in sequence]
    if not ids or not 0 <= min(ids) <= max(ids) < 1000:
        with pytest.raises(DataError):
            import_ids(pair, folder / "store", part_bytes=9)
        return
    import_ids(pair, folder / "store", part_bytes=9)
    assert list_documents(read_store(folder / "store")) == drop_empty(expected)


# Ids and the vocabulary


@pytest.mark.parametrize(
    ("vocab_size", "dtype"), [(256, "uint16"), (65_536, "uint16"), (65_537, "int32")]
)
@pytest.mark.parametrize("code", [1, 4, 8])
def test_dtype_follows_from_the_vocabulary_alone(
    tmp_path: Path, vocab_size: int, dtype: str, code: int
) -> None:
    write_pair(tmp_path / "pair", [[[1, 255]]], code)
    manifest = import_ids(tmp_path / "pair", tmp_path / "store", vocab_size=vocab_size)
    assert manifest["dtype"] == dtype
    assert read_store(tmp_path / "store").sequences == [[1, 255]]


@pytest.mark.parametrize("part_bytes", [4, 1000])
@pytest.mark.parametrize(("code", "id_"), [(8, 1000), (4, -1), (5, 2**40), (2, -128), (8, 65_535)])
def test_id_outside_the_vocabulary(tmp_path: Path, code: int, id_: int, part_bytes: int) -> None:
    write_pair(tmp_path / "pair", [[[1], [2]], [], [[3], [4, id_], [id_]], [[5]]], code)
    with pytest.raises(DataError) as caught:
        import_ids(tmp_path / "pair", tmp_path / "store", part_bytes=part_bytes)
    place = f"{tmp_path}/pair.bin:3: token 3"
    assert caught.value.message == f"{place} has id {id_}, expected ids from 0 to 999"
    options: dict[str, Any] = {"part_bytes": part_bytes, "on_bad_record": "skip"}
    manifest = import_ids(tmp_path / "pair", tmp_path / "store", **options)
    store = read_store(tmp_path / "store")
    assert list_documents(store) == [[[1], [2]], [], [], [[5]]]
    assert manifest["ledger"]["num_rejected"] == manifest["ledger"]["num_empty_documents"] == 1
    reject = json.loads((tmp_path / "store/rejects.jsonl").read_bytes())
    reason = f"token 3 has id {id_}, expected ids from 0 to 999"
    expected = {"source": f"{tmp_path}/pair.bin", "record": 3, "byte": None, "reason": reason}
    assert reject == expected


def test_document_above_the_limit_is_named(tmp_path: Path) -> None:
    write_pair(tmp_path / "pair", [[[1]], [[2], [3, 4]]])
    options = ("--vocab-size", 9, "--max-document-bytes", 5)
    result = run("import", tmp_path / "pair", "-o", tmp_path / "store", *options)
    message = f"{tmp_path}/pair.bin:2: document larger than 5 bytes"
    hint = "hint: pass a larger --max-document-bytes, or split the document"
    check_refused(result, 3, message, hint)


# Runs


def write_many(folder: Path) -> Path:
    """Write two pairs of 4,000 documents, some empty, with files beside them that are skipped."""
    chance = np.random.default_rng(0)
    for name, code in (("a", 8), ("deep/b", 4)):
        lengths = chance.integers(0, 60, 4000).tolist()
        sequences = [chance.integers(0, 1000, length).tolist() for length in lengths]
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        by_document = groupby(enumerate(sequences), lambda numbered: numbered[0] // 3)
        write_pair(folder / name, [[each for _, each in found] for _, found in by_document], code)
    (folder / "README.md").write_text("how it was made")
    return folder


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_many(tmp_path_factory.mktemp("many"))


OPTIONS = ("--vocab-size", 1000, "--part-bytes", 40_000)


@pytest.fixture(scope="module")
def store(pairs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of the pairs, made in this process."""
    folder = tmp_path_factory.mktemp("store")
    result = run("import", pairs, "-o", folder / "store", *OPTIONS, "--num-workers", 1)
    assert result.exit_code == 0, result.stderr
    assert result.stderr == f"note: skipped 1 file with an unknown suffix: {pairs}/README.md\n"
    return folder / "store"


@pytest.mark.parametrize("workers", [("--num-workers", 2), ()])
def test_bytes_do_not_depend_on_workers_and_threads(
    pairs: Path, store: Path, tmp_path: Path, workers: tuple[object, ...]
) -> None:
    result = run("import", pairs, "-o", tmp_path / "store", *OPTIONS, *workers)
    assert result.exit_code == 0, result.stderr
    assert read_folder(tmp_path / "store") == read_folder(store)
    again = run("import", pairs, "-o", tmp_path / "store", *OPTIONS, *workers)
    assert "already complete" in again.stdout


def test_ids_do_not_depend_on_the_parts(pairs: Path, store: Path, tmp_path: Path) -> None:
    names = [pairs / "a.idx", pairs / "deep/*.bin"]
    import_ids(names, tmp_path / "store", part_bytes=1 << 20)
    found, expected = read_store(tmp_path / "store"), read_store(store)
    assert len(found.manifest["parts"]) < len(expected.manifest["parts"])
    assert list_documents(found) == list_documents(expected)
    assert found.places == expected.places


@pytest.mark.parametrize("workers", [1, None])
def test_stopped_import_is_continued_with_the_same_bytes(
    pairs: Path, store: Path, tmp_path: Path, workers: int | None
) -> None:
    left = [150_000]

    def stop(num_bytes: int) -> None:
        left[0] -= num_bytes
        if left[0] < 0:
            raise Stop

    options = ImportOptions(vocab_size=1000, part_bytes=40_000)
    progress = Progress(on_advance=stop)
    with pytest.raises(Stop):
        import_store(
            pairs,
            tmp_path / "store",
            options,
            executor=HERE if workers else None,
            progress=progress,
        )
    has_parts = any((tmp_path / "store").glob("part-*.json"))  # threads end in any order
    assert has_parts or workers is None
    result = run("import", pairs, "-o", tmp_path / "store", *OPTIONS)
    assert ("already finished" in result.stderr) == has_parts
    assert read_folder(tmp_path / "store") == read_folder(store)


@pytest.mark.parametrize("name", ["a.bin", "a.idx"])
@pytest.mark.parametrize("is_finished", [True, False])
def test_pair_that_changed_since_is_refused(tmp_path: Path, name: str, is_finished: bool) -> None:
    """Either file, also where the other has the same bytes; a length is moved to its neighbour."""
    write_pair(tmp_path / "a", [[[1, 2], [3]], [[4]]])

    def stop(_: int) -> None:
        raise Stop

    if is_finished:
        import_ids(tmp_path / "a", tmp_path / "store", part_bytes=6)
    else:
        stopping = iter([lambda _: None, stop])
        with pytest.raises(Stop):
            import_store(
                tmp_path / "a",
                tmp_path / "store",
                ImportOptions(vocab_size=1000, part_bytes=6),
                executor=HERE,
                progress=Progress(on_advance=lambda number: next(stopping)(number)),
            )
    changed = [[[1, 2], [9]], [[4]]] if name == "a.bin" else [[[1], [2, 3]], [[4]]]
    write_pair(tmp_path / "a", changed)
    with pytest.raises(FolderError) as caught:
        import_ids(tmp_path / "a", tmp_path / "store", part_bytes=6)
    message = f"{tmp_path}/store: {tmp_path}/a.bin or {tmp_path}/a.idx changed since this run began"
    assert caught.value.message == message


def test_overwrite_replaces_imported_stores_only(tmp_path: Path) -> None:
    write_pair(tmp_path / "a", [[[1, 2]]])
    (tmp_path / "a.txt").write_text("text")
    import_ids(tmp_path / "a", tmp_path / "store")
    write_pair(tmp_path / "a", [[[3]]])
    importing = ("import", tmp_path / "a", "--vocab-size", 1000, "--overwrite")
    assert run(*importing, "-o", tmp_path / "store").exit_code == 0
    assert read_store(tmp_path / "store").sequences == [[3]]
    tokenize(tmp_path / "a.txt", tmp_path / "texts")
    before = read_folder(tmp_path / "texts")
    check_refused(
        run(*importing, "-o", tmp_path / "texts"),
        4,
        f"{tmp_path}/texts: holds a token store of another command, expected one of import",
        "hint: choose another -o; --overwrite only replaces what the same command wrote",
    )
    assert read_folder(tmp_path / "texts") == before


def test_pairs_in_an_object_store(
    server: FaultProxy, pairs: Path, store: Path, tmp_path: Path
) -> None:
    """From there, and to there; the index of a pair is read once."""
    for path in pairs.rglob("*.*"):
        name = f"{BUCKET}/in/{path.relative_to(pairs)}"
        put_object(server.upstream, name, path.read_bytes())
    server.forget()
    options = (*OPTIONS, "--num-workers", 1)
    result = run("import", f"s3://{BUCKET}/in", "-o", tmp_path / "store", *options)
    assert result.exit_code == 0, result.stderr
    assert len(server.find("GetObject", key=r"a\.idx")) == 1
    result = run("import", pairs, "-o", f"s3://{BUCKET}/out", *options)
    assert result.exit_code == 0, result.stderr
    found = read_objects(server.upstream, BUCKET, "out")
    here = {path.name: path.read_bytes() for path in store.iterdir()}
    there = {path.name: path.read_bytes() for path in (tmp_path / "store").iterdir()}
    parts = [name for name in here if name.startswith("part-")]
    assert len(parts) == 3 * len(json.loads(here["manifest.json"])["parts"]) > 30
    assert set(found) == set(there) == set(here)
    for name in parts:
        assert here[name] == there[name] == found[name]
    with pytest.raises(DataError, match=r"s3://import/in/a\.idx: .* bytes, its header says"):
        put_object(server.upstream, f"{BUCKET}/in/a.idx", (pairs / "a.idx").read_bytes()[:-8])
        import_ids(f"s3://{BUCKET}/in/a", tmp_path / "other")
