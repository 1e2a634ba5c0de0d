"""Is this text a scenario? The strict reading of it: all mistakes at once, each with its key path."""

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from exporter import strict_yaml
from exporter.providers.simulated import loads
from exporter.providers.simulated.catalogue import MODELS, Model
from exporter.providers.simulated.properties import NUMBERS
from exporter.providers.simulated.readings import CALLS
from exporter.providers.simulated.schema import (
    MAX_DEVICES,
    MAX_PROCESSES,
    MODEL,
    Counter,
    DeviceSpec,
    FaultSpec,
    Load,
    Partition,
    Pattern,
    Scenario,
    Texts,
    Timed,
)
from exporter.validation import ValidationError, convert, shown, suggestion

__all__ = ["Scenario", "ScenarioError", "load_scenario", "read_scenario"]

_CALLS = ("open", "enumerate", "close", *(name for calls in CALLS.values() for name in calls))
INFINITE = float("inf")
MIN_STEP = 0.001
MAX_CHANGES = 50_000
MAX_TEXT = 1_000
MAX_FAULT_BYTES = 2**30
OF_CALLS = ("hang", "crash", "exit", "abort", "delay", "error", "flood", "leak_memory", "leak_descriptors")
"""Faults that befall calls which are not about one device as well."""


class ScenarioError(Exception):
    """The scenario cannot be used. `messages`: one line for each mistake, with its key path."""

    def __init__(self, messages: tuple[str, ...]) -> None:
        self.messages = messages
        super().__init__("\n".join(messages))


def read_scenario(path: Path, *, name: str) -> Scenario:
    """Read a scenario file. Raises OSError, ValueError where no file can have the name, and as `load_scenario`."""
    return load_scenario(strict_yaml.read(path, again=True), name=name)


def load_scenario(text: str | bytes, *, name: str = "scenario") -> Scenario:
    """Read a scenario from YAML. Raises ScenarioError with every mistake; messages start with `name`."""
    try:
        document = strict_yaml.load(
            text if isinstance(text, bytes) else text.encode("utf-8", "replace"), most=strict_yaml.MANY_VALUES
        )
        scenario = convert(document.value, Scenario, document.problems)
    except strict_yaml.YamlError as e:
        raise ScenarioError((f"{name}: {e}",)) from None
    except ValidationError as e:
        raise ScenarioError(tuple(f"{name}: {message}" for message in e.messages)) from None
    problems = tuple(f"{name}: {message}" for message in _problems(scenario))
    if problems:
        raise ScenarioError(problems)
    return scenario


def _problems(scenario: Scenario) -> Iterator[str]:
    """Yield what types and bounds cannot say, with key paths."""
    for name in ("driver_version", "library_version", "cuda_version"):
        yield from _text(getattr(scenario, name), name)
    if scenario.epoch is not None and scenario.epoch_seconds is not None:
        yield "epoch_seconds: there is an epoch already"
    devices = sum(spec.count for spec in scenario.devices)
    if devices > MAX_DEVICES:
        yield f"devices: at most {MAX_DEVICES} with copies, got {devices}"
    for index, spec in enumerate(scenario.devices):
        yield from _device(spec, f"devices[{index}]", devices)
    for index, fault in enumerate(scenario.faults):
        yield from _fault(fault, f"faults[{index}]")
        if fault.kind not in OF_CALLS:
            yield f"faults[{index}].kind: {fault.kind} is a fault of a device"
    yield from _shared(scenario)


def _shared(scenario: Scenario) -> Iterator[str]:
    """Yield identities that two devices would have."""
    keys: dict[tuple[str, str], str] = {}
    for index, spec in enumerate(scenario.devices):
        for name in ("uuid", "unique_id", "pci_address"):
            value = getattr(spec.texts, name)
            where = f"devices[{index}].texts.{name}"
            if value is not None and spec.count > 1:
                yield f"{where}: {spec.count} devices would share it"
            elif value is not None and (name, value) in keys:
                yield f"{where}: {keys[name, value]} has it already"
            elif value is not None:
                keys[name, value] = where


