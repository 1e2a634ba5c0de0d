"""What a scenario file may say: its structure, types and bounds. docs/simulation.md explains it to people."""

import math
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from exporter.providers.simulated.catalogue import MODELS
from exporter.providers.simulated.physics import Window
from exporter.providers.simulated.properties import NUMBERS, TEXTS
from exporter.validation import shown, suggestion

MAX_DEVICES = 256
MAX_PROCESSES = 20_000
MAX_POINTS = 20_000

Number = Annotated[float, Meta(ge=-1e30, le=1e30)]
Seconds = Annotated[float, Meta(ge=0.0, le=1e9)]
Lasting = Annotated[float, Meta(ge=1e-3, le=1e9)]
Ratio = Annotated[float, Meta(ge=0.0, le=1.0)]
Watts = Annotated[float, Meta(ge=0.0, le=100_000.0)]
Joules = Annotated[float, Meta(ge=0.0, le=1e15)]
Bytes = Annotated[float, Meta(ge=0.0, le=2.0**60)]
Pid = Annotated[int, Meta(ge=0, le=2**32 - 1)]
Status = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Small = Annotated[int, Meta(ge=0, le=1_000)]

MODEL = f"one of {', '.join(MODELS)}"


def _model(name: str) -> str | None:
    return None if name in MODELS else f"expected {MODEL}, got {shown(name)}{suggestion(name, MODELS)}"


Shape = Literal["idle", "constant", "square", "bursts", "training", "inference", "trace"]


class _Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class Timed(_Strict, frozen=True, kw_only=True):
    """In force from `from_seconds` until `to_seconds`, and only `lasting_seconds` of each `every_seconds` if given."""

    from_seconds: Seconds = 0.0
    to_seconds: Seconds | None = None
    every_seconds: Lasting | None = None
    lasting_seconds: Lasting | None = None

    @property
    def window(self) -> Window:
        end = math.inf if self.to_seconds is None else self.to_seconds
        return Window(self.from_seconds, end, self.every_seconds or 0.0, self.lasting_seconds or 0.0)


class Pattern(_Strict, frozen=True, kw_only=True):
    """A load between low and high, as a share of full load or in watts."""

    level: Ratio = 1.0
    low_level: Ratio = 0.0
    watts: Watts | None = None
    """Instead of `level`: the power itself."""
    low_watts: Watts | None = None
    period_seconds: Lasting | None = None
    duty: Annotated[float, Meta(ge=0.001, le=0.999)] = 0.5
    burst_seconds: Lasting = 1.0
    gap_seconds: Lasting = 5.0
    """Mean time between bursts."""
    checkpoint_seconds: Lasting = 300.0
    seed: Annotated[int, Meta(ge=0, le=2**31)] = 1
    phase_seconds: Seconds = 0.0
    stagger_seconds: Seconds = 0.0
    """Added to the phase for each further copy of the device."""
    points: Annotated[
        tuple[Annotated[tuple[Number, ...], Meta(min_length=2, max_length=2)], ...], Meta(max_length=MAX_POINTS)
    ] = ()
    """Of a trace: [seconds, watts] or [seconds, load], each until the next."""
    unit: Literal["watts", "load"] = "watts"


class Phase(Pattern, frozen=True, kw_only=True):
    pattern: Shape = "idle"
    seconds: Lasting | None = None
    """How long; the last phase goes on for ever."""


class Load(Pattern, frozen=True, kw_only=True):
    pattern: Literal["idle", "constant", "square", "bursts", "training", "inference", "trace", "phases"] = "idle"
    phases: Annotated[tuple[Phase, ...], Meta(max_length=200)] = ()


class Event(Timed, frozen=True, kw_only=True):
    """Something that an accumulator does for a time."""

    kind: Literal["reset", "frozen", "pausing", "scaled", "absent", "zero", "ones", "swap"]
    factor: Annotated[float, Meta(ge=0.0, le=1e6)] = 0.57
    device: Small | None = None
    """Whose value is shown by a swap: the position of a device, copies counted."""


class Counter(_Strict, frozen=True, kw_only=True):
    kind: Literal["honest", "low", "scaled", "absent", "zero", "ones"] = "honest"
    factor: Annotated[float, Meta(ge=0.0, le=1e6)] = 0.57
    start_joules: Joules = 0.0
    period_seconds: Annotated[float, Meta(ge=0.001, le=60.0)] | None = None
    resolution_joules: Annotated[float, Meta(ge=1e-9, le=1e6)] | None = None
    scope: Literal["gpu", "module"] | None = None
    events: Annotated[tuple[Event, ...], Meta(max_length=200)] = ()


