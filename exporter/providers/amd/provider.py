"""How AMD GPUs are enumerated and read through AMD SMI."""

import contextlib
import math
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from exporter.model import Device, Group, Groups, Sample
from exporter.providers.amd.calls import Absent, Broken, Calls, HandleGone, code_of
from exporter.providers.amd.energy import read_default_limit, read_energy
from exporter.providers.amd.identity import describe, partition_mode
from exporter.providers.amd.library import Library
from exporter.providers.amd.packages import Package, find_packages
from exporter.providers.amd.processes import ProcessReader
from exporter.providers.amd.readings import Residency, read_load, read_state
from exporter.providers.procfs import Proc
from exporter.providers.protocol import OpenContext
from exporter.providers.sanitise import Readings

_ORDER = (Group.ENERGY, Group.LOAD, Group.STATE, Group.PROCESSES)
_OFF_THE_BUS = b"\xff" * 4
_UNREACHABLE = frozenset({6, 12, 14})
"""DRM error, input/output error, file error."""
_LOOK_AGAIN_SECONDS = 5.0
"""How long a device that is gone is not looked for again: to enumerate takes many calls."""
_SILENT_SECONDS = 5.0
"""After this a device that answers nothing any more is lost: one busy lock or reset in progress is shorter."""


class _Known(msgspec.Struct, frozen=True):
    """What is asked at each enumeration (the limit), or once as long as there are as many partitions (the mode)."""

    parts: int
    mode: str | None
    default_limit: float | None


class AmdProvider:
    """Reads AMD GPUs. `clock`: CLOCK_MONOTONIC seconds."""

    def __init__(self, library: Library, context: OpenContext, proc: Proc, clock: Callable[[], float]) -> None:
        self._library = library
        self._calls = Calls(library.module, context.between_calls, library.version)
        self._root = context.root
        self._processes = ProcessReader(proc, clock, context.between_calls)
        self._clock = clock
        self._packages: dict[str, Package] = {}
        self._devices: dict[str, Device] = {}
        self._missing_since: dict[str, float] = {}
        self._asics: dict[str, Mapping[str, Any]] = {}
        """By address."""
        self._silent_since: dict[str, float] = {}
        """When a read gave no value at all, where none has since."""
        self._known: dict[str, _Known] = {}
        self._residency: dict[str, Residency] = {}

    def devices(self) -> tuple[Device, ...]:
        packages = self._enumerate()
        self._missing_since = {}
        self._silent_since = {key: since for key, since in self._silent_since.items() if key in packages}
        self._residency = {key: value for key, value in self._residency.items() if key in packages}
        known, devices = self._devices, {}
        for key, package in packages.items():
            if key in known and self._asleep(package):
                devices[key] = known[key]
                continue
            # A handle that died since the enumeration costs its device until the next one.
            with contextlib.suppress(HandleGone):
                mode = self._about(package, anew=True).mode
                devices[key] = describe(self._calls, package, self._root, mode)
        self._devices = devices
        return tuple(devices.values())

    def read(self, device: Device, groups: Groups) -> Sample:
        package = self._packages.get(device.key)
        if package is not None:
            if self._asleep(package):
                return Sample(device=device, asleep=True)
            with contextlib.suppress(HandleGone):
                return self._read(device, package, groups)
        elif self._clock() < self._missing_since.get(device.key, -math.inf) + _LOOK_AGAIN_SECONDS:
            return Sample(device=device, lost=True)
        package = self._enumerate().get(device.key)
        if package is not None:
            with contextlib.suppress(HandleGone):
                return self._read(device, package, groups)
        self._packages.pop(device.key, None)
        self._missing_since[device.key] = self._clock()
        return Sample(device=device, lost=True)

    def close(self) -> None:
        self._packages = {}
        self._library.close()

    def _read(self, device: Device, package: Package, groups: Groups) -> Sample:
        readings = Readings()
        fields: dict[str, Any] = {}
        taken_at, took = {}, {}
        answers: dict[Group, int] = {}
        for group in _ORDER:
            if group in groups:
                begun, before = self._clock(), self._calls.answered
                fields |= self._read_group(group, device, package, readings)
                ended = self._clock()
                taken_at[group], took[group] = (begun + ended) / 2, ended - begun
                answers[group] = self._calls.answered - before
                self._calls.answered = before  # an urgent read of another device within this one does not count
        if self._silent(package, answers) or (readings.failed and self._lost(package)):
            return Sample(device=device, lost=True)
        return Sample(
            device=device,
            taken_at=taken_at,
            read_seconds=took,
            failed=readings.failed,
            rejected=readings.rejected,
            **fields,
        )

    def _read_group(self, group: Group, device: Device, package: Package, readings: Readings) -> dict[str, Any]:
        if group is Group.ENERGY:
            return read_energy(self._calls, package, self._about(package).default_limit, readings)
        if group is Group.LOAD:
            return read_load(self._calls, package, readings)
        if group is Group.STATE:
            profile = device.partition_mode.split("/")[0] if device.partition_mode else None
            before = self._residency.get(package.key, {})
            fields, self._residency[package.key] = read_state(self._calls, package, profile, before, readings)
            return fields
        unified = device.memory_kind == "unified"
        found = self._processes.read(self._calls, package, readings, unified=unified)
        return {"processes": found.samples, "process_counts": found.counts}

    def _enumerate(self) -> dict[str, Package]:
        self._packages = {package.key: package for package in find_packages(self._calls, self._asics)}
        return self._packages

    def _about(self, package: Package, *, anew: bool = False) -> _Known:
        known = self._known.get(package.key)
        if known is not None and known.parts == len(package.parts) and not anew:
            return known
        mode = known.mode if known and known.parts == len(package.parts) else partition_mode(self._calls, package)
        limit = read_default_limit(self._calls, package, Readings())
        self._known[package.key] = _Known(len(package.parts), mode, limit)
        return self._known[package.key]

    def _asleep(self, package: Package) -> bool:
        """Runtime power management has it suspended: a read through AMD SMI would wake it."""
        try:
            return self._pci(package, "power/runtime_status").strip() == b"suspended"
        except OSError:
            return False

    def _silent(self, package: Package, answers: Mapping[Group, int]) -> bool:
        """Tell whether the device has given nothing for so long that it is out of reach, whatever its errors say."""
        # The list of processes comes from /proc; energy alone is little to judge by.
        vital = {group: count for group, count in answers.items() if group is not Group.PROCESSES}
        if any(vital.values()):
            self._silent_since.pop(package.key, None)
        elif vital.keys() - {Group.ENERGY}:
            now = self._clock()
            return now - self._silent_since.setdefault(package.key, now) > _SILENT_SECONDS
        return False

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
            return self._pci(package, "config") == _OFF_THE_BUS
        except FileNotFoundError:
            return package.pci_address is not None and (self._root / "sys/bus/pci/devices").is_dir()
        except OSError:
            return False

    def _pci(self, package: Package, file: str) -> bytes:
        with (self._root / "sys/bus/pci/devices" / (package.pci_address or "none") / file).open("rb") as opened:
            return opened.read(4 if file == "config" else 64)
