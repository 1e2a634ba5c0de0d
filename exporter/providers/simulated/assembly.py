"""From a scenario to devices: what follows from what (power from load, heat from power, memory from processes)."""

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

from exporter.providers.simulated import loads
from exporter.providers.simulated.accumulators import accumulators
from exporter.providers.simulated.catalogue import DRIVERS, GIB, LIBRARIES, MIB, MODELS, Clock, Model
from exporter.providers.simulated.device import Fault, Integral, Mean, Override, Row, SimulatedDevice
from exporter.providers.simulated.physics import Track, Window, heated
from exporter.providers.simulated.residents import memory_used, partition_rows, process_rows
from exporter.providers.simulated.schema import DeviceSpec, FaultSpec, Scenario, Timed

LOST_STATUS: Mapping[str, int] = {"nvidia": 15, "amd": 12}
"""GPU_IS_LOST of NVML, IO of AMD SMI."""

GARBAGE: Mapping[str, float] = {
    "power_watts": 60_000.0,
    "utilization_ratio": 42.0,
    "memory_controller_utilization_ratio": 42.0,
    "memory_used_bytes": 2.0**59,
    "temperature_gpu_celsius": 9_999.0,
    "temperature_hotspot_celsius": 9_999.0,
    "temperature_memory_celsius": 9_999.0,
    "clock_graphics_hertz": 9e11,
    "fan_ratio": 90.0,
}
"""What readings show that are garbage, unless the scenario says so: none of it is physical."""

_NVIDIA_REASONS = ("application_clocks", "display_clocks", "hw_power_brake", "hw_slowdown", "hw_thermal", "sw_thermal", "sync_boost")  # fmt: skip
_NVIDIA_TIMED_REASONS = ("hw_power_brake", "hw_thermal", "sw_thermal", "sync_boost")
_AMD_REASONS = ("hw_thermal", "memory_thermal", "processor_hot", "sw_thermal", "voltage_regulator_thermal")

# Driver windows of utilisation: NVML between 1/6 s and 1 s by product; AMD's firmware averages over its table's period.
_UTILIZATION_WINDOW: Mapping[str, float] = {"nvidia": 1 / 6, "amd": 0.1}


@dataclass(frozen=True, slots=True)
class Assembled:
    devices: tuple[SimulatedDevice, ...]
    texts: Mapping[str, str]
    numbers: Mapping[str, float]
    faults: tuple[Fault, ...]


def assemble(scenario: Scenario) -> Assembled:
    """Build all devices. Raises ValueError where two of them would have the same key."""
    devices: list[SimulatedDevice] = []
    per_vendor: dict[str, int] = {}
    for spec in scenario.devices:
        model = MODELS[spec.model]
        for copy in range(spec.count):
            number = per_vendor.get(model.vendor, 0)
            per_vendor[model.vendor] = number + 1
            devices.append(_Assembly(scenario, spec, model, len(devices), number, copy).device())
    # A process loads the library of one vendor; on a machine of both, each device says its own versions as well.
    vendor = "nvidia" if "nvidia" in per_vendor or not per_vendor else "amd"
    texts = {
        "driver_version": scenario.driver_version or DRIVERS[vendor],
        "library_version": scenario.library_version or LIBRARIES[vendor],
        "cuda_version": scenario.cuda_version,
        **{f"{name}_driver_version": version for name, version in DRIVERS.items()},
        **{f"{name}_library_version": version for name, version in LIBRARIES.items()},
    }
    faults = tuple(_fault(f, 0) for f in scenario.faults)
    return Assembled(tuple(devices), texts, {"kernel_driver_loaded": float(scenario.driver_loaded)}, faults)


