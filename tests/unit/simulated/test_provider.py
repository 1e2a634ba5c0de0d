"""Does the simulated provider read a machine as vendors' providers read theirs, faults included?"""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from exporter.model import Device, Group, Groups, Sample
from exporter.providers.protocol import OpenContext, Provider, ProviderError
from exporter.providers.simulated import open_simulated
from exporter.providers.simulated.epoch import epoch_of
from exporter.providers.simulated.machine import Machine
from exporter.providers.simulated.provider import open_machine
from exporter.providers.simulated.readings import CALLS
from exporter.providers.simulated.scenario import load_scenario
from exporter.providers.simulated.schema import Scenario

ALL = Groups(Group)


@dataclass
class Clock:
    now: float = 1_000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Host:
    """A machine behind a provider, with a clock that stands still."""

    devices: list[dict[str, object]]
    faults: list[dict[str, object]] = field(default_factory=list)
    clock: Clock = field(default_factory=Clock)
    calls: int = 0

    def __post_init__(self) -> None:
        scenario = load_scenario(json.dumps({"devices": self.devices, "faults": self.faults}))
        self.machine = Machine(scenario, epoch=0.0)
        self.provider = open_machine(self.machine, OpenContext(between_calls=self._called), self.clock).provider

    def _called(self) -> None:
        self.calls += 1

    def read(self, index: int = 0, groups: Groups = ALL) -> Sample:
        return self.provider.read(self.provider.devices()[index], groups)


def built_in() -> Provider:
    return open_simulated(OpenContext(between_calls=lambda: None)).provider


def test_the_built_in_machine_has_devices_of_several_vendors_that_say_they_are_simulated() -> None:
    provider = built_in()
    devices = provider.devices()
    assert [d.vendor for d in devices] == ["nvidia"] * 4 + ["amd"] * 3 + ["nvidia"]
    assert len({d.key for d in devices}) == 8
    for device in devices:
        assert device.model is not None
        assert "(simulated)" in device.model
        sample = provider.read(device, ALL)
        assert sample.failed == sample.rejected == ()
        assert sample.power_watts is not None
        assert sample.power_watts > 0
        assert sample.temperature_celsius


def test_it_is_the_same_machine_at_the_next_start() -> None:
    first, second = built_in(), built_in()
    assert first.devices() == second.devices()
    for device in first.devices():
        earlier = first.read(device, Groups({Group.ENERGY})).energy_counter_joules
        later = second.read(device, Groups({Group.ENERGY})).energy_counter_joules
        assert earlier is not None
        assert later is not None
        assert 0 <= later - earlier <= 1400 * 5


def test_only_the_groups_asked_for_are_read() -> None:
    host = Host([{"model": "H100-SXM"}])
    sample = host.read(groups=Groups({Group.LOAD}))
    assert set(sample.taken_at) == {Group.LOAD}
    assert sample.memory_size_bytes is not None
    assert sample.power_watts is None
    assert sample.temperature_celsius == {}
    assert sample.processes is None


def test_urgent_requests_can_be_served_before_each_call() -> None:
    host = Host([{"model": "H100-SXM"}])
    device = host.provider.devices()[0]
    host.calls = 0
    host.provider.read(device, ALL)
    assert host.calls == sum(len(calls) for calls in CALLS.values())


def test_energy_can_be_read_from_within_a_call() -> None:
    urgent: list[Device] = []
    found: list[Sample] = []

    def serve() -> None:
        if urgent:
            found.append(provider.read(urgent.pop(), Groups({Group.ENERGY})))

    machine = Machine(load_scenario("devices: [{model: T4}]"), 0.0)
    provider = open_machine(machine, OpenContext(between_calls=serve)).provider
    device = provider.devices()[0]
    urgent.append(device)
    sample = provider.read(device, ALL)
    assert [s.power_watts for s in found] == [sample.power_watts] == [10]


