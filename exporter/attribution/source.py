"""What a source of attribution is: the seam between where it is looked up and who puts the answers together."""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from exporter.model import Device, PartitionSample, Workload

NOT_YET = "it has not answered yet"
"""The reason of a source that is down because it was only just started."""


class Process(msgspec.Struct, frozen=True, omit_defaults=True):
    """One process that a provider lists; `started` as in model.ProcessSample."""

    pid: int
    started: int | None = None


class Held(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One GPU, its partitions, and the processes on it."""

    device: Device
    partitions: tuple[PartitionSample, ...] = ()
    processes: tuple[Process, ...] = ()


class Question(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All GPUs of the host, as the page shows them."""

    held: tuple[Held, ...] = ()


class Grant(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A device, or one partition of it, that a workload was given."""

    workload: Workload
    device: str
    """Key of the device."""
    partition: str | None = None
    running: bool = True
    """False: the workload has ended, as far as the source knows, and yields to one that runs."""


class Pod(msgspec.Struct, frozen=True, omit_defaults=True):
    namespace: str
    name: str
    containers: tuple[str, ...] = ()
    """Names of all that it has or had; empty: not told."""


class Findings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one source told."""

    grants: tuple[Grant, ...] = ()
    pods: Mapping[str, Pod] = {}
    """By uid, with dashes where it has any."""
    containers: Mapping[str, str] = {}
    """Names of containers by their id, 64 hex digits."""
    unplaced_devices: int = 0
    """Ids that were given to somebody and belong to no GPU that is known."""
    trouble: str = ""
    """What it could not tell, in words without counts; the rest holds."""


class SourceError(Exception):
    """The source cannot tell. The message is for people: one sentence that says why."""


class NothingToAskError(Exception):
    """There is nothing here to ask, and nobody said that there is: a host without Kubernetes is in good order."""


class Source(Protocol):
    """One place to ask. Called from a thread of its own, so it may wait, within its own deadlines."""

    name: str
    """Of metrics.ATTRIBUTION_SOURCES."""

    def look(self, question: Question) -> Findings:
        """Ask. Raises SourceError, NothingToAskError."""