class _Assembly:
    """One device while it is put together."""

    def __init__(self, scenario: Scenario, spec: DeviceSpec, model: Model, index: int, number: int, copy: int) -> None:
        self._scenario, self._spec, self._model = scenario, spec, model
        self._index, self._number, self._copy = index, number, copy
        self._texts: dict[str, str] = {}
        self._numbers: dict[str, float] = {}
        self._tracks: dict[str, Track] = {}
        self._readings: dict[str, Mean | Integral] = {}

    def device(self) -> SimulatedDevice:
        model, spec = self._model, self._spec
        self._identity()
        self._power()
        self._load()
        self._memory()
        self._state()
        if spec.partitions and model.vendor == "nvidia":
            # The parent of MIG instances refuses every kind of utilisation.
            self._remove(
                name for name in (*self._readings, *self._tracks, *self._numbers) if name.endswith("utilization_ratio")
            )
        self._given()
        texts = {name: text for name, text in self._texts.items() if text}
        key = texts["uuid"] if model.vendor == "nvidia" else texts["unique_id"]
        rows = (*partition_rows(spec, model, key, self._numbers), *process_rows(spec, self._index))
        plain = SimulatedDevice(key=key, vendor=model.vendor, texts=texts, numbers=self._numbers, tracks=self._tracks, readings=self._readings)  # fmt: skip
        return SimulatedDevice(
            key=key,
            vendor=model.vendor,
            texts=texts,
            numbers=self._numbers,
            tracks=self._tracks,
            readings=self._readings,
            overrides=tuple(self._overrides(plain)),
            accumulators=accumulators(spec.accumulator, model, self._tracks),
            rows=rows,
            faults=tuple(
                _fault(f, LOST_STATUS[model.vendor]) for f in spec.faults if f.kind not in ("garbage", "stuck", "ones")
            ),
        )

    def _identity(self) -> None:
        model, n = self._model, self._number
        digest = hashlib.sha256(f"{self._spec.model} {self._index}".encode()).hexdigest()
        bus = (0x1B + 0x11 * self._index) % 256
        domain = self._index // 256
        texts = {
            "name": model.name,
            "architecture": model.architecture,
            "serial": f"1{int(digest[40:52], 16) % 10**12:012d}",
            "board_name": model.name,
            "memory_type": model.memory_type,
            "pci_address": f"{domain:04x}:{bus:02x}:00.0",
            "driver_version": self._scenario.driver_version or DRIVERS[model.vendor],
        }
        numbers = {
            "pci_device_id": model.pci_device_id,
            "pci_subsystem_id": model.pci_subsystem_id,
            "pci_revision": 0xA1 if model.vendor == "nvidia" else 0,
            "minor": n,
        }
        if model.vendor == "nvidia":
            texts["uuid"] = f"GPU-{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"
        else:
            unique = digest[:16]
            texts["unique_id"] = unique
            # As the library derives it from unique_id and the PCI device id, up to ROCm 6.4.
            texts["uuid"] = f"{unique[:2]}ff{model.pci_device_id:04x}-0000-1000-80{unique[2:4]}-{unique[4:]}"
            if model.compute_partitions:
                texts |= {"compute_partition": "SPX", "memory_partition": "NPS1"}
            render = 128 + 8 * n if model.compute_partitions else 128 + n
            numbers |= {
                "minor": render,
                "render_minor": render,
                "card_minor": n + 1,
                "kfd_gpu_id": int(digest[32:36], 16) or 1,
                "kfd_node_id": n + 2,
                "hip_id": n,
            }
        self._texts = {**texts, **model.texts}
        self._numbers = {**{k: float(v) for k, v in numbers.items()}, **{k: float(v) for k, v in model.numbers.items()}}
        given = self._spec.texts.pci_address or texts["pci_address"]
        address, _, function = given.rpartition(".")
        for name, part in zip(("pci_domain", "pci_bus", "pci_device"), address.split(":"), strict=True):
            self._numbers[name] = float(int(part, 16))
        self._numbers["pci_function"] = float(int(function, 16))

    def _power(self) -> None:
        model = self._model
        limit = self._spec.values.power_limit_watts
        limit = model.limit_watts if limit is None else limit
        self._demand = loads.demand(self._spec.load, model, self._copy)
        self._limit = limit
        power = self._demand.map(lambda watts: min(watts, limit))
        if self._spec.values.power_watts is not None:
            power = Track.constant(self._spec.values.power_watts)
        self._tracks["power_watts"] = power
        self._numbers |= {
            "power_limit_watts": limit,
            "power_limit_default_watts": model.limit_watts,
            "power_limit_min_watts": model.limit_min_watts,
            "power_limit_max_watts": model.limit_watts,
        }
        for kind, sensor in (("average", model.average), ("instant", model.instant)):
            if sensor is not None:
                self._numbers[f"power_{kind}_window_seconds"] = sensor.window
                self._numbers[f"power_{kind}_period_seconds"] = sensor.period
        if model.usage is not None:
            self._texts["power_usage_kind"] = model.usage
        if model.memory_power is not None:
            low, high = model.memory_power
            self._varying("memory_power_watts", lambda share: low + (high - low) * share)
        if model.module is not None:
            constant = model.module.constant
            self._tracks["module_power_watts"] = power.map(lambda watts: watts + constant)
            self._numbers["module_power_limit_watts"] = model.module.limit
        if model.accumulator_period is not None and self._spec.accumulator.kind != "absent":
            self._texts["counter_scope"] = self._spec.accumulator.scope or model.accumulator_scope
            self._numbers["counter_period_seconds"] = self._spec.accumulator.period_seconds or model.accumulator_period
            self._numbers["counter_resolution_joules"] = self._spec.accumulator.resolution_joules or model.resolution

    def _load(self) -> None:
        window = _UTILIZATION_WINDOW[self._model.vendor]

        def busy(share: float) -> float:
            return min(1.0, round(1.15 * share, 6))

        engines = {"nvidia": ("encoder", "decoder"), "amd": ()}[self._model.vendor]
        if self._model.vendor == "nvidia" and self._model.architecture != "turing":
            engines = (*engines, "jpeg", "ofa")
        if self._model.vendor == "amd" and not self._model.compute_partitions:
            engines = ("media",)
        for engine in engines:
            self._numbers[f"{engine}_utilization_ratio"] = 0.0
        self._varying("utilization_ratio", busy)
        self._varying("memory_controller_utilization_ratio", lambda share: 0.6 * busy(share))
        for name in ("utilization_ratio", "memory_controller_utilization_ratio"):
            if name in self._tracks:
                self._readings[name] = Mean(name, window, window)
        if self._model.vendor == "amd":
            self._tracks["gfx_busy"] = self._share().map(busy)
            self._readings["gfx_busy_seconds"] = Integral("gfx_busy")

    def _memory(self) -> None:
        model = self._model
        self._numbers["memory_size_bytes"] = float(model.memory_size_bytes)
        if model.memory_reserved_bytes is not None:
            self._numbers["memory_reserved_bytes"] = float(model.memory_reserved_bytes)
        used = memory_used(self._spec.processes, float(model.memory_idle_bytes))
        self._put("memory_used_bytes", used)
        if model.vendor == "nvidia":
            self._numbers["bar1_size_bytes"] = 2.0 ** math.ceil(math.log2(model.memory_size_bytes))
            self._numbers["bar1_used_bytes"] = 1.0 * MIB
        else:
            self._numbers["visible_memory_size_bytes"] = float(model.memory_size_bytes)
            self._put("visible_memory_used_bytes", used)
            self._numbers["gtt_size_bytes"] = 128.0 * GIB
            self._put("gtt_used_bytes", memory_used(self._spec.processes, 20.0 * MIB, gtt=True))

    def _state(self) -> None:
        model, power = self._model, self._tracks["power_watts"]
        for sensor, warmth in model.warmth.items():
            track = heated(power, ambient=warmth.ambient, per_watt=warmth.per_watt, time_constant=warmth.time_constant, step=1.0)  # fmt: skip
            self._put(f"temperature_{sensor}_celsius", track)
        if model.margin_limit_celsius is not None:
            margin = model.margin_limit_celsius
            if "temperature_gpu_celsius" in self._tracks:
                self._put(
                    "temperature_margin_celsius", self._tracks["temperature_gpu_celsius"].map(lambda t: margin - t)
                )
            else:
                self._numbers["temperature_margin_celsius"] = margin - self._numbers["temperature_gpu_celsius"]
        for limit, celsius in model.limits.items():
            self._numbers[f"temperature_limit_{limit}_celsius"] = celsius
        for domain, clock in model.clocks.items():
            self._clock(domain, clock)
        self._throttle()
        if model.fan:
            self._varying("fan_ratio", lambda share: 0.0 if share < 0.1 else round(0.25 + 0.5 * share, 2))
            self._varying("fan_rpm", lambda share: 0.0 if share < 0.1 else round(900 + 1700 * share))
        self._errors()
        self._numbers |= {
            "pcie_generation": float(model.pcie_generation),
            "pcie_generation_max": float(model.pcie_generation),
            "pcie_width": float(model.pcie_width),
            "pcie_width_max": float(model.pcie_width),
            "pcie_replays": 0.0,
        }
        if model.vendor == "nvidia":
            self._numbers["persistence_mode"] = 1.0
            sleeps = model.clocks["memory"].idle < model.clocks["memory"].highest
            self._varying("performance_state", lambda share: 8.0 if sleeps and share <= 0 else 0.0)
        else:
            self._varying("voltage_graphics_volts", lambda share: round(0.65 + 0.2 * share, 3))
            self._numbers |= {"voltage_soc_volts": 0.8, "voltage_memory_volts": 1.2}
        if model.mig_max_count:
            self._numbers["mig_max_count"] = float(model.mig_max_count)
            self._numbers["mig_enabled"] = float(bool(self._spec.partitions))

    def _clock(self, domain: str, clock: Clock) -> None:
        limit = self._limit

        def hertz(watts: float) -> float:
            share = loads.share(self._model, watts)
            if share <= 0:
                return clock.idle
            # A capped GPU gives up clock: power goes roughly with its cube.
            capped = (limit / watts) ** (1 / 3) if watts > limit > 0 else 1.0
            return round(clock.highest * capped * (1.0 - 0.08 * share) / 5e6) * 5e6

        busy = self._demand.map(hertz) if domain in ("graphics", "sm") else self._demand.map(lambda w: clock.highest if loads.share(self._model, w) > 0 else clock.idle)  # fmt: skip
        self._put(f"clock_{domain}_hertz", busy)
        self._numbers[f"clock_{domain}_max_hertz"] = clock.highest

    def _throttle(self) -> None:
        limit, nvidia = self._limit, self._model.vendor == "nvidia"
        for reason in _NVIDIA_REASONS if nvidia else _AMD_REASONS:
            self._numbers[f"throttle_{reason}"] = 0.0
        for reason in _NVIDIA_TIMED_REASONS if nvidia else _AMD_REASONS:
            self._numbers[f"throttle_{reason}_seconds"] = 0.0
        self._tracks["throttle_sw_power_cap"] = self._demand.map(lambda watts: float(watts > limit))
        self._readings["throttle_sw_power_cap_seconds"] = Integral("throttle_sw_power_cap")
        if nvidia:
            self._varying("throttle_idle", lambda share: float(share <= 0))

    def _errors(self) -> None:
        model = self._model
        if model.ecc:
            names = ["ecc_corrected", "ecc_uncorrected"]
            names += (
                ["ecc_lifetime_corrected", "ecc_lifetime_uncorrected"] if model.vendor == "nvidia" else ["ecc_deferred"]
            )
            self._numbers |= dict.fromkeys(names, 0.0)
        if model.page_retirement:
            self._numbers |= {"retired_pages_single_bit": 0.0, "retired_pages_double_bit": 0.0, "remap_pending": 0.0}
        elif model.ecc and model.vendor == "nvidia":
            self._numbers |= dict.fromkeys(
                ("remapped_corrected", "remapped_uncorrected", "remap_pending", "remap_failed"), 0.0
            )

    def _given(self) -> None:
        """Fixed values and texts of the scenario, then what it says is absent."""
        for name, value in msgspec.structs.asdict(self._spec.values).items():
            if value is not None:
                if name != "power_watts":
                    self._remove((name,))
                    self._numbers[name] = float(value)
        for name, text in msgspec.structs.asdict(self._spec.texts).items():
            if text is not None:
                self._texts[name] = text
        self._remove(self._spec.absent)

    def _remove(self, names: "Iterator[str] | tuple[str, ...]") -> None:
        for name in tuple(names):
            self._texts.pop(name, None)
            self._numbers.pop(name, None)
            self._tracks.pop(name, None)
            self._readings.pop(name, None)

    def _share(self) -> Track:
        return self._demand.map(lambda watts: loads.share(self._model, watts))

    def _varying(self, name: str, function: "Callable[[float], float]") -> None:
        self._put(name, self._share().map(function))

    def _put(self, name: str, track: Track) -> None:
        """A track that never changes is a plain number."""
        values = {s.value for s in (*track.prefix, *track.period)}
        if len(values) == 1:
            self._numbers[name] = float(values.pop())
        else:
            self._tracks[name] = track

    def _overrides(self, plain: SimulatedDevice) -> Iterator[Override]:
        for f in self._spec.faults:
            window = window_of(f)
            given = {k: v for k, v in msgspec.structs.asdict(f.values).items() if v is not None}
            match f.kind:
                case "ones":
                    values = dict.fromkeys(f.readings or ("power_watts",), math.inf)
                case "garbage":
                    values = given or {name: value for name, value in GARBAGE.items() if _has(plain, name)}
                case "stuck":
                    values = given or {
                        name: _shown(plain, name, window.start) for name in f.readings or ("power_watts",)
                    }
                case _:
                    continue
            for name, value in values.items():
                yield Override(name, window, float(value))


def window_of(timed: Timed) -> Window:
    end = math.inf if timed.to_seconds is None else timed.to_seconds
    return Window(timed.from_seconds, end, timed.every_seconds or 0.0, timed.lasting_seconds or 0.0)


def _fault(spec: FaultSpec, lost: int) -> Fault:
    status = spec.status or (lost if spec.kind in ("lost", "removed") else 0)
    # Only the kinds that vendor calls suffer get here; the rest are overrides.
    return Fault(kind=spec.kind, window=window_of(spec), call=spec.call, status=status, seconds=spec.seconds)


def _has(device: SimulatedDevice, name: str) -> bool:
    return device.signal(name, 0.0) is not None


def _shown(device: SimulatedDevice, name: str, t: float) -> float:
    """Return what the reading shows at `t`; power as the device's main sensor does."""
    if name == "power_watts":
        kind = "average" if "power_average_window_seconds" in device.numbers else "instant"
        window = device.numbers.get(f"power_{kind}_window_seconds", 0.0)
        return device.power(t, window, device.numbers.get(f"power_{kind}_period_seconds", 0.0))
    return device.signal(name, t) or 0.0
