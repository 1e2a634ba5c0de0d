"""Which GPUs can be simulated: the figures of each model that its sensors and its identity follow from.

Figures are those of public specifications, of captures of the vendors' tools, and of measurements of the sensors
(docs/simulation.md says which matter). Where none is public, the figure of the nearest model stands in.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from exporter.providers.simulated.physics import Warmth

Vendor = Literal["nvidia", "amd"]

MIB = 1 << 20
GIB = 1 << 30
MHZ = 1e6


class Sensor(NamedTuple):
    """Power sensor: at each multiple of `period` it shows the mean over the `window` before."""

    window: float
    period: float


class Clock(NamedTuple):
    idle: float
    highest: float


class Profile(NamedTuple):
    """A kind of MIG instance."""

    slices: int
    memory_size_bytes: float


class ModulePower(NamedTuple):
    """Power of the module around the GPU: `constant` + GPU power."""

    constant: float
    limit: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    vendor: Vendor
    name: str
    architecture: str
    pci_device_id: int
    pci_subsystem_id: int = 0
    idle_watts: float
    full_watts: float
    """At full load, before the limit."""
    limit_watts: float
    limit_min_watts: float
    average: Sensor | None = None
    instant: Sensor | None = None
    usage: Literal["average", "instant"] | None = None
    """What the plain power call of NVML answers."""
    accumulator_period: float | None = 0.1
    accumulator_zero: bool = False
    accumulator_scope: Literal["gpu", "module"] = "gpu"
    module: ModulePower | None = None
    memory_power: tuple[float, float] | None = None
    """Watts when idle and at full load."""
    memory_size_bytes: float
    memory_reserved_bytes: float | None = None
    memory_idle_bytes: float = 0.0
    memory_type: str
    clocks: Mapping[str, Clock]
    warmth: Mapping[str, Warmth]
    limits: Mapping[str, float] = field(default_factory=dict)
    margin_limit_celsius: float | None = None
    """Where the thermal margin is 0; None: no margin is reported."""
    fan: bool = False
    ecc: bool = True
    page_retirement: bool = False
    pcie_generation: int
    pcie_width: int = 16
    links: int = 0
    """NVLink or XGMI."""
    fabric: Literal["host", "cluster"] | None = None
    """Whether its links go to switches, within one host or over several."""
    profiling: bool = False
    """Whether it has counters of how busy its parts are."""
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    mig_max_count: int = 0
    compute_partitions: Mapping[str, int] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)

    @property
    def resolution(self) -> float:
        """Joules of one step of the accumulator: NVML counts mJ, AMD's firmware ticks of 2^-16 J."""
        return 0.001 if self.vendor == "nvidia" else 2.0**-16


_HOPPER_AVERAGE, _QUARTER_SECOND = Sensor(1.0, 0.1), Sensor(0.025, 0.1)

_H100 = Model(
    vendor="nvidia",
    name="NVIDIA H100 80GB HBM3",
    architecture="hopper",
    pci_device_id=0x2330,
    pci_subsystem_id=0x16C1,
    idle_watts=72.0,
    full_watts=735.0,
    limit_watts=700.0,
    limit_min_watts=200.0,
    average=_HOPPER_AVERAGE,
    instant=_QUARTER_SECOND,
    usage="average",
    memory_power=(33.0, 120.0),
    memory_size_bytes=81559 * MIB,
    memory_reserved_bytes=480 * MIB,
    memory_idle_bytes=1 * MIB,
    memory_type="hbm3",
    clocks={
        "graphics": Clock(345 * MHZ, 1980 * MHZ),
        "sm": Clock(345 * MHZ, 1980 * MHZ),
        "memory": Clock(2619 * MHZ, 2619 * MHZ),
        "video": Clock(765 * MHZ, 1545 * MHZ),
    },
    warmth={"gpu": Warmth(27.0, 0.055, 22.0), "memory": Warmth(34.0, 0.06, 40.0)},
    margin_limit_celsius=87.0,
    pcie_generation=5,
    links=18,
    fabric="host",
    profiling=True,
    profiles={
        "1g.10gb": Profile(1, 9856 * MIB),
        "1g.20gb": Profile(1, 19968 * MIB),
        "2g.20gb": Profile(2, 19968 * MIB),
        "3g.40gb": Profile(3, 40192 * MIB),
        "4g.40gb": Profile(4, 40192 * MIB),
        "7g.80gb": Profile(7, 80640 * MIB),
    },
    mig_max_count=7,
    texts={"compute_capability": "9.0", "vbios_version": "96.00.74.00.01", "part_number": "692-2G520-0200-000"},
    numbers={"architecture_code": 9, "compute_capability_major": 9, "compute_capability_minor": 0},
)

