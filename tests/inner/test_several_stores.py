"""Several stores as one: what one store of the same files has; which cannot be combined."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from here import HERE

from seqpack_cli import PackOptions, Progress, TokenizeOptions, open_store, pack, tokenize
from seqpack_cli.errors import FolderError, OptionError
from seqpack_cli.tokens.store import TokenStore, choose_columns, name_stores, open_stores

KEEP = ("lang:class", "title:text", "score:float", "words:tags")
Write = Callable[..., Path]
# Text, class, text, number; words are marked by their spans. An empty text has no sequence.
FILES: dict[str, list[tuple[str, str, str, float]]] = {
    "a": [("one two", "de", "A", 0.5), ("", "en", "", 1.5), ("three four five six", "en", "é", 2)],
    "b": [("", "fr", "none", 0), ("six", "fr", "B", 9), ("", "fr", "none", 0)],
    "c": [("seven", "fr", "B", 3), ("", "de", "", 4), ("eight nine ten", "it", "C", -1)],
}


def write_file(path: Path, rows: Iterable[tuple[str, str, str, float]]) -> Path:
    with path.open("w") as file:
        for number, (text, lang, title, score) in enumerate(rows):
            words = [{"start": 0, "end": 3, "label": "xyz"[number % 3]}] if text else []
            record = {"text": text, "lang": lang, "title": title, "score": score, "words": words}
            file.write(json.dumps(record) + "\n")
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a store of each file, each with several parts, and one of all files."""
    folder = tmp_path_factory.mktemp("combined")
    options = TokenizeOptions(keep=KEEP, max_length=9, part_bytes=90)
    paths = [str(write_file(folder / f"{name}.jsonl", rows)) for name, rows in FILES.items()]
    for path, name in zip(paths, FILES, strict=True):
        tokenize([path], folder / name, options, executor=HERE)
    tokenize(paths, folder / "all", options, executor=HERE)
    return folder


@pytest.fixture(scope="module")
def both(folder: Path) -> tuple[TokenStore, TokenStore]:
    """Return the stores as one, and the store of all files."""
    stores = open_store([folder / name for name in FILES])
    return stores, open_store(folder / "all")


def join_parts(store: TokenStore, read: Callable[[int], Any]) -> list[Any]:
    return [value for number in range(store.num_parts) for value in read(number).tolist()]


def test_sequences_are_those_of_one_store(both: tuple[TokenStore, TokenStore]) -> None:
    found, expected = both
    assert len(found) == len(expected) == 8
    assert [ids.tolist() for ids in found] == [ids.tolist() for ids in expected]
    for index in range(-len(found), len(found)):
        assert found[index].tolist() == expected[index].tolist()
    assert [ids.tolist() for ids in found[2:-1:3]] == [ids.tolist() for ids in expected[2:-1:3]]
    assert found.lengths.dtype == np.int32
    assert found.lengths.tolist() == expected.lengths.tolist()
    for name in ("num_documents", "num_tokens", "dtype", "max_id"):
        assert getattr(found, name) == getattr(expected, name)
    for index in (len(found), -len(found) - 1):
        with pytest.raises(IndexError):
            found[index]


def test_parts_are_those_of_the_stores_in_turn(both: tuple[TokenStore, TokenStore]) -> None:
    found, expected = both
    assert found.num_parts == sum(len(each.parts) for each in found.folders) > 4
    assert found.part_offsets[-1] == len(expected)
    for number in range(found.num_parts):
        first, last = found.part_offsets[number : number + 2].tolist()
        assert found.part_lengths(number).tolist() == expected.lengths[first:last].tolist()
        ids, starts = found.view_part(number)
        for inside, index in enumerate(range(first, last)):
            start = int(starts[inside]) // ids.itemsize
            assert ids[start : start + len(expected[index])].tolist() == expected[index].tolist()
    for read in ("number_documents", "part_hashes", "count_sequences"):
        assert join_parts(found, getattr(found, read)) == join_parts(
            expected, getattr(expected, read)
        )
    with pytest.raises(IndexError):
        found.part_lengths(found.num_parts)


def test_columns_have_the_classes_of_all_stores(both: tuple[TokenStore, TokenStore]) -> None:
    found, expected = both
    assert dict(found.columns) == dict(expected.columns)
    assert found.columns["lang"].class_names == ("de", "en", "fr", "it")
    for name in found.columns:
        values = join_parts(found, lambda part, name=name: found.part_column(part, name))
        assert values == join_parts(
            expected, lambda part, name=name: expected.part_column(part, name)
        )
    assert [*found.fetch_columns()] == [*range(found.num_parts)]


