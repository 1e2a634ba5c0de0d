"""How AMD GPUs are enumerated and read through AMD SMI."""

import contextlib
import math
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from exporter.model import Device, Group, Groups, Sample
from exporter.providers.amd.calls import Absent, Broken, Calls, HandleGone, code_of
from exporter.providers.amd.dies import Pairs
from exporter.providers.amd.energy import read_default_limit, read_energy
from exporter.providers.amd.identity import describe, partition_mode
from exporter.providers.amd.library import Library
from exporter.providers.amd.packages import Package, find_packages
from exporter.providers.amd.processes import ProcessReader
from exporter.providers.amd.readings import read_load, read_state
from exporter.providers.amd.records import Heard, Records
from exporter.providers.amd.throttling import Throttling
from exporter.providers.procfs import Proc
from exporter.providers.protocol import OpenContext
from exporter.providers.sanitise import Readings
from exporter.providers.sysfs import is_suspended

_ORDER = (Group.ENERGY, Group.LOAD, Group.STATE, Group.PROCESSES)
_OFF_THE_BUS = b"\xff" * 4
_UNREACHABLE = frozenset({6, 12, 14})
"""DRM error, input/output error, file error."""
_LOOK_AGAIN_SECONDS = 5.0
"""How long a device that is gone is not looked for again: to enumerate takes many calls."""


class _Known(msgspec.Struct, frozen=True):
    """What is asked at each enumeration (the limit), or once as long as there are as many partitions (the mode)."""

    parts: int
    mode: str | None
    default_limit: float | None
    limit_broke: bool = False
    """The limit could not be read: it is asked for at each read, until the devices are listed again."""


class _History(msgspec.Struct):
    """What is remembered of the reads of one package."""

    throttling: Throttling
    records: Records


