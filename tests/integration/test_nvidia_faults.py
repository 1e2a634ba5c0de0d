"""The real pynvml over the C stand-in: every way to fail, and the way back."""

import ctypes.util
import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from exporter.model import Group, Sample
from exporter.providers.simulated.machine import Machine
from exporter.providers.simulated.schema import (
    DeviceSpec,
    FaultSpec,
    Scenario,
)
from tests.integration.nvidia import SECONDS, Down, Start, constant, first, machine, session
from tests.integration.sweep import swept
from tests.native.plan import standin_environment, write_plan


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


def test_each_call_that_fails_costs_what_it_would_have_told_and_nothing_else(tmp_path: Path) -> None:
    outcomes = swept("nvidia", "errors", tmp_path, standin_environment(tmp_path / "plan"))
    assert min(outcomes[kind] for kind in ("absent", "fails", "lost", "provider down")) > 10, outcomes


def test_garbage_in_any_number_is_no_reading(tmp_path: Path) -> None:
    outcomes = swept("nvidia", "garbage", tmp_path, standin_environment(tmp_path / "plan"))
    assert outcomes["rejected"] > 100, outcomes


def host_with(root: Path, *statuses: str, driver: str = "nvidia") -> Path:
    """Lay out the PCI bus of a host with NVIDIA GPUs in these states of runtime power management."""
    for number, status in enumerate(statuses):
        device = root / f"sys/bus/pci/devices/{machine(*[constant('T4')] * 2).devices[number].texts['pci_address']}"
        (device / "power").mkdir(parents=True, exist_ok=True)
        (device / "vendor").write_text("0x10de\n")
        (device / "class").write_text("0x030200\n")
        (device / "driver").unlink(missing_ok=True)
        (device / "driver").symlink_to(f"../../drivers/{driver}")
        (device / "power/runtime_status").write_text(f"{status}\n")
    return root


def test_a_suspended_gpu_is_asked_nothing_and_is_known_when_it_wakes(start: Start, plan: Path, tmp_path: Path) -> None:
    sane = machine(constant("T4", 50.0), constant("T4", 60.0))
    # The stand-in ends the process at any call that would wake it.
    asleep = constant("T4", 60.0, faults=(FaultSpec(kind="asleep"),))
    sleeping = Machine(Scenario(devices=(constant("T4", 50.0), asleep)), sane.epoch)
    with start(sane) as served:
        served.open(host_with(tmp_path, "active", "active"))
        first_gpu, second = served.devices()
        assert served.read(second).power_watts == 60
        host_with(tmp_path, "active", "suspended")
        write_plan(plan, sleeping)
        assert served.read(second) == Sample(device=second, asleep=True)
        assert served.devices() == (first_gpu, second)
        assert served.read(first_gpu).power_watts == 50
        host_with(tmp_path, "active", "active")
        write_plan(plan, sane)
        assert served.read(second, Group.ENERGY).power_watts == 60


@pytest.mark.parametrize("is_told", [True, False])
def test_a_gpu_that_sleeps_at_the_start_is_listed_unasked(
    start: Start, plan: Path, tmp_path: Path, *, is_told: bool
) -> None:
    sane = machine(constant("T4", 50.0), constant("T4", 60.0))
    asleep = constant("T4", 60.0, faults=(FaultSpec(kind="asleep"),))
    known = sane.devices[1]
    address = known.texts["pci_address"]
    if is_told:
        information = tmp_path / "proc/driver/nvidia/gpus" / address / "information"
        information.parent.mkdir(parents=True)
        information.write_text(f"Model: \t\t Tesla T4\nIRQ:   \t\t 99\nGPU UUID: \t {known.key}\nDevice Minor: \t 1\n")
    with start(Machine(Scenario(devices=(constant("T4", 50.0), asleep)), sane.epoch)) as served:
        served.open(host_with(tmp_path, "active", "suspended"))
        awake, sleeper = served.devices()
        assert served.read(awake).power_watts == 50
        assert sleeper.key == (known.key if is_told else address)
        assert (sleeper.model, sleeper.minor) == (("Tesla T4", 1) if is_told else (None, None))
        assert served.read(sleeper) == Sample(device=sleeper, asleep=True)
        host_with(tmp_path, "active", "active")
        write_plan(plan, sane)
        sample = served.read(sleeper)
        assert (sample.power_watts, sample.device.key) == (60, sleeper.key)
        assert sample.device.model == "Tesla T4"
        assert {device.key for device in served.devices()} == {device.key for device in sane.devices}


def test_a_card_of_another_driver_is_not_listed_however_fast_it_sleeps(start: Start, tmp_path: Path) -> None:
    with start(machine(constant("T4", 50.0))) as served:
        served.open(host_with(tmp_path, "active", "suspended", driver="nouveau"))
        assert len(served.devices()) == 1


def test_a_gpu_that_does_not_say_which_it_is_is_the_one_at_its_address(start: Start, plan: Path) -> None:
    sane = machine(constant("T4", 50.0), constant("T4", 60.0))
    nameless = constant("T4", 60.0, faults=(FaultSpec(kind="error", call="nvmlDeviceGetUUID", status=17),))
    with start(sane) as served:
        served.open()
        known = served.devices()
        write_plan(plan, Machine(Scenario(devices=(constant("T4", 50.0), nameless)), sane.epoch))
        assert served.devices() == known
        assert served.read(known[1]).power_watts == 60
