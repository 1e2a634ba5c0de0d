"""How a log record becomes one line on standard error, in logfmt or JSON."""

import contextlib
import logging
import os
import select
import sys
import time
from collections.abc import Iterator
from typing import TextIO

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING, "error": logging.ERROR}
MAX_CHARACTERS = 4000
"""Of one value: a vendor's library may say anything."""

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def configure(level: str, form: str, stream: TextIO | None = None) -> None:
    """Log to `stream` (standard error) from `level` of LEVELS on, in the form `logfmt` or `json`.

    A record's `extra` becomes fields of the line. An exception becomes its type and text, with the place that raised
    it; the whole traceback is a field at level debug.
    """
    handler: logging.Handler = logging.NullHandler()
    if stream is not None:
        handler = logging.StreamHandler(stream)
    elif sys.stderr is not None:  # where it was closed before the start, its descriptor may have become anything
        handler = _unhurried(sys.stderr.fileno())
    handler.setFormatter(_Json() if form == "json" else _Logfmt())
    logging.raiseExceptions = False  # a log that cannot be written is no reason for a traceback on standard error
    logging.basicConfig(handlers=[handler], level=LEVELS[level], force=True)
    logging.captureWarnings(capture=True)


class Unhurried(logging.Handler):
    """Writes to a descriptor and never waits for it: a reader that does not keep up loses lines, and is told how many.

    Else the daemon would stand still, and not even end, while nobody reads the pipe that it logs to.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self.descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)
        self._lost = 0
        self._torn = False

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if self._lost and self._written(_told_lost(self._lost)):
                self._lost = 0
            if self._lost or not self._written(record):
                self._lost += 1
        except Exception:  # noqa: BLE001 -- as every handler: the log is not worth an exception
            self.handleError(record)

    def _written(self, record: logging.LogRecord) -> bool:
        data = f"{self.format(record)}\n".encode("utf-8", "backslashreplace")
        if self._torn:
            data = b"\n" + data
        left = len(data)
        while left and (taken := self._taken(data[-left:][: select.PIPE_BUF])):
            left -= taken
        self._torn = left > 0 and (self._torn or left < len(data))
        return not left

    def _taken(self, piece: bytes) -> int:
        """Return how much of it is written, 0 when that would mean waiting, or fails, as on a disk that is full."""
        if not self._poll.poll(0):
            return 0
        with contextlib.suppress(OSError):
            # A pipe that is ready takes PIPE_BUF without waiting.
            return os.write(self.descriptor, piece)
        return 0


def _unhurried(descriptor: int) -> Unhurried:
    """Return the handler that writes there already, which knows what was lost, or a new one."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, Unhurried) and handler.descriptor == descriptor:
            return handler
    return Unhurried(descriptor)


def _told_lost(count: int) -> logging.LogRecord:
    message = "lines are lost: whoever reads the log does not keep up"
    return logging.makeLogRecord(
        {"name": __name__, "levelno": logging.WARNING, "levelname": "WARNING", "msg": message, "lines": count}
    )


class _Logfmt(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return " ".join(f"{_key(name)}={_quoted(value)}" for name, value in _fields(record))


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return _json(dict(_fields(record)))


def _fields(record: logging.LogRecord) -> Iterator[tuple[str, str]]:
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    yield "time", f"{moment}.{int(record.created % 1 * 1000):03d}Z"
    yield "level", {"warning": "warn", "critical": "error"}.get(name := record.levelname.lower(), name)
    yield "logger", record.name
    yield "msg", _cut(_message(record))
    for key, value in vars(record).items():
        if key not in _STANDARD and value is not None:
            yield key, _cut(str(value))
    if record.exc_info and (error := record.exc_info[1]):
        yield "error", _cut(f"{type(error).__name__}: {error}")
        if at := _origin(error):
            yield "at", at
        if logging.getLogger().isEnabledFor(logging.DEBUG):
            yield "traceback", _cut(logging.Formatter().formatException(record.exc_info))


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 -- a record with wrong arguments is still worth its text
        return f"{record.msg} {record.args}"


def _origin(error: BaseException) -> str | None:
    trace = error.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace else None


def _cut(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else text[:MAX_CHARACTERS] + "…"


def _key(name: str) -> str:
    return "".join(c if c.isprintable() and c not in ' ="' else "_" for c in name) or "_"


def _quoted(text: str) -> str:
    if text and text.isprintable() and not any(c in ' ="\\' for c in text):
        return text
    return '"' + "".join(_escaped(c) for c in text) + '"'


def _escaped(c: str) -> str:
    if c in '"\\':
        return "\\" + c
    if c.isprintable():
        return c
    return _json(c)[1:-1]


def _json(value: object) -> str:
    """Return it in ASCII: what is no character, such as a lone surrogate, comes out escaped."""
    from json import dumps  # noqa: PLC0415 -- 0.3 MiB, which a line of logfmt seldom needs

    return dumps(value)
