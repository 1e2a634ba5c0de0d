"""What the tables of APUs say (v2_1 to v2_4, v3_0): no accumulator, and the socket's power, which is the CPU's too."""

from typing import Any

from exporter.providers.drm.gpu_metrics.table import Table, known
from exporter.providers.sanitise import CELSIUS, RATIO, WATTS

_HUNDREDTHS = 100
_HUNDREDTHS_OF_PERCENT = 10_000
_MILLIWATTS = 1000

# Renoir and Cezanne give the socket's power in watts from some firmware on and in milliwatts before, and the table does
# not tell which. No socket of an APU draws 300 W, and none on which we run draws less than 1 W: what is between is
# neither.
_WATTS_BELOW = 300


def read_v2(table: Table) -> dict[str, Any]:
    """Return fields of Metrics of v2_1, v2_2 and v2_3. Drivers differ in the unit of the media engine's load."""
    raw = table.raw("socket_power")
    watts: float | None
    if raw is not None and raw < _WATTS_BELOW:
        watts = float(raw)
    else:
        doubtful = raw is not None and raw < _MILLIWATTS
        watts = table.readings.number("power_watts", -1 if doubtful else raw, WATTS, per=_MILLIWATTS)
    return {**_common(table), "utilization_ratio": _load(table), "power_watts": watts or None}


def read_v2_4(table: Table) -> dict[str, Any]:
    """Return fields of Metrics of v2_4, whose units are documented."""
    media = table.one("media_activity", "engine_utilization_ratio", RATIO, per=_HUNDREDTHS_OF_PERCENT)
    return {
        **_common(table),
        "utilization_ratio": _load(table),
        "engine_utilization_ratio": known({"media": media}),
        "power_watts": _socket(table),
    }


def read_v3(table: Table) -> dict[str, Any]:
    """Return fields of Metrics of v3_0.

    Not the load: it is documented as percent, and drivers write hundredths. gpu_busy_percent tells it.
    """
    watts = _socket(table)
    return {**_common(table), "power_watts": watts, "power_kind": None if watts is None else "average"}


def _common(table: Table) -> dict[str, Any]:
    edge = table.one("edge", "temperature_celsius", CELSIUS, per=_HUNDREDTHS)
    return {"temperature_celsius": known({"edge": edge}), "power_scope": "package"}


def _load(table: Table) -> float | None:
    return table.one("gfx_activity", "utilization_ratio", RATIO, per=_HUNDREDTHS_OF_PERCENT)


def _socket(table: Table) -> float | None:
    """Return the socket's power; 0 is a field that the firmware has not written: a CPU core runs this."""
    return table.one("socket_power", "power_watts", WATTS, per=_MILLIWATTS) or None
