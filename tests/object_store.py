"""A real S3 server on this machine, and a proxy that records requests and breaks some of them.

The server is moto's, in its own process, with all objects in memory; it starts in a second. The
proxy handles whole requests, so that faults are exact: a test says which requests to break, and the
fault counts them. One server serves a process, one proxy a module of tests, whose BUCKET it serves.
"""

from __future__ import annotations

import contextlib
import html
import http.client
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, quote, unquote, urlsplit

import pytest

KINDS = ("cut", "deny", "flip", "refuse", "drop", "lose", "stall")
STALL_SECONDS = 60  # until a stalled request is dropped if no test releases it
SLOW_DOWN = b"""<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"""
# The server requires a signature but does not check it.
UNKNOWN = b"""<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>NotImplemented</Code><Message>A header implies functionality that is not implemented
</Message></Error>"""
SIGNED = "AWS4-HMAC-DIGEST Credential=tester/20260101/us-east-1/s3/aws4_request"
# Moto lists the folder of its services twice for each request: once is enough.
SERVER = """
from moto import backends, server
services = list(backends.list_of_moto_modules())
backends.list_of_moto_modules = lambda: services
server.main()
"""
ADDRESS = re.compile(r"Running on (http://127\.0\.0\.1:\d+)")
# Answers of the proxy itself, and faults that end there.
OWN_HEADERS = {"connection", "content-length", "date", "expect", "server", "transfer-encoding"}
QUERY_OPERATIONS = {
    ("PUT", "partNumber"): "UploadPart",
    ("POST", "uploads"): "CreateMultipartUpload",
    ("POST", "uploadId"): "CompleteMultipartUpload",
    ("POST", "delete"): "DeleteObjects",
    ("DELETE", "uploadId"): "AbortMultipartUpload",
    ("GET", "list-type"): "ListObjects",
    ("GET", "uploads"): "ListMultipartUploads",
}
OPERATIONS = {
    "GET": "GetObject",
    "HEAD": "HeadObject",
    "PUT": "PutObject",
    "DELETE": "DeleteObject",
}


@dataclass(frozen=True)
class Request:
    """One request as the server or a fault answered it."""

    operation: str  # S3's name for it
    key: str  # without the bucket
    status: int  # 0 if the client did not get the whole answer
    num_bytes: int  # of the body, or of the answer's body


@dataclass
class Fault:
    """Which requests fail, and how; `num_done` counts them.

    `cut` closes the connection after `num_bytes` of the answer; `drop` after as many of the
    request, which the server never sees; `lose` after the server has done the request. `refuse`
    answers 503 SlowDown; `stall` holds the request until `let_go` is set, then drops it; `flip`
    changes the lowest bit of the answer's byte `num_bytes`; `deny` answers 501 NotImplemented to a
    conditional request.
    """

    kind: str  # one of KINDS
    operations: tuple[str, ...] = ()  # of S3; empty means all
    key: str = ""  # a pattern to search in the key
    num_before: int = 0  # matching requests that pass first
    every: int = 1
    limit: int | None = None
    num_bytes: int = 0
    num_met: int = 0
    num_done: int = 0
    happened: threading.Event = field(default_factory=threading.Event)
    let_go: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"{self.kind!r} is none of {KINDS}")

    def take(self, operation: str, key: str) -> bool:
        """Count a request that it is for, and say whether this one is broken."""
        if (self.operations and operation not in self.operations) or not re.search(self.key, key):
            return False
        self.num_met += 1
        place = self.num_met - self.num_before
        if place < 1 or place % self.every or self.num_done == self.limit:
            return False
        self.num_done += 1
        return True


