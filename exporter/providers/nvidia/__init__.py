"""NVIDIA GPUs through NVML, as the package nvidia-ml-py (module pynvml) binds it."""

from exporter.providers.nvidia.provider import NvidiaProvider, open_library, open_nvidia

__all__ = ["NvidiaProvider", "open_library", "open_nvidia"]
