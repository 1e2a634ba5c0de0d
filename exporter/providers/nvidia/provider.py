"""Reads NVIDIA GPUs: enumeration, handles, and the groups of readings of one GPU."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from exporter.model import Device, Group, Groups, Sample
from exporter.providers.nvidia import binding, energy
from exporter.providers.nvidia.asleep import awake_and_asleep, may_sleep, sketch
from exporter.providers.nvidia.events import EVENTS, KIND, XidListener
from exporter.providers.nvidia.identity import Gpu, address_of, identify, with_packages
from exporter.providers.nvidia.library import AbsentError, BrokenError, LostError, Nvml, UnknownError
from exporter.providers.nvidia.load import load
from exporter.providers.nvidia.pcie import ByteCounters
from exporter.providers.nvidia.processes import ProcessReader
from exporter.providers.nvidia.profiling import Profiler
from exporter.providers.nvidia.reading import Reading
from exporter.providers.nvidia.state import state
from exporter.providers.procfs import Proc, proc_of
from exporter.providers.protocol import OpenContext, Opened, ProviderError
from exporter.providers.sanitise import text
from exporter.providers.sysfs import is_suspended

_NO_GPUS_IS_FINE = 1  # NVML_INIT_FLAG_NO_GPUS
_MOST_DEVICES = 256  # bounds the loop should the library answer garbage


def open_nvidia(context: OpenContext) -> Opened:
    """Load pynvml and start NVML. Raises ProviderError."""
    try:
        pynvml = binding.load()
    except ImportError as error:
        raise ProviderError("the Python package nvidia-ml-py is not installed") from error
    return open_library(context.wrap(pynvml), context)


def open_library(
    library: Any,
    context: OpenContext,
    *,
    clock: Callable[[], float] = time.monotonic,
    wall_clock: Callable[[], float] = time.time,
    proc: Proc | None = None,
) -> Opened:
    """Start `library`, the module pynvml or one with its functions. Raises ProviderError."""
    if not hasattr(library, "NVMLError") or not hasattr(library, "nvmlInitWithFlags"):
        raise ProviderError("the installed module pynvml is not that of nvidia-ml-py 12.560 or later")
    nvml = Nvml(library, context.between_calls)
    try:
        nvml.call("nvmlInitWithFlags", _NO_GPUS_IS_FINE)
    except UnknownError as error:
        # Seen when `systemctl daemon-reload` took a running container's devices away.
        raise ProviderError(
            "NVML does not start (unknown error); a container that lost its devices must be restarted"
        ) from error
    except LostError as error:
        raise ProviderError("NVML does not start: a GPU is lost") from error
    except (AbsentError, BrokenError) as error:
        raise ProviderError(f"NVML does not start ({error})") from error
    processes = ProcessReader(proc_of(context.root, context.host) if proc is None else proc, wall_clock)
    provider = NvidiaProvider(nvml, context, processes, XidListener(nvml, clock, wall_clock), clock=clock)
    try:
        return Opened(provider, provider.version("nvmlSystemGetNVMLVersion"))
    except ProviderError:
        provider.close()
        raise


class NvidiaProvider:
    """A Provider over a started NVML; closing it stops the library once."""

    def __init__(
        self,
        nvml: Nvml,
        context: OpenContext,
        processes: ProcessReader,
        xids: XidListener,
        *,
        clock: Callable[[], float],
    ) -> None:
        self._nvml = nvml
        self._context = context
        self._clock = clock
        self._processes = processes
        self._xids = xids
        self._profiler = Profiler(nvml, clock)
        self._pcie = ByteCounters() if context.pcie_bytes else None
        self._parts: tuple[tuple[Group, Callable[[Reading, Gpu], dict[str, Any]]], ...] = (
            (Group.ENERGY, energy.sensors),
            (Group.LOAD, load),
            (Group.STATE, lambda reading, gpu: state(reading, gpu, self._pcie, self._clock())),
            (Group.PROCESSES, processes.read),
            (Group.PROFILING, self._profiler.read),
        )
        self._closed = False
        self._gpus: dict[str, Gpu] = {}
        """Every GPU ever seen, by key."""
        self._driver_version: str | None = None

    def version(self, function: str) -> str | None:
        """Ask for a version of the library or driver. Raises ProviderError."""
        try:
            return text(self._nvml.call(function))
        except (AbsentError, BrokenError, LostError):
            return None

    def devices(self) -> tuple[Device, ...]:
        """Enumerate. GPUs seen before and missing stay in the list, last: reading them says that they are lost.

        Those that are suspended are listed as they were, or as the kernel has them: a handle would wake them. Raises
        ProviderError, also when GPUs are counted and none was ever reached.
        """
        self._refuse_if_closed()
        self._driver_version = self.version("nvmlSystemGetDriverVersion")
        awake, asleep = awake_and_asleep(self._context.root)
        found: dict[str, Gpu] = {}
        twins: list[Device] = []
        # Where one sleeps, the others are asked for by address: a handle by index would wake it.
        asked = awake if asleep else range(self._count())
        reasons = {self._list(place, found, twins) for place in asked} - {""}
        for address in asleep:
            gpu = self._at(address) or Gpu(device=sketch(address, self._context.root), handle=None, may_sleep=True)
            found.setdefault(gpu.device.key, gpu)
        with_packages(found.values())
        # One whose address was its key, for want of a UUID, is the one that says its UUID there by now.
        places = {gpu.device.pci_address for gpu in found.values()}
        missing = {key: gpu for key, gpu in self._gpus.items() if key not in found and key not in places}
        for gpu in missing.values():
            gpu.handle = None
        self._gpus = {**found, **missing}
        if asked and not self._gpus:
            why = ", ".join(sorted(reasons)) or "without identity"
            raise ProviderError(f"{len(asked)} GPUs are counted and none answers ({why})")
        # The first of two GPUs with one identity is read; the other is told, so that it does not vanish unseen.
        return (*(gpu.device for gpu in self._gpus.values()), *twins)

    def _list(self, place: int | str, found: dict[str, Gpu], twins: list[Device]) -> str:
        """Add the GPU at an index or address to those found. Returns why it does not answer, or nothing."""
        by_index = isinstance(place, int)
        try:
            handle = self._handle(f"nvmlDeviceGetHandleBy{'Index' if by_index else 'PciBusId'}", place)
            gpu = self._identify(handle, place if isinstance(place, int) else None)
        except LostError:
            return "lost"
        except (AbsentError, BrokenError) as error:
            return str(error)
        if gpu is not None:
            first = found.setdefault(gpu.device.key, gpu)
            if first.device.pci_address != gpu.device.pci_address:
                twins.append(gpu.device)
        return ""

    def read(self, device: Device, groups: Groups) -> Sample:
        """Read `groups` of a GPU, known from `devices` or from before this provider was opened."""
        self._refuse_if_closed()
        gpu = self._gpus.get(device.key)
        # One that cannot be suspended is asked as seldom as whether it can.
        if gpu is None or gpu.may_sleep or Group.STATE in groups:
            if is_suspended(self._context.root, device.pci_address):
                self._let_sleep(device.key)
                if gpu is not None:
                    gpu.may_sleep = True
                return Sample(device=device if gpu is None else gpu.device, asleep=True)
            if gpu is not None and not gpu.may_sleep:
                gpu.may_sleep = may_sleep(self._context.root, device.pci_address)
        try:
            if gpu is None or gpu.handle is None:
                gpu = self._find(device)
            return self._read(gpu, groups)
        except LostError:
            return self._lost(device)
        except BrokenError:
            # There is a handle at its address, so it is not known to be gone.
            return Sample(device=device, taken_at=dict.fromkeys(groups, self._clock()), failed=("identity",))

    def _let_sleep(self, key: str) -> None:
        """Let go of all that is held of a GPU: it would be awake for that."""
        self._xids.drop(key)
        self._forget(key)

    def _lost(self, device: Device) -> Sample:
        known = self._gpus.get(device.key)
        if known is not None:
            known.handle = None
        self._forget(device.key)
        self._xids.ask()
        # What it reported before, or reports on its way, is heard all the same: XID 79 says that it is off the bus.
        events = self._xids.take(device.key)
        return Sample(device=device if known is None else known.device, lost=True, error_events=events)

    def _forget(self, key: str) -> None:
        self._profiler.forget(key)
        if self._pcie is not None:
            self._pcie.forget(key)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._gpus.clear()
        if not self._xids.close():
            return  # a wait for events hangs in the driver: what it uses stays as it is, until the process ends
        self._profiler.close()
        # Refused when the library is gone already: nothing is left to release.
        with contextlib.suppress(AbsentError, BrokenError, LostError, ProviderError):
            self._nvml.beside("nvmlShutdown")

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise ProviderError("the NVIDIA library is closed")

    def _count(self) -> int:
        try:
            return min(int(self._nvml.call("nvmlDeviceGetCount")), _MOST_DEVICES)
        except (AbsentError, BrokenError, LostError) as error:
            raise ProviderError(f"NVML does not count its GPUs ({error})") from error

    def _handle(self, function: str, argument: int | str) -> Any:
        """Look up a handle; never a null one, which crashes the process when it is passed on. Raises LostError."""
        try:
            handle = self._nvml.call(function, argument)
        except UnknownError as error:
            raise LostError(str(error)) from error
        if not handle:
            raise LostError("null handle")
        return handle

    def _identify(self, handle: Any, index: int | None) -> Gpu | None:
        """Identify the GPU of `handle`; one that is lost meanwhile keeps the identity from before."""
        try:
            gpu = identify(self._nvml, handle, index, self._driver_version)
        except BrokenError:
            # It does not say which GPU it is: the one that was known at its address, if there was one.
            known = self._at(address_of(self._nvml, handle))
            if known is None:
                raise
            known.handle = handle
            return known
        if gpu is None:
            return None
        gpu.may_sleep = may_sleep(self._context.root, gpu.device.pci_address)
        before = self._gpus.get(gpu.device.key) or self._namesake(gpu.device)
        if before is not None:
            gpu.module_counter |= before.module_counter
            gpu.may_sleep |= before.may_sleep
            gpu.links, gpu.links_learned, gpu.links_seen = before.links, before.links_learned, before.links_seen
            gpu.returned = before.returned or before.handle is None
            if gpu.lost or gpu.device.key != before.device.key:
                gpu.device, gpu.plain_power = before.device, before.plain_power
        return gpu

    def _namesake(self, device: Device) -> Gpu | None:
        """Return the GPU known at the address of one whose UUID is refused: it is that, and not a second one."""
        return None if device.vendor_uuid is not None else self._at(device.pci_address)

    def _at(self, address: str | None) -> Gpu | None:
        if address is None:
            return None
        return next((gpu for gpu in self._gpus.values() if gpu.device.pci_address == address), None)

    def _lookups(self, device: Device) -> Iterator[Any]:
        """Yield handles of a GPU by what it is, not by its index, which may have changed."""
        if device.pci_address is not None:
            with contextlib.suppress(AbsentError, BrokenError, LostError):
                yield self._handle("nvmlDeviceGetHandleByPciBusId", device.pci_address)
        # A lookup by UUID goes over all GPUs: it fails when another one is lost, and wakes those that sleep.
        if device.vendor_uuid is not None and not awake_and_asleep(self._context.root)[1]:
            with contextlib.suppress(AbsentError, BrokenError, LostError):
                yield self._handle("nvmlDeviceGetHandleByUUID", device.vendor_uuid)

    def _find(self, device: Device) -> Gpu:
        """Look for a GPU that has no handle. Raises LostError; BrokenError when there is one that tells no identity."""
        if self._driver_version is None:
            self._driver_version = self.version("nvmlSystemGetDriverVersion")
        broken: BrokenError | None = None
        for handle in self._lookups(device):
            try:
                gpu = self._identify(handle, None)
            except (AbsentError, UnknownError, LostError):
                continue
            except BrokenError as error:
                broken = error
                continue
            if gpu is not None and device.key == device.pci_address == gpu.device.pci_address:
                # It slept when it was listed. The key stays as it is until the next enumeration.
                gpu.device = msgspec.structs.replace(gpu.device, key=device.key)
            if gpu is not None and gpu.device.key == device.key:
                self._gpus[device.key] = gpu
                return gpu
        raise LostError(f"{device.key} is not found") if broken is None else broken

    def _confirm(self, device: Device) -> None:
        """Decide after an "unknown error" whether the GPU is lost: raises LostError when it has no handle any more."""
        if next(self._lookups(device), None) is None:
            raise LostError("no handle after an unknown error")

    def _read(self, gpu: Gpu, groups: Groups) -> Sample:
        reading = Reading(self._nvml, gpu.handle, lambda: self._confirm(gpu.device))
        whole = Group.STATE in groups
        if whole:
            gpu.sensors = gpu.limits = None  # looked at anew
        fields: dict[str, Any] = {}
        taken_at: dict[Group, float] = {}
        read_seconds: dict[Group, float] = {}
        for group, part in self._parts:
            if group not in groups:
                continue
            self._context.between_calls()  # urgent requests are served before the time of the reading is taken
            start = self._clock()
            fields |= part(reading, gpu)
            end = self._clock()
            taken_at[group] = (start + end) / 2
            if group is Group.ENERGY:
                fields |= energy.limits(reading, gpu, fields["power_watts"])
                end = self._clock()
            read_seconds[group] = end - start
        if not reading.answered:
            gpu.handle = None  # stale, for all that is known: looked up again before the next read
            if reading.unknown:
                raise LostError("every call answers unknown error")
        elif whole and not gpu.may_sleep:
            self._listen(reading, gpu)
            if self._xids.crowded(gpu.device.key):
                reading.fail(EVENTS)
            fields["error_event_kinds"] = (KIND,) if self._xids.hears(gpu.device.key) else ()
        events = self._xids.take(gpu.device.key)
        if events:
            fields["error_events"] = events
        return Sample(
            device=gpu.device,
            taken_at=taken_at,
            read_seconds=read_seconds,
            failed=reading.failed,
            rejected=reading.rejected,
            **fields,
        )

    def _listen(self, reading: Reading, gpu: Gpu) -> None:
        if gpu.returned:
            gpu.returned = False
            self._xids.drop(gpu.device.key)  # what was registered with the handle from before
        self._xids.listen(reading, gpu)
        self._xids.ask()