def test_the_four_lanes_of_an_mi350x_training_node() -> None:
    used = 187_695 * 2**20
    values = {"power_watts": 356, "utilization_ratio": 0.9, "memory_used_bytes": used}
    host = Host([{"model": "MI350X", "count": 4, "values": values}])
    assert len(host.provider.devices()) == 4
    for index in range(4):
        sample = host.read(index)
        assert (sample.power_watts, sample.utilization_ratio, sample.memory_used_bytes) == (356, 0.9, used)
        assert sample.failed == sample.rejected == ()


@pytest.mark.parametrize(
    ("model", "kind", "window"),
    [
        ("H100-SXM", "average", 1.0),
        ("A100-SXM", "instant", 0.0),
        ("T4", "instant", 0.0),
        ("MI300X", "instant", 0.0),
        ("MI210", "average", 0.1),
    ],
)
def test_power_is_that_of_the_sensor_that_the_model_has(model: str, kind: str, window: float) -> None:
    sample = Host([{"model": model}]).read()
    assert (sample.power_kind, sample.power_window_seconds) == (kind, window)


def test_an_accumulator_of_the_module_is_not_taken_for_that_of_the_gpu() -> None:
    sample = Host([{"model": "GH200", "load": {"pattern": "constant", "watts": 300}}]).read()
    assert sample.energy_counter_joules is None
    assert sample.module_energy_counter_joules == pytest.approx(440_000, abs=45)
    both = Host([{"model": "GB200", "load": {"pattern": "constant", "watts": 300}}]).read()
    assert both.energy_counter_joules == pytest.approx(300_000, abs=31)
    assert both.module_power_watts == pytest.approx(601.3)


def test_a_lost_device_keeps_its_identity_and_the_others_go_on() -> None:
    host = Host(
        [{"model": "H100-SXM", "faults": [{"kind": "lost", "from_seconds": 900, "to_seconds": 1100}]}, {"model": "T4"}]
    )
    assert host.read(0) == Sample(device=host.provider.devices()[0], lost=True)
    assert host.read(1).power_watts == 10
    host.clock.now = 1200.0
    assert not host.read(0).lost


def test_a_device_that_sleeps_is_not_read() -> None:
    host = Host([{"model": "T4", "faults": [{"kind": "asleep", "to_seconds": 1100}, {"kind": "error", "status": 5}]}])
    assert host.read(0) == Sample(device=host.provider.devices()[0], asleep=True)
    host.clock.now = 1200.0
    assert not host.read(0).asleep


def test_what_leaks_is_never_given_back() -> None:
    leak = {"kind": "leak_descriptors", "call": "memory"}
    host = Host([{"model": "T4", "faults": [leak, {"kind": "leak_memory", "call": "memory", "bytes": 10}]}])
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        host.read(0)
    leaked = [one for one in host.provider._leaked if isinstance(one, int)]
    assert len(list(Path("/proc/self/fd").iterdir())) - before == len(leaked) == 5
    assert sum(len(one) for one in host.provider._leaked if isinstance(one, bytes)) == 50
    host.provider.close()
    for descriptor in leaked:
        os.close(descriptor)


def test_a_removed_device_is_not_enumerated_and_lost_to_those_who_knew_it() -> None:
    host = Host([{"model": "H100-SXM", "faults": [{"kind": "removed", "from_seconds": 1100}]}, {"model": "T4"}])
    (known, other) = host.provider.devices()
    host.clock.now = 1200.0
    assert host.provider.devices() == (other, known)
    assert host.provider.read(known, ALL).lost
    stranger = Host([{"model": "H100-SXM", "faults": [{"kind": "removed"}]}, {"model": "T4"}])
    assert stranger.provider.devices() == (other,)


def test_garbage_is_rejected_by_name_and_the_rest_comes_through() -> None:
    sample = Host([{"model": "H100-SXM", "faults": [{"kind": "garbage"}]}]).read()
    assert {"power_watts", "utilization_ratio", "memory_used_bytes", "temperature_celsius", "clock_hertz"} <= set(
        sample.rejected
    )
    assert sample.power_watts is None
    assert "gpu" not in sample.temperature_celsius
    assert sample.memory_size_bytes is not None
    assert sample.energy_counter_joules is not None


