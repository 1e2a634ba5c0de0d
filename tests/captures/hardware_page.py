"""Which reading does each model give, from where, and who has seen it?

`python -m tests.captures.hardware_page > docs/hardware.md` runs every provider on its captures and writes the page.
"""

import functools
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from exporter.captures.format import Capture
from exporter.fleet.groups import FIELDS
from exporter.model import DeviceSnapshot, Group
from tests.captures.hosts import PATHS, Host, load

READINGS = (
    ("power_watts", "power"),
    ("power_limit_watts", "power limit"),
    ("memory_power_watts", "power of the memory"),
    ("module_power_watts", "power of the module"),
    ("energy_counter_joules", "energy accumulator"),
    ("module_energy_counter_joules", "energy accumulator of the module"),
    ("utilization_ratio", "utilisation"),
    ("memory_controller_utilization_ratio", "utilisation of the memory controller"),
    ("engine_utilization_ratio", "utilisation of engines"),
    ("memory_used_bytes", "memory in use"),
    ("memory_reserved_bytes", "memory that the driver reserves"),
    ("memory_visible_used_bytes", "memory that the CPU sees"),
    ("system_memory_used_bytes", "host memory in use (GTT)"),
    ("temperature_celsius", "temperatures"),
    ("temperature_limit_celsius", "temperature limits"),
    ("temperature_margin_celsius", "thermal margin"),
    ("clock_hertz", "clocks"),
    ("performance_state", "performance state"),
    ("fan_speed_ratio", "fan"),
    ("throttled", "throttle reasons"),
    ("throttle_seconds", "time throttled, by hardware counters"),
    ("ecc_errors", "ECC errors"),
    ("ecc_lifetime_errors", "ECC errors of the board's life"),
    ("memory_remap_failed", "row remapper"),
    ("retired_pages", "retired pages"),
    ("pcie_link_generation", "PCIe link"),
    ("pcie_replays", "PCIe replays"),
    ("links", "NVLink, XGMI"),
    ("recovery_action", "recovery action"),
    ("fabric", "fabric"),
    ("partitions", "partitions"),
    ("processes", "processes"),
)
"""Fields of Sample, and what the page calls them."""

BESIDE = frozenset(
    {
        *("power_kind", "power_window_seconds", "power_scope", "power_limit_default_watts"),
        *("energy_counter_scope", "energy_counter_range_joules", "energy_counter_at"),
        *("memory_size_bytes", "memory_visible_size_bytes", "system_memory_size_bytes", "memory_remap_pending"),
        *("pcie_link_width", "pcie_link_width_max", "process_counts"),
        *("pcie_receive_bytes", "pcie_transmit_bytes"),  # not asked for unless somebody wants them
        *FIELDS[Group.PROFILING],
    }
)
"""Fields that go with another one, and those that are not read here."""

_LEGEND = {
    "L": "the vendor's library: NVML, AMD SMI",
    "T": "`gpu_metrics`, the table that AMD's firmware gives to the kernel",
    "H": "hwmon, the kernel's sensors",
    "S": "other files of sysfs",
    "F": "fdinfo of the processes",
    "K": "KFD, AMD's driver for compute",
}
_LETTERS = {"library": "L", "gpu_metrics": "T", "hwmon": "H", "sysfs": "S", "fdinfo": "F", "kfd": "K"}
_OF_PROVIDER = {"nvidia": "L", "amd": "L", "drm": "S"}
_TABLES = (
    ("NVIDIA", "nvidia-"),
    ("AMD Instinct", "amd-mi"),
    ("AMD Radeon and APUs", "amd-"),
    ("Intel", "intel-"),
)
_LOOKED = frozenset({"processes"})
"""Nothing found there is a finding."""
_SEEN = {
    "hardware": "recorded on hardware",
    "published": "from published output",
    "documented": "by documentation alone",
}

