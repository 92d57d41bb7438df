"""A tokenizer from the Hub: found, cached, missing, or the Hub is unreachable."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from command import run
from seqpack_cli.tokens.hub import can_reach, download_files
from seqpack_cli.tokens.tokenizer_config import read_named_tokens
from seqpack_cli.tokens.vocabulary import read_tokenizer_json

from seqpack_cli.errors import MachineError, OptionError

constants = pytest.importorskip("huggingface_hub.constants")


class NothingHere(BaseHTTPRequestHandler):
    """Answer that there is no such repository."""

    def do_HEAD(self) -> None:
        self.send_response(404)
        self.send_header("X-Error-Code", "RepoNotFound")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    return tmp_path / "cache"


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> str:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{taken.getsockname()[1]}"
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    return endpoint


@pytest.fixture
def server() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), NothingHere)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_an_unreachable_hub_is_reported_once_and_soon(
    tmp_path: Path, nowhere: str, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.txt").write_text("a\n")
    result = run("tokenize", tmp_path / "a.txt", "--tokenizer", "gpt2", "-o", tmp_path / "out")
    assert result.exit_code == 5
    assert result.stderr == (
        f"Error: gpt2: no such file or folder, and the Hub ({nowhere}) cannot be reached\n\n"
        "hint: pass a tokenizer.json, a folder that contains one, or 'bytes'\n"
    )
    assert capfd.readouterr().err == ""
    assert not (tmp_path / "out").exists()


def test_the_cached_copy_is_read_offline(nowhere: str, empty_cache: Path) -> None:
    repository = empty_cache / "models--some--name"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("0" * 40)
    snapshot = repository / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (snapshot / "tokenizer.json").write_bytes(b"{}")
    (snapshot / "more.json").write_bytes(b"[]")
    assert read_tokenizer_json("some/name") == b"{}"
    found = download_files("some/name", "tokenizer.json", "more.json", "none.json")
    assert found == {"tokenizer.json": b"{}", "more.json": b"[]"}
    assert read_named_tokens("some/name") == {}
    (snapshot / "tokenizer_config.json").write_bytes(b'{"pad_token": "<end>"}')
    assert read_named_tokens("some/name") == {"pad_token": "<end>"}
    with pytest.raises(MachineError, match=r"cannot be reached\n"):
        download_files("some/name", "none.json")
    with pytest.raises(MachineError, match=r"cannot be reached\n"):
        read_tokenizer_json("other/name")


def test_a_name_that_is_not_on_the_hub_is_an_option_error(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", server)
    monkeypatch.setattr(
        constants,
        "HUGGINGFACE_CO_URL_TEMPLATE",
        server + "/{repo_id}/resolve/{revision}/{filename}",
    )
    with pytest.raises(OptionError, match=r"^some/name: no such file or folder, and not found"):
        read_tokenizer_json("some/name")


def test_a_server_is_reachable_if_it_accepts_connections(
    server: str, nowhere: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert can_reach(server)
    assert not can_reach(nowhere)
    assert not can_reach("https://no-such-name.invalid")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.invalid")
    assert can_reach(nowhere)  # who knows
