"""The child process: opens one provider, reads its devices on a schedule, and reports over a pipe.

Run as `python -m exporter.supervision.worker PROVIDER REPORTS REQUESTS PARENT PROGRESS`: two pipes, the pid of the
parent, and the page of progress. Small on purpose: it imports no event loop, no web server and no vendor package but
its own provider's.
"""

import importlib
import math
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from exporter.model import Device, Group, Groups, Sample
from exporter.parentage import die_with
from exporter.providers import PROVIDERS
from exporter.providers.protocol import OpenContext, Opener, Provider, ProviderError
from exporter.supervision import frames
from exporter.supervision.port import ParentGoneError, Port
from exporter.supervision.progress import Progress
from exporter.supervision.schedule import ENERGY, EVERYTHING, Schedule

_LOOK_SECONDS = 0.0005
"""Most calls into a library take less: the parent's requests are not looked for before each of them."""
_HELD_SECONDS = 0.001
"""Reports wait for so long for those of the next devices: one write, and one wake-up of the parent, for all of them."""


class Worker:
    """One thread. Every call into the library is announced first, so that the parent knows which one never returned."""

    def __init__(
        self,
        start: frames.Start,
        opener: Opener,
        port: Port,
        progress: Progress,
        random: Random,
        clock: Callable[[], float],
    ) -> None:
        self._start = start
        self._opener = opener
        self._port = port
        self._progress = progress
        self._random = random
        self._clock = clock
        self._devices: dict[str, Device] = {}
        self._excluded = frozenset(start.exclude)
        self._relieved: frozenset[str] = frozenset()
        self._chosen: frozenset[str] | None = None
        self._energy_at: dict[str, float] = {}
        self._lost: set[str] = set()
        self._token: int | None = None
        self._serving: Provider | None = None
        self._shutdown = False
        self._passed = False
        """It has read each device once."""
        self._looked_at = self._held_since = -math.inf

    def run(self) -> int:
        """Serve until asked to end; return the exit status. Raises ParentGoneError."""
        request = self._start.request
        context = OpenContext(
            between_calls=self._between_calls,
            root=Path(request.root),
            host=None if request.host is None else Path(request.host),
            scenario=request.scenario,
            pcie_bytes=self._start.sampling.pcie_bytes,
        )
        try:
            provider, version = self._opener(context)
        except ProviderError as error:
            return self._failed("unavailable", str(error))
        except Exception as error:  # noqa: BLE001 -- vendor packages raise anything while they are imported
            return self._failed("unavailable", _described(error))
        self._port.send(frames.Opened(version))
        try:
            if self._start.only is None:
                self._serve(provider)
            else:
                self._probe(provider, self._start.only)
        except ProviderError as error:
            return self._failed("lost", str(error))
        except ParentGoneError:
            raise
        except Exception as error:  # noqa: BLE001 -- the parent has to learn the reason, and opens the provider anew
            return self._failed("crash", _described(error))
        finally:
            self._serving = None
            _close(provider)
        self._port.flush()
        return os.EX_OK

    def _serve(self, provider: Provider) -> None:
        start = self._start
        schedule = Schedule(start.sampling, self._random, self._clock(), patience=start.patience_seconds)
        while not self._shutdown:
            if schedule.enumeration_due(self._clock()):
                self._enumerate(provider, schedule)
            due = schedule.take(self._clock())
            self._pass(provider, schedule, due)
            schedule.finished(self._clock())
            if schedule.hopeless(self._clock()):
                raise ProviderError("every device is lost: the library is opened anew")
            if not self._shutdown:
                self._wait(schedule)

    def _enumerate(self, provider: Provider, schedule: Schedule | None = None) -> None:
        # Handles are in the making until it returns: nothing is read meanwhile.
        self._serving = None
        self._port.send(frames.Enumerating())
        self._port.flush()
        devices = provider.devices()
        self._port.send(frames.Enumerated(devices))
        self._devices = {}
        for device in devices:
            # Of two devices with one identity the first counts, as it does for the parent.
            self._devices.setdefault(device.key, device)
        self._lost &= self._devices.keys()
        self._energy_at = {key: at for key, at in self._energy_at.items() if key in self._devices}
        if schedule is not None:
            self._choose(schedule)

    def _choose(self, schedule: Schedule) -> None:
        self._chosen = self._excluded
        chosen = [key for key in self._devices if key not in self._excluded]
        rank = {key: place for place, key in enumerate(self._start.last, 1)}
        missing = not self._devices.keys() >= set(self._start.known)
        schedule.enumerated(sorted(chosen, key=lambda key: rank.get(key, 0)), self._clock(), missing=missing)

    def _pass(self, provider: Provider, schedule: Schedule, due: list[tuple[str, Groups]]) -> None:
        took: dict[Group, float] = {}
        self._serving = provider
        for key, groups in due:
            sample = self._read(provider, key, groups)
            schedule.observed(sample, self._clock())
            for group, seconds in sample.read_seconds.items():
                took[group] = took.get(group, 0.0) + seconds
            self._between_calls()
            if self._shutdown:
                break
        if took:
            self._passed = True
            self._port.send(frames.PassTook(took))

    def _wait(self, schedule: Schedule) -> None:
        if self._excluded != self._chosen:
            self._choose(schedule)
        schedule.relieve(self._relieved)
        while self._excluded == self._chosen and not self._shutdown and (seconds := schedule.wait(self._clock())) > 0:
            self._port.send(frames.Waiting(seconds))
            self._port.flush()
            self.take(self._port.requests(seconds))
            schedule.relieve(self._relieved)
            self._refresh()

    def _probe(self, provider: Provider, key: str) -> None:
        self._enumerate(provider)
        if key in self._devices:
            self._read(provider, key, EVERYTHING)

    def _read(self, provider: Provider, key: str, groups: Groups) -> Sample:
        if not self._passed:
            # When the first pass ends the process, the parent knows all the same which devices answer.
            self._port.flush()
        self._progress.begin(key)
        sample = provider.read(self._devices[key], groups)
        self._progress.end()
        self._port.send(frames.Sampled(sample))
        if sample.lost:
            self._lost.add(key)
        else:
            self._lost.discard(key)
        if Group.ENERGY in groups:
            self._energy_at[key] = self._clock()
        return sample

    def _between_calls(self) -> None:
        """Serve what the parent asks for; the providers call this before each call into the vendor's library."""
        now = self._clock()
        if now - self._looked_at < _LOOK_SECONDS:
            return
        self._looked_at = now
        if not self._port.holds:
            self._held_since = now
        elif now - self._held_since >= _HELD_SECONDS:
            self._port.flush()
        if self._serving is not None:
            self.take(self._port.requests(0))
            self._refresh()

    def take(self, requests: list[frames.Request]) -> None:
        """Note what the parent asks for; it is done at the next call into the library, or after it."""
        for request in requests:
            match request:
                case frames.Fresh(token):
                    self._token = token
                case frames.Exclude(keys):
                    self._excluded = frozenset(keys)
                case frames.Relieve(keys):
                    self._relieved = frozenset(keys)
                case frames.Shutdown():
                    self._shutdown = True
                case frames.Start():
                    pass

    def _refresh(self) -> None:
        provider, token = self._serving, self._token
        if provider is None or token is None:
            return
        self._token = None
        # The reads below call back into `_between_calls`: nothing is served there until they are done.
        self._serving = None
        left_out = self._excluded | self._lost | self._relieved
        for key in self._devices:
            if key in left_out or key not in self._energy_at:
                continue
            if self._clock() - self._energy_at[key] >= frames.FRESH_SECONDS:
                self._read(provider, key, ENERGY)
        self._serving = provider
        self._port.send(frames.FreshDone(token))
        self._port.flush()

    def _failed(self, cause: frames.Cause, reason: str) -> int:
        self._port.send(frames.Failed(cause, reason))
        self._port.flush()
        return os.EX_UNAVAILABLE


