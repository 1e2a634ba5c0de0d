"""What a simulated device shows at a moment, as the fields of a Sample. Everything passes the sanitising gate."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from exporter import metrics
from exporter.model import Device, Fabric, Group, LinkSample, PartitionSample, ProcessSample
from exporter.providers.sanitise import (
    BYTES,
    CELSIUS,
    COUNT,
    FAN_RATIO,
    HERTZ,
    JOULES,
    LINK_GENERATION,
    LINK_WIDTH,
    PERFORMANCE_STATE,
    RATIO,
    WATTS,
    Range,
    Readings,
    text,
)
from exporter.providers.simulated.device import Row, SimulatedDevice
from exporter.providers.simulated.machine import Machine

_ALL_ONES = 0xFFFF_FFFF_FFFF_FFFF
_MARGIN = Range(-200.0, 200.0)
_SECONDS = Range(0.0, 1e12)
_MOVED = Range(0.0, 2.0**64)


class Moment(NamedTuple):
    """One device at one time."""

    machine: Machine
    device: SimulatedDevice
    t: float
    """Seconds since the epoch."""
    readings: Readings
    before: float | None = None
    """When the processes were read last."""

    def busy(self) -> float | None:
        """Return the mean load since the read before; None where processes' shares of it are not told."""
        if self.device.vendor == "nvidia" and self.device.numbers.get("mig_enabled"):
            return None
        since = self.t - 1.0 if self.before is None or self.before >= self.t else self.before
        then, now = (self.device.signal("gfx_busy_seconds", max(0.0, t)) for t in (since, self.t))
        return None if then is None or now is None else (now - then) / (self.t - since)

    def number(self, name: str, bounds: Range, field: str | None = None) -> float | None:
        return self.clean(field or name, self.device.signal(name, self.t), bounds)

    def clean(self, field: str, value: float | None, bounds: Range) -> float | None:
        # Infinite stands for the all-ones value of whatever type a vendor has there.
        return self.readings.number(field, _ALL_ONES if value == math.inf else value, bounds)

    def percent(self, name: str, field: str | None = None) -> float | None:
        """Read a utilisation, which all vendors give in whole percent."""
        value = self.device.signal(name, self.t)
        return self.clean(field or name, value if value is None or value == math.inf else round(value, 2), RATIO)

    def each(self, field: str, names: Mapping[str, str], bounds: Range) -> dict[str, float]:
        found = {label: self.number(name, bounds, field) for label, name in names.items()}
        return {label: value for label, value in found.items() if value is not None}


_FIRMWARE = {"vbios": "vbios_version", "inforom": "firmware_inforom", "gsp": "firmware_gsp"}

Fields = dict[str, Any]
"""Fields of a Sample by name."""

Call = Callable[[Moment], Fields]


def identify(device: SimulatedDevice, index: int) -> Device:
    """Return the identity; the model says that it is simulated."""
    texts, numbers = device.texts, device.numbers
    mode = None
    if device.vendor == "amd" and "compute_partition" in texts:
        mode = f"{texts['compute_partition']}/{texts.get('memory_partition', 'NPS1')}"
    elif numbers.get("mig_enabled"):
        mode = "mig"
    minor = numbers.get("minor")
    return Device(
        vendor=device.vendor,
        key=device.key,
        model=f"{text(texts.get('name')) or 'GPU'} (simulated)",
        pci_address=text(texts.get("pci_address")),
        serial=text(texts.get("serial")),
        vendor_uuid=text(texts.get("uuid")),
        index=index,
        minor=None if minor is None else int(minor),
        architecture=text(texts.get("architecture")),
        driver_version=text(texts.get("driver_version")),
        memory_kind="dedicated" if "memory_size_bytes" in numbers else None,
        partition_mode=mode,
        firmware={name: texts[key] for name, key in _FIRMWARE.items() if texts.get(key)},
    )


