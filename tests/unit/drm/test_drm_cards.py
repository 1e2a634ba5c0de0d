"""Which entries of /sys/class/drm are GPUs of this host?"""

import os
from pathlib import Path

import pytest

from exporter.providers.drm import open_drm
from exporter.providers.drm.cards import Card, Partition, count_cards, find_cards, find_partitions
from exporter.providers.drm.files import KernelFiles
from exporter.providers.protocol import OpenContext, ProviderError
from tests.drm import Answers, card, platform_card, write


def addresses(root: Path) -> list[str | None]:
    return [found.pci_address for found in find_cards(root)]


def test_all_that_the_kernel_tells_of_a_card(tmp_path: Path) -> None:
    card(tmp_path, 1, address="0000:0c:00.0", minor=129)
    assert find_cards(tmp_path) == (
        Card(
            number=1,
            folder=f"{tmp_path}/sys/class/drm/card1/device",
            name="0000:0c:00.0",
            driver="amdgpu",
            pci_address="0000:0c:00.0",
            vendor_id=0x1002,
            device_id=0x744C,
            revision=0xCC,
            minor=129,
        ),
    )


def test_cards_of_two_and_three_digits_are_found_in_the_order_of_their_addresses(tmp_path: Path) -> None:
    for number in (0, 9, 10, 46, 128):
        card(tmp_path, number, address=f"0000:{0xF0 - number:02x}:00.0", minor=128 + number)
    assert [found.number for found in find_cards(tmp_path)] == [128, 46, 10, 9, 0]
    assert count_cards(tmp_path) == 5


def test_connectors_and_render_nodes_are_no_cards(tmp_path: Path) -> None:
    card(tmp_path, 0)
    assert {path.name for path in (tmp_path / "sys/class/drm").iterdir()} == {
        *("card0", "card0-HDMI-A-1", "renderD128", "version")
    }
    assert addresses(tmp_path) == ["0000:03:00.0"]


@pytest.mark.parametrize(
    ("driver", "minor"),
    [
        ("ast", None),  # ASPEED
        ("mgag200", None),
        ("hibmc-drm", None),
        ("bochs-drm", None),
        ("cirrus", None),
        ("qxl", None),
        ("virtio-pci", 128),
        ("virtio_gpu", 128),
        ("vmwgfx", 128),
        ("nvidia", 128),
        ("some-display", None),
    ],
)
def test_what_is_no_gpu_or_tells_nothing_is_left_out(tmp_path: Path, driver: str, minor: int | None) -> None:
    card(tmp_path, 0, driver=driver, minor=minor)
    assert find_cards(tmp_path) == ()
    assert count_cards(tmp_path) == 0


@pytest.mark.parametrize("name", ["simple-framebuffer.0", "vesa-framebuffer.0"])
def test_the_framebuffer_of_the_firmware_is_left_out(tmp_path: Path, name: str) -> None:
    platform_card(tmp_path, 0, name, "simple-framebuffer")
    card(tmp_path, 1, driver="xe")
    assert [found.driver for found in find_cards(tmp_path)] == ["xe"]


@pytest.mark.parametrize("driver", ["amdgpu", "radeon", "i915", "xe", "nouveau"])
def test_a_known_driver_is_of_a_gpu_whether_or_not_it_renders(tmp_path: Path, driver: str) -> None:
    card(tmp_path, 0, driver=driver, minor=None)
    assert [found.driver for found in find_cards(tmp_path)] == [driver]


def test_a_gpu_on_no_bus_has_its_driver_for_a_vendor(tmp_path: Path) -> None:
    platform_card(tmp_path, 0, "fd000000.gpu", "panthor", minor=128)
    (found,) = find_cards(tmp_path)
    assert (found.name, found.vendor, found.pci_address) == ("fd000000.gpu", "panthor", None)


def test_partitions_are_no_cards(tmp_path: Path) -> None:
    card(tmp_path, 1, address="0000:05:00.0")
    for number in range(7):
        platform_card(tmp_path, 40 + number, f"amdgpu_xcp.{number}", "amdgpu_xcp", minor=129 + number)
    assert addresses(tmp_path) == ["0000:05:00.0"]
    partitions = find_partitions(tmp_path, KernelFiles())
    assert partitions[0] == Partition(name="amdgpu_xcp.0", minor=129)
    assert len(partitions) == 7


def test_a_slice_of_a_card_is_not_counted_beside_it(tmp_path: Path) -> None:
    whole = card(tmp_path, 0, driver="xe", address="0000:03:00.0")
    card(tmp_path, 1, {"physfn": whole}, driver="xe", address="0000:03:00.1", minor=129)
    assert addresses(tmp_path) == ["0000:03:00.0"]


def test_cards_are_counted_without_a_file_that_waits_for_their_driver(tmp_path: Path) -> None:
    # The daemon itself counts them, which must not wait for a driver that is stuck.
    card(tmp_path, 0)
    files = Answers()
    assert len(find_cards(tmp_path, files)) == 1
    assert {path.rpartition("/")[2] for path in files.asked} == {"vendor", "device", "revision"}


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    revision = card(tmp_path, 0) / "revision"
    revision.unlink()
    os.mkfifo(revision)
    assert [found.revision for found in find_cards(tmp_path)] == [None]


def test_a_card_without_links_is_known_by_what_its_files_say(tmp_path: Path) -> None:
    # As trees are that were copied file by file; these values are of the fixture of prometheus/procfs.
    write(
        tmp_path / "sys/class/drm/card0/device",
        {"uevent": "DRIVER=amdgpu\nPCI_CLASS=30000\nPCI_ID=1002:687F\nPCI_SLOT_NAME=0000:0B:00.0\n"},
    )
    (found,) = find_cards(tmp_path)
    assert (found.pci_address, found.vendor, found.device_id) == ("0000:0b:00.0", "amd", 0x687F)


@pytest.mark.parametrize("said", ["", "DRIVER", "\xff\xfe=x", "PCI_ID=:\nPCI_SLOT_NAME=here"])
def test_a_card_that_says_nothing_of_itself_is_left_out(tmp_path: Path, said: str) -> None:
    write(tmp_path / "sys/class/drm/card0/device", {"uevent": said.encode("latin-1")})
    assert find_cards(tmp_path) == ()


def test_a_host_without_drm_has_no_cards(tmp_path: Path) -> None:
    assert find_cards(tmp_path) == ()
    assert count_cards(tmp_path) is None
    with pytest.raises(ProviderError, match="no device"):
        open_drm(OpenContext(between_calls=lambda: None, root=tmp_path))


def test_a_host_with_nvidias_driver_alone_needs_no_worker_for_it(tmp_path: Path) -> None:
    card(tmp_path, 0, driver="nvidia")
    with pytest.raises(ProviderError, match="no device"):
        open_drm(OpenContext(between_calls=lambda: None, root=tmp_path))
