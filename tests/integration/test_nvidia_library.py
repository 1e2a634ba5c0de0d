"""The real pynvml over the C stand-in: every reading of each kind of GPU, and every way to fail."""

import ctypes.util
import dataclasses
import json
import math
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from exporter.model import Device, Group, PartitionSample, ProcessSample, Sample
from exporter.providers.simulated.machine import Machine
from exporter.providers.simulated.properties import NUMBERS
from exporter.providers.simulated.schema import (
    Counter,
    DeviceSpec,
    FaultSpec,
    Load,
    Partition,
    Process,
    Scenario,
    Texts,
    Values,
)
from tests.native.plan import standin_environment, write_plan

pytestmark = pytest.mark.integration

REPOSITORY = Path(__file__).resolve().parents[2]
MIB = 1 << 20
SECONDS = 20.0
"""How long an answer may take on a busy machine."""

# Serves one command a line, as a worker would call the provider.
SCRIPT = """
import sys
from pathlib import Path
import msgspec
from exporter.model import Device, Group
from exporter.providers.nvidia import open_nvidia
from exporter.providers.protocol import OpenContext, ProviderError

provider = None
for line in sys.stdin:
    command = msgspec.json.decode(line)
    try:
        if command["do"] == "open":
            opened = open_nvidia(OpenContext(between_calls=lambda: None, root=Path(command["root"])))
            provider, answer = opened.provider, opened.library_version
        elif command["do"] == "devices":
            answer = provider.devices()
        elif command["do"] == "read":
            device = msgspec.convert(command["device"], Device)
            answer = provider.read(device, frozenset(map(Group, command["groups"])))
        else:
            answer = provider.close()
        reply = {"answer": answer}
    except ProviderError as error:
        reply = {"error": str(error)}
    sys.stdout.write(msgspec.json.encode(reply).decode() + "\\n")
    sys.stdout.flush()
"""


class Down(Exception):  # noqa: N818 -- an answer, not an error of the test
    """The provider said ProviderError."""


class Session:
    """The provider in a process of its own."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        assert process.stdout is not None
        self._answers = selectors.DefaultSelector()
        self._answers.register(process.stdout, selectors.EVENT_READ)

    def ask(self, do: str, *, seconds: float = SECONDS, **what: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"do": do, **what}) + "\n")
        self.process.stdin.flush()
        if not self._answers.select(seconds):
            raise TimeoutError(do)
        reply = json.loads(self.process.stdout.readline() or '{"error": "the process ended"}')
        if "error" in reply:
            raise Down(reply["error"])
        return reply["answer"]

    def open(self, root: Path = Path("/")) -> str | None:
        version: str | None = self.ask("open", root=str(root))
        return version

    def devices(self) -> tuple[Device, ...]:
        return msgspec.convert(self.ask("devices"), tuple[Device, ...])

    def read(self, device: Device, *groups: Group, seconds: float = SECONDS) -> Sample:
        wanted = [str(group) for group in groups or Group]
        raw = self.ask("read", device=msgspec.to_builtins(device), groups=wanted, seconds=seconds)
        return msgspec.convert(raw, Sample)

    def end(self) -> None:
        self._answers.close()
        self.process.kill()
        self.process.communicate(timeout=SECONDS)


@contextmanager
def session(variables: dict[str, str]) -> Iterator[Session]:
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **variables}
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        cwd=REPOSITORY,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    served = Session(process)
    try:
        yield served
    finally:
        served.end()


Start = Callable[..., AbstractContextManager[Session]]


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    return tmp_path / "plan"


@pytest.fixture
def start(plan: Path) -> Start:
    """Write a machine's plan, if one is given, and start a session over the stand-in."""

    def started(machine: Machine | None = None) -> AbstractContextManager[Session]:
        if machine is not None:
            write_plan(plan, machine)
        return session(standin_environment(plan))

    return started


def machine(*devices: DeviceSpec, age: float = 1000.0, **more: Any) -> Machine:
    return Machine(Scenario(devices=devices, **more), time.monotonic() - age)