def _power(m: Moment) -> Fields:
    """Read the sensor that a vendor's provider would: NVIDIA's average, AMD's current power, else the other one."""
    kinds = ("average", "instant") if m.device.vendor == "nvidia" else ("instant", "average")
    fields: Fields = {
        "module_power_watts": m.number("module_power_watts", WATTS),
        "memory_power_watts": m.number("memory_power_watts", WATTS),
    }
    for kind in kinds:
        window = m.device.numbers.get(f"power_{kind}_window_seconds")
        if window is None:
            continue
        period = m.device.numbers.get(f"power_{kind}_period_seconds", 0.0)
        # In mW, as sensors answer: what is below is rounding of sums over a long life.
        watts = m.clean("power_watts", _round(m.device.power(m.t, window, period)), WATTS)
        if watts is not None:
            fields |= {
                "power_watts": watts,
                "power_kind": kind,
                "power_window_seconds": window if kind == "average" else 0.0,
            }
        break
    return fields


def _limits(m: Moment) -> Fields:
    names = ("power_limit_watts", "power_limit_default_watts")
    return {name: m.number(name, WATTS) for name in names}


def _accumulator(m: Moment) -> Fields:
    fields: Fields = {}
    joules = m.clean("energy_counter_joules", m.machine.accumulated(m.device, m.t), JOULES)
    if m.device.texts.get("counter_scope") == "module":
        return {"module_energy_counter_joules": joules}
    fields["energy_counter_joules"] = joules
    if joules is not None and m.device.vendor == "amd":
        fields["energy_counter_at"] = m.device.counter_time(m.t)
    module = m.machine.accumulated(m.device, m.t, "module")
    fields["module_energy_counter_joules"] = m.clean("module_energy_counter_joules", module, JOULES)
    return fields


def _utilization(m: Moment) -> Fields:
    field = "engine_utilization_ratio"
    engines = {engine: m.percent(f"{engine}_utilization_ratio", field) for engine in metrics.ENGINES}
    return {
        "utilization_ratio": m.percent("utilization_ratio"),
        "memory_controller_utilization_ratio": m.percent("memory_controller_utilization_ratio"),
        field: {engine: ratio for engine, ratio in engines.items() if ratio is not None},
    }


def _memory(m: Moment) -> Fields:
    return {
        "memory_used_bytes": m.number("memory_used_bytes", BYTES),
        "memory_size_bytes": m.number("memory_size_bytes", BYTES),
        "memory_reserved_bytes": m.number("memory_reserved_bytes", BYTES),
        "system_memory_used_bytes": m.number("gtt_used_bytes", BYTES, "system_memory_used_bytes"),
        "system_memory_size_bytes": m.number("gtt_size_bytes", BYTES, "system_memory_size_bytes"),
    }


def _temperatures(m: Moment) -> Fields:
    sensors = {sensor: f"temperature_{sensor}_celsius" for sensor in metrics.SENSORS}
    limits = {limit: f"temperature_limit_{limit}_celsius" for limit in metrics.LIMITS}
    return {
        "temperature_celsius": m.each("temperature_celsius", sensors, CELSIUS),
        "temperature_limit_celsius": m.each("temperature_limit_celsius", limits, CELSIUS),
        "temperature_margin_celsius": m.number("temperature_margin_celsius", _MARGIN),
    }


def _clocks(m: Moment) -> Fields:
    domains = {domain: f"clock_{domain}_hertz" for domain in metrics.DOMAINS}
    return {
        "clock_hertz": m.each("clock_hertz", domains, HERTZ),
        "performance_state": m.number("performance_state", PERFORMANCE_STATE),
        "fan_speed_ratio": m.number("fan_ratio", FAN_RATIO, "fan_speed_ratio"),
    }


