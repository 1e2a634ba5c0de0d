"""Which GPU is behind a handle."""

from collections.abc import Mapping
from typing import Any

import pytest

from exporter.model import Group
from tests.unit.nvidia.fake import UUID, FakeNvml, Status, gpu, memory_v1, only, opened, pci_info


def test_identity_of_a_data_centre_gpu() -> None:
    card = gpu(
        3,
        nvmlDeviceGetSerial="1652922001234",
        nvmlDeviceGetMinorNumber=5,
        nvmlDeviceGetPciInfo=pci_info(domain=0, bus=0xDB, device=0),
        nvmlDeviceGetVbiosVersion="96.00.74.00.01",
        nvmlDeviceGetInforomImageVersion="G520.0200.00.05",
        nvmlDeviceGetMemoryInfo=memory_v1(81559 << 20, 1 << 30),
        nvmlDeviceGetMigMode=[0, 0],
    )
    device = only(opened(FakeNvml(card)))
    assert (device.vendor, device.key, device.vendor_uuid) == ("nvidia", UUID.format(3), UUID.format(3))
    assert (device.model, device.serial, device.index, device.minor) == ("NVIDIA H100 80GB HBM3", "1652922001234", 0, 5)
    assert (device.pci_address, device.driver_version) == ("0000:db:00.0", "580.95.05")
    assert (device.architecture, device.memory_kind, device.partition_mode) == ("Hopper", "dedicated", None)
    assert device.firmware == {"vbios": "96.00.74.00.01", "inforom": "G520.0200.00.05"}
    assert device.package is None


def test_pci_domain_has_four_digits_and_more_only_when_it_needs_them() -> None:
    for domain, address in ((0, "0000:01:0a.0"), (0xABCD, "abcd:01:0a.0"), (0x10000, "10000:01:0a.0")):
        card = gpu(nvmlDeviceGetPciInfo=pci_info(domain=domain, bus=1, device=0xA))
        assert only(opened(FakeNvml(card))).pci_address == address


def test_pci_address_of_all_zeros_is_none() -> None:
    assert only(opened(FakeNvml(gpu(nvmlDeviceGetPciInfo=pci_info(device_id=0))))).pci_address is None


def test_pci_address_is_the_key_where_there_is_no_uuid() -> None:
    library = FakeNvml(gpu(7, nvmlDeviceGetUUID=Status(3), nvmlDeviceGetPowerUsage=9_000))
    device = only(opened(library))
    assert (device.key, device.vendor_uuid) == ("0000:07:00.0", None)
    assert opened(library).read(device, frozenset({Group.ENERGY})).power_watts == 9.0


def test_gpu_that_loses_its_uuid_for_once_gets_no_second_key() -> None:
    card = gpu()
    provider = opened(FakeNvml(card))
    before = provider.devices()
    for code in (15, 999, 17):
        card.answers["nvmlDeviceGetUUID"] = Status(code)
        assert provider.devices() == before


def test_loss_in_the_middle_of_identity_keeps_the_identity_from_before() -> None:
    card = gpu(nvmlDeviceGetSerial="17", nvmlDeviceGetPowerUsage=Status(15))
    provider = opened(FakeNvml(card))
    before = only(provider)
    card.answers["nvmlDeviceGetSerial"] = Status(15)
    assert only(provider) == before
    assert provider.read(before, frozenset({Group.ENERGY})).lost


@pytest.mark.parametrize("code", [2, 3, 4, 21])
def test_a_gpu_whose_uuid_is_refused_for_once_stays_what_it_is(code: int) -> None:
    card = gpu(nvmlDeviceGetPowerUsage=10_000)
    provider = opened(FakeNvml(card))
    before = only(provider)
    card.answers["nvmlDeviceGetUUID"] = Status(code)
    assert only(provider) == before
    assert provider.read(before, frozenset({Group.ENERGY})).power_watts == 10.0


@pytest.mark.parametrize(
    ("memory", "kind"),
    [
        (memory_v1(1 << 34, 0), "dedicated"),
        (memory_v1(0, 0), "unified"),  # GB10
        (Status(3), "unified"),  # Jetson, and GB10 on other drivers
        (Status(4), None),  # the parent of MIG instances in a container
        (Status(17), None),
    ],
)
def test_memory_kind(memory: Any, kind: str | None) -> None:
    assert only(opened(FakeNvml(gpu(nvmlDeviceGetMemoryInfo=memory)))).memory_kind == kind


@pytest.mark.parametrize(
    ("code", "name"), [(4, "Pascal"), (6, "Turing"), (10, "Blackwell"), (13, "Rubin"), (0xFFFFFFFF, None), (99, None)]
)
def test_architecture_has_a_name_where_it_is_known(code: int, name: str | None) -> None:
    assert only(opened(FakeNvml(gpu(nvmlDeviceGetArchitecture=code)))).architecture == name


BOARD: Mapping[str, Any] = {"nvmlDeviceGetMultiGpuBoard": 1, "nvmlDeviceGetBoardId": 0x8500}


def test_gpus_of_one_board_share_a_package_and_may_share_a_serial() -> None:
    cards = [gpu(n, **BOARD, nvmlDeviceGetSerial="0324") for n in (1, 2)]
    other = gpu(3, **BOARD | {"nvmlDeviceGetBoardId": 0x8600})
    single = gpu(4, nvmlDeviceGetMultiGpuBoard=0, nvmlDeviceGetBoardId=0x8500)
    devices = opened(FakeNvml(*cards, other, single)).devices()
    assert [d.package for d in devices] == ["board-8500", "board-8500", None, None]
    assert len({d.key for d in devices}) == 4


def test_of_two_gpus_with_one_uuid_the_first_is_read_and_the_other_is_told_last() -> None:
    twins = [gpu(n, nvmlDeviceGetUUID="GPU-same", nvmlDeviceGetPowerUsage=1000 * (n + 1)) for n in range(2)]
    provider = opened(FakeNvml(*twins, gpu(2)))
    first, other, twin = provider.devices()
    assert (first.key, other.key, twin.key) == ("GPU-same", UUID.format(2), "GPU-same")
    assert (first.pci_address, twin.pci_address) == ("0000:00:00.0", "0000:01:00.0")
    assert provider.read(first, frozenset({Group.ENERGY})).power_watts == 1.0


def test_device_is_found_by_uuid_when_the_order_changed() -> None:
    library = FakeNvml(gpu(1, nvmlDeviceGetPowerUsage=10_000), gpu(2, nvmlDeviceGetPowerUsage=20_000))
    first, second = opened(library).devices()
    library.gpus.reverse()
    anew = opened(library)
    energy = frozenset({Group.ENERGY})
    assert (anew.read(first, energy).power_watts, anew.read(second, energy).power_watts) == (10.0, 20.0)
    assert [d.index for d in anew.devices()] == [0, 1]
    assert [d.key for d in anew.devices()] == [second.key, first.key]


def test_mig_that_is_switched_shows_in_the_identity_without_enumeration() -> None:
    card = gpu(nvmlDeviceGetMigMode=[0, 0], nvmlDeviceGetMaxMigDeviceCount=0)
    provider = opened(FakeNvml(card))
    device = only(provider)
    card.answers["nvmlDeviceGetMigMode"] = [1, 1]
    assert provider.read(device, frozenset({Group.STATE})).device.partition_mode == "mig"
    card.answers["nvmlDeviceGetMigMode"] = [0, 1]
    assert provider.read(device, frozenset({Group.STATE})).device.partition_mode is None
