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


def main() -> int:
    port = int(os.environ.get("GPU_EXPORTER_PORT", "10042"))
    # Who serves TLS answers 400 to the first.
    for connect in (http.client.HTTPConnection, partial(http.client.HTTPSConnection, context=_UNVERIFIED)):
        connection = connect("127.0.0.1", port, timeout=_SECONDS)
        try:
            connection.request("GET", "/-/healthy")
            if connection.getresponse().status in _WELL:
                return 0
        except (OSError, http.client.HTTPException):
            continue
        finally:
            connection.close()
    return 1


if __name__ == "__main__":
    sys.exit(main())
