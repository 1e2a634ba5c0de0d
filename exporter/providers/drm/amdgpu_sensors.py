"""What the sensors of amdgpu say: power, temperatures and clocks, of hwmon and of its power management."""

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

from exporter.providers.drm.hwmon import Hwmon, celsius, watts
from exporter.providers.drm.reading import Reading, known
from exporter.providers.sanitise import HERTZ

_SENSORS: Mapping[str, str] = {"edge": "edge", "junction": "hotspot", "mem": "memory"}
"""By label."""
_MEASURES = (
    ("shutdown", ("junction", "edge"), "emergency"),
    ("slowdown", ("junction", "edge"), "crit"),
    ("memory", ("mem",), "crit"),
)
_CLOCKS: Mapping[str, tuple[str, str]] = {
    "graphics": ("sclk", "pp_dpm_sclk"),
    "memory": ("mclk", "pp_dpm_mclk"),
    "soc": ("", "pp_dpm_socclk"),
    "fabric": ("", "pp_dpm_fclk"),
    "video": ("", "pp_dpm_vclk"),
}
"""Label in hwmon and table of power management, by domain."""
_CURRENT = re.compile(rb"^\s*\w+:\s*(\d+)\s*mhz\s*\*", re.IGNORECASE | re.MULTILINE)
_MEGAHERTZ = 1_000_000


class Power(NamedTuple):
    watts: float | None = None
    kind: Literal["average", "instant"] | None = None


def power(reading: Reading, hwmon: Hwmon | None, kind: Literal["average", "instant"] | None) -> Power:
    """Read the power of the card. `kind`: of the power in its gpu_metrics.

    From Linux 6.6 `power1_input` is what it draws at the moment and `power1_average` an average, and a card has one or
    both. Before that there is `power1_average` alone, whatever the firmware gives.

    What draws nothing does not answer: 0 is what firmware says that does not know, or not yet (MI350X for some seconds
    after its driver was loaded), and of the second die of an MI250.
    """
    if hwmon is None:
        return Power()
    told = {f"power1_{name}" for name in ("average", "input")} <= hwmon.files
    sources: tuple[tuple[str, Literal["average", "instant"] | None], ...] = (
        ("power1_average", "average" if told else kind),
        ("power1_input", "instant"),
    )
    for name, its_kind in sources:
        value = watts(reading, "power_watts", f"{hwmon.path}/{name}") if name in hwmon.files else None
        if value:
            return Power(value, its_kind)
        reading.sources.pop("power_watts", None)
    return Power()


def temperatures(reading: Reading, hwmon: Hwmon | None) -> dict[str, float]:
    """Read the temperatures by sensor. A card without labels has one sensor, at its edge."""
    return known(
        {
            _SENSORS[label]: celsius(reading, "temperature_celsius", f"{path}_input")
            for label, path in _temperatures(hwmon).items()
            if label in _SENSORS
        }
    )


def limits(reading: Reading, hwmon: Hwmon | None) -> dict[str, float]:
    """Read where the card takes measures: of the hottest place that it knows."""
    sensors = _temperatures(hwmon)
    found: dict[str, float | None] = {}
    for measure, places, what in _MEASURES:
        path = next((sensors[place] for place in places if place in sensors), None)
        if path is not None:
            # 0: not set.
            found[measure] = celsius(reading, "temperature_limit_celsius", f"{path}_{what}", live=False) or None
    return known(found)


def clocks(reading: Reading, hwmon: Hwmon | None, table: Mapping[str, float]) -> dict[str, float]:
    """Read the clocks by domain: from hwmon, else from `table`, that of gpu_metrics, else from power management."""
    name = "clock_hertz"
    labels = hwmon.labelled("freq") if hwmon is not None else {}
    found: dict[str, float] = {}
    for domain, (label, path) in _CLOCKS.items():
        value = None
        if hwmon is not None and label in labels:
            value = reading.number(name, f"{hwmon.path}/{labels[label]}_input", HERTZ, source="hwmon")
        if value is None:
            value = reading.note(name, table.get(domain), "gpu_metrics")
        if value is None:
            value = _current(reading, name, path)
        if value is not None:
            found[domain] = value
    return {**table, **found}


def _temperatures(hwmon: Hwmon | None) -> Mapping[str, str]:
    """Return the path of each sensor, without its ending, by label."""
    if hwmon is None:
        return {}
    found = {label: f"{hwmon.path}/{sensor}" for label, sensor in hwmon.labelled("temp").items()}
    return found or ({"edge": f"{hwmon.path}/temp1"} if "temp1_input" in hwmon.files else {})


def _current(reading: Reading, name: str, path: str) -> float | None:
    """Return the clock that is marked in a table such as `1: 500Mhz *`."""
    match = _CURRENT.search(reading.raw(name, path) or b"")
    if match is None:
        return None
    return reading.note(name, reading.readings.number(name, int(match[1]) * _MEGAHERTZ, HERTZ, bits=64), "sysfs")
