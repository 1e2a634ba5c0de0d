"""Power, its limits and the energy accumulator, each with what it covers."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from exporter.providers.nvidia.fields import Field, Fields
from exporter.providers.nvidia.identity import AVERAGE, INSTANT, UNKNOWN_KIND, Gpu, PowerKind
from exporter.providers.nvidia.reading import Reading
from exporter.providers.sanitise import JOULES, WATTS

_MILLI = 1000

# Field ids and scopes: 0 is the GPU, 1 the module of a Grace superchip, 2 the memory.
_AVERAGE_OF_GPU: Field = (185, 0)
_INSTANT_OF_GPU: Field = (186, 0)
_AVERAGE_OF_MODULE: Field = (185, 1)
_INSTANT_OF_MODULE: Field = (186, 1)
_AVERAGE_OF_MEMORY: Field = (185, 2)
_ENERGY_OF_MODULE: Field = (191, 1)
_ENERGY_OF_GPU: Field = (83, 0)

_FIELDS: Mapping[Field, str] = {
    _AVERAGE_OF_GPU: "power_watts",
    _INSTANT_OF_GPU: "power_watts",
    _AVERAGE_OF_MODULE: "module_power_watts",
    _INSTANT_OF_MODULE: "module_power_watts",
    _AVERAGE_OF_MEMORY: "memory_power_watts",
    _ENERGY_OF_MODULE: "module_energy_counter_joules",
    _ENERGY_OF_GPU: "energy_counter_joules",
}
_ALL = Fields(_FIELDS)
_INSTEAD = {_INSTANT_OF_GPU: _AVERAGE_OF_GPU, _INSTANT_OF_MODULE: _AVERAGE_OF_MODULE}
"""What is not asked for where the other answers."""
_NEAR = 5_000 * _MILLI
"""The field and the call for the accumulator are one number when they are no further apart: a second at most."""

Power = tuple[float | None, PowerKind]


def sensors(reading: Reading, gpu: Gpu) -> dict[str, Any]:
    """Read power and accumulator, close together in time: Sample's fields by name.

    One call for all of it, once it is known which of it this GPU answers. That is looked at anew when one of them is
    silent, and whenever the GPU is identified or its state is read.
    """
    fields: dict[Field, float] = {}
    counter: float | None = None
    asked = gpu.sensors
    if asked is not None:
        fields = reading.fields(asked)
        counter = fields.get(_ENERGY_OF_GPU)
    if asked is None or len(fields) < len(asked):
        fields, asked = reading.fields(_ALL), None
    if counter is None or asked is None:
        counter = reading.get("energy_counter_joules", "nvmlDeviceGetTotalEnergyConsumption")
    module = fields.get(_AVERAGE_OF_MODULE, fields.get(_INSTANT_OF_MODULE))
    raw, (kind, window) = _power(reading, gpu, fields.get(_AVERAGE_OF_GPU), fields.get(_INSTANT_OF_GPU), module)
    if asked is None:
        gpu.sensors = None if reading.failed else _learned(fields, counter)

    watts = reading.number("power_watts", raw, WATTS, per=_MILLI)
    sample: dict[str, Any] = {
        "power_watts": watts,
        "power_kind": None if watts is None else kind,
        "power_window_seconds": None if watts is None else window,
        "module_power_watts": reading.number("module_power_watts", module, WATTS, per=_MILLI),
        # Boards without the sensor answer 0 (A40).
        "memory_power_watts": reading.number(
            "memory_power_watts", fields.get(_AVERAGE_OF_MEMORY) or None, WATTS, per=_MILLI
        ),
    }
    if gpu.hopper and module is not None:
        # Kept: a module scope that is silent for once must not change what the counter covers.
        gpu.module_counter = True
    name = "module_energy_counter_joules" if gpu.module_counter else "energy_counter_joules"
    sample[name] = reading.number(name, counter, JOULES, per=_MILLI, bits=64)
    if not gpu.module_counter and module is not None:
        sample["module_energy_counter_joules"] = reading.number(
            "module_energy_counter_joules", fields.get(_ENERGY_OF_MODULE), JOULES, per=_MILLI, bits=64
        )
    return sample


def _learned(fields: Mapping[Field, float], counter: float | None) -> Fields:
    """Return which fields to ask for from here on."""
    same = counter is not None and abs(counter - fields.get(_ENERGY_OF_GPU, -_NEAR)) <= _NEAR
    return _asked(
        tuple(
            field
            for field in _FIELDS
            if field in fields and _INSTEAD.get(field) not in fields and (field != _ENERGY_OF_GPU or same)
        )
    )


@lru_cache(maxsize=32)
def _asked(fields: tuple[Field, ...]) -> Fields:
    return Fields({field: _FIELDS[field] for field in fields})


def limits(reading: Reading, gpu: Gpu, watts: float | None) -> Mapping[str, float | None]:
    """Return the limit after all limiters, and the one that the board starts with.

    They change when somebody sets them, so that they are read as often as the state is; but `watts`, the power, above
    the limit says that it was raised: the accumulator's steps are judged by it.
    """
    known = gpu.limits
    limit = None if known is None else known["power_limit_watts"]
    if known is None or (limit is not None and watts is not None and watts > limit):
        enforced = reading.get("power_limit_watts", "nvmlDeviceGetEnforcedPowerLimit")
        default = reading.fixed(gpu.fixed, "power_limit_default_watts", "nvmlDeviceGetPowerManagementDefaultLimit")
        known = {
            "power_limit_watts": reading.number("power_limit_watts", enforced, WATTS, per=_MILLI),
            "power_limit_default_watts": reading.number("power_limit_default_watts", default, WATTS, per=_MILLI),
        }
        gpu.limits = None if any(map(reading.broke, known)) else known
    return known


def _power(reading: Reading, gpu: Gpu, average: float | None, instant: float | None, module: float | None) -> Power:
    """Prefer the 1 s average: read at 1 Hz it tiles time without gaps.

    When the average breaks for once, the plain call is asked, which means the same where there is an average. On a
    GH200 whose fields answer for the module only, that call covers more than the GPU.
    """
    if average is not None:
        return average, AVERAGE
    if instant is not None and not reading.broke("power_watts"):
        return instant, INSTANT
    if module is not None or gpu.module_counter:
        return None, UNKNOWN_KIND
    return reading.get("power_watts", "nvmlDeviceGetPowerUsage"), gpu.plain_power