def _throttling(m: Moment) -> Fields:
    flags = {reason: f"throttle_{reason}" for reason in metrics.REASONS}
    seconds = {reason: f"throttle_{reason}_seconds" for reason in metrics.REASONS}
    return {
        "throttled": {reason: bool(value) for reason, value in m.each("throttled", flags, RATIO).items()},
        "throttle_seconds": m.each("throttle_seconds", seconds, _SECONDS),
    }


def _errors(m: Moment) -> Fields:
    counts = {kind: f"ecc_{kind}" for kind in metrics.CLASSES}
    lifetime = {kind: f"ecc_lifetime_{kind}" for kind in metrics.CLASSES}
    causes = {cause: f"retired_pages_{cause}" for cause in metrics.RETIREMENT_CAUSES}
    failed = m.number("remap_failed", RATIO, "memory_remap_failed")
    pending = m.number("remap_pending", RATIO, "memory_remap_pending")
    return {
        "ecc_errors": m.each("ecc_errors", counts, COUNT),
        "ecc_lifetime_errors": m.each("ecc_lifetime_errors", lifetime, COUNT),
        "retired_pages": m.each("retired_pages", causes, COUNT),
        "memory_remap_failed": None if failed is None else bool(failed),
        "memory_remap_pending": None if pending is None else bool(pending),
    }


def _link(m: Moment) -> Fields:
    return {
        "pcie_link_generation": m.number("pcie_generation", LINK_GENERATION, "pcie_link_generation"),
        "pcie_link_width": m.number("pcie_width", LINK_WIDTH, "pcie_link_width"),
        "pcie_link_width_max": m.number("pcie_width_max", LINK_WIDTH, "pcie_link_width_max"),
        "pcie_replays": m.number("pcie_replays", COUNT),
        "links": _links(m),
        "fabric": _fabric(m),
        "recovery_action": _named(m.number("recovery_action", COUNT), metrics.RECOVERY_ACTIONS),
    }


def _links(m: Moment) -> tuple[LinkSample, ...] | None:
    count = m.number("link_count", COUNT, "links")
    if count is None:
        return None
    down = m.number("links_down", COUNT, "links") or 0.0
    kind = {"nvidia": "nvlink", "amd": "xgmi"}[m.device.vendor]
    errors = m.each("links", {error: f"link_{error}_errors" for error in metrics.LINK_ERRORS}, COUNT)
    receive, transmit = (m.number(f"link_{way}_bytes", _MOVED, "links") for way in ("receive", "transmit"))
    return tuple(
        LinkSample(
            kind=kind,
            link=str(number),
            up=number + down < count,
            receive_bytes=receive,
            transmit_bytes=transmit,
            errors=errors,
        )
        for number in range(int(count))
    )


def _fabric(m: Moment) -> Fabric | None:
    number = m.number("fabric_state", COUNT, "fabric")
    state = None if not number else _named(number - 1, metrics.FABRIC_STATES)
    if state is None:
        return None
    cluster, clique = m.device.texts.get("fabric_cluster_uuid"), m.number("fabric_clique", COUNT, "fabric")
    return Fabric(state=state, cluster_uuid=cluster, clique=None if clique is None else int(clique))


def _named(number: float | None, names: tuple[str, ...]) -> str | None:
    return names[int(number)] if number is not None and number < len(names) else None


def moved(m: Moment) -> Fields:
    """Read the bytes that went over PCIe, which are asked for by an option."""
    return {name: m.number(name, _MOVED) for name in ("pcie_receive_bytes", "pcie_transmit_bytes")}


def _profile(m: Moment) -> Fields:
    """Tell how busy the parts of the GPU were within the last second."""
    then, now = (m.device.signal("gfx_busy_seconds", max(0.0, t)) for t in (m.t - 1.0, m.t))
    fields: Fields = {}
    for part in ("sm_active", "sm_occupancy", "tensor_active", "dram_active"):
        share = m.device.numbers.get(f"{part}_share")
        if share is not None and then is not None and now is not None:
            fields[f"{part}_ratio"] = m.clean(f"{part}_ratio", round(share * (now - then), 5), RATIO)
    active = fields.get("sm_active_ratio")
    if active is not None and m.device.numbers.get("mig_enabled"):
        names = {_partition(m.device, row) for row in m.device.rows_at("partition", m.t)}
        fields["partition_sm_active_ratio"] = dict.fromkeys(sorted(names), active)
    return fields


