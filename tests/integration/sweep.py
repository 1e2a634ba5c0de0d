"""Reads two GPUs over a vendor's stand-in while one call after the other fails, or answers garbage, for the first one.

Run in a process of its own, which has loaded the stand-in: `python -m tests.integration.sweep VENDOR PLAN MODE`. It
prints what it went through, and ends with a failed assertion where an outcome is not that of the error's kind.
"""

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from exporter.model import Device, Sample
from exporter.providers import PROVIDERS
from exporter.providers.protocol import OpenContext, Provider, ProviderError
from exporter.providers.sanitise import Range
from exporter.providers.simulated.device import Fault
from exporter.providers.simulated.machine import Machine
from exporter.providers.simulated.physics import Window
from exporter.providers.simulated.scenario import load_scenario
from exporter.supervision import frames
from exporter.supervision.schedule import EVERYTHING
from tests.integration.fault_rows import symbols
from tests.integration.nvidia import REPOSITORY
from tests.native.plan import write_plan

ALWAYS = Window(0.0, float("inf"), 0.0, 0.0)
REFUSALS = {"nvidia": (3, 4, 13, 21, 25, 26), "amd": (2, 3, 5, 40)}
ERRORS = {"nvidia": (6, 10, 16, 17, 19, 20, 23, 27, 29, 12345), "amd": (1, 7, 8, 9, 10, 11, 15, 16, 30, 43, 12345)}
DOUBTS = {"nvidia": (15, 999), "amd": (12, 14, 31)}
"""Statuses that may mean that the GPU is lost."""
GONE = {"nvidia": (1, 9, 12, 18), "amd": (18, 32, 34)}
MOST_FIELDS = 12
"""Of Sample, that one call gives: the table of metrics of AMD SMI, and the lists of processes, have the most."""

# Bits of every number in an answer, cut to its type: 0, 1, -1 and all ones, least and most of 32 and 64 bits, values by
# which drivers were seen to mean "none", and of doubles not a number and infinite.
EDGES = (
    *(0, 1, 2**64 - 1, 0x7FFFFFFF, 0x80000000, 2**63 - 1, 2**63, 2**47, 2**63 - 16),
    *(0x7FF8000000000000, 0xFFF0000000000000),
)
MORE = (0xFF, 0xFFFF, 0xFFFFFFFF, 0x7F, 0x80, 0x7FFF, 0x8000, 0x7FFFFFF0, 101, 256, 65536, 10**6, 10**9, 10**12, 10**18)
PHYSICAL: Mapping[str, Range] = {
    "watts": Range(0, 5e3),
    "joules": Range(0, 1e14),
    "celsius": Range(-60, 200),
    "ratio": Range(0, 1),
    "hertz": Range(0, 2e10),
    "bytes": Range(0, 2**50),
    "seconds": Range(0, 1e10),
    "errors": Range(0, 2**53),
    "pages": Range(0, 2**53),
    "replays": Range(0, 2**53),
    "generation": Range(0, 10),
    "width": Range(0, 64),
    "max": Range(0, 64),
    "state": Range(0, 15),
    "counts": Range(0, 2**32),
    "at": Range(0, 1.1e9),
}
"""By the last word of a field's name."""


