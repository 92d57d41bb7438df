"""Two aligned stores: which sequences are of the same document; stores that are not aligned."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from foreign_ids import write_pair
from here import HERE
from imported_store import change_manifest

from seqpack_cli import (
    DocumentOptions,
    ImportOptions,
    OptionError,
    TokenizeOptions,
    import_store,
    open_store,
    tokenize,
)
from seqpack_cli.shards import alignment
from seqpack_cli.shards.alignment import Alignment
from seqpack_cli.shards.selection import make_test
from seqpack_cli.tokens.store import TokenStore

RECORDS = [("one", "eins"), ("two", "zwei"), ("three", "drei"), ("four", "vier")]


def make_store(
    store: Path, files: Mapping[str, Sequence[str]], *, field: str = "text", **options: Any
) -> Path:
    """Write files beside the store and tokenize them into it, a byte per token."""
    for name, lines in files.items():
        path = store.parent / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines))
    documents = DocumentOptions(text_field=field, on_bad_record="skip")
    paths = [str(store.parent / name) for name in files]
    tokenize(paths, store, TokenizeOptions(documents=documents, **options), executor=HERE)
    return store


def import_rows(store: Path, rows: Sequence[Sequence[int]], **options: Any) -> Path:
    """Import a record for each row, with its first id as the field `id`."""
    records = [{"input_ids": row, "id": row[0] if row else 0} for row in rows]
    path = store.with_suffix(".jsonl")
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    import_store([str(path)], store, ImportOptions(vocab_size=9, **options), executor=HERE)
    return store


def make_records(pairs: Sequence[tuple[Any, Any]]) -> list[str]:
    return [json.dumps({"src": first, "tgt": second}) for first, second in pairs]


def align(encoder: Path | Sequence[Path], decoder: Path | Sequence[Path]) -> Alignment:
    return alignment.align(open_store(encoder), open_store(decoder))


def find_places(store: TokenStore) -> dict[tuple[int, int], int]:
    """Return the index of the sequence of each document, by store and document."""
    numbers = {str(each.path): number for number, each in enumerate(store.folders)}
    found = map(store.locate, range(len(store)))
    return {(numbers[it.store], it.document): index for index, it in enumerate(found)}


def check_alignment(alignment: Alignment) -> None:
    """Compare with the documents that `locate` finds."""
    encoder, decoder = alignment.encoder, alignment.decoder
    places = find_places(decoder)
    expected = [places.get(document, -1) for document in find_places(encoder)]
    assert alignment.decoder_indices.dtype == np.int64
    assert alignment.decoder_indices.tolist() == expected
    lengths = [len(decoder[index]) if index >= 0 else 0 for index in expected]
    assert alignment.decoder_lengths.dtype == np.int32
    assert alignment.decoder_lengths.tolist() == lengths
    lone = [len(decoder[index]) for index in set(places.values()).difference(expected)]
    assert alignment.lone_lengths.tolist() == lone
    test = alignment.spread(make_test(decoder, "@length >= 4"))
    found = [test(number).tolist() for number in range(encoder.num_parts)]
    assert [each for part in found for each in part] == [length >= 4 for length in lengths]
    assert list(map(len, found)) == np.diff(encoder.part_offsets).tolist()


def test_two_fields_of_records_are_aligned(tmp_path: Path) -> None:
    files = {"pairs.jsonl": make_records(RECORDS)}
    encoder, decoder = (make_store(tmp_path / name, files, field=name) for name in ("src", "tgt"))
    alignment = align(encoder, decoder)
    check_alignment(alignment)
    assert alignment.decoder_indices.tolist() == [0, 1, 2, 3]
    assert not len(alignment.lone_lengths)


def test_lines_of_two_files_are_aligned_where_some_are_empty(tmp_path: Path) -> None:
    encoder = make_store(tmp_path / "src", {"a.en": ["one", "", "two", "three", ""]})
    decoder = make_store(tmp_path / "tgt", {"a.de": ["", "eins", "zwei", "drei", ""]})
    alignment = align(encoder, decoder)
    check_alignment(alignment)
    assert alignment.decoder_indices.tolist() == [-1, 1, 2]
    assert alignment.lone_lengths.tolist() == [4]


def test_parts_and_files_may_be_cut_in_other_places(tmp_path: Path) -> None:
    draws = random.Random(3)
    lines = ["x" * max(draws.randrange(-2, 9), 0) for _ in range(400)]
    encoders = [
        make_store(tmp_path / "s0", {"a.txt": lines[:150], "b.txt": lines[150:]}, part_bytes=90),
        make_store(tmp_path / "s1", {"c.txt": ["", *lines[:50], ""]}),
    ]
    draws.shuffle(lines)
    decoders = [
        make_store(tmp_path / "t0", {"d.txt": lines}, part_bytes=230),
        make_store(tmp_path / "t1", {"e.txt": ["xx", *lines[50:100], "xxxx"]}, part_bytes=20),
    ]
    check_alignment(align(encoders, decoders))
    check_alignment(align(decoders, encoders))


def test_a_rejected_record_is_an_empty_document(tmp_path: Path) -> None:
    files = {"pairs.jsonl": make_records([RECORDS[0], ("two", None), *RECORDS[2:]])}
    encoder, decoder = (make_store(tmp_path / name, files, field=name) for name in ("src", "tgt"))
    assert (decoder / "rejects.jsonl").exists()
    alignment = align(encoder, decoder)
    check_alignment(alignment)
    assert alignment.decoder_indices.tolist() == [0, -1, 1, 2]


def test_imported_ids_are_aligned_with_text(tmp_path: Path) -> None:
    decoder = import_rows(tmp_path / "tgt", [[1, 2], [], [3]], part_bytes=10)
    encoder = make_store(tmp_path / "src", {"a.txt": ["one", "two", "three"]})
    alignment = align(encoder, decoder)
    check_alignment(alignment)
    assert alignment.decoder_indices.tolist() == [0, -1, 1]


def test_conditions_are_evaluated_once_when_needed(tmp_path: Path) -> None:
    """A document without a decoder's sequence takes no bit, not the last of 8 either."""
    encoder = make_store(tmp_path / "src", {"a.en": list("abcdefghi")}, part_bytes=6)
    decoder = make_store(tmp_path / "tgt", {"a.de": ["", *"bcdefghi"]}, part_bytes=8)
    seen = []

    def test(number: int) -> np.ndarray:
        seen.append(number)
        return alignment.decoder.part_lengths(number) > 0

    alignment = align(encoder, decoder)
    found = alignment.spread(test)
    assert seen == []
    rows = [value for number in range(3) for value in found(number).tolist()]
    assert rows == [False, *[True] * 8]
    assert seen == [0, 1]


