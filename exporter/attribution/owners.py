"""Whose a process is, from what was seen of it and what is known of pods: pure."""

from collections.abc import Callable, Iterable, Mapping

from exporter.attribution import workloads
from exporter.attribution.cgroup import Level, Place
from exporter.attribution.proc import Sights
from exporter.attribution.processes import Seen
from exporter.attribution.source import Findings, Pod, Process
from exporter.model import Owner, Workload


class Pods:
    """Names of pods and their containers, as all sources together know them."""

    def __init__(self, findings: Iterable[Findings]) -> None:
        self._pods: dict[str, Pod] = {}
        self._containers: dict[str, str] = {}
        granted: dict[tuple[str, str], set[str]] = {}
        for found in findings:
            for uid, pod in found.pods.items():
                known = self._pods.get(uid)
                if known is None or (pod.containers and not known.containers):
                    self._pods[uid] = pod
            self._containers.update(found.containers)
            for grant in found.grants:
                given = grant.workload
                if given.kind == "pod" and given.k8s_container:
                    granted.setdefault((given.k8s_namespace, given.k8s_pod), set()).add(given.k8s_container)
        self._granted: Mapping[tuple[str, str], set[str]] = granted

    def workload(self, place: Place) -> Workload:
        """Return the workload of a process in a pod, under the key of what its container was allocated."""
        pod = self._pods.get(place.pod_uid)
        if pod is None:
            return workloads.nameless_pod(place.pod_uid)
        container = self._containers.get(place.container_id, "")
        if not container:
            # No other container of the pod can reach a GPU, or there is no other.
            for names in (self._granted.get((pod.namespace, pod.name), ()), pod.containers):
                if len(names) == 1:
                    (container,) = names
                    break
        return workloads.pod(
            pod.namespace,
            pod.name,
            container,
            uid=place.pod_uid,
            container_id=place.container_id if container else "",
        )


def owners(asked: Iterable[Process], sights: Sights, pods: Pods) -> list[Owner]:
    """Return the owner of each process that is asked for and was seen."""

    def user(uid: int) -> str:
        return sights.users.get(uid, f"uid {uid}")

    made: dict[tuple[Place | None, int | None], Workload | None] = {}
    found = []
    for process in asked:
        if (seen := sights.seen.get(process)) is None:
            continue
        where = (seen.place, seen.uid)
        if where not in made:
            made[where] = _workload(seen, pods, user)
        found.append(
            Owner(
                pid=process.pid,
                started=process.started,
                name=seen.name,
                user="" if seen.uid is None else user(seen.uid),
                workload=made[where],
            )
        )
    return found


def _workload(seen: Seen, pods: Pods, user: Callable[[int], str]) -> Workload | None:
    place = seen.place
    if place is None or place.level is Level.HELPER:
        return None
    if place.level is Level.POD:
        return pods.workload(place)
    of_somebody = "" if place.uid is None else user(place.uid)
    if place.level is Level.CONTAINER:
        return workloads.container(place.container_id, unit=place.unit, user=of_somebody)
    if place.level is Level.SERVICE:
        return workloads.service(place.unit, user=of_somebody)
    whose = of_somebody or ("" if seen.uid is None else user(seen.uid))
    if place.level is Level.SLURM:
        return workloads.slurm(place.slurm_job, user=whose)
    return workloads.user(whose) if whose else None