def constant(model: str, watts: float = 500.0, values: Any = None, **more: Any) -> DeviceSpec:
    return DeviceSpec(
        model=model, load=Load(pattern="constant", watts=watts), values=Values() if values is None else values, **more
    )


def first(served: Session) -> Sample:
    served.open()
    return served.read(served.devices()[0])


H100 = Values(
    power_watts=500.123,
    memory_power_watts=61.5,
    power_limit_watts=650.0,
    utilization_ratio=0.87,
    memory_controller_utilization_ratio=0.35,
    encoder_utilization_ratio=0.01,
    decoder_utilization_ratio=0.02,
    jpeg_utilization_ratio=0.03,
    ofa_utilization_ratio=0.04,
    memory_used_bytes=40_000 * MIB,
    temperature_gpu_celsius=61.0,
    temperature_memory_celsius=70.0,
    temperature_margin_celsius=26.0,
    clock_graphics_hertz=1.755e9,
    clock_sm_hertz=1.74e9,
    clock_memory_hertz=2.619e9,
    clock_video_hertz=1.29e9,
    performance_state=0,
    throttle_sw_power_cap=1,
    throttle_sw_power_cap_seconds=12.5,
    throttle_hw_thermal_seconds=0.25,
    ecc_corrected=3,
    ecc_uncorrected=0,
    ecc_lifetime_corrected=65_535,
    ecc_lifetime_uncorrected=1,
    remapped_corrected=1,
    remap_pending=1,
    pcie_generation=5,
    pcie_width=8,
    pcie_width_max=16,
    pcie_replays=7,
    pci_subsystem_id=0x16C1,
)


def test_every_reading_of_an_h100(start: Start) -> None:
    texts = Texts(serial="1652922001234", pci_address="0000:db:00.0", vbios_version="96.00.74.00.01")
    truth = machine(constant("H100-SXM", values=H100, texts=texts), library_version="13.580.95.05")
    with start(truth) as served:
        assert served.open() == "13.580.95.05"
        (device,) = served.devices()
        sample = served.read(device)
    assert device == Device(
        vendor="nvidia",
        key=truth.devices[0].texts["uuid"],
        model="NVIDIA H100 80GB HBM3",
        pci_address="0000:db:00.0",
        serial="1652922001234",
        vendor_uuid=truth.devices[0].texts["uuid"],
        index=0,
        minor=0,
        architecture="Hopper",
        driver_version="580.95.05",
        memory_kind="dedicated",
        firmware={"vbios": "96.00.74.00.01"},
    )
    joules = sample.energy_counter_joules
    at = sample.taken_at[Group.ENERGY]
    assert joules == pytest.approx(truth.energy_joules(device.key, at), abs=500.123 * 0.15)
    assert sample == Sample(
        device=device,
        taken_at=sample.taken_at,
        read_seconds=sample.read_seconds,
        power_watts=500.123,
        power_kind="average",
        power_window_seconds=1.0,
        power_limit_watts=650.0,
        power_limit_default_watts=700.0,
        memory_power_watts=61.5,
        energy_counter_joules=joules,
        utilization_ratio=0.87,
        memory_controller_utilization_ratio=0.35,
        engine_utilization_ratio={"encoder": 0.01, "decoder": 0.02, "jpeg": 0.03, "ofa": 0.04},
        memory_used_bytes=40_000.0 * MIB,
        memory_size_bytes=81_559.0 * MIB,
        memory_reserved_bytes=480.0 * MIB,
        temperature_celsius={"gpu": 61.0, "memory": 70.0},
        temperature_margin_celsius=26.0,
        clock_hertz={"graphics": 1.755e9, "sm": 1.74e9, "memory": 2.619e9, "video": 1.29e9},
        performance_state=0.0,
        throttled={
            "application_clocks": False,
            "display_clocks": False,
            "hw_power_brake": False,
            "hw_slowdown": False,
            "hw_thermal": False,
            "idle": False,
            "sw_power_cap": True,
            "sw_thermal": False,
            "sync_boost": False,
        },
        throttle_seconds={
            "sw_power_cap": 12.5,
            "sync_boost": 0.0,
            "sw_thermal": 0.0,
            "hw_thermal": 0.25,
            "hw_power_brake": 0.0,
        },
        ecc_errors={"corrected": 3.0, "uncorrected": 0.0},
        ecc_lifetime_errors={"corrected": 65_535.0, "uncorrected": 1.0},
        memory_remap_failed=False,
        memory_remap_pending=True,
        pcie_link_generation=5.0,
        pcie_link_width=8.0,
        pcie_link_width_max=16.0,
        pcie_replays=7.0,
        partitions=(),
        processes=(),
        process_counts={"holding": 0, "uninspectable": 0},
    )