def _partitions(m: Moment) -> Fields:
    rows = m.device.rows_at("partition", m.t)
    if not rows and "mig_enabled" not in m.device.numbers and "compute_partition" not in m.device.texts:
        return {}
    return {
        "partitions": tuple(
            PartitionSample(
                partition=_partition(m.device, row),
                uuid=row.texts.get("uuid"),
                profile=row.texts.get("profile"),
                memory_used_bytes=m.clean("partitions", row.numbers.get("memory_used_bytes"), BYTES),
                memory_size_bytes=m.clean("partitions", row.numbers.get("memory_size_bytes"), BYTES),
            )
            for row in rows
        )
    }


def _processes(m: Moment) -> Fields:
    """List who holds memory or a queue. With AMD's driver, one that holds neither is a bystander."""
    holding: list[ProcessSample] = []
    rows = m.device.rows_at("process", m.t)
    busy = m.busy()
    told = busy is not None and any("share" in row.numbers for row in rows)
    for row in rows:
        memory = row.numbers.get("memory_used_bytes")
        if m.device.vendor == "amd" and memory == 0 and not row.numbers.get("queues"):
            continue
        started = row.numbers.get("started")
        holding.append(
            ProcessSample(
                pid=int(row.numbers["pid"]),
                started=None if started is None else int(started),
                name=row.texts.get("name"),
                memory_used_bytes=m.clean("processes", memory, BYTES),
                partition=_partition(m.device, row) if "gi" in row.numbers else None,
                busy_ratio=(busy or 0.0) * row.numbers.get("share", 0.0) if told else None,
            )
        )
    counts = {"holding": len(holding), "bystander": len(rows) - len(holding)}
    return {"processes": tuple(holding), "process_counts": counts}


def _partition(device: SimulatedDevice, row: Row) -> str:
    if device.vendor == "amd":
        return str(int(row.numbers["partition_id"]))
    instance = row.numbers["gi"]
    alone = sum(other.kind == "partition" and other.numbers["gi"] == instance for other in device.rows) <= 1
    return f"gi{instance:.0f}" if alone else f"gi{instance:.0f}ci{row.numbers['ci']:.0f}"


def _round(watts: float) -> float:
    return round(watts, 3) if math.isfinite(watts) else watts


CALLS: Mapping[Group, Mapping[str, Call]] = {
    Group.ENERGY: {"accumulator": _accumulator, "power": _power, "limits": _limits},
    Group.LOAD: {"utilization": _utilization, "memory": _memory},
    Group.STATE: {
        "temperatures": _temperatures,
        "clocks": _clocks,
        "throttling": _throttling,
        "errors": _errors,
        "link": _link,
        "partitions": _partitions,
    },
    Group.PROCESSES: {"processes": _processes},
    Group.PROFILING: {"profile": _profile},
}
"""What stands for the calls into a vendor's library, by name: faults of a scenario name them."""

FAILS: Mapping[str, str] = {
    "accumulator": "energy_counter_joules",
    "power": "power_watts",
    "limits": "power_limit_watts",
    "utilization": "utilization_ratio",
    "memory": "memory_used_bytes",
    "temperatures": "temperature_celsius",
    "clocks": "clock_hertz",
    "throttling": "throttled",
    "errors": "ecc_errors",
    "link": "pcie_link_width",
    "partitions": "partitions",
    "processes": "processes",
    "profile": "sm_active_ratio",
}
"""The reading that is said to have broken when a call fails."""