class FaultProxy(ThreadingHTTPServer):
    """Forwards requests to a server, records them, and breaks those that match a fault."""

    daemon_threads = True
    block_on_close = False  # otherwise it would wait for a stalled request
    request_queue_size = 128

    def __init__(self, upstream: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = upstream
        self.address = f"http://127.0.0.1:{self.server_port}"
        self._lock = threading.Lock()
        self._requests: list[Request] = []
        self._faults: list[Fault] = []

    def find(self, *operations: str, key: str = "") -> list[Request]:
        """Return the requests in the order of their answers, of some operations or of all."""
        with self._lock:
            return [
                request
                for request in self._requests
                if (not operations or request.operation in operations)
                and re.search(key, request.key)
            ]

    def forget(self) -> None:
        """Clear the record of requests."""
        with self._lock:
            self._requests.clear()

    @contextlib.contextmanager
    def breaking(self, kind: str, *operations: str, **values: int | str) -> Iterator[Fault]:
        """Break requests until the block ends; see `Fault` for the values."""
        fault = Fault(kind, operations, **values)  # type: ignore[arg-type]
        with self._lock:
            self._faults.append(fault)
        try:
            yield fault
        finally:
            fault.let_go.set()
            with self._lock:
                self._faults.remove(fault)

    def take_fault(self, operation: str, key: str) -> Fault | None:
        """Return the fault that matches a request, if any."""
        with self._lock:
            return next((fault for fault in self._faults if fault.take(operation, key)), None)

    def record(self, request: Request) -> None:
        """Record how a request ended."""
        with self._lock:
            self._requests.append(request)


class _Handler(BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # send headers and body together
    server: FaultProxy

    def setup(self) -> None:
        super().setup()
        self._upstream = http.client.HTTPConnection(
            urlsplit(self.server.upstream).netloc, timeout=60
        )

    def finish(self) -> None:
        self._upstream.close()
        with contextlib.suppress(ConnectionError):
            super().finish()

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):  # a client may be killed at any time
            super().handle()

    def handle_expect_100(self) -> bool:
        super().handle_expect_100()
        self.wfile.flush()  # the client sends no body before it
        return True

    def log_message(self, *_: object) -> None:
        pass

    def _pass_on(self) -> None:
        self.operation, self.key = name_operation(self.command, self.path)
        size = int(self.headers["Content-Length"] or 0)
        fault = self.server.take_fault(self.operation, self.key)
        if fault is not None and fault.kind in ("drop", "stall"):
            self._stop(fault, self.rfile.read(min(size, fault.num_bytes)))
            return
        body = self.rfile.read(size)
        if fault is not None and fault.kind == "refuse":
            self._answer(503, {"Content-Type": "application/xml"}, SLOW_DOWN)
            fault.happened.set()
            return
        if fault is not None and fault.kind == "deny":
            if self.headers["If-Match"] or self.headers["If-None-Match"]:
                self._answer(501, {"Content-Type": "application/xml"}, UNKNOWN)
                return
            fault = None
        headers = {name: value for name, value in self.headers.items() if not _is_own(name)}
        self._upstream.request(self.command, self.path, body if size else None, headers)
        response = self._upstream.getresponse()
        found = response.read()
        answered = {name: value for name, value in response.getheaders() if not _is_own(name)}
        if self.command == "HEAD":
            answered["Content-Length"] = response.headers["Content-Length"] or "0"
        if fault is not None and fault.kind == "flip":
            place = fault.num_bytes
            found = found[:place] + bytes([found[place] ^ 1]) + found[place + 1 :]
        if fault is None or fault.kind == "flip":
            self._answer(response.status, answered, found, len(body))
        elif fault.kind == "lose":
            self._stop(fault, b"")
        else:
            self._cut(fault, response.status, answered, found)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass_on  # noqa: N815

    def _answer(
        self, status: int, headers: dict[str, str], body: bytes, num_bytes: int = 0
    ) -> None:
        # Before the client continues, so that its next request is recorded after this one.
        self.server.record(Request(self.operation, self.key, status, num_bytes or len(body)))
        self._write_head(status, headers, len(body))
        if self.command != "HEAD":
            self.wfile.write(body)

    def _cut(self, fault: Fault, status: int, headers: dict[str, str], body: bytes) -> None:
        self._write_head(status, headers, len(body))
        self.wfile.write(body[: fault.num_bytes])
        self.wfile.flush()
        self._stop(fault, body[: fault.num_bytes])

    def _stop(self, fault: Fault, passed: bytes) -> None:
        """Close the connection; if it is stalled, when `let_go` is set."""
        if fault.kind == "stall":
            fault.happened.set()
            fault.let_go.wait(STALL_SECONDS)
        self.server.record(Request(self.operation, self.key, 0, len(passed)))
        fault.happened.set()
        self.close_connection = True

    def _write_head(self, status: int, headers: dict[str, str], num_bytes: int) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(num_bytes), **headers}.items():
            self.send_header(name, value)
        self.end_headers()


