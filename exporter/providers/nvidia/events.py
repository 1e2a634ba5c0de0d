"""XID errors, as the driver reports them: heard in a thread of its own, handed out with the samples of their GPU.

A wait for events can hang in a broken driver as any call can, and the readings must go on. So two threads use the
library at once, which NVML allows, by these rules:

- The provider's thread makes the event set of a GPU and registers it, so that the parent knows whom to blame when that
  hangs. From then on the set belongs to the listening thread, which alone waits for it and frees it.
- Each GPU has a set of its own: of one for all, "GPU is lost" would not say whose.
- No lock is held over a call into the library, and neither thread waits for the other, but for a moment at the end.
- The listening thread goes round when it is asked to, a moment later: after a pass that read the state, which is what
  tells of errors, and when a GPU is lost. On Linux the driver keeps each error with its code until then.
- The library is shut down after the thread has ended, or not at all.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from exporter.model import ErrorEvent
from exporter.providers.nvidia.identity import Gpu
from exporter.providers.nvidia.library import TIMEOUT, AbsentError, BrokenError, LostError, Nvml
from exporter.providers.nvidia.reading import Reading
from exporter.providers.protocol import ProviderError

KIND = "xid"
EVENTS = "error_events"
_XID = 0x8  # nvmlEventTypeXidCriticalError
_PAUSE_SECONDS = 0.5  # lets the pass end that has asked for a round
_WAIT_MILLISECONDS = 1  # 0 is for ever
_MOST_AT_ONCE = 256  # of one GPU in one round: another gets its turn, whatever one of them reports
_MOST_CODES = 64  # of one GPU between two of its reads; more are left out, which fails the reading
_DEAF_SECONDS = 60.0
"""A thread that has not gone round for so long after it was asked hangs in the driver."""
_END_SECONDS = 1.0

_Ended = (AbsentError, BrokenError, LostError, ProviderError)


class _Ear(msgspec.Struct):
    """One event set. `heard`: by code, how often since they were handed out, and when last."""

    events: Any
    heard: dict[str, ErrorEvent] = {}
    dropped: bool = False
    """The provider's thread wants nothing of it any more."""


