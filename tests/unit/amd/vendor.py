"""A stand-in for the amdsmi module, held to the real one: its exception classes, its function names and parameters."""

import ast
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from exporter.model import Group, Sample
from exporter.providers.amd.library import Library
from exporter.providers.amd.provider import AmdProvider
from exporter.providers.procfs import Proc
from exporter.providers.protocol import OpenContext
from tests.native.amdsmi_layout import unpacked_wheel

RELEASE = "7.0.2"
ALL = frozenset(Group)
ADDRESS = "0000:05:00.0"
STARTED = 1_790_000_000.0
"""Unix time at which providers are opened."""


def _source() -> Path:
    spec = importlib.util.find_spec("amdsmi")
    found = Path(spec.origin).parent if spec and spec.origin else None
    return found or unpacked_wheel(RELEASE) / "amdsmi"


def _constants(source: Path) -> dict[str, int]:
    tree = ast.parse((source / "amdsmi_wrapper.py").read_text())
    return {
        node.targets[0].id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, int)
    }


def _exceptions(source: Path, constants: Mapping[str, int]) -> ModuleType:
    """Import the real classes without the wrapper, which would load the library."""
    package, wrapper = ModuleType("amdsmi_real"), ModuleType("amdsmi_real.amdsmi_wrapper")
    package.__path__ = [str(source)]
    vars(wrapper).update(constants)
    vars(package)["amdsmi_wrapper"] = wrapper
    sys.modules |= {package.__name__: package, wrapper.__name__: wrapper}
    return importlib.import_module("amdsmi_real.amdsmi_exception")


SOURCE = _source()
CONSTANTS = _constants(SOURCE)
EXCEPTIONS = _exceptions(SOURCE, CONSTANTS)
PARAMETERS: Mapping[str, tuple[int, int]] = {
    node.name: (len(node.args.args) - len(node.args.defaults), len(node.args.args))
    for node in ast.parse((SOURCE / "amdsmi_interface.py").read_text()).body
    if isinstance(node, ast.FunctionDef) and node.name.startswith("amdsmi_")
}
"""Least and most arguments of each function of the real package."""
OF_OLDER_RELEASES = {"amdsmi_get_gpu_process_info": (2, 2)}


def error(code: int) -> Exception:
    """Return what the package raises for a status."""
    made = EXCEPTIONS.AmdSmiLibraryException(code)
    assert isinstance(made, Exception)
    return made


class _Members:
    """An enumeration of the package: any member, by its name."""

    def __init__(self, missing: frozenset[str] = frozenset()) -> None:
        self._missing = missing

    def __getattr__(self, name: str) -> str:
        if name in self._missing or name.startswith("_"):
            raise AttributeError(name)
        return name


class Handle:
    """A device as the package hands it out; `answers` by function, or by function and arguments."""

    def __init__(self, **answers: Any) -> None:
        self.answers: dict[Any, Any] = {f"amdsmi_get_{name}": answer for name, answer in answers.items()}


class FakeAmdsmi:
    """The module. An answer is a value, an exception to raise, or a function to call; none is "not supported"."""

    def __init__(self, *handles: Handle, older: bool = False) -> None:
        self.handles = list(handles)
        self.calls: list[str] = []
        self.asked: list[tuple[Any, ...]] = []
        """Function and arguments but the handle."""
        self.without_handle: dict[str, Any] = {}
        """Answers of functions that are about no device."""
        self.on_call: Callable[[str], None] = lambda _: None
        self.amdsmi_wrapper = ModuleType("amdsmi_wrapper")
        vars(self.amdsmi_wrapper).update(CONSTANTS)
        self._parameters = {**PARAMETERS, **OF_OLDER_RELEASES} if older else PARAMETERS
        for name in ("AmdSmiMemoryType", "AmdSmiTemperatureType", "AmdSmiTemperatureMetric", "AmdSmiClkType"):
            setattr(self, name, _Members())

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in self._parameters:
            raise AttributeError(name)
        least, most = self._parameters[name]

        def call(*arguments: Any) -> Any:
            assert least <= len(arguments) <= most, f"{name} does not take {len(arguments)} arguments"
            self.calls.append(name)
            self.asked.append((name, *arguments[1:]))
            self.on_call(name)
            if name == "amdsmi_get_processor_handles":
                return list(self.handles)
            if name == "amdsmi_shut_down":
                return None
            if name in self.without_handle:
                return _given(self.without_handle[name], arguments)
            handle, *rest = arguments
            if handle not in self.handles:
                raise error(31)
            answers = handle.answers
            return _given(answers.get((name, *rest), answers.get(name, error(2))), rest)

        return call


def _given(answer: Any, arguments: Sequence[Any]) -> Any:
    if isinstance(answer, BaseException):
        raise answer
    return answer(*arguments) if callable(answer) else answer


class Clock:
    """Advances a second at each look."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


def gpu(**answers: Any) -> Handle:
    return Handle(**{"gpu_device_bdf": ADDRESS, "gpu_asic_info": {"asic_serial": "0xB1D2C3A4E5F60718"}, **answers})


def provider(
    module: FakeAmdsmi,
    root: Path = Path("/nonexistent"),
    *,
    between_calls: Callable[[], None] = lambda: None,
    version: tuple[int, ...] = (26, 0, 2),
    clock: Callable[[], float] | None = None,
    wall: Callable[[], float] = lambda: STARTED,
) -> AmdProvider:
    context = OpenContext(between_calls=between_calls, root=root)
    return AmdProvider(Library(module, version), context, Proc(root, frozenset({777, 778})), clock or Clock(), wall)


def read(
    handle: Handle, *, version: tuple[int, ...] = (26, 0, 2), older: bool = False, root: Path = Path("/none")
) -> Sample:
    opened = provider(FakeAmdsmi(handle, older=older), root, version=version)
    (device,) = opened.devices()
    return opened.read(device, ALL)