class Sweep:
    def __init__(self, vendor: str, plan: Path) -> None:
        self.vendor = vendor
        self.plan = plan
        model = {"nvidia": "H100-SXM", "amd": "MI300X"}[vendor]
        mig = "partitions: [{profile: 1g.10gb}], " if vendor == "nvidia" else ""
        rows = "processes: [{pid: 7, memory_used_bytes: 5}, {pid: 8, kind: graphics, memory_used_bytes: 6}]"
        text = f"devices: [{{model: {model}, {rows}}}, {{model: {model}, {mig}{rows}}}]"
        self.machine = Machine(load_scenario(text), time.monotonic() - 1000)
        write_plan(plan, self.machine)
        # A root without /sys: on this host's bus a card that fails is not there, and would be lost.
        self.context = OpenContext(between_calls=lambda: None, root=plan.parent / "host")
        self.provider = self.opened()
        self.devices = self.provider.devices()
        assert len(self.devices) == 2
        for _ in range(2):  # throttling is told by what is different from the read before
            self.sound = tuple(given(self.provider.read(device, EVERYTHING)) for device in self.devices)
        self.outcomes: Counter[str] = Counter()

    def opened(self) -> Provider:
        return PROVIDERS[self.vendor].open(self.context).provider

    def suffer(self, *faults: Fault) -> None:
        machine = Machine(self.machine.scenario, self.machine.epoch)
        machine.devices = (replace(machine.devices[0], faults=faults), *machine.devices[1:])
        write_plan(self.plan, machine)

    def look(self) -> tuple[Sample, Sample] | None:
        """Enumerate and read both; None: the provider said that it is down, and was opened anew without a fault."""
        try:
            listed = {device.key: device for device in self.provider.devices()}
            samples = [self.provider.read(listed.get(device.key, device), EVERYTHING) for device in self.devices]
        except ProviderError as error:
            down = str(error)
        else:
            down = ""
        if down:
            assert down.isprintable(), down
            self.suffer()
            self.provider.close()
            self.provider = self.opened()
            self.provider.devices()
            return None
        assert set(listed) >= {self.devices[1].key}
        for sample in samples:
            assert list(frames.reports().feed(frames.encode(frames.Sampled(sample)))) == [frames.Sampled(sample)]
        return samples[0], samples[1]

    def is_sound(self) -> bool:
        """Tell whether all is as at the beginning once the fault is over."""
        self.suffer()
        self.look()  # after some errors the library is opened anew by the first, and known by the second
        seen = self.look()
        assert seen is not None
        return tuple(map(given, seen)) == self.sound

    def errors(self) -> None:
        kinds = {"refusal": REFUSALS, "error": ERRORS, "doubt": DOUBTS, "gone": GONE}
        for symbol in symbols(self.vendor):
            for kind, statuses in kinds.items():
                for status in statuses[self.vendor]:
                    self.suffer(Fault("error", ALWAYS, symbol, status=status))
                    self.judge_error(symbol, kind, status)
            assert self.is_sound(), symbol

    def judge_error(self, symbol: str, kind: str, status: int) -> None:
        where = (symbol, kind, status)
        seen = self.look()
        if seen is None:
            self.outcomes["provider down"] += 1
            assert kind == "gone", where
            return
        first, second = seen
        assert given(second) == self.sound[1], where
        missing = self.sound[0] - given(first)
        self.outcomes["lost" if first.lost else "fails" if first.failed else "absent" if missing else "unseen"] += 1
        if first.lost:
            assert kind == "doubt", where
            return
        assert len(missing) <= MOST_FIELDS, (where, missing)
        if kind == "refusal":
            assert first.failed == (), (where, first.failed)
        if kind == "error" and missing:
            assert first.failed, (where, missing)

    def garbage(self) -> None:
        chosen = random.Random(20)
        rejected: set[str] = set()
        for symbol in (*symbols(self.vendor), "*"):
            seeds = (chosen.getrandbits(64) >> chosen.randrange(64) for _ in range(60 if symbol == "*" else 2))
            for bits in (*EDGES, *(MORE if symbol == "*" else ()), *seeds):
                self.suffer(Fault("raw", ALWAYS, symbol, raw=bits))
                seen = self.look()
                assert seen is not None, (symbol, hex(bits))
                first, second = seen
                assert given(second) == self.sound[1], (symbol, hex(bits))
                rejected.update(first.rejected)
                self.outcomes["rejected" if first.rejected else "failed" if first.failed else "taken"] += 1
                wrong = list(unphysical(first))
                assert not wrong, (symbol, hex(bits), wrong)
            assert self.is_sound(), symbol
        self.outcomes["names rejected"] = len(rejected)
        assert {"power_watts", "utilization_ratio", "temperature_celsius", "clock_hertz"} <= rejected, rejected


def given(sample: Sample) -> frozenset[str]:
    """Return the fields that have a value; of mappings, each of their keys."""
    found = set()
    for field in sample.__struct_fields__:
        value = getattr(sample, field)
        if field in ("device", "taken_at", "read_seconds", "failed", "rejected") or value in (None, ()):
            continue
        found |= {f"{field}.{key}" for key in value} if isinstance(value, Mapping) else {field}
    return frozenset(found)


def unphysical(sample: Sample) -> Iterator[tuple[str, Any]]:
    """Yield readings and parts of the identity that no GPU can have."""
    for field in sample.__struct_fields__:
        if field not in ("device", "taken_at", "read_seconds", "failed", "rejected"):
            for value in flat(getattr(sample, field)):
                last = field.rpartition("_")[2]
                bounds = Range(0, 2) if field == "fan_speed_ratio" else PHYSICAL.get(last)
                if bounds is not None and not bounds.low <= value <= bounds.high:
                    yield field, value
    yield from unphysical_identity(sample.device)
    for part in sample.partitions or ():
        if not 0 <= (part.memory_used_bytes or 0) <= 2**50 or not 0 <= (part.utilization_ratio or 0) <= 1:
            yield "partitions", part
    for process in sample.processes or ():
        if not 0 < process.pid < 2**32 - 1 or not 0 <= (process.memory_used_bytes or 0) <= 2**50:
            yield "processes", process


def unphysical_identity(device: Device) -> Iterator[tuple[str, Any]]:
    if device.pci_address is not None and (len(device.pci_address) > 16 or device.pci_address.startswith("fff")):
        yield "pci_address", device.pci_address
    for name, number in (("index", device.index), ("minor", device.minor)):
        if number is not None and not 0 <= number < 2**20:
            yield name, number


def flat(value: Any) -> Iterator[float]:
    for item in value.values() if isinstance(value, Mapping) else (value,):
        if isinstance(item, float) and not isinstance(item, bool):
            yield item


def swept(vendor: str, mode: str, folder: Path, environment: Mapping[str, str]) -> dict[str, float]:
    """Run a sweep in a process of its own; return how often which outcome was met. Fails with what it says."""
    (folder / "host").mkdir()
    command = [sys.executable, "-m", "tests.integration.sweep", vendor, str(folder / "plan"), mode]
    environment = {
        **os.environ,
        **environment,
        "GPU_EXPORTER_PLAN": str(folder / "plan"),
        "PYTHONPATH": str(REPOSITORY),
    }
    done = subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    outcomes: dict[str, float] = json.loads(done.stdout)
    return outcomes


def main(vendor: str, plan: str, mode: str) -> None:
    sweep = Sweep(vendor, Path(plan))
    began = time.monotonic()
    {"errors": sweep.errors, "garbage": sweep.garbage}[mode]()
    print(json.dumps({**sweep.outcomes, "seconds": round(time.monotonic() - began, 1)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