def test_a100_has_no_average_and_absolute_thresholds(start: Start) -> None:
    with start(machine(constant("A100-SXM", watts=300.0))) as served:
        sample = first(served)
    assert (sample.power_watts, sample.power_kind, sample.power_window_seconds) == (300.0, "instant", 0.0)
    assert sample.temperature_limit_celsius == {"shutdown": 92.0, "slowdown": 89.0, "memory": 95.0, "target": 85.0}
    assert (sample.temperature_margin_celsius, sample.memory_power_watts, sample.module_power_watts) == (None,) * 3
    assert sample.device.architecture == "Ampere"
    assert sample.energy_counter_joules is not None
    assert sample.failed == sample.rejected == ()


def test_a100_of_a_driver_without_power_fields_reads_the_plain_power(start: Start) -> None:
    no_fields = FaultSpec(kind="error", call="nvmlDeviceGetFieldValues", status=13)
    with start(machine(constant("A100-SXM", watts=300.0, faults=(no_fields,)))) as served:
        sample = first(served)
    assert (sample.power_watts, sample.power_kind, sample.power_window_seconds) == (300.0, "instant", 0.0)
    assert sample.failed == ()


def test_t4(start: Start) -> None:
    values = Values(retired_pages_single_bit=2, retired_pages_double_bit=1, memory_used_bytes=0)
    with start(machine(constant("T4", watts=70.0, values=values))) as served:
        sample = first(served)
    assert (sample.power_watts, sample.power_kind, sample.power_window_seconds) == (70.0, "instant", 0.0)
    assert sample.retired_pages == {"single_bit": 2.0, "double_bit": 1.0}
    assert sample.memory_remap_failed is None
    assert set(sample.temperature_celsius) == {"gpu"}
    assert set(sample.engine_utilization_ratio) == {"encoder", "decoder"}
    assert (sample.memory_used_bytes, sample.memory_size_bytes) == (0.0, 15_360.0 * MIB)
    assert sample.fan_speed_ratio is None
    assert sample.partitions is None
    assert sample.device.architecture == "Turing"
    assert sample.failed == sample.rejected == ()


def test_accumulator_of_gh200_is_that_of_the_module(start: Start) -> None:
    truth = machine(constant("GH200", watts=400.0))
    with start(truth) as served:
        sample = first(served)
    assert (sample.power_watts, sample.module_power_watts, sample.power_kind) == (400.0, 540.0, "average")
    assert sample.energy_counter_joules is None
    assert sample.module_energy_counter_joules == pytest.approx(540.0 * 1000.0, rel=0.02)
    assert sample.power_scope == "gpu"


def test_gb200_has_an_accumulator_of_its_own_beside_that_of_the_module(start: Start) -> None:
    with start(machine(constant("GB200", watts=900.0))) as served:
        sample = first(served)
    assert (sample.power_watts, sample.module_power_watts) == (900.0, 1201.3)
    assert sample.energy_counter_joules == pytest.approx(900.0 * 1000.0, rel=0.02)
    assert sample.module_energy_counter_joules == pytest.approx(1201.3 * 1000.0, rel=0.02)


