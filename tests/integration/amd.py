"""The AMD provider in a process of its own, over a real amdsmi wheel and the C stand-in of its release."""

import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from exporter.providers.simulated.device import SimulatedDevice
from exporter.providers.simulated.machine import Machine
from exporter.providers.simulated.scenario import load_scenario

REPOSITORY = Path(__file__).resolve().parents[2]

# Opens the provider as a worker does and prints what it saw. Standard output must hold this and nothing else.
SCRIPT = """
import os, sys, time
from pathlib import Path
import msgspec
from exporter.model import Group
from exporter.providers.amd import open_amd
from exporter.providers.protocol import OpenContext, ProviderError

os.chdir("/")
calls = 0
def between_calls():
    global calls
    calls += 1

seen = {"devices": [], "samples": [], "version": None, "error": None}
try:
    provider, seen["version"] = open_amd(OpenContext(between_calls=between_calls, root=Path(sys.argv[1])))
    seen["devices"] = provider.devices()
    for command in sys.argv[2].split():
        if command == "swap":
            os.replace(os.environ["GPU_EXPORTER_PLAN"] + ".next", os.environ["GPU_EXPORTER_PLAN"])
            time.sleep(0.002)  # the stand-in looks at it each millisecond
        else:
            seen["samples"] = [provider.read(device, frozenset(Group)) for device in seen["devices"]]
    provider.close()
except ProviderError as error:
    seen["error"] = str(error)
seen["calls"] = calls
sys.stdout.write(msgspec.json.encode(seen).decode())
"""


@dataclasses.dataclass
class Seen:
    devices: list[dict[str, Any]]
    samples: list[dict[str, Any]]
    version: str | None
    error: str | None
    calls: int


Look = Callable[..., Seen]


def run_script(
    root: Path,
    environment: Mapping[str, str],
    commands: str = "read",
    *,
    package: Path | None = None,
    before: Sequence[str] = (),
) -> subprocess.CompletedProcess[str]:
    """Run SCRIPT with no other amdsmi on the import path than `package`: -S leaves out what is installed here.

    `before`: a command that runs the one that follows it, such as one that takes rights away.
    """
    needed = root / "needed"
    needed.mkdir(exist_ok=True)
    (needed / "msgspec").symlink_to(Path(msgspec.__file__).parent)
    path = [str(place) for place in (needed, REPOSITORY, package) if place]
    return subprocess.run(
        [*before, sys.executable, "-S", "-c", SCRIPT, str(root), commands],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path), **environment},
    )


def parse(done: subprocess.CompletedProcess[str]) -> Seen:
    assert done.returncode == 0, (done.returncode, done.stderr)
    return Seen(**json.loads(done.stdout))


def machine(devices: str, head: str = "") -> Machine:
    return Machine(load_scenario(f"{head}\ndevices:\n{devices}"), time.monotonic() - 1000)


def bare(*devices: SimulatedDevice) -> Any:
    """Return a machine of devices made by hand, in the form that write_plan takes."""

    @dataclasses.dataclass
    class Bench:
        devices: tuple[SimulatedDevice, ...]
        epoch: float = dataclasses.field(default_factory=lambda: time.monotonic() - 1000)
        texts: Mapping[str, str] = dataclasses.field(default_factory=dict)
        numbers: Mapping[str, float] = dataclasses.field(default_factory=dict)
        faults: tuple[()] = ()

    return Bench(devices)