def refuse(encoder: Path | Sequence[Path], decoder: Path | Sequence[Path]) -> tuple[str, str]:
    """Return the message and the hint of the error about two stores."""
    with pytest.raises(OptionError) as caught:
        align(encoder, decoder)
    return caught.value.message, str(caught.value.hint)


def test_another_number_of_stores_is_refused(tmp_path: Path) -> None:
    encoder = make_store(tmp_path / "src", {"a.en": ["one"]})
    decoders = [make_store(tmp_path / name, {f"{name}.txt": [name]}) for name in ("t0", "t1")]
    assert refuse(encoder, decoders) == (
        "--decoder: 2 stores, expected 1, one for each STORE",
        "pass --decoder once for each STORE, in the same order",
    )


def test_another_number_of_documents_is_refused(tmp_path: Path) -> None:
    encoder = make_store(tmp_path / "src", {"a.en": ["one", "two"]})
    decoder = make_store(tmp_path / "tgt", {"a.de": ["eins", "zwei"], "b.de": ["drei"]})
    assert refuse(encoder, decoder) == (
        f"{decoder}: 3 documents, expected 2 as in {encoder}",
        "tokenize two fields of the same records, or two files with a line for each pair",
    )


def test_the_source_of_another_number_of_documents_is_named(tmp_path: Path) -> None:
    """The totals are equal, so only the sources tell that the second pair is not one."""
    first = make_store(tmp_path / "s0", {"x.en": ["one"]})
    encoder = make_store(tmp_path / "src", {"a.en": ["one", "two"], "b.en": ["three"]})
    twin = make_store(tmp_path / "t0", {"x.de": ["eins"]})
    decoder = make_store(tmp_path / "tgt", {"a.de": ["eins"], "b.de": ["zwei", "drei"]})
    assert refuse([first, encoder], [twin, decoder])[0] == (
        f"{decoder}: 1 document in source {tmp_path / 'a.de'}, expected 2 as in source "
        f"{tmp_path / 'a.en'} of {encoder}"
    )


CHANGED = (
    "make both stores again from the same file; two different files need different paths, such as "
    "de/train.txt and en/train.txt"
)


