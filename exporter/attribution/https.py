"""GET over HTTPS with a bearer token, bounded in time and size whatever the server does."""

import http.client
import io
import re
import socket
import ssl
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from exporter import __version__

_MOST_BYTES = 32 * 2**20
"""Of all answers over one connection."""
_CHUNK = 64 * 2**10
_MOST_REASON = 200
_TOKEN = re.compile(r"[\x21-\x7e]+")
_OK = 200


class HttpError(Exception):
    """There is no answer. The message goes on from the name of the server: `cannot be reached: ...`."""


class RefusedError(HttpError):
    """The server answers with another status than 200."""

    def __init__(self, status: int, path: str, reason: str) -> None:
        super().__init__(f"answers {status} to {path}" + (f": {reason}" if reason else ""))
        self.status = status


class _Status(msgspec.Struct):
    message: str = ""


class Connection:
    """One connection, which is opened by the first question and must be closed; for one thread."""

    def __init__(self, host: str, port: int, authority: Path, token: str, deadline_seconds: float) -> None:
        """Trust the certificates of `authority`. The deadline is for all questions together. Raises HttpError."""
        if not _TOKEN.fullmatch(token):
            raise HttpError("cannot be asked: the file of the token holds none")
        try:
            context = ssl.create_default_context(cafile=str(authority))
        except ssl.SSLError as error:
            raise HttpError(f"cannot be trusted: {authority} holds no certificate ({error.reason})") from None
        except OSError as error:
            raise HttpError(f"cannot be trusted: {authority}: {error.strerror}") from None
        # The authorities of many clusters lack extensions that Python 3.13 insists on.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        self._until = time.monotonic() + deadline_seconds
        self._deadline = deadline_seconds
        self._left = _MOST_BYTES
        self._headers = {
            "Authorization": f"Bearer {token}",
            "Accept": "application/json",
            "User-Agent": f"gpu-exporter/{__version__}",
        }
        self._connection = http.client.HTTPSConnection(host, port, timeout=deadline_seconds, context=context)
        self._connection.response_class = self._response  # type: ignore[assignment]  # a factory does as well

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._connection.close()

    def get(self, path: str) -> bytes:
        """Return the body. Raises HttpError, or RefusedError for any status but 200."""
        try:
            return self._get(path)
        except TimeoutError:
            raise HttpError(f"did not answer within {self._deadline:g} s") from None
        except ssl.SSLCertVerificationError as error:
            raise HttpError(f"shows a certificate that is not trusted: {error.verify_message}") from None
        except ssl.SSLError as error:
            raise HttpError(f"does not speak TLS as expected: {error.reason or error}") from None
        except http.client.RemoteDisconnected:
            raise HttpError("closed the connection without an answer") from None
        except http.client.HTTPException as error:
            raise HttpError(f"does not answer in HTTP: {type(error).__name__}") from None
        except UnicodeError:
            raise HttpError("cannot be reached: what is given as its name is none") from None
        except OSError as error:
            raise HttpError(f"cannot be reached: {error.strerror or error}") from None

    def _get(self, path: str) -> bytes:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.timeout = left
        if self._connection.sock is not None:
            self._connection.sock.settimeout(left)
        self._connection.request("GET", path, headers=self._headers)
        with self._connection.getresponse() as response:
            body = bytearray()
            while chunk := response.read1(_CHUNK):
                self._left -= len(chunk)
                if self._left < 0:
                    self._connection.close()
                    raise HttpError(f"answers more than {_MOST_BYTES // 2**20} MiB")
                body += chunk
        if response.status != _OK:
            raise RefusedError(response.status, path.partition("?")[0], _reason(bytes(body)))
        return bytes(body)

    def _response(self, sock: socket.socket, *args: Any, **options: Any) -> http.client.HTTPResponse:
        return http.client.HTTPResponse(_Timed(sock, self._until), *args, **options)  # type: ignore[arg-type]  # all that it does is to make a file


class _Timed(io.RawIOBase):
    """What a response reads from: of the time-out of a socket a server that drips has all time there is."""

    def __init__(self, sock: socket.socket, until: float) -> None:
        self._sock = sock
        # Keeps the socket open after the connection has let go of it, as it does where the length is not told.
        self._file = sock.makefile("rb", buffering=0)
        self._until = until

    def makefile(self, mode: str) -> io.BufferedReader:  # noqa: ARG002 -- always rb
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._sock.settimeout(left)
        return self._file.readinto(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()


def _reason(body: bytes) -> str:
    """Return the words of a Status object, which name the permission that is missing."""
    try:
        words = msgspec.json.decode(body, type=_Status).message
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    return " ".join(words.split())[:_MOST_REASON]