_A100 = replace(
    _H100,
    name="NVIDIA A100-SXM4-80GB",
    architecture="ampere",
    pci_device_id=0x20B2,
    pci_subsystem_id=0x147F,
    idle_watts=58.0,
    full_watts=410.0,
    limit_watts=400.0,
    limit_min_watts=100.0,
    average=None,
    usage="instant",
    memory_power=None,
    memory_size_bytes=81920 * MIB,
    memory_reserved_bytes=597 * MIB,
    memory_type="hbm2e",
    clocks={
        "graphics": Clock(210 * MHZ, 1410 * MHZ),
        "sm": Clock(210 * MHZ, 1410 * MHZ),
        "memory": Clock(1593 * MHZ, 1593 * MHZ),
        "video": Clock(585 * MHZ, 1275 * MHZ),
    },
    warmth={"gpu": Warmth(26.0, 0.09, 25.0), "memory": Warmth(30.0, 0.11, 45.0)},
    limits={"shutdown": 92.0, "slowdown": 89.0, "target": 85.0, "memory": 95.0},
    margin_limit_celsius=None,
    pcie_generation=4,
    links=12,
    fabric=None,
    profiling=False,
    profiles={
        "1g.10gb": Profile(1, 9728 * MIB),
        "2g.20gb": Profile(2, 19968 * MIB),
        "3g.40gb": Profile(3, 40192 * MIB),
        "4g.40gb": Profile(4, 40192 * MIB),
        "7g.80gb": Profile(7, 80896 * MIB),
    },
    texts={"compute_capability": "8.0", "vbios_version": "92.00.45.00.03", "part_number": "692-2G506-0210-002"},
    numbers={"architecture_code": 7, "compute_capability_major": 8, "compute_capability_minor": 0},
)

_B200 = replace(
    _H100,
    name="NVIDIA B200",
    architecture="blackwell",
    pci_device_id=0x2901,
    pci_subsystem_id=0x1999,
    idle_watts=140.0,
    full_watts=1040.0,
    limit_watts=1000.0,
    limit_min_watts=200.0,
    memory_power=(22.3, 150.0),
    memory_size_bytes=183359 * MIB,
    memory_reserved_bytes=728 * MIB,
    memory_type="hbm3e",
    clocks={
        "graphics": Clock(120 * MHZ, 1965 * MHZ),
        "sm": Clock(120 * MHZ, 1965 * MHZ),
        "memory": Clock(3996 * MHZ, 3996 * MHZ),
        "video": Clock(600 * MHZ, 1545 * MHZ),
    },
    warmth={"gpu": Warmth(25.0, 0.042, 20.0), "memory": Warmth(28.0, 0.045, 40.0)},
    profiles={
        "1g.23gb": Profile(1, 22528 * MIB),
        "2g.45gb": Profile(2, 45056 * MIB),
        "3g.90gb": Profile(3, 90112 * MIB),
        "7g.180gb": Profile(7, 182272 * MIB),
    },
    texts={"compute_capability": "10.0", "vbios_version": "97.00.82.00.18", "part_number": "692-2G525-0220-001"},
    numbers={"architecture_code": 10, "compute_capability_major": 10, "compute_capability_minor": 0},
)

_GB200 = replace(
    _B200,
    name="NVIDIA GB200",
    pci_device_id=0x2941,
    pci_subsystem_id=0x2046,
    idle_watts=165.9,
    full_watts=1230.0,
    limit_watts=1200.0,
    fabric="cluster",
    module=ModulePower(301.3, 2500.0),
    memory_power=(30.3, 160.0),
    memory_size_bytes=189471 * MIB,
    memory_reserved_bytes=742 * MIB,
)

# The accumulator of GH200 counts the module with its CPU, and GPU-scope power may be all there is beside it.
_GH200 = replace(
    _H100,
    name="NVIDIA GH200 480GB",
    pci_device_id=0x2342,
    pci_subsystem_id=0x16EB,
    idle_watts=95.0,
    full_watts=720.0,
    limit_watts=900.0,
    module=ModulePower(140.0, 1000.0),
    accumulator_scope="module",
    memory_size_bytes=97871 * MIB,
    memory_type="hbm3",
)

