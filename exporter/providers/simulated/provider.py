"""Reads simulated devices as a vendor's library would be read, with all that befalls such calls."""

import contextlib
import math
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from exporter.model import Device, ErrorEvent, Group, Groups, Sample
from exporter.providers.protocol import OpenContext, Opened, ProviderError
from exporter.providers.sanitise import Readings
from exporter.providers.simulated.device import Fault, SimulatedDevice
from exporter.providers.simulated.epoch import epoch_of
from exporter.providers.simulated.events import happened, kinds
from exporter.providers.simulated.machine import Machine
from exporter.providers.simulated.readings import CALLS, FAILS, Fields, Moment, identify, moved
from exporter.providers.simulated.scenario import ScenarioError, read_scenario

BUILT_IN = Path(__file__).with_name("default.yaml")
_SHOWN_MISTAKES = 3
_CHATTER = b"the simulated library is talkative, and says the same again and again\n"


def open_simulated(context: OpenContext) -> Opened:
    """Make the machine of the scenario file, or the one that is built in. Raises ProviderError."""
    path = BUILT_IN if context.scenario is None else Path(context.scenario)
    try:
        scenario = read_scenario(path, name=path.name)
        epoch = epoch_of(scenario, path, built_in=context.scenario is None, root=context.root)
        machine = Machine(scenario, epoch)
    except OSError as error:
        raise ProviderError(f"the scenario {path.name} cannot be read: {error.strerror}") from None
    except ScenarioError as error:
        more = len(error.messages) - _SHOWN_MISTAKES
        mistakes = "; ".join(error.messages[:_SHOWN_MISTAKES]) + (f"; and {more} more" if more > 0 else "")
        raise ProviderError(mistakes) from None
    return open_machine(machine, context)


def open_machine(machine: Machine, context: OpenContext, clock: Callable[[], float] = time.monotonic) -> Opened:
    """Serve a machine that is made already. Raises ProviderError where its driver is not loaded, or opening fails."""
    provider = SimulatedProvider(machine, context.between_calls, clock, pcie_bytes=context.pcie_bytes)
    provider.start()
    return Opened(provider, machine.scenario.library_version)


class _LostError(Exception):
    """The device fell off."""


class _FailedError(Exception):
    """The call failed for a reason that is not "not supported"."""


