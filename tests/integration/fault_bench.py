"""A daemon over a machine whose faults come and go while it runs, and what is measured of it meanwhile."""

import http.client
import math
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

from exporter.providers.simulated.device import Fault
from exporter.providers.simulated.machine import Machine
from exporter.providers.simulated.scenario import load_scenario
from tests.integration.daemon import running
from tests.integration.fault_page import Page
from tests.native.plan import standin_environment, write_plan

SCRAPE_SECONDS = 0.060
EVERY_SECONDS = 0.25
"""Between two scrapes of one daemon."""
SYMPTOM_SECONDS = 30.0
"""How long a fault may take to show; how long it may take to go is said row by row."""
START_SECONDS = 30.0
SETTLE_SECONDS = 10.0
PSS_GROWTH = 6 * 2**20
"""What the daemon may have grown by: pages of memory that were touched for the first time."""
RELEASE = "7.0.2"

CONFIG = """
sampling: {energy_seconds: 0.5, load_seconds: 0.5, state_seconds: 1, processes_seconds: 1, deadline_seconds: 1,
           open_deadline_seconds: 4}
workers: {max_memory_bytes: 60000000, max_descriptors: 40}
attribution: {enabled: %s, job_files: %s}
"""
MODELS = {"nvidia": "H100-SXM", "amd": "MI300X", "simulated": "H100-SXM"}
WATTS = (500, 400, 300, 200)
ADDRESSES = tuple(f"0000:{bus:02x}:00.0" for bus in (0x17, 0x3D, 0x60, 0x70))
PCI_VENDORS = {"nvidia": "0x10de", "amd": "0x1002"}
BYSTANDER = "devices: [{model: T4, load: {pattern: constant, watts: 50}}]"
BYSTANDER_WATTS = 50
PROVIDERS = 2


class Usage(NamedTuple):
    """What the daemon holds, without its workers; `children` are theirs."""

    children: int
    descriptors: int
    threads: int
    pss: int

    def no_more_than(self, before: "Usage") -> bool:
        """Tell whether it is as many children as before, and nothing else has grown; memory is judged apart."""
        same = self.children == before.children
        return same and self.descriptors <= before.descriptors and self.threads <= before.threads


@dataclass
class Seen:
    """What was measured of one row."""

    seconds: list[float] = field(default_factory=list)
    """Of each scrape while the fault was there, and until all was well again."""
    statuses: set[int] = field(default_factory=set)
    states: dict[int, set[str | None]] = field(default_factory=dict)
    gaps: dict[int, int] = field(default_factory=dict)
    """Scrapes without power, or with that of another device, by device; the last position is the other provider's."""
    falls: list[str] = field(default_factory=list)
    symptom: float | None = None
    recovered: float | None = None
    before: Usage | None = None
    after: Usage | None = None
    worst_worker: tuple[int, int] = (0, 0)
    """The most descriptors and bytes of memory that a worker held."""
    restarts: float = 0.0
    began: float = field(default_factory=time.monotonic)
    ended: float = 0.0
    noise: float = 0.0
    """The share of scrapes of a daemon without a fault that were late at the same time."""
    notes: list[str] = field(default_factory=list)


