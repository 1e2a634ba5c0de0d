"""Which signals came before the daemon could act on them? By default each would end it, which none of them means.

Held before anything else is imported, so this module imports next to nothing itself. Those that do mean the end end it
at once: nothing is there yet that would have to be ended in order, and process 1 of a container has no defaults.
"""

import os
import signal
from types import FrameType

NUMBERS = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)

_arrived: list[int] = []
_before: "dict[int, signal._HANDLER]" = {}


def hold() -> None:
    """Note those signals from here on, instead of being ended by them."""
    _before[signal.SIGTERM] = signal.signal(signal.SIGTERM, _end)
    for number in NUMBERS:
        _before[number] = signal.signal(number, _note)


def arrived() -> tuple[int, ...]:
    """Return what came, each once, the latest last; it is forgotten here."""
    came = tuple(_arrived)
    _arrived.clear()
    return came


def let_go() -> None:
    """Give the signals back to what they do by default, and do that if one has come; harmless when none are held."""
    for number, handler in _before.items():
        signal.signal(number, handler)
    _before.clear()
    for number in arrived():
        signal.raise_signal(number)


def _end(_: int, __: FrameType | None) -> None:
    os._exit(0)


def _note(number: int, _: FrameType | None) -> None:
    if number in _arrived:
        _arrived.remove(number)
    _arrived.append(number)
