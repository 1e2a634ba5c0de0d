"""An API server that answers what a test tells it to, over HTTPS, and keeps what it was asked."""

import json
import shutil
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from tests.tools import unavailable

PODS = "/api/v1/pods"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"


class Asked(NamedTuple):
    path: str
    query: dict[str, str]
    token: str


Answer = tuple[int, Any] | bytes
"""Status and object, or the raw bytes after the request."""


@dataclass
class Api:
    """Answers by path; what is not here is not found."""

    answers: dict[str, Answer | Callable[[dict[str, str]], Answer]] = field(default_factory=dict)
    token: str = "secret"  # noqa: S105 -- of a test
    asked: list[Asked] = field(default_factory=list)
    drip_seconds: float = 0.0
    """Between two bytes of an answer; 0: all at once."""
    port: int = 0

    @property
    def paths(self) -> list[str]:
        return [asked.path for asked in self.asked]


def certificate(directory: Path, name: str = "ca") -> Path:
    """Make a certificate for the loopback address that is its own authority; the key lies beside it."""
    if shutil.which("openssl") is None:
        unavailable("openssl", "apt-get install openssl")
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc", "-keyout", f"{name}.key")
    subject = ("-subj", "/CN=kubernetes", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2")
    command = ("openssl", "req", "-x509", *key, "-out", f"{name}.crt", *subject)
    subprocess.run(command, cwd=directory, check=True, capture_output=True, timeout=30)
    return directory / f"{name}.crt"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 10
    api: Api
    context: ssl.SSLContext

    def setup(self) -> None:
        self.request = self.context.wrap_socket(self.request, server_side=True)
        super().setup()

    def finish(self) -> None:
        super().finish()
        self.request.close()

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        self.api.asked.append(Asked(url.path, query, token))
        answer = self.api.answers.get(url.path, (404, {"message": "the server could not find the requested resource"}))
        if token != self.api.token:
            answer = (401, {"message": "Unauthorized"})
        if callable(answer):
            answer = answer(query)
        if isinstance(answer, bytes):
            self.close_connection = True
            self._say(answer)
            return
        status, body = answer
        data = json.dumps(body).encode()
        self._say(b"HTTP/1.1 %d Whatever\r\nContent-Length: %d\r\n\r\n%b" % (status, len(data), data))

    def log_message(self, *_: Any) -> None:
        pass

    def _say(self, data: bytes) -> None:
        pause = self.api.drip_seconds
        step = 1 if pause else max(len(data), 1)
        with suppress(OSError):  # who asked has given up
            for at in range(0, len(data), step):
                self.wfile.write(data[at : at + step])
                time.sleep(pause)
            return
        self.close_connection = True


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: Any) -> None:
        """Say nothing: who asks may hang up in the handshake."""


@contextmanager
def serving(api: Api, certificate: Path) -> Iterator[None]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    handler = type("Handler", (_Handler,), {"api": api, "context": context})
    with _Server(("127.0.0.1", 0), handler) as server:
        api.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join(10)
