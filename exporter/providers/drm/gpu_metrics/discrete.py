"""What the tables of discrete GPUs say (v1_0 to v1_8), MI300A among them: whole watts, percent, degrees Celsius."""

from itertools import zip_longest
from typing import Any

from exporter.model import LinkSample
from exporter.providers.drm.gpu_metrics.layouts import PARTITIONS, busy_of, jpeg_of, video_of
from exporter.providers.drm.gpu_metrics.table import Table, known
from exporter.providers.sanitise import (
    CELSIUS,
    COUNT,
    JOULES,
    LINK_GENERATION,
    LINK_WIDTH,
    RATIO,
    WATTS,
    Range,
)

_MOST_STACKS = 8
_TICKS_PER_JOULE = 65536
_BITS_OF_V1_0 = 32
_RPM = Range(0.0, 60_000.0)
_PERCENT = 100
_KIB = 1024
_GENERATIONS = {25: 1, 50: 2, 80: 3, 160: 4, 320: 5, 640: 6}
"""By link speed in 0.1 GT/s."""
_SPEEDS = Range(0.0, 10_000.0)
_BYTES_MOVED = Range(0.0, 1e21)
_LINK_UP = {0: False, 1: True}


def read_energy(table: Table) -> dict[str, Any]:
    """Return the fields of Metrics that are about power and energy."""
    # One of the two: up to v1_3 there is the average alone, from v1_4 the current power alone.
    average = table.one("average_power", "power_watts", WATTS)
    current = table.one("current_power", "power_watts", WATTS)
    return {
        "power_watts": current if average is None else average,
        "power_kind": "average" if average is not None else "instant" if current is not None else None,
        **_accumulator(table),
    }


def read_discrete(table: Table) -> dict[str, Any]:
    """Return fields of Metrics."""
    parts = table.raw("partitions")
    count = parts if parts is not None and 0 < parts <= PARTITIONS else None
    return {
        **read_energy(table),
        "utilization_ratio": table.one("gfx_activity", "utilization_ratio", RATIO, per=_PERCENT),
        "memory_controller_utilization_ratio": table.one(
            "umc_activity", "memory_controller_utilization_ratio", RATIO, per=_PERCENT
        ),
        "engine_utilization_ratio": _engines(table),
        "temperature_celsius": _temperatures(table),
        "fan_rpm": table.one("fan_speed", "fan_speed_ratio", _RPM),
        "pcie_link_generation": _generation(table),
        "pcie_link_width": table.one("pcie_width", "pcie_link_width", LINK_WIDTH) or None,
        "pcie_replays": table.one("pcie_replays", "pcie_replays", COUNT),
        "links": _links(table),
        "partition_count": count,
        "partition_utilization_ratio": known({str(number): _busy(table, number) for number in range(count or 0)}),
    }


def _accumulator(table: Table) -> dict[str, float | None]:
    # Radeons leave it at 0 (seen on RX 9070), which one that counts has passed before its driver is loaded.
    if not table.raw("energy"):
        return {}
    joules = table.one("energy", "energy_counter_joules", JOULES, per=_TICKS_PER_JOULE)
    wraps = joules is not None and table.bits("energy") == _BITS_OF_V1_0
    return {
        "energy_counter_joules": joules,
        "energy_counter_range_joules": 2**_BITS_OF_V1_0 / _TICKS_PER_JOULE if wraps else None,
    }


def _engines(table: Table) -> dict[str, float]:
    every = range(PARTITIONS)
    media = ("media_activity", "video", *map(video_of, every))
    jpeg = ("jpeg", *map(jpeg_of, every))
    name = "engine_utilization_ratio"
    return known(
        {"media": table.mean(media, name, RATIO, per=_PERCENT), "jpeg": table.mean(jpeg, name, RATIO, per=_PERCENT)}
    )


def _temperatures(table: Table) -> dict[str, float]:
    name = "temperature_celsius"
    stacks = table.each("hbm", name, CELSIUS)[:_MOST_STACKS]
    single = {sensor: table.one(sensor, name, CELSIUS) for sensor in ("edge", "hotspot", "memory")}
    return known({**single, **{f"hbm{stack}": value for stack, value in enumerate(stacks)}})


def _generation(table: Table) -> float | None:
    """Return the generation of the link, from its speed in 0.1 GT/s or, on some chips, a number up to 6."""
    name = "pcie_link_generation"
    speed = table.one("pcie_speed", name, _SPEEDS)
    if not speed or speed <= max(_GENERATIONS.values()):
        return speed or None
    generation = _GENERATIONS.get(int(speed))
    return table.readings.number(name, LINK_GENERATION.high + 1 if generation is None else generation, LINK_GENERATION)


def _links(table: Table) -> tuple[LinkSample, ...] | None:
    """Return the XGMI links by number; None where there is none that is up or has moved anything.

    Up to v1_6 no state is told, and a slot that has no link counts nothing.
    """
    read = table.each("xgmi_read", "links", _BYTES_MOVED, _KIB)
    written = table.each("xgmi_write", "links", _BYTES_MOVED, _KIB)
    states = table.each("xgmi_status", "links", COUNT)
    links = []
    for number, (receive, transmit, state) in enumerate(zip_longest(read, written, states)):
        up = None if state is None else _LINK_UP.get(int(state))
        if up is not None or receive or transmit:
            links.append(
                LinkSample(kind="xgmi", link=str(number), up=up, receive_bytes=receive, transmit_bytes=transmit)
            )
    return tuple(links) if any(link.up or link.receive_bytes or link.transmit_bytes for link in links) else None


def _busy(table: Table, number: int) -> float | None:
    """Return the mean over the compute dies of a partition; what is left of its list are ones."""
    return table.mean((busy_of(number),), "partitions", RATIO, per=_PERCENT)