def test_a_sequence_is_found_in_its_store(
    both: tuple[TokenStore, TokenStore], folder: Path
) -> None:
    found, expected = both
    for index in range(len(found)):
        origin, other = found.locate(index), expected.locate(index)
        assert (origin.source, origin.record, origin.piece) == (
            other.source,
            other.record,
            other.piece,
        )
        assert Path(str(origin.store)) == folder / Path(origin.source).stem


def test_a_copy_in_another_process_is_the_same(both: tuple[TokenStore, TokenStore]) -> None:
    found, _ = both
    assert found.lengths.any()
    copy = pickle.loads(pickle.dumps(found))  # noqa: S301
    assert "lengths" not in vars(copy)
    assert [ids.tolist() for ids in copy] == [ids.tolist() for ids in found]
    assert (copy.digest, dict(copy.columns)) == (found.digest, dict(found.columns))


def test_damage_of_any_store_is_found(folder: Path, byte_store: Write) -> None:
    first, second = byte_store(["abc"], name="x"), byte_store(["defg", "h"], name="y")
    stores = open_store([first, second])
    stores.check_digest()
    stores.check_indices()
    index = second / "part-00000.idx"
    data = bytearray(index.read_bytes())
    data[34] ^= 1  # the length of its first sequence
    index.write_bytes(data)
    other = open_store([first, second], check_indices=False)
    other.check_indices(0, 1)
    for check in (other.check_digest, other.check_indices, lambda: other.check_indices(1)):
        with pytest.raises(FolderError, match=r"y/part-00000\.idx"):
            check()


def test_order_of_class_names_stays_where_all_stores_have_it(tmp_path: Path) -> None:
    places = []
    for name, keep in (("a", "lang:class=it,de"), ("b", "lang:class=it,de"), ("c", "lang:class")):
        path = write_file(tmp_path / f"{name}.jsonl", [("x " + name, "de", "", 0)])
        tokenize([str(path)], tmp_path / name, TokenizeOptions(keep=[keep]), executor=HERE)
        places.append(tmp_path / name)
    assert open_stores(places[:2]).columns["lang"].class_names == ("it", "de")
    assert open_stores(places).columns["lang"].class_names == ("de", "it")


@pytest.mark.parametrize(
    ("keep", "found"),
    [
        ("score:class", "found kind class with number classes, {} has kind float"),
        ("title", "found none, {} has kind float"),
    ],
)
def test_columns_that_differ_are_refused_or_dropped(tmp_path: Path, keep: str, found: str) -> None:
    path = write_file(tmp_path / "corpus.jsonl", [("x", "de", "t", 1.5)])
    options = TokenizeOptions(keep=("lang", "score:float"))
    tokenize([str(path)], tmp_path / "a", options, executor=HERE)
    path = write_file(tmp_path / "corpus.jsonl", [("y", "de", "t", 1.5)])
    options = TokenizeOptions(keep=("lang", keep))
    tokenize([str(path)], tmp_path / "b", options, executor=HERE)
    places = [tmp_path / "a", tmp_path / "b"]
    with pytest.raises(OptionError) as caught:
        open_stores(places)
    assert caught.value.message == f"{tmp_path}/b: column 'score': {found.format(tmp_path / 'a')}"
    assert caught.value.hint == (
        "tokenize them with the same --keep, or leave the column out: --drop-column score, or "
        "columns=[...] in Python"
    )
    if keep == "title":
        with pytest.raises(OptionError, match="column 'title'"):
            open_stores(places, without=["score"])
    assert [*open_stores(places, without=["score", "title"][: 1 + (keep == "title")]).columns] == [
        "lang"
    ]


def test_a_column_to_drop_must_exist(folder: Path) -> None:
    with pytest.raises(OptionError) as caught:
        open_stores([folder / "a", folder / "c"], without=["langs"])
    assert caught.value.message == (
        "--drop-column 'langs': no store has this column (found: 'lang', 'score', 'title', 'words')"
    )


def test_a_column_of_stores_is_a_class_by_their_names(folder: Path) -> None:
    stores = choose_columns(
        open_stores([folder / "a", folder / "c"]), without=["words"], store_column="source"
    )
    assert [*stores.columns] == ["lang", "title", "score", "source"]
    assert stores.columns["source"].class_names == ("a", "c")
    values = join_parts(stores, lambda part: stores.part_column(part, "source"))
    first = stores.folders[0].num_sequences
    assert values == [0] * first + [1] * (len(stores) - first)
    with pytest.raises(OptionError) as caught:
        choose_columns(stores, store_column="lang")
    assert caught.value.message == "--store-column lang: the stores have a column of that name"


