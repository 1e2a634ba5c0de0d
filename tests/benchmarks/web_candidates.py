"""The HTTP servers that `web_servers` measures: each serves until its process is ended, and announces its port.

python -m tests.benchmarks.web_candidates NAME [CERTIFICATE]
"""

import asyncio
import socket
import ssl
import sys
import threading
from pathlib import Path
from typing import Any

PAGE = b"".join(b'gpu_power_watts{gpu="nvidia%d",uuid="GPU-%032d"} 412.5\n' % (n % 8, n) for n in range(1330))


MAX_REQUESTS = 40


async def make_page() -> bytes:
    await asyncio.sleep(0)  # where the daemon asks its workers for fresh energy
    return PAGE


# The candidates: each serves until its process is ended, and announces its port.


def announce(port: int) -> None:
    print(port, flush=True)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def context_of(certificate: Path | None) -> ssl.SSLContext | None:
    if certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    return context


def guard_of(certificate: Path) -> Any:
    from exporter.web.guard import Guard  # noqa: PLC0415 -- in the process of its server alone

    config = certificate.with_name("web.yml")
    key = certificate.with_suffix(".key").name
    config.write_text(f"tls_server_config: {{cert_file: {certificate.name}, key_file: {key}}}\n")
    return Guard.load(str(config))


async def bare(certificate: Path | None) -> None:
    context_of(certificate)
    announce(0)
    await asyncio.Event().wait()


async def threads(certificate: Path | None) -> None:
    import http.server  # noqa: PLC0415 - each process has its own server only

    loop, context = asyncio.get_running_loop(), context_of(certificate)

    class Scrape(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 10

        def do_GET(self) -> None:
            page = asyncio.run_coroutine_threadsafe(make_page(), loop).result()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *_: object) -> None:
            pass

    class Server(http.server.ThreadingHTTPServer):
        request_queue_size = 128

        def finish_request(self, request: Any, client_address: Any) -> None:
            if context is not None:
                request.settimeout(10)
                request = context.wrap_socket(request, server_side=True)
            super().finish_request(request, client_address)

        def handle_error(self, *_: object) -> None:
            pass

    server = Server(("127.0.0.1", 0), Scrape)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    announce(server.server_port)
    await asyncio.Event().wait()


async def asyncio_h11(certificate: Path | None) -> None:
    from exporter.web.messages import Request, Response  # noqa: PLC0415 -- in the process of its server alone
    from exporter.web.server import serve  # noqa: PLC0415 -- in the process of its server alone

    async def handler(_: Request) -> Response:
        return Response(200, (("Content-Type", "text/plain"),), await make_page())

    guard = None if certificate is None else guard_of(certificate)
    server = await serve(("127.0.0.1:0",), handler, guard=guard)
    announce(int(server.addresses[0].rpartition(":")[2]))
    await asyncio.Event().wait()


async def asgi(scope: dict[str, Any], receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        return
    await receive()
    page = await make_page()
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(page))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": page})


async def uvicorn(certificate: Path | None) -> None:
    import uvicorn  # noqa: PLC0415 -- in the process of its server alone

    port = free_port()
    config = uvicorn.Config(
        asgi,
        port=port,
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_keep_alive=90,
        limit_concurrency=MAX_REQUESTS,
        ssl_certfile=certificate,
        ssl_keyfile=None if certificate is None else certificate.with_suffix(".key"),
    )
    announce(port)
    await uvicorn.Server(config).serve()


async def granian(certificate: Path | None) -> None:
    from granian.constants import Interfaces  # noqa: PLC0415 -- in the process of its server alone
    from granian.http import HTTP1Settings  # noqa: PLC0415 -- in the process of its server alone
    from granian.server.embed import Server  # noqa: PLC0415 -- in the process of its server alone

    port = free_port()
    server = Server(
        asgi,
        port=port,
        interface=Interfaces.ASGINL,
        backpressure=MAX_REQUESTS,
        http1_settings=HTTP1Settings(header_read_timeout=10_000),
        log_enabled=False,
        ssl_cert=certificate,
        ssl_key=None if certificate is None else certificate.with_suffix(".key"),
    )
    announce(port)
    await server.serve()


CANDIDATES = {"bare": bare, "threads": threads, "asyncio+h11": asyncio_h11, "uvicorn": uvicorn, "granian": granian}


# The measuring side.


if __name__ == "__main__":
    asyncio.run(CANDIDATES[sys.argv[1]](Path(sys.argv[2]) if len(sys.argv) > 2 else None))
