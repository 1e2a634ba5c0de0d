"""The GPUs of this machine as the providers see them, with every call into a vendor's library timed."""

import contextlib
import select
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from exporter.model import Device, Groups, Sample
from exporter.providers import PROVIDERS
from exporter.providers.protocol import OpenContext, Provider, ProviderError
from tests.hardware.analysis import Point

ROOT = Path(__file__).parents[2]
_STARTS_SECONDS = 90
_ENDS_SECONDS = 10


class Timed:
    """A vendor's module whose functions note how long they take."""

    def __init__(self, module: Any, seconds: dict[str, list[float]]) -> None:
        self._module = module
        self._seconds = seconds

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        if isinstance(found, type) or not callable(found):
            return found

        def call(*arguments: Any) -> Any:
            begun = time.perf_counter()
            try:
                return found(*arguments)
            finally:
                self._seconds[name].append(time.perf_counter() - begun)

        return call


class Bench:
    """One provider that is open, and the device of it that is measured."""

    def __init__(self, name: str, provider: Provider, version: str | None, device: Device) -> None:
        self.name = name
        self.provider = provider
        self.version = version
        self.device = device
        self.seconds: dict[str, list[float]] = defaultdict(list)
        """What each call into the library took, by its name."""

    def read(self, groups: Groups) -> Sample:
        return self.provider.read(self.device, groups)

    def poll(self, groups: Groups, seconds: float, value: Callable[[Sample], float | None]) -> list[Point]:
        """Read again and again for so long, and return the times and values of the readings that gave one."""
        points, until = [], time.monotonic() + seconds
        while time.monotonic() < until:
            begun = time.monotonic()
            sample = self.read(groups)
            if (found := value(sample)) is not None:
                points.append(Point((begun + time.monotonic()) / 2, found))
        return points


def benches() -> tuple[list[Bench], dict[str, str]]:
    """Return a bench for each provider that has a GPU here, and of the others why they have none."""
    found, reasons = [], {}
    for name, entry in PROVIDERS.items():
        if entry.by_name_only:
            continue
        seconds: dict[str, list[float]] = defaultdict(list)
        context = OpenContext(between_calls=lambda: None, wrap=lambda module, into=seconds: Timed(module, into))
        try:
            provider, version = entry.open(context)
            devices = provider.devices()
        except ProviderError as error:
            reasons[name] = str(error)
            continue
        if not devices:
            reasons[name] = "it lists no GPU"
            provider.close()
            continue
        bench = Bench(name, provider, version, devices[0])
        bench.seconds = seconds
        found.append(bench)
    return found, reasons


class Load:
    """A process of ours that holds memory of a GPU and can be told to work it."""

    def __init__(self, process: "subprocess.Popen[str]", kind: str, size: int) -> None:
        self.pid = process.pid
        self.kind = kind
        self.size = size
        self._process = process

    def toggle(self) -> None:
        """Work from here on, or stop working."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()


@contextlib.contextmanager
def load(address: str, size: int) -> Iterator[Load | str]:
    """Give a load on the GPU at a PCI address, or the reason why there is none."""
    command = [sys.executable, "-m", "tests.hardware.load", address, str(size)]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        # A driver that is stuck lets no load begin, and the others are to be measured all the same.
        begun, _, _ = select.select([process.stdout], [], [], _STARTS_SECONDS)
        said = process.stdout.readline().strip() if begun else f"no load: none began within {_STARTS_SECONDS} s"
        kind = said.removeprefix("held ")
        yield Load(process, kind, size) if kind != said else said or "the load ended at once"
    finally:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(_ENDS_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # it may be in a call that does not return
                process.wait(_ENDS_SECONDS)
        process.stdout.close()
