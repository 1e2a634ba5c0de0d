"""How long a page takes: `python -m tests.benchmarks.page`; processor time, best of many, beside prometheus-client."""

import gzip
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest

from exporter.exposition import Format, Renderer
from exporter.exposition.subjects import TABLES
from exporter.metrics import REASONS, Block, Kind
from exporter.model import (
    Device,
    DeviceSnapshot,
    EnergyAccount,
    GpuState,
    ProcessSeries,
    Sample,
    Snapshot,
    Workload,
    WorkloadSnapshot,
    World,
)

ENERGY = frozenset({Block.ENERGY})
TEXT = Format.TEXT_0_0_4


def device(index: int, moment: float, processes: int, workloads: int) -> DeviceSnapshot:
    """An H100 with all that NVML tells of it."""
    identity = Device(
        vendor="nvidia",
        key=f"GPU-{index:08x}-1b2c-3d4e-5f60-0123456789ab",
        model="NVIDIA H100 80GB HBM3",
        pci_address=f"0000:{index:02x}:00.0",
        serial=str(1_650_023_000 + index),
        vendor_uuid=f"GPU-{index:08x}-1b2c-3d4e-5f60-0123456789ab",
        index=index,
        minor=index,
        driver_version="570.86.15",
        architecture="hopper",
        firmware={"vbios": "96.00.74.00.01", "inforom": "G520.0200.00.05"},
    )
    sample = Sample(
        device=identity,
        power_watts=431.117 + index + moment,
        power_kind="average",
        power_window_seconds=1.0,
        power_limit_watts=700.0,
        power_limit_default_watts=700.0,
        memory_power_watts=70.1,
        utilization_ratio=0.93,
        memory_controller_utilization_ratio=0.41,
        engine_utilization_ratio={"encoder": 0.0, "decoder": 0.0, "jpeg": 0.0, "ofa": 0.0},
        memory_used_bytes=61_234_567_168.0,
        memory_size_bytes=85_520_809_984.0,
        memory_reserved_bytes=6e8,
        temperature_celsius={"gpu": 61.0, "memory": 70.0},
        temperature_limit_celsius={"shutdown": 92.0, "slowdown": 89.0, "memory": 95.0, "target": 87.0},
        temperature_margin_celsius=26.0,
        clock_hertz={"graphics": 1.98e9, "sm": 1.98e9, "memory": 2.619e9, "video": 1.5e9},
        performance_state=0.0,
        throttled=dict.fromkeys(REASONS[:9], False),
        ecc_errors={"corrected": 0.0, "uncorrected": 0.0},
        ecc_lifetime_errors={"corrected": 3.0, "uncorrected": 0.0},
        memory_remap_failed=False,
        memory_remap_pending=False,
        pcie_link_generation=5.0,
        pcie_link_width=16.0,
        pcie_link_width_max=16.0,
        pcie_replays=0.0,
        process_counts={"holding": processes, "bystander": 0, "uninspectable": 0},
    )
    energy = EnergyAccount(
        total_joules=12_345_678.123456 + index + moment * 1.1,
        by_source_joules={"hardware": 12_345_000.1234 + moment * 1.1, "integrated": 678.0000123},
        hardware_joules=12_345_000.1234 + moment,
        integrated_joules=12_344_444.987123 + moment * 1.3,
        qualified=True,
        divergence_ratio=0.0012345678 + moment / 1e9,
        covered_seconds=98_765.432101 + moment,
        gap_seconds=0.0,
        faults={},
        start_timestamp=1.79e9,
    )
    return DeviceSnapshot(
        gpu=f"nvidia{index}",
        provider="nvidia",
        device=identity,
        state=GpuState.OK,
        sample=sample,
        last_sample_timestamp=1.7966e9 + moment,
        energy=energy,
        busy_seconds=91_234.5678 + moment,
        throttle_seconds=dict.fromkeys(REASONS[:9], 0.123 + moment),
        process_series=tuple(
            ProcessSeries(pid=str(100_000 * index + pid), name="python3", memory_used_bytes=1.5e9 + pid)
            for pid in range(processes)
        ),
        workloads=tuple(workload(number, moment) for number in range(workloads)),
        unattributed_joules=1_234.5678 + moment if workloads else None,
    )


