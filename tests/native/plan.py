"""Writes a simulated machine as a plan, builds the stand-ins, and says how a process is made to load them.

A plan is the text that tests/native/plan_text.c reads; tests/native/PLAN.md lists what is in it.
"""

import hashlib
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from exporter.providers.simulated.device import Accumulator, Fault, Mean, SimulatedDevice
from exporter.providers.simulated.machine import Machine
from exporter.providers.simulated.physics import Track, Window

NATIVE = Path(__file__).parent
PLAN_SOURCES = (NATIVE / "plan.c", NATIVE / "plan_text.c")
PLAN_HEADERS = (NATIVE / "plan.h", NATIVE / "plan_model.h")
LIBRARIES = {"nvidia": "libnvidia-ml.so.1", "plan": "libplan.so"}
"""File name by stand-in; `plan` is the evaluator alone. The library of AMD SMI is made by amdsmi_layout.py."""

_LOOK_SECONDS = 0.002
"""After which stand-ins have looked at the file again: plan_text.c."""
_FLAGS = ("-std=c11", "-O2", "-g", "-fPIC", "-shared", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror")


def write_plan(path: Path, machine: Machine) -> None:
    """Put the machine's plan in place of `path` at one stroke: stand-ins that run see it when this returns."""
    # Undecodable bytes of a text (surrogates) come out as the bytes that they stand for.
    numbers = _Numbers()
    text = "".join(f"{line}\n" for line in _lines(machine, numbers)).encode("utf-8", "surrogateescape")
    head = f"plan 1\nnumbers {len(numbers.all)}\n".encode()
    put_plan(path, head + text + b"\n" * (8 - (len(head) + len(text)) % 8) + numbers.all.tobytes())


def put_plan(path: Path, data: bytes) -> None:
    """Do the same with what a plan's file is to hold."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    Path(name).replace(path)
    time.sleep(_LOOK_SECONDS)


def build(name: str) -> Path:
    """Compile the stand-in `nvidia`, or `plan`, unless its sources are already built, and return the library.

    Sources are those of plans and tests/native/NAME*.c. The library has the name that the loader looks for and lies in
    a directory of its own.
    """
    sources = list(dict.fromkeys([*PLAN_SOURCES, *sorted(NATIVE.glob(f"{name}*.c"))]))
    return compile_library(LIBRARIES[name], sources, sorted(NATIVE.glob("*.h")))


def compile_library(
    file_name: str,
    sources: list[Path],
    headers: list[Path],
    flags: tuple[str, ...] = (),
) -> Path:
    """Compile C sources to a shared library in a directory keyed by a hash of all that goes into it."""
    compiler = _compiler()
    digest = hashlib.sha256(repr((compiler, _FLAGS, flags, file_name)).encode())
    for source in (*sources, *headers):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    library = cache_directory("native") / digest.hexdigest()[:20] / file_name
    if library.exists():
        return library
    library.parent.mkdir(parents=True, exist_ok=True)
    includes = [f"-I{d}" for d in dict.fromkeys([NATIVE, *(h.parent for h in headers)])]
    fresh = library.with_name(f".{file_name}.{os.getpid()}")
    command = [
        *compiler,
        *_FLAGS,
        *flags,
        *includes,
        f"-Wl,-soname,{file_name}",
        "-o",
        str(fresh),
        *map(str, sources),
        "-lm",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        raise RuntimeError(f"cannot build {file_name}:\n{' '.join(command)}\n{done.stderr}")
    fresh.replace(library)
    return library


def standin_environment(plan: Path) -> dict[str, str]:
    """Return the variables with which a process loads the stand-in for NVML, and with which that reads `plan`.

    The one for AMD SMI is laid out by `tests.native.amdsmi_layout.amdsmi_tree`.
    """
    return {"GPU_EXPORTER_PLAN": str(plan), "LD_LIBRARY_PATH": str(build("nvidia").parent)}


def _compiler() -> list[str]:
    cc = os.environ.get("CC")
    if cc:
        return cc.split()
    if shutil.which("cc"):
        return ["cc"]
    if find_spec("ziglang"):
        return [sys.executable, "-m", "ziglang", "cc"]
    raise RuntimeError("the stand-ins need a C compiler: install cc, or ziglang with `pip install gpu-exporter[test]`")


def cache_directory(name: str) -> Path:
    """Return where things of one kind are kept between runs; it may not be there yet."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "gpu-exporter" / name


class _Numbers:
    """The numbers of all tracks, those of equal parts once: the segments of a device's readings begin together."""

    def __init__(self) -> None:
        self.all = array("d")
        self._places: dict[bytes, int] = {}

    def place(self, part: "array[float]") -> int:
        """Return where a part lies among them."""
        data = part.tobytes()
        place = self._places.get(data)
        if place is None:
            place = self._places[data] = len(self.all)
            self.all.extend(part)
        return place


def _lines(machine: Machine, numbers: _Numbers) -> Iterator[str]:
    yield f"epoch {_number(machine.epoch)}"
    yield "machine"
    yield from _set(machine.texts, machine.numbers)
    yield from map(_fault, machine.faults)
    for device in machine.devices:
        yield from _device(device, numbers)


def _device(d: SimulatedDevice, numbers: _Numbers) -> Iterator[str]:
    yield f"device {d.vendor}"
    yield from _set(d.texts, d.numbers)
    for name, track in d.tracks.items():
        yield f"t {name} {_track(track, numbers)}"
    for name, reading in d.readings.items():
        if isinstance(reading, Mean):
            yield f"m {name} {reading.track} {_number(reading.window)} {_number(reading.period)}"
        else:
            yield f"i {name} {reading.track} {_number(reading.start)}"
    for o in d.overrides:
        yield f"o {o.name} {_window(o.window)} {_number(o.value)}"
    yield f"e {_number(d.energy_offset)}"
    for slot, accumulator in d.accumulators.items():
        yield from _accumulator(("gpu", "module").index(slot), accumulator)
    yield from map(_fault, d.faults)
    for row in d.rows:
        yield f"row {row.kind} {_window(row.window)}"
        yield from _set(row.texts, row.numbers)


def _accumulator(slot: int, a: Accumulator) -> Iterator[str]:
    stretches = " ".join(
        f"{_number(s.start)} {_number(s.base)} {_number(s.energy)} {_number(s.factor)}" for s in a.stretches
    )
    yield f"a {slot} {a.track} {_number(a.period)} {_number(a.resolution)} {len(a.stretches)} {stretches}"
    for r in a.replacements:
        yield f"v {slot} {_window(r.window)} {_number(r.value)} {r.device}"


def _set(texts: Mapping[str, str], numbers: Mapping[str, float]) -> Iterator[str]:
    for name, text in texts.items():
        escaped = text.replace("\\", "\\\\").replace("\n", "\\n")
        yield f"x {name} {escaped}"
    for name, value in numbers.items():
        yield f"n {name} {_number(value)}"


def _track(track: Track, numbers: _Numbers) -> str:
    starts, levels, whole = array("d"), array("d"), []
    for part in (track.prefix, track.period):
        seconds = area = 0.0
        for segment in part:
            starts.append(seconds)
            levels.extend((area, segment.value))
            seconds += segment.seconds
            area += segment.value * segment.seconds
        whole += [_number(seconds), _number(area)]
    places = numbers.place(starts), numbers.place(levels)
    return " ".join(map(str, (len(track.prefix), len(track.period), *places, *whole)))


def _fault(f: Fault) -> str:
    return f"f {f.kind} {f.call} {_window(f.window)} {f.status} {_number(f.seconds)} {_number(f.bytes)} {f.raw}"


def _window(w: Window) -> str:
    return f"{_number(w.start)} {_number(w.end)} {_number(w.every)} {_number(w.lasting)}"


def _number(value: float) -> str:
    """Write a float so that strtod gives the same bits."""
    return repr(float(value)) if math.isfinite(value) else str(float(value))