_T4 = replace(
    _A100,
    name="Tesla T4",
    architecture="turing",
    pci_device_id=0x1EB8,
    pci_subsystem_id=0x12A2,
    idle_watts=10.0,
    full_watts=72.0,
    limit_watts=70.0,
    limit_min_watts=60.0,
    instant=Sensor(0.1, 0.1),
    memory_size_bytes=15360 * MIB,
    memory_reserved_bytes=448 * MIB,
    memory_idle_bytes=0.0,
    memory_type="gddr6",
    clocks={
        "graphics": Clock(300 * MHZ, 1590 * MHZ),
        "sm": Clock(300 * MHZ, 1590 * MHZ),
        "memory": Clock(405 * MHZ, 5001 * MHZ),
        "video": Clock(540 * MHZ, 1470 * MHZ),
    },
    warmth={"gpu": Warmth(32.0, 0.55, 60.0)},
    limits={"shutdown": 96.0, "slowdown": 93.0, "target": 85.0},
    pcie_generation=3,
    links=0,
    page_retirement=True,
    profiles={},
    mig_max_count=0,
    texts={"compute_capability": "7.5", "vbios_version": "90.04.96.00.02", "part_number": "900-2G183-0000-001"},
    numbers={"architecture_code": 6, "compute_capability_major": 7, "compute_capability_minor": 5},
)

_MI300X = Model(
    vendor="amd",
    name="AMD Instinct MI300X",
    architecture="gfx942",
    pci_device_id=0x74A1,
    pci_subsystem_id=0x74A1,
    idle_watts=140.0,
    full_watts=760.0,
    limit_watts=750.0,
    limit_min_watts=0.0,
    instant=Sensor(0.0, 0.001),
    accumulator_period=0.01,
    memory_size_bytes=196592 * MIB,
    memory_idle_bytes=283 * MIB,
    memory_type="hbm3",
    clocks={
        "graphics": Clock(132 * MHZ, 2100 * MHZ),
        "memory": Clock(900 * MHZ, 1300 * MHZ),
        "soc": Clock(35 * MHZ, 1300 * MHZ),
        "video": Clock(29 * MHZ, 1400 * MHZ),
        "fabric": Clock(1200 * MHZ, 2100 * MHZ),
    },
    warmth={"hotspot": Warmth(30.0, 0.062, 20.0), "memory": Warmth(28.0, 0.045, 40.0)},
    limits={"shutdown": 110.0, "slowdown": 100.0, "memory": 105.0},
    pcie_generation=5,
    links=7,
    compute_partitions={"SPX": 1, "DPX": 2, "QPX": 4, "CPX": 8},
    texts={"metrics_table": "1.6", "vbios_version": "022.040.003.041.000001", "part_number": "113-M3000100-102"},
    numbers={"compute_units": 304, "oam_id": 0},
)

_MI355X = replace(
    _MI300X,
    name="AMD Instinct MI355X",
    architecture="gfx950",
    pci_device_id=0x75A3,
    pci_subsystem_id=0x75A3,
    idle_watts=155.0,
    full_watts=1420.0,
    limit_watts=1400.0,
    memory_size_bytes=294896 * MIB,
    memory_type="hbm3e",
    clocks={**_MI300X.clocks, "graphics": Clock(132 * MHZ, 2400 * MHZ), "memory": Clock(900 * MHZ, 2000 * MHZ)},
    warmth={"hotspot": Warmth(29.0, 0.036, 18.0), "memory": Warmth(28.0, 0.03, 40.0)},
    texts={"metrics_table": "1.8", "vbios_version": "00107962", "part_number": "113-M3550100-101"},
    numbers={"compute_units": 256, "oam_id": 0},
)

_MI350X = replace(
    _MI355X,
    name="AMD Instinct MI350X",
    pci_device_id=0x75A0,
    pci_subsystem_id=0x75A0,
    full_watts=1015.0,
    limit_watts=1000.0,
    clocks={**_MI355X.clocks, "graphics": Clock(132 * MHZ, 2200 * MHZ)},
    warmth={"hotspot": Warmth(29.0, 0.05, 20.0), "memory": Warmth(28.0, 0.04, 40.0)},
)

