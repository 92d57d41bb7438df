"""Objects whose bytes are damaged on the way from a server over plain http."""

from __future__ import annotations

import gzip

import pytest
from command import run
from object_store import put_object, write_object

from seqpack_cli.errors import MachineError
from seqpack_cli.files.objects import Url, find_object, iter_checked_object, read_object

BUCKET = "checks"
TEXT = b"".join(b"line %d of the corpus\n" % number for number in range(400))


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_a_damaged_input_is_an_error_that_names_it(server, tmp_path, name):
    data = TEXT if name == "a.txt" else gzip.compress(TEXT)
    key = f"{tmp_path.name}/{name}"
    put_object(server.upstream, f"{BUCKET}/{key}", data)
    arguments = ("tokenize", f"s3://{BUCKET}/{key}", "-o", tmp_path / "store", "--num-workers", 1)
    place = 5 if name == "a.txt" else 4  # a letter; the time in the head of a gzip file
    with server.breaking("flip", "GetObject", key=name, num_bytes=place) as fault:
        result = run(*arguments)
    assert fault.num_done == 1
    assert result.exit_code == 5, result.stderr
    assert f"s3://{BUCKET}/{key}: damaged during the download, MD5 " in result.stderr
    assert not (tmp_path / "store" / "manifest.json").exists()
    assert run(*arguments).exit_code == 0


def test_a_damaged_tokenizer_is_an_error(server, tmp_path):
    url = Url(f"s3://{BUCKET}/{tmp_path.name}/tokenizer.json")
    put_object(server.upstream, url.key, TEXT)
    with (
        server.breaking("flip", "GetObject", num_bytes=5),
        pytest.raises(MachineError, match=f"{url}: damaged during the download"),
    ):
        read_object(url)
    assert read_object(url) == TEXT


def test_an_etag_that_is_no_md5_of_the_content_is_not_compared(server, tmp_path):
    """Of an object encrypted with a key of its own, and of one that was put in several parts."""
    import s3fs

    url = Url(f"s3://{BUCKET}/{tmp_path.name}/x")
    system, key = url.open_file_system()
    assert isinstance(system, s3fs.S3FileSystem)
    system.pipe_file(key, TEXT, ServerSideEncryption="aws:kms")
    for version in ("0" * 32, f"{'0' * 32}-2", "1795356884.2"):
        assert b"".join(iter_checked_object(url, len(TEXT), version)) == TEXT
    system.pipe_file(key, TEXT)
    assert b"".join(iter_checked_object(url, *find_object(url))) == TEXT
    with pytest.raises(MachineError):
        b"".join(iter_checked_object(url, len(TEXT), "0" * 32))


def test_over_https_nothing_is_compared(server, tmp_path, monkeypatch: pytest.MonkeyPatch):
    url = Url(f"s3://{BUCKET}/{tmp_path.name}/x")
    write_object(url, TEXT)
    system, _ = url.open_file_system()
    with monkeypatch.context() as patch:
        patch.setattr(system.s3.meta, "_endpoint_url", "https://elsewhere")
        assert b"".join(iter_checked_object(url, len(TEXT), "0" * 32)) == TEXT