@pytest.mark.parametrize("name", ["", "targets", "next", "@length"])
def test_a_column_of_stores_has_no_name_with_another_meaning(folder: Path, name: str) -> None:
    with pytest.raises(OptionError) as caught:
        choose_columns(open_store(folder / "a"), store_column=name)
    assert caught.value.message == f"--store-column: a column cannot be named {name!r}"


@pytest.mark.parametrize("how", ["twice", "link", "dots"])
def test_the_same_store_twice_is_refused(folder: Path, tmp_path: Path, how: str) -> None:
    other = folder / "a"
    if how == "link":
        other = tmp_path / "link"
        other.symlink_to(folder / "a")
    elif how == "dots":
        other = folder / "c" / ".." / "a"
    with pytest.raises(OptionError) as caught:
        open_store([folder / "a", folder / "c", other])
    assert caught.value.message == f"{other}: has the same content as {folder / 'a'}"
    assert caught.value.hint == "name it once; to visit its sequences twice, pass --passes to pack"


def test_stores_of_another_tokenizer_are_refused_with_both_digests(
    byte_store: Write, tmp_path: Path, sample_data: Path
) -> None:
    first = byte_store(["abc"])
    tokenizer = str(sample_data / "tokenizer.json")
    second = byte_store(["abc"], name="words", tokenizer=tokenizer)
    with pytest.raises(OptionError) as caught:
        open_store([first, second])
    digests = [open_store(each).manifest["tokenizer_blake3"] for each in (first, second)]
    assert caught.value.message == (f"{second}: tokenizer {digests[1]}, {first} has {digests[0]}")
    assert caught.value.hint == "tokenize all stores with the same tokenizer"


def test_one_store_is_not_combined_and_none_is_nonsense(folder: Path) -> None:
    store = open_store([folder / "a"])
    assert [each.path for each in store.folders] == [store.path]
    with pytest.raises(ValueError, match="no store"):
        open_store([])


def test_stores_are_named_by_their_folders_or_positions(tmp_path: Path) -> None:
    places = [tmp_path / "x" / "books", tmp_path / "web", tmp_path / "y" / "books"]
    assert name_stores(places) == ["1", "web", "3"]


def test_columns_that_not_all_stores_have_need_not_be_read(tmp_path: Path) -> None:
    for name, keep in (("a", ("n",)), ("b", ("n", "m"))):
        (tmp_path / f"{name}.jsonl").write_text('{"text": "abc", "n": 1, "m": 2}\n' * 3)
        options = TokenizeOptions(keep=keep)
        tokenize([str(tmp_path / f"{name}.jsonl")], tmp_path / name, options, executor=HERE)
    paths = [tmp_path / "a", tmp_path / "b"]
    with pytest.raises(OptionError, match=r"column 'm': found kind int, .* has none"):
        open_store(paths)
    assert [*open_store(paths, columns=["n"]).columns] == ["n"]
    assert [*open_store(paths[1], columns=["m"]).columns] == ["m"]
    with pytest.raises(OptionError, match="column 'm': found kind int"):
        open_store(paths, columns=["m"])
    with pytest.raises(ValueError, match=r"no column 'k' \(found: 'n'\)"):
        open_store(paths, columns=["k"])


@pytest.mark.parametrize("keep", [(), ("n:float",)])
def test_split_by_a_column_that_the_stores_do_not_share_is_refused(
    tmp_path: Path, keep: tuple[str, ...]
) -> None:
    for name, kept in (("a", ("n:int",)), ("b", keep)):
        (tmp_path / f"{name}.jsonl").write_text('{"text": "abc", "n": 1}\n' * 3)
        options = TokenizeOptions(keep=kept)
        tokenize([str(tmp_path / f"{name}.jsonl")], tmp_path / name, options, executor=HERE)
    packing = PackOptions(split="x=0.5,y=rest", split_by="n", drop_column=["n"])
    with pytest.raises(OptionError) as caught:
        pack([tmp_path / "a", tmp_path / "b"], tmp_path / "out", packing, executor=HERE)
    assert "b has no such column (found: none)" in caught.value.message
    assert "pass --keep n to tokenize" in str(caught.value.hint)


def test_a_store_of_which_nothing_is_packed_is_noted(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text(f"{name}bc\n" * 3)
        tokenize([str(tmp_path / f"{name}.txt")], tmp_path / name, executor=HERE)
    notes: list[str] = []
    packing = PackOptions(share="a=0.999999999,b=rest")
    progress = Progress(on_notice=notes.append)
    stores = [tmp_path / "a", tmp_path / "b"]
    pack(stores, tmp_path / "out", packing, executor=HERE, progress=progress)
    assert notes == [f"no sequence of {tmp_path}/b was packed"]
