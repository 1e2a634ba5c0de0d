from pathlib import Path

from exporter.pci import count_gpus

NVIDIA, AMD = 0x10DE, 0x1002


def add(root: Path, address: str, vendor: str, klass: str, *, driver: str = "", virtual: bool = False) -> None:
    device = root / "sys/bus/pci/devices" / address
    device.mkdir(parents=True)
    (device / "vendor").write_text(vendor + "\n")
    (device / "class").write_text(klass + "\n")
    if driver:
        (root / "sys/bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
        (device / "driver").symlink_to(f"../../drivers/{driver}")
    if virtual:
        (device / "physfn").symlink_to("../0000:05:00.0")


def test_gpus_are_counted_by_vendor_whatever_their_class_of_gpu(tmp_path: Path) -> None:
    add(tmp_path, "0000:01:00.0", "0x10de", "0x030000", driver="nvidia")
    add(tmp_path, "0000:01:00.1", "0x10de", "0x040300", driver="snd_hda_intel")
    add(tmp_path, "0000:02:00.0", "0x10de", "0x030200")
    add(tmp_path, "0000:03:00.0", "0x1002", "0x120000", driver="amdgpu")
    add(tmp_path, "0000:04:00.0", "0x1002", "0x038000", driver="amdgpu")
    add(tmp_path, "0000:04:00.1", "0x8086", "0x030000", driver="i915")
    assert count_gpus(NVIDIA, tmp_path) == 2
    assert count_gpus(AMD, tmp_path) == 2


def test_virtual_functions_and_lent_gpus_are_not_this_hosts(tmp_path: Path) -> None:
    add(tmp_path, "0000:05:00.0", "0x1002", "0x120000", driver="gim")
    add(tmp_path, "0000:05:02.0", "0x1002", "0x120000", virtual=True)
    add(tmp_path, "0000:06:00.0", "0x1002", "0x120000", driver="vfio-pci")
    assert count_gpus(AMD, tmp_path) == 1


def test_a_device_that_is_half_there_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "sys/bus/pci/devices/0000:07:00.0").mkdir(parents=True)
    add(tmp_path, "0000:08:00.0", "rubbish", "0x030000")
    assert count_gpus(AMD, tmp_path) == 0


def test_a_host_without_pci_is_not_a_host_without_gpus(tmp_path: Path) -> None:
    assert count_gpus(AMD, tmp_path) is None