def test_mig_parent_and_instances(start: Start) -> None:
    partitions = (
        Partition(profile="3g.40gb", gi=1, ci=0, uuid="MIG-a", memory_used_bytes=30_000.0 * MIB),
        Partition(profile="1g.10gb", gi=4, ci=0, uuid="MIG-gone", to_seconds=1.0),  # a hole in the numbering
        Partition(profile="2g.20gb", gi=5, ci=0, uuid="MIG-b", memory_used_bytes=100.0 * MIB),
        Partition(profile="2g.20gb", gi=5, ci=1, uuid="MIG-c", memory_used_bytes=100.0 * MIB),
    )
    processes = (
        Process(pid=101, memory_used_bytes=29_000.0 * MIB, partition=0),
        Process(pid=102, memory_used_bytes=50.0 * MIB, partition=3),
    )
    parent = constant("A100-SXM", watts=300.0, partitions=partitions, processes=processes)
    with start(machine(parent)) as served:
        sample = first(served)
    assert sample.device.partition_mode == "mig"
    assert (sample.utilization_ratio, sample.engine_utilization_ratio) == (None, {})
    assert sample.memory_remap_failed is None
    assert (sample.power_watts, sample.energy_counter_joules is not None) == (300.0, True)
    big, small = 40_192.0 * MIB, 19_968.0 * MIB
    assert sample.partitions == (
        PartitionSample(
            partition="gi1",
            uuid="MIG-a",
            profile="3g.40gb",
            memory_used_bytes=30_000.0 * MIB,
            memory_size_bytes=big,
        ),
        PartitionSample(
            partition="gi5ci0",
            uuid="MIG-b",
            profile="2g.20gb",
            memory_used_bytes=100.0 * MIB,
            memory_size_bytes=small,
        ),
        PartitionSample(partition="gi5ci1", uuid="MIG-c", profile="2g.20gb"),
    )
    assert [(p.pid, p.partition) for p in sample.processes or ()] == [(101, "gi1"), (102, "gi5ci1")]
    assert sample.failed == ()


def test_mig_that_is_switched_while_we_run(start: Start, plan: Path) -> None:
    whole = machine(constant("A100-SXM"))
    divided = Machine(
        Scenario(devices=(constant("A100-SXM", partitions=(Partition(profile="7g.80gb", gi=0, ci=0),)),)), whole.epoch
    )
    with start(whole) as served:
        served.open()
        (device,) = served.devices()
        assert served.read(device, Group.STATE).partitions == ()
        write_plan(plan, divided)
        sample = served.read(device, Group.STATE)
        assert [p.partition for p in sample.partitions or ()] == ["gi0"]
        assert sample.device.partition_mode == "mig"
        write_plan(plan, whole)
        assert served.read(device, Group.STATE).partitions == ()


def test_jetson_is_a_device_of_which_nothing_can_be_read(start: Start) -> None:
    jetson = DeviceSpec(
        model="T4",
        texts=Texts(name="Orin (nvgpu)"),
        absent=(*NUMBERS, "power_usage_kind", "vbios_version", "serial"),
        accumulator=Counter(kind="absent"),
    )
    with start(machine(jetson)) as served:
        served.open()
        (device,) = served.devices()
        sample = served.read(device)
    assert (device.model, device.pci_address, device.memory_kind) == ("Orin (nvgpu)", None, "unified")
    assert sample == Sample(
        device=device,
        taken_at=sample.taken_at,
        read_seconds=sample.read_seconds,
        processes=(),
        process_counts={"holding": 0, "uninspectable": 0},
    )


