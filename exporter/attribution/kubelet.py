"""The kubelet: which container was given which device. Asked by its PodResources v1 API, over a Unix socket."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from exporter.attribution import workloads
from exporter.attribution.cluster import Cluster, Name
from exporter.attribution.drm import render_nodes
from exporter.attribution.ids import DeviceName, Place, Places
from exporter.attribution.podresources import ClaimedDevice, Container, Pod
from exporter.attribution.source import Findings, Grant, NothingToAskError, Question

_DEADLINE_SECONDS = 5.0


def no_cluster() -> Cluster | None:
    """Stand for an API server that is not asked."""
    return None


class KubeletSource:
    """Opens a channel for each look: it is cheap on a Unix socket, and outlives any restart of the kubelet.

    Some kubelets go on listing pods that have ended, beside those that got their devices. A grant is not running where
    the API server says that the pod has ended, or where the kubelet, asked for one of two pods with the same id, knows
    it no more. Where neither tells, both grants run, and whoever puts the sources together finds a device given twice.
    """

    name = "kubelet"

    def __init__(
        self,
        path: str,
        resources: tuple[str, ...],
        *,
        root: Path = Path("/"),
        cluster: Callable[[], Cluster | None] = no_cluster,
        expected: bool = True,
        deadline_seconds: float = _DEADLINE_SECONDS,
    ) -> None:
        """Take the path of the socket, and patterns of resources that may be GPUs.

        A device of DRA is matched as DRIVER/DEVICE. `root`: where /sys is looked for. `cluster`: what the API server
        told last, which must not wait. `expected`: somebody said that a kubelet is there.
        """
        self._path = path
        self._told: set[str] = set()
        self._expected = expected
        self._resources = resources
        self._root = root
        self._cluster = cluster
        self._deadline = deadline_seconds

    def look(self, question: Question) -> Findings:
        """Ask which devices were given to whom. Raises SourceError, NothingToAskError."""
        if not self._expected and _is_missing(Path(self._path).parent):
            raise NothingToAskError
        from exporter.attribution.kubelet_channel import Channel  # noqa: PLC0415 -- where there may be a kubelet

        with Channel(self._path, self._deadline) as kubelet:
            pods = kubelet.pods()
            ended = kubelet.ended(_in_doubt(pods))
        cluster = self._cluster() or Cluster()
        over: frozenset[Name] = ended | cluster.ended
        finder = _Finder(Places(question, render_nodes(self._root)), self._resources, cluster)
        grants: dict[Grant, None] = {}
        for pod in pods:
            running = (pod.namespace, pod.name) not in over
            for container in pod.containers:
                workload = workloads.pod(pod.namespace, pod.name, container.name)
                for device, partition in finder.places(container):
                    grants[Grant(workload=workload, device=device, partition=partition, running=running)] = None
        if question.held:  # else no driver is there, which is worth other lines than these
            self._tell(finder.resources(), slices=bool(cluster.devices))
        return Findings(grants=tuple(grants), unplaced_devices=len(finder.unplaced))

    def _tell(self, unplaced: set[str], *, slices: bool) -> None:
        """Name each resource once whose ids belong to no GPU: the page has their number only."""
        for resource in sorted(unplaced - self._told):
            hint = "" if slices or "/" in resource else ", and ResourceSlices that would tell were not read"
            from logging import getLogger  # noqa: PLC0415 -- 0.5 MiB, for what an agent seldom has to say

            getLogger("exporter.attribution").warning("ids of %s belong to no GPU that is known%s", resource, hint)
        # What is placed again, and gets lost again, is worth another line.
        self._told = unplaced


class _Given(NamedTuple):
    resource: str
    device: str


class _Finder:
    """Places what containers were given, and keeps in mind what could not be placed."""

    def __init__(self, places: Places, resources: tuple[str, ...], cluster: Cluster) -> None:
        self._places = places
        self._resources = resources
        self._cluster = cluster
        self.unplaced: set[_Given | DeviceName] = set()

    def places(self, container: Container) -> Iterator[Place]:
        for devices in container.devices:
            if self._counts(devices.resource):
                for device_id in devices.ids:
                    yield from self._kept(_Given(devices.resource, device_id), self._places.find(device_id))
        for claimed in container.claimed:
            yield from self._claimed(claimed)

    def resources(self) -> set[str]:
        """Return what could not be placed by the names of resources and drivers."""
        return {one.driver if isinstance(one, DeviceName) else one.resource for one in self.unplaced}

    def _claimed(self, claimed: ClaimedDevice) -> Iterator[Place]:
        name = DeviceName(claimed.driver, claimed.pool, claimed.device)
        watches = ((claimed.claim_namespace, claimed.claim), name) in self._cluster.watched
        if not watches and self._counts(f"{claimed.driver}/{claimed.device}"):
            yield from self._kept(name, self._places.find_claimed(name, self._cluster.devices.get(name)))

    def _kept(self, given: _Given | DeviceName, place: Place | None) -> Iterator[Place]:
        if place is None:
            self.unplaced.add(given)
        else:
            yield place

    def _counts(self, resource: str) -> bool:
        return any(fnmatchcase(resource, pattern) for pattern in self._resources)


def _in_doubt(pods: tuple[Pod, ...]) -> list[Pod]:
    """Return the pods of which two were given the same thing, which no kubelet does: one of them has ended.

    Shares of one GPU have ids of their own. What claims share of DRA is another matter: it may well be one device.
    """
    holders: defaultdict[_Given, list[Pod]] = defaultdict(list)
    for pod in pods:
        given = {
            _Given(devices.resource, device_id)
            for container in pod.containers
            for devices in container.devices
            for device_id in devices.ids
        }
        for one in given:
            holders[one].append(pod)
    doubtful = {pod: None for found in holders.values() if len(found) > 1 for pod in found}
    return list(doubtful)


def _is_missing(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:  # it may be there and not for us to see
        return False
    return False
