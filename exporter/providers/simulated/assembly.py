"""From a scenario to devices: what follows from what (power from load, heat from power, memory from processes)."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import msgspec

from exporter.providers.simulated import loads
from exporter.providers.simulated.accumulators import MODULE, accumulators
from exporter.providers.simulated.catalogue import DRIVERS, GIB, LIBRARIES, MIB, MODELS, Clock, Model, Sensor, Vendor
from exporter.providers.simulated.device import Fault, Integral, Mean, SimulatedDevice
from exporter.providers.simulated.events import event_rows
from exporter.providers.simulated.faults import call_faults, overrides
from exporter.providers.simulated.identity import identity, pci_numbers
from exporter.providers.simulated.physics import Track, heated
from exporter.providers.simulated.residents import memory_used, partition_rows, process_rows
from exporter.providers.simulated.schema import DeviceSpec, Scenario

FAN_STARTS = 0.1
"""Share of full load below which fans stand still."""

_NVIDIA_REASONS = (
    "application_clocks",
    "display_clocks",
    "hw_power_brake",
    "hw_slowdown",
    "hw_thermal",
    "sw_thermal",
    "sync_boost",
)
_NVIDIA_TIMED_REASONS = ("hw_power_brake", "hw_thermal", "sw_thermal", "sync_boost")
_AMD_REASONS = ("hw_thermal", "memory_thermal", "processor_hot", "sw_thermal", "voltage_regulator_thermal")

_EVENT_TYPES = float(0x18F)
"""Of NVML: what a GPU of a data centre reports, XIDs (0x8) among it."""
_LINK_BYTES_PER_SECOND, _PCIE_BYTES_PER_SECOND = 6e9, 2e9
"""At full load, one way."""
_CLUSTER = "a3f1c2d4-5b60-4a7e-8c91-0d2e3f4a5b6c"
_PROFILE: Mapping[str, float] = {
    "sm_active_share": 0.94,
    "sm_occupancy_share": 0.41,
    "tensor_active_share": 0.52,
    "dram_active_share": 0.6,
}
"""Of the time in which a kernel runs: how busy the parts are then."""

# Driver windows of utilisation: NVML between 1/6 s and 1 s by product; AMD's firmware averages over its table's period.
_UTILIZATION_WINDOW: Mapping[str, float] = {"nvidia": 1 / 6, "amd": 0.1}


@dataclass(frozen=True, slots=True)
class Assembled:
    devices: tuple[SimulatedDevice, ...]
    texts: Mapping[str, str]
    numbers: Mapping[str, float]
    faults: tuple[Fault, ...]


def assemble(scenario: Scenario) -> Assembled:
    """Build all devices of a scenario that has been checked."""
    devices: list[SimulatedDevice] = []
    per_vendor: dict[str, int] = {}
    for spec in scenario.devices:
        model = MODELS[spec.model]
        for copy in range(spec.count):
            number = per_vendor.get(model.vendor, 0)
            per_vendor[model.vendor] = number + 1
            devices.append(_Assembly(scenario, spec, model, len(devices), number, copy).device())
    # A process loads the library of one vendor; on a machine of both, each device says its own versions as well.
    vendor: Vendor = "nvidia" if "nvidia" in per_vendor or not per_vendor else "amd"
    texts = {
        "driver_version": scenario.driver_version or DRIVERS[vendor],
        "library_version": scenario.library_version or LIBRARIES[vendor],
        "cuda_version": scenario.cuda_version,
        **{f"{name}_driver_version": version for name, version in DRIVERS.items()},
        **{f"{name}_library_version": version for name, version in LIBRARIES.items()},
    }
    numbers = {"kernel_driver_loaded": float(scenario.driver_loaded)}
    return Assembled(tuple(devices), texts, numbers, call_faults(scenario.faults, ""))


class _Assembly:
    """One device while it is put together."""

    def __init__(self, scenario: Scenario, spec: DeviceSpec, model: Model, index: int, number: int, copy: int) -> None:
        self._spec, self._model, self._index, self._copy = spec, model, index, copy
        self._texts, self._numbers = identity(model, spec.model, index, number)
        self._texts["driver_version"] = scenario.driver_version or DRIVERS[model.vendor]
        self._tracks: dict[str, Track] = {}
        self._readings: dict[str, Mean | Integral] = {}
        self._shared: Track | None = None

    def device(self) -> SimulatedDevice:
        model, spec = self._model, self._spec
        self._power()
        self._load()
        self._memory()
        self._state()
        if spec.partitions and model.vendor == "nvidia":
            # The parent of MIG instances refuses every kind of utilisation.
            self._remove(
                [n for n in (*self._readings, *self._tracks, *self._numbers) if n.endswith("utilization_ratio")]
            )
        self._given()
        key = self._texts["uuid" if model.vendor == "nvidia" else "unique_id"]
        device = SimulatedDevice(
            key=key,
            vendor=model.vendor,
            texts=self._texts,
            numbers=self._numbers,
            tracks=self._tracks,
            readings=self._readings,
            accumulators=accumulators(spec.accumulator, model, self._tracks),
            rows=(
                *partition_rows(spec, model, key, self._numbers),
                *process_rows(spec, self._index),
                *event_rows(spec.faults, model.vendor),
            ),
            faults=call_faults(spec.faults, model.vendor),
        )
        return replace(device, overrides=tuple(overrides(spec.faults, device)))

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
            given = self._spec.values.module_power_watts
            module = power.map(lambda watts: watts + constant) if given is None else Track.constant(given)
            self._tracks[MODULE] = module
            sensor = model.average or Sensor(0.0, 0.0)
            self._readings["module_power_watts"] = Mean(MODULE, sensor.window, sensor.period)
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
            track = heated(power, warmth, step=1.0)
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
            self._varying("fan_ratio", lambda share: 0.0 if share < FAN_STARTS else round(0.25 + 0.5 * share, 2))
            self._varying("fan_rpm", lambda share: 0.0 if share < FAN_STARTS else round(900 + 1700 * share))
        self._errors()
        self._links()
        self._numbers |= {
            "pcie_generation": float(model.pcie_generation),
            "pcie_generation_max": float(model.pcie_generation),
            "pcie_width": float(model.pcie_width),
            "pcie_width_max": float(model.pcie_width),
            "pcie_replays": 0.0,
        }
        self._counted("pcie_transmit_bytes", _PCIE_BYTES_PER_SECOND)
        self._counted("pcie_receive_bytes", _PCIE_BYTES_PER_SECOND)
        if model.vendor == "nvidia":
            self._numbers |= {"persistence_mode": 1.0, "event_types": _EVENT_TYPES, "recovery_action": 0.0}
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

        def fixed(watts: float) -> float:
            return clock.highest if loads.share(self._model, watts) > 0 else clock.idle

        busy = self._demand.map(hertz if domain in ("graphics", "sm") else fixed)
        self._put(f"clock_{domain}_hertz", busy)
        self._numbers[f"clock_{domain}_max_hertz"] = clock.highest

    def _throttle(self) -> None:
        limit, nvidia = self._limit, self._model.vendor == "nvidia"
        for reason in _NVIDIA_REASONS if nvidia else _AMD_REASONS:
            self._numbers[f"throttle_{reason}"] = 0.0
        for reason in _NVIDIA_TIMED_REASONS if nvidia else _AMD_REASONS:
            self._numbers[f"throttle_{reason}_seconds"] = 0.0
        capped = self._demand.map(lambda watts: float(watts > limit))
        self._put("throttle_sw_power_cap", capped)
        self._tracks["capped"] = capped
        self._readings["throttle_sw_power_cap_seconds"] = Integral("capped")
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

    def _links(self) -> None:
        model = self._model
        if model.links:
            self._numbers |= {"link_count": float(model.links), "links_down": 0.0}
            for way in ("receive", "transmit"):
                self._counted(f"link_{way}_bytes", _LINK_BYTES_PER_SECOND)
            if model.vendor == "nvidia":
                newest = model.architecture == "blackwell"
                errors = ("recovery", "replay", "symbol" if newest else "crc")
                self._numbers |= {f"link_{error}_errors": 0.0 for error in errors}
        if model.fabric is not None:
            self._numbers["fabric_state"] = 3.0
        if model.fabric == "cluster":
            self._texts["fabric_cluster_uuid"] = _CLUSTER
            self._numbers["fabric_clique"] = 32766.0
        if model.profiling:
            self._numbers |= _PROFILE

    def _counted(self, name: str, per_second: float) -> None:
        """Let a counter grow with the load."""
        self._tracks[f"{name}_each_second"] = self._share().map(lambda share: per_second * share)
        self._readings[name] = Integral(f"{name}_each_second")

    def _given(self) -> None:
        """Take over fixed values and texts of the scenario, then drop what it says is absent."""
        for name, value in msgspec.structs.asdict(self._spec.values).items():
            if value is not None and name != "power_watts":
                self._remove((name,))
                self._numbers[name] = float(value)
        given = msgspec.structs.asdict(self._spec.texts)
        self._texts |= {name: text for name, text in given.items() if text is not None}
        self._numbers |= pci_numbers(self._texts["pci_address"])
        self._remove(self._spec.absent)

    def _remove(self, names: Iterable[str]) -> None:
        for name in names:
            self._texts.pop(name, None)
            self._numbers.pop(name, None)
            self._tracks.pop(name, None)
            self._readings.pop(name, None)

    def _share(self) -> Track:
        if self._shared is None:
            self._shared = self._demand.map(lambda watts: loads.share(self._model, watts))
        return self._shared

    def _varying(self, name: str, function: Callable[[float], float]) -> None:
        self._put(name, self._share().map(function))

    def _put(self, name: str, track: Track) -> None:
        """Keep a track, or a plain number where it never changes."""
        values = {s.value for s in (*track.prefix, *track.period)}
        if len(values) == 1:
            self._numbers[name] = float(values.pop())
        else:
            self._tracks[name] = track
