"""What the API server's answers tell of the pods, the devices and the claims of one node."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec

from exporter.attribution.ids import Attributes, DeviceName
from exporter.attribution.source import Pod

_T = TypeVar("_T")

_ENDED = ("Succeeded", "Failed")

Name = tuple[str, str]
"""Namespace and name, of a pod or a ResourceClaim."""


class AnswerError(ValueError):
    """An answer is not what the API promises. The message goes on from the name of the server, as HttpError's does."""


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one node, from one round of questions."""

    pods: Mapping[str, Pod] = {}
    """By uid."""
    containers: Mapping[str, str] = {}
    """Names of containers by their id."""
    ended: frozenset[Name] = frozenset()
    """Pods that have succeeded or failed, without those whose name is in use again."""
    devices: Mapping[DeviceName, Attributes] = {}
    """From ResourceSlices."""
    watched: frozenset[tuple[Name, DeviceName]] = frozenset()
    """Devices that were given with admin access: to look at, beside those who work on them."""
    trouble: str = ""
    """What could not be asked, in words."""


class _Metadata(msgspec.Struct):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    annotations: dict[str, str] = {}


class _ClaimReference(msgspec.Struct, rename="camel"):
    resource_claim_name: str | None = None


class _Container(msgspec.Struct):
    name: str


class _ContainerStatus(msgspec.Struct):
    name: str
    container_id: str = msgspec.field(default="", name="containerID")


class _PodSpec(msgspec.Struct, rename="camel"):
    containers: list[_Container] = []
    init_containers: list[_Container] | None = None
    ephemeral_containers: list[_Container] | None = None
    resource_claims: list[_ClaimReference] | None = None


class _PodStatus(msgspec.Struct, rename="camel"):
    phase: str = ""
    container_statuses: list[_ContainerStatus] | None = None
    init_container_statuses: list[_ContainerStatus] | None = None
    ephemeral_container_statuses: list[_ContainerStatus] | None = None
    resource_claim_statuses: list[_ClaimReference] | None = None


class PodItem(msgspec.Struct):
    metadata: _Metadata
    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)


class _Attribute(msgspec.Struct):
    string: str | None = None
    number: int | None = msgspec.field(default=None, name="int")


class _Basic(msgspec.Struct):
    attributes: dict[str, _Attribute] = {}


class _SliceDevice(msgspec.Struct):
    name: str
    attributes: dict[str, _Attribute] = {}
    basic: _Basic | None = None
    """Where v1beta1 has the attributes."""


class _Pool(msgspec.Struct):
    name: str
    generation: int = 0


class _SliceSpec(msgspec.Struct):
    driver: str
    pool: _Pool
    devices: list[_SliceDevice] | None = None


class SliceItem(msgspec.Struct):
    spec: _SliceSpec


class _Result(msgspec.Struct, rename="camel"):
    driver: str
    pool: str
    device: str
    admin_access: bool | None = None


class _Devices(msgspec.Struct):
    results: list[_Result] | None = None


class _Allocation(msgspec.Struct):
    devices: _Devices = msgspec.field(default_factory=_Devices)


class _ClaimStatus(msgspec.Struct):
    allocation: _Allocation | None = None


class ClaimItem(msgspec.Struct):
    status: _ClaimStatus = msgspec.field(default_factory=_ClaimStatus)


class _ListMetadata(msgspec.Struct):
    more: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct):
    metadata: _ListMetadata = msgspec.field(default_factory=_ListMetadata)
    items: list[msgspec.Raw] | None = None


def decode(data: bytes, form: type[_T]) -> _T:
    """Decode one object. Raises AnswerError."""
    try:
        return msgspec.json.decode(data, type=form)
    # A string that is no UTF-8 and a nesting that has no end are told by errors of their own.
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise AnswerError(f"answers something else than the API promises: {error}") from None


def decode_list(data: bytes, form: type[_T]) -> tuple[list[_T], str]:
    """Decode one page of a list, and what to ask for the next one by; empty after the last. Raises AnswerError."""
    page = decode(data, _List)
    return [decode(bytes(item), form) for item in page.items or ()], page.metadata.more


def pods_by_uid(items: Iterable[PodItem]) -> dict[str, Pod]:
    """Return the pods by each uid that their processes may be found under."""
    found = {}
    for item in items:
        spec = item.spec
        containers = (*(spec.init_containers or ()), *spec.containers, *(spec.ephemeral_containers or ()))
        pod = Pod(*_name(item), tuple(one.name for one in containers))
        found[item.metadata.uid] = pod
        # The cgroup of a static pod has the hash of its manifest instead of the uid that the API server gave it.
        found[item.metadata.annotations.get("kubernetes.io/config.hash", "")] = pod
    found.pop("", None)
    return found


def containers_by_id(items: Iterable[PodItem]) -> dict[str, str]:
    """Return the names of the containers by their id, as cgroups have it."""
    found = {}
    for item in items:
        status = item.status
        for of_kind in (status.init_container_statuses, status.container_statuses, status.ephemeral_container_statuses):
            # With the runtime before the id: containerd://4f2a...
            found.update({one.container_id.rpartition("/")[2]: one.name for one in of_kind or ()})
    found.pop("", None)
    return found


def ended_pods(items: Iterable[PodItem]) -> frozenset[Name]:
    """Return the pods that have ended, without those whose name is in use again."""
    ended: set[Name] = set()
    alive: set[Name] = set()
    for item in items:
        (ended if item.status.phase in _ENDED else alive).add(_name(item))
    return frozenset(ended - alive)


def claims_of(items: Iterable[PodItem]) -> list[Name]:
    """Return the claims of all pods, each once, in the order of the pods."""
    found: dict[Name, None] = {}
    for item in items:
        for reference in (*(item.spec.resource_claims or ()), *(item.status.resource_claim_statuses or ())):
            if reference.resource_claim_name:
                found[item.metadata.namespace, reference.resource_claim_name] = None
    return list(found)


def devices_of(items: Iterable[SliceItem]) -> dict[DeviceName, Attributes]:
    """Return the attributes of all devices: of each pool only those of its newest generation."""
    slices = list(items)
    newest: dict[tuple[str, str], int] = {}
    for item in slices:
        pool = (item.spec.driver, item.spec.pool.name)
        newest[pool] = max(newest.get(pool, 0), item.spec.pool.generation)
    found: dict[DeviceName, Attributes] = {}
    for item in slices:
        spec = item.spec
        if spec.pool.generation < newest[spec.driver, spec.pool.name]:
            continue
        for device in spec.devices or ():
            attributes = device.attributes or (device.basic.attributes if device.basic else {})
            found[DeviceName(spec.driver, spec.pool.name, device.name)] = {
                name.removeprefix(f"{spec.driver}/"): value
                for name, attribute in attributes.items()
                if (value := attribute.number if attribute.string is None else attribute.string) is not None
            }
    return found


def _name(item: PodItem) -> Name:
    return item.metadata.namespace, item.metadata.name


def watched_of(claim: ClaimItem) -> frozenset[DeviceName] | None:
    """Return what the claim gives with admin access; None: nothing is allocated to it so far."""
    if claim.status.allocation is None:
        return None
    results = claim.status.allocation.devices.results or []
    return frozenset(DeviceName(one.driver, one.pool, one.device) for one in results if one.admin_access)