_HEAD = """\
<!-- Written by `python -m tests.captures.hardware_page > docs/hardware.md`; do not edit. -->

# Which reading each model gives

Every provider was run on the captures in [tests/captures](../tests/captures): files of what the vendor's library and
the kernel answer on a host with that model, at two moments. The pages that come of them are in
[tests/golden/captures](../tests/golden/captures).

| sign | the reading comes from |
| --- | --- |
{legend}
How a sign is written says who has seen such an answer:

| written | the answer |
| --- | --- |
| **L** | was recorded on the hardware |
| L | is in output that somebody has published |
| (L) | is by documentation alone: the model is known to have it, and the figures are filled in |

A mark behind the sign: `=` the accumulator stands still, and joules come from power. An empty cell: the model does not
tell it, or nobody has shown that it does. Files of processes are no part of a capture: processes are here where the
library lists them, and not where they are found in /proc.

A recording of a model, whether it is in the list or not, is welcome: `gpu-exporter doctor --json` has one of each
provider under `captures`, without serial numbers, UUIDs and names.
"""


class Played(NamedTuple):
    name: str
    """Of the file, without its ending."""
    capture: Capture
    page: str
    devices: tuple[DeviceSnapshot, ...]
    broken: tuple[str, ...]
    """Readings that failed or were rejected."""


@functools.cache
def played(path: Path) -> Played:
    """Play a capture to its end."""
    capture = load(path)
    with tempfile.TemporaryDirectory() as folder:
        host = Host(capture, Path(folder))
        page = host.page()
        broken = tuple(name for sample in host.samples.values() for name in (*sample.failed, *sample.rejected))
        host.close()
    return Played(path.stem, capture, page, host.shown, broken)


def readings_of(one: Played) -> dict[str, str]:
    """Return the sign of each reading that a capture gives, by field of Sample."""
    return {name: sign for name, _ in READINGS if (sign := _sign(one, name))}


def page() -> str:
    """Return docs/hardware.md."""
    every = [played(path) for path in PATHS]
    used = set("".join(sign for one in every for sign in readings_of(one).values()))
    legend = "".join(f"| {letter} | {text} |\n" for letter, text in _LEGEND.items() if letter in used)
    parts = [_HEAD.format(legend=legend)]
    left = every
    for title, prefix in _TABLES:
        chosen = [one for one in left if one.name.startswith(prefix)]
        left = [one for one in left if one not in chosen]
        parts += [f"\n## {title}\n\n", *(f"{line}\n" for line in _table(chosen))]
    parts.append("\n## Where the figures are from\n")
    parts += [_origin(one) for one in every]
    parts += ["\n", *(f"[{one.name}]: ../tests/captures/{one.name}.yaml\n" for one in every)]
    return "".join(parts)


def _table(chosen: Sequence[Played]) -> Iterator[str]:
    yield f"| reading | {' | '.join(map(_column, chosen))} |"
    yield f"| --- |{' :---: |' * len(chosen)}"
    signs = [readings_of(one) for one in chosen]
    for name, title in READINGS:
        if any(name in each for each in signs):
            yield f"| {title} | {' | '.join(each.get(name, '') for each in signs)} |"


def _column(one: Played) -> str:
    library = one.capture.library
    release = f", ROCm {library.package_version}" if library is not None and library.package == "amdsmi" else ""
    return f"[{one.capture.model}{release}][{one.name}]"


def _origin(one: Played) -> str:
    capture = one.capture
    filled = f" *Filled in:* {capture.filled_in}" if capture.filled_in else ""
    return f"\n**{_column(one)}**, {_SEEN[capture.seen]}. {capture.source.removesuffix('.')}.{filled}\n"


def _sign(one: Played, name: str) -> str:
    letters: set[str] = set()
    still = True
    for device in one.devices:
        value = getattr(device.sample, name)
        if value is None or (name not in _LOOKED and not value and isinstance(value, tuple | dict)):
            continue
        provider, _, source = device.sources.get(name, device.provider).partition("/")
        letters.add(_LETTERS[source] if source else _OF_PROVIDER[provider])
        still = still and (device.energy is None or device.energy.hardware_joules == 0)
    if not letters:
        return ""
    sign = "".join(sorted(letters)) + ("=" if name == "energy_counter_joules" and still else "")
    if name in one.capture.documented or one.capture.seen == "documented":
        return f"({sign})"
    return f"**{sign}**" if one.capture.seen == "hardware" else sign


if __name__ == "__main__":
    sys.stdout.write(page())
