"""Bytes and series of a GPU on the page: by default, and with each option that changes them."""

import gzip
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from tests.benchmarks.suite.rig import OPENMETRICS, TEXT, TRAINING, Scraper, exporter, plain, scenario, series
from tests.benchmarks.suite.section import Section

PROCESSES = 20
"""On each GPU, which is more than are shown."""
SEVERAL = 5
"""GPUs of the larger machine; a GPU is what it has more than one GPU."""
FIRST = 4_000_000
"""The least pid."""


class Case(NamedTuple):
    config: Mapping[str, Any] = {}
    used: bool = False
    """By processes."""
    accept: str = TEXT
    model: str = "H100-SXM"


CASES: Mapping[str, Case] = {
    "default, no processes": Case(),
    "the same as OpenMetrics": Case(accept=OPENMETRICS),
    "`metrics.created`, as OpenMetrics": Case({"metrics": {"created": True}}, accept=OPENMETRICS),
    "`metrics.links: each`": Case({"metrics": {"links": "each"}}),
    "`metrics.disable: [gpu_throttle*]`": Case({"metrics": {"disable": ["gpu_throttle*"]}}),
    "`sampling.pcie_bytes`": Case({"sampling": {"pcie_bytes": True}}),
    "`sampling.profiling_seconds: 1`": Case({"sampling": {"profiling_seconds": 1}}),
    f"default, {PROCESSES} processes a GPU": Case(used=True),
    f"`processes.top: 4`, {PROCESSES} processes": Case({"processes": {"top": 4}}, used=True),
    f"`processes.top: 0`, {PROCESSES} processes": Case({"processes": {"top": 0}}, used=True),
    f"`processes.labels: [name]`, {PROCESSES} processes": Case({"processes": {"labels": ["name"]}}, used=True),
    "MI300X, default": Case(model="MI300X"),
    "MI300X, `metrics.links: each`": Case({"metrics": {"links": "each"}}, model="MI300X"),
}
LOOKS, SETTLED_SECONDS = 5, 2.5
_WAITED_FOR = {
    "pcie": b"\ngpu_pcie_receive_bytes_total{",
    "profiling": b"\ngpu_sm_active_ratio{",
}


def processes(gpu: int) -> list[dict[str, Any]]:
    return [
        {"pid": FIRST + 100 * gpu + number, "name": f"trainer-{number % 3}", "memory_used_bytes": 2e9 + 1e8 * number}
        for number in range(PROCESSES)
    ]


def page(count: int, case: Case) -> bytes:
    by_gpu: Sequence[list[dict[str, Any]]] = [processes(gpu) if case.used else [] for gpu in range(count)]
    sampling = {"processes_seconds": 1.0, **case.config.get("sampling", {})}
    config = {**case.config, "sampling": sampling}
    with exporter(scenario(count, case.model, TRAINING, by_gpu), config, provider="simulated") as daemon:
        scraper = Scraper(daemon.url, case.accept)
        wanted = [name for option, name in _WAITED_FOR.items() if any(option in key for key in sampling)]
        wanted += [b"\ngpu_process_memory_used_bytes{"] if case.used else []

        def full() -> bytes | None:
            body = plain(scraper.scrape().body)
            return body if all(body.count(name) >= count for name in wanted) else None

        daemon.until(full)
        body = b""
        for _ in range(LOOKS):  # some series come with the second reading, or with the first answer of the agent
            before, body = body, plain(scraper.scrape().body)
            if series(before) == series(body):
                break
            time.sleep(SETTLED_SECONDS)
        return body


def sizes(_: float) -> Section:
    section = Section("Size of a GPU")

    def measured(case: Case) -> list[bytes]:
        return [page(count, case) for count in (1, SEVERAL)]

    # Most of it is waiting.
    with ThreadPoolExecutor(4) as pool:
        pages = dict(zip(CASES, pool.map(measured, CASES.values()), strict=True))
    rows = []
    for name, (one, several) in pages.items():
        more = [
            (size(several) - size(one)) / (SEVERAL - 1)
            for size in (series, len, lambda text: len(gzip.compress(text, 6)))
        ]
        rows.append([name, *(f"{value:,.0f}" for value in more)])
        rows[-1] += [f"{series(one) - more[0]:,.0f}"]
    section.say(
        "What one GPU of the simulated provider, an H100 unless another is named, adds to the page, and what is there "
        "without any GPU. Compressed by zlib's level 6. A workload adds its own series: docs/metrics.md lists them."
    )
    section.table(("", "series", "bytes", "gzip", "series besides"), rows)
    return section
