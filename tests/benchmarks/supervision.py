"""What supervision costs: `python -m tests.benchmarks.supervision [DEVICES]`, over simulated GPUs.

Processor time of parent and worker at the default cadence, their memory (PSS), the time from spawn to a full first
pass, and the round trip of a request for fresh energy.
"""

import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

from exporter.config import SamplingConfig
from exporter.fleet import Fleet
from exporter.supervision.frames import WorkerRequest
from exporter.supervision.supervisor import Supervisor
from tests.benchmarks.figures import processor_seconds, pss_mebibytes

SCENARIO = "devices: [{{model: {model}, count: {count}, load: {{pattern: constant, watts: 400}}}}]"
MEASURED_SECONDS = 20
REQUESTS = 150


async def measure(model: str, count: int, scenario: Path) -> None:
    sampling = SamplingConfig()
    fleet = Fleet([("simulated", True)], sampling)
    began = time.monotonic()
    supervisor = Supervisor(fleet, [WorkerRequest(provider="simulated", scenario=str(scenario))], sampling)
    run = asyncio.create_task(supervisor.run())
    while True:
        (snapshot,) = fleet.world(time.monotonic()).snapshots
        if len(snapshot.devices) == count and all(device.sample.clock_hertz for device in snapshot.devices):
            break
        assert time.monotonic() - began < 20, snapshot.reason
        await asyncio.sleep(0.002)
    print(f"{model} x {count}: spawn to full first pass {time.monotonic() - began:.3f} s")
    await asyncio.sleep(2)
    (pid,) = supervisor.worker_pids
    assert pid is not None
    before = processor_seconds(pid), time.process_time(), time.monotonic()
    await asyncio.sleep(MEASURED_SECONDS)
    seconds = time.monotonic() - before[2]
    print(
        f"  processor: worker {(processor_seconds(pid) - before[0]) / seconds:.2%},"
        f" parent {(time.process_time() - before[1]) / seconds:.2%} of one core"
    )
    print(f"  memory: worker {pss_mebibytes(pid):.1f} MiB, parent (without web) {pss_mebibytes(os.getpid()):.1f} MiB")
    trips = []
    for _ in range(REQUESTS):
        await asyncio.sleep(0.06)
        began = time.perf_counter()
        await supervisor.fresh()
        trips.append(1000 * (time.perf_counter() - began))
    trips.sort()
    print(
        f"  fresh: p50 {trips[REQUESTS // 2]:.2f} ms, p99 {trips[REQUESTS * 99 // 100]:.2f} ms, max {trips[-1]:.2f} ms"
    )
    await supervisor.close()
    await run


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    with tempfile.TemporaryDirectory() as directory:
        for model in ("A100-SXM", "H100-SXM", "MI300X"):
            scenario = Path(directory) / f"{model}.yaml"
            scenario.write_text(SCENARIO.format(model=model, count=count))
            asyncio.run(measure(model, count, scenario))


if __name__ == "__main__":
    main()
