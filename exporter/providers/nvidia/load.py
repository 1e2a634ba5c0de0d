"""Utilisation and memory."""

from typing import Any

from exporter.providers.nvidia.identity import Gpu
from exporter.providers.nvidia.reading import Reading
from exporter.providers.sanitise import BYTES, RATIO

MEMORY_V2 = 0x02000028
"""Version of the struct whose `used` is without what the driver reserves; drivers from 510."""

_PERCENT = 100
_ENGINES = {
    "encoder": "nvmlDeviceGetEncoderUtilization",
    "decoder": "nvmlDeviceGetDecoderUtilization",
    "jpeg": "nvmlDeviceGetJpgUtilization",
    "ofa": "nvmlDeviceGetOfaUtilization",
}


def load(reading: Reading, _: Gpu) -> dict[str, Any]:
    """Read Sample's fields of the load group, by name."""
    rates = reading.get("utilization_ratio", "nvmlDeviceGetUtilizationRates")
    engines: dict[str, float] = {}
    for engine, function in _ENGINES.items():
        answer = reading.get("engine_utilization_ratio", function)
        ratio = reading.number("engine_utilization_ratio", answer and answer[0], RATIO, per=_PERCENT)
        if ratio is not None:
            engines[engine] = ratio
    return {
        "utilization_ratio": reading.number("utilization_ratio", rates and rates.gpu, RATIO, per=_PERCENT),
        "memory_controller_utilization_ratio": reading.number(
            "memory_controller_utilization_ratio", rates and rates.memory, RATIO, per=_PERCENT
        ),
        "engine_utilization_ratio": engines,
        **memory(reading),
    }


def memory(reading: Reading, handle: Any = None) -> dict[str, float | None]:
    """Read the memory of the GPU, or of the MIG instance `handle`; empty where it has none of its own.

    The older call counts what the driver reserves as used; it is asked only when the newer one is refused.
    """
    answer = reading.get("memory_used_bytes", "nvmlDeviceGetMemoryInfo", MEMORY_V2, handle=handle)
    reserved = None if answer is None else answer.reserved
    if answer is None and not reading.broke("memory_used_bytes"):
        answer = reading.get("memory_used_bytes", "nvmlDeviceGetMemoryInfo", handle=handle)
    if answer is None or not answer.total:  # GB10 was seen to answer a total of 0
        return {}
    return {
        "memory_used_bytes": reading.number("memory_used_bytes", answer.used, BYTES, bits=64),
        "memory_size_bytes": reading.number("memory_size_bytes", answer.total, BYTES, bits=64),
        "memory_reserved_bytes": reading.number("memory_reserved_bytes", reserved, BYTES, bits=64),
    }