class Bench:
    """Three devices of one vendor (and room for a fourth), the second of which suffers, and one of another provider."""

    def __init__(self, folder: Path, vendor: str, *, attributes: bool = False) -> None:
        """`attributes`: a child beside the workers looks up owners, which takes as long to start as a worker.

        It has a source that may tell something else at any time, so that it does not leave.
        """
        self.folder = folder
        self._children = PROVIDERS + attributes
        self.vendor = vendor
        self.provider = vendor
        self.plan = folder / "plan"
        self.epoch = time.monotonic() - 1000
        self.restarts = 0.0
        """Of workers before the fault."""
        self.pci = folder / "pci"
        self.seen = Seen()
        folder.mkdir()
        devices = Machine(load_scenario(self.text(order=(0, 1, 2, 3))), self.epoch).devices
        alone = Machine(load_scenario(BYSTANDER), self.epoch).devices[0]
        self.names = tuple(device.key for device in (*devices, alone))
        (folder / "jobs").mkdir()
        (folder / "config.yaml").write_text(CONFIG % (str(attributes).lower(), folder / "jobs"))
        self._connection: http.client.HTTPConnection | None = None
        self._totals: dict[str, float] = {}

    def text(
        self,
        *,
        order: tuple[int, ...] = (0, 1, 2),
        extra: Mapping[int, str] | None = None,
        texts: Mapping[int, str] | None = None,
        head: str = "",
    ) -> str:
        """Return a scenario with devices in this order; `extra`, `texts`: more keys of one, and of its texts."""
        lines = [head, "devices:"]
        for number in order:
            key = f"unique_id: b0000000000000a{number}"
            if MODELS[self.vendor].startswith("H100"):
                key = f"uuid: GPU-00000000-0000-0000-0000-00000000000{number}"
            identity = f'{key}, pci_address: "{ADDRESSES[number]}"{(texts or {}).get(number, "")}'
            load = f"load: {{pattern: constant, watts: {WATTS[number]}}}, processes: [{{pid: 1, memory_used_bytes: 5}}]"
            more = (extra or {}).get(number, "")
            lines.append(f"  - {{model: {MODELS[self.vendor]}, texts: {{{identity}}}, {load}, {more}}}")
        return "\n".join(lines)

    def machine(self, **changes: Any) -> Machine:
        return Machine(load_scenario(self.text(**changes)), self.epoch)

    def faulty(self, *faults: str, machine: str = "", **changes: Any) -> Machine:
        """Return the machine whose second device has these faults, or all of it."""
        extra = {1: f"faults: [{', '.join(faults)}]"} if faults else {}
        return self.machine(extra=extra, head=f"faults: [{machine}]" if machine else "", **changes)

    def put(self, machine: Machine) -> None:
        """Have the machine be this one from here on."""
        write_plan(self.plan, machine)

    def with_faults(self, *faults: Fault) -> Machine:
        """Return the machine whose second device has faults that no scenario can ask for."""
        machine = self.machine()
        first, second, *others = machine.devices
        machine.devices = (first, replace(second, faults=faults), *others)
        return machine

    def suspend(self, device: int, *, asleep: bool) -> None:
        (self.pci / ADDRESSES[device] / "power/runtime_status").write_text("suspended\n" if asleep else "active\n")

    def prepare(self) -> None:
        """Write what the daemon finds when it starts."""
        self.put(self.machine())
        (self.folder / "scenario.yaml").write_text(f"epoch_seconds: {self.epoch}\n{BYSTANDER}")

    def start(self, stack: ExitStack, rocm: Mapping[str, str]) -> None:
        """Start the daemon and wait until every device shows power."""
        self.prepare()
        arguments = ["--config.file", str(self.folder / "config.yaml"), "--provider", "simulated"]
        arguments += ["--simulate", str(self.folder / "scenario.yaml")]
        arguments += ["--provider", "amd" if self.vendor == "amd" else "nvidia"]
        environment = rocm if self.vendor == "amd" else standin_environment(self.plan)
        environment = {**environment, "GPU_EXPORTER_PLAN": str(self.plan)}
        python, log = str(self._launcher()), self.folder / "log"
        self.daemon = stack.enter_context(running(*arguments, log=log, env=environment, python=python, ready=False))
        stack.callback(self._hang_up)
        assert self.wait(self.well, START_SECONDS, record=False) is not None, self.daemon.log
        # The child that asks whose processes they are starts once there are some.
        self.daemon.until(lambda: self.usage().children == self._children, START_SECONDS)

    def begin(self) -> None:
        """Begin to measure the next fault."""
        self.seen = Seen()
        self.restarts = self._ended(self.scrape())
        self.seen.before = self.usage()

    def _ended(self, page: Page) -> float:
        return page.sum("gpu_exporter_worker_restarts_total", provider=self.provider)

    def _launcher(self) -> Path:
        """Make a Python whose PCI bus, as far as /sys shows it, is that of the machine."""
        for address in ADDRESSES[:3]:
            device = self.pci / address
            (device / "power").mkdir(parents=True)
            (device / "vendor").write_text(f"{PCI_VENDORS.get(self.vendor, '0x0')}\n")
            (device / "class").write_text("0x030200\n")
            (device / "config").write_bytes(b"\x02\x10" + bytes(62))
            (device / "power/runtime_status").write_text("active\n")
            (device / "driver").symlink_to("../../../bus/pci/drivers/nvidia")
        launcher = self.folder / "python"
        launcher.write_text(
            "#!/bin/sh\n"
            f"exec unshare --mount {'' if os.geteuid() == 0 else '--map-root-user '}sh -c '\n"
            f'mount --bind "{self.pci}" /sys/bus/pci/devices && exec "{sys.executable}" "$@"\' sh "$@"\n'
        )
        launcher.chmod(0o755)
        return launcher

    def scrape(self) -> Page:
        """Scrape once over a connection that is kept, and note what the columns of the matrix are about."""
        if self._connection is None:
            host = self.daemon.url.removeprefix("http://")
            self._connection = http.client.HTTPConnection(host, timeout=10)
        began = time.monotonic()
        self._connection.request("GET", "/metrics")
        reply = self._connection.getresponse()
        body = reply.read()
        self._took = time.monotonic() - began
        self._status = reply.status
        return Page(body.decode(), self.names)

    def well(self, page: Page, devices: tuple[int, ...] | None = None) -> bool:
        """Tell whether these devices, and the other provider's, are up and show their power."""
        wanted = (*((0, 1, 2) if devices is None else devices), len(self.names) - 1)
        providers = {labels["provider"]: up for labels, up in page.series.get("gpu_exporter_provider_up", ())}
        devices_are = all(page.state(device) == "ok" and self._power(page, device) for device in wanted)
        return devices_are and set(providers.values()) == {1.0} and len(providers) == PROVIDERS

    def _power(self, page: Page, device: int) -> bool:
        watts = (*WATTS, BYSTANDER_WATTS)[device]
        value = page.value("gpu_power_watts", device)
        return value is not None and math.isclose(value, watts, rel_tol=0.01)

    def wait(self, wanted: Callable[[Page], bool], seconds: float, *, record: bool = True) -> float | None:
        """Scrape until the page is as wanted; return how long that took, or None where it never was."""
        began = time.monotonic()
        while True:
            page = self.scrape()
            if record:
                self._record(page)
            if wanted(page):
                return time.monotonic() - began
            if time.monotonic() - began > seconds:
                self.seen.notes.append(f"not within {seconds:g} s; the log ends: {self.daemon.log[-1500:]}")
                return None
            time.sleep(EVERY_SECONDS)

    def hold(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        self.wait(lambda _: time.monotonic() >= end, seconds + 60)

    def _record(self, page: Page) -> None:
        self.seen.seconds.append(self._took)
        self.seen.statuses.add(self._status)
        for device, name in enumerate(self.names):
            state = page.state(device)
            self.seen.states.setdefault(device, set()).add(state)
            if not self._power(page, device):
                self.seen.gaps[device] = self.seen.gaps.get(device, 0) + 1
            total = page.value("gpu_energy_joules_total", device)
            if total is None:
                if name in self._totals:
                    self.seen.falls.append(f"{name} has none")
            elif total < self._totals.get(name, 0.0):
                self.seen.falls.append(f"{name} from {self._totals[name]} to {total}")
            else:
                self._totals[name] = total
        self.seen.restarts = self._ended(page) - self.restarts
        for pid in self.daemon.children():
            held = _worker(pid)
            worst = self.seen.worst_worker
            self.seen.worst_worker = (max(worst[0], held[0]), max(worst[1], held[1]))

    def usage(self) -> Usage:
        process = Path(f"/proc/{self.daemon.process.pid}")
        return Usage(
            children=len((process / "task" / process.name / "children").read_text().split()),
            descriptors=len(list((process / "fd").iterdir())),
            threads=len(list((process / "task").iterdir())),
            pss=_kilobytes((process / "smaps_rollup").read_text(), "Pss") * 1024,
        )

    def settle(self) -> None:
        """Wait until the daemon holds no more than before, or the time is over."""
        assert self.seen.before is not None
        end = time.monotonic() + SETTLE_SECONDS
        while True:
            self.seen.after = self.usage()
            if self.seen.after.no_more_than(self.seen.before) or time.monotonic() > end:
                return
            self.scrape()
            time.sleep(EVERY_SECONDS)

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()


class SimulatedBench(Bench):
    """The simulated provider suffers, at times that are known when it starts; the other one is NVIDIA's."""

    LEAD_SECONDS = 15.0
    """Until the first fault: the start is over by then."""
    BETWEEN_SECONDS = 5.0
    """From one fault's end to the next."""

    def __init__(self, folder: Path, faults: tuple[tuple[str, float], ...], *, attributes: bool = False) -> None:
        """Take the faults of the second device, one after the other: each without its window, and its seconds."""
        super().__init__(folder, "simulated", attributes=attributes)
        self._faults = faults
        self._begins: list[float] = []

    def prepare(self) -> None:
        write_plan(self.plan, Machine(load_scenario(BYSTANDER), self.epoch))
        at, specs = time.monotonic() + self.LEAD_SECONDS, []
        for fault, lasts in self._faults:
            self._begins.append(at)
            specs.append(f"{{{fault}, from_seconds: {at - self.epoch}, to_seconds: {at - self.epoch + lasts}}}")
            at += lasts + self.BETWEEN_SECONDS
        text = self.text(extra={1: f"faults: [{', '.join(specs)}]"})
        (self.folder / "scenario.yaml").write_text(f"epoch_seconds: {self.epoch}\n{text}")

    def await_fault(self, number: int) -> None:
        left = self._begins[number] - time.monotonic()
        if left < -1.0:
            self.seen.notes.append(f"the fault began {-left:.1f} s before it was looked for")
        time.sleep(max(0.0, left))

    def await_end(self, number: int) -> None:
        self.hold(max(0.0, self._begins[number] + self._faults[number][1] - time.monotonic()))


class Control:
    """A daemon without any fault, scraped at the same pace: what the machine itself holds up."""

    def __init__(self, folder: Path) -> None:
        self._bench = Bench(folder, "nvidia")
        self._scrapes: list[tuple[float, float]] = []
        """When, and how many seconds it took."""
        self._stop = threading.Event()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._bench.start(self._stack, {})
        thread = threading.Thread(target=self._run)
        thread.start()
        self._stack.callback(thread.join)
        self._stack.callback(self._stop.set)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def late(self, began: float, ended: float) -> float:
        """Return the share of scrapes between the two times that were late."""
        took = [seconds for at, seconds in self._scrapes if began <= at <= ended]
        return sum(seconds >= SCRAPE_SECONDS for seconds in took) / len(took) if took else 0.0

    def _run(self) -> None:
        while not self._stop.wait(EVERY_SECONDS):
            at = time.monotonic()
            self._bench.scrape()
            self._scrapes.append((at, time.monotonic() - at))


def _worker(pid: int) -> tuple[int, int]:
    """Return descriptors and private memory of a process; nothing of one that has just ended."""
    process = Path(f"/proc/{pid}")
    try:
        return len(list((process / "fd").iterdir())), _kilobytes((process / "status").read_text(), "RssAnon") * 1024
    except (OSError, ValueError):
        return 0, 0


def _kilobytes(text: str, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)
    return int(found[1]) if found else 0
