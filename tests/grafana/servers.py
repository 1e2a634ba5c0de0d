"""Inference servers whose counters grow as the runs of `rows` say, by the names of vLLM, SGLang, TGI and llama.cpp."""

import contextlib
import http.server
import threading
import time
from collections.abc import Iterator

from tests.grafana.rows import INPUT_TOKENS, ROWS, Row

OUTPUT = (
    "vllm:generation_tokens_total",
    "sglang:generation_tokens_total",
    "tgi_request_generated_tokens_sum",
    "llamacpp:tokens_predicted_total",
)
INPUT = (
    "vllm:prompt_tokens_total",
    "sglang:prompt_tokens_total",
    "tgi_request_input_length_sum",
    "llamacpp:prompt_tokens_total",
)
QUERIES = ("vllm:request_success_total", "sglang:num_requests_total", "tgi_request_generated_tokens_count")


def page(row: Row, seconds: float, at: float) -> str:
    """Return the counters after so many seconds, stamped with the moment, so that a busy machine does not blur them.

    Parts of queries are counted as well: whole ones would need hours to tell a per mille.
    """
    tokens = row.tokens_per_second * seconds
    values = {
        **dict.fromkeys(OUTPUT, tokens),
        **dict.fromkeys(INPUT, tokens * INPUT_TOKENS),
        **dict.fromkeys(QUERIES, row.queries_per_second * seconds),
    }
    return "".join(f'{name}{{model_name="{row.model}"}} {value} {at * 1000:.0f}\n' for name, value in values.items())


@contextlib.contextmanager
def serving() -> Iterator[str]:
    """Serve /0 to /4, one for each row; yields host and port."""
    began = time.time()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            now = round(time.time(), 3)
            body = page(ROWS[int(self.path.strip("/"))], now - began, now).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with contextlib.suppress(ConnectionError):  # of a scrape that was given up
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join(10)
