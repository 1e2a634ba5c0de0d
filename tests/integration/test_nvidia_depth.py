"""The real pynvml over the C stand-in: errors as events, links, fabric, profiling, bytes over PCIe."""

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.model import Fabric, Group, LinkSample, Sample
from exporter.providers.simulated.schema import FaultSpec, Partition, Texts, Values
from tests.integration.daemon import Daemon, Samples
from tests.integration.nvidia import SECONDS, Session, Start, constant, first, machine
from tests.native.plan import standin_environment, write_plan

STATE = (Group.ENERGY, Group.STATE)


def until(served: Session, enough: Callable[[Counter[str]], bool], *groups: Group) -> Counter[str]:
    """Read the first GPU until the errors that it reported are enough."""
    found: Counter[str] = Counter()
    (device, *_) = served.devices()
    end = time.monotonic() + SECONDS
    while not enough(found):
        assert time.monotonic() < end, found
        for event in served.read(device, *groups).error_events:
            found[event.code] += event.count
            assert event.kind == "xid"
            assert event.at is not None
            assert abs(event.at - time.time()) < SECONDS
        time.sleep(0.05)
    return found


def descriptors(served: Session) -> int:
    return len(list(Path(f"/proc/{served.process.pid}/fd").iterdir()))


def xid(code: int, at: float, **more: float) -> FaultSpec:
    return FaultSpec(kind="event", code=code, from_seconds=at, **more)


def test_errors_are_counted_from_the_registration_on(start: Start, plan: Path) -> None:
    sane = machine(constant("H100-SXM", faults=(xid(13, 5),)))
    with start(sane) as served:
        assert first(served).error_event_kinds == ("xid",)
        now = time.monotonic() - sane.epoch
        reports = (xid(31, now), xid(31, now + 0.1), xid(79, now + 0.1))
        write_plan(plan, machine(constant("H100-SXM", faults=(xid(13, 5), *reports)), age=now))
        found = until(served, lambda found: found.total() >= 3, *STATE)
    assert found == {"31": 2, "79": 1}


def test_gpu_that_falls_off_says_why(start: Start, plan: Path) -> None:
    sane = machine(constant("H100-SXM"))
    with start(sane) as served:
        served.open()
        (device,) = served.devices()
        assert served.read(device, *STATE).error_event_kinds == ("xid",)
        now = time.monotonic() - sane.epoch
        lost = FaultSpec(kind="lost", from_seconds=now + 0.05)
        write_plan(plan, machine(constant("H100-SXM", faults=(xid(79, now + 0.05), lost)), age=now))
        assert until(served, bool, Group.ENERGY) == {"79": 1}
        assert served.read(device, *STATE).lost
        write_plan(plan, sane)
        assert served.read(device, *STATE).error_event_kinds == ("xid",)


def test_wait_that_hangs_holds_up_neither_readings_nor_the_end(start: Start, plan: Path) -> None:
    with start(machine(constant("H100-SXM"))) as served:
        assert first(served).error_event_kinds == ("xid",)
        (device,) = served.devices()
        before = descriptors(served)
        leak, hang = (FaultSpec(kind=kind, call="nvmlEventSetWait_v2") for kind in ("leak_descriptors", "hang"))
        write_plan(plan, machine(constant("H100-SXM", faults=(leak, hang))))
        served.read(device, *STATE)  # asks for a round of the thread that listens
        end = time.monotonic() + SECONDS
        while descriptors(served) <= before:  # it has not come to the call
            assert time.monotonic() < end
            time.sleep(0.05)
        assert served.read(device, *STATE, seconds=10).power_watts == 500.0
        served.ask("close", seconds=10)


def test_a_gpu_that_reports_no_errors_is_not_listened_to(start: Start) -> None:
    with start(machine(constant("H100-SXM", absent=("event_types",)))) as served:
        sample = first(served)
    assert (sample.error_event_kinds, sample.failed) == ((), ())


@pytest.mark.parametrize(
    ("model", "errors"),
    [
        ("A100-SXM", {"crc": 3.0, "recovery": 2.0, "replay": 1.0}),
        ("H100-SXM", {"crc": 3.0, "recovery": 2.0, "replay": 1.0}),
        ("GB200", {"recovery": 2.0, "replay": 1.0, "symbol": 4.0}),
    ],
)
def test_links_of_each_generation(start: Start, model: str, errors: dict[str, float]) -> None:
    counts = {f"link_{error}_errors": count for error, count in errors.items()}
    values = Values(link_receive_bytes=2.0**54, link_transmit_bytes=1024.0, links_down=2, **counts)
    with start(machine(constant(model, values=values))) as served:
        sample = first(served)
    links = {"A100-SXM": 12}.get(model, 18)
    assert sample.links == tuple(
        LinkSample(
            kind="nvlink",
            link=str(number),
            up=number < links - 2,
            receive_bytes=2.0**54,
            transmit_bytes=1024.0,
            errors=errors,
        )
        for number in range(links)
    )
    assert sample.failed == sample.rejected == ()


