"""The tokenizer.json of stores and shards: truncated, also with every digest made to match."""

from __future__ import annotations

from pathlib import Path

import pytest
from blake3 import blake3
from command import run
from shard_reference import (
    change_manifest,
    make_shards,
    pretend_to_be_of,
)

from seqpack_cli.errors import FolderError
from seqpack_cli.shards.shard_set import open_shards
from seqpack_cli.tokens.store import open_store
from seqpack_cli.tokens.tokenizer import check_kept_tokenizer


def cut_tokenizer(folder: Path, *, digest_fits: bool) -> None:
    """Cut the second half of a tokenizer.json off."""
    path = folder / "tokenizer.json"
    raw = path.read_bytes()[: path.stat().st_size // 2]
    path.write_bytes(raw)
    if digest_fits:
        digest = blake3(raw).hexdigest()
        change_manifest(folder, lambda manifest: manifest.update(tokenizer_blake3=digest))


def test_good_tokenizers_match_their_manifests(tmp_path: Path) -> None:
    shards = open_shards(make_shards(tmp_path))
    check_kept_tokenizer(shards.path, shards.manifest)
    store = open_store(tmp_path / "store")
    check_kept_tokenizer(store.path, store.manifest)


@pytest.mark.parametrize("digest_fits", [False, True])
def test_cut_tokenizer_of_the_store_is_refused(tmp_path: Path, digest_fits: bool) -> None:
    shards, store = make_shards(tmp_path), tmp_path / "store"
    cut_tokenizer(store, digest_fits=digest_fits)
    pretend_to_be_of(shards, store)
    found = "not a tokenizer (" if digest_fits else "blake3 differs from the manifest's"
    for command in (("inspect", store), ("verify", shards, "--level", "structure")):
        result = run(*command)
        assert result.exit_code == 4
        assert f"{store / 'tokenizer.json'}: {found}" in result.stderr


def test_equally_truncated_tokenizers_are_a_fault(tmp_path: Path) -> None:
    shards, store = make_shards(tmp_path), tmp_path / "store"
    for folder in (shards, store):
        cut_tokenizer(folder, digest_fits=True)
    pretend_to_be_of(shards, store)
    for path in (shards, store):
        assert run("inspect", path).exit_code == 4
    result = run("verify", shards, "--level", "structure")
    assert result.exit_code == 1
    assert "structure: tokenizer.json: not a tokenizer (" in result.stdout


@pytest.mark.parametrize("name", ["vocab_size", "max_id"])
def test_vocabulary_that_differs_from_the_manifest_is_named(tmp_path: Path, name: str) -> None:
    shards = make_shards(tmp_path)
    change_manifest(shards, lambda manifest: manifest.update({name: manifest[name] + 1}))
    number = {"vocab_size": 259, "max_id": 258}[name]
    expected = f"tokenizer.json: {name} is {number}, manifest says {number + 1}"
    result = run("verify", shards, "--level", "structure")
    assert result.exit_code == 1
    assert f"structure: {expected}" in result.stdout
    inspected = run("inspect", shards)
    assert inspected.exit_code == 4
    assert expected in inspected.stderr


EMPTY = b'{"version": "1.0", "model": {"type": "BPE", "vocab": {}, "merges": []}}'


@pytest.mark.parametrize("raw", [b"", b"{}", b"[]", b"null", EMPTY], ids=str)
def test_file_that_is_not_a_tokenizer_is_refused(tmp_path: Path, raw: bytes) -> None:
    shards = make_shards(tmp_path)
    (shards / "tokenizer.json").write_bytes(raw)
    digest = blake3(raw).hexdigest()
    change_manifest(shards, lambda manifest: manifest.update(tokenizer_blake3=digest))
    opened = open_shards(shards)
    with pytest.raises(FolderError, match=r"tokenizer.json: not a tokenizer \("):
        check_kept_tokenizer(opened.path, opened.manifest)
