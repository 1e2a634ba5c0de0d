"""What the power sensor and the energy accumulator of a package say."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from exporter.providers.amd.calls import Calls, mapping
from exporter.providers.amd.packages import Package
from exporter.providers.sanitise import JOULES, WATTS, Range, Readings

_TICKS_PER_JOULE = 65536  # a tick is 2^-16 J; amd-smi multiplies by 15.3 uJ and shows 0.27 % more
_MICROWATTS_FROM = 100_000  # limits are watts up to ROCm 6.1.1, microwatts from 6.1.2
_LIMITS = Range(0.0, WATTS.high * 1e6)
_LIMIT_STATUS_UNTIL = (25, 3)  # ROCm 6.4
_NANOSECONDS = Range(1.0, 1e18)

# MI200 and Radeon fill the average and leave the other at "no value"; MI300 and later the reverse. `socket_power` (7.0)
# repeats whichever is valid. AMD states no averaging window of either.
_SOURCES: tuple[tuple[str, Literal["instant", "average"] | None], ...] = (
    ("current_socket_power", "instant"),
    ("average_socket_power", "average"),
    ("socket_power", None),
)


class _Power(NamedTuple):
    watts: float | None = None
    kind: Literal["instant", "average"] | None = None


def read_energy(calls: Calls, package: Package, default_limit: float | None, readings: Readings) -> dict[str, Any]:
    """Read power, limits and accumulator of the package, as fields of Sample."""
    power, limit = _read_power(calls, package, readings)
    counter, counter_at = _read_counter(calls, package, readings)
    if package.group and power.watts is None:
        # The second die of an MI250 has no sensor, and its accumulator stands still.
        counter, counter_at = None, None
    return {
        "power_watts": power.watts,
        "power_kind": power.kind,
        "power_scope": package.scope,
        "power_limit_watts": limit,
        "power_limit_default_watts": default_limit,
        "energy_counter_joules": counter,
        "energy_counter_scope": package.scope,
        "energy_counter_at": counter_at,
    }


def read_default_limit(calls: Calls, package: Package, readings: Readings) -> float | None:
    """Return the limit in watts that the board starts with."""
    caps = calls.reading(readings, "power_limit_watts", "amdsmi_get_power_cap_info", package.handle)
    return limit_watts(readings, mapping(caps).get("default_power_cap"))


def limit_watts(readings: Readings, raw: object) -> float | None:
    """Return a power limit in watts, whichever unit this ROCm release gives it in; 0 is a member left unread."""
    value = readings.number("power_limit_watts", raw, _LIMITS)
    if not value:
        return None
    return readings.number("power_limit_watts", value / 1e6 if value > _MICROWATTS_FROM else value, WATTS)


def _read_power(calls: Calls, package: Package, readings: Readings) -> tuple[_Power, float | None]:
    info, broken = calls.ask("amdsmi_get_power_info", package.handle)
    known = mapping(info)
    power = _choose(known, readings)
    if power.watts is None and calls.version < _LIMIT_STATUS_UNTIL:
        # The status of this call is that of the limit: it fails on a card that has power but no limit, and succeeds
        # without a value where the metrics could not be read.
        metrics, metrics_broken = calls.ask("amdsmi_get_gpu_metrics_info", package.handle)
        power = _choose(mapping(metrics), readings)
        broken = broken or metrics_broken
    if power.watts is None and broken:
        readings.fail("power_watts")
    limit = limit_watts(readings, known.get("power_limit"))
    if limit is None:
        caps = calls.reading(readings, "power_limit_watts", "amdsmi_get_power_cap_info", package.handle)
        limit = limit_watts(readings, mapping(caps).get("power_cap"))
    return power, limit


def _choose(info: Mapping[str, Any], readings: Readings) -> _Power:
    """Take the first source that says more than 0.

    The unit is a watt, and what draws none does not answer: 0 is what is said by APUs that do not know, by the second
    die of an MI250, and by an MI350X for the first seconds after its driver was loaded.
    """
    found = (_Power(readings.number("power_watts", info.get(key), WATTS), kind) for key, kind in _SOURCES)
    return next((power for power in found if power.watts), _Power())


def _read_counter(calls: Calls, package: Package, readings: Readings) -> tuple[float | None, float | None]:
    raw = mapping(calls.reading(readings, "energy_counter_joules", "amdsmi_get_energy_count", package.handle))
    ticks = raw.get("energy_accumulator", raw.get("power"))  # `power` up to ROCm 6.3
    # Radeons leave it at 0 (seen on RX 9070), which one that counts has passed before its driver is loaded.
    joules = readings.number("energy_counter_joules", ticks, JOULES, per=_TICKS_PER_JOULE, bits=64) or None
    at = readings.number("energy_counter_at", raw.get("timestamp") or None, _NANOSECONDS, 1.0, bits=64)
    return joules, None if joules is None or at is None else at * 1e-9
