"""What the journal costs: `python -m tests.benchmarks.journal [SECONDS] [DIRECTORY]`; by default below /dev/shm.

How long a write takes, and the processor time and the scrapes of a daemon over the C stand-in for NVML, scraped once a
second and then back to back, with a journal and without, in turns.
"""

import sys
import tempfile
import time
from pathlib import Path

from exporter.journal import Places
from exporter.journal.store import LIVE, Store
from exporter.providers.simulated.machine import Machine
from exporter.providers.simulated.scenario import load_scenario
from tests.benchmarks.daemon import SCENARIO, Scraper
from tests.benchmarks.figures import processor_seconds, quantile
from tests.integration.daemon import running
from tests.native.plan import standin_environment, write_plan
from tests.unit.journal.records import host

WRITES = 2_000
BACK_TO_BACK = 300


def writes(folder: Path, devices: int) -> None:
    made = host(devices, seconds=700)  # every slice of the cross-check is there
    store = Store(Places(folder, folder), "boot", lambda: made.now)
    store.start()
    took, began = [], time.process_time()
    for _ in range(WRITES):
        start = time.perf_counter()
        store.write(made.fleet.record(made.now))
        took.append((time.perf_counter() - start) * 1e3)
    processor = (time.process_time() - began) / WRITES * 1e3
    size = (folder / LIVE).stat().st_size
    store.close()
    print(f"{devices} devices, {size:,} bytes: a write takes p50 {quantile(took, 0.5):.3f} ms, ", end="")
    print(f"p99 {quantile(took, 0.99):.3f} ms, at most {max(took):.1f} ms; {processor:.3f} ms of processor time")


def scrapes(folder: Path, devices: int, seconds: int, *, journal: bool) -> None:
    plan = folder / "plan"
    text = SCENARIO.format(model="H100-SXM", count=devices)
    write_plan(plan, Machine(load_scenario(text), time.monotonic() - 1000))
    options = [f"--journal.directory={folder / 'journal'}"] if journal else []
    environment = {**standin_environment(plan), "RUNTIME_DIRECTORY": "", "STATE_DIRECTORY": ""}
    with running("--provider", "nvidia", *options, log=folder / "log", env=environment) as daemon:
        daemon.scrape_until(lambda page: len(page.all("gpu_energy_joules_total")) == devices)
        scraper = Scraper(daemon.url)
        scraper.scrape()
        began, before = time.monotonic(), processor_seconds(daemon.process.pid)
        spaced = []
        while time.monotonic() - began < seconds:
            time.sleep(1)
            spaced.append(scraper.scrape()[0] * 1e3)
        share = (processor_seconds(daemon.process.pid) - before) / (time.monotonic() - began)
        burst = [scraper.scrape()[0] * 1e3 for _ in range(BACK_TO_BACK)]
    print(f"  {devices} devices, {'journal' if journal else 'none   '}: daemon {share:.2%} of a core; ", end="")
    print(f"1 s apart p50 {quantile(spaced, 0.5):.2f} p99 {quantile(spaced, 0.99):.2f} ms; ", end="")
    print(f"back to back p50 {quantile(burst, 0.5):.2f} p99 {quantile(burst, 0.99):.2f} ms")


def main() -> None:
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    place = sys.argv[2] if len(sys.argv) > 2 else "/dev/shm"  # noqa: S108 -- the only tmpfs that is everywhere
    for devices in (8, 64):
        with tempfile.TemporaryDirectory(dir=place) as folder:
            writes(Path(folder), devices)
    for devices in (8, 64):
        for turn in range(4):
            with tempfile.TemporaryDirectory(dir=place) as folder:
                scrapes(Path(folder), devices, seconds, journal=turn % 2 == 1)


if __name__ == "__main__":
    main()
