"""Build the tokenizer of a tokenizer.json and describe its vocabulary."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3
from seqpack_cli.tokens.byte_tokenizer import byte_tokenizer_json
from seqpack_cli.tokens.vocabulary import (
    build_tokenizer,
    catch_failure,
    describe_vocabulary,
    find_saved_limits,
    read_tokenizer_json,
)
from tokenizers import AddedToken, Tokenizer, models

from seqpack_cli.errors import DataError, OptionError


def word_level(vocabulary: dict[str, int], unknown: str = "<unk>", **added: bool) -> bytes:
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=unknown))
    for name, special in added.items():
        tokenizer.add_tokens([AddedToken(f"<{name}>", special=special)])
    return bytes(tokenizer.to_str(), "utf-8")


def test_tokenizer_comes_by_name_path_or_folder(tiny_tokenizer: Path) -> None:
    assert read_tokenizer_json("bytes") == byte_tokenizer_json()
    data = tiny_tokenizer.read_bytes()
    assert read_tokenizer_json(str(tiny_tokenizer)) == data
    assert read_tokenizer_json(str(tiny_tokenizer.parent)) == data


@pytest.mark.parametrize("name", ["gone.json", "./gone", "gone/", "a/b/c", "link"])
def test_missing_tokenizer_is_refused_without_asking_the_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if name == "gone/":
        (tmp_path / "gone").mkdir()
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(OptionError) as caught:
        read_tokenizer_json(name)
    path = Path(name) / "tokenizer.json" if name == "gone/" else Path(name)
    assert caught.value.message == f"{path}: no such file"
    assert caught.value.hint == "pass a tokenizer.json, a folder that contains one, or 'bytes'"


def test_bytes_vocabulary_is_described() -> None:
    vocabulary = describe_vocabulary(byte_tokenizer_json())
    assert vocabulary.tokenizer_blake3 == blake3(byte_tokenizer_json()).hexdigest()
    assert (vocabulary.vocab_size, vocabulary.max_id) == (259, 258)
    assert (vocabulary.pad_id, vocabulary.bos_id, vocabulary.eos_id) == (256, 257, 258)
    assert vocabulary.unk_id is None
    assert vocabulary.special_tokens == ("<pad>", "<bos>", "<eos>")


def test_largest_id_counts_gaps_and_added_tokens() -> None:
    vocabulary = describe_vocabulary(word_level({"a": 0, "b": 70_000}, "a"))
    assert (vocabulary.vocab_size, vocabulary.max_id, vocabulary.unk_id) == (2, 70_000, 0)
    more = describe_vocabulary(word_level({"a": 0}, "a", extra=False, eos=True))
    assert (more.vocab_size, more.max_id, more.eos_id) == (3, 2, 2)
    assert more.special_tokens == ("<eos>",)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["[PAD]", "[UNK]", "[BOS]", "[EOS]"], (0, 2, 3, 1)),
        (["<s>", "</s>", "<unk>", "<pad>"], (3, 0, 1, 2)),
        (["<|endoftext|>", "a", "b", "c"], (None, None, 0, None)),
        (["<|begin_of_text|>", "<|end_of_text|>", "a", "b"], (None, 0, 1, None)),
        (["a", "b", "c", "d"], (None, None, None, None)),
    ],
)
def test_roles_are_found_by_the_common_names(
    names: list[str], expected: tuple[int | None, ...]
) -> None:
    found = describe_vocabulary(word_level({name: id_ for id_, name in enumerate(names)}))
    assert (found.pad_id, found.bos_id, found.eos_id, found.unk_id) == expected


def test_names_in_files_beside_the_tokenizer_come_before_common_ones() -> None:
    names = ["<pad>", "<s>", "</s>", "<unk>", "<end>"]
    data = word_level({name: id_ for id_, name in enumerate(names)})
    named = {"pad_token": "<end>", "bos_token": "<no>", "eos_token": "<end>", "unk_token": "<s>"}
    found = describe_vocabulary(data, named)
    assert (found.pad_id, found.bos_id, found.eos_id) == (4, 1, 4)
    assert found.unk_id == 3  # the tokenizer itself says so


@pytest.mark.parametrize("largest", [2**31, 2**32 - 2])
def test_id_above_the_maximum_is_refused(largest: int) -> None:
    data = word_level({"a": 0, "b": 77_777}).replace(b"77777", b"%d" % largest)
    with pytest.raises(DataError) as caught:
        describe_vocabulary(data)
    assert caught.value.message == (
        f"tokenizer.json: its largest id is {largest:,}, expected at most 2,147,483,647"
    )


def test_empty_vocabulary_is_refused() -> None:
    with pytest.raises(DataError) as caught:
        describe_vocabulary(Tokenizer(models.BPE()).to_str().encode())
    assert caught.value.message == "tokenizer.json: the vocabulary is empty"


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"\xff", b"PK\3\4", b'{"model": {}}', b"1"])
def test_file_that_is_not_a_tokenizer_is_refused(data: bytes) -> None:
    with pytest.raises(DataError) as caught:
        build_tokenizer(data, allow_special_tokens=False)
    assert caught.value.message.startswith("tokenizer.json: ")
    assert caught.value.message.endswith(
        ", expected a file in the format of Hugging Face's tokenizers"
    )
    assert caught.value.hint == "pass --tokenizer bytes to use one id per byte"
    assert find_saved_limits(data) == []


def test_saved_truncation_and_padding_are_named_and_off() -> None:
    saved: dict[str, Any] = json.loads(byte_tokenizer_json())
    assert find_saved_limits(byte_tokenizer_json()) == []
    tokenizer = Tokenizer.from_str(json.dumps(saved))
    tokenizer.enable_truncation(2)
    data = tokenizer.to_str().encode()
    assert find_saved_limits(data) == ["truncation"]
    tokenizer.enable_padding(length=9)
    data = tokenizer.to_str().encode()
    assert find_saved_limits(data) == ["truncation", "padding"]
    built = build_tokenizer(data, allow_special_tokens=False)
    assert built.encode("abc").ids == [97, 98, 99]


@pytest.mark.parametrize(("allow", "expected"), [(True, [258]), (False, list(b"<eos>"))])
def test_special_token_in_a_text_is_text_unless_allowed(allow: bool, expected: list[int]) -> None:
    built = build_tokenizer(byte_tokenizer_json(), allow_special_tokens=allow)
    assert built.encode("<eos>", add_special_tokens=False).ids == expected


def test_failures_of_the_library_and_panics_are_turned_into_errors() -> None:
    class PanicException(BaseException):
        pass

    with pytest.raises(DataError) as caught, catch_failure():
        raise PanicException("no merge\nfor it")
    assert caught.value.message == "tokenizer.json: no merge for it"
    with pytest.raises(DataError) as caught, catch_failure():
        raise ValueError("no such token")
    assert caught.value.message == "tokenizer.json: no such token"
    with pytest.raises(KeyboardInterrupt), catch_failure():
        raise KeyboardInterrupt