def test_all_ones_mean_no_value_and_are_no_fault() -> None:
    fault = {"kind": "ones", "readings": ["power_watts", "memory_used_bytes", "utilization_ratio"]}
    sample = Host([{"model": "MI300X", "faults": [fault], "accumulator": {"kind": "ones"}}]).read()
    assert (
        sample.power_watts
        is sample.memory_used_bytes
        is sample.utilization_ratio
        is sample.energy_counter_joules
        is None
    )
    assert sample.rejected == sample.failed == ()


def test_a_call_that_fails_is_named_and_the_others_are_read() -> None:
    sample = Host([{"model": "H100-SXM", "faults": [{"kind": "error", "call": "mem*", "status": 999}]}]).read()
    assert sample.failed == ("memory_used_bytes",)
    assert sample.memory_used_bytes is None
    assert sample.utilization_ratio == 0


def test_a_machine_whose_driver_fails_is_unusable_as_a_whole() -> None:
    with pytest.raises(ProviderError, match="status 9"):
        Host([{"model": "T4"}], faults=[{"kind": "error", "call": "open", "status": 9}])
    with pytest.raises(ProviderError, match="not loaded"):
        open_machine(Machine(Scenario(driver_loaded=0), 0.0), OpenContext(between_calls=lambda: None))
    host = Host([{"model": "T4"}], faults=[{"kind": "error", "call": "enumerate", "status": 9, "from_seconds": 1500}])
    host.clock.now = 2000.0
    with pytest.raises(ProviderError, match="status 9"):
        host.provider.devices()


def test_bystanders_are_counted_and_not_listed() -> None:
    processes = [
        {"pid": 7, "name": "worker", "memory_used_bytes": 1e9, "queues": 2},
        {"pid": 8, "name": "monitor", "memory_used_bytes": 0, "queues": 0},
        {"pid": 9, "name": "host-kernels", "memory_used_bytes": 0, "queues": 1},
        {"pid": 10, "name": "unknown"},
    ]
    amd = Host([{"model": "MI300X", "processes": processes}]).read()
    assert amd.processes is not None
    assert [(p.pid, p.memory_used_bytes) for p in amd.processes] == [(7, 1e9), (9, 0), (10, None)]
    assert amd.process_counts == {"holding": 3, "bystander": 1}
    nvidia = Host([{"model": "T4", "processes": processes}]).read()
    assert nvidia.process_counts == {"holding": 4, "bystander": 0}


@pytest.mark.parametrize("model", ["H100-SXM", "MI300X"])
def test_processes_share_the_work_since_the_read_before(model: str) -> None:
    load = {"pattern": "square", "level": 0.8, "period_seconds": 10, "duty": 0.25}
    processes = [
        {"pid": 7, "memory_used_bytes": 1, "share": 0.75},
        {"pid": 8, "memory_used_bytes": 1, "share": 0.25, "started": 123},
        {"pid": 9, "memory_used_bytes": 1},
    ]
    host = Host([{"model": model, "load": load, "processes": processes}])
    only = frozenset({Group.PROCESSES})
    host.read(groups=only)
    for seconds in (10, 30):
        host.clock.now += seconds
        # The load is the mean over whole periods, whatever it is at the moment of the read.
        found = {p.pid: p for p in host.read(groups=only).processes or ()}
        busy = host.machine.devices[0].tracks["gfx_busy"].value(0.0) * 0.25
        assert busy > 0.2
        assert {pid: p.busy_ratio for pid, p in found.items()} == pytest.approx(
            {7: 0.75 * busy, 8: 0.25 * busy, 9: 0.0}
        )
    assert (found[7].started, found[8].started) == (None, 123)


