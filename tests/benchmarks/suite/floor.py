"""What reading costs beyond the bare calls: the same calls of the same library, repeated by a loop in C."""

import ctypes
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from exporter.model import Group
from exporter.providers.protocol import OpenContext, Provider
from tests.benchmarks.suite.rig import plan_of, scenario
from tests.benchmarks.suite.section import Section
from tests.integration.daemon import ROOT
from tests.native.plan import compile_library

SOURCE = Path(__file__).with_name("floor.c")
SECONDS_BETWEEN = {"energy": 1.0, "load": 1.0, "state": 5.0}
"""By default, on an H100."""
GROUPS = {"energy": frozenset({Group.ENERGY}), "load": frozenset({Group.LOAD}), "state": frozenset({Group.STATE})}
ROUNDS = 30


def best(work: Callable[[], object], rounds: int) -> float:
    """Return the processor seconds of the fastest run."""
    taken = []
    for _ in range(rounds):
        began = time.process_time()
        work()
        taken.append(time.process_time() - began)
    return min(taken)


class Recorder:
    """Stands where pynvml finds the functions of the library, and writes down what they are called with."""

    def __init__(self, library: Any, count: int) -> None:
        self.calls: list[str] = []
        self.on = False
        self._find = library._nvmlGetFunctionPointer
        library._nvmlGetFunctionPointer = self._found
        self._handles: dict[int, int] = {}
        for index in range(count):
            handle = library.nvmlDeviceGetHandleByIndex(index)
            self._handles[ctypes.cast(handle, ctypes.c_void_p).value or 0] = index

    def _found(self, name: str) -> Any:
        function = self._find(name)

        def called(*arguments: Any) -> Any:
            if self.on:
                self.calls.append(" ".join([name, *map(self._argument, arguments)]))
            return function(*arguments)

        return called

    def _argument(self, value: Any) -> str:
        if value is None:
            return "i0"
        if isinstance(value, int):
            return f"i{value}"
        if isinstance(value, ctypes._Pointer):
            index = self._handles.get(ctypes.cast(value, ctypes.c_void_p).value or 0)
            if index is not None:
                return f"h{index}"
            value = value.contents
        if isinstance(value, ctypes._SimpleCData):
            return f"i{value.value}"
        held = getattr(value, "_obj", value)  # of byref()
        return "b" + bytes(ctypes.string_at(ctypes.addressof(held), ctypes.sizeof(held))).hex()


def inside(count: int, folder: Path) -> dict[str, tuple[int, float, float]]:
    """For each group, return calls of one pass, and its microseconds in C and of the provider, in this process."""
    import pynvml  # noqa: PLC0415 -- as the worker does: the parent never loads it

    from exporter.providers.nvidia import open_nvidia  # noqa: PLC0415 -- likewise

    def opened() -> tuple[Provider, dict[str, Callable[[], None]]]:
        provider = open_nvidia(OpenContext(between_calls=lambda: None)).provider
        devices = provider.devices()
        assert len(devices) == count, devices

        def work(groups: frozenset[Group]) -> None:
            for device in devices:
                provider.read(device, groups)

        return provider, {name: functools.partial(work, groups) for name, groups in GROUPS.items()}

    provider, works = opened()
    find = pynvml._nvmlGetFunctionPointer
    recorder = Recorder(pynvml, count)
    for name, work in works.items():
        work()
        recorder.calls, recorder.on = [], True
        work()
        recorder.on = False
        (folder / name).write_text("\n".join(recorder.calls) + "\n")
    provider.close()
    pynvml._nvmlGetFunctionPointer = find
    bare = ctypes.CDLL(str(compile_library("libnvmlfloor.so", [SOURCE], []))).nvml_floor
    bare.restype = ctypes.c_double
    provider, works = opened()
    told = {}
    for name, work in works.items():
        work()
        calls = ctypes.c_int()
        in_c = bare(str(folder / name).encode(), ROUNDS, ctypes.byref(calls))
        told[name] = (calls.value, in_c, best(work, ROUNDS) * 1e6)
    provider.close()
    return told


def compare(count: int) -> dict[str, tuple[int, float, float]]:
    """The same, in a process of its own."""
    with tempfile.TemporaryDirectory() as name:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **plan_of(scenario(count), Path(name))}
        command = [sys.executable, "-m", "tests.benchmarks.suite.floor", str(count), name]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    told: dict[str, tuple[int, float, float]] = json.loads(done.stdout)
    return told


def floor(_: float) -> Section:
    section = Section("The floor of sampling")
    rows = []
    for count in (8, 64):
        told = compare(count)
        for name, (calls, in_c, ours) in told.items():
            rows.append([f"{count}, {name}", str(calls), f"{in_c:.0f}", f"{ours:.0f}", f"{ours / in_c:.1f}"])
        in_c, ours = (sum(told[name][part] / SECONDS_BETWEEN[name] for name in told) for part in (1, 2))
        rows.append(
            [f"{count}, a second at the default cadence", "", f"{in_c:.0f}", f"{ours:.0f}", f"{ours / in_c:.1f}"]
        )
        section.figures[f"floor {count}"] = ours / in_c
    section.say(
        "Microseconds of processor time of one pass over all devices: the calls that the provider makes, repeated by a "
        "loop in C with the same arguments, and the provider itself. The stand-in answers from memory; a driver takes "
        "longer for the same call, and the ratio is smaller there."
    )
    section.table(("devices, group", "calls", "in C", "provider", "ratio"), rows)
    return section


if __name__ == "__main__":
    print(json.dumps(inside(int(sys.argv[1]), Path(sys.argv[2]))))