def name_operation(method: str, path: str) -> tuple[str, str]:
    """Return S3's name of a request's operation, and the key.

    >>> name_operation("PUT", "/bucket/a%20b?partNumber=1&uploadId=x")
    ('UploadPart', 'a b')
    """
    parts = urlsplit(path)
    _, _, key = unquote(parts.path).lstrip("/").partition("/")
    query = parse_qs(parts.query, keep_blank_values=True)
    for (other, name), operation in QUERY_OPERATIONS.items():
        if other == method and name in query:
            return operation, key or query.get("prefix", [""])[0]
    return OPERATIONS.get(method, method), key


def _is_own(name: str) -> bool:
    return name.lower() in OWN_HEADERS


@pytest.fixture(scope="session")
def s3_address() -> Iterator[str]:
    """Run a server, and yield its address when it answers."""
    for package in ("moto", "s3fs"):
        pytest.importorskip(package)
    command = [sys.executable, "-c", SERVER, "-H", "127.0.0.1", "-p", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            address = next(
                (found[1] for line in process.stderr if (found := ADDRESS.search(line))), ""
            )
            assert address, "moto's server did not start"
            # It logs every request: a pipe that is never read would block it.
            threading.Thread(target=process.stderr.read, daemon=True).start()
            yield address
        finally:
            process.kill()


@pytest.fixture(scope="module")
def server(s3_address: str, request: pytest.FixtureRequest) -> Iterator[FaultProxy]:
    """Run a proxy before the server, and lead this process and its children there."""
    import s3fs
    from botocore.retries.standard import ExponentialBackoff

    def connect_again() -> None:
        """Let the file systems that the package has opened find the address of now."""
        for system in s3fs.S3FileSystem._cache.values():
            system.connect(refresh=True)

    with FaultProxy(s3_address) as proxy, pytest.MonkeyPatch.context() as patch:
        threading.Thread(target=proxy.serve_forever, args=(0.05,), daemon=True).start()
        for variable, value in make_environment(proxy.address).items():
            patch.setenv(variable, value)
        # Retries in this process wait for nothing: the next answer of a proxy is a good one.
        patch.setattr(ExponentialBackoff, "delay_amount", lambda *_: 0.01)
        _ask(s3_address, "PUT", f"/{request.module.BUCKET}")
        connect_again()
        yield proxy
        proxy.shutdown()
    connect_again()


def put_object(address: str, path: str, data: bytes) -> None:
    """Put an object without seqpack's own code."""
    _ask(address, "PUT", f"/{quote(path)}", data)


def write_object(url: object, data: bytes) -> None:
    """Write an object of any object store, as another program would."""
    import fsspec

    protocol, _, key = str(url).partition("://")
    fsspec.filesystem(protocol, use_listings_cache=False).pipe_file(key, data)


def remove_object(address: str, path: str) -> None:
    """Remove an object."""
    _ask(address, "DELETE", f"/{quote(path)}")


def read_objects(address: str, bucket: str, prefix: str) -> dict[str, bytes]:
    """Return every object below a prefix by the rest of its name; at most 1,000."""
    query = f"list-type=2&prefix={quote(prefix)}/"
    listing = _ask(address, "GET", f"/{bucket}?{query}")
    keys = map(html.unescape, re.findall(r"<Key>(.*?)</Key>", listing.decode(), re.DOTALL))
    found = {key.removeprefix(f"{prefix}/"): f"/{bucket}/{quote(key)}" for key in keys}
    return {name: _ask(address, "GET", path) for name, path in found.items()}


def _ask(address: str, method: str, path: str, data: bytes | None = None) -> bytes:
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=60)
    with contextlib.closing(connection):
        connection.request(method, path, data, {"Authorization": SIGNED})
        response = connection.getresponse()
        found = response.read()
        assert response.status < 300, found
        return found


def make_environment(address: str) -> dict[str, str]:
    """Return the variables that lead botocore, here and in child processes, to a server alone."""
    return {
        "AWS_ENDPOINT_URL": address,
        "AWS_ACCESS_KEY_ID": "tester",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        "NO_PROXY": "127.0.0.1",
    }
