"""The host of a capture: the real providers read it, and a real fleet makes a page of it. Nothing waits."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pynvml

from exporter.captures.format import Capture, read_capture
from exporter.config import SamplingConfig
from exporter.exposition import Renderer
from exporter.exposition.formats import Format
from exporter.fleet import Fleet
from exporter.model import Device, DeviceSnapshot, Group, Sample, World
from exporter.providers import PROVIDERS
from exporter.providers.amd.library import Library
from exporter.providers.amd.provider import AmdProvider
from exporter.providers.amd.versions import numbers, spoken
from exporter.providers.drm.opening import open_cards
from exporter.providers.nvidia import open_library
from exporter.providers.procfs import Proc
from exporter.providers.protocol import OpenContext, Opened, Provider
from tests.captures.replay import Replay, ReplayedFiles, materialise
from tests.unit.amd.vendor import EXCEPTIONS

FOLDER = Path(__file__).parent
PATHS = tuple(sorted(FOLDER.glob("*.yaml")))
EVERYTHING = frozenset(Group) - {Group.PROFILING}
BEGUN = 1_000.0
"""Monotonic seconds at moment 0 of every capture."""
WALL = 1_796_000_000.0
"""Unix time then."""
_OURS = re.compile(r"(?:# \w+ )?gpu_exporter_")
"""Lines about the exporter and not about a GPU."""


def load(path: Path) -> Capture:
    return read_capture(path, name=path.name)


class Host:
    """`folder`: where the files of the capture are put."""

    def __init__(self, capture: Capture, folder: Path) -> None:
        self.capture = capture
        self._root = folder
        self._now = BEGUN + capture.moments[0].at
        self._context = OpenContext(between_calls=lambda: None, root=folder, wrap=self._wrap)
        self._proc = Proc(folder, frozenset({1}), boottime=self._clock)
        self._replays: list[Any] = []
        materialise(capture, folder)
        self.providers: dict[str, Provider] = {}
        self._versions: dict[str, str | None] = {}
        for name, (provider, version) in self._opened():
            self.providers[name], self._versions[name] = provider, version
        self.fleet = Fleet([(name, name in self.providers) for name in PROVIDERS], SamplingConfig())
        self.devices: dict[str, tuple[Device, ...]] = {}
        self.samples: dict[tuple[str, str], Sample] = {}
        """The newest, by provider and key."""
        self.shown: tuple[DeviceSnapshot, ...] = ()
        """What is published of each, once the page was made."""

    def play(self) -> World:
        """Read all of it at every moment, and return what is published after the last."""
        for name in PROVIDERS:
            self.fleet.provider_status(
                name,
                up=name in self.providers,
                reason="" if name in self.providers else "not on this host",
                library_version=self._versions.get(name),
            )
        for number, moment in enumerate(self.capture.moments):
            self._go(number, BEGUN + moment.at)
            for name, provider in self.providers.items():
                self.devices[name] = provider.devices()
                self.fleet.enumerated(name, self.devices[name], self._now)
            for name, provider in self.providers.items():
                for device in self.devices[name]:
                    sample = provider.read(device, EVERYTHING)
                    self.samples[name, sample.device.key] = sample
                    self.fleet.observed(name, sample, self._now, WALL - BEGUN + self._now)
        return self.fleet.world(self._now)

    def page(self) -> str:
        """Play it, and return what a scrape shows of the GPUs after the last moment."""
        world = self.play()
        self.shown = tuple(device for snapshot in world.snapshots for device in snapshot.devices)
        page = Renderer().page(world, Format.TEXT_1_0_0).decode()
        return "".join(f"{line}\n" for line in page.splitlines() if not _OURS.match(line))

    def close(self) -> None:
        for provider in self.providers.values():
            provider.close()

    def _clock(self) -> float:
        return self._now

    def _wall(self) -> float:
        return WALL - BEGUN + self._now

    def _go(self, number: int, now: float) -> None:
        self._now = now
        if number:
            materialise(self.capture, self._root, number)
        for replay in self._replays:
            replay.number = number

    def _wrap(self, files: Any) -> ReplayedFiles:
        self._replays.append(ReplayedFiles(self.capture, self._root, files))
        wrapped: ReplayedFiles = self._replays[-1]
        return wrapped

    def _opened(self) -> Iterator[tuple[str, Opened]]:
        library = self.capture.library
        if library is not None and library.package == "pynvml":
            replay = Replay(self.capture, errors=pynvml.NVMLError, rest=pynvml)
            self._replays.append(replay)
            yield (
                "nvidia",
                open_library(replay, self._context, clock=self._clock, wall_clock=self._wall, proc=self._proc),
            )
        elif library is not None:
            replay = Replay(self.capture, errors=EXCEPTIONS.AmdSmiLibraryException)
            self._replays.append(replay)
            opened = Library(replay, numbers(library.version))
            provider = AmdProvider(opened, self._context, self._proc, self._clock, self._wall)
            yield "amd", Opened(provider, spoken(opened.version))
        if any(path.startswith("sys/class/drm/") for path in self.capture.files_at(0)):
            yield "drm", open_cards(self._context, proc=self._proc, clock=self._clock)
