"""Does the exporter serve this page? For probes that the kubelet cannot make itself, and for `helm test`.

Exit code 0: it answers 200, with the text that is wanted; 1: it does not, and standard error says why.
"""

import argparse
import base64
import http.client
import ssl
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit


def main() -> str | None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--contains", default="")
    parser.add_argument("--credentials", type=Path, help="directory with username and password, tls.crt and tls.key")
    parser.add_argument("--refusal-is-fine", action="store_true", help="that it asks for another login is an answer")
    parser.add_argument("--retry-seconds", type=float, default=0.0)
    options = parser.parse_args()
    deadline = time.monotonic() + options.retry_seconds
    while complaint := ask(options.url, options.contains, options.credentials, refusal=options.refusal_is_fine):
        if time.monotonic() >= deadline:
            return f"{options.url}: {complaint}"
        time.sleep(1)
    return None


def ask(url: str, contains: str, credentials: Path | None, *, refusal: bool) -> str:
    """Return what is wrong with the answer; empty: nothing."""
    address = urlsplit(url)
    # As the kubelet asks: the certificate is for the names of Services, and this is about the page.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    headers: dict[str, str] = {}
    try:
        if credentials is not None:
            headers = shown(credentials, context)
    except (OSError, ValueError) as error:  # what ssl makes of a file is an OSError
        if not refusal:
            return f"{credentials}: {error}"
    connection: http.client.HTTPConnection
    if address.scheme == "https":
        connection = http.client.HTTPSConnection(address.netloc, timeout=4, context=context)
    else:
        connection = http.client.HTTPConnection(address.netloc, timeout=4)
    try:
        connection.request("GET", address.path, headers=headers)
        answer = connection.getresponse()
        page = answer.read().decode("utf-8", "replace")
    except (ssl.SSLError, ConnectionResetError, BrokenPipeError) as error:
        # A server that wants a certificate ends the handshake, or the connection behind it.
        return "" if refusal else str(error)
    except (OSError, http.client.HTTPException) as error:
        return str(error) or type(error).__name__
    finally:
        connection.close()
    if answer.status == http.client.UNAUTHORIZED and refusal:
        return ""
    if answer.status != http.client.OK:
        return f"{answer.status} {page[:200].strip()}"
    return "" if contains in page else f"the page has no {contains}"


def shown(directory: Path, context: ssl.SSLContext) -> dict[str, str]:
    """Put the certificate of the directory into the context, and return headers with its login."""
    if (directory / "tls.crt").exists():
        context.load_cert_chain(directory / "tls.crt", directory / "tls.key")
    if not (directory / "username").exists():
        return {}
    login = ":".join((directory / name).read_text().rstrip("\n") for name in ("username", "password"))
    return {"Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"}


sys.exit(main())
