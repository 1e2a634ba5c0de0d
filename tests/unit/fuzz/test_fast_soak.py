"""Days in fast motion, on a host where everything comes and goes: what is kept and shown stays as large as it was."""

import gc
import re
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from exporter.announce import Announcer
from exporter.exposition import Format, Renderer
from exporter.fleet import MOST_DEVICES, Fleet, groups
from exporter.fleet.bounds import MOST_NAMES, MOST_PROCESSES
from exporter.journal import Places
from exporter.journal.format import MAX_BYTES, decode
from exporter.journal.store import LIVE, Store
from exporter.web.status import landing_page
from tests.unit.fuzz.churn import WALL, Churn, fleet
from tests.unit.fuzz.containers import Sizes, sizes

TICKS = 20_000
TICK_SECONDS = 30.0
"""A week in all: longer than any memory of the past that is kept."""
PAGES_EVERY = 100
LOOKS_EVERY = 1_000
SEED = 20260
COUNTED = (
    *("duplicate_identity", "too_many_devices", "too_many_processes", "too_many_partitions", "too_many_vendors"),
    *("too_many_names", "unknown_reason", "other"),
)
BY_NAME = ("clock_hertz", "ecc_errors", "engine_utilization_ratio", "process_counts", "temperature_celsius")
FIELDS = max(map(len, groups.FIELDS.values()))
CEILINGS = {
    "Source.aliases": MOST_DEVICES,
    **dict.fromkeys((f"Sample.{name}" for name in BY_NAME), MOST_NAMES),
    **dict.fromkeys(("Sights._said{}{}", "Sights._said{}{}{}"), FIELDS),
}
"""Of what fills so slowly, or so seldom, that the first half does not see it full."""
SLACK = 1.3
"""How much more than in the first half may be found in the second, where what comes is a matter of chance: what grows
without end is twice as large."""


def resident() -> int:
    gc.collect()
    return int(re.findall(r"^Rss:\s+(\d+)", Path("/proc/self/smaps_rollup").read_text(), re.MULTILINE)[0]) * 1024


class Half:
    """What was largest in one half of the soak."""

    def __init__(self) -> None:
        self.containers = Sizes()
        self.reached = 0
        self.series = 0
        self.page_bytes = 0
        self.journal_bytes = 0
        self.resident = 0

    def look(self, **roots: object) -> None:
        found = sizes(**roots)
        for path, size in found.items():
            self.containers[path] = max(size, self.containers.get(path, 0))
        self.reached = max(self.reached, found.bytes)


def test_nothing_grows_in_a_week_of_churn(tmp_path: Path, record_property: Callable[[str, str], None]) -> None:
    began = time.monotonic()
    random = Random(SEED)
    host = Churn(fleet(), random)
    renderer, announcer = Renderer(created=True), Announcer()
    store = Store(Places(tmp_path / "run", tmp_path / "state"), "this boot", lambda: host.now)
    store.start()
    halves = (Half(), Half())
    for tick in range(TICKS):
        half = halves[2 * tick // TICKS]
        host.tick(TICK_SECONDS)
        if tick % PAGES_EVERY == PAGES_EVERY - 1:
            world = host.fleet.world(host.now)
            form, gzip = random.choice(list(Format)), random.random() < 0.3
            page = renderer.page(world, form, None, gzip=gzip)
            host.fleet.dropped(renderer.dropped)
            if not gzip:
                half.page_bytes = max(half.page_bytes, len(page))
                half.series = max(half.series, sum(not line.startswith(b"#") for line in page.splitlines()))
            announcer.lines(world)
            half.page_bytes = max(half.page_bytes, len(landing_page(world, "/metrics", WALL + host.now)))
            store.write(host.fleet.record(host.now))
            half.journal_bytes = max(half.journal_bytes, (tmp_path / "run" / LIVE).stat().st_size)
        if tick % LOOKS_EVERY == LOOKS_EVERY - 1:
            half.look(fleet=host.fleet, renderer=renderer, announcer=announcer, store=store)
            half.resident = max(half.resident, resident())
    page = renderer.page(host.fleet.world(host.now), Format.TEXT_0_0_4, None).decode()
    store.close()
    record_property("table", table(halves, time.monotonic() - began))

    first, second = halves
    grown = {
        path: (first.containers.get(path, 0), size)
        for path, size in second.containers.items()
        if size > max(SLACK * first.containers.get(path, 0) + 16, CEILINGS.get(path, 0))
    }
    assert not grown
    for name in ("reached", "series", "page_bytes", "journal_bytes"):
        assert getattr(second, name) <= SLACK * getattr(first, name) + 100, name
    assert second.resident - first.resident < 16 << 20
    assert second.journal_bytes < MAX_BYTES
    assert second.containers["Fleet._cards"] == MOST_DEVICES
    assert second.containers["Sample.processes"] == MOST_PROCESSES
    # What was left out is counted on the page.
    for reading in COUNTED:
        assert counted(page, "gpu_exporter_read_failures_total", reading) > 0, reading
    assert counted(page, "gpu_exporter_rejected_readings_total", "other") > 0
    assert restored(decode_live(tmp_path), host.now).world(host.now).snapshots


def counted(page: str, name: str, reading: str) -> float:
    return sum(float(value) for value in re.findall(rf'^{name}{{.*reading="{reading}"}} (.*)$', page, re.MULTILINE))


def decode_live(folder: Path) -> bytes:
    return (folder / "run" / LIVE).read_bytes()


def restored(data: bytes, now: float) -> Fleet:
    made = fleet()
    made.restore(decode(data).fleet, now)
    return made


def table(halves: tuple[Half, Half], seconds: float) -> str:
    rows = [
        f"{TICKS} ticks in {seconds:.0f} s, seed {SEED}",
        f"{'the largest':20}{'first half':>14}{'second half':>14}",
    ]
    rows += [
        f"{name.replace('_', ' '):20}{getattr(halves[0], name):14,}{getattr(halves[1], name):14,}"
        for name in ("reached", "series", "page_bytes", "journal_bytes", "resident")
    ]
    members = [sum(half.containers.values()) for half in halves]
    return "\n".join([*rows, f"{'members, summed':20}{members[0]:14,}{members[1]:14,}"])
