import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from exporter.fleet import groups
from exporter.model import Device, Group, Sample
from exporter.providers.protocol import ProviderError
from tests.unit.amd.vendor import ADDRESS, ALL, FakeAmdsmi, Handle, error, gpu, provider, read


def test_a_guest_without_identity_is_known_by_its_address() -> None:
    handle = gpu(
        gpu_asic_info={"asic_serial": "0x0000000000000000", "market_name": "", "target_graphics_version": "gfx9008"},
        gpu_device_uuid="00000000-0000-0000-0000-000000000000",
        gpu_kfd_info={"kfd_id": 5, "current_partition_id": 4294967295},
        gpu_board_info={"product_name": "N/A", "product_serial": ""},
    )
    (device,) = provider(FakeAmdsmi(handle)).devices()
    assert device == Device(vendor="amd", key=ADDRESS, pci_address=ADDRESS, index=0)


def test_an_unreadable_serial_number_leaves_the_address() -> None:
    (device,) = provider(FakeAmdsmi(gpu(gpu_asic_info=ValueError("invalid literal for int() with base 16")))).devices()
    assert device.key == ADDRESS


def test_the_render_node_is_found_in_sysfs_where_amd_smi_does_not_tell_it(tmp_path: Path) -> None:
    (tmp_path / f"sys/bus/pci/devices/{ADDRESS}/drm/renderD129").mkdir(parents=True)
    (device,) = provider(FakeAmdsmi(gpu()), tmp_path).devices()
    assert device.minor == 129


def test_the_partition_mode_is_asked_for_once() -> None:
    module = FakeAmdsmi(gpu(gpu_compute_partition="SPX", gpu_memory_partition="NPS1"))
    opened = provider(module)
    for _ in range(3):
        (device,) = opened.devices()
        opened.read(device, ALL)
    assert device.partition_mode == "SPX/NPS1"
    assert module.calls.count("amdsmi_get_gpu_compute_partition") == 1


@pytest.mark.parametrize("wrap", [lambda number: number, lambda number: [number]])
def test_partitions_that_share_an_address_are_told_apart_by_their_profiles(wrap: Callable[[int], Any]) -> None:
    def part(number: int) -> Handle:
        profile = {"partition_id": wrap(number), "partition_profile": {"profile_type": "DPX"}}
        return gpu(gpu_accelerator_partition_profile=profile, power_info={"average_socket_power": 100 + number})

    opened = provider(FakeAmdsmi(part(1), part(0)))
    (device,) = opened.devices()
    sample = opened.read(device, ALL)
    assert device.partition_mode == "DPX"
    assert sample.power_watts == 100
    assert sample.partitions is not None
    assert [(one.partition, one.profile) for one in sample.partitions] == [("0", "DPX"), ("1", "DPX")]


def test_without_a_word_about_them_partitions_go_by_their_order() -> None:
    parts = [gpu(power_info={"average_socket_power": 100 + number}) for number in range(3)]
    opened = provider(FakeAmdsmi(*parts))
    (device,) = opened.devices()
    sample = opened.read(device, ALL)
    assert sample.power_watts == 100
    assert [one.partition for one in sample.partitions or ()] == ["0", "1", "2"]


def test_each_call_is_preceded_by_the_service_of_urgent_requests() -> None:
    module = FakeAmdsmi(gpu(gpu_process_list=[]))
    served: list[int] = []
    opened = provider(module, between_calls=lambda: served.append(len(module.calls)))
    (device,) = opened.devices()
    opened.read(device, ALL)
    assert served == list(range(len(module.calls)))


