"""What the parent and the agent say to each other over their two pipes, packed by `framing`."""

import msgspec

from exporter.attribution.source import Question
from exporter.framing import Frame, Inbox
from exporter.model import Allocation, Attribution, Owner, SourceStatus, Workload
from exporter.settings import AttributionConfig


class Start(Frame, frozen=True, kw_only=True):
    """The first request."""

    config: AttributionConfig
    root: str = "/"


class Ask(Frame, frozen=True):
    """Replaces every question before it."""

    token: int
    question: Question


class Shutdown(Frame, frozen=True):
    """End."""


class _Owner(msgspec.Struct, frozen=True, array_like=True):
    pid: int
    started: int | None
    name: str
    user: str
    workload: int | None
    """Position in the list of workloads."""


class _Allocation(msgspec.Struct, frozen=True, array_like=True):
    workload: int
    device: str
    partition: str | None
    share: float


class Answer(Frame, frozen=True, kw_only=True):
    """What is known now; there may be more than one to a question, as sources answer in their own time.

    A workload stands in it once, however many processes it has.
    """

    token: int
    workloads: tuple[Workload, ...] = ()
    owners: tuple[_Owner, ...] = ()
    allocations: tuple[_Allocation, ...] = ()
    sources: tuple[SourceStatus, ...] = ()
    unplaced_devices: int = 0
    unplaced_processes: int = 0


def packed(token: int, attribution: Attribution) -> Answer:
    workloads = {allocation.workload.key: allocation.workload for allocation in attribution.allocations}
    workloads |= {owner.workload.key: owner.workload for owner in attribution.owners if owner.workload is not None}
    positions = {key: position for position, key in enumerate(workloads)}
    return Answer(
        token=token,
        workloads=tuple(workloads.values()),
        owners=tuple(
            _Owner(o.pid, o.started, o.name, o.user, None if o.workload is None else positions[o.workload.key])
            for o in attribution.owners
        ),
        allocations=tuple(
            _Allocation(positions[a.workload.key], a.device, a.partition, a.share) for a in attribution.allocations
        ),
        sources=attribution.sources,
        unplaced_devices=attribution.unplaced_devices,
        unplaced_processes=attribution.unplaced_processes,
    )


def unpacked(answer: Answer) -> Attribution:
    """Return what was packed. Raises IndexError for an answer that `packed` did not make."""
    known = answer.workloads
    return Attribution(
        owners=tuple(
            Owner(
                pid=o.pid,
                started=o.started,
                name=o.name,
                user=o.user,
                workload=None if o.workload is None else known[o.workload],
            )
            for o in answer.owners
        ),
        allocations=tuple(
            Allocation(workload=known[a.workload], device=a.device, partition=a.partition, share=a.share)
            for a in answer.allocations
        ),
        sources=answer.sources,
        unplaced_devices=answer.unplaced_devices,
        unplaced_processes=answer.unplaced_processes,
    )


Request = Start | Ask | Shutdown


def answers() -> Inbox[Answer]:
    """Return the parent's inbox."""
    return Inbox(msgspec.msgpack.Decoder(Answer))


def requests() -> Inbox[Request]:
    """Return the agent's inbox."""
    return Inbox(msgspec.msgpack.Decoder(Request))
