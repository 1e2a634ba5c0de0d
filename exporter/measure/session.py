"""A live measurement: workers that read the GPUs at the interval asked for, and a file that takes each reading at once.

What comes in one turn of the event loop is written at its end, in one piece: a crash loses nothing that was heard in an
earlier turn, and what a worker has said is not read from its pipe any later for it.

Workers of its own and no journal: beside a running daemon it reads the same GPUs once more, and neither sees the other.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import IO

import msgspec

from exporter.config import Config, SamplingConfig, WorkersConfig
from exporter.measure.recorder import Recorder, choose
from exporter.measure.records import Counters, Identity, Point, Policy
from exporter.measure.samples import SampleWriter
from exporter.supervision.frames import WorkerRequest
from exporter.supervision.requests import worker_requests
from exporter.supervision.supervisor import Supervisor

INTERVAL_SECONDS = 0.093
"""Ten readings a second, and no round number, as in `config`: periods of sensors and loads are round."""
LOAD_SECONDS = 1.0
STATE_SECONDS = 5.0
"""Between readings of load and temperature, by which a power reading that is stuck is known; the second takes many
calls."""
_SELDOM_SECONDS = 3600.0
_LOOK_SECONDS = 0.02
_PATIENCE_SECONDS = 1.5
"""How much later than due a reading may come before it is not waited for."""
_KEPT = WorkersConfig(max_age_seconds=None, max_memory_bytes=None, max_descriptors=None)
"""A worker is not replaced while something is measured."""


class SessionError(Exception):
    """Nothing can be measured: the text says why, in one line."""


class Session:
    """Made in a running event loop; `close` ends what `start` started."""

    def __init__(self, config: Config, interval: float | None = None) -> None:
        """`interval`: seconds between readings; None: as configured, else INTERVAL_SECONDS."""
        interval = interval or config.sampling.energy_seconds or INTERVAL_SECONDS
        self._config = config
        self._sampling = sampling(config.sampling, interval)
        self.interval = interval
        self.recorder = Recorder(request.provider for request in worker_requests(config))
        self.gpus: tuple[Identity, ...] = ()
        """Those that are measured, as they are at the start."""
        self.covered: tuple[str, ...] = ()
        """Labels of GPUs without a power sensor, whose power is in that of another one of their package."""
        self.lost_rows = ""
        """Why not every reading is in the file; empty: they all are."""
        self._supervisors: dict[str, Supervisor] = {}
        self._running: list[asyncio.Task[None]] = []
        self._writer: SampleWriter | None = None
        self._watch: Callable[[Sequence[Point]], None] = lambda _: None
        self._heard: list[Point] = []
        """In this turn of the event loop."""

    @property
    def policy(self) -> Policy:
        return Policy(interval_seconds=self.interval)

    async def start(self, wanted: Sequence[str] = ()) -> None:
        """Open the providers, and return when each GPU has been read. Raises SessionError.

        `wanted`: names of the GPUs to measure, as of `recorder.choose`; none: all.
        """
        for request in worker_requests(self._config):
            self._supervise(request)
        until = time.monotonic() + self._sampling.open_deadline_seconds + self._sampling.deadline_seconds
        while not self.recorder.settled and time.monotonic() < until:  # noqa: ASYNC110 -- bounded, and once
            await asyncio.sleep(_LOOK_SECONDS)
        for provider, supervisor in self._supervisors.items():
            if not self.recorder.has_gpus(provider):
                # It would try to open its library again and again beside the command.
                await supervisor.close()
        found = self.recorder.identities()
        if not found:
            raise SessionError(f"there is no GPU to measure: {self._why()}")
        missing = [name for name in self._config.providers if not self.recorder.lists(name)]
        if missing:
            raise SessionError(f"a provider that was asked for has no GPU: {self._why()}")
        try:
            chosen = choose(wanted, found, self.recorder.indices())
        except ValueError as error:
            raise SessionError(str(error)) from None
        self.covered = () if wanted else self.recorder.covered()
        self.gpus = tuple(gpu for gpu in found if gpu.gpu in chosen and gpu.name not in self.covered)

    @contextlib.contextmanager
    def recording(self, file: IO[str], watch: Callable[[Sequence[Point]], None]) -> Iterator[None]:
        """Write every reading of the GPUs that are measured to the file, from those of the start on.

        `watch` is given them too, those of one turn of the event loop together.
        """
        self._watch = watch
        try:
            self._writer = SampleWriter(file)
        except OSError as error:
            self._lost(error)
        self.recorder.begin((gpu.gpu for gpu in self.gpus), self._hear)
        try:
            yield
        finally:
            self._write()
            self._writer = None

    async def counters(self) -> Counters:
        """Return a snapshot of the accumulators, from fresh readings where the workers give them at once."""
        await self.fresh()
        return self.recorder.counters(time.time(), time.monotonic())

    async def fresh(self) -> None:
        await asyncio.gather(*(supervisor.fresh() for supervisor in self._supervisors.values()))

    async def settle(self, end: float, seconds: float) -> None:
        """Go on reading until the edge at `end` is bracketed on each GPU, `seconds` after it if all goes well."""
        await asyncio.sleep(max(0.0, end + seconds - time.monotonic()))
        until = time.monotonic() + _PATIENCE_SECONDS + self.interval
        while not self.recorder.reaches(end) and time.monotonic() < until:
            await self.fresh()
            await asyncio.sleep(_LOOK_SECONDS)

    async def close(self) -> None:
        """End the workers, within 3 s."""
        await asyncio.gather(*(supervisor.close() for supervisor in self._supervisors.values()))
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _supervise(self, request: WorkerRequest) -> None:
        # One each, so that those that have no GPU can be closed.
        supervisor = Supervisor(self.recorder, [request], self._sampling, _KEPT)
        self._supervisors[request.provider] = supervisor
        self._running.append(asyncio.create_task(supervisor.run()))

    def _hear(self, points: Sequence[Point]) -> None:
        if not self._heard:
            asyncio.get_running_loop().call_soon(self._write)
        self._heard += points

    def _write(self) -> None:
        points, self._heard = self._heard, []
        if self._writer is not None and not self.lost_rows:
            try:
                self._writer.write(points)
            except OSError as error:
                self._lost(error)
        self._watch(points)

    def _lost(self, error: OSError) -> None:
        # The command goes on, and so do the readings in memory: the result does not depend on the file.
        self.lost_rows = error.strerror or str(error)

    def _why(self) -> str:
        return "; ".join(f"{name}: {reason}" for name, reason in self.recorder.reasons().items()) or "none was read"


def sampling(config: SamplingConfig, interval: float) -> SamplingConfig:
    """Return how often a worker reads what while measuring: nothing that no result needs."""
    return msgspec.structs.replace(
        config,
        energy_seconds=interval,
        load_seconds=max(LOAD_SECONDS, interval),
        state_seconds=max(STATE_SECONDS, interval),
        processes_seconds=_SELDOM_SECONDS,
        profiling_seconds=None,
        pcie_bytes=False,
    )