def test_an_urgent_read_between_two_calls_gives_what_any_other_does() -> None:
    module = FakeAmdsmi(
        gpu(power_info={"average_socket_power": 94}),
        gpu(gpu_device_bdf="0000:06:00.0", gpu_asic_info={"asic_serial": "0x2"}),
    )
    urgent: list[Sample] = []
    state: dict[str, Any] = {"ready": False}

    def serve() -> None:
        if state["ready"]:
            state["ready"] = False
            urgent.append(opened.read(first, frozenset({Group.ENERGY})))
            state["ready"] = len(urgent) < 10

    opened = provider(module, between_calls=serve)
    first, second = opened.devices()
    state["ready"] = True
    sample = opened.read(second, ALL)
    assert sample.device.key == "0000000000000002"
    assert sample.power_watts is None
    assert [one.power_watts for one in urgent] == [94] * 10
    assert all(one.taken_at.keys() == {Group.ENERGY} for one in urgent)


def test_groups_are_read_as_asked_for_and_stamped_in_their_middle() -> None:
    opened = provider(FakeAmdsmi(gpu(power_info={"average_socket_power": 94}, gpu_activity={"gfx_activity": 3})))
    (device,) = opened.devices()
    sample = opened.read(device, frozenset({Group.LOAD, Group.PROFILING}))
    assert sample.power_watts is None
    assert sample.utilization_ratio == pytest.approx(0.03)
    assert sample.taken_at == {Group.LOAD: 101.5}
    assert sample.read_seconds == {Group.LOAD: 1.0}


def test_a_suspended_gpu_is_asleep_and_no_call_wakes_it(tmp_path: Path) -> None:
    power = tmp_path / f"sys/bus/pci/devices/{ADDRESS}/power"
    power.mkdir(parents=True)
    (power / "runtime_status").write_text("active\n")
    module = FakeAmdsmi(gpu(power_info={"average_socket_power": 9}))
    opened = provider(module, tmp_path)
    (device,) = opened.devices()
    assert opened.read(device, ALL).power_watts == 9
    (power / "runtime_status").write_text("suspended\n")
    module.calls.clear()
    assert opened.read(device, ALL) == Sample(device=device, asleep=True)
    assert module.calls == []
    assert opened.devices() == (device,)
    assert "amdsmi_get_gpu_vram_info" not in module.calls


@pytest.mark.parametrize(("config", "lost"), [(b"\xff" * 64, True), (b"\x02\x10\xa1\x74", False)])
def test_a_card_that_fell_off_the_bus_is_lost_whatever_amd_smi_answers(
    tmp_path: Path, config: bytes, lost: bool
) -> None:
    pci = tmp_path / f"sys/bus/pci/devices/{ADDRESS}"
    pci.mkdir(parents=True)
    (pci / "config").write_bytes(config)
    sample = read(gpu(power_info=error(12), gpu_activity={"gfx_activity": 5}), root=tmp_path)
    assert sample.lost is lost
    assert (sample.utilization_ratio is None) is lost


@pytest.mark.parametrize(("code", "lost"), [(6, True), (12, True), (14, True), (9, False), (30, False)])
def test_a_card_whose_address_cannot_be_had_any_more_is_lost(code: int, lost: bool) -> None:
    handle = gpu(power_info={"average_socket_power": 30})
    opened = provider(FakeAmdsmi(handle))
    (device,) = opened.devices()
    handle.answers |= {"amdsmi_get_gpu_device_bdf": error(code), "amdsmi_get_gpu_activity": error(code)}
    sample = opened.read(device, ALL)
    assert (sample.lost, sample.power_watts) == (lost, None if lost else 30)


def test_a_card_that_pci_does_not_show_is_lost(tmp_path: Path) -> None:
    (tmp_path / "sys/bus/pci/devices").mkdir(parents=True)
    assert read(gpu(power_info=error(12)), root=tmp_path).lost


def test_handles_that_died_are_fetched_anew() -> None:
    module = FakeAmdsmi(gpu())
    opened = provider(module)
    (device,) = opened.devices()
    module.handles = [gpu(power_info={"average_socket_power": 77})]
    assert opened.read(device, ALL).power_watts == 77
    module.handles = []
    assert opened.read(device, ALL) == Sample(device=device, lost=True)
    module.handles = [gpu(power_info={"average_socket_power": 78})]
    module.calls.clear()
    assert opened.read(device, ALL).lost  # not looked for again at each read
    assert module.calls == []
    for _ in range(5):
        sample = opened.read(device, ALL)
    assert sample.power_watts == 78