def make_changed(folder: Path, later: str) -> tuple[Path, Path]:
    """Make two stores of one path, whose second line changes between the two runs."""
    encoder = make_store(folder / "src", {"a.txt": ["one", "two"]}, part_bytes=4)
    return encoder, make_store(folder / "tgt", {"a.txt": ["one", later]}, part_bytes=4)


def test_a_file_of_another_size_is_refused(tmp_path: Path) -> None:
    encoder, decoder = make_changed(tmp_path, "three")
    found = f"{decoder}: source {tmp_path / 'a.txt'} has other bytes than in {encoder}"
    assert refuse(encoder, decoder) == (found, CHANGED)


def test_a_file_with_other_bytes_is_refused(tmp_path: Path) -> None:
    encoder, decoder = make_changed(tmp_path, "six")
    found = f"{decoder}: source {tmp_path / 'a.txt'} has other bytes than in {encoder}"
    assert refuse(encoder, decoder) == (found, CHANGED)


def test_standard_input_is_not_one_file(tmp_path: Path) -> None:
    stores = make_changed(tmp_path, "six")
    for store in stores:
        sources = json.loads((store / "manifest.json").read_bytes())["sources"]
        change_manifest(store, {"sources": [{**sources[0], "path": "-"}]})
    check_alignment(align(*stores))


def test_two_fields_of_files_in_another_order_are_refused(tmp_path: Path) -> None:
    files = {"a.jsonl": make_records(RECORDS[:2]), "b.jsonl": make_records(RECORDS[2:])}
    encoder = make_store(tmp_path / "src", files, field="src")
    decoder = make_store(tmp_path / "tgt", dict(reversed(files.items())), field="tgt")
    assert refuse(encoder, decoder) == (
        f"{decoder}: source {tmp_path / 'a.jsonl'} is number 2, expected 1 as in {encoder}",
        "pass both tokenize commands the same files in the same order",
    )


def test_copies_of_files_in_another_order_are_refused(tmp_path: Path) -> None:
    records = {"a": make_records(RECORDS[:2]), "b": make_records(RECORDS[2:])}
    encoder = make_store(tmp_path / "src", {f"{it}.jsonl": records[it] for it in "ab"}, field="src")
    for order in ("ab", "ba"):
        files = {f"copies/{it}.jsonl": records[it] for it in order}
        decoder = make_store(tmp_path / order, files, field="tgt")
        if order == "ab":
            check_alignment(align(encoder, decoder))
    assert refuse(encoder, decoder) == (
        f"{decoder}: source {tmp_path / 'copies' / 'a.jsonl'} is number 2, expected 1 as "
        f"{tmp_path / 'a.jsonl'} in {encoder}, which has the same bytes",
        "pass both tokenize commands the same files in the same order",
    )


def test_the_same_files_may_be_pairs_both_ways(tmp_path: Path) -> None:
    files = {"a.en": ["one", "two"], "a.de": ["eins", "zwei"]}
    encoder = make_store(tmp_path / "src", files)
    decoder = make_store(tmp_path / "tgt", dict(reversed(files.items())))
    check_alignment(align(encoder, decoder))


def test_a_split_document_is_refused(tmp_path: Path) -> None:
    """Together with an empty document there are as many sequences as documents."""
    encoder = make_store(tmp_path / "src", {"a.en": ["one", "two", "", "three"]})
    lines = ["eins", "", "zwei", "drei und mehr"]
    decoder = make_store(tmp_path / "tgt", {"a.de": lines}, max_length=8, part_bytes=7)
    what = f"{decoder}: document {tmp_path / 'a.de'}:4 has 2 sequences"
    message = f"{what}, expected 1 for each document of a pair"
    hint = "tokenize without --max-length, or with --overflow truncate"
    assert refuse(encoder, decoder) == (message, hint)
    assert refuse(decoder, encoder) == (message, hint)


def test_an_imported_document_of_several_sequences_is_refused(tmp_path: Path) -> None:
    pair, decoder = write_pair(tmp_path / "pair", [[[1]], [[2], [2, 3]]]), tmp_path / "tgt"
    import_store(f"{pair}.idx", decoder, ImportOptions(vocab_size=9), executor=HERE)
    encoder = make_store(tmp_path / "src", {"a.txt": ["one", "two"]})
    message, hint = refuse(encoder, decoder)
    assert message.startswith(f"{decoder}: document {pair}.bin:2 has 2 sequences, expected 1")
    assert hint == "import ids as JSON lines, a record for each document"