def _device(spec: DeviceSpec, path: str, devices: int) -> Iterator[str]:
    model = MODELS.get(spec.model)
    if model is None:
        yield f"{path}.model: needed: {MODEL}"
        return
    for index, name in enumerate(spec.absent):
        if name not in NUMBERS and name not in Texts.__struct_fields__:
            yield f"{path}.absent[{index}]: no property is called {shown(name)}{suggestion(name, NUMBERS)}"
        elif name in ("power_watts", "uuid", "unique_id", "pci_address"):
            yield f"{path}.absent[{index}]: {name} is needed"
    yield from _identity(spec.texts, f"{path}.texts")
    yield from _load(spec.load, f"{path}.load")
    yield from _counter(spec.accumulator, model, f"{path}.accumulator", devices)
    for index, partition in enumerate(spec.partitions):
        yield from _partition(partition, model, f"{path}.partitions[{index}]")
    yield from _processes(spec, path)
    for index, fault in enumerate(spec.faults):
        yield from _fault(fault, f"{path}.faults[{index}]")


def _identity(texts: Texts, path: str) -> Iterator[str]:
    for name in Texts.__struct_fields__:
        yield from _text(getattr(texts, name), f"{path}.{name}")
    if texts.pci_address is not None and not re.fullmatch(
        r"[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]", texts.pci_address
    ):
        yield f"{path}.pci_address: expected dddd:bb:dd.f in lower-case hexadecimal, got {shown(texts.pci_address)}"
    if texts.unique_id is not None and not re.fullmatch(r"[0-9a-f]{16}", texts.unique_id):
        yield f"{path}.unique_id: expected 16 hexadecimal digits in lower case, got {shown(texts.unique_id)}"
    for name, known in (("power_usage_kind", ("average", "instant")), ("counter_scope", ("gpu", "module"))):
        if getattr(texts, name) not in (None, *known):
            yield f"{path}.{name}: expected one of {', '.join(known)}"
    if texts.uuid == "":
        yield f"{path}.uuid: empty"


def _load(load: Load, path: str) -> Iterator[str]:
    yield from _pattern(load, load.pattern, path)
    if (load.pattern == "phases") != bool(load.phases):
        yield f"{path}.phases: {'used only' if load.phases else 'needed'} by the pattern phases"
    if sum(map(loads.changes, load.phases)) > MAX_CHANGES:
        yield f"{path}.phases: the load changes more than {MAX_CHANGES} times before the last phase"
    for index, phase in enumerate(load.phases):
        where = f"{path}.phases[{index}]"
        yield from _pattern(phase, phase.pattern, where)
        if phase.seconds is None and index < len(load.phases) - 1:
            yield f"{where}.seconds: needed, since another phase follows"


def _pattern(load: Pattern, pattern: str, path: str) -> Iterator[str]:
    if load.watts is None and load.low_watts is not None:
        yield f"{path}.low_watts: needs watts as well"
    if (pattern == "trace") != bool(load.points):
        yield f"{path}.points: {'needed by' if pattern == 'trace' else 'used only by'} the pattern trace"
    times = [point[0] for point in load.points]
    if any(b - a < MIN_STEP for a, b in pairwise(times)) or (times and times[0] != 0):
        yield f"{path}.points: times start at 0 and rise by at least {MIN_STEP} s"
    elif times and load.period_seconds is not None and load.period_seconds - times[-1] < MIN_STEP:
        yield f"{path}.period_seconds: ends before the last point"
    for index, point in enumerate(load.points):
        if not 0 <= point[1] <= (1 if load.unit == "load" else 100_000):
            yield f"{path}.points[{index}]: {point[1]:g} is no {load.unit}"


def _counter(counter: Counter, model: Model, path: str, devices: int) -> Iterator[str]:
    if counter.scope == "module" and model.module is None:
        yield f"{path}.scope: the model has no module power"
    for index, event in enumerate(counter.events):
        where = f"{path}.events[{index}]"
        yield from _timed(event, where)
        if event.kind in ("reset", "frozen", "pausing", "scaled") and event.every_seconds is not None:
            yield f"{where}.every_seconds: {event.kind} cannot be repeated; give more events"
        if event.kind in ("frozen", "pausing", "scaled") and event.to_seconds is None and event.kind == "pausing":
            yield f"{where}.to_seconds: needed, since the accumulator catches up then"
        if (event.kind == "swap") != (event.device is not None):
            yield f"{where}.device: {'needed by' if event.kind == 'swap' else 'used only by'} swap"
        elif event.device is not None and event.device >= devices:
            yield f"{where}.device: there are {devices} devices"
    spans = sorted(
        (e.from_seconds, e.to_seconds or INFINITE) for e in counter.events if e.kind in ("frozen", "pausing", "scaled")
    )
    if any(b[0] < a[1] for a, b in pairwise(spans)):
        yield f"{path}.events: frozen, pausing and scaled must not overlap"


