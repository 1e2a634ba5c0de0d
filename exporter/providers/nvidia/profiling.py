"""How busy the parts of a GPU were since the read before, by its counters for profiling (GPM, Hopper and later).

Two samples of the counters make a figure, at least 100 ms apart. The sample of the read before is kept, so that nothing
waits; the first read gives nothing. Memory of samples is the library's, and is given back to it.
"""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from exporter.providers.nvidia.identity import Gpu
from exporter.providers.nvidia.library import AbsentError, BrokenError, LostError, Nvml
from exporter.providers.nvidia.partitions import instances
from exporter.providers.nvidia.reading import Reading
from exporter.providers.protocol import ProviderError
from exporter.providers.sanitise import RATIO

_LEAST_SECONDS = 0.1
_PERCENT = 100
_DIGITS = 3  # in percent: what is above 100 in the seventh place is rounding
_VERSION = 1
_METRICS = {2: "sm_active_ratio", 3: "sm_occupancy_ratio", 5: "tensor_active_ratio", 10: "dram_active_ratio"}
_SM_ACTIVE = "sm_active_ratio"
_OF_PARTITION = "partition_sm_active_ratio"

_Place = tuple[str, int | None]
"""Key of the GPU, and a GPU instance of it, or None for all of it."""


class _Before(msgspec.Struct):
    sample: Any
    at: float


class Profiler:
    """`clock`: monotonic seconds."""

    def __init__(self, nvml: Nvml, clock: Callable[[], float]) -> None:
        self._nvml = nvml
        self._clock = clock
        self._before: dict[_Place, _Before] = {}

    def read(self, reading: Reading, gpu: Gpu) -> dict[str, Any]:
        """Read Sample's fields of the profiling group, by name."""
        key = gpu.device.key
        if gpu.profiles is None:
            support = reading.get(_SM_ACTIVE, "nvmlGpmQueryDeviceSupport")
            gpu.profiles = None if reading.broke(_SM_ACTIVE) else bool(support and support.isSupportedDevice)
        if not gpu.profiles:
            self.forget(key)
            return {}
        fields: dict[str, Any] = dict(self._figures(reading, (key, None), _SM_ACTIVE))
        # The counters are those of a GPU instance: its first compute instance gives them, as it does the memory.
        found = [instance for instance in instances(reading, gpu) or () if instance.first]
        places = {(key, instance.gpu_instance): instance.partition for instance in found}
        self._forget(
            place for place in self._before if place[0] == key and place[1] is not None and place not in places
        )
        active = ((name, self._figures(reading, place, _OF_PARTITION)) for place, name in places.items())
        fields[_OF_PARTITION] = {name: figures[_SM_ACTIVE] for name, figures in active if _SM_ACTIVE in figures}
        return fields

    def forget(self, key: str) -> None:
        """Begin anew with a GPU that was lost, or is asleep."""
        self._forget(place for place in self._before if place[0] == key)

    def close(self) -> None:
        self._forget(self._before)

    def _figures(self, reading: Reading, place: _Place, name: str) -> Mapping[str, float]:
        """Return the ratios since the sample before, by Sample's field; `name` is the reading that may break."""
        before = self._before.get(place)
        if before is not None and self._clock() - before.at < _LEAST_SECONDS:
            return {}
        sample = self._sample(reading, place[1], name)
        if sample is None:
            return {}
        self._before[place] = _Before(sample, self._clock())
        if before is None:
            return {}
        try:
            return self._between(reading, before.sample, sample, name)
        finally:
            self._free(before.sample)

    def _sample(self, reading: Reading, gpu_instance: int | None, name: str) -> Any:
        """Return a sample of the counters as they are, or None."""
        sample = reading.ask(name, "nvmlGpmSampleAlloc")
        if sample is None:
            return None
        taken = None
        try:
            if gpu_instance is None:
                taken = reading.get(name, "nvmlGpmSampleGet", sample)
            else:
                taken = reading.get(name, "nvmlGpmMigSampleGet", gpu_instance, sample)
        finally:
            if taken is None:
                self._free(sample)
        return taken

    def _between(self, reading: Reading, first: Any, second: Any, name: str) -> dict[str, float]:
        try:
            asked = self._nvml.make("c_nvmlGpmMetricsGet_t")
        except AbsentError:
            return {}
        asked.version, asked.numMetrics, asked.sample1, asked.sample2 = _VERSION, len(_METRICS), first, second
        for metric, number in zip(asked.metrics, _METRICS, strict=False):
            metric.metricId = number
        if reading.ask(name, "nvmlGpmMetricsGet", asked) is None:
            return {}
        given = ((_METRICS[metric.metricId], metric) for metric in asked.metrics[: len(_METRICS)])
        values = {field: round(metric.value, _DIGITS) for field, metric in given if not metric.nvmlReturn}
        ratios = {
            field: reading.number(field if name == _SM_ACTIVE else name, value, RATIO, per=_PERCENT)
            for field, value in values.items()
        }
        return {field: ratio for field, ratio in ratios.items() if ratio is not None}

    def _forget(self, places: Iterable[_Place]) -> None:
        for place in list(places):
            self._free(self._before.pop(place).sample)

    def _free(self, sample: Any) -> None:
        with contextlib.suppress(AbsentError, BrokenError, LostError, ProviderError):
            self._nvml.beside("nvmlGpmSampleFree", sample)