def test_processes_of_three_lists(start: Start) -> None:
    me = os.getpid()
    comm = Path(f"/proc/{me}/comm").read_text().strip()
    processes = (
        Process(pid=me, memory_used_bytes=2048.0 * MIB),
        Process(pid=me, memory_used_bytes=64.0 * MIB, kind="graphics"),
        Process(pid=0, memory_used_bytes=1.0, kind="mps"),
        Process(pid=4_194_999, kind="mps"),  # above any pid_max; memory unknown
        Process(pid=0xFFFFFFFF, memory_used_bytes=1.0 * MIB, kind="graphics"),
    )
    with start(machine(constant("H100-SXM", processes=processes))) as served:
        sample = first(served)
    found = {p.pid: p for p in sample.processes or ()}
    assert found[me] == ProcessSample(pid=me, name=comm, memory_used_bytes=2048.0 * MIB)
    assert found[4_194_999] == ProcessSample(pid=4_194_999, name="pid 4194999")
    assert not {0, 0xFFFFFFFF} & set(found)
    assert sample.process_counts["uninspectable"] >= 1
    assert sum(sample.process_counts.values()) == len(found)


def test_many_processes_that_come_and_go(start: Start) -> None:
    churn = Process(pid=50_000, count=400, memory_used_bytes=1.0 * MIB, every_seconds=0.4, lasting_seconds=0.2)
    with start(machine(constant("H100-SXM", processes=(churn,)))) as served:
        served.open()
        (device,) = served.devices()
        sizes = set()
        for _ in range(20):
            sample = served.read(device, Group.PROCESSES)
            assert sample.failed == ()
            assert sample.processes is not None
            assert all(p.memory_used_bytes == MIB for p in sample.processes)
            sizes.add(len(sample.processes))
    assert max(sizes) > 100


def test_process_lists_that_this_driver_lacks_are_unknown(start: Start) -> None:
    lists = (f"nvmlDeviceGet{kind}RunningProcesses_v3" for kind in ("Compute", "Graphics", "MPSCompute"))
    lacking = tuple(FaultSpec(kind="error", call=call, status=13) for call in lists)
    busy = (Process(pid=7, memory_used_bytes=1.0 * MIB),)
    with start(machine(constant("H100-SXM", faults=lacking, processes=busy))) as served:
        sample = first(served)
    assert (sample.processes, sample.process_counts, sample.failed, sample.lost) == (None, {}, (), False)


def test_memory_of_a_driver_before_510_counts_what_is_reserved(start: Start) -> None:
    older = FaultSpec(kind="error", call="nvmlDeviceGetMemoryInfo_v2", status=13)
    values = Values(memory_used_bytes=1_000.0 * MIB)
    with start(machine(constant("H100-SXM", values=values, faults=(older,)))) as served:
        sample = first(served)
    assert (sample.memory_used_bytes, sample.memory_reserved_bytes) == (1_480.0 * MIB, None)


def test_older_names_and_calls_stand_in(start: Start) -> None:
    missing = ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetCurrentClocksEventReasons")
    faults = tuple(FaultSpec(kind="error", call=call, status=13) for call in missing)
    values = Values(temperature_gpu_celsius=55, throttle_hw_thermal=1)
    with start(machine(constant("H100-SXM", values=values, faults=faults))) as served:
        sample = first(served)
    assert sample.temperature_celsius["gpu"] == 55.0
    assert sample.throttled["hw_thermal"]
    assert sample.failed == ()


def test_bytes_that_are_not_utf8_survive_in_a_name(start: Start) -> None:
    with start(machine(constant("H100-SXM", texts=Texts(name="NVIDIA \udcff100")))) as served:
        served.open()
        (device,) = served.devices()
    assert device.model == "NVIDIA \ufffd100"


def test_sentinels_are_absent_and_garbage_is_rejected(start: Start) -> None:
    ones = FaultSpec(kind="ones", readings=("power_watts", "memory_used_bytes", "clock_sm_hertz", "ecc_corrected"))
    garbage = FaultSpec(kind="garbage", values=Values(utilization_ratio=42.0, temperature_gpu_celsius=9_999.0))
    silent = Counter(kind="ones")
    with start(machine(constant("H100-SXM", faults=(ones, garbage), accumulator=silent))) as served:
        sample = first(served)
    assert (sample.power_watts, sample.energy_counter_joules, sample.memory_used_bytes) == (None, None, None)
    assert "sm" not in sample.clock_hertz
    assert sample.ecc_errors == {"uncorrected": 0.0}
    assert sample.utilization_ratio is None
    assert "gpu" not in sample.temperature_celsius
    assert set(sample.rejected) == {"utilization_ratio", "temperature_celsius"}
    assert sample.failed == ()


