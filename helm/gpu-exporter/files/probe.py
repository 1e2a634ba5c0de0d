"""Does the exporter serve this page? For probes that the kubelet cannot make itself, and for `helm test`.

Exit code 0: it answers 200, with the text that is wanted; 1: it does not, and standard error says why.
"""

import argparse
import base64
import ssl
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

REFUSED = (401, 403)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--contains", default="")
    parser.add_argument("--credentials", type=Path, help="directory with username and password, tls.crt and tls.key")
    parser.add_argument("--refusal-is-fine", action="store_true", help="it asks for a login that nobody has told")
    parser.add_argument("--retry-seconds", type=float, default=0.0)
    parser.add_argument("--timeout", type=float, default=4.0)
    options = parser.parse_args()
    deadline = time.monotonic() + options.retry_seconds
    while True:
        complaint = ask(options)
        if not complaint:
            return 0
        if time.monotonic() >= deadline:
            print(f"{options.url}: {complaint}", file=sys.stderr)
            return 1
        time.sleep(1)


def ask(options: argparse.Namespace) -> str:
    """Return what is wrong with the answer; empty: nothing."""
    # As the kubelet asks: the certificate is for the names of Services, and this is about the page.
    context = ssl._create_unverified_context()
    request = urllib.request.Request(options.url)
    if options.credentials is not None:
        show(options.credentials, context, request)
    try:
        with urllib.request.urlopen(request, timeout=options.timeout, context=context) as response:
            page = response.read().decode("utf-8", "replace")
    except urllib.error.HTTPError as error:
        refused = options.refusal_is_fine and error.code in REFUSED
        return "" if refused else f"{error.code} {error.read(200).decode('utf-8', 'replace').strip()}"
    except OSError as error:
        # A server that wants a certificate ends the handshake, or the connection behind it.
        reason = getattr(error, "reason", error)
        refused = options.refusal_is_fine and isinstance(reason, ssl.SSLError | ConnectionResetError)
        return "" if refused else str(reason)
    return "" if options.contains in page else f"the page has no {options.contains}"


def show(directory: Path, context: ssl.SSLContext, request: urllib.request.Request) -> None:
    if (directory / "tls.crt").exists():
        context.load_cert_chain(directory / "tls.crt", directory / "tls.key")
    if (directory / "username").exists():
        pair = ":".join((directory / name).read_text().rstrip("\n") for name in ("username", "password"))
        request.add_header("Authorization", f"Basic {base64.b64encode(pair.encode()).decode()}")


sys.exit(main())
