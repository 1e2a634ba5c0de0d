"""What one energy read of an NVIDIA GPU costs, and its frame: `python -m tests.benchmarks.energy_read`.

The floor is the least that tells power and energy: the two plain calls through pynvml. Both are run in turn in one
process, and the fastest round of each counts, so that a busy machine does not matter.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from exporter.model import Group
from exporter.providers.protocol import OpenContext
from exporter.providers.simulated.machine import Machine
from exporter.providers.simulated.scenario import load_scenario
from exporter.supervision import frames
from tests.integration.daemon import ROOT
from tests.native.plan import standin_environment, write_plan

SCENARIO = "devices: [{{model: {model}, load: {{pattern: constant}}}}]"
ROUNDS, READS = 40, 100
ENERGY = frozenset({Group.ENERGY})


def compare(model: str) -> tuple[float, float]:
    """Return seconds of processor time of the floor, and of a read with its frame."""
    with tempfile.TemporaryDirectory() as folder:
        plan = Path(folder) / "plan"
        write_plan(plan, Machine(load_scenario(SCENARIO.format(model=model)), time.monotonic() - 1000))
        done = subprocess.run(
            [sys.executable, "-m", "tests.benchmarks.energy_read", "--inside"],
            env={**os.environ, "PYTHONPATH": str(ROOT), **standin_environment(plan)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    floor, read = json.loads(done.stdout)
    return floor, read


def inside() -> tuple[float, float]:
    """Measure in this process, which has loaded the stand-in."""
    import pynvml  # noqa: PLC0415 -- as the provider does: the parent never loads it

    from exporter.providers.nvidia import open_nvidia  # noqa: PLC0415 -- likewise

    provider = open_nvidia(OpenContext(between_calls=lambda: None)).provider
    (device,) = provider.devices()
    provider.read(device, frozenset(Group))
    handle = pynvml.nvmlDeviceGetHandleByUUID(device.key)

    def floor() -> None:
        pynvml.nvmlDeviceGetPowerUsage(handle)
        pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)

    def read() -> None:
        frames.encode(frames.Sampled(provider.read(device, ENERGY)))

    best = [float("inf"), float("inf")]
    for _ in range(ROUNDS):
        best = [min(so_far, _round(each)) for so_far, each in zip(best, (floor, read), strict=True)]
    provider.close()
    return best[0], best[1]


def _round(each: Callable[[], None]) -> float:
    began = time.process_time()
    for _ in range(READS):
        each()
    return (time.process_time() - began) / READS


def main() -> None:
    if "--inside" in sys.argv:
        print(json.dumps(inside()))
        return
    for model in ("A100-SXM", "H100-SXM", "GB200"):
        floor, read = compare(model)
        print(f"{model}: floor {floor * 1e6:.1f} us, read and frame {read * 1e6:.1f} us: {read / floor:.2f} times")


if __name__ == "__main__":
    main()
