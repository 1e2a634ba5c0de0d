"""Who uses GPUs, in few words."""

from exporter.model import Allocation, Attribution, Owner, ProcessSample, SourceStatus, Workload

SOURCES = (SourceStatus(source="proc", up=True), SourceStatus(source="kubelet", up=True))


def pod(name: str) -> Workload:
    return Workload(key=f"pod/lab/{name}/main", kind="pod", k8s_namespace="lab", k8s_pod=name, k8s_container="main")


def process(pid: int, busy: float | None = None, memory: float | None = 1e9, **fields: object) -> ProcessSample:
    """A process that was started at tick 100 x its pid."""
    given = {"started": 100 * pid, "name": "python", "memory_used_bytes": memory, "busy_ratio": busy, **fields}
    return ProcessSample(pid=pid, **given)


def owner(pid: int, name: str | None, started: int | None = None, user: str = "ann") -> Owner:
    """The process of that pid is one of the pod with this name; None: it could not be placed."""
    workload = None if name is None else pod(name)
    return Owner(pid=pid, started=100 * pid if started is None else started, user=user, workload=workload)


def grant(name: str, number: int = 1, share: float = 1.0, partition: str | None = None) -> Allocation:
    return Allocation(workload=pod(name), device=f"GPU-{number}", share=share, partition=partition)


def attribution(*claims: Owner | Allocation, **fields: object) -> Attribution:
    return Attribution(
        owners=tuple(claim for claim in claims if isinstance(claim, Owner)),
        allocations=tuple(claim for claim in claims if isinstance(claim, Allocation)),
        **{"sources": SOURCES, **fields},
    )
