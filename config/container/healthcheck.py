"""Does the exporter of this container answer? Exit code 0: it does, 1: it does not.

Of Docker, which asks so because the image has no curl. Kubernetes has probes of its own. The address is the one of the
image's command; another port goes into GPU_EXPORTER_PORT.
"""

import http.client
import os
import ssl
import sys
from functools import partial

_SECONDS = 2.0
_UNVERIFIED = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
_UNVERIFIED.check_hostname = False
_UNVERIFIED.verify_mode = ssl.CERT_NONE
"""It asks the process beside it whether it lives, and tells it nothing."""

_WELL = (200, 401)
"""With a login it says no more than that it is there."""


def refused(error: Exception) -> bool:
    """Whether a server has ended the handshake, or the connection behind it, for want of a client's certificate."""
    if isinstance(error, ssl.SSLError):
        return isinstance(error, ssl.SSLEOFError) or "ALERT" in str(error.reason)
    return isinstance(error, ConnectionResetError | BrokenPipeError)


def main() -> int:
    port = os.environ.get("GPU_EXPORTER_PORT", "10042")
    if not port.isdecimal():
        sys.exit(f"GPU_EXPORTER_PORT: expected a number, got {port!r}")
    plain, encrypted = http.client.HTTPConnection, partial(http.client.HTTPSConnection, context=_UNVERIFIED)
    for connect in (plain, encrypted):
        connection = connect("127.0.0.1", int(port), timeout=_SECONDS)
        try:
            connection.request("GET", "/-/healthy")
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException) as error:
            if connect is encrypted and refused(error):
                return 0
        else:
            # Who serves TLS answers 400 to the first.
            if connect is encrypted or status != http.client.BAD_REQUEST:
                return int(status not in _WELL)
        finally:
            connection.close()
    return 1


if __name__ == "__main__":
    sys.exit(main())