def test_a_list_of_devices_that_cannot_be_had_is_an_outage() -> None:
    module = FakeAmdsmi(gpu())

    def fail(name: str) -> None:
        if name == "amdsmi_get_processor_handles":
            raise error(16)

    module.on_call = fail
    with pytest.raises(ProviderError, match="cannot list"):
        provider(module).devices()


@pytest.mark.parametrize("code", [2, 8, 12, 30, 31, 43])
def test_a_card_whose_identity_breaks_for_once_stays_what_it_is(code: int) -> None:
    handle = gpu(
        gpu_asic_info={
            "asic_serial": "0xB1D2C3A4E5F60718",
            "market_name": "AMD Instinct MI250X",
            "device_id": "0x7408",
        },
        power_info={"average_socket_power": 400},
    )
    opened = provider(FakeAmdsmi(handle))
    (device,) = opened.devices()
    handle.answers["amdsmi_get_gpu_asic_info"] = error(code)
    assert opened.devices() == (device,)
    assert opened.read(device, ALL).power_scope == "package"


def test_a_list_of_handles_none_of_which_answers_is_an_outage() -> None:
    """What is left of an unloaded driver: the library must be opened anew, which no enumeration does."""
    module = FakeAmdsmi(gpu(power_info={"average_socket_power": 30}))
    opened = provider(module)
    (device,) = opened.devices()

    def fail(name: str) -> None:
        if name not in {"amdsmi_get_processor_handles", "amdsmi_shut_down"}:
            raise error(31)

    module.on_call = fail
    with pytest.raises(ProviderError, match="1 devices and none answers"):
        opened.read(device, ALL)
    with pytest.raises(ProviderError, match="1 devices and none answers"):
        opened.devices()


@pytest.mark.parametrize("code", [2, 9, 30, 43])
def test_a_card_that_gives_nothing_any_more_is_not_known_to_be_lost(code: int) -> None:
    """A driver that answers nothing but errors, or files that were closed to us, say nothing of the card."""
    handle = gpu(power_info={"average_socket_power": 30}, gpu_process_list=[])
    opened = provider(FakeAmdsmi(handle))
    (device,) = opened.devices()
    handle.answers["amdsmi_get_power_info"] = error(code)
    samples = [opened.read(device, ALL) for _ in range(6)]
    assert not any(sample.lost or groups.gave(sample, group) for sample in samples for group in groups.ITS_OWN)
    handle.answers["amdsmi_get_power_info"] = {"average_socket_power": 31}
    assert opened.read(device, ALL).power_watts == 31


def test_it_is_shut_down_once() -> None:
    module = FakeAmdsmi()
    provider(module).close()
    assert module.calls == ["amdsmi_shut_down"]


def test_a_card_that_is_missing_stays_in_the_list_and_is_met_when_it_returns() -> None:
    here, other = (
        gpu(power_info={"average_socket_power": 9}),
        gpu(gpu_device_bdf="0000:06:00.0", gpu_asic_info={"asic_serial": "0x2"}),
    )
    module = FakeAmdsmi(here, other)
    opened = provider(module)
    first, second = opened.devices()
    module.handles = [other]
    assert [device.key for device in opened.devices()] == [second.key, first.key]
    assert opened.read(first, ALL).lost
    module.handles = [here, other]
    samples = [opened.read(first, ALL) for _ in range(6)]
    assert samples[-1].power_watts == 9


def test_a_card_whose_key_was_its_address_is_not_missing_once_it_says_its_own() -> None:
    module = FakeAmdsmi(gpu(gpu_asic_info=error(30)))
    opened = provider(module)
    assert [device.key for device in opened.devices()] == [ADDRESS]
    module.handles = [gpu()]
    assert [device.key for device in opened.devices()] == ["b1d2c3a4e5f60718"]


