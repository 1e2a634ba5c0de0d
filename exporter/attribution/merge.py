"""What the sources told, put together: pure.

One workload has one record, whoever told of it, and what was given to several that run is shared alike among them.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from exporter.attribution.ids import Place
from exporter.attribution.owners import Pods, owners
from exporter.attribution.proc import Sights
from exporter.attribution.source import Findings, Grant, Question
from exporter.attribution.workloads import united
from exporter.model import Allocation, Attribution, Owner, SourceStatus, Workload

MOST_ALLOCATIONS = 16_384
MOST_WORKLOADS = 4096
"""Those that were given something come first; the processes of the rest count as not placed."""


def merge(
    question: Question, sights: Sights, findings: Sequence[Findings], sources: tuple[SourceStatus, ...]
) -> Attribution:
    """Return the answer to a question. `findings`: of all sources that tell, the more trusted ones first."""
    asked = dict.fromkeys(process for held in question.held for process in held.processes)
    placed = owners(asked, sights, Pods(findings))
    holders, unknown = _holders(question, (grant for found in findings for grant in found.grants))
    known = united(
        [
            *(workload for given in holders.values() for workload in given.values()),
            *(owner.workload for owner in placed if owner.workload is not None),
        ]
    )
    known = dict(itertools.islice(known.items(), MOST_WORKLOADS))
    placed = [_with(owner, known) for owner in placed]
    allocations = (
        Allocation(workload=known[key], device=device, partition=partition, share=1 / len(given))
        for (device, partition), given in holders.items()
        for key in given
        if key in known
    )
    return Attribution(
        owners=tuple(placed),
        allocations=tuple(itertools.islice(allocations, MOST_ALLOCATIONS)),
        sources=sources,
        unplaced_devices=unknown + sum(found.unplaced_devices for found in findings),
        unplaced_processes=len(asked.keys() - sights.ended) - sum(map(_is_placed, placed)),
    )


def _is_placed(owner: Owner) -> bool:
    """Whether the workload can be told: a pid without a start may be that of another process."""
    return owner.workload is not None and owner.started is not None


def _holders(question: Question, grants: Iterable[Grant]) -> tuple[dict[Place, dict[str, Workload]], int]:
    """Return by target who holds it, and how many grants are of something that is not there."""
    targets: set[Place] = set()
    for held in question.held:
        targets.add(Place(held.device.key))
        targets |= {Place(held.device.key, partition.partition) for partition in held.partitions}
    running: dict[Place, dict[str, Workload]] = {}
    ended: dict[Place, dict[str, Workload]] = {}
    unknown: set[Place] = set()
    for grant in grants:
        target = Place(grant.device, grant.partition)
        if target in targets:
            # Of what two sources told of one workload, `united` makes one record.
            given = (running if grant.running else ended).setdefault(target, {})
            given[grant.workload.key] = _joined(given.get(grant.workload.key), grant.workload)
        else:
            unknown.add(target)
    return ended | running, len(unknown)


def _joined(known: Workload | None, workload: Workload) -> Workload:
    return workload if known is None else united((known, workload))[workload.key]


def _with(owner: Owner, known: Mapping[str, Workload]) -> Owner:
    workload = owner.workload
    if workload is None or (one := known.get(workload.key)) is workload:
        return owner
    return msgspec.structs.replace(owner, workload=one)