def _close(provider: Provider) -> None:
    try:
        provider.close()
    except Exception as error:  # noqa: BLE001 -- the process ends either way, and the reason that it ends for counts
        sys.stderr.write(f"the library cannot be closed: {_described(error)}\n")


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def find_opener(request: frames.WorkerRequest) -> Opener:
    """Return the opener that is asked for by name, or by import path."""
    if request.opener is None:
        return PROVIDERS[request.provider].open
    module, _, attribute = request.opener.partition(":")
    opener: Opener = getattr(importlib.import_module(module), attribute)
    return opener


def main(arguments: list[str]) -> int:
    """Serve one provider until the parent asks for the end or is gone."""
    reports, requests, parent, page = (int(argument) for argument in arguments[2:6])
    die_with(parent)
    port, progress = Port(reports, requests), Progress(page)
    os.close(page)
    first: list[frames.Request] = []
    while not first:
        first = port.requests(1.0)
    start, *more = first
    if not isinstance(start, frames.Start):
        return os.EX_UNAVAILABLE
    try:
        random = Random()  # noqa: S311 -- jitter
        worker = Worker(start, find_opener(start.request), port, progress, random, time.monotonic)
        worker.take(more)
        return worker.run()
    except ParentGoneError:
        return os.EX_UNAVAILABLE


if __name__ == "__main__":
    sys.exit(main(sys.argv))
