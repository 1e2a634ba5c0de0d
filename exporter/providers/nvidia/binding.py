"""The binding of NVML, pynvml, in as little memory as it takes."""

from types import ModuleType

from exporter.lean import instead


def load() -> ModuleType:
    """Import pynvml. Raises ImportError.

    It imports ctypes.util for one function that it calls on no Linux, and that brings subprocess, shutil, tempfile and
    what those need: 1.1 of a worker's 15 MiB.
    """
    lazy = ModuleType("ctypes.util")
    lazy.__dict__["find_library"] = _find_library
    with instead("ctypes.util", lazy):
        import pynvml  # noqa: PLC0415 -- in the worker only: the parent never loads a vendor's package
    loaded: ModuleType = pynvml
    return loaded


def _find_library(name: str) -> str | None:
    from ctypes.util import find_library  # noqa: PLC0415 -- see above

    return find_library(name)
