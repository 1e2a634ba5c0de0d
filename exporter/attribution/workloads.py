"""How a workload is named, so that what a process belongs to and what was allocated meet under one key.

Every source makes its workloads here. `united` joins what two sources know of one workload.
"""

from collections.abc import Iterable

import msgspec

from exporter.model import Workload
from exporter.text import LONGEST

SHORT_ID = 12
"""Characters of a container's id that its tools show."""
_HASH = 16
"""Hex digits."""


def pod(namespace: str, name: str, container: str = "", *, uid: str = "", container_id: str = "") -> Workload:
    """Return the workload of one container, or of the whole pod where the container is not known."""
    return Workload(
        key=_key("pod", namespace, name, container),
        kind="pod",
        k8s_namespace=namespace,
        k8s_pod=name,
        k8s_container=container,
        pod_uid=uid,
        container_id=container_id,
    )


def nameless_pod(uid: str) -> Workload:
    """Return the workload of a pod of which no source tells the name."""
    return Workload(key=_key("pod", uid), kind="pod", pod_uid=uid)


def slurm(job: str, *, user: str = "", account: str = "", partition: str = "") -> Workload:
    return Workload(
        key=_key("slurm", job),
        kind="slurm",
        slurm_job=job,
        slurm_user=user,
        slurm_account=account,
        slurm_partition=partition,
        user=user,
    )


def container(container_id: str, *, unit: str = "", user: str = "") -> Workload:
    """Return the workload of a container without a pod; `user` runs it where it is rootless.

    Users may name the control groups below their own as they like. With their name in the key, none of them passes for
    a container of somebody else.
    """
    return Workload(
        key=_key("container", user, container_id[:SHORT_ID]),
        kind="container",
        container_id=container_id,
        systemd_unit=unit,
        user=user,
    )


def service(unit: str, *, user: str = "") -> Workload:
    """Return the workload of a systemd unit; `user` is whose manager runs it, if not the system's."""
    return Workload(key=_key("service", user, unit), kind="service", systemd_unit=unit, user=user)


def user(name: str) -> Workload:
    return Workload(key=_key("user", name), kind="user", user=name)


def united(workloads: Iterable[Workload]) -> dict[str, Workload]:
    """Return one workload per key, with every field that any of the given ones has; of two values the first counts."""
    found: dict[str, Workload] = {}
    for workload in workloads:
        known = found.setdefault(workload.key, workload)
        if known is not workload and known != workload:
            blanks = {
                name: value
                for name in Workload.__struct_fields__
                if (value := getattr(workload, name)) and not getattr(known, name)
            }
            found[workload.key] = msgspec.structs.replace(known, **blanks)
    return found


def _key(*parts: str) -> str:
    """Return the parts that are known, joined; of what a page would show otherwise a beginning, and a hash of all."""
    # Kubernetes allows a pod, its namespace and container 379 characters together, and names of control groups may hold
    # control characters.
    key = "/".join(filter(None, parts))
    if len(key) <= LONGEST and key.isprintable():
        return key
    from hashlib import sha256  # noqa: PLC0415 -- OpenSSL is 2 MiB, and such keys are rare

    digest = sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH]
    return f"{''.join(filter(str.isprintable, key))[: LONGEST - _HASH - 1]}~{digest}"