_MI210 = replace(
    _MI300X,
    name="AMD Instinct MI210",
    architecture="gfx90a",
    pci_device_id=0x740F,
    pci_subsystem_id=0x0C34,
    idle_watts=42.0,
    full_watts=305.0,
    limit_watts=300.0,
    average=Sensor(0.1, 0.01),
    instant=None,
    memory_size_bytes=65520 * MIB,
    memory_idle_bytes=10 * MIB,
    memory_type="hbm2e",
    clocks={
        "graphics": Clock(800 * MHZ, 1700 * MHZ),
        "memory": Clock(400 * MHZ, 1600 * MHZ),
        "soc": Clock(666 * MHZ, 1090 * MHZ),
        "fabric": Clock(1000 * MHZ, 1800 * MHZ),
    },
    warmth={
        "edge": Warmth(28.0, 0.1, 25.0),
        "hotspot": Warmth(30.0, 0.14, 20.0),
        "memory": Warmth(32.0, 0.12, 40.0),
        "hbm0": Warmth(31.0, 0.12, 40.0),
        "hbm1": Warmth(32.0, 0.12, 40.0),
        "hbm2": Warmth(33.0, 0.12, 40.0),
        "hbm3": Warmth(32.0, 0.12, 40.0),
    },
    pcie_generation=4,
    links=0,
    compute_partitions={},
    texts={"metrics_table": "1.3", "vbios_version": "113-D67301-063", "part_number": "113-D67301-063"},
    numbers={"compute_units": 104},
)

# Its firmware leaves the accumulator at 0 for ever; joules come from power alone.
_RX_9070 = replace(
    _MI210,
    name="AMD Radeon RX 9070",
    architecture="gfx1201",
    pci_device_id=0x7550,
    pci_subsystem_id=0x0B36,
    idle_watts=14.0,
    full_watts=225.0,
    limit_watts=220.0,
    limit_min_watts=154.0,
    accumulator_zero=True,
    memory_size_bytes=16304 * MIB,
    memory_idle_bytes=96 * MIB,
    memory_type="gddr6",
    clocks={
        "graphics": Clock(38 * MHZ, 2520 * MHZ),
        "memory": Clock(96 * MHZ, 1258 * MHZ),
        "soc": Clock(500 * MHZ, 1200 * MHZ),
        "video": Clock(500 * MHZ, 1300 * MHZ),
    },
    warmth={
        "edge": Warmth(30.0, 0.15, 30.0),
        "hotspot": Warmth(32.0, 0.22, 15.0),
        "memory": Warmth(40.0, 0.2, 60.0),
    },
    limits={"shutdown": 115.0, "slowdown": 110.0, "memory": 108.0},
    fan=True,
    ecc=False,
    pcie_generation=5,
    texts={"metrics_table": "1.3", "vbios_version": "023.008.000.068.000001", "part_number": "113-EXT97362-100"},
    numbers={"compute_units": 56},
)

_RX_7900_XT = replace(
    _RX_9070,
    name="AMD Radeon RX 7900 XT",
    architecture="gfx1100",
    pci_device_id=0x744C,
    pci_subsystem_id=0x0E3B,
    idle_watts=18.0,
    full_watts=320.0,
    limit_watts=315.0,
    limit_min_watts=212.0,
    memory_size_bytes=20464 * MIB,
    clocks={**_RX_9070.clocks, "graphics": Clock(20 * MHZ, 2450 * MHZ), "memory": Clock(96 * MHZ, 1249 * MHZ)},
    warmth={
        "edge": Warmth(30.0, 0.11, 30.0),
        "hotspot": Warmth(32.0, 0.16, 15.0),
        "memory": Warmth(40.0, 0.14, 60.0),
    },
    pcie_generation=4,
    numbers={"compute_units": 84},
)

MODELS: Mapping[str, Model] = {
    "H100-SXM": _H100,
    "A100-SXM": _A100,
    "B200": _B200,
    "GB200": _GB200,
    "GH200": _GH200,
    "T4": _T4,
    "MI300X": _MI300X,
    "MI355X": _MI355X,
    "MI350X": _MI350X,
    "MI210": _MI210,
    "RX-9070": _RX_9070,
    "RX-7900-XT": _RX_7900_XT,
}
"""By the name that scenarios use."""

DRIVERS: Mapping[Vendor, str] = {"nvidia": "580.95.05", "amd": "6.14.14"}
LIBRARIES: Mapping[Vendor, str] = {"nvidia": "13.580.95.05", "amd": "26.0.0"}
