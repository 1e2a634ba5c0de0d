"""How a signal reaches the event loop, without what asyncio would load for it.

`add_signal_handler` asks the module inspect whether it was given a coroutine, and asyncio's own handler for SIGINT is
described with its help when another one takes its place: 0.8 MiB.

No descriptor wakes the loop up for it: a signal that comes just before the loop waits is acted on at its next turn,
which is a tick of the supervisor later at the latest.
"""

import asyncio
import contextlib
import signal
from collections.abc import Callable
from types import FrameType


def hold_interrupts() -> None:
    """Keep SIGINT as it is by default under a name of ours: asyncio leaves it alone then."""
    signal.signal(signal.SIGINT, _interrupt)


def on(loop: asyncio.AbstractEventLoop, number: int, act: Callable[[], object]) -> None:
    """Have the loop call `act` whenever the signal comes; after the loop's end nothing happens."""

    def come(_: int, __: FrameType | None) -> None:
        with contextlib.suppress(RuntimeError):  # it is closed
            loop.call_soon_threadsafe(act)

    signal.signal(number, come)


def _interrupt(_: int, __: FrameType | None) -> None:
    raise KeyboardInterrupt