class XidListener:
    """`clock`: monotonic seconds, `wall_clock`: Unix seconds. Methods are for the provider's thread."""

    def __init__(self, nvml: Nvml, clock: Callable[[], float], wall_clock: Callable[[], float]) -> None:
        self._nvml = nvml
        self._clock = clock
        self._wall_clock = wall_clock
        self._lock = threading.Lock()
        self._ears: dict[str, _Ear] = {}
        self._left_behind: list[_Ear] = []
        """Sets that nobody wants, until the thread has freed them."""
        self._missed: dict[str, dict[str, ErrorEvent]] = {}
        """What was heard of GPUs whose set has ended, and was not handed out."""
        self._crowded: set[str] = set()
        """Which GPUs reported more codes than there is room for."""
        self._asked = threading.Event()
        self._asked_at: float | None = None
        """When the round was asked for that was not made yet."""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def listen(self, reading: Reading, gpu: Gpu) -> None:
        """Hear of a GPU from here on, if it reports errors and is not heard of already.

        Raises LostError, and ProviderError.
        """
        key = gpu.device.key
        if gpu.deaf or key in self._ears or self._stop.is_set():
            return
        gpu.deaf = True  # until it is identified anew
        # Registering for an event that is not supported registers for none of those asked for.
        if not (reading.get(EVENTS, "nvmlDeviceGetSupportedEventTypes") or 0) & _XID:
            return
        events = reading.ask(EVENTS, "nvmlEventSetCreate")
        if events is None:
            return
        registered = False
        try:
            registered = self._register(reading, events)
        finally:
            if not registered:
                self._free(events)
        if registered:
            gpu.deaf = False
            with self._lock:
                self._ears[key] = _Ear(events)
            self._start()

    def _register(self, reading: Reading, events: Any) -> bool:
        """Register the GPU of `reading`, and see whether the driver has the call that waits."""
        nvml = self._nvml
        try:
            nvml.call("nvmlDeviceRegisterEvents", reading.handle, _XID, events)
            nvml.call("nvmlEventSetWait_v2", events, _WAIT_MILLISECONDS)
        except AbsentError:
            return False
        except BrokenError as error:
            if error.code != TIMEOUT:
                reading.broken(EVENTS, error)
                return False
        return True

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="xid", daemon=True)
            self._thread.start()

    def hears(self, key: str) -> bool:
        """Tell whether errors of the GPU `key` would be heard."""
        at = self._asked_at
        return key in self._ears and (at is None or self._clock() - at <= _DEAF_SECONDS)

    def ask(self) -> None:
        """Have the thread go round soon."""
        if self._asked_at is None:
            self._asked_at = self._clock()
        self._asked.set()

    def crowded(self, key: str) -> bool:
        """Tell whether the GPU `key` reported more codes than there was room for since this was asked last."""
        crowded = key in self._crowded
        self._crowded.discard(key)
        return crowded

    def take(self, key: str) -> tuple[ErrorEvent, ...]:
        """Return what was heard of the GPU `key` since it was asked for last."""
        ear = self._ears.get(key)
        if not self._missed and (ear is None or not ear.heard):  # nearly always
            return ()
        with self._lock:
            heard = self._missed.pop(key, {})
            if ear is not None:
                for event in ear.heard.values():
                    self._add(key, heard, event)
                ear.heard = {}
        return tuple(heard.values())

    def drop(self, key: str) -> None:
        """Hear no more of the GPU `key`: it sleeps, or is another one since it was lost."""
        with self._lock:
            ear = self._ears.pop(key, None)
            if ear is not None:
                self._miss(key, ear)
                ear.dropped = True
                self._left_behind.append(ear)
        self.ask()

    def close(self) -> bool:
        """End the thread. Return False when it hangs in the driver: then the library is still in use."""
        self._stop.set()
        self._asked.set()
        if self._thread is None:
            return True
        self._thread.join(_END_SECONDS)
        return not self._thread.is_alive()

    # ---- In the listening thread ----

    def _run(self) -> None:
        while self._asked.wait() and not self._stop.wait(_PAUSE_SECONDS):
            self._asked.clear()
            more = self.listen_once()
            self._asked_at = None
            if more:
                self.ask()
        with self._lock:
            ears, self._ears = [*self._ears.values(), *self._left_behind], {}
            self._left_behind = []
        for ear in ears:
            self._free(ear.events)

    def listen_once(self) -> bool:
        """Go round all GPUs; tell whether one may have more to say. In the listening thread, or without one."""
        more = False
        with self._lock:
            left_behind, self._left_behind = self._left_behind, []
            ears = list(self._ears.items())
        for ear in left_behind:
            self._free(ear.events)
        for key, ear in ears:
            try:
                reported = 0
                for code in self._codes(ear):
                    reported += 1
                    with self._lock:
                        self._add(key, ear.heard, ErrorEvent(kind=KIND, code=code, at=self._wall_clock()))
                more |= reported == _MOST_AT_ONCE
            except Exception:  # noqa: BLE001 -- whatever it is, it ends one GPU's events and not the thread
                # Lost, or the whole driver is gone: the reads of the provider will say so, and of which GPU.
                self._end(key, ear)
        return more

    def _codes(self, ear: _Ear) -> Iterator[str]:
        for _ in range(_MOST_AT_ONCE):
            if ear.dropped or self._stop.is_set():
                return
            event = self._nvml.event(ear.events, _WAIT_MILLISECONDS)
            if event is None:
                return
            kind, data = event
            if kind & _XID:
                yield str(data)

    def _end(self, key: str, ear: _Ear) -> None:
        with self._lock:
            mine = self._ears.get(key) is ear
            if mine:
                del self._ears[key]
                self._miss(key, ear)
        if mine:  # else it was dropped meanwhile, and is freed in the next round
            self._free(ear.events)

    # ---- In either ----

    def _miss(self, key: str, ear: _Ear) -> None:
        if ear.heard:
            missed = self._missed.setdefault(key, {})
            for event in ear.heard.values():
                self._add(key, missed, event)
            ear.heard = {}

    def _free(self, events: Any) -> None:
        if events is not None:
            with contextlib.suppress(*_Ended):
                self._nvml.beside("nvmlEventSetFree", events)

    def _add(self, key: str, heard: dict[str, ErrorEvent], event: ErrorEvent) -> None:
        before = heard.get(event.code)
        if before is not None:
            event = ErrorEvent(kind=event.kind, code=event.code, at=event.at, count=before.count + event.count)
        elif len(heard) >= _MOST_CODES:
            self._crowded.add(key)
            return
        heard[event.code] = event