def test_shares_are_not_known_where_none_is_given_or_instances_divide_the_gpu() -> None:
    plain = {"pid": 7, "memory_used_bytes": 1}
    assert [p.busy_ratio for p in Host([{"model": "T4", "processes": [plain]}]).read().processes or ()] == [None]
    divided = {"model": "H100-SXM", "partitions": [{"profile": "7g.80gb"}]}
    mig = Host([{**divided, "processes": [{**plain, "share": 1, "partition": 0}]}])
    assert [p.busy_ratio for p in mig.read().processes or ()] == [None]


def test_partitions_are_named_as_the_vendor_names_them() -> None:
    mig = Host(
        [
            {
                "model": "H100-SXM",
                "partitions": [
                    {"profile": "3g.40gb", "gi": 2},
                    {"profile": "1g.10gb", "gi": 7},
                    {"profile": "1g.10gb", "gi": 7, "ci": 1},
                ],
                "processes": [{"pid": 5, "partition": 2, "memory_used_bytes": 1}],
            }
        ]
    )
    sample = mig.read()
    assert [p.partition for p in sample.partitions or ()] == ["gi2", "gi7ci0", "gi7ci1"]
    assert [p.partition for p in sample.processes or ()] == ["gi7ci1"]
    assert sample.device.partition_mode == "mig"
    assert sample.utilization_ratio is None
    assert Host([{"model": "H100-SXM"}]).read().partitions == ()
    assert Host([{"model": "T4"}]).read().partitions is None


def test_times_are_those_of_the_reads() -> None:
    host = Host([{"model": "T4"}])
    sample = host.read()
    assert sample.taken_at == dict.fromkeys(CALLS, host.clock.now)
    assert sample.read_seconds == dict.fromkeys(CALLS, 0.0)


def test_a_wrong_scenario_is_the_reason_that_the_operator_sees(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("devices: [{model: T5}, {model: T6}, {model: T7}, {model: T8}]", encoding="utf-8")
    context = OpenContext(between_calls=lambda: None, scenario=str(file))
    with pytest.raises(ProviderError, match=r"mine\.yaml: devices\[0\].model: .*; and 1 more") as caught:
        open_simulated(context)
    assert str(tmp_path) not in str(caught.value)
    file.unlink()
    with pytest.raises(ProviderError, match=r"mine\.yaml cannot be read: No such file"):
        open_simulated(context)


def test_the_time_line_of_a_file_starts_when_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text("", encoding="utf-8")
    os.utime(file, (file.stat().st_mtime, file.stat().st_mtime - 300.0))
    first = epoch_of(Scenario(), file, built_in=False)
    assert first == epoch_of(Scenario(), file, built_in=False)
    os.utime(file, (0, file.stat().st_mtime + 100.0))
    assert epoch_of(Scenario(), file, built_in=False) == first + 100.0


def test_an_epoch_may_be_given_the_boot_or_the_start_of_the_daemon(tmp_path: Path) -> None:
    file = tmp_path / "scenario.yaml"
    assert epoch_of(Scenario(epoch_seconds=42.5), file, built_in=False) == 42.5
    assert epoch_of(Scenario(epoch="boot"), file, built_in=False) == 0
    assert epoch_of(Scenario(), file, built_in=True) == 0
    stat = tmp_path / "proc" / str(os.getppid()) / "stat"
    stat.parent.mkdir(parents=True)
    stat.write_text("7 (a ) b) S " + " ".join(["0"] * 18) + " 123400 0 0\n", encoding="utf-8")
    ticks = 123_400 / os.sysconf("SC_CLK_TCK")
    assert epoch_of(Scenario(epoch="start"), file, built_in=False, root=tmp_path) <= ticks


def test_devices_can_be_read_by_an_identity_from_another_enumeration() -> None:
    host = Host([{"model": "T4"}])
    stale = Device(vendor="nvidia", key=host.provider.devices()[0].key)
    assert host.provider.read(stale, ALL).power_watts == 10