def test_status_of_one_call_fails_one_reading(start: Start) -> None:
    broken = FaultSpec(kind="error", call="nvmlDeviceGetEnforcedPowerLimit", status=17)
    unknown = FaultSpec(kind="error", call="nvmlDeviceGetTotalEnergyConsumption", status=999)
    with start(machine(constant("H100-SXM", faults=(broken, unknown)))) as served:
        sample = first(served)
    assert set(sample.failed) == {"power_limit_watts", "energy_counter_joules"}
    assert (sample.power_watts, sample.lost) == (500.0, False)


@pytest.mark.parametrize("status", [None, 999])
def test_lost_gpu_and_its_return(start: Start, plan: Path, status: int | None) -> None:
    sane = machine(DeviceSpec(model="H100-SXM", count=2))
    lost = DeviceSpec(model="H100-SXM", faults=(FaultSpec(kind="lost", status=status),))
    broken = Machine(Scenario(devices=(lost, DeviceSpec(model="H100-SXM"))), sane.epoch)
    with start(sane) as served:
        served.open()
        before, other = served.devices()
        write_plan(plan, broken)
        assert served.read(before) == Sample(device=before, lost=True)
        assert not served.read(other).lost
        assert {d.key for d in served.devices()} == {before.key, other.key}
        assert served.read(before, Group.ENERGY).lost
        write_plan(plan, sane)
        assert served.read(before, Group.ENERGY).power_watts is not None


def test_gpu_that_is_removed_from_the_bus(start: Start, plan: Path) -> None:
    sane = machine(DeviceSpec(model="H100-SXM", count=2))
    gone = DeviceSpec(model="H100-SXM", faults=(FaultSpec(kind="removed"),))
    with start(sane) as served:
        served.open()
        before, other = served.devices()
        write_plan(plan, Machine(Scenario(devices=(gone, DeviceSpec(model="H100-SXM"))), sane.epoch))
        assert served.read(before).lost
        assert [d.key for d in served.devices()] == [other.key, before.key]
        assert served.read(before).lost
        assert served.read(other).device.index == 0


def test_gpus_of_one_board_share_a_package(start: Start) -> None:
    truth = machine(DeviceSpec(model="T4", count=3))
    board = {"multi_gpu_board": 1.0, "board_id": 34048.0}
    pair = tuple(dataclasses.replace(d, numbers={**d.numbers, **board}) for d in truth.devices[:2])
    truth.devices = (*pair, truth.devices[2])
    with start(truth) as served:
        served.open()
        assert [d.package for d in served.devices()] == ["board-8500", "board-8500", None]


def test_handles_are_looked_up_again_after_the_library_was_stopped(start: Start) -> None:
    with start(machine(DeviceSpec(model="H100-SXM", count=2))) as served:
        served.open()
        known = served.devices()
        served.ask("close")
        with pytest.raises(Down, match="closed"):
            served.read(known[1])
        served.open()
        assert served.read(known[1], Group.ENERGY).device == known[1]


def test_no_gpu_is_no_error(start: Start) -> None:
    with start(machine()) as served:
        served.open()
        assert served.devices() == ()


def test_driver_that_is_loaded_later(start: Start, plan: Path) -> None:
    with start(machine(DeviceSpec(model="H100-SXM"), driver_loaded=0)) as served:
        with pytest.raises(Down, match="kernel module is not loaded"):
            served.open()
        write_plan(plan, machine(DeviceSpec(model="H100-SXM")))
        served.open()
        assert len(served.devices()) == 1


def test_driver_that_was_upgraded_under_us(start: Start, plan: Path) -> None:
    with start(machine(DeviceSpec(model="H100-SXM"))) as served:
        served.open()
        (device,) = served.devices()
        write_plan(plan, machine(DeviceSpec(model="H100-SXM"), faults=(FaultSpec(kind="error", status=18),)))
        with pytest.raises(Down, match="differ in version"):
            served.read(device)
        served.ask("close")
        with pytest.raises(Down, match="differ in version"):
            served.open()