def workload(number: int, moment: float) -> WorkloadSnapshot:
    return WorkloadSnapshot(
        workload=Workload(
            key=f"pod/team-{number % 4}/train-{number:04d}-worker-0/main",
            kind="pod",
            k8s_namespace=f"team-{number % 4}",
            k8s_pod=f"train-{number:04d}-worker-0",
            k8s_container="main",
            pod_uid=f"{number:08x}-1b2c-3d4e-5f60-0123456789ab",
        ),
        allocation_ratio=1.0,
        active_joules=12_345.678901 + number + moment * 1.1,
        idle_joules=1_234.567890123 + number + moment / 7,
        busy_seconds=345.678901 + number + moment / 3,
        allocated_seconds=4_567.0 + number + moment,
        start_timestamp=1.79e9,
    )


def worlds(devices: int, processes: int = 4, count: int = 30, workloads: int = 0) -> list[World]:
    return [
        World(
            snapshots=(
                Snapshot(
                    provider="nvidia",
                    up=True,
                    wanted=True,
                    reason="",
                    devices=tuple(device(index, float(moment), processes, workloads) for index in range(devices)),
                ),
            ),
            versions={},
        )
        for moment in range(count)
    ]


class Theirs:
    """The same blocks as families of prometheus-client."""

    def __init__(self, world: World, blocks: frozenset[Block]) -> None:
        self.world, self.blocks = world, blocks

    def collect(self) -> Iterator[Metric]:
        for table in TABLES:
            subjects = list(table.subjects(self.world))
            for spec in table.specs:
                if spec.block not in self.blocks:
                    continue
                kind: Any = CounterMetricFamily if spec.kind is Kind.COUNTER else GaugeMetricFamily
                family = kind(spec.name, spec.help, labels=(*table.labels, *spec.labels))
                for base, subject in subjects:
                    reading = spec.read(subject)
                    for key, value in reading.items() if isinstance(reading, Mapping) else [((), reading)]:
                        if value is not None:
                            family.add_metric((*base, key) if isinstance(key, str) else (*base, *key), value)
                yield family


def milliseconds(work: Callable[[World], object], inputs: list[World]) -> float:
    times = []
    for world in inputs:
        start = time.process_time()
        work(world)
        times.append(time.process_time() - start)
    return min(times) * 1e3


def report(devices: int, processes: int, workloads: int) -> None:
    inputs = worlds(devices, processes, workloads=workloads)
    fixed: dict[str, int] = dict.fromkeys(Block, 1)
    versioned = [
        msgspec.structs.replace(world, versions={**fixed, Block.ENERGY: 2 + moment})
        for moment, world in enumerate(inputs)
    ]
    renderer = Renderer()
    samples = sum(not line.startswith(b"#") for line in renderer.page(inputs[0], TEXT, ENERGY).splitlines())
    ours = milliseconds(lambda world: renderer.page(world, TEXT, ENERGY), inputs)
    theirs = milliseconds(lambda world: prometheus_client(world, ENERGY), inputs[:5])
    page = renderer.page(inputs[0], TEXT)
    print(f"{devices} devices, {processes} processes and {workloads} workloads each: page of {len(page):,} bytes")
    print(f"  energy block: {samples} samples, {ours * 1e3 / samples:.2f} us each", end=", ")
    print(f"prometheus-client {theirs * 1e3 / samples:.2f} us")
    for compress, form in ((False, "plain"), (True, "gzip")):
        show = partial(renderer.page, format=TEXT, gzip=compress)
        size = len(show(versioned[-1]))
        first = milliseconds(partial(first_page, compress=compress), inputs[:8])
        new = milliseconds(show, inputs)
        fresh = milliseconds(show, versioned)
        cached = milliseconds(show, versioned[-1:] * 30)
        print(f"  {form}, {size:,} bytes: first {first:.2f} ms, all blocks new {new:.2f}", end=", ")
        print(f"energy new {fresh:.2f}, from memory {cached:.3f}")
    everything = milliseconds(lambda world: prometheus_client(world, frozenset(Block)), inputs[:5])
    level_9 = milliseconds(lambda _: gzip.compress(page), inputs[:3])
    print(f"  prometheus-client: {everything:.2f} ms, with gzip {everything + level_9:.2f}")


def first_page(world: World, *, compress: bool) -> bytes:
    return Renderer().page(world, TEXT, gzip=compress)


def prometheus_client(world: World, blocks: frozenset[Block]) -> bytes:
    theirs: Any = Theirs(world, blocks)
    return generate_latest(theirs)


if __name__ == "__main__":
    for machine in ((8, 4, 0), (8, 4, 4), (64, 4, 0), (64, 4, 64), (8, 625, 0)):
        report(*machine)
