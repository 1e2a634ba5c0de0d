"""What the tables of APUs say (v2_1 to v2_4, v3_0): the socket's power, no accumulator, hundredths of degrees."""

from typing import Any

from exporter.providers.drm.gpu_metrics.table import Table, known
from exporter.providers.sanitise import CELSIUS, RATIO, WATTS

_HUNDREDTHS = 100

# Renoir and Cezanne give the socket's power in watts from some firmware on and in milliwatts before, and the table does
# not tell which. No socket of an APU draws 300 W, and none on which we run draws less than 1 W: what is between is
# neither.
_WATTS_BELOW = 300
_MILLIWATTS_FROM = 1000


def read_apu(table: Table) -> dict[str, Any]:
    """Return fields of Metrics of v2_1, v2_2 and v2_3."""
    raw = table.raw("socket_power")
    watts = None
    if raw:
        unit = 1 if raw < _WATTS_BELOW else 1000
        # Neither unit: too large for a socket, so that it is counted as rejected.
        doubtful = _WATTS_BELOW <= raw < _MILLIWATTS_FROM
        watts = table.readings.number("power_watts", WATTS.high + 1 if doubtful else raw, WATTS, per=unit)
    return {**_common(table), **_activity(table), "power_watts": watts}


def read_apu_in_milliwatts(table: Table) -> dict[str, Any]:
    """Return fields of Metrics of v2_4."""
    return {**_common(table), **_activity(table), "power_watts": _milliwatts(table)}