class AmdProvider:
    """Reads AMD GPUs. `clock`: CLOCK_MONOTONIC seconds. `wall`: Unix time."""

    def __init__(
        self,
        library: Library,
        context: OpenContext,
        proc: Proc,
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._library = library
        self._calls = Calls(library.module, context.between_calls, library.version)
        self._root = context.root
        self._processes = ProcessReader(proc, clock, context.between_calls)
        self._clock = clock
        self._wall = wall
        self._since = wall()
        self._packages: dict[str, Package] = {}
        self._devices: dict[str, Device] = {}
        self._missing_since: dict[str, float] = {}
        self._asics: dict[str, Mapping[str, Any]] = {}
        """By address."""
        self._known: dict[str, _Known] = {}
        self._proven: dict[frozenset[str], Pairs] = {}
        self._histories: dict[str, _History] = {}
        """By key. A package that is gone for a while keeps its own: its records are not to be told again."""
        self._sketched: set[str] = set()
        """Keys of devices that slept whenever they were listed."""
        self._parts_told: dict[str, int] = {}
        """How many partitions the firmware counted when the handles were last fetched for that."""

    def devices(self) -> tuple[Device, ...]:
        """Enumerate. Cards seen before and missing stay in the list, last: reading them says that they are lost."""
        packages = self._enumerate()
        self._missing_since = {}
        known, devices = self._devices, {}
        for key, package in packages.items():
            if self._asleep(package):
                if key not in known:
                    self._sketched.add(key)
                devices[key] = known.get(key) or _sketch(package)
                continue
            # A handle that died since the enumeration costs its device until the next one.
            with contextlib.suppress(HandleGone):
                mode = self._about(package, anew=True).mode
                devices[key] = describe(self._calls, package, self._root, mode)
        # One that comes back is met by its next read, sooner than by the next enumeration.
        places = {package.pci_address for package in packages.values()}
        devices |= {
            key: device for key, device in known.items() if key not in devices and device.pci_address not in places
        }
        self._devices = devices
        return tuple(devices.values())

    def read(self, device: Device, groups: Groups) -> Sample:
        package = self._packages.get(device.key)
        if package is not None:
            if self._asleep(package):
                self._history(package).throttling.interrupt()
                return Sample(device=device, asleep=True)
            with contextlib.suppress(HandleGone):
                return self._read(self._described(device, package), package, groups)
        elif self._clock() < self._missing_since.get(device.key, -math.inf) + _LOOK_AGAIN_SECONDS:
            return Sample(device=device, lost=True)
        package = self._enumerate().get(device.key)
        if package is not None:
            with contextlib.suppress(HandleGone):
                return self._read(self._described(device, package), package, groups)
        self._packages.pop(device.key, None)
        if device.key in self._histories:
            self._histories[device.key].throttling.interrupt()
        self._missing_since[device.key] = self._clock()
        return Sample(device=device, lost=True)

    def close(self) -> None:
        self._packages = {}
        self._library.close()

    def _read(self, device: Device, package: Package, groups: Groups) -> Sample:
        readings = Readings()
        fields: dict[str, Any] = {}
        taken_at, took = {}, {}
        for group in _ORDER:
            if group in groups:
                begun = self._clock()
                fields |= self._read_group(group, device, package, readings)
                ended = self._clock()
                taken_at[group], took[group] = (begun + ended) / 2, ended - begun
        if readings.failed and self._asleep(package):
            # It went to sleep under the read: the driver answers EPERM then, sooner than wake it.
            return Sample(device=device, asleep=True)
        if readings.failed and self._lost(package):
            self._history(package).throttling.interrupt()
            return Sample(device=device, lost=True)
        # Last, because what it tells is told once.
        records = self._history(package).records
        heard = records.read(self._calls, package, readings) if Group.STATE in groups else Heard()
        return Sample(
            device=device,
            error_events=heard.events,
            error_event_kinds=heard.kinds,
            taken_at=taken_at,
            read_seconds=took,
            failed=readings.failed,
            rejected=readings.rejected,
            **fields,
        )

    def _read_group(self, group: Group, device: Device, package: Package, readings: Readings) -> dict[str, Any]:
        if group is Group.ENERGY:
            known = self._about(package)
            limit = read_default_limit(self._calls, package, readings) if known.limit_broke else known.default_limit
            return read_energy(self._calls, package, limit, readings)
        if group is Group.LOAD:
            return read_load(self._calls, package, readings)
        if group is Group.STATE:
            profile = device.partition_mode.split("/")[0] if device.partition_mode else None
            throttling = self._history(package).throttling
            read = read_state(self._calls, package, profile, throttling, self._clock(), readings)
            if read.parts not in (None, len(package.parts), self._parts_told.get(package.key)):
                # Repartitioned: the handles are fetched anew before the next read, once for each such count.
                self._parts_told[package.key] = read.parts or 0
                self._packages.pop(package.key, None)
            return read.fields
        unified = device.memory_kind == "unified"
        found = self._processes.read(self._calls, package, readings, unified=unified)
        return {"processes": found.samples, "process_counts": found.counts}

    def _enumerate(self) -> dict[str, Package]:
        found = find_packages(self._calls, self._asics, self._asic_asleep, self._proven)
        self._packages = {package.key: package for package in found}
        return self._packages

    def _history(self, package: Package) -> _History:
        known = self._histories.get(package.key)
        if known is None:
            known = self._histories[package.key] = _History(Throttling(), Records(self._wall, self._since))
        return known

    def _described(self, device: Device, package: Package) -> Device:
        """Return the identity of a device: asked anew where it was repartitioned, or slept when it was listed."""
        known = self._known.get(package.key)
        if package.key in self._sketched or (known is not None and known.parts != len(package.parts)):
            mode = self._about(package, anew=True).mode
            self._devices[package.key] = describe(self._calls, package, self._root, mode)
            self._sketched.discard(package.key)
        return self._devices.get(package.key, device)

    def _asic_asleep(self, address: str) -> Mapping[str, Any] | None:
        """Return what the kernel knows of the ASIC at an address that is suspended; None: it is awake."""
        # Partitions differ in the function of the address that AMD SMI makes up for them.
        place = f"{address.rpartition('.')[0]}.0"
        if not is_suspended(self._root, place):
            return None
        try:
            unique_id = (self._root / "sys/bus/pci/devices" / place / "unique_id").read_text()
        except (OSError, UnicodeDecodeError):
            return {}
        return {"asic_serial": unique_id.strip()}

    def _about(self, package: Package, *, anew: bool = False) -> _Known:
        known = self._known.get(package.key)
        if known is not None and known.parts == len(package.parts) and not anew:
            return known
        mode = known.mode if known and known.parts == len(package.parts) else partition_mode(self._calls, package)
        readings = Readings()
        limit = read_default_limit(self._calls, package, readings)
        self._known[package.key] = _Known(len(package.parts), mode, limit, limit_broke=bool(readings.failed))
        return self._known[package.key]

    def _asleep(self, package: Package) -> bool:
        """Runtime power management has it suspended: a read through AMD SMI would wake it."""
        return is_suspended(self._root, package.pci_address)

    def _lost(self, package: Package) -> bool:
        """Something broke: is it that the card left the bus? AMD SMI itself answers any error then."""
        try:
            self._calls("amdsmi_get_gpu_device_bdf", package.handle)
        except HandleGone:
            return True
        except Broken as error:  # of a living device the address is known without asking the driver
            return code_of(error.__cause__) in _UNREACHABLE
        except Absent:
            pass
        try:
            return self._config(package) == _OFF_THE_BUS
        except FileNotFoundError:
            return package.pci_address is not None and (self._root / "sys/bus/pci/devices").is_dir()
        except OSError:
            return False

    def _config(self, package: Package) -> bytes:
        with (self._root / "sys/bus/pci/devices" / (package.pci_address or "none") / "config").open("rb") as opened:
            return opened.read(len(_OFF_THE_BUS))


def _sketch(package: Package) -> Device:
    """Return what is known of a package that slept whenever it was listed."""
    return Device(
        vendor="amd",
        key=package.key,
        pci_address=package.pci_address,
        index=package.index,
        package=package.group,
    )