class SimulatedProvider:
    """A Provider over a Machine."""

    def __init__(
        self,
        machine: Machine,
        between_calls: Callable[[], None],
        clock: Callable[[], float],
        *,
        pcie_bytes: bool = False,
    ) -> None:
        self._machine = machine
        self._pcie_bytes = pcie_bytes
        self._heard_at: dict[str, float] = {}
        """Up to when errors that the driver reported were handed out, by device."""
        self._opened_at = clock() - machine.epoch
        self._between_calls = between_calls
        self._clock = clock
        self._closing = False
        self._listed_at: dict[str, float] = {}
        self._seen: dict[str, Device] = {}
        self._leaked: list[bytes | int] = []
        """What is never given back."""
        self._identities = [identify(device, index) for index, device in enumerate(machine.devices)]

    def start(self) -> None:
        if not self._machine.scenario.driver_loaded:
            raise ProviderError("the simulated driver is not loaded")
        self._machine_call("open")

    def devices(self) -> tuple[Device, ...]:
        """Enumerate. Devices seen before and removed stay in the list, last, as real ones do. Raises ProviderError."""
        self._machine_call("enumerate")
        t = self._clock() - self._machine.epoch
        pairs = zip(self._machine.devices, self._identities, strict=True)
        present = [identity for device, identity in pairs if not device.suffers("removed", t)]
        missing = [identity for identity in self._seen.values() if identity not in present]
        self._seen |= {identity.key: identity for identity in present}
        return (*present, *missing)

    def read(self, device: Device, groups: Groups) -> Sample:
        try:
            simulated = self._machine.device(device.key)
        except KeyError:
            return Sample(device=device, lost=True)
        if simulated.suffers("asleep", self._now()):
            return Sample(device=device, asleep=True)
        readings = Readings()
        fields: Fields = {}
        taken: dict[Group, float] = {}
        took: dict[Group, float] = {}
        try:
            for group in Group:
                if group not in groups or group not in CALLS:
                    continue
                started = self._clock()
                for name in CALLS[group]:
                    with _noted(readings, name):
                        fields |= self._call(simulated, group, name, readings)
                took[group] = self._clock() - started
                taken[group] = started + took[group] / 2
        except _LostError:
            return Sample(device=device, lost=True, error_events=self._events(simulated))
        if Group.STATE in groups:
            fields["error_event_kinds"] = kinds(simulated)
            if self._pcie_bytes:
                fields |= moved(Moment(self._machine, simulated, self._now(), readings))
        return Sample(
            device=device,
            error_events=self._events(simulated),
            taken_at=taken,
            read_seconds=took,
            failed=readings.failed,
            rejected=readings.rejected,
            **fields,
        )

    def _events(self, device: SimulatedDevice) -> tuple[ErrorEvent, ...]:
        """Return what the driver reported since it was asked last, and nothing from before the provider was opened."""
        now = self._now()
        since, self._heard_at[device.key] = self._heard_at.get(device.key, self._opened_at), now
        return happened(device, since, now)

    def close(self) -> None:
        """Release nothing, since nothing is held; a scenario may have it go wrong all the same."""
        self._closing = True  # between calls the worker would read
        with contextlib.suppress(ProviderError):
            self._machine_call("close")

    def _call(self, device: SimulatedDevice, group: Group, name: str, readings: Readings) -> Fields:
        self._between_calls()
        for fault in (*self._machine_faults(name), *device.faults_at(self._now(), name)):
            self._suffer(fault)
        if device.suffers("removed", self._now()):
            raise _LostError
        scenario = self._machine.scenario
        _sleep(scenario.process_list_seconds if name == "processes" else scenario.call_seconds)
        now, before = self._now(), self._listed_at.get(device.key)
        if group is Group.PROCESSES:
            self._listed_at[device.key] = now
        return CALLS[group][name](Moment(self._machine, device, now, readings, before))

    def _machine_call(self, name: str) -> None:
        if not self._closing:
            self._between_calls()
        try:
            for fault in self._machine_faults(name):
                self._suffer(fault)
        except _FailedError as error:
            raise ProviderError(f"the simulated driver answers {error}") from None
        _sleep(self._machine.scenario.call_seconds)

    def _machine_faults(self, name: str) -> list[Fault]:
        t = self._now()
        return [fault for fault in self._machine.faults if fault.window.open_at(t) and fault.meant(name)]

    def _suffer(self, fault: Fault) -> None:
        match fault.kind:
            case "hang":
                _hang(fault.window.closes(self._now()) - self._now())
            case "delay":
                _sleep(fault.seconds)
            case "error":
                raise _FailedError(f"status {fault.status}")
            case "lost":
                raise _LostError
            case "flood":
                _flood(int(fault.bytes))
            case "leak_memory":
                self._leaked.append(b"\x5a" * int(fault.bytes))
            case "leak_descriptors":
                with contextlib.suppress(OSError):  # there are too many already
                    self._leaked.append(os.open(os.devnull, os.O_RDONLY))
            case _:
                _end(fault)

    def _now(self) -> float:
        return self._clock() - self._machine.epoch


@contextlib.contextmanager
def _noted(readings: Readings, name: str) -> Iterator[None]:
    try:
        yield
    except _FailedError:
        readings.fail(FAILS[name])


def _sleep(seconds: float) -> None:
    if seconds > 0:
        time.sleep(seconds)


def _hang(seconds: float) -> None:
    """Block as a call into a driver does; one without an end does not even let handlers of signals run."""
    if seconds == math.inf:
        signal.sigwait(())
    _sleep(seconds)


def _end(fault: Fault) -> None:
    """End as a library does that follows a null pointer, gives up, or believes that the process is its own."""
    if fault.kind == "exit":
        os._exit(fault.status)
    number = {"crash": signal.SIGSEGV, "abort": signal.SIGABRT}.get(fault.kind)
    if number is not None:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def _flood(size: int) -> None:
    """Print to descriptors 1 and 2, past every stream of the program."""
    for descriptor in (1, 2):
        for begin in range(0, size, len(_CHATTER)):
            os.write(descriptor, _CHATTER[: size - begin])
