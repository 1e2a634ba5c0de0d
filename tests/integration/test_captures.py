"""A recording of the real vendor packages, over the C stand-ins, replays as what the provider read."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from exporter.captures.format import load_capture
from exporter.fleet.groups import FIELDS
from exporter.model import Group, Groups, Sample
from exporter.providers.simulated.machine import Machine
from exporter.providers.simulated.scenario import load_scenario
from tests.captures.hosts import EVERYTHING, Host
from tests.drm import write_cards
from tests.integration.daemon import ROOT
from tests.native.amdsmi_layout import amdsmi_tree
from tests.native.plan import standin_environment, write_plan

UUIDS = ("a1b2c3d4-e5f6-a7b8-c9d0-e1f2a3b4c5d6", "b1d2c3a4e5f60718")
MACHINES = {
    "nvidia": """
devices:
- {model: H100-SXM, load: {pattern: constant, watts: 420}, texts: {uuid: GPU-a1b2c3d4-e5f6-a7b8-c9d0-e1f2a3b4c5d6}}
- {model: A100-SXM, partitions: [{profile: 3g.40gb}]}
- {model: T4}
""",
    "amd": """
devices:
- {model: MI300X, load: {pattern: constant, watts: 500}, texts: {unique_id: "b1d2c3a4e5f60718"}}
- {model: MI300X, texts: {compute_partition: CPX}}
- {model: RX-9070, load: {pattern: constant}}
""",
}
MACHINES["drm"] = MACHINES["amd"]

# Records two moments while it reads as a worker does. Standard output must hold the capture and nothing else.
SCRIPT = """
import sys
from pathlib import Path
import msgspec
from exporter.captures.record import Recorder, dump
from exporter.model import Group
from exporter.providers import PROVIDERS
from exporter.providers.protocol import OpenContext

name, root = sys.argv[1], Path(sys.argv[2])
recorder = Recorder(root=root)
provider, version = PROVIDERS[name].open(OpenContext(between_calls=lambda: None, root=root, wrap=recorder.wrap))
devices = provider.devices()
for at in (0.0, 1.0):
    samples = [provider.read(device, frozenset(Group) - {Group.PROFILING}) for device in devices]
    recorder.moment(at)
provider.close()
capture = recorder.capture(model="a machine", source="a test", version=version or "")
sys.stdout.write(dump(capture))
sys.stderr.write(msgspec.json.encode([samples, sorted(recorder.left_out)]).decode())
"""

ENVIRONMENTS: Mapping[str, Callable[[Path, Path], Mapping[str, str]]] = {
    "nvidia": lambda plan, _: standin_environment(plan),
    "amd": lambda plan, folder: {**amdsmi_tree("7.0.2", folder), "GPU_EXPORTER_PLAN": str(plan)},
    "drm": lambda _plan, _folder: {},
}


def record(name: str, folder: Path) -> tuple[str, list[Sample], list[str]]:
    """Record a machine; return the file, what the provider read last, and what could not be written down."""
    machine = Machine(load_scenario(MACHINES[name], name="machine.yaml"), time.monotonic() - 600)
    write_plan(folder / "plan", machine)
    root = folder / "root"
    root.mkdir()
    if name == "drm":
        write_cards(root, machine, 600.0)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **ENVIRONMENTS[name](folder / "plan", folder)}
    command = [sys.executable, "-c", SCRIPT, name, str(root)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    samples, left_out = msgspec.json.decode(done.stderr)
    return done.stdout, msgspec.convert(samples, list[Sample]), left_out


def readings(sample: Sample, groups: Groups) -> dict[str, Any]:
    """Return what was read of a device, without what identifies it."""
    found = {name: getattr(sample, name) for group in groups for name in FIELDS[group]}
    parts = found["partitions"]
    found["partitions"] = parts and [msgspec.structs.replace(part, uuid=None) for part in parts]
    return found


@pytest.mark.parametrize("name", MACHINES)
def test_a_recording_replays_as_what_the_provider_read(name: str, tmp_path: Path) -> None:
    text, read, left_out = record(name, tmp_path)
    assert left_out == []
    assert not any(uuid in text.lower() for uuid in UUIDS)
    host = Host(load_capture(text), tmp_path / "copy")
    host.play()
    replayed = list(host.samples.values())
    # The files of processes are not copied.
    groups = EVERYTHING - ({Group.PROCESSES} if name == "drm" else set())
    assert len(replayed) == len(read) > 0
    for before, after in zip(read, replayed, strict=True):
        assert readings(after, groups) == readings(before, groups)
        assert after.failed == before.failed == ()
        assert after.device.model == before.device.model
        assert after.power_watts is not None