def test_fabric_recovery_and_firmware(start: Start) -> None:
    values = Values(fabric_state=2, fabric_clique=7, recovery_action=4)
    texts = Texts(firmware_gsp="580.95.05", firmware_inforom="G548.0201.00.06", vbios_version="97.00.82.00.18")
    with start(machine(constant("GB200", values=values, texts=texts))) as served:
        sample = first(served)
    cluster = "a3f1c2d4-5b60-4a7e-8c91-0d2e3f4a5b6c"
    assert sample.fabric == Fabric(state="in_progress", cluster_uuid=cluster, clique=7)
    assert sample.recovery_action == "drain_and_reset"
    assert sample.device.firmware == {"vbios": "97.00.82.00.18", "inforom": "G548.0201.00.06", "gsp": "580.95.05"}


def test_driver_that_knows_the_older_call_for_the_fabric_alone(start: Start) -> None:
    older = FaultSpec(kind="error", call="nvmlDeviceGetGpuFabricInfoV", status=13)
    with start(machine(constant("H100-SXM", faults=(older,)))) as served:
        sample = first(served)
    assert (sample.fabric, sample.failed) == (Fabric(state="completed"), ())


def profiled(served: Session) -> Sample:
    served.open()
    (device,) = served.devices()
    assert served.read(device, Group.PROFILING).sm_active_ratio is None
    time.sleep(0.2)
    return served.read(device, Group.PROFILING)


def test_profiling_of_a_gpu_and_its_instances(start: Start) -> None:
    values = Values(sm_active_share=0.9, sm_occupancy_share=0.4, tensor_active_share=0.5, dram_active_share=0.0)
    partitions = (Partition(profile="1g.10gb"), Partition(profile="2g.20gb"))
    with start(machine(constant("H100-SXM", watts=735.0, values=values, partitions=partitions))) as served:
        sample = profiled(served)
    # At full load a kernel runs all of the time.
    ratios = (sample.sm_active_ratio, sample.sm_occupancy_ratio, sample.tensor_active_ratio, sample.dram_active_ratio)
    assert ratios == (0.9, 0.4, 0.5, 0.0)
    assert sample.partition_sm_active_ratio == {"gi1": 0.9, "gi2": 0.9}
    assert sample.failed == sample.rejected == ()


def test_profiling_is_not_known_before_hopper(start: Start) -> None:
    with start(machine(constant("A100-SXM"))) as served:
        sample = profiled(served)
    assert (sample.sm_active_ratio, sample.failed) == (None, ())


def test_bytes_over_pcie_wrap_and_are_widened(start: Start, plan: Path) -> None:
    def machine_at(count: float) -> None:
        write_plan(plan, machine(constant("H100-SXM", values=Values(pcie_transmit_bytes=count))))

    with start(machine(constant("H100-SXM", values=Values(pcie_transmit_bytes=5 * 2.0**32 - 96)))) as served:
        served.ask("open", root="/", pcie_bytes=True)
        (device,) = served.devices()
        assert served.read(device, Group.STATE).pcie_transmit_bytes == 0.0
        machine_at(5 * 2.0**32 + 4)
        assert served.read(device, Group.STATE).pcie_transmit_bytes == 100.0


def test_the_page_counts_errors_by_code_and_keeps_them_over_a_loss(
    start_daemon: Callable[..., Daemon], plan: Path
) -> None:
    sane = machine(constant("H100-SXM"))
    write_plan(plan, sane)
    config = plan.with_name("config.yaml")
    config.write_text("sampling: {state_seconds: 0.5, profiling_seconds: 1, pcie_bytes: true}\n")
    daemon = start_daemon("--provider", "nvidia", "--config.file", str(config), env={**standin_environment(plan)})
    read = ("gpu_sm_active_ratio", "gpu_interconnect_links", "gpu_pcie_transmit_bytes_total")
    page = daemon.scrape_until(lambda page: all(name in page for name in read))
    codes = {labels["code"]: value for labels, value in page.all("gpu_error_events_total")}
    assert codes["79"] == 0.0
    assert page.value("gpu_interconnect_links", kind="nvlink", state="up") == 18
    assert page.labels("gpu_interconnect_receive_bytes_total").keys() == {"gpu", "uuid", "kind"}
    now = time.monotonic() - sane.epoch
    faults = (xid(79, now), FaultSpec(kind="lost", from_seconds=now + 0.01))
    write_plan(plan, machine(constant("H100-SXM", faults=faults), age=now))

    def told(page: Samples) -> bool:
        counts = {labels["code"]: value for labels, value in page.all("gpu_error_events_total")}
        return counts["79"] == 1.0 and page.value("gpu_up") == 0.0

    page = daemon.scrape_until(told)
    assert {labels["code"] for labels, _ in page.all("gpu_error_event_last_timestamp_seconds")} == {"79"}
