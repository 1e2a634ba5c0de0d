"""What the whole daemon costs over the real pynvml and the C stand-in: `python -m tests.benchmarks.daemon [SECONDS]`.

Scrapes once a second, so that each asks for fresh energy, then back to back; processor time and memory (PSS, without
the pages of the stand-in, which are of the size of a small library) of the daemon, its worker, and its agent of
attribution.
"""

import socket
import sys
import tempfile
import time
import urllib.parse
from pathlib import Path

from exporter.providers.simulated.machine import Machine
from exporter.providers.simulated.scenario import load_scenario
from tests.benchmarks.figures import processor_seconds, pss_mebibytes, quantile
from tests.integration.daemon import Daemon, running
from tests.native.plan import standin_environment, write_plan

SCENARIO = "devices: [{{model: {model}, count: {count}, load: {{pattern: training}}}}]"
BACK_TO_BACK = 300


class Scraper:
    """One connection that is kept, as Prometheus keeps it."""

    def __init__(self, url: str) -> None:
        where = urllib.parse.urlsplit(url)
        self._socket = socket.create_connection((where.hostname, where.port))
        self._stream = self._socket.makefile("rb")

    def scrape(self) -> tuple[float, int]:
        """Return seconds and bytes of one page."""
        began = time.perf_counter()
        self._socket.sendall(b"GET /metrics HTTP/1.1\r\nHost: exporter\r\nAccept-Encoding: gzip\r\n\r\n")
        length = 0
        while (line := self._stream.readline()) != b"\r\n":
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        self._stream.read(length)
        return time.perf_counter() - began, length


def measure(model: str, count: int, seconds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        plan = Path(folder) / "plan"
        write_plan(plan, Machine(load_scenario(SCENARIO.format(model=model, count=count)), time.monotonic() - 1000))
        with running("--provider", "nvidia", log=Path(folder) / "log", env=standin_environment(plan)) as daemon:
            report(daemon, model, count, seconds)


def report(daemon: Daemon, model: str, count: int, seconds: int) -> None:
    page = daemon.scrape_until(lambda page: len(page.all("gpu_energy_joules_total")) == count)
    full = time.monotonic() - daemon.started
    daemon.scrape_until(lambda page: page.all("gpu_exporter_attribution_up"))
    pids = {"daemon": daemon.process.pid, "worker": daemon.children()[0], "agent": daemon.agents()[0]}
    scraper = Scraper(daemon.url)
    scraper.scrape()
    began, before = time.monotonic(), {name: processor_seconds(pid) for name, pid in pids.items()}
    spaced = []
    while time.monotonic() - began < seconds:
        time.sleep(1)
        spaced.append(scraper.scrape()[0] * 1000)
    elapsed = time.monotonic() - began
    shares = {name: (processor_seconds(pid) - before[name]) / elapsed for name, pid in pids.items()}
    memory = {name: pss_mebibytes(pid) for name, pid in pids.items()}
    burst = [scraper.scrape()[0] * 1000 for _ in range(BACK_TO_BACK)]
    series = sum(map(len, page.series.values()))
    size = f"{series} series, {len(page.page)} bytes, gzip {scraper.scrape()[1]}"
    print(f"{count} x {model}: {size}; full page after {full:.2f} s")
    print(
        f"  scrapes 1 s apart ({len(spaced)}): p50 {quantile(spaced, 0.5):.2f} ms, p99 {quantile(spaced, 0.99):.2f} ms"
    )
    print(f"  back to back ({BACK_TO_BACK}): p50 {quantile(burst, 0.5):.2f} ms, p99 {quantile(burst, 0.99):.2f} ms")
    each = ", ".join(f"{name} {share:.2%}" for name, share in shares.items())
    print(f"  processor, of one core: {each}, together {sum(shares.values()):.2%}")
    each = ", ".join(f"{name} {amount:.1f} MiB" for name, amount in memory.items())
    print(f"  memory: {each}, together {sum(memory.values()):.1f} MiB")


def main() -> None:
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    for model, count in (("H100-SXM", 8), ("A100-SXM", 8), ("H100-SXM", 64)):
        measure(model, count, seconds)


if __name__ == "__main__":
    main()
