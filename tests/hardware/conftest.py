"""The report of a run on hardware, and what the tests share: one opening of each library, one load."""

import json
import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from exporter import __version__
from tests.hardware.machine import Bench, Load, benches, load

HELD_BYTES = 2 * 2**30

Report = dict[str, Any]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "bench_name" in metafunc.fixturenames:
        metafunc.parametrize("bench_name", ["nvidia", "amd", "drm"], scope="session")


@pytest.fixture(scope="session")
def opened() -> Iterator[tuple[dict[str, Bench], dict[str, str]]]:
    found, reasons = benches()
    yield {bench.name: bench for bench in found}, reasons
    for bench in found:
        bench.provider.close()


@pytest.fixture(scope="session")
def report() -> Iterator[Report]:
    """What was measured, by provider; written at the end."""
    results: Report = {}
    yield results
    if not results:
        return
    about = {"exporter": __version__, "python": platform.python_version(), "kernel": platform.release()}
    place = Path(os.environ.get("HARDWARE_RESULT", "hardware.json"))
    place.write_text(json.dumps({"about": about, "providers": results}, indent=1, default=str) + "\n")


@pytest.fixture
def bench(bench_name: str, opened: tuple[dict[str, Bench], dict[str, str]], report: Report) -> Bench:
    found, reasons = opened
    if bench_name not in found:
        pytest.skip(f"no GPU for {bench_name} here: {reasons.get(bench_name, 'there is no such provider')}")
    bench = found[bench_name]
    identity = {"model": bench.device.model, "driver": bench.device.driver_version, "library": bench.version}
    report.setdefault(bench_name, identity)
    return bench


@pytest.fixture
def worked(bench: Bench) -> Iterator[Load]:
    if bench.device.pci_address is None:
        pytest.skip("the GPU has no PCI address to find it by for a load")
    with load(bench.device.pci_address, HELD_BYTES) as found:
        if isinstance(found, str):
            pytest.skip(found)
        yield found