def test_partitions_that_the_firmware_counts_are_fetched_before_the_next_read() -> None:
    module = FakeAmdsmi(gpu(gpu_metrics_info={"num_partition": 1}, gpu_compute_partition="SPX"))
    opened = provider(module)
    (device,) = opened.devices()
    opened.read(device, ALL)
    parts = [
        gpu(
            gpu_metrics_info={"num_partition": 2}, gpu_compute_partition="DPX", gpu_kfd_info={"current_partition_id": n}
        )
        for n in range(2)
    ]
    whole = module.handles[0]
    whole.answers["amdsmi_get_gpu_metrics_info"] = {"num_partition": 2}
    opened.read(device, ALL)
    module.handles = [whole, *parts[1:]]
    whole.answers["amdsmi_get_gpu_compute_partition"] = "DPX"
    whole.answers["amdsmi_get_gpu_kfd_info"] = {"current_partition_id": 0}
    sample = opened.read(device, ALL)
    assert sample.device.partition_mode == "DPX"
    assert [one.partition for one in sample.partitions or ()] == ["0", "1"]
    module.calls.clear()
    opened.read(device, ALL)
    assert "amdsmi_get_processor_handles" not in module.calls


def test_a_count_of_partitions_that_stays_wrong_is_followed_once() -> None:
    module = FakeAmdsmi(gpu(gpu_metrics_info={"num_partition": 8}))
    opened = provider(module)
    (device,) = opened.devices()
    for _ in range(5):
        opened.read(device, ALL)
    assert module.calls.count("amdsmi_get_processor_handles") == 2


def test_a_card_that_falls_asleep_under_a_read_is_asleep(tmp_path: Path) -> None:
    power = tmp_path / f"sys/bus/pci/devices/{ADDRESS}/power"
    power.mkdir(parents=True)
    (power / "runtime_status").write_text("active\n")

    def falls_asleep(*_: object) -> None:
        (power / "runtime_status").write_text("suspended\n")
        raise error(10)

    handle = gpu(power_info={"average_socket_power": 9})
    opened = provider(FakeAmdsmi(handle), tmp_path)
    (device,) = opened.devices()
    handle.answers["amdsmi_get_power_info"] = falls_asleep
    assert opened.read(device, ALL) == Sample(device=device, asleep=True)


def test_a_card_that_slept_when_it_was_listed_is_described_when_it_wakes(tmp_path: Path) -> None:
    pci = tmp_path / f"sys/bus/pci/devices/{ADDRESS}"
    (pci / "power").mkdir(parents=True)
    (pci / "power/runtime_status").write_text("suspended\n")
    (pci / "unique_id").write_text("b1d2c3a4e5f60718\n")
    module = FakeAmdsmi(gpu(power_info={"average_socket_power": 9}, gpu_board_info={"product_name": "MI300X"}))
    opened = provider(module, tmp_path)
    (device,) = opened.devices()
    assert (device.key, device.pci_address, device.model) == ("b1d2c3a4e5f60718", ADDRESS, None)
    assert set(module.calls) == {"amdsmi_get_processor_handles", "amdsmi_get_gpu_device_bdf"}
    assert opened.read(device, ALL).asleep
    (pci / "power/runtime_status").write_text("active\n")
    sample = opened.read(device, ALL)
    assert (sample.power_watts, sample.device.key, sample.device.model) == (9, device.key, "MI300X")


def test_a_default_limit_that_breaks_is_counted_and_asked_for_again() -> None:
    handle = gpu(power_cap_info=error(16), power_info={"average_socket_power": 9, "power_limit": 300})
    opened = provider(FakeAmdsmi(handle))
    (device,) = opened.devices()
    sample = opened.read(device, ALL)
    assert sample.failed == ("power_limit_watts",)
    handle.answers["amdsmi_get_power_cap_info"] = {"default_power_cap": 400}
    assert opened.read(device, ALL).power_limit_default_watts == 400


