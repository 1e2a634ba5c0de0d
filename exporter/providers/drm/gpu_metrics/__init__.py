"""amdgpu's gpu_metrics file: the table of readings that the firmware of an AMD GPU gives to the kernel."""

from exporter.providers.drm.gpu_metrics.decoding import decode
from exporter.providers.drm.gpu_metrics.partition import decode_partition
from exporter.providers.drm.gpu_metrics.reader import TableReader
from exporter.providers.drm.gpu_metrics.record import Metrics, RefusedError
from exporter.providers.drm.gpu_metrics.throttle import Throttling

__all__ = ["Metrics", "RefusedError", "TableReader", "Throttling", "decode", "decode_partition"]