def test_library_that_does_not_load(tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"not a library, and longer than an ELF header is, so that it is read")
    with session({"LD_LIBRARY_PATH": str(tmp_path)}) as served, pytest.raises(Down, match=r"libnvidia-ml\.so\.1"):
        served.open()


@pytest.mark.skipif(ctypes.util.find_library("nvidia-ml") is not None, reason="a real libnvidia-ml is installed here")
def test_library_that_is_missing() -> None:
    with session({}) as served, pytest.raises(Down, match=r"libnvidia-ml\.so\.1 was not found"):
        served.open()


def test_crash_of_the_library_ends_the_process_by_its_signal(start: Start) -> None:
    crash = FaultSpec(kind="crash", call="nvmlDeviceGetTotalEnergyConsumption")
    with start(machine(DeviceSpec(model="H100-SXM", faults=(crash,)))) as served:
        served.open()
        (known,) = served.devices()
        with pytest.raises(Down, match="ended"):
            served.read(known, Group.ENERGY)
        assert served.process.wait(timeout=SECONDS) == -signal.SIGSEGV


def test_call_that_never_returns_blocks_its_own_device_only(start: Start) -> None:
    hang = FaultSpec(kind="hang", call="nvmlDeviceGetTotalEnergyConsumption")
    with start(machine(DeviceSpec(model="H100-SXM", faults=(hang,)), DeviceSpec(model="H100-SXM"))) as served:
        served.open()
        stuck, other = served.devices()
        assert served.read(other).power_watts is not None
        with pytest.raises(TimeoutError):
            served.read(stuck, Group.ENERGY, seconds=0.5)
        assert served.process.poll() is None


def test_accumulator_grows_as_the_truth_does(start: Start) -> None:
    load = Load(pattern="square", low_watts=100.0, watts=650.0, period_seconds=0.7)
    truth = machine(DeviceSpec(model="H100-SXM", load=load, accumulator=Counter(start_joules=1e9)))
    with start(truth) as served:
        served.open()
        (device,) = served.devices()
        samples = [served.read(device, Group.ENERGY) for _ in range(40)]
    joules = [s.energy_counter_joules or math.nan for s in samples]
    assert joules == sorted(joules)
    for s, value in zip(samples, joules, strict=True):
        true = 1e9 + truth.energy_joules(device.key, s.taken_at[Group.ENERGY])
        assert true - 650.0 * 0.12 <= value <= true + 650.0 * 0.02


LIFE_CYCLE = """
import pynvml as nv

def status(function, *arguments):
    try:
        function(*arguments)
    except nv.NVMLError as error:
        return error.value
    return 0

nv.nvmlInit()
nv.nvmlInit()
handle = nv.nvmlDeviceGetHandleByIndex(0)
print(status(nv.nvmlDeviceGetName, handle))
nv.nvmlShutdown()
print(status(nv.nvmlDeviceGetName, handle))
nv.nvmlShutdown()
print(status(nv.nvmlDeviceGetName, handle), status(nv.nvmlShutdown))
nv.nvmlInit()
print(status(nv.nvmlDeviceGetName, handle), nv.nvmlDeviceGetName(nv.nvmlDeviceGetHandleByIndex(0)))
print(nv.nvmlErrorString(15), "/", nv.NVMLError(15))
"""


def test_stand_in_counts_initialisations_and_lets_handles_die(plan: Path) -> None:
    write_plan(plan, machine(DeviceSpec(model="H100-SXM")))
    done = subprocess.run(
        [sys.executable, "-c", LIFE_CYCLE],
        env={"PATH": os.environ["PATH"], **standin_environment(plan)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )
    assert done.stdout.splitlines() == ["0", "0", "1 1", "2 NVIDIA H100 80GB HBM3", "GPU is lost / GPU is lost"]