def test_calls_are_made_one_after_the_other_by_one_thread() -> None:
    """Below ROCm 7.2 the library mixes up the devices of calls that overlap."""
    under_way = [0]
    overlaps: list[str] = []
    threads: set[int] = set()

    def begin(name: str) -> None:
        if under_way != [0]:
            overlaps.append(name)
        under_way[0] += 1
        threads.add(threading.get_ident())

    def end() -> None:
        under_way[0] = 0

    handle = gpu(gpu_process_list=[], gpu_metrics_info={"num_partition": 1}, gpu_asic_info={"asic_serial": "0x1"})
    module = Nested(handle, end=end)
    module.on_call = begin
    urgent: list[Sample] = []

    def serve() -> None:
        assert under_way == [0]
        if len(urgent) < 50 and known:
            urgent.append(Sample(device=known[0]))  # before it reads, so that it is not served within itself for ever
            urgent[-1] = opened.read(known[0], frozenset({Group.ENERGY}))

    known: list[Device] = []
    opened = provider(module, between_calls=serve)
    known.extend(opened.devices())
    opened.read(known[0], ALL)
    assert len(urgent) == 50
    assert overlaps == []
    assert threads == {threading.get_ident()}


class Nested(FakeAmdsmi):
    """Says when a call is over."""

    def __init__(self, *handles: Handle, end: Callable[[], None]) -> None:
        super().__init__(*handles)
        self._end = end

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call = super().__getattr__(name)

        def ended(*arguments: Any) -> Any:
            try:
                return call(*arguments)
            finally:
                self._end()

        return ended


def test_the_vram_in_use_is_never_asked_for_in_the_way_that_opens_kfd() -> None:
    """Whatever else fails: the worker would be listed as a user of every GPU until it ends."""
    for code in (None, 2, 14):
        usage = {"vram_total": 10, "vram_used": 5} if code is None else error(code)
        module = FakeAmdsmi(gpu(gpu_vram_usage=usage, gpu_memory_total=2**37, gpu_memory_usage=5), gpu())
        opened = provider(module)
        for device in opened.devices():
            opened.read(device, ALL)
        asked = set(module.asked)
        assert ("amdsmi_get_gpu_memory_usage", "GTT") in asked
        assert ("amdsmi_get_gpu_memory_usage", "VIS_VRAM") in asked
        assert ("amdsmi_get_gpu_memory_usage", "VRAM") not in asked


def test_firmware_is_asked_for_once_for_each_enumeration() -> None:
    def block(name: str, version: str) -> dict[str, Any]:
        return {"fw_name": SimpleNamespace(name=name), "fw_version": version}

    listed = [
        block("AMDSMI_FW_ID_PM", "00.85.110.00"),
        block("FW_ID_TA_RAS", "1B.36.02.0D"),
        block("AMDSMI_FW_ID_SDMA7", "24"),
        block("AMDSMI_FW_ID_VCN", "00.00.00.00"),
        {"fw_name": 3, "fw_version": None},
        "N/A",
    ]
    module = FakeAmdsmi(gpu(gpu_vbios_info={"version": "113-M3"}, fw_info={"fw_list": listed}))
    opened = provider(module)
    (device,) = opened.devices()
    for _ in range(3):
        opened.read(device, ALL)
    assert device.firmware == {"vbios": "113-M3", "power_management": "00.85.110.00", "ras": "1B.36.02.0D"}
    assert module.calls.count("amdsmi_get_fw_info") == 1


@pytest.mark.parametrize("answer", [error(2), ValueError("80 is not a valid AmdSmiFwBlock"), {"fw_list": "N/A"}, None])
def test_firmware_that_the_package_has_no_name_for_costs_nothing_else(answer: Any) -> None:
    (device,) = provider(FakeAmdsmi(gpu(fw_info=answer, gpu_vbios_info={"version": "113-M3"}))).devices()
    assert device.firmware == {"vbios": "113-M3"}
