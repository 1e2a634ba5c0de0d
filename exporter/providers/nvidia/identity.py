"""Which GPU is behind an NVML handle, and what can be known of its sensors from that."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from exporter.model import Device, LinkSample
from exporter.providers.nvidia.fields import Field, Fields
from exporter.providers.nvidia.library import NOT_SUPPORTED, AbsentError, BrokenError, Known, LostError, Nvml
from exporter.providers.sanitise import is_sentinel, text

_ARCHITECTURES = {
    2: "Kepler",
    3: "Maxwell",
    4: "Pascal",
    5: "Volta",
    6: "Turing",
    7: "Ampere",
    8: "Ada",
    9: "Hopper",
    10: "Blackwell",
    13: "Rubin",
}
_AMPERE, _HOPPER = 7, 9
_GA100 = (8, 0)
"""Compute capability of A100 and A30, which share their architecture number with consumer Ampere."""

_UNSHARED_BOARD = 0
_LAST_MINOR = 2**20 - 1
# Domains that are made up for devices behind a VMD controller begin at 65536.
_LAST_DOMAIN, _LAST_BUS, _LAST_SLOT = 0xFFFFFF, 0xFF, 0x1F

PowerKind = tuple[Literal["average", "instant"] | None, float | None]
"""What a power reading is, and its window in seconds."""

AVERAGE: PowerKind = ("average", 1.0)
INSTANT: PowerKind = ("instant", 0.0)
UNKNOWN_KIND: PowerKind = (None, None)


class LinkFields(NamedTuple):
    """Which fields tell of one link of a GPU; None: none does."""

    link: int
    state: Field | None
    receive: Field | None
    transmit: Field | None
    errors: tuple[tuple[str, Field], ...]


class Links(NamedTuple):
    """What is known of the links of a GPU."""

    each: tuple[LinkFields, ...]
    asked: Fields
    """What to ask for at each read."""
    units: Mapping[Field, int]
    """Of those that count, how many bytes or errors one is."""


class Gpu(msgspec.Struct):
    """A GPU that was seen. `handle` is None while the library does not give one."""

    device: Device
    handle: Any
    plain_power: PowerKind = UNKNOWN_KIND
    """What nvmlDeviceGetPowerUsage means on it."""
    hopper: bool = False
    module_counter: bool = False
    """Its energy accumulator covers the whole module: GH200."""
    board: int = _UNSHARED_BOARD
    """Number of the board that carries several GPUs, else 0."""
    lost: bool = False
    """It fell off the bus while it was asked."""
    returned: bool = False
    """It was without a handle before: lost, or asleep."""
    may_sleep: bool = False
    """The kernel may suspend it while nobody uses it."""

    # What was found out since the GPU was identified, and is found out anew after the next time.
    sensors: Fields | None = None
    """Which fields tell power and energy; None: not known."""
    limits: Mapping[str, float | None] | None = None
    fixed: Known = {}
    links: Links | None = None
    """Likewise, of its links."""
    links_learned: float = -math.inf
    """When that was found out: it outlives an identification."""
    links_seen: tuple[float, tuple[LinkSample, ...] | None] = (-math.inf, None)
    """What was read of them last, and when."""
    profiles: bool | None = None
    """Whether it has counters for profiling; None: not known."""
    deaf: bool = False
    """It does not report errors as events."""


class _Questions:
    """Asks for identity: what does not answer is None, and a loss is noted."""

    def __init__(self, nvml: Nvml, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle
        self.lost = False

    def ask(self, function: str, *arguments: Any) -> Any:
        try:
            return self._nvml.call(function, self._handle, *arguments)
        except LostError:
            self.lost = True
        except (AbsentError, BrokenError):
            pass
        return None

    def number(self, function: str) -> int | None:
        answer = self.ask(function)
        return answer if isinstance(answer, int) and not is_sentinel(answer, bits=32) else None

    def position(self, function: str) -> int | None:
        """Ask for a place in a list of devices, or a minor number: what is beyond any host is no answer."""
        answer = self.number(function)
        return answer if answer is not None and 0 <= answer <= _LAST_MINOR else None

    def memory_kind(self) -> Literal["dedicated", "unified"] | None:
        """Integrated GPUs refuse the memory call, or answer a total of 0 (GB10); MIG parents refuse permission."""
        try:
            total = self._nvml.call("nvmlDeviceGetMemoryInfo", self._handle).total
        except LostError:
            self.lost = True
        except AbsentError as refusal:
            return "unified" if refusal.code == NOT_SUPPORTED else None
        except BrokenError:
            pass
        else:
            return "dedicated" if total else "unified"
        return None


def identify(nvml: Nvml, handle: Any, index: int | None, driver_version: str | None) -> Gpu | None:
    """Return the GPU, or None when it has neither a UUID nor a PCI address.

    A UUID that is refused is replaced by the address; one that breaks is not, since the same GPU would get a second
    key: raises LostError and BrokenError then, and ProviderError.
    """
    questions = _Questions(nvml, handle)
    try:
        uuid = text(nvml.call("nvmlDeviceGetUUID", handle))
    except AbsentError:
        uuid = None
    address = _pci_address(questions.ask("nvmlDeviceGetPciInfo"))
    key = uuid or address
    if key is None:
        return None
    model = text(questions.ask("nvmlDeviceGetName"))
    architecture = questions.number("nvmlDeviceGetArchitecture")
    mig = questions.ask("nvmlDeviceGetMigMode")
    firmware = {
        "vbios": text(questions.ask("nvmlDeviceGetVbiosVersion")),
        "inforom": text(questions.ask("nvmlDeviceGetInforomImageVersion")),
        "gsp": text(questions.ask("nvmlDeviceGetGspFirmwareVersion")),
    }
    device = Device(
        vendor="nvidia",
        key=key,
        model=model,
        pci_address=address,
        serial=text(questions.ask("nvmlDeviceGetSerial")),
        vendor_uuid=uuid,
        index=questions.position("nvmlDeviceGetIndex") if index is None else index,
        minor=questions.position("nvmlDeviceGetMinorNumber"),
        architecture=_ARCHITECTURES.get(architecture) if architecture is not None else None,
        driver_version=driver_version,
        memory_kind=questions.memory_kind(),
        partition_mode="mig" if mig and mig[0] == 1 else None,
        firmware={component: version for component, version in firmware.items() if version},
    )
    several = questions.number("nvmlDeviceGetMultiGpuBoard")
    return Gpu(
        device=device,
        handle=handle,
        plain_power=_plain_power(architecture, questions.ask("nvmlDeviceGetCudaComputeCapability")),
        hopper=architecture == _HOPPER,
        module_counter="GH200" in (model or ""),
        board=(questions.number("nvmlDeviceGetBoardId") or _UNSHARED_BOARD) if several else _UNSHARED_BOARD,
        lost=questions.lost,
    )


def address_of(nvml: Nvml, handle: Any) -> str | None:
    """Return the PCI address of a GPU, or None. Raises ProviderError."""
    return _pci_address(_Questions(nvml, handle).ask("nvmlDeviceGetPciInfo"))


def with_packages(gpus: Iterable[Gpu]) -> None:
    """Give GPUs that share a board the same package."""
    seen = tuple(gpus)
    shared = Counter(gpu.board for gpu in seen if gpu.board != _UNSHARED_BOARD)
    for gpu in seen:
        if shared[gpu.board] > 1:
            gpu.device = replace(gpu.device, package=f"board-{gpu.board:x}")


def _pci_address(info: Any) -> str | None:
    # Made from the numbers: the 8-digit bus id of NVML is not what sysfs shows. Jetson answers all zeros.
    if info is None or not info.pciDeviceId:
        return None
    if info.domain > _LAST_DOMAIN or info.bus > _LAST_BUS or info.device > _LAST_SLOT:
        return None
    return f"{info.domain:04x}:{info.bus:02x}:{info.device:02x}.0"


def _plain_power(architecture: int | None, capability: tuple[int, int] | None) -> PowerKind:
    if architecture not in _ARCHITECTURES or (architecture == _AMPERE and capability is None):
        return UNKNOWN_KIND
    if architecture < _AMPERE or tuple(capability or ()) == _GA100:
        return INSTANT
    return AVERAGE