def _partition(partition: Partition, model: Model, path: str) -> Iterator[str]:
    yield from _timed(partition, path)
    yield from _text(partition.uuid, f"{path}.uuid")
    if model.vendor == "nvidia" and partition.profile not in model.profiles:
        known = ", ".join(model.profiles) or "none, since the model has no MIG"
        yield f"{path}.profile: expected one of {known}"


def _processes(spec: DeviceSpec, path: str) -> Iterator[str]:
    if sum(p.count for p in spec.processes) > MAX_PROCESSES:
        yield f"{path}.processes: more than {MAX_PROCESSES}"
    if len({p.every_seconds for p in spec.processes if p.every_seconds is not None}) > 1:
        yield f"{path}.processes: those that return must have the same every_seconds"
    last = max((p.to_seconds or p.from_seconds for p in spec.processes), default=0.0)
    comings = sum(p.count * (1 + last / p.every_seconds) for p in spec.processes if p.every_seconds is not None)
    if comings > MAX_CHANGES:
        yield f"{path}.processes: they come and go more than {MAX_CHANGES} times before the last one-off ends"
    for index, process in enumerate(spec.processes):
        where = f"{path}.processes[{index}]"
        yield from _timed(process, where)
        yield from _text(process.name, f"{where}.name")
        if process.every_seconds is not None and process.to_seconds is not None:
            yield f"{where}.to_seconds: not with every_seconds"
        if process.partition is not None and process.partition >= len(spec.partitions):
            yield f"{where}.partition: there are {len(spec.partitions)} partitions"


def _fault(fault: FaultSpec, path: str) -> Iterator[str]:
    yield from _timed(fault, path)
    if not _is_call(fault.call):
        yield f"{path}.call: no call has the name {shown(fault.call)}{suggestion(fault.call, _CALLS)}"
    if fault.kind == "error" and fault.status is None:
        yield f"{path}.status: needed by the fault error"
    if fault.kind in ("flood", "leak_memory") and not fault.bytes:
        yield f"{path}.bytes: needed by the fault {fault.kind}"
    if fault.bytes > MAX_FAULT_BYTES:
        yield f"{path}.bytes: more than {MAX_FAULT_BYTES}"
    if fault.kind == "delay" and not fault.seconds:
        yield f"{path}.seconds: needed by the fault delay"
    if (fault.kind == "event") != (fault.code is not None):
        yield f"{path}.code: {'needed by' if fault.kind == 'event' else 'used only by'} the fault event"
    if fault.kind != "event" and fault.event is not None:
        yield f"{path}.event: used only by the fault event"
    for index, name in enumerate(fault.readings):
        if name not in NUMBERS:
            yield f"{path}.readings[{index}]: no reading is called {shown(name)}{suggestion(name, NUMBERS)}"


def _is_call(name: str) -> bool:
    """Tell whether a fault of this call can ever befall one, of the simulated provider or of the stand-ins."""
    if not re.fullmatch(r"\w{1,100}\*?|\*", name, re.ASCII):
        return False
    stem = name.removesuffix("*")
    if stem.startswith(("nvml", "amdsmi_")):
        return True
    return any(call.startswith(stem) if name != stem else call == name for call in _CALLS)


def _timed(timed: Timed, path: str) -> Iterator[str]:
    if timed.to_seconds is not None and timed.to_seconds <= timed.from_seconds:
        yield f"{path}.to_seconds: not after from_seconds"
    if (timed.every_seconds is None) != (timed.lasting_seconds is None):
        missing = "every_seconds" if timed.every_seconds is None else "lasting_seconds"
        yield f"{path}.{missing}: needed, since the other of every_seconds and lasting_seconds is given"
    elif (
        timed.every_seconds is not None
        and timed.lasting_seconds is not None
        and timed.lasting_seconds >= timed.every_seconds
    ):
        yield f"{path}.lasting_seconds: not less than every_seconds"


def _text(text: str | None, path: str) -> Iterator[str]:
    if text is not None and ("\0" in text or len(text) > MAX_TEXT):
        yield f"{path}: expected up to {MAX_TEXT} characters without NUL"