class Process(Timed, frozen=True, kw_only=True):
    pid: Pid = 0
    name: str = "python3"
    kind: Literal["compute", "graphics", "mps"] = "compute"
    memory_used_bytes: Bytes | None = None
    """None: the driver does not know; 0 without queues is what KFD says of bystanders."""
    gtt_used_bytes: Bytes | None = None
    queues: Small | None = None
    share: Ratio | None = None
    """Of the device's work, all its time; None: the driver does not tell, as long as no process has one."""
    started: Annotated[int, Meta(ge=0, le=2**53)] | None = None
    """Field 22 of /proc/PID/stat, for the pid of a process that is there."""
    partition: Small | None = None
    """Position in `partitions`, for a process in a MIG instance or AMD partition."""
    count: Annotated[int, Meta(ge=1, le=MAX_PROCESSES)] = 1
    """So many with pids that follow each other; with `every_seconds` their starts are spread over it."""


class Partition(Timed, frozen=True, kw_only=True):
    profile: str = ""
    """Of MIG, such as 1g.10gb."""
    gi: Small | None = None
    ci: Small | None = None
    uuid: str | None = None
    memory_size_bytes: Bytes | None = None
    memory_used_bytes: Bytes | None = None


Values: Any = msgspec.defstruct(
    "Values", [(name, Number | None, None) for name in NUMBERS], bases=(_Strict,), frozen=True, kw_only=True
)
Texts: Any = msgspec.defstruct(
    "Texts", [(name, str | None, None) for name in TEXTS], bases=(_Strict,), frozen=True, kw_only=True
)


class FaultSpec(Timed, frozen=True, kw_only=True):
    kind: Literal[
        "lost",
        "removed",
        "asleep",
        "hang",
        "crash",
        "exit",
        "abort",
        "delay",
        "error",
        "flood",
        "leak_memory",
        "leak_descriptors",
        "garbage",
        "stuck",
        "ones",
        "event",
    ]
    call: str = "*"
    """Name of a vendor call; * at its end stands for anything."""
    status: Status | None = None
    seconds: Seconds = 0.0
    """Of a delay."""
    bytes: Bytes = 0.0
    """Of each call: what a flood prints to each of standard output and error, and what leaks of memory."""
    values: Values = Values()
    """Of garbage and stuck: what the readings show instead."""
    code: Annotated[int, Meta(ge=0, le=2**32 - 1)] | None = None
    """Of an event: the code of the error that the driver reports."""
    event: Literal["xid", "afid", "ras"] | None = None
    """Of an event: its kind; None: what the vendor's driver reports."""
    readings: tuple[str, ...] = ()
    """Of ones, and of stuck without values: which readings."""


class DeviceSpec(_Strict, frozen=True, kw_only=True):
    model: Annotated[str, Meta(extra={"check": _model})] = ""
    count: Annotated[int, Meta(ge=1, le=MAX_DEVICES)] = 1
    load: Load = Load()
    values: Values = Values()
    """Readings and properties that are fixed instead of following from the load."""
    texts: Texts = Texts()
    absent: tuple[str, ...] = ()
    """Readings and properties that the device does not support."""
    accumulator: Counter = Counter()
    processes: Annotated[tuple[Process, ...], Meta(max_length=1_000)] = ()
    partitions: Annotated[tuple[Partition, ...], Meta(max_length=64)] = ()
    faults: Annotated[tuple[FaultSpec, ...], Meta(max_length=200)] = ()


class Scenario(_Strict, frozen=True, kw_only=True):
    epoch: Literal["modified", "boot", "start"] | None = None
    epoch_seconds: Annotated[float, Meta(ge=-1e9, le=1e9)] | None = None
    driver_version: str | None = None
    library_version: str | None = None
    cuda_version: str = "13.0"
    driver_loaded: Annotated[int, Meta(ge=0, le=1)] = 1
    call_seconds: Annotated[float, Meta(ge=0.0, le=3600.0)] = 0.0
    process_list_seconds: Annotated[float, Meta(ge=0.0, le=3600.0)] = 0.0
    devices: Annotated[tuple[DeviceSpec, ...], Meta(max_length=MAX_DEVICES)] = ()
    faults: Annotated[tuple[FaultSpec, ...], Meta(max_length=200)] = ()
