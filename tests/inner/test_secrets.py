"""Passwords and signatures in URLs: refused before anything begins, and never repeated."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import run

from seqpack_cli import open_shards, open_store, tokenize
from seqpack_cli.errors import FolderError, MachineError, OptionError
from seqpack_cli.files.objects import naming_requests

URLS = [
    "s3://AKIA:SECRET@bucket/x",
    "s3://AKIA:SEC/RET+SECRET@bucket/x",
    "s3://SECRET@bucket/x",
    "gs://bucket/x?X-Goog-Signature=SECRET",
    "s3://bucket/x.jsonl?X-Amz-Credential=SECRET&X-Amz-Signature=SECRET",
    "s3://bucket/*.jsonl?part=1&token=SECRET",
    "https://host/x.jsonl?sig=SECRET",
    "s3://bucket/x?X%2DAmz%2DSignature=SECRET",
    "s3://bucket/x%3Ftoken%3DSECRET",
    "s3://bucket/x#access_token=SECRET",
    "s3://bucket/x;password=SECRET",
    "s3:/AKIA:SECRET@bucket/x",
    " s3://AKIA:SECRET@bucket/x",
    "https://me:SECRET@host/x.jsonl",
]


@pytest.mark.parametrize("url", URLS)
def test_a_secret_in_a_url_is_refused_everywhere(url: str, tmp_path: Path) -> None:
    text = tmp_path / "x.txt"
    text.write_text("x\n")
    store = tmp_path / "store"
    for arguments in (
        ("tokenize", url, "-o", store),
        ("tokenize", text, "-o", url),
        ("tokenize", text, "-o", store, "--tokenizer", url),
        ("train-tokenizer", url, "-o", tmp_path / "tokenizer.json"),
        ("train-tokenizer", text, "-o", url),
        ("pack", url, "-o", store),
        ("pack", text, "-o", url),
        ("inspect", url, "--json"),
        ("inspect", text, "--html", url),
        ("verify", url, "--json"),
        ("verify", text, "--tokens", url),
        ("unpack", url, "-o", text),
        ("unpack", text, "-o", url),
    ):
        result = run(*arguments)
        assert result.exit_code == 2, (arguments, result.stderr)
        assert "SECRET" not in result.stdout + result.stderr, arguments
        assert "AKIA" not in result.stdout + result.stderr, arguments
    assert not store.exists()
    for call in (open_store, open_shards, lambda found: tokenize([found], store)):
        with pytest.raises(OptionError) as caught:
            call(url)
        assert "SECRET" not in str(caught.value)


def test_the_error_says_what_to_do_instead(tmp_path: Path) -> None:
    result = run("tokenize", URLS[0], "-o", tmp_path)
    assert result.stderr == (
        "Error: s3://***@bucket/x: contains a password or signature\n\n"
        "hint: remove it; access keys go into environment variables such as AWS_ACCESS_KEY_ID\n"
    )


def test_what_the_packages_say_is_masked_too() -> None:
    """An endpoint with a password stands in the errors of botocore."""
    said = 'Could not connect to the endpoint URL: "http://me:SECRET@host:9000/bucket?token=SECRET"'
    with pytest.raises(MachineError) as caught, naming_requests("s3://bucket/x"):
        raise OSError(said)
    masked = said.replace("me:SECRET", "***").replace("SECRET", "***")
    assert caught.value.message == f"s3://bucket/x: {masked}"


def test_a_name_that_only_looks_like_one_is_shown() -> None:
    for text in ("s3://bucket/a@b.c", "s3://bucket/a:b@c", "http://host:9000/a@b", "gs://b/x?y#z"):
        assert str(FolderError(text)) == text
